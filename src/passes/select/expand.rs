//! Generic operations that no single instruction of the target computes, as sequences of generic operations that it has.
//!
//! bf16 is computed in f32 and rounded; 8-bit integers (and 16-bit ones where there is nothing) in 32 bits; 64-bit
//! integers in halves with carries; packed pairs one by one; signs of floats with masks on their bits.

use super::{NoWay, Selector};
use crate::mir::{Function, Gen, Generic, MInst, Opnd, RegClass, Type};
use barewave_isa::op;

use Type::*;

/// The dwords of a value: parts of a register, halves of a constant.
fn dword(o: Opnd, i: u8) -> Opnd {
    match o {
        Opnd::V(p) => p.dword(i).into(),
        Opnd::Imm(x) => Opnd::Imm(x >> (32 * u32::from(i)) & 0xffff_ffff),
        Opnd::P(r) => Opnd::P(barewave_isa::Regs::new(r.first.offset(i.into()), 1)),
        o => o,
    }
}

/// One half of a packed value of 32 bits, or a constant's.
fn half_of_constant(o: Opnd, high: bool) -> Option<Opnd> {
    match o {
        Opnd::Imm(x) => Some(Opnd::Imm(if high { x >> 16 & 0xffff } else { x & 0xffff })),
        _ => None,
    }
}

impl Selector {
    /// A new vector of a type.
    fn fresh(&mut self, f: &mut Function, ty: Type) -> Opnd {
        f.new_typed(RegClass::V, ty.dwords(), ty).into()
    }
    fn fresh_mask(&mut self, f: &mut Function) -> Opnd {
        f.new_vreg(RegClass::S, f.mask_dwords()).into()
    }
    /// Computes into a new vector.
    fn compute(&mut self, f: &mut Function, g: Generic, srcs: &[Opnd]) -> Result<Opnd, NoWay> {
        let d = if g.op.compares() { self.fresh_mask(f) } else { self.fresh(f, g.ty) };
        self.expand(f, g, d, srcs)?;
        Ok(d)
    }
    fn cvt(&mut self, f: &mut Function, from: Type, to: Type, x: Opnd) -> Result<Opnd, NoWay> {
        self.compute(f, Generic::convert(from, to), &[x])
    }

    /// Expands an operation that has no row.
    pub(super) fn fallback(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        match (g.op, g.ty) {
            (Gen::Cvt, _) => self.conversion(f, g, d, srcs[0]),
            (Gen::Select, _) => self.selection(f, g, d, srcs),
            (Gen::Pack, _) => self.pack(f, g, d, srcs),
            (Gen::Neg, t) if !t.is_float() => self.expand(f, Gen::Sub.of(t), d, &[Opnd::Imm(0), srcs[0]]),
            (Gen::Neg | Gen::Abs, t) => self.sign(f, g.op, t, d, srcs[0]),
            // The negation of the second operand is exact.
            (Gen::Sub, F64 | PkF16 | PkBf16 | PkF32) => {
                let minus = self.compute(f, Gen::Neg.of(g.ty), &[srcs[1]])?;
                self.expand(f, Gen::Add.of(g.ty), d, &[srcs[0], minus])
            }
            (_, PkF32 | I64 | U64) if matches!(g.op, Gen::And | Gen::Or | Gen::Xor | Gen::Not) => {
                self.by_dwords(f, g.op.of(U32), d, srcs)
            }
            (_, PkF32) => self.by_dwords(f, g.op.of(F32), d, srcs),
            (_, PkF16 | PkBf16 | PkI16) => self.by_halves(f, g, d, srcs),
            (_, I64 | U64) => self.long(f, g, d, srcs),
            (_, Bf16) => self.through(f, g, F32, d, srcs),
            (_, F16) => self.through(f, g, F32, d, srcs),
            (_, I8 | I16) => self.through(f, g, I32, d, srcs),
            (_, U8 | U16) => self.through(f, g, U32, d, srcs),
            _ => Err(NoWay::Operation { target: f.target, what: g, scalar: false }),
        }
    }

