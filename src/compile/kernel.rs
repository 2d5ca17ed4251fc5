//! A compiled kernel by itself: machine code, what its descriptor says, how it is launched. It knows neither the model
//! nor its own name, so that equal steps of any model share it ([`super::cache`]).

use crate::codeobj;
use crate::graph::fused::{FusedGraph, Step};
use crate::kernels::{self, Arg, Blob, Link, Tuning, Unsupported};
use crate::mir::{Function, InChain};
use crate::passes::regalloc::Usage;
use crate::passes::{self, CompileError, Machine};
use crate::runtime::plan::KernelStats;
use barewave_isa::{Resources, Target};
use serde::{Deserialize, Serialize};

/// Machine code of a kernel and everything needed to launch it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelCode {
    /// Machine code.
    #[serde(with = "serde_bytes")]
    pub code: Vec<u8>,
    /// Instructions in it.
    pub instructions: u32,
    /// Instructions that a wave executes, about.
    pub executed: u32,
    /// VGPRs of a wave.
    pub vgprs: u32,
    /// AGPRs of a wave.
    pub agprs: u32,
    /// SGPRs of a wave, without VCC and its like.
    pub sgprs: u32,
    /// Values that were spilled.
    pub spills: u32,
    /// LDS of a workgroup in bytes.
    pub lds_bytes: u32,
    /// Scratch of a workitem in bytes.
    pub scratch_bytes: u32,
    /// Kernel arguments in bytes.
    pub kernarg_bytes: u32,
    /// Workitems of a workgroup, in one dimension.
    pub workgroup_size: u32,
    /// Waves that fit on a SIMD.
    pub waves_per_simd: u32,
    /// The kernel wants the scratch buffer resource in its first SGPRs.
    pub wants_scratch_resource: bool,
    /// The kernel wants the address of its arguments.
    pub wants_kernarg: bool,
    /// The kernel wants its workgroup's number in x, y, z.
    pub wants_workgroup_id: [bool; 3],
    /// Workgroups of a launch in x, y, z.
    pub grid: [u32; 3],
    /// Kernel arguments; argument `i` is at byte `8 i`.
    pub args: Vec<Arg>,
    /// Constant data made for the kernel, addressed by [`Arg::Blob`].
    pub blobs: Vec<Blob>,
    /// Floating-point operations of a launch.
    pub flops: u64,
    /// Bytes that [`Arg::Workspace`] must have.
    pub workspace: usize,
    /// Bytes that [`Arg::Counters`] must have.
    pub counters: usize,
    /// Workgroups along x, y and z that share a result.
    pub sharing: [u32; 3],
    /// How often it is launched, in turn with its neighbours of as many rounds.
    pub rounds: u32,
    /// The steps that it computes one behind the other, or side by side, where these are several.
    #[serde(default)]
    pub chain: Vec<Linked>,
}

/// A step of several that a kernel computes. Arguments and workgroups of each follow those of the one before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Linked {
    /// Arguments.
    pub args: usize,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// Workgroups along x, y and z that share a result.
    pub sharing: [u32; 3],
    /// Where its [`Arg::Counters`] begin.
    pub counters: usize,
    /// Where its round's [`Arg::Links`] begin.
    pub links: usize,
    /// Its [`Number::Before`](kernels::Number::Before).
    pub before: u32,
    /// Its [`Number::Wraps`](kernels::Number::Wraps).
    pub wraps: u32,
    /// Floating-point operations.
    pub flops: u64,
}

impl Linked {
    fn workgroups(&self) -> u32 {
        self.grid.iter().product()
    }
}

/// What a kernel was made from, for those who want to look at it.
#[derive(Clone, Debug)]
pub struct KernelIr {
    /// Machine IR as the kernel's author wrote it.
    pub source: Function,
    /// The allocated function and its bytes.
    pub machine: Machine,
}

impl KernelCode {
    /// The code alone: no arguments, one workgroup.
    fn of_machine(m: &Machine) -> KernelCode {
        let f = &m.function;
        KernelCode {
            code: m.emitted.code.clone(),
            instructions: m.emitted.insts as u32,
            executed: 0,
            vgprs: m.usage.vgprs,
            agprs: m.usage.agprs,
            sgprs: m.usage.sgprs,
            spills: m.usage.spills,
            lds_bytes: f.lds_bytes,
            scratch_bytes: f.scratch_bytes,
            kernarg_bytes: f.kernarg_bytes,
            workgroup_size: f.workgroup_size,
            waves_per_simd: m.occupancy().waves_per_simd,
            wants_scratch_resource: f.preloads.scratch.is_some(),
            wants_kernarg: f.preloads.kernarg.is_some(),
            wants_workgroup_id: f.preloads.workgroup_id.map(|v| v.is_some()),
            grid: [1; 3],
            args: Vec::new(),
            blobs: Vec::new(),
            flops: 0,
            workspace: 0,
            counters: 0,
            sharing: [1; 3],
            rounds: 1,
            chain: Vec::new(),
        }
    }

