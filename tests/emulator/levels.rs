//! Every instruction that levels add to kernels is needed: without it, or with a number in it that is one more, strict mode, the static verifier, the result or the counters
//! tell.
//!
//! What no emulated device shows, which has no caches, no other waves to get in the way of, and memory all of whose addresses have the same upper half: drops of caches and
//! waits for them, that waves sleep between two looks, and carries of addresses. Ids that a kernel does not ask for, and waits for what it has waited for, are not needed.

use crate::mutation::{found, launches};
use crate::support::build::{Builder, int};
use barewave::Compiler;
use barewave::codeobj::ElfFile;
use barewave::emu::LaunchOptions;
use barewave::graph::{self, Options};
use barewave::onnx::Dim;
use barewave_isa::{Decoder, Flags, Inst, Mode, Op, Operand, Pipe, Raw, Reg, Target, encode, op};
use rayon::prelude::*;
use std::ops::Range;

/// Where counters lie that others wait at: those of all levels but the last one.
const COUNTERS: [u64; 2] = [0, 128];

/// A kernel's instructions, with where they lie in the file and what address they have.
fn instructions(t: Target, elf: &[u8], kernel: &str) -> Vec<(usize, u64, Raw)> {
    let file = ElfFile::parse(elf).unwrap();
    let k = file.kernel(kernel).unwrap();
    let code = file.file_range(k.entry, k.code_size).unwrap();
    let decoder = Decoder::new(t, Mode { wave64: !k.descriptor.wave32(), ..Mode::of(t) });
    let (mut at, mut out) = (code.start, Vec::new());
    while at < code.end {
        let raw = decoder.decode(&elf[at..code.end]).unwrap();
        let len = raw.len();
        out.push((at, k.entry + (at - code.start) as u64, raw));
        at += len;
    }
    out
}

/// Where code stands in other code, which ends elsewhere.
fn place(all: &[(usize, u64, Raw)], some: &[(usize, u64, Raw)]) -> Range<usize> {
    let op = |(_, _, raw): &(usize, u64, Raw)| if raw.inst().op == op::S_ENDPGM { op::S_BRANCH } else { raw.inst().op };
    let some: Vec<Op> = some.iter().map(op).collect();
    let all: Vec<Op> = all.iter().map(op).collect();
    let first = all.windows(some.len()).position(|w| w == some).expect("a level has the code of its kernel");
    first..first + some.len()
}

/// An instruction with a number that is one more, where it has one and is as long then.
fn altered(t: Target, raw: &Raw) -> Option<Vec<u8>> {
    let mut inst: Inst = raw.inst();
    let info = t.op(inst.op)?;
    let goes = info.flags.has(Flags::BRANCH) || matches!(inst.op, op::S_NOP | op::S_SLEEP | op::S_ENDPGM);
    if goes || !matches!(info.pipe, Pipe::Salu | Pipe::Smem) || t.decode_wait(&inst).is_some() {
        return None;
    }
    let number = inst.srcs.iter_mut().rev().find(|o| matches!(o, Operand::Imm(_)))?;
    if let Operand::Imm(n) = number {
        *n = u64::from((*n as u32).wrapping_add(1));
    }
    let mut out = Vec::new();
    encode(t, &inst, &mut out).ok()?;
    (out.len() == raw.len()).then_some(out)
}

/// No run tells, for one of the reasons above.
fn is_not_told(t: Target, inst: &Inst) -> bool {
    let caches = t.op(inst.op).is_some_and(|i| i.name.contains("inv"));
    let pace = matches!(inst.op, op::S_SLEEP | op::S_NOP | op::S_WAITCNT_DEPCTR) || t.decode_wait(inst).is_some();
    let upper = matches!(inst.op, op::S_ADDC_U32 | op::S_SUBB_U32)
        || inst.op == op::V_MOV_B32 && inst.dsts[0] == Operand::Regs(Reg::v(3).into());
    let ids = |o: &Operand| (19..=21).any(|n| *o == Operand::Regs(Reg::s(n).into()));
    caches || pace || upper || inst.dsts.iter().chain(&inst.srcs).any(ids)
}

