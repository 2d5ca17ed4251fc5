//! Products by matrix instructions whose operands go from memory straight to LDS ([`loader`](super::loader)).
//!
//! No register holds what is on its way: they are for sums, of which a wave has more than elsewhere, and a tile that is larger asks
//! the second-level cache for less. LDS has two buffers. In a round a tile is multiplied, step by step. What a step multiplies is read while
//! the one before is multiplied: registers of the longer operand are read again as soon as no product asks for them, those of the shorter one
//! have two sets in turn where steps are even, and else are read among the last products.
//!
//! Some products into the last step of a round all of the tile has been read: there waves meet. Behind that the next tile is there, which has
//! had a round's time to come, and is read; and the one after it is asked for, into the buffer that is free from then on.

use super::choice::{Ending, Extents, Machine, Round};
use super::error::{Reason, Res};
use super::fragment::{across, down};
use super::gemm::{Multiplier, Operands, Places, Read};
use super::loader::is_of_whole_blocks;
use super::matrix::{self, Matrix, MatrixForm, rows_are_longer};
use super::rounds::{FEW_IN_SHADOW, TILES_FILLED, TILES_READ, sum_of_buffers};
use super::tile::{Form, Layout, Tile, Types};
use crate::mir::{Builder, Gen, Lds, MInst, Opnd, Part, Pipeline, Term, Type};
use barewave_isa::Target;
use barewave_isa::matrix::Fragment;
use std::collections::VecDeque;

/// Rows, columns, waves down and across.
const TILES: &[[u32; 4]] = &[
    [384, 256, 2, 2],
    [256, 384, 2, 2],
    [352, 256, 2, 2],
    [256, 352, 2, 2],
    [320, 256, 2, 2],
    [256, 320, 2, 2],
    [288, 256, 2, 2],
    [256, 288, 2, 2],
    [256, 256, 2, 2],
];

/// Results of the largest tiles of operands whose lines begin within lines of the cache.
const LARGEST: u32 = 256 * 256;

/// Bytes of a tile's lines along k.
const DEPTH: u32 = 128;

/// Rows and columns of the instruction: its lanes read from all banks of LDS.
const SIDE: usize = 16;

/// Registers of a workitem beside sums and operands.
const OTHERS: u32 = 24;

/// Clocks of a long matrix instruction.
const LONG: f64 = 32.0;

/// Products between what is read last and where waves meet.
const BEHIND: usize = 8;

/// Stages: loads, what waves meet for, and products.
const LOAD: u8 = 0;
const MEET: u8 = 1;
const MULTIPLY: u8 = 2;

/// The target has what operands take whose elements have so many bytes, with lines along k or along the width.
pub(super) fn takes(target: Target, bytes: u32, deep: [bool; 2]) -> bool {
    let reads = deep.iter().all(|d| *d) || Builder::reads_transposed(target, bytes).is_some();
    matches!(bytes, 1 | 2) && Builder::fills_lds(target) && reads
}

/// Tiles, and what a round of them takes; none where the product does not allow it.
pub(super) fn candidates(target: Target, types: Types, machine: &Machine, e: &Extents) -> Vec<(Tile, Round)> {
    let types = matrix::types_of(types);
    if !e.straight || !takes(target, types.bytes(), [e.deep.0, e.deep.1]) {
        return Vec::new();
    }
    let Some(form) = MatrixForm::of(target, types, SIDE, !e.apart) else { return Vec::new() };
    let whole_lines = e.pitch.iter().all(|p| (*p as u32 * types.bytes()).is_multiple_of(machine.line));
    let of = |&[m, n, down, across]: &[u32; 4]| {
        if m * n > LARGEST && !whole_lines {
            return None;
        }
        let form = MatrixForm { waves: (down, across), straight: true, ..form };
        let (k, run) = (DEPTH / types.bytes(), 16 / types.bytes());
        let tile = Tile { types, m, n, k, run, buffers: 2, form: Form::Matrix(form) };
        let waves = down * across;
        let sides = [((m, down), e.deep.0), ((n, across), e.deep.1)];
        let whole = sides.into_iter().all(|(side, deep)| is_of_whole_blocks(&tile, side, deep, waves));
        let step = form.step(run);
        if !whole || !k.is_multiple_of(step) || form.side() as usize != SIDE {
            return None;
        }
        let lds = tile.buffers * (m + n) * DEPTH;
        let round = form.round(target, &tile, machine, e, (lds, true));
        let vgprs = Held::of(target, &tile, &form)?.vgprs;
        let round = Round { vgprs, meetings: 1, bare: 0.0, ending: Ending::default(), crowded: false, ..round };
        machine.holds(&round, form.accumulated(target, &tile)).then_some((tile, round))
    };
    TILES.iter().filter_map(of).collect()
}

