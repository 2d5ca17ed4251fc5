//! What a driver does before the first wave runs: arguments are laid out in a block as the kernel's metadata says,
//! hidden arguments are filled in, the dispatch packet is written, and the launch is checked against what kernel and
//! target allow.
//!
//! Sources: LLVM's "User Guide for AMDGPU Backend" (code object v5 hidden arguments, AQL packet), and the HSA system
//! architecture specification (`hsa_kernel_dispatch_packet_t`, `amd_queue_t`).

use super::dispatch::Services;
use super::wave::{PRIVATE_APERTURE, SHARED_APERTURE};
use crate::codeobj::{Arg, ArgKind, KernelInfo};
use barewave_isa::{Resources, Target, Unheld};

/// Why a kernel cannot be launched as asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LaunchError {
    /// Too few or too many arguments.
    #[error("{given} arguments given, the kernel takes {wanted}: {list}")]
    ArgumentCount {
        /// Arguments given.
        given: usize,
        /// Arguments that the metadata lists.
        wanted: usize,
        /// Their names, kinds and sizes.
        list: String,
    },
    /// An argument of another size.
    #[error("argument {index}{name} has {given} bytes, the kernel takes {wanted}")]
    ArgumentSize {
        /// Position, from 0.
        index: usize,
        /// `` ` (name)` `` or nothing.
        name: String,
        /// Bytes given.
        given: usize,
        /// Bytes wanted.
        wanted: u32,
    },
    /// Argument `index` is of a kind that has no value here (image, sampler, ...).
    #[error("argument {index} is of kind `{kind}`, which is not supported")]
    ArgumentKind {
        /// Position, from 0.
        index: usize,
        /// `.value_kind` of the metadata.
        kind: String,
    },
    /// The code object does not describe its arguments.
    #[error("the code object has no metadata for its arguments: give them as one packed block")]
    NoMetadata,
    /// A workgroup of impossible size.
    #[error("a workgroup of {0} workitems: 1 to 1024 are possible")]
    WorkgroupSize(u64),
    /// Larger than the kernel was compiled for.
    #[error("a workgroup of {given} workitems, the kernel was compiled for at most {limit}")]
    WorkgroupLimit {
        /// Workitems asked for.
        given: u64,
        /// `.max_flat_workgroup_size`.
        limit: u32,
    },
    /// The kernel demands a certain shape.
    #[error("a workgroup of {given:?}, the kernel requires {wanted:?}")]
    WorkgroupShape {
        /// Shape asked for.
        given: [u32; 3],
        /// `.reqd_workgroup_size`.
        wanted: [u32; 3],
    },
    /// More workgroups than the dispatch packet can say.
    #[error("a grid of {0:?} workgroups is too large: an axis may have 4294967295 workitems")]
    Grid([u32; 3]),
    /// More LDS than there is.
    #[error("{bytes} bytes of LDS, a workgroup on this target can have {limit}")]
    Lds {
        /// Static and dynamic bytes.
        bytes: u64,
        /// The target's limit.
        limit: u64,
    },
    /// Not even one workgroup fits on a compute unit.
    #[error("no compute unit can hold it: {0}")]
    Unheld(#[from] Unheld),
}

/// The arguments that a caller passes, in order; `None` where the code object has no metadata.
pub fn explicit(kernel: &KernelInfo) -> Option<impl Iterator<Item = &Arg>> {
    let args = &kernel.meta.as_ref()?.args;
    Some(args.iter().filter(|a| !matches!(a.kind, ArgKind::Hidden(_))))
}

/// One line for people: `a: global_buffer (8 bytes), n: by_value (4 bytes)`.
pub fn describe(kernel: &KernelInfo) -> String {
    let one = |(i, a): (usize, &Arg)| {
        let name = if a.name.is_empty() { format!("#{i}") } else { a.name.clone() };
        format!("{name}: {} ({} bytes)", a.kind, a.size)
    };
    match explicit(kernel) {
        Some(args) => {
            let list: Vec<String> = args.enumerate().map(one).collect();
            if list.is_empty() { "none".into() } else { list.join(", ") }
        }
        None => "unknown".into(),
    }
}

