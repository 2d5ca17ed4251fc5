//! Branches, calls, barriers, waits, messages, hardware registers.
//!
//! Source: "Vega", "RDNA2", "RDNA3" and "RDNA4" manuals, chapter "Program Flow Control" and the SOPP, SOPK and SOP1
//! pseudocode; numbers and fields of hardware registers from S_GETREG_B32 and the MODE and STATUS tables of chapter
//! "Kernel State". Clocks and SHADER_CYCLES count instructions of the wave or, where
//! the launch asks for it, real time at 100 MHz; messages have no effect.

use crate::fault::FaultKind;
use crate::uop::{Run, UOp, WAITS};
use crate::wave::{Ctl, SCC, VCC, Wave};
use barewave_isa::action::Flow;

/// Micro-operation index that stands for "not in this program".
pub const NOWHERE: i64 = -1;

/// Goes to the operation's target when `taken`.
#[inline(always)]
pub fn branch(w: &mut Wave, op: &UOp, taken: bool) -> Ctl {
    if !taken {
        return Ctl::Next;
    }
    if op.imm < 0 {
        let target = op.src[1].value;
        return w.fail(FaultKind::BadJump(target), None);
    }
    w.ip = op.imm as usize;
    if op.access.flags & WAITS == 0 {
        return Ctl::Jump;
    }
    w.in_vain += u64::from(op.dst2);
    Ctl::Spin
}

/// Device address of the instruction after `op`.
pub fn next_address(w: &Wave, op: &UOp) -> u64 {
    // SAFETY: the program outlives the launch.
    unsafe { &*w.program }.base + op.pc as u64 + op.len as u64
}

/// Continues at a device address.
pub fn go(w: &mut Wave, addr: u64) -> Ctl {
    // SAFETY: the program outlives the launch.
    match unsafe { &*w.program }.index_of(addr) {
        Some(ip) => {
            w.ip = ip;
            Ctl::Jump
        }
        None => w.fail(FaultKind::BadJump(addr), None),
    }
}

/// Value of a hardware register: MODE, STATUS, ids.
fn hwreg(w: &Wave, id: u32) -> u32 {
    let q = w.quirks;
    match id {
        1 => w.mode,
        // STATUS: SCC, VCCZ, EXECZ, in a workgroup.
        2 => {
            w.s[SCC] | ((w.exec() == 0) as u32) << 9 | ((w.bits(VCC) == 0) as u32) << 10 | ((w.waves > 1) as u32) << 11
        }
        // HW_ID: wave, SIMD, CU.
        4 | 23 => w.index & 0xf | (w.index & 3) << 4 | (w.cu & 0xf) << 8,
        // LDS_ALLOC: size in units of 64 or 128 dwords.
        6 => (w.lds_size / 512) << 12,
        // MEM_BASES of gfx9: private and shared aperture.
        15 => (crate::wave::PRIVATE_APERTURE >> 16) | crate::wave::SHARED_APERTURE,
        20 if q.flat_scratch_hwregs => w.flat_scratch as u32,
        21 if q.flat_scratch_hwregs => (w.flat_scratch >> 32) as u32,
        // SHADER_CYCLES.
        29 => now(w) as u32,
        _ => 0,
    }
}

/// What SHADER_CYCLES and friends read: the constant clock, or instructions of the wave.
fn now(w: &Wave) -> u64 {
    // SAFETY: the launch outlives its waves.
    unsafe { &*w.launch }.ticks().unwrap_or(w.count)
}

fn set_hwreg(w: &mut Wave, id: u32, value: u32, mask: u32) {
    match id {
        1 => {
            let mode = w.mode & !mask | value & mask;
            w.set_mode(mode);
        }
        20 if w.quirks.flat_scratch_hwregs => w.flat_scratch = w.flat_scratch & !(mask as u64) | (value & mask) as u64,
        21 if w.quirks.flat_scratch_hwregs => {
            w.flat_scratch = w.flat_scratch & !((mask as u64) << 32) | ((value & mask) as u64) << 32;
        }
        _ => {}
    }
}

/// Splits the immediate of s_getreg and s_setreg: register, offset, width.
fn hwreg_field(imm: u32) -> (u32, u32, u32) {
    (imm & 63, imm >> 6 & 31, (imm >> 11 & 31) + 1)
}

fn field_mask(offset: u32, width: u32) -> u32 {
    (((1u64 << width) - 1) << offset) as u32
}

macro_rules! h {
    (|$w:ident, $op:ident| $($body:tt)*) => {{
        #[allow(unused_variables)]
        unsafe fn f($w: &mut Wave, $op: &UOp) -> Ctl {
            $($body)*
        }
        f as Run
    }};
}

