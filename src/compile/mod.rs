//! The compiler: a model becomes one code object with launch plan and weights.
//!
//! ```text
//! model -> fused graph -> kernels (machine IR) -> passes (machine code) -> plan (addresses, launches) -> ELF
//! ```
//! Steps that differ only in their tensors share a kernel, also across the shapes that a model is compiled for, and across
//! models ([`cache`]). Kernels are compiled in
//! parallel; the result depends neither on the order nor on the cache.

mod behind;
mod beside;
pub mod cache;
mod chain;
mod compiled;
mod in_place;
mod kernel;
mod layouts;
mod levels;
mod link;
mod settle;
mod support;
mod table;
mod weights;

pub use cache::{CacheStats, KernelCache};
pub use compiled::{Compiled, LoadError};
pub use kernel::{KernelCode, KernelError, KernelIr, Linked, kernel_of};
pub use support::{Missing, NodeSupport, Support, Verdict};
pub use table::{TableError, read_tuning};

use crate::graph::drawn;
use crate::graph::fused::{FusedGraph, Role, Step, StepKind, Tensor, TensorId};
use crate::graph::plan::{self, MemoryPlan, Place, WeightsRegion};
use crate::graph::{self, Options as GraphOptions};
use crate::kernels::{self, Arg, Number, Tuning};
use crate::onnx::Model;
use crate::runtime::plan::{self as launches, Address, Indices, KernelStats, Launch, PLAN_VERSION, Plan, Port, Region};
use crate::tensor::Identity;
use crate::verify;
use barewave_isa::Target;
use behind::{Behind, Built, Taken};
use beside::{Abreast, Part, find_beside, levels, parts_of};
use cache::StepCode;
use chain::{Chains, find_chains, round_of};
use kernel::{compile_chain, compile_step, launch_order, symbol};
use link::Beside;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weights::{BlobOf, Packed, Source, Weights};
use xxhash_rust::xxh3::xxh3_128;

