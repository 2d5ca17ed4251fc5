//! Registers, named the same on every target.
//!
//! A [`Reg`] is one 32-bit register of a wave: the numbers below are ours, not the hardware's source codes
//! (those differ between generations: `m0` is 124 on GCN and 125 on RDNA3). Encoder and decoder translate.

use std::fmt;

/// One 32-bit register. VGPRs and AGPRs hold 32 bits per lane, everything else 32 bits per wavefront.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u16);

/// The file a register lives in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RegFile {
    /// Vector register (`v0`).
    Vgpr,
    /// Accumulation vector register of CDNA (`a0`).
    Agpr,
    /// Scalar register (`s0`).
    Sgpr,
    /// Trap handler scalar register (`ttmp0`).
    Ttmp,
    /// Anything that has a name of its own: `vcc_lo`, `exec_hi`, `m0`, `scc`, `src_shared_base`, ...
    Special,
}

impl Reg {
    /// First VGPR; VGPR n is `Reg(n)`.
    pub const V0: Reg = Reg(0);
    /// First AGPR.
    pub const A0: Reg = Reg(1024);
    /// First SGPR.
    pub const S0: Reg = Reg(1280);
    /// First trap temporary.
    pub const TTMP0: Reg = Reg(1408);
    /// Low half of the vector condition code.
    pub const VCC_LO: Reg = Reg(1424);
    /// High half of the vector condition code.
    pub const VCC_HI: Reg = Reg(1425);
    /// Low half of the execution mask.
    pub const EXEC_LO: Reg = Reg(1426);
    /// High half of the execution mask.
    pub const EXEC_HI: Reg = Reg(1427);
    /// Low half of the flat scratch base (gfx8, gfx9).
    pub const FLAT_SCRATCH_LO: Reg = Reg(1428);
    /// High half of the flat scratch base.
    pub const FLAT_SCRATCH_HI: Reg = Reg(1429);
    /// Low half of the XNACK mask (gfx8, gfx9).
    pub const XNACK_MASK_LO: Reg = Reg(1430);
    /// High half of the XNACK mask.
    pub const XNACK_MASK_HI: Reg = Reg(1431);
    /// Memory and lane-select register.
    pub const M0: Reg = Reg(1432);
    /// Reads as zero, ignores writes (gfx10+).
    pub const NULL: Reg = Reg(1433);
    /// Scalar condition code, one bit.
    pub const SCC: Reg = Reg(1434);
    /// One when VCC is zero (read only).
    pub const VCCZ: Reg = Reg(1435);
    /// One when EXEC is zero (read only).
    pub const EXECZ: Reg = Reg(1436);
    /// `lds_direct`/`src_lds_direct` (read only).
    pub const LDS_DIRECT: Reg = Reg(1437);
    /// 32-bit view of the LDS aperture base; the 64-bit operand `src_shared_base` starts here.
    pub const SHARED_BASE: Reg = Reg(1438);
    /// LDS aperture limit.
    pub const SHARED_LIMIT: Reg = Reg(1440);
    /// Scratch aperture base.
    pub const PRIVATE_BASE: Reg = Reg(1442);
    /// Scratch aperture limit.
    pub const PRIVATE_LIMIT: Reg = Reg(1444);
    /// `src_pops_exiting_wave_id`.
    pub const POPS_EXITING_WAVE_ID: Reg = Reg(1446);
    /// `src_flat_scratch_base_lo` (gfx1250).
    pub const FLAT_SCRATCH_BASE_LO: Reg = Reg(1448);
    /// `src_flat_scratch_base_hi` (gfx1250).
    pub const FLAT_SCRATCH_BASE_HI: Reg = Reg(1449);
    /// The MODE hardware register (implicit operand of floating-point instructions).
    pub const MODE: Reg = Reg(1450);
    /// Trap handler base address, low half (gfx8).
    pub const TBA_LO: Reg = Reg(1451);
    /// Trap handler base address, high half (gfx8).
    pub const TBA_HI: Reg = Reg(1452);
    /// Trap handler memory address, low half (gfx8).
    pub const TMA_LO: Reg = Reg(1453);
    /// Trap handler memory address, high half (gfx8).
    pub const TMA_HI: Reg = Reg(1454);
    /// One past the last register number: the size of a table indexed by `Reg`.
    pub const COUNT: usize = 1456;

    /// VGPR `n`.
    #[inline]
    pub const fn v(n: u16) -> Reg {
        Reg(n)
    }
    /// AGPR `n`.
    pub const fn a(n: u16) -> Reg {
        Reg(Self::A0.0 + n)
    }
    /// SGPR `n`.
    #[inline]
    pub const fn s(n: u16) -> Reg {
        Reg(Self::S0.0 + n)
    }
    /// Trap temporary `n`.
    pub const fn ttmp(n: u16) -> Reg {
        Reg(Self::TTMP0.0 + n)
    }
    /// The file this register lives in.
    #[inline]
    pub const fn file(self) -> RegFile {
        match self.0 {
            0..1024 => RegFile::Vgpr,
            1024..1280 => RegFile::Agpr,
            1280..1408 => RegFile::Sgpr,
            1408..1424 => RegFile::Ttmp,
            _ => RegFile::Special,
        }
    }
    /// Number within its file (`v7` is 7); for special registers the distance from [`Reg::VCC_LO`].
    #[inline]
    pub const fn index(self) -> u16 {
        match self.file() {
            RegFile::Vgpr => self.0,
            RegFile::Agpr => self.0 - Self::A0.0,
            RegFile::Sgpr => self.0 - Self::S0.0,
            RegFile::Ttmp => self.0 - Self::TTMP0.0,
            RegFile::Special => self.0 - Self::VCC_LO.0,
        }
    }
    /// True for VGPRs and AGPRs.
    #[inline]
    pub const fn is_vector(self) -> bool {
        self.0 < Self::S0.0
    }
    /// The register `n` further on in the same file.
    #[inline]
    pub const fn offset(self, n: u16) -> Reg {
        Reg(self.0 + n)
    }
}

