//! Modelled time of kernels that the compiler makes for a shape.

use super::peers::{Against, Measured, Vendor};
use super::search::{self, Search};
use super::shape::{self, Factors, Family, Layout, Shaped};
use crate::cycles::{self, Launched};
use crate::tune::Tune;
use crate::{Failure, Result};
use barewave::graph::{Options, fuse};
use barewave::kernels::{Candidate, Tuning, Way, candidates, joined};
use barewave::tensor::DType;
use barewave::{Compiled, Compiler, Shapes};
use barewave_isa::Target;
use barewave_timing::gemm::{self, Gemm};
use barewave_timing::validate::quantile;
use barewave_timing::{Chip, Loops, shapes};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shapes by family: gemm MxNxK or BxMxNxK; conv NxCxHxW:KxRxS, with :STRIDE and :PAD behind it where they are not 1 and 0; attention BATCHxHEADSxTOKENSxDEPTH; elementwise
/// and reduce any extents.
#[derive(clap::Args)]
pub struct Args {
    /// Shape; may be repeated.
    #[arg(long = "shape", value_name = "SHAPE")]
    shapes: Vec<String>,
    /// File with a shape a line (text behind a comma is ignored).
    #[arg(long = "shapes", value_name = "CSV")]
    file: Option<PathBuf>,
    /// Target: architecture (gfx942), product (mi300x) or code name (cdna3).
    #[arg(long)]
    target: String,
    /// Element type; i8, fp8 and bf8 with 32-bit sums; xf32 is f32 with --xf32. Of gemm also fp8xbf8, bf8xfp8 and, with --blocks, fp4.
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Of matrix products: how A and B lie in memory. NN as they are, NT with B transposed, TN, TT; may be repeated.
    #[arg(long = "layout", value_name = "NN|NT|TN|TT", ignore_case = true, hide_possible_values = true)]
    layouts: Vec<Layout>,
    /// Table of measured times: rocBLAS's for gemm, MIOpen's for conv, in the forms that validate reads. Rows of the shape
    /// are printed beside ours.
    #[arg(long, value_name = "CSV")]
    measured: Option<PathBuf>,
    /// Of matrix products: B is a constant of which two of every four elements along the depth are zero.
    #[arg(long)]
    pruned: bool,
    /// Of matrix products of fp4, fp8 and bf8: A and B have scales of F8E8M0 for blocks of 32 along the depth; B is a constant.
    #[arg(long, conflicts_with = "pruned")]
    blocks: bool,
    #[command(flatten)]
    against: Against,
    #[command(flatten)]
    tune: Tune,
    /// Of gemm and conv: model the N best candidates of the compiler's estimate in full, and say how good its choice is.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "16", conflicts_with = "tune")]
    search: Option<usize>,
    /// Write a table for --tune with the products that another tile is better for (searches 16 unless --search says how many).
    #[arg(long, value_name = "CSV", conflicts_with = "tune")]
    tune_out: Option<PathBuf>,
    /// Say what bounds each kernel and where its time goes.
    #[arg(long)]
    explain: bool,
    /// Execute and simulate all rounds of loops, where else the first of those that repeat themselves stand for the others: slow, and
    /// what leaving them out does to a figure.
    #[arg(long)]
    whole_loops: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

/// Our kernels for an operator, modelled launch by launch.
pub fn own(target: Target, tuning: &Arc<Tuning>, shaped: &Shaped) -> Result<Vec<Launched>> {
    let options = barewave::Options { tuning: tuning.clone(), ..barewave::Options::default() };
    cycles::plan(&Compiler::new(target, options).compile(&shaped.model, &Shapes::default())?, 0)
}

/// The analytical form's clocks for our own kernel of a product, beside those of the full model. Nothing where the product
/// is not one launch whose workgroups have a tile each, or where waves share the depth, which the form does not describe.
fn own_form(
    compiled: &Compiled,
    launches: &[Launched],
    chosen: &Candidate,
    (dtype, multiplied): (DType, &str),
    [m, n, k, batch]: [f64; 4],
) -> Option<(Gemm, f64, f64)> {
    let ([_], [stats]) = (&compiled.plan().launches[..], compiled.stats()) else { return None };
    if chosen.way != Way::Rounds || chosen.parts == 0 {
        return None;
    }
    let full = launches.first()?.modelled.as_ref().ok()?.clocks;
    let chip = Chip::of(compiled.target())?;
    let bytes = dtype.size() as f64;
    let [rows, columns, depth] = chosen.tile.map(f64::from);
    // Ours multiply by matrix instructions wherever there are some.
    let matrix = gemm::matrix(compiled.target(), multiplied).map(|(_, shape)| shape);
    let gemm = Gemm {
        m,
        n,
        k,
        batch,
        tile: (rows, columns),
        depth,
        threads: (16.0, f64::from(stats.workgroup_size) / 16.0, 1.0),
        matrix,
        split: f64::from(chosen.parts),
        prefetch: 1.0,
        local_prefetch: true,
        bytes: (bytes, bytes, bytes.max(4.0)),
        along_depth: [true, true],
        load_width: 16.0 / bytes,
        store_width: 4.0,
        reads_c: false,
        warm: false,
        single: true,
        moved: None,
        spread: 1.0,
        rate: cycles::peak_flops_per_clk(compiled.target(), multiplied),
    };
    let analytical = gemm.clocks(&chip, chip.cus).total;
    Some((gemm, analytical, full))
}

/// Time of all launches together.
pub(super) struct Total {
    pub microseconds: f64,
    pub clocks: f64,
    pub flops: f64,
    /// Bytes to and from memory.
    dram: f64,
    failed: usize,
}

pub(super) fn total(launches: &[Launched]) -> Total {
    let ok = || launches.iter().filter_map(|l| l.modelled.as_ref().ok());
    Total {
        microseconds: ok().map(|m| m.microseconds).sum(),
        clocks: ok().map(|m| m.clocks_with_launch).sum(),
        flops: launches.iter().map(|l| l.flops as f64).sum(),
        dram: ok().map(|m| m.traffic.dram).sum(),
        failed: launches.iter().filter(|l| l.modelled.is_err()).count(),
    }
}

/// The slowest launch's bound.
fn bound(launches: &[Launched]) -> &'static str {
    let ok = launches.iter().filter_map(|l| l.modelled.as_ref().ok());
    ok.max_by(|a, b| a.microseconds.total_cmp(&b.microseconds)).map_or("-", |m| m.bound.name())
}

