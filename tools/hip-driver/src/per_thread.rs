//! The functions whose null stream is the default stream of the calling thread: what programs that are compiled with
//! `-fgpu-default-stream=per-thread` call.

use crate::api::Result;
use crate::copy::{self, block_of_parms, plane, rows, set_block, set_line, set_plane};
use crate::op::{Op, submit_and_wait};
use crate::state::{self, PER_THREAD};
use crate::symbols::symbol_copy;
use crate::types::*;
use std::ffi::{c_int, c_uint, c_void};

/// Null means the thread's own stream.
fn own(stream: hipStream_t) -> hipStream_t {
    if stream.is_null() { PER_THREAD } else { stream }
}

/// Exports functions that do what others do, with `own` in place of the stream: name, the other one, arguments before
/// the stream, those behind it.
macro_rules! per_thread {
    ($($name:ident: $module:ident::$usual:ident($($a:ident: $at:ty),*) ($($b:ident: $bt:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $at,)* stream: hipStream_t, $($b: $bt),*) -> u32 {
            // SAFETY: the caller keeps the contract of the HIP API.
            unsafe { crate::$module::$usual($($a,)* own(stream), $($b),*) }
        }
    )*};
}

per_thread! {
    hipMemcpyAsync_spt: copy::hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) ();
    hipMemcpy2DAsync_spt: copy::hipMemcpy2DAsync(to: *mut c_void, to_pitch: usize, from: *const c_void,
        from_pitch: usize, width: usize, height: usize, kind: hipMemcpyKind) ();
    hipMemcpy3DAsync_spt: copy::hipMemcpy3DAsync(copy: *const hipMemcpy3DParms) ();
    hipMemcpyToSymbolAsync_spt: symbols::hipMemcpyToSymbolAsync(symbol: *const c_void, from: *const c_void,
        bytes: usize, offset: usize, kind: hipMemcpyKind) ();
    hipMemcpyFromSymbolAsync_spt: symbols::hipMemcpyFromSymbolAsync(to: *mut c_void, symbol: *const c_void,
        bytes: usize, offset: usize, kind: hipMemcpyKind) ();
    hipMemsetAsync_spt: copy::hipMemsetAsync(p: *mut c_void, value: c_int, bytes: usize) ();
    hipMemset2DAsync_spt: copy::hipMemset2DAsync(p: *mut c_void, pitch: usize, value: c_int, width: usize,
        height: usize) ();
    hipMemset3DAsync_spt: copy::hipMemset3DAsync(p: hipPitchedPtr, value: c_int, extent: hipExtent) ();
    hipLaunchKernel_spt: module::hipLaunchKernel(host: *const c_void, grid: dim3, block: dim3,
        params: *mut *mut c_void, shared: usize) ();
    hipLaunchCooperativeKernel_spt: module::hipLaunchCooperativeKernel(host: *const c_void, grid: dim3, block: dim3,
        params: *mut *mut c_void, shared: c_uint) ();
    hipLaunchHostFunc_spt: stream::hipLaunchHostFunc() (function: hipHostFn_t, argument: *mut c_void);
    hipStreamAddCallback_spt: stream::hipStreamAddCallback() (callback: hipStreamCallback_t, argument: *mut c_void,
        flags: c_uint);
    hipStreamQuery_spt: stream::hipStreamQuery() ();
    hipStreamSynchronize_spt: stream::hipStreamSynchronize() ();
    hipStreamWaitEvent_spt: stream::hipStreamWaitEvent() (event: hipEvent_t, flags: c_uint);
    hipStreamGetFlags_spt: stream::hipStreamGetFlags() (flags: *mut c_uint);
    hipStreamGetPriority_spt: stream::hipStreamGetPriority() (priority: *mut c_int);
    hipEventRecord_spt: stream::hipEventRecord(event: hipEvent_t) ();
    hipGraphLaunch_spt: graph::hipGraphLaunch(exec: hipGraphExec_t) ();
    hipStreamBeginCapture_spt: capture::hipStreamBeginCapture() (mode: c_uint);
    hipStreamEndCapture_spt: capture::hipStreamEndCapture() (place: *mut hipGraph_t);
    hipStreamIsCapturing_spt: capture::hipStreamIsCapturing() (status: *mut c_uint);
    hipStreamGetCaptureInfo_spt: capture::hipStreamGetCaptureInfo() (status: *mut c_uint, id: *mut u64);
    hipStreamGetCaptureInfo_v2_spt: capture::hipStreamGetCaptureInfo_v2() (status: *mut c_uint, id: *mut u64,
        graph: *mut hipGraph_t, nodes: *mut *const hipGraphNode_t, count: *mut usize);
}

fn now(op: Op) -> Result {
    submit_and_wait(&state::stream(PER_THREAD)?, op)
}

hip! {
    fn hipMemcpy_spt(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        now(copy::line(to, from, bytes, kind)?)
    }
    fn hipMemcpy2D_spt(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, kind: hipMemcpyKind) {
        now(plane(rows(to, to_pitch), rows(from, from_pitch), width, height, kind)?)
    }
    fn hipMemcpy3D_spt(copy: *const hipMemcpy3DParms) {
        now(block_of_parms(copy)?)
    }
    fn hipMemcpyToSymbol_spt(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(symbol_copy(symbol, from, bytes, offset, kind, true)?)
    }
    fn hipMemcpyFromSymbol_spt(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(symbol_copy(symbol, to, bytes, offset, kind, false)?)
    }
    fn hipMemset_spt(p: *mut c_void, value: c_int, bytes: usize) {
        now(set_line(p, value as u32, 1, bytes)?)
    }
    fn hipMemset2D_spt(p: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        now(set_plane(p, pitch, value as u32, 1, width, height)?)
    }
    fn hipMemset3D_spt(p: hipPitchedPtr, value: c_int, extent: hipExtent) {
        now(set_block(p, value, extent)?)
    }
}
