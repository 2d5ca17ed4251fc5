//! The verifier that runs between passes.
//!
//! Checks each instruction against its table row (number of operands, register class, width), that parts lie within
//! their registers, that branches end their block and lead to blocks, and, before allocation, that no virtual
//! register can be read before it is written (nothing but preloaded values is live at the entry).

use super::liveness::Liveness;
use super::{Code, Function, Gen, MInst, Opnd, RegClass};
use barewave_isa::{Class, Flags, Slot};

/// What is wrong, where, and which pass had just run.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel} after {pass}, {block}, instruction {index}: {what}")]
pub struct VerifyError {
    kernel: String,
    pass: &'static str,
    block: String,
    index: usize,
    what: String,
}

/// Checks a function; `pass` names what produced it.
pub fn verify(f: &Function, pass: &'static str) -> Result<(), VerifyError> {
    let fail = |b: usize, index: usize, what: String| VerifyError {
        kernel: f.name.clone(),
        pass,
        block: f.blocks[b].name.clone(),
        index,
        what,
    };
    let Some(last) = f.blocks.last() else {
        let (kernel, block) = (f.name.clone(), String::new());
        return Err(VerifyError { kernel, pass, block, index: 0, what: "it has no blocks".to_string() });
    };
    let preloads = [f.preloads.kernarg, f.preloads.workitem_id].into_iter().chain(f.preloads.workgroup_id);
    let scratch = f.preloads.scratch.into_iter().flatten().map(Some);
    for (v, dwords) in preloads.chain(scratch).zip([2, 1, 1, 1, 1, 4, 1]).filter_map(|(v, n)| v.map(|v| (v, n))) {
        if f.vregs.get(v.0 as usize).is_none_or(|info| info.dwords != dwords) {
            return Err(fail(0, 0, format!("%{} cannot be preloaded: it must have {dwords} dwords", v.0)));
        }
    }
    for (b, block) in f.blocks.iter().enumerate() {
        let mut ended = false;
        for (i, inst) in block.insts.iter().enumerate() {
            check_inst(f, inst).map_err(|w| fail(b, i, format!("{w} in {inst:?}")))?;
            let branch = inst.info(f.target).is_some_and(|x| x.flags.has(Flags::TERMINATOR));
            if ended && !branch {
                return Err(fail(b, i, "an instruction follows a branch".to_string()));
            }
            ended |= branch;
        }
    }
    if f.successors(f.blocks.len() - 1).iter().any(|s| *s >= f.blocks.len()) {
        return Err(fail(f.blocks.len() - 1, 0, "a branch leads out of the function".to_string()));
    }
    let ends = last
        .insts
        .last()
        .and_then(|i| i.info(f.target))
        .is_some_and(|x| x.flags.has(Flags::TERMINATOR) && !x.flags.has(Flags::CONDITIONAL));
    if !ends {
        return Err(fail(f.blocks.len() - 1, 0, "the last block does not end the program".to_string()));
    }
    let live = Liveness::of(f);
    let given: Vec<usize> =
        crate::passes::regalloc::fixed_places(f).iter().flat_map(|(v, _)| live.units.of_part(f.whole(*v))).collect();
    if let Some(u) = live.live_in[0].iter().find(|u| !given.contains(u)) {
        let v = (0..f.vregs.len() as u32).find(|v| live.units.of_part(f.whole(super::VReg(*v))).contains(&u));
        return Err(fail(0, 0, format!("virtual register %{} may be read before it is written", v.unwrap_or(0))));
    }
    Ok(())
}

