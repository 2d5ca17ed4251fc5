//! The verifier of what is built and of what registers are allocated for; where passes are dumped it runs behind each.
//!
//! Checks each instruction against its table row (number of operands, register class, width), that parts lie within
//! their registers, that branches end their block and lead to blocks, and, before allocation, that no virtual
//! register can be read before it is written (nothing but preloaded values is live at the entry).

use super::liveness::Liveness;
use super::{Block, Code, Constraint, Function, Gen, Generic, Group, Lds, MInst, Memory, Opnd, Part, RegClass, Type};
use barewave_isa::{Class, Flags, OpInfo, Pipe, Slot, operand_dwords};

/// What is wrong, where, and which pass had just run.
#[derive(Debug, thiserror::Error)]
#[error("kernel {kernel} after {pass}, {block}, instruction {index}: {what}")]
pub struct VerifyError {
    kernel: String,
    pass: &'static str,
    block: String,
    index: usize,
    what: Fault,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it has no blocks")]
    NoBlocks,
    #[error("%{reg} cannot be preloaded: it must have {dwords} dwords")]
    Preload { reg: u32, dwords: u8 },
    #[error("{0} in `{1}`")]
    Inst(Box<Fault>, String),
    #[error("an instruction follows a branch")]
    BehindBranch,
    #[error("a branch leads out of the function")]
    LeadsOut,
    #[error("the last block does not end the program")]
    NoEnd,
    #[error("virtual register %{0} may be read before it is written")]
    Undefined(u32),
    #[error("%{0} does not exist")]
    NoRegister(u32),
    #[error("dwords {}..{} of the {dwords}-dword %{}", .part.first, .part.first + .part.len, .part.reg.0)]
    Part { part: Part, dwords: u8 },
    #[error("block {0} does not exist")]
    NoBlock(u32),
    #[error("{name} is not an instruction of {target}")]
    NotOfTarget { name: &'static str, target: &'static str },
    #[error("{name} takes {} destinations and {} sources, not {} and {}", .takes.0, .takes.1, .has.0, .has.1)]
    Count { name: &'static str, takes: (usize, usize), has: (usize, usize) },
    #[error("a loop {0}")]
    Loop(&'static str),
    #[error("the loop does not say that it carries %{0}")]
    Carried(u32),
    #[error("`{constraint}`, but no instruction is in group {group}")]
    NoGroup { constraint: Constraint, group: u16 },
    #[error("`{0}`: {1}")]
    Constraint(Constraint, &'static str),
    #[error("{name} touches no {what}")]
    Space { name: &'static str, what: &'static str },
    #[error("{op} takes {dsts} destinations and {srcs} sources")]
    GenericCount { op: Generic, dsts: usize, srcs: usize },
    #[error("{op} is not defined on {ty}")]
    Type { op: &'static str, ty: &'static str },
    #[error("the result must be a virtual register")]
    Result,
    #[error("{0} {1}")]
    Generic(Generic, &'static str),
    #[error("the {what} {operand:?} is not a register")]
    NotRegister { what: &'static str, operand: Opnd },
    #[error("the {what} must have {wanted} dwords, not {has}")]
    Width { what: &'static str, wanted: u8, has: u8 },
    #[error("the {what} %{reg} is {is}, not {wanted}")]
    Element { what: &'static str, reg: u32, is: &'static str, wanted: &'static str },
    #[error("{0} is not a register")]
    Slot(&'static str),
    #[error("a register of class {class:?} cannot be {slot}")]
    Class { class: RegClass, slot: &'static str },
    #[error("the constant {value:#x} does not fit {slot}, which is 16 bits wide")]
    Constant { slot: &'static str, value: u64 },
    #[error("{slot} is {dwords} dwords wide, not {has}")]
    SlotWidth { slot: &'static str, dwords: u8, has: u8 },
}

/// Checks a function; `pass` names what produced it. What is live where comes of that.
pub fn verify(f: &Function, pass: &'static str) -> Result<Liveness, VerifyError> {
    verify_form(f, pass)?;
    let live = Liveness::of(f);
    for l in &f.loops {
        if let Some(v) = super::loops::carried(f, &live, l).into_iter().find(|v| !l.carried.contains(v)) {
            return Err(fault(f, pass, (l.latch.0 as usize, 0), Fault::Carried(v.0)));
        }
    }
    let given: Vec<usize> =
        super::abi::preloaded(f).iter().flat_map(|(v, _)| live.units.of_part(f.whole(*v))).collect();
    if let Some(u) = live.live_in[0].iter().find(|u| !given.contains(u)) {
        let v = (0..f.vregs.len() as u32).find(|v| live.units.of_part(f.whole(super::VReg(*v))).contains(&u));
        return Err(fault(f, pass, (0, 0), Fault::Undefined(v.unwrap_or(0))));
    }
    Ok(live)
}

/// What is wrong at an instruction of a block, behind a pass.
fn fault(f: &Function, pass: &'static str, (block, index): (usize, usize), what: Fault) -> VerifyError {
    VerifyError { kernel: f.name.clone(), pass, block: f.blocks[block].name.clone(), index, what }
}

/// What [`verify`] checks of instructions, loops and constraints each by itself, without what is live where.
pub fn verify_form(f: &Function, pass: &'static str) -> Result<(), VerifyError> {
    let fail = |b: usize, index: usize, what: Fault| fault(f, pass, (b, index), what);
    let Some(last) = f.blocks.last() else {
        let (kernel, block) = (f.name.clone(), String::new());
        return Err(VerifyError { kernel, pass, block, index: 0, what: Fault::NoBlocks });
    };
    let preloads = [f.preloads.kernarg, f.preloads.workitem_id].into_iter().chain(f.preloads.workgroup_id);
    let scratch = f.preloads.scratch.into_iter().flatten().map(Some);
    for (v, dwords) in preloads.chain(scratch).zip([2, 1, 1, 1, 1, 4, 1]).filter_map(|(v, n)| v.map(|v| (v, n))) {
        if f.vregs.get(v.0 as usize).is_none_or(|info| info.dwords != dwords) {
            return Err(fail(0, 0, Fault::Preload { reg: v.0, dwords }));
        }
    }
    for (b, block) in f.blocks.iter().enumerate() {
        let mut ended = false;
        for (i, inst) in block.insts.iter().enumerate() {
            check_inst(f, inst).map_err(|w| fail(b, i, Fault::Inst(Box::new(w), f.inst_text(inst))))?;
            let branch = inst.info(f.target).is_some_and(|x| x.flags.has(Flags::TERMINATOR));
            if ended && !branch {
                return Err(fail(b, i, Fault::BehindBranch));
            }
            ended |= branch;
        }
    }
    if f.successors(f.blocks.len() - 1).iter().any(|s| *s >= f.blocks.len()) {
        return Err(fail(f.blocks.len() - 1, 0, Fault::LeadsOut));
    }
    check_loops(f, pass)?;
    for (b, block) in f.blocks.iter().enumerate() {
        check_constraints(block).map_err(|what| fail(b, 0, what))?;
    }
    let ends = last
        .insts
        .last()
        .and_then(|i| i.info(f.target))
        .is_some_and(|x| x.flags.has(Flags::TERMINATOR) && !x.flags.has(Flags::CONDITIONAL));
    if !ends {
        return Err(fail(f.blocks.len() - 1, 0, Fault::NoEnd));
    }
    Ok(())
}

fn check_inst(f: &Function, inst: &MInst) -> Result<(), Fault> {
    for list in [&inst.dsts[..], &inst.srcs[..]] {
        for o in list {
            match *o {
                Opnd::V(p) => {
                    let Some(info) = f.vregs.get(p.reg.0 as usize) else { return Err(Fault::NoRegister(p.reg.0)) };
                    if p.len == 0 || p.first + p.len > info.dwords {
                        return Err(Fault::Part { part: p, dwords: info.dwords });
                    }
                }
                Opnd::Block(b) if b.0 as usize >= f.blocks.len() => return Err(Fault::NoBlock(b.0)),
                _ => {}
            }
        }
    }
    let op = match inst.code {
        Code::Isa(op) => op,
        Code::Gen(g) => return check_generic(f, g, inst),
    };
    let Some(info) = f.target.op(op) else {
        return Err(Fault::NotOfTarget { name: op.name(), target: f.target.info().name });
    };
    // A load to LDS has no result, whatever its row says of the load to registers.
    let to_lds = info.pipe == Pipe::Vmem && inst.loads_to_lds(f.target);
    check_space(inst, info, to_lds)?;
    let dsts = if to_lds { 0 } else { info.dsts.len() };
    if inst.dsts.len() != dsts || inst.srcs.len() != info.srcs.len() {
        return Err(Fault::Count {
            name: info.name,
            takes: (dsts, info.srcs.len()),
            has: (inst.dsts.len(), inst.srcs.len()),
        });
    }
    // Beside a scalar address a vector one is an offset.
    let is_scalar = || inst.srcs.iter().zip(info.srcs).any(|(o, s)| s.name == "saddr" && *o != Opnd::Off);
    let is_offset = info.pipe == Pipe::Vmem && is_scalar();
    for (list, slots, is_dst) in [(&inst.dsts[..], info.dsts, true), (&inst.srcs[..], info.srcs, false)] {
        for (i, o) in list.iter().enumerate() {
            let slot = &slots[i];
            let dwords = || match is_offset && slot.name == "vaddr" {
                true => 1,
                false => operand_dwords(op, slot, &inst.mods),
            };
            check_operand(f, o, slot, dwords, is_dst)?;
        }
    }
    Ok(())
}

/// Loops lie within the function and count as they should.
fn check_loops(f: &Function, pass: &'static str) -> Result<(), VerifyError> {
    for (i, l) in f.loops.iter().enumerate() {
        let latch = l.latch.0 as usize;
        let fail = |what: Fault| VerifyError {
            kernel: f.name.clone(),
            pass,
            block: f.blocks.get(latch).map_or(String::new(), |b| b.name.clone()),
            index: 0,
            what,
        };
        if l.header > l.latch || latch + 1 >= f.blocks.len() || l.header.0 == 0 {
            return Err(fail(Fault::Loop("must lie between other blocks")));
        }
        if f.loops[..i].iter().any(|k| k.latch >= l.latch) {
            return Err(fail(Fault::Loop(
                "stands before those that end behind it, and ends a block that ends no other",
            )));
        }
        let scalar =
            |v: super::VReg| f.vregs.get(v.0 as usize).is_some_and(|x| x.class == RegClass::S && x.dwords == 1);
        let limit = match l.limit {
            Opnd::Imm(_) => true,
            Opnd::V(p) => p.len == 1 && f.vregs.get(p.reg.0 as usize).is_some_and(|x| x.class == RegClass::S),
            _ => false,
        };
        if !scalar(l.counter) || !limit || l.step == 0 {
            return Err(fail(Fault::Loop("counts in a scalar, by steps above 0, to a constant or scalar")));
        }
        let branches =
            f.blocks[latch].insts.iter().any(|i| i.info(f.target).is_some_and(|x| x.flags.has(Flags::TERMINATOR)));
        if branches {
            return Err(fail(Fault::Loop("must not branch in its last block")));
        }
    }
    Ok(())
}

/// Constraints speak of groups that there are.
fn check_constraints(block: &Block) -> Result<(), Fault> {
    for c in &block.constraints {
        for g in c.groups() {
            if g == Group::default() || block.insts.iter().all(|i| i.group != g) {
                return Err(Fault::NoGroup { constraint: *c, group: g.0 });
            }
        }
        match c {
            Constraint::Before(a, b) | Constraint::Interleaved { group: a, among: b, .. } if a == b => {
                return Err(Fault::Constraint(*c, "it speaks of one group twice"));
            }
            Constraint::Interleaved { per: 0, .. } => return Err(Fault::Constraint(*c, "at least 1")),
            Constraint::Priority(_, level) if *level > 3 => return Err(Fault::Constraint(*c, "priorities are 0 to 3")),
            _ => {}
        }
    }
    Ok(())
}

/// Memory is named only where it is touched.
fn check_space(inst: &MInst, info: &OpInfo, to_lds: bool) -> Result<(), Fault> {
    let memory = matches!(info.pipe, Pipe::Vmem | Pipe::Smem);
    let lds = info.pipe == Pipe::Lds || info.flags.has(Flags::BARRIER) || to_lds;
    if inst.space.memory != Memory::Any && !memory {
        return Err(Fault::Space { name: info.name, what: "memory" });
    }
    if inst.space.lds != Lds::Any && !lds {
        return Err(Fault::Space { name: info.name, what: "LDS" });
    }
    Ok(())
}

/// Number, width and type of a generic operation's operands.
fn check_generic(f: &Function, g: Generic, inst: &MInst) -> Result<(), Fault> {
    let dsts = usize::from(g.op != Gen::Barrier);
    if (inst.dsts.len(), inst.srcs.len()) != (dsts, g.op.sources()) {
        return Err(Fault::GenericCount { op: g, dsts, srcs: g.op.sources() });
    }
    if !g.op.takes(g.ty) || !g.op.takes(g.from) {
        return Err(Fault::Type { op: g.op.name(), ty: g.ty.name() });
    }
    let Some(d) = inst.dsts.first() else { return Ok(()) };
    let Opnd::V(d) = d else { return Err(Fault::Result) };
    let scalar = f.vreg(d.reg).class == RegClass::S;
    let width = if g.op == Gen::Copy { d.len } else { g.ty.dwords() };
    if g.op.compares() {
        if !scalar || d.len != f.mask_dwords() {
            return Err(Fault::Generic(g, "must give a mask"));
        }
    } else {
        check_typed(f, Opnd::V(*d), Some(g.ty), width, "result")?;
    }
    for (i, s) in inst.srcs.iter().enumerate() {
        let ty = g.source_type(i);
        let width = match ty {
            _ if g.op == Gen::Copy => width,
            Some(t) => t.dwords(),
            None => f.mask_dwords(),
        };
        check_typed(f, *s, ty, width, "operand")?;
        let vector = matches!(s, Opnd::V(p) if f.vreg(p.reg).class != RegClass::S);
        if vector && scalar && !g.op.compares() {
            return Err(Fault::Generic(g, "cannot give a scalar of a vector"));
        }
    }
    if scalar && !g.op.compares() && g.ty.is_float() {
        return Err(Fault::Generic(g, "has no scalar form: its result must be a vector"));
    }
    if matches!(g.op, Gen::Div | Gen::Rem) && !matches!(inst.srcs[1], Opnd::Imm(d) if d as u32 != 0) {
        return Err(Fault::Generic(g, "needs a constant divisor other than 0"));
    }
    Ok(())
}

/// An operand of a generic operation: so many dwords, of the type (`None`: a mask).
fn check_typed(f: &Function, o: Opnd, ty: Option<Type>, width: u8, what: &'static str) -> Result<(), Fault> {
    let len = match o {
        Opnd::V(p) => p.len,
        Opnd::P(r) => r.dwords,
        Opnd::Imm(v) if ty.is_some_and(|t| t.bits() == 16) => return check_half(v, what),
        Opnd::Imm(_) if ty.is_some() => return Ok(()),
        Opnd::Imm(_) | Opnd::Off | Opnd::Block(_) => return Err(Fault::NotRegister { what, operand: o }),
    };
    if len != width {
        return Err(Fault::Width { what, wanted: width, has: len });
    }
    if let (Opnd::V(p), Some(ty)) = (o, ty)
        && !f.vreg(p.reg).ty.reads_as(ty)
    {
        return Err(Fault::Element { what, reg: p.reg.0, is: f.vreg(p.reg).ty.name(), wanted: ty.name() });
    }
    Ok(())
}

/// A constant for an operand of 16 bits: written as such, or an integer's sign-extended.
fn check_half(value: u64, slot: &'static str) -> Result<(), Fault> {
    match value >> 16 {
        0 | 0xffff | 0xffff_ffff_ffff => Ok(()),
        _ => Err(Fault::Constant { slot, value }),
    }
}

/// `dwords`: how wide the operand is to be.
#[inline]
fn check_operand(f: &Function, o: &Opnd, slot: &Slot, dwords: impl FnOnce() -> u8, is_dst: bool) -> Result<(), Fault> {
    let (class, len) = match *o {
        Opnd::V(p) => (f.vreg(p.reg).class, p.len),
        Opnd::P(r) if r.first.is_vector() => {
            (if r.first.file() == barewave_isa::RegFile::Agpr { RegClass::A } else { RegClass::V }, r.dwords)
        }
        Opnd::P(r) => (RegClass::S, r.dwords),
        Opnd::Off | Opnd::Block(_) | Opnd::Imm(_) if is_dst => return Err(Fault::Slot(slot.name)),
        Opnd::Imm(v) if slot.bits == 16 => return check_half(v, slot.name),
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
        return Err(Fault::Class { class, slot: slot.name });
    }
    let mask = class == RegClass::S && slot.bits >= 32 && len == f.mask_dwords();
    // Most are one dword where one is asked for.
    if len == 1 && slot.bits <= 32 && slot.bits > 0 || mask || slot.bits == 0 {
        return Ok(());
    }
    let dwords = dwords();
    if len != dwords {
        return Err(Fault::SlotWidth { slot: slot.name, dwords, has: len });
    }
    Ok(())
}
