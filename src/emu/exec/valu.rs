//! Vector ALU: from operands to lane kernels and back.
//!
//! The fast path hands register rows straight to the kernel; scalars and constants become one 16-lane row that is
//! reused for every chunk. Runs of f32 multiply-adds, which matrix products are made of, are one call ([`Batch`]). The
//! general path first builds each source in a temporary row (DPP, SDWA, `op_sel`, absolute value, negation, denormal
//! flushing), runs the same kernel on those, and then applies output modifiers, clamping and partial writes.
//!
//! Source: "Vega", "CDNA3", "RDNA2" and "RDNA3" manuals, chapter "Vector ALU Operations" (input and output modifiers, DPP,
//! SDWA, packed math) and the MODE register's table in chapter "Kernel State".

use crate::lanes::{Bf16, CHUNK, F16, Host, Rows, Ty, on_hosts};
use crate::numeric::*;
use crate::sem::{Form, Sem, fp8, round};
use crate::uop::{Batch, Dpp, Ext, Kind, Payload, Run, Src, UOp};
use crate::wave::{Ctl, DX10_CLAMP, EXEC, FP16_OVFL, IEEE, Lanes, VCC, Wave};
use barewave_isa::action::{Action, Float, Float8};

/// One value repeated over a chunk, per source: low dwords, then high dwords.
#[repr(C, align(64))]
struct Splat([[[u32; CHUNK]; 2]; 3]);

/// Rows of the sources; those that are no registers are repeated in `tmp`, their value changed by `f`.
#[inline(always)]
fn sources(w: &Wave, op: &UOp, tmp: *mut Splat, f: impl Fn(usize, u64) -> u64) -> [*const u32; 3] {
    let mut rows = [std::ptr::null(); 3];
    for i in 0..3 {
        let s = &op.src[i];
        let v = match s.kind {
            Kind::Vector => {
                // SAFETY: rows are checked when the program is decoded.
                rows[i] = unsafe { w.v().add(s.at as usize) };
                continue;
            }
            Kind::Const => s.value,
            Kind::None => break,
            _ => w.r64(s),
        };
        // SAFETY: `tmp` has room for three splats.
        unsafe {
            let (row, v) = (&raw mut (*tmp).0[i], f(i, v));
            row.write([[v as u32; CHUNK], [(v >> 32) as u32; CHUNK]]);
            rows[i] = row.cast();
        }
    }
    rows
}

/// Lane values in, lane value out, no modifiers.
#[inline(always)]
unsafe fn map_on(w: &mut Wave, op: &UOp) -> Ctl {
    if op.float && !w.plain_float {
        // SAFETY: passed on.
        return unsafe { general(w, op) };
    }
    let mut tmp = std::mem::MaybeUninit::<Splat>::uninit();
    let [x, y, z] = sources(w, op, tmp.as_mut_ptr(), |_, v| v);
    // SAFETY: rows are checked when the program is decoded.
    unsafe { (op.kernel)(w.v().add(op.dst as usize), x, y, z, w.exec(), op.rows) };
    Ctl::Next
}

/// As [`map_on`] with sources that are all registers.
#[inline(always)]
unsafe fn registers_on(w: &mut Wave, op: &UOp) -> Ctl {
    if op.float && !w.plain_float {
        // SAFETY: passed on.
        return unsafe { general(w, op) };
    }
    let v = w.v();
    // SAFETY: rows are checked when the program is decoded.
    unsafe {
        let [x, y, z] = [0, 1, 2].map(|i| v.add(op.src[i].at as usize).cast_const());
        (op.kernel)(v.add(op.dst as usize), x, y, z, w.exec(), op.rows);
    }
    Ctl::Next
}

