//! The launch plan: what a compiled model does, kernel by kernel, and where its tensors live.
//!
//! Plans travel with the code as a section of the ELF file ([`PLAN_SECTION`], a JSON list: one plan for each of the shapes
//! that the model was compiled for) beside the weights that they share ([`WEIGHTS_SECTION`], raw bytes). Every address is an offset into a region of device memory: the weights, the arena of
//! intermediate tensors (reused by liveness), or a buffer of the caller's for one input or output.

use crate::tensor::{DType, HostTensor, SplitMix64};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the ELF section with the plan.
pub const PLAN_SECTION: &str = ".barewave.plan";
/// Name of the ELF section with the weights.
pub const WEIGHTS_SECTION: &str = ".barewave.weights";
/// Version of the plan's format.
pub const PLAN_VERSION: u32 = 8;

/// A region of device memory that a plan addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Region {
    /// Intermediate tensors.
    Arena,
    /// Constants.
    Weights,
    /// The input of this number.
    Input(usize),
    /// The output of this number.
    Output(usize),
    /// Counters, zero before each launch and after it, which all launches of a run share.
    Counters,
    /// None: the offset is a number that the kernel gets as it is.
    Value,
}

/// An address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    /// Region.
    pub region: Region,
    /// Bytes from its start.
    pub offset: u64,
}

/// An input or output of the model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Element type by its short name (`f32`).
    pub dtype: String,
    /// Extents.
    pub shape: Vec<usize>,
    /// Names of the dimensions that the model leaves open; `None` for others, and nothing when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Option<String>>,
    /// The elements that an input must have, because the plan was made for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Vec<u8>>,
}

impl Port {
    /// Element type; `None` for a name this version does not know.
    pub fn element_type(&self) -> Option<DType> {
        DType::from_name(&self.dtype)
    }
    /// Type and shape for people, with the names of open dimensions: `2x3xf32 (N = 2)`.
    pub fn described(&self) -> String {
        let dims: String = self.shape.iter().map(|d| format!("{d}x")).collect();
        let open = self.open.iter().zip(&self.shape).filter_map(|(o, d)| o.as_ref().map(|o| format!("{o} = {d}")));
        let open: Vec<String> = open.collect();
        let open = if open.is_empty() { String::new() } else { format!(" ({})", open.join(", ")) };
        format!("{dims}{}{open}", self.dtype)
    }
    /// Size in bytes; `None` when type or size make no sense.
    pub fn bytes(&self) -> Option<usize> {
        let elements = self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        elements.checked_mul(self.element_type()?.size())
    }
}

/// An argument that holds numbers which the model computes, or is given, and which decide what the kernel does: by which it reads another one, or of
/// which it looks for the best.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Indices {
    /// Number of the argument.
    pub arg: u32,
    /// Their element type.
    pub dtype: String,
    /// How many lie behind the argument's address.
    pub count: u64,
    /// They are below this and not negative; floats are not farther from zero.
    pub extent: u64,
    /// Each is one more than the one before: they name rows of blocks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
}

impl Indices {
    /// Such numbers, each as likely as another or one behind the other, the same each time; nothing for a type that this version does not know.
    pub fn drawn(&self) -> Option<Vec<u8>> {
        /// More come again and again.
        const MOST: u64 = 1 << 20;
        let dtype = DType::from_name(&self.dtype)?;
        let count = self.count.min(MOST);
        let extent = self.extent.max(1);
        let number = |n: u64| if self.in_turn { (n % extent) as f64 } else { SplitMix64::drawn(n, dtype, extent) };
        let numbers: Vec<f64> = (0..count).map(number).collect();
        let drawn = HostTensor::from_f64(dtype, &[numbers.len()], &numbers);
        let (some, wanted) = (drawn.bytes(), self.count as usize * dtype.size());
        let mut all = some.repeat(wanted.div_ceil(some.len().max(1)));
        all.truncate(wanted);
        Some(all)
    }
}

/// An output that may lie where an input does, as caches that a step adds to do: whoever reads the input reads it before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InPlace {
    /// Number of the input.
    pub input: usize,
    /// Number of the output, of as many bytes.
    pub output: usize,
}

