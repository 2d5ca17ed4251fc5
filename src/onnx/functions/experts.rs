//! Mixtures of experts: each token goes through those of many small networks that a router gives the highest scores.
//!
//! All experts compute all tokens, as products side by side, and each token takes the weighted sum of what its own gave. That is
//! as quick as anything where there are many tokens; for one token it reads the weights of experts that nobody asked.
//!
//! Weights that are numbers of 2, 4 or 8 bits stay so: the first layers of all experts are one matrix with their rows below each
//! other, the last ones one with their rows side by side, of which the weighted sum is the depth.

use super::pairs::Known;
use super::{Attribute, Body, Node};
use crate::tensor::{DType, HostTensor};

pub(super) fn body(op: &str) -> Option<fn(&mut Body<'_>)> {
    (op == "MoE").then_some(mixture)
}

fn mixture(b: &mut Body<'_>) {
    let [x, router, up, up_bias, down, down_bias, gate, gate_bias] =
        [0, 1, 2, 3, 4, 5, 6, 7].map(|i| b.input(i).to_string());
    let normalised = b.int("normalize_routing_weights", 0) != 0;
    let weights = weights(b, &router, "", normalised);
    let weights = b.with("Transpose", &[&weights], &[("perm", Attribute::Ints(vec![1, 0]))]);
    let end = b.ints(&[2]);
    let weights = b.op("Unsqueeze", &[&weights, &end]);
    let shape = b.op("Shape", &[&x]);
    let tokens = b.with("Flatten", &[&x], &[("axis", Attribute::Int(-1))]);
    let first = b.ints(&[0]);
    let tokens = b.op("Unsqueeze", &[&tokens, &first]);
    let h = linear(b, &tokens, &up, &up_bias);
    let gated = (!gate.is_empty()).then(|| linear(b, &tokens, &gate, &gate_bias));
    let h = activated(b, &h, gated);
    let y = linear(b, &h, &down, &down_bias);
    let y = b.op("Mul", &[&y, &weights]);
    let y = b.with("ReduceSum", &[&y, &first], &[("keepdims", Attribute::Int(0))]);
    let y = b.op("Reshape", &[&y, &shape]);
    b.set(0, &y);
}

/// What each expert's result counts for each token, 0 for those that were not chosen: `[tokens, experts]`. It is `counts` where
/// that is given, of those whose `router` scores are highest; their sum is 1 where they are `normalised`.
fn weights(b: &mut Body<'_>, router: &str, counts: &str, normalised: bool) -> String {
    let last = ("axis", Attribute::Int(-1));
    let mut attributes = vec![last.clone()];
    // Another way to choose, which Softmax does not have.
    if b.int("use_sparse_mixer", 0) != 0 {
        attributes.push(("use_sparse_mixer", Attribute::Int(1)));
    }
    let all = if counts.is_empty() { b.with("Softmax", &[router], &attributes) } else { router.to_string() };
    let k = b.ints(&[b.int("k", 1)]);
    let best = b.many("TopK", &[&all, &k], 2, std::slice::from_ref(&last));
    let mut chosen = best[0].clone();
    if !counts.is_empty() {
        chosen = b.with("GatherElements", &[counts, &best[1]], std::slice::from_ref(&last));
    }
    if normalised {
        let minus = b.ints(&[-1]);
        let sum = b.op("ReduceSum", &[&chosen, &minus]);
        chosen = b.op("Div", &[&chosen, &sum]);
    }
    let shape = b.op("Shape", &[&all]);
    let none = b.op("ConstantOfShape", &[&shape]);
    let none = b.op("CastLike", &[&none, &all]);
    b.with("ScatterElements", &[&none, &best[1], &chosen], &[last])
}

