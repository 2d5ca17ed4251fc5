//! How many steps whole models become: what exporters write out, node by node, comes together again.

use crate::support::agree::{close, finish, outputs};
use crate::support::build::{Builder, int, ints};
use barewave::compile::compile;
use barewave::graph::fused::FusedGraph;
use barewave::graph::{self, Options};
use barewave::onnx::{Dim, Model};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use std::collections::BTreeMap;
use std::path::Path;

const TOKENS: usize = 16;
const WIDTH: usize = 64;
const HEADS: usize = 4;

fn kinds(g: &FusedGraph) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    g.steps.iter().for_each(|s| *kinds.entry(s.kind.name()).or_insert(0) += 1);
    kinds
}

/// Fuses, and compares the number of steps, and of launches where the target has kernels for attention.
fn count(b: &Builder, most: usize, launches: usize, what: &str) {
    let g = graph::fuse(&b.model, &Options::default()).unwrap();
    let list: Vec<&str> = g.steps.iter().map(|s| s.name.as_str()).collect();
    assert!(g.steps.len() <= most, "{what}: {} steps {:?}\n{}", g.steps.len(), kinds(&g), list.join("\n"));
    let compiled = compile(&g, Target::GFX942).unwrap();
    let list: Vec<&str> = compiled.plan().launches.iter().map(|l| l.kernel.as_str()).collect();
    assert!(list.len() <= launches, "{what}: {} launches\n{}", list.len(), list.join("\n"));
}

fn number(b: &mut Builder, value: f32) -> String {
    b.constant(HostTensor::from_f32(&[], &[value]))
}

fn linear(b: &mut Builder, x: &str, from: usize, to: usize) -> String {
    let (w, bias) = (b.weight(&[from, to]), b.weight(&[to]));
    let y = b.node("MatMul", &[x, &w], &[]);
    b.node("Add", &[&bias, &y], &[])
}

/// As torch writes it before opset 17.
fn layer_norm(b: &mut Builder, x: &str) -> String {
    let last = [("axes", barewave::onnx::Attribute::Ints(vec![-1]))];
    let mean = b.node("ReduceMean", &[x], &last);
    let d = b.node("Sub", &[x, &mean], &[]);
    let (two, tiny) = (number(b, 2.0), number(b, 1e-5));
    let square = b.node("Pow", &[&d, &two], &[]);
    let variance = b.node("ReduceMean", &[&square], &last);
    let variance = b.node("Add", &[&variance, &tiny], &[]);
    let deviation = b.node("Sqrt", &[&variance], &[]);
    let y = b.node("Div", &[&d, &deviation], &[]);
    let (gamma, beta) = (b.weight(&[WIDTH]), b.weight(&[WIDTH]));
    let y = b.node("Mul", &[&y, &gamma], &[]);
    b.node("Add", &[&y, &beta], &[])
}

fn heads(b: &mut Builder, x: &str, turned: &[usize]) -> String {
    let shape = b.ints(&[1, TOKENS as i64, HEADS as i64, (WIDTH / HEADS) as i64]);
    let x = b.node("Reshape", &[x, &shape], &[]);
    b.node("Transpose", &[&x], &[("perm", ints(turned))])
}

/// Attention over three values of `[1, TOKENS, WIDTH]`.
fn attention(b: &mut Builder, [q, k, v]: [&str; 3], mask: &str) -> String {
    let (q, v) = (heads(b, q, &[0, 2, 1, 3]), heads(b, v, &[0, 2, 1, 3]));
    let k = heads(b, k, &[0, 2, 3, 1]);
    let scores = b.node("MatMul", &[&q, &k], &[]);
    let size = number(b, 4.0);
    let scores = b.node("Div", &[&scores, &size], &[]);
    let scores = b.node("Add", &[&scores, mask], &[]);
    let p = b.node("Softmax", &[&scores], &[("axis", int(-1))]);
    let y = b.node("MatMul", &[&p, &v], &[]);
    let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))]);
    let shape = b.ints(&[1, TOKENS as i64, WIDTH as i64]);
    b.node("Reshape", &[&y, &shape], &[])
}

