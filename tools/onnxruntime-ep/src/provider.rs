//! The provider of one session: chooses nodes, compiles groups of them.

use crate::abi::*;
use crate::api::{Api, behind, c_string, call, get, none, release};
use crate::context;
use crate::devices::{Devices, Wanted};
use crate::error::Error;
use crate::fused::{Fused, Order, Running};
use crate::groups::{self, group_model};
use crate::memory::{Allocator, Owner};
use crate::options::Options;
use crate::read::{ReadGraph, Value, is_context, own_weights};
use crate::streams::SyncStream;
use barewave::codeobj::Abi;
use barewave::compile::{Compiled, KernelCache};
use barewave::onnx::{Dim, Model, ValueInfo};
use barewave::runtime::{AnyShape, Device, Session};
use barewave::{Compiler, Shapes};
use barewave_isa::Target;
use ort_sys::*;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::Path;
use std::ptr::null;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Combinations of shapes whose compiled form a group keeps.
const KEPT: usize = 64;

/// What executes, once it is known: the device, and the compiler for it.
struct Works {
    device: Arc<dyn Device>,
    compiler: Compiler,
}

/// A provider. onnxruntime sees its first field.
#[repr(C)]
pub struct Provider {
    abi: OrtEp,
    api: Api,
    logger: *const OrtLogger,
    options: Options,
    /// The device that the session's hardware is.
    hardware: String,
    devices: Arc<Devices>,
    cache: Arc<KernelCache>,
    works: OnceLock<Works>,
    /// The device, for allocators, which may outlive the provider.
    device: Arc<OnceLock<Arc<dyn Device>>>,
    compatibility: OnceLock<CString>,
    /// Why there can be no session. Said when the first group is compiled: of a provider that cannot even be made,
    /// onnxruntime's Python prints the message and goes on without it.
    refused: Mutex<Option<Error>>,
    /// Values that bodies of Loops compute: a group that is compiled does not tell any more where it is from.
    repeated: Mutex<BTreeSet<String>>,
}