    /// In another type that holds all values of this one.
    fn through(&mut self, f: &mut Function, g: Generic, wide: Type, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        let mut wider = Vec::new();
        for (i, s) in srcs.iter().enumerate() {
            wider.push(match g.source_type(i) {
                Some(t) if t == g.ty => self.cvt(f, t, wide, *s)?,
                _ => *s,
            });
        }
        if g.op.compares() {
            return self.expand(f, g.op.of(wide), d, &wider);
        }
        let r = self.compute(f, g.op.of(wide), &wider)?;
        self.expand(f, Generic::convert(wide, g.ty), d, &[r])
    }

    fn by_dwords(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        // Results are put together at the end: the destination may be one of the sources.
        let mut parts = Vec::new();
        for i in 0..2 {
            let srcs: Vec<Opnd> = srcs.iter().map(|s| dword(*s, i)).collect();
            parts.push(self.compute(f, g, &srcs)?);
        }
        self.join(f, d, parts[0], parts[1]);
        Ok(())
    }

    /// Two dwords into a pair.
    fn join(&mut self, f: &Function, d: Opnd, low: Opnd, high: Opnd) {
        self.copy(f, dword(d, 0), low);
        self.copy(f, dword(d, 1), high);
    }

    /// Each half of a packed pair on its own.
    fn by_halves(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        let element = g.ty.element().expect("a packed type has elements");
        let mut halves = Vec::new();
        for high in [false, true] {
            let mut parts = Vec::new();
            for s in srcs {
                parts.push(match half_of_constant(*s, high) {
                    Some(c) => c,
                    None if high => self.compute(f, Gen::Shr.of(U32), &[*s, Opnd::Imm(16)])?,
                    None => *s,
                });
            }
            halves.push(self.compute(f, g.op.of(element), &parts)?);
        }
        let low = self.compute(f, Gen::And.of(U32), &[halves[0], Opnd::Imm(0xffff)])?;
        let high = self.compute(f, Gen::Shl.of(U32), &[halves[1], Opnd::Imm(16)])?;
        self.expand(f, Gen::Or.of(B32), d, &[low, high])
    }

    /// Negation and magnitude: the sign bit of each element.
    fn sign(&mut self, f: &mut Function, op: Gen, ty: Type, d: Opnd, x: Opnd) -> Result<(), NoWay> {
        let sign: u32 = match ty {
            F16 | Bf16 => 0x8000,
            PkF16 | PkBf16 => 0x8000_8000,
            _ => 0x8000_0000,
        };
        let (op, mask) = if op == Gen::Neg { (Gen::Xor, sign) } else { (Gen::And, !sign) };
        match ty {
            F64 => {
                let high = self.compute(f, op.of(B32), &[mask.into(), dword(x, 1)])?;
                self.join(f, d, dword(x, 0), high);
                Ok(())
            }
            PkF32 => self.by_dwords_with(f, op, mask, d, x),
            _ => self.expand(f, op.of(B32), d, &[mask.into(), x]),
        }
    }

    fn by_dwords_with(&mut self, f: &mut Function, op: Gen, mask: u32, d: Opnd, x: Opnd) -> Result<(), NoWay> {
        let low = self.compute(f, op.of(B32), &[mask.into(), dword(x, 0)])?;
        let high = self.compute(f, op.of(B32), &[mask.into(), dword(x, 1)])?;
        self.join(f, d, low, high);
        Ok(())
    }

    fn selection(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        let (mask, yes, no) = (srcs[0], srcs[1], srcs[2]);
        if g.ty.dwords() == 1 {
            self.push(op::V_CNDMASK_B32, d, &[no, yes, mask]);
            return Ok(());
        }
        let mut parts = Vec::new();
        for i in 0..2 {
            let t = self.fresh(f, B32);
            self.push(op::V_CNDMASK_B32, t, &[dword(no, i), dword(yes, i), mask]);
            parts.push(t);
        }
        self.join(f, d, parts[0], parts[1]);
        Ok(())
    }

