//! Kernels: a fused step of the graph becomes machine IR.
//!
//! [`lower`] picks the kernel family by the step's kind and returns the kernels to launch, in order (nearly always
//! one). A kernel knows its operands by their position in the step, and of their tensors only which are the same, so steps
//! that agree in everything but which tensors they use, and which parts of them ([`origin()`]), share one kernel ([`key`]). Every kernel
//! reads and writes through raw buffers and masks lanes by out-of-bounds offsets; shapes and strides are constants in its code.

mod address;
mod attention;
mod blob;
mod blocks;
mod bounds;
mod channels_last;
mod choice;
mod columns;
mod contested;
mod conv;
mod crossed;
mod direct;
mod divided;
mod dots;
mod double;
mod elementary;
mod epilogue;
mod error;
mod expr;
mod extremes;
mod few;
mod float;
mod fourier;
mod fragment;
mod gates;
mod gemm;
mod grouped;
mod halves;
mod integer;
mod inverse;
mod joint;
mod lanes;
mod lasts;
mod lines;
mod linked;
mod loader;
mod long;
mod math;
mod matmul;
mod matrix;
mod merged;
mod normed;
mod origin;
mod packed;
mod paired;
mod parts;
mod pieces;
mod pointwise;
mod pool;
mod power;
mod present;
mod program;
mod published;
mod recurrent;
mod reduce;
mod regroup;
mod resample;
mod rounds;
mod runs;
mod scan;
mod scatter;
mod select;
mod shares;
mod shuffled;
mod side_by_side;
mod sieve;
mod sized;
mod slices;
mod small;
mod softmax;
mod sorted;
mod split;
mod staged;
mod standardized;
mod straight;
mod strip;
mod tile;
mod tiny;
mod topk;
mod trig;
mod tuning;
mod turned;
mod unzipped;
mod values;
mod vector;
mod winograd;
mod zipped;

pub use blob::{Blob, Packing};
pub use choice::{Candidate, Considered, EQUAL_SHARES};
use dots::Dots;
pub use error::Reason;
use error::Res;
pub use linked::{Estimate, Link, Room, Work, chains, loaded_ahead};
pub use sized::magic;
pub use tuning::{Product, Tuned, Tuning, TuningError, Way, When};
pub use winograd::Transformed;

use crate::graph::fused::{FusedGraph, Gated, Pool, Reduce, Step, StepKind, TensorId};
use crate::graph::view::View;
use crate::graph::walked;
use crate::mir::{Buffer, Builder, Function, Memory};
use crate::tensor::DType;
use barewave_isa::Target;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;

/// What a kernel argument (a 64-bit address) points to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Arg {
    /// Operand `i` of the step.
    Input(usize),
    /// The step's result.
    Output,
    /// Index table `k` of operand `i`.
    Index(usize, usize),
    /// Constant data that comes with the kernel: [`Kernel::blobs`].
    Blob(usize),
    /// Memory of the step's own, which its kernels leave partial results in: [`Kernel::workspace`].
    Workspace,
    /// Memory that is zero before a launch and after it, in which workgroups count each other: [`Kernel::counters`].
    Counters,
    /// Memory that is zero before each launch and after it, in which workgroups of steps in one launch count each other ([`Link`]).
    Links,
    /// No address but a number, which [`number`] finds for a step.
    Number(Number),
}

/// What a kernel that serves any extents is told when it is launched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Number {
    /// How many workitems have something to do.
    Count,
    /// How many elements a sum or a line has.
    Depth,
    /// How many rounds a workgroup takes over a line.
    Rounds,
    /// Extent of a dimension.
    Extent(usize),
    /// What division by that extent multiplies with.
    Magic(usize),
    /// How far that division shifts the product's upper half.
    Shift(usize),
    /// Bytes in front of the first element of an access: an operand, or behind them the output.
    Offset(usize),
    /// Bytes from one coordinate of a dimension to the next, in an access.
    Stride(usize, usize),
    /// Extent of a dimension of an operand.
    Length(usize, usize),
    /// How many pieces of so many elements that is.
    Pieces(usize, usize, u32),
    /// How often the kernel was launched before, of [`Kernel::rounds`]; what launches it knows that.
    Round,
    /// Workgroups that the first step of a round in a launch waits for, those of the last step of the round before ([`Link`]); what launches it knows that.
    Before,
    /// What the counter of a round's last step wraps to 0 at: one less than its workgroups in a launch's last round, and more in others.
    Wraps,
    /// What the counter of a level wraps to 0 at, and above it how many waves the level before has; what launches it knows that.
    Counts,
    /// Where two parts of a launch begin, the second above the first; what launches it knows that.
    Begins,
}

