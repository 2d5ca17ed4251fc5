//! Hazards as data, and the question that insertion, verifier and strict emulation all ask of it:
//! how many wait states must lie between two instructions.
//!
//! A rule joins two predicates by a relation between registers. [`HazardInst`] evaluates the predicates once for an
//! instruction; for a pair, [`HazardInst::states_after`] evaluates the relations of the rules that both take part in and
//! takes the largest need. Rules whose fix is not a plain wait state are reported by [`HazardInst::fix_after`].

use crate::model::action::Action;
use crate::model::generated::{HAZARDS, HAZARDS_OF, OP_PROPS, prop};
use crate::{Class, Flags, Inst, ModName, Op, OpInfo, Operand, Pipe, Reg, RegFile, Regs, Slot, Target, op};
use smallvec::SmallVec;

/// A predicate over one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    pub(crate) all: u32,
    pub(crate) none: u32,
    pub(crate) any: u32,
    pub(crate) ops: &'static [Op],
}

/// How the registers of producer and consumer must meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// A register written is read.
    WritesReads,
    /// A register written is written again.
    WritesWrites,
    /// A register written is read or written.
    WritesTouches,
    /// A scalar register (or VCC) written is read.
    SgprReads,
    /// A scalar register written is read whose pair a vector instruction has read before: not a matter of the two
    /// instructions alone, see [`crate::ScalarHistory`].
    SgprAgain,
    /// A scalar register written selects the lane.
    SgprLane,
    /// A scalar register that was read is written: not a matter of distance.
    ReadsSgpr,
    /// EXEC that was read is written: not a matter of distance.
    ReadsExec,
    /// A register written is A or B of a matrix or dot instruction, or the index of a sparse one.
    WritesAb,
    /// Registers written overlap the accumulator but do not start where it starts.
    WritesC,
    /// Registers written start where the accumulator starts.
    WritesSameC,
    /// The accumulator that was read is overwritten.
    CWrites,
    /// Data being stored is overwritten.
    DataWrites,
    /// A branch lies between the two, and no other instruction of either kind: not a matter of distance.
    AcrossBranch,
    /// The two stand in a run of such instructions, of which one writes what another reads or stores: where faults are
    /// replayed, the run may be issued again.
    Clause,
    /// In waves of 64: a scalar register that was read as a mask is written and read again.
    MaskAgain,
    /// In waves of 64: the consumer reads one register written before EXEC was and one written after it.
    AcrossExec,
    /// EXEC is written.
    Exec,
    /// VCC is written.
    Vcc,
    /// M0 is written.
    M0,
    /// Both name the same hardware register.
    HwReg,
    /// Any registers.
    Order,
}

/// What resolves a hazard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fix {
    /// Wait states: `s_nop n` counts n + 1, any other instruction 1.
    Nop,
    /// VALU instructions in between (`v_nop`); `s_nop` does not help.
    VNop,
    /// `s_waitcnt_depctr` (gfx10, gfx11) or `s_wait_alu` (gfx12), or the given number of VALU instructions.
    DepCtr,
    /// `s_waitcnt_depctr` with vm_vsrc(0), or a VALU instruction, anywhere in between.
    VmVsrc,
    /// `s_waitcnt_depctr` with sa_sdst(0), or a VALU instruction that writes an SGPR, anywhere in between.
    SaSdst,
    /// A scalar ALU instruction (`s_mov_b32 null, 0`), or a wait for scalar loads, anywhere in between.
    Salu,
    /// `s_waitcnt_vscnt null, 0` anywhere in between.
    VsCnt,
}

impl Relation {
    /// The rule speaks of two instructions however far apart: what lies between decides, not how much of it.
    pub const fn is_endless(self) -> bool {
        matches!(
            self,
            Relation::SgprAgain
                | Relation::ReadsSgpr
                | Relation::ReadsExec
                | Relation::AcrossBranch
                | Relation::Clause
                | Relation::MaskAgain
                | Relation::AcrossExec
        )
    }
}

/// One hazard.
#[derive(Clone, Copy, Debug)]
pub struct HazardRule {
    /// Name in `hazards.isa`.
    pub name: &'static str,
    /// The earlier instruction.
    pub producer: Match,
    /// How their registers meet.
    pub relation: Relation,
    /// The later instruction.
    pub consumer: Match,
    /// (matrix passes of the producer, wait states); passes 0 stands for any.
    pub states: &'static [(u8, u8)],
    /// What resolves it.
    pub fix: Fix,
    /// The rule applies only when such an instruction lies between the two.
    pub between: Option<Match>,
}

