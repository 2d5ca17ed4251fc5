//! What a model has on its device: code, weights, the launches of its plans, memory.
//!
//! Each piece gives back what it holds when it is dropped; the session waits for its stream before it drops one.

use super::device::{Device, DeviceError, EventId, HostBuffer, KernelId, LaunchShape, ModuleId, StreamId};
use super::plan::{Address, InPlace, Launch, Plan, Region};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex};

/// Weights in device memory, which sessions may share.
pub(super) struct DeviceWeights(Block);

impl DeviceWeights {
    pub(super) fn new(device: &Arc<dyn Device>, weights: &[u8]) -> Result<Arc<DeviceWeights>, DeviceError> {
        let block = DeviceWeights::room(device, weights.len())?;
        device.write(block.address, weights)?;
        Ok(Arc::new(DeviceWeights(block)))
    }

    /// So many bytes, which `pieces` hands to its argument with the place of each: no second copy is made on the host.
    pub(super) fn from_pieces(
        device: &Arc<dyn Device>,
        bytes: usize,
        pieces: impl FnOnce(&mut dyn FnMut(usize, &[u8]) -> Result<(), DeviceError>) -> Result<(), DeviceError>,
    ) -> Result<Arc<DeviceWeights>, DeviceError> {
        let block = DeviceWeights::room(device, bytes)?;
        pieces(&mut |at, piece| device.write(block.address + at as u64, piece))?;
        Ok(Arc::new(DeviceWeights(block)))
    }

    fn room(device: &Arc<dyn Device>, bytes: usize) -> Result<Block, DeviceError> {
        let mut block = Block::none(device);
        block.reserve(bytes as u64)?;
        Ok(block)
    }
}

/// Device memory, which may be none yet.
pub(super) struct Block {
    device: Arc<dyn Device>,
    /// Where it begins.
    pub(super) address: u64,
    bytes: u64,
}

impl Block {
    pub(super) fn none(device: &Arc<dyn Device>) -> Block {
        Block { device: device.clone(), address: 0, bytes: 0 }
    }

    /// True when it has room for so many bytes.
    pub(super) fn holds(&self, bytes: u64) -> bool {
        bytes.max(1) <= self.bytes
    }

    /// Makes it have room for so many bytes (one at least), by half more than before when it has to grow at all, so that what
    /// grows step by step rarely moves. What was in it is lost then, and what uses it must be done. True when it has grown.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<bool, DeviceError> {
        let bytes = bytes.max(1);
        if self.holds(bytes) {
            return Ok(false);
        }
        let ample = bytes.max(self.bytes.saturating_add(self.bytes / 2));
        self.release()?;
        (self.address, self.bytes) = match self.device.alloc(ample) {
            Ok(address) => (address, ample),
            Err(_) if ample > bytes => (self.device.alloc(bytes)?, bytes),
            Err(e) => return Err(e),
        };
        Ok(true)
    }

    /// Fills it with zeros.
    pub(super) fn clear(&self) -> Result<(), DeviceError> {
        if self.bytes == 0 { Ok(()) } else { self.device.write(self.address, &vec![0; self.bytes as usize]) }
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        if std::mem::take(&mut self.bytes) == 0 { Ok(()) } else { self.device.free(self.address) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A device that fails here has failed before, where somebody was told.
        let _ = self.release();
    }
}

/// Code on a device.
pub(super) struct DeviceCode {
    device: Arc<dyn Device>,
    module: ModuleId,
    /// The file it came from, to know it again.
    file: Bytes,
    kernels: Mutex<FxHashMap<String, KernelId>>,
}

impl DeviceCode {
    pub(super) fn load(device: &Arc<dyn Device>, file: Bytes) -> Result<Arc<DeviceCode>, DeviceError> {
        let module = device.load(&file)?;
        Ok(Arc::new(DeviceCode { device: device.clone(), module, file, kernels: Mutex::default() }))
    }

    /// True when it is the code of this file.
    pub(super) fn is(&self, file: &[u8]) -> bool {
        self.file[..] == *file
    }

    fn kernel(&self, name: &str) -> Result<KernelId, DeviceError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = kernels.get(name) {
            return Ok(*known);
        }
        let kernel = self.device.kernel(self.module, name)?;
        kernels.insert(name.to_string(), kernel);
        Ok(kernel)
    }
}

impl Drop for DeviceCode {
    fn drop(&mut self) {
        // As above.
        let _ = self.device.unload(self.module);
    }
}

/// A launch; its arguments are addresses once memory is bound.
pub(super) struct Prepared {
    pub(super) kernel: KernelId,
    pub(super) shape: LaunchShape,
    pub(super) kernarg: Vec<u8>,
    /// It would copy what lies in its place already.
    pub(super) idle: bool,
}

/// A plan on the device.
pub(super) struct Loaded {
    pub(super) plan: Arc<Plan>,
    pub(super) launches: Vec<Prepared>,
    pub(super) weights: Arc<DeviceWeights>,
    pub(super) code: Arc<DeviceCode>,
}

