//! The table of kernels that `barewave compile --stats` prints.

use barewave::compile::{CompiledKernel, Program};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// What is known of a kernel without running it.
#[derive(Clone, Debug, Serialize)]
pub struct KernelStats {
    /// Symbol.
    pub kernel: String,
    /// Source operators of its first launch.
    pub step: String,
    /// Launches.
    pub launches: usize,
    /// Instructions.
    pub instructions: usize,
    /// VGPRs.
    pub vgprs: u32,
    /// AGPRs.
    pub agprs: u32,
    /// SGPRs.
    pub sgprs: u32,
    /// LDS bytes per workgroup.
    pub lds: u32,
    /// Values spilled.
    pub spills: u32,
    /// Waves that fit on a SIMD at once.
    pub occupancy: u32,
    /// Workgroups per launch.
    pub workgroups: u64,
    /// Workitems per workgroup.
    pub workgroup_size: u32,
    /// Floating-point operations per launch.
    pub flops: u64,
}

/// Statistics of all kernels in order of their first launch.
pub fn stats(program: &Program) -> Vec<KernelStats> {
    let of = |k: &CompiledKernel| {
        let step = program.plan.launches.iter().find(|l| l.kernel == k.name).map_or("", |l| l.step.as_str());
        let u = &k.machine.usage;
        KernelStats {
            kernel: k.name.clone(),
            step: step.to_string(),
            launches: k.uses,
            instructions: k.machine.emitted.insts,
            vgprs: u.vgprs,
            agprs: u.agprs,
            sgprs: u.sgprs,
            lds: k.machine.function.lds_bytes,
            spills: u.spills,
            occupancy: k.machine.occupancy().waves_per_simd,
            workgroups: k.kernel.grid.iter().map(|g| *g as u64).product(),
            workgroup_size: k.machine.function.workgroup_size,
            flops: k.kernel.flops,
        }
    };
    program.kernels.iter().map(of).collect()
}

/// Prints the table and the memory plan.
pub fn print(program: &Program) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "kernel",
        "launches",
        "insts",
        "VGPR",
        "AGPR",
        "SGPR",
        "LDS",
        "spills",
        "waves/SIMD",
        "workgroups",
        "MFLOP",
        "operators",
    ]);
    for s in stats(program) {
        let mflop = format!("{:.1}", s.flops as f64 / 1e6);
        table.add_row([
            s.kernel,
            s.launches.to_string(),
            s.instructions.to_string(),
            s.vgprs.to_string(),
            s.agprs.to_string(),
            s.sgprs.to_string(),
            s.lds.to_string(),
            s.spills.to_string(),
            s.occupancy.to_string(),
            format!("{}x{}", s.workgroups, s.workgroup_size),
            mflop,
            shortened(&s.step),
        ]);
    }
    for c in 1..11 {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    let mib = |b: u64| b as f64 / (1 << 20) as f64;
    let p = &program.plan;
    println!(
        "memory: {:.2} MiB for intermediate tensors at the peak, {:.2} MiB without reuse; weights {:.2} MiB",
        mib(p.peak_bytes),
        mib(p.sum_bytes),
        mib(p.weights_bytes)
    );
}

fn shortened(step: &str) -> String {
    const MOST: usize = 48;
    match step.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &step[..at]),
        None => step.to_string(),
    }
}
