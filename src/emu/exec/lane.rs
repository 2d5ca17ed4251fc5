//! Vector instructions that cross lanes or have scalar results: readlane, writelane, permlane, mbcnt, swap, movrel.
//!
//! Source: VOP1 and VOP3 pseudocode of the "Vega" (V_READLANE_B32, V_MBCNT_*, V_MQSAD_U32_U8, S_SET_GPR_IDX_*), "RDNA2"
//! (V_PERMLANE16_B32, V_MOVREL*), "RDNA4" (V_PERMLANE16_VAR_B32) and "CDNA4" (V_PERMLANE*_SWAP_B32, V_BITOP3_B32) manuals.

use super::rows::write_row;
use crate::uop::{Kind, Run, Src, UOp};
use crate::wave::{Ctl, Lanes, M0, Wave};
use barewave_isa::action::Cross;

fn value(w: &Wave, s: &Src, lane: usize) -> u32 {
    if s.kind == Kind::Vector { w.lane(s.at, lane) } else { w.r32(s) }
}

unsafe fn readfirstlane(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let lane = if exec == 0 { 0 } else { exec.trailing_zeros() as usize };
    w.s[op.dst as usize] = value(w, &op.src[0], lane);
    Ctl::Next
}
unsafe fn readlane(w: &mut Wave, op: &UOp) -> Ctl {
    let lane = w.r32(&op.src[1]) as usize % w.lanes;
    w.s[op.dst as usize] = value(w, &op.src[0], lane);
    Ctl::Next
}
unsafe fn writelane(w: &mut Wave, op: &UOp) -> Ctl {
    let lane = w.r32(&op.src[1]) as usize % w.lanes;
    let v = w.r32(&op.src[0]);
    w.set_lane(op.dst, lane, v);
    Ctl::Next
}
/// Counts the mask bits below each lane.
unsafe fn mbcnt<const HIGH: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    // Lanes below each lane, of the half that the mask is of.
    let below = |lane: usize| (((1u64 << lane) - 1) >> if HIGH { 32 } else { 0 }) as u32;
    let mut out = [0; 64];
    let sources = [&op.src[0], &op.src[1]];
    let scalar = sources.map(|s| (s.kind != Kind::Vector).then(|| w.r32(s)));
    let read = |i: usize, lane: usize| scalar[i].unwrap_or_else(|| w.lane(sources[i].at, lane));
    for (lane, out) in out[..w.lanes].iter_mut().enumerate() {
        *out = (read(0, lane) & below(lane)).count_ones().wrapping_add(read(1, lane));
    }
    write_row(w, op.dst, exec, &out);
    Ctl::Next
}
unsafe fn swap(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    for lane in 0..w.lanes {
        if exec >> lane & 1 == 1 {
            let (a, b) = (w.lane(op.dst, lane), w.lane(op.dst2, lane));
            w.set_lane(op.dst, lane, b);
            w.set_lane(op.dst2, lane, a);
        }
    }
    Ctl::Next
}
/// v_swap_b16: halves; `op_sel` bit 3 is the upper half of the first register, bit 2 of the second.
unsafe fn swap16(w: &mut Wave, op: &UOp) -> Ctl {
    let flags = op.ext().map_or(0, |e| e.op_sel);
    let shifts = [8, 4].map(|bit| if flags & bit != 0 { 16 } else { 0 });
    for lane in Lanes(w.exec()) {
        let at = [op.dst, op.dst2];
        let half = [0, 1].map(|i| w.lane(at[i], lane) >> shifts[i] & 0xffff);
        for i in 0..2 {
            let old = w.lane(at[i], lane);
            w.set_lane(at[i], lane, old & !(0xffff << shifts[i]) | half[1 - i] << shifts[i]);
        }
    }
    Ctl::Next
}
/// Register row moved by a number of registers, if it stays in the file.
fn moved(w: &Wave, at: u32, by: u32) -> Option<u32> {
    let to = at as usize + by as usize * w.lanes;
    (to + w.lanes <= w.elements()).then_some(to as u32)
}
/// v_movrelsd_2 and v_swaprel: M0 bits 9:0 move the source, 25:16 the destination.
unsafe fn movrel2<const SWAP: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let m0 = w.s[M0];
    let source = if SWAP { op.dst2 } else { op.src[0].at };
    let (Some(from), Some(to)) = (moved(w, source, m0 & 0x3ff), moved(w, op.dst, m0 >> 16 & 0x3ff)) else {
        return out_of_file(w);
    };
    for lane in Lanes(w.exec()) {
        let (a, b) = (w.lane(from, lane), w.lane(to, lane));
        w.set_lane(to, lane, a);
        if SWAP {
            w.set_lane(from, lane, b);
        }
    }
    Ctl::Next
}
/// v_mqsad_u32_u8: four sums of absolute differences of bytes, at four byte offsets of the first operand; bytes of the
/// second that are zero do not count.
unsafe fn mqsad_u32(w: &mut Wave, op: &UOp) -> Ctl {
    let row = w.lanes as u32;
    for lane in Lanes(w.exec()) {
        let word = |s: &Src, i: u32| match s.kind {
            Kind::Vector => w.lane(s.at + i * row, lane),
            _ => (w.r64(s) >> (32 * i)) as u32,
        };
        let (a, b) = (word(&op.src[0], 0) as u64 | (word(&op.src[0], 1) as u64) << 32, word(&op.src[1], 0));
        let sums: [u32; 4] = std::array::from_fn(|i| {
            let start = w.lane(op.src[2].at + i as u32 * row, lane);
            (0..4).fold(start, |s, n| {
                let (x, y) = ((a >> (8 * (i + n))) as u8, (b >> (8 * n)) as u8);
                if y == 0 { s } else { s.saturating_add(x.abs_diff(y) as u32) }
            })
        });
        for (i, v) in sums.into_iter().enumerate() {
            w.set_lane(op.dst + i as u32 * row, lane, v);
        }
    }
    Ctl::Next
}
/// v_permlane16 and v_permlanex16: within a row of 16 (or from the other row of the pair), selects of 4 bits from two
/// scalars (`VAR`: from a vector register). `op_sel` bit 0 fetches inactive lanes, bit 1 gives zero for them.
unsafe fn permlane16<const OTHER: bool, const VAR: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let select = if VAR { 0 } else { w.r32(&op.src[1]) as u64 | (w.r32(&op.src[2]) as u64) << 32 };
    let flags = op.ext().map_or(0, |e| e.op_sel);
    let mut out = [0; 64];
    for lane in 0..w.lanes {
        let i = if VAR { value(w, &op.src[1], lane) as u64 } else { select >> (4 * (lane & 15)) } & 15;
        let from = (lane & !15 ^ if OTHER { 16 } else { 0 }) + i as usize;
        out[lane] = if exec >> from & 1 == 1 || flags & 1 != 0 {
            value(w, &op.src[0], from)
        } else if flags & 2 != 0 {
            0
        } else {
            w.lane(op.dst, lane)
        };
    }
    write_row(w, op.dst, exec, &out);
    Ctl::Next
}
unsafe fn permlane64(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let mut out = [0; 64];
    for lane in 0..w.lanes {
        out[lane] = value(w, &op.src[0], if w.lanes == 64 { lane ^ 32 } else { lane });
    }
    write_row(w, op.dst, exec, &out);
    Ctl::Next
}
/// gfx950: swaps odd rows of the first register with even rows of the second, rows of `N` lanes.
unsafe fn permlane_swap<const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    for lane in 0..w.lanes {
        if lane / N % 2 == 1 && exec >> lane & 1 == 1 && exec >> (lane - N) & 1 == 1 {
            let (a, b) = (w.lane(op.dst, lane), w.lane(op.dst2, lane - N));
            w.set_lane(op.dst, lane, b);
            w.set_lane(op.dst2, lane - N, a);
        }
    }
    Ctl::Next
}
/// v_movrels: the source register number is offset by M0; v_movreld: the destination's.
unsafe fn movrel<const SRC: bool, const DST: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let m0 = w.s[M0];
    let move_by = |at: u32| moved(w, at, m0);
    let mut src = op.src[0];
    let mut dst = op.dst;
    if SRC && src.kind == Kind::Vector {
        match move_by(src.at) {
            Some(at) => src.at = at,
            None => return out_of_file(w),
        }
    }
    if DST {
        match move_by(dst) {
            Some(at) => dst = at,
            None => return out_of_file(w),
        }
    }
    let exec = w.exec();
    for lane in 0..w.lanes {
        if exec >> lane & 1 == 1 {
            let v = value(w, &src, lane);
            w.set_lane(dst, lane, v);
        }
    }
    Ctl::Next
}
/// v_bitop3: a bitwise function of three operands given by its truth table (index: bits of source 0, 1, 2).
unsafe fn bitop3<const MASK: u32>(w: &mut Wave, op: &UOp) -> Ctl {
    let table = op.imm as u32;
    let exec = w.exec();
    for lane in 0..w.lanes {
        if exec >> lane & 1 == 0 {
            continue;
        }
        let x = [0, 1, 2].map(|i| value(w, &op.src[i], lane));
        let mut out = 0;
        for i in 0..8u32 {
            if table >> i & 1 == 1 {
                out |= (0..3)
                    .fold(u32::MAX, |m, k| m & if i >> (2 - k) & 1 == 1 { x[k as usize] } else { !x[k as usize] });
            }
        }
        let old = w.lane(op.dst, lane);
        w.set_lane(op.dst, lane, old & !MASK | out & MASK);
    }
    Ctl::Next
}
fn out_of_file(w: &mut Wave) -> Ctl {
    let m0 = w.s[M0];
    w.fail(crate::fault::FaultKind::Unsupported(format!("m0 = {m0} moves a register out of the file")), None)
}

