//! Devices: properties, attributes, contexts, peers.
//!
//! Devices report the compute units of the real cards; what runs workgroups are the threads of the host.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::state::{self, Device, device, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

/// Compute units of a device: those of the card, or what `BAREWAVE_COMPUTE_UNITS` says.
pub fn compute_units(d: &Device) -> c_int {
    d.compute_units as c_int
}

/// Largest grid in x; y and z are counted in 16 bits of some packets.
const MAX_GRID: [c_int; 3] = [c_int::MAX, 65535, 65535];
const MAX_BLOCK: c_int = 1024;
/// The constant clock that kernels read: 100 MHz.
const CLOCK_KHZ: c_int = 100_000;

/// What the structures and the attributes tell, once.
struct Facts {
    name: String,
    arch: String,
    /// From the processor's name: `gfx90a` is 9, 0.
    major: c_int,
    minor: c_int,
    wave: c_int,
    lds: usize,
    /// Registers that the waves of a workgroup may have: all of a compute unit.
    registers: c_int,
    /// Workitems that a compute unit can hold.
    threads: c_int,
    memory: usize,
}

fn facts(d: &Device) -> Facts {
    let target = d.emu.target();
    let t = target.info();
    let digits = t.name.trim_start_matches("gfx");
    let cut = digits.len().saturating_sub(2);
    let number = |s: Option<&str>| s.and_then(|s| c_int::from_str_radix(s, 16).ok()).unwrap_or(0);
    Facts {
        name: format!("barewave emulated {}", target.title()),
        arch: d.id.to_string(),
        major: digits.get(..cut).and_then(|s| s.parse().ok()).unwrap_or(0),
        minor: number(digits.get(cut..cut + 1)),
        wave: t.wave_size as c_int,
        lds: t.lds_bytes as usize,
        registers: (t.vgprs_per_simd * t.wave_size * t.simds) as c_int,
        threads: (t.max_waves * t.simds * t.wave_size) as c_int,
        memory: d.memory as usize,
    }
}

