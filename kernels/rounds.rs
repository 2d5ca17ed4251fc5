//! The loop over k of a matrix product.
//!
//! A round multiplies one tile while the next one comes from memory and goes to LDS. Loads behind the last tile are guarded and go where
//! nobody reads any more; a loop of few short rounds, of whose loads these would be a good part, has its last rounds without them behind it.
//!
//! With two buffers in LDS one barrier separates the rounds. With one, all have read a tile before the next one is written: a
//! barrier of its own; and where products and moves follow each other, the next tile is loaded behind that into the registers from which
//! one was written, beside a half of what the last step multiplies. That takes little LDS and few registers: more workgroups multiply while one waits. Where other instructions run in the shadow of those that multiply they are spread among these.
//!
//! What a step multiplies is read while steps before it are multiplied: so many that LDS has answered by then, where there are registers
//! in turn for that. What the first steps of a round multiply is read behind the barrier of the round before.

use super::choice;
use super::error::Res;
use super::gemm::{Multiplier, Operands, Places, Read, Stages};
use super::loader::Loader;
use super::tile::{Form, Tile};
use crate::mir::{Builder, Gen, Lds, MInst, Opnd, Part, Pipeline, Term, Type};
use barewave_isa::{Op, Pipe, Target};
use barewave_timing::instr::multiplies_alone;

/// The stage that loads tiles.
const LOAD: u8 = 0;

/// LDS of the tiles between two barriers: one is read, the other filled.
pub(super) const TILES_READ: Lds = Lds::Part { buffer: 0, phase: 0 };
pub(super) const TILES_FILLED: Lds = Lds::Part { buffer: 0, phase: 1 };

/// Clocks of a step of multiply-adds of which a quarter covers what LDS takes to answer.
const LONG_STEP: f64 = 256.0;

/// Of what runs in the shadow of matrix instructions this share may be what fills the next tile: waits go there too.
const FILLED: f64 = 0.75;

/// Most rounds of a loop whose last ones stand behind it, as code of their own. Of more rounds what is loaded for nobody is little, and code
/// that is executed once is neither compiled nor fetched for nothing. Where other instructions run in the shadow of matrix instructions a
/// round is short for what it multiplies, L2 is busy, and two of its rounds are for nobody.
const FEW_ROUNDS: u32 = 8;
/// Unless a workitem multiplies and adds more than so often in a round, one by one: that is long beside its loads, and much code.
const LONG_ROUND: u32 = 512;
pub(super) const FEW_IN_SHADOW: u32 = 64;

/// See [`many_rounds`]: of few matrix instructions, and of many others.
const MANY_ROUNDS: u32 = 64;
const MANY_LONG_ROUNDS: u32 = 256;

/// What a wave multiplies in a step takes longer than LDS to answer: reads among it cost less than in a row in front of it, where a wave
/// that is alone waits for each. Matrix instructions of f64 are long.
fn steps_are_long(target: Target, tile: &Tile) -> bool {
    let (tm, tn, dot) = match tile.form {
        Form::Vector { tm, tn, dot } => (tm, tn, dot),
        Form::Winograd { tm, tn } => (tm, tn, None),
        Form::Matrix(_) | Form::Sliced(_) | Form::Few(_) => return tile.types.bytes() > 4,
    };
    let busy = |op: Op| target.op(op).map_or(1.0, |i| f64::from(i.busy));
    let each = match (dot, tile.packed()) {
        (Some(dot), _) => busy(dot.op),
        (None, Some(packed)) => busy(packed.multiply_add) / 2.0,
        (None, None) => choice::multiply_add(target, tile.types.accumulate),
    };
    f64::from(tm * tn) * each >= LONG_STEP
}

/// Rounds from which on a loop is written twice, so that addresses which alternate between buffers are not moved: that saves time where the vector
/// ALU does nothing beside what multiplies, and more code is fetched for it.
fn many_rounds(target: Target, tile: &Tile) -> u32 {
    match tile.form {
        Form::Matrix(form) if multiplies_alone(target, form.instruction) => MANY_ROUNDS,
        // Addresses in both buffers take registers.
        Form::Vector { .. } if tile.is_full() => u32::MAX,
        Form::Vector { .. } | Form::Winograd { .. } if choice::is_slow(target) => MANY_LONG_ROUNDS,
        _ => u32::MAX,
    }
}