/// What absolute value and negation do to the bits of a source: a mask to keep, and one to flip.
fn signs(e: &Ext, ty: Ty, i: usize) -> (u64, u64) {
    let bit = |m: u8, sign: u64| if m >> i & 1 == 1 { sign } else { 0 };
    match ty {
        Ty::Pk16 => (!0, 0),
        Ty::PkF16 | Ty::PkBf16 => (!0, bit(e.neg, 1 << 15) | bit(e.neg_hi, 1 << 31)),
        Ty::PkF32 => (!0, bit(e.neg, 1 << 31) | bit(e.neg_hi, 1 << 63)),
        _ => {
            let sign = match ty {
                _ if ty.is_16() => 1 << 15,
                _ if ty.dwords() == 2 => 1 << 63,
                _ => 1 << 31,
            };
            (!bit(e.abs, sign), bit(e.neg, sign))
        }
    }
}

/// True for modifiers that are nothing but [`signs`].
pub fn only_signs(e: &Ext) -> bool {
    *e == Ext { neg: e.neg, neg_hi: e.neg_hi, abs: e.abs, ..Ext::NONE }
}

/// As [`map_on`] with negated or absolute sources: copies of their rows with other signs take their place.
#[inline(always)]
unsafe fn signs_on(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(e) = op.ext().filter(|_| !op.float || w.plain_float) else {
        // SAFETY: passed on.
        return unsafe { general(w, op) };
    };
    let masks = [0, 1, 2].map(|i| signs(e, op.types[i], i));
    let mut tmp = std::mem::MaybeUninit::<Splat>::uninit();
    let mut copies = std::mem::MaybeUninit::<[[[u32; CHUNK]; 8]; 3]>::uninit();
    let mut rows = sources(w, op, tmp.as_mut_ptr(), |i, v| v & masks[i].0 ^ masks[i].1);
    for i in 0..3 {
        let (keep, flip) = masks[i];
        if (keep, flip) == (!0, 0) || op.src[i].kind != Kind::Vector {
            continue;
        }
        let chunks = w.chunks();
        // SAFETY: rows are checked when the program is decoded; a copy has room for two rows of 64 lanes.
        unsafe {
            let (from, to) =
                (rows[i].cast::<[u32; CHUNK]>(), (&raw mut (*copies.as_mut_ptr())[i]).cast::<[u32; CHUNK]>());
            for c in 0..chunks * op.types[i].dwords() {
                let shift = if c < chunks { 0 } else { 32 };
                let (keep, flip) = ((keep >> shift) as u32, (flip >> shift) as u32);
                to.add(c).write((*from.add(c)).map(|x| x & keep ^ flip));
            }
            rows[i] = to.cast_const().cast();
        }
    }
    let [x, y, z] = rows;
    // SAFETY: rows are checked when the program is decoded.
    unsafe { (op.kernel)(w.v().add(op.dst as usize), x, y, z, w.exec(), op.rows) };
    Ctl::Next
}

/// Instructions with lane bits in or out: compares, carries, selects.
#[inline(always)]
unsafe fn bits_on(w: &mut Wave, op: &UOp) -> Ctl {
    if op.float && !w.plain_float {
        // SAFETY: passed on.
        return unsafe { general(w, op) };
    }
    let mut tmp = std::mem::MaybeUninit::<Splat>::uninit();
    let [x, y, z] = sources(w, op, tmp.as_mut_ptr(), |_, v| v);
    let rows = Rows { carry: bits_in(w, op), ..*op.rows };
    // SAFETY: rows are checked when the program is decoded.
    let out = unsafe { (op.kernel)(w.v().add(op.dst as usize), x, y, z, w.exec(), &rows) };
    bits_out(w, op, out);
    Ctl::Next
}

/// One multiply-add after the other ([`batches`]), all with the same EXEC and MODE.
#[inline(always)]
unsafe fn multiply_adds_on(w: &mut Wave, ops: &[UOp]) {
    let exec = w.exec();
    // SAFETY: passed on.
    unsafe {
        match (w.lanes, exec == w.all()) {
            (64, true) => multiply_adds::<4, true>(w, ops, exec),
            (64, _) => multiply_adds::<4, false>(w, ops, exec),
            (_, true) => multiply_adds::<2, true>(w, ops, exec),
            _ => multiply_adds::<2, false>(w, ops, exec),
        }
    }
}

