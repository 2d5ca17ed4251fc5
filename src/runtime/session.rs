//! A compiled model on a device: its stream, its arena, its weights, and runs.

use super::device::{Device, DeviceError, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats, ModuleId, StreamId};
use super::plan::{Address, Plan, Port, Region};
use crate::tensor::HostTensor;
use crate::verify;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An input does not fit the model.
    #[error("input '{name}' must be {expected}, not {given}")]
    Input {
        /// Input.
        name: String,
        /// Type and shape the model takes.
        expected: String,
        /// What was given.
        given: String,
    },
    /// Number of inputs.
    #[error("the model takes {expected} inputs ({names}), not {given}")]
    InputCount {
        /// How many the model takes.
        expected: usize,
        /// Their names.
        names: String,
        /// How many were given.
        given: usize,
    },
    /// There is no run to finish.
    #[error("no run was started")]
    NotStarted,
    /// The machine code is not fit to run.
    #[error(transparent)]
    Code(#[from] verify::Refused),
    /// The plan makes no sense.
    #[error("the launch plan is damaged: {0}")]
    Plan(String),
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// Kernel launches.
    pub launches: usize,
    /// Wavefront instructions, where the device counts them.
    pub instructions: Option<u64>,
    /// Time from the first kernel's start to the last one's end, by the device's events.
    pub time: Duration,
    /// Time of each launch and its instructions (where the device counts them), in order; empty without
    /// [`Session::time_launches`].
    pub per_launch: Vec<(Duration, Option<u64>)>,
}

/// A launch with everything resolved.
struct Prepared {
    kernel: KernelId,
    shape: LaunchShape,
    kernarg: Vec<u8>,
}

/// A model loaded on a device: its own stream, arena and weights, so that several can run on one device at once.
///
/// A run puts everything into the stream (inputs, kernels, outputs) and waits once, at its end. [`Session::start`] and
/// [`Session::finish`] are the two halves of [`Session::run`].
pub struct Session {
    device: Arc<dyn Device>,
    plan: Plan,
    held: Held,
    launches: Vec<Prepared>,
    inputs: Vec<HostBuffer>,
    outputs: Vec<HostBuffer>,
    arena: u64,
    weights: u64,
    stream: StreamId,
    /// Before the first launch, and after the last; with timing also in between.
    events: Vec<EventId>,
    timed: bool,
    running: bool,
}

/// What a session holds of its device, given back when it is dropped (also when it is only half made).
struct Held {
    device: Arc<dyn Device>,
    module: Option<ModuleId>,
    memory: Vec<u64>,
    stream: Option<StreamId>,
    events: Vec<EventId>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A device that fails here has failed before, where somebody was told.
        if let Some(stream) = self.stream {
            let _ = self.device.synchronize(stream);
            let _ = self.device.destroy_stream(stream);
        }
        for event in &self.events {
            let _ = self.device.destroy_event(*event);
        }
        if let Some(module) = self.module {
            let _ = self.device.unload(module);
        }
        for address in &self.memory {
            let _ = self.device.free(*address);
        }
    }
}

impl Held {
    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        let address = self.device.alloc(bytes.max(1))?;
        self.memory.push(address);
        Ok(address)
    }
    fn event(&mut self) -> Result<EventId, DeviceError> {
        let event = self.device.create_event()?;
        self.events.push(event);
        Ok(event)
    }
}

