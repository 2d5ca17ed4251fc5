//! Read-modify-write operations of memory and LDS.
//!
//! Source: the pseudocode of the DS_*_RTN, BUFFER_ATOMIC_*, GLOBAL_ATOMIC_* and FLAT_ATOMIC_* instructions in the "Vega"
//! manual (chapter "Instructions", LDS and MUBUF sections); packed and f64 additions "CDNA3", clamped subtraction and
//! conditional subtraction "RDNA4".

use crate::emu::lanes::{Bf16, F16};
use crate::emu::numeric::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which read-modify-write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Atomic {
    Swap,
    CmpSwap,
    Add,
    Sub,
    Rsub,
    SMin,
    UMin,
    SMax,
    UMax,
    And,
    Or,
    Xor,
    Inc,
    Dec,
    CSub,
    CondSub,
    FAdd,
    FMin,
    FMax,
    FCmpSwap,
    PkAddF16,
    PkAddBf16,
    MskOr,
    Wrap,
}

use Atomic::*;

/// All operations, by number.
const ALL: [Atomic; 24] = [
    Swap, CmpSwap, Add, Sub, Rsub, SMin, UMin, SMax, UMax, And, Or, Xor, Inc, Dec, CSub, CondSub, FAdd, FMin, FMax,
    FCmpSwap, PkAddF16, PkAddBf16, MskOr, Wrap,
];

impl Atomic {
    /// Inverse of `as u8`.
    pub fn from_u8(n: u8) -> Atomic {
        ALL[(n as usize).min(ALL.len() - 1)]
    }
    /// Operation and bytes of the part of a vector memory mnemonic after `atomic_`.
    pub fn of_vmem(name: &str) -> Option<(Atomic, u8)> {
        let (base, bytes) = match name.strip_suffix("_x2") {
            Some(b) => (b, 8),
            None => (name, 4),
        };
        Some(match base {
            "swap" => (Swap, bytes),
            "cmpswap" => (CmpSwap, bytes),
            "add" => (Add, bytes),
            "sub" => (Sub, bytes),
            "smin" => (SMin, bytes),
            "umin" => (UMin, bytes),
            "smax" => (SMax, bytes),
            "umax" => (UMax, bytes),
            "and" => (And, bytes),
            "or" => (Or, bytes),
            "xor" => (Xor, bytes),
            "inc" => (Inc, bytes),
            "dec" => (Dec, bytes),
            "csub" => (CSub, bytes),
            "cond_sub_u32" => (CondSub, 4),
            "add_f32" => (FAdd, 4),
            "add_f64" => (FAdd, 8),
            "min_f64" => (FMin, 8),
            "max_f64" => (FMax, 8),
            "fmin" => (FMin, bytes),
            "fmax" => (FMax, bytes),
            "fcmpswap" => (FCmpSwap, bytes),
            "pk_add_f16" => (PkAddF16, 4),
            "pk_add_bf16" => (PkAddBf16, 4),
            _ => return None,
        })
    }
    /// Operation and bytes of the part of a DS mnemonic after `ds_`, with `_rtn` taken out.
    pub fn of_ds(name: &str) -> Option<(Atomic, u8)> {
        let (op, ty) = name.rsplit_once('_')?;
        let bytes = match ty {
            "b64" | "u64" | "i64" | "f64" => 8,
            _ => 4,
        };
        Some((
            match (op, &ty[..1]) {
                ("wrxchg", _) => Swap,
                ("cmpst" | "cmpstore", "f") => FCmpSwap,
                ("cmpst" | "cmpstore", _) => CmpSwap,
                ("add", "f") => FAdd,
                ("min", "f") => FMin,
                ("max", "f") => FMax,
                ("pk_add", "f") => PkAddF16,
                ("pk_add", _) => PkAddBf16,
                ("add", _) => Add,
                ("sub", _) => Sub,
                ("rsub", _) => Rsub,
                ("min", "i") => SMin,
                ("min", _) => UMin,
                ("max", "i") => SMax,
                ("max", _) => UMax,
                ("and", _) => And,
                ("or", _) => Or,
                ("xor", _) => Xor,
                ("inc", _) => Inc,
                ("dec", _) => Dec,
                ("sub_clamp", _) => CSub,
                ("cond_sub", _) => CondSub,
                ("mskor", _) => MskOr,
                ("wrap", _) => Wrap,
                _ => return None,
            },
            bytes,
        ))
    }
    /// Takes two data operands.
    pub fn two_operands(self) -> bool {
        matches!(self, CmpSwap | FCmpSwap | MskOr | Wrap)
    }
}

