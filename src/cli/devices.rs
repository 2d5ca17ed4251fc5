//! `barewave devices`: what there is to run on.

use super::Result;
use barewave::runtime::hip::{HipDevice, HipError, Library};
use barewave::runtime::{Device as _, DeviceError, DeviceInfo};
use barewave_isa::Target;
use serde::Serialize;
use std::sync::Arc;

/// Lists devices: GPUs that the HIP driver finds, and emulated ones for every target.
///
/// Example: barewave devices --json
#[derive(clap::Args)]
pub struct Args {
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Device {
    /// What `--device` takes.
    device: String,
    kind: &'static str,
    name: String,
    /// Architecture with the features that the device reports.
    arch: String,
    code_name: &'static str,
    compute_units: Option<u32>,
    wave_size: u32,
    lds_bytes: u64,
    memory_bytes: u64,
    driver_version: Option<String>,
    driver_path: Option<String>,
}

fn gpu(number: u32, kind: &'static str, info: &DeviceInfo) -> Device {
    let (version, path) = info.driver.clone().unzip();
    Device {
        device: format!("hip:{number}"),
        kind,
        name: info.name.clone(),
        arch: info.id.to_string(),
        code_name: info.target.info().code_name,
        compute_units: info.compute_units,
        wave_size: info.wave_size,
        lds_bytes: info.lds_bytes,
        memory_bytes: info.memory_bytes,
        driver_version: version,
        driver_path: path.map(|p| p.display().to_string()),
    }
}

fn emulated(target: Target) -> Device {
    let t = target.info();
    Device {
        device: format!("emu:{}", t.name),
        kind: "emulated",
        name: format!("emulated {}", t.name),
        arch: t.name.to_string(),
        code_name: t.code_name,
        compute_units: None,
        wave_size: t.wave_size,
        lds_bytes: t.lds_bytes.into(),
        memory_bytes: barewave::emu::DEFAULT_MEMORY,
        driver_version: None,
        driver_path: None,
    }
}

/// The devices of the HIP driver; what cannot be used is told and passed over.
fn gpus() -> std::result::Result<Vec<Device>, HipError> {
    let library: Arc<Library> = Library::get()?;
    let kind = if library.is_emulated() { "emulated HIP" } else { "HIP" };
    let mut list = Vec::new();
    for number in 0..library.device_count()? {
        match HipDevice::open(library.clone(), number) {
            Ok(d) => list.push(gpu(number, kind, d.info())),
            Err(DeviceError::Hip(e)) => eprintln!("note: {e}"),
            Err(e) => eprintln!("note: HIP device {number}: {e}"),
        }
    }
    Ok(list)
}

pub fn run(args: &Args) -> Result {
    let mut list = gpus().unwrap_or_else(|e| {
        eprintln!("note: {e}");
        Vec::new()
    });
    // no hardware is a generic target
    list.extend(Target::all().filter(|t| t.info().generic_version == 0).map(emulated));
    if args.json {
        println!("{}", crate::terminal::json(&serde_json::to_string_pretty(&list)?));
        return Ok(());
    }
    if let Some(d) = list.iter().find(|d| d.driver_path.is_some()) {
        let text = |t: &Option<String>| t.clone().unwrap_or_default();
        println!("HIP driver {}, {}\n", text(&d.driver_version), text(&d.driver_path));
    }
    println!(
        "{:14} {:12} {:10} {:>4} {:6} {:>8}  {:>10}  name",
        "device", "kind", "code name", "CUs", "wave", "LDS", "memory"
    );
    for d in list {
        let lds = format!("{} KiB", d.lds_bytes / 1024);
        let memory = format!("{} GiB", d.memory_bytes >> 30);
        let units = d.compute_units.map_or("-".to_string(), |n| n.to_string());
        let name = if d.driver_path.is_some() { format!("{} ({})", d.name, d.arch) } else { d.name };
        println!(
            "{:14} {:12} {:10} {units:>4} wave{:<2} {lds:>8}  {memory:>10}  {name}",
            d.device, d.kind, d.code_name, d.wave_size
        );
    }
    Ok(())
}
