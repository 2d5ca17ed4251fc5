//! Image encodings of one row: addresses in a run of registers or register by register (NSA), data sizes, rays.
//!
//! How many registers address and data take depends on modifiers (`dim`, `a16`, `dmask`, `d16`, `tfe`). A row states what
//! the address consists of, `addr=` and one letter each in this order: `o` texel offset, `b` level bias, `c` depth to
//! compare, `d` derivatives, `g` the same in 16 bits, `x` coordinates, `l` level or its clamp. Rays have parts of fixed
//! size: `rays=2,1,3,3,3` dwords.

use super::expand::{Encoding, Frame, Shape, implicit};
use super::formats::{Format, Piece, all_bits, segments};
use super::operand::{Operand, unused};
use super::rows::Row;
use super::schema::{FieldKind, Kind, Role, flag};
use super::text::Result;
use std::collections::BTreeSet;

pub type Image = super::schema::Image<Vec<u8>>;

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

/// One way to write the addresses: extra dwords of the encoding, what decides the sizes, a16 where that is fixed.
type Case = (u8, Image, Option<u64>);

/// What a row says of its image.
struct Parts<'a> {
    row: &'a Row,
    format: &'a Format,
    /// Dwords of the parts of a ray.
    rays: Vec<u8>,
    sampler: bool,
    data: &'a str,
}

impl Parts<'_> {
    fn has(&self, word: &str) -> bool {
        self.row.sig.words.iter().any(|w| w == word)
    }

    fn word(&self, key: &str) -> Option<&str> {
        self.row.sig.words.iter().find_map(|w| w.strip_prefix(key))
    }

    /// The image facts that all cases share.
    fn base(&self) -> Result<Image> {
        let parts = self.word("addr=").unwrap_or("");
        if let Some(c) = parts.chars().find(|c| !"obcdgxl".contains(*c)) {
            return Err(self.row.fail(parts, &format!("`{c}` is no part of an address")));
        }
        Ok(Image {
            extra: parts.chars().filter(|c| "obc".contains(*c)).map(|_| 1).sum(),
            gradients: if parts.contains('g') { 2 } else { u8::from(parts.contains('d')) },
            coords: parts.contains('x'),
            lod: parts.contains('l'),
            gather: matches!(self.data, "gather" | "samples"),
            packed: self.format.fields.contains_key("d16"),
            // the first is what LLVM prints where the modifiers ask for a size that is not there
            datas: match self.data {
                "gather" => vec![2, 4, 5],
                "samples" => vec![4, 2, 3, 5],
                _ if self.has("cmpswap") => vec![2, 3, 4, 5],
                _ if self.has("atomic") => vec![1, 2, 3],
                _ => vec![1, 2, 3, 4, 5],
            },
            ..Image::default()
        })
    }

    /// Bytes of an instruction that hold the registers of a listed address: fields where the format has them, else the
    /// bytes behind those of the shortest form.
    fn places(&self, slots: u8) -> Vec<u8> {
        let field = |name: &str| self.format.fields.get(name).map(|f| f.pieces[0].lo / 8);
        let later = |i: u8| field(&format!("vaddr{i}")).unwrap_or(self.format.bytes + i - 1);
        (0..slots).map(|i| if i == 0 { field("vaddr").unwrap_or(0) } else { later(i) }).collect()
    }

    /// All ways to write the addresses of a ray.
    fn rays(&self, base: &Image) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for half in if self.has("a16") { vec![false, true] } else { vec![false] } {
            // 16-bit directions come in three dwords less
            let groups = if half { self.rays[..self.rays.len() - 1].to_vec() } else { self.rays.clone() };
            let total: u8 = groups.iter().sum();
            let a16 = self.format.fields.contains_key("a16").then_some(u64::from(half));
            let Some(n) = self.format.fields.get("nsa") else {
                cases.push((0, Image { slots: count(&groups, self.row)?, rays: groups, ..base.clone() }, a16));
                continue;
            };
            cases.push((0, Image { rays: vec![total], ..base.clone() }, a16));
            let list = if n.pieces[0].len > 1 { vec![1; usize::from(total)] } else { groups };
            let slots = count(&list, self.row)?;
            cases.push(((slots - 1).div_ceil(4), Image { slots, rays: list, ..base.clone() }, a16));
        }
        Ok(cases)
    }

    /// All ways to write other addresses.
    fn addresses(&self, base: &Image) -> Vec<Case> {
        let (runs, all) = sizes(base, self.sampler);
        let most = all.iter().copied().fold(1, u8::max);
        let one = |image: Image| vec![(0, image, None)];
        let Some(n) = self.format.fields.get("nsa") else {
            return match self.format.fields.contains_key("dim") {
                true => one(Image { slots: most.min(4), addrs: all, partial: true, ..base.clone() }),
                false => one(Image { addrs: runs, ..base.clone() }),
            };
        };
        let wide = n.pieces[0].len > 1;
        let runs: Vec<u8> = runs.iter().map(|s| if *s > 12 { 16 } else { *s }).collect();
        let mut cases = one(Image { addrs: runs, ..base.clone() });
        for extra in 1..=if wide { (most.min(MOST) - 1).div_ceil(4) } else { 1 } {
            let limit = if wide { MOST } else { u8::MAX };
            let addrs = all.iter().copied().filter(|s| (2..=limit).contains(s)).collect();
            let slots = (1 + 4 * extra).min(most);
            cases.push((extra, Image { addrs, slots, partial: !wide, ..base.clone() }, None));
        }
        cases
    }
}

