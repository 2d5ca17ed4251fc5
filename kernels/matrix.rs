//! Products by matrix instructions (MFMA, WMMA).
//!
//! A workgroup's tile is divided among its waves in rows and columns, a wave's part into tiles of one instruction. Which
//! instruction a target has for a type, its sizes and its layouts come from the instruction tables; of several the one
//! with most products per cycle is taken.
//!
//! The order of k within a product is free as long as both operands agree, so a lane reads 16 bytes of consecutive k from
//! LDS, whatever the instruction's layout would have there, and feeds them to as many instructions as they are for. Where
//! the instruction puts neighbouring rows of its result in neighbouring registers, A and B change places: the
//! registers then hold neighbouring columns, which are stored together; not where they have to be stored one by one: then lanes hold
//! neighbouring columns.

mod operands;
mod order;

use super::choice::{self, Ending, Extents, Machine, Round, Together};
use super::fragment;
use super::gemm::{Multiplier, Places, Read, Stages, Sums};
use super::loader::WORD;
use super::rounds;
use super::tile::{Form, Layout, Tile, Types};
use crate::graph::fused::Scaled;
use crate::mir::{
    Builder, MInst, Opnd, Part, Term, Type, matrix_clocks, matrix_instruction, matrix_modifiers, scaled_instruction,
    sparse_instruction, sparse_modifiers,
};
use barewave_isa::matrix::Layout::Wmma11;
use barewave_isa::matrix::{Fragment, MatrixOp, Operand, Step};
use barewave_isa::{Class, Op, Target};
use operands::{Pieces, can_load, loaded_widths, loaded_words};

/// How waves share a tile, and what they multiply with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MatrixForm {
    /// The instruction.
    pub instruction: Op,
    /// Its shape.
    pub op: MatrixOp,
    /// Waves down and across.
    pub waves: (u32, u32),
    /// The instruction's rows are the result's columns.
    pub swapped: bool,
    /// Results are stored in whole rows ([`regroup`](super::regroup)).
    pub in_rows: bool,
    /// Both operands have scales for blocks, which are operands of the instruction. What shares one it has in cells of all groups of lanes,
    /// one behind the other.
    pub scaled: bool,
    /// Tiles of instructions take columns in an order in which the two of a pair are in neighbouring ones ([`Gated`]).
    pub pairs: bool,
    /// Operands that transposing loads bring ([`loader`](super::loader)).
    pub transposed: [bool; 2],
    /// Both operands go straight to LDS ([`straight`](super::straight)). What a lane has of k then are cells of all groups of lanes in turn.
    pub straight: bool,
}

/// Tiles by the side of the instruction: rows, columns, waves down and across.
const TILES: &[(usize, [u32; 4])] = &[
    (16, [256, 256, 2, 2]),
    (16, [224, 256, 2, 2]),
    (16, [192, 256, 2, 2]),
    (16, [160, 256, 2, 2]),
    (16, [224, 128, 2, 2]),
    (16, [192, 128, 2, 2]),
    (16, [160, 128, 2, 2]),
    (16, [96, 128, 2, 2]),
    (32, [256, 256, 2, 2]),
    (32, [256, 128, 2, 2]),
    (32, [128, 256, 2, 2]),
    (32, [256, 128, 4, 2]),
    (32, [128, 256, 2, 4]),
    (32, [256, 256, 4, 2]),
    (32, [128, 128, 2, 2]),
    (32, [128, 64, 2, 2]),
    (32, [64, 128, 2, 2]),
    (32, [64, 64, 2, 2]),
    (32, [32, 64, 1, 2]),
    (32, [64, 32, 2, 1]),
    (32, [32, 32, 1, 1]),
    (16, [256, 128, 4, 2]),
    (16, [128, 256, 2, 4]),
    (16, [128, 128, 2, 2]),
    (16, [128, 128, 4, 2]),
    (16, [128, 64, 2, 2]),
    (16, [64, 128, 2, 2]),
    (16, [64, 64, 2, 2]),
    (16, [32, 64, 1, 2]),
    (16, [32, 64, 1, 4]),
    (16, [64, 32, 4, 1]),
    (16, [32, 128, 1, 4]),
    (16, [16, 128, 1, 4]),
    (16, [64, 32, 2, 1]),
    (16, [32, 32, 1, 1]),
    (16, [16, 64, 1, 1]),
    (16, [16, 64, 1, 2]),
];

