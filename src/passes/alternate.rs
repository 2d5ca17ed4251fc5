//! Loops whose rounds take two buffers in turn are written twice.
//!
//! An address that is in one buffer now and in the other in the next round is moved by an instruction of the vector ALU: `address = both - address`, or an
//! exclusive-or. Where nothing runs beside what the loop multiplies that takes the time of products. So a register has the place in the other
//! buffer, made once in front of the loop, and two copies of the round have both registers in turn:
//!
//! ```text
//! steady:                        %b = both - %a
//!   read %a                    steady:               steady_turned:
//!   %a = both - %a       ->      read %a               read %b
//!   read %a                      read %b               read %a
//!   (again, or on)               (again, or on)        (again, or on)
//! ```
//!
//! A number of rounds that is odd, or that only the running kernel knows, may end behind the first copy. What is read behind the loop then has to
//! be where it was: such a register is moved as before.

use super::pipeline::put_blocks;
use crate::mir::liveness::{Liveness, for_each_def};
use crate::mir::{Block, BlockId, Function, Loop, MInst, Opnd, VReg};
use barewave_isa::op;

/// Writes a loop of one block twice, if there is an address to alternate.
pub(super) fn alternate(f: &mut Function, i: usize) {
    let l = f.loops[i].clone();
    let at = l.header.0 as usize;
    if l.header != l.latch {
        return;
    }
    let even = rounds(f, &l).is_some_and(|rounds| rounds.is_multiple_of(2));
    let moves = moves(f, at, even);
    if moves.is_empty() {
        return;
    }
    let name = f.blocks[at].name.clone();
    let mut twins = Vec::new();
    for m in &moves {
        let inst = f.blocks[at].insts[m.at].clone();
        let info = f.vreg(m.address);
        let twin = f.new_typed(info.class, info.dwords, info.ty).reg;
        twins.push((*m, twin));
        let to = f.whole(twin).into();
        f.blocks[at - 1].insts.push(MInst { dsts: [to].into_iter().collect(), stage: 0, ..inst });
    }
    let copy = |first: bool| {
        let insts = f.blocks[at].insts.iter().enumerate();
        let kept = insts.filter(|(n, _)| !moves.iter().any(|m| m.at == *n));
        let of = |(n, inst): (usize, &MInst)| {
            let mut inst = inst.clone();
            for o in &mut inst.srcs {
                let Opnd::V(p) = o else { continue };
                let turned = twins.iter().find(|t| t.0.address == p.reg);
                if let Some((_, twin)) = turned.filter(|t| (n > t.0.at) == first) {
                    p.reg = *twin;
                }
            }
            inst
        };
        kept.map(of).collect::<Vec<MInst>>()
    };
    let counter: Opnd = f.whole(l.counter).into();
    let mut first = copy(true);
    first.push(MInst::new(op::S_ADD_U32, &[counter], &[counter, l.step.into()]));
    if !even {
        first.push(MInst::new(op::S_CMP_LT_U32, &[], &[counter, l.limit]));
        first.push(MInst::new(op::S_CBRANCH_SCC0, &[], &[Opnd::Block(BlockId(at as u32 + 1))]));
    }
    let old = &f.blocks[at];
    let second = Block { name: format!("{name}_turned"), insts: copy(false), ..old.clone() };
    let first = Block { insts: first, ..old.clone() };
    put_blocks(f, at, vec![first, second]);
    f.loops[i].latch = BlockId(at as u32 + 1);
}

/// Rounds of a loop that the pipeline goes through, where that is known: the counter begins where code in front of the loop says.
fn rounds(f: &Function, l: &Loop) -> Option<u32> {
    let counter: Opnd = f.whole(l.counter).into();
    let begin = f.blocks[l.header.0 as usize - 1].insts.iter().rfind(|i| i.dsts.contains(&counter))?;
    match (begin.op()?, &begin.srcs[..], l.limit) {
        (op::S_MOV_B32, [Opnd::Imm(begin)], Opnd::Imm(limit)) => {
            Some((limit.saturating_sub(*begin) as u32).div_ceil(l.step.max(1)).max(1))
        }
        _ => None,
    }
}

/// An address that changes to the other buffer, and which instruction of the block moves it.
#[derive(Clone, Copy)]
struct Move {
    at: usize,
    address: VReg,
}

/// Those of a block that its loop goes back to; of those that are read behind it only where it ends behind an even number of rounds.
fn moves(f: &Function, at: usize, even: bool) -> Vec<Move> {
    let insts = &f.blocks[at].insts;
    let mut written = vec![0u32; f.vregs.len()];
    insts.iter().for_each(|i| for_each_def(i, |p| written[p.reg.0 as usize] += 1));
    let live = Liveness::of(f);
    let behind = |v: VReg| {
        let after = live.live_in.get(at + 1);
        after.is_some_and(|s| live.units.of_part(f.whole(v)).any(|u| s.contains(u)))
    };
    let stays = |o: &Opnd| match o {
        Opnd::V(p) => written[p.reg.0 as usize] == 0,
        o => matches!(o, Opnd::Imm(_)),
    };
    let of = |(at, inst): (usize, &MInst)| {
        let [Opnd::V(to)] = inst.dsts[..] else { return None };
        let [first, second] = &inst.srcs[..] else { return None };
        let itself = |o: &Opnd| matches!(o, Opnd::V(p) if *p == to);
        let turns = match inst.op()? {
            op::V_SUB_U32 => stays(first) && itself(second),
            op::V_XOR_B32 => stays(first) && itself(second) || itself(first) && stays(second),
            _ => false,
        };
        let alone = to == f.whole(to.reg) && written[to.reg.0 as usize] == 1 && inst.mods.is_empty();
        (turns && alone && (even || !behind(to.reg))).then_some(Move { at, address: to.reg })
    };
    insts.iter().enumerate().filter_map(of).collect()
}
