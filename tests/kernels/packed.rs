//! Matrix products with weights of few bits that stay packed in memory: alone, with the normalisation of their rows, and gated by another.

use crate::support::agree::close;
use crate::support::bounds::{TARGETS, bound, check, fraction, values};
use crate::support::build::{Builder, int};
use crate::support::{device, drawn};
use barewave::compile;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{Options, fuse};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;

/// Rows, depth, columns, bits, block, zero points (none, packed, values), bias.
type PackedCase = ([usize; 3], usize, usize, u8, bool);

/// A product of several rows that matrix instructions may compute, or whose weights may be widened.
fn by_matrix(t: DType, [m, n]: [usize; 2], zero: u8) -> bool {
    m > 8 || t == DType::F16 && m > 1 && n.is_multiple_of(16) && zero == 0
}

/// One product with packed weights, and what it gives with a bound of its error.
fn packed_product(t: DType, seed: u64, ([m, k, n], bits, block, zero, bias): PackedCase) -> (Builder, Vec<(f64, f64)>) {
    let mut b = Builder::new(17, seed);
    let x = values(&mut b, t, &[m, k]);
    let xn = b.input_of(x.clone());
    let (blocks, each) = (k / block, 8 / bits);
    let numbers: Vec<i64> = (0..n * k).map(|_| b.below(1 << bits) as i64).collect();
    let pack = |row: &[i64]| -> Vec<i64> {
        row.chunks(each).map(|c| c.iter().enumerate().map(|(i, v)| v << (i * bits)).sum()).collect()
    };
    let packed: Vec<i64> = numbers.chunks(k).flat_map(pack).collect();
    let packed = b.constant(HostTensor::from_ints(DType::U8, &[n, blocks, block / each], &packed));
    let scales = values(&mut b, t, &[n, blocks]);
    let sn = b.constant(scales.clone());
    let mut zeros = vec![(1i64 << (bits - 1)) as f64; n * blocks];
    let mut names = vec![xn, packed, sn];
    if zero > 0 {
        let list: Vec<i64> = (0..n * blocks).map(|_| b.below(1 << bits) as i64).collect();
        zeros = list.iter().map(|v| *v as f64).collect();
        let rows: Vec<i64> = list.chunks(blocks).flat_map(pack).collect();
        names.push(b.constant(match zero {
            1 => HostTensor::from_ints(DType::U8, &[n, rows.len() / n], &rows),
            _ => HostTensor::from_f64(t, &[n, blocks], &zeros),
        }));
    }
    let added = values(&mut b, t, &[n]);
    if bias {
        names.resize(5, String::new());
        names.push(b.constant(added.clone()));
    }
    let attributes = [("K", k), ("N", n), ("bits", bits), ("block_size", block)].map(|(a, v)| (a, int(v as i64)));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let y = b.node("MatMulNBits", &names, &attributes);
    let last = b.model.graph.nodes.len() - 1;
    b.model.graph.nodes[last].domain = "com.microsoft".into();
    b.output(&y);
    b.model.opsets.insert("com.microsoft".into(), 1);
    let (x, s, added) = (x.to_f64(), scales.to_f64(), added.to_f64());
    let want = (0..m * n).map(|i| {
        let (row, c) = (i / n, i % n);
        let (mut sum, mut mass) = if bias { (added[c], added[c].abs()) } else { (0.0, 0.0) };
        for l in 0..k {
            let at = c * blocks + l / block;
            let (q, z, f) = (numbers[c * k + l] as f64, zeros[at], x[row * k + l] * s[at]);
            sum += f * (q - z);
            // Numbers and zero points may be summed apart.
            mass += f.abs() * (q + z);
        }
        let bias = if bias { added[c].abs() + sum.abs() } else { 0.0 };
        // Matrix instructions multiply numbers that are scaled, and rounded, before.
        let scaled = if by_matrix(t, [m, n], zero) { mass * 2f64.powi(-fraction(t) - 1) } else { 0.0 };
        (sum, bound(t, sum.abs(), k, mass) + scaled + bias * 2f64.powi(-fraction(t) - 1))
    });
    let want = want.collect();
    (b, want)
}

