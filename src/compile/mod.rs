//! The compiler: a model becomes one code object with launch plan and weights.
//!
//! ```text
//! model -> fused graph -> kernels (machine IR) -> passes (machine code) -> plan (addresses, launches) -> ELF
//! ```
//! Steps that differ only in their tensors share a kernel, also across models ([`cache`]). Kernels are compiled in
//! parallel; the result depends neither on the order nor on the cache.

pub mod cache;
mod compiled;
mod kernel;
mod support;
mod weights;

pub use cache::{CacheStats, KernelCache};
pub use compiled::{Compiled, LoadError};
pub use kernel::{KernelCode, KernelError, KernelIr, kernel_of};
pub use support::{NodeSupport, Support, Verdict};

use crate::graph::fused::{FusedGraph, Step, TensorId};
use crate::graph::plan::{self, MemoryPlan, Place};
use crate::graph::{self, Options as GraphOptions};
use crate::kernels::{self, Arg, Blob};
use crate::onnx::Model;
use crate::runtime::plan::{Address, KernelStats, Launch, PLAN_VERSION, Plan, Port, Region};
use crate::verify;
use barewave_isa::Target;
use cache::StepCode;
use kernel::{compile_step, symbol};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a model could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model cannot be turned into kernel launches.
    #[error(transparent)]
    Graph(#[from] graph::Error),
    /// A step has no kernel.
    #[error("operator not supported: {0}")]
    Unsupported(#[from] kernels::Unsupported),
    /// A pass failed: a defect of barewave.
    #[error("internal error: {0}")]
    Kernel(#[from] crate::passes::CompileError),
    /// The compiled kernels cannot be put into a file.
    #[error(transparent)]
    CodeObject(#[from] crate::codeobj::Error),
    /// An environment variable makes no sense.
    #[error("{0}")]
    Environment(&'static str),
    /// The static verifier found fault with the machine code: a defect of barewave.
    #[error("internal error: {0}")]
    Refused(#[from] verify::Refused),
}

impl From<KernelError> for Error {
    fn from(e: KernelError) -> Error {
        match e {
            KernelError::Unsupported(e) => Error::Unsupported(e),
            KernelError::Pass(e) => Error::Kernel(e),
        }
    }
}

/// What the caller of a [`Compiler`] may decide.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where compiled kernels are looked for and kept.
    pub cache: Arc<KernelCache>,
    /// Keep the machine IR of all kernels ([`Compiled::ir`]), which means that all are compiled anew.
    pub keep_ir: bool,
}

impl Default for Options {
    /// A cache in memory, no IR.
    fn default() -> Options {
        Options { cache: Arc::new(KernelCache::in_memory()), keep_ir: false }
    }
}

/// Compiles models for one target.
#[derive(Clone, Debug)]
pub struct Compiler {
    target: Target,
    options: Options,
}

impl Compiler {
    /// A compiler for a target.
    pub fn new(target: Target, options: Options) -> Compiler {
        Compiler { target, options }
    }

    /// The target.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The kernel cache.
    pub fn cache(&self) -> &Arc<KernelCache> {
        &self.options.cache
    }

    /// Compiles a model. `shapes` says what its symbolic dimensions are.
    pub fn compile(&self, model: &Model, shapes: &GraphOptions) -> Result<Compiled, Error> {
        self.compile_graph(&graph::fuse(model, shapes)?)
    }

    /// What this compiler can do with each node of a model, without making code of it.
    ///
    /// # Errors
    /// Of the model as a whole: damaged, or with dimensions that `shapes` does not give.
    pub fn supports(&self, model: &Model, shapes: &GraphOptions) -> Result<Support, graph::Error> {
        support::supports(self.target, model, shapes)
    }

    /// Compiles a graph that is fused already.
    pub fn compile_graph(&self, graph: &FusedGraph) -> Result<Compiled, Error> {
        crate::passes::dumped().map_err(Error::Environment)?;
        graph.check().map_err(|rule| graph::Error::Internal { pass: "fuse", rule })?;
        let groups = group_steps(graph);
        let compiled: Vec<(StepCode, Vec<KernelIr>)> =
            groups.par_iter().map(|g| self.compile_group(graph, g)).collect::<Result<_, Error>>()?;
        let mut group_of = vec![0; graph.steps.len()];
        for (i, g) in groups.iter().enumerate() {
            g.steps.iter().for_each(|s| group_of[*s] = i);
        }
        let code = |step: usize| &compiled[group_of[step]].0;
        let blobs = blobs(graph, &group_of, code);
        let memory = place(graph, code, &blobs);
        let weights = weights::fill(graph, &memory, &blobs.jobs);
        let mut launches = Vec::new();
        for (i, step) in graph.steps.iter().enumerate() {
            for (n, k) in code(i).iter().enumerate() {
                launches.push(Launch {
                    kernel: symbol(&groups[group_of[i]].name, n),
                    step: step.name.clone(),
                    grid: k.grid,
                    block: k.workgroup_size,
                    args: k.args.iter().map(|a| address(*a, step, (i, n), &memory, &blobs)).collect(),
                    flops: k.flops,
                });
            }
        }
        let mut kernels = Vec::new();
        let mut stats = Vec::new();
        for (g, (codes, _)) in groups.iter().zip(&compiled) {
            for (n, k) in codes.iter().enumerate() {
                let name = symbol(&g.name, n);
                stats.push(KernelStats {
                    kernel: name.clone(),
                    step: graph.steps[g.steps[0]].name.clone(),
                    launches: g.steps.len(),
                    instructions: k.instructions,
                    vgprs: k.vgprs,
                    agprs: k.agprs,
                    sgprs: k.sgprs,
                    lds: k.lds_bytes,
                    scratch: k.scratch_bytes,
                    spills: k.spills,
                    occupancy: k.waves_per_simd,
                    workgroups: k.grid.iter().map(|g| u64::from(*g)).product(),
                    workgroup_size: k.workgroup_size,
                    flops: k.flops,
                });
                kernels.push(k.object(self.target, &name));
            }
        }
        let plan = Plan {
            version: PLAN_VERSION,
            model: graph.name.clone(),
            target: self.target.info().name.to_string(),
            inputs: graph.inputs.iter().map(|id| port(graph, *id)).collect(),
            outputs: graph.outputs.iter().map(|id| port(graph, *id)).collect(),
            arena_bytes: memory.arena_bytes as u64,
            sum_bytes: memory.sum_bytes as u64,
            weights_bytes: memory.weights_bytes as u64,
            launches,
            kernels: stats,
            metadata: graph.metadata.clone(),
        };
        let ir = compiled.into_iter().flat_map(|(_, ir)| ir).collect();
        let compiled = Compiled::new(self.target, plan, kernels, weights, ir);
        // The last word: an independent proof over the bytes, wherever the kernels came from.
        verify::admit(&compiled.code()?)?;
        Ok(compiled)
    }

    /// The kernels of a group of equal steps, from the cache or made.
    fn compile_group(&self, graph: &FusedGraph, group: &Group) -> Result<(StepCode, Vec<KernelIr>), Error> {
        let step = &graph.steps[group.steps[0]];
        let make = || compile_step(graph, step, self.target, &group.name);
        // Dumps are made while a kernel is compiled.
        if self.options.keep_ir || crate::passes::dumped().is_ok_and(|d| !d.is_empty()) {
            let (code, ir): (Vec<_>, Vec<_>) = make()?.into_iter().unzip();
            return Ok((Arc::new(code), ir));
        }
        let code = self.options.cache.get_or_compile(self.target, &group.key, || {
            Ok::<_, Error>(make()?.into_iter().map(|(code, _)| code).collect())
        })?;
        Ok((code, Vec::new()))
    }
}

/// Compiles a graph for a target, without a cache.
pub fn compile(graph: &FusedGraph, target: Target) -> Result<Compiled, Error> {
    Compiler::new(target, Options { keep_ir: true, ..Options::default() }).compile_graph(graph)
}

/// Steps that share their kernels.
struct Group {
    /// Symbol of the first kernel.
    name: String,
    key: String,
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
                by_key.insert(key.clone(), groups.len());
                groups.push(Group { name: format!("{}_{}", step.kind.name(), groups.len()), key, steps: vec![i] });
            }
        }
    }
    groups
}

/// The constant data made for kernels, each different one once.
struct Blobs<'a> {
    jobs: Vec<(&'a Blob, &'a Step)>,
    /// Number in `jobs` by step, kernel of the step, and blob of the kernel.
    of: FxHashMap<(usize, usize, usize), usize>,
}

