//! Instruction selection: generic operations become target instructions, and operands become encodable.
//!
//! Each generic operation becomes the best instruction the target has (`rules`, one table by operation and type; "has" is
//! asked of the instruction tables), or a sequence of such (`expand`). Then every
//! instruction is tried on the encoder with stand-in registers; when no encoding takes its operands (a literal in a
//! VOP3 of GCN, too many scalar operands, a scalar where only a VGPR fits) commutable sources are swapped, then
//! constants move to scalar registers and scalars to vector registers, until one does. So the rules of operand
//! legality stand in one place, the tables. Constants that were moved are reused within their block.

mod expand;
mod rules;

use super::emit;
use crate::mir::{Block, Code, Function, Gen, Generic, Group, MInst, Opnd, Part, RegClass, Type};
use barewave_isa::{EncodeError, Flags, Inst, Op, Reg, Regs, Target, op};
use rules::Form;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// An operation that the target cannot do.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel}: {what}")]
pub struct SelectError {
    kernel: String,
    what: NoWay,
}

/// Why an operation has no instructions. Each is a defect of barewave, or of a kernel's author.
#[derive(Debug, thiserror::Error)]
enum NoWay {
    #[error("{target} has no {}{what}", if *.scalar { "scalar " } else { "" })]
    Operation { target: Target, what: Generic, scalar: bool },
    #[error("{target} has no {name}")]
    Instruction { target: Target, name: &'static str },
    #[error("{0} needs a constant divisor other than 0")]
    Divisor(Generic),
    #[error("no encoding of {name} takes its operands: {why} ({inst})")]
    Operands { name: &'static str, why: Box<NoWay>, inst: String },
    #[error(transparent)]
    Encoding(#[from] EncodeError),
    #[error("a generic operation is left")]
    Generic,
}

/// Replaces generic operations and makes all operands encodable.
pub fn select(f: &mut Function) -> Result<(), SelectError> {
    let mut s = Selector { out: Vec::new(), constants: FxHashMap::default(), encodable: FxHashSet::default() };
    let mut expanded = Vec::new();
    for b in 0..f.blocks.len() {
        let block = std::mem::take(&mut f.blocks[b]);
        s.out = Vec::with_capacity(block.insts.len() * 2);
        s.constants.clear();
        for inst in block.insts {
            let (from, stage, group, note) = (s.out.len(), inst.stage, inst.group, inst.note);
            match inst.code {
                Code::Gen(g) => {
                    let d = inst.dsts.first().copied().unwrap_or(Opnd::Off);
                    let done = s.expand(f, g, d, &inst.srcs);
                    done.map_err(|what| SelectError { kernel: f.name.clone(), what })?;
                }
                Code::Isa(_) => s.out.push(inst),
            }
            // What has vectors alone, which is most, can stay where it is.
            if !s.out[from..].iter().all(|i| i.info(f.target).is_some() && has_vectors_alone(f, i)) {
                expanded.extend(s.out.drain(from..));
                for mut inst in expanded.drain(..) {
                    inst.stage = stage;
                    s.legalize(f, inst).map_err(|what| SelectError { kernel: f.name.clone(), what })?;
                }
            }
            s.out[from..].iter_mut().for_each(|i| (i.stage, i.note) = (stage, note));
            join_group(f, &mut s.out[from..], group);
        }
        f.blocks[b] = Block { insts: std::mem::take(&mut s.out), ..block };
    }
    Ok(())
}

/// Puts what an instruction of a group has become into the group: the instruction itself, not what moves its operands.
fn join_group(f: &Function, insts: &mut [MInst], group: Group) {
    let n = insts.len();
    for (i, inst) in insts.iter_mut().enumerate() {
        let acts = i + 1 == n || !super::simplify::is_pure(f, inst);
        inst.group = if acts { group } else { Group::default() };
    }
}

struct Selector {
    out: Vec<MInst>,
    /// Scalars of the current block that hold constants.
    constants: FxHashMap<u32, Part>,
    /// Instructions that the encoder took.
    encodable: FxHashSet<Inst>,
}

fn class_of(f: &Function, o: Opnd) -> RegClass {
    match o {
        Opnd::V(p) => f.vreg(p.reg).class,
        Opnd::P(r) if r.first.is_vector() => RegClass::V,
        _ => RegClass::S,
    }
}

/// The operand is a vector of virtual registers.
fn is_vector(f: &Function, o: &Opnd) -> bool {
    matches!(o, Opnd::V(p) if f.vreg(p.reg).class != RegClass::S)
}

/// All operands are vectors: every encoding takes these.
fn has_vectors_alone(f: &Function, inst: &MInst) -> bool {
    inst.srcs.iter().all(|o| is_vector(f, o)) && inst.dsts.iter().all(|o| is_vector(f, o))
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

    /// A new register for an intermediate result that goes where `like` goes.
    fn temp(&mut self, f: &mut Function, like: Opnd) -> Opnd {
        f.new_typed(class_of(f, like), 1, Type::U32).into()
    }

    /// Appends what computes an operation into `d`.
    fn expand(&mut self, f: &mut Function, g: Generic, d: Opnd, srcs: &[Opnd]) -> Result<(), NoWay> {
        let t = f.target;
        let vector = g.op.compares() || class_of(f, d) != RegClass::S;
        match g.op {
            Gen::Barrier => {
                self.barrier(t.has(op::S_BARRIER));
                return Ok(());
            }
            Gen::Copy => {
                self.copy(f, d, srcs[0]);
                return Ok(());
            }
            Gen::Mul if matches!(g.ty, Type::I32 | Type::U32) => return self.mul(f, g.ty, d, srcs[0], srcs[1]),
            Gen::Mad => return self.mad(f, vector, d, [srcs[0], srcs[1], srcs[2]]),
            Gen::Div | Gen::Rem => {
                let by = imm(srcs[1]).filter(|x| *x != 0).ok_or(NoWay::Divisor(g))?;
                return if g.op == Gen::Div { self.udiv(f, d, srcs[0], by) } else { self.umod(f, d, srcs[0], by) };
            }
            _ => {}
        }
        let accumulates = srcs.last() == Some(&d);
        match rules::find(t, g, vector, accumulates) {
            Some((rule, op)) => {
                self.apply(f, g, op, if vector { rule.form } else { Form::Plain }, d, srcs);
                Ok(())
            }
            None if g.op == Gen::MulHi && !vector => self.scalar_mul_hi(f, d, srcs[0], srcs[1]),
            None => self.fallback(f, g, d, srcs),
        }
    }

    /// The instruction of a row.
    fn apply(&mut self, f: &mut Function, g: Generic, op: Op, form: Form, d: Opnd, srcs: &[Opnd]) {
        let mut srcs: SmallVec<[Opnd; 4]> = SmallVec::from_slice(srcs);
        for (i, s) in srcs.iter_mut().enumerate() {
            // Wide and packed constants have encodings of their own kind: all but zero go through registers.
            if let (Opnd::Imm(x @ 1..), Some(ty)) = (*s, g.source_type(i)) {
                if ty.dwords() == 2 {
                    *s = self.constant_pair(f, ty, x);
                } else if ty.element().is_some() {
                    *s = self.constant(f, x as u32).into();
                }
            }
        }
        match form {
            Form::Plain => self.push(op, d, &srcs),
            Form::Swapped => self.push(op, d, &[srcs[1], srcs[0]]),
            Form::Accumulate => self.push(op, d, &srcs[..2]),
            Form::Carry => {
                let mask = f.new_vreg(RegClass::S, f.mask_dwords());
                self.out.push(MInst::new(op, &[d, mask.into()], &srcs));
            }
        }
    }

    fn barrier(&mut self, whole: bool) {
        if whole {
            self.out.push(MInst::new(op::S_BARRIER, &[], &[]));
        } else {
            // Barrier -1 is the workgroup's; the wait has it in a 16-bit field.
            self.out.push(MInst::new(op::S_BARRIER_SIGNAL, &[], &[(-1i32).into()]));
            self.out.push(MInst::new(op::S_BARRIER_WAIT, &[], &[0xffffu32.into()]));
        }
    }

    /// High half of the product of scalars where the target has no scalar instruction: through a vector register.
    fn scalar_mul_hi(&mut self, f: &mut Function, d: Opnd, a: Opnd, b: Opnd) -> Result<(), NoWay> {
        let (x, t) = (f.new_vreg(RegClass::V, 1), f.new_vreg(RegClass::V, 1));
        self.push(op::V_MOV_B32, x.into(), &[a]);
        self.push(op::V_MUL_HI_U32, t.into(), &[x.into(), b]);
        self.push(op::V_READFIRSTLANE_B32, d, &[t.into()]);
        Ok(())
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

    fn mul(&mut self, f: &mut Function, ty: Type, d: Opnd, a: Opnd, b: Opnd) -> Result<(), NoWay> {
        let (a, b) = if imm(a).is_some() { (b, a) } else { (a, b) };
        match imm(b) {
            Some(0) => self.copy(f, d, 0u32.into()),
            Some(1) => self.copy(f, d, a),
            Some(x) if x.is_power_of_two() => {
                return self.expand(f, Gen::Shl.of(ty), d, &[a, x.trailing_zeros().into()]);
            }
            _ => {
                let vector = class_of(f, d) != RegClass::S;
                let (rule, op) = rules::find(f.target, Gen::Mul.of(ty), vector, false).ok_or(NoWay::Operation {
                    target: f.target,
                    what: Gen::Mul.of(ty),
                    scalar: !vector,
                })?;
                self.apply(f, Gen::Mul.of(ty), op, rule.form, d, &[a, b]);
            }
        }
        Ok(())
    }

    fn mad(&mut self, f: &mut Function, vector: bool, d: Opnd, [a, b, c]: [Opnd; 3]) -> Result<(), NoWay> {
        let (a, b) = if imm(a).is_some() { (b, a) } else { (a, b) };
        match imm(b) {
            Some(1) => self.expand(f, Gen::Add.of(Type::U32), d, &[a, c]),
            Some(x) if vector && x.is_power_of_two() && f.target.has(op::V_LSHL_ADD_U32) => {
                self.push(op::V_LSHL_ADD_U32, d, &[a, x.trailing_zeros().into(), c]);
                Ok(())
            }
            _ => {
                let t = self.temp(f, d);
                self.mul(f, Type::U32, t, a, b)?;
                self.expand(f, Gen::Add.of(Type::U32), d, &[t, c])
            }
        }
    }

    /// `a / c` for `a` below 2^31: with `s = floor(log2 c)` and `m = ceil(2^(32+s) / c)` the error `m c - 2^(32+s)`
    /// is below `c <= 2^(s+1)`, so `mulhi(a, m) >> s` is the quotient (Granlund and Montgomery, PLDI 1994).
    fn udiv(&mut self, f: &mut Function, d: Opnd, a: Opnd, c: u32) -> Result<(), NoWay> {
        if c == 1 {
            self.copy(f, d, a);
            return Ok(());
        }
        let s = c.ilog2();
        if c.is_power_of_two() {
            return self.expand(f, Gen::Shr.of(Type::U32), d, &[a, s.into()]);
        }
        let m = (1u64 << (32 + s)).div_ceil(c as u64) as u32;
        let t = self.temp(f, d);
        self.expand(f, Gen::MulHi.of(Type::U32), t, &[a, m.into()])?;
        self.expand(f, Gen::Shr.of(Type::U32), d, &[t, s.into()])
    }

    fn umod(&mut self, f: &mut Function, d: Opnd, a: Opnd, c: u32) -> Result<(), NoWay> {
        if c.is_power_of_two() {
            return self.expand(f, Gen::And.of(Type::U32), d, &[a, (c - 1).into()]);
        }
        let (q, p) = (self.temp(f, d), self.temp(f, d));
        self.udiv(f, q, a, c)?;
        self.mul(f, Type::U32, p, q, c.into())?;
        self.expand(f, Gen::Sub.of(Type::U32), d, &[a, p])
    }

    /// Appends an instruction, with moves before it where its operands need them.
    fn legalize(&mut self, f: &mut Function, mut inst: MInst) -> Result<(), NoWay> {
        let target = f.target;
        let Some(info) = inst.info(target) else {
            let name = inst.op().map_or("?", |o| o.name());
            return Err(NoWay::Instruction { target, name });
        };
        if has_vectors_alone(f, &inst) {
            self.out.push(inst);
            return Ok(());
        }
        // Short vector encodings take a constant or scalar only as their first source.
        let commutes = info.flags.has(Flags::COMMUTATIVE) && inst.mods.is_empty() && inst.srcs.len() == 2;
        if commutes && is_vector(f, &inst.srcs[0]) && !is_vector(f, &inst.srcs[1]) {
            inst.srcs.swap(0, 1);
        }
        let mut why = match self.try_encoder(f, &inst) {
            Ok(()) => {
                self.out.push(inst);
                return Ok(());
            }
            Err(e) => e,
        };
        if info.flags.has(Flags::COMMUTATIVE) && inst.mods.is_empty() && inst.srcs.len() >= 2 {
            inst.srcs.swap(0, 1);
            if self.try_encoder(f, &inst).is_ok() {
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
                match self.try_encoder(f, &inst) {
                    Ok(()) => {
                        self.out.push(inst);
                        return Ok(());
                    }
                    Err(e) => why = e,
                }
            }
        }
        Err(NoWay::Operands { name: info.name, why: Box::new(why), inst: f.inst_text(&inst) })
    }

    /// Tries the encoder with a register of the right class and alignment for each virtual register.
    fn try_encoder(&mut self, f: &Function, inst: &MInst) -> Result<(), NoWay> {
        let mut seen: SmallVec<[(u32, u16); 8]> = SmallVec::new();
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
        let lowered = emit::lower_with(inst, |_| 0, |p| Some(stand_in(p))).ok_or(NoWay::Generic)?;
        if !self.encodable.contains(&lowered) {
            barewave_isa::encoded_size(f.target, &lowered)?;
            self.encodable.insert(lowered);
        }
        Ok(())
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
