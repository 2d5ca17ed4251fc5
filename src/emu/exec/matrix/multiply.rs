//! Gathering operands, multiplying, scattering results.
//!
//! Operands become plain arrays, one row of [`SIDE`] numbers for each k. A row of D is kept in registers of the host
//! while all k are added: C first, then the products in order of k, each with one fused multiply-add.

use super::{Matrix, SIDE, decode_tables};
use crate::lanes::{Bf16, F16, Host};
use crate::numeric::*;
use crate::uop::{Execute, Kind, Src, UOp};
use crate::wave::Wave;
use barewave_isa::matrix::{Column, Elem};
use std::mem::MaybeUninit;

/// Rows of operands: blocks * k is at most this.
const ROWS: usize = 128;
/// Rows of results: blocks * m is at most this.
const RESULTS: usize = 64;

type Rows<T> = [[T; SIDE]; ROWS];

/// What matrices are made of.
trait Number: Copy + Default + PartialEq {
    fn product(a: Self, b: Self, c: Self) -> Self;
    fn add(a: Self, b: Self) -> Self;
    fn negated(self) -> Self;
}
macro_rules! float {
    ($f:ty) => {
        impl Number for $f {
            #[inline(always)]
            fn product(a: $f, b: $f, c: $f) -> $f {
                a.mul_add(b, c)
            }
            #[inline(always)]
            fn add(a: $f, b: $f) -> $f {
                a + b
            }
            #[inline(always)]
            fn negated(self) -> $f {
                -self
            }
        }
    };
}
float!(f32);
float!(f64);
impl Number for i32 {
    #[inline(always)]
    fn product(a: i32, b: i32, c: i32) -> i32 {
        c.wrapping_add(a.wrapping_mul(b))
    }
    #[inline(always)]
    fn add(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn negated(self) -> i32 {
        self.wrapping_neg()
    }
}

/// Reads columns: `f` turns the low and high dword at the element's place into a number.
#[inline(always)]
fn gather<T: Number>(
    w: &Wave,
    s: &Src,
    columns: &[Column],
    side: usize,
    lane_of: Option<&dyn Fn(usize) -> usize>,
    out: *mut Rows<T>,
    f: impl Fn(u32, u32, u32) -> T,
    wide: bool,
) {
    for (n, c) in columns.iter().enumerate() {
        let row = s.at as usize + c.reg as usize * w.lanes;
        let (shift, mut values) = (c.shift as u32, [T::default(); SIDE]);
        // SAFETY: registers are checked when the program is decoded, columns lie inside of rows.
        unsafe {
            let p = w.v().add(row);
            match lane_of {
                None => {
                    let p = p.add(c.lane as usize);
                    // Runs of 16 and 32 lanes vectorise.
                    let mut run = |from: usize, to: usize| {
                        for i in from..to {
                            let high = if wide { *p.add(i + w.lanes) } else { 0 };
                            values[i] = f(*p.add(i), high, shift);
                        }
                    };
                    match side {
                        32 => run(0, 32),
                        16 => run(0, 16),
                        _ => run(0, side),
                    }
                }
                Some(lane_of) => {
                    for i in 0..side {
                        let lane = lane_of(c.lane as usize + i);
                        let high = if wide { *p.add(lane + w.lanes) } else { 0 };
                        values[i] = f(*p.add(lane), high, shift);
                    }
                }
            }
            (&raw mut (*out)[n]).write(values);
        }
    }
}

/// Bits of an element of `BITS` bits, which may straddle two registers.
#[inline(always)]
fn field<const BITS: u32>(lo: u32, hi: u32, shift: u32) -> u32 {
    let v = if BITS == 6 { ((lo as u64 | (hi as u64) << 32) >> shift) as u32 } else { lo >> shift };
    v & ((1u64 << BITS) - 1) as u32
}

#[inline(always)]
fn gather_floats(
    w: &Wave,
    s: &Src,
    c: &[Column],
    side: usize,
    e: Elem,
    fnuz: bool,
    lane_of: Option<&dyn Fn(usize) -> usize>,
    out: *mut Rows<f32>,
) {
    let t = decode_tables();
    match e {
        Elem::F16 => gather(w, s, c, side, lane_of, out, |l, h, n| f16_to_f32(F16(field::<16>(l, h, n) as u16)), false),
        Elem::Bf16 => {
            gather(w, s, c, side, lane_of, out, |l, h, n| bf16_to_f32(Bf16(field::<16>(l, h, n) as u16)), false)
        }
        // Ten bits of mantissa are kept.
        Elem::Xf32 => gather(w, s, c, side, lane_of, out, |l, _, _| f32::from_bits(l & 0xffff_e000), false),
        Elem::Fp8 | Elem::Bf8 => {
            let table = match (e, fnuz) {
                (Elem::Fp8, false) => &t.fp8,
                (Elem::Fp8, true) => &t.fp8_fnuz,
                (_, false) => &t.bf8,
                (_, true) => &t.bf8_fnuz,
            };
            gather(w, s, c, side, lane_of, out, |l, h, n| table[field::<8>(l, h, n) as usize], false)
        }
        Elem::Fp6 => gather(w, s, c, side, lane_of, out, |l, h, n| t.fp6[field::<6>(l, h, n) as usize], true),
        Elem::Bf6 => gather(w, s, c, side, lane_of, out, |l, h, n| t.bf6[field::<6>(l, h, n) as usize], true),
        Elem::Fp4 => gather(w, s, c, side, lane_of, out, |l, h, n| t.fp4[field::<4>(l, h, n) as usize], false),
        _ => gather(w, s, c, side, lane_of, out, |l, _, _| f32::from_bits(l), false),
    }
}

#[inline(always)]
fn gather_integers(
    w: &Wave,
    s: &Src,
    c: &[Column],
    side: usize,
    e: Elem,
    lane_of: Option<&dyn Fn(usize) -> usize>,
    out: *mut Rows<i32>,
) {
    match e {
        Elem::I8 => gather(w, s, c, side, lane_of, out, |l, h, n| field::<8>(l, h, n) as u8 as i8 as i32, false),
        Elem::U8 => gather(w, s, c, side, lane_of, out, |l, h, n| field::<8>(l, h, n) as i32, false),
        Elem::I4 => gather(w, s, c, side, lane_of, out, |l, h, n| ((field::<4>(l, h, n) << 28) as i32) >> 28, false),
        _ => gather(w, s, c, side, lane_of, out, |l, h, n| field::<4>(l, h, n) as i32, false),
    }
}

/// Spreads the stored elements of a sparse A to their places; the rest is zero.
#[inline(always)]
fn expand<T: Number>(w: &Wave, x: &Matrix, index: &Src, stored: &Rows<T>, out: *mut Rows<T>) {
    for (n, c) in x.indices.iter().enumerate() {
        let (group, second) = (n / 2, n % 2 == 1);
        for i in 0..x.shape.m {
            let word = w.lane(index.at, c.lane as usize + i);
            let at = (word >> c.shift & 3) as usize;
            // SAFETY: `out` has rows for all k.
            unsafe {
                for t in 0..4 {
                    let place = &raw mut (*out)[4 * group + t][i];
                    let old = if second { place.read() } else { T::default() };
                    place.write(if t == at { T::add(old, stored[n][i]) } else { old });
                }
            }
        }
    }
}

/// Source lane of B under the BLGP broadcast.
fn broadcast(blgp: usize, lane: usize) -> usize {
    match blgp {
        1 => lane & 31,
        2 => lane & 31 | 32,
        3 => (lane + 16) & 63,
        n @ 4..=7 => 16 * (n - 4) + (lane & 15),
        _ => lane,
    }
}

/// Negates rows of an operand: even and odd k have a modifier bit each.
#[inline(always)]
fn negate<T: Number>(rows: *mut Rows<T>, n: usize, even: bool, odd: bool) {
    if !even && !odd {
        return;
    }
    for k in 0..n {
        if if k % 2 == 0 { even } else { odd } {
            // SAFETY: the rows were gathered.
            unsafe { (*rows)[k].iter_mut().for_each(|v| *v = v.negated()) }
        }
    }
}

/// Multiplies rows of A and B that belong to a block and adds to `c`.
#[inline(always)]
fn multiply<T: Number>(x: &Matrix, a: &[[T; SIDE]], b: &[[T; SIDE]], c: &mut [[T; SIDE]]) {
    if x.shape.n == 32 { multiply_wide::<T, 32>(x, a, b, c) } else { multiply_wide::<T, 16>(x, a, b, c) }
}

/// Four rows of `W` columns at a time stay in registers (narrower products compute columns that nobody reads).
#[inline(always)]
fn multiply_wide<T: Number, const W: usize>(x: &Matrix, a: &[[T; SIDE]], b: &[[T; SIDE]], c: &mut [[T; SIDE]]) {
    let k = x.shape.k;
    let (a, b) = (&a[..k], &b[..k]);
    for i in (0..x.shape.m).step_by(4) {
        let mut sums = [[T::default(); W]; 4];
        for r in 0..4 {
            sums[r].copy_from_slice(&c[i + r][..W]);
        }
        for (p, q) in a.iter().zip(b) {
            for r in 0..4 {
                let p = p[i + r];
                for l in 0..W {
                    sums[r][l] = T::product(p, q[l], sums[r][l]);
                }
            }
        }
        for r in 0..4 {
            c[i + r][..W].copy_from_slice(&sums[r]);
        }
    }
}

/// Source lane of an element of B, where BLGP applies.
#[inline(always)]
fn lanes_of_b(x: &Matrix) -> Option<impl Fn(usize) -> usize> {
    let blgp = x.blgp;
    (x.broadcasts && blgp != 0).then_some(move |lane| broadcast(blgp, lane))
}

/// Block of A that a block uses: CBSZ blocks share the one that ABID names.
fn shared_block(x: &Matrix, block: usize) -> usize {
    let group = 1 << x.cbsz;
    if !x.broadcasts || x.cbsz == 0 || group > x.shape.blocks { block } else { block / group * group + x.abid % group }
}

/// Reads C, multiplies all blocks, returns D.
#[inline(always)]
fn products<T: Number>(x: &Matrix, a: &Rows<T>, b: &Rows<T>, c: &mut [[T; SIDE]; RESULTS]) {
    let s = &x.shape;
    for block in 0..s.blocks {
        let from = shared_block(x, block);
        multiply(
            x,
            &a[from * s.k..(from + 1) * s.k],
            &b[block * s.k..(block + 1) * s.k],
            &mut c[block * s.m..(block + 1) * s.m],
        );
    }
}

/// Element offset of a row of C or D.
#[inline(always)]
fn row_at(w: &Wave, first: u32, c: &Column) -> usize {
    first as usize + c.reg as usize * w.lanes + c.lane as usize
}

/// Copies a row of 32, 16 or fewer numbers.
///
/// # Safety
/// Both places hold as many.
#[inline(always)]
unsafe fn copy_row(from: *const f32, to: *mut f32, n: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        match n {
            32 => to.cast::<[f32; 32]>().write_unaligned(from.cast::<[f32; 32]>().read_unaligned()),
            16 => to.cast::<[f32; 16]>().write_unaligned(from.cast::<[f32; 16]>().read_unaligned()),
            _ => std::ptr::copy(from, to, n),
        }
    }
}

