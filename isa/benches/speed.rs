//! Instructions a second of decoder, printer and assembler, beside LLVM's tools on the same gfx942 input when installed.
//! Times are processor time of one core, so that other work on the machine does not count.

use barewave_isa::{Decoder, Mode, Target, assemble, encode};
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Seconds of processor time that this process used, and those its finished children used.
fn used() -> (f64, f64) {
    let own = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let own = own.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or("").split_whitespace().map(|f| f.parse().unwrap_or(0.0)).collect();
    // cutime and cstime, in ticks of a hundredth
    let children = fields.get(13).zip(fields.get(14)).map_or(0.0, |(u, s)| (u + s) / 100.0);
    (own.map_or(0.0, |n| n / 1e9), children)
}

/// The best of a few runs, each of a tenth of a second or more, because the system counts time in ticks. What else the
/// machine does only ever slows them.
fn rate(name: &str, n: usize, mut run: impl FnMut()) -> f64 {
    let wall = Instant::now();
    run();
    let times = (0.1 / wall.elapsed().as_secs_f64()).ceil() as usize;
    let mut best = f64::INFINITY;
    for _ in 0..9 {
        let (start, wall) = (used().0, Instant::now());
        (0..times).for_each(|_| run());
        let spent = used().0 - start;
        best = best.min(if spent > 0.0 { spent } else { wall.elapsed().as_secs_f64() });
    }
    let rate = (n * times) as f64 / best;
    println!("{name:<28} {:8.2} M instructions/s", rate / 1e6);
    rate
}

/// Processor seconds that a command takes, the best of a few runs, and none when it is not there or fails.
fn peer(program: &str, args: &[&str]) -> Option<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = used().1;
        let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        best = best.min(if status.success() { used().1 - start } else { return None });
    }
    Some(best)
}

/// Lines that LLVM's assembler refuses: the disassembler's vectors hold some.
fn refused(source: &str) -> Vec<usize> {
    let path = std::env::temp_dir().join(format!("barewave-lines-{}.s", std::process::id()));
    if std::fs::write(&path, source).is_err() {
        return Vec::new();
    }
    let name = path.display().to_string();
    let run = Command::new("llvm-mc-22").args(["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", &name]).output();
    let _ = std::fs::remove_file(path);
    let errors = run.map(|o| String::from_utf8_lossy(&o.stderr).into_owned()).unwrap_or_default();
    errors.lines().filter_map(|l| l.strip_prefix(&name)?.split(':').nth(1)?.parse().ok()).collect()
}

fn main() {
    let target = Target::GFX942;
    let mode = Mode::of(target);
    let golden = include_str!("../tests/golden/gfx942.tsv");
    let lines: Vec<&str> =
        golden.lines().filter_map(|l| l.split('\t').nth(1)).filter(|t| !t.contains("branch")).collect();
    let refused = refused(&lines.join("\n"));
    let lines: Vec<&str> = (1..).zip(lines).filter(|(n, _)| !refused.contains(n)).map(|l| l.1).collect();
    let copies = 300;
    let source = format!("{}\n", lines.join("\n")).repeat(copies);
    let n = lines.len() * copies;
    let bytes = match assemble(target, mode, &source) {
        Ok(a) => a.sections.into_iter().find(|s| s.name == ".text").map(|s| s.bytes).unwrap_or_default(),
        Err(e) => panic!("{}", e[0]),
    };
    let decoder = Decoder::new(target, mode);
    let each = |mut f: Box<dyn FnMut(barewave_isa::Raw)>| {
        let mut at = 0;
        while let Some(raw) = decoder.decode(&bytes[at..]) {
            at += raw.len();
            f(raw);
        }
        assert_eq!(at, bytes.len());
    };
    rate("decode", n, || {
        let (mut at, mut sum) = (0, 0);
        while let Some(raw) = decoder.decode(&bytes[at..]) {
            at += raw.len();
            sum += usize::from(raw.op().0);
        }
        black_box(sum);
    });
    rate("decode to typed form", n, || each(Box::new(|raw| drop(black_box(raw.inst())))));
    let mut text = String::new();
    let print = rate("decode and print", n, || {
        let mut at = 0;
        while let Some(raw) = decoder.decode(&bytes[at..]) {
            at += raw.len();
            text.clear();
            raw.print(&mut text);
            black_box(&text);
        }
    });
    let mut insts = Vec::new();
    let mut at = 0;
    while let Some(raw) = decoder.decode(&bytes[at..]) {
        at += raw.len();
        insts.push(raw.inst());
    }
    let mut out = Vec::new();
    rate("encode", n, || {
        out.clear();
        for inst in &insts {
            let _ = black_box(encode(target, inst, &mut out));
        }
    });
    let asm = rate("assemble", n, || drop(black_box(assemble(target, mode, &source))));

    let directory = std::env::temp_dir().join(format!("barewave-speed-{}", std::process::id()));
    if std::fs::create_dir_all(&directory).is_err() || std::fs::write(directory.join("a.s"), &source).is_err() {
        return;
    }
    let (s, o) = (directory.join("a.s").display().to_string(), directory.join("a.o").display().to_string());
    if let Some(t) = peer("llvm-mc-22", &["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-filetype=obj", &s, "-o", &o]) {
        println!("assemble: {:.1} times llvm-mc", asm / (n as f64 / t));
        if let Some(t) = peer("llvm-objdump-22", &["-d", &o]) {
            println!("decode and print: {:.1} times llvm-objdump", print / (n as f64 / t));
        }
    }
    let _ = std::fs::remove_dir_all(directory);
}
