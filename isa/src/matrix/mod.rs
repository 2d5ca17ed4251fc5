//! Matrix instructions: shapes, element types, and which lane, register and bits hold each element.
//!
//! [`MatrixOp::of`] describes an instruction of a target; [`Shape`] lists the places of all elements, as lanes of columns
//! and rows; a [`Fragment`] is the same mapping in the form that kernels compute with: (row, column) of an element as
//! a sum over the bits of its lane and of its position in the lane.

mod describe;
mod fragment;
mod layout;

pub use describe::describe;
pub use fragment::{Fragment, Step};
pub use layout::{Column, Shape};

use crate::{Op, Target, WaitScheme};

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    /// IEEE single.
    F32,
    /// Single with 10 bits of mantissa.
    Xf32,
    /// IEEE double.
    F64,
    /// IEEE half.
    F16,
    /// bf16.
    Bf16,
    /// 8-bit float, 4 exponent bits.
    Fp8,
    /// 8-bit float, 5 exponent bits.
    Bf8,
    /// 6-bit float, 2 exponent bits.
    Fp6,
    /// 6-bit float, 3 exponent bits.
    Bf6,
    /// 4-bit float, 2 exponent bits.
    Fp4,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
    /// Signed nibble.
    I4,
    /// Unsigned nibble.
    U4,
    /// 32-bit integer.
    I32,
}

impl Elem {
    /// Bits of an element.
    pub fn bits(self) -> u32 {
        match self {
            Elem::F64 => 64,
            Elem::F32 | Elem::Xf32 | Elem::I32 => 32,
            Elem::F16 | Elem::Bf16 => 16,
            Elem::Fp8 | Elem::Bf8 | Elem::I8 | Elem::U8 => 8,
            Elem::Fp6 | Elem::Bf6 => 6,
            Elem::Fp4 | Elem::I4 | Elem::U4 => 4,
        }
    }
    fn of(name: &str) -> Option<Elem> {
        Some(match name {
            "f32" => Elem::F32,
            "xf32" => Elem::Xf32,
            "f64" => Elem::F64,
            "f16" => Elem::F16,
            "bf16" => Elem::Bf16,
            // The real types of f8f6f4 come from modifiers.
            "fp8" | "f8f6f4" => Elem::Fp8,
            "bf8" => Elem::Bf8,
            "i8" | "iu8" => Elem::I8,
            "iu4" => Elem::I4,
            "i32" => Elem::I32,
            _ => return None,
        })
    }
    /// Type that CBSZ and BLGP of f8f6f4 instructions name by number.
    pub fn of_format(n: usize) -> Option<Elem> {
        [Elem::Fp8, Elem::Bf8, Elem::Fp6, Elem::Bf6, Elem::Fp4].get(n).copied()
    }
}

/// Which layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// CDNA.
    Mfma,
    /// RDNA3: both halves of a wave hold the same A and B.
    Wmma11,
    /// RDNA4.
    Wmma12,
}

/// A parsed mnemonic.
struct Name {
    layout: Layout,
    m: usize,
    n: usize,
    k: usize,
    a: Elem,
    b: Elem,
    d: Elem,
    sparse: bool,
}

/// Parses the mnemonic; sizes that the name does not hold follow from the operands.
fn parse(name: &str) -> Option<Name> {
    let prefixes = [
        ("v_mfma_scale_", Layout::Mfma, false),
        ("v_mfma_", Layout::Mfma, false),
        ("v_smfmac_", Layout::Mfma, true),
        ("v_wmma_", Layout::Wmma11, false),
        ("v_swmmac_", Layout::Wmma12, true),
    ];
    let (rest, layout, sparse) = prefixes.iter().find_map(|(p, l, s)| Some((name.strip_prefix(p)?, *l, *s)))?;
    let (d, rest) = rest.split_once('_')?;
    // "32x32x4_2b_bf16", "16x16x16i8", "16x16x32_fp8_bf8"
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == 'x')).unwrap_or(rest.len());
    // The x of "xf32" belongs to the type.
    let shape = rest[..end].trim_end_matches('x');
    let mut types: Vec<&str> = rest[shape.len()..].split('_').filter(|t| !t.is_empty()).collect();
    types.retain(|t| !(t.ends_with('b') && t[..t.len() - 1].parse::<u32>().is_ok()));
    let mut dims = shape.split('x').map(|t| t.parse::<usize>());
    let mut dim = || dims.next()?.ok();
    let (m, n, k) = (dim()?, dim()?, dim()?);
    let a = Elem::of(types.first()?)?;
    let b = match types.get(1) {
        Some(t) => Elem::of(t)?,
        None => a,
    };
    Some(Name { layout, m, n, k, a, b, d: Elem::of(d)?, sparse })
}