fn gelu(b: &mut Builder, x: &str) -> String {
    let (root, one, half) = (number(b, 2f32.sqrt()), number(b, 1.0), number(b, 0.5));
    let e = b.node("Div", &[x, &root], &[]);
    let e = b.node("Erf", &[&e], &[]);
    let e = b.node("Add", &[&e, &one], &[]);
    let y = b.node("Mul", &[x, &e], &[]);
    b.node("Mul", &[&y, &half], &[])
}

fn mask(b: &mut Builder) -> String {
    let given = b.input(&[1, TOKENS]);
    let (one, low) = (number(b, 1.0), number(b, -10000.0));
    let one_more = b.ints(&[1, 2]);
    let m = b.node("Unsqueeze", &[&given, &one_more], &[]);
    let m = b.node("Sub", &[&one, &m], &[]);
    b.node("Mul", &[&m, &low], &[])
}

#[test]
fn a_bert_encoder() {
    let mut b = Builder::new(14, 1);
    let mut x = b.input(&[1, TOKENS, WIDTH]);
    let mask = mask(&mut b);
    for _ in 0..12 {
        let [q, k, v] = [(); 3].map(|()| linear(&mut b, &x, WIDTH, WIDTH));
        let a = attention(&mut b, [&q, &k, &v], &mask);
        let a = linear(&mut b, &a, WIDTH, WIDTH);
        let a = b.node("Add", &[&a, &x], &[]);
        let a = layer_norm(&mut b, &a);
        let h = linear(&mut b, &a, WIDTH, 4 * WIDTH);
        let h = gelu(&mut b, &h);
        let h = linear(&mut b, &h, 4 * WIDTH, WIDTH);
        let h = b.node("Add", &[&h, &a], &[]);
        x = layer_norm(&mut b, &h);
    }
    b.output(&x);
    count(&b, 109, 61, "BERT");
}

#[test]
fn gpt_2() {
    let mut b = Builder::new(14, 2);
    let mut x = b.input(&[1, TOKENS, WIDTH]);
    let triangle: Vec<f32> = (0..TOKENS * TOKENS).map(|i| if i % TOKENS > i / TOKENS { -1e4 } else { 0.0 }).collect();
    let mask = b.constant(HostTensor::from_f32(&[1, 1, TOKENS, TOKENS], &triangle));
    for _ in 0..12 {
        let h = layer_norm(&mut b, &x);
        // torch's Conv1D is a Gemm over all rows.
        let rows = b.ints(&[-1, WIDTH as i64]);
        let h = b.node("Reshape", &[&h, &rows], &[]);
        let (w, bias) = (b.weight(&[WIDTH, 3 * WIDTH]), b.weight(&[3 * WIDTH]));
        let h = b.node("Gemm", &[&h, &w, &bias], &[]);
        let back = b.ints(&[1, TOKENS as i64, 3 * WIDTH as i64]);
        let h = b.node("Reshape", &[&h, &back], &[]);
        let parts = b.ints(&[WIDTH as i64; 3]);
        let qkv = b.node_n("Split", &[&h, &parts], &[("axis", int(2))], 3);
        let a = attention(&mut b, [&qkv[0], &qkv[1], &qkv[2]], &mask);
        let a = linear(&mut b, &a, WIDTH, WIDTH);
        x = b.node("Add", &[&a, &x], &[]);
        let h = layer_norm(&mut b, &x);
        let h = linear(&mut b, &h, WIDTH, 4 * WIDTH);
        // GELU by tanh.
        let (three, k, root, one, half) = (
            number(&mut b, 3.0),
            number(&mut b, 0.044715),
            number(&mut b, 0.797_884_6),
            number(&mut b, 1.0),
            number(&mut b, 0.5),
        );
        let cube = b.node("Pow", &[&h, &three], &[]);
        let t = b.node("Mul", &[&cube, &k], &[]);
        let t = b.node("Add", &[&h, &t], &[]);
        let t = b.node("Mul", &[&t, &root], &[]);
        let t = b.node("Tanh", &[&t], &[]);
        let t = b.node("Add", &[&t, &one], &[]);
        let h = b.node("Mul", &[&h, &half], &[]);
        let h = b.node("Mul", &[&h, &t], &[]);
        let h = linear(&mut b, &h, 4 * WIDTH, WIDTH);
        x = b.node("Add", &[&x, &h], &[]);
    }
    let y = layer_norm(&mut b, &x);
    b.output(&y);
    count(&b, 109, 62, "GPT-2");
}

