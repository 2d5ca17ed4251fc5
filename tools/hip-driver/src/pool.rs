//! Memory pools of the stream-ordered allocator. What is freed in a stream stays with its pool: an allocation of the same
//! size takes it again, in the same stream at once (it comes behind the free), in another when the free was reached. What
//! a pool holds beyond its threshold goes back to the device when somebody waits for work.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::memory::{self, Kind};
use crate::op::{Op, submit};
use crate::shared_memory::Physical;
use crate::state::{self, POOLS, Stream, lock, size};
use crate::types::*;
use barewave_emu::hip::code::*;
use barewave_emu::queue::Event;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock};

/// A pool.
pub struct Pool {
    /// Number of its device.
    pub device: i32,
    /// Most bytes that it may hold, 0 for any number.
    most: u64,
    counters: Mutex<Counters>,
    freed: Mutex<Vec<Freed>>,
    sharing: Sharing,
}

/// Whether other processes have to do with a pool.
enum Sharing {
    /// Its own process alone.
    Private,
    /// Others may open what is allocated from it; with what stands for it, once they were asked to.
    Exported(OnceLock<Physical>),
    /// It stands for another process's: nothing is allocated from it.
    Imported,
}

/// A handle of a pool or allocation that is a POSIX file descriptor.
const DESCRIPTOR: c_uint = 1;

/// Memory that was freed in a stream and not given back to the device.
struct Freed {
    start: u64,
    size: u64,
    /// Number of the stream.
    stream: u64,
    /// The stream has come there.
    reached: Event,
}

#[derive(Clone, Copy)]
struct Counters {
    /// Reuse in other streams: after events, when the free was reached, by waiting for it.
    reuse: [c_int; 3],
    threshold: u64,
    used: u64,
    used_most: u64,
    held: u64,
    held_most: u64,
}

impl Pool {
    /// An empty pool of a device.
    pub fn new(device: i32, most: u64) -> Pool {
        let counters = Counters { reuse: [1; 3], threshold: 0, used: 0, used_most: 0, held: 0, held_most: 0 };
        Pool { device, most, counters: Mutex::new(counters), freed: Mutex::default(), sharing: Sharing::Private }
    }

    /// Memory of the device was allocated.
    pub fn took(&self, bytes: u64) {
        let mut c = lock(&self.counters);
        c.held += bytes;
        c.held_most = c.held_most.max(c.held);
        c.use_more(bytes);
    }

    /// Memory was given back to the device.
    pub fn gave(&self, bytes: u64) {
        let mut c = lock(&self.counters);
        c.held = c.held.saturating_sub(bytes);
        c.used = c.used.saturating_sub(bytes);
    }

    /// Keeps memory that a stream frees.
    fn keep(self: &Arc<Pool>, a: &memory::Allocation, stream: &Stream) {
        let reached = Event::new();
        stream.queue.record(&reached);
        let size = a.size;
        {
            // The program has it no longer, whatever its kernels still do.
            let mut c = lock(&self.counters);
            c.used = c.used.saturating_sub(size);
        }
        lock(&self.freed).push(Freed { start: a.start, size, stream: stream.number, reached });
    }

    /// Memory of a size that was freed and can be used in a stream.
    fn reuse(&self, size: u64, stream: &Stream) -> Option<u64> {
        let opportunistic = lock(&self.counters).reuse[1] != 0;
        let mut list = lock(&self.freed);
        let fits = |f: &Freed| f.size == size && (f.stream == stream.number || opportunistic && f.reached.done());
        let found = list.iter().position(fits)?;
        let f = list.swap_remove(found);
        lock(&self.counters).use_more(size);
        Some(f.start)
    }

    /// Gives memory back to the device until the pool holds at most so many bytes.
    pub fn trim(&self, keep: u64) {
        loop {
            let next = {
                let mut list = lock(&self.freed);
                let mut c = lock(&self.counters);
                let done = list.iter().position(|f| f.reached.done());
                match done {
                    Some(i) if c.held > keep => {
                        let f = list.swap_remove(i);
                        c.held = c.held.saturating_sub(f.size);
                        f
                    }
                    _ => return,
                }
            };
            memory::give_back(self.device, next.start, next.size);
        }
    }

