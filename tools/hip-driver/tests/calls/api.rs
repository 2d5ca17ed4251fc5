//! The driver's functions, called the way C programs do: memory of every kind, streams and events, graphs, captures,
//! mistakes.

use crate::common::{driver, program};
use barewave::codeobj::{self, Abi, CodeObject};
use barewave::runtime::hip::code::*;
use barewave::runtime::plan::Launch;
use barewave_isa::{Inst, Operand, Target, encode, op};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{LazyLock, PoisonError, RwLock};

type P = *mut c_void;

static DRIVER: LazyLock<libloading::Library> = LazyLock::new(|| {
    // SAFETY: the first use of the driver in this process; other threads of the test wait here and read no environment.
    unsafe {
        std::env::set_var("BAREWAVE_TARGET", "gfx942,gfx90a");
        std::env::set_var("BAREWAVE_MEMORY", "8");
        std::env::set_var("BAREWAVE_LOG", "0");
        libloading::Library::new(driver()).unwrap()
    }
});

/// Held by the test that captures streams: a capture forbids every thread of the process what could wait for it.
static CAPTURE: RwLock<()> = RwLock::new(());

macro_rules! api {
    ($($name:ident($($arg:ident: $t:ty),*);)*) => {$(
        fn $name($($arg: $t),*) -> u32 {
            // SAFETY: the signatures of the HIP API; the tests pass valid pointers, or null.
            unsafe {
                let name = concat!(stringify!($name), "\0").as_bytes();
                let f = DRIVER.get::<unsafe extern "C" fn($($t),*) -> u32>(name).unwrap();
                f($($arg),*)
            }
        }
    )*};
}

api! {
    hipInit(flags: c_uint);
    hipGetDeviceCount(n: *mut c_int);
    hipSetDevice(d: c_int);
    hipDeviceGetAttribute(v: *mut c_int, which: c_uint, d: c_int);
    hipDeviceSynchronize();
    hipGetLastError();
    hipPeekAtLastError();
    hipMalloc(p: *mut P, n: usize);
    hipMallocManaged(p: *mut P, n: usize, flags: c_uint);
    hipHostMalloc(p: *mut P, n: usize, flags: c_uint);
    hipHostFree(p: P);
    hipFree(p: P);
    hipMallocAsync(p: *mut P, n: usize, s: P);
    hipFreeAsync(p: P, s: P);
    hipHostRegister(p: P, n: usize, flags: c_uint);
    hipHostUnregister(p: P);
    hipHostGetDevicePointer(d: *mut P, h: P, flags: c_uint);
    hipMemGetInfo(free: *mut usize, total: *mut usize);
    hipPointerGetAttributes(a: *mut [u64; 4], p: *const c_void);
    hipMemcpy(to: P, from: *const c_void, n: usize, kind: c_uint);
    hipMemcpyAsync(to: P, from: *const c_void, n: usize, kind: c_uint, s: P);
    hipMemcpyPeer(to: P, to_device: c_int, from: *const c_void, from_device: c_int, n: usize);
    hipMemcpy2D(to: P, to_pitch: usize, from: *const c_void, from_pitch: usize, w: usize, h: usize, kind: c_uint);
    hipMemsetD32(p: P, v: c_int, n: usize);
    hipMemsetD16Async(p: P, v: u16, n: usize, s: P);
    hipStreamCreateWithFlags(s: *mut P, flags: c_uint);
    hipStreamDestroy(s: P);
    hipStreamSynchronize(s: P);
    hipStreamQuery(s: P);
    hipStreamWaitEvent(s: P, e: P, flags: c_uint);
    hipStreamWaitValue32(s: P, p: P, v: u32, condition: c_uint, mask: u32);
    hipStreamWriteValue32(s: P, p: P, v: u32, flags: c_uint);
    hipStreamBeginCapture(s: P, mode: c_uint);
    hipStreamEndCapture(s: P, g: *mut P);
    hipStreamIsCapturing(s: P, status: *mut c_uint);
    hipLaunchHostFunc(s: P, f: Option<unsafe extern "C" fn(P)>, data: P);
    hipEventCreateWithFlags(e: *mut P, flags: c_uint);
    hipEventRecord(e: P, s: P);
    hipEventQuery(e: P);
    hipEventSynchronize(e: P);
    hipEventElapsedTime(ms: *mut f32, a: P, b: P);
    hipEventDestroy(e: P);
    hipModuleLoadData(m: *mut P, image: *const c_void);
    hipModuleUnload(m: P);
    hipModuleGetGlobal(p: *mut P, n: *mut usize, m: P, name: *const c_char);
    hipMemset(p: P, v: c_int, n: usize);
    hipModuleGetFunction(f: *mut P, m: P, name: *const c_char);
    hipModuleLaunchKernel(f: P, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        s: P, params: *mut P, extra: *mut P);
    hipFuncGetAttribute(v: *mut c_int, which: c_uint, f: P);
    hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(n: *mut c_int, f: P, threads: c_int, shared: usize);
    hipGraphCreate(g: *mut P, flags: c_uint);
    hipGraphDestroy(g: P);
    hipGraphAddEmptyNode(n: *mut P, g: P, after: *const P, count: usize);
    hipGraphAddKernelNode(n: *mut P, g: P, after: *const P, count: usize, params: *const KernelNode);
    hipGraphAddMemcpyNode1D(n: *mut P, g: P, after: *const P, count: usize, to: P, from: *const c_void, bytes: usize,
        kind: c_uint);
    hipGraphAddMemsetNode(n: *mut P, g: P, after: *const P, count: usize, params: *const MemsetNode);
    hipGraphAddDependencies(g: P, from: *const P, to: *const P, count: usize);
    hipGraphGetNodes(g: P, list: *mut P, count: *mut usize);
    hipGraphInstantiate(x: *mut P, g: P, error: *mut P, text: *mut c_char, n: usize);
    hipGraphExecDestroy(x: P);
    hipGraphLaunch(x: P, s: P);
    hipMallocArray(p: P);
    hipCtxPushCurrent(c: P);
    hipCtxPopCurrent(c: *mut P);
    hipDevicePrimaryCtxRetain(c: *mut P, d: c_int);
}

