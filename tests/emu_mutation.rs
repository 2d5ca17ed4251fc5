//! Strict mode notices every wait and every gap that is taken away, unless it was not needed.
//!
//! Each wait and each gap (`s_nop`, `v_nop`, a wait for the ALUs) of a kernel, ours or clang's, is left out in turn
//! ([`LaunchOptions::without`]). Whether it was needed is decided by the compiler's static verifiers
//! (`passes::waits::verify`, `passes::hazards::verify`), which look at the lifted machine code and not at a run: what
//! they accept without the instruction, something else covers. Everything else must be reported, and the kernel as it is
//! must not be.

mod clang;
mod support;

use barewave::codeobj::ElfFile;
use barewave::compile::compile as compile_graph;
use barewave::emu::{EmuDevice, Fault, LaunchOptions};
use barewave::graph::fused::FusedGraph;
use barewave::graph::{self, Options};
use barewave::mir::{Block, BlockId, Function, MInst, Opnd, Order, Preloads};
use barewave::onnx::Model;
use barewave::passes::{hazards, waits};
use barewave::runtime::plan::{Address, Region};
use barewave::tensor::HostTensor;
use barewave_isa::{Decoder, Flags, Mode, Op, Operand, Target, op};
use clang::*;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use support::build::{Builder, int, ints};
use support::device::{self, TARGETS};
use support::generate::{OPERATORS, operator};

/// An instruction of a kernel: address, machine IR, branch target, is a wait or a gap.
struct Line {
    at: u64,
    inst: MInst,
    target: Option<u64>,
    ends: bool,
    droppable: bool,
}

fn lines(t: Target, elf: &[u8], kernel: &str) -> Vec<Line> {
    let file = ElfFile::parse(elf).unwrap();
    let k = file.kernel(kernel).unwrap();
    let code = file.file_range(k.entry, k.code_size).unwrap();
    let mode = Mode { wave64: !k.descriptor.wave32(), ..Mode::of(t) };
    let decoder = Decoder::new(t, mode);
    let (mut at, mut out) = (code.start, Vec::new());
    while at < code.end {
        let raw = decoder.decode(&elf[at..code.end]).unwrap();
        let inst = raw.inst();
        let address = k.entry + (at - code.start) as u64;
        let info = t.op(inst.op).unwrap();
        let label = match inst.srcs.last() {
            Some(Operand::Imm(v)) if info.flags.has(Flags::BRANCH) => {
                Some((address + raw.len() as u64).wrapping_add_signed(*v as i64 * 4))
            }
            _ => None,
        };
        out.push(Line {
            at: address,
            inst: waits::lift(inst.clone()),
            target: label,
            ends: info.flags.has(Flags::BRANCH) || info.flags.has(Flags::TERMINATOR),
            droppable: matches!(inst.op, op::S_NOP | op::V_NOP | op::S_WAITCNT_DEPCTR)
                || t.decode_wait(&inst).is_some(),
        });
        at += raw.len();
    }
    // What follows the last s_endpgm is padding.
    let end = out.iter().rposition(|l| l.inst.code == op::S_ENDPGM.into()).map_or(out.len(), |n| n + 1);
    out.truncate(end);
    out
}

/// The kernel in machine IR, with line `without` left out.
fn lifted(t: Target, lines: &[Line], without: Option<usize>) -> Function {
    let mut starts: Vec<u64> = lines.iter().filter_map(|l| l.target).collect();
    starts.push(lines[0].at);
    starts.extend(lines.windows(2).filter(|w| w[0].ends).map(|w| w[1].at));
    starts.sort_unstable();
    starts.dedup();
    let mut blocks: Vec<Block> = starts
        .iter()
        .map(|s| Block { name: format!("at_{s:x}"), insts: Vec::new(), order: Order::Fixed, comment: String::new() })
        .collect();
    for (n, l) in lines.iter().enumerate() {
        if without == Some(n) {
            continue;
        }
        let mut inst = l.inst.clone();
        if let Some(target) = l.target {
            let block = starts.binary_search(&target).expect("a branch inside of the kernel");
            *inst.srcs.last_mut().unwrap() = Opnd::Block(BlockId(block as u32));
        }
        let block = starts.partition_point(|s| *s <= l.at) - 1;
        blocks[block].insts.push(inst);
    }
    Function {
        name: "k".into(),
        comment: String::new(),
        target: t,
        vregs: Vec::new(),
        blocks,
        loops: Vec::new(),
        preloads: Preloads::default(),
        lds_bytes: 0,
        kernarg_bytes: 0,
        workgroup_size: 256,
        scratch_bytes: 0,
    }
}