#[test]
fn products_with_packed_weights() {
    let cases: [PackedCase; 22] = [
        ([1, 64, 8], 4, 32, 0, false),
        ([1, 4096, 12], 4, 32, 1, true),
        ([1, 11008, 4], 4, 128, 0, false),
        ([2, 96, 7], 4, 16, 1, false),
        ([3, 160, 10], 4, 32, 2, true),
        ([8, 256, 5], 4, 64, 0, false),
        ([5, 1024, 300], 4, 256, 1, false),
        ([1, 48, 33], 8, 16, 1, true),
        ([4, 512, 6], 8, 128, 0, false),
        ([1, 2048, 9], 8, 64, 2, false),
        ([1, 192, 14], 2, 16, 1, false),
        ([6, 320, 3], 2, 64, 0, true),
        ([2, 128, 1], 2, 32, 2, false),
        // By matrix instructions: runs of several blocks, lanes without a run, several rounds, columns of one tile and of two.
        ([8, 160, 16], 4, 32, 0, true),
        ([6, 4096, 48], 4, 32, 0, false),
        ([7, 96, 64], 4, 16, 0, true),
        ([2, 11008, 32], 4, 128, 0, false),
        ([8, 1040, 16], 8, 16, 0, false),
        ([5, 384, 80], 2, 64, 0, true),
        // With weights that are widened first, where there are no such instructions.
        ([16, 1024, 32], 4, 32, 0, true),
        ([9, 160, 16], 4, 32, 1, false),
        ([13, 192, 10], 8, 64, 2, true),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        for t in [DType::F16, DType::BF16, DType::F32] {
            let (b, want) = packed_product(t, 300 + number as u64, case);
            check(&b, &format!("{t} {case:?}"), &want, &TARGETS);
            let graph = fuse(&b.model, &Options::default()).unwrap();
            assert_eq!((graph.steps.len(), graph.steps[0].kind.name()), (1, "packed"));
        }
    }
}

/// A normalisation and the products that read it are as many launches as there are products where rows are short, which give what the
/// f64 interpreter makes of them one after the other.
#[test]
fn products_with_packed_weights_normalise_their_rows() {
    // Rows, depth and columns, bits, block, zero points; with a mean, how many products.
    let cases: [(PackedCase, bool, usize); 6] = [
        (([1, 4096, 40], 4, 32, 0, false), false, 2),
        (([1, 96, 7], 4, 16, 1, true), true, 1),
        (([2, 1056, 33], 4, 32, 2, false), false, 1),
        (([3, 320, 10], 8, 64, 0, true), true, 1),
        (([1, 192, 14], 2, 32, 1, false), false, 1),
        (([1, 2048, 300], 4, 128, 0, false), true, 1),
    ];
    for (number, (case, center, products)) in cases.into_iter().enumerate() {
        for t in [DType::F16, DType::BF16, DType::F32] {
            let (mut b, _) = packed_product(t, 600 + number as u64, case);
            let k = case.0[1];
            let [scale, bias] = [(); 2].map(|()| values(&mut b, t, &[k])).map(|x| b.constant(x));
            let first = b.model.graph.nodes.len() - 1;
            let x = b.model.graph.nodes[first].inputs[0].clone();
            let y = match center {
                true => b.node("LayerNormalization", &[&x, &scale, &bias], &[]),
                false => b.node("SimplifiedLayerNormalization", &[&x, &scale], &[]),
            };
            let norm = b.model.graph.nodes.pop().unwrap();
            b.model.graph.nodes[first].inputs[0] = y;
            // Another product of the same rows, whose end is another: it stays a step of its own.
            for _ in 1..products {
                let mut product = b.model.graph.nodes[first].clone();
                let made = b.node("Neg", &[&product.outputs[0]], &[]);
                let last = b.model.graph.nodes.pop().unwrap();
                product.outputs[0] = format!("{made}_product");
                let last = barewave::onnx::Node { inputs: vec![product.outputs[0].clone()], ..last };
                b.model.graph.nodes.extend([product, last]);
                b.output(&made);
            }
            b.model.graph.nodes.insert(0, norm);
            b.model.expand();
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let want = Interpreter::new(&graph).run(&graph, &b.inputs).unwrap();
            for target in TARGETS {
                let what = format!("{t} {case:?} {target}");
                if !drawn(&format!("rows {what}")) {
                    continue;
                }
                let compiled = compile::compile(&graph, Target::parse(target).unwrap()).unwrap();
                // Products that follow each other may share a launch.
                let launches: usize = compiled.plan().launches.iter().map(|l| l.chain.len().max(1)).sum();
                // Rows of over 8 KB leave room for too few workgroups.
                let apart = usize::from(case.0[0] * k * t.size() > 8192);
                assert_eq!(launches, products + apart, "{what}");
                let (got, _) = device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
                for (g, w) in got.iter().zip(&want) {
                    close(&g.to_f64(), &w.to_f64(), 3.0 * 2f64.powi(-fraction(t).min(19)), &what);
                }
            }
        }
    }
}

