//! From machine IR to machine code: the list of passes.
//!
//! `BAREWAVE_DUMP=<pass>[,<pass>...]` prints every kernel after the named passes (`all` for each), to stderr.

pub mod check;
pub mod emit;
pub mod hazards;
pub mod listing;
pub mod regalloc;
pub mod schedule;
pub mod select;
mod selectable;
pub mod simplify;
pub mod waits;

pub use selectable::selectable;

use crate::mir::{Function, VerifyError, verify};
use std::sync::OnceLock;

/// Machine code of a kernel and what its descriptor has to say.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The allocated function, as emitted.
    pub function: Function,
    /// Bytes and block offsets.
    pub emitted: emit::Emitted,
    /// Registers in use.
    pub usage: regalloc::Usage,
}

/// Why a kernel could not be compiled. Every variant but [`CompileError::Registers`] is a defect of barewave.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CompileError {
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Select(#[from] select::SelectError),
    #[error(transparent)]
    Registers(#[from] regalloc::OutOfRegisters),
    #[error(transparent)]
    Check(#[from] Box<check::CheckError>),
    #[error(transparent)]
    Emit(#[from] emit::EmitError),
}

/// Compiles one kernel: the pipeline in full.
pub fn compile(mut f: Function) -> Result<Machine, CompileError> {
    let vgprs = vgpr_budget(&f);
    verify(&f, "build")?;
    select::select(&mut f)?;
    after(&f, "select")?;
    simplify::simplify(&mut f);
    after(&f, "simplify")?;
    schedule::schedule(&mut f, vgprs * 3 / 4);
    after(&f, "schedule")?;
    let allocation = regalloc::allocate(&mut f, vgprs)?;
    let before = f.clone();
    regalloc::rewrite(&mut f, &allocation);
    check::check(&before, &f, &regalloc::fixed_places(&before)).map_err(Box::new)?;
    regalloc::remove_identities(&mut f);
    dump(&f, "regalloc");
    waits::waits(&mut f);
    dump(&f, "waits");
    hazards::hazards(&mut f);
    dump(&f, "hazards");
    let emitted = emit::emit(&f)?;
    Ok(Machine { function: f, emitted, usage: allocation.usage })
}

/// VGPRs a wave may use so that its whole workgroup fits on a compute unit.
fn vgpr_budget(f: &Function) -> u32 {
    let t = f.target.info();
    let waves = f.workgroup_size.div_ceil(t.wave_size);
    regalloc::vgpr_limit(f.target, waves.div_ceil(t.simds))
}

fn after(f: &Function, pass: &'static str) -> Result<(), CompileError> {
    dump(f, pass);
    Ok(verify(f, pass)?)
}

fn dump(f: &Function, pass: &str) {
    static WANTED: OnceLock<String> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var("BAREWAVE_DUMP").unwrap_or_default());
    if !wanted.is_empty() && wanted.split(',').any(|w| w == pass || w == "all") {
        eprintln!("; after {pass}\n{f}");
    }
}