/// Which half of a 32-bit register a 16-bit operand names (real true16: `v1.l`, `v1.h`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Half {
    /// The whole register.
    #[default]
    Full,
    /// Bits 15:0.
    Lo,
    /// Bits 31:16.
    Hi,
}

/// A run of consecutive 32-bit registers, read or written as one operand (`v[4:7]`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Regs {
    /// First register of the run.
    pub first: Reg,
    /// Length in dwords, 1 to 32.
    pub dwords: u8,
    /// Which half, for 16-bit operands.
    pub half: Half,
}

impl Regs {
    /// `dwords` registers from `first`.
    #[inline]
    pub const fn new(first: Reg, dwords: u8) -> Regs {
        Regs { first, dwords, half: Half::Full }
    }
    /// VGPRs `n ..`.
    #[inline]
    pub const fn v(n: u16, dwords: u8) -> Regs {
        Regs::new(Reg::v(n), dwords)
    }
    /// SGPRs `n ..`.
    #[inline]
    pub const fn s(n: u16, dwords: u8) -> Regs {
        Regs::new(Reg::s(n), dwords)
    }
    /// The registers of the run, in order.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        (0..self.dwords as u16).map(move |i| self.first.offset(i))
    }
    /// True when the two runs share a register.
    pub const fn overlaps(self, other: Regs) -> bool {
        self.first.0 < other.first.0 + other.dwords as u16 && other.first.0 < self.first.0 + self.dwords as u16
    }
}

/// Vector condition code as a pair (wave64 mask).
pub const VCC: Regs = Regs::new(Reg::VCC_LO, 2);
/// Execution mask as a pair.
pub const EXEC: Regs = Regs::new(Reg::EXEC_LO, 2);

impl From<Reg> for Regs {
    fn from(r: Reg) -> Regs {
        Regs::new(r, 1)
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Regs::from(*self), f)
    }
}

impl Regs {
    /// Its name when it is a special register, and has one.
    pub fn special_name(self) -> Option<&'static str> {
        let special = self.first.file() == RegFile::Special;
        special.then(|| special_name(self.first, self.dwords)).filter(|n| *n != "?")
    }
}

impl fmt::Debug for Regs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As LLVM prints it: `v1`, `v[2:3]`, `s[4:7]`, `vcc`, `vcc_lo`, `exec`, `m0`, `v1.h`.
impl fmt::Display for Regs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.first.index();
        let prefix = match self.first.file() {
            RegFile::Vgpr => "v",
            RegFile::Agpr => "a",
            RegFile::Sgpr => "s",
            RegFile::Ttmp => "ttmp",
            RegFile::Special => return f.write_str(special_name(self.first, self.dwords)),
        };
        match self.dwords {
            1 => write!(f, "{prefix}{n}")?,
            d => write!(f, "{prefix}[{n}:{}]", n + d as u16 - 1)?,
        }
        match self.half {
            Half::Full => Ok(()),
            Half::Lo => f.write_str(".l"),
            Half::Hi => f.write_str(".h"),
        }
    }
}

/// Name of a special register operand of `dwords` dwords.
pub(crate) fn special_name(first: Reg, dwords: u8) -> &'static str {
    match (first, dwords) {
        (Reg::VCC_LO, 1) => "vcc_lo",
        (Reg::VCC_LO, _) => "vcc",
        (Reg::VCC_HI, _) => "vcc_hi",
        (Reg::EXEC_LO, 1) => "exec_lo",
        (Reg::EXEC_LO, _) => "exec",
        (Reg::EXEC_HI, _) => "exec_hi",
        (Reg::FLAT_SCRATCH_LO, 1) => "flat_scratch_lo",
        (Reg::FLAT_SCRATCH_LO, _) => "flat_scratch",
        (Reg::FLAT_SCRATCH_HI, _) => "flat_scratch_hi",
        (Reg::XNACK_MASK_LO, 1) => "xnack_mask_lo",
        (Reg::XNACK_MASK_LO, _) => "xnack_mask",
        (Reg::XNACK_MASK_HI, _) => "xnack_mask_hi",
        (Reg::M0, _) => "m0",
        (Reg::NULL, _) => "null",
        (Reg::SCC, _) => "scc",
        (Reg::VCCZ, _) => "src_vccz",
        (Reg::EXECZ, _) => "src_execz",
        (Reg::LDS_DIRECT, _) => "src_lds_direct",
        (Reg::SHARED_BASE, _) => "src_shared_base",
        (Reg::SHARED_LIMIT, _) => "src_shared_limit",
        (Reg::PRIVATE_BASE, _) => "src_private_base",
        (Reg::PRIVATE_LIMIT, _) => "src_private_limit",
        (Reg::POPS_EXITING_WAVE_ID, _) => "src_pops_exiting_wave_id",
        (Reg::FLAT_SCRATCH_BASE_LO, _) => "src_flat_scratch_base_lo",
        (Reg::FLAT_SCRATCH_BASE_HI, _) => "src_flat_scratch_base_hi",
        (Reg::MODE, _) => "mode",
        (Reg::TBA_LO, 1) => "tba_lo",
        (Reg::TBA_LO, _) => "tba",
        (Reg::TBA_HI, _) => "tba_hi",
        (Reg::TMA_LO, 1) => "tma_lo",
        (Reg::TMA_LO, _) => "tma",
        (Reg::TMA_HI, _) => "tma_hi",
        _ => "?",
    }
}