impl Provider {
    /// A provider for a session on hardware that `hardware` names as the command line does.
    pub fn new(
        api: Api,
        logger: *const OrtLogger,
        options: Result<Options, Error>,
        hardware: String,
        devices: Arc<Devices>,
    ) -> Provider {
        let (options, refused) = options.map_or_else(|e| (Options::default(), Some(e)), |o| (o, None));
        let cache = options.kernels();
        let provider = Provider {
            abi: OrtEp {
                version: EP_VERSION,
                GetName: Some(name),
                GetCapability: Some(capability),
                Compile: Some(compile),
                ReleaseNodeComputeInfos: Some(release_infos),
                GetPreferredDataLayout: None,
                ShouldConvertDataLayoutForOp: None,
                SetDynamicOptions: None,
                OnRunStart: None,
                OnRunEnd: None,
                CreateAllocator: Some(create_allocator),
                CreateSyncStreamForDevice: Some(create_stream),
                GetCompiledModelCompatibilityInfo: Some(compatibility),
                GetKernelRegistry: None,
                IsConcurrentRunSupported: None,
                Sync: Some(sync),
                tail: [0; 16],
            },
            api,
            logger,
            options,
            hardware,
            devices,
            cache,
            works: OnceLock::new(),
            device: Arc::default(),
            compatibility: OnceLock::new(),
            refused: Mutex::new(refused),
            repeated: Mutex::default(),
        };
        // What was asked for by name has to be there, whatever the model is.
        let asked = provider.options.device.is_some() || provider.options.target.is_some();
        if asked && let Err(e) = provider.works(None) {
            provider.refused.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e);
        }
        provider
    }

    /// What to run on.
    fn wanted(&self, preferred: Option<Target>) -> Wanted {
        let o = &self.options;
        Wanted {
            device: o.device.clone().unwrap_or_else(|| self.hardware.clone()),
            target: o.target.or(preferred),
            strict: o.strict,
        }
    }

    fn is_refused(&self) -> bool {
        self.refused.lock().unwrap_or_else(|e| e.into_inner()).is_some()
    }

    /// Device and compiler; `preferred` is the target of code that is there already, for when the options leave it open.
    fn works(&self, preferred: Option<Target>) -> Result<&Works, Error> {
        if let Some(works) = self.works.get() {
            return Ok(works);
        }
        let (device, note) = self.devices.open(&self.wanted(preferred))?;
        if let Some(note) = note {
            self.api.log(self.logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, &note);
        }
        let (cache, tuning) = (self.cache.clone(), self.options.tuning());
        let options = barewave::Options { cache, tuning, ..barewave::Options::default() };
        let compiler = Compiler::new(device.target(), options);
        self.device.get_or_init(|| device.clone());
        Ok(self.works.get_or_init(|| Works { device, compiler }))
    }

    /// Tells onnxruntime which nodes are taken over.
    fn choose(&self, graph: *const OrtGraph, support: *mut OrtEpGraphSupportInfo) -> Result<(), Error> {
        let mut read = self.api.read_graph(graph)?;
        if self.api.goes_round(graph)? {
            read.forget_extents();
            let made = read.nodes.iter().flat_map(|n| n.node.outputs.clone()).filter(|o| !o.is_empty());
            self.repeated.lock().unwrap_or_else(PoisonError::into_inner).extend(made);
        }
        let contexts: Vec<usize> = self.contexts(&read);
        let groups = if self.is_refused() {
            read.nodes.iter().take(1).map(|_| vec![0]).collect()
        } else if contexts.is_empty() {
            let works = self.works(None)?;
            if self.parent_is_ours(graph, works)? {
                return Ok(());
            }
            let (groups, reasons) = groups::choose(&works.compiler, self.options.dtype, &read, self.candidates(&read));
            for (i, why) in reasons {
                let line =
                    format!("node '{}' ({}) is left to others: {why}", read.nodes[i].node.name, read.nodes[i].node.op);
                self.api.log(self.logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, &line);
            }
            groups
        } else {
            contexts.iter().map(|i| vec![*i]).collect()
        };
        for group in &groups {
            let handles: Vec<*const OrtNode> = group.iter().map(|i| read.nodes[*i].handle).collect();
            let options =
                OrtNodeFusionOptions { version: KNOWN_VERSION, drop_constant_initializers: true, tail: [0; 16] };
            let (nodes, count) = (handles.as_ptr(), handles.len());
            call!(self.api, ep.EpGraphSupportInfo_AddNodesToFuse(support, nodes, count, &options))?;
        }
        let taken: usize = groups.iter().map(Vec::len).sum();
        let line = format!("{taken} of {} nodes of graph '{}' in {} groups", read.nodes.len(), read.name, groups.len());
        self.api.log(self.logger, OrtLoggingLevel::ORT_LOGGING_LEVEL_INFO, &line);
        Ok(())
    }

    /// The nodes that may be taken over if they compile.
    fn candidates(&self, read: &ReadGraph) -> BTreeSet<usize> {
        let constant = |v: &String| matches!(read.values.get(v), Some(Value::Constant(_)));
        let may = |i: &usize| {
            let n = &read.nodes[*i];
            !is_context(&n.node.op, &n.node.domain) && (self.api.passes_implicit || n.implicit.iter().all(constant))
        };
        (0..read.nodes.len()).filter(may).collect()
    }

    /// The nodes that hold code that was compiled here before.
    fn contexts(&self, read: &ReadGraph) -> Vec<usize> {
        let ours = |i: &usize| {
            let n = &read.nodes[*i];
            is_context(&n.node.op, &n.node.domain) && context::is_ours(&self.api, n.handle)
        };
        (0..read.nodes.len()).filter(ours).collect()
    }

    /// True for the graph of a node (an If, a Loop) that can be compiled as a whole: it is taken over later, as a node of the
    /// graph around it. onnxruntime asks for inner graphs first.
    fn parent_is_ours(&self, graph: *const OrtGraph, works: &Works) -> Result<bool, Error> {
        let parent = get!(self.api, Graph_GetParentNode(graph), null())?;
        if parent.is_null() {
            return Ok(false);
        }
        let alone = self.api.read_alone(parent, graph)?;
        let (groups, _) = groups::choose(&works.compiler, self.options.dtype, &alone, self.candidates(&alone));
        if !groups.is_empty() {
            return Ok(true);
        }
        let around = get!(self.api, Node_GetGraph(parent), null())?;
        Ok(!around.is_null() && self.parent_is_ours(around, works)?)
    }

    /// Compiles the graph of a group, whose node has its inputs and outputs in the order that counts.
    fn compile(&self, graph: *const OrtGraph, node: *const OrtNode) -> Result<(Fused, *mut OrtNode), Error> {
        let mut read = self.api.read_graph(graph)?;
        let repeated = self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
        if read.nodes.iter().flat_map(|n| &n.node.outputs).any(|o| repeated.contains(o)) {
            read.forget_extents();
        }
        drop(repeated);
        let names = |list: Vec<*const OrtValueInfo>| {
            list.into_iter().map(|v| self.api.value_name(v)).collect::<Result<Vec<_>, _>>()
        };
        let inputs = names(self.api.node_inputs(node)?)?;
        let outputs = names(self.api.node_outputs(node)?)?;
        let context = &self.options.context;
        if let Some(i) = self.contexts(&read).first() {
            let n = &read.nodes[*i];
            let compiled = context::load(&self.api, graph, n.handle)?;
            let works = self.works(Some(compiled.target()))?;
            let session = Session::new(works.device.clone(), &compiled)?;
            // onnxruntime lists what the node around this one reads in an order of its own.
            let find = |all: &[String], names: &[String]| {
                names.iter().filter_map(|n| all.iter().position(|a| a == n)).collect::<Vec<_>>()
            };
            let order = Order { inputs: find(&inputs, &n.node.inputs), outputs: find(&outputs, &n.node.outputs) };
            let again = match context.enable {
                true => context::node(&self.api, &self.api.node_name(node)?, &inputs, &outputs, &compiled, context)?,
                false => none(),
            };
            return Ok((self.fused(works, Running::Plan(Box::new(session)), order, false), again));
        }
        let works = self.works(None)?;
        let mut model = self.model(&read, &inputs, &outputs)?;
        if let Some(dtype) = self.options.dtype {
            model = barewave::graph::in_type(&model, dtype).map_err(barewave::compile::Error::from)?;
        }
        let open = model.graph.inputs.iter().find(|i| i.shape.iter().flatten().any(|d| !matches!(d, Dim::Known(_))));
        let name = self.api.node_name(node)?;
        let order = Order { inputs: (0..inputs.len()).collect(), outputs: (0..outputs.len()).collect() };
        let compiled = match open {
            Some(input) if context.enable => {
                return Err(Error::Open { input: input.name.clone(), described: input.described() });
            }
            Some(_) => None,
            // What does not compile before it is run waits for values that decide shapes.
            None => match works.compiler.compile(&model, &Shapes::default()) {
                Err(e) if context.enable => return Err(e.into()),
                compiled => compiled.ok(),
            },
        };
        let Some(compiled) = compiled else {
            own_weights(&mut model.graph);
            let any = AnyShape::new(works.device.clone(), works.compiler.clone(), Arc::new(model), KEPT);
            let running = Running::Any(Box::new(self.observed(any, name)));
            return Ok((self.fused(works, running, order, true), none()));
        };
        self.dump(&name, &compiled)?;
        let context = match context.enable {
            true => context::node(&self.api, &name, &inputs, &outputs, &compiled, context)?,
            false => none(),
        };
        let running = Running::Plan(Box::new(Session::new(works.device.clone(), &compiled)?));
        Ok((self.fused(works, running, order, false), context))
    }

    fn fused(&self, works: &Works, running: Running, order: Order, reads_values: bool) -> Fused {
        Fused::new(self.api, running, order, works.device.clone(), self.devices.clone(), reads_values)
    }

    /// The model of a group.
    fn model(&self, read: &ReadGraph, inputs: &[String], outputs: &[String]) -> Result<Model, Error> {
        let all: Vec<usize> = (0..read.nodes.len()).collect();
        let named = |i: usize| read.nodes[i].node.name.clone();
        let mut model = group_model(read, &all, named).map_err(|nodes| Error::Type {
            what: nodes.first().map_or_else(String::new, |i| format!("a value of node `{}`", named(*i))),
        })?;
        let info = |name: &String| match read.values.get(name) {
            Some(Value::Tensor(info)) => info.clone(),
            _ => ValueInfo { name: name.clone(), dtype: None, shape: None },
        };
        model.graph.name = read.name.clone();
        model.graph.inputs = inputs.iter().map(info).collect();
        model.graph.outputs = outputs.iter().map(info).collect();
        Ok(model)
    }

    /// Writes a compiled group to the dump folder, if there is one.
    fn dump(&self, name: &str, compiled: &Compiled) -> Result<(), Error> {
        self.options.dump.as_deref().map_or(Ok(()), |folder| write_dump(folder, name, compiled))
    }

    /// The same for whatever a group is compiled for later.
    fn observed(&self, any: AnyShape, name: String) -> AnyShape {
        let Some(folder) = self.options.dump.clone() else { return any };
        let mut number = 0;
        any.on_compiled(move |compiled| {
            // A run does not fail for want of a dump.
            let _ = write_dump(&folder, &format!("{name}_{number}"), compiled);
            number += 1;
        })
    }
}

