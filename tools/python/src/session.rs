//! Models: compiled for whatever shapes come, or loaded as compiled files.

use crate::forms::{Choice, Forms};
use crate::{RawArray, RawInput, error, work};
use barewave::codeobj::Abi;
use barewave::compile::{KernelCache, read_tuning};
use barewave::kernels::Tuning;
use barewave::onnx::{Attribute, Dim, Model, Structure, ValueInfo};
use barewave::runtime::{Device, Session, open, plan::Port};
use barewave::tensor::{AsTensor, DType, HostTensor, TensorView, element_count};
use barewave::{Compiled, Compiler, Options, Shapes};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Name, element type (none when the file does not say), and extents: numbers, names, or nothing. The shape is missing when
/// not even the rank is declared.
type Declared = (String, Option<String>, Option<Vec<Extent>>);

#[derive(IntoPyObject, Clone)]
enum Extent {
    Known(usize),
    Symbol(String),
    Unknown(()),
}

fn declared(v: &ValueInfo) -> Declared {
    let extent = |d: &Dim| match d {
        Dim::Known(n) => Extent::Known(*n),
        Dim::Symbol(s) => Extent::Symbol(s.clone()),
        Dim::Unknown => Extent::Unknown(()),
    };
    (v.name.clone(), v.dtype.map(|t| t.name().to_string()), v.shape.as_ref().map(|s| s.iter().map(extent).collect()))
}

fn port(p: &Port) -> Declared {
    let shape = p.shape.iter().map(|n| Extent::Known(*n)).collect();
    (p.name.clone(), Some(p.dtype.clone()), Some(shape))
}

/// Keys of the maps that an output is a list of: integers or strings, the others are none.
type Keys = (Vec<i64>, Vec<String>);

/// The keys of an output that ZipMap makes.
fn keys(model: &Model, output: &ValueInfo) -> Option<Keys> {
    let makes = |n: &&barewave::onnx::Node| n.op == "ZipMap" && n.outputs.first() == Some(&output.name);
    let node = model.graph.nodes.iter().find(makes)?;
    match (node.attributes.get("classlabels_int64s"), node.attributes.get("classlabels_strings")) {
        (Some(Attribute::Ints(list)), _) => Some((list.clone(), Vec::new())),
        (_, Some(Attribute::Texts(list))) => Some((Vec::new(), list.clone())),
        _ => None,
    }
}

/// What is around the type of its tensors, as onnxruntime writes it, and that type.
fn written(structure: Structure) -> (&'static str, Option<&'static str>) {
    let (around, dtype) = match structure {
        Structure::Sequence(dtype) => ("seq(tensor(?))", dtype),
        Structure::OptionalTensor(dtype) => ("optional(tensor(?))", dtype),
        Structure::OptionalSequence(dtype) => ("optional(seq(tensor(?)))", dtype),
        Structure::Maps => ("seq(map(?))", None),
    };
    (around, dtype.map(DType::name))
}

enum Running {
    Any(Box<Forms>),
    Plan(Box<Session>),
}

/// A model on a device.
#[pyclass(frozen)]
pub struct NativeSession {
    running: Mutex<Running>,
    device: Arc<dyn Device>,
    #[pyo3(get)]
    inputs: Vec<Declared>,
    /// Inputs that have a value when they are not given.
    #[pyo3(get)]
    overridable: Vec<Declared>,
    #[pyo3(get)]
    outputs: Vec<Declared>,
    /// Of outputs that are lists of maps.
    #[pyo3(get)]
    maps: Vec<Option<Keys>>,
    /// Of inputs and outputs that are no tensors: what they are, as onnxruntime writes it, and the type of their tensors.
    #[pyo3(get)]
    structures: BTreeMap<String, (&'static str, Option<&'static str>)>,
    #[pyo3(get)]
    metadata: Vec<(String, String)>,
    #[pyo3(get)]
    graph_name: String,
    #[pyo3(get)]
    opset: Option<i64>,
    #[pyo3(get)]
    origin: Origin,
}

/// As its file says: producer, domain, version, description, and description of the graph.
type Origin = (String, String, i64, String, String);