impl Loaded {
    /// Plans of one code object with its weights.
    pub(super) fn all(
        plans: Vec<Arc<Plan>>,
        code: &Arc<DeviceCode>,
        weights: &Arc<DeviceWeights>,
    ) -> Result<Vec<Loaded>, DeviceError> {
        let prepare = |launch: &Launch| {
            let shape = LaunchShape { grid: launch.grid, block: [launch.block, 1, 1], dynamic_lds: 0 };
            Ok(Prepared { kernel: code.kernel(&launch.kernel)?, shape, kernarg: Vec::new(), idle: false })
        };
        let load = |plan: Arc<Plan>| {
            let launches = plan.launches.iter().map(prepare).collect::<Result<_, DeviceError>>()?;
            Ok(Loaded { plan, launches, weights: weights.clone(), code: code.clone() })
        };
        plans.into_iter().map(load).collect()
    }

    /// Makes the kernels' arguments for memory at these addresses of a device.
    pub(super) fn address(
        &mut self,
        device: &dyn Device,
        arena: u64,
        counters: u64,
        inputs: &[Slot],
        outputs: &[Slot],
    ) {
        let address = |a: &Address| {
            a.offset
                + match a.region {
                    Region::Arena => arena,
                    Region::Counters => counters,
                    Region::Weights => self.weights.0.address,
                    Region::Input(i) => inputs[i].address(),
                    Region::Output(i) => outputs[i].address(),
                    Region::Value => 0,
                }
        };
        for (launch, planned) in self.launches.iter_mut().zip(&self.plan.launches) {
            launch.kernarg.clear();
            launch.kernarg.extend(planned.args.iter().flat_map(|a| address(a).to_le_bytes()));
            let there = |p: &InPlace| inputs[p.input].address() == outputs[p.output].address();
            launch.idle = !planned.copies.is_empty() && planned.copies.iter().all(there);
        }
        self.plan.joined.iter().for_each(|(a, bytes)| device.assume_written(address(a), *bytes));
    }
}

/// Where an input or output lies.
pub(super) enum Slot {
    /// In memory of the session, filled from or read into a host buffer.
    Own {
        /// Device memory.
        memory: Block,
        /// Host memory, as long as the tensor.
        staging: HostBuffer,
    },
    /// In memory of the caller.
    Bound {
        /// Device address.
        address: u64,
    },
    /// In memory of the session that is not there yet.
    Unset,
}

impl Slot {
    fn address(&self) -> u64 {
        match self {
            Slot::Own { memory, .. } => memory.address,
            Slot::Bound { address } => *address,
            Slot::Unset => 0,
        }
    }

    /// The caller's address.
    pub(super) fn bound(&self) -> Option<u64> {
        match self {
            Slot::Bound { address } => Some(*address),
            _ => None,
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        self.bound().is_some()
    }

    /// Makes room for a tensor of so many bytes where it is the session's to have it.
    pub(super) fn reserve(&mut self, device: &Arc<dyn Device>, bytes: usize) -> Result<(), DeviceError> {
        if let Slot::Unset = self {
            *self = Slot::Own { memory: Block::none(device), staging: device.host_buffer(bytes)? };
        }
        if let Slot::Own { memory, staging } = self {
            memory.reserve(bytes as u64)?;
            if !staging.set_len(bytes) {
                let ample = bytes.max(staging.capacity() / 2 * 3);
                *staging = device.host_buffer(ample)?;
                staging.set_len(bytes);
            }
        }
        Ok(())
    }
}

/// Streams and events of a session.
pub(super) struct Held {
    device: Arc<dyn Device>,
    /// Its own stream.
    pub(super) stream: StreamId,
    /// The stream that work was last put into, if it is the caller's.
    pub(super) foreign: Option<StreamId>,
    /// Before the first launch, and after the last; with timing also in between.
    pub(super) events: Vec<EventId>,
}

impl Held {
    pub(super) fn new(device: &Arc<dyn Device>) -> Result<Held, DeviceError> {
        let stream = device.create_stream()?;
        Ok(Held { device: device.clone(), stream, foreign: None, events: Vec::new() })
    }

    /// Makes sure that there are so many events.
    pub(super) fn want_events(&mut self, count: usize) -> Result<(), DeviceError> {
        while self.events.len() < count {
            self.events.push(self.device.create_event()?);
        }
        Ok(())
    }

    /// The stream that work goes to.
    pub(super) fn current(&self) -> StreamId {
        self.foreign.unwrap_or(self.stream)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A device that fails here has failed before, where somebody was told.
        if let Some(stream) = self.foreign {
            let _ = self.device.synchronize(stream);
        }
        let _ = self.device.synchronize(self.stream);
        let _ = self.device.destroy_stream(self.stream);
        for event in &self.events {
            let _ = self.device.destroy_event(*event);
        }
    }
}