impl Session {
    /// Loads code and weights. `code` are the bytes of the ELF file.
    pub fn new(device: Arc<dyn Device>, plan: Plan, code: &[u8], weights: &[u8]) -> Result<Session, SessionError> {
        check_plan(&plan, weights.len() as u64)?;
        if plan.target != device.target().info().name {
            return Err(DeviceError::WrongTarget {
                code: plan.target.clone(),
                device: device.target().info().name.to_string(),
            }
            .into());
        }
        let mut held =
            Held { device: device.clone(), module: None, memory: Vec::new(), stream: None, events: Vec::new() };
        verify::admit(code)?;
        let module = device.load(code)?;
        held.module = Some(module);
        let arena = held.alloc(plan.arena_bytes)?;
        let at = held.alloc(plan.weights_bytes)?;
        device.write(at, weights)?;
        let stream = device.create_stream()?;
        held.stream = Some(stream);
        let events = vec![held.event()?, held.event()?];
        let mut kernels: BTreeMap<&str, KernelId> = BTreeMap::new();
        let mut launches = Vec::with_capacity(plan.launches.len());
        for launch in &plan.launches {
            let kernel = match kernels.get(launch.kernel.as_str()) {
                Some(k) => *k,
                None => {
                    let k = device.kernel(module, &launch.kernel)?;
                    kernels.insert(&launch.kernel, k);
                    k
                }
            };
            let address = |a: &Address| if a.region == Region::Arena { arena + a.offset } else { at + a.offset };
            let kernarg = launch.args.iter().flat_map(|a| address(a).to_le_bytes()).collect();
            let shape = LaunchShape { grid: launch.grid, block: [launch.block, 1, 1], dynamic_lds: 0 };
            launches.push(Prepared { kernel, shape, kernarg });
        }
        let buffers = |ports: &[Port]| -> Result<Vec<HostBuffer>, SessionError> {
            ports.iter().map(|p| Ok(device.host_buffer(p.bytes().ok_or_else(|| bad_port(p))?)?)).collect()
        };
        let (inputs, outputs) = (buffers(&plan.inputs)?, buffers(&plan.outputs)?);
        Ok(Session {
            device: device.clone(),
            plan,
            held,
            launches,
            inputs,
            outputs,
            arena,
            weights: at,
            stream,
            events,
            timed: false,
            running: false,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Measures every launch of the runs that follow with events of its own. They delay the kernels a little.
    pub fn time_launches(&mut self) -> Result<(), SessionError> {
        while self.events.len() <= self.launches.len() {
            self.events.push(self.held.event()?);
        }
        self.timed = true;
        Ok(())
    }

    fn address(&self, a: Address) -> u64 {
        match a.region {
            Region::Arena => self.arena + a.offset,
            Region::Weights => self.weights + a.offset,
        }
    }

    /// Waits for the stream. A fault names the operators whose kernel it came from.
    fn synchronize(&self) -> Result<Vec<LaunchStats>, DeviceError> {
        self.device.synchronize(self.stream).map_err(|e| match e {
            DeviceError::Fault { mut fault, launch } => {
                fault.operator = self.plan.launches.get(launch).map(|l| l.step.clone());
                DeviceError::Fault { fault, launch }
            }
            e => e,
        })
    }

    /// Runs the model once: inputs in the model's order, outputs likewise.
    pub fn run(&mut self, inputs: &[HostTensor]) -> Result<(Vec<HostTensor>, RunReport), SessionError> {
        self.start(inputs)?;
        self.finish()
    }

    /// Puts a run into the model's stream and returns without waiting for it. A run that was started before is finished
    /// first and its outputs are lost.
    pub fn start(&mut self, inputs: &[HostTensor]) -> Result<(), SessionError> {
        self.check_inputs(inputs)?;
        if self.running {
            self.running = false;
            self.synchronize()?;
        }
        for (buffer, t) in self.inputs.iter_mut().zip(inputs) {
            buffer.bytes()?.copy_from_slice(t.bytes());
        }
        self.running = true;
        for (port, buffer) in self.plan.inputs.iter().zip(&self.inputs) {
            self.device.copy_in(self.stream, self.address(port.address), buffer)?;
        }
        self.device.record(self.stream, self.events[0])?;
        for (i, l) in self.launches.iter().enumerate() {
            self.device.launch(self.stream, l.kernel, l.shape, &l.kernarg)?;
            if self.timed {
                self.device.record(self.stream, self.events[i + 1])?;
            }
        }
        if !self.timed {
            self.device.record(self.stream, self.events[1])?;
        }
        for (port, buffer) in self.plan.outputs.iter().zip(&self.outputs) {
            self.device.copy_out(self.stream, buffer, self.address(port.address))?;
        }
        Ok(())
    }

    /// Waits for the run that was started and gives its outputs.
    pub fn finish(&mut self) -> Result<(Vec<HostTensor>, RunReport), SessionError> {
        if !self.running {
            return Err(SessionError::NotStarted);
        }
        self.running = false;
        let stats = self.synchronize()?;
        let last = if self.timed { self.launches.len() } else { 1 };
        let mut report = RunReport {
            launches: self.launches.len(),
            instructions: (!stats.is_empty()).then(|| stats.iter().map(|s| s.instructions).sum()),
            time: self.device.elapsed(self.events[0], self.events[last])?,
            per_launch: Vec::new(),
        };
        if self.timed {
            for i in 0..self.launches.len() {
                let time = self.device.elapsed(self.events[i], self.events[i + 1])?;
                report.per_launch.push((time, stats.get(i).map(|s| s.instructions)));
            }
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (port, buffer) in self.plan.outputs.iter().zip(&mut self.outputs) {
            let dtype = port.element_type().ok_or_else(|| bad_port(port))?;
            let data = buffer.bytes()?.to_vec();
            outputs.push(HostTensor::new(dtype, &port.shape, data).map_err(|e| SessionError::Plan(e.to_string()))?);
        }
        Ok((outputs, report))
    }

    fn check_inputs(&self, inputs: &[HostTensor]) -> Result<(), SessionError> {
        if inputs.len() != self.plan.inputs.len() {
            return Err(SessionError::InputCount {
                expected: self.plan.inputs.len(),
                names: self.plan.inputs.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
                given: inputs.len(),
            });
        }
        for (port, t) in self.plan.inputs.iter().zip(inputs) {
            if t.dtype().name() != port.dtype || t.shape() != port.shape {
                return Err(SessionError::Input {
                    name: port.name.clone(),
                    expected: describe(&port.dtype, &port.shape),
                    given: describe(t.dtype().name(), t.shape()),
                });
            }
        }
        Ok(())
    }
}

fn describe(dtype: &str, shape: &[usize]) -> String {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{}x{dtype}", dims.join("x"))
}

fn bad_port(port: &Port) -> SessionError {
    SessionError::Plan(format!("tensor {} has type {} and shape {:?}", port.name, port.dtype, port.shape))
}

/// A plan read from a file may say anything: every address it names must lie within its region.
fn check_plan(plan: &Plan, weights: u64) -> Result<(), SessionError> {
    if plan.version != super::plan::PLAN_VERSION {
        return Err(SessionError::Plan(format!(
            "it has version {}, this barewave reads version {}",
            plan.version,
            super::plan::PLAN_VERSION
        )));
    }
    if plan.weights_bytes != weights {
        return Err(SessionError::Plan(format!("{} bytes of weights, it says {}", weights, plan.weights_bytes)));
    }
    let size = |a: &Address| match a.region {
        Region::Arena => plan.arena_bytes,
        Region::Weights => plan.weights_bytes,
    };
    for port in plan.inputs.iter().chain(&plan.outputs) {
        let bytes = port.bytes().ok_or_else(|| bad_port(port))? as u64;
        if port.address.offset.checked_add(bytes).is_none_or(|end| end > size(&port.address)) {
            return Err(SessionError::Plan(format!("tensor {} lies outside of its region", port.name)));
        }
    }
    for launch in &plan.launches {
        if let Some(a) = launch.args.iter().find(|a| a.offset > size(a)) {
            return Err(SessionError::Plan(format!(
                "{}: argument at {} outside of its region",
                launch.kernel, a.offset
            )));
        }
    }
    Ok(())
}