/// Depths of a tile: multiples of 32 bytes of k, at least 8 of them. The deepest, which are first of equals, are for those that spread what
/// they load among the products, and load little.
const DEEPEST: u32 = 8;
const DEPTHS: [u32; 4] = [DEEPEST, 1, LEAST, 4];

/// What products take more on RDNA3 for each further least depth: fewer waves have room beside each other. Fitted.
const DEEPER: f64 = 0.15;

/// The least depth of tiles of narrow elements.
const LEAST: u32 = 2;

/// So many dwords of a tile that a workitem loads, at most, of those that are deepest.
const FEW_LOADED: u32 = 32;

/// So many rounds are few.
const FEW_ROUNDS: usize = 4;

/// So many rounds are few beside what is before and behind them, where workgroups of two buffers would be alone on a compute unit.
const FEW_BESIDE: usize = 16;

/// A wave of more results than this has few registers for operands; then a step takes so many bytes of k.
const LARGE: u32 = 128 * 96;
const STEP_OF_LARGE: u32 = 64;

/// So many registers of a workitem's sums leave too few vector registers for the rest.
const MANY_SUMS: u32 = 128;

/// Instructions' worth of a load that takes less than it could. Fitted.
const PIECE: f64 = 8.0;

/// Most scalar registers that a gathering loader's table entries may take.
const TABLE: u32 = 32;

/// The types of a product by matrix instructions: nothing is converted on the way.
pub(super) fn types_of(types: Types) -> Types {
    Types { compute: types.matrix.unwrap_or(types.storage), ..types }
}

/// Tiles of matrix instructions and what a round of them takes; none where the target has no such instruction for the types.
pub(super) fn candidates(
    target: Target,
    types: Types,
    machine: &Machine,
    e: &Extents,
    min_n: u32,
) -> Vec<(Tile, Round)> {
    let types = types_of(types);
    let lanes = target.info().wave_size;
    let run = if types.in_runs() { 16 / types.bytes() } else { 1 };
    let mut found = Vec::new();
    // Per side: the instruction, and the k of one of its steps, of which a tile holds whole ones.
    let of_side = |side: usize| {
        let form = match e.sparse {
            Some(operand) => MatrixForm::sparse(target, types, side, operand)?,
            None if e.scaled => MatrixForm::with_scales(target, types, side, !e.apart)?,
            None => MatrixForm::of(target, types, side, !e.apart)?,
        };
        Some((form, form.step(run)))
    };
    let of_sides = [16, 32].map(|side| (side, of_side(side)));
    let candidates = TILES.iter().flat_map(|t| DEPTHS.map(|d| (t, d)));
    for (&(side, [tile_m, tile_n, down, across]), depth) in candidates {
        let known = of_sides.iter().find(|s| s.0 == side).and_then(|s| s.1);
        let Some((form, step)) = known else { continue };
        // Of the largest tiles LDS holds two steps of one instruction.
        let results = tile_m * tile_n / (down * across);
        if types.in_runs() && results > LARGE && step * types.bytes() != STEP_OF_LARGE {
            continue;
        }
        let form = MatrixForm { waves: (down, across), ..form };
        let k = depth * 8.max(32 / types.bytes());
        // Four waves in a row read most of LDS again, which pays where elements are narrow.
        if !types.in_runs() && down.min(across) == 1 && down.max(across) == 4 {
            continue;
        }
        // Elements below 32 bits come in runs, of which a tile that is less deep has too few for wide loads.
        if types.in_runs() && depth == 1 || !k.is_multiple_of(step) {
            continue;
        }
        // Who gathers waits for loads in the round that they are for.
        let spread = types.in_runs() && min_n == 1 && choice::has_matrix_shadow(target);
        if !(tile_m.is_power_of_two() || spread) {
            continue;
        }
        let tile = Tile { types, m: tile_m, n: tile_n, k, run, buffers: 1, form: Form::Matrix(form) };
        if depth == DEEPEST && !(spread && loaded_words(&tile, e, |l| l.within) <= FEW_LOADED) {
            continue;
        }
        for tile in tile.ways_to_come(e) {
            let operands = [tile_m, tile_n].into_iter().enumerate();
            let of_words = |o: usize, width: u32| match tile.has_words(o) {
                true => Layout::most(&tile.of_words(), width),
                false => 0,
            };
            let of_cells = |o: usize, width: u32| match tile.is_transposed(o) {
                true => Layout::deep(&tile, width).bytes(tile.k),
                false => e.lds(&tile.of_operand(o), o, width),
            };
            let one = operands.map(|(o, width)| of_cells(o, width) + of_words(o, width)).sum::<u32>();
            let lds_bytes = target.info().lds_bytes;
            // Of few rounds what is before and behind them counts, beside which others multiply: more of them with one buffer. What is loaded has two
            // rounds with two.
            let groups = e.batches * e.m.div_ceil(tile_m as usize) * e.n.div_ceil(tile_n as usize);
            // RDNA3 has no other use for what it takes to hold a round longer what is stored as it comes.
            let stored = depth == LEAST && target.info().wmma == Some(Wmma11) && tile.comes_as_it_is_stored(e);
            let few = (stored || e.k <= FEW_ROUNDS * k as usize) && groups >= 2 * target.cus() as usize;
            let in_turn = types.in_runs() && min_n == 1 && !spread;
            // Pieces of lines take the first level longer than is waited for with one.
            let few = few && !tile.is_transposed(0) && !tile.is_transposed(1);
            let usual = if in_turn && few || spread && 2 * one > lds_bytes { 1 } else { 2 };
            // Where matrix instructions leave others room, workgroups of one buffer multiply while others begin or end.
            let beside = spread
                && usual == 2
                && lds_bytes / one > lds_bytes / (2 * one)
                && e.k <= FEW_BESIDE * k as usize
                && groups >= 2 * target.cus() as usize;
            let threads = tile.threads();
            let own = k / run;
            // A wave's lanes gather from one row.
            let entry = if e.gathered.is_some_and(|g| g.words) { WORD } else { 1 };
            let (along, _) = e.along_image(&tile);
            let passes = (threads / along).max(1);
            let gathers = min_n == 1 || along >= lanes && passes <= own && 2 * k / passes / entry <= TABLE;
            for buffers in std::iter::once(usual).chain(beside.then_some(1)) {
                let (tile, lds) = (Tile { buffers, ..tile }, buffers * one);
                if lds > lds_bytes || !can_load(&tile) || along < min_n || !gathers {
                    continue;
                }
                let round = form.round(target, &tile, machine, e, (lds, spread));
                if machine.holds(&round, form.accumulated(target, &tile)) {
                    found.push((tile, round));
                }
            }
        }
    }
    found
}

