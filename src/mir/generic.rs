//! Generic operations and their element types.
//!
//! A generic operation is named by what it computes and on which type: `g.add.f32`. [`select`](crate::passes::select)
//! replaces it by what the target does best, or by an expansion where the target has nothing.
//!
//! What values look like: a value of a 32-bit type fills a register; one of a narrower type lies in the low bits and the
//! bits above it are *unspecified* (they may be anything in a source, and are anything in a result); one of a 64-bit type fills two
//! registers, low dword first. Packed types hold two elements, the first one in the low half (of a register, or the low
//! register of a pair), and every operation works on both. A mask is one bit per lane of the wave in scalar registers
//! (two in wave64, one in wave32). An immediate holds the element's bits (of a packed type: of both elements). A result
//! of class S takes scalar operands only and is computed once per wave; a result of class V is computed per lane, for
//! the lanes of EXEC.

/// Element type of a generic operation or virtual register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Type {
    /// Any bits, 32 per register: the type of registers that nothing more is known of, and of copies and bitwise
    /// operations.
    #[default]
    B32,
    /// IEEE half.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// Signed, two's complement.
    I8,
    /// Signed, two's complement.
    I16,
    /// Signed, two's complement.
    I32,
    /// Signed, two's complement.
    I64,
    /// Unsigned.
    U8,
    /// Unsigned.
    U16,
    /// Unsigned.
    U32,
    /// Unsigned.
    U64,
    /// Two halves.
    PkF16,
    /// Two bf16.
    PkBf16,
    /// Two signed 16-bit integers.
    PkI16,
    /// Two f32, in two registers.
    PkF32,
    /// A float of 8 bits with 3 of mantissa, as the target's matrix instructions have it. Nothing else takes it.
    Fp8,
    /// The same with 2 bits of mantissa.
    Bf8,
    /// Two floats of 4 bits in a byte, for matrix instructions alone.
    Fp4,
    /// Two signed integers of 4 bits in a byte, for matrix instructions and dot products alone.
    I4,
    /// The same, unsigned.
    U4,
    /// An IEEE single of which matrix instructions read sign, exponent and the upper 10 bits of mantissa. Nothing else takes it.
    Xf32,
}

