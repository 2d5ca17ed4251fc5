//! Instructions as the simulation of waves asks for them again and again: registers, each once, and what a SIMD's waves share.

use crate::chip::Chip;
use crate::instr::{Instr, Meeting, Unit};
use crate::lds;
use crate::record::Level;
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

/// Where data may come from.
const LEVELS: usize = Level::Cold as usize + 1;

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
    /// Until what a load asks for is there, by the [`Level`] that has it, and the same of a scalar one.
    pub(crate) levels: [u64; LEVELS],
    pub(crate) scalar_levels: [u64; LEVELS],
    /// When what waves wait for is there.
    pub(crate) opens: u64,
}

impl Clocks {
    fn of(c: &Chip) -> Clocks {
        let level = |level: Level, scalar: bool| {
            let clocks = match level {
                Level::L1 if scalar => c.smem_hit,
                Level::L1 => c.l1_hit,
                Level::L2 => c.l2_hit,
                Level::Mall if c.mall_hit > 0.0 => c.mall_hit,
                Level::Mall | Level::Dram => c.dram,
                Level::Cold if scalar => c.smem_cold,
                Level::Cold => c.vmem_cold,
            };
            clocks as u64
        };
        let all = [Level::L1, Level::L2, Level::Mall, Level::Dram, Level::Cold];
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
            levels: all.map(|l| level(l, false)),
            scalar_levels: all.map(|l| level(l, true)),
            opens: 0,
        }
    }
}

/// What is asked of an instruction again and again, in as few bytes as that takes.
#[derive(Clone, Copy)]
pub(crate) struct Prepared<'l> {
    pub(crate) unit: Unit,
    pub(crate) path: Path,
    /// Executed by the vector ALU, transcendental and matrix unit included.
    pub(crate) vector: bool,
    /// See [`Instr`].
    pub(crate) wide: bool,
    pub(crate) blocks_vector: bool,
    pub(crate) free: bool,
    /// Clocks of a port of LDS for what a load brings straight there.
    pub(crate) fills: u32,
    pub(crate) priority: Option<u8>,
    pub(crate) meeting: Option<Meeting>,
    pub(crate) busy: u32,
    pub(crate) latency: u32,
    pub(crate) idle: u32,
    /// Clocks behind the last scalar instruction of its wave at which it may issue (RDNA).
    pub(crate) after_scalar: Option<u32>,
    /// Its registers, each once.
    pub(crate) needed: &'l [Needed],
    /// Registers whose values are interlocked.
    pub(crate) written: &'l [Written],
    /// Scalar registers, counted from the first one, that a vector instruction reads or a scalar one writes (RDNA).
    pub(crate) masks: &'l [u16],
    /// Counters that it waits for, and how much of each may be outstanding.
    pub(crate) waits: &'l [(u8, u8)],
    /// Counters that it increments.
    pub(crate) counters: &'l [u8],
}