/// An instruction with what the rules ask of it: made once, asked for every pair. Most pairs have no rule in common,
/// which a look at two bit sets tells.
#[derive(Clone, Debug)]
pub struct HazardInst {
    inst: Inst,
    target: Target,
    info: &'static OpInfo,
    traits: Traits,
    /// Registers written, explicit and implicit.
    writes: SmallVec<[Regs; 4]>,
    /// Registers read: sources, destinations that are also read, implicit ones.
    reads: SmallVec<[Regs; 8]>,
    /// Rules that speak of it as producer, a bit for each of [`Target::hazards`].
    starts: u64,
    /// Rules that may speak of it as consumer and that wait states resolve.
    ends: u64,
    /// Those that they do not resolve, but for what goes on for ever: that is no matter of two instructions.
    fixes: u64,
    /// Rules that want it between the two.
    between: u64,
}

/// Rules for which the instruction that they want between two others was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Between(u64);

impl Between {
    /// One more instruction lies between.
    #[inline]
    pub fn pass(&mut self, inst: &HazardInst) {
        self.0 |= inst.between;
    }
}

impl std::ops::Deref for HazardInst {
    type Target = Inst;
    fn deref(&self) -> &Inst {
        &self.inst
    }
}

/// What kind of instruction it is, in the words that rules use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Traits(u32);

#[allow(missing_docs)]
impl Traits {
    pub const ANY: Traits = Traits(1);
    pub const VALU: Traits = Traits(1 << 1);
    pub const SALU: Traits = Traits(1 << 2);
    pub const VMEM: Traits = Traits(1 << 3);
    pub const SMEM: Traits = Traits(1 << 4);
    pub const LDS: Traits = Traits(1 << 5);
    /// VMEM, LDS or export.
    pub const MEM: Traits = Traits(1 << 6);
    pub const MATRIX: Traits = Traits(1 << 7);
    pub const XDL: Traits = Traits(1 << 8);
    pub const SGEMM: Traits = Traits(1 << 9);
    pub const DGEMM: Traits = Traits(1 << 10);
    pub const TRANS: Traits = Traits(1 << 11);
    pub const DOT: Traits = Traits(1 << 12);
    pub const DPP: Traits = Traits(1 << 13);
    /// Writes a part of its destination.
    pub const PARTIAL: Traits = Traits(1 << 14);
    /// Stores more than 8 bytes, without a scalar offset.
    pub const WIDE_STORE: Traits = Traits(1 << 15);
    pub const GDS: Traits = Traits(1 << 16);
    /// Loads from memory to LDS.
    pub const LDSDMA: Traits = Traits(1 << 17);
    pub const FP_ATOMIC: Traits = Traits(1 << 18);
    pub const MESSAGE: Traits = Traits(1 << 19);
    /// Of a pair: the same operation as the producer.
    pub const SAME_OP: Traits = Traits(1 << 20);
    /// Of a pair: another operation.
    pub const OTHER_OP: Traits = Traits(1 << 21);
    pub const TO_AGPR: Traits = Traits(1 << 22);

    /// True when every trait of `other` is in `self`.
    #[inline]
    pub const fn has(self, other: Traits) -> bool {
        self.0 & other.0 == other.0
    }
    /// Union.
    #[inline]
    pub const fn or(self, other: Traits) -> Traits {
        Traits(self.0 | other.0)
    }