/// Why a model could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model cannot be turned into kernel launches.
    #[error(transparent)]
    Graph(#[from] graph::Error),
    /// A step has no kernel.
    #[error("operator not supported: {0}")]
    Unsupported(#[from] kernels::Unsupported),
    /// Several things are missing.
    #[error("the model does not compile:\n{0}")]
    Missing(Support),
    /// Nothing to compile for.
    #[error("no shapes were given to compile the model for")]
    NoShapes,
    /// A pass failed: a defect of barewave.
    #[error("internal error: {0}")]
    Kernel(#[from] crate::passes::CompileError),
    /// The compiled kernels cannot be put into a file.
    #[error(transparent)]
    CodeObject(#[from] crate::codeobj::Error),
    /// An environment variable makes no sense.
    #[error(transparent)]
    Environment(#[from] crate::passes::UnknownPass),
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
    /// Tiles that are better than those that would be chosen.
    pub tuning: Arc<Tuning>,
}

impl Default for Options {
    /// A cache in memory, no IR, no tuning.
    fn default() -> Options {
        Options { cache: Arc::new(KernelCache::in_memory()), keep_ir: false, tuning: Arc::default() }
    }
}

/// Compiles models for one target.
#[derive(Clone, Debug)]
pub struct Compiler {
    target: Target,
    options: Options,
    joins: bool,
}

impl Compiler {
    /// A compiler for a target.
    pub fn new(target: Target, options: Options) -> Compiler {
        Compiler { target, options, joins: true }
    }

    /// The same without levels: no launch does what several one behind the other would do, but for steps that are compiled as one.
    pub fn without_levels(self) -> Compiler {
        Compiler { joins: false, ..self }
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
    ///
    /// # Errors
    /// When the model does not compile: everything that is missing, at once.
    pub fn compile(&self, model: &Model, shapes: &GraphOptions) -> Result<Compiled, Error> {
        self.compile_for(model, std::slice::from_ref(shapes))
    }

    /// What this compiler can do with each node of a model, without making code of it.
    ///
    /// Where `shapes` leaves dimensions open, verdicts are what types and shapes tell for all sizes ([`graph::infer`]), and
    /// kernels were not asked.
    ///
    /// # Errors
    /// Of the model as a whole: damaged, or with inputs that make no sense.
    pub fn supports(&self, model: &Model, shapes: &GraphOptions) -> Result<Support, graph::Error> {
        support::supports(self.target, model, shapes)
    }

    /// Compiles a model for several shapes at once: they share kernels and weights, and a [`Session`](crate::Session)
    /// takes inputs of each.
    pub fn compile_for(&self, model: &Model, shapes: &[GraphOptions]) -> Result<Compiled, Error> {
        let settled = self.settle(model);
        let graphs: Vec<FusedGraph> = shapes.iter().map(|s| self.fuse(&settled, s)).collect::<Result<_, Error>>()?;
        let compiled = self.compile_graphs(&graphs);
        compiled.map_err(|e| shapes.first().map_or(Error::NoShapes, |s| self.all_missing(e, model, s)))
    }

    /// The first half of [`Compiler::compile`]: the steps of a model for some shapes.
    pub fn fuse(&self, model: &Model, shapes: &GraphOptions) -> Result<FusedGraph, Error> {
        timed!("fuse", graph::fuse(model, shapes)).map_err(|e| self.all_missing(e.into(), model, shapes))
    }

    /// The error, or everything that is missing when that is more.
    pub fn all_missing(&self, error: Error, model: &Model, shapes: &GraphOptions) -> Error {
        if !matches!(error, Error::Unsupported(_) | Error::Graph(graph::Error::Node { .. })) {
            return error;
        }
        match self.supports(model, shapes) {
            Ok(support) if support.missing().len() > 1 => Error::Missing(support),
            _ => error,
        }
    }

    /// Compiles a graph that is fused already.
    pub fn compile_graph(&self, graph: &FusedGraph) -> Result<Compiled, Error> {
        self.compile_graphs(std::slice::from_ref(graph))
    }

    /// Graphs of steps as they are computed, compiled, and what their launches take.
    fn compile_joined(&self, graphs: &[FusedGraph]) -> Result<(Compiled, Taken), Error> {
        let groups = timed!("group", group_steps(graphs));
        let compiled: Vec<(StepCode, Vec<KernelIr>)> =
            timed!("kernels", groups.par_iter().map(|g| self.compile_group(graphs, g)).collect::<Result<_, Error>>())?;
        let mut group_of: Vec<Vec<usize>> = graphs.iter().map(|g| vec![0; g.steps.len()]).collect();
        for (i, g) in groups.iter().enumerate() {
            g.steps.iter().for_each(|s| group_of[s.0][s.1] = i);
        }
        let code_of = |group: usize| &compiled[group].0;
        let mut ordered: Vec<Cow<FusedGraph>> = graphs.iter().map(Cow::Borrowed).collect();
        let (mut chains, mut beside) = (Vec::new(), Vec::new());
        for (graph, group) in ordered.iter_mut().zip(&mut group_of) {
            let (mut of_chains, of_beside) = timed!("find_beside", self.share_launches(graph, group, code_of));
            put_in_order(graph, group, &mut of_chains, &of_beside.order);
            chains.push(of_chains);
            beside.push(of_beside.lists);
        }
        let graphs = &ordered[..];
        let code = |at: (usize, usize)| &compiled[group_of[at.0][at.1]].0;
        let chains = self.compile_chains(graphs, &groups, &group_of, chains)?;
        let abreast = self.link_beside(graphs, &groups, &group_of, code_of, beside);
        let mut region = WeightsRegion::new(graphs.len());
        let memory: Vec<MemoryPlan> = timed!(
            "place",
            graphs.iter().enumerate().map(|(g, graph)| place(graph, g, code, &abreast, &mut region)).collect()
        );
        let blobs = blobs(graphs, &group_of, code, &mut region);
        let mut behind = Behind::default();
        let link = |parts: &[(u32, Part)], beside: &[Beside]| self.link(&groups, parts, beside);
        let when = self.joins.then(|| self.options.tuning.levels());
        let plans = graphs.iter().enumerate().map(|(g, graph)| {
            let graph: &FusedGraph = graph;
            let mut launches: Vec<Built> = Vec::new();
            let mut writers: FxHashMap<TensorId, Vec<u32>> = FxHashMap::default();
            for i in 0..graph.steps.len() {
                // Steps that are launched together stand where the first of them does.
                let of = chains.of.get(&(g, i)).or_else(|| abreast.of.get(&(g, i)));
                let steps = match of {
                    Some(steps) if steps[0] != i => continue,
                    Some(steps) => &steps[..],
                    None => &[i],
                };
                let all = || steps.iter().map(|i| &graph.steps[*i]);
                let live_bytes = steps.iter().map(|i| memory[g].live[*i] as u64).max().unwrap_or(0);
                let mut after: Vec<u32> = all().flat_map(|step| sources(step, &writers)).collect();
                let own = launches.len() as u32;
                after.retain(|l| *l != own);
                after.sort_unstable();
                after.dedup();
                // A kernel of several steps, number `n` of each, one behind the other or side by side.
                let of_several = |(name, k): (&str, &KernelCode), steps: &[usize], n: usize| -> Launch {
                    let (mut args, mut numbers) = (Vec::new(), Vec::new());
                    let mut linked = Vec::new();
                    for (level, (part, i)) in (0..).zip(k.chain.iter().zip(steps)) {
                        let (step, own) = (&graph.steps[*i], &k.args[args.len()..args.len() + part.args]);
                        let first = args.len() as u32;
                        let found = indices(own, graph, step).into_iter();
                        let grid = kernels::grid(graph, step).unwrap_or(part.grid);
                        numbers.extend(found.map(|x| Indices { arg: x.arg + first, ..x }));
                        args.extend(own.iter().map(|a| {
                            let at = address(*a, graph, step, (g, *i, n, 0), &memory[g], &blobs);
                            let ahead = match *a {
                                Arg::Counters => part.counters as u64,
                                Arg::Links => part.links as u64,
                                Arg::Number(Number::Before) => part.before.into(),
                                Arg::Number(Number::Wraps) => part.wraps.into(),
                                _ => 0,
                            };
                            Address { offset: at.offset + ahead, ..at }
                        }));
                        let multiplies = graph.multiplied(step).name().to_string();
                        let (step, sharing, flops) = (step.name.clone(), part.sharing, part.flops);
                        linked.push(launches::Linked { step, grid, sharing, flops, multiplies, level });
                    }
                    Launch {
                        kernel: name.to_string(),
                        step: beside::described(steps.iter().map(|i| &*graph.steps[*i].name)),
                        grid: [linked.iter().map(|l| l.grid.iter().product::<u32>()).sum(), 1, 1],
                        block: k.workgroup_size,
                        sharing: k.sharing,
                        multiplies: launches::most_multiplied(&linked),
                        chain: linked,
                        beside: Vec::new(),
                        args,
                        indices: numbers,
                        copies: Vec::new(),
                        flops: k.flops,
                        after: Vec::new(),
                        live_bytes,
                    }
                };
                let of_steps: Vec<usize> = steps.iter().map(|i| group_of[g][*i]).collect();
                let chained = chains.code(&of_steps).filter(|_| chains.of.contains_key(&(g, i)));
                if let Some((name, code)) = chained {
                    let launch = Launch { after, ..of_several((name, &code[0]), steps, 0) };
                    launches.push(Built { launch, code: (code.clone(), 0), parts: Vec::new(), steps: steps.to_vec() });
                } else {
                    let one = |i: usize, n: usize, round: u32| {
                        let (k, step) = (&code((g, i))[n], &graph.steps[i]);
                        let name = symbol(&groups[group_of[g][i]].name, n);
                        let of = (g, i, n, round);
                        Launch {
                            kernel: name,
                            step: step.name.clone(),
                            grid: kernels::grid(graph, step).unwrap_or(k.grid),
                            block: k.workgroup_size,
                            sharing: k.sharing,
                            chain: Vec::new(),
                            beside: Vec::new(),
                            args: k.args.iter().map(|a| address(*a, graph, step, of, &memory[g], &blobs)).collect(),
                            indices: indices(&k.args, graph, step),
                            copies: in_place::copies(graph, &[i], n),
                            flops: k.flops,
                            multiplies: graph.multiplied(step).name().to_string(),
                            after: Vec::new(),
                            live_bytes,
                        }
                    };
                    let mut push = |code: (&StepCode, usize), launch: Launch, (steps, parts): (&[usize], &[Part])| {
                        let last = launches.len() as u32;
                        let launch = Launch { after: std::mem::replace(&mut after, vec![last]), ..launch };
                        let parts = if launch.copies.is_empty() { parts } else { &[] };
                        let parts = parts.iter().map(|p| (*p, compiled[p.group].0.clone())).collect();
                        launches.push(Built { launch, code: (code.0.clone(), code.1), parts, steps: steps.to_vec() });
                    };
                    let alone = |i: usize, n: usize, round: u32| {
                        let launch = one(i, n, round);
                        let part = Part::of(graph, i, group_of[g][i], n, &code((g, i))[n]);
                        (launch, part)
                    };
                    if let &[i] = steps {
                        for (n, round) in launch_order(code((g, i))) {
                            let (launch, part) = alone(i, n, round);
                            push((code((g, i)), n), launch, (&[i], &[part]));
                        }
                    }
                    for n in 0..if steps.len() > 1 { levels(steps, |i| code((g, i))) } else { 0 } {
                        let (parts, some) = parts_of(graph, steps, n, &group_of[g], |i| code((g, i)));
                        match abreast.code(&parts) {
                            Some((name, code)) => {
                                let launch = of_several((name, &code[0]), &some, n);
                                let mut launch = Launch { beside: launch.chain, chain: Vec::new(), ..launch };
                                if parts.iter().any(|p| p.told) {
                                    launch.args.extend(link::begins(parts.iter().map(|p| p.workgroups())));
                                }
                                push((code, 0), launch, (&some, &parts));
                            }
                            None => some.iter().for_each(|i| {
                                let (launch, part) = alone(*i, n, 0);
                                push((code((g, *i)), n), launch, (&[*i], &[part]));
                            }),
                        }
                    }
                }
                if let Some(last) = (launches.len() as u32).checked_sub(1) {
                    all().flat_map(Step::written).for_each(|t| writers.entry(t).or_default().push(last));
                }
            }
            let in_place = in_place::find(graph, &launches);
            let launches = behind.join(self.target, launches, when, link);
            let kernels = stats(&launches);
            Plan {
                version: PLAN_VERSION,
                model: graph.name.clone(),
                target: self.target.name().to_string(),
                inputs: graph.inputs.iter().map(|id| port(graph, *id)).collect(),
                outputs: graph.outputs.iter().map(|id| port(graph, *id)).collect(),
                arena_bytes: memory[g].arena_bytes as u64,
                counter_bytes: launches.iter().map(|b| b.kernel().counters as u64).max().unwrap_or(0),
                sum_bytes: memory[g].sum_bytes as u64,
                weights_bytes: region.bytes as u64,
                in_place,
                launches: launches.into_iter().map(|b| b.launch).collect(),
                joined: joined_tensors(graph, &memory[g]),
                kernels,
                metadata: graph.metadata.clone(),
                words: graph.words.texts().map(str::to_string).collect(),
            }
        });
        let plans: Vec<Plan> = plans.collect();
        let launched: BTreeSet<&str> = plans.iter().flat_map(|p| &p.launches).map(|l| &*l.kernel).collect();
        let singly = groups.iter().zip(&compiled).map(|(g, (codes, _))| (g.name.clone(), codes));
        let several = abreast.codes.values().chain(behind.codes.values());
        let several = several.filter_map(|(name, codes)| Some((name.clone(), codes.as_ref()?)));
        let chained = chains.codes.values().map(|(name, codes, _)| (name.clone(), codes));
        let used = singly.chain(several).chain(chained);
        let kernels = used.flat_map(|(name, codes)| codes.iter().enumerate().map(move |(n, k)| (symbol(&name, n), k)));
        let kernels =
            kernels.filter(|(name, _)| launched.contains(&**name)).map(|(name, k)| k.object(self.target, &name));
        let kernels = kernels.collect();
        let mut sources = blobs.sources;
        for (graph, memory) in graphs.iter().zip(&memory) {
            for (t, place) in graph.tensors.iter().zip(&memory.places) {
                if let (Role::Constant(data), Place::Weights(at)) = (&t.role, place) {
                    sources.push((*at, Source::Tensor(data.clone())));
                }
            }
        }
        let weights = Weights::new(region.bytes, sources);
        let mut notes: Vec<graph::Note> = graphs.iter().flat_map(|g| g.notes.iter().cloned()).collect();
        notes.dedup();
        let chained = chains.codes.into_values().map(|(_, code, ir)| (code, ir));
        let ir = compiled.into_iter().chain(chained).flat_map(|(_, ir)| ir).collect();
        let compiled = Compiled::new(self.target, plans, kernels, weights, ir, notes)?;
        // The last word: an independent proof over the bytes, wherever the kernels came from.
        timed!("verify", verify::admit(compiled.code()))?;
        Ok((compiled, behind.taken))
    }

    /// The steps of a graph that share launches: lists of those that are computed one behind the other, and those that are side by side.
    fn share_launches<'a>(
        &self,
        graph: &FusedGraph,
        group: &[usize],
        code_of: impl Fn(usize) -> &'a StepCode,
    ) -> (Vec<Vec<usize>>, beside::Found) {
        let able = |i: usize| kernels::chains(graph, &graph.steps[i], self.target, &self.options.tuning);
        let chains = find_chains(graph, group, |i| code_of(group[i]), able);
        let chained: FxHashSet<usize> = chains.iter().flatten().copied().collect();
        // Copies that are left out where outputs lie in the place of inputs stay by themselves.
        let copies = |i: usize| (0..code_of(group[i]).len()).any(|n| !in_place::copies(graph, &[i], n).is_empty());
        let fixed = |i: usize| chained.contains(&i) || copies(i);
        let found = find_beside(graph, group, |i| code_of(group[i]), fixed, self.target);
        (chains, found)
    }

    /// Steps that are launched side by side, and the kernels of these.
    fn link_beside<'a>(
        &self,
        graphs: &[Cow<FusedGraph>],
        groups: &'a [Group],
        group_of: &[Vec<usize>],
        code_of: impl Fn(usize) -> &'a StepCode,
        lists: Vec<Vec<Vec<usize>>>,
    ) -> Abreast {
        let mut out = Abreast::default();
        for (g, lists) in lists.into_iter().enumerate() {
            let (graph, group) = (&graphs[g], &group_of[g]);
            for steps in lists.into_iter().map(Arc::new) {
                for n in 0..levels(&steps, |i| code_of(group[i])) {
                    let (parts, some) = parts_of(graph, &steps, n, group, |i| code_of(group[i]));
                    if some.len() > 1 {
                        let link = |parts: &[(u32, Part)], beside: &[Beside]| self.link(groups, parts, beside);
                        out.link(&parts, |g| &groups[g].name, &code_of, link);
                    }
                }
                steps.iter().for_each(|i| _ = out.of.insert((g, *i), steps.clone()));
            }
        }
        out
    }

    /// Steps that one launch computes one behind the other, and the kernels of these.
    fn compile_chains(
        &self,
        graphs: &[Cow<FusedGraph>],
        groups: &[Group],
        group_of: &[Vec<usize>],
        lists: Vec<Vec<Vec<usize>>>,
    ) -> Result<Chains, Error> {
        let (mut out, tuning) = (Chains::default(), &self.options.tuning);
        let mut rounds: BTreeMap<Vec<usize>, StepCode> = BTreeMap::new();
        for ((g, graph), lists) in graphs.iter().enumerate().zip(lists) {
            for steps in lists {
                let of_steps: Vec<usize> = steps.iter().map(|i| group_of[g][*i]).collect();
                let name = format!("chain_{}", out.codes.len());
                if !out.codes.contains_key(&of_steps) {
                    let (in_round, mut ir) = (round_of(&of_steps), Vec::new());
                    let code = match rounds.entry(of_steps[..in_round].to_vec()) {
                        Entry::Occupied(known) => known.get().clone(),
                        Entry::Vacant(free) => {
                            let list: Vec<&Step> = steps[..in_round].iter().map(|i| &graph.steps[*i]).collect();
                            let keys: Vec<&str> = free.key().iter().map(|g| &*groups[*g].key).collect();
                            let make = |keep_ir| compile_chain(graph, &list, self.target, tuning, &name, keep_ir);
                            let (code, made) = self.kernels(&format!("chain of {}", keys.join("\n")), make)?;
                            ir = made;
                            free.insert(code).clone()
                        }
                    };
                    let times = (of_steps.len() / in_round) as u32;
                    let code = code.iter().map(|k| k.in_rounds(self.target, times)).collect();
                    out.codes.insert(of_steps.clone(), (name, Arc::new(code), ir));
                }
                if out.code(&of_steps).is_some() {
                    let steps = Arc::new(steps);
                    steps.iter().for_each(|i| _ = out.of.insert((g, *i), steps.clone()));
                }
            }
        }
        Ok(out)
    }

    /// The kernels of a group of equal steps, from the cache or made.
    fn compile_group(&self, graphs: &[FusedGraph], group: &Group) -> Result<(StepCode, Vec<KernelIr>), Error> {
        let (graph, step) = group.steps[0];
        let (graph, step) = (&graphs[graph], &graphs[graph].steps[step]);
        let make = |keep_ir| compile_step(graph, step, self.target, &self.options.tuning, &group.name, keep_ir);
        self.kernels(&group.key, make)
    }

    /// What is added to what a kernel is known as: those of a tuning are others.
    fn tuned(&self) -> String {
        let tuning = self.options.tuning.for_target(self.target);
        tuning.map_or_else(String::new, |t| format!(" tuned {:x}", xxh3_128(t.to_string().as_bytes())))
    }

    /// The kernel of several parts, if they can be one, from the cache or made: a launch that is told its extents has the same code for all of them.
    fn link(&self, groups: &[Group], parts: &[(u32, Part)], beside: &[Beside]) -> Option<StepCode> {
        timed!("link", {
            let mut key = self.tuned();
            for (level, Part { group, number, grid, told, sets }) in parts.iter().map(|(l, p)| (l, p.in_code())) {
                key.push_str(&format!("|{level} {number} {grid:?} {told} {sets} {}", groups[group].key));
            }
            self.options.cache.get_or_link(self.target, &key, || link::linked(self.target, beside))
        })
    }

    /// Kernels from the cache by what they are known as, or made.
    fn kernels(
        &self,
        own: &str,
        make: impl Fn(bool) -> Result<Vec<(kernel::KernelCode, Option<KernelIr>)>, KernelError>,
    ) -> Result<(StepCode, Vec<KernelIr>), Error> {
        // Dumps are made while a kernel is compiled.
        if self.options.keep_ir || crate::passes::dumped().is_ok_and(|d| !d.is_empty()) {
            let (code, ir): (Vec<_>, Vec<_>) = make(self.options.keep_ir)?.into_iter().unzip();
            return Ok((Arc::new(code), ir.into_iter().flatten().collect()));
        }
        let key = &format!("{own}{}", self.tuned());
        let make = || Ok::<_, Error>(make(false)?.into_iter().map(|(code, _)| code).collect());
        let code = self.options.cache.get_or_compile(self.target, key, make)?;
        Ok((code, Vec::new()))
    }
}

/// Compiles a graph for a target, without a cache and without levels ([`Compiler::without_levels`]): for those who look at kernels.
pub fn compile(graph: &FusedGraph, target: Target) -> Result<Compiled, Error> {
    Compiler::new(target, Options { keep_ir: true, ..Options::default() }).without_levels().compile_graph(graph)
}

/// Steps that share their kernels.
struct Group {
    /// Symbol of the first kernel.
    name: String,
    key: String,
    /// Graph and number of each.
    steps: Vec<(usize, usize)>,
}

fn group_steps(graphs: &[FusedGraph]) -> Vec<Group> {
    let mut by_key: FxHashMap<String, usize> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    for (n, graph) in graphs.iter().enumerate() {
        for (i, step) in graph.steps.iter().enumerate() {
            let key = kernels::key(graph, step);
            match by_key.get(&key) {
                Some(&g) => groups[g].steps.push((n, i)),
                None => {
                    by_key.insert(key.clone(), groups.len());
                    let name = format!("{}_{}", step.kind.name(), groups.len());
                    groups.push(Group { name, key, steps: vec![(n, i)] });
                }
            }
        }
    }
    groups
}

/// The constant data made for kernels, each different one once.
struct Blobs {
    sources: Vec<(usize, Source)>,
    /// Place in the weights by graph, step, kernel of the step, and blob of the kernel.
    at: FxHashMap<(usize, usize, usize, usize), usize>,
}

fn blobs<'a>(
    graphs: &[Cow<FusedGraph>],
    group_of: &[Vec<usize>],
    code: impl Fn((usize, usize)) -> &'a StepCode,
    region: &mut WeightsRegion,
) -> Blobs {
    let mut out = Blobs { sources: Vec::new(), at: FxHashMap::default() };
    // Weights depend on the step's own operands; other data on its kernel alone.
    let mut known: FxHashMap<(usize, usize, usize, Option<Identity>), usize> = FxHashMap::default();
    for (g, graph) in graphs.iter().enumerate() {
        for (i, step) in graph.steps.iter().enumerate() {
            for (kernel, k) in code((g, i)).iter().enumerate() {
                for (blob, data) in k.blobs.iter().enumerate() {
                    let packed = data.operand().and_then(|i| step.inputs.get(i));
                    let operand = packed.and_then(|a| match &graph.tensor(a.tensor).role {
                        Role::Constant(t) => Some(Packed { tensor: t.clone(), offset: a.view.offset as usize }),
                        _ => None,
                    });
                    let identity = operand.as_ref().map(|p| region.identity(&p.tensor));
                    let at = *known.entry((group_of[g][i], kernel, blob, identity)).or_insert_with(|| {
                        let at = region.reserve(data.len());
                        let code = code((g, i)).clone();
                        out.sources.push((at, Source::Blob(BlobOf { code, kernel, blob, operand })));
                        at
                    });
                    out.at.insert((g, i, kernel, blob), at);
                }
            }
        }
    }
    out
}

/// What is known of the kernels of some launches, in order of their first ones.
fn stats(launches: &[Built]) -> Vec<KernelStats> {
    let mut known: FxHashMap<&str, usize> = FxHashMap::default();
    let mut out: Vec<KernelStats> = Vec::new();
    for b in launches {
        let name = &b.launch.kernel;
        let at = *known.entry(name).or_insert_with(|| {
            let known = b.kernel().stats(name.clone(), b.launch.step.clone(), 0);
            // Where a launch is told its workgroups, the kernel does not know.
            out.push(KernelStats { workgroups: b.launch.grid.iter().map(|g| u64::from(*g)).product(), ..known });
            out.len() - 1
        });
        out[at].launches += 1;
    }
    out
}

/// Decides where the tensors of a graph lie.
fn place<'a>(
    graph: &FusedGraph,
    g: usize,
    code: impl Fn((usize, usize)) -> &'a StepCode,
    abreast: &Abreast,
    region: &mut WeightsRegion,
) -> MemoryPlan {
    let mut read = BTreeSet::new();
    for (i, step) in graph.steps.iter().enumerate() {
        for arg in code((g, i)).iter().flat_map(|k| &k.args) {
            read.extend(tensor_of(*arg, step));
        }
    }
    let workspace = |i: usize| code((g, i)).iter().map(|k| k.workspace).max().unwrap_or(0);
    let beside = |i: usize| match abreast.of.get(&(g, i)).map(|steps| &steps[..]) {
        Some([first, .., last]) => (*first, *last),
        _ => (i, i),
    };
    plan::plan_beside(graph, |id| read.contains(&id), workspace, beside, region)
}

/// Puts the steps of a graph into another order, with the groups that they belong to, and the places of those of chains.
fn put_in_order(graph: &mut Cow<FusedGraph>, group: &mut [usize], chains: &mut [Vec<usize>], order: &[usize]) {
    if order.iter().enumerate().all(|(i, from)| i == *from) {
        return;
    }
    let steps = order.iter().map(|i| graph.steps[*i].clone()).collect();
    graph.to_mut().steps = steps;
    let groups: Vec<usize> = order.iter().map(|i| group[*i]).collect();
    group.copy_from_slice(&groups);
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, from)| places[*from] = to);
    chains.iter_mut().flatten().for_each(|i| *i = places[*i]);
}