fn fill(place: &mut [c_char], text: &str) {
    let room = place.len().saturating_sub(1);
    for (to, from) in place.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

/// Atomics on global and shared memory of 32 and 64 bits, double, warp votes, ballots and shuffles (bits 0 to 10), fences
/// (12), 3-D grids (15); no funnel shift, surfaces or dynamic parallelism.
const ARCH_BITS: u32 = 0x97ff;

fn old_properties(d: &Device) -> hipDeviceProp_tR0000 {
    let f = facts(d);
    let mut p = hipDeviceProp_tR0000 {
        totalGlobalMem: f.memory,
        sharedMemPerBlock: f.lds,
        regsPerBlock: f.registers,
        warpSize: f.wave,
        maxThreadsPerBlock: MAX_BLOCK,
        maxThreadsDim: [MAX_BLOCK; 3],
        maxGridSize: MAX_GRID,
        clockRate: CLOCK_KHZ,
        memoryClockRate: 1_000_000,
        memoryBusWidth: 64,
        totalConstMem: 65536,
        major: f.major,
        minor: f.minor,
        multiProcessorCount: compute_units(d),
        maxThreadsPerMultiProcessor: f.threads,
        clockInstructionRate: CLOCK_KHZ,
        arch: ARCH_BITS,
        concurrentKernels: 1,
        cooperativeLaunch: 1,
        cooperativeMultiDeviceLaunch: 1,
        pciBusID: d.ordinal + 1,
        maxSharedMemoryPerMultiProcessor: f.lds,
        canMapHostMemory: 1,
        memPitch: c_int::MAX as usize,
        textureAlignment: 256,
        texturePitchAlignment: 256,
        isLargeBar: 1,
        managedMemory: 1,
        directManagedMemAccessFromHost: 1,
        concurrentManagedAccess: 1,
        ..Default::default()
    };
    fill(&mut p.name, &f.name);
    fill(&mut p.gcnArchName, &f.arch);
    p
}

fn properties(d: &Device) -> hipDeviceProp_tR0600 {
    let f = facts(d);
    let mut p = hipDeviceProp_tR0600 {
        uuid: uuid(d),
        totalGlobalMem: f.memory,
        sharedMemPerBlock: f.lds,
        regsPerBlock: f.registers,
        warpSize: f.wave,
        memPitch: c_int::MAX as usize,
        maxThreadsPerBlock: MAX_BLOCK,
        maxThreadsDim: [MAX_BLOCK; 3],
        maxGridSize: MAX_GRID,
        clockRate: CLOCK_KHZ,
        totalConstMem: 65536,
        major: f.major,
        minor: f.minor,
        textureAlignment: 256,
        texturePitchAlignment: 256,
        deviceOverlap: 1,
        multiProcessorCount: compute_units(d),
        canMapHostMemory: 1,
        surfaceAlignment: 256,
        concurrentKernels: 1,
        cooperativeLaunch: 1,
        cooperativeMultiDeviceLaunch: 1,
        pciBusID: d.ordinal + 1,
        asyncEngineCount: 1,
        unifiedAddressing: 1,
        memoryClockRate: 1_000_000,
        memoryBusWidth: 64,
        maxThreadsPerMultiProcessor: f.threads,
        streamPrioritiesSupported: 1,
        globalL1CacheSupported: 1,
        localL1CacheSupported: 1,
        sharedMemPerMultiprocessor: f.lds,
        regsPerMultiprocessor: f.registers,
        managedMemory: 1,
        hostNativeAtomicSupported: 1,
        concurrentManagedAccess: 1,
        canUseHostPointerForRegisteredMem: 1,
        sharedMemPerBlockOptin: f.lds,
        directManagedMemAccessFromHost: 1,
        maxBlocksPerMultiProcessor: f.threads / f.wave.max(1),
        hostRegisterSupported: 1,
        memoryPoolsSupported: 1,
        maxSharedMemoryPerMultiProcessor: f.lds,
        clockInstructionRate: CLOCK_KHZ,
        arch: ARCH_BITS,
        isLargeBar: 1,
        ..Default::default()
    };
    fill(&mut p.name, &f.name);
    fill(&mut p.gcnArchName, &f.arch);
    p
}

/// Attributes by their number in `hipDeviceAttribute_t`; those that are 0 here need no line.
fn attribute(d: &Device, which: c_uint) -> Result<c_int> {
    let p = properties(d);
    Ok(match which {
        2 => p.asyncEngineCount,
        3 => p.canMapHostMemory,
        4 => p.canUseHostPointerForRegisteredMem,
        5 => p.clockRate,
        8 => p.concurrentKernels,
        9 => p.concurrentManagedAccess,
        12 => p.deviceOverlap,
        13 => p.directManagedMemAccessFromHost,
        14 => p.globalL1CacheSupported,
        15 => p.hostNativeAtomicSupported,
        20 => p.localL1CacheSupported,
        23 => p.major,
        24 => p.managedMemory,
        25 => p.maxBlocksPerMultiProcessor,
        26..=28 => p.maxThreadsDim[which as usize - 26],
        29..=31 => p.maxGridSize[which as usize - 29],
        55 | 56 => p.maxThreadsPerBlock,
        57 => p.maxThreadsPerMultiProcessor,
        58 => c_int::MAX,
        59 => p.memoryBusWidth,
        60 => p.memoryClockRate,
        61 => p.minor,
        63 | 10015 => p.multiProcessorCount,
        67 => p.pciBusID,
        71 => p.regsPerBlock,
        72 => p.regsPerMultiprocessor,
        74 | 75 => p.sharedMemPerBlock as c_int,
        76 | 10002 => p.sharedMemPerMultiprocessor as c_int,
        78 => p.streamPrioritiesSupported,
        79 | 81 | 82 => 256,
        83 => p.totalConstMem as c_int,
        84 => c_int::try_from(p.totalGlobalMem).unwrap_or(c_int::MAX),
        85 => p.unifiedAddressing,
        87 => p.warpSize,
        88 => p.memoryPoolsSupported,
        90 => p.hostRegisterSupported,
        10000 | 10017 => CLOCK_KHZ,
        10011 => p.isLargeBar,
        10 | 11 | 89 | 10013 | 10016 | 10018 => 1,
        10019 => d.emu.target().info().max_vgprs as c_int,
        0..=92 | 10000..=10020 => 0,
        _ => return Err(INVALID),
    })
}

fn uuid(d: &Device) -> [u8; 16] {
    let mut id = *b"barewave-emu-000";
    id[13..].copy_from_slice(format!("{:03}", d.ordinal % 1000).as_bytes());
    id
}

fn bus_id(d: &Device) -> String {
    format!("0000:{:02x}:00.0", d.ordinal + 1)
}

unsafe fn put_text(place: *mut c_char, room: c_int, text: &str) -> Result {
    let room = usize::try_from(room).ok().filter(|n| *n > 0 && !place.is_null()).ok_or(INVALID)?;
    for (i, byte) in text.bytes().take(room - 1).chain([0]).enumerate() {
        // SAFETY: the caller's word; never more than there is room for.
        unsafe { place.add(i).write(byte as c_char) };
    }
    Ok(())
}

/// Limits that a program may set, and what they are at first: stack of a workitem, printf's buffer, the heap of kernels.
/// AMD's driver has 4 MiB for what kernels print. A stack that grows at run time has the bytes that the program set, and more where it set nothing; what is printed without asking
/// the host (`printf.rs`) has to fit in printf's; the heap takes what it needs, and its number is kept for who asks.
pub const LIMITS: [usize; 3] = [1024, 4 << 20, 8 << 20];
/// Largest stack of a workitem, bytes: scratch of a wave has 13 bits of KiB.
const MAX_STACK: usize = (8 << 20) / 64;

/// Flags of devices: how to wait (one of spin, yield, block, or by itself), mapped host memory, local memory kept.
fn check_flags(flags: c_uint) -> Result<c_uint> {
    let waiting = flags & 7;
    if flags & !0x1f != 0 || waiting.count_ones() > 1 { Err(INVALID) } else { Ok(flags) }
}

fn reset(d: &Device) {
    let _ = d.synchronize();
    d.fault.store(0, Ordering::Release);
    d.flags.store(0, Ordering::Release);
    d.cache_config.store(0, Ordering::Release);
    crate::memory::release_all(d.ordinal);
    *lock(&d.limits) = LIMITS;
}

fn check_peer(peer: c_int) -> Result {
    let (own, other) = (state::current()?, device(peer)?);
    if own.ordinal == other.ordinal { err(hipErrorInvalidDevice) } else { Ok(()) }
}

hip! {
    fn hipGetDeviceCount(count: *mut c_int) {
        let n = state::devices().len() as c_int;
        put(count, n)?;
        if n == 0 { err(hipErrorNoDevice) } else { Ok(()) }
    }
    fn hipSetDevice(ordinal: c_int) {
        state::set_current(ordinal)
    }
    fn hipGetDevice(ordinal: *mut c_int) {
        put(ordinal, state::current()?.ordinal)
    }
    fn hipSetValidDevices(_list: *mut c_int, _count: c_int) {
        Ok(())
    }
    fn hipDeviceGet(place: *mut hipDevice_t, ordinal: c_int) {
        put(place, device(ordinal)?.ordinal)
    }
    fn hipDeviceGetName(text: *mut c_char, room: c_int, d: hipDevice_t) {
        put_text(text, room, &facts(device(d)?).name)
    }
    fn hipDeviceGetUuid(place: *mut [u8; 16], d: hipDevice_t) {
        put(place, uuid(device(d)?))
    }
    fn hipDeviceGetPCIBusId(text: *mut c_char, room: c_int, d: c_int) {
        let id = bus_id(device(d)?);
        put_text(text, room, &id)?;
        // What fits is there all the same.
        if room as usize <= id.len() { Err(INVALID) } else { Ok(()) }
    }
    fn hipDeviceGetByPCIBusId(place: *mut c_int, text: *const c_char) {
        if text.is_null() {
            return Err(INVALID);
        }
        let wanted = CStr::from_ptr(text).to_string_lossy().to_lowercase();
        let found = state::devices().iter().find(|d| bus_id(d) == wanted).ok_or(Code(hipErrorInvalidValue))?;
        put(place, found.ordinal)
    }
    fn hipDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, d: hipDevice_t) {
        let f = facts(device(d)?);
        put(major, f.major)?;
        put(minor, f.minor)
    }
    fn hipDeviceGetAttribute(value: *mut c_int, which: c_uint, d: c_int) {
        put(value, attribute(device(d)?, which)?)
    }
    fn hipGetDevicePropertiesR0600(place: *mut hipDeviceProp_tR0600, d: c_int) {
        put(place, properties(device(d)?))
    }
    fn hipGetDeviceProperties(place: *mut hipDeviceProp_tR0000, d: c_int) {
        put(place, old_properties(device(d)?))
    }
    fn hipGetDevicePropertiesR0000(place: *mut hipDeviceProp_tR0000, d: c_int) {
        put(place, old_properties(device(d)?))
    }
    fn hipChooseDeviceR0600(place: *mut c_int, wanted: *const hipDeviceProp_tR0600) {
        let wanted = text_of_arch(&get(wanted)?.gcnArchName);
        put(place, choose(&wanted)?)
    }
    fn hipChooseDevice(place: *mut c_int, wanted: *const hipDeviceProp_tR0000) {
        let wanted = text_of_arch(&get(wanted)?.gcnArchName);
        put(place, choose(&wanted)?)
    }
    fn hipChooseDeviceR0000(place: *mut c_int, wanted: *const hipDeviceProp_tR0000) {
        let wanted = text_of_arch(&get(wanted)?.gcnArchName);
        put(place, choose(&wanted)?)
    }
    fn hipDeviceSynchronize() {
        let d = state::current()?;
        crate::capture::check_device(d.ordinal)?;
        d.synchronize()
    }
    fn hipDeviceReset() {
        reset(state::current()?);
        Ok(())
    }
    fn hipSetDeviceFlags(flags: c_uint) {
        // How to wait for the device is all that is kept.
        state::current()?.flags.store(check_flags(flags)? & 7, Ordering::Release);
        Ok(())
    }
    fn hipGetDeviceFlags(flags: *mut c_uint) {
        put(flags, state::current()?.flags.load(Ordering::Acquire))
    }
    fn hipDeviceGetLimit(value: *mut usize, which: c_uint) {
        if value.is_null() {
            return Err(INVALID);
        }
        let limits = *lock(&state::current()?.limits);
        put(value, *limits.get(which as usize).ok_or(Code(hipErrorUnsupportedLimit))?)
    }
    fn hipDeviceSetLimit(which: c_uint, value: usize) {
        let d = state::current()?;
        if which == 0 && value > MAX_STACK {
            return Err(INVALID);
        }
        *lock(&d.limits).get_mut(which as usize).ok_or(INVALID)? = value;
        Ok(())
    }
    fn hipDeviceSetCacheConfig(config: c_uint) {
        // None, LDS, L1, both alike: kept for who asks.
        if config > 3 {
            return Err(INVALID);
        }
        state::current()?.cache_config.store(config, Ordering::Release);
        Ok(())
    }
    fn hipDeviceGetCacheConfig(config: *mut c_uint) {
        put(config, state::current()?.cache_config.load(Ordering::Acquire))
    }
    fn hipDeviceSetSharedMemConfig(config: c_uint) {
        // Banks of the usual width, of 4 and of 8 bytes.
        if config > 2 { Err(INVALID) } else { Ok(()) }
    }
    fn hipDeviceGetSharedMemConfig(config: *mut c_uint) {
        // Banks of four bytes.
        put(config, 1)
    }

    fn hipDeviceCanAccessPeer(can: *mut c_int, d: c_int, peer: c_int) {
        put(can, c_int::from(device(d)?.ordinal != device(peer)?.ordinal))
    }
    fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        // All memory is in one address space: access is always there.
        if flags != 0 { Err(INVALID) } else { check_peer(peer) }
    }
    fn hipDeviceDisablePeerAccess(peer: c_int) {
        check_peer(peer)
    }
    fn hipDeviceGetP2PAttribute(value: *mut c_int, which: c_int, from: c_int, to: c_int) {
        if device(from)?.ordinal == device(to)?.ordinal {
            return err(hipErrorInvalidDevice);
        }
        // Rank, access, native atomics, array access.
        put(value, match which {
            0 => 0,
            1 | 2 => 1,
            3 => 0,
            _ => return Err(INVALID),
        })
    }
    fn hipExtGetLinkTypeAndHopCount(from: c_int, to: c_int, kind: *mut u32, hops: *mut u32) {
        if from < 0 || to < 0 || kind.is_null() || hops.is_null() || device(from)?.ordinal == device(to)?.ordinal {
            return Err(INVALID);
        }
        // PCI Express.
        put(kind, 2)?;
        put(hops, 1)
    }

    fn hipDevicePrimaryCtxRetain(place: *mut hipCtx_t, d: hipDevice_t) {
        let d = device(d)?;
        put(place, state::context_of(d.ordinal))?;
        d.context_users.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
    fn hipDevicePrimaryCtxRelease(d: hipDevice_t) {
        let users = &device(d)?.context_users;
        let less = users.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        less.map(drop).map_err(|_| Code(hipErrorInvalidContext))
    }
    fn hipDevicePrimaryCtxReset(d: hipDevice_t) {
        reset(device(d)?);
        Ok(())
    }
    fn hipDevicePrimaryCtxSetFlags(d: hipDevice_t, flags: c_uint) {
        device(d)?.flags.store(check_flags(flags)?, Ordering::Release);
        Ok(())
    }
    fn hipDevicePrimaryCtxGetState(d: hipDevice_t, flags: *mut c_uint, active: *mut c_int) {
        let d = device(d)?;
        let users = d.context_users.load(Ordering::Acquire);
        put(flags, d.flags.load(Ordering::Acquire))?;
        put(active, c_int::from(users > 0))
    }
    fn hipCtxCreate(place: *mut hipCtx_t, flags: c_uint, d: hipDevice_t) {
        let d = device(d)?;
        d.flags.store(check_flags(flags)?, Ordering::Release);
        put(place, state::context_of(d.ordinal))?;
        state::push_context(d.ordinal)
    }
    fn hipCtxDestroy(context: hipCtx_t) {
        state::device_of_context(context).map(drop)
    }
    fn hipCtxSetCurrent(context: hipCtx_t) {
        // Null takes the context away; the device stays, as with AMD's library.
        if context.is_null() { Ok(()) } else { state::set_current(state::device_of_context(context)?.ordinal) }
    }
    fn hipCtxGetCurrent(place: *mut hipCtx_t) {
        put(place, state::context_of(state::current()?.ordinal))
    }
    fn hipCtxPushCurrent(context: hipCtx_t) {
        state::push_context(state::device_of_context(context)?.ordinal)
    }
    fn hipCtxPopCurrent(place: *mut hipCtx_t) {
        let was = state::pop_context()?;
        if place.is_null() { Ok(()) } else { put(place, was) }
    }
    fn hipCtxGetDevice(place: *mut hipDevice_t) {
        put(place, state::current()?.ordinal)
    }
    fn hipCtxSynchronize() {
        state::current()?.synchronize()
    }
    fn hipCtxGetFlags(flags: *mut c_uint) {
        put(flags, 0)
    }
    fn hipCtxGetApiVersion(context: hipCtx_t, version: *mut c_uint) {
        if !context.is_null() {
            state::device_of_context(context)?;
        }
        put(version, 4)
    }
    fn hipCtxGetCacheConfig(config: *mut c_uint) {
        put(config, 0)
    }
    fn hipCtxSetCacheConfig(_config: c_uint) {
        Ok(())
    }
    fn hipCtxGetSharedMemConfig(config: *mut c_uint) {
        put(config, 1)
    }
    fn hipCtxSetSharedMemConfig(_config: c_uint) {
        Ok(())
    }
    fn hipCtxEnablePeerAccess(context: hipCtx_t, _flags: c_uint) {
        check_peer(state::device_of_context(context)?.ordinal)
    }
    fn hipCtxDisablePeerAccess(context: hipCtx_t) {
        check_peer(state::device_of_context(context)?.ordinal)
    }
    fn hipProfilerStart() {
        Ok(())
    }
    fn hipProfilerStop() {
        Ok(())
    }
}

/// Number of the stream's device; -1 for a wrong handle.
///
/// # Safety
/// Any value may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetStreamDeviceId(stream: *mut c_void) -> c_int {
    state::stream(stream).map_or(-1, |s| s.device)
}

fn text_of_arch(chars: &[c_char]) -> String {
    barewave_emu::hip::types::text_of(chars)
}

/// The first device of an architecture, or the first one.
fn choose(arch: &str) -> Result<c_int> {
    let all = state::devices();
    let first = all.first().ok_or(Code(hipErrorNoDevice))?;
    let fits = |d: &&std::sync::Arc<Device>| !arch.is_empty() && d.id.to_string().starts_with(arch);
    Ok(all.iter().find(fits).unwrap_or(first).ordinal)
}
