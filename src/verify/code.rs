//! From bytes to a control-flow graph.
//!
//! Instructions are decoded where control can reach them, from the kernel's entry on, through branches and calls. An
//! address that lies inside of an instruction reached otherwise, outside of the code, or where no instruction is, is
//! reported. Jumps through registers are followed where the address is known: a distance added to `s_getpc_b64`, an entry
//! of the global offset table. A jump through registers in a function that was called is taken for its return; one in a
//! kernel, and a call of an unknown function, are listed as unresolved: what follows a call is then checked as if the
//! function kept to the usual convention, to wait for its own loads and to return nothing undefined.

use super::inst::{Flow, Line, Meaning, has_halves};
use super::regs::Span;
use super::values::{self, Values};
use crate::codeobj::{ElfFile, Segment};
use barewave_isa::{Decoder, Mode, Raw, Target, op};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A file's code for one wave size, decoded as far as anybody asked.
pub struct Code<'a> {
    /// The file.
    pub file: &'a ElfFile,
    /// All its bytes.
    pub bytes: &'a [u8],
    /// Its target.
    pub target: Target,
    /// Waves have 64 lanes.
    pub wave64: bool,
    /// It may run where instructions that fault are issued again (XNACK).
    pub replays: bool,
    decoder: Decoder,
    segments: Vec<Decoded<'a>>,
    /// Instructions in order of discovery.
    pub lines: Vec<Line>,
    /// Address of an instruction that is left out.
    without: Option<u64>,
    /// Relocations by address: their numbers.
    relocations: FxHashMap<u64, usize>,
    /// What bits mean that were decoded before, at their [`place_of`], which the last ones have.
    known: Vec<Option<Rc<Meaning>>>,
}

/// Places for what bits mean, as a power of two.
const KNOWN: u32 = 13;

/// Where among those the meaning of an instruction's bits is kept.
fn place_of(raw: &Raw) -> usize {
    let bits = raw.bits();
    let mixed = (bits as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((bits >> 64) as u64).rotate_left(29);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KNOWN)) as usize
}

struct Decoded<'a> {
    segment: &'a Segment,
    /// Per dword: the instruction that starts there, or one of the marks below.
    starts: Vec<u32>,
}

const NOTHING: u32 = u32::MAX;
/// The dword belongs to an instruction that starts before it.
const INSIDE: u32 = u32::MAX - 1;

/// Why there is no instruction at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Astray {
    /// No executable segment has it.
    Outside,
    /// It is not a multiple of four.
    Odd,
    /// The bits are no instruction of the target.
    Illegal,
    /// An instruction that is reached otherwise covers it.
    Inside,
}

