//! Which matrix instruction, or dot product, multiplies a pair of types.
//!
//! Sizes, types, layouts and the cycles that an instruction keeps the matrix pipe busy stand in the instruction tables; of
//! those that fit, the one with most products per cycle is taken.

use super::Type;
use barewave_isa::action::Action;
use barewave_isa::matrix::{Elem, Layout, MatrixOp};
use barewave_isa::{Inst, ModName, Mods, Op, Target, op};
use std::cmp::Reverse;
use std::sync::OnceLock;

/// Types of both operands, and of sums, of which products by matrix instructions are made.
const PRODUCTS: [([Type; 2], Type); 15] = [
    ([Type::F16; 2], Type::F32),
    ([Type::Bf16; 2], Type::F32),
    ([Type::F32; 2], Type::F32),
    ([Type::Xf32; 2], Type::F32),
    ([Type::F64; 2], Type::F64),
    ([Type::I8; 2], Type::I32),
    ([Type::Fp8; 2], Type::F32),
    ([Type::Bf8; 2], Type::F32),
    ([Type::Fp8, Type::Bf8], Type::F32),
    ([Type::Bf8, Type::Fp8], Type::F32),
    ([Type::Fp4; 2], Type::F32),
    ([Type::I4; 2], Type::I32),
    ([Type::U4; 2], Type::I32),
    ([Type::I4, Type::U4], Type::I32),
    ([Type::U4, Type::I4], Type::I32),
];

/// Rows and columns of an instruction's result.
const SIDES: [usize; 2] = [16, 32];

/// The element type of a matrix operand.
fn element(t: Type) -> Option<Elem> {
    Some(match t {
        Type::F16 => Elem::F16,
        Type::Bf16 => Elem::Bf16,
        Type::F32 => Elem::F32,
        Type::Xf32 => Elem::Xf32,
        Type::F64 => Elem::F64,
        Type::I8 => Elem::I8,
        Type::Fp8 => Elem::Fp8,
        Type::Bf8 => Elem::Bf8,
        Type::Fp4 => Elem::Fp4,
        Type::I4 => Elem::I4,
        Type::U4 => Elem::U4,
        Type::I32 => Elem::I32,
        _ => return None,
    })
}

/// All matrix instructions of any target.
fn all() -> &'static [Op] {
    static ALL: OnceLock<Vec<Op>> = OnceLock::new();
    ALL.get_or_init(|| (0..Op::COUNT as u16).map(Op).filter(|o| MatrixOp::is_matrix(*o)).collect())
}

/// The instruction of a target for square results of `side` rows, products of elements of these two types, in this order, and sums of
/// `sums`.
pub fn matrix_instruction(target: Target, factors: [Type; 2], sums: Type, side: usize) -> Option<(Op, MatrixOp)> {
    quickest(target, factors, sums, side, Operands::Plain)
}

/// The same with two operands more that hold a scale for each 32 elements of both along the depth.
pub fn scaled_instruction(target: Target, factors: [Type; 2], sums: Type, side: usize) -> Option<(Op, MatrixOp)> {
    quickest(target, factors, sums, side, Operands::Scaled)
}

/// What operands of a product hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    Plain,
    /// The first one two of every four elements.
    Sparse,
    /// Blocks with scales, which are further operands.
    Scaled,
}

/// The same for a first operand that holds two of every four elements along the depth.
pub fn sparse_instruction(target: Target, factors: [Type; 2], sums: Type, side: usize) -> Option<(Op, MatrixOp)> {
    quickest(target, factors, sums, side, Operands::Sparse)
}