/// What a wave without instructions is at.
pub(crate) const NOTHING: &Prepared = &Prepared {
    unit: Unit::Internal,
    path: Path::Free,
    vector: false,
    wide: false,
    blocks_vector: false,
    free: true,
    fills: 0,
    priority: None,
    meeting: None,
    busy: 0,
    latency: 0,
    idle: 0,
    after_scalar: None,
    needed: &[],
    written: &[],
    masks: &[],
    waits: &[],
    counters: &[],
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

/// What of a kernel's instructions the simulation asks for, all behind each other: parts of these are each instruction's.
#[derive(Default)]
pub(crate) struct Lists {
    needed: Vec<Needed>,
    written: Vec<Written>,
    masks: Vec<u16>,
    waits: Vec<(u8, u8)>,
    counters: Vec<u8>,
    /// How much of each belongs to each instruction.
    lengths: Vec<[usize; 5]>,
    /// Its registers, numbered in the order in which they are met: a wave's state is as small as its kernel.
    numbers: FxHashMap<u16, u16>,
}

impl Lists {
    pub(crate) fn of(chip: &Chip, instrs: &[Instr]) -> Lists {
        let mut out = Lists {
            needed: Vec::with_capacity(8 * instrs.len()),
            written: Vec::with_capacity(4 * instrs.len()),
            ..Lists::default()
        };
        let tracked = Tracked::of(instrs);
        instrs.iter().for_each(|i| out.add(chip, i, &tracked));
        out
    }

    fn ends(&self) -> [usize; 5] {
        [self.needed.len(), self.written.len(), self.masks.len(), self.waits.len(), self.counters.len()]
    }

    fn add(&mut self, chip: &Chip, i: &Instr, tracked: &Tracked) {
        let quad = chip.quad_cadence();
        let before = self.ends();
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
        // Loads are waited for with counters, not by interlock.
        if !matches!(i.unit, Unit::Lds | Unit::Vmem | Unit::Smem) {
            let late = |r: &u16| !quad && on_vector(i) && SCALAR_REGISTERS.contains(r);
            self.written.extend(i.writes.iter().map(|r| Written { register: number(r), late: late(r) }));
        }
        let scalars = |list: &[u16]| -> Vec<u16> {
            list.iter().filter(|r| SCALAR_REGISTERS.contains(r)).map(|r| r - SCALAR_REGISTERS.start).collect()
        };
        if !quad && on_vector(i) {
            self.masks.extend(scalars(&i.reads).into_iter().filter(|r| tracked.masks.contains(r)));
        } else if !quad && i.unit == Unit::Salu {
            self.masks.extend(scalars(&i.writes));
        }
        self.waits.extend(i.waits.iter().map(|(c, most)| (*c as u8 % COUNTERS as u8, *most)));
        self.counters.extend(i.counters.iter().map(|c| *c as u8 % COUNTERS as u8));
        let ends = self.ends();
        self.lengths.push([0, 1, 2, 3, 4].map(|n| ends[n] - before[n]));
    }
}

/// The vector ALU executes it, or the transcendental or matrix unit.
fn on_vector(i: &Instr) -> bool {
    matches!(i.unit, Unit::Valu | Unit::Trans | Unit::Matrix)
}

/// A kernel's instructions as the simulation reads them.
pub(crate) struct Program<'l> {
    pub(crate) clocks: Clocks,
    instrs: Vec<Prepared<'l>>,
    /// How many registers it uses.
    pub(crate) registers: usize,
}

impl<'l> Program<'l> {
    /// Of these instructions, of which the lists are.
    pub(crate) fn of(chip: &Chip, instrs: &[Instr], lists: &'l Lists) -> Program<'l> {
        fn take<'l, T>(list: &mut &'l [T], n: usize) -> &'l [T] {
            let (own, rest) = list.split_at(n);
            *list = rest;
            own
        }
        let quad = chip.quad_cadence();
        let (mut needed, mut written, mut masks) = (&lists.needed[..], &lists.written[..], &lists.masks[..]);
        let (mut waits, mut counters) = (&lists.waits[..], &lists.counters[..]);
        // VCC has a path of its own.
        let named = |r: &u16| SCALAR_REGISTERS.contains(r) && *r != Reg::VCC_LO.0 && *r != Reg::VCC_HI.0;
        let prepared = |(i, n): (&Instr, &[usize; 5])| Prepared {
            unit: i.unit,
            path: Path::of(i, quad),
            vector: on_vector(i),
            wide: i.wide,
            blocks_vector: i.blocks_vector,
            free: i.free,
            fills: if i.fills_lds { lds::filled(chip, i.bytes) } else { 0 },
            priority: i.priority,
            meeting: i.meeting,
            busy: i.busy,
            latency: i.latency,
            idle: i.idle,
            after_scalar: match i.unit {
                _ if quad => None,
                Unit::Lds | Unit::Vmem | Unit::Smem => Some(chip.salu_to_memory as u32),
                Unit::Branch => Some(chip.salu_to_branch as u32),
                Unit::Valu if i.writes.iter().any(named) => Some(chip.salu_to_valu_scalar as u32),
                _ => None,
            },
            needed: take(&mut needed, n[0]),
            written: take(&mut written, n[1]),
            masks: take(&mut masks, n[2]),
            waits: take(&mut waits, n[3]),
            counters: take(&mut counters, n[4]),
        };
        let instrs = instrs.iter().zip(&lists.lengths).map(prepared).collect();
        Program { clocks: Clocks::of(chip), instrs, registers: lists.numbers.len() }
    }

    pub(crate) fn instr(&self, number: u32) -> &Prepared<'l> {
        &self.instrs[number as usize]
    }
}