/// A product that another gates is one launch with it, or of more rows one behind that which widens both's weights, which gives what the f64 interpreter
/// makes of both, gated here.
#[test]
fn products_with_packed_weights_are_gated() {
    let cases: [PackedCase; 9] = [
        ([8, 1024, 48], 4, 32, 0, false),
        ([6, 192, 16], 2, 32, 0, false),
        ([1, 1024, 40], 4, 32, 0, false),
        ([1, 96, 7], 4, 16, 1, false),
        ([3, 160, 10], 4, 32, 2, false),
        ([1, 192, 14], 2, 32, 1, false),
        ([8, 256, 33], 4, 128, 0, false),
        ([131, 256, 34], 4, 32, 1, false),
        ([11, 192, 48], 2, 32, 2, false),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        for t in [DType::F16, DType::BF16, DType::F32] {
            let (mut b, _) = packed_product(t, 700 + number as u64, case);
            // Another product of the same rows: its weights are the other's backwards.
            let mut other = b.model.graph.nodes.last().unwrap().clone();
            let gate = other.outputs[0].clone();
            for name in other.inputs[1..].iter_mut().filter(|n| !n.is_empty()) {
                let given = b.model.graph.initializers[name.as_str()].clone();
                let mut list = given.to_f64();
                list.reverse();
                *name = b.constant(HostTensor::from_f64(given.dtype(), given.shape(), &list));
            }
            other.outputs[0] = format!("{gate}_up");
            let up = other.outputs[0].clone();
            // What is gated stands behind its gate, or in front of it.
            let at = b.model.graph.nodes.len() - number % 2;
            b.model.graph.nodes.insert(at, other);
            let mut apart = b.model.clone();
            apart.graph.outputs[0].name = gate.clone();
            let mut more = apart.graph.outputs[0].clone();
            more.name = up.clone();
            apart.graph.outputs.push(more);
            let apart = fuse(&apart, &Options::default()).unwrap();
            let both = Interpreter::new(&apart).run(&apart, &b.inputs).unwrap();
            let (g, u) = (both[0].to_f64(), both[1].to_f64());
            let want: Vec<f64> = g.iter().zip(&u).map(|(g, u)| 1.0 - g / (1.0 + (-g).exp()) * u).collect();
            let s = b.node("Sigmoid", &[&gate], &[]);
            let s = b.node("Mul", &[&gate, &s], &[]);
            let y = b.node("Mul", &[&s, &up], &[]);
            let one = b.constant(HostTensor::from_f64(t, &[], &[1.0]));
            let y = b.node("Sub", &[&one, &y], &[]);
            b.model.graph.outputs[0].name = y;
            let graph = fuse(&b.model, &Options::default()).unwrap();
            let rows = case.0[0];
            assert_eq!(graph.steps.len(), if rows > 8 { 2 } else { 1 }, "{t} {case:?}");
            let most = if rows > 8 { 16.0 } else { 4.0 };
            for target in TARGETS {
                let what = format!("{t} {case:?} {target}");
                if drawn(&format!("gated {what}")) {
                    let (got, _) =
                        device::run(&graph, &b.inputs, target, true).unwrap_or_else(|e| panic!("{what}: {e}"));
                    close(&got[0].to_f64(), &want, most * 2f64.powi(-fraction(t).min(19)), &what);
                }
            }
        }
    }
}

