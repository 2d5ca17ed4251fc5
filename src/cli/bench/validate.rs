//! `barewave bench validate`: the cycle model beside measured tables and traces.

use super::vendor;
use crate::{Failure, Result};
use barewave_timing::conv::{self, Run};
use barewave_timing::floor::Contradictions;
use barewave_timing::gemm::Code;
use barewave_timing::instr::Unit;
use barewave_timing::sqtt::Interval;
use barewave_timing::validate::{self, Errors};
use barewave_timing::{floor, shapes, sqtt};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Compares the cycle model with what hardware measured.
///
/// Kernels of AMD's tables are modelled from the parameters that the tables give (macro tile, depth, split, prefetch), not by
/// kernels of ours. Errors are |modelled / measured - 1|, by tiles per compute unit; beside them (in brackets with --compact) those
/// that are left when each row is told by the nearest measured one of its kernel.
///
/// Example: barewave bench validate --gemm gemm_rocblas.csv --traces traces/
#[derive(clap::Args)]
pub struct Args {
    /// Table of matrix products in the form of rocBLAS's (gfx, dtype, M, N, K, value, unit, MT0, ...) or of AITER's, which have no
    /// kernels' parameters (gfx, cu, m, n, k, kind, dtype, best_us).
    #[arg(long, value_name = "CSV")]
    gemm: Option<PathBuf>,
    /// Table of convolutions in the form of MIOpen's find databases.
    #[arg(long, value_name = "CSV")]
    conv: Option<PathBuf>,
    /// Of --conv, rows of these numbers of images only.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    images: Vec<usize>,
    /// Directory of thread traces as text.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Matrix products that others published, beside the best usual kernel by the model.
    #[arg(long)]
    published: bool,
    /// LLVM's llvm-mca, whose model of gfx942 judges the loops of our kernels too.
    #[arg(long, value_name = "PROGRAM")]
    llvm_mca: Option<PathBuf>,
    /// Describe the tuning runs of --gemm (lines for isa/latency/campaigns.csv), or of --conv (conv_runs.csv), instead.
    #[arg(long)]
    fit: bool,
    /// With --gemm and --conv: describe the tuning runs by half of the rows (sizes are dealt out by a hash) and judge by the
    /// other half.
    #[arg(long, conflicts_with = "fit")]
    held_out: bool,
    /// Instructions of each trace with the largest errors.
    #[arg(long, value_name = "N", default_value_t = 0)]
    worst: usize,
    /// Rows of each chip, type and bucket for which our own kernels are compiled and modelled too.
    #[arg(long, value_name = "N", default_value_t = 3)]
    ours: usize,
    /// A line per chip and type: median and p90 of each bucket.
    #[arg(long)]
    compact: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

pub fn read(path: &Path) -> Result<String> {
    if path.extension().is_some_and(|e| e == "xz") {
        return Err(Failure::new(format!("{0} is compressed: unpack it first (xz -dk {0})", path.display())));
    }
    barewave::mapped::read_text(path).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))
}

/// Names what a failure is about.
pub fn in_file<T, E: std::fmt::Display>(path: &Path, r: std::result::Result<T, E>) -> Result<T> {
    r.map_err(|e| Failure::new(format!("{}: {e}", path.display())))
}

