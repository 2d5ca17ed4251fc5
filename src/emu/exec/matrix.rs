//! Matrix instructions: MFMA (CDNA) and WMMA (RDNA3, RDNA4).
//!
//! Operands are gathered from lanes and registers into plain row-major matrices, multiplied, and scattered back.
//! Layouts are AMD's (amd_matrix_instruction_calculator 1.3.2; formulas in each function). What AMD does not document
//! is the order and rounding of the inner sums: here each product is added with a fused multiply-add in single
//! precision (double for f64), in order of k, to the accumulator; denormals are kept.

use crate::codeobj::Family;
use crate::emu::lanes::{Bf16, F16, Host};
use crate::emu::numeric::*;
use crate::emu::program::Machine;
use crate::emu::sem::fp8;
use crate::emu::wave::{Ctl, Kind, Run, Src, UOp, Wave};
use barewave_isa::{Inst, ModName};

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    /// IEEE single.
    F32,
    /// Single with 10 bits of mantissa.
    Xf32,
    /// IEEE double.
    F64,
    /// IEEE half.
    F16,
    /// bf16.
    Bf16,
    /// 8-bit float, 4 exponent bits.
    Fp8,
    /// 8-bit float, 5 exponent bits.
    Bf8,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
    /// Signed nibble.
    I4,
    /// Unsigned nibble.
    U4,
    /// 32-bit integer.
    I32,
}

impl Elem {
    fn bits(self) -> u32 {
        match self {
            Elem::F64 => 64,
            Elem::F32 | Elem::Xf32 | Elem::I32 => 32,
            Elem::F16 | Elem::Bf16 => 16,
            Elem::Fp8 | Elem::Bf8 | Elem::I8 | Elem::U8 => 8,
            Elem::I4 | Elem::U4 => 4,
        }
    }
    fn of(name: &str) -> Option<Elem> {
        Some(match name {
            "f32" => Elem::F32,
            "xf32" => Elem::Xf32,
            "f64" => Elem::F64,
            "f16" => Elem::F16,
            "bf16" => Elem::Bf16,
            "fp8" => Elem::Fp8,
            "bf8" => Elem::Bf8,
            "i8" | "iu8" => Elem::I8,
            "iu4" => Elem::I4,
            "i32" => Elem::I32,
            _ => return None,
        })
    }
}

/// Which layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Mfma,
    Wmma11,
    Wmma12,
}

/// A decoded matrix instruction.
#[derive(Clone, Debug)]
pub struct Matrix {
    layout: Layout,
    m: usize,
    n: usize,
    k: usize,
    blocks: usize,
    a: Elem,
    b: Elem,
    d: Elem,
    cbsz: usize,
    abid: usize,
    blgp: usize,
    neg: u8,
    neg_hi: u8,
    /// 16-bit results go to the upper halves.
    high: bool,
    /// fp8 formats are AMD's FNUZ ones.
    fnuz: bool,
    clamp: bool,
    multiply: Multiply,
}

/// Parses the mnemonic; sizes that the name does not hold follow from the operands.
fn parse(name: &str) -> Option<(Layout, usize, usize, usize, Elem, Elem, Elem)> {
    let (layout, rest) = match name.strip_prefix("v_mfma_") {
        Some(r) => (Layout::Mfma, r),
        None => (Layout::Wmma11, name.strip_prefix("v_wmma_")?),
    };
    let (d, rest) = rest.split_once('_')?;
    // "32x32x4_2b_bf16", "16x16x16i8", "16x16x32_fp8_bf8"
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == 'x')).unwrap_or(rest.len());
    // The x of "xf32" belongs to the type.
    let shape = rest[..end].trim_end_matches('x');
    let mut types: Vec<&str> = rest[shape.len()..].split('_').filter(|t| !t.is_empty()).collect();
    types.retain(|t| !(t.ends_with('b') && t[..t.len() - 1].parse::<u32>().is_ok()));
    let mut dims = shape.split('x').map(|t| t.parse::<usize>());
    let mut dim = || dims.next()?.ok();
    let (m, n, k) = (dim()?, dim()?, dim()?);
    let a = Elem::of(types.first()?)?;
    let b = match types.get(1) {
        Some(t) => Elem::of(t)?,
        None => a,
    };
    Some((layout, m, n, k, a, b, Elem::of(d)?))
}