#[test]
fn weights_of_few_bits() {
    // Type, bits, rows, depth, columns, block: lanes without a chunk, blocks and waves that end early, several rounds.
    let cases = [
        (DType::F32, 4, 1, 96, 9, 32),
        (DType::F16, 4, 3, 2208, 33, 32),
        (DType::BF16, 4, 2, 72, 16, 16),
        (DType::F16, 8, 4, 200, 17, 64),
        (DType::F32, 2, 1, 1000, 5, 128),
        (DType::F16, 4, 1, 17_024, 3, 128),
    ];
    for (number, (t, bits, rows, k, n, block)) in cases.into_iter().enumerate() {
        for zeros in 0..3 {
            let mut b = Builder::new(17, (number * 3 + zeros) as u64);
            let (blocks, each) = (usize::div_ceil(k, block), 8 / bits);
            let fields =
                |b: &mut Builder, count: usize| -> Vec<i64> { (0..count).map(|_| b.below(1 << bits) as i64).collect() };
            let pack = |list: &[i64], line: usize| -> Vec<i64> {
                let bytes = |c: &[i64]| c.iter().enumerate().map(|(i, v)| v << (i * bits)).sum();
                list.chunks(line).flat_map(|l| l.chunks(each).map(bytes).collect::<Vec<_>>()).collect()
            };
            let (x, s) = (values(&mut b, t, &[rows, k]), values(&mut b, t, &[n * blocks]));
            let q = fields(&mut b, n * blocks * block);
            let z = match zeros {
                0 => vec![1 << (bits - 1); n * blocks],
                _ => fields(&mut b, n * blocks),
            };
            let w = HostTensor::from_ints(DType::U8, &[n, blocks, block / each], &pack(&q, q.len()));
            let packed = pack(&z, blocks);
            let mut names = vec![b.input_of(x.clone()), b.constant(w), b.constant(s.clone())];
            match zeros {
                0 => {}
                1 => names.push(b.constant(HostTensor::from_ints(DType::U8, &[packed.len()], &packed))),
                _ => {
                    let numbers: Vec<f64> = z.iter().map(|v| *v as f64).collect();
                    names.push(b.constant(HostTensor::from_f64(t, &[n * blocks], &numbers)));
                }
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let sizes = [("K", k), ("N", n), ("bits", bits), ("block_size", block)].map(|(a, v)| (a, int(v as i64)));
            let y = b.node("MatMulNBits", &names, &sizes);
            let y = b.node("Relu", &[&y], &[]);
            b.output(&y);
            b.model.graph.nodes[0].domain = "com.microsoft".into();
            b.model.opsets.insert("com.microsoft".into(), 1);
            let (x, s) = (x.to_f64(), s.to_f64());
            let element = |i: usize| {
                let (row, column) = (i / n, i % n);
                let terms = (0..k).map(|l| {
                    let at = column * blocks + l / block;
                    let x = x[row * k + l] * s[at];
                    let (q, z) = (q[column * blocks * block + l] as f64, z[at] as f64);
                    (x * (q - z), x.abs() * (q + z))
                });
                let (sum, mass) = terms.fold((0.0, 0.0), |(s, m): (f64, f64), (x, y)| (s + x, m + y));
                (sum.max(0.0), bound(t, sum.abs(), k, mass))
            };
            let want: Vec<(f64, f64)> = (0..rows * n).map(element).collect();
            check(&b, &format!("{t} {bits} bits {rows}x{k}x{n}, blocks of {block}, zeros {zeros}"), &want, &TARGETS);
        }
    }
}
