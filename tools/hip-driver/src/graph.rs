//! Graphs: operations with dependencies, built node by node or by capturing streams (`crate::capture`), launched as a
//! whole.
//!
//! A graph that is instantiated is put in an order that respects its edges; a launch puts the operations into the stream
//! in that order. What an instance does can be changed node by node, or as a whole from a graph of the same shape.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::graph_memory::GraphMemory;
use crate::memory::Kind;
use crate::op::{Op, submit, submit_and_wait};
use crate::state::{self, EVENTS, EXECS, GRAPHS, NODES, lock};
use crate::types::*;
use crate::user_object::Objects;
use barewave_emu::hip::code::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// What a node is.
#[derive(Clone)]
pub enum Content {
    /// An operation.
    Op(Op),
    /// Another graph, and its handle.
    Child(Shared, u64),
    /// Writes of and waits for numbers, as they were given.
    Batch(Vec<Op>, Raw<Vec<hipStreamBatchMemOpParams>>),
}

impl Content {
    /// `hipGraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            Content::Op(op) => kind_of(op),
            Content::Child(..) => 4,
            Content::Batch(..) => 14,
        }
    }

    /// What it does.
    pub fn op(&self) -> Result<Op> {
        Ok(match self {
            Content::Op(op) => op.clone(),
            Content::Child(g, _) => Op::Child(Arc::new(lock(g).steps()?.into_iter().map(|s| s.op).collect())),
            Content::Batch(ops, _) => Op::Child(Arc::new(ops.clone())),
        })
    }
}

/// A node.
#[derive(Clone)]
pub struct Node {
    /// What it is.
    pub content: Content,
    /// The description of a copy that the caller gave, for who asks.
    pub given: Option<Raw<Given>>,
    /// Attributes of a kernel, kept for who asks.
    pub attributes: BTreeMap<u32, [u8; 64]>,
    /// Nodes that come before, by number.
    pub after: BTreeSet<usize>,
    /// Handle; null until somebody asks.
    pub handle: u64,
}

/// A description that a caller gave.
#[derive(Clone, Copy)]
pub enum Given {
    /// Of a copy.
    Runtime(hipMemcpy3DParms),
    /// Of a copy, by the driver API.
    Driver(HIP_MEMCPY3D),
    /// Of an allocation.
    Memory(hipMemAllocNodeParams),
}

/// A graph. Nodes keep their numbers; removed ones leave a hole.
#[derive(Clone, Default)]
pub struct Graph {
    /// Nodes by number.
    pub nodes: Vec<Option<Node>>,
    /// Numbers of the nodes in the graph that this one is a clone of.
    pub cloned_from: Option<u64>,
    /// Identity, for clones.
    pub identity: u64,
    /// User objects that it holds.
    pub objects: Objects,
    /// There while it is instantiated.
    pub instance: Weak<()>,
}

/// A node of an instantiated graph.
#[derive(Clone)]
pub struct Step {
    /// Number of the node.
    pub number: usize,
    /// `hipGraphNodeType`.
    pub kind: u32,
    /// What it does.
    pub op: Op,
    /// It is done, or passed over.
    pub enabled: bool,
    /// Positions of the steps before it.
    pub after: BTreeSet<usize>,
}

/// An instantiated graph.
pub struct Exec {
    /// In order.
    pub steps: Vec<Step>,
    /// Of the graph.
    pub identity: u64,
    /// Flags it was made with.
    pub flags: u64,
    /// User objects that it holds.
    pub _objects: Objects,
    /// Tells the graph that it is instantiated.
    pub _instance: Arc<()>,
}

impl Exec {
    /// The kernel, copy or fill that a node of this instance's graph is.
    fn own_step(&mut self, number: usize, identity: u64) -> Option<&mut Step> {
        let own = self.identity == identity;
        self.steps.iter_mut().find(|s| own && s.number == number && s.kind <= 2)
    }
}

/// Memory that is still there from the launch before is freed.
const AUTO_FREE: u64 = 1;

pub type Shared = Arc<Mutex<Graph>>;