/// The number behind an argument of a step's kernel.
pub fn number(graph: &FusedGraph, step: &Step, n: Number) -> u32 {
    let seen = attention::seen(step);
    let step = seen.as_ref().unwrap_or(step);
    sized::number(graph, step, n, width_of(graph, step))
}

/// Bytes between the beginning of an argument's tensor and the address that the step's kernel is given.
pub fn origin(graph: &FusedGraph, step: &Step, arg: Arg) -> usize {
    if sized::fits(graph, step) { 0 } else { origin::of(graph, step, arg) }
}

/// Workgroups of a kernel that serves any extents; none for others.
pub fn grid(graph: &FusedGraph, step: &Step) -> Option<[u32; 3]> {
    sized::fits(graph, step).then(|| sized::grid(step, width_of(graph, step)))
}

/// How many neighbours go together in a step.
fn width_of(graph: &FusedGraph, step: &Step) -> usize {
    if step.kind == StepKind::Pointwise { pointwise::width(graph, step) } else { 1 }
}

/// A kernel and how to launch it.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its code.
    pub function: Function,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// Kernel arguments: argument `i` is at byte `8 i`.
    pub args: Vec<Arg>,
    /// Constant data made for this kernel, addressed by [`Arg::Blob`].
    pub blobs: Vec<Blob>,
    /// Floating-point operations of the mathematical operation (a multiply-add counts 2).
    pub flops: u64,
    /// Bytes that [`Arg::Workspace`] must have.
    pub workspace: usize,
    /// Bytes that [`Arg::Counters`] must have.
    pub counters: usize,
    /// Workgroups along x, y and z that share a result, of which the last one to come ends it.
    pub sharing: [u32; 3],
    /// How often it is launched: neighbours in the list with the same number of rounds are launched in turn.
    pub rounds: u32,
}

/// A step that no kernel can compute.
#[derive(Debug, thiserror::Error)]
#[error("{step} ({kind}): {what}")]
pub struct Unsupported {
    /// Names of the source nodes.
    pub step: String,
    /// Kind of the step.
    pub kind: &'static str,
    /// Why.
    pub what: Reason,
}

/// Everything that the code of a step's kernels depends on; steps with equal keys share code.
pub fn key(graph: &FusedGraph, step: &Step) -> String {
    use std::fmt::Write;
    if sized::fits(graph, step) {
        return sized::key(graph, step, width_of(graph, step));
    }
    let step = &origin::relative(graph, step);
    if let Some(key) = attention::key(graph, step) {
        return key;
    }
    let mut s = format!("{:?}|{:?}", step.kind, step.expr);
    let tensor = |id: TensorId| {
        let t = graph.tensor(id);
        let constant = matches!(t.role, crate::graph::fused::Role::Constant(_));
        format!("{}:{}{}", t.dtype, t.bytes(), if constant { "c" } else { "" })
    };
    for a in step.inputs.iter().chain([&step.output]) {
        let _ = write!(s, "|{} {} {:?}", tensor(a.tensor), a.view, a.guard);
        for i in &a.indirect {
            let sure = if pointwise::is_sure(graph, i) { "s" } else { "" };
            let _ = write!(s, " {} {} {} {}{sure}", tensor(i.index), i.view, i.stride, i.extent);
        }
    }
    if let Some(twins) = pointwise::twins_key(graph, step) {
        let _ = write!(s, "|{twins}");
    }
    s.push_str(&same_tensors(step));
    s
}

