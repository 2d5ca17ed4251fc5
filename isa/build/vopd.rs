//! Section `vopd`: dual-issue pairs, the product of X and Y halves. Their fields are in the formats VOPD and VOPD3.

use super::expand::{Context, Encoding, Frame, Shape};
use super::formats::{self, Piece, all_bits, segments};
use super::operand::Operand;
use super::schema::{Kind, Role, flag, variant};
use super::text::{Line, Result};
use super::{Parents, inherit};
use std::collections::{BTreeMap, BTreeSet};

/// An opcode, and whether text is encoded to it only where no other form fits.
#[derive(Clone, Copy)]
struct Code {
    value: u64,
    spare: bool,
}

/// A source of a half.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// `r`
    Any,
    /// `v`
    Vector,
    /// `k`
    Literal,
    /// `m`
    Mask,
    /// `t`
    Tied,
}

impl Source {
    fn of(word: &str) -> Option<Source> {
        Some(match word {
            "r" => Source::Any,
            "v" => Source::Vector,
            "k" => Source::Literal,
            "m" => Source::Mask,
            "t" => Source::Tied,
            _ => return None,
        })
    }
}

/// A half of a pair.
#[derive(Clone)]
struct Half {
    op: String,
    mnemonic: String,
    ty: String,
    srcs: Vec<Source>,
    /// Target from which on two of these may read the same bank.
    same: BTreeMap<String, ()>,
    /// slot (`X`, `Y`, `X3`, `Y3`) -> target -> opcode
    opcodes: BTreeMap<String, BTreeMap<String, Option<Code>>>,
    renames: BTreeMap<String, String>,
    line: Line,
}

pub struct Pairs(Vec<Half>);

/// Reads the halves.
pub fn parse(lines: &[Line], parents: &Parents) -> Result<Pairs> {
    let mut out = Vec::new();
    for line in lines {
        let mut parts = line.text.split('|').map(str::trim);
        let head: Vec<&str> = parts.next().map_or(Vec::new(), |h| h.split_whitespace().collect());
        let [op, mnemonic, ty, "<-", srcs @ ..] = &head[..] else {
            return Err(line.fail(&line.text, "expected `operation mnemonic type <- sources`"));
        };
        let mut half = Half {
            op: op.to_string(),
            mnemonic: mnemonic.to_string(),
            ty: ty.to_string(),
            srcs: Vec::new(),
            same: BTreeMap::new(),
            opcodes: BTreeMap::new(),
            renames: BTreeMap::new(),
            line: line.clone(),
        };
        for s in srcs {
            if let Some(target) = s.strip_prefix("samebank=") {
                half.same.insert(target.to_string(), ());
            } else {
                half.srcs.push(Source::of(s).ok_or_else(|| line.fail(s, "expected r, v, k, m or t"))?);
            }
        }
        for part in parts {
            slot(line, part, parents, &mut half)?;
        }
        out.push(half);
    }
    Ok(Pairs(out))
}

/// `X target=opcode .. target:mnemonic ..`
fn slot(line: &Line, part: &str, parents: &Parents, half: &mut Half) -> Result<()> {
    let mut words = part.split_whitespace();
    let slot = words.next().filter(|s| ["X", "Y", "X3", "Y3"].contains(s));
    let slot = slot.ok_or_else(|| line.fail(part, "expected X, Y, X3 or Y3"))?;
    for w in words {
        let known = |target: &str| match parents.contains_key(target) {
            true => Ok(target.to_string()),
            false => Err(line.fail(w, "no such target")),
        };
        if let Some((target, name)) = w.split_once(':') {
            half.renames.insert(known(target)?, name.to_string());
        } else if let Some((target, op)) = w.split_once('=') {
            let code = match (op, op.strip_suffix('?')) {
                ("-", _) => None,
                (_, Some(digits)) => Some(Code { value: line.hex(digits)?, spare: true }),
                _ => Some(Code { value: line.hex(op)?, spare: false }),
            };
            half.opcodes.entry(slot.to_string()).or_default().insert(known(target)?, code);
        } else {
            return Err(line.fail(w, "expected target=opcode or target:mnemonic"));
        }
    }
    Ok(())
}

impl Pairs {
    /// Every pair that a target has, in both formats.
    pub fn expand(&self, cx: &Context, out: &mut Vec<Encoding>) -> Result<()> {
        for wide in [false, true] {
            let name = if wide { "VOPD3" } else { "VOPD" };
            let Some(format) = formats::find(cx.formats, cx.parents, name, cx.target) else { continue };
            let slot = |half: &Half, which: &str| -> Option<Code> {
                let name = format!("{which}{}", if wide { "3" } else { "" });
                half.opcodes.get(&name).and_then(|m| inherit(m, cx.parents, cx.target)).copied().flatten()
            };
            for x in &self.0 {
                let Some(ox) = slot(x, "X") else { continue };
                for y in &self.0 {
                    let Some(oy) = slot(y, "Y") else { continue };
                    let frame = Frame { name, format: format.clone(), fixed: 0, mask: 0 };
                    out.push(
                        Pair { halves: [x, y], wide, cx, frame, operands: Vec::new(), neg: Vec::new() }
                            .encode([ox, oy])?,
                    );
                }
            }
        }
        Ok(())
    }
}

/// A pair in the making.
struct Pair<'a> {
    halves: [&'a Half; 2],
    /// VOPD3.
    wide: bool,
    cx: &'a Context<'a>,
    frame: Frame<'a>,
    operands: Vec<Operand>,
    /// Sign bits: (bit, 1, number of the source).
    neg: Vec<(u8, u8, u8)>,
}

