//! Proves a register allocation, independently of the allocator.
//!
//! The argument: run the allocated program on an abstract machine whose registers hold *names* instead of values. The
//! name of a value is the dword of the virtual register that it was computed into. At every instruction the function
//! before allocation says which names the operands must carry; the function after allocation says in which physical
//! registers they are looked for. If on every path each operand finds its name, every instruction sees the value it
//! would have seen with virtual registers. When a name is written its older copies become stale, so they are dropped
//! everywhere. Where paths meet, a place keeps only the name it holds on all of them; the analysis starts from
//! "every name" and shrinks to a fixpoint, so loops are covered.
//!
//! What the allocator adds to move values out of the registers and back is part of the proof: such an instruction copies a
//! name between a register and an AGPR, a lane of a VGPR, or a slot of scratch memory, which are places like registers;
//! scratch is reached only through registers that hold the names of its description. A value that is one constant may be
//! made anew instead. Nothing else may be added, and nothing but the move that made such a constant may be missing: the
//! function keeps its blocks, and each block its instructions in their order. Of moves of one constant that follow each other
//! it does not show which are missing: a choice under which the argument holds is a proof.
//!
//! Besides, every operand is in a register file that the instruction takes, aligned as it must be, within the file; and
//! a result that the hardware may write before it has read all operands shares no register with them.

use crate::mir::abi::preloaded;
use crate::mir::liveness::Units;
use crate::mir::{Function, MInst, Memory, Opnd};
use barewave_isa::{Class, Flags, ModName, OpInfo, Pipe, Reg, RegFile, Regs, Target, op};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A disproof.
#[derive(Debug, thiserror::Error)]
#[error("register allocation of {kernel} is wrong at {block}, instruction {index}: {what}")]
pub struct CheckError {
    kernel: String,
    block: String,
    index: usize,
    what: Difference,
}

/// What differs.
#[derive(Debug, thiserror::Error)]
enum Difference {
    #[error("the number of blocks differs")]
    Blocks,
    #[error("{0:?} is missing")]
    Missing(Box<MInst>),
    #[error("{before:?} became another instruction: {after:?}")]
    Replaced { before: Box<MInst>, after: Box<MInst> },
    #[error("operand {before:?} became {after:?} in {inst:?}")]
    Operand { before: Opnd, after: Opnd, inst: Box<MInst> },
    #[error("{register:?} should hold dword {dword} of {of:?} but holds {} in {inst:?}", holds(*.held))]
    Value { register: Reg, dword: u32, of: Opnd, held: Option<Name>, inst: Box<MInst> },
    #[error("{register:?} is written twice by {inst:?}")]
    Twice { register: Reg, inst: Box<MInst> },
    #[error("{0:?} was added and moves no value")]
    Added(Box<MInst>),
    #[error("{operand} does not describe scratch in {inst:?}")]
    Scratch { operand: Regs, inst: Box<MInst> },
    #[error("{result} may be written before {operand} is read by {inst:?}")]
    Clobbered { result: Regs, operand: Regs, inst: Box<MInst> },
    #[error("{regs} cannot be {slot} of {inst:?}: {why}")]
    Misplaced { regs: Regs, slot: &'static str, inst: Box<MInst>, why: Misfit },
}

/// Why an operand cannot be in its registers.
#[derive(Debug, thiserror::Error)]
enum Misfit {
    #[error("it takes no register of that kind")]
    Kind,
    #[error("there are {0}")]
    Beyond(u32),
    #[error("it must start at a multiple of {0}")]
    Alignment(u16),
}

fn holds(name: Option<Name>) -> String {
    name.map_or("nothing known".into(), |n| format!("dword {n}"))
}

/// An instruction for an error.
fn kept(i: &MInst) -> Box<MInst> {
    Box::new(i.clone())
}

/// What a place holds: a dword of a virtual register by its unit, or one of the names below.
type Name = u32;

/// No name.
const NOTHING: Name = u32::MAX;
/// The dwords of the description of scratch, and behind them the wave's offset.
const FRAME: Name = 0xffff_ff00;
/// Number of the wave's offset among them.
const WAVE_OFFSET: Name = FRAME + 4;
/// Constants that values are made anew from, by their number in [`Original::values`].
const CONSTANT: Name = 0x8000_0000;

/// Where a dword can be besides registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Slot {
    /// A lane of a VGPR that holds scalars.
    Lane(Reg, u64),
    /// Byte offset in scratch.
    Scratch(i32),
}

