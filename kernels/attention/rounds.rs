//! The loop over keys. A tile of keys has two halves: while the scores of one are multiplied, those of the half before become
//! weights, and while its values are added by weight the scores that have just come are looked through for their maximum. So
//! products always have something beside them that does not depend on them, for the shadow of matrix instructions, or just so
//! that nothing waits for a result. A round has four phases:
//!
//! | phase | products | beside them | behind the barrier in its midst |
//! |---|---|---|---|
//! | 0 | scores of the tile's second half | weights of the first half; V goes to LDS | V may be read, K written |
//! | 1 | values of the first half | the rest of these weights; the next K goes to LDS; maximum | the next K may be read |
//! | 2 | scores of the next tile's first half | weights of the second half | |
//! | 3 | values of the second half | the rest of these weights; maximum | V may be written |
//!
//! Before the phases 0 and 2 results are scaled down where the maximum has grown: all values of what has weights are added
//! then. What products read comes from LDS some reads ahead, to registers in turn (a ring), on across phases and rounds. K and V
//! come from memory a whole round before they are written to LDS.
//!
//! Where there are few keys, or many waves hide what one waits for, what comes before the loop and is made for nothing behind its
//! end costs more than it gives: then a round is a tile, one thing after the other ([`plain`]).

mod plain;

use super::super::Writer;
use super::super::error::Res;
use super::super::lanes::Across;
use super::super::loader::Loader;
use super::super::tile::Layout;
use super::{COARSE, Flash, LOWEST, Operands, SLACK};
use crate::mir::{Builder, Code, Gen, Lds, MInst, Opnd, Part, Pipeline, RegClass, Type, dot_instruction};
use barewave_isa::{Target, op};
use std::ops::Range;

/// Registers that reads from LDS have in turn, about, and reads on their way at most.
pub(super) const RING: u32 = 32;
const MOST_READS: u32 = 8;

/// Pieces that reads are ahead by when one for each is enough.
const FAR: usize = 4;

/// Two f16, each of them 1.
const ONES: u32 = 0x3c00_3c00;

/// Parts of LDS.
const K_PART: Lds = Lds::Part { buffer: 0, phase: 0 };
const V_PART: Lds = Lds::Part { buffer: 1, phase: 0 };

/// Where the lane reads a tile in LDS.
pub(super) struct Place {
    /// Its first byte.
    pub address: Part,
    pub layout: Layout,
}

/// Scores of half a tile: as instructions leave them, and in vector registers.
struct Scores {
    sums: Vec<Part>,
    values: Vec<Part>,
}

/// Instructions that stand among the products of some pieces of a phase.
struct Beside {
    pieces: Range<usize>,
    insts: Vec<MInst>,
}

/// What is left of them, with the issue slots that all of them take, and those that have been given.
struct List {
    pieces: Range<usize>,
    insts: std::vec::IntoIter<MInst>,
    total: usize,
    given: usize,
}

/// A phase: its pieces, what may be read before and behind the barrier, and the piece before whose products that stands.
struct Phase<'a> {
    first: usize,
    count: usize,
    products: Products<'a>,
    limits: [usize; 2],
    barrier: Option<usize>,
    beside: Vec<Beside>,
}

/// Products of a phase.
enum Products<'a> {
    /// Scores of a half.
    Scores(usize),
    /// Values by weights, in cells.
    Values(&'a [Part]),
}

/// How far reads from LDS are ahead: pieces of a round and what of them has been read.
struct Ahead {
    /// Pieces of a round.
    pieces: usize,
    /// The last piece that each part of the ring was for.
    holder: Vec<Option<usize>>,
    issued: usize,
}

/// What the loop leaves.
pub(super) struct Summed {
    pub results: Vec<Part>,
    pub max: Part,
    pub sum: Part,
}