/// As good with one more: another lane counts, and a level that is not the last one looks at what it finds.
fn is_as_good(inst: &Inst) -> bool {
    let sets_lanes = inst.dsts.iter().any(|o| o.regs().is_some_and(|r| r.first == Reg::EXEC_LO));
    sets_lanes || inst.op == op::S_CMP_LG_U32 && inst.srcs[1] == Operand::Imm(u64::from(u32::MAX))
}

fn check(name: &str, open: bool) {
    let t = Target::parse(name).unwrap();
    let mut b = Builder::new(17, 77);
    let x = b.input(&[3, 67]);
    let (w, bias) = (b.weight(&[37, 67]), b.weight(&[37]));
    let y = b.node("Softmax", &[&x], &[]);
    let y = b.node("Gemm", &[&y, &w, &bias], &[("transB", int(1))]);
    let y = b.node("Softmax", &[&y], &[]);
    b.output(&y);
    let mut shapes = Options::default();
    if open {
        b.model.graph.inputs[0].shape.as_mut().unwrap()[0] = Dim::Symbol("n".into());
        shapes.dims.insert("n".into(), 3);
    }
    let graph = graph::fuse(&b.model, &shapes).unwrap();
    let compiler = Compiler::new(t, Default::default());
    let program = compiler.compile_graph(&graph).unwrap();
    let apart = compiler.without_levels().compile_graph(&graph).unwrap();
    let levels: Vec<u32> = program.plan().launches.iter().flat_map(|l| l.chain.iter().map(|l| l.level)).collect();
    assert_eq!((program.plan().launches.len(), &levels[..]), (1, &[0, 1, 2][..]), "{name}");
    launches(t, &program, &b.inputs, |launch, run| {
        let elf = program.code();
        let all = instructions(t, elf, &launch.kernel);
        let kernels = apart.plan().launches.iter().map(|l| instructions(t, apart.code(), &l.kernel));
        let own: Vec<Range<usize>> = kernels.map(|k| place(&all, &k)).collect();
        let options = |without: Option<u64>| LaunchOptions {
            strict: true,
            without,
            single_thread: true,
            max_instructions: 1 << 12,
            ..LaunchOptions::default()
        };
        run.go(None, &options(None)).unwrap_or_else(|f| panic!("{name}: {f}"));
        assert_eq!(found(elf, &launch.kernel, None), None, "{name}");
        let want = run.left();
        let waits = |at: &u64| run.go_in_vain(*at, None, &options(None)).is_err();
        assert!(COUNTERS.iter().all(waits), "{name}: nobody waits");
        let (mut survivors, mut count) = (Vec::new(), 0);
        for (n, (at, address, raw)) in all.iter().enumerate() {
            let inst = raw.inst();
            if own.iter().any(|r| r.contains(&n)) || is_not_told(t, &inst) {
                continue;
            }
            // Workgroups run in order: that one does not wait shows where nothing comes that it waits for.
            let same = |other: Option<&[u8]>, without: Option<u64>| {
                run.go(other, &options(without)).is_ok()
                    && run.left() == want
                    && COUNTERS.iter().all(|at| run.go_in_vain(*at, other, &options(without)).is_err())
            };
            count += 1;
            if found(elf, &launch.kernel, Some(*address)).is_none() && same(None, Some(*address)) {
                survivors.push(format!("{n}: without {raw}"));
            }
            if let Some(bytes) = altered(t, raw).filter(|_| !is_as_good(&inst)) {
                count += 1;
                let mut other = elf.to_vec();
                other[*at..at + bytes.len()].copy_from_slice(&bytes);
                if found(&other, &launch.kernel, None).is_none() && same(Some(&other), None) {
                    survivors.push(format!("{n}: one more {raw}"));
                }
            }
        }
        assert!(count > 50 && survivors.is_empty(), "{name}, open {open}: {survivors:#?} of {count}");
    });
}

#[test]
fn levels_have_no_instruction_that_does_not_matter() {
    let cases = [("gfx906", true), ("gfx942", false), ("gfx1030", false), ("gfx1100", true), ("gfx1201", true)];
    cases.par_iter().for_each(|(t, open)| check(t, *open));
}
