//! Accesses to memory and LDS: bounds, alignment, initialisation, races.

use super::defined::Defined;
use super::facts::Facts;
use super::race::{Access, Actor, Race};
use super::waits::{Pending, Touched};
use super::{Checker, Problem};
use crate::dispatch::Launch;
use crate::exec::{flags, smem, vmem, vmem::Piece};
use crate::fault::FaultKind;
use crate::memory::Allocation;
use crate::uop::{Space, UOp};
use crate::wave::{Lanes, Wave};
use barewave_isa::{Counter, Flags, Pipe, Quirk, Regs};

/// What an instruction does to the bytes that it addresses.
fn access_of(f: &Facts) -> Access {
    let flags = f.info.flags;
    let lds = f.info.pipe == Pipe::Lds;
    let (loads, stores) = (flags.has(Flags::LOAD), flags.has(Flags::STORE));
    if flags.has(Flags::ATOMIC) || lds && loads && stores || stores && f.coherent {
        Access::Atomic
    } else if stores || !loads {
        Access::Write
    } else {
        Access::Read
    }
}

impl Checker {
    /// Checks what an instruction does to memory and queues it on its counters.
    pub fn memory(&mut self, w: &Wave, l: &Launch, uop: &UOp, f: &Facts, d: &mut Defined) -> Result<(), Problem> {
        let mut touched = Vec::new();
        let access = access_of(f);
        let dma = uop.access.flags & flags::TO_LDS != 0 && !matches!(uop.access.space, Space::Lds { .. });
        let actor = self.actor(w, l);
        match uop.access.space {
            Space::Lds { .. } if f.gds => {}
            Space::Lds { second } => {
                let size = uop.access.bytes as u32;
                for lane in Lanes(w.exec()) {
                    let (base, lane) = (w.lane(uop.src[0].at, lane), lane as u32);
                    let two = [Some(uop.imm as u32), second.then_some(uop.dst2)];
                    for addr in two.into_iter().flatten().map(|offset| base.wrapping_add(offset)) {
                        self.lds_aligned(l, access, addr, size).map_err(|k| (k, Some(lane)))?;
                        self.waves[w.index as usize].issued.filled(addr, size).map_err(|k| (k, Some(lane)))?;
                        self.lds_access(&actor, l, lane, addr, size, access, d)?;
                        touched.push(Touched { lds: true, at: addr as u64, size: size as u64, access });
                    }
                }
            }
            Space::Scalar => {
                let (addr, size) = smem::range(w, uop);
                if size >= 4 && addr % 4 != 0 {
                    return Err((FaultKind::Misaligned { addr, align: 4 }, None));
                }
                if size > 0 {
                    self.device_access(&actor, l, f, addr, size, access).map_err(|k| (k, None))?;
                }
                if access == Access::Read {
                    d.holes = self.holes(l, addr, size);
                }
            }
            Space::None => {}
            space => {
                for Piece { lane, at: p, size, offset } in vmem::touched(w, uop) {
                    let problem = |k| (k, Some(lane));
                    let Some(addr) = w.mem.address_of(p) else {
                        // A flat access to LDS.
                        let at = (p as u64).wrapping_sub(w.lds as u64) as u32;
                        self.lds_access(&actor, l, lane, at, size, access, d)?;
                        touched.push(Touched { lds: true, at: at as u64, size: size as u64, access });
                        continue;
                    };
                    let align = uop.access.bytes.max(1) as u64;
                    // An access comes in pieces; it is aligned as its first one is.
                    if offset == 0 && f.info.flags.has(Flags::ATOMIC) && addr % align != 0 {
                        return Err(problem(FaultKind::Misaligned { addr, align: align as u32 }));
                    }
                    let recorded = self.device_access(&actor, l, f, addr, size as u64, access).map_err(problem)?;
                    if self.scratch.contains(&addr) {
                        self.private_access(w, f, d, (lane, offset as usize / 4), addr, size);
                    }
                    if f.info.flags.has(Flags::LOAD)
                        && recorded
                        && space != Space::Scratch
                        && let Some(addr) = l.memory.first_unwritten(addr, size as u64)
                    {
                        return Err(problem(FaultKind::UninitialisedRead { space: "memory", addr }));
                    }
                    if self.keeps_stores
                        && let Some(at) = l.memory.offset_of(addr)
                    {
                        touched.push(Touched { lds: false, at, size: size as u64, access });
                    }
                }
                if dma {
                    // What arrives is as defined as memory.
                    let known = Defined::all(w);
                    for (lane, addr, size) in vmem::lds_filled(w, uop) {
                        self.lds_access(&actor, l, lane, addr, size, Access::Write, &known)?;
                        touched.push(Touched { lds: true, at: addr as u64, size: size as u64, access: Access::Write });
                    }
                }
            }
        }
        self.queue(w, l, uop, f, touched, dma);
        Ok(())
    }