pub(super) struct Rounds<'a, 'g> {
    flash: &'a Flash<'g>,
    loaders: [Loader; 2],
    places: [Place; 2],
    queries: Vec<Part>,
    operands: Operands,
    scores: Vec<Scores>,
    ring: Vec<Part>,
    results: Vec<Part>,
    /// The running maximum and sum; the largest of the scores that come next, and by how many powers of two it exceeds the maximum.
    max: Part,
    sum: Part,
    largest: Part,
    growth: Part,
    /// What a difference of scores is multiplied with to be one of powers of two: changes with the maximum, see [`COARSE`].
    factor: Part,
    ones: Part,
    /// Tiles that end at this key or before it have nothing to hide; none where nothing ever is.
    seen: Option<Part>,
    across: Vec<Across>,
    /// Lanes whose keys of a cell come second.
    upper: Option<Part>,
}

impl<'a, 'g> Rounds<'a, 'g> {
    pub fn new(
        flash: &'a Flash<'g>,
        b: &mut Builder,
        loaders: [Loader; 2],
        places: [Place; 2],
        queries: Vec<Part>,
        operands: Operands,
    ) -> Self {
        let (plan, float) = (&flash.plan, flash.float);
        let per = (plan.form.side() * plan.form.side() / plan.lanes()) as u8;
        let set = |b: &mut Builder| {
            let sums: Vec<Part> = (0..plan.half() / plan.form.side()).map(|_| flash.sums(b, per)).collect();
            let values = sums.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i))).collect::<Vec<Part>>();
            let apart = b.function().vreg(sums[0].reg).class != RegClass::V;
            let values = if apart { values.iter().map(|_| b.v(1)).collect() } else { values };
            Scores { sums, values }
        };
        let scores = (0..plan.halves()).map(|_| set(b)).collect();
        let words = flash.words();
        let ring = (0..(RING / words).clamp(2, MOST_READS)).map(|_| b.v(words as u8)).collect();
        let results: Vec<Part> = (0..plan.tiles()).map(|_| flash.sums(b, per)).collect();
        for p in &results {
            (0..p.len).for_each(|i| b.copy_into(p.dword(i), 0u32));
        }
        let (max, sum) = (float.held(b, f64::NEG_INFINITY), b.v(if adds_in_pairs(b.target()) { 2 } else { 1 }));
        (0..sum.len).for_each(|i| b.copy_into(sum.dword(i), 0u32));
        let seen = flash.seen_by_all(b);
        let (largest, growth) = (b.v(1), b.v(1));
        let (factor, ones) = (float.held(b, flash.factor), b.scalar(ONES));
        let bits: Vec<u32> = flash.group_bits().collect();
        let across = bits.iter().map(|bit| Across::new(b, *bit)).collect();
        let upper = (flash.a.groups < flash.keys.groups).then(|| {
            let item = b.workitem_id();
            let bit = b.and(item, bits[0]);
            b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), bit.into()])
        });
        Rounds {
            flash,
            loaders,
            places,
            queries,
            operands,
            scores,
            ring,
            results,
            max,
            sum,
            largest,
            growth,
            factor,
            ones,
            seen,
            across,
            upper,
        }
    }

    /// Pieces of a phase of scores, and of one of values: a read and what it is multiplied by.
    fn pieces(&self) -> [usize; 2] {
        let plan = &self.flash.plan;
        let cells = plan.half() / plan.form.side() * self.per() / plan.run;
        [(plan.steps() * plan.half() / plan.form.side()) as usize, (cells * plan.tiles()) as usize]
    }

    /// Scores of a lane in a result of the instruction.
    fn per(&self) -> u32 {
        1 << self.flash.keys.position_bits
    }

    /// Writes the loop.
    pub fn write(self, w: &mut Writer) -> Res<Summed> {
        if self.flash.plan.ahead { self.write_ahead(w) } else { self.write_plain(w) }
    }

    fn write_ahead(mut self, w: &mut Writer) -> Res<Summed> {
        let (keys, [of_scores, of_values]) = (self.flash.plan.keys, self.pieces());
        let zero = w.b.scalar(0);
        let first = self.flash.key(&mut w.b, zero);
        self.loaders[0].issue(&mut w.b, first);
        self.loaders[1].issue(&mut w.b, zero);
        w.b.in_lds(K_PART);
        self.loaders[0].commit(&mut w.b, 0);
        w.b.in_lds(Lds::Any);
        w.b.barrier();
        let second = w.b.add(first, keys);
        self.loaders[0].issue(&mut w.b, second);
        for piece in 0..of_scores {
            let read = self.ring[piece % self.ring.len()];
            self.read(&mut w.b, of_scores + of_values + piece, read);
            self.product(&mut w.b, &Products::Scores(0), piece, read);
        }
        self.hide_apart(&mut w.b, 0, first);
        let own = self.look(w, 0, first)?;
        self.meet(&mut w.b, own);
        let early = (self.ring.len() - 1).min(of_scores);
        let mut ahead = Ahead { pieces: 2 * (of_scores + of_values), holder: vec![None; self.ring.len()], issued: 0 };
        while ahead.issued < early {
            self.read_ahead(&mut w.b, &mut ahead);
        }
        let limit = self.flash.limit(&mut w.b);
        let node = w.b.begin_loop("keys");
        let at = node.counter();
        self.round(w, at, &mut ahead)?;
        w.b.end_loop(node, limit, keys, Pipeline::Off, false);
        Ok(self.summed(w))
    }

    fn summed(self, w: &mut Writer) -> Summed {
        let float = self.flash.float;
        let own = (0..self.sum.len).map(|i| self.sum.dword(i));
        let own = own.reduce(|x, y| float.add(&mut w.b, x, y)).expect("there is a sum");
        let sum = self.over_groups(&mut w.b, own, Gen::Add, 0);
        Summed { results: self.results, max: self.max, sum }
    }

    fn round(&mut self, w: &mut Writer, at: Part, ahead: &mut Ahead) -> Res<()> {
        let (flash, keys, [of_scores, of_values]) = (self.flash, self.flash.plan.keys, self.pieces());
        let early = ahead.issued;
        let half = of_scores + of_values;
        for now in 0..2 {
            self.grow(&mut w.b);
            w.b.fix_order();
            let next = w.b.add(at, keys);
            let first = flash.key(&mut w.b, if now == 0 { at } else { next });
            let offset = flash.float.mul(&mut w.b, self.max, self.factor);
            let offset = flash.float.neg(&mut w.b, offset);
            let list = self.scores[now].values.clone();
            let (cells, run) = (list.len() / flash.plan.run as usize, flash.plan.run as usize);
            let (one, other) = list.split_at(cells.div_ceil(2) * run);
            let mut packed = Vec::new();
            let mut weights = |b: &mut Builder, list: &[Part]| {
                b.aside(|b| packed.extend(list.chunks(run).map(|cell| self.weights(b, cell, offset))))
            };
            let (mut one, mut other) = (weights(&mut w.b, one), weights(&mut w.b, other));
            let halfway = if other.is_empty() { of_values / 2 } else { cells.div_ceil(2) * of_values / cells };
            // As many for each product until they are needed.
            let all = one.len() + other.len();
            let early_ones = (all * of_scores / (of_scores + halfway)).saturating_sub(one.len());
            one.extend(other.drain(..early_ones));
            let wall = self.wall(of_scores);
            let mut beside = Vec::new();
            match now {
                0 => beside.push(Beside { pieces: 0..wall.div_ceil(2), insts: self.commit(&mut w.b, 1) }),
                _ => beside.push(Beside { pieces: 0..of_scores, insts: self.load(&mut w.b, 1, next) }),
            }
            beside.push(Beside { pieces: 0..of_scores, insts: one });
            self.phase(
                &mut w.b,
                ahead,
                Phase {
                    first: now * half,
                    count: of_scores,
                    products: Products::Scores(1 - now),
                    limits: [[of_scores, half], [2 * half; 2]][now],
                    barrier: (now == 0).then_some(wall),
                    beside,
                },
            );
            if self.hide_apart(&mut w.b, 1 - now, first) {
                w.b.fix_order();
            }
            let mut beside = Vec::new();
            if now == 0 {
                beside.push(Beside { pieces: 0..halfway.div_ceil(2), insts: self.commit(&mut w.b, 0) });
                let after = w.b.add(first, 2 * keys);
                beside.push(Beside { pieces: halfway..of_values, insts: self.load(&mut w.b, 0, after) });
            }
            beside.push(Beside { pieces: 0..halfway, insts: other });
            let from = w.b.here();
            let own = self.look(w, 1 - now, first)?;
            // What other lanes have comes while half of what is left is multiplied.
            let middle = (halfway + of_values).div_ceil(2);
            beside.push(Beside { pieces: halfway..middle, insts: w.b.cut(from) });
            let met = w.b.aside(|b| self.meet(b, own));
            beside.push(Beside { pieces: of_values..of_values, insts: met });
            self.phase(
                &mut w.b,
                ahead,
                Phase {
                    first: now * half + of_scores,
                    count: of_values,
                    products: Products::Values(&packed),
                    limits: [[half, 2 * half], [2 * half, 2 * half + early]][now],
                    barrier: Some(self.wall(of_values).max(halfway)),
                    beside,
                },
            );
        }
        while ahead.issued < 2 * half + early {
            self.read_ahead(&mut w.b, ahead);
        }
        w.b.in_lds(Lds::Any);
        Ok(())
    }

    /// The piece before whose products the barrier of a phase stands: all of the phase has been read, and products are left for
    /// the time that others take.
    fn wall(&self, pieces: usize) -> usize {
        (pieces / 2).max((pieces + 2).saturating_sub(self.ring.len())).min(pieces - 1)
    }

    /// What was loaded of K or V goes to LDS.
    fn commit(&self, b: &mut Builder, i: usize) -> Vec<MInst> {
        b.aside(|b| {
            b.in_lds([K_PART, V_PART][i]);
            self.loaders[i].commit(b, 0);
        })
    }

    /// Loads the tile of K or V from `key` on.
    fn load(&mut self, b: &mut Builder, i: usize, key: Part) -> Vec<MInst> {
        b.aside(|b| self.loaders[i].issue(b, key))
    }

    /// The products of a phase, reads ahead of them, and what stands beside. Reads go up to a limit before the barrier, and to another
    /// one behind it.
    fn phase(&self, b: &mut Builder, ahead: &mut Ahead, phase: Phase) {
        let Phase { first, count, products, limits, barrier, beside } = phase;
        let mut limit = limits[usize::from(barrier.is_none())];
        let mut lists: Vec<List> = beside.into_iter().map(List::new).collect();
        for piece in 0..count {
            lists.iter_mut().filter(|x| x.pieces.end <= piece).for_each(|x| b.append(x.insts.by_ref()));
            if barrier == Some(piece) {
                while ahead.issued < limit.min(first + count) {
                    assert!(ahead.is_free(first + piece), "a phase has been read before its barrier");
                    self.read_ahead(b, ahead);
                }
                b.in_lds(Lds::Any);
                b.barrier();
                limit = limits[1];
            }
            while ahead.issued <= first + piece {
                self.read_ahead(b, ahead);
            }
            let read = self.ring[ahead.slot(first + piece)];
            let list = b.aside(|b| self.product(b, &products, piece, read));
            let per = list.len();
            for (i, inst) in (1..).zip(list) {
                // One a piece, so that LDS is busy evenly, or a second one where they are not far ahead.
                let more = i == 1 || i == 2 && ahead.issued < first + piece + FAR;
                if more && ahead.issued < limit && ahead.is_free(first + piece) {
                    self.read_ahead(b, ahead);
                }
                b.append([inst]);
                for x in lists.iter_mut().filter(|x| x.pieces.contains(&piece)) {
                    x.give(b, (piece - x.pieces.start) * per + i, x.pieces.len() * per);
                }
            }
        }
        lists.iter_mut().for_each(|x| b.append(x.insts.by_ref()));
    }

    /// The next read.
    fn read_ahead(&self, b: &mut Builder, ahead: &mut Ahead) {
        let slot = ahead.slot(ahead.issued);
        self.read(b, ahead.issued % ahead.pieces, self.ring[slot]);
        ahead.holder[slot] = Some(ahead.issued);
        ahead.issued += 1;
    }

    /// Reads what a piece multiplies.
    fn read(&self, b: &mut Builder, piece: usize, into: Part) {
        let (flash, [of_scores, of_values]) = (self.flash, self.pieces());
        let (plan, bytes) = (&flash.plan, flash.plan.types.bytes());
        let half = of_scores + of_values;
        let (now, piece) = (piece / half, piece % half);
        let words = (plan.run * bytes / 4) as u8;
        let side = plan.form.side();
        let scores = piece < of_scores;
        let (count, place) =
            if scores { (flash.held() / plan.run, &self.places[0]) } else { (flash.cells(), &self.places[1]) };
        b.in_lds(if scores { K_PART } else { V_PART });
        for c in 0..count {
            let at = if scores {
                let tiles = (plan.half() / side) as usize;
                // Ahead, the scores of a phase are those of the other half.
                let part = (now + 1) % self.scores.len();
                let (step, tile) = ((piece / tiles) as u32, (part * tiles + piece % tiles) as u32);
                let k = (step * flash.a.groups * count + c) * plan.run;
                place.layout.at(k, flash.keys.of_slot(tile * self.per()))
            } else {
                let (cell, tile) =
                    ((piece - of_scores) as u32 / plan.tiles(), (piece - of_scores) as u32 % plan.tiles());
                let cell = now as u32 * (of_values as u32 / plan.tiles()) + cell;
                place.layout.at(cell * plan.run * flash.keys.groups + c * plan.run, tile * side)
            };
            b.lds_read_into(into.slice(c as u8 * words, words), place.address, at);
        }
    }

    /// Products of a piece of a phase with what was read for it.
    fn product(&self, b: &mut Builder, products: &Products, piece: usize, read: Part) {
        let (flash, plan) = (self.flash, &self.flash.plan);
        let words = (flash.a.own * plan.types.bytes() / 4) as u8;
        let of = |p: Part, i: u32| p.slice(i as u8 * words, words);
        match *products {
            Products::Scores(half) => {
                let tiles = self.scores[half].sums.len();
                let (step, sum) = (piece / tiles, self.scores[half].sums[piece % tiles]);
                for i in 0..flash.held() / flash.a.own {
                    let onto: Opnd = if step == 0 && i == 0 { 0u32.into() } else { sum.into() };
                    flash.product(b, sum, of(read, i), of(self.queries[step], i), onto);
                }
            }
            Products::Values(cells) => {
                let (cell, sum) = (cells[piece / self.results.len()], self.results[piece % self.results.len()]);
                for i in 0..plan.run * flash.cells() / flash.a.own {
                    flash.product(b, sum, of(read, i), of(cell, i), sum.into());
                }
            }
        }
    }

    /// Scores hidden before they are looked at, of a tile that has such: whether there may be one.
    fn hide_apart(&self, b: &mut Builder, half: usize, first: Part) -> bool {
        let Some(seen) = self.seen.filter(|_| self.hides_apart()) else { return false };
        let (flash, values) = (self.flash, &self.scores[half].values);
        let go_on = b.label();
        let last = b.add(first, (half as u32 + 1) * flash.plan.half() - 1);
        b.branch_lt(last, seen, go_on);
        flash.hide(b, values, (first, half as u32 * values.len() as u32));
        b.place(go_on, "look");
        true
    }

    /// Scores are what instructions leave, where these leave it.
    fn hides_apart(&self) -> bool {
        let Scores { sums, values } = &self.scores[0];
        self.flash.score.is_none() && sums[0].dword(0) == values[0]
    }

    /// Makes scores of what was multiplied, hides those that are none, and finds the lane's largest and that of another one of
    /// the query. `half` counts parts of a tile, of which there is one where nothing is ahead.
    fn look(&self, w: &mut Writer, half: usize, first: Part) -> Res<[Part; 2]> {
        let flash = self.flash;
        let Scores { sums, values } = &self.scores[half];
        let all = sums.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i)));
        let copied = all.zip(values).filter(|(sum, value)| sum != *value);
        copied.for_each(|(sum, value)| w.b.copy_into(*value, sum));
        let slot = half as u32 * values.len() as u32;
        if let Some(score) = flash.score {
            let scores = flash.evaluated(w, values.clone(), score, &self.operands, (first, slot))?;
            let changed = scores.iter().zip(values).filter(|(new, old)| new != old);
            changed.for_each(|(new, old)| w.b.copy_into(*old, *new));
        }
        let b = &mut w.b;
        if !self.hides_apart() {
            flash.hide(b, values, (first, slot));
        }
        let mut largest = values.clone();
        while largest.len() > 1 {
            largest = largest.chunks(3).map(|some| maximum(b, some)).collect();
        }
        let other = self.across[0].of(b, largest[0]);
        Ok([largest[0], other])
    }

    /// Combines the maximum with that of the other lanes of the query, and compares it with the running one.
    fn meet(&self, b: &mut Builder, [own, other]: [Part; 2]) {
        let float = self.flash.float;
        let both = float.op(b, Gen::Max, own, other);
        let largest = self.over_groups(b, both, Gen::Max, 1);
        let lowest = float.constant(b, LOWEST);
        b.emit(Gen::Max.of(Type::F32), &[self.largest.into()], &[lowest, largest.into()]);
        let growth = float.sub(b, self.largest, self.max);
        b.emit(Gen::Mul.of(Type::F32), &[self.growth.into()], &[self.factor.into(), growth.into()]);
    }

    /// Where the maximum has to grow, what was summed before is scaled down: rarely, but for the first tiles.
    fn grow(&self, b: &mut Builder) {
        let float = self.flash.float;
        let grows = float.compare_to(b, Gen::CmpGt, self.growth, SLACK);
        let go_on = b.label();
        b.branch_if_none(grows, go_on, "grow");
        let new = float.op(b, Gen::Max, self.max, self.largest);
        let gone = float.sub(b, self.max, new);
        let gone = float.mul(b, self.factor, gone);
        let shrink = b.op(Gen::Exp2.of(Type::F32), &[gone.into()]);
        b.copy_into(self.max, new);
        let opposite = float.neg(b, new);
        let size = float.op(b, Gen::Max, new, opposite);
        let far = float.compare_to(b, Gen::CmpGt, size, COARSE / self.flash.factor.min(1.0));
        let near = float.held(b, self.flash.factor);
        let factor = float.select(b, far, 1.0f32, near);
        b.copy_into(self.factor, factor);
        for p in self.results.iter().chain([&self.sum]) {
            self.flash.scale(b, *p, shrink);
        }
        b.place(go_on, "weights");
    }

    /// A cell's scores become weights, `2^(factor (score - maximum))`, are added up, and are packed in the type that is multiplied.
    fn weights(&self, b: &mut Builder, cell: &[Part], offset: Part) -> Part {
        let float = self.flash.float;
        let of = |b: &mut Builder, score: &Part| {
            let (x, weight) = (float.fma(b, *score, self.factor, offset), b.v(1));
            b.emit(Gen::Exp2.of(Type::F32), &[weight.into()], &[x.into()]);
            weight
        };
        let weights: Vec<Part> = cell.iter().map(|s| of(b, s)).collect();
        let t = self.flash.plan.types.compute;
        let packed = packed(b, t, &weights);
        let sum: Opnd = self.sum.dword(0).into();
        match dot_instruction(b.target(), [t; 2], Type::F32) {
            // What is added is what is multiplied, so that how it was rounded does not matter.
            Some(_) if t == Type::F16 && self.sum.len > 1 => {
                for i in 0..packed.len {
                    let sum = self.sum.dword(i % self.sum.len);
                    b.emit(op::V_DOT2C_F32_F16, &[sum.into()], &[self.ones.into(), packed.dword(i).into()]);
                }
            }
            Some(dot) if t == Type::F16 => {
                (0..packed.len).for_each(|i| b.emit(dot.op, &[sum], &[packed.dword(i).into(), self.ones.into(), sum]));
            }
            _ => {
                let total = weights.into_iter().reduce(|x, y| float.add(b, x, y)).expect("a cell has scores");
                float.update(b, Gen::Add, self.sum.dword(0), total);
            }
        }
        if self.upper.is_some() { self.joined(b, packed) } else { packed }
    }

    /// The runs of both halves of the wave, that of the first half first.
    fn joined(&self, b: &mut Builder, own: Part) -> Part {
        let out = b.v(2 * own.len);
        let upper = self.upper.expect("halves of a wave that have different keys");
        // Two at a time stand side by side, so that they can be issued together.
        let all = own;
        for first in (0..all.len).step_by(2) {
            let own = all.slice(first, 2.min(all.len - first));
            let other = self.across[0].of_each(b, own);
            for (to, [no, yes]) in [(first, [own, other]), (all.len + first, [other, own])] {
                for i in 0..other.len {
                    let [no, yes] = [no, yes].map(|x| x.dword(i).into());
                    b.emit(op::V_CNDMASK_B32, &[out.dword(to + i).into()], &[no, yes, upper.into()]);
                }
            }
        }
        out
    }

    /// Combines what the lanes of a query have, but for those of the first so many bits, with which that has been done.
    fn over_groups(&self, b: &mut Builder, x: Part, by: Gen, done: usize) -> Part {
        self.across[done..].iter().fold(x, |x, across| {
            let other = across.of(b, x);
            self.flash.float.op(b, by, x, other)
        })
    }
}

