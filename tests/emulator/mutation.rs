//! Every wait and every gap that is taken away is noticed twice, unless it was not needed.
//!
//! Each wait and each gap (`s_nop`, `v_nop`, a wait for the ALUs) of a kernel, ours or clang's, is left out in turn, for a
//! run in strict mode ([`LaunchOptions::without`]) and for the static verifier ([`verify::Options::without`]), which
//! share no analysis. What a run shows to be harmful the verifier must find, what the verifier finds a run must show, and
//! the kernel as it is has nothing to find for either.

use crate::support::build::{Builder, int, ints};
use crate::support::clang::*;
use crate::support::device::TARGETS;
use crate::support::drawn;
use crate::support::generate::{OPERATORS, operator};
use barewave::codeobj::ElfFile;
use barewave::emu::{EmuDevice, Fault, LaunchOptions, Module};
use barewave::graph::fused::FusedGraph;
use barewave::graph::{self, Options};
use barewave::kernels::{EQUAL_SHARES, Tuned, Tuning, Way, candidates, joined};
use barewave::onnx::Model;
use barewave::runtime::plan::{Address, Launch, Port, Region};
use barewave::tensor::{DType, HostTensor};
use barewave::verify;
use barewave::{Compiled, Compiler};
use barewave_isa::{Decoder, Inst, Mode, Target, op};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Addresses of a kernel's waits and gaps.
fn droppable(t: Target, elf: &[u8], kernel: &str) -> Vec<u64> {
    let gap = |inst: &Inst| matches!(inst.op, op::S_NOP | op::V_NOP | op::S_WAITCNT_DEPCTR);
    addresses(t, elf, kernel, |inst| gap(inst) || t.decode_wait(inst).is_some())
}

/// Addresses of some of a kernel's instructions.
fn addresses(t: Target, elf: &[u8], kernel: &str, which: impl Fn(&Inst) -> bool) -> Vec<u64> {
    let file = ElfFile::parse(elf).unwrap();
    let k = file.kernel(kernel).unwrap();
    let code = file.file_range(k.entry, k.code_size).unwrap();
    let mode = Mode { wave64: !k.descriptor.wave32(), ..Mode::of(t) };
    let decoder = Decoder::new(t, mode);
    let (mut at, mut out) = (code.start, Vec::new());
    while at < code.end {
        let raw = decoder.decode(&elf[at..code.end]).unwrap();
        let inst = raw.inst();
        if which(&inst) {
            out.push(k.entry + (at - code.start) as u64);
        }
        at += raw.len();
    }
    out
}

/// What the static verifier finds first in a kernel, the instruction at an address left out.
pub fn found(elf: &[u8], kernel: &str, without: Option<u64>) -> Option<String> {
    let file = ElfFile::parse(elf).unwrap();
    let options = verify::Options { without, ..verify::Options::default() };
    let reports = verify::check(&file, elf, Some(kernel), &options).unwrap();
    reports[0].findings.list.first().map(|f| f.to_string())
}

const KERNELS: &[(&str, &str)] = &[
    (
        "rounds through LDS",
        "__kernel void k(__global const uint *a, __global uint *o) {
        __local uint t[256]; t[LID] = a[GID] + a[GID ^ 1]; BARRIER();
        for (uint s = 64; s < 200; s += 32) { uint v = t[(LID + s) & 255]; BARRIER(); t[LID] = v * 3 + s; BARRIER(); }
        o[GID] = t[255 - LID] + a[255 - LID]; }",
    ),
    (
        "product with tiles",
        "__kernel void k(__global const uint *a, __global uint *o) {
        __local float ta[16][17], tb[16][17]; uint x = LID % 16, y = LID / 16; float s = 0;
        for (uint k = 0; k < 2; k++) {
            ta[y][x] = a[(y * 16 + x + k) & 255] & 7; tb[y][x] = a[(x * 16 + y + k) & 255] & 7; BARRIER();
            for (uint i = 0; i < 16; i++) s = __builtin_fmaf(ta[y][i], tb[i][x], s);
            BARRIER(); }
        o[GID] = (uint)s; }",
    ),
    (
        "atomics and private memory",
        "__kernel void k(__global const uint *a, __global uint *o) {
        __local uint h[16]; volatile uint p[8]; if (LID < 16) h[LID] = 0; BARRIER();
        for (uint i = 0; i < 8; i++) p[i] = a[(GID + i) & 255] * 3;
        __atomic_fetch_add(&h[a[GID] & 15], p[a[GID] & 7], __ATOMIC_RELAXED); BARRIER();
        o[GID] = h[LID & 15]; }",
    ),
    (
        "lanes, divisions and scalar loads",
        "__kernel void k(__global const uint *a, __global uint *o) {
        uint x = a[GID] + a[3], y = __builtin_amdgcn_readlane(x, 5);
        float d = (float)x / (float)(y | 1); double e = (double)d * a[7];
        x += __builtin_amdgcn_mov_dpp(x, 0x4e, 0xf, 0xf, true) + __builtin_amdgcn_ds_bpermute((LID ^ 1) << 2, y + LID);
        o[GID] = x ^ (uint)e ^ y; }",
    ),
];

