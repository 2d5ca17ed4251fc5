//! Occupancy: how many workgroups of a kernel a compute unit holds at once, and what limits them.
//!
//! A compute unit has SIMDs with a register file and wave slots each, one LDS, and a number of barriers. A wave takes
//! VGPRs in granules, so occupancy falls in steps as a kernel uses more of them; [`Target::vgpr_steps`] lists the
//! steps. The formulas are those of LLVM's `getNumWavesPerEUWithNumVGPRs`, `getOccupancyWithNumSGPRs` and
//! `getMaxWorkGroupsPerCU`; the numbers are facts of the target tables.

use crate::Target;
use std::fmt;

/// What a kernel asks of a compute unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resources {
    /// Lanes of a wave: 32 or 64.
    pub wave_size: u32,
    /// Workitems of a workgroup.
    pub workgroup_size: u32,
    /// VGPRs of a wave.
    pub vgprs: u32,
    /// AGPRs of a wave.
    pub agprs: u32,
    /// SGPRs of a wave, with VCC and its like.
    pub sgprs: u32,
    /// LDS of a workgroup in bytes.
    pub lds_bytes: u32,
    /// Its waves run on both compute units of a work group processor (RDNA): what is told is of a processor then.
    pub wgp_mode: bool,
}

/// What fits on a compute unit at once, or on a work group processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// Workgroups at once; 0 when not even one fits.
    pub workgroups: u32,
    /// Waves per SIMD that these make, rounded up.
    pub waves_per_simd: u32,
    /// What keeps another workgroup out.
    pub limit: OccupancyLimit,
}

/// What keeps another workgroup from a compute unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OccupancyLimit {
    /// Wave slots.
    Waves,
    /// Vector registers.
    Vgprs,
    /// Scalar registers.
    Sgprs,
    /// LDS.
    Lds,
    /// Barriers.
    Barriers,
}

/// Why a compute unit holds no workgroup of a kernel: what one needs, and what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unheld {
    /// What there is too little of.
    pub limit: OccupancyLimit,
    /// What a workgroup needs of it: bytes of LDS, otherwise registers or wave slots of the SIMD that has most of its waves.
    pub needed: u32,
    /// What there is.
    pub there: u32,
    /// Waves of the workgroup.
    pub waves: u32,
    /// SIMDs that these are spread over.
    pub simds: u32,
}

impl fmt::Display for Unheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unheld { limit, needed, there, waves, simds } = *self;
        let of_simd = match limit {
            OccupancyLimit::Lds => return write!(f, "a workgroup needs {needed} bytes of LDS, there are {there}"),
            OccupancyLimit::Barriers => return write!(f, "a workgroup needs {needed} barriers, there are {there}"),
            OccupancyLimit::Waves => "wave slots",
            OccupancyLimit::Vgprs => "vector registers",
            OccupancyLimit::Sgprs => "scalar registers",
        };
        write!(f, "a workgroup of {waves} waves on {simds} SIMDs needs {needed} {of_simd} of one, which has {there}")
    }
}

impl std::error::Error for Unheld {}

impl Target {
    /// Occupancy of a kernel of which a compute unit holds at least one workgroup: what holds none cannot be launched.
    pub fn held(self, r: &Resources) -> Result<Occupancy, Unheld> {
        let occupancy = self.occupancy(r);
        if occupancy.workgroups > 0 {
            return Ok(occupancy);
        }
        let t = self.info();
        let waves = r.workgroup_size.max(1).div_ceil(r.wave_size.max(1));
        let cus = if r.wgp_mode { 2 } else { 1 };
        let simds = t.simds * cus;
        let most = waves.div_ceil(simds);
        let (file, granule) = self.vgpr_file(r.wave_size);
        let vgprs = self.vector_registers(r.vgprs, r.agprs).next_multiple_of(granule);
        let (needed, there) = match occupancy.limit {
            OccupancyLimit::Waves => (most, t.max_waves),
            OccupancyLimit::Vgprs => (most * vgprs, file),
            OccupancyLimit::Sgprs => (most * r.sgprs, t.sgprs_per_simd),
            OccupancyLimit::Lds => (r.lds_bytes, t.lds_bytes * cus),
            OccupancyLimit::Barriers => (1, t.barriers * cus),
        };
        Err(Unheld { limit: occupancy.limit, needed, there, waves, simds })
    }

