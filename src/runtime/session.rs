//! A compiled model on a device: its stream, its arena, its weights, and runs.
//!
//! Inputs and outputs are host tensors unless the caller binds them to device memory of its own; then nothing is copied,
//! and one model's output can be the next one's input. With a stream of the caller's, runs of several models and other
//! work follow each other without waiting. Of a model that was compiled for several shapes a run takes the plan whose inputs
//! the given tensors are.

use super::check::{bad_port, check_plans};
use super::device::{Device, DeviceError, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats, ModuleId, StreamId};
use super::plan::{Address, Plan, Port, Region};
use crate::compile::Compiled;
use crate::tensor::{AsTensor, DType, HostTensor, Problem, SizeMismatch, TensorView, TensorViewMut, Words};
use crate::verify;
use barewave_isa::Target;
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
    /// The model was compiled for several shapes, but not for these.
    #[error("the model was not compiled for {given}; it was for {}", .known.join(", or "))]
    Shapes {
        /// Types and shapes that were given.
        given: String,
        /// Those of each plan.
        known: Vec<String>,
    },
    /// An input has another value than the model was compiled for.
    #[error(
        "the model was compiled for one value of input '{name}', which decides shapes or branches, and this is another"
    )]
    Fixed {
        /// Input.
        name: String,
    },
    /// Number of inputs.
    #[error("the model takes {expected} inputs ({names}), not {given}")]
    InputCount {
        /// How many the model takes, of those that are not bound to device memory.
        expected: usize,
        /// Their names.
        names: String,
        /// How many were given.
        given: usize,
    },
    /// An output does not fit the memory given for it.
    #[error("output '{name}' is {expected}, the memory given for it {given}")]
    Output {
        /// Output.
        name: String,
        /// Type and shape the model gives.
        expected: String,
        /// What it should go to.
        given: String,
    },
    /// Number of outputs.
    #[error("the model gives {expected} outputs to host memory, not {given}")]
    OutputCount {
        /// How many the model gives, of those that are not bound to device memory.
        expected: usize,
        /// How many were wanted.
        given: usize,
    },
    /// No input or output of that number.
    #[error("the model has no {what} number {number}")]
    NoPort {
        /// `input` or `output`.
        what: &'static str,
        /// Number asked for, from 0.
        number: usize,
    },
    /// A tensor's bytes do not fit its shape.
    #[error(transparent)]
    Bytes(#[from] SizeMismatch),
    /// The model's kernels do not fit into a file that a device loads.
    #[error("{0}")]
    Object(String),
    /// There is no run to finish.
    #[error("no run was started")]
    NotStarted,
    /// Strings that cannot be told apart.
    #[error(transparent)]
    Words(#[from] Problem),
    /// The machine code is not fit to run.
    #[error(transparent)]
    Code(#[from] verify::Refused),
    /// The plan makes no sense.
    #[error("the launch plan is damaged: {0}")]
    Plan(String),
}

/// An input, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// In host memory.
    Host(TensorView<'a>),
    /// In memory of the device, all of it there whenever kernels run.
    Device {
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: &'a [usize],
        /// Device address.
        address: u64,
    },
}

impl<'a> Given<'a> {
    /// Its device address, if it lies there.
    pub fn address(&self) -> Option<u64> {
        match self {
            Given::Host(_) => None,
            Given::Device { address, .. } => Some(*address),
        }
    }
    /// The tensor, if it lies in host memory.
    pub fn host(&self) -> Option<TensorView<'a>> {
        match self {
            Given::Host(t) => Some(*t),
            Given::Device { .. } => None,
        }
    }
    /// Its extents.
    pub fn shape(&self) -> &'a [usize] {
        match self {
            Given::Host(t) => t.shape(),
            Given::Device { shape, .. } => shape,
        }
    }
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
    /// Each launch, in order; empty without [`Session::time_launches`].
    pub per_launch: Vec<LaunchReport>,
}

/// What one launch did.
#[derive(Clone, Debug)]
pub struct LaunchReport {
    /// Its kernel.
    pub kernel: String,
    /// The model's nodes that it computes.
    pub step: String,
    /// From its start to its end, by the device's events.
    pub time: Duration,
    /// Wavefront instructions, where the device counts them.
    pub instructions: Option<u64>,
}