#[test]
fn a_llama_layer() {
    let mut b = Builder::new(17, 3);
    let x = b.input(&[1, TOKENS, WIDTH]);
    let size = WIDTH / HEADS;
    let (cos, sin) = (b.weight(&[1, 1, TOKENS, size]), b.weight(&[1, 1, TOKENS, size]));
    let mask = b.input(&[1, 1, TOKENS, TOKENS]);
    let rms = |b: &mut Builder, x: &str| {
        let (two, tiny, one) = (number(b, 2.0), number(b, 1e-5), number(b, 1.0));
        let s = b.node("Pow", &[x, &two], &[]);
        let s = b.node("ReduceMean", &[&s], &[("axes", barewave::onnx::Attribute::Ints(vec![-1]))]);
        let s = b.node("Add", &[&s, &tiny], &[]);
        let s = b.node("Sqrt", &[&s], &[]);
        let s = b.node("Div", &[&one, &s], &[]);
        let y = b.node("Mul", &[x, &s], &[]);
        let w = b.weight(&[WIDTH]);
        b.node("Mul", &[&w, &y], &[])
    };
    let rotary = |b: &mut Builder, x: &str| {
        let half = size as i64 / 2;
        let (zero, middle, end, axis) = (b.ints(&[0]), b.ints(&[half]), b.ints(&[i64::MAX]), b.ints(&[3]));
        let low = b.node("Slice", &[x, &zero, &middle, &axis], &[]);
        let high = b.node("Slice", &[x, &middle, &end, &axis], &[]);
        let high = b.node("Neg", &[&high], &[]);
        let turned = b.node("Concat", &[&high, &low], &[("axis", int(3))]);
        let a = b.node("Mul", &[x, &cos], &[]);
        let t = b.node("Mul", &[&turned, &sin], &[]);
        b.node("Add", &[&a, &t], &[])
    };
    let h = rms(&mut b, &x);
    let project = |b: &mut Builder, x: &str, from: usize, to: usize| {
        let w = b.weight(&[from, to]);
        b.node("MatMul", &[x, &w], &[])
    };
    let [q, k, v] = [(); 3].map(|()| project(&mut b, &h, WIDTH, WIDTH));
    let [q, k, v] = [q, k, v].map(|t| heads(&mut b, &t, &[0, 2, 1, 3]));
    let (q, k) = (rotary(&mut b, &q), rotary(&mut b, &k));
    let k = b.node("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
    let scores = b.node("MatMul", &[&q, &k], &[]);
    let root = number(&mut b, 4.0);
    let scores = b.node("Div", &[&scores, &root], &[]);
    let scores = b.node("Add", &[&scores, &mask], &[]);
    let p = b.node("Softmax", &[&scores], &[("axis", int(-1))]);
    let a = b.node("MatMul", &[&p, &v], &[]);
    let a = b.node("Transpose", &[&a], &[("perm", ints(&[0, 2, 1, 3]))]);
    let shape = b.ints(&[1, TOKENS as i64, WIDTH as i64]);
    let a = b.node("Reshape", &[&a, &shape], &[]);
    let a = project(&mut b, &a, WIDTH, WIDTH);
    let x = b.node("Add", &[&x, &a], &[]);
    let h = rms(&mut b, &x);
    let (gate, up) = (project(&mut b, &h, WIDTH, 4 * WIDTH), project(&mut b, &h, WIDTH, 4 * WIDTH));
    let s = b.node("Sigmoid", &[&gate], &[]);
    let gate = b.node("Mul", &[&gate, &s], &[]);
    let h = b.node("Mul", &[&gate, &up], &[]);
    let h = project(&mut b, &h, 4 * WIDTH, WIDTH);
    let y = b.node("Add", &[&x, &h], &[]);
    b.output(&y);
    count(&b, 11, 8, "Llama layer");
}

/// A layer of a language model as onnxruntime's generator writes it, one token behind a cache: weights of 4 bits, grouped queries,
/// rotation inside of the attention.
#[test]
fn a_layer_of_packed_weights_decodes() {
    let mut b = Builder::new(21, 4);
    let (past, shared, size) = (20, 2, WIDTH / HEADS);
    let x = b.input(&[1, 1, WIDTH]);
    let caches = [(); 2].map(|()| b.input(&[1, shared, past, size]));
    let lengths = b.input_of(HostTensor::from_i32(&[1, 1], &[past as i32]));
    let total = b.constant(HostTensor::from_i32(&[], &[past as i32 + 1]));
    let (cos, sin) = (b.weight(&[64, size / 2]), b.weight(&[64, size / 2]));
    let project = |b: &mut Builder, x: &str, from: usize, to: usize| {
        let bytes: Vec<i64> = (0..to * from / 2).map(|_| b.below(256) as i64).collect();
        let w = b.constant(HostTensor::from_ints(DType::U8, &[to, from / 32, 16], &bytes));
        let s = b.weight(&[to, from / 32]);
        let sizes = [("K", from), ("N", to), ("bits", 4), ("block_size", 32)].map(|(n, v)| (n, int(v as i64)));
        let y = b.node("MatMulNBits", &[x, &w, &s], &sizes);
        microsoft(b);
        y
    };
    let gamma = b.weight(&[WIDTH]);
    let h = b.node("SimplifiedLayerNormalization", &[&x, &gamma], &[]);
    let [q, k, v] = [WIDTH, shared * size, shared * size].map(|n| project(&mut b, &h, WIDTH, n));
    let names = [&q, &k, &v, &caches[0], &caches[1], &lengths, &total, &cos, &sin].map(String::as_str);
    let attributes =
        [("num_heads", HEADS), ("kv_num_heads", shared), ("do_rotary", 1)].map(|(n, v)| (n, int(v as i64)));
    let made = b.node_n("GroupQueryAttention", &names, &attributes, 3);
    microsoft(&mut b);
    let a = project(&mut b, &made[0], WIDTH, WIDTH);
    let skip = b.node_n("SkipSimplifiedLayerNormalization", &[&x, &a, &gamma], &[], 4);
    microsoft(&mut b);
    let (gate, up) = (project(&mut b, &skip[0], WIDTH, 4 * WIDTH), project(&mut b, &skip[0], WIDTH, 4 * WIDTH));
    let s = b.node("Sigmoid", &[&gate], &[]);
    let gate = b.node("Mul", &[&gate, &s], &[]);
    let h = b.node("Mul", &[&gate, &up], &[]);
    let h = project(&mut b, &h, 4 * WIDTH, WIDTH);
    let y = b.node("Add", &[&skip[3], &h], &[]);
    [&y, &made[1], &made[2]].into_iter().for_each(|o| b.output(o));
    b.model.opsets.insert("com.microsoft".into(), 1);
    b.model.expand();
    count(&b, 14, 11, "decoding layer");
}

/// Puts the last node into onnxruntime's own domain.
fn microsoft(b: &mut Builder) {
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
}

/// Batch normalisation and an activation, as torch exports them before a convolution.
fn normalised(b: &mut Builder, x: &str, channels: usize) -> String {
    let constants: Vec<String> = (0..4)
        .map(|i| {
            let low = if i % 3 == 0 { 0.5 } else { -0.1 };
            let x: Vec<f32> = (0..channels).map(|_| low + 0.2 * b.rng.next_unit() as f32).collect();
            b.constant(HostTensor::from_f32(&[channels], &x))
        })
        .collect();
    let names: Vec<&str> = [x].into_iter().chain(constants.iter().map(String::as_str)).collect();
    let y = b.node("BatchNormalization", &names, &[]);
    b.node("Relu", &[&y], &[])
}

fn windows(b: &mut Builder, x: &str, [from, to, window, stride]: [usize; 4]) -> String {
    let w = b.weight(&[to, from, window, window]);
    let attributes = [("strides", ints(&[stride; 2])), ("pads", ints(&[window / 2; 4]))];
    b.node("Conv", &[x, &w], &attributes)
}

/// DenseNet-201 as torch writes it: each layer reads the list of all that the layers of its block gave, put together anew.
#[test]
fn densenet_201() {
    let mut b = Builder::new(17, 201);
    let x = b.input(&[1, 3, 224, 224]);
    let x = windows(&mut b, &x, [3, 64, 7, 2]);
    let x = normalised(&mut b, &x, 64);
    let pool = [("kernel_shape", ints(&[3; 2])), ("strides", ints(&[2; 2])), ("pads", ints(&[1; 4]))];
    let mut x = b.node("MaxPool", &[&x], &pool);
    let mut channels = 64;
    for (block, layers) in [6, 12, 48, 32].into_iter().enumerate() {
        let mut list = vec![x];
        let all = |b: &mut Builder, list: &[String]| {
            let parts: Vec<&str> = list.iter().map(String::as_str).collect();
            b.node("Concat", &parts, &[("axis", int(1))])
        };
        for _ in 0..layers {
            let y = all(&mut b, &list);
            let y = normalised(&mut b, &y, channels);
            let y = windows(&mut b, &y, [channels, 128, 1, 1]);
            let y = normalised(&mut b, &y, 128);
            list.push(windows(&mut b, &y, [128, 32, 3, 1]));
            channels += 32;
        }
        x = all(&mut b, &list);
        x = normalised(&mut b, &x, channels);
        if block < 3 {
            x = windows(&mut b, &x, [channels, channels / 2, 1, 1]);
            channels /= 2;
            x = b.node("AveragePool", &[&x], &[("kernel_shape", ints(&[2; 2])), ("strides", ints(&[2; 2]))]);
        }
    }
    let x = b.node("GlobalAveragePool", &[&x], &[]);
    let x = b.node("Flatten", &[&x], &[]);
    let (w, bias) = (b.weight(&[1000, channels]), b.weight(&[1000]));
    let y = b.node("Gemm", &[&x, &w, &bias], &[("transB", int(1))]);
    b.output(&y);
    let g = graph::fuse(&b.model, &Options::default()).unwrap();
    for target in [Target::GFX942, Target::GFX1100] {
        let launches = compile(&g, target).unwrap().plan().launches.len();
        assert!(launches <= 207, "{launches} launches, {:?}", kinds(&g));
    }
}

/// A block's 3x3 and last 1x1 convolution in one launch are slower than in two, by the estimate that chooses tiles.
///
/// What lies between them is activated, and workgroups do not wait for each other: a workgroup sums the whole depth of what it gives
/// to the second convolution, so that it takes at least what the 3x3 alone takes where workgroups share no depth (by its definition:
/// with Winograd's method the 16 products of a tile take all of LDS). By the full
/// cycle model that was 22.6, 40.9, 77.4 and 150.6 us on gfx942 for 64, 128, 256 and 512 channels, of five tiles the best; both
/// launches took 16.6, 18.3, 20.7 and 21.9 us.
#[test]
fn blocks_are_slower_in_one_launch() {
    for target in [Target::GFX942, Target::GFX1100] {
        let chip = barewave_timing::Chip::of(target).unwrap();
        let launch = chip.launch_us * chip.boost_mhz;
        for (channels, side) in [(64, 56), (128, 28), (256, 14), (512, 7)] {
            let ways = |results: usize, window: usize| {
                let mut b = Builder::new(17, 1);
                let x = b.input(&[1, channels, side, side]);
                let y = windows(&mut b, &x, [channels, results, window, 1]);
                b.output(&y);
                let g = graph::fuse(&b.model, &Options::default()).unwrap();
                barewave::kernels::candidates(&g, &g.steps[0], target, &Default::default()).unwrap().candidates
            };
            let (first, second) = (ways(channels, 3), ways(4 * channels, 1));
            let two = first[0].clocks + second[0].clocks + launch;
            let whole = first
                .iter()
                .filter(|c| c.parts == 1 && c.way != barewave::kernels::Way::Winograd)
                .map(|c| c.clocks)
                .fold(f64::INFINITY, f64::min);
            println!("{target}, {channels} channels: {two:.0} clocks in two launches, 3x3 of whole depths {whole:.0}");
            assert!(whole > two, "{target}, {channels} channels: {whole} and {two} clocks");
        }
    }
}

/// What each of them takes on gfx942, at most.
///
/// ResNet-50 in 37 launches would need each block's 3x3 and last 1x1 convolution in one, which is slower
/// ([`blocks_are_slower_in_one_launch`]). The projections of four blocks are depth of their last products.
#[test]
fn networks_of_convolutions() {
    let Some(data) = std::env::var_os("BAREWAVE_ONNX_DATA") else {
        return eprintln!("skipped: BAREWAVE_ONNX_DATA does not name ONNX's test data");
    };
    for (name, most) in
        [("resnet50", 53), ("squeezenet", 23), ("densenet121", 127), ("inception_v1", 66), ("inception_v2", usize::MAX)]
    {
        let file = Path::new(&data).join(format!("light/light_{name}.onnx"));
        let g = graph::fuse(&Model::load(&file).unwrap(), &Options::default()).unwrap();
        for target in [Target::GFX942, Target::GFX1100] {
            let compiled = compile(&g, target).unwrap();
            let plan = compiled.plan();
            let launches = plan.launches.len();
            assert!(launches <= most, "{name}: {launches} launches, {} steps {:?}", g.steps.len(), kinds(&g));
            // The most that is alive at once, with what kernels need beside it, is a lower bound of the arena.
            let least = plan.launches.iter().map(|l| l.live_bytes).max().unwrap_or(0);
            assert!(plan.arena_bytes * 10 <= least * 11, "{name}: an arena of {} bytes for {least}", plan.arena_bytes);
        }
    }
}

/// Parts of one tensor are moved side by side, wherever they lie in it, and whatever else is computed of them.
#[test]
fn parts_that_are_alike_go_in_one_launch() {
    let launched = |b: &Builder| {
        let g = graph::fuse(&b.model, &Options::default()).unwrap();
        compile(&g, Target::GFX942).unwrap().plan().launches.len()
    };
    for (axis, lengths, launches) in [(0, &[4; 5][..], 1), (1, &[4; 5], 1), (2, &[16; 9], 1), (1, &[8, 4, 8, 4, 16], 1)]
    {
        for dtype in [DType::F32, DType::F16, DType::I8] {
            for relu in [false, true] {
                let mut b = Builder::new(18, 40 + axis as u64);
                let parts: Vec<String> = lengths
                    .iter()
                    .map(|n| {
                        let mut shape = [2, 3, 4];
                        shape[axis] = *n;
                        let values: Vec<f64> =
                            (0..shape.iter().product()).map(|_| b.below(100) as f64 - 50.0).collect();
                        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &values));
                        if relu { b.node("Relu", &[&x], &[]) } else { x }
                    })
                    .collect();
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                let y = b.node("Concat", &parts, &[("axis", int(axis as i64))]);
                finish(&mut b, "", &[y]);
                let what = format!("{lengths:?} of {dtype} along {axis}, {relu}");
                assert_eq!(launched(&b), launches, "{what}");
                outputs(&b, &what, 0.0);
            }
        }
    }
    for axis in [0, 1, 2] {
        let mut b = Builder::new(18, 50);
        let x = b.input(&[6, 12, 12]);
        let y = b.node_n("Split", &[&x], &[("axis", int(axis)), ("num_outputs", int(3))], 3);
        finish(&mut b, "", &y);
        assert_eq!(launched(&b), 1, "split along {axis}");
        let parts = outputs(&b, &format!("split along {axis}"), 0.0);
        let all: f64 = parts.iter().flat_map(HostTensor::to_f64).sum();
        close(&[all], &[b.inputs[0].to_f64().iter().sum()], 1e-5, "their sum");
    }
    // Nor do different tensors of the caller's.
    let mut b = Builder::new(18, 55);
    let x = [0; 3].map(|_| b.input(&[5, 7]));
    let y = x.map(|x| b.node("Exp", &[&x], &[]));
    finish(&mut b, "", &y);
    assert_eq!(launched(&b), 1, "exponentials");
    outputs(&b, "exponentials", 1e-6);
    // What a part is made of is given up behind it, and what comes behind all is not.
    let mut b = Builder::new(18, 60);
    let (x, w) = (b.input(&[4, 64]), b.weight(&[64, 64]));
    let mut parts = Vec::new();
    for i in 0..6 {
        let shift = number(&mut b, i as f32 / 8.0);
        let moved = b.node("Add", &[&x, &shift], &[]);
        let y = b.node("MatMul", &[&moved, &w], &[]);
        parts.push(b.node("Softmax", &[&y], &[("axis", int(0))]));
    }
    let all: Vec<&str> = parts.iter().chain(&parts).map(String::as_str).collect();
    let y = b.node("Concat", &all, &[("axis", int(1))]);
    let z = b.node("Softmax", &[&y], &[("axis", int(1))]);
    finish(&mut b, "", &[z]);
    outputs(&b, "parts that are used twice", 1e-5);
}

