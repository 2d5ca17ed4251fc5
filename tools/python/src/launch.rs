//! Launches of any code object's kernels.

use crate::{RawArray, error, work};
use barewave::codeobj::{ElfFile, code_objects_for};
use barewave::emu::kernarg;
use barewave::runtime::{Device, DeviceError, LaunchShape, open};
use pyo3::prelude::*;

/// An argument of a kernel.
#[derive(FromPyObject)]
pub enum Argument {
    /// An array that the kernel gets the address of; the flag says that it is copied back.
    Array(RawArray, bool),
    /// The bytes of a value.
    Bytes(Vec<u8>),
    /// An integer, of the size that the kernel declares.
    Int(i128),
    /// A float, of the size that the kernel declares.
    Float(f64),
}

/// Device memory that is given back at the end.
struct Memory<'a> {
    device: &'a dyn Device,
    held: Vec<u64>,
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        for at in &self.held {
            let _ = self.device.free(*at);
        }
    }
}

/// The bytes of a number where a kernel takes `size`.
fn number(a: &Argument, size: usize, i: usize) -> PyResult<Vec<u8>> {
    match (a, size) {
        (Argument::Int(v), 1..=8) => {
            let bits = 8 * size as u32;
            if !(-(1i128 << (bits - 1))..1i128 << bits).contains(v) {
                return Err(error(format!("argument {i}: {v} does not fit {size} bytes")));
            }
            Ok(v.to_le_bytes()[..size].to_vec())
        }
        (Argument::Float(v), 4) => Ok((*v as f32).to_le_bytes().to_vec()),
        (Argument::Float(v), 8) => Ok(v.to_le_bytes().to_vec()),
        _ => Err(error(format!("argument {i} takes {size} bytes: give a numpy scalar of that size"))),
    }
}

/// Runs a kernel once. Arrays are copied to the device before and, where asked for, back after.
#[pyfunction]
#[pyo3(signature = (code, kernel, grid, block, arguments, device, dynamic_lds, strict))]
#[allow(clippy::too_many_arguments)]
pub fn launch(
    py: Python<'_>,
    code: Vec<u8>,
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: Vec<Argument>,
    device: String,
    dynamic_lds: u32,
    strict: bool,
) -> PyResult<Option<u64>> {
    work(py, || {
        let wanted = device.strip_prefix("emu:").and_then(|t| barewave::target(t).ok()).map(|t| t.info().name);
        let mut entries = code_objects_for(&code, wanted).map_err(error)?;
        let elf = entries.swap_remove(0).data;
        let file = ElfFile::parse(&elf).map_err(error)?;
        let names = || file.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = file.kernels.iter().find(|k| k.name == kernel);
        let found = found.ok_or_else(|| error(format!("no kernel '{kernel}'; there is {}", names())))?;
        let device = open(&device, file.target, strict).map_err(error)?.device;
        if let Some(code) = file.target.filter(|code| !device.target().runs_code_of(*code)) {
            let (code, device) = (code.info().name.to_string(), device.target().info().name.to_string());
            return Err(error(DeviceError::WrongTarget { code, device }));
        }
        let mut memory = Memory { device: &*device, held: Vec::new() };
        let sizes: Vec<usize> =
            kernarg::explicit(found).map_or_else(Vec::new, |args| args.map(|a| a.size as usize).collect());
        let mut values = Vec::new();
        let mut back = Vec::new();
        for (i, a) in arguments.iter().enumerate() {
            values.push(match a {
                Argument::Array((_, _, address, bytes), returns) => {
                    let at = device.alloc(*bytes as u64).map_err(error)?;
                    memory.held.push(at);
                    if *bytes > 0 {
                        // SAFETY: the Python half keeps the array alive during the call.
                        let data = unsafe { std::slice::from_raw_parts(*address as *const u8, *bytes) };
                        device.write(at, data).map_err(error)?;
                        back.extend(returns.then_some((at, *address, *bytes)));
                    }
                    at.to_le_bytes().to_vec()
                }
                Argument::Bytes(b) => b.clone(),
                a => number(a, sizes.get(i).copied().unwrap_or(0), i)?,
            });
        }
        let block_of_arguments = kernarg::pack(found, &values).map_err(error)?;
        kernarg::check(device.target(), found, grid, block, dynamic_lds).map_err(error)?;
        let module = device.load(&elf).map_err(error)?;
        let stream = device.create_stream().map_err(error)?;
        let done = (|| {
            let kernel = device.kernel(module, &kernel)?;
            device.launch(stream, kernel, LaunchShape { grid, block, dynamic_lds }, &block_of_arguments)?;
            let stats = device.synchronize(stream)?;
            for (at, address, bytes) in &back {
                // SAFETY: as above; the Python half says that the array may be written.
                let data = unsafe { std::slice::from_raw_parts_mut(*address as *mut u8, *bytes) };
                device.read(*at, data)?;
            }
            Ok(stats.first().map(|s| s.instructions))
        })();
        let _ = device.destroy_stream(stream);
        let _ = device.unload(module);
        done.map_err(|e: DeviceError| error(e))
    })
}