#[derive(Clone, Copy)]
enum Place {
    Reg(Reg),
    Slot(Slot),
}

/// Which name each place holds, and how many places hold each unit.
#[derive(Clone, PartialEq)]
struct State {
    names: Vec<Name>,
    slots: BTreeMap<Slot, Name>,
    holders: Vec<u16>,
}

impl State {
    fn new(units: usize) -> State {
        State { names: vec![NOTHING; Reg::COUNT], slots: BTreeMap::new(), holders: vec![0; units] }
    }
    fn get(&self, at: Place) -> Option<Name> {
        match at {
            Place::Reg(r) => self.names.get(usize::from(r.0)).copied().filter(|n| *n != NOTHING),
            Place::Slot(s) => self.slots.get(&s).copied(),
        }
    }
    /// Nothing is known of a place any more.
    fn forget(&mut self, at: Place) {
        let Some(name) = self.get(at) else { return };
        if let Some(n) = self.holders.get_mut(name as usize) {
            *n -= 1;
        }
        match at {
            Place::Reg(r) => self.names[usize::from(r.0)] = NOTHING,
            Place::Slot(s) => {
                self.slots.remove(&s);
            }
        }
    }
    /// A register holds something else, and so do its lanes.
    fn overwrite(&mut self, r: Reg) {
        self.forget(Place::Reg(r));
        if !self.slots.is_empty() {
            let lanes: Vec<Slot> =
                self.slots.range(Slot::Lane(r, 0)..=Slot::Lane(r, u64::MAX)).map(|(slot, _)| *slot).collect();
            lanes.into_iter().for_each(|l| self.forget(Place::Slot(l)));
        }
    }
    fn put(&mut self, at: Place, name: Name) {
        self.forget(at);
        if let Some(n) = self.holders.get_mut(name as usize) {
            *n += 1;
        }
        match at {
            Place::Reg(r) => self.names[usize::from(r.0)] = name,
            Place::Slot(s) => {
                self.slots.insert(s, name);
            }
        }
    }
    /// A name is computed anew: its copies are stale.
    fn expire(&mut self, unit: Name) {
        if std::mem::take(&mut self.holders[unit as usize]) > 0 {
            self.names.iter_mut().filter(|n| **n == unit).for_each(|n| *n = NOTHING);
            self.slots.retain(|_, n| *n != unit);
        }
    }
    /// What both hold.
    fn meet(&self, other: &State) -> State {
        let mut out = self.clone();
        for (at, theirs) in other.names.iter().enumerate() {
            if out.names[at] != *theirs {
                out.forget(Place::Reg(Reg(at as u16)));
            }
        }
        let gone: Vec<Slot> =
            out.slots.iter().filter(|(s, n)| other.slots.get(s) != Some(n)).map(|(s, _)| *s).collect();
        gone.into_iter().for_each(|s| out.forget(Place::Slot(s)));
        out
    }
}

/// Where the abstract machine stops, by the instructions of both functions, and why.
struct Stop {
    original: usize,
    allocated: usize,
    why: Difference,
}

/// What the checks know of the function before allocation.
struct Original<'a> {
    f: &'a Function,
    units: Units,
    /// Of each dword the name of the one constant that it ever holds, or none.
    constants: Vec<Name>,
    /// Those constants.
    values: Vec<u64>,
}