impl<'a> Code<'a> {
    /// Nothing decoded yet.
    pub fn new(file: &'a ElfFile, bytes: &'a [u8], target: Target, wave64: bool, without: Option<u64>) -> Code<'a> {
        let mode = Mode { wave64, true16: has_halves(file.family) };
        let segments = file.segments.iter().filter(|s| s.executable);
        let segments = segments.map(|segment| Decoded { segment, starts: vec![NOTHING; segment.file.len() / 4] });
        let (decoder, segments) = (Decoder::new(target, mode), segments.collect());
        let relocations = file.relocations.iter().enumerate().map(|(i, r)| (r.addr, i)).collect();
        let replays = file.target_id().may_need_xnack(target.info().elf_features);
        Code {
            file,
            bytes,
            target,
            wave64,
            replays,
            decoder,
            segments,
            lines: Vec::new(),
            without,
            relocations,
            known: vec![None; 1 << KNOWN],
        }
    }

    /// The instruction at an address.
    pub fn line_at(&mut self, at: u64) -> Result<u32, Astray> {
        let d = self.segments.iter_mut().find(|d| d.segment.addr <= at && at < d.end()).ok_or(Astray::Outside)?;
        let offset = (at - d.segment.addr) as usize;
        if !offset.is_multiple_of(4) {
            return Err(Astray::Odd);
        }
        match d.starts.get(offset / 4).copied().unwrap_or(INSIDE) {
            INSIDE => return Err(Astray::Inside),
            NOTHING => {}
            i => return Ok(i),
        }
        let bytes = self.bytes.get(d.segment.file.clone()).and_then(|b| b.get(offset..)).ok_or(Astray::Outside)?;
        let raw = self.decoder.decode(bytes).ok_or(Astray::Illegal)?;
        let (first, last) = (offset / 4, offset / 4 + raw.len().div_ceil(4));
        if d.starts.get(first..last).is_none_or(|s| s.iter().any(|s| *s != NOTHING)) {
            return Err(Astray::Inside);
        }
        let known = &mut self.known[place_of(&raw)];
        let means = match known {
            Some(means) if means.raw == raw => means.clone(),
            _ => {
                let info = self.target.op(raw.op()).ok_or(Astray::Illegal)?;
                known.insert(Rc::new(Meaning::new(self.target, info, self.wave64, raw))).clone()
            }
        };
        let i = self.lines.len() as u32;
        self.lines.push(Line::new(at, means, self.without));
        d.starts[first..last].fill(INSIDE);
        d.starts[first] = i;
        Ok(i)
    }

    /// Forgets what was decoded: memory that was used before costs less than new memory, and functions that the next
    /// kernel calls too are as quickly decoded as checked.
    pub fn clear(&mut self) {
        let mut decoded: Vec<(u64, u64)> = Vec::new();
        let begins = |at: u64| self.segments.iter().any(|d| d.segment.addr == at);
        for line in &self.lines {
            match decoded.last_mut() {
                Some(run) if run.1 == line.at && !begins(line.at) => run.1 = line.end(),
                _ => decoded.push((line.at, line.end())),
            }
        }
        self.lines.clear();
        for (from, to) in decoded {
            if let Some(d) = self.segments.iter_mut().find(|d| d.segment.addr <= from && from < d.end()) {
                let dword = |at: u64| (at - d.segment.addr) as usize / 4;
                let range = dword(from)..dword(to);
                d.starts[range].fill(NOTHING);
            }
        }
    }
}

impl Decoded<'_> {
    /// One past the last address that the file has bytes for.
    fn end(&self) -> u64 {
        self.segment.addr.saturating_add(self.segment.file.len() as u64)
    }
}

impl Code<'_> {
    /// True when the loaded file has a dword at this address.
    pub fn holds(&self, at: u64) -> bool {
        self.file.file_range(at, 4).is_some()
    }

    /// The instruction that the bits at an address would be, reached or not.
    pub fn peek(&self, at: u64) -> Option<Raw> {
        let range = self.file.file_range(at, 4)?;
        let segment = self.segments.iter().find(|d| d.segment.file.contains(&range.start))?;
        self.decoder.decode(self.bytes.get(range.start..segment.segment.file.end)?)
    }

    /// The 64 bits at an address of the loaded file, relocated; none when a program may write them.
    pub fn content(&self, addr: u64) -> Option<u64> {
        const RELATIVE64: u32 = 13;
        if let Some(r) = self.relocations.get(&addr).and_then(|&i| self.file.relocations.get(i)) {
            if r.kind == RELATIVE64 {
                return Some(r.addend as u64);
            }
            let symbol = self.file.dynamic_symbols.get(r.symbol).filter(|s| s.defined)?;
            return Some(symbol.addr.wrapping_add_signed(r.addend));
        }
        let holds = |s: &&Segment| s.addr <= addr && addr - s.addr < s.mem_size;
        self.file.segments.iter().find(holds).filter(|s| !s.writable)?;
        let at = self.file.file_range(addr, 8)?;
        self.bytes.get(at)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// A run of instructions that control enters at the top only.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Numbers of the instructions in [`Graph::order`].
    pub lines: std::ops::Range<usize>,
    /// Blocks that may come next, without those of calls and returns.
    pub next: SmallVec<[u32; 2]>,
    /// What its last instruction calls.
    pub calls: SmallVec<[u32; 1]>,
    /// Its last instruction calls something unknown.
    pub calls_unknown: bool,
    /// Its last instruction returns to where the function was called.
    pub returns: bool,
    /// Blocks without instructions that lead from the ends of a function to behind its calls: filled for blocks that
    /// return.
    pub back: SmallVec<[u32; 1]>,
}