/// A vector instruction between s_set_gpr_idx_on and _off (gfx8, gfx9): M0-like index is added to the enabled operands.
///
/// # Safety
/// As every handler.
pub unsafe fn indexed(w: &mut Wave, op: &UOp) -> Ctl {
    let (enable, index) = w.gpr_idx;
    let mut moved = op.clone();
    let limit = w.elements();
    let shift = index as usize * w.lanes;
    let mut bad = false;
    let mut add = |at: &mut u32| {
        let to = *at as usize + shift;
        bad |= to + 2 * w.lanes > limit;
        *at = to.min(limit - 2 * w.lanes) as u32;
    };
    for i in 0..3 {
        if enable >> i & 1 == 1 && moved.src[i].kind == Kind::Vector {
            add(&mut moved.src[i].at);
        }
    }
    if enable >> 3 & 1 == 1 {
        add(&mut moved.dst);
    }
    if bad {
        return out_of_file(w);
    }
    match op.inner {
        // SAFETY: operands were checked above.
        Some(run) => unsafe { run(w, &moved) },
        None => Ctl::Next,
    }
}

unsafe fn set_gpr_idx_on(w: &mut Wave, op: &UOp) -> Ctl {
    let index = w.r32(&op.src[0]) & 0xff;
    w.gpr_idx = (op.src[1].value as u32 & 15, index);
    w.s[M0] = w.s[M0] & !0xf0ff | index | w.gpr_idx.0 << 12;
    Ctl::Next
}
unsafe fn set_gpr_idx_off(w: &mut Wave, _op: &UOp) -> Ctl {
    w.gpr_idx = (0, 0);
    Ctl::Next
}
unsafe fn set_gpr_idx_idx(w: &mut Wave, op: &UOp) -> Ctl {
    w.gpr_idx.1 = w.r32(&op.src[0]) & 0xff;
    w.s[M0] = w.s[M0] & !0xff | w.gpr_idx.1;
    Ctl::Next
}
unsafe fn set_gpr_idx_mode(w: &mut Wave, op: &UOp) -> Ctl {
    w.gpr_idx.0 = op.src[0].value as u32 & 15;
    Ctl::Next
}