/// Matrix instructions multiply narrow elements.
pub(super) fn is_narrow(tile: &Tile) -> bool {
    matches!(tile.form, Form::Matrix(_)) && tile.types.in_runs()
}

/// They do so while other instructions run: there each of these counts.
pub(super) fn in_shadow(target: Target, tile: &Tile) -> bool {
    is_narrow(tile) && choice::has_matrix_shadow(target)
}

/// Steps that are read one ahead have the registers of one operand in common, where products and reads follow each other: its elements are
/// read behind the last product that asks for those before them.
pub(super) fn one_for_all(target: Target, tile: &Tile, ahead: u32) -> bool {
    is_narrow(tile) && !in_shadow(target, tile) && tile.buffers == 1 && ahead == 1
}

/// Of so many steps of a round, how many a step's operands are read ahead of it, and the sets of registers that they take in turn:
/// a divisor of the steps, so that rounds are alike. `clocks` are those of a step, `answer` what LDS takes. With a single step there is
/// nothing to multiply meanwhile.
pub(super) fn reads_ahead(steps: u32, clocks: f64, answer: f64) -> (u32, u32) {
    let wanted = (answer / clocks.max(1.0)).ceil().max(1.0) as u32;
    let sets = (2..=steps).filter(|s| steps.is_multiple_of(*s));
    match sets.clone().find(|s| *s > wanted).or_else(|| sets.clone().next_back()) {
        Some(sets) => (wanted.min(sets - 1), sets),
        None => (0, 1),
    }
}

/// The loop, ready to be written.
pub(super) struct Rounds<'a, M: Multiplier> {
    tile: &'a Tile,
    by: &'a M,
    sums: &'a [Part],
    places: Places,
    /// Where this workitem reads in the tiles of all operands, and behind those where it writes.
    addresses: Vec<Part>,
    /// What each address adds up to in both buffers, where the buffers do not differ in one bit only.
    both: Vec<Option<Part>>,
    /// Bytes from one buffer to the other.
    swap: u32,
    /// The stage in which tiles are written.
    commit: u8,
    /// Other instructions run in the shadow of those that multiply.
    shadow: bool,
    /// They are spread among these.
    spread: bool,
    /// Steps that reads are ahead of what multiplies them.
    ahead: u32,
    /// Registers of steps, in turn.
    sets: Vec<Read>,
    /// Those of one operand are the same in all of them.
    one_for_all: bool,
    /// Tiles are loaded right behind those that are written, into the same registers.
    behind: bool,
}

impl<'a, M: Multiplier> Rounds<'a, M> {
    /// `swap` bytes are from one buffer to the other.
    pub fn new(
        b: &mut Builder,
        tile: &'a Tile,
        ops: &Operands,
        by: &'a M,
        sums: &'a [Part],
        places: Places,
        swap: u32,
    ) -> Self {
        let read = [places.read.0, places.read.1].into_iter().chain(places.words.iter().flatten().map(|w| w.0));
        let addresses: Vec<Part> = read.chain(ops.all().map(Loader::lds)).collect();
        // One buffer's address is the sum of both less the other's; an exclusive-or does it where they differ in one bit.
        let summed = tile.buffers > 1 && !swap.is_power_of_two();
        let both = addresses.iter().map(|a| summed.then(|| sum_of_buffers(b, *a, swap))).collect();
        // Narrow elements are multiplied before what was loaded meanwhile has come: loads have a round more. Not those that ask a
        // table, which ends behind the next round.
        let early = is_narrow(tile) && ops.are_dense();
        let shadow = early && in_shadow(b.target(), tile);
        let spread = shadow || steps_are_long(b.target(), tile);
        let commit = LOAD + u8::from(early);
        // Where loads come in the round that they are for, what is written waits for them: as late as can be.
        let answer = if early { choice::lds_answer(b.target()) } else { 0.0 };
        let (ahead, sets) = reads_ahead(by.steps(), by.step_clocks(b.target()), answer);
        let one_for_all = early && one_for_all(b.target(), tile, ahead);
        let sets = by.sets(b, sets, one_for_all);
        Rounds {
            tile,
            by,
            sums,
            places,
            addresses,
            both,
            swap,
            commit,
            shadow,
            spread,
            ahead,
            sets,
            one_for_all,
            behind: early && (shadow || tile.buffers == 1),
        }
    }

    /// The stage in which tiles are multiplied.
    fn last(&self) -> u8 {
        self.commit + 1
    }

