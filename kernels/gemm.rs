//! The matrix product kernel: `C[m,n] = sum over k of A[m,k] B[k,n]`, tiles in LDS, a block of C in registers.
//!
//! A workgroup computes a tile of C. Tiles of A and B of depth `k` go through LDS in two buffers: while a tile is
//! multiplied the next one is on its way from memory to registers, and one barrier per tile separates the writers of
//! one buffer from the readers of the other. Which elements of C a workitem has in which of its registers is the tile's
//! fragment. By plain multiply-adds it owns `tm x tn` of them in chunks of four, so that LDS is read 16 bytes at a
//! time without bank conflicts; matrix instructions have layouts of their own ([`matrix`](super::matrix)). What a step multiplies is read
//! while the one before is multiplied. Where that is allowed and quicker, products of f16 are summed in f16 within a tile of k. The step's expression is applied to the registers before they are stored.

mod images;
mod pairs;
mod store;

pub(super) use pairs::with_pairs;
pub(super) use store::{store, stores_apart, stores_together};

use super::error::{Reason, Res};
use super::fragment;
use super::loader::Loader;
use super::rounds::Rounds;
use super::tile::{Form, Layout, Tile, Types};
use super::{Arg, Cx, Writer, small, straight};
use crate::graph::fused::StepKind;
use crate::graph::view::View;
use crate::mir::{
    Builder, Dot, MInst, Opnd, PackedSums, Part, RegClass, Term, Type, dot_instruction, matrix_instruction,
    paired_multiply_adds, signed,
};
use crate::tensor::DType;

use barewave_isa::matrix::{Fragment, Step};
use barewave_isa::{ModName, Mods, Op, Target};

/// Bytes that the offset of an access to LDS reaches.
const LDS_OFFSETS: u32 = 1 << 16;

/// How accesses (operands of the expression, the output) are walked: `view` has the dimensions
/// `[outer.., m, inner..]`.
pub(super) struct Walk {
    /// Which dimension is m.
    pub m_dim: usize,
    /// How many rows there are (of a group).
    pub rows: usize,
    /// Extents of the inner dimensions together are the columns.
    pub n_dims: std::ops::Range<usize>,
    /// The first two dimensions of accesses are taken the other way round.
    pub swapped: bool,
    /// Rows of an image, where rows are the positions of several: the dimension before m.
    pub positions: Option<usize>,
}

impl Walk {
    /// Columns of the results.
    fn columns(&self, cx: &Cx) -> usize {
        self.view(&cx.step.output.view).dims[self.n_dims.clone()].iter().product()
    }

    /// An access as it is walked.
    fn view(&self, view: &View) -> View {
        let mut view = view.clone();
        if self.swapped {
            view.dims.swap(0, 1);
            view.strides.swap(0, 1);
        }
        view
    }
}

/// The loaders of both operands, ready to issue.
pub(super) struct Operands {
    pub a: Loader,
    pub b: Loader,
    /// Of the words that go with each: they say where the elements of a sparse one were, or are scales.
    pub words: [Option<Loader>; 2],
}

impl Operands {
    /// The loaders of all that comes to LDS.
    pub fn all(&self) -> impl Iterator<Item = &Loader> {
        [&self.a, &self.b].into_iter().chain(self.words.iter().flatten())
    }

    /// Of one at least LDS stores halves of words.
    pub fn are_stored_by_halves(&self) -> bool {
        self.all().any(Loader::is_stored_by_halves)
    }

    /// The order in which operands are loaded, and written to LDS: what is gathered waits for its table first.
    pub fn order(&self) -> [usize; 2] {
        if let Loader::Gather(_) = self.a { [1, 0] } else { [0, 1] }
    }

    /// Both come without a table of offsets.
    pub fn are_dense(&self) -> bool {
        ![&self.a, &self.b].iter().any(|l| matches!(l, Loader::Gather(_)))
    }
}

