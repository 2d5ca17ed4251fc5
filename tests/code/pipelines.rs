//! Software-pipelined loops and loads to LDS on the emulated devices, in strict mode: every way to overlap a loop gives what
//! the plain loop does, for all numbers of iterations around the pipeline's depth.

use barewave::codeobj::{Abi, Arg, CodeObject};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::mir::{Builder, Function, Gen, Lds, MInst, Opnd, Pipeline, Space, Type, parse};
use barewave::{compile, passes};
use barewave_isa::{ModName, Mods, Reg, Target, op};

const TARGETS: [&str; 6] = ["gfx803", "gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Runs one workgroup: input words in, `words` words out.
fn run(f: Function, input: &[u32], words: usize) -> Vec<u32> {
    let (target, threads) = (f.target, f.workgroup_size);
    let text = f.to_string();
    assert_eq!(parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).to_string(), text);
    let m = passes::compile(f).unwrap_or_else(|e| panic!("{target}: {e}\n{text}"));
    let args = (0..2).map(|i| Arg::buffer(format!("a{i}"), 8 * i)).collect();
    let object = CodeObject { target, abi: Abi::V5, kernels: vec![compile::kernel_of(&m, args)], sections: vec![] };
    let device = EmuDevice::with_memory(target, 1 << 26).unwrap();
    let module = device.load(&object.to_bytes().unwrap()).unwrap();
    let (from, to) = (device.alloc(4 * input.len() as u64).unwrap(), device.alloc(4 * words as u64).unwrap());
    device.write(from, &input.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    device.fill(to, 0, 4 * words as u64).unwrap();
    let kernarg: Vec<u8> = [from, to].iter().flat_map(|a| a.to_le_bytes()).collect();
    let options = LaunchOptions { strict: true, ..LaunchOptions::default() };
    device
        .launch(&module.kernel("k").unwrap(), [1, 1, 1], [threads, 1, 1], &kernarg, &options)
        .unwrap_or_else(|e| panic!("{target}: {e}\n{text}"));
    let mut bytes = vec![0; 4 * words];
    device.read(to, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn ways() -> Vec<(Pipeline, bool)> {
    let mut out = vec![(Pipeline::Off, false), (Pipeline::Stated, false), (Pipeline::Stated, true)];
    out.extend((1..=4).map(|n| (Pipeline::Modulo(n), false)));
    out
}

/// `out[t][item] = x^2 + t` for `x = in[t][item]`, and behind them the sum of all `x (t + 1)`: values that live across
/// stages, the counter in two stages, a carried sum. `far` puts the last use two stages behind the load, which takes two
/// registers in turn.
fn columns(target: Target, trips: u32, way: (Pipeline, bool), far: bool, fixed: bool) -> Function {
    let n = 64;
    let mut b = Builder::new(target, "k", n);
    let input = b.buffer_arg(0, trips * n * 4);
    let out = b.buffer_arg(1, (trips + 1) * n * 4);
    let item = b.workitem_id();
    let at = b.shl(item, 2u32);
    let sum = b.to_vector(0u32);
    b.counted_loop("t", trips, 1, way.0, way.1, |b, t| {
        if fixed {
            b.fix_order();
        }
        let row = b.mul(t, n * 4);
        let place = b.add(at, row);
        let x = b.load(input, 1, place, Opnd::Imm(0), 0);
        b.stage(1);
        let square = b.mul(x, x);
        b.stage(2);
        let row = b.mul(t, n * 4);
        let place = b.add(at, row);
        let y = b.add(square, t);
        b.store(out, y, place, Opnd::Imm(0), 0);
        b.stage(if far { 2 } else { 1 });
        let weight = b.add(t, 1u32);
        let p = b.mul(x, weight);
        let s = b.add(sum, p);
        b.copy_into(sum, s);
    });
    b.store(out, sum, at, Opnd::Imm(0), trips * n * 4);
    b.finish()
}

#[test]
fn overlapped_loops_compute_what_plain_ones_do() {
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        for trips in 1..=8u32 {
            let input: Vec<u32> = (0..trips * 64).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
            let mut want: Vec<u32> = (0..trips * 64)
                .map(|i| input[i as usize].wrapping_mul(input[i as usize]).wrapping_add(i / 64))
                .collect();
            for item in 0..64 {
                let column = (0..trips).map(|t| input[(t * 64 + item) as usize].wrapping_mul(t + 1));
                want.push(column.fold(0, u32::wrapping_add));
            }
            for way in ways() {
                // Nothing may be stored for iterations behind the end: here the stores are in the last stage.
                for (far, fixed) in [(false, false), (true, false), (false, true), (true, true)] {
                    let got = run(columns(target, trips, way, far, fixed), &input, want.len());
                    assert_eq!(got, want, "{t}: {trips} iterations, {way:?}, far {far}, fixed {fixed}");
                }
            }
        }
    }
}

#[test]
fn numbers_of_iterations_that_only_the_run_knows() {
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        for trips in 1..=6u32 {
            for (way, overrun) in [(Pipeline::Off, false), (Pipeline::Stated, false), (Pipeline::Stated, true)] {
                let n = 64;
                let mut b = Builder::new(target, "k", n);
                // The first word says how often; rows of numbers follow.
                let input = b.buffer_arg(0, (trips + 1) * n * 4);
                let out = b.buffer_arg(1, n * 4);
                let (limit, start) = (b.s(1), b.scalar(0));
                b.scalar_buffer_load_into(limit, input, start, 0);
                let item = b.workitem_id();
                let at = b.shl(item, 2u32);
                let sum = b.to_vector(0u32);
                b.counted_loop("t", limit, 1, way, overrun, |b, t| {
                    let row = b.mad(t, n * 4, n * 4);
                    let place = b.add(at, row);
                    let x = b.load(input, 1, place, Opnd::Imm(0), 0);
                    b.stage(1);
                    let weight = b.add(t, 1u32);
                    let p = b.mul(x, weight);
                    let s = b.add(sum, p);
                    b.copy_into(sum, s);
                });
                b.store(out, sum, at, Opnd::Imm(0), 0);
                let f = b.finish();
                let mut overlapped = f.clone();
                passes::select::select(&mut overlapped).unwrap();
                passes::pipeline::pipeline(&mut overlapped).unwrap();
                assert_eq!(overlapped.blocks.iter().any(|b| b.name.ends_with("_steady")), overrun);
                let mut words = vec![trips; 64];
                words.extend((0..trips * n).map(|i| i.wrapping_mul(2_654_435_761) >> 7));
                let want: Vec<u32> = (0..n)
                    .map(|item| {
                        (1..=trips).fold(0u32, |s, t| s.wrapping_add(words[(t * n + item) as usize].wrapping_mul(t)))
                    })
                    .collect();
                assert_eq!(run(f, &words, n as usize), want, "{t}: {trips} iterations, {way:?}, overrun {overrun}");
            }
        }
    }
}

/// A single iteration is not overlapped: it is its instructions in order of stage, whatever order they stand in.
#[test]
fn one_iteration_runs_in_order_of_stage() {
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        let n = 128;
        let mut b = Builder::new(target, "k", n);
        let input = b.buffer_arg(0, n * 4);
        let out = b.buffer_arg(1, n * 4);
        b.lds(n * 4);
        let item = b.workitem_id();
        let at = b.shl(item, 2u32);
        let other = b.generic(Gen::Xor.of(Type::U32), &[at.into(), 0x1fcu32.into()]);
        let sum = b.to_vector(0u32);
        b.counted_loop("t", 1u32, 1, Pipeline::Stated, false, |b, _| {
            b.fix_order();
            b.stage(1);
            let y = b.lds_read(1, other, 0);
            b.emit(Gen::Add.of(Type::I32), &[sum.into()], &[sum.into(), y.into()]);
            b.stage(0);
            let x = b.load(input, 1, at, Opnd::Imm(0), 0);
            b.lds_write(at, x, 0);
            b.barrier();
        });
        b.store(out, sum, at, Opnd::Imm(0), 0);
        let input: Vec<u32> = (0..n).map(|i| i * i).collect();
        let want: Vec<u32> = (0..n).map(|i| (n - 1 - i) * (n - 1 - i)).collect();
        assert_eq!(run(b.finish(), &input, n as usize), want, "{t}");
    }
}