    /// What all instructions of an operation have.
    pub(crate) fn of_op(op: Op, pipe: Pipe, f: Flags, dsts: &[Slot]) -> Traits {
        let mut traits = Traits::ANY;
        let mut set = |on: bool, t: Traits| {
            if on {
                traits = traits.or(t);
            }
        };
        set(matches!(pipe, Pipe::Valu | Pipe::Trans | Pipe::Matrix), Traits::VALU);
        set(pipe == Pipe::Salu, Traits::SALU);
        set(pipe == Pipe::Vmem, Traits::VMEM.or(Traits::MEM));
        set(pipe == Pipe::Smem, Traits::SMEM);
        set(pipe == Pipe::Lds, Traits::LDS.or(Traits::MEM));
        set(pipe == Pipe::Export, Traits::MEM);
        set(f.has(Flags::MATRIX), Traits::MATRIX);
        set(f.has(Flags::MATRIX) && f.has(Flags::XDL), Traits::XDL);
        set(f.has(Flags::DGEMM), Traits::DGEMM);
        set(f.has(Flags::MATRIX) && !f.has(Flags::XDL) && !f.has(Flags::DGEMM), Traits::SGEMM);
        set(f.has(Flags::TRANS), Traits::TRANS);
        set(f.has(Flags::DOT), Traits::DOT);
        let props = OP_PROPS.get(usize::from(op.0)).copied().unwrap_or(0);
        let is = |p: u32| props & p != 0;
        set(is(prop::BYTE_RESULTS) && dsts.first().is_some_and(|d| d.read), Traits::PARTIAL);
        set(is(prop::GDS), Traits::GDS);
        set(pipe == Pipe::Vmem && is(prop::LDS_DMA), Traits::LDSDMA);
        set(pipe == Pipe::Vmem && f.has(Flags::ATOMIC) && is(prop::FP_ATOMIC), Traits::FP_ATOMIC);
        set(is(prop::MESSAGE) && op != op::S_GET_BARRIER_STATE, Traits::MESSAGE);
        traits
    }

    /// The traits of an instruction, which `info` describes.
    pub fn of(info: &OpInfo, inst: &Inst) -> Traits {
        let mut traits = info.traits;
        let mut set = |on: bool, t: Traits| {
            if on {
                traits = traits.or(t);
            }
        };
        if !inst.mods.is_empty() {
            let m = |n| inst.mods.get(n);
            set(m(ModName::DppCtrl).is_some() || m(ModName::Dpp8).is_some(), Traits::DPP);
            let high = m(ModName::OpSel).is_some_and(|s| s & 8 != 0) && !info.flags.has(Flags::PACKED);
            set(m(ModName::DstSel).is_some_and(|s| s != 6) || high, Traits::PARTIAL);
            set(m(ModName::Gds) == Some(1), Traits::GDS);
            set(info.pipe == Pipe::Vmem && m(ModName::Lds) == Some(1), Traits::LDSDMA);
        }
        if info.pipe == Pipe::Vmem && info.flags.has(Flags::STORE) {
            let named = |name: &'static str| {
                inst.srcs.iter().zip(info.srcs).filter(move |(_, s)| s.name == name).filter_map(|(x, _)| x.regs())
            };
            let wide = named("vdata").any(|r| r.dwords > 2);
            set(wide && named("soffset").next().is_none(), Traits::WIDE_STORE);
        }
        let accumulators = Reg::A0.0..Reg::A0.0 + 256;
        let to_agpr = inst.dsts.iter().any(|d| d.regs().is_some_and(|r| accumulators.contains(&r.first.0)));
        set(to_agpr, Traits::TO_AGPR);
        traits
    }
}

impl HazardInst {
    /// Looks up what the rules say of an instruction; none when the target does not have the operation.
    pub fn new(target: Target, inst: Inst) -> Option<HazardInst> {
        HazardInst::of(target, inst, |op, traits| Sets::find(target, op, traits))
    }

    /// The same for one of many instructions, which keep what they have in common in `sets`.
    #[inline]
    pub fn with(sets: &mut HazardSets, inst: Inst) -> Option<HazardInst> {
        HazardInst::of(sets.target, inst, |op, traits| sets.of(op, traits))
    }

    #[inline]
    fn of(target: Target, inst: Inst, sets: impl FnOnce(Op, Traits) -> Sets) -> Option<HazardInst> {
        let info = target.op(inst.op)?;
        let traits = Traits::of(info, &inst);
        let Sets { starts, ends, fixes, between } = sets(inst.op, traits);
        let (writes, reads) = (SmallVec::new(), SmallVec::new());
        let mut x = HazardInst { inst, target, info, traits, writes, reads, starts, ends, fixes, between };
        x.inst.srcs.iter().filter_map(|s| s.regs()).for_each(|r| x.reads.push(r));
        for (i, r) in x.inst.dsts.iter().enumerate().filter_map(|(i, d)| Some((i, d.regs()?))) {
            x.writes.push(r);
            if info.dsts.get(i).is_some_and(|s| s.read) {
                x.reads.push(r);
            }
        }
        info.writes.iter().for_each(|&r| x.writes.push(r.into()));
        info.reads.iter().for_each(|&r| x.reads.push(r.into()));
        let kept = |set: u64, stays: &dyn Fn(Relation) -> bool| {
            each(set)
                .filter_map(|i| Some((i, target.hazards().get(i)?)))
                .fold(set, |set, (i, r)| if stays(r.relation) { set } else { set & !(1 << i) })
        };
        let ending = kept(x.ends | x.fixes, &|r| r.may_end(&x));
        (x.starts, x.ends, x.fixes) = (kept(x.starts, &|r| r.may_start(&x)), x.ends & ending, x.fixes & ending);
        Some(x)
    }

