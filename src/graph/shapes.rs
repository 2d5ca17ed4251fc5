//! Gives the model's inputs concrete types and shapes.
//!
//! An extent that the model leaves open comes from the array that is given for its input; else from `--dim`, which names it
//! by its symbol or by its place (`input[2]`); else from another input's array, where the same symbol stands. Exporters
//! write one symbol where two extents differ: when arrays say so, the symbol counts for nothing, with a note.

use super::Options;
use super::dim::Dim;
use super::error::{Error, InputError};
use crate::onnx::{Dim as Declared, Model, ValueInfo};
use crate::tensor::{DType, element_count};
use std::collections::{BTreeMap, BTreeSet};

/// Something about a model that its user should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// One symbol has several extents.
    #[error(
        "dimension `{symbol}` is {extent} in input `{input}` and {other} in input `{other_input}`: taken for dimensions \
         that have nothing to do with each other"
    )]
    SymbolTwice {
        /// The symbol.
        symbol: String,
        /// Its first extent.
        extent: usize,
        /// Where.
        input: String,
        /// Another extent.
        other: usize,
        /// Where.
        other_input: String,
    },
    /// The value of an input became part of the model.
    #[error("the value of input `{input}` decides shapes or branches: the model is compiled for this value")]
    Fixed {
        /// The input.
        input: String,
    },
    /// An output has another shape than it is declared with.
    #[error(
        "output `{output}` is declared as {declared}, but the model computes {computed}: it has the shape that is computed"
    )]
    OutputShape {
        /// The output.
        output: String,
        /// What the file says.
        declared: String,
        /// What the nodes compute.
        computed: String,
    },
}

/// Types and shapes of the required inputs, in the model's order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputShapes {
    pub list: Vec<(DType, Vec<usize>)>,
    pub notes: Vec<Note>,
}

/// What is known of a symbol.
enum Extent<'a> {
    /// `--dim` says it.
    Told(usize),
    /// The array of an input says it.
    Seen(usize, &'a str),
    /// Arrays say different things.
    Many,
}

/// Everything that names and arrays say about the extents that a model leaves open.
struct Extents<'a> {
    symbols: BTreeMap<&'a str, Extent<'a>>,
    notes: Vec<Note>,
    wrong: Vec<InputError>,
}

impl<'a> Extents<'a> {
    fn read(model: &'a Model, options: &'a Options) -> Extents<'a> {
        let mut x = Extents { symbols: BTreeMap::new(), notes: Vec::new(), wrong: Vec::new() };
        let mut known: BTreeSet<String> = BTreeSet::new();
        for (name, n) in &options.dims {
            x.symbols.insert(name, Extent::Told(*n));
        }
        for info in model.required_inputs() {
            let Some(declared) = &info.shape else { continue };
            let given = options.shapes.get(&info.name).filter(|g| g.len() == declared.len());
            for (i, d) in declared.iter().enumerate().filter(|(_, d)| !matches!(d, Declared::Known(_))) {
                known.insert(place(info, i));
                let Declared::Symbol(symbol) = d else { continue };
                known.insert(symbol.clone());
                if let Some(&here) = given.map(|g| &g[i]) {
                    x.see(symbol, here, &info.name);
                }
            }
        }
        let list =
            || if known.is_empty() { "none".into() } else { known.iter().cloned().collect::<Vec<_>>().join(", ") };
        for name in options.dims.keys().filter(|n| !known.contains(*n)) {
            x.wrong.push(InputError::NoDimension { name: name.clone(), known: list() });
        }
        x
    }

    /// An array says what a symbol stands for.
    fn see(&mut self, symbol: &'a str, here: usize, input: &'a str) {
        match self.symbols.get(symbol) {
            None => {
                self.symbols.insert(symbol, Extent::Seen(here, input));
            }
            Some(Extent::Told(told)) if *told != here => self.wrong.push(InputError::Conflict {
                name: symbol.into(),
                extent: here,
                place: format!("input `{input}`"),
                other: *told,
                other_place: "--dim".into(),
            }),
            Some(&Extent::Seen(other, other_input)) if other != here => {
                self.notes.push(Note::SymbolTwice {
                    symbol: symbol.into(),
                    extent: other,
                    input: other_input.into(),
                    other: here,
                    other_input: input.into(),
                });
                self.symbols.insert(symbol, Extent::Many);
            }
            _ => {}
        }
    }
}

