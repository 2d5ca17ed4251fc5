//! Instruction selection: generic operations become target instructions, and operands become encodable.
//!
//! Each generic operation expands to the best instructions the target has ("has" is asked of the tables). Then every
//! instruction is tried on the encoder with stand-in registers; when no encoding takes its operands (a literal in a
//! VOP3 of GCN, too many scalar operands, a scalar where only a VGPR fits) commutable sources are swapped, then
//! constants move to scalar registers and scalars to vector registers, until one does. So the rules of operand
//! legality stand in one place, the tables. Constants that were moved are reused within their block.

use super::emit;
use crate::mir::{Block, Code, Function, Gen, MInst, Opnd, Part, RegClass};
use barewave_isa::{Flags, Op, Reg, Regs, op};
use rustc_hash::FxHashMap;

/// An operation that the target cannot do.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel}: {what}")]
pub struct SelectError {
    kernel: String,
    what: String,
}

/// Replaces generic operations and makes all operands encodable.
pub fn select(f: &mut Function) -> Result<(), SelectError> {
    let mut s = Selector { out: Vec::new(), constants: FxHashMap::default() };
    for b in 0..f.blocks.len() {
        let block = std::mem::take(&mut f.blocks[b]);
        s.out = Vec::with_capacity(block.insts.len() * 2);
        s.constants.clear();
        for inst in block.insts {
            let from = s.out.len();
            match inst.code {
                Code::Gen(g) => s.expand(f, g, &inst),
                Code::Isa(_) => s.out.push(inst),
            }
            let expanded = s.out.split_off(from);
            for inst in expanded {
                s.legalize(f, inst).map_err(|what| SelectError { kernel: f.name.clone(), what })?;
            }
        }
        f.blocks[b] = Block { insts: std::mem::take(&mut s.out), ..block };
    }
    Ok(())
}

struct Selector {
    out: Vec<MInst>,
    /// Scalars of the current block that hold constants.
    constants: FxHashMap<u32, Part>,
}

fn class_of(f: &Function, o: Opnd) -> RegClass {
    match o {
        Opnd::V(p) => f.vreg(p.reg).class,
        Opnd::P(r) if r.first.is_vector() => RegClass::V,
        _ => RegClass::S,
    }
}

fn imm(o: Opnd) -> Option<u32> {
    match o {
        Opnd::Imm(x) => Some(x as u32),
        _ => None,
    }
}

impl Selector {
    fn push(&mut self, op: Op, dst: Opnd, srcs: &[Opnd]) {
        self.out.push(MInst::new(op, &[dst], srcs));
    }

    fn temp(&mut self, f: &mut Function, like: Opnd) -> Opnd {
        f.new_vreg(class_of(f, like), 1).into()
    }