#[repr(C)]
struct KernelNode {
    block: [u32; 3],
    extra: *mut P,
    function: P,
    grid: [u32; 3],
    params: *mut P,
    shared: c_uint,
}

#[repr(C)]
struct MemsetNode {
    dst: P,
    element: c_uint,
    height: usize,
    pitch: usize,
    value: c_uint,
    width: usize,
}

/// A handle or address that a function writes.
fn made(f: impl FnOnce(*mut P) -> u32) -> P {
    let mut p = null_mut();
    assert_eq!(f(&mut p), hipSuccess);
    assert!(!p.is_null());
    p
}

const N: usize = 1024;
const BYTES: usize = 4 * N;

/// Adds two vectors of 1024 floats.
struct Adder {
    module: P,
    function: P,
    launch: Launch,
}

impl Adder {
    fn new() -> Adder {
        let p = program("examples/vector_add/vector_add.onnx", "gfx942");
        let code = p.code().clone();
        let launch = p.plan().launches[0].clone();
        let module = made(|m| hipModuleLoadData(m, code.as_ptr().cast()));
        let name = std::ffi::CString::new(launch.kernel.as_str()).unwrap();
        let function = made(|f| hipModuleGetFunction(f, module, name.as_ptr()));
        Adder { module, function, launch }
    }
    fn run(&self, stream: P, mut args: [P; 3]) -> u32 {
        let mut params = args.each_mut().map(|a| (a as *mut P).cast::<c_void>());
        let ([x, y, z], b) = (self.launch.grid, self.launch.block);
        hipModuleLaunchKernel(self.function, x, y, z, b, 1, 1, 0, stream, params.as_mut_ptr(), null_mut())
    }
}

fn floats(p: P) -> &'static mut [f32] {
    // SAFETY: host-visible memory of N floats in the tests that call this, used by one thread at a time.
    unsafe { std::slice::from_raw_parts_mut(p.cast(), N) }
}

fn fill(p: P, of: impl Fn(usize) -> f32) {
    floats(p).iter_mut().enumerate().for_each(|(i, x)| *x = of(i));
}

fn read(p: P) -> Vec<f32> {
    let mut out = vec![0f32; N];
    assert_eq!(hipMemcpy(out.as_mut_ptr().cast(), p, BYTES, 2), hipSuccess);
    out
}

