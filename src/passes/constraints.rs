//! Holds blocks to what their author states about the order of instructions, and checks it.
//!
//! For the scheduler a constraint is edges of the dependence graph: from all of one group to all of another, or between those that take
//! turns and between neighbours of a group that does. Whoever asks for something that dependences forbid makes a
//! circle, which is an error. [`check`] reads nothing but the order that came out. A priority is two instructions around its group,
//! put in when the order stands; a fixed order is compared with what it was ([`Pinned`]).

use crate::mir::{Block, Code, Constraint, Function, Group, MInst, Opnd, Order};
use barewave_isa::op;

/// A constraint that is not held to.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// Constraints and dependences form a circle.
    #[error(
        "kernel {kernel}, block {block}: no order holds to `{constraints}` and to what the instructions need of each other"
    )]
    Impossible {
        /// The kernel.
        kernel: String,
        /// The block.
        block: String,
        /// All constraints of the block.
        constraints: String,
    },
    /// An order breaks a constraint.
    #[error("kernel {kernel} after {pass}, block {block}: `{constraint}` does not hold at instruction {index}, {inst}")]
    Violated {
        /// The kernel.
        kernel: String,
        /// The pass that has just run.
        pass: &'static str,
        /// The block.
        block: String,
        /// The constraint.
        constraint: Constraint,
        /// Number of the first instruction that is out of place.
        index: usize,
        /// That instruction.
        inst: String,
    },
    /// Instructions of a fixed order have changed places, or are gone.
    #[error("kernel {kernel} after {pass}, block {block}: its order is fixed, but {inst} is not where it was")]
    Moved {
        /// The kernel.
        kernel: String,
        /// The pass that has just run.
        pass: &'static str,
        /// The block.
        block: String,
        /// The first instruction that is out of place.
        inst: String,
    },
}

/// Places of a group's instructions.
fn places(insts: &[MInst], g: Group) -> Vec<usize> {
    (0..insts.len()).filter(|&i| insts[i].group == g).collect()
}

/// Pairs of instructions of which the first must come first.
pub(super) fn edges(block: &Block) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    for c in &block.constraints {
        match *c {
            Constraint::Before(a, b) => {
                let then = places(&block.insts, b);
                out.extend(places(&block.insts, a).iter().flat_map(|&i| then.iter().map(move |&k| (i, k))));
            }
            Constraint::Interleaved { group, per, among } => {
                let (own, others) = (places(&block.insts, group), places(&block.insts, among));
                let per = usize::from(per);
                out.extend(own.windows(2).chain(others.windows(2)).map(|w| (w[0], w[1])));
                for (i, &a) in own.iter().enumerate() {
                    // Behind `i * per` of the others, before those that follow.
                    out.extend((i * per).checked_sub(1).and_then(|k| others.get(k)).map(|&k| (k, a)));
                    out.extend(others.get(i * per).map(|&k| (a, k)));
                }
            }
            Constraint::Priority(..) => {}
        }
    }
    out
}

/// No order of the block holds to its constraints.
pub(super) fn impossible(f: &Function, block: &Block) -> Broken {
    let constraints: Vec<String> = block.constraints.iter().map(|c| c.to_string()).collect();
    Broken::Impossible { kernel: f.name.clone(), block: block.name.clone(), constraints: constraints.join("`, `") }
}

/// Puts in the instructions that raise the wavefront's priority and take it back.
pub(super) fn set_priorities(block: &mut Block) {
    let mut wanted = vec![0u8; block.insts.len() + 1];
    for c in &block.constraints {
        let Constraint::Priority(g, level) = *c else { continue };
        let of = places(&block.insts, g);
        let (Some(&first), Some(&last)) = (of.first(), of.last()) else { continue };
        wanted[first..=last].iter_mut().for_each(|w| *w = level.max(*w));
    }
    let mut now = 0;
    let mut out = Vec::with_capacity(block.insts.len());
    let set = |level: u8| MInst::new(op::S_SETPRIO, &[], &[u32::from(level).into()]);
    for (inst, level) in std::mem::take(&mut block.insts).into_iter().zip(wanted) {
        if level != now {
            out.push(set(level));
            now = level;
        }
        out.push(inst);
    }
    if now != 0 {
        out.push(set(0));
    }
    block.insts = out;
}

/// Checks the constraints of all blocks against the order that their instructions have; `pass` is what has just run.
pub fn check(f: &Function, pass: &'static str) -> Result<(), Broken> {
    for block in &f.blocks {
        for &constraint in &block.constraints {
            if let Some(index) = out_of_place(&block.insts, constraint) {
                let (kernel, block) = (f.name.clone(), block);
                let inst = f.inst_text(&block.insts[index]);
                return Err(Broken::Violated { kernel, pass, block: block.name.clone(), constraint, index, inst });
            }
        }
    }
    Ok(())
}

/// The first instruction that breaks a constraint.
fn out_of_place(insts: &[MInst], c: Constraint) -> Option<usize> {
    match c {
        Constraint::Before(a, b) => {
            let begun = insts.iter().position(|i| i.group == b)?;
            (begun..insts.len()).find(|&i| insts[i].group == a)
        }
        Constraint::Interleaved { group, per, among } => {
            let all = insts.iter().filter(|i| i.group == among).count();
            let (mut own, mut others) = (0, 0);
            insts.iter().position(|i| {
                if i.group == group {
                    own += 1;
                    return others != ((own - 1) * usize::from(per)).min(all);
                }
                others += usize::from(i.group == among);
                false
            })
        }
        Constraint::Priority(g, level) => {
            let mut now = 0;
            insts.iter().position(|i| {
                if let (Some(op::S_SETPRIO), Some(&Opnd::Imm(x))) = (i.op(), i.srcs.first()) {
                    now = x;
                }
                i.group == g && now < u64::from(level)
            })
        }
    }
}

/// The order of blocks whose order is fixed, as it was.
pub struct Pinned(Vec<(usize, Vec<Code>)>);

impl Pinned {
    /// The order now, but for moves of constants: where registers are scarce their readers make them anew.
    pub fn of(f: &Function) -> Pinned {
        let constant =
            |i: &MInst| matches!(i.op(), Some(op::V_MOV_B32 | op::S_MOV_B32)) && matches!(i.srcs[..], [Opnd::Imm(_)]);
        let codes = |b: &Block| b.insts.iter().filter(|i| !constant(i)).map(|i| i.code).collect();
        let fixed = f.blocks.iter().enumerate().filter(|(_, b)| b.order == Order::Fixed);
        Pinned(fixed.map(|(i, b)| (i, codes(b))).collect())
    }
    /// Checks that the instructions still follow one another so, whatever stands between them.
    pub fn check(&self, f: &Function, pass: &'static str) -> Result<(), Broken> {
        for (b, codes) in &self.0 {
            let block = &f.blocks[*b];
            let mut left = block.insts.iter().map(|i| i.code);
            if let Some(gone) = codes.iter().find(|c| !left.any(|x| x == **c)) {
                let inst = match gone {
                    Code::Isa(op) => op.name().to_string(),
                    Code::Gen(g) => format!("g.{g}"),
                };
                return Err(Broken::Moved { kernel: f.name.clone(), pass, block: block.name.clone(), inst });
            }
        }
        Ok(())
    }
}