impl Type {
    /// All of them, with their names in the text form.
    pub const NAMES: [(Type, &'static str); 23] = [
        (Type::B32, "b32"),
        (Type::F16, "f16"),
        (Type::Bf16, "bf16"),
        (Type::F32, "f32"),
        (Type::F64, "f64"),
        (Type::I8, "i8"),
        (Type::I16, "i16"),
        (Type::I32, "i32"),
        (Type::I64, "i64"),
        (Type::U8, "u8"),
        (Type::U16, "u16"),
        (Type::U32, "u32"),
        (Type::U64, "u64"),
        (Type::PkF16, "pk_f16"),
        (Type::PkBf16, "pk_bf16"),
        (Type::PkI16, "pk_i16"),
        (Type::PkF32, "pk_f32"),
        (Type::Fp8, "fp8"),
        (Type::Bf8, "bf8"),
        (Type::Fp4, "fp4"),
        (Type::I4, "i4"),
        (Type::U4, "u4"),
        (Type::Xf32, "xf32"),
    ];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
    /// By its name in the text form.
    pub fn by_name(name: &str) -> Option<Type> {
        Self::NAMES.iter().find(|(_, n)| *n == name).map(|x| x.0)
    }
    /// Bits of a value, both elements of a packed one.
    pub fn bits(self) -> u32 {
        match self {
            Type::I8 | Type::U8 | Type::Fp8 | Type::Bf8 | Type::Fp4 | Type::I4 | Type::U4 => 8,
            Type::F16 | Type::Bf16 | Type::I16 | Type::U16 => 16,
            Type::B32 | Type::F32 | Type::Xf32 | Type::I32 | Type::U32 | Type::PkF16 | Type::PkBf16 | Type::PkI16 => 32,
            Type::F64 | Type::I64 | Type::U64 | Type::PkF32 => 64,
        }
    }
    /// Elements in a value that memory holds: two in a byte of those of 4 bits.
    pub fn held(self) -> u32 {
        if matches!(self, Type::Fp4 | Type::I4 | Type::U4) { 2 } else { 1 }
    }
    /// Registers of a value.
    pub fn dwords(self) -> u8 {
        self.bits().div_ceil(32) as u8
    }
    /// Of a packed type, what it has two of.
    pub fn element(self) -> Option<Type> {
        match self {
            Type::PkF16 => Some(Type::F16),
            Type::PkBf16 => Some(Type::Bf16),
            Type::PkI16 => Some(Type::I16),
            Type::PkF32 => Some(Type::F32),
            _ => None,
        }
    }
    /// A floating-point type, packed or not.
    pub fn is_float(self) -> bool {
        matches!(self.element().unwrap_or(self), Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
    }
    /// A signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self.element().unwrap_or(self), Type::I8 | Type::I16 | Type::I32 | Type::I64)
    }
    /// The unsigned integer of the same width; other types stay.
    pub fn unsigned(self) -> Type {
        match self {
            Type::I8 => Type::U8,
            Type::I16 => Type::U16,
            Type::I32 => Type::U32,
            Type::I64 => Type::U64,
            t => t,
        }
    }
    /// A value of one type may be read as the other without a conversion: bits are anything, and signed and unsigned
    /// integers differ only in how operations take them.
    pub fn reads_as(self, other: Type) -> bool {
        self == Type::B32 || other == Type::B32 || self.unsigned() == other.unsigned()
    }
}

use super::Malformed;

/// What a generic operation computes. Operands have the operation's type unless noted. "Exact" float operations round
/// once, to nearest even; they keep denormals (of f32 where the kernel's mode does, which is always).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Gen {
    /// The operand, of any width and between classes (but not from vector to scalar). Type b32.
    Copy,
    /// Sum; integers wrap, floats exact.
    Add,
    /// Difference; integers wrap, floats exact.
    Sub,
    /// Product; integers give the low bits, floats exact.
    Mul,
    /// u32: high 32 bits of the product of 64.
    MulHi,
    /// i32, u32: `a * b + c`, low bits.
    Mad,
    /// Bitwise and, of b32 or integers.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Bitwise complement.
    Not,
    /// `a << b`; `b` is a u32 below the width of `a`.
    Shl,
    /// `a >> b`, filled with the sign where the type is signed, else with zeros; `b` is a u32 below the width.
    Shr,
    /// The smaller operand. Of floats: the other one where one is a NaN (a signalling NaN may give a quiet one instead);
    /// of zeros any.
    Min,
    /// The larger operand, as [`Gen::Min`].
    Max,
    /// u32: quotient by a constant other than 0 (second operand an immediate). `a` must be below 2^31.
    Div,
    /// u32: remainder by a constant, as [`Gen::Div`].
    Rem,
    /// Floats: `a * b + c`, rounded once. bf16 is computed in f32 and rounded once more.
    Fma,
    /// Floats: the sign bit inverted, NaNs too. Integers: `0 - a`.
    Neg,
    /// Floats: the sign bit cleared, of NaNs too.
    Abs,
    /// Floats: rounded to an integer towards minus infinity.
    Floor,
    /// Floats: rounded to an integer towards plus infinity.
    Ceil,
    /// Floats: rounded to an integer towards zero.
    Trunc,
    /// Floats: rounded to the nearest integer, ties to even.
    Round,
    /// Floats: the hardware's `1 / a`; within 1 ulp (f16, f32), 2^-27 relative (f64, where the manuals promise less
    /// than a recipe needs: two Newton steps make it exact).
    Rcp,
    /// Floats: the hardware's `1 / sqrt(a)`, as [`Gen::Rcp`].
    Rsq,
    /// Floats: the hardware's square root, as [`Gen::Rcp`].
    Sqrt,
    /// f16, f32: the hardware's `2^a`, within 1 ulp. f32 denormal operands and results may be flushed.
    Exp2,
    /// f16, f32: the hardware's base-2 logarithm, within 1 ulp away from 1. f32 denormal operands may be taken as 0.
    Log2,
    /// f16, f32: the hardware's `sin(2 pi a)`, absolute error below 2^-20 for |a| up to 256.
    Sin,
    /// f16, f32: the hardware's `cos(2 pi a)`, as [`Gen::Sin`].
    Cos,
    /// Floats: `a * 2^b`, exact; `b` is an i32 (for f16 taken from its low 16 bits).
    Ldexp,
    /// Mask of the lanes where the operands are equal. NaNs are not.
    CmpEq,
    /// Mask of the lanes where they differ. NaNs do.
    CmpNe,
    /// Mask of the lanes with `a < b`. NaNs are not.
    CmpLt,
    /// Mask of the lanes with `a <= b`. NaNs are not.
    CmpLe,
    /// Mask of the lanes with `a > b`. NaNs are not.
    CmpGt,
    /// Mask of the lanes with `a >= b`. NaNs are not.
    CmpGe,
    /// Floats: mask of the lanes where an operand is a NaN.
    CmpUnordered,
    /// Operands `(mask, a, b)`: per lane `a` where the mask is set, else `b`.
    Select,
    /// Converts from the type [`Generic::from`]. Float to float rounds to nearest even; to integer truncates, saturates to
    /// the range of the type, and takes NaN as 0; integer to float rounds to nearest even; integer to integer
    /// wraps or extends by the sign of `from`.
    Cvt,
    /// Packed floats: two operands of f32, each rounded to nearest even as [`Gen::Cvt`] does, the first one in the low half.
    Pack,
    /// Barrier of the workgroup: LDS accesses before it (LDS-DMA loads too) are done before any after it. Type b32.
    Barrier,
}