#[test]
fn kernels_reach_memory_of_every_kind() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let add = Adder::new();
    let stream = made(|s| hipStreamCreateWithFlags(s, 1));
    let managed = made(|p| hipMallocManaged(p, BYTES, 1));
    let pinned = made(|p| hipHostMalloc(p, BYTES, 0));
    let device = made(|p| hipMalloc(p, BYTES));
    fill(managed, |i| i as f32);
    fill(pinned, |_| 0.5);
    assert_eq!(add.run(stream, [managed, pinned, device]), hipSuccess);
    assert_eq!(hipStreamSynchronize(stream), hipSuccess);
    assert!(read(device).iter().enumerate().all(|(i, x)| *x == i as f32 + 0.5));

    // Memory of the host's own allocator, lent to the device.
    let mut own = vec![0f32; N];
    let at: P = own.as_mut_ptr().cast();
    assert_eq!(hipHostRegister(at, BYTES, 0), hipSuccess);
    assert_eq!(hipHostRegister(at.wrapping_byte_add(64), BYTES - 64, 0), hipErrorHostMemoryAlreadyRegistered);
    let mut seen = null_mut();
    assert_eq!(hipHostGetDevicePointer(&mut seen, at, 0), hipSuccess);
    assert_eq!(add.run(stream, [device, pinned, seen]), hipSuccess);
    assert_eq!(hipStreamSynchronize(stream), hipSuccess);
    assert!(own.iter().enumerate().all(|(i, x)| *x == i as f32 + 1.0));
    assert_eq!(hipHostUnregister(at), hipSuccess);
    assert_eq!(hipHostUnregister(at), hipErrorHostMemoryNotRegistered);

    // Memory of another device.
    assert_eq!(hipSetDevice(1), hipSuccess);
    let far = made(|p| hipMalloc(p, BYTES));
    assert_eq!(hipMemcpyPeer(far, 1, device, 0, BYTES), hipSuccess);
    assert_eq!(hipSetDevice(0), hipSuccess);
    assert_eq!(add.run(stream, [far, far, managed]), hipSuccess);
    assert_eq!(hipStreamSynchronize(stream), hipSuccess);
    assert!(floats(managed).iter().enumerate().all(|(i, x)| *x == 2.0 * i as f32 + 1.0));

    // Kinds: host 1, device 2, managed 3, nothing known 0.
    for (p, kind, device) in [(pinned, 1, 0), (far, 2, 1), (managed, 3, 0), (at, 0, -2)] {
        let mut a = [0u64; 4];
        assert_eq!(hipPointerGetAttributes(&mut a, p), hipSuccess);
        assert_eq!((a[0] as u32, (a[0] >> 32) as i32), (kind, device));
    }
    for p in [managed, device, far] {
        assert_eq!(hipFree(p), hipSuccess);
    }
    assert_eq!((hipHostFree(pinned), hipFree(pinned)), (hipSuccess, hipErrorInvalidValue));
    assert_eq!(hipStreamDestroy(stream), hipSuccess);
    assert_eq!(hipModuleUnload(add.module), hipSuccess);
}

#[test]
fn copies_and_fills() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let p = made(|p| hipMalloc(p, BYTES));
    assert_eq!(hipMemsetD32(p, 0x3f80_0000, N), hipSuccess);
    assert_eq!(read(p), vec![1.0; N]);
    let s = made(|s| hipStreamCreateWithFlags(s, 0));
    assert_eq!(hipMemsetD16Async(p, 0x4000, N, s), hipSuccess);
    assert_eq!(hipStreamSynchronize(s), hipSuccess);
    let got = read(p);
    assert!(got[..N / 2].iter().all(|x| x.to_bits() == 0x4000_4000) && got[N / 2..].iter().all(|x| *x == 1.0));
    // A 3 by 2 corner out of rows of 16 floats.
    let rows: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut out = [0f32; 8];
    assert_eq!(hipMemcpy2D(p, 256, rows.as_ptr().cast(), 64, 12, 2, 1), hipSuccess);
    assert_eq!(hipMemcpy2D(out.as_mut_ptr().cast(), 16, p, 256, 12, 2, 2), hipSuccess);
    assert_eq!(out, [0.0, 1.0, 2.0, 0.0, 16.0, 17.0, 18.0, 0.0]);
    assert_eq!(hipMemcpy2D(p, 8, rows.as_ptr().cast(), 64, 12, 2, 1), hipErrorInvalidPitchValue);
    // Beyond the allocation, to nowhere, in no direction; a device side that is none.
    let host = rows.as_ptr().cast();
    assert_eq!(hipMemcpy(p, host, BYTES + 1, 1), hipErrorInvalidValue);
    assert_eq!(hipMemcpy(null_mut(), host, 4, 1), hipErrorInvalidValue);
    assert_eq!(hipMemcpy(p, host, 4, 9), hipErrorInvalidMemcpyDirection);
    assert_eq!(hipMemcpy(out.as_mut_ptr().cast(), host, 4, 1), hipErrorInvalidValue);
    assert_eq!(hipFree(p), hipSuccess);
    assert_eq!(hipMemcpy(p, host, 4, 1), hipErrorInvalidValue);
    assert_eq!(hipStreamDestroy(s), hipSuccess);
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static GATE: AtomicBool = AtomicBool::new(false);

