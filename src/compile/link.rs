//! Machine code of several kernels as that of one, which runs their workgroups side by side, those of the first, then those of the next, and so on; or level by level, where those
//! of a level wait until all of the level before have ended ([`levels`]).
//!
//! ```text
//! number = workgroup id x
//! if number >= first of the last part: go there
//! ...
//! part:
//!     number -= its first one
//!     set = number / workgroups of a set; arguments += set * bytes of a set
//!     ids = number of the set's workgroup in its grid
//!     if wave >= waves of the kernel: end
//!     wait for the level before, if there is one
//!     the kernel's code, as it is; of several levels, with branches to where a wave counts itself where it ended
//! ```
//! A kernel finds its arguments and workgroup ids in the registers in which it would find them in a launch of its own. So code that was compiled once is
//! launched alone or with others, and what waits for its turn costs no launch. Where a kernel is told its extents, the launch is told how many workgroups
//! its part has, so that its code serves all extents, too: where parts begin is then loaded, not part of the code. Where the hardware has ids in registers that code cannot write
//! (gfx12), instructions that read these read others instead, at the upper end of what a wave has. A part is launched for one set of arguments or for several, which
//! follow each other. Workgroups have as many waves as the largest one needs; those that a kernel does not ask for end at once, and no barrier waits for them.

use super::kernel::{KernelCode, Linked};
use super::levels::{self, Counts, Kept, Level, policy_of};
use crate::kernels::{self, Arg, Number};
use crate::mir::first_workgroup_id;
use crate::runtime::plan::{Address, Region};
use barewave_isa::{Decoder, Inst, ModName, Mode, Op, Operand, Reg, Regs, Target, encode, op};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// Bytes that code begins at a multiple of: a line of the instruction cache.
const LINE: usize = 64;

/// Bytes of code at most, so that branches reach all of it, and what a prologue takes of them, with what its code is placed by.
pub(super) const MOST_CODE: usize = 120 << 10;
pub(super) const PROLOGUE: usize = 4 * LINE;

/// Registers of a prologue: no kernel gets an argument or an id there.
const NUMBER: u16 = 16;
const SET: u16 = 17;
const WHOLE: u16 = 18;
const IDS: [u16; 3] = [19, 20, 21];

/// SGPRs that prologues have, and before them questions for what the launch is told.
pub(super) fn sgprs(told: bool) -> u32 {
    if told { TABLE as u32 + TABLE_LEN as u32 } else { 22 }
}

/// The SGPRs that stand for the hardware's registers of ids: x, and y below z.
pub(super) const STANDING: [u16; 2] = [104, 105];

/// What a launch is told of where its parts begin is looked at by so many of them at a time, from this register on.
const TABLE: u16 = 24;
const TABLE_LEN: usize = 16;

/// A kernel of several: its code, its workgroups for a set of arguments, how many sets there are, and the level that it waits with.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    pub code: &'a KernelCode,
    pub grid: [u32; 3],
    /// How many workgroups there are along x, the only dimension, does not stand in the code: the launch is told.
    pub told: bool,
    /// One where that is so.
    pub sets: u32,
    pub level: u32,
}

impl Beside<'_> {
    /// Workgroups of a set.
    fn of_set(&self) -> u32 {
        self.grid.iter().fold(1, |n: u32, g| n.saturating_mul(*g))
    }

    /// Of all.
    pub fn workgroups(&self) -> u32 {
        self.of_set().saturating_mul(self.sets)
    }

    pub fn waves(&self, target: Target) -> u32 {
        self.workgroups().saturating_mul(self.code.workgroup_size / target.info().wave_size)
    }

    /// Bytes of a set's arguments, with so many of the launch's own.
    fn bytes(&self, own: u32) -> u32 {
        self.code.kernarg_bytes + 8 * own
    }
}

/// Arguments behind those of each set's kernel: where counters are, and what they come to.
fn own_args(parts: &[Beside]) -> u32 {
    match levels_of(parts) {
        1 => 0,
        _ => 1 + u32::from(is_told(parts)),
    }
}

/// The launch is told how many workgroups its parts have.
fn is_told(parts: &[Beside]) -> bool {
    parts.iter().any(|p| p.told)
}

/// The numbers of a launch's table of so many parts, one for each but the first, from the end: how many are asked for together.
fn table(parts: usize) -> Vec<usize> {
    let count = parts.saturating_sub(1);
    let rest = count % TABLE_LEN;
    let rest = (rest > 0).then(|| rest.next_power_of_two().max(2));
    rest.into_iter().chain(std::iter::repeat_n(TABLE_LEN, count / TABLE_LEN)).collect()
}