#[inline(always)]
unsafe fn multiply_adds<const CHUNKS: usize, const ALL: bool>(w: &mut Wave, ops: &[UOp], exec: u64) {
    for op in ops {
        // SAFETY: passed on.
        unsafe {
            match &op.payload {
                Payload::Dual(halves) => {
                    multiply_add::<CHUNKS, ALL>(w, &halves[0], exec);
                    multiply_add::<CHUNKS, ALL>(w, &halves[1], exec);
                }
                _ => multiply_add::<CHUNKS, ALL>(w, op, exec),
            }
        }
    }
}

#[inline(always)]
unsafe fn multiply_add<const CHUNKS: usize, const ALL: bool>(w: &mut Wave, op: &UOp, exec: u64) {
    type Row = [f32; CHUNK];
    let v = w.v().cast::<f32>();
    let scalar = op.src[0].kind != Kind::Vector;
    let same = if scalar { f32::from_bits(w.r32(&op.src[0])) } else { 0.0 };
    // SAFETY: rows are checked when the program is decoded.
    unsafe {
        let (x, d) = (v.add(op.src[0].at as usize), v.add(op.dst as usize));
        let (y, z) = (v.add(op.src[1].at as usize), v.add(op.src[2].at as usize));
        for c in 0..CHUNKS {
            let a = if scalar { [same; CHUNK] } else { *x.add(c * CHUNK).cast::<Row>() };
            let (b, mut sum) = (*y.add(c * CHUNK).cast::<Row>(), *z.add(c * CHUNK).cast::<Row>());
            for i in 0..CHUNK {
                sum[i] = fma(a[i], b[i], sum[i]);
            }
            let to = d.add(c * CHUNK).cast::<Row>();
            if !ALL {
                let old = *to;
                for i in 0..CHUNK {
                    sum[i] = if exec >> (c * CHUNK + i) & 1 == 1 { sum[i] } else { old[i] };
                }
            }
            *to = sum;
        }
    }
}

/// Handlers of instructions without modifiers, compiled for one host.
#[derive(Clone, Copy)]
pub struct Handlers {
    /// Lane values in, lane value out.
    pub map: Run,
    /// The same with sources that are all registers.
    pub registers: Run,
    /// Lane values in, lane value out, sources negated or absolute.
    pub signs: Run,
    /// Lane bits in or out.
    pub bits: Run,
    /// Runs of f32 multiply-adds.
    pub multiply_adds: Batch,
}

/// Handlers for a host.
pub fn handlers(host: Host) -> Handlers {
    const MAP: [Run; 3] = {
        on_hosts!(map_on(w: &mut Wave, op: &UOp) -> Ctl);
        [portable, avx2, avx512]
    };
    const REGISTERS: [Run; 3] = {
        on_hosts!(registers_on(w: &mut Wave, op: &UOp) -> Ctl);
        [portable, avx2, avx512]
    };
    const SIGNS: [Run; 3] = {
        on_hosts!(signs_on(w: &mut Wave, op: &UOp) -> Ctl);
        [portable, avx2, avx512]
    };
    const BITS: [Run; 3] = {
        on_hosts!(bits_on(w: &mut Wave, op: &UOp) -> Ctl);
        [portable, avx2, avx512]
    };
    const MULTIPLY_ADDS: [Batch; 3] = {
        on_hosts!(multiply_adds_on(w: &mut Wave, ops: &[UOp]) -> ());
        [portable, avx2, avx512]
    };
    let n = host as usize;
    Handlers { map: MAP[n], registers: REGISTERS[n], signs: SIGNS[n], bits: BITS[n], multiply_adds: MULTIPLY_ADDS[n] }
}

/// True for an operation that may stand in a run of multiply-adds: f32, no modifiers, all but the first source registers.
pub fn joins_batch(action: &Action, op: &UOp) -> bool {
    let [first, rest @ ..] = &op.src;
    *action == Action::Float(Float::FmaF32)
        && matches!(op.payload, Payload::None)
        && matches!(first.kind, Kind::Vector | Kind::Scalar | Kind::Const)
        && rest[..2].iter().all(|s| s.kind == Kind::Vector)
}