/// What Split takes apart lies together again in what Concat gives (YOLO's C2f): nothing is copied, unless its order is another.
#[test]
fn parts_that_lie_together_again() {
    for (order, images, copies) in [([0, 1, 2], 2, 0), ([2, 0, 1], 1, 0), ([1, 0, 2], 2, 2), ([0, 2, 1], 1, 2)] {
        let mut b = Builder::new(18, 61);
        let x = b.input(&[images, 8, 6, 6]);
        let convolved = |b: &mut Builder, x: &str, inputs: usize, outputs: usize| {
            let w = b.weight(&[outputs, inputs, 3, 3]);
            b.node("Conv", &[x, &w], &[("pads", ints(&[1; 4]))])
        };
        let y = convolved(&mut b, &x, 8, 12);
        let halves = b.node_n("Split", &[&y], &[("axis", int(1)), ("num_outputs", int(2))], 2);
        let z = convolved(&mut b, &halves[1], 6, 6);
        let z = b.node("Add", &[&halves[1], &z], &[]);
        let parts = [&halves[0], &halves[1], &z];
        let parts = order.map(|i| parts[i].as_str());
        let all = b.node("Concat", &parts, &[("axis", int(1))]);
        let y = convolved(&mut b, &all, 18, 4);
        b.output(&y);
        let g = graph::fuse(&b.model, &Options::default()).unwrap();
        assert_eq!(g.steps.len(), 3 + copies, "{order:?} of {images}");
        outputs(&b, &format!("parts in the order {order:?} of {images}"), 1e-5);
    }
}