/// Registers that operands have.
#[derive(Clone, Copy)]
struct Held {
    /// Instruction tiles of the longer operand that have registers of their own: those behind them take these in turn.
    own: u32,
    /// Sets of the shorter one's: two in turn, where the steps of a round are even and there is room.
    sets: u32,
    /// Registers of a workitem.
    vgprs: u32,
}

impl Held {
    /// As many as there is room for; none where that is too few.
    fn of(target: Target, tile: &Tile, form: &MatrixForm) -> Option<Held> {
        let (down, across) = form.waves;
        let lanes = form.op.shape.lanes as u32;
        let each = form.side() * form.step(tile.run) * tile.types.bytes() / 4 / lanes;
        let [rows, columns] = [tile.m / down, tile.n / across].map(|own| own / form.side());
        let (longer, shorter) = (rows.max(columns), rows.min(columns));
        let t = target.info();
        let most = t.named_vgprs() + form.accumulated(target, tile);
        let even = (tile.k / form.step(tile.run)).is_multiple_of(2);
        let sets = if even { 2 } else { 1 };
        let of = |own: u32, sets: u32| {
            let vgprs = tile.sums() + (own + sets * shorter) * each + OTHERS;
            (vgprs <= most).then_some(Held { own, sets, vgprs })
        };
        let least = (longer / 2 + 1).min(longer);
        let turns = (least..longer).rev();
        let all = [(longer, sets)].into_iter().chain(turns.map(|own| (own, sets))).chain([(longer, 1)]);
        all.chain((least..longer).rev().map(|own| (own, 1))).find_map(|(own, sets)| of(own, sets))
    }
}

/// What is read of an operand's tile.
struct Side {
    deep: bool,
    layout: Layout,
    /// Where the workitem reads: cells of even columns, and of odd ones where they have changed places.
    addresses: Vec<Part>,
    /// What each adds up to in both buffers.
    both: Vec<Part>,
}

impl Side {
    /// Of a tile that begins `base` bytes into a buffer; `swap` bytes are from one to the other.
    fn new(
        b: &mut Builder,
        tile: &Tile,
        (layout, deep): (Layout, bool),
        read: &Fragment,
        (base, swap): (u32, u32),
    ) -> Side {
        let item = b.workitem_id();
        let odd = layout.changes_places();
        let mut read = read.clone();
        if !deep {
            // Lanes that transpose together have some columns each of some k.
            let lanes = match tile.types.bytes() {
                1 => [across(8), down(1), down(2), down(4)],
                _ => [across(4), across(8), down(1), down(2)],
            };
            read.lane[..lanes.len()].copy_from_slice(&lanes);
        }
        let at = layout.address(b, &read, item);
        let at = b.add(at, base);
        let mut addresses = vec![b.to_vector(at)];
        if let Some(apart) = odd {
            let at = b.generic(Gen::Xor.of(Type::B32), &[addresses[0].into(), apart.into()]);
            addresses.push(b.to_vector(at));
        }
        let both = addresses.iter().map(|a| sum_of_buffers(b, *a, swap)).collect();
        Side { deep, layout, addresses, both }
    }