/// Runs the command.
pub fn run(args: &Args) -> Result {
    let tables = [&args.gemm, &args.conv, &args.traces, &args.llvm_mca];
    if tables.iter().all(|t| t.is_none()) && !args.published {
        return Err(Failure::usage("give --gemm CSV, --conv CSV, --traces DIR, --published or --llvm-mca PROGRAM"));
    }
    let (mut out, mut compared) = (Vec::new(), Vec::new());
    let by_shape = |text: &str| text.lines().next().is_some_and(|header| header.ends_with(",best_us"));
    let text = args.gemm.as_deref().map(read).transpose()?;
    if let (Some(path), Some(text)) = (&args.gemm, text.as_deref().filter(|t| by_shape(t))) {
        if args.fit || args.held_out {
            let table = path.display();
            return Err(Failure::usage(format!("{table} says nothing of tuning runs: leave out --fit and --held-out")));
        }
        let (rows, left_out) = in_file(path, shapes::aiter(text))?;
        let errors = shapes::compare(&rows);
        if args.json {
            out.extend(errors.iter().map(|e| json_of("gemm by shape", e)));
        } else {
            let rows = rows.len();
            println!(
                "Matrix products of {}: {rows} rows as the best of usual kernels, {left_out} of other types and chips left out",
                path.display()
            );
            print(&errors);
        }
    } else if let (Some(path), Some(text)) = (&args.gemm, &text) {
        let (rows, left_out) = in_file(path, validate::rocblas(text))?;
        let mut known = validate::campaigns();
        if args.fit {
            return fit(&rows, &known);
        }
        let (seen, rows) = match args.held_out {
            false => (Vec::new(), rows),
            true => {
                let (seen, held_out) = validate::halves(rows);
                known = describe(&seen, &known);
                (seen, held_out)
            }
        };
        let mut errors = validate::compare(&rows, &known);
        let nearest = floor::nearest(&rows, &seen, &known);
        for e in &mut errors {
            e.nearest = nearest.get(&(e.chip.clone(), e.dtype.clone(), e.bucket)).copied();
        }
        let against = floor::contradictions(seen.iter().chain(&rows));
        if !args.compact {
            compared.extend(vendor::compare(&rows, args.ours, &mut errors));
        }
        if args.json {
            out.extend(errors.iter().map(|e| {
                let mut group = json_of("gemm", e);
                let c = against.get(&(e.chip.clone(), e.dtype.clone())).copied().unwrap_or_default();
                group["contradictions"] = json!({
                    "pairs": c.pairs, "deeper_is_quicker": c.deeper_is_quicker, "few_tiles": c.few_tiles, "too_quick": c.too_quick,
                });
                group
            }));
        } else if args.compact {
            print_compact(&errors);
        } else {
            let half = if args.held_out { " that the tuning runs were not described by" } else { "" };
            println!(
                "Matrix products of {}: {} rows{half}, {left_out} of other types left out",
                path.display(),
                rows.len()
            );
            print(&errors);
            print_contradictions(&against);
        }
    }
    if let Some(path) = &args.conv {
        let (mut rows, left_out) = in_file(path, conv::miopen(&read(path)?))?;
        rows.retain(|r| args.images.is_empty() || args.images.contains(&r.shape.input[0]));
        let mut known = conv::runs();
        if args.fit {
            println!("chip,dtype,solver,launch_us,pace,waits,traffic,rise_us,slow");
            for ((chip, dtype, solver), Run { launch, code: Code { pace, waits, traffic }, rise, slow }) in
                conv::fit(&rows)
            {
                println!("{chip},{dtype},{solver},{launch:.1},{pace:.2},{waits:.2},{traffic:.2},{rise},{slow}");
            }
            return Ok(());
        }
        if args.held_out {
            let (seen, held_out) = conv::halves(rows);
            (known, rows) = (conv::fit(&seen), held_out);
        }
        let mut errors = conv::compare(&rows, &known);
        let others = conv::not_modelled(&rows);
        if !args.compact {
            compared.extend(vendor::compare(&rows, args.ours, &mut errors));
        }
        if args.json {
            out.extend(errors.iter().map(|e| {
                let mut group = json_of("conv", e);
                let same = others.iter().filter(|((chip, dtype, _), _)| (chip, dtype) == (&e.chip, &e.dtype));
                group["not_modelled"] = same.map(|((.., solver), rows)| (solver.clone(), json!(rows))).collect();
                group
            }));
        } else if args.compact {
            print_compact(&errors);
        } else {
            let half = if args.held_out { " that the runs were not described by" } else { "" };
            println!(
                "Convolutions of {}: {} rows{half}, {left_out} of other kinds left out",
                path.display(),
                rows.len()
            );
            print(&errors);
            print_others(&others);
        }
    }
    if args.json {
        vendor::attach(&mut out, &compared);
    } else {
        vendor::print(&compared);
    }
    if let Some(dir) = &args.traces {
        traces(args, dir, &mut out)?;
    }
    if args.published {
        published(args, &mut out);
    }
    if let Some(tool) = &args.llvm_mca {
        super::mca::run(tool, args.json, &mut out)?;
    }
    if args.json {
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&out)?));
    }
    Ok(())
}

