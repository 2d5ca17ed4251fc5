//! `barewave devices`: what there is to run on.

use super::Result;
use barewave_isa::Target;
use serde::Serialize;

/// Lists devices: emulated ones for every target.
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
    device: String,
    kind: &'static str,
    arch: &'static str,
    code_name: &'static str,
    wave_size: u32,
    lds_bytes: u32,
    memory_bytes: u64,
}

pub fn run(args: &Args) -> Result {
    let list: Vec<Device> = Target::all()
        .map(|t| Device {
            device: format!("emu:{}", t.info().name),
            kind: "emulated",
            arch: t.info().name,
            code_name: t.info().code_name,
            wave_size: t.info().wave_size,
            lds_bytes: t.info().lds_bytes,
            memory_bytes: crate::emu::DEFAULT_MEMORY,
        })
        .collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    println!("{:14} {:10} {:10} {:6} {:>8}  {:>10}", "device", "kind", "code name", "wave", "LDS", "memory");
    for d in list {
        let lds = format!("{} KiB", d.lds_bytes / 1024);
        let memory = format!("{} GiB", d.memory_bytes >> 30);
        println!("{:14} {:10} {:10} wave{:<2} {lds:>8}  {memory:>10}", d.device, d.kind, d.code_name, d.wave_size);
    }
    Ok(())
}
