//! From a decoded instruction to a micro-operation: the handler is chosen by what the tables say it does, operands are resolved to offsets, and
//! modifiers become [`Ext`].

use super::element::{Format, Typed};
use super::exec::{barrier, convert, ds, flags, flow, fork, format, lane, matrix, salu, smem, space, valu, vmem};
use super::machine::Machine;
use super::sem::{self, Form, Mix};
use super::uop::{Access, Dpp, Ext, Kind, Run, Sdwa, Space, Src, UOp};
use super::uop::{BRANCH, Payload, blank, rows};
use super::wave::{EXEC, SCALARS, SINK, scalar};
use barewave_isa::action::{
    self, Action, Address, Atomic, Float8, Flow, Fork, Lds, Memory, Packed, Part, Product, Scaled, Transfer,
};
use barewave_isa::{Half, Inst, ModName, Operand, Quirk, Raw, Reg, Regs};

/// Why an instruction cannot be executed.
pub enum Refusal {
    /// Operands outside of the register files.
    Illegal,
    /// No semantics.
    Unimplemented,
}

/// Resolves the operands of one instruction.
#[derive(Clone)]
pub struct Builder<'a> {
    /// The machine.
    pub m: &'a Machine,
    /// Lanes of a wave.
    pub lanes: usize,
    /// The instruction.
    pub raw: Raw,
    /// Its operands.
    pub inst: Inst,
    /// Its byte address in the program.
    pub pc: u32,
    /// Device address of the program.
    pub base: u64,
}

/// A built operation.
pub type Built = Result<UOp, Refusal>;

