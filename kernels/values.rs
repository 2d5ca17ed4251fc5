//! Values of one element in registers, and how they are loaded and stored by element type.
//!
//! What memory holds is one thing ([`stored`]), what kernels compute in another ([`computed`]): floats of 16 bits are
//! computed in f32, integers of 8 and 16 bits in 32 bits, booleans are wavefront masks, doubles and 64-bit integers are
//! register pairs.

use super::address::Offset;
use super::small;
use crate::graph::view::View;
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;

/// One element of a tensor, per lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// f32, or an integer of up to 32 bits; may be a constant.
    Word(Opnd),
    /// A 64-bit integer or a double.
    Pair(Part),
    /// A boolean: a wavefront mask.
    Mask(Part),
}

/// How a type is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Computed as f32.
    Float,
    /// Computed as f64.
    Double,
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

/// How kernels hold elements of a type.
pub(super) fn kind(t: DType) -> Kind {
    match t {
        DType::F32 | DType::F16 | DType::BF16 => Kind::Float,
        DType::F64 => Kind::Double,
        DType::I8 | DType::I16 | DType::I32 => Kind::Int { signed: true },
        DType::U8 | DType::U16 | DType::U32 => Kind::Int { signed: false },
        DType::I64 | DType::Str => Kind::Long { signed: true },
        DType::U64 => Kind::Long { signed: false },
        DType::Bool => Kind::Bool,
        DType::I4 | DType::I2 => Kind::Int { signed: true },
        DType::U4 | DType::U2 => Kind::Int { signed: false },
        // Floats of at most 8 bits.
        _ => Kind::Float,
    }
}

/// The type of an element in memory.
pub(super) fn stored(t: DType) -> Type {
    match t {
        DType::F32 => Type::F32,
        DType::F64 => Type::F64,
        DType::F16 => Type::F16,
        DType::BF16 => Type::Bf16,
        DType::I8 | DType::I4 | DType::I2 => Type::I8,
        DType::I16 => Type::I16,
        DType::I32 => Type::I32,
        DType::I64 | DType::Str => Type::I64,
        DType::U8 | DType::Bool | DType::U4 | DType::U2 => Type::U8,
        // Codes, which `small` converts.
        DType::F8E4M3 | DType::F8E4M3Z | DType::F8E5M2 | DType::F8E5M2Z | DType::F8E8M0 | DType::F4E2M1 => Type::U8,
        DType::U16 => Type::U16,
        DType::U32 => Type::U32,
        DType::U64 => Type::U64,
    }
}

/// The type that kernels compute elements in.
pub(super) fn computed(t: DType) -> Type {
    match kind(t) {
        Kind::Float => Type::F32,
        Kind::Double => Type::F64,
        Kind::Int { signed: true } => Type::I32,
        Kind::Int { signed: false } => Type::U32,
        Kind::Long { signed: true } => Type::I64,
        Kind::Long { signed: false } => Type::U64,
        Kind::Bool => Type::B32,
    }
}

impl Value {
    /// An element of a type in registers.
    pub fn of(t: DType, p: Part) -> Value {
        match kind(t) {
            Kind::Long { .. } | Kind::Double => Value::Pair(p),
            _ => Value::Word(p.into()),
        }
    }
    /// The register or pair of a value, copying a constant into one.
    pub fn whole(self, b: &mut Builder) -> Part {
        match self {
            Value::Pair(p) => p,
            x => x.reg(b),
        }
    }
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
pub(super) fn load(b: &mut Builder, t: DType, buf: Buffer, at: Offset) -> Value {
    let (v, s, imm) = at.operands(b);
    let word = |b: &mut Builder, op| Value::Word(b.load_op(op, buf, v, s, imm).into());
    match t {
        DType::F32 | DType::I32 | DType::U32 => word(b, op::BUFFER_LOAD_DWORD),
        DType::I8 | DType::I4 | DType::I2 => word(b, op::BUFFER_LOAD_SBYTE),
        DType::U8 | DType::U4 | DType::U2 => word(b, op::BUFFER_LOAD_UBYTE),
        DType::I16 => word(b, op::BUFFER_LOAD_SSHORT),
        DType::U16 => word(b, op::BUFFER_LOAD_USHORT),
        DType::F16 | DType::BF16 => {
            let h = b.load_op(op::BUFFER_LOAD_USHORT, buf, v, s, imm);
            Value::Word(b.convert(stored(t), Type::F32, h).into())
        }
        DType::Bool => {
            let x = b.load_op(op::BUFFER_LOAD_UBYTE, buf, v, s, imm);
            Value::Mask(b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), x.into()]))
        }
        DType::F8E4M3 | DType::F8E4M3Z | DType::F8E5M2 | DType::F8E5M2Z | DType::F8E8M0 | DType::F4E2M1 => {
            let code = b.load_op(op::BUFFER_LOAD_UBYTE, buf, v, s, imm);
            Value::Word(small::decode(b, t, code).into())
        }
        DType::I64 | DType::U64 | DType::F64 | DType::Str => Value::Pair(b.load(buf, 2, v, s, imm)),
    }
}

