//! The kernel descriptor: 64 bytes from which a wave's initial state follows.
//!
//! [`Descriptor`] holds its fields as numbers, `to_bytes` and `from_bytes` translate; [`Descriptor::for_kernel`]
//! computes the fields from a [`Kernel`], [`Descriptor::user_sgpr_layout`] says which SGPR holds what at wave start.

use super::{Error, Family, Kernel, UserSgprs};
use barewave_isa::Quirk;
use byteorder::{ByteOrder, LE};

bitflags::bitflags! {
    /// `kernel_code_properties` of the descriptor.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Properties: u16 {
        /// Scratch buffer resource in 4 user SGPRs.
        const PRIVATE_SEGMENT_BUFFER = 1;
        /// Dispatch packet address in 2 user SGPRs.
        const DISPATCH_PTR = 1 << 1;
        /// Queue address in 2 user SGPRs.
        const QUEUE_PTR = 1 << 2;
        /// Kernel argument address in 2 user SGPRs.
        const KERNARG_SEGMENT_PTR = 1 << 3;
        /// Dispatch id in 2 user SGPRs.
        const DISPATCH_ID = 1 << 4;
        /// Flat scratch initialisation in 2 user SGPRs.
        const FLAT_SCRATCH_INIT = 1 << 5;
        /// Scratch bytes per lane in 1 user SGPR.
        const PRIVATE_SEGMENT_SIZE = 1 << 6;
        /// Waves have 32 lanes.
        const WAVE32 = 1 << 10;
        /// The stack grows at run time (calls through pointers, recursion).
        const DYNAMIC_STACK = 1 << 11;
    }
}

/// Decoded kernel descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Descriptor {
    /// Static LDS, bytes.
    pub lds_bytes: u32,
    /// Scratch, bytes per lane.
    pub scratch_bytes: u32,
    /// Size of the kernel arguments, bytes (0 when unknown: code object v2 and v3 files may leave it out).
    pub kernarg_size: u32,
    /// Distance from the descriptor to the first instruction.
    pub entry_offset: i64,
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// COMPUTE_PGM_RSRC3.
    pub rsrc3: u32,
    /// Which values go to user SGPRs, wave size.
    pub properties: Properties,
    /// Kernel argument preload: length in dwords (bits 6:0), offset in dwords (bits 15:7).
    pub kernarg_preload: u16,
}

/// Where the system SGPRs stand: the values that hardware adds after the user SGPRs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemSgprs {
    /// SGPR of each workgroup id, where enabled. On gfx12 ids are in TTMP9 (x) and TTMP7 (y low, z high half) instead.
    pub workgroup_id: [Option<u16>; 3],
    /// SGPR of the workgroup info word.
    pub workgroup_info: Option<u16>,
    /// SGPR of this wave's byte offset into scratch.
    pub scratch_wave_offset: Option<u16>,
}

/// First SGPR of each user value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserSgprLayout {
    /// 4 SGPRs.
    pub private_segment_buffer: Option<u16>,
    /// 2 SGPRs.
    pub dispatch_ptr: Option<u16>,
    /// 2 SGPRs.
    pub queue_ptr: Option<u16>,
    /// 2 SGPRs.
    pub kernarg_segment_ptr: Option<u16>,
    /// 2 SGPRs.
    pub dispatch_id: Option<u16>,
    /// 2 SGPRs.
    pub flat_scratch_init: Option<u16>,
    /// 1 SGPR.
    pub private_segment_size: Option<u16>,
    /// First SGPR, number of dwords, first dword of the arguments.
    pub kernarg_preload: Option<(u16, u16, u16)>,
    /// What follows them.
    pub system: SystemSgprs,
}

/// How a wave finds its scratch memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScratchSetup {
    /// A buffer resource and FLAT_SCRATCH set up by the kernel's first instructions from user SGPRs (gfx8 to gfx10).
    ByKernel,
    /// Hardware initialises FLAT_SCRATCH.
    Architected,
}

impl Descriptor {
    /// Size of a descriptor in the file.
    pub const SIZE: usize = 64;
    /// Where in it the distance to the entry point stands.
    pub const ENTRY_AT: usize = 16;