/// Arguments of [`begins`].
pub(super) fn begins_len(parts: usize) -> usize {
    table(parts).iter().sum::<usize>() / 2
}

/// What a launch whose parts have so many workgroups is told of where each but the first begins: two numbers in each argument, behind all others. Those of the last part come
/// last, and the first ones stand for nothing where they are more than there are parts.
pub(super) fn begins(workgroups: impl Iterator<Item = u32>) -> Vec<Address> {
    let mut firsts: Vec<u32> = Vec::new();
    let mut first = 0;
    for n in workgroups {
        firsts.push(first);
        first += n;
    }
    let len = 2 * begins_len(firsts.len());
    let mut all = vec![0; (len + 1).saturating_sub(firsts.len())];
    all.extend(firsts.into_iter().skip(1));
    all.chunks_exact(2).map(|pair| number_pair(pair[0], pair[1])).collect()
}

/// What parts of a level are told: what its counter wraps at, and how many waves count before.
pub(super) fn counts(target: Target, parts: &[Beside], level: u32) -> Address {
    let Counts { before, wraps } = Counts::of(target, parts, level);
    number_pair(wraps, before)
}

/// Two numbers as an argument.
fn number_pair(low: u32, high: u32) -> Address {
    Address { region: Region::Value, offset: u64::from(low) | u64::from(high) << 32 }
}

/// Levels of some parts.
fn levels_of(parts: &[Beside]) -> u32 {
    parts.last().map_or(0, |p| p.level + 1)
}

/// What follows a prologue: the kernel's code, with where it ends, or a branch to where it stands already, in another part.
enum Body {
    Code(Vec<u8>, Vec<usize>),
    Of(usize),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Body::Code(code, _) => code.len(),
            Body::Of(_) => 4,
        }
    }
}

/// Code that is written.
pub(super) struct Text {
    pub target: Target,
    pub code: Vec<u8>,
    pub instructions: u32,
}

pub(super) fn s(n: u16) -> Operand {
    Operand::Regs(Reg::s(n).into())
}

pub(super) fn imm(n: u32) -> Operand {
    Operand::Imm(u64::from(n))
}

impl Text {
    pub(super) fn new(target: Target) -> Text {
        Text { target, code: Vec::new(), instructions: 0 }
    }

    pub(super) fn push(&mut self, op: Op, dsts: &[Operand], srcs: &[Operand]) -> Option<()> {
        self.inst(&Inst::new(op, dsts, srcs))
    }

    pub(super) fn inst(&mut self, inst: &Inst) -> Option<()> {
        encode(self.target, inst, &mut self.code).ok()?;
        self.instructions += 1;
        Some(())
    }

    /// `to = a op b`.
    pub(super) fn set(&mut self, op: Op, to: u16, a: u16, b: Operand) -> Option<()> {
        self.push(op, &[s(to)], &[s(a), b])
    }

    /// Asks by load number `n` of those of a table behind so many bytes of arguments, and waits for what it gives.
    fn ask_table(&mut self, byte: u32, loads: &[usize], n: usize) -> Option<()> {
        let before: usize = loads[..n].iter().sum();
        let by = match loads[n] {
            2 => op::S_LOAD_DWORDX2,
            4 => op::S_LOAD_DWORDX4,
            8 => op::S_LOAD_DWORDX8,
            _ => op::S_LOAD_DWORDX16,
        };
        let (to, args) = (Regs::s(TABLE, loads[n] as u8), Regs::s(0, 2));
        self.push(by, &[Operand::Regs(to)], &[Operand::Regs(args), imm(byte + 4 * before as u32)])?;
        self.wait_for(&[by])
    }

    /// Arguments lie so many bytes further on.
    fn move_arguments(&mut self, by: Operand) -> Option<()> {
        self.set(op::S_ADD_U32, 0, 0, by)?;
        self.set(op::S_ADDC_U32, 1, 1, imm(0))
    }