/// Holds a stream until the gate opens, or a minute has gone by.
unsafe extern "C" fn wait_at_the_gate(_: P) {
    for _ in 0..60_000 {
        if GATE.load(Ordering::SeqCst) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

unsafe extern "C" fn count(by: P) {
    std::thread::sleep(std::time::Duration::from_millis(2));
    CALLS.fetch_add(by as u32, Ordering::SeqCst);
}

#[test]
fn streams_events_and_host_functions() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let (a, b) = (made(|s| hipStreamCreateWithFlags(s, 1)), made(|s| hipStreamCreateWithFlags(s, 1)));
    let events: Vec<P> = (0..3).map(|_| made(|e| hipEventCreateWithFlags(e, 0))).collect();
    let mut ms = 0f32;
    assert_eq!(hipEventElapsedTime(&mut ms, events[0], events[1]), hipErrorInvalidHandle);
    assert_eq!(hipEventQuery(events[0]), hipSuccess);
    assert_eq!(hipLaunchHostFunc(a, Some(wait_at_the_gate), null_mut()), hipSuccess);
    assert_eq!(hipEventRecord(events[0], a), hipSuccess);
    for _ in 0..5 {
        assert_eq!(hipLaunchHostFunc(a, Some(count), 1 as P), hipSuccess);
    }
    assert_eq!(hipEventRecord(events[1], a), hipSuccess);
    assert_eq!((hipStreamQuery(a), hipEventQuery(events[1])), (hipErrorNotReady, hipErrorNotReady));
    assert_eq!(hipEventElapsedTime(&mut ms, events[0], events[1]), hipErrorNotReady);
    GATE.store(true, Ordering::SeqCst);
    // The second stream goes on only after the first one's five calls.
    assert_eq!(hipStreamWaitEvent(b, events[1], 0), hipSuccess);
    assert_eq!(hipLaunchHostFunc(b, Some(count), 100 as P), hipSuccess);
    assert_eq!(hipEventRecord(events[2], b), hipSuccess);
    assert_eq!(hipEventSynchronize(events[1]), hipSuccess);
    assert!(CALLS.load(Ordering::SeqCst) >= 5);
    assert_eq!(hipStreamSynchronize(b), hipSuccess);
    assert_eq!(CALLS.load(Ordering::SeqCst), 105);
    assert_eq!(hipEventElapsedTime(&mut ms, events[0], events[1]), hipSuccess);
    assert!((10.0..60_000.0).contains(&ms), "five calls of 2 ms take {ms} ms");
    // One stream waits for a word that another writes.
    let word = made(|p| hipHostMalloc(p, 4, 0));
    assert_eq!(hipMemsetD32(word, 0, 1), hipSuccess);
    assert_eq!(hipStreamWaitValue32(b, word, 7, 1, u32::MAX), hipSuccess);
    assert_eq!(hipStreamQuery(b), hipErrorNotReady);
    assert_eq!(hipStreamWriteValue32(a, word, 7, 0), hipSuccess);
    assert_eq!(hipStreamSynchronize(b), hipSuccess);
    // Stream-ordered allocation.
    let p = made(|p| hipMallocAsync(p, 1 << 20, a));
    assert_eq!(hipFreeAsync(p, a), hipSuccess);
    assert_eq!(hipStreamSynchronize(a), hipSuccess);
    assert_eq!(hipFree(p), hipErrorInvalidValue);
    assert_eq!(hipHostFree(word), hipSuccess);
    for e in events {
        assert_eq!((hipEventDestroy(e), hipEventDestroy(e)), (hipSuccess, hipErrorContextIsDestroyed));
    }
    for s in [a, b] {
        assert_eq!((hipStreamDestroy(s), hipStreamSynchronize(s)), (hipSuccess, hipErrorContextIsDestroyed));
    }
}

#[test]
fn graphs_run_their_nodes_in_order() {
    let _alone = CAPTURE.write().unwrap_or_else(PoisonError::into_inner);
    let add = Adder::new();
    let stream = made(|s| hipStreamCreateWithFlags(s, 0));
    let [x, y, z] = [(); 3].map(|()| made(|p| hipMallocManaged(p, BYTES, 1)));
    let graph = made(|g| hipGraphCreate(g, 0));
    // y = 2.0, z = x + y, x = z.
    let value = 2f32.to_bits();
    let set = MemsetNode { dst: y, element: 4, height: 1, pitch: 0, value, width: N };
    let first = made(|n| hipGraphAddMemsetNode(n, graph, std::ptr::null(), 0, &set));
    let mut args = [x, y, z];
    let mut params = args.each_mut().map(|a| (a as *mut P).cast::<c_void>());
    let kernel = KernelNode {
        block: [add.launch.block, 1, 1],
        extra: null_mut(),
        function: add.function,
        grid: add.launch.grid,
        params: params.as_mut_ptr(),
        shared: 0,
    };
    let second = made(|n| hipGraphAddKernelNode(n, graph, &first, 1, &kernel));
    let third = made(|n| hipGraphAddMemcpyNode1D(n, graph, &second, 1, x, z, BYTES, 3));
    let mut nodes = 0;
    assert_eq!(hipGraphGetNodes(graph, null_mut(), &mut nodes), hipSuccess);
    assert_eq!(nodes, 3);
    let runnable = made(|r| hipGraphInstantiate(r, graph, null_mut(), null_mut(), 0));
    // The arguments were copied when the node was made.
    args = [null_mut(); 3];
    assert!(args[0].is_null());
    fill(x, |i| i as f32);
    for _ in 0..3 {
        assert_eq!(hipGraphLaunch(runnable, stream), hipSuccess);
    }
    assert_eq!(hipStreamSynchronize(stream), hipSuccess);
    assert!(floats(x).iter().enumerate().all(|(i, v)| *v == i as f32 + 6.0));
    // A circle cannot run.
    let late = made(|n| hipGraphAddEmptyNode(n, graph, &third, 1));
    assert_eq!(hipGraphAddDependencies(graph, &late, &first, 1), hipSuccess);
    let mut none = null_mut();
    assert_eq!(hipGraphInstantiate(&mut none, graph, null_mut(), null_mut(), 0), hipErrorInvalidValue);
    assert_eq!((hipGraphExecDestroy(runnable), hipGraphDestroy(graph)), (hipSuccess, hipSuccess));
    assert_eq!(hipGraphLaunch(runnable, stream), hipErrorInvalidValue);

    // The same by capturing two streams that fork and join.
    let other = made(|s| hipStreamCreateWithFlags(s, 1));
    let [fork, join] = [(); 2].map(|()| made(|e| hipEventCreateWithFlags(e, 2)));
    fill(x, |i| i as f32);
    fill(y, |_| 1.0);
    assert_eq!(hipStreamBeginCapture(stream, 0), hipSuccess);
    assert_eq!(hipEventRecord(fork, stream), hipSuccess);
    assert_eq!(hipStreamWaitEvent(other, fork, 0), hipSuccess);
    assert_eq!(add.run(other, [x, y, z]), hipSuccess);
    assert_eq!(hipEventRecord(join, other), hipSuccess);
    assert_eq!(hipStreamWaitEvent(stream, join, 0), hipSuccess);
    assert_eq!(hipMemcpyAsync(x, z, BYTES, 3, stream), hipSuccess);
    let graph = made(|g| hipStreamEndCapture(stream, g));
    assert!(floats(x)[5] == 5.0, "nothing ran yet");
    let runnable = made(|r| hipGraphInstantiate(r, graph, null_mut(), null_mut(), 0));
    for _ in 0..4 {
        assert_eq!(hipGraphLaunch(runnable, stream), hipSuccess);
    }
    assert_eq!(hipStreamSynchronize(stream), hipSuccess);
    assert!(floats(x).iter().enumerate().all(|(i, v)| *v == i as f32 + 4.0));
    // A stream that was not joined again.
    assert_eq!(hipStreamBeginCapture(stream, 0), hipSuccess);
    assert_eq!(hipEventRecord(fork, stream), hipSuccess);
    assert_eq!(hipStreamWaitEvent(other, fork, 0), hipSuccess);
    assert_eq!(add.run(other, [x, y, z]), hipSuccess);
    assert_eq!(hipStreamEndCapture(stream, &mut none), hipErrorStreamCaptureUnjoined);
    // What a capture forbids ends it: who waits gets an error, and so does everybody who goes on.
    let mut status = 7;
    let forbidden: [&dyn Fn() -> u32; 6] = [
        &|| hipStreamSynchronize(other),
        &|| hipStreamQuery(stream),
        &|| hipEventSynchronize(fork),
        &|| hipMemcpy(x, z, BYTES, 3),
        &|| hipDeviceSynchronize(),
        &|| hipMalloc(&mut null_mut(), 16),
    ];
    let expected = [900, 900, 907, 906, 900, 900];
    for (what, code) in forbidden.iter().zip(expected) {
        assert_eq!(hipStreamBeginCapture(stream, 0), hipSuccess);
        assert_eq!(hipEventRecord(fork, stream), hipSuccess);
        assert_eq!(hipStreamWaitEvent(other, fork, 0), hipSuccess);
        assert_eq!(what(), code);
        assert_eq!((hipStreamIsCapturing(stream, &mut status), status), (hipSuccess, 2));
        assert_eq!(add.run(other, [x, y, z]), hipErrorStreamCaptureInvalidated);
        assert_eq!(hipEventRecord(join, stream), hipErrorStreamCaptureInvalidated);
        assert_eq!(hipStreamEndCapture(stream, &mut none), hipErrorStreamCaptureInvalidated);
        assert!(none.is_null());
        assert_eq!((hipStreamIsCapturing(other, &mut status), status), (hipSuccess, 0));
        assert_eq!(add.run(other, [x, y, z]), hipSuccess);
        assert_eq!(hipStreamSynchronize(other), hipSuccess);
    }
    for p in [x, y, z] {
        assert_eq!(hipFree(p), hipSuccess);
    }
}

#[test]
fn kernels_tell_what_they_need() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let add = Adder::new();
    let (mut threads, mut lds, mut blocks) = (0, -1, 0);
    assert_eq!(hipFuncGetAttribute(&mut threads, 0, add.function), hipSuccess);
    assert_eq!(hipFuncGetAttribute(&mut lds, 1, add.function), hipSuccess);
    assert_eq!((threads as u32, lds), (add.launch.block, 0));
    let occupancy = hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add.function, threads, 0);
    assert!(occupancy == hipSuccess && blocks > 0);
    // Too many workitems, too much LDS, no workgroups, no arguments.
    let mut params = [null_mut(); 3];
    let mut try_launch = |grid: u32, block: u32, shared: u32, params_missing: bool| {
        let list = if params_missing { null_mut() } else { params.as_mut_ptr() };
        hipModuleLaunchKernel(add.function, grid, 1, 1, block, 1, 1, shared, null_mut(), list, null_mut())
    };
    assert_eq!(try_launch(1, 2048, 0, false), hipErrorInvalidValue);
    assert_eq!(try_launch(1, add.launch.block, 1 << 20, false), hipErrorInvalidValue);
    assert_eq!(try_launch(0, add.launch.block, 0, false), hipErrorInvalidValue);
    assert_eq!(try_launch(1, add.launch.block, 0, true), hipErrorInvalidValue);
    assert_eq!(try_launch(1, add.launch.block, 0, false), hipErrorInvalidValue, "null pointers to arguments");
}

