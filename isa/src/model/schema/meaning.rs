//! What operations do.

words! {
    /// How two numbers compare. Those that begin with N hold for unordered operands too.
    Comparison {
        /// Never.
        False = "f",
        /// Less.
        Lt = "lt",
        /// Equal.
        Eq = "eq",
        /// Less or equal.
        Le = "le",
        /// Greater.
        Gt = "gt",
        /// Unequal (integers).
        Ne = "ne",
        /// Less or greater.
        Lg = "lg",
        /// Greater or equal.
        Ge = "ge",
        /// Neither is a NaN.
        Ordered = "o",
        /// One is a NaN.
        Unordered = "u",
        /// Not `Ge`.
        Nge = "nge",
        /// Not `Lg`.
        Nlg = "nlg",
        /// Not `Gt`.
        Ngt = "ngt",
        /// Not `Le`.
        Nle = "nle",
        /// Not `Eq`.
        Neq = "neq",
        /// Not `Lt`.
        Nlt = "nlt",
        /// Always (integers).
        True = "t",
        /// Always (floats).
        Tru = "tru",
    }
}

words! {
    /// What compares work on.
    Number {
        /// IEEE half.
        F16 = "f16",
        /// IEEE single.
        F32 = "f32",
        /// IEEE double.
        F64 = "f64",
        /// Signed.
        I16 = "i16",
        /// Unsigned.
        U16 = "u16",
        /// Signed.
        I32 = "i32",
        /// Unsigned.
        U32 = "u32",
        /// Signed.
        I64 = "i64",
        /// Unsigned.
        U64 = "u64",
    }
}

words! {
    /// Types of matrix elements and of scaled conversions.
    Elem {
        /// IEEE single.
        F32 = "f32",
        /// Single with 10 bits of mantissa.
        Xf32 = "xf32",
        /// IEEE double.
        F64 = "f64",
        /// IEEE half.
        F16 = "f16",
        /// bf16.
        Bf16 = "bf16",
        /// 8-bit float, 4 exponent bits.
        Fp8 = "fp8",
        /// 8-bit float, 5 exponent bits.
        Bf8 = "bf8",
        /// 6-bit float, 2 exponent bits.
        Fp6 = "fp6",
        /// 6-bit float, 3 exponent bits.
        Bf6 = "bf6",
        /// 4-bit float, 2 exponent bits.
        Fp4 = "fp4",
        /// Signed byte.
        I8 = "i8",
        /// Unsigned byte.
        U8 = "u8",
        /// Signed nibble.
        I4 = "i4",
        /// Unsigned nibble.
        U4 = "u4",
        /// 32-bit integer.
        I32 = "i32",
    }
}

words! {
    /// A read-modify-write.
    Atomic {
        /// The new value replaces the old.
        Swap = "swap",
        /// The same where the old one equals the comparand.
        CmpSwap = "cmpswap",
        /// Sum.
        Add = "add",
        /// Old less new.
        Sub = "sub",
        /// New less old.
        Rsub = "rsub",
        /// Signed minimum.
        SMin = "smin",
        /// Unsigned minimum.
        UMin = "umin",
        /// Signed maximum.
        SMax = "smax",
        /// Unsigned maximum.
        UMax = "umax",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Counts up to a limit, then from 0.
        Inc = "inc",
        /// Counts down to 0, then from a limit.
        Dec = "dec",
        /// Difference, at least 0.
        CSub = "csub",
        /// Difference where it is not negative.
        CondSub = "condsub",
        /// Sum of floats.
        FAdd = "fadd",
        /// Minimum of floats.
        FMin = "fmin",
        /// Maximum of floats.
        FMax = "fmax",
        /// `CmpSwap` of floats.
        FCmpSwap = "fcmpswap",
        /// Two sums of halves.
        PkAddF16 = "pkaddf16",
        /// Two sums of bf16.
        PkAddBf16 = "pkaddbf16",
        /// Bits of a mask are replaced.
        MskOr = "mskor",
        /// Ring buffer index.
        Wrap = "wrap",
    }
}

#[allow(dead_code)]
impl Atomic {
    /// Takes two data operands.
    pub fn two_operands(self) -> bool {
        matches!(self, Atomic::CmpSwap | Atomic::FCmpSwap | Atomic::MskOr | Atomic::Wrap)
    }
}

/// What a memory instruction moves where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// Memory to registers.
    Load,
    /// Registers to memory.
    Store,
    /// Memory to LDS.
    LoadLds,
    /// LDS to memory.
    StoreLds,
    /// Registers that M0 chooses, from memory.
    LoadBlock,
    /// The same to memory.
    StoreBlock,
    /// Memory to registers, transposed as a matrix of elements of so many bits.
    LoadTransposed(u8),
    /// Two elements swap with memory.
    Exchange,
    /// Read-modify-write with registers.
    Atomic(Atomic),
    /// Read-modify-write of a cell of LDS with another one.
    Combine(Atomic),
}