fn blobs<'a>(graph: &'a FusedGraph, group_of: &[usize], code: impl Fn(usize) -> &'a StepCode) -> Blobs<'a> {
    let mut out = Blobs { jobs: Vec::new(), of: FxHashMap::default() };
    // Weights depend on the step's own operand; other data on its kernel alone.
    let mut known: FxHashMap<(usize, usize, usize, Option<TensorId>), usize> = FxHashMap::default();
    for (i, step) in graph.steps.iter().enumerate() {
        for (n, k) in code(i).iter().enumerate() {
            for (b, blob) in k.blobs.iter().enumerate() {
                let operand = matches!(blob, Blob::Weights { .. }).then(|| step.inputs[1].tensor);
                let job = *known.entry((group_of[i], n, b, operand)).or_insert_with(|| {
                    out.jobs.push((blob, step));
                    out.jobs.len() - 1
                });
                out.of.insert((i, n, b), job);
            }
        }
    }
    out
}

/// Decides where everything lies.
fn place<'a>(graph: &FusedGraph, code: impl Fn(usize) -> &'a StepCode, blobs: &Blobs) -> MemoryPlan {
    let mut read = BTreeSet::new();
    for (i, step) in graph.steps.iter().enumerate() {
        for arg in code(i).iter().flat_map(|k| &k.args) {
            read.extend(tensor_of(*arg, step));
        }
    }
    let sizes: Vec<usize> = blobs.jobs.iter().map(|(b, _)| b.len()).collect();
    plan::plan(graph, |id| read.contains(&id), &sizes)
}