#[test]
fn stages_in_a_body_of_several_blocks_are_refused() {
    for pipeline in [Pipeline::Stated, Pipeline::Modulo(2)] {
        let mut b = Builder::new(Target::GFX942, "k", 64);
        let out = b.buffer_arg(0, 256);
        let item = b.workitem_id();
        let at = b.shl(item, 2u32);
        let sum = b.to_vector(0u32);
        b.counted_loop("t", 8u32, 1, pipeline, false, |b, t| {
            let skip = b.label();
            b.branch_lt(t, 4u32, skip);
            b.emit(Gen::Add.of(Type::I32), &[sum.into()], &[sum.into(), 1u32.into()]);
            b.place(skip, "skip");
            b.stage(u8::from(pipeline == Pipeline::Stated));
            b.emit(Gen::Add.of(Type::I32), &[sum.into()], &[sum.into(), 2u32.into()]);
        });
        b.store(out, sum, at, Opnd::Imm(0), 0);
        match passes::compile(b.finish()) {
            Err(e) => assert!(pipeline == Pipeline::Stated && e.to_string().contains("3 blocks"), "{e}"),
            Ok(m) => {
                let remark = m.function.blocks.iter().any(|b| b.comment.contains("not overlapped"));
                assert!(pipeline != Pipeline::Stated && remark);
            }
        }
    }
}