    /// A kernel of several steps for so many rounds of these, with arguments for each round: the code is the same.
    pub(super) fn in_rounds(&self, target: Target, rounds: u32) -> KernelCode {
        let steps = self.chain.len() as u32;
        let last = self.chain.last().map_or(0, Linked::workgroups);
        let of_round = |round: u32| {
            self.chain.iter().enumerate().map(move |(n, l)| Linked {
                links: l.links + (round * steps * Link::pitch(target)) as usize,
                before: if n == 0 && round > 0 { last } else { l.before },
                wraps: if round + 1 < rounds { u32::MAX } else { l.wraps },
                ..l.clone()
            })
        };
        KernelCode {
            grid: [self.grid[0].saturating_mul(rounds), 1, 1],
            args: self.args.repeat(rounds as usize),
            kernarg_bytes: self.kernarg_bytes * rounds,
            flops: self.flops * u64::from(rounds),
            counters: self.counters + (Link::bytes(target, steps * rounds) - Link::bytes(target, steps)) as usize,
            chain: (0..rounds).flat_map(of_round).collect(),
            ..self.clone()
        }
    }

    /// What a workgroup takes of a compute unit.
    pub(super) fn resources(&self, target: Target) -> Resources {
        let KernelCode { vgprs, agprs, sgprs, .. } = *self;
        let usage = Usage { vgprs, agprs, sgprs, ..Usage::default() };
        usage.resources_of(target, self.workgroup_size, self.lds_bytes)
    }

    /// What is known of it, under a name, for a model that has `steps` steps which launch it, of which the first is `step`.
    pub(super) fn stats(&self, kernel: String, step: String, steps: usize) -> KernelStats {
        KernelStats {
            kernel,
            step,
            launches: steps * self.rounds as usize,
            instructions: self.instructions,
            vgprs: self.vgprs,
            agprs: self.agprs,
            sgprs: self.sgprs,
            lds: self.lds_bytes,
            scratch: self.scratch_bytes,
            spills: self.spills,
            occupancy: self.waves_per_simd,
            workgroups: self.grid.iter().map(|g| u64::from(*g)).product(),
            workgroup_size: self.workgroup_size,
            flops: self.flops,
        }
    }

    /// The kernel for a code object, under a name.
    pub fn object(&self, target: Target, name: &str) -> codeobj::Kernel {
        let mut out = codeobj::Kernel::new(target, name, self.code.clone());
        out.vgprs = self.vgprs;
        out.agprs = self.agprs;
        out.sgprs = self.sgprs;
        out.lds_bytes = self.lds_bytes;
        out.scratch_bytes = self.scratch_bytes;
        out.kernarg_size = self.kernarg_bytes;
        out.user_sgprs.private_segment_buffer = self.wants_scratch_resource;
        out.user_sgprs.kernarg_segment_ptr = self.wants_kernarg;
        out.workgroup_ids = self.wants_workgroup_id;
        out.max_flat_workgroup_size = self.workgroup_size;
        out.reqd_workgroup_size = Some([self.workgroup_size, 1, 1]);
        let arg = |(i, a): (usize, &Arg)| match a {
            Arg::Number(_) => codeobj::Arg::value(format!("arg{i}"), i as u32 * 8, 8),
            _ => codeobj::Arg::buffer(format!("arg{i}"), i as u32 * 8),
        };
        out.args = self.args.iter().enumerate().map(arg).collect();
        out
    }
}

/// A compiled function for a code object: its code, and what its descriptor says.
pub fn kernel_of(m: &Machine, args: Vec<codeobj::Arg>) -> codeobj::Kernel {
    let kernel = KernelCode::of_machine(m).object(m.function.target, &m.function.name);
    codeobj::Kernel { args, ..kernel }
}

/// Why a step has no kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No kernel family takes the step.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A pass failed: a defect of barewave.
    #[error("internal error: {0}")]
    Pass(#[from] CompileError),
}

/// Sums of a workitem with which a product is tried again whose registers do not hold all.
const FEWER_SUMS: [u32; 4] = [96, 64, 48, 32];

/// Compiles the kernels of one step, in launch order; `name` is what listings call the first. With `keep_ir` what they were made from is there, too.
/// Products that would spill registers get smaller tiles, where these spill none.
pub fn compile_step(
    graph: &FusedGraph,
    step: &Step,
    target: Target,
    tuning: &Tuning,
    name: &str,
    keep_ir: bool,
) -> Result<Vec<(KernelCode, Option<KernelIr>)>, KernelError> {
    let spills = |kernels: &[(KernelCode, Option<KernelIr>)]| kernels.iter().any(|(k, _)| k.spills > 0);
    let usual = compile_by(graph, step, target, tuning, name, keep_ir)?;
    if !spills(&usual) || !graph.is_tiled(step) {
        return Ok(usual);
    }
    let smaller = FEWER_SUMS
        .into_iter()
        .filter_map(|most| compile_by(graph, step, target, &tuning.with_fewer_sums(most), name, keep_ir).ok());
    Ok(smaller.into_iter().find(|k| !spills(k)).unwrap_or(usual))
}