const MATRIX: &str = "typedef float f4 __attribute__((ext_vector_type(4))); typedef half h4 __attribute__((ext_vector_type(4)));
    __kernel void k(__global const uint *a, __global uint *o) {
    h4 x, y; for (int i = 0; i < 4; i++) { x[i] = (half)(a[(LID + i) & 255] & 3); y[i] = (half)(a[(LID * 3 + i) & 255] & 3); }
    f4 c = 0; c = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, c, 0, 0, 0);
    h4 z; for (int i = 0; i < 4; i++) z[i] = (half)(c[i] * 0.25f);
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(z, y, c, 0, 0, 0);
    o[GID] = (uint)(c[0] + c[1] + c[2] + c[3]); }";

/// What became of the drops of a kernel.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Noticed by both.
    noticed: usize,
    /// By neither.
    harmless: usize,
    /// By the verifier alone.
    missed_by_run: usize,
    /// By the run alone.
    missed_by_verifier: usize,
    /// Of those noticed: by the run alone, which follows what workgroups tell each other of stores.
    between_groups: usize,
}

impl std::ops::Add for Count {
    type Output = Count;
    fn add(self, o: Count) -> Count {
        Count {
            noticed: self.noticed + o.noticed,
            harmless: self.harmless + o.harmless,
            missed_by_run: self.missed_by_run + o.missed_by_run,
            missed_by_verifier: self.missed_by_verifier + o.missed_by_verifier,
            between_groups: self.between_groups + o.between_groups,
        }
    }
}

/// Leaves out every wait and gap of a kernel in turn; `go` launches it in strict mode without the instruction at an
/// address.
fn drop_each(name: &str, t: Target, elf: &[u8], kernel: &str, go: impl Fn(Option<u64>) -> Result<(), Fault>) -> Count {
    if let Err(f) = go(None) {
        panic!("{name}: strict mode complains of the kernel as it is: {f}");
    }
    if let Some(f) = found(elf, kernel, None) {
        panic!("{name}: the verifier complains of the kernel as it is: {f}");
    }
    let mut count = Count::default();
    for at in droppable(t, elf, kernel) {
        match (found(elf, kernel, Some(at)), go(Some(at))) {
            (Some(_), Err(_)) => count.noticed += 1,
            (None, Ok(())) => count.harmless += 1,
            // Emulated devices do not fault, so that nothing is issued again: the verifier alone knows.
            (Some(f), Ok(())) if f.contains("_clause)") => count.noticed += 1,
            (Some(f), Ok(())) => {
                count.missed_by_run += 1;
                eprintln!("{name}: dropping {at:x} is not reported, but: {f}");
            }
            (None, Err(f)) if f.to_string().contains("memory race") => {
                count.noticed += 1;
                count.between_groups += 1;
            }
            (None, Err(f)) => {
                count.missed_by_verifier += 1;
                eprintln!("{name}: dropping {at:x} is not found, but: {f}");
            }
        }
    }
    count
}

/// Prints and checks the sum.
fn conclude(counts: Vec<Count>, noticed_at_least: usize) {
    let all = sum_of(counts, noticed_at_least);
    assert_eq!((all.missed_by_run, all.missed_by_verifier), (0, 0), "some drops were missed");
}

/// Prints and sums up.
fn sum_of(counts: Vec<Count>, noticed_at_least: usize) -> Count {
    let kernels = counts.len();
    let all = counts.into_iter().fold(Count::default(), |a, b| a + b);
    eprintln!(
        "{kernels} kernels: {} drops noticed ({} between workgroups), {} harmless, {} missed by the run, {} by the verifier",
        all.noticed, all.between_groups, all.harmless, all.missed_by_run, all.missed_by_verifier
    );
    assert!(all.noticed >= noticed_at_least, "only {} drops were noticed", all.noticed);
    all
}

#[test]
fn every_drop_in_kernels_of_clang_is_noticed_or_harmless() {
    if !available() {
        return;
    }
    let mut jobs: Vec<(Target, &str, &str)> = Vec::new();
    for name in [
        "gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1150",
        "gfx1201",
    ] {
        let t = Target::parse(name).unwrap();
        jobs.extend(KERNELS.iter().map(|(what, source)| (t, *what, *source)));
        if matches!(name, "gfx908" | "gfx90a" | "gfx942" | "gfx950") {
            jobs.push((t, "matrix", MATRIX));
        }
    }
    let counts = jobs
        .par_iter()
        .map(|&(t, what, source)| {
            let elf = compile(t, source, &[]);
            let input: Vec<u32> = random(3, 256);
            drop_each(&format!("{what} on {}", t.info().name), t, &elf, "k", |without| {
                let options = LaunchOptions { strict: true, without, single_thread: true, ..LaunchOptions::default() };
                let (mut a, mut o) = (bytes_of_ints(&input), vec![0; 1024]);
                let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut o)];
                run(t, &elf, "k", [1, 1, 1], [256, 1, 1], args, &options).map(drop)
            })
        })
        .collect();
    conclude(counts, 500);
}

