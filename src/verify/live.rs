//! Live registers along a kernel, for those who look at its register pressure.
//!
//! The usual backward analysis over the graph: a register is live where some way leads to a read of it without a write
//! before. A write under a partial EXEC mask counts as one of all lanes, so that values merged lane by lane look shorter
//! lived than they are; writes of one half do not end the life of the other.

use super::code::{Code, Graph};
use super::inst::Line;
use super::regs::Set;
use super::{Error, MOST_STEPS, find, target_of};
use crate::codeobj::ElfFile;

/// Registers that hold something needed before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// Address of the instruction.
    pub address: u64,
    /// VGPRs.
    pub vgprs: u32,
    /// AGPRs.
    pub agprs: u32,
    /// SGPRs, without VCC and its like.
    pub sgprs: u32,
}

/// Live registers before each instruction that control reaches from a kernel's entry, by address.
///
/// # Errors
/// When there is no such kernel, no tables for the file's target, or the code is too large to follow.
pub fn live(file: &ElfFile, bytes: &[u8], kernel: &str) -> Result<Vec<Live>, Error> {
    let target = target_of(file)?;
    let kernel = find(file, kernel)?;
    let too_large = || Error::TooLarge(kernel.name.clone());
    let mut code = Code::new(file, bytes, target, !kernel.descriptor.wave32(), None);
    let mut budget = MOST_STEPS;
    let graph = Graph::new(&mut code, kernel.entry, &mut budget).ok_or_else(too_large)?;
    let mut starts = vec![Set::default(); graph.blocks.len()];
    let after = |starts: &[Set], block: usize| {
        let mut live = Set::default();
        graph.blocks[block].successors().for_each(|s| {
            live.join(&starts[s]);
        });
        live
    };
    let mut changed = true;
    while changed {
        changed = false;
        for block in graph.by_rank.iter().rev().map(|b| *b as usize) {
            let mut live = after(&starts, block);
            let lines: Vec<&Line> = graph.lines(&code, block).map(|(_, l)| l).collect();
            budget = budget.checked_sub(lines.len() + 1).ok_or_else(too_large)?;
            lines.iter().rev().for_each(|l| before(l, &mut live));
            changed |= starts[block].join(&live);
        }
    }
    let mut out = Vec::with_capacity(graph.order.len());
    for block in 0..graph.blocks.len() {
        let mut live = after(&starts, block);
        let lines: Vec<&Line> = graph.lines(&code, block).map(|(_, l)| l).collect();
        for line in lines.iter().rev() {
            before(line, &mut live);
            let [vgprs, agprs, sgprs] = live.counts();
            out.push(Live { address: line.at, vgprs, agprs, sgprs });
        }
    }
    out.sort_by_key(|l| l.address);
    Ok(out)
}

/// What is live before an instruction, of what is behind it.
fn before(line: &Line, live: &mut Set) {
    line.writes().filter(|s| s.halves == 3).for_each(|s| live.remove(s));
    line.reads().for_each(|s| live.insert(s));
}