    /// Somebody has waited for work: what is beyond the threshold goes.
    pub fn settle(&self) {
        let threshold = lock(&self.counters).threshold;
        self.trim(threshold);
    }
}

impl Counters {
    fn use_more(&mut self, bytes: u64) {
        self.used += bytes;
        self.used_most = self.used_most.max(self.used);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim(0);
    }
}

/// Frees memory when a stream comes there.
pub fn free_in(stream: &Arc<Stream>, at: *mut c_void) -> Result {
    let a = memory::find(at as u64).filter(|a| a.start == at as u64 && a.kind == Kind::Device).ok_or(INVALID)?;
    match &a.pool {
        Some(p) if !crate::capture::is_capturing(stream) => {
            memory::forget_foreign(a.start);
            p.keep(&a, stream);
            Ok(())
        }
        _ => submit(stream, Op::Free(at.into())),
    }
}

/// Default pools have the handles 16 times the device's number plus 4.
fn default_handle(device: i32) -> hipMemPool_t {
    (device as u64 * 16 + 4) as hipMemPool_t
}

fn pool(handle: hipMemPool_t) -> Result<Arc<Pool>> {
    let number = handle as u64;
    if number % 16 == 4 {
        let ordinal = i32::try_from(number / 16).map_err(|_| INVALID)?;
        return Ok(state::device(ordinal).map_err(|_| INVALID)?.default_pool.clone());
    }
    POOLS.get(handle).ok_or(INVALID)
}

/// Whether a pool stands for one of another process.
pub fn check_imported(handle: hipMemPool_t) -> Result {
    if matches!(pool(handle)?.sharing, Sharing::Imported) { Ok(()) } else { Err(INVALID) }
}

fn handle_of(p: &Arc<Pool>) -> hipMemPool_t {
    match state::device(p.device) {
        Ok(d) if Arc::ptr_eq(&d.default_pool, p) => default_handle(p.device),
        // A pool that was made current keeps its handle in the table.
        _ => POOLS.find(|q| Arc::ptr_eq(q, p)).unwrap_or(std::ptr::null_mut()),
    }
}

/// Allocates from a pool, for use in a stream.
pub fn malloc_from(place: *mut *mut c_void, bytes: usize, pool: Arc<Pool>, stream: &Stream) -> Result {
    if place.is_null() || matches!(pool.sharing, Sharing::Imported) {
        return Err(INVALID);
    }
    let p = match bytes {
        0 => 0,
        n => {
            let n = size(n).map_err(|_| Code(hipErrorOutOfMemory))?;
            match pool.reuse(n, stream) {
                Some(start) => {
                    memory::add_pooled(start, n, pool);
                    start
                }
                None if pool.most != 0 && lock(&pool.counters).held + n > pool.most => return err(hipErrorOutOfMemory),
                None => memory::allocate(n, Kind::Device, 0, Some(pool))?,
            }
        }
    };
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, p as *mut c_void) }
}

/// The stream behind a handle, where a wrong one is no stream at all.
pub fn stream_of(handle: hipStream_t) -> Result<Arc<Stream>> {
    state::stream(handle).map_err(|_| Code(hipErrorInvalidHandle))
}

