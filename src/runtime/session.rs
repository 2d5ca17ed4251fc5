//! A compiled model on a device: its stream, its arena, its weights, and runs.
//!
//! Inputs and outputs are host tensors unless the caller binds them to device memory of its own; then nothing is copied,
//! and one model's output can be the next one's input. With a stream of the caller's, runs of several models and other
//! work follow each other without waiting. Of a model that was compiled for several shapes a run takes the plan whose inputs
//! the given tensors are.

use super::check::{bad_port, check_places, check_plans};
use super::device::{Device, DeviceError, LaunchStats, StreamId};
use super::error::SessionError;
use super::loaded::{Block, DeviceCode, DeviceWeights, Held, Loaded, Prepared, Slot};
use super::plan::{Plan, Port};
use crate::compile::Compiled;
use crate::tensor::{AsTensor, DType, HostTensor, TensorView, TensorViewMut, Words};
use crate::verify;
use barewave_isa::Target;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

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
    /// Each launch of the plan, in order, also those that had nothing to do; empty without [`Session::time_launches`].
    pub per_launch: Vec<LaunchReport>,
    /// The plans whose launches these are, one after the other: one, or one for each part of a model that runs in stages.
    pub plans: Vec<Arc<Plan>>,
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
    /// With what was done after.
    pub(super) fn then(mut self, mut after: RunReport) -> RunReport {
        self.instructions = match (self.launches, after.launches) {
            (_, 0) => self.instructions,
            (0, _) => after.instructions,
            _ => self.instructions.zip(after.instructions).map(|(a, b)| a + b),
        };
        self.launches += after.launches;
        self.time += after.time;
        self.per_launch.append(&mut after.per_launch);
        self.plans.append(&mut after.plans);
        self
    }
}

/// A model loaded on a device: its own stream, arena and weights, so that several can run on one device at once.
///
/// A run puts everything into the stream (inputs, kernels, outputs) and waits once, at its end. [`Session::start`] and
/// [`Session::finish`] are the two halves of [`Session::run`].
pub struct Session {
    device: Arc<dyn Device>,
    // Dropped first: it waits for what uses the rest.
    held: Held,
    plans: Vec<Loaded>,
    /// Number of the plan that runs.
    active: usize,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    arena: Block,
    counters: Block,
    /// Counters are zero when what the stream holds is done: nothing has ended in the middle since they were made so.
    counts_from_zero: bool,
    timed: bool,
    /// Addresses changed since the arguments were made.
    stale: bool,
    running: bool,
    /// The strings that outputs of the run may hold.
    words: Arc<Words>,
}

