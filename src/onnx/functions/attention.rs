//! Attention as onnxruntime's optimiser and exporters of language models write it: with projections inside, with heads that
//! share keys and values, with caches that have more room than is used.

use super::{Attribute, Body};

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    Some(match op {
        "Attention" => attention,
        "DecoderMaskedMultiHeadAttention" => multi_head_of_one,
        "GroupQueryAttention" => group_query,
        "QAttention" => quantized_attention,
        "MultiHeadAttention" => multi_head,
        "PackedAttention" => packed_attention,
        "PackedMultiHeadAttention" => packed_multi_head,
        "PagedAttention" => paged,
        "RotaryEmbedding" => rotary,
        _ => return None,
    })
}

/// The scale, where one is given; onnxruntime takes 0 for none.
fn scale(b: &Body<'_>) -> Option<(&'static str, Attribute)> {
    let scale = b.float("scale", 0.0);
    (scale != 0.0).then_some(("scale", Attribute::Float(scale)))
}

/// A mask of keys in any of its forms, and a bias, as one mask of scores. Keys of the past stand before the others.
fn masked(b: &mut Body<'_>, [keys, past]: [&str; 2], mask: &str, bias: &str) -> String {
    // Without a mask nothing is hidden, whatever this says.
    let low = b.float("mask_filter_value", -10000.0);
    if mask.is_empty() {
        return bias.to_string();
    }
    let seen = b.op("barewave:KeyMask", &[mask, keys, past]);
    let (zero, low) = (b.number(0.0), b.number(low));
    let hidden = b.op("Where", &[&seen, &zero, &low]);
    let hidden = b.op("CastLike", &[&hidden, keys]);
    if bias.is_empty() { hidden } else { b.op("Add", &[bias, &hidden]) }
}

/// Attention over heads that lie in the last dimension; a bias for queries, keys and values comes in one vector.
fn multi_head(b: &mut Body<'_>) {
    let [q, k, v, bias, padding, added, past_k, past_v] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| b.input(i).to_string());
    let outputs: Vec<String> = b.node.outputs.iter().take(3).cloned().collect();
    write_heads(b, [q, k, v], &bias, [&padding, &added, &past_k, &past_v], outputs);
}

/// The same of one query a sequence, with operands in another order. Keys and values are of another sequence, whose heads are apart, or
/// there are caches with room, which the new ones go into behind so many; those of beams are another operator.
fn multi_head_of_one(b: &mut Body<'_>) {
    let [q, k, v, padding, added, past_k, past_v, had, bias] =
        [0, 1, 2, 3, 4, 5, 6, 7, 10].map(|i| b.input(i).to_string());
    if b.int("past_present_share_buffer", 0) == 0 {
        let outputs: Vec<String> = b.node.outputs.iter().take(3).cloned().collect();
        return write_heads(b, [q, k, v], &bias, [&padding, &added, &past_k, &past_v], outputs);
    }
    let (heads, one) = (b.int("num_heads", 1), b.ints(&[1]));
    let new = if k.is_empty() { packed(b, &q, 3).try_into().unwrap_or_default() } else { [q, k, v] };
    let apart = b.ints(&[0, 0, heads, -1]);
    let [q, k, v] = with_bias(b, new, &bias).map(|x| {
        let x = b.op("Reshape", &[&x, &apart]);
        turned(b, &x)
    });
    let had = b.with("Cast", &[&had], &[("to", Attribute::Int(7))]);
    let had = b.op("Reshape", &[&had, &one]);
    let batch = extent(b, &q, 0);
    let each = b.op("Expand", &[&had, &batch]);
    let [all_k, all_v] = [(past_k, k), (past_v, v)]
        .map(|(past, new)| b.with("TensorScatter", &[&past, &new, &each], &[("axis", Attribute::Int(2))]));
    // Keys behind the new one are nobody's; a mask and a bias end with it.
    let room = extent(b, &all_k, 2);
    let keys = numbers(b, &room);
    let seen = b.op("LessOrEqual", &[&keys, &had]);
    let (zero, never) = (b.number(0.0), b.number(f32::NEG_INFINITY));
    let mut mask = b.op("Where", &[&seen, &zero, &never]);
    let to_room = |b: &mut Body<'_>, x: &str, rank: usize| {
        let ends = extent(b, x, rank as i64 - 1);
        let more = b.op("Sub", &[&room, &ends]);
        let before = b.ints(&vec![0; 2 * rank - 1]);
        let pads = b.with("Concat", &[&before, &more], &[("axis", Attribute::Int(0))]);
        b.op("Pad", &[x, &pads])
    };
    let low = b.float("mask_filter_value", -10000.0);
    if !padding.is_empty() {
        let flags = to_room(b, &padding, 2);
        let flags = b.with("Cast", &[&flags], &[("to", Attribute::Int(9))]);
        let low = b.number(low);
        let hidden = b.op("Where", &[&flags, &zero, &low]);
        let axes = b.ints(&[1, 2]);
        let hidden = b.op("Unsqueeze", &[&hidden, &axes]);
        mask = b.op("Add", &[&mask, &hidden]);
    }
    mask = b.op("CastLike", &[&mask, &q]);
    if !added.is_empty() {
        let added = to_room(b, &added, 4);
        mask = b.op("Add", &[&mask, &added]);
    } else if padding.is_empty() {
        let axes = b.ints(&[0, 1, 2]);
        mask = b.op("Unsqueeze", &[&mask, &axes]);
    }
    let list: Vec<(&str, Attribute)> = scale(b).into_iter().collect();
    let y = b.with("Attention", &[&q, &all_k, &all_v, &mask], &list);
    let y = turned(b, &y);
    let flat = b.ints(&[0, 0, -1]);
    let y = b.op("Reshape", &[&y, &flat]);
    [y, all_k, all_v].iter().enumerate().for_each(|(i, value)| b.set(i, value));
}