/// Where tensors lie of which several steps write a part each, and their bytes.
fn joined_tensors(graph: &FusedGraph, memory: &MemoryPlan) -> Vec<(Address, u64)> {
    let mut writers = vec![0; graph.tensors.len()];
    graph.steps.iter().flat_map(Step::written).for_each(|t| writers[t.index()] += 1);
    let several = graph.tensors.iter().zip(&memory.places).zip(writers).filter(|(_, writers)| *writers > 1);
    let place = |((t, place), _): ((&Tensor, &Place), usize)| {
        let (region, offset) = match *place {
            Place::Output(k) => (Region::Output(k), 0),
            Place::Arena(at) => (Region::Arena, at as u64),
            Place::Input(_) | Place::Weights(_) | Place::Nowhere => return None,
        };
        Some((Address { region, offset }, t.bytes() as u64))
    };
    several.filter_map(place).collect()
}

/// The launches that write what a step reads, in order.
fn sources(step: &Step, writers: &FxHashMap<TensorId, Vec<u32>>) -> Vec<u32> {
    let read = step.inputs.iter().flat_map(|a| a.indirect.iter().map(|x| x.index).chain([a.tensor]));
    let list: BTreeSet<u32> = read.filter_map(|t| writers.get(&t)).flatten().copied().collect();
    list.into_iter().collect()
}