/// Compiles a model, with tiles that were chosen for it, and leaves out every wait and gap of each of its kernels.
fn drop_each_of_model(case: &Case, target: &str, tuning: Tuning) -> Vec<Count> {
    with_kernels(case, target, tuning, |name, t, elf, kernel, go| drop_each(name, t, elf, kernel, go))
}

/// Compiles a model, with tiles that were chosen for it, and does something with each of its kernels.
fn with_kernels<R>(
    (what, graph, inputs): &Case,
    target: &str,
    tuning: Tuning,
    with: impl Fn(&str, Target, &[u8], &str, &dyn Fn(Option<u64>) -> Result<(), Fault>) -> R,
) -> Vec<R> {
    let t = Target::parse(target).unwrap();
    let options = barewave::Options { tuning: Arc::new(tuning), ..Default::default() };
    let program = Compiler::new(t, options)
        .without_levels()
        .compile_graph(graph)
        .unwrap_or_else(|e| panic!("{what} on {target}: {e}"));
    let mut seen = BTreeSet::new();
    let counts = launches(t, &program, inputs, |launch, run| {
        let name = format!("{what}, {} on {target}", launch.kernel);
        let go = |without: Option<u64>| {
            let options = LaunchOptions { strict: true, without, single_thread: true, ..LaunchOptions::default() };
            run.go(None, &options)
        };
        seen.insert(launch.kernel.clone()).then(|| with(&name, t, program.code(), &launch.kernel, &go))
    });
    counts.into_iter().flatten().collect()
}

/// A launch that may be run again and again from the same memory.
pub struct Run<'a> {
    device: &'a EmuDevice,
    module: &'a Module,
    launch: &'a Launch,
    args: &'a [u8],
    /// What memory holds before that kernels may write, counters at the end.
    before: Vec<(u64, Vec<u8>)>,
}

impl Run<'_> {
    fn restore(&self) {
        self.before.iter().for_each(|(at, data)| self.device.write(*at, data).unwrap());
    }

    /// Runs it, with another file's code where there is one.
    pub fn go(&self, other: Option<&[u8]>, options: &LaunchOptions) -> Result<(), Fault> {
        self.restore();
        self.begin(other, options)
    }

    /// The same with a counter at a byte that never comes to what is waited for.
    pub fn go_in_vain(&self, byte: u64, other: Option<&[u8]>, options: &LaunchOptions) -> Result<(), Fault> {
        self.restore();
        if let Some((at, _)) = self.before.last() {
            self.device.write(at + byte, &[0x55; 4]).unwrap();
        }
        self.begin(other, options)
    }

    fn begin(&self, other: Option<&[u8]>, options: &LaunchOptions) -> Result<(), Fault> {
        let other = other.map(|elf| self.device.load(elf).unwrap());
        let kernel = other.as_ref().unwrap_or(self.module).kernel(&self.launch.kernel).unwrap();
        self.device.launch(&kernel, self.launch.grid, [self.launch.block, 1, 1], self.args, options).map(drop)
    }

    /// What the last run has left: outputs, intermediate tensors, and counters.
    pub fn left(&self) -> Vec<Vec<u8>> {
        let read = |(at, before): &(u64, Vec<u8>)| {
            let mut data = vec![0; before.len()];
            self.device.read(*at, &mut data).unwrap();
            data
        };
        self.before.iter().map(read).collect()
    }
}

