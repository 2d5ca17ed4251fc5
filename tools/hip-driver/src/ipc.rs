//! Memory and events between processes. An allocation that is shared moves, under the same address, into memory of the
//! system that other processes can open through this one's descriptor; the handle names process and descriptor. The
//! state of a shared event is two counters in such memory: recordings asked for, recordings reached.

use crate::api::{Code, INVALID, Result, err, put};
use crate::memory::{self, Kind};
use crate::shared_memory::{self, PAGE, Physical};
use crate::state::{self, EVENTS, EventEntry, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a handle says: 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle64 {
    magic: u64,
    pid: u32,
    fd: i32,
    /// Offset of the allocation in the memory, and its bytes.
    offset: u64,
    size: u64,
    rest: [u64; 4],
}

const MEMORY: u64 = u64::from_le_bytes(*b"bw-mem-1");
const EVENT: u64 = u64::from_le_bytes(*b"bw-evt-1");

impl Handle64 {
    fn new(magic: u64, memory: &Physical, offset: u64, size: u64) -> Handle64 {
        Handle64 { magic, pid: std::process::id(), fd: memory.fd(), offset, size, rest: [0; 4] }
    }
}

/// Allocations of this process that others may open: start to memory, first page, bytes.
static SHARED: Mutex<BTreeMap<u64, (Physical, u64, u64)>> = Mutex::new(BTreeMap::new());
/// Allocations of other processes: start to the mapping's start and bytes, and how often it was opened.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

struct Opened {
    map: u64,
    bytes: u64,
    from: (u32, i32),
    times: u32,
}

/// An allocation goes away: its pages are private again.
pub fn freed(start: u64) {
    if let Some((memory, page, bytes)) = lock(&SHARED).remove(&start) {
        // SAFETY: whole pages of device memory, and work that used the allocation is done.
        unsafe { shared_memory::make_private(page, bytes) };
        drop(memory);
    }
}

/// State of an event that processes share.
pub struct SharedEvent {
    memory: Physical,
    at: u64,
}

impl SharedEvent {
    /// Never recorded.
    pub fn new() -> Result<SharedEvent> {
        SharedEvent::over(Physical::new(PAGE)?)
    }

    fn over(memory: Physical) -> Result<SharedEvent> {
        // SAFETY: anywhere.
        let at = unsafe { memory.map(None, PAGE, 0)? };
        Ok(SharedEvent { memory, at })
    }

    fn counter(&self, n: u64) -> &AtomicU64 {
        // SAFETY: the mapping is as long as this; other processes access it atomically too.
        unsafe { AtomicU64::from_ptr((self.at + 8 * n) as *mut u64) }
    }

    /// A recording is asked for: its number.
    pub fn begin(&self) -> u64 {
        self.counter(0).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A recording is reached.
    pub fn complete(&self, ticket: u64) {
        self.counter(1).fetch_max(ticket, Ordering::AcqRel);
    }

    /// The latest recording is reached.
    pub fn done(&self) -> bool {
        let asked = self.counter(0).load(Ordering::Acquire);
        self.counter(1).load(Ordering::Acquire) >= asked
    }

    /// Waits for the latest recording.
    pub fn wait(&self) {
        let asked = self.counter(0).load(Ordering::Acquire);
        while self.counter(1).load(Ordering::Acquire) < asked {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: nobody else has the address.
        unsafe { shared_memory::unmap(self.at, PAGE) };
    }
}

hip! {
    fn hipIpcGetMemHandle(handle: *mut Handle64, p: *mut c_void) {
        if handle.is_null() || p.is_null() {
            return Err(INVALID);
        }
        let a = memory::find(p as u64).filter(|a| a.start == p as u64 && a.kind == Kind::Device).ok_or(INVALID)?;
        let mut shared = lock(&SHARED);
        if let Entry::Vacant(place) = shared.entry(a.start) {
            for d in state::devices() {
                d.synchronize()?;
            }
            let (page, end) = (a.start / PAGE * PAGE, (a.start + a.size).next_multiple_of(PAGE));
            let copy = Physical::new(end - page)?;
            // SAFETY: the pages are device memory and quiet; what is in them is copied before they are replaced.
            unsafe {
                let elsewhere = copy.map(None, end - page, 0)?;
                std::ptr::copy_nonoverlapping(page as *const u8, elsewhere as *mut u8, (end - page) as usize);
                shared_memory::unmap(elsewhere, end - page);
                copy.map(Some(page), end - page, 0)?;
            }
            place.insert((copy, page, end - page));
        }
        let (physical, page, _) = &shared[&a.start];
        put(handle, Handle64::new(MEMORY, physical, a.start - page, a.size))
    }
    fn hipIpcOpenMemHandle(place: *mut *mut c_void, handle: Handle64, flags: c_uint) {
        // Lazy access of peers is the only way.
        if place.is_null() || flags != 1 || handle.magic != MEMORY || handle.size == 0 {
            return Err(INVALID);
        }
        if handle.pid == std::process::id() {
            return err(hipErrorInvalidContext);
        }
        let from = (handle.pid, handle.fd);
        let mut opened = lock(&OPENED);
        if let Some((start, o)) = opened.iter_mut().find(|(_, o)| o.from == from) {
            o.times += 1;
            return put(place, *start as *mut c_void);
        }
        let physical = Physical::open(handle.pid, handle.fd).map_err(|_| Code(hipErrorInvalidDevicePointer))?;
        let fits = handle.offset.checked_add(handle.size).is_some_and(|end| end <= physical.size);
        if !fits {
            return Err(INVALID);
        }
        let map = physical.map(None, physical.size, 0)?;
        let start = map + handle.offset;
        memory::add_foreign(start, handle.size, state::current()?.ordinal, Kind::Device);
        memory::reach_foreign(start, handle.size, true);
        opened.insert(start, Opened { map, bytes: physical.size, from, times: 1 });
        put(place, start as *mut c_void)
    }
    fn hipIpcCloseMemHandle(p: *mut c_void) {
        let mut opened = lock(&OPENED);
        let o = opened.get_mut(&(p as u64)).ok_or(INVALID)?;
        o.times -= 1;
        if o.times > 0 {
            return Ok(());
        }
        for d in state::devices() {
            let _ = d.synchronize();
        }
        let (map, bytes) = (o.map, o.bytes);
        opened.remove(&(p as u64));
        memory::forget_foreign(p as u64);
        shared_memory::unmap(map, bytes);
        Ok(())
    }
    fn hipIpcGetEventHandle(handle: *mut Handle64, event: hipEvent_t) {
        let e = state::event(event)?;
        let shared = e.shared.as_ref().ok_or(Code(hipErrorInvalidConfiguration))?;
        put(handle, Handle64::new(EVENT, &shared.memory, 0, PAGE))
    }
    fn hipIpcOpenEventHandle(place: *mut hipEvent_t, handle: Handle64) {
        if place.is_null() || handle.magic != EVENT {
            return Err(INVALID);
        }
        if handle.pid == std::process::id() {
            return err(hipErrorInvalidContext);
        }
        let physical = Physical::open(handle.pid, handle.fd)?;
        if physical.size < PAGE {
            return Err(INVALID);
        }
        let shared = Some(SharedEvent::over(physical)?);
        put(place, EVENTS.add(Arc::new(EventEntry::new(crate::stream::INTERPROCESS, shared))))
    }
}