/// Handler by name.
pub fn find(name: &str, m: &Machine) -> Option<Run> {
    let (layout, ..) = parse(name)?;
    // gfx1250 has layouts of its own.
    (layout == Layout::Mfma || m.family < Family::Gfx125).then_some(run as Run)
}

/// Fills in what the handler needs.
pub fn prepare(op: &mut UOp, inst: &Inst, m: &Machine, lanes: usize) -> Option<()> {
    let name = inst.op.name();
    let (mut layout, rows, cols, k, mut a, mut b, d) = parse(name)?;
    if layout != Layout::Mfma && m.family >= Family::Gfx12 {
        layout = Layout::Wmma12;
        if lanes != 32 {
            return None;
        }
    }
    let get = |name| inst.mods.get(name).unwrap_or(0);
    let dwords = inst.dsts.first()?.regs()?.dwords as usize;
    let blocks = match layout {
        Layout::Mfma => dwords * 64 / (d.bits() as usize / 32) / (rows * cols),
        _ => 1,
    };
    let neg = get(ModName::Neg) as u8;
    if name.contains("_iu8") || name.contains("_iu4") {
        let pick = |signed: bool, e: Elem| match (signed, e) {
            (false, Elem::I8) => Elem::U8,
            (false, Elem::I4) => Elem::U4,
            (_, e) => e,
        };
        (a, b) = (pick(neg & 1 != 0, a), pick(neg & 2 != 0, b));
    }
    let integer = d == Elem::I32;
    op.matrix = Some(Box::new(Matrix {
        layout,
        m: rows,
        n: cols,
        k,
        blocks: blocks.max(1),
        a,
        b,
        d,
        cbsz: get(ModName::Cbsz) as usize,
        abid: get(ModName::Abid) as usize,
        blgp: get(ModName::Blgp) as usize,
        neg: if integer { 0 } else { neg },
        neg_hi: if integer { 0 } else { get(ModName::NegHi) as u8 },
        high: get(ModName::OpSel) & 4 != 0,
        fnuz: m.target.info().name.starts_with("gfx94"),
        clamp: get(ModName::Clamp) != 0,
        multiply: multiply_on(m.host),
    }));
    if op.src[0].kind != Kind::Vector || op.src[1].kind != Kind::Vector || op.src[2].kind == Kind::Scalar {
        return None;
    }
    Some(())
}

/// Element `index` of a lane's packed registers.
#[inline(always)]
fn raw(w: &Wave, s: &Src, lane: usize, index: usize, bits: u32) -> u32 {
    let per = 32 / bits as usize;
    let word = w.lane(s.at + ((index / per) * w.lanes) as u32, lane);
    let x = word >> ((index % per) as u32 * bits);
    if bits == 32 { x } else { x & ((1 << bits) - 1) }
}

/// As a number that a single holds exactly.
#[inline(always)]
fn number(x: u32, e: Elem, fnuz: bool) -> f32 {
    match e {
        Elem::F32 => f32::from_bits(x),
        // Ten bits of mantissa are kept.
        Elem::Xf32 => f32::from_bits(x & 0xffff_e000),
        Elem::F16 => f16_to_f32(F16(x as u16)),
        Elem::Bf16 => bf16_to_f32(Bf16(x as u16)),
        Elem::Fp8 => fp8::decode(x as u8, fp8::FP8, fnuz),
        Elem::Bf8 => fp8::decode(x as u8, fp8::BF8, fnuz),
        _ => 0.0,
    }
}

#[inline(always)]
fn integer(x: u32, e: Elem) -> i32 {
    match e {
        Elem::I8 => x as u8 as i8 as i32,
        Elem::I4 => ((x << 28) as i32) >> 28,
        _ => x as i32,
    }
}