/// The lane bits an instruction reads: its last operand, or VCC.
#[inline(always)]
fn bits_in(w: &Wave, op: &UOp) -> u64 {
    match op.form {
        Form::BitIn | Form::BitInOut => w.rbits(&op.src[3]),
        Form::VccIn => w.bits(VCC),
        _ => 0,
    }
}

/// Stores the lane bits an instruction gives; inactive lanes give 0.
#[inline(always)]
fn bits_out(w: &mut Wave, op: &UOp, out: u64) {
    match op.form {
        Form::Compare | Form::BitOut | Form::BitInOut => w.set_bits(op.dst2 as usize, out),
        Form::CompareExec => {
            w.set_bits(op.dst2 as usize, out);
            w.set_bits(EXEC, out);
        }
        _ => {}
    }
}

/// A wave's row of one operand: low and high dwords of up to 64 lanes.
#[derive(Clone)]
#[repr(C, align(64))]
struct Full {
    lo: [u32; 64],
    hi: [u32; 64],
}

impl Full {
    const ZERO: Full = Full { lo: [0; 64], hi: [0; 64] };
}

/// A copy of a source in all lanes.
fn fetch(w: &Wave, s: &Src, dwords: usize, out: &mut Full) {
    match s.kind {
        Kind::None => {}
        Kind::Vector => {
            for l in 0..w.lanes {
                out.lo[l] = w.lane(s.at, l);
            }
            if dwords == 2 {
                for l in 0..w.lanes {
                    out.hi[l] = w.lane(s.at + w.lanes as u32, l);
                }
            }
        }
        _ => {
            let v = if dwords == 2 { w.r64(s) } else { w.r32(s) as u64 };
            out.lo = [v as u32; 64];
            out.hi = [(v >> 32) as u32; 64];
        }
    }
}

/// Source lane of a DPP16 control, or `None` where there is no such lane.
pub fn dpp_lane(ctrl: u16, lane: usize, lanes: usize) -> Option<usize> {
    let (row, i) = (lane & !15, lane & 15);
    let n = (ctrl & 15) as usize;
    match ctrl {
        0..=0xff => Some(lane & !3 | (ctrl >> (2 * (lane & 3)) & 3) as usize),
        0x101..=0x10f => (i + n < 16).then_some(lane + n),
        0x111..=0x11f => i.checked_sub(n).map(|j| row + j),
        0x121..=0x12f => Some(row + ((i + 16 - n) & 15)),
        0x130 => (lane + 1 < lanes).then_some(lane + 1),
        0x134 => Some((lane + 1) % lanes),
        0x138 => lane.checked_sub(1),
        0x13c => Some((lane + lanes - 1) % lanes),
        0x140 => Some(row + 15 - i),
        0x141 => Some(lane & !7 | (7 - (lane & 7))),
        // Lane 15 of each row goes to the next row; lane 31 to the upper half.
        0x142 => row.checked_sub(1),
        0x143 => (lane >= 32).then_some(31),
        // row_newbcast on gfx90a, row_share from gfx10 on: the same.
        0x150..=0x15f => Some(row + n),
        0x160..=0x16f => Some(row + (i ^ n)),
        _ => None,
    }
}

/// Permutes source 0; returns the lanes that may be written.
fn apply_dpp(w: &Wave, dpp: Dpp, x: &mut Full) -> u64 {
    let exec = w.exec();
    let old = x.clone();
    let mut mask = 0u64;
    for lane in 0..w.lanes {
        let (from, zero, fi) = match dpp {
            Dpp::Dpp8(sel, fi) => (Some(lane & !7 | (sel >> (3 * (lane & 7)) & 7) as usize), true, fi),
            Dpp::Ctrl(ctrl, rows, banks, bound, fi) => {
                if rows >> (lane / 16) & 1 == 0 || banks >> (lane / 4 % 4) & 1 == 0 {
                    continue;
                }
                (dpp_lane(ctrl, lane, w.lanes), bound, fi)
            }
        };
        match from.filter(|&f| fi || exec >> f & 1 == 1) {
            Some(f) => (x.lo[lane], x.hi[lane]) = (old.lo[f], old.hi[f]),
            None if zero => (x.lo[lane], x.hi[lane]) = (0, 0),
            None => continue,
        }
        mask |= 1 << lane;
    }
    mask
}

