//! What the tables are made of, for both sides of `build.rs`: the generator reads these words and writes these values,
//! the crate reads the values. An enum that only one side knew could drift from the other.

/// An enum whose variants tables name with words: `of` finds the variant, `word` gives the word back, `code` is the Rust
/// path that the generator writes.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$d:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$d])* $variant),* }

        #[allow(dead_code)]
        impl $name {
            /// What a word of the tables stands for.
            pub fn of(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }
            /// The word that stands for it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word),*
                }
            }
            /// Its path in Rust.
            pub fn code(self) -> &'static str {
                match self {
                    $($name::$variant => concat!(stringify!($name), "::", stringify!($variant))),*
                }
            }
        }
    };
}

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

words! {
    /// Which lanes, registers and bits hold the elements of a matrix.
    Layout {
        /// CDNA.
        Mfma = "mfma",
        /// RDNA3: both halves of a wave hold the same A and B.
        Wmma11 = "wmma11",
        /// RDNA4.
        Wmma12 = "wmma12",
    }
}

#[allow(dead_code)]
impl Atomic {
    /// Takes two data operands.
    pub fn two_operands(self) -> bool {
        matches!(self, Atomic::CmpSwap | Atomic::FCmpSwap | Atomic::MskOr | Atomic::Wrap)
    }
}

words! {
    /// Peculiarities of a target, by name: `+word` in its part of `targets.isa` adds one, `-word` takes one away.
    Quirk {
        /// MODE has bits for IEEE and DX10_CLAMP; elsewhere both are always on.
        IeeeMode = "ieee_mode",
        /// Descriptors count SGPRs, which are allocated per wave.
        CountedSgprs = "counted_sgprs",
        /// VCC, FLAT_SCRATCH and XNACK_MASK always count among them.
        ReservedSgprs = "reserved_sgprs",
        /// FLAT_SCRATCH is initialised from an offset and a size.
        FlatScratchSizes = "flat_scratch_sizes",
        /// FLAT_SCRATCH is two hardware registers.
        FlatScratchHwregs = "flat_scratch_hwregs",
        /// 16-bit results clear the upper half of their register.
        ClearsHalves = "clears_halves",
        /// The same but for operations whose rows say `keephalf`.
        ClearsMostHalves = "clears_most_halves",
        /// Typed accesses to 16-bit components take a register for each.
        UnpackedD16 = "unpacked_d16",
        /// LDS takes aligned addresses only.
        AlignedLds = "aligned_lds",
        /// The LDS crossbar is 32 lanes wide, and the halves of a wave of 64 are separate.
        HalfCrossbar = "half_crossbar",
        /// The descriptor turns on saturating conversions to f16.
        Fp16Overflow = "fp16_overflow",
        /// Kernel arguments can be preloaded to SGPRs.
        KernargPreload = "kernarg_preload",
        /// A workgroup can use both halves of a WGP.
        WgpMode = "wgp_mode",
        /// Waves of 64 can share VGPRs of their halves.
        SharedVgprs = "shared_vgprs",
        /// The descriptor chooses how waves are scheduled.
        RoundRobin = "round_robin",
        /// The descriptor counts named barriers.
        NamedBarriers = "named_barriers",
        /// s_waitcnt_depctr has the field hold_cnt.
        HoldCnt = "hold_cnt",
    }
}

words! {
    /// Layout of a buffer resource's third and fourth words.
    Resource {
        /// Data and number format, index stride and element size; bounds follow from stride and swizzle.
        Gfx8 = "gfx8",
        /// One format of 7 bits; the kind of bounds check is stated.
        Gfx10 = "gfx10",
        /// One format of 6 bits; swizzles of three sizes.
        Gfx11 = "gfx11",
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

/// Effects of an operation on registers that its operands do not tell: bits of what `Op` answers.
pub mod effect {
    /// Writes a part of its destination: one lane, or half a register.
    pub const PARTIAL: u8 = 1;
    /// The low dword of a 64-bit result comes from low dwords only.
    pub const SPLIT: u8 = 2;
    /// Leaves the upper half alone on targets where 16-bit results else clear it.
    pub const KEEP_HALF: u8 = 4;
}