/// A kernel that does nothing with many registers, and says nothing about its workgroups.
#[test]
fn a_workgroup_whose_registers_no_compute_unit_has_is_not_launched() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let mut code = Vec::new();
    encode(Target::GFX942, &Inst::new(op::S_ENDPGM, &[], &[Operand::Imm(0)]), &mut code).unwrap();
    let mut kernel = codeobj::Kernel::new(Target::GFX942, "wide", code);
    (kernel.vgprs, kernel.max_flat_workgroup_size) = (256, 1024);
    let file = CodeObject { target: Target::GFX942, abi: Abi::V5, kernels: vec![kernel], sections: vec![] };
    let file = file.to_bytes().unwrap();
    let module = made(|m| hipModuleLoadData(m, file.as_ptr().cast()));
    let wide = made(|f| hipModuleGetFunction(f, module, c"wide".as_ptr()));
    let launch = |block| hipModuleLaunchKernel(wide, 1, 1, 1, block, 1, 1, 0, null_mut(), null_mut(), null_mut());
    // Two waves of 256 registers are the 512 of a SIMD.
    assert_eq!([512, 513, 1024].map(launch), [hipSuccess, hipErrorLaunchOutOfResources, hipErrorLaunchOutOfResources]);
    let mut blocks = -1;
    for (threads, fit) in [(512, 1), (1024, 0)] {
        let found = hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, wide, threads, 0);
        assert_eq!((found, blocks), (hipSuccess, fit));
    }
    // It was refused before it began: the device goes on.
    assert_eq!((hipDeviceSynchronize(), hipModuleUnload(module)), (hipSuccess, hipSuccess));
}