    /// True for a store that goes to private memory in all lanes.
    pub fn saves(&self, w: &Wave, uop: &UOp, f: &Facts) -> bool {
        let flags = f.info.flags;
        let stores = flags.has(Flags::STORE) && !flags.has(Flags::LOAD) && !flags.has(Flags::ATOMIC);
        let private = |p: *mut u8| w.mem.address_of(p).is_some_and(|a| self.scratch.contains(&a));
        stores && vmem::touched(w, uop).iter().all(|p| private(p.at))
    }

    /// What a lane stores to private memory is as defined there as in its register, and comes back so.
    fn private_access(&mut self, w: &Wave, f: &Facts, d: &mut Defined, at: (u32, usize), addr: u64, size: u32) {
        let (lane, dword) = at;
        let bytes = ((1u8 << size) - 1) << (addr % 4);
        if f.info.flags.has(Flags::STORE) {
            let data = f.info.srcs.iter().position(|s| s.name.contains("data"));
            let data = data.and_then(|i| f.inst.srcs.get(i)?.regs());
            let known = &self.waves[w.index as usize].known;
            let defined = data.is_none_or(|r| known.lanes(r.first.offset(dword as u16)) >> lane & 1 == 1);
            match self.saved.get_mut(&(addr / 4)) {
                Some(undefined) if defined => *undefined &= !bytes,
                Some(undefined) => *undefined |= bytes,
                None if defined => {}
                None => drop(self.saved.insert(addr / 4, bytes)),
            }
        } else if self.saved.get(&(addr / 4)).is_some_and(|undefined| undefined & bytes != 0) {
            if d.restored.len() <= dword {
                d.restored.resize(dword + 1, 0);
            }
            d.restored[dword] |= 1 << lane;
        }
    }

    /// Queues an operation on its counters.
    fn queue(&mut self, w: &Wave, l: &Launch, uop: &UOp, f: &Facts, touched: Vec<Touched>, dma: bool) {
        let flags = f.info.flags;
        let loads = flags.has(Flags::LOAD) || (flags.has(Flags::ATOMIC) && !f.inst.dsts.is_empty());
        let fills: Vec<Regs> = match f.info.pipe {
            Pipe::Vmem if !loads => Vec::new(),
            _ => f.inst.dsts.iter().filter_map(|o| o.regs()).collect(),
        };
        // A flat access that goes to memory in all lanes behaves like a global one; whether it does is known here.
        let flat = uop.access.space == Space::Flat;
        let to_lds = flat && vmem::flat_reaches_lds(w, uop);
        for &counter in f.counters {
            if counter == Counter::Exp || (flat && !to_lds && counter == Counter::Lgkm) {
                continue;
            }
            let pending = Pending {
                counter,
                in_order: !flags.has(Flags::OUT_OF_ORDER) || (flat && !to_lds),
                fills: fills.clone(),
                halves: f.fills,
                name: f.info.name,
                touched: touched.clone(),
                dma,
            };
            self.waves[w.index as usize].issued.push(l.machine.target, pending);
        }
    }

    /// The wave as others see it.
    pub fn actor(&self, w: &Wave, l: &Launch) -> Actor {
        Actor {
            wave: self.first + w.index as u64,
            first: self.first,
            waves: w.waves,
            now: l.state.clock.now(),
            barrier: self.barrier,
            acquired: self.acquired,
        }
    }

