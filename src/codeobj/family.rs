//! What the code object format says differently for each generation, keyed by the ELF machine flags.

/// Generation of the hardware as far as code objects and wave start-up are concerned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Family {
    /// gfx6, gfx7, gfx8.
    Gfx8,
    /// gfx900, 902, 904, 906, 908, 909, 90c.
    Gfx9,
    /// gfx90a: unified AGPRs, packed workitem ids.
    Gfx90a,
    /// gfx940, 941, 942, 950: as gfx90a with architected flat scratch.
    Gfx940,
    /// gfx101x, gfx103x.
    Gfx10,
    /// gfx11xx.
    Gfx11,
    /// gfx12xx.
    Gfx12,
    /// gfx125x.
    Gfx125,
}

/// EF_AMDGPU_MACH: low byte of `e_flags`.
pub const EF_MACH: u32 = 0xff;

/// `(EF_AMDGPU_MACH value, processor, family)`, from LLVM's AMDGPU usage guide.
#[rustfmt::skip]
const MACHS: &[(u32, &str, Family)] = {
    use Family::*;
    &[
        (0x20, "gfx600", Gfx8), (0x21, "gfx601", Gfx8), (0x3a, "gfx602", Gfx8),
        (0x22, "gfx700", Gfx8), (0x23, "gfx701", Gfx8), (0x24, "gfx702", Gfx8), (0x25, "gfx703", Gfx8), (0x26, "gfx704", Gfx8), (0x3b, "gfx705", Gfx8),
        (0x28, "gfx801", Gfx8), (0x29, "gfx802", Gfx8), (0x2a, "gfx803", Gfx8), (0x3c, "gfx805", Gfx8), (0x2b, "gfx810", Gfx8),
        (0x2c, "gfx900", Gfx9), (0x2d, "gfx902", Gfx9), (0x2e, "gfx904", Gfx9), (0x2f, "gfx906", Gfx9), (0x30, "gfx908", Gfx9), (0x31, "gfx909", Gfx9), (0x32, "gfx90c", Gfx9),
        (0x3f, "gfx90a", Gfx90a), (0x40, "gfx940", Gfx940), (0x4b, "gfx941", Gfx940), (0x4c, "gfx942", Gfx940), (0x4f, "gfx950", Gfx940),
        (0x33, "gfx1010", Gfx10), (0x34, "gfx1011", Gfx10), (0x35, "gfx1012", Gfx10), (0x42, "gfx1013", Gfx10),
        (0x36, "gfx1030", Gfx10), (0x37, "gfx1031", Gfx10), (0x38, "gfx1032", Gfx10), (0x39, "gfx1033", Gfx10), (0x3e, "gfx1034", Gfx10), (0x3d, "gfx1035", Gfx10), (0x45, "gfx1036", Gfx10),
        (0x41, "gfx1100", Gfx11), (0x46, "gfx1101", Gfx11), (0x47, "gfx1102", Gfx11), (0x44, "gfx1103", Gfx11),
        (0x43, "gfx1150", Gfx11), (0x4a, "gfx1151", Gfx11), (0x55, "gfx1152", Gfx11), (0x58, "gfx1153", Gfx11),
        (0x48, "gfx1200", Gfx12), (0x4e, "gfx1201", Gfx12),
        (0x49, "gfx1250", Gfx125),
        (0x51, "gfx9-generic", Gfx9), (0x52, "gfx10-1-generic", Gfx10), (0x53, "gfx10-3-generic", Gfx10), (0x54, "gfx11-generic", Gfx11),
        (0x59, "gfx12-generic", Gfx12), (0x5f, "gfx9-4-generic", Gfx940),
    ]
};