/// What a lane holds of an operand: which bits of its number name a row (of A; of B a column), and which a group of k.
pub(super) struct Side {
    pub lanes: Vec<Step>,
    /// k per lane.
    pub own: u32,
    /// Groups of lanes that hold different k.
    pub groups: u32,
}

impl MatrixForm {
    /// What a workgroup does for each k of a tile.
    pub fn round(
        &self,
        target: Target,
        tile: &Tile,
        machine: &Machine,
        e: &Extents,
        (lds, spread): (u32, bool),
    ) -> Round {
        let (types, (down, across)) = (tile.types, self.waves);
        let busy = self.clocks(target);
        let (side, bytes) = (f64::from(self.side()), f64::from(types.bytes()));
        // Where other instructions run beside products these are hardly noticed.
        let in_turn = types.in_runs() && !spread && tile.sparse().is_none();
        let pieces = if in_turn { tile.in_pieces(e) } else { Pieces::default() };
        let of_all = f64::from(down * across) / f64::from(tile.k) * machine.issue;
        let packing = tile.packing(machine, e) + pieces.packed * of_all;
        let least = LEAST * 8.max(32 / types.bytes());
        let deeper = match in_turn && target.info().wmma == Some(Wmma11) {
            true => f64::from(tile.k.saturating_sub(least)) / f64::from(least) * DEEPER,
            false => 0.0,
        };
        let products = f64::from(tile.m * tile.n) / (side * side * f64::from(self.depth())) * busy * (1.0 + deeper);
        let products = products + packing;
        let [held_m, held_n] = e.held(bytes);
        let read = f64::from(tile.m / down) * held_m + f64::from(tile.n / across) * held_n;
        let reads = read * f64::from(down * across) * bytes / machine.lds;
        // What is loaded is also converted, packed and written.
        let [moved_m, moved_n] = loaded_widths(tile, e).map(f64::from);
        let moves =
            (moved_m * held_m + moved_n * held_n) * bytes / 16.0 + (PIECE * pieces.loads + pieces.stored) * of_all;
        let loaded = machine.loaded(tile, e);
        // Of lines of which loads take pieces the first level gives all.
        let given = match tile.lines_transposed(machine) {
            0 => machine.given(tile, e),
            lines => {
                let others = [(0, tile.m), (1, tile.n)].into_iter().filter(|(o, _)| !tile.is_transposed(*o));
                let others: u32 = others.map(|(_, width)| width * types.bytes()).sum();
                lines + others
            }
        };
        let own = tile.m * tile.n / tile.threads();
        // Sums, unless they are in a file of their own, operands of steps, and what is loaded.
        let t = target.info();
        let apart = t.max_agprs > 0 && !t.unified_agprs;
        let sums = if apart { 0 } else { own * u32::from(types.accumulate.dwords()) };
        let held = self.operand(Operand::B).map_or(0, |b| self.lane_depth(&b, tile.run)) * types.bytes() / 4;
        let held_of = |operand: usize| match tile.sparse() {
            Some(sparse) if sparse == operand => held / 2 + 1,
            _ => held + u32::from(self.scaled),
        };
        // Barriers; and an odd number of steps has none beside which the next round's first reads come.
        let odd = tile.k / self.step(tile.run) % 2;
        let meetings = 3 - tile.buffers + 2 * odd;
        let clocks = self.products(tile) * busy;
        let answer = if types.in_runs() { choice::lds_answer(target) } else { 0.0 };
        let (ahead, sets) = rounds::reads_ahead(tile.k / self.step(tile.run), clocks, answer);
        // Where nothing is read ahead, and each SIMD has one wave at most, nobody multiplies meanwhile.
        let bare = match spread && ahead == 0 && down * across <= t.simds {
            true => reads * f64::from(tile.k) / f64::from(down * across) + answer,
            false => 0.0,
        };
        let [rows, columns] = [(0, tile.m / down), (1, tile.n / across)].map(|(o, own)| own / self.side() * held_of(o));
        let read = match rounds::one_for_all(target, tile, ahead) {
            true => rows.max(columns) + sets * rows.min(columns),
            false => sets.max(2) * (rows + columns),
        };
        // What is loaded is there twice where loads come first, and are not of single elements.
        let in_turn = types.in_runs() && !spread;
        let single = e.comes_singly(0) || e.comes_singly(1);
        let loads = if in_turn && tile.buffers > 1 && !single { 2 } else { 1 };
        // Narrow elements of lines along the width are turned, of both operands at a time. Places in LDS change between two buffers.
        let turned = match tile.comes_as_it_is_stored(e) {
            _ if !in_turn => 0,
            true => tile.turned_by_halves(e),
            false if e.deep == (false, false) => 8,
            false => 0,
        };
        let others = if in_turn && tile.buffers == 1 { 8 } else { 16 };
        let vgprs =
            |together: fn(Together) -> u32| sums + read + loaded_words(tile, e, together) * loads + turned + others;
        let (vgprs, to_the_end) = (vgprs(|l| l.within), vgprs(|l| l.to_the_end));
        Round {
            waves: down * across,
            products,
            moves: reads + moves,
            spread,
            meetings,
            loaded,
            given,
            own,
            vgprs,
            lds,
            behind: 0.0,
            bare,
            ending: Ending::of(target, tile, e),
            crowded: !machine.reaches(to_the_end, self.accumulated(target, tile)),
        }
    }

