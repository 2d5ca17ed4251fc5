//! Cooperative launches: workgroups of a grid, or of grids on several devices, that wait for each other.
//!
//! Kernels find where to meet through the hidden argument `multigrid_sync_arg`, which leads to 44 bytes: the address of
//! the counters that all grids share, this grid's number, how many grids there are, workitems of the grids before it and
//! of all of them, this grid's own counters, its workgroups. Counters start at 0, and each meeting leaves its mark in
//! their upper bits. (Layout: `__ockl_grid_sync` and `__ockl_multi_grid_sync` of AMD's device library.)

use crate::api::{Code, INVALID, Result, err, get};
use crate::module::{LaunchSpec, Refusal, flat, launch, prepare_host};
use crate::occupancy::resident;
use crate::state::{self, Device};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// Device memory that goes away with this.
pub struct Block {
    device: i32,
    address: u64,
}

impl Block {
    /// Memory that holds `bytes`.
    fn new(device: &Device, bytes: &[u8]) -> Result<Block> {
        let none = |_| Code(hipErrorOutOfMemory);
        let address = device.emu.alloc(bytes.len() as u64).map_err(none)?;
        let block = Block { device: device.ordinal, address };
        device.emu.write(address, bytes).map_err(none)?;
        Ok(block)
    }

    /// Its device address.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Ok(d) = state::device(self.device) {
            let _ = d.emu.free(self.address);
        }
    }
}

/// A grid among those that it may meet.
pub struct Grids {
    rank: u32,
    count: u32,
    /// Workitems.
    before: u64,
    all: u64,
    /// Counters of all grids, when there may be several.
    shared: Option<Arc<Block>>,
}

fn workitems(spec: &LaunchSpec) -> u64 {
    spec.grid.iter().chain(&spec.block).map(|&n| u64::from(n)).product()
}

impl Grids {
    /// The only grid.
    fn alone(spec: &LaunchSpec) -> Grids {
        Grids { rank: 0, count: 1, before: 0, all: workitems(spec), shared: None }
    }

    /// Makes the grids of several launches know each other.
    fn together(specs: &mut [(LaunchSpec, hipStream_t)]) -> Result {
        let all = specs.iter().map(|(s, _)| workitems(s)).sum();
        let (count, mut before) = (specs.len() as u32, 0);
        let Some((first, _)) = specs.first() else { return Ok(()) };
        let shared = Arc::new(Block::new(state::device(first.function.device())?, &[0; 8])?);
        for (rank, (spec, _)) in specs.iter_mut().enumerate() {
            spec.grids = Some(Grids { rank: rank as u32, count, before, all, shared: Some(shared.clone()) });
            before += workitems(spec);
        }
        Ok(())
    }

    /// What the kernel wants, in device memory, for one run of a grid of so many workgroups.
    pub fn prepare(&self, device: &Device, grid: [u32; 3]) -> Result<Block> {
        let shared = self.shared.as_ref().map_or(0, |b| b.address());
        let workgroups: u32 = grid.iter().product();
        let mut bytes = Vec::with_capacity(44);
        bytes.extend(shared.to_le_bytes());
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.before.to_le_bytes());
        bytes.extend(self.all.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(workgroups.to_le_bytes());
        Block::new(device, &bytes)
    }
}

/// Prepares launches on several devices: each kernel on the device of its stream.
///
/// # Safety
/// The list is as the HIP API wants it.
pub unsafe fn several(list: &[hipLaunchParams], refusal: &Refusal) -> Result<Vec<(LaunchSpec, hipStream_t)>> {
    let before = state::current()?.ordinal;
    let mut specs = Vec::new();
    for p in list {
        let s = state::stream(p.stream)?;
        state::set_current(s.device)?;
        // SAFETY: the caller's word.
        let spec = unsafe { prepare_host(p.function, p.grid, p.block, p.shared, p.params, refusal) };
        state::set_current(before)?;
        specs.push((spec?, p.stream));
    }
    Ok(specs)
}

/// All workgroups of a cooperative launch are there at once: they have to fit on the device.
fn check_cooperative(spec: &LaunchSpec) -> Result {
    let f = &spec.function;
    let fit = resident(f, flat(spec.block) as c_int, spec.shared as usize)?;
    let wanted = spec.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    if wanted > fit {
        return err(hipErrorCooperativeLaunchTooLarge);
    }
    Ok(())
}

/// Launches a grid whose workgroups can wait for each other.
pub fn launch_cooperative(stream: hipStream_t, mut spec: LaunchSpec) -> Result {
    check_cooperative(&spec)?;
    spec.grids = Some(Grids::alone(&spec));
    launch(&state::stream(stream)?, spec)
}

/// True when the attributes of a launch ask for a cooperative one.
///
/// # Safety
/// As many attributes are there as `count` says.
pub unsafe fn cooperative(list: *const hipLaunchAttribute, count: c_uint) -> Result<bool> {
    const ASKS: c_uint = 2;
    let mut asked = false;
    for i in 0..count as usize {
        // SAFETY: the caller's word.
        let a = unsafe { get(list.wrapping_add(i))? };
        asked |= a.id == ASKS && a.value[0] as u32 != 0;
    }
    Ok(asked)
}

/// Checks the launches of one kernel on several devices and makes them: one a device, in streams that are not null.
pub fn launch_all(mut specs: Vec<(LaunchSpec, hipStream_t)>, cooperative: bool) -> Result {
    let mut seen = std::collections::BTreeSet::new();
    for (spec, stream) in &specs {
        if stream.is_null() || !seen.insert(spec.function.device()) {
            return Err(INVALID);
        }
        if cooperative {
            check_cooperative(spec)?;
        }
    }
    if cooperative {
        Grids::together(&mut specs)?;
    }
    for (spec, stream) in specs {
        launch(&state::stream(stream)?, spec)?;
    }
    Ok(())
}

/// What launches on several devices have: at least one, not more than there are devices.
pub fn check_list<T>(list: *const T, count: usize, flags: c_uint) -> Result {
    if list.is_null() || count == 0 || count > state::devices().len() || flags > 3 { Err(INVALID) } else { Ok(()) }
}