/// Puts a model on a device, and shows each of its launches in turn.
pub fn launches<R>(
    t: Target,
    program: &Compiled,
    inputs: &[HostTensor],
    mut with: impl FnMut(&Launch, &Run) -> R,
) -> Vec<R> {
    let (elf, plan) = (program.code().clone(), program.plan());
    let device = EmuDevice::with_memory(t, 1 << 30).unwrap();
    let module = device.load(&elf).unwrap();
    let alloc = |bytes: u64| device.alloc(bytes.max(1)).unwrap();
    let (arena, weights) = (alloc(plan.arena_bytes), alloc(plan.weights_bytes));
    let counters = alloc(plan.counter_bytes);
    device.write(counters, &vec![0; plan.counter_bytes as usize]).unwrap();
    let ports = |list: &[Port]| -> Vec<(u64, usize)> {
        list.iter().map(|p| p.bytes().unwrap()).map(|bytes| (alloc(bytes as u64), bytes)).collect()
    };
    let (ins, outs) = (ports(&plan.inputs), ports(&plan.outputs));
    let address = |a: &Address| {
        a.offset
            + match a.region {
                Region::Arena => arena,
                Region::Weights => weights,
                Region::Counters => counters,
                Region::Input(i) => ins[i].0,
                Region::Output(i) => outs[i].0,
                Region::Value => 0,
            }
    };
    device.write(weights, program.weights()).unwrap();
    for (port, x) in ins.iter().zip(inputs) {
        device.write(port.0, x.bytes()).unwrap();
    }
    // What kernels write.
    let written: Vec<(u64, usize)> = outs
        .iter()
        .copied()
        .chain([(arena, plan.arena_bytes as usize), (counters, plan.counter_bytes as usize)])
        .collect();
    let mut out = Vec::new();
    for launch in &plan.launches {
        let args: Vec<u8> = launch.args.iter().flat_map(|a| address(a).to_le_bytes()).collect();
        // Results may take the place of operands: every run starts from the same memory.
        let read = |(at, bytes): &(u64, usize)| {
            let mut data = vec![0; *bytes];
            device.read(*at, &mut data).unwrap();
            (*at, data)
        };
        let before = written.iter().map(read).collect();
        let run = Run { device: &device, module: &module, launch, args: &args, before };
        out.push(with(launch, &run));
        let options = LaunchOptions { strict: true, single_thread: true, ..LaunchOptions::default() };
        run.go(None, &options).unwrap();
    }
    out
}

/// Keys each larger than the one before: the maximum rises all the way, and what was summed is scaled anew again and again.
fn rising_keys(b: &mut Builder, keys: usize, size: usize) -> String {
    let mut values = b.random(&[1, 1, keys, size]).to_f32();
    for (i, value) in values.iter_mut().enumerate() {
        *value *= (1 + i / size) as f32;
    }
    b.input_of(HostTensor::from_f32(&[1, 1, keys, size], &values))
}

/// A model and its inputs, with a name.
type Case = (String, FusedGraph, Vec<HostTensor>);

fn case(what: &str, b: Builder) -> Case {
    (what.into(), graph::fuse(&b.model, &Options::default()).unwrap(), b.inputs)
}