    /// Occupancy of a kernel.
    pub fn occupancy(self, r: &Resources) -> Occupancy {
        use OccupancyLimit::*;
        let t = self.info();
        let waves = r.workgroup_size.max(1).div_ceil(r.wave_size.max(1));
        let cus = if r.wgp_mode { 2 } else { 1 };
        let simds = t.simds * cus;
        let groups = |per_simd: u32| per_simd.min(t.max_waves) * simds / waves;
        let lds = r.lds_bytes.next_multiple_of(t.lds_granule.max(1));
        let limits = [
            (groups(t.max_waves), Waves),
            (groups(self.waves_by_vgprs(r.wave_size, r.vgprs, r.agprs)), Vgprs),
            (groups(self.waves_by_sgprs(r.sgprs)), Sgprs),
            ((t.lds_bytes * cus).checked_div(lds).unwrap_or(u32::MAX), Lds),
            (if waves > 1 { t.barriers * cus } else { u32::MAX }, Barriers),
        ];
        // Of equal limits the first in this order is named.
        let (mut workgroups, mut limit) = limits[0];
        for (n, what) in limits {
            if n < workgroups {
                (workgroups, limit) = (n, what);
            }
        }
        Occupancy { workgroups, waves_per_simd: (workgroups * waves).div_ceil(simds), limit }
    }

    /// Waves whose vector registers fit on a SIMD.
    fn waves_by_vgprs(self, wave_size: u32, vgprs: u32, agprs: u32) -> u32 {
        let (file, granule) = self.vgpr_file(wave_size);
        file / self.vector_registers(vgprs, agprs).max(1).next_multiple_of(granule)
    }

    /// Waves whose scalar registers fit on a SIMD.
    fn waves_by_sgprs(self, sgprs: u32) -> u32 {
        match self.info().sgprs_per_simd {
            0 => u32::MAX,
            file => file / sgprs.max(1),
        }
    }

    /// Registers of the file that decides occupancy: with one file for both kinds AGPRs begin behind the VGPRs at a
    /// multiple of four, with two files the fuller one decides.
    pub fn vector_registers(self, vgprs: u32, agprs: u32) -> u32 {
        match (self.info().unified_agprs, agprs) {
            (_, 0) => vgprs,
            (true, _) => vgprs.next_multiple_of(4) + agprs,
            (false, _) => vgprs.max(agprs),
        }
    }

    /// VGPRs per SIMD lane and granule for a wave size: a wave of 64 lanes takes two of a 32-lane register.
    fn vgpr_file(self, wave_size: u32) -> (u32, u32) {
        let t = self.info();
        let scale = |n: u32| n * t.wave_size / wave_size.max(1);
        (scale(t.vgprs_per_simd), scale(t.vgpr_granule).max(1))
    }

    /// Most vector registers with which `waves` waves fit on a SIMD.
    pub fn most_vgprs(self, wave_size: u32, waves: u32) -> u32 {
        let t = self.info();
        let (file, granule) = self.vgpr_file(wave_size);
        let addressable = t.named_vgprs() + if t.unified_agprs { t.max_agprs } else { 0 };
        (file / waves.max(1) / granule * granule).clamp(granule, addressable)
    }