/// Deepest product that [`plain`] takes.
const PLAIN_K: usize = 8;

/// One block of f32 as most kernels write it: nothing negated, broadcast or scaled, C in the registers of D or apart
/// from them.
#[inline(always)]
fn is_plain(op: &UOp, x: &Matrix) -> bool {
    let s = &x.shape;
    let f32s = [x.a_type, x.b_type, x.d_type].iter().all(|e| *e == Elem::F32);
    let whole = s.blocks == 1 && s.m == s.n && s.k <= PLAIN_K && !s.sparse && x.scales.is_none();
    let as_is = x.neg == 0 && x.neg_hi == 0 && (!x.broadcasts || x.blgp == 0 && x.cbsz == 0);
    let c = op.src[2].at;
    f32s && whole
        && as_is
        && op.src[2].kind == Kind::Vector
        && (c == op.dst || c.abs_diff(op.dst) as usize >= s.m * s.n)
}

/// Such a product, from registers to registers: the copies of the general way cost more than so small a product.
#[inline(always)]
fn plain<const W: usize>(w: &mut Wave, op: &UOp, x: &Matrix) {
    let (mut a, mut b) = ([[0f32; W]; PLAIN_K], [[0f32; W]; PLAIN_K]);
    let k = x.shape.k;
    let row = |at: usize| {
        // SAFETY: registers are checked when the program is decoded; rows are runs of lanes.
        unsafe { w.v().add(at).cast::<[f32; W]>() }
    };
    // SAFETY: as above, for all rows that follow.
    unsafe {
        for n in 0..k {
            a[n] = row(row_at(w, op.src[0].at, &x.a[n])).read_unaligned();
            b[n] = row(row_at(w, op.src[1].at, &x.b[n])).read_unaligned();
        }
        for (i, col) in x.d.iter().enumerate() {
            let mut sum = row(row_at(w, op.src[2].at, col)).read_unaligned();
            for n in 0..k {
                let p = a[n][i];
                for l in 0..W {
                    sum[l] = f32::product(p, b[n][l], sum[l]);
                }
            }
            row(row_at(w, op.dst, col)).write_unaligned(sum);
        }
    }
}