/// Models that need every family of kernels: each operator that the tests can make, the digits, and products and
/// convolutions of several tiles.
fn models() -> Vec<Case> {
    let mut models: Vec<Case> = Vec::new();
    let mut add = |what: &str, b: Builder| models.push(case(what, b));
    // Those that come below have loops, which must be long enough to be taken.
    let below = ["ConvTranspose", "Gemm", "MatMul", "InstanceNormalization", "LayerNormalization", "Attention"];
    for op in OPERATORS.into_iter().filter(|op| !below.contains(op)) {
        let mut b = Builder::new(17, 1);
        operator(&mut b, op);
        add(op, b);
    }
    // Deeper than the deepest tile, so that loops go round.
    for (m, k, n, transposed) in [(70, 72, 66, 0), (33, 41, 130, 1), (17, 44, 65, 2), (1, 40, 65, 3)] {
        let mut b = Builder::new(17, 2);
        let (ta, tb) = (transposed & 1, transposed >> 1);
        let x = b.input(&if ta == 1 { [k, m] } else { [m, k] });
        let y = b.input(&if tb == 1 { [n, k] } else { [k, n] });
        let z = b.node("Gemm", &[&x, &y], &[("transA", int(ta)), ("transB", int(tb))]);
        b.output(&z);
        add(&format!("Gemm {m}x{k}x{n}"), b);
    }
    // The last one's depth is shared among workgroups.
    for (batch, m, k, n) in [(2, 9, 72, 33), (1, 5, 33, 17), (1, 9, 700, 33)] {
        let mut b = Builder::new(17, 2);
        let (x, y) = (b.input(&[batch, m, k]), b.input(&[batch, k, n]));
        let z = b.node("MatMul", &[&x, &y], &[]);
        b.output(&z);
        add(&format!("MatMul {m}x{k}x{n}"), b);
    }
    for (channels, groups) in [(20, 1), (40, 2)] {
        let mut b = Builder::new(17, 3);
        let (x, w, bias) = (b.input(&[2, channels, 5, 7]), b.weight(&[channels, 9, 2, 3]), b.weight(&[9 * groups]));
        let attributes = [("strides", ints(&[2, 2])), ("group", int(groups as i64)), ("output_padding", ints(&[0, 1]))];
        let z = b.node("ConvTranspose", &[&x, &w, &bias], &attributes);
        b.output(&z);
        add(&format!("ConvTranspose of {channels} channels"), b);
    }
    for op in ["InstanceNormalization", "LayerNormalization"] {
        let mut b = Builder::new(17, 5);
        let x = b.input(&[1, 2, 20, 31]);
        let shape: &[usize] = if op == "InstanceNormalization" { &[2] } else { &[20, 31] };
        let (s, t) = (b.weight(shape), b.weight(shape));
        let attributes = if op == "InstanceNormalization" { vec![] } else { vec![("axis", int(2))] };
        let y = b.node(op, &[&x, &s, &t], &attributes);
        b.output(&y);
        add(op, b);
    }
    // So many keys that workgroups that share them have several tiles each.
    let mut b = Builder::new(17, 6);
    let (q, k, v) = (b.input(&[1, 2, 150, 20]), rising_keys(&mut b, 4500, 20), b.input(&[1, 1, 4500, 18]));
    let y = b.node("Attention", &[&q, &k, &v], &[("is_causal", int(1))]);
    b.output(&y);
    add("Attention", b);
    // Keys that are shared among workgroups; so large that products take several rounds. (With 72 elements the stores that others read behind
    // a barrier are so many that a counter of 15, full, has waited for them: no run shows that the wait is missing.)
    let mut b = Builder::new(17, 7);
    let (q, k, v) = (b.input(&[1, 2, 1, 40]), rising_keys(&mut b, 4500, 40), b.input(&[1, 1, 4500, 18]));
    let y = b.node("Attention", &[&q, &k, &v], &[]);
    b.output(&y);
    add("Attention of a query", b);
    for (shape, cout, groups, k, stride) in
        [([1, 3, 13, 11], 40, 1, 3, 2), ([1, 72, 9, 9], 20, 1, 1, 1), ([1, 12, 9, 9], 12, 12, 3, 1)]
    {
        let mut b = Builder::new(17, 3);
        let x = b.input(&shape);
        let (w, bias) = (b.weight(&[cout, shape[1] / groups, k, k]), b.weight(&[cout]));
        let attributes = [("group", int(groups as i64)), ("strides", ints(&[stride; 2])), ("pads", ints(&[k / 2; 4]))];
        let y = b.node("Conv", &[&x, &w, &bias], &attributes);
        let y = b.node("Relu", &[&y], &[]);
        b.output(&y);
        add(&format!("Conv {shape:?}"), b);
    }
    for op in ["Softmax", "ReduceMean", "GlobalAveragePool"] {
        let mut b = Builder::new(17, 4);
        let x = b.input(&[1, 2, 1, 700]);
        let attributes = if op.starts_with("Reduce") { vec![("axes", ints(&[1, 3]))] } else { vec![] };
        let y = b.node(op, &[&x], &attributes);
        b.output(&y);
        add(&format!("{op} of long rows"), b);
    }
    // Programs, whose neighbours go together.
    let mut b = Builder::new(24, 5);
    let (cache, new) = (b.input(&[2, 2, 9, 8]), b.input(&[2, 2, 3, 8]));
    let starts = b.input_of(HostTensor::from_i64(&[2], &[6, 1]));
    let y = b.node("TensorScatter", &[&cache, &new, &starts], &[("axis", int(2))]);
    b.output(&y);
    add("TensorScatter", b);
    // Packed weights: of a product whose rows are normalised, and of two that are gated.
    for gated in [false, true] {
        let mut b = Builder::new(17, 23);
        let x = b.input(&[2, 96]);
        let scale = b.weight(&[96]);
        let rows = if gated { x } else { b.node("LayerNormalization", &[&x, &scale], &[]) };
        let mut packed = || {
            let numbers: Vec<i64> = (0..7 * 6 * 8).map(|_| b.below(256) as i64).collect();
            let weights = b.constant(HostTensor::from_ints(DType::U8, &[7, 6, 8], &numbers));
            let scales = b.weight(&[7, 6]);
            let attributes = [("K", 96), ("N", 7), ("bits", 4), ("block_size", 16)].map(|(a, v)| (a, int(v)));
            let y = b.node("MatMulNBits", &[&rows, &weights, &scales], &attributes);
            b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
            y
        };
        let mut y = packed();
        if gated {
            let up = packed();
            let gate = b.node("Sigmoid", &[&y], &[]);
            y = b.node("Mul", &[&gate, &up], &[]);
        }
        b.output(&y);
        b.model.opsets.insert("com.microsoft".into(), 1);
        add(if gated { "Packed products, gated" } else { "Packed product with its norm" }, b);
    }
    for (shape, along) in [([3, 700], 1), ([300, 5], 0)] {
        let mut b = Builder::new(21, 9);
        let x = b.input(&shape);
        let axis = b.constant(HostTensor::from_i64(&[], &[along]));
        let y = b.node("CumSum", &[&x, &axis], &[]);
        b.output(&y);
        add(if along == 0 { "CumSum of columns" } else { "CumSum of lines" }, b);
    }
    for (shape, along, dtype) in [([24, 700], 1, DType::F16), ([70, 24], 0, DType::F32)] {
        let mut b = Builder::new(17, 10);
        // Of every fourth line all are equal, of others the best are anywhere.
        let value = |i: usize| {
            let (line, at) = if along == 1 { (i / shape[1], i % shape[1]) } else { (i % shape[1], i / shape[1]) };
            if line % 4 == 0 { 5.0 } else { ((at * 7919 + line * 104_729) % 997) as f64 }
        };
        let data: Vec<f64> = (0..shape.iter().product()).map(value).collect();
        let x = b.input_of(HostTensor::from_f64(dtype, &shape, &data));
        let k = b.ints(&[9]);
        let places = b.node_n("TopK", &[&x, &k], &[("axis", int(along))], 2).remove(1);
        b.output(&places);
        add(if along == 0 { "TopK of columns" } else { "TopK of lines" }, b);
    }
    let digits = Model::load(Path::new("examples/digits/digits.onnx")).unwrap();
    let digits = graph::fuse(&digits, &Options::default()).unwrap();
    models.push(("digits".into(), digits, vec![HostTensor::from_f32(&[1, 1, 8, 8], &[0.5; 64])]));
    models
}