/// Lays out explicit arguments (the bytes of each, in order, as `hipModuleLaunchKernel` gets them) in an argument block.
/// Hidden arguments stay zero: [`EmuDevice::launch`](super::EmuDevice::launch) fills them in.
///
/// A pointer to dynamic LDS is passed as its byte offset in the workgroup's LDS, 4 bytes.
pub fn pack<A: AsRef<[u8]>>(kernel: &KernelInfo, args: &[A]) -> Result<Vec<u8>, LaunchError> {
    if kernel.meta.is_none() && args.is_empty() && kernel.kernarg_size() == 0 {
        return Ok(Vec::new());
    }
    let wanted: Vec<&Arg> = explicit(kernel).ok_or(LaunchError::NoMetadata)?.collect();
    if wanted.len() != args.len() {
        let list = describe(kernel);
        return Err(LaunchError::ArgumentCount { given: args.len(), wanted: wanted.len(), list });
    }
    let mut block = vec![0; kernel.kernarg_size() as usize];
    for (index, (w, a)) in wanted.iter().zip(args).enumerate() {
        if let ArgKind::Other(kind) = &w.kind {
            return Err(LaunchError::ArgumentKind { index, kind: kind.clone() });
        }
        let bytes = a.as_ref();
        if bytes.len() != w.size as usize {
            let name = if w.name.is_empty() { String::new() } else { format!(" ({})", w.name) };
            return Err(LaunchError::ArgumentSize { index, name, given: bytes.len(), wanted: w.size });
        }
        let end = w.offset as usize + bytes.len();
        if block.len() < end {
            block.resize(end, 0);
        }
        block[w.offset as usize..end].copy_from_slice(bytes);
    }
    Ok(block)
}

/// Checks a launch of `grid` workgroups of `block` workitems with `dynamic_lds` bytes of LDS added to the static ones.
pub fn check(
    target: Target,
    kernel: &KernelInfo,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_lds: u32,
) -> Result<(), LaunchError> {
    let threads = block.iter().map(|&b| b as u64).product::<u64>();
    if threads == 0 || threads > 1024 {
        return Err(LaunchError::WorkgroupSize(threads));
    }
    if (0..3).any(|i| grid[i] as u64 * block[i] as u64 > u32::MAX as u64) {
        return Err(LaunchError::Grid(grid));
    }
    if let Some(m) = &kernel.meta {
        let limit = m.max_flat_workgroup_size;
        if limit > 0 && threads > limit as u64 {
            return Err(LaunchError::WorkgroupLimit { given: threads, limit });
        }
        if let Some(wanted) = m.reqd_workgroup_size
            && wanted != block
        {
            return Err(LaunchError::WorkgroupShape { given: block, wanted });
        }
    }
    let bytes = kernel.descriptor.lds_bytes as u64 + dynamic_lds as u64;
    let limit = target.info().lds_bytes as u64;
    if bytes > limit {
        return Err(LaunchError::Lds { bytes, limit });
    }
    target.held(&resources(target, kernel, threads as u32, dynamic_lds))?;
    Ok(())
}

/// What a launch of a kernel asks of a compute unit, for [`Target::occupancy`].
pub fn resources(target: Target, kernel: &KernelInfo, workgroup_size: u32, dynamic_lds: u32) -> Resources {
    let d = &kernel.descriptor;
    let family = crate::codeobj::Family::of_mach(target.info().elf_mach);
    Resources {
        wave_size: if d.wave32() { 32 } else { 64 },
        workgroup_size,
        vgprs: family.map_or(1, |f| d.vgprs(f)),
        // The descriptor counts them among the VGPRs where they share a file, and not at all where they do not.
        agprs: 0,
        sgprs: family.map_or(0, |f| d.sgprs(f)),
        lds_bytes: d.lds_bytes + dynamic_lds,
        wgp_mode: family.is_some_and(|f| d.wgp_mode(f)),
    }
}

/// What hidden arguments tell about a launch.
pub(super) struct Hidden {
    /// Workgroups, all of them full.
    pub grid: [u32; 3],
    /// Workitems of one.
    pub block: [u32; 3],
    /// Bytes.
    pub dynamic_lds: u32,
    /// Address of the `amd_queue_t`.
    pub queue: u64,
}

/// Writes the hidden arguments of code object v3 to v5 metadata into an argument block.
pub(super) fn fill_hidden(kernel: &KernelInfo, hidden: &Hidden, services: &Services, out: &mut [u8]) {
    let Hidden { grid, block, dynamic_lds, queue } = *hidden;
    let Some(meta) = &kernel.meta else { return };
    let dims = (0..3).rev().find(|&i| grid[i] as u64 * block[i] as u64 > 1).map_or(1, |i| i + 1);
    for a in &meta.args {
        let ArgKind::Hidden(name) = &a.kind else { continue };
        let axis = match name.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let v: u64 = match name.trim_end_matches(['x', 'y', 'z']).trim_end_matches('_') {
            "block_count" => grid[axis] as u64,
            "group_size" => block[axis] as u64,
            "grid_dims" => dims as u64,
            "dynamic_lds_size" => dynamic_lds as u64,
            "private_base" => PRIVATE_APERTURE as u64,
            "shared_base" => SHARED_APERTURE as u64,
            "queue_ptr" => queue,
            "hostcall_buffer" => services.hostcall_buffer,
            "printf_buffer" => services.printf_buffer,
            "heap_v1" => services.heap,
            "multigrid_sync_arg" => services.grid_sync,
            // Remainders, offsets, and services that there are none of.
            _ => 0,
        };
        let (from, to) = (a.offset as usize, a.offset as usize + a.size.min(8) as usize);
        if let Some(place) = out.get_mut(from..to) {
            let n = place.len();
            place.copy_from_slice(&v.to_le_bytes()[..n]);
        }
    }
}

