//! Device memory: one reserved range of host address space, of which the host commits pages when they are touched.
//!
//! Device addresses are [`BASE`] + offset, the same on every run; in a unified address space they are the host's own
//! addresses, so that both sides can follow the same pointers. Allocations are rounded to 256 bytes and separated by a
//! gap, so that strict mode can tell an overrun from an access to the neighbour.
//!
//! Beside that range, host memory can be lent to kernels under its own addresses ([`Memory::lend`]). An access looks
//! there only after it missed the reserved range.
//!
//! A second, equally lazy range holds one bit per byte: "was written". It is filled by host writes and by launches in
//! strict mode, and believed for allocations that no other launch could have written.

use memmap2::{MmapMut, MmapOptions};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

/// Lowest device address where the address space is not unified.
pub const BASE: u64 = 0x10_0000_0000;
const ALIGN: u64 = 256;
const GAP: u64 = 256;
/// From so many bytes on, zeros are made by giving pages back to the host.
const LARGE: u64 = 16 << 20;

/// Makes a range of the reserved memory zero without touching its pages: the host gives fresh ones when they are.
///
/// # Safety
/// The range lies in a private anonymous mapping, and nobody else uses it meanwhile.
unsafe fn zero_pages(start: *mut u8, size: usize) {
    const PAGE: usize = 1 << 16;
    let head = (start as usize).next_multiple_of(PAGE) - start as usize;
    let middle = (size - head) / PAGE * PAGE;
    // SAFETY: the caller's promise; head, middle and tail are parts of the range.
    unsafe {
        let inner = start.add(head);
        #[cfg(unix)]
        let given_back = libc::madvise(inner.cast(), middle, libc::MADV_DONTNEED) == 0;
        #[cfg(not(unix))]
        let given_back = false;
        if !given_back || cfg!(not(target_os = "linux")) {
            std::ptr::write_bytes(inner, 0, middle);
        }
        std::ptr::write_bytes(start, 0, head);
        std::ptr::write_bytes(inner.add(middle), 0, size - head - middle);
    }
}

/// What waves need to reach memory: copied into each of them.
#[derive(Clone, Copy)]
pub struct View {
    base: *mut u8,
    origin: u64,
    limit: u64,
    lent: *const Lent,
}

/// What kernels may use that a view does not hold itself.
#[derive(Default)]
struct Lent {
    /// Host memory: start to size in bytes.
    ranges: RwLock<BTreeMap<u64, u64>>,
    /// End of the part of the reserved range ever used, offset from the start.
    extent: AtomicU64,
}

impl Lent {
    /// True when a range lies inside of one that was lent.
    fn holds(&self, addr: u64, size: u64) -> bool {
        let ranges = self.ranges.read().unwrap_or_else(|e| e.into_inner());
        let last = ranges.range(..=addr).next_back();
        last.is_some_and(|(&start, &len)| size <= len && addr - start <= len - size)
    }
}

// SAFETY: the view is a pointer into a mapping that outlives every launch; kernels on several threads may race on the
// bytes as they would on a GPU, all accesses go through raw pointers and no references to the contents are formed.
unsafe impl Send for View {}
unsafe impl Sync for View {}

impl View {
    /// Device address of a host address inside of the mapping.
    pub fn address_of(&self, p: *const u8) -> Option<u64> {
        let offset = (p as u64).wrapping_sub(self.base as u64);
        // SAFETY: the view lives no longer than the memory that it was made from.
        let lent = unsafe { &*self.lent };
        if offset < self.limit || offset < lent.extent.load(Ordering::Relaxed) {
            return Some(self.origin + offset);
        }
        lent.holds(p as u64, 1).then_some(p as u64)
    }

    /// Host address of `size` bytes at a device address, if they are inside of the part of memory in use.
    #[inline(always)]
    pub fn at(&self, addr: u64, size: u64) -> Option<*mut u8> {
        let offset = addr.wrapping_sub(self.origin);
        if offset < self.limit && size <= self.limit - offset {
            // SAFETY: the offset is inside of the mapping.
            Some(unsafe { self.base.add(offset as usize) })
        } else {
            self.elsewhere(addr, size)
        }
    }