/// The second and the third of four dimensions change places.
fn turned(b: &mut Body<'_>, x: &str) -> String {
    b.with("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))])
}

/// The same of other operands, without a past.
fn heads_of(b: &mut Body<'_>, qkv: [String; 3], bias: &str, [padding, added]: [&str; 2]) -> String {
    let y = b.fresh();
    write_heads(b, qkv, bias, [padding, added, "", ""], vec![y.clone()]);
    y
}

fn write_heads(
    b: &mut Body<'_>,
    [mut q, mut k, mut v]: [String; 3],
    bias: &str,
    [padding, added, past_k, past_v]: [&str; 4],
    outputs: Vec<String>,
) {
    // Packed: [batch, length, heads, 3 or 2, size], all of them or keys and values.
    if k.is_empty() {
        [q, k, v] = packed(b, &q, 3).try_into().unwrap_or_default();
    } else if v.is_empty() {
        [k, v] = packed(b, &k, 2).try_into().unwrap_or_default();
    }
    [q, k, v] = with_bias(b, [q, k, v], bias);
    let heads = b.int("num_heads", 1);
    let mask = masked(b, [&k, past_k], padding, added);
    let mut list = vec![("q_num_heads", Attribute::Int(heads)), ("kv_num_heads", Attribute::Int(heads))];
    list.push(("is_causal", Attribute::Int(b.int("unidirectional", 0))));
    list.extend(scale(b));
    b.push("Attention", &[&q, &k, &v, &mask, past_k, past_v], outputs, &list);
}

/// Queries, keys and values with a bias for all of them in one vector, if there is one.
fn with_bias(b: &mut Body<'_>, [q, k, v]: [String; 3], bias: &str) -> [String; 3] {
    if bias.is_empty() {
        return [q, k, v];
    }
    // Values may be wider or narrower than queries and keys, which have one width.
    let (none, all) = (b.ints(&[0]), b.ints(&[i64::MAX]));
    let width = extent(b, &q, 2);
    let keys_end = b.op("Add", &[&width, &width]);
    let mut biased = |x: &str, from: &str, to: &str| {
        let part = b.op("Slice", &[bias, from, to]);
        // Keys and values that come with their heads apart have theirs already.
        b.op("barewave:HeadBias", &[x, &part])
    };
    [biased(&q, &none, &width), biased(&k, &width, &keys_end), biased(&v, &keys_end, &all)]
}

/// The parts of `[batch, length, heads, parts, size]`, each `[batch, length, heads * size]`.
fn packed(b: &mut Body<'_>, x: &str, parts: usize) -> Vec<String> {
    let list = [("axis", Attribute::Int(3)), ("num_outputs", Attribute::Int(parts as i64))];
    let flat = b.ints(&[0, 0, -1]);
    b.many("Split", &[x], parts, &list).iter().map(|p| b.op("Reshape", &[p, &flat])).collect()
}

/// Sequences whose tokens follow each other without padding: where each token is in the padded ones, and how long these are.
struct Sequences {
    /// `[batch, length]`.
    padded: String,
    /// Places of the tokens in the padded sequences behind each other.
    places: String,
    /// `[batch]`.
    lengths: String,
}

impl Sequences {
    /// Those of an operator with its offsets in input `i`, and sums of lengths in the one behind it; `tokens` has a row for each.
    fn read(b: &mut Body<'_>, tokens: &str, i: usize) -> Sequences {
        let [offsets, ends] = [i, i + 1].map(|i| b.input(i).to_string());
        let padded = b.op("Shape", &[&offsets]);
        let (minus, zero, one, end) = (b.ints(&[-1]), b.ints(&[0]), b.ints(&[1]), b.ints(&[i64::MAX]));
        let places = b.op("Reshape", &[&offsets, &minus]);
        let count = extent(b, tokens, 0);
        let places = b.op("Slice", &[&places, &zero, &count]);
        let places = b.with("Cast", &[&places], &[("to", Attribute::Int(7))]);
        let (from, to) = (b.op("Slice", &[&ends, &zero, &minus]), b.op("Slice", &[&ends, &one, &end]));
        let lengths = b.op("Sub", &[&to, &from]);
        Sequences { padded, places, lengths }
    }

    /// Rows of tokens, each of `inner` dimensions, as padded sequences.
    fn unpacked(&self, b: &mut Body<'_>, x: &str, inner: &[i64]) -> String {
        if x.is_empty() {
            return String::new();
        }
        let flat = b.ints(&[0, -1]);
        let rows = b.op("Reshape", &[x, &flat]);
        let all = b.with("ReduceProd", &[&self.padded], &[]);
        let width = extent(b, &rows, 1);
        let shape = b.with("Concat", &[&all, &width], &[("axis", Attribute::Int(0))]);
        let none = b.op("ConstantOfShape", &[&shape]);
        let none = b.op("CastLike", &[&none, x]);
        let one = b.ints(&[1]);
        let places = b.op("Unsqueeze", &[&self.places, &one]);
        let spread = b.op("ScatterND", &[&none, &places, &rows]);
        let inner = b.ints(inner);
        let shape = b.with("Concat", &[&self.padded, &inner], &[("axis", Attribute::Int(0))]);
        b.op("Reshape", &[&spread, &shape])
    }

    /// The tokens of padded sequences.
    fn packed(&self, b: &mut Body<'_>, y: &str) -> String {
        let (minus, two) = (b.ints(&[-1]), extent(b, y, 2));
        let shape = b.with("Concat", &[&minus, &two], &[("axis", Attribute::Int(0))]);
        let rows = b.op("Reshape", &[y, &shape]);
        b.op("Gather", &[&rows, &self.places])
    }
}

fn packed_multi_head(b: &mut Body<'_>) {
    let [q, k, v, bias, added] = [0, 1, 2, 3, 6].map(|i| b.input(i).to_string());
    let (sequences, heads) = (Sequences::read(b, &q, 4), b.int("num_heads", 1));
    // Queries, keys and values together are [tokens, heads, 3, size].
    let inner: &[i64] = if k.is_empty() { &[heads, 3, -1] } else { &[-1] };
    let q = sequences.unpacked(b, &q, inner);
    let [k, v] = [k, v].map(|x| sequences.unpacked(b, &x, &[-1]));
    let y = heads_of(b, [q, k, v], &bias, [&sequences.lengths, &added]);
    let y = sequences.packed(b, &y);
    b.set(0, &y);
}

fn packed_attention(b: &mut Body<'_>) {
    let [x, w, bias, added] = [0, 1, 2, 5].map(|i| b.input(i).to_string());
    let sequences = Sequences::read(b, &x, 3);
    let whole = b.op("MatMul", &[&x, &w]);
    let whole = b.op("Add", &[&whole, &bias]);
    let whole = sequences.unpacked(b, &whole, &[-1]);
    let (y, _) = projected(b, &whole, [&sequences.lengths, "", &added]);
    let y = sequences.packed(b, &y);
    b.set(0, &y);
}

/// Attention with the projections of queries, keys and values inside.
fn attention(b: &mut Body<'_>) {
    let [x, w, bias, mask, past, added] = [0, 1, 2, 3, 4, 5].map(|i| b.input(i).to_string());
    let mut whole = b.op("MatMul", &[&x, &w]);
    if !bias.is_empty() {
        whole = b.op("Add", &[&whole, &bias]);
    }
    give(b, &whole, [&mask, &past, &added]);
}

/// The same with data and weights of bytes.
fn quantized_attention(b: &mut Body<'_>) {
    let [x, w, bias, xs, ws, mask, xz, wz, past] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| b.input(i).to_string());
    let whole = b.op("com.microsoft:MatMulIntegerToFloat", &[&x, &w, &xs, &ws, &xz, &wz, &bias]);
    give(b, &whole, [&mask, &past, ""]);
}

