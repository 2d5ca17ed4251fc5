//! Races: two waves touch the same bytes, at least one of them writes, and nothing orders the two accesses.
//!
//! Two records stand for all past accesses of a cell of four bytes: its last write, and its last read (or that there were
//! several, which nothing orders among themselves), as in Flanagan and Freund, "FastTrack: Efficient and Precise Dynamic
//! Race Detection" (2009). Instead of vector clocks one clock serves a launch; it ticks whenever waves synchronise. An
//! access of wave A at time t comes before one of wave B when
//!
//! * A is B;
//! * both are of one workgroup, which has met at a barrier since t;
//! * B's workgroup has *acquired* since t: by an atomic, by a load past the caches that meets another workgroup's atomic,
//!   by dropping caches that the device shares, or at a global wave sync resource.
//!
//! A store that its wave has not waited for when it, or another wave behind a barrier, could tell others of it by an atomic is
//! *unreleased* until it has waited and stores again, or does an atomic: what other workgroups acquire meanwhile says nothing of it.
//!
//! What A released otherwise is not followed, and a record that gives way to a newer one is forgotten: some races go unseen, but
//! there is none where one is reported. Atomics do not race with each other; nor with loads, since compilers begin loops
//! around compare-and-swap with a plain one; nor, between workgroups, with stores, since one that releases a lock looks
//! like any other. But an access that is still *outstanding* when its wave passes a barrier is meant to be over: it races
//! with everything.
//!
//! Records are exchanged atomically, since workgroups run on several threads: of two accesses at the same moment one sees
//! the other.

use crate::clock::END_OF_TIME;
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{MmapMut, MmapOptions};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cell.
const CELL: u64 = 4;
const WAVES: u32 = 1 << 30;

/// What a wave does to bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Loads.
    Read,
    /// Stores.
    Write,
    /// Read-modify-write.
    Atomic,
}

/// Which waves a record speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// The wave itself.
    One,
    /// Several of its workgroup.
    Group,
    /// Several of several workgroups.
    Any,
    /// The wave itself, which had not waited for it when others could be told.
    Unreleased,
}

/// An access that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    /// Number of the wave in the launch.
    wave: u32,
    whose: Whose,
    time: u32,
    atomic: bool,
    /// It was outstanding at a barrier.
    outstanding: bool,
    /// Bytes of the cell, a bit each; a record without bytes is none.
    bytes: u8,
}

impl Record {
    #[inline]
    fn pack(self) -> u64 {
        let flags = (self.whose as u64) << 4 | u64::from(self.atomic) << 6 | u64::from(self.outstanding) << 7;
        u64::from(self.bytes) | flags | u64::from(self.time) << 8 | u64::from(self.wave) << 34
    }

    #[inline]
    fn unpack(v: u64) -> Record {
        Record {
            wave: (v >> 34) as u32,
            whose: match v >> 4 & 3 {
                0 => Whose::One,
                1 => Whose::Group,
                2 => Whose::Any,
                _ => Whose::Unreleased,
            },
            time: (v >> 8) as u32 & END_OF_TIME,
            atomic: v >> 6 & 1 == 1,
            outstanding: v >> 7 & 1 == 1,
            bytes: v as u8 & 15,
        }
    }
}

/// A wave that is about to access memory, and what it knows of the others.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// Number of the wave in the launch.
    pub wave: u64,
    /// Number of the first wave of its workgroup.
    pub first: u64,
    /// Waves of its workgroup.
    pub waves: u32,
    /// Time.
    pub now: u32,
    /// Time of the workgroup's last barrier.
    pub barrier: u32,
    /// Time when the workgroup last acquired.
    pub acquired: u32,
}

impl Actor {
    #[inline]
    fn me(&self) -> u32 {
        (self.wave % u64::from(WAVES)) as u32
    }

    /// Whether a wave is of the same workgroup.
    #[inline]
    fn beside(&self, wave: u32) -> bool {
        let first = (self.first % u64::from(WAVES)) as u32;
        wave.wrapping_sub(first) % WAVES < self.waves
    }