    /// Computes the descriptor of `k`, with `entry_offset` 0, for the machine `mach` (EF_AMDGPU_MACH).
    pub fn for_kernel(k: &Kernel, mach: u32) -> Result<Descriptor, Error> {
        let bad = |what: String| Error::Kernel { kernel: k.name.clone(), what };
        let family = Family::of_mach(mach).ok_or_else(|| bad(format!("unknown ELF machine {mach:#x}")))?;
        if k.wave32 && !family.has_wave32() {
            return Err(bad("this target has no 32-lane waves".into()));
        }
        if k.agprs > 0 && family.max_agprs() == 0 {
            return Err(bad("this target has no AGPRs".into()));
        }
        let accum_offset = k.vgprs.next_multiple_of(4).max(4);
        let total = match (family.unified_agprs(), k.agprs) {
            (true, 1..) => accum_offset + k.agprs,
            (true, 0) => k.vgprs,
            (false, a) => k.vgprs.max(a),
        };
        let limit = family.max_vgprs();
        if k.vgprs > limit.max(256) || k.agprs > 256 || total > limit {
            return Err(bad(format!("{} VGPRs and {} AGPRs exceed the {limit} of the target", k.vgprs, k.agprs)));
        }
        if k.sgprs > 106 {
            return Err(bad(format!("{} SGPRs exceed 106", k.sgprs)));
        }
        let vgpr_blocks = total.max(1).div_ceil(family.vgpr_granule(k.wave32)) - 1;
        // VCC, FLAT_SCRATCH and XNACK_MASK follow the numbered SGPRs.
        let sgpr_blocks = if family.counts_sgprs() { (k.sgprs + 6).div_ceil(8) - 1 } else { 0 };
        let denorm = if k.f32_denormals { 0xf } else { 0xc };
        let mut rsrc1 = vgpr_blocks | sgpr_blocks << 6 | denorm << 16;
        if family.has_ieee_mode() {
            rsrc1 |= 1 << 21 | 1 << 23;
        }
        if family.has_wave32() {
            // Memory ordered, forward progress.
            rsrc1 |= 1 << 30 | 1 << 31 | u32::from(k.wgp_mode) << 29;
        }
        let user = k.user_sgprs.count();
        let ids =
            if family.architected_workgroup_ids() { 0 } else { k.workgroup_ids.iter().filter(|&&e| e).count() as u32 };
        let mut user_padded = user;
        if k.wave32 && user + ids < family.min_preloaded_sgprs() {
            user_padded = family.min_preloaded_sgprs() - ids;
        }
        if user_padded > family.max_user_sgprs() {
            return Err(bad(format!("{user_padded} user SGPRs, the target allows {}", family.max_user_sgprs())));
        }
        let mut rsrc2 = user_padded << 1 | u32::from(k.workitem_ids.min(2)) << 11;
        rsrc2 |= u32::from(k.scratch_bytes > 0);
        for (i, &id) in k.workgroup_ids.iter().enumerate() {
            rsrc2 |= u32::from(id) << (7 + i);
        }
        let lines = (k.code.len() as u32).div_ceil(family.icache_line()).min(family.max_inst_pref());
        let mut rsrc3 = lines << 4;
        if family.unified_agprs() {
            rsrc3 |= accum_offset / 4 - 1;
        }
        let u = k.user_sgprs;
        let mut properties = Properties::empty();
        properties.set(Properties::PRIVATE_SEGMENT_BUFFER, u.private_segment_buffer);
        properties.set(Properties::DISPATCH_PTR, u.dispatch_ptr);
        properties.set(Properties::QUEUE_PTR, u.queue_ptr);
        properties.set(Properties::KERNARG_SEGMENT_PTR, u.kernarg_segment_ptr);
        properties.set(Properties::DISPATCH_ID, u.dispatch_id);
        properties.set(Properties::FLAT_SCRATCH_INIT, u.flat_scratch_init);
        properties.set(Properties::PRIVATE_SEGMENT_SIZE, u.private_segment_size);
        properties.set(Properties::WAVE32, k.wave32);
        Ok(Descriptor {
            lds_bytes: k.lds_bytes,
            scratch_bytes: k.scratch_bytes,
            kernarg_size: k.kernarg_size,
            entry_offset: 0,
            rsrc1,
            rsrc2,
            rsrc3,
            properties,
            kernarg_preload: u16::from(u.kernarg_preload_dwords & 0x7f) | u.kernarg_preload_offset << 7,
        })
    }

