//! Graphs: operations with dependencies, built node by node or by capturing streams, launched as a whole.
//!
//! A graph that is instantiated is put in an order that respects its edges; a launch puts the operations into the stream
//! in that order. Capturing a stream keeps what would go into it as nodes, each after the one before. An event that is
//! recorded in such a stream carries the place, and another stream that waits for it is captured into the same graph.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::op::{Op, submit};
use crate::state::{self, EXECS, EventEntry, GRAPHS, NODES, Stream, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A node.
#[derive(Clone)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// `hipGraphNodeType`.
    pub kind: u32,
    /// Nodes that come before, by number.
    pub after: BTreeSet<usize>,
    /// Handle; null until somebody asks.
    pub handle: u64,
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
}

/// An instantiated graph.
pub struct Exec {
    /// Operations in order, with the number of their node.
    pub ops: Vec<(usize, Op)>,
}

/// A place in a graph under capture.
#[derive(Clone)]
pub struct Capturing {
    /// The graph.
    pub graph: Arc<Mutex<Graph>>,
    /// What the next node comes after.
    pub last: BTreeSet<usize>,
    /// Number of the stream in which the capture began.
    pub origin: u64,
    /// Number of the capture.
    pub id: u64,
}

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
        Op::Free(_) => 11,
        Op::Write { .. } | Op::Until { .. } => 14,
    }
}

impl Graph {
    fn new() -> Graph {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Graph { identity: NEXT.fetch_add(1, Ordering::Relaxed), ..Graph::default() }
    }

    /// Adds a node.
    pub fn add(&mut self, op: Op, after: BTreeSet<usize>) -> usize {
        let kind = kind_of(&op);
        self.nodes.push(Some(Node { op, kind, after, handle: 0 }));
        self.nodes.len() - 1
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

    /// The operations in order.
    pub fn ops(&self) -> Result<Vec<(usize, Op)>> {
        let order = self.order()?;
        Ok(order.into_iter().filter_map(|i| Some((i, self.nodes[i].as_ref()?.op.clone()))).collect())
    }

    /// Everything that comes before some nodes, and themselves.
    fn before(&self, last: &BTreeSet<usize>) -> BTreeSet<usize> {
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
        if !Arc::ptr_eq(&of, shared) {
            return Err(INVALID);
        }
        out.insert(n);
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

/// True while a stream is captured.
pub fn is_capturing(stream: &Stream) -> bool {
    lock(&stream.capture).is_some()
}

/// Keeps an operation as node when its stream is captured.
pub fn keep(stream: &Stream, op: &Op) -> Result<bool> {
    let mut capture = lock(&stream.capture);
    let Some(c) = capture.as_mut() else { return Ok(false) };
    let number = lock(&c.graph).add(op.clone(), c.last.clone());
    c.last = BTreeSet::from([number]);
    Ok(true)
}

/// Records an event: in a stream under capture it carries the place.
pub fn record(stream: &Arc<Stream>, event: Arc<EventEntry>) -> Result {
    let capture = lock(&stream.capture).clone();
    let captured = capture.is_some();
    *lock(&event.captured) = capture;
    if captured { Ok(()) } else { submit(stream, Op::Record(event)) }
}

/// Lets a stream wait for an event that was recorded under capture; false when it was not.
pub fn join(stream: &Stream, event: &EventEntry) -> Result<bool> {
    let place = lock(&event.captured).clone();
    let mut capture = lock(&stream.capture);
    match (place, capture.as_mut()) {
        (None, None) => Ok(false),
        (None, Some(_)) => err(hipErrorStreamCaptureIsolation),
        (Some(p), Some(c)) if Arc::ptr_eq(&p.graph, &c.graph) => {
            c.last.extend(p.last);
            Ok(true)
        }
        (Some(_), Some(_)) => err(hipErrorStreamCaptureMerge),
        (Some(p), None) => {
            *capture = Some(p);
            Ok(true)
        }
    }
}

unsafe fn instantiate(place: *mut hipGraphExec_t, handle: hipGraph_t) -> Result {
    let g = graph(handle)?;
    let ops = lock(&g).ops()?;
    if place.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, EXECS.add(Arc::new(Mutex::new(Exec { ops })))) }
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
        let g = GRAPHS.remove(handle).ok_or(INVALID)?;
        NODES.retain(|(of, _)| !Arc::ptr_eq(of, &g));
        Ok(())
    }
    fn hipGraphClone(place: *mut hipGraph_t, handle: hipGraph_t) {
        let original = graph(handle)?;
        let mut copy = lock(&original).clone();
        let identity = copy.identity;
        copy.nodes.iter_mut().flatten().for_each(|n| n.handle = 0);
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
        instantiate(place, handle)
    }
    fn hipGraphInstantiateWithFlags(place: *mut hipGraphExec_t, handle: hipGraph_t, _flags: u64) {
        instantiate(place, handle)
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
        let ops: Vec<Op> = lock(&e).ops.iter().map(|(_, op)| op.clone()).collect();
        submit(&state::stream(stream)?, Op::Child(Arc::new(ops)))
    }
    fn hipGraphExecUpdate(exec: hipGraphExec_t, handle: hipGraph_t, error: *mut hipGraphNode_t, result: *mut c_uint) {
        let (e, g) = (EXECS.get(exec).ok_or(INVALID)?, graph(handle)?);
        let ops = lock(&g).ops()?;
        let mut e = lock(&e);
        let same = e.ops.len() == ops.len()
            && e.ops.iter().zip(&ops).all(|(a, b)| a.0 == b.0 && kind_of(&a.1) == kind_of(&b.1));
        if !error.is_null() {
            put(error, std::ptr::null_mut())?;
        }
        // 2: the topology changed.
        put(result, if same { 0 } else { 2 })?;
        if !same {
            return err(hipErrorGraphExecUpdateFailure);
        }
        e.ops = ops;
        Ok(())
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
        let found = lock(&g).nodes[number].as_ref().map(|n| n.kind);
        put(kind, found.ok_or(INVALID)?)
    }
    fn hipGraphDestroyNode(handle: hipGraphNode_t) {
        let (g, number) = node(handle)?;
        NODES.remove(handle);
        let mut g = lock(&g);
        g.nodes[number] = None;
        g.nodes.iter_mut().flatten().for_each(|n| {
            n.after.remove(&number);
        });
        Ok(())
    }
    fn hipGraphAddDependencies(handle: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t,
        count: usize) {
        for (from, to) in edges(handle, from, to, count)? {
            if from == to {
                return Err(INVALID);
            }
            if let Some(n) = &mut lock(&*graph(handle)?).nodes[to] {
                n.after.insert(from);
            }
        }
        Ok(())
    }
    fn hipGraphRemoveDependencies(handle: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t,
        count: usize) {
        for (from, to) in edges(handle, from, to, count)? {
            if let Some(n) = &mut lock(&*graph(handle)?).nodes[to] {
                n.after.remove(&from);
            }
        }
        Ok(())
    }