/// Images that are shifted around their edges, and cut into windows (Swin): one step moves them, and two move them back, of which the second adds.
#[test]
fn shifted_windows() {
    for images in [1, 2] {
        let mut b = Builder::new(18, 62);
        let x = b.input(&[images as usize, 8, 12, 8]);
        let slice = |b: &mut Builder, x: &str, from: i64, to: i64, axis: i64| {
            let (from, to, axis) = (b.ints(&[from]), b.ints(&[to]), b.ints(&[axis]));
            b.node("Slice", &[x, &from, &to, &axis], &[])
        };
        let shifted = |b: &mut Builder, x: &str, by: i64, axis: i64| {
            let (first, last) = (slice(b, x, by, 100, axis), slice(b, x, 0, by, axis));
            b.node("Concat", &[&first, &last], &[("axis", int(axis))])
        };
        let shaped = |b: &mut Builder, x: &str, shape: &[i64], order: Option<[usize; 6]>| {
            let shape = b.ints(shape);
            let y = b.node("Reshape", &[x, &shape], &[]);
            order.map_or(y.clone(), |order| b.node("Transpose", &[&y], &[("perm", ints(&order))]))
        };
        let down = shifted(&mut b, &x, 3, 1);
        let both = shifted(&mut b, &down, 3, 2);
        let windows = shaped(&mut b, &both, &[images, 2, 4, 3, 4, 8], Some([0, 1, 3, 2, 4, 5]));
        let rows = shaped(&mut b, &windows, &[6 * images, 16, 8], None);
        let w = b.weight(&[8, 8]);
        let y = b.node("MatMul", &[&rows, &w], &[]);
        let moved = shaped(&mut b, &y, &[images, 2, 3, 4, 4, 8], Some([0, 1, 3, 2, 4, 5]));
        let image = shaped(&mut b, &moved, &[images, 8, 12, 8], None);
        let up = shifted(&mut b, &image, -3, 1);
        let back = shifted(&mut b, &up, -3, 2);
        let y = b.node("Add", &[&x, &back], &[]);
        finish(&mut b, "", &[y]);
        count(&b, 4, 4, "shifted windows");
        outputs(&b, &format!("shifted windows of {images}"), 1e-5);
    }
}

