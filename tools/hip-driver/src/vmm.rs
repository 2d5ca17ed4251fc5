//! Virtual memory management: address ranges, memory without an address, and mapping the one into the other. Kernels and
//! copies reach mapped memory once a device was given access to it.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::memory::{self, Kind};
use crate::shared_memory::{self, PAGE, Physical};
use crate::state::{self, Table, device, lock, size};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Memory without an address, and how it was asked for.
struct Allocation {
    memory: Physical,
    props: Raw<hipMemAllocationProp>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(d) = device(self.props.0.location.id) {
            d.used.fetch_sub(self.memory.size, Ordering::AcqRel);
        }
    }
}

/// Part of a range with memory in it.
struct Mapping {
    size: u64,
    memory: Arc<Allocation>,
    /// Access of devices: 1 read, 3 read and write.
    access: BTreeMap<c_int, u32>,
}

static ALLOCATIONS: Table<Arc<Allocation>> = Table::new();
/// Reserved ranges, start to size.
static RANGES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
/// Mappings by start.
static MAPPINGS: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());

const POSIX_FILE: c_uint = 1;

fn check_props(p: &hipMemAllocationProp) -> Result {
    // Pinned memory on a device.
    let there = usize::try_from(p.location.id).is_ok_and(|id| id < state::devices().len());
    if p.kind != 1 || p.location.kind != 1 || !there { Err(INVALID) } else { Ok(()) }
}

/// Whole pages, and not none.
fn pages(bytes: usize) -> Result<u64> {
    size(bytes).ok().filter(|n| *n > 0 && n.is_multiple_of(PAGE)).ok_or(INVALID)
}

fn allocation(handle: *mut c_void) -> Result<Arc<Allocation>> {
    ALLOCATIONS.get(handle).ok_or(INVALID)
}

/// Waits for kernels and copies that may be using a mapping.
fn quiet() {
    for d in state::devices() {
        let _ = d.synchronize();
    }
}