    /// The 64 bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        LE::write_u32(&mut b[0..], self.lds_bytes);
        LE::write_u32(&mut b[4..], self.scratch_bytes);
        LE::write_u32(&mut b[8..], self.kernarg_size);
        LE::write_i64(&mut b[16..], self.entry_offset);
        LE::write_u32(&mut b[44..], self.rsrc3);
        LE::write_u32(&mut b[48..], self.rsrc1);
        LE::write_u32(&mut b[52..], self.rsrc2);
        LE::write_u16(&mut b[56..], self.properties.bits());
        LE::write_u16(&mut b[58..], self.kernarg_preload);
        b
    }

    /// Reads the 64 bytes; `None` when there are fewer.
    pub fn from_bytes(b: &[u8]) -> Option<Descriptor> {
        let b = b.get(..Self::SIZE)?;
        Some(Descriptor {
            lds_bytes: LE::read_u32(&b[0..]),
            scratch_bytes: LE::read_u32(&b[4..]),
            kernarg_size: LE::read_u32(&b[8..]),
            entry_offset: LE::read_i64(&b[16..]),
            rsrc1: LE::read_u32(&b[48..]),
            rsrc2: LE::read_u32(&b[52..]),
            rsrc3: LE::read_u32(&b[44..]),
            properties: Properties::from_bits_retain(LE::read_u16(&b[56..])),
            kernarg_preload: LE::read_u16(&b[58..]),
        })
    }

    /// Reads the 256-byte `amd_kernel_code_t` of code object v2, which plays the descriptor's part there.
    pub fn from_v2_bytes(b: &[u8]) -> Option<Descriptor> {
        let b = b.get(..256)?;
        let flags = LE::read_u32(&b[56..]);
        Some(Descriptor {
            lds_bytes: LE::read_u32(&b[64..]),
            scratch_bytes: LE::read_u32(&b[60..]),
            kernarg_size: u32::try_from(LE::read_u64(&b[72..])).ok()?,
            entry_offset: LE::read_i64(&b[16..]),
            rsrc1: LE::read_u32(&b[48..]),
            rsrc2: LE::read_u32(&b[52..]),
            rsrc3: 0,
            properties: Properties::from_bits_truncate((flags & 0x7f) as u16 | (flags & 1 << 10) as u16),
            kernarg_preload: 0,
        })
    }

    /// Waves have 32 lanes.
    pub fn wave32(&self) -> bool {
        self.properties.contains(Properties::WAVE32)
    }
    /// VGPRs allocated (with AGPRs where they share a file).
    pub fn vgprs(&self, family: Family) -> u32 {
        ((self.rsrc1 & 0x3f) + 1) * family.vgpr_granule(self.wave32())
    }
    /// SGPRs allocated, VCC and its like included.
    pub fn sgprs(&self, family: Family) -> u32 {
        if family.counts_sgprs() { ((self.rsrc1 >> 6 & 0xf) + 1) * 8 } else { 128 }
    }
    /// First VGPR of the allocation that serves as `a0`, where AGPRs share the file.
    pub fn accum_offset(&self, family: Family) -> Option<u32> {
        family.unified_agprs().then_some(((self.rsrc3 & 0x3f) + 1) * 4)
    }
    /// Workgroups run on both compute units of a work group processor (RDNA).
    pub fn wgp_mode(&self, family: Family) -> bool {
        family.has(Quirk::WgpMode) && self.rsrc1 >> 29 & 1 != 0
    }
    /// Waves of a workgroup need not share a first-level cache: WGP mode of RDNA, split thread groups of CDNA.
    pub fn splits_workgroups(&self, family: Family) -> bool {
        self.wgp_mode(family) || (family.unified_agprs() && self.rsrc3 >> 16 & 1 != 0)
    }
    /// Initial MODE bits 7:0: rounding (3:0) and denormals (7:4).
    pub fn float_mode(&self) -> u32 {
        self.rsrc1 >> 12 & 0xff
    }
    /// IEEE mode: signalling NaNs are quieted, minimum and maximum follow IEEE 754-2008.
    pub fn ieee_mode(&self, family: Family) -> bool {
        !family.has_ieee_mode() || self.rsrc1 >> 23 & 1 != 0
    }
    /// DX10_CLAMP: clamping turns NaN into zero.
    pub fn dx10_clamp(&self, family: Family) -> bool {
        !family.has_ieee_mode() || self.rsrc1 >> 21 & 1 != 0
    }
    /// Conversions to f16 saturate instead of overflowing to infinity.
    pub fn fp16_overflow(&self) -> bool {
        self.rsrc1 >> 26 & 1 != 0
    }
    /// Scratch is enabled.
    pub fn scratch_enabled(&self) -> bool {
        self.rsrc2 & 1 != 0
    }
    /// User SGPRs, padding included.
    pub fn user_sgpr_count(&self, family: Family) -> u16 {
        (self.rsrc2 >> 1 & family.max_user_sgpr_field()) as u16
    }
    /// Workgroup ids x, y, z enabled.
    pub fn workgroup_ids(&self) -> [bool; 3] {
        [self.rsrc2 >> 7 & 1 != 0, self.rsrc2 >> 8 & 1 != 0, self.rsrc2 >> 9 & 1 != 0]
    }
    /// Workitem ids provided: 0 = x, 1 = x, y, 2 = x, y, z.
    pub fn workitem_ids(&self) -> u8 {
        (self.rsrc2 >> 11 & 3) as u8
    }
    /// How scratch is found.
    pub fn scratch_setup(&self, family: Family) -> ScratchSetup {
        if family.architected_flat_scratch() { ScratchSetup::Architected } else { ScratchSetup::ByKernel }
    }

    /// Which SGPR holds what when a wave starts.
    pub fn user_sgpr_layout(&self, family: Family) -> UserSgprLayout {
        let p = self.properties;
        let mut next = 0;
        let mut take = |flag: Properties, n: u16| {
            p.contains(flag).then(|| {
                let at = next;
                next += n;
                at
            })
        };
        let mut l = UserSgprLayout {
            private_segment_buffer: take(Properties::PRIVATE_SEGMENT_BUFFER, 4),
            dispatch_ptr: take(Properties::DISPATCH_PTR, 2),
            queue_ptr: take(Properties::QUEUE_PTR, 2),
            kernarg_segment_ptr: take(Properties::KERNARG_SEGMENT_PTR, 2),
            dispatch_id: take(Properties::DISPATCH_ID, 2),
            flat_scratch_init: take(Properties::FLAT_SCRATCH_INIT, 2),
            private_segment_size: take(Properties::PRIVATE_SEGMENT_SIZE, 1),
            ..UserSgprLayout::default()
        };
        let preload = self.kernarg_preload & 0x7f;
        if preload > 0 {
            l.kernarg_preload = Some((next, preload, self.kernarg_preload >> 7));
        }
        let mut next = self.user_sgpr_count(family);
        let mut take = |enabled: bool| {
            enabled.then(|| {
                next += 1;
                next - 1
            })
        };
        if !family.architected_workgroup_ids() {
            l.system.workgroup_id = self.workgroup_ids().map(&mut take);
        }
        l.system.workgroup_info = take(self.rsrc2 >> 10 & 1 != 0);
        l.system.scratch_wave_offset = take(self.scratch_enabled() && !family.architected_flat_scratch());
        l
    }
}