fn shapes(args: &Args) -> Result<Vec<String>> {
    let mut out = args.shapes.clone();
    if let Some(path) = &args.file {
        let text = barewave::mapped::read_text(path)
            .map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
        let lines = text.lines().enumerate().map(|(n, l)| (n + 1, l.split(',').next().unwrap_or("").trim()));
        let mut lines = lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#')).peekable();
        let is_shape = |l: &str| l.starts_with(|c: char| c.is_ascii_digit());
        // The first line may be a header.
        lines.next_if(|(_, l)| !is_shape(l));
        if lines.peek().is_none() {
            return Err(Failure::new(format!("{}: no line with a shape", path.display())));
        }
        for (number, line) in lines {
            if !is_shape(line) {
                return Err(Failure::new(format!("{}: line {number}: '{line}' is no shape", path.display())));
            }
            out.push(line.to_string());
        }
    }
    if out.is_empty() {
        return Err(Failure::usage("give --shape SHAPE or --shapes FILE"));
    }
    Ok(out)
}

/// One shape, modelled.
struct Line {
    name: String,
    launches: Vec<Launched>,
    total: Total,
    /// Share of the peak of the chip.
    share: f64,
    /// Share of what kernels get from memory at best.
    memory: f64,
    /// Tiles that the compiler considered for the first product, the chosen one first.
    considered: Vec<Candidate>,
    /// A kernel like the vendor's with each usual tile, the quickest first, by the analytical form: microseconds.
    vendor_like: Vec<(f64, Gemm)>,
    /// Our kernel by the analytical form, its clocks, and those of the full model.
    form: Option<(Gemm, f64, f64)>,
    search: Option<Search>,
    vendor: Option<Vendor>,
}

impl Line {
    /// What the estimate says of the chosen kernel, over the full model's clocks; nothing where it is not one launch.
    fn estimated(&self) -> Option<f64> {
        let [launch] = &self.launches[..] else { return None };
        Some(self.considered.first()?.clocks / launch.modelled.as_ref().ok()?.clocks)
    }
}

/// What all shapes of a run have in common.
struct Bench {
    family: Family,
    /// Of both factors; of other families twice the same.
    types: [DType; 2],
    /// What these are.
    factors: Factors,
    chip: Chip,
    table: Option<Measured>,
    tuning: Arc<Tuning>,
    /// How many candidates to model in full.
    search: Option<usize>,
    loops: Loops,
}

