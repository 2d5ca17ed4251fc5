//! Modelled time of kernels that the compiler makes for a shape.

use crate::cycles::{self, Launched};
use crate::{Failure, Result};
use barewave::onnx::{Attribute, Dim, Model, Node, ValueInfo};
use barewave::tensor::DType;
use barewave::{Compiled, Compiler, Shapes};
use barewave_isa::Target;
use barewave_timing::gemm::Gemm;
use barewave_timing::{Chip, conv};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// MxNxK, or BxMxNxK.
    Gemm,
    /// NxCxHxW:KxRxS[:STRIDE[:PAD]].
    Conv,
    /// BxHEADSxTOKENSxDEPTH.
    Attention,
    /// Any extents.
    Elementwise,
    /// Any extents.
    Reduce,
}

/// Shapes by family: gemm MxNxK or BxMxNxK; conv NxCxHxW:KxRxS[:STRIDE[:PAD]]; attention BATCHxHEADSxTOKENSxDEPTH; elementwise
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
    /// Element type.
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// Say what bounds each kernel and where its time goes.
    #[arg(long)]
    explain: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

/// Models a whole model, launch by launch.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// ONNX file, or a model that `barewave compile` wrote.
    model: PathBuf,
    /// Target (needed for an ONNX file).
    #[arg(long)]
    target: Option<String>,
    /// Extent of a symbolic dimension, as NAME=N.
    #[arg(long = "dim", value_name = "NAME=N")]
    dims: Vec<String>,
    /// Every launch, not only the slowest.
    #[arg(long)]
    explain: bool,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

fn extents(text: &str) -> Option<Vec<usize>> {
    let list: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    list.filter(|l| !l.is_empty())
}

/// A model of one operator.
fn one_operator(op: &str, inputs: &[Vec<usize>], dtype: DType, attributes: &[(&str, Attribute)]) -> Model {
    let mut model = Model::default();
    model.opsets.insert(String::new(), 23);
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let declared = inputs.iter().zip(&names).map(|(shape, name)| ValueInfo {
        name: name.clone(),
        dtype: Some(dtype),
        shape: Some(shape.iter().map(|d| Dim::Known(*d)).collect()),
    });
    model.graph.inputs = declared.collect();
    model.graph.nodes.push(Node {
        name: op.to_lowercase(),
        op: op.into(),
        domain: String::new(),
        inputs: names,
        outputs: vec!["y".into()],
        attributes: attributes.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
    });
    model.graph.outputs.push(ValueInfo { name: "y".into(), dtype: None, shape: None });
    model
}

