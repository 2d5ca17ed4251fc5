//! What the tables are made of, for both sides of `build.rs`: the generator reads these words and writes these values,
//! the crate reads the values. An enum that only one side knew could drift from the other.

/// An enum whose variants tables name with words: `of` finds the variant, `word` gives the word back, `code` is the Rust
/// path that the generator writes.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$d:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[repr(u8)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$d])* $variant),* }

        #[allow(dead_code)]
        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

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

words! {
    /// What an operand is to the instruction.
    Role {
        /// Written.
        Dst = "dst",
        /// Read.
        Src = "src",
        /// A modifier.
        Mod = "mod",
        /// Bits that another operand's meaning depends on.
        Aux = "aux",
    }
}

#[allow(dead_code)]
impl Role {
    /// Destinations and sources, which assembly shows in order.
    pub fn is_shown(self) -> bool {
        matches!(self, Role::Dst | Role::Src)
    }
}

words! {
    /// Kinds of fields in `formats.isa`.
    FieldKind {
        /// VGPR.
        V = "V",
        /// VGPR whose top bit picks a half on true16 targets.
        Vh = "VH",
        /// VGPR or AGPR.
        Va = "VA",
        /// AGPR.
        A = "A",
        /// VGPR of a pair's second half: the low bit is the inverse of the first half's.
        Vodd = "VODD",
        /// 9-bit source.
        Src = "SRC",
        /// 9-bit source and a bit for AGPRs.
        SrcA = "SRCA",
        /// VGPR or inline constant.
        Vi = "VI",
        /// Scalar register.
        S = "S",
        /// 8-bit scalar source.
        Ss = "SS",
        /// The same as an offset.
        So = "SO",
        /// Number of a scalar pair.
        Sb = "SB",
        /// Number of a scalar quad.
        S4 = "S4",
        /// Unsigned number.
        U = "U",
        /// Signed number.
        I = "I",
        /// Modifier.
        N = "N",
        /// Source of SDWA, a VGPR or scalar.
        Sdwa = "SDWA",
        /// Scalar destination of SDWA.
        Sdwas = "SDWAS",
        /// Source of an export.
        Exp = "EXP",
    }
}

#[allow(dead_code)]
impl FieldKind {
    /// How an operand in such a field is read, if nothing else is said.
    pub fn kind(self) -> Kind {
        match self {
            FieldKind::V | FieldKind::Vh => Kind::Vgpr,
            FieldKind::Va => Kind::VgprAcc,
            FieldKind::A => Kind::Agpr,
            FieldKind::Vodd => Kind::VgprOdd,
            FieldKind::Src => Kind::Src,
            FieldKind::SrcA => Kind::SrcAcc,
            FieldKind::Vi => Kind::SrcVgprAcc,
            FieldKind::S => Kind::Sgpr,
            FieldKind::Ss | FieldKind::So => Kind::Ssrc,
            FieldKind::Sb => Kind::SgprPair,
            FieldKind::S4 => Kind::SgprQuad,
            FieldKind::U => Kind::Imm,
            FieldKind::I => Kind::ImmSigned,
            FieldKind::N => Kind::Modifier,
            FieldKind::Sdwa => Kind::SrcSdwa,
            FieldKind::Sdwas => Kind::SdwaSdst,
            FieldKind::Exp => Kind::ExportSrc,
        }
    }
}

