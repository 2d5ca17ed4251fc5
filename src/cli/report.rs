//! `barewave compile --report FILE.html`: how good the machine code is, without running it.
//!
//! One page: the kernels with what they take of a compute unit, and for each the registers that are live along its code and
//! the hot loop's schedule as a Gantt chart by the cycle model: a row for each instruction of a round, from its issue to
//! its result.

use super::Result;
use super::cycles::{Launched, note};
use super::page::{self, escape, shortened};
use barewave::Compiled;
use barewave::codeobj::{ElfFile, KernelInfo};
use barewave::runtime::plan::KernelStats;
use barewave::verify::{self, Live};
use barewave_isa::{Decoder, Mode, Target};
use barewave_timing::hot::{self, HotLoop};
use barewave_timing::instr::Unit;
use std::fmt::Write as _;
use std::path::Path;

/// Writes the page.
///
/// # Errors
/// When the code cannot be read back, or the file not be written.
pub fn save(path: &Path, compiled: &Compiled, launches: &[Launched]) -> Result {
    let code = compiled.code();
    let file = ElfFile::parse(code)?;
    let target = compiled.target();
    let mut body = format!("<h2>Kernels</h2>{}", table(compiled, launches));
    for s in compiled.stats() {
        let Some(k) = file.kernels.iter().find(|k| k.name == s.kernel) else { continue };
        let _ = write!(
            body,
            "<section id=\"{0}\"><h2>{0}</h2><p>{1}</p>{2}",
            escape(&s.kernel),
            escape(&s.step),
            registers(s, &verify::live(&file, code, &k.name)?)
        );
        body += &match hot_loop(&file, code, target, k, s.workgroup_size) {
            Ok(Some(l)) => gantt(&l, target, &|at| instruction(&file, code, target, k, at)),
            Ok(None) => "<p>No loop.</p>".into(),
            Err(e) => format!("<p>No schedule: {}.</p>", escape(&e.to_string())),
        };
        body += "</section>";
    }
    page::save(path, &format!("{} for {target}", compiled.plan().model), &body)
}

fn table(compiled: &Compiled, launches: &[Launched]) -> String {
    let mut out = String::from(
        "<table id=\"kernels\"><tr><th>kernel<th>launches<th>instructions<th>VGPR<th>AGPR<th>SGPR<th>LDS<th>spills\
         <th>waves/SIMD<th>modelled us<th>bound<th>operators</tr>",
    );
    for s in compiled.stats() {
        let m = launches.iter().find(|l| l.kernel == s.kernel).and_then(|l| l.modelled.as_ref().ok());
        let (us, bound) = m.map_or(("-".into(), ""), |m| (format!("{:.1}{}", m.microseconds, note(m)), m.bound.name()));
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{us}<td>{bound}<td class=\"text\">{}</tr>",
            escape(&s.kernel),
            s.launches,
            s.instructions,
            s.vgprs,
            s.agprs,
            s.sgprs,
            s.lds,
            s.spills,
            s.occupancy,
            escape(&shortened(&s.step, 60))
        );
    }
    out + "</table>"
}

/// Live registers over the program, a line for each file, with what the descriptor allocates as limits.
fn registers(s: &KernelStats, live: &[Live]) -> String {
    const W: f64 = 1000.0;
    const H: f64 = 140.0;
    let files: [(&str, &str, u32, &dyn Fn(&Live) -> u32); 3] = [
        ("VGPR", "#36c", s.vgprs, &|l| l.vgprs),
        ("AGPR", "#393", s.agprs, &|l| l.agprs),
        ("SGPR", "#c63", s.sgprs, &|l| l.sgprs),
    ];
    let top = files.iter().map(|f| f.2.max(live.iter().map(f.3).max().unwrap_or(0))).max().unwrap_or(1).max(1);
    let x = |i: usize| W * i as f64 / live.len().max(1) as f64;
    let y = |n: u32| H - 10.0 - (H - 30.0) * f64::from(n) / f64::from(top);
    let mut out = format!("<svg class=\"wide live\" viewBox=\"0 0 {W} {H}\">");
    let mut words = Vec::new();
    for (name, color, allocated, of) in files.iter().filter(|f| f.2 > 0) {
        let points: Vec<String> =
            live.iter().enumerate().map(|(i, l)| format!("{:.1},{:.1}", x(i), y(of(l)))).collect();
        let limit = y(*allocated);
        let _ = write!(
            out,
            "<polyline class=\"line\" style=\"stroke:{color};stroke-width:1\" points=\"{}\"/>\
             <line class=\"limit\" style=\"stroke:{color}\" x1=\"0\" x2=\"{W}\" y1=\"{limit:.1}\" y2=\"{limit:.1}\"/>",
            points.join(" ")
        );
        let most = live.iter().map(of).max().unwrap_or(0);
        words.push(format!("<tspan fill=\"{color}\">{name}: {most} live at most, {allocated} allocated</tspan>"));
    }
    let _ = write!(out, "<text x=\"4\" y=\"12\">{}</text></svg>", words.join(" &#160; "));
    out
}