    fn expand(&mut self, f: &mut Function, g: Gen, inst: &MInst) {
        let t = f.target;
        if g == Gen::Barrier {
            if t.has(op::S_BARRIER) {
                self.out.push(MInst::new(op::S_BARRIER, &[], &[]));
            } else {
                // Barrier -1 is the workgroup's; the wait has it in a 16-bit field.
                self.out.push(MInst::new(op::S_BARRIER_SIGNAL, &[], &[(-1i32).into()]));
                self.out.push(MInst::new(op::S_BARRIER_WAIT, &[], &[0xffffu32.into()]));
            }
            return;
        }
        let d = inst.dsts[0];
        let vector = class_of(f, d) != RegClass::S;
        let src = |i: usize| inst.srcs[i];
        match g {
            Gen::Copy => self.copy(f, d, src(0)),
            Gen::Add => self.sum(f, vector, false, d, src(0), src(1)),
            Gen::Sub => self.sum(f, vector, true, d, src(0), src(1)),
            Gen::Mul => self.mul(f, vector, d, src(0), src(1)),
            Gen::MulHi => self.mul_hi(f, vector, d, src(0), src(1)),
            Gen::Mad => self.mad(f, vector, d, [src(0), src(1), src(2)]),
            Gen::And => self.pick(vector, (op::V_AND_B32, op::S_AND_B32), d, src(0), src(1)),
            Gen::Or => self.pick(vector, (op::V_OR_B32, op::S_OR_B32), d, src(0), src(1)),
            Gen::Xor => self.pick(vector, (op::V_XOR_B32, op::S_XOR_B32), d, src(0), src(1)),
            Gen::Umin => self.pick(vector, (op::V_MIN_U32, op::S_MIN_U32), d, src(0), src(1)),
            Gen::Umax => self.pick(vector, (op::V_MAX_U32, op::S_MAX_U32), d, src(0), src(1)),
            Gen::Imin => self.pick(vector, (op::V_MIN_I32, op::S_MIN_I32), d, src(0), src(1)),
            Gen::Imax => self.pick(vector, (op::V_MAX_I32, op::S_MAX_I32), d, src(0), src(1)),
            Gen::Shl => self.shift(vector, (op::V_LSHLREV_B32, op::S_LSHL_B32), d, src(0), src(1)),
            Gen::Shr => self.shift(vector, (op::V_LSHRREV_B32, op::S_LSHR_B32), d, src(0), src(1)),
            Gen::Ashr => self.shift(vector, (op::V_ASHRREV_I32, op::S_ASHR_I32), d, src(0), src(1)),
            Gen::Udiv => self.udiv(f, vector, d, src(0), imm(src(1)).expect("udiv takes a constant divisor")),
            Gen::Umod => self.umod(f, vector, d, src(0), imm(src(1)).expect("umod takes a constant divisor")),
            Gen::Fma if d == src(2) && t.has(op::V_FMAC_F32) => self.push(op::V_FMAC_F32, d, &[src(0), src(1)]),
            Gen::Fma => self.push(op::V_FMA_F32, d, &inst.srcs),
            Gen::Barrier => unreachable!("handled above"),
        }
    }

    fn pick(&mut self, vector: bool, (v, s): (Op, Op), d: Opnd, a: Opnd, b: Opnd) {
        self.push(if vector { v } else { s }, d, &[a, b]);
    }

    /// Sum or difference. Before gfx9 every vector sum writes a carry.
    fn sum(&mut self, f: &mut Function, vector: bool, minus: bool, d: Opnd, a: Opnd, b: Opnd) {
        let (plain, carry, scalar) = if minus {
            (op::V_SUB_U32, op::V_SUB_CO_U32, op::S_SUB_U32)
        } else {
            (op::V_ADD_U32, op::V_ADD_CO_U32, op::S_ADD_U32)
        };
        if vector && !f.target.has(plain) {
            let mask = f.new_vreg(RegClass::S, f.mask_dwords());
            self.out.push(MInst::new(carry, &[d, mask.into()], &[a, b]));
        } else {
            self.pick(vector, (plain, scalar), d, a, b);
        }
    }

    /// High half of the product; scalars go through a vector register where the target has no scalar instruction.
    fn mul_hi(&mut self, f: &mut Function, vector: bool, d: Opnd, a: Opnd, b: Opnd) {
        if vector || f.target.has(op::S_MUL_HI_U32) {
            return self.pick(vector, (op::V_MUL_HI_U32, op::S_MUL_HI_U32), d, a, b);
        }
        let (x, t) = (f.new_vreg(RegClass::V, 1), f.new_vreg(RegClass::V, 1));
        self.push(op::V_MOV_B32, x.into(), &[a]);
        self.push(op::V_MUL_HI_U32, t.into(), &[x.into(), b]);
        self.push(op::V_READFIRSTLANE_B32, d, &[t.into()]);
    }

    /// Vector shifts take the amount first.
    fn shift(&mut self, vector: bool, (v, s): (Op, Op), d: Opnd, a: Opnd, amount: Opnd) {
        if vector { self.push(v, d, &[amount, a]) } else { self.push(s, d, &[a, amount]) }
    }