    /// The least deep of a tile's kind that has a depth, or the tile.
    pub fn least_deep(&self, tile: &Tile, depth: u32) -> Tile {
        let step = self.step(tile.run);
        let depths = (step..tile.k).step_by(step as usize).filter(|k| *k >= depth && (k / tile.run).is_power_of_two());
        depths.map(|k| Tile { k, ..*tile }).find(can_load).unwrap_or(*tile)
    }

    /// Instructions of a wave's step.
    fn products(&self, tile: &Tile) -> f64 {
        let results = tile.m * tile.n / (self.waves.0 * self.waves.1);
        let of_one = self.side() * self.side() * self.depth();
        f64::from(results * self.step(tile.run)) / f64::from(of_one)
    }

    /// Cycles of a SIMD for a wave's instruction.
    pub fn clocks(&self, target: Target) -> f64 {
        f64::from(matrix_clocks(target, self.instruction, &self.op))
    }

    /// Rows and columns of the instruction's result.
    pub fn side(&self) -> u32 {
        self.op.shape.m as u32
    }

    /// k of the instruction, in elements that memory holds: bytes of two where they have 4 bits.
    pub fn depth(&self) -> u32 {
        self.op.shape.k as u32 / self.in_byte()
    }

    fn in_byte(&self) -> u32 {
        8 / self.op.a.bits().min(8)
    }

