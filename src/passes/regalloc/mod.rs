//! Register allocation: first fit over live ranges, tuples as one value, moves to memory when nothing else helps.
//!
//! The allocator works on a `view` of the function: values with a register class, width, alignment, live
//! ranges per dword, and constraints (where the hardware has put it, where it would like to be). Values are taken in order
//! of their first position (larger ones first among equals), each gets the lowest run of registers, aligned as the
//! value needs, that is free throughout all ranges of all its dwords; which registers are busy when is a bitmap over
//! positions per physical register (`pools`). Copies try the register of their source first, operands that would
//! be issued in pairs the banks that allow it. When a value finds no
//! place, the order largest-first is tried.
//!
//! The first try is within the occupancy goal, the second within what the workgroup's size allows; the pools of VGPRs and
//! AGPRs share a ceiling where the target has one file for both. When neither succeeds, values are moved out of the
//! registers (`evict`).
//!
//! Values that the hardware preloads are fixed: the scratch resource (where spills need it) in the first four SGPRs,
//! the kernel argument pointer in the next pair, workgroup ids behind it, the wave's scratch offset last, the workitem
//! id in `v0`. VCC is given to short-lived masks where no instruction touches it implicitly, which makes compares and
//! selects use their short encodings. `check` proves the result.

mod evict;
mod pools;
mod view;

use crate::mir::liveness::Liveness;
use crate::mir::{Function, MInst, Opnd, Part, RegClass};
use barewave_isa::{Reg, RegFile, Regs, Resources, Target, op};
use evict::Failure;
use pools::Pool;
use view::View;

/// Registers in use after allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// VGPRs.
    pub vgprs: u32,
    /// AGPRs.
    pub agprs: u32,
    /// SGPRs (without VCC and its like).
    pub sgprs: u32,
    /// VCC is used.
    pub vcc: bool,
    /// Values that were spilled.
    pub spills: u32,
}

impl Usage {
    /// What a workgroup of the function asks of a compute unit.
    pub fn resources(&self, f: &Function) -> Resources {
        self.resources_of(f.target, f.workgroup_size, f.lds_bytes)
    }

    /// What a workgroup of so many workitems asks of a compute unit, with so many bytes of LDS.
    pub fn resources_of(&self, target: Target, workgroup_size: u32, lds_bytes: u32) -> Resources {
        Resources {
            wave_size: target.info().wave_size,
            workgroup_size,
            vgprs: self.vgprs,
            agprs: self.agprs,
            // VCC, and what the descriptor reserves beside it.
            sgprs: self.sgprs + 6,
            lds_bytes,
            wgp_mode: false,
        }
    }
}

/// Where every virtual register was put.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// First physical register of each virtual register; `None` when it is never used.
    pub place: Vec<Option<Reg>>,
    /// Registers in use.
    pub usage: Usage,
}

/// The function needs more registers than the target has, and not even moving values to memory helps.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel}: no register for a {class:?} value of {dwords} dwords, and {why}")]
pub struct OutOfRegisters {
    kernel: String,
    class: RegClass,
    dwords: u8,
    why: &'static str,
}

/// How many vector registers (VGPRs, and AGPRs where they share a file) a function may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// So many cost no wave.
    pub wanted: u32,
    /// With more a workgroup does not fit on a compute unit.
    pub most: u32,
}

/// Sizes of the register files for one try.
#[derive(Clone, Copy)]
struct Limits {
    vgprs: u32,
    agprs: u32,
    sgprs: u32,
}

/// First register of each virtual register.
type Places = Vec<Option<Reg>>;

impl Limits {
    /// Of `vectors` vector registers, `agprs` are for values that must be AGPRs. Of these, in a file of their own, the size of a workgroup allows as many as
    /// of VGPRs.
    fn new(target: Target, vectors: u32, agprs: u32, goal: Goal) -> Limits {
        let t = target.info();
        let vgprs = match (t.unified_agprs, agprs) {
            (true, 1..) => vectors.saturating_sub(agprs) / 4 * 4,
            _ => vectors,
        };
        Limits { vgprs: vgprs.clamp(1, t.named_vgprs()), agprs: t.max_agprs.min(goal.most), sgprs: t.max_sgprs }
    }

    /// Empty register files, by register class.
    fn pools(&self, positions: u32) -> [Pool; 3] {
        [(Reg::V0, self.vgprs), (Reg::A0, self.agprs), (Reg::S0, self.sgprs)]
            .map(|(first, n)| Pool::new(first, n, positions))
    }
}