/// Parts of a ray.
fn count(list: &[u8], row: &Row) -> Result<u8> {
    u8::try_from(list.len()).map_err(|_| row.fail("rays=", "too many parts"))
}

pub fn expand(op: &str, row: &Row, frame: &Frame) -> Result<Vec<Encoding>> {
    let rays = match row.sig.words.iter().find_map(|w| w.strip_prefix("rays=")) {
        None => Vec::new(),
        Some(list) => list
            .split(',')
            .map(|n| n.parse().map_err(|_| row.fail(list, "expected dwords")))
            .collect::<Result<Vec<u8>>>()?,
    };
    let data = row.sig.dsts.iter().chain(&row.sig.srcs).find_map(|s| s.strip_prefix("vdata:"));
    let data = data.ok_or_else(|| row.fail(&row.mnemonic, "expected vdata:type"))?;
    let sampler = row.sig.srcs.iter().any(|s| s == "samp");
    let parts = Parts { row, format: &frame.format, rays, sampler, data };
    let base = parts.base()?;
    let cases = if parts.rays.is_empty() { parts.addresses(&base) } else { parts.rays(&base)? };
    let returns: &[Option<bool>] = if parts.has("atomic") { &[Some(false), Some(true)] } else { &[None] };
    let mut out = Vec::new();
    for case in &cases {
        for &returning in returns {
            let mut e = Making {
                parts: &parts,
                operands: Vec::new(),
                used: BTreeSet::new(),
                fixed: frame.fixed,
                mask: frame.mask,
            };
            e.operands(case, returning)?;
            e.demands(case, returning)?;
            let words = returning.map(|ret| if ret { "ret" } else { "noret" }.to_string()).into_iter().collect();
            let (extra, image, _) = case;
            out.push(Encoding {
                op: op.to_string(),
                mnemonic: row.mnemonic.clone(),
                shape: Shape {
                    format: frame.name.to_string(),
                    bytes: frame.format.bytes + 4 * extra,
                    operands: e.operands,
                    words,
                    image: Some(Image { places: parts.places(image.slots), ..image.clone() }),
                },
                fixed: e.fixed,
                mask: e.mask,
                variant: implicit(row),
            });
        }
    }
    Ok(out)
}

/// An encoding in the making.
struct Making<'a> {
    parts: &'a Parts<'a>,
    operands: Vec<Operand>,
    used: BTreeSet<&'static str>,
    fixed: u128,
    mask: u128,
}