/// What the static verifiers say; `gaps` asks the one for gaps too.
fn verdict(f: &Function, gaps: bool) -> Result<(), String> {
    // No kernel here has generic pointers: flat accesses, all that gfx8 has, go to memory and not to LDS.
    let mut to_memory = f.clone();
    for inst in to_memory.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        if let Some(name) = inst.op().and_then(|op| op.name().strip_prefix("flat_")) {
            inst.code = Op::by_name(&format!("buffer_{name}")).unwrap().into();
        }
    }
    waits::verify(&to_memory).map_err(|e| e.to_string())?;
    if gaps { hazards::verify(f).map_err(|e| e.to_string()) } else { Ok(()) }
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
    reported: usize,
    harmless: usize,
    missed: usize,
}

impl std::ops::Add for Count {
    type Output = Count;
    fn add(self, o: Count) -> Count {
        Count {
            reported: self.reported + o.reported,
            harmless: self.harmless + o.harmless,
            missed: self.missed + o.missed,
        }
    }
}

/// Leaves out every wait and gap of a kernel in turn; `go` launches it in strict mode without the instruction at an
/// address. `None` when the verifiers do not accept the kernel as it is.
fn drop_each(
    name: &str,
    t: Target,
    elf: &[u8],
    kernel: &str,
    go: impl Fn(Option<u64>) -> Result<(), Fault>,
) -> Option<Count> {
    if let Err(f) = go(None) {
        panic!("{name}: strict mode complains of the kernel as it is: {f}");
    }
    let lines = lines(t, elf, kernel);
    let original = lifted(t, &lines, None);
    // A verifier that asks for more than clang gives cannot judge (gfx12's scalar dependencies).
    let gaps = verdict(&original, true).is_ok();
    if let Err(e) = verdict(&original, gaps) {
        eprintln!("{name}: the static verifiers ask for more: {e}");
        return None;
    }
    let mut count = Count::default();
    for (n, l) in lines.iter().enumerate().filter(|(_, l)| l.droppable) {
        let needed = verdict(&lifted(t, &lines, Some(n)), gaps);
        match (&needed, go(Some(l.at))) {
            (_, Err(_)) => count.reported += 1,
            (Ok(()), Ok(())) => count.harmless += 1,
            (Err(e), Ok(())) => {
                count.missed += 1;
                eprintln!("{name}: dropping {:x} is not reported, but: {e}", l.at);
            }
        }
    }
    Some(count)
}

/// Prints and checks the sum.
fn conclude(counts: Vec<Option<Count>>, reported_at_least: usize) {
    let judged = counts.iter().flatten().count();
    let all = counts.into_iter().flatten().fold(Count::default(), |a, b| a + b);
    eprintln!(
        "{judged} kernels: {} drops reported, {} shown harmless, {} missed",
        all.reported, all.harmless, all.missed
    );
    assert!(all.reported >= reported_at_least, "only {} drops were reported", all.reported);
    assert_eq!(all.missed, 0, "some drops were missed");
}