    /// 64-bit integers by halves. Scalars too: the carry is in SCC.
    fn long(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        let (x, y) = (srcs[0], srcs.get(1).copied().unwrap_or(Opnd::Imm(0)));
        let scalar = matches!(d, Opnd::V(p) if f.vreg(p.reg).class == RegClass::S);
        match g.op {
            Gen::Add | Gen::Sub if scalar => {
                let ops =
                    if g.op == Gen::Add { [op::S_ADD_U32, op::S_ADDC_U32] } else { [op::S_SUB_U32, op::S_SUBB_U32] };
                for (i, o) in (0..2).zip(ops) {
                    self.push(o, dword(d, i), &[dword(x, i), dword(y, i)]);
                }
                Ok(())
            }
            Gen::Add | Gen::Sub => {
                let (low, high) = if g.op == Gen::Add {
                    (op::V_ADD_CO_U32, op::V_ADDC_CO_U32)
                } else {
                    (op::V_SUB_CO_U32, op::V_SUBB_CO_U32)
                };
                let (carry, unused) = (self.fresh_mask(f), self.fresh_mask(f));
                let (a, b) = (self.fresh(f, B32), self.fresh(f, B32));
                // The high halves may be no constants: the carry takes the one scalar operand.
                let vector = |s: &mut Self, f: &mut Function, o: Opnd| match o {
                    Opnd::V(p) if f.vreg(p.reg).class == RegClass::V => o,
                    _ => {
                        let t = s.fresh(f, B32);
                        s.copy(f, t, o);
                        t
                    }
                };
                let (xh, yh) = (vector(self, f, dword(x, 1)), vector(self, f, dword(y, 1)));
                self.out.push(MInst::new(low, &[a, carry], &[dword(x, 0), dword(y, 0)]));
                self.out.push(MInst::new(high, &[b, unused], &[xh, yh, carry]));
                self.join(f, d, a, b);
                Ok(())
            }
            Gen::Mul if !scalar => {
                // xl * yl, and the low halves of the mixed products on top.
                let low = self.compute(f, Gen::Mul.of(U32), &[dword(x, 0), dword(y, 0)])?;
                let high = self.compute(f, Gen::MulHi.of(U32), &[dword(x, 0), dword(y, 0)])?;
                let p = self.compute(f, Gen::Mul.of(U32), &[dword(x, 0), dword(y, 1)])?;
                let q = self.compute(f, Gen::Mul.of(U32), &[dword(x, 1), dword(y, 0)])?;
                let high = self.compute(f, Gen::Add.of(U32), &[high, p])?;
                let high = self.compute(f, Gen::Add.of(U32), &[high, q])?;
                self.join(f, d, low, high);
                Ok(())
            }
            Gen::Min | Gen::Max if !scalar => {
                let less = self.compute(f, Gen::CmpLt.of(g.ty), &[x, y])?;
                let (a, b) = if g.op == Gen::Min { (x, y) } else { (y, x) };
                self.expand(f, Gen::Select.of(g.ty), d, &[less, a, b])
            }
            _ => Err(NoWay::Operation { target: f.target, what: g, scalar }),
        }
    }

