//! The memory plan: where every tensor lives.
//!
//! Intermediate tensors share one arena, with the memory that steps ask for beside them. A tensor is live from its first writer to its last reader; tensors that are
//! never live together may overlap. They are placed by decreasing size, each at the lowest address that is free during
//! its whole life (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020: greedy by
//! size). Where that needs more than what lives at once at the worst moment, other orders are tried, and whoever ended highest is
//! placed first and all others anew, a number of times; the best arena of these counts. Constants that kernels read lie one after
//! the other in the weights, equal ones once, and behind them the data made for kernels. Inputs and outputs are the
//! caller's buffers. This is the one place that decides where anything lies.

use super::fused::{FusedGraph, Role, TensorId};
use crate::tensor::{HostTensor, Identity};
use rustc_hash::FxHashMap;

/// Every address is a multiple of this many bytes.
pub const ALIGNMENT: usize = 256;

/// Where a tensor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the caller's buffer for this input.
    Input(usize),
    /// In the caller's buffer for this output.
    Output(usize),
    /// In the weights, at this byte.
    Weights(usize),
    /// In the arena, at this byte.
    Arena(usize),
    /// Nowhere: a constant that no kernel reads as it is.
    Nowhere,
}

/// The weights: where each constant lies, of one graph or of several that share them.
#[derive(Clone, Debug, Default)]
pub struct WeightsRegion {
    /// Size in bytes.
    pub bytes: usize,
    /// Tell large constants apart by what is in them; otherwise by where they lie in the host's memory.
    by_content: bool,
    known: FxHashMap<(Identity, usize), usize>,
}

impl WeightsRegion {
    /// An empty region for this many graphs. Several graphs of one model compute the same constants, each for itself.
    pub fn new(graphs: usize) -> WeightsRegion {
        WeightsRegion { by_content: graphs > 1, ..WeightsRegion::default() }
    }

    /// What tells a constant apart here.
    pub fn identity(&self, t: &HostTensor) -> Identity {
        if self.by_content || t.byte_len() <= SMALL { t.identity_where(&|_| false) } else { t.identity() }
    }

    /// The place of a constant: that of an equal one, or a new one.
    fn place(&mut self, t: &HostTensor) -> usize {
        let key = (self.identity(t), t.byte_len());
        if let Some(at) = self.known.get(&key) {
            return *at;
        }
        let at = self.reserve(t.byte_len());
        self.known.insert(key, at);
        at
    }

    /// A new place.
    pub fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.bytes;
        self.bytes += align(bytes.max(1));
        at
    }
}

/// Constants of up to this many bytes are compared by content.
const SMALL: usize = 1 << 16;

/// Places of all tensors of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemoryPlan {
    /// One place per tensor.
    pub places: Vec<Place>,
    /// Where in the arena each step's own memory begins; 0 where it asks for none.
    pub workspaces: Vec<usize>,
    /// Bytes of the arena in use while each step runs.
    pub live: Vec<usize>,
    /// Size of the arena in bytes: the peak.
    pub arena_bytes: usize,
    /// What the intermediate tensors need without sharing.
    pub sum_bytes: usize,
}

impl MemoryPlan {
    /// Where a tensor lives. Panics for an id of another graph.
    pub fn place(&self, id: TensorId) -> Place {
        self.places[id.index()]
    }
}

fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

#[derive(Clone, Copy)]
struct Life {
    /// Number of the tensor, or behind them of the step whose own memory it is.
    tensor: usize,
    size: usize,
    first: usize,
    last: usize,
    offset: usize,
}

/// First and last step that touches each tensor.
fn lives(graph: &FusedGraph) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; graph.tensors.len()];
    for (i, step) in graph.steps.iter().enumerate() {
        let mut touch = |t: TensorId| {
            let life = lives[t.index()].get_or_insert((i, i));
            life.1 = i;
        };
        touch(step.output.tensor);
        for a in &step.inputs {
            touch(a.tensor);
            a.indirect.iter().for_each(|x| touch(x.index));
        }
    }
    lives
}

/// How much of intermediate tensors lives at each step, for those who put steps earlier.
pub struct Lives {
    live: Vec<usize>,
    /// Bytes of the tensors that a step is the first to touch, and of its own memory.
    begins: Vec<usize>,
    own: Vec<usize>,
}

