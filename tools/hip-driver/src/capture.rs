//! Capturing streams: what would go into one is kept as nodes of a graph, each after the one before. An event that is
//! recorded in such a stream carries the place, and another stream that waits for it is captured into the same graph.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::graph::{Content, Graph, Shared, graph, node_handle, numbers};
use crate::op::{Op, submit};
use crate::state::{self, EventEntry, GRAPHS, Stream, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// A place in a graph under capture.
#[derive(Clone)]
pub struct Capturing {
    /// The graph.
    pub graph: Arc<Mutex<Graph>>,
    /// What the next node comes after.
    pub last: BTreeSet<usize>,
    /// Number of the stream in which the capture began.
    pub origin: u64,
    /// Who may do what meanwhile: 0 nobody does anything unsafe, 1 this thread does not, 2 everybody may.
    pub mode: u32,
    /// The thread that began it.
    pub thread: ThreadId,
    /// Nodes that were in the graph before.
    pub first: usize,
    /// Number of the capture.
    pub id: u64,
    /// Handle of the graph, once somebody has asked or given it.
    pub handle: Option<u64>,
    /// Handles of `last`, for who asks: they stay where they are until the next question.
    pub shown: Vec<u64>,
}

/// True while a stream is captured.
pub fn is_capturing(stream: &Stream) -> bool {
    lock(&stream.capture).is_some()
}

/// Keeps an operation as node when its stream is captured.
pub fn keep(stream: &Stream, op: &Op) -> Result<bool> {
    let mut capture = lock(&stream.capture);
    let Some(c) = capture.as_mut() else { return Ok(false) };
    let number = lock(&c.graph).add(Content::Op(op.clone()), c.last.clone());
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

/// Captures that are going on: number, mode, thread, and the device whose default stream has to wait.
static ACTIVE: Mutex<Vec<(u64, u32, ThreadId, i32)>> = Mutex::new(Vec::new());

thread_local! {
    /// The mode that this thread has exchanged for its own: `RELAXED` allows everything.
    static MODE: Cell<u32> = const { Cell::new(0) };
}

const RELAXED: u32 = 2;

/// Fails when a capture forbids this thread what cannot be captured and may wait for captured work.
pub fn check_safe() -> Result {
    let here = std::thread::current().id();
    let forbids = |mode: u32, thread: ThreadId| mode == 0 || mode == 1 && thread == here;
    let active = lock(&ACTIVE);
    if MODE.get() != RELAXED && active.iter().any(|a| forbids(a.1, a.2)) {
        return err(hipErrorStreamCaptureUnsupported);
    }
    Ok(())
}

/// Fails while any stream of a device is captured: waiting for the device would wait for it too.
pub fn check_device(ordinal: i32) -> Result {
    if lock(&ACTIVE).iter().any(|a| a.3 == ordinal) { err(hipErrorStreamCaptureUnsupported) } else { Ok(()) }
}

/// Fails when a handle means the default stream and one that waits for it is captured.
pub fn check_default(stream: hipStream_t) -> Result {
    if (stream as u64) > 1 || lock(&ACTIVE).is_empty() {
        return Ok(());
    }
    let device = state::current()?;
    let waits = |s: &Arc<Stream>| s.flags & 1 == 0 && is_capturing(s);
    if device.all_streams().iter().any(waits) { err(hipErrorStreamCaptureImplicit) } else { Ok(()) }
}

/// A stream is gone, or its capture has ended.
pub fn ended(id: u64) {
    lock(&ACTIVE).retain(|a| a.0 != id);
}

fn begin(stream: hipStream_t, mode: c_uint, into: Option<(Shared, hipGraph_t, BTreeSet<usize>)>) -> Result {
    let s = state::stream(stream)?;
    if mode > 2 {
        return Err(INVALID);
    }
    // The default stream cannot be captured.
    if (stream as u64) <= 1 {
        return err(hipErrorStreamCaptureUnsupported);
    }
    let mut capture = lock(&s.capture);
    if capture.is_some() {
        return err(hipErrorIllegalState);
    }
    let (graph, handle, last) = match into {
        Some((g, handle, last)) => (g, Some(handle as u64), last),
        None => (Arc::new(Mutex::new(Graph::new())), None, BTreeSet::new()),
    };
    let id = Graph::new().identity;
    let (first, thread) = (lock(&graph).nodes.len(), std::thread::current().id());
    lock(&ACTIVE).push((id, mode, thread, s.device));
    *capture = Some(Capturing { graph, last, origin: s.number, mode, thread, first, id, handle, shown: Vec::new() });
    Ok(())
}

hip! {
    fn hipStreamBeginCapture(stream: hipStream_t, mode: c_uint) {
        begin(stream, mode, None)
    }
    fn hipStreamBeginCaptureToGraph(stream: hipStream_t, handle: hipGraph_t, after: *const hipGraphNode_t,
        _edges: *const c_void, count: usize, mode: c_uint) {
        let g = graph(handle)?;
        let last = numbers(&g, after, count)?;
        begin(stream, mode, Some((g, handle, last)))
    }
    fn hipStreamEndCapture(stream: hipStream_t, place: *mut hipGraph_t) {
        let s = state::stream(stream)?;
        let c = lock(&s.capture).clone().ok_or(Code(hipErrorIllegalState))?;
        if c.origin != s.number {
            return err(hipErrorStreamCaptureUnmatched);
        }
        if c.mode != RELAXED && c.thread != std::thread::current().id() {
            return err(hipErrorStreamCaptureWrongThread);
        }
        ended(c.id);
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
            let joined = g.before(&c.last);
            g.numbers().iter().any(|n| *n >= c.first && !joined.contains(n))
        };
        if unjoined {
            put(place, std::ptr::null_mut())?;
            return err(hipErrorStreamCaptureUnjoined);
        }
        put(place, c.handle.map_or_else(|| GRAPHS.add(c.graph), |h| h as hipGraph_t))
    }
    fn hipStreamIsCapturing(stream: hipStream_t, status: *mut c_uint) {
        if status.is_null() {
            return Err(INVALID);
        }
        check_default(stream)?;
        put(status, c_uint::from(is_capturing(&*state::stream(stream)?)))
    }
    fn hipStreamGetCaptureInfo(stream: hipStream_t, status: *mut c_uint, id: *mut u64) {
        if status.is_null() {
            return Err(INVALID);
        }
        check_default(stream)?;
        let s = state::stream(stream)?;
        let c = lock(&s.capture).clone();
        put(status, c_uint::from(c.is_some()))?;
        match c {
            Some(c) if !id.is_null() => put(id, c.id),
            _ => Ok(()),
        }
    }
    fn hipStreamGetCaptureInfo_v2(stream: hipStream_t, status: *mut c_uint, id: *mut u64, place: *mut hipGraph_t,
        nodes: *mut *const hipGraphNode_t, count: *mut usize) {
        if status.is_null() {
            return Err(INVALID);
        }
        check_default(stream)?;
        let s = state::stream(stream)?;
        let mut capture = lock(&s.capture);
        put(status, c_uint::from(capture.is_some()))?;
        let Some(c) = capture.as_mut() else { return Ok(()) };
        c.shown = c.last.iter().map(|n| node_handle(&c.graph, *n) as u64).collect();
        let handle = *c.handle.get_or_insert_with(|| GRAPHS.add(c.graph.clone()) as u64);
        if !id.is_null() {
            put(id, c.id)?;
        }
        if !place.is_null() {
            put(place, handle as hipGraph_t)?;
        }
        if !nodes.is_null() {
            put(nodes, c.shown.as_ptr().cast())?;
        }
        if count.is_null() { Ok(()) } else { put(count, c.shown.len()) }
    }
    fn hipStreamUpdateCaptureDependencies(stream: hipStream_t, nodes: *mut hipGraphNode_t, count: usize,
        flags: c_uint) {
        let s = state::stream(stream)?;
        let mut capture = lock(&s.capture);
        let c = capture.as_mut().ok_or(Code(hipErrorIllegalState))?;
        let given = numbers(&c.graph, nodes, count)?;
        match flags {
            0 => c.last.extend(given),
            1 => c.last = given,
            _ => return Err(INVALID),
        }
        Ok(())
    }
    fn hipThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        let wanted = get(mode)?;
        if wanted > 2 {
            return Err(INVALID);
        }
        put(mode, MODE.replace(wanted))
    }
}
