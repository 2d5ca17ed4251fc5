//! Operands of an encoding: which field takes a word of a row's signature, how its bits are read, and which modifiers its
//! type brings along.

use super::formats::{Field, Format, Piece, Unused, all_bits, segments};
use super::rows::Row;
use super::schema::{FieldKind, Kind, Role, flag};
use super::text::{Fail, Result};
use std::collections::BTreeSet;

/// One operand or modifier of an encoding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operand {
    pub name: String,
    pub role: Role,
    pub kind: Kind,
    pub ty: String,
    pub bits: u16,
    pub flags: u16,
    /// (first bit, bits, shift in the value)
    pub pieces: Vec<(u8, u8, u8)>,
}

impl Operand {
    /// A modifier, or bits that others depend on.
    pub fn bits(name: &str, role: Role, kind: Kind, pieces: Vec<(u8, u8, u8)>) -> Operand {
        Operand { name: name.to_string(), role, kind, ty: "b32".to_string(), bits: 0, flags: 0, pieces }
    }
}

/// Width of a type word and the word without prefix and suffixes.
pub struct Typed<'a> {
    pub name: Option<&'a str>,
    pub prefix: &'a str,
    pub ty: &'a str,
    pub bits: u16,
    pub plus: bool,
    pub minus: bool,
    pub ignored: bool,
}

/// Bits of a type: the number in its name, twice that in pairs (`pf16`); 32 where there is none.
pub fn width(ty: &str) -> u16 {
    let digits = ty.trim_start_matches(|c: char| !c.is_ascii_digit());
    let number = digits.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
    match number {
        Some(n) if ty.starts_with('p') => 2 * n,
        Some(n) => n,
        None => 32,
    }
}

/// Takes a word of a signature apart: `[field:][prefix.]type[suffix]`.
pub fn typed(word: &str) -> Typed<'_> {
    let (name, rest) = match word.split_once(':') {
        Some((n, r)) => (Some(n), r),
        None => (None, word),
    };
    let (prefix, rest) = rest.split_once('.').unwrap_or(("", rest));
    let ty = rest.trim_end_matches(['+', '-', '~']);
    let tail = &rest[ty.len()..];
    let has = |c| tail.contains(c);
    Typed { name, prefix, ty, bits: width(ty), plus: has('+'), minus: has('-'), ignored: has('~') }
}

const IMMEDIATES: &[&str] = &[
    "s16", "u16imm", "i16imm", "i32imm", "hwreg", "label", "msg", "waitcnt", "depctr", "delay", "endpgm", "version",
    "gpridx", "k32", "k16", "k64", "barrier", "i8", "attr", "attrchan", "slot",
];

fn is_float(ty: &str) -> bool {
    matches!(ty, "f16" | "f32" | "f64" | "bf16" | "pf16" | "pbf16" | "pf32")
}

fn is_half(ty: &str) -> bool {
    matches!(ty, "f16" | "bf16" | "i16" | "u16" | "b16")
}

/// An encoding in the making.
pub struct Builder<'a> {
    pub format: Format,
    pub name: &'a str,
    pub row: &'a Row,
    pub fixed: u128,
    pub mask: u128,
    pub used: BTreeSet<String>,
    /// Modifier bits that an operand ignores.
    pub ignored: u128,
    /// Bits that a modifier of the operation's own takes from the fields of the format.
    pub reserved: u128,
    pub operands: Vec<Operand>,
    pub t16: bool,
    pub f16: bool,
}

