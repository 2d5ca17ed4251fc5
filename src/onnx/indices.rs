//! Checks of indices at run time.
//!
//! A kernel clamps an index that Gather and its kind find out of range, so that it never leaves the tensor, and Scatter drops
//! the update; both are quick, and hide a mistake. A model with checks gives out, besides its own outputs, how far the
//! indices of each such node reach: the shape of what they point into, and the least and largest of them. Nodes inside of
//! branches and loops are not looked at.

use super::{Attribute, Model, Node, ValueInfo};
use crate::tensor::HostTensor;
use std::collections::BTreeMap;

/// An index that points outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node `{node}` ({op}): index {index} is out of range: the dimension has the extent {extent}")]
pub struct OutOfRange {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// The index.
    pub index: i64,
    /// Number of places that there are.
    pub extent: i64,
}

/// The checks that were added to a model.
#[derive(Clone, Debug, Default)]
pub struct IndexChecks {
    nodes: Vec<Checked>,
}

#[derive(Clone, Debug)]
struct Checked {
    node: String,
    op: String,
    first: First,
}

/// The dimension that the first number of an index is for.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Counted from the end when negative.
    Axis(i64),
    Batch(i64),
}

/// Adds nodes to a model.
struct Writer {
    nodes: Vec<Node>,
    prefix: String,
}

impl Writer {
    fn node(&mut self, op: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> String {
        let name = format!("{}/{}", self.prefix, self.nodes.len());
        self.nodes.push(Node {
            name: name.clone(),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|i| i.to_string()).collect(),
            outputs: vec![name.clone()],
            attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect::<BTreeMap<_, _>>(),
        });
        name
    }

    fn ints(&mut self, list: &[i64]) -> String {
        let value = Attribute::Tensor(HostTensor::from_i64(&[list.len()], list));
        self.node("Constant", &[], &[("value", value)])
    }

    /// The least and the largest of the numbers that indices are made of, after each other. A zero is added to them, so that
    /// there are some.
    fn reach(&mut self, indices: &str, each: &str) -> String {
        let indices = self.node("Cast", &[indices], &[("to", Attribute::Int(7))]);
        let (one, rest) = (self.ints(&[1]), self.ints(&[-1]));
        let along = [("axis", Attribute::Int(0))];
        let (row, rows) = (self.node("Concat", &[&one, each], &along), self.node("Concat", &[&rest, each], &along));
        let zero = ("value", Attribute::Tensor(HostTensor::from_i64(&[1], &[0])));
        let zero = self.node("ConstantOfShape", &[&row], &[zero]);
        let table = self.node("Reshape", &[&indices, &rows], &[]);
        let table = self.node("Concat", &[&table, &zero], &along);
        let over = [("axes", Attribute::Ints(vec![0])), ("keepdims", Attribute::Int(0))];
        let (least, largest) = (self.node("ReduceMin", &[&table], &over), self.node("ReduceMax", &[&table], &over));
        self.node("Concat", &[&least, &largest], &along)
    }
}

impl IndexChecks {
    /// Adds checks to a model.
    pub fn add(model: &mut Model) -> IndexChecks {
        let mut checks = IndexChecks::default();
        let mut writer = Writer { nodes: Vec::new(), prefix: String::new() };
        for node in &model.graph.nodes {
            let int = |name: &str| match node.attributes.get(name) {
                Some(Attribute::Int(n)) => *n,
                _ => 0,
            };
            let (first, several) = match node.op.as_str() {
                _ if !node.domain.is_empty() => continue,
                "Gather" | "GatherElements" | "Scatter" | "ScatterElements" => (First::Axis(int("axis")), false),
                "GatherND" => (First::Batch(int("batch_dims")), true),
                "ScatterND" => (First::Batch(0), true),
                _ => continue,
            };
            let [data, indices, ..] = &node.inputs[..] else { continue };
            writer.prefix = format!("{}/indices", node.outputs.first().map_or("", |o| o));
            let each = if several {
                let shape = writer.node("Shape", &[indices], &[]);
                let last = writer.ints(&[-1]);
                writer.node("Gather", &[&shape, &last], &[])
            } else {
                writer.ints(&[1])
            };
            let shape = writer.node("Shape", &[data], &[]);
            let reach = writer.reach(indices, &each);
            let info = |name: String| ValueInfo { name, dtype: None, shape: None };
            model.graph.outputs.extend([info(shape), info(reach)]);
            checks.nodes.push(Checked { node: node.name.clone(), op: node.op.clone(), first });
        }
        model.graph.nodes.append(&mut writer.nodes);
        checks
    }

    /// Number of outputs that were added.
    pub fn outputs(&self) -> usize {
        2 * self.nodes.len()
    }

    /// Takes what the checks gave from the outputs of a run.
    ///
    /// # Errors
    /// When an index was out of range: the first node that has one.
    pub fn verify(&self, outputs: &mut Vec<HostTensor>) -> Result<(), OutOfRange> {
        let found = outputs.split_off(outputs.len().saturating_sub(self.outputs()));
        for (checked, [shape, reach]) in self.nodes.iter().zip(found.as_chunks().0) {
            let (shape, reach) = (shape.to_i64(), reach.to_i64());
            let (least, largest) = reach.split_at(reach.len() / 2);
            let first = match checked.first {
                First::Axis(a) if a < 0 => a + shape.len() as i64,
                First::Axis(a) | First::Batch(a) => a,
            };
            for (i, (least, largest)) in least.iter().zip(largest).enumerate() {
                let extent = shape.get(first as usize + i).copied().unwrap_or(0);
                // The zero that was added is in range of nothing.
                let index = if *largest >= extent.max(1) { *largest } else { *least };
                if index < -extent || index >= extent.max(1) {
                    let (node, op) = (checked.node.clone(), checked.op.clone());
                    return Err(OutOfRange { node, op, index, extent });
                }
            }
        }
        Ok(())
    }
}