#[test]
fn every_drop_in_kernels_of_clang_is_reported_or_harmless() {
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

/// Compiles a model and leaves out every wait and gap of each of its kernels.
fn drop_each_of_model(what: &str, graph: &FusedGraph, inputs: &[HostTensor], target: &str) -> Vec<Option<Count>> {
    if let Err(e) = device::run(graph, inputs, target, true) {
        panic!("{what} on {target}: {e}");
    }
    let t = Target::parse(target).unwrap();
    let program = compile_graph(graph, t).unwrap();
    let (elf, plan) = (program.code().unwrap(), &program.plan);
    let device = EmuDevice::with_memory(t, 1 << 30).unwrap();
    let module = device.load(&elf).unwrap();
    let (arena, weights) = (device.alloc(plan.arena_bytes).unwrap(), device.alloc(plan.weights_bytes).unwrap());
    let address = |a: &Address| a.offset + if a.region == Region::Arena { arena } else { weights };
    device.write(weights, &program.weights).unwrap();
    for (port, x) in plan.inputs.iter().zip(inputs) {
        device.write(address(&port.address), x.bytes()).unwrap();
    }
    let mut seen = BTreeSet::new();
    let mut counts = Vec::new();
    for launch in &plan.launches {
        let kernel = module.kernel(&launch.kernel).unwrap();
        let args: Vec<u8> = launch.args.iter().flat_map(|a| address(a).to_le_bytes()).collect();
        let go = |without: Option<u64>| {
            let options = LaunchOptions { strict: true, without, single_thread: true, ..LaunchOptions::default() };
            device.launch(&kernel, launch.grid, [launch.block, 1, 1], &args, &options).map(drop)
        };
        if seen.insert(&launch.kernel) {
            // Results may take the place of operands: every run starts from the same memory.
            let mut before = vec![0; plan.arena_bytes as usize];
            device.read(arena, &mut before).unwrap();
            let name = format!("{what}, {} on {target}", launch.kernel);
            counts.push(drop_each(&name, t, &elf, &launch.kernel, |without| {
                device.write(arena, &before).unwrap();
                go(without)
            }));
            device.write(arena, &before).unwrap();
        }
        go(None).unwrap();
    }
    counts
}

/// Models that need every family of kernels: each operator that the tests can make, the digits, and products and
/// convolutions of several tiles.
fn models() -> Vec<(String, FusedGraph, Vec<HostTensor>)> {
    let mut models: Vec<(String, Model, Vec<HostTensor>)> = Vec::new();
    let mut add = |what: &str, b: Builder| models.push((what.into(), b.model, b.inputs));
    // Those that come below have loops, which must be long enough to be taken.
    let below = ["Gemm", "MatMul", "InstanceNormalization", "LayerNormalization", "Attention"];
    for op in OPERATORS.into_iter().filter(|op| !below.contains(op)) {
        let mut b = Builder::new(17, 1);
        operator(&mut b, op);
        add(op, b);
    }
    for (m, k, n, transposed) in [(70, 20, 66, 0), (33, 9, 130, 1), (17, 12, 65, 2), (1, 40, 65, 3)] {
        let mut b = Builder::new(17, 2);
        let (ta, tb) = (transposed & 1, transposed >> 1);
        let x = b.input(&if ta == 1 { [k, m] } else { [m, k] });
        let y = b.input(&if tb == 1 { [n, k] } else { [k, n] });
        let z = b.node("Gemm", &[&x, &y], &[("transA", int(ta)), ("transB", int(tb))]);
        b.output(&z);
        add(&format!("Gemm {m}x{k}x{n}"), b);
    }
    for (batch, m, k, n) in [(2, 9, 20, 33), (1, 5, 33, 17)] {
        let mut b = Builder::new(17, 2);
        let (x, y) = (b.input(&[batch, m, k]), b.input(&[batch, k, n]));
        let z = b.node("MatMul", &[&x, &y], &[]);
        b.output(&z);
        add(&format!("MatMul {m}x{k}x{n}"), b);
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
    let mut b = Builder::new(17, 6);
    let (q, k, v) = (b.input(&[1, 2, 20, 20]), b.input(&[1, 1, 24, 20]), b.input(&[1, 1, 24, 18]));
    let y = b.node("Attention", &[&q, &k, &v], &[("is_causal", int(1))]);
    b.output(&y);
    add("Attention", b);
    for (shape, cout, groups, k, stride) in
        [([1, 3, 13, 11], 40, 1, 3, 2), ([1, 20, 9, 9], 20, 1, 1, 1), ([1, 12, 9, 9], 12, 12, 3, 1)]
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
    let digits = Model::load(Path::new("examples/digits/digits.onnx")).unwrap();
    models.push(("digits".into(), digits, vec![HostTensor::from_f32(&[1, 1, 8, 8], &[0.5; 64])]));
    let fuse = |m: &Model| graph::fuse(m, &Options::default()).unwrap();
    models.into_iter().map(|(what, model, inputs)| (what, fuse(&model), inputs)).collect()
}

#[test]
fn every_drop_in_our_kernels_is_reported_or_harmless() {
    let models = models();
    let kinds: BTreeSet<&str> = models.iter().flat_map(|m| m.1.steps.iter().map(|s| s.kind.name())).collect();
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["conv", "matmul", "normalize", "pointwise", "pool", "reduce", "softmax"],
        "every family of kernels"
    );
    let jobs: Vec<_> = models.iter().flat_map(|m| TARGETS.map(|t| (m, t))).collect();
    let counts: Vec<Option<Count>> =
        jobs.par_iter().flat_map(|((what, graph, inputs), t)| drop_each_of_model(what, graph, inputs, t)).collect();
    assert!(counts.iter().all(Option::is_some), "the verifiers reject our own kernels");
    conclude(counts, 1000);
}