/// A matrix instruction on a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatrixOp {
    /// Sizes and layout.
    pub shape: Shape,
    /// Type of A's elements. Of f8f6f4 instructions the modifiers name it; here it is the 8-bit one.
    pub a: Elem,
    /// Type of B's elements.
    pub b: Elem,
    /// Type of the elements of C and D.
    pub d: Elem,
}

/// Which operand of a matrix instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// Rows i, columns k (of a sparse A its stored elements).
    A,
    /// Rows k, columns j.
    B,
    /// Rows i, columns j: C and D.
    D,
}

impl MatrixOp {
    /// True when an operation's name is that of a matrix product, on whatever target.
    pub fn is_matrix(op: Op) -> bool {
        parse(op.name()).is_some()
    }

    /// The instruction as the target has it in waves of `lanes` lanes; `None` for other instructions, and for gfx1250's WMMA,
    /// whose layouts are not known.
    pub fn of(target: Target, op: Op, lanes: usize) -> Option<MatrixOp> {
        let dwords = usize::from(target.op(op)?.dsts.first()?.dwords());
        MatrixOp::with(target, op, lanes, dwords)
    }

    /// The same for an instruction whose destination has `dwords` registers.
    pub fn with(target: Target, op: Op, lanes: usize, dwords: usize) -> Option<MatrixOp> {
        let n = parse(op.name())?;
        let t = target.info();
        let layout = match n.layout {
            Layout::Mfma => Layout::Mfma,
            // gfx1250 has layouts of its own, and tuples that must be aligned.
            _ if t.vgpr_tuple_align > 1 => return None,
            _ if t.waits == WaitScheme::Split => Layout::Wmma12,
            other => other,
        };
        let blocks = match layout {
            Layout::Mfma => (dwords * 64 / (n.d.bits() as usize / 32) / (n.m * n.n)).max(1),
            _ => 1,
        };
        let split8 = op.name().ends_with("f8f6f4");
        let shape = Shape { layout, lanes, m: n.m, n: n.n, k: n.k, blocks, sparse: n.sparse, split8 };
        Some(MatrixOp { shape, a: n.a, b: n.b, d: n.d })
    }

    /// Where an operand's elements are. Blocks follow one another along i (A, D) and j (B).
    pub fn fragment(&self, operand: Operand) -> Option<Fragment> {
        let s = &self.shape;
        let columns_of_a = if s.sparse { s.k / 2 } else { s.k };
        let (elem, runs, along, side) = match operand {
            Operand::A => (self.a, s.a(self.a), columns_of_a, s.m),
            Operand::B => (self.b, s.b(self.b), s.k, s.n),
            Operand::D => (self.d, s.d(self.d, false), s.m, s.n),
        };
        let mut places = Vec::with_capacity(runs.len() * side);
        for (at, run) in runs.iter().enumerate() {
            let (block, line) = (at / along, at % along);
            for i in 0..side {
                let element = match operand {
                    Operand::A => (block * side + i, line),
                    Operand::B => (line, block * side + i),
                    Operand::D => (block * s.m + line, i),
                };
                places.push((element, usize::from(run.lane) + i, usize::from(run.reg), u32::from(run.shift)));
            }
        }
        // A 16-bit result of gfx11 leaves every other half of a register alone.
        let spacing = match (operand, s.layout) {
            (Operand::D, Layout::Wmma11) => 32,
            _ => elem.bits(),
        };
        Fragment::from_places(&places, s.lanes, elem.bits(), spacing)
    }
}