/// A tensor that a run gave. numpy takes its memory as it is, and keeps it.
#[pyclass(frozen)]
pub struct NativeTensor {
    #[pyo3(get)]
    dtype: &'static str,
    #[pyo3(get)]
    shape: Vec<usize>,
    /// The elements of a tensor of strings.
    #[pyo3(get)]
    texts: Vec<String>,
    /// The elements of others: nothing but numpy looks at them any more.
    address: usize,
    memory: Vec<u8>,
}

impl NativeTensor {
    fn new(t: HostTensor) -> PyResult<NativeTensor> {
        let (dtype, shape) = (t.dtype().name(), t.shape().to_vec());
        let texts = match t.dtype() {
            DType::Str => t.texts().map_err(error)?.into_iter().map(str::to_string).collect(),
            _ => Vec::new(),
        };
        let mut memory = t.into_bytes();
        let address = memory.as_mut_ptr().expose_provenance();
        Ok(NativeTensor { dtype, shape, texts, address, memory })
    }
}

#[pymethods]
impl NativeTensor {
    /// The elements as bytes, by numpy's protocol: their shape, type, address, whether they are not to be written.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let d = PyDict::new(py);
        d.set_item("version", 3)?;
        d.set_item("shape", (self.memory.len(),))?;
        d.set_item("typestr", "|u1")?;
        d.set_item("data", (self.address, false))?;
        Ok(d)
    }
}

/// The caller's array as a tensor.
fn view(a: &RawArray) -> PyResult<TensorView<'_>> {
    let (dtype, shape, address, bytes) = a;
    let t = DType::from_name(dtype).ok_or_else(|| error(format!("no tensors of {dtype}")))?;
    let data: &[u8] = match bytes {
        0 => &[],
        // SAFETY: the Python half keeps a contiguous array of so many bytes at the address alive during the call.
        n => unsafe { std::slice::from_raw_parts(*address as *const u8, *n) },
    };
    TensorView::new(t, shape, data).map_err(error)
}

/// The tensor of an input of strings.
fn texts(input: &RawInput) -> PyResult<Option<HostTensor>> {
    match input {
        RawInput::Array(_) => Ok(None),
        RawInput::Texts((shape, texts)) if element_count(shape) == Some(texts.len()) => {
            HostTensor::from_texts(shape, texts.iter().map(String::as_str)).map(Some).map_err(error)
        }
        RawInput::Texts((shape, texts)) => Err(error(format!("{} strings do not fit {shape:?}", texts.len()))),
    }
}

fn cache(on: bool) -> Arc<KernelCache> {
    Arc::new(if on { KernelCache::of_user() } else { KernelCache::in_memory() })
}

/// How products are computed: by a table of tiles if there is one, and by 10 bits of f32's mantissa, or with sums in f16 of f16, where that is
/// allowed.
fn tuning(table: Option<&str>, xf32: bool, f16_sums: bool) -> PyResult<Arc<Tuning>> {
    let read = |t| read_tuning(Path::new(t)).map_err(|e| error(format!("tune: {e}")));
    let mut tuning = table.map_or(Ok(Tuning::default()), read)?;
    if xf32 {
        tuning.allow_xf32();
    }
    if f16_sums {
        tuning.allow_f16_sums();
    }
    Ok(Arc::new(tuning))
}

/// A model from a file or from bytes.
fn read(path: Option<&str>, bytes: Option<Vec<u8>>) -> PyResult<Model> {
    match (path, bytes) {
        (Some(p), _) => Model::load(Path::new(p)).map_err(error),
        (_, Some(b)) => Model::from_bytes(b.into(), Path::new("model.onnx")).map_err(error),
        _ => Err(error("a path or bytes are needed")),
    }
}

/// The type that 32-bit floats are computed in, if it is another one.
fn computed_in(dtype: Option<&str>) -> PyResult<Option<DType>> {
    match dtype {
        None | Some("f32") => Ok(None),
        Some("f16") => Ok(Some(DType::F16)),
        Some("bf16") => Ok(Some(DType::BF16)),
        Some(other) => Err(error(format!("dtype '{other}': f32, f16 or bf16 is needed"))),
    }
}

/// The model with what it does on 32-bit floats done in another type if that is given.
pub(crate) fn converted(model: Model, dtype: Option<DType>) -> PyResult<Model> {
    dtype.map_or(Ok(model.clone()), |dtype| barewave::graph::in_type(&model, dtype)).map_err(error)
}