/// The weights of a model on a device.
fn uploaded(device: &Arc<dyn Device>, model: &Compiled) -> Result<Arc<DeviceWeights>, DeviceError> {
    DeviceWeights::from_pieces(device, model.weights_len(), |take| model.weight_pieces(take))
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
        if !model.is_verified() {
            verify::admit(model.code())?;
        }
        let plans = model.plans().to_vec();
        check_plans(&plans, model.weights_len() as u64)?;
        let weights = weights.map_or_else(|| uploaded(&device, model), Ok)?;
        Session::load(device, plans, model.code().clone(), weights)
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
        Session::load(device, plans, code.to_vec().into(), weights)
    }

    /// A session over the code and weights of this one, with a stream and memory of its own: both run at once.
    ///
    /// # Errors
    /// When the device has no further stream.
    pub fn fork(&self) -> Result<Session, SessionError> {
        let mut held = Held::new(&self.device)?;
        held.want_events(2)?;
        let again = |p: &Loaded| Loaded::all(vec![p.plan.clone()], &p.code, &p.weights);
        let plans: Vec<Vec<Loaded>> = self.plans.iter().map(again).collect::<Result<_, _>>()?;
        let unset = |slots: &[Slot]| slots.iter().map(|_| Slot::Unset).collect();
        let mut fork = Session {
            held,
            plans: plans.into_iter().flatten().collect(),
            active: self.active,
            inputs: unset(&self.inputs),
            outputs: unset(&self.outputs),
            arena: Block::none(&self.device),
            counters: Block::none(&self.device),
            counts_from_zero: false,
            device: self.device.clone(),
            timed: false,
            stale: true,
            running: false,
            words: Arc::default(),
        };
        if self.timed {
            fork.time_launches()?;
        }
        Ok(fork)
    }

    /// Loads plans that were checked.
    fn load(
        device: Arc<dyn Device>,
        plans: Vec<Plan>,
        code: Bytes,
        weights: Arc<DeviceWeights>,
    ) -> Result<Session, SessionError> {
        let plan = &plans[0];
        let made_for = Target::parse(&plan.target);
        if !made_for.as_ref().is_ok_and(|code| device.target().runs_code_of(*code)) {
            return Err(DeviceError::WrongTarget {
                code: made_for.map_or(plan.target.clone(), |t| t.info().name.to_string()),
                device: device.target().info().name.to_string(),
            }
            .into());
        }
        let unset = |ports: &[Port]| ports.iter().map(|_| Slot::Unset).collect();
        let (inputs, outputs) = (unset(&plan.inputs), unset(&plan.outputs));
        let code = DeviceCode::load(&device, code)?;
        let mut held = Held::new(&device)?;
        held.want_events(2)?;
        Ok(Session {
            held,
            plans: Loaded::all(shared(plans), &code, &weights)?,
            active: 0,
            inputs,
            outputs,
            arena: Block::none(&device),
            counters: Block::none(&device),
            counts_from_zero: false,
            device,
            timed: false,
            stale: true,
            running: false,
            words: Arc::default(),
        })
    }

    /// Takes in another compiled form of the same model, for other shapes. The first of its plans runs next. The code is
    /// not loaded again when it is that of a plan that is there.
    pub(super) fn add(&mut self, model: &Compiled, weights: Option<Arc<DeviceWeights>>) -> Result<(), SessionError> {
        let plans = model.plans().to_vec();
        check_plans(&plans, model.weights_len() as u64)?;
        let weights = weights.map_or_else(|| uploaded(&self.device, model), Ok)?;
        let code = match self.plans.iter().rev().find(|p| p.code.is(model.code())) {
            Some(known) => known.code.clone(),
            None => DeviceCode::load(&self.device, model.code().clone())?,
        };
        let new = self.plans.len();
        self.plans.extend(Loaded::all(shared(plans), &code, &weights)?);
        if self.timed {
            self.time_launches()?;
        }
        self.select(new)
    }

    /// Forgets the plans that were added first, until so many are left.
    pub(super) fn keep(&mut self, most: usize) -> Result<(), SessionError> {
        let excess = self.plans.len().saturating_sub(most);
        if excess > 0 {
            self.drain()?;
            self.plans.drain(..excess);
            self.active = self.active.saturating_sub(excess);
            self.stale = true;
        }
        Ok(())
    }

    /// Runs the plan of these inputs next, and counts it as the one added last; false when there is none.
    pub(super) fn take(&mut self, inputs: &[Given]) -> Result<bool, SessionError> {
        let Some(number) = self.plans.iter().rposition(|p| fits(&p.plan, inputs)) else { return Ok(false) };
        if number != self.active {
            self.drain()?;
            self.stale = true;
        }
        let plan = self.plans.remove(number);
        self.plans.push(plan);
        self.active = self.plans.len() - 1;
        Ok(true)
    }

    /// The plan of the last run, to keep.
    pub fn shared_plan(&self) -> Arc<Plan> {
        self.plans[self.active].plan.clone()
    }
    /// The plan of the last run; before the first, that for the first of the shapes the model was compiled for.
    pub fn plan(&self) -> &Plan {
        &self.plans[self.active].plan
    }
    /// The plans for all shapes the model was compiled for.
    pub fn plans(&self) -> impl ExactSizeIterator<Item = &Plan> {
        self.plans.iter().map(|p| &*p.plan)
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
    /// The weights of the plan that runs next.
    pub(super) fn weights(&self) -> &Arc<DeviceWeights> {
        &self.plans[self.active].weights
    }
    fn launches(&self) -> &[Prepared] {
        &self.plans[self.active].launches
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
        let most = self.plans.iter().map(|p| p.launches.len()).max().unwrap_or(0);
        self.held.want_events(most.max(1) + 1)?;
        self.timed = true;
        Ok(())
    }

    /// Takes input `number` from device memory at `address` from now on, which holds the whole tensor whenever the kernels
    /// run; with `None` from a host tensor again. Input tensors given to a run are then those of the other inputs.
    pub fn bind_input(&mut self, number: usize, address: Option<u64>) -> Result<(), SessionError> {
        let slot = self.inputs.get(number).ok_or(SessionError::NoPort { what: "input", number })?;
        if slot.bound() == address {
            return Ok(());
        }
        if !slot.is_bound() || address.is_none() {
            self.drain()?;
        }
        self.stale = true;
        self.inputs[number] = address.map_or(Slot::Unset, |address| Slot::Bound { address });
        Ok(())
    }

    /// Puts output `number` into device memory at `address` from now on, which has room for the whole tensor; with `None`
    /// into a host tensor again. Output tensors of a run are then those of the other outputs. The memory may be that of a bound
    /// input where the plan says so ([`Plan::in_place`]), as of a cache that the model adds to: nothing copies it then. A run
    /// refuses outputs that lie where others do, or where inputs do otherwise.
    pub fn bind_output(&mut self, number: usize, address: Option<u64>) -> Result<(), SessionError> {
        let slot = self.outputs.get(number).ok_or(SessionError::NoPort { what: "output", number })?;
        if slot.bound() == address {
            return Ok(());
        }
        if !slot.is_bound() || address.is_none() {
            self.drain()?;
        }
        self.stale = true;
        self.outputs[number] = address.map_or(Slot::Unset, |address| Slot::Bound { address });
        Ok(())
    }

    /// Runs in a stream of the caller's from now on, which has to outlive the session; with `None` in its own again. A
    /// stream made without this library comes from [`Device::import_stream`].
    pub fn use_stream(&mut self, stream: Option<StreamId>) -> Result<(), SessionError> {
        if self.held.foreign == stream {
            return Ok(());
        }
        self.drain()?;
        self.held.foreign = stream;
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
        let bound = |slots: &[Slot]| slots.iter().map(Slot::bound).collect::<Vec<_>>();
        check_places(self.plan(), &bound(&self.inputs), &bound(&self.outputs))?;
        let (arena, counters) = (self.plan().arena_bytes, self.plan().counter_bytes);
        if !self.arena.holds(arena) || counters > 0 && !self.counters.holds(counters) {
            self.drain()?;
        }
        let plan = &mut self.plans[self.active];
        let ports = plan.plan.inputs.iter().zip(&mut self.inputs);
        for (port, slot) in ports.chain(plan.plan.outputs.iter().zip(&mut self.outputs)) {
            slot.reserve(&self.device, port.bytes().ok_or_else(|| bad_port(port))?)?;
        }
        self.arena.reserve(plan.plan.arena_bytes)?;
        if plan.plan.counter_bytes > 0 && self.counters.reserve(plan.plan.counter_bytes)? {
            self.counts_from_zero = false;
        }
        plan.address(&*self.device, self.arena.address, self.counters.address, &self.inputs, &self.outputs);
        self.stale = false;
        Ok(())
    }

    /// Waits for the stream. A fault names the operators whose kernel it came from, where that is a kernel of the last run.
    fn synchronize(&mut self) -> Result<Vec<LaunchStats>, DeviceError> {
        self.device.synchronize(self.held.current()).map_err(|e| {
            self.counts_from_zero = false;
            match e {
                DeviceError::Fault { mut fault, launch } => {
                    let active = &self.plans[self.active];
                    let mut launched = active.launches.iter().zip(&active.plan.launches).filter(|(l, _)| !l.idle);
                    let run = launched.nth(launch).map(|(_, planned)| planned);
                    fault.operator = run.filter(|l| l.kernel == fault.kernel).map(|l| l.step.clone());
                    DeviceError::Fault { fault, launch }
                }
                e => e,
            }
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
            Slot::Own { staging, .. } => Some(staging),
            _ => None,
        });
        for (staging, out) in own.zip(outputs) {
            out.bytes_mut().copy_from_slice(staging.bytes()?);
        }
        Ok(report)
    }

    /// The strings that outputs may hold: the model's and the inputs'.
    fn words_of<T: AsTensor>(&self, inputs: &[T]) -> Result<Arc<Words>, SessionError> {
        let plan = self.plan();
        if !plan.outputs.iter().any(|p| p.dtype == DType::Str.name()) {
            return Ok(Arc::default());
        }
        let mut words = Words::of(plan.words.iter().map(String::as_str))?;
        inputs.iter().filter_map(|t| t.view().words()).try_for_each(|own| words.merge(own))?;
        Ok(Arc::new(words))
    }

    /// Puts a run into the model's stream and returns without waiting for it. A run that was started before is followed by
    /// this one when all inputs and outputs are bound to device memory; otherwise it is finished first, and its outputs are
    /// lost.
    pub fn start<T: AsTensor>(&mut self, inputs: &[T]) -> Result<(), SessionError> {
        self.check_inputs(inputs)?;
        if self.timed || !self.inputs.iter().chain(&self.outputs).all(Slot::is_bound) {
            self.drain()?;
        }
        self.words = self.words_of(inputs)?;
        self.prepare()?;
        if !self.counts_from_zero {
            // By the host, while no kernel counts.
            self.drain()?;
            self.counters.clear()?;
        }
        self.counts_from_zero = false;
        let (mut given, stream) = (inputs.iter(), self.held.current());
        self.running = true;
        for slot in &mut self.inputs {
            let Slot::Own { memory, staging } = slot else { continue };
            if let Some(t) = given.next() {
                staging.bytes()?.copy_from_slice(t.view().bytes());
            }
            self.device.copy_in(stream, memory.address, staging)?;
        }
        self.device.record(stream, self.held.events[0])?;
        for (i, l) in self.launches().iter().enumerate() {
            if !l.idle {
                self.device.launch(stream, l.kernel, l.shape, &l.kernarg)?;
            }
            if self.timed {
                self.device.record(stream, self.held.events[i + 1])?;
            }
        }
        if !self.timed {
            self.device.record(stream, self.held.events[1])?;
        }
        for slot in &self.outputs {
            if let Slot::Own { memory, staging } = slot {
                self.device.copy_out(stream, staging, memory.address)?;
            }
        }
        // What follows in the stream finds them so again.
        self.counts_from_zero = true;
        Ok(())
    }

    /// Waits for the run that was started and gives its outputs, but for those bound to device memory.
    pub fn finish(&mut self) -> Result<(Vec<HostTensor>, RunReport), SessionError> {
        let report = self.wait()?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (port, slot) in self.plans[self.active].plan.outputs.iter().zip(&mut self.outputs) {
            let Slot::Own { staging, .. } = slot else { continue };
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
            launches: self.launches().iter().filter(|l| !l.idle).count(),
            instructions: (!stats.is_empty()).then(|| stats.iter().map(|s| s.instructions).sum()),
            time: self.device.elapsed(self.held.events[0], self.held.events[last])?,
            per_launch: Vec::new(),
            plans: Vec::new(),
        };
        if self.timed {
            report.plans.push(self.shared_plan());
            let mut stats = stats.iter();
            for (i, l) in self.launches().iter().enumerate() {
                let time = self.device.elapsed(self.held.events[i], self.held.events[i + 1])?;
                let planned = &self.plan().launches[i];
                let (kernel, step) = (planned.kernel.clone(), planned.step.clone());
                let instructions = if l.idle { None } else { stats.next().map(|s| s.instructions) };
                report.per_launch.push(LaunchReport { kernel, step, time, instructions });
            }
        }
        Ok(report)
    }

    /// The inputs of a plan that are not bound to device memory.
    fn wanted(&self, plan: usize) -> impl Iterator<Item = &Port> {
        self.plans[plan].plan.inputs.iter().zip(&self.inputs).filter(|(_, slot)| !slot.is_bound()).map(|(p, _)| p)
    }

    /// The first tensor that is no input of a plan.
    fn misfit<'a, T: AsTensor>(&'a self, plan: usize, inputs: &'a [T]) -> Option<(&'a Port, &'a T)> {
        self.wanted(plan).zip(inputs).find(|(port, t)| {
            let t = t.view();
            !is_of(port, t.dtype(), t.shape()) || port.fixed.as_ref().is_some_and(|f| f[..] != *t.bytes())
        })
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

fn shared(plans: Vec<Plan>) -> Vec<Arc<Plan>> {
    plans.into_iter().map(Arc::new).collect()
}

/// True when these are inputs of a plan.
fn fits(plan: &Plan, inputs: &[Given]) -> bool {
    let fits = |(port, given): (&Port, &Given)| match given {
        Given::Device { dtype, shape, .. } => port.fixed.is_none() && is_of(port, *dtype, shape),
        Given::Host(t) => is_of(port, t.dtype(), t.shape()) && port.fixed.as_ref().is_none_or(|f| f[..] == *t.bytes()),
    };
    plan.inputs.len() == inputs.len() && plan.inputs.iter().zip(inputs).all(fits)
}

fn is_of(port: &Port, dtype: DType, shape: &[usize]) -> bool {
    dtype.name() == port.dtype && shape == port.shape
}

fn describe(dtype: &str, shape: &[usize]) -> String {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{}x{dtype}", dims.join("x"))
}
