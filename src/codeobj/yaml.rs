//! Metadata as text: YAML as `.amdgpu_metadata` takes it, and the MessagePack of the note.

use super::Error;
use rmpv::Value;
use yaml_rust2::yaml::Hash;
use yaml_rust2::{Yaml, YamlEmitter, YamlLoader};

/// YAML text to the note's contents.
pub(super) fn to_msgpack(text: &str) -> Result<Vec<u8>, Error> {
    let bad = |e: String| Error::Metadata(format!(".amdgpu_metadata is no YAML: {e}"));
    let documents = YamlLoader::load_from_str(text).map_err(|e| bad(e.to_string()))?;
    let [root] = documents.as_slice() else { return Err(bad(format!("{} documents", documents.len()))) };
    if root.as_hash().is_none() {
        return Err(bad("the root is not a map".into()));
    }
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, &value(root)).map_err(|e| bad(e.to_string()))?;
    Ok(out)
}

fn value(y: &Yaml) -> Value {
    match y {
        Yaml::Real(s) => s.parse::<f64>().map_or(Value::from(s.as_str()), Value::from),
        Yaml::Integer(n) => match u64::try_from(*n) {
            Ok(n) => Value::from(n),
            Err(_) => Value::from(*n),
        },
        Yaml::String(s) => Value::from(s.as_str()),
        Yaml::Boolean(b) => Value::from(*b),
        Yaml::Array(a) => Value::Array(a.iter().map(value).collect()),
        Yaml::Hash(h) => Value::Map(h.iter().map(|(k, v)| (value(k), value(v))).collect()),
        _ => Value::Nil,
    }
}

/// The note's contents as YAML text.
pub fn metadata_to_yaml(note: &[u8]) -> Result<String, Error> {
    let root = rmpv::decode::read_value_with_max_depth(&mut &*note, 16).map_err(|e| Error::Metadata(e.to_string()))?;
    let mut out = String::new();
    YamlEmitter::new(&mut out).dump(&yaml(&root)).map_err(|e| Error::Metadata(e.to_string()))?;
    out.push_str("\n...\n");
    Ok(out)
}

fn yaml(v: &Value) -> Yaml {
    match v {
        Value::Boolean(b) => Yaml::Boolean(*b),
        Value::Integer(n) => match n.as_i64() {
            Some(n) => Yaml::Integer(n),
            None => Yaml::Real(n.to_string()),
        },
        Value::F32(x) => Yaml::Real(x.to_string()),
        Value::F64(x) => Yaml::Real(x.to_string()),
        Value::String(s) => Yaml::String(s.as_str().unwrap_or("").to_string()),
        Value::Array(a) => Yaml::Array(a.iter().map(yaml).collect()),
        Value::Map(m) => {
            let mut h = Hash::new();
            for (k, v) in m {
                h.insert(yaml(k), yaml(v));
            }
            Yaml::Hash(h)
        }
        Value::Binary(_) | Value::Ext(..) | Value::Nil => Yaml::Null,
    }
}