/// Kind of the node that an operation makes (`hipGraphNodeType`).
pub fn kind_of(op: &Op) -> u32 {
    match op {
        Op::Kernel(_) => 0,
        Op::Copy { .. } => 1,
        Op::Set { .. } => 2,
        Op::Host(_) => 3,
        Op::Child(_) => 4,
        Op::Empty => 5,
        Op::Wait(_) => 6,
        Op::Record(_) => 7,
        Op::Alloc(_) => 10,
        Op::Free(_) => 11,
        Op::Write { .. } | Op::Until { .. } => 14,
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Graph { identity: NEXT.fetch_add(1, Ordering::Relaxed), ..Graph::default() }
    }

    /// Adds a node.
    pub fn add(&mut self, content: Content, after: BTreeSet<usize>) -> usize {
        self.nodes.push(Some(Node { content, given: None, attributes: BTreeMap::new(), after, handle: 0 }));
        self.nodes.len() - 1
    }

    /// It allocates or frees memory: then it has one instance at a time, is not copied, and keeps its edges.
    pub fn allocates(&self) -> bool {
        self.nodes.iter().flatten().any(|n| matches!(n.content.kind(), 10 | 11))
    }

    /// A node.
    pub fn node(&mut self, number: usize) -> Result<&mut Node> {
        self.nodes.get_mut(number).and_then(Option::as_mut).ok_or(INVALID)
    }

    /// Numbers of the nodes.
    pub fn numbers(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|i| self.nodes[*i].is_some()).collect()
    }

    /// The nodes in an order that respects the edges, lowest number first; an error when they form a circle.
    pub fn order(&self) -> Result<Vec<usize>> {
        let mut done = BTreeSet::new();
        let mut order = Vec::new();
        let mut left = self.numbers();
        while !left.is_empty() {
            let ready = |i: &usize| self.nodes[*i].as_ref().is_some_and(|n| n.after.is_subset(&done));
            let before = left.len();
            for i in left.iter().copied().filter(ready).collect::<Vec<_>>() {
                done.insert(i);
                order.push(i);
            }
            left.retain(|i| !done.contains(i));
            if left.len() == before {
                return Err(INVALID);
            }
        }
        Ok(order)
    }

    /// What an instance does.
    pub fn steps(&self) -> Result<Vec<Step>> {
        let order = self.order()?;
        let position: BTreeMap<usize, usize> = order.iter().enumerate().map(|(at, n)| (*n, at)).collect();
        let step = |number: usize| {
            let n = self.nodes[number].as_ref().ok_or(INVALID)?;
            let after = n.after.iter().filter_map(|a| position.get(a).copied()).collect();
            Ok(Step { number, kind: n.content.kind(), op: n.content.op()?, enabled: true, after })
        };
        order.into_iter().map(step).collect()
    }

    /// Everything that comes before some nodes, and themselves.
    pub fn before(&self, last: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut seen = BTreeSet::new();
        let mut left: Vec<usize> = last.iter().copied().collect();
        while let Some(i) = left.pop() {
            if seen.insert(i)
                && let Some(n) = &self.nodes[i]
            {
                left.extend(&n.after);
            }
        }
        seen
    }
}

/// The graph behind a handle.
pub fn graph(handle: hipGraph_t) -> Result<Shared> {
    GRAPHS.get(handle).ok_or(INVALID)
}

/// The node behind a handle.
pub fn node(handle: hipGraphNode_t) -> Result<(Shared, usize)> {
    NODES.get(handle).ok_or(INVALID)
}

/// The handle of a node.
pub fn node_handle(shared: &Shared, number: usize) -> hipGraphNode_t {
    let mut g = lock(shared);
    let Some(n) = g.nodes.get_mut(number).and_then(Option::as_mut) else { return std::ptr::null_mut() };
    if n.handle == 0 {
        n.handle = NODES.add((shared.clone(), number)) as u64;
    }
    n.handle as hipGraphNode_t
}

