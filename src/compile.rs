//! The compiler: a fused graph becomes one code object with launch plan and weights.
//!
//! ```text
//! fused graph -> kernels (machine IR) -> passes (machine code) -> plan (addresses, launches) -> ELF
//! ```
//! Steps that differ only in their tensors share a kernel. Kernels are compiled in parallel; the result does not
//! depend on the order.

use crate::codeobj::{self, CodeObject, Section};
use crate::graph::fused::{FusedGraph, Role, Step, TensorId};
use crate::graph::plan::{self, MemoryPlan, Place};
use crate::kernels::{self, Arg, Kernel, Unsupported};
use crate::passes::{self, CompileError, Machine};
use crate::runtime::plan::{Address, Launch, PLAN_SECTION, PLAN_VERSION, Plan, Port, Region, WEIGHTS_SECTION};
use crate::verify;
use barewave_isa::Target;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Why a model could not be compiled.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("operator not supported: {0}")]
    Unsupported(#[from] Unsupported),
    #[error("internal error: {0}")]
    Kernel(#[from] CompileError),
    #[error("internal error: {0}")]
    Graph(String),
    #[error("{0}")]
    Environment(&'static str),
    #[error(transparent)]
    CodeObject(#[from] codeobj::Error),
    #[error("internal error: {0}")]
    Refused(#[from] verify::Refused),
}

/// One compiled kernel and where it is used.
#[derive(Clone, Debug)]
pub struct CompiledKernel {
    /// Symbol.
    pub name: String,
    /// Machine IR as the kernel's author wrote it.
    pub source: crate::mir::Function,
    /// Machine code.
    pub machine: Machine,
    /// Launch shape and arguments.
    pub kernel: Kernel,
    /// Number of launches.
    pub uses: usize,
}

/// A compiled model in memory.
#[derive(Clone, Debug)]
pub struct Program {
    /// Target.
    pub target: Target,
    /// Kernels in order of their first launch.
    pub kernels: Vec<CompiledKernel>,
    /// Launch plan.
    pub plan: Plan,
    /// Constants as the kernels want them.
    pub weights: Vec<u8>,
}

/// Alignment of tensors in both regions, bytes.
const ALIGN: u64 = 256;

/// Compiles a graph for a target.
pub fn compile(graph: &FusedGraph, target: Target) -> Result<Program, Error> {
    passes::dumped().map_err(Error::Environment)?;
    graph.check().map_err(Error::Graph)?;
    let groups = group_steps(graph);
    let mut compiled: Vec<Vec<CompiledKernel>> = groups
        .par_iter()
        .map(|g| compile_step(graph, &graph.steps[g.steps[0]], target, &g.name, g.steps.len()))
        .collect::<Result<_, Error>>()?;
    let memory = plan::plan(graph);
    let mut layout = Layout::new(graph, &memory);
    let group_of: FxHashMap<usize, usize> =
        groups.iter().enumerate().flat_map(|(i, g)| g.steps.iter().map(move |s| (*s, i))).collect();
    let mut launches = Vec::new();
    for (i, step) in graph.steps.iter().enumerate() {
        for k in &compiled[group_of[&i]] {
            launches.push(layout.launch(step, i, k));
        }
    }
    let port = |id: TensorId, layout: &mut Layout| {
        let t = graph.tensor(id);
        let dtype = t.dtype.to_string();
        Port { name: t.name.clone(), dtype, shape: t.shape.clone(), address: layout.address(id) }
    };
    let inputs = graph.inputs.iter().map(|id| port(*id, &mut layout)).collect();
    let outputs = graph.outputs.iter().map(|id| port(*id, &mut layout)).collect();
    let weights = layout.fill(&compiled);
    let plan = Plan {
        version: PLAN_VERSION,
        model: graph.name.clone(),
        target: target.info().name.to_string(),
        inputs,
        outputs,
        arena_bytes: layout.arena_end,
        peak_bytes: memory.arena_bytes as u64,
        sum_bytes: memory.sum_bytes as u64,
        weights_bytes: weights.len() as u64,
        launches,
        metadata: graph.metadata.clone(),
    };
    let kernels = compiled.drain(..).flatten().collect();
    let program = Program { target, kernels, plan, weights };
    // the last word: an independent proof over the bytes
    verify::admit(&program.code()?)?;
    Ok(program)
}

/// Steps that share their kernels.
struct Group {
    name: String,
    steps: Vec<usize>,
}

fn group_steps(graph: &FusedGraph) -> Vec<Group> {
    let mut by_key: FxHashMap<String, usize> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    for (i, step) in graph.steps.iter().enumerate() {
        let key = kernels::key(graph, step);
        match by_key.get(&key) {
            Some(&g) => groups[g].steps.push(i),
            None => {
                by_key.insert(key, groups.len());
                groups.push(Group { name: format!("{}_{}", step.kind.name(), groups.len()), steps: vec![i] });
            }
        }
    }
    groups
}

fn compile_step(
    graph: &FusedGraph,
    step: &Step,
    target: Target,
    name: &str,
    uses: usize,
) -> Result<Vec<CompiledKernel>, Error> {
    let mut out = Vec::new();
    for (i, kernel) in kernels::lower(graph, step, target, name)?.into_iter().enumerate() {
        let mut function = kernel.function.clone();
        if i > 0 {
            function.name = format!("{name}_{i}");
        }
        let machine = passes::compile(function.clone())?;
        out.push(CompiledKernel { name: function.name.clone(), source: function, machine, kernel, uses });
    }
    Ok(out)
}

/// Addresses of everything that kernels touch.
struct Layout<'a> {
    graph: &'a FusedGraph,
    memory: &'a MemoryPlan,
    /// Inputs and outputs lie behind the intermediate tensors.
    ports: BTreeMap<TensorId, u64>,
    arena_end: u64,
    /// Constants placed so far, and what fills them.
    constants: BTreeMap<TensorId, u64>,
    blobs: Vec<(u64, usize, String, usize)>,
    end: u64,
}

impl<'a> Layout<'a> {
    fn new(graph: &'a FusedGraph, memory: &'a MemoryPlan) -> Layout<'a> {
        let mut ports = BTreeMap::new();
        let mut arena_end = (memory.arena_bytes as u64).next_multiple_of(ALIGN);
        for &id in graph.inputs.iter().chain(&graph.outputs) {
            if matches!(memory.place(id), Place::Input(_) | Place::Output(_)) && !ports.contains_key(&id) {
                ports.insert(id, arena_end);
                arena_end = (arena_end + graph.tensor(id).bytes() as u64).next_multiple_of(ALIGN);
            }
        }
        Layout { graph, memory, ports, arena_end, constants: BTreeMap::new(), blobs: Vec::new(), end: 0 }
    }

    fn reserve(&mut self, bytes: usize) -> u64 {
        let at = self.end;
        self.end = (at + bytes as u64).next_multiple_of(ALIGN);
        at
    }

    fn address(&mut self, id: TensorId) -> Address {
        let t = self.graph.tensor(id);
        if let Role::Constant(_) = t.role {
            let offset = match self.constants.get(&id) {
                Some(at) => *at,
                None => {
                    let at = self.reserve(t.bytes());
                    self.constants.insert(id, at);
                    at
                }
            };
            return Address { region: Region::Weights, offset };
        }
        let offset = match self.memory.place(id) {
            Place::Arena(at) => at as u64,
            _ => self.ports.get(&id).copied().expect("inputs and outputs are in the graph's lists"),
        };
        Address { region: Region::Arena, offset }
    }

    fn launch(&mut self, step: &Step, index: usize, k: &CompiledKernel) -> Launch {
        let args = k
            .kernel
            .args
            .iter()
            .map(|arg| match *arg {
                Arg::Input(i) => self.address(step.inputs[i].tensor),
                Arg::Output => self.address(step.output.tensor),
                Arg::Index(i, n) => self.address(step.inputs[i].indirect[n].index),
                Arg::Blob(n) => {
                    let offset = self.reserve(k.kernel.blobs[n].len());
                    self.blobs.push((offset, index, k.name.clone(), n));
                    Address { region: Region::Weights, offset }
                }
            })
            .collect();
        Launch {
            kernel: k.name.clone(),
            step: step.name.clone(),
            grid: k.kernel.grid,
            block: k.machine.function.workgroup_size,
            args,
            flops: k.kernel.flops,
        }
    }

    /// The bytes of the weights region.
    fn fill(&self, compiled: &[Vec<CompiledKernel>]) -> Vec<u8> {
        let by_name: FxHashMap<&str, &CompiledKernel> =
            compiled.iter().flatten().map(|k| (k.name.as_str(), k)).collect();
        enum Source<'s> {
            Tensor(TensorId),
            Blob(usize, &'s kernels::Blob),
        }
        let mut sources: Vec<(u64, usize, Source)> = Vec::new();
        for (id, at) in &self.constants {
            sources.push((*at, self.graph.tensor(*id).bytes(), Source::Tensor(*id)));
        }
        for (at, step, name, n) in &self.blobs {
            let blob = &by_name[name.as_str()].kernel.blobs[*n];
            sources.push((*at, blob.len(), Source::Blob(*step, blob)));
        }
        sources.sort_by_key(|s| s.0);
        let mut weights = vec![0u8; self.end as usize];
        let mut rest = &mut weights[..];
        let mut at = 0u64;
        let mut jobs = Vec::new();
        for (from, len, source) in sources {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut((from - at) as usize);
            let (mine, tail) = tail.split_at_mut(len);
            jobs.push((mine, source));
            at = from + len as u64;
            rest = tail;
        }
        jobs.into_par_iter().for_each(|(out, source)| match source {
            Source::Tensor(id) => {
                if let Role::Constant(data) = &self.graph.tensor(id).role {
                    out.copy_from_slice(data.bytes());
                }
            }
            Source::Blob(step, blob) => blob.fill(self.graph, &self.graph.steps[step], out),
        });
        weights
    }
}

impl Program {
    /// The ELF file: code, launch plan and weights, as code object v5 (`abi` may be changed).
    pub fn code_object(&self) -> CodeObject<'_> {
        let plan = serde_json::to_vec(&self.plan).expect("a plan is plain data");
        CodeObject {
            target: self.target,
            abi: codeobj::Abi::V5,
            kernels: self
                .kernels
                .iter()
                .map(|k| {
                    let args = (0..k.kernel.args.len()).map(|i| codeobj::Arg::buffer(format!("arg{i}"), i as u32 * 8));
                    kernel_of(&k.machine, args.collect())
                })
                .collect(),
            sections: vec![
                Section { name: PLAN_SECTION.to_string(), data: Cow::Owned(plan) },
                Section { name: WEIGHTS_SECTION.to_string(), data: Cow::Borrowed(&self.weights) },
            ],
        }
    }

    /// The ELF file without weights, for running right after compilation.
    pub fn code(&self) -> Result<Vec<u8>, Error> {
        let mut object = self.code_object();
        object.sections.clear();
        Ok(object.to_bytes()?)
    }
}

/// A compiled kernel for a code object: its code, and what its descriptor says.
pub fn kernel_of(m: &Machine, args: Vec<codeobj::Arg>) -> codeobj::Kernel {
    let f = &m.function;
    let mut out = codeobj::Kernel::new(f.target, &f.name, m.emitted.code.clone());
    out.vgprs = m.usage.vgprs;
    out.agprs = m.usage.agprs;
    out.sgprs = m.usage.sgprs;
    out.lds_bytes = f.lds_bytes;
    out.scratch_bytes = f.scratch_bytes;
    out.kernarg_size = f.kernarg_bytes;
    out.user_sgprs.private_segment_buffer = f.preloads.scratch.is_some();
    out.user_sgprs.kernarg_segment_ptr = f.preloads.kernarg.is_some();
    out.workgroup_ids = f.preloads.workgroup_id.map(|v| v.is_some());
    out.max_flat_workgroup_size = f.workgroup_size;
    out.reqd_workgroup_size = Some([f.workgroup_size, 1, 1]);
    out.args = args;
    out
}
