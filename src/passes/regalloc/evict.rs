//! Allocation when not everything fits: values are moved out of the registers until the rest does.
//!
//! Values are placed in order of their first position. One that finds no place takes that of the tenants that are
//! cheapest to move (reads and writes, weighted by loop depth), unless moving itself is cheaper. A value that is moved
//! out gets a *home*: nothing at all when a constant move makes it anew, a free AGPR, else a slot of scratch memory;
//! scalars go to lanes of a vector register. Its live range is split into *segments* around its uses: each has a
//! register of its own, filled from the home before its first read; every write is copied to the home. A segment
//! that finds no place is split into its single instructions. Segments are placed like other values, in the same
//! pools, so nothing starts over: only when the first scratch slot is needed, the registers that reach scratch memory
//! are reserved and the allocation is made once more. The instructions are inserted when all have a place.

use super::pools::Pool;
use super::view::{RangesOfDwords, Touch, Value, View, touches, weights};
use super::{Limits, Places};
use crate::mir::liveness::Ranges;
use crate::mir::{Function, MInst, Memory, Opnd, Part, RegClass, Space, VReg};
use barewave_isa::{ModName, Mods, Op, Reg, op};
use smallvec::smallvec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Why an allocation failed.
pub(super) enum Failure {
    /// Scratch memory is needed and its registers are not reserved.
    NeedsScratch,
    /// No place for this value, and why.
    NoPlace(VReg, &'static str),
}

/// Instructions between two uses above which a moved value's range is split.
const GAP: u32 = 12;

/// Most dwords of scratch a workitem can reach: the offset field has 12 bits everywhere.
const SCRATCH_DWORDS: u32 = 1024;

/// Where a value is kept outside of its register.
#[derive(Clone)]
enum Home {
    /// It is made anew.
    Remake(MInst),
    /// In AGPRs.
    Agprs(Part),
    /// In scratch, from this dword on.
    Scratch(u32),
    /// In lanes, from this one on (counted over all lane registers).
    Lanes(u32),
}

/// A stretch of a moved value's range.
struct Segment {
    of: VReg,
    temp: VReg,
    touches: Vec<Touch>,
}

pub(super) struct Evictor<'a> {
    f: &'a mut Function,
    values: Vec<Value>,
    place: Vec<Option<usize>>,
    /// By register class.
    pools: [Pool; 3],
    scratch: Pool,
    lanes: Pool,
    lane_regs: Vec<Part>,
    queue: BinaryHeap<Reverse<(u32, Reverse<u8>, u32)>>,
    touches: Vec<Vec<Touch>>,
    homes: BTreeMap<VReg, Home>,
    segments: BTreeMap<VReg, Segment>,
    /// How often the instructions of each block count.
    weights: Vec<u64>,
    positions: u32,
    /// Dwords of scratch handed out.
    scratch_end: u32,
    spilled: u32,
}

/// Places all values, inserting code into `f` for those that have no register.
pub(super) fn allocate(f: &mut Function, view: View, limits: &Limits) -> Result<(Places, u32), Failure> {
    let positions = view.positions;
    let (touches, weights) = (touches(f), weights(f));
    let n = view.values.len();
    let wave = f.target.info().wave_size;
    let mut e = Evictor {
        f,
        values: view.values,
        place: vec![None; n],
        pools: limits.pools(positions).map(Pool::with_tenants),
        scratch: Pool::new(Reg::V0, SCRATCH_DWORDS, positions),
        lanes: Pool::new(Reg::V0, wave * 16, positions),
        lane_regs: Vec::new(),
        queue: BinaryHeap::new(),
        touches,
        homes: BTreeMap::new(),
        segments: BTreeMap::new(),
        weights,
        positions,
        scratch_end: 0,
        spilled: 0,
    };
    for id in 0..n as u32 {
        match e.values[id as usize].fixed {
            Some(r) => e.put(id, r.index() as usize),
            None => e.enqueue(id),
        }
    }
    while let Some(Reverse((_, _, id))) = e.queue.pop() {
        e.settle(id)?;
    }
    e.insert_code();
    let register = |(v, at): (&Value, &Option<usize>)| at.map(|at| e.pools[v.class as usize].first.offset(at as u16));
    let places = e.values.iter().zip(&e.place).map(register).collect();
    Ok((places, e.spilled))
}