/// Which of a step's tensors are the same, by their places among its operands, its result and the index tables of each: a kernel loads what is read
/// twice once, and knows what lies beside its results.
fn same_tensors(step: &Step) -> String {
    use std::fmt::Write;
    let accesses = step.inputs.iter().chain([&step.output]);
    let all: Vec<TensorId> =
        accesses.flat_map(|a| [a.tensor].into_iter().chain(a.indirect.iter().map(|i| i.index))).collect();
    let mut s = String::from("|");
    for (i, id) in all.iter().enumerate() {
        match all.iter().position(|other| other == id) {
            Some(first) if first < i => _ = write!(s, " {i}={first}"),
            _ => {}
        }
    }
    s
}

/// The tiles that are considered for a step that is a matrix product or a convolution; none for others. Of the tuning only
/// what it says of methods counts.
pub fn candidates(graph: &FusedGraph, step: &Step, target: Target, tuning: &Tuning) -> Option<Considered> {
    let cx = cx(graph, step, target, tuning);
    let tiles = match &step.kind {
        _ if sized::fits(graph, step) => None,
        kind if kind.is_product() => matmul::candidates(&cx).ok(),
        StepKind::Sparse(_) | StepKind::Scaled(_) | StepKind::Nibbles(_) => matmul::candidates(&cx).ok(),
        StepKind::Conv(c) => conv::candidates(&cx, c).ok().flatten(),
        _ => None,
    };
    tiles.map(|found| Considered { by_lines: Dots::of(&cx).is_some(), ..found })
}

/// A constant is packed for sparse products where these save so much: the clocks are estimates.
const WORTH_PACKING: f64 = 0.96;

/// The same of convolutions, whose clocks and those of products are estimated by different families: of twelve (ResNet's and MobileNet's) on
/// three targets five were slower as products by the cycle model with the other share, and two are with this one.
const WORTH_PACKING_CONVOLUTION: f64 = 0.9;

/// Answers of what the device shares that a step waits for behind another one, at least: stores', a count's, and loads'.
const ANSWERS_BETWEEN: f64 = 3.0;

/// A graph with its steps joined.
pub struct Joined {
    /// None where nothing changes.
    pub graph: Option<FusedGraph>,
    /// The clocks that steps save of images that have their channels last, about.
    pub saved: f64,
}

/// The graph with its steps joined ([`join`]); `None` where none are.
pub fn joined(graph: &FusedGraph, target: Target, tuning: &Tuning) -> Option<FusedGraph> {
    join(graph, target, tuning).graph
}