    #[cold]
    #[inline(never)]
    fn elsewhere(&self, addr: u64, size: u64) -> Option<*mut u8> {
        // SAFETY: the view lives no longer than the memory that it was made from.
        let lent = unsafe { &*self.lent };
        // Memory may have been allocated since the view was made: kernels can ask for it.
        let (offset, extent) = (addr.wrapping_sub(self.origin), lent.extent.load(Ordering::Relaxed));
        if offset < extent && size <= extent - offset {
            // SAFETY: the offset is inside of the mapping.
            return Some(unsafe { self.base.add(offset as usize) });
        }
        lent.holds(addr, size).then_some(addr as *mut u8)
    }
}

/// An allocation of the reserved range.
#[derive(Clone, Copy)]
struct Used {
    /// Bytes, as asked for.
    size: u64,
    /// Number of the allocation in order of time.
    born: u64,
    /// Too large for a bit per byte, or written behind the device's back: nothing is known of its bytes.
    opaque: bool,
}

struct Allocations {
    /// By start.
    used: BTreeMap<u64, Used>,
    /// Start to size of free ranges below `top`.
    free: BTreeMap<u64, u64>,
    top: u64,
    /// Ranges that were freed and are not used again yet, oldest first: start, size, what was asked for.
    quarantine: VecDeque<(u64, u64, u64)>,
    quarantined: u64,
}

/// Bytes that are kept from use at most after they were freed.
const MOST_QUARANTINED: u64 = 1 << 28;

impl Allocations {
    fn release(&mut self, mut offset: u64, mut len: u64) {
        if let Some((&before, &s)) = self.free.range(..offset).next_back()
            && before + s == offset
        {
            self.free.remove(&before);
            offset = before;
            len += s;
        }
        if let Some(s) = self.free.remove(&(offset + len)) {
            len += s;
        }
        self.free.insert(offset, len);
    }

    /// Ends the quarantine of the oldest ranges until at most so many bytes are left in it.
    fn shorten_quarantine(&mut self, most: u64) {
        while self.quarantined > most
            && let Some((offset, len, _)) = self.quarantine.pop_front()
        {
            self.quarantined -= len;
            self.release(offset, len);
        }
    }

    /// Takes a free range that starts where `place` moves its start up to.
    fn take(&mut self, need: u64, most: u64, place: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let end = |from: u64| place(from)?.checked_add(need);
        let fits = |(&from, &len): (&u64, &u64)| end(from).is_some_and(|e| e <= from + len).then_some((from, len));
        let (from, until) = match self.free.iter().find_map(fits) {
            Some((from, len)) => {
                self.free.remove(&from);
                (from, from + len)
            }
            None => {
                let top = end(self.top).filter(|top| *top <= most)?;
                (std::mem::replace(&mut self.top, top), top)
            }
        };
        let offset = place(from)?;
        for (start, end) in [(from, offset), (offset + need, until)] {
            if start < end {
                self.free.insert(start, end - start);
            }
        }
        Some(offset)
    }
}

/// The memory of a device.
pub struct Memory {
    map: MmapMut,
    written: MmapMut,
    size: u64,
    /// Device address of the first byte.
    origin: u64,
    lent: Lent,
    allocations: Mutex<Allocations>,
    /// Number of allocations made so far.
    made: AtomicU64,
    /// Allocations that are older than this may have been written by launches that kept no record.
    unrecorded: AtomicU64,
    /// Freed memory is not used again at once.
    quarantines: AtomicBool,
}

/// An allocation as strict launches see it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Allocation {
    /// Device address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Every write to it was recorded.
    pub recorded: bool,
}