impl Making<'_> {
    fn add(&mut self, name: &'static str, role: Role, kind: Option<Kind>, bits: u16, flags: u16) -> Result<()> {
        let field = self.parts.format.fields.get(name);
        let field = field.ok_or_else(|| self.parts.row.fail(name, "the format has no such field"))?;
        self.used.insert(name);
        let kind = kind.unwrap_or(field.kind.kind());
        let pieces = segments(&field.pieces);
        self.operands.push(Operand { flags, bits, ..Operand::bits(name, role, kind, pieces) });
        Ok(())
    }

    fn operands(&mut self, (_, image, half): &Case, returning: Option<bool>) -> Result<()> {
        let Parts { row, format: f, data, sampler, .. } = *self.parts;
        let stored = row.sig.srcs.iter().any(|s| s.starts_with("vdata"));
        let role = if stored && returning != Some(true) { Role::Src } else { Role::Dst };
        let read = if returning == Some(true) { flag::READ } else { 0 };
        let ray = !image.rays.is_empty();
        if ray {
            let width = data.trim_start_matches('b').parse().map_err(|_| row.fail(data, "expected a type"))?;
            self.add("vdata", role, Some(Kind::Vgpr), width, read)?;
        } else {
            let acc = f.fields.get("vdata").is_some_and(|v| v.kind == FieldKind::Va);
            self.add("vdata", role, Some(if acc { Kind::ImageDataAcc } else { Kind::ImageData }), 32, read)?;
        }
        let list = image.slots > 0;
        self.add("vaddr", Role::Src, Some(if list { Kind::ImageList } else { Kind::ImageAddr }), 32, 0)?;
        self.add("rsrc", Role::Src, None, if ray { 128 } else { 256 }, flag::SCALAR_ONLY)?;
        if sampler {
            self.add("samp", Role::Src, None, 128, flag::SCALAR_ONLY)?;
        }
        let mods: &[&str] = match ray {
            true => &["a16"],
            false => &["dmask", "dim", "unorm", "cpol", "r128", "a16", "tfe", "lwe", "da", "d16", "d16u"],
        };
        for m in mods.iter().copied() {
            let absent = m.starts_with("d16") && !self.parts.has("d16") || m == "a16" && *half == Some(0);
            if !absent && f.fields.contains_key(m) {
                self.add(m, Role::Mod, Some(Kind::Modifier), 0, 0)?;
            }
        }
        Ok(())
    }

    /// Bits that must have a value although no operand says so.
    fn demands(&mut self, (extra, image, half): &Case, returning: Option<bool>) -> Result<()> {
        let f = self.parts.format;
        let fix = |fixed: &mut u128, mask: &mut u128, pieces: &[Piece], value: u64| {
            *fixed |= u128::from(value) << pieces[0].lo;
            *mask |= all_bits(pieces);
        };
        if let Some(n) = f.fields.get("nsa") {
            fix(&mut self.fixed, &mut self.mask, &n.pieces, u64::from(*extra));
            self.used.insert("nsa");
        }
        if let (Some(glc), Some(ret)) = (f.fields.get("cpol"), returning) {
            let bit = Piece { lo: glc.pieces[0].lo, len: 1 };
            fix(&mut self.fixed, &mut self.mask, &[bit], u64::from(ret));
        }
        if !image.rays.is_empty() {
            for (field, value) in [("dmask", 15), ("unorm", 1), ("r128", 1), ("a16", half.unwrap_or(0))] {
                let Some(x) = f.fields.get(field) else { continue };
                fix(&mut self.fixed, &mut self.mask, &x.pieces, value);
                self.used.insert(if field == "a16" { "a16" } else { "dmask" });
            }
        }
        // addresses that stand beyond those that the operation can have
        if !f.fields.contains_key("nsa") && image.slots > 0 {
            const NAMES: [&str; 4] = ["vaddr1", "vaddr2", "vaddr3", "vaddr4"];
            for name in &NAMES[usize::from(image.slots.min(5)) - 1..] {
                self.mask |= f.fields.get(*name).map_or(0, |x| all_bits(&x.pieces));
            }
            self.used.extend(NAMES);
        }
        self.mask |= unused(f, &self.operands, |name| self.used.contains(name)).1;
        Ok(())
    }
}