    /// The same of the elements that share a scale.
    pub fn block(&self) -> u32 {
        Scaled::BLOCK as u32 / self.in_byte()
    }

    /// Rows or columns of an operand as `row` of its steps, numbers of its groups of k as `col`.
    pub fn operand(&self, operand: Operand) -> Option<Side> {
        let f = self.op.fragment(operand)?;
        let along = |s: &Step| if operand == Operand::A { (s.row, s.col) } else { (s.col, s.row) };
        let mut groups = 1;
        let mut lanes = Vec::new();
        for s in &f.lane {
            let (line, k) = along(s);
            lanes.push(if k > 0 { Step { row: 0, col: groups } } else { Step { row: line, col: 0 } });
            if k > 0 {
                groups *= 2;
            }
        }
        Some(Side { lanes, own: f.positions() / self.in_byte(), groups })
    }

    /// k that the lanes read in one step: as many as fill cells, or an instruction.
    pub fn step(&self, run: u32) -> u32 {
        self.operand(Operand::B).map_or(run, |b| b.groups * self.lane_depth(&b, run))
    }

    /// Those that a lane has of them, of the second operand. Of a sparse first one it reads one cell, of the second what stands beside that.
    fn lane_depth(&self, b: &Side, run: u32) -> u32 {
        b.own.max(if self.op.shape.sparse { 2 * run } else { run })
    }

    /// Both operands have the same order of k over lanes and positions, which is what lets it be chosen freely; of a sparse one that of
    /// pairs is the other's order of fours.
    fn is_usable(&self) -> bool {
        let (Some(a), Some(b)) = (self.op.fragment(Operand::A), self.op.fragment(Operand::B)) else { return false };
        let of = |list: &[Step], along: fn(&Step) -> u32, each: u32| -> Vec<u32> {
            list.iter().map(|s| along(s) * each).collect()
        };
        let each = if self.op.shape.sparse { 2 } else { 1 };
        let of_a = [of(&a.lane, fragment::col, each), of(&a.position, fragment::col, each)];
        let mut of_b = [of(&b.lane, fragment::row, 1), of(&b.position, fragment::row, 1)];
        // The bits of a place among four, of which a pair has one.
        if self.op.shape.sparse && of_b[1].starts_with(&[1, 2]) {
            of_b[1].remove(0);
        }
        of_a == of_b && self.op.fragment(Operand::D).is_some()
    }

    /// A single wave that multiplies elements of these types with an instruction of some side; none where the target has none. Its
    /// operands change places where that puts neighbouring columns in neighbouring registers, and where they `may`.
    pub fn of(target: Target, types: Types, side: usize, may: bool) -> Option<MatrixForm> {
        let of = |[a, b]: [Type; 2]| {
            let (instruction, op) = matrix_instruction(target, [a, b], types.accumulate, side)?;
            MatrixForm::new(instruction, op)
        };
        MatrixForm::turned(types, may, of)
    }

    /// The same with scales for blocks of both.
    fn with_scales(target: Target, types: Types, side: usize, may: bool) -> Option<MatrixForm> {
        let of = |factors: [Type; 2]| {
            let (instruction, op) = scaled_instruction(target, factors, types.accumulate, side)?;
            Some(MatrixForm { scaled: true, ..MatrixForm::new(instruction, op)? })
        };
        MatrixForm::turned(types, may, of)
    }

    fn turned(types: Types, may: bool, of: impl Fn([Type; 2]) -> Option<MatrixForm>) -> Option<MatrixForm> {
        let [a, b] = types.factors();
        let form = of([a, b])?;
        let swapped = form.swapped && may;
        let form = if swapped && a != b { of([b, a])? } else { form };
        Some(MatrixForm { swapped, ..form })
    }

    /// The same with operand 0 or 1 of the product sparse: it is the instruction's first.
    pub fn sparse(target: Target, types: Types, side: usize, operand: usize) -> Option<MatrixForm> {
        let factors = types.factors();
        let factors = [factors[operand], factors[1 - operand]];
        let (instruction, op) = sparse_instruction(target, factors, types.accumulate, side)?;
        Some(MatrixForm { swapped: operand == 1, ..MatrixForm::new(instruction, op)? })
    }

