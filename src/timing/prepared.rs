//! Instructions as the simulation of waves asks for them again and again: registers, each once, and what a SIMD's waves share.

use crate::chip::Chip;
use crate::instr::{Instr, Meeting, Unit};
use crate::stall::Stall;
use barewave_isa::Reg;
use rustc_hash::{FxHashMap, FxHashSet};

/// Registers of a wave, by [`barewave_isa::Reg`] number.
pub(crate) const REGISTERS: usize = 2048;
/// Scalar ones among them.
pub(crate) const SCALAR_REGISTERS: std::ops::Range<u16> = 1280..1436;
pub(crate) const SCALARS: usize = (SCALAR_REGISTERS.end - SCALAR_REGISTERS.start) as usize;

/// Counters that instructions wait for ([`barewave_isa::Counter`]).
pub(crate) const COUNTERS: usize = 8;

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
    /// Which of [`Program::registers`].
    pub(crate) register: u16,
    /// It is read; else only written.
    pub(crate) read: bool,
    /// What a matrix instruction adds to and leaves in place: the next one need not wait for it.
    pub(crate) forwarded: bool,
    pub(crate) scalar: bool,
}

/// A register whose value is interlocked.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// Which of [`Program::registers`].
    pub(crate) register: u16,
    /// A scalar one that the vector ALU writes (RDNA): it is there some clocks behind issue.
    pub(crate) late: bool,
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

/// Clocks of a chip that issue asks for, as whole numbers.
pub(crate) struct Clocks {
    /// Between two turns of a SIMD.
    pub(crate) turn: u64,
    pub(crate) lds_backlog: u64,
    pub(crate) memory_backlog: u64,
    pub(crate) wait_release: u64,
    pub(crate) valu_to_memory: u64,
    pub(crate) valu_to_scalar: u64,
    pub(crate) scalar_read: u64,
    pub(crate) smem_hit: u64,
    pub(crate) smem_cold: u64,
    pub(crate) branch_taken: u64,
    pub(crate) vector_retire: u64,
    pub(crate) vector_queue: usize,
    pub(crate) dispatch: u64,
    pub(crate) lds_latency: u64,
}

impl Clocks {
    fn of(c: &Chip) -> Clocks {
        Clocks {
            turn: if c.quad_cadence() { 4 } else { 1 },
            lds_backlog: c.lds_backlog as u64,
            memory_backlog: c.memory_backlog as u64,
            wait_release: c.wait_release as u64,
            valu_to_memory: c.valu_to_memory as u64,
            valu_to_scalar: c.valu_to_scalar as u64,
            scalar_read: c.scalar_read as u64,
            smem_hit: c.smem_hit as u64,
            smem_cold: c.smem_cold as u64,
            branch_taken: c.branch_taken as u64,
            vector_retire: c.vector_retire as u64,
            vector_queue: c.vector_queue as usize,
            dispatch: c.dispatch_clk as u64,
            lds_latency: c.lds_latency as u64,
        }
    }
}

/// A part of one of the lists of [`Program`].
#[derive(Clone, Copy)]
pub(crate) struct Span {
    first: u32,
    len: u32,
}

impl Span {
    /// Adds to a list.
    fn add<T>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) -> Span {
        let first = list.len();
        list.extend(more);
        Span { first: first as u32, len: (list.len() - first) as u32 }
    }

    fn of<T>(self, list: &[T]) -> &[T] {
        &list[self.first as usize..(self.first + self.len) as usize]
    }
}

/// What is asked of an instruction again and again, in as few bytes as that takes.
#[derive(Clone, Copy)]
pub(crate) struct Prepared {
    pub(crate) unit: Unit,
    pub(crate) path: Path,
    /// Executed by the vector ALU, transcendental and matrix unit included.
    pub(crate) vector: bool,
    /// See [`Instr`].
    pub(crate) wide: bool,
    pub(crate) blocks_vector: bool,
    pub(crate) free: bool,
    pub(crate) priority: Option<u8>,
    pub(crate) meeting: Option<Meeting>,
    pub(crate) busy: u32,
    pub(crate) latency: u32,
    pub(crate) idle: u32,
    /// Clocks behind the last scalar instruction of its wave at which it may issue (RDNA).
    pub(crate) after_scalar: Option<u32>,
    needed: Span,
    written: Span,
    masks: Span,
    waits: Span,
    counters: Span,
}

const NO_SPAN: Span = Span { first: 0, len: 0 };

/// What a wave without instructions is at.
pub(crate) const NOTHING: &Prepared = &Prepared {
    unit: Unit::Internal,
    path: Path::Free,
    vector: false,
    wide: false,
    blocks_vector: false,
    free: true,
    priority: None,
    meeting: None,
    busy: 0,
    latency: 0,
    idle: 0,
    after_scalar: None,
    needed: NO_SPAN,
    written: NO_SPAN,
    masks: NO_SPAN,
    waits: NO_SPAN,
    counters: NO_SPAN,
};

/// Registers of a kernel that anything may have to wait for.
struct Tracked {
    /// Written by instructions whose results are interlocked: what is only loaded is waited for with counters.
    interlocked: FxHashSet<u16>,
    /// Scalar registers, counted from the first one, that scalar instructions write.
    masks: FxHashSet<u16>,
}

impl Tracked {
    fn of(instrs: &[Instr]) -> Tracked {
        let in_memory = |i: &&Instr| matches!(i.unit, Unit::Lds | Unit::Vmem | Unit::Smem);
        let scalar = |i: &&Instr| i.unit == Unit::Salu;
        let masks = instrs.iter().filter(scalar).flat_map(|i| &i.writes).filter(|r| SCALAR_REGISTERS.contains(r));
        Tracked {
            interlocked: instrs.iter().filter(|i| !in_memory(i)).flat_map(|i| i.writes.iter().copied()).collect(),
            masks: masks.map(|r| r - SCALAR_REGISTERS.start).collect(),
        }
    }
}