/// The same by a tuning, whatever it spills.
fn compile_by(
    graph: &FusedGraph,
    step: &Step,
    target: Target,
    tuning: &Tuning,
    name: &str,
    keep_ir: bool,
) -> Result<Vec<(KernelCode, Option<KernelIr>)>, KernelError> {
    let _span = tracing::info_span!("kernel", detail = name).entered();
    let mut out = Vec::new();
    let kernels = timed!("build", kernels::lower(graph, step, target, tuning, name))?;
    for (i, mut kernel) in kernels.into_iter().enumerate() {
        kernel.function.name = symbol(name, i);
        kernel.function.workgroups = Some(kernel.grid.iter().fold(1, |n: u32, g| n.saturating_mul(*g)));
        let source = keep_ir.then(|| kernel.function.clone());
        let executed = kernel.function.executed();
        let machine = passes::compile(kernel.function)?;
        let code = KernelCode {
            executed,
            grid: kernel.grid,
            args: kernel.args,
            blobs: kernel.blobs,
            flops: kernel.flops,
            workspace: kernel.workspace,
            counters: kernel.counters,
            sharing: kernel.sharing,
            rounds: kernel.rounds,
            ..KernelCode::of_machine(&machine)
        };
        out.push((code, source.map(|source| KernelIr { source, machine })));
    }
    Ok(out)
}

/// Bytes of a line of any cache, at most.
const LINE: usize = 256;

/// Compiles the one kernel that computes a round of steps one behind the other, called `name`; none where there cannot be one.
pub fn compile_chain(
    graph: &FusedGraph,
    steps: &[&Step],
    target: Target,
    tuning: &Tuning,
    name: &str,
    keep_ir: bool,
) -> Result<Vec<(KernelCode, Option<KernelIr>)>, KernelError> {
    let _span = tracing::info_span!("kernel", detail = name).entered();
    let (mut parts, mut chain, mut args) = (Vec::new(), Vec::<Linked>::new(), Vec::new());
    let (mut counters, mut workspace) = (0, 0);
    for (number, step) in (0..).zip(steps) {
        let before = chain.last().map(Linked::workgroups);
        let link = Link { number, before, follows: (number as usize) + 1 < steps.len() };
        let kernels = timed!("build", kernels::lower_linked(graph, step, target, tuning, name, Some(link)))?;
        let Ok([kernel]) = <[kernels::Kernel; 1]>::try_from(kernels) else { return Ok(Vec::new()) };
        let (args_of_step, grid, sharing, flops) = (kernel.args.len(), kernel.grid, kernel.sharing, kernel.flops);
        let wraps = grid.iter().product::<u32>().saturating_sub(1);
        chain.push(Linked { args: args_of_step, grid, sharing, counters, links: 0, before: 0, wraps, flops });
        counters += kernel.counters;
        workspace = workspace.max(kernel.workspace);
        parts.push(InChain { function: kernel.function, grid, args: kernel.args.len() as u32 });
        args.extend(kernel.args);
    }
    // Counters of steps follow those that steps have of their own.
    let links = counters.next_multiple_of(LINE);
    chain.iter_mut().for_each(|l| l.links = links);
    let counters = links + Link::bytes(target, steps.len() as u32) as usize;
    let Some(mut function) = Function::chained(parts) else { return Ok(Vec::new()) };
    let workgroups = chain.iter().map(Linked::workgroups).sum();
    function.name = name.to_string();
    function.workgroups = Some(workgroups);
    let source = keep_ir.then(|| function.clone());
    let executed = function.executed();
    let machine = passes::compile(function)?;
    let flops = chain.iter().map(|l| l.flops).sum();
    let code = KernelCode {
        executed,
        grid: [workgroups, 1, 1],
        args,
        flops,
        workspace,
        counters,
        chain,
        ..KernelCode::of_machine(&machine)
    };
    Ok(vec![(code, source.map(|source| KernelIr { source, machine }))])
}

/// The order in which the kernels of a step are launched: the number of each, and of the round.
pub fn launch_order(kernels: &[KernelCode]) -> Vec<(usize, u32)> {
    let mut out = Vec::new();
    let mut first = 0;
    for together in kernels.chunk_by(|a, b| a.rounds == b.rounds) {
        let numbers = first..first + together.len();
        out.extend((0..together[0].rounds).flat_map(|round| numbers.clone().map(move |n| (n, round))));
        first = numbers.end;
    }
    out
}

/// Name of kernel `i` of a step whose first kernel is called `name`.
pub fn symbol(name: &str, i: usize) -> String {
    if i == 0 { name.to_string() } else { format!("{name}_{i}") }
}
