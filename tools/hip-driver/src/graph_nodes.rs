//! Nodes of graphs: adding them, changing what they do, in a graph or in an instance, and telling what they do.

use crate::api::{Code, INVALID, Result, err, get, put};
use crate::copy::{block_of, block_of_parms, line, set_op};
use crate::graph::{Content, Given, Graph, directions, event_handle, graph, kind_of, node, node_handle, numbers};
use crate::graph_memory::GraphMemory;
use crate::module::{IN_GRAPH, function, prepare};
use crate::op::{HostCall, Op, Rows};
use crate::state::{self, EXECS, GRAPHS, lock, size};
use crate::stream::batch;
use crate::symbols::symbol_copy;
use crate::types::*;
use barewave_emu::hip::code::*;
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};

/// What a caller wants a node to do, and the description that is kept.
type Wanted = (Content, Option<Given>);

fn plain(op: Op) -> Wanted {
    (Content::Op(op), None)
}

unsafe fn add(
    place: *mut hipGraphNode_t,
    handle: hipGraph_t,
    after: *const hipGraphNode_t,
    count: usize,
    (content, given): Wanted,
) -> Result {
    let g = graph(handle)?;
    // SAFETY: the caller's word.
    unsafe {
        let after = numbers(&g, after, count)?;
        if place.is_null() {
            return Err(INVALID);
        }
        let number = {
            let mut g = lock(&g);
            let number = g.add(content, after);
            g.node(number)?.given = given.map(Raw);
            number
        };
        put(place, node_handle(&g, number))
    }
}

/// Gives a node something else to do, of the same kind.
fn change(handle: hipGraphNode_t, (content, given): Wanted) -> Result {
    let (g, number) = node(handle)?;
    let mut g = lock(&g);
    let n = g.node(number)?;
    if n.content.kind() != content.kind() {
        return Err(INVALID);
    }
    // The kernel of a node stays on its device.
    (n.content, n.given) = (content, given.map(Raw));
    Ok(())
}

/// The same in an instantiated graph.
fn change_exec(exec: hipGraphExec_t, handle: hipGraphNode_t, (content, _): Wanted) -> Result {
    let (e, (g, number)) = (EXECS.get(exec).ok_or(INVALID)?, node(handle)?);
    let (kind, op) = (content.kind(), content.op()?);
    if let Content::Child(_, handle) = content {
        // An instance has the operations; nobody can ask it for the graph.
        GRAPHS.remove(handle as hipGraph_t);
    }
    let identity = lock(&g).identity;
    let mut e = lock(&e);
    if e.identity != identity {
        return Err(INVALID);
    }
    let step = e.steps.iter_mut().find(|s| s.number == number && s.kind == kind).ok_or(INVALID)?;
    if let (Op::Child(old), Op::Child(new)) = (&step.op, &op) {
        let shape = |ops: &[Op]| ops.iter().map(kind_of).collect::<Vec<_>>();
        if shape(old) != shape(new) {
            return Err(INVALID);
        }
    }
    // A copy keeps its direction, the one that was given and the real one.
    let given = |op: &Op| if let Op::Copy { kind, .. } = op { Some(*kind) } else { None };
    if given(&step.op) != given(&op) || directions(&step.op) != directions(&op) {
        return Err(INVALID);
    }
    step.op = op;
    Ok(())
}

unsafe fn kernel(params: *const hipKernelNodeParams) -> Result<Wanted> {
    // SAFETY: the caller's word.
    unsafe {
        let p = get(params)?;
        let (grid, block) = ([p.grid.x, p.grid.y, p.grid.z], [p.block.x, p.block.y, p.block.z]);
        let f = function(p.function.cast_const())?;
        let mut spec = prepare(f, grid, block, p.shared_bytes as usize, p.kernel_params, p.extra, &IN_GRAPH)?;
        spec.handle = p.function as u64;
        Ok(plain(Op::Kernel(Arc::new(spec))))
    }
}

