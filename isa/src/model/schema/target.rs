//! Facts about targets that have names.

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
        /// A branch over 63 dwords goes astray; one over 64 does not.
        Branch3f = "branch_3f",
        /// A clause is of loads, of stores or of atomics, and shorter than its field allows.
        TypedClauses = "typed_clauses",
        /// s_waitcnt_depctr has the field hold_cnt.
        HoldCnt = "hold_cnt",
        /// Offsets of scalar memory have no sign, and are a constant or a register, not both.
        UnsignedSmemOffset = "unsigned_smem_offset",
        /// FLAT instructions take an offset.
        FlatOffset = "flat_offset",
        /// It uses all the field, with its sign.
        FlatOffsetSigned = "flat_offset_signed",
        /// Vector sources can be lds_direct.
        LdsDirect = "lds_direct",
        /// Constant-only sources of matrix instructions take special scalar registers.
        SpecialConstants = "special_constants",
        /// Exports have the targets pos4 and prim.
        PrimExport = "prim_export",
        /// Exports have the targets dual_src_blend0 and 1.
        DualBlendExport = "dual_blend_export",
        /// Messages are 8-bit numbers without operation and stream.
        WideMessages = "wide_messages",
        /// The system message has the operation HOST_TRAP_ACK.
        HostTrapAck = "host_trap_ack",
        /// Cache policies are a temporal hint and a scope (`th:TH_LOAD_NT scope:SCOPE_SYS`).
        TemporalHints = "temporal_hints",
        /// Typed buffers have one format number for data and number format.
        UnifiedFormats = "unified_formats",
        /// DPP has row_share and row_xmask, no broadcasts and no shifts of the wave.
        DppRowShare = "dpp_row_share",
        /// DPP has row_newbcast.
        DppRowNewbcast = "dpp_row_newbcast",
        /// Instructions of 64 bits take row_newbcast or row_share only.
        Dpp64Rows = "dpp64_rows",
        /// `bound_ctrl:0` sets nothing; elsewhere it is a spelling of 1.
        BoundCtrl0 = "bound_ctrl_0",
        /// An offset of 0 beside an offset register of scalar memory is not written.
        HiddenSmemOffset = "hidden_smem_offset",
        /// ds_swizzle has FFT and ROTATE.
        SwizzleFft = "swizzle_fft",
        /// The r128 bit of images is spelled a16.
        ImageA16 = "image_a16",
        /// `wait_vdst` is spelled `wait_va_vdst`.
        WaitVaVdst = "wait_va_vdst",
        /// SDWA compares have no suffix.
        BareSdwaCompares = "bare_sdwa_compares",
        /// LLVM reads 16-bit operands as halves of registers by default.
        PrintsHalves = "prints_halves",
        /// An offset of 0 of scalar memory is written null.
        SmemNullOffset = "smem_null_offset",
        /// v_mul_lo_i32 is a spelling of v_mul_lo_u32.
        MulLoI32 = "mul_lo_i32",
        /// Both halves of a pair may read the same VGPR.
        SameVgprPairs = "same_vgpr_pairs",
        /// Cache policies have nv and scale_offset.
        LateCacheBits = "late_cache_bits",
        /// Packed f32 takes the low half of a scalar only, which op_sel has to say.
        PackedScalarLow = "packed_scalar_low",
        /// The assembler takes the names that operations had before.
        EarlierNames = "earlier_names",
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
