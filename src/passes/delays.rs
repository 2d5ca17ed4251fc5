//! Hints for the sequencer: `s_delay_alu` in front of instructions that have to wait for a result of the ALU.
//!
//! A result is not there in the clock behind its instruction. Hardware waits by itself, but while an instruction stands in the ALU
//! whose operand is missing, other waves of the SIMD issue nothing to it either. The hint says which result will be missing, and other waves
//! go first until it is there. It costs bytes and no clock: thread traces of gfx1100, whose code is a compiler's that gives such hints,
//! have dependent additions at the very distance of the latency, those of other waves between them, and the hints nowhere.
//!
//! Each block is gone through with a clock that an undisturbed wave would see: units and latencies are those of the tables. An instruction
//! that would wait gets a hint of what it waits for longest, if the distance is one that hints can tell. Two hints
//! share an instruction where they are near each other. What is pending goes from a block to the next one only where nothing else leads
//! there; a taken branch takes longer than most results. Masks that the vector ALU writes reach its next instruction in time, and memory
//! instructions and branches wait without a hint. Where one wave has the SIMD to itself there is nobody to go first, and no hint.
//!
//! Sources: "RDNA3" manual, S_DELAY_ALU; LLVM's AMDGPUInsertDelayAlu (what counts as a vector instruction) and Mesa's
//! aco_insert_delay_alu (what stalls without hints).

use crate::mir::{Function, MInst, Opnd};
use barewave_isa::{
    ALU_DELAY_SCALAR, ALU_DELAY_SKIP, ALU_DELAY_TRANS, ALU_DELAY_VECTOR, AluDelay, AluDelays, Flags, OpInfo, Pipe, Reg,
    Regs, Target, op,
};

/// Clocks of waiting for which a hint is given: one for a single clock saves what its own bytes cost.
const WORTH: u32 = 2;

/// Clocks that a branch takes which is not taken (thread traces of gfx1100 and gfx1201).
const BRANCH: u32 = 3;

/// Longer than any result takes.
const LONG: u32 = 1 << 10;

/// Inserts hints into a kernel of which so many waves share a SIMD. Operands must be physical.
pub fn delays(f: &mut Function, waves: u32) {
    if waves < 2 || !f.target.has(op::S_DELAY_ALU) {
        return;
    }
    let goes_on: Vec<bool> = only_from_above(f);
    let mut state = State::new();
    for (b, goes_on) in goes_on.into_iter().enumerate() {
        if !goes_on {
            state.clock += LONG;
        }
        let insts = &mut f.blocks[b].insts;
        let mut hints = Hints::default();
        for (i, inst) in insts.iter().enumerate() {
            hints.push(i, state.pass(f.target, inst));
        }
        if hints.0.is_empty() {
            continue;
        }
        let old = std::mem::take(insts);
        insts.reserve_exact(old.len() + hints.0.len());
        let mut hints = hints.0.into_iter().peekable();
        for (i, inst) in old.into_iter().enumerate() {
            if let Some((_, said)) = hints.next_if(|(at, _)| *at == i) {
                insts.push(MInst::new(op::S_DELAY_ALU, &[], &[said.immediate().into()]));
            }
            insts.push(inst);
        }
    }
}

/// Of each block, whether control comes to it from the one above and from nowhere else.
fn only_from_above(f: &Function) -> Vec<bool> {
    let mut from: Vec<(usize, bool)> = vec![(0, false); f.blocks.len()];
    for b in 0..f.blocks.len() {
        for s in f.successors(b) {
            from[s].0 += 1;
            from[s].1 |= s == b + 1;
        }
    }
    from.into_iter().map(|(n, above)| n == 1 && above).collect()
}

/// Hints of a block: in front of which instruction each stands, and what it says.
#[derive(Default)]
struct Hints(Vec<(usize, AluDelays)>);