/// The tensor behind a kernel argument of a step.
fn tensor_of(arg: Arg, step: &Step) -> Option<TensorId> {
    match arg {
        Arg::Input(i) => Some(step.inputs[i].tensor),
        Arg::Output => Some(step.output.tensor),
        Arg::Index(i, n) => Some(step.inputs[i].indirect[n].index),
        Arg::Blob(_) | Arg::Workspace | Arg::Counters | Arg::Links | Arg::Number(_) => None,
    }
}

fn address(
    arg: Arg,
    graph: &FusedGraph,
    step: &Step,
    (g, i, n, round): (usize, usize, usize, u32),
    memory: &MemoryPlan,
    blobs: &Blobs,
) -> Address {
    let origin = kernels::origin(graph, step, arg);
    let (region, offset) = match (tensor_of(arg, step).map(|id| memory.place(id)), arg) {
        (Some(Place::Input(k)), _) => (Region::Input(k), origin),
        (Some(Place::Output(k)), _) => (Region::Output(k), origin),
        (Some(Place::Weights(at)), _) => (Region::Weights, at + origin),
        (Some(Place::Arena(at)), _) => (Region::Arena, at + origin),
        (Some(Place::Nowhere), _) => unreachable!("every tensor that a kernel reads was placed"),
        (None, Arg::Number(Number::Round)) => (Region::Value, round as usize),
        (None, Arg::Number(n)) => (Region::Value, kernels::number(graph, step, n) as usize),
        (None, Arg::Counters | Arg::Links) => (Region::Counters, 0),
        (None, Arg::Workspace) => (Region::Arena, memory.workspaces[i]),
        (None, Arg::Blob(b)) => (Region::Weights, blobs.at[&(g, i, n, b)]),
        (None, _) => unreachable!("everything else is a tensor"),
    };
    Address { region, offset: offset as u64 }
}