/// Selects a byte or word (SDWA).
fn sdwa_select(v: u32, sel: u8, sext: bool) -> u32 {
    let (shift, bits) = match sel {
        0..=3 => (8 * sel as u32, 8),
        4 => (0, 16),
        5 => (16, 16),
        _ => return v,
    };
    let x = v >> shift << (32 - bits);
    if sext { ((x as i32) >> (32 - bits)) as u32 } else { x >> (32 - bits) }
}

/// Bits of MODE that say how denormals of a type are treated: bit 0 keeps those of sources, bit 1 those of results.
fn denormals(mode: u32, ty: Ty) -> u32 {
    match ty {
        Ty::F32 | Ty::PkF32 => mode >> 4 & 3,
        _ => mode >> 6 & 3,
    }
}

/// True when MODE asks for another rounding mode than to nearest even for a type.
pub fn rounds(mode: u32, ty: Ty) -> bool {
    match ty {
        Ty::F32 | Ty::PkF32 => mode & 3 != 0,
        _ => mode >> 2 & 3 != 0,
    }
}

fn flush_lane(ty: Ty, lo: u32, hi: u32) -> (u32, u32) {
    match ty {
        Ty::F32 => (flush(f32::from_bits(lo)).to_bits(), hi),
        Ty::PkF32 => (flush(f32::from_bits(lo)).to_bits(), flush(f32::from_bits(hi)).to_bits()),
        Ty::F16 => (flush16(lo as u16) as u32 | lo & 0xffff_0000, hi),
        Ty::PkF16 => (flush16(lo as u16) as u32 | (flush16((lo >> 16) as u16) as u32) << 16, hi),
        Ty::F64 => {
            let v = flush64(lo as u64 | (hi as u64) << 32);
            (v as u32, (v >> 32) as u32)
        }
        _ => (lo, hi),
    }
}

/// Flushes denormals of a source where MODE says so, or `always`.
pub fn flush_source(mode: u32, always: bool, ty: Ty, lo: u32, hi: u32) -> (u32, u32) {
    if (always && matches!(ty, Ty::F32)) || denormals(mode, ty) & 1 == 0 { flush_lane(ty, lo, hi) } else { (lo, hi) }
}

/// Flushes denormals of a result.
pub fn flush_result(mode: u32, always: bool, ty: Ty, lo: u32, hi: u32) -> (u32, u32) {
    if (always && matches!(ty, Ty::F32)) || denormals(mode, ty) & 2 == 0 { flush_lane(ty, lo, hi) } else { (lo, hi) }
}

/// Quiets a signalling NaN, so that minimum and maximum drop it (IEEE mode off).
fn quieted(ty: Ty, lo: u32, hi: u32) -> (u32, u32) {
    let half = |h: u32| if h & 0x7fff > 0x7c00 { h | 0x200 } else { h };
    match ty {
        Ty::F32 if lo & 0x7fff_ffff > 0x7f80_0000 => (lo | 0x40_0000, hi),
        Ty::F16 => (half(lo & 0xffff) | lo & 0xffff_0000, hi),
        Ty::PkF16 => (half(lo & 0xffff) | half(lo >> 16) << 16, hi),
        Ty::F64 if f64::from_bits(lo as u64 | (hi as u64) << 32).is_nan() => (lo, hi | 1 << 19),
        _ => (lo, hi),
    }
}

