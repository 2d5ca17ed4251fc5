//! Graphs of onnxruntime as models of ours, without protobuf.
//!
//! Nodes, attributes and types are copied; the elements of initializers are not: they lie where onnxruntime holds them, which
//! is valid as long as the graph is. Whoever keeps a model for longer calls [`own_weights`] first.

use crate::api::{Api, c_string, call, get, none, text};
use crate::error::Error;
use barewave::onnx::{Attribute, Dim, Graph, Node, ValueInfo};
use barewave::tensor::{DType, HostTensor, unpacked};
use bytes::Bytes;
use ort_sys::*;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null;

/// onnxruntime's numbers of element types (which are ONNX's up to 23).
const TYPES: [(i32, DType); 23] = [
    (1, DType::F32),
    (2, DType::U8),
    (3, DType::I8),
    (4, DType::U16),
    (5, DType::I16),
    (6, DType::I32),
    (7, DType::I64),
    (9, DType::Bool),
    (10, DType::F16),
    (11, DType::F64),
    (12, DType::U32),
    (13, DType::U64),
    (16, DType::BF16),
    (17, DType::F8E4M3),
    (18, DType::F8E4M3Z),
    (19, DType::F8E5M2),
    (20, DType::F8E5M2Z),
    (21, DType::U4),
    (22, DType::I4),
    (23, DType::F4E2M1),
    (24, DType::U2),
    (25, DType::I2),
    (26, DType::F8E8M0),
];

/// A value as a node or graph names it.
#[derive(Clone, Debug)]
pub enum Value {
    /// An initializer that nobody can replace.
    Constant(HostTensor),
    /// A tensor, as far as it is known.
    Tensor(ValueInfo),
    /// A sequence, a map, text: nothing of ours.
    Other,
}

/// A node, and what of it ONNX's form does not say.
pub struct ReadNode {
    /// onnxruntime's handle.
    pub handle: *const OrtNode,
    /// The node.
    pub node: Node,
    /// Values of graphs around it that its own graphs read.
    pub implicit: Vec<String>,
}

/// A graph, and what is known of its values.
#[derive(Default)]
pub struct ReadGraph {
    /// Its name.
    pub name: String,
    /// Nodes in topological order.
    pub nodes: Vec<ReadNode>,
    /// Everything that the nodes read or compute, by name.
    pub values: BTreeMap<String, Value>,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    /// Names of its outputs.
    pub outputs: Vec<String>,
    /// Operator sets by domain.
    pub opsets: BTreeMap<String, i64>,
}

impl ReadGraph {
    /// Leaves the extents of all tensors open: what onnxruntime says of values in the body of a Loop holds for the first round.
    pub fn forget_extents(&mut self) {
        for value in self.values.values_mut() {
            if let Value::Tensor(info) = value {
                info.shape.iter_mut().flatten().for_each(|d| *d = Dim::Unknown);
            }
        }
    }
}

/// Bytes of onnxruntime's.
struct Borrowed(*const u8, usize);
// SAFETY: the bytes are only read, and outlive everything that is made of them (see the module).
unsafe impl Send for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Api {
    /// A list of handles: how many, then all of them.
    fn list<T>(
        &self,
        count: impl FnOnce() -> Result<usize, Error>,
        fill: impl FnOnce(*mut *const T, usize) -> Result<(), Error>,
    ) -> Result<Vec<*const T>, Error> {
        let mut list = vec![null(); count()?];
        fill(list.as_mut_ptr(), list.len())?;
        Ok(list)
    }

    /// The nodes of a graph.
    pub fn nodes(&self, graph: *const OrtGraph) -> Result<Vec<*const OrtNode>, Error> {
        let count = || get!(self, Graph_GetNumNodes(graph), 0);
        self.list(count, |p, n| call!(self, ort.Graph_GetNodes(graph, p, n)))
    }

    /// The inputs of a node; null for those that are not given.
    pub fn node_inputs(&self, node: *const OrtNode) -> Result<Vec<*const OrtValueInfo>, Error> {
        let count = || get!(self, Node_GetNumInputs(node), 0);
        self.list(count, |p, n| call!(self, ort.Node_GetInputs(node, p, n)))
    }

    /// The outputs of a node.
    pub fn node_outputs(&self, node: *const OrtNode) -> Result<Vec<*const OrtValueInfo>, Error> {
        let count = || get!(self, Node_GetNumOutputs(node), 0);
        self.list(count, |p, n| call!(self, ort.Node_GetOutputs(node, p, n)))
    }