    /// Rules of a set that want distance from an earlier instruction, with the wait states, or instructions, that they want.
    fn rules_after<'a>(
        &'a self,
        producer: &'a HazardInst,
        between: Between,
        among: u64,
    ) -> impl Iterator<Item = (&'static HazardRule, u8)> + 'a {
        let rules = self.target.hazards();
        each(producer.starts & among)
            .filter_map(move |i| Some((rules.get(i)?, between.0 >> i & 1 == 1)))
            .filter(|(r, met)| *met || r.between.is_none())
            .map(|(r, _)| (r, r.states(producer, self)))
            .filter(|r| r.1 > 0)
    }

    /// Wait states that must lie between an earlier instruction and this; 0 when it may follow. Counts only hazards
    /// that plain wait states resolve.
    pub fn states_after(&self, producer: &HazardInst, between: Between) -> u8 {
        if producer.starts & self.ends == 0 {
            return 0;
        }
        self.rules_after(producer, between, self.ends).map(|r| r.1).max().unwrap_or(0)
    }

    /// The hazard between an earlier instruction and this that wait states do not resolve, if there is one: how, and
    /// over how many VALU instructions it reaches.
    pub fn fix_after(&self, producer: &HazardInst) -> Option<(Fix, u8)> {
        if producer.starts & self.fixes == 0 {
            return None;
        }
        let rules = self.rules_after(producer, Between::default(), self.fixes);
        rules.map(|(r, n)| (r.fix, n)).max_by_key(|r| r.1)
    }

    /// True when [`HazardInst::states_after`] may be more than 0 behind some instruction.
    pub fn may_need_states(&self) -> bool {
        self.ends != 0
    }

    /// True when [`HazardInst::fix_after`] may be something behind some instruction.
    pub fn may_need_fix(&self) -> bool {
        self.fixes != 0
    }

    /// True when [`HazardInst::fix_after`] may be something between this and an instruction behind it.
    pub fn may_ask_for_fix(&self) -> bool {
        self.starts().any(|r| r.fix != Fix::Nop && !r.relation.is_endless())
    }

    /// Rules that speak of it as producer.
    pub fn starts(&self) -> impl Iterator<Item = &'static HazardRule> {
        rules_in(self.target, self.starts)
    }

    fn writes_reg(&self, regs: &[Reg]) -> bool {
        self.writes.iter().any(|w| regs.iter().any(|&r| w.overlaps(Regs::from(r))))
    }

    /// The accumulator of a matrix or dot instruction.
    fn accumulator(&self) -> Option<Regs> {
        if self.info.dsts.first().is_some_and(|d| d.read) {
            return self.inst.dsts.first()?.regs();
        }
        self.inst.srcs.get(2)?.regs()
    }

    /// A, B and, when the accumulator is the destination, the index.
    fn ab(&self) -> SmallVec<[Regs; 3]> {
        let n = if self.info.dsts.first().is_some_and(|d| d.read) { 3 } else { 2 };
        self.inst.srcs.iter().take(n).filter_map(|s| s.regs()).collect()
    }
}

/// Rules that may speak of an instruction, by its operation and traits alone: a bit for each of [`Target::hazards`].
#[derive(Clone, Copy, Default)]
struct Sets {
    starts: u64,
    ends: u64,
    fixes: u64,
    between: u64,
}

