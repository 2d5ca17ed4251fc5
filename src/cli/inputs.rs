//! What goes into a run and what comes out of it: `--input`, `--output` and `--expect`, matched to the model's tensors by
//! name.
//!
//! Mistakes are found as early as they can be: in the words before the model is read, in names before it is compiled, in
//! types, shapes and files before it runs.

use super::limits::Limits;
use super::{Failure, Result};
use barewave::graph::Options;
use barewave::onnx::Dim;
use barewave::runtime::plan::Port;
use barewave::tensor::{DType, HostTensor, ImageOptions, InputSpec, Npz, Source, Wanted, check_save, kind_of, save};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An input of the model, as far as it is declared.
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its extents, if the rank is known.
    pub shape: Option<Vec<Dim>>,
    /// Its element type, if it is known.
    pub dtype: Option<DType>,
    /// Shape and type for people.
    pub described: String,
}

/// What is given for an input.
enum Given {
    Array(HostTensor),
    Picture(InputSpec),
    Random(u64),
}

/// What is given for every input, in the model's order.
pub struct Inputs(Vec<(String, Given)>);

/// What `run --target` says: running takes a device.
pub fn device_of_target(target: &str) -> std::result::Result<std::convert::Infallible, String> {
    let compile = "`barewave compile` takes targets";
    Err(match barewave::target(target) {
        Ok(t) => format!("a device runs a model: write --device emu:{}; {compile}", t.info().name),
        Err(e) => format!("a device runs a model: write --device emu:gfx942, or another of `barewave devices` ({e})"),
    })
}

