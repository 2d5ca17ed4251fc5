//! Accesses to memory and LDS: bounds, alignment, initialisation, races.

use super::defined::Defined;
use super::facts::Facts;
use super::race::{Access, Actor, Last, Race};
use super::waits::{Fills, Pending, Touched, Touches};
use super::{Checker, Problem};
use crate::dispatch::Launch;
use crate::exec::{flags, smem, vmem, vmem::Piece};
use crate::fault::FaultKind;
use crate::memory::Allocation;
use crate::uop::{Space, UOp};
use crate::wave::{Lanes, Wave};
use barewave_isa::{Counter, Flags, Pipe, Quirk};
use std::mem::take;

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

/// Whether other workgroups can learn by an instruction what its own has done.
pub fn releases(f: &Facts) -> bool {
    f.info.pipe != Pipe::Lds && access_of(f) == Access::Atomic
}

impl Checker {
    /// Checks what an instruction does to memory and queues it on its counters.
    pub fn memory(&mut self, w: &Wave, l: &Launch, uop: &UOp, f: &Facts, d: &mut Defined) -> Result<(), Problem> {
        let mut touched = Touches::new();
        let access = access_of(f);
        let dma = uop.access.flags & flags::TO_LDS != 0 && !matches!(uop.access.space, Space::Lds { .. });
        let actor = self.actor(w, l);
        let flags = f.info.flags;
        if self.releases && f.info.pipe != Pipe::Lds && (flags.has(Flags::STORE) || flags.has(Flags::ATOMIC)) {
            self.settle(&actor, w.index as usize, l);
            if access == Access::Atomic {
                self.tell_of_stores(&actor, w.index as usize, l);
            }
        }
        match uop.access.space {
            Space::Lds { .. } if f.gds => {}
            Space::Lds { second } => {
                let size = uop.access.bytes as u32;
                let two = [Some(uop.imm as u32), second.then_some(uop.dst2)];
                for offset in two.into_iter().flatten() {
                    let of = |lane| w.lane(uop.src[0].at, lane).wrapping_add(offset);
                    self.lds_lanes(w, l, of, size, access, d, &mut touched)?;
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
                let parts = space == Space::Scratch || !self.scratch.is_empty();
                let mut pieces = take(&mut self.pieces);
                pieces.clear();
                vmem::each_touched(w, uop, !parts, |p| pieces.push(p));
                let mut rest = &pieces[..];
                while let Some(first) = rest.first() {
                    let alone = parts || f.info.flags.has(Flags::ATOMIC);
                    let run = if alone { 1 } else { self.run_of(w, rest) };
                    let (lanes, others) = rest.split_at(run);
                    rest = others;
                    let size = lanes.iter().map(|p| p.size).sum();
                    let Some(addr) = w.mem.address_of(first.at) else {
                        // A flat access to LDS.
                        let at = (first.at as u64).wrapping_sub(w.lds as u64) as u32;
                        let defined = d.lanes >> first.lane & 1 == 1;
                        self.lds_access(&actor, l, at, size, access, defined, &mut Last::default())
                            .map_err(|(k, _)| (k, Some(first.lane)))?;
                        touched.push(Touched { lds: true, at: at as u64, size: size as u64, access });
                        continue;
                    };
                    let problem = |k: FaultKind| {
                        let byte = byte_of(&k).unwrap_or(addr) - addr;
                        let before = |p: &&Piece| p.at as u64 - first.at as u64 <= byte;
                        let lane = lanes.iter().take_while(before).last().map(|p| p.lane);
                        (k, lane)
                    };
                    let align = uop.access.bytes.max(1) as u64;
                    // An access comes in pieces; it is aligned as its first one is.
                    if first.offset == 0 && f.info.flags.has(Flags::ATOMIC) && addr % align != 0 {
                        return Err(problem(FaultKind::Misaligned { addr, align: align as u32 }));
                    }
                    let recorded = self.device_access(&actor, l, f, addr, size as u64, access).map_err(problem)?;
                    if self.scratch.contains(&addr) {
                        self.private_access(w, f, d, (first.lane, first.offset as usize / 4), addr, size);
                    }
                    if f.info.flags.has(Flags::LOAD)
                        && recorded
                        && space != Space::Scratch
                        && let Some(addr) = l.memory.first_unwritten(addr, size as u64)
                    {
                        return Err(problem(FaultKind::UninitialisedRead { space: "memory", addr }));
                    }
                    if (self.keeps_stores || self.releases && access == Access::Write)
                        && let Some(at) = l.memory.offset_of(addr)
                    {
                        touched.push(Touched { lds: false, at, size: size as u64, access });
                    }
                }
                self.pieces = pieces;
                if dma {
                    // What arrives is as defined as memory.
                    let known = Defined::all(w);
                    let (start, size) = vmem::lds_filled(w, uop);
                    let of = |lane| start.wrapping_add(lane as u32 * size);
                    self.lds_lanes(w, l, of, size, Access::Write, &known, &mut touched)?;
                }
            }
        }
        self.queue(w, l, uop, f, touched, dma);
        Ok(())
    }

    /// Others may be told now of what a wave has stored: what it has not waited for, they must not use.
    pub fn tell_of_stores(&mut self, a: &Actor, wave: usize, l: &Launch) {
        let Some(shadow) = l.shadow else { return };
        for p in &mut self.waves[wave].issued.pending {
            for t in p.touched.iter().filter(|t| !t.lds && t.access == Access::Write) {
                shadow.tell(a, t.at, t.size, true);
                p.told = true;
            }
        }
    }

    /// What a wave has waited for by now, and its workgroup before the last barrier, a store or an atomic may tell others of.
    fn settle(&mut self, a: &Actor, wave: usize, l: &Launch) {
        let own = take(&mut self.waves[wave].issued.settled).into_iter().map(|t| (a.wave, t));
        for (wave, touched) in own.chain(take(&mut self.settled)) {
            for t in touched.iter().filter(|t| !t.lds) {
                if let Some(shadow) = l.shadow {
                    shadow.tell(&Actor { wave, ..*a }, t.at, t.size, false);
                }
            }
        }
    }

    /// How many of the first pieces lie behind one another in an allocation: at least one.
    fn run_of(&mut self, w: &Wave, pieces: &[Piece]) -> usize {
        let behind = |p: &&[Piece]| p[0].at.wrapping_add(p[0].size as usize) == p[1].at;
        let run = 1 + pieces.windows(2).take_while(behind).count();
        let size: u64 = pieces[..run].iter().map(|p| u64::from(p.size)).sum();
        let held = w.mem.address_of(pieces[0].at).is_some_and(|a| self.holder(a, size).is_some());
        if held { run } else { 1 }
    }

    /// True for a store that goes to private memory in all lanes.
    pub fn saves(&self, w: &Wave, uop: &UOp, f: &Facts) -> bool {
        let flags = f.info.flags;
        let stores = flags.has(Flags::STORE) && !flags.has(Flags::LOAD) && !flags.has(Flags::ATOMIC);
        let private = |p: *mut u8| w.mem.address_of(p).is_some_and(|a| self.scratch.contains(&a));
        let mut all = stores;
        if stores {
            vmem::each_touched(w, uop, false, |p| all &= private(p.at));
        }
        all
    }

    /// What a lane stores to private memory is as defined there as in its register, and comes back so.
    fn private_access(&mut self, w: &Wave, f: &Facts, d: &mut Defined, at: (u32, usize), addr: u64, size: u32) {
        let (lane, dword) = at;
        let bytes = ((1u8 << size) - 1) << (addr % 4);
        if f.info.flags.has(Flags::STORE) {
            let data = f.inst.srcs.get(f.data.trailing_zeros() as usize).and_then(|o| o.regs());
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
    fn queue(&mut self, w: &Wave, l: &Launch, uop: &UOp, f: &Facts, mut touched: Touches, dma: bool) {
        let flags = f.info.flags;
        let loads = flags.has(Flags::LOAD) || (flags.has(Flags::ATOMIC) && !f.inst.dsts.is_empty());
        let mut fills: Fills = match f.info.pipe {
            Pipe::Vmem if !loads => Fills::new(),
            _ => f.inst.dsts.iter().filter_map(|o| o.regs()).collect(),
        };
        // A flat access that goes to memory in all lanes behaves like a global one; whether it does is known here.
        let flat = uop.access.space == Space::Flat;
        let to_lds = flat && vmem::flat_reaches_lds(w, uop);
        let counts = |c: &&Counter| !(**c == Counter::Exp || flat && !to_lds && **c == Counter::Lgkm);
        let mut counters = f.counters.iter().filter(counts).peekable();
        while let Some(&counter) = counters.next() {
            let (fills, touched) = match counters.peek() {
                Some(_) => (fills.clone(), touched.clone()),
                None => (take(&mut fills), take(&mut touched)),
            };
            let pending = Pending {
                counter,
                in_order: !flags.has(Flags::OUT_OF_ORDER) || (flat && !to_lds),
                fills,
                halves: f.fills,
                name: f.info.name,
                touched,
                dma,
                told: false,
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
        let mut found = self.holder(addr, size);
        if found.is_none() && l.options.services.attend.is_some() {
            // The kernel may have asked for memory since the launch began.
            self.look_again(l);
            found = self.holder(addr, size);
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
            shadow.access(a, access, at, size, &mut Last::default()).map_err(|(byte, race)| FaultKind::MemoryRace {
                addr: addr + (byte - at),
                other: race.wave.map(|w| self.place(l, w)),
            })?;
        }
        Ok(found.recorded)
    }

    /// What is allocated now.
    pub fn look_again(&mut self, l: &Launch) {
        self.allocations = l.memory.snapshot();
        self.held = None;
    }

    /// The allocation that holds a range.
    fn holder(&mut self, addr: u64, size: u64) -> Option<Allocation> {
        let holds =
            |a: &Allocation| a.start <= addr && addr.saturating_add(size) <= a.start + a.size.next_multiple_of(4);
        if !self.held.is_some_and(|a| holds(&a)) {
            let before = self.allocations.partition_point(|a| a.start <= addr);
            self.held = before.checked_sub(1).map(|i| self.allocations[i]).filter(holds);
        }
        self.held
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
    fn lds_alignment(&self, l: &Launch, access: Access, size: u32) -> u32 {
        let must = access == Access::Atomic || l.machine.target.info().has(Quirk::AlignedLds);
        match size {
            _ if !must => 1,
            12 => 16,
            _ => size.max(1),
        }
    }

    /// An access of the active lanes to LDS, each to `size` bytes from `of(lane)` on.
    fn lds_lanes(
        &mut self,
        w: &Wave,
        l: &Launch,
        of: impl Fn(usize) -> u32,
        size: u32,
        access: Access,
        d: &Defined,
        touched: &mut Touches,
    ) -> Result<(), Problem> {
        let actor = self.actor(w, l);
        let defined = |lane: usize| d.lanes >> lane & 1 == 1;
        let align = self.lds_alignment(l, access, size);
        let aligned = |lane: usize, addr: u32| match addr.is_multiple_of(align) {
            true => Ok(()),
            false => Err((FaultKind::Misaligned { addr: addr.into(), align }, Some(lane as u32))),
        };
        let mut last = Last::default();
        let fills_lds = self.waves[w.index as usize].issued.fills_lds();
        let mut lanes = Lanes(w.exec()).peekable();
        while let Some(first) = lanes.next() {
            let at = of(first);
            let (mut recent, mut bytes) = (at, size);
            aligned(first, at)?;
            // Lanes that go on where the one before ends, or read what it reads, are one access.
            while let Some(&lane) = lanes.peek() {
                let next = of(lane);
                let again = access == Access::Read && next == recent;
                let behind = at.checked_add(bytes) == Some(next) && next.saturating_add(size) <= l.lds_size;
                if !(again || behind && defined(lane) == defined(first)) {
                    break;
                }
                aligned(lane, next)?;
                recent = next;
                bytes = next - at + size;
                lanes.next();
            }
            let lane_of = |byte: u32| Lanes(w.exec()).find(|&l| (of(l)..of(l).saturating_add(size)).contains(&byte));
            let problem = |(k, byte): (FaultKind, u32)| (k, lane_of(byte).map(|l| l as u32));
            if fills_lds {
                self.waves[w.index as usize].issued.filled(at, bytes).map_err(problem)?;
            }
            self.lds_access(&actor, l, at, bytes, access, defined(first), &mut last).map_err(problem)?;
            touched.push(Touched { lds: true, at: at as u64, size: bytes as u64, access });
        }
        Ok(())
    }

    /// An access to `size` bytes of LDS; the error has the first byte that it speaks of.
    fn lds_access(
        &mut self,
        a: &Actor,
        l: &Launch,
        addr: u32,
        size: u32,
        access: Access,
        defined: bool,
        last: &mut Last,
    ) -> Result<(), (FaultKind, u32)> {
        let range = addr as usize..addr as usize + size as usize;
        let Some(written) = self.written.get_mut(range) else {
            return Err((FaultKind::LdsOutOfBounds { addr, size, limit: l.lds_size }, addr));
        };
        if access == Access::Read && written.contains(&0) {
            let byte = addr + written.iter().take_while(|w| **w == 1).count() as u32;
            return Err((FaultKind::UninitialisedRead { space: "LDS", addr: byte as u64 }, byte));
        }
        if access == Access::Write {
            written.fill(defined.into());
        }
        // A wave alone races with nobody.
        if a.waves == 1 {
            return Ok(());
        }
        self.lds.access(a, access, addr as u64, size as u64, last).map_err(|(byte, Race { wave })| {
            let other_wave = wave.map(|w| (w as u64).wrapping_sub(self.first) as u32);
            (FaultKind::LdsRace { addr: byte as u32, other_wave }, byte as u32)
        })
    }
}

/// The byte of device memory that a fault speaks of, where that need not be the first of the access.
fn byte_of(kind: &FaultKind) -> Option<u64> {
    match kind {
        FaultKind::UninitialisedRead { addr, .. } | FaultKind::MemoryRace { addr, .. } => Some(*addr),
        _ => None,
    }
}