    /// Whether what the record speaks of happened before now.
    #[inline]
    fn follows(&self, r: Record) -> bool {
        r.whose != Whose::Unreleased && r.time < self.acquired
            || match r.whose {
                Whose::One | Whose::Unreleased => r.wave == self.me() || (self.beside(r.wave) && r.time < self.barrier),
                Whose::Group => self.beside(r.wave) && r.time < self.barrier,
                Whose::Any => false,
            }
    }

    #[inline]
    fn record(&self, bytes: u8, atomic: bool) -> Record {
        Record { wave: self.me(), whose: Whose::One, time: self.now, atomic, outstanding: false, bytes }
    }

    /// The record of the wave's access, which nothing orders with that of `old`.
    #[inline]
    fn beside_others(&self, old: Record, bytes: u8, atomic: bool) -> Record {
        let mine = self.record(bytes, atomic);
        if old.bytes & bytes == 0 || old.atomic != atomic {
            return mine;
        }
        if self.follows(old) {
            let same = old.whose == Whose::One && old.wave == mine.wave && old.time == self.now;
            return Record { bytes: if same { old.bytes | bytes } else { bytes }, ..mine };
        }
        let outstanding = old.outstanding;
        let whose = if old.whose != Whose::Any && self.beside(old.wave) { Whose::Group } else { Whose::Any };
        // Bytes that not all of them touch are forgotten.
        Record { whose, outstanding, bytes: old.bytes & bytes, ..mine }
    }
}

/// With whom an access races.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Race {
    /// Number of the other wave in the launch; `None` when there are several.
    pub wave: Option<u32>,
}

/// The records that an access has found in the last cell and left there: cells that lie together mostly have the same, and what
/// finds the same leaves the same. Holds for one kind of access of one wave at one time, in memory that other threads do not use.
#[derive(Default)]
pub struct Last {
    bytes: u8,
    found: [u64; 2],
    left: [u64; 2],
}

/// The records of a cell: last write, last read.
#[repr(transparent)]
struct Cell([AtomicU64; 2]);

impl Cell {
    /// Last write and read, packed.
    #[inline]
    fn records(&self) -> [u64; 2] {
        [self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed)]
    }

    /// [`Cell::access`] where no other thread has the cell.
    #[inline]
    fn access_after(&self, last: &mut Last, a: &Actor, access: Access, bytes: u8) -> Result<(), Race> {
        let found = self.records();
        if (last.bytes, last.found) == (bytes, found) {
            for (record, left) in self.0.iter().zip(last.left) {
                record.store(left, Ordering::Relaxed);
            }
            return Ok(());
        }
        self.access::<false>(a, access, bytes)?;
        *last = Last { bytes, found, left: self.records() };
        Ok(())
    }

    /// Checks and records an access to some bytes of the cell. Without `SHARED` no other thread has the cell.
    fn access<const SHARED: bool>(&self, a: &Actor, access: Access, bytes: u8) -> Result<(), Race> {
        let [write, read] = &self.0;
        let (last_write, last_read) = (write.load(Ordering::SeqCst), read.load(Ordering::SeqCst));
        let mine = a.record(bytes, false).pack();
        let untouched = |record: u64| record & u64::from(bytes) == 0;
        // The same once more.
        match access {
            Access::Read if last_read == mine && untouched(last_write) => return Ok(()),
            Access::Write if last_write == mine && untouched(last_read) => return Ok(()),
            _ => {}
        }
        let race = |r: Record| match r.whose {
            _ if r.bytes & bytes == 0 || a.follows(r) => Ok(()),
            Whose::One | Whose::Unreleased => Err(Race { wave: Some(r.wave) }),
            _ => Err(Race { wave: None }),
        };
        let update = |cell: &AtomicU64, atomic: bool| {
            let mut old = cell.load(Ordering::SeqCst);
            loop {
                let new = a.beside_others(Record::unpack(old), bytes, atomic).pack();
                if !SHARED {
                    cell.store(new, Ordering::Relaxed);
                }
                if !SHARED || new == old {
                    return Record::unpack(old);
                }
                match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => return Record::unpack(old),
                    Err(now) => old = now,
                }
            }
        };
        let load = |cell: &AtomicU64| Record::unpack(cell.load(Ordering::SeqCst));
        match access {
            Access::Read => {
                update(read, false);
                let old = load(write);
                if old.atomic && !old.outstanding { Ok(()) } else { race(old) }
            }
            Access::Write => {
                let old = if SHARED {
                    write.swap(mine, Ordering::SeqCst)
                } else {
                    write.store(mine, Ordering::Relaxed);
                    last_write
                };
                let old = Record::unpack(old);
                if !old.atomic || (old.whose != Whose::Any && a.beside(old.wave)) {
                    race(old)?;
                }
                race(load(read))
            }
            Access::Atomic => {
                let old = update(write, true);
                if !old.atomic && a.beside(old.wave) {
                    race(old)?;
                }
                let old = load(read);
                if old.outstanding { race(old) } else { Ok(()) }
            }
        }
    }

    /// Notes an access that is outstanding at a barrier, without a check.
    fn note(&self, a: &Actor, access: Access, bytes: u8) {
        let [write, read] = &self.0;
        let cell = if access == Access::Read { read } else { write };
        let old = Record::unpack(cell.load(Ordering::SeqCst));
        let new = match access {
            Access::Write => a.record(bytes, false),
            _ => a.beside_others(old, bytes, access == Access::Atomic),
        };
        cell.store(Record { outstanding: true, ..new }.pack(), Ordering::SeqCst);
    }
}