/// Attention over queries, keys and values side by side as outputs; past keys and values are one tensor.
fn give(b: &mut Body<'_>, whole: &str, operands: [&str; 3]) {
    let (y, keys) = projected(b, whole, operands);
    b.set(0, &y);
    if b.output(1).is_some() {
        let first = b.ints(&[0]);
        let keys = keys.map(|x| b.op("Unsqueeze", &[&x, &first]));
        let both = b.with("Concat", &[&keys[0], &keys[1]], &[("axis", Attribute::Int(0))]);
        b.set(1, &both);
    }
}

/// The same: the result, and all keys and values.
fn projected(b: &mut Body<'_>, whole: &str, [mask, past, added]: [&str; 3]) -> (String, [String; 2]) {
    let last = ("axis", Attribute::Int(-1));
    let parts = match b.attribute("qkv_hidden_sizes") {
        Some(Attribute::Ints(sizes)) => {
            let sizes = b.ints(&sizes.clone());
            b.many("Split", &[whole, &sizes], 3, &[last])
        }
        _ => b.many("Split", &[whole], 3, &[last, ("num_outputs", Attribute::Int(3))]),
    };
    let [mut past_k, mut past_v] = [String::new(), String::new()];
    let first = b.ints(&[0]);
    if !past.is_empty() {
        let both = b.many("Split", &[past], 2, &[("axis", Attribute::Int(0)), ("num_outputs", Attribute::Int(2))]);
        past_k = b.op("Squeeze", &[&both[0], &first]);
        past_v = b.op("Squeeze", &[&both[1], &first]);
    }
    let heads = b.int("num_heads", 1);
    let mask = masked(b, [&parts[1], &past_k], mask, added);
    let mut list = vec![("q_num_heads", Attribute::Int(heads)), ("kv_num_heads", Attribute::Int(heads))];
    list.push(("is_causal", Attribute::Int(b.int("unidirectional", 0))));
    list.extend(scale(b));
    // With rotation inside the operator is another one, which Attention does not know.
    list.extend((b.int("do_rotary", 0) != 0).then_some(("do_rotary", Attribute::Int(1))));
    let made = b.many("Attention", &[&parts[0], &parts[1], &parts[2], &mask, &past_k, &past_v], 3, &list);
    (made[0].clone(), [made[1].clone(), made[2].clone()])
}