    /// `to = from / by`, of numbers below `end`.
    fn divide(&mut self, to: u16, from: u16, by: u32, end: u32) -> Option<()> {
        if by.is_power_of_two() {
            return self.set(op::S_LSHR_B32, to, from, imm(by.trailing_zeros()));
        }
        if let Some((factor, shift)) = short_quotient(by, end) {
            self.set(op::S_MUL_I32, to, from, imm(factor))?;
            return self.set(op::S_LSHR_B32, to, to, imm(shift));
        }
        let (factor, shift) = kernels::magic(by);
        self.set(op::S_MUL_HI_U32, to, from, imm(factor))?;
        if shift > 0 { self.set(op::S_LSHR_B32, to, to, imm(shift)) } else { Some(()) }
    }

    /// `number` becomes what is left of it behind whole ones of `by`, of which there are `quotient`.
    fn leave(&mut self, number: u16, quotient: u16, by: u32) -> Option<()> {
        self.set(op::S_MUL_I32, WHOLE, quotient, imm(by))?;
        self.set(op::S_SUB_U32, number, number, s(WHOLE))
    }

    /// Waves behind the first ones, of so many workitems, end.
    fn end_others(&mut self, items: u32) -> Option<()> {
        let first_item = Operand::Regs(Reg::v(0).into());
        self.push(op::V_READFIRSTLANE_B32, &[s(NUMBER)], &[first_item])?;
        self.push(op::S_CMP_LT_U32, &[], &[s(NUMBER), imm(items)])?;
        self.push(op::S_CBRANCH_SCC1, &[], &[imm(1)])?;
        self.push(op::S_ENDPGM, &[], &[imm(0)])
    }

    /// Puts the ids of a part's workgroup, of one of so many workitems, and where its arguments are, where its code looks for them. `number` is its number in
    /// the launch. Where there are several levels it waits for its own one's turn.
    fn prologue(
        &mut self,
        part: &Beside,
        size: u32,
        number: Operand,
        (first, byte): (Operand, u32),
        waits: Option<(Kept, Level)>,
    ) -> Option<()> {
        if part.code.workgroup_size < size {
            self.end_others(part.code.workgroup_size)?;
        }
        match first {
            Operand::Imm(0) => self.push(op::S_MOV_B32, &[s(NUMBER)], &[number])?,
            _ => self.push(op::S_SUB_U32, &[s(NUMBER)], &[number, first])?,
        }
        if byte > 0 {
            self.move_arguments(imm(byte))?;
        }
        if part.sets > 1 {
            self.divide(SET, NUMBER, part.of_set(), part.workgroups())?;
            self.leave(NUMBER, SET, part.of_set())?;
            let bytes = part.bytes(waits.map_or(0, |(kept, _)| kept.args()));
            self.set(op::S_MUL_I32, SET, SET, imm(bytes))?;
            self.move_arguments(s(SET))?;
        }
        if let Some((kept, _)) = waits {
            self.ask_counters(kept, part.code.kernarg_bytes)?;
        }
        // What is left of the number, behind a dimension of it.
        let grid = if part.told { [u32::MAX, 1, 1] } else { part.grid };
        let mut end = if part.told { u32::MAX } else { part.of_set() };
        for (dim, to) in IDS.into_iter().enumerate() {
            let of = grid[dim];
            end = end.div_ceil(of.max(1));
            match (of, end) {
                (1, _) => self.push(op::S_MOV_B32, &[s(to)], &[imm(0)])?,
                (_, 1) => self.push(op::S_MOV_B32, &[s(to)], &[s(NUMBER)])?,
                _ => {
                    self.push(op::S_MOV_B32, &[s(to)], &[s(NUMBER)])?;
                    self.divide(NUMBER, to, of, end.saturating_mul(of))?;
                    self.leave(to, NUMBER, of)?;
                }
            }
        }
        if self.target.info().architected_sgprs {
            let [low, both] = STANDING;
            self.push(op::S_MOV_B32, &[s(low)], &[s(IDS[0])])?;
            self.set(op::S_LSHL_B32, both, IDS[2], imm(16))?;
            self.set(op::S_OR_B32, both, both, s(IDS[1]))?;
        } else {
            let wanted = part.code.wants_workgroup_id;
            let places = first_workgroup_id(self.target, 2, wanted.iter().filter(|w| **w).count() as u16)..;
            let ids = IDS.into_iter().zip(wanted).filter(|(_, wanted)| *wanted);
            ids.zip(places).try_for_each(|((id, _), to)| self.push(op::S_MOV_B32, &[s(to)], &[s(id)]))?;
        }
        waits.map_or(Some(()), |(kept, level)| self.wait_for_level(kept, level))
    }
}