/// A double buffer in LDS: each item adds what its neighbour loaded, tile after tile. Of a fixed order what is written stands before
/// what is read, of the tile before, and a barrier behind both, or between them.
fn tiles(target: Target, trips: u32, overrun: bool, barrier: Option<Barrier>) -> Function {
    let n = 128;
    let mut b = Builder::new(target, "k", n);
    let input = b.buffer_arg(0, trips * n * 4);
    let out = b.buffer_arg(1, n * 4);
    let lds = b.lds(2 * n * 4);
    assert_eq!(lds, 0);
    let item = b.workitem_id();
    let at = b.shl(item, 2u32);
    let write = b.to_vector(at);
    let next = b.add(item, 1u32);
    let next = b.umod(next, n);
    let next = b.shl(next, 2u32);
    let read = b.to_vector(next);
    let sum = b.to_vector(0u32);
    b.counted_loop("t", trips, 1, Pipeline::Stated, overrun, |b, t| {
        if barrier.is_some() {
            b.fix_order();
        }
        let row = b.mul(t, n * 4);
        let place = b.add(at, row);
        let x = b.load(input, 1, place, Opnd::Imm(0), 0);
        b.stage(1);
        b.in_lds(Lds::Part { buffer: 0, phase: 1 });
        b.lds_write(write, x, 0);
        b.emit(Gen::Xor.of(Type::U32), &[write.into()], &[(n * 4).into(), write.into()]);
        if barrier != Some(Barrier::Behind) {
            b.barrier();
        }
        b.stage(2);
        b.in_lds(Lds::Part { buffer: 0, phase: 0 });
        let y = b.lds_read(1, read, 0);
        b.emit(Gen::Xor.of(Type::U32), &[read.into()], &[(n * 4).into(), read.into()]);
        let weight = b.add(t, 1u32);
        let p = b.mul(y, weight);
        let s = b.add(sum, p);
        b.copy_into(sum, s);
        if barrier == Some(Barrier::Behind) {
            b.stage(1);
            b.barrier();
        }
        b.in_lds(Lds::Any);
    });
    b.store(out, sum, at, Opnd::Imm(0), 0);
    b.finish()
}

/// Where a barrier stands in a round of fixed order.
#[derive(Clone, Copy, PartialEq)]
enum Barrier {
    Between,
    Behind,
}

#[test]
fn double_buffers_in_lds() {
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        for trips in 1..=6u32 {
            let input: Vec<u32> = (0..trips * 128).map(|i| i.wrapping_mul(2_654_435_761) >> 9).collect();
            let want: Vec<u32> = (0..128)
                .map(|item| {
                    let mine = (0..trips).map(|t| input[(t * 128 + (item + 1) % 128) as usize].wrapping_mul(t + 1));
                    mine.fold(0, u32::wrapping_add)
                })
                .collect();
            for overrun in [false, true] {
                for barrier in [None, Some(Barrier::Behind)] {
                    let f = tiles(target, trips, overrun, barrier);
                    assert_eq!(run(f, &input, 128), want, "{t} {trips} {overrun}");
                }
            }
        }
    }
}