/// Handlers.
pub fn run(f: Cross) -> Run {
    match f {
        Cross::ReadfirstlaneB32 => readfirstlane,
        Cross::ReadlaneB32 => readlane,
        Cross::WritelaneB32 => writelane,
        Cross::MbcntLoU32B32 => mbcnt::<false>,
        Cross::MbcntHiU32B32 => mbcnt::<true>,
        Cross::SwapB32 => swap,
        Cross::SwapB16 => swap16,
        Cross::SwaprelB32 => movrel2::<true>,
        Cross::Movrelsd2B32 => movrel2::<false>,
        Cross::MqsadU32U8 => mqsad_u32,
        Cross::Permlane16B32 => permlane16::<false, false>,
        Cross::Permlanex16B32 => permlane16::<true, false>,
        Cross::Permlane16VarB32 => permlane16::<false, true>,
        Cross::Permlanex16VarB32 => permlane16::<true, true>,
        Cross::Permlane64B32 => permlane64,
        Cross::Permlane16SwapB32 => permlane_swap::<16>,
        Cross::Permlane32SwapB32 => permlane_swap::<32>,
        Cross::Bitop3B32 => bitop3::<{ u32::MAX }>,
        Cross::Bitop3B16 => bitop3::<0xffff>,
        Cross::MovrelsB32 => movrel::<true, false>,
        Cross::MovreldB32 => movrel::<false, true>,
        Cross::MovrelsdB32 => movrel::<true, true>,
        Cross::SetGprIdxOn => set_gpr_idx_on,
        Cross::SetGprIdxOff => set_gpr_idx_off,
        Cross::SetGprIdxIdx => set_gpr_idx_idx,
        Cross::SetGprIdxMode => set_gpr_idx_mode,
    }
}
