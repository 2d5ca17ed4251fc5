//! Memory: device, host and managed allocations, all in the one address space that devices and host share.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::pool::Pool;
use crate::state::{self, Device, lock, size};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// What an allocation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `hipMalloc`.
    Device,
    /// `hipHostMalloc`.
    Host,
    /// `hipMallocManaged`.
    Managed,
    /// `hipHostRegister`.
    Registered,
}

/// An allocation.
#[derive(Clone)]
pub struct Allocation {
    /// Address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// What it is for.
    pub kind: Kind,
    /// Number of its device.
    pub device: i32,
    /// Flags it was made with.
    pub flags: u32,
    /// Pool it came from.
    pub pool: Option<Arc<Pool>>,
    /// Reserved by a graph, and whether a launch has allocated it.
    pub graph: Option<bool>,
}

static ALLOCATIONS: Mutex<BTreeMap<u64, Allocation>> = Mutex::new(BTreeMap::new());

/// Starts of allocations whose copies are done when the call returns.
static WAITING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// True when a program asked that copies of an allocation wait.
pub fn waits(start: u64) -> bool {
    lock(&WAITING).contains(&start)
}

/// Loaded code objects, with the variables in them: start to size and device.
static IMAGES: Mutex<BTreeMap<u64, (u64, i32)>> = Mutex::new(BTreeMap::new());

/// Tells where a code object was loaded: its variables can be copied to and from.
pub fn image_loaded(start: u64, size: u64, device: i32) {
    lock(&IMAGES).insert(start, (size, device));
}

/// Tells that it was unloaded.
pub fn image_unloaded(start: u64) {
    lock(&IMAGES).remove(&start);
}

/// The allocation that an address lies in.
pub fn find(address: u64) -> Option<Allocation> {
    if let Some((_, a)) = lock(&ALLOCATIONS).range(..=address).next_back()
        && address - a.start < a.size.max(1)
    {
        return Some(a.clone());
    }
    let images = lock(&IMAGES);
    let (&start, &(size, device)) = images.range(..=address).next_back()?;
    (address - start < size).then_some(Allocation {
        start,
        size,
        kind: Kind::Device,
        device,
        flags: 0,
        pool: None,
        graph: None,
    })
}

/// Checks that `bytes` at an address lie inside of one allocation. An address that is in none belongs to the host, of
/// which nothing is known.
pub fn check(address: u64, bytes: u64) -> Result<Option<Allocation>> {
    if bytes == 0 {
        return Ok(None);
    }
    if address == 0 {
        return Err(INVALID);
    }
    match find(address) {
        // Memory that was mapped side by side is one range.
        Some(a) if bytes > a.size - (address - a.start) => {
            let inside = a.size - (address - a.start);
            let owned = state::current()?.emu.owns(address);
            if owned { Err(INVALID) } else { check(address + inside, bytes - inside)?.map(|_| Some(a)).ok_or(INVALID) }
        }
        Some(a) => Ok(Some(a)),
        None if state::current()?.emu.owns(address) => Err(INVALID),
        None => Ok(None),
    }
}

/// Tells strict launches that a range was written, where it is device memory.
pub fn wrote(address: u64, bytes: u64) {
    if let Ok(d) = state::device(0) {
        d.emu.assume_written(address, bytes);
    }
}

/// Makes an allocation on the current device.
pub fn allocate(bytes: u64, kind: Kind, flags: u32, pool: Option<Arc<Pool>>) -> Result<u64> {
    let device = match &pool {
        Some(p) => p.device,
        None => state::current()?.ordinal,
    };
    allocate_with(state::device(device)?, bytes, 0, kind, flags, pool)
}

/// Makes an allocation on a device.
pub fn allocate_on(device: i32, bytes: u64, kind: Kind) -> Result<u64> {
    allocate_with(state::device(device)?, bytes, 0, kind, 0, None)
}

/// Makes an allocation of whole pages, as kernels that ask the host for memory expect: of what starts a page, the
/// device-side `free` concludes that it is no block of a slab, and the slab of a block it finds at the next multiple of
/// 2 MiB below.
pub fn allocate_pages(device: i32, bytes: u64) -> Result<u64> {
    const PAGE: u64 = 4 << 10;
    const LARGE_PAGE: u64 = 2 << 20;
    let align = if bytes < LARGE_PAGE { PAGE } else { LARGE_PAGE };
    allocate_with(state::device(device)?, bytes, align, Kind::Device, 0, None)
}

