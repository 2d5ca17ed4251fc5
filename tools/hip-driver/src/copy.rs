//! Copies and fills. Every form becomes an operation on rows of bytes; those without `Async` wait for it.

use crate::api::{INVALID, Result, err, get};
use crate::memory::{Allocation, Kind, check, find};
use crate::op::{Op, Rows, submit, submit_and_wait};
use crate::state::{self, size};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::ffi::{c_int, c_uint, c_void};

/// Directions: host to host 0, host to device 1, device to host 2, device to device 3, by the addresses 4, and device to
/// device without compute units 1024.
const DEFAULT: hipMemcpyKind = 4;

/// True when a direction says that the target, or the source, is on a device.
fn device_sides(kind: hipMemcpyKind) -> Result<(bool, bool)> {
    match kind {
        0 | DEFAULT => Ok((false, false)),
        1 => Ok((true, false)),
        2 => Ok((false, true)),
        3 | 1024 => Ok((true, true)),
        _ => err(hipErrorInvalidMemcpyDirection),
    }
}

fn check_side(rows: Rows, extent: [u64; 3], on_device: bool) -> Result {
    let span = rows.span(extent).filter(|s| *s < 1 << 47).ok_or(INVALID)?;
    let found = check(rows.start.0, span)?;
    if on_device && found.is_none() && span > 0 { Err(INVALID) } else { Ok(()) }
}

/// A checked copy.
pub fn copy_op(to: Rows, from: Rows, extent: [u64; 3], kind: hipMemcpyKind) -> Result<Op> {
    let (to_device, from_device) = device_sides(kind)?;
    if extent.contains(&0) {
        return Ok(Op::Empty);
    }
    check_side(to, extent, to_device)?;
    check_side(from, extent, from_device)?;
    Ok(Op::Copy { to, from, extent, kind })
}

/// A checked copy of a line.
pub fn line(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) -> Result<Op> {
    copy_op(Rows::line(to), Rows::line(from), [size(bytes)?, 1, 1], kind)
}

/// See the function of the API.
pub fn rows(p: *const c_void, pitch: usize) -> Rows {
    Rows { start: p.into(), pitch: pitch as u64, slice: 0 }
}

/// See the function of the API.
pub fn plane(to: Rows, from: Rows, width: usize, height: usize, kind: hipMemcpyKind) -> Result<Op> {
    if (to.pitch < width as u64 || from.pitch < width as u64) && height > 1 {
        return err(hipErrorInvalidPitchValue);
    }
    copy_op(to, from, [size(width)?, size(height)?, 1], kind)
}

/// One side of a copy that is described by a structure: kind of memory, both pointers, position.
struct Side {
    kind: c_uint,
    host: *const c_void,
    device: *const c_void,
    array: *const c_void,
    at: [usize; 3],
    pitch: usize,
    height: usize,
}

impl Side {
    fn rows(&self, width: usize) -> Result<Rows> {
        // Host memory, device or unified memory, arrays, which do not exist here, or by the address.
        const ARRAY: c_uint = 10;
        let start = match self.kind {
            1 => self.host,
            2 | 3 | 11 => self.device,
            0 => {
                if self.host.is_null() {
                    self.device
                } else {
                    self.host
                }
            }
            ARRAY if !self.array.is_null() => return err(hipErrorNotSupported),
            _ => return Err(INVALID),
        };
        let [x, y, z] = self.at;
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let slice = pitch.checked_mul(self.height.max(1)).ok_or(INVALID)?;
        let offset = || slice.checked_mul(z)?.checked_add(pitch.checked_mul(y)?)?.checked_add(x);
        let start = (start as u64).checked_add(offset().ok_or(INVALID)? as u64).ok_or(INVALID)?;
        if pitch < width {
            return err(hipErrorInvalidPitchValue);
        }
        Ok(Rows { start: crate::op::Ptr(start), pitch: pitch as u64, slice: slice as u64 })
    }
}