/// Where the memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Device memory by a scalar address.
    Scalar,
    /// Device memory by a scalar buffer resource.
    ScalarBuffer,
    /// Device memory by lane address.
    Global,
    /// The same behind a buffer resource.
    Buffer,
    /// The same with a format in the instruction.
    TypedBuffer,
    /// Device memory, LDS or scratch, as the address says.
    Flat,
    /// Scratch.
    Scratch,
    /// LDS.
    Lds,
}

/// Part of a 32-bit register that a 16-bit or smaller value takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// Bits 15:0; the others stay as they are.
    Low,
    /// Bits 31:16; the others stay as they are.
    High,
}

/// How lanes come to their addresses beyond what the memory's kind says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// Nothing more.
    Plain,
    /// M0 (LDS) or a scalar, plus 4 bytes for each lane before.
    ThreadId,
    /// Two elements, at two offsets that count units of so many bytes.
    Pair(u16),
    /// A scalar offset register counts 64 bytes.
    Units64,
}

/// What a memory instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// What moves where.
    pub transfer: Transfer,
    /// Where the memory is.
    pub space: Space,
    /// Bytes of a lane's element.
    pub bytes: u8,
    /// A byte or word is sign-extended.
    pub signed: bool,
    /// Part of the register.
    pub part: Part,
    /// Form of the address.
    pub address: Address,
    /// Components of a typed access, 0 of others.
    pub components: u8,
    /// An LDS atomic returns the old value.
    pub returns: bool,
    /// The comparand stands before the new value.
    pub swapped: bool,
    /// Emulated.
    pub modelled: bool,
}

#[allow(dead_code)]
impl Memory {
    /// Bytes that a lane moves.
    pub fn total(&self) -> u8 {
        match self.address {
            Address::Pair(_) => 2 * self.bytes,
            _ => self.bytes,
        }
    }
    /// Memory is written.
    pub fn writes(&self) -> bool {
        use Transfer::*;
        match self.transfer {
            Load | LoadLds | LoadBlock | LoadTransposed(_) => false,
            Store | StoreLds | StoreBlock | Exchange | Atomic(_) | Combine(_) => true,
        }
    }
}

/// A matrix product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product {
    /// MFMA and SMFMAC; else WMMA and SWMMAC.
    pub mfma: bool,
    /// Rows of A and D.
    pub m: u8,
    /// Columns of B and D.
    pub n: u8,
    /// Columns of A, rows of B.
    pub k: u8,
    /// Independent products.
    pub blocks: u8,
    /// Type of C and D.
    pub d: Elem,
    /// Type of A.
    pub a: Elem,
    /// Type of B.
    pub b: Elem,
    /// A holds two of every four k.
    pub sparse: bool,
    /// CBSZ and BLGP name the types of A and B (f8f6f4).
    pub formats: bool,
    /// `neg` says which of A and B are signed (iu8, iu4).
    pub signs: bool,
}

/// A conversion between a wide and a small float format with a scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scaled {
    /// Source format.
    pub from: Elem,
    /// Destination format.
    pub to: Elem,
    /// Numbers converted.
    pub count: u8,
    /// They come in two operands.
    pub two: bool,
    /// Rounds stochastically, with a seed operand.
    pub stochastic: bool,
}

#[allow(dead_code)]
/// Effects of an operation on registers that its operands do not tell: bits of what `Op` answers.
pub mod effect {
    /// Writes a part of its destination: one lane, or half a register.
    pub const PARTIAL: u8 = 1;
    /// The low dword of a 64-bit result comes from low dwords only.
    pub const SPLIT: u8 = 2;
    /// Leaves the upper half alone on targets where 16-bit results else clear it.
    pub const KEEP_HALF: u8 = 4;
    /// M0 is added to the number of a register.
    pub const INDEXED: u8 = 8;
    /// Bitwise logic of scalars: what one source leaves undefined another can take out.
    pub const BITWISE: u8 = 16;
    /// The same value twice gives a constant.
    pub const CANCELS: u8 = 32;

    /// Words of the tables.
    pub const NAMES: &[(&str, u8)] = &[
        ("partial", PARTIAL),
        ("split", SPLIT),
        ("keephalf", KEEP_HALF),
        ("indexed", INDEXED),
        ("bitwise", BITWISE),
        ("cancels", CANCELS),
    ];
}