    fn hipStreamBeginCapture(stream: hipStream_t, mode: c_uint) {
        let s = state::stream(stream)?;
        if mode > 2 {
            return Err(INVALID);
        }
        // The default stream cannot be captured.
        if (stream as u64) <= 2 {
            return err(hipErrorStreamCaptureUnsupported);
        }
        let mut capture = lock(&s.capture);
        if capture.is_some() {
            return err(hipErrorIllegalState);
        }
        let g = Graph::new();
        let id = g.identity;
        *capture = Some(Capturing { graph: Arc::new(Mutex::new(g)), last: BTreeSet::new(), origin: s.number, id });
        Ok(())
    }
    fn hipStreamEndCapture(stream: hipStream_t, place: *mut hipGraph_t) {
        let s = state::stream(stream)?;
        let c = lock(&s.capture).clone().ok_or(Code(hipErrorIllegalState))?;
        if c.origin != s.number {
            return err(hipErrorStreamCaptureUnmatched);
        }
        for d in state::devices() {
            for other in d.all_streams() {
                let mut capture = lock(&other.capture);
                if capture.as_ref().is_some_and(|o| Arc::ptr_eq(&o.graph, &c.graph)) {
                    *capture = None;
                }
            }
        }
        let unjoined = {
            let g = lock(&c.graph);
            g.before(&c.last).len() != g.numbers().len()
        };
        if unjoined {
            put(place, std::ptr::null_mut())?;
            return err(hipErrorStreamCaptureUnjoined);
        }
        put(place, GRAPHS.add(c.graph))
    }
    fn hipStreamIsCapturing(stream: hipStream_t, status: *mut c_uint) {
        put(status, c_uint::from(is_capturing(&*state::stream(stream)?)))
    }
    fn hipStreamGetCaptureInfo(stream: hipStream_t, status: *mut c_uint, id: *mut u64) {
        let s = state::stream(stream)?;
        let c = lock(&s.capture).clone();
        put(status, c_uint::from(c.is_some()))?;
        match c {
            Some(c) if !id.is_null() => put(id, c.id),
            _ => Ok(()),
        }
    }
    fn hipThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        // No call is forbidden during a capture, so that every mode is the relaxed one.
        if get(mode)? > 2 {
            return Err(INVALID);
        }
        put(mode, 2)
    }
}