/// The nodes that stand for a mixture of experts whose weights are constant numbers.
pub(super) fn quantised(node: &Node, known: &Known<'_>) -> Option<Vec<Node>> {
    if node.domain != "com.microsoft" || node.op != "QMoE" {
        return None;
    }
    let mut b = Body::new(node);
    let layer = |b: &Body<'_>, first: usize, zeros: usize, name: &str| Layer::read(b, known, first, zeros, name);
    let (up, down) = (layer(&b, 2, 11, "fc1")?, layer(&b, 5, 12, "fc2")?);
    let gate = if b.has(8) { Some(layer(&b, 8, 13, "fc3")?) } else { None };
    let fits = up.experts == down.experts && gate.as_ref().is_none_or(|g| [g.experts, g.to] == [up.experts, up.to]);
    // Other types of numbers, which have scales besides.
    let integers = b.text("quant_type").is_none_or(|t| t == "int") && (15..21).all(|i| !b.has(i));
    if !fits || !integers {
        return None;
    }
    let [x, router, up_bias, down_bias, gate_bias, counts] = [0, 1, 4, 7, 10, 14].map(|i| b.input(i).to_string());
    // onnxruntime's CPU takes the softmax of the chosen scores alone, whatever the attribute says.
    let asked = b.int("normalize_routing_weights", 0) != 0;
    let normalised = counts.is_empty() || asked;
    let weights = weights(&mut b, &router, &counts, normalised);
    let shape = b.op("Shape", &[&x]);
    let tokens = b.with("Flatten", &[&x], &[("axis", Attribute::Int(-1))]);
    let h = up.below_each_other(&mut b, &tokens, &up_bias)?;
    let gated = match gate {
        Some(gate) => Some(gate.below_each_other(&mut b, &tokens, &gate_bias)?),
        None => None,
    };
    let h = activated(&mut b, &h, gated);
    let end = b.ints(&[2]);
    let each = b.op("Unsqueeze", &[&weights, &end]);
    let h = b.op("Mul", &[&h, &each]);
    let mut y = down.side_by_side(&mut b, &h)?;
    if !down_bias.is_empty() {
        let bias = b.op("MatMul", &[&weights, &down_bias]);
        y = b.op("Add", &[&y, &bias]);
    }
    let y = b.op("Reshape", &[&y, &shape]);
    b.set(0, &y);
    b.unread().is_none().then_some(b.nodes)
}

/// A layer of each expert, whose weights are numbers: `[experts, to, from]`.
struct Layer<'g> {
    bits: usize,
    experts: usize,
    to: usize,
    from: usize,
    /// Neighbours in a row that share a scale.
    block: usize,
    /// `[experts, to, from * bits / 8]` bytes.
    numbers: &'g HostTensor,
    /// `[experts, to, from / block]`; one for each row where they are two dimensions.
    scales: &'g HostTensor,
    /// The numbers that stand for 0, packed likewise with whole bytes for a row.
    zeros: Option<&'g HostTensor>,
}