/// The AQL dispatch packet, followed by the part of the queue that kernels read.
pub(super) fn dispatch_packet(grid: [u32; 3], block: [u32; 3], private: u32, lds: u32, kernarg: u64) -> [u8; 64 + 256] {
    let mut p = [0u8; 64 + 256];
    let mut put = |at: usize, bytes: &[u8]| p[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &2u16.to_le_bytes());
    put(2, &3u16.to_le_bytes());
    for i in 0..3 {
        put(4 + 2 * i, &(block[i] as u16).to_le_bytes());
        put(12 + 4 * i, &grid[i].wrapping_mul(block[i]).to_le_bytes());
    }
    put(24, &private.to_le_bytes());
    put(28, &lds.to_le_bytes());
    put(40, &kernarg.to_le_bytes());
    // amd_queue_t: apertures of LDS and scratch.
    put(64 + 0x40, &SHARED_APERTURE.to_le_bytes());
    put(64 + 0x44, &PRIVATE_APERTURE.to_le_bytes());
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codeobj::{Descriptor, KernelMeta};

    fn kernel(args: Vec<Arg>, vgprs: u32, lds: u32) -> KernelInfo {
        let rsrc1 = vgprs / 8 - 1;
        KernelInfo {
            name: "k".into(),
            descriptor: Descriptor { lds_bytes: lds, kernarg_size: 32, rsrc1, ..Descriptor::default() },
            descriptor_addr: 0,
            entry: 0,
            code_size: 0,
            meta: Some(KernelMeta { args, kernarg_size: 32, max_flat_workgroup_size: 256, ..KernelMeta::default() }),
        }
    }

    #[test]
    fn arguments_go_where_the_metadata_says() {
        let hidden = Arg { kind: ArgKind::Hidden("block_count_x".into()), ..Arg::value("", 24, 4) };
        let k = kernel(vec![Arg::buffer("a", 0), Arg::value("n", 12, 4), hidden], 8, 0);
        let mut b = pack(&k, &[&7u64.to_le_bytes()[..], &5u32.to_le_bytes()[..]]).unwrap();
        let launch = Hidden { grid: [9, 1, 1], block: [64, 1, 1], dynamic_lds: 0, queue: 0 };
        fill_hidden(&k, &launch, &Services::default(), &mut b);
        assert_eq!((b[0], b[12], b[24], b.len()), (7, 5, 9, 32));
        let e = pack(&k, &[[0u8; 8]]).unwrap_err().to_string();
        assert_eq!(e, "1 arguments given, the kernel takes 2: a: global_buffer (8 bytes), n: by_value (4 bytes)");
        let e = pack(&k, &[&[0u8; 8][..], &[0; 8]]).unwrap_err().to_string();
        assert_eq!(e, "argument 1 (n) has 8 bytes, the kernel takes 4");
    }

    #[test]
    fn launches_are_checked() {
        let k = kernel(vec![], 8, 60000);
        let t = Target::GFX942;
        let check = |grid, block, lds| check(t, &k, grid, block, lds).map_err(|e| e.to_string());
        assert_eq!(check([1; 3], [256, 1, 1], 0), Ok(()));
        assert!(check([1; 3], [257, 1, 1], 0).unwrap_err().contains("at most 256"));
        assert!(check([1; 3], [0, 1, 1], 0).unwrap_err().contains("1 to 1024"));
        assert!(check([1; 3], [64, 1, 1], 9999).unwrap_err().contains("69999 bytes of LDS"));
        assert!(check([u32::MAX, 1, 1], [64, 1, 1], 0).unwrap_err().contains("too large"));
    }

    #[test]
    fn a_workgroup_has_to_fit_on_a_compute_unit() {
        // The metadata of this kernel promises nothing about its workgroups.
        let free = KernelInfo { meta: None, ..kernel(vec![], 256, 0) };
        let check = |t, threads| check(t, &free, [1; 3], [threads, 1, 1], 0).map_err(|e| e.to_string());
        // 256 registers of a file of 512; of granules half as large 128 of 256.
        assert_eq!([check(Target::GFX942, 512), check(Target::GFX906, 512)], [Ok(()), Ok(())]);
        let e = "no compute unit can hold it: a workgroup of 9 waves on 4 SIMDs needs 384 vector registers of one, which has 256";
        assert_eq!(check(Target::GFX906, 576), Err(e.into()));
    }

    #[test]
    fn resources_come_from_the_descriptor() {
        let k = kernel(vec![], 64, 1000);
        let r = resources(Target::GFX942, &k, 256, 24);
        assert_eq!((r.wave_size, r.workgroup_size, r.vgprs, r.lds_bytes), (64, 256, 64, 1024));
        assert_eq!(Target::GFX942.occupancy(&r).waves_per_simd, 8);
    }
}