impl Evictor<'_> {
    fn put(&mut self, id: u32, at: usize) {
        let value = &self.values[id as usize];
        self.pools[value.class as usize].take(id, value, at);
        self.place[id as usize] = Some(at);
    }

    /// The lowest place that is free for a value.
    fn find(&self, id: u32) -> Option<usize> {
        let value = &self.values[id as usize];
        self.pools[value.class as usize].find(value)
    }

    fn enqueue(&mut self, id: u32) {
        let v = &self.values[id as usize];
        if let Some((start, _)) = v.span() {
            self.queue.push(Reverse((start, Reverse(v.dwords), id)));
        }
    }

    /// A new virtual register and its value, live as given.
    fn add(&mut self, class: RegClass, ranges: RangesOfDwords, cost: Option<u64>) -> Part {
        let part = self.f.new_vreg(class, ranges.len() as u8);
        let info = self.f.vreg(part.reg);
        self.values.push(Value {
            class,
            dwords: info.dwords,
            align: info.align,
            ranges,
            fixed: None,
            hint: None,
            apart: Vec::new(),
            vcc: false,
            cost,
            remake: None,
        });
        self.place.push(None);
        part
    }

    /// Finds a place for a value or moves values out of the registers.
    fn settle(&mut self, id: u32) -> Result<(), Failure> {
        if let Some(at) = self.find(id) {
            self.put(id, at);
            return Ok(());
        }
        let value = &self.values[id as usize];
        let pool = &self.pools[value.class as usize];
        let limit = value.cost.unwrap_or(u64::MAX);
        let place = &self.place;
        let dword_of = |t: u32, reg: usize| reg - place[t as usize].unwrap_or(reg);
        match pool.cheapest(value, &self.values, limit, dword_of) {
            Some(who) => {
                for t in who {
                    self.evict(t)?;
                }
                let at = self.find(id).expect("all who stood in the way have gone");
                self.put(id, at);
                Ok(())
            }
            None if value.cost.is_some() => self.evict(id),
            None => Err(Failure::NoPlace(VReg(id), "everything beside it is needed by the same instructions")),
        }
    }

    /// Moves a value out of the registers, or splits a segment.
    fn evict(&mut self, id: u32) -> Result<(), Failure> {
        if let Some(at) = self.place[id as usize].take() {
            let value = &self.values[id as usize];
            self.pools[value.class as usize].release(id, value, at);
        }
        let reg = VReg(id);
        let groups: Vec<Vec<Touch>>;
        let of;
        match self.segments.remove(&reg) {
            Some(segment) => {
                of = segment.of;
                groups = segment.touches.iter().map(|t| vec![*t]).collect();
            }
            None => {
                of = reg;
                let home = self.home(id)?;
                self.spilled += u32::from(!matches!(home, Home::Remake(_)));
                self.homes.insert(reg, home);
                let list = std::mem::take(&mut self.touches[id as usize]);
                groups =
                    list.chunk_by(|a, b| a.block == b.block && b.inst - a.inst <= GAP).map(<[Touch]>::to_vec).collect();
            }
        }
        let remade = matches!(self.homes[&of], Home::Remake(_));
        for touches in groups {
            // The constant move itself is not needed: every reader makes its own.
            let touches: Vec<Touch> =
                if remade { touches.into_iter().filter(|t| t.read != 0).collect() } else { touches };
            if !touches.is_empty() {
                self.add_segment(of, touches);
            }
        }
        Ok(())
    }

    fn add_segment(&mut self, of: VReg, touches: Vec<Touch>) {
        let (head, tail) = (touches[0], touches[touches.len() - 1]);
        let start = 2 * head.inst + u32::from(reads_home(&touches) == 0 && !head.early && head.read == 0);
        let end = if tail.written != 0 { 2 * tail.inst + 2 } else { 2 * tail.inst + 1 };
        let info = self.f.vreg(of);
        // A single instruction's registers cannot be had for less.
        let cost = (touches.len() > 1).then(|| self.weights[head.block as usize] * touches.len() as u64);
        let temp = self.add(info.class, smallvec![Ranges::from_slice(&[(start, end)]); info.dwords as usize], cost).reg;
        self.values[temp.0 as usize].align = self.values[of.0 as usize].align;
        self.segments.insert(temp, Segment { of, temp, touches });
        self.enqueue(temp.0);
    }

    fn home(&mut self, id: u32) -> Result<Home, Failure> {
        let value = &self.values[id as usize];
        if let Some(inst) = &value.remake {
            return Ok(Home::Remake(MInst::clone(inst)));
        }
        let none = |why| Failure::NoPlace(VReg(id), why);
        match value.class {
            RegClass::V => {
                if let Some(at) = self.pools[RegClass::A as usize].find(value) {
                    let part = self.add(RegClass::A, value.ranges.clone(), None);
                    self.put(part.reg.0, at);
                    return Ok(Home::Agprs(part));
                }
                let at = self.slot(id).ok_or_else(|| none("scratch memory is full"))?;
                Ok(Home::Scratch(at))
            }
            RegClass::A => {
                let loads = |op: Op| {
                    let info = self.f.target.op(op);
                    info.is_some_and(|i| i.dsts[0].class.contains(barewave_isa::Class::AGPR))
                };
                if !loads(self.load_op()) {
                    return Err(none("AGPRs of this target cannot be loaded from memory"));
                }
                let at = self.slot(id).ok_or_else(|| none("scratch memory is full"))?;
                Ok(Home::Scratch(at))
            }
            RegClass::S => {
                let at = self.lanes.find(&as_scalar(value)).ok_or_else(|| none("all lanes for scalars are taken"))?;
                let value = as_scalar(value);
                self.lanes.take(id, &value, at);
                let wave = self.f.target.info().wave_size as usize;
                while self.lane_regs.len() * wave < at + value.dwords as usize {
                    // Written once at the start of the kernel, so that a lane can be written into it.
                    let part = self.add(RegClass::V, smallvec![Ranges::from_slice(&[(0, self.positions)])], None);
                    self.lane_regs.push(part);
                    self.enqueue(part.reg.0);
                }
                Ok(Home::Lanes(at as u32))
            }
        }
        .and_then(|home| match home {
            Home::Scratch(_) if self.f.preloads.scratch.is_none() && !self.architected() => Err(Failure::NeedsScratch),
            home => Ok(home),
        })
    }

    fn slot(&mut self, id: u32) -> Option<u32> {
        let value = as_scalar(&self.values[id as usize]);
        let at = self.scratch.find(&value)?;
        self.scratch.take(id, &value, at);
        self.scratch_end = self.scratch_end.max(at as u32 + value.dwords as u32);
        Some(at as u32)
    }

    fn architected(&self) -> bool {
        self.f.target.info().architected_flat_scratch
    }
    fn load_op(&self) -> Op {
        if self.architected() { op::SCRATCH_LOAD_DWORD } else { op::BUFFER_LOAD_DWORD }
    }

    /// Code that fills a dword of a segment's register.
    fn fill(&self, home: &Home, i: u8, to: Part) -> MInst {
        let space = Space { memory: Memory::Scratch, ..Space::default() };
        match home {
            Home::Remake(inst) => MInst { dsts: [Opnd::V(to)].into_iter().collect(), ..inst.clone() },
            Home::Agprs(p) => MInst::new(op::V_ACCVGPR_READ_B32, &[to.into()], &[p.dword(i).into()]),
            Home::Scratch(at) => {
                let mods = Mods::new().with(ModName::Offset, 4 * (*at as i32 + i as i32));
                match self.f.preloads.scratch {
                    _ if self.architected() => MInst {
                        mods,
                        space,
                        ..MInst::new(op::SCRATCH_LOAD_DWORD, &[to.into()], &[Opnd::Off, Opnd::Off])
                    },
                    Some([desc, wave]) => {
                        let (desc, wave) = (self.f.whole(desc), self.f.whole(wave));
                        let srcs = [Opnd::Off, desc.into(), wave.into()];
                        MInst { mods, space, ..MInst::new(op::BUFFER_LOAD_DWORD, &[to.into()], &srcs) }
                    }
                    None => unreachable!("homes in scratch are given out when it can be reached"),
                }
            }
            Home::Lanes(at) => {
                let (reg, lane) = self.lane(*at + i as u32);
                MInst::new(op::V_READLANE_B32, &[to.into()], &[reg.into(), lane.into()])
            }
        }
    }

    /// Code that saves a dword of a segment's register.
    fn save(&self, home: &Home, i: u8, from: Part) -> Option<MInst> {
        let space = Space { memory: Memory::Scratch, ..Space::default() };
        Some(match home {
            Home::Remake(_) => return None,
            Home::Agprs(p) => MInst::new(op::V_ACCVGPR_WRITE_B32, &[p.dword(i).into()], &[from.into()]),
            Home::Scratch(at) => {
                let mods = Mods::new().with(ModName::Offset, 4 * (*at as i32 + i as i32));
                match self.f.preloads.scratch {
                    _ if self.architected() => {
                        let srcs = [Opnd::Off, from.into(), Opnd::Off];
                        MInst { mods, space, ..MInst::new(op::SCRATCH_STORE_DWORD, &[], &srcs) }
                    }
                    Some([desc, wave]) => {
                        let (desc, wave) = (self.f.whole(desc), self.f.whole(wave));
                        let srcs = [from.into(), Opnd::Off, desc.into(), wave.into()];
                        MInst { mods, space, ..MInst::new(op::BUFFER_STORE_DWORD, &[], &srcs) }
                    }
                    None => unreachable!("homes in scratch are given out when it can be reached"),
                }
            }
            Home::Lanes(at) => {
                let (reg, lane) = self.lane(*at + i as u32);
                MInst::new(op::V_WRITELANE_B32, &[reg.into()], &[from.into(), lane.into()])
            }
        })
    }

    fn lane(&self, n: u32) -> (Part, u32) {
        let wave = self.f.target.info().wave_size;
        (self.lane_regs[(n / wave) as usize], n % wave)
    }

    /// Puts fills and saves around the instructions of all segments, which then name the segments' registers.
    fn insert_code(&mut self) {
        #[derive(Default)]
        struct Edit {
            before: Vec<MInst>,
            after: Vec<MInst>,
            rename: Vec<(VReg, VReg)>,
        }
        let mut edits: BTreeMap<u32, Edit> = BTreeMap::new();
        for s in self.segments.values() {
            let home = &self.homes[&s.of];
            let temp = self.f.whole(s.temp);
            let fills = reads_home(&s.touches);
            let head = edits.entry(s.touches[0].inst).or_default();
            if matches!(home, Home::Remake(_)) {
                head.before.push(self.fill(home, 0, temp));
            } else {
                (0..temp.len).filter(|i| fills >> i & 1 == 1).for_each(|i| {
                    head.before.push(self.fill(home, i, temp.dword(i)));
                });
            }
            for t in &s.touches {
                let edit = edits.entry(t.inst).or_default();
                edit.rename.push((s.of, s.temp));
                let saved = (0..temp.len).filter(|i| t.written >> i & 1 == 1);
                edit.after.extend(saved.filter_map(|i| self.save(home, i, temp.dword(i))));
            }
        }
        let remade: BTreeSet<VReg> =
            self.homes.iter().filter(|(_, h)| matches!(h, Home::Remake(_))).map(|(v, _)| *v).collect();
        let mut at = 0u32;
        for b in 0..self.f.blocks.len() {
            let old = std::mem::take(&mut self.f.blocks[b].insts);
            let mut new = Vec::with_capacity(old.len() + old.len() / 4);
            if b == 0 {
                let zero = |p: &Part| MInst::new(op::V_MOV_B32, &[(*p).into()], &[0u32.into()]);
                new.extend(self.lane_regs.iter().map(zero));
            }
            for mut inst in old {
                let edit = edits.remove(&at).unwrap_or_default();
                at += 1;
                // The move that once made a value that is now made anew.
                if let [Opnd::V(d)] = inst.dsts[..]
                    && remade.contains(&d.reg)
                {
                    continue;
                }
                for o in inst.dsts.iter_mut().chain(&mut inst.srcs) {
                    if let Opnd::V(p) = o
                        && let Some((_, to)) = edit.rename.iter().find(|(of, _)| *of == p.reg)
                    {
                        p.reg = *to;
                    }
                }
                new.extend(edit.before);
                new.push(inst);
                new.extend(edit.after);
            }
            self.f.blocks[b].insts = new;
        }
        self.f.scratch_bytes = self.f.scratch_bytes.max(4 * self.scratch_end);
    }
}

/// Dwords that a segment reads before it writes them.
fn reads_home(touches: &[Touch]) -> u32 {
    let (mut read, mut written) = (0, 0);
    for t in touches {
        read |= t.read & !written;
        written |= t.written;
    }
    read
}

/// The same value without alignment, for slots and lanes.
fn as_scalar(v: &Value) -> Value {
    Value {
        class: v.class,
        dwords: v.dwords,
        align: 1,
        ranges: v.ranges.clone(),
        fixed: None,
        hint: None,
        apart: Vec::new(),
        vcc: false,
        cost: None,
        remake: None,
    }
}