impl<'g> Layer<'g> {
    /// The layer whose numbers are input `first` and zero points input `zeros`; `None` where it is none.
    fn read(b: &Body<'_>, known: &Known<'g>, first: usize, zeros: usize, name: &str) -> Option<Layer<'g>> {
        let bits = match b.int(&format!("{name}_expert_weight_bits"), b.int("expert_weight_bits", 4)) {
            bits @ (2 | 4 | 8) => bits as usize,
            _ => return None,
        };
        let (numbers, scales) = (known.constant(b.input(first))?, known.constant(b.input(first + 1))?);
        let zeros = if b.has(zeros) { Some(known.constant(b.input(zeros))?) } else { None };
        let &[experts, to, bytes] = numbers.shape() else { return None };
        let from = bytes * 8 / bits;
        let block = usize::try_from(b.int("block_size", 0)).ok()?;
        // A row's scale is that of all blocks of it.
        let (block, scaled) = match block {
            0 if from.trailing_zeros() >= 4 => (1 << from.trailing_zeros(), vec![experts, to]),
            0 => (from, vec![experts, to]),
            _ if !block.is_multiple_of(8 / bits) || !from.is_multiple_of(block) => return None,
            _ => (block, vec![experts, to, from / block]),
        };
        let layer = Layer { bits, experts, to, from, block, numbers, scales, zeros };
        let (rows, row) = if scaled.len() == 2 { (experts, to) } else { (experts * to, from / block) };
        let zeros_fit = zeros.is_none_or(|z| z.dtype() == DType::U8 && z.len() == rows * (row * bits).div_ceil(8));
        let fits = numbers.dtype() == DType::U8 && scales.shape() == scaled && !numbers.is_empty() && zeros_fit;
        fits.then_some(layer)
    }

    fn blocks(&self) -> usize {
        self.from / self.block
    }

    /// Scales of all blocks in the order of the numbers, of rows that follow each other as `rows` says.
    fn scales(&self, rows: impl Iterator<Item = usize>) -> Vec<u8> {
        let (size, each) = (self.scales.dtype().size(), self.scales.len() / (self.experts * self.to));
        let of = self.scales.bytes();
        let blocks = self.blocks();
        let at = |row: usize| (0..blocks).map(move |b| if each == 1 { row } else { row * blocks + b });
        rows.flat_map(at).flat_map(|i| of[i * size..][..size].iter().copied()).collect()
    }

    /// Zero points likewise, as floats.
    fn zeros(&self, rows: impl Iterator<Item = usize>) -> Option<Vec<f32>> {
        let (zeros, blocks, of_rows) = (self.zeros?.bytes(), self.blocks(), self.scales.shape().len() == 2);
        let number = |line: usize, width: usize, i: usize| {
            let byte = zeros[line * (width * self.bits).div_ceil(8) + i * self.bits / 8];
            f32::from(byte >> (i * self.bits % 8) & (u8::MAX >> (8 - self.bits)))
        };
        let of_block = |row: usize, b: usize| match of_rows {
            true => number(row / self.to, self.to, row % self.to),
            false => number(row, blocks, b),
        };
        Some(rows.flat_map(|row| (0..blocks).map(move |b| (row, b))).map(|(row, b)| of_block(row, b)).collect())
    }

    /// A product with the numbers as a matrix of `rows` by `depth`, whose lines are the experts' in the order of `lines`.
    fn product(
        &self,
        b: &mut Body<'_>,
        x: &str,
        numbers: HostTensor,
        [rows, depth]: [usize; 2],
        lines: impl Iterator<Item = usize> + Clone,
    ) -> Option<String> {
        let blocks = [rows, depth / self.block];
        let scales = HostTensor::new(self.scales.dtype(), &blocks, self.scales(lines.clone())).ok()?;
        let zeros = self.zeros(lines).map(|z| HostTensor::from_f32(&blocks, &z));
        let (numbers, scales) = (b.constant(numbers), b.constant(scales));
        let zeros = zeros.map_or(String::new(), |z| b.constant(z));
        let sizes = [("bits", self.bits), ("block_size", self.block), ("K", depth), ("N", rows)];
        let attributes = sizes.map(|(n, v)| (n, Attribute::Int(v as i64)));
        Some(b.with("com.microsoft:MatMulNBits", &[x, &numbers, &scales, &zeros], &attributes))
    }

    /// What all experts' layers give for all tokens: `[tokens, experts, to]`.
    fn below_each_other(&self, b: &mut Body<'_>, x: &str, bias: &str) -> Option<String> {
        let rows = self.experts * self.to;
        let y = self.product(b, x, self.numbers.clone(), [rows, self.from], 0..rows)?;
        let shape = b.ints(&[-1, self.experts as i64, self.to as i64]);
        let y = b.op("Reshape", &[&y, &shape]);
        Some(if bias.is_empty() { y } else { b.op("Add", &[&y, bias]) })
    }

    /// The sum of what the experts' layers give, each for its own of `[tokens, experts, from]`: `[tokens, to]`.
    fn side_by_side(&self, b: &mut Body<'_>, x: &str) -> Option<String> {
        let (depth, line) = (self.experts * self.from, self.from * self.bits / 8);
        let (experts, to) = (self.experts, self.to);
        let lines = (0..to).flat_map(move |row| (0..experts).map(move |e| e * to + row));
        let bytes = self.numbers.bytes();
        let turned: Vec<u8> = lines.clone().flat_map(|i| bytes[i * line..][..line].iter().copied()).collect();
        let numbers = HostTensor::new(DType::U8, &[to, experts * line], turned).ok()?;
        let shape = b.ints(&[-1, depth as i64]);
        let x = b.op("Reshape", &[x, &shape]);
        self.product(b, &x, numbers, [to, depth], lines)
    }
}