    fn implicit_inputs(&self, node: *const OrtNode) -> Result<Vec<*const OrtValueInfo>, Error> {
        let count = || get!(self, Node_GetNumImplicitInputs(node), 0);
        self.list(count, |p, n| call!(self, ort.Node_GetImplicitInputs(node, p, n)))
    }

    /// The name of a value; empty for one that is not there.
    pub fn value_name(&self, v: *const OrtValueInfo) -> Result<String, Error> {
        if v.is_null() {
            return Ok(String::new());
        }
        // SAFETY: a string of the graph's.
        get!(self, GetValueInfoName(v), null()).map(|p| unsafe { text(p) })
    }

    /// Operator and domain of a node.
    pub fn operator(&self, node: *const OrtNode) -> Result<(String, String), Error> {
        let op = get!(self, Node_GetOperatorType(node), null())?;
        let domain = get!(self, Node_GetDomain(node), null())?;
        // SAFETY: strings of the graph's.
        let (op, domain) = unsafe { (text(op), text(domain)) };
        Ok((op, if domain == "ai.onnx" { String::new() } else { domain }))
    }

    /// Name of a node.
    pub fn node_name(&self, node: *const OrtNode) -> Result<String, Error> {
        // SAFETY: a string of the graph's.
        get!(self, Node_GetName(node), null()).map(|p| unsafe { text(p) })
    }

    /// An attribute of a node: its bytes, as `kind` has them; `None` when there is no such attribute.
    pub fn attribute_bytes(&self, node: *const OrtNode, name: &str, kind: OrtOpAttrType) -> Option<Vec<u8>> {
        let name = c_string(name);
        let attribute = get!(self, Node_GetAttributeByName(node, name.as_ptr()), null()).ok()?;
        (!attribute.is_null()).then(|| self.raw_attribute(attribute, kind).ok()).flatten()
    }