/// The graph with weights widened of products that have too many rows for packed ones, and with steps joined where one kernel computes them in less time: convolutions of one input, products, softmax and
/// products to attentions, these with what gathers their keys and values, and with the elementwise steps of their queries and new lines, products with what widens their factors from 8 bits, or
/// from 4 or 8 with scales of blocks, products of integers of 4 bits with what quantises these, products of sparse constants, products with the normalisation of their rows,
/// elementwise steps with the convolutions, softmax or normalisations of what they give, normalisations with products of packed weights, convolutions that are
/// added up; and with sums of few columns in two stages.
pub fn join(graph: &FusedGraph, target: Target, tuning: &Tuning) -> Joined {
    let worth = |graph: &FusedGraph, whole: &Step, parts: [&Step; 2]| {
        let clocks = |step: &Step| Some(candidates(graph, step, target, tuning)?.candidates.first()?.clocks);
        let launch = choice::Machine::of(target).launch;
        match (clocks(whole), parts.map(clocks)) {
            (Some(whole), [Some(a), Some(b)]) => whole < a + b + launch,
            _ => false,
        }
    };
    let turned = channels_last::turned(graph, target, tuning);
    let (turned, saved) = turned.map_or((None, 0.0), |(turned, saved)| (Some(turned), saved));
    let graph = turned.as_ref().unwrap_or(graph);
    let clocks = RefCell::new(FxHashMap::<String, Option<f64>>::default());
    let gates = |graph: &FusedGraph, whole: &Step, parts: [&Step; 2]| {
        let of = |step: &Step| {
            let key = key(graph, step);
            let found = clocks.borrow().get(&key).copied();
            found.unwrap_or_else(|| {
                let found = product_clocks(&cx(graph, step, target, tuning));
                clocks.borrow_mut().insert(key, found);
                found
            })
        };
        let machine = choice::Machine::of(target);
        let waits = ANSWERS_BETWEEN * machine.device_latency;
        let mut tensors = whole.inputs.iter().chain([&whole.output]).map(|a| graph.tensor(a.tensor));
        let small = tensors.all(|t| t.bytes() < MAX_TENSOR_BYTES);
        match (of(whole), parts.map(of)) {
            (Some(whole), [Some(a), Some(b)]) => small && whole <= a + b + waits,
            _ => false,
        }
    };
    let widened = |graph: &FusedGraph, step: &Step| !packed::multiplies(&cx(graph, step, target, tuning));
    let pairs = crate::graph::gate_widened_products(graph, widened, gates);
    let next = pairs.as_ref().unwrap_or(graph);
    let unpacked = crate::graph::unpack_weights(next, widened).or(pairs);
    let next = unpacked.as_ref().unwrap_or(graph);
    let beside = crate::graph::join_windows(next, worth).or(unpacked);
    let next = beside.as_ref().unwrap_or(graph);
    let known = Known::default();
    let attends = |graph: &FusedGraph, step: &Step| known.or(graph, [step], || attention::fits(graph, step, target));
    let attending = crate::graph::attend(next, |graph, parts, step| {
        // Where three kernels would serve every extent, one has to.
        let any_keys = parts.iter().all(|s| sized::fits(graph, s));
        (!any_keys || attention::takes_any_keys(step)) && attends(graph, step)
    })
    .or(beside);
    let next = attending.as_ref().unwrap_or(graph);
    let caching = crate::graph::keep_caches(next, attends).or(attending);
    let next = caching.as_ref().unwrap_or(graph);
    let paging = crate::graph::read_by_tables(next, |graph, before, copies, whole| {
        attention::pages(graph, before, copies, whole, target)
    })
    .or(caching);
    let next = paging.as_ref().unwrap_or(graph);
    let making = crate::graph::make_lines(next, |graph, before, whole| attention::makes(graph, before, whole, target))
        .or(paging);
    let next = making.as_ref().unwrap_or(graph);
    let scaled = crate::graph::scaled_factors(
        next,
        |graph, step| matmul::takes_scaled(&cx(graph, step, target, tuning)),
        |graph, step, side| matmul::turns_scales(&cx(graph, step, target, tuning), side),
    )
    .or(making);
    let next = scaled.as_ref().unwrap_or(graph);
    let narrow =
        crate::graph::narrow_factors(next, |graph, step| matmul::takes_small(&cx(graph, step, target, tuning)))
            .or(scaled);
    let next = narrow.as_ref().unwrap_or(graph);
    let nibbles = crate::graph::nibble_factors(
        next,
        |graph, step| {
            let wanted = tuning.nibbles() != When::Never && !sized::fits(graph, step);
            wanted && matmul::takes_nibbles(&cx(graph, step, target, tuning))
        },
        |graph, [packed, bytes], moved| {
            let clocks = |step: &Step| Some(candidates(graph, step, target, tuning)?.candidates.first()?.clocks);
            let machine = choice::Machine::of(target);
            let more: f64 = moved.iter().map(|bytes| machine.launch + *bytes as f64 / machine.memory).sum();
            let always = tuning.nibbles() == When::Always;
            matches!((clocks(packed), clocks(bytes)), (Some(packed), Some(bytes)) if always || packed + more < bytes)
        },
    )
    .or(narrow);
    let next = nibbles.as_ref().unwrap_or(graph);
    let sparse = crate::graph::sparse_factors(
        next,
        |graph, step| {
            let wanted = tuning.sparse() != When::Never && !sized::fits(graph, step);
            wanted && matmul::takes_sparse(&cx(graph, step, target, tuning))
        },
        |graph, sparse, step| {
            let clocks = |step: &Step| Some(candidates(graph, step, target, tuning)?.candidates.first()?.clocks);
            let worth = match step.kind {
                StepKind::Conv(_) => WORTH_PACKING_CONVOLUTION,
                _ => WORTH_PACKING,
            };
            let always = tuning.sparse() == When::Always;
            matches!((clocks(sparse), clocks(step)), (Some(sparse), Some(dense)) if always || sparse < worth * dense)
        },
    )
    .or(nibbles);
    let next = sparse.as_ref().unwrap_or(graph);
    let gated = crate::graph::gate_dense_products(next, gates).or(sparse);
    let next = gated.as_ref().unwrap_or(graph);
    let known = Known::default();
    let standard = crate::graph::standardize(next, |graph, norm, turned| {
        let small = |t: &crate::graph::Turned| graph.tensor(t.step.output.tensor).bytes() < MAX_TENSOR_BYTES;
        let before_and_after = turned.iter().flat_map(|t| [&graph.steps[t.at], &t.step]);
        let are_worth = || standardized::are_worth(&cx(graph, norm, target, tuning), turned);
        turned.iter().all(small) && known.or(graph, before_and_after.chain([norm]), are_worth)
    })
    .or(gated);
    let next = standard.as_ref().unwrap_or(graph);
    let finished = crate::graph::finish_with_norms(next, |graph, step| {
        graph.tensor(step.output.tensor).bytes() < MAX_TENSOR_BYTES
            && normed::is_worth(&cx(graph, step, target, tuning))
    })
    .or(standard);
    let next = finished.as_ref().unwrap_or(graph);
    let known = Known::default();
    let begun = crate::graph::begin_convolutions(next, |graph, step, parts| {
        let cx = |step| cx(graph, step, target, tuning);
        known.or(graph, [step].into_iter().chain(parts), || conv::begins(&cx(step), parts.map(cx)))
    })
    .or(finished);
    let next = begun.as_ref().unwrap_or(graph);
    let begun =
        crate::graph::begin_with_norms(next, |graph, step| packed::begins(&cx(graph, step, target, tuning))).or(begun);
    let next = begun.as_ref().unwrap_or(graph);
    let computed = crate::graph::compute_lines(next, |graph, alone, whole| {
        let cx = |step| cx(graph, step, target, tuning);
        let small = |step: &Step| graph.tensor(step.output.tensor).bytes() < MAX_TENSOR_BYTES;
        !sized::fits(graph, alone) && small(alone) && softmax::computes(&cx(alone), &cx(whole))
    })
    .or(begun);
    let next = computed.as_ref().unwrap_or(graph);
    let spread = crate::graph::spread_shallow_products(next, |graph, step| !sized::fits(graph, step)).or(computed);
    let next = spread.as_ref().unwrap_or(graph);
    let apart = crate::graph::take_rows_apart(next, |graph, [rows, sums], step| {
        let cx = |step| cx(graph, step, target, tuning);
        let bytes = graph.tensor(rows.output.tensor).bytes();
        bytes < MAX_TENSOR_BYTES && conv::are_quicker(&cx(rows), &cx(sums), &cx(step))
    })
    .or(spread);
    let next = apart.as_ref().unwrap_or(graph);
    let summed = crate::graph::sum_convolutions(next, |graph, whole, parts| {
        let StepKind::Conv(conv) = &whole.kind else { return false };
        conv::adds(&cx(graph, whole, target, tuning), conv) && worth(graph, whole, parts)
    })
    .or(apart);
    let next = summed.as_ref().unwrap_or(graph);
    let united = crate::graph::unite_parts(next, |graph, step| {
        let whole = || step.inputs.iter().chain([&step.output]);
        let small = whole().all(|a| graph.tensor(a.tensor).bytes() < MAX_TENSOR_BYTES);
        let open = whole().all(|a| sized::is_open(graph, a.view.len()));
        !open && small && parts::pays(&cx(graph, step, target, tuning))
    })
    .or(summed);
    let next = united.as_ref().unwrap_or(graph);
    let cut = crate::graph::in_pieces(next, |graph, step| {
        let cx = cx(graph, step, target, tuning);
        let pieces = reduce::pieces(&cx).map(|pieces| crate::graph::Cuts { pieces, sections: 1 });
        pieces.or_else(|| scan::pieces(&cx))
    })
    .or(united);
    let next = cut.as_ref().unwrap_or(graph);
    let points =
        crate::graph::multiply_points(next, |graph, step| conv::is_by_channels(&cx(graph, step, target, tuning)));
    Joined { graph: points.or(cut).or(turned), saved }
}