#[inline(always)]
fn floats(w: &mut Wave, op: &UOp, x: &Matrix) {
    match x.shape.n {
        16 if is_plain(op, x) => return plain::<16>(w, op, x),
        32 if is_plain(op, x) => return plain::<32>(w, op, x),
        _ => {}
    }
    let mut a = MaybeUninit::<Rows<f32>>::uninit();
    let mut b = MaybeUninit::<Rows<f32>>::uninit();
    let mut c = MaybeUninit::<[[f32; SIDE]; RESULTS]>::uninit();
    let (s, n) = (&x.shape, x.shape.n);
    let count = s.blocks * s.k;
    gather_floats(w, &op.src[0], &x.a, s.m, x.a_type, x.fnuz, None, a.as_mut_ptr());
    let lane_of = lanes_of_b(x);
    let lane_of = lane_of.as_ref().map(|f| f as &dyn Fn(usize) -> usize);
    gather_floats(w, &op.src[1], &x.b, n, x.b_type, x.fnuz, lane_of, b.as_mut_ptr());
    let bit = |m: u8, i: u8| m >> i & 1 == 1;
    negate(a.as_mut_ptr(), x.a.len(), bit(x.neg, 0), bit(x.neg_hi, 0));
    negate(b.as_mut_ptr(), count, bit(x.neg, 1), bit(x.neg_hi, 1));
    let mut spread = MaybeUninit::<Rows<f32>>::uninit();
    if s.sparse {
        // SAFETY: all rows that are read were gathered.
        unsafe { expand(w, x, &op.src[2], &*a.as_ptr(), spread.as_mut_ptr()) };
    }
    let a = if s.sparse { &mut spread } else { &mut a };
    if let Some(scales) = &x.scales {
        scale(w, x, &scales[0], &x.a, s.m, a.as_mut_ptr());
        scale(w, x, &scales[1], &x.b, n, b.as_mut_ptr());
    }
    let plain = x.d_type == Elem::F32 && x.neg & 4 == 0 && x.neg_hi & 4 == 0;
    for (i, col) in x.d.iter().enumerate() {
        let mut row = [0f32; SIDE];
        if plain && !s.sparse && op.src[2].kind == Kind::Vector {
            // SAFETY: registers are checked when the program is decoded; rows of D are runs of lanes.
            unsafe {
                let from = w.v().add(row_at(w, op.src[2].at, col)).cast::<f32>();
                copy_row(from, row.as_mut_ptr(), n);
                (&raw mut (*c.as_mut_ptr())[i]).write(row);
            }
            continue;
        }
        let source = if s.sparse { Some(op.dst) } else { (op.src[2].kind == Kind::Vector).then_some(op.src[2].at) };
        for j in 0..n {
            let word = match source {
                // SAFETY: registers are checked when the program is decoded.
                Some(at) => unsafe { *w.v().add(row_at(w, at, col) + j) >> col.shift },
                None => op.src[2].value as u32,
            };
            row[j] = match x.d_type {
                Elem::F16 => f16_to_f32(F16(word as u16)),
                Elem::Bf16 => bf16_to_f32(Bf16(word as u16)),
                _ => f32::from_bits(word),
            };
        }
        if bit(x.neg_hi, 2) {
            row.iter_mut().for_each(|v| *v = v.abs());
        }
        if bit(x.neg, 2) {
            row.iter_mut().for_each(|v| *v = -*v);
        }
        // SAFETY: inside of the array.
        unsafe { (&raw mut (*c.as_mut_ptr())[i]).write(row) };
    }
    // SAFETY: the rows that the shape has were filled.
    let c = unsafe {
        let c = &mut *c.as_mut_ptr();
        products(x, &*a.as_ptr(), &*b.as_ptr(), c);
        c
    };
    for (i, col) in x.d.iter().enumerate() {
        let at = row_at(w, op.dst, col);
        if x.d_type == Elem::F32 {
            // SAFETY: as above.
            unsafe { copy_row(c[i].as_ptr(), w.v().add(at).cast(), n) };
            continue;
        }
        for j in 0..n {
            // SAFETY: registers are checked when the program is decoded.
            unsafe {
                let p = w.v().add(at + j);
                let half = match x.d_type {
                    Elem::F16 => f32_to_f16(c[i][j]).0 as u32,
                    _ => f32_to_bf16(c[i][j]).0 as u32,
                };
                *p = *p & !(0xffff << col.shift) | half << col.shift;
            }
        }
    }
}