/// Lines so long that workgroups have pieces of them.
fn long_lines() -> Vec<Case> {
    let mut sums = Builder::new(17, 4);
    let x = sums.input(&[2, 3 * 8192]);
    let axis = sums.constant(HostTensor::from_i64(&[], &[1]));
    let y = sums.node("CumSum", &[&x, &axis], &[]);
    sums.output(&y);
    let sums = case("CumSum whose workgroups wait", sums);
    [("Softmax", 1 << 16), ("LayerNormalization", 1 << 16), ("DynamicQuantizeLinear", 9000)]
        .map(|(op, length)| {
            let mut b = Builder::new(17, 4);
            let x = b.input(&[1, length]);
            let y = match op {
                "LayerNormalization" => {
                    let scale = b.weight(&[length]);
                    b.node(op, &[&x, &scale], &[])
                }
                _ => b.node_n(op, &[&x], &[], if op == "Softmax" { 1 } else { 3 }).swap_remove(0),
            };
            b.output(&y);
            case(&format!("{op} in pieces"), b)
        })
        .into_iter()
        .chain([sums])
        .collect()
}

/// Products on targets of each kind of product loop, on chips of few units and with few rounds, so that a run is quick: shares of
/// more than a tile, and tiles of more than a share.
const DIVIDED: [(&str, DType, [usize; 3]); 8] = [
    ("gfx902", DType::F32, [70, 450, 72]),
    ("gfx902", DType::F16, [70, 66, 528]),
    ("gfx908", DType::F32, [136, 136, 808]),
    ("gfx90a", DType::BF16, [136, 264, 1600]),
    ("gfx942", DType::F16, [264, 136, 2624]),
    ("gfx1036", DType::F32, [40, 130, 200]),
    ("gfx1103", DType::F32, [70, 450, 72]),
    ("gfx1200", DType::F32, [70, 133, 424]),
];

/// Products of narrow types, by the best tile and by the largest one: operands in LDS once and twice, results as lanes have them and in
/// whole rows. Floats of 8 bits are widened, where there are instructions for them in name only.
const NARROW: [(&str, DType, [usize; 4]); 12] = [
    ("gfx908", DType::I8, [1, 140, 136, 200]),
    ("gfx90a", DType::F16, [1, 140, 136, 200]),
    ("gfx942", DType::F8E4M3Z, [1, 140, 136, 260]),
    ("gfx942", DType::BF16, [12, 250, 252, 40]),
    ("gfx950", DType::F8E4M3, [1, 140, 136, 520]),
    ("gfx950", DType::F16, [12, 250, 252, 40]),
    ("gfx950", DType::F16, [1, 140, 192, 448]),
    ("gfx950", DType::I8, [1, 140, 128, 640]),
    ("gfx950", DType::F8E4M3, [1, 140, 128, 640]),
    ("gfx1100", DType::F16, [1, 140, 136, 200]),
    ("gfx1201", DType::F8E5M2, [1, 140, 136, 300]),
    ("gfx1201", DType::BF16, [1, 140, 136, 300]),
];

/// Products whose waves share the depth, with rows and columns left over, on targets of each kind of matrix instruction.
const SLICED: [(&str, DType, [usize; 4]); 6] = [
    ("gfx908", DType::F32, [1, 37, 92, 768]),
    ("gfx90a", DType::I8, [1, 70, 48, 1024]),
    ("gfx942", DType::F16, [1, 37, 92, 1536]),
    ("gfx950", DType::BF16, [2, 70, 48, 1024]),
    ("gfx1100", DType::F16, [1, 37, 92, 768]),
    ("gfx1201", DType::F16, [1, 37, 92, 1536]),
];

