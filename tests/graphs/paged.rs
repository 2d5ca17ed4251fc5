//! Attention over caches in blocks, of sequences whose lengths a run tells, against each token by itself.

use crate::support::agree::{TARGETS, close, finish, outputs};
use crate::support::build::{Builder, float, int};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, compile};
use barewave_isa::Target;

/// Sequences and a cache for them.
#[derive(Clone)]
struct Case {
    name: &'static str,
    dtype: DType,
    /// How many keys each sequence has had, and new tokens; what it has had may be nonsense.
    sequences: &'static [(i64, usize)],
    heads: usize,
    shared: usize,
    size: usize,
    block: usize,
    /// Queries, keys and values in one tensor.
    together: bool,
    /// Pairs of elements beside each other, or half a head apart, and how many of a head are rotated.
    rotary: Option<(bool, usize)>,
    softcap: f64,
    scale: f64,
    window: i64,
    causal: bool,
    norms: bool,
    /// Where new keys go is told; some are there already and go nowhere.
    slots: bool,
    /// Tokens behind those of all sequences.
    padding: usize,
    /// An entry in the middle of a row names no block.
    hole: bool,
}

const PLAIN: Case = Case {
    name: "plain",
    dtype: DType::F32,
    sequences: &[(9, 1), (0, 1), (16, 1)],
    heads: 4,
    shared: 2,
    size: 16,
    block: 8,
    together: false,
    rotary: None,
    softcap: 0.0,
    scale: 0.0,
    window: -1,
    causal: true,
    norms: false,
    slots: false,
    padding: 0,
    hole: false,
};

/// Sequences that begin, decode, wait and go on with several tokens.
const MIXED: &[(i64, usize)] = &[(0, 17), (13, 1), (5, 0), (21, 5)];

/// Where a key lies, by the table.
struct Table {
    width: usize,
    block: usize,
    blocks: usize,
    entries: Vec<i32>,
}

impl Table {
    fn row(&self, sequence: usize, at: usize) -> Option<usize> {
        let entry = self.entries[sequence * self.width + at / self.block];
        (0..self.blocks as i32).contains(&entry).then(|| entry as usize * self.block + at % self.block)
    }
}