words! {
    /// How an operand's bits are read.
    #[allow(missing_docs)]
    Kind {
        Vgpr = "Vgpr",
        VgprAcc = "VgprAcc",
        Agpr = "Agpr",
        Src = "Src",
        SrcAgpr = "SrcAgpr",
        SrcAcc = "SrcAcc",
        SrcVgprAcc = "SrcVgprAcc",
        Sgpr = "Sgpr",
        Ssrc = "Ssrc",
        SgprPair = "SgprPair",
        SgprQuad = "SgprQuad",
        SrcSdwa = "SrcSdwa",
        SdwaSdst = "SdwaSdst",
        FixedVcc = "FixedVcc",
        Imm = "Imm",
        ImmSigned = "ImmSigned",
        Modifier = "Modifier",
        ModifierSigned = "ModifierSigned",
        BufferAddr = "BufferAddr",
        GlobalAddr = "GlobalAddr",
        GlobalSaddr = "GlobalSaddr",
        FlatSaddr = "FlatSaddr",
        ScratchAddr = "ScratchAddr",
        ScratchSaddr = "ScratchSaddr",
        SmemOffset = "SmemOffset",
        /// A VGPR, or `off` when its bit of `en` is clear.
        ExportSrc = "ExportSrc",
        /// Destination of a pair's second half: the low bit is the inverse of the first half's.
        VgprOdd = "VgprOdd",
        /// Data of an image instruction: as many registers as its modifiers say.
        ImageData = "ImageData",
        /// The same, in VGPRs or AGPRs.
        ImageDataAcc = "ImageDataAcc",
        /// Address of an image instruction, one run of registers.
        ImageAddr = "ImageAddr",
        /// Address of an image instruction, register by register.
        ImageList = "ImageList",
        Aux = "Aux",
    }
}

words! {
    /// How an immediate is written in assembly.
    #[allow(missing_docs)]
    Style {
        None = "(none)",
        S16 = "s16",
        U16 = "(u16)",
        I16 = "(i16)",
        I32 = "(i32)",
        I8 = "i8",
        HwReg = "hwreg",
        Label = "label",
        Message = "msg",
        Waitcnt = "waitcnt",
        DepCtr = "depctr",
        Delay = "delay",
        Endpgm = "endpgm",
        Version = "version",
        GprIdx = "gpridx",
        Barrier = "barrier",
        K32 = "k32",
        K16 = "k16",
        K64 = "k64",
        Attr = "attr",
        AttrChan = "attrchan",
        Slot = "slot",
        ExpTgt = "tgt",
    }
}

words! {
    /// Operands that the meaning of others depends on, by the names of their fields.
    #[allow(missing_docs)]
    At {
        Neg = "neg",
        Abs = "abs",
        Sext = "sext",
        OpSel = "opsel",
        Tfe = "tfe",
        Saddr = "saddr",
        Sve = "sve",
        Soffset = "soffset",
        Imm = "imm",
        Soffen = "soffen",
        Offen = "offen",
        Idxen = "idxen",
        En = "en",
        Compr = "compr",
        VdstX = "vdstX",
        Dim = "dim",
        A16 = "a16",
        Dmask = "dmask",
        D16 = "d16",
        Constant = "K",
        SmemOffset = "SMEMOFF",
    }
}

/// Bits of [`Operand::flags`].
#[allow(dead_code)]
pub mod flag {
    /// Read.
    pub const READ: u16 = 1;
    /// Vgpr only.
    pub const VGPR_ONLY: u16 = 2;
    /// No literal.
    pub const NO_LITERAL: u16 = 4;
    /// Scalar only.
    pub const SCALAR_ONLY: u16 = 8;
    /// Mask.
    pub const MASK: u16 = 16;
    /// Float mods.
    pub const FLOAT_MODS: u16 = 32;
    /// Half.
    pub const HALF: u16 = 64;
    /// Lo128.
    pub const LO128: u16 = 128;
    /// Sext.
    pub const SEXT: u16 = 256;
    /// Agpr only.
    pub const AGPR_ONLY: u16 = 512;
    /// Lds direct.
    pub const LDS_DIRECT: u16 = 1024;
    /// No inline.
    pub const NO_INLINE: u16 = 2048;
    /// Data of a buffer instruction, which `tfe` makes one register longer.
    pub const TFE_DATA: u16 = 4096;
}

