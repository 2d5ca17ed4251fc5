//! From a file to a [`Model`].

use super::functions::inline_local;
use super::proto::{AttributeProto, ElementTypeProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto};
use super::{Attribute, Dim, Error, Graph, Model, Node, Origin, Structure, ValueInfo};
use crate::mapped::{map_file, release};
use crate::tensor::pb::{External, decode};
use crate::tensor::{DType, HostTensor};
use crate::text::printable;
use bytes::Bytes;
use prost::Message;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

impl Model {
    /// Reads an ONNX file.
    pub fn load(path: &Path) -> Result<Model, Error> {
        let bytes = map_file(path).map_err(|source| Error::Io { path: path.into(), source })?;
        Model::from_bytes(bytes, path)
    }

    /// Reads an ONNX model from memory. `path` is used in messages and to find external data.
    pub fn from_bytes(bytes: Bytes, path: &Path) -> Result<Model, Error> {
        let _span = tracing::info_span!("import").entered();
        let not_onnx = |reason: String| Error::NotOnnx { path: path.into(), reason };
        if let Some(found) = foreign(&bytes) {
            return Err(not_onnx(found.into()));
        }
        let size = bytes.len();
        let file = bytes.clone();
        let proto = ModelProto::decode(bytes).map_err(|e| {
            let text = e.to_string();
            if text.ends_with("recursion limit reached") {
                return not_onnx(
                    "its subgraphs (If, Loop, Scan) are nested too deeply; at most 30 levels are read".into(),
                );
            }
            // The way to the damage can be long: its end tells where it is.
            let way: Vec<&str> = text.split(": ").collect();
            let end = way[way.len().saturating_sub(4)..].join(": ");
            not_onnx(format!("{end}. The file has {size} bytes; if it is an ONNX model it is truncated: copy it again"))
        })?;
        // Reading the messages brings most pages of the weights between them.
        release(&file);
        let Some(graph) = proto.graph else {
            return Err(not_onnx("it contains no graph. If it is an ONNX model it is truncated: copy it again".into()));
        };
        if proto.ir_version < 1 || proto.opset_import.is_empty() {
            return Err(not_onnx("it declares no ONNX version or operator set; export the model again".into()));
        }
        let invalid = |(what, reason): (String, String)| Error::Invalid { path: path.into(), what, reason };
        let mut opsets = BTreeMap::new();
        for o in &proto.opset_import {
            let domain = if o.domain == "ai.onnx" { "" } else { &o.domain };
            opsets.insert(domain.to_string(), o.version);
        }
        let mut graph = graph;
        inline_local(&mut graph, &proto.functions)
            .map_err(|e| invalid((format!("function `{}`", e.function()), e.to_string())))?;
        let structures = graph.input.iter().chain(&graph.output).filter_map(structure).collect();
        let origin = Origin {
            producer: proto.producer_name,
            domain: proto.domain,
            version: proto.model_version,
            description: proto.doc_string,
            graph_description: graph.doc_string.clone(),
        };
        let graph = import_graph(graph, &mut External::new(path)).map_err(invalid)?;
        release(&file);
        let metadata = proto.metadata_props.into_iter().map(|e| (e.key, e.value)).collect();
        let mut model = Model { graph, opsets, metadata, structures, origin };
        model.expand();
        Ok(model)
    }
}

/// Recognises files that are plainly something else.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    if bytes.is_empty() {
        return Some("it is empty");
    }
    if starts(b"version https://git-lfs") {
        return Some("it is a Git LFS pointer; run `git lfs pull` to get the model itself");
    }
    if starts(b"PK\x03\x04") {
        return Some("it is a zip archive (PyTorch checkpoint or npz?); export the model to ONNX first");
    }
    if starts(b"\x7fELF") {
        return Some("it is an ELF file; compiled models are run, not compiled again");
    }
    if starts(b"\x89HDF") {
        return Some("it is an HDF5 file (Keras?); export the model to ONNX first");
    }
    if starts(b"\x89PNG") || starts(b"\xff\xd8\xff") {
        return Some("it is an image");
    }
    if starts(b"GGUF") {
        return Some("it is a GGUF file; only ONNX models can be read");
    }
    if starts(b"{") || starts(b"<") {
        return Some("it is text; the binary form of ONNX is needed");
    }
    None
}

type Located = (String, String);