impl Sets {
    fn find(target: Target, op: Op, traits: Traits) -> Sets {
        let mut sets = Sets::default();
        for (i, r) in target.hazards().iter().enumerate() {
            sets.starts |= u64::from(r.producer.holds(op, traits)) << i;
            let ends = u64::from(r.consumer.may_hold(op, traits)) << i;
            match r.fix {
                Fix::Nop => sets.ends |= ends,
                _ if r.relation.is_endless() => {}
                _ => sets.fixes |= ends,
            }
            sets.between |= u64::from(r.between.is_some_and(|b| b.holds(op, traits))) << i;
        }
        sets
    }
}

/// What rules say of operations of a target, found once for each of many instructions: the last of those whose numbers agree in
/// their lowest bits is kept.
pub struct HazardSets {
    target: Target,
    known: [Option<(Op, Traits, Sets)>; 64],
}

impl HazardSets {
    /// Nothing is known yet.
    pub fn new(target: Target) -> HazardSets {
        HazardSets { target, known: [None; 64] }
    }

    fn of(&mut self, op: Op, traits: Traits) -> Sets {
        let place = &mut self.known[usize::from(op.0) % 64];
        match place {
            Some((o, t, sets)) if (*o, *t) == (op, traits) => *sets,
            _ => place.insert((op, traits, Sets::find(self.target, op, traits))).2,
        }
    }
}

/// The numbers in a set.
fn each(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        i
    })
}

/// The rules of a set.
fn rules_in(target: Target, set: u64) -> impl Iterator<Item = &'static HazardRule> {
    each(set).filter_map(move |i| target.hazards().get(i))
}

fn overlap(a: &[Regs], b: &[Regs]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.overlaps(*y)))
}

fn is_scalar(r: &Regs) -> bool {
    !r.first.is_vector() && !matches!(r.first, Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0 | Reg::SCC | Reg::MODE | Reg::NULL)
}

impl Match {
    /// True for an instruction of the operation `op` with the given traits.
    #[inline]
    pub fn holds(&self, op: Op, traits: Traits) -> bool {
        let words = traits.0;
        if words & self.all != self.all || words & self.none != 0 {
            return false;
        }
        (self.any == 0 && self.ops.is_empty()) || words & self.any != 0 || self.ops.binary_search(&op).is_ok()
    }

    /// True when it holds after some producer.
    #[inline]
    pub fn may_hold(&self, op: Op, traits: Traits) -> bool {
        self.holds(op, traits.or(Traits::SAME_OP).or(Traits::OTHER_OP))
    }

    /// True for a consumer of the operation `op` after a producer of the operation `producer`.
    #[inline]
    pub fn holds_after(&self, producer: Op, op: Op, traits: Traits) -> bool {
        self.holds(op, traits.or(if producer == op { Traits::SAME_OP } else { Traits::OTHER_OP }))
    }
}

impl Relation {
    /// False when the producer alone rules it out.
    fn may_start(self, p: &HazardInst) -> bool {
        match self {
            Relation::WritesReads | Relation::WritesWrites | Relation::WritesTouches => p.writes.iter().any(is_vector),
            Relation::SgprReads | Relation::SgprAgain | Relation::SgprLane => p.writes.iter().any(is_scalar),
            Relation::Exec => p.writes_reg(&[Reg::EXEC_LO, Reg::EXEC_HI]),
            Relation::Vcc => p.writes_reg(&[Reg::VCC_LO, Reg::VCC_HI]),
            Relation::M0 => p.writes_reg(&[Reg::M0]),
            Relation::HwReg => hwreg(&p.inst).is_some(),
            _ => true,
        }
    }

    /// False when the consumer alone rules it out.
    fn may_end(self, c: &HazardInst) -> bool {
        match self {
            Relation::SgprReads | Relation::SgprAgain => c.reads.iter().any(is_scalar),
            Relation::WritesReads => c.reads.iter().any(is_vector),
            _ => true,
        }
    }
}

impl HazardRule {
    /// Wait states that the rule wants between two instructions that it may speak of; 0 when it does not apply.
    fn states(&self, p: &HazardInst, c: &HazardInst) -> u8 {
        if !self.consumer.holds_after(p.inst.op, c.inst.op, c.traits) || !self.related(p, c) {
            return 0;
        }
        let passes = p.target.passes(&p.inst).unwrap_or(0);
        self.states.iter().find(|s| s.0 == 0 || s.0 == passes).map_or(0, |s| s.1)
    }