    /// Reads what a lane has in a step of the instruction tile `number`.
    fn read(&self, b: &mut Builder, tile: &Tile, by: &Matrix, step: u32, (number, to): (u32, Part)) {
        let (run, size) = (tile.run, tile.types.bytes());
        for c in 0..by.depth / run {
            let k = by.depth_of(step, c * run);
            let column = number * SIDE as u32;
            b.element(k, column);
            let words = |from: u32, count: u32| to.slice((c * 4 + from) as u8, count as u8);
            if self.deep {
                b.lds_read_into(words(0, 4), self.addresses[0], self.layout.at(k, column));
                continue;
            }
            let which = number as usize % self.addresses.len();
            let column = if self.addresses.len() > 1 { column - which as u32 * SIDE as u32 } else { column };
            for half in 0..2 {
                let at = self.layout.at(k + half * run / 2, column);
                b.lds_read_transposed_into(size, words(2 * half, 2), self.addresses[which], at);
            }
        }
    }

    /// What is read from here on is in the other buffer.
    fn turn(&self, b: &mut Builder) {
        for (address, both) in self.addresses.iter().zip(&self.both) {
            let at: Opnd = (*address).into();
            b.emit(Gen::Sub.of(Type::U32), &[at], &[(*both).into(), at]);
        }
    }
}

/// The loop over k, ready to be written.
struct Rounds<'a> {
    tile: &'a Tile,
    by: Matrix<'a>,
    sums: &'a [Part],
    /// Rows and columns.
    sides: [Side; 2],
    /// Registers of steps, in turn.
    sets: Vec<Read>,
    /// Instruction tiles of the longer operand that have registers of their own.
    own: usize,
    /// Where loads of each operand go, and what that adds up to in both buffers (scalar).
    filled: [(Part, Part); 2],
}

/// Multiplies a depth, a multiple of the tile's, and adds to sums.
pub(super) fn multiply(
    b: &mut Builder,
    (tile, form): (&Tile, &MatrixForm),
    ops: &mut Operands,
    depth: Opnd,
    sums: &[Part],
) -> Res<()> {
    let layouts = [ops.a.layout(), ops.b.layout()];
    let [size_a, size_b] = layouts.map(|l| l.bytes(tile.k));
    let swap = size_a + size_b;
    b.lds_of_at_least(tile.buffers * swap);
    ops.b.go_to(b, size_a);
    let reads = form.reads(tile);
    let side = |b: &mut Builder, layout: Layout, read: &Fragment, base: u32| {
        Side::new(b, tile, (layout, layout.is_deep()), read, (base, swap))
    };
    let rows = side(b, layouts[0], &reads.0, 0);
    let columns = side(b, layouts[1], &reads.1, size_a);
    let read = (rows.addresses[0], columns.addresses[0]);
    let places = Places { read, layout: (layouts[0], layouts[1]), b_base: 0, words: [None; 2] };
    let by = form.multiplier(tile, places);
    let held = Held::of(b.target(), tile, form).ok_or(Reason::Malformed("sums that leave operands no registers"))?;
    let in_turn = |all: &[Part]| (0..all.len()).map(|t| all[t % held.own as usize]).collect();
    let sets = by.sets(b, held.sets, true).into_iter().map(|(rows, columns)| {
        let longer = rows_are_longer(&(rows.clone(), columns.clone()));
        if longer { (in_turn(&rows), columns) } else { (rows, in_turn(&columns)) }
    });
    let sets = sets.collect();
    let filled = [ops.a.lds(), ops.b.lds()].map(|lds| {
        let twice = b.shl(lds, 1u32);
        (lds, b.add(twice, swap))
    });
    let own = held.own as usize;
    let rounds = Rounds { tile, by, sums, sides: [rows, columns], sets, own, filled };
    rounds.write(b, ops, depth);
    // Loads behind the last tile, too, have filled what others may use from here on.
    b.barrier();
    Ok(())
}

/// Instructions spread over products.
struct Due {
    each: f64,
    sum: f64,
}

impl Due {
    /// So many over so many.
    fn new(count: usize, products: usize) -> Due {
        Due { each: count as f64 / products.max(1) as f64, sum: 0.0 }
    }

    /// How many come behind the next product.
    fn now(&mut self) -> usize {
        self.sum += self.each;
        let now = self.sum.floor();
        self.sum -= now;
        now as usize
    }
}