/// A kernel's instructions as the simulation reads them.
pub(crate) struct Program {
    pub(crate) clocks: Clocks,
    instrs: Vec<Prepared>,
    needed: Vec<Needed>,
    written: Vec<Written>,
    scalars: Vec<u16>,
    /// Its registers, numbered in the order in which they are met: a wave's state is as small as its kernel.
    numbers: FxHashMap<u16, u16>,
    waits: Vec<(u8, u8)>,
    counters: Vec<u8>,
}

impl Program {
    pub(crate) fn of(chip: &Chip, instrs: &[Instr]) -> Program {
        let mut out = Program {
            clocks: Clocks::of(chip),
            instrs: Vec::with_capacity(instrs.len()),
            needed: Vec::with_capacity(8 * instrs.len()),
            written: Vec::with_capacity(4 * instrs.len()),
            scalars: Vec::new(),
            numbers: FxHashMap::default(),
            waits: Vec::new(),
            counters: Vec::new(),
        };
        let tracked = Tracked::of(instrs);
        instrs.iter().for_each(|i| out.add(chip, i, &tracked));
        out
    }

    fn add(&mut self, chip: &Chip, i: &Instr, tracked: &Tracked) {
        let quad = chip.quad_cadence();
        let vector = matches!(i.unit, Unit::Valu | Unit::Trans | Unit::Matrix);
        let in_memory = matches!(i.unit, Unit::Lds | Unit::Vmem | Unit::Smem);
        let first = self.needed.len();
        let mut number = |r: &u16| {
            let next = self.numbers.len() as u16;
            *self.numbers.entry(*r).or_insert(next)
        };
        for (n, r) in i.reads.iter().chain(&i.writes).enumerate().filter(|(_, r)| tracked.interlocked.contains(r)) {
            let register = number(r);
            if self.needed[first..].iter().all(|n| n.register != register) {
                let forwarded =
                    i.unit == Unit::Matrix && i.accumulator.is_some_and(|a| *r >= a && i.writes.contains(r));
                let (read, scalar) = (n < i.reads.len(), SCALAR_REGISTERS.contains(r));
                self.needed.push(Needed { register, read, forwarded, scalar });
            }
        }
        let needed = Span { first: first as u32, len: (self.needed.len() - first) as u32 };
        // VCC has a path of its own.
        let named = |r: &u16| SCALAR_REGISTERS.contains(r) && *r != Reg::VCC_LO.0 && *r != Reg::VCC_HI.0;
        let after_scalar = match i.unit {
            _ if quad => None,
            Unit::Lds | Unit::Vmem | Unit::Smem => Some(chip.salu_to_memory as u32),
            Unit::Branch => Some(chip.salu_to_branch as u32),
            Unit::Valu if i.writes.iter().any(named) => Some(chip.salu_to_valu_scalar as u32),
            _ => None,
        };
        let scalars = |list: &[u16]| -> Vec<u16> {
            list.iter().filter(|r| SCALAR_REGISTERS.contains(r)).map(|r| r - SCALAR_REGISTERS.start).collect()
        };
        let masks = match () {
            () if quad => Vec::new(),
            () if vector => scalars(&i.reads).into_iter().filter(|r| tracked.masks.contains(r)).collect(),
            () if i.unit == Unit::Salu => scalars(&i.writes),
            () => Vec::new(),
        };
        // Loads are waited for with counters, not by interlock.
        let interlocked = i.writes.iter().filter(|_| !in_memory);
        let late = |r: &u16| !quad && vector && SCALAR_REGISTERS.contains(r);
        let written = interlocked.map(|r| Written { register: number(r), late: late(r) });
        self.instrs.push(Prepared {
            unit: i.unit,
            path: Path::of(i, quad),
            vector,
            wide: i.wide,
            blocks_vector: i.blocks_vector,
            free: i.free,
            priority: i.priority,
            meeting: i.meeting,
            busy: i.busy,
            latency: i.latency,
            idle: i.idle,
            after_scalar,
            needed,
            written: Span::add(&mut self.written, written),
            masks: Span::add(&mut self.scalars, masks),
            waits: Span::add(&mut self.waits, i.waits.iter().map(|(c, most)| (*c as u8 % COUNTERS as u8, *most))),
            counters: Span::add(&mut self.counters, i.counters.iter().map(|c| *c as u8 % COUNTERS as u8)),
        });
    }

    pub(crate) fn instr(&self, number: u32) -> &Prepared {
        &self.instrs[number as usize]
    }

    /// Its registers, each once.
    pub(crate) fn needed(&self, i: &Prepared) -> &[Needed] {
        i.needed.of(&self.needed)
    }

    /// How many registers it uses.
    pub(crate) fn registers(&self) -> usize {
        self.numbers.len()
    }

    /// Registers whose values are interlocked.
    pub(crate) fn written(&self, i: &Prepared) -> &[Written] {
        i.written.of(&self.written)
    }

    /// Scalar registers, counted from the first one, that a vector instruction reads or a scalar one writes (RDNA).
    pub(crate) fn masks(&self, i: &Prepared) -> &[u16] {
        i.masks.of(&self.scalars)
    }

    /// Counters that it waits for, and how much of each may be outstanding.
    pub(crate) fn waits(&self, i: &Prepared) -> &[(u8, u8)] {
        i.waits.of(&self.waits)
    }

    /// Counters that it increments.
    pub(crate) fn counters(&self, i: &Prepared) -> &[u8] {
        i.counters.of(&self.counters)
    }
}