/// What others published, beside the model.
fn published(args: &Args, out: &mut Vec<Value>) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "kernel",
        "chip",
        "type",
        "shape",
        "published, TFLOPS",
        "best usual kernel, TFLOPS at the boost clock",
        "published/model",
        "source",
    ]);
    for p in shapes::published() {
        let [m, n, k, _] = p.row.product;
        let (theirs, modelled) = (p.tflops(p.row.us), p.tflops(p.modelled));
        let ratio = theirs / modelled;
        if args.json {
            out.push(json!({
                "kind": "published", "kernel": p.kernel, "target": p.row.target.info().name, "dtype": p.row.dtype, "shape": [m, n, k],
                "tflops": theirs, "modelled_tflops": modelled, "source": p.source,
            }));
            continue;
        }
        let cells = [format!("{theirs:.1}"), format!("{modelled:.1}"), format!("{ratio:.2}"), p.source];
        let shape = format!("{m}x{n}x{k}");
        let chip = p.row.target.info().name.to_string();
        table.add_row([p.kernel, chip, p.row.dtype.into(), shape].into_iter().chain(cells));
    }
    if !args.json {
        println!("{table}");
    }
}

fn json_of(kind: &str, e: &Errors) -> Value {
    json!({
        "kind": kind, "chip": e.chip, "dtype": e.dtype, "bucket": e.bucket.name(), "rows": e.rows, "median": e.median,
        "p90": e.p90, "bias": e.bias, "nearest_median": e.nearest.map(|n| n.0), "nearest_p90": e.nearest.map(|n| n.1), "ours_vs_vendor": e.ours_vs_vendor,
    })
}

/// A line per chip and type.
fn print_compact(errors: &[Errors]) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["chip", "type", "rows", "under 1 tile per CU", "1 to 2", "over 2"]);
    let mut at = 0;
    while at < errors.len() {
        let same = |e: &Errors| (&e.chip, &e.dtype) == (&errors[at].chip, &errors[at].dtype);
        let group: Vec<&Errors> = errors[at..].iter().take_while(|e| same(e)).collect();
        let of = |b: validate::Bucket| {
            let found = group.iter().find(|e| e.bucket == b);
            let cell = |m: f64, p90: f64| format!("{:.0}% / {:.0}%", 100.0 * m, 100.0 * p90);
            found.map_or("-".into(), |e| match e.nearest {
                Some((m, p90)) => format!("{} ({})", cell(e.median, e.p90), cell(m, p90)),
                None => cell(e.median, e.p90),
            })
        };
        use validate::Bucket::{Over2, To2, Under1};
        let rows: usize = group.iter().map(|e| e.rows).sum();
        table.add_row([
            errors[at].chip.clone(),
            errors[at].dtype.clone(),
            rows.to_string(),
            of(Under1),
            of(To2),
            of(Over2),
        ]);
        at += group.len();
    }
    println!("{table}");
}

fn percent(x: f64) -> String {
    format!("{:.1}%", 100.0 * x)
}

