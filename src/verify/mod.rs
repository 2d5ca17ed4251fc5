//! A static verifier of machine code: proofs over the bytes of a code object, of whatever compiler.
//!
//! Each kernel is decoded along the ways that control can take (`code`), and what the hardware demands of programs is
//! checked on the graph: waits for memory (`waits`), distances between instructions (`hazards`, `scalar`, `endless`, `branches`, `clauses`, `wave64`), what clauses are made of (`hard_clauses`), registers
//! that nobody has written (`defined`), descriptor and metadata against what the code uses (`resources`), ways that
//! leave the code, and code that nothing leads to.
//!
//! It reads the instruction tables and the code object, and shares no analysis with the compiler's passes or the emulator:
//! what it accepts was argued twice. Its findings are certain: where an analysis cannot know, it accepts, and says so in a
//! note when whole parts could not be followed.

mod branches;
mod clauses;
mod code;
mod defined;
mod endless;
mod hard_clauses;
mod hazards;
mod inst;
mod live;
mod regs;
mod report;
mod resources;
mod scalar;
mod solve;
mod values;
mod waits;
mod wave64;

pub use live::{Live, live};
pub use report::{Finding, Findings, Rule};

use crate::codeobj::{ElfFile, Family, KernelInfo};
use barewave_isa::{Target, op};
use code::{Astray, Code, Graph};
use rayon::prelude::*;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::{LazyLock, Mutex};

/// What the caller knows of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Launches add no LDS to what descriptors say: true of what barewave compiles.
    pub fixed_lds: bool,
    /// The instruction at this address is left out: what would be found if it were not there.
    pub without: Option<u64>,
}

/// What was found in one kernel, or in a function that no kernel calls.
#[derive(Clone, Debug)]
pub struct KernelReport {
    /// Its name.
    pub name: String,
    /// Instructions that were checked.
    pub instructions: usize,
    /// What is wrong, in order of address, and what could not be followed.
    pub findings: Findings,
}

/// Why a file could not be checked at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("it is for {processor}, which there are no instruction tables for")]
    NoTables { processor: String },
    #[error("it has no kernel `{name}`; it has: {list}")]
    NoKernel { name: String, list: String },
    #[error(
        "kernel `{0}`: its code, or that of the kernels before it, winds too much to be checked in reasonable time"
    )]
    TooLarge(String),
}

/// Most instructions that all analyses look at together, over and over where there are loops: some minutes' work.
/// Compilers' code takes a handful of looks at each instruction; code made for the purpose could take millions.
const MOST_STEPS: usize = 1 << 29;

/// The target whose tables serve for a file.
pub fn target_of(file: &ElfFile) -> Result<Target, Error> {
    let near = || Family::nearest_tables(file.mach).and_then(|n| Target::parse(n).ok());
    file.target.or_else(near).ok_or_else(|| Error::NoTables {
        processor: Family::processor(file.mach).unwrap_or("an unknown processor").to_owned(),
    })
}

/// A kernel by name.
fn find<'a>(file: &'a ElfFile, name: &str) -> Result<&'a KernelInfo, Error> {
    let list = || file.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>().join(", ");
    file.kernel(name).ok_or_else(|| Error::NoKernel { name: name.into(), list: list() })
}

/// Checks all kernels of a code object, or one. `bytes` is the whole file.
pub fn check(
    file: &ElfFile,
    bytes: &[u8],
    kernel: Option<&str>,
    options: &Options,
) -> Result<Vec<KernelReport>, Error> {
    let target = target_of(file)?;
    kernel.map(|name| find(file, name)).transpose()?;
    let kernels: Vec<&KernelInfo> = file.kernels.iter().filter(|k| kernel.is_none_or(|n| n == k.name)).collect();
    // each thread decodes for itself what its kernels share
    let part = kernels.len().div_ceil(rayon::current_num_threads()).max(1);
    let reports: Vec<Vec<KernelReport>> = kernels
        .par_chunks(part)
        .map(|part| {
            let mut codes: BTreeMap<bool, Code> = BTreeMap::new();
            let mut left = MOST_STEPS;
            let mut rules = hazards::Rules::new(target);
            let check = |k: &&KernelInfo| {
                let wave64 = !k.descriptor.wave32();
                let code =
                    codes.entry(wave64).or_insert_with(|| Code::new(file, bytes, target, wave64, options.without));
                code.clear();
                check_kernel(code, &mut rules, k, options, &mut left).ok_or_else(|| Error::TooLarge(k.name.clone()))
            };
            part.iter().map(check).collect()
        })
        .collect::<Result<_, Error>>()?;
    Ok(reports.into_iter().flatten().collect())
}

