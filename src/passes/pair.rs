//! Dual issue: two vector instructions become one where the target has their pair.
//!
//! For each instruction, in order, the nearest one behind it is looked for that may stand beside it: the tables have the pair
//! of the operations, no half reads or writes what the other writes (the first may read what the second writes: both read
//! before either writes), nothing between them touches what the second would pass, and the registers lie in banks that can be
//! read together ([`barewave_isa::legal`]); operands of operations that allow it change places for that. In a block
//! whose order is its author's only neighbours are paired.
//!
//! Authors of loops of many multiply-adds write pairs themselves, which passes then have half as many of. What registers these
//! get they cannot know: a pair whose registers cannot be read together is taken apart, and its halves are seen as others are.
//!
//! It runs on physical registers, before waits are put in. Only waves of 32 lanes issue pairs.

use super::emit::lower_inst;
use crate::mir::{Function, MInst, Opnd, Order};
use barewave_isa::{Class, Flags, Op, Pairing, RegFile, Regs, Target, pairing};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::sync::OnceLock;

/// How far behind an instruction its partner may stand.
const WINDOW: usize = 6;

/// A pair that an author wrote, of which nothing can be made with the registers that it has got.
#[derive(Debug, thiserror::Error)]
#[error(
    "kernel {kernel}, {block}: the halves of {inst} can neither be issued together, for the banks of their registers, nor one behind the other"
)]
pub struct Inseparable {
    kernel: String,
    block: String,
    inst: String,
}

/// Joins instructions into pairs, and takes those apart that cannot be.
pub fn pair(f: &mut Function) -> Result<(), Inseparable> {
    if !has_pairs(f.target) {
        return Ok(());
    }
    let target = f.target;
    for b in 0..f.blocks.len() {
        separate(target, &mut f.blocks[b].insts).map_err(|inst| {
            let inst = f.inst_text(&inst);
            Inseparable { kernel: f.name.clone(), block: f.blocks[b].name.clone(), inst }
        })?;
        let block = &mut f.blocks[b];
        let window = if block.order == Order::Fixed { 1 } else { WINDOW };
        let insts = &mut block.insts;
        let touches: Vec<OnceCell<Touched>> = vec![OnceCell::new(); insts.len()];
        // What has joined an instruction before it.
        let mut gone = vec![false; insts.len()];
        for i in 0..insts.len() {
            if !gone[i]
                && let Some((k, both)) = partner(target, insts, &gone, &touches, i, window)
            {
                insts[i] = both;
                gone[k] = true;
            }
        }
        let mut gone = gone.into_iter();
        insts.retain(|_| !gone.next().unwrap_or(false));
    }
    Ok(())
}

/// Takes the pairs of a block apart whose registers cannot be read together; the first one with which that cannot be done.
fn separate(target: Target, insts: &mut Vec<MInst>) -> Result<(), MInst> {
    let stays = |i: &MInst| !i.op().is_some_and(Op::is_pair) || is_legal(target, i);
    let Some(first) = insts.iter().position(|i| !stays(i)) else { return Ok(()) };
    for inst in insts.split_off(first) {
        if stays(&inst) {
            insts.push(inst);
            continue;
        }
        let Some([x, y]) = halves(target, &inst) else { return Err(inst) };
        match joined(target, &x, &y) {
            Some(both) => insts.push(both),
            None => insts.extend([x, y]),
        }
    }
    Ok(())
}

/// A pair's registers can be read together.
fn is_legal(target: Target, both: &MInst) -> bool {
    let halves = own_sources(target, both).map(|own| both.srcs.split_at(own));
    let quick = match (both.op(), &both.dsts[..], halves) {
        (Some(op), [Opnd::P(dx), Opnd::P(dy)], Some((x @ ([_] | [_, _]), y @ ([_] | [_, _])))) => {
            let all = is_plain(x, 0) && is_plain(y, 0) && share_constants(x, y);
            let read = [x, y].map(|half| [register(half, 0), register(half, 1), None]);
            if all { pairing(target, op, [*dx, *dy], read, true) } else { Pairing::Perhaps }
        }
        _ => Pairing::Perhaps,
    };
    let slowly = || lower_inst(both, |_| 0).is_some_and(|i| barewave_isa::legal(target, &i).is_ok());
    quick == Pairing::Yes || quick == Pairing::Perhaps && slowly()
}

/// The `i`-th source, if it is registers.
fn register(srcs: &[Opnd], i: usize) -> Option<Regs> {
    srcs.get(i).and_then(|o| if let Opnd::P(r) = *o { Some(r) } else { None })
}

/// All are VGPRs, or a constant where the `first` one is.
fn is_plain(srcs: &[Opnd], first: usize) -> bool {
    let vector = |o: &Opnd| matches!(o, Opnd::P(r) if r.first.file() == RegFile::Vgpr);
    srcs.iter().enumerate().all(|(i, o)| vector(o) || i == first && matches!(o, Opnd::Imm(_)))
}