fn print(errors: &[Errors]) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let nearest = ["nearest row, median", "p90"];
    table.set_header([
        "chip",
        "type",
        "tiles per CU",
        "rows",
        "median error",
        "p90",
        nearest[0],
        nearest[1],
        "bias",
        "vendor / ours",
    ]);
    for e in errors {
        let [near, near_p90] =
            [e.nearest.map(|n| n.0), e.nearest.map(|n| n.1)].map(|x| x.map_or(String::from("-"), percent));
        let ours = e.ours_vs_vendor.map_or(String::from("-"), |r| format!("{r:.2}"));
        let bias = format!("{:+.1}%", 100.0 * e.bias);
        let rows = e.rows.to_string();
        table.add_row([
            e.chip.clone(),
            e.dtype.clone(),
            e.bucket.name().into(),
            rows,
            percent(e.median),
            percent(e.p90),
            near,
            near_p90,
            bias,
            ours,
        ]);
    }
    for c in 3..10 {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

/// Convolutions that solvers have won which are not modelled, by database and type.
fn print_others(others: &BTreeMap<(String, String, String), usize>) {
    let mut by: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for ((chip, dtype, solver), rows) in others {
        by.entry((chip, dtype)).or_default().push(format!("{solver} {rows}"));
    }
    for ((chip, dtype), list) in by {
        println!("not modelled, rows won on {chip}, {dtype}: {}", list.join(", "));
    }
}

/// Rows of a table that cannot all have been measured as it says.
fn print_contradictions(found: &BTreeMap<(String, String), Contradictions>) {
    let many: Vec<_> = found.iter().filter(|(_, c)| c.many()).collect();
    if many.is_empty() {
        return;
    }
    println!("Rows that contradict each other, or the number of compute units:");
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "chip",
        "type",
        "pairs of rows that differ in depth alone",
        "the deeper took less time",
        "rows of up to 2 tiles per CU, in percent of the peak",
        "quicker than so many CUs can be",
    ]);
    for ((chip, dtype), c) in many {
        let numbers = [c.pairs, c.deeper_is_quicker, c.few_tiles, c.too_quick].map(|n| n.to_string());
        table.add_row([chip.clone(), dtype.clone()].into_iter().chain(numbers));
    }
    println!("{table}");
}

/// The tuning runs of rows, with the clocks that are known.
fn describe(rows: &[validate::Row], known: &validate::Campaigns) -> validate::Campaigns {
    validate::fit(rows, |r| validate::campaign(known, r).map_or(0.0, |c| c.mhz))
}

/// Prints the tuning runs of a table.
fn fit(rows: &[validate::Row], known: &validate::Campaigns) -> Result {
    let found = describe(rows, known);
    println!("chip,dtype,out,compute,layout,unit,sizes,launch_clocks,reads_c,warm,mhz,clock,memory");
    for (run, c) in found {
        let [reads_c, warm] = [c.reads_c, c.warm].map(u8::from);
        println!("{},{:.0},{reads_c},{warm},{:.0},{},{}", run.join(","), c.launch, c.mhz, c.clock, c.memory);
    }
    Ok(())
}

/// Instructions within this many clocks of hardware count as right.
const CLOSE: i64 = 4;

/// The longest wait for memory of a kind that nobody has touched before, clocks of hardware and of the model.
fn first_wait(intervals: &[&Interval], unit: Unit) -> Option<(u64, u64)> {
    let waits = intervals.iter().filter(|i| i.waits_for == Some(unit));
    waits.map(|i| (i.measured, i.modelled)).max()
}

/// First waits of one target's traces contradict each other when one is so many times as long as another and the model misses one by more than its share.
const APART: f64 = 1.2;

/// Says where traces of a target contradict each other: `waits` are their first ones, measured and modelled, by target and kind.
fn print_first_waits(waits: &BTreeMap<(&str, &str), Vec<(u64, u64)>>) {
    for ((target, kind), clocks) in waits {
        let apart = |a: u64, b: u64| a.max(b) as f64 > APART * a.min(b) as f64;
        if let (Some(least), Some(most)) = (clocks.iter().min(), clocks.iter().max())
            && apart(least.0, most.0)
            && clocks.iter().any(|c| apart(c.0, c.1))
        {
            println!(
                "Traces of {target} contradict each other: the first {kind} wait took {} clocks in one and {} in another. No constant is right for both.",
                least.0, most.0
            );
        }
    }
}