/// Rotary position embedding of heads whose number the cache tells.
fn rotary(b: &mut Body<'_>) {
    let [x, places, cos, sin] = [0, 1, 2, 3].map(|i| b.input(i).to_string());
    let names = ["interleaved", "num_heads", "rotary_embedding_dim", "scale", "is_packed_batching"];
    let given = names.iter().filter_map(|n| b.attribute(n).map(|a| (*n, a.clone())));
    // What has no effect is left out, what has one and is not known stops the model.
    let idle = |n: &str, a: &Attribute| match (n, a) {
        ("scale", Attribute::Float(s)) => *s == 1.0,
        ("is_packed_batching", a) => *a == Attribute::Int(0),
        _ => false,
    };
    let list: Vec<(&str, Attribute)> = given.filter(|(n, a)| !idle(n, a)).collect();
    // Places of all, or one that the first has, [1]: then the others follow.
    let length = b.with("Shape", &[&x], &[("start", Attribute::Int(-2)), ("end", Attribute::Int(-1))]);
    let batch = b.with("Shape", &[&x], &[("start", Attribute::Int(0)), ("end", Attribute::Int(1))]);
    let all = b.with("Concat", &[&batch, &length], &[("axis", Attribute::Int(0))]);
    let shape = b.op("Shape", &[&places]);
    let (rank, two) = (b.op("Shape", &[&shape]), b.ints(&[2]));
    let first = b.op("Sub", &[&two, &rank]);
    let steps = numbers(b, &length);
    let steps = b.op("Mul", &[&steps, &first]);
    let places = b.op("Add", &[&places, &steps]);
    let places = b.op("Expand", &[&places, &all]);
    let y = b.with("RotaryEmbedding", &[&x, &cos, &sin, &places], &list);
    b.set(0, &y);
}

