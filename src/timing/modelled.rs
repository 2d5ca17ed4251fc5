//! What the model says about a launch: clocks of its parts, each alone, what bounds it, and the costs of its lines.

use crate::chained::Alone;
use crate::chip::{Chip, Evidence};
use crate::instr::Instr;
use crate::memory::Traffic;
use crate::record::Trace;
use crate::stall::Stall;
use crate::waiting;
use crate::wave::Outcome;
use barewave_isa::Occupancy;
use std::sync::Arc;

/// What keeps a launch from being faster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bound {
    /// Matrix units.
    Matrix,
    /// Vector ALUs.
    Valu,
    /// LDS bandwidth.
    Lds,
    /// Second-level cache bandwidth.
    L2,
    /// Memory bandwidth.
    Dram,
    /// Waiting: dependencies, memory latency, barriers.
    Latency,
    /// The cost of a launch.
    Launch,
    /// A last round that fills few compute units, or a device that is not filled at all.
    Tail,
}

impl Bound {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Matrix => "matrix",
            Bound::Valu => "valu",
            Bound::Lds => "lds",
            Bound::L2 => "l2",
            Bound::Dram => "dram",
            Bound::Latency => "latency",
            Bound::Launch => "launch",
            Bound::Tail => "tail",
        }
    }
}

/// Clocks that the parts of a launch need, each alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// Compute units, with the last round, and that alone.
    pub(crate) compute: f64,
    pub(crate) tail: f64,
    pub(crate) dispatch: f64,
    pub(crate) l2: f64,
    pub(crate) fabric: f64,
    pub(crate) dram: f64,
    /// Behind everything else.
    pub(crate) adding: f64,
    /// What waiting for other workgroups takes beside all that.
    pub(crate) waiting: f64,
    /// Share of the device that rounds fill, on average.
    pub(crate) used: f64,
}

impl Parts {
    /// Takes the traffic's clocks at each level.
    pub(crate) fn memory(&mut self, chip: &Chip, traffic: &Traffic) {
        self.l2 = traffic.l2 / (chip.l2_bytes_clk * chip.l2_share);
        self.fabric = if chip.mall_mib > 0.0 { traffic.fabric / chip.mall_bytes_clk.max(1.0) } else { 0.0 };
        self.dram = traffic.dram / chip.dram_bytes_clk();
    }

    /// Clocks that memory needs for the traffic.
    pub(crate) fn moved(&self) -> f64 {
        self.l2.max(self.fabric).max(self.dram)
    }

    /// Those of steps side by side, of which compute units take so long. Levels of memory move what all need.
    pub(crate) fn beside(all: &[Parts], compute: f64) -> Parts {
        let sum = |of: fn(&Parts) -> f64| all.iter().map(of).sum();
        let most = |of: fn(&Parts) -> f64| all.iter().map(of).fold(0.0, f64::max);
        Parts {
            compute: compute.max(most(|p| p.compute)),
            tail: most(|p| p.tail),
            dispatch: sum(|p| p.dispatch),
            l2: sum(|p| p.l2),
            fabric: sum(|p| p.fabric),
            dram: sum(|p| p.dram),
            adding: most(|p| p.adding),
            waiting: most(|p| p.waiting),
            used: sum(|p| p.used).min(1.0),
        }
    }

    /// Clocks of all together without a launch's cost. The first data is a latency away.
    pub(crate) fn body(&self, chip: &Chip) -> f64 {
        let moved = self.moved();
        self.compute.max(self.dispatch).max(if moved > 0.0 { moved + chip.dram } else { 0.0 })
            + self.waiting
            + self.adding
    }
}

/// What the model says about a launch.
#[derive(Clone, Debug)]
pub struct Modelled {
    /// Clocks from the first instruction to the last, without the cost of the launch.
    pub clocks: f64,
    /// Clocks with the cost of the launch, at the boost clock.
    pub clocks_with_launch: f64,
    /// Microseconds with the cost of the launch, at the boost clock.
    pub microseconds: f64,
    /// The same at the clock that the chip was measured to keep, where that is known and vector or matrix units are busy.
    pub sustained_microseconds: Option<f64>,
    /// What bounds it.
    pub bound: Bound,
    /// Shares of the time that vector ALUs, matrix units and LDS are busy on a full compute unit.
    pub busy: [f64; 3],
    /// Workgroups at once.
    pub occupancy: Occupancy,
    /// Workgroups of the launch.
    pub workgroups: u64,
    /// Rounds over all compute units; the last may be partly filled.
    pub rounds: f64,
    /// Instructions that one wave executes, mean.
    pub instructions: f64,
    /// Traffic.
    pub traffic: Traffic,
    /// It follows others in their launch: what stands for the cost of a launch is the way of their last store to where it is seen.
    pub behind: bool,
    /// How workgroups of a step that shares a launch go on, and what it adds to those before it.
    pub(crate) alone: Option<Alone>,
    pub(crate) added: Option<f64>,
    pub(crate) parts: Parts,
    /// Clocks that waves of one compute unit stood still, by reason, most first.
    pub stalls: Vec<(Stall, u64)>,
    /// Hardware measurements exist for the target.
    pub validated: bool,
    /// Where the first workgroup does not stand for all, in words.
    pub approximations: Vec<String>,
}

