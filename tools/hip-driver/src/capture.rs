//! Capturing streams: what would go into one is kept as nodes of a graph, each after the one before. An event that is
//! recorded in such a stream carries the place, and another stream that waits for it is captured into the same graph.
//!
//! Who does what a capture forbids gets an error, and so does the capture from then on: it is invalid, takes no more
//! nodes, and its end gives no graph.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::graph::{Content, Graph, Shared, graph, node_handle, numbers};
use crate::op::{Op, submit};
use crate::state::{self, EventEntry, GRAPHS, Stream, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// A place in a graph under capture.
#[derive(Clone)]
pub struct Capturing {
    /// The graph.
    pub graph: Arc<Mutex<Graph>>,
    /// What the next node comes after.
    pub last: BTreeSet<usize>,
    /// Nodes that the program replaced in `last`: nothing needs to follow them.
    let_go: BTreeSet<usize>,
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
    /// Something was done that it forbids.
    pub invalid: Arc<AtomicBool>,
    /// Handles of `last`, for who asks: they stay where they are until the next question.
    pub shown: Vec<u64>,
}

impl Capturing {
    /// hipStreamCaptureStatusActive or hipStreamCaptureStatusInvalidated.
    fn status(&self) -> c_uint {
        if self.invalid.load(Ordering::Acquire) { 2 } else { 1 }
    }
}

/// True while a stream is captured.
pub fn is_capturing(stream: &Stream) -> bool {
    lock(&stream.capture).is_some()
}

/// Fails when a stream is captured, and makes its capture invalid: what the caller wants to wait for has not run.
pub fn forbid(stream: &Stream) -> Result {
    match &*lock(&stream.capture) {
        None => Ok(()),
        Some(c) => {
            c.invalid.store(true, Ordering::Release);
            err(hipErrorStreamCaptureUnsupported)
        }
    }
}

/// Fails for an event that was recorded under capture, and makes the capture invalid.
pub fn forbid_event(event: &EventEntry) -> Result {
    match &*lock(&event.captured) {
        None => Ok(()),
        Some(c) => {
            c.invalid.store(true, Ordering::Release);
            err(hipErrorCapturedEvent)
        }
    }
}

/// Keeps an operation as node when its stream is captured.
pub fn keep(stream: &Stream, op: &Op) -> Result<bool> {
    let mut capture = lock(&stream.capture);
    let Some(c) = capture.as_mut() else { return Ok(false) };
    if c.status() != 1 {
        return err(hipErrorStreamCaptureInvalidated);
    }
    let number = lock(&c.graph).add(Content::Op(op.clone()), c.last.clone());
    c.last = BTreeSet::from([number]);
    Ok(true)
}

/// Records an event: in a stream under capture it carries the place.
pub fn record(stream: &Arc<Stream>, event: Arc<EventEntry>) -> Result {
    let capture = lock(&stream.capture).clone();
    if capture.as_ref().is_some_and(|c| c.status() != 1) {
        return err(hipErrorStreamCaptureInvalidated);
    }
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

/// A capture that is going on.
struct Active {
    id: u64,
    mode: u32,
    thread: ThreadId,
    /// The device whose default stream has to wait.
    device: i32,
    invalid: Arc<AtomicBool>,
}

static ACTIVE: Mutex<Vec<Active>> = Mutex::new(Vec::new());

/// Fails when there are captures of a kind, and makes them invalid.
fn forbid_while(forbids: impl Fn(&Active) -> bool) -> Result {
    let mut found = false;
    for a in lock(&ACTIVE).iter().filter(|a| forbids(a)) {
        a.invalid.store(true, Ordering::Release);
        found = true;
    }
    if found { err(hipErrorStreamCaptureUnsupported) } else { Ok(()) }
}

thread_local! {
    /// The mode that this thread has exchanged for its own: `RELAXED` allows everything.
    static MODE: Cell<u32> = const { Cell::new(0) };
}

const RELAXED: u32 = 2;

/// Fails when a capture forbids this thread what cannot be captured and may wait for captured work.
pub fn check_safe() -> Result {
    let here = std::thread::current().id();
    if MODE.get() == RELAXED { Ok(()) } else { forbid_while(|a| a.mode == 0 || a.mode == 1 && a.thread == here) }
}

/// Fails while any stream of a device is captured: waiting for the device would wait for it too.
pub fn check_device(ordinal: i32) -> Result {
    forbid_while(|a| a.device == ordinal)
}

/// Streams under capture that the current device's default stream waits for.
fn waited_for() -> Result<Vec<Arc<Stream>>> {
    if lock(&ACTIVE).is_empty() {
        return Ok(Vec::new());
    }
    let mut streams = state::current()?.all_streams();
    streams.retain(|s| s.flags & 1 == 0 && is_capturing(s));
    Ok(streams)
}

/// Fails when a handle means the default stream and one that it waits for is captured.
pub fn check_default(stream: hipStream_t) -> Result {
    if (stream as u64) > 1 || waited_for()?.is_empty() { Ok(()) } else { err(hipErrorStreamCaptureImplicit) }
}

/// Fails as [`check_default`] for work in the default stream, which makes the captures invalid.
pub fn forbid_default() -> Result {
    let streams = waited_for()?;
    for s in &streams {
        let _ = forbid(s);
    }
    if streams.is_empty() { Ok(()) } else { err(hipErrorStreamCaptureImplicit) }
}

/// A stream is gone, or its capture has ended.
pub fn ended(id: u64) {
    lock(&ACTIVE).retain(|a| a.id != id);
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
    let invalid = Arc::new(AtomicBool::new(false));
    lock(&ACTIVE).push(Active { id, mode, thread, device: s.device, invalid: invalid.clone() });
    let (origin, shown) = (s.number, Vec::new());
    *capture = Some(Capturing {
        graph,
        last,
        let_go: BTreeSet::new(),
        origin,
        mode,
        thread,
        first,
        id,
        handle,
        invalid,
        shown,
    });
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
        if c.status() != 1 {
            put(place, std::ptr::null_mut())?;
            return err(hipErrorStreamCaptureInvalidated);
        }
        let unjoined = {
            let g = lock(&c.graph);
            let joined = g.before(&c.last.union(&c.let_go).copied().collect());
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
        put(status, lock(&state::stream(stream)?.capture).as_ref().map_or(0, Capturing::status))
    }
    fn hipStreamGetCaptureInfo(stream: hipStream_t, status: *mut c_uint, id: *mut u64) {
        if status.is_null() {
            return Err(INVALID);
        }
        check_default(stream)?;
        let s = state::stream(stream)?;
        let c = lock(&s.capture).clone();
        put(status, c.as_ref().map_or(0, Capturing::status))?;
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
        put(status, capture.as_ref().map_or(0, Capturing::status))?;
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
            1 => c.let_go.append(&mut std::mem::replace(&mut c.last, given)),
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
