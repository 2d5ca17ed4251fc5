//! `barewave ubench`: what single instructions take, on a GPU or under the cycle model.

mod kernel;

use super::{Failure, Result};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::output;
use barewave::runtime::hip::Library;
use barewave::runtime::{self, Device, LaunchShape};
use barewave_isa::{Counter, Mode, Op, OpInfo, Target, parse};
use barewave_timing::{Chip, Loops};
use comfy_table::{CellAlignment, Table, presets};
use kernel::Relation;
use serde_json::json;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

/// Measures instructions with generated loops: latency, throughput, pairs, LDS conflicts, memory, launches.
///
/// On a GPU (--device hip) by its own clock, else under the cycle model. With --all the classes of isa/latency/latency.csv are
/// measured; `-o FILE.csv` writes them in that form, for `barewave isa latency import`.
///
/// Example: barewave ubench --target mi300x v_fma_f32 v_exp_f32
///
/// Example: barewave ubench --device hip --all -o mycard.csv
#[derive(clap::Args)]
pub struct Args {
    /// Instructions by name.
    #[arg(value_name = "INSTR")]
    instructions: Vec<String>,
    /// Target; with --device hip that of the GPU.
    #[arg(long)]
    target: Option<String>,
    /// Where to run: model (the cycle model), hip or hip:N, emu:TARGET (clocks that count instructions: only to see that it
    /// works).
    #[arg(long, default_value = "model")]
    device: String,
    /// Everything: a representative of each latency class, pairs, LDS, memory, launches.
    #[arg(long)]
    all: bool,
    /// Write the classes' latencies in the form of latency.csv.
    #[arg(short, long, value_name = "CSV")]
    output: Option<PathBuf>,
    /// Machine-readable output.
    #[arg(long)]
    json: bool,
}

/// Where kernels run.
enum Place {
    Model(EmuDevice),
    Device(Arc<dyn Device>),
}

/// Bytes of memory that kernels read: larger than every cache but memory-side ones, and than these.
const DATA: u64 = 64 << 20;
const FAR: u64 = 512 << 20;
/// Rounds of the shorter run; the longer one has twice as many.
const ROUNDS: u32 = 64;
/// Copies of an instruction in a round.
const COPIES: u16 = 32;

/// Where a kernel reads memory.
struct Walk {
    /// Rounds that run before each that is measured.
    warm: u32,
    /// The next run's memory, and how far behind it that of the run after it is.
    at: Cell<u64>,
    advance: u64,
}

struct Bench {
    target: Target,
    place: Place,
    out: u64,
    data: u64,
}

impl Bench {
    fn open(args: &Args) -> Result<Bench> {
        let asked = args.target.as_deref().map(Target::parse).transpose().map_err(Failure::usage)?;
        if args.device == "model" {
            let target =
                asked.ok_or_else(|| Failure::usage("give --target, or --device hip for the GPU of this machine"))?;
            let device = EmuDevice::new(target)?;
            let (out, data) = (device.alloc(4096)?, device.alloc(DATA)?);
            return Ok(Bench { target, place: Place::Model(device), out, data });
        }
        let device = runtime::open(&args.device, asked, false)?.device;
        let target = device.target();
        if asked.is_some_and(|a| a != target) {
            return Err(Failure::usage(format!("the device is {target}, --target says otherwise")));
        }
        let (out, data) = (device.alloc(4096)?, device.alloc(DATA)?);
        Ok(Bench { target, place: Place::Device(device), out, data })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        match &self.place {
            Place::Model(d) => d.write(at, bytes)?,
            Place::Device(d) => d.write(at, bytes)?,
        }
        Ok(())
    }

    /// Memory that every run reads from its beginning.
    fn again(&self, warm: u32) -> Walk {
        Walk { warm, at: Cell::new(self.data), advance: 0 }
    }