impl Pair<'_> {
    fn encode(mut self, codes: [Code; 2]) -> Result<Encoding> {
        let [x, y] = self.halves;
        for (p, v) in self.frame.format.fixed.clone() {
            self.frame.put(&[p], v);
        }
        for (name, code, half) in [("opX", codes[0], x), ("opY", codes[1], y)] {
            let pieces = self.field(half, name)?;
            self.frame.put(&pieces, code.value);
        }
        let literal = self.halves.iter().any(|h| h.srcs.contains(&Source::Literal));
        let bytes = if literal && !self.wide { self.frame.format.bytes + 4 } else { self.frame.format.bytes };
        self.half(0)?;
        self.half(1)?;
        self.modifiers()?;
        let mut words = BTreeSet::new();
        if codes.iter().any(|c| c.spare) {
            words.insert("spare".to_string());
        }
        if x.op == y.op && inherit(&x.same, self.cx.parents, self.cx.target).is_some() {
            words.insert("samebank".to_string());
        }
        let name =
            |half: &Half| inherit(&half.renames, self.cx.parents, self.cx.target).unwrap_or(&half.mnemonic).clone();
        Ok(Encoding {
            op: format!("{} :: {}", x.op, y.op),
            mnemonic: format!("{} :: {}", name(x), name(y)),
            shape: Shape { format: self.frame.name.into(), bytes, operands: self.operands, words, image: None },
            fixed: self.frame.fixed,
            mask: self.frame.mask,
            variant: variant::WAVE32,
        })
    }

    fn field(&self, half: &Half, name: &str) -> Result<Vec<Piece>> {
        let field = self.frame.format.fields.get(name);
        Ok(field
            .ok_or_else(|| half.line.fail(&half.op, &format!("{} has no field {name}", self.frame.name)))?
            .pieces
            .clone())
    }

    fn add(&mut self, half: &Half, name: &str, role: Role, ty: &str, flags: u16) -> Result<()> {
        let pieces = segments(&self.field(half, name)?);
        let kind = self.frame.format.fields[name].kind.kind();
        let bits = if ty == "f64" { 64 } else { 32 };
        self.operands.push(Operand { name: name.to_string(), role, kind, ty: ty.to_string(), bits, flags, pieces });
        Ok(())
    }

    /// Operands of a half, and the fields of sources that it does not have.
    fn half(&mut self, h: usize) -> Result<()> {
        let (half, side) = (self.halves[h], ["X", "Y"][h]);
        let tied = if half.srcs.contains(&Source::Tied) { flag::READ } else { 0 };
        let dst_ty = if half.ty.starts_with('p') { "f32" } else { &half.ty };
        self.add(half, &format!("vdst{side}"), Role::Dst, dst_ty, tied)?;
        let float = half.ty.contains('f') || half.op == "v_cndmask_b32";
        let mut n = 0;
        for s in &half.srcs {
            let signed = self.wide && float && matches!(s, Source::Any | Source::Vector);
            if signed {
                let at = 3 * h + n;
                let bit = self.field(half, "neg")?[at].lo;
                self.neg.push((bit, 1, u8::try_from(at).map_err(|_| half.line.fail(&half.op, "too many sources"))?));
            }
            let sign = if signed { flag::FLOAT_MODS } else { 0 };
            let register = |base: &str| format!("{base}{side}");
            match s {
                Source::Any => {
                    let literal = if self.wide { flag::NO_LITERAL } else { 0 };
                    self.add(half, &register("src0"), Role::Src, &half.ty, literal | sign)?;
                }
                Source::Vector if n == 2 => self.add(half, &register("vsrc2"), Role::Src, &half.ty, sign)?,
                Source::Vector => self.add(half, &register("vsrc1"), Role::Src, &half.ty, sign)?,
                Source::Literal => {
                    self.add(half, "imm", Role::Src, "k32", 0)?;
                    continue;
                }
                Source::Mask if self.wide => {
                    self.add(
                        half,
                        &register("vsrc2"),
                        Role::Src,
                        "mask",
                        flag::MASK | flag::SCALAR_ONLY | flag::NO_LITERAL,
                    )?;
                    if let Some(o) = self.operands.last_mut() {
                        o.kind = Kind::Ssrc;
                    }
                }
                Source::Mask => self.operands.push(Operand {
                    ty: "mask".into(),
                    bits: 32,
                    flags: flag::MASK,
                    ..Operand::bits("vcc", Role::Src, Kind::FixedVcc, Vec::new())
                }),
                Source::Tied => {}
            }
            n += 1;
        }
        for base in ["vsrc1", "vsrc2"] {
            let name = format!("{base}{side}");
            let bitop = self.wide && half.op == "v_bitop2_b32" && base == "vsrc2";
            let there = bitop || self.operands.iter().any(|o| o.name == name);
            if let (false, Some(f)) = (there, self.frame.format.fields.get(&name)) {
                self.frame.mask |= all_bits(&f.pieces);
            }
        }
        Ok(())
    }

    /// Signs and truth tables of VOPD3.
    fn modifiers(&mut self) -> Result<()> {
        if !self.wide {
            return Ok(());
        }
        let y = self.halves[1];
        let signs = all_bits(&self.field(y, "neg")?);
        let used = self.neg.iter().fold(0, |all, n| all | 1u128 << n.0);
        self.frame.mask |= signs & !used;
        if !self.neg.is_empty() {
            self.operands.push(Operand::bits("neg", Role::Mod, Kind::Modifier, std::mem::take(&mut self.neg)));
        }
        if y.op == "v_bitop2_b32" {
            let pieces = segments(&self.field(y, "bitop3")?);
            self.operands.push(Operand::bits("bitop3", Role::Mod, Kind::Modifier, pieces));
        }
        Ok(())
    }
}