/// Who is slow would read what is overwritten behind the next barrier.
#[test]
fn a_barrier_between_phases_separates_them() {
    let f = tiles(Target::GFX942, 6, false, Some(Barrier::Between));
    let error = passes::compile(f).expect_err("a race").to_string();
    assert!(error.contains("s_barrier"), "{error}");
}

#[test]
fn what_ends_a_round_is_used_at_the_beginning_of_the_next() {
    let n = 64u32;
    for t in TARGETS {
        for trips in 1..=6u32 {
            let input: Vec<u32> = (0..trips * n).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
            let of = |item: u32| (0..trips).map(move |t| (t * n + item, t + 1));
            let sum = |item: u32| of(item).fold(0u32, |s, (i, w)| s.wrapping_add(input[i as usize].wrapping_mul(w)));
            let want: Vec<u32> = (0..n).map(sum).collect();
            for overrun in [false, true] {
                let mut b = Builder::new(Target::parse(t).unwrap(), "k", n);
                let from = b.buffer_arg(0, trips * n * 4);
                let out = b.buffer_arg(1, n * 4);
                let item = b.workitem_id();
                let at = b.shl(item, 2u32);
                let sum = b.to_vector(0u32);
                // One register: the older iteration reads it before the younger one writes it.
                let x = b.v(1);
                b.counted_loop("t", trips, 1, Pipeline::Stated, overrun, |b, t| {
                    b.fix_order();
                    b.stage(1);
                    let weight = b.add(t, 1u32);
                    let p = b.mul(x, weight);
                    let s = b.add(sum, p);
                    b.copy_into(sum, s);
                    b.stage(0);
                    let row = b.mul(t, n * 4);
                    let place = b.add(at, row);
                    b.load_into(x, from, place, Opnd::Imm(0), 0);
                });
                b.store(out, sum, at, Opnd::Imm(0), 0);
                assert_eq!(run(b.finish(), &input, n as usize), want, "{t} {trips} {overrun}");
            }
        }
    }
}

#[test]
fn stages_that_cannot_be_are_refused() {
    let mut b = Builder::new(Target::GFX942, "k", 64);
    let input = b.buffer_arg(0, 4096);
    let item = b.workitem_id();
    let at = b.shl(item, 2u32);
    let sum = b.to_vector(0u32);
    b.counted_loop("t", 8u32, 1, Pipeline::Stated, false, |b, _| {
        // The address depends on the sum of the iteration before, which is ready two stages later.
        let place = b.add(at, sum);
        let x = b.load(input, 1, place, Opnd::Imm(0), 0);
        b.stage(2);
        let s = b.add(sum, x);
        b.copy_into(sum, s);
    });
    b.store(input, sum, at, Opnd::Imm(0), 0);
    let e = passes::compile(b.finish()).unwrap_err().to_string();
    assert!(e.contains("is in stage 2 and what needs it") && e.contains("in stage 0"), "{e}");
}

