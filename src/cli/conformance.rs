//! `barewave conformance`: runs an ONNX backend test tree on a device.
//!
//! A case is a directory with `model.onnx` and `test_data_set_N/{input,output}_M.pb`. Inputs are matched to the graph's
//! inputs by position; an input that the compiler needs to know (shapes, axes) is made a constant, and the verdict
//! counts as a pass like any other. Tolerance is the suite's own: rtol 1e-3, atol 1e-7; and half a unit in the last place of
//! the largest element, because references that were computed in f32 have that much noise where terms cancel. Of operators that
//! draw random numbers only types and shapes are compared.

use super::progress::Progress;
use super::{Failure, Result};
use barewave::compile;
use barewave::graph::{self, Options, fused::FusedGraph};
use barewave::onnx::{Model, Structure};
use barewave::runtime::{AnyShape, AnyShapeError, EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor, compare, load_pb, load_pb_list};
use barewave_isa::Target;
use rayon::prelude::*;
use regex_lite::Regex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs an ONNX backend test tree on an emulated device.
///
/// Example: barewave conformance onnx/backend/test/data/node --target gfx942 --filter conv
#[derive(clap::Args)]
pub struct Args {
    /// Directory of test cases.
    dir: PathBuf,
    /// Target of the emulated device.
    #[arg(long, default_value = "gfx942")]
    target: String,
    /// Only cases whose name this regular expression matches (anywhere; ^ and $ tie it to the ends).
    #[arg(long, value_name = "RE", default_value = "")]
    filter: String,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
    /// Check every launch for undefined behaviour (slow).
    #[arg(long)]
    strict: bool,
    /// Print every case, not only failures.
    #[arg(long)]
    verbose: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "lowercase")]
enum Verdict {
    Pass,
    Unsupported(String),
    Fail(String),
}

#[derive(Serialize)]
struct Case {
    name: String,
    #[serde(flatten)]
    verdict: Verdict,
}

pub fn run(args: &Args) -> Result {
    let target = Target::parse(&args.target).map_err(Failure::usage)?;
    let filter = Regex::new(&args.filter).map_err(|e| Failure::usage(format!("--filter {}: {e}", args.filter)))?;
    let cannot = |e| Failure::new(format!("cannot read {}: {e}", args.dir.display()));
    let mut dirs: Vec<PathBuf> = std::fs::read_dir(&args.dir)
        .map_err(cannot)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.join("model.onnx").exists())
        .collect();
    dirs.sort();
    let name = |p: &Path| p.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    dirs.retain(|d| filter.is_match(&name(d)));
    if dirs.is_empty() {
        return Err(Failure::new(format!("no test cases (directories with model.onnx) in {}", args.dir.display())));
    }
    let progress = Progress::start("cases", dirs.len() as u64);
    let cases: Vec<Case> = dirs
        .par_iter()
        .map(|d| {
            let verdict = std::panic::catch_unwind(|| run_case(d, target, args.strict));
            let verdict = verdict.unwrap_or_else(|_| Verdict::Fail("panicked".into()));
            progress.advance();
            Case { name: name(d), verdict }
        })
        .collect();
    drop(progress);
    let count = |f: fn(&Verdict) -> bool| cases.iter().filter(|c| f(&c.verdict)).count();
    let passed = count(|v| matches!(v, Verdict::Pass));
    let failed = count(|v| matches!(v, Verdict::Fail(_)));
    let unsupported = cases.len() - passed - failed;
    if args.json {
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&cases)?));
    } else {
        for c in &cases {
            match &c.verdict {
                Verdict::Pass if args.verbose => println!("pass         {}", c.name),
                Verdict::Pass => {}
                Verdict::Unsupported(why) => println!("unsupported  {}: {why}", c.name),
                Verdict::Fail(why) => println!("FAIL         {}: {why}", c.name),
            }
        }
        println!(
            "{passed} pass, {failed} fail, {unsupported} unsupported of {} on {}",
            cases.len(),
            target.info().name
        );
    }
    if failed > 0 { Err(Failure::new(format!("{failed} cases fail"))) } else { Ok(()) }
}

fn run_case(dir: &Path, target: Target, strict: bool) -> Verdict {
    let model = match Model::load(&dir.join("model.onnx")) {
        Ok(m) => m,
        Err(e) => return Verdict::Unsupported(e.to_string()),
    };
    let Ok(entries) = std::fs::read_dir(dir) else { return Verdict::Fail("the directory cannot be read".into()) };
    let mut sets: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    sets.sort();
    for set in sets {
        match run_set(model.clone(), &set, target, strict) {
            Verdict::Pass => {}
            other => return other,
        }
    }
    Verdict::Pass
}

/// What a file gives for an input or output: one tensor, or those of a sequence or optional; nothing is what an empty optional
/// holds.
fn read(path: &Path, structure: Option<&Structure>) -> std::result::Result<Option<Vec<HostTensor>>, Verdict> {
    let unsupported = |e: barewave::tensor::Error| Verdict::Unsupported(e.to_string());
    match structure {
        None => Ok(Some(vec![load_pb(path).map_err(unsupported)?.1])),
        Some(structure) => {
            let list = load_pb_list(path).map_err(unsupported)?;
            let nothing = list.is_empty() && !matches!(structure, Structure::Sequence(_));
            Ok((!nothing).then_some(list))
        }
    }
}