    fn raw_attribute(&self, a: *const OrtOpAttr, kind: OrtOpAttrType) -> Result<Vec<u8>, Error> {
        let mut size = 0;
        // Fails when there is anything to be had, and says how much.
        let _ = call!(self, ort.ReadOpAttr(a, kind, none(), 0, &mut size));
        // Words, so that numbers of any type are aligned in it.
        let mut words = vec![0u64; size.div_ceil(8)];
        if size > 0 {
            call!(self, ort.ReadOpAttr(a, kind, words.as_mut_ptr().cast::<c_void>(), size, &mut size))?;
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Type and shape of a tensor that is there.
    pub fn tensor_info(&self, value: *const OrtValue) -> Result<(Option<DType>, Vec<usize>), Error> {
        let info = get!(self, GetTensorTypeAndShape(value), none())?;
        let read = self.type_and_dims(info);
        // SAFETY: it was made for us by the call above.
        unsafe { (self.ort.ReleaseTensorTypeAndShapeInfo)(info) };
        let (dtype, dims) = read?;
        Ok((dtype, dims.into_iter().map(|d| usize::try_from(d).unwrap_or(0)).collect()))
    }

    fn type_and_dims(&self, info: *const OrtTensorTypeAndShapeInfo) -> Result<(Option<DType>, Vec<i64>), Error> {
        // A newer onnxruntime may have types that the enumeration lacks: a number it is.
        let mut kind = 0i32;
        call!(self, ort.GetTensorElementType(info, (&raw mut kind).cast()))?;
        let mut dims = vec![0i64; get!(self, GetDimensionsCount(info), 0)?];
        call!(self, ort.GetDimensions(info, dims.as_mut_ptr(), dims.len()))?;
        Ok((TYPES.iter().find(|t| t.0 == kind).map(|t| t.1), dims))
    }

    /// The elements of a tensor in memory of the host.
    ///
    /// # Safety
    /// They are valid as long as the caller says: as long as the value is.
    pub unsafe fn tensor_bytes<'a>(&self, value: *const OrtValue) -> Result<&'a [u8], Error> {
        let size = get!(self, GetTensorSizeInBytes(value), 0)?;
        let data = get!(self, GetTensorData(value), null())?;
        if size == 0 || data.is_null() {
            return Ok(&[]);
        }
        // SAFETY: onnxruntime's promise, for as long as the value lives.
        Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) })
    }

    /// A tensor of onnxruntime's; its elements stay where they are.
    fn borrowed(&self, value: *const OrtValue, what: &str) -> Result<HostTensor, Error> {
        let (dtype, shape) = self.tensor_info(value)?;
        let dtype = dtype.ok_or_else(|| Error::Type { what: what.into() })?;
        // SAFETY: see the module.
        let bytes = unsafe { self.tensor_bytes(value)? };
        let bytes = Bytes::from_owner(Borrowed(bytes.as_ptr(), bytes.len()));
        tensor(dtype, &shape, bytes, what)
    }

    fn read_attribute(&self, a: *const OrtOpAttr) -> Result<Attribute, Error> {
        use OrtOpAttrType as T;
        let mut kind = 0i32;
        call!(self, ort.OpAttr_GetType(a, (&raw mut kind).cast()))?;
        let floats = |b: Vec<u8>| b.as_chunks().0.iter().map(|c| f32::from_ne_bytes(*c)).collect::<Vec<_>>();
        let ints = |b: Vec<u8>| b.as_chunks().0.iter().map(|c| i64::from_ne_bytes(*c)).collect::<Vec<_>>();
        let string = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Ok(match kind {
            k if k == T::ORT_OP_ATTR_INT as i32 => {
                Attribute::Int(ints(self.raw_attribute(a, T::ORT_OP_ATTR_INT)?).first().copied().unwrap_or(0))
            }
            k if k == T::ORT_OP_ATTR_INTS as i32 => Attribute::Ints(ints(self.raw_attribute(a, T::ORT_OP_ATTR_INTS)?)),
            k if k == T::ORT_OP_ATTR_FLOAT as i32 => {
                let list = floats(self.raw_attribute(a, T::ORT_OP_ATTR_FLOAT)?);
                Attribute::Float(list.first().copied().unwrap_or(0.0))
            }
            k if k == T::ORT_OP_ATTR_FLOATS as i32 => {
                Attribute::Floats(floats(self.raw_attribute(a, T::ORT_OP_ATTR_FLOATS)?))
            }
            k if k == T::ORT_OP_ATTR_STRING as i32 => {
                let b = self.raw_attribute(a, T::ORT_OP_ATTR_STRING)?;
                Attribute::Text(string(b.strip_suffix(&[0]).unwrap_or(&b)))
            }
            // One behind the other, a zero after each.
            k if k == T::ORT_OP_ATTR_STRINGS as i32 => {
                let b = self.raw_attribute(a, T::ORT_OP_ATTR_STRINGS)?;
                let whole = b.strip_suffix(&[0]).unwrap_or(&b);
                Attribute::Texts(if b.is_empty() { Vec::new() } else { whole.split(|c| *c == 0).map(string).collect() })
            }
            k if k == T::ORT_OP_ATTR_TENSOR as i32 => {
                let value = get!(self, OpAttr_GetTensorAttributeAsOrtValue(a), none())?;
                let read = self.borrowed(value, "an attribute").map(owned);
                // SAFETY: it was made for us by the call above, and what was read is a copy.
                unsafe { (self.ort.ReleaseValue)(value) };
                match read {
                    Ok(tensor) => Attribute::Tensor(tensor),
                    Err(Error::Type { .. }) => Attribute::Other(kind),
                    Err(e) => return Err(e),
                }
            }
            k => Attribute::Other(k),
        })
    }

    /// What is known of a value that is no constant.
    fn value_info(&self, v: *const OrtValueInfo, name: &str) -> Result<Option<ValueInfo>, Error> {
        let info = get!(self, GetValueInfoTypeInfo(v), null())?;
        if info.is_null() {
            return Ok(None);
        }
        let mut kind = 0i32;
        call!(self, ort.GetOnnxTypeFromTypeInfo(info, (&raw mut kind).cast()))?;
        if kind != ONNXType::ONNX_TYPE_TENSOR as i32 {
            return Ok(None);
        }
        let tensor = get!(self, CastTypeInfoToTensorInfo(info), null())?;
        if tensor.is_null() {
            return Ok(None);
        }
        let (dtype, dims) = self.type_and_dims(tensor)?;
        let Some(dtype) = dtype else { return Ok(None) };
        let mut names = vec![null(); dims.len()];
        call!(self, ort.GetSymbolicDimensions(tensor, names.as_mut_ptr(), names.len()))?;
        // SAFETY: a plain question; names are strings of the graph's.
        let shape = unsafe {
            (self.ort.TensorTypeAndShape_HasShape)(tensor).then(|| {
                let dim = |(d, name): (&i64, &*const c_char)| match (usize::try_from(*d), text(*name)) {
                    (Ok(n), _) => Dim::Known(n),
                    (_, name) if !name.is_empty() => Dim::Symbol(name),
                    _ => Dim::Unknown,
                };
                dims.iter().zip(&names).map(dim).collect()
            })
        };
        Ok(Some(ValueInfo { name: name.into(), dtype: Some(dtype), shape }))
    }

    /// A value, and what is known of it.
    pub fn read_value(&self, v: *const OrtValueInfo, name: &str) -> Result<Value, Error> {
        if get!(self, ValueInfo_IsConstantInitializer(v), false)? {
            let value = get!(self, ValueInfo_GetInitializerValue(v), null())?;
            if !value.is_null() {
                return match self.borrowed(value, name) {
                    Ok(t) => Ok(Value::Constant(t)),
                    Err(Error::Type { .. }) => Ok(Value::Other),
                    Err(e) => Err(e),
                };
            }
        }
        Ok(self.value_info(v, name)?.map_or(Value::Other, Value::Tensor))
    }

    fn read_node(&self, handle: *const OrtNode) -> Result<ReadNode, Error> {
        let (op, domain) = self.operator(handle)?;
        let names = |list: Vec<*const OrtValueInfo>| {
            list.into_iter().map(|v| self.value_name(v)).collect::<Result<Vec<_>, _>>()
        };
        let (inputs, outputs) = (names(self.node_inputs(handle)?)?, names(self.node_outputs(handle)?)?);
        let name = match self.node_name(handle)? {
            name if name.is_empty() => {
                format!("{op}_{}", outputs.iter().find(|o| !o.is_empty()).map_or("", |o| o))
            }
            name => name,
        };
        let count = || get!(self, Node_GetNumAttributes(handle), 0);
        let list = self.list(count, |p, n| call!(self, ort.Node_GetAttributes(handle, p, n)))?;
        let mut attributes = BTreeMap::new();
        // EPContext nodes hold whole files: those are read when they are needed.
        for a in list.into_iter().filter(|_| !is_context(&op, &domain)) {
            let name = get!(self, OpAttr_GetName(a), null())?;
            // SAFETY: a string of the graph's.
            let name = unsafe { text(name) };
            attributes.insert(name, self.read_attribute(a)?);
        }
        for (name, graph) in self.subgraphs(handle)? {
            attributes.insert(name, Attribute::Graph(Box::new(self.read_subgraph(graph)?)));
        }
        let implicit = names(self.implicit_inputs(handle)?)?;
        Ok(ReadNode { handle, node: Node { name, op, domain, inputs, outputs, attributes }, implicit })
    }

    fn subgraphs(&self, node: *const OrtNode) -> Result<Vec<(String, *const OrtGraph)>, Error> {
        let count = get!(self, Node_GetNumSubgraphs(node), 0)?;
        let (mut graphs, mut names) = (vec![null(); count], vec![null(); count]);
        if count > 0 {
            call!(self, ort.Node_GetSubgraphs(node, graphs.as_mut_ptr(), count, names.as_mut_ptr()))?;
        }
        // SAFETY: strings of the graph's.
        Ok(names.into_iter().map(|n| unsafe { text(n) }).zip(graphs).collect())
    }

    fn read_subgraph(&self, graph: *const OrtGraph) -> Result<Graph, Error> {
        let read = self.read_graph(graph)?;
        let mut initializers = BTreeMap::new();
        for v in self.initializers(graph)? {
            let name = self.value_name(v)?;
            if let Value::Constant(t) = self.read_value(v, &name)? {
                initializers.insert(name, t);
            }
        }
        let info = |name: &String| match read.values.get(name) {
            Some(Value::Tensor(info)) => info.clone(),
            _ => ValueInfo { name: name.clone(), dtype: None, shape: None },
        };
        Ok(Graph {
            inputs: read.inputs.iter().map(info).collect(),
            outputs: read.outputs.iter().map(info).collect(),
            name: read.name,
            initializers,
            nodes: read.nodes.into_iter().map(|n| n.node).collect(),
        })
    }

    fn initializers(&self, graph: *const OrtGraph) -> Result<Vec<*const OrtValueInfo>, Error> {
        let count = || get!(self, Graph_GetNumInitializers(graph), 0);
        self.list(count, |p, n| call!(self, ort.Graph_GetInitializers(graph, p, n)))
    }

    /// True for a graph that is the body of a Loop, or inside of one.
    pub fn goes_round(&self, graph: *const OrtGraph) -> Result<bool, Error> {
        let parent = get!(self, Graph_GetParentNode(graph), null())?;
        if parent.is_null() {
            return Ok(false);
        }
        let around = get!(self, Node_GetGraph(parent), null())?;
        Ok(self.operator(parent)?.0 == "Loop" || !around.is_null() && self.goes_round(around)?)
    }

    /// A graph with everything that its nodes name.
    pub fn read_graph(&self, graph: *const OrtGraph) -> Result<ReadGraph, Error> {
        let name = get!(self, Graph_GetName(graph), null())?;
        // SAFETY: a string of the graph's.
        let mut read = ReadGraph { name: unsafe { text(name) }, ..ReadGraph::default() };
        for handle in self.nodes(graph)? {
            self.add(handle, &mut read)?;
        }
        let count = || get!(self, Graph_GetNumInputs(graph), 0);
        for v in self.list(count, |p, n| call!(self, ort.Graph_GetInputs(graph, p, n)))? {
            read.inputs.push(self.note(v, &mut read.values)?);
        }
        let count = || get!(self, Graph_GetNumOutputs(graph), 0);
        for v in self.list(count, |p, n| call!(self, ort.Graph_GetOutputs(graph, p, n)))? {
            read.outputs.push(self.note(v, &mut read.values)?);
        }
        read.opsets = self.opsets(graph)?;
        Ok(read)
    }

    fn opsets(&self, graph: *const OrtGraph) -> Result<BTreeMap<String, i64>, Error> {
        let mut opsets = BTreeMap::new();
        let count = get!(self, Graph_GetNumOperatorSets(graph), 0)?;
        let (mut domains, mut versions) = (vec![null(); count], vec![0; count]);
        call!(self, ort.Graph_GetOperatorSets(graph, domains.as_mut_ptr(), versions.as_mut_ptr(), count))?;
        for (domain, version) in domains.into_iter().zip(versions) {
            // SAFETY: a string of the graph's.
            let domain = unsafe { text(domain) };
            opsets.insert(if domain == "ai.onnx" { String::new() } else { domain }, version);
        }
        Ok(opsets)
    }

    /// A node as a graph of its own, with the operator sets of `graph`, of the same model.
    pub fn read_alone(&self, node: *const OrtNode, graph: *const OrtGraph) -> Result<ReadGraph, Error> {
        let mut read = ReadGraph { opsets: self.opsets(graph)?, ..ReadGraph::default() };
        self.add(node, &mut read)?;
        read.outputs = read.nodes.iter().flat_map(|n| n.node.outputs.clone()).filter(|o| !o.is_empty()).collect();
        Ok(read)
    }

    /// Adds a node, and what it names, to a graph.
    fn add(&self, node: *const OrtNode, read: &mut ReadGraph) -> Result<(), Error> {
        let lists = [self.node_inputs(node)?, self.implicit_inputs(node)?, self.node_outputs(node)?];
        for v in lists.into_iter().flatten().filter(|v| !v.is_null()) {
            self.note(v, &mut read.values)?;
        }
        read.nodes.push(self.read_node(node)?);
        Ok(())
    }

    /// Takes down what is known of a value, once; gives its name.
    fn note(&self, v: *const OrtValueInfo, values: &mut BTreeMap<String, Value>) -> Result<String, Error> {
        let name = self.value_name(v)?;
        if !name.is_empty() && !values.contains_key(&name) {
            values.insert(name.clone(), self.read_value(v, &name)?);
        }
        Ok(name)
    }
}