/// The tensor behind a kernel argument of a step.
fn tensor_of(arg: Arg, step: &Step) -> Option<TensorId> {
    match arg {
        Arg::Input(i) => Some(step.inputs[i].tensor),
        Arg::Output => Some(step.output.tensor),
        Arg::Index(i, n) => Some(step.inputs[i].indirect[n].index),
        Arg::Blob(_) => None,
    }
}

fn address(arg: Arg, step: &Step, (i, n): (usize, usize), memory: &MemoryPlan, blobs: &Blobs) -> Address {
    let (region, offset) = match (tensor_of(arg, step).map(|id| memory.place(id)), arg) {
        (Some(Place::Input(k)), _) => (Region::Input(k), 0),
        (Some(Place::Output(k)), _) => (Region::Output(k), 0),
        (Some(Place::Weights(at)), _) => (Region::Weights, at),
        (Some(Place::Arena(at)), _) => (Region::Arena, at),
        (Some(Place::Nowhere), _) => unreachable!("every tensor that a kernel reads was placed"),
        (None, Arg::Blob(b)) => (Region::Weights, memory.blobs[blobs.of[&(i, n, b)]]),
        (None, _) => unreachable!("only blobs are no tensors"),
    };
    Address { region, offset: offset as u64 }
}

fn port(graph: &FusedGraph, id: TensorId) -> Port {
    let t = graph.tensor(id);
    Port { name: t.name.clone(), dtype: t.dtype.to_string(), shape: t.shape.clone() }
}