/// Clocks of a product of dense factors, or of an elementwise step by what it moves, without their launches; none where neither tiles nor lines are estimated.
fn product_clocks(cx: &Cx) -> Option<f64> {
    if sized::fits(cx.graph, cx.step) {
        return None;
    }
    if cx.step.kind == StepKind::Pointwise {
        let accesses = cx.step.inputs.iter().chain([&cx.step.output]);
        let bytes: usize = accesses.map(|a| a.view.len() * cx.graph.tensor(a.tensor).dtype.size()).sum();
        return Some(bytes as f64 / choice::Machine::of(cx.target).memory);
    }
    match Dots::of(cx) {
        Some(dots) => Some(dots.clocks(cx)),
        None => matmul::clocks(cx).ok().flatten(),
    }
}

/// Answers to one question about steps, by their keys: models repeat their layers.
#[derive(Default)]
struct Known(RefCell<FxHashMap<String, bool>>);

impl Known {
    /// The answer for some steps; `find` finds it where nobody has asked for equal ones.
    fn or<'s>(
        &self,
        graph: &FusedGraph,
        steps: impl IntoIterator<Item = &'s Step>,
        find: impl FnOnce() -> bool,
    ) -> bool {
        let keys: Vec<String> = steps.into_iter().map(|s| key(graph, s)).collect();
        let keys = keys.join("\n");
        let known = self.0.borrow().get(&keys).copied();
        known.unwrap_or_else(|| {
            let found = find();
            self.0.borrow_mut().insert(keys, found);
            found
        })
    }
}