/// True for nodes that stand for code that was compiled before.
pub fn is_context(op: &str, domain: &str) -> bool {
    op == "EPContext" && domain == "com.microsoft"
}

/// A tensor from bytes as onnxruntime holds them: types of 4 and 2 bits are packed there.
pub fn tensor(dtype: DType, shape: &[usize], bytes: Bytes, what: &str) -> Result<HostTensor, Error> {
    if dtype.bits() >= 8 {
        return Ok(HostTensor::new(dtype, shape, bytes)?);
    }
    let count = shape.iter().product();
    let bytes = unpacked(&bytes, dtype, count).map_err(|_| Error::Type { what: what.into() })?;
    Ok(HostTensor::new(dtype, shape, bytes)?)
}

/// A tensor with elements of its own.
fn owned(t: HostTensor) -> HostTensor {
    let copy = HostTensor::new(t.dtype(), t.shape(), Bytes::copy_from_slice(t.bytes()));
    copy.unwrap_or(t)
}

/// Copies all weights of a graph that lie in onnxruntime's memory.
pub fn own_weights(graph: &mut Graph) {
    for t in graph.initializers.values_mut() {
        *t = owned(t.clone());
    }
    for node in &mut graph.nodes {
        for a in node.attributes.values_mut() {
            if let Attribute::Graph(g) = a {
                own_weights(g);
            }
        }
    }
}