/// Parses `--input`s; a name that comes twice is refused.
pub fn parse(texts: &[String]) -> Result<Vec<InputSpec>> {
    let mut specs: Vec<InputSpec> = Vec::new();
    for text in texts {
        let spec: InputSpec = text.parse().map_err(Failure::usage)?;
        if let Some(name) = &spec.name
            && specs.iter().any(|s| s.name.as_ref() == Some(name))
        {
            return Err(Failure::usage(format!("--input {name} is given twice")));
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// All names that something is given for, those in archives too.
pub fn given_names(specs: &[InputSpec], limit: Option<u64>) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for spec in specs {
        match (&spec.name, &spec.source) {
            (Some(name), _) => _ = names.insert(name.clone()),
            (None, Source::File(path)) if kind_of(path) == "npz" => names.extend(Npz::open(path, limit)?.names()),
            _ => {}
        }
    }
    Ok(names)
}

impl Inputs {
    /// Finds out which spec is for which input, and reads arrays: named ones first, then those that archives hold, then
    /// the others in the model's order. With `random`, what is missing is made from that seed.
    pub fn gather(
        specs: Vec<InputSpec>,
        declared: &[Declared],
        random: Option<u64>,
        limit: Option<u64>,
    ) -> Result<Inputs> {
        let mut given: BTreeMap<String, Given> = BTreeMap::new();
        let index = |name: &str| declared.iter().position(|d| d.name == name);
        let (named, unnamed): (Vec<_>, Vec<_>) = specs.into_iter().partition(|s| s.name.is_some());
        for spec in named {
            let name = spec.name.clone().unwrap_or_default();
            let Some(at) = index(&name) else {
                return Err(Failure::new(format!(
                    "the model has no input '{name}'; it has {} (a spec such as 1x3xf32=0 needs a known element type)",
                    names(declared.iter().map(|d| d.name.as_str()))
                )));
            };
            given.insert(name.clone(), read(spec, &declared[at], limit)?);
        }
        let mut in_order = Vec::new();
        for spec in unnamed {
            match &spec.source {
                Source::File(path) if kind_of(path) == "npz" => archive(path, declared, &mut given, limit)?,
                _ => in_order.push(spec),
            }
        }
        let mut open = declared.iter().filter(|d| !given.contains_key(&d.name)).collect::<Vec<_>>().into_iter();
        let count = in_order.len();
        for spec in in_order {
            let Some(d) = open.next() else {
                return Err(Failure::usage(format!(
                    "{} inputs given, the model has {}",
                    given.len().max(count),
                    names(declared.iter().map(|d| d.name.as_str()))
                )));
            };
            given.insert(d.name.clone(), read(spec, d, limit)?);
        }
        let missing: Vec<&Declared> = declared.iter().filter(|d| !given.contains_key(&d.name)).collect();
        if !missing.is_empty() && random.is_none() {
            let list: Vec<String> = missing.iter().map(|d| format!("  {}={}", d.name, d.described)).collect();
            return Err(Failure::usage(format!(
                "these inputs are not given:\n{}\ngive them with --input NAME=SPEC (such as @x.npy, or 1x3xf32=0), or let \
                 --random-inputs make them up",
                list.join("\n")
            )));
        }
        let mut all = Vec::new();
        for (i, d) in declared.iter().enumerate() {
            let made = || Given::Random(random.unwrap_or_default().wrapping_add(i as u64));
            all.push((d.name.clone(), given.remove(&d.name).unwrap_or_else(made)));
        }
        Ok(Inputs(all))
    }

    /// Adds what the given arrays say about open extents. A picture is a batch of one.
    pub fn shapes(&self, declared: &[Declared], options: &mut Options) {
        for ((name, given), d) in self.0.iter().zip(declared) {
            match given {
                Given::Array(t) => {
                    // One number is a scalar, however it is wrapped.
                    let scalar = t.len() == 1 && d.shape.as_ref().is_some_and(Vec::is_empty);
                    let shape = if scalar { Vec::new() } else { t.shape().to_vec() };
                    let fits = |dtype| if t.dtype() == dtype { Some(t.clone()) } else { converted(t, dtype) };
                    let value = d.dtype.map_or(Some(t.clone()), fits).and_then(|t| t.reshaped(&shape).ok());
                    options.values.extend(value.map(|t| (name.clone(), t)));
                    options.shapes.insert(name.clone(), shape);
                }
                Given::Picture(_) => match d.shape.as_deref() {
                    Some([Dim::Symbol(s), _, _, _]) => {
                        options.dims.entry(s.clone()).or_insert(1);
                    }
                    Some([Dim::Unknown, _, _, _]) => {
                        options.dims.entry(format!("{name}[0]")).or_insert(1);
                    }
                    _ => {}
                },
                Given::Random(_) => {}
            }
        }
    }

    /// True when the given arrays have these shapes.
    pub fn fit(&self, ports: &[Port]) -> bool {
        self.0.iter().zip(ports).all(|((_, given), port)| match given {
            Given::Array(t) => t.shape() == port.shape || (t.len() == 1 && port.shape.is_empty()),
            Given::Picture(_) | Given::Random(_) => true,
        })
    }

    /// The tensors, now that types and shapes are known. Integers of another type are converted, with a note.
    pub fn load(self, wanted: &[Wanted], images: &ImageOptions, limits: &Limits) -> Result<Vec<HostTensor>> {
        let mut out = Vec::new();
        for ((_, given), wanted) in self.0.into_iter().zip(wanted) {
            let random = |seed| {
                let source = Source::Random(wanted.dtype, wanted.shape.clone(), seed);
                InputSpec { name: None, source }
            };
            let fits = || limits.check(&format!("input '{}'", wanted.name), random(0).bytes().unwrap_or(u64::MAX));
            let tensor = match given {
                Given::Array(t) => suited(t, wanted),
                Given::Picture(spec) => {
                    fits()?;
                    spec.load(wanted, images)?
                }
                Given::Random(seed) => {
                    fits()?;
                    random(seed).array(&wanted.name, None)?
                }
            };
            wanted.check(&tensor).map_err(|e| Failure::new(format!("input {e}")))?;
            out.push(tensor);
        }
        Ok(out)
    }
}

/// The same numbers in another type; `None` where it does not have them all.
fn converted(t: &HostTensor, to: DType) -> Option<HostTensor> {
    t.as_integers(to).or_else(|| t.unwidened(to))
}

/// An array as the input wants it, where nothing is lost: integers of another type, floats that stand for a type that npy files
/// do not have, a scalar in brackets.
fn suited(t: HostTensor, wanted: &Wanted) -> HostTensor {
    let t = match t.reshaped(&[]) {
        Ok(scalar) if wanted.shape.is_empty() => scalar,
        _ => t,
    };
    if t.dtype() == wanted.dtype {
        return t;
    }
    match converted(&t, wanted.dtype) {
        Some(converted) => {
            eprintln!(
                "note: input '{}' is {}; the {} given for it were converted",
                wanted.name,
                wanted.dtype,
                t.dtype()
            );
            converted
        }
        None => t,
    }
}

fn read(spec: InputSpec, to: &Declared, limit: Option<u64>) -> Result<Given> {
    if spec.is_image() {
        return Ok(Given::Picture(spec));
    }
    let rank = to.shape.as_ref().map_or(0, Vec::len);
    let Some(number) = to.dtype.and_then(|t| spec.number(t, &vec![1; rank])) else {
        return Ok(Given::Array(spec.array(&to.name, limit)?));
    };
    let one = |d: &Dim| !matches!(d, Dim::Known(n) if *n != 1);
    if !to.shape.iter().flatten().all(one) {
        return Err(Failure::new(format!(
            "input '{0}' is {1}; a number alone is for one element ({0}={1}=NUMBER fills them all)",
            to.name, to.described
        )));
    }
    Ok(Given::Array(number.map_err(|e| Failure::new(format!("input '{}': {e}", to.name)))?))
}

/// Takes every input that an archive holds; a model without inputs needs none of it.
fn archive(path: &Path, declared: &[Declared], given: &mut BTreeMap<String, Given>, limit: Option<u64>) -> Result {
    let mut file = Npz::open(path, limit)?;
    let mut found = false;
    for d in declared {
        let Some(t) = file.array(&d.name)? else { continue };
        found = true;
        if given.insert(d.name.clone(), Given::Array(t)).is_some() {
            return Err(Failure::usage(format!("input '{}' is given twice: it is in {} too", d.name, path.display())));
        }
    }
    if found || declared.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} holds none of the model's inputs {}; it holds {}",
        path.display(),
        names(declared.iter().map(|d| d.name.as_str())),
        barewave::tensor::listed(&file.names())
    )))
}