    /// The occupancy steps: for each number of waves per SIMD that a kernel can reach, falling, the most vector
    /// registers that still reach it.
    pub fn vgpr_steps(self, wave_size: u32) -> Vec<(u32, u32)> {
        let mut steps: Vec<(u32, u32)> = Vec::new();
        for waves in (1..=self.info().max_waves).rev() {
            let most = self.most_vgprs(wave_size, waves);
            match steps.last() {
                Some(&(_, before)) if before == most => {}
                _ => steps.push((waves, most)),
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(wave_size: u32, workgroup_size: u32, vgprs: u32, lds_bytes: u32) -> Resources {
        Resources { wave_size, workgroup_size, vgprs, agprs: 0, sgprs: 16, lds_bytes, wgp_mode: false }
    }

    #[test]
    fn a_work_group_processor_holds_what_both_compute_units_do() {
        for (lds, workgroup) in [(0, 256), (20 << 10, 64), (64 << 10, 1024)] {
            let one = resources(32, workgroup, 64, lds);
            let cu = Target::GFX1100.occupancy(&one);
            let wgp = Target::GFX1100.occupancy(&Resources { wgp_mode: true, ..one });
            // What one compute unit has left and cannot use may fit one more on both.
            assert!((2 * cu.workgroups..=2 * cu.workgroups + 1).contains(&wgp.workgroups), "{cu:?} {wgp:?}");
        }
    }

    #[test]
    fn known_kernels() {
        // MI300X: 512 registers a lane, 8 waves a SIMD, 64 KiB of LDS.
        let of = |vgprs, lds, threads| {
            let o = Target::GFX942.occupancy(&resources(64, threads, vgprs, lds));
            (o.workgroups, o.waves_per_simd, o.limit)
        };
        assert_eq!(of(64, 0, 256), (8, 8, OccupancyLimit::Waves));
        assert_eq!(of(65, 0, 256), (7, 7, OccupancyLimit::Vgprs));
        assert_eq!(of(128, 0, 256), (4, 4, OccupancyLimit::Vgprs));
        assert_eq!(of(64, 33000, 256), (1, 1, OccupancyLimit::Lds));
        // Many small workgroups with barriers: 16 of them.
        assert_eq!(of(32, 0, 128), (16, 8, OccupancyLimit::Waves));
        assert_eq!(of(32, 70000, 64), (0, 0, OccupancyLimit::Lds));
    }

    #[test]
    fn what_does_not_fit_says_what_is_missing() {
        let unheld = |t: Target, r: &Resources| t.held(r).map_err(|e| e.to_string());
        // Four waves on each of four SIMDs, whose file has 256 registers a lane, or 512 in CDNA2 and later.
        let large = resources(64, 1024, 128, 0);
        assert_eq!(
            unheld(Target::GFX906, &large).unwrap_err(),
            "a workgroup of 16 waves on 4 SIMDs needs 512 vector registers of one, which has 256"
        );
        assert_eq!(unheld(Target::GFX90A, &large).unwrap().workgroups, 1);
        assert_eq!(unheld(Target::GFX906, &resources(64, 1024, 64, 0)).unwrap().workgroups, 1);
        // On RDNA the waves of a workgroup are on two SIMDs, or on four of a work group processor.
        let rdna = resources(32, 1024, 128, 0);
        assert_eq!(unheld(Target::GFX1030, &resources(32, 1024, 256, 0)).unwrap_err().split(' ').nth(9), Some("4096"));
        assert_eq!(unheld(Target::GFX1030, &Resources { wgp_mode: true, ..rdna }).unwrap().workgroups, 1);
        assert_eq!(
            unheld(Target::GFX942, &resources(64, 64, 32, 70000)).unwrap_err(),
            "a workgroup needs 70000 bytes of LDS, there are 65536"
        );
        // What fits by one of these fits by the other.
        for t in Target::all() {
            for vgprs in (8..=512).step_by(8) {
                for workgroup in [32, 64, 192, 256, 512, 768, 1024] {
                    for (wave, wgp_mode) in [(32, false), (32, true), (64, false), (64, true)] {
                        let r = Resources { wgp_mode, ..resources(wave, workgroup, vgprs, 0) };
                        match t.held(&r) {
                            Ok(o) => assert_eq!(o, t.occupancy(&r)),
                            Err(e) => assert!(e.needed > e.there && t.occupancy(&r).workgroups == 0, "{t} {r:?} {e:?}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn scalar_registers_limit_gcn_only() {
        let with = |t: Target, wave_size, sgprs| t.occupancy(&Resources { sgprs, ..resources(wave_size, 64, 24, 0) });
        let waves = |sgprs| with(Target::GFX906, 64, sgprs).waves_per_simd;
        assert_eq!([80, 88, 100, 102].map(waves), [10, 9, 8, 7]);
        assert_eq!(with(Target::GFX1100, 32, 106).waves_per_simd, 16);
    }

    #[test]
    fn accumulation_registers_share_the_file_or_have_their_own() {
        let waves =
            |t: Target, vgprs, agprs| t.occupancy(&Resources { agprs, ..resources(64, 64, vgprs, 0) }).waves_per_simd;
        assert_eq!(waves(Target::GFX908, 128, 128), 2);
        assert_eq!(waves(Target::GFX908, 64, 128), 2);
        assert_eq!(waves(Target::GFX90A, 128, 128), 2);
        assert_eq!(waves(Target::GFX90A, 61, 64), 4);
        assert_eq!(waves(Target::GFX90A, 65, 64), 3);
    }

    #[test]
    fn waves_of_64_lanes_take_double_registers() {
        let o = |wave| Target::GFX1100.occupancy(&resources(wave, wave, 96, 0)).waves_per_simd;
        assert_eq!((o(32), o(64)), (16, 8));
        let o = Target::GFX1100.occupancy(&resources(64, 64, 97, 0));
        assert_eq!(o.waves_per_simd, 7, "granule of 12 in wave64: 108 registers of 768");
    }

    #[test]
    fn steps_agree_with_the_formula() {
        for t in Target::all() {
            for wave in [32, 64] {
                let steps = t.vgpr_steps(wave);
                assert!(steps.is_sorted_by(|a, b| a.0 > b.0 && a.1 < b.1), "{t} {steps:?}");
                for &(waves, most) in &steps {
                    let plain = t.waves_by_vgprs(wave, most, 0).min(t.info().max_waves);
                    assert!(plain >= waves, "{t} wave{wave}: {most} registers give {plain} waves, not {waves}");
                }
            }
        }
        assert_eq!(Target::GFX942.vgpr_steps(64)[..4], [(8, 64), (7, 72), (6, 80), (5, 96)]);
        assert_eq!(Target::GFX906.vgpr_steps(64)[..3], [(10, 24), (9, 28), (8, 32)]);
    }
}