impl RunReport {
    /// Adds what was done before.
    pub(super) fn add(&mut self, before: RunReport) {
        self.launches += before.launches;
        self.instructions = self.instructions.zip(before.instructions).map(|(a, b)| a + b);
        self.time += before.time;
        self.per_launch.splice(0..0, before.per_launch);
    }
}

/// A launch; its arguments are addresses once memory is bound.
struct Prepared {
    kernel: KernelId,
    shape: LaunchShape,
    kernarg: Vec<u8>,
}

/// Where an input or output lies.
enum Buffer {
    /// In memory of the session, filled from or read into a host buffer.
    Own { address: u64, staging: HostBuffer },
    /// In memory of the caller.
    Bound { address: u64 },
    /// In memory of the session that is not there yet.
    Unset,
}

impl Buffer {
    fn address(&self) -> u64 {
        match self {
            Buffer::Own { address, .. } | Buffer::Bound { address } => *address,
            Buffer::Unset => 0,
        }
    }
    fn bound(&self) -> Option<u64> {
        match self {
            Buffer::Bound { address } => Some(*address),
            _ => None,
        }
    }
    fn is_bound(&self) -> bool {
        self.bound().is_some()
    }
}

/// A model loaded on a device: its own stream, arena and weights, so that several can run on one device at once.
///
/// A run puts everything into the stream (inputs, kernels, outputs) and waits once, at its end. [`Session::start`] and
/// [`Session::finish`] are the two halves of [`Session::run`].
pub struct Session {
    device: Arc<dyn Device>,
    plans: Vec<Plan>,
    /// The launches of each plan.
    prepared: Vec<Vec<Prepared>>,
    /// Number of the plan that runs.
    active: usize,
    held: Held,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    arena: u64,
    weights: Arc<DeviceWeights>,
    stream: StreamId,
    /// Before the first launch, and after the last; with timing also in between.
    events: Vec<EventId>,
    timed: bool,
    /// Addresses changed since the arguments were made.
    stale: bool,
    running: bool,
    /// The strings that outputs of the run may hold.
    words: Arc<Words>,
}

/// Weights in device memory, which sessions may share.
pub(super) struct DeviceWeights {
    device: Arc<dyn Device>,
    address: u64,
}

impl DeviceWeights {
    fn new(device: &Arc<dyn Device>, weights: &[u8]) -> Result<Arc<DeviceWeights>, DeviceError> {
        let address = device.alloc((weights.len() as u64).max(1))?;
        let held = Arc::new(DeviceWeights { device: device.clone(), address });
        device.write(address, weights)?;
        Ok(held)
    }
}

impl Drop for DeviceWeights {
    fn drop(&mut self) {
        // A device that fails here has failed before, where somebody was told.
        let _ = self.device.free(self.address);
    }
}

/// What a session holds of its device, given back when it is dropped (also when it is only half made).
struct Held {
    device: Arc<dyn Device>,
    module: Option<ModuleId>,
    memory: Vec<u64>,
    stream: Option<StreamId>,
    /// The stream that work was last put into, if it is the caller's.
    foreign: Option<StreamId>,
    events: Vec<EventId>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A device that fails here has failed before, where somebody was told.
        if let Some(stream) = self.foreign {
            let _ = self.device.synchronize(stream);
        }
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
    fn free(&mut self, address: u64) -> Result<(), DeviceError> {
        self.memory.retain(|a| *a != address);
        self.device.free(address)
    }
    fn event(&mut self) -> Result<EventId, DeviceError> {
        let event = self.device.create_event()?;
        self.events.push(event);
        Ok(event)
    }
}

impl Session {
    /// Loads a compiled model on a device.
    ///
    /// # Errors
    /// When the model is for another target, its plan makes no sense, or the device has no room for it.
    pub fn new(device: Arc<dyn Device>, model: &Compiled) -> Result<Session, SessionError> {
        Session::with_weights(device, model, None)
    }

    /// As [`Session::new`], with weights that are on the device already.
    pub(super) fn with_weights(
        device: Arc<dyn Device>,
        model: &Compiled,
        weights: Option<Arc<DeviceWeights>>,
    ) -> Result<Session, SessionError> {
        let code = model.code().map_err(|e| SessionError::Object(e.to_string()))?;
        if !model.is_verified() {
            verify::admit(&code)?;
        }
        let plans = model.plans().to_vec();
        check_plans(&plans, model.weights_len() as u64)?;
        let weights = weights.map_or_else(|| DeviceWeights::new(&device, model.weights()), Ok)?;
        Session::load(device, plans, &code, weights)
    }