/// A product of a type.
fn product_of(dtype: DType, [batches, m, n, k]: [usize; 4]) -> Case {
    let mut b = Builder::new(21, 8);
    let mut side = |shape: [usize; 3]| {
        let wide: Vec<f64> = b.random(&shape).to_f64();
        let values: Vec<f64> = match dtype {
            DType::I8 => wide.iter().map(|v| (v * 90.0).round().clamp(-128.0, 127.0)).collect(),
            _ => wide,
        };
        let name = b.input_of(HostTensor::from_f64(dtype, &shape, &values));
        let float = dtype.is_float() && dtype.size() == 1;
        if float { b.node("Cast", &[&name], &[("to", int(DType::F32.to_onnx().into()))]) } else { name }
    };
    let (x, y) = (side([batches, m, k]), side([batches, k, n]));
    let z = b.node(if dtype == DType::I8 { "MatMulInteger" } else { "MatMul" }, &[&x, &y], &[]);
    b.output(&z);
    case(&format!("{dtype} {batches}x{m}x{n}x{k}"), b)
}

/// Drops of each kernel that are noticed at least, about: a third of the products is drawn.
const OF_EACH: usize = 30;

/// Behind the last round a wave regroups results in its own part of LDS: that waves meet there with loads outstanding, which the verifier
/// refuses wherever they meet, harms a run only where parts overlap.
#[test]
fn every_drop_in_products_of_narrow_types_is_found() {
    let mut jobs = Vec::new();
    for (target, dtype, extents) in NARROW {
        let case = product_of(dtype, extents);
        let chip = Target::parse(target).unwrap();
        let graph = joined(&case.1, chip, &Tuning::default()).unwrap_or(case.1.clone());
        let considered = candidates(&graph, &graph.steps[0], chip, &Tuning::default()).unwrap();
        let whole = || considered.candidates.iter().filter(|c| c.parts == 1);
        let largest = whole().max_by_key(|c| c.tile[0] * c.tile[1]);
        for (which, candidate) in [("best", whole().next()), ("largest", largest)] {
            let candidate = candidate.unwrap_or_else(|| panic!("{} on {target}: no tile", case.0));
            let name = format!("{} by {:?}, the {which}", case.0, candidate.tile);
            if drawn(&format!("{name} {target}")) {
                let mut tuning = Tuning::default();
                tuning.insert(considered.product.clone(), Tuned::from(candidate));
                jobs.push(((name, case.1.clone(), case.2.clone()), target, tuning));
            }
        }
    }
    let dropped = |(case, target, tuning): (Case, &str, Tuning)| drop_each_of_model(&case, target, tuning);
    let least = OF_EACH * jobs.len();
    let all = sum_of(jobs.into_par_iter().flat_map(dropped).collect(), least);
    assert_eq!(all.missed_by_verifier, 0, "some drops were missed");
    assert!(all.missed_by_run < all.noticed / 50, "{} of {} drops harm no run", all.missed_by_run, all.noticed);
}

/// Waves that fill LDS straight from memory meet between what reads a tile and what fills its place: strict mode reports it wherever they do not,
/// but behind the loop, where nobody uses LDS again.
#[test]
fn waves_that_fill_lds_from_memory_have_to_meet() {
    for (dtype, extents) in
        [(DType::F16, [1, 300, 320, 1024]), (DType::I8, [1, 300, 384, 2048]), (DType::F8E4M3, [1, 300, 384, 2048])]
    {
        let (case, chip) = (product_of(dtype, extents), Target::parse("gfx950").unwrap());
        let graph = joined(&case.1, chip, &Tuning::default()).unwrap_or(case.1.clone());
        let considered = candidates(&graph, &graph.steps[0], chip, &Tuning::default()).unwrap();
        let whole = considered.candidates.iter().filter(|c| c.parts == 1);
        let mut tuning = Tuning::default();
        let largest = whole.max_by_key(|c| c.tile[0] * c.tile[1]).unwrap();
        tuning.insert(considered.product.clone(), Tuned::from(largest));
        let met = with_kernels(&case, "gfx950", tuning, |name, t, elf, kernel, go| {
            let fills = addresses(t, elf, kernel, |inst| t.loads_to_lds(inst.op, &inst.mods));
            assert!(!fills.is_empty(), "{name} loads nothing to LDS");
            go(None).unwrap_or_else(|f| panic!("{name}: {f}"));
            let barriers = addresses(t, elf, kernel, |inst| inst.op == op::S_BARRIER);
            let (last, within) = barriers.split_last().unwrap();
            assert!(last > fills.last().unwrap(), "{name}");
            for at in within {
                let fault =
                    go(Some(*at)).err().unwrap_or_else(|| panic!("{name}: nobody misses the barrier at {at:x}"));
                assert!(fault.to_string().contains("LDS"), "{name}, {at:x}: {fault}");
            }
            within.len()
        });
        assert!(met[0] > 2, "{met:?}");
    }
}