#[test]
fn mistakes_are_errors() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    assert_eq!((hipInit(0), hipInit(1)), (hipSuccess, hipErrorInvalidValue));
    let mut n = 0;
    assert_eq!((hipGetDeviceCount(&mut n), n), (hipSuccess, 2));
    assert_eq!(hipGetDeviceCount(null_mut()), hipErrorInvalidValue);
    assert_eq!((hipPeekAtLastError(), hipGetLastError()), (hipErrorInvalidValue, hipErrorInvalidValue));
    assert_eq!(hipGetLastError(), hipSuccess);
    assert_eq!((hipSetDevice(2), hipSetDevice(-1)), (hipErrorInvalidDevice, hipErrorInvalidDevice));
    assert_eq!(hipDeviceGetAttribute(&mut n, 87, 0), hipSuccess);
    assert_eq!(n, 64, "lanes of a wave");
    assert_eq!(hipDeviceGetAttribute(&mut n, 5000, 0), hipErrorInvalidValue);
    // Wrong handles of all kinds: null, small, wild, of another kind.
    let event = made(|e| hipEventCreateWithFlags(e, 0));
    for wild in [null_mut(), 3 as P, 0xdead_beef as P, event] {
        let mut out = null_mut();
        let gone = if wild.is_null() { hipErrorInvalidHandle } else { hipErrorNotFound };
        assert_eq!(hipModuleUnload(wild), gone);
        assert_eq!(hipModuleGetFunction(&mut out, wild, c"k".as_ptr()), hipErrorInvalidHandle);
        assert_eq!(hipGraphLaunch(wild, null_mut()), hipErrorInvalidValue);
        let launch = hipModuleLaunchKernel(wild, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut());
        assert_eq!(launch, hipErrorInvalidHandle);
        assert!(wild.is_null() || hipStreamSynchronize(wild) == hipErrorContextIsDestroyed);
        assert!(wild.is_null() || hipFree(wild) == hipErrorInvalidValue);
        assert!(wild == event || hipEventRecord(wild, null_mut()) == hipErrorInvalidHandle);
    }
    assert_eq!(hipFree(null_mut()), hipSuccess);
    // Code that is none, and code for another device.
    let mut out = null_mut();
    let junk = [7u8; 256];
    assert_eq!(hipModuleLoadData(&mut out, junk.as_ptr().cast()), hipErrorInvalidImage);
    assert_eq!(hipModuleLoadData(&mut out, std::ptr::null()), hipErrorInvalidValue);
    let foreign = program("examples/vector_add/vector_add.onnx", "gfx1100").code().clone();
    assert_eq!(hipModuleLoadData(&mut out, foreign.as_ptr().cast()), hipErrorNoBinaryForGpu);
    // More memory than there is (8 GiB a device here), and what was given back is there again.
    assert_eq!(hipMalloc(&mut out, 9 << 30), hipErrorOutOfMemory);
    assert_eq!(hipMalloc(&mut out, usize::MAX), hipErrorOutOfMemory);
    let big = made(|p| hipMalloc(p, 5 << 30));
    let (mut free, mut total) = (0, 0);
    assert_eq!(hipMemGetInfo(&mut free, &mut total), hipSuccess);
    assert!(total == 8 << 30 && free <= 3 << 30, "{free} of {total}");
    assert_eq!(hipFree(big), hipSuccess);
    // Contexts stack.
    let mut context = null_mut();
    assert_eq!(hipDevicePrimaryCtxRetain(&mut context, 1), hipSuccess);
    assert_eq!((hipCtxPushCurrent(context), hipCtxPopCurrent(&mut out)), (hipSuccess, hipSuccess));
    assert_eq!((out, hipCtxPopCurrent(&mut out)), (context, hipErrorInvalidContext));
    // What there is not says so.
    assert_eq!(hipMallocArray(null_mut()), hipErrorNotSupported);
    assert_eq!(hipDeviceSynchronize(), hipSuccess);
}