impl Family {
    /// The family of an EF_AMDGPU_MACH value; `None` when it is unknown.
    pub fn of_mach(mach: u32) -> Option<Family> {
        MACHS.iter().find(|m| m.0 == mach & EF_MACH).map(|m| m.2)
    }
    /// The processor whose instruction tables serve for an EF_AMDGPU_MACH value that has none of its own: generic
    /// targets, and chips that differ from a sibling in a few instructions only.
    pub fn nearest_tables(mach: u32) -> Option<&'static str> {
        Some(match Family::processor(mach)? {
            "gfx801" | "gfx802" | "gfx805" | "gfx810" => "gfx803",
            "gfx904" | "gfx909" | "gfx90c" | "gfx9-generic" => "gfx900",
            "gfx940" | "gfx941" | "gfx9-4-generic" => "gfx942",
            "gfx1011" | "gfx1012" | "gfx1013" | "gfx10-1-generic" => "gfx1010",
            "gfx1033" | "gfx1034" | "gfx10-3-generic" => "gfx1030",
            "gfx1152" | "gfx1153" => "gfx1150",
            "gfx11-generic" => "gfx1100",
            "gfx12-generic" => "gfx1200",
            _ => return None,
        })
    }
    /// LLVM's processor name for an EF_AMDGPU_MACH value.
    pub fn processor(mach: u32) -> Option<&'static str> {
        MACHS.iter().find(|m| m.0 == mach & EF_MACH).map(|m| m.1)
    }
    /// VGPRs that one step of the descriptor's VGPR field stands for.
    pub fn vgpr_granule(self, wave32: bool) -> u32 {
        match self {
            Family::Gfx8 | Family::Gfx9 => 4,
            Family::Gfx90a | Family::Gfx940 => 8,
            Family::Gfx125 => 16,
            _ if wave32 => 8,
            _ => 4,
        }
    }
    /// Largest value of the descriptor's count of user SGPRs.
    pub fn max_user_sgpr_field(self) -> u32 {
        if self == Family::Gfx125 { 0x3f } else { 0x1f }
    }
    /// SGPRs are allocated per wave, so the descriptor counts them (up to gfx9).
    pub fn counts_sgprs(self) -> bool {
        self <= Family::Gfx940
    }
    /// AGPRs are the upper part of the VGPR allocation, from `accum_offset` on.
    pub fn unified_agprs(self) -> bool {
        matches!(self, Family::Gfx90a | Family::Gfx940)
    }
    /// Waves of 32 lanes exist.
    pub fn has_wave32(self) -> bool {
        self >= Family::Gfx10
    }
    /// Workitem ids come packed in v0, 10 bits each.
    pub fn packed_workitem_ids(self) -> bool {
        matches!(self, Family::Gfx90a | Family::Gfx940) || self >= Family::Gfx11
    }
    /// Hardware initialises the flat scratch base; there is no scratch buffer resource.
    pub fn architected_flat_scratch(self) -> bool {
        self == Family::Gfx940 || self >= Family::Gfx11
    }
    /// Workgroup ids come in TTMP7 and TTMP9.
    pub fn architected_workgroup_ids(self) -> bool {
        self >= Family::Gfx12
    }
    /// The IEEE and DX10_CLAMP mode bits exist (they were fixed on in gfx12).
    pub fn has_ieee_mode(self) -> bool {
        self <= Family::Gfx11
    }
    /// Bytes of a line of the instruction cache.
    pub fn icache_line(self) -> u32 {
        if self >= Family::Gfx11 { 128 } else { 64 }
    }
    /// What follows the code so that instruction prefetch never leaves the segment: the dword to repeat and how many
    /// bytes of it.
    pub fn prefetch_padding(self) -> Option<(u32, u32)> {
        const S_NOP: u32 = 0xbf80_0000;
        const S_CODE_END: u32 = 0xbf9f_0000;
        match self {
            Family::Gfx8 | Family::Gfx9 => None,
            Family::Gfx90a | Family::Gfx940 => Some((S_NOP, 16 * self.icache_line())),
            _ => Some((S_CODE_END, 3 * self.icache_line())),
        }
    }
    /// Largest value of the descriptor's instruction prefetch field, in instruction cache lines.
    pub fn max_inst_pref(self) -> u32 {
        match self {
            Family::Gfx11 => 63,
            Family::Gfx12 | Family::Gfx125 => 255,
            _ => 0,
        }
    }
}

/// Processors on which a wave32 needs 16 initialised SGPRs (LLVM's user-sgpr-init16 bug: gfx1100 and gfx1102).
pub fn needs_16_user_sgprs(mach: u32) -> bool {
    matches!(mach & EF_MACH, 0x41 | 0x47)
}