/// Numbers of the nodes in a list of handles, all of one graph.
///
/// # Safety
/// The list has `count` handles.
pub unsafe fn numbers(shared: &Shared, list: *const hipGraphNode_t, count: usize) -> Result<BTreeSet<usize>> {
    if list.is_null() && count > 0 {
        return Err(INVALID);
    }
    let mut out = BTreeSet::new();
    for i in 0..count {
        // SAFETY: the caller's promise.
        let (of, n) = node(unsafe { get(list.add(i))? })?;
        if !Arc::ptr_eq(&of, shared) || !out.insert(n) {
            return Err(INVALID);
        }
    }
    Ok(out)
}

/// The edges that two lists of handles name, as numbers of nodes.
///
/// # Safety
/// Both lists have `count` handles, or are null.
unsafe fn edges(
    handle: hipGraph_t,
    from: *const hipGraphNode_t,
    to: *const hipGraphNode_t,
    count: usize,
) -> Result<Vec<(usize, usize)>> {
    let g = graph(handle)?;
    if count > 0 && (from.is_null() || to.is_null()) {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    let one = |list: *const hipGraphNode_t| unsafe { numbers(&g, list, 1) }.map(|n| n.into_iter().next());
    let mut out = Vec::new();
    for i in 0..count {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (one(from.add(i))?, one(to.add(i))?) };
        out.extend(from.zip(to));
    }
    Ok(out)
}

/// Forgets the handles of a graph's nodes, and of the graphs in it.
fn forget(g: &Shared) {
    NODES.retain(|(of, _)| !Arc::ptr_eq(of, g));
    let children: Vec<(Shared, u64)> = {
        let g = lock(g);
        let child = |n: &Node| match &n.content {
            Content::Child(inner, handle) => Some((inner.clone(), *handle)),
            _ => None,
        };
        g.nodes.iter().flatten().filter_map(child).collect()
    };
    for (inner, handle) in children {
        GRAPHS.remove(handle as hipGraph_t);
        forget(&inner);
    }
}

fn instantiate(place: *mut hipGraphExec_t, handle: hipGraph_t, flags: u64) -> Result {
    let g = graph(handle)?;
    // One flag at most.
    if place.is_null() || !matches!(flags, 0 | 1 | 2 | 4 | 8) {
        return Err(INVALID);
    }
    let mut g = lock(&g);
    if g.allocates() && g.instance.strong_count() > 0 {
        return err(hipErrorNotSupported);
    }
    let instance = Arc::new(());
    g.instance = Arc::downgrade(&instance);
    let (steps, objects) = (g.steps()?, g.objects.clone());
    let exec = Exec { steps, identity: g.identity, flags, _objects: objects, _instance: instance };
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, EXECS.add(Arc::new(Mutex::new(exec)))) }
}

/// What a launch of an instance puts into its stream.
fn launch_ops(exec: &Exec) -> Result<Vec<Op>> {
    fn memory(op: &Op) -> Vec<&Arc<GraphMemory>> {
        match op {
            Op::Alloc(m) => vec![m],
            Op::Child(ops) => ops.iter().flat_map(memory).collect(),
            _ => Vec::new(),
        }
    }
    let done = || exec.steps.iter().filter(|s| s.enabled).map(|s| &s.op);
    // Memory that a launch allocates has to be freed before the next one.
    if exec.flags & AUTO_FREE == 0 && done().flat_map(memory).any(|m| m.live()) {
        return Err(INVALID);
    }
    Ok(done().cloned().collect())
}

/// Which sides of a copy are on a device.
pub fn directions(op: &Op) -> Option<(bool, bool)> {
    let on_device = |r: &crate::op::Rows| crate::memory::find(r.start.0).is_some_and(|a| a.kind == Kind::Device);
    match op {
        Op::Copy { to, from, .. } => Some((on_device(to), on_device(from))),
        _ => None,
    }
}

