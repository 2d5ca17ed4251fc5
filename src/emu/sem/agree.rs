//! Handlers are compiled once for each instruction set of the host; here the copies are compared on random and odd values.

use super::super::lanes::{CHUNK, Host, Rows, Ty};
use super::{Sem, of};
use barewave_isa::Op;

/// Values at which copies would differ first: zeros, infinities, NaN and denormals of singles and halves, the largest integers.
const ODD: [u32; 16] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    1,
    0x3c00_7c00,
    0x7c00_fc00,
    0x0001_8001,
    0x7ff0_0000,
    0x3ff0_0000,
    0x007f_ffff,
    0x7f7f_ffff,
    0xbf00_0000,
    u32::MAX,
];

/// Calls of each handler on each instruction set, on 64 lanes with other values.
const ROUNDS: usize = 20;

/// Low and high dwords of a value in each lane.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Row([[u32; 64]; 2]);

/// A result with one NaN for all: payloads are the one thing in which copies may differ.
fn canonical(ty: Ty, lo: u32, hi: u32) -> (u32, u32) {
    let half = |h: u32, infinity: u32| if h & 0x7fff > infinity { 0x7fff } else { h };
    let single = |b: u32| if f32::from_bits(b).is_nan() { u32::MAX } else { b };
    match ty {
        Ty::F32 => (single(lo), hi),
        Ty::PkF32 => (single(lo), single(hi)),
        Ty::F64 if f64::from_bits(lo as u64 | (hi as u64) << 32).is_nan() => (u32::MAX, u32::MAX),
        Ty::F16 | Ty::PkF16 => (half(lo & 0xffff, 0x7c00) | half(lo >> 16, 0x7c00) << 16, hi),
        Ty::Bf16 | Ty::PkBf16 => (half(lo & 0xffff, 0x7f80) | half(lo >> 16, 0x7f80) << 16, hi),
        _ => (lo, hi),
    }
}

fn run(sem: &Sem, host: Host, src: &[Row; 3]) -> (Row, u64) {
    let mut out = Row([[0; 64]; 2]);
    let rows = Rows { carry: 0x5a5a_3c3c_0ff0_1234, ..Rows::registers(64) };
    let p = src.each_ref().map(|r| r.0[0].as_ptr());
    // SAFETY: rows of 64 lanes, high halves behind the low ones; the caller names what the host has.
    let bits = unsafe { sem.kernel.on(host)(out.0[0].as_mut_ptr(), p[0], p[1], p[2], u64::MAX, &rows) };
    (out, bits)
}

/// Compares what the copies of every vector instruction's handler give that this host can run: no bit may differ but those of a
/// NaN's payload. Gives the number of comparisons (0 where the host has one instruction set only), or the first difference.
pub fn host_copies_agree() -> Result<usize, String> {
    let mut x = 5u32;
    let mut next = || {
        x = x.wrapping_mul(1664525).wrapping_add(1013904223);
        x ^ x >> 15
    };
    let best = Host::detect();
    let mut compared = 0;
    for op in (0..Op::COUNT as u16).map(Op) {
        let Some(sem) = of(op, false) else { continue };
        for round in 0..ROUNDS {
            let mut value = || {
                let n = next();
                match round % 4 {
                    0 => ODD[n as usize >> 3 & 15],
                    1 => n & 0x807f_ffff | (100 + (n >> 23) % 50) << 23,
                    _ => n,
                }
            };
            let src: [Row; 3] = std::array::from_fn(|_| Row([0, 1].map(|_| std::array::from_fn(|_| value()))));
            let (want, bits) = run(sem, Host::Portable, &src);
            for host in [Host::Avx2, Host::Avx512].into_iter().filter(|&h| h <= best) {
                let (got, other) = run(sem, host, &src);
                if bits != other {
                    return Err(format!("{} gives bits {other:#x} on {host:?}, portable {bits:#x}", op.name()));
                }
                for l in 0..4 * CHUNK {
                    let [a, b] = [&want, &got].map(|r| canonical(sem.dst, r.0[0][l], r.0[1][l]));
                    if a != b {
                        let from = src.map(|r| (r.0[0][l], r.0[1][l]));
                        return Err(format!("{} of {from:x?} is {b:x?} on {host:?}, portable {a:x?}", op.name()));
                    }
                }
                compared += 1;
            }
        }
    }
    Ok(compared)
}