fn allocate_with(
    device: &Device,
    bytes: u64,
    align: u64,
    kind: Kind,
    flags: u32,
    pool: Option<Arc<Pool>>,
) -> Result<u64> {
    let on_device = kind == Kind::Device;
    if on_device {
        let used = device.used.fetch_add(bytes, Ordering::AcqRel);
        if used.saturating_add(bytes) > device.memory {
            device.used.fetch_sub(bytes, Ordering::AcqRel);
            return err(hipErrorOutOfMemory);
        }
    }
    let Ok(start) = device.emu.alloc_at_multiple(bytes, align) else {
        if on_device {
            device.used.fetch_sub(bytes, Ordering::AcqRel);
        }
        return err(hipErrorOutOfMemory);
    };
    if !on_device {
        // The host writes to it without telling.
        device.emu.assume_written(start, bytes);
    }
    if let Some(p) = &pool {
        p.took(bytes);
    }
    let a = Allocation { start, size: bytes, kind, device: device.ordinal, flags, pool, graph: None };
    lock(&ALLOCATIONS).insert(start, a);
    Ok(start)
}

/// Reserves memory that a graph will allocate.
pub fn reserve_for_graph(device: &Device, size: u64) -> Result<u64> {
    let start = device.emu.alloc(size).map_err(|_| Code(hipErrorOutOfMemory))?;
    let (kind, device) = (Kind::Device, device.ordinal);
    lock(&ALLOCATIONS)
        .insert(start, Allocation { start, size, kind, device, flags: 0, pool: None, graph: Some(false) });
    Ok(start)
}

/// True when a launch of a graph has allocated what starts there.
pub fn live(start: u64) -> bool {
    lock(&ALLOCATIONS).get(&start).is_some_and(|a| a.graph == Some(true))
}

/// Marks memory of a graph; true when that changes something.
pub fn set_live(start: u64, live: bool) -> bool {
    match lock(&ALLOCATIONS).get_mut(&start) {
        Some(a) if a.graph == Some(!live) => {
            a.graph = Some(live);
            true
        }
        _ => false,
    }
}

/// Notes memory that the emulated device has not allocated itself.
pub fn add_foreign(start: u64, size: u64, device: i32, kind: Kind) {
    lock(&ALLOCATIONS).insert(start, Allocation { start, size, kind, device, flags: 0, pool: None, graph: None });
}

/// Notes memory that a pool hands out once more.
pub fn add_pooled(start: u64, size: u64, pool: Arc<Pool>) {
    let (kind, device) = (Kind::Device, pool.device);
    let a = Allocation { start, size, kind, device, flags: 0, pool: Some(pool), graph: None };
    lock(&ALLOCATIONS).insert(start, a);
}

/// Gives memory that a pool has held back to its device.
pub fn give_back(device: i32, start: u64, size: u64) {
    if let Ok(d) = state::device(device) {
        d.used.fetch_sub(size, Ordering::AcqRel);
        crate::ipc::freed(start);
        let _ = d.emu.free(start);
    }
}

/// Forgets it.
pub fn forget_foreign(start: u64) {
    lock(&ALLOCATIONS).remove(&start);
    reach_foreign(start, 0, false);
}

/// Lets kernels reach such memory, or not.
pub fn reach_foreign(start: u64, size: u64, reach: bool) {
    let Ok(d) = state::device(0) else { return };
    let known = d.emu.lent_range_of(start).is_some();
    if reach && !known {
        // SAFETY: mapped until it is forgotten, which waits for kernels.
        let _ = unsafe { d.emu.lend(start as *mut u8, size) };
    } else if !reach && known {
        let _ = d.emu.take_back(start);
    }
}

/// No graph needs a range any more.
pub fn forget_graph_range(start: u64) {
    if let Some(a) = lock(&ALLOCATIONS).remove(&start)
        && let Ok(d) = state::device(a.device)
    {
        let _ = d.emu.free(start);
    }
}

/// Gives an allocation back.
pub fn release(start: u64) -> Result {
    let graph = lock(&ALLOCATIONS).get(&start).and_then(|a| a.graph.map(|_| (a.device, a.size)));
    if let Some((device, size)) = graph {
        // The range stays the graph's.
        return if set_live(start, false) {
            crate::graph_memory::freed(device, size);
            Ok(())
        } else {
            Err(INVALID)
        };
    }
    if crate::ipc::closed(start) {
        return Ok(());
    }
    let a = lock(&ALLOCATIONS).remove(&start).ok_or(INVALID)?;
    crate::ipc::freed(start);
    crate::managed::freed(start);
    lock(&WAITING).remove(&start);
    let device = state::device(a.device)?;
    if a.kind == Kind::Device {
        device.used.fetch_sub(a.size, Ordering::AcqRel);
    }
    if let Some(p) = &a.pool {
        p.gave(a.size);
    }
    device.emu.free(start).map_err(|_| INVALID)
}