/// What came of an update of an instance (`hipGraphExecUpdateResult`), and the node to blame.
fn update(exec: &mut Exec, new: Vec<Step>) -> (c_uint, Option<usize>) {
    if exec.steps.len() != new.len() {
        return (2, None);
    }
    for (old, new) in exec.steps.iter().zip(&new) {
        if old.kind != new.kind {
            return (3, Some(new.number));
        }
        if old.after != new.after {
            return (2, Some(new.number));
        }
        if directions(&old.op) != directions(&new.op) {
            return (5, Some(new.number));
        }
    }
    for (old, new) in exec.steps.iter_mut().zip(new) {
        old.op = new.op;
    }
    (0, None)
}

/// Writes a list of handles the way these functions do: with a null list only the number, else at most as many.
///
/// # Safety
/// `count` is valid, `list` is null or has room for `count`.
unsafe fn put_list(list: *mut hipGraphNode_t, count: *mut usize, shared: &Shared, nodes: &[usize]) -> Result {
    // SAFETY: the caller's promise.
    unsafe {
        let room = get(count)?;
        if !list.is_null() {
            for i in 0..room {
                let handle = nodes.get(i).map_or(std::ptr::null_mut(), |n| node_handle(shared, *n));
                put(list.add(i), handle)?;
            }
        }
        put(count, if list.is_null() { nodes.len() } else { nodes.len().min(room) })
    }
}

