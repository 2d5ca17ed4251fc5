//! Which instruction computes a generic operation on a type, as one table.
//!
//! A row names an operation, a type, the vector instruction and the scalar one. Several rows for one pair are alternatives,
//! best first; the target's tables say which instructions it has. What no row of the target covers is expanded
//! ([`expand`](super::expand)).

use crate::mir::{Gen, Generic, Type};
use barewave_isa::{Op, Target, op};
use std::sync::OnceLock;

/// How an instruction's operands follow from the operation's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// In the same order.
    Plain,
    /// The first two swapped: vector shifts take the amount first.
    Swapped,
    /// The instruction also writes a carry mask that is not wanted.
    Carry,
    /// The last source is the destination, which must be the same register.
    Accumulate,
}

/// One row.
pub(super) struct Rule {
    op: Gen,
    ty: Type,
    /// Type of a conversion's operand; otherwise `ty`.
    from: Type,
    vector: Option<Op>,
    scalar: Option<Op>,
    /// How the vector instruction takes operands; the scalar one takes them in order.
    pub form: Form,
}

const fn row(op: Gen, ty: Type, vector: Op) -> Rule {
    Rule { op, ty, from: ty, vector: Some(vector), scalar: None, form: Form::Plain }
}
const fn both(op: Gen, ty: Type, vector: Op, scalar: Op) -> Rule {
    Rule { scalar: Some(scalar), ..row(op, ty, vector) }
}
const fn formed(op: Gen, ty: Type, vector: Op, form: Form) -> Rule {
    Rule { form, ..row(op, ty, vector) }
}
const fn scalar(op: Gen, ty: Type, scalar: Op) -> Rule {
    Rule { op, ty, from: ty, vector: None, scalar: Some(scalar), form: Form::Plain }
}
const fn shift(op: Gen, ty: Type, vector: Op, scalar: Op) -> Rule {
    Rule { form: Form::Swapped, ..both(op, ty, vector, scalar) }
}
const fn convert(to: Type, from: Type, vector: Op) -> Rule {
    Rule { from, ..row(Gen::Cvt, to, vector) }
}

use Form::*;
use Gen::*;
use Type::*;