/// Gives all memory of a device back that programs allocated, but what pools, graphs and variables have.
pub fn release_all(device: i32) {
    let of_program =
        |a: &Allocation| matches!(a.kind, Kind::Device | Kind::Host) && a.pool.is_none() && a.graph.is_none();
    let starts: Vec<u64> =
        lock(&ALLOCATIONS).values().filter(|a| a.device == device && of_program(a)).map(|a| a.start).collect();
    for start in starts {
        let _ = release(start);
    }
}

/// Waits for every device, then gives memory back: what `hipFree` and its like do.
fn free_after_work(p: *mut c_void, kinds: &[Kind]) -> Result {
    if p.is_null() {
        return Ok(());
    }
    let a = lock(&ALLOCATIONS).get(&(p as u64)).cloned().ok_or(INVALID)?;
    if !kinds.contains(&a.kind) {
        return Err(INVALID);
    }
    for d in state::devices() {
        // A fault is told at the next call that waits; memory can be given back all the same.
        let _ = d.synchronize();
    }
    release(a.start)
}

fn malloc(place: *mut *mut c_void, bytes: usize, kind: Kind, flags: u32) -> Result {
    if place.is_null() {
        return Err(INVALID);
    }
    crate::capture::check_safe()?;
    let p =
        if bytes == 0 { 0 } else { allocate(size(bytes).map_err(|_| Code(hipErrorOutOfMemory))?, kind, flags, None)? };
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, p as *mut c_void) }
}

/// Portable, mapped, write-combined, uncached, of the user's NUMA node; coherent or not, but not both.
fn check_host_flags(flags: c_uint) -> Result<c_uint> {
    const BOTH: c_uint = 0xc000_0000;
    if flags & !(BOTH | 0x3000_0007) != 0 || flags & BOTH == BOTH { Err(INVALID) } else { Ok(flags) }
}

/// True when the host has memory at all of these addresses.
fn mapped(start: u64, bytes: u64) -> bool {
    const HOST_PAGE: u64 = 4096;
    let first = start / HOST_PAGE * HOST_PAGE;
    let Some(length) = start.checked_add(bytes).map(|end| (end - first) as usize) else { return false };
    // SAFETY: asks for pages to be written to the file behind them some time; nothing else happens to memory, and a range
    // that is not there is an error.
    unsafe { libc::msync(first as *mut c_void, length, libc::MS_ASYNC) == 0 }
}

const PITCH: usize = 256;

