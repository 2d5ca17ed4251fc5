//! Values of one element in registers, and how they are loaded and stored by element type.
//!
//! What memory holds is one thing ([`stored`]), what kernels compute in another ([`computed`]): floats of 16 bits are
//! computed in f32, integers of 8 and 16 bits in 32 bits, booleans are wavefront masks, doubles and 64-bit integers are
//! register pairs.

use super::address::Offset;
use super::small;
use crate::graph::view::View;
use crate::mir::{Buffer, Builder, Gen, MInst, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::{ModName, Mods, Op, Target, op};

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

/// The type whose elements move as those of another do, without being converted.
pub(super) fn bits(t: DType) -> DType {
    match (kind(t), t.size()) {
        (Kind::Float | Kind::Bool, 1) => DType::U8,
        (Kind::Float, 2) => DType::U16,
        _ => t,
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
            Value::Word(widened(b, stored(t), h, 0).into())
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
            let h = narrowed(b, t, x);
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

/// How many elements one access of a product's end takes together: those that come in fours, four bytes, and two of 64 bits.
pub(super) fn come_together(t: DType) -> u32 {
    match t {
        DType::F64 | DType::I64 | DType::U64 => 2,
        DType::I8 | DType::U8 => 4,
        t if comes_in_fours(t) => 4,
        _ => 1,
    }
}

/// Every element of a view whose innermost coordinate is a multiple of four lies at a multiple of four bytes.
pub(super) fn is_word_aligned(t: DType, view: &View) -> bool {
    is_aligned(t, view, 4)
}

/// Every element at which a run of elements of so many bytes begins lies at a multiple of them, of four bytes where they are more.
pub(super) fn is_aligned(t: DType, view: &View, bytes: usize) -> bool {
    let outer = &view.strides[..view.rank().saturating_sub(1)];
    let fits = |elements: i64| (elements * t.size() as i64) % bytes.min(4) as i64 == 0;
    fits(view.offset) && outer.iter().all(|s| fits(*s))
}

/// Bytes of the widest access.
const WIDEST: usize = 16;

/// Loads neighbours, a power of two of them: at most [`WIDEST`] bytes at once, which lie at multiples of four bytes, or of their
/// own number where that is less.
pub(super) fn load_some(b: &mut Builder, t: DType, buf: Buffer, at: Offset, count: u32) -> Vec<Value> {
    if count == 1 {
        return vec![load(b, t, buf, at)];
    }
    let raw = load_raw(b, t, buf, at, count);
    elements(b, t, &raw, count)
}

/// Neighbours, several of them, as they lie in memory: what each load gives.
pub(super) fn load_raw(b: &mut Builder, t: DType, buf: Buffer, at: Offset, count: u32) -> Vec<Part> {
    let (v, s, imm) = at.operands(b);
    let each = (count as usize).min(WIDEST / t.size());
    let load = |first: usize| {
        let imm = imm + (first * t.size()) as u32;
        match each * t.size() {
            2 => b.load_op(op::BUFFER_LOAD_USHORT, buf, v, s, imm),
            bytes => b.load(buf, (bytes / 4) as u8, v, s, imm),
        }
    };
    (0..count as usize).step_by(each).map(load).collect()
}

/// The elements of what [`load_raw`] gives.
pub(super) fn elements(b: &mut Builder, t: DType, raw: &[Part], count: u32) -> Vec<Value> {
    let each = count / raw.len() as u32;
    raw.iter().flat_map(|raw| (0..each).map(|e| (*raw, e))).map(|(raw, e)| element(b, t, raw, e)).collect()
}

/// Element `e` of raw memory.
pub(super) fn element(b: &mut Builder, t: DType, raw: Part, e: u32) -> Value {
    match kind(t) {
        _ if t.size() == 8 => Value::Pair(raw.slice(2 * e as u8, 2)),
        Kind::Bool => {
            let x = widened(b, stored(t), raw, e);
            Value::Mask(b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), x.into()]))
        }
        _ => {
            let x = widened(b, stored(t), raw, e);
            Value::Word(if small::is_small(t) { small::decode(b, t, x) } else { x }.into())
        }
    }
}

