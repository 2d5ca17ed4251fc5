//! Steps of one model that agree in everything but which of their operands are the same: each has a kernel of its own, and those that agree in that,
//! too, share one. Emulated devices in strict mode against the f64 interpreter of the fused graph.

use crate::support::build::{Builder, int};
use crate::support::device::{TARGETS, session};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::onnx::Attribute;
use barewave::tensor::{DType, HostTensor, compare};

/// Runs a model of so many kernels everywhere.
fn check(b: &Builder, most: f64, kernels: usize, what: &str) {
    let fused = graph::fuse(&b.model, &Options::default()).unwrap();
    let want = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap();
    for target in TARGETS {
        let what = format!("{what} {target}");
        let (mut session, compiled) = session(&fused, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (got, _) = session.run(&b.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(got.len(), want.len(), "{what}");
        for (g, w) in got.iter().zip(&want) {
            let c = compare(g, w, most, most).unwrap();
            assert!(c.passes(), "{what}: {c}");
        }
        // Those that share a launch count one by one.
        assert_eq!(compiled.ir().len(), kernels, "{what}");
    }
}

fn axis(d: i64) -> [(&'static str, Attribute); 1] {
    [("axis", int(d))]
}

/// A table that is used twice is read once.
#[test]
fn tables_of_two_operands() {
    let (rows, count) = (9, 13);
    for inner in [1, 3, 8] {
        for first_is_same in [true, false] {
            let mut b = Builder::new(17, inner as u64);
            let (x, y) = (b.input(&[rows, inner]), b.input(&[rows, inner]));
            let tables: Vec<String> = (0..4)
                .map(|_| {
                    let list: Vec<i64> = (0..count).map(|_| b.below(rows) as i64).collect();
                    b.input_of(HostTensor::from_i64(&[count], &list))
                })
                .collect();
            let mut pairs = vec![(0, 0), (0, 1), (2, 2), (2, 3)];
            if !first_is_same {
                pairs.reverse();
            }
            for (i, j) in pairs {
                let left = b.node("Gather", &[&x, &tables[i]], &[]);
                let right = b.node("Gather", &[&y, &tables[j]], &[]);
                let sum = b.node("Add", &[&left, &right], &[]);
                b.output(&sum);
            }
            check(&b, 1e-6, 2, &format!("rows of {inner}, the same first {first_is_same}"));
        }
    }
}

/// A product whose right operand lies beside its results, and one whose right operand lies as far apart beside others.
#[test]
fn products_beside_their_operands_and_others() {
    let (m, n) = (24, 5);
    for beside_first in [false, true] {
        let mut b = Builder::new(17, 4);
        let input = |b: &mut Builder, shape: &[usize]| {
            let x = b.random(shape);
            b.input_of(HostTensor::from_f64(DType::F16, shape, &x.to_f64()))
        };
        for beside in [beside_first, !beside_first] {
            let (left, right) = (input(&mut b, &[m, m]), input(&mut b, &[m, n]));
            let right = b.node("Softmax", &[&right], &[]);
            let read = match beside {
                true => right.clone(),
                false => {
                    // Its columns are the first of a tensor that is as wide.
                    let whole = input(&mut b, &[m, 2 * n]);
                    let split = b.node_n("Split", &[&whole], &axis(1), 2);
                    split[0].clone()
                }
            };
            let product = b.node("MatMul", &[&left, &read], &[]);
            let whole = b.node("Concat", &[&right, &product], &axis(1));
            b.output(&whole);
        }
        // Both softmaxes share a kernel.
        check(&b, 4e-3, 3, &format!("beside first {beside_first}"));
    }
}