/// Quoted names, separated by commas.
pub fn names<'a>(list: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<String> = list.map(|n| format!("'{n}'")).collect();
    if list.is_empty() { "none".into() } else { list.join(", ") }
}

/// Whether a name is a folder's: of one that is there, or with a slash at its end.
fn is_folder(text: &str) -> bool {
    text.ends_with('/') || Path::new(text.trim_start_matches('@')).is_dir()
}

/// What is wrong with `--output`s, as far as that shows before the model is read.
pub fn check_outputs(texts: &[String]) -> Result {
    for text in texts {
        let file = text.split_once('=').map_or(text.as_str(), |x| x.1);
        if file != text || !is_folder(file) {
            check_save(Path::new(file.trim_start_matches('@')), &[], &ImageOptions::default())?;
        }
    }
    Ok(())
}

/// The file of an output in a folder.
fn in_folder(folder: &Path, output: &str) -> PathBuf {
    folder.join(format!("{}.npy", output.replace(['/', '\\', ':'], "_")))
}

/// Numbers of the outputs, each name once: a model may list one twice.
fn once<'a>(outputs: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
    (0..outputs.len()).filter(|&i| !outputs[..i].contains(&outputs[i]))
}

/// Files and the outputs that go to (or come from) each: `[NAME=]FILE`. An archive without a name is for all outputs, and
/// so is a folder, which has a .npy file for each; other files without
/// a name are for the outputs in their order.
pub fn files(option: &str, texts: &[String], outputs: &[&str]) -> Result<Vec<(PathBuf, Vec<usize>)>> {
    let mut out: Vec<(PathBuf, Vec<usize>)> = Vec::new();
    let mut next = 0;
    for text in texts {
        let (name, file) = match text.split_once('=') {
            Some((name, file)) => (Some(name), file),
            None => (None, text.as_str()),
        };
        let file = PathBuf::from(file.trim_start_matches('@'));
        if name.is_none() && is_folder(text) {
            out.extend(once(outputs).map(|i| (in_folder(&file, outputs[i]), vec![i])));
            continue;
        }
        let archive = kind_of(&file) == "npz";
        let which = match name {
            Some(n) => {
                let at = outputs.iter().position(|o| *o == n).ok_or_else(|| {
                    Failure::new(format!("the model has no output '{n}'; it has {}", names(outputs.iter().copied())))
                })?;
                vec![at]
            }
            None if archive => once(outputs).collect(),
            None if next < outputs.len() => {
                next += 1;
                vec![next - 1]
            }
            None => {
                return Err(Failure::usage(format!(
                    "--{option} {text}: the model has only {} outputs: {}",
                    outputs.len(),
                    names(outputs.iter().copied())
                )));
            }
        };
        // Outputs that share an archive go into it together.
        match out.iter_mut().find(|(f, _)| *f == file) {
            Some((_, all)) if archive && !which.iter().any(|i| all.contains(i)) => all.extend(which),
            Some(_) => return Err(Failure::usage(format!("--{option} {text}: the file is given twice"))),
            None => out.push((file, which)),
        }
    }
    Ok(out)
}

