//! Strict mode notices every wait and every gap that is taken away, unless it was not needed.
//!
//! Each wait and each `s_nop` of a kernel is left out in turn ([`LaunchOptions::without`]). Whether it was needed is
//! decided by the compiler's static verifiers (`passes::waits::verify`, `passes::hazards::verify`), which share no code
//! with strict mode, on the lifted machine code: what they accept without the instruction, something else covers.
//! Everything else must be reported, and the kernel as it is must not be.

mod clang;

use barewave::codeobj::ElfFile;
use barewave::emu::LaunchOptions;
use barewave::mir::{Block, BlockId, Function, MInst, Opnd, Preloads};
use barewave::passes::{hazards, waits};
use barewave_isa::{Decoder, Flags, Mode, Operand, Target, op};
use clang::*;
use rayon::prelude::*;

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
            droppable: inst.op == op::S_NOP || t.decode_wait(&inst).is_some(),
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
        .map(|s| Block { name: format!("at_{s:x}"), insts: Vec::new(), pinned: true, comment: String::new() })
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
        preloads: Preloads::default(),
        lds_bytes: 0,
        kernarg_bytes: 0,
        workgroup_size: 256,
        scratch_bytes: 0,
    }
}

/// What the static verifiers say; `gaps` asks the one for gaps too.
fn verdict(f: &Function, gaps: bool) -> Result<(), String> {
    waits::verify(f).map_err(|e| e.to_string())?;
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

#[test]
fn every_wait_and_gap_that_is_needed_is_reported_when_dropped() {
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
    let totals: Vec<[usize; 3]> = jobs
        .par_iter()
        .map(|&(t, what, source)| {
            let name = format!("{what} on {}", t.info().name);
            let elf = compile(t, source, &[]);
            let input: Vec<u32> = random(3, 256);
            let go = |without: Option<u64>| {
                let options = LaunchOptions { strict: true, without, single_thread: true, ..LaunchOptions::default() };
                let (mut a, mut o) = (bytes_of_ints(&input), vec![0; 1024]);
                let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut o)];
                run(t, &elf, "k", [1, 1, 1], [256, 1, 1], args, &options)
            };
            if let Err(f) = go(None) {
                panic!("{name}: strict mode complains of the kernel as clang wrote it: {f}");
            }
            let lines = lines(t, &elf, "k");
            let original = lifted(t, &lines, None);
            // A verifier that asks for more than clang gives cannot judge (gfx12's scalar dependencies).
            let gaps = verdict(&original, true).is_ok();
            if let Err(e) = verdict(&original, gaps) {
                eprintln!("{name}: the static verifiers ask for more than clang gives: {e}");
                return [0, 0, 0];
            }
            let mut count = [0; 3];
            for (n, l) in lines.iter().enumerate().filter(|(_, l)| l.droppable) {
                let needed = verdict(&lifted(t, &lines, Some(n)), gaps);
                let reported = go(Some(l.at));
                match (&needed, &reported) {
                    (_, Err(_)) => count[0] += 1,
                    (Ok(()), Ok(_)) => count[1] += 1,
                    (Err(e), Ok(_)) => {
                        count[2] += 1;
                        eprintln!("{name}: dropping {:x} is not reported, but: {e}", l.at);
                    }
                }
            }
            count
        })
        .collect();
    let sum = |i: usize| totals.iter().map(|c| c[i]).sum::<usize>();
    let judged = totals.iter().filter(|c| c[0] + c[1] + c[2] > 0).count();
    eprintln!("{} kernels: {} drops reported, {} shown harmless, {} missed", judged, sum(0), sum(1), sum(2));
    assert!(sum(0) > 200, "only {} drops were reported", sum(0));
    assert_eq!(sum(2), 0, "some drops were missed");
}