#[allow(dead_code)]
/// Words of a shape.
pub mod word {
    /// F8f6f4.
    pub const F8F6F4: u32 = 1;
    /// Gds only.
    pub const GDS_ONLY: u32 = 2;
    /// Hide sel.
    pub const HIDE_SEL: u32 = 4;
    /// Lds.
    pub const LDS: u32 = 8;
    /// Lds only.
    pub const LDS_ONLY: u32 = 16;
    /// Mix.
    pub const MIX: u32 = 32;
    /// No return.
    pub const NO_RETURN: u32 = 64;
    /// Return.
    pub const RETURN: u32 = 128;
    /// Swizzle.
    pub const SWIZZLE: u32 = 256;
    /// Constants count as both halves only where both are written.
    pub const SPLAT: u32 = 512;
    /// op_sel shows the destination as a third source.
    pub const OPSEL4: u32 = 1024;
    /// Text does not name the encoding.
    pub const NO_SUFFIX: u32 = 2048;
    /// op_sel has two bits, which speak of no operands.
    pub const OPSEL2: u32 = 4096;
    /// A tuple of three registers may start anywhere.
    pub const UNALIGNED: u32 = 8192;
    /// No source can be lds_direct.
    pub const NO_DIRECT: u32 = 1 << 14;
    /// The scalar operand can only be null.
    pub const NULL_ONLY: u32 = 1 << 15;
    /// The last source selects a lane.
    pub const LANE_SELECT: u32 = 1 << 16;
    /// One scalar source only.
    pub const ONE_BUS: u32 = 1 << 17;
    /// SDWA writes all of the destination.
    pub const WHOLE_DST: u32 = 1 << 18;
    /// Reads every sample of a pixel: the dimension must be a multisampled one.
    pub const MSAA: u32 = 1 << 19;
    /// Two halves of a pair that are both of this operation may read the same bank.
    pub const SAME_BANK: u32 = 1 << 20;
    /// With DPP the second source is a VGPR.
    pub const DPP_VGPR: u32 = 1 << 21;
    /// Written only where no other encoding fits.
    pub const SPARE: u32 = 1 << 22;
    /// SDWA has no sext in assembly.
    pub const NO_SEXT: u32 = 1 << 23;
    /// SDWA has sext of registers only in assembly.
    pub const SEXT_REGS: u32 = 1 << 24;

    /// Words of the tables in the order of their bits, and whether a shape takes the word from its row as it is; the others
    /// say which of a row's encodings it is.
    pub const NAMES: &[(&str, bool)] = &[
        ("f8f6f4", true),
        ("gdsonly", false),
        ("hidesel", true),
        ("lds", false),
        ("ldsonly", true),
        ("mix", false),
        ("noret", false),
        ("ret", false),
        ("swz", false),
        ("splat", true),
        ("opsel4", true),
        ("nosuffix", true),
        ("opsel2", true),
        ("unaligned", true),
        ("nodirect", true),
        ("nullonly", true),
        ("laneselect", true),
        ("onebus", true),
        ("wholedst", true),
        ("msaa", true),
        ("samebank", false),
        ("dppvgpr", true),
        ("spare", false),
        ("nosext", true),
        ("sextregs", true),
    ];
}

/// What distinguishes encodings of an operation besides their bits.
#[allow(dead_code)]
pub mod variant {
    /// Fake 16-bit registers only.
    pub const FAKE16: u16 = 1;
    /// True16.
    pub const TRUE16: u16 = 2;
    /// Wave32.
    pub const WAVE32: u16 = 4;
    /// Wave64.
    pub const WAVE64: u16 = 8;
    /// Dpp8.
    pub const DPP8: u16 = 16;
    /// The encoding contains a literal that source operands share (set when the table is loaded).
    pub const OWN_LITERAL: u16 = 32;

    /// First of five variant bits that say which of SCC, VCC, EXEC, M0, MODE are read; five more say which are written.
    pub const READS: u32 = 6;
    /// Writes.
    pub const WRITES: u32 = 11;
}