fn line(bench: &Bench, name: String, shape: &str, layout: Layout) -> Result<Line> {
    let Bench { family, types, factors, chip, table, tuning, search, loops } = bench;
    let (family, dtype, target) = (*family, types[0], chip.target);
    let shaped = shape::of_text(family, shape, *types, (layout, *factors))?;
    let options = barewave::Options { tuning: tuning.clone(), ..barewave::Options::default() };
    let compiled = Compiler::new(target, options).compile(&shaped.model, &Shapes::default());
    let compiled = compiled.map_err(|e| Failure::new(format!("{name}: {e}")))?;
    let launches = cycles::plan_by(&compiled, 0, *loops)?;
    let total = total(&launches);
    let multiplied = if dtype == DType::F32 && tuning.takes_xf32(target) { "xf32" } else { cycles::name_of(dtype) };
    let share = total.flops / total.clocks.max(1.0) / (cycles::peak_flops_per_clk(target, multiplied) * chip.cus);
    let vendor_like = shaped.product.map_or(Vec::new(), |p| shapes::products(chip, chip.cus, multiplied, p));
    let vendor_like =
        vendor_like.into_iter().map(|(clocks, g)| (chip.microseconds(clocks) + chip.launch_us, g)).collect();
    let gemm = shaped.product.filter(|_| family == Family::Gemm);
    let graph = fuse(&shaped.model, &Options::default()).map_err(|e| Failure::new(format!("{name}: {e}")))?;
    let graph = joined(&graph, target, tuning).unwrap_or(graph);
    let considered = graph.steps.iter().find_map(|s| candidates(&graph, s, target, tuning)).filter(|c| !c.by_lines);
    let considered = considered.map_or(Vec::new(), |c| c.candidates);
    let search = search.map(|most| Search::of(target, &shaped.model, &graph, most)).transpose()?.flatten();
    let chosen = considered.first();
    let form = gemm.zip(chosen).and_then(|(p, chosen)| own_form(&compiled, &launches, chosen, (dtype, multiplied), p));
    let vendor = table.as_ref().and_then(|t| t.of(chip, dtype, layout, &shaped, &launches));
    let memory = total.dram / chip.dram_bytes_clk() / total.clocks.max(1.0);
    Ok(Line { name, launches, total, share, memory, considered, vendor_like, form, search, vendor })
}

/// Runs the command for one family.
pub fn run(family: Family, args: &Args) -> Result {
    let target = Target::parse(&args.target).map_err(Failure::usage)?;
    let unknown = || {
        Failure::usage(format!(
            "--dtype {}: f32, f16, bf16, f64, xf32, fp8, bf8, fp8xbf8, bf8xfp8, i8, i4, u4 or i32",
            args.dtype
        ))
    };
    let mut tuning = args.tune.read()?;
    if args.dtype == "xf32" {
        Arc::make_mut(&mut tuning).allow_xf32();
        if !tuning.takes_xf32(target) {
            return Err(Failure::usage(format!(
                "--dtype xf32: {} has no such matrix instructions",
                target.info().name
            )));
        }
    }
    let dtype = if args.dtype == "xf32" { "f32" } else { &args.dtype };
    let types = shape::factors_of_name(dtype, target).ok_or_else(unknown)?;
    let factors = match (args.pruned, args.blocks) {
        (true, _) => Factors::Pruned,
        (_, true) => Factors::Blocks,
        _ => Factors::Plain,
    };
    if factors != Factors::Plain && family != Family::Gemm {
        return Err(Failure::usage("--pruned and --blocks are for matrix products"));
    }
    if types.contains(&DType::F4E2M1) && factors != Factors::Blocks {
        return Err(Failure::usage("--dtype fp4 is for matrix products with --blocks"));
    }
    if types[0] != types[1] && family != Family::Gemm {
        return Err(Failure::usage("factors of two types are for matrix products"));
    }
    if !args.layouts.is_empty() && family != Family::Gemm {
        return Err(Failure::usage("--layout is for matrix products"));
    }
    let chip =
        Chip::of(target).ok_or_else(|| Failure::new(format!("the cycle model knows no chip of target {target}")))?;
    let table = args.measured.as_deref().map(|p| Measured::read(family, p)).transpose()?;
    let search = args.search.or(args.tune_out.as_ref().map(|_| 16));
    if search.is_some() && !matches!(family, Family::Gemm | Family::Conv) {
        return Err(Failure::usage(
            "--search and --tune-out are for gemm and conv: others have no tiles to choose among",
        ));
    }
    if let Some(path) = &args.tune_out {
        barewave::output::check(path)?;
    }
    let loops = if args.whole_loops { Loops::Whole } else { Loops::Shortened };
    let bench = Bench { family, types, factors, chip, table, tuning, search, loops };
    let shapes = shapes(args)?;
    if args.against.given() && shapes.len() > 1 {
        return Err(Failure::usage("--against is for one shape: the peer's launch is"));
    }
    let layouts = if args.layouts.is_empty() { vec![Layout::NN] } else { args.layouts.clone() };
    let mut lines = Vec::new();
    for shape in &shapes {
        for layout in &layouts {
            let name = if args.layouts.is_empty() { shape.clone() } else { format!("{shape} {layout:?}") };
            lines.push(line(&bench, name, shape, *layout)?);
        }
    }
    if let Some(path) = &args.tune_out {
        write_tuning(path, &lines)?;
    }
    let peer = args.against.modelled(target)?;
    lines.iter().for_each(|l| failures(&l.launches));
    if args.json {
        let mut out: Vec<Value> = lines.iter().map(json_of_line).collect();
        if let (Some((kernel, m)), Some(first)) = (&peer, out.first_mut()) {
            first["against"] = json!({ "kernel": kernel, "modelled": cycles::json(m) });
        }
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&out)?));
        return Ok(());
    }
    if args.explain {
        lines.iter().for_each(explain);
    }
    print(&bench.chip, &lines, bench.table.is_some());
    if search.is_some() {
        let found = lines.iter().filter_map(|l| Some((l.name.as_str(), l.search.as_ref()?)));
        search::print(&found.collect::<Vec<_>>());
    }
    if let Some((kernel, m)) = &peer {
        println!("\n{kernel}, by the same model:");
        cycles::print(m);
        println!("         our time over its time: {:.2}", lines[0].total.microseconds / m.microseconds.max(1e-9));
    }
    Ok(())
}