/// The types of a product of the step's first two operands.
pub(super) fn types(cx: &Cx) -> Res<Types> {
    let [a, b] = [0, 1].map(|i| cx.dtype(Arg::Input(i)));
    if let StepKind::Scaled(s) = &cx.step.kind {
        let [left, right] = small::multiplied_in_blocks(cx.target, s.types).ok_or(Reason::Factors(a, b))?;
        let right = (right != left).then_some(right);
        return Ok(Types { storage: left, compute: left, right, accumulate: Type::F32, matrix: None, packed: None });
    }
    if let StepKind::Nibbles(n) = &cx.step.kind {
        let [left, right] = n.signed.map(|signed| if signed { Type::I4 } else { Type::U4 });
        let (factors, sums) = ([left, right], Type::I32);
        let multiplied = matrix_instruction(cx.target, factors, sums, 16).is_some()
            || dot_instruction(cx.target, factors, sums).is_some();
        let right = (right != left).then_some(right);
        let types = Types { storage: left, compute: left, right, accumulate: sums, matrix: None, packed: None };
        return multiplied.then_some(types).ok_or(Reason::Factors(n.types()[0], n.types()[1]));
    }
    if a.is_small_float() && b.is_small_float() {
        let [left, right] = small::multiplied(cx.target, [a, b]).ok_or(Reason::Factors(a, b))?;
        let right = (right != left).then_some(right);
        return Ok(Types { storage: left, compute: left, right, accumulate: Type::F32, matrix: None, packed: None });
    }
    if a != b || a == DType::Bool {
        return Err(Reason::Factors(a, b));
    }
    let xf32 = a == DType::F32 && cx.tuning.takes_xf32(cx.target);
    let packed = cx.tuning.f16_sums(cx.target).filter(|_| a == DType::F16);
    Ok(Types { matrix: xf32.then_some(Type::Xf32), packed, ..Types::of(a) })
}

/// Bytes of the tensors behind the operands of so many products.
pub(super) fn operand_bytes(cx: &Cx, products: usize) -> usize {
    cx.step.inputs[..2 * products].iter().map(|a| cx.graph.tensor(a.tensor).bytes()).sum()
}

/// A workitem's sums: position `p` of the tile's fragment is element `p % per` of register `p / per`.
pub(super) struct Sums {
    /// The registers.
    pub parts: Vec<Part>,
    /// Positions of a register.
    pub per: u32,
    /// Dwords of an element.
    pub dwords: u32,
}

impl Sums {
    /// `count` neighbouring positions.
    pub fn slice(&self, position: u32, count: u32) -> Part {
        let (part, at) = (self.parts[(position / self.per) as usize], position % self.per);
        part.slice((at * self.dwords) as u8, (count * self.dwords) as u8)
    }
}

/// Registers of what a step reads: of A's tile, and of B's.
pub(super) type Read = (Vec<Part>, Vec<Part>);

/// The stages of a loop in which a step is read, and in which one is multiplied.
#[derive(Clone, Copy)]
pub(super) struct Stages {
    pub read: u8,
    pub multiply: u8,
}

/// How a tile in LDS is multiplied: reads of one step, and its products.
pub(super) trait Multiplier {
    /// Steps of a tile.
    fn steps(&self) -> u32;
    /// Clocks that a wave multiplies in a step.
    fn step_clocks(&self, _target: Target) -> f64 {
        f64::INFINITY
    }
    /// How many instructions run in the shadow of a product.
    fn beside_a_product(&self, _target: Target) -> f64 {
        1.0
    }
    /// Registers for the operands of a step.
    fn registers(&self, b: &mut Builder) -> Read;
    /// Reads the operands of a step.
    fn read(&self, b: &mut Builder, step: u32, into: &Read);
    /// Multiplies what was read for a step into the sums.
    fn multiply(&self, b: &mut Builder, sums: &[Part], read: (u32, &Read));
    /// Registers for the operands of so many steps in turn. Those of one operand may be the same in all of them: its next elements are
    /// read as soon as no product asks for the last ones ([`Multiplier::multiply_and_read`]).
    fn sets(&self, b: &mut Builder, count: u32, _one_for_all: bool) -> Vec<Read> {
        (0..count).map(|_| self.registers(b)).collect()
    }
    /// Multiplies what was read into the sums, and reads a step into the next registers of [`Multiplier::sets`].
    fn multiply_and_read(
        &self,
        b: &mut Builder,
        sums: &[Part],
        read: (u32, &Read),
        (step, into): (u32, &Read),
        stages: Stages,
    ) {
        b.stage(stages.read);
        self.read(b, step, into);
        b.stage(stages.multiply);
        self.multiply(b, sums, read);
    }
}

/// Places of both operands' tiles in LDS.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Read address of this workitem in A's tile, and in B's without its base.
    pub read: (Part, Part),
    /// How elements lie in them.
    pub layout: (Layout, Layout),
    /// Where B's tile begins.
    pub b_base: u32,
    /// The same of the words that go with each: read address, layout, and where they begin; 0 where that is part of the address.
    pub words: [Option<(Part, Layout, u32)>; 2],
}