unsafe extern "C" fn slowly_set(flag: P) {
    std::thread::sleep(std::time::Duration::from_millis(150));
    // SAFETY: the tests pass flags that live for ever.
    unsafe { &*flag.cast::<AtomicBool>() }.store(true, Ordering::SeqCst);
}

/// Work that is still queued when its stream is destroyed is done, and waited for by all that waits for the device.
#[test]
fn a_destroyed_stream_lives_until_its_work_is_done() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    type Wait = fn() -> u32;
    let by_free: Wait = || hipFree(made(|p| hipMalloc(p, 64)));
    let by_copy: Wait = || {
        let (p, mut host) = (made(|p| hipMalloc(p, 4)), 0u32);
        let r = hipMemcpy(p, (&raw mut host).cast(), 4, 1);
        // A copy without a stream is one in the default stream, which waits for blocking ones.
        assert_eq!(hipFree(p), hipSuccess);
        r
    };
    let by_default: Wait = || hipStreamSynchronize(null_mut());
    for wait in [|| hipDeviceSynchronize(), by_free, by_copy, by_default] {
        let done: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let s = made(|s| hipStreamCreateWithFlags(s, 0));
        let flag = (done as *const AtomicBool).cast_mut().cast();
        assert_eq!(hipLaunchHostFunc(s, Some(slowly_set), flag), hipSuccess);
        assert_eq!(hipStreamDestroy(s), hipSuccess);
        assert_eq!((hipStreamQuery(s), hipStreamDestroy(s)), (hipErrorContextIsDestroyed, hipErrorContextIsDestroyed));
        assert_eq!(wait(), hipSuccess);
        assert!(done.load(Ordering::SeqCst));
    }
}

