//! Why waves stand still, as far as the simulation tells.

/// Why an instruction did not issue earlier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Stall {
    /// It did not have to wait.
    None,
    /// The wave's own issue rate.
    Issue,
    /// A result of the vector or scalar ALU.
    Dependency,
    /// The matrix unit, or a result of it.
    Matrix,
    /// Its unit was busy with other waves.
    Unit,
    /// Code that is not in the instruction cache yet.
    Code,
    /// LDS or scalar loads that it waits for, or the LDS port.
    Lds,
    /// Memory that it waits for, or the port to it.
    Memory,
    /// A barrier.
    Barrier,
}

impl Stall {
    /// Name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Stall::None => "",
            Stall::Issue => "issue",
            Stall::Dependency => "dependency",
            Stall::Matrix => "matrix",
            Stall::Unit => "unit busy",
            Stall::Code => "code",
            Stall::Lds => "lds",
            Stall::Memory => "memory",
            Stall::Barrier => "barrier",
        }
    }
}

/// All of them, in the order of their numbers.
pub(crate) const STALLS: [Stall; 9] = [
    Stall::None,
    Stall::Issue,
    Stall::Dependency,
    Stall::Matrix,
    Stall::Unit,
    Stall::Code,
    Stall::Lds,
    Stall::Memory,
    Stall::Barrier,
];

/// When an instruction was issued, and why not earlier, in one word: a simulation keeps one for each that it goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issued(u64);

impl Issued {
    pub(crate) fn new(at: u64, why: Stall) -> Issued {
        Issued(at << 4 | why as u64)
    }

    /// The clock.
    pub fn at(self) -> u64 {
        self.0 >> 4
    }

    /// Why not earlier.
    pub fn why(self) -> Stall {
        STALLS[(self.0 & 15) as usize]
    }
}
