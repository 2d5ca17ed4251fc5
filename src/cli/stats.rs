//! The table of kernels that `barewave compile --stats` prints.

use barewave::Compiled;
use comfy_table::{CellAlignment, Table, presets};

/// Prints the table and the memory plan.
pub fn print(compiled: &Compiled) {
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
    for s in compiled.stats() {
        let mflop = format!("{:.1}", s.flops as f64 / 1e6);
        table.add_row([
            s.kernel.clone(),
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
    let p = compiled.plan();
    println!(
        "memory: {:.2} MiB for intermediate tensors at the peak, {:.2} MiB without reuse; weights {:.2} MiB",
        mib(p.arena_bytes),
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