/// Multiplies and gives the sums.
pub(super) fn multiply(w: &mut Writer, tile: &Tile, ops: &mut Operands, depth: u32) -> Res<Sums> {
    let sums = zeros(&mut w.b, tile);
    multiply_into(w, tile, ops, depth, &sums)?;
    Ok(sums)
}

/// Sums of nothing.
pub(super) fn zeros(b: &mut Builder, tile: &Tile) -> Sums {
    let sums = match tile.form {
        Form::Vector { tm, tn, .. } | Form::Winograd { tm, tn } => {
            let (per, dwords) = (tile.chunk(tn), u32::from(tile.types.accumulate.dwords()));
            let parts = (0..tm * tn / per).map(|_| b.v((per * dwords) as u8)).collect();
            Sums { parts, per, dwords }
        }
        Form::Matrix(f) => f.sums(b, tile),
        Form::Sliced(f) => f.sums(b, tile),
        Form::Few(f) => f.sums(b),
    };
    for p in &sums.parts {
        for i in 0..p.len {
            b.copy_into(p.dword(i), 0u32);
        }
    }
    sums
}

/// Multiplies and adds to sums. LDS is that of the products before, which all have ended when others begin.
pub(super) fn multiply_into(w: &mut Writer, tile: &Tile, ops: &mut Operands, depth: u32, sums: &Sums) -> Res<()> {
    let depth = depth.next_multiple_of(tile.k);
    multiply_deep(w, tile, ops, (depth.into(), depth / tile.k), sums)
}

/// The same with a depth that is a multiple of the tile's, and may be known to the kernel only: about so many rounds.
pub(super) fn multiply_deep(
    w: &mut Writer,
    tile: &Tile,
    ops: &mut Operands,
    (depth, about): (Opnd, u32),
    sums: &Sums,
) -> Res<()> {
    if let Form::Matrix(form) = &tile.form
        && form.straight
    {
        return straight::multiply(&mut w.b, (tile, form), ops, depth, &sums.parts);
    }
    let layout = (ops.a.layout(), ops.b.layout());
    let (size_a, size_b) = (layout.0.bytes(tile.of_operand(0).k), layout.1.bytes(tile.of_operand(1).k));
    let of_words = ops.words.each_ref().map(|w| w.as_ref().map(Loader::layout));
    let word_bytes = of_words.map(|l| l.map_or(0, |l| l.bytes(tile.of_words().k)));
    let bytes = size_a + size_b + word_bytes[0] + word_bytes[1];
    let swap = tile.swap(bytes);
    let b = &mut w.b;
    b.lds_of_at_least(tile.lds(bytes));
    let item = b.workitem_id();
    let reads = match tile.form {
        Form::Vector { .. } | Form::Winograd { .. } => {
            // The rows of the result are columns of A's tile.
            let (a, x) = (|s: &Step| fragment::across(s.row), |s: &Step| fragment::across(s.col));
            let f = tile.fragment();
            let of = |turn: fn(&Step) -> Step| Fragment { lane: f.lane.iter().map(turn).collect(), ..f.clone() };
            (of(a), of(x))
        }
        Form::Matrix(f) => f.reads(tile),
        Form::Sliced(_) | Form::Few(_) => return Err(Reason::Malformed("operands that do not pass through LDS")),
    };
    let read = (layout.0.address(b, &reads.0, item), layout.1.address(b, &reads.1, item));
    let read = (b.to_vector(read.0), b.to_vector(read.1));
    let mut words = [None; 2];
    if let Form::Matrix(f) = tile.form {
        for (operand, layout) in of_words.into_iter().enumerate().filter_map(|(o, l)| Some((o, l?))) {
            let mut base = size_a + size_b + [0, word_bytes[0]][operand];
            let mut read = layout.address(b, &f.read_words(tile, operand), item);
            // Offsets of instructions reach no further.
            if base + word_bytes[operand] > LDS_OFFSETS {
                read = b.add(read, base);
                if let Some(loader) = &mut ops.words[operand] {
                    loader.go_to(b, base);
                }
                base = 0;
            }
            words[operand] = Some((b.to_vector(read), layout, base));
        }
    }
    let places = Places { read, layout, b_base: size_a, words };
    let mut vector = |tm, tn, dot: Option<Dot>| {
        let place = tile.fragment();
        let packed = tile.packed().map(|by| Packed::new(b, by, (tm, tn)));
        let pair = paired_multiply_adds(b.target(), tile.types.accumulate).filter(|_| dot.is_none());
        let by = Vector { tile, place, tm, tn, dot, pair, packed, places };
        Rounds::new(b, tile, ops, &by, &sums.parts, places, swap).write(b, ops, (depth, about))
    };
    match tile.form {
        Form::Vector { tm, tn, dot } => vector(tm, tn, dot),
        Form::Winograd { tm, tn } => vector(tm, tn, None),
        Form::Matrix(form) => {
            let by = form.multiplier(tile, places);
            Rounds::new(b, tile, ops, &by, &sums.parts, places, swap).write(b, ops, (depth, about))
        }
        Form::Sliced(_) | Form::Few(_) => Ok(()),
    }
}