/// The loop of a kernel with the longest round.
fn hot_loop(
    file: &ElfFile,
    bytes: &[u8],
    target: Target,
    k: &KernelInfo,
    workgroup_size: u32,
) -> std::result::Result<Option<HotLoop>, barewave_timing::ModelError> {
    let code = file.kernel_code(bytes, k).unwrap_or_default();
    let loops = hot::loops(target, k, code, workgroup_size.max(1))?;
    Ok(loops.into_iter().max_by(|a, b| a.marks.len().cmp(&b.marks.len()).then(a.clocks.total_cmp(&b.clocks))))
}

/// The text of the instruction at an address.
fn instruction(file: &ElfFile, bytes: &[u8], target: Target, k: &KernelInfo, at: u64) -> String {
    let mode = Mode { wave64: !k.descriptor.wave32(), ..Mode::of(target) };
    let code = file.kernel_code(bytes, k).unwrap_or_default();
    let here = at.checked_sub(k.entry).and_then(|at| code.get(at as usize..));
    let mut text = String::new();
    if let Some(raw) = here.and_then(|code| Decoder::new(target, mode).decode(code)) {
        raw.print(&mut text);
    }
    text
}

fn color(unit: Unit) -> &'static str {
    match unit {
        Unit::Valu | Unit::Trans => "#36c",
        Unit::Matrix => "#93c",
        Unit::Salu | Unit::Branch => "#c63",
        Unit::Smem => "#db3",
        Unit::Lds => "#393",
        Unit::Vmem | Unit::Export => "#c33",
        Unit::Internal => "#888",
    }
}

/// A round of a loop: a row for each instruction in order, a bar from its issue for as long as its unit is busy, a lighter
/// one until its result is there, and a grey one for what it waited before.
fn gantt(l: &HotLoop, target: Target, text: &dyn Fn(u64) -> String) -> String {
    const LEFT: f64 = 330.0;
    const RIGHT: f64 = 640.0;
    const ROW: f64 = 14.0;
    let end = l.marks.iter().map(|m| m.issued + u64::from(m.busy)).max().unwrap_or(1).max(1) as f64;
    let x = |clock: f64| LEFT + RIGHT * clock.clamp(0.0, end) / end;
    let [valu, matrix, lds] = l.busy.map(|b| 100.0 * b);
    let height = ROW * (l.marks.len() + 2) as f64;
    let mut out = format!(
        "<p>Loop of {} instructions, a round takes {:.0} cycles with {} waves on each SIMD of {target}; busy: valu {valu:.0}%, \
         matrix {matrix:.0}%, lds {lds:.0}%. Memory is taken to answer from L2, without bank conflicts.</p>\
         <div class=\"scroll\"><svg class=\"gantt\" width=\"{:.0}\" height=\"{height:.0}\">",
        l.marks.len(),
        l.clocks,
        l.waves,
        LEFT + RIGHT + 30.0
    );
    for tick in 0..=10 {
        let clock = end * f64::from(tick) / 10.0;
        let _ = write!(
            out,
            "<line class=\"limit\" x1=\"{0:.0}\" x2=\"{0:.0}\" y1=\"14\" y2=\"{height:.0}\"/><text x=\"{0:.0}\" y=\"11\">{clock:.0}</text>",
            x(clock)
        );
    }
    for (row, m) in l.marks.iter().enumerate() {
        let (y, at) = (ROW * (row + 1) as f64 + 4.0, m.issued as f64);
        let words = text(m.address);
        let waits = if m.waited > 0 { format!(", waited {} for {}", m.waited, m.stall.name()) } else { String::new() };
        let bar = |from: f64, to: f64, fill: &str, light: &str| {
            let (from, to) = (x(from), x(to));
            format!(
                "<rect x=\"{from:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"10\" fill=\"{fill}\" opacity=\"{light}\"/>",
                (to - from).max(1.0)
            )
        };
        let _ = write!(
            out,
            "<g><title>{}: clock {}{waits}, {} for {} clocks, result after {}</title><text x=\"4\" y=\"{:.0}\">{}</text>{}{}{}</g>",
            escape(&words),
            m.issued,
            m.unit.name(),
            m.busy,
            m.latency,
            y + 9.0,
            escape(&shortened(&words, 52)),
            if m.waited > 0 { bar(at - m.waited as f64, at, "#bbb", "0.6") } else { String::new() },
            bar(at, at + f64::from(m.latency.max(m.busy)), color(m.unit), "0.3"),
            bar(at, at + f64::from(m.busy), color(m.unit), "1"),
        );
    }
    out + "</svg></div>"
}
