//! Dual issue: two vector instructions become one where the target has their pair.
//!
//! For each instruction, in order, the nearest one behind it is looked for that may stand beside it: the tables have the pair
//! of the operations, no half reads or writes what the other writes (the first may read what the second writes: both read
//! before either writes), nothing between them touches what the second would pass, and the registers lie in banks that can be
//! read together ([`barewave_isa::legal`]); operands of operations that allow it change places for that. In a block
//! whose order is its author's only neighbours are paired.
//!
//! It runs on physical registers, before waits are put in. Only waves of 32 lanes issue pairs.

use super::emit::lower_inst;
use crate::mir::{Function, MInst, Opnd, Order};
use barewave_isa::{Flags, Op, Pairing, Reg, RegFile, Regs, Target, pairing};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// How far behind an instruction its partner may stand.
const WINDOW: usize = 6;

/// Joins instructions into pairs.
pub fn pair(f: &mut Function) {
    if !has_pairs(f.target) {
        return;
    }
    let target = f.target;
    for block in &mut f.blocks {
        let window = if block.order == Order::Fixed { 1 } else { WINDOW };
        let mut paired = Vec::with_capacity(block.insts.len());
        let mut left: Vec<Option<MInst>> = std::mem::take(&mut block.insts).into_iter().map(Some).collect();
        let touches: Vec<Touched> = left.iter().flatten().map(|i| Touched::of(target, i)).collect();
        for i in 0..left.len() {
            let Some(first) = left[i].take() else { continue };
            let found = partner(target, &left, &touches, (i, &first), window);
            paired.push(match found {
                Some((k, both)) => {
                    left[k] = None;
                    both
                }
                None => first,
            });
        }
        block.insts = paired;
    }
}

/// Two instructions that would be a pair if only their registers lay in other banks.
pub(super) fn could_be(target: Target, a: &MInst, b: &MInst) -> bool {
    let plain = a.mods.is_empty() && b.mods.is_empty();
    let (Some(x), Some(y)) = (a.op(), b.op()) else { return false };
    let both = |x, y| pairs().both.get(&(x, y)).is_some_and(|op| target.has(*op));
    plain && pairs().halves.contains(&x) && (both(x, y) || both(y, x))
}

/// The target has pairs at all.
pub(super) fn has_pairs(target: Target) -> bool {
    target.info().wave_size == 32 && pairs().both.values().any(|op| target.has(*op))
}

/// All pairs of any target.
struct Pairs {
    /// By their halves.
    both: FxHashMap<(Op, Op), Op>,
    /// What is a half of some.
    halves: FxHashSet<Op>,
}

fn pairs() -> &'static Pairs {
    static PAIRS: OnceLock<Pairs> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let all = (0..Op::COUNT as u16).map(Op);
        let both: FxHashMap<(Op, Op), Op> = all.filter_map(|op| Some((op.dual_parts()?, op))).collect();
        let halves = both.keys().flat_map(|k| [k.0, k.1]).collect();
        Pairs { both, halves }
    })
}

/// What an instruction reads and writes.
struct Touched {
    reads: SmallVec<[Regs; 4]>,
    writes: SmallVec<[Regs; 2]>,
    /// Nothing passes it.
    stays: bool,
}

impl Touched {
    fn of(target: Target, inst: &MInst) -> Touched {
        let regs = |o: Opnd| if let Opnd::P(r) = o { Some(r) } else { None };
        let mut t = Touched {
            reads: inst.uses(target).filter_map(regs).collect(),
            writes: inst.dsts.iter().copied().filter_map(regs).collect(),
            stays: true,
        };
        if let Some(info) = inst.info(target) {
            let one = |r: &Reg| Regs::new(*r, 1);
            t.reads.extend(info.reads.iter().map(one));
            t.writes.extend(info.writes.iter().map(one));
            let odd = Flags::SIDE_EFFECTS.0 | Flags::BRANCH.0 | Flags::BARRIER.0 | Flags::TERMINATOR.0;
            t.stays = info.flags.0 & odd != 0;
        }
        t
    }
    fn meets(a: &[Regs], b: &[Regs]) -> bool {
        a.iter().any(|x| b.iter().any(|y| x.overlaps(*y)))
    }
    /// The instruction may go before `other`, which stands before it.
    fn passes(&self, other: &Touched) -> bool {
        !other.stays
            && !Self::meets(&self.reads, &other.writes)
            && !Self::meets(&self.writes, &other.reads)
            && !Self::meets(&self.writes, &other.writes)
    }
    /// The instruction may be issued with `first`, which stands before it.
    fn joins(&self, first: &Touched) -> bool {
        !Self::meets(&self.reads, &first.writes) && !Self::meets(&self.writes, &first.writes)
    }
}