fn set(p: hipMemsetParams) -> Result<Wanted> {
    if !matches!(p.element_size, 1 | 2 | 4) || p.dst.is_null() || p.width == 0 || p.height == 0 {
        return Err(INVALID);
    }
    let bytes = size(p.width)? * u64::from(p.element_size);
    if p.height > 1 && (p.pitch as u64) < bytes {
        return Err(INVALID);
    }
    let to = Rows { start: p.dst.into(), pitch: p.pitch as u64, slice: 0 };
    Ok(plain(set_op(to, p.value, p.element_size, [bytes, size(p.height)?, 1])?))
}

/// A pitch that makes no sense is an invalid value here.
fn plain_error(e: Code) -> Code {
    if e.0 == hipErrorInvalidPitchValue { INVALID } else { e }
}

/// A copy of nothing is no node.
fn some(op: Op, given: Given) -> Result<Wanted> {
    if matches!(op, Op::Empty) { Err(INVALID) } else { Ok((Content::Op(op), Some(given))) }
}

unsafe fn block(params: *const hipMemcpy3DParms) -> Result<Wanted> {
    // SAFETY: the caller's word.
    unsafe { some(block_of_parms(params).map_err(plain_error)?, Given::Runtime(get(params)?)) }
}

unsafe fn driver_block(params: *const HIP_MEMCPY3D) -> Result<Wanted> {
    // SAFETY: the caller's word.
    unsafe { some(block_of(params).map_err(plain_error)?, Given::Driver(get(params)?)) }
}

fn copied(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) -> Result<Wanted> {
    if to.is_null() || from.is_null() || bytes == 0 || to.cast_const() == from {
        return Err(INVALID);
    }
    Ok(plain(line(to, from, bytes, kind)?))
}

unsafe fn host(params: *const hipHostNodeParams) -> Result<Wanted> {
    // SAFETY: the caller's word.
    let p = unsafe { get(params)? };
    if p.function.is_none() {
        return Err(INVALID);
    }
    Ok(plain(Op::Host(HostCall { function: p.function, argument: p.user_data.into() })))
}

/// A copy of a graph as it is now.
fn child(handle: hipGraph_t) -> Result<Wanted> {
    let original = graph(handle)?;
    let mut copy = lock(&original).clone();
    if copy.allocates() {
        return err(hipErrorNotSupported);
    }
    copy.instance = Default::default();
    copy.steps()?;
    copy.nodes.iter_mut().flatten().for_each(|n| n.handle = 0);
    copy.cloned_from = Some(copy.identity);
    copy.identity = Graph::new().identity;
    let copy = Arc::new(Mutex::new(copy));
    let handle = GRAPHS.add(copy.clone()) as u64;
    Ok((Content::Child(copy, handle), None))
}

fn recorded(event: hipEvent_t) -> Result<Wanted> {
    Ok(plain(Op::Record(state::event(event).map_err(|_| INVALID)?)))
}

fn awaited(event: hipEvent_t) -> Result<Wanted> {
    Ok(plain(Op::Wait(state::event(event).map_err(|_| INVALID)?)))
}

/// Reserves memory and tells its address.
unsafe fn allocation(params: *mut hipMemAllocNodeParams) -> Result<Wanted> {
    // SAFETY: the caller's word.
    unsafe {
        let mut p = get(params)?;
        // Pinned memory on a device.
        if p.pool.alloc_type != 1 || p.pool.location.kind != 1 || p.bytes == 0 {
            return Err(INVALID);
        }
        let on = state::device(p.pool.location.id).map_err(|_| INVALID)?.ordinal;
        let memory = GraphMemory::reserve(on, size(p.bytes)?)?;
        p.at = memory.start as *mut c_void;
        put(params, p)?;
        Ok((Content::Op(Op::Alloc(Arc::new(memory))), Some(Given::Memory(p))))
    }
}

fn free(at: *mut c_void) -> Result<Wanted> {
    if crate::memory::find(at as u64).is_none_or(|a| a.start != at as u64) {
        return Err(INVALID);
    }
    Ok(plain(Op::Free(at.into())))
}

unsafe fn batched(params: *const hipBatchMemOpNodeParams) -> Result<Wanted> {
    // SAFETY: the caller's word.
    unsafe {
        let p = get(params)?;
        if p.list.is_null() || p.count == 0 || p.count > 256 || p.flags != 0 {
            return Err(INVALID);
        }
        let list = std::slice::from_raw_parts(p.list, p.count as usize).to_vec();
        Ok((Content::Batch(batch(&list)?, Raw(list)), None))
    }
}