/// Writes the tiles that are better than those that were chosen.
fn write_tuning(path: &Path, lines: &[Line]) -> Result {
    let mut tuning = Tuning::default();
    lines.iter().filter_map(|l| l.search.as_ref()).for_each(|s| s.tune(&mut tuning));
    Ok(barewave::output::write(path, |w| write!(w, "{tuning}"))?)
}

fn print(chip: &Chip, lines: &[Line], measured: bool) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec![
        "shape",
        "us",
        "cycles",
        "TFLOPS",
        "of peak",
        "of memory",
        "bound",
        "launches",
        "workgroups",
        "vendor-like us",
    ];
    if measured {
        header.extend(["measured us", "measured / ours", "measured on"]);
    }
    table.set_header(header);
    for l in lines {
        let groups: u64 = l.launches.iter().filter_map(|l| l.modelled.as_ref().ok()).map(|m| m.workgroups).sum();
        // A launch that is not modelled leaves no sum.
        let figure = |text: String| if l.total.failed > 0 { "-".to_string() } else { text };
        let mut row = vec![
            l.name.clone(),
            figure(format!("{:.1}{}", l.total.microseconds, chip.note())),
            figure(format!("{:.0}", l.total.clocks)),
            figure(format!("{:.2}", l.total.flops / l.total.microseconds.max(1e-9) / 1e6)),
            figure(format!("{:.1}%", 100.0 * l.share)),
            figure(format!("{:.1}%", 100.0 * l.memory)),
            bound(&l.launches).into(),
            l.launches.len().to_string(),
            groups.to_string(),
            l.vendor_like.first().map_or("-".into(), |o| format!("{:.1}", o.0)),
        ];
        if measured {
            row.extend(match &l.vendor {
                Some(v) => [format!("{:.1}", v.microseconds), format!("{:.2}", v.over_ours), v.chip.clone()],
                None => ["-"; 3].map(String::from),
            });
        }
        table.add_row(row);
    }
    align(&mut table, 1..6);
    println!("{table}");
    if lines.iter().any(|l| l.vendor.is_some()) {
        println!("measured / ours: with the clock, the launch and the caches of the row's tuning run in both");
    }
    print_errors("the estimate that chose them", lines.iter().filter_map(Line::estimated));
    print_errors(
        "the analytical form",
        lines.iter().filter_map(|l| l.form.as_ref().map(|(_, form, full)| form / full)),
    );
    let method =
        lines.iter().filter(|l| l.considered.first().is_some_and(|c| c.way == Way::Winograd)).map(|l| l.name.as_str());
    let method: Vec<&str> = method.collect();
    if !method.is_empty() {
        println!(
            "by Winograd's method: {}; TFLOPS and share of peak count the operations of the definition, of which it does a part",
            method.join(", ")
        );
    }
}