    /// A single wave that multiplies with an instruction; none where its operands do not agree.
    pub fn new(instruction: Op, op: MatrixOp) -> Option<MatrixForm> {
        let form = MatrixForm {
            instruction,
            op,
            waves: (1, 1),
            swapped: false,
            in_rows: false,
            scaled: false,
            pairs: false,
            transposed: [false; 2],
            straight: false,
        };
        let d = op.fragment(Operand::D)?;
        let down = |b: usize| d.position.get(b) == Some(&Step { row: 1 << b, col: 0 });
        form.is_usable().then_some(MatrixForm { swapped: down(0) && down(1), ..form })
    }

    /// Of a wave's instruction tiles those of a row lie behind each other in registers, or those of a column where a row has no power of two.
    fn columns_are_last(&self, n: u32) -> bool {
        !(n / self.waves.1 / self.side()).is_power_of_two()
    }

    /// The result of a workgroup: the instruction's lanes, then waves across and down; its registers, then tiles across
    /// and down, or the other way round.
    pub fn result(&self, m: u32, n: u32) -> Fragment {
        let d = self.op.fragment(Operand::D).expect("a usable instruction");
        let swapped = self.swapped;
        let turn = |s: &Step| if swapped { Step { row: s.col, col: s.row } } else { *s };
        let (down, across) = self.waves;
        let (own_m, own_n) = (m / down, n / across);
        let side = self.side();
        let waves = [(across, fragment::across(own_n)), (down, fragment::down(own_m))];
        let mut tiles = [(own_n / side, fragment::across(side)), (own_m / side, fragment::down(side))];
        if self.columns_are_last(n) {
            tiles.reverse();
        }
        let outer = fragment::runs(&waves, &tiles, d.bits);
        let lane = d.lane.iter().map(turn).chain(outer.lane).collect();
        let position = d.position.iter().map(turn).chain(outer.position).collect();
        self.in_order(Fragment { lane, position, bits: d.bits, spacing: d.spacing })
    }

    /// The sums are in accumulation registers: where the instruction has no others, or where they are many.
    fn sums_are_apart(&self, target: Target, tile: &Tile) -> bool {
        let slot = target.op(self.instruction).and_then(|i| i.dsts.first());
        let has = |class: Class| slot.is_some_and(|s| s.class.contains(class));
        has(Class::AGPR) && (!has(Class::VGPR) || tile.sums() > MANY_SUMS)
    }

    /// Sums of a workitem that are there.
    pub fn accumulated(&self, target: Target, tile: &Tile) -> u32 {
        if self.sums_are_apart(target, tile) { tile.sums().min(most_apart(target)) } else { 0 }
    }

    /// Registers for the sums, of the class that the instruction adds to. Of more than there are accumulation registers the last are in others.
    pub fn sums(&self, b: &mut Builder, tile: &Tile) -> Sums {
        let d = self.op.fragment(Operand::D).expect("a usable instruction");
        let apart = if self.sums_are_apart(b.target(), tile) { most_apart(b.target()) } else { 0 };
        let count = tile.m * tile.n / (self.waves.0 * self.waves.1 * self.side() * self.side());
        let dwords = u32::from(tile.types.accumulate.dwords());
        let len = d.registers() as u8;
        let is_apart = |i: u32| (i + 1) * u32::from(len) <= apart;
        let parts = (0..count).map(|i| if is_apart(i) { b.a(len) } else { b.v(len) }).collect();
        Sums { parts, per: d.positions(), dwords }
    }

    /// What a workitem reads first of A's tile and of B's: k as rows.
    pub fn reads(&self, tile: &Tile) -> (Fragment, Fragment) {
        let (first, second) = (Operand::A, Operand::B);
        let (of_a, of_b) = if self.swapped { (second, first) } else { (first, second) };
        let (down, across) = self.waves;
        // Waves lie across, then down.
        let read = |operand: Operand, own_across: u32, own_down: u32| {
            let side = self.operand(operand).expect("a usable instruction");
            let depth = side.own.max(match self.op.shape.sparse && operand == Operand::B {
                true => 2 * tile.run,
                false => tile.run,
            });
            let waves = [(across, fragment::across(own_across)), (down, fragment::across(own_down))];
            let mut f = fragment::runs(&waves, &[], tile.types.bytes() * 8);
            let apart = if self.scaled || self.straight { tile.run } else { depth };
            let within = side.lanes.iter().map(|s| Step { row: s.col * apart, col: s.row });
            f.lane = within.chain(f.lane).collect();
            f
        };
        (read(of_a, 0, tile.m / down), self.in_order(read(of_b, tile.n / across, 0)))
    }