fn f16x2(a: u32, b: u32) -> u32 {
    let f = |x: u32, y: u32| half2(F16(x as u16), F16(y as u16), |p, q| p + q).0 as u32;
    f(a, b) | f(a >> 16, b >> 16) << 16
}
fn bf16x2(a: u32, b: u32) -> u32 {
    let f = |x: u32, y: u32| f32_to_bf16(bf16_to_f32(Bf16(x as u16)) + bf16_to_f32(Bf16(y as u16))).0 as u32;
    f(a, b) | f(a >> 16, b >> 16) << 16
}

/// New value of a 32-bit cell: old value, data, second operand (comparand, mask).
fn apply32(op: Atomic, old: u32, a: u32, b: u32) -> u32 {
    let f = f32::from_bits;
    match op {
        Swap => a,
        CmpSwap => {
            if old == b {
                a
            } else {
                old
            }
        }
        Add => old.wrapping_add(a),
        Sub => old.wrapping_sub(a),
        Rsub => a.wrapping_sub(old),
        SMin => (old as i32).min(a as i32) as u32,
        UMin => old.min(a),
        SMax => (old as i32).max(a as i32) as u32,
        UMax => old.max(a),
        And => old & a,
        Or => old | a,
        Xor => old ^ a,
        Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        CSub => old.saturating_sub(a),
        CondSub => {
            if old >= a {
                old - a
            } else {
                old
            }
        }
        FAdd => (f(old) + f(a)).to_bits(),
        FMin => min_num(f(old), f(a)).to_bits(),
        FMax => max_num(f(old), f(a)).to_bits(),
        FCmpSwap => {
            if f(old) == f(b) {
                a
            } else {
                old
            }
        }
        PkAddF16 => f16x2(old, a),
        PkAddBf16 => bf16x2(old, a),
        // data0 is the mask, data1 the bits.
        MskOr => old & !a | b,
        Wrap => {
            if old >= a {
                old.wrapping_sub(a)
            } else {
                old.wrapping_add(b)
            }
        }
    }
}

fn apply64(op: Atomic, old: u64, a: u64, b: u64) -> u64 {
    let f = f64::from_bits;
    match op {
        Swap => a,
        CmpSwap => {
            if old == b {
                a
            } else {
                old
            }
        }
        Add => old.wrapping_add(a),
        Sub => old.wrapping_sub(a),
        Rsub => a.wrapping_sub(old),
        SMin => (old as i64).min(a as i64) as u64,
        UMin => old.min(a),
        SMax => (old as i64).max(a as i64) as u64,
        UMax => old.max(a),
        And => old & a,
        Or => old | a,
        Xor => old ^ a,
        Inc => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Dec => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        CSub => old.saturating_sub(a),
        CondSub => {
            if old >= a {
                old - a
            } else {
                old
            }
        }
        FAdd => (f(old) + f(a)).to_bits(),
        FMin => min_num64(f(old), f(a)).to_bits(),
        FMax => max_num64(f(old), f(a)).to_bits(),
        FCmpSwap => {
            if f(old) == f(b) {
                a
            } else {
                old
            }
        }
        MskOr => old & !a | b,
        PkAddF16 | PkAddBf16 | Wrap => old,
    }
}

/// Performs the operation on a 32-bit cell and returns the old value.
///
/// # Safety
/// `p` points to four bytes that only other atomics and raw accesses touch.
pub unsafe fn rmw32(p: *mut u8, op: Atomic, a: u32, b: u32) -> u32 {
    // SAFETY: promised by the caller; alignment is checked.
    unsafe {
        if !(p as usize).is_multiple_of(4) {
            let old = p.cast::<u32>().read_unaligned();
            p.cast::<u32>().write_unaligned(apply32(op, old, a, b));
            return old;
        }
        let cell = AtomicU32::from_ptr(p.cast());
        let mut old = cell.load(Ordering::Relaxed);
        loop {
            match cell.compare_exchange_weak(old, apply32(op, old, a, b), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
    }
}

/// Performs the operation on a 64-bit cell and returns the old value.
///
/// # Safety
/// As [`rmw32`] with eight bytes.
pub unsafe fn rmw64(p: *mut u8, op: Atomic, a: u64, b: u64) -> u64 {
    // SAFETY: promised by the caller; alignment is checked.
    unsafe {
        if !(p as usize).is_multiple_of(8) {
            let old = p.cast::<u64>().read_unaligned();
            p.cast::<u64>().write_unaligned(apply64(op, old, a, b));
            return old;
        }
        let cell = AtomicU64::from_ptr(p.cast());
        let mut old = cell.load(Ordering::Relaxed);
        loop {
            match cell.compare_exchange_weak(old, apply64(op, old, a, b), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
    }
}
