//! `barewave run --profile FILE`: what a run did, to be looked at.
//!
//! `.json` is a Chrome trace (Perfetto and speedscope open it; onnxruntime's own profile has the same form): one row of launches
//! as they ran on the device, one as the cycle model has them on the chip, and before them the compiler's passes by thread. `.html` is one page that needs nothing else:
//! the model as a graph, kernels by time, both rows as timelines, memory, every kernel under the chip's roofline, the compiler's
//! passes, and the machine code with operators and cycles behind its lines.

use super::cycles::{self, Launched};
use super::page::{self, Ran, escape, timeline};
use super::trace::{self, Pass};
use super::{Failure, Result};
use barewave::Compiled;
use barewave::codeobj::{ElfFile, Listing, list};
use barewave::output;
use barewave::runtime::plan::Plan;
use barewave::runtime::{LaunchReport, RunReport};
use barewave_isa::Target;
use barewave_timing::{Chip, Modelled};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A run.
pub struct Profile<'a> {
    /// The model's name.
    pub model: &'a str,
    /// The device's.
    pub device: &'a str,
    /// Architecture of the code.
    pub target: Target,
    /// What the run did, launch by launch.
    pub report: &'a RunReport,
    /// The same launches by the cycle model; empty where the model has none.
    pub modelled: &'a [Launched],
    /// The machine code as text.
    pub listing: &'a str,
    /// What the compiler did.
    pub passes: &'a [Pass],
}

/// The format of a file, by its name.
///
/// # Errors
/// When it is neither `.html` nor `.json`.
pub fn is_page(path: &Path) -> Result<bool> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html") => Ok(true),
        Some("json") => Ok(false),
        _ => Err(Failure::usage(format!("--profile {}: a file ending in .html or .json is needed", path.display()))),
    }
}