/// Extent of a dimension, as a list of one number.
fn extent(b: &mut Body<'_>, x: &str, d: i64) -> String {
    b.with("Shape", &[x], &[("start", Attribute::Int(d)), ("end", Attribute::Int(d + 1))])
}

/// The numbers from 0 on, as many as a list of one number says.
fn numbers(b: &mut Body<'_>, count: &str) -> String {
    let scalar = b.ints(&[]);
    let count = b.op("Reshape", &[count, &scalar]);
    let (zero, one) = (b.ints(&[0]), b.ints(&[1]));
    let (zero, one) = (b.op("Reshape", &[&zero, &scalar]), b.op("Reshape", &[&one, &scalar]));
    b.op("Range", &[&zero, &count, &one])
}

/// Attention of grouped queries over a cache, which new keys and values go into behind those of each sequence: a sequence of
/// which `seqlens_k + 1` keys count has had that many without the new ones. A key is seen by queries of its place or later ones.
fn group_query(b: &mut Body<'_>) {
    let [q, k, v, past_k, past_v, lengths, total, cos, sin, places, bias, sinks] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(|i| b.input(i).to_string());
    let (heads, shared) = (b.int("num_heads", 1), b.int("kv_num_heads", 1));
    if b.int("causal", 1) != 1 {
        b.refuse("causal");
    }
    // Of inputs that stop the model when they are given.
    b.idle("k_quant_type", Attribute::Text("NONE".into()));
    b.idle("v_quant_type", Attribute::Text("NONE".into()));
    b.ignore(&["q_norm_epsilon", "k_norm_epsilon", "qk_norm_epsilon"]);
    let to_i64 = [("to", Attribute::Int(7))];
    // Queries, keys and values as [batch, heads, length, size].
    let split = |b: &mut Body<'_>, x: &str, n: i64| {
        let shape = b.ints(&[0, 0, n, -1]);
        b.op("Reshape", &[x, &shape])
    };
    let parts = if k.is_empty() {
        let whole = split(b, &q, heads + 2 * shared);
        let sizes = b.ints(&[heads, shared, shared]);
        b.many("Split", &[&whole, &sizes], 3, &[("axis", Attribute::Int(2))])
    } else {
        vec![split(b, &q, heads), split(b, &k, shared), split(b, &v, shared)]
    };
    let [mut new_q, mut new_k, new_v] = [0, 1, 2].map(|i| turned(b, &parts[i]));
    // Places of the new ones: behind those that each sequence has.
    let (one, none) = (b.ints(&[1]), b.ints(&[0]));
    let list = b.many("barewave:Places", &[&lengths, &q], 2, &[]);
    let (had, own) = (list[0].clone(), list[1].clone());
    if b.int("do_rotary", 0) != 0 {
        let at = if places.is_empty() { own.clone() } else { places };
        let list = [("interleaved", Attribute::Int(b.int("rotary_interleaved", 0)))];
        new_q = b.with("RotaryEmbedding", &[&new_q, &cos, &sin, &at], &list);
        new_k = b.with("RotaryEmbedding", &[&new_k, &cos, &sin, &at], &list);
    }
    let (all_k, all_v) = if past_k.is_empty() {
        (new_k, new_v)
    } else {
        let total = b.with("Cast", &[&total], &to_i64);
        let total = b.op("Reshape", &[&total, &one]);
        let room = extent(b, &past_k, 2);
        let more = b.op("Sub", &[&total, &room]);
        let more = b.op("Max", &[&more, &none]);
        let (before, behind) = (b.ints(&[0; 6]), b.ints(&[0]));
        let pads = b.with("Concat", &[&before, &more, &behind], &[("axis", Attribute::Int(0))]);
        let into = |b: &mut Body<'_>, past: &str, new: &str| {
            let cache = b.op("Pad", &[past, &pads]);
            b.with("TensorScatter", &[&cache, new, &had], &[("axis", Attribute::Int(2))])
        };
        (into(b, &past_k, &new_k), into(b, &past_v, &new_v))
    };
    // Which keys each query sees: [batch, 1, length, keys].
    let keys = extent(b, &all_k, 2);
    let keys = numbers(b, &keys);
    let keys = b.op("CastLike", &[&keys, &own]);
    let axes = b.ints(&[1, 3]);
    let own = b.op("Unsqueeze", &[&own, &axes]);
    let mut seen = b.op("LessOrEqual", &[&keys, &own]);
    let window = b.int("local_window_size", -1);
    if window >= 0 {
        let window = b.ints(&[window]);
        let window = b.op("CastLike", &[&window, &own]);
        let first = b.op("Sub", &[&own, &window]);
        let near = b.op("Greater", &[&keys, &first]);
        seen = b.op("And", &[&seen, &near]);
    }
    let mask = if bias.is_empty() {
        seen
    } else {
        // A bias ends with the keys that count; a cache may have room for more.
        let (room, ends) = (extent(b, &all_k, 2), extent(b, &bias, 3));
        let more = b.op("Sub", &[&room, &ends]);
        let before = b.ints(&[0; 7]);
        let pads = b.with("Concat", &[&before, &more], &[("axis", Attribute::Int(0))]);
        let bias = b.op("Pad", &[&bias, &pads]);
        let low = b.number(f32::NEG_INFINITY);
        let low = b.op("CastLike", &[&low, &bias]);
        b.op("Where", &[&seen, &bias, &low])
    };
    let mut list: Vec<(&str, Attribute)> = scale(b).into_iter().collect();
    list.push(("softcap", Attribute::Float(b.float("softcap", 0.0))));
    let smooth = b.int("smooth_softmax", 0) > 0;
    let y = if smooth || !sinks.is_empty() {
        let [keys, values, mask] = with_sinks(b, [&all_k, &all_v, &mask], &sinks, !bias.is_empty());
        b.with("Attention", &[&new_q, &keys, &values, &mask], &list)
    } else {
        b.with("Attention", &[&new_q, &all_k, &all_v, &mask], &list)
    };
    let y = turned(b, &y);
    let flat = b.ints(&[0, 0, -1]);
    let y = b.op("Reshape", &[&y, &flat]);
    b.set(0, &y);
    b.set(1, &all_k);
    b.set(2, &all_v);
}

