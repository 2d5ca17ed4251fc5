//! What the allocator sees of a function: values with constraints, nothing of instructions or blocks.
//!
//! A [`Value`] has a pool, a width and alignment, the positions at which each of its dwords is live, and what it would
//! cost to keep it elsewhere. Positions are those of [`Liveness::ranges`]: instruction `i` reads at `2 i` and writes at
//! `2 i + 1`. What instructions ask of their operands stands in the values:
//!
//! * a tied operand is one value, live before and after its instruction;
//! * a result that is written before all sources are read (early clobber) is live from the position of the reads on;
//! * operands of instructions that could be issued as a pair want registers of different banks ([`Apart`]); tuples of which an author's
//!   pair writes an even and an odd dword begin at even registers;
//! * what the hardware has put somewhere is fixed, the sides of a copy want one place.

use crate::mir::abi::preloaded;
use crate::mir::liveness::{Liveness, Ranges, for_each_def, for_each_use};
use crate::mir::{Function, MInst, Opnd, Part, RegClass, VReg};
use crate::passes::pair;
use barewave_isa::{Flags, Op, Pipe, Reg, op};
use smallvec::SmallVec;

/// Half-open range of positions.
pub(super) type Range = (u32, u32);

/// Live ranges of each dword of a value: most have one.
pub(super) type RangesOfDwords = SmallVec<[Ranges; 1]>;

/// A wish of one dword of a value: its register's number should differ from another's, modulo the number of banks.
#[derive(Clone, Copy)]
pub(super) struct Apart {
    pub dword: u8,
    /// A dword of another value.
    pub other: Part,
    pub banks: u8,
}

/// One value to be placed.
pub(super) struct Value {
    pub class: RegClass,
    pub dwords: u8,
    pub align: u8,
    /// Live ranges of each dword; empty when it is never touched.
    pub ranges: RangesOfDwords,
    /// Where it has to be.
    pub fixed: Option<Reg>,
    /// Where it would like to be: the place of this part of another value (the other side of a copy).
    pub hint: Option<Part>,
    /// Banks where it would like not to be.
    pub apart: Vec<Apart>,
    /// It may be the vector condition code register: a mask that a compare writes.
    pub vcc: bool,
    /// What moving it out of the registers costs; `None` when that is not possible.
    pub cost: Option<u64>,
    /// An instruction that makes it anew from nothing, so that it needs no home.
    pub remake: Option<Box<MInst>>,
}

impl Value {
    /// First and last position.
    pub fn span(&self) -> Option<Range> {
        let first = self.ranges.iter().filter_map(|r| r.first().map(|x| x.0)).min()?;
        let last = self.ranges.iter().filter_map(|r| r.last().map(|x| x.1)).max()?;
        Some((first, last))
    }
}

/// All values of a function, by virtual register number.
pub(super) struct View {
    pub values: Vec<Value>,
    /// Number of positions.
    pub positions: u32,
}

impl View {
    pub fn of(f: &Function, live: &Liveness) -> View {
        let mut ranges = live.ranges(f);
        extend_early_clobbers(f, live, &mut ranges);
        let fixed = preloaded(f);
        // A preloaded register exists from the first instruction on, whenever it is first read.
        for (v, _) in &fixed {
            for u in live.units.of_part(f.whole(*v)) {
                match ranges[u].first_mut() {
                    Some(first) => first.0 = 0,
                    None => ranges[u].push((0, 1)),
                }
            }
        }
        let vcc = vcc_candidates(f);
        let mut ranges = ranges.into_iter();
        let mut values: Vec<Value> = f
            .vregs
            .iter()
            .zip(vcc)
            .map(|(info, vcc)| Value {
                class: info.class,
                dwords: info.dwords,
                align: info.align,
                ranges: ranges.by_ref().take(info.dwords as usize).collect(),
                fixed: None,
                hint: None,
                apart: Vec::new(),
                vcc,
                cost: Some(0),
                remake: None,
            })
            .collect();
        let positions = 2 * f.inst_count() as u32 + 2;
        for (v, r) in fixed {
            let value = &mut values[v.0 as usize];
            (value.fixed, value.cost) = (Some(r), None);
        }
        // Spill code reaches scratch memory from everywhere.
        for v in f.preloads.scratch.iter().flatten() {
            values[v.0 as usize].ranges.iter_mut().for_each(|r| *r = Ranges::from_slice(&[(0, positions)]));
        }
        weigh(f, &mut values);
        hints(f, &mut values);
        if pair::has_pairs(f.target) {
            banks(f, &mut values);
        }
        View { values, positions }
    }
}