fn own(outputs: &[Wanted]) -> Vec<&str> {
    outputs.iter().map(|o| o.name.as_str()).collect()
}

/// Where outputs go.
pub struct Outputs {
    files: Vec<(PathBuf, Vec<usize>)>,
}

impl Outputs {
    /// Parses and checks `--output`s.
    pub fn prepare(texts: &[String], outputs: &[Wanted], images: &ImageOptions) -> Result<Outputs> {
        let files = files("output", texts, &own(outputs))?;
        for folder in texts.iter().filter(|t| t.ends_with('/')) {
            std::fs::create_dir_all(folder)
                .map_err(|e| Failure::new(format!("cannot make the folder {folder}: {e}")))?;
        }
        for (file, which) in &files {
            let shapes: Vec<&[usize]> = which.iter().map(|&i| outputs[i].shape.as_slice()).collect();
            check_save(file, &shapes, images)?;
        }
        Ok(Outputs { files })
    }

    /// Writes them; gives the files and the names in them.
    pub fn write<'a>(
        &'a self,
        wanted: &[Wanted],
        tensors: &[HostTensor],
        images: &ImageOptions,
    ) -> Result<Vec<(&'a Path, String)>> {
        let mut written = Vec::new();
        for (file, which) in &self.files {
            let list: Vec<(&str, &HostTensor)> =
                which.iter().map(|&i| (wanted[i].name.as_str(), &tensors[i])).collect();
            save(file, &list, images)?;
            let list: Vec<&str> = list.iter().map(|x| x.0).collect();
            written.push((file.as_path(), list.join(", ")));
        }
        Ok(written)
    }
}

/// Reads what outputs are expected to be: number of the output and its values.
pub fn expected(texts: &[String], outputs: &[Wanted], limit: Option<u64>) -> Result<Vec<(usize, HostTensor)>> {
    let mut all = Vec::new();
    for (file, which) in files("expect", texts, &own(outputs))? {
        let spec = InputSpec { name: None, source: Source::File(file.clone()) };
        let mut archive = (kind_of(&file) == "npz").then(|| Npz::open(&file, limit)).transpose()?;
        for i in which {
            let tensor = match &mut archive {
                Some(npz) => npz.existing(&outputs[i].name)?,
                None if spec.is_image() => spec.load(&outputs[i], &ImageOptions::default())?,
                None => spec.array(&outputs[i].name, limit)?,
            };
            outputs[i].check(&tensor).map_err(|e| Failure::new(format!("{}: output {e}", file.display())))?;
            all.push((i, tensor));
        }
    }
    Ok(all)
}