words! {
    /// Names of instruction modifiers. The value's meaning stands beside each; absent means the default (0 unless noted).
    #[allow(missing_docs)]
    ModName {
        /// Negated sources, bit i = source i (for VOP3P: `neg_lo`).
        Neg = "neg",
        /// `neg_hi` of VOP3P, bit i = source i.
        NegHi = "neghi",
        /// Absolute value of sources, bit i = source i.
        Abs = "abs",
        /// SDWA `sext()`, bit i = source i.
        Sext = "sext",
        /// `op_sel`, bit i = source i, bit 3 = destination.
        OpSel = "opsel",
        /// `op_sel_hi`, bit i = source i; default all ones.
        OpSelHi = "opselhi",
        /// Clamp the result.
        Clamp = "clamp",
        /// Output modifier: 1 `mul:2`, 2 `mul:4`, 3 `div:2`.
        Omod = "omod",
        /// Byte offset of a memory instruction (signed where the target's is).
        Offset = "offset",
        /// First offset of ds_read2/ds_write2 and of ds_swizzle forms, in elements.
        Offset0 = "offset0",
        /// Second offset.
        Offset1 = "offset1",
        /// Cache policy bits as encoded by the target (`glc`=1 `slc`=2 `dlc`=4 `scc/sc1`=16; gfx12: th | scope<<3).
        Cpol = "cpol",
        Gds = "gds",
        Lds = "lds",
        Tfe = "tfe",
        Offen = "offen",
        Idxen = "idxen",
        Addr64 = "addr64",
        Format = "format",
        Dmask = "dmask",
        Dim = "dim",
        Unorm = "unorm",
        R128 = "r128",
        A16 = "a16",
        D16 = "d16",
        Lwe = "lwe",
        Da = "da",
        /// DPP16 control, as encoded (9 bits).
        DppCtrl = "dppctrl",
        /// Default 0xf.
        RowMask = "rowmask",
        /// Default 0xf.
        BankMask = "bankmask",
        BoundCtrl = "boundctrl",
        /// Fetch inactive lanes (DPP).
        Fi = "fi",
        /// DPP8 lane selects, 3 bits each, lane 0 lowest.
        Dpp8 = "dpp8",
        /// SDWA selects: 0-3 BYTE_n, 4 WORD_0, 5 WORD_1, 6 DWORD (default 6).
        DstSel = "dstsel",
        /// SDWA: 0 UNUSED_PAD, 1 UNUSED_SEXT, 2 UNUSED_PRESERVE.
        DstUnused = "dstunused",
        Src0Sel = "src0sel",
        Src1Sel = "src1sel",
        Cbsz = "cbsz",
        Abid = "abid",
        Blgp = "blgp",
        IndexKey = "indexkey8bit",
        MatrixAFmt = "matrixafmt",
        MatrixBFmt = "matrixbfmt",
        MatrixAScale = "matrixascale",
        MatrixBScale = "matrixbscale",
        MatrixAScaleFmt = "matrixascalefmt",
        MatrixBScaleFmt = "matrixbscalefmt",
        MatrixAReuse = "matrixareuse",
        MatrixBReuse = "matrixbreuse",
        ScaleOpSel = "scalesel",
        ByteSel = "bytesel",
        BitOp3 = "bitop3",
        WaitVdst = "waitvdst",
        WaitExp = "waitexp",
        WaitVmVsrc = "waitvsrc",
        Attr = "attr",
        AttrChan = "attrchan",
        Done = "done",
        Vm = "vm",
        Compr = "compr",
        En = "en",
        RowEn = "rowen",
        High = "high",
        /// Any other: room for rare graphics modifiers.
        Other = "other",
    }
}

#[allow(dead_code)]
impl ModName {
    /// The modifier that a field of an encoding holds.
    pub fn of_field(name: &str) -> ModName {
        match name {
            "d16u" => ModName::D16,
            "permbc" => ModName::BoundCtrl,
            "permfi" => ModName::Fi,
            "indexkey16bit" => ModName::IndexKey,
            "indexkey32bit" => ModName::IndexKey,
            "bytesel2" => ModName::ByteSel,
            _ => ModName::of(name).unwrap_or(ModName::Other),
        }
    }
}
