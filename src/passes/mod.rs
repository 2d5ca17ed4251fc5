//! From machine IR to machine code: the list of passes.
//!
//! `BAREWAVE_DUMP=<pass>[,<pass>...]` prints every kernel after the named passes (`all` for each), to stderr. The verifier of
//! machine IR, which sees what is built and what registers are allocated for, then runs behind each of them.

mod across_branch;
mod alternate;
pub mod check;
mod clauses;
pub mod constraints;
pub mod delays;
mod dependences;
pub mod emit;
mod forward;
pub mod hard_clauses;
pub mod hazards;
mod in_place;
mod late_sums;
pub mod listing;
pub mod pack;
pub mod pair;
pub mod pair_neighbours;
pub mod pipeline;
pub mod regalloc;
mod repeated;
pub mod schedule;
pub mod select;
mod selectable;
pub mod simplify;
mod still_read;
pub mod waits;

pub use selectable::selectable;
pub(crate) use still_read::{ACCESSES_READ, SCALARS_WRITTEN};

use crate::mir::{Function, VerifyError, verify, verify_form};
use barewave_isa::{Occupancy, Resources, Unheld};
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

impl Machine {
    /// How many of it fit on a compute unit.
    pub fn occupancy(&self) -> Occupancy {
        self.function.target.occupancy(&self.usage.resources(&self.function))
    }
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
    Pipeline(#[from] pipeline::Impossible),
    #[error(transparent)]
    Constraints(#[from] constraints::Broken),
    #[error(transparent)]
    Registers(#[from] regalloc::OutOfRegisters),
    #[error(transparent)]
    Check(#[from] Box<check::CheckError>),
    #[error(transparent)]
    Pair(#[from] pair::Inseparable),
    #[error(transparent)]
    Emit(#[from] emit::EmitError),
    #[error("no compute unit can hold {kernel}: {why}")]
    Unheld { kernel: String, why: Unheld },
}

/// Compiles one kernel: the pipeline in full.
pub fn compile(mut f: Function) -> Result<Machine, CompileError> {
    let most = vector_budget(&f);
    let (reach, addressable) = (waves_within_reach(&f), f.target.info().named_vgprs());
    // What is read before it is written is found behind the passes that move instructions.
    verify_form(&f, "build")?;
    timed!("select", select::select(&mut f))?;
    after(&f, "select")?;
    timed!("simplify", simplify::simplify(&mut f));
    after(&f, "simplify")?;
    timed!("pack", pack::pack(&mut f));
    after(&f, "pack")?;
    timed!("pair_neighbours", pair_neighbours::pair_neighbours(&mut f));
    after(&f, "pair_neighbours")?;
    timed!("pipeline", pipeline::pipeline(&mut f))?;
    after(&f, "pipeline")?;
    let pinned = constraints::Pinned::of(&f);
    let wanted = timed!("schedule", schedule::schedule(&mut f, most.min(addressable), reach))?;
    dump(&f, "schedule");
    let live = verify(&f, "schedule")?;
    let before = f.clone();
    let allocation = timed!("regalloc", regalloc::allocate(&mut f, live, regalloc::Goal { wanted, most }))?;
    regalloc::rewrite(&mut f, &allocation);
    timed!("check", check::check(&before, &f)).map_err(Box::new)?;
    constraints::check(&f, "regalloc")?;
    pinned.check(&f, "regalloc")?;
    regalloc::remove_identities(&mut f);
    dump(&f, "regalloc");
    timed!("pair", pair::pair(&mut f))?;
    dump(&f, "pair");
    timed!("waits", waits::waits(&mut f));
    dump(&f, "waits");
    timed!("hazards", hazards::hazards(&mut f));
    dump(&f, "hazards");
    timed!("hard_clauses", hard_clauses::hard_clauses(&mut f));
    dump(&f, "hard_clauses");
    let waves = f.target.occupancy(&allocation.usage.resources(&f)).waves_per_simd;
    timed!("delays", delays::delays(&mut f, waves));
    dump(&f, "delays");
    let emitted = timed!("emit", emit::emit(&mut f))?;
    let machine = Machine { function: f, emitted, usage: allocation.usage };
    match machine.function.target.held(&machine.usage.resources(&machine.function)) {
        Ok(_) => Ok(machine),
        Err(why) => Err(CompileError::Unheld { kernel: machine.function.name, why }),
    }
}

/// Vector registers a wave may use so that its whole workgroup fits on a compute unit.
fn vector_budget(f: &Function) -> u32 {
    let t = f.target.info();
    let waves = f.workgroup_size.div_ceil(t.wave_size);
    f.target.most_vgprs(t.wave_size, waves.div_ceil(t.simds))
}

/// Waves per SIMD that a function reaches if registers do not limit it.
fn waves_within_reach(f: &Function) -> u32 {
    let wave_size = f.target.info().wave_size;
    let (workgroup_size, lds_bytes) = (f.workgroup_size, f.lds_bytes);
    let light = Resources { wave_size, workgroup_size, vgprs: 1, agprs: 0, sgprs: 0, lds_bytes, wgp_mode: false };
    f.target.occupancy(&light).waves_per_simd.max(1)
}

/// What a pass left is verified where somebody looks at passes, which names the one that is wrong; what the last of them left always is.
fn after(f: &Function, pass: &'static str) -> Result<(), CompileError> {
    dump(f, pass);
    if dumped().is_ok_and(|some| !some.is_empty()) {
        verify(f, pass)?;
    }
    Ok(())
}

/// The passes that can be named in BAREWAVE_DUMP, in their order.
const PASSES: [&str; 12] = [
    "select",
    "simplify",
    "pack",
    "pair_neighbours",
    "pipeline",
    "schedule",
    "regalloc",
    "pair",
    "waits",
    "hazards",
    "hard_clauses",
    "delays",
];

/// BAREWAVE_DUMP names something that is no pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("BAREWAVE_DUMP={0}: there is no such pass; {list} and all are known", list = PASSES.join(", "))]
pub struct UnknownPass(pub String);

/// What BAREWAVE_DUMP names; fails when that is no pass.
pub fn dumped() -> Result<&'static [String], UnknownPass> {
    static WANTED: OnceLock<Result<Vec<String>, UnknownPass>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var_os("BAREWAVE_DUMP").unwrap_or_default();
        let words = text.to_string_lossy();
        let words = words.split(',').map(str::trim).filter(|w| !w.is_empty());
        let known = |w: &&str| PASSES.contains(w) || *w == "all";
        match words.clone().find(|w| !known(w)) {
            Some(w) => Err(UnknownPass(w.into())),
            None => Ok(words.map(str::to_string).collect()),
        }
    });
    wanted.as_deref().map_err(Clone::clone)
}

fn dump(f: &Function, pass: &str) {
    assert!(PASSES.contains(&pass), "{pass} is not in the list of passes");
    if dumped().unwrap_or_default().iter().any(|w| w == pass || w == "all") {
        // Somebody may have closed the other end.
        let _ = writeln!(std::io::stderr(), "; after {pass}\n{f}");
    }
}