/// One kernel launch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Symbol of the kernel in the code object.
    pub kernel: String,
    /// Source operators it computes.
    pub step: String,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// Workitems per workgroup (one dimension).
    pub block: u32,
    /// Workgroups along x, y and z that share a result, of which the last one to come ends it.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub sharing: [u32; 3],
    /// The steps that it computes one behind the other, where these are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Linked>,
    /// The steps that it computes side by side, where these are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Linked>,
    /// Kernel arguments: 64-bit addresses.
    pub args: Vec<Address>,
    /// Those of them that hold indices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<Indices>,
    /// All that it does is to copy these inputs to these outputs: it is left out where each of them lies there already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<InPlace>,
    /// Floating-point operations.
    pub flops: u64,
    /// The type of most factors of these.
    #[serde(default = "usual", skip_serializing_if = "is_usual")]
    pub multiplies: String,
    /// Numbers of the launches whose results it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
    /// Bytes of the arena that hold something while it runs.
    #[serde(default)]
    pub live_bytes: u64,
}

/// A step of several that a launch computes. Its workgroups follow those of the one before; where steps are computed one behind the other they wait for all of
/// these.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Linked {
    /// Source operators.
    pub step: String,
    /// Workgroups in x, y, z, of a launch of its own: in this one they are numbered along x.
    pub grid: [u32; 3],
    /// Workgroups along x, y and z that share a result.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub sharing: [u32; 3],
    /// Floating-point operations.
    pub flops: u64,
    /// The type of what is multiplied.
    #[serde(default = "usual", skip_serializing_if = "is_usual")]
    pub multiplies: String,
    /// Of steps one behind the other, which may be several at a time: it waits for all of the level before.
    pub level: u32,
}

/// The type of what most of the steps' operations multiply.
pub(crate) fn most_multiplied(steps: &[Linked]) -> String {
    let of = |dtype: &str| steps.iter().filter(|l| l.multiplies == dtype).map(|l| l.flops).sum::<u64>();
    steps.iter().map(|l| &l.multiplies).max_by_key(|dtype| of(dtype)).cloned().unwrap_or_else(usual)
}

fn usual() -> String {
    "f32".into()
}

fn is_usual(dtype: &str) -> bool {
    dtype == "f32"
}

fn alone() -> [u32; 3] {
    [1; 3]
}

fn is_alone(n: &[u32; 3]) -> bool {
    *n == [1; 3]
}

/// What is known of a kernel without running it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelStats {
    /// Symbol.
    pub kernel: String,
    /// Source operators of its first launch.
    pub step: String,
    /// Launches.
    pub launches: usize,
    /// Instructions.
    pub instructions: u32,
    /// VGPRs of a wave.
    pub vgprs: u32,
    /// AGPRs of a wave.
    pub agprs: u32,
    /// SGPRs of a wave.
    pub sgprs: u32,
    /// LDS of a workgroup, bytes.
    pub lds: u32,
    /// Scratch of a workitem, bytes.
    pub scratch: u32,
    /// Values spilled.
    pub spills: u32,
    /// Waves that fit on a SIMD at once.
    pub occupancy: u32,
    /// Workgroups of a launch.
    pub workgroups: u64,
    /// Workitems of a workgroup.
    pub workgroup_size: u32,
    /// Floating-point operations of a launch.
    pub flops: u64,
}

/// A compiled model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_VERSION`] of the writer.
    pub version: u32,
    /// Name of the model.
    pub model: String,
    /// Target (`gfx942`).
    pub target: String,
    /// Inputs in the model's order.
    pub inputs: Vec<Port>,
    /// Outputs in the model's order.
    pub outputs: Vec<Port>,
    /// Bytes of the arena: what intermediate tensors take at their peak.
    pub arena_bytes: u64,
    /// Bytes of the counters.
    #[serde(default)]
    pub counter_bytes: u64,
    /// Bytes that intermediate tensors would take without reuse.
    pub sum_bytes: u64,
    /// Bytes of the weights.
    pub weights_bytes: u64,
    /// Kernel launches in order.
    pub launches: Vec<Launch>,
    /// Which outputs may lie where which inputs do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_place: Vec<InPlace>,
    /// Tensors of which several steps write a part each, and their bytes. Lanes behind the end of a part load, and drop, what of the others is not
    /// written yet: these hold meaningful data from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<(Address, u64)>,
    /// The kernels, in order of their first launches.
    pub kernels: Vec<KernelStats>,
    /// The model's own metadata (class labels, image normalisation, ...).
    pub metadata: BTreeMap<String, String>,
    /// Strings that outputs may hold, besides those of inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}