/// The instruction of those that fit with most products per cycle.
fn quickest(target: Target, [a, b]: [Type; 2], sums: Type, side: usize, operands: Operands) -> Option<(Op, MatrixOp)> {
    let lanes = target.info().wave_size as usize;
    let (a, b, output) = (element(a)?, element(b)?, element(sums)?);
    let rate = |op: Op, m: &MatrixOp| (m.shape.k * 1000 / matrix_clocks(target, op, m) as usize, m.shape.k);
    let fits = |m: &MatrixOp| {
        let s = &m.shape;
        let sparse = operands == Operands::Sparse;
        (s.m, s.n, s.blocks, s.sparse) == (side, side, 1, sparse) && (m.a, m.b, m.d) == (a, b, output)
    };
    let of = |op: Op| Some(MatrixOp::of(target, op, lanes)?.multiplying(a, b));
    let sources = if operands == Operands::Scaled { 5 } else { 3 };
    let alike = |op: &&Op| target.op(**op).is_some_and(|i| i.srcs.len() == sources);
    let known = all().iter().filter(alike).filter_map(|&op| Some((op, of(op)?)));
    known.filter(|(_, m)| fits(m)).max_by_key(|(op, m)| (rate(*op, m), Reverse(*op)))
}

/// Clocks for which an instruction keeps the matrix pipe of a SIMD busy: of those whose modifiers name the types of factors it depends
/// on these.
pub fn matrix_clocks(target: Target, op: Op, m: &MatrixOp) -> u32 {
    let mods = matrix_modifiers(op, m);
    let passes = target.passes(&Inst { mods, ..Inst::new(op, &[], &[]) }).map_or(0, u32::from);
    target.op(op).map_or(1, |i| u32::from(i.busy)).max(4 * passes).max(1)
}

/// True for the instructions that [`matrix_instruction`], [`sparse_instruction`] and [`scaled_instruction`] give.
pub fn is_chosen_matrix_instruction(target: Target, op: Op) -> bool {
    let each = PRODUCTS.iter().flat_map(|p| SIDES.map(|side| (p, side)));
    let ways = [Operands::Plain, Operands::Sparse, Operands::Scaled];
    let choices = each.flat_map(|(p, side)| ways.map(|way| quickest(target, p.0, p.1, side, way)));
    choices.flatten().any(|(chosen, _)| chosen == op)
}

/// An instruction that adds products of neighbouring elements to a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dot {
    /// The instruction.
    pub op: Op,
    /// Products that it adds.
    pub elements: u32,
    /// Type that operands are in: a register holds as many elements.
    pub operands: Type,
    /// Modifiers must say which factors are signed: these.
    pub signs: Option<[bool; 2]>,
}

/// The best instruction of a target for sums of products of neighbouring elements; `None` where plain multiply-adds are. Of integers of 4
/// bits, two in a byte, it adds twice as many products as bytes.
pub fn dot_instruction(target: Target, factors: [Type; 2], sums: Type) -> Option<Dot> {
    let dot = |op, operands, elements| Dot { op, elements, operands, signs: None };
    let signs = factors.map(|t| matches!(t, Type::I8 | Type::I4));
    let (words, nibbles) = (dot(op::V_DOT4_I32_IU8, Type::I8, 4), dot(op::V_DOT8_I32_IU4, factors[0], 4));
    let known = [
        (&[Type::F16][..], Type::F32, dot(op::V_DOT2_F32_F16, Type::F16, 2)),
        (&[Type::Bf16], Type::F32, dot(op::V_DOT2_F32_BF16, Type::Bf16, 2)),
        (&[Type::I8], Type::I32, Dot { signs: Some(signs), ..words }),
        (&[Type::I8], Type::I32, dot(op::V_DOT4_I32_I8, Type::I8, 4)),
        // One by one, at full rate, which products of 32 bits are not.
        (&[Type::I8], Type::I32, dot(op::V_MAD_I32_I24, Type::I32, 1)),
        (&[Type::I4, Type::U4], Type::I32, Dot { signs: Some(signs), ..nibbles }),
        (&[Type::I4], Type::I32, dot(op::V_DOT8_I32_I4, Type::I4, 4)),
        // Sums of fewer than 2^24 such products are the same signed.
        (&[Type::U4], Type::I32, dot(op::V_DOT8_U32_U4, Type::U4, 4)),
    ];
    let fits = |types: &[Type], of: Type| factors.iter().all(|t| types.contains(t)) && of == sums;
    known.iter().find(|x| fits(x.0, x.1) && target.has(x.2.op)).map(|x| x.2)
}

