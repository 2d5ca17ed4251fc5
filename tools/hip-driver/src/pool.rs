//! Memory pools of the stream-ordered allocator. Memory is taken from the device when it is asked for and given back
//! when the stream reaches the free, so a pool is its attributes and its counters.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::memory::{self, Kind};
use crate::state::{self, POOLS, lock, size};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

/// A pool.
pub struct Pool {
    /// Number of its device.
    pub device: i32,
    counters: Mutex<Counters>,
}

#[derive(Clone, Copy)]
struct Counters {
    /// Reuse policies, kept for who asks.
    reuse: [c_int; 3],
    threshold: u64,
    used: u64,
    high: u64,
}

impl Pool {
    /// An empty pool of a device.
    pub fn new(device: i32) -> Pool {
        Pool { device, counters: Mutex::new(Counters { reuse: [1; 3], threshold: 0, used: 0, high: 0 }) }
    }
    /// Memory was allocated.
    pub fn took(&self, bytes: u64) {
        let mut c = lock(&self.counters);
        c.used += bytes;
        c.high = c.high.max(c.used);
    }
    /// Memory was given back.
    pub fn gave(&self, bytes: u64) {
        let mut c = lock(&self.counters);
        c.used = c.used.saturating_sub(bytes);
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

fn handle_of(p: &Arc<Pool>) -> hipMemPool_t {
    match state::device(p.device) {
        Ok(d) if Arc::ptr_eq(&d.default_pool, p) => default_handle(p.device),
        // A pool that was made current keeps its handle in the table.
        _ => POOLS.find(|q| Arc::ptr_eq(q, p)).unwrap_or(std::ptr::null_mut()),
    }
}

/// Allocates from a pool.
pub fn malloc_from(place: *mut *mut c_void, bytes: usize, pool: Arc<Pool>) -> Result {
    if place.is_null() {
        return Err(INVALID);
    }
    let p = match bytes {
        0 => 0,
        n => memory::allocate(size(n).map_err(|_| Code(hipErrorOutOfMemory))?, Kind::Device, 0, Some(pool))?,
    };
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, p as *mut c_void) }
}

hip! {
    fn hipMemPoolCreate(place: *mut hipMemPool_t, props: *const hipMemPoolProps) {
        let p = get(props)?;
        // Pinned memory on a device.
        if place.is_null() || p.alloc_type != 1 || p.location.kind != 1 {
            return Err(INVALID);
        }
        state::device(p.location.id)?;
        put(place, POOLS.add(Arc::new(Pool::new(p.location.id))))
    }
    fn hipMemPoolDestroy(handle: hipMemPool_t) {
        POOLS.remove(handle).map(drop).ok_or(INVALID)
    }
    fn hipMemPoolTrimTo(handle: hipMemPool_t, _keep: usize) {
        pool(handle).map(drop)
    }
    fn hipMemPoolSetAttribute(handle: hipMemPool_t, attribute: c_uint, value: *mut c_void) {
        let p = pool(handle)?;
        let mut c = lock(&p.counters);
        match attribute {
            1..=3 => c.reuse[attribute as usize - 1] = get(value.cast())?,
            4 => c.threshold = get(value.cast())?,
            6 | 8 if get::<u64>(value.cast())? == 0 => c.high = c.used,
            _ => return Err(INVALID),
        }
        Ok(())
    }
    fn hipMemPoolGetAttribute(handle: hipMemPool_t, attribute: c_uint, value: *mut c_void) {
        let c = *lock(&pool(handle)?.counters);
        match attribute {
            1..=3 => put(value.cast(), c.reuse[attribute as usize - 1]),
            4 => put(value.cast(), c.threshold),
            5 | 7 => put(value.cast(), c.used),
            6 | 8 => put(value.cast(), c.high),
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
            state::device(get(list.add(i))?.location.id)?;
        }
        Ok(())
    }
    fn hipMemPoolGetAccess(flags: *mut c_uint, handle: hipMemPool_t, location: *mut hipMemLocation) {
        pool(handle)?;
        state::device(get(location)?.id)?;
        // Read and write.
        put(flags, 3)
    }
    fn hipMallocFromPoolAsync(p: *mut *mut c_void, bytes: usize, handle: hipMemPool_t, stream: hipStream_t) {
        state::stream(stream)?;
        malloc_from(p, bytes, pool(handle)?)
    }
    fn hipDeviceGetDefaultMemPool(place: *mut hipMemPool_t, device: c_int) {
        state::device(device)?;
        put(place, default_handle(device))
    }
    fn hipDeviceGetMemPool(place: *mut hipMemPool_t, device: c_int) {
        put(place, handle_of(&lock(&state::device(device)?.pool).clone()))
    }
    fn hipDeviceSetMemPool(device: c_int, handle: hipMemPool_t) {
        let (d, p) = (state::device(device)?, pool(handle)?);
        if p.device != device {
            return err(hipErrorInvalidDevice);
        }
        *lock(&d.pool) = p;
        Ok(())
    }
}