fn import_graph(g: GraphProto, external: &mut External) -> Result<Graph, Located> {
    if !g.sparse_initializer.is_empty() {
        return Err(("sparse initializers".into(), "not supported; convert them to dense ones".into()));
    }
    let mut graph = Graph { name: printable(&g.name).into_owned(), ..Graph::default() };
    for t in &g.initializer {
        let tensor =
            decode(t, Some(external)).map_err(|e| (format!("initializer `{}`", printable(&t.name)), e.to_string()))?;
        match graph.initializers.entry(printable(&t.name).into_owned()) {
            Entry::Occupied(other) if *other.get() != tensor => {
                let place = format!("initializer `{}`", other.key());
                return Err((place, "is given twice, with different values; rename one of them".into()));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(tensor);
            }
        }
    }
    share_equal(&mut graph.initializers);
    let info = |v: &super::proto::ValueInfoProto| value_info(&printable(&v.name), v.r#type.as_ref());
    graph.inputs = g.input.iter().map(info).collect::<Result<_, _>>()?;
    graph.outputs = g.output.iter().map(info).collect::<Result<_, _>>()?;
    graph.nodes = g.node.into_iter().map(|n| import_node(n, external)).collect::<Result<_, _>>()?;
    Ok(graph)
}

/// Gives tensors of equal bytes the same ones, so that whoever tells them apart by where they lie takes them for one. They are
/// read where some places in them agree.
fn share_equal(tensors: &mut BTreeMap<String, HostTensor>) {
    // Each brings pages of the file.
    const PLACES: usize = 4;
    const PLACE: usize = 256;
    let mut known: FxHashMap<(usize, u128), Vec<Bytes>> = FxHashMap::default();
    for t in tensors.values_mut() {
        let Some(bytes) = t.ready().filter(|b| b.len() > PLACES * PLACE && t.dtype() != DType::Str).cloned() else {
            continue;
        };
        let apart = (bytes.len() - PLACE) / (PLACES - 1);
        let sample: Vec<u8> = (0..PLACES).flat_map(|i| &bytes[i * apart..][..PLACE]).copied().collect();
        let alike = known.entry((bytes.len(), xxh3_128(&sample))).or_default();
        match alike.iter().find(|other| **other == bytes) {
            Some(same) => {
                if let Ok(shared) = HostTensor::new(t.dtype(), t.shape(), same.clone()) {
                    *t = shared;
                }
            }
            None => alike.push(bytes),
        }
    }
}

/// How a value that is no tensor is built.
fn structure(v: &ValueInfoProto) -> Option<(String, Structure)> {
    let t = v.r#type.as_ref()?;
    let within = |of: &ElementTypeProto| of.elem_type.clone().unwrap_or_default();
    let tensor = |t: &TypeProto| t.tensor_type.as_ref().and_then(|t| DType::from_onnx(t.elem_type));
    let structure = match (&t.sequence_type, &t.optional_type) {
        (Some(of), _) if within(of).map_type.is_some() => Structure::Maps,
        (Some(of), _) => Structure::Sequence(tensor(&within(of))),
        (None, Some(of)) => match &within(of).sequence_type {
            Some(list) => Structure::OptionalSequence(tensor(&within(list))),
            None => Structure::OptionalTensor(tensor(&within(of))),
        },
        (None, None) if t.map_type.is_some() => Structure::Maps,
        (None, None) => return None,
    };
    Some((printable(&v.name).into_owned(), structure))
}

fn value_info(name: &str, t: Option<&TypeProto>) -> Result<ValueInfo, Located> {
    let tensor = t.and_then(|t| t.tensor_type.as_ref());
    let dtype = tensor.and_then(|t| DType::from_onnx(t.elem_type));
    let mut shape = None;
    if let Some(dims) = tensor.and_then(|t| t.shape.as_ref()) {
        let mut list = Vec::new();
        for d in &dims.dim {
            list.push(match (d.dim_value, &d.dim_param) {
                // Some exporters write -1 for what they leave open.
                (Some(-1), _) => Dim::Unknown,
                (Some(v), _) => Dim::Known(
                    usize::try_from(v).map_err(|_| (format!("value `{name}`"), format!("has the dimension {v}")))?,
                ),
                (None, Some(s)) if !s.is_empty() => Dim::Symbol(printable(s).into_owned()),
                _ => Dim::Unknown,
            });
        }
        shape = Some(list);
    }
    Ok(ValueInfo { name: name.into(), dtype, shape })
}

fn import_node(n: NodeProto, external: &mut External) -> Result<Node, Located> {
    let owned = |s: &String| printable(s).into_owned();
    let op = owned(&n.op_type);
    let outputs: Vec<String> = n.output.iter().map(owned).collect();
    let name = if !n.name.is_empty() {
        owned(&n.name)
    } else {
        format!("{op}_{}", outputs.iter().find(|o| !o.is_empty()).map_or("", |o| o))
    };
    let mut attributes = BTreeMap::new();
    for a in n.attribute {
        let of = owned(&a.name);
        let value =
            attribute(a, external).map_err(|(what, e)| (format!("node `{name}` ({op}), attribute `{of}`{what}"), e))?;
        attributes.insert(of, value);
    }
    let domain = if n.domain == "ai.onnx" { String::new() } else { owned(&n.domain) };
    Ok(Node { name, op, domain, inputs: n.input.iter().map(owned).collect(), outputs, attributes })
}

fn attribute(a: AttributeProto, external: &mut External) -> Result<Attribute, Located> {
    let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
    // Files of the first versions leave the type out; then it is told by which field is filled.
    let kind = match a.r#type {
        0 if a.f.is_some() => 1,
        0 if a.i.is_some() => 2,
        0 if a.s.is_some() => 3,
        0 if a.t.is_some() => 4,
        0 if a.g.is_some() => 5,
        0 if !a.floats.is_empty() => 6,
        0 if !a.strings.is_empty() => 8,
        0 => 7,
        k => k,
    };
    Ok(match kind {
        1 => Attribute::Float(a.f.unwrap_or(0.0)),
        2 => Attribute::Int(a.i.unwrap_or(0)),
        3 => Attribute::Text(a.s.as_ref().map(text).unwrap_or_default()),
        4 => match &a.t {
            Some(t) if DType::from_onnx(t.data_type).is_none() => Attribute::Other(4),
            Some(t) => Attribute::Tensor(decode(t, Some(external)).map_err(|e| (String::new(), e.to_string()))?),
            None => return Err((String::new(), "has no tensor".into())),
        },
        5 => match a.g {
            Some(g) => Attribute::Graph(Box::new(import_graph(*g, external).map_err(|(w, e)| (format!(", {w}"), e))?)),
            None => return Err((String::new(), "has no graph".into())),
        },
        6 => Attribute::Floats(a.floats),
        7 => Attribute::Ints(a.ints),
        8 => Attribute::Texts(a.strings.iter().map(text).collect()),
        k => Attribute::Other(k),
    })
}

