//! Operators of `com.microsoft` around a language model's layers: places in three directions, routers of experts, n-grams that
//! are not to come again.

use super::{Attribute, Body};
use crate::tensor::{DType, HostTensor};

/// ONNX's numbers of the types f32 and bool.
const F32: i64 = 1;
const BOOL: i64 = 9;

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "MoEGroupRouter" => group_router,
        "MRotaryEmbedding" => rotary_of_three,
        "NGramRepeatBlock" => no_ngram_again,
        _ => return None,
    })
}

/// Most pairs of elements that are rotated: the directions of each are constants.
const MOST_PAIRS: i64 = 1 << 16;

/// Rotary position embedding by three places of each token: in time, height and width. Each pair of elements is rotated by one of
/// them.
fn rotary_of_three(b: &mut Body<'_>) {
    let [x, places, cos, sin] = [0, 1, 2, 3].map(|i| b.input(i).to_string());
    for (name, value) in [("scale", Attribute::Float(1.0)), ("is_packed_batching", Attribute::Int(0))] {
        b.idle(name, value);
    }
    let sections = match b.attribute("mrope_section") {
        Some(Attribute::Ints(list)) if list.len() == 3 && list.iter().all(|n| (0..=MOST_PAIRS).contains(n)) => list,
        _ => return b.refuse("mrope_section"),
    };
    let pairs: i64 = sections.iter().sum();
    // The direction of each pair.
    let directions: Vec<usize> = match b.int("mrope_layout", 0) {
        0 => (0..3).flat_map(|d| vec![d; sections[d] as usize]).collect(),
        1 => {
            let of = |pair: i64| [1, 2].into_iter().find(|d| pair % 3 == *d as i64 && pair < 3 * sections[*d]);
            (0..pairs).map(|pair| of(pair).unwrap_or(0)).collect()
        }
        _ => return b.refuse("mrope_layout"),
    };
    let first = b.ints(&[0]);
    let each = b.many("Split", &[&places], 3, &[("axis", Attribute::Int(0)), ("num_outputs", Attribute::Int(3))]);
    let each: Vec<String> = each.iter().map(|p| b.op("Squeeze", &[p, &first])).collect();
    let of = |d: usize| -> Vec<i64> { directions.iter().map(|own| i64::from(*own == d)).collect() };
    let masks = [1, 2].map(|d| {
        let mask = b.constant(HostTensor::from_ints(DType::I64, &[directions.len()], &of(d)));
        b.with("Cast", &[&mask], &[("to", Attribute::Int(BOOL))])
    });
    let [cos, sin] = [cos, sin].map(|table| {
        let rows: Vec<String> = each.iter().map(|p| b.op("Gather", &[&table, p])).collect();
        let two = b.op("Where", &[&masks[0], &rows[1], &rows[0]]);
        b.op("Where", &[&masks[1], &rows[2], &two])
    });
    let list = b.attributes_that(|n| ["interleaved", "num_heads", "rotary_embedding_dim"].contains(&n));
    let y = b.with("RotaryEmbedding", &[&x, &cos, &sin], &list);
    b.set(0, &y);
}