impl Gen {
    /// All of them, with their names in the text form.
    pub const NAMES: [(Gen, &'static str); 42] = [
        (Gen::Copy, "copy"),
        (Gen::Add, "add"),
        (Gen::Sub, "sub"),
        (Gen::Mul, "mul"),
        (Gen::MulHi, "mulhi"),
        (Gen::Mad, "mad"),
        (Gen::And, "and"),
        (Gen::Or, "or"),
        (Gen::Xor, "xor"),
        (Gen::Not, "not"),
        (Gen::Shl, "shl"),
        (Gen::Shr, "shr"),
        (Gen::Min, "min"),
        (Gen::Max, "max"),
        (Gen::Div, "div"),
        (Gen::Rem, "rem"),
        (Gen::Fma, "fma"),
        (Gen::Neg, "neg"),
        (Gen::Abs, "abs"),
        (Gen::Floor, "floor"),
        (Gen::Ceil, "ceil"),
        (Gen::Trunc, "trunc"),
        (Gen::Round, "round"),
        (Gen::Rcp, "rcp"),
        (Gen::Rsq, "rsq"),
        (Gen::Sqrt, "sqrt"),
        (Gen::Exp2, "exp2"),
        (Gen::Log2, "log2"),
        (Gen::Sin, "sin"),
        (Gen::Cos, "cos"),
        (Gen::Ldexp, "ldexp"),
        (Gen::CmpEq, "cmp_eq"),
        (Gen::CmpNe, "cmp_ne"),
        (Gen::CmpLt, "cmp_lt"),
        (Gen::CmpLe, "cmp_le"),
        (Gen::CmpGt, "cmp_gt"),
        (Gen::CmpGe, "cmp_ge"),
        (Gen::CmpUnordered, "cmp_unordered"),
        (Gen::Select, "select"),
        (Gen::Cvt, "cvt"),
        (Gen::Pack, "pack"),
        (Gen::Barrier, "barrier"),
    ];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
    /// The operation on a type.
    pub fn of(self, ty: Type) -> Generic {
        Generic { op: self, ty, from: ty }
    }
    /// The result is a mask.
    pub fn compares(self) -> bool {
        matches!(self, Gen::CmpEq | Gen::CmpNe | Gen::CmpLt | Gen::CmpLe | Gen::CmpGt | Gen::CmpGe | Gen::CmpUnordered)
    }
    /// Number of sources.
    pub fn sources(self) -> usize {
        match self {
            Gen::Barrier => 0,
            Gen::Mad | Gen::Fma | Gen::Select => 3,
            Gen::Copy | Gen::Not | Gen::Neg | Gen::Abs | Gen::Floor | Gen::Ceil | Gen::Trunc | Gen::Round => 1,
            Gen::Rcp | Gen::Rsq | Gen::Sqrt | Gen::Exp2 | Gen::Log2 | Gen::Sin | Gen::Cos | Gen::Cvt => 1,
            _ => 2,
        }
    }
    /// True when the operation is defined on a type.
    pub fn takes(self, ty: Type) -> bool {
        if matches!(ty, Type::Fp8 | Type::Bf8 | Type::Fp4 | Type::I4 | Type::U4 | Type::Xf32) {
            return false;
        }
        let integer = !ty.is_float() && ty != Type::B32;
        let transcendental = matches!(ty, Type::F16 | Type::F32 | Type::Bf16);
        match self {
            Gen::Copy | Gen::Barrier => ty == Type::B32,
            Gen::Add | Gen::Sub | Gen::Mul | Gen::Min | Gen::Max => ty != Type::B32,
            Gen::MulHi | Gen::Div | Gen::Rem => ty == Type::U32,
            Gen::Mad => matches!(ty, Type::I32 | Type::U32),
            Gen::And | Gen::Or | Gen::Xor | Gen::Not => !ty.is_float(),
            Gen::Shl | Gen::Shr => !ty.is_float() && ty.element().is_none() && ty != Type::B32,
            Gen::Neg => ty != Type::B32,
            Gen::Fma | Gen::Abs => ty.is_float(),
            Gen::Floor | Gen::Ceil | Gen::Trunc | Gen::Round | Gen::Rcp | Gen::Rsq | Gen::Sqrt | Gen::Ldexp => {
                ty.is_float() && ty.element().is_none()
            }
            Gen::Exp2 | Gen::Log2 | Gen::Sin | Gen::Cos => transcendental,
            Gen::CmpUnordered => ty.is_float() && ty.element().is_none(),
            Gen::CmpEq | Gen::CmpNe | Gen::CmpLt | Gen::CmpLe | Gen::CmpGt | Gen::CmpGe | Gen::Cvt => {
                (integer || ty.is_float()) && ty.element().is_none()
            }
            Gen::Pack => matches!(ty, Type::PkF16 | Type::PkBf16),
            Gen::Select => true,
        }
    }
}

/// A generic operation on a type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Generic {
    /// What it computes.
    pub op: Gen,
    /// Type of the result, or of a comparison's operands.
    pub ty: Type,
    /// Type of a conversion's operand; otherwise `ty`.
    pub from: Type,
}