    /// The same of the words that go with operand 0 or 1: of a group of lanes those of its cells, or of the block that has its number.
    pub fn read_words(&self, tile: &Tile, operand: usize) -> Fragment {
        let (a, b) = self.reads(tile);
        let cells = if operand == 0 { a } else { b };
        let word = |s: &Step| Step { row: s.row / tile.run, col: s.col };
        Fragment { lane: cells.lane.iter().map(word).collect(), ..cells }
    }

    /// What multiplies a tile.
    pub fn multiplier<'a>(&'a self, tile: &'a Tile, places: Places) -> Matrix<'a> {
        let side = self.operand(Operand::B).expect("a usable instruction");
        let depth = self.lane_depth(&side, tile.run);
        Matrix { form: self, tile, places, own: side.own, depth, groups: side.groups, swapped: self.swapped }
    }
}

/// Multiplies a tile by matrix instructions.
pub(super) struct Matrix<'a> {
    form: &'a MatrixForm,
    tile: &'a Tile,
    places: Places,
    /// k of an instruction that a lane has, and those that it reads in a step.
    own: u32,
    pub depth: u32,
    pub groups: u32,
    swapped: bool,
}

impl Matrix<'_> {
    /// Those of what it holds of the rows, or of the columns.
    fn held(&self, of_rows: bool) -> u32 {
        let sparse = self.tile.sparse() == Some(usize::from(!of_rows));
        if sparse { self.depth / 2 } else { self.depth }
    }
    /// Registers of so many tiles of the rows, or of the columns: behind the elements the word that goes with them.
    fn operand(&self, b: &mut Builder, (of_rows, tiles): (bool, u32)) -> Vec<Part> {
        let held = self.held(of_rows);
        let word = u32::from(held < self.depth || self.form.scaled);
        let dwords = (held * self.tile.types.bytes() / 4 + word) as u8;
        (0..tiles).map(|_| b.v(dwords)).collect()
    }

    /// Depth in the tile of an element that a lane of the first group reads in a step.
    pub fn depth_of(&self, step: u32, element: u32) -> u32 {
        let run = self.tile.run;
        let apart = if self.form.scaled || self.form.straight { self.groups } else { 1 };
        (step * self.groups * self.depth / run + element / run * apart) * run + element % run
    }

    /// Reads what a step multiplies of one of the tiles, of rows or of columns.
    fn read_one(&self, b: &mut Builder, step: u32, read: &Read, (of_rows, number): (bool, usize)) {
        let (tile, p) = (self.tile, self.places);
        let (to, address, layout, base) = match of_rows {
            true => (read.0[number], p.read.0, p.layout.0, 0),
            false => (read.1[number], p.read.1, p.layout.1, p.b_base),
        };
        let cells = self.held(of_rows) / tile.run;
        let per_cell = (tile.cell() / 4) as u8;
        if let Some((address, layout, base)) = p.words[usize::from(!of_rows)] {
            let at = base + layout.at(step * self.groups, number as u32 * self.form.side());
            b.lds_read_into(to.slice(cells as u8 * per_cell, 1), address, at);
        }
        b.moves(Some(if of_rows { Term::A } else { Term::B }));
        for c in 0..cells {
            let c_apart = if self.form.scaled { self.groups } else { 1 };
            let k = (step * self.groups * cells + c * c_apart) * tile.run;
            let across = if of_rows { number as u32 * self.form.side() } else { self.form.column(number) };
            b.element(k, across);
            b.lds_read_into(to.slice(c as u8 * per_cell, per_cell), address, base + layout.at(k, across));
        }
        b.moves(None);
    }

    /// Multiplies what was read, one register of the longer operand after the other; `then` is told its number when no product asks for it
    /// any more.
    pub fn multiply_in_turn(
        &self,
        b: &mut Builder,
        sums: &[Part],
        (step, read): (u32, &Read),
        mut then: impl FnMut(&mut Builder, usize),
    ) {
        let (rows, columns) = read;
        let dwords = (self.own * self.tile.types.bytes() / 4) as u8;
        let sparse = self.form.op.shape.sparse;
        let (longer, of_cell) = (rows_are_longer(read), (self.depth / self.own) as u8);
        let columns_last = self.form.columns_are_last(self.tile.n);
        let side = self.form.side();
        let [outer, inner] = if longer { [rows.len(), columns.len()] } else { [columns.len(), rows.len()] };
        for q in 0..of_cell {
            let k = self.depth_of(step, u32::from(q) * self.own);
            for t in 0..outer {
                for u in 0..inner {
                    let (i, j) = if longer { (t, u) } else { (u, t) };
                    let sum = sums[if columns_last { j * rows.len() + i } else { i * columns.len() + j }];
                    let (first, second) = if self.swapped { (columns[j], rows[i]) } else { (rows[i], columns[j]) };
                    let scales = [first, second].map(|p| p.dword(p.len - 1));
                    let second = second.slice(q * dwords, dwords);
                    let (first, third, mods) = if sparse {
                        let (kept, word) = (first.slice(q * dwords / 2, dwords / 2), first.dword(first.len - 1));
                        (kept, word, sparse_modifiers(self.form.instruction, &self.form.op, q.into()))
                    } else {
                        let mods = matrix_modifiers(self.form.instruction, &self.form.op);
                        (first.slice(q * dwords, dwords), sum, mods)
                    };
                    let mut srcs: Vec<Opnd> = vec![first.into(), second.into(), third.into()];
                    if self.form.scaled {
                        srcs.extend(scales.map(Opnd::from));
                    }
                    b.product(Some((i as u32 * side, self.form.column(j), k)));
                    b.push(MInst { mods, ..MInst::new(self.form.instruction, &[sum.into()], &srcs) });
                }
                b.product(None);
                if q + 1 == of_cell {
                    then(b, t);
                }
            }
        }
    }

    /// Instruction tiles of a wave, down and across.
    fn tiles(&self) -> (u32, u32) {
        let (waves, side) = (self.form.waves, self.form.side());
        (self.tile.m / waves.0 / side, self.tile.n / waves.1 / side)
    }
}