impl Lives {
    /// Of a graph's steps, of which step `i` has `workspace(i)` bytes of its own while it runs.
    pub fn of(graph: &FusedGraph, workspace: impl Fn(usize) -> usize) -> Lives {
        let steps = graph.steps.len();
        let own: Vec<usize> = (0..steps).map(workspace).collect();
        let (mut live, mut begins) = (own.clone(), vec![0; steps]);
        for (t, life) in graph.tensors.iter().zip(lives(graph)) {
            if let (Role::Intermediate, Some((first, last))) = (&t.role, life) {
                begins[first] += align(t.bytes().max(1));
                live[first..=last].iter_mut().for_each(|bytes| *bytes += align(t.bytes().max(1)));
            }
        }
        Lives { live, begins, own }
    }

    /// Bytes at the peak.
    pub fn most(&self) -> usize {
        self.live.iter().copied().max().unwrap_or(0)
    }

    /// Puts a step beside an earlier one if no more than so many bytes are alive then.
    pub fn begin_earlier(&mut self, step: usize, beside: usize, limit: usize) -> bool {
        let (begins, own) = (self.begins[step], self.own[step]);
        let between = &mut self.live[beside..step];
        if between.iter().any(|bytes| bytes + begins > limit) || between[0] + begins + own > limit {
            return false;
        }
        between.iter_mut().for_each(|bytes| *bytes += begins);
        between[0] += own;
        true
    }
}

/// Places all tensors. Of the constants those for which `reads` holds are placed, in `weights`. Step `i` has `workspace(i)` bytes of
/// its own while it runs.
pub fn plan(
    graph: &FusedGraph,
    reads: impl Fn(TensorId) -> bool,
    workspace: impl Fn(usize) -> usize,
    weights: &mut WeightsRegion,
) -> MemoryPlan {
    plan_beside(graph, reads, workspace, |i| (i, i), weights)
}

/// The same where steps run at once: `beside` tells the first and the last of those that do so with a step.
pub fn plan_beside(
    graph: &FusedGraph,
    reads: impl Fn(TensorId) -> bool,
    workspace: impl Fn(usize) -> usize,
    beside: impl Fn(usize) -> (usize, usize),
    weights: &mut WeightsRegion,
) -> MemoryPlan {
    let lives = lives(graph);
    let mut plan = MemoryPlan { places: Vec::with_capacity(graph.tensors.len()), ..MemoryPlan::default() };
    let mut list = Vec::new();
    for (i, t) in graph.tensors.iter().enumerate() {
        let size = align(t.bytes().max(1));
        plan.places.push(match &t.role {
            Role::Input(k) => Place::Input(*k),
            Role::Output(k) => Place::Output(*k),
            Role::Constant(data) if reads(TensorId(i as u32)) => Place::Weights(weights.place(data)),
            Role::Constant(_) => Place::Nowhere,
            Role::Intermediate => {
                plan.sum_bytes += size;
                let (first, last) = lives[i].map_or((0, 0), |(first, last)| (beside(first).0, beside(last).1));
                list.push(Life { tensor: i, size, first, last, offset: 0 });
                Place::Arena(0)
            }
        });
    }
    plan.workspaces = vec![0; graph.steps.len()];
    plan.live = vec![0; graph.steps.len()];
    let tensors = graph.tensors.len();
    list.extend((0..graph.steps.len()).filter(|i| workspace(*i) > 0).map(|i| Life {
        tensor: tensors + i,
        size: align(workspace(i)),
        first: beside(i).0,
        last: beside(i).1,
        offset: 0,
    }));
    for life in &list {
        plan.live[life.first..].iter_mut().take(life.last + 1 - life.first).for_each(|bytes| *bytes += life.size);
    }
    let least = plan.live.iter().copied().max().unwrap_or(0);
    plan.arena_bytes = arrange(&mut list, least);
    for life in &list {
        match life.tensor.checked_sub(tensors) {
            None => plan.places[life.tensor] = Place::Arena(life.offset),
            Some(step) => plan.workspaces[step] = life.offset,
        }
    }
    plan
}

/// Comparisons of two lives that better places are worth: well below a millisecond.
const MOST_COMPARISONS: usize = 1 << 18;

/// Gives all their offsets; the size of the arena, which is at least `least`.
fn arrange(list: &mut Vec<Life>, least: usize) -> usize {
    list.sort_by_key(|l| (std::cmp::Reverse(l.size), l.first, l.tensor));
    let mut best = settle(list);
    let rounds = MOST_COMPARISONS / (list.len() * list.len()).max(1);
    // Large ones first, or those that live long, or in the order of their lives.
    let keys: [fn(&Life) -> usize; 3] = [|l| l.size, |l| l.size * (l.last + 1 - l.first), |l| usize::MAX - l.first];
    for key in keys {
        let mut order = list.clone();
        order.sort_by_key(|l| (std::cmp::Reverse(key(l)), l.first, l.tensor));
        for _ in 0..rounds {
            if best <= least {
                return best;
            }
            let size = settle(&mut order);
            if size < best {
                best = size;
                list.clone_from(&order);
            }
            // The last placed of those that end at the top, if it is not first already.
            let Some(top) = order.iter().rposition(|l| l.offset + l.size == size).filter(|at| *at > 0) else { break };
            order[..=top].rotate_right(1);
        }
    }
    best
}