/// How often the instructions of each block count: sixteen times for every branch back that reaches over it.
pub(super) fn weights(f: &Function) -> Vec<u64> {
    let mut depth = vec![0u32; f.blocks.len()];
    for b in 0..f.blocks.len() {
        for s in f.successors(b).into_iter().filter(|s| *s <= b) {
            depth[s..=b].iter_mut().for_each(|d| *d += 1);
        }
    }
    depth.into_iter().map(|d| 16u64.pow(d.min(4))).collect()
}

/// Costs (weighted reads and writes), and what can be made anew.
fn weigh(f: &Function, values: &mut [Value]) {
    let mut defs = vec![0u32; values.len()];
    for (block, weight) in f.blocks.iter().zip(weights(f)) {
        let mut touch = |p: Part| {
            if let Some(c) = &mut values[p.reg.0 as usize].cost {
                *c += weight * p.len as u64;
            }
        };
        for inst in &block.insts {
            for_each_use(inst, f.target, &mut touch);
            for_each_def(inst, &mut touch);
        }
        for inst in &block.insts {
            for_each_def(inst, |p| defs[p.reg.0 as usize] += 1);
            let constant = matches!(inst.op(), Some(op::V_MOV_B32 | op::S_MOV_B32)) && inst.mods.is_empty();
            if let ([Opnd::V(d)], [Opnd::Imm(_)], true) = (&inst.dsts[..], &inst.srcs[..], constant)
                && d.len == f.vreg(d.reg).dwords
                && values[d.reg.0 as usize].fixed.is_none()
            {
                values[d.reg.0 as usize].remake = Some(Box::new(inst.clone()));
            }
        }
    }
    for (v, n) in values.iter_mut().zip(defs) {
        if n != 1 {
            v.remake = None;
        }
    }
}

fn hints(f: &Function, values: &mut [Value]) {
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let moves = [op::V_MOV_B32, op::S_MOV_B32, op::S_MOV_B64];
        if let (Some(o), [Opnd::V(d)], [Opnd::V(s)]) = (inst.op(), &inst.dsts[..], &inst.srcs[..])
            && moves.contains(&o)
            && d.first == 0
            && values[d.reg.0 as usize].hint.is_none()
        {
            values[d.reg.0 as usize].hint = Some(*s);
        }
    }
}

/// Banks of vector registers that a pair's sources must not share, and of its results.
const SOURCE_BANKS: u8 = 4;
const RESULT_BANKS: u8 = 2;

/// Wishes of pairs, and of neighbours that could be one: sources in the same place, and results, come from different banks.
fn banks(f: &Function, values: &mut [Value]) {
    let vector = |o: &Opnd| match o {
        Opnd::V(p) if f.vreg(p.reg).class == RegClass::V && p.len == 1 => Some(*p),
        _ => None,
    };
    let mut wish = |a: Option<Part>, b: Option<Part>, banks: u8| {
        let (Some(a), Some(b)) = (a, b) else { return };
        // Dwords of one value lie as they lie, and a source that both share is read once.
        if a.reg != b.reg {
            values[a.reg.0 as usize].apart.push(Apart { dword: a.first, other: b, banks });
            values[b.reg.0 as usize].apart.push(Apart { dword: b.first, other: a, banks });
        }
    };
    let mut even: Vec<VReg> = Vec::new();
    for block in &f.blocks {
        for pair in block.insts.iter().filter(|i| i.op().is_some_and(Op::is_pair)) {
            if let [x, y] = pair.dsts[..]
                && let (Some(x), Some(y)) = (vector(&x), vector(&y))
            {
                match (x.first ^ y.first) & 1 {
                    1 if x.reg != y.reg => even.extend([x.reg, y.reg]),
                    _ => wish(Some(x), Some(y), RESULT_BANKS),
                }
            }
            let own = pair::own_sources(f.target, pair).unwrap_or(0);
            for (x, y) in pair.srcs[..own].iter().zip(&pair.srcs[own..]) {
                wish(vector(x), vector(y), SOURCE_BANKS);
            }
        }
        let mut at = 0;
        while let [a, b, ..] = &block.insts[at..] {
            at += 1;
            let feeds = || b.uses(f.target).any(|u| a.dsts.contains(&u)) || a.dsts == b.dsts;
            let could_be = pair::pair_of(f.target, a, b).or_else(|| pair::pair_of(f.target, b, a)).is_some();
            if !could_be || feeds() {
                continue;
            }
            // The second is taken: it is not the first of another pair.
            at += 1;
            for (x, y) in a.srcs.iter().zip(&b.srcs) {
                wish(vector(x), vector(y), SOURCE_BANKS);
            }
            for (x, y) in a.dsts.iter().zip(&b.dsts) {
                wish(vector(x), vector(y), RESULT_BANKS);
            }
        }
    }
    for v in even {
        let value = &mut values[v.0 as usize];
        value.align = value.align.max(RESULT_BANKS);
    }
}