/// There is one constant at most.
fn share_constants(x: &[Opnd], y: &[Opnd]) -> bool {
    let constants = |of: &[Opnd]| of.iter().copied().find(|o| matches!(o, Opnd::Imm(_)));
    constants(x).zip(constants(y)).is_none_or(|(x, y)| x == y)
}

/// How many of a pair's sources are those of its first half.
pub(super) fn own_sources(target: Target, both: &MInst) -> Option<usize> {
    let (x, y) = both.op()?.dual_parts()?;
    let [x, y] = [x, y].map(|half| target.op(half).map(|info| info.srcs.len()));
    (x? + y? == both.srcs.len()).then_some(x?)
}

/// The halves of a pair, in an order in which they can follow each other: the second one does not read what the first one writes.
fn halves(target: Target, both: &MInst) -> Option<[MInst; 2]> {
    let (x, y) = both.op()?.dual_parts()?;
    let own = own_sources(target, both).filter(|_| both.mods.is_empty())?;
    let [dx, dy] = both.dsts[..] else { return None };
    let half = |op: Op, d: Opnd, srcs: &[Opnd]| MInst {
        stage: both.stage,
        group: both.group,
        note: both.note,
        ..MInst::new(op, &[d], srcs)
    };
    let (x, y) = (half(x, dx, &both.srcs[..own]), half(y, dy, &both.srcs[own..]));
    let (of_x, of_y) = (Touched::of(target, &x), Touched::of(target, &y));
    if of_y.joins(&of_x) { Some([x, y]) } else { of_x.joins(&of_y).then_some([y, x]) }
}

/// The pair of two instructions if only their registers lie in the right banks; none where the target has none.
pub(super) fn pair_of(target: Target, x: &MInst, y: &MInst) -> Option<Op> {
    pairs().of(x, y).filter(|op| x.mods.is_empty() && y.mods.is_empty() && target.has(*op))
}

/// The target has pairs at all.
pub(super) fn has_pairs(target: Target) -> bool {
    target.info().wave_size == 32 && pairs().both.iter().flatten().any(|op| target.has(*op))
}

/// All pairs of any target.
struct Pairs {
    /// Number of each operation that is a half of some, from 1 on; 0 for others.
    halves: Vec<u8>,
    /// By the numbers of their halves: a row for each first one.
    both: Vec<Option<Op>>,
    row: usize,
}

impl Pairs {
    /// The number of what an instruction does among the halves.
    #[inline]
    fn half(&self, i: &MInst) -> Option<usize> {
        let n = self.halves.get(usize::from(i.op()?.0))?;
        (*n > 0).then_some(usize::from(*n))
    }

    /// The pair of two.
    #[inline]
    fn of(&self, a: &MInst, b: &MInst) -> Option<Op> {
        self.both[self.half(a)? * self.row + self.half(b)?]
    }
}

fn pairs() -> &'static Pairs {
    static PAIRS: OnceLock<Pairs> = OnceLock::new();
    PAIRS.get_or_init(|| {
        let all = (0..Op::COUNT as u16).map(Op);
        let all: Vec<((Op, Op), Op)> = all.filter_map(|op| Some((op.dual_parts()?, op))).collect();
        let (mut halves, mut row) = (vec![0u8; Op::COUNT], 1);
        for half in all.iter().flat_map(|((a, b), _)| [a, b]).map(|half| usize::from(half.0)) {
            if halves[half] == 0 {
                halves[half] = row as u8;
                row += 1;
            }
        }
        let mut both = vec![None; row * row];
        for ((a, b), pair) in all {
            let [a, b] = [a, b].map(|half| usize::from(halves[usize::from(half.0)]));
            both[a * row + b] = Some(pair);
        }
        Pairs { halves, both, row }
    })
}

/// What an instruction reads and writes.
#[derive(Clone)]
struct Touched {
    reads: SmallVec<[Regs; 8]>,
    writes: SmallVec<[Regs; 4]>,
}

/// Nothing passes the instruction.
fn stays(target: Target, inst: &MInst) -> bool {
    let odd = Flags::SIDE_EFFECTS.0 | Flags::BRANCH.0 | Flags::BARRIER.0 | Flags::TERMINATOR.0;
    inst.info(target).is_none_or(|info| info.flags.0 & odd != 0)
}