#[rustfmt::skip]
const RULES: &[Rule] = &[
    // 32-bit integers. Before gfx9 every vector sum writes a carry.
    both(Add, I32, op::V_ADD_U32, op::S_ADD_U32),               formed(Add, I32, op::V_ADD_CO_U32, Carry),
    both(Add, U32, op::V_ADD_U32, op::S_ADD_U32),               formed(Add, U32, op::V_ADD_CO_U32, Carry),
    scalar(Add, I32, op::S_ADD_U32),                            scalar(Add, U32, op::S_ADD_U32),
    both(Sub, I32, op::V_SUB_U32, op::S_SUB_U32),               formed(Sub, I32, op::V_SUB_CO_U32, Carry),
    both(Sub, U32, op::V_SUB_U32, op::S_SUB_U32),               formed(Sub, U32, op::V_SUB_CO_U32, Carry),
    scalar(Sub, I32, op::S_SUB_U32),                            scalar(Sub, U32, op::S_SUB_U32),
    both(Mul, I32, op::V_MUL_LO_U32, op::S_MUL_I32),            both(Mul, U32, op::V_MUL_LO_U32, op::S_MUL_I32),
    both(MulHi, U32, op::V_MUL_HI_U32, op::S_MUL_HI_U32),
    both(And, B32, op::V_AND_B32, op::S_AND_B32),               both(Or, B32, op::V_OR_B32, op::S_OR_B32),
    both(Xor, B32, op::V_XOR_B32, op::S_XOR_B32),               both(Not, B32, op::V_NOT_B32, op::S_NOT_B32),
    shift(Shl, I32, op::V_LSHLREV_B32, op::S_LSHL_B32),         shift(Shl, U32, op::V_LSHLREV_B32, op::S_LSHL_B32),
    shift(Shr, I32, op::V_ASHRREV_I32, op::S_ASHR_I32),         shift(Shr, U32, op::V_LSHRREV_B32, op::S_LSHR_B32),
    both(Min, I32, op::V_MIN_I32, op::S_MIN_I32),               both(Max, I32, op::V_MAX_I32, op::S_MAX_I32),
    both(Min, U32, op::V_MIN_U32, op::S_MIN_U32),               both(Max, U32, op::V_MAX_U32, op::S_MAX_U32),
    row(CmpEq, I32, op::V_CMP_EQ_U32),  row(CmpNe, I32, op::V_CMP_NE_U32),  row(CmpLt, I32, op::V_CMP_LT_I32),
    row(CmpLe, I32, op::V_CMP_LE_I32),  row(CmpGt, I32, op::V_CMP_GT_I32),  row(CmpGe, I32, op::V_CMP_GE_I32),
    row(CmpEq, U32, op::V_CMP_EQ_U32),  row(CmpNe, U32, op::V_CMP_NE_U32),  row(CmpLt, U32, op::V_CMP_LT_U32),
    row(CmpLe, U32, op::V_CMP_LE_U32),  row(CmpGt, U32, op::V_CMP_GT_U32),  row(CmpGe, U32, op::V_CMP_GE_U32),
    // 16-bit integers where the target has them; 8-bit ones are always widened.
    row(Add, I16, op::V_ADD_U16),       row(Sub, I16, op::V_SUB_U16),       row(Mul, I16, op::V_MUL_LO_U16),
    row(Add, U16, op::V_ADD_U16),       row(Sub, U16, op::V_SUB_U16),       row(Mul, U16, op::V_MUL_LO_U16),
    row(Min, I16, op::V_MIN_I16),       row(Max, I16, op::V_MAX_I16),
    row(Min, U16, op::V_MIN_U16),       row(Max, U16, op::V_MAX_U16),
    // 64-bit integers.
    formed(Shl, I64, op::V_LSHLREV_B64, Swapped),               formed(Shl, U64, op::V_LSHLREV_B64, Swapped),
    formed(Shr, I64, op::V_ASHRREV_I64, Swapped),               formed(Shr, U64, op::V_LSHRREV_B64, Swapped),
    row(CmpEq, I64, op::V_CMP_EQ_U64),  row(CmpNe, I64, op::V_CMP_NE_U64),  row(CmpLt, I64, op::V_CMP_LT_I64),
    row(CmpLe, I64, op::V_CMP_LE_I64),  row(CmpGt, I64, op::V_CMP_GT_I64),  row(CmpGe, I64, op::V_CMP_GE_I64),
    row(CmpEq, U64, op::V_CMP_EQ_U64),  row(CmpNe, U64, op::V_CMP_NE_U64),  row(CmpLt, U64, op::V_CMP_LT_U64),
    row(CmpLe, U64, op::V_CMP_LE_U64),  row(CmpGt, U64, op::V_CMP_GT_U64),  row(CmpGe, U64, op::V_CMP_GE_U64),
    // f32.
    row(Add, F32, op::V_ADD_F32),       row(Sub, F32, op::V_SUB_F32),       row(Mul, F32, op::V_MUL_F32),
    row(Min, F32, op::V_MIN_F32),       row(Max, F32, op::V_MAX_F32),
    formed(Fma, F32, op::V_FMAC_F32, Accumulate),               row(Fma, F32, op::V_FMA_F32),
    row(Floor, F32, op::V_FLOOR_F32),   row(Ceil, F32, op::V_CEIL_F32),     row(Trunc, F32, op::V_TRUNC_F32),
    row(Round, F32, op::V_RNDNE_F32),   row(Rcp, F32, op::V_RCP_F32),       row(Rsq, F32, op::V_RSQ_F32),
    row(Sqrt, F32, op::V_SQRT_F32),     row(Exp2, F32, op::V_EXP_F32),      row(Log2, F32, op::V_LOG_F32),
    row(Sin, F32, op::V_SIN_F32),       row(Cos, F32, op::V_COS_F32),       row(Ldexp, F32, op::V_LDEXP_F32),
    row(CmpEq, F32, op::V_CMP_EQ_F32),  row(CmpNe, F32, op::V_CMP_NEQ_F32), row(CmpLt, F32, op::V_CMP_LT_F32),
    row(CmpLe, F32, op::V_CMP_LE_F32),  row(CmpGt, F32, op::V_CMP_GT_F32),  row(CmpGe, F32, op::V_CMP_GE_F32),
    row(CmpUnordered, F32, op::V_CMP_U_F32),
    // f16.
    row(Add, F16, op::V_ADD_F16),       row(Sub, F16, op::V_SUB_F16),       row(Mul, F16, op::V_MUL_F16),
    row(Min, F16, op::V_MIN_F16),       row(Max, F16, op::V_MAX_F16),       row(Fma, F16, op::V_FMA_F16),
    row(Floor, F16, op::V_FLOOR_F16),   row(Ceil, F16, op::V_CEIL_F16),     row(Trunc, F16, op::V_TRUNC_F16),
    row(Round, F16, op::V_RNDNE_F16),   row(Rcp, F16, op::V_RCP_F16),       row(Rsq, F16, op::V_RSQ_F16),
    row(Sqrt, F16, op::V_SQRT_F16),     row(Exp2, F16, op::V_EXP_F16),      row(Log2, F16, op::V_LOG_F16),
    row(Sin, F16, op::V_SIN_F16),       row(Cos, F16, op::V_COS_F16),       row(Ldexp, F16, op::V_LDEXP_F16),
    row(CmpEq, F16, op::V_CMP_EQ_F16),  row(CmpNe, F16, op::V_CMP_NEQ_F16), row(CmpLt, F16, op::V_CMP_LT_F16),
    row(CmpLe, F16, op::V_CMP_LE_F16),  row(CmpGt, F16, op::V_CMP_GT_F16),  row(CmpGe, F16, op::V_CMP_GE_F16),
    row(CmpUnordered, F16, op::V_CMP_U_F16),
    // f64.
    row(Add, F64, op::V_ADD_F64),       row(Mul, F64, op::V_MUL_F64),       row(Fma, F64, op::V_FMA_F64),
    row(Min, F64, op::V_MIN_F64),       row(Max, F64, op::V_MAX_F64),
    row(Floor, F64, op::V_FLOOR_F64),   row(Ceil, F64, op::V_CEIL_F64),     row(Trunc, F64, op::V_TRUNC_F64),
    row(Round, F64, op::V_RNDNE_F64),   row(Rcp, F64, op::V_RCP_F64),       row(Rsq, F64, op::V_RSQ_F64),
    row(Sqrt, F64, op::V_SQRT_F64),     row(Ldexp, F64, op::V_LDEXP_F64),
    row(CmpEq, F64, op::V_CMP_EQ_F64),  row(CmpNe, F64, op::V_CMP_NEQ_F64), row(CmpLt, F64, op::V_CMP_LT_F64),
    row(CmpLe, F64, op::V_CMP_LE_F64),  row(CmpGt, F64, op::V_CMP_GT_F64),  row(CmpGe, F64, op::V_CMP_GE_F64),
    row(CmpUnordered, F64, op::V_CMP_U_F64),
    // Packed pairs.
    row(Add, PkF16, op::V_PK_ADD_F16),  row(Mul, PkF16, op::V_PK_MUL_F16),  row(Fma, PkF16, op::V_PK_FMA_F16),
    row(Min, PkF16, op::V_PK_MIN_F16),  row(Max, PkF16, op::V_PK_MAX_F16),
    row(Add, PkBf16, op::V_PK_ADD_BF16), row(Mul, PkBf16, op::V_PK_MUL_BF16), row(Fma, PkBf16, op::V_PK_FMA_BF16),
    row(Add, PkI16, op::V_PK_ADD_U16),  row(Sub, PkI16, op::V_PK_SUB_I16),  row(Mul, PkI16, op::V_PK_MUL_LO_U16),
    row(Min, PkI16, op::V_PK_MIN_I16),  row(Max, PkI16, op::V_PK_MAX_I16),
    row(Add, PkF32, op::V_PK_ADD_F32),  row(Mul, PkF32, op::V_PK_MUL_F32),  row(Fma, PkF32, op::V_PK_FMA_F32),
    row(Pack, PkF16, op::V_CVT_PK_F16_F32), row(Pack, PkBf16, op::V_CVT_PK_BF16_F32),
    // Conversions.
    convert(F32, F16, op::V_CVT_F32_F16),   convert(F16, F32, op::V_CVT_F16_F32),
    convert(F64, F32, op::V_CVT_F64_F32),   convert(F32, F64, op::V_CVT_F32_F64),
    convert(F32, I32, op::V_CVT_F32_I32),   convert(F32, U32, op::V_CVT_F32_U32),
    convert(I32, F32, op::V_CVT_I32_F32),   convert(U32, F32, op::V_CVT_U32_F32),
    convert(F64, I32, op::V_CVT_F64_I32),   convert(F64, U32, op::V_CVT_F64_U32),
    convert(I32, F64, op::V_CVT_I32_F64),   convert(U32, F64, op::V_CVT_U32_F64),
    convert(F16, I16, op::V_CVT_F16_I16),   convert(F16, U16, op::V_CVT_F16_U16),
    convert(I16, F16, op::V_CVT_I16_F16),   convert(U16, F16, op::V_CVT_U16_F16),
];