    fn copy(&mut self, f: &Function, d: Opnd, s: Opnd) {
        let Opnd::V(dp) = d else { unreachable!("copies go to virtual registers") };
        let (to, from) = (class_of(f, d), class_of(f, s));
        let mut i = 0;
        while i < dp.len {
            let pair = to == RegClass::S
                && dp.len - i >= 2
                && (dp.first + i).is_multiple_of(2)
                && matches!(s, Opnd::V(p) if (p.first + i).is_multiple_of(2));
            let n = if pair { 2 } else { 1 };
            let part = match s {
                Opnd::V(p) => p.slice(i, n).into(),
                Opnd::P(r) => Opnd::P(Regs::new(r.first.offset(i as u16), n)),
                Opnd::Imm(x) => Opnd::Imm(x >> (32 * i as u32) & 0xffff_ffff),
                o => o,
            };
            let op = match (to, from) {
                (RegClass::S, _) if pair => op::S_MOV_B64,
                (RegClass::S, _) => op::S_MOV_B32,
                (RegClass::V, RegClass::A) => op::V_ACCVGPR_READ_B32,
                (RegClass::V, _) => op::V_MOV_B32,
                (RegClass::A, RegClass::A) => op::V_ACCVGPR_MOV_B32,
                (RegClass::A, _) => op::V_ACCVGPR_WRITE_B32,
            };
            self.push(op, dp.slice(i, n).into(), &[part]);
            i += n;
        }
    }

    fn mul(&mut self, f: &mut Function, vector: bool, d: Opnd, a: Opnd, b: Opnd) {
        let (a, b) = if imm(a).is_some() { (b, a) } else { (a, b) };
        match imm(b) {
            Some(0) => self.copy(f, d, 0u32.into()),
            Some(1) => self.copy(f, d, a),
            Some(x) if x.is_power_of_two() => {
                self.shift(vector, (op::V_LSHLREV_B32, op::S_LSHL_B32), d, a, x.trailing_zeros().into());
            }
            _ => self.pick(vector, (op::V_MUL_LO_U32, op::S_MUL_I32), d, a, b),
        }
    }

    fn mad(&mut self, f: &mut Function, vector: bool, d: Opnd, [a, b, c]: [Opnd; 3]) {
        let (a, b) = if imm(a).is_some() { (b, a) } else { (a, b) };
        match imm(b) {
            Some(1) => self.sum(f, vector, false, d, a, c),
            Some(x) if vector && x.is_power_of_two() && f.target.has(op::V_LSHL_ADD_U32) => {
                self.push(op::V_LSHL_ADD_U32, d, &[a, x.trailing_zeros().into(), c]);
            }
            _ => {
                let t = self.temp(f, d);
                self.mul(f, vector, t, a, b);
                self.sum(f, vector, false, d, t, c);
            }
        }
    }

    /// `a / c` for `a` below 2^31: with `s = floor(log2 c)` and `m = ceil(2^(32+s) / c)` the error `m c - 2^(32+s)`
    /// is below `c <= 2^(s+1)`, so `mulhi(a, m) >> s` is the quotient (Granlund and Montgomery, PLDI 1994).
    fn udiv(&mut self, f: &mut Function, vector: bool, d: Opnd, a: Opnd, c: u32) {
        assert!(c != 0, "division by zero");
        if c.is_power_of_two() {
            if c == 1 {
                return self.copy(f, d, a);
            }
            return self.shift(vector, (op::V_LSHRREV_B32, op::S_LSHR_B32), d, a, c.trailing_zeros().into());
        }
        let s = c.ilog2();
        let m = (1u64 << (32 + s)).div_ceil(c as u64) as u32;
        let t = self.temp(f, d);
        self.mul_hi(f, vector, t, a, m.into());
        self.shift(vector, (op::V_LSHRREV_B32, op::S_LSHR_B32), d, t, s.into());
    }

    fn umod(&mut self, f: &mut Function, vector: bool, d: Opnd, a: Opnd, c: u32) {
        if c.is_power_of_two() {
            return self.pick(vector, (op::V_AND_B32, op::S_AND_B32), d, a, (c - 1).into());
        }
        let (q, p) = (self.temp(f, d), self.temp(f, d));
        self.udiv(f, vector, q, a, c);
        self.mul(f, vector, p, q, c.into());
        self.sum(f, vector, true, d, a, p);
    }