    /// Registers of a step.
    fn set(&self, step: u32) -> &Read {
        &self.sets[step as usize % self.sets.len()]
    }

    fn read(&self, b: &mut Builder, step: u32) {
        b.in_lds(TILES_READ);
        self.by.read(b, step, self.set(step));
    }

    fn multiply(&self, b: &mut Builder, step: u32) {
        self.by.multiply(b, self.sums, (step, self.set(step)));
    }

    /// Multiplies a step, and reads the one behind it, of the next round behind the last one.
    fn multiply_and_read(&self, b: &mut Builder, step: u32) {
        b.in_lds(TILES_READ);
        let next = step + 1;
        let (next, read) = if next == self.by.steps() { (0, self.commit) } else { (next, self.last()) };
        let stages = Stages { read, multiply: self.last() };
        self.by.multiply_and_read(b, self.sums, (step, self.set(step)), (next, self.set(next)), stages);
    }

    /// The other buffer's address.
    fn change(&self, b: &mut Builder, i: usize) {
        let address: Opnd = self.addresses[i].into();
        match self.both[i] {
            _ if self.tile.buffers == 1 => {}
            Some(sum) => b.emit(Gen::Sub.of(Type::U32), &[address], &[sum.into(), address]),
            None => b.emit(Gen::Xor.of(Type::U32), &[address], &[self.swap.into(), address]),
        }
    }

    /// What is read from here on is the next tile.
    fn turn(&self, b: &mut Builder) {
        (0..self.addresses.len() / 2).for_each(|i| self.change(b, i));
    }

    fn load(&self, b: &mut Builder, ops: &mut Operands, k: Part) {
        b.stage(LOAD);
        for operand in ops.order() {
            b.moves(Some([Term::A, Term::B][operand]));
            [&mut ops.a, &mut ops.b][operand].issue(b, k);
        }
        b.moves(None);
        ops.words.iter_mut().flatten().for_each(|l| l.issue(b, k));
        b.stage(self.last());
    }

    /// Writes what was loaded.
    fn fill(&self, b: &mut Builder, ops: &Operands) -> Res<()> {
        b.stage(self.commit);
        ops.a.prepare(b)?;
        ops.b.prepare(b)?;
        b.in_lds(if self.tile.buffers > 1 { TILES_FILLED } else { TILES_READ });
        for operand in ops.order() {
            b.moves(Some([Term::A, Term::B][operand]));
            [&ops.a, &ops.b][operand].commit(b, [0, self.places.b_base][operand]);
        }
        b.moves(None);
        for (words, place) in ops.words.iter().zip(self.places.words) {
            if let (Some(words), Some((_, _, base))) = (words, place) {
                words.commit(b, base);
            }
        }
        (self.addresses.len() / 2..self.addresses.len()).for_each(|i| self.change(b, i));
        b.stage(self.last());
        Ok(())
    }

    /// The same, and loads the next tile where its registers are free then.
    fn fill_and_load(&self, b: &mut Builder, ops: &mut Operands, k: Part) -> Res<()> {
        self.fill(b, ops)?;
        if self.behind {
            self.load(b, ops, k);
        }
        Ok(())
    }

    fn barrier(&self, b: &mut Builder) {
        b.stage(self.commit);
        b.barrier();
        b.stage(self.last());
    }

    /// What a step of the next round multiplies.
    fn read_next(&self, b: &mut Builder, step: u32) {
        b.stage(self.commit);
        self.read(b, step);
        b.stage(self.last());
    }

    /// A round whose parts follow each other.
    fn in_turn(&self, b: &mut Builder, ops: &mut Operands, k: Part) -> Res<()> {
        let (steps, ahead, each, two) = (self.by.steps(), self.ahead, self.one_for_all, self.tile.buffers > 1);
        let matrix = matches!(self.tile.form, Form::Matrix(_));
        if ahead == 0 {
            self.read(b, 0);
        }
        // The steps behind which all of the tile has been read.
        let before = steps - ahead;
        let mut left = None;
        for step in 0..before {
            if ahead > 0 && !each {
                self.read(b, step + ahead);
            }
            let with_last = step + 1 == before;
            if with_last && !each && matrix {
                self.turn(b);
            }
            // Matrix instructions go on while the next tile is written: those of other waves, or, where that is long, of this one.
            if with_last && matrix && two && ops.are_stored_by_halves() {
                let products = b.aside(|b| self.multiply(b, step));
                self.fill_beside(b, ops, k, products)?;
                continue;
            }
            if with_last && matrix && two {
                self.fill_and_load(b, ops, k)?;
            }
            if each {
                self.multiply_and_read(b, step);
            } else {
                self.multiply(b, step);
            }
            if with_last && (each || !matrix) {
                self.turn(b);
            }
            if with_last && !(matrix && two) {
                if !two {
                    self.barrier(b);
                }
                let mut first = Vec::new();
                if each {
                    let later;
                    (first, later) = self.halved(b.aside(|b| self.multiply_and_read(b, before)));
                    left = Some(later);
                }
                self.fill_beside(b, ops, k, first)?;
            }
        }
        self.barrier(b);
        for step in before..steps {
            if let Some(left) = left.take() {
                b.append(left);
            } else if each {
                self.multiply_and_read(b, step);
            } else {
                self.read_next(b, step - before);
                self.multiply(b, step);
            }
        }
        Ok(())
    }

