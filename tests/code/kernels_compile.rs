//! Every kernel family compiles for every target that has code generation.

use crate::support::hints;
use barewave::graph::expr::{Binary, Expr};
use barewave::graph::fused::*;
use barewave::graph::view::View;
use barewave::kernels;
use barewave::passes;
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

const TARGETS: [&str; 6] = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

fn tensor(g: &mut FusedGraph, name: &str, shape: &[usize], role: Role) -> TensorId {
    g.add_tensor(Tensor { name: name.into(), dtype: DType::F32, shape: shape.to_vec(), role })
}

/// Hints of the kernels, by target.
fn compile(g: &FusedGraph) -> Vec<(&'static str, hints::Hints)> {
    g.check().unwrap();
    let mut out = Vec::new();
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        for step in &g.steps {
            for k in kernels::lower(g, step, target, &Default::default(), "k").unwrap() {
                let m = passes::compile(k.function).unwrap_or_else(|e| panic!("{t} {}: {e}", step.kind.name()));
                let hints = hints::check(&m);
                eprintln!("{t} {} {} insts {:?} {hints:?}", step.kind.name(), m.emitted.insts, m.usage);
                out.push((t, hints));
            }
        }
    }
    out
}

#[test]
fn vector_add() {
    let mut g = FusedGraph::default();
    let a = tensor(&mut g, "a", &[1000], Role::Input(0));
    let b = tensor(&mut g, "b", &[1000], Role::Input(1));
    let c = tensor(&mut g, "c", &[1000], Role::Output(0));
    let v = View::dense(&[1000]);
    let mut e = Expr::new();
    let (x, y) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let s = e.binary(Binary::Add, x, y);
    g.steps.push(Step {
        name: "add".into(),
        kind: StepKind::Pointwise,
        inputs: vec![Access::new(a, v.clone()), Access::new(b, v.clone())],
        expr: e.finish(s),
        output: Access::new(c, v),
    });
    g.outputs.push(c);
    compile(&g);
}

#[test]
fn convolution() {
    let mut g = FusedGraph::default();
    let x = tensor(&mut g, "x", &[1, 64, 56, 56], Role::Input(0));
    let weights = HostTensor::from_f32(&[64, 64, 3, 3], &vec![0.5; 64 * 64 * 9]);
    let w = tensor(&mut g, "w", &[64, 64, 3, 3], Role::Constant(weights));
    let c = tensor(&mut g, "c", &[1, 64, 56, 56], Role::Output(0));
    let d = View::dense(&[1, 64, 56, 56]);
    g.steps.push(Step {
        name: "conv".into(),
        kind: StepKind::Conv(Conv::new(
            Window { kernel: vec![3, 3], strides: vec![1, 1], dilations: vec![1, 1], pads: vec![1, 1] },
            1,
        )),
        inputs: vec![Access::new(x, d.clone()), Access::new(w, View::dense(&[64, 64, 3, 3]))],
        expr: Expr::acc(DType::F32),
        output: Access::new(c, d),
    });
    g.outputs.push(c);
    compile(&g);
}
