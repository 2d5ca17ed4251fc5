//! Gives the model's inputs concrete types and shapes.

use super::error::Error;
use crate::onnx::{Dim, Model};
use crate::tensor::{DType, element_count};
use std::collections::BTreeMap;

/// Type and shape of each required input. A symbolic dimension takes its extent from `dims`; a symbolic or unknown first
/// dimension that is not given is a batch of 1.
pub(crate) fn input_shapes(model: &Model, dims: &BTreeMap<String, usize>) -> Result<Vec<(DType, Vec<usize>)>, Error> {
    let mut known: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for info in model.required_inputs() {
        let name = &info.name;
        let dtype = info.dtype.ok_or_else(|| {
            Error::Model(format!("input `{name}` is not a tensor of a supported type ({})", names_of_types()))
        })?;
        let shape = info
            .shape
            .as_ref()
            .ok_or_else(|| Error::Model(format!("input `{name}` declares no shape; export the model with one")))?;
        let mut concrete = Vec::new();
        for (i, d) in shape.iter().enumerate() {
            concrete.push(match d {
                Dim::Known(n) => *n,
                Dim::Symbol(s) => {
                    known.push(s);
                    match dims.get(s) {
                        Some(&n) => n,
                        None if i == 0 => 1,
                        None => {
                            return Err(Error::Model(format!(
                                "dimension {i} of input `{name}` is the symbol `{s}`; give it with --dim {s}=N"
                            )));
                        }
                    }
                }
                Dim::Unknown if i == 0 => 1,
                Dim::Unknown => {
                    return Err(Error::Model(format!(
                        "dimension {i} of input `{name}` is not declared; export the model with a number or a name there"
                    )));
                }
            });
        }
        if element_count(&concrete).is_none() {
            return Err(Error::Model(format!("input `{name}` of shape {concrete:?} is too large")));
        }
        out.push((dtype, concrete));
    }
    if let Some(name) = dims.keys().find(|n| !known.contains(&n.as_str())) {
        known.sort_unstable();
        known.dedup();
        let list = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        return Err(Error::Model(format!("the model has no symbolic dimension `{name}`; it has: {list}")));
    }
    Ok(out)
}

fn names_of_types() -> String {
    DType::ALL.map(DType::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::ValueInfo;

    fn model(dims: Vec<Dim>) -> Model {
        let mut m = Model::default();
        m.graph.inputs = vec![ValueInfo { name: "x".into(), dtype: Some(DType::F32), shape: Some(dims) }];
        m
    }

    #[test]
    fn symbols_are_bound_and_missing_ones_named() {
        let m = model(vec![Dim::Symbol("N".into()), Dim::Known(3), Dim::Symbol("H".into())]);
        let error = input_shapes(&m, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("--dim H=N"), "{error}");
        let dims = BTreeMap::from([("H".to_string(), 5)]);
        assert_eq!(input_shapes(&m, &dims).unwrap(), [(DType::F32, vec![1, 3, 5])]);
        let dims = BTreeMap::from([("H".to_string(), 5), ("Q".to_string(), 5)]);
        assert!(input_shapes(&m, &dims).unwrap_err().to_string().contains("it has: H, N"));
    }
}