    /// Clocks of a wave for a number of rounds.
    fn clocks(&self, code: &[u8], rounds: u32, waves: u32, walk: &Walk) -> Result<f64> {
        let block = [waves * self.target.info().wave_size, 1, 1];
        let arguments = |rounds: u32| kernel::arguments(self.out, rounds, walk.at.get());
        match &self.place {
            Place::Model(d) => {
                let module = d.load(code)?;
                let options = LaunchOptions::default();
                let arguments = arguments(walk.warm + rounds);
                let (kernel, loops) = (module.kernel("k")?, Loops::Shortened);
                Ok(barewave_timing::recorded(d, &kernel, [1, 1, 1], block, &arguments, &options, loops)?
                    .behind_itself()
                    .modelled
                    .clocks)
            }
            Place::Device(d) => {
                let module = d.load(code)?;
                let k = d.kernel(module, "k")?;
                let stream = d.create_stream()?;
                let shape = LaunchShape { grid: [1, 1, 1], block, dynamic_lds: 0 };
                let mut best = u32::MAX;
                // The first run warms caches up, unless there is something to walk through.
                for _ in 0..3 {
                    if walk.warm > 0 {
                        d.launch(stream, k, shape, &arguments(walk.warm))?;
                    }
                    d.launch(stream, k, shape, &arguments(rounds))?;
                    walk.at.set(walk.at.get() + walk.advance);
                    d.synchronize(stream)?;
                    let mut bytes = [0; 4];
                    d.read(self.out, &mut bytes)?;
                    best = best.min(u32::from_le_bytes(bytes));
                }
                d.destroy_stream(stream)?;
                d.unload(module)?;
                Ok(f64::from(best))
            }
        }
    }

    /// Clocks of a round of a body.
    fn round(&self, before: &str, body: &str, lds: u32, waves: u32, walk: &Walk) -> Result<f64> {
        let code = kernel::kernel(self.target, before, body, lds)?;
        let (short, long) = (self.clocks(&code, ROUNDS, waves, walk)?, self.clocks(&code, 2 * ROUNDS, waves, walk)?);
        Ok((long - short) / f64::from(ROUNDS))
    }

    /// Clocks of a body: a round with it twice less a round with it once, so that the loop itself cancels out.
    fn body(&self, before: &str, body: &str, lds: u32, waves: u32) -> Result<f64> {
        self.walk(before, body, lds, waves, &self.again(0))
    }

    fn walk(&self, before: &str, body: &str, lds: u32, waves: u32, walk: &Walk) -> Result<f64> {
        Ok(self.round(before, &body.repeat(2), lds, waves, walk)? - self.round(before, body, lds, waves, walk)?)
    }

    /// Clocks of one of the copies that a text makes.
    fn each(&self, copies: &[String], waves: u32) -> Result<f64> {
        let body: String = copies.iter().map(|c| format!("\t{c}\n")).collect();
        Ok(self.body("", &body, 0, waves)?.max(0.0) / copies.len().max(1) as f64)
    }
}

/// What was found for an instruction.
struct Found {
    name: String,
    class: &'static str,
    /// From an instruction to the next that needs its result.
    latency: Option<f64>,
    /// From an instruction to the next one of a wave, and with four waves on a SIMD.
    busy: f64,
    shared: f64,
    table: (u16, u16),
}

fn measure(bench: &Bench, info: &'static OpInfo) -> Result<Found> {
    let t = bench.target;
    let copies = |relation| (0..COPIES).map(|n| kernel::copy(t, info, relation, n)).collect::<Option<Vec<String>>>();
    let free = copies(Relation::Independent)
        .ok_or_else(|| Failure::usage(format!("{}: no loop can be generated for this instruction", info.name)))?;
    let latency = copies(Relation::Chain).map(|c| bench.each(&c, 1)).transpose()?;
    let simds = t.info().simds;
    let waves = (2 * simds).min(1024 / t.info().wave_size);
    let shared = bench.each(&free, waves)? / f64::from(waves.div_ceil(simds));
    Ok(Found {
        name: info.name.into(),
        class: t.latency_class(info.op).0,
        latency,
        busy: bench.each(&free, 1)?,
        shared,
        table: (info.latency, info.busy),
    })
}

/// Latency classes that loops of this kind can measure, with instructions to take where there is a choice.
const PREFERRED: &[&str] = &[
    "v_add_f32",
    "v_lshlrev_b64",
    "v_cvt_f32_i32",
    "v_exp_f32",
    "v_rcp_f64",
    "v_mul_lo_u32",
    "v_fma_f64",
    "v_add_f64",
    "v_perm_b32",
    // Others write SCC too.
    "s_brev_b32",
    "s_add_f32",
];

