//! Products of a few rows with weights of a few bits, bound by memory: each byte of the weights is read once.
//!
//! A team of workitems, a power of two, takes some columns together; each of its members reads 16 bytes of a column at a
//! time, so that the team reads a run of it, and multiplies them by the same elements of each row, which it has read once for
//! all its columns. Numbers become floats four (as bytes of a word) or two at a time: behind a mask the halves of a word are
//! the last bits of f16 numbers from 1024 on, which dot products take as they are once that is subtracted. What is
//! scaled is a block's sum; zero points cost a sum of the data for each block.
//!
//! Where there are matrix instructions several rows are theirs ([`tiles`]). Rows that are normalised first every workgroup normalises for itself, while its first weights come ([`rows`]).

mod exchange;
mod rows;
mod tiles;

use super::address::{self, Offset};
use super::choice::Machine;
use super::error::{Reason, Res};
use super::linked::Link;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, lanes, linked, small};
use crate::graph::fused::{Packed, StepKind, Zeros};
use crate::mir::{Buffer, Builder, Gen, MInst, Part, Type, dot_instruction};
use crate::tensor::DType;
use barewave_isa::op;
use exchange::Exchange;
use half::f16;
use rows::Rows;
use std::collections::VecDeque;
use tiles::Tiles;

/// Bytes of a column that a workitem reads at a time.
const RUN: u32 = 16;

/// Runs of a column that a workitem reads, where the team can grow instead.
const RUNS: u32 = 8;

/// Waves that a compute unit needs to keep memory busy, and runs that are too many to be asked for at once.
const WAVES: u32 = 8;
const FAR: u32 = 5;

/// Bits of an f16 number behind the first one.
const MANTISSA: u32 = 10;

/// Who multiplies what.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Workitems that share columns.
    team: u32,
    /// Columns of a team.
    columns: u32,
    /// Runs of each column that a workitem reads.
    runs: u32,
    workgroup: u32,
    /// The step shares its launch, and workgroups of other steps have room beside it.
    beside: bool,
}

impl Plan {
    /// As few workitems as keep memory busy, so that what is read of the data serves several columns. None where the team
    /// would have to be too large.
    fn of(cx: &Cx, p: &Packed, rows: usize, n: usize) -> Option<Plan> {
        let target = cx.target;
        let info = target.info();
        let wave = info.wave_size;
        let all = (p.depth / p.together()) as u32;
        let sums = (rows * p.of_column()) as u32;
        // Steps that share a launch share what registers there are, too.
        let linked = cx.link.is_some();
        let lines = if linked { LINES_LINKED } else { u32::MAX };
        let fits = |c: &u32| n.is_multiple_of(*c as usize) && c * sums <= 16 && c * p.of_column() as u32 <= lines;
        let mut columns = [4, 2, 1].into_iter().find(fits)?;
        let mut team = 16;
        while all.div_ceil(team) > RUNS {
            team *= 2;
        }
        let waves = |team: u32, columns: u32| n as u64 * u64::from(team) / u64::from(columns * wave);
        let [enough, few] = [WAVES, if linked { WAVES_LINKED } else { WAVES }].map(|w| u64::from(w * target.cus()));
        // Several waves of a workgroup that shares its launch are a team only if all are.
        let most = if linked { wave } else { lanes::MOST };
        loop {
            let now = waves(team, columns);
            match (all.div_ceil(team), columns) {
                (FAR.., _) if team < most && now < enough => team *= 2,
                _ if now >= few => break,
                (3.., _) if team < most => team *= 2,
                (_, 2..) => columns /= 2,
                (2, _) if team < most => team *= 2,
                _ => break,
            }
        }
        // Workgroups of steps that share a launch are equal.
        if linked && team > wave {
            team = if team >= linked::ITEMS { linked::ITEMS } else { wave };
        }
        // Nearly as many workgroups of steps around find a place beside this one's.
        let room = u64::from(target.cus() * info.simds * (info.vgprs_per_simd / REGISTERS_LINKED));
        let beside = linked && 4 * room >= 7 * waves(team, columns);
        (team <= lanes::MOST).then(|| {
            let groups = |size: u32| n as u64 * u64::from(team) / u64::from(columns * size);
            // Teams of several waves meet in LDS, one of them in a workgroup.
            let mut workgroup = if team > wave { team } else { linked::ITEMS };
            while cx.link.is_none() && workgroup > wave.max(team) && groups(workgroup) < u64::from(2 * target.cus()) {
                workgroup /= 2;
            }
            Plan { team, columns, runs: all.div_ceil(team), workgroup, beside }
        })
    }
}