impl Multiplier for Matrix<'_> {
    fn steps(&self) -> u32 {
        self.tile.k / (self.groups * self.depth)
    }

    fn step_clocks(&self, target: Target) -> f64 {
        self.form.products(self.tile) * self.form.clocks(target)
    }

    fn beside_a_product(&self, target: Target) -> f64 {
        (self.form.clocks(target) / Machine::of(target).issue - 1.0).max(1.0)
    }

    fn registers(&self, b: &mut Builder) -> Read {
        let (down, across) = self.tiles();
        (self.operand(b, (true, down)), self.operand(b, (false, across)))
    }

    fn read(&self, b: &mut Builder, step: u32, read: &Read) {
        for of_rows in [true, false] {
            let operand = if of_rows { &read.0 } else { &read.1 };
            (0..operand.len()).for_each(|t| self.read_one(b, step, read, (of_rows, t)));
        }
    }

    fn multiply(&self, b: &mut Builder, sums: &[Part], read: (u32, &Read)) {
        self.multiply_in_turn(b, sums, read, |_, _| ());
    }

    fn sets(&self, b: &mut Builder, count: u32, one_for_all: bool) -> Vec<Read> {
        let first = self.registers(b);
        let further = |_| match one_for_all {
            true if rows_are_longer(&first) => (first.0.clone(), self.operand(b, (false, first.1.len() as u32))),
            true => (self.operand(b, (true, first.0.len() as u32)), first.1.clone()),
            false => self.registers(b),
        };
        let further: Vec<Read> = (1..count).map(further).collect();
        [vec![first], further].concat()
    }

    fn multiply_and_read(
        &self,
        b: &mut Builder,
        sums: &[Part],
        (step, read): (u32, &Read),
        (next, into): (u32, &Read),
        stages: Stages,
    ) {
        let longer = rows_are_longer(read);
        let shorter = if longer { read.1.len() } else { read.0.len() };
        b.stage(stages.read);
        (0..shorter).for_each(|t| self.read_one(b, next, into, (!longer, t)));
        b.stage(stages.multiply);
        // Behind the products of one register come those of the next before it is read: products wait for each other, reads for products that
        // have begun.
        let read_one = |b: &mut Builder, t: usize| {
            b.stage(stages.read);
            self.read_one(b, next, into, (longer, t));
            b.stage(stages.multiply);
        };
        let mut free = None;
        self.multiply_in_turn(b, sums, (step, read), |b, t| {
            if let Some(before) = free.replace(t) {
                read_one(b, before);
            }
        });
        if let Some(last) = free {
            read_one(b, last);
        }
    }
}

/// Most sums of a workitem in accumulation registers.
fn most_apart(target: Target) -> u32 {
    let t = target.info();
    if t.unified_agprs { t.max_agprs } else { u32::MAX }
}

/// Of what is read of both operands, the rows have more registers: products go through them one after the other.
pub(super) fn rows_are_longer((rows, columns): &Read) -> bool {
    rows.len() >= columns.len()
}