impl UserSgprs {
    /// SGPRs taken, without padding.
    pub fn count(&self) -> u32 {
        u32::from(self.private_segment_buffer) * 4
            + u32::from(self.dispatch_ptr) * 2
            + u32::from(self.queue_ptr) * 2
            + u32::from(self.kernarg_segment_ptr) * 2
            + u32::from(self.dispatch_id) * 2
            + u32::from(self.flat_scratch_init) * 2
            + u32::from(self.private_segment_size)
            + u32::from(self.kernarg_preload_dwords)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn bytes_round_trip() {
        let d = Descriptor {
            lds_bytes: 256,
            scratch_bytes: 16,
            kernarg_size: 280,
            entry_offset: 0x1100,
            rsrc1: 0x00af_0040,
            rsrc2: 0x84,
            rsrc3: 1,
            properties: Properties::KERNARG_SEGMENT_PTR | Properties::WAVE32,
            kernarg_preload: 3 | 2 << 7,
        };
        assert_eq!(Descriptor::from_bytes(&d.to_bytes()), Some(d));
        assert_eq!(Descriptor::from_bytes(&d.to_bytes()[..63]), None);
    }

    #[test]
    fn layout_follows_the_user_count() {
        // As clang writes them for a gfx1100 kernel: 15 user SGPRs of which two are used.
        let d = Descriptor { rsrc2: 0x9e, properties: Properties::KERNARG_SEGMENT_PTR, ..Descriptor::default() };
        let l = d.user_sgpr_layout(Family::of_mach(0x41).unwrap());
        assert_eq!((l.kernarg_segment_ptr, l.system.workgroup_id), (Some(0), [Some(15), None, None]));
        // gfx906: private segment buffer and flat scratch in front, scratch offset behind the ids.
        let d = Descriptor {
            rsrc2: 1 | 8 << 1 | 1 << 7,
            properties: Properties::PRIVATE_SEGMENT_BUFFER
                | Properties::KERNARG_SEGMENT_PTR
                | Properties::FLAT_SCRATCH_INIT,
            ..Descriptor::default()
        };
        let l = d.user_sgpr_layout(Family::of_mach(0x2c).unwrap());
        assert_eq!((l.kernarg_segment_ptr, l.flat_scratch_init), (Some(4), Some(6)));
        assert_eq!((l.system.workgroup_id[0], l.system.scratch_wave_offset), (Some(8), Some(9)));
    }
}