#[cfg(test)]
mod tests {
    use super::super::proto::*;
    use super::*;
    use crate::tensor::pb::TensorProto;

    fn parse(bytes: Vec<u8>) -> Result<Model, Error> {
        Model::from_bytes(bytes.into(), Path::new("m.onnx"))
    }

    fn tiny() -> Vec<u8> {
        let node = NodeProto {
            input: vec!["x".into(), "w".into()],
            output: vec!["y".into()],
            op_type: "Add".into(),
            ..Default::default()
        };
        let w = TensorProto {
            name: "w".into(),
            dims: vec![2],
            data_type: 1,
            raw_data: Some(Bytes::from_static(&[0, 0, 128, 63, 0, 0, 0, 64])),
            ..Default::default()
        };
        let graph = GraphProto { node: vec![node], initializer: vec![w], ..Default::default() };
        ModelProto {
            ir_version: 8,
            graph: Some(graph),
            opset_import: vec![OperatorSetIdProto { domain: "ai.onnx".into(), version: 17 }],
            ..Default::default()
        }
        .encode_to_vec()
    }

    #[test]
    fn a_tiny_model() {
        let m = parse(tiny()).unwrap();
        assert_eq!(m.opset(), 17);
        assert_eq!(m.graph.nodes[0].name, "Add_y");
        assert_eq!(m.graph.initializers["w"].to_f32(), [1.0, 2.0]);
    }