impl Block {
    /// All blocks that may come next.
    pub fn successors(&self) -> impl Iterator<Item = usize> + '_ {
        // behind a call comes what the call returns to, unless the way through the function is known
        let next = if self.calls.is_empty() { &self.next[..] } else { &[] };
        next.iter().chain(&self.calls).chain(&self.back).map(|b| *b as usize)
    }
}

/// Something odd about the way that control takes.
#[derive(Clone, Debug)]
pub struct Stray {
    /// The instruction, by its number in [`Code::lines`]; none for the entry point.
    pub line: Option<u32>,
    /// Where it leads.
    pub to: u64,
    /// What is there.
    pub why: Astray,
    /// It is reached by going on, not by a jump.
    pub falls: bool,
}

/// The code of one kernel and all that it calls.
#[derive(Default)]
pub struct Graph {
    /// Instructions by address: numbers in [`Code::lines`].
    pub order: Vec<u32>,
    /// Blocks by address; the first instruction of the kernel is in block `entry`.
    pub blocks: Vec<Block>,
    /// Where the kernel begins.
    pub entry: usize,
    /// Blocks that functions begin with.
    pub functions: Vec<u32>,
    /// Ways that lead nowhere.
    pub strays: Vec<Stray>,
    /// Jumps and calls through registers whose addresses are not known.
    pub unresolved: Vec<u32>,
    /// Blocks in an order that takes predecessors first where there is no loop; those that only a call which nobody returns
    /// from leads to come last.
    pub by_rank: Vec<u32>,
    /// Place of each block in it.
    pub rank: Vec<u32>,
}

/// What a search through the code has found.
#[derive(Default)]
struct Found {
    /// Reached, by number of the line.
    reached: Vec<bool>,
    order: Vec<u32>,
    leaders: BTreeSet<u64>,
    /// Addresses of functions that are called.
    functions: BTreeSet<u64>,
    /// Known addresses of jumps and calls through registers.
    targets: FxHashMap<u32, u64>,
    strays: Vec<Stray>,
}

impl Graph {
    /// Follows control from an address. None when that takes more than `budget` steps.
    pub fn new(code: &mut Code, entry: u64, budget: &mut usize) -> Option<Graph> {
        let mut targets = FxHashMap::default();
        loop {
            let mut f = Found { targets, ..Found::default() };
            let mut work = vec![(entry, None, false)];
            f.leaders.insert(entry);
            // Runs of instructions one behind the other, which do not overlap.
            let mut runs = Vec::new();
            while let Some((at, from, falls)) = work.pop() {
                let begin = f.order.len();
                f.follow(code, at, from, falls, &mut work);
                runs.push(begin..f.order.len());
            }
            *budget = budget.checked_sub(f.order.len() + 1)?;
            runs.retain(|run| !run.is_empty());
            runs.sort_unstable_by_key(|run| code.lines[f.order[run.start] as usize].at);
            f.order = runs.into_iter().flat_map(|run| &f.order[run]).copied().collect();
            let (g, known) = f.graph(code, entry, budget)?;
            targets = known;
            let before = targets.len();
            if !g.unresolved.is_empty() {
                values::resolve(code, &g, &mut targets, budget)?;
            }
            if targets.len() == before {
                return Some(g);
            }
        }
    }