/// Checks that `after` is `before` with virtual registers replaced by physical ones, and with code that moves values out
/// of registers and back, so that every operand still carries its value.
pub fn check(before: &Function, after: &Function) -> Result<(), CheckError> {
    let units = Units::of(before);
    let constants = constants(before, &units);
    let mut values: Vec<u64> = constants.iter().flatten().copied().collect();
    values.sort_unstable();
    values.dedup();
    let mut original = Original { f: before, units, constants: Vec::new(), values };
    original.constants = constants.iter().map(|v| v.map_or(NOTHING, |v| original.constant(v))).collect();
    let fail = |b: usize, index: usize, what: Difference| CheckError {
        kernel: before.name.clone(),
        block: before.blocks.get(b).map_or(String::new(), |b| b.name.clone()),
        index,
        what,
    };
    if before.blocks.len() != after.blocks.len() {
        return Err(fail(0, 0, Difference::Blocks));
    }
    for (b, block) in after.blocks.iter().enumerate() {
        for (i, y) in block.insts.iter().enumerate() {
            original.constraints(y).map_err(|what| fail(b, i, what))?;
        }
    }
    let mut start = State::new(original.units.count());
    let frame = after.preloads.scratch;
    for (v, r) in preloaded(after) {
        for i in 0..after.vreg(v).dwords {
            let name = match frame {
                Some([description, _]) if description == v => FRAME + Name::from(i),
                Some([_, wave]) if wave == v => WAVE_OFFSET,
                // what the allocator wants preloaded besides holds nothing that the program knows
                _ if v.0 as usize >= before.vregs.len() => continue,
                _ => original.units.base(v) as Name + Name::from(i),
            };
            start.put(Place::Reg(r.offset(u16::from(i))), name);
        }
    }
    let mut at_block: Vec<Option<State>> = vec![None; before.blocks.len()];
    at_block[0] = Some(start);
    // The first block of those first: most come before what they lead to.
    let mut work = BTreeSet::from([0]);
    while let Some(b) = work.pop_first() {
        let (xs, ys) = (&before.blocks[b].insts, &after.blocks[b].insts);
        let mut dropped = Vec::new();
        let state = loop {
            let mut state = at_block[b].clone().expect("a block on the list has a state");
            let Err(stop) = original.block(xs, ys, &dropped, &mut state) else { break state };
            match original.mistaken(&xs[..xs.len().min(stop.original + 1)], &dropped) {
                Some(x) => dropped.push(x),
                None => return Err(fail(b, stop.allocated, stop.why)),
            }
        };
        for s in before.successors(b) {
            let new = match &at_block[s] {
                None => state.clone(),
                Some(old) => old.meet(&state),
            };
            if at_block[s].as_ref() != Some(&new) {
                at_block[s] = Some(new);
                work.insert(s);
            }
        }
    }
    Ok(())
}

/// Of each dword the constant that it holds, where its only writer is a move of one.
fn constants(f: &Function, units: &Units) -> Vec<Option<u64>> {
    let mut constants = vec![None; units.count()];
    let mut written = vec![false; units.count()];
    // What is preloaded has been written before.
    preloaded(f).iter().for_each(|(v, _)| written[units.of_part(f.whole(*v))].fill(true));
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let value = constant_of(inst);
        for p in inst.dsts.iter().filter_map(|o| o.part()) {
            for u in units.of_part(p) {
                let first = !std::mem::replace(&mut written[u], true);
                constants[u] = value.filter(|_| first && p.len == 1);
            }
        }
    }
    constants
}

/// The constant that a move writes.
fn constant_of(inst: &MInst) -> Option<u64> {
    match (inst.op()?, &inst.srcs[..]) {
        (op::V_MOV_B32 | op::S_MOV_B32, [Opnd::Imm(v)]) if inst.mods.is_empty() => Some(*v),
        _ => None,
    }
}

