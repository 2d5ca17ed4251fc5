//! Gives the model's inputs concrete types and shapes.

use super::Options;
use super::error::Error;
use crate::onnx::{Dim, Model, ValueInfo};
use crate::tensor::{DType, element_count};
use std::collections::{BTreeMap, BTreeSet};

/// Type and shape of each required input. Extents that the model leaves open come from the arrays that are given for its
/// inputs, else from `dims`: by the symbol's name, or as `input[2]` for a dimension without one.
pub(crate) fn input_shapes(model: &Model, options: &Options) -> Result<Vec<(DType, Vec<usize>)>, Error> {
    let mut symbols: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (name, n) in &options.dims {
        symbols.insert(name.clone(), (*n, "--dim".into()));
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    for info in model.required_inputs() {
        let (Some(declared), given) = (&info.shape, options.shapes.get(&info.name)) else { continue };
        if let Some(given) = given
            && given.len() != declared.len()
        {
            return Err(misfit(info, given));
        }
        for (i, d) in declared.iter().enumerate() {
            let Some(symbol) = symbol(info, i, d) else { continue };
            if let Some(given) = given {
                let here = (given[i], format!("input `{}`", info.name));
                let first = symbols.entry(symbol.clone()).or_insert_with(|| here.clone());
                if first.0 != here.0 {
                    return Err(Error::Model(format!(
                        "dimension `{symbol}` is {} in {}, but {} says {}",
                        here.0, here.1, first.1, first.0
                    )));
                }
            }
            known.insert(symbol);
        }
    }
    if let Some(name) = options.dims.keys().find(|n| !known.contains(*n)) {
        let list: Vec<&str> = known.iter().map(String::as_str).collect();
        let list = if list.is_empty() { "none".to_string() } else { list.join(", ") };
        return Err(Error::Model(format!("the model has no symbolic dimension `{name}`; it has: {list}")));
    }
    let mut out = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    for info in model.required_inputs() {
        let name = &info.name;
        let dtype = info.dtype.ok_or_else(|| {
            Error::Model(format!("input `{name}` is not a tensor of a supported type ({})", names_of_types()))
        })?;
        let given = options.shapes.get(name);
        let Some(declared) = &info.shape else {
            match given {
                Some(shape) => out.push((dtype, shape.clone())),
                None => missing.push(format!("input `{name}` declares no shape; give an array for it")),
            }
            continue;
        };
        let mut concrete = Vec::new();
        for (i, d) in declared.iter().enumerate() {
            match (d, symbol(info, i, d)) {
                (Dim::Known(n), _) => concrete.push(*n),
                (_, Some(s)) => match symbols.get(&s) {
                    Some((n, _)) => concrete.push(*n),
                    None => missing.push(format!(
                        "dimension {i} of input `{name}` ({}) is not known; give an array for the input, or --dim {s}=N",
                        info.described()
                    )),
                },
                _ => unreachable!("what is not a number has a name"),
            }
        }
        if given.is_some_and(|g| concrete.len() == declared.len() && *g != concrete) {
            return Err(misfit(info, given.expect("just seen")));
        }
        if element_count(&concrete).is_none() {
            return Err(Error::Model(format!("input `{name}` of shape {concrete:?} is too large")));
        }
        out.push((dtype, concrete));
    }
    if missing.is_empty() { Ok(out) } else { Err(Error::Model(missing.join("\n"))) }
}

fn misfit(info: &ValueInfo, given: &[usize]) -> Error {
    Error::Model(format!("input `{}` is {}, but an array of shape {given:?} was given", info.name, info.described()))
}

/// How `--dim` names a dimension that the model leaves open.
fn symbol(info: &ValueInfo, i: usize, d: &Dim) -> Option<String> {
    match d {
        Dim::Known(_) => None,
        Dim::Symbol(s) => Some(s.clone()),
        Dim::Unknown => Some(format!("{}[{i}]", info.name)),
    }
}

fn names_of_types() -> String {
    DType::ALL.map(DType::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, dims: Vec<Dim>) -> ValueInfo {
        ValueInfo { name: name.into(), dtype: Some(DType::F32), shape: Some(dims) }
    }

    fn shapes(
        inputs: &[ValueInfo],
        dims: &[(&str, usize)],
        given: &[(&str, &[usize])],
    ) -> Result<Vec<Vec<usize>>, String> {
        let mut m = Model::default();
        m.graph.inputs = inputs.to_vec();
        let options = Options {
            dims: dims.iter().map(|(n, d)| (n.to_string(), *d)).collect(),
            shapes: given.iter().map(|(n, s)| (n.to_string(), s.to_vec())).collect(),
        };
        let all = input_shapes(&m, &options).map_err(|e| e.to_string())?;
        Ok(all.into_iter().map(|x| x.1).collect())
    }

    #[test]
    fn symbols_are_bound_and_missing_ones_named() {
        let x = [input("x", vec![Dim::Symbol("N".into()), Dim::Known(3), Dim::Symbol("H".into()), Dim::Unknown])];
        let error = shapes(&x, &[], &[]).unwrap_err();
        for word in ["--dim N=N", "--dim H=N", "--dim x[3]=N", "Nx3xHx?xf32"] {
            assert!(error.contains(word), "{word}: {error}");
        }
        let all = [("N", 2), ("H", 5), ("x[3]", 7)];
        assert_eq!(shapes(&x, &all, &[]).unwrap(), [[2, 3, 5, 7]]);
        let error = shapes(&x, &[("H", 5), ("Q", 5)], &[]).unwrap_err();
        assert!(error.contains("it has: H, N, x[3]"), "{error}");
    }

    #[test]
    fn arrays_say_what_the_model_leaves_open() {
        let n = || Dim::Symbol("N".into());
        let inputs = [input("x", vec![n(), Dim::Known(3)]), input("y", vec![n()])];
        assert_eq!(shapes(&inputs, &[], &[("x", &[4, 3])]).unwrap(), [vec![4, 3], vec![4]]);
        assert_eq!(shapes(&inputs, &[("N", 4)], &[("x", &[4, 3])]).unwrap(), [vec![4, 3], vec![4]]);
        let wrong = |dims: &[(&str, usize)], given: &[(&str, &[usize])], words: &[&str]| {
            let e = shapes(&inputs, dims, given).unwrap_err();
            assert!(words.iter().all(|w| e.contains(w)), "{words:?}: {e}");
        };
        wrong(&[("N", 5)], &[("x", &[4, 3])], &["`N`", "4", "--dim says 5"]);
        wrong(&[], &[("x", &[4, 3]), ("y", &[6])], &["`N`", "`x`", "`y`", "4", "6"]);
        wrong(&[], &[("x", &[4, 2])], &["`x`", "Nx3xf32", "[4, 2]"]);
        wrong(&[], &[("x", &[4])], &["`x`", "[4]"]);
    }
}
