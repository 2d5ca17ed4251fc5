//! Instructions as the simulation of waves asks for them again and again: registers, each once, and what a SIMD's waves share.

use crate::chip::Chip;
use crate::instr::{Instr, Unit};
use crate::wave::Stall;

/// Registers of a wave, by [`barewave_isa::Reg`] number.
pub(crate) const REGISTERS: usize = 2048;
/// Scalar ones among them.
pub(crate) const SCALAR_REGISTERS: std::ops::Range<u16> = 1280..1436;
pub(crate) const SCALARS: usize = (SCALAR_REGISTERS.end - SCALAR_REGISTERS.start) as usize;

/// When a register's value is there, and which unit makes it.
#[derive(Clone, Copy)]
pub(crate) struct Ready(u64);

impl Ready {
    pub(crate) fn new(at: u64, by: Unit) -> Ready {
        Ready(at << 4 | by as u64)
    }
    pub(crate) fn at(self) -> u64 {
        self.0 >> 4
    }
    pub(crate) fn by(self, unit: Unit) -> bool {
        self.0 & 15 == unit as u64
    }
    pub(crate) fn by_vector(self) -> bool {
        self.by(Unit::Valu) || self.by(Unit::Trans) || self.by(Unit::Matrix)
    }
}

/// A register that an instruction reads or writes.
#[derive(Clone, Copy)]
pub(crate) struct Needed {
    pub(crate) register: u16,
    /// What a matrix instruction adds to and leaves in place: the next one need not wait for it.
    pub(crate) forwarded: bool,
    pub(crate) scalar: bool,
}

/// What all waves of a SIMD share: an instruction issues no earlier than its path is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// None.
    Free,
    /// The queue of an RDNA SIMD's vector ALU, and that with the transcendental unit.
    Queue,
    Special,
    /// The vector port of GCN and CDNA, and that with the matrix unit.
    Vector,
    Matrix,
    Salu,
    Smem,
    Lds,
    Vmem,
    Branch,
}
pub(crate) const PATHS: usize = Path::Branch as usize + 1;

impl Path {
    fn of(i: &Instr, quad: bool) -> Path {
        match i.unit {
            Unit::Trans if !quad => Path::Special,
            Unit::Valu if !quad && i.wide => Path::Special,
            Unit::Valu | Unit::Matrix if !quad => Path::Queue,
            Unit::Valu if i.on_matrix_path => Path::Matrix,
            Unit::Valu | Unit::Trans => Path::Vector,
            Unit::Matrix => Path::Matrix,
            Unit::Salu => Path::Salu,
            Unit::Smem => Path::Smem,
            Unit::Lds => Path::Lds,
            Unit::Vmem => Path::Vmem,
            Unit::Branch => Path::Branch,
            Unit::Export | Unit::Internal => Path::Free,
        }
    }

    /// Why a wave stands still that waits for it.
    pub(crate) fn stall(self) -> Stall {
        match self {
            Path::Matrix => Stall::Matrix,
            Path::Lds => Stall::Lds,
            Path::Vmem => Stall::Memory,
            _ => Stall::Unit,
        }
    }
}

/// What is asked of an instruction again and again.
pub(crate) struct Prepared {
    pub(crate) path: Path,
    /// Its registers, each once.
    pub(crate) needed: Vec<Needed>,
}

impl Prepared {
    pub(crate) fn of(chip: &Chip, instrs: &[Instr]) -> Vec<Prepared> {
        instrs.iter().map(|i| Prepared::new(i, chip.quad_cadence())).collect()
    }

    fn new(i: &Instr, quad: bool) -> Prepared {
        let mut needed: Vec<Needed> = Vec::with_capacity(i.reads.len() + i.writes.len());
        for r in i.reads.iter().chain(&i.writes) {
            let register = r % REGISTERS as u16;
            if needed.iter().all(|n| n.register != register) {
                let forwarded =
                    i.unit == Unit::Matrix && i.accumulator.is_some_and(|a| *r >= a && i.writes.contains(r));
                needed.push(Needed { register, forwarded, scalar: SCALAR_REGISTERS.contains(r) });
            }
        }
        Prepared { path: Path::of(i, quad), needed }
    }
}
