//! Register allocation: first fit over live ranges, tuples as one value, spills when nothing else helps.
//!
//! Live ranges are known per dword. Values are taken in order of their first position (larger ones first among
//! equals), each gets the lowest run of registers, aligned as the value needs, that is free throughout all ranges of
//! all its dwords; which registers are busy when is a bitmap over positions per physical register. Copies try the
//! register of their source first. When a value finds no place, the order largest-first is tried; when that fails
//! too, the value with the fewest uses per position that is in the way is spilled and the allocation starts over.
//! Vector values spill to LDS, a slot of one dword per workitem (any kernel can reach it without set-up); scalar
//! values spill to lanes of a vector register.
//!
//! Values that the hardware preloads are fixed: the kernel argument pointer in the first SGPR pair, workgroup ids
//! behind it, the workitem id in `v0`. VCC is given to short-lived masks where no instruction touches it implicitly,
//! which makes compares and selects use their short encodings. `check` proves the result.

use crate::mir::liveness::{Liveness, for_each_def, for_each_use};
use crate::mir::{Function, MInst, Opnd, Part, RegClass, VReg};
use barewave_isa::{Flags, ModName, Mods, Reg, RegFile, Regs, op};

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

/// Where every virtual register was put.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// First physical register of each virtual register; `None` when it is never used.
    pub place: Vec<Option<Reg>>,
    /// Registers in use.
    pub usage: Usage,
}

/// The function needs more registers than the target has and more LDS for spills than a workgroup may use.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel}: no register for a {class:?} value of {dwords} dwords, and {why}")]
pub struct OutOfRegisters {
    kernel: String,
    class: RegClass,
    dwords: u8,
    why: &'static str,
}

/// Most VGPRs the kernel may use so that `waves` of them fit on a SIMD.
pub fn vgpr_limit(target: barewave_isa::Target, waves: u32) -> u32 {
    let t = target.info();
    let share = t.vgprs_per_simd / waves.max(1);
    (share / t.vgpr_granule * t.vgpr_granule).clamp(t.vgpr_granule, t.max_vgprs)
}