/// The node that a description of any kind asks for.
unsafe fn any(params: *mut hipGraphNodeParams) -> Result<Wanted> {
    // SAFETY: the caller's word; the union holds what the kind says.
    unsafe {
        let kind = get(params.cast::<c_uint>())?;
        let of = (&raw mut (*params).of).cast::<c_void>();
        match kind {
            0 => kernel(of.cast()),
            // Flags and reserved words come before the copy.
            1 if get(of.cast::<[u32; 4]>())? == [0; 4] => block(of.cast::<u8>().add(16).cast()),
            2 => set(get(of.cast())?),
            3 => host(of.cast()),
            4 => child(get(of.cast())?),
            5 => Ok(plain(Op::Empty)),
            6 => awaited(get(of.cast())?),
            7 => recorded(get(of.cast())?),
            10 => allocation(of.cast()),
            11 => free(get(of.cast())?),
            8 | 9 => err(hipErrorNotSupported),
            _ => Err(INVALID),
        }
    }
}

/// What a node's content is, as long as it is of a kind.
fn content(handle: hipGraphNode_t) -> Result<(Content, Option<Given>)> {
    let (g, number) = node(handle)?;
    let mut g = lock(&g);
    let n = g.node(number)?;
    Ok((n.content.clone(), n.given.as_ref().map(|r| r.0)))
}

fn op(handle: hipGraphNode_t) -> Result<Op> {
    match content(handle)?.0 {
        Content::Op(op) => Ok(op),
        _ => Err(INVALID),
    }
}

/// Address and pitch of rows, as a caller describes them.
fn pitched(r: &Rows, extent: [u64; 3]) -> hipPitchedPtr {
    let [width, height, _] = extent.map(|n| n as usize);
    let pitch = if r.pitch == 0 { width } else { r.pitch as usize };
    let rows = if r.slice == 0 { height } else { r.slice as usize / pitch.max(1) };
    hipPitchedPtr { ptr: r.start.0 as *mut c_void, pitch, xsize: width, ysize: rows }
}

fn attribute_of(handle: hipGraphNode_t, change: impl FnOnce(&mut crate::graph::Node) -> Result) -> Result {
    let (g, number) = node(handle)?;
    let mut g = lock(&g);
    let n = g.node(number)?;
    if n.content.kind() != 0 { Err(INVALID) } else { change(n) }
}

/// Bytes of the attributes that kernels have: access policy window, cooperative, priority. The union around them has 32
/// bytes in HIP 6 and 64 in HIP 7: no more than the attribute itself may be touched.
fn attribute_bytes(which: c_uint) -> Result<usize> {
    match which {
        1 => Ok(32),
        2 | 8 => Ok(4),
        _ => Err(INVALID),
    }
}

/// An attribute must make sense before it is kept: there is no access policy window (its largest size is 0), the share of
/// its accesses is between 0 and 1, and misses are not persisting.
fn sane(which: c_uint, value: &[u8; 64]) -> bool {
    const PERSISTING: u8 = 2;
    let ratio = f32::from_le_bytes([value[12], value[13], value[14], value[15]]);
    let empty = value[24..32].iter().all(|b| *b == 0);
    which != 1 || (0.0..=1.0).contains(&ratio) && value[16] != PERSISTING && empty
}