/// An instruction of each class.
fn representatives(t: Target) -> Vec<&'static OpInfo> {
    let mut out: Vec<&'static OpInfo> = PREFERRED.iter().filter_map(|n| kernel::operation(t, n)).collect();
    let class = |i: &OpInfo| t.latency_class(i.op).0;
    for info in (0..Op::COUNT as u16).map(Op).filter_map(|op| t.op(op)) {
        let new = !out.iter().any(|o| class(o) == class(info));
        let usable = new && kernel::copy(t, info, Relation::Independent, 0).is_some();
        let sparse = info.name.contains("smfmac") || info.name.contains("swmmac") || info.name.contains("scale");
        if usable && !sparse && barewave::emu::implements(t, info.op) {
            out.push(info);
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    out.retain(|i| {
        let new = !seen.contains(&class(i));
        seen.push(class(i));
        new && kernel::copy(t, i, Relation::Independent, 0).is_some()
    });
    out
}

/// A named figure.
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
}

/// The first of some spellings that assembles, with its text.
fn spell(t: Target, choices: &[String]) -> Option<String> {
    choices.iter().find(|c| parse(t, Mode::of(t), c).is_ok()).cloned()
}

/// Pairs of instructions in one wave: clocks of both together.
fn pairs(bench: &Bench, out: &mut Vec<Figure>) -> Result<()> {
    let t = bench.target;
    let matrix = representatives(t).into_iter().filter(|i| i.pipe == barewave_isa::Pipe::Matrix).max_by_key(|i| i.busy);
    let find = |names: &[&str]| names.iter().find_map(|n| kernel::operation(t, n));
    let valu = find(&["v_add_f32"]);
    let others = [find(&["s_brev_b32"]), find(&["v_exp_f32"]), matrix];
    for (a, b) in others.into_iter().flatten().filter_map(|o| Some((o, valu?))) {
        let copies: Option<Vec<String>> = (0..COPIES)
            .map(|n| {
                let (info, relation) = if n % 2 == 0 { (a, Relation::Independent) } else { (b, Relation::Beside) };
                kernel::copy(t, info, relation, n / 2)
            })
            .collect();
        if let Some(copies) = copies {
            let value = 2.0 * bench.each(&copies, 1)?;
            out.push(Figure { what: format!("{} + {} of a wave", a.name, b.name), value, unit: "clocks" });
        }
    }
    Ok(())
}

/// LDS: latency by a chain, and clocks of reads with strides that make banks conflict.
fn lds(bench: &Bench, out: &mut Vec<Figure>) -> Result<()> {
    let t = bench.target;
    let wait = kernel::waits(t, &[Counter::Lgkm]);
    let read = |bits: &str, old: &str, to: &str, from: &str| {
        spell(t, &[format!("ds_read_{old} {to}, {from}"), format!("ds_load_{bits} {to}, {from}")])
    };
    let zero = spell(t, &["ds_write_b32 v1, v8".into(), "ds_store_b32 v1, v8".into()]);
    let set_m0 = "\ts_mov_b32 m0, -1\n";
    if let (Some(chain), Some(zero)) = (read("b32", "b32", "v40", "v40"), zero) {
        let body = format!("\t{chain}\n{wait}").repeat(8);
        let value = bench.body(&format!("{set_m0}\t{zero}\n{wait}"), &body, 4096, 1)? / 8.0;
        out.push(Figure { what: "LDS latency, 4 bytes".into(), value, unit: "clocks" });
    }
    for (bits, old, registers, width) in
        [("b32", "b32", "v40", 4), ("b64", "b64", "v[40:41]", 8), ("b128", "b128", "v[40:43]", 16)]
    {
        for stride in [1, 2, 8, 32] {
            let Some(text) = read(bits, old, registers, "v5") else { continue };
            let lanes = t.info().wave_size;
            let bytes = stride * width;
            let lds = (lanes * bytes + 16).next_multiple_of(512);
            if lds > t.info().lds_bytes {
                continue;
            }
            let before = format!("{set_m0}\tv_mul_u32_u24 v5, {bytes:#x}, v0\n");
            // Enough of them that what the loop itself takes is not longer than what is left in the queue.
            let body = format!("\t{text}\n").repeat(usize::from(COPIES));
            let value = bench.body(&before, &body, lds, 1)? / f64::from(COPIES);
            out.push(Figure {
                what: format!("LDS read of {width} bytes a lane, stride {stride}"),
                value,
                unit: "clocks",
            });
        }
    }
    Ok(())
}