/// Assigns physical registers, inserting spill code into `f` where needed. At most `max_vgprs` VGPRs are used.
pub fn allocate(f: &mut Function, max_vgprs: u32) -> Result<Allocation, OutOfRegisters> {
    let mut spills = Spills::default();
    loop {
        let failed = match Allocator::new(f, max_vgprs).run(f) {
            Ok(mut a) => {
                a.usage.spills = spills.count;
                return Ok(a);
            }
            Err(v) => v,
        };
        let info = f.vreg(failed);
        let kernel = f.name.clone();
        let error = |why| OutOfRegisters { kernel: kernel.clone(), class: info.class, dwords: info.dwords, why };
        let victim = spills.choose(f, failed).ok_or_else(|| error("there is nothing left to spill"))?;
        spills.spill(f, victim).map_err(error)?;
    }
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

/// Bitmap over positions for each physical register of a file.
struct Busy {
    words: usize,
    bits: Vec<u64>,
}

impl Busy {
    fn new(regs: usize, positions: usize) -> Busy {
        let words = positions.div_ceil(64).max(1);
        Busy { words, bits: vec![0; regs * words] }
    }
    fn regs(&self) -> usize {
        self.bits.len() / self.words
    }
    fn masks((s, e): (u32, u32)) -> impl Iterator<Item = (usize, u64)> {
        let (first, last) = (s as usize / 64, (e as usize - 1) / 64);
        (first..=last).map(move |w| {
            let mut m = u64::MAX;
            if w == first {
                m &= u64::MAX << (s % 64);
            }
            if w == last {
                m &= u64::MAX >> (63 - (e - 1) % 64);
            }
            (w, m)
        })
    }
    fn free(&self, reg: usize, ranges: &[(u32, u32)]) -> bool {
        let row = &self.bits[reg * self.words..][..self.words];
        ranges.iter().all(|&r| Self::masks(r).all(|(w, m)| row[w] & m == 0))
    }
    fn take(&mut self, reg: usize, ranges: &[(u32, u32)]) {
        let row = &mut self.bits[reg * self.words..][..self.words];
        for &r in ranges {
            Self::masks(r).for_each(|(w, m)| row[w] |= m);
        }
    }
}

struct Allocator {
    live: Liveness,
    ranges: Vec<Vec<(u32, u32)>>,
    vgprs: u32,
    agprs: u32,
    sgprs: u32,
    positions: usize,
    fixed: Vec<(VReg, Reg)>,
    hints: Vec<Option<Part>>,
    vcc_candidates: Vec<bool>,
}

impl Allocator {
    fn new(f: &Function, max_vgprs: u32) -> Allocator {
        let t = f.target.info();
        let live = Liveness::of(f);
        let mut ranges = live.ranges(f);
        extend_early_clobbers(f, &live, &mut ranges);
        let mut a = Allocator {
            ranges,
            vgprs: max_vgprs.min(t.max_vgprs),
            agprs: t.max_agprs,
            sgprs: t.max_sgprs,
            positions: 2 * f.inst_count() + 2,
            fixed: fixed_places(f),
            hints: vec![None; f.vregs.len()],
            vcc_candidates: vcc_candidates(f),
            live,
        };
        for inst in f.blocks.iter().flat_map(|b| &b.insts) {
            let moves = [op::V_MOV_B32, op::S_MOV_B32, op::S_MOV_B64];
            if let (Some(o), [Opnd::V(d)], [Opnd::V(s)]) = (inst.op(), &inst.dsts[..], &inst.srcs[..])
                && moves.contains(&o)
                && d.first == 0
                && a.hints[d.reg.0 as usize].is_none()
            {
                a.hints[d.reg.0 as usize] = Some(*s);
            }
        }
        // A preloaded register exists from the first instruction on, whenever it is first read.
        for (v, _) in &a.fixed {
            for u in a.live.units.of_part(f.whole(*v)) {
                match a.ranges[u].first_mut() {
                    Some(first) => first.0 = 0,
                    None => a.ranges[u].push((0, 1)),
                }
            }
        }
        a
    }

    fn start(&self, f: &Function, v: VReg) -> Option<u32> {
        self.live.units.of_part(f.whole(v)).filter_map(|u| self.ranges[u].first().map(|r| r.0)).min()
    }

    fn run(&self, f: &Function) -> Result<Allocation, VReg> {
        let mut order: Vec<(u32, VReg)> =
            (0..f.vregs.len() as u32).filter_map(|v| self.start(f, VReg(v)).map(|s| (s, VReg(v)))).collect();
        order.sort_by_key(|&(s, v)| (s, std::cmp::Reverse(f.vreg(v).dwords), v));
        self.assign(f, &order).or_else(|_| {
            order.sort_by_key(|&(s, v)| (std::cmp::Reverse(f.vreg(v).dwords), s, v));
            self.assign(f, &order)
        })
    }

    fn assign(&self, f: &Function, order: &[(u32, VReg)]) -> Result<Allocation, VReg> {
        let mut v_busy = Busy::new(self.vgprs as usize, self.positions);
        let mut a_busy = Busy::new(self.agprs as usize, self.positions);
        let mut s_busy = Busy::new(self.sgprs as usize, self.positions);
        let mut vcc_busy = Busy::new(1, self.positions);
        let mut place: Vec<Option<Reg>> = vec![None; f.vregs.len()];
        let mut usage = Usage::default();
        for &(v, r) in &self.fixed {
            let busy = if r.is_vector() { &mut v_busy } else { &mut s_busy };
            for (i, u) in self.live.units.of_part(f.whole(v)).enumerate() {
                busy.take(r.index() as usize + i, &self.ranges[u]);
            }
            place[v.0 as usize] = Some(r);
            note(&mut usage, Regs::new(r, f.vreg(v).dwords));
        }
        for &(_, v) in order {
            if place[v.0 as usize].is_some() {
                continue;
            }
            let info = f.vreg(v);
            let units = self.live.units.of_part(f.whole(v));
            if self.vcc_candidates[v.0 as usize] && units.clone().all(|u| vcc_busy.free(0, &self.ranges[u])) {
                units.for_each(|u| vcc_busy.take(0, &self.ranges[u]));
                place[v.0 as usize] = Some(Reg::VCC_LO);
                usage.vcc = true;
                continue;
            }
            let (busy, first) = match info.class {
                RegClass::V => (&mut v_busy, Reg::V0),
                RegClass::A => (&mut a_busy, Reg::A0),
                RegClass::S => (&mut s_busy, Reg::S0),
            };
            let fits = |busy: &Busy, at: usize| {
                at.is_multiple_of(info.align as usize)
                    && at + info.dwords as usize <= busy.regs()
                    && units.clone().enumerate().all(|(i, u)| busy.free(at + i, &self.ranges[u]))
            };
            let hint = self.hints[v.0 as usize].and_then(|p| {
                let r = place[p.reg.0 as usize]?;
                (r.file() == first.file()).then(|| (r.index() + p.first as u16) as usize)
            });
            let at = hint
                .filter(|&at| fits(busy, at))
                .or_else(|| (0..busy.regs()).step_by(info.align as usize).find(|&at| fits(busy, at)))
                .ok_or(v)?;
            for (i, u) in self.live.units.of_part(f.whole(v)).enumerate() {
                busy.take(at + i, &self.ranges[u]);
            }
            let r = first.offset(at as u16);
            place[v.0 as usize] = Some(r);
            note(&mut usage, Regs::new(r, info.dwords));
        }
        Ok(Allocation { place, usage })
    }
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

/// Physical registers of the values that the hardware preloads, in the order of the kernel descriptor's conventions.
pub fn fixed_places(f: &Function) -> Vec<(VReg, Reg)> {
    let mut out = Vec::new();
    let mut next = 0;
    if let Some(v) = f.preloads.kernarg {
        out.push((v, Reg::s(next)));
        next += 2;
    }
    let ids = f.preloads.workgroup_id.iter().flatten().count() as u16;
    next = next.max(f.target.info().min_preloaded_sgprs.saturating_sub(ids));
    for v in f.preloads.workgroup_id.into_iter().flatten() {
        out.push((v, Reg::s(next)));
        next += 1;
    }
    if let Some(v) = f.preloads.workitem_id {
        out.push((v, Reg::v(0)));
    }
    out
}

/// A result of several dwords that is not loaded from memory may be written before all sources are read, and a
/// scalar load's result may not overlap its address when the load is replayed: such results start at the position
/// of the reads.
fn extend_early_clobbers(f: &Function, live: &Liveness, ranges: &mut [Vec<(u32, u32)>]) {
    let mut at = 0u32;
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        let early = inst.info(f.target).is_some_and(|i| {
            let wide = i.dsts.first().is_some_and(|s| s.bits > 32) && inst.dsts.len() == 1;
            let vector_mask = i.flags.has(Flags::VALU_WRITES_SGPR);
            wide && !vector_mask && (i.mem_bytes == 0 || i.pipe == barewave_isa::Pipe::Smem)
        });
        if early {
            for_each_def(inst, |p| {
                for u in live.units.of_part(p) {
                    if let Some(r) = ranges[u].iter_mut().find(|r| r.0 == at + 1) {
                        r.0 = at;
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
        let mask_use = inst
            .info(f.target)
            .is_some_and(|i| i.pipe == barewave_isa::Pipe::Valu || i.pipe == barewave_isa::Pipe::Salu);
        if !mask_use {
            for_each_use(inst, f.target, |p| ok[p.reg.0 as usize] = false);
        }
    }
    ok
}

/// Spill slots handed out so far.
#[derive(Default)]
struct Spills {
    count: u32,
    /// Values made by spilling: never spilled again.
    temps: std::collections::BTreeSet<VReg>,
    /// LDS address of the workitem's first slot.
    lds_addr: Option<Part>,
    /// Vector register whose lanes hold spilled scalars, and how many lanes are taken.
    lanes: Option<(Part, u32)>,
}

impl Spills {
    /// The value of the failed one's class with the fewest uses for its length that overlaps it.
    fn choose(&self, f: &Function, failed: VReg) -> Option<VReg> {
        let live = Liveness::of(f);
        let ranges = live.ranges(f);
        let mut uses = vec![0u32; f.vregs.len()];
        for inst in f.blocks.iter().flat_map(|b| &b.insts) {
            for_each_use(inst, f.target, |p| uses[p.reg.0 as usize] += 1);
            for_each_def(inst, |p| uses[p.reg.0 as usize] += 1);
        }
        let span = |v: VReg| -> u32 {
            live.units.of_part(f.whole(v)).map(|u| ranges[u].iter().map(|r| r.1 - r.0).sum::<u32>()).max().unwrap_or(0)
        };
        let touches = |v: VReg| {
            live.units.of_part(f.whole(v)).any(|u| {
                live.units
                    .of_part(f.whole(failed))
                    .any(|w| ranges[u].iter().any(|a| ranges[w].iter().any(|b| a.0 < b.1 && b.0 < a.1)))
            })
        };
        let class = f.vreg(failed).class;
        let fixed: Vec<VReg> = fixed_places(f).iter().map(|x| x.0).collect();
        (0..f.vregs.len() as u32)
            .map(VReg)
            .filter(|v| f.vreg(*v).class == class && !self.temps.contains(v) && !fixed.contains(v))
            .filter(|v| uses[v.0 as usize] > 0 && span(*v) > 4 && touches(*v))
            .max_by_key(|v| (span(*v) * 16 / uses[v.0 as usize].max(1), std::cmp::Reverse(*v)))
    }

    fn spill(&mut self, f: &mut Function, v: VReg) -> Result<(), &'static str> {
        self.count += 1;
        match f.vreg(v).class {
            RegClass::S => self.spill_scalar(f, v),
            _ => self.spill_vector(f, v),
        }
    }

    fn spill_vector(&mut self, f: &mut Function, v: VReg) -> Result<(), &'static str> {
        let stride = f.workgroup_size * 4;
        let slot = f.lds_bytes.next_multiple_of(16);
        f.lds_bytes = slot + stride * f.vreg(v).dwords as u32;
        if f.lds_bytes > f.target.info().lds_bytes.min(65536) {
            return Err("spilling it needs more LDS than a workgroup may use");
        }
        let addr = match self.lds_addr {
            Some(a) => a,
            None => {
                let id = *f.preloads.workitem_id.get_or_insert_with(|| {
                    f.vregs.push(crate::mir::VRegInfo { class: RegClass::V, dwords: 1, align: 1 });
                    VReg(f.vregs.len() as u32 - 1)
                });
                let a = f.new_vreg(RegClass::V, 1);
                let id = f.whole(id);
                f.blocks[0].insts.insert(0, MInst::new(op::V_LSHLREV_B32, &[a.into()], &[2u32.into(), id.into()]));
                self.temps.insert(a.reg);
                self.lds_addr = Some(a);
                a
            }
        };
        let offset = |i: u32| Mods::new().with(ModName::Offset, (slot + i * stride) as i32);
        self.rewrite_each(
            f,
            v,
            |i, temp| MInst { mods: offset(i), ..MInst::new(op::DS_READ_B32, &[temp.into()], &[addr.into()]) },
            |i, temp| MInst { mods: offset(i), ..MInst::new(op::DS_WRITE_B32, &[], &[addr.into(), temp.into()]) },
        );
        Ok(())
    }

    fn spill_scalar(&mut self, f: &mut Function, v: VReg) -> Result<(), &'static str> {
        let n = f.vreg(v).dwords as u32;
        let wave = f.target.info().wave_size;
        let (reg, first) = match self.lanes {
            Some((r, used)) if used + n <= wave => (r, used),
            _ => {
                let r = f.new_vreg(RegClass::V, 1);
                f.blocks[0].insts.insert(0, MInst::new(op::V_MOV_B32, &[r.into()], &[0u32.into()]));
                self.temps.insert(r.reg);
                (r, 0)
            }
        };
        self.lanes = Some((reg, first + n));
        self.rewrite_each(
            f,
            v,
            |i, temp| MInst::new(op::V_READLANE_B32, &[temp.into()], &[reg.into(), (first + i).into()]),
            |i, temp| MInst::new(op::V_WRITELANE_B32, &[reg.into()], &[temp.into(), (first + i).into()]),
        );
        Ok(())
    }

    /// Gives every instruction that touches `v` a temporary of its own, filled before and saved after.
    fn rewrite_each(
        &mut self,
        f: &mut Function,
        v: VReg,
        load: impl Fn(u32, Part) -> MInst,
        save: impl Fn(u32, Part) -> MInst,
    ) {
        let info = f.vreg(v);
        let target = f.target;
        for b in 0..f.blocks.len() {
            let old = std::mem::take(&mut f.blocks[b].insts);
            let mut new = Vec::with_capacity(old.len() + 8);
            for mut inst in old {
                let (mut used, mut defined) = (0u32, 0u32);
                let bits = |p: Part| (((1u64 << p.len) - 1) << p.first) as u32;
                for_each_use(&inst, target, |p| used |= if p.reg == v { bits(p) } else { 0 });
                for_each_def(&inst, |p| defined |= if p.reg == v { bits(p) } else { 0 });
                if used | defined == 0 {
                    new.push(inst);
                    continue;
                }
                let temp = f.new_vreg(info.class, info.dwords);
                self.temps.insert(temp.reg);
                for o in inst.dsts.iter_mut().chain(&mut inst.srcs) {
                    if let Opnd::V(p) = o
                        && p.reg == v
                    {
                        p.reg = temp.reg;
                    }
                }
                (0..info.dwords).filter(|i| used >> i & 1 == 1).for_each(|i| new.push(load(i as u32, temp.dword(i))));
                new.push(inst);
                (0..info.dwords)
                    .filter(|i| defined >> i & 1 == 1)
                    .for_each(|i| new.push(save(i as u32, temp.dword(i))));
            }
            f.blocks[b].insts = new;
        }
    }
}
