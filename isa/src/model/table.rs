//! The compiled tables: encodings ("rows") as fixed bits, mask and operand list, and the lookup that decoding uses.
//!
//! `build.rs` joins rows and formats. Here each target's rows are unpacked once, on first use, into two arrays: rows by
//! operation for the encoder, and a two-level decode index. Level one takes the top nine bits of the first dword and
//! leads to a bucket; the bucket names the bits that best tell its rows apart and holds a dense table of short row lists.

use crate::model::generated::{MNEMONICS, ROWS_BIN, SHAPES, TARGET_ROWS, TARGETS};
use crate::{ModName, Op, Target, Type};
use std::sync::OnceLock;

use crate::model::schema::Quirk;
pub(crate) use crate::model::schema::{At, Image, Kind, Role, Style, flag, variant::*, word};

mod index;
pub(crate) use index::{Index, LAST, LONG, NONE, ODD, OVERLAY, Probe, WORD};

/// An operand or modifier of an encoding.
#[derive(Debug)]
pub(crate) struct Operand {
    pub name: &'static str,
    pub role: Role,
    pub kind: Kind,
    pub style: Style,
    pub ty: Type,
    pub bits: u16,
    pub flags: u16,
    pub modifier: ModName,
    /// Number of the source, 255 for none.
    pub index: u8,
    /// First bit, when the field is one piece of the first eight bytes, as most are.
    pub lo: u8,
    /// As many ones as the field has bits then, 0 for all others.
    pub mask: u64,
    /// (first bit, bits, shift in the value)
    pub segs: &'static [(u8, u8, u8)],
}

impl Operand {
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Largest value the field holds.
    #[inline]
    pub fn max(&self) -> u64 {
        if self.mask != 0 {
            return self.mask;
        }
        self.segs
            .iter()
            .map(|&(_, len, shift)| (u64::MAX >> (64 - u32::from(len).clamp(1, 64))) << shift)
            .fold(0, |a, b| a | b)
    }

    #[inline]
    pub fn get(&self, bits: u128) -> u64 {
        if self.mask != 0 {
            return bits as u64 >> self.lo & self.mask;
        }
        let part = |lo: u8, len: u8| (bits >> lo) as u64 & u64::MAX >> (64 - u32::from(len).max(1));
        self.segs.iter().fold(0, |v, &(lo, len, shift)| v | part(lo, len) << shift)
    }

    #[inline]
    pub fn put(&self, bits: &mut u128, value: u64) {
        if self.mask != 0 {
            let differs = (*bits as u64 >> self.lo ^ value) & self.mask;
            *bits ^= u128::from(differs << self.lo);
            return;
        }
        for &(lo, len, shift) in self.segs {
            let m = u64::MAX >> (64 - u32::from(len).max(1));
            let differs = ((*bits >> lo) as u64 ^ value >> shift) & m;
            *bits ^= u128::from(differs) << lo;
        }
    }

    /// Number of the source; halves of a pair count on.
    pub fn source_index(&self) -> Option<usize> {
        (self.index != 255).then_some(usize::from(self.index))
    }
}

/// An encoding without its opcode.
#[derive(Debug)]
pub(crate) struct Shape {
    pub format: &'static str,
    pub overlay: &'static str,
    pub bytes: u8,
    pub operands: &'static [&'static Operand],
    /// Bits of [`word`].
    pub words: u32,
    /// Positions of operands in the order of [`At`], 255 for none.
    pub at: [u8; 21],
    /// Signs are printed behind the operands (`neg_lo:[..]`).
    pub packed: bool,
    /// VOP1, VOP2, VOPC, VOP3 or a pair.
    pub vector: bool,
    /// VOP3 or VOP3P.
    pub wide: bool,
    /// What is laid over the encoding.
    pub over: Over,
    /// Number of destinations and sources.
    pub dsts: u8,
    pub srcs: u8,
    pub image: Option<&'static Image>,
}