/// The machine code of a compiled model. Behind each line that the first launch of its kernel executed: the cycles that a
/// wave spends there by the cycle model, how often it comes by, what it waits for, and the operators it works for. A kernel
/// that the model cannot follow has the cycles of its loops' rounds.
pub fn listing(compiled: &Compiled, launches: &[Launched]) -> Result<String> {
    const WIDEST: f64 = 12.0;
    let code = compiled.code();
    let file = ElfFile::parse(code)?;
    let mut remarks = BTreeMap::new();
    for k in &file.kernels {
        let Some(l) = launches.iter().find(|l| l.kernel == k.name) else { continue };
        if l.lines.is_empty() {
            remarks.extend(super::disasm::remarks(&file, code, compiled.target(), Some(&k.name)));
        }
        let most = l.lines.iter().map(|c| c.clocks).fold(1.0, f64::max);
        for c in l.lines.iter() {
            let bar = "#".repeat((WIDEST * c.clocks / most).round() as usize);
            let text = format!("{:9.0} clk {:7.0}x {:10} {bar:12} {}", c.clocks, c.executions, c.stall.name(), l.step);
            remarks.insert(c.address, text);
        }
    }
    let mut out = Vec::new();
    list(&file, code, compiled.target(), &Listing { remarks, ..Listing::default() }, &mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Each plan that ran as a graph. One that ran several times, as the rounds of a loop do, is there once, with all its time.
fn graphs(ran: &[Ran]) -> String {
    let mut different: Vec<(&Plan, usize, Vec<f64>)> = Vec::new();
    for r in ran {
        match different.iter_mut().find(|(p, ..)| std::ptr::eq(*p, r.plan) || *p == r.plan) {
            Some((_, times, us)) => {
                *times += 1;
                us.iter_mut().zip(r.us).for_each(|(sum, us)| *sum += us);
            }
            None => different.push((r.plan, 1, r.us.to_vec())),
        }
    }
    let mut out = String::new();
    for (i, (plan, times, us)) in different.iter().enumerate() {
        if different.len() > 1 || *times > 1 {
            let _ = write!(out, "<h3>Part {} of {}, run {times}x</h3>", i + 1, different.len());
        }
        out += &page::graph(plan, us);
    }
    out
}

impl Profile<'_> {
    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result {
        if is_page(path)? {
            return page::save(path, &format!("{} on {}", self.model, self.device), &self.page());
        }
        let text = format!("{:#}\n", self.trace());
        Ok(output::write(path, |w| std::io::Write::write_all(w, text.as_bytes()))?)
    }

    fn launches(&self) -> impl Iterator<Item = (&LaunchReport, Option<&Modelled>)> {
        let modelled = |i: usize| self.modelled.get(i).and_then(|l| l.modelled.as_ref().ok());
        self.report.per_launch.iter().enumerate().map(move |(i, l)| (l, modelled(i)))
    }

    /// A Chrome trace; times in microseconds.
    fn trace(&self) -> Value {
        let name = |row: u32, name: String| json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": { "name": name } });
        let mut events = vec![
            json!({ "name": "process_name", "ph": "M", "pid": 1, "args": { "name": format!("barewave {}", self.model) } }),
            name(1, self.device.to_string()),
            name(2, format!("{} by the cycle model", self.target)),
        ];
        events.push(json!({ "name": "process_name", "ph": "M", "pid": 2, "args": { "name": "barewave's compiler" } }));
        events.extend(trace::events(self.passes));
        // The device begins when the compiler has ended.
        let compiled = self.passes.iter().map(|p| p.start + p.took).fold(0.0, f64::max);
        let (mut at, mut chip) = (compiled, compiled);
        for (l, m) in self.launches() {
            let us = l.time.as_secs_f64() * 1e6;
            let args = json!({ "operators": l.step, "instructions": l.instructions });
            events.push(json!({ "name": l.kernel, "cat": "kernel", "ph": "X", "pid": 1, "tid": 1, "ts": at, "dur": us, "args": args }));
            at += us;
            if let Some(m) = m {
                let args = cycles::json(m);
                let dur = m.microseconds;
                events.push(json!({ "name": l.kernel, "cat": "model", "ph": "X", "pid": 1, "tid": 2, "ts": chip, "dur": dur, "args": args }));
                chip += dur;
            }
        }
        json!({ "displayTimeUnit": "ms", "traceEvents": events })
    }

    /// The plans that ran, with the times of their launches.
    fn ran<'t>(&self, times: &'t [f64]) -> Vec<Ran<'_, 't>> {
        let mut left = times;
        let ran = self.report.plans.iter().map(|plan| {
            let (us, rest) = left.split_at_checked(plan.launches.len()).unwrap_or((left, &[]));
            left = rest;
            Ran { plan, us }
        });
        ran.collect()
    }

    fn page(&self) -> String {
        let what = if self.report.instructions.is_some() { "emulation" } else { "measured" };
        let total: f64 = self.report.per_launch.iter().map(|l| l.time.as_secs_f64() * 1e6).sum();
        let chip: f64 = self.launches().filter_map(|(_, m)| Some(m?.microseconds)).sum();
        let mut out = format!(
            "<p>{} launches, {total:.1} us ({what}); {chip:.1} us on {} by the cycle model{}.</p>",
            self.report.launches,
            self.target,
            self.launches().find_map(|(_, m)| m).map_or("", cycles::note)
        );
        let chosen = |(l, m): (&LaunchReport, Option<&Modelled>)| match m {
            Some(m) if self.report.instructions.is_some() => m.microseconds,
            _ => l.time.as_secs_f64() * 1e6,
        };
        let us: Vec<f64> = self.launches().map(chosen).collect();
        let modelled = self.report.instructions.is_some() && !self.modelled.is_empty();
        let _ = write!(out, "<h2>Model</h2><p>Times {}.</p>", if modelled { "by the cycle model" } else { what });
        let ran = self.ran(&us);
        out += &graphs(&ran);
        let _ = write!(out, "<h2>Kernels</h2>{}", self.table(total));
        let measured: Vec<(&str, f64)> =
            self.launches().map(|(l, _)| (l.kernel.as_str(), l.time.as_secs_f64() * 1e6)).collect();
        let modelled: Vec<(&str, f64)> =
            self.launches().filter_map(|(l, m)| Some((l.kernel.as_str(), m?.microseconds))).collect();
        let _ = write!(out, "<h2>Timeline ({what})</h2>{}", timeline("measured", &measured));
        if !modelled.is_empty() {
            let _ = write!(out, "<h2>Timeline (cycle model)</h2>{}", timeline("modelled", &modelled));
        }
        out += &page::memory(&ran);
        out += &self.roofline().unwrap_or_default();
        out += &self.passes();
        if !self.listing.is_empty() {
            let _ = write!(out, "<h2>Machine code</h2><pre id=\"code\">{}</pre>", escape(self.listing));
        }
        out
    }

    /// The compiler's passes, those that took longest first. Kernels are compiled in parallel, and a pass may hold others.
    fn passes(&self) -> String {
        let mut sums: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
        for p in self.passes {
            let sum = sums.entry(p.name).or_default();
            (sum.0, sum.1) = (sum.0 + 1, sum.1 + p.took);
        }
        if sums.is_empty() {
            return String::new();
        }
        let mut sums: Vec<(&str, (usize, f64))> = sums.into_iter().collect();
        sums.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
        let mut out =
            String::from("<h2>Compiler</h2><table id=\"passes\"><tr><th>pass<th>times<th>us, all threads</tr>");
        for (name, (count, us)) in sums {
            let _ = write!(out, "<tr><td>{}<td>{count}<td>{us:.1}</tr>", escape(name));
        }
        out + "</table>"
    }

    /// Kernels, those that take longest first.
    fn table(&self, total: f64) -> String {
        struct Row<'r> {
            launches: usize,
            us: f64,
            instructions: u64,
            model: f64,
            bound: &'r str,
            step: &'r str,
        }
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for (l, m) in self.launches() {
            let row = rows.entry(&l.kernel).or_insert(Row {
                launches: 0,
                us: 0.0,
                instructions: 0,
                model: 0.0,
                bound: m.map_or("", |m| m.bound.name()),
                step: &l.step,
            });
            row.launches += 1;
            row.us += l.time.as_secs_f64() * 1e6;
            row.instructions += l.instructions.unwrap_or(0);
            row.model += m.map_or(0.0, |m| m.microseconds);
        }
        let mut rows: Vec<(&str, Row)> = rows.into_iter().collect();
        rows.sort_by(|a, b| b.1.us.total_cmp(&a.1.us));
        let mut out = String::from("<table id=\"kernels\"><tr><th>kernel<th>launches<th>us<th>share<th>instructions");
        out += "<th>modelled us<th>bound<th>first operators</tr>";
        for (kernel, r) in rows {
            let _ = write!(
                out,
                "<tr><td>{}<td>{}<td>{:.1}<td>{:.1}%<td>{}<td>{:.1}<td>{}<td class=\"text\">{}</tr>",
                escape(kernel),
                r.launches,
                r.us,
                100.0 * r.us / total.max(1e-9),
                r.instructions,
                r.model,
                r.bound,
                escape(r.step)
            );
        }
        out + "</table>"
    }

    /// Every kernel by its arithmetic intensity and rate, under what the chip's units and memory allow.
    fn roofline(&self) -> Option<String> {
        const W: f64 = 900.0;
        const H: f64 = 360.0;
        let chip = Chip::of(self.target).filter(|_| !self.modelled.is_empty())?;
        let clocks_per_us = 1.0 / chip.microseconds(1.0);
        let peak = cycles::peak_flops_per_clk(self.target, "f32") * chip.cus * clocks_per_us / 1e3;
        let bandwidth = chip.dram_bytes_clk() * clocks_per_us / 1e3;
        let (left, right, bottom, top) = (-4.0, 4.0, -3.0, (peak * 2.0).log10());
        let x = |v: f64| 60.0 + (v.log10().clamp(left, right) - left) / (right - left) * (W - 80.0);
        let y = |v: f64| H - 30.0 - (v.log10().clamp(bottom, top) - bottom) / (top - bottom) * (H - 50.0);
        let ridge = peak / bandwidth;
        let low = 10f64.powf(left);
        let mut out =
            format!("<h2>Roofline of {}</h2><svg class=\"wide\" id=\"roofline\" viewBox=\"0 0 {W} {H}\">", self.target);
        let _ = write!(
            out,
            "<polyline class=\"roof\" points=\"{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}\"/>",
            x(low),
            y(low * bandwidth),
            x(ridge),
            y(peak),
            x(10f64.powf(right)),
            y(peak)
        );
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{peak:.0} GFLOP/s (f32), {bandwidth:.0} GB/s</text>\
             <text x=\"60\" y=\"{:.1}\">operations per byte of memory, 10^{left} to 10^{right}</text>",
            x(ridge),
            y(peak) - 6.0,
            H - 6.0
        );
        for l in self.modelled {
            let Ok(m) = &l.modelled else { continue };
            let flops = l.flops as f64;
            // What does not count, or does not leave the caches, stands at the edge.
            let (px, py) = (x(flops / m.traffic.dram.max(1.0)), y(flops / m.microseconds / 1e3));
            let title = format!("{}: {:.1} GFLOP/s, {}", l.kernel, flops / m.microseconds / 1e3, l.step);
            let _ =
                write!(out, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"4\"><title>{}</title></circle>", escape(&title));
        }
        Some(out + "</svg>")
    }
}