    /// Fills and loads among what is multiplied meanwhile.
    fn fill_beside(&self, b: &mut Builder, ops: &mut Operands, k: Part, products: Vec<MInst>) -> Res<()> {
        let (mut filled, target) = (Ok(()), b.target());
        let mut moves = b.aside(|b| filled = self.fill_and_load(b, ops, k));
        // LDS waits for the vector ALU: what that makes of what was loaded comes before products.
        let of = |m: &MInst, pipe: Pipe| m.op().and_then(|op| target.op(op)).is_some_and(|info| info.pipe == pipe);
        let written = moves.iter().rposition(|m| of(m, Pipe::Lds)).unwrap_or(0);
        let made = moves[..written].iter().rposition(|m| of(m, Pipe::Valu)).map_or(0, |at| at + 1);
        b.append(moves.drain(..made));
        b.spread(products, moves);
        filled
    }

    /// Of a step whose products are multiplied while the next one's operands are read: half of the products, which ask for nothing that is
    /// read there, and the rest.
    fn halved(&self, step: Vec<MInst>) -> (Vec<MInst>, Vec<MInst>) {
        let mut left = step.iter().filter(|i| i.stage == self.last()).count() / 2;
        step.into_iter().partition(|i| {
            let product = i.stage == self.last() && left > 0;
            left -= usize::from(product);
            product
        })
    }

    /// A round whose reads, writes and loads are spread among matrix instructions.
    fn spread(&self, b: &mut Builder, ops: &mut Operands, k: Part) -> Res<()> {
        let (steps, ahead) = (self.by.steps(), self.ahead);
        let two = self.tile.buffers > 1;
        let mut filled = Ok(());
        let written = b.aside(|b| filled = self.fill(b, ops));
        filled?;
        let loads = if self.shadow { b.aside(|b| self.load(b, ops, k)) } else { Vec::new() };
        // Registers are loaded again right behind what writes them to LDS: memory has a round's time for each. Where nothing is read ahead
        // what is written is waited for when the next round begins, and comes first.
        let moves = if ahead > 0 { interleaved(written, loads) } else { [written, loads].concat() };
        if ahead == 0 {
            self.read(b, 0);
        }
        // The steps behind which all of the tile has been read, and a part of the step behind them, before the barrier.
        let before = steps - ahead.max(1);
        let mut chunks = Vec::new();
        for step in 0..before {
            let mut products = b.aside(|b| self.multiply(b, step));
            // What is read has come when the next step begins.
            let later = products.split_off(products.len() * 3 / 4);
            chunks.push((products, b.aside(|b| self.read(b, step + ahead))));
            chunks.push((later, Vec::new()));
        }
        let mut products = b.aside(|b| self.multiply(b, before));
        let all = products.len();
        let eighths = |products: &mut Vec<MInst>, n: usize| {
            let rest = products.split_off((all * n / 8).min(products.len()));
            std::mem::replace(products, rest)
        };
        // What is read ahead has come when a step begins.
        let first = if two || ahead > 0 { Vec::new() } else { eighths(&mut products, 1) };
        let mut during = eighths(
            &mut products,
            if ahead == 0 {
                8
            } else if two {
                4
            } else {
                5
            },
        );
        // What was written last is there when waves meet.
        let each = (self.by.step_clocks(b.target()) / all as f64).max(1.0);
        let last = if self.shadow && ahead > 0 { (choice::lds_answer(b.target()) / each).ceil() as usize } else { 0 };
        let last = during.split_off(during.len() - last.min(during.len() / 4));
        // The other buffer is filled as late as can be, so that memory has time: among what is multiplied before the barrier, and in as much
        // before that as it takes.
        let beside = self.by.beside_a_product(b.target());
        let room = |(products, reads): &(Vec<MInst>, Vec<MInst>)| {
            let room = products.len() as f64 * beside - reads.len() as f64;
            if self.shadow && two { room.max(0.0) } else { 0.0 }
        };
        let (rooms, last_room) = (chunks.iter().map(room).collect::<Vec<f64>>(), during.len() as f64 * beside);
        let count = moves.len() as f64;
        let filled = (count / (rooms.iter().sum::<f64>() + last_room)).max(FILLED);
        let mut left = (count - last_room * filled).max(0.0);
        let shares = rooms.iter().rev().map(|room| {
            let share = (room * filled).min(left);
            left -= share;
            share.round() as usize
        });
        let shares: Vec<usize> = shares.collect();
        let mut moves = moves.into_iter();
        for ((products, mut beside), share) in chunks.into_iter().zip(shares.into_iter().rev()) {
            beside.extend(moves.by_ref().take(share));
            b.spread(products, beside);
        }
        if !two {
            // What this step multiplies has been read.
            b.append(first);
            self.barrier(b);
        }
        b.spread(during, moves.collect());
        b.append(last);
        self.turn(b);
        self.barrier(b);
        for step in before..steps {
            let reads = if ahead > 0 { b.aside(|b| self.read_next(b, step - before)) } else { Vec::new() };
            let mut products =
                if step == before { std::mem::take(&mut products) } else { b.aside(|b| self.multiply(b, step)) };
            let later = products.split_off(products.len() * 2 / 3);
            b.spread(products, reads);
            b.spread(later, Vec::new());
        }
        Ok(())
    }