unsafe fn plane_of(p: *const hip_Memcpy2D) -> Result<Op> {
    // SAFETY: the caller's word.
    let c = unsafe { get(p)? };
    let from = Side {
        kind: c.src_type,
        host: c.src_host,
        device: c.src_device,
        array: c.src_array,
        at: [c.src_x_bytes, c.src_y, 0],
        pitch: c.src_pitch,
        height: 1,
    };
    let to = Side {
        kind: c.dst_type,
        host: c.dst_host,
        device: c.dst_device,
        array: c.dst_array,
        at: [c.dst_x_bytes, c.dst_y, 0],
        pitch: c.dst_pitch,
        height: 1,
    };
    let (from, to) = (from.rows(c.width_bytes)?, to.rows(c.width_bytes)?);
    copy_op(to, from, [size(c.width_bytes)?, size(c.height)?, 1], DEFAULT)
}

/// The copy that a driver-API structure describes.
///
/// # Safety
/// The pointer is null or leads to the structure.
pub unsafe fn block_of(p: *const HIP_MEMCPY3D) -> Result<Op> {
    // SAFETY: the caller's word.
    let c = unsafe { get(p)? };
    let from = Side {
        kind: c.src_type,
        host: c.src_host,
        device: c.src_device,
        array: c.src_array,
        at: [c.src_x_bytes, c.src_y, c.src_z],
        pitch: c.src_pitch,
        height: if c.src_height == 0 { c.height } else { c.src_height },
    };
    let to = Side {
        kind: c.dst_type,
        host: c.dst_host,
        device: c.dst_device,
        array: c.dst_array,
        at: [c.dst_x_bytes, c.dst_y, c.dst_z],
        pitch: c.dst_pitch,
        height: if c.dst_height == 0 { c.height } else { c.dst_height },
    };
    let (from, to) = (from.rows(c.width_bytes)?, to.rows(c.width_bytes)?);
    copy_op(to, from, [size(c.width_bytes)?, size(c.height)?, size(c.depth)?], DEFAULT)
}

/// The copy that a runtime-API structure describes.
///
/// # Safety
/// The pointer is null or leads to the structure.
pub unsafe fn block_of_parms(p: *const hipMemcpy3DParms) -> Result<Op> {
    // SAFETY: the caller's word.
    let c = unsafe { get(p)? };
    if !c.src_array.is_null() || !c.dst_array.is_null() {
        return err(hipErrorNotSupported);
    }
    let side = |p: hipPitchedPtr, at: hipPos| Side {
        kind: 0,
        host: p.ptr,
        device: p.ptr,
        array: std::ptr::null(),
        at: [at.x, at.y, at.z],
        pitch: p.pitch,
        height: p.ysize,
    };
    let (from, to) = (side(c.src_ptr, c.src_pos), side(c.dst_ptr, c.dst_pos));
    let (from, to) = (from.rows(c.extent.width)?, to.rows(c.extent.width)?);
    copy_op(to, from, [size(c.extent.width)?, size(c.extent.height)?, size(c.extent.depth)?], c.kind)
}

/// A checked fill.
pub fn set_op(to: Rows, value: u32, element: u32, extent: [u64; 3]) -> Result<Op> {
    if extent.contains(&0) {
        return Ok(Op::Empty);
    }
    if !to.start.0.is_multiple_of(u64::from(element)) {
        return Err(INVALID);
    }
    check_side(to, extent, true)?;
    Ok(Op::Set { to, value, element, extent })
}

/// See the function of the API.
pub fn set_line(p: *mut c_void, value: u32, element: u32, count: usize) -> Result<Op> {
    set_op(Rows::line(p), value, element, [size(count)? * u64::from(element), 1, 1])
}

/// See the function of the API.
pub fn set_plane(p: *mut c_void, pitch: usize, value: u32, element: u32, width: usize, height: usize) -> Result<Op> {
    let bytes = size(width)? * u64::from(element);
    if (pitch as u64) < bytes && height > 1 {
        return err(hipErrorInvalidPitchValue);
    }
    set_op(rows(p, pitch), value, element, [bytes, size(height)?, 1])
}

/// See the function of the API.
pub fn set_block(p: hipPitchedPtr, value: c_int, extent: hipExtent) -> Result<Op> {
    let to = Rows { start: p.ptr.into(), pitch: p.pitch as u64, slice: (p.pitch * p.ysize) as u64 };
    set_op(to, value as u32, 1, [size(extent.width)?, size(extent.height)?, size(extent.depth)?])
}