/// Multiplies operands by their lane's scale: 2^(byte - 127), 255 is NaN. A lane's scale belongs to the 32 k from 32
/// times the number of its lane group on.
#[inline(always)]
fn scale(w: &Wave, x: &Matrix, s: &super::Scale, columns: &[Column], side: usize, rows: *mut Rows<f32>) {
    for k in 0..columns.len() {
        let group = k / 32;
        for i in 0..side {
            let word = match s.src.kind {
                Kind::Vector => w.lane(s.src.at, (group * side + i) % x.shape.lanes),
                _ => w.r32(&s.src),
            };
            let byte = word >> (8 * s.byte) & 0xff;
            // 2^-127 is a denormal.
            let factor = match byte {
                0 => f32::from_bits(1 << 22),
                255 => f32::NAN,
                b => f32::from_bits(b << 23),
            };
            // SAFETY: the rows were gathered.
            unsafe { (*rows)[k][i] *= factor };
        }
    }
}

#[inline(always)]
fn integers(w: &mut Wave, op: &UOp, x: &Matrix) {
    let mut a = MaybeUninit::<Rows<i32>>::uninit();
    let mut b = MaybeUninit::<Rows<i32>>::uninit();
    let mut c = MaybeUninit::<[[i32; SIDE]; RESULTS]>::uninit();
    let (s, n) = (&x.shape, x.shape.n);
    gather_integers(w, &op.src[0], &x.a, s.m, x.a_type, None, a.as_mut_ptr());
    let lane_of = lanes_of_b(x);
    let lane_of = lane_of.as_ref().map(|f| f as &dyn Fn(usize) -> usize);
    gather_integers(w, &op.src[1], &x.b, n, x.b_type, lane_of, b.as_mut_ptr());
    let mut spread = MaybeUninit::<Rows<i32>>::uninit();
    if s.sparse {
        // SAFETY: all rows that are read were gathered.
        unsafe { expand(w, x, &op.src[2], &*a.as_ptr(), spread.as_mut_ptr()) };
    }
    let a = if s.sparse { &spread } else { &a };
    // SAFETY: the rows that the shape has are filled before they are read.
    let c = unsafe {
        for i in 0..x.d.len() {
            (&raw mut (*c.as_mut_ptr())[i]).write([0; SIDE]);
        }
        let c = &mut *c.as_mut_ptr();
        products(x, &*a.as_ptr(), &*b.as_ptr(), c);
        c
    };
    let source = if s.sparse { Some(op.dst) } else { (op.src[2].kind == Kind::Vector).then_some(op.src[2].at) };
    for (i, col) in x.d.iter().enumerate() {
        for j in 0..n {
            // SAFETY: registers are checked when the program is decoded.
            let old = match source {
                Some(at) => unsafe { *w.v().add(row_at(w, at, col) + j) as i32 },
                None => op.src[2].value as i32,
            };
            c[i][j] = if x.clamp { old.saturating_add(c[i][j]) } else { old.wrapping_add(c[i][j]) };
        }
    }
    for (i, col) in x.d.iter().enumerate() {
        for j in 0..n {
            // SAFETY: as above.
            unsafe { *w.v().add(row_at(w, op.dst, col) + j) = c[i][j] as u32 };
        }
    }
}