fn write_dump(folder: &Path, name: &str, compiled: &Compiled) -> Result<(), Error> {
    let name: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    let path = folder.join(format!("{name}.hsaco"));
    let written = std::fs::create_dir_all(folder).and_then(|()| compiled.save(&path, Abi::V5));
    written.map_err(|source| Error::Io { what: "write", path, source })
}

unsafe extern "system" fn name(_: *const OrtEp) -> *const c_char {
    crate::NAME_C.as_ptr()
}

unsafe extern "system" fn capability(
    ep: *mut OrtEp,
    graph: *const OrtGraph,
    support: *mut OrtEpGraphSupportInfo,
) -> OrtStatusPtr {
    // SAFETY: onnxruntime passes what the factory gave.
    let provider: &Provider = unsafe { behind(ep) };
    provider.api.guard(|| provider.choose(graph, support))
}

unsafe extern "system" fn compile(
    ep: *mut OrtEp,
    graphs: *const *const OrtGraph,
    nodes: *const *const OrtNode,
    count: usize,
    infos: *mut *mut OrtNodeComputeInfo,
    contexts: *mut *mut OrtNode,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let provider: &Provider = unsafe { behind(ep) };
    provider.api.guard(|| {
        if let Some(why) = provider.refused.lock().unwrap_or_else(|e| e.into_inner()).take() {
            return Err(why);
        }
        let mut done = Vec::with_capacity(count);
        for i in 0..count {
            // SAFETY: arrays of `count` elements.
            let (graph, node) = unsafe { (*graphs.add(i), *nodes.add(i)) };
            done.push(provider.compile(graph, node)?);
        }
        for (i, (fused, context)) in done.into_iter().enumerate() {
            // SAFETY: as above; what is written here comes back in `release_infos`.
            unsafe {
                *infos.add(i) = Box::into_raw(Box::new(fused)).cast();
                if !contexts.is_null() && !context.is_null() {
                    *contexts.add(i) = context;
                }
            }
        }
        Ok(())
    })
}