impl Builder<'_> {
    /// The operation that stands for an instruction that cannot be executed.
    pub fn refuse(&self, e: Refusal) -> UOp {
        let run = match e {
            Refusal::Illegal => flow::illegal,
            Refusal::Unimplemented => flow::unimplemented as Run,
        };
        blank(run, self.pc, self.raw.len() as u8)
    }

    fn blank(&self, run: Run) -> UOp {
        blank(run, self.pc, self.raw.len() as u8)
    }

    /// Element offset of a vector operand.
    fn row(&self, r: Regs) -> Result<u32, Refusal> {
        let (n, limit, base) = match r.first.is_vector() {
            true if r.first.0 >= Reg::A0.0 && self.m.vgprs <= Reg::A0.0 as u32 => {
                (r.first.0 - Reg::A0.0, self.m.agprs, self.m.vgprs)
            }
            true => (r.first.0, self.m.vgprs, 0),
            false => return Err(Refusal::Illegal),
        };
        if n as u32 + r.dwords as u32 > limit {
            return Err(Refusal::Illegal);
        }
        Ok((base + n as u32) * self.lanes as u32)
    }

    /// Index of a scalar operand that is written.
    fn scalar_dst(&self, o: &Operand) -> Result<u32, Refusal> {
        match o {
            Operand::Regs(r) if r.first == Reg::NULL => Ok(SINK),
            Operand::Regs(r) if !r.first.is_vector() && scalar(r.first) as usize + r.dwords as usize <= SCALARS => {
                Ok(scalar(r.first))
            }
            _ => Err(Refusal::Illegal),
        }
    }

    fn vector_dst(&self, o: &Operand) -> Result<u32, Refusal> {
        match o {
            Operand::Regs(r) => self.row(*r),
            _ => Err(Refusal::Illegal),
        }
    }

    fn src(&self, o: &Operand) -> Result<Src, Refusal> {
        Ok(match o {
            Operand::Imm(v) => Src { kind: Kind::Const, at: 0, value: *v },
            Operand::Off => Src::default(),
            Operand::Regs(r) => match r.first {
                Reg::NULL => Src { kind: Kind::Const, at: 0, value: 0 },
                Reg::VCCZ => Src { kind: Kind::Vccz, ..Src::default() },
                Reg::EXECZ => Src { kind: Kind::Execz, ..Src::default() },
                Reg::LDS_DIRECT => return Err(Refusal::Unimplemented),
                f if f.is_vector() => Src { kind: Kind::Vector, at: self.row(*r)?, value: 0 },
                _ => Src { kind: Kind::Scalar, at: self.scalar_dst(o)?, value: 0 },
            },
        })
    }

    fn dst(&self, i: usize) -> Result<&Operand, Refusal> {
        self.inst.dsts.get(i).ok_or(Refusal::Illegal)
    }

    fn get(&self, name: ModName) -> i32 {
        self.inst.mods.get(name).unwrap_or(0)
    }

    /// The operation of the instruction.
    pub fn build(&self) -> Built {
        let op = self.inst.op;
        match op.action() {
            Action::Int(_)
            | Action::Float(_)
            | Action::Convert(_)
            | Action::Packed(_)
            | Action::Float8(_)
            | Action::Compare { .. }
            | Action::Classify { .. } => {
                let sem = sem::of(op, self.m.quirks().fnuz).ok_or(Refusal::Unimplemented)?;
                self.valu(op.action(), sem)
            }
            Action::Flow(Flow::SetregB32) => self.set_register(),
            Action::Flow(f @ (Flow::Branch | Flow::CallB64)) => self.branch(flow::run(*f)),
            Action::Flow(
                f @ (Flow::CbranchScc0
                | Flow::CbranchScc1
                | Flow::CbranchVccz
                | Flow::CbranchVccnz
                | Flow::CbranchExecz
                | Flow::CbranchExecnz),
            ) => self.branch(flow::run(*f)),
            Action::Fork(f @ (Fork::CbranchIFork | Fork::SubvectorLoopBegin | Fork::SubvectorLoopEnd)) => {
                self.branch(fork::run(*f))
            }
            Action::Flow(f) => self.flow(flow::run(*f)),
            Action::Fork(f) => self.flow(fork::run(*f)),
            Action::Sync(f) => self.flow(barrier::run(*f)),
            Action::Salu(f) => self.salu(op.action(), salu::run(*f)),
            Action::ScalarCompare { relation, number } => self.salu(op.action(), salu::compare(*relation, *number)),
            Action::Cross(f) => self.lane(lane::run(*f)),
            Action::Scaled(s) => self.convert(s),
            Action::Memory(m) if !m.modelled => Err(Refusal::Unimplemented),
            Action::Memory(m) => self.memory(m),
            Action::Lds(f) => {
                let (run, bytes, flags) = ds::other(*f);
                let addressed = matches!(f, Lds::Condxchg32RtnB64);
                let needs = match f {
                    Lds::Append | Lds::Consume | Lds::LdsDirectLoad => 0,
                    Lds::SwizzleB32 => 1,
                    Lds::BpermuteB32 | Lds::BpermuteFiB32 | Lds::PermuteB32 | Lds::Condxchg32RtnB64 => 2,
                };
                self.ds(run, Access { bytes, flags, ..Access::default() }, addressed, needs)
            }
            Action::Matrix(p) => self.matrix(p),
            // pairs are made of two builders (`vopd`)
            Action::Pair(..) | Action::Graphics | Action::Later => Err(Refusal::Unimplemented),
        }
    }

    fn memory(&self, m: &Memory) -> Built {
        match m.space {
            _ if m.components > 0 => self.typed(m).map(|op| self.with_status(op)),
            action::Space::Scalar | action::Space::ScalarBuffer => self.smem(m),
            action::Space::Lds => self.lds(m),
            _ => self.vmem(m).map(|op| self.with_status(op)),
        }
    }

    fn set_register(&self) -> Built {
        let mut op = self.blank(flow::run(Flow::SetregB32));
        let [Operand::Imm(hwreg), value] = &self.inst.srcs[..] else { return Err(Refusal::Illegal) };
        op.imm = *hwreg as i64;
        op.src[0] = self.src(value)?;
        Ok(op)
    }

    fn branch(&self, run: Run) -> Built {
        let mut op = self.blank(run);
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.scalar_dst(d)?;
        }
        // A register that the instruction writes may stand among the sources.
        if let [first @ Operand::Regs(_), _] = &self.inst.srcs[..] {
            op.dst = self.scalar_dst(first)?;
        }
        let Some(Operand::Imm(v)) = self.inst.srcs.last() else { return Err(Refusal::Illegal) };
        let next = self.pc as i64 + self.raw.len() as i64;
        op.src[1].value = self.base.wrapping_add((next + (*v as i64) * 4) as u64);
        op.access.flags = BRANCH;
        Ok(op)
    }

    fn flow(&self, run: Run) -> Built {
        let mut op = self.blank(run);
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.scalar_dst(d)?;
        }
        op.imm = self.get(ModName::Offset) as i64;
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
        }
        Ok(op)
    }

    fn salu(&self, action: &Action, run: Run) -> Built {
        let mut op = self.blank(run);
        if let Some(ty) = salu::float_type(action) {
            // Arithmetic that MODE may change.
            (op.inner, op.run, op.types) = (Some(run), salu::float, [ty; 4]);
            op.round = sem::round::of(action);
        }
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
            op.n += 1;
        }
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.scalar_dst(d)?;
            if self.reads_destination() && op.n < 4 {
                op.src[op.n as usize] = self.src(d)?;
                op.n += 1;
            }
        }
        Ok(op)
    }

    /// The first destination is also the last source.
    fn reads_destination(&self) -> bool {
        self.m.target.op(self.inst.op).and_then(|i| i.dsts.first()).is_some_and(|d| d.read)
    }

    fn lane(&self, run: Run) -> Built {
        let mut op = self.blank(run);
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
        }
        if let Some(d) = self.inst.dsts.first() {
            let vector = d.regs().is_some_and(|r| r.first.is_vector());
            op.dst = if vector { self.vector_dst(d)? } else { self.scalar_dst(d)? };
        }
        if let Some(d) = self.inst.dsts.get(1) {
            op.dst2 = self.vector_dst(d)?;
        }
        op.imm = self.get(ModName::BitOp3) as i64;
        let high = |i: usize| matches!(self.inst.dsts.get(i), Some(Operand::Regs(Regs { half: Half::Hi, .. })));
        let op_sel = self.get(ModName::OpSel) as u8 | if high(0) { 8 } else { 0 } | if high(1) { 4 } else { 0 };
        if op_sel != 0 {
            op.payload = Payload::Modifiers(Box::new(Ext { op_sel, ..Ext::NONE }));
        }
        if !matches!(self.raw.overlay(), "") {
            return Err(Refusal::Unimplemented);
        }
        Ok(op)
    }

    fn smem(&self, m: &Memory) -> Built {
        let mut op = self.blank(smem::run(m));
        let srcs = &self.inst.srcs[..];
        let atomic = match m.transfer {
            Transfer::Atomic(a) => Some(a),
            _ => None,
        };
        // The data of an atomic that returns the old value stand among the destinations.
        let (data, rest) = match self.inst.dsts.first() {
            Some(d) if atomic.is_some() => (Some(d), srcs),
            _ if m.writes() => (srcs.first(), srcs.get(1..).unwrap_or(&[])),
            _ => (None, srcs),
        };
        let base = rest.first().ok_or(Refusal::Illegal)?;
        op.src[0] = self.src(base)?;
        if op.src[0].kind != Kind::Scalar {
            return Err(Refusal::Illegal);
        }
        op.imm = self.get(ModName::Offset) as i64;
        match rest.get(1) {
            Some(Operand::Imm(v)) => op.imm += *v as i64,
            Some(o) => op.src[1] = self.src(o)?,
            None => {}
        }
        if let Some(d) = data {
            op.src[2] = self.src(d)?;
        } else {
            op.dst = self.scalar_dst(self.dst(0)?)?;
        }
        op.access.bytes = m.bytes;
        op.access.flags = smem::flags(m);
        if let Some(a) = atomic {
            op.access.atomic = a;
            if self.get(ModName::Cpol) & 1 != 0 {
                op.access.flags |= smem::RETURN;
            }
            if op.src[2].kind != Kind::Scalar {
                return Err(Refusal::Illegal);
            }
        }
        if m.space == action::Space::Scalar {
            op.access.space = Space::Scalar;
        }
        Ok(op)
    }

    /// Loads, stores and atomics of LDS.
    fn lds(&self, m: &Memory) -> Built {
        let run = ds::run(m).ok_or(Refusal::Unimplemented)?;
        let atomic = match m.transfer {
            Transfer::Atomic(a) | Transfer::Combine(a) => a,
            _ => Atomic::Swap,
        };
        // Operands that the handler will read must be there.
        let needs = match m.transfer {
            Transfer::Load if m.address == Address::ThreadId => 0,
            Transfer::Store if m.address == Address::ThreadId => 1,
            Transfer::Load | Transfer::LoadTransposed(_) | Transfer::Combine(_) => 1,
            Transfer::Store | Transfer::Exchange if matches!(m.address, Address::Pair(_)) => 3,
            Transfer::Atomic(a) if a.two_operands() => 3,
            _ => 2,
        };
        let access = Access { bytes: m.bytes, flags: ds::flags(m), atomic, ..Access::default() };
        let mut op = self.ds(run, access, m.address != Address::ThreadId, needs)?;
        if let Address::Pair(unit) = m.address {
            op.imm = (self.get(ModName::Offset0) as u32 & 0xff).wrapping_mul(unit.into()) as i64;
            op.dst2 = (self.get(ModName::Offset1) as u32 & 0xff).wrapping_mul(unit.into());
            if let Space::Lds { second } = &mut op.access.space {
                *second = true;
            }
        }
        Ok(op)
    }

    /// An LDS instruction: `addressed` says that lanes address LDS with their first operand, `needs` how many operands
    /// the handler reads.
    fn ds(&self, run: Run, access: Access, addressed: bool, needs: usize) -> Built {
        let mut op = self.blank(run);
        if self.get(ModName::Gds) != 0 {
            op.run = ds::gds;
            op.inner = Some(run);
        }
        for (i, s) in self.inst.srcs.iter().take(3).enumerate() {
            op.src[i] = self.src(s)?;
            if op.src[i].kind != Kind::Vector {
                return Err(Refusal::Illegal);
            }
        }
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.vector_dst(d)?;
        }
        let offset = self.inst.mods.get(ModName::Offset).or(self.inst.mods.get(ModName::Offset0)).unwrap_or(0);
        op.imm = (offset & 0xffff) as i64;
        op.access = access;
        if addressed && op.inner.is_none() {
            op.access.space = Space::Lds { second: false };
        }
        if self.inst.srcs.len() < needs {
            return Err(Refusal::Illegal);
        }
        Ok(op)
    }

    fn vmem(&self, m: &Memory) -> Built {
        let srcs = &self.inst.srcs[..];
        let mut m = *m;
        if self.get(ModName::Lds) != 0 && m.transfer == Transfer::Load {
            m.transfer = Transfer::LoadLds;
        }
        let (run, space) = match m.space {
            action::Space::Global => (vmem::run::<space::Global>(&m), Space::Global),
            action::Space::Flat => (vmem::run::<space::Flat>(&m), Space::Flat),
            action::Space::Scratch => (vmem::run::<space::Scratch>(&m), Space::Scratch),
            _ => (vmem::run::<space::Buffer>(&m), Space::Buffer),
        };
        let buffer = space == Space::Buffer;
        let mut op = self.blank(run.ok_or(Refusal::Unimplemented)?);
        op.access.bytes = m.bytes;
        op.access.flags = flags::of(&m);
        op.access.space = space;
        op.imm = self.get(ModName::Offset) as i64;
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.vector_dst(d)?;
        }
        if m.transfer == Transfer::LoadLds {
            op.access.flags |= flags::TO_LDS;
            // What is larger than 16 bits reach.
            if self.m.target.info().lds_bytes > 1 << 16 {
                op.access.flags |= flags::FAR_LDS;
            }
        }
        // LDS is the source of a store from it.
        let writes = m.writes() && m.transfer != Transfer::StoreLds;
        if op.access.flags & flags::ADDTID != 0 {
            // No address register.
            op.src[1] = self.src(srcs.last().ok_or(Refusal::Illegal)?)?;
            if writes {
                op.src[2] = self.src(&srcs[0])?;
            }
            let complete = op.src[2].kind == Kind::Vector || !writes && !self.inst.dsts.is_empty();
            return if complete { Ok(op) } else { Err(Refusal::Illegal) };
        }
        let mut data = None;
        if buffer {
            let rest = match srcs.len() {
                4 => {
                    data = srcs.first();
                    &srcs[1..]
                }
                3 => srcs,
                _ => return Err(Refusal::Illegal),
            };
            if data.is_none() && writes {
                data = self.inst.dsts.first();
            }
            op.src[0] = self.src(&rest[0])?;
            op.src[1] = self.src(&rest[1])?;
            op.src[3] = self.src(&rest[2])?;
            if op.src[1].kind != Kind::Scalar {
                return Err(Refusal::Illegal);
            }
            if self.get(ModName::Offen) != 0 {
                op.access.flags |= flags::OFFEN;
            }
            if self.get(ModName::Idxen) != 0 {
                op.access.flags |= flags::IDXEN;
            }
            let needs = self.get(ModName::Offen) != 0 || self.get(ModName::Idxen) != 0;
            if needs && op.src[0].kind != Kind::Vector {
                return Err(Refusal::Illegal);
            }
        } else {
            let addr = srcs.first().ok_or(Refusal::Illegal)?;
            if let Operand::Regs(r) = addr
                && r.dwords == 2
            {
                op.access.flags |= flags::ADDR64;
            }
            op.src[0] = self.src(addr)?;
            let rest = if writes {
                data = srcs.get(1);
                2
            } else {
                1
            };
            if let Some(s) = srcs.get(rest) {
                op.src[1] = self.src(s)?;
            }
            if !matches!(op.src[0].kind, Kind::Vector | Kind::None) {
                return Err(Refusal::Illegal);
            }
        }
        if writes {
            op.src[2] = self.src(data.ok_or(Refusal::Illegal)?)?;
            if op.src[2].kind != Kind::Vector {
                return Err(Refusal::Illegal);
            }
        } else if m.transfer == Transfer::Load && self.inst.dsts.is_empty() {
            return Err(Refusal::Illegal);
        }
        if let Transfer::Atomic(kind) = m.transfer {
            op.access.atomic = kind;
            let returns = !self.inst.dsts.is_empty() && (!buffer || self.get(ModName::Cpol) & 1 != 0);
            if returns {
                op.access.flags |= flags::RETURN;
            }
            if buffer && self.get(ModName::Cpol) & 1 != 0 && self.inst.dsts.is_empty() {
                // The data register receives the old value.
                op.access.flags |= flags::RETURN;
                op.dst = op.src[2].at;
            }
        }
        Ok(op)
    }

    /// With `tfe` the register behind the data receives the status of the access.
    fn with_status(&self, mut op: UOp) -> UOp {
        if self.get(ModName::Tfe) != 0
            && let Some(Operand::Regs(r)) = self.inst.dsts.first()
        {
            op.dst2 = op.dst + (r.dwords as u32 - 1) * self.lanes as u32;
            (op.inner, op.run) = (Some(op.run), vmem::with_status);
        }
        op
    }

    /// Scaled conversions of gfx950.
    fn convert(&self, s: &'static Scaled) -> Built {
        let c = convert::of(s).ok_or(Refusal::Unimplemented)?;
        let mut op = self.blank(convert::RUN);
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
        }
        op.dst = self.vector_dst(self.dst(0)?)?;
        let e = Ext {
            op_sel: self.get(ModName::OpSel) as u8,
            neg: self.get(ModName::Neg) as u8,
            abs: self.get(ModName::Abs) as u8,
            ..Ext::NONE
        };
        op.payload = Payload::Scaled(s, Box::new(e));
        if self.inst.srcs.len() < c.operands() {
            return Err(Refusal::Illegal);
        }
        Ok(op)
    }

    /// Typed buffer accesses.
    fn typed(&self, m: &Memory) -> Built {
        let count = usize::from(m.components);
        // As an access to single dwords; the handler looks at the format.
        let mut op = self.vmem(&Memory { bytes: 4, ..*m })?;
        op.run = format::run(m.writes());
        let data = if m.writes() { self.inst.srcs.first() } else { self.inst.dsts.first() };
        let status = usize::from(self.get(ModName::Tfe) != 0 && !m.writes());
        let dwords = data.and_then(|d| d.regs()).map_or(0, |r| r.dwords as usize) - status;
        let packed =
            m.part != Part::Whole && dwords == count.div_ceil(2) && !self.m.target.info().has(Quirk::UnpackedD16);
        let named = self.m.target.buffer_format(self.inst.mods.get(ModName::Format).unwrap_or(1) as u64);
        let format = match m.space == action::Space::TypedBuffer {
            true => Some(named.and_then(|n| Format::parse(&n)).ok_or(Refusal::Illegal)?),
            false => None,
        };
        op.payload = Payload::Typed(Box::new(Typed { format, target: self.m.target, count, packed }));
        Ok(op)
    }

    fn matrix(&self, p: &Product) -> Built {
        let mut op = self.blank(matrix::RUN);
        let srcs = self.inst.srcs.iter().map(|s| self.src(s)).collect::<Result<Vec<Src>, Refusal>>()?;
        for (to, s) in op.src.iter_mut().zip(&srcs) {
            *to = *s;
        }
        op.dst = self.vector_dst(self.dst(0)?)?;
        matrix::prepare(&mut op, p, &self.inst, self.m, self.lanes, srcs.get(3..).unwrap_or(&[]))
            .ok_or(Refusal::Unimplemented)?;
        Ok(op)
    }

    fn valu(&self, action: &Action, sem: &'static sem::Sem) -> Built {
        let handlers = valu::handlers(self.m.host);
        let mut op = self.blank(handlers.map);
        op.kernel = sem.kernel.on(self.m.host);
        op.form = sem.form;
        op.float = sem.float;
        op.types = [sem.src[0], sem.src[1], sem.src[2], sem.dst];
        op.round = sem.round;
        op.access.flags |= valu::flags(action, sem);
        let mut e = Ext::NONE;
        let mut srcs = &self.inst.srcs[..];
        if matches!(sem.form, Form::BitIn | Form::BitInOut) {
            let Some((mask, rest)) = srcs.split_last() else { return Err(Refusal::Illegal) };
            op.src[3] = self.src(mask)?;
            srcs = rest;
        }
        if srcs.len() > 3 {
            return Err(Refusal::Illegal);
        }
        let mix = sem.mix != Mix::No;
        e.mix = mix;
        let mut tied = self.inst.dsts.first().copied();
        let all = srcs.iter().copied().chain(std::iter::from_fn(|| tied.take()));
        let n = sem.sources();
        for (i, o) in all.take(n).enumerate() {
            op.src[i] = self.src(&o)?;
            op.n += 1;
            if let Operand::Regs(Regs { half: Half::Hi, .. }) = o {
                e.op_sel |= 1 << i;
            }
            if mix && op.src[i].kind == Kind::Const && self.inst.mods.get(ModName::OpSelHi).unwrap_or(0) >> i & 1 == 0 {
                // Constants of an f32 operand: the table types them as halves.
                let h = crate::lanes::F16(op.src[i].value as u16);
                if op.src[i].value <= 0xffff && h.0 & 0x7c00 != 0 {
                    op.src[i].value = crate::numeric::f16_to_f32(h).to_bits() as u64;
                }
            }
        }
        if (op.n as usize) < n {
            return Err(Refusal::Illegal);
        }
        // Destinations.
        match sem.form {
            Form::Compare => op.dst2 = self.scalar_dst(self.dst(0)?)?,
            Form::CompareExec => {
                op.dst2 = match self.inst.dsts.first() {
                    Some(d) => self.scalar_dst(d)?,
                    None => EXEC as u32,
                }
            }
            _ => {
                let d = self.dst(0)?;
                op.dst = self.vector_dst(d)?;
                if let Operand::Regs(Regs { half: Half::Hi, .. }) = d {
                    e.op_sel |= 8;
                }
                if matches!(sem.form, Form::BitOut | Form::BitInOut) {
                    op.dst2 = self.scalar_dst(self.dst(1)?)?;
                }
            }
        }
        // Modifiers.
        for (m, v) in self.inst.mods.iter() {
            match m {
                ModName::Neg => e.neg = v as u8,
                ModName::NegHi => e.neg_hi = v as u8,
                ModName::Abs => e.abs = v as u8,
                ModName::Sext => e.sext = v as u8,
                ModName::OpSel => e.op_sel |= v as u8,
                ModName::OpSelHi => e.op_sel_hi = v as u8,
                ModName::Clamp => e.clamp = v != 0,
                ModName::Omod => e.omod = v as u8 & 3,
                _ => {}
            }
        }
        match self.raw.overlay() {
            "DPP" => {
                let get = |m, default| self.inst.mods.get(m).unwrap_or(default);
                e.dpp = Some(Dpp::Ctrl(
                    get(ModName::DppCtrl, 0) as u16,
                    get(ModName::RowMask, 15) as u8,
                    get(ModName::BankMask, 15) as u8,
                    get(ModName::BoundCtrl, 0) != 0,
                    get(ModName::Fi, 0) != 0,
                ));
            }
            "DPP8" => e.dpp = Some(Dpp::Dpp8(self.get(ModName::Dpp8) as u32, self.get(ModName::Fi) != 0)),
            "SDWA" | "SDWAC" => {
                let get = |m| self.inst.mods.get(m).unwrap_or(6) as u8;
                e.sdwa = Some(Sdwa {
                    src: [get(ModName::Src0Sel), get(ModName::Src1Sel)],
                    dst: get(ModName::DstSel),
                    unused: self.get(ModName::DstUnused) as u8,
                });
            }
            _ => {}
        }
        if mix {
            // Without a mention every source is f32.
            e.op_sel_hi = self.inst.mods.get(ModName::OpSelHi).unwrap_or(0) as u8;
            if sem.mix == Mix::High {
                e.op_sel |= 8;
            }
            e.keep_half = sem.dst.is_16();
        } else if op.types[..n].iter().all(|t| !t.is_packed()) {
            e.op_sel_hi = 7;
        } else {
            e.op_sel_hi |= 7 << n & 7;
        }
        if sem.dst.is_16() && !mix {
            let info = self.m.target.info();
            let listed = !info.has(Quirk::ClearsMostHalves) || self.inst.op.keeps_half();
            e.keep_half = listed && !info.has(Quirk::ClearsHalves);
        }
        self.byte_selects(action, &mut e);
        if let Action::Packed(f @ (Packed::Dot4I32Iu8 | Packed::Dot8I32Iu4)) = action {
            let signed = [e.neg & 1 != 0, e.neg & 2 != 0];
            let dot = if e.clamp { sem::clamped_dot_signs(*f, signed) } else { sem::dot_signs(*f, signed) };
            op.kernel = dot.ok_or(Refusal::Unimplemented)?.kernel.on(self.m.host);
            (e.neg, e.neg_hi) = (0, 0);
        }
        if e.clamp && !sem.dst.is_float() {
            if let Some(clamped) = sem::clamped(action) {
                op.kernel = clamped.kernel.on(self.m.host);
                op.types[3] = clamped.dst;
            }
            e.clamp = op.types[3].is_float();
        }
        if e != Ext::NONE {
            let signs = sem.form == Form::Map && valu::only_signs(&e);
            op.run = if signs { handlers.signs } else { valu::general };
            op.payload = Payload::Modifiers(Box::new(e));
        } else if sem.form != Form::Map {
            op.run = handlers.bits;
        } else if op.src[..n].iter().all(|s| s.kind == Kind::Vector) {
            op.run = handlers.registers;
        }
        op.rows = rows(&op.src, self.lanes);
        op.batch = valu::joins_batch(action, &op).into();
        Ok(op)
    }
}

