//! Machine code as text and back, devices, instructions.

use crate::{error, work};
use barewave::codeobj::{Abi, ElfFile, Listing, code_objects_for, link_assembly, list};
use barewave::runtime::Device as _;
use barewave::runtime::hip::{HipDevice, Library};
use barewave_isa::{Mode, Op, Target};
use pyo3::prelude::*;

/// Assembles a source text into a code object.
#[pyfunction]
pub fn assemble(py: Python<'_>, text: String, target: String) -> PyResult<Vec<u8>> {
    work(py, || {
        let target = barewave::target(&target).map_err(error)?;
        let mode = Mode::of(target);
        let assembly = barewave_isa::assemble(target, mode, &text)
            .map_err(|errors| error(errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n")))?;
        link_assembly(target, mode, &assembly, Abi::V5).map_err(error)
    })
}

/// Disassembles a code object or offload bundle.
#[pyfunction]
pub fn disassemble(py: Python<'_>, code: Vec<u8>, target: Option<String>, kernel: Option<String>) -> PyResult<String> {
    work(py, || {
        let target = target.as_deref().map(barewave::target).transpose().map_err(error)?;
        let entries = code_objects_for(&code, target.map(|t| t.info().name)).map_err(error)?;
        let mut out = Vec::new();
        let listing = Listing { kernel, ..Listing::default() };
        for e in &entries {
            let file = ElfFile::parse(&e.data).map_err(error)?;
            let tables = file.target.or(target);
            let tables =
                tables.ok_or_else(|| error(format!("no tables for machine {:#x}: name a target", file.mach)))?;
            list(&file, &e.data, tables, &listing, &mut out).map_err(error)?;
        }
        String::from_utf8(out).map_err(error)
    })
}

/// Names and figures of a device: what `device=` takes, kind, name, architecture, compute units, bytes of memory.
type Known = (String, &'static str, String, String, u32, u64);

/// What there is to run on.
#[pyfunction]
pub fn devices(py: Python<'_>) -> PyResult<Vec<Known>> {
    work(py, || {
        let mut all = Vec::new();
        if let Ok(library) = Library::get() {
            let kind = if library.is_emulated() { "emulated HIP" } else { "HIP" };
            for number in 0..library.device_count().unwrap_or(0) {
                let Ok(d) = HipDevice::open(library.clone(), number) else { continue };
                let info = d.info();
                let units = info.compute_units.unwrap_or(info.target.info().cus);
                all.push((
                    format!("hip:{number}"),
                    kind,
                    info.name.clone(),
                    info.id.to_string(),
                    units,
                    info.memory_bytes,
                ));
            }
        }
        for t in Target::all().map(Target::info).filter(|t| t.generic_version == 0) {
            let name = format!("emulated {}", t.name);
            all.push((
                format!("emu:{}", t.name),
                "emulated",
                name,
                t.name.into(),
                t.cus,
                barewave::emu::DEFAULT_MEMORY,
            ));
        }
        Ok(all)
    })
}

/// The page of an instruction, on one target or on all.
#[pyfunction]
pub fn isa(instruction: String, target: Option<String>) -> PyResult<String> {
    let target = target.as_deref().map(barewave::target).transpose().map_err(error)?;
    let name = instruction.to_lowercase();
    let op = Op::by_name(&name).or_else(|| barewave_isa::find(&name).into_iter().next());
    let op = op.ok_or_else(|| error(format!("no instruction `{instruction}`")))?;
    Ok(barewave_isa::page(op, target))
}