/// Bytes from a word of a chain to the next: a cache line, and more than a page where every word is new.
const LINE: u64 = 128;
const PAGE: u64 = 4096 + 64;
/// Loads in a body: few, since clocks of 20 bits must not wrap around twice.
const LOADS: u64 = 2;

/// Memory: a chain of loads round and round over ever more bytes, all of which were walked through before; and of words that
/// no run has read before.
fn memory(bench: &Bench, out: &mut Vec<Figure>) -> Result<()> {
    let t = bench.target;
    let load = spell(t, &["flat_load_dword v6, v[6:7]".into(), "flat_load_b32 v6, v[6:7]".into()]);
    let wait = kernel::waits(t, &[Counter::Vm, Counter::Lgkm]);
    let Some(load) = load else { return Ok(()) };
    // Each word holds the low half of the address of the next one.
    let chain = |base: u64, bytes: u64, step: u64| -> Result<bool> {
        if base >> 32 != (base + bytes) >> 32 {
            return Ok(false);
        }
        let mut memory = vec![0; bytes as usize];
        let n = bytes / step;
        for i in 0..n {
            let (at, next) = ((i * step) as usize, (i + 1) % n * step);
            memory[at..at + 4].copy_from_slice(&(base as u32).wrapping_add(next as u32).to_le_bytes());
        }
        bench.write(base, &memory)?;
        Ok(true)
    };
    let mut measure = |what: String, walk: &Walk| -> Result<()> {
        let before = "\tv_mov_b32 v6, s16\n\tv_mov_b32 v7, s17\n";
        let body = format!("\t{load}\n{wait}").repeat(LOADS as usize);
        let value = bench.walk(before, &body, 0, 1, walk)? / LOADS as f64;
        out.push(Figure { what, value, unit: "clocks" });
        Ok(())
    };
    for bytes in [4u64 << 10, 128 << 10, 512 << 10, 32 << 20] {
        if chain(bench.data, bytes, LINE)? {
            let walk = bench.again((bytes / LINE).div_ceil(LOADS) as u32);
            measure(format!("dependent load, {} KiB walked", bytes >> 10), &walk)?;
        }
    }
    if let Place::Device(d) = &bench.place
        && let Ok(far) = d.alloc(FAR)
    {
        // Behind the caches of all chips. Every run goes on where those before it cannot have been.
        let run = u64::from(2 * ROUNDS) * 2 * LOADS * PAGE;
        if chain(far, FAR, PAGE)? {
            measure("dependent load, never read before".into(), &Walk { warm: 0, at: Cell::new(far), advance: run })?;
        }
        d.free(far)?;
    }
    Ok(())
}

/// What an empty launch costs.
fn launch(bench: &Bench, out: &mut Vec<Figure>) -> Result<()> {
    let value = match &bench.place {
        Place::Model(_) => Chip::of(bench.target).map_or(0.0, |c| c.launch_us),
        Place::Device(d) => {
            let code = kernel::kernel(bench.target, "", "", 0)?;
            let (module, stream) = (d.load(&code)?, d.create_stream()?);
            let k = d.kernel(module, "k")?;
            let shape = LaunchShape { grid: [1, 1, 1], block: [bench.target.info().wave_size, 1, 1], dynamic_lds: 0 };
            let (start, end) = (d.create_event()?, d.create_event()?);
            const LAUNCHES: u32 = 100;
            d.record(stream, start)?;
            for _ in 0..LAUNCHES {
                d.launch(stream, k, shape, &kernel::arguments(bench.out, 1, bench.data))?;
            }
            d.record(stream, end)?;
            d.synchronize(stream)?;
            let us = d.elapsed(start, end)?.as_secs_f64() * 1e6 / f64::from(LAUNCHES);
            d.destroy_event(start)?;
            d.destroy_event(end)?;
            d.destroy_stream(stream)?;
            us
        }
    };
    out.push(Figure { what: "launch".into(), value, unit: "us" });
    Ok(())
}