/// A kernel being written.
struct Product<'a> {
    cx: &'a Cx<'a>,
    p: &'a Packed,
    plan: Plan,
    rows: u32,
    /// Data come in pairs of f16 for dot products.
    dots: bool,
    /// Number in the team.
    member: Part,
    /// First column of the team.
    column: Part,
    /// Lanes that have columns, where not all do.
    inside: Option<Part>,
    /// The rows as the workgroup keeps them, where it normalises them, and where that is in LDS.
    kept: Option<(Rows, u32)>,
    /// Else, how workitems get their data of each other, where they do.
    exchange: Option<Exchange>,
}

/// A run of each column, and what goes with it, on its way from memory.
struct Run {
    /// Lanes that have the run, where not all do.
    mask: Option<Part>,
    /// Which of the team's runs.
    number: u32,
    /// Packed numbers of each column.
    words: Vec<Part>,
    /// Scales of each column, by block of the run.
    scales: Vec<Vec<Part>>,
    /// Zero points likewise, where they are read.
    zeros: Vec<Vec<Part>>,
    /// The data of each row, where they are read ahead.
    data: Vec<Vec<Part>>,
}

/// Dwords of a run, and of all runs on their way, that a workitem has room for.
const DATA: u32 = 32;
const AHEAD: u32 = 112;

/// The same where steps share a launch: all have as many registers as one of them needs, and more workgroups at once hide that each waits. Where the device has room for
/// nearly as many workgroups of other steps beside them, and most of a step's weights are there when it goes on, memory has enough to do meanwhile.
const AHEAD_LINKED: u32 = 56;
const AHEAD_BESIDE: u32 = 76;
const LINES_LINKED: u32 = 4;

/// Registers that workitems of such steps have, and waves of a compute unit: steps around keep memory busy, too, and columns share what is read of the data.
const REGISTERS_LINKED: u32 = 128;
const WAVES_LINKED: u32 = 5;

/// Clocks that a workgroup takes longer where it normalises rows before it multiplies them: its waves wait for them and for each other
/// while the first weights come. By the cycle model, of launches with this beginning and without.
const NORMALISING: f64 = 1500.0;

/// Waves of a SIMD that go on beside each other.
const BESIDE: u32 = 4;

/// Rows up to which any target multiplies with packed weights.
const FEW: usize = 8;

/// True for products of few rows, and of those more that matrix instructions take.
pub(super) fn multiplies(cx: &Cx) -> bool {
    let StepKind::Packed(p) = &cx.step.kind else { return true };
    cx.step.output.view.dims[0] <= FEW || Tiles::of(cx, p).is_some()
}

/// True where a product that normalises its rows takes less time than it and the normalisation as launches of their own.
pub(super) fn begins(cx: &Cx) -> bool {
    let StepKind::Packed(p) = &cx.step.kind else { return false };
    if Tiles::of(cx, &Packed { rows: None, ..p.clone() }).is_some() {
        return false;
    }
    let dims = &cx.step.output.view.dims;
    let Some(plan) = Plan::of(cx, p, dims[0], dims[1]) else { return false };
    let info = cx.target.info();
    let items = dims[1] as u64 * u64::from(plan.team) / u64::from(plan.columns);
    let at_once = u64::from(info.cus * info.simds * BESIDE * info.wave_size);
    let machine = Machine::of(cx.target);
    let again = items.div_ceil(at_once) as f64 * NORMALISING;
    Rows::of(cx, p, &plan, dots(cx)).is_some() && again < machine.launch + 2.0 * machine.ends
}

