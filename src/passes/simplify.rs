//! Clean-up before scheduling: common subexpressions, copies, dead code.
//!
//! Kernels' authors compute an address wherever they need it; this pass keeps one. Within a block, an instruction
//! without side effects whose operands are all written exactly once in the function computes the same value wherever
//! it stands, so a second one with the same operation, operands and modifiers is replaced by the first one's result.
//! A temporary whose only use is a copy into (part of) another value is computed there directly, when nothing between
//! touches that part. Bytes are converted where they lie (`in_place`). What nobody uses is removed.

use super::in_place::convert_in_place;
use crate::mir::abi::preloaded;
use crate::mir::liveness::{Liveness, Units, for_each_def, for_each_use};
use crate::mir::{Code, Function, MInst, Opnd, Part, RegClass, VReg};
use barewave_isa::{Flags, Pipe, op};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Simplifies a function of target instructions over virtual registers.
pub fn simplify(f: &mut Function) {
    let mut defs = vec![0; f.vregs.len()];
    count(f, &mut defs, |i, n| for_each_def(i, |p| n[p.reg.0 as usize] += 1));
    common_subexpressions(f, &defs);
    convert_in_place(f, &defs);
    sink_copies(f, &defs);
    remove_dead(f);
}

/// Counts how often each virtual register is touched; `visit` counts an instruction's.
fn count(f: &Function, n: &mut [u32], visit: impl Fn(&MInst, &mut [u32])) {
    f.blocks.iter().flat_map(|b| &b.insts).for_each(|i| visit(i, n));
    // A loop reads and writes its counter.
    for l in &f.loops {
        n[l.counter.0 as usize] += 1;
        if let Opnd::V(p) = l.limit {
            n[p.reg.0 as usize] += 1;
        }
    }
}

/// Computes a value from its operands alone: it may be shared, moved and removed.
pub(super) fn is_pure(f: &Function, i: &MInst) -> bool {
    let Some(info) = i.info(f.target) else { return false };
    let alu = matches!(info.pipe, Pipe::Salu | Pipe::Valu | Pipe::Trans);
    let odd = Flags(Flags::SIDE_EFFECTS.0 | Flags::CROSS_LANE.0 | Flags::BRANCH.0 | Flags::BARRIER.0);
    let fixed = i.dsts.iter().chain(&i.srcs).any(|o| matches!(o, Opnd::P(_)));
    let harmless = |r: &barewave_isa::Reg| *r == barewave_isa::Reg::SCC;
    alu && info.flags.0 & odd.0 == 0
        && !fixed
        && info.writes.iter().all(harmless)
        && !info.reads.iter().any(harmless)
        && !info.reads.contains(&barewave_isa::Reg::VCC_LO)
        && !i.dsts.is_empty()
        && info.dsts.iter().all(|s| !s.read)
}

/// Instructions with equal keys compute the same from the same operands.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    code: Code,
    class: RegClass,
    srcs: SmallVec<[Opnd; 4]>,
    mods: SmallVec<[(u16, i32); 2]>,
}

fn common_subexpressions(f: &mut Function, defs: &[u32]) {
    let mut defs = defs.to_vec();
    preloaded(f).iter().for_each(|(v, _)| defs[v.0 as usize] += 1);
    let once = |p: &Part| defs[p.reg.0 as usize] == 1;
    // Registers in whose place others are.
    let mut renamed: Vec<Option<VReg>> = vec![None; f.vregs.len()];
    for b in 0..f.blocks.len() {
        let mut seen: FxHashMap<Key, VReg> = FxHashMap::default();
        let carries = scc_reads(f, b);
        let mut insts = std::mem::take(&mut f.blocks[b].insts);
        let mut i = 0;
        insts.retain_mut(|inst| {
            i += 1;
            for o in inst.srcs.iter_mut() {
                if let Opnd::V(p) = o
                    && let Some(to) = renamed[p.reg.0 as usize]
                {
                    p.reg = to;
                }
            }
            let [Opnd::V(d)] = inst.dsts[..] else { return true };
            let whole = d.first == 0 && d.len == f.vreg(d.reg).dwords;
            let stable = inst.srcs.iter().all(|o| o.part().is_none_or(|p| once(&p)));
            let sets_scc = inst.info(f.target).is_some_and(|x| x.writes.contains(&barewave_isa::Reg::SCC));
            if !whole || !once(&d) || !stable || !is_pure(f, inst) || (sets_scc && carries[i - 1]) {
                return true;
            }
            let class = f.vreg(d.reg).class;
            let mods = inst.mods.iter().map(|(name, value)| (name as u16, value)).collect();
            let key = Key { code: inst.code, class, srcs: SmallVec::from_slice(&inst.srcs), mods };
            match seen.get(&key) {
                Some(first) => {
                    renamed[d.reg.0 as usize] = Some(*first);
                    false
                }
                None => {
                    seen.insert(key, d.reg);
                    true
                }
            }
        });
        f.blocks[b].insts = insts;
    }
    // Later blocks may use what an earlier one has dropped; blocks are walked in layout order, so only uses in blocks
    // before the definition (loops) are left.
    for inst in f.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        for o in &mut inst.srcs {
            if let Opnd::V(p) = o
                && let Some(to) = renamed[p.reg.0 as usize]
            {
                p.reg = to;
            }
        }
    }
}