fn traces(args: &Args, dir: &Path, out: &mut Vec<Value>) -> Result {
    let list = std::fs::read_dir(dir).map_err(|e| Failure::new(format!("cannot read {}: {e}", dir.display())))?;
    let mut files: Vec<PathBuf> = list.filter_map(|e| Some(e.ok()?.path())).collect();
    files.retain(|p| {
        p.extension().is_some_and(|e| e == "txt")
            && p.file_stem().is_some_and(|s| s.to_string_lossy().starts_with("sqtt"))
    });
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(format!("{} has no traces (sqtt*.txt)", dir.display())));
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "trace",
        "target",
        "waves",
        "instructions",
        "within 4 cycles",
        "median error",
        "total measured",
        "total modelled",
        "error",
        "without first touches",
        "first scalar wait (modelled)",
        "first vector wait (modelled)",
    ]);
    let mut firsts: BTreeMap<(&str, &str), Vec<(u64, u64)>> = BTreeMap::new();
    for path in files {
        let file = in_file(&path, sqtt::parse(&read(&path)?))?;
        let mut waves = Vec::new();
        for event in &file.events {
            waves.extend(in_file(&path, sqtt::compare(file.target, event))?);
        }
        let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        let mut intervals: Vec<&Interval> = waves.iter().flat_map(|w| &w.intervals).collect();
        intervals.sort_by_key(|i| i.difference().abs());
        let n = intervals.len();
        let close = intervals.iter().filter(|i| i.difference().abs() <= CLOSE).count() as f64 / n.max(1) as f64;
        let median = intervals.get(n / 2).map_or(0, |i| i.difference().abs());
        let ratio = |modelled: u64, measured: u64| modelled as f64 / measured.max(1) as f64 - f64::from(measured > 0);
        let measured: u64 = waves.iter().map(|w| w.measured).sum();
        let modelled: u64 = waves.iter().map(|w| w.modelled).sum();
        let error = ratio(modelled, measured);
        let warm = || intervals.iter().filter(|i| !i.first_touch);
        let known = ratio(warm().map(|i| i.modelled).sum(), warm().map(|i| i.measured).sum());
        let waits = [Unit::Smem, Unit::Vmem].map(|unit| first_wait(&intervals, unit));
        for (wait, kind) in waits.iter().zip(["scalar", "vector"]) {
            firsts.entry((file.target.info().name, kind)).or_default().extend(wait);
        }
        let waits = waits.map(|w| w.map_or("-".into(), |(measured, modelled)| format!("{measured} ({modelled})")));
        let unknown: Vec<&String> = waves.iter().flat_map(|w| &w.unknown).collect();
        if args.json {
            out.push(json!({
                "kind": "trace", "trace": name, "target": file.target.info().name, "waves": waves.len(), "instructions": n,
                "within_4_cycles": close, "median_cycles": median, "measured_cycles": measured, "modelled_cycles": modelled,
                "total_error": error, "error_without_first_touches": known,
                "first_scalar_wait": waits[0], "first_vector_wait": waits[1], "unknown_instructions": unknown,
            }));
            continue;
        }
        let count = [waves.len().to_string(), n.to_string()];
        let [w, i] = count;
        table.add_row([
            name.clone(),
            file.target.info().name.into(),
            w,
            i,
            percent(close),
            median.to_string(),
            measured.to_string(),
            modelled.to_string(),
            format!("{:+.1}%", 100.0 * error),
            format!("{:+.1}%", 100.0 * known),
            waits[0].clone(),
            waits[1].clone(),
        ]);
        for i in intervals.iter().rev().take(args.worst) {
            println!("{name}: {:+} cycles before {}", i.difference(), i.text);
        }
        if !unknown.is_empty() {
            eprintln!("note: {name}: {} instructions are not in the tables, for example {}", unknown.len(), unknown[0]);
        }
    }
    if !args.json {
        println!("{table}");
        print_first_waits(&firsts);
    }
    Ok(())
}