    fn related(&self, p: &HazardInst, c: &HazardInst) -> bool {
        match self.relation {
            Relation::WritesReads => overlap(&vectors(&p.writes), &vectors(&c.reads)),
            Relation::WritesWrites => overlap(&vectors(&p.writes), &vectors(&c.writes)),
            Relation::WritesTouches => {
                let w = vectors(&p.writes);
                overlap(&w, &vectors(&c.reads)) || overlap(&w, &vectors(&c.writes))
            }
            Relation::SgprReads | Relation::SgprAgain => {
                let w: SmallVec<[Regs; 4]> = p.writes.iter().copied().filter(is_scalar).collect();
                overlap(&w, &c.reads)
            }
            Relation::SgprLane => {
                let lane = c.inst.srcs.get(1).and_then(|s| s.regs());
                lane.is_some_and(|l| overlap(&p.writes, &[l]))
            }
            Relation::WritesAb => overlap(&p.writes, &c.ab()),
            Relation::WritesC => {
                let acc = c.accumulator();
                acc.is_some_and(|a| p.writes.iter().any(|w| w.overlaps(a) && w.first != a.first))
            }
            Relation::WritesSameC => c.accumulator().is_some_and(|a| p.writes.iter().any(|w| w.first == a.first)),
            Relation::CWrites => p.accumulator().is_some_and(|a| overlap(&[a], &c.writes)),
            Relation::DataWrites => {
                let data =
                    p.inst.srcs.iter().zip(p.info.srcs).find(|(_, s)| s.name == "vdata").and_then(|(x, _)| x.regs());
                data.is_some_and(|d| overlap(&[d], &c.writes))
            }
            Relation::HwReg => hwreg(&p.inst) == hwreg(&c.inst),
            Relation::ReadsSgpr | Relation::ReadsExec | Relation::AcrossBranch => false,
            Relation::Clause | Relation::MaskAgain | Relation::AcrossExec => false,
            // the producer has told (`may_start`)
            Relation::Exec | Relation::Vcc | Relation::M0 | Relation::Order => true,
        }
    }
}

fn vectors(list: &[Regs]) -> SmallVec<[Regs; 4]> {
    list.iter().filter(|r| is_vector(r)).copied().collect()
}

fn is_vector(r: &Regs) -> bool {
    matches!(r.first.file(), RegFile::Vgpr | RegFile::Agpr)
}

/// Number of the hardware register that s_getreg or s_setreg names.
fn hwreg(inst: &Inst) -> Option<u64> {
    if !matches!(inst.op, op::S_GETREG_B32 | op::S_SETREG_B32 | op::S_SETREG_IMM32_B32) {
        return None;
    }
    inst.srcs.iter().find_map(|s| if let Operand::Imm(v) = s { Some(v & 63) } else { None })
}

impl Target {
    /// All hazards of the target.
    pub fn hazards(self) -> &'static [HazardRule] {
        let i = HAZARDS_OF.get(self.index()).copied().unwrap_or(0);
        HAZARDS.get(usize::from(i)).copied().unwrap_or(&[])
    }

    /// Hazards that an operation may start with some operands.
    pub fn hazards_after(self, op: Op) -> impl Iterator<Item = &'static HazardRule> {
        const FILES: [(Class, Reg); 6] = [
            (Class::VGPR, Reg::V0),
            (Class::AGPR, Reg::A0),
            (Class::SGPR, Reg::S0),
            (Class::SGPR, Reg::VCC_LO),
            (Class::EXEC, Reg::EXEC_LO),
            (Class::M0, Reg::M0),
        ];
        let slots = self.op(op).map_or((&[] as &[Slot], &[] as &[Slot]), |i| (i.dsts, i.srcs));
        let operand = |slot: &Slot, (class, reg)| match slot.class.contains(class) {
            true => Operand::Regs(Regs::new(reg, slot.dwords().max(1))),
            false => Operand::Imm(0),
        };
        let with = |file| {
            let dsts: SmallVec<[Operand; 4]> = slots.0.iter().map(|s| operand(s, file)).collect();
            let srcs: SmallVec<[Operand; 4]> = slots.1.iter().map(|s| operand(s, FILES[0])).collect();
            HazardInst::new(self, Inst::new(op, &dsts, &srcs)).map_or(0, |x| x.starts)
        };
        let starts = FILES.into_iter().fold(0, |all, file| all | with(file));
        rules_in(self, starts)
    }

    /// Passes (of four clocks) of a matrix instruction. The f8f6f4 forms take twice as many when A or B has 8-bit elements.
    pub fn passes(self, inst: &Inst) -> Option<u8> {
        let info = self.op(inst.op)?;
        if info.pipe != Pipe::Matrix {
            return None;
        }
        let wide = matches!(inst.op.action(), Action::Matrix(p) if p.formats)
            && [ModName::Cbsz, ModName::Blgp].iter().any(|&m| inst.mods.get(m).unwrap_or(0) < 2);
        u8::try_from(info.busy / 4 * if wide { 2 } else { 1 }).ok()
    }
}