/// Two additions, products or multiply-adds of f32 are one instruction where that is there for waves of 64 lanes (gfx90a and later CDNA).
pub fn packs_f32(target: Target) -> bool {
    target.info().wave_size == 64 && target.has(op::V_PK_FMA_F32)
}

/// The instruction that is two multiply-adds of a type, each with a sum of its own; `None` where they are issued one by one.
pub fn paired_multiply_adds(target: Target, ty: Type) -> Option<Op> {
    static PAIR: OnceLock<Option<Op>> = OnceLock::new();
    let pair = *PAIR.get_or_init(|| Op::dual(op::V_FMAC_F32, op::V_FMAC_F32));
    pair.filter(|pair| ty == Type::F32 && target.info().wave_size == 32 && target.has(*pair))
}

/// Instructions that multiply pairs of f16 and sum them in f16, two sums in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedSums {
    /// Multiplies.
    pub multiply: Op,
    /// Multiplies, and adds to sums.
    pub multiply_add: Op,
    /// Multiplies and adds where each operand is f32, or a half of a word: it adds such sums to those of f32.
    pub mixed: Op,
}

/// How a target sums products of f16 in f16, where it takes longer over sums of f32: it has neither matrix instructions nor dot products of
/// f16 that are as quick. `None` elsewhere.
pub fn packed_sums(target: Target) -> Option<PackedSums> {
    let busy = |op: Op| target.op(op).map(|i| f64::from(i.busy.max(1)));
    let (multiply, multiply_add) = (op::V_PK_MUL_F16, op::V_PK_FMA_F16);
    // The latter flushes denormals of f32, of which sums of such products are none.
    let mixed = [op::V_FMA_MIX_F32, op::V_MAD_MIX_F32].into_iter().find(|op| target.has(*op))?;
    let each = busy(multiply_add).filter(|_| target.has(multiply))? / 2.0;
    let factors = [Type::F16; 2];
    let by_matrix = SIDES.iter().any(|side| matrix_instruction(target, factors, Type::F32, *side).is_some());
    let dot = dot_instruction(target, factors, Type::F32);
    let as_quick = dot.and_then(|d| Some(busy(d.op)? / f64::from(d.elements))).is_some_and(|one| one <= each);
    (!by_matrix && !as_quick).then_some(PackedSums { multiply, multiply_add, mixed })
}

/// Modifiers of a matrix instruction: those of integers say which factors are signed, others of which types they are.
pub fn matrix_modifiers(op: Op, m: &MatrixOp) -> Mods {
    match op.action() {
        Action::Matrix(p) if p.signs => signed([m.a, m.b].map(|e| matches!(e, Elem::I8 | Elem::I4))),
        Action::Matrix(p) if p.formats => {
            let format = |e: Elem| e.format().unwrap_or(0);
            Mods::new().with(ModName::Cbsz, format(m.a)).with(ModName::Blgp, format(m.b))
        }
        _ => Mods::new(),
    }
}

/// The same of one with a sparse operand, whose indices are set `key` of those in a register.
pub fn sparse_modifiers(op: Op, m: &MatrixOp, key: u32) -> Mods {
    let name = if m.shape.layout == Layout::Mfma { ModName::Abid } else { ModName::IndexKey };
    let mods = matrix_modifiers(op, m);
    if key > 0 { mods.with(name, key as i32) } else { mods }
}

/// These factors are signed.
pub fn signed(factors: [bool; 2]) -> Mods {
    let bits = factors.iter().enumerate().map(|(i, signed)| i32::from(*signed) << i).sum();
    if bits == 0 { Mods::new() } else { Mods::new().with(ModName::Neg, bits) }
}