/// A layer of each expert: weights `[experts, to, from]`, bias `[experts, to]`.
fn linear(b: &mut Body<'_>, x: &str, w: &str, bias: &str) -> String {
    let w = b.with("Transpose", &[w], &[("perm", Attribute::Ints(vec![0, 2, 1]))]);
    let y = b.op("MatMul", &[x, &w]);
    if bias.is_empty() {
        return y;
    }
    let one = b.ints(&[1]);
    let bias = b.op("Unsqueeze", &[bias, &one]);
    b.op("Add", &[&y, &bias])
}

fn activated(b: &mut Body<'_>, h: &str, gated: Option<String>) -> String {
    let kind = b.text("activation_type").unwrap_or("relu").to_string();
    if kind == "swiglu" {
        return swiglu(b, h, gated);
    }
    b.ignore(&[
        "activation_alpha",
        "activation_beta",
        "swiglu_fusion",
        "swiglu_limit",
        "swiglu_limit_after_activation",
    ]);
    let y = match kind.as_str() {
        "relu" => b.op("Relu", &[h]),
        "silu" => b.op("Swish", &[h]),
        "gelu" => b.with("Gelu", &[h], &[("approximate", Attribute::Text("tanh".into()))]),
        "identity" => h.to_string(),
        // No operator has such a name.
        other => b.op(other, &[h]),
    };
    match gated {
        Some(gated) => b.op("Mul", &[&y, &gated]),
        None => y,
    }
}

/// Swish of one value times another, which take turns in `h`, are its halves, or come apart.
fn swiglu(b: &mut Body<'_>, h: &str, gated: Option<String>) -> String {
    let [mut gate, mut value] = match (b.int("swiglu_fusion", 0), gated) {
        (_, Some(gated)) => [h.to_string(), gated],
        (1, None) => [0, 1].map(|from| {
            let (from, to) = (b.ints(&[from]), b.ints(&[i64::MAX]));
            let (last, two) = (b.ints(&[-1]), b.ints(&[2]));
            b.op("Slice", &[h, &from, &to, &last, &two])
        }),
        (_, None) => {
            let halves = [("axis", Attribute::Int(-1)), ("num_outputs", Attribute::Int(2))];
            let made = b.many("Split", &[h], 2, &halves);
            [made[0].clone(), made[1].clone()]
        }
    };
    if b.attribute("swiglu_limit").is_none() {
        b.ignore(&["swiglu_limit_after_activation"]);
    } else {
        let limit = b.float("swiglu_limit", f32::INFINITY);
        let [low, high] = [-limit, limit].map(|v| {
            let v = b.number(v);
            b.op("CastLike", &[&v, h])
        });
        gate = b.op("Min", &[&gate, &high]);
        value = b.op("Clip", &[&value, &low, &high]);
    }
    let alpha = ("alpha", Attribute::Float(b.float("activation_alpha", 1.0)));
    let gate = b.with("Swish", &[&gate], &[alpha]);
    let beta = b.number(b.float("activation_beta", 0.0));
    let beta = b.op("CastLike", &[&beta, h]);
    let value = b.op("Add", &[&value, &beta]);
    b.op("Mul", &[&gate, &value])
}