    /// As [`Session::new`], from a plan, the bytes of the ELF file with its code, and its weights.
    pub fn from_parts(
        device: Arc<dyn Device>,
        plan: Plan,
        code: &[u8],
        weights: &[u8],
    ) -> Result<Session, SessionError> {
        verify::admit(code)?;
        let plans = vec![plan];
        check_plans(&plans, weights.len() as u64)?;
        let weights = DeviceWeights::new(&device, weights)?;
        Session::load(device, plans, code, weights)
    }

    /// Loads plans that were checked.
    fn load(
        device: Arc<dyn Device>,
        plans: Vec<Plan>,
        code: &[u8],
        weights: Arc<DeviceWeights>,
    ) -> Result<Session, SessionError> {
        let plan = &plans[0];
        let runs = Target::parse(&plan.target).is_ok_and(|code| device.target().runs_code_of(code));
        if !runs {
            return Err(DeviceError::WrongTarget {
                code: plan.target.clone(),
                device: device.target().info().name.to_string(),
            }
            .into());
        }
        let mut held = Held {
            device: device.clone(),
            module: None,
            memory: Vec::new(),
            stream: None,
            foreign: None,
            events: Vec::new(),
        };
        let module = device.load(code)?;
        held.module = Some(module);
        let arena = held.alloc(plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0))?;
        let stream = device.create_stream()?;
        held.stream = Some(stream);
        let events = vec![held.event()?, held.event()?];
        let mut kernels: BTreeMap<&str, KernelId> = BTreeMap::new();
        let mut prepared = Vec::with_capacity(plans.len());
        for plan in &plans {
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
                let shape = LaunchShape { grid: launch.grid, block: [launch.block, 1, 1], dynamic_lds: 0 };
                launches.push(Prepared { kernel, shape, kernarg: Vec::new() });
            }
            prepared.push(launches);
        }
        let unset = |ports: &[Port]| ports.iter().map(|_| Buffer::Unset).collect();
        Ok(Session {
            device: device.clone(),
            inputs: unset(&plan.inputs),
            outputs: unset(&plan.outputs),
            plans,
            prepared,
            active: 0,
            held,
            arena,
            weights,
            stream,
            events,
            timed: false,
            stale: true,
            running: false,
            words: Arc::default(),
        })
    }

    /// The plan of the last run; before the first, that for the first of the shapes the model was compiled for.
    pub fn plan(&self) -> &Plan {
        &self.plans[self.active]
    }
    /// The plans for all shapes the model was compiled for.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }
    /// Takes its inputs from where they lie in the runs that follow: device memory is bound, and nothing else is. Gives the
    /// tensors in host memory, which those runs get, and the plan that they take: it says what outputs come of it.
    ///
    /// # Errors
    /// When they are inputs of no plan.
    pub fn place<'g>(&mut self, inputs: &'g [Given<'g>]) -> Result<(Vec<TensorView<'g>>, &Plan), SessionError> {
        if inputs.len() != self.inputs.len() {
            return Err(SessionError::InputCount {
                expected: self.inputs.len(),
                names: self.plan().inputs.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
                given: inputs.len(),
            });
        }
        for (number, given) in inputs.iter().enumerate() {
            self.bind_input(number, given.address())?;
        }
        let host: Vec<TensorView> = inputs.iter().filter_map(Given::host).collect();
        self.check_inputs(&host)?;
        for (port, given) in self.plan().inputs.iter().zip(inputs) {
            if let Given::Device { dtype, shape, .. } = given
                && !is_of(port, *dtype, shape)
            {
                let given = describe(dtype.name(), shape);
                return Err(SessionError::Input { name: port.name.clone(), expected: port.described(), given });
            }
        }
        Ok((host, self.plan()))
    }
    pub(super) fn weights(&self) -> &Arc<DeviceWeights> {
        &self.weights
    }
    fn launches(&self) -> &[Prepared] {
        &self.prepared[self.active]
    }

    /// Takes this plan, by its number, from now on; a run does so by itself where given tensors tell. What is bound to device
    /// memory then has the shapes of this plan.
    pub fn select(&mut self, number: usize) -> Result<(), SessionError> {
        if number >= self.plans.len() {
            return Err(SessionError::NoPort { what: "plan", number });
        }
        if number == self.active {
            return Ok(());
        }
        self.drain()?;
        for slot in self.inputs.iter_mut().chain(&mut self.outputs) {
            if matches!(slot, Buffer::Own { .. }) {
                bind(&mut self.held, slot, None)?;
            }
        }
        self.active = number;
        self.stale = true;
        Ok(())
    }
    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Measures every launch of the runs that follow with events of its own. They delay the kernels a little.
    pub fn time_launches(&mut self) -> Result<(), SessionError> {
        let most = self.prepared.iter().map(Vec::len).max().unwrap_or(0);
        while self.events.len() <= most {
            self.events.push(self.held.event()?);
        }
        self.timed = true;
        Ok(())
    }

    /// Takes input `number` from device memory at `address` from now on, which holds the whole tensor whenever the kernels
    /// run; with `None` from a host tensor again. Input tensors given to a run are then those of the other inputs.
    pub fn bind_input(&mut self, number: usize, address: Option<u64>) -> Result<(), SessionError> {
        let slot = self.inputs.get(number).ok_or(SessionError::NoPort { what: "input", number })?;
        if slot.bound() == address && !matches!(slot, Buffer::Unset) {
            return Ok(());
        }
        self.drain()?;
        self.stale = true;
        bind(&mut self.held, &mut self.inputs[number], address)
    }

    /// Puts output `number` into device memory at `address` from now on, which has room for the whole tensor; with `None`
    /// into a host tensor again. Output tensors of a run are then those of the other outputs.
    pub fn bind_output(&mut self, number: usize, address: Option<u64>) -> Result<(), SessionError> {
        let slot = self.outputs.get(number).ok_or(SessionError::NoPort { what: "output", number })?;
        if slot.bound() == address && !matches!(slot, Buffer::Unset) {
            return Ok(());
        }
        self.drain()?;
        self.stale = true;
        bind(&mut self.held, &mut self.outputs[number], address)
    }

    /// Runs in a stream of the caller's from now on, which has to outlive the session; with `None` in its own again. A
    /// stream made without this library comes from [`Device::import_stream`].
    pub fn use_stream(&mut self, stream: Option<StreamId>) -> Result<(), SessionError> {
        self.drain()?;
        self.held.foreign = stream;
        self.stream = stream.or(self.held.stream).ok_or(DeviceError::Handle("stream"))?;
        Ok(())
    }

    /// Ends a run that was started and not finished; its outputs are lost.
    fn drain(&mut self) -> Result<(), SessionError> {
        if std::mem::take(&mut self.running) {
            self.synchronize()?;
        }
        Ok(())
    }

    /// Gives every input and output that is not bound memory of the session's own, and makes the kernels' arguments.
    fn prepare(&mut self) -> Result<(), SessionError> {
        if !self.stale {
            return Ok(());
        }
        let plan = &self.plans[self.active];
        let ports = plan.inputs.iter().zip(&mut self.inputs).chain(plan.outputs.iter().zip(&mut self.outputs));
        for (port, slot) in ports {
            if let Buffer::Unset = slot {
                let bytes = port.bytes().ok_or_else(|| bad_port(port))?;
                let staging = self.device.host_buffer(bytes)?;
                *slot = Buffer::Own { address: self.held.alloc(bytes as u64)?, staging };
            }
        }
        for (launch, planned) in self.prepared[self.active].iter_mut().zip(&plan.launches) {
            let address = |a: &Address| {
                a.offset
                    + match a.region {
                        Region::Arena => self.arena,
                        Region::Weights => self.weights.address,
                        Region::Input(i) => self.inputs[i].address(),
                        Region::Output(i) => self.outputs[i].address(),
                        Region::Value => 0,
                    }
            };
            launch.kernarg = planned.args.iter().flat_map(|a| address(a).to_le_bytes()).collect();
        }
        self.stale = false;
        Ok(())
    }

    /// Waits for the stream. A fault names the operators whose kernel it came from.
    fn synchronize(&self) -> Result<Vec<LaunchStats>, DeviceError> {
        self.device.synchronize(self.stream).map_err(|e| match e {
            DeviceError::Fault { mut fault, launch } => {
                fault.operator = self.plan().launches.get(launch).map(|l| l.step.clone());
                DeviceError::Fault { fault, launch }
            }
            e => e,
        })
    }

    /// Runs the model once: inputs in the model's order, outputs likewise, but for those bound to device memory.
    pub fn run<T: AsTensor>(&mut self, inputs: &[T]) -> Result<(Vec<HostTensor>, RunReport), SessionError> {
        self.start(inputs)?;
        self.finish()
    }

    /// As [`Session::run`], with the outputs written to memory that the caller has.
    pub fn run_into<T: AsTensor>(
        &mut self,
        inputs: &[T],
        outputs: &mut [TensorViewMut],
    ) -> Result<RunReport, SessionError> {
        self.check_inputs(inputs)?;
        self.check_outputs(outputs)?;
        self.start(inputs)?;
        let report = self.wait()?;
        let own = self.outputs.iter_mut().filter_map(|b| match b {
            Buffer::Own { staging, .. } => Some(staging),
            _ => None,
        });
        for (staging, out) in own.zip(outputs) {
            out.bytes_mut().copy_from_slice(staging.bytes()?);
        }
        Ok(report)
    }

    /// The strings that outputs may hold: the model's and the inputs'.
    fn words_of<T: AsTensor>(&self, inputs: &[T]) -> Result<Arc<Words>, SessionError> {
        let plan = &self.plans[self.active];
        if !plan.outputs.iter().any(|p| p.dtype == DType::Str.name()) {
            return Ok(Arc::default());
        }
        let mut words = Words::of(plan.words.iter().map(String::as_str))?;
        inputs.iter().filter_map(|t| t.view().words()).try_for_each(|own| words.merge(own))?;
        Ok(Arc::new(words))
    }

    /// Puts a run into the model's stream and returns without waiting for it. A run that was started before is finished
    /// first and its outputs are lost.
    pub fn start<T: AsTensor>(&mut self, inputs: &[T]) -> Result<(), SessionError> {
        self.check_inputs(inputs)?;
        self.drain()?;
        self.words = self.words_of(inputs)?;
        self.prepare()?;
        let mut given = inputs.iter();
        self.running = true;
        for slot in &mut self.inputs {
            let Buffer::Own { address, staging } = slot else { continue };
            if let Some(t) = given.next() {
                staging.bytes()?.copy_from_slice(t.view().bytes());
            }
            self.device.copy_in(self.stream, *address, staging)?;
        }
        self.device.record(self.stream, self.events[0])?;
        for (i, l) in self.prepared[self.active].iter().enumerate() {
            self.device.launch(self.stream, l.kernel, l.shape, &l.kernarg)?;
            if self.timed {
                self.device.record(self.stream, self.events[i + 1])?;
            }
        }
        if !self.timed {
            self.device.record(self.stream, self.events[1])?;
        }
        for slot in &self.outputs {
            if let Buffer::Own { address, staging } = slot {
                self.device.copy_out(self.stream, staging, *address)?;
            }
        }
        Ok(())
    }

    /// Waits for the run that was started and gives its outputs, but for those bound to device memory.
    pub fn finish(&mut self) -> Result<(Vec<HostTensor>, RunReport), SessionError> {
        let report = self.wait()?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (port, slot) in self.plans[self.active].outputs.iter().zip(&mut self.outputs) {
            let Buffer::Own { staging, .. } = slot else { continue };
            let dtype = port.element_type().ok_or_else(|| bad_port(port))?;
            let data = staging.bytes()?.to_vec();
            let t = HostTensor::new(dtype, &port.shape, data).map_err(|e| SessionError::Plan(e.to_string()))?;
            outputs.push(t.with_words(self.words.clone()));
        }
        Ok((outputs, report))
    }

    /// Waits for the run that was started.
    fn wait(&mut self) -> Result<RunReport, SessionError> {
        if !std::mem::take(&mut self.running) {
            return Err(SessionError::NotStarted);
        }
        let stats = self.synchronize()?;
        let last = if self.timed { self.launches().len() } else { 1 };
        let mut report = RunReport {
            launches: self.launches().len(),
            instructions: (!stats.is_empty()).then(|| stats.iter().map(|s| s.instructions).sum()),
            time: self.device.elapsed(self.events[0], self.events[last])?,
            per_launch: Vec::new(),
        };
        if self.timed {
            for i in 0..self.launches().len() {
                let time = self.device.elapsed(self.events[i], self.events[i + 1])?;
                let planned = &self.plan().launches[i];
                let (kernel, step) = (planned.kernel.clone(), planned.step.clone());
                let instructions = stats.get(i).map(|s| s.instructions);
                report.per_launch.push(LaunchReport { kernel, step, time, instructions });
            }
        }
        Ok(report)
    }

    /// The inputs of a plan that are not bound to device memory.
    fn wanted(&self, plan: usize) -> impl Iterator<Item = &Port> {
        self.plans[plan].inputs.iter().zip(&self.inputs).filter(|(_, slot)| !slot.is_bound()).map(|(p, _)| p)
    }

    /// The first tensor that is no input of a plan.
    fn misfit<'a, T: AsTensor>(&'a self, plan: usize, inputs: &'a [T]) -> Option<(&'a Port, &'a T)> {
        self.wanted(plan).zip(inputs).find(|(port, t)| {
            let t = t.view();
            !is_of(port, t.dtype(), t.shape()) || port.fixed.as_ref().is_some_and(|f| f[..] != *t.bytes())
        })
    }

    /// True when these are inputs of its only plan.
    pub(super) fn fits(&self, inputs: &[Given]) -> bool {
        let fits = |(port, given): (&Port, &Given)| match given {
            Given::Device { dtype, shape, .. } => port.fixed.is_none() && is_of(port, *dtype, shape),
            Given::Host(t) => {
                is_of(port, t.dtype(), t.shape()) && port.fixed.as_ref().is_none_or(|f| f[..] == *t.bytes())
            }
        };
        let ports = &self.plans[0].inputs;
        self.plans.len() == 1 && ports.len() == inputs.len() && ports.iter().zip(inputs).all(fits)
    }

    /// Takes the plan that the tensors are inputs of.
    fn check_inputs<T: AsTensor>(&mut self, inputs: &[T]) -> Result<(), SessionError> {
        if inputs.len() != self.wanted(self.active).count() {
            return Err(SessionError::InputCount {
                expected: self.wanted(self.active).count(),
                names: self.wanted(self.active).map(|p| p.name.as_str()).collect::<Vec<_>>().join(", "),
                given: inputs.len(),
            });
        }
        let order = std::iter::once(self.active).chain(0..self.plans.len());
        if let Some(number) = order.into_iter().find(|n| self.misfit(*n, inputs).is_none()) {
            return self.select(number);
        }
        let given = |t: &T| describe(t.view().dtype().name(), t.view().shape());
        match self.misfit(self.active, inputs) {
            Some((port, t)) if port.fixed.is_some() && t.view().shape() == port.shape => {
                Err(SessionError::Fixed { name: port.name.clone() })
            }
            Some((port, t)) if self.plans.len() == 1 => {
                Err(SessionError::Input { name: port.name.clone(), expected: port.described(), given: given(t) })
            }
            _ => {
                let named = |ports: Vec<String>| ports.join(", ");
                let of = |n: usize| named(self.wanted(n).map(|p| format!("{}={}", p.name, p.described())).collect());
                Err(SessionError::Shapes {
                    given: named(self.wanted(0).zip(inputs).map(|(p, t)| format!("{}={}", p.name, given(t))).collect()),
                    known: (0..self.plans.len()).map(of).collect(),
                })
            }
        }
    }

    fn check_outputs(&self, outputs: &[TensorViewMut]) -> Result<(), SessionError> {
        let given =
            || self.plan().outputs.iter().zip(&self.outputs).filter(|(_, slot)| !slot.is_bound()).map(|(p, _)| p);
        if outputs.len() != given().count() {
            return Err(SessionError::OutputCount { expected: given().count(), given: outputs.len() });
        }
        for (port, t) in given().zip(outputs) {
            if t.dtype().name() != port.dtype || t.shape() != port.shape {
                return Err(SessionError::Output {
                    name: port.name.clone(),
                    expected: describe(&port.dtype, &port.shape),
                    given: describe(t.dtype().name(), t.shape()),
                });
            }
        }
        Ok(())
    }
}

/// Binds an input or output to memory of the caller's, or to none, giving back what the session had for it.
fn bind(held: &mut Held, slot: &mut Buffer, address: Option<u64>) -> Result<(), SessionError> {
    let new = address.map_or(Buffer::Unset, |address| Buffer::Bound { address });
    match std::mem::replace(slot, new) {
        Buffer::Own { address, .. } => Ok(held.free(address)?),
        Buffer::Bound { .. } | Buffer::Unset => Ok(()),
    }
}

fn is_of(port: &Port, dtype: DType, shape: &[usize]) -> bool {
    dtype.name() == port.dtype && shape == port.shape
}

fn describe(dtype: &str, shape: &[usize]) -> String {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{}x{dtype}", dims.join("x"))
}