fn attends(case: &Case) {
    let Case { dtype, heads, shared, size, block, .. } = *case;
    let mut b = Builder::new(23, 3 + case.name.len() as u64);
    let batch = case.sequences.len();
    let mut ends = vec![0];
    case.sequences.iter().for_each(|s| ends.push(ends.last().unwrap() + s.1 as i32));
    let tokens = *ends.last().unwrap() as usize + case.padding;
    // Blocks in any order; rows end with what names none, or none that counts.
    let needed: Vec<usize> = case.sequences.iter().map(|s| (s.0.max(0) as usize + s.1).div_ceil(block)).collect();
    let width = needed.iter().max().unwrap() + 2;
    let blocks = needed.iter().sum::<usize>() + 3;
    let mut free: Vec<i32> = (0..blocks as i32).collect();
    (1..blocks).rev().for_each(|i| free.swap(i, b.below(i + 1)));
    let junk = [-1, 1 << 20, 0, i32::MIN, -7];
    let mut entries: Vec<i32> = (0..batch * width).map(|i| junk[i % junk.len()]).collect();
    for (s, n) in needed.iter().enumerate() {
        (0..*n).for_each(|i| entries[s * width + i] = free.pop().unwrap());
    }
    if case.hole {
        let longest = needed.iter().position(|n| *n + 2 == width).unwrap();
        entries[longest * width + 1] = -1;
    }
    let table = Table { width, block, blocks, entries };
    // What no sequence has had was never written.
    let rows = blocks * block;
    let mut held = vec![false; rows];
    for (s, (past, _)) in case.sequences.iter().enumerate() {
        (0..(*past).max(0) as usize).filter_map(|at| table.row(s, at)).for_each(|row| held[row] = true);
    }
    // Which sequence a token is of, and its place there.
    let of = |t: usize| {
        let s = (0..batch).find(|s| (ends[*s]..ends[s + 1]).contains(&(t as i32)))?;
        let at = case.sequences[s].0 + t as i64 - i64::from(ends[s]);
        (case.sequences[s].0 >= 0).then_some((s, at as usize))
    };
    // Keys that a scheduler knows to be there already are not written.
    let place = |t: usize| of(t).and_then(|(s, at)| table.row(s, at));
    let there = |t: usize| case.slots && t % 3 == 1;
    (0..tokens).filter(|t| there(*t)).filter_map(place).for_each(|row| held[row] = true);
    let slot = |t: usize| place(t).filter(|_| !there(t));
    let inner = shared * size;
    let given = |b: &mut Builder, shape: &[usize]| {
        let x = b.random(shape).to_f64();
        HostTensor::from_f64(dtype, shape, &x)
    };
    let caches = [(); 2].map(|()| {
        let mut x = given(&mut b, &[rows, inner]).to_f64();
        (0..rows * inner).filter(|i| !held[i / inner]).for_each(|i| x[i] = f64::NAN);
        HostTensor::from_f64(dtype, &[blocks, block, shared, size], &x)
    });
    let new = [heads, shared, shared].map(|n| given(&mut b, &[tokens, n * size]));
    let given_new = if case.together {
        let parts: Vec<Vec<f64>> = new.iter().map(HostTensor::to_f64).collect();
        let row =
            |t: usize| parts.iter().flat_map(move |x| x[t * x.len() / tokens..(t + 1) * x.len() / tokens].to_vec());
        let all: Vec<f64> = (0..tokens).flat_map(row).collect();
        let all = HostTensor::from_f64(dtype, &[tokens, (heads + 2 * shared) * size], &all);
        [b.input_of(all), String::new(), String::new()]
    } else {
        new.clone().map(|x| b.input_of(x))
    };
    let cache_names = caches.clone().map(|x| b.input_of(x));
    let past: Vec<i32> = case.sequences.iter().map(|s| s.0 as i32).collect();
    let lists = [
        b.input_of(HostTensor::from_i32(&[batch + 1], &ends)),
        b.input_of(HostTensor::from_i32(&[batch], &past)),
        b.input_of(HostTensor::from_i32(&[batch, width], &table.entries)),
    ];
    let mut optional = vec![String::new(); 9];
    let mut turns = None;
    if let Some((_, rotated)) = case.rotary {
        let tables = [(); 2].map(|()| given(&mut b, &[64, rotated / 2]));
        optional[0] = b.input_of(tables[0].clone());
        optional[1] = b.input_of(tables[1].clone());
        turns = Some(tables.map(|t| t.to_f64()));
    }
    if case.slots {
        let list: Vec<i32> = (0..tokens).map(|t| slot(t).map_or(-1, |row| row as i32)).collect();
        optional[2] = b.input_of(HostTensor::from_i32(&[tokens], &list));
    }
    let mut gains = None;
    if case.norms {
        let weights = [(); 2].map(|()| given(&mut b, &[size]));
        optional[4] = b.input_of(weights[0].clone());
        optional[5] = b.input_of(weights[1].clone());
        gains = Some(weights.map(|w| w.to_f64()));
    }
    let names = given_new.iter().chain(&cache_names).chain(&lists).chain(&optional).map(String::as_str);
    let mut attributes = vec![("num_heads", int(heads as i64)), ("kv_num_heads", int(shared as i64))];
    attributes.push(("softcap", float(case.softcap as f32)));
    attributes.push(("scale", float(case.scale as f32)));
    attributes.push(("local_window_size", int(case.window)));
    attributes.push(("is_causal", int(i64::from(case.causal))));
    attributes.push(("do_rotary", int(i64::from(case.rotary.is_some()))));
    attributes.push(("rotary_interleaved", int(i64::from(case.rotary.is_some_and(|r| r.0)))));
    let y = b.node_n("PagedAttention", &names.collect::<Vec<_>>(), &attributes, 3);
    finish(&mut b, "com.microsoft", &y);
    b.model.opsets.insert("com.microsoft".into(), 1);
    let most = match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    };
    let got = outputs(&b, case.name, most);

    // A token's vector of a head, normalised and rotated.
    let vector = |part: usize, t: usize, head: usize| -> Vec<f64> {
        let x = new[part].to_f64();
        let n = x.len() / tokens;
        let mut x = x[t * n + head * size..][..size].to_vec();
        if let (Some(gains), true) = (&gains, part < 2) {
            let mean = x.iter().map(|v| v * v).sum::<f64>() / size as f64;
            x.iter_mut().zip(&gains[part]).for_each(|(v, g)| *v *= g / (mean + 1e-6).sqrt());
        }
        if let (Some((beside, rotated)), Some([cos, sin]), Some((_, at)), true) = (case.rotary, &turns, of(t), part < 2)
        {
            let half = rotated / 2;
            for i in 0..half {
                let [p, q] = if beside { [2 * i, 2 * i + 1] } else { [i, i + half] };
                let (c, s) = (cos[at * half + i], sin[at * half + i]);
                (x[p], x[q]) = (x[p] * c - x[q] * s, x[q] * c + x[p] * s);
            }
        }
        x
    };
    let want_caches = [1, 2].map(|part: usize| {
        let mut x = caches[part - 1].to_f64();
        for (t, row) in (0..tokens).filter_map(|t| slot(t).map(|row| (t, row))) {
            (0..shared).for_each(|h| x[row * inner + h * size..][..size].copy_from_slice(&vector(part, t, h)));
        }
        x
    });
    let scale = if case.scale == 0.0 { 1.0 / (size as f64).sqrt() } else { case.scale };
    let mut want = Vec::new();
    for (t, head) in (0..tokens).flat_map(|t| (0..heads).map(move |h| (t, h))) {
        let own = head / (heads / shared);
        let Some((s, at)) = of(t) else {
            want.extend(vec![0.0; size]);
            continue;
        };
        let last = if case.causal { at } else { case.sequences[s].0 as usize + case.sequences[s].1 - 1 };
        let first = if case.window > 0 { (at + 1).saturating_sub(case.window as usize) } else { 0 };
        let q = vector(0, t, head);
        let line = |cache: usize, row: usize| &want_caches[cache][row * inner + own * size..][..size];
        let keys: Vec<usize> = (first..=last).filter_map(|k| table.row(s, k)).collect();
        let score = |row: &usize| {
            let x = scale * q.iter().zip(line(0, *row)).map(|(a, b)| a * b).sum::<f64>();
            let x = if case.softcap > 0.0 { case.softcap * (x / case.softcap).tanh() } else { x };
            x.exp()
        };
        let weights: Vec<f64> = keys.iter().map(score).collect();
        let all: f64 = weights.iter().sum();
        want.extend((0..size).map(|i| keys.iter().zip(&weights).map(|(k, w)| w * line(1, *k)[i]).sum::<f64>() / all));
    }
    close(&got[0].to_f64(), &want, most, case.name);
    for (i, cache) in want_caches.iter().enumerate() {
        assert_eq!(got[i + 1].shape(), [blocks, block, shared, size]);
        close(&got[i + 1].to_f64(), cache, most, case.name);
    }
}