/// The model of a shape, and its product (rows, columns, depth, batch) where it is one.
fn of_shape(family: Family, text: &str, dtype: DType) -> Result<(Model, Option<[f64; 4]>)> {
    let wrong = |form: &str| Failure::usage(format!("shape '{text}': write {form}"));
    let ints = |v: &[usize]| Attribute::Ints(v.iter().map(|x| *x as i64).collect());
    match family {
        Family::Gemm => {
            let form = || wrong("MxNxK or BATCHxMxNxK, for example 4096x4096x4096");
            let list = extents(text).ok_or_else(form)?;
            let (lead, m, n, k) = match list[..] {
                [m, n, k] => (vec![], m, n, k),
                [b, m, n, k] => (vec![b], m, n, k),
                _ => return Err(form()),
            };
            let shape = |a: usize, b: usize| [&lead[..], &[a, b]].concat();
            let product = [m as f64, n as f64, k as f64, lead.first().map_or(1.0, |b| *b as f64)];
            Ok((one_operator("MatMul", &[shape(m, k), shape(k, n)], dtype, &[]), Some(product)))
        }
        Family::Conv => {
            let form = || wrong("NxCxHxW:KxRxS[:STRIDE[:PAD]], for example 1x64x56x56:64x3x3:1:1");
            let parts: Vec<&str> = text.split(':').collect();
            let (Some(input), Some(kernel)) = (extents(parts[0]), parts.get(1).and_then(|p| extents(p))) else {
                return Err(form());
            };
            let number = |i: usize, default: usize| parts.get(i).map_or(Some(default), |p| p.parse().ok());
            let (&[n, c, h, w], &[k, r, s], Some(stride), Some(pad)) =
                (&input[..], &kernel[..], number(2, 1), number(3, 0))
            else {
                return Err(form());
            };
            if stride == 0 || h + 2 * pad < r || w + 2 * pad < s {
                return Err(form());
            }
            let attributes = [("strides", ints(&[stride; 2])), ("pads", ints(&[pad; 4]))];
            let pixels = n * ((h + 2 * pad - r) / stride + 1) * ((w + 2 * pad - s) / stride + 1);
            let product = [k as f64, pixels as f64, (c * r * s) as f64, 1.0];
            Ok((one_operator("Conv", &[vec![n, c, h, w], vec![k, c, r, s]], dtype, &attributes), Some(product)))
        }
        Family::Attention => {
            let list = extents(text).filter(|l| l.len() == 4).ok_or_else(|| wrong("BATCHxHEADSxTOKENSxDEPTH"))?;
            Ok((one_operator("Attention", &[list.clone(), list.clone(), list], dtype, &[]), None))
        }
        Family::Elementwise => {
            let list = extents(text).ok_or_else(|| wrong("extents, for example 1024x1024"))?;
            Ok((one_operator("Add", &[list.clone(), list], dtype, &[]), None))
        }
        Family::Reduce => {
            let list = extents(text).ok_or_else(|| wrong("extents, for example 1024x1024"))?;
            let mut model =
                one_operator("ReduceSum", std::slice::from_ref(&list), dtype, &[("keepdims", Attribute::Int(0))]);
            let axis = barewave::HostTensor::from_i64(&[1], &[list.len() as i64 - 1]);
            model.graph.initializers.insert("axes".into(), axis);
            model.graph.nodes[0].inputs.push("axes".into());
            Ok((model, None))
        }
    }
}

/// Our kernel for a matrix product (rows, columns, depth, batch), modelled.
pub fn product(target: Target, dtype: DType, [m, n, k, batch]: [usize; 4]) -> Result<Vec<Launched>> {
    let text = if batch > 1 { format!("{batch}x{m}x{n}x{k}") } else { format!("{m}x{n}x{k}") };
    let (model, _) = of_shape(Family::Gemm, &text, dtype)?;
    let compiled = Compiler::new(target, barewave::Options::default()).compile(&model, &Shapes::default())?;
    cycles::plan(&compiled, 0)
}

/// The analytical form's clocks for our own kernel of a product, beside those of the full model. The tile follows from the
/// grid, the depth from LDS (two buffers). Nothing where the product is not one plain launch.
fn own_form(
    compiled: &Compiled,
    launches: &[Launched],
    dtype: DType,
    [m, n, k, batch]: [f64; 4],
) -> Option<(Gemm, f64, f64)> {
    let [launch] = &compiled.plan().launches[..] else { return None };
    let [stats] = compiled.stats() else { return None };
    let full = launches.first()?.modelled.as_ref().ok()?.clocks;
    let chip = Chip::of(compiled.target())?;
    let [x, y, _] = launch.grid.map(f64::from);
    let side = |extent: f64, groups: f64| ((extent / groups / 16.0).ceil() * 16.0).max(16.0);
    // Columns run along x.
    let tile = (side(m, y), side(n, x));
    let bytes = dtype.size() as f64;
    let depth = (f64::from(stats.lds) / 2.0 / (tile.0 + tile.1) / bytes / 8.0).round().max(1.0) * 8.0;
    let vector = f64::from(stats.workgroup_size) / 16.0;
    let info = compiled.target().info();
    let with_matrix = info.max_agprs > 0 || info.wmma.is_some() && bytes < 4.0;
    let gemm = Gemm {
        m,
        n,
        k,
        batch,
        tile,
        depth,
        threads: (16.0, vector, 1.0),
        matrix: with_matrix.then_some([16.0, 16.0, 16.0 / bytes, 1.0]),
        split: 1.0,
        prefetch: 1.0,
        local_prefetch: true,
        bytes: (bytes, bytes, bytes.max(4.0)),
        gathered: 0.0,
        reads_c: false,
        rate: cycles::peak_flops_per_clk(compiled.target(), dtype),
    };
    let analytical = gemm.clocks(&chip, chip.cus).total;
    Some((gemm, analytical, full))
}