impl Touched {
    fn of(target: Target, inst: &MInst) -> Touched {
        let info = inst.info(target);
        let mut t = Touched { reads: SmallVec::new(), writes: SmallVec::new() };
        for o in &inst.srcs {
            if let Opnd::P(r) = *o {
                t.reads.push(r);
            }
        }
        for (i, o) in inst.dsts.iter().enumerate() {
            let Opnd::P(r) = *o else { continue };
            t.writes.push(r);
            if info.is_some_and(|x| x.dsts.get(i).is_some_and(|s| s.read)) {
                t.reads.push(r);
            }
        }
        if let Some(info) = info {
            info.reads.iter().for_each(|r| t.reads.push(Regs::new(*r, 1)));
            info.writes.iter().for_each(|r| t.writes.push(Regs::new(*r, 1)));
        }
        t
    }
    fn meets(a: &[Regs], b: &[Regs]) -> bool {
        a.iter().any(|x| b.iter().any(|y| x.overlaps(*y)))
    }
    /// The instruction may go before `other`, which stands before it.
    fn passes(&self, other: &Touched) -> bool {
        !Self::meets(&self.reads, &other.writes)
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
    insts: &[MInst],
    gone: &[bool],
    touches: &[OnceCell<Touched>],
    i: usize,
    window: usize,
) -> Option<(usize, MInst)> {
    let (pairs, first) = (pairs(), &insts[i]);
    if !first.mods.is_empty() || pairs.half(first).is_none() {
        return None;
    }
    let touched = |k: usize| touches[k].get_or_init(|| Touched::of(target, &insts[k]));
    let mut between: SmallVec<[usize; 8]> = SmallVec::new();
    for k in (i + 1..insts.len()).filter(|&k| !gone[k]).take(window) {
        let second = &insts[k];
        if (pairs.of(first, second).is_some() || pairs.of(second, first).is_some())
            && touched(k).joins(touched(i))
            && between.iter().all(|&b| touched(k).passes(touched(b)))
            && let Some(both) = joined(target, first, second)
        {
            return Some((k, both));
        }
        if stays(target, second) {
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
    let of_a = [read(target, a, false), read(target, a, true)];
    let of_b = [read(target, b, false), read(target, b, true)];
    for (x, of_x, y, of_y) in [(a, of_a, b, of_b), (b, of_b, a, of_a)] {
        let Some(op) = pairs().of(x, y).filter(|op| target.has(*op)) else { continue };
        let ([Opnd::P(dx)], [Opnd::P(dy)]) = (&x.dsts[..], &y.dsts[..]) else { continue };
        let alike = share_constants(&x.srcs, &y.srcs);
        for (swap_x, swap_y) in [(false, false), (true, false), (false, true), (true, true)] {
            let (Some(rx), Some(ry)) = (of_x[usize::from(swap_x)], of_y[usize::from(swap_y)]) else { continue };
            let all = alike && is_known(x, swap_x) && is_known(y, swap_y);
            let quick = pairing(target, op, [*dx, *dy], [rx, ry], all);
            if quick == Pairing::No || quick == Pairing::Perhaps && !fits(target, op, [(x, swap_x), (y, swap_y)]) {
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

/// Sources of the halves that can only be VGPRs are; the first two of a half may be swapped.
fn fits(target: Target, pair: Op, halves: [(&MInst, bool); 2]) -> bool {
    let slots = target.op(pair).map_or(&[][..], |info| info.srcs);
    let mut slots = slots.iter();
    halves.into_iter().all(|(half, swap)| {
        (0..half.srcs.len()).all(|i| {
            let source = &half.srcs[if swap && i < 2 { 1 - i } else { i }];
            let vector = matches!(source, Opnd::P(r) if r.first.file() == RegFile::Vgpr);
            slots.next().is_none_or(|s| s.class != Class::VGPR || vector)
        })
    })
}

/// [`pairing`] knows all of it: it has nothing but VGPRs, or a constant as its first source, and a third source is what it writes over.
fn is_known(inst: &MInst, swap: bool) -> bool {
    let addend = inst.srcs.get(2).is_none_or(|addend| inst.dsts.first() == Some(addend));
    addend && inst.srcs.len() <= 3 && is_plain(&inst.dsts, usize::MAX) && is_plain(&inst.srcs, swap.into())
}

/// The sources, the first two swapped if so wanted, where they are registers; none where they must not be swapped. A constant behind the first
/// may take the place of the second.
fn read(target: Target, inst: &MInst, swap: bool) -> Option<[Option<Regs>; 3]> {
    let swaps = || inst.srcs.len() > 1 && inst.info(target).is_some_and(|i| i.flags.has(Flags::COMMUTATIVE));
    if swap && !swaps() {
        return None;
    }
    let (first, second) = if swap { (1, 0) } else { (0, 1) };
    let constant = inst.srcs.iter().enumerate().any(|(i, o)| i != first && matches!(o, Opnd::Imm(_)));
    let behind = |i: usize| register(&inst.srcs, i).filter(|_| !constant);
    Some([register(&inst.srcs, first), behind(second), behind(2)])
}