fn run_set(mut model: Model, set: &Path, target: Target, strict: bool) -> Verdict {
    let names: Vec<String> = model.graph.inputs.iter().map(|v| v.name.clone()).collect();
    let declared: Vec<String> = model.graph.outputs.iter().map(|v| v.name.clone()).collect();
    let structures = model.structures.clone();
    let mut given = BTreeMap::new();
    for (i, name) in names.iter().enumerate() {
        let path = set.join(format!("input_{i}.pb"));
        if !path.exists() {
            continue;
        }
        let list = match read(&path, structures.get(name)) {
            Ok(list) => list,
            Err(verdict) => return verdict,
        };
        let types: Option<Vec<_>> = list.as_ref().map(|l| l.iter().map(|t| (t.dtype(), t.shape().to_vec())).collect());
        model.unpack(name, types.as_deref());
        let element = |k: usize| match structures.get(name) {
            Some(Structure::Sequence(_) | Structure::OptionalSequence(_)) => format!("{name}[{k}]"),
            _ => name.clone(),
        };
        given.extend(list.into_iter().flatten().enumerate().map(|(k, t)| (element(k), t)));
    }
    // The pixels of a JPEG depend on how its decoder rounds its transforms and spreads colours: by one in each.
    let is_jpeg = |t: &HostTensor| t.dtype() == DType::U8 && t.bytes().starts_with(&[0xff, 0xd8, 0xff]);
    let decodes = model.graph.nodes.iter().any(|n| n.op == "ImageDecoder");
    let least = if decodes && given.values().any(is_jpeg) { 2.0 } else { 1e-7 };
    let random = model.graph.nodes.iter().any(|n| n.op == "Bernoulli" || n.op.starts_with("Random"));
    let shapes = given.iter().map(|(name, t)| (name.clone(), t.shape().to_vec())).collect();
    let options = Options { shapes, values: given.clone(), ..Options::default() };
    let outputs = match graph::fuse(&model, &options) {
        Ok(fused) => execute(&fused, &model, &given, target, strict),
        Err(e) if e.to_string().contains("internal error") => return Verdict::Fail(e.to_string()),
        Err(e) => match graph::cut(&model, &options) {
            Ok(Some(_)) => in_stages(model, &given, target, strict),
            _ => return Verdict::Unsupported(e.to_string()),
        },
    };
    let outputs = match outputs {
        Ok(o) => o,
        Err(v) => return v,
    };
    let mut expected = Vec::new();
    for (i, name) in declared.iter().enumerate() {
        match read(&set.join(format!("output_{i}.pb")), structures.get(name)) {
            Ok(list) => expected.extend(list.into_iter().flatten()),
            Err(verdict) => return verdict,
        }
    }
    if expected.len() != outputs.len() {
        return Verdict::Fail(format!("{} outputs instead of {}", outputs.len(), expected.len()));
    }
    for (i, (got, want)) in outputs.iter().zip(&expected).enumerate() {
        let largest = if want.dtype().is_float() {
            want.to_f64().iter().fold(0.0, |m: f64, x| if x.is_finite() { m.max(x.abs()) } else { m })
        } else {
            0.0
        };
        // Whose numbers are random is held to their number and type.
        let same = got.shape() == want.shape() && got.dtype() == want.dtype();
        if random && same {
            continue;
        }
        match compare(got, want, 1e-3, f64::max(least, largest * 2f64.powi(-24))) {
            Ok(c) if c.passes() => {}
            Ok(c) => return Verdict::Fail(format!("output {i}: {c}")),
            Err(e) => return Verdict::Fail(format!("output {i}: {e}")),
        }
    }
    Verdict::Pass
}

/// Runs a model of which a part has to be computed before the rest is compiled.
fn in_stages(
    model: Model,
    given: &BTreeMap<String, HostTensor>,
    target: Target,
    strict: bool,
) -> std::result::Result<Vec<HostTensor>, Verdict> {
    let device = EmulatedDevice::new(target, strict).map_err(|e| Verdict::Fail(e.to_string()))?;
    let inputs: Option<Vec<HostTensor>> = model.required_inputs().map(|v| given.get(&v.name).cloned()).collect();
    let inputs = inputs.ok_or_else(|| Verdict::Fail("there is no data for an input".into()))?;
    let compiler = compile::Compiler::new(target, compile::Options::default());
    let mut stages = AnyShape::new(Arc::new(device), compiler, Arc::new(model), 1);
    match stages.run(&inputs) {
        Ok((outputs, _)) => Ok(outputs),
        Err(AnyShapeError::Compile(e)) => Err(Verdict::Unsupported(e.to_string())),
        Err(e) => Err(Verdict::Fail(e.to_string())),
    }
}

fn execute(
    fused: &FusedGraph,
    model: &Model,
    given: &BTreeMap<String, HostTensor>,
    target: Target,
    strict: bool,
) -> std::result::Result<Vec<HostTensor>, Verdict> {
    let fail = |e: &dyn std::fmt::Display| Verdict::Fail(e.to_string());
    let program = compile::compile(fused, target).map_err(|e| match e {
        compile::Error::Unsupported(u) => Verdict::Unsupported(u.to_string()),
        e => fail(&e),
    })?;
    let device = EmulatedDevice::new(target, strict).map_err(|e| fail(&e))?;
    let mut session = Session::new(Arc::new(device), &program).map_err(|e| fail(&e))?;
    let mut inputs = Vec::new();
    for v in model.required_inputs() {
        inputs.push(given.get(&v.name).cloned().ok_or_else(|| Verdict::Fail(format!("no data for input {}", v.name)))?);
    }
    session.run(&inputs).map(|r| r.0).map_err(|e| fail(&e))
}