/// Stores neighbours, as [`load_some`] loads them.
pub(super) fn store_some(b: &mut Builder, t: DType, buf: Buffer, at: Offset, values: &[Value]) {
    if let [one] = values {
        return store(b, t, buf, at, *one);
    }
    let (v, s, imm) = at.operands(b);
    for (i, values) in values.chunks(WIDEST / t.size()).enumerate() {
        let imm = imm + (i * WIDEST) as u32;
        let data = together(b, t, values);
        match values.len() * t.size() {
            2 => b.store_op(op::BUFFER_STORE_SHORT, buf, data, v, s, imm),
            _ => b.store(buf, data, v, s, imm),
        }
    }
}

/// Neighbours as memory has them, in as many dwords as they need.
pub(super) fn together(b: &mut Builder, t: DType, values: &[Value]) -> Part {
    match t.size() {
        8 => {
            let data = b.v((2 * values.len()) as u8);
            for (i, x) in values.iter().enumerate() {
                let x = x.whole(b);
                b.copy_into(data.slice(2 * i as u8, 2), x);
            }
            data
        }
        4 => match *values {
            // As they lie, where they are one tuple.
            [Value::Word(Opnd::V(p)), ..] if is_tuple(b, values) => Part { len: values.len() as u8, ..p },
            _ => tuple(b, values),
        },
        size => {
            let floats = matches!(t, DType::F16 | DType::BF16) && !values.iter().any(|x| matches!(x, Value::Mask(_)));
            let words: Vec<Part> = if floats {
                let two = |two: &[Value]| match *two {
                    [low, high] => halves(b, t, [low, high]),
                    _ => narrowed(b, t, two[0]),
                };
                values.chunks(2).map(two).collect()
            } else if let Some(words) = codes(b, t, values) {
                words
            } else {
                let mut words: Vec<Part> = values.iter().map(|x| narrowed(b, t, *x)).collect();
                if size == 1 {
                    words = words.chunks(2).map(|two| pack(b, two[0], two[1], LOW_BYTES)).collect();
                }
                if words.len() > 1 {
                    words = words.chunks(2).map(|two| pack(b, two[0], two[1], LOW_HALVES)).collect();
                }
                words
            };
            let words: Vec<Value> = words.into_iter().map(|w| Value::Word(w.into())).collect();
            tuple(b, &words)
        }
    }
}

/// Small floats as memory has them, where the target converts two at once.
fn codes(b: &mut Builder, t: DType, values: &[Value]) -> Option<Vec<Part>> {
    let floats: Vec<Part> = match values {
        [first, ..] if matches!(first, Value::Word(_)) && values.len().is_multiple_of(2) => {
            values.iter().map(|x| x.reg(b)).collect()
        }
        _ => return None,
    };
    floats.chunks(4).map(|some| small::encode_together(b, t, some)).collect()
}

/// An element of 8 or 16 bits as memory has it, in the low bits of a word.
pub(super) fn narrowed(b: &mut Builder, t: DType, x: Value) -> Part {
    match (t, x) {
        (_, Value::Mask(m)) => {
            let one = b.to_vector(1u32);
            b.select(m, one, 0u32)
        }
        (DType::F16 | DType::BF16, x) if packs(b.target(), t) => halves(b, t, [x, Value::Word(0u32.into())]),
        (DType::F16, x) if mixes(b.target()) => mixed(b, &[x]),
        (DType::F16 | DType::BF16, x) => {
            let x = x.reg(b);
            b.convert(Type::F32, stored(t), x)
        }
        (t, x) => {
            let x = x.reg(b);
            if small::is_small(t) { small::encode(b, t, x) } else { x }
        }
    }
}

/// Multiply-adds of f16 and f32 mixed are quicker than conversions between the two: CDNA and Vega 20 issue a conversion in four
/// passes, these in one (`cvt` and `valu` of `isa/latency/latency.csv`). GCN's own (`v_mad_mix_f32`) flushes denormals.
pub(super) fn mixes(target: Target) -> bool {
    let busy = |op: Op| target.op(op).map(|i| i.busy);
    busy(op::V_FMA_MIX_F32).is_some_and(|mix| busy(op::V_CVT_F32_F16).is_some_and(|convert| mix < convert))
}