const TYPES: usize = Type::NAMES.len();

/// Row numbers by operation and type.
fn index() -> &'static [Vec<u16>] {
    static INDEX: OnceLock<Vec<Vec<u16>>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut out = vec![Vec::new(); Gen::NAMES.len() * TYPES];
        for (i, r) in RULES.iter().enumerate() {
            out[r.op as usize * TYPES + r.ty as usize].push(i as u16);
        }
        out
    })
}

/// The best row for an operation that the target has, and its instruction. `accumulates` says that the last source is the
/// destination's old value.
pub(super) fn find(t: Target, g: Generic, vector: bool, accumulates: bool) -> Option<(&'static Rule, Op)> {
    // Bitwise operations do not care what the bits mean.
    let ty = match g.op {
        Gen::And | Gen::Or | Gen::Xor | Gen::Not if g.ty.dwords() == 1 => Type::B32,
        _ => g.ty,
    };
    let rows = index()[g.op as usize * TYPES + ty as usize].iter().map(|&i| &RULES[usize::from(i)]);
    let fits = |r: &&Rule| (g.op != Gen::Cvt || r.from == g.from) && (r.form != Form::Accumulate || accumulates);
    rows.filter(fits).find_map(|r| {
        let op = if vector { r.vector } else { r.scalar }?;
        t.has(op).then_some((r, op))
    })
}