/// True for products that can share a launch.
pub(super) fn chains(cx: &Cx) -> bool {
    let StepKind::Packed(p) = &cx.step.kind else { return false };
    let dims = &cx.step.output.view.dims;
    let link = Link { number: 1, before: Some(1), follows: true };
    let cx = &Cx { link: Some(link), ..*cx };
    let plan = || Plan::of(cx, p, dims[0], dims[1]);
    let kept = |plan: &Plan| p.rows.is_none() || Rows::of(cx, p, plan, dots(cx)).is_some();
    Tiles::of(cx, p).is_none() && plan().is_some_and(|plan| kept(&plan))
}

/// Data come in pairs of f16 for dot products.
fn dots(cx: &Cx) -> bool {
    cx.dtype(Arg::Input(0)) == DType::F16 && dot_instruction(cx.target, [Type::F16; 2], Type::F32).is_some()
}

pub(super) fn lower(cx: &Cx, p: &Packed) -> Res<Vec<Kernel>> {
    let dims = &cx.step.output.view.dims;
    let (rows, n) = (dims[0], dims[1]);
    if let Some(tiles) = Tiles::of(cx, p) {
        return tiles.lower();
    }
    let plan = Plan::of(cx, p, rows, n).ok_or(Reason::Malformed("a column that no workgroup holds"))?;
    let mut w = cx.kernel(plan.workgroup);
    let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
    let member = w.b.and(item, plan.team - 1);
    let teams = plan.workgroup / plan.team;
    let mut team = group;
    if teams > 1 {
        let of_group = w.b.shr(item, plan.team.trailing_zeros());
        team = w.b.mad(group, teams, of_group);
    }
    let count = n as u32 / plan.columns;
    let inside = (!count.is_multiple_of(teams)).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[count.into(), team.into()]));
    let column = if plan.columns > 1 { w.b.mul(team, plan.columns) } else { team };
    let dots = dots(cx);
    let kept = match p.rows {
        Some(_) => {
            let rows = Rows::of(cx, p, &plan, dots).ok_or(Reason::Malformed("rows that no workgroup keeps"))?;
            let at = w.b.lds(rows.bytes());
            Some((rows, at))
        }
        None => None,
    };
    let mut product = Product { cx, p, plan, rows: rows as u32, dots, member, column, inside, kept, exchange: None };
    // Where a step waits for its data it waits for all lines that loads touch. Teams of several waves meet in LDS, which has no more room then.
    if cx.link.is_some() && plan.team == cx.target.info().wave_size && product.early() {
        product.exchange = Exchange::of(&mut w, product.dwords() * RUN, member, plan.workgroup);
    }
    let sums = product.sums(&mut w)?;
    product.finish(&mut w, sums)?;
    let grid = [count.div_ceil(teams), 1, 1];
    Ok(vec![w.finish(grid, 2 * (rows * n * p.of_column() * p.depth) as u64)])
}

/// The numbers of a word, or what they are above the `middle` one, as pairs of f16: `(j, j + half)`. The last bits of an f16 number from 1024 on are ones; those in
/// front of them are ones of numbers from a smaller power of two on, so that not each has to be shifted.
fn pairs(b: &mut Builder, bits: u32, middle: bool, word: Part) -> Vec<Part> {
    let field = (1u32 << bits) - 1;
    let beside = MANTISSA / bits;
    let twice = |x: f32| u32::from(f16::from_f32(x).to_bits()) * 0x1_0001;
    let mut shifted = word;
    let number = |j: u32| {
        let place = j % beside * bits;
        if j > 0 && place == 0 {
            shifted = b.shr(word, j * bits);
        }
        let from = (1u32 << (MANTISSA - place)) as f32;
        let less = b.scalar(twice(-from - if middle { (1u32 << (bits - 1)) as f32 } else { 0.0 }));
        let power = b.to_vector(twice(from));
        let x = small::and_or(b, shifted, (field << 16 | field) << place, power);
        b.op(Gen::Add.of(Type::PkF16), &[x.into(), less.into()])
    };
    (0..16 / bits).map(number).collect()
}

