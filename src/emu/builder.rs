//! From a decoded instruction to a micro-operation: the handler is chosen by name, operands are resolved to offsets, and
//! modifiers become [`Ext`].

use super::exec::{convert, ds, flow, format, lane, matrix, salu, smem, space, valu, vmem};
use super::lanes::Ty;
use super::program::{BRANCH, Machine, blank};
use super::sem::{self, Form};
use super::wave::{Dpp, EXEC, Ext, Kind, Run, SCALARS, SINK, Sdwa, Space, Src, UOp, scalar};
use crate::codeobj::Family;
use barewave_isa::{Half, Inst, ModName, Operand, Raw, Reg, Regs};

/// Why an instruction cannot be executed.
pub enum Refusal {
    /// Operands outside of the register files.
    Illegal,
    /// No semantics.
    Unimplemented,
}

/// Resolves the operands of one instruction.
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
        let name = self.raw.op().name();
        if let Some(sem) = sem::of(self.raw.op(), self.m.quirks().fnuz) {
            return self.valu(name, sem);
        }
        if let Some(run) = flow::find(name) {
            return self.flow(name, run);
        }
        if let Some(run) = salu::find(name) {
            return self.salu(name, run);
        }
        if let Some((run, scalar_result)) = lane::find(name) {
            return self.lane(run, scalar_result);
        }
        if let Some(c) = convert::parse(name) {
            return self.convert(c);
        }
        if let Some(shape) = format::shape(name) {
            return self.typed(&shape).map(|op| self.with_status(op));
        }
        if let Some(shape) = smem::shape(name) {
            return self.smem(&shape);
        }
        if let Some(shape) = ds::find(name) {
            return self.ds(name, &shape);
        }
        for (prefix, space) in [("global_", 0), ("buffer_", 1), ("flat_", 2), ("scratch_", 3)] {
            if let Some(shape) = name.strip_prefix(prefix).and_then(vmem::shape) {
                return self.vmem(space, &shape).map(|op| self.with_status(op));
            }
        }
        if let Some(run) = matrix::find(self.inst.op, self.m) {
            return self.matrix(run);
        }
        Err(Refusal::Unimplemented)
    }

    fn flow(&self, name: &str, run: Run) -> Built {
        let mut op = self.blank(run);
        if name.starts_with("s_setreg") {
            let [Operand::Imm(hwreg), value] = &self.inst.srcs[..] else { return Err(Refusal::Illegal) };
            op.imm = *hwreg as i64;
            op.src[0] = self.src(value)?;
            return Ok(op);
        }
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.scalar_dst(d)?;
        }
        op.imm = self.get(ModName::Offset) as i64;
        let branch = name == "s_branch" || name == "s_call_b64" || name.starts_with("s_subvector_loop_");
        let branch = branch || name.starts_with("s_cbranch_") && !matches!(name, "s_cbranch_g_fork" | "s_cbranch_join");
        if branch {
            // A register that the instruction writes may stand among the sources.
            if let [first @ Operand::Regs(_), _] = &self.inst.srcs[..] {
                op.dst = self.scalar_dst(first)?;
            }
            let Some(Operand::Imm(v)) = self.inst.srcs.last() else { return Err(Refusal::Illegal) };
            let next = self.pc as i64 + self.raw.len() as i64;
            op.src[1].value = self.base.wrapping_add((next + (*v as i64) * 4) as u64);
            op.access.flags = BRANCH;
            return Ok(op);
        }
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
        }
        Ok(op)
    }

    fn salu(&self, name: &str, run: Run) -> Built {
        let mut op = self.blank(run);
        let float = |ty: &str| name.starts_with("s_") && name.ends_with(ty) && !name.starts_with("s_c");
        if float("_f32") || float("_f16") {
            // Arithmetic that MODE may change.
            let ty = if float("_f32") { Ty::F32 } else { Ty::F16 };
            (op.inner, op.run, op.types) = (Some(run), salu::float, [ty; 4]);
            op.round = sem::round::of(name);
        }
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
            op.n += 1;
        }
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.scalar_dst(d)?;
            if salu::reads_destination(name) && op.n < 4 {
                op.src[op.n as usize] = self.src(d)?;
                op.n += 1;
            }
        }
        Ok(op)
    }

    fn lane(&self, run: Run, scalar_result: bool) -> Built {
        let mut op = self.blank(run);
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
        }
        if let Some(d) = self.inst.dsts.first() {
            op.dst = if scalar_result { self.scalar_dst(d)? } else { self.vector_dst(d)? };
        }
        if let Some(d) = self.inst.dsts.get(1) {
            op.dst2 = self.vector_dst(d)?;
        }
        op.imm = self.get(ModName::BitOp3) as i64;
        let high = |i: usize| matches!(self.inst.dsts.get(i), Some(Operand::Regs(Regs { half: Half::Hi, .. })));
        let op_sel = self.get(ModName::OpSel) as u8 | if high(0) { 8 } else { 0 } | if high(1) { 4 } else { 0 };
        if op_sel != 0 {
            op.ext = Some(Box::new(Ext { op_sel, ..Ext::NONE }));
        }
        if !matches!(self.raw.overlay(), "") {
            return Err(Refusal::Unimplemented);
        }
        Ok(op)
    }

    fn smem(&self, shape: &smem::Shape) -> Built {
        let mut op = self.blank(smem::find(shape));
        let srcs = &self.inst.srcs[..];
        // The data of an atomic that returns the old value stand among the destinations.
        let (data, rest) = match self.inst.dsts.first() {
            Some(d) if shape.atomic.is_some() => (Some(d), srcs),
            _ if shape.store || shape.atomic.is_some() => (srcs.first(), srcs.get(1..).unwrap_or(&[])),
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
        op.access.bytes = shape.bytes;
        op.access.flags = shape.flags();
        if let Some(a) = shape.atomic {
            op.access.atomic = a as u8;
            if self.get(ModName::Cpol) & 1 != 0 {
                op.access.flags |= smem::RETURN;
            }
            if op.src[2].kind != Kind::Scalar {
                return Err(Refusal::Illegal);
            }
        }
        if !shape.buffer {
            op.access.space = Space::Scalar;
        }
        Ok(op)
    }

    fn ds(&self, name: &str, shape: &ds::Shape) -> Built {
        let mut op = self.blank(shape.run);
        if self.get(ModName::Gds) != 0 {
            op.run = ds::gds;
            op.inner = Some(shape.run);
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
        if shape.scale > 0 {
            op.imm = (self.get(ModName::Offset0) as u32 & 0xff).wrapping_mul(shape.scale) as i64;
            op.dst2 = (self.get(ModName::Offset1) as u32 & 0xff).wrapping_mul(shape.scale);
        } else {
            let offset = self.inst.mods.get(ModName::Offset).or(self.inst.mods.get(ModName::Offset0)).unwrap_or(0);
            op.imm = (offset & 0xffff) as i64;
        }
        op.access.bytes = shape.bytes;
        op.access.flags = shape.flags;
        op.access.atomic = shape.atomic;
        if shape.addressed && op.inner.is_none() {
            op.access.space = Space::Lds { second: shape.scale > 0 };
        }
        // Operands that the handler will read must be there.
        let needs = match name {
            n if n.contains("append") || n.contains("consume") || n == "ds_read_addtid_b32" => 0,
            "lds_direct_load" => 0,
            n if n.contains("_src2_") => 1,
            n if n.contains("write2") || n.contains("cmpst") || n.contains("wrxchg2") || n.contains("mskor") => 3,
            n if n.starts_with("ds_read") || n.contains("swizzle") || n.contains("addtid") => 1,
            _ => 2,
        };
        if self.inst.srcs.len() < needs {
            return Err(Refusal::Illegal);
        }
        Ok(op)
    }

    fn vmem(&self, space: usize, shape: &vmem::Shape) -> Built {
        let srcs = &self.inst.srcs[..];
        let mut shape = vmem::Shape { action: shape.action, bytes: shape.bytes, flags: shape.flags };
        if self.get(ModName::Lds) != 0 && shape.action == vmem::Action::Load {
            shape.action = vmem::Action::LoadLds;
        }
        let run = match space {
            0 => vmem::find::<space::Global>(&shape),
            1 => vmem::find::<space::Buffer>(&shape),
            2 => vmem::find::<space::Flat>(&shape),
            _ => vmem::find::<space::Scratch>(&shape),
        };
        let mut op = self.blank(run);
        op.access.bytes = shape.bytes;
        op.access.flags = shape.flags;
        op.access.space = [Space::Global, Space::Buffer, Space::Flat, Space::Scratch][space.min(3)];
        op.imm = self.get(ModName::Offset) as i64;
        if let Some(d) = self.inst.dsts.first() {
            op.dst = self.vector_dst(d)?;
        }
        if shape.action == vmem::Action::LoadLds {
            op.access.flags |= vmem::TO_LDS;
        }
        let writes = match shape.action {
            vmem::Action::Load | vmem::Action::LoadLds | vmem::Action::StoreLds | vmem::Action::Transpose => false,
            vmem::Action::Block => shape.flags & vmem::STORE != 0,
            vmem::Action::Store | vmem::Action::Atomic(_) => true,
        };
        if op.access.flags & vmem::ADDTID != 0 {
            // No address register.
            op.src[1] = self.src(srcs.last().ok_or(Refusal::Illegal)?)?;
            if writes {
                op.src[2] = self.src(&srcs[0])?;
            }
            let complete = op.src[2].kind == Kind::Vector || !writes && !self.inst.dsts.is_empty();
            return if complete { Ok(op) } else { Err(Refusal::Illegal) };
        }
        let mut data = None;
        if space == 1 {
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
                op.access.flags |= vmem::OFFEN;
            }
            if self.get(ModName::Idxen) != 0 {
                op.access.flags |= vmem::IDXEN;
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
                op.access.flags |= vmem::ADDR64;
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
        } else if shape.action == vmem::Action::Load && self.inst.dsts.is_empty() {
            return Err(Refusal::Illegal);
        }
        if let vmem::Action::Atomic(kind) = shape.action {
            op.access.atomic = kind as u8;
            let returns = !self.inst.dsts.is_empty() && (space != 1 || self.get(ModName::Cpol) & 1 != 0);
            if returns {
                op.access.flags |= vmem::RETURN;
            }
            if space == 1 && self.get(ModName::Cpol) & 1 != 0 && self.inst.dsts.is_empty() {
                // The data register receives the old value.
                op.access.flags |= vmem::RETURN;
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
    fn convert(&self, c: convert::Conversion) -> Built {
        let mut op = self.blank(convert::RUN);
        for (i, s) in self.inst.srcs.iter().take(4).enumerate() {
            op.src[i] = self.src(s)?;
        }
        op.dst = self.vector_dst(self.dst(0)?)?;
        op.convert = Some(c);
        op.ext = Some(Box::new(Ext {
            op_sel: self.get(ModName::OpSel) as u8,
            neg: self.get(ModName::Neg) as u8,
            abs: self.get(ModName::Abs) as u8,
            ..Ext::NONE
        }));
        if self.inst.srcs.len() < c.operands() {
            return Err(Refusal::Illegal);
        }
        Ok(op)
    }

    /// Typed buffer accesses.
    fn typed(&self, shape: &format::Shape) -> Built {
        let action = if shape.flags & vmem::STORE != 0 { vmem::Action::Store } else { vmem::Action::Load };
        let like = vmem::Shape { action, bytes: 4, flags: shape.flags };
        let mut op = self.vmem(1, &like)?;
        op.run = format::find(shape);
        let data = match action {
            vmem::Action::Store => self.inst.srcs.first(),
            _ => self.inst.dsts.first(),
        };
        let status = usize::from(self.get(ModName::Tfe) != 0 && action == vmem::Action::Load);
        let dwords = data.and_then(|d| d.regs()).map_or(0, |r| r.dwords as usize) - status;
        let d16 = shape.flags & (vmem::D16 | vmem::D16_HI) != 0;
        let packed = d16 && dwords == shape.count.div_ceil(2) && self.m.family > Family::Gfx8;
        let named = self.m.target.buffer_format(self.inst.mods.get(ModName::Format).unwrap_or(1) as u64);
        let format = match shape.typed {
            true => Some(named.and_then(|n| format::Format::parse(&n)).ok_or(Refusal::Illegal)?),
            false => None,
        };
        op.typed = Some(Box::new(format::Typed { format, target: self.m.target, count: shape.count, packed }));
        Ok(op)
    }

    fn matrix(&self, run: Run) -> Built {
        let mut op = self.blank(run);
        let srcs = self.inst.srcs.iter().map(|s| self.src(s)).collect::<Result<Vec<Src>, Refusal>>()?;
        for (to, s) in op.src.iter_mut().zip(&srcs) {
            *to = *s;
        }
        op.dst = self.vector_dst(self.dst(0)?)?;
        matrix::prepare(&mut op, &self.inst, self.m, self.lanes, srcs.get(3..).unwrap_or(&[]))
            .ok_or(Refusal::Unimplemented)?;
        Ok(op)
    }

    fn valu(&self, name: &str, sem: &'static sem::Sem) -> Built {
        let handlers = valu::handlers(self.m.host);
        let mut op = self.blank(handlers.map);
        op.kernel = sem.kernel.on(self.m.host);
        op.form = sem.form;
        op.float = sem.float;
        op.types = [sem.src[0], sem.src[1], sem.src[2], sem.dst];
        op.round = sem::round::of(name);
        op.access.flags |= valu::flags(name);
        if sem.flush {
            op.access.flags |= valu::FLUSH;
        }
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
        let mix = name.contains("_mix");
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
            if name.contains("hi_") {
                e.op_sel |= 8;
            }
            e.keep_half = sem.dst.is_16();
        } else if op.types[..n].iter().all(|t| !t.is_packed()) {
            e.op_sel_hi = 7;
        } else {
            e.op_sel_hi |= 7 << n & 7;
        }
        if sem.dst.is_16() && !mix {
            e.keep_half = match self.m.family {
                Family::Gfx8 => false,
                Family::Gfx9 | Family::Gfx90a | Family::Gfx940 => keeps_half_on_gfx9(name),
                _ => true,
            };
        }
        self.byte_selects(name, &mut e);
        if name.starts_with("v_dot4_i32_iu8") || name.starts_with("v_dot8_i32_iu4") {
            let signed = [e.neg & 1 != 0, e.neg & 2 != 0];
            op.kernel = sem::dot_signs(name, signed).ok_or(Refusal::Unimplemented)?.kernel.on(self.m.host);
            (e.neg, e.neg_hi) = (0, 0);
        }
        if e.clamp && !sem.dst.is_float() && sem.form == Form::Map {
            let clamped = sem::clamped(name).ok_or(Refusal::Unimplemented)?;
            op.kernel = clamped.kernel.on(self.m.host);
            e.clamp = false;
        }
        if sem.dst == Ty::None {
            e.clamp = false;
        }
        if e != Ext::NONE {
            let signs = sem.form == Form::Map && valu::only_signs(&e);
            op.run = if signs { handlers.signs } else { valu::general };
            op.ext = Some(Box::new(e));
        } else if sem.form != Form::Map {
            op.run = handlers.bits;
        } else if op.src[..n].iter().all(|s| s.kind == Kind::Vector) {
            op.run = handlers.registers;
        }
        op.rows = valu::rows(&op.src, self.lanes);
        op.batch = valu::joins_batch(name, &op).into();
        Ok(op)
    }
}

impl Builder<'_> {
    /// Conversions of 8-bit floats choose a byte or word of a register with op_sel or a modifier of their own.
    fn byte_selects(&self, name: &str, e: &mut Ext) {
        let plain = Sdwa { src: [6, 6], dst: 6, unused: 0 };
        let byte = self.get(ModName::ByteSel) as u8 & 3;
        match name {
            "v_cvt_f32_fp8" | "v_cvt_f32_bf8" if e.sdwa.is_none() && byte != 0 => {
                e.sdwa = Some(Sdwa { src: [byte, 6], ..plain });
            }
            "v_cvt_pk_f32_fp8" | "v_cvt_pk_f32_bf8" if e.op_sel & 1 != 0 => {
                e.sdwa = Some(Sdwa { src: [5, 6], ..plain });
                e.op_sel = 0;
            }
            "v_cvt_pk_fp8_f32" | "v_cvt_pk_bf8_f32" => e.keep_half = true,
            "v_cvt_sr_fp8_f32" | "v_cvt_sr_bf8_f32" => {
                let byte = byte.max(e.op_sel >> 2 & 3);
                e.sdwa = Some(Sdwa { dst: byte, unused: 2, ..plain });
                e.op_sel = 0;
            }
            _ => {}
        }
    }
}

/// 16-bit instructions of gfx9 that leave the upper half of their destination alone; the others clear it.
fn keeps_half_on_gfx9(name: &str) -> bool {
    matches!(
        name,
        "v_mad_f16"
            | "v_mad_u16"
            | "v_mad_i16"
            | "v_fma_f16"
            | "v_div_fixup_f16"
            | "v_mac_f16"
            | "v_madak_f16"
            | "v_madmk_f16"
            | "v_cvt_sr_f16_f32"
            | "v_cvt_sr_bf16_f32"
    )
}
