//! A whole model, launch by launch.

use super::kernels::{align, failures, json_of, print_choice, total};
use crate::cycles::{self, Launched};
use crate::tune::Tune;
use crate::{Failure, Result};
use barewave::kernels::{Candidate, candidates, joined};
use barewave::tensor::DType;
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use barewave_timing::Chip;
use comfy_table::{Table, presets};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Models a whole model, launch by launch.
#[derive(clap::Args)]
pub struct Args {
    /// ONNX file, or a model that `barewave compile` wrote.
    model: PathBuf,
    /// Target (needed for an ONNX file).
    #[arg(long)]
    target: Option<String>,
    /// Extent of a symbolic dimension, as NAME=N.
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<String>,
    #[command(flatten)]
    tune: Tune,
    /// Every launch in order: what bounds it, where its time goes, and the tiles that its estimate puts next.
    #[arg(long)]
    explain: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

/// Candidates by step, of products and convolutions; known of ONNX files only.
type Considered = BTreeMap<String, Vec<Candidate>>;

/// The compiled model, and what was considered for it.
fn compiled(args: &Args) -> Result<(Compiled, Considered)> {
    let bytes = barewave::mapped::read_file(&args.model)
        .map_err(|e| Failure::new(format!("cannot read {}: {e}", args.model.display())))?;
    let target = args.target.as_deref().map(Target::parse).transpose().map_err(Failure::usage)?;
    if bytes.starts_with(b"\x7fELF") {
        if args.tune.given() || !args.dims.is_empty() {
            return Err(Failure::usage(
                "--tune and --dim are for ONNX files: a compiled model's tiles and shapes are chosen",
            ));
        }
        let compiled = Compiled::from_bytes(bytes.into(), &args.model)?;
        if let Some(other) = target.filter(|t| *t != compiled.target()) {
            let own = compiled.target();
            return Err(Failure::usage(format!("{} was compiled for {own}, not for {other}", args.model.display())));
        }
        return Ok((compiled, Considered::new()));
    }
    let target = target.ok_or_else(|| Failure::usage("an ONNX file needs --target"))?;
    let model = barewave::Model::load(&args.model)?;
    let (tuning, shapes) = (args.tune.read()?, crate::compile::one(&args.dims)?);
    let compiler = Compiler::new(target, barewave::Options { tuning: tuning.clone(), ..barewave::Options::default() });
    let compiled = compiler.compile(&model, &shapes)?;
    let mut considered = Considered::new();
    if args.explain {
        let graph = compiler.fuse(&model, &shapes)?;
        let graph = joined(&graph, target, &tuning).unwrap_or(graph);
        let of = |s| candidates(&graph, s, target, &tuning).map(|c| (s.name.clone(), c.candidates));
        considered.extend(graph.steps.iter().filter_map(of));
    }
    Ok((compiled, considered))
}

/// Runs the command.
pub fn run(args: &Args) -> Result {
    let (compiled, considered) = compiled(args)?;
    let launches = cycles::plan(&compiled, 0)?;
    let target = compiled.target();
    let chip =
        Chip::of(target).ok_or_else(|| Failure::new(format!("the cycle model knows no chip of target {target}")))?;
    let t = total(&launches);
    let share = t.flops / t.clocks.max(1.0) / (cycles::peak_flops_per_clk(target, DType::F32) * chip.cus);
    if compiled.plans().len() > 1 {
        eprintln!("note: the first of the {} shapes that the model was compiled for", compiled.plans().len());
    }
    if args.json {
        let json = json_of(&compiled.plan().model, &launches, share, None);
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&json)?));
        return Ok(());
    }
    let us = |l: &Launched| l.modelled.as_ref().map_or(0.0, |m| m.microseconds);
    if args.explain {
        for l in &launches {
            if let Ok(m) = &l.modelled {
                println!("{} ({}), {:.1}% of the time", l.kernel, l.step, 100.0 * us(l) / t.microseconds.max(1e-9));
                cycles::print(m);
                print_choice(considered.get(&l.step).map_or(&[], |c| c));
            }
        }
        println!();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["kernel", "us", "share", "bound", "workgroups", "operators"]);
    let mut order: Vec<&Launched> = launches.iter().filter(|l| l.modelled.is_ok()).collect();
    order.sort_by(|a, b| us(b).total_cmp(&us(a)));
    /// Launches in the table: the slowest.
    const SHOWN: usize = 12;
    let shown = if args.explain { usize::MAX } else { SHOWN };
    for l in order.iter().take(shown) {
        if let Ok(m) = &l.modelled {
            table.add_row([
                l.kernel.clone(),
                format!("{:.1}", m.microseconds),
                format!("{:.1}%", 100.0 * m.microseconds / t.microseconds.max(1e-9)),
                m.bound.name().into(),
                m.workgroups.to_string(),
                crate::page::shortened(&l.step, 60),
            ]);
        }
    }
    align(&mut table, 1..3);
    println!("{table}");
    if order.len() > shown {
        let rest: f64 = order.iter().skip(shown).map(|l| us(l)).sum();
        println!("{} others take {rest:.1} us together (--explain shows them)", order.len() - shown);
    }
    println!(
        "{} launches, {:.1} us{}, {}{:.2} GFLOP, {:.1}% of the f32 peak",
        launches.len(),
        t.microseconds,
        chip.note(),
        cycles::again(&launches).map_or(String::new(), |us| format!("{us:.1} us right behind another run, ")),
        t.flops / 1e9,
        100.0 * share
    );
    failures(&launches);
    Ok(())
}