/// Attention of tokens of several sequences over caches in blocks, which new keys and values go into first.
fn paged(b: &mut Body<'_>) {
    let [q, k, v, key_cache, value_cache, ends, past, table, cos, sin, slots, q_norm, k_norm] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13].map(|i| b.input(i).to_string());
    // Bounds of lengths, by which others choose how they compute.
    b.input(16);
    let (heads, shared) = (b.int("num_heads", 1), b.int("kv_num_heads", 1));
    b.idle("kv_cache_layout", Attribute::Text("SEPARATE".into()));
    for (types, kind) in [("k_cache_dtype", "k_quant_type"), ("v_cache_dtype", "v_quant_type")] {
        ["float16", "bfloat16"].into_iter().for_each(|t| b.idle(types, Attribute::Text(t.into())));
        b.idle(kind, Attribute::Text("NONE".into()));
    }
    // Queries, keys and values as [tokens, heads, size], also of no tokens.
    let split = |b: &mut Body<'_>, x: &str, n: i64| {
        let (all, number, heads) = (extent(b, x, 1), b.ints(&[n]), b.ints(&[0, n]));
        let size = b.op("Div", &[&all, &number]);
        let shape = b.with("Concat", &[&heads, &size], &[("axis", Attribute::Int(0))]);
        b.op("Reshape", &[x, &shape])
    };
    let parts = if k.is_empty() {
        let whole = split(b, &q, heads + 2 * shared);
        let sizes = b.ints(&[heads, shared, shared]);
        b.many("Split", &[&whole, &sizes], 3, &[("axis", Attribute::Int(1))])
    } else {
        vec![split(b, &q, heads), split(b, &k, shared), split(b, &v, shared)]
    };
    let [mut new_q, mut new_k, new_v] = [0, 1, 2].map(|i| parts[i].clone());
    let epsilon = b.float("qk_norm_epsilon", 1e-6);
    for (x, weight) in [(&mut new_q, &q_norm), (&mut new_k, &k_norm)] {
        if !weight.is_empty() {
            *x = b.with("RMSNormalization", &[x, weight], &[("epsilon", Attribute::Float(epsilon))]);
        }
    }
    let window = ("local_window_size", Attribute::Int(b.int("local_window_size", -1)));
    let causal = [("is_causal", Attribute::Int(b.int("is_causal", 1))), window.clone()];
    let places = b.many("barewave:TokenPlaces", &[&q, &ends, &past, &table, &key_cache, &slots], 5, &causal);
    let interleaved = [("interleaved", Attribute::Int(b.int("rotary_interleaved", 0)))];
    if b.int("do_rotary", 0) != 0 {
        // Each token is a batch of its own: its heads at one place.
        let (one, two) = (b.ints(&[1]), b.ints(&[2]));
        let at = b.op("Unsqueeze", &[&places[0], &one]);
        for x in [&mut new_q, &mut new_k] {
            let turned = b.op("Unsqueeze", &[x, &two]);
            let turned = b.with("RotaryEmbedding", &[&turned, &cos, &sin, &at], &interleaved);
            *x = b.op("Squeeze", &[&turned, &two]);
        }
    }
    let (one, minus) = (b.ints(&[1]), b.ints(&[-1]));
    let rows = b.op("Unsqueeze", &[&places[3], &one]);
    let [all_k, all_v] = [(key_cache, new_k), (value_cache, new_v)].map(|(cache, new)| {
        let (inner, whole) = (b.with("Shape", &[&cache], &[("start", Attribute::Int(2))]), b.op("Shape", &[&cache]));
        let flat = b.with("Concat", &[&minus, &inner], &[("axis", Attribute::Int(0))]);
        let flat = b.op("Reshape", &[&cache, &flat]);
        // A ScatterND whose indices are all different, and no mistakes where they are out of range: such keys go nowhere.
        let flat = b.op("barewave:Written", &[&flat, &rows, &new]);
        b.op("Reshape", &[&flat, &whole])
    });
    let mut list: Vec<(&str, Attribute)> = scale(b).into_iter().collect();
    list.push(("softcap", Attribute::Float(b.float("softcap", 0.0))));
    list.push(window);
    let [own, last, sequence, lines] = [0, 1, 2, 4].map(|i| places[i].as_str());
    let inputs = [&new_q, &all_k, &all_v, own, last, sequence, &table, &ends, &past, lines];
    let y = b.with("barewave:PagedAttention", &inputs, &list);
    [y, all_k, all_v].iter().enumerate().for_each(|(i, value)| b.set(i, value));
}