/// The nearest instruction behind the `i`-th that it makes a pair with, and the pair.
fn partner(
    target: Target,
    left: &[Option<MInst>],
    touches: &[Touched],
    (i, first): (usize, &MInst),
    window: usize,
) -> Option<(usize, MInst)> {
    if !first.mods.is_empty() || !first.op().is_some_and(|op| pairs().halves.contains(&op)) {
        return None;
    }
    let mut between: SmallVec<[usize; 8]> = SmallVec::new();
    for k in (i + 1..left.len()).filter(|&k| left[k].is_some()).take(window) {
        let second = left[k].as_ref()?;
        if touches[k].joins(&touches[i])
            && between.iter().all(|&b| touches[k].passes(&touches[b]))
            && let Some(both) = joined(target, first, second)
        {
            return Some((k, both));
        }
        if touches[k].stays {
            return None;
        }
        between.push(k);
    }
    None
}

/// The pair of two instructions, in the order and with the order of operands that the target takes.
fn joined(target: Target, a: &MInst, b: &MInst) -> Option<MInst> {
    let none = crate::mir::Group::default();
    if !b.mods.is_empty() || a.group != b.group && a.group != none && b.group != none {
        return None;
    }
    let group = a.group.max(b.group);
    for (x, y) in [(a, b), (b, a)] {
        let Some(&op) = pairs().both.get(&(x.op()?, y.op()?)).filter(|op| target.has(**op)) else { continue };
        let ([Opnd::P(dx)], [Opnd::P(dy)]) = (&x.dsts[..], &y.dsts[..]) else { continue };
        let all = of_vectors(x) && of_vectors(y);
        for (swap_x, swap_y) in [(false, false), (true, false), (false, true), (true, true)] {
            let (Some(rx), Some(ry)) = (read(target, x, swap_x), read(target, y, swap_y)) else { continue };
            let quick = pairing(target, op, [*dx, *dy], [rx, ry], all);
            if quick == Pairing::No {
                continue;
            }
            let note = if a.note.of.is_some() { a.note } else { b.note };
            let mut both = MInst { group, note, ..MInst::new(op, &x.dsts, &x.srcs) };
            if swap_x {
                both.srcs.swap(0, 1);
            }
            both.dsts.extend_from_slice(&y.dsts);
            let own = both.srcs.len();
            both.srcs.extend_from_slice(&y.srcs);
            if swap_y {
                both.srcs.swap(own, own + 1);
            }
            let is_legal = || lower_inst(&both, |_| 0).is_some_and(|i| barewave_isa::legal(target, &i).is_ok());
            if quick == Pairing::Yes || is_legal() {
                return Some(both);
            }
        }
    }
    None
}

/// All operands are VGPRs, and a third source is what the instruction writes over.
fn of_vectors(inst: &MInst) -> bool {
    let vector = |o: &Opnd| matches!(o, Opnd::P(r) if r.first.file() == RegFile::Vgpr);
    let addend = inst.srcs.get(2).is_none_or(|addend| inst.dsts.first() == Some(addend));
    addend && inst.srcs.len() <= 3 && inst.srcs.iter().chain(&inst.dsts).all(vector)
}

/// The first two sources, swapped if so wanted, where they are registers; none where they must not be swapped. A constant may take the
/// place of the second.
fn read(target: Target, inst: &MInst, swap: bool) -> Option<[Option<Regs>; 2]> {
    let swaps = || inst.srcs.len() > 1 && inst.info(target).is_some_and(|i| i.flags.has(Flags::COMMUTATIVE));
    if swap && !swaps() {
        return None;
    }
    let register = |i: usize| inst.srcs.get(i).and_then(|o| if let Opnd::P(r) = o { Some(*r) } else { None });
    let constant = inst.srcs.iter().any(|o| matches!(o, Opnd::Imm(_)));
    let (first, second) = if swap { (1, 0) } else { (0, 1) };
    Some([register(first), register(second).filter(|_| !constant)])
}