/// Stores an element at an offset.
pub(super) fn store(b: &mut Builder, t: DType, buf: Buffer, at: Offset, value: Value) {
    let (v, s, imm) = at.operands(b);
    match (t, value) {
        (DType::Bool, Value::Mask(m)) => {
            let one = b.to_vector(1u32);
            let x = b.select(m, one, 0u32);
            b.store_op(op::BUFFER_STORE_BYTE, buf, x, v, s, imm);
        }
        (DType::I64 | DType::U64 | DType::F64 | DType::Str, Value::Pair(p)) => b.store(buf, p, v, s, imm),
        (DType::F16 | DType::BF16, x) => {
            let x = x.reg(b);
            let h = b.convert(Type::F32, stored(t), x);
            b.store_op(op::BUFFER_STORE_SHORT, buf, h, v, s, imm);
        }
        (t, x) => {
            let mut x = x.reg(b);
            if small::is_small(t) {
                x = small::encode(b, t, x);
            }
            let op = match t.size() {
                1 => op::BUFFER_STORE_BYTE,
                2 => op::BUFFER_STORE_SHORT,
                _ => op::BUFFER_STORE_DWORD,
            };
            b.store_op(op, buf, x, v, s, imm);
        }
    }
}

/// Elements that one access may take together: four of 32 bits, or four floats of 16 bits (which then lie at multiples of
/// four bytes). Others go one by one.
pub(super) fn comes_in_fours(t: DType) -> bool {
    matches!(t, DType::F32 | DType::I32 | DType::U32 | DType::F16 | DType::BF16)
}

/// How many elements one access of a product's end takes together: those that come in fours, and two of 64 bits.
pub(super) fn come_together(t: DType) -> u32 {
    match t {
        DType::F64 | DType::I64 | DType::U64 => 2,
        t if comes_in_fours(t) => 4,
        _ => 1,
    }
}

/// Every element of a view whose innermost coordinate is a multiple of four lies at a multiple of four bytes.
pub(super) fn is_word_aligned(t: DType, view: &View) -> bool {
    let outer = &view.strides[..view.rank().saturating_sub(1)];
    let words = |elements: i64| (elements * t.size() as i64) % 4 == 0;
    words(view.offset) && outer.iter().all(|s| words(*s))
}

/// Loads neighbours, which fill 1, 2 or 4 dwords.
pub(super) fn load_some(b: &mut Builder, t: DType, buf: Buffer, at: Offset, count: u32) -> Vec<Value> {
    let (v, s, imm) = at.operands(b);
    let raw = b.load(buf, (count as usize * t.size() / 4) as u8, v, s, imm);
    if t.size() == 8 {
        return (0..count as u8).map(|e| Value::Pair(raw.slice(2 * e, 2))).collect();
    }
    (0..count).map(|e| Value::Word(widened(b, stored(t), raw, e).into())).collect()
}

/// Stores neighbours, which fill 1, 2 or 4 dwords.
pub(super) fn store_some(b: &mut Builder, t: DType, buf: Buffer, at: Offset, values: &[Value]) {
    let (v, s, imm) = at.operands(b);
    if t.size() == 8 {
        let data = b.v((2 * values.len()) as u8);
        for (i, x) in values.iter().enumerate() {
            let x = x.whole(b);
            b.copy_into(data.slice(2 * i as u8, 2), x);
        }
        return b.store(buf, data, v, s, imm);
    }
    if t.size() == 4 {
        let data = match *values {
            // As they lie, where they are one tuple.
            [Value::Word(Opnd::V(p)), ..] if is_tuple(b, values) => Part { len: values.len() as u8, ..p },
            _ => tuple(b, values),
        };
        return b.store(buf, data, v, s, imm);
    }
    let narrow: Vec<Part> = values
        .iter()
        .map(|x| {
            let x = x.reg(b);
            b.convert(Type::F32, stored(t), x)
        })
        .collect();
    let data = b.v((values.len() / 2) as u8);
    for (i, two) in narrow.chunks(2).enumerate() {
        let packed = pack_halves(b, two[0], two[1]);
        b.copy_into(data.dword(i as u8), packed);
    }
    b.store(buf, data, v, s, imm);
}

/// The values are neighbouring dwords of one register, in order.
fn is_tuple(b: &Builder, values: &[Value]) -> bool {
    let Some(Value::Word(Opnd::V(first))) = values.first() else { return false };
    let next = |i: usize| Value::Word(Part { first: first.first + i as u8, ..*first }.into());
    b.is_vector((*first).into()) && values.iter().enumerate().all(|(i, x)| *x == next(i))
}

/// Puts words into one tuple, for a wide store.
fn tuple(b: &mut Builder, words: &[Value]) -> Part {
    let data = b.v(words.len() as u8);
    for (i, x) in words.iter().enumerate() {
        b.copy_into(data.dword(i as u8), x.word());
    }
    data
}

/// The low halves of two words in one.
pub(super) fn pack_halves(b: &mut Builder, low: Part, high: Part) -> Part {
    b.op(op::V_PERM_B32, &[high.into(), low.into(), 0x0504_0100u32.into()])
}

/// Element `e` of raw memory in the 32 bits that it is computed in; a word as it is.
pub(super) fn widened(b: &mut Builder, from: Type, raw: Part, e: u32) -> Part {
    let (bits, per_word) = (from.bits(), 32 / from.bits().min(32));
    let word = raw.dword((e / per_word) as u8);
    let shift = e % per_word * bits;
    match from {
        Type::I8 | Type::I16 => b.op(op::V_BFE_I32, &[word.into(), shift.into(), bits.into()]),
        Type::U8 | Type::U16 => b.op(op::V_BFE_U32, &[word.into(), shift.into(), bits.into()]),
        Type::Bf16 if shift > 0 => b.generic(Gen::And.of(Type::B32), &[0xffff_0000u32.into(), word.into()]),
        Type::F16 | Type::Bf16 => {
            let low = if shift > 0 { b.v(1) } else { word };
            if shift > 0 {
                b.emit(Gen::Shr.of(Type::U32), &[low.into()], &[word.into(), shift.into()]);
            }
            b.convert(from, Type::F32, low)
        }
        _ => word,
    }
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
