//! A compiled model on a device: its arena, its weights, and runs.

use super::device::{Device, DeviceError, ModuleId};
use super::plan::{Address, Plan, Port, Region};
use crate::tensor::HostTensor;
use std::time::{Duration, Instant};

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
    pub instructions: u64,
    /// Time of the kernels, host clock.
    pub time: Duration,
    /// Time and instructions of each launch, in order.
    pub per_launch: Vec<(Duration, u64)>,
}

/// A model loaded on a device.
pub struct Session {
    device: Box<dyn Device>,
    plan: Plan,
    module: ModuleId,
    arena: u64,
    weights: u64,
}

impl Session {
    /// Loads code and weights. `code` are the bytes of the ELF file.
    pub fn new(mut device: Box<dyn Device>, plan: Plan, code: &[u8], weights: &[u8]) -> Result<Session, SessionError> {
        check_plan(&plan, weights.len() as u64)?;
        if plan.target != device.target().info().name {
            return Err(DeviceError::WrongTarget {
                code: plan.target.clone(),
                device: device.target().info().name.to_string(),
            }
            .into());
        }
        let module = device.load(code)?;
        let arena = device.alloc(plan.arena_bytes.max(1))?;
        let at = device.alloc(plan.weights_bytes.max(1))?;
        device.write(at, weights)?;
        Ok(Session { device, plan, module, arena, weights: at })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// The device's name.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    fn address(&self, a: Address) -> u64 {
        match a.region {
            Region::Arena => self.arena + a.offset,
            Region::Weights => self.weights + a.offset,
        }
    }

    /// Runs the model once: inputs in the model's order, outputs likewise.
    pub fn run(&mut self, inputs: &[HostTensor]) -> Result<(Vec<HostTensor>, RunReport), SessionError> {
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
        for i in 0..inputs.len() {
            let at = self.address(self.plan.inputs[i].address);
            self.device.write(at, inputs[i].bytes())?;
        }
        let mut report = RunReport::default();
        let start = Instant::now();
        let mut kernarg = Vec::new();
        for launch in &self.plan.launches {
            kernarg.clear();
            for a in &launch.args {
                kernarg.extend_from_slice(&self.address(*a).to_le_bytes());
            }
            let begun = Instant::now();
            let block = [launch.block, 1, 1];
            let stats = self.device.launch(self.module, &launch.kernel, launch.grid, block, &kernarg)?;
            report.instructions += stats.instructions;
            report.per_launch.push((begun.elapsed(), stats.instructions));
        }
        self.device.synchronize()?;
        report.time = start.elapsed();
        report.launches = self.plan.launches.len();
        let mut outputs = Vec::new();
        for i in 0..self.plan.outputs.len() {
            let port = self.plan.outputs[i].clone();
            let bytes = port.bytes().ok_or_else(|| bad_port(&port))?;
            let mut data = vec![0u8; bytes];
            let at = self.address(port.address);
            self.device.read(at, &mut data)?;
            let dtype = port.element_type().ok_or_else(|| bad_port(&port))?;
            outputs.push(HostTensor::new(dtype, &port.shape, data).map_err(|e| SessionError::Plan(e.to_string()))?);
        }
        Ok((outputs, report))
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
