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
use super::error::Res;
use super::fragment::{across, down};
use super::gemm::{Multiplier, Operands, Places, Read};
use super::loader::is_of_whole_blocks;
use super::matrix::{self, Matrix, MatrixForm, rows_are_longer};
use super::rounds::{FEW_IN_SHADOW, TILES_FILLED, TILES_READ, sum_of_buffers};
use super::tile::{Form, Layout, Tile, Types};
use crate::mir::{Builder, Gen, Lds, MInst, Opnd, Part, Pipeline, Type};
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

/// Bytes of a tile's lines along k.
const DEPTH: u32 = 128;

/// Rows and columns of the instruction: its lanes read from all banks of LDS.
const SIDE: usize = 16;

/// Registers of a workitem beside sums and operands.
const OTHERS: u32 = 24;

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
    let of = |&[m, n, down, across]: &[u32; 4]| {
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
        let vgprs = registers(&tile, &form, sets(target, &tile, &form));
        let round = Round { vgprs, meetings: 1, bare: 0.0, ending: Ending::default(), crowded: false, ..round };
        machine.holds(&round, form.accumulated(target, &tile)).then_some((tile, round))
    };
    TILES.iter().filter_map(of).collect()
}

/// Registers of a workitem, with so many sets of the shorter operand's.
fn registers(tile: &Tile, form: &MatrixForm, sets: u32) -> u32 {
    let (down, across) = form.waves;
    let lanes = form.op.shape.lanes as u32;
    let held = form.side() * form.step(tile.run) * tile.types.bytes() / 4 / lanes;
    let [rows, columns] = [tile.m / down, tile.n / across].map(|own| own / form.side() * held);
    tile.sums() + rows.max(columns) + sets * rows.min(columns) + OTHERS
}

/// Sets of registers of the shorter operand: two in turn, where the steps of a round are even and there is room.
fn sets(target: Target, tile: &Tile, form: &MatrixForm) -> u32 {
    let even = (tile.k / form.step(tile.run)).is_multiple_of(2);
    let t = target.info();
    if even && registers(tile, form, 2) <= t.named_vgprs() + form.accumulated(target, tile) { 2 } else { 1 }
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
            let k = (step * by.depth / run + c) * by.groups * run;
            let column = number * SIDE as u32;
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
    let sets = sets(b.target(), tile, form);
    let sets = by.sets(b, sets, true);
    let filled = [ops.a.lds(), ops.b.lds()].map(|lds| {
        let twice = b.shl(lds, 1u32);
        (lds, b.add(twice, swap))
    });
    let rounds = Rounds { tile, by, sums, sides: [rows, columns], sets, filled };
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

/// Something to read: the products that come before it, and how.
type Reads = VecDeque<(usize, Vec<MInst>)>;

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
            let (side, registers) = if of_rows { (&self.sides[0], &set.0) } else { (&self.sides[1], &set.1) };
            for (number, to) in registers.iter().enumerate() {
                let free = match of_rows == longer {
                    true => freed[number],
                    false if self.sets.len() > 1 => 0,
                    false => products - registers.len() + number + 1,
                };
                let read = b.aside(|b| side.read(b, self.tile, &self.by, step, (number as u32, *to)));
                all.push((free.max(first), read));
            }
        }
        all.sort_by_key(|r| r.0);
        all.into()
    }

    /// Products of a step, and behind which of them each register of the longer operand is free.
    fn products(&self, b: &mut Builder, step: u32) -> (Vec<MInst>, Vec<usize>) {
        let (from, mut freed) = (b.here(), Vec::new());
        self.by.multiply_in_turn(b, self.sums, self.set(step), |b, _| freed.push(b.here().1 - from.1));
        (b.cut(from), freed)
    }

    /// Asks for the first or the second operand's tile that begins at depth `k`, in a stage.
    fn load(&self, b: &mut Builder, (stage, which): (u8, usize), ops: &mut Operands, k: Part) -> VecDeque<MInst> {
        let load = |b: &mut Builder| {
            b.stage(stage);
            b.in_lds(TILES_FILLED);
            [&mut ops.a, &mut ops.b][which].issue(b, k);
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
        for step in 0..steps {
            let (products, _) = self.products(b, step);
            // What the step before has left.
            let mut reads: Reads = self.reads(b, step, (&freed, all), 0);
            reads.retain(|r| r.0 >= all);
            reads.iter_mut().for_each(|r| r.0 = 0);
            let mut left = reads.len();
            let last = step + 1 == steps;
            let meeting = if last { all / 4 } else { usize::MAX };
            if !last {
                reads.extend(self.reads(b, step + 1, (&freed, all), 0).into_iter().filter(|r| r.0 < all));
            }
            let mut loads = VecDeque::new();
            if two && step == 0 {
                loads = self.load(b, (MEET, 1), ops, k);
            }
            // They come first: what is waited for when waves meet has had most of a round to come.
            let mut due = Due::new(loads.len(), loads.len());
            let held = loads.len();
            for (n, product) in products.into_iter().enumerate() {
                if n == meeting {
                    b.append(reads.drain(..).flat_map(|r| r.1));
                    self.meet(b);
                    b.stage(MEET);
                    reads = self.reads(b, 0, (&freed, all), n).into_iter().filter(|r| r.0 < all).collect();
                    b.stage(MULTIPLY);
                    loads = self.load(b, (LOAD, 0), ops, k);
                    if !two {
                        loads.extend(self.load(b, (LOAD, 1), ops, k));
                    }
                    due = Due::new(loads.len(), all - n);
                }
                b.append([product]);
                // LDS gives other waves as much meanwhile.
                let free = reads.front().is_some_and(|r| r.0 <= n + 1 && (r.0 == 0 && left > 0 || n >= held));
                if n % 2 == 0 && free {
                    left = left.saturating_sub(1);
                    b.append(reads.pop_front().map(|r| r.1).unwrap_or_default());
                }
                b.append(loads.drain(..due.now().min(loads.len())));
            }
            b.append(reads.into_iter().flat_map(|r| r.1));
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