    /// Conversions without an instruction of their own.
    fn conversion(&mut self, f: &mut Function, g: Generic, d: Opnd, x: Opnd) -> Result<(), NoWay> {
        let (from, to) = (g.from, g.ty);
        if from == to || from.unsigned() == to.unsigned() {
            self.copy(f, d, x);
            return Ok(());
        }
        let via = |s: &mut Self, f: &mut Function, t: Type| -> Result<(), NoWay> {
            let r = s.cvt(f, from, t, x)?;
            s.expand(f, Generic::convert(t, to), d, &[r])
        };
        match (from, to) {
            (Bf16, F32) => self.expand(f, Gen::Shl.of(U32), d, &[x, Opnd::Imm(16)]),
            (F32, Bf16) => self.round_to_bf16(f, d, x),
            // To double is exact; from double to a narrow float through f32 would round twice, so the sticky bits
            // are kept by rounding to odd first.
            (F16 | Bf16, F64) => via(self, f, F32),
            (F64, F16 | Bf16) => {
                let odd = self.round_to_odd(f, x)?;
                self.expand(f, Generic::convert(F32, to), d, &[odd])
            }
            (F16, Bf16) | (Bf16, F16) => via(self, f, F32),
            // Narrow integers, by way of 32 bits.
            (I8 | I16, I32 | U32) => {
                self.push(op::V_BFE_I32, d, &[x, Opnd::Imm(0), from.bits().into()]);
                Ok(())
            }
            (U8 | U16, I32 | U32) => {
                let mask = (1u32 << from.bits()) - 1;
                self.expand(f, Gen::And.of(U32), d, &[mask.into(), x])
            }
            (I8 | I16, _) => via(self, f, I32),
            (U8 | U16, _) => via(self, f, U32),
            (I32 | U32, I8 | I16 | U8 | U16) => {
                self.copy(f, d, x);
                Ok(())
            }
            (I64 | U64, I8 | I16 | I32 | U8 | U16 | U32) => {
                self.copy(f, d, dword(x, 0));
                Ok(())
            }
            (I32, I64 | U64) => {
                let high = self.compute(f, Gen::Shr.of(I32), &[x, Opnd::Imm(31)])?;
                self.join(f, d, x, high);
                Ok(())
            }
            (U32, I64 | U64) => {
                self.join(f, d, x, Opnd::Imm(0));
                Ok(())
            }
            (I64 | U64, F64) => self.long_to_double(f, d, x, from),
            (I64 | U64, F32) => self.long_to_float(f, d, x, from),
            (I64 | U64, F16 | Bf16) => via(self, f, F32),
            (F64, I64 | U64) => self.double_to_long(f, d, x, to),
            (F32, I64 | U64) => via(self, f, F64),
            (F16 | Bf16, I64 | U64) => via(self, f, F32),
            // Floats to narrow integers: saturated in 32 bits, then in the type.
            (F16 | Bf16 | F32 | F64, I8 | I16 | U8 | U16) => {
                let wide = if from == F64 { F64 } else { F32 };
                let x = if from == wide { x } else { self.cvt(f, from, wide, x)? };
                let word = self.cvt(f, wide, I32, x)?;
                let (low, high) = match to {
                    I8 => (-128, 127),
                    I16 => (-32768, 32767),
                    U8 => (0, 255),
                    _ => (0, 65535),
                };
                let (a, b) = (self.fresh(f, I32), self.fresh(f, I32));
                self.copy(f, a, Opnd::from(low));
                self.copy(f, b, Opnd::from(high));
                self.push(op::V_MED3_I32, d, &[word, a, b]);
                Ok(())
            }
            (F16 | Bf16, I32 | U32) | (I32 | U32, F16 | Bf16) => via(self, f, F32),
            _ => Err(NoWay::Operation { target: f.target, what: g, scalar: false }),
        }
    }

    /// Two floats, rounded to the halves of a word.
    fn pack(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        let (mut halves, mut bytes) = (Vec::new(), 0x0504_0100);
        for x in srcs {
            halves.push(match g.ty {
                PkBf16 => {
                    bytes = 0x0706_0302;
                    self.rounded_above(f, *x)?
                }
                _ => self.cvt(f, F32, F16, *x)?,
            });
        }
        self.push(op::V_PERM_B32, d, &[halves[1], halves[0], Opnd::Imm(bytes)]);
        Ok(())
    }