impl Shape {
    pub fn operand(&self, name: &str) -> Option<&'static Operand> {
        self.operands.iter().find(|o| o.name == name).copied()
    }
    #[inline]
    pub fn has(&self, word: u32) -> bool {
        self.words & word != 0
    }
    /// Destinations and sources, in the order of assembly text.
    #[inline]
    pub fn shown(&self) -> &'static [&'static Operand] {
        self.operands.get(..usize::from(self.dsts + self.srcs)).unwrap_or(&[])
    }
    /// Modifiers and bits that others depend on.
    #[inline]
    pub fn modifiers(&self) -> &'static [&'static Operand] {
        self.operands.get(usize::from(self.dsts + self.srcs)..).unwrap_or(&[])
    }
    /// The operand or modifier of a kind.
    #[inline]
    pub fn field(&self, at: At) -> Option<&'static Operand> {
        self.operands.get(usize::from(self.at[at as usize])).copied()
    }
    /// Value of an operand or modifier, 0 when there is none.
    #[inline]
    pub fn value(&self, at: At, bits: u128) -> u64 {
        self.field(at).map_or(0, |o| o.get(bits))
    }
}

/// What is laid over a vector encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    None,
    Dpp,
    Dpp8,
    Sdwa,
}

/// One encoding of one operation on one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub fixed: u128,
    pub mask: u128,
    pub op: Op,
    pub mnemonic: u16,
    pub shape: u16,
    pub variant: u16,
    pub bytes: u8,
    /// Modifiers that the encoding has, a bit each.
    pub mods: u64,
    /// Modifiers whose bits are not simply clear when they are not given.
    pub decided: u64,
    /// Bits of modifiers that print nothing when they are clear; all ones when others are among them.
    pub quiet: u128,
}

impl Row {
    #[inline]
    pub fn shape(&self) -> &'static Shape {
        shape(self.shape)
    }
    pub fn mnemonic(&self) -> &'static str {
        MNEMONICS.get(usize::from(self.mnemonic)).copied().unwrap_or("?")
    }
}

/// An encoding by number.
#[inline]
pub(crate) fn shape(number: u16) -> &'static Shape {
    &SHAPES[usize::from(number).min(SHAPES.len() - 1)]
}

/// Rows of a target with their indices.
pub(crate) struct Table {
    pub rows: Vec<Row>,
    /// Row numbers by operation: `by_op[start[op] .. start[op + 1]]`, shortest encoding first.
    pub by_op: Vec<u16>,
    pub start: Vec<u32>,
    /// What decoding looks up in the target's own wave size.
    index: Index,
    /// The same for waves of 64 lanes where the target's own have 32.
    wide_index: OnceLock<Index>,
    heads: OnceLock<Heads>,
}

/// Mnemonics with the suffix of their encoding, one behind the other, and where each row's ends: made when something is printed.
struct Heads {
    text: String,
    ends: Vec<u32>,
}

