//! Branches, calls, barriers, waits, messages, hardware registers.
//!
//! Source: "Vega", "RDNA2", "RDNA3" and "RDNA4" manuals, chapter "Program Flow Control" and the SOPP, SOPK and SOP1
//! pseudocode; numbers and fields of hardware registers from S_GETREG_B32 and the MODE and STATUS tables of chapter
//! "Kernel State". Clocks and SHADER_CYCLES count instructions of the wave or, where
//! the launch asks for it, real time at 100 MHz; messages have no effect.

use crate::fault::FaultKind;
use crate::wave::{Ctl, Run, SCC, UOp, VCC, Wave};

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
    Ctl::Jump
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
        20 if q.hwreg_gfx10 => w.flat_scratch as u32,
        21 if q.hwreg_gfx10 => (w.flat_scratch >> 32) as u32,
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
        20 if w.quirks.hwreg_gfx10 => w.flat_scratch = w.flat_scratch & !(mask as u64) | (value & mask) as u64,
        21 if w.quirks.hwreg_gfx10 => {
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

/// Handler by name.
#[rustfmt::skip]
pub fn find(name: &str) -> Option<Run> {
    Some(match name {
        "s_nop" | "s_waitcnt" | "s_waitcnt_vscnt" | "s_waitcnt_vmcnt" | "s_waitcnt_lgkmcnt" | "s_waitcnt_expcnt" | "s_waitcnt_depctr"
        | "s_wait_loadcnt" | "s_wait_storecnt" | "s_wait_samplecnt" | "s_wait_bvhcnt" | "s_wait_dscnt" | "s_wait_kmcnt" | "s_wait_expcnt"
        | "s_wait_loadcnt_dscnt" | "s_wait_storecnt_dscnt" | "s_wait_alu" | "s_wait_idle" | "s_wait_event" | "s_wait_xcnt" | "s_wait_asynccnt"
        | "s_wait_tensorcnt" | "s_delay_alu" | "s_clause" | "s_inst_prefetch" | "s_set_inst_prefetch_distance" | "s_setprio"
        | "s_setprio_inc_wg" | "s_incperflevel" | "s_decperflevel" | "s_ttracedata" | "s_ttracedata_imm" | "s_icache_inv"
        | "s_dcache_inv" | "s_dcache_inv_vol" | "s_dcache_wb" | "s_dcache_wb_vol" | "s_gl1_inv" | "s_version" | "s_prefetch_inst"
        | "s_prefetch_inst_pc_rel" | "s_prefetch_data" | "s_prefetch_data_pc_rel" | "s_buffer_prefetch_data" | "s_setkill" | "s_sethalt"
        | "s_wakeup" | "v_nop" | "v_pipeflush" | "ds_nop" | "buffer_wbinvl1" | "buffer_wbinvl1_vol" | "buffer_gl0_inv" | "buffer_gl1_inv" | "buffer_inv"
        | "buffer_wbl2" | "buffer_invl2" | "global_inv" | "global_wb" | "global_wbinv" | "v_clrexcp" | "s_icache_inv_wg" | "s_atc_probe" | "s_atc_probe_buffer" | "s_dcache_discard" | "s_dcache_discard_x2"
        | "v_mfma_ld_scale_b32" => h!(|w, op| Ctl::Next),
        "s_sleep" | "s_sleep_var" | "s_monitor_sleep" => h!(|w, op| Ctl::Yield),
        "s_endpgm" | "s_endpgm_saved" | "s_endpgm_ordered_ps_done" => h!(|w, op| Ctl::End),
        "s_code_end" => h!(|w, op| w.fail(FaultKind::BadJump(0), None)),
        "s_branch" => h!(|w, op| branch(w, op, true)),
        "s_cbranch_scc0" => h!(|w, op| { let t = w.s[SCC] == 0; branch(w, op, t) }),
        "s_cbranch_scc1" => h!(|w, op| { let t = w.s[SCC] != 0; branch(w, op, t) }),
        "s_cbranch_vccz" => h!(|w, op| { let t = w.bits(VCC) == 0; branch(w, op, t) }),
        "s_cbranch_vccnz" => h!(|w, op| { let t = w.bits(VCC) != 0; branch(w, op, t) }),
        "s_cbranch_execz" => h!(|w, op| { let t = w.exec() == 0; branch(w, op, t) }),
        "s_cbranch_execnz" => h!(|w, op| { let t = w.exec() != 0; branch(w, op, t) }),
        "s_cbranch_cdbgsys" | "s_cbranch_cdbguser" | "s_cbranch_cdbgsys_or_user" | "s_cbranch_cdbgsys_and_user" => h!(|w, op| Ctl::Next),
        "s_getpc_b64" => h!(|w, op| { let a = next_address(w, op); w.set_pair(op.dst as usize, a); Ctl::Next }),
        "s_setpc_b64" => h!(|w, op| { let a = w.r64(&op.src[0]); go(w, a) }),
        "s_swappc_b64" => h!(|w, op| {
            let (to, back) = (w.r64(&op.src[0]), next_address(w, op));
            w.set_pair(op.dst as usize, back);
            go(w, to)
        }),
        "s_call_b64" => h!(|w, op| { let back = next_address(w, op); w.set_pair(op.dst as usize, back); branch(w, op, true) }),
        "s_add_pc_i64" => h!(|w, op| { let to = next_address(w, op).wrapping_add(w.r64(&op.src[0])); go(w, to) }),
        "s_sendmsg" => h!(|w, op| Ctl::Next),
        "s_sendmsg_rtn_b32" => h!(|w, op| { w.s[op.dst as usize] = now(w) as u32; Ctl::Next }),
        "s_sendmsg_rtn_b64" => h!(|w, op| { let t = now(w); w.set_pair(op.dst as usize, t); Ctl::Next }),
        "s_sendmsghalt" => h!(|w, op| w.fail(FaultKind::Unsupported("s_sendmsghalt halts the wave".into()), None)),
        // The allocation is fixed here: asking for more fails, as it may on hardware.
        "s_alloc_vgpr" => h!(|w, op| { w.set_scc(false); Ctl::Next }),
        "v_illegal" => illegal,
        "s_trap" => h!(|w, op| { let n = op.src[0].value as u32; w.fail(FaultKind::Trap(n), None) }),
        "s_memtime" | "s_memrealtime" | "s_get_shader_cycles_u64" => h!(|w, op| { let t = now(w); w.set_pair(op.dst as usize, t); Ctl::Next }),
        "s_get_waveid_in_workgroup" => h!(|w, op| { w.s[op.dst as usize] = w.index; Ctl::Next }),
        "s_getreg_b32" => h!(|w, op| {
            let (id, offset, width) = hwreg_field(op.src[0].value as u32);
            w.s[op.dst as usize] = (hwreg(w, id) & field_mask(offset, width)) >> offset;
            Ctl::Next
        }),
        "s_setreg_b32" | "s_setreg_imm32_b32" => h!(|w, op| {
            let (id, offset, width) = hwreg_field(op.imm as u32);
            let v = w.r32(&op.src[0]);
            set_hwreg(w, id, v << offset, field_mask(offset, width));
            Ctl::Next
        }),
        "s_round_mode" => h!(|w, op| { let m = w.mode & !15 | op.src[0].value as u32 & 15; w.set_mode(m); Ctl::Next }),
        "s_denorm_mode" => h!(|w, op| { let m = w.mode & !0xf0 | (op.src[0].value as u32 & 15) << 4; w.set_mode(m); Ctl::Next }),
        _ => return super::barrier::find(name).or_else(|| super::fork::find(name)),
    })
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
