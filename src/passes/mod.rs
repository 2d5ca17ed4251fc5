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
use std::io::Write;
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
    Waits(#[from] Box<waits::MissingWait>),
    #[error(transparent)]
    Hazards(#[from] Box<hazards::Hazard>),
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
    waits::verify(&f).map_err(Box::new)?;
    hazards::verify(&f).map_err(Box::new)?;
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

/// The passes that can be named in BAREWAVE_DUMP, in their order.
const PASSES: [&str; 6] = ["select", "simplify", "schedule", "regalloc", "waits", "hazards"];

/// What BAREWAVE_DUMP names; fails when that is no pass.
pub fn dumped() -> Result<&'static [String], &'static str> {
    static WANTED: OnceLock<Result<Vec<String>, String>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var_os("BAREWAVE_DUMP").unwrap_or_default();
        let words = text.to_string_lossy();
        let words = words.split(',').map(str::trim).filter(|w| !w.is_empty());
        let known = |w: &&str| PASSES.contains(w) || *w == "all";
        match words.clone().find(|w| !known(w)) {
            Some(w) => {
                Err(format!("BAREWAVE_DUMP={w}: there is no such pass; {} and all are known", PASSES.join(", ")))
            }
            None => Ok(words.map(str::to_string).collect()),
        }
    });
    wanted.as_deref().map_err(String::as_str)
}

fn dump(f: &Function, pass: &str) {
    debug_assert!(PASSES.contains(&pass));
    if dumped().unwrap_or_default().iter().any(|w| w == pass || w == "all") {
        // Somebody may have closed the other end.
        let _ = writeln!(std::io::stderr(), "; after {pass}\n{f}");
    }
}