/// With FP16_OVFL a finite number that is too large becomes the largest one.
fn saturate16(ty: Ty, x: &[Full; 3], n: usize, lane: usize, types: &[Ty; 4], v: u32) -> u32 {
    let infinite = |i: usize| match types[i] {
        Ty::F32 => x[i].lo[lane] & 0x7f80_0000 == 0x7f80_0000,
        Ty::F16 => x[i].lo[lane] & 0x7c00 == 0x7c00,
        Ty::PkF16 => x[i].lo[lane] & 0x7c00 == 0x7c00 || x[i].lo[lane] & 0x7c00_0000 == 0x7c00_0000,
        _ => false,
    };
    if (0..n).any(infinite) {
        return v;
    }
    let half = |h: u32| if h & 0x7fff == 0x7c00 { h - 1 } else { h };
    match ty {
        Ty::F16 => half(v & 0xffff) | v & 0xffff_0000,
        Ty::PkF16 => half(v & 0xffff) | half(v >> 16) << 16,
        _ => v,
    }
}

/// Absolute value, negation and operand selection of one lane.
fn modify(e: &Ext, i: usize, ty: Ty, lo: u32, hi: u32) -> (u32, u32) {
    let bit = |m: u8| m >> i & 1 == 1;
    let (mut lo, mut hi) = (lo, hi);
    if e.mix {
        // neg_hi carries the absolute-value bits here.
        let mut v = if bit(e.op_sel_hi) {
            f16_to_f32(F16(if bit(e.op_sel) { lo >> 16 } else { lo } as u16)).to_bits()
        } else {
            lo
        };
        if bit(e.neg_hi) || bit(e.abs) {
            v &= 0x7fff_ffff;
        }
        if bit(e.neg) {
            v ^= 0x8000_0000;
        }
        return (v, 0);
    }
    match ty {
        Ty::PkF16 | Ty::PkBf16 | Ty::Pk16 => {
            let l = if bit(e.op_sel) { lo >> 16 } else { lo } & 0xffff;
            let h = if bit(e.op_sel_hi) { lo >> 16 } else { lo } & 0xffff;
            let float = ty != Ty::Pk16;
            let l = if bit(e.neg) && float { l ^ 0x8000 } else { l };
            let h = if bit(e.neg_hi) && float { h ^ 0x8000 } else { h };
            (l | h << 16, 0)
        }
        Ty::PkF32 => {
            let l = if bit(e.op_sel) { hi } else { lo };
            let h = if bit(e.op_sel_hi) { hi } else { lo };
            (if bit(e.neg) { l ^ 1 << 31 } else { l }, if bit(e.neg_hi) { h ^ 1 << 31 } else { h })
        }
        _ => {
            if ty.is_16() && bit(e.op_sel) {
                lo >>= 16;
            }
            let sign = match ty {
                Ty::F16 | Ty::Bf16 | Ty::B16 => 0x8000,
                _ => 0x8000_0000u32,
            };
            let part = if ty.dwords() == 2 { &mut hi } else { &mut lo };
            if bit(e.abs) {
                *part &= !sign;
            }
            if bit(e.neg) {
                *part ^= sign;
            }
            (lo, hi)
        }
    }
}

fn scale(omod: u8) -> f64 {
    [1.0, 2.0, 4.0, 0.5][omod as usize & 3]
}