/// Lane and element of A[i][k] (or B[k][i]) of a block.
#[inline(always)]
fn place_in(x: &Matrix, side: usize, bits: u32, block: usize, i: usize, k: usize) -> (usize, usize) {
    match x.layout {
        Layout::Mfma => {
            // Lane groups of side * blocks lanes hold consecutive runs of k.
            let group = side * x.blocks;
            let per = (x.k * group / 64).max(1);
            (group * (k / per) + side * block + i, k % per)
        }
        Layout::Wmma11 => (i, k),
        Layout::Wmma12 if bits == 16 => (16 * (k / 4 % 2) + i, 4 * (k / 8) + k % 4),
        Layout::Wmma12 => (16 * (k / (x.k / 2)) + i, k % (x.k / 2)),
    }
}

/// Register and lane of C or D[i][j] of a block; for 16-bit results of gfx12 the element within the lane.
#[inline(always)]
fn place_out(x: &Matrix, lanes: usize, block: usize, i: usize, j: usize) -> (usize, usize) {
    match (x.layout, x.m, x.d) {
        (Layout::Mfma, 16, Elem::F64) => (i / 4, 16 * (i % 4) + j),
        (Layout::Mfma, _, Elem::F64) => (0, 16 * (i % 4) + 4 * block + j),
        (Layout::Mfma, 32, _) => (16 * block + 4 * (i / 8) + i % 4, 32 * (i / 4 % 2) + j),
        (Layout::Mfma, 16, _) => (4 * block + i % 4, 16 * (i / 4) + j),
        (Layout::Mfma, ..) => (i, 4 * block + j),
        (Layout::Wmma11, ..) if lanes == 64 => (i / 4, 16 * (i % 4) + j),
        (Layout::Wmma11, ..) => (i / 2, 16 * (i % 2) + j),
        (Layout::Wmma12, ..) => (i % 8, 16 * (i / 8) + j),
    }
}

/// Source lane of B under the BLGP broadcast.
#[inline(always)]
fn blgp(x: &Matrix, lane: usize) -> usize {
    if x.layout != Layout::Mfma || x.d == Elem::F64 {
        return lane;
    }
    match x.blgp {
        1 => lane & 31,
        2 => lane & 31 | 32,
        3 => (lane + 16) & 63,
        n @ 4..=7 => 16 * (n - 4) + (lane & 15),
        _ => lane,
    }
}

/// Largest matrices: 32 rows or columns, 128 deep.
const SIDE: usize = 32;
const DEPTH: usize = 128;

/// Multiplies: `a` and `b` hold 32 values for each k, `c` 32 rows of 32.
type Multiply = unsafe fn(&[f32], &[f32], &mut [f32; SIDE * SIDE], usize, usize, usize);

