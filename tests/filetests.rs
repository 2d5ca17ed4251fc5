//! Pass tests as files: many functions of machine IR in a file, and below each what comes out of it.
//!
//! ```text
//! test waits                                what is done with the functions, and options: `vgprs=8`
//!
//! kernel @one_load target TARGET workgroup 64 lds 0 kernarg 16 scratch 0
//! ; comments
//! ; targets gfx906 gfx942 gfx1100           TARGET stands for each of them
//! preload
//! block entry
//!   ...
//! ;> gfx906 gfx942                          what these targets give
//! ;| block entry
//! ;|   ...
//! ```
//!
//! `select`, `simplify`, `pack`, `pair_neighbours`, `pipeline`, `schedule`, `regalloc`, `pair`, `waits`, `hazards` and `emit` run that pass and give its result. What waits
//! and hazards make is also emitted and must pass the static verifier. `compile` runs all passes and gives assembly; `run` runs
//! the kernel too, strictly, on one workgroup: the arguments are an input and an output of 256 words each, and the result is what
//! the output begins with. `error` gives the message with which compilation fails. `check` emits the function as it
//! is and gives what the static verifier finds.
//!
//! `BAREWAVE_BLESS=1 cargo test --test filetests` writes the results into the files.

use barewave::codeobj::{self, CodeObject, ElfFile};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::mir::{self, Function};
use barewave::passes::{
    self, Machine, check, delays, emit, hard_clauses, hazards, listing, pack, pair, pair_neighbours, pipeline,
    regalloc, schedule, select, simplify, waits,
};
use barewave::verify::{self, Finding, Rule};
use barewave_isa::Target;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

/// What a file is a test of.
#[derive(Clone)]
struct Test {
    what: String,
    vgprs: u32,
}

/// A function of a file.
#[derive(Clone)]
struct Case {
    name: String,
    source: String,
    targets: Vec<String>,
    expected: Vec<(String, String)>,
}

fn parse_file(path: &Path, text: &str) -> Result<(Test, Vec<Case>), String> {
    let fail = |what: String| format!("{}: {what}", path.display());
    let mut lines = text.lines();
    let head = lines.next().and_then(|l| l.strip_prefix("test ")).ok_or_else(|| fail("no line `test PASS`".into()))?;
    let mut words = head.split_whitespace();
    let mut test = Test { what: words.next().unwrap_or("").into(), vgprs: 8 };
    for w in words {
        match w.split_once('=') {
            Some(("vgprs", n)) => test.vgprs = n.parse().map_err(|_| fail(format!("option {w}")))?,
            _ => return Err(fail(format!("no option {w}"))),
        }
    }
    let mut cases: Vec<Case> = Vec::new();
    for line in lines {
        if let Some(rest) = line.strip_prefix("kernel @") {
            let name = rest.split_whitespace().next().unwrap_or("").to_owned();
            cases.push(Case { name, source: String::new(), targets: Vec::new(), expected: Vec::new() });
        }
        let Some(case) = cases.last_mut() else {
            if line.trim().is_empty() || line.starts_with(';') {
                continue;
            }
            return Err(fail(format!("`{line}` stands before the first function")));
        };
        if let Some(targets) = line.strip_prefix(";> ") {
            case.expected.push((targets.to_owned(), String::new()));
        } else if let Some(text) = line.strip_prefix(";|") {
            let last = case.expected.last_mut().ok_or_else(|| fail(format!("`{line}` without `;> TARGET`")))?;
            last.1 += text.strip_prefix(' ').unwrap_or(text);
            last.1.push('\n');
        } else {
            if let Some(list) = line.strip_prefix("; targets ") {
                case.targets.extend(list.split_whitespace().map(str::to_owned));
            }
            case.source += line;
            case.source.push('\n');
        }
    }
    match cases.iter().find(|c| c.targets.is_empty()) {
        Some(c) => Err(fail(format!("{} has no line `; targets ...`", c.name))),
        None => Ok((test, cases)),
    }
}

/// Kernel and file around emitted code; registers for anything that the function can name.
fn object(m: &Machine) -> Vec<u8> {
    let f = &m.function;
    let t = f.target.info();
    let mut k = codeobj::Kernel::new(f.target, &f.name, m.emitted.code.clone());
    (k.vgprs, k.sgprs) = (128, t.max_sgprs - 8);
    k.agprs = if t.max_agprs > 0 { 128 } else { 0 };
    k.lds_bytes = f.lds_bytes;
    k.scratch_bytes = f.scratch_bytes;
    k.kernarg_size = f.kernarg_bytes;
    k.workgroup_ids = f.preloads.workgroup_id.map(|v| v.is_some());
    k.max_flat_workgroup_size = f.workgroup_size;
    k.reqd_workgroup_size = Some([f.workgroup_size, 1, 1]);
    k.args = (0..f.kernarg_bytes / 8).map(|i| codeobj::Arg::buffer(format!("arg{i}"), i * 8)).collect();
    let object = CodeObject { target: f.target, abi: codeobj::Abi::V5, kernels: vec![k], sections: Vec::new() };
    object.to_bytes().unwrap()
}