/// Factor and shift of a product of 32 bits for a division by a constant, for all numbers below `end`; nothing where it would be longer.
fn short_quotient(by: u32, end: u32) -> Option<(u32, u32)> {
    let (by, last) = (u64::from(by), u64::from(end.saturating_sub(1)));
    // Rounded up, what the factor exceeds its share by never carries into a quotient.
    let fits = |shift: &u32| {
        let factor = (1u64 << shift).div_ceil(by);
        factor * last < 1 << 32 && (factor * by - (1 << shift)) * last < 1 << shift
    };
    let shift = (1..32).find(fits)?;
    Some(((1u64 << shift).div_ceil(by) as u32, shift))
}

/// The kernel's code, with ids in registers that can be written where the hardware's cannot; nothing where these are not free. Of several levels each
/// tells the next one: where the code ends, and stores that the whole device sees.
fn code_of(target: Target, kernel: &KernelCode, tells: bool) -> Option<(Vec<u8>, Vec<usize>)> {
    let architected = target.info().architected_sgprs;
    if !architected && !tells {
        return Some((kernel.code.clone(), Vec::new()));
    }
    if architected && kernel.sgprs > u32::from(STANDING[0]) {
        return None;
    }
    let other = |o: &Operand| {
        let stands = |(ttmp, to): (u16, u16)| (*o == Operand::Regs(Reg::ttmp(ttmp).into())).then(|| s(to));
        [9, 7].into_iter().zip(STANDING).find_map(stands).filter(|_| architected)
    };
    let (mut out, mut rest) = (Vec::with_capacity(kernel.code.len()), &kernel.code[..]);
    let mut ends = Vec::new();
    let decoder = Decoder::new(target, Mode::of(target));
    // What was found to stay as it is: unrolled loops repeat most of their instructions.
    let mut known: FxHashSet<u128> = FxHashSet::default();
    while !rest.is_empty() {
        let raw = decoder.decode(rest)?;
        let (bytes, others) = rest.split_at_checked(raw.len())?;
        rest = others;
        let policy = if tells { policy_of(target, raw.op()) } else { 0 };
        if tells && raw.op() == op::S_ENDPGM {
            ends.push(out.len());
        }
        // Most stay as they are, which shows without their operands.
        if policy == 0 && (!architected || known.contains(&raw.bits())) {
            out.extend_from_slice(bytes);
            continue;
        }
        let mut inst = raw.inst();
        let mut changed = false;
        for o in &mut inst.srcs {
            if let Some(other) = other(o) {
                (*o, changed) = (other, true);
            }
        }
        let old = inst.mods.get(ModName::Cpol).unwrap_or(0);
        if old | policy != old {
            inst.mods.set(ModName::Cpol, old | policy);
            changed = true;
        }
        let before = out.len();
        match changed {
            true => _ = encode(target, &inst, &mut out).ok()?,
            false => {
                known.insert(raw.bits());
                out.extend_from_slice(bytes);
            }
        }
        if out.len() != before + bytes.len() {
            return None;
        }
    }
    Some((out, ends))
}

/// Bytes of arguments that a launch has at most: what CUDA lets a kernel have, and so do HIP programs that come from there.
pub(super) const MOST_BYTES: usize = 4096;

/// Bytes that counters of levels begin at a multiple of.
const COUNTERS: usize = 256;

/// Of a part but the first, by which of the loads of a launch's table the question whether a workgroup is one of it finds where it begins, and where among what that has loaded.
fn place_in_table(parts: usize, part: usize) -> (usize, usize) {
    let loads = table(parts);
    // From the end, where the last part is.
    let mut back = parts - part;
    for (n, len) in loads.iter().enumerate().rev() {
        if back <= *len {
            return (n, len - back);
        }
        back -= len;
    }
    (0, 0)
}

/// True for a kernel that can be one of several. Workgroups that wait for each other are left to themselves: they count what is there, and are not to end a result.
pub(super) fn can_be_linked(target: Target, kernel: &KernelCode) -> bool {
    let waits = kernel.counters > 0 && kernel.sharing == [1; 3];
    let scratch = kernel.wants_scratch_resource || kernel.scratch_bytes > 0;
    let whole_waves = kernel.workgroup_size.is_multiple_of(target.info().wave_size);
    kernel.wants_kernarg && !scratch && !waits && whole_waves
}