fn u16_at(at: usize) -> u16 {
    ROWS_BIN.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u128_at(at: usize) -> u128 {
    ROWS_BIN.get(at..at + 16).and_then(|b| b.try_into().ok()).map_or(0, u128::from_le_bytes)
}

impl Table {
    fn load(target: usize) -> Table {
        let (at, n) = TARGET_ROWS[target.min(TARGET_ROWS.len() - 1)];
        let mut rows = Vec::with_capacity(n);
        for i in 0..n {
            let id =
                ROWS_BIN.get(at + 4 * i..at + 4 * i + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
            let r = id as usize * 40;
            let mut row = Row {
                fixed: u128_at(r),
                mask: u128_at(r + 16),
                op: Op(u16_at(r + 32)),
                mnemonic: u16_at(r + 34),
                shape: u16_at(r + 36),
                variant: u16_at(r + 38),
                bytes: 0,
                mods: 0,
                decided: 0,
                quiet: 0,
            };
            let shape = row.shape();
            row.bytes = shape.bytes;
            row.mods = shape.operands.iter().filter(|o| o.role == Role::Mod).fold(0, |m, o| m | 1 << o.modifier as u32);
            if shape.operands.iter().any(|o| matches!(o.style, Style::K32 | Style::K16 | Style::K64)) {
                row.variant |= OWN_LITERAL;
            }
            for o in shape.operands.iter().filter(|o| o.role == Role::Mod) {
                let mut field = 0;
                o.put(&mut field, o.max());
                if matches!(o.modifier, ModName::OpSel | ModName::En) || default_of(o, shape) != 0 {
                    row.decided |= 1 << o.modifier as u32;
                }
                row.quiet |= if prints_zero(o) || shape.has(word::SWIZZLE) { u128::MAX } else { field };
            }
            rows.push(row);
        }
        let mut start = vec![0u32; Op::COUNT + 1];
        let mut by_op: Vec<u16> = (0..rows.len() as u16).collect();
        by_op.sort_by_key(|&i| (rows[usize::from(i)].op, rows[usize::from(i)].bytes, i));
        for &i in &by_op {
            start[usize::from(rows[usize::from(i)].op.0) + 1] += 1;
        }
        for i in 0..Op::COUNT {
            start[i + 1] += start[i];
        }
        let narrow = TARGETS[target.min(TARGETS.len() - 1)].wave_size == 32;
        let index = Index::new(target, &rows, !narrow);
        Table { rows, by_op, start, index, wide_index: OnceLock::new(), heads: OnceLock::new() }
    }

    fn heads(&self, target: Target) -> Heads {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.rows.len()));
        for row in &self.rows {
            let (first, _) = row.mnemonic().split_once(" :: ").unwrap_or((row.mnemonic(), ""));
            text.push_str(first);
            text.push_str(self.suffix(row, target));
            ends.push(text.len() as u32);
        }
        Heads { text, ends }
    }

    /// The decode index for a wave size: masks of 64 lanes take pairs of registers.
    #[inline]
    pub fn index(&self, target: Target, wave64: bool) -> &Index {
        if wave64 && target.info().wave_size == 32 {
            return self.wide_index.get_or_init(|| Index::new(target.index(), &self.rows, true));
        }
        &self.index
    }

    /// Mnemonic of a row as it is printed: of a pair, the first half's.
    #[inline]
    pub fn head(&self, target: Target, row: u16) -> &str {
        let Heads { text, ends } = self.heads.get_or_init(|| self.heads(target));
        let i = usize::from(row);
        let start = i.checked_sub(1).and_then(|i| ends.get(i)).map_or(0, |e| *e as usize);
        ends.get(i).and_then(|e| text.get(start..*e as usize)).unwrap_or("?")
    }

    /// True when the operation has a 32-bit vector encoding (`narrow`) or VOP3.
    fn has_form(&self, op: Op, narrow: bool) -> bool {
        self.rows_of(op).iter().filter_map(|&i| self.rows.get(usize::from(i))).any(|r| {
            let s = r.shape();
            let fits = if narrow { matches!(s.format, "VOP1" | "VOP2" | "VOPC" | "VINTRP") } else { s.wide };
            s.overlay.is_empty() && fits
        })
    }

    /// The suffix that names the encoding.
    fn suffix(&self, row: &Row, target: Target) -> &'static str {
        let s = row.shape();
        let named = !(s.has(word::NO_SUFFIX) && s.overlay.is_empty());
        if !named || s.operands.iter().all(|o| !matches!(o.role, Role::Dst | Role::Src)) {
            return "";
        }
        match (s.format, s.overlay) {
            ("VINTRP", _) => "_e32",
            ("VOPC", "SDWAC") if target.info().has(Quirk::BareSdwaCompares) => "",
            ("VOPC", "") => "_e32",
            ("VOPC", "DPP" | "DPP8") => "",
            ("VOP1" | "VOP2", "") if self.has_form(row.op, false) => "_e32",
            ("VOP3" | "VOP3P", "DPP" | "DPP8") => "_e64_dpp",
            ("VOP3", "") if self.has_form(row.op, true) => "_e64",
            (_, "DPP" | "DPP8") => "_dpp",
            (_, "SDWA" | "SDWAC") => "_sdwa",
            _ => "",
        }
    }

    /// Row numbers of an operation, shortest first.
    pub fn rows_of(&self, op: Op) -> &[u16] {
        let i = usize::from(op.0);
        match (self.start.get(i), self.start.get(i + 1)) {
            (Some(&a), Some(&b)) => self.by_op.get(a as usize..b as usize).unwrap_or(&[]),
            _ => &[],
        }
    }
}

