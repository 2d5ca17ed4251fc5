//! Small models made in tests.

use barewave::onnx::{Attribute, Dim, Model, Node, ValueInfo};
use barewave::tensor::{DType, HostTensor, SplitMix64};

/// A model under construction.
#[derive(Clone)]
pub struct Builder {
    pub model: Model,
    pub inputs: Vec<HostTensor>,
    pub rng: SplitMix64,
    next: usize,
}

impl Builder {
    pub fn new(opset: i64, seed: u64) -> Builder {
        let mut model = Model::default();
        model.opsets.insert(String::new(), opset);
        Builder { model, inputs: Vec::new(), rng: SplitMix64(seed), next: 0 }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Random float32 values in [-1, 1).
    pub fn random(&mut self, shape: &[usize]) -> HostTensor {
        let n = shape.iter().product();
        let values: Vec<f64> = (0..n).map(|_| 2.0 * self.rng.next_unit() - 1.0).collect();
        HostTensor::from_f64(DType::F32, shape, &values)
    }

    fn name(&mut self, what: &str) -> String {
        self.next += 1;
        format!("{what}{}", self.next)
    }

    /// A random input of the model.
    pub fn input(&mut self, shape: &[usize]) -> String {
        let value = self.random(shape);
        self.input_of(value)
    }

    pub fn input_of(&mut self, value: HostTensor) -> String {
        let name = self.name("x");
        self.model.graph.inputs.push(ValueInfo {
            name: name.clone(),
            dtype: Some(value.dtype()),
            shape: Some(value.shape().iter().map(|&d| Dim::Known(d)).collect()),
        });
        self.inputs.push(value);
        name
    }

    /// A constant.
    pub fn constant(&mut self, value: HostTensor) -> String {
        let name = self.name("c");
        self.model.graph.initializers.insert(name.clone(), value);
        name
    }

    pub fn weight(&mut self, shape: &[usize]) -> String {
        let value = self.random(shape);
        self.constant(value)
    }

    pub fn ints(&mut self, values: &[i64]) -> String {
        self.constant(HostTensor::from_i64(&[values.len()], values))
    }

    /// A node; returns its first output.
    pub fn node(&mut self, op: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> String {
        self.node_n(op, inputs, attributes, 1).remove(0)
    }

    pub fn node_n(&mut self, op: &str, inputs: &[&str], attributes: &[(&str, Attribute)], n: usize) -> Vec<String> {
        let outputs: Vec<String> = (0..n).map(|_| self.name("v")).collect();
        self.model.graph.nodes.push(Node {
            name: format!("{op}_{}", outputs[0]),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|s| s.to_string()).collect(),
            outputs: outputs.clone(),
            attributes: attributes.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
        });
        outputs
    }

    pub fn output(&mut self, name: &str) {
        self.model.graph.outputs.push(ValueInfo { name: name.into(), dtype: None, shape: None });
    }
}

pub fn ints(v: &[usize]) -> Attribute {
    Attribute::Ints(v.iter().map(|&x| x as i64).collect())
}

pub fn int(v: i64) -> Attribute {
    Attribute::Int(v)
}

pub fn float(v: f32) -> Attribute {
    Attribute::Float(v)
}

pub fn text(v: &str) -> Attribute {
    Attribute::Text(v.into())
}