/// How far something quick is from the full model, by its clocks over the model's, where there are several shapes.
fn print_errors(what: &str, ratios: impl Iterator<Item = f64>) {
    let mut errors: Vec<f64> = ratios.map(|r| (r - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    if errors.len() > 1 {
        let [median, decile] = [0.5, 0.9].map(|share| 100.0 * quantile(&errors, share));
        let count = errors.len();
        println!("{what} beside the full model, {count} kernels: median error {median:.0}%, ninth decile {decile:.0}%");
    }
}

pub(super) fn align(table: &mut Table, columns: std::ops::Range<usize>) {
    for c in columns {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

pub(super) fn failures(launches: &[Launched]) {
    for l in launches {
        if let Err(e) = &l.modelled {
            eprintln!("note: {} is not modelled: {e}", l.kernel);
        }
    }
}

/// What bounds each launch, how the analytical form sees our tile, and the tiles that it would try next.
fn explain(line: &Line) {
    println!("{}", line.name);
    for l in &line.launches {
        if let Ok(m) = &l.modelled {
            println!("{} ({})", l.kernel, l.step);
            cycles::print(m);
        }
    }
    let tile = |g: &Gemm| {
        let split = if g.split > 1.0 { format!(", k in {} parts", g.split) } else { String::new() };
        format!("{}x{}x{}{split}", g.tile.0, g.tile.1, g.depth)
    };
    if let Some((g, analytical, full)) = &line.form {
        println!(
            "  the analytical form of this kernel (tile {}): {analytical:.0} cycles, {:+.1}% of the full model",
            tile(g),
            100.0 * (analytical / full - 1.0)
        );
    }
    print_choice(&line.considered);
    if !line.vendor_like.is_empty() {
        let best = line.vendor_like.iter().take(4).map(|(us, g)| format!("{} {us:.1} us", tile(g)));
        println!("  a kernel like the vendor's, by the analytical form: {}", best.collect::<Vec<_>>().join("; "));
    }
    println!();
}

/// The tile that is chosen, and the next three.
pub(super) fn print_choice(considered: &[Candidate]) {
    let of = |c: &Candidate| format!("{}: {:.0} cycles", search::name(c), c.clocks);
    if let Some((chosen, next)) = considered.split_first() {
        let next: Vec<String> = next.iter().take(3).map(of).collect();
        let next = if next.is_empty() { String::new() } else { format!("; next {}", next.join("; ")) };
        println!("  chosen by estimate: tile {}{next}", of(chosen));
    }
}

fn json_of_line(l: &Line) -> Value {
    let mut entry = json_of(&l.name, &l.launches, l.share, l.vendor_like.first().map(|v| v.0));
    entry["analytical_cycles"] = json!(l.form.as_ref().map(|f| f.1.round()));
    let candidate =
        |c: &Candidate| json!({ "tile": c.tile, "parts": c.parts, "way": c.way.word(), "cycles": c.clocks.round() });
    // The chosen one and the next three; a search is about all of them.
    let most = if l.search.is_some() { usize::MAX } else { 4 };
    entry["candidates"] = json!(l.considered.iter().take(most).map(candidate).collect::<Vec<_>>());
    if let Some(s) = &l.search {
        entry["search"] = s.json();
    }
    entry["vendor"] = json!(l.vendor.as_ref().map(|v| json!({
        "microseconds": v.microseconds, "over_ours": v.over_ours, "chip": v.chip,
    })));
    entry
}

pub(super) fn json_of(name: &str, launches: &[Launched], share: f64, vendor_like: Option<f64>) -> Value {
    let t = total(launches);
    let list: Vec<Value> = launches
        .iter()
        .map(|l| match &l.modelled {
            Ok(m) => json!({ "kernel": l.kernel, "step": l.step, "flops": l.flops, "modelled": cycles::json(m) }),
            Err(e) => json!({ "kernel": l.kernel, "step": l.step, "flops": l.flops, "error": e.to_string() }),
        })
        .collect();
    // Of launches of which none is modelled there are no figures.
    let figure = |value: f64| (t.failed == 0 || t.failed < launches.len()).then_some(value);
    json!({
        "shape": name, "microseconds": figure(t.microseconds), "cycles": figure(t.clocks.round()), "flops": t.flops, "share_of_peak": figure(share),
        "microseconds_again": cycles::again(launches), "bound": bound(launches), "vendor_like_microseconds": vendor_like, "not_modelled": t.failed, "launches": list,
    })
}