/// Time of all launches together.
struct Total {
    microseconds: f64,
    clocks: f64,
    flops: f64,
    failed: usize,
}

fn total(launches: &[Launched]) -> Total {
    let ok = || launches.iter().filter_map(|l| l.modelled.as_ref().ok());
    Total {
        microseconds: ok().map(|m| m.microseconds).sum(),
        clocks: ok().map(|m| m.clocks_with_launch).sum(),
        flops: launches.iter().map(|l| l.flops as f64).sum(),
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
        let text =
            std::fs::read_to_string(path).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
        let lines = text.lines().map(|l| l.split(',').next().unwrap_or("").trim());
        out.extend(lines.filter(|l| l.starts_with(|c: char| c.is_ascii_digit())).map(str::to_string));
    }
    if out.is_empty() {
        return Err(Failure::usage("give --shape SHAPE or --shapes FILE"));
    }
    Ok(out)
}

/// Runs the command for one family.
pub fn run(family: Family, args: &Args) -> Result {
    let target = Target::parse(&args.target).map_err(Failure::usage)?;
    let unknown = || Failure::usage(format!("--dtype {}: f32, f16, bf16, f64, i8 or i32", args.dtype));
    let dtype = DType::from_name(&args.dtype).ok_or_else(unknown)?;
    let chip =
        Chip::of(target).ok_or_else(|| Failure::new(format!("the cycle model knows no chip of target {target}")))?;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "shape",
        "us",
        "cycles",
        "TFLOPS",
        "of peak",
        "bound",
        "launches",
        "workgroups",
        "vendor-like us",
    ]);
    let mut out = Vec::new();
    for shape in shapes(args)? {
        let (model, product) = of_shape(family, &shape, dtype)?;
        let compiled = Compiler::new(target, barewave::Options::default()).compile(&model, &Shapes::default());
        let compiled = compiled.map_err(|e| Failure::new(format!("{shape}: {e}")))?;
        let launches = cycles::plan(&compiled, 0)?;
        let t = total(&launches);
        let peak = cycles::peak_flops_per_clk(target, dtype) * chip.cus;
        let share = t.flops / t.clocks.max(1.0) / peak;
        // What a kernel like the vendor's with the best usual tile would take, by the analytical form.
        let other = product.and_then(|p| conv::best_product(&chip, chip.cus, &args.dtype, p));
        let other_us = other.as_ref().map(|o| chip.microseconds(o.0) + chip.launch_us);
        let form = product.filter(|_| family == Family::Gemm).and_then(|p| own_form(&compiled, &launches, dtype, p));
        if args.json {
            let mut entry = json_of(&shape, &launches, share, other_us);
            entry["analytical_cycles"] = json!(form.as_ref().map(|f| f.1.round()));
            out.push(entry);
            continue;
        }
        let groups: u64 = launches.iter().filter_map(|l| l.modelled.as_ref().ok()).map(|m| m.workgroups).sum();
        table.add_row([
            shape.clone(),
            format!("{:.1}{}", t.microseconds, chip.note()),
            format!("{:.0}", t.clocks),
            format!("{:.2}", t.flops / t.microseconds.max(1e-9) / 1e6),
            format!("{:.1}%", 100.0 * share),
            bound(&launches).into(),
            launches.len().to_string(),
            groups.to_string(),
            other_us.map_or("-".into(), |u| format!("{u:.1}")),
        ]);
        if args.explain {
            explain(&shape, &launches);
            if let Some((g, analytical, full)) = form {
                println!(
                    "  the analytical form of this kernel (tile {}x{}x{}): {analytical:.0} cycles, {:+.1}% of the full model",
                    g.tile.0,
                    g.tile.1,
                    g.depth,
                    100.0 * (analytical / full - 1.0)
                );
            }
            if let Some((_, g)) = other {
                let split = if g.split > 1.0 { format!(", k in {} parts", g.split) } else { String::new() };
                println!("  the analytical form would take a tile of {}x{}{split}\n", g.tile.0, g.tile.1);
            }
        }
        failures(&launches);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&out)?);
    } else {
        align(&mut table, 1..5);
        println!("{table}");
    }
    Ok(())
}