impl Builder<'_> {
    pub fn fail(&self, word: &str, what: &str) -> Fail {
        self.row.fail(word, what)
    }

    pub fn has(&self, word: &str) -> bool {
        self.row.sig.words.iter().any(|w| w == word)
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.format.fields.get(name)
    }

    /// The field, which the format must have.
    pub fn need(&self, name: &str) -> Result<Field> {
        self.field(name).cloned().ok_or_else(|| self.fail(name, &format!("{} has no field {name}", self.name)))
    }

    pub fn add(&mut self, name: &str, role: Role, kind: Kind, ty: &str, bits: u16, flags: u16, pieces: &[Piece]) {
        self.used.insert(name.to_string());
        self.operands.push(Operand {
            name: name.to_string(),
            role,
            kind,
            ty: ty.to_string(),
            bits,
            flags,
            pieces: segments(pieces),
        });
    }

    /// An operand that sits in the field of that name.
    pub fn operand(&mut self, field: &str, role: Role, word: &str) -> Result<()> {
        let t = typed(word);
        let f = self.field(field).cloned();
        let f = f.ok_or_else(|| self.fail(word, &format!("{} has no field {field}", self.name)))?;
        let mut kind = self.kind(&t, role, f.kind);
        let flags = self.flags(field, role, &t, kind == Kind::Vgpr && f.kind == FieldKind::Vh);
        let half = is_half(t.ty);
        self.ignore_signs(field, role, &t, half);
        let mut pieces = f.pieces.clone();
        let sdwa = self.field("src0").is_some_and(|f| f.kind == FieldKind::Sdwa);
        if kind == Kind::SrcSdwa || field == "src1" && sdwa {
            kind = Kind::SrcSdwa;
        }
        if let (Kind::SrcSdwa, "src1", [scalar]) = (kind, field, &pieces[..])
            && scalar.len == 1
        {
            // the scalar bit of the overlay completes the base format's field
            pieces = vec![Piece { lo: 9, len: 8 }, *scalar];
        }
        // halves in this format are VGPRs whatever the top bit of the code says
        if self.name == "VINTERP" && half && self.t16 && role == Role::Src {
            let p = pieces[0];
            kind = Kind::Vgpr;
            self.fixed |= 1 << (p.lo + p.len - 1);
            pieces = vec![Piece { lo: p.lo, len: p.len - 1 }];
        }
        self.add(field, role, kind, t.ty, t.bits, flags, &pieces);
        Ok(())
    }

    /// How the operand's bits are read.
    fn kind(&self, t: &Typed, role: Role, field: FieldKind) -> Kind {
        let scalar = matches!(field, FieldKind::S | FieldKind::Ss);
        let mut kind = field.kind();
        if t.prefix == "s" && role == Role::Dst {
            kind = Kind::Sgpr;
        }
        if t.prefix == "a" && role == Role::Dst && field == FieldKind::V {
            kind = Kind::Agpr;
        }
        if t.prefix == "a" && field == FieldKind::Src {
            kind = Kind::SrcAgpr;
        }
        let scalar = scalar || kind == Kind::Sgpr;
        if IMMEDIATES.contains(&t.ty) && (!scalar || matches!(t.ty, "gpridx" | "msg")) || field == FieldKind::U {
            kind = Kind::Imm;
        }
        kind
    }

    /// Flags of an operand; `halves` says that the field has a bit for the half of a register.
    fn flags(&self, field: &str, role: Role, t: &Typed, halves: bool) -> u16 {
        let mut flags = match t.prefix {
            "v" => flag::VGPR_ONLY,
            "vl" => flag::VGPR_ONLY | flag::LDS_DIRECT,
            "c" => flag::NO_LITERAL,
            "s" => flag::SCALAR_ONLY,
            "r" => flag::SCALAR_ONLY | flag::NO_INLINE,
            "sc" => flag::SCALAR_ONLY | flag::NO_LITERAL,
            "a" => flag::AGPR_ONLY,
            _ => 0,
        };
        if role == Role::Dst && t.plus {
            flags |= flag::READ;
        }
        if t.ty == "mask" {
            flags |= flag::MASK | flag::SCALAR_ONLY | flag::NO_LITERAL;
        }
        if is_half(t.ty) && self.t16 {
            flags |= flag::HALF;
        }
        let beside = field == "src0" && self.field("vdst").is_some_and(|v| v.kind == FieldKind::Vh);
        let compare = field == "src0" && self.field("vdst").is_none() && self.name.starts_with("VOPC");
        if is_half(t.ty) && (self.t16 || self.f16) && (halves || beside || compare) {
            flags |= flag::LO128;
        }
        if role == Role::Src {
            let float = is_float(t.ty) && !t.minus || t.plus;
            if float && !t.ignored {
                flags |= flag::FLOAT_MODS;
            }
            if !float && !is_float(t.ty) || t.ignored {
                flags |= flag::SEXT;
            }
        }
        flags
    }

    /// Signs that an operand ignores: halves of registers take none as integers. With SDWA the bits say sext and must
    /// otherwise be clear.
    fn ignore_signs(&mut self, field: &str, role: Role, t: &Typed, half: bool) {
        let t16 = self.t16 && (half || self.has("t16signs"));
        let half_int = !is_float(t.ty) && (t16 || self.f16 && half && self.has("opsel"));
        if role != Role::Src || !(t.ignored || half_int) || self.field("sext").is_some() {
            return;
        }
        let Some(i) = source_index(field) else { return };
        for m in ["neg", "abs", "neghi"] {
            if let Some(p) = self.field(m).and_then(|f| f.pieces.get(i)).copied() {
                self.ignored |= all_bits(&[p]);
            }
        }
    }

    pub fn vcc(&mut self, role: Role) {
        self.operands.push(Operand {
            name: "vcc".into(),
            role,
            kind: Kind::FixedVcc,
            ty: "mask".into(),
            bits: 32,
            flags: flag::MASK,
            pieces: Vec::new(),
        });
    }

    /// A modifier whose bits are the whole field.
    pub fn modifier(&mut self, name: &str) {
        if let Some(f) = self.field(name).cloned() {
            self.add(name, Role::Mod, Kind::Modifier, "b32", 0, 0, &f.pieces);
        }
    }

    /// Modifiers that the row names.
    pub fn own_modifiers(&mut self, names: &[&str]) {
        for m in names {
            if self.has(m) {
                self.modifier(m);
            }
        }
    }

    /// A modifier with one bit per source; `keep` says which sources have it.
    pub fn per_source(&mut self, field: &str, keep: &[bool]) {
        let Some(f) = self.field(field).cloned() else { return };
        let keep = |i: usize| keep.get(i) == Some(&true);
        let mut pieces = Vec::new();
        for (i, p) in f.pieces.iter().enumerate() {
            let bits = all_bits(&[*p]);
            let free = bits & self.reserved == 0;
            pieces.push(if free && keep(i) { *p } else { Piece { lo: 0, len: 0 } });
            if !free {
                continue;
            }
            if p.len > 0 && !keep(i) && f.unused != Unused::Any {
                if matches!(f.unused, Unused::Ones | Unused::MustOnes) {
                    self.fixed |= bits;
                } else if self.ignored & bits == 0 {
                    self.mask |= bits;
                }
            } else if field == "opsel" && !keep(i) && (i < 3 || self.compare()) {
                self.mask |= bits & !self.ignored;
            }
        }
        self.used.insert(field.to_string());
        if pieces.iter().any(|p| p.len > 0) {
            self.add(field, Role::Mod, Kind::Modifier, "b32", 0, 0, &pieces);
        }
    }

    /// True when the result is no VGPR: comparisons.
    fn compare(&self) -> bool {
        self.t16 && !self.operands.iter().any(|o| o.role == Role::Dst && o.kind == Kind::Vgpr)
    }

    pub fn source_flags(&self, test: impl Fn(&Operand) -> bool) -> Vec<bool> {
        let mut out = vec![false; 5];
        for o in self.operands.iter().filter(|o| o.role == Role::Src) {
            if let Some(i) = source_index(&o.name) {
                out[i] = test(o);
            }
        }
        out
    }

    /// Marks the bits of fields that were not used.
    pub fn finish(&mut self) {
        let (ones, checked) = unused(&self.format, &self.operands, |name| self.used.contains(name));
        self.fixed |= ones & !self.ignored & !self.mask;
        self.mask |= checked & !self.ignored;
    }
}

/// The bits of fields that an instruction does not use, where no operand lies: those that are ones, and those that are
/// looked at.
pub fn unused(f: &Format, operands: &[Operand], used: impl Fn(&str) -> bool) -> (u128, u128) {
    let taken = |o: &Operand| o.pieces.iter().fold(0, |all, &(lo, len, _)| all | ((1u128 << len) - 1) << lo);
    let occupied = operands.iter().map(taken).fold(0, |a, b| a | b);
    let (mut ones, mut checked) = (0, 0);
    for (_, x) in f.fields.iter().filter(|(name, _)| !used(name)) {
        let bits = all_bits(&x.pieces) & !occupied;
        ones |= if matches!(x.unused, Unused::Ones | Unused::MustOnes) { bits } else { 0 };
        checked |= if matches!(x.unused, Unused::Zero | Unused::MustOnes) { bits } else { 0 };
    }
    (ones, checked)
}

fn source_index(field: &str) -> Option<usize> {
    ["src0", "src1", "src2", "src3", "src4"].iter().position(|n| *n == field)
}
