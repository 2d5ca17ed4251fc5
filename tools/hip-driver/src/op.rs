//! What a stream can do, as data: run at once or later, once or each time a graph is launched.

use crate::api::Result;
use crate::graph_memory::GraphMemory;
use crate::memory;
use crate::module::LaunchSpec;
use crate::state::{Device, EventEntry, Stream};
use crate::types::{hipHostFn_t, hipMemcpyKind};
use std::ffi::c_void;
use std::sync::Arc;

/// A pointer that travels between threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ptr(pub u64);

impl From<*mut c_void> for Ptr {
    fn from(p: *mut c_void) -> Ptr {
        Ptr(p as u64)
    }
}
impl From<*const c_void> for Ptr {
    fn from(p: *const c_void) -> Ptr {
        Ptr(p as u64)
    }
}

/// Rows of bytes in two and three dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// First byte.
    pub start: Ptr,
    /// Bytes from a row to the next.
    pub pitch: u64,
    /// Bytes from a slice to the next.
    pub slice: u64,
}

impl Rows {
    /// Bytes on one line.
    pub fn line(start: impl Into<Ptr>) -> Rows {
        Rows { start: start.into(), pitch: 0, slice: 0 }
    }

    /// Bytes from the first to behind the last of an extent (width, height, depth).
    pub fn span(&self, extent: [u64; 3]) -> Option<u64> {
        let [width, height, depth] = extent;
        if extent.contains(&0) {
            return Some(0);
        }
        let rows = self.pitch.checked_mul(height - 1)?;
        self.slice.checked_mul(depth - 1)?.checked_add(rows)?.checked_add(width)
    }
}

/// An operation.
#[derive(Clone)]
pub enum Op {
    /// Nothing.
    Empty,
    /// A kernel.
    Kernel(Arc<LaunchSpec>),
    /// A copy of `extent` (bytes, rows, slices).
    Copy {
        /// To.
        to: Rows,
        /// From.
        from: Rows,
        /// How much.
        extent: [u64; 3],
        /// The direction that the program gave.
        kind: hipMemcpyKind,
    },
    /// A fill with elements of `element` bytes.
    Set {
        /// To.
        to: Rows,
        /// Value, its low bytes count.
        value: u32,
        /// 1, 2 or 4.
        element: u32,
        /// How much, in bytes.
        extent: [u64; 3],
    },
    /// A call of the host.
    Host(HostCall),
    /// An event is reached.
    Record(Arc<EventEntry>),
    /// An event is waited for.
    Wait(Arc<EventEntry>),
    /// Memory of a graph is allocated.
    Alloc(Arc<GraphMemory>),
    /// Memory is given back.
    Free(Ptr),
    /// A number is written for others to see.
    Write {
        /// Where.
        to: Ptr,
        /// What.
        value: u64,
        /// 4 or 8.
        bytes: u32,
    },
    /// Waits until a number that others write fulfils a condition.
    Until {
        /// Where.
        from: Ptr,
        /// Compared with.
        value: u64,
        /// Bits that count.
        mask: u64,
        /// 0 at least, 1 equal, 2 common bits, 3 not all bits.
        condition: u32,
        /// 4 or 8.
        bytes: u32,
    },
    /// Everything in another graph, in order.
    Child(Arc<Vec<Op>>),
}

/// A function of the host with its argument.
#[derive(Clone, Copy)]
pub struct HostCall {
    /// The function.
    pub function: hipHostFn_t,
    /// Its argument.
    pub argument: Ptr,
}

impl Op {
    /// Puts the operation into a stream.
    pub fn enqueue(&self, device: &Arc<Device>, stream: &Arc<Stream>) {
        let queue = &stream.queue;
        match self {
            Op::Empty => {}
            Op::Record(e) => e.record(queue),
            Op::Wait(e) => e.hold(queue),
            Op::Child(ops) => ops.iter().for_each(|op| op.enqueue(device, stream)),
            // Whoever waits for a call must get it also when a kernel before it has failed.
            Op::Host(call) => {
                let call = *call;
                queue.push_always(move || call.run());
            }
            Op::Alloc(m) => {
                let m = m.clone();
                queue.push_always(move || m.make_live());
            }
            Op::Free(p) => {
                let p = *p;
                queue.push_always(move || {
                    let _ = memory::release(p.0);
                });
            }
            Op::Kernel(_) | Op::Copy { .. } | Op::Set { .. } | Op::Write { .. } | Op::Until { .. } => {
                let (op, device) = (self.clone(), device.clone());
                queue.push(move || {
                    device.check_fault()?;
                    op.run(&device)
                });
            }
        }
    }