/// Lowers one step to kernels for `target`, with the tiles of a tuning. `name` is the symbol of the first one.
pub fn lower(
    graph: &FusedGraph,
    step: &Step,
    target: Target,
    tuning: &Tuning,
    name: &str,
) -> Result<Vec<Kernel>, Unsupported> {
    lower_linked(graph, step, target, tuning, name, None)
}

/// The same for a step that shares its launch with others.
pub fn lower_linked(
    graph: &FusedGraph,
    step: &Step,
    target: Target,
    tuning: &Tuning,
    name: &str,
    link: Option<Link>,
) -> Result<Vec<Kernel>, Unsupported> {
    let unsupported = |what| Unsupported { step: step.name.clone(), kind: step.kind.name(), what };
    // What is repeated, and never stored, can be longer than any tensor.
    let mut views = step.inputs.iter().chain([&step.output]).map(|a| &a.view.dims);
    if let Some(dims) = views.find(|dims| dims.iter().any(|d| *d >= LONGEST)) {
        return Err(unsupported(Reason::TooLong(dims.clone())));
    }
    let sized = sized::fits(graph, step);
    let step = if sized { step } else { &origin::relative(graph, step) };
    let cx = Cx { graph, step, target, tuning, name, moves: false, link };
    let kernels = match &step.kind {
        _ if sized => sized::lower(&cx, width_of(graph, step)),
        StepKind::Pointwise => pointwise::lower(&cx),
        StepKind::Conv(c) => match Dots::of(&cx) {
            Some(dots) => dots.lower(&cx),
            None => conv::lower(&cx, c),
        },
        StepKind::MatMul
        | StepKind::Gated(Gated { rows: None })
        | StepKind::Sparse(_)
        | StepKind::Scaled(_)
        | StepKind::Nibbles(_) => match (tiny::lower(&cx), Dots::of(&cx)) {
            (Some(kernels), _) => kernels,
            (None, Some(dots)) => dots.lower(&cx),
            (None, None) => matmul::lower(&cx, None, None),
        },
        StepKind::Normed(n) => normed::lower(&cx, n),
        StepKind::Standardized(s) | StepKind::Gated(Gated { rows: Some(s) }) => standardized::lower(&cx, s),
        StepKind::Pool(Pool { op, window, prologue }) => pool::lower(&cx, *op, window, prologue),
        StepKind::Reduce(Reduce { op, prologue }) => reduce::lower(&cx, *op, prologue),
        StepKind::Attention(a) => attention::lower(&cx, a),
        StepKind::Packed(p) => packed::lower(&cx, p),
        StepKind::Extremes(e) => extremes::lower(&cx, e),
        StepKind::Fourier(f) => fourier::lower(&cx, f),
        StepKind::Scan(s) => scan::lower(&cx, s),
        StepKind::Softmax(s) => softmax::softmax(&cx, s),
        StepKind::Normalize(n) => softmax::normalize(&cx, n),
        StepKind::ComputedLines(c) => softmax::of_computed(&cx, c),
        StepKind::Program(p) => program::lower(&cx, p),
        StepKind::Recurrent(r) => recurrent::lower(&cx, r),
        StepKind::Resample(r) => resample::lower(&cx, r),
        StepKind::TopK(best) => topk::lower(&cx, best),
        StepKind::Scatter(s) => scatter::lower(&cx, s),
        StepKind::Lasts(l) => lasts::lower(&cx, l),
        StepKind::Parts(p) => parts::lower(&cx, p),
    };
    let mut kernels = kernels.map_err(unsupported)?;
    for k in &mut kernels {
        k.function.comment = format!("{}: {}", step.kind.name(), step.name);
    }
    Ok(kernels)
}