/// Parts of a dimension in any order, some twice, some of every other place: what Concat makes of them is not copied.
#[test]
fn parts_of_a_dimension_in_any_order() {
    for (parts, copies) in
        [(vec![(4, 9, 1), (0, 4, 1)], 0), (vec![(2, 5, 1), (0, 9, 1), (2, 3, 1)], 0), (vec![(0, 9, 2), (1, 9, 2)], 3)]
    {
        let mut b = Builder::new(18, 63);
        let x = b.input(&[3, 9, 4, 2]);
        let parts: Vec<String> = parts
            .into_iter()
            .map(|(from, to, step)| {
                let [from, to, axis, step] = [from, to, 1, step].map(|i| b.ints(&[i]));
                b.node("Slice", &[&x, &from, &to, &axis, &step], &[])
            })
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let y = b.node("Concat", &parts, &[("axis", int(1))]);
        let y = b.node("Relu", &[&y], &[]);
        finish(&mut b, "", &[y]);
        count(&b, 1 + copies, 1 + copies, "parts in any order");
        outputs(&b, &format!("{} parts in any order", parts.len()), 0.0);
    }
}

/// Kernels for any extents take a workitem for each element, or a workgroup for a line: of models with open extents small steps, and few short lines.
#[test]
fn large_steps_of_open_models_have_kernels_of_their_own() {
    for (shape, op, own) in [
        (vec![1, 16, 8, 8], "Transpose", false),
        (vec![1, 64, 128, 128], "Transpose", true),
        (vec![1, 100, 16], "Softmax", false),
        (vec![1, 4096, 4], "Softmax", true),
    ] {
        let mut b = Builder::new(18, 64);
        let x = b.input(&shape);
        let order = [("perm", ints(&[0, 2, 3, 1]))];
        let y = b.node(op, &[&x], if op == "Transpose" { &order } else { &[] });
        finish(&mut b, "", &[y]);
        let declared = b.model.graph.inputs[0].shape.as_mut().unwrap();
        declared[0] = Dim::Symbol("batch".into());
        let options = Options { dims: BTreeMap::from([("batch".to_string(), 1)]), ..Options::default() };
        let compiled = compile(&graph::fuse(&b.model, &options).unwrap(), Target::GFX906).unwrap();
        let [launch] = &compiled.plan().launches[..] else { panic!("{op} of {shape:?} is one launch") };
        let elements: usize = shape.iter().product();
        let workitems = (launch.grid[0] * launch.block) as usize;
        assert_eq!(workitems < elements, own, "{op} of {shape:?}: {workitems} workitems");
    }
}