/// What lies between two instructions, as hazards count that wait states do not resolve. Source: LLVM 22,
/// `GCNHazardRecognizer.cpp`, `fixVALUTransUseHazard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Distance {
    valus: u8,
    transcendental: u8,
    /// The vector ALU was waited for.
    waited: bool,
}

impl Distance {
    /// True when a hazard that reaches over `reach` vector instructions holds.
    pub fn within(self, fix: Fix, reach: u8) -> bool {
        // A second transcendental instruction is issued when the first is done.
        let done = self.waited || self.transcendental > 1;
        self.valus < reach && !(fix == Fix::DepCtr && done)
    }

    /// One more instruction lies between; false when it is farther than `farthest` ([`max_fix_reach`]).
    pub fn pass(&mut self, target: Target, between: &Inst, farthest: u8) -> bool {
        let Some(info) = target.op(between.op) else { return true };
        match info.pipe {
            Pipe::Valu | Pipe::Matrix => self.valus = self.valus.saturating_add(1),
            Pipe::Trans => {
                self.valus = self.valus.saturating_add(1);
                self.transcendental = self.transcendental.saturating_add(1);
            }
            // These read their vector registers when all results are written.
            Pipe::Vmem | Pipe::Lds | Pipe::Export => self.waited = true,
            _ => {}
        }
        if let (op::S_WAITCNT_DEPCTR, Some(Operand::Imm(v))) = (between.op, between.srcs.first()) {
            self.waited |= v >> 12 & 15 == 0;
        }
        self.valus < farthest
    }
}

/// The largest number of wait states that any rule of the target can ask for: how far back a search must go.
pub fn max_required_states(target: Target) -> u8 {
    max_states(target, |f| f == Fix::Nop)
}

/// The largest number of VALU instructions over which a hazard with another fix than wait states reaches; 0 when the
/// target has none.
pub fn max_fix_reach(target: Target) -> u8 {
    max_states(target, |f| f != Fix::Nop)
}