fn emitted(f: &Function) -> Result<Machine, String> {
    let mut function = f.clone();
    let emitted = emit::emit(&mut function).map_err(|e| format!("error: {e}\n"))?;
    Ok(Machine { function, emitted, usage: regalloc::Usage::default() })
}

fn findings(f: &Function) -> Result<Vec<Finding>, String> {
    let elf = object(&emitted(f)?);
    let file = ElfFile::parse(&elf).map_err(|e| e.to_string())?;
    let reports = verify::check(&file, &elf, None, &verify::Options::default()).map_err(|e| e.to_string())?;
    Ok(reports.into_iter().flat_map(|r| r.findings.list).collect())
}

/// The function must need nothing more.
fn nothing_missing(f: &Function, rule: Rule) -> Result<(), String> {
    match findings(f)?.iter().find(|x| x.rule == rule) {
        Some(x) => Err(format!("error: the static verifier found: {x}\n")),
        None => Ok(()),
    }
}

/// Runs a kernel on one workgroup and gives the first words of its output.
fn run(f: Function) -> Result<String, String> {
    let target = f.target;
    let (name, threads) = (f.name.clone(), f.workgroup_size);
    let m = passes::compile(f).map_err(|e| format!("error: {e}\n"))?;
    let elf = object(&m);
    let run = || -> Result<Vec<u32>, Box<dyn std::error::Error>> {
        verify::admit(&elf)?;
        let device = EmuDevice::with_memory(target, 1 << 24)?;
        let module = device.load(&elf)?;
        let input: Vec<u8> = (0..256u32).flat_map(|i| (i * i + 3 * i).to_le_bytes()).collect();
        let (a, o) = (device.alloc(1024)?, device.alloc(1024)?);
        device.write(a, &input)?;
        device.write(o, &[0; 1024])?;
        let args: Vec<u8> = [a, o].iter().flat_map(|p| p.to_le_bytes()).collect();
        let options = LaunchOptions { strict: true, max_instructions: 1 << 20, ..LaunchOptions::default() };
        device.launch(&module.kernel(&name)?, [1, 1, 1], [threads, 1, 1], &args, &options)?;
        let mut out = vec![0; 1024];
        device.read(o, &mut out)?;
        Ok(out.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect())
    };
    let out = run().map_err(|e| format!("error: {e}\n"))?;
    let words: Vec<String> = out[..12].iter().map(|w| w.to_string()).collect();
    let sum = out.iter().fold(0u32, |s, w| s.rotate_left(5) ^ w);
    Ok(format!("{} ... {sum:08x}\n", words.join(" ")))
}

/// Does what the file says and gives the result as text.
fn result(test: &Test, mut f: Function) -> Result<String, String> {
    let err = |e: &dyn std::fmt::Display| format!("error: {e}\n");
    match test.what.as_str() {
        "select" => select::select(&mut f).map_err(|e| err(&e))?,
        "simplify" => simplify::simplify(&mut f),
        "pack" => pack::pack(&mut f),
        "pair_neighbours" => pair_neighbours::pair_neighbours(&mut f),
        "pipeline" => pipeline::pipeline(&mut f).map_err(|e| err(&e))?,
        "schedule" => {
            let reach = f.target.info().max_waves;
            schedule::schedule(&mut f, test.vgprs, reach).map_err(|e| format!("error: {e}\n"))?;
        }
        "regalloc" => {
            let before = f.clone();
            let goal = regalloc::Goal { wanted: test.vgprs, most: test.vgprs };
            let live = mir::liveness::Liveness::of(&f);
            let a = regalloc::allocate(&mut f, live, goal).map_err(|e| err(&e))?;
            regalloc::rewrite(&mut f, &a);
            check::check(&before, &f).map_err(|e| err(&e))?;
            regalloc::remove_identities(&mut f);
            return Ok(format!("; {:?}\n{}", a.usage, body(&f)));
        }
        "pair" => pair::pair(&mut f).map_err(|e| err(&e))?,
        "waits" => {
            waits::waits(&mut f);
            nothing_missing(&f, Rule::Wait)?;
        }
        "hazards" => {
            hazards::hazards(&mut f);
            nothing_missing(&f, Rule::Hazard)?;
        }
        "hard_clauses" => {
            hard_clauses::hard_clauses(&mut f);
            nothing_missing(&f, Rule::Clause)?;
        }
        "delays" => {
            let waves = f.target.info().max_waves;
            delays::delays(&mut f, waves);
        }
        "emit" => {
            let m = emitted(&f)?;
            let code = &m.emitted.code;
            let bytes: Vec<String> =
                code.chunks(4).map(|w| format!("{:08x}", u32::from_le_bytes(w.try_into().unwrap()))).collect();
            return Ok(format!("{}\n{}", bytes.join(" "), listing::listing(&m)));
        }
        "check" => {
            let list: Vec<String> = findings(&f)?.iter().map(|x| format!("{x}\n")).collect();
            return Ok(if list.is_empty() { "nothing found\n".into() } else { list.concat() });
        }
        "compile" => {
            let m = passes::compile(f).map_err(|e| err(&e))?;
            verify::admit(&object(&m)).map_err(|e| err(&e))?;
            return Ok(listing::listing(&m));
        }
        "run" => return run(f),
        "error" => {
            return match passes::compile(f) {
                Ok(_) => Err("it compiles\n".into()),
                Err(e) => Ok(format!("{e}\n")),
            };
        }
        other => panic!("there is no test {other}"),
    }
    Ok(body(&f))
}