hip! {
    fn hipGraphAddNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *mut hipGraphNodeParams) {
        if params.is_null() || place.is_null() {
            return Err(INVALID);
        }
        graph(g)?;
        add(place, g, after, count, any(params)?)
    }
    fn hipGraphNodeSetParams(node: hipGraphNode_t, params: *mut hipGraphNodeParams) {
        if params.is_null() { Err(INVALID) } else { change(node, any(params)?) }
    }
    fn hipGraphExecNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *mut hipGraphNodeParams) {
        if params.is_null() { Err(INVALID) } else { change_exec(exec, node, any(params)?) }
    }
    fn hipGraphAddEmptyNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize) {
        add(place, g, after, count, plain(Op::Empty))
    }

    fn hipGraphAddKernelNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipKernelNodeParams) {
        add(place, g, after, count, kernel(params)?)
    }
    fn hipGraphKernelNodeSetParams(node: hipGraphNode_t, params: *const hipKernelNodeParams) {
        change(node, kernel(params)?)
    }
    fn hipGraphExecKernelNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const hipKernelNodeParams) {
        change_exec(exec, node, kernel(params)?)
    }
    fn hipGraphKernelNodeGetParams(handle: hipGraphNode_t, params: *mut hipKernelNodeParams) {
        let Op::Kernel(spec) = op(handle)? else { return Err(INVALID) };
        put(params, spec.described())
    }
    fn hipGraphKernelNodeSetAttribute(handle: hipGraphNode_t, which: c_uint, value: *const [u8; 64]) {
        let bytes = attribute_bytes(which)?;
        if value.is_null() {
            return Err(INVALID);
        }
        let mut value_of = [0; 64];
        std::ptr::copy_nonoverlapping(value.cast::<u8>(), value_of.as_mut_ptr(), bytes);
        let value = value_of;
        if !sane(which, &value) {
            return Err(INVALID);
        }
        attribute_of(handle, |n| {
            n.attributes.insert(which, value);
            Ok(())
        })
    }
    fn hipGraphKernelNodeGetAttribute(handle: hipGraphNode_t, which: c_uint, value: *mut [u8; 64]) {
        let bytes = attribute_bytes(which)?;
        if value.is_null() {
            return Err(INVALID);
        }
        attribute_of(handle, |n| {
            let known = n.attributes.get(&which).copied().unwrap_or([0; 64]);
            std::ptr::copy_nonoverlapping(known.as_ptr(), value.cast::<u8>(), bytes);
            Ok(())
        })
    }
    fn hipGraphKernelNodeCopyAttributes(from: hipGraphNode_t, to: hipGraphNode_t) {
        let mut copied = Default::default();
        attribute_of(from, |n| {
            copied = n.attributes.clone();
            Ok(())
        })?;
        attribute_of(to, |n| {
            n.attributes = copied;
            Ok(())
        })
    }

    fn hipGraphAddMemsetNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipMemsetParams) {
        add(place, g, after, count, set(get(params)?)?)
    }
    fn hipDrvGraphAddMemsetNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const HIP_MEMSET_NODE_PARAMS, _context: hipCtx_t) {
        add(place, g, after, count, set(get(params)?.into())?)
    }
    fn hipGraphMemsetNodeSetParams(node: hipGraphNode_t, params: *const hipMemsetParams) {
        change(node, set(get(params)?)?)
    }
    fn hipGraphExecMemsetNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipMemsetParams) {
        change_exec(exec, node, set(get(params)?)?)
    }
    fn hipDrvGraphExecMemsetNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const HIP_MEMSET_NODE_PARAMS, _context: hipCtx_t) {
        change_exec(exec, node, set(get(params)?.into())?)
    }
    fn hipGraphMemsetNodeGetParams(handle: hipGraphNode_t, params: *mut hipMemsetParams) {
        let Op::Set { to, value, element, extent } = op(handle)? else { return Err(INVALID) };
        put(params, hipMemsetParams {
            dst: to.start.0 as *mut c_void,
            element_size: element,
            height: extent[1] as usize,
            pitch: to.pitch as usize,
            value,
            width: (extent[0] / u64::from(element)) as usize,
        })
    }

    fn hipGraphAddMemcpyNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipMemcpy3DParms) {
        add(place, g, after, count, block(params)?)
    }
    fn hipGraphMemcpyNodeSetParams(node: hipGraphNode_t, params: *const hipMemcpy3DParms) {
        change(node, block(params)?)
    }
    fn hipGraphExecMemcpyNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipMemcpy3DParms) {
        change_exec(exec, node, block(params)?)
    }
    fn hipGraphMemcpyNodeGetParams(handle: hipGraphNode_t, params: *mut hipMemcpy3DParms) {
        if let (_, Some(Given::Runtime(p))) = content(handle)? {
            return put(params, p);
        }
        let Op::Copy { to, from, extent, .. } = op(handle)? else { return Err(INVALID) };
        let zero = hipPos { x: 0, y: 0, z: 0 };
        let [width, height, depth] = extent.map(|n| n as usize);
        put(params, hipMemcpy3DParms {
            src_array: std::ptr::null_mut(),
            src_pos: zero,
            src_ptr: pitched(&from, extent),
            dst_array: std::ptr::null_mut(),
            dst_pos: zero,
            dst_ptr: pitched(&to, extent),
            extent: hipExtent { width, height, depth },
            // By the addresses.
            kind: 4,
        })
    }
    fn hipDrvGraphAddMemcpyNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const HIP_MEMCPY3D, _context: hipCtx_t) {
        add(place, g, after, count, driver_block(params)?)
    }
    fn hipDrvGraphMemcpyNodeSetParams(node: hipGraphNode_t, params: *const HIP_MEMCPY3D) {
        change(node, driver_block(params)?)
    }
    fn hipDrvGraphExecMemcpyNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const HIP_MEMCPY3D,
        _context: hipCtx_t) {
        change_exec(exec, node, driver_block(params)?)
    }
    fn hipDrvGraphMemcpyNodeGetParams(handle: hipGraphNode_t, params: *mut HIP_MEMCPY3D) {
        match content(handle)? {
            (_, Some(Given::Driver(p))) => put(params, p),
            _ => Err(INVALID),
        }
    }
    fn hipGraphAddMemcpyNode1D(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        add(place, g, after, count, copied(to, from, bytes, kind)?)
    }
    fn hipGraphMemcpyNodeSetParams1D(node: hipGraphNode_t, to: *mut c_void, from: *const c_void, bytes: usize,
        kind: hipMemcpyKind) {
        change(node, copied(to, from, bytes, kind)?)
    }
    fn hipGraphExecMemcpyNodeSetParams1D(exec: hipGraphExec_t, node: hipGraphNode_t, to: *mut c_void,
        from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        change_exec(exec, node, copied(to, from, bytes, kind)?)
    }
    fn hipGraphAddMemcpyNodeToSymbol(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t,
        count: usize, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: hipMemcpyKind) {
        add(place, g, after, count, plain(symbol_copy(symbol, from, bytes, offset, kind, true)?))
    }
    fn hipGraphMemcpyNodeSetParamsToSymbol(node: hipGraphNode_t, symbol: *const c_void, from: *const c_void,
        bytes: usize, offset: usize, kind: hipMemcpyKind) {
        change(node, plain(symbol_copy(symbol, from, bytes, offset, kind, true)?))
    }
    fn hipGraphExecMemcpyNodeSetParamsToSymbol(exec: hipGraphExec_t, node: hipGraphNode_t, symbol: *const c_void,
        from: *const c_void, bytes: usize, offset: usize, kind: hipMemcpyKind) {
        change_exec(exec, node, plain(symbol_copy(symbol, from, bytes, offset, kind, true)?))
    }
    fn hipGraphAddMemcpyNodeFromSymbol(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t,
        count: usize, to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: hipMemcpyKind) {
        add(place, g, after, count, plain(symbol_copy(symbol, to, bytes, offset, kind, false)?))
    }
    fn hipGraphMemcpyNodeSetParamsFromSymbol(node: hipGraphNode_t, to: *mut c_void, symbol: *const c_void,
        bytes: usize, offset: usize, kind: hipMemcpyKind) {
        change(node, plain(symbol_copy(symbol, to, bytes, offset, kind, false)?))
    }
    fn hipGraphExecMemcpyNodeSetParamsFromSymbol(exec: hipGraphExec_t, node: hipGraphNode_t, to: *mut c_void,
        symbol: *const c_void, bytes: usize, offset: usize, kind: hipMemcpyKind) {
        change_exec(exec, node, plain(symbol_copy(symbol, to, bytes, offset, kind, false)?))
    }

    fn hipGraphAddHostNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipHostNodeParams) {
        add(place, g, after, count, host(params)?)
    }
    fn hipGraphHostNodeSetParams(node: hipGraphNode_t, params: *const hipHostNodeParams) {
        change(node, host(params)?)
    }
    fn hipGraphExecHostNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipHostNodeParams) {
        change_exec(exec, node, host(params)?)
    }
    fn hipGraphHostNodeGetParams(handle: hipGraphNode_t, params: *mut hipHostNodeParams) {
        let Op::Host(call) = op(handle)? else { return Err(INVALID) };
        put(params, hipHostNodeParams { function: call.function, user_data: call.argument.0 as *mut c_void })
    }

    fn hipGraphAddChildGraphNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t,
        count: usize, inner: hipGraph_t) {
        graph(g)?;
        add(place, g, after, count, child(inner)?)
    }
    fn hipGraphExecChildGraphNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, inner: hipGraph_t) {
        change_exec(exec, node, child(inner)?)
    }
    fn hipGraphChildGraphNodeGetGraph(handle: hipGraphNode_t, place: *mut hipGraph_t) {
        match content(handle)?.0 {
            Content::Child(_, inner) => put(place, inner as hipGraph_t),
            _ => Err(INVALID),
        }
    }

    fn hipGraphAddEventRecordNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t,
        count: usize, event: hipEvent_t) {
        add(place, g, after, count, recorded(event)?)
    }
    fn hipGraphEventRecordNodeSetEvent(node: hipGraphNode_t, event: hipEvent_t) {
        change(node, recorded(event)?)
    }
    fn hipGraphExecEventRecordNodeSetEvent(exec: hipGraphExec_t, node: hipGraphNode_t, event: hipEvent_t) {
        change_exec(exec, node, recorded(event)?)
    }
    fn hipGraphEventRecordNodeGetEvent(handle: hipGraphNode_t, event: *mut hipEvent_t) {
        let Op::Record(e) = op(handle)? else { return Err(INVALID) };
        put(event, event_handle(&e))
    }
    fn hipGraphAddEventWaitNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        event: hipEvent_t) {
        add(place, g, after, count, awaited(event)?)
    }
    fn hipGraphEventWaitNodeSetEvent(node: hipGraphNode_t, event: hipEvent_t) {
        change(node, awaited(event)?)
    }
    fn hipGraphExecEventWaitNodeSetEvent(exec: hipGraphExec_t, node: hipGraphNode_t, event: hipEvent_t) {
        change_exec(exec, node, awaited(event)?)
    }
    fn hipGraphEventWaitNodeGetEvent(handle: hipGraphNode_t, event: *mut hipEvent_t) {
        let Op::Wait(e) = op(handle)? else { return Err(INVALID) };
        put(event, event_handle(&e))
    }

    fn hipGraphAddMemAllocNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *mut hipMemAllocNodeParams) {
        graph(g)?;
        if place.is_null() || params.is_null() {
            return Err(INVALID);
        }
        add(place, g, after, count, allocation(params)?)
    }
    fn hipGraphMemAllocNodeGetParams(handle: hipGraphNode_t, params: *mut hipMemAllocNodeParams) {
        match content(handle)? {
            (_, Some(Given::Memory(p))) => put(params, p),
            _ => Err(INVALID),
        }
    }
    fn hipGraphAddMemFreeNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        at: *mut c_void) {
        add(place, g, after, count, free(at)?)
    }
    fn hipDrvGraphAddMemFreeNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        at: *mut c_void) {
        add(place, g, after, count, free(at)?)
    }
    fn hipGraphMemFreeNodeGetParams(handle: hipGraphNode_t, at: *mut *mut c_void) {
        let Op::Free(p) = op(handle)? else { return Err(INVALID) };
        put(at, p.0 as *mut c_void)
    }

    fn hipGraphAddBatchMemOpNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipBatchMemOpNodeParams) {
        add(place, g, after, count, batched(params)?)
    }
    fn hipGraphBatchMemOpNodeSetParams(node: hipGraphNode_t, params: *const hipBatchMemOpNodeParams) {
        change(node, batched(params)?)
    }
    fn hipGraphExecBatchMemOpNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const hipBatchMemOpNodeParams) {
        change_exec(exec, node, batched(params)?)
    }
    fn hipGraphBatchMemOpNodeGetParams(handle: hipGraphNode_t, params: *mut hipBatchMemOpNodeParams) {
        let (g, number) = node(handle)?;
        let mut g = lock(&g);
        let Content::Batch(_, Raw(list)) = &g.node(number)?.content else { return Err(INVALID) };
        put(params, hipBatchMemOpNodeParams {
            context: std::ptr::null_mut(),
            count: list.len() as c_uint,
            list: list.as_ptr().cast_mut(),
            flags: 0,
        })
    }
}