/// Multiply-adds or dot products of a block of rows and columns per workitem, a cell's k a step.
struct Vector<'a> {
    tile: &'a Tile,
    place: Fragment,
    tm: u32,
    tn: u32,
    dot: Option<Dot>,
    /// The instruction that is two multiply-adds.
    pair: Option<Op>,
    packed: Option<Packed>,
    places: Places,
}

/// Sums of a round's products of f16 in f16, two columns of a row in a word. Each of them is of as many products as a tile is deep: with every one
/// it is rounded, by at most `2^-11` of itself, and what is beyond 65504 becomes infinite.
struct Packed {
    by: PackedSums,
    /// Those of rows, one behind the other.
    sums: Vec<Part>,
    /// 1 in f32: it is not documented whether an inline constant counts as f16 or as f32.
    one: Part,
}

impl Packed {
    /// For so many rows and columns.
    fn new(b: &mut Builder, by: PackedSums, (tm, tn): (u32, u32)) -> Packed {
        Packed { by, sums: (0..tm * tn / 2).map(|_| b.v(1)).collect(), one: b.scalar(1.0f32.to_bits()) }
    }

    /// Adds the products of a k's rows and columns; the first ones of a round are its sums. Each factor is a word and its half.
    fn multiply(&self, b: &mut Builder, first: bool, rows: &[(Part, u32)], columns: &[(Part, u32)]) {
        let each = rows.iter().flat_map(|row| columns.iter().step_by(2).map(move |column| (row, column.0)));
        for (sum, (&(a, half), x)) in self.sums.iter().zip(each) {
            // Both columns take the same half of the row's word, and their own of theirs.
            let half = half as i32;
            let (op, add) = if first { (self.by.multiply, 0) } else { (self.by.multiply_add, 0b100) };
            let mods = Mods::new().with(ModName::OpSel, half).with(ModName::OpSelHi, half | 0b10 | add);
            let srcs: [Opnd; 3] = [a.into(), x.into(), (*sum).into()];
            b.push(MInst { mods, ..MInst::new(op, &[(*sum).into()], &srcs[..if first { 2 } else { 3 }]) });
        }
    }

    /// Adds the sums of a round to those of f32, given one by one.
    fn add_to(&self, b: &mut Builder, sums: impl Iterator<Item = Part>) {
        for (sum, (own, half)) in sums.zip(self.sums.iter().flat_map(|own| [(own, 0), (own, 1)])) {
            let mods = Mods::new().with(ModName::OpSel, half).with(ModName::OpSelHi, 1);
            let srcs = [(*own).into(), self.one.into(), sum.into()];
            b.push(MInst { mods, ..MInst::new(self.by.mixed, &[sum.into()], &srcs) });
        }
    }
}

impl Vector<'_> {
    /// Registers for elements that lie together.
    fn chunks(&self, b: &mut Builder, own: u32) -> Vec<Part> {
        let count = self.tile.chunk(own);
        (0..own / count).map(|_| b.v((count * self.tile.cell() / 4) as u8)).collect()
    }

    /// Adds one product.
    fn add(&self, b: &mut Builder, Product { sum, row, column }: Product) {
        match self.dot {
            Some(dot) => {
                let mods = dot.signs.map_or_else(Mods::new, signed);
                let srcs = [row.into(), column.into(), sum.into()];
                b.push(MInst { mods, ..MInst::new(dot.op, &[sum.into()], &srcs) });
            }
            None => b.multiply_add_into(self.tile.types.accumulate, sum, row, column),
        }
    }

    /// Reads elements that lie together.
    fn chunk(&self, b: &mut Builder, dst: Part, address: Part, at: u32) {
        for first in (0..dst.len).step_by(4) {
            let len = (dst.len - first).min(4);
            b.lds_read_into(dst.slice(first, len), address, at + u32::from(first) * 4);
        }
    }
}