/// Floats of which a kernel looks for the best lie so far from zero at most, and integers are below this.
const RANKED: u64 = 100;

/// Which arguments of a step's kernel hold indices that are not constants, numbers that a program finds places by, or what is ranked.
fn indices(args: &[Arg], graph: &FusedGraph, step: &Step) -> Vec<Indices> {
    let lengths: Vec<usize> = step.inputs.iter().map(|a| a.view.len()).collect();
    let told = match &step.kind {
        StepKind::Program(p) => drawn::extents(p, &step.output.view.dims, &lengths),
        _ => Vec::new(),
    };
    // Keys of an attention lie in blocks.
    let rows = if let StepKind::Attention(kind) = &step.kind { kind.rows() } else { None };
    let along = |axis: usize| Some(step.output.view.dims[axis] as u64);
    let scattered = match &step.kind {
        StepKind::Scatter(s) => vec![None, along(s.axis)],
        StepKind::Lasts(l) => vec![along(l.axis)],
        _ => Vec::new(),
    };
    let of = |(n, arg): (usize, &Arg)| {
        let (id, extent) = match *arg {
            Arg::Index(i, k) => {
                let table = &step.inputs[i].indirect[k];
                (table.index, table.extent as u64)
            }
            Arg::Input(i) if rows == Some(i) => (step.inputs[i].tensor, *step.inputs[1].view.dims.last()? as u64),
            Arg::Input(0) if matches!(step.kind, StepKind::TopK(_)) => (step.inputs[0].tensor, RANKED),
            Arg::Input(i) if i < scattered.len() => (step.inputs[i].tensor, scattered[i]?),
            Arg::Input(i) => (step.inputs[i].tensor, told.iter().find(|t| t.0 == i)?.1),
            _ => return None,
        };
        let t = graph.tensor(id);
        let count = (t.len() - kernels::origin(graph, step, *arg) / t.dtype.size()) as u64;
        let known = matches!(t.role, Role::Constant(_));
        let in_turn = matches!(*arg, Arg::Input(i) if rows == Some(i));
        (!known).then(|| Indices { arg: n as u32, dtype: t.dtype.to_string(), count, extent, in_turn })
    };
    args.iter().enumerate().filter_map(of).collect()
}

fn port(graph: &FusedGraph, id: TensorId) -> Port {
    let t = graph.tensor(id);
    let fixed = graph.fixed.get(&id).map(|t| t.bytes().to_vec());
    let open = graph.open_dims.get(&id).cloned().unwrap_or_default();
    Port { name: t.name.clone(), dtype: t.dtype.to_string(), shape: t.shape.clone(), open, fixed }
}