/// Output modifier and clamp of one lane. A NaN is clamped to 0 with DX10_CLAMP, which compilers set.
fn finish(e: &Ext, mode: u32, dst: Ty, lo: u32, hi: u32) -> (u32, u32) {
    let keep_nan = mode & DX10_CLAMP == 0;
    let clamp32 = |x: f32| match x.is_nan() {
        true if keep_nan => x,
        true => 0.0,
        // The addition turns -0 into +0.
        false => x.clamp(0.0, 1.0) + 0.0,
    };
    let half = |h: u16| {
        let mut v = f16_to_f32(F16(h));
        if e.omod != 0 {
            v *= scale(e.omod) as f32;
        }
        f32_to_f16(if e.clamp { clamp32(v) } else { v }).0 as u32
    };
    let bf16 = |b: u16| f32_to_bf16(clamp32(bf16_to_f32(Bf16(b)))).0 as u32;
    match dst {
        Ty::F32 => {
            let v = f32::from_bits(lo);
            let v = if e.omod != 0 { v * scale(e.omod) as f32 } else { v };
            (if e.clamp { clamp32(v) } else { v }.to_bits(), hi)
        }
        Ty::F64 => {
            let v = f64::from_bits(lo as u64 | (hi as u64) << 32);
            let v = if e.omod != 0 { v * scale(e.omod) } else { v };
            let v = match e.clamp {
                true if v.is_nan() => {
                    if keep_nan {
                        v
                    } else {
                        0.0
                    }
                }
                true => v.clamp(0.0, 1.0),
                false => v,
            }
            .to_bits();
            (v as u32, (v >> 32) as u32)
        }
        Ty::F16 => (half(lo as u16), hi),
        Ty::PkF16 => (half(lo as u16) | half((lo >> 16) as u16) << 16, hi),
        Ty::PkF32 => {
            let f = |b: u32| if e.clamp { clamp32(f32::from_bits(b)).to_bits() } else { b };
            (f(lo), f(hi))
        }
        Ty::Bf16 if e.clamp => (bf16(lo as u16), hi),
        Ty::PkBf16 if e.clamp => (bf16(lo as u16) | bf16((lo >> 16) as u16) << 16, hi),
        _ => (lo, hi),
    }
}

/// Merges a result into its register (SDWA destinations, upper halves).
fn merge(e: &Ext, dst: Ty, old: u32, new: u32) -> u32 {
    if let Some(s) = e.sdwa {
        let (shift, bits) = match s.dst {
            0..=3 => (8 * s.dst as u32, 8),
            4 => (0, 16),
            5 => (16, 16),
            _ => return new,
        };
        let field = (((1u64 << bits) - 1) as u32) << shift;
        let placed = new << shift & field;
        return match s.unused {
            0 => placed,
            1 => {
                let sign = if new >> (bits - 1) & 1 == 1 { u32::MAX } else { 0 };
                placed | (sign as u64 & !((1u64 << (shift + bits)) - 1)) as u32
            }
            _ => old & !field | placed,
        };
    }
    if dst.is_16() {
        if e.op_sel & 8 != 0 {
            return old & 0xffff | new << 16;
        }
        if e.keep_half {
            return old & 0xffff_0000 | new & 0xffff;
        }
    }
    new
}