    /// Appends an instruction, with moves before it where its operands need them.
    fn legalize(&mut self, f: &mut Function, mut inst: MInst) -> Result<(), String> {
        let target = f.target;
        let Some(info) = inst.info(target) else {
            let name = inst.op().map_or("?", |o| o.name());
            return Err(format!("{} has no {name}", target.info().name));
        };
        let plain = |o: &Opnd| matches!(o, Opnd::V(p) if f.vreg(p.reg).class != RegClass::S);
        if inst.srcs.iter().all(plain) && inst.dsts.iter().all(plain) {
            self.out.push(inst);
            return Ok(());
        }
        // Short vector encodings take a constant or scalar only as their first source.
        let commutes = info.flags.has(Flags::COMMUTATIVE) && inst.mods.is_empty() && inst.srcs.len() == 2;
        if commutes && plain(&inst.srcs[0]) && !plain(&inst.srcs[1]) {
            inst.srcs.swap(0, 1);
        }
        let mut why = match encodable(f, &inst) {
            Ok(()) => {
                self.out.push(inst);
                return Ok(());
            }
            Err(e) => e,
        };
        if info.flags.has(Flags::COMMUTATIVE) && inst.mods.is_empty() && inst.srcs.len() >= 2 {
            inst.srcs.swap(0, 1);
            if encodable(f, &inst).is_ok() {
                self.out.push(inst);
                return Ok(());
            }
            inst.srcs.swap(0, 1);
        }
        // First constants to scalars, last source first; then, still not encodable, scalars to vectors.
        for to_vector in [false, true] {
            for i in (0..inst.srcs.len()).rev() {
                let slot = info.srcs.get(i);
                let movable = match inst.srcs[i] {
                    Opnd::Imm(_) => true,
                    Opnd::V(p) => to_vector && f.vreg(p.reg).class == RegClass::S && p.len == 1,
                    _ => false,
                };
                let takes_vector = slot.is_some_and(|s| s.class.contains(barewave_isa::Class::VGPR));
                let takes_scalar = slot.is_some_and(|s| s.class.contains(barewave_isa::Class::SGPR));
                if !movable || (to_vector && !takes_vector) || (!to_vector && !takes_scalar) {
                    continue;
                }
                let old = inst.srcs[i];
                inst.srcs[i] = match (to_vector, old) {
                    (false, Opnd::Imm(x)) => self.constant(f, x as u32).into(),
                    _ => {
                        let v = f.new_vreg(RegClass::V, 1);
                        self.out.push(MInst::new(op::V_MOV_B32, &[v.into()], &[old]));
                        v.into()
                    }
                };
                match encodable(f, &inst) {
                    Ok(()) => {
                        self.out.push(inst);
                        return Ok(());
                    }
                    Err(e) => why = e,
                }
            }
        }
        Err(format!("no encoding of {} takes its operands: {why} ({inst:?})", info.name))
    }

    fn constant(&mut self, f: &mut Function, x: u32) -> Part {
        if let Some(p) = self.constants.get(&x) {
            return *p;
        }
        let s = f.new_vreg(RegClass::S, 1);
        self.out.push(MInst::new(op::S_MOV_B32, &[s.into()], &[x.into()]));
        self.constants.insert(x, s);
        s
    }
}

/// Tries the encoder with a register of the right class and alignment for each virtual register.
fn encodable(f: &Function, inst: &MInst) -> Result<(), String> {
    let mut seen: Vec<(u32, u16)> = Vec::new();
    let mut next = 0u16;
    let mut stand_in = |p: Part| {
        let base = match seen.iter().find(|(v, _)| *v == p.reg.0) {
            Some(&(_, b)) => b,
            None => {
                let b = next;
                next += f.vreg(p.reg).dwords.next_multiple_of(4) as u16;
                seen.push((p.reg.0, b));
                b
            }
        };
        let first = match f.vreg(p.reg).class {
            RegClass::V => Reg::V0,
            RegClass::A => Reg::A0,
            RegClass::S => Reg::S0,
        };
        Regs::new(first.offset(base + p.first as u16), p.len)
    };
    let mut trial = inst.clone();
    for o in trial.dsts.iter_mut().chain(&mut trial.srcs) {
        if let Opnd::V(p) = *o {
            *o = Opnd::P(stand_in(p));
        }
    }
    let lowered = emit::lower_inst(&trial, |_| 0).ok_or("a generic operation is left")?;
    barewave_isa::encoded_size(f.target, &lowered).map(|_| ()).map_err(|e| e.to_string())
}
