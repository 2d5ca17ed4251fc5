//! Every generic operation on every type, on the emulated devices in strict mode, against references on the host: all
//! 65,536 operands of one-operand operations on 16-bit types, random and special ones elsewhere. What the operations
//! mean says `mir::Gen`.

use crate::support::drawn;
use barewave::codeobj::{Abi, Arg, CodeObject};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::mir::{Builder, Function, Gen, Generic, Opnd, Type};
use barewave::{compile, passes};
use barewave_isa::Target;
use half::{bf16, f16};
use rayon::prelude::*;

const TARGETS: [&str; 8] = ["gfx803", "gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

/// Operands of item i are at 8 i bytes of a buffer each, the result (a comparison's as 0 or 1) too.
fn kernel(target: Target, g: Generic, items: u32) -> Function {
    let mut b = Builder::new(target, "k", 256);
    let n = g.op.sources();
    let buffers: Vec<_> = (0..=n as u32).map(|i| b.buffer_arg(i, items * 8)).collect();
    let (group, item) = (b.workgroup_id(0), b.workitem_id());
    let base = b.mul(group, 256u32);
    let index = b.add(base, item);
    let at = b.shl(index, 3u32);
    let mut srcs = Vec::new();
    for (i, buf) in buffers[..n].iter().enumerate() {
        let dwords = g.source_type(i).map_or(1, Type::dwords);
        let x = b.load(*buf, dwords, at, Opnd::Imm(0), 0);
        srcs.push(match g.source_type(i) {
            Some(_) => x.into(),
            // Masks come as words of 0 or 1.
            None => b.generic(Gen::CmpNe.of(Type::U32), &[Opnd::Imm(0), x.into()]).into(),
        });
    }
    let r = b.generic(g, &srcs);
    let r =
        if g.op.compares() { b.generic(Gen::Select.of(Type::U32), &[r.into(), Opnd::Imm(1), Opnd::Imm(0)]) } else { r };
    b.store(buffers[n], r, at, Opnd::Imm(0), 0);
    b.finish()
}

fn run(target: Target, g: Generic, operands: &[Vec<u64>]) -> Vec<u64> {
    let items = operands[0].len();
    assert_eq!(items % 256, 0);
    run_kernel(kernel(target, g, items as u32), &format!("{target} {g}"), operands)
}

/// Runs a kernel over buffers of 8 bytes an item, the last one its result.
fn run_kernel(kernel: Function, what: &str, operands: &[Vec<u64>]) -> Vec<u64> {
    let (target, items) = (kernel.target, operands[0].len());
    let m = passes::compile(kernel).unwrap_or_else(|e| panic!("{what}: {e}"));
    let args = (0..=operands.len()).map(|i| Arg::buffer(format!("a{i}"), 8 * i as u32)).collect();
    let kernels = vec![compile::kernel_of(&m, args)];
    let elf = CodeObject { target, abi: Abi::V5, kernels, sections: vec![] }.to_bytes().unwrap();
    let device = EmuDevice::with_memory(target, 1 << 26).unwrap();
    let module = device.load(&elf).unwrap();
    let mut kernarg = Vec::new();
    for list in operands {
        let at = device.alloc(8 * items as u64).unwrap();
        device.write(at, &list.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        kernarg.extend(at.to_le_bytes());
    }
    let out = device.alloc(8 * items as u64).unwrap();
    device.fill(out, 0, 8 * items as u64).unwrap();
    kernarg.extend(out.to_le_bytes());
    let options = LaunchOptions { strict: true, ..LaunchOptions::default() };
    let grid = [items as u32 / 256, 1, 1];
    device
        .launch(&module.kernel("k").unwrap(), grid, [256, 1, 1], &kernarg, &options)
        .unwrap_or_else(|f| panic!("{what}: {f}"));
    let mut bytes = vec![0; 8 * items];
    device.read(out, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

/// A value as a float (exact for all types that are) or integer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Num {
    F(f64),
    I(i128),
}

fn low(x: u64, bits: u32) -> u64 {
    if bits == 64 { x } else { x & ((1 << bits) - 1) }
}

fn decode(t: Type, x: u64) -> Num {
    let x = low(x, t.bits());
    match t {
        Type::F16 => Num::F(f16::from_bits(x as u16).to_f64()),
        Type::Bf16 => Num::F(bf16::from_bits(x as u16).to_f64()),
        Type::F32 => Num::F(f32::from_bits(x as u32) as f64),
        Type::F64 => Num::F(f64::from_bits(x)),
        t if t.is_signed() => Num::I(((x << (64 - t.bits())) as i64 >> (64 - t.bits())) as i128),
        _ => Num::I(x as i128),
    }
}

/// The exact value `hi + lo` (`|lo|` at most half an ulp of `hi`) rounded once to a type.
fn round(t: Type, hi: f64, lo: f64) -> u64 {
    // Round to odd first, so that the second rounding is as if from the exact value.
    let odd = if lo == 0.0 || !hi.is_finite() || hi.to_bits() & 1 == 1 {
        hi
    } else {
        let away = (lo > 0.0) == (hi > 0.0);
        f64::from_bits(if away { hi.to_bits() + 1 } else { hi.to_bits() - 1 })
    };
    match t {
        Type::F16 => f16::from_f64(odd).to_bits().into(),
        Type::Bf16 => bf16::from_f64(odd).to_bits().into(),
        Type::F32 => (odd as f32).to_bits().into(),
        _ => hi.to_bits(),
    }
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    let e = (a - (s - t)) + (b - t);
    (s, if e.is_finite() { e } else { 0.0 })
}

/// True for a NaN without its quiet bit.
fn signals(t: Type, x: u64) -> bool {
    let mantissa = match t {
        Type::F16 => 10,
        Type::Bf16 => 7,
        Type::F32 => 23,
        _ => 52,
    };
    matches!(decode(t, x), Num::F(v) if v.is_nan()) && x >> (mantissa - 1) & 1 == 0
}

/// A float operation of the hardware's, by its mathematical function.
fn function(op: Gen) -> Option<fn(f64) -> f64> {
    Some(match op {
        Gen::Rcp => |x| 1.0 / x,
        Gen::Rsq => |x| 1.0 / x.sqrt(),
        Gen::Sqrt => f64::sqrt,
        Gen::Exp2 => f64::exp2,
        Gen::Log2 => f64::log2,
        Gen::Sin => |x| (x * std::f64::consts::TAU).sin(),
        Gen::Cos => |x| (x * std::f64::consts::TAU).cos(),
        _ => return None,
    })
}

/// True when `got` is a right result of the operation.
fn right(g: Generic, x: &[u64], got: u64) -> bool {
    let t = g.ty;
    if let (Some(e), Gen::Pack) = (t.element(), g.op) {
        let to = Generic::convert(Type::F32, e);
        return (0..2).all(|k| right_conversion(to, x[k], got >> (16 * k) & 0xffff));
    }
    if let (Some(e), false) = (t.element(), g.op == Gen::Select) {
        let bits = e.bits();
        let half = |w: u64, k: u32| w >> (k * bits) & (u64::MAX >> (64 - bits));
        let inner = g.op.of(e);
        return (0..2).all(|k| {
            let xs: Vec<u64> = x.iter().map(|w| half(*w, k)).collect();
            right(inner, &xs, half(got, k))
        });
    }
    let got = low(got, if g.op.compares() { 64 } else { t.bits() });
    let same_float = |want: f64| match decode(t, got) {
        Num::F(y) => y == want || y.is_nan() && want.is_nan(),
        Num::I(_) => false,
    };
    let a: Vec<Num> = x.iter().enumerate().map(|(i, w)| decode(g.source_type(i).unwrap_or(Type::U32), *w)).collect();
    let (f, i): (Vec<f64>, Vec<i128>) = a
        .iter()
        .map(|n| match *n {
            Num::F(f) => (f, 0),
            Num::I(i) => (i as f64, i),
        })
        .unzip();
    if g.op.compares() {
        let order = match (a[0], a[1]) {
            (Num::F(p), Num::F(q)) => p.partial_cmp(&q),
            _ => Some(i[0].cmp(&i[1])),
        };
        use std::cmp::Ordering::*;
        let want = match g.op {
            Gen::CmpEq => order == Some(Equal),
            Gen::CmpNe => order != Some(Equal),
            Gen::CmpLt => order == Some(Less),
            Gen::CmpLe => matches!(order, Some(Less | Equal)),
            Gen::CmpGt => order == Some(Greater),
            Gen::CmpGe => matches!(order, Some(Greater | Equal)),
            _ => order.is_none(),
        };
        return got == u64::from(want);
    }
    match g.op {
        Gen::Select => return got == low(if low(x[0], 32) != 0 { x[1] } else { x[2] }, t.bits()),
        Gen::Cvt => return right_conversion(g, x[0], got),
        _ => {}
    }
    if !t.is_float() {
        let n = t.bits();
        let want = match g.op {
            Gen::Add => i[0] + i[1],
            Gen::Sub => i[0] - i[1],
            Gen::Mul => i[0].wrapping_mul(i[1]),
            Gen::MulHi => (i[0] * i[1]) >> 32,
            Gen::Mad => i[0] * i[1] + i[2],
            Gen::And => i[0] & i[1],
            Gen::Or => i[0] | i[1],
            Gen::Xor => i[0] ^ i[1],
            Gen::Not => !i[0],
            Gen::Shl => i[0] << i[1],
            Gen::Shr => i[0] >> i[1],
            Gen::Min => i[0].min(i[1]),
            Gen::Max => i[0].max(i[1]),
            Gen::Neg => -i[0],
            other => panic!("no reference for {other:?}"),
        };
        return got == low(want as u64, n);
    }
    // bf16 is computed in f32 and rounded once more.
    let step = if t == Type::Bf16 { Type::F32 } else { t };
    let twice = |bits: u64| match (t, decode(step, bits)) {
        (Type::Bf16, Num::F(v)) => bf16::from_f64(v).to_f64(),
        (_, Num::F(v)) => v,
        (_, Num::I(_)) => unreachable!("a float type"),
    };
    let want = match g.op {
        Gen::Add if t == Type::F64 => f[0] + f[1],
        Gen::Sub if t == Type::F64 => f[0] - f[1],
        Gen::Mul if t == Type::F64 => f[0] * f[1],
        Gen::Fma if t == Type::F64 => f[0].mul_add(f[1], f[2]),
        Gen::Fma if step == Type::F32 => twice((f[0] as f32).mul_add(f[1] as f32, f[2] as f32).to_bits().into()),
        Gen::Add => {
            let (h, l) = two_sum(f[0], f[1]);
            twice(round(step, h, l))
        }
        Gen::Sub => {
            let (h, l) = two_sum(f[0], -f[1]);
            twice(round(step, h, l))
        }
        Gen::Mul => twice(round(step, f[0] * f[1], 0.0)),
        Gen::Fma => {
            let (h, l) = two_sum(f[0] * f[1], f[2]);
            twice(round(t, h, l))
        }
        // A signalling NaN comes out quiet, or the other operand does.
        Gen::Min | Gen::Max => {
            let least = if g.op == Gen::Min { f[0].min(f[1]) } else { f[0].max(f[1]) };
            let signals = x.iter().any(|w| signals(t, *w));
            return same_float(least) || signals && same_float(f64::NAN);
        }
        Gen::Neg => return got == low(x[0], t.bits()) ^ (1 << (t.bits() - 1)),
        Gen::Abs => return got == low(x[0], t.bits()) & !(1 << (t.bits() - 1)),
        Gen::Floor => f[0].floor(),
        Gen::Ceil => f[0].ceil(),
        Gen::Trunc => f[0].trunc(),
        Gen::Round => f[0].round_ties_even(),
        Gen::Ldexp => {
            let by = if t == Type::F16 { i[1] as i16 as i128 } else { i[1] };
            twice(round(step, f[0] * 2f64.powi(by.clamp(-1000, 1000) as i32), 0.0))
        }
        op => {
            let want = function(op).unwrap_or_else(|| panic!("no reference for {op:?}"))(f[0]);
            let Num::F(y) = decode(t, got) else { return false };
            let Num::F(rounded) = decode(t, round(t, want, 0.0)) else { return false };
            let want = if rounded.is_infinite() { rounded } else { want };
            if want.is_nan() || want.is_infinite() {
                return y == want || y.is_nan() && want.is_nan();
            }
            let bound = match (op, t) {
                (Gen::Sin | Gen::Cos, Type::F32) => 2f64.powi(-20),
                (Gen::Sin | Gen::Cos, _) => 2f64.powi(-8),
                (_, Type::F64) => want.abs() * 2f64.powi(-27),
                (_, Type::F16) => (want.abs() * 2f64.powi(-10)).max(2f64.powi(-24)),
                (_, Type::Bf16) => want.abs() * 2f64.powi(-7),
                // Next to 1 a logarithm has an absolute error.
                (Gen::Log2, _) => (want.abs() * 2f64.powi(-22)).max(2f64.powi(-22)),
                _ => want.abs() * 2f64.powi(-22),
            };
            return (y - want).abs() <= bound;
        }
    };
    same_float(want)
}

fn right_conversion(g: Generic, x: u64, got: u64) -> bool {
    let (from, to) = (g.from, g.ty);
    match (decode(from, x), to.is_float()) {
        (Num::F(v), true) => {
            let Num::F(y) = decode(to, got) else { return false };
            let Num::F(want) = decode(to, round(to, v, 0.0)) else { return false };
            y == want || y.is_nan() && want.is_nan()
        }
        (Num::I(v), true) => {
            let hi = v as f64;
            let Num::F(y) = decode(to, got) else { return false };
            let once = round(to, hi, (v - hi as i128) as f64);
            // To 16-bit floats large integers go through f32.
            let through = round(to, v as f32 as f64, 0.0);
            let exact = |bits| matches!(decode(to, bits), Num::F(w) if w == y);
            exact(once) || to.bits() == 16 && from.bits() > 16 && exact(through)
        }
        (Num::F(v), false) => {
            let (low_end, high_end) = match (to.is_signed(), to.bits()) {
                (true, n) => (-(1i128 << (n - 1)), (1i128 << (n - 1)) - 1),
                (false, n) => (0, (1i128 << n) - 1),
            };
            let want = if v.is_nan() { 0 } else { (v.trunc() as i128).clamp(low_end, high_end) };
            decode(to, got) == Num::I(want)
        }
        (Num::I(v), false) => got == low(v as u64, to.bits()),
    }
}

/// Operands: special values, neighbours of powers of two, and random bits. Bits above narrow types are random.
fn samples(t: Type, n: usize, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let e = t.element().unwrap_or(t);
    let one = |r: u64, s: u64| -> u64 {
        let small = (s % 33) as f64 / 4.0 - 4.0;
        let float = |x: f64| match e {
            Type::F16 => f16::from_f64(x).to_bits() as u64,
            Type::Bf16 => bf16::from_f64(x).to_bits() as u64,
            Type::F32 => (x as f32).to_bits() as u64,
            _ => x.to_bits(),
        };
        let special = [0.0, -0.0, 1.0, -1.0, 0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65504.0, 1e-7, 3e38];
        match (r >> 60, e.is_float()) {
            (0..=2, true) => float(special[(s % special.len() as u64) as usize]),
            (3..=8, true) => float(small * (1.0 + (s >> 40) as f64 * 2f64.powi(-30))),
            (0..=2, false) => [0, 1, 2, u64::MAX, 1 << (e.bits() - 1), (1 << (e.bits() - 1)) - 1][(s % 6) as usize],
            (3..=4, false) => s % 200,
            (5..=6, false) => s >> (s % 64),
            _ => s,
        }
    };
    (0..n)
        .map(|_| match t.element() {
            Some(e) => low(one(next(), next()), e.bits()) | low(one(next(), next()), e.bits()) << e.bits(),
            None if t.bits() < 32 => low(one(next(), next()), t.bits()) | next() << t.bits(),
            None => one(next(), next()),
        })
        .collect()
}

fn check(target: Target, g: Generic) -> Result<(), String> {
    let n = 2048;
    let mut operands: Vec<Vec<u64>> = (0..g.op.sources())
        .map(|i| match g.source_type(i) {
            Some(t) => samples(t, n, 77 * i as u64 + g.ty as u64 + 5),
            None => samples(Type::U32, n, 3).into_iter().map(|x| x & 1).collect(),
        })
        .collect();
    match g.op {
        Gen::Shl | Gen::Shr => operands[1].iter_mut().for_each(|x| *x %= g.ty.bits() as u64),
        Gen::Ldexp => operands[1].iter_mut().for_each(|x| *x = (*x % 61).wrapping_sub(30) & 0xffff_ffff),
        Gen::Sin | Gen::Cos => {
            // Up to 256 revolutions.
            let limited = operands[0].iter_mut().filter(|x| matches!(decode(g.ty, **x), Num::F(v) if v.abs() > 256.0));
            limited.for_each(|x| *x = 0);
        }
        Gen::Rcp | Gen::Rsq | Gen::Sqrt | Gen::Exp2 | Gen::Log2 if g.ty != Type::F16 => {
            // Denormals may be flushed.
            let odd = operands[0].iter_mut().filter(|x| {
                matches!(decode(g.ty, **x), Num::F(v) if v != 0.0 && !(1e-30..1e30).contains(&v.abs())
                    || g.op == Gen::Exp2 && v.abs() > 100.0)
            });
            odd.for_each(|x| *x = 0x3f80_0000 >> (32 - g.ty.bits().min(32)));
        }
        _ => {}
    }
    let exhaustive = g.op.sources() == 1 && g.source_type(0).is_some_and(|t| t.bits() == 16);
    if exhaustive && !matches!(g.op, Gen::Sin | Gen::Cos) && !(g.ty == Type::Bf16 && function(g.op).is_some()) {
        operands[0] = (0..65536).map(|x| x | 0xabcd_0000).collect();
    }
    let got = run(target, g, &operands);
    let wrong: Vec<usize> =
        (0..got.len()).filter(|&k| !right(g, &operands.iter().map(|o| o[k]).collect::<Vec<_>>(), got[k])).collect();
    match wrong.first() {
        None => Ok(()),
        Some(&k) => {
            let x: Vec<String> = operands.iter().map(|o| format!("{:#x}", o[k])).collect();
            Err(format!("{target} {g}: {} of {} wrong: ({}) gives {:#x}", wrong.len(), got.len(), x.join(", "), got[k]))
        }
    }
}

/// All operations that are defined on a type, with the types that conversions come from.
fn operations() -> Vec<Generic> {
    let mut out = Vec::new();
    for (op, _) in Gen::NAMES {
        for (ty, _) in Type::NAMES {
            let skipped = matches!(op, Gen::Copy | Gen::Barrier | Gen::Div | Gen::Rem);
            if skipped || !op.takes(ty) {
                continue;
            }
            if op == Gen::Cvt {
                let from = Type::NAMES.iter().map(|x| x.0).filter(|f| op.takes(*f) && *f != ty);
                out.extend(from.map(|f| Generic::convert(f, ty)));
            } else {
                out.push(op.of(ty));
            }
        }
    }
    out
}

#[test]
fn every_operation_on_every_type() {
    let all = operations();
    assert!(all.len() > 300, "{}", all.len());
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        let some: Vec<_> = all.iter().filter(|g| drawn(&format!("{g:?} {t}"))).collect();
        let failures: Vec<String> = some.par_iter().filter_map(|g| check(target, **g).err()).collect();
        assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), some.len(), failures.join("\n"));
    }
}

/// Constants of an address that go back, behind a register and behind two, up to the buffer's ends.
#[test]
fn addresses_go_back() {
    for t in TARGETS {
        let target = Target::parse(t).unwrap();
        for further in [0u32, 4096 + 40] {
            let mut b = Builder::new(target, "k", 256);
            let [from, to] = [0, 1].map(|i| b.buffer_arg(i, 256 * 8));
            let item = b.workitem_id();
            let at = b.shl(item, 3u32);
            let ahead = b.add(at, 80u32);
            let base = if further > 0 { b.scalar(further).into() } else { Opnd::Imm(0) };
            let x = b.load(from, 2, ahead, base, (80 + further).wrapping_neg());
            b.store(to, x, ahead, base, (80 + further).wrapping_neg());
            let numbers: Vec<u64> = (1..=256).collect();
            let got = run_kernel(b.finish(), &format!("{t}, {further}"), std::slice::from_ref(&numbers));
            assert_eq!(got, numbers, "{t}, {further} bytes further");
        }
    }
}
