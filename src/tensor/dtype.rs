//! Element types of tensors, as ONNX numbers and names them.

use std::fmt;

/// The type of one tensor element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// IEEE half precision.
    F16,
    /// The upper half of a single-precision float.
    BF16,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// One byte, 0 or 1.
    Bool,
    /// 8-bit float without infinity (ONNX's `FLOAT8E4M3FN`).
    F8E4M3,
    /// 8-bit float without infinity and minus zero (`FLOAT8E4M3FNUZ`).
    F8E4M3Z,
    /// 8-bit float of IEEE's kind (`FLOAT8E5M2`).
    F8E5M2,
    /// 8-bit float without infinity and minus zero (`FLOAT8E5M2FNUZ`).
    F8E5M2Z,
    /// 8-bit power of two (`FLOAT8E8M0`).
    F8E8M0,
    /// 4-bit float; one in a byte.
    F4E2M1,
    /// Signed 4-bit integer; one in a byte.
    I4,
    /// Unsigned 4-bit integer; one in a byte.
    U4,
    /// Signed 2-bit integer; one in a byte.
    I2,
    /// Unsigned 2-bit integer; one in a byte.
    U2,
    /// Text; 64 bits that stand for it (see [`Words`](super::Words)).
    Str,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 24] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
        DType::F8E4M3,
        DType::F8E4M3Z,
        DType::F8E5M2,
        DType::F8E5M2Z,
        DType::F8E8M0,
        DType::F4E2M1,
        DType::I4,
        DType::U4,
        DType::I2,
        DType::U2,
        DType::Str,
    ];

    /// Bytes of one element in memory. Types of 4 and 2 bits take a byte each, outside of files.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 | DType::Str => 8,
            _ => 1,
        }
    }

    /// Bits of one element in files.
    pub const fn bits(self) -> usize {
        match self {
            DType::I4 | DType::U4 | DType::F4E2M1 => 4,
            DType::I2 | DType::U2 => 2,
            _ => self.size() * 8,
        }
    }

    /// True for the floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16) || self.is_small_float()
    }

    /// True for floats of 16 bits.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// True for floats of at most 8 bits.
    pub const fn is_small_float(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E4M3Z | DType::F8E5M2 | DType::F8E5M2Z | DType::F8E8M0 | DType::F4E2M1)
    }

    /// True for the integer types; `Bool` and `Str` are not among them.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool | DType::Str)
    }

    /// True for integers that can be negative.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2)
    }

    /// The short name used in input specs and dumps, such as `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E4M3Z => "f8e4m3z",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E5M2Z => "f8e5m2z",
            DType::F8E8M0 => "f8e8m0",
            DType::F4E2M1 => "f4e2m1",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::I2 => "i2",
            DType::U2 => "u2",
            DType::Str => "string",
        }
    }

    /// The type with this short name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|t| t.name() == name)
    }

    /// The type that ONNX's `TensorProto.DataType` numbers `code`; `None` for complex types.
    pub const fn from_onnx(code: i32) -> Option<DType> {
        Some(match code {
            1 => DType::F32,
            2 => DType::U8,
            3 => DType::I8,
            4 => DType::U16,
            5 => DType::I16,
            6 => DType::I32,
            7 => DType::I64,
            8 => DType::Str,
            9 => DType::Bool,
            10 => DType::F16,
            11 => DType::F64,
            12 => DType::U32,
            13 => DType::U64,
            16 => DType::BF16,
            17 => DType::F8E4M3,
            18 => DType::F8E4M3Z,
            19 => DType::F8E5M2,
            20 => DType::F8E5M2Z,
            21 => DType::U4,
            22 => DType::I4,
            23 => DType::F4E2M1,
            24 => DType::F8E8M0,
            25 => DType::U2,
            26 => DType::I2,
            _ => return None,
        })
    }

    /// ONNX's number for this type.
    pub const fn to_onnx(self) -> i32 {
        match self {
            DType::F32 => 1,
            DType::U8 => 2,
            DType::I8 => 3,
            DType::U16 => 4,
            DType::I16 => 5,
            DType::I32 => 6,
            DType::I64 => 7,
            DType::Str => 8,
            DType::Bool => 9,
            DType::F16 => 10,
            DType::F64 => 11,
            DType::U32 => 12,
            DType::U64 => 13,
            DType::BF16 => 16,
            DType::F8E4M3 => 17,
            DType::F8E4M3Z => 18,
            DType::F8E5M2 => 19,
            DType::F8E5M2Z => 20,
            DType::U4 => 21,
            DType::I4 => 22,
            DType::F4E2M1 => 23,
            DType::F8E8M0 => 24,
            DType::U2 => 25,
            DType::I2 => 26,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