/// Products in whose shadow loads are issued, with what asks whether they are in front of the end of the depth.
fn shadow(target: Target, loads: &VecDeque<MInst>) -> usize {
    2 * loads.iter().filter(|i| i.loads_to_lds(target)).count()
}

/// Something to read.
struct Reading {
    /// Products that come before it: they ask for its registers.
    free: usize,
    /// Products that it comes before, at the latest: the next one asks for it.
    due: usize,
    insts: Vec<MInst>,
}

type Reads = VecDeque<Reading>;

impl Rounds<'_> {
    /// Registers that a step multiplies.
    fn set(&self, step: u32) -> &Read {
        &self.sets[step as usize % self.sets.len()]
    }

    /// What is read for a step once so many products of the one before are issued, of which `freed` says behind which of them registers of the longer
    /// operand are free, and none before `first`: in the order in which it is needed.
    fn reads(&self, b: &mut Builder, step: u32, (freed, products): (&[usize], usize), first: usize) -> Reads {
        let set = self.set(step);
        let longer = rows_are_longer(set);
        let mut all = Vec::new();
        for of_rows in [!longer, longer] {
            let registers = if of_rows { &set.0 } else { &set.1 };
            let count = if of_rows == longer { self.own } else { registers.len() };
            for number in 0..count {
                let free = match of_rows == longer {
                    // Behind the last that has them in turn.
                    true => freed[number + (freed.len() - 1 - number) / self.own * self.own],
                    false if self.sets.len() > 1 => 0,
                    false => products - registers.len() + number + 1,
                };
                // It is for the next step, or, if it is free no earlier, for its first products.
                let due = match of_rows == longer {
                    true if number == 0 => 0,
                    true => freed[number - 1],
                    false => number,
                };
                let due = if free < products { usize::MAX } else { due };
                all.push(Reading { free: free.max(first), due, insts: self.read(b, step, (of_rows, number)) });
            }
        }
        all.sort_by_key(|r| r.free);
        all.into()
    }

    /// What is read of the longer operand while the step itself is multiplied.
    fn reads_meanwhile(&self, b: &mut Builder, step: u32, freed: &[usize]) -> Reads {
        let longer = rows_are_longer(self.set(step));
        let later = self.own..freed.len();
        let of = |number: usize| Reading {
            free: freed[number - self.own],
            due: freed[number - 1],
            insts: self.read(b, step, (longer, number)),
        };
        later.map(of).collect()
    }

    /// Reads an instruction tile's operand, of rows or of columns.
    fn read(&self, b: &mut Builder, step: u32, (of_rows, number): (bool, usize)) -> Vec<MInst> {
        let set = self.set(step);
        let (side, to) = if of_rows { (&self.sides[0], set.0[number]) } else { (&self.sides[1], set.1[number]) };
        b.aside(|b| {
            b.moves(Some(if of_rows { Term::A } else { Term::B }));
            side.read(b, self.tile, &self.by, step, (number as u32, to));
            b.moves(None);
        })
    }

    /// Products of a step, and behind which of them each register of the longer operand is free.
    fn products(&self, b: &mut Builder, step: u32) -> (Vec<MInst>, Vec<usize>) {
        let (from, mut freed) = (b.here(), Vec::new());
        self.by.multiply_in_turn(b, self.sums, (step, self.set(step)), |b, _| freed.push(b.here().1 - from.1));
        (b.cut(from), freed)
    }

    /// Asks for the first or the second operand's tile that begins at depth `k`, in a stage.
    fn load(&self, b: &mut Builder, (stage, which): (u8, usize), ops: &mut Operands, k: Part) -> VecDeque<MInst> {
        let load = |b: &mut Builder| {
            b.stage(stage);
            b.in_lds(TILES_FILLED);
            b.moves(Some([Term::A, Term::B][which]));
            [&mut ops.a, &mut ops.b][which].issue(b, k);
            b.moves(None);
            let (at, both) = self.filled[which];
            b.emit(Gen::Sub.of(Type::U32), &[at.into()], &[both.into(), at.into()]);
            b.in_lds(TILES_READ);
            b.stage(MULTIPLY);
        };
        b.aside(load).into()
    }

    /// Waves meet: all of the tile has been read, and the next one is there.
    fn meet(&self, b: &mut Builder) {
        self.sides.iter().for_each(|s| s.turn(b));
        b.stage(MEET);
        b.in_lds(Lds::Any);
        b.barrier();
        b.in_lds(TILES_READ);
        b.stage(MULTIPLY);
    }

    fn round(&self, b: &mut Builder, ops: &mut Operands, k: Part) {
        b.in_lds(TILES_READ);
        b.stage(MULTIPLY);
        let steps = self.by.steps();
        let (all, freed) = self.counted(b);
        // Of several steps the first has the second operand's loads, which are those that the round before has left: LDS takes what comes and
        // gives what is read all the time.
        let two = steps > 1;
        // Other waves read as much meanwhile: of short instructions every other one has a read beside it.
        let short = self.by.step_clocks(b.target()) / (all as f64) < LONG;
        let pace = if short && self.sets.len() > 1 { 2 } else { 1 };
        for step in 0..steps {
            let (products, _) = self.products(b, step);
            // What the step before has left.
            let mut reads: Reads = self.reads(b, step, (&freed, all), 0);
            reads.retain(|r| r.free >= all);
            reads.iter_mut().for_each(|r| r.free = 0);
            let last = step + 1 == steps;
            reads.extend(self.reads_meanwhile(b, step, &freed));
            let meeting = match reads.back() {
                _ if !last => usize::MAX,
                Some(read) => (read.free + BEHIND).max(all / 4),
                None => all / 4,
            };
            if !last {
                reads.extend(self.reads(b, step + 1, (&freed, all), 0).into_iter().filter(|r| r.free < all));
                reads.make_contiguous().sort_by_key(|r| r.free);
            }
            let mut loads = VecDeque::new();
            if two && step == 0 {
                loads = self.load(b, (MEET, 1), ops, k);
            }
            // They come first: what is waited for when waves meet has had most of a round to come.
            let held = shadow(b.target(), &loads);
            let mut due = Due::new(loads.len(), held);
            for (n, product) in products.into_iter().enumerate() {
                if n == meeting {
                    b.append(reads.drain(..).flat_map(|r| r.insts));
                    self.meet(b);
                    b.stage(MEET);
                    reads = self.reads(b, 0, (&freed, all), n).into_iter().filter(|r| r.free < all).collect();
                    b.stage(MULTIPLY);
                    loads = self.load(b, (LOAD, 0), ops, k);
                    if !two {
                        loads.extend(self.load(b, (LOAD, 1), ops, k));
                    }
                    due = Due::new(loads.len(), if two { all - n } else { shadow(b.target(), &loads) });
                }
                while let Some(at) = reads.iter().position(|r| r.due <= n) {
                    b.append(reads.remove(at).map(|r| r.insts).unwrap_or_default());
                }
                b.append([product]);
                let next = reads.front().filter(|r| r.free <= n + 1 && n % pace == 0);
                if next.is_some_and(|r| n >= held || r.due < usize::MAX) {
                    b.append(reads.pop_front().map(|r| r.insts).unwrap_or_default());
                }
                b.append(loads.drain(..due.now().min(loads.len())));
            }
            b.append(reads.into_iter().flat_map(|r| r.insts));
            b.append(loads);
        }
        b.in_lds(Lds::Any);
    }

    /// How many products a step has, and when registers are free: the same in all.
    fn counted(&self, b: &mut Builder) -> (usize, Vec<usize>) {
        let (products, freed) = self.products(b, 0);
        (products.len(), freed)
    }

    fn write(&self, b: &mut Builder, ops: &mut Operands, depth: Opnd) {
        let k = self.tile.k;
        let few = matches!(depth, Opnd::Imm(depth) if depth <= u64::from(FEW_IN_SHADOW * k));
        b.counted_loop("k", depth, k, Pipeline::Stated, !few, |b, k| {
            b.fix_order();
            self.round(b, ops, k);
        });
    }
}