    /// The instructions of a block.
    pub fn lines<'c>(&self, code: &'c Code, block: usize) -> impl Iterator<Item = (u32, &'c Line)> + use<'c, '_> {
        let lines = self.order[self.blocks[block].lines.clone()].iter().map(|&i| (i, &code.lines[i as usize]));
        lines.filter(|(_, l)| !l.left_out)
    }

    /// Finds `by_rank` and `rank`.
    fn sort(&mut self) {
        let mut order = self.postorder();
        order.reverse();
        self.rank = vec![u32::MAX; self.blocks.len()];
        for (n, b) in order.iter().enumerate() {
            self.rank[*b as usize] = n as u32;
        }
        for (b, rank) in self.rank.iter_mut().enumerate().filter(|(_, rank)| **rank == u32::MAX) {
            *rank = order.len() as u32;
            order.push(b as u32);
        }
        self.by_rank = order;
    }

    fn postorder(&self) -> Vec<u32> {
        let mut seen = vec![false; self.blocks.len()];
        let mut out = Vec::with_capacity(self.blocks.len());
        let mut stack: Vec<(usize, SmallVec<[u32; 4]>)> = Vec::new();
        let successors = |b: usize| -> SmallVec<[u32; 4]> { self.blocks[b].successors().map(|s| s as u32).collect() };
        if self.blocks.is_empty() {
            return out;
        }
        seen[self.entry] = true;
        stack.push((self.entry, successors(self.entry)));
        while let Some((b, list)) = stack.last_mut() {
            match list.pop() {
                Some(s) if !seen[s as usize] => {
                    seen[s as usize] = true;
                    stack.push((s as usize, successors(s as usize)));
                }
                Some(_) => {}
                None => {
                    out.push(*b as u32);
                    stack.pop();
                }
            }
        }
        out
    }
}

impl Found {
    /// Decodes from an address to where control must go elsewhere.
    fn follow(
        &mut self,
        code: &mut Code,
        at: u64,
        from: Option<u32>,
        falls: bool,
        work: &mut Vec<(u64, Option<u32>, bool)>,
    ) {
        let (mut at, mut from, mut falls) = (at, from, falls);
        let begin = self.order.len();
        loop {
            let i = match code.line_at(at) {
                Ok(i) => i,
                Err(why) => {
                    self.strays.push(Stray { line: from, to: at, why, falls });
                    return;
                }
            };
            if self.reached.len() <= i as usize {
                self.reached.resize(i as usize + 1, false);
            }
            if std::mem::replace(&mut self.reached[i as usize], true) {
                return;
            }
            self.order.push(i);
            let line = &code.lines[i as usize];
            let next = line.end();
            let mut jump = |to: u64, leaders: &mut BTreeSet<u64>| {
                leaders.insert(to);
                work.push((to, Some(i), false));
            };
            // Where a register leads that was set since control came here.
            let address = |order: &[u32], r: Span| {
                let mut values = Values::default();
                let before = &order[begin..order.len() - 1];
                before.iter().for_each(|&i| values.pass(&code.lines[i as usize], code));
                values.address(r)
            };
            match line.flow {
                Flow::Next => {
                    (at, from, falls) = (next, Some(i), true);
                    continue;
                }
                Flow::End => return,
                Flow::Jump(to) => jump(to, &mut self.leaders),
                Flow::Branch(to) => {
                    jump(to, &mut self.leaders);
                    self.leaders.insert(next);
                    work.push((next, Some(i), true));
                }
                Flow::Indirect(r) => {
                    if let Some(to) = self.targets.get(&i).copied().or_else(|| address(&self.order, r)) {
                        self.targets.insert(i, to);
                        jump(to, &mut self.leaders);
                    }
                }
                Flow::Call(to) => {
                    self.functions.insert(to);
                    jump(to, &mut self.leaders);
                    self.leaders.insert(next);
                    work.push((next, Some(i), true));
                }
                Flow::CallRegister(r) => {
                    if let Some(to) = self.targets.get(&i).copied().or_else(|| address(&self.order, r)) {
                        self.targets.insert(i, to);
                        self.functions.insert(to);
                        jump(to, &mut self.leaders);
                    }
                    self.leaders.insert(next);
                    work.push((next, Some(i), true));
                }
            }
            return;
        }
    }