/// Type and shape of each required input; the error lists everything that is wrong with them.
pub(crate) fn input_shapes(model: &Model, options: &Options) -> Result<InputShapes, Error> {
    let Extents { symbols, notes, mut wrong } = Extents::read(model, options);
    let mut out = Vec::new();
    for info in model.required_inputs() {
        match one(model, info, options, &symbols) {
            Ok(x) => out.push(x),
            Err(list) => wrong.extend(list),
        }
    }
    if wrong.is_empty() { Ok(InputShapes { list: out, notes }) } else { Err(Error::Inputs(wrong)) }
}

/// Type and dimensions of each required input, where extents that nothing tells are run-time sizes: named by their symbol or
/// by their place.
pub(crate) fn input_dims(model: &Model, options: &Options) -> Result<Vec<(DType, Vec<Dim>)>, Error> {
    let Extents { symbols, mut wrong, .. } = Extents::read(model, options);
    let mut out = Vec::new();
    for info in model.required_inputs() {
        let mut dims = Vec::new();
        for (i, d) in info.shape.iter().flatten().enumerate() {
            let own = place(info, i);
            let name = if let Declared::Symbol(s) = d { s.as_str() } else { &own };
            dims.push(match (d, options.dims.get(&own), symbols.get(name)) {
                (Declared::Known(n), ..) | (_, Some(n), _) => (*n).into(),
                (_, None, Some(Extent::Told(n) | Extent::Seen(n, _))) => (*n).into(),
                (_, None, Some(Extent::Many)) => Dim::size(&own),
                (_, None, None) => Dim::size(name),
            });
        }
        if let Some(given) = options.shapes.get(&info.name) {
            dims = given.iter().map(|&d| d.into()).collect();
        } else if info.shape.is_none() && info.dtype.is_some() {
            wrong.push(InputError::NoShape { input: info.name.clone() });
        }
        match info.dtype {
            Some(dtype) => out.push((dtype, dims)),
            None => wrong.push(no_tensor(model, info)),
        }
    }
    if wrong.is_empty() { Ok(out) } else { Err(Error::Inputs(wrong)) }
}

/// Fails where inputs are no tensors, but sequences or optionals.
///
/// # Errors
/// Names each of them.
pub fn check_tensors(model: &Model) -> Result<(), Error> {
    let others = model.required_inputs().filter(|i| model.structures.contains_key(&i.name));
    let wrong: Vec<InputError> = others.map(|i| no_tensor(model, i)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(Error::Inputs(wrong)) }
}

/// Why an input without an element type is refused.
fn no_tensor(model: &Model, info: &ValueInfo) -> InputError {
    let input = info.name.clone();
    match model.structures.get(&input) {
        Some(structure) => InputError::Structure { input, structure: structure.name() },
        None => InputError::Type { input, types: DType::ALL.map(DType::name).join(", ") },
    }
}

/// Type and shape of one input, or everything that is wrong with it.
fn one(
    model: &Model,
    info: &ValueInfo,
    options: &Options,
    symbols: &BTreeMap<&str, Extent>,
) -> Result<(DType, Vec<usize>), Vec<InputError>> {
    let input = || info.name.clone();
    let given = options.shapes.get(&info.name);
    let mut wrong = Vec::new();
    if info.dtype.is_none() {
        wrong.push(no_tensor(model, info));
    }
    let mut shape = Vec::new();
    match (&info.shape, given) {
        // What is no tensor has none.
        (None, None) if info.dtype.is_none() => {}
        (None, None) => wrong.push(InputError::NoShape { input: input() }),
        (None, Some(given)) => shape = given.clone(),
        (Some(declared), Some(given)) => {
            let differs = misfit(info, declared, given, options);
            if let Some(difference) = differs {
                let (described, given) = (info.described(), given.clone());
                wrong.push(InputError::Misfit { input: input(), described, given, difference });
            }
            shape = given.clone();
        }
        (Some(declared), None) => {
            for (i, d) in declared.iter().enumerate() {
                let own = place(info, i);
                let name = if let Declared::Symbol(s) = d { s.as_str() } else { &own };
                let extent = match (d, options.dims.get(&own), symbols.get(name)) {
                    (Declared::Known(n), ..) | (_, Some(n), _) => Some(*n),
                    (_, None, Some(Extent::Told(n) | Extent::Seen(n, _))) => Some(*n),
                    (_, None, Some(Extent::Many) | None) => None,
                };
                match extent {
                    Some(n) => shape.push(n),
                    None => {
                        let name = if matches!(symbols.get(name), Some(Extent::Many)) { &own } else { name };
                        let (described, name) = (info.described(), name.to_string());
                        wrong.push(InputError::Open { position: i, input: input(), described, name });
                    }
                }
            }
        }
    }
    if element_count(&shape).is_none() {
        wrong.push(InputError::TooLarge { input: input(), shape: shape.clone() });
    }
    match info.dtype {
        Some(dtype) if wrong.is_empty() => Ok((dtype, shape)),
        _ => Err(wrong),
    }
}