fn malloc_pitch(place: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> Result {
    if place.is_null() || pitch.is_null() {
        return Err(INVALID);
    }
    let p = width.checked_next_multiple_of(PITCH).ok_or(INVALID)?;
    malloc(place, p.checked_mul(height).ok_or(Code(hipErrorOutOfMemory))?, Kind::Device, 0)?;
    // SAFETY: not null, and the caller's word.
    unsafe { put(pitch, p) }
}

/// `hipMemoryType` of HIP 6 and later.
fn memory_type(kind: Kind) -> c_uint {
    match kind {
        Kind::Host | Kind::Registered => 1,
        Kind::Device => 2,
        Kind::Managed => 3,
    }
}

fn attributes_of(p: u64) -> hipPointerAttribute_t {
    let at = p as *mut c_void;
    match find(p) {
        Some(a) => hipPointerAttribute_t {
            memory_type: memory_type(a.kind),
            device: a.device,
            device_pointer: at,
            host_pointer: if a.kind == Kind::Device { std::ptr::null_mut() } else { at },
            is_managed: c_int::from(a.kind == Kind::Managed),
            allocation_flags: a.flags,
        },
        None => hipPointerAttribute_t {
            memory_type: 0,
            device: -2,
            device_pointer: std::ptr::null_mut(),
            host_pointer: std::ptr::null_mut(),
            is_managed: 0,
            allocation_flags: 0,
        },
    }
}

/// `HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
const SYNC_MEMOPS: c_uint = 6;

/// Writes one attribute. Asked for `alone`, one that the memory has not is an error.
unsafe fn pointer_attribute(data: *mut c_void, which: c_uint, p: *mut c_void, alone: bool) -> Result {
    let a = find(p as u64).ok_or(INVALID)?;
    let t = attributes_of(p as u64);
    // SAFETY: the caller's word: `data` has room for the attribute.
    unsafe {
        match which {
            2 => put(data.cast(), t.memory_type),
            3 => put(data.cast(), t.device_pointer),
            4 if t.host_pointer.is_null() && alone => Err(INVALID),
            4 => put(data.cast(), t.host_pointer),
            SYNC_MEMOPS => put(data.cast(), u8::from(waits(a.start))),
            7 => put(data.cast(), a.start),
            8 => put(data.cast(), t.is_managed as u8),
            9 => put(data.cast(), a.device),
            11 => put(data.cast(), a.start),
            // 32 bits, as AMD's driver writes it.
            12 => put(data.cast(), a.size as u32),
            13 => put(data.cast(), 1u8),
            16 => put(data.cast(), a.flags),
            _ => err(hipErrorNotSupported),
        }
    }
}

hip! {
    fn hipMalloc(p: *mut *mut c_void, bytes: usize) {
        malloc(p, bytes, Kind::Device, 0)
    }
    fn hipExtMallocWithFlags(p: *mut *mut c_void, bytes: usize, flags: c_uint) {
        // Usual, fine grain, memory for a signal (8 bytes), uncached, contiguous.
        if !matches!(flags, 0..=4) || flags == 2 && bytes != 8 {
            return Err(INVALID);
        }
        malloc(p, bytes, Kind::Device, flags)
    }
    fn hipMallocManaged(p: *mut *mut c_void, bytes: usize, flags: c_uint) {
        if bytes == 0 || !(1..=2).contains(&flags) {
            return Err(INVALID);
        }
        malloc(p, bytes, Kind::Managed, flags)
    }
    fn hipHostMalloc(p: *mut *mut c_void, bytes: usize, flags: c_uint) {
        malloc(p, bytes, Kind::Host, check_host_flags(flags)?)
    }
    fn hipHostAlloc(p: *mut *mut c_void, bytes: usize, flags: c_uint) {
        malloc(p, bytes, Kind::Host, check_host_flags(flags)?)
    }
    fn hipExtHostAlloc(p: *mut *mut c_void, bytes: usize, flags: c_uint) {
        malloc(p, bytes, Kind::Host, check_host_flags(flags)?)
    }
    fn hipMallocHost(p: *mut *mut c_void, bytes: usize) {
        malloc(p, bytes, Kind::Host, 0)
    }
    fn hipMemAllocHost(p: *mut *mut c_void, bytes: usize) {
        malloc(p, bytes, Kind::Host, 0)
    }
    fn hipMallocPitch(p: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        malloc_pitch(p, pitch, width, height)
    }
    fn hipMemAllocPitch(p: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize, _element: c_uint) {
        malloc_pitch(p, pitch, width, height)
    }
    fn hipMalloc3D(p: *mut hipPitchedPtr, extent: hipExtent) {
        let (mut at, mut pitch) = (std::ptr::null_mut(), 0);
        let rows = extent.height.checked_mul(extent.depth).ok_or(Code(hipErrorOutOfMemory))?;
        malloc_pitch(&mut at, &mut pitch, extent.width, rows)?;
        put(p, hipPitchedPtr { ptr: at, pitch, xsize: extent.width, ysize: extent.height })
    }
    fn hipFree(p: *mut c_void) {
        free_after_work(p, &[Kind::Device, Kind::Managed, Kind::Host])
    }
    fn hipHostFree(p: *mut c_void) {
        free_after_work(p, &[Kind::Host])
    }
    fn hipFreeHost(p: *mut c_void) {
        free_after_work(p, &[Kind::Host])
    }
    fn hipMallocAsync(p: *mut *mut c_void, bytes: usize, stream: hipStream_t) {
        let s = crate::pool::stream_of(stream)?;
        let pool = lock(&state::device(s.device)?.pool).clone();
        crate::pool::malloc_from(p, bytes, pool, &s)
    }
    fn hipFreeAsync(p: *mut c_void, stream: hipStream_t) {
        crate::pool::free_in(&crate::pool::stream_of(stream)?, p)
    }

    fn hipHostRegister(p: *mut c_void, bytes: usize, flags: c_uint) {
        // Portable, mapped, for input and output, only read; coarse grain, uncached.
        if p.is_null() || bytes == 0 || flags & !0x8000_000f != 0 {
            return Err(INVALID);
        }
        let device = state::current()?;
        let bytes = size(bytes)?;
        if !mapped(p as u64, bytes) {
            return Err(INVALID);
        }
        // Memory that was given back to the host and handed out anew, without a word to us.
        let stale = lock(&ALLOCATIONS).get(&(p as u64)).is_some_and(|a| a.kind == Kind::Registered);
        if stale {
            lock(&ALLOCATIONS).remove(&(p as u64));
            let _ = state::device(0)?.emu.take_back(p as u64);
        }
        device.emu.lend(p.cast(), bytes).map_err(|_| Code(hipErrorHostMemoryAlreadyRegistered))?;
        let a = Allocation {
            start: p as u64,
            size: bytes,
            kind: Kind::Registered,
            device: device.ordinal,
            flags,
            pool: None,
            graph: None,
        };
        lock(&ALLOCATIONS).insert(a.start, a);
        Ok(())
    }
    fn hipHostUnregister(p: *mut c_void) {
        if p.is_null() {
            return Err(INVALID);
        }
        let known = lock(&ALLOCATIONS).get(&(p as u64)).is_some_and(|a| a.kind == Kind::Registered);
        if !known {
            return err(hipErrorHostMemoryNotRegistered);
        }
        for d in state::devices() {
            let _ = d.synchronize();
        }
        lock(&ALLOCATIONS).remove(&(p as u64));
        state::device(0)?.emu.take_back(p as u64).map_err(|_| Code(hipErrorHostMemoryNotRegistered))
    }
    fn hipHostGetDevicePointer(device: *mut *mut c_void, host: *mut c_void, flags: c_uint) {
        if flags != 0 || find(host as u64).is_none_or(|a| a.kind == Kind::Device) {
            return Err(INVALID);
        }
        put(device, host)
    }
    fn hipHostGetFlags(flags: *mut c_uint, p: *mut c_void) {
        let a = find(p as u64).filter(|a| matches!(a.kind, Kind::Host | Kind::Registered)).ok_or(INVALID)?;
        put(flags, a.flags)
    }

    fn hipMemGetInfo(free: *mut usize, total: *mut usize) {
        let d = state::current()?;
        if !free.is_null() {
            put(free, (d.memory - d.used.load(Ordering::Acquire).min(d.memory)) as usize)?;
        }
        if !total.is_null() {
            put(total, d.memory as usize)?;
        }
        Ok(())
    }
    fn hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t) {
        put(bytes, state::device(device)?.memory as usize)
    }
    fn hipMemPtrGetInfo(p: *mut c_void, bytes: *mut usize) {
        put(bytes, find(p as u64).ok_or(INVALID)?.size as usize)
    }
    fn hipMemGetAddressRange(base: *mut *mut c_void, bytes: *mut usize, p: *mut c_void) {
        let a = find(p as u64).ok_or(Code(hipErrorNotFound))?;
        if !base.is_null() {
            put(base, a.start as *mut c_void)?;
        }
        if !bytes.is_null() {
            put(bytes, a.size as usize)?;
        }
        Ok(())
    }
    fn hipPointerGetAttributes(attributes: *mut hipPointerAttribute_t, p: *const c_void) {
        if p.is_null() {
            return Err(INVALID);
        }
        put(attributes, attributes_of(p as u64))
    }
    fn hipPointerGetAttribute(data: *mut c_void, which: c_uint, p: *mut c_void) {
        pointer_attribute(data, which, p, true)
    }
    fn hipDrvPointerGetAttributes(count: c_uint, which: *mut c_uint, data: *mut *mut c_void, p: *mut c_void) {
        if count == 0 || which.is_null() || data.is_null() || p.is_null() {
            return Err(INVALID);
        }
        (0..count as usize).try_for_each(|i| pointer_attribute(get(data.add(i))?, get(which.add(i))?, p, false))
    }
    fn hipPointerSetAttribute(value: *const c_void, which: c_uint, p: *mut c_void) {
        // Nothing else can be set.
        if value.is_null() || p.is_null() || which != SYNC_MEMOPS {
            return Err(INVALID);
        }
        let a = find(p as u64).ok_or(Code(hipErrorInvalidDevicePointer))?;
        let mut set = lock(&WAITING);
        if get(value.cast::<c_uint>())? != 0 { set.insert(a.start) } else { set.remove(&a.start) };
        Ok(())
    }
}
