//! Seeded random weights, the same in Rust and in `tools/record_reference.py`.
//!
//! Real architectures are distributed with constant weights to keep them small, but constant weights hide indexing
//! errors. [`Model::seed_weights`] fills them from a generator simple enough to be written twice:
//!
//! Every float32 tensor with at least [`SEEDED_FROM`] elements that is an initializer or the output of a
//! `ConstantOfShape` node is replaced, in the order of their names (byte order). Tensor number `i` of that order uses
//! splitmix64 started at `seed + i * 0x9E3779B97F4A7C15` (wrapping); each draw `z` gives `u = (z >> 40) / 2^24`, in
//! `[0, 1)` and exact in float32. What is made of `u` depends on how the tensor is used first:
//!
//! * scale (input 1), mean (3) or variance (4) of a BatchNormalization: `0.5 + u`, `0.2 u - 0.1`, `0.5 + u`;
//! * one dimension otherwise (biases): `0.2 u - 0.1`;
//! * more dimensions: `(2 u - 1) * sqrt(g / fan_in)`, the fan-in being the product of all dimensions but the first and
//!   `g` 6, or 3 in a model with BatchNormalization. The variance is then `g / 3 / fan_in`, so that activations keep
//!   their magnitude through many layers with rectifiers (6), or grow moderately over residual blocks (3).
//!
//! All arithmetic is in f64, rounded once to f32.

use super::{Attribute, Model};
use crate::tensor::{DType, HostTensor, SplitMix64};
use std::collections::BTreeMap;

/// Tensors with fewer elements keep their values: they are shapes, exponents and the like.
pub const SEEDED_FROM: usize = 8;

impl Model {
    /// Replaces the weights by seeded random ones as the module describes. `ConstantOfShape` nodes that gave weights
    /// become initializers.
    pub fn seed_weights(&mut self, seed: u64) {
        let graph = &mut self.graph;
        let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (name, t) in &graph.initializers {
            if t.dtype() == DType::F32 && t.len() >= SEEDED_FROM {
                shapes.insert(name.clone(), t.shape().to_vec());
            }
        }
        for node in graph.nodes.iter().filter(|n| n.op == "ConstantOfShape" && n.domain.is_empty()) {
            let float = match node.attributes.get("value") {
                None => true,
                Some(Attribute::Tensor(t)) => t.dtype() == DType::F32,
                Some(_) => false,
            };
            let shape = node.inputs.first().and_then(|i| graph.initializers.get(i));
            if let (true, Some(shape), Some(output)) = (float, shape, node.outputs.first()) {
                let shape: Vec<usize> = shape.to_i64().into_iter().map(|d| d.max(0) as usize).collect();
                if shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_some_and(|n| n >= SEEDED_FROM) {
                    shapes.insert(output.clone(), shape);
                }
            }
        }
        let mut normalisation: BTreeMap<&str, usize> = BTreeMap::new();
        for node in graph.nodes.iter().filter(|n| n.op == "BatchNormalization") {
            for (i, name) in node.inputs.iter().enumerate() {
                normalisation.entry(name).or_insert(i);
            }
        }
        let gain = if normalisation.is_empty() { 6.0 } else { 3.0 };
        let mut made = Vec::new();
        for (i, (name, shape)) in shapes.iter().enumerate() {
            let mut rng = SplitMix64(seed.wrapping_add((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            let fan_in: usize = shape.iter().skip(1).product();
            let (low, range) = match (normalisation.get(name.as_str()), shape.len()) {
                (Some(1 | 4), _) => (0.5, 1.0),
                (Some(3), _) | (_, 0 | 1) => (-0.1, 0.2),
                _ => {
                    let bound = (gain / fan_in as f64).sqrt();
                    (-bound, 2.0 * bound)
                }
            };
            let count: usize = shape.iter().product();
            let mut bytes = Vec::with_capacity(count * 4);
            for _ in 0..count {
                bytes.extend(((low + range * rng.next_unit()) as f32).to_le_bytes());
            }
            made.push((name.clone(), HostTensor::new(DType::F32, shape, bytes)));
        }
        graph.nodes.retain(|n| !(n.op == "ConstantOfShape" && n.outputs.iter().any(|o| shapes.contains_key(o))));
        for (name, tensor) in made {
            graph.initializers.insert(name, tensor.expect("the bytes were made for the shape"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_change_and_small_tensors_stay() {
        let mut m = Model::default();
        m.graph.initializers.insert("w".into(), HostTensor::from_f32(&[2, 8], &[1.0; 16]));
        m.graph.initializers.insert("s".into(), HostTensor::from_f32(&[2], &[1.0; 2]));
        m.seed_weights(1);
        let w = m.graph.initializers["w"].to_f64();
        let bound = (6.0f64 / 8.0).sqrt();
        assert!(w.iter().all(|v| v.abs() <= bound) && w.iter().any(|&v| v < 0.0) && w.iter().any(|&v| v > 0.0));
        assert_eq!(m.graph.initializers["s"].to_f64(), [1.0; 2]);
    }
}