    /// To the nearest bf16, ties to even.
    fn round_to_bf16(&mut self, f: &mut Function, d: Opnd, x: Opnd) -> Result<(), NoWay> {
        if f.target.has(op::V_CVT_PK_BF16_F32) {
            return self.expand(f, Gen::Pack.of(PkBf16), d, &[x, Opnd::Imm(0)]);
        }
        let above = self.rounded_above(f, x)?;
        self.expand(f, Gen::Shr.of(U32), d, &[above, Opnd::Imm(16)])
    }

    /// An f32 rounded to bf16 in its upper half: half of the last place is added, and a carry does the rest. NaNs stay NaNs. What the lower half has
    /// is unspecified.
    fn rounded_above(&mut self, f: &mut Function, x: Opnd) -> Result<Opnd, NoWay> {
        let x = self.in_vector(f, F32, x);
        let odd = self.fresh(f, U32);
        self.push(op::V_BFE_U32, odd, &[x, Opnd::Imm(16), Opnd::Imm(1)]);
        let sum = self.fresh(f, U32);
        if f.target.has(op::V_ADD3_U32) {
            self.push(op::V_ADD3_U32, sum, &[x, odd, Opnd::Imm(0x7fff)]);
        } else {
            let bias = self.compute(f, Gen::Add.of(U32), &[odd, Opnd::Imm(0x7fff)])?;
            self.expand(f, Gen::Add.of(U32), sum, &[x, bias])?;
        }
        let nan = self.compute(f, Gen::CmpUnordered.of(F32), &[x, x])?;
        self.compute(f, Gen::Select.of(B32), &[nan, Opnd::Imm(0xffff_ffff), sum])
    }

    /// An f64 as an f32 whose last bit is set when something was lost: rounding that once more to a type of at least
    /// two bits less gives what rounding the f64 at once would (Boldo and Melquiond, 2008).
    fn round_to_odd(&mut self, f: &mut Function, x: Opnd) -> Result<Opnd, NoWay> {
        let x = self.in_vector(f, F64, x);
        let near = self.cvt(f, F64, F32, x)?;
        let back = self.cvt(f, F32, F64, near)?;
        // Where the magnitude was rounded up, one step back; then the last bit is set unless it was exact.
        let (a, b) = (self.compute(f, Gen::Abs.of(F64), &[back])?, self.compute(f, Gen::Abs.of(F64), &[x])?);
        let up = self.compute(f, Gen::CmpGt.of(F64), &[a, b])?;
        let less = self.compute(f, Gen::Sub.of(I32), &[near, Opnd::Imm(1)])?;
        let toward_zero = self.compute(f, Gen::Select.of(B32), &[up, less, near])?;
        let inexact = self.compute(f, Gen::CmpNe.of(F64), &[back, x])?;
        let sticky = self.compute(f, Gen::Or.of(B32), &[Opnd::Imm(1), toward_zero])?;
        let r = self.compute(f, Gen::Select.of(B32), &[inexact, sticky, near])?;
        // NaN differs from itself and stays what it is; so does what overflows.
        let plain = self.compute(f, Gen::CmpUnordered.of(F64), &[x, x])?;
        self.compute(f, Gen::Select.of(F32), &[plain, near, r])
    }

    /// High word scaled by 2^32 plus low word: one rounding.
    fn long_to_double(&mut self, f: &mut Function, d: Opnd, x: Opnd, from: Type) -> Result<(), NoWay> {
        let word = if from.is_signed() { I32 } else { U32 };
        let high = self.cvt(f, word, F64, dword(x, 1))?;
        let high = self.compute(f, Gen::Ldexp.of(F64), &[high, Opnd::Imm(32)])?;
        let low = self.cvt(f, U32, F64, dword(x, 0))?;
        self.expand(f, Gen::Add.of(F64), d, &[high, low])
    }