#[pymethods]
impl NativeSession {
    #[new]
    #[pyo3(signature = (path, bytes, device, strict, cached, dtype, xf32, f16_sums, tune))]
    #[allow(clippy::too_many_arguments)] // those of the Python half
    fn new(
        py: Python<'_>,
        path: Option<String>,
        bytes: Option<Vec<u8>>,
        device: String,
        strict: bool,
        cached: bool,
        dtype: Option<String>,
        xf32: bool,
        f16_sums: bool,
        tune: Option<String>,
    ) -> PyResult<NativeSession> {
        work(py, || {
            let is_compiled = match (&path, &bytes) {
                (Some(p), _) => {
                    let mut head = [0; 4];
                    let file = std::fs::File::open(p).map_err(|e| error(format!("cannot read {p}: {e}")))?;
                    std::io::Read::read(&mut &file, &mut head).is_ok() && head == *b"\x7fELF"
                }
                (_, b) => b.as_ref().is_some_and(|b| b.starts_with(b"\x7fELF")),
            };
            let computed_in = computed_in(dtype.as_deref())?;
            let given = [("dtype", dtype.is_some()), ("xf32", xf32), ("f16_sums", f16_sums), ("tune", tune.is_some())];
            if let (true, Some((name, _))) = (is_compiled, given.iter().find(|g| g.1)) {
                return Err(error(format!("{name}: the model is compiled; compile it with {name}")));
            }
            if is_compiled {
                let compiled = match (path, bytes) {
                    (Some(p), _) => Compiled::load(Path::new(&p)),
                    (_, b) => Compiled::from_bytes(b.unwrap_or_default().into(), Path::new("model.hsaco")),
                };
                let compiled = compiled.map_err(error)?;
                let device = open(&device, Some(compiled.target()), strict).map_err(error)?.device;
                let session = Session::new(device.clone(), &compiled).map_err(error)?;
                let plan = compiled.plan();
                return Ok(NativeSession {
                    running: Mutex::new(Running::Plan(Box::new(session))),
                    device,
                    inputs: plan.inputs.iter().map(port).collect(),
                    overridable: Vec::new(),
                    outputs: plan.outputs.iter().map(port).collect(),
                    maps: vec![None; plan.outputs.len()],
                    structures: BTreeMap::new(),
                    metadata: plan.metadata.clone().into_iter().collect(),
                    graph_name: plan.model.clone(),
                    opset: None,
                    origin: Origin::default(),
                });
            }
            let tuning = tuning(tune.as_deref(), xf32, f16_sums)?;
            let model = read(path.as_deref(), bytes)?;
            let device = open(&device, None, strict).map_err(error)?.device;
            let options = Options { cache: cache(cached), tuning, ..Options::default() };
            let compiler = Compiler::new(device.target(), options);
            let (inputs, outputs) =
                (model.required_inputs().map(declared).collect(), model.graph.outputs.iter().map(declared).collect());
            let has_default = |v: &&ValueInfo| model.graph.initializers.contains_key(&v.name);
            let overridable = model.graph.inputs.iter().filter(has_default).map(declared).collect();
            let (metadata, graph_name) = (model.metadata.clone().into_iter().collect(), model.graph.name.clone());
            let maps = model.graph.outputs.iter().map(|o| keys(&model, o)).collect();
            let structures = model.structures.iter().map(|(name, s)| (name.clone(), written(*s))).collect();
            let opset = Some(model.opset());
            let o = model.origin.clone();
            let origin = (o.producer, o.domain, o.version, o.description, o.graph_description);
            let forms = Forms::new(model, computed_in, strict, (device.clone(), compiler))?;
            let running = Mutex::new(Running::Any(Box::new(forms)));
            Ok(NativeSession {
                running,
                device,
                inputs,
                overridable,
                outputs,
                maps,
                structures,
                metadata,
                graph_name,
                opset,
                origin,
            })
        })
    }

    /// The device's name.
    #[getter]
    fn device(&self) -> String {
        self.device.info().name.clone()
    }

