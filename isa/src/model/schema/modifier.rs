//! Modifiers.

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