/// An instruction makes two numbers of 16 bits of two floats in one pass, rounded as other conversions are.
fn packs(target: Target, t: DType) -> bool {
    let busy = |op: Op| target.op(op).map(|i| i.busy);
    let both = if t == DType::F16 { op::V_CVT_PK_F16_F32 } else { op::V_CVT_PK_BF16_F32 };
    busy(both).is_some_and(|both| busy(op::V_FMA_MIXLO_F16).is_none_or(|one| both <= one))
}

/// Clocks of a SIMD to make an element what it is computed in, and to make a result what is stored.
pub(super) fn conversions(target: Target, t: DType) -> f64 {
    let busy = |op: Op| target.op(op).map_or(1.0, |i| f64::from(i.busy.max(1)));
    let issue = busy(op::V_MOV_B32);
    match t {
        DType::F16 | DType::BF16 if packs(target, t) => 1.5 * issue,
        DType::F16 if mixes(target) => 2.5 * issue,
        DType::F16 => busy(op::V_CVT_F32_F16) + busy(op::V_CVT_F16_F32) + issue,
        // Shifted, and rounded by hand.
        DType::BF16 => 5.5 * issue,
        _ => 0.0,
    }
}

/// Operands of a mixed multiply-add that give a number as it is: times 1, and -0 added, which keeps zeros' signs. The 1 is in a
/// register: it is not documented whether an inline constant counts as f16 or as f32.
fn as_it_is(b: &mut Builder, x: Part) -> ([Opnd; 3], Mods) {
    let one = b.scalar(1.0f32.to_bits());
    ([x.into(), one.into(), 0u32.into()], Mods::new().with(ModName::Neg, 0b100))
}

/// Two floats as f16 or bf16, in the halves of a word.
pub(super) fn halves(b: &mut Builder, t: DType, two: [Value; 2]) -> Part {
    if t == DType::F16 && mixes(b.target()) && !packs(b.target(), t) {
        return mixed(b, &two);
    }
    let of = two.map(|x| Opnd::from(x.reg(b)));
    b.generic(Gen::Pack.of(if t == DType::F16 { Type::PkF16 } else { Type::PkBf16 }), &of)
}

/// One or two floats as f16, in the halves of a word.
fn mixed(b: &mut Builder, values: &[Value]) -> Part {
    let word = b.v(1);
    let first = values[0].reg(b);
    // Each writes a half of the word. Of two the first one is converted in its place.
    if values.len() > 1 {
        b.copy_into(word, first);
    } else {
        b.copy_into(word, 0u32);
    }
    for (i, (x, half)) in values.iter().zip([op::V_FMA_MIXLO_F16, op::V_FMA_MIXHI_F16]).enumerate() {
        let x = if i == 0 && values.len() > 1 { word } else { x.reg(b) };
        let (srcs, mods) = as_it_is(b, x);
        b.push(MInst { mods, ..MInst::new(half, &[word.into()], &srcs) });
    }
    word
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

/// Elements of so many bytes that fill a word, each in the low bits of one of its own, with zeros above.
pub(super) fn packed(b: &mut Builder, size: u32, all: &[Part]) -> Part {
    match (size, all) {
        (1, &[w, x, y, z]) => {
            let [low, high] = [[w, x], [y, z]].map(|[x, y]| pack(b, x, y, LOW_BYTES));
            pack_halves(b, low, high)
        }
        (2, &[low, high]) => pack_halves(b, low, high),
        _ => all[0],
    }
}

/// The low halves of two words in one.
pub(super) fn pack_halves(b: &mut Builder, low: Part, high: Part) -> Part {
    pack(b, low, high, LOW_HALVES)
}

/// Which bytes of two words [`pack`] takes: the low halves, and the low bytes, with zeros above.
const LOW_HALVES: u32 = 0x0504_0100;
const LOW_BYTES: u32 = 0x0c0c_0400;

/// Bytes of two words in one.
fn pack(b: &mut Builder, low: Part, high: Part, bytes: u32) -> Part {
    b.op(op::V_PERM_B32, &[high.into(), low.into(), bytes.into()])
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
        Type::F16 if mixes(b.target()) => {
            let (srcs, mods) = as_it_is(b, word);
            let mods = mods.with(ModName::OpSel, i32::from(shift > 0)).with(ModName::OpSelHi, 1);
            b.op_with(op::V_FMA_MIX_F32, &srcs, mods)
        }
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