impl Cell {
    /// Says of a store of the wave's own, if the cell still has it, whether others could be told of it too early.
    fn tell(&self, a: &Actor, bytes: u8, early: bool) {
        let [write, _] = &self.0;
        let whose = if early { Whose::Unreleased } else { Whose::One };
        let told = |v: u64| {
            let r = Record::unpack(v);
            let own = matches!(r.whose, Whose::One | Whose::Unreleased) && r.wave == a.me();
            (own && !r.atomic && r.bytes & bytes != 0).then(|| Record { whose, ..r }.pack())
        };
        // Where another wave has stored meanwhile, there is nothing to say.
        let _ = write.fetch_update(Ordering::SeqCst, Ordering::SeqCst, told);
    }
}

/// Bytes of records that the host is asked for at once.
const BLOCK: usize = 1 << 16;

/// The records of a range of memory. Pages of the host are used when they are touched.
pub struct Shadow {
    map: MmapMut,
    cells: u64,
    /// A bit for each block whose pages the host was asked for.
    blocks: Box<[AtomicU64]>,
    /// Several threads use it.
    shared: bool,
}

impl Shadow {
    /// Records for `bytes` bytes of memory; `shared` by several threads.
    pub fn new(bytes: u64, shared: bool) -> io::Result<Shadow> {
        let cells = bytes.div_ceil(CELL);
        let len = cells.max(1) as usize * size_of::<Cell>();
        let blocks = (0..len.div_ceil(BLOCK).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Shadow { map: MmapOptions::new().len(len).no_reserve_swap().map_anon()?, cells, blocks, shared })
    }

    /// Asks the host for the pages that the records of these bytes lie in, a block at a time: a record is read before it is
    /// written, and a page that was only read is one of zeros, which the first write replaces on every processor of the host.
    #[inline]
    fn populate(&self, at: u64, size: u64) {
        let block = |byte: u64| (byte / CELL).min(self.cells.saturating_sub(1)) as usize * size_of::<Cell>() / BLOCK;
        for n in block(at)..=block(at.saturating_add(size.saturating_sub(1))) {
            if self.blocks[n / 64].load(Ordering::Relaxed) & 1 << (n % 64) == 0 {
                self.populate_block(n);
            }
        }
    }

    #[cold]
    fn populate_block(&self, n: usize) {
        #[cfg(target_os = "linux")]
        {
            let start = n * BLOCK;
            // Where the host's kernel does not know how (before 5.14), pages come one by one as they are touched.
            let _ = self.map.advise_range(Advice::PopulateWrite, start, BLOCK.min(self.map.len() - start));
        }
        self.blocks[n / 64].fetch_or(1 << (n % 64), Ordering::Relaxed);
    }

