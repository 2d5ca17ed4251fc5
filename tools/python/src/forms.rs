//! A model for whatever is given: inputs that have a default may be given or not, and sequences and optionals hold any number of
//! tensors. For each such choice there is a form of the model of which all inputs are tensors that have to be given.

use crate::session::converted;
use barewave::Compiler;
use barewave::onnx::{Dim, IndexChecks, Model};
use barewave::runtime::{AnyShape, Device};
use barewave::tensor::{DType, TensorView};
use pyo3::PyResult;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Combinations of shapes whose compiled form a session keeps, and choices of inputs.
const KEPT: usize = 16;

/// Type and rank of each tensor that a sequence or an optional holds; nothing when it is without a value.
type Held = Option<Vec<(DType, usize)>>;

/// What decides the form of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Inputs that are given although they have a default.
    given: Vec<String>,
    lists: Vec<(String, Held)>,
}

impl Choice {
    /// What arrays by name say, and how many tensors each sequence or optional holds.
    pub fn new(model: &Model, views: &BTreeMap<&str, TensorView>, lists: &BTreeMap<String, Option<usize>>) -> Choice {
        let described = |name: &str| views.get(name).map(|v| (v.dtype(), v.shape().len()));
        let held = |(name, count): (&String, &Option<usize>)| {
            let list = count.map(|n| match described(name) {
                Some(only) => vec![only],
                None => (0..n).filter_map(|k| described(&format!("{name}[{k}]"))).collect(),
            });
            (name.clone(), list)
        };
        let given = views.keys().filter(|n| model.graph.initializers.contains_key(**n)).map(|n| n.to_string());
        Choice { given: given.collect(), lists: lists.iter().map(held).collect() }
    }
}

/// The model for one choice.
pub struct Form {
    choice: Choice,
    /// It, on the device.
    pub any: AnyShape,
    /// Of a strict session.
    pub checks: IndexChecks,
}

/// All forms of a model.
pub struct Forms {
    /// As it was read.
    pub source: Model,
    /// What 32-bit floats are computed in, if that is another type.
    dtype: Option<DType>,
    strict: bool,
    /// For nothing but the inputs that have to be given; then others, the one used last at the end.
    forms: Vec<Form>,
}

impl Forms {
    /// A model on a device, with a compiler for it.
    pub fn new(
        source: Model,
        dtype: Option<DType>,
        strict: bool,
        (device, compiler): (Arc<dyn Device>, Compiler),
    ) -> PyResult<Forms> {
        let (model, checks) = prepared(source.clone(), dtype, strict)?;
        let any = AnyShape::new(device, compiler, Arc::new(model), KEPT);
        let first = Form { choice: Choice::default(), any, checks };
        Ok(Forms { source, dtype, strict, forms: vec![first] })
    }

    /// The form for a choice.
    pub fn form(&mut self, choice: Choice) -> PyResult<&mut Form> {
        let at = match self.forms.iter().position(|f| f.choice == choice) {
            Some(0) => 0,
            Some(known) => {
                self.forms[known..].rotate_left(1);
                self.forms.len() - 1
            }
            None => {
                let mut model = self.source.clone();
                for (name, held) in &choice.lists {
                    unpack(&mut model, name, held);
                }
                model.give_up_defaults(|name| choice.given.iter().any(|n| n == name));
                let (model, checks) = prepared(model, self.dtype, self.strict)?;
                let any = self.forms[0].any.variant(Arc::new(model));
                if self.forms.len() > KEPT {
                    self.forms.remove(1);
                }
                self.forms.push(Form { choice, any, checks });
                self.forms.len() - 1
            }
        };
        Ok(&mut self.forms[at])
    }
}

/// As it is computed.
fn prepared(model: Model, dtype: Option<DType>, strict: bool) -> PyResult<(Model, IndexChecks)> {
    let mut model = converted(model, dtype)?;
    let checks = if strict { IndexChecks::add(&mut model) } else { IndexChecks::default() };
    Ok((model, checks))
}

/// Takes an input for so many tensors, of any extents.
fn unpack(model: &mut Model, name: &str, held: &Held) {
    let types = held.as_ref().map(|list| list.iter().map(|(t, rank)| (*t, vec![1; *rank])).collect::<Vec<_>>());
    model.unpack(name, types.as_deref());
    let element = |n: &str| n.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['));
    for info in model.graph.inputs.iter_mut().filter(|i| element(&i.name)) {
        info.shape.iter_mut().flatten().for_each(|d| *d = Dim::Unknown);
    }
}