    /// The graph, and the known addresses of jumps through registers.
    fn graph(self, code: &Code, entry: u64, budget: &mut usize) -> Option<(Graph, FxHashMap<u32, u64>)> {
        let Found { order, leaders, functions, targets, strays, .. } = self;
        let mut g = Graph { order, strays, ..Graph::default() };
        let mut block_at: FxHashMap<u64, u32> = FxHashMap::default();
        let (mut start, mut leaders) = (0, leaders.into_iter().peekable());
        for n in 0..g.order.len() {
            let line = &code.lines[g.order[n] as usize];
            let next = g.order.get(n + 1).map(|&i| code.lines[i as usize].at);
            let leads = next.is_some_and(|a| {
                while leaders.next_if(|l| *l < a).is_some() {}
                leaders.peek() == Some(&a)
            });
            if line.flow != Flow::Next || next != Some(line.end()) || leads {
                block_at.insert(code.lines[g.order[start] as usize].at, g.blocks.len() as u32);
                g.blocks.push(Block { lines: start..n + 1, ..Block::default() });
                start = n + 1;
            }
        }
        g.entry = block_at.get(&entry).map_or(0, |b| *b as usize);
        g.functions = functions.iter().filter_map(|f| block_at.get(f).copied()).collect();
        let mut indirect = Vec::new();
        for (n, b) in g.blocks.iter_mut().enumerate() {
            let Some(&last) = b.lines.clone().next_back().and_then(|i| g.order.get(i)) else { continue };
            let line = &code.lines[last as usize];
            let after = block_at.get(&line.end()).copied();
            let known = targets.get(&last).and_then(|to| block_at.get(to)).copied();
            match line.flow {
                Flow::Next => b.next.extend(after),
                Flow::End => {}
                Flow::Jump(to) => b.next.extend(block_at.get(&to).copied()),
                Flow::Branch(to) => {
                    b.next.extend(after);
                    b.next.extend(block_at.get(&to).copied().filter(|t| Some(*t) != after));
                }
                Flow::Indirect(_) => match known {
                    Some(to) => b.next.push(to),
                    None => indirect.push((n, last)),
                },
                Flow::Call(to) => {
                    b.next.extend(after);
                    b.calls.extend(block_at.get(&to).copied());
                }
                Flow::CallRegister(_) => {
                    b.next.extend(after);
                    b.calls.extend(known);
                    b.calls_unknown = known.is_none();
                    if known.is_none() {
                        g.unresolved.push(last);
                    }
                }
            }
        }
        g.find_returns(indirect, budget)?;
        g.sort();
        Some((g, targets))
    }
}

impl Graph {
    /// Jumps through registers in functions return to behind all calls of the function; others are unresolved.
    fn find_returns(&mut self, indirect: Vec<(usize, u32)>, budget: &mut usize) -> Option<()> {
        let mut returns = vec![None; self.blocks.len()];
        for &(b, line) in &indirect {
            returns[b] = Some(line);
        }
        let mut lost: BTreeSet<u32> = indirect.iter().map(|i| i.1).collect();
        let mut behind: FxHashMap<u32, SmallVec<[u32; 2]>> = FxHashMap::default();
        for b in &self.blocks {
            b.calls.iter().for_each(|f| behind.entry(*f).or_default().extend(b.next.iter().copied()));
        }
        // stamps save the clearing
        let mut seen = vec![u32::MAX; self.blocks.len()];
        for n in 0..self.functions.len() {
            let f = self.functions[n];
            let exit = self.blocks.len() as u32;
            let next = behind.remove(&f).unwrap_or_default();
            self.blocks.push(Block { next: next.into_iter().collect(), ..Block::default() });
            // the blocks of the function itself, over the calls in it
            let mut work = vec![f];
            while let Some(b) = work.pop() {
                *budget = budget.checked_sub(1)?;
                if std::mem::replace(&mut seen[b as usize], n as u32) == n as u32 {
                    continue;
                }
                let block = &mut self.blocks[b as usize];
                if let Some(line) = returns[b as usize] {
                    lost.remove(&line);
                    block.returns = true;
                    block.back.push(exit);
                }
                work.extend(block.next.iter().copied());
            }
        }
        self.unresolved.extend(lost);
        self.unresolved.sort_unstable();
        Some(())
    }
}

/// True when control may go on behind the instruction into what is no code: the wave does not come back.
pub fn may_end(line: &Line) -> bool {
    matches!(line.inst.op, op::S_TRAP | op::S_SETHALT | op::S_SENDMSGHALT)
}