/// The dwords of some registers, one by one.
fn one_by_one(parts: &[Part]) -> Vec<Part> {
    parts.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i))).collect()
}

impl Product<'_> {
    /// A byte offset, out of bounds for lanes that have no columns, or none of a run.
    fn guarded(&self, w: &mut Writer, at: Part, mask: Option<Part>) -> Part {
        let mask = match (mask, self.inside) {
            (Some(a), Some(b)) => Some(w.b.mask_and(a, b)),
            (a, b) => a.or(b),
        };
        mask.map_or(at, |m| w.b.guard(m, at))
    }

    /// The byte that an operand begins at.
    fn start(&self, arg: Arg) -> u32 {
        let Arg::Input(i) = arg else { return 0 };
        (self.cx.step.inputs[i].view.offset * self.cx.dtype(arg).size() as i64) as u32
    }

    /// The sum of each row and column, of a workitem's share.
    fn sums(&self, w: &mut Writer) -> Res<Vec<Part>> {
        let (rows, columns) = (self.rows, self.plan.columns);
        let sums: Vec<Part> = (0..rows * self.lines().len() as u32).map(|_| w.b.to_vector(0f32)).collect();
        let pitch = (self.p.depth * self.p.bits as usize / 8) as u32;
        let weights = w.buffer(self.cx, Arg::Input(1))?;
        let columns = columns * self.p.of_column() as u32;
        let start = self.start(Arg::Input(1));
        let own = w.b.mul(self.member, RUN);
        let first = w.b.mad(self.column, pitch, own);
        let all = (self.p.depth / self.p.together()) as u32;
        let early = self.early();
        let (each, data) = (columns * (RUN / 4 + 1), if early { self.own_data() } else { 0 });
        let runs = self.plan.runs;
        // Data of a step of the same launch come behind the wait: where all weights are there by then only the next ones' have to.
        let held = |ahead: u32| match ahead >= data + runs * each {
            true if self.cx.waits() => runs,
            _ => (ahead / (each + data)).clamp(1, runs),
        };
        let distance = match self.cx.link {
            Some(_) if self.plan.beside && 4 * held(AHEAD_BESIDE) >= 3 * runs => held(AHEAD_BESIDE),
            Some(_) => held(AHEAD_LINKED),
            None => held(AHEAD),
        };
        let near = if self.cx.waits() && distance == runs { 1 } else { distance };
        let load = |w: &mut Writer, number: u32| -> Res<Run> {
            let mask = ((number + 1) * self.plan.team > all).then(|| {
                let left = all.saturating_sub(number * self.plan.team);
                w.b.op(Gen::CmpGt.of(Type::U32), &[left.into(), self.member.into()])
            });
            let at = self.guarded(w, first, mask);
            let ahead = start + number * self.plan.team * RUN;
            let words = self.lines().into_iter().map(|c| w.b.load(weights, 4, at, 0u32, ahead + c * pitch)).collect();
            let mut run = Run { mask, number, words, scales: Vec::new(), zeros: Vec::new(), data: Vec::new() };
            for k in self.blocks() {
                run.scales.push(self.blockwise(w, &run, k, Arg::Input(2))?);
                run.zeros.extend(self.zero_points(w, &run, k)?);
            }
            Ok(run)
        };
        // Before the products of run `number - distance`.
        let load_data = |w: &mut Writer, coming: &mut VecDeque<Run>, number: u32| -> Res<()> {
            let due = |r: &&mut Run| early && r.data.is_empty() && r.number + distance <= number + near;
            for run in coming.iter_mut().filter(due) {
                run.data = self.raws(w, run)?;
            }
            Ok(())
        };
        // What a step of the same launch gives is there later than weights are.
        let mut waits = self.cx.waits();
        let mut held = match &self.kept {
            Some((rows, _)) if !waits => Some(rows.load(w, self.cx)?),
            _ => None,
        };
        let mut coming = VecDeque::new();
        for number in 0..self.plan.runs + distance {
            if number < self.plan.runs {
                coming.push_back(load(w, number)?);
            }
            if !waits {
                load_data(w, &mut coming, number)?;
            }
            if number + 1 < distance {
                continue;
            }
            if std::mem::take(&mut waits) {
                w.wait_for_step_before();
                if let Some((rows, _)) = &self.kept {
                    held = Some(rows.load(w, self.cx)?);
                }
                load_data(w, &mut coming, number)?;
            }
            if number >= distance
                && let Some(mut run) = coming.pop_front()
            {
                if let Some(e) = &self.exchange {
                    run.data = run.data.iter().map(|row| one_by_one(&e.own(w, row))).collect();
                }
                if let (Some(held), Some((rows, at))) = (held.take(), &self.kept) {
                    rows.keep(w, self.cx, held, *at)?;
                }
                self.add(w, &run, &sums)?;
            }
        }
        Ok(sums)
    }

    /// Dwords of all rows' data beside a run.
    fn own_data(&self) -> u32 {
        self.rows * self.dwords() * RUN / 4
    }

    /// Data are loaded ahead as weights are.
    fn early(&self) -> bool {
        self.own_data() <= DATA && self.kept.is_none()
    }

    /// Rows of the weights that a team sums, from its first one on.
    fn lines(&self) -> Vec<u32> {
        let all = self.cx.step.output.view.dims[1] as u32;
        (0..self.p.of_column() as u32).flat_map(|half| (0..self.plan.columns).map(move |c| half * all + c)).collect()
    }

    /// The starts of a run's blocks.
    fn blocks(&self) -> impl Iterator<Item = u32> + use<> {
        let together = self.p.together() as u32;
        (0..together).step_by(together.min(self.p.block as u32) as usize)
    }

    /// Dwords of a row's data beside a word of numbers.
    fn dwords(&self) -> u32 {
        32 / self.p.bits * self.cx.dtype(Arg::Input(0)).size() as u32 / 4
    }

    /// Adds the products of a run of each column.
    fn add(&self, w: &mut Writer, run: &Run, sums: &[Part]) -> Res<()> {
        let per_word = 32 / self.p.bits;
        let columns = run.words.len();
        let part = (self.p.together() as u32).min(self.p.block as u32);
        for (number, k) in self.blocks().enumerate() {
            let mut sums_of_block: Vec<Part> = (0..sums.len()).map(|_| w.b.to_vector(0f32)).collect();
            let zeros = self.zeros(w, run, number);
            let totals: Vec<Part> = match zeros {
                Some(_) => (0..self.rows).map(|_| w.b.to_vector(0f32)).collect(),
                None => Vec::new(),
            };
            for word in k / per_word..(k + part) / per_word {
                let factors: Vec<Vec<Part>> = run.words.iter().map(|c| self.factors(w, c.dword(word as u8))).collect();
                for row in 0..self.rows {
                    let data = self.data(w, run, row, word)?;
                    for (c, list) in factors.iter().enumerate() {
                        let sum = sums_of_block[row as usize * columns + c];
                        list.iter().zip(&data).for_each(|(f, x)| self.multiply(w, sum, *f, *x));
                    }
                    if let Some(total) = totals.get(row as usize) {
                        // 1, or two of them.
                        let one = w.b.to_vector(if self.dots { 0x3c00_3c00 } else { 1f32.to_bits() });
                        data.iter().for_each(|x| self.multiply(w, *total, one, *x));
                    }
                }
            }
            let t = self.cx.dtype(Arg::Input(2));
            for (c, scale) in run.scales[number].iter().enumerate() {
                let scale = match small::is_small(t) {
                    true => small::decode(&mut w.b, t, *scale),
                    false => w.b.convert(values::stored(t), Type::F32, *scale),
                };
                for row in 0..self.rows as usize {
                    let i = row * columns + c;
                    if let (Some(zeros), Some(total)) = (&zeros, totals.get(row)) {
                        let less = w.b.op(Gen::Mul.of(Type::F32), &[zeros[c].into(), (*total).into()]);
                        sums_of_block[i] = w.b.op(Gen::Sub.of(Type::F32), &[sums_of_block[i].into(), less.into()]);
                    }
                    w.b.fma_into(sums[i], sums_of_block[i], scale);
                }
            }
        }
        Ok(())
    }

    /// Adds the product of a factor and what stands beside it.
    fn multiply(&self, w: &mut Writer, sum: Part, f: Part, x: Part) {
        match dot_instruction(self.cx.target, [Type::F16; 2], Type::F32).filter(|_| self.dots) {
            Some(dot) => w.b.push(MInst::new(dot.op, &[sum.into()], &[f.into(), x.into(), sum.into()])),
            None => w.b.fma_into(sum, f, x),
        }
    }

    /// The numbers of a word as factors: pairs `(j, j + half)` for dot products; else, for each shift, those in the bytes.
    fn factors(&self, w: &mut Writer, word: Part) -> Vec<Part> {
        let bits = self.p.bits;
        if let Zeros::Floats(t) = self.p.zeros {
            let (pairs, power) = small::halves(&mut w.b, t, word);
            let half = pairs.len() as u32;
            let (times, values): (_, Vec<Part>) = if self.dots {
                (Gen::Mul.of(Type::PkF16), pairs)
            } else {
                let one = |i: u32| values::widened(&mut w.b, Type::F16, pairs[(i % half) as usize], i / half);
                (Gen::Mul.of(Type::F32), (0..2 * half).map(one).collect())
            };
            if power == 1.0 {
                return values;
            }
            let power = if self.dots { u32::from(f16::from_f32(power).to_bits()) * 0x1_0001 } else { power.to_bits() };
            let power = w.b.to_vector(power);
            return values.into_iter().map(|x| w.b.op(times, &[x.into(), power.into()])).collect();
        }
        if self.dots {
            return pairs(&mut w.b, bits, self.p.zeros == Zeros::Middle, word);
        }
        let field = (1u32 << bits) - 1;
        let each = 8 / bits;
        let bytes = [op::V_CVT_F32_UBYTE0, op::V_CVT_F32_UBYTE1, op::V_CVT_F32_UBYTE2, op::V_CVT_F32_UBYTE3];
        let shifted: Vec<Part> = (0..each)
            .map(|s| {
                let x = if s > 0 { w.b.shr(word, s * bits) } else { word };
                if each > 1 { w.b.and(x, field * 0x0101_0101) } else { x }
            })
            .collect();
        bytes
            .iter()
            .flat_map(|byte| shifted.iter().map(|x| (*byte, *x)).collect::<Vec<_>>())
            .map(|(byte, x)| w.b.op(byte, &[x.into()]))
            .collect()
    }

    /// All data of each row beside a run: of each of its members', or what members exchange.
    fn raws(&self, w: &mut Writer, run: &Run) -> Res<Vec<Vec<Part>>> {
        let Some(e) = &self.exchange else {
            return (0..self.rows).map(|row| self.raw(w, run, row, 0, RUN / 4)).collect();
        };
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let of_run = run.number * self.plan.team * self.dwords() * RUN;
        let all = (self.p.depth / self.p.together()) as u32;
        let members = run.mask.map(|_| all.saturating_sub(run.number * self.plan.team));
        Ok((0..self.rows).map(|row| e.load(w, buf, self.row(row) + of_run, members)).collect())
    }

    /// The byte that a row begins at.
    fn row(&self, row: u32) -> u32 {
        let (size, stride) = (self.cx.dtype(Arg::Input(0)).size() as u32, self.cx.step.inputs[0].view.strides[0]);
        self.start(Arg::Input(0)) + row * stride as u32 * size
    }

    /// The data of a row beside `count` words of numbers, as they lie in memory.
    fn raw(&self, w: &mut Writer, run: &Run, row: u32, word: u32, count: u32) -> Res<Vec<Part>> {
        let (arg, together) = (Arg::Input(0), self.p.together() as u32);
        let size = self.cx.dtype(arg).size() as u32;
        let buf = w.buffer(self.cx, arg)?;
        let own = w.b.mul(self.member, together * size);
        let at = self.guarded(w, own, run.mask);
        let imm = self.row(row) + run.number * self.plan.team * together * size + word * self.dwords() * 4;
        let dwords = count * self.dwords();
        let each = |d: u32| w.b.load(buf, (dwords - d).min(4) as u8, at, 0u32, imm + d * 4);
        let loaded: Vec<Part> = (0..dwords).step_by(4).map(each).collect();
        Ok(one_by_one(&loaded))
    }

    /// The elements of a row beside a word of numbers, in the order of [`Product::factors`].
    fn data(&self, w: &mut Writer, run: &Run, row: u32, word: u32) -> Res<Vec<Part>> {
        let (t, per_word, dwords) = (self.cx.dtype(Arg::Input(0)), 32 / self.p.bits, self.dwords());
        let raw = match run.data.get(row as usize) {
            Some(all) => all[(word * dwords) as usize..][..dwords as usize].to_vec(),
            None => match &self.kept {
                Some((rows, start)) => rows.word(w, *start, self.member, run.number * self.plan.team, row, word),
                None => self.raw(w, run, row, word, 1)?,
            },
        };
        if self.dots && self.kept.is_some() {
            return Ok(raw);
        }
        if !self.dots {
            let (from, per) = (values::stored(t), 4 / t.size() as u32);
            let one = |e: u32| values::widened(&mut w.b, from, raw[(e / per) as usize], e % per);
            return Ok((0..per_word).map(one).collect());
        }
        let half = per_word / 2;
        let pair = |j: u32| {
            let (low, high) = (raw[(j / 2) as usize], raw[((j + half) / 2) as usize]);
            let halves = if j.is_multiple_of(2) { 0x0504_0100u32 } else { 0x0706_0302 };
            w.b.op(op::V_PERM_B32, &[high.into(), low.into(), halves.into()])
        };
        Ok((0..half).map(pair).collect())
    }

    /// The zero points of each column's block `k` behind the start of a run as they lie in memory, where there are any; of
    /// packed ones the bytes, and behind them how far to shift them.
    fn zero_points(&self, w: &mut Writer, run: &Run, k: u32) -> Res<Option<Vec<Part>>> {
        Ok(match self.p.zeros {
            Zeros::Middle | Zeros::Floats(_) => None,
            Zeros::Values => Some(self.blockwise(w, run, k, Arg::Input(3))?),
            Zeros::Packed => {
                let buf = w.buffer(self.cx, Arg::Input(3))?;
                let block = self.block(w, run, k);
                let bit = w.b.mul(block, self.p.bits);
                let byte = w.b.shr(bit, 3u32);
                let mut list: Vec<Part> =
                    self.lines().into_iter().map(|c| self.byte(w, buf, byte, c, run.mask)).collect();
                list.push(w.b.and(bit, 7u32));
                Some(list)
            }
        })
    }

    /// What is to be subtracted from each column's numbers of a block as f32; none where the factors have it subtracted
    /// already.
    fn zeros(&self, w: &mut Writer, run: &Run, number: usize) -> Option<Vec<Part>> {
        match self.p.zeros {
            Zeros::Middle if self.dots => None,
            Zeros::Floats(_) => None,
            Zeros::Middle => {
                let middle = w.b.to_vector((1u32 << (self.p.bits - 1)) as f32);
                Some(vec![middle; self.lines().len()])
            }
            Zeros::Values => {
                let from = values::stored(self.cx.dtype(Arg::Input(3)));
                Some(run.zeros[number].iter().map(|x| w.b.convert(from, Type::F32, *x)).collect())
            }
            Zeros::Packed => {
                let (shift, bytes) = run.zeros[number].split_last()?;
                let one = |x: &Part| {
                    let x = w.b.op(Gen::Shr.of(Type::U32), &[(*x).into(), (*shift).into()]);
                    let x = w.b.and(x, (1u32 << self.p.bits) - 1);
                    w.b.convert(Type::U32, Type::F32, x)
                };
                Some(bytes.iter().map(one).collect())
            }
        }
    }

    /// A byte of a column's packed zero points.
    fn byte(&self, w: &mut Writer, buf: Buffer, byte: Part, c: u32, mask: Option<Part>) -> Part {
        let pitch = self.p.zero_bytes() as u32;
        let at = w.b.mad(self.column, pitch, byte);
        let at = self.guarded(w, at, mask);
        w.b.load_op(op::BUFFER_LOAD_UBYTE, buf, at, 0u32, self.start(Arg::Input(3)) + c * pitch)
    }

    /// The number of the block `k` behind the start of a run.
    fn block(&self, w: &mut Writer, run: &Run, k: u32) -> Part {
        let (block, together) = (self.p.block as u32, self.p.together() as u32);
        let first = run.number * self.plan.team;
        if block > together {
            let at = if first > 0 { w.b.add(self.member, first) } else { self.member };
            return w.b.shr(at, (block / together).trailing_zeros());
        }
        let per_run = together / block;
        let at = w.b.mul(self.member, per_run);
        let ahead = first * per_run + k / block;
        if ahead > 0 { w.b.add(at, ahead) } else { at }
    }

    /// What an operand says of each column's block `k` behind the start of a run, as it lies in memory.
    fn blockwise(&self, w: &mut Writer, run: &Run, k: u32, arg: Arg) -> Res<Vec<Part>> {
        let t = self.cx.dtype(arg);
        let (buf, blocks, size) = (w.buffer(self.cx, arg)?, self.p.blocks() as u32, t.size() as u32);
        let block = self.block(w, run, k);
        let at = w.b.mad(self.column, blocks, block);
        let at = w.b.mul(at, size);
        let at = self.guarded(w, at, run.mask);
        let load = match size {
            1 => op::BUFFER_LOAD_UBYTE,
            2 => op::BUFFER_LOAD_USHORT,
            _ => op::BUFFER_LOAD_DWORD,
        };
        let one = |c: u32| w.b.load_op(load, buf, at, 0u32, self.start(arg) + c * blocks * size);
        Ok(self.lines().into_iter().map(one).collect())
    }

    /// Adds up what the team has found and stores it.
    fn finish(&self, w: &mut Writer, sums: Vec<Part>) -> Res<()> {
        let sums = lanes::combine(w, self.plan.team, &sums, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| w.b.op(Gen::Add.of(Type::F32), &[(*x).into(), (*y).into()])).collect())
        })?;
        let first = w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), self.member.into()]);
        let (columns, of_row) = (self.plan.columns as usize, self.lines().len());
        for i in 0..self.rows as usize * columns {
            let (row, c) = (i / columns, i % columns);
            let mut sum = sums[row * of_row + c];
            if let Some(gate) = &self.p.gate {
                let none = |_: u32| Value::Word(0u32.into());
                let factor = expr::eval(&mut w.b, gate, &none, Some(Value::Word(sum.into())))?.reg(&mut w.b);
                let gated = sums[row * of_row + columns + c];
                sum = w.b.op(Gen::Mul.of(Type::F32), &[factor.into(), gated.into()]);
            }
            epilogue::finish(w, self.cx, Value::Word(sum.into()), |w, arg| {
                let view = self.cx.view(arg);
                let view = view.sliced(0, row, 1, 1).sliced(1, c, 1, 1);
                let at = address::offset(&mut w.b, &view, self.cx.dtype(arg).size(), &[None, Some(self.column)]);
                let reg = at.vector(&mut w.b);
                let reg = self.guarded(w, reg, Some(first));
                Ok(Offset { reg: Some(reg), imm: at.imm })
            })?;
        }
        Ok(())
    }
}