/// True when a modifier shows although its bits are clear.
#[inline]
pub(crate) fn prints_zero(o: &Operand) -> bool {
    matches!(
        o.modifier,
        ModName::OpSelHi
            | ModName::RowMask
            | ModName::BankMask
            | ModName::DstSel
            | ModName::DstUnused
            | ModName::Src0Sel
            | ModName::Src1Sel
            | ModName::DppCtrl
            | ModName::Dpp8
            | ModName::Dim
            | ModName::Format
            | ModName::WaitExp
            | ModName::WaitVdst
            | ModName::WaitVmVsrc
    )
}

/// True when the field can hold the code of a literal in this encoding.
pub(crate) fn literal_field(shape: &Shape, o: &Operand, vop3_literal: bool) -> bool {
    o.role == Role::Src
        && matches!(o.kind, Kind::Src | Kind::Ssrc)
        && !o.has(flag::VGPR_ONLY | flag::NO_LITERAL | flag::MASK | flag::NO_INLINE)
        && shape.overlay.is_empty()
        && o.name != "soffset"
        && o.style != Style::Barrier
        && (shape.bytes == 4
            || matches!(shape.format, "VOP2K" | "VOPD" | "SOP2")
            || (shape.bytes == 8 && vop3_literal && shape.format.starts_with("VOP3")))
}

/// True when the field, holding the code of a literal, is decoded with one: LLVM also reads literals behind encodings that
/// the manuals give none, and refuses to assemble them.
pub(crate) fn reads_literal(shape: &Shape, o: &Operand, vop3_literal: bool) -> bool {
    let source = o.role == Role::Src && matches!(o.kind, Kind::Src | Kind::Ssrc | Kind::SrcVgprAcc);
    let vgpr = shape.has(word::DPP_VGPR) && o.name == "src1";
    let dpp = shape.wide && matches!(shape.over, Over::Dpp | Over::Dpp8) && !vgpr;
    let extra = vop3_literal
        && (dpp && !o.has(flag::VGPR_ONLY | flag::MASK)
            || o.name == "soffset" && o.kind == Kind::Ssrc
            || o.kind == Kind::SrcVgprAcc && shape.over == Over::None
            || shape.format.starts_with("WMMA") && !o.has(flag::VGPR_ONLY)
            || shape.format == "VOP3" && shape.over == Over::None && o.has(flag::SCALAR_ONLY) && !o.has(flag::MASK)
            || shape.format == "VOPD3" && !o.has(flag::MASK));
    let everywhere = shape.format == "SOP2" || o.style == Style::Barrier;
    literal_field(shape, o, vop3_literal) || source && (extra || everywhere)
}

static TABLES: [OnceLock<Table>; 64] = [const { OnceLock::new() }; 64];

/// The table of a target, unpacked on first use.
pub(crate) fn table(target: Target) -> &'static Table {
    let i = target.index().min(TABLES.len() - 1);
    TABLES[i].get_or_init(|| Table::load(i))
}

/// The value that a modifier has when nothing is said.
pub(crate) fn default_of(o: &Operand, shape: &Shape) -> i64 {
    match o.modifier {
        ModName::OpSelHi if shape.has(word::MIX) || shape.format == "MAI16" => 0,
        ModName::OpSelHi => o.max() as i64,
        ModName::RowMask | ModName::BankMask => 15,
        ModName::DstSel | ModName::Src0Sel | ModName::Src1Sel => 6,
        _ => 0,
    }
}