impl Builder<'_> {
    /// Conversions of 8-bit floats choose a byte or word of a register with op_sel or a modifier of their own.
    fn byte_selects(&self, action: &Action, e: &mut Ext) {
        let Action::Float8(f) = action else { return };
        let plain = Sdwa { src: [6, 6], dst: 6, unused: 0 };
        let byte = self.get(ModName::ByteSel) as u8 & 3;
        match f {
            Float8::CvtF32Fp8 | Float8::CvtF32Bf8 if e.sdwa.is_none() && byte != 0 => {
                e.sdwa = Some(Sdwa { src: [byte, 6], ..plain });
            }
            Float8::CvtPkF32Fp8 | Float8::CvtPkF32Bf8 if e.op_sel & 1 != 0 => {
                e.sdwa = Some(Sdwa { src: [5, 6], ..plain });
                e.op_sel = 0;
            }
            Float8::CvtPkFp8F32 | Float8::CvtPkBf8F32 => e.keep_half = true,
            Float8::CvtSrFp8F32 | Float8::CvtSrBf8F32 => {
                let byte = byte.max(e.op_sel >> 2 & 3);
                e.sdwa = Some(Sdwa { dst: byte, unused: 2, ..plain });
                e.op_sel = 0;
            }
            _ => {}
        }
    }
}