    #[test]
    fn names_cannot_hold_control_characters() {
        let mut proto = ModelProto::decode(&tiny()[..]).unwrap();
        let node = &mut proto.graph.as_mut().unwrap().node[0];
        (node.name, node.output[0]) = ("a\x1b[2Jb\n\ts_endpgm".into(), "y\r".into());
        let m = parse(proto.encode_to_vec()).unwrap();
        assert_eq!(m.graph.nodes[0].name, "a\\u{1b}[2Jb\\n\\ts_endpgm");
        assert_eq!(m.graph.nodes[0].outputs, ["y\\r"]);
    }

    #[test]
    fn weights_of_one_name_are_one() {
        let mut proto = ModelProto::decode(&tiny()[..]).unwrap();
        let weights = &mut proto.graph.as_mut().unwrap().initializer;
        weights.push(weights[0].clone());
        assert_eq!(parse(proto.encode_to_vec()).unwrap().graph.initializers.len(), 1);
        proto.graph.as_mut().unwrap().initializer[1].dims = vec![2, 1];
        let e = parse(proto.encode_to_vec()).unwrap_err().to_string();
        assert!(e.contains("initializer `w`: is given twice"), "{e}");
    }

    #[test]
    fn weights_are_shared_with_the_file() {
        let bytes = Bytes::from(tiny());
        let range = bytes.as_ptr_range();
        let m = Model::from_bytes(bytes.clone(), Path::new("m.onnx")).unwrap();
        assert!(range.contains(&m.graph.initializers["w"].bytes().as_ptr()));
    }

    #[test]
    fn equal_weights_are_one() {
        let tensor = |seed: usize| {
            let values: Vec<f32> = (0..3000).map(|i| (i * seed % 977) as f32).collect();
            HostTensor::from_f32(&[30, 100], &values)
        };
        let mut other = tensor(7).to_f32();
        other[1234] += 1.0;
        let turned = HostTensor::from_f32(&[3000], &tensor(7).to_f32());
        let all = [tensor(7), tensor(5), tensor(7), HostTensor::from_f32(&[30, 100], &other), turned];
        let mut tensors: BTreeMap<String, HostTensor> =
            all.iter().enumerate().map(|(i, t)| (i.to_string(), t.clone())).collect();
        share_equal(&mut tensors);
        assert!(tensors.values().zip(&all).all(|(t, given)| t == given), "nothing changes");
        let at: Vec<*const u8> = tensors.values().map(|t| t.bytes().as_ptr()).collect();
        assert!(at[0] == at[2] && at[0] == at[4] && at[0] != at[1] && at[0] != at[3]);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = tiny();
        for n in 0..whole.len() {
            assert!(parse(whole[..n].to_vec()).is_err(), "{n} of {} bytes", whole.len());
        }
    }

    #[test]
    fn foreign_files_are_named() {
        for (bytes, word) in [
            (&b""[..], "empty"),
            (b"PK\x03\x04....", "zip"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"\x7fELF\x02", "ELF"),
            (b"{\"a\": 1}", "text"),
            (b"\x00\x01\x02\x03", "truncated"),
        ] {
            let message = parse(bytes.to_vec()).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }

    proptest::proptest! {
        #[test]
        fn damaged_files_never_panic(at in 0usize..200, value: u8) {
            let mut bytes = tiny();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = parse(bytes);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_that_only_reading_brought_are_given_back() {
        let tensor = |i: usize| TensorProto {
            name: format!("w{i}"),
            data_type: 1,
            dims: vec![8000],
            raw_data: Some((0..32_000).map(|at| (at * (i + 3) % 251) as u8).collect()),
            ..TensorProto::default()
        };
        let mut proto = ModelProto::decode(&tiny()[..]).unwrap();
        proto.graph.as_mut().unwrap().initializer.extend((0..64).map(tensor));
        let path = std::env::temp_dir().join(format!("barewave_pages_{}.onnx", std::process::id()));
        std::fs::write(&path, proto.encode_to_vec()).unwrap();
        let model = Model::load(&path).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        std::fs::remove_file(&path).unwrap();
        let of_file = maps.split_once(path.to_str().unwrap()).unwrap().1;
        let resident = of_file.lines().find_map(|l| l.strip_prefix("Rss:")).unwrap();
        let kilobytes: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kilobytes <= 256, "{kilobytes} kB of 2000 stay");
        assert_eq!(model.graph.initializers["w5"].bytes()[9], 9 * 8);
    }

    #[test]
    fn attributes_without_tensors_and_graphs_are_small() {
        assert!(size_of::<AttributeProto>() <= 256);
    }
}
