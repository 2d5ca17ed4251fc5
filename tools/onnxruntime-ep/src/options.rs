//! What a session may ask of the provider.

use crate::error::Error;
use barewave::compile::KernelCache;
use barewave::tensor::DType;
use barewave_isa::Target;
use std::path::PathBuf;
use std::sync::Arc;

/// The options of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// `auto`, `hip:N`, `emu:TARGET`; what the session's hardware is when it is not given.
    pub device: Option<String>,
    /// The architecture to compile for, where `device` leaves it open.
    pub target: Option<Target>,
    /// What 32-bit floats are computed in; as they are when it is not given.
    pub dtype: Option<DType>,
    /// Where kernels are kept: a folder, `off` for memory only; the user's folder when it is not given.
    pub cache: Option<String>,
    /// Check every launch on an emulated device.
    pub strict: bool,
    /// Folder that compiled models are written to.
    pub dump: Option<PathBuf>,
    /// Of onnxruntime's own options: those of EPContext models.
    pub context: Context,
}

/// What onnxruntime asks for about EPContext models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// One is to be made.
    pub enable: bool,
    /// Where the model goes.
    pub file: PathBuf,
    /// The code goes beside the model, not into it.
    pub beside: bool,
}

/// Names of the options, for messages.
const KNOWN: &str = "device, target, dtype, cache, strict, dump";

impl Options {
    /// Options from all entries of a session's configuration. onnxruntime puts a provider's own behind `ep.` and its name in
    /// lower case.
    pub fn parse(entries: &[(String, String)]) -> Result<Options, Error> {
        let prefix = format!("ep.{}.", crate::NAME.to_lowercase());
        let mut options = Options::default();
        for (key, value) in entries {
            match key.as_str() {
                "ep.context_enable" => options.context.enable = value == "1",
                "ep.context_file_path" => options.context.file = value.into(),
                "ep.context_embed_mode" => options.context.beside = value == "0",
                key => {
                    if let Some(name) = key.to_lowercase().strip_prefix(&prefix) {
                        options.set(name, value)?;
                    }
                }
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let wrong = |what: String| Error::Option { name: name.into(), what };
        match name {
            _ if value.is_empty() => {}
            "device" => self.device = Some(value.into()),
            "target" => self.target = Some(Target::parse(value).map_err(|e| wrong(e.to_string()))?),
            "dtype" => {
                self.dtype = match value {
                    "model" | "f32" => None,
                    "f16" => Some(DType::F16),
                    "bf16" => Some(DType::BF16),
                    _ => return Err(wrong(format!("`{value}` is none of f32, f16 and bf16"))),
                }
            }
            "cache" => self.cache = Some(value.into()),
            "strict" => {
                self.strict = match value.to_lowercase().as_str() {
                    "1" | "true" | "on" => true,
                    "0" | "false" | "off" => false,
                    _ => return Err(wrong(format!("`{value}` is neither 1 nor 0"))),
                }
            }
            "dump" => self.dump = Some(value.into()),
            _ => return Err(wrong(format!("there is no such option; there are {KNOWN}"))),
        }
        Ok(())
    }

    /// The kernel cache.
    pub fn kernels(&self) -> Arc<KernelCache> {
        Arc::new(match self.cache.as_deref() {
            None => KernelCache::of_user(),
            Some("off") => KernelCache::in_memory(),
            Some(folder) => KernelCache::in_folder(folder, barewave::compile::cache::DEFAULT_BYTES),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &[(&str, &str)]) -> Result<Options, Error> {
        Options::parse(&list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let o = parse(&[
            ("ep.barewaveexecutionprovider.device", "emu:gfx1100"),
            ("ep.barewaveexecutionprovider.strict", "true"),
            ("ep.other.device", "x"),
            ("session.something", "1"),
            ("ep.context_enable", "1"),
        ]);
        let o = o.unwrap();
        assert_eq!((o.device.as_deref(), o.strict, o.context.enable), (Some("emu:gfx1100"), true, true));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (key, value, word) in [
            ("target", "gfx1", "gfx1"),
            ("strict", "perhaps", "perhaps"),
            ("dtype", "f8", "none of f32, f16 and bf16"),
            ("devise", "auto", "there are device, target"),
        ] {
            let e = parse(&[(&format!("ep.barewaveexecutionprovider.{key}"), value)]).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains(key), "{e}");
        }
    }
}