impl Multiplier for Vector<'_> {
    fn steps(&self) -> u32 {
        self.tile.k / self.tile.run
    }

    fn registers(&self, b: &mut Builder) -> Read {
        (self.chunks(b, self.tm), self.chunks(b, self.tn))
    }

    fn read(&self, b: &mut Builder, k: u32, (fa, fb): &Read) {
        let (cm, cn) = (self.tile.chunk(self.tm), self.tile.chunk(self.tn));
        let row = |c: u32| self.place.element(0, c * cm * self.tn).0;
        let col = |c: u32| self.place.element(0, c * cn).1;
        let (p, k) = (self.places, k * self.tile.run);
        b.moves(Some(Term::A));
        for (&dst, c) in fa.iter().zip(0..) {
            b.element(k, row(c));
            self.chunk(b, dst, p.read.0, p.layout.0.at(k, row(c)));
        }
        b.moves(Some(Term::B));
        for (&dst, c) in fb.iter().zip(0..) {
            b.element(k, col(c));
            self.chunk(b, dst, p.read.1, p.b_base + p.layout.1.at(k, col(c)));
        }
        b.moves(None);
    }

    fn multiply(&self, b: &mut Builder, sums: &[Part], (step, (fa, fb)): (u32, &Read)) {
        let (cm, cn) = (self.tile.chunk(self.tm), self.tile.chunk(self.tn));
        let ty = self.tile.types.accumulate;
        let one = |p: Part, i: u32| p.slice((i * u32::from(ty.dwords())) as u8, ty.dwords());
        if let Some(packed) = &self.packed {
            let halves = |parts: &[Part], chunk: u32, own: u32| -> Vec<(Part, u32)> {
                let of = |i: u32| (parts[(i / chunk) as usize].dword((i % chunk / 2) as u8), i % 2);
                (0..own).map(of).collect()
            };
            packed.multiply(b, step == 0, &halves(fa, cm, self.tm), &halves(fb, cn, self.tn));
            if step + 1 == self.steps() {
                let position = |i: u32| one(sums[(i / cn) as usize], i % cn);
                packed.add_to(b, (0..self.tm * self.tn).map(position));
            }
            return;
        }
        let words = self.tile.cell() / 4;
        let cell = |p: Part, i: u32| p.slice((i * words) as u8, words as u8);
        let product = |(row, col): (u32, u32)| Product {
            sum: one(sums[((row * self.tn + col) / cn) as usize], col % cn),
            row: cell(fa[(row / cm) as usize], row % cm),
            column: cell(fb[(col / cn) as usize], col % cn),
        };
        // Two by two along the diagonals: neighbours have no register in common, and can be issued together.
        let (rows, cols) = (2.min(self.tm), 2.min(self.tn));
        let squares =
            (0..self.tm).step_by(rows as usize).flat_map(|r| (0..self.tn).step_by(cols as usize).map(move |c| (r, c)));
        for (r, c) in squares {
            let mut square = (0..rows * cols).map(|i| product((r + i % rows, c + (i + i / rows) % cols)));
            while let Some(x) = square.next() {
                let y = square.next();
                match (self.pair, y) {
                    (Some(pair), Some(y)) if x.goes_with(&y) => {
                        let srcs = [x.row, x.column, y.row, y.column].map(Opnd::from);
                        b.emit(pair, &[x.sum.into(), y.sum.into()], &srcs);
                    }
                    _ => [Some(x), y].into_iter().flatten().for_each(|x| self.add(b, x)),
                }
            }
        }
    }
}

/// A row's element times a column's, and what it is added to.
#[derive(Clone, Copy)]
struct Product {
    sum: Part,
    row: Part,
    column: Part,
}

impl Product {
    /// Wherever their registers will be, those of both are in different banks: neighbours of a tuple, and an odd and an even dword of what
    /// begins at even registers.
    fn goes_with(&self, other: &Product) -> bool {
        let neighbours = |x: Part, y: Part| x.reg == y.reg && x.first.abs_diff(y.first) == 1;
        let parities = (self.sum.first ^ other.sum.first) & 1 == 1;
        parities && neighbours(self.row, other.row) && neighbours(self.column, other.column)
    }
}

/// Sums in vector registers: those of matrix instructions may be in accumulation registers.
pub(super) fn in_vectors(w: &mut Writer, sums: Part) -> Part {
    if w.b.function().vreg(sums.reg).class == RegClass::V {
        return sums;
    }
    let copy = w.b.v(sums.len);
    w.b.copy_into(copy, sums);
    copy
}