#[test]
fn the_default_stream_is_busy_with_the_blocking_ones() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let done: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let flag = (done as *const AtomicBool).cast_mut().cast();
    let s = made(|s| hipStreamCreateWithFlags(s, 0));
    assert_eq!(hipLaunchHostFunc(s, Some(slowly_set), flag), hipSuccess);
    let query = hipStreamQuery(null_mut());
    assert!(query == hipErrorNotReady || done.load(Ordering::SeqCst), "{query}");
    assert_eq!(hipStreamSynchronize(null_mut()), hipSuccess);
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(hipStreamDestroy(s), hipSuccess);
}

/// A code object with a variable of 16 bytes.
fn with_variable() -> Vec<u8> {
    let source = "
        .text
        .globl k
        .p2align 8
        .type k,@function
    k:
        s_endpgm
        .size k, .-k
        .data
        .globl table
        .p2align 4
        .type table,@object
    table:
        .long 1, 2, 3, 4
        .size table, 16
        .rodata
        .p2align 6
        .amdhsa_kernel k
            .amdhsa_next_free_vgpr 8
            .amdhsa_next_free_sgpr 16
            .amdhsa_accum_offset 8
        .end_amdhsa_kernel
    ";
    let target = barewave_isa::Target::GFX942;
    let mode = barewave_isa::Mode::of(target);
    let assembly = barewave_isa::assemble(target, mode, source).unwrap();
    barewave::codeobj::link_assembly(target, mode, &assembly, barewave::codeobj::Abi::V5).unwrap()
}

#[test]
fn variables_of_modules_are_copied_and_set() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let code = with_variable();
    let m = made(|m| hipModuleLoadData(m, code.as_ptr().cast()));
    let mut size = 0;
    let p = made(|p| hipModuleGetGlobal(p, &mut size, m, c"table".as_ptr()));
    assert_eq!(size, 16);
    let fetch = |kind| {
        let mut host = [0u32; 4];
        assert_eq!(hipMemcpy((&raw mut host).cast(), p, 16, kind), hipSuccess);
        host
    };
    assert_eq!(fetch(2), [1, 2, 3, 4]);
    assert_eq!(hipMemset(p.wrapping_byte_add(4), 0, 8), hipSuccess);
    assert_eq!(fetch(4), [1, 0, 0, 4]);
    let nines = [9u32; 4];
    assert_eq!(hipMemcpy(p, nines.as_ptr().cast(), 16, 1), hipSuccess);
    assert_eq!(fetch(2), nines);
    let mut host = [0u32; 4];
    let here = (&raw mut host).cast();
    assert_eq!(hipMemcpy(here, p, 1 << 30, 2), hipErrorInvalidValue);
    assert_eq!(hipFree(p), hipErrorInvalidValue);
    assert_eq!(hipModuleUnload(m), hipSuccess);
    assert_eq!(hipMemcpy(here, p, 16, 2), hipErrorInvalidValue);
}

#[cfg(unix)]
#[test]
fn the_child_of_a_fork_fails_cleanly() {
    let _no_capture = CAPTURE.read().unwrap_or_else(PoisonError::into_inner);
    let mut n = 0;
    assert_eq!(hipGetDeviceCount(&mut n), hipSuccess);
    let s = made(|s| hipStreamCreateWithFlags(s, 0));
    assert_eq!(hipStreamSynchronize(s), hipSuccess);
    // Found before the fork: the loader's locks may be held by another thread.
    // SAFETY: the signature of the HIP API.
    let wait = unsafe { DRIVER.get::<unsafe extern "C" fn() -> u32>(b"hipDeviceSynchronize\0").unwrap() };
    // SAFETY: the child calls the driver once and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(if wait() == hipErrorNotInitialized { 7 } else { 8 }) };
    }
    let start = std::time::Instant::now();
    let mut status = 0;
    // SAFETY: waits for our own child.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if start.elapsed().as_secs() > 20 {
            // SAFETY: ends our own child.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert_eq!(hipStreamDestroy(s), hipSuccess);
}