impl Hints {
    /// A hint for instruction `i`.
    fn push(&mut self, i: usize, hint: AluDelay) {
        if hint == AluDelay::Nothing {
            return;
        }
        match self.0.last_mut() {
            // It has room for another one, and its first instruction stands right behind it.
            Some((at, said)) if said.second == AluDelay::Nothing && i - *at <= usize::from(ALU_DELAY_SKIP) => {
                (said.skip, said.second) = ((i - *at) as u8, hint);
            }
            _ => self.0.push((i, AluDelays { first: hint, ..AluDelays::default() })),
        }
    }
}

/// What makes results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Vector,
    Matrix,
    Trans,
    Scalar,
}

impl Unit {
    fn of(info: &OpInfo) -> Option<Unit> {
        match info.pipe {
            Pipe::Salu => Some(Unit::Scalar),
            Pipe::Matrix => Some(Unit::Matrix),
            Pipe::Trans => Some(Unit::Trans),
            Pipe::Valu if info.flags.has(Flags::TRANS) => Some(Unit::Trans),
            Pipe::Valu => Some(Unit::Vector),
            _ => None,
        }
    }
}

/// A result.
#[derive(Clone, Copy)]
struct Result {
    /// When it is there.
    ready: u32,
    unit: Unit,
    /// Which of its unit's instructions made it; see [`State::count`].
    number: u32,
}

/// A wave's way through the code, nobody beside it.
struct State {
    clock: u32,
    /// When the vector ALU has begun with what it was given, and the transcendental unit with its part.
    vector_free: u32,
    trans_free: u32,
    /// When all vector results are there, and all scalar ones.
    vector_done: u32,
    scalar_done: u32,
    /// Vector instructions so far, and transcendental ones, which are counted apart.
    vectors: u32,
    transes: u32,
    /// Of each register.
    results: Vec<Result>,
}

/// Registers ([`Reg`]) of a wave.
const REGISTERS: usize = 2048;

impl State {
    fn new() -> State {
        State {
            clock: 1,
            vector_free: 0,
            trans_free: 0,
            vector_done: 0,
            scalar_done: 0,
            vectors: 0,
            transes: 0,
            results: vec![Result { ready: 0, unit: Unit::Scalar, number: 0 }; REGISTERS],
        }
    }

    fn count(&self, unit: Unit) -> u32 {
        match unit {
            Unit::Vector | Unit::Matrix => self.vectors,
            Unit::Trans => self.transes,
            Unit::Scalar => 0,
        }
    }

    /// Goes past an instruction; the hint that it is worth.
    fn pass(&mut self, target: Target, inst: &MInst) -> AluDelay {
        let Some(info) = inst.info(target) else { return AluDelay::Nothing };
        let Some(unit) = Unit::of(info) else {
            self.pass_other(info, inst);
            return AluDelay::Nothing;
        };
        let mut hint = AluDelay::Nothing;
        if let Some(longest) = self.longest(info, inst, unit) {
            let wait = longest.ready - self.clock;
            if wait >= WORTH {
                hint = self.hint(longest, wait);
            }
            self.clock = longest.ready;
        }
        self.issue(info, inst, unit);
        hint
    }

    /// The result that an instruction waits for longest, of several the last one that it names.
    fn longest(&self, info: &OpInfo, inst: &MInst, unit: Unit) -> Option<Result> {
        let sum = (unit == Unit::Matrix).then(|| summed_in_place(inst)).flatten();
        let mut longest: Option<Result> = None;
        // Loops, and no chain of iterators: this is asked of every instruction.
        let mut look = |o: &Opnd| {
            let Opnd::P(regs) = *o else { return };
            for r in regs.iter() {
                let found = self.results[usize::from(r.0)];
                // a matrix instruction passes its sum on to the next one
                let waits = found.ready > self.clock && !(found.unit == Unit::Matrix && sum == Some(regs));
                if waits && longest.is_none_or(|l| found.ready >= l.ready) {
                    longest = Some(found);
                }
            }
        };
        inst.srcs.iter().for_each(&mut look);
        let read = inst.dsts.iter().zip(info.dsts).filter(|(_, slot)| slot.read);
        read.for_each(|(o, _)| look(o));
        longest
    }