impl Original<'_> {
    /// Runs a block of both functions, the second without the moves of constants at some places of the first.
    fn block(&self, xs: &[MInst], ys: &[MInst], dropped: &[usize], state: &mut State) -> Result<(), Stop> {
        let mut at = 0;
        for (j, y) in ys.iter().enumerate() {
            let stop = |at, why| Stop { original: at, allocated: j, why };
            loop {
                if dropped.contains(&at) {
                    at += 1;
                    continue;
                }
                let Some(x) = xs.get(at) else {
                    self.moves(y, state).map_err(|e| stop(at, e))?;
                    break;
                };
                match self.same(x, y, state) {
                    Ok(()) => {
                        at += 1;
                        break;
                    }
                    Err(why) => match self.moves(y, state) {
                        Ok(()) => break,
                        // the move of a constant that is made anew where it is read
                        Err(_) if self.is_dropped(x) => at += 1,
                        Err(_) => return Err(stop(at, why)),
                    },
                }
            }
        }
        match (at..xs.len()).find(|i| !dropped.contains(i) && !self.is_dropped(&xs[*i])) {
            Some(i) => Err(Stop { original: i, allocated: ys.len(), why: Difference::Missing(kept(&xs[i])) }),
            None => Ok(()),
        }
    }

    /// The last of instructions that moves a constant which may be made anew and may have been taken to be there for another
    /// move of the same constant behind it, which may not be missing.
    fn mistaken(&self, xs: &[MInst], dropped: &[usize]) -> Option<usize> {
        let there = |x: &MInst, y: &MInst| x.code == y.code && x.srcs == y.srcs && !self.is_dropped(y);
        (0..xs.len())
            .rev()
            .find(|i| !dropped.contains(i) && self.is_dropped(&xs[*i]) && xs[i + 1..].iter().any(|y| there(&xs[*i], y)))
    }

    fn is_dropped(&self, x: &MInst) -> bool {
        let target = |o: &Opnd| if let Opnd::V(p) = o { Some(*p) } else { None };
        let Some(p) = x.dsts.first().and_then(target) else { return false };
        constant_of(x).is_some() && self.units.of_part(p).all(|u| self.constants[u] != NOTHING)
    }

    /// Executes one instruction of the program on the abstract machine, if `y` is `x` with its operands in registers.
    fn same(&self, x: &MInst, y: &MInst, state: &mut State) -> Result<(), Difference> {
        let alike = x.code == y.code && x.mods == y.mods && x.space == y.space;
        if !alike || x.dsts.len() != y.dsts.len() || x.srcs.len() != y.srcs.len() {
            return Err(Difference::Replaced { before: kept(x), after: kept(y) });
        }
        let (dsts, implied) = y.info(self.f.target).map_or((&[][..], &[][..]), |i| (i.dsts, i.writes));
        for (i, a) in x.srcs.iter().enumerate() {
            self.carries(a, &y.srcs[i], y, state)?;
        }
        for (i, a) in x.dsts.iter().enumerate() {
            if dsts.get(i).is_some_and(|s| s.read) {
                self.carries(a, &y.dsts[i], y, state)?;
            }
        }
        self.apart(x, y)?;
        let mut written: SmallVec<[(u32, Reg); 8]> = SmallVec::new();
        for (i, a) in x.dsts.iter().enumerate() {
            if let Some((first, regs)) = self.paired(a, &y.dsts[i], y)? {
                for i in 0..u16::from(regs.dwords) {
                    let r = regs.first.offset(i);
                    // Those of one result differ.
                    if x.dsts.len() > 1 && written.iter().any(|w| w.1 == r) {
                        return Err(Difference::Twice { register: r, inst: kept(y) });
                    }
                    written.push((first + u32::from(i), r));
                }
            }
        }
        // What is overwritten first need not be looked for: most registers hold what they are given anew.
        for o in y.dsts.iter() {
            if let Opnd::P(r) = o {
                for i in 0..u16::from(r.dwords) {
                    state.overwrite(r.first.offset(i));
                }
            }
        }
        for w in written.iter() {
            state.expire(w.0);
        }
        for r in implied {
            state.overwrite(*r);
        }
        for w in written.iter() {
            state.put(Place::Reg(w.1), self.name(w.0));
        }
        Ok(())
    }

    /// The first dword of an operand, and the registers that it became; none where it is no virtual register and stays.
    #[inline(always)]
    fn paired(&self, a: &Opnd, b: &Opnd, y: &MInst) -> Result<Option<(u32, Regs)>, Difference> {
        match (a, b) {
            (Opnd::V(p), Opnd::P(r)) if p.len == r.dwords => Ok(Some((self.units.of_part(*p).start as u32, *r))),
            (a, b) if a == b && !matches!(a, Opnd::V(_)) => Ok(None),
            (a, b) => Err(Difference::Operand { before: *a, after: *b, inst: kept(y) }),
        }
    }

    /// An operand that is read is in registers that hold it.
    #[inline(always)]
    fn carries(&self, a: &Opnd, b: &Opnd, y: &MInst, state: &State) -> Result<(), Difference> {
        let Some((first, regs)) = self.paired(a, b, y)? else { return Ok(()) };
        for i in 0..u16::from(regs.dwords) {
            let (u, r) = (first + u32::from(i), regs.first.offset(i));
            let held = state.get(Place::Reg(r));
            if held != Some(u) && !held.is_some_and(|h| self.is_constant(u, h)) {
                return Err(Difference::Value { register: r, dword: u, of: *a, held, inst: kept(y) });
            }
        }
        Ok(())
    }

    /// The name of a constant that values are made anew from.
    fn constant(&self, v: u64) -> Name {
        self.values.binary_search(&v).map_or(NOTHING, |i| CONSTANT + i as Name)
    }

    /// What a place that holds a dword holds: of a dword that only ever holds one constant, that.
    fn name(&self, unit: u32) -> Name {
        match self.constants[unit as usize] {
            NOTHING => unit,
            constant => constant,
        }
    }

    /// The dword only ever holds the constant of this name.
    fn is_constant(&self, unit: u32, name: Name) -> bool {
        name != NOTHING && self.constants[unit as usize] == name
    }

    /// Executes an instruction that only moves a value.
    fn moves(&self, y: &MInst, state: &mut State) -> Result<(), Difference> {
        let other = || Difference::Added(kept(y));
        let single = |o: Option<&Opnd>| match o {
            Some(Opnd::P(r)) if r.dwords == 1 => Some(r.first),
            _ => None,
        };
        let (to, from) = (single(y.dsts.first()), single(y.srcs.first()));
        let lane = |o: Option<&Opnd>| if let Some(Opnd::Imm(n)) = o { Some(*n) } else { None };
        let offset = y.mods.get(ModName::Offset).unwrap_or(0);
        let copy = |to, from| (Place::Reg(to), Place::Reg(from));
        let (to, from) = match (y.op().ok_or_else(other)?, to, from) {
            (op::V_ACCVGPR_WRITE_B32 | op::V_ACCVGPR_READ_B32 | op::V_ACCVGPR_MOV_B32, Some(to), Some(from)) => {
                copy(to, from)
            }
            (op::V_WRITELANE_B32, Some(to), Some(from)) => {
                (Place::Slot(Slot::Lane(to, lane(y.srcs.get(1)).ok_or_else(other)?)), Place::Reg(from))
            }
            (op::V_READLANE_B32, Some(to), Some(from)) => {
                (Place::Reg(to), Place::Slot(Slot::Lane(from, lane(y.srcs.get(1)).ok_or_else(other)?)))
            }
            (_, Some(to), None) if constant_of(y).is_some() => {
                state.overwrite(to);
                let name = constant_of(y).map_or(NOTHING, |v| self.constant(v));
                if name != NOTHING {
                    state.put(Place::Reg(to), name);
                }
                return Ok(());
            }
            (o, to, from) if y.space.memory == Memory::Scratch => {
                self.frame(y, state)?;
                let slot = Place::Slot(Slot::Scratch(offset));
                match (o, to, from) {
                    (op::BUFFER_LOAD_DWORD | op::SCRATCH_LOAD_DWORD, Some(to), _) => (Place::Reg(to), slot),
                    (op::BUFFER_STORE_DWORD, _, Some(from)) => (slot, Place::Reg(from)),
                    (op::SCRATCH_STORE_DWORD, ..) => (slot, Place::Reg(single(y.srcs.get(1)).ok_or_else(other)?)),
                    _ => return Err(other()),
                }
            }
            _ => return Err(other()),
        };
        let name = state.get(from);
        match to {
            Place::Reg(r) => state.overwrite(r),
            // the register holds lanes from now on, and no value of its own
            Place::Slot(Slot::Lane(r, _)) => state.forget(Place::Reg(r)),
            Place::Slot(_) => {}
        }
        state.forget(to);
        if let Some(name) = name {
            state.put(to, name);
        }
        Ok(())
    }

    /// Scratch is reached as the kernel was given it.
    fn frame(&self, y: &MInst, state: &State) -> Result<(), Difference> {
        let holds = |r: Reg, name: Name| state.get(Place::Reg(r)) == Some(name);
        for o in y.srcs.iter().filter_map(|o| if let Opnd::P(r) = o { Some(*r) } else { None }) {
            let right = match (o.first.file(), o.dwords) {
                (RegFile::Vgpr | RegFile::Agpr, _) => true,
                (_, 4) => o.iter().zip(FRAME..).all(|(r, n)| holds(r, n)),
                _ => o.dwords == 1 && holds(o.first, WAVE_OFFSET),
            };
            if !right {
                return Err(Difference::Scratch { operand: o, inst: kept(y) });
            }
        }
        Ok(())
    }

    /// A result that may be written before all operands are read shares no register with them, unless the author named one
    /// value for both.
    fn apart(&self, x: &MInst, y: &MInst) -> Result<(), Difference> {
        let Some(info) = y.info(self.f.target) else { return Ok(()) };
        let ([Opnd::V(to)], [Opnd::P(result)]) = (&x.dsts[..], &y.dsts[..]) else { return Ok(()) };
        let loads = info.mem_bytes > 0 && info.pipe != Pipe::Smem;
        if result.dwords < 2 || loads || info.flags.has(Flags::VALU_WRITES_SGPR) {
            return Ok(());
        }
        for (a, b) in x.srcs.iter().zip(y.srcs.iter()) {
            if let (Opnd::V(from), Opnd::P(operand)) = (a, b)
                && from.reg != to.reg
                && operand.overlaps(*result)
            {
                return Err(Difference::Clobbered { result: *result, operand: *operand, inst: kept(y) });
            }
        }
        Ok(())
    }

    /// Every operand is where the instruction can have it.
    fn constraints(&self, y: &MInst) -> Result<(), Difference> {
        let Some(info): Option<&OpInfo> = y.info(self.f.target) else { return Ok(()) };
        for (list, slots) in [(y.dsts.as_slice(), info.dsts), (y.srcs.as_slice(), info.srcs)] {
            for (i, o) in list.iter().enumerate() {
                if let (Opnd::P(regs), Some(slot)) = (*o, slots.get(i)) {
                    fits(self.f.target, regs, slot).map_err(|why| Difference::Misplaced {
                        regs,
                        slot: slot.name,
                        inst: kept(y),
                        why,
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Whether an operand may be in these registers.
fn fits(target: Target, r: Regs, slot: &barewave_isa::Slot) -> Result<(), Misfit> {
    let t = target.info();
    let (class, size) = match r.first.file() {
        RegFile::Vgpr => (Class::VGPR, t.named_vgprs()),
        RegFile::Agpr => (Class::AGPR, t.max_agprs),
        RegFile::Sgpr => (Class::SGPR, t.max_sgprs),
        RegFile::Ttmp => (Class::SGPR, 16),
        RegFile::Special => match r.first {
            Reg::M0 => (Class::M0, u32::MAX),
            Reg::EXEC_LO | Reg::EXEC_HI => (Class::EXEC, u32::MAX),
            Reg::NULL => (Class::NULL, u32::MAX),
            Reg::VCC_LO | Reg::VCC_HI | Reg::FLAT_SCRATCH_LO | Reg::FLAT_SCRATCH_HI => (Class::SGPR, u32::MAX),
            _ => return Ok(()),
        },
    };
    if !slot.class.contains(class) {
        return Err(Misfit::Kind);
    }
    if size != u32::MAX && u32::from(r.first.index()) + u32::from(r.dwords) > size {
        return Err(Misfit::Beyond(size));
    }
    let tuple = r.dwords > 1 && matches!(r.first.file(), RegFile::Vgpr | RegFile::Agpr | RegFile::Sgpr);
    // an operand narrower than the widest encoding is aligned by its own width
    let align = u16::from(slot.align.max(1)).min(u16::from(r.dwords).next_power_of_two());
    if tuple && !r.first.index().is_multiple_of(align) {
        return Err(Misfit::Alignment(align));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::mir::parse;

    /// What the check says of a block of code before and after allocation.
    fn checked(before: &str, after: &str) -> Result<(), String> {
        let function = |body: &str| {
            let head = "kernel @k target gfx906 workgroup 64 lds 0 kernarg 0 scratch 0\npreload workitem_id %0\n";
            let text = format!("{head}regs %0:v1 %1:s1 %2:s1 %3:s1 %4:s1\nblock entry\n{body}  s_endpgm 0\n");
            parse(&text).unwrap()
        };
        super::check(&function(before), &function(after)).map_err(|e| e.to_string())
    }

    #[test]
    fn the_moves_of_one_constant_may_be_fewer_as_long_as_each_reader_finds_it() {
        // %1 and %2 only ever hold 0, %3 holds something else later.
        let moves = "  %1 = s_mov_b32 0\n  %2 = s_mov_b32 0\n  %3 = s_mov_b32 0\n";
        let reads = "  %4 = s_add_u32 %1, %2\n  %3 = s_add_u32 %3, %4\n";
        let before = format!("{moves}{reads}");
        let zero = |r: &str| format!("  {r} = s_mov_b32 0\n");
        let all = "  s4 = s_add_u32 s1, s2\n  s3 = s_add_u32 s3, s4\n";
        let cases = [
            (zero("s1") + &zero("s2") + &zero("s3") + all, true),
            // One of them is gone, and made anew where it is read.
            (zero("s1") + &zero("s3") + &zero("s2") + all, true),
            // Both are.
            (zero("s3") + &zero("s1") + &zero("s2") + all, true),
            // Nobody has made the one that is read later, or it is another constant.
            (zero("s1") + &zero("s2") + all, false),
            (zero("s1") + &zero("s2") + "  s3 = s_mov_b32 1\n" + all, false),
            // What is read is overwritten before.
            (zero("s1") + &zero("s3") + "  s4 = s_add_u32 s1, s1\n  s3 = s_add_u32 s4, s4\n", false),
        ];
        for (after, holds) in cases {
            let found = checked(&before, &after);
            assert_eq!(found.is_ok(), holds, "{after}{found:?}");
        }
    }
}