/// Where an array does not fit what is declared; a dimension of another extent by its number and name.
fn misfit(info: &ValueInfo, declared: &[Declared], given: &[usize], options: &Options) -> Option<String> {
    if declared.len() != given.len() {
        return Some(format!(": it has {} dimensions, not {}", given.len(), declared.len()));
    }
    let list: Vec<String> = declared
        .iter()
        .zip(given)
        .enumerate()
        .filter_map(|(i, (d, &g))| match (d, options.dims.get(&place(info, i))) {
            (Declared::Known(n), _) if *n != g => Some(format!("dimension {i} is {g}, not {n}")),
            (Declared::Known(_), _) => None,
            (_, Some(&n)) if n != g => Some(format!("dimension {i} is {g}, but --dim says {n}")),
            _ => None,
        })
        .collect();
    (!list.is_empty()).then(|| format!(": {}", list.join(", ")))
}

/// The name of a dimension that is declared open.
pub(super) fn open_name(info: &ValueInfo, i: usize, declared: &Declared) -> Option<String> {
    match declared {
        Declared::Known(_) => None,
        Declared::Symbol(s) => Some(s.clone()),
        Declared::Unknown => Some(place(info, i)),
    }
}

/// How `--dim` names a dimension without a symbol.
fn place(info: &ValueInfo, i: usize) -> String {
    format!("{}[{i}]", info.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::Dim;

    fn input(name: &str, dims: Vec<Dim>) -> ValueInfo {
        ValueInfo { name: name.into(), dtype: Some(DType::F32), shape: Some(dims) }
    }

    fn with_notes(
        inputs: &[ValueInfo],
        dims: &[(&str, usize)],
        given: &[(&str, &[usize])],
    ) -> Result<InputShapes, Error> {
        let mut m = Model::default();
        m.graph.inputs = inputs.to_vec();
        let options = Options {
            dims: dims.iter().map(|(n, d)| (n.to_string(), *d)).collect(),
            shapes: given.iter().map(|(n, s)| (n.to_string(), s.to_vec())).collect(),
            ..Options::default()
        };
        input_shapes(&m, &options)
    }

    fn shapes(
        inputs: &[ValueInfo],
        dims: &[(&str, usize)],
        given: &[(&str, &[usize])],
    ) -> Result<Vec<Vec<usize>>, String> {
        let all = with_notes(inputs, dims, given).map_err(|e| e.to_string())?;
        assert_eq!(all.notes, []);
        Ok(all.list.into_iter().map(|x| x.1).collect())
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
        assert!(error.contains("it has: H, N, x[0], x[2], x[3]"), "{error}");
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
        wrong(&[], &[("x", &[4, 2])], &["`x`", "Nx3xf32", "[4, 2]", "dimension 1 is 2, not 3"]);
        wrong(&[], &[("x", &[4])], &["`x`", "[4]", "1 dimensions, not 2"]);
        wrong(&[], &[("x", &[4, 2]), ("y", &[1, 1])], &["dimension 1 is 2", "2 dimensions, not 1"]);
        wrong(&[("y[0]", 3)], &[("x", &[4, 3]), ("y", &[4])], &["dimension 0 is 4, but --dim says 3"]);
    }

    #[test]
    fn a_symbol_with_two_extents_counts_for_nothing() {
        let n = || Dim::Symbol("N".into());
        let inputs = [input("x", vec![n(), Dim::Known(3)]), input("y", vec![n()]), input("z", vec![n()])];
        let xy: [(&str, &[usize]); 2] = [("x", &[4, 3]), ("y", &[6])];
        let e = with_notes(&inputs, &[], &xy).unwrap_err().to_string();
        assert!(e.contains("`z`") && e.contains("--dim z[0]=N"), "{e}");
        let all = with_notes(&inputs, &[("z[0]", 0)], &xy).unwrap();
        assert_eq!(all.list.iter().map(|x| x.1.clone()).collect::<Vec<_>>(), [vec![4, 3], vec![6], vec![0]]);
        let note = all.notes[0].to_string();
        assert!(["`N`", "4", "`x`", "6", "`y`"].iter().all(|w| note.contains(w)), "{note}");
    }
}
