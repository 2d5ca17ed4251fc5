//! What a session may ask of the provider.

use crate::error::Error;
use barewave::compile::{KernelCache, read_tuning};
use barewave::kernels::Tuning;
use barewave::tensor::DType;
use barewave_isa::Target;
use std::path::{Path, PathBuf};
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
    /// Matrix instructions may multiply 32-bit floats by 10 bits of their mantissa.
    pub xf32: bool,
    /// Products of f16 may be summed in f16, in runs that are added in f32.
    pub f16_sums: bool,
    /// The table of tiles.
    pub tune: Tuning,
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
const KNOWN: &str = "device, target, dtype, xf32, f16_sums, tune, cache, strict, dump";

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
            "strict" => self.strict = switch(value).map_err(wrong)?,
            "xf32" => self.xf32 = switch(value).map_err(wrong)?,
            "f16_sums" => self.f16_sums = switch(value).map_err(wrong)?,
            "tune" => self.tune = read_tuning(Path::new(value)).map_err(|e| wrong(e.to_string()))?,
            "dump" => self.dump = Some(value.into()),
            _ => return Err(wrong(format!("there is no such option; there are {KNOWN}"))),
        }
        Ok(())
    }

    /// How products are computed.
    pub fn tuning(&self) -> Arc<Tuning> {
        let mut tuning = self.tune.clone();
        if self.xf32 {
            tuning.allow_xf32();
        }
        if self.f16_sums {
            tuning.allow_f16_sums();
        }
        Arc::new(tuning)
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

/// What is on or off.
fn switch(value: &str) -> Result<bool, String> {
    match value.to_lowercase().as_str() {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(format!("`{value}` is neither 1 nor 0")),
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
    fn what_is_said_of_products_adds_up() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("tiles.csv");
        let line = "gfx942,f32,NN,1,49,2048,512,32,64,16,4";
        std::fs::write(&table, format!("winograd,never\n{line}\n")).unwrap();
        let key = |name: &str| format!("ep.barewaveexecutionprovider.{name}");
        let tune = table.to_str().unwrap();
        let o = parse(&[(&key("xf32"), "1"), (&key("f16_sums"), "1"), (&key("tune"), tune)]).unwrap();
        let text = o.tuning().to_string();
        assert!(
            ["xf32,allowed", "f16-sums,allowed", "winograd,never", line].iter().all(|l| text.contains(l)),
            "{text}"
        );
        assert_eq!(parse(&[(&key("xf32"), "0")]).unwrap().tuning().to_string(), Tuning::default().to_string());
        std::fs::write(&table, format!("{line}\nxf32,never\n")).unwrap();
        let e = parse(&[(&key("tune"), table.to_str().unwrap())]).unwrap_err().to_string();
        assert!(["`tune`", "tiles.csv: line 2", "'never'"].iter().all(|w| e.contains(w)), "{e}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (key, value, word) in [
            ("target", "gfx1", "gfx1"),
            ("strict", "perhaps", "perhaps"),
            ("xf32", "allowed", "`allowed` is neither 1 nor 0"),
            ("tune", "no/such/table.csv", "cannot read no/such/table.csv"),
            ("dtype", "f8", "none of f32, f16 and bf16"),
            ("devise", "auto", "there are device, target"),
        ] {
            let e = parse(&[(&format!("ep.barewaveexecutionprovider.{key}"), value)]).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains(key), "{e}");
        }
    }
}