impl Ahead {
    /// The part of the ring that a read goes to.
    fn slot(&self, read: usize) -> usize {
        read % self.pieces % self.holder.len()
    }
    /// What the next read overwrites has been multiplied, when this piece is the next one to be.
    fn is_free(&self, piece: usize) -> bool {
        self.holder[self.slot(self.issued)].is_none_or(|held| held < piece)
    }
}

impl List {
    fn new(beside: Beside) -> List {
        let total = beside.insts.iter().map(cost).sum();
        List { pieces: beside.pieces, insts: beside.insts.into_iter(), total, given: 0 }
    }
    /// Gives what belongs to the first `done` of `all` products.
    fn give(&mut self, b: &mut Builder, done: usize, all: usize) {
        while self.given * all < self.total * done {
            let Some(inst) = self.insts.next() else { return };
            self.given += cost(&inst);
            b.append([inst]);
        }
    }
}

/// Issue slots that an instruction takes: those of exponentials go through in quarters.
fn cost(inst: &MInst) -> usize {
    if matches!(inst.code, Code::Gen(g) if g.op == Gen::Exp2) { 4 } else { 1 }
}

/// Sums of products of neighbours are added to two registers in turn, as two such instructions are issued together.
fn adds_in_pairs(target: Target) -> bool {
    target.info().wave_size == 32 && target.has(op::V_DOT2C_F32_F16)
}

