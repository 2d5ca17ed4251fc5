//! Memory as a kernel being written reaches it: scalar loads, raw buffers, addresses, LDS.

use super::{Buffer, Builder};
use crate::mir::{Gen, Lds, MInst, Opnd, Part, Space, Type};
use barewave_isa::{Inst, ModName, Mods, Op, Quirk, Reg, Target, op};

/// Constant offsets of scalar loads are less, on every target.
const SCALAR_OFFSETS: u32 = 1 << 20;

/// What the offset field of LDS instructions holds.
const LDS_FIELD: u32 = 0xffff;

/// What drops caches, of which a target has those that its loads go through, and whether it is told for whom.
const DROPS: [(Op, bool); 5] = [
    (op::BUFFER_WBINVL1_VOL, false),
    (op::BUFFER_INV, true),
    (op::BUFFER_GL1_INV, false),
    (op::BUFFER_GL0_INV, false),
    (op::GLOBAL_INV, true),
];

/// The instructions that drop what caches hold that the device does not share.
pub(crate) fn drops(target: Target) -> Vec<Inst> {
    let of = |(op, scoped): (Op, bool)| {
        let mut inst = Inst::new(op, &[], &[]);
        if scoped && target.info().device_load != 0 {
            inst.mods.set(ModName::Cpol, target.info().device_load as i32);
        }
        inst
    };
    DROPS.into_iter().filter(|(op, _)| target.has(*op)).map(of).collect()
}