impl Generic {
    /// A conversion.
    pub fn convert(from: Type, to: Type) -> Generic {
        Generic { op: Gen::Cvt, ty: to, from }
    }
    /// Type of source `i`; `None` for a mask.
    pub fn source_type(self, i: usize) -> Option<Type> {
        match (self.op, i) {
            (Gen::Shl | Gen::Shr, 1) => Some(Type::U32),
            (Gen::Ldexp, 1) => Some(Type::I32),
            (Gen::Select, 0) => None,
            (Gen::Cvt, _) => Some(self.from),
            (Gen::Pack, _) => Some(Type::F32),
            _ => Some(self.ty),
        }
    }
    /// By its name in the text form, without the `g.`.
    pub fn by_name(name: &str) -> Result<Generic, Malformed> {
        let mut words = name.split('.');
        let op = words.next().unwrap_or_default();
        let op =
            Gen::NAMES.iter().find(|(_, n)| *n == op).ok_or_else(|| Malformed::unknown("generic operation", op))?.0;
        let mut ty = || match words.next() {
            Some(t) => Type::by_name(t).map(Some).ok_or_else(|| Malformed::unknown("type", t)),
            None => Ok(None),
        };
        let (first, second) = (ty()?, ty()?);
        let result = match (op, first, second) {
            (Gen::Copy | Gen::Barrier, None, None) => op.of(Type::B32),
            (Gen::Cvt, Some(to), Some(from)) => Generic::convert(from, to),
            (Gen::Cvt, ..) => return Err(Malformed::Conversion),
            (_, Some(t), None) => op.of(t),
            _ => return Err(Malformed::Untyped(op.name())),
        };
        if !op.takes(result.ty) || !op.takes(result.from) {
            return Err(Malformed::Undefined { op: op.name(), ty: result.ty.name() });
        }
        Ok(result)
    }
}

impl std::fmt::Display for Generic {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.op.name())?;
        match self.op {
            Gen::Copy | Gen::Barrier => Ok(()),
            Gen::Cvt => write!(out, ".{}.{}", self.ty.name(), self.from.name()),
            _ => write!(out, ".{}", self.ty.name()),
        }
    }
}