/// Keys, values and mask with one more key, of which nothing comes: its score is the head's sink, or 0 without sinks; the
/// product with it is 0, which no cap changes. A mask of numbers is added to scores, another one says which keys are seen.
fn with_sinks(b: &mut Body<'_>, [keys, values, mask]: [&str; 3], sinks: &str, added: bool) -> [String; 3] {
    let heads = b.int("num_heads", 1);
    let pads = b.ints(&[0, 0, 0, 0, 0, 0, 1, 0]);
    let [more_keys, more_values] = [keys, values].map(|x| b.op("Pad", &[x, &pads]));
    let numbers = if added {
        mask.to_string()
    } else {
        let (zero, low) = (b.number(0.0), b.number(f32::NEG_INFINITY));
        let numbers = b.op("Where", &[mask, &zero, &low]);
        b.op("CastLike", &[&numbers, keys])
    };
    let each = b.ints(&[1, heads, 1, 1]);
    let numbers = b.op("Expand", &[&numbers, &each]);
    let (rows, one) = (b.with("Shape", &[&numbers], &[("end", Attribute::Int(3))]), b.ints(&[1]));
    let column = b.with("Concat", &[&rows, &one], &[("axis", Attribute::Int(0))]);
    let sinks = if sinks.is_empty() {
        let zero = b.number(0.0);
        b.op("CastLike", &[&zero, keys])
    } else {
        b.op("Reshape", &[sinks, &each])
    };
    let sinks = b.op("Expand", &[&sinks, &column]);
    let mask = b.with("Concat", &[&numbers, &sinks], &[("axis", Attribute::Int(-1))]);
    [more_keys, more_values, mask]
}