hip! {
    fn hipGraphCreate(place: *mut hipGraph_t, flags: c_uint) {
        if flags != 0 || place.is_null() {
            return Err(INVALID);
        }
        put(place, GRAPHS.add(Arc::new(Mutex::new(Graph::new()))))
    }
    fn hipGraphDestroy(handle: hipGraph_t) {
        forget(&GRAPHS.remove(handle).ok_or(INVALID)?);
        Ok(())
    }
    fn hipGraphClone(place: *mut hipGraph_t, handle: hipGraph_t) {
        let original = graph(handle)?;
        let mut copy = lock(&original).clone();
        if copy.allocates() {
            return err(hipErrorNotSupported);
        }
        copy.instance = Weak::new();
        let identity = copy.identity;
        copy.nodes.iter_mut().flatten().for_each(|n| n.handle = 0);
        copy.objects = Objects::default();
        copy.identity = Graph::new().identity;
        copy.cloned_from = Some(identity);
        put(place, GRAPHS.add(Arc::new(Mutex::new(copy))))
    }
    fn hipGraphNodeFindInClone(place: *mut hipGraphNode_t, original: hipGraphNode_t, clone: hipGraph_t) {
        let ((of, number), clone) = (node(original)?, graph(clone)?);
        let identity = lock(&of).identity;
        if lock(&clone).cloned_from != Some(identity) {
            return Err(INVALID);
        }
        let found = node_handle(&clone, number);
        if found.is_null() { Err(INVALID) } else { put(place, found) }
    }
    fn hipGraphInstantiate(place: *mut hipGraphExec_t, handle: hipGraph_t, error: *mut hipGraphNode_t,
        text: *mut c_char, size: usize) {
        if !error.is_null() {
            put(error, std::ptr::null_mut())?;
        }
        if !text.is_null() && size > 0 {
            put(text, 0)?;
        }
        instantiate(place, handle, 0)
    }
    fn hipGraphInstantiateWithFlags(place: *mut hipGraphExec_t, handle: hipGraph_t, flags: u64) {
        instantiate(place, handle, flags)
    }
    fn hipGraphInstantiateWithParams(place: *mut hipGraphExec_t, handle: hipGraph_t,
        params: *mut hipGraphInstantiateParams) {
        let mut p = get(params)?;
        let result = instantiate(place, handle, p.flags);
        p.error_node = std::ptr::null_mut();
        p.result = c_uint::from(result.is_err());
        put(params, p)?;
        result
    }
    fn hipGraphExecGetFlags(exec: hipGraphExec_t, flags: *mut u64) {
        let e = EXECS.get(exec).ok_or(INVALID)?;
        let f = lock(&e).flags;
        put(flags, f)
    }
    fn hipGraphExecDestroy(exec: hipGraphExec_t) {
        EXECS.remove(exec).map(drop).ok_or(INVALID)
    }
    fn hipGraphUpload(exec: hipGraphExec_t, stream: hipStream_t) {
        EXECS.get(exec).ok_or(INVALID)?;
        state::stream(stream).map(drop)
    }
    fn hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t) {
        let e = EXECS.get(exec).ok_or(INVALID)?;
        let s = state::stream(stream)?;
        let ops = launch_ops(&lock(&e))?;
        // As for a copy alone: what is pageable need not outlive the call.
        let waits = ops.iter().any(crate::copy::touches_pageable) && !crate::capture::is_capturing(&s);
        let all = Op::Child(Arc::new(ops));
        if waits { submit_and_wait(&s, all) } else { submit(&s, all) }
    }
    fn hipGraphExecUpdate(exec: hipGraphExec_t, handle: hipGraph_t, error: *mut hipGraphNode_t, result: *mut c_uint) {
        let (e, g) = (EXECS.get(exec).ok_or(INVALID)?, graph(handle)?);
        let steps = lock(&g).steps()?;
        let (outcome, blamed) = update(&mut lock(&e), steps);
        put(result, outcome)?;
        if !error.is_null() {
            put(error, blamed.map_or(std::ptr::null_mut(), |n| node_handle(&g, n)))?;
        }
        if outcome == 0 { Ok(()) } else { err(hipErrorGraphExecUpdateFailure) }
    }

    fn hipGraphGetNodes(handle: hipGraph_t, list: *mut hipGraphNode_t, count: *mut usize) {
        let g = graph(handle)?;
        let nodes = lock(&g).numbers();
        put_list(list, count, &g, &nodes)
    }
    fn hipGraphGetRootNodes(handle: hipGraph_t, list: *mut hipGraphNode_t, count: *mut usize) {
        let g = graph(handle)?;
        let root = |g: &Graph, i: &usize| g.nodes[*i].as_ref().is_some_and(|n| n.after.is_empty());
        let nodes: Vec<usize> = {
            let g = lock(&g);
            g.numbers().into_iter().filter(|i| root(&g, i)).collect()
        };
        put_list(list, count, &g, &nodes)
    }
    fn hipGraphGetEdges(handle: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t, count: *mut usize) {
        let g = graph(handle)?;
        let (mut froms, mut tos) = (Vec::new(), Vec::new());
        {
            let g = lock(&g);
            for i in g.numbers() {
                for before in g.nodes[i].iter().flat_map(|n| &n.after) {
                    froms.push(*before);
                    tos.push(i);
                }
            }
        }
        if from.is_null() != to.is_null() {
            return Err(INVALID);
        }
        let room = get(count)?;
        put_list(from, count, &g, &froms)?;
        put(count, room)?;
        put_list(to, count, &g, &tos)
    }
    fn hipGraphNodeGetDependencies(handle: hipGraphNode_t, list: *mut hipGraphNode_t, count: *mut usize) {
        let (g, number) = node(handle)?;
        let nodes: Vec<usize> = lock(&g).nodes[number].iter().flat_map(|n| n.after.clone()).collect();
        put_list(list, count, &g, &nodes)
    }
    fn hipGraphNodeGetDependentNodes(handle: hipGraphNode_t, list: *mut hipGraphNode_t, count: *mut usize) {
        let (g, number) = node(handle)?;
        let nodes: Vec<usize> = {
            let g = lock(&g);
            g.numbers().into_iter().filter(|i| g.nodes[*i].as_ref().is_some_and(|n| n.after.contains(&number))).collect()
        };
        put_list(list, count, &g, &nodes)
    }
    fn hipGraphNodeGetType(handle: hipGraphNode_t, kind: *mut c_uint) {
        let (g, number) = node(handle)?;
        let found = lock(&g).node(number)?.content.kind();
        put(kind, found)
    }
    fn hipGraphDestroyNode(handle: hipGraphNode_t) {
        let (g, number) = node(handle)?;
        let mut g = lock(&g);
        if g.allocates() {
            return err(hipErrorNotSupported);
        }
        NODES.remove(handle);
        g.nodes[number] = None;
        g.nodes.iter_mut().flatten().for_each(|n| {
            n.after.remove(&number);
        });
        Ok(())
    }
    fn hipGraphAddDependencies(handle: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t,
        count: usize) {
        let list = edges(handle, from, to, count)?;
        let g = graph(handle)?;
        let mut g = lock(&g);
        // All of them or none: an edge that is there already, or twice in the list, is refused.
        let mut seen = BTreeSet::new();
        for &(from, to) in &list {
            if from == to || !seen.insert((from, to)) || g.node(to)?.after.contains(&from) {
                return Err(INVALID);
            }
        }
        for (from, to) in list {
            g.node(to)?.after.insert(from);
        }
        Ok(())
    }
    fn hipGraphRemoveDependencies(handle: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t,
        count: usize) {
        let list = edges(handle, from, to, count)?;
        let g = graph(handle)?;
        let mut g = lock(&g);
        if g.allocates() && !list.is_empty() {
            return err(hipErrorNotSupported);
        }
        let mut seen = BTreeSet::new();
        for &(from, to) in &list {
            if !seen.insert((from, to)) || !g.node(to)?.after.contains(&from) {
                return Err(INVALID);
            }
        }
        for (from, to) in list {
            g.node(to)?.after.remove(&from);
        }
        Ok(())
    }
    fn hipGraphNodeSetEnabled(exec: hipGraphExec_t, handle: hipGraphNode_t, enabled: c_uint) {
        let (e, (g, number)) = (EXECS.get(exec).ok_or(INVALID)?, node(handle)?);
        let identity = lock(&g).identity;
        let mut e = lock(&e);
        // Kernels, copies, fills.
        let step = e.own_step(number, identity).ok_or(INVALID)?;
        step.enabled = enabled != 0;
        Ok(())
    }
    fn hipGraphNodeGetEnabled(exec: hipGraphExec_t, handle: hipGraphNode_t, enabled: *mut c_uint) {
        let (e, (g, number)) = (EXECS.get(exec).ok_or(INVALID)?, node(handle)?);
        let identity = lock(&g).identity;
        let mut e = lock(&e);
        let step = e.own_step(number, identity).ok_or(INVALID)?;
        put(enabled, c_uint::from(step.enabled))
    }
    fn hipGraphDebugDotPrint(handle: hipGraph_t, path: *const c_char, _flags: c_uint) {
        let g = graph(handle)?;
        if path.is_null() {
            return Err(INVALID);
        }
        let text = dot(&lock(&g));
        let path = CStr::from_ptr(path).to_string_lossy().into_owned();
        std::fs::write(&path, text).map_err(|e| {
            crate::api::log(&format!("{path}: {e}"));
            Code(hipErrorOperatingSystem)
        })
    }
}

/// A graph in the language of Graphviz.
fn dot(g: &Graph) -> String {
    const KINDS: [&str; 12] = [
        "kernel",
        "memcpy",
        "memset",
        "host",
        "graph",
        "empty",
        "wait event",
        "record event",
        "signal",
        "wait",
        "allocate",
        "free",
    ];
    let mut text = String::from("digraph dot {\n");
    for i in g.numbers() {
        let Some(n) = &g.nodes[i] else { continue };
        let kind = KINDS.get(n.content.kind() as usize).copied().unwrap_or("memory operations");
        let name = match &n.content {
            Content::Op(Op::Kernel(spec)) => spec.function.c_name().to_string_lossy().into_owned(),
            _ => String::new(),
        };
        let label = format!("{i} {kind} {name}");
        text.push_str(&format!("  n{i} [shape=box, label={:?}];\n", label.trim_end()));
        for before in &n.after {
            text.push_str(&format!("  n{before} -> n{i};\n"));
        }
    }
    text + "}\n"
}

/// The handle of an event.
pub fn event_handle(event: &Arc<state::EventEntry>) -> hipEvent_t {
    EVENTS.find(|e| Arc::ptr_eq(e, event)).unwrap_or(std::ptr::null_mut())
}