/// Copies and fills that stay on the device come in order with what follows there and need no waiting, as in AMD's driver;
/// others are done when the call returns.
fn now(op: Op) -> Result {
    crate::capture::forbid_default()?;
    let device = state::current()?;
    let stays = match &op {
        Op::Copy { to, from, .. } => on_device(to, device.ordinal) && on_device(from, device.ordinal),
        Op::Set { to, .. } => on_device(to, device.ordinal),
        _ => false,
    };
    let stream = &device.default_stream;
    if stays { submit(stream, op) } else { submit_and_wait(stream, op) }
}

/// Memory of this device alone, of which nobody said that its copies wait.
fn on_device(rows: &Rows, device: i32) -> bool {
    let own = |a: &Allocation| a.kind == Kind::Device && a.device == device && !crate::memory::waits(a.start);
    find(rows.start.0).is_some_and(|a| own(&a))
}

fn later(stream: hipStream_t, op: Op) -> Result {
    submit(&state::stream(stream)?, op)
}

/// Copies from and to pageable host memory are done when the call returns, as HIP documents: the memory need not outlive
/// it. So are those from host to host. Other pinned and device memory is the program's promise.
pub fn copy_op_later(stream: hipStream_t, op: Op) -> Result {
    let s = state::stream(stream)?;
    let waits = touches_pageable(&op) || stays_on_host(&op);
    if waits && !crate::capture::is_capturing(&s) { submit_and_wait(&s, op) } else { submit(&s, op) }
}

/// A copy between pinned memories of the host.
fn stays_on_host(op: &Op) -> bool {
    let pinned = |r: &Rows| find(r.start.0).is_some_and(|a| matches!(a.kind, Kind::Host | Kind::Registered));
    matches!(op, Op::Copy { to, from, .. } if pinned(to) && pinned(from))
}

/// A copy from or to host memory that is not pinned.
pub fn touches_pageable(op: &Op) -> bool {
    let pageable = |r: &Rows| find(r.start.0).is_none();
    matches!(op, Op::Copy { to, from, .. } if pageable(to) || pageable(from))
}

fn copy_later(stream: hipStream_t, to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) -> Result {
    copy_op_later(stream, line(to, from, bytes, kind)?)
}

