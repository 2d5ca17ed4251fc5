//! Capturing streams: what would go into one is kept as nodes of a graph, each after the one before. An event that is
//! recorded in such a stream carries the place, and another stream that waits for it is captured into the same graph.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::graph::{Content, Graph, Shared, graph, node_handle, numbers};
use crate::op::{Op, submit};
use crate::state::{self, EventEntry, GRAPHS, Stream, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::collections::BTreeSet;
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};

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
    *capture = Some(Capturing { graph, last, origin: s.number, id, handle, shown: Vec::new() });
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
            // What was in the graph before the capture began need not be joined.
            c.handle.is_none() && g.before(&c.last).len() != g.numbers().len()
        };
        if unjoined {
            put(place, std::ptr::null_mut())?;
            return err(hipErrorStreamCaptureUnjoined);
        }
        put(place, c.handle.map_or_else(|| GRAPHS.add(c.graph), |h| h as hipGraph_t))
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
    fn hipStreamGetCaptureInfo_v2(stream: hipStream_t, status: *mut c_uint, id: *mut u64, place: *mut hipGraph_t,
        nodes: *mut *const hipGraphNode_t, count: *mut usize) {
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
        // No call is forbidden during a capture, so that every mode is the relaxed one.
        if get(mode)? > 2 {
            return Err(INVALID);
        }
        put(mode, 2)
    }
}
