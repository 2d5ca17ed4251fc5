//! How many workgroups of a kernel fit on a compute unit, and the size at which most of it is in use.

use crate::api::{INVALID, Result, put};
use crate::module::{Function, flat, function};
use crate::state;
use crate::types::*;
use barewave_emu::kernarg;
use std::ffi::{c_int, c_uint, c_void};

/// Workgroups of a size that fit where a workgroup runs, and how many compute units that is: two where the kernel wants
/// a work group processor, one elsewhere.
fn together(f: &Function, threads: c_int, shared: usize) -> Result<(u32, u32)> {
    let threads = u32::try_from(threads).ok().filter(|t| *t > 0).ok_or(INVALID)?;
    let shared = u32::try_from(shared).map_err(|_| INVALID)?;
    let target = state::device(f.device())?.emu.target();
    if kernarg::check(target, &f.info, [1; 3], [threads, 1, 1], shared).is_err() {
        return Ok((0, 1));
    }
    let resources = kernarg::resources(target, &f.info, threads, shared);
    Ok((target.occupancy(&resources).workgroups, if resources.wgp_mode { 2 } else { 1 }))
}

/// Workgroups of a size that fit on a compute unit; one that takes more than its half of a work group processor counts.
fn active_blocks(f: &Function, threads: c_int, shared: usize) -> Result<u32> {
    let (workgroups, units) = together(f, threads, shared)?;
    Ok((workgroups / units).max(workgroups.min(1)))
}

/// Workgroups of a size that fit on the whole device.
pub fn resident(f: &Function, threads: c_int, shared: usize) -> Result<u64> {
    let (workgroups, units) = together(f, threads, shared)?;
    let all = crate::device::compute_units(state::device(f.device())?) as u64;
    Ok((u64::from(workgroups) * all / u64::from(units)).max(u64::from(workgroups.min(1))))
}

/// The workgroup size, a multiple of the wave size up to a limit, at which most workitems are on a compute unit.
fn best_block(f: &Function, shared: usize, limit: c_int) -> Result<u32> {
    let wave = if f.info.descriptor.wave32() { 32 } else { 64 };
    let meta = f.info.meta.as_ref();
    let most = meta.map_or(1024, |m| if m.max_flat_workgroup_size == 0 { 1024 } else { m.max_flat_workgroup_size });
    let most = if limit > 0 { most.min(limit as u32) } else { most };
    if let Some(wanted) = meta.and_then(|m| m.reqd_workgroup_size) {
        return Ok(flat(wanted));
    }
    let mut best = (most, 0);
    let mut size = most - most % wave;
    while size > 0 {
        let workitems = together(f, size as c_int, shared)?.0 * size;
        if workitems > best.1 {
            best = (size, workitems);
        }
        size -= wave;
    }
    Ok(best.0)
}

unsafe fn potential(grid: *mut c_int, block: *mut c_int, f: &Function, shared: usize, limit: c_int) -> Result {
    let size = best_block(f, shared, limit)?;
    let fit = resident(f, size as c_int, shared)?;
    let all = crate::device::compute_units(state::device(f.device())?) as u64;
    // SAFETY: the caller's word.
    unsafe {
        put(block, size as c_int)?;
        put(grid, if fit == 0 { all } else { fit } as c_int)
    }
}

/// The usual way of counting, or without a cache that devices do not have.
fn check_occupancy_flags(flags: c_uint) -> Result {
    if flags > 1 { Err(INVALID) } else { Ok(()) }
}

hip! {
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, f: hipFunction_t, threads: c_int,
        shared: usize) {
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, f: hipFunction_t,
        threads: c_int, shared: usize, flags: c_uint) {
        check_occupancy_flags(flags)?;
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, f: *const c_void, threads: c_int,
        shared: usize) {
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, f: *const c_void, threads: c_int,
        shared: usize, flags: c_uint) {
        check_occupancy_flags(flags)?;
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipModuleOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, f: hipFunction_t, shared: usize,
        limit: c_int) {
        potential(grid, block, &*function(f)?, shared, limit)
    }
    fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(grid: *mut c_int, block: *mut c_int, f: hipFunction_t,
        shared: usize, limit: c_int, flags: c_uint) {
        check_occupancy_flags(flags)?;
        potential(grid, block, &*function(f)?, shared, limit)
    }
    fn hipOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, f: *const c_void, shared: usize,
        limit: c_int) {
        potential(grid, block, &*function(f)?, shared, limit)
    }
}