/// Assigns physical registers to the virtual ones, which are live as `live` says, inserting spill code into `f` where needed.
pub fn allocate(f: &mut Function, live: Liveness, goal: Goal) -> Result<Allocation, OutOfRegisters> {
    let mut view = View::of(f, &live);
    drop(live);
    let agprs = agprs_needed(f, &view);
    let mut tries = vec![goal.wanted.min(goal.most), goal.most];
    tries.dedup();
    for vectors in tries {
        let limits = Limits::new(f.target, vectors, agprs, goal);
        for largest_first in [false, true] {
            if let Some(place) = assign(f, &view, &limits, largest_first) {
                return Ok(Allocation { usage: usage(f, &place, 0), place });
            }
        }
    }
    let mut limits = Limits::new(f.target, goal.most, agprs, goal);
    if f.target.info().unified_agprs {
        // Homes may be in what the VGPRs leave of the shared file.
        let left = goal.most.saturating_sub(limits.vgprs.next_multiple_of(4));
        limits.agprs = limits.agprs.min(left.max(agprs));
    }
    loop {
        match evict::allocate(f, view, &limits) {
            Ok((place, spills)) => return Ok(Allocation { usage: usage(f, &place, spills), place }),
            Err(Failure::NeedsScratch) => {
                let (desc, wave) = (f.new_vreg(RegClass::S, 4).reg, f.new_vreg(RegClass::S, 1).reg);
                f.preloads.scratch = Some([desc, wave]);
                view = View::of(f, &Liveness::of(f));
            }
            Err(Failure::NoPlace(v, why)) => {
                let info = f.vreg(v);
                let (kernel, class, dwords) = (f.name.clone(), info.class, info.dwords);
                return Err(OutOfRegisters { kernel, class, dwords, why });
            }
        }
    }
}

/// AGPRs that the function's own AGPR values take, placed first fit.
fn agprs_needed(f: &Function, view: &View) -> u32 {
    let mut pool = Pool::new(Reg::A0, f.target.info().max_agprs, view.positions);
    let mut end = 0;
    for (id, v) in view.values.iter().enumerate().filter(|(_, v)| v.class == RegClass::A) {
        if v.span().is_some()
            && let Some(at) = pool.find(v)
        {
            pool.take(id as u32, v, at);
            end = end.max(at as u32 + v.dwords as u32);
        }
    }
    end
}

/// Places every value without moving any; `None` when one finds no place.
fn assign(f: &Function, view: &View, limits: &Limits, largest_first: bool) -> Option<Places> {
    let mut pools = limits.pools(view.positions);
    let mut vcc = Pool::new(Reg::VCC_LO, 2, view.positions);
    let mut place: Places = vec![None; f.vregs.len()];
    let mut order: Vec<(u32, u32)> = Vec::with_capacity(view.values.len());
    for (id, v) in view.values.iter().enumerate() {
        if let Some(r) = v.fixed {
            let pool = &mut pools[v.class as usize];
            if !pool.fits(v, r.index() as usize) {
                return None;
            }
            pool.take(id as u32, v, r.index() as usize);
            place[id] = Some(r);
        } else if let Some((start, _)) = v.span() {
            order.push((start, id as u32));
        }
    }
    let dwords = |id: u32| std::cmp::Reverse(view.values[id as usize].dwords);
    if largest_first {
        order.sort_by_key(|&(s, id)| (dwords(id), s, id));
    } else {
        order.sort_by_key(|&(s, id)| (s, dwords(id), id));
    }
    for (_, id) in order {
        let v = &view.values[id as usize];
        if v.vcc && vcc.fits(v, 0) {
            vcc.take(id, v, 0);
            place[id as usize] = Some(Reg::VCC_LO);
            continue;
        }
        let pool = &mut pools[v.class as usize];
        let hint = v.hint.and_then(|p| {
            let r = place[p.reg.0 as usize]?;
            (r.file() == pool.first.file()).then(|| (r.index() + p.first as u16) as usize)
        });
        let free = || if v.apart.is_empty() { pool.find(v) } else { pool.find_apart(v, &place) };
        let at = hint.filter(|&at| pool.fits(v, at)).or_else(free)?;
        pool.take(id, v, at);
        place[id as usize] = Some(pool.first.offset(at as u16));
    }
    Some(place)
}

fn usage(f: &Function, place: &Places, spills: u32) -> Usage {
    let mut usage = Usage { spills, ..Usage::default() };
    for (r, info) in place.iter().zip(&f.vregs).filter_map(|(r, info)| r.map(|r| (r, info))) {
        note(&mut usage, Regs::new(r, info.dwords));
    }
    usage
}

/// Replaces virtual by physical registers. Copies that have become identities stay; see [`remove_identities`].
pub fn rewrite(f: &mut Function, a: &Allocation) {
    let place = |p: Part| {
        let first = a.place[p.reg.0 as usize].expect("a used register has a place");
        Regs::new(first.offset(p.first as u16), p.len)
    };
    for inst in f.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        for o in inst.dsts.iter_mut().chain(&mut inst.srcs) {
            if let Opnd::V(p) = *o {
                *o = Opnd::P(place(p));
            }
        }
    }
}

/// Removes moves of a register to itself.
pub fn remove_identities(f: &mut Function) {
    for b in &mut f.blocks {
        b.insts.retain(|i| !is_identity(i));
    }
}

fn is_identity(i: &MInst) -> bool {
    let moves = [op::V_MOV_B32, op::S_MOV_B32, op::S_MOV_B64, op::V_ACCVGPR_MOV_B32];
    i.op().is_some_and(|o| moves.contains(&o)) && i.mods.is_empty() && i.dsts[..] == i.srcs[..]
}

fn note(usage: &mut Usage, r: Regs) {
    let end = r.first.index() as u32 + r.dwords as u32;
    match r.first.file() {
        RegFile::Vgpr => usage.vgprs = usage.vgprs.max(end),
        RegFile::Agpr => usage.agprs = usage.agprs.max(end),
        RegFile::Sgpr => usage.sgprs = usage.sgprs.max(end),
        _ => usage.vcc = true,
    }
}
