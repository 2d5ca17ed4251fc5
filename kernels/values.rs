//! Values of one element in registers, and how they are loaded and stored by element type.
//!
//! Floats of 16 bits are computed in f32, integers of 8 and 16 bits in 32 bits, booleans are wavefront masks, 64-bit
//! integers are register pairs.

use super::address::Offset;
use crate::mir::{Buffer, Builder, Gen, Generic, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;

/// One element of a tensor, per lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// f32, or an integer of up to 32 bits; may be a constant.
    Word(Opnd),
    /// A 64-bit integer.
    Pair(Part),
    /// A boolean: a wavefront mask.
    Mask(Part),
}

/// How a type is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Computed as f32.
    Float,
    /// Computed as a signed or unsigned 32-bit integer.
    Int {
        /// Two's complement.
        signed: bool,
    },
    /// Computed as a 64-bit integer.
    Long {
        /// Two's complement.
        signed: bool,
    },
    /// Mask.
    Bool,
}

/// How kernels hold elements of a type, or why they cannot.
pub(super) fn kind(t: DType) -> Result<Kind, String> {
    Ok(match t {
        DType::F32 | DType::F16 => Kind::Float,
        DType::I8 | DType::I16 | DType::I32 => Kind::Int { signed: true },
        DType::U8 | DType::U16 | DType::U32 => Kind::Int { signed: false },
        DType::I64 => Kind::Long { signed: true },
        DType::U64 => Kind::Long { signed: false },
        DType::Bool => Kind::Bool,
        DType::F64 | DType::BF16 => {
            return Err(format!("element type {t} is not supported by kernels (f32, f16, bool and integers are)"));
        }
    })
}

impl Value {
    /// The 32-bit operand.
    pub fn word(self) -> Opnd {
        match self {
            Value::Word(o) => o,
            Value::Pair(p) => p.dword(0).into(),
            Value::Mask(_) => panic!("a mask is not a word"),
        }
    }
    /// The register of a 32-bit value, copying a constant into one.
    pub fn reg(self, b: &mut Builder) -> Part {
        match self.word() {
            Opnd::V(p) if b.is_vector(p.into()) => p,
            o => b.to_vector(o),
        }
    }
}

/// Loads the element at an offset.
pub(super) fn load(b: &mut Builder, t: DType, buf: Buffer, at: Offset) -> Result<Value, String> {
    kind(t)?;
    let (v, s, imm) = at.operands(b);
    let word = |b: &mut Builder, op| Value::Word(b.load_op(op, buf, v, s, imm).into());
    Ok(match t {
        DType::F32 | DType::I32 | DType::U32 => word(b, op::BUFFER_LOAD_DWORD),
        DType::I8 => word(b, op::BUFFER_LOAD_SBYTE),
        DType::U8 => word(b, op::BUFFER_LOAD_UBYTE),
        DType::I16 => word(b, op::BUFFER_LOAD_SSHORT),
        DType::U16 => word(b, op::BUFFER_LOAD_USHORT),
        DType::F16 => {
            let h = b.load_op(op::BUFFER_LOAD_USHORT, buf, v, s, imm);
            Value::Word(b.op(Generic::convert(Type::F16, Type::F32), &[h.into()]).into())
        }
        DType::Bool => {
            let x = b.load_op(op::BUFFER_LOAD_UBYTE, buf, v, s, imm);
            Value::Mask(b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), x.into()]))
        }
        DType::I64 | DType::U64 => Value::Pair(b.load(buf, 2, v, s, imm)),
        DType::F64 | DType::BF16 => unreachable!("refused above"),
    })
}

/// Stores an element at an offset.
pub(super) fn store(b: &mut Builder, t: DType, buf: Buffer, at: Offset, value: Value) -> Result<(), String> {
    kind(t)?;
    let (v, s, imm) = at.operands(b);
    match (t, value) {
        (DType::Bool, Value::Mask(m)) => {
            let one = b.to_vector(1u32);
            let x = b.select(m, one, 0u32);
            b.store_op(op::BUFFER_STORE_BYTE, buf, x, v, s, imm);
        }
        (DType::I64 | DType::U64, Value::Pair(p)) => b.store(buf, p, v, s, imm),
        (DType::F16, x) => {
            let x = x.reg(b);
            let h = b.op(Generic::convert(Type::F32, Type::F16), &[x.into()]);
            b.store_op(op::BUFFER_STORE_SHORT, buf, h, v, s, imm);
        }
        (t, x) => {
            let x = x.reg(b);
            let op = match t.size() {
                1 => op::BUFFER_STORE_BYTE,
                2 => op::BUFFER_STORE_SHORT,
                _ => op::BUFFER_STORE_DWORD,
            };
            b.store_op(op, buf, x, v, s, imm);
        }
    }
    Ok(())
}

/// Per lane `mask ? a : b` for any kind of value.
pub(super) fn select(b: &mut Builder, mask: Part, x: Value, y: Value) -> Value {
    match (x, y) {
        (Value::Mask(p), Value::Mask(q)) => {
            let wide = p.len == 2;
            let (and, andn, or) = if wide {
                (op::S_AND_B64, op::S_ANDN2_B64, op::S_OR_B64)
            } else {
                (op::S_AND_B32, op::S_ANDN2_B32, op::S_OR_B32)
            };
            let (s, t, r) = (b.mask(), b.mask(), b.mask());
            b.emit(and, &[s.into()], &[p.into(), mask.into()]);
            b.emit(andn, &[t.into()], &[q.into(), mask.into()]);
            b.emit(or, &[r.into()], &[s.into(), t.into()]);
            Value::Mask(r)
        }
        (Value::Pair(p), Value::Pair(q)) => {
            let r = b.v(2);
            for i in 0..2 {
                b.emit(op::V_CNDMASK_B32, &[r.dword(i).into()], &[q.dword(i).into(), p.dword(i).into(), mask.into()]);
            }
            Value::Pair(r)
        }
        (x, y) => {
            let (x, y) = (x.word(), y.word());
            Value::Word(b.select(mask, x, y).into())
        }
    }
}