/// Scores of experts, of which only some groups' best count: the logarithm of the sigmoid for those that are chosen by it and a
/// bias, something very low for others.
fn group_router(b: &mut Body<'_>) {
    let [logits, bias] = [0, 1].map(|i| b.input(i).to_string());
    let [groups, taken, of_group] = ["n_group", "topk_group", "group_topk"].map(|n| b.int(n, 1));
    let experts = b.int("top_k", 1);
    let sentinel = b.float("router_sentinel", -10000.0);
    for (name, value) in [("n_group", groups), ("topk_group", taken), ("group_topk", of_group), ("top_k", experts)] {
        if value < 1 {
            return b.refuse(name);
        }
    }
    let x = b.with("Cast", &[&logits], &[("to", Attribute::Int(F32))]);
    let x = b.with("Flatten", &[&x], &[("axis", Attribute::Int(-1))]);
    let open = b.op("Sigmoid", &[&x]);
    let score = b.op("Add", &[&open, &bias]);
    let low = b.number(f32::NEG_INFINITY);
    // The groups that count, by the sum of their best.
    let (parts, last) = (b.ints(&[0, groups, -1]), b.ints(&[-1]));
    let grouped = b.op("Reshape", &[&score, &parts]);
    let size = b.with("Shape", &[&grouped], &[("start", Attribute::Int(2))]);
    let count = b.ints(&[of_group]);
    let count = b.op("Min", &[&count, &size]);
    let best = b.many("TopK", &[&grouped, &count], 2, &[]);
    let sums = b.with("ReduceSum", &[&best[0], &last], &[("keepdims", Attribute::Int(0))]);
    let chosen = highest(b, &sums, taken);
    let chosen = b.op("Unsqueeze", &[&chosen, &last]);
    let open_groups = b.op("Where", &[&chosen, &grouped, &low]);
    let open_groups = b.with("Flatten", &[&open_groups], &[("axis", Attribute::Int(1))]);
    let chosen = highest(b, &open_groups, experts);
    let (least, sentinel) = (b.number(1e-20), b.number(sentinel));
    let y = b.op("Max", &[&open, &least]);
    let y = b.op("Log", &[&y]);
    let y = b.op("Where", &[&chosen, &y, &sentinel]);
    let y = b.op("CastLike", &[&y, &logits]);
    b.set(0, &y);
}

/// Which of a row's elements are among the `n` highest.
fn highest(b: &mut Body<'_>, x: &str, n: i64) -> String {
    let count = b.ints(&[n]);
    let best = b.many("TopK", &[x, &count], 2, &[]);
    let shape = b.op("Shape", &[x]);
    let none = b.op("ConstantOfShape", &[&shape]);
    let (ones, one) = (b.op("Shape", &[&best[1]]), HostTensor::from_f32(&[1], &[1.0]));
    let ones = b.with("ConstantOfShape", &[&ones], &[("value", Attribute::Tensor(one))]);
    let marked = b.with("ScatterElements", &[&none, &best[1], &ones], &[("axis", Attribute::Int(-1))]);
    b.with("Cast", &[&marked], &[("to", Attribute::Int(BOOL))])
}

/// Longest n-gram: each of its tokens is compared by a node.
const MOST_TOKENS: i64 = 512;

/// Scores of tokens with which the last tokens would be an n-gram that was there before become minus infinity.
fn no_ngram_again(b: &mut Body<'_>) {
    let [ids, scores] = [0, 1].map(|i| b.input(i).to_string());
    let size = b.int("ngram_size", 0);
    if !(1..=MOST_TOKENS).contains(&size) {
        return b.refuse("ngram_size");
    }
    let (one, none) = (b.ints(&[1]), b.ints(&[0]));
    let length = b.with("Shape", &[&ids], &[("start", Attribute::Int(1))]);
    // How many n-grams there are.
    let all_but = b.ints(&[size - 1]);
    let count = b.op("Sub", &[&length, &all_but]);
    let count = b.op("Max", &[&count, &none]);
    let token = |b: &mut Body<'_>, at: i64| {
        let at = b.ints(&[at]);
        let end = b.op("Add", &[&at, &count]);
        b.op("Slice", &[&ids, &at, &end, &one])
    };
    let last = token(b, size - 1);
    let mut again = b.op("Equal", &[&last, &last]);
    for at in 0..size - 1 {
        // The token of the last ones that stands at this place: from the end, where there are so many.
        let from = b.ints(&[at + 1 - size]);
        let to = b.ints(&[if at + 2 == size { i64::MAX } else { at + 2 - size }]);
        let of_last = b.op("Slice", &[&ids, &from, &to, &one]);
        let of_last = b.op("Slice", &[&of_last, &none, &one, &one]);
        let there = token(b, at);
        let same = b.op("Equal", &[&there, &of_last]);
        again = b.op("And", &[&again, &same]);
    }
    let (low, high) = (b.number(f32::NEG_INFINITY), b.number(f32::INFINITY));
    let [low, high] = [low, high].map(|v| b.op("CastLike", &[&v, &scores]));
    let most = b.op("Where", &[&again, &low, &high]);
    let list = [("axis", Attribute::Int(1)), ("reduction", Attribute::Text("min".into()))];
    let y = b.with("ScatterElements", &[&scores, &last, &most], &list);
    b.set(0, &y);
}
