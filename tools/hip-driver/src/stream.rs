//! Streams and events.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::op::{HostCall, Op, Ptr, submit};
use crate::state::{self, Device, EVENTS, EventEntry, STREAMS, Stream, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use barewave_emu::queue::Event;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Flag: the stream does not wait for the default one.
const NON_BLOCKING: c_uint = 1;
/// Flag of events that take no time.
const DISABLE_TIMING: c_uint = 2;
/// Flag of events that other processes see.
pub const INTERPROCESS: c_uint = 4;
/// Flags of events that release memory to the device, and to the system.
const RELEASES: c_uint = 0x4000_0000 | 0x8000_0000;

/// The default stream waits for all streams that are not made non-blocking, and they wait for it.
pub fn order_with_default(device: &Device, stream: &Arc<Stream>) {
    let default = &device.default_stream;
    let after = |other: &Stream| {
        if !other.queue.idle() {
            let e = Event::new();
            other.queue.record(&e);
            stream.queue.wait_for(&e);
        }
    };
    if Arc::ptr_eq(stream, default) {
        for other in device.all_streams() {
            if !Arc::ptr_eq(&other, default) && other.flags & NON_BLOCKING == 0 {
                after(&other);
            }
        }
    } else if stream.flags & NON_BLOCKING == 0 {
        after(default);
    }
}

fn create(place: *mut hipStream_t, flags: c_uint, priority: c_int) -> Result {
    if flags & !NON_BLOCKING != 0 || place.is_null() {
        return Err(INVALID);
    }
    let device = state::current()?;
    let s = device.add_stream(flags, priority.clamp(-1, 1));
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, STREAMS.add(s)) }
}

fn create_event(place: *mut hipEvent_t, flags: c_uint) -> Result {
    let known = 1 | DISABLE_TIMING | 4 | 0x2000_0000 | 0x4000_0000 | 0x8000_0000;
    if flags & !known != 0 || place.is_null() {
        return Err(INVALID);
    }
    state::current()?;
    // Other processes see no times; one flag says how to release memory, not two.
    if flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 || flags & RELEASES == RELEASES {
        return Err(INVALID);
    }
    let shared = if flags & INTERPROCESS != 0 { Some(crate::ipc::SharedEvent::new()?) } else { None };
    let e = EventEntry::new(flags, shared);
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, EVENTS.add(Arc::new(e))) }
}

/// Callbacks of the older kind also get stream and status.
struct Callback {
    function: unsafe extern "C" fn(hipStream_t, u32, *mut c_void),
    stream: u64,
    device: c_int,
    argument: u64,
}

unsafe extern "C" fn run_callback(p: *mut c_void) {
    // SAFETY: made by `hipStreamAddCallback` and run once.
    let c = unsafe { Box::from_raw(p.cast::<Callback>()) };
    let status = state::device(c.device).and_then(|d| d.check_fault()).map_or_else(|e| e.0, |()| 0);
    // SAFETY: the caller of the API gave the function for this.
    unsafe { (c.function)(c.stream as hipStream_t, status, c.argument as *mut c_void) };
}

fn write_value(stream: hipStream_t, to: *mut c_void, value: u64, bytes: u32) -> Result {
    if to.is_null() || !(to as u64).is_multiple_of(u64::from(bytes)) {
        return Err(INVALID);
    }
    submit(&state::stream(stream)?, Op::Write { to: to.into(), value, bytes })
}

fn wait_value(stream: hipStream_t, from: *mut c_void, value: u64, condition: u32, mask: u64, bytes: u32) -> Result {
    if from.is_null() || !(from as u64).is_multiple_of(u64::from(bytes)) || condition > 3 {
        return Err(INVALID);
    }
    submit(&state::stream(stream)?, Op::Until { from: from.into(), value, mask, condition, bytes })
}

/// The operations of a list of writes and waits.
pub fn batch(list: &[hipStreamBatchMemOpParams]) -> Result<Vec<Op>> {
    let one = |p: &hipStreamBatchMemOpParams| {
        // Wait for 32 bits, write them, wait for 64, write them.
        let bytes = if p.operation >= 4 { 8 } else { 4 };
        if p.address.is_null() || !(p.address as u64).is_multiple_of(u64::from(bytes)) {
            return Err(INVALID);
        }
        let value = if bytes == 8 { p.value } else { p.value & 0xffff_ffff };
        match p.operation {
            1 | 4 if p.flags <= 3 => {
                Ok(Op::Until { from: p.address.into(), value, mask: u64::MAX, condition: p.flags, bytes })
            }
            2 | 5 => Ok(Op::Write { to: p.address.into(), value, bytes }),
            _ => Err(INVALID),
        }
    };
    list.iter().map(one).collect()
}