hip! {
    fn hipMemPoolCreate(place: *mut hipMemPool_t, props: *const hipMemPoolProps) {
        let p = get(props)?;
        // Pinned memory on a device.
        if place.is_null() || p.alloc_type != 1 || p.location.kind != 1 {
            return Err(INVALID);
        }
        state::device(p.location.id).map_err(|_| INVALID)?;
        let mut pool = Pool::new(p.location.id, p.max_size as u64);
        match p.handle_types {
            0 => {}
            DESCRIPTOR => pool.sharing = Sharing::Exported(OnceLock::new()),
            _ => return Err(INVALID),
        }
        put(place, POOLS.add(Arc::new(pool)))
    }
    fn hipMemPoolExportToShareableHandle(place: *mut c_void, handle: hipMemPool_t, kind: c_uint, flags: c_uint) {
        let p = pool(handle)?;
        let Sharing::Exported(descriptor) = &p.sharing else { return Err(INVALID) };
        if place.is_null() || kind != DESCRIPTOR || flags != 0 {
            return Err(INVALID);
        }
        let memory = match descriptor.get() {
            Some(memory) => memory,
            None => {
                let made = crate::ipc::pool_descriptor()?;
                descriptor.get_or_init(|| made)
            }
        };
        put(place.cast::<c_int>(), memory.export()?)
    }
    fn hipMemPoolImportFromShareableHandle(place: *mut hipMemPool_t, handle: *mut c_void, kind: c_uint, flags: c_uint) {
        if place.is_null() || handle.is_null() || kind != DESCRIPTOR || flags != 0 {
            return Err(INVALID);
        }
        // A descriptor is an int: programs leave anything in the upper half of the pointer that carries it.
        if !crate::ipc::is_pool(handle as usize as i32) {
            return err(hipErrorOutOfMemory);
        }
        let mut pool = Pool::new(state::current()?.ordinal, 0);
        pool.sharing = Sharing::Imported;
        put(place, POOLS.add(Arc::new(pool)))
    }
    fn hipMemPoolDestroy(handle: hipMemPool_t) {
        let gone = POOLS.remove(handle).ok_or(INVALID)?;
        let d = state::device(gone.device)?;
        let mut now = lock(&d.pool);
        if Arc::ptr_eq(&now, &gone) {
            *now = d.default_pool.clone();
        }
        Ok(())
    }
    fn hipMemPoolTrimTo(handle: hipMemPool_t, keep: usize) {
        pool(handle)?.trim(keep as u64);
        Ok(())
    }
    fn hipMemPoolSetAttribute(handle: hipMemPool_t, attribute: c_uint, value: *mut c_void) {
        let p = pool(handle)?;
        let mut c = lock(&p.counters);
        match attribute {
            1..=3 => c.reuse[attribute as usize - 1] = get(value.cast())?,
            4 => c.threshold = get(value.cast())?,
            6 if get::<u64>(value.cast())? == 0 => c.held_most = c.held,
            8 if get::<u64>(value.cast())? == 0 => c.used_most = c.used,
            _ => return Err(INVALID),
        }
        Ok(())
    }
    fn hipMemPoolGetAttribute(handle: hipMemPool_t, attribute: c_uint, value: *mut c_void) {
        let c = *lock(&pool(handle)?.counters);
        match attribute {
            1..=3 => put(value.cast(), c.reuse[attribute as usize - 1]),
            4 => put(value.cast(), c.threshold),
            5 => put(value.cast(), c.held),
            6 => put(value.cast(), c.held_most),
            7 => put(value.cast(), c.used),
            8 => put(value.cast(), c.used_most),
            _ => Err(INVALID),
        }
    }
    fn hipMemPoolSetAccess(handle: hipMemPool_t, list: *const hipMemAccessDesc, count: usize) {
        // Every device reaches all memory.
        pool(handle)?;
        if list.is_null() || count == 0 {
            return Err(INVALID);
        }
        for i in 0..count {
            let a = get(list.add(i))?;
            if a.location.kind != 1 || !matches!(a.flags, 0 | 1 | 3) {
                return Err(INVALID);
            }
            state::device(a.location.id)?;
        }
        Ok(())
    }
    fn hipMemPoolGetAccess(flags: *mut c_uint, handle: hipMemPool_t, location: *mut hipMemLocation) {
        pool(handle)?;
        let l = get(location)?;
        state::device(l.id).map_err(|_| INVALID)?;
        if l.kind != 1 {
            return Err(INVALID);
        }
        // Read and write.
        put(flags, 3)
    }
    fn hipMallocFromPoolAsync(p: *mut *mut c_void, bytes: usize, handle: hipMemPool_t, stream: hipStream_t) {
        malloc_from(p, bytes, pool(handle)?, &*stream_of(stream)?)
    }
    fn hipDeviceGetDefaultMemPool(place: *mut hipMemPool_t, device: c_int) {
        state::device(device)?;
        put(place, default_handle(device))
    }
    fn hipDeviceGetMemPool(place: *mut hipMemPool_t, device: c_int) {
        put(place, handle_of(&lock(&state::device(device).map_err(|_| INVALID)?.pool).clone()))
    }
    fn hipDeviceSetMemPool(device: c_int, handle: hipMemPool_t) {
        let (d, p) = (state::device(device).map_err(|_| INVALID)?, pool(handle)?);
        if p.device != device {
            return err(hipErrorInvalidDevice);
        }
        *lock(&d.pool) = p;
        Ok(())
    }
}
