//! Read-modify-write operations of memory and LDS.
//!
//! Source: the pseudocode of the DS_*_RTN, BUFFER_ATOMIC_*, GLOBAL_ATOMIC_* and FLAT_ATOMIC_* instructions in the "Vega"
//! manual (chapter "Instructions", LDS and MUBUF sections); packed and f64 additions "CDNA3", clamped subtraction and
//! conditional subtraction "RDNA4".

use crate::lanes::{Bf16, F16};
use crate::numeric::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use barewave_isa::action::Atomic;

use Atomic::*;

fn f16x2(a: u32, b: u32) -> u32 {
    let f = |x: u32, y: u32| half2(F16(x as u16), F16(y as u16), |p, q| p + q).0 as u32;
    f(a, b) | f(a >> 16, b >> 16) << 16
}
fn bf16x2(a: u32, b: u32) -> u32 {
    let f = |x: u32, y: u32| f32_to_bf16(bf16_to_f32(Bf16(x as u16)) + bf16_to_f32(Bf16(y as u16))).0 as u32;
    f(a, b) | f(a >> 16, b >> 16) << 16
}

/// What only 32-bit cells know: old value, data, second operand.
fn other32(op: Atomic, old: u32, a: u32, b: u32) -> u32 {
    match op {
        PkAddF16 => f16x2(old, a),
        PkAddBf16 => bf16x2(old, a),
        Wrap if old >= a => old.wrapping_sub(a),
        Wrap => old.wrapping_add(b),
        _ => old,
    }
}

fn other64(_: Atomic, old: u64, _: u64, _: u64) -> u64 {
    old
}

/// The new value of a cell, and the function that performs the operation, for one size of cell.
macro_rules! cell {
    ($apply:ident, $rmw:ident, $u:ty, $i:ty, $f:ty, $cell:ty, $min:ident, $max:ident, $other:ident) => {
        /// New value of a cell: old value, data, second operand (comparand, mask).
        fn $apply(op: Atomic, old: $u, a: $u, b: $u) -> $u {
            let f = <$f>::from_bits;
            match op {
                Swap => a,
                CmpSwap if old == b => a,
                CmpSwap => old,
                Add => old.wrapping_add(a),
                Sub => old.wrapping_sub(a),
                Rsub => a.wrapping_sub(old),
                SMin => (old as $i).min(a as $i) as $u,
                UMin => old.min(a),
                SMax => (old as $i).max(a as $i) as $u,
                UMax => old.max(a),
                And => old & a,
                Or => old | a,
                Xor => old ^ a,
                Inc if old >= a => 0,
                Inc => old + 1,
                Dec if old == 0 || old > a => a,
                Dec => old - 1,
                CSub => old.saturating_sub(a),
                CondSub if old >= a => old - a,
                CondSub => old,
                FAdd => (f(old) + f(a)).to_bits(),
                FMin => $min(f(old), f(a)).to_bits(),
                FMax => $max(f(old), f(a)).to_bits(),
                FCmpSwap if f(old) == f(b) => a,
                FCmpSwap => old,
                // data0 is the mask, data1 the bits.
                MskOr => old & !a | b,
                PkAddF16 | PkAddBf16 | Wrap => $other(op, old, a, b),
            }
        }

        /// Performs the operation on a cell and returns the old value.
        ///
        /// # Safety
        /// `p` points to as many bytes as the cell has, which only other atomics and raw accesses touch.
        pub unsafe fn $rmw(p: *mut u8, op: Atomic, a: $u, b: $u) -> $u {
            // SAFETY: promised by the caller; alignment is checked.
            unsafe {
                if !(p as usize).is_multiple_of(size_of::<$u>()) {
                    let old = p.cast::<$u>().read_unaligned();
                    p.cast::<$u>().write_unaligned($apply(op, old, a, b));
                    return old;
                }
                let cell = <$cell>::from_ptr(p.cast());
                let mut old = cell.load(Ordering::Relaxed);
                loop {
                    match cell.compare_exchange_weak(old, $apply(op, old, a, b), Ordering::AcqRel, Ordering::Relaxed) {
                        Ok(_) => return old,
                        Err(now) => old = now,
                    }
                }
            }
        }
    };
}

cell!(apply32, rmw32, u32, i32, f32, AtomicU32, min_num, max_num, other32);
cell!(apply64, rmw64, u64, i64, f64, AtomicU64, min_num64, max_num64, other64);