/// Why machine code is not loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refused {
    #[error(transparent)]
    Unreadable(#[from] crate::codeobj::Error),
    #[error(transparent)]
    Unchecked(#[from] Error),
    #[error("the machine code of kernel `{kernel}` breaks a rule of the hardware and is not loaded: {finding}{more}")]
    Found { kernel: String, finding: Box<Finding>, more: String },
}

/// Admits machine code of barewave's own to a device: nothing was found in it. What was admitted once is not checked again.
pub fn admit(bytes: &[u8]) -> Result<(), Refused> {
    static ADMITTED: LazyLock<(RandomState, Mutex<HashSet<u64>>)> = LazyLock::new(Default::default);
    let (hasher, admitted) = &*ADMITTED;
    let file = ElfFile::parse(bytes)?;
    // weights and the like are not loaded as code
    let mut hash = hasher.build_hasher();
    hash.write_u32(file.e_flags);
    for range in file.segments.iter().map(|s| &s.file).chain(&file.metadata) {
        hash.write_usize(range.len());
        hash.write(bytes.get(range.clone()).unwrap_or(&[]));
    }
    let hash = hash.finish();
    if admitted.lock().is_ok_and(|a| a.contains(&hash)) {
        return Ok(());
    }
    let reports = check(&file, bytes, None, &Options { fixed_lds: true, without: None })?;
    let count: usize = reports.iter().map(|r| r.findings.list.len()).sum();
    if let Some((r, f)) = reports.iter().find_map(|r| Some((r, r.findings.list.first()?))) {
        let more = if count > 1 { format!(" (and {} more findings)", count - 1) } else { String::new() };
        return Err(Refused::Found { kernel: r.name.clone(), finding: Box::new(f.clone()), more });
    }
    if let Ok(mut admitted) = admitted.lock() {
        admitted.insert(hash);
    }
    Ok(())
}

fn check_kernel(
    code: &mut Code,
    rules: &mut hazards::Rules,
    k: &KernelInfo,
    options: &Options,
    budget: &mut usize,
) -> Option<KernelReport> {
    let g = &Graph::new(code, k.entry, budget)?;
    let mut out = Findings::default();
    strays(code, g, &mut out);
    let lanes = if code.wave64 { 64 } else { 32 };
    let one_wave = k.meta.as_ref().is_some_and(|m| (1..=lanes).contains(&m.max_flat_workgroup_size));
    waits::check(code, g, one_wave, budget, &mut out)?;
    hazards::check(code, g, rules, budget, &mut out)?;
    scalar::check(code, g, budget, &mut out)?;
    endless::check(code, g, budget, &mut out)?;
    branches::check(code, g, budget, &mut out)?;
    clauses::check(code, g, &mut out);
    hard_clauses::check(code, g, &mut out);
    wave64::check(code, g, budget, &mut out)?;
    defined::check(code, g, &k.descriptor, budget, &mut out)?;
    let kernel = resources::Kernel { info: k, fixed_lds: options.fixed_lds };
    resources::check(code, g, &kernel, budget, &mut out)?;
    unreachable(code, g, k, &mut out);
    for &i in &g.unresolved {
        let l = &code.lines[i as usize];
        out.notes.push(format!("{:#x} `{}`: where it leads is not known, so that was not checked", l.at, l.raw));
    }
    out.list.sort_by_key(|f| f.line.map_or(0, |l| l.0));
    Some(KernelReport { name: k.name.clone(), instructions: g.order.len(), findings: out })
}

/// Ways that lead nowhere.
fn strays(code: &Code, g: &Graph, out: &mut Findings) {
    for s in &g.strays {
        let line = s.line.map(|i| &code.lines[i as usize]);
        if s.falls && line.is_some_and(code::may_end) {
            continue;
        }
        let there = match s.why {
            Astray::Outside => "which is outside of the code",
            Astray::Odd => "which is no multiple of 4",
            Astray::Illegal => "where the bits are no instruction",
            Astray::Inside => "which is inside of an instruction",
        };
        let way = match (line, s.falls) {
            (None, _) => "the kernel begins",
            (_, true) => "the program goes on",
            _ => "it leads",
        };
        out.add(Finding {
            rule: Rule::Branch,
            line: line.map(|l| (l.at, l.raw)),
            what: format!("{way} at {:#x}, {there}", s.to),
            fix: if s.falls { "end it with s_endpgm or a jump" } else { "let it lead to an instruction" }.into(),
        });
    }
}

/// Instructions between a kernel's first and last that nothing leads to.
fn unreachable(code: &Code, g: &Graph, k: &KernelInfo, out: &mut Findings) {
    let end = match k.code_size {
        0 => return,
        n => k.entry.saturating_add(n),
    };
    // what is called or jumped to by way of registers may lead anywhere
    if !g.unresolved.is_empty() {
        return;
    }
    let mut at = k.entry;
    for &i in &g.order {
        let l = &code.lines[i as usize];
        if l.at < k.entry || l.at >= end {
            continue;
        }
        gap(code, at, l.at, out);
        at = at.max(l.end());
    }
    gap(code, at, end, out);
}

/// Reports what lies in a gap, unless it is padding.
fn gap(code: &Code, from: u64, to: u64, out: &mut Findings) {
    let mut at = from;
    while at < to {
        match code.peek(at) {
            // compilers put these between functions
            Some(raw) if !matches!(raw.op(), op::S_NOP | op::S_CODE_END) => {
                let bytes = to - at;
                out.add(Finding {
                    rule: Rule::Unreachable,
                    line: Some((at, raw)),
                    what: format!("nothing leads to this and what follows ({bytes} bytes)"),
                    fix: "remove it, or let something lead to it".into(),
                });
                return;
            }
            Some(raw) => at += raw.len() as u64,
            // a symbol may claim more than the file holds
            None if !code.holds(at) => return,
            None => at += 4,
        }
    }
}