/// A result of several dwords that is not loaded from memory may be written before all sources are read, and a
/// scalar load's result may not overlap its address when the load is replayed: such results start at the position
/// of the reads.
pub(super) fn writes_early(f: &Function, inst: &MInst) -> bool {
    inst.info(f.target).is_some_and(|i| {
        let wide = i.dsts.first().is_some_and(|s| s.bits > 32) && inst.dsts.len() == 1;
        let vector_mask = i.flags.has(Flags::VALU_WRITES_SGPR);
        wide && !vector_mask && (i.mem_bytes == 0 || i.pipe == Pipe::Smem)
    })
}

fn extend_early_clobbers(f: &Function, live: &Liveness, ranges: &mut [Ranges]) {
    let mut at = 0u32;
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        if writes_early(f, inst) {
            for_each_def(inst, |p| {
                for u in live.units.of_part(p) {
                    if let Ok(k) = ranges[u].binary_search_by_key(&(at + 1), |r| r.0) {
                        ranges[u][k].0 = at;
                    }
                }
            });
        }
        at += 2;
    }
}

/// Masks that a compare writes and that may live in VCC, if no instruction uses VCC on its own account.
fn vcc_candidates(f: &Function) -> Vec<bool> {
    let mut ok = vec![false; f.vregs.len()];
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let Some(info) = inst.info(f.target) else { continue };
        if info.reads.contains(&Reg::VCC_LO) || info.writes.contains(&Reg::VCC_LO) {
            return vec![false; f.vregs.len()];
        }
        let fixed = |o: &Opnd| matches!(o, Opnd::P(r) if r.overlaps(barewave_isa::VCC));
        if inst.dsts.iter().chain(&inst.srcs).any(fixed) {
            return vec![false; f.vregs.len()];
        }
        if info.flags.has(Flags::VALU_WRITES_SGPR) {
            for_each_def(inst, |p| {
                let r = f.vreg(p.reg);
                ok[p.reg.0 as usize] |= r.class == RegClass::S && r.dwords == f.mask_dwords();
            });
        }
    }
    // On wave32 a one-dword scalar may be any scalar: keep only those that are masks everywhere.
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let mask_use = inst.info(f.target).is_some_and(|i| i.pipe == Pipe::Valu || i.pipe == Pipe::Salu);
        if !mask_use {
            for_each_use(inst, f.target, |p| ok[p.reg.0 as usize] = false);
        }
    }
    ok
}

/// Where a value is touched: instruction number over all blocks, dwords read, dwords written.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub block: u32,
    pub inst: u32,
    pub read: u32,
    pub written: u32,
    /// The result may be written before the sources are read, or is also read.
    pub early: bool,
}

/// All places that touch each value, in order. Made only when something has to be moved out of the registers.
pub(super) fn touches(f: &Function) -> Vec<Vec<Touch>> {
    let mut out: Vec<Vec<Touch>> = vec![Vec::new(); f.vregs.len()];
    let bits = |p: Part| (((1u64 << p.len) - 1) << p.first) as u32;
    let mut at = 0u32;
    for (b, block) in f.blocks.iter().enumerate() {
        for inst in &block.insts {
            let early = writes_early(f, inst);
            let mut note = |v: VReg, read: u32, written: u32| match out[v.0 as usize].last_mut() {
                Some(t) if t.inst == at => {
                    t.read |= read;
                    t.written |= written;
                }
                _ => out[v.0 as usize].push(Touch { block: b as u32, inst: at, read, written, early }),
            };
            for_each_use(inst, f.target, |p| note(p.reg, bits(p), 0));
            for_each_def(inst, |p| note(p.reg, 0, bits(p)));
            at += 1;
        }
    }
    out
}
