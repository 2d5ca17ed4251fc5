//! Operands and encodings.

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

/// What decides how many registers data and address of an image instruction take. `L` is a list of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image<L = &'static [u8]> {
    /// Offset, bias and compare words.
    pub extra: u8,
    /// 0 none, 1 of 32 bits, 2 of 16 bits.
    pub gradients: u8,
    /// The address has coordinates.
    pub coords: bool,
    /// And a level of detail or a clamp of it.
    pub lod: bool,
    /// Four samples of one component.
    pub gather: bool,
    /// A register of data holds two halves with `d16`.
    pub packed: bool,
    /// Addresses are given one by one, so many of them; 0: as one run.
    pub slots: u8,
    /// The last one may be a run.
    pub partial: bool,
    /// Dwords of the parts of a ray.
    pub rays: L,
    /// Address sizes that exist.
    pub addrs: L,
    /// Data sizes that exist.
    pub datas: L,
    /// Byte of the instruction that holds each of the `slots`.
    pub places: L,
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
