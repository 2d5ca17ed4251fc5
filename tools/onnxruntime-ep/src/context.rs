//! EPContext models: models whose nodes hold what was compiled ahead of time.
//!
//! The node has, as onnxruntime's convention is, the file in `ep_cache_context`, or its name when `embed_mode` is 0 (then it
//! lies beside the model); `source` says whose it is. The file is what `barewave compile` writes: code, plan, weights.

use crate::api::{Api, c_string, call, get, none};
use crate::error::Error;
use crate::options::Context;
use barewave::codeobj::Abi;
use barewave::compile::Compiled;
use barewave_isa::Target;
use ort_sys::*;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null;

/// What tells whether compiled models run: the target.
pub fn compatibility(target: Target) -> String {
    format!("barewave {} {}", env!("CARGO_PKG_VERSION"), target.info().name)
}

/// The target of a compatibility text; `None` when it is not one of ours.
pub fn target_of(compatibility: &str) -> Option<Target> {
    let mut words = compatibility.split(' ');
    (words.next() == Some("barewave")).then(|| words.nth(1).and_then(|t| Target::parse(t).ok())).flatten()
}

/// True for an EPContext node that was made here.
pub fn is_ours(api: &Api, node: *const OrtNode) -> bool {
    string(api, node, "source").is_some_and(|s| s == crate::NAME)
}

fn string(api: &Api, node: *const OrtNode, name: &str) -> Option<String> {
    let bytes = api.attribute_bytes(node, name, OrtOpAttrType::ORT_OP_ATTR_STRING)?;
    Some(String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(&bytes)).into_owned())
}

/// What a node holds.
pub fn load(api: &Api, graph: *const OrtGraph, node: *const OrtNode) -> Result<Compiled, Error> {
    let name = api.node_name(node)?;
    let missing = |what: &str| Error::Context { node: name.clone(), what: what.into() };
    let held = api.attribute_bytes(node, "ep_cache_context", OrtOpAttrType::ORT_OP_ATTR_STRING);
    let held = held.ok_or_else(|| missing("it has no ep_cache_context"))?;
    let embedded = api.attribute_bytes(node, "embed_mode", OrtOpAttrType::ORT_OP_ATTR_INT);
    if embedded.is_none_or(|b| b.first() != Some(&0)) {
        return Ok(Compiled::from_bytes(held.into(), Path::new(&name))?);
    }
    let file = String::from_utf8_lossy(held.strip_suffix(&[0]).unwrap_or(&held)).into_owned();
    let plain = Path::new(&file).components().all(|c| matches!(c, std::path::Component::Normal(_)));
    if !plain {
        return Err(missing("its file is not beside the model"));
    }
    let model = get!(api, Graph_GetModelPath(graph), null())?;
    // SAFETY: a string of the graph's.
    let model = unsafe { crate::api::text(model) };
    Ok(Compiled::load(&Path::new(&model).parent().unwrap_or(Path::new("")).join(file))?)
}

/// An EPContext node for a group, of which onnxruntime makes the model that is loaded later.
pub fn node(
    api: &Api,
    name: &str,
    inputs: &[String],
    outputs: &[String],
    compiled: &Compiled,
    context: &Context,
) -> Result<*mut OrtNode, Error> {
    let held = if context.beside { beside(name, compiled, context)?.into_bytes() } else { bytes(compiled)? };
    let target = compiled.target().info().name;
    let mut attributes = Attributes { api, list: Vec::new() };
    attributes.int("main_context", 1)?;
    attributes.int("embed_mode", i64::from(!context.beside))?;
    attributes.text("ep_cache_context", &held)?;
    attributes.text("source", crate::NAME.as_bytes())?;
    attributes.text("ep_sdk_version", env!("CARGO_PKG_VERSION").as_bytes())?;
    attributes.text("hardware_architecture", target.as_bytes())?;
    attributes.text("partition_name", name.as_bytes())?;
    let c = |list: &[String]| list.iter().map(|s| c_string(s)).collect::<Vec<CString>>();
    let (inputs, outputs, name) = (c(inputs), c(outputs), c_string(name));
    let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
    let (inputs_at, outputs_at) = (pointers(&inputs), pointers(&outputs));
    let mut made = none();
    // SAFETY: everything is copied but the attributes, which the node takes over when it is made.
    let status = unsafe {
        let editor = &*(api.ort.GetModelEditorApi)();
        (editor.CreateNode)(
            c"EPContext".as_ptr(),
            c"com.microsoft".as_ptr(),
            name.as_ptr(),
            inputs_at.as_ptr(),
            inputs_at.len(),
            outputs_at.as_ptr(),
            outputs_at.len(),
            attributes.list.as_mut_ptr(),
            attributes.list.len(),
            &mut made,
        )
    };
    api.check(status)?;
    Ok(made)
}

fn bytes(compiled: &Compiled) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    compiled.write_to(Abi::V5, &mut bytes).map_err(barewave::compile::Error::from)?;
    Ok(bytes)
}

/// Writes the file beside the model; gives its name.
fn beside(name: &str, compiled: &Compiled, context: &Context) -> Result<String, Error> {
    let stem = context.file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    let file = format!("{stem}_{safe}.hsaco");
    let path: PathBuf = context.file.parent().unwrap_or(Path::new("")).join(&file);
    compiled.save(&path, Abi::V5).map_err(|source| Error::Io { what: "write", path, source })?;
    Ok(file)
}

/// Attributes that are being made; onnxruntime copies them into the node.
struct Attributes<'a> {
    api: &'a Api,
    list: Vec<*mut OrtOpAttr>,
}

impl Attributes<'_> {
    fn int(&mut self, name: &str, value: i64) -> Result<(), Error> {
        self.add(name, (&raw const value).cast(), 1, OrtOpAttrType::ORT_OP_ATTR_INT)
    }

    fn text(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        self.add(name, value.as_ptr().cast(), value.len(), OrtOpAttrType::ORT_OP_ATTR_STRING)
    }

    fn add(&mut self, name: &str, data: *const c_void, len: usize, kind: OrtOpAttrType) -> Result<(), Error> {
        let size = i32::try_from(len).map_err(|_| Error::Context {
            node: name.into(),
            what: format!("{len} bytes do not fit an attribute (ep.context_embed_mode=0 puts them beside the model)"),
        })?;
        let name = c_string(name);
        let mut made = none();
        call!(self.api, ort.CreateOpAttr(name.as_ptr(), data, size, kind, &mut made))?;
        self.list.push(made);
        Ok(())
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        for a in &self.list {
            // SAFETY: made by `add`; the node has copies.
            unsafe { (self.api.ort.ReleaseOpAttr)(*a) };
        }
    }
}
