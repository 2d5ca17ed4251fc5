//! `vopd.isa`: dual-issue pairs, the product of X and Y halves.

use crate::expand::{Encoding, Operand, Shape, flag};
use crate::text::{Fail, Result};
use std::collections::{BTreeMap, BTreeSet};

/// An opcode, and whether text is encoded to it only where no other form fits.
#[derive(Clone, Copy)]
struct Code {
    value: u64,
    spare: bool,
}

/// A half of a pair.
#[derive(Clone)]
struct Half {
    op: String,
    mnemonic: String,
    ty: String,
    srcs: Vec<char>,
    /// Target from which on two of these may read the same bank.
    same: BTreeMap<String, ()>,
    /// slot (`X`, `Y`, `X3`, `Y3`) -> target -> opcode
    opcodes: BTreeMap<String, BTreeMap<String, Option<Code>>>,
    renames: BTreeMap<String, String>,
}

pub struct Pairs(Vec<Half>);

pub fn parse(text: &str) -> Result<Pairs> {
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new("vopd.isa", n + 1, word, what);
        let line = line.split('#').next().unwrap_or("");
        if line.trim().is_empty() {
            continue;
        }
        let mut parts = line.split('|');
        let head: Vec<&str> = parts.next().unwrap_or("").split_whitespace().collect();
        let [op, mnemonic, ty, "<-", srcs @ ..] = &head[..] else {
            return Err(at(line, "expected `operation mnemonic type <- sources`"));
        };
        let mut half = Half {
            op: op.to_string(),
            mnemonic: mnemonic.to_string(),
            ty: ty.to_string(),
            srcs: srcs.iter().filter(|s| s.len() == 1).filter_map(|s| s.chars().next()).collect(),
            same: srcs.iter().filter_map(|s| Some((s.strip_prefix("samebank=")?.to_string(), ()))).collect(),
            opcodes: BTreeMap::new(),
            renames: BTreeMap::new(),
        };
        for part in parts {
            let mut words = part.split_whitespace();
            let slot = words.next().unwrap_or("").to_string();
            for w in words {
                if let Some((target, name)) = w.split_once(':') {
                    half.renames.insert(target.to_string(), name.to_string());
                } else if let Some((target, op)) = w.split_once('=') {
                    let digits = op.trim_end_matches('?');
                    let op = if op == "-" {
                        None
                    } else {
                        let value = u64::from_str_radix(digits, 16).map_err(|_| at(w, "expected hex"))?;
                        Some(Code { value, spare: digits != op })
                    };
                    half.opcodes.entry(slot.clone()).or_default().insert(target.to_string(), op);
                } else {
                    return Err(at(w, "expected target=opcode or target:mnemonic"));
                }
            }
        }
        out.push(half);
    }
    Ok(Pairs(out))
}

fn inherit<'a, T>(
    map: &'a BTreeMap<String, T>,
    target: &str,
    parents: &BTreeMap<String, Option<String>>,
) -> Option<&'a T> {
    let mut t = Some(target.to_string());
    while let Some(here) = t {
        if let Some(v) = map.get(&here) {
            return Some(v);
        }
        t = parents.get(&here).cloned().flatten();
    }
    None
}

fn field(name: String, role: u8, kind: &str, ty: &str, bits: u16, flags: u16, lo: u8, len: u8) -> Operand {
    Operand {
        name,
        role,
        kind: kind.into(),
        ty: ty.into(),
        bits,
        flags,
        pieces: if len > 0 { vec![(lo, len, 0)] } else { Vec::new() },
    }
}

impl Pairs {
    pub fn expand(&self, target: &str, parents: &BTreeMap<String, Option<String>>, out: &mut Vec<Encoding>) {
        for wide in [false, true] {
            let slot = |half: &Half, which: &str| -> Option<Code> {
                let name = format!("{which}{}", if wide { "3" } else { "" });
                half.opcodes.get(&name).and_then(|m| inherit(m, target, parents)).copied().flatten()
            };
            for x in &self.0 {
                let Some(ox) = slot(x, "X") else { continue };
                for y in &self.0 {
                    let Some(oy) = slot(y, "Y") else { continue };
                    out.push(pair(x, y, ox, oy, wide, target, parents));
                }
            }
        }
    }
}

