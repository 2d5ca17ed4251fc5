//! Image encodings of one row: addresses in a run of registers or register by register (NSA), data sizes, rays.
//!
//! How many registers address and data take depends on modifiers (`dim`, `a16`, `dmask`, `d16`, `tfe`). A row states what
//! the address consists of, `addr=` and one letter each in this order: `o` texel offset, `b` level bias, `c` depth to
//! compare, `d` derivatives, `g` the same in 16 bits, `x` coordinates, `l` level or its clamp. Rays have parts of fixed
//! size: `rays=2,1,3,3,3` dwords.

use crate::expand::{Context, Encoding, Operand, Shape, flag, unused};
use crate::formats::{Format, all_bits, segments};
use crate::rows::Row;
use crate::text::Result;
use std::collections::BTreeSet;

/// What decides the sizes of data and address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Offset, bias and compare words.
    pub extra: u8,
    /// 0 none, 1 of 32 bits, 2 of 16 bits.
    pub gradients: u8,
    pub coords: bool,
    pub lod: bool,
    pub gather: bool,
    /// A register of data holds two halves with `d16`.
    pub packed: bool,
    /// Addresses are given one by one, so many of them; 0: as one run.
    pub slots: u8,
    /// The last one may be a run.
    pub partial: bool,
    /// Dwords of the parts of a ray.
    pub rays: Vec<u8>,
    /// Address and data sizes that exist.
    pub addrs: Vec<u8>,
    pub datas: Vec<u8>,
}

/// Address sizes that an image operation has: as one run of registers, and listed.
fn sizes(image: &Image, sampler: bool) -> (Vec<u8>, Vec<u8>) {
    let (least, most) = match (sampler, image.gradients, image.lod) {
        (false, ..) => (1, 4),
        (true, 0, false) => (1, 3),
        (true, 0, true) => (1, 4),
        (true, 1, false) => (2, 9),
        (true, 1, true) => (2, 10),
        (true, _, false) => (2, 7),
        (true, _, true) => (2, 8),
    };
    let extra = image.extra;
    let list: Vec<u8> = (least + extra..=most + extra).collect();
    // runs of three, of five to seven and of nine to eleven registers may also be of the next power of two or twelve
    let mut run = list.clone();
    for (from, to) in [(3..4, 4), (5..8, 8), (9..12, 12)] {
        if list.iter().any(|n| from.contains(n)) && !run.contains(&to) {
            run.push(to);
        }
    }
    (run, list)
}

/// Largest number of addresses that any encoding lists.
const MOST: u8 = 13;