    /// The records of the bytes from `at` on, with the bytes' mask in each cell. What lies outside is left out.
    fn cells(&self, at: u64, size: u64) -> impl Iterator<Item = (u64, &Cell, u8)> {
        let end = at.saturating_add(size).min(self.cells * CELL);
        let cells = self.map.as_ptr().cast::<Cell>();
        (at / CELL..end.div_ceil(CELL)).filter(move |_| at < end).map(move |n| {
            let (low, high) = (at.saturating_sub(n * CELL), (end - n * CELL).min(CELL));
            // SAFETY: the mapping has room for `cells` cells; all zeros are valid ones.
            (n * CELL + low, unsafe { &*cells.add(n as usize) }, (0xf << low & !(0xf << high) & 0xf) as u8)
        })
    }

    /// Checks and records an access; the error has the first byte that it races for. `last` is that of the same instruction.
    pub fn access(&self, a: &Actor, access: Access, at: u64, size: u64, last: &mut Last) -> Result<(), (u64, Race)> {
        if a.now == END_OF_TIME {
            return Ok(());
        }
        self.populate(at, size);
        let mut cells = self.cells(at, size);
        match self.shared {
            true => cells.try_for_each(|(at, cell, bytes)| cell.access::<true>(a, access, bytes).map_err(|r| (at, r))),
            false => {
                cells.try_for_each(|(at, cell, bytes)| cell.access_after(last, a, access, bytes).map_err(|r| (at, r)))
            }
        }
    }

    /// Whether a load of these bytes meets an atomic of another workgroup, younger than what this one acquired last: so
    /// workgroups wait for each other in AMD's cooperative groups, with no caches dropped behind the wait.
    pub fn meets_atomic(&self, a: &Actor, at: u64, size: u64) -> bool {
        let met = |r: Record| r.atomic && r.time >= a.acquired && (r.whose == Whose::Any || !a.beside(r.wave));
        self.cells(at, size).any(|(_, cell, bytes)| {
            let last = Record::unpack(cell.0[0].load(Ordering::SeqCst));
            last.bytes & bytes != 0 && met(last)
        })
    }

    /// Records an access that was checked before and is outstanding at a barrier.
    pub fn note(&self, a: &Actor, access: Access, at: u64, size: u64) {
        self.populate(at, size);
        self.cells(at, size).for_each(|(_, cell, bytes)| cell.note(a, access, bytes));
    }

    /// Notes that a wave has not waited for a store when others could be told of it, or that it has waited now.
    pub fn tell(&self, a: &Actor, at: u64, size: u64, early: bool) {
        self.cells(at, size).for_each(|(_, cell, bytes)| cell.tell(a, bytes, early));
    }