impl Modelled {
    /// Clocks that each part would need alone: compute units, dispatch, L2, fabric, memory.
    pub fn parts(&self) -> Vec<(&'static str, f64)> {
        let Parts { compute, dispatch, l2, fabric, dram, adding, waiting, .. } = self.parts;
        let mut out =
            vec![("compute units", compute), ("dispatch", dispatch), ("l2", l2), ("fabric", fabric), ("dram", dram)];
        let more = [("waiting for workgroups", waiting), ("adding parts", adding)];
        out.extend(more.into_iter().filter(|p| p.1 > 0.0));
        out
    }

    /// How its workgroups go on, where it is a step that shares a launch.
    pub(crate) fn alone(&self) -> Option<Alone> {
        let moved = self.parts.moved() / self.workgroups.max(1) as f64;
        self.alone.map(|a| Alone { moved, adding: self.parts.adding, ..a })
    }

    /// It takes so long behind others in its launch.
    pub(crate) fn adds(&mut self, chip: &Chip, clocks: f64) {
        self.added = Some(clocks);
        self.settle(chip);
    }

    /// It takes so long beside others, of which the first one has the launch.
    pub(crate) fn shares(&mut self, chip: &Chip, first: bool, clocks: f64) {
        self.behind = !first;
        self.adds(chip, clocks);
    }

    /// Adds the times of another step of its launch.
    pub fn append(&mut self, other: &Modelled) {
        self.clocks += other.clocks;
        self.clocks_with_launch += other.clocks_with_launch;
        self.microseconds += other.microseconds;
    }

    /// Adds clocks behind everything else.
    pub fn extend(&mut self, chip: &Chip, clocks: f64) {
        self.parts.adding += clocks.max(0.0);
        self.settle(chip);
    }

    /// The same launch with another one's traffic: where its waits are those of a run right behind another, but memory is not.
    pub fn moving(&mut self, chip: &Chip, traffic: Traffic) {
        self.traffic = traffic;
        self.parts.memory(chip, &traffic);
        self.settle(chip);
    }

    /// Times and the bound, by the parts.
    pub(crate) fn settle(&mut self, chip: &Chip) {
        let body = self.added.unwrap_or_else(|| self.parts.body(chip));
        // What was added has waited.
        let launch = match self.added {
            _ if !self.behind => chip.launch_us * chip.boost_mhz,
            Some(_) => 0.0,
            None => waiting::seen(chip),
        };
        let Parts { compute, tail, dispatch, l2, fabric, dram, used, .. } = self.parts;
        let busy = self.busy;
        let beside = self.added.map_or(self.parts.adding + self.parts.waiting, |_| 0.0);
        let waits = body - beside > compute;
        self.bound = match () {
            () if launch > body => Bound::Launch,
            () if waits && body <= dispatch => Bound::Launch,
            () if waits && l2 >= fabric.max(dram) => Bound::L2,
            () if waits => Bound::Dram,
            () if used < 0.5 || tail > 0.5 * compute && self.rounds >= 1.0 => Bound::Tail,
            () if busy[1] > 0.6 && busy[1] >= busy[0].max(busy[2]) => Bound::Matrix,
            () if busy[2] > 0.6 && busy[2] >= busy[0] => Bound::Lds,
            () if busy[0] > 0.6 => Bound::Valu,
            () => Bound::Latency,
        };
        let measured = chip.evidence("sustained_mhz") == Some(Evidence::Measured);
        let hot = matches!(self.bound, Bound::Matrix | Bound::Valu) && measured;
        self.sustained_microseconds = hot.then(|| body / chip.sustained_mhz + launch / chip.boost_mhz);
        self.clocks = body;
        self.clocks_with_launch = body + launch;
        self.microseconds = chip.microseconds(self.clocks_with_launch);
    }
}

/// A recorded launch with its simulation, for listings.
pub struct Detailed {
    /// The summary.
    pub modelled: Modelled,
    /// Instructions of the kernel that were executed.
    pub instrs: Arc<[Instr]>,
    /// Their addresses in the code object.
    pub addresses: Arc<[u64]>,
    /// The first workgroup's waves.
    pub waves: Vec<Trace>,
    /// The simulation of a full compute unit; its first waves are those above.
    pub outcome: Outcome,
}

/// What an instruction costs a wave over a whole launch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LineCost {
    /// Its address in the code object.
    pub address: u64,
    /// How often a wave executes it.
    pub executions: f64,
    /// Clocks from the issue before it to its own, all executions together.
    pub clocks: f64,
    /// What it waited for longest.
    pub stall: Stall,
}

impl Detailed {
    /// Where the first wave's time goes, by address.
    pub fn lines(&self) -> Vec<LineCost> {
        let (Some(wave), Some(issued)) = (self.waves.first(), self.outcome.issued.first()) else { return Vec::new() };
        let mut lines: Vec<Option<(LineCost, f64)>> = vec![None; self.addresses.len()];
        let mut before = 0;
        for ((step, weight), issued) in wave.steps.iter().zip(wave.weights()).zip(issued) {
            let clocks = issued.at().saturating_sub(before) as f64 * weight;
            before = issued.at();
            let address = self.addresses[step.instr as usize];
            let none = LineCost { address, executions: 0.0, clocks: 0.0, stall: Stall::None };
            let (line, longest) = lines[step.instr as usize].get_or_insert((none, 0.0));
            line.executions += weight;
            line.clocks += clocks;
            if clocks > *longest {
                (line.stall, *longest) = (issued.why(), clocks);
            }
        }
        let mut lines: Vec<LineCost> = lines.into_iter().flatten().map(|l| l.0).collect();
        lines.sort_by_key(|l| l.address);
        lines
    }
}
