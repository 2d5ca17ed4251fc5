//! A drop-in `libamdhip64.so` over barewave's emulated devices.
//!
//! A program that was written for the HIP API finds this library in place of AMD's (through `LD_LIBRARY_PATH`, say) and
//! runs unchanged: its code objects are executed by the emulator.
//!
//! | environment | |
//! |---|---|
//! | `BAREWAVE_TARGET` | devices: `gfx942` (default), `gfx1100,gfx90a:xnack+`, `mi300x` |
//! | `BAREWAVE_STRICT=1` | every launch is checked for undefined behaviour |
//! | `BAREWAVE_MEMORY` | memory of a device in GiB (192) |
//! | `BAREWAVE_COMPUTE_UNITS` | compute units that every device says it has (those of the real card) |
//! | `BAREWAVE_TIMEOUT` | seconds after which a kernel that still runs is stopped (600), 0 for never |
//! | `BAREWAVE_CLOCK` | `real` (default): clocks of kernels run at 100 MHz; `deterministic`: they count instructions |
//! | `BAREWAVE_LOG` | 0 nothing, 1 faults and unsupported calls (default), 3 every call; `AMD_LOG_LEVEL` counts likewise |
//!
//! **How it works.** All devices share one unified address space: device addresses are host addresses, so that managed
//! and host memory, peer copies and registered host memory need no translation (`memory`). A stream is an in-order
//! queue with its own thread; whatever a stream does is an `op::Op`, which is run at once, put into a queue or, while
//! a stream is captured or a graph built, kept as a node (`stream`, `graph`). Handles are numbers that are looked up
//! (`state`): a wrong one gives an error, never a crash. A kernel fault is reported on stderr with all the emulator
//! knows, and the device then returns `hipErrorIllegalAddress` or `hipErrorLaunchFailure` until it is reset.
//!
//! Compiling at run time (hiprtc), BLAS (hipBLAS) and the code object manager (comgr) are libraries of their own and not
//! here: compile kernels ahead, with barewave or clang.
//!
//! What HIP has and this library has not returns `hipErrorNotSupported` with one line on stderr (`unsupported`).

#![allow(non_camel_case_types, non_snake_case)]
// The contracts of exported functions are those of the HIP API.
#![allow(clippy::missing_safety_doc, missing_docs, unused_unsafe)]

#[macro_use]
mod api;
mod capture;
mod cooperative;
mod copy;
mod device;
mod errors;
mod fork;
mod graph;
mod graph_memory;
mod graph_nodes;
mod hostcall;
mod ipc;
mod managed;
mod memory;
mod module;
mod occupancy;
mod op;
mod per_thread;
mod pool;
pub mod printf;
mod program;
mod shared_memory;
mod state;
mod stream;
mod symbols;
mod types;
mod unsupported;
mod user_object;
mod vmm;