/// One kernel that runs several side by side, those of each level when the level before has ended; nothing where they cannot be one. Levels come in order.
pub(super) fn linked(target: Target, parts: &[Beside]) -> Option<KernelCode> {
    let size = parts.iter().map(|p| p.code.workgroup_size).max()?;
    let total = parts.iter().fold(0u32, |n, p| n.saturating_add(p.workgroups()));
    let (levels, told, own) = (levels_of(parts), is_told(parts), own_args(parts));
    let of_parts: usize = parts.iter().map(|p| p.bytes(own) as usize * p.sets as usize).sum();
    let bytes = of_parts + if told { 8 * begins_len(parts.len()) } else { 0 };
    let fits = |p: &Beside| {
        let along_x = p.sets == 1 && p.grid[1..] == [1; 2];
        can_be_linked(target, p.code) && p.of_set() > 0 && (!p.told || along_x)
    };
    if !parts.iter().all(fits) || bytes > MOST_BYTES || total >= 1 << 31 {
        return None;
    }
    let kept = match levels {
        1 => None,
        _ => Some(Kept::of(target, parts.iter().map(|p| p.code), told)?),
    };
    let level_of = |p: &Beside| Level { number: p.level, counts: (!told).then(|| Counts::of(target, parts, p.level)) };
    let architected = target.info().architected_sgprs;
    let number = match architected {
        true => Operand::Regs(Reg::ttmp(9).into()),
        false => s(first_workgroup_id(target, 2, 1)),
    };
    // Prologues, where workgroups of the parts begin, and the code of each, or which part's it is.
    let (mut first, mut byte) = (0, 0);
    let mut blocks: Vec<(u32, Text, Body)> = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        let mut text = Text::new(target);
        // Where it begins stands in the register that the question whether the workgroup is one of it has looked at.
        let begins = match n.checked_sub(1).filter(|_| told) {
            Some(_) => s(TABLE + place_in_table(parts.len(), n).1 as u16),
            None => imm(first),
        };
        text.prologue(part, size, number, (begins, byte), kept.map(|k| (k, level_of(part))))?;
        let body = match parts[..n].iter().position(|other| std::ptr::eq(other.code, part.code)) {
            Some(other) => Body::Of(other),
            None => {
                let (code, ends) = code_of(target, part.code, kept.is_some())?;
                Body::Code(code, ends)
            }
        };
        blocks.push((first, text, body));
        first += part.workgroups();
        byte += part.bytes(own) * part.sets;
    }
    let mut tells = Text::new(target);
    if let Some(kept) = kept {
        tells.tell(kept, levels)?;
    }
    // Branches have distances that are known when all is laid out, and are as long for any.
    let branch = |text: &mut Text, op: Op, to: usize| -> Option<bool> {
        let distance = to as i64 - text.code.len() as i64;
        text.push(op, &[], &[Operand::Imm(((distance - 4) / 4) as u64)])?;
        Some(target.goes_astray(Some(distance)))
    };
    let asked = |nops: usize, starts: &[usize]| -> Option<(Text, bool)> {
        let (mut text, mut astray) = (Text::new(target), false);
        (0..nops).try_for_each(|_| text.push(op::S_NOP, &[], &[imm(0)]))?;
        let mut group = None;
        for (n, (first, ..)) in blocks.iter().enumerate().skip(1).rev() {
            if told {
                let (of, at) = place_in_table(parts.len(), n);
                if group.replace(of) != Some(of) {
                    text.ask_table(of_parts as u32, &table(parts.len()), of)?;
                }
                text.push(op::S_CMP_GE_U32, &[], &[number, s(TABLE + at as u16)])?;
            } else {
                text.push(op::S_CMP_LT_U32, &[], &[imm(first - 1), number])?;
            }
            astray |= branch(&mut text, op::S_CBRANCH_SCC1, starts.get(n).copied().unwrap_or(0))?;
        }
        Some((text, astray))
    };
    for nops in 0..8 {
        let mut at = asked(nops, &[])?.0.code.len();
        // Where each part begins, and its code.
        let (mut starts, mut codes) = (Vec::new(), Vec::new());
        for (n, (_, prologue, body)) in blocks.iter().enumerate() {
            // The first one follows the questions.
            let begin = at + prologue.code.len();
            let start = match body {
                Body::Code(..) if n > 0 => begin.next_multiple_of(LINE) - prologue.code.len(),
                _ => at,
            };
            starts.push(start);
            codes.push(start + prologue.code.len());
            at = start + prologue.code.len() + body.len();
        }
        let told = at;
        if told + tells.code.len() > MOST_CODE {
            return None;
        }
        let (mut text, mut astray) = asked(nops, &starts)?;
        for ((_, prologue, body), start) in blocks.iter().zip(&starts) {
            while text.code.len() < *start {
                text.push(op::S_NOP, &[], &[imm(0)])?;
            }
            text.append(prologue);
            match body {
                Body::Code(code, ends) => {
                    let mut from = 0;
                    for end in ends {
                        text.code.extend_from_slice(&code[from..*end]);
                        astray |= branch(&mut text, op::S_BRANCH, told)?;
                        from = end + 4;
                    }
                    text.code.extend_from_slice(&code[from..]);
                    text.instructions -= ends.len() as u32;
                }
                Body::Of(other) => astray |= branch(&mut text, op::S_BRANCH, codes[*other])?,
            }
        }
        text.append(&tells);
        if !astray {
            return Some(described(target, parts, text, (total, bytes as u32, kept)));
        }
    }
    None
}