fn check_inst(f: &Function, inst: &MInst) -> Result<(), String> {
    for o in inst.dsts.iter().chain(&inst.srcs) {
        match *o {
            Opnd::V(p) => {
                let info = f.vregs.get(p.reg.0 as usize).ok_or_else(|| format!("%{} does not exist", p.reg.0))?;
                if p.len == 0 || p.first + p.len > info.dwords {
                    return Err(format!(
                        "dwords {}..{} of the {}-dword %{}",
                        p.first,
                        p.first + p.len,
                        info.dwords,
                        p.reg.0
                    ));
                }
            }
            Opnd::Block(b) if b.0 as usize >= f.blocks.len() => return Err(format!("block {} does not exist", b.0)),
            _ => {}
        }
    }
    let op = match inst.code {
        Code::Isa(op) => op,
        Code::Gen(g) => return check_generic(g, inst),
    };
    let Some(info) = f.target.op(op) else {
        return Err(format!("{} is not an instruction of {}", op.name(), f.target.info().name));
    };
    if inst.dsts.len() != info.dsts.len() || inst.srcs.len() != info.srcs.len() {
        return Err(format!(
            "{} takes {} destinations and {} sources, not {} and {}",
            info.name,
            info.dsts.len(),
            info.srcs.len(),
            inst.dsts.len(),
            inst.srcs.len()
        ));
    }
    let dsts = inst.dsts.iter().zip(info.dsts).map(|(o, s)| (o, s, true));
    for (o, slot, is_dst) in dsts.chain(inst.srcs.iter().zip(info.srcs).map(|(o, s)| (o, s, false))) {
        check_operand(f, o, slot, is_dst)?;
    }
    Ok(())
}

/// Number and kind of a generic operation's operands.
fn check_generic(g: Gen, inst: &MInst) -> Result<(), String> {
    let (dsts, srcs) = match g {
        Gen::Barrier => (0, 0),
        Gen::Copy => (1, 1),
        Gen::Mad | Gen::Fma => (1, 3),
        _ => (1, 2),
    };
    if (inst.dsts.len(), inst.srcs.len()) != (dsts, srcs) {
        return Err(format!("{} takes {dsts} destinations and {srcs} sources", g.name()));
    }
    let width = |o: &Opnd| match o {
        Opnd::V(p) => Some(p.len),
        Opnd::P(r) => Some(r.dwords),
        Opnd::Imm(_) => None,
        Opnd::Off | Opnd::Block(_) => Some(0),
    };
    for d in &inst.dsts {
        let Opnd::V(p) = d else { return Err("the result must be a virtual register".to_string()) };
        let want = if g == Gen::Copy { p.len } else { 1 };
        if p.len != want || inst.srcs.iter().any(|s| width(s).is_some_and(|w| w != want)) {
            return Err(format!("operands of {} must be as wide as its result", g.name()));
        }
    }
    if matches!(g, Gen::Udiv | Gen::Umod) && !matches!(inst.srcs[1], Opnd::Imm(d) if d as u32 != 0) {
        return Err(format!("{} needs a constant divisor other than 0", g.name()));
    }
    Ok(())
}

fn check_operand(f: &Function, o: &Opnd, slot: &Slot, is_dst: bool) -> Result<(), String> {
    let (class, len) = match *o {
        Opnd::V(p) => (f.vreg(p.reg).class, p.len),
        Opnd::P(r) if r.first.is_vector() => {
            (if r.first.file() == barewave_isa::RegFile::Agpr { RegClass::A } else { RegClass::V }, r.dwords)
        }
        Opnd::P(r) => (RegClass::S, r.dwords),
        Opnd::Off | Opnd::Block(_) | Opnd::Imm(_) if is_dst => return Err(format!("{} is not a register", slot.name)),
        _ => return Ok(()),
    };
    let wanted = match class {
        RegClass::V => Class::VGPR,
        RegClass::A => Class::AGPR,
        RegClass::S => Class::SGPR,
    };
    let special = matches!(o, Opnd::P(r) if r.first.file() == barewave_isa::RegFile::Special);
    // A scalar may stand where only vectors fit until `select` has legalised operands; the encoder has the last word.
    if is_dst && !special && !slot.class.contains(wanted) {
        return Err(format!("a register of class {class:?} cannot be {}", slot.name));
    }
    let mask = class == RegClass::S && slot.bits >= 32 && len == f.mask_dwords();
    if len != slot.dwords() && !mask && slot.bits != 0 {
        return Err(format!("{} is {} dwords wide, not {len}", slot.name, slot.dwords()));
    }
    Ok(())
}