hip! {
    fn hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        now(line(to, from, bytes, kind)?)
    }
    fn hipMemcpyWithStream(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind,
        stream: hipStream_t) {
        submit_and_wait(&state::stream(stream)?, line(to, from, bytes, kind)?)
    }
    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind, stream: hipStream_t) {
        copy_later(stream, to, from, bytes, kind)
    }
    fn hipMemcpyHtoD(to: *mut c_void, from: *const c_void, bytes: usize) {
        now(line(to, from, bytes, 1)?)
    }
    fn hipMemcpyDtoH(to: *mut c_void, from: *mut c_void, bytes: usize) {
        now(line(to, from, bytes, 2)?)
    }
    fn hipMemcpyDtoD(to: *mut c_void, from: *mut c_void, bytes: usize) {
        now(line(to, from, bytes, 3)?)
    }
    fn hipMemcpyHtoDAsync(to: *mut c_void, from: *const c_void, bytes: usize, stream: hipStream_t) {
        copy_later(stream, to, from, bytes, 1)
    }
    fn hipMemcpyDtoHAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: hipStream_t) {
        copy_later(stream, to, from, bytes, 2)
    }
    fn hipMemcpyDtoDAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: hipStream_t) {
        copy_later(stream, to, from, bytes, 3)
    }
    fn hipMemcpyPeer(to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize) {
        state::device(to_device)?;
        state::device(from_device)?;
        now(line(to, from, bytes, 3)?)
    }
    fn hipMemcpyPeerAsync(to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize,
        stream: hipStream_t) {
        state::device(to_device)?;
        state::device(from_device)?;
        copy_later(stream, to, from, bytes, 3)
    }
    fn hipMemcpy2D(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, kind: hipMemcpyKind) {
        now(plane(rows(to, to_pitch), rows(from, from_pitch), width, height, kind)?)
    }
    fn hipMemcpy2DAsync(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, kind: hipMemcpyKind, stream: hipStream_t) {
        later(stream, plane(rows(to, to_pitch), rows(from, from_pitch), width, height, kind)?)
    }
    fn hipMemcpyParam2D(copy: *const hip_Memcpy2D) {
        now(plane_of(copy)?)
    }
    fn hipMemcpyParam2DAsync(copy: *const hip_Memcpy2D, stream: hipStream_t) {
        later(stream, plane_of(copy)?)
    }
    fn hipDrvMemcpy2DUnaligned(copy: *const hip_Memcpy2D) {
        now(plane_of(copy)?)
    }
    fn hipMemcpy3D(copy: *const hipMemcpy3DParms) {
        now(block_of_parms(copy)?)
    }
    fn hipMemcpy3DAsync(copy: *const hipMemcpy3DParms, stream: hipStream_t) {
        later(stream, block_of_parms(copy)?)
    }
    fn hipDrvMemcpy3D(copy: *const HIP_MEMCPY3D) {
        now(block_of(copy)?)
    }
    fn hipDrvMemcpy3DAsync(copy: *const HIP_MEMCPY3D, stream: hipStream_t) {
        later(stream, block_of(copy)?)
    }

    fn hipMemset(p: *mut c_void, value: c_int, bytes: usize) {
        now(set_line(p, value as u32, 1, bytes)?)
    }
    fn hipMemsetAsync(p: *mut c_void, value: c_int, bytes: usize, stream: hipStream_t) {
        later(stream, set_line(p, value as u32, 1, bytes)?)
    }
    fn hipMemsetD8(p: *mut c_void, value: u8, count: usize) {
        now(set_line(p, value.into(), 1, count)?)
    }
    fn hipMemsetD8Async(p: *mut c_void, value: u8, count: usize, stream: hipStream_t) {
        later(stream, set_line(p, value.into(), 1, count)?)
    }
    fn hipMemsetD16(p: *mut c_void, value: u16, count: usize) {
        now(set_line(p, value.into(), 2, count)?)
    }
    fn hipMemsetD16Async(p: *mut c_void, value: u16, count: usize, stream: hipStream_t) {
        later(stream, set_line(p, value.into(), 2, count)?)
    }
    fn hipMemsetD32(p: *mut c_void, value: c_int, count: usize) {
        now(set_line(p, value as u32, 4, count)?)
    }
    fn hipMemsetD32Async(p: *mut c_void, value: c_int, count: usize, stream: hipStream_t) {
        later(stream, set_line(p, value as u32, 4, count)?)
    }
    fn hipMemset2D(p: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        now(set_plane(p, pitch, value as u32, 1, width, height)?)
    }
    fn hipMemset2DAsync(p: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: hipStream_t) {
        later(stream, set_plane(p, pitch, value as u32, 1, width, height)?)
    }
    fn hipMemsetD2D8(p: *mut c_void, pitch: usize, value: u8, width: usize, height: usize) {
        now(set_plane(p, pitch, value.into(), 1, width, height)?)
    }
    fn hipMemsetD2D16(p: *mut c_void, pitch: usize, value: u16, width: usize, height: usize) {
        now(set_plane(p, pitch, value.into(), 2, width, height)?)
    }
    fn hipMemsetD2D32(p: *mut c_void, pitch: usize, value: c_uint, width: usize, height: usize) {
        now(set_plane(p, pitch, value, 4, width, height)?)
    }
    fn hipMemsetD2D8Async(p: *mut c_void, pitch: usize, value: u8, width: usize, height: usize, stream: hipStream_t) {
        later(stream, set_plane(p, pitch, value.into(), 1, width, height)?)
    }
    fn hipMemsetD2D16Async(p: *mut c_void, pitch: usize, value: u16, width: usize, height: usize,
        stream: hipStream_t) {
        later(stream, set_plane(p, pitch, value.into(), 2, width, height)?)
    }
    fn hipMemsetD2D32Async(p: *mut c_void, pitch: usize, value: c_uint, width: usize, height: usize,
        stream: hipStream_t) {
        later(stream, set_plane(p, pitch, value, 4, width, height)?)
    }
    fn hipMemset3D(p: hipPitchedPtr, value: c_int, extent: hipExtent) {
        now(set_block(p, value, extent)?)
    }
    fn hipMemset3DAsync(p: hipPitchedPtr, value: c_int, extent: hipExtent, stream: hipStream_t) {
        later(stream, set_block(p, value, extent)?)
    }
}