/// What launches and the descriptor have to know of the code.
fn described(
    target: Target,
    parts: &[Beside],
    text: Text,
    (workgroups, bytes, kept): (u32, u32, Option<Kept>),
) -> KernelCode {
    let most = |of: fn(&KernelCode) -> u32| parts.iter().map(|p| of(p.code)).max().unwrap_or(0);
    let architected = target.info().architected_sgprs;
    let own = if architected { u32::from(STANDING[1]) + 1 } else { sgprs(is_told(parts)) };
    let (mut beside, mut counters, mut args) = (Vec::new(), 0, Vec::new());
    for p in parts {
        let KernelCode { sharing, flops, .. } = *p.code;
        for _ in 0..p.sets {
            let first = args.len();
            let of_launch = [Arg::Links, Arg::Number(Number::Counts)];
            args.extend(p.code.args.iter().chain(&of_launch[..own_args(parts) as usize]).copied());
            let args = args.len() - first;
            beside.push(Linked { args, grid: p.grid, sharing, counters, links: 0, before: 0, wraps: 0, flops });
            counters += p.code.counters;
        }
    }
    if is_told(parts) {
        args.extend(std::iter::repeat_n(Arg::Number(Number::Begins), begins_len(parts.len())));
    }
    // Those of levels follow what kernels have of their own.
    let levels = levels_of(parts);
    if kept.is_some() {
        let links = counters.next_multiple_of(COUNTERS);
        beside.iter_mut().for_each(|l| l.links = links);
        counters = links + levels::bytes(levels) as usize;
    }
    let codes: BTreeMap<*const KernelCode, u32> =
        parts.iter().map(|p| (std::ptr::from_ref(p.code), p.code.instructions)).collect();
    let sets = || parts.iter().flat_map(|p| (0..p.sets).map(move |_| p.code));
    let mut all = KernelCode {
        code: text.code,
        instructions: text.instructions + codes.values().sum::<u32>(),
        executed: most(|k| k.executed),
        vgprs: most(|k| k.vgprs).max(if kept.is_some() { levels::VGPRS } else { 0 }),
        agprs: most(|k| k.agprs),
        sgprs: most(|k| k.sgprs).max(own).max(kept.map_or(0, Kept::sgprs)),
        spills: most(|k| k.spills),
        lds_bytes: most(|k| k.lds_bytes),
        scratch_bytes: 0,
        kernarg_bytes: bytes,
        workgroup_size: most(|k| k.workgroup_size),
        waves_per_simd: 0,
        wants_scratch_resource: false,
        wants_kernarg: true,
        wants_workgroup_id: [!architected, false, false],
        grid: [workgroups, 1, 1],
        args,
        blobs: Vec::new(),
        flops: sets().map(|k| k.flops).sum(),
        workspace: 0,
        counters,
        sharing: [1; 3],
        rounds: 1,
        chain: beside,
    };
    all.waves_per_simd = target.occupancy(&all.resources(target)).waves_per_simd;
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_of_all_numbers_below_an_end_are_exact() {
        for end in [2u32, 3, 17, 255, 1000, 4099] {
            for by in (1..=end).filter(|n| !n.is_power_of_two()) {
                let (factor, shift) = short_quotient(by, end).unwrap();
                assert!((0..end).all(|n| (n * factor) >> shift == n / by), "{by} below {end}");
            }
        }
        assert!(short_quotient(1_000_003, 1 << 30).is_none());
    }
}