/// What a kernel family lowers.
#[derive(Clone, Copy)]
struct Cx<'a> {
    graph: &'a FusedGraph,
    step: &'a Step,
    target: Target,
    tuning: &'a Tuning,
    name: &'a str,
    /// Nothing is computed: elements are moved as the bits that they are.
    moves: bool,
    /// The step's place among others of its launch.
    link: Option<Link>,
}

/// That of a step without a name.
fn cx<'a>(graph: &'a FusedGraph, step: &'a Step, target: Target, tuning: &'a Tuning) -> Cx<'a> {
    Cx { graph, step, target, tuning, name: "", moves: false, link: None }
}

impl<'a> Cx<'a> {
    /// How the step sees an operand, or its result.
    fn view(&self, arg: Arg) -> &'a View {
        match arg {
            Arg::Input(i) => &self.step.inputs[i].view,
            _ => &self.step.output.view,
        }
    }
    fn dtype(&self, arg: Arg) -> DType {
        let t = self.graph.tensor(self.tensor(arg)).dtype;
        if self.moves { values::bits(t) } else { t }
    }
    fn tensor(&self, arg: Arg) -> TensorId {
        match arg {
            Arg::Input(i) => self.step.inputs[i].tensor,
            Arg::Output => self.step.output.tensor,
            Arg::Index(i, k) => self.step.inputs[i].indirect[k].index,
            Arg::Blob(_) | Arg::Workspace | Arg::Counters | Arg::Links | Arg::Number(_) => {
                unreachable!("no tensors of the step")
            }
        }
    }
    /// Bytes that the step touches, from the address that its kernel is given: a buffer ends there, so that lanes beyond an
    /// edge do not read parts of a growing tensor that nobody has written yet.
    fn reach(&self, arg: Arg) -> usize {
        let t = self.graph.tensor(self.tensor(arg));
        let far = t.bytes() >= MAX_TENSOR_BYTES && self.step.kind.beside().is_none();
        let extent = match arg {
            Arg::Input(i) if far || self.step.inputs[i].is_plain() => walked(&self.step.inputs[i]),
            Arg::Output if far => walked(&self.step.output),
            Arg::Index(i, k) if far => self.step.inputs[i].indirect[k].view.extent(),
            _ => None,
        };
        let end = extent.and_then(|(_, last)| usize::try_from(last + 1).ok());
        end.map_or(t.bytes(), |end| (end * t.dtype.size()).min(t.bytes()))
    }
    fn kernel(&self, workgroup_size: u32) -> Writer {
        let mut b = Builder::new(self.target, self.name, workgroup_size);
        b.stores_for_device(self.link.is_some());
        let mut w = Writer { b, args: Vec::new(), blobs: Vec::new(), link: self.link, counters: None };
        w.ask_links();
        w
    }
}