    /// Writes the loop over a depth, a multiple of the tile's, of which a workgroup has about so many rounds.
    pub fn write(&self, b: &mut Builder, ops: &mut Operands, (depth, about): (Opnd, u32)) -> Res<()> {
        let k = self.tile.k;
        let mut written = Ok(());
        let most = match self.tile.form {
            _ if self.shadow => FEW_IN_SHADOW,
            _ if self.tile.packed().is_some() => FEW_ROUNDS,
            Form::Vector { tm, tn, .. } | Form::Winograd { tm, tn } if tm * tn * self.by.steps() > LONG_ROUND => 1,
            _ => FEW_ROUNDS,
        };
        let few = matches!(depth, Opnd::Imm(depth) if depth <= u64::from(most * k)) || ops.a.tally().is_some();
        b.counted_loop("k", depth, k, Pipeline::Stated, !few, |b, k| {
            b.fix_order();
            if !self.behind {
                self.load(b, ops, k);
            }
            b.stage(self.last());
            written = if self.spread { self.spread(b, ops, k) } else { self.in_turn(b, ops, k) };
            b.in_lds(Lds::Any);
        });
        if self.tile.buffers > 1 && about >= many_rounds(b.target(), self.tile) {
            b.take_turns();
        }
        written
    }
}

/// Instructions that read registers, and others that write them again, each as soon as it can be: both in their order.
fn interleaved(reading: Vec<MInst>, writing: Vec<MInst>) -> Vec<MInst> {
    let touch = |x: &Part, y: &Part| x.reg == y.reg && x.first < y.first + y.len && y.first < x.first + x.len;
    let mut last = 0;
    let after = writing.into_iter().map(|w| {
        let read = |r: &MInst| {
            w.dsts.iter().any(|d| r.srcs.iter().any(|s| d.part().zip(s.part()).is_some_and(|(d, s)| touch(&d, &s))))
        };
        last = reading.iter().rposition(read).map_or(last, |at| last.max(at + 1));
        (last, w)
    });
    let mut after = after.collect::<Vec<_>>().into_iter().peekable();
    let mut out = Vec::new();
    for (at, r) in reading.into_iter().enumerate() {
        while let Some((_, w)) = after.next_if(|a| a.0 <= at) {
            out.push(w);
        }
        out.push(r);
    }
    out.extend(after.map(|a| a.1));
    out
}

/// An address in the first buffer and the same in the second, added.
pub(super) fn sum_of_buffers(b: &mut Builder, address: Part, swap: u32) -> Part {
    let twice = b.shl(address, 1u32);
    let sum = b.add(twice, swap);
    b.to_vector(sum)
}
