//! Nodes of graphs: adding them, and changing what they do.

use crate::api::{INVALID, Result, get, put};
use crate::copy::{block_of, block_of_parms, line, set_op};
use crate::graph::{graph, kind_of, node, node_handle, numbers};
use crate::module::{function, prepare};
use crate::op::{HostCall, Op, Rows};
use crate::state::{self, EXECS, lock, size};
use crate::types::*;
use std::ffi::c_void;
use std::sync::Arc;

unsafe fn add(
    place: *mut hipGraphNode_t,
    handle: hipGraph_t,
    after: *const hipGraphNode_t,
    count: usize,
    op: Op,
) -> Result {
    let g = graph(handle)?;
    // SAFETY: the caller's word.
    unsafe {
        let after = numbers(&g, after, count)?;
        if place.is_null() {
            return Err(INVALID);
        }
        let number = lock(&g).add(op, after);
        put(place, node_handle(&g, number))
    }
}

/// Gives a node something else to do, of the same kind.
fn change(handle: hipGraphNode_t, op: Op) -> Result {
    let (g, number) = node(handle)?;
    let mut g = lock(&g);
    let n = g.nodes[number].as_mut().filter(|n| n.kind == kind_of(&op)).ok_or(INVALID)?;
    n.op = op;
    Ok(())
}

/// The same in an instantiated graph.
fn change_exec(exec: hipGraphExec_t, handle: hipGraphNode_t, op: Op) -> Result {
    let (e, (_, number)) = (EXECS.get(exec).ok_or(INVALID)?, node(handle)?);
    let mut e = lock(&e);
    let found = e.ops.iter_mut().find(|(n, old)| *n == number && kind_of(old) == kind_of(&op)).ok_or(INVALID)?;
    found.1 = op;
    Ok(())
}

unsafe fn kernel(params: *const hipKernelNodeParams) -> Result<Op> {
    // SAFETY: the caller's word.
    unsafe {
        let p = get(params)?;
        let (grid, block) = ([p.grid.x, p.grid.y, p.grid.z], [p.block.x, p.block.y, p.block.z]);
        let f = function(p.function.cast_const())?;
        Ok(Op::Kernel(Arc::new(prepare(f, grid, block, p.shared_bytes as usize, p.kernel_params, p.extra)?)))
    }
}

unsafe fn set(params: *const hipMemsetParams) -> Result<Op> {
    // SAFETY: the caller's word.
    let p = unsafe { get(params)? };
    if !matches!(p.element_size, 1 | 2 | 4) {
        return Err(INVALID);
    }
    let bytes = size(p.width)? * u64::from(p.element_size);
    if p.height > 1 && (p.pitch as u64) < bytes {
        return Err(INVALID);
    }
    let to = Rows { start: p.dst.into(), pitch: p.pitch as u64, slice: 0 };
    set_op(to, p.value, p.element_size, [bytes, size(p.height.max(1))?, 1])
}

unsafe fn host(params: *const hipHostNodeParams) -> Result<Op> {
    // SAFETY: the caller's word.
    let p = unsafe { get(params)? };
    if p.function.is_none() {
        return Err(INVALID);
    }
    Ok(Op::Host(HostCall { function: p.function, argument: p.user_data.into() }))
}

fn child(handle: hipGraph_t) -> Result<Op> {
    let g = graph(handle)?;
    let ops = lock(&g).ops()?;
    Ok(Op::Child(Arc::new(ops.into_iter().map(|(_, op)| op).collect())))
}

hip! {
    fn hipGraphAddEmptyNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize) {
        add(place, g, after, count, Op::Empty)
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
    fn hipGraphAddMemsetNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipMemsetParams) {
        add(place, g, after, count, set(params)?)
    }
    fn hipDrvGraphAddMemsetNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipMemsetParams, _context: hipCtx_t) {
        add(place, g, after, count, set(params)?)
    }
    fn hipGraphMemsetNodeSetParams(node: hipGraphNode_t, params: *const hipMemsetParams) {
        change(node, set(params)?)
    }
    fn hipGraphExecMemsetNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipMemsetParams) {
        change_exec(exec, node, set(params)?)
    }
    fn hipGraphAddMemcpyNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const hipMemcpy3DParms) {
        add(place, g, after, count, block_of_parms(params)?)
    }
    fn hipDrvGraphAddMemcpyNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        params: *const HIP_MEMCPY3D, _context: hipCtx_t) {
        add(place, g, after, count, block_of(params)?)
    }
    fn hipGraphMemcpyNodeSetParams(node: hipGraphNode_t, params: *const hipMemcpy3DParms) {
        change(node, block_of_parms(params)?)
    }
    fn hipGraphExecMemcpyNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipMemcpy3DParms) {
        change_exec(exec, node, block_of_parms(params)?)
    }
    fn hipGraphAddMemcpyNode1D(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        add(place, g, after, count, line(to, from, bytes, kind)?)
    }
    fn hipGraphMemcpyNodeSetParams1D(node: hipGraphNode_t, to: *mut c_void, from: *const c_void, bytes: usize,
        kind: hipMemcpyKind) {
        change(node, line(to, from, bytes, kind)?)
    }
    fn hipGraphExecMemcpyNodeSetParams1D(exec: hipGraphExec_t, node: hipGraphNode_t, to: *mut c_void,
        from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        change_exec(exec, node, line(to, from, bytes, kind)?)
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
    fn hipGraphAddChildGraphNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t,
        count: usize, inner: hipGraph_t) {
        add(place, g, after, count, child(inner)?)
    }
    fn hipGraphExecChildGraphNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, inner: hipGraph_t) {
        change_exec(exec, node, child(inner)?)
    }
    fn hipGraphAddEventRecordNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t,
        count: usize, event: hipEvent_t) {
        add(place, g, after, count, Op::Record(state::event(event)?))
    }
    fn hipGraphEventRecordNodeSetEvent(node: hipGraphNode_t, event: hipEvent_t) {
        change(node, Op::Record(state::event(event)?))
    }
    fn hipGraphExecEventRecordNodeSetEvent(exec: hipGraphExec_t, node: hipGraphNode_t, event: hipEvent_t) {
        change_exec(exec, node, Op::Record(state::event(event)?))
    }
    fn hipGraphAddEventWaitNode(place: *mut hipGraphNode_t, g: hipGraph_t, after: *const hipGraphNode_t, count: usize,
        event: hipEvent_t) {
        add(place, g, after, count, Op::Wait(state::event(event)?))
    }
    fn hipGraphEventWaitNodeSetEvent(node: hipGraphNode_t, event: hipEvent_t) {
        change(node, Op::Wait(state::event(event)?))
    }
    fn hipGraphExecEventWaitNodeSetEvent(exec: hipGraphExec_t, node: hipGraphNode_t, event: hipEvent_t) {
        change_exec(exec, node, Op::Wait(state::event(event)?))
    }
}