/// The blocks of a function, without its header.
fn body(f: &Function) -> String {
    let text = f.to_string();
    let start = text.find("block ").unwrap_or(0);
    text[start..].to_string()
}

/// Results by target, equal ones together.
fn results(test: &Test, case: &Case) -> Result<Vec<(String, String)>, String> {
    let mut out: Vec<(String, String)> = Vec::new();
    for target in &case.targets {
        Target::parse(target).map_err(|e| e.to_string())?;
        let source = case.source.replace("TARGET", target);
        let text = match mir::parse(&source) {
            // the text form comes back, and so do its errors
            Ok(f) => {
                let again = mir::parse(&f.to_string()).map_err(|e| format!("its text does not parse: {e}"))?;
                if f != again {
                    return Err("its text parses to something else".into());
                }
                result(test, f).unwrap_or_else(|e| e)
            }
            Err(e) => format!("{e}\n"),
        };
        let text: String = text.trim_end().lines().map(|l| format!("{}\n", l.trim_end())).collect();
        match out.iter_mut().find(|(_, t)| *t == text) {
            Some((names, _)) => {
                names.push(' ');
                names.push_str(target);
            }
            None => out.push((target.clone(), text)),
        }
    }
    Ok(out)
}

/// The function with its results, as it stands in the file.
fn written(case: &Case, results: &[(String, String)]) -> String {
    let mut out = format!("{}\n", case.source.trim_end());
    for (targets, text) in results {
        out += &format!(";> {targets}\n");
        for line in text.lines() {
            out += format!(";| {line}").trim_end();
            out.push('\n');
        }
    }
    out
}

fn verdict(test: &Test, case: &Case) -> Result<(), Failed> {
    let got = written(case, &results(test, case)?);
    let expected = written(case, &case.expected);
    if got == expected {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&expected, &got);
    Err(diff.unified_diff().header("the file", "what came out").to_string().into())
}

fn bless(path: &Path, test: &Test, head: &str, cases: &[Case]) -> Result<(), String> {
    let mut out = format!("{head}\n");
    for case in cases {
        let results = results(test, case).map_err(|e| format!("{} {}: {e}", path.display(), case.name))?;
        out += &format!("\n{}", written(case, &results));
    }
    std::fs::write(path, out).map_err(|e| e.to_string())
}

fn main() {
    let args = Arguments::from_args();
    let blesses = std::env::var_os("BAREWAVE_BLESS").is_some();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let list = |p: &Path| {
        let mut list: Vec<PathBuf> = std::fs::read_dir(p).unwrap().map(|e| e.unwrap().path()).collect();
        list.sort();
        list
    };
    let mut trials = Vec::new();
    for path in list(&root).iter().flat_map(|dir| list(dir)) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (test, cases) = parse_file(&path, &text).unwrap_or_else(|e| panic!("{e}"));
        if blesses {
            bless(&path, &test, text.lines().next().unwrap_or(""), &cases).unwrap_or_else(|e| panic!("{e}"));
            continue;
        }
        let file = path.strip_prefix(&root).unwrap_or(&path).with_extension("").display().to_string();
        for case in cases {
            let test = test.clone();
            let name = format!("{file}/{}", case.name);
            trials.push(Trial::test(name, move || verdict(&test, &case)));
        }
    }
    let count = trials.len();
    trials.push(Trial::test("enough functions", move || {
        if blesses || count >= 150 { Ok(()) } else { Err(format!("only {count} functions").into()) }
    }));
    libtest_mimic::run(&args, trials).exit();
}