/// `t = op ...; d = copy t` becomes `d = op ...`. `defs`: how often each register was written when all instructions were there.
fn sink_copies(f: &mut Function, defs: &[u32]) {
    let mut uses = vec![0; f.vregs.len()];
    count(f, &mut uses, |i, n| for_each_use(i, f.target, |p| n[p.reg.0 as usize] += 1));
    let units = Units::of(f);
    // The instruction that touched a dword, or defined a register, last, counted over all blocks from 1 on.
    let (mut touched_at, mut defined_at) = (vec![0; units.count()], vec![0; f.vregs.len()]);
    let mut next = 1;
    for b in 0..f.blocks.len() {
        let insts = &f.blocks[b].insts;
        let begin = next;
        next += insts.len();
        let mut sinks: Vec<(usize, usize, Part)> = Vec::new();
        for (i, inst) in insts.iter().enumerate() {
            if let (Some(op::V_MOV_B32 | op::S_MOV_B32), [Opnd::V(d)], [Opnd::V(t)]) =
                (inst.op(), &inst.dsts[..], &inst.srcs[..])
                && inst.mods.is_empty()
                && (defs[t.reg.0 as usize], uses[t.reg.0 as usize]) == (1, 1)
                && f.vreg(t.reg).dwords == 1
                && f.vreg(t.reg).class == f.vreg(d.reg).class
                && defined_at[t.reg.0 as usize] >= begin
                && touched_at[units.of_part(*d).start] < defined_at[t.reg.0 as usize]
            {
                sinks.push((defined_at[t.reg.0 as usize] - begin, i, *d));
            }
            for_each_use(inst, f.target, |p| touched_at[units.of_part(p)].fill(begin + i));
            for_each_def(inst, |p| {
                defined_at[p.reg.0 as usize] = begin + i;
                touched_at[units.of_part(p)].fill(begin + i);
            });
        }
        let mut dead = vec![false; insts.len()];
        for (at, copy, d) in sinks {
            let inst = &mut f.blocks[b].insts[at];
            let reads_old = inst.info(f.target).is_some_and(|x| x.dsts.iter().any(|s| s.read));
            // A copy that is gone defines nothing any more.
            if inst.dsts.len() == 1 && !reads_old && !dead[at] {
                inst.dsts[0] = Opnd::V(d);
                dead[copy] = true;
            }
        }
        let mut k = 0;
        f.blocks[b].insts.retain(|_| {
            k += 1;
            !dead[k - 1]
        });
    }
}

/// Removes what computes values that nobody uses.
pub(super) fn remove_dead(f: &mut Function) {
    let live = Liveness::of(f);
    for b in 0..f.blocks.len() {
        let mut alive = live.live_out[b].clone();
        let mut keep = vec![true; f.blocks[b].insts.len()];
        let carries = scc_reads(f, b);
        for (i, inst) in f.blocks[b].insts.iter().enumerate().rev() {
            let mut used = false;
            for_each_def(inst, |p| used |= alive.meets(live.units.of_part(p)));
            let writes_scc = inst.info(f.target).is_some_and(|x| x.writes.contains(&barewave_isa::Reg::SCC));
            let scc_matters = writes_scc && carries[i];
            if !used && is_pure(f, inst) && !scc_matters {
                keep[i] = false;
                continue;
            }
            for_each_def(inst, |p| alive.remove_all(live.units.of_part(p)));
            for_each_use(inst, f.target, |p| alive.insert_all(live.units.of_part(p)));
        }
        let mut k = 0;
        f.blocks[b].insts.retain(|_| {
            k += 1;
            keep[k - 1]
        });
    }
}

/// For every instruction of a block: one after it reads SCC before another one writes it.
fn scc_reads(f: &Function, b: usize) -> Vec<bool> {
    let mut read = false;
    let before = |inst: &MInst| {
        let after = read;
        match inst.info(f.target) {
            Some(info) if info.reads.contains(&barewave_isa::Reg::SCC) => read = true,
            Some(info) if info.writes.contains(&barewave_isa::Reg::SCC) => read = false,
            Some(_) => {}
            None => read = true,
        }
        after
    };
    let mut reads: Vec<bool> = f.blocks[b].insts.iter().rev().map(before).collect();
    reads.reverse();
    reads
}
