//! Kernels that need more registers than there are, run in strict mode.

use crate::support;
use crate::support::device::{self, TARGETS};
use barewave::codeobj::{Abi, CodeObject};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::mir::{Builder, Function, Opnd, Part};
use barewave::passes;
use barewave::tensor::compare;
use barewave::verify;
use barewave_isa::{Target, op};

/// Compiles a function and runs one workgroup of it on `out_words` words of output.
fn run(f: Function, out_words: usize) -> (Vec<u32>, passes::regalloc::Usage) {
    let (target, threads) = (f.target, f.workgroup_size);
    let m = passes::compile(f).unwrap_or_else(|e| panic!("{target}: {e}"));
    let kernel = barewave::compile::kernel_of(&m, vec![barewave::codeobj::Arg::buffer("out", 0)]);
    let object = CodeObject { target, abi: Abi::V5, kernels: vec![kernel], sections: Vec::new() };
    let device = EmuDevice::with_memory(target, 1 << 28).unwrap();
    let module = device.load(&object.to_bytes().unwrap()).unwrap();
    let out = device.alloc(4 * out_words as u64).unwrap();
    let options = LaunchOptions { strict: true, ..LaunchOptions::default() };
    device
        .launch(&module.kernel("k").unwrap(), [1, 1, 1], [threads, 1, 1], &out.to_le_bytes(), &options)
        .unwrap_or_else(|f| panic!("{target}: {f}"));
    let mut bytes = vec![0; 4 * out_words];
    device.read(out, &mut bytes).unwrap();
    (bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect(), m.usage)
}

/// Each lane's value number `i`: `(item + i)^2`.
fn values(b: &mut Builder, n: u32) -> Vec<Part> {
    let item = b.workitem_id();
    (0..n)
        .map(|i| {
            let x = b.add(item, i);
            b.mul(x, x)
        })
        .collect()
}

/// Uses that no order of instructions can bring together: each value with the one of the mirrored number.
fn mirrored_sum(b: &mut Builder, values: &[Part]) -> Part {
    let sum = b.to_vector(0u32);
    let n = values.len();
    for i in 0..n {
        let t = b.mul(values[i], values[n - 1 - i]);
        let s = b.op(op::V_XOR_B32, &[t.into(), sum.into()]);
        b.copy_into(sum, s);
    }
    sum
}

#[test]
fn vectors_spill() {
    for t in TARGETS.into_iter().chain(["gfx908", "gfx950", "gfx1010", "gfx1151"]) {
        let target = Target::parse(t).unwrap();
        let (n, threads) = (600, 1024);
        let mut b = Builder::new(target, "k", threads);
        let out = b.buffer_arg(0, threads * 4);
        let list = values(&mut b, n);
        // A barrier that values must live across: they are all needed on both sides.
        let first = mirrored_sum(&mut b, &list);
        b.loop_while("again", 3, 1, |b, _| {
            let s = mirrored_sum(b, &list);
            b.copy_into(first, s);
        });
        let item = b.workitem_id();
        let at = b.shl(item, 2u32);
        b.store(out, first, at, Opnd::Imm(0), 0);
        let (got, usage) = run(b.finish(), threads as usize);
        let want = |item: u32| {
            let v = |i: u32| (item + i).wrapping_mul(item + i);
            (0..n).fold(0u32, |s, i| s ^ v(i).wrapping_mul(v(n - 1 - i)))
        };
        assert!(usage.spills > 0, "{t}: {usage:?}");
        for (item, x) in got.iter().enumerate() {
            assert_eq!(*x, want(item as u32), "{t} item {item}");
        }
    }
}

/// What a run of memory instructions reads and writes is told apart, also where a block ends within it: it may be issued again.
#[test]
fn runs_of_memory_instructions_go_on_in_the_next_block() {
    for t in ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx950", "gfx1010"] {
        let mut b = Builder::new(Target::parse(t).unwrap(), "k", 64);
        let out = b.buffer_arg(0, 1024);
        let item = b.workitem_id();
        let at = b.shl(item, 2u32);
        let x = b.to_vector(item);
        b.store(out, x, at, Opnd::Imm(0), 0);
        b.block("next");
        let y = b.load(out, 1, at, Opnd::Imm(0), 512);
        b.load_into(x, out, at, Opnd::Imm(0), 0);
        let sum = b.add(x, y);
        b.store(out, sum, at, Opnd::Imm(0), 256);
        let m = passes::compile(b.finish()).unwrap();
        let kernel = barewave::compile::kernel_of(&m, vec![barewave::codeobj::Arg::buffer("out", 0)]);
        let target = Target::parse(t).unwrap();
        let object = CodeObject { target, abi: Abi::V5, kernels: vec![kernel], sections: Vec::new() };
        verify::admit(&object.to_bytes().unwrap()).unwrap_or_else(|e| panic!("{t}: {e}"));
    }
}

#[test]
fn scalars_spill() {
    for t in TARGETS.into_iter().chain(["gfx908", "gfx950", "gfx1010", "gfx1151"]) {
        let target = Target::parse(t).unwrap();
        let n = 250u32;
        let mut b = Builder::new(target, "k", 64);
        let out = b.buffer_arg(0, 256);
        let seed = b.workgroup_id(0);
        let list: Vec<Part> = (0..n)
            .map(|i| {
                let x = b.add(seed, i + 3);
                b.mul(x, x)
            })
            .collect();
        let sum = b.scalar(0);
        b.loop_while("again", 2, 1, |b, _| {
            for i in 0..n as usize {
                let p = b.mul(list[i], list[(i * 7 + 5) % n as usize]);
                let s = b.add(sum, p);
                b.copy_into(sum, s);
            }
        });
        let item = b.workitem_id();
        let at = b.shl(item, 2u32);
        let x = b.to_vector(sum);
        b.store(out, x, at, Opnd::Imm(0), 0);
        let (got, usage) = run(b.finish(), 64);
        let v = |i: u32| (i + 3).wrapping_mul(i + 3);
        let once = (0..n).fold(0u32, |s, i| s.wrapping_add(v(i).wrapping_mul(v((i * 7 + 5) % n))));
        assert!(usage.spills > 0, "{t}: {usage:?}");
        assert_eq!(got, vec![once.wrapping_mul(2); 64], "{t}");
    }
}

#[test]
fn long_epilogues_without_bias() {
    for (act, opset) in [("Gelu", 20), ("Mish", 20), ("Erf", 20), ("Softplus", 20)] {
        let mut b = support::build::Builder::new(opset, 5);
        let x = b.input(&[100, 64]);
        let w = b.weight(&[64, 256]);
        let y = b.node("MatMul", &[&x, &w], &[]);
        let y = b.node(act, &[&y], &[]);
        b.output(&y);
        let fused = graph::fuse(&b.model, &Options::default()).unwrap();
        let want = Interpreter::new(&fused).run(&fused, &b.inputs).unwrap();
        for t in TARGETS {
            let start = std::time::Instant::now();
            let (got, _) = device::run(&fused, &b.inputs, t, true).unwrap_or_else(|e| panic!("{t} {act}: {e}"));
            let c = compare(&got[0], &want[0], 1e-4, 1e-4).unwrap();
            assert!(c.passes(), "{t} {act}: {c} after {:?}", start.elapsed());
        }
    }
}