fn align(table: &mut Table, columns: std::ops::Range<usize>) {
    for c in columns {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn failures(launches: &[Launched]) {
    for l in launches {
        if let Err(e) = &l.modelled {
            eprintln!("note: {} is not modelled: {e}", l.kernel);
        }
    }
}

fn explain(shape: &str, launches: &[Launched]) {
    println!("{shape}");
    for l in launches {
        if let Ok(m) = &l.modelled {
            println!("{} ({})", l.kernel, l.step);
            cycles::print(m);
        }
    }
}

fn json_of(name: &str, launches: &[Launched], share: f64, vendor_like: Option<f64>) -> Value {
    let t = total(launches);
    let list: Vec<Value> = launches
        .iter()
        .map(|l| match &l.modelled {
            Ok(m) => json!({ "kernel": l.kernel, "step": l.step, "flops": l.flops, "modelled": cycles::json(m) }),
            Err(e) => json!({ "kernel": l.kernel, "step": l.step, "flops": l.flops, "error": e.to_string() }),
        })
        .collect();
    json!({
        "shape": name, "microseconds": t.microseconds, "cycles": t.clocks.round(), "flops": t.flops, "share_of_peak": share,
        "bound": bound(launches), "vendor_like_microseconds": vendor_like, "not_modelled": t.failed, "launches": list,
    })
}

/// Models a compiled model or an ONNX file.
pub fn model(args: &ModelArgs) -> Result {
    let bytes =
        std::fs::read(&args.model).map_err(|e| Failure::new(format!("cannot read {}: {e}", args.model.display())))?;
    let compiled = if bytes.starts_with(b"\x7fELF") {
        Compiled::from_bytes(bytes.into(), &args.model)?
    } else {
        let target = args.target.as_deref().ok_or_else(|| Failure::usage("an ONNX file needs --target"))?;
        let target = Target::parse(target).map_err(Failure::usage)?;
        let model = Model::load(&args.model)?;
        Compiler::new(target, barewave::Options::default()).compile(&model, &crate::compile::one(&args.dims)?)?
    };
    let launches = cycles::plan(&compiled, 0)?;
    let target = compiled.target();
    let chip =
        Chip::of(target).ok_or_else(|| Failure::new(format!("the cycle model knows no chip of target {target}")))?;
    let t = total(&launches);
    let share = t.flops / t.clocks.max(1.0) / (cycles::peak_flops_per_clk(target, DType::F32) * chip.cus);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&json_of(&compiled.plan().model, &launches, share, None))?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["kernel", "us", "share", "bound", "workgroups", "operators"]);
    let mut order: Vec<&Launched> = launches.iter().filter(|l| l.modelled.is_ok()).collect();
    order.sort_by(|a, b| {
        let us = |l: &Launched| l.modelled.as_ref().map_or(0.0, |m| m.microseconds);
        us(b).total_cmp(&us(a))
    });
    /// Launches that are shown without `--explain`.
    const SHOWN: usize = 12;
    for l in order.iter().take(if args.explain { usize::MAX } else { SHOWN }) {
        if let Ok(m) = &l.modelled {
            table.add_row([
                l.kernel.clone(),
                format!("{:.1}", m.microseconds),
                format!("{:.1}%", 100.0 * m.microseconds / t.microseconds.max(1e-9)),
                m.bound.name().into(),
                m.workgroups.to_string(),
                l.step.chars().take(60).collect(),
            ]);
        }
    }
    align(&mut table, 1..3);
    println!("{table}");
    println!(
        "{} launches, {:.1} us{}, {:.2} GFLOP, {:.1}% of the f32 peak",
        launches.len(),
        t.microseconds,
        chip.note(),
        t.flops / 1e9,
        100.0 * share
    );
    failures(&launches);
    Ok(())
}