pub fn expand(
    op: &str,
    row: &Row,
    cx: &Context,
    name: &str,
    f: Format,
    fixed: u128,
    mask: u128,
) -> Result<Vec<Encoding>> {
    let fail = |word: &str, what: &str| row.fail(word, what);
    let has = |w: &str| row.sig.words.iter().any(|x| x == w);
    let word = |key: &str| row.sig.words.iter().find_map(|w| w.strip_prefix(key));
    let parts = word("addr=").unwrap_or("");
    if let Some(c) = parts.chars().find(|c| !"obcdgxl".contains(*c)) {
        return Err(fail(parts, &format!("`{c}` is no part of an address")));
    }
    let rays: Vec<u8> = match word("rays=") {
        None => Vec::new(),
        Some(list) => {
            list.split(',').map(|n| n.parse().map_err(|_| fail(list, "expected dwords"))).collect::<Result<_>>()?
        }
    };
    let sampler = row.sig.srcs.iter().any(|s| s == "samp");
    let data = row.sig.dsts.iter().chain(&row.sig.srcs).find_map(|s| s.strip_prefix("vdata:"));
    let data = data.ok_or_else(|| fail(&row.mnemonic, "expected vdata:type"))?;
    let has_dim = f.fields.contains_key("dim");
    let nsa = f.fields.get("nsa").cloned();
    let base = Image {
        extra: parts.chars().filter(|c| "obc".contains(*c)).count() as u8,
        gradients: if parts.contains('g') { 2 } else { u8::from(parts.contains('d')) },
        coords: parts.contains('x'),
        lod: parts.contains('l'),
        gather: matches!(data, "gather" | "samples"),
        packed: f.fields.contains_key("d16"),
        // the first is what LLVM prints where the modifiers ask for a size that is not there
        datas: match data {
            "gather" => vec![2, 4, 5],
            "samples" => vec![4, 2, 3, 5],
            _ if has("cmpswap") => vec![2, 3, 4, 5],
            _ if has("atomic") => vec![1, 2, 3],
            _ => vec![1, 2, 3, 4, 5],
        },
        ..Image::default()
    };
    let (runs, all) = sizes(&base, sampler);
    let most = all.iter().copied().max().unwrap_or(1);
    // (extra dwords of addresses, image facts, a16 when fixed)
    let mut cases: Vec<(u8, Image, Option<u64>)> = Vec::new();
    if !rays.is_empty() {
        let short = |half: bool| -> Vec<u8> {
            // 16-bit directions come in three dwords less
            if half { rays[..rays.len() - 1].to_vec() } else { rays.clone() }
        };
        for half in if has("a16") { vec![false, true] } else { vec![false] } {
            let groups = short(half);
            let total: u8 = groups.iter().sum();
            let a16 = f.fields.contains_key("a16").then_some(u64::from(half));
            if let Some(n) = &nsa {
                let wide = n.pieces[0].len > 1;
                cases.push((0, Image { rays: vec![total], ..base.clone() }, a16));
                let list = if wide { vec![1; usize::from(total)] } else { groups.clone() };
                let extra = (list.len() as u8 - 1).div_ceil(4);
                cases.push((extra, Image { slots: list.len() as u8, rays: list, ..base.clone() }, a16));
            } else {
                cases.push((0, Image { slots: groups.len() as u8, rays: groups, ..base.clone() }, a16));
            }
        }
    } else if let Some(n) = &nsa {
        let wide = n.pieces[0].len > 1;
        let runs: Vec<u8> = runs.iter().map(|s| if *s > 12 { 16 } else { *s }).collect();
        cases.push((0, Image { addrs: runs, ..base.clone() }, None));
        for extra in 1..=if wide { (most.min(MOST) - 1).div_ceil(4) } else { 1 } {
            let limit = if wide { MOST } else { u8::MAX };
            let addrs = all.iter().copied().filter(|s| (2..=limit).contains(s)).collect();
            let slots = (1 + 4 * extra).min(most);
            cases.push((extra, Image { addrs, slots, partial: !wide, ..base.clone() }, None));
        }
    } else if has_dim {
        cases.push((0, Image { slots: most.min(4), addrs: all, partial: true, ..base.clone() }, None));
    } else {
        cases.push((0, Image { addrs: runs, ..base.clone() }, None));
    }
    let returns: &[Option<bool>] = if has("atomic") { &[Some(false), Some(true)] } else { &[None] };
    let mut out = Vec::new();
    for (extra, image, half) in cases {
        for &returning in returns {
            let (mut fixed, mut mask) = (fixed, mask);
            let mut used: BTreeSet<&str> = BTreeSet::new();
            let mut operands = Vec::new();
            let mut add = |name: &'static str, role: u8, kind: &str, width: u16, flags: u16| -> Result<()> {
                let field = f.fields.get(name).ok_or_else(|| fail(name, "the format has no such field"))?;
                used.insert(name);
                let kind = if kind.is_empty() { field.kind.as_str() } else { kind };
                operands.push(Operand {
                    name: name.into(),
                    role,
                    kind: kind.into(),
                    ty: "b32".into(),
                    bits: width,
                    flags,
                    pieces: segments(&field.pieces),
                });
                Ok(())
            };
            let stored = row.sig.srcs.iter().any(|s| s.starts_with("vdata"));
            let role = if stored && returning != Some(true) { 1 } else { 0 };
            let read = if returning == Some(true) { flag::READ } else { 0 };
            if image.rays.is_empty() {
                let acc = f.fields.get("vdata").is_some_and(|v| v.kind == "VA");
                add("vdata", role, if acc { "IDATAA" } else { "IDATA" }, 32, read)?;
            } else {
                let width = data.trim_start_matches('b').parse().map_err(|_| fail(data, "expected a type"))?;
                add("vdata", role, "V", width, read)?;
            }
            add("vaddr", 1, if image.slots > 0 { "ILIST" } else { "IADDR" }, 32, 0)?;
            add("rsrc", 1, "", if image.rays.is_empty() { 256 } else { 128 }, flag::SCALAR_ONLY)?;
            if sampler {
                add("samp", 1, "", 128, flag::SCALAR_ONLY)?;
            }
            let mods: &[&str] = if image.rays.is_empty() {
                &["dmask", "dim", "unorm", "cpol", "r128", "a16", "tfe", "lwe", "da", "d16", "d16u"]
            } else {
                &["a16"]
            };
            for m in mods.iter().copied() {
                if m.starts_with("d16") && !has("d16") || !f.fields.contains_key(m) || m == "a16" && half == Some(0) {
                    continue;
                }
                add(m, 2, "MOD", 0, 0)?;
            }
            if let Some(n) = &nsa {
                fixed |= u128::from(extra) << n.pieces[0].lo;
                mask |= all_bits(&n.pieces);
                used.insert("nsa");
            }
            if let (Some(glc), Some(ret)) = (f.fields.get("cpol"), returning) {
                let bit = 1u128 << glc.pieces[0].lo;
                mask |= bit;
                fixed |= if ret { bit } else { 0 };
            }
            if !image.rays.is_empty() {
                for (field, value) in [("dmask", 15), ("unorm", 1), ("r128", 1), ("a16", half.unwrap_or(0))] {
                    let Some(x) = f.fields.get(field) else { continue };
                    fixed |= u128::from(value) << x.pieces[0].lo;
                    mask |= all_bits(&x.pieces);
                    used.insert(if field == "a16" { "a16" } else { "dmask" });
                }
            }
            // addresses that stand beyond those that the operation can have
            if nsa.is_none() && image.slots > 0 {
                let listed = u32::from(image.slots).min(4);
                for i in listed..4 {
                    mask |= 0xff << (64 + 8 * i);
                }
                if let Some(fifth) = f.fields.get("vaddr4")
                    && image.slots < 5
                {
                    mask |= all_bits(&fifth.pieces);
                }
                used.insert("vaddr4");
            }
            mask |= unused(&f, &operands, |name| used.contains(name)).1;
            let mut words = BTreeSet::new();
            if let Some(ret) = returning {
                words.insert(if ret { "ret" } else { "noret" }.to_string());
            }
            out.push(Encoding {
                op: op.to_string(),
                mnemonic: row.mnemonic.clone(),
                shape: Shape {
                    format: name.to_string(),
                    bytes: f.bytes + 4 * extra,
                    operands,
                    words,
                    image: Some(image.clone()),
                },
                fixed,
                mask,
                variant: crate::expand::implicit(row),
            });
        }
    }
    let _ = cx;
    Ok(out)
}