    /// The device's architecture.
    #[getter]
    fn target(&self) -> &'static str {
        self.device.target().info().name
    }

    /// Runs the model on arrays by name. `lists` says of each input that is a sequence or an optional how many tensors it holds
    /// (none: it is without a value); those of a sequence `x` are called `x[0]`, `x[1]` and so on. Gives the outputs, and where
    /// some are no tensors what each is called.
    fn run(
        &self,
        py: Python<'_>,
        arrays: Vec<(String, RawInput)>,
        lists: BTreeMap<String, Option<usize>>,
    ) -> PyResult<(Vec<NativeTensor>, Vec<String>)> {
        work(py, || {
            let strings = arrays.iter().map(|(_, a)| texts(a)).collect::<PyResult<Vec<_>>>()?;
            let views = arrays.iter().zip(&strings).map(|((name, a), strings)| match (a, strings) {
                (_, Some(t)) => Ok((name.as_str(), t.view())),
                (RawInput::Array(a), None) => Ok((name.as_str(), view(a)?)),
                (RawInput::Texts(_), None) => Err(error("strings without a tensor")),
            });
            let views = views.collect::<PyResult<BTreeMap<_, _>>>()?;
            let mut running =
                self.running.lock().map_err(|_| error("an earlier run of this session ended in a panic"))?;
            let (outputs, names) = match &mut *running {
                Running::Any(forms) => {
                    let form = forms.form(Choice::new(&forms.source, &views, &lists))?;
                    let views = form.any.inputs().map(|i| pick(&views, &i.name)).collect::<PyResult<Vec<_>>>()?;
                    let (mut outputs, _) = form.any.run(&views).map_err(error)?;
                    form.checks.verify(&mut outputs).map_err(error)?;
                    (outputs, if self.structures.is_empty() { Vec::new() } else { form.any.output_names() })
                }
                Running::Plan(session) => {
                    let views = self.inputs.iter().map(|i| pick(&views, &i.0)).collect::<PyResult<Vec<_>>>()?;
                    let number = session.plans().position(|p| fits(&p.inputs, &views));
                    if let Some(i) = number {
                        session.select(i).map_err(error)?;
                    }
                    (session.run(&views).map_err(error)?.0, Vec::new())
                }
            };
            Ok((outputs.into_iter().map(NativeTensor::new).collect::<PyResult<_>>()?, names))
        })
    }
}

fn pick<'a>(views: &BTreeMap<&str, TensorView<'a>>, name: &str) -> PyResult<TensorView<'a>> {
    views.get(name).copied().ok_or_else(|| error(format!("there is no array for input `{name}`")))
}

fn fits(ports: &[Port], views: &[TensorView]) -> bool {
    ports.len() == views.len() && ports.iter().zip(views).all(|(p, v)| p.shape == v.shape())
}

/// Compiles a model. Gives the bytes of the file that `barewave compile` writes, and writes it too: whole or not at all.
#[pyfunction]
#[pyo3(signature = (path, bytes, target, dims, cached, output, dtype, xf32, f16_sums, tune))]
#[allow(clippy::too_many_arguments)] // those of the Python half
pub fn compile(
    py: Python<'_>,
    path: Option<String>,
    bytes: Option<Vec<u8>>,
    target: String,
    dims: Vec<(String, usize)>,
    cached: bool,
    output: Option<String>,
    dtype: Option<String>,
    xf32: bool,
    f16_sums: bool,
    tune: Option<String>,
) -> PyResult<Vec<u8>> {
    work(py, || {
        let tuning = tuning(tune.as_deref(), xf32, f16_sums)?;
        let target = barewave::target(&target).map_err(error)?;
        let model = converted(read(path.as_deref(), bytes)?, computed_in(dtype.as_deref())?)?;
        let compiler = Compiler::new(target, Options { cache: cache(cached), tuning, ..Options::default() });
        let shapes = Shapes { dims: dims.into_iter().collect(), ..Shapes::default() };
        let compiled = compiler.compile(&model, &shapes).map_err(error)?;
        let mut out = Vec::new();
        compiled.write_to(Abi::V5, &mut out).map_err(error)?;
        if let Some(file) = output {
            barewave::output::write(Path::new(&file), |to| to.write_all(&out)).map_err(error)?;
        }
        Ok(out)
    })
}
