//! What the code object format says differently for each processor: facts of `targets.isa`, asked by ELF machine number.

use barewave_isa::{Processor, Quirk, Resource, TargetInfo};

/// Facts about code objects and wave start-up of a processor.
#[derive(Clone, Copy, Debug)]
pub struct Family(&'static TargetInfo);

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Family {}

/// EF_AMDGPU_MACH: low byte of `e_flags`.
pub const EF_MACH: u32 = 0xff;

impl Family {
    /// The facts of an EF_AMDGPU_MACH value; `None` when it is unknown.
    pub fn of_mach(mach: u32) -> Option<Family> {
        Processor::of_mach(mach).map(|p| Family(p.like.info()))
    }
    /// The processor whose instruction tables serve for an EF_AMDGPU_MACH value that has none of its own: a chip that
    /// differs from a sibling in a few instructions only.
    pub fn nearest_tables(mach: u32) -> Option<&'static str> {
        Processor::of_mach(mach).filter(|p| p.decodes).map(|p| p.like.info().name)
    }
    /// LLVM's processor name for an EF_AMDGPU_MACH value.
    pub fn processor(mach: u32) -> Option<&'static str> {
        Processor::of_mach(mach).map(|p| p.name)
    }
    /// True when the target has a quirk.
    pub fn has(self, quirk: Quirk) -> bool {
        self.0.has(quirk)
    }
    /// VGPRs that one step of the descriptor's VGPR field stands for.
    pub fn vgpr_granule(self, wave32: bool) -> u32 {
        if wave32 { self.0.descriptor_vgprs32 } else { self.0.descriptor_vgprs }
    }
    /// Most VGPRs and AGPRs together that a kernel may have.
    pub fn max_vgprs(self) -> u32 {
        self.0.max_vgprs + if self.0.unified_agprs { self.0.max_agprs } else { 0 }
    }
    /// Most AGPRs that a kernel may have.
    pub fn max_agprs(self) -> u32 {
        self.0.max_agprs
    }
    /// Largest value of the descriptor's count of user SGPRs.
    pub fn max_user_sgpr_field(self) -> u32 {
        self.0.user_sgpr_field
    }
    /// Most user SGPRs that a kernel may have.
    pub fn max_user_sgprs(self) -> u32 {
        self.0.max_user_sgprs
    }
    /// SGPRs that must be initialised in waves of 32.
    pub fn min_preloaded_sgprs(self) -> u32 {
        self.0.min_preloaded_sgprs.into()
    }
    /// SGPRs are allocated per wave, so the descriptor counts them (up to gfx9).
    pub fn counts_sgprs(self) -> bool {
        self.has(Quirk::CountedSgprs)
    }
    /// AGPRs are the upper part of the VGPR allocation, from `accum_offset` on.
    pub fn unified_agprs(self) -> bool {
        self.0.unified_agprs
    }
    /// Waves of 32 lanes exist.
    pub fn has_wave32(self) -> bool {
        self.0.has_wave32()
    }
    /// Workitem ids come packed in v0, 10 bits each.
    pub fn packed_workitem_ids(self) -> bool {
        self.0.packed_workitem_ids
    }
    /// Hardware initialises the flat scratch base; there is no scratch buffer resource.
    pub fn architected_flat_scratch(self) -> bool {
        self.0.architected_flat_scratch
    }
    /// Workgroup ids come in TTMP7 and TTMP9.
    pub fn architected_workgroup_ids(self) -> bool {
        self.0.architected_sgprs
    }
    /// The IEEE and DX10_CLAMP mode bits exist (they were fixed on in gfx12).
    pub fn has_ieee_mode(self) -> bool {
        self.has(Quirk::IeeeMode)
    }
    /// Registers have halves.
    pub fn true16(self) -> bool {
        self.0.true16
    }
    /// Layout of buffer resources.
    pub fn resource(self) -> Resource {
        self.0.resource
    }
    /// Bytes of a line of the instruction cache.
    pub fn icache_line(self) -> u32 {
        self.0.icache_line
    }
    /// What follows the code so that instruction prefetch never leaves the segment: the dword to repeat and how many
    /// bytes of it.
    pub fn prefetch_padding(self) -> Option<(u32, u32)> {
        self.0.code_padding.map(|(word, lines)| (word, lines * self.0.icache_line))
    }
    /// Largest value of the descriptor's instruction prefetch field, in instruction cache lines.
    pub fn max_inst_pref(self) -> u32 {
        self.0.max_inst_pref
    }
}