hip! {
    fn hipStreamBatchMemOp(stream: hipStream_t, count: c_uint, list: *mut hipStreamBatchMemOpParams, flags: c_uint) {
        if list.is_null() || count == 0 || count > 256 || flags != 0 {
            return Err(INVALID);
        }
        let ops = batch(std::slice::from_raw_parts(list, count as usize))?;
        let s = state::stream(stream)?;
        ops.into_iter().try_for_each(|op| submit(&s, op))
    }
    fn hipStreamCreate(stream: *mut hipStream_t) {
        create(stream, 0, 0)
    }
    fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: c_uint) {
        create(stream, flags, 0)
    }
    fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }
    fn hipExtStreamCreateWithCUMask(stream: *mut hipStream_t, words: u32, mask: *const u32) {
        if stream.is_null() {
            return err(hipErrorInvalidHandle);
        }
        if words == 0 || mask.is_null() {
            return Err(INVALID);
        }
        let mut given = std::slice::from_raw_parts(mask, words as usize).to_vec();
        if given.iter().all(|w| *w == 0) {
            // None at all means the usual ones.
            given.clear();
        }
        create(stream, 0, 0)?;
        // Threads of the host are not divided: the mask is kept for who asks.
        *lock(&state::stream(get(stream)?)?.mask) = given;
        Ok(())
    }
    fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        if !least.is_null() {
            put(least, 1)?;
        }
        if !greatest.is_null() {
            put(greatest, -1)?;
        }
        Ok(())
    }
    fn hipStreamDestroy(stream: hipStream_t) {
        if (stream as u64) <= 2 {
            return err(hipErrorInvalidHandle);
        }
        STREAMS.remove(stream).ok_or(Code(hipErrorContextIsDestroyed))?.retire();
        Ok(())
    }
    fn hipStreamQuery(stream: hipStream_t) {
        let s = state::stream(stream)?;
        crate::capture::forbid(&s)?;
        let device = state::device(s.device)?;
        device.check_fault()?;
        // What the default stream waits for is part of its work.
        let waits_for = |other: &Arc<Stream>| {
            Arc::ptr_eq(other, &s)
                || Arc::ptr_eq(&s, &device.default_stream)
                    && other.flags & NON_BLOCKING == 0
                    && !other.retired.load(Ordering::Acquire)
        };
        let busy = device.all_streams().iter().any(|other| waits_for(other) && !other.queue.idle());
        if busy || !s.queue.idle() { err(hipErrorNotReady) } else { Ok(()) }
    }
    fn hipStreamSynchronize(stream: hipStream_t) {
        let s = state::stream(stream)?;
        crate::capture::forbid(&s)?;
        crate::capture::check_safe()?;
        let device = state::device(s.device)?;
        order_with_default(device, &s);
        let done = s.queue.wait();
        if Arc::ptr_eq(&s, &device.default_stream) {
            // Whoever asks them next finds them idle.
            let blocking = device.all_streams().into_iter().filter(|o| o.flags & NON_BLOCKING == 0);
            blocking.for_each(|o| o.queue.settle());
        }
        device.settle_pools();
        done.and(device.check_fault())
    }
    fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint) {
        if flags > 1 {
            return Err(INVALID);
        }
        let s = state::stream(stream).map_err(|_| Code(hipErrorInvalidHandle))?;
        let e = state::event(event)?;
        if crate::capture::join(&s, &e)? {
            return Ok(());
        }
        submit(&s, Op::Wait(e))
    }
    fn hipStreamGetFlags(stream: hipStream_t, flags: *mut c_uint) {
        if stream.is_null() {
            return Err(INVALID);
        }
        put(flags, state::stream(stream)?.flags)
    }
    fn hipStreamGetPriority(stream: hipStream_t, priority: *mut c_int) {
        put(priority, state::stream(stream)?.priority)
    }
    fn hipExtStreamGetCUMask(stream: hipStream_t, words: u32, mask: *mut u32) {
        let s = state::stream(stream)?;
        let units = state::device(s.device)?.compute_units;
        if mask.is_null() || words == 0 || words < units.div_ceil(32) {
            return Err(INVALID);
        }
        let given = lock(&s.mask).clone();
        for i in 0..words {
            let all = units.saturating_sub(32 * i).min(32);
            let usual = if all == 32 { u32::MAX } else { (1 << all) - 1 };
            put(mask.add(i as usize), given.get(i as usize).copied().unwrap_or(usual) & usual)?;
        }
        Ok(())
    }
    fn hipStreamGetDevice(stream: hipStream_t, device: *mut hipDevice_t) {
        put(device, state::stream(stream)?.device)
    }
    fn hipStreamGetId(stream: hipStream_t, id: *mut u64) {
        put(id, state::stream(stream)?.number)
    }
    fn hipStreamAddCallback(stream: hipStream_t, callback: hipStreamCallback_t, argument: *mut c_void, flags: c_uint) {
        let function = callback.filter(|_| flags == 0).ok_or(INVALID)?;
        let s = state::stream(stream)?;
        let c = Callback { function, stream: stream as u64, device: s.device, argument: argument as u64 };
        let argument = Ptr(Box::into_raw(Box::new(c)) as u64);
        submit(&s, Op::Host(HostCall { function: Some(run_callback), argument }))
    }
    fn hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, argument: *mut c_void) {
        if function.is_none() {
            return Err(INVALID);
        }
        submit(&state::stream(stream)?, Op::Host(HostCall { function, argument: argument.into() }))
    }
    fn hipStreamWriteValue32(stream: hipStream_t, to: *mut c_void, value: u32, _flags: c_uint) {
        write_value(stream, to, value.into(), 4)
    }
    fn hipStreamWriteValue64(stream: hipStream_t, to: *mut c_void, value: u64, _flags: c_uint) {
        write_value(stream, to, value, 8)
    }
    fn hipStreamWaitValue32(stream: hipStream_t, from: *mut c_void, value: u32, condition: c_uint, mask: u32) {
        wait_value(stream, from, value.into(), condition, mask.into(), 4)
    }
    fn hipStreamWaitValue64(stream: hipStream_t, from: *mut c_void, value: u64, condition: c_uint, mask: u64) {
        wait_value(stream, from, value, condition, mask, 8)
    }
    fn hipStreamAttachMemAsync(stream: hipStream_t, memory: *mut c_void, length: usize, flags: c_uint) {
        state::stream(stream)?;
        // Global, host or single, which is a stream of the program's; a whole allocation, which is managed.
        const SINGLE: c_uint = 4;
        if flags == SINGLE && stream.is_null() {
            return Err(INVALID);
        }
        let a = crate::memory::find(memory as u64).filter(|a| a.kind == crate::memory::Kind::Managed).ok_or(INVALID)?;
        let whole = length == 0 || length as u64 == a.size;
        if matches!(flags, 1 | 2 | 4) && whole { Ok(()) } else { Err(INVALID) }
    }

    fn hipEventCreate(event: *mut hipEvent_t) {
        create_event(event, 0)
    }
    fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint) {
        create_event(event, flags)
    }
    fn hipEventDestroy(event: hipEvent_t) {
        if event.is_null() {
            return err(hipErrorInvalidHandle);
        }
        EVENTS.remove(event).map(drop).ok_or(Code(hipErrorContextIsDestroyed))
    }
    fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) {
        crate::capture::record(&state::stream(stream)?, state::event(event)?)
    }
    fn hipEventRecordWithFlags(event: hipEvent_t, stream: hipStream_t, _flags: c_uint) {
        crate::capture::record(&state::stream(stream)?, state::event(event)?)
    }
    fn hipEventSynchronize(event: hipEvent_t) {
        let e = state::event(event)?;
        crate::capture::forbid_event(&e)?;
        e.wait();
        state::current()?.check_fault()
    }
    fn hipEventQuery(event: hipEvent_t) {
        let e = state::event(event)?;
        crate::capture::forbid_event(&e)?;
        if !e.done() {
            return err(hipErrorNotReady);
        }
        state::current()?.check_fault()
    }
    fn hipEventElapsedTime(ms: *mut f32, start: hipEvent_t, stop: hipEvent_t) {
        if ms.is_null() {
            return Err(INVALID);
        }
        let (a, b) = (state::event(start)?, state::event(stop)?);
        if !a.event.recorded() || !b.event.recorded() || (a.flags | b.flags) & DISABLE_TIMING != 0 {
            return err(hipErrorInvalidHandle);
        }
        let seconds = a.event.seconds_until(&b.event).ok_or(Code(hipErrorNotReady))?;
        put(ms, (seconds * 1e3) as f32)
    }
}