/// True when a device is not a GPU: its clocks are the host's.
fn emulated(device: &dyn Device) -> bool {
    device.info().driver.is_none() || Library::get().is_ok_and(|l| l.is_emulated())
}

/// The classes in the form of `latency.csv`.
fn csv(bench: &Bench, found: &[Found]) -> String {
    let (what, tag) = match &bench.place {
        Place::Model(_) => ("by the cycle model", 'i'),
        Place::Device(d) if emulated(&**d) => ("an emulated device: no measurement", 'i'),
        Place::Device(_) => ("measured", 'm'),
    };
    let mut out = format!("# {what}\nclass,{}\n", bench.target.info().name);
    for (f, latency) in found.iter().filter_map(|f| Some((f, f.latency?))) {
        let whole = |x: f64| x.round().max(1.0) as u64;
        out += &format!("{},{}/{} {tag}\n", f.class, whole(latency), whole(f.busy));
    }
    out
}

/// Runs the command.
pub fn run(args: &Args) -> Result {
    if args.instructions.is_empty() && !args.all {
        return Err(Failure::usage("name instructions, or give --all"));
    }
    if args.output.is_some() && !args.all {
        return Err(Failure::usage("-o writes latency classes: give --all"));
    }
    if let Some(path) = &args.output {
        output::check(path)?;
    }
    let bench = Bench::open(args)?;
    let t = bench.target;
    let mut list: Vec<&'static OpInfo> = Vec::new();
    for name in &args.instructions {
        let unknown =
            || Failure::usage(format!("{t} has no instruction '{name}' (`barewave isa list {t}` lists them)"));
        list.push(kernel::operation(t, name).ok_or_else(unknown)?);
    }
    if args.all {
        list.extend(representatives(t));
    }
    let mut found = Vec::new();
    for info in list {
        match measure(&bench, info) {
            Ok(f) => found.push(f),
            Err(e) if args.all => eprintln!("note: {}: {}", info.name, e.message),
            Err(e) => return Err(e),
        }
    }
    let mut figures = Vec::new();
    if args.all {
        for part in [pairs, lds, memory, launch] {
            part(&bench, &mut figures)?;
        }
    }
    if let Some(path) = &args.output {
        output::write(path, |w| w.write_all(csv(&bench, &found).as_bytes()))?;
    }
    let note = match &bench.place {
        Place::Model(_) => Chip::of(t).map_or("", |c| c.note()),
        Place::Device(d) if emulated(&**d) => " (emulated: the host's clocks)",
        Place::Device(_) => "",
    };
    if args.json {
        let rows: Vec<_> = found
            .iter()
            .map(|f| {
                json!({
                    "instruction": f.name, "class": f.class, "latency": f.latency, "busy": f.busy, "busy_shared": f.shared,
                    "table": { "latency": f.table.0, "busy": f.table.1 },
                })
            })
            .collect();
        let figures: Vec<_> =
            figures.iter().map(|f| json!({ "what": f.what, "value": f.value, "unit": f.unit })).collect();
        println!(
            "{:#}",
            json!({ "target": t.info().name, "device": args.device, "instructions": rows, "figures": figures })
        );
        return Ok(());
    }
    print(&args.device, t, note, &found, &figures);
    Ok(())
}

fn print(device: &str, t: Target, note: &str, found: &[Found], figures: &[Figure]) {
    println!("{t} on {device}{note}: clocks of a wave");
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["instruction", "class", "latency", "each", "each, SIMD shared", "table"]);
    for f in found {
        table.add_row([
            f.name.clone(),
            f.class.into(),
            f.latency.map_or("-".into(), |l| format!("{l:.2}")),
            format!("{:.2}", f.busy),
            format!("{:.2}", f.shared),
            format!("{}/{}", f.table.0, f.table.1),
        ]);
    }
    for c in 2..6 {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    for f in figures {
        println!("{:52} {:9.2} {}", f.what, f.value, f.unit);
    }
}