/// A product by the smallest tile that can be divided in equal shares.
fn divided(dtype: DType, extents: [usize; 3], target: &str) -> (Case, Tuning) {
    let [m, n, k] = extents;
    let mut b = Builder::new(17, 6);
    let mut side = |shape: [usize; 2]| {
        let values: Vec<f64> =
            b.random(&shape).to_f64().iter().map(|v| (v * 90.0).round().clamp(-128.0, 127.0)).collect();
        b.input_of(HostTensor::from_f64(dtype, &shape, &values))
    };
    let (x, y) = (side([m, k]), side([k, n]));
    let z = b.node(if dtype == DType::I8 { "MatMulInteger" } else { "MatMul" }, &[&x, &y], &[]);
    b.output(&z);
    let case = case(&format!("{dtype} {m}x{n}x{k} in equal shares"), b);
    let chip = Target::parse(target).unwrap();
    let considered = candidates(&case.1, &case.1.steps[0], chip, &Tuning::default()).unwrap();
    let divisible = considered.candidates.iter().filter(|c| c.parts == EQUAL_SHARES);
    let smallest = divisible.min_by_key(|c| c.tile[0] * c.tile[1]);
    let smallest = smallest.unwrap_or_else(|| panic!("{} on {target}: nothing that can be divided", case.0));
    let mut tuning = Tuning::default();
    tuning.insert(considered.product.clone(), Tuned::from(smallest));
    (case, tuning)
}

/// The smallest tile with a whole depth, and with one that workgroups share as well.
#[test]
fn every_drop_in_products_whose_waves_share_the_depth_is_found() {
    let mut jobs = Vec::new();
    for (target, dtype, extents) in SLICED {
        let case = product_of(dtype, extents);
        let considered =
            candidates(&case.1, &case.1.steps[0], Target::parse(target).unwrap(), &Tuning::default()).unwrap();
        let sliced = || considered.candidates.iter().filter(|c| c.way == Way::Slices);
        for shared in [false, true] {
            let smallest = sliced().filter(|c| (c.parts > 1) == shared).min_by_key(|c| c.tile[0] * c.tile[1]);
            let Some(candidate) = smallest else { continue };
            let mut tuning = Tuning::default();
            tuning.insert(considered.product.clone(), Tuned::from(candidate));
            let name = format!("{} by slices of {:?} in {}", case.0, candidate.tile, candidate.parts);
            jobs.push(((name, case.1.clone(), case.2.clone()), target, tuning));
        }
    }
    assert!(jobs.len() > SLICED.len(), "{} products", jobs.len());
    let dropped = |(case, target, tuning): (Case, &str, Tuning)| drop_each_of_model(&case, target, tuning);
    let all = sum_of(jobs.into_par_iter().flat_map(dropped).collect(), 300);
    assert_eq!(all.missed_by_verifier, 0, "some drops were missed");
    assert!(all.missed_by_run < all.noticed / 50, "{} of {} drops harm no run", all.missed_by_run, all.noticed);
}

/// The verifier must find all that a run shows. The other way round there are paths that no workgroup of a shape takes: where a share
/// is less than a tile nobody has a whole one, and where it is more nobody adds three parts.
#[test]
fn every_drop_in_lines_in_pieces_and_divided_products_is_found() {
    let lines = long_lines();
    let mut jobs: Vec<(Case, &str, Tuning)> = Vec::new();
    for case in &lines {
        jobs.extend(["gfx906", "gfx942", "gfx1100", "gfx1201"].map(|t| (case.clone(), t, Tuning::default())));
    }
    for (target, dtype, extents) in DIVIDED {
        let (case, tuning) = divided(dtype, extents, target);
        jobs.push((case, target, tuning));
    }
    jobs.reverse(); // the longest first
    let counts: Vec<Count> = jobs
        .into_par_iter()
        .flat_map(|(case, target, tuning)| {
            let counts = drop_each_of_model(&case, target, tuning);
            let two = case.0.contains("pieces");
            assert_eq!(counts.len(), 1 + usize::from(two), "{} on {target}: kernels", case.0);
            counts
        })
        .collect();
    let all = sum_of(counts, 600);
    assert_eq!(all.missed_by_verifier, 0, "some drops were missed");
    assert!(
        all.missed_by_run < all.noticed / 20,
        "{} of {} drops are on paths that nobody takes",
        all.missed_by_run,
        all.noticed
    );
}

#[test]
fn every_drop_in_our_kernels_is_noticed_or_harmless() {
    let models = models();
    let kinds: BTreeSet<&str> = models.iter().flat_map(|m| m.1.steps.iter().map(|s| s.kind.name())).collect();
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["conv", "matmul", "normalize", "packed", "pointwise", "pool", "program", "reduce", "scan", "softmax", "topk"],
        "every family of kernels"
    );
    let jobs = models.iter().flat_map(|m| TARGETS.map(|t| (m, t))).filter(|(m, t)| drawn(&format!("{} {t}", m.0)));
    let jobs: Vec<_> = jobs.collect();
    let counts: Vec<Count> =
        jobs.par_iter().flat_map(|(case, t)| drop_each_of_model(case, t, Tuning::default())).collect();
    conclude(counts, 1000);
}