/// The largest of up to three numbers.
pub(super) fn maximum(b: &mut Builder, some: &[Part]) -> Part {
    match *some {
        [x, y, z] if b.target().has(op::V_MAX3_F32) => b.op(op::V_MAX3_F32, &[x.into(), y.into(), z.into()]),
        [x, ref rest @ ..] => rest.iter().fold(x, |x, y| b.op(Gen::Max.of(Type::F32), &[x.into(), (*y).into()])),
        [] => unreachable!("chunks are not empty"),
    }
}

/// Weights in the type that they are multiplied in: finite, and not negative.
pub(super) fn packed(b: &mut Builder, t: Type, list: &[Part]) -> Part {
    if t == Type::F32 {
        return list[0];
    }
    let both =
        if t == Type::F16 { [op::V_CVT_PK_F16_F32, op::V_CVT_PKRTZ_F16_F32] } else { [op::V_CVT_PK_BF16_F32; 2] };
    let both = both.into_iter().find(|op| b.target().has(*op));
    let out = b.v((list.len() / 2) as u8);
    for (i, two) in list.chunks(2).enumerate() {
        let to: Opnd = out.dword(i as u8).into();
        match both {
            Some(op) => b.emit(op, &[to], &[two[0].into(), two[1].into()]),
            None => {
                // Upper halves, of which a half of what follows makes the next one.
                let [x, y] = [0, 1].map(|e| b.op(Gen::Add.of(Type::U32), &[0x8000u32.into(), two[e].into()]));
                b.emit(op::V_PERM_B32, &[to], &[y.into(), x.into(), 0x0706_0302u32.into()]);
            }
        }
    }
    out
}