#[test]
fn sequences_that_decode() {
    attends(&PLAIN);
    attends(&Case { name: "decode f16", dtype: DType::F16, size: 64, block: 16, ..PLAIN });
    attends(&Case { name: "decode with a window", window: 5, softcap: 2.5, scale: 0.7, ..PLAIN });
    attends(&Case { name: "decode rotated", rotary: Some((false, 16)), together: true, block: 7, ..PLAIN });
    attends(&Case { name: "decode f16 rotated", dtype: DType::F16, rotary: Some((true, 8)), shared: 4, ..PLAIN });
    // Two of one, none of another one, and one of nobody.
    let sequences = &[(4, 2), (8, 0), (30, 1)];
    attends(&Case { name: "decode two", sequences, padding: 1, heads: 6, norms: true, ..PLAIN });
    attends(&Case {
        name: "decode f16, odd",
        dtype: DType::F16,
        size: 32,
        block: 3,
        sequences: &[(70, 1), (1, 1)],
        ..PLAIN
    });
    attends(&Case { name: "decode, some wait", sequences: &[(9, 0), (33, 1), (4, 0), (0, 1), (12, 0)], ..PLAIN });
    let sequences = &[(9, 3), (20, 4), (0, 2), (31, 1)];
    attends(&Case { name: "decode several, a window", sequences, window: 6, ..PLAIN });
    attends(&Case { name: "decode several, both ways", sequences, causal: false, dtype: DType::F16, ..PLAIN });
    attends(&Case { name: "decode with a hole", hole: true, slots: false, sequences: &[(20, 1), (-3, 1)], ..PLAIN });
}