    /// Forgets everything about the first bytes.
    pub fn clear(&mut self, bytes: u64) {
        for (_, cell, _) in self.cells(0, bytes) {
            cell.0.iter().for_each(|r| r.store(0, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::*;

    fn access(s: &Shadow, a: &Actor, access: Access, at: u64, size: u64) -> Result<(), (u64, Race)> {
        s.access(a, access, at, size, &mut Last::default())
    }

    /// Two workgroups of two waves.
    fn actor(wave: u64, now: u32) -> Actor {
        Actor { wave, first: wave & !1, waves: 2, now, barrier: 1, acquired: 1 }
    }

    fn after_barrier(wave: u64, now: u32) -> Actor {
        Actor { barrier: now, ..actor(wave, now) }
    }

    #[test]
    fn records_survive_packing() {
        let wave = WAVES - 2;
        let (whose, time) = (Whose::Any, END_OF_TIME - 1);
        let r = Record { wave, whose, time, atomic: true, outstanding: false, bytes: 9 };
        assert_eq!(Record::unpack(r.pack()), r);
        let r = Record { wave: 1, whose: Whose::Group, time: 1, atomic: false, outstanding: true, bytes: 6 };
        assert_eq!(Record::unpack(r.pack()), r);
    }

    #[test]
    fn barriers_order_waves_of_a_group_only() {
        for s in [true, false].map(|shared| Shadow::new(64, shared).unwrap()) {
            access(&s, &actor(0, 1), Write, 8, 4).unwrap();
            assert_eq!(access(&s, &actor(1, 1), Read, 8, 4), Err((8, Race { wave: Some(0) })));
            access(&s, &after_barrier(1, 2), Read, 10, 2).unwrap();
            assert_eq!(access(&s, &after_barrier(2, 2), Read, 6, 4), Err((8, Race { wave: Some(0) })));
            let acquired = Actor { acquired: 3, ..actor(3, 3) };
            access(&s, &acquired, Write, 8, 4).unwrap();
        }
    }

    #[test]
    fn several_readers_and_a_writer() {
        for s in [true, false].map(|shared| Shadow::new(64, shared).unwrap()) {
            for w in 0..2 {
                access(&s, &actor(w, 1), Read, 0, 8).unwrap();
            }
            access(&s, &after_barrier(0, 2), Write, 0, 4).unwrap();
            assert_eq!(access(&s, &actor(0, 1), Write, 4, 4), Err((4, Race { wave: None })));
            // A wave writes what it alone has read, its neighbour what lies beside it in the cell.
            access(&s, &actor(2, 2), Read, 16, 2).unwrap();
            access(&s, &actor(3, 2), Read, 18, 2).unwrap();
            access(&s, &actor(2, 2), Write, 16, 2).unwrap();
            access(&s, &actor(3, 2), Write, 18, 2).unwrap();
        }
    }

    #[test]
    fn atomics_meet_each_other() {
        for s in [true, false].map(|shared| Shadow::new(64, shared).unwrap()) {
            for w in 0..4 {
                access(&s, &actor(w, 1), Atomic, 0, 8).unwrap();
            }
            access(&s, &actor(1, 1), Read, 0, 4).unwrap();
            s.note(&after_barrier(0, 2), Atomic, 0, 4);
            assert_eq!(access(&s, &after_barrier(1, 2), Read, 0, 4), Err((0, Race { wave: None })));
            // A lock of another workgroup is released by a store; within a group a store races.
            access(&s, &actor(0, 1), Atomic, 32, 4).unwrap();
            access(&s, &actor(2, 1), Write, 32, 4).unwrap();
            assert!(access(&s, &actor(3, 1), Atomic, 32, 4).is_err());
        }
    }

    #[test]
    fn waiting_for_an_atomic_acquires() {
        for s in [true, false].map(|shared| Shadow::new(64, shared).unwrap()) {
            access(&s, &actor(0, 3), Write, 8, 4).unwrap();
            access(&s, &actor(0, 3), Atomic, 32, 4).unwrap();
            assert!(s.meets_atomic(&actor(2, 4), 32, 4));
            // A plain store, bytes beside it, what was acquired already, and the own workgroup's.
            assert!(!s.meets_atomic(&actor(2, 4), 8, 4) && !s.meets_atomic(&actor(2, 4), 36, 4));
            assert!(
                !s.meets_atomic(&Actor { acquired: 4, ..actor(2, 4) }, 32, 4) && !s.meets_atomic(&actor(1, 4), 32, 4)
            );
        }
    }

    #[test]
    fn stores_that_are_not_waited_for_are_not_acquired() {
        let s = Shadow::new(64, true).unwrap();
        let acquired = Actor { acquired: 5, ..actor(2, 5) };
        access(&s, &actor(0, 1), Write, 0, 8).unwrap();
        access(&s, &actor(0, 1), Atomic, 32, 4).unwrap();
        for at in [0, 32] {
            s.tell(&actor(0, 2), at, 8, true);
        }
        assert_eq!(access(&s, &acquired, Read, 4, 4), Err((4, Race { wave: Some(0) })));
        access(&s, &acquired, Atomic, 32, 4).unwrap();
        access(&s, &after_barrier(1, 2), Read, 0, 4).unwrap();
        s.tell(&actor(0, 3), 0, 8, false);
        access(&s, &acquired, Read, 4, 4).unwrap();
        // Another's store is not the wave's.
        access(&s, &actor(3, 6), Write, 16, 4).unwrap();
        s.tell(&actor(0, 7), 16, 4, true);
        access(&s, &Actor { acquired: 8, ..actor(1, 8) }, Read, 16, 4).unwrap();
    }

    #[test]
    fn the_end_of_time_ends_reports() {
        for s in [true, false].map(|shared| Shadow::new(8, shared).unwrap()) {
            access(&s, &actor(0, 1), Write, 0, 4).unwrap();
            access(&s, &actor(1, END_OF_TIME), Write, 0, 4).unwrap();
        }
    }
}