    /// Through a double that is rounded to odd: the low eleven bits of the integer are folded into one before.
    fn long_to_float(&mut self, f: &mut Function, d: Opnd, x: Opnd, from: Type) -> Result<(), NoWay> {
        let x = self.in_vector(f, from, x);
        // With any of the low 11 bits set, bit 11 says so: the conversion to double is then exact, and so large a number
        // has its rounding bit of f32 far above.
        let (low, high) = (dword(x, 0), dword(x, 1));
        let rest = self.compute(f, Gen::And.of(U32), &[Opnd::Imm(0x7ff), low])?;
        let some = self.compute(f, Gen::CmpNe.of(U32), &[Opnd::Imm(0), rest])?;
        let cleared = self.compute(f, Gen::Xor.of(U32), &[low, rest])?;
        let sticky = self.compute(f, Gen::Or.of(U32), &[Opnd::Imm(0x800), cleared])?;
        let folded = self.compute(f, Gen::Select.of(U32), &[some, sticky, low])?;
        // Only numbers beyond 2^53 lose bits on the way.
        let sign =
            if from.is_signed() { self.compute(f, Gen::Shr.of(I32), &[high, Opnd::Imm(31)])? } else { Opnd::Imm(0) };
        let size = self.compute(f, Gen::Xor.of(U32), &[sign, high])?;
        let large = self.compute(f, Gen::CmpLt.of(U32), &[Opnd::Imm(0x1f_ffff), size])?;
        let low = self.compute(f, Gen::Select.of(U32), &[large, folded, low])?;
        let pair = self.fresh(f, from);
        self.join(f, pair, low, high);
        let double = self.cvt(f, from, F64, pair)?;
        self.expand(f, Generic::convert(F64, F32), d, &[double])
    }

    /// `high = floor(x / 2^32)` and `low = x - high 2^32` are exact; both conversions saturate, and the low word is
    /// forced to the high one's side where that did.
    fn double_to_long(&mut self, f: &mut Function, d: Opnd, x: Opnd, to: Type) -> Result<(), NoWay> {
        let x = self.in_vector(f, F64, x);
        let word = if to.is_signed() { I32 } else { U32 };
        let t = self.compute(f, Gen::Trunc.of(F64), &[x])?;
        let scaled = self.compute(f, Gen::Ldexp.of(F64), &[t, Opnd::from(-32i32)])?;
        let high = self.compute(f, Gen::Floor.of(F64), &[scaled])?;
        let back = self.compute(f, Gen::Ldexp.of(F64), &[high, Opnd::Imm(32)])?;
        let rest = self.compute(f, Gen::Sub.of(F64), &[t, back])?;
        let low = self.cvt(f, F64, U32, rest)?;
        let top = self.cvt(f, F64, word, high)?;
        // 2^31 and beyond (2^32 unsigned): all ones below; below the least: zeros.
        let limit = self.constant_pair(f, F64, if to.is_signed() { 2f64.powi(31) } else { 2f64.powi(32) }.to_bits());
        let above = self.compute(f, Gen::CmpGe.of(F64), &[high, limit])?;
        let low = self.compute(f, Gen::Select.of(U32), &[above, Opnd::Imm(0xffff_ffff), low])?;
        let least = self.constant_pair(f, F64, if to.is_signed() { -2f64.powi(31) } else { 0.0 }.to_bits());
        let below = self.compute(f, Gen::CmpLt.of(F64), &[high, least])?;
        let low = self.compute(f, Gen::Select.of(U32), &[below, Opnd::Imm(0), low])?;
        self.join(f, d, low, top);
        Ok(())
    }

    /// A 64-bit constant in a vector pair of a type.
    pub(super) fn constant_pair(&mut self, f: &mut Function, ty: Type, bits: u64) -> Opnd {
        self.in_vector(f, ty, Opnd::Imm(bits))
    }

    /// The operand as it is where it is a vector, else a copy in one.
    fn in_vector(&mut self, f: &mut Function, ty: Type, x: Opnd) -> Opnd {
        match x {
            Opnd::V(p) if f.vreg(p.reg).class == RegClass::V => x,
            _ => {
                let t = self.fresh(f, ty);
                self.copy(f, t, x);
                t
            }
        }
    }
}
