//! What is done to neighbouring dwords of tuples becomes a pair before registers are known.
//!
//! Sums of a tuple are set to zero one behind the other, and tuples are added dword by dword. Wherever a tuple will be, neighbouring
//! dwords lie in different banks; so two such instructions, one right behind the other, can be issued together whatever the allocator
//! does, and the passes up to there have half as many to look at:
//!
//! ```text
//! %5[0] = v_add_f32 %5[0], %7[0]
//! %5[1] = v_add_f32 %5[1], %7[1]    ->    %5[0], %5[1] = v_add_f32 :: v_add_f32 %5[0], %7[0], %5[1], %7[1]
//! ```
//!
//! Copies of registers are left alone, which the allocator makes nothing of where it can, and so is what constraints count. All other
//! pairs are found when registers are known ([`pair`](super::pair)).

use super::pair::{has_pairs, pair_of};
use crate::mir::{Function, Group, MInst, Opnd, RegClass, VRegInfo};
use barewave_isa::op;

/// Joins neighbours into pairs.
pub fn pair_neighbours(f: &mut Function) {
    if !has_pairs(f.target) {
        return;
    }
    let (target, vregs) = (f.target, &f.vregs);
    for block in &mut f.blocks {
        block.insts.dedup_by(|second, first| {
            let Some(op) = pair_of(target, first, second).filter(|_| lie_apart(vregs, first, second)) else {
                return false;
            };
            first.code = op.into();
            if first.note.of.is_none() {
                first.note = second.note;
            }
            first.dsts.extend_from_slice(&second.dsts);
            first.srcs.extend_from_slice(&second.srcs);
            true
        });
    }
}

/// The registers of two instructions, of which the second needs nothing of the first, lie in different banks wherever they will be.
fn lie_apart(vregs: &[VRegInfo], a: &MInst, b: &MInst) -> bool {
    let alike = (a.stage, a.group, a.space) == (b.stage, Group::default(), b.space) && a.group == b.group;
    let ([x], [y]) = (&a.dsts[..], &b.dsts[..]) else { return false };
    if !alike || !are_neighbours(vregs, x, y) || b.srcs.contains(x) || a.srcs.len() != b.srcs.len() {
        return false;
    }
    match (a.op(), &a.srcs[..], &b.srcs[..]) {
        (Some(op::V_MOV_B32), [x], [y]) => matches!(x, Opnd::Imm(_)) && x == y,
        (_, [x], [y]) => are_neighbours(vregs, x, y) || is_same_scalar(vregs, x, y),
        (_, [x, x1], [y, y1]) => {
            are_neighbours(vregs, x1, y1) && (are_neighbours(vregs, x, y) || is_same_scalar(vregs, x, y))
        }
        _ => false,
    }
}

/// An even and an odd dword of one tuple of vector registers.
fn are_neighbours(vregs: &[VRegInfo], x: &Opnd, y: &Opnd) -> bool {
    let (Opnd::V(x), Opnd::V(y)) = (x, y) else { return false };
    let parities = x.reg == y.reg && (x.first ^ y.first) & 1 == 1;
    parities && (x.len, y.len) == (1, 1) && vregs[x.reg.0 as usize].class == RegClass::V
}

/// Both are one constant, or one scalar register: that is in no bank.
fn is_same_scalar(vregs: &[VRegInfo], x: &Opnd, y: &Opnd) -> bool {
    let scalar = match x {
        Opnd::Imm(_) => true,
        Opnd::V(p) => vregs[p.reg.0 as usize].class == RegClass::S,
        _ => false,
    };
    scalar && x == y
}