#[inline(always)]
fn multiply(a: &[f32], b: &[f32], c: &mut [f32; SIDE * SIDE], m: usize, n: usize, depth: usize) {
    // Columns in runs of 16 (a 4-wide product computes 16 columns and ignores 12).
    for i in 0..m {
        for j in (0..n).step_by(16) {
            let mut row = [0f32; 16];
            row.copy_from_slice(&c[i * SIDE + j..i * SIDE + j + 16]);
            for k in 0..depth {
                let x = a[k * SIDE + i];
                let y = &b[k * SIDE + j..k * SIDE + j + 16];
                for l in 0..16 {
                    row[l] = x.mul_add(y[l], row[l]);
                }
            }
            c[i * SIDE + j..i * SIDE + j + 16].copy_from_slice(&row);
        }
    }
}
unsafe fn multiply_portable(a: &[f32], b: &[f32], c: &mut [f32; SIDE * SIDE], m: usize, n: usize, k: usize) {
    multiply(a, b, c, m, n, k)
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_avx2(a: &[f32], b: &[f32], c: &mut [f32; SIDE * SIDE], m: usize, n: usize, k: usize) {
    multiply(a, b, c, m, n, k)
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,fma")]
unsafe fn multiply_avx512(a: &[f32], b: &[f32], c: &mut [f32; SIDE * SIDE], m: usize, n: usize, k: usize) {
    multiply(a, b, c, m, n, k)
}
fn multiply_on(host: Host) -> Multiply {
    match host {
        #[cfg(target_arch = "x86_64")]
        Host::Avx2 => multiply_avx2,
        #[cfg(target_arch = "x86_64")]
        Host::Avx512 => multiply_avx512,
        _ => multiply_portable,
    }
}

/// Value of C at a register and lane, or the constant.
#[inline(always)]
fn accumulator(w: &Wave, s: &Src, reg: usize, lane: usize) -> u32 {
    if s.kind == Kind::Vector { w.lane(s.at + (reg * w.lanes) as u32, lane) } else { s.value as u32 }
}

unsafe fn run(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(x) = &op.matrix else { return Ctl::Next };
    match x.d {
        Elem::F64 => doubles(w, op, x),
        Elem::I32 => integers(w, op, x),
        _ => floats(w, op, x),
    }
    Ctl::Next
}

/// Block of A that a block uses: CBSZ blocks share the one that ABID names.
fn shared_block(x: &Matrix, block: usize) -> usize {
    let group = 1 << x.cbsz;
    if x.cbsz == 0 || group > x.blocks { block } else { block / group * group + x.abid % group }
}

/// Reads a 16-bit or 32-bit accumulator as a number.
fn accumulate(w: &Wave, op: &UOp, x: &Matrix, block: usize, i: usize, j: usize) -> f32 {
    let (reg, lane) = place_out(x, w.lanes, block, i, j);
    let c = &op.src[2];
    let mut v = match x.d {
        Elem::F32 => f32::from_bits(accumulator(w, c, reg, lane)),
        _ => {
            let word = match x.layout {
                Layout::Wmma12 if c.kind == Kind::Vector => accumulator(w, c, reg / 2, lane) >> (16 * (reg % 2)),
                _ if c.kind == Kind::Vector && x.high => accumulator(w, c, reg, lane) >> 16,
                _ => accumulator(w, c, reg, lane),
            };
            number(word & 0xffff, x.d, false)
        }
    };
    if x.layout != Layout::Mfma {
        if x.neg_hi & 4 != 0 {
            v = v.abs();
        }
        if x.neg & 4 != 0 {
            v = -v;
        }
    }
    v
}

fn floats(w: &mut Wave, op: &UOp, x: &Matrix) {
    let mut a = [0f32; SIDE * DEPTH];
    let mut b = [0f32; SIDE * DEPTH];
    let mut c = [0f32; SIDE * SIDE];
    let mut results = vec![0u32; x.blocks * x.m * x.n];
    let negated = |i: usize, k: usize, v: f32| {
        let mask = if k.is_multiple_of(2) { x.neg } else { x.neg_hi };
        if x.layout != Layout::Mfma && mask >> i & 1 == 1 { -v } else { v }
    };
    for block in 0..x.blocks {
        for k in 0..x.k {
            for i in 0..x.m {
                let (lane, e) = place_in(x, x.m, x.a.bits(), shared_block(x, block), i, k);
                a[k * SIDE + i] = negated(0, k, number(raw(w, &op.src[0], lane, e, x.a.bits()), x.a, x.fnuz));
            }
            for j in 0..x.n {
                let (lane, e) = place_in(x, x.n, x.b.bits(), block, j, k);
                let lane = blgp(x, lane);
                b[k * SIDE + j] = negated(1, k, number(raw(w, &op.src[1], lane, e, x.b.bits()), x.b, x.fnuz));
            }
        }
        for i in 0..x.m {
            for j in 0..x.n {
                c[i * SIDE + j] = accumulate(w, op, x, block, i, j);
            }
        }
        // SAFETY: the copy for this host was chosen when the instruction was decoded; the slices are large enough.
        unsafe { (x.multiply)(&a, &b, &mut c, x.m, x.n, x.k) };
        for i in 0..x.m {
            for j in 0..x.n {
                results[(block * x.m + i) * x.n + j] = c[i * SIDE + j].to_bits();
            }
        }
    }
    for block in 0..x.blocks {
        for i in 0..x.m {
            for j in 0..x.n {
                let v = f32::from_bits(results[(block * x.m + i) * x.n + j]);
                let (reg, lane) = place_out(x, w.lanes, block, i, j);
                let at = |reg: usize| op.dst + (reg * w.lanes) as u32;
                let half = match x.d {
                    Elem::F16 => f32_to_f16(v).0 as u32,
                    Elem::Bf16 => f32_to_bf16(v).0 as u32,
                    _ => {
                        let place = at(reg);
                        w.set_lane(place, lane, v.to_bits());
                        continue;
                    }
                };
                let (place, high) =
                    if x.layout == Layout::Wmma12 { (at(reg / 2), reg % 2 == 1) } else { (at(reg), x.high) };
                let old = w.lane(place, lane);
                w.set_lane(place, lane, if high { old & 0xffff | half << 16 } else { old & 0xffff_0000 | half });
            }
        }
    }
}

fn integers(w: &mut Wave, op: &UOp, x: &Matrix) {
    let mut results = vec![0i32; x.blocks * x.m * x.n];
    let mut a = [0i32; SIDE * DEPTH];
    let mut b = [0i32; SIDE * DEPTH];
    for block in 0..x.blocks {
        for k in 0..x.k {
            for i in 0..x.m {
                let (lane, e) = place_in(x, x.m, x.a.bits(), shared_block(x, block), i, k);
                a[i * DEPTH + k] = integer(raw(w, &op.src[0], lane, e, x.a.bits()), x.a);
            }
            for j in 0..x.n {
                let (lane, e) = place_in(x, x.n, x.b.bits(), block, j, k);
                b[j * DEPTH + k] = integer(raw(w, &op.src[1], blgp(x, lane), e, x.b.bits()), x.b);
            }
        }
        for i in 0..x.m {
            for j in 0..x.n {
                let (reg, lane) = place_out(x, w.lanes, block, i, j);
                let c = accumulator(w, &op.src[2], reg, lane) as i32;
                let (p, q) = (&a[i * DEPTH..i * DEPTH + x.k], &b[j * DEPTH..j * DEPTH + x.k]);
                let dot: i32 = p.iter().zip(q).map(|(u, v)| u * v).sum();
                results[(block * x.m + i) * x.n + j] =
                    if x.clamp { c.saturating_add(dot) } else { c.wrapping_add(dot) };
            }
        }
    }
    for block in 0..x.blocks {
        for i in 0..x.m {
            for j in 0..x.n {
                let (reg, lane) = place_out(x, w.lanes, block, i, j);
                w.set_lane(op.dst + (reg * w.lanes) as u32, lane, results[(block * x.m + i) * x.n + j] as u32);
            }
        }
    }
}

fn doubles(w: &mut Wave, op: &UOp, x: &Matrix) {
    let row = w.lanes as u32;
    let pair = |w: &Wave, s: &Src, reg: usize, lane: usize| {
        if s.kind != Kind::Vector {
            return f64::from_bits(s.value);
        }
        let at = s.at + 2 * reg as u32 * row;
        f64::from_bits(w.lane(at, lane) as u64 | (w.lane(at + row, lane) as u64) << 32)
    };
    // On f64 the BLGP field negates A, B and C (gfx942).
    let sign = |n: usize, v: f64| if x.blgp >> n & 1 == 1 { -v } else { v };
    let mut results = vec![0f64; x.blocks * x.m * x.n];
    for block in 0..x.blocks {
        for i in 0..x.m {
            for j in 0..x.n {
                let (reg, lane) = place_out(x, w.lanes, block, i, j);
                let mut sum = sign(2, pair(w, &op.src[2], reg, lane));
                for k in 0..x.k {
                    let (la, ea) = place_in(x, x.m, 64, block, i, k);
                    let (lb, eb) = place_in(x, x.n, 64, block, j, k);
                    let p = sign(0, pair(w, &op.src[0], ea, la));
                    sum = p.mul_add(sign(1, pair(w, &op.src[1], eb, lb)), sum);
                }
                results[(block * x.m + i) * x.n + j] = sum;
            }
        }
    }
    for block in 0..x.blocks {
        for i in 0..x.m {
            for j in 0..x.n {
                let (reg, lane) = place_out(x, w.lanes, block, i, j);
                let v = results[(block * x.m + i) * x.n + j].to_bits();
                let at = op.dst + 2 * reg as u32 * row;
                w.set_lane(at, lane, v as u32);
                w.set_lane(at + row, lane, (v >> 32) as u32);
            }
        }
    }
}