/// Any vector instruction with any modifiers.
///
/// # Safety
/// `op` was decoded for waves like `w`; the same holds for every handler.
pub unsafe fn general(w: &mut Wave, op: &UOp) -> Ctl {
    const PLAIN: Ext = Ext::NONE;
    let e = op.ext().unwrap_or(&PLAIN);
    let always = op.access.flags & FLUSH != 0;
    let mut x = [Full::ZERO, Full::ZERO, Full::ZERO];
    let mut mask = w.exec();
    for i in 0..3 {
        if op.src[i].kind == Kind::None {
            break;
        }
        let ty = if e.mix { Ty::F32 } else { op.types[i] };
        fetch(w, &op.src[i], ty.dwords(), &mut x[i]);
        if i == 0
            && let Some(dpp) = e.dpp
        {
            mask &= apply_dpp(w, dpp, &mut x[0]);
        }
        for l in 0..w.lanes {
            let (mut lo, mut hi) = (x[i].lo[l], x[i].hi[l]);
            if let (Some(s), true) = (e.sdwa, i < 2) {
                lo = sdwa_select(lo, s.src[i], e.sext >> i & 1 == 1);
            }
            (lo, hi) = modify(e, i, op.types[i], lo, hi);
            if op.float {
                (lo, hi) = flush_source(w.mode, always, ty, lo, hi);
            }
            if op.access.flags & MINMAX != 0 && w.mode & IEEE == 0 {
                (lo, hi) = quieted(ty, lo, hi);
            }
            if w.mode & FP16_OVFL != 0
                && let Some(limit) = small_limit(op.access.flags, w.quirks.fnuz)
                && ty == Ty::F32
            {
                let v = f32::from_bits(lo);
                lo = if v.is_nan() { lo } else { v.clamp(-limit, limit).to_bits() };
            }
            (x[i].lo[l], x[i].hi[l]) = (lo, hi);
        }
    }
    let mut out = Full::ZERO;
    let rows = Rows { dst_hi: 64, src_hi: [64; 3], carry: bits_in(w, op), ..Rows::registers(w.lanes) };
    let [sx, sy, sz] = [0, 1, 2].map(|i| (&raw const x[i]).cast());
    // SAFETY: the temporaries hold 64 lanes; `lo` and `hi` are adjacent in `Full`.
    let bits = unsafe { (op.kernel)((&raw mut out).cast(), sx, sy, sz, mask, &rows) };
    let dst = op.types[3];
    let n = op.n.min(3) as usize;
    if let Some(r) = op.round.filter(|_| rounds(w.mode, dst)) {
        let types = if e.mix { [Ty::F32, Ty::F32, Ty::F32, dst] } else { op.types };
        for l in Lanes(mask) {
            (out.lo[l], out.hi[l]) = round::lane(r, types, [0, 1, 2].map(|i| (x[i].lo[l], x[i].hi[l])), w.mode);
        }
    }
    // Output modifiers do nothing where denormal results are kept, or in IEEE mode where there is such a mode.
    let ieee = w.mode & IEEE != 0 && !w.quirks.fixed_modes;
    let omod = e.omod != 0 && !ieee && denormals(w.mode, dst) & 2 == 0;
    let e = &Ext { omod: if omod { e.omod } else { 0 }, ..e.clone() };
    if dst != Ty::None {
        for l in 0..w.lanes {
            if mask >> l & 1 == 0 {
                continue;
            }
            let (mut lo, mut hi) = (out.lo[l], out.hi[l]);
            if op.float {
                (lo, hi) = flush_result(w.mode, always, dst, lo, hi);
                if w.mode & FP16_OVFL != 0 {
                    lo = saturate16(dst, &x, n, l, &op.types, lo);
                }
            }
            if e.omod != 0 || e.clamp {
                (lo, hi) = finish(e, w.mode, dst, lo, hi);
            }
            let old = w.lane(op.dst, l);
            w.set_lane(op.dst, l, merge(e, dst, old, lo));
            if dst.dwords() == 2 {
                w.set_lane(op.dst + w.lanes as u32, l, hi);
            }
        }
    }
    bits_out(w, op, bits);
    Ctl::Next
}

/// `UOp::access.flags` bit of minimum and maximum.
pub const MINMAX: u16 = 1;
/// `UOp::access.flags` bit of conversions to fp8.
pub const TO_FP8: u16 = 2;
/// `UOp::access.flags` bit of conversions to bf8.
pub const TO_BF8: u16 = 4;

/// Flags of an instruction that follow from its meaning.
pub fn flags(action: &Action, sem: &Sem) -> u16 {
    let small = match action {
        Action::Float8(Float8::CvtPkFp8F32 | Float8::CvtSrFp8F32) => TO_FP8,
        Action::Float8(Float8::CvtPkBf8F32 | Float8::CvtSrBf8F32) => TO_BF8,
        _ => 0,
    };
    small | if sem.quiets { MINMAX } else { 0 } | if sem.flush { FLUSH } else { 0 }
}

/// Largest number of the 8-bit format that an instruction converts to.
fn small_limit(flags: u16, fnuz: bool) -> Option<f32> {
    match flags & (TO_FP8 | TO_BF8) {
        TO_FP8 => Some(fp8::largest(fp8::FP8, fnuz)),
        TO_BF8 => Some(fp8::largest(fp8::BF8, fnuz)),
        _ => None,
    }
}

/// `UOp::access.flags` bit of instructions that flush f32 denormals whatever MODE says.
pub const FLUSH: u16 = 1 << 15;
