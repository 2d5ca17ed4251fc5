//! Memory that graphs allocate. A node has its address from the start, so that other nodes can name it: the range is
//! reserved as long as a graph or an instance knows it. Launching the node makes it live, a free node, `hipFree` or
//! `hipFreeAsync` ends that.

use crate::api::{INVALID, Result, err, get, put};
use crate::memory;
use crate::state::{self, device, lock};
use barewave_emu::hip::code::*;
use std::ffi::{c_int, c_uint, c_void};

/// A reserved range.
pub struct GraphMemory {
    /// Address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Number of the device.
    pub device: i32,
}

/// Bytes of graphs on a device: live, most so far; and the same once more as what is held for graphs.
#[derive(Clone, Copy, Default)]
pub struct Counters([u64; 4]);

impl Counters {
    fn count(&mut self, bytes: u64, more: bool) {
        for which in [0, 2] {
            let now = &mut self.0[which];
            *now = if more { *now + bytes } else { now.saturating_sub(bytes) };
            self.0[which + 1] = self.0[which + 1].max(self.0[which]);
        }
    }
}

impl GraphMemory {
    /// Reserves a range.
    pub fn reserve(on: i32, size: u64) -> Result<GraphMemory> {
        let d = device(on)?;
        let start = memory::reserve_for_graph(d, size)?;
        Ok(GraphMemory { start, size, device: on })
    }

    /// It was allocated by a launch and not freed since.
    pub fn live(&self) -> bool {
        memory::live(self.start)
    }

    /// A launch reaches the allocation.
    pub fn make_live(&self) {
        if memory::set_live(self.start, true)
            && let Ok(d) = device(self.device)
        {
            lock(&d.graph_memory).count(self.size, true);
        }
    }
}

/// Counts that memory of a graph was freed.
pub fn freed(on: i32, size: u64) {
    if let Ok(d) = device(on) {
        lock(&d.graph_memory).count(size, false);
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        if memory::set_live(self.start, false) {
            freed(self.device, self.size);
        }
        memory::forget_graph_range(self.start);
    }
}

hip! {
    fn hipDeviceGetGraphMemAttribute(on: c_int, which: c_uint, value: *mut c_void) {
        let c = *lock(&device(on)?.graph_memory);
        put(value.cast::<u64>(), *c.0.get(which as usize).ok_or(INVALID)?)
    }
    fn hipDeviceSetGraphMemAttribute(on: c_int, which: c_uint, value: *mut c_void) {
        let d = device(on)?;
        // Only the peaks can be set, and only back.
        if !matches!(which, 1 | 3) || get(value.cast::<u64>())? != 0 {
            return Err(INVALID);
        }
        let mut c = lock(&d.graph_memory);
        c.0[which as usize] = c.0[which as usize - 1];
        Ok(())
    }
    fn hipDeviceGraphMemTrim(on: c_int) {
        // Nothing is kept that no graph needs.
        state::device(on).map(drop).or_else(|_| err(hipErrorInvalidDevice))
    }
}