/// Elements in a row that kernels go through, but for these: counters are compared as signed numbers.
const LONGEST: usize = 1 << 31;

/// Offsets from here on mean "masked out" in kernels, so what they reach over must be smaller.
const MAX_TENSOR_BYTES: usize = crate::graph::LARGEST;

/// A kernel being written: the builder and the arguments it has asked for.
struct Writer {
    b: Builder,
    args: Vec<(Arg, Buffer)>,
    blobs: Vec<Blob>,
    link: Option<Link>,
    /// Where steps of a launch count each other.
    counters: Option<linked::Counters>,
}

impl Writer {
    /// The buffer behind an argument.
    fn buffer(&mut self, cx: &Cx, arg: Arg) -> Res<Buffer> {
        if let Some((_, buf)) = self.args.iter().find(|(a, buf)| *a == arg && buf.desc.len == 4) {
            return Ok(*buf);
        }
        let t = cx.graph.tensor(cx.tensor(arg));
        let reach = cx.reach(arg);
        if reach >= MAX_TENSOR_BYTES {
            return Err(Reason::TooLarge { name: t.name.clone(), bytes: t.bytes(), reach });
        }
        Ok(self.buffer_of(cx, arg, reach))
    }
    /// The same, for tensors of any size.
    fn any_buffer(&mut self, cx: &Cx, arg: Arg) -> Buffer {
        self.buffer_of(cx, arg, MAX_TENSOR_BYTES)
    }
    /// A number that the kernel is told when it is launched.
    fn number(&mut self, n: Number) -> crate::mir::Part {
        if let Some((_, known)) = self.args.iter().find(|(a, _)| *a == Arg::Number(n)) {
            return known.desc;
        }
        let p = self.b.number_arg(self.args.len() as u32);
        self.args.push((Arg::Number(n), Buffer { desc: p, memory: Memory::Any }));
        p
    }
    fn buffer_of(&mut self, cx: &Cx, arg: Arg, bytes: usize) -> Buffer {
        let mut buf = self.b.buffer_arg(self.args.len() as u32, bytes as u32);
        // The same tensor behind two arguments is the same memory.
        let id = cx.tensor(arg);
        let same = self.args.iter().find(|(a, b)| {
            !matches!(a, Arg::Blob(_) | Arg::Workspace | Arg::Counters | Arg::Links | Arg::Number(_))
                && cx.tensor(*a) == id
                && b.desc.len == 4
        });
        if let Some((_, first)) = same {
            buf.memory = first.memory;
        }
        self.args.push((arg, buf));
        buf
    }
    /// The step's own memory, of so many bytes.
    fn workspace(&mut self, bytes: usize) -> Buffer {
        let buf = self.b.buffer_arg(self.args.len() as u32, bytes as u32);
        self.args.push((Arg::Workspace, buf));
        buf
    }
    /// The address of counters.
    fn counters(&mut self) -> crate::mir::Part {
        self.pointer(Arg::Counters)
    }
    /// A buffer over constant data.
    fn blob(&mut self, data: Blob) -> Buffer {
        let buf = self.b.buffer_arg(self.args.len() as u32, data.len() as u32);
        self.args.push((Arg::Blob(self.blobs.len()), buf));
        self.blobs.push(data);
        buf
    }
    /// The address of an operand.
    fn pointer(&mut self, arg: Arg) -> crate::mir::Part {
        let p = self.b.pointer_arg(self.args.len() as u32);
        // A second argument slot for the same operand: never looked up as a buffer.
        self.args.push((arg, Buffer { desc: p, memory: Memory::Any }));
        p
    }
    fn finish(mut self, grid: [u32; 3], flops: u64) -> Kernel {
        self.end_link(grid);
        Kernel {
            function: self.b.finish(),
            grid,
            args: self.args.iter().map(|a| a.0).collect(),
            blobs: self.blobs,
            flops,
            workspace: 0,
            counters: 0,
            sharing: [1; 3],
            rounds: 1,
        }
    }
}