/// Places one after the other, each as low as it can be; where the highest ends.
fn settle(list: &mut [Life]) -> usize {
    let mut placed: Vec<Life> = Vec::with_capacity(list.len());
    let mut end = 0;
    for life in list {
        // `placed` is sorted by offset: the first gap among those alive at the same time.
        let mut offset = 0;
        for other in placed.iter().filter(|o| o.first <= life.last && life.first <= o.last) {
            if offset + life.size <= other.offset {
                break;
            }
            offset = offset.max(other.offset + other.size);
        }
        life.offset = offset;
        end = end.max(offset + life.size);
        let at = placed.partition_point(|o| o.offset <= offset);
        placed.insert(at, *life);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::super::expr::Expr;
    use super::super::fused::{Access, Step, StepKind, Tensor};
    use super::super::view::View;
    use super::*;
    use crate::tensor::{DType, SplitMix64};

    fn tensor(name: String, len: usize, role: Role) -> Tensor {
        Tensor { name, dtype: DType::F32, shape: vec![len], role }
    }

    fn copy(from: TensorId, to: TensorId) -> Step {
        let access = |t| Access::new(t, View::dense(&[1]));
        let (inputs, output) = (vec![access(from)], access(to));
        Step { name: "copy".into(), kind: StepKind::Pointwise, inputs, expr: Expr::copy(DType::F32), output }
    }

    #[test]
    fn a_chain_needs_its_two_largest_neighbours() {
        let mut g = FusedGraph::default();
        let mut last = g.add_tensor(tensor("x".into(), 1, Role::Input(0)));
        for (i, len) in [1000, 64, 500, 2000, 64].into_iter().enumerate() {
            let t = g.add_tensor(tensor(format!("t{i}"), len, Role::Intermediate));
            g.steps.push(copy(last, t));
            last = t;
        }
        let out = g.add_tensor(tensor("y".into(), 1, Role::Output(0)));
        g.steps.push(copy(last, out));
        let p = plan(&g, |_| true, |_| 0, &mut WeightsRegion::default());
        assert_eq!(p.arena_bytes, align(8000) + align(2000));
        assert_eq!(p.sum_bytes, align(4000) + 256 + align(2000) + align(8000) + 256);
        let sizes = [4000, 256, 2000, 8000, 256].map(align);
        let pairs: Vec<usize> = sizes.windows(2).map(|p| p[0] + p[1]).collect();
        assert_eq!(p.live, [&sizes[..1], &pairs[..], &sizes[4..]].concat());
    }

    #[test]
    fn tensors_alive_together_never_overlap() {
        let mut rng = SplitMix64(5);
        for _ in 0..50 {
            let mut g = FusedGraph::default();
            let mut ids = vec![g.add_tensor(tensor("x".into(), 1, Role::Input(0)))];
            for i in 0..30 {
                let len = 1 + (rng.next_u64() % 3000) as usize;
                let t = g.add_tensor(tensor(format!("t{i}"), len, Role::Intermediate));
                let from = ids[(rng.next_u64() % ids.len() as u64) as usize];
                g.steps.push(copy(from, t));
                ids.push(t);
            }
            let p = plan(&g, |_| true, |_| 0, &mut WeightsRegion::default());
            let life = |t: TensorId| {
                let uses = |s: &Step| s.output.tensor == t || s.inputs[0].tensor == t;
                let first = g.steps.iter().position(uses).unwrap();
                (first, g.steps.iter().rposition(uses).unwrap())
            };
            for &a in &ids[1..] {
                for &b in &ids[1..] {
                    let (Place::Arena(pa), Place::Arena(pb)) = (p.place(a), p.place(b)) else { panic!() };
                    let ((fa, la), (fb, lb)) = (life(a), life(b));
                    if a != b && fa <= lb && fb <= la {
                        let (ea, eb) = (pa + g.tensor(a).bytes(), pb + g.tensor(b).bytes());
                        assert!(ea <= pb || eb <= pa, "{a:?} and {b:?} overlap");
                    }
                    assert_eq!(pa % ALIGNMENT, 0);
                }
            }
            assert!(p.arena_bytes <= p.sum_bytes);
        }
    }
}