    /// Does the operation on the calling thread.
    fn run(&self, device: &Device) -> Result {
        match self {
            Op::Kernel(spec) => spec.run(device),
            Op::Copy { to, from, extent, .. } => {
                let [width, height, depth] = *extent;
                for z in 0..depth {
                    for y in 0..height {
                        let at = |r: &Rows| r.start.0 + z * r.slice + y * r.pitch;
                        // SAFETY: device ranges were checked when the copy was asked for, host ranges are the caller's
                        // word; they may overlap.
                        unsafe { std::ptr::copy(at(from) as *const u8, at(to) as *mut u8, width as usize) };
                        memory::wrote(at(to), width);
                    }
                }
                Ok(())
            }
            Op::Set { to, value, element, extent } => {
                let [width, height, depth] = *extent;
                let bytes = value.to_le_bytes();
                for z in 0..depth {
                    for y in 0..height {
                        let at = to.start.0 + z * to.slice + y * to.pitch;
                        // SAFETY: as for copies.
                        let row = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, width as usize) };
                        if *element == 1 {
                            row.fill(bytes[0]);
                        } else {
                            let n = *element as usize;
                            row.chunks_exact_mut(n).for_each(|c| c.copy_from_slice(&bytes[..n]));
                        }
                        memory::wrote(at, width);
                    }
                }
                Ok(())
            }
            Op::Write { to, value, bytes } => {
                // SAFETY: the caller's word; aligned by the check at the call.
                unsafe {
                    if *bytes == 8 {
                        std::sync::atomic::AtomicU64::from_ptr(to.0 as *mut u64)
                            .store(*value, std::sync::atomic::Ordering::Release);
                    } else {
                        std::sync::atomic::AtomicU32::from_ptr(to.0 as *mut u32)
                            .store(*value as u32, std::sync::atomic::Ordering::Release);
                    }
                }
                memory::wrote(to.0, u64::from(*bytes));
                Ok(())
            }
            Op::Until { from, value, mask, condition, bytes } => loop {
                // SAFETY: as above.
                let seen = unsafe {
                    if *bytes == 8 {
                        std::sync::atomic::AtomicU64::from_ptr(from.0 as *mut u64)
                            .load(std::sync::atomic::Ordering::Acquire)
                    } else {
                        let seen = std::sync::atomic::AtomicU32::from_ptr(from.0 as *mut u32)
                            .load(std::sync::atomic::Ordering::Acquire);
                        u64::from(seen)
                    }
                };
                let (seen, value) = (seen & mask, value & mask);
                let done = match condition {
                    0 => seen >= value,
                    1 => seen == value,
                    2 => seen & value != 0,
                    _ => !(seen | value) & mask != 0,
                };
                if done {
                    return Ok(());
                }
                device.check_fault()?;
                std::thread::sleep(std::time::Duration::from_micros(20));
            },
            Op::Empty | Op::Record(_) | Op::Wait(_) | Op::Child(_) | Op::Host(_) | Op::Alloc(_) | Op::Free(_) => Ok(()),
        }
    }
}

impl HostCall {
    /// Makes the call.
    pub fn run(self) {
        if let Some(f) = self.function {
            // SAFETY: the caller of the API gave function and argument for this.
            unsafe { f(self.argument.0 as *mut c_void) };
        }
    }
}

/// Puts an operation into a stream, as node of a graph when the stream is captured.
pub fn submit(stream: &Arc<Stream>, op: Op) -> Result {
    if crate::capture::keep(stream, &op)? {
        return Ok(());
    }
    let device = crate::state::device(stream.device)?;
    device.check_fault()?;
    crate::stream::order_with_default(device, stream);
    op.enqueue(device, stream);
    Ok(())
}

/// Does an operation in a stream and waits for it.
pub fn submit_and_wait(stream: &Arc<Stream>, op: Op) -> Result {
    crate::capture::forbid(stream)?;
    submit(stream, op)?;
    let done = stream.queue.wait();
    done.and(crate::state::device(stream.device)?.check_fault())
}