#[test]
fn nodes_that_read_only_extents_keep_nothing_in_memory() {
    // As older exporters write `norm(linear(x).flatten(0, 1)).reshape_as(x)`, and an activation whose extents are asked for.
    let mut b = Builder::new(17, 65);
    let x = b.input(&[1, TOKENS, WIDTH]);
    let w = b.weight(&[WIDTH, WIDTH]);
    let y = b.node("MatMul", &[&x, &w], &[]);
    let shape = b.node("Shape", &[&y], &[]);
    let rows = b.ints(&[-1, WIDTH as i64]);
    let flat = b.node("Reshape", &[&y, &rows], &[]);
    let [scale, shift, mean] = [0; 3].map(|_| b.weight(&[WIDTH]));
    let variance = b.constant(HostTensor::from_f32(&[WIDTH], &[0.5; WIDTH]));
    let normed = b.node("BatchNormalization", &[&flat, &scale, &shift, &mean, &variance], &[]);
    let y = b.node("Reshape", &[&normed, &shape], &[]);
    let (half, root, one) = (number(&mut b, 0.5), number(&mut b, std::f32::consts::SQRT_2), number(&mut b, 1.0));
    let shape = b.node("Shape", &[&y], &[]);
    let d = b.node("Div", &[&y, &root], &[]);
    let e = b.node("Erf", &[&d], &[]);
    let e = b.node("Add", &[&e, &one], &[]);
    let e = b.node("Mul", &[&y, &e], &[]);
    let y = b.node("Mul", &[&e, &half], &[]);
    let y = b.node("Reshape", &[&y, &shape], &[]);
    finish(&mut b, "", &[y]);
    count(&b, 1, 1, "extents");
    outputs(&b, "extents", 1e-5);
}