#[test]
fn loads_from_memory_straight_to_lds() {
    for t in ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"] {
        let target = Target::parse(t).unwrap();
        let n = 256u32;
        let mut b = Builder::new(target, "k", n);
        let input = b.buffer_arg(0, 2 * n * 4);
        let out = b.buffer_arg(1, n * 4);
        b.lds(2 * n * 4);
        let item = b.workitem_id();
        let at = b.shl(item, 2u32);
        let wave = b.shr(item, 6u32);
        let base = b.shl(wave, 8u32);
        let base = b.uniform(base);
        for phase in 0..2u8 {
            let lds = Lds::Part { buffer: 0, phase };
            // The offset of the instruction counts for both addresses.
            b.emit(op::S_MOV_B32, &[Opnd::P(Reg::M0.into())], &[base.into()]);
            let mut mods = Mods::new();
            mods.set(ModName::Offen, 1);
            mods.set(ModName::Lds, 1);
            mods.set(ModName::Offset, i32::from(phase) * n as i32 * 4);
            let space = Space { memory: input.memory, lds };
            let srcs = [at.into(), input.desc.into(), Opnd::Imm(0)];
            b.push(MInst { mods, space, ..MInst::new(op::BUFFER_LOAD_DWORD, &[], &srcs) });
        }
        // Waves take each other's words.
        b.barrier();
        let other = b.generic(Gen::Xor.of(Type::U32), &[at.into(), 0x3fcu32.into()]);
        let x = b.lds_read(1, other, 0);
        let y = b.lds_read(1, other, n * 4);
        let r = b.sub(x, y);
        b.store(out, r, at, Opnd::Imm(0), 0);
        let input: Vec<u32> = (0..2 * n).map(|i| i * i).collect();
        let want: Vec<u32> =
            (0..n).map(|i| input[(n - 1 - i) as usize].wrapping_sub(input[(2 * n - 1 - i) as usize])).collect();
        assert_eq!(run(b.finish(), &input, n as usize), want, "{t}");
    }
}

/// Sums tiles that come straight to two buffers of LDS in turn: what a workitem reads another wave has loaded. A tile is read in the last of three stages;
/// its place is filled in the first one, behind the barrier; `late`, the tile is read behind that.
fn summed_tiles(trips: u32, late: bool) -> Function {
    let (target, n) = (Target::GFX950, 256u32);
    let mut b = Builder::new(target, "k", n);
    let input = b.buffer_arg(0, trips * n * 16);
    let out = b.buffer_arg(1, n * 16);
    b.lds(2 * n * 16);
    let item = b.workitem_id();
    let at = b.shl(item, 4u32);
    let at = b.to_vector(at);
    let wave = b.shr(item, 6u32);
    let wave = b.uniform(wave);
    let filled = b.shl(wave, 10u32);
    let read = b.generic(Gen::Xor.of(Type::U32), &[at.into(), 0x400u32.into()]);
    let sum = b.v(4);
    (0..4).for_each(|i| b.copy_into(sum.dword(i), 0u32));
    let turn = |b: &mut Builder, address: Opnd| b.emit(Gen::Xor.of(Type::U32), &[address], &[address, (n * 16).into()]);
    b.counted_loop("t", trips, 1, Pipeline::Stated, false, |b, _| {
        b.fix_order();
        let fill = |b: &mut Builder| {
            b.stage(0);
            b.in_lds(Lds::Part { buffer: 0, phase: 1 });
            let none = b.scalar(0);
            b.load_to_lds(input, at, none, (filled, 0));
            b.emit(Gen::Add.of(Type::U32), &[at.into()], &[at.into(), (n * 16).into()]);
            turn(b, filled.into());
        };
        let add = |b: &mut Builder| {
            b.stage(2);
            b.in_lds(Lds::Part { buffer: 0, phase: 0 });
            let x = b.lds_read(4, read, 0);
            turn(b, read.into());
            for i in 0..4 {
                b.emit(Gen::Add.of(Type::U32), &[sum.dword(i).into()], &[sum.dword(i).into(), x.dword(i).into()]);
            }
        };
        if !late {
            add(b);
        }
        b.stage(1);
        b.in_lds(Lds::Any);
        b.barrier();
        fill(b);
        if late {
            add(b);
        }
        b.in_lds(Lds::Any);
    });
    let at = b.shl(item, 4u32);
    b.store(out, sum, at, Opnd::Imm(0), 0);
    b.finish()
}

#[test]
fn a_buffer_is_filled_two_stages_before_another_is_read() {
    let n = 1024;
    for trips in 1..9 {
        let input: Vec<u32> = (0..trips * n).map(|i| i * i).collect();
        let of = |i: u32| (0..trips).map(|t| input[(t * n + (i ^ 0x100)) as usize]).fold(0, u32::wrapping_add);
        let want: Vec<u32> = (0..n).map(of).collect();
        assert_eq!(run(summed_tiles(trips, false), &input, n as usize), want, "{trips} tiles");
    }
    let e = passes::compile(summed_tiles(8, true)).unwrap_err().to_string();
    assert!(e.contains("is in stage 2 and what needs it") && e.contains("in stage 0"), "{e}");
}
