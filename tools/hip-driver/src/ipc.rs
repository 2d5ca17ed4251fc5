//! Memory, events and pools between processes. An allocation that is shared moves, under the same address, into memory of the
//! system that other processes can open through this one's descriptor; the handle names process and descriptor. The
//! state of a shared event is two counters in such memory: recordings asked for, recordings reached. What a pool shares is
//! its allocations, one by one; the descriptor that stands for the pool only says so.

use crate::api::{Code, INVALID, Result, err, get, put};
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
    /// The system's number of the memory: its descriptor may be another's when the handle is opened.
    serial: u64,
    rest: [u64; 3],
}

const MEMORY: u64 = u64::from_le_bytes(*b"bw-mem-1");
const EVENT: u64 = u64::from_le_bytes(*b"bw-evt-1");
const POOL: u64 = u64::from_le_bytes(*b"bw-pol-1");

impl Handle64 {
    fn new(magic: u64, memory: &Physical, offset: u64, size: u64) -> Handle64 {
        let (pid, fd, serial) = (std::process::id(), memory.fd(), memory.serial);
        Handle64 { magic, pid, fd, offset, size, serial, rest: [0; 3] }
    }

    /// The memory, if it is still there.
    fn memory(&self) -> Result<Physical> {
        let memory = Physical::open(self.pid, self.fd)?;
        let inside = self.offset.checked_add(self.size).is_some_and(|end| end <= memory.size);
        if memory.serial == self.serial && inside { Ok(memory) } else { Err(INVALID) }
    }
}

/// Allocations of this process that others may open: start to memory, first page, bytes.
static SHARED: Mutex<BTreeMap<u64, (Physical, u64, u64)>> = Mutex::new(BTreeMap::new());
/// Allocations of other processes: start to the mapping's start and bytes, and how often it was opened.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

struct Opened {
    map: u64,
    bytes: u64,
    /// The memory's number, and where the allocation lies in it.
    from: (u64, u64),
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

/// A handle for the allocation that starts at `p`, which other processes may open from now on.
fn share(p: *mut c_void) -> Result<Handle64> {
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
    Ok(Handle64::new(MEMORY, physical, a.start - page, a.size))
}

/// Where the memory of a handle is in this process, mapped if it is not yet.
fn open(handle: &Handle64) -> Result<*mut c_void> {
    let from = (handle.serial, handle.offset);
    let mut opened = lock(&OPENED);
    if let Some((start, o)) = opened.iter_mut().find(|(_, o)| o.from == from) {
        o.times += 1;
        return Ok(*start as *mut c_void);
    }
    let physical = handle.memory().map_err(|_| Code(hipErrorInvalidDevicePointer))?;
    let ordinal = state::current()?.ordinal;
    // SAFETY: anywhere.
    let map = unsafe { physical.map(None, physical.size, 0)? };
    let start = map + handle.offset;
    memory::add_foreign(start, handle.size, ordinal, Kind::Device);
    memory::reach_foreign(start, handle.size, true);
    opened.insert(start, Opened { map, bytes: physical.size, from, times: 1 });
    Ok(start as *mut c_void)
}

/// Closes memory of another process once, if that is what starts there. Work that uses it is done.
pub fn closed(start: u64) -> bool {
    let mut opened = lock(&OPENED);
    let Some(o) = opened.get_mut(&start) else { return false };
    o.times -= 1;
    if o.times == 0 {
        let (map, bytes) = (o.map, o.bytes);
        opened.remove(&start);
        memory::forget_foreign(start);
        // SAFETY: nobody has the address any more.
        unsafe { shared_memory::unmap(map, bytes) };
    }
    true
}

/// The memory behind the descriptor that stands for a pool of this process.
pub fn pool_descriptor() -> Result<Physical> {
    let p = Physical::new(PAGE)?;
    // SAFETY: a page of our own, mapped anywhere for as long as it takes.
    unsafe {
        let at = p.map(None, PAGE, 0)?;
        (at as *mut u64).write(POOL);
        shared_memory::unmap(at, PAGE);
    }
    Ok(p)
}

/// Whether a descriptor of this process stands for a pool, of whatever process.
pub fn is_pool(fd: i32) -> bool {
    let Ok(p) = Physical::open(std::process::id(), fd) else { return false };
    if p.size != PAGE {
        return false;
    }
    // SAFETY: as above.
    unsafe {
        let Ok(at) = p.map(None, PAGE, 0) else { return false };
        let found = (at as *const u64).read();
        shared_memory::unmap(at, PAGE);
        found == POOL
    }
}

hip! {
    fn hipIpcGetMemHandle(handle: *mut Handle64, p: *mut c_void) {
        if handle.is_null() || p.is_null() {
            return Err(INVALID);
        }
        put(handle, share(p)?)
    }
    fn hipIpcOpenMemHandle(place: *mut *mut c_void, handle: Handle64, flags: c_uint) {
        // Lazy access of peers is the only way.
        if place.is_null() || flags != 1 || handle.magic != MEMORY || handle.size == 0 {
            return Err(INVALID);
        }
        if handle.pid == std::process::id() {
            return err(hipErrorInvalidContext);
        }
        put(place, open(&handle)?)
    }
    fn hipIpcCloseMemHandle(p: *mut c_void) {
        if !lock(&OPENED).contains_key(&(p as u64)) {
            return Err(INVALID);
        }
        for d in state::devices() {
            let _ = d.synchronize();
        }
        if closed(p as u64) { Ok(()) } else { Err(INVALID) }
    }
    fn hipMemPoolExportPointer(data: *mut Handle64, p: *mut c_void) {
        if data.is_null() || p.is_null() {
            return Err(INVALID);
        }
        put(data, share(p).map_err(|_| Code(hipErrorOutOfMemory))?)
    }
    fn hipMemPoolImportPointer(place: *mut *mut c_void, pool: hipMemPool_t, data: *mut Handle64) {
        let handle = get(data)?;
        if place.is_null() || handle.magic != MEMORY || handle.size == 0 {
            return Err(INVALID);
        }
        crate::pool::check_imported(pool)?;
        put(place, open(&handle)?)
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
        let memory = handle.memory()?;
        if memory.size < PAGE {
            return Err(INVALID);
        }
        let shared = Some(SharedEvent::over(memory)?);
        put(place, EVENTS.add(Arc::new(EventEntry::new(crate::stream::INTERPROCESS, shared))))
    }
}
