//! The table of kernels that `barewave compile --stats` prints, with the cycle model's time of each.

use super::cycles::{self, Launched};
use super::page::shortened;
use barewave::Compiled;
use barewave_timing::Modelled;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

/// A kernel's first launch and its model.
fn first<'a>(launches: &'a [Launched], kernel: &str) -> Option<(&'a Launched, &'a Modelled)> {
    let launch = launches.iter().find(|l| l.kernel == kernel)?;
    Some((launch, launch.modelled.as_ref().ok()?))
}

/// The share of the highest rate for what it multiplies that a launch reaches.
fn share(launch: &Launched) -> f64 {
    cycles::share_of_peak(std::slice::from_ref(launch))
}

/// What is known of the kernels, for machines.
pub fn json(compiled: &Compiled, launches: &[Launched]) -> serde_json::Result<Value> {
    let mut list = serde_json::to_value(compiled.stats())?;
    for (entry, s) in list.as_array_mut().into_iter().flatten().zip(compiled.stats()) {
        let m = first(launches, &s.kernel);
        entry["modelled"] = m.map_or(Value::Null, |(_, m)| cycles::json(m));
        entry["share_of_peak"] = json!(m.map(|(l, _)| share(l)));
    }
    Ok(list)
}

/// Prints the table and the memory plan.
pub fn print(compiled: &Compiled, launches: &[Launched]) {
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
        "us",
        "cycles",
        "of peak",
        "bound",
        "operators",
    ]);
    for s in compiled.stats() {
        let mflop = format!("{:.1}", s.flops as f64 / 1e6);
        let m = first(launches, &s.kernel);
        let shown = |f: &dyn Fn(&Modelled) -> String| m.map_or(String::from("-"), |(_, m)| f(m));
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
            shown(&|m| format!("{:.1}", m.microseconds)),
            shown(&|m| format!("{:.0}", m.clocks_with_launch)),
            m.map_or(String::from("-"), |(l, _)| format!("{:.1}%", 100.0 * share(l))),
            shown(&|m| m.bound.name().to_string()),
            shortened(&s.step, 48),
        ]);
    }
    for c in 1..14 {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    let modelled: Vec<&Modelled> = launches.iter().filter_map(|l| l.modelled.as_ref().ok()).collect();
    let (us, clocks): (f64, f64) =
        modelled.iter().map(|m| (m.microseconds, m.clocks_with_launch)).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let note = modelled.first().map_or("", |m| cycles::note(m));
    let missing = launches.len() - modelled.len();
    let missing = if missing > 0 { format!(", {missing} launches not modelled") } else { String::new() };
    let again = cycles::again(launches).map_or(String::new(), |us| format!(", {us:.1} us right behind another run"));
    println!(
        "model:  {us:.1} us{note} by the cycle model, {clocks:.0} cycles, {:.1}% of the peak, {} launches{missing}{again}",
        100.0 * cycles::share_of_peak(launches),
        launches.len()
    );
    let mib = |b: u64| b as f64 / (1 << 20) as f64;
    let p = compiled.plan();
    println!(
        "memory: {:.2} MiB for intermediate tensors at the peak, {:.2} MiB without reuse; weights {:.2} MiB",
        mib(p.arena_bytes),
        mib(p.sum_bytes),
        mib(p.weights_bytes)
    );
}