/// Handlers.
#[rustfmt::skip]
pub fn run(f: Flow) -> Run {
    match f {
        Flow::Nothing => h!(|w, op| Ctl::Next),
        Flow::Sleep => h!(|w, op| Ctl::Yield),
        Flow::Endpgm => h!(|w, op| Ctl::End),
        Flow::CodeEnd => h!(|w, op| w.fail(FaultKind::BadJump(0), None)),
        Flow::Branch => h!(|w, op| branch(w, op, true)),
        Flow::CbranchScc0 => h!(|w, op| { let t = w.s[SCC] == 0; branch(w, op, t) }),
        Flow::CbranchScc1 => h!(|w, op| { let t = w.s[SCC] != 0; branch(w, op, t) }),
        Flow::CbranchVccz => h!(|w, op| { let t = w.bits(VCC) == 0; branch(w, op, t) }),
        Flow::CbranchVccnz => h!(|w, op| { let t = w.bits(VCC) != 0; branch(w, op, t) }),
        Flow::CbranchExecz => h!(|w, op| { let t = w.exec() == 0; branch(w, op, t) }),
        Flow::CbranchExecnz => h!(|w, op| { let t = w.exec() != 0; branch(w, op, t) }),
        Flow::GetpcB64 => h!(|w, op| { let a = next_address(w, op); w.set_pair(op.dst as usize, a); Ctl::Next }),
        Flow::SetpcB64 => h!(|w, op| { let a = w.r64(&op.src[0]); go(w, a) }),
        Flow::SwappcB64 => h!(|w, op| {
            let (to, back) = (w.r64(&op.src[0]), next_address(w, op));
            w.set_pair(op.dst as usize, back);
            go(w, to)
        }),
        Flow::CallB64 => h!(|w, op| { let back = next_address(w, op); w.set_pair(op.dst as usize, back); branch(w, op, true) }),
        Flow::AddPcI64 => h!(|w, op| { let to = next_address(w, op).wrapping_add(w.r64(&op.src[0])); go(w, to) }),
        Flow::SendmsgRtnB32 => h!(|w, op| { w.s[op.dst as usize] = now(w) as u32; Ctl::Next }),
        Flow::SendmsgRtnB64 => h!(|w, op| { let t = now(w); w.set_pair(op.dst as usize, t); Ctl::Next }),
        Flow::Sendmsghalt => h!(|w, op| w.fail(FaultKind::Unsupported("s_sendmsghalt halts the wave".into()), None)),
        // The allocation is fixed here: asking for more fails, as it may on hardware.
        Flow::AllocVgpr => h!(|w, op| { w.set_scc(false); Ctl::Next }),
        Flow::Illegal => illegal,
        Flow::Trap => h!(|w, op| { let n = op.src[0].value as u32; w.fail(FaultKind::Trap(n), None) }),
        Flow::Memtime => h!(|w, op| { let t = now(w); w.set_pair(op.dst as usize, t); Ctl::Next }),
        Flow::GetWaveidInWorkgroup => h!(|w, op| { w.s[op.dst as usize] = w.index; Ctl::Next }),
        Flow::GetregB32 => h!(|w, op| {
            let (id, offset, width) = hwreg_field(op.src[0].value as u32);
            w.s[op.dst as usize] = (hwreg(w, id) & field_mask(offset, width)) >> offset;
            Ctl::Next
        }),
        Flow::SetregB32 => h!(|w, op| {
            let (id, offset, width) = hwreg_field(op.imm as u32);
            let v = w.r32(&op.src[0]);
            set_hwreg(w, id, v << offset, field_mask(offset, width));
            Ctl::Next
        }),
        Flow::RoundMode => h!(|w, op| { let m = w.mode & !15 | op.src[0].value as u32 & 15; w.set_mode(m); Ctl::Next }),
        Flow::DenormMode => h!(|w, op| { let m = w.mode & !0xf0 | (op.src[0].value as u32 & 15) << 4; w.set_mode(m); Ctl::Next }),
    }
}

/// Placed where the bytes are not an instruction.
///
/// # Safety
/// As every handler.
pub unsafe fn illegal(w: &mut Wave, _op: &UOp) -> Ctl {
    w.fail(FaultKind::IllegalInstruction, None)
}

/// Placed where an instruction has no semantics here.
///
/// # Safety
/// As every handler.
pub unsafe fn unimplemented(w: &mut Wave, op: &UOp) -> Ctl {
    // SAFETY: the program outlives the launch.
    let name = unsafe { &*w.program }.name_at(op.pc);
    w.fail(FaultKind::Unimplemented(name), None)
}