    /// Bounds and races of device memory; whether all writes to that allocation were recorded.
    fn device_access(
        &mut self,
        a: &Actor,
        l: &Launch,
        f: &Facts,
        addr: u64,
        size: u64,
        access: Access,
    ) -> Result<bool, FaultKind> {
        let holder = |list: &[Allocation]| {
            let found = list.partition_point(|a| a.start <= addr).checked_sub(1).map(|i| list[i]);
            found.filter(|a| addr + size <= a.start + a.size.next_multiple_of(4))
        };
        let mut found = holder(&self.allocations);
        if found.is_none() && l.options.services.attend.is_some() {
            // The kernel may have asked for memory since the launch began.
            self.allocations = l.memory.snapshot();
            found = holder(&self.allocations);
        }
        let Some(found) = found else {
            let (store, size) = (access != Access::Read, size as u32);
            return Err(match l.memory.freed_range_of(addr) {
                Some((start, bytes)) => FaultKind::Freed { addr, size, store, start, bytes },
                None => FaultKind::OutOfBounds { addr, size, store },
            });
        };
        if access != Access::Read {
            l.memory.mark(addr, size, true);
        }
        let polls = access == Access::Read && f.coherent;
        if let (true, Some(at)) = (polls, l.memory.offset_of(addr)) {
            self.polled.push((at, size));
        }
        // Scratch is private; workgroups use it one after the other.
        let private = polls || self.scratch.contains(&addr);
        if let (false, Some(shadow), Some(at)) = (private, l.shadow, l.memory.offset_of(addr)) {
            shadow.access(a, access, at, size).map_err(|(byte, race)| FaultKind::MemoryRace {
                addr: addr + (byte - at),
                other: race.wave.map(|w| self.place(l, w)),
            })?;
        }
        Ok(found.recorded)
    }

    /// Workgroup and number of a wave of the launch.
    fn place(&self, l: &Launch, wave: u32) -> ([u32; 3], u32) {
        let waves = self.waves.len() as u64;
        let id = wave as u64 / waves;
        (l.workgroup(id), (wave as u64 % waves) as u32)
    }

    /// Dwords of a range that nobody has written, a bit each.
    fn holes(&self, l: &Launch, addr: u64, size: u64) -> u32 {
        let n = self.allocations.partition_point(|a| a.start <= addr);
        if n.checked_sub(1).is_none_or(|i| !self.allocations[i].recorded) {
            return 0;
        }
        let unwritten = |i: &u64| l.memory.first_unwritten(addr + 4 * i, (size - 4 * i).min(4)).is_some();
        (0..size.div_ceil(4)).filter(unwritten).fold(0, |holes, i| holes | 1 << i)
    }

    /// Up to gfx8 LDS takes aligned addresses only; from then on HSA turns unaligned ones on, as it does for device memory
    /// on all targets, except for atomics. Source: LLVM, features `unaligned-ds-access` and `unaligned-access-mode`.
    fn lds_aligned(&self, l: &Launch, access: Access, addr: u32, size: u32) -> Result<(), FaultKind> {
        let align = if size == 12 { 16 } else { size.max(1) };
        let must = access == Access::Atomic || l.machine.target.info().has(Quirk::AlignedLds);
        if must && !addr.is_multiple_of(align) {
            return Err(FaultKind::Misaligned { addr: addr as u64, align });
        }
        Ok(())
    }

    fn lds_access(
        &mut self,
        a: &Actor,
        l: &Launch,
        lane: u32,
        addr: u32,
        size: u32,
        access: Access,
        d: &Defined,
    ) -> Result<(), Problem> {
        let range = addr as usize..addr as usize + size as usize;
        let Some(written) = self.written.get_mut(range) else {
            return Err((FaultKind::LdsOutOfBounds { addr, size, limit: l.lds_size }, Some(lane)));
        };
        if access == Access::Read
            && let Some(i) = written.iter().position(|w| !w)
        {
            return Err((FaultKind::UninitialisedRead { space: "LDS", addr: addr as u64 + i as u64 }, Some(lane)));
        }
        if access == Access::Write {
            written.fill(d.lanes >> lane & 1 == 1);
        }
        // A wave alone races with nobody.
        if a.waves == 1 {
            return Ok(());
        }
        self.lds.access(a, access, addr as u64, size as u64).map_err(|(byte, Race { wave })| {
            let other_wave = wave.map(|w| (w as u64).wrapping_sub(self.first) as u32);
            (FaultKind::LdsRace { addr: byte as u32, other_wave }, Some(lane))
        })
    }
}
