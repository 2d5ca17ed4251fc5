//! The machine that code is decoded for: target and host.

use super::lanes::Host;
use super::wave::Quirks;
use crate::codeobj::Family;
use barewave_isa::{Quirk, Target};

/// Rows behind the registers, for handlers.
const SPARE_ROWS: usize = 1;

/// Facts that decoding needs.
#[derive(Clone, Copy)]
pub struct Machine {
    /// The target.
    pub target: Target,
    /// Its generation.
    pub family: Family,
    /// Host instruction set for kernels.
    pub host: Host,
    /// VGPR rows, after which AGPR rows follow.
    pub vgprs: u32,
    /// AGPR rows.
    pub agprs: u32,
}

impl Machine {
    /// The machine of a target on this host.
    pub fn new(target: Target) -> Option<Machine> {
        let info = target.info();
        let family = Family::of_mach(info.elf_mach)?;
        let (vgprs, agprs) = (info.max_vgprs.max(256), info.max_agprs);
        Some(Machine { target, family, host: Host::detect(), vgprs, agprs })
    }
    /// Rows of a register file.
    pub fn rows(&self) -> usize {
        (self.vgprs + self.agprs) as usize + SPARE_ROWS
    }
    /// Element offset of a row that no register uses.
    pub fn spare(&self, lanes: usize) -> u32 {
        (self.rows() - SPARE_ROWS) as u32 * lanes as u32
    }
    /// Generation details for handlers.
    pub fn quirks(&self) -> Quirks {
        let info = self.target.info();
        Quirks {
            half_crossbar: info.has(Quirk::HalfCrossbar),
            resource: info.resource,
            flat_scratch_sizes: info.has(Quirk::FlatScratchSizes),
            fnuz: info.fnuz,
            fixed_modes: !info.has(Quirk::IeeeMode),
            flat_scratch_hwregs: info.has(Quirk::FlatScratchHwregs),
        }
    }
}