fn pair(
    x: &Half,
    y: &Half,
    ox: Code,
    oy: Code,
    wide: bool,
    target: &str,
    parents: &BTreeMap<String, Option<String>>,
) -> Encoding {
    let mut operands = Vec::new();
    let (mut fixed, mut mask) = (0u128, 0u128);
    let mut put = |lo: u8, len: u8, v: u64| {
        fixed |= u128::from(v) << lo;
        mask |= ((1u128 << len) - 1) << lo;
    };
    if wide {
        put(24, 8, 0xcf);
        put(18, 6, ox.value);
        put(12, 6, oy.value);
    } else {
        put(26, 6, 0x32);
        put(22, 4, ox.value);
        put(17, 5, oy.value);
    }
    let literal = x.srcs.contains(&'k') || y.srcs.contains(&'k');
    let bytes = if wide || literal { 12 } else { 8 };
    // (src0, vsrc1, vsrc2, vdst) first bits of each half
    let place = if wide { [(0, 48, 56, 64), (32, 72, 80, 88)] } else { [(0, 9, 0, 56), (32, 41, 0, 49)] };
    let mut neg: Vec<(u8, u8, u8)> = Vec::new();
    let mut used: BTreeSet<u8> = BTreeSet::new();
    for (h, half) in [x, y].into_iter().enumerate() {
        let side = ["X", "Y"][h];
        let (src0, vsrc1, vsrc2, vdst) = place[h];
        let double = half.ty == "f64";
        let bits = if double { 64 } else { 32 };
        let tied = if half.srcs.contains(&'t') { flag::READ } else { 0 };
        let dst_ty = if half.ty.starts_with('p') { "f32" } else { &half.ty };
        if h == 1 && !wide {
            operands.push(field("vdstY".into(), 0, "VDSTY", dst_ty, 32, tied, vdst, 7));
        } else {
            operands.push(field(format!("vdst{side}"), 0, "V", dst_ty, bits, tied, vdst, 8));
        }
        let float = half.ty.contains('f') || half.op == "v_cndmask_b32";
        let mut n = 0;
        for s in &half.srcs {
            let neg_flag = if wide && float && matches!(s, 'r' | 'v') { flag::FLOAT_MODS } else { 0 };
            if neg_flag != 0 {
                let bit = 41 + 3 * h as u8 + n;
                neg.push((bit, 1, 3 * h as u8 + n));
                used.insert(bit);
            }
            match s {
                'r' => operands.push(field(
                    format!("src0{side}"),
                    1,
                    "SRC",
                    &half.ty,
                    bits,
                    if wide { flag::NO_LITERAL } else { 0 } | neg_flag,
                    src0,
                    9,
                )),
                'v' if n == 2 => {
                    operands.push(field(format!("vsrc2{side}"), 1, "V", &half.ty, bits, neg_flag, vsrc2, 8))
                }
                'v' => operands.push(field(format!("vsrc1{side}"), 1, "V", &half.ty, bits, neg_flag, vsrc1, 8)),
                'k' => {
                    operands.push(field("imm".into(), 1, "IMM", "k32", 32, 0, 64, 32));
                    continue;
                }
                'm' if wide => operands.push(field(
                    format!("vsrc2{side}"),
                    1,
                    "SS",
                    "mask",
                    32,
                    flag::MASK | flag::SCALAR_ONLY | flag::NO_LITERAL,
                    vsrc2,
                    8,
                )),
                'm' => operands.push(field("vcc".into(), 1, "VCC", "mask", 32, flag::MASK, 0, 0)),
                _ => {}
            }
            n += 1;
        }
        // fields of sources that are not there
        let has = |name: &str| operands.iter().any(|o| o.name == format!("{name}{side}"));
        for (name, lo) in [("vsrc1", vsrc1), ("vsrc2", vsrc2)] {
            let bitop = wide && half.op == "v_bitop2_b32" && name == "vsrc2";
            if !has(name) && !bitop && (wide || name == "vsrc1") {
                mask |= 0xff << lo;
            }
        }
    }
    if wide {
        for bit in 41..=46 {
            if !used.contains(&bit) {
                mask |= 1 << bit;
            }
        }
        if !neg.is_empty() {
            operands.push(Operand {
                name: "neg".into(),
                role: 2,
                kind: "MOD".into(),
                ty: "b32".into(),
                bits: 0,
                flags: 0,
                pieces: neg,
            });
        }
        if y.op == "v_bitop2_b32" {
            operands.push(field("bitop3".into(), 2, "MOD", "b32", 0, 0, 80, 8));
        }
    }
    let mut words = BTreeSet::new();
    if ox.spare || oy.spare {
        words.insert("spare".to_string());
    }
    if x.op == y.op && inherit(&x.same, target, parents).is_some() {
        words.insert("samebank".to_string());
    }
    let name = |half: &Half| inherit(&half.renames, target, parents).cloned().unwrap_or_else(|| half.mnemonic.clone());
    Encoding {
        op: format!("{} :: {}", x.op, y.op),
        mnemonic: format!("{} :: {}", name(x), name(y)),
        shape: Shape { format: if wide { "VOPD3" } else { "VOPD" }.into(), bytes, operands, words, image: None },
        fixed,
        mask,
        variant: 4,
    }
}