impl Builder {
    /// Loads `dst.len` (1, 2, 4, 8 or 16) dwords from a scalar address and a constant byte offset.
    pub fn scalar_load_into(&mut self, dst: Part, base: Part, offset: u32) {
        let op = match dst.len {
            1 => op::S_LOAD_DWORD,
            2 => op::S_LOAD_DWORDX2,
            4 => op::S_LOAD_DWORDX4,
            8 => op::S_LOAD_DWORDX8,
            16 => op::S_LOAD_DWORDX16,
            n => panic!("no scalar load of {n} dwords"),
        };
        self.emit(op, &[dst.into()], &[base.into(), offset.into()]);
    }
    /// Loads `dst.len` (1, 2, 4, 8 or 16) dwords of a buffer into scalars, at the byte offset `offset + imm` (`s_buffer_load`); what lies behind the
    /// buffer's end is read as zero.
    pub fn scalar_buffer_load_into(&mut self, dst: Part, buf: Buffer, offset: Part, imm: u32) {
        let op = match dst.len {
            1 => op::S_BUFFER_LOAD_DWORD,
            2 => op::S_BUFFER_LOAD_DWORDX2,
            4 => op::S_BUFFER_LOAD_DWORDX4,
            8 => op::S_BUFFER_LOAD_DWORDX8,
            16 => op::S_BUFFER_LOAD_DWORDX16,
            n => panic!("no scalar load of {n} dwords"),
        };
        let within = imm < SCALAR_OFFSETS && !self.target().info().has(Quirk::UnsignedSmemOffset);
        let (offset, imm) = if within || imm == 0 { (offset, imm) } else { (self.add(offset, imm), 0) };
        let mut mods = Mods::new();
        if imm > 0 {
            mods.set(ModName::Offset, imm as i32);
        }
        let srcs = [buf.desc.into(), offset.into()];
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op, &[dst.into()], &srcs) });
    }

    /// Loads 1 to 4 dwords per lane at byte offset `voff + soff + imm`.
    pub fn load(&mut self, buf: Buffer, dwords: u8, voff: impl Into<Opnd>, soff: impl Into<Opnd>, imm: u32) -> Part {
        let dst = self.v(dwords);
        self.load_into(dst, buf, voff, soff, imm);
        dst
    }
    /// [`Builder::load`] into an existing value.
    pub fn load_into(&mut self, dst: Part, buf: Buffer, voff: impl Into<Opnd>, soff: impl Into<Opnd>, imm: u32) {
        let op = [op::BUFFER_LOAD_DWORD, op::BUFFER_LOAD_DWORDX2, op::BUFFER_LOAD_DWORDX3, op::BUFFER_LOAD_DWORDX4]
            [dst.len as usize - 1];
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), imm);
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op, &[dst.into()], &srcs) });
        self.last_policy(self.policies[0]);
    }
    /// Loads 16 bytes per lane at byte offset `voff + soff` straight to LDS: those of lane `i` go to `base + ahead + 16 i` (scalar). The target must
    /// have such loads ([`Builder::fills_lds`]).
    pub fn load_to_lds(&mut self, buf: Buffer, voff: Part, soff: Part, (base, ahead): (Part, u32)) {
        let m0 = [Opnd::P(Reg::M0.into())];
        match ahead {
            0 => self.emit(op::S_MOV_B32, &m0, &[base.into()]),
            _ => self.emit(op::S_ADD_U32, &m0, &[base.into(), ahead.into()]),
        }
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), 0);
        let space = Space { lds: self.lds_part, ..buf.space() };
        let mods = mods.with(ModName::Lds, 1);
        self.push(MInst { mods, space, ..MInst::new(op::BUFFER_LOAD_DWORDX4, &[], &srcs) });
        self.last_policy(self.policies[0]);
    }
    /// Loads of 16 bytes a lane can go from memory straight to LDS: M0 says where to.
    pub fn fills_lds(target: Target) -> bool {
        target.op(op::BUFFER_LOAD_DWORDX4).is_some_and(|i| i.reads.contains(&Reg::M0))
    }
    /// Stores 1 to 4 dwords per lane at byte offset `voff + soff + imm`.
    pub fn store(&mut self, buf: Buffer, data: Part, voff: impl Into<Opnd>, soff: impl Into<Opnd>, imm: u32) {
        let op = [op::BUFFER_STORE_DWORD, op::BUFFER_STORE_DWORDX2, op::BUFFER_STORE_DWORDX3, op::BUFFER_STORE_DWORDX4]
            [data.len as usize - 1];
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), imm);
        let srcs = [data.into(), srcs[0], srcs[1], srcs[2]];
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op, &[], &srcs) });
        self.last_policy(self.policies[1]);
    }
    /// A memory instruction of another width (`buffer_load_ubyte`, `buffer_store_short`, ...): loads return a value.
    pub fn load_op(&mut self, op: Op, buf: Buffer, voff: impl Into<Opnd>, soff: impl Into<Opnd>, imm: u32) -> Part {
        let dst = self.result_of(op);
        self.load_op_into(op, dst, buf, voff, soff, imm);
        dst
    }
    /// [`Builder::load_op`] into an existing value.
    pub fn load_op_into(
        &mut self,
        op: Op,
        dst: Part,
        buf: Buffer,
        voff: impl Into<Opnd>,
        soff: impl Into<Opnd>,
        imm: u32,
    ) {
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), imm);
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op, &[dst.into()], &srcs) });
        self.last_policy(self.policies[0]);
    }
    /// A load of global memory (not by a descriptor) into a register: at `base`, a pair that lies in the buffer, plus `voff` and `imm`,
    /// in bytes.
    pub fn load_from_into(&mut self, op: Op, dst: Part, buf: Buffer, voff: Part, base: Part, imm: u32) {
        let mut mods = Mods::new();
        if imm > 0 {
            mods.set(ModName::Offset, imm as i32);
        }
        let srcs = [voff.into(), base.into()];
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op, &[dst.into()], &srcs) });
        self.last_policy(self.policies[0]);
    }
    /// Store counterpart of [`Builder::load_op`].
    pub fn store_op(
        &mut self,
        op: Op,
        buf: Buffer,
        data: Part,
        voff: impl Into<Opnd>,
        soff: impl Into<Opnd>,
        imm: u32,
    ) {
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), imm);
        let srcs = [data.into(), srcs[0], srcs[1], srcs[2]];
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op, &[], &srcs) });
        self.last_policy(self.policies[1]);
    }
    /// [`Builder::load`] past the caches that the device does not share: sees what [`Builder::device_store`] wrote.
    pub fn device_load(&mut self, buf: Buffer, dwords: u8, voff: Part, soff: Part, imm: u32) -> Part {
        let dst = self.load(buf, dwords, voff, soff, imm);
        self.last_policy(self.target().info().device_load);
        dst
    }
    /// [`Builder::store`] through to where the whole device sees it, as soon as it is done.
    pub fn device_store(&mut self, buf: Buffer, data: Part, voff: Part, soff: Part, imm: u32) {
        self.store(buf, data, voff, soff, imm);
        self.last_policy(self.target().info().device_store);
    }
    /// Says whether the stores that follow go where the whole device sees them, as [`Builder::device_store`] does.
    pub fn stores_for_device(&mut self, on: bool) {
        self.policies[1] = if on { self.target().info().device_store } else { 0 };
    }
    /// Says whether the loads that follow see what the whole device has stored, as [`Builder::device_load`] does.
    pub fn loads_from_device(&mut self, on: bool) {
        self.policies[0] = if on { self.target().info().device_load } else { 0 };
    }
    /// Adds 1 to the dword at byte offset `offset` (a vector, u32) behind a scalar address, or sets it to 0 where it is `last` or
    /// more, seen by the whole device, and gives what it was: an atomic of each lane.
    pub fn device_increment(&mut self, base: Part, offset: Part, last: impl Into<Opnd>) -> Part {
        self.device_change(op::FLAT_ATOMIC_INC, base, offset, last)
    }
    /// Sets bits of the same dword, and gives what it was.
    pub fn device_or(&mut self, base: Part, offset: Part, bits: impl Into<Opnd>) -> Part {
        self.device_change(op::FLAT_ATOMIC_OR, base, offset, bits)
    }
    fn device_change(&mut self, how: Op, base: Part, offset: Part, by: impl Into<Opnd>) -> Part {
        let wide = self.v(2);
        self.copy_into(wide.dword(0), offset);
        self.copy_into(wide.dword(1), 0u32);
        let at = self.generic(Gen::Add.of(Type::U64), &[base.into(), wide.into()]);
        let by = self.to_vector(by);
        let takes = self.target().op(how).map_or(2, |i| i.srcs.len());
        // Some targets add a scalar address where there is one.
        let srcs = [at.into(), by.into(), Opnd::Off];
        let before = self.op(how, &srcs[..takes.min(3)]);
        self.last_policy(self.target().info().device_atomic);
        before
    }
    /// Adds 1 to the dword at a byte of a buffer, a scalar, for the whole device: once, as `lane` is each lane's number in its wave, and only the first one's place
    /// lies in the buffer, which is smaller than 64 MiB.
    pub fn device_count(&mut self, buf: Buffer, lane: Part, start: Part) {
        let at = self.shl(lane, 26u32);
        let most = self.to_vector(u32::MAX);
        let (srcs, mods) = self.address(buf, at.into(), start.into(), 0);
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op::BUFFER_ATOMIC_INC, &[most.into()], &srcs) });
        self.last_policy(self.target().info().device_atomic);
    }
    /// Makes the dword at byte offset `voff + soff + imm` of a buffer, signed, `x` where it is less, seen by the whole device.
    pub fn device_max(&mut self, buf: Buffer, x: Part, voff: impl Into<Opnd>, soff: impl Into<Opnd>, imm: u32) {
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), imm);
        let x = self.to_vector(x);
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op::BUFFER_ATOMIC_SMAX, &[x.into()], &srcs) });
        self.last_policy(self.target().info().device_atomic);
    }
    /// [`Builder::device_store`] of a pair of dwords, aligned so, by an atomic: several may do so at one place.
    pub fn device_exchange(&mut self, buf: Buffer, pair: Part, voff: Part, soff: Part) {
        let (srcs, mods) = self.address(buf, voff.into(), soff.into(), 0);
        self.push(MInst { mods, space: buf.space(), ..MInst::new(op::BUFFER_ATOMIC_SWAP_X2, &[pair.into()], &srcs) });
        self.last_policy(self.target().info().device_atomic);
    }
    /// Waits until all stores of the wave are done.
    pub fn finish_stores(&mut self) {
        let target = self.target();
        let counters = target.op(op::BUFFER_STORE_DWORD).map_or(&[][..], |i| i.counters);
        let waits: Vec<_> = counters.iter().map(|c| (*c, 0)).collect();
        target.encode_waits(&waits).into_iter().for_each(|i| self.push(i.into()));
    }
    /// Drops what caches that the device does not share hold: loads that follow see what others had stored for the device before.
    /// Source: LLVM's "User Guide for AMDGPU Backend", memory model tables, load atomic acquire of agent scope.
    pub fn acquire(&mut self) {
        let target = self.target();
        drops(target).into_iter().for_each(|i| self.push(i.into()));
        // Where they are counted, loads might overtake them.
        let counters = target.op(op::BUFFER_LOAD_DWORD).map_or(&[][..], |i| i.counters);
        let waits: Vec<_> = counters.iter().map(|c| (*c, 0)).collect();
        target.encode_waits(&waits).into_iter().for_each(|i| self.push(i.into()));
    }
    /// Sets the cache policy of the instruction written last.
    fn last_policy(&mut self, policy: u32) {
        if let Some(inst) = self.current().insts.last_mut().filter(|_| policy != 0) {
            inst.mods.set(ModName::Cpol, policy as i32);
        }
    }
    /// Buffer operands (`vaddr`, `srsrc`, `soffset`) and modifiers of an access; constants beyond the offset field's
    /// 4095 go to `soffset`.
    fn address(&mut self, buf: Buffer, voff: Opnd, soff: Opnd, imm: u32) -> ([Opnd; 3], Mods) {
        let (mut voff, mut soff, mut imm) = (voff, soff, imm);
        if (imm as i32) < 0 {
            // A constant that goes back: sizes are checked against the parts of an address, which have to be in range each.
            let all = match voff {
                Opnd::Off => self.to_vector(imm),
                v => self.add(v, imm),
            };
            voff = match soff {
                Opnd::Imm(0) => all.into(),
                s => self.add(all, s).into(),
            };
            (soff, imm) = (Opnd::Imm(0), 0);
        }
        if imm > 4095 {
            let high = imm & !4095;
            imm &= 4095;
            soff = match soff {
                Opnd::Imm(0) => self.scalar(high).into(),
                s => self.add(s, high).into(),
            };
        } else if matches!(soff, Opnd::Imm(x) if x > 64) {
            let x = soff;
            soff = self.s(1).into();
            self.emit(Gen::Copy.of(Type::B32), &[soff], &[x]);
        }
        let mut mods = Mods::new();
        if voff != Opnd::Off {
            mods.set(ModName::Offen, 1);
        }
        if imm > 0 {
            mods.set(ModName::Offset, imm as i32);
        }
        ([voff, buf.desc.into(), soff], mods)
    }

    /// Says which part of LDS the accesses that follow touch; [`Lds::Any`] takes it back.
    pub fn in_lds(&mut self, part: Lds) {
        self.lds_part = part;
    }
    fn lds_space(&self) -> Space {
        Space { lds: self.lds_part, ..Space::default() }
    }
    /// Reserves LDS and returns its byte offset (16-byte aligned).
    pub fn lds(&mut self, bytes: u32) -> u32 {
        let at = self.f.lds_bytes.next_multiple_of(16);
        self.f.lds_bytes = at + bytes;
        at
    }
    /// Makes sure of so many bytes from LDS's beginning, which what is over may use again.
    pub fn lds_of_at_least(&mut self, bytes: u32) {
        self.f.lds_bytes = self.f.lds_bytes.max(bytes);
    }
    /// Reads 1, 2 or 4 dwords from LDS at `addr + offset` (aligned to the width).
    pub fn lds_read(&mut self, dwords: u8, addr: Part, offset: u32) -> Part {
        let dst = self.v(dwords);
        self.lds_read_into(dst, addr, offset);
        dst
    }
    /// [`Builder::lds_read`] into an existing value.
    pub fn lds_read_into(&mut self, dst: Part, addr: Part, offset: u32) {
        let op = match dst.len {
            1 => op::DS_READ_B32,
            2 => op::DS_READ_B64,
            4 => op::DS_READ_B128,
            n => panic!("no LDS read of {n} dwords"),
        };
        let (addr, mods) = self.lds_place(addr, offset);
        let space = self.lds_space();
        self.push(MInst { mods, space, ..MInst::new(op, &[dst.into()], &[addr.into()]) });
    }
    /// Reads 16 bits from LDS at `addr + offset`, with zeros above.
    pub fn lds_read_half(&mut self, addr: Part, offset: u32) -> Part {
        self.lds_read_narrow(op::DS_READ_U16, addr, offset)
    }
    /// Reads 8 bits from LDS at `addr + offset`, with zeros above.
    pub fn lds_read_byte(&mut self, addr: Part, offset: u32) -> Part {
        self.lds_read_narrow(op::DS_READ_U8, addr, offset)
    }
    fn lds_read_narrow(&mut self, op: Op, addr: Part, offset: u32) -> Part {
        let dst = self.v(1);
        let (addr, mods) = self.lds_place(addr, offset);
        let space = self.lds_space();
        self.push(MInst { mods, space, ..MInst::new(op, &[dst.into()], &[addr.into()]) });
        dst
    }
    /// Reads 8 bytes per lane from LDS at `addr + offset` and transposes them among lanes: with an instruction for elements of so many bytes, if the
    /// target has one ([`Builder::reads_transposed`]).
    pub fn lds_read_transposed_into(&mut self, bytes: u32, dst: Part, addr: Part, offset: u32) {
        let op = Self::reads_transposed(self.target(), bytes)
            .unwrap_or_else(|| panic!("no transposing reads of {bytes} bytes"));
        let (addr, mods) = self.lds_place(addr, offset);
        let space = self.lds_space();
        self.push(MInst { mods, space, ..MInst::new(op, &[dst.into()], &[addr.into()]) });
    }
    /// The instruction that transposes elements of so many bytes on their way from LDS: of 16 lanes each has some of a line, and gets one
    /// column of the lines of all.
    pub fn reads_transposed(target: Target, bytes: u32) -> Option<Op> {
        let op = match bytes {
            1 => op::DS_READ_B64_TR_B8,
            2 => op::DS_READ_B64_TR_B16,
            _ => return None,
        };
        target.op(op).map(|_| op)
    }
    /// Writes 1, 2 or 4 dwords to LDS at `addr + offset` (aligned to the width).
    pub fn lds_write(&mut self, addr: Part, data: Part, offset: u32) {
        let op = match data.len {
            1 => op::DS_WRITE_B32,
            2 => op::DS_WRITE_B64,
            4 => op::DS_WRITE_B128,
            n => panic!("no LDS write of {n} dwords"),
        };
        let (addr, mods) = self.lds_place(addr, offset);
        let space = self.lds_space();
        self.push(MInst { mods, space, ..MInst::new(op, &[], &[addr.into(), data.into()]) });
    }
    /// Writes the low or the high half of a dword to LDS at `addr + offset`.
    pub fn lds_write_half(&mut self, addr: Part, data: Part, high: bool, offset: u32) {
        let op = if high { op::DS_WRITE_B16_D16_HI } else { op::DS_WRITE_B16 };
        let (addr, mods) = self.lds_place(addr, offset);
        let space = self.lds_space();
        self.push(MInst { mods, space, ..MInst::new(op, &[], &[addr.into(), data.into()]) });
    }
    /// Writes the low byte of a dword to LDS at `addr + offset`.
    pub fn lds_write_byte(&mut self, addr: Part, data: Part, offset: u32) {
        let (addr, mods) = self.lds_place(addr, offset);
        let space = self.lds_space();
        self.push(MInst { mods, space, ..MInst::new(op::DS_WRITE_B8, &[], &[addr.into(), data.into()]) });
    }
    /// Address and field of what lies `offset` behind an address: more than the field holds (LDS of gfx950 has 160 KiB) is added.
    fn lds_place(&mut self, addr: Part, offset: u32) -> (Part, Mods) {
        let (ahead, field) = (offset & !LDS_FIELD, offset & LDS_FIELD);
        let addr = if ahead > 0 { self.add(addr, ahead) } else { addr };
        (addr, if field > 0 { Mods::new().with(ModName::Offset, field as i32) } else { Mods::new() })
    }
}