/// Where a few tokens of each sequence attend, kernels look up where keys lie, and nothing copies blocks.
#[test]
fn nothing_gathers_the_keys_of_sequences_that_decode() {
    use barewave::graph::fused::StepKind;
    for (target, sequences) in TARGETS.iter().zip([8, 1, 40, 3, 17]) {
        let mut b = Builder::new(23, 1);
        let given = |b: &mut Builder, shape: &[usize]| {
            let x = b.random(shape).to_f64();
            b.input_of(HostTensor::from_f64(DType::F16, shape, &x))
        };
        let mut names = [(); 3].map(|()| given(&mut b, &[sequences, 256])).to_vec();
        names.extend([(); 2].map(|()| given(&mut b, &[64, 48, 4, 64])));
        let (ends, past): (Vec<i32>, Vec<i32>) = ((0..=sequences as i32).collect(), vec![100; sequences]);
        let table: Vec<i32> = (0..sequences as i32 * 4).map(|i| i % 64).collect();
        for (shape, list) in [(vec![ends.len()], ends), (vec![sequences], past), (vec![sequences, 4], table)] {
            names.push(b.input_of(HostTensor::from_i32(&shape, &list)));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let attributes = [("num_heads", int(4)), ("kv_num_heads", int(4))];
        let y = b.node_n("PagedAttention", &names, &attributes, 3);
        finish(&mut b, "com.microsoft", &y);
        b.model.opsets.insert("com.microsoft".into(), 1);
        b.model.expand();
        let graph = barewave::graph::fuse(&b.model, &barewave::graph::Options::default()).unwrap();
        let target = Target::parse(target).unwrap();
        let joined = barewave::kernels::joined(&graph, target, &Default::default()).unwrap();
        let kinds: Vec<&str> = joined.steps.iter().map(|s| s.kind.name()).collect();
        assert_eq!(kinds, ["program", "scatter", "scatter", "attention"], "{target}");
        let StepKind::Attention(kind) = &joined.steps[3].kind else { unreachable!() };
        assert!(kind.paged && kind.operands == 0, "{target}");
    }
}

/// More sequences than are looked at one by one.
#[test]
fn many_sequences_that_decode() {
    const SEQUENCES: &[(i64, usize)] = &{
        let mut all = [(0, 1); 40];
        let mut i = 0;
        while i < 40 {
            all[i] = ((i as i64 * 7) % 23, (i % 9 != 4) as usize);
            i += 1;
        }
        all
    };
    attends(&Case { name: "forty", sequences: SEQUENCES, ..PLAIN });
    attends(&Case { name: "forty f16", sequences: SEQUENCES, dtype: DType::F16, size: 64, block: 5, ..PLAIN });
}

/// What a step without tokens leaves of the caches.
#[test]
fn no_tokens() {
    let mut b = Builder::new(23, 1);
    let mut names = [64, 32, 32].map(|n| b.input(&[0, n])).to_vec();
    names.extend([(); 2].map(|()| b.input(&[3, 8, 2, 16])));
    for (shape, list) in [(vec![3], vec![0; 3]), (vec![2], vec![3, 4]), (vec![2, 1], vec![2, 0])] {
        names.push(b.input_of(HostTensor::from_i32(&shape, &list)));
    }
    names.extend([(); 2].map(|()| b.input(&[9, 8])));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let attributes = [("num_heads", int(4)), ("kv_num_heads", int(2)), ("do_rotary", int(1))];
    let y = b.node_n("PagedAttention", &names, &attributes, 3);
    finish(&mut b, "com.microsoft", &y);
    b.model.opsets.insert("com.microsoft".into(), 1);
    let got = outputs(&b, "no tokens", 0.0);
    assert_eq!(got[0].shape(), [0, 64]);
    for i in [1, 2] {
        assert_eq!(got[i].bytes(), b.inputs[i + 2].bytes());
    }
}

#[test]
fn sequences_that_begin_beside_others_that_decode() {
    let mixed = Case { sequences: MIXED, ..PLAIN };
    attends(&Case { name: "mixed", ..mixed.clone() });
    attends(&Case { name: "mixed f16", dtype: DType::F16, size: 64, block: 16, ..mixed.clone() });
    attends(&Case { name: "mixed, a window", window: 4, softcap: 3.0, block: 5, ..mixed.clone() });
    let rotary = Some((false, 16));
    attends(&Case { name: "mixed, rotated", rotary, together: true, padding: 2, norms: true, ..mixed.clone() });
    attends(&Case { name: "mixed f16, rotated", rotary: Some((true, 16)), dtype: DType::F16, ..mixed.clone() });
    attends(&Case { name: "mixed bf16, rotated", rotary: Some((true, 16)), dtype: DType::BF16, ..mixed.clone() });
    attends(&Case { name: "mixed, both ways", causal: false, window: 6, heads: 2, ..mixed.clone() });
    attends(&Case { name: "mixed, a hole", hole: true, ..mixed.clone() });
    attends(&Case { name: "mixed, nonsense", sequences: &[(3, 16), (-2, 4), (0, 1)], ..mixed.clone() });
    attends(&Case { name: "one long", sequences: &[(37, 70)], block: 32, size: 32, ..mixed.clone() });
    let sequences = &[(3, 1), (9, 1), (0, 1), (1, 1), (0, 1), (14, 1), (2, 1), (0, 41), (6, 1), (8, 17)];
    attends(&Case { name: "many", sequences, padding: 1, ..mixed });
}

/// Tokens whose keys are not written see what is there.
#[test]
fn keys_go_where_they_are_told() {
    let sequences = &[(9, 1), (12, 1), (16, 1), (0, 2)];
    attends(&Case { name: "decode, told", slots: true, sequences, ..PLAIN });
    attends(&Case { name: "mixed, told", slots: true, sequences: MIXED, ..PLAIN });
}

#[test]
fn what_paged_attention_does_not_do_stops_the_model() {
    let refused = |input: Option<usize>, more: &[(&str, barewave::onnx::Attribute)]| {
        let mut b = Builder::new(23, 1);
        let mut names = [(); 3].map(|()| b.input(&[2, 32])).to_vec();
        names.extend([(); 2].map(|()| b.input(&[3, 8, 2, 16])));
        let ends: Vec<i32> = (0..if input == Some(5) { 2 } else { 3 }).collect();
        for (shape, list) in [(vec![ends.len()], ends), (vec![2], vec![3, 4]), (vec![2, 1], vec![2, 0])] {
            names.push(b.input_of(HostTensor::from_i32(&shape, &list)));
        }
        if let Some(i) = input.filter(|i| *i > 7) {
            names.resize(i, String::new());
            names.push(b.input(&[2]));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let attributes = [&[("num_heads", int(2)), ("kv_num_heads", int(2))], more].concat();
        let y = b.node("PagedAttention", &names, &attributes);
        finish(&mut b, "com.microsoft", &[y]);
        b.model.expand();
        let compiler = Compiler::new(Target::GFX1100, compile::Options::default());
        compiler.fuse(&b.model, &barewave::graph::Options::default()).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(refused(None, &[]), Ok(()));
    let text = crate::support::build::text;
    for (input, attributes, words) in [
        (Some(11), vec![], "PagedAttention with input 11 is not supported"),
        (
            None,
            vec![("kv_cache_layout", text("LATENT"))],
            "PagedAttention with attribute kv_cache_layout is not supported",
        ),
        (
            None,
            vec![("k_quant_type", text("PER_TENSOR"))],
            "PagedAttention with attribute k_quant_type is not supported",
        ),
        (None, vec![("rotary_offset", int(8))], "PagedAttention with attribute rotary_offset is not supported"),
        (None, vec![("kv_num_heads", int(1))], "do not fit"),
        (Some(5), vec![], "has shape [2], not [3], for 2 tokens and a table of 2 rows"),
    ] {
        let e = refused(input, &attributes).unwrap_err();
        assert!(e.contains(words), "{e}");
    }
}