unsafe extern "system" fn release_infos(_: *mut OrtEp, infos: *mut *mut OrtNodeComputeInfo, count: usize) {
    for i in 0..count {
        // SAFETY: made in `compile`, given back once.
        unsafe { release::<Fused>(*infos.add(i)) };
    }
}

unsafe extern "system" fn create_allocator(
    ep: *mut OrtEp,
    info: *const OrtMemoryInfo,
    out: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let provider: &Provider = unsafe { behind(ep) };
    provider.api.guard(|| {
        let owner = Owner {
            session: provider.device.clone(),
            hardware: provider.wanted(None),
            devices: provider.devices.clone(),
        };
        // SAFETY: a place for the pointer, which comes back to the factory; the description outlives the session.
        unsafe { *out = Box::into_raw(Box::new(Allocator::new(info, owner))).cast() };
        Ok(())
    })
}

unsafe extern "system" fn create_stream(
    ep: *mut OrtEp,
    _: *const OrtMemoryDevice,
    out: *mut *mut OrtSyncStreamImpl,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let provider: &Provider = unsafe { behind(ep) };
    provider.api.guard(|| {
        let device = provider.works(None)?.device.clone();
        let made = SyncStream::create(provider.api, device, provider.devices.clone())?;
        // SAFETY: a place for the pointer, which is given back through its own `Release`.
        unsafe { *out = made };
        Ok(())
    })
}

unsafe extern "system" fn sync(ep: *mut OrtEp) -> OrtStatusPtr {
    // SAFETY: as above.
    let provider: &Provider = unsafe { behind(ep) };
    provider.api.guard(|| provider.device.get().map_or(Ok(()), |device| provider.devices.streams.wait(device)))
}

unsafe extern "system" fn compatibility(ep: *mut OrtEp, _: *const OrtGraph) -> *const c_char {
    // SAFETY: as above.
    let provider: &Provider = unsafe { behind(ep) };
    let target = crate::api::catch(|| Ok(provider.works(None)?.device.target()));
    let Ok(target) = target else { return null() };
    provider.compatibility.get_or_init(|| c_string(&context::compatibility(target))).as_ptr()
}