#[inline(always)]
fn doubles(w: &mut Wave, op: &UOp, x: &Matrix) {
    let pair = |l: u32, h: u32, _: u32| f64::from_bits(l as u64 | (h as u64) << 32);
    let mut a = MaybeUninit::<Rows<f64>>::uninit();
    let mut b = MaybeUninit::<Rows<f64>>::uninit();
    let mut c = MaybeUninit::<[[f64; SIDE]; RESULTS]>::uninit();
    let (s, n) = (&x.shape, x.shape.n);
    let count = s.blocks * s.k;
    gather(w, &op.src[0], &x.a, s.m, None, a.as_mut_ptr(), pair, true);
    gather(w, &op.src[1], &x.b, n, None, b.as_mut_ptr(), pair, true);
    // On f64 the BLGP field negates A, B and C (gfx942).
    let sign = |i: usize| x.blgp >> i & 1 == 1;
    negate(a.as_mut_ptr(), count, sign(0), sign(0));
    negate(b.as_mut_ptr(), count, sign(1), sign(1));
    for (i, col) in x.d.iter().enumerate() {
        let mut row = [0f64; SIDE];
        for j in 0..n {
            let v = match op.src[2].kind {
                Kind::Vector => {
                    let at = row_at(w, op.src[2].at, col) + j;
                    // SAFETY: registers are checked when the program is decoded.
                    unsafe { *w.v().add(at) as u64 | (*w.v().add(at + w.lanes) as u64) << 32 }
                }
                _ => op.src[2].value,
            };
            row[j] = if sign(2) { -f64::from_bits(v) } else { f64::from_bits(v) };
        }
        // SAFETY: inside of the array.
        unsafe { (&raw mut (*c.as_mut_ptr())[i]).write(row) };
    }
    // SAFETY: the rows that the shape has were filled.
    let c = unsafe {
        let c = &mut *c.as_mut_ptr();
        products(x, &*a.as_ptr(), &*b.as_ptr(), c);
        c
    };
    for (i, col) in x.d.iter().enumerate() {
        let at = row_at(w, op.dst, col);
        for j in 0..n {
            let v = c[i][j].to_bits();
            // SAFETY: as above.
            unsafe {
                *w.v().add(at + j) = v as u32;
                *w.v().add(at + j + w.lanes) = (v >> 32) as u32;
            }
        }
    }
}

/// Compiles a function for every host.
macro_rules! on_hosts {
    ($host:expr, $f:ident) => {{
        unsafe fn portable(w: &mut Wave, op: &UOp, x: &Matrix) {
            $f(w, op, x)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn avx2(w: &mut Wave, op: &UOp, x: &Matrix) {
            $f(w, op, x)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512cd,avx512vl")]
        unsafe fn avx512(w: &mut Wave, op: &UOp, x: &Matrix) {
            $f(w, op, x)
        }
        match $host {
            #[cfg(target_arch = "x86_64")]
            Host::Avx2 => avx2 as Execute,
            #[cfg(target_arch = "x86_64")]
            Host::Avx512 => avx512,
            _ => portable,
        }
    }};
}

/// The function for a type of result on a host.
pub fn execute(d: Elem, host: Host) -> Execute {
    match d {
        Elem::F64 => on_hosts!(host, doubles),
        Elem::I32 => on_hosts!(host, integers),
        _ => on_hosts!(host, floats),
    }
}