    /// How to say which one it is.
    fn hint(&self, of: Result, wait: u32) -> AluDelay {
        let back = self.count(of.unit) - of.number + 1;
        let within = |most: u8| u8::try_from(back).ok().filter(|n| *n <= most);
        let hint = match of.unit {
            Unit::Vector | Unit::Matrix => within(ALU_DELAY_VECTOR).map(AluDelay::Vector),
            Unit::Trans => within(ALU_DELAY_TRANS).map(AluDelay::Trans),
            Unit::Scalar => Some(AluDelay::Scalar(wait.min(ALU_DELAY_SCALAR.into()) as u8)),
        };
        hint.unwrap_or_default()
    }

    /// An instruction of the ALU begins.
    fn issue(&mut self, info: &OpInfo, inst: &MInst, unit: Unit) {
        let busy = u32::from(info.busy).max(1);
        let start = match unit {
            Unit::Scalar => self.clock,
            Unit::Trans => {
                self.transes += 1;
                let start = self.clock.max(self.vector_free).max(self.trans_free);
                self.vector_free = start + 1;
                self.trans_free = start + busy;
                start
            }
            Unit::Vector | Unit::Matrix => {
                self.vectors += 1;
                // 64-bit instructions take the transcendental unit
                let wide = unit == Unit::Vector && busy > 1;
                let start = self.clock.max(self.vector_free).max(if wide { self.trans_free } else { 0 });
                if wide {
                    self.trans_free = start + busy;
                    self.clock += busy - 1;
                }
                self.vector_free = start + busy;
                start
            }
        };
        self.clock += 1;
        let ready = start + u32::from(info.latency);
        let done = if unit == Unit::Scalar { &mut self.scalar_done } else { &mut self.vector_done };
        *done = ready.max(*done);
        let number = self.count(unit);
        for regs in written(inst) {
            for r in regs.iter() {
                // masks are there in time, or their reader waits by itself
                let vector = (Reg::V0.0..Reg::V0.0 + 256).contains(&r.0);
                let ready = if vector == (unit != Unit::Scalar) { ready } else { 0 };
                self.results[usize::from(r.0)] = Result { ready, unit, number };
            }
        }
    }

    /// An instruction that something else executes.
    fn pass_other(&mut self, info: &OpInfo, inst: &MInst) {
        match (info.pipe, inst.op(), inst.srcs.first()) {
            // these wait for the vector ALU, and loads for the scalar one, too
            (Pipe::Lds | Pipe::Vmem | Pipe::Export, ..) => {
                self.clock = self.clock.max(self.vector_done).max(self.scalar_done);
            }
            (Pipe::Smem, ..) => self.clock = self.clock.max(self.scalar_done),
            (_, Some(op::S_NOP), Some(Opnd::Imm(n))) => self.clock += *n as u32 & 15,
            (_, Some(op::S_WAITCNT_DEPCTR), Some(Opnd::Imm(n))) => {
                if n >> 12 & 15 == 0 {
                    self.clock = self.clock.max(self.vector_done);
                }
                if n & 1 == 0 {
                    self.clock = self.clock.max(self.scalar_done);
                }
            }
            _ if info.flags.has(Flags::BRANCH) => self.clock = self.clock.max(self.scalar_done) + BRANCH - 1,
            _ => {}
        }
        self.clock += 1;
        for regs in written(inst) {
            regs.iter().for_each(|r| self.results[usize::from(r.0)].ready = 0);
        }
    }
}

fn written(inst: &MInst) -> impl Iterator<Item = Regs> + '_ {
    inst.dsts.iter().filter_map(|o| if let Opnd::P(r) = o { Some(*r) } else { None })
}

/// What a matrix instruction adds to, where it leaves its result there and does not multiply it.
fn summed_in_place(inst: &MInst) -> Option<Regs> {
    let regs = |o: Option<&Opnd>| if let Some(Opnd::P(r)) = o { Some(*r) } else { None };
    let sum = regs(inst.srcs.get(2))?;
    let multiplied = |n: usize| regs(inst.srcs.get(n)).is_some_and(|r| r.overlaps(sum));
    (regs(inst.dsts.first()) == Some(sum) && !multiplied(0) && !multiplied(1)).then_some(sum)
}