fn max_states(target: Target, wanted: impl Fn(Fix) -> bool) -> u8 {
    target
        .hazards()
        .iter()
        .filter(|r| wanted(r.fix) && !r.relation.is_endless())
        .flat_map(|r| r.states)
        .map(|s| s.1)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(n: u16, d: u8) -> Operand {
        Operand::Regs(Regs::v(n, d))
    }
    fn s(n: u16, d: u8) -> Operand {
        Operand::Regs(Regs::s(n, d))
    }

    fn pair(t: Target, p: &Inst, c: &Inst) -> [HazardInst; 2] {
        [p, c].map(|i| HazardInst::new(t, i.clone()).unwrap())
    }
    fn required_states(t: Target, p: &Inst, c: &Inst) -> u8 {
        let [p, c] = pair(t, p, c);
        c.states_after(&p, Between::default())
    }
    fn required_fix(t: Target, p: &Inst, c: &Inst) -> Option<(Fix, u8)> {
        let [p, c] = pair(t, p, c);
        c.fix_after(&p)
    }

    #[test]
    fn a_bit_set_holds_the_rules_of_every_target() {
        assert!(Target::all().all(|t| t.hazards().len() <= 64));
    }

    #[test]
    fn vmem_reads_sgpr_that_valu_wrote() {
        let write = Inst::new(op::V_READFIRSTLANE_B32, &[s(4, 1)], &[v(0, 1)]);
        let load = |soffset| Inst::new(op::BUFFER_LOAD_DWORD, &[v(1, 1)], &[Operand::Off, s(8, 4), soffset]);
        assert_eq!(required_states(Target::GFX906, &write, &load(s(4, 1))), 5);
        assert_eq!(required_states(Target::GFX906, &write, &load(s(5, 1))), 0);
        assert_eq!(required_states(Target::GFX1030, &write, &load(s(4, 1))), 0);
    }

    #[test]
    fn matrix_result_by_passes() {
        let mfma = |d: u16, c: u16| Inst::new(op::V_MFMA_F32_32X32X8_F16, &[v(d, 16)], &[v(0, 2), v(2, 2), v(c, 16)]);
        let read = Inst::new(op::V_ADD_F32, &[v(60, 1)], &[v(17, 1), v(61, 1)]);
        assert_eq!(required_states(Target::GFX942, &mfma(16, 16), &read), 11, "8 passes + 3");
        assert_eq!(required_states(Target::GFX90A, &mfma(16, 16), &read), 19, "16 passes + 3");
        assert_eq!(required_states(Target::GFX942, &mfma(16, 16), &mfma(16, 16)), 0, "same accumulator is forwarded");
        assert_eq!(required_states(Target::GFX942, &mfma(16, 16), &mfma(32, 18)), 9, "overlapping accumulator");
    }

    #[test]
    fn transcendental_forwarding_is_gfx942_only() {
        let exp = Inst::new(op::V_EXP_F32, &[v(1, 1)], &[v(2, 1)]);
        let add = Inst::new(op::V_ADD_F32, &[v(3, 1)], &[v(1, 1), v(4, 1)]);
        assert_eq!(required_states(Target::GFX942, &exp, &add), 1);
        assert_eq!(required_states(Target::GFX90A, &exp, &add), 0);
        assert_eq!(required_fix(Target::GFX1100, &exp, &add), Some((Fix::DepCtr, 5)));
        assert_eq!(required_fix(Target::GFX1151, &exp, &add), None);
    }

    #[test]
    fn division_reads_vcc_that_compare_wrote() {
        let cmp = Inst::new(op::V_CMP_LT_F32, &[Operand::Regs(crate::VCC)], &[v(0, 1), v(1, 1)]);
        let fmas = Inst::new(op::V_DIV_FMAS_F32, &[v(2, 1)], &[v(3, 1), v(4, 1), v(5, 1)]);
        assert_eq!(required_states(Target::GFX906, &cmp, &fmas), 4);
        let [p, c] = pair(Target::GFX906, &cmp, &fmas);
        assert_eq!(
            c.rules_after(&p, Between::default(), c.ends | c.fixes).map(|(r, n)| (r.name, n)).collect::<Vec<_>>(),
            [("div_fmas", 4)]
        );
    }

    #[test]
    fn a_dgemm_between_delays_addresses() {
        let add = Inst::new(op::V_ADD_U32, &[v(0, 1)], &[v(1, 1), v(2, 1)]);
        let dgemm = Inst::new(op::V_MFMA_F64_4X4X4_4B_F64, &[v(10, 2)], &[v(4, 2), v(6, 2), v(8, 2)]);
        let load = Inst::new(op::DS_READ_B32, &[v(3, 1)], &[v(0, 1)]);
        let [add, load] = pair(Target::GFX90A, &add, &load);
        assert_eq!(load.states_after(&add, Between::default()), 0);
        let mut between = Between::default();
        between.pass(&HazardInst::new(Target::GFX90A, dgemm).unwrap());
        assert_eq!(load.states_after(&add, between), 2);
    }

    #[test]
    fn hazards_by_operation() {
        let names = |t: Target, op| t.hazards_after(op).map(|r| r.name).collect::<Vec<_>>();
        assert_eq!(names(Target::GFX906, op::V_READLANE_B32), ["vmem_sgpr", "dpp_exec", "div_fmas", "lane_select"]);
        assert_eq!(names(Target::GFX906, op::V_ADD_F32), ["dpp_vgpr"]);
        assert_eq!(names(Target::GFX906, op::V_CMPX_EQ_F32), ["vmem_sgpr", "dpp_exec", "div_fmas", "lane_select"]);
        assert_eq!(names(Target::GFX906, op::S_SETREG_B32), ["setreg_getreg", "setreg_setreg", "setreg_rfe"]);
        assert_eq!(names(Target::GFX906, op::BUFFER_STORE_DWORDX4), ["vmem_clause", "store_data"]);
    }
}
