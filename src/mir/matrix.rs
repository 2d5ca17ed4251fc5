//! Which matrix instruction, or dot product, multiplies a pair of types.
//!
//! Sizes, types, layouts and the cycles that an instruction keeps the matrix pipe busy stand in the instruction tables; of
//! those that fit, the one with most products per cycle is taken.

use super::Type;
use barewave_isa::matrix::{Elem, MatrixOp};
use barewave_isa::{Op, Target, op};
use std::cmp::Reverse;
use std::sync::OnceLock;

/// Types of operands and sums of which products by matrix instructions are made.
const PRODUCTS: [(Type, Type); 4] =
    [(Type::F16, Type::F32), (Type::Bf16, Type::F32), (Type::F32, Type::F32), (Type::F64, Type::F64)];

/// Rows and columns of an instruction's result.
const SIDES: [usize; 2] = [16, 32];

/// The element type of a matrix operand.
fn element(t: Type) -> Option<Elem> {
    Some(match t {
        Type::F16 => Elem::F16,
        Type::Bf16 => Elem::Bf16,
        Type::F32 => Elem::F32,
        Type::F64 => Elem::F64,
        _ => return None,
    })
}

/// All matrix instructions of any target.
fn all() -> &'static [Op] {
    static ALL: OnceLock<Vec<Op>> = OnceLock::new();
    ALL.get_or_init(|| (0..Op::COUNT as u16).map(Op).filter(|o| MatrixOp::is_matrix(*o)).collect())
}

/// The instruction of a target for square results of `side` rows, products of `operands` elements and sums of `sums`.
pub fn matrix_instruction(target: Target, operands: Type, sums: Type, side: usize) -> Option<(Op, MatrixOp)> {
    let lanes = target.info().wave_size as usize;
    let (input, output) = (element(operands)?, element(sums)?);
    let rate = |op: Op, m: &MatrixOp| {
        let busy = target.op(op).map_or(1, |i| i.busy.max(1));
        (m.shape.k * 1000 / usize::from(busy), m.shape.k)
    };
    let fits = |m: &MatrixOp| {
        let s = &m.shape;
        (s.m, s.n, s.blocks, s.sparse, s.split8) == (side, side, 1, false, false)
            && (m.a, m.b, m.d) == (input, input, output)
    };
    let known = all().iter().filter_map(|&op| Some((op, MatrixOp::of(target, op, lanes)?)));
    known.filter(|(_, m)| fits(m)).max_by_key(|(op, m)| (rate(*op, m), Reverse(*op)))
}

/// True for the instructions that [`matrix_instruction`] gives.
pub fn is_chosen_matrix_instruction(target: Target, op: Op) -> bool {
    let choices = PRODUCTS.iter().flat_map(|p| SIDES.map(|side| matrix_instruction(target, p.0, p.1, side)));
    choices.flatten().any(|(chosen, _)| chosen == op)
}

/// The instruction of a target that adds the products of several neighbouring elements to a sum, and how many they are.
pub fn dot_instruction(target: Target, operands: Type, sums: Type) -> Option<(Op, u32)> {
    let known = [(op::V_DOT2_F32_F16, Type::F16, Type::F32, 2), (op::V_DOT2_F32_BF16, Type::Bf16, Type::F32, 2)];
    let fits = |x: &&(Op, Type, Type, u32)| (x.1, x.2) == (operands, sums) && target.has(x.0);
    known.iter().find(fits).map(|x| (x.0, x.3))
}