hip! {
    fn hipMemGetAllocationGranularity(place: *mut usize, props: *const hipMemAllocationProp, option: c_uint) {
        check_props(&get(props)?)?;
        if option > 1 { Err(INVALID) } else { put(place, PAGE as usize) }
    }
    fn hipMemAddressReserve(place: *mut *mut c_void, bytes: usize, align: usize, wish: *mut c_void, flags: u64) {
        if place.is_null() || flags != 0 {
            return Err(INVALID);
        }
        let bytes = pages(bytes).map_err(|_| Code(hipErrorOutOfMemory))?;
        if align != 0 && !align.is_power_of_two() {
            return err(hipErrorOutOfMemory);
        }
        let start = shared_memory::reserve(bytes, align as u64, wish as u64)?;
        lock(&RANGES).insert(start, bytes);
        put(place, start as *mut c_void)
    }
    fn hipMemAddressFree(start: *mut c_void, bytes: usize) {
        let start = start as u64;
        let mut ranges = lock(&RANGES);
        if ranges.get(&start) != Some(&size(bytes)?) {
            return Err(INVALID);
        }
        let end = start + bytes as u64;
        if lock(&MAPPINGS).range(start..end).next().is_some() {
            return Err(INVALID);
        }
        ranges.remove(&start);
        shared_memory::unmap(start, bytes as u64);
        Ok(())
    }
    fn hipMemCreate(place: *mut *mut c_void, bytes: usize, props: *const hipMemAllocationProp, flags: u64) {
        let p = get(props)?;
        check_props(&p)?;
        let bytes = pages(bytes)?;
        if place.is_null() || flags != 0 {
            return Err(INVALID);
        }
        if p.handle_type > POSIX_FILE {
            return err(hipErrorNotSupported);
        }
        let d = device(p.location.id)?;
        let used = d.used.fetch_add(bytes, Ordering::AcqRel);
        let memory = if used.saturating_add(bytes) > d.memory { err(hipErrorOutOfMemory) } else { Physical::new(bytes) };
        let memory = memory.inspect_err(|_| {
            d.used.fetch_sub(bytes, Ordering::AcqRel);
        })?;
        put(place, ALLOCATIONS.add(Arc::new(Allocation { memory, props: Raw(p) })))
    }
    fn hipMemRelease(handle: *mut c_void) {
        // Mappings keep the memory.
        ALLOCATIONS.remove(handle).map(drop).ok_or(INVALID)
    }
    fn hipMemGetAllocationPropertiesFromHandle(place: *mut hipMemAllocationProp, handle: *mut c_void) {
        put(place, allocation(handle)?.props.0)
    }
    fn hipMemRetainAllocationHandle(place: *mut *mut c_void, at: *mut c_void) {
        let mappings = lock(&MAPPINGS);
        let (start, m) = mappings.range(..=at as u64).next_back().ok_or(INVALID)?;
        if place.is_null() || at as u64 - start >= m.size {
            return Err(INVALID);
        }
        put(place, ALLOCATIONS.find(|a| Arc::ptr_eq(a, &m.memory)).unwrap_or_else(|| ALLOCATIONS.add(m.memory.clone())))
    }
    fn hipMemMap(at: *mut c_void, bytes: usize, offset: usize, handle: *mut c_void, flags: u64) {
        let (start, bytes) = (at as u64, pages(bytes)?);
        if at.is_null() || offset != 0 || flags != 0 {
            return Err(INVALID);
        }
        let memory = allocation(handle)?;
        let inside = {
            let ranges = lock(&RANGES);
            let range = ranges.range(..=start).next_back();
            range.is_some_and(|(&from, &len)| start.is_multiple_of(PAGE) && bytes <= len && start - from <= len - bytes)
        };
        let mut mappings = lock(&MAPPINGS);
        let free = mappings.range(..start + bytes).next_back().is_none_or(|(s, m)| s + m.size <= start);
        if !inside || !free || bytes > memory.memory.size {
            return Err(INVALID);
        }
        memory.memory.map(Some(start), bytes, 0)?;
        memory::add_foreign(start, bytes, memory.props.0.location.id, Kind::Device);
        mappings.insert(start, Mapping { size: bytes, memory, access: BTreeMap::new() });
        Ok(())
    }
    fn hipMemUnmap(at: *mut c_void, bytes: usize) {
        let (start, bytes) = (at as u64, pages(bytes)?);
        quiet();
        let mut mappings = lock(&MAPPINGS);
        // One mapping or several side by side, whole ones only.
        let found: Vec<(u64, u64)> = mappings.range(start..start + bytes).map(|(s, m)| (*s, m.size)).collect();
        if found.iter().map(|f| f.1).sum::<u64>() != bytes {
            return Err(INVALID);
        }
        for (s, n) in found {
            mappings.remove(&s);
            memory::forget_foreign(s);
            shared_memory::close(s, n);
        }
        Ok(())
    }
    fn hipMemSetAccess(at: *mut c_void, bytes: usize, list: *const hipMemAccessDesc, count: usize) {
        if at.is_null() || bytes == 0 || list.is_null() || count == 0 {
            return Err(INVALID);
        }
        let (start, bytes) = (at as u64, size(bytes)?);
        let list = std::slice::from_raw_parts(list, count);
        for a in list {
            device(a.location.id).map_err(|_| INVALID)?;
            if !matches!(a.flags, 0 | 1 | 3) || a.location.kind != 1 {
                return Err(INVALID);
            }
        }
        let mut mappings = lock(&MAPPINGS);
        let whole: u64 = mappings.range(start..start + bytes).map(|(_, m)| m.size).sum();
        if whole != bytes {
            return Err(INVALID);
        }
        for (&s, m) in mappings.range_mut(start..start + bytes) {
            for a in list {
                m.access.insert(a.location.id, a.flags);
            }
            // All devices share one address space: what one of them reaches, all do.
            memory::reach_foreign(s, m.size, m.access.values().any(|f| *f != 0));
        }
        Ok(())
    }
    fn hipMemGetAccess(flags: *mut u64, location: *const hipMemLocation, at: *mut c_void) {
        let l = get(location)?;
        if flags.is_null() || at.is_null() || l.kind != 1 || device(l.id).is_err() {
            return Err(INVALID);
        }
        let mappings = lock(&MAPPINGS);
        let (start, m) = mappings.range(..=at as u64).next_back().ok_or(INVALID)?;
        if at as u64 - start >= m.size {
            return Err(INVALID);
        }
        put(flags, m.access.get(&l.id).copied().unwrap_or(0).into())
    }
    fn hipMemExportToShareableHandle(place: *mut c_void, handle: *mut c_void, kind: c_uint, flags: u64) {
        let a = allocation(handle)?;
        if place.is_null() || flags != 0 || kind != POSIX_FILE || a.props.0.handle_type != kind {
            return Err(INVALID);
        }
        put(place.cast::<c_int>(), a.memory.export()?)
    }
    fn hipMemImportFromShareableHandle(place: *mut *mut c_void, handle: *mut c_void, kind: c_uint) {
        if place.is_null() || handle.is_null() || kind != POSIX_FILE {
            return Err(INVALID);
        }
        // The descriptor itself, or a pointer to it: small numbers are no addresses.
        let fd = if (handle as u64) < 1 << 16 { handle as u64 as c_int } else { get(handle.cast::<c_int>())? };
        let memory = Physical::open(std::process::id(), fd)?;
        let d = state::current()?;
        d.used.fetch_add(memory.size, Ordering::AcqRel);
        let location = hipMemLocation { kind: 1, id: d.ordinal };
        let props = hipMemAllocationProp {
            kind: 1,
            handle_type: kind,
            location,
            windows: std::ptr::null_mut(),
            flags: 0,
        };
        put(place, ALLOCATIONS.add(Arc::new(Allocation { memory, props: Raw(props) })))
    }
}