impl Memory {
    /// Reserves up to `size` bytes; less when the host refuses that much address space. With `unified`, device addresses
    /// are the host's.
    pub fn reserve(size: u64, unified: bool) -> io::Result<Memory> {
        let mut size = size;
        loop {
            let map = MmapOptions::new().len(size as usize).no_reserve_swap().map_anon();
            let bits = MmapOptions::new().len((size / 8) as usize).no_reserve_swap().map_anon();
            match (map, bits) {
                (Ok(map), Ok(written)) => {
                    let allocations = Allocations {
                        used: BTreeMap::new(),
                        free: BTreeMap::new(),
                        top: 0,
                        quarantine: VecDeque::new(),
                        quarantined: 0,
                    };
                    return Ok(Memory {
                        origin: if unified { map.as_ptr() as u64 } else { BASE },
                        lent: Lent::default(),
                        map,
                        written,
                        size,
                        allocations: Mutex::new(allocations),
                        made: AtomicU64::new(0),
                        unrecorded: AtomicU64::new(0),
                        quarantines: AtomicBool::new(false),
                    });
                }
                (Err(e), _) | (_, Err(e)) if size <= 1 << 28 => return Err(e),
                _ => size /= 2,
            }
        }
    }

    /// Bytes that can be allocated in all.
    pub fn capacity(&self) -> u64 {
        self.size
    }

    /// True for addresses of the reserved range.
    pub fn owns(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.origin) < self.size
    }

    /// Reserves `size` bytes; `None` when no range is free.
    pub fn alloc(&self, size: u64) -> Option<u64> {
        self.alloc_at_multiple(size, ALIGN)
    }

    /// The same at an address that is a multiple of `align`, a power of two of at least [`ALIGN`].
    pub fn alloc_at_multiple(&self, size: u64, align: u64) -> Option<u64> {
        let mut a = self.allocations.lock().unwrap_or_else(|e| e.into_inner());
        let need = size.max(1).checked_next_multiple_of(ALIGN)?.checked_add(GAP)?;
        let align = align.max(ALIGN);
        let place = |offset: u64| Some((self.origin + offset).checked_next_multiple_of(align)? - self.origin);
        let offset = a.take(need, self.size, place).or_else(|| {
            a.shorten_quarantine(0);
            a.take(need, self.size, place)
        })?;
        self.lent.extent.store(a.top, Ordering::Relaxed);
        let born = self.made.fetch_add(1, Ordering::Relaxed);
        a.used.insert(offset, Used { size, born, opaque: false });
        Some(self.origin + offset)
    }

    /// Frees an allocation; false when `addr` is not the start of one. Where freed memory is quarantined, its addresses
    /// are given out again only when others that were freed later wait behind it, or when there are no others.
    pub fn free(&self, addr: u64) -> bool {
        self.end(addr, self.quarantines.load(Ordering::Relaxed))
    }

    /// Frees an allocation that nobody outside of the device knows of.
    pub fn free_now(&self, addr: u64) -> bool {
        self.end(addr, false)
    }

    fn end(&self, addr: u64, quarantine: bool) -> bool {
        let mut a = self.allocations.lock().unwrap_or_else(|e| e.into_inner());
        let Some(offset) = addr.checked_sub(self.origin) else { return false };
        let Some(Used { size, .. }) = a.used.remove(&offset) else { return false };
        let len = size.max(1).next_multiple_of(ALIGN) + GAP;
        self.forget(offset, size);
        if quarantine {
            a.quarantine.push_back((offset, len, size));
            a.quarantined += len;
            a.shorten_quarantine(MOST_QUARANTINED);
        } else {
            a.release(offset, len);
        }
        true
    }

    /// From now on freed memory stays unused for a while, so that a kernel that uses it is found out.
    pub fn quarantine(&self) {
        self.quarantines.store(true, Ordering::Relaxed);
    }

    /// Start and size of the allocation in quarantine that held `addr`.
    pub fn freed_range_of(&self, addr: u64) -> Option<(u64, u64)> {
        let offset = addr.checked_sub(self.origin)?;
        let a = self.allocations.lock().unwrap_or_else(|e| e.into_inner());
        let freed = a.quarantine.iter().rev().find(|(o, _, size)| (*o..o + size).contains(&offset));
        freed.map(|(o, _, size)| (self.origin + o, *size))
    }

    /// Size of the allocation that contains `addr`, and its start.
    pub fn allocation_of(&self, addr: u64) -> Option<(u64, u64)> {
        let offset = addr.checked_sub(self.origin)?;
        let a = self.allocations.lock().unwrap_or_else(|e| e.into_inner());
        let (&start, u) = a.used.range(..=offset).next_back()?;
        (offset - start < u.size).then_some((self.origin + start, u.size))
    }

    /// A launch is about to run that does not record what it writes.
    pub fn stop_recording(&self) {
        self.unrecorded.store(self.made.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Offset of a device address in the reserved range.
    pub fn offset_of(&self, addr: u64) -> Option<u64> {
        addr.checked_sub(self.origin).filter(|&o| o < self.size)
    }

    /// Bytes from the start of the reserved range that were ever allocated.
    pub fn extent(&self) -> u64 {
        self.lent.extent.load(Ordering::Relaxed)
    }

    /// The allocations of the moment, in order: strict launches look addresses up in this.
    pub fn snapshot(&self) -> Vec<Allocation> {
        let a = self.allocations.lock().unwrap_or_else(|e| e.into_inner());
        let lent = self.lent.ranges.read().unwrap_or_else(|e| e.into_inner());
        let since = self.unrecorded.load(Ordering::Relaxed);
        let own = a.used.iter().map(|(&o, u)| Allocation {
            start: self.origin + o,
            size: u.size,
            recorded: u.born >= since && !u.opaque,
        });
        // The host writes what it lends without telling.
        let lent = lent.iter().map(|(&start, &size)| Allocation { start, size, recorded: false });
        let mut all: Vec<Allocation> = own.chain(lent).collect();
        all.sort_unstable();
        all
    }

    /// Lets kernels use `size` bytes of host memory at `start`, under the host's address; false when part of the range is
    /// lent already or device memory.
    ///
    /// # Safety
    /// The bytes stay readable and writable until [`Memory::take_back`], and no launch is running then.
    pub unsafe fn lend(&self, start: *mut u8, size: u64) -> bool {
        let from = start as u64;
        let Some(end) = from.checked_add(size) else { return false };
        let own = self.map.as_ptr() as u64;
        let mut ranges = self.lent.ranges.write().unwrap_or_else(|e| e.into_inner());
        let before = ranges.range(..end).next_back();
        let free = before.is_none_or(|(&s, &len)| s + len <= from)
            && (end <= self.origin || from >= self.origin + self.size)
            && (end <= own || from >= own + self.size);
        if free && size > 0 {
            ranges.insert(from, size);
        }
        free && size > 0
    }

    /// Ends [`Memory::lend`]; false when no range starts there.
    pub fn take_back(&self, start: u64) -> bool {
        self.lent.ranges.write().unwrap_or_else(|e| e.into_inner()).remove(&start).is_some()
    }

    /// Start and size of the lent host memory that contains `addr`.
    pub fn lent_range_of(&self, addr: u64) -> Option<(u64, u64)> {
        let ranges = self.lent.ranges.read().unwrap_or_else(|e| e.into_inner());
        let (&start, &size) = ranges.range(..=addr).next_back()?;
        (addr - start < size).then_some((start, size))
    }

    /// Access for waves.
    pub fn view(&self) -> View {
        View { base: self.map.as_ptr().cast_mut(), origin: self.origin, limit: self.extent(), lent: &self.lent }
    }

    /// Copies device memory to the host; false when the range is outside of device memory.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        let Some(p) = self.view().at(addr, out.len() as u64) else { return false };
        // SAFETY: checked above.
        unsafe { std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), out.len()) };
        true
    }

    /// Copies host memory to the device.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let Some(p) = self.view().at(addr, bytes.len() as u64) else { return false };
        // SAFETY: checked above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), p, bytes.len()) };
        self.mark(addr, bytes.len() as u64, true);
        true
    }

    /// Fills device memory with one byte.
    pub fn fill(&self, addr: u64, byte: u8, size: u64) -> bool {
        let Some(p) = self.view().at(addr, size) else { return false };
        // SAFETY: checked above.
        unsafe {
            if byte == 0 && size >= LARGE && addr.wrapping_sub(self.origin) < self.size {
                zero_pages(p, size as usize);
            } else {
                std::ptr::write_bytes(p, byte, size as usize);
            }
        }
        self.assume_written(addr, size);
        true
    }

    /// Notes that a range holds meaningful data. A bit for each byte of a large one would take time and memory: its
    /// allocation counts as written by others instead.
    pub fn assume_written(&self, addr: u64, size: u64) {
        if size < LARGE {
            return self.mark(addr, size, true);
        }
        let Some(offset) = self.offset_of(addr) else { return };
        let mut a = self.allocations.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, u)) = a.used.range_mut(..=offset).next_back() {
            u.opaque = true;
        }
    }

    /// Makes the bytes of an allocation that goes away undefined. What they take of the host is given back when there are
    /// many, in time that depends only on the pages that were touched.
    fn forget(&self, offset: u64, size: u64) {
        if size < LARGE {
            return self.mark(self.origin + offset, size, false);
        }
        // Only the bits of whole bytes belong to this allocation alone: starts and sizes are multiples of 256.
        let bits = size.next_multiple_of(ALIGN) / 8;
        // SAFETY: both ranges lie in private anonymous mappings, and nobody uses an allocation while it is freed.
        unsafe {
            zero_pages(self.written.as_ptr().cast_mut().add((offset / 8) as usize), bits as usize);
            zero_pages(self.map.as_ptr().cast_mut().add(offset as usize), size as usize);
        }
    }

    /// Records that bytes were written (or are undefined again). The range must be inside of memory.
    pub fn mark(&self, addr: u64, size: u64, written: bool) {
        let Some(from) = addr.checked_sub(self.origin) else { return };
        let Some(to) = from.checked_add(size).filter(|&t| t <= self.size) else { return };
        let bits = self.written.as_ptr().cast_mut();
        let one = |byte: u64, mask: u8| {
            // SAFETY: `byte` is below `size / 8`; the cell is only accessed atomically or by whole-byte fills of ranges
            // that belong to the caller.
            let cell = unsafe { std::sync::atomic::AtomicU8::from_ptr(bits.add(byte as usize)) };
            if written {
                cell.fetch_or(mask, Ordering::Relaxed)
            } else {
                cell.fetch_and(!mask, Ordering::Relaxed)
            };
        };
        let (first, last) = (from.div_ceil(8), to / 8);
        if first > last {
            return one(from / 8, (0xffu8 << (from % 8)) & !(0xff << (to % 8)));
        }
        if from % 8 != 0 {
            one(from / 8, 0xff << (from % 8));
        }
        if to % 8 != 0 {
            one(last, !(0xff << (to % 8)));
        }
        // SAFETY: inside of the bitmap.
        unsafe {
            std::ptr::write_bytes(bits.add(first as usize), if written { 0xff } else { 0 }, (last - first) as usize)
        };
    }

    /// First byte of the range that nothing has written.
    pub fn first_unwritten(&self, addr: u64, size: u64) -> Option<u64> {
        let from = addr.checked_sub(self.origin)?;
        let to = from.checked_add(size)?.min(self.size);
        let mut at = from;
        while at < to {
            // The bits of a group of eight bytes that are behind the place.
            let missing = !self.written[(at / 8) as usize] >> (at % 8);
            if missing != 0 {
                return Some(at + u64::from(missing.trailing_zeros())).filter(|&o| o < to).map(|o| self.origin + o);
            }
            at = (at / 8 + 1) * 8;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_memory_costs_nothing_and_ranges_are_reused() {
        let m = Memory::reserve(192 << 30, false).unwrap();
        let a = m.alloc(1 << 30).unwrap();
        let b = m.alloc(100).unwrap();
        assert!(m.write(b, &[1, 2, 3]));
        let mut out = [0; 3];
        assert!(m.read(b, &mut out) && out == [1, 2, 3]);
        assert!(!m.write(BASE - 1, &[1]) && !m.read(u64::MAX, &mut out));
        assert_eq!(m.allocation_of(b + 99), Some((b, 100)));
        assert_eq!(m.allocation_of(b + 100), None);
        assert!(m.free(a) && !m.free(a));
        assert_eq!(m.alloc(1000), Some(a));
        assert_eq!(m.alloc(u64::MAX), None);
    }

    #[test]
    fn aligned_ranges_leave_the_rest_free() {
        for unified in [false, true] {
            let m = Memory::reserve(1 << 30, unified).unwrap();
            let a = m.alloc(100).unwrap();
            let slab = m.alloc_at_multiple(2 << 20, 2 << 20).unwrap();
            assert!(slab.is_multiple_of(2 << 20) && slab > a);
            // what lies before it serves others
            let page = m.alloc_at_multiple(100, 4096).unwrap();
            assert!(page.is_multiple_of(4096) && a < page && page < slab);
            assert!(m.free(page) && m.free(slab) && m.free(a));
            assert_eq!(m.alloc(4 << 20), Some(a));
        }
    }

    #[test]
    fn freed_memory_is_quarantined() {
        let m = Memory::reserve(1 << 30, false).unwrap();
        m.quarantine();
        let a = m.alloc(100).unwrap();
        assert!(m.free(a) && !m.free(a));
        assert_eq!((m.freed_range_of(a + 99), m.freed_range_of(a + 100)), (Some((a, 100)), None));
        let b = m.alloc(100).unwrap();
        assert!(b != a);
        // large ones push it out, and what nobody else has is taken from there
        let large = m.alloc(MOST_QUARANTINED).unwrap();
        assert!(m.free(large) && m.freed_range_of(a).is_none());
        assert_eq!(m.alloc(100), Some(a));
        let own = m.alloc(64).unwrap();
        assert!(m.free_now(own) && m.alloc(64) == Some(own));
    }

    #[test]
    fn written_bytes_are_remembered() {
        let m = Memory::reserve(1 << 28, false).unwrap();
        let a = m.alloc(100).unwrap();
        for (from, to) in [(3, 5), (8, 16), (21, 43)] {
            m.mark(a + from, to - from, true);
            assert_eq!(m.first_unwritten(a + from, to - from), None);
            assert_eq!(m.first_unwritten(a + from, to - from + 1), Some(a + to));
            assert_eq!(m.first_unwritten(a + from - 1, 3), Some(a + from - 1));
        }
        m.mark(a + 24, 2, false);
        assert_eq!(m.first_unwritten(a + 21, 20), Some(a + 24));
    }

    #[test]
    fn unified_addresses_and_lent_memory() {
        let m = Memory::reserve(1 << 28, true).unwrap();
        let a = m.alloc(16).unwrap();
        assert!(m.write(a, &[7; 16]));
        // SAFETY: the allocation has 16 bytes, and device addresses are the host's.
        assert_eq!(unsafe { *(a as *const u8) }, 7);
        let mut host = [1u8; 64];
        let at = host.as_mut_ptr();
        // SAFETY: `host` outlives the loan.
        unsafe { assert!(m.lend(at, 64) && !m.lend(at.add(8), 8) && !m.lend(a as *mut u8, 8)) };
        let v = m.view();
        assert_eq!(v.at(at as u64 + 60, 4), Some(at.wrapping_add(60)));
        assert_eq!(v.at(at as u64 + 61, 4), None);
        assert_eq!((v.address_of(at.wrapping_add(64)), v.address_of(at)), (None, Some(at as u64)));
        assert_eq!(m.lent_range_of(at as u64 + 9), Some((at as u64, 64)));
        assert!(m.snapshot().iter().any(|r| (r.start, r.size) == (at as u64, 64)));
        assert!(m.take_back(at as u64) && !m.take_back(at as u64) && v.at(at as u64, 1).is_none());
    }
}
