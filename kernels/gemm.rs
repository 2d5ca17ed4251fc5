//! The matrix product kernel: `C[m,n] = sum over k of A[m,k] B[k,n]`, tiles in LDS, a block of C in registers.
//!
//! A workgroup computes a tile of C. Tiles of A and B of depth `k` go through LDS in two buffers: while a tile is
//! multiplied the next one is on its way from memory to registers, and one barrier per tile separates the writers of
//! one buffer from the readers of the other. Which elements of C a workitem has in which of its registers is the tile's
//! fragment. By plain multiply-adds it owns `tm x tn` of them in chunks of four, so that LDS is read 16 bytes at a
//! time without bank conflicts; matrix instructions have layouts of their own ([`matrix`](super::matrix)). What a step multiplies is read
//! while the one before is multiplied. Where that is allowed and quicker, products of f16 are summed in f16 within a tile of k. The step's expression is applied to the registers before they are stored.

mod images;

use super::address::Offset;
use super::epilogue;
use super::error::{Reason, Res};
use super::fragment;
use super::loader::Loader;
use super::loader::tally::Levels;
use super::regroup::Rows;
use super::rounds::Rounds;
use super::tile::{Form, Layout, Tile, Types};
use super::values::{self, Value};
use super::{Arg, Cx, Writer, expr, small, standardized, straight};
use crate::graph::fused::StepKind;
use crate::graph::view::View;
use crate::mir::{
    Builder, Dot, Gen, MInst, Opnd, PackedSums, Part, RegClass, Term, Type, dot_instruction, matrix_instruction,
    paired_multiply_adds, signed,
};
use crate::tensor::DType;
use images::Gap;

use barewave_isa::matrix::{Fragment, Step};
use barewave_isa::{ModName, Mods, Op, Target, op};

/// Bytes that the offset of an access to LDS reaches.
const LDS_OFFSETS: u32 = 1 << 16;

/// Added to the offset of rows beyond the end; with a column's own mark the sum stays out of bounds.
const ROW_OUT: u32 = 0x4000_0000;

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

/// Accesses of the results' walk: operands of the expression, and the output.
struct Accesses {
    args: Vec<Arg>,
    views: Vec<View>,
    /// Their columns, in as few dimensions as all agree on.
    inner: Vec<View>,
    /// So many neighbours of a row go together in all of them: four, two of 64 bits, or one.
    together: u32,
    /// The same where a row does not end among them: rows may begin anywhere.
    within: u32,
}

impl Accesses {
    fn of(cx: &Cx, walk: &Walk) -> Accesses {
        let args: Vec<Arg> = epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Output]).collect();
        let views: Vec<View> = args.iter().map(|a| walk.view(cx.view(*a))).collect();
        let all: Vec<&View> = views.iter().collect();
        let runs = crate::graph::collapse::groups(&all, walk.n_dims.clone());
        let of = |v: &View| {
            let (dims, strides) = crate::graph::collapse::apply(v, &runs);
            View { offset: 0, dims, strides }
        };
        let inner: Vec<View> = views.iter().map(of).collect();
        let count = values::come_together(cx.dtype(Arg::Output));
        let lie_together = |(a, v): (&Arg, &View)| {
            matches!(v.strides.last(), Some(0 | 1)) && values::come_together(cx.dtype(*a)) == count
        };
        let in_words = |(a, v): (&Arg, &View)| {
            let t = cx.dtype(*a);
            v.strides.last() == Some(&0) || values::is_word_aligned(t, v) && values::is_word_aligned(t, cx.view(*a))
        };
        let all = || args.iter().zip(&inner);
        let dense = inner.last().and_then(|v| v.strides.last()) == Some(&1) && all().all(lie_together);
        let last = inner[0].dims.last().copied().unwrap_or(1);
        let whole = dense && last.is_multiple_of(count as usize) && all().all(in_words);
        let within = dense && inner[0].rank() == 1;
        let [together, within] = [whole, whole || within].map(|go| if go { count } else { 1 });
        Accesses { args, views, inner, together, within }
    }
}

/// Neighbouring columns of the results are neighbours in memory, but are stored one by one: lanes of a wave should have them
/// side by side.
pub(super) fn stores_apart(cx: &Cx, walk: &Walk) -> bool {
    let all = Accesses::of(cx, walk);
    let dense = all.inner.last().and_then(|v| v.strides.last()) == Some(&1);
    dense && all.together == 1
}

/// Neighbouring columns of the results are stored together.
pub(super) fn stores_together(cx: &Cx, walk: &Walk) -> bool {
    Accesses::of(cx, walk).together > 1
}

/// Offsets of one access.
struct Plan {
    arg: Arg,
    /// Scalar part and constant.
    outer: Offset,
    row_stride: i64,
    /// Vector byte offset of the workitem's first row.
    row: Option<Part>,
    /// What rows of later images add, where a tile may have several.
    gap: Option<Gap>,
    /// Byte offset of each column chunk (first column), out of bounds where the column is; all from the first one by
    /// constants when `regular`.
    cols: Vec<Option<Part>>,
    col_stride: i64,
    dtype: DType,
}

/// Applies the step's expression to the accumulators, corrected where `levels` are known of their rows, and stores them. `outer` gives an
/// access's offset from everything but rows and columns. Where neighbours go together but for those at the end of a row, the last tiles of rows
/// store one by one, and all others several at a time.
pub(super) fn store(
    w: &mut Writer,
    cx: &Cx,
    of: (&Tile, &Sums),
    walk: &Walk,
    first: (Part, Part),
    levels: Option<(&standardized::Rows, Levels)>,
    mut outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<()> {
    let all = Accesses::of(cx, walk);
    let (together, within) = (all.together, all.within);
    let (tile, columns) = (of.0, walk.columns(cx));
    let vector = matches!(tile.form, Form::Vector { .. });
    if within == together || !vector || levels.is_some() || columns < tile.n as usize {
        let ends = !columns.is_multiple_of(tile.n as usize);
        return store_tile(w, cx, of, (walk, &all), (first, levels), Columns { together, ends }, &mut outer);
    }
    all.args.iter().try_for_each(|arg| w.buffer(cx, *arg).map(|_| ()))?;
    let (last, done) = (w.b.label(), w.b.label());
    let end = w.b.add(first.1, tile.n);
    w.b.branch_lt(columns as u32, end, last);
    store_tile(w, cx, of, (walk, &all), (first, None), Columns { together: within, ends: false }, &mut outer)?;
    w.b.emit(op::S_BRANCH, &[], &[Opnd::Block(done)]);
    w.b.place(last, "last");
    store_tile(w, cx, of, (walk, &all), (first, None), Columns { together, ends: true }, &mut outer)?;
    w.b.place(done, "stored");
    Ok(())
}

/// Columns of a tile.
#[derive(Clone, Copy)]
struct Columns {
    /// So many neighbours are stored together.
    together: u32,
    /// Rows may end among them.
    ends: bool,
}

/// Stores a tile.
fn store_tile(
    w: &mut Writer,
    cx: &Cx,
    (tile, sums): (&Tile, &Sums),
    (walk, Accesses { args, views, inner, .. }): (&Walk, &Accesses),
    (first, levels): ((Part, Part), Option<(&standardized::Rows, Levels)>),
    Columns { together, ends }: Columns,
    outer: &mut impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<()> {
    let regrouped = Rows::of(tile);
    let fragment = regrouped.as_ref().map_or_else(|| tile.fragment(), Rows::fragment);
    let item = w.b.workitem_id();
    let m = fragment::coordinate(&mut w.b, &fragment, item, fragment::row, 1, Some(first.0));
    let n = fragment::coordinate(&mut w.b, &fragment, item, fragment::col, 1, Some(first.1));
    let (m, n) = (w.b.to_vector(m), w.b.to_vector(n));
    let columns = walk.columns(cx);
    let dims = inner[0].dims.clone();
    // Neighbours of a row lie together in registers and in memory.
    let neighbours = |p: u32| fragment.position.get(p as usize).is_some_and(|s| (s.row, s.col) == (0, 1 << p));
    let wide = (0..together.trailing_zeros()).all(neighbours);
    // Each group of columns is handled at once: these neighbours, or one.
    let group = if wide { together } else { 1 };
    // Positions of the first row's groups, and of the first column's rows, with what they add to it.
    let all = 0..tile.m * tile.n / tile.threads();
    let row_of = |p: &u32| fragment.element(0, *p).0;
    let col_of = |p: &u32| fragment.element(0, *p).1;
    let mut cols: Vec<u32> = all.clone().filter(|p| row_of(p) == 0 && p % group == 0).collect();
    let mut rows: Vec<u32> = all.filter(|p| col_of(p) == 0).collect();
    cols.sort_by_key(col_of);
    rows.sort_by_key(row_of);
    let mut col_coords = Vec::new();
    let mut of_columns = Vec::new();
    for p in &cols {
        let delta = col_of(p);
        let at = if delta > 0 { w.b.add(n, delta) } else { n };
        let inside = ends.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(columns as u32).into(), at.into()]));
        let coords = super::address::coordinates(&mut w.b, at, &dims);
        col_coords.push((coords, inside));
        if let Some((rows, _)) = levels {
            of_columns.push(rows.columns(w, at, group)?);
        }
    }
    let mut plans = Vec::new();
    for (k, &arg) in args.iter().enumerate() {
        let (view, dtype) = (&views[k], cx.dtype(arg));
        let size = dtype.size();
        let mut outer = outer(w, cx.view(arg), size);
        let gap = Gap::of(walk, view, size).and_then(|gap| gap.of_tile(&mut w.b, &mut outer, first.0, tile.m));
        let row_stride = view.strides[walk.m_dim] * size as i64;
        let row = (row_stride != 0 && gap.is_none()).then(|| w.b.mul(m, row_stride as i32));
        let mut cols = Vec::new();
        for (coords, inside) in &col_coords {
            let o = super::address::offset_of_dims(&mut w.b, &inner[k], size, coords, 0..dims.len(), false);
            cols.push(match (o.reg, inside) {
                (reg, Some(mask)) if epilogue::has_ends(cx, arg) => {
                    let reg = reg.unwrap_or_else(|| w.b.to_vector(0u32));
                    Some(w.b.guard(*mask, reg))
                }
                (reg, _) => reg,
            });
        }
        let col_stride = inner[k].strides.last().copied().unwrap_or(0);
        plans.push(Plan { arg, outer, row_stride, row, gap, cols, col_stride, dtype });
    }
    let t = cx.step.inputs[0].tensor;
    let t = cx.graph.tensor(t).dtype;
    // Where what is known of the workitem's first row is.
    let pairs = levels.map(|(_, levels)| {
        let at = fragment::coordinate(&mut w.b, &fragment, item, fragment::row, 8 * levels.team, None);
        w.b.to_vector(at)
    });
    let mut turned = regrouped.as_ref().map(|r| r.begin(w));
    if levels.is_some() && matches!(tile.form, Form::Vector { .. }) {
        // Reads do not come early at the price of registers, which waves have few of that sum in them.
        w.b.block("corrected");
    }
    if regrouped.is_some() {
        // What is regrouped is stored while the next results are on their way, in the order in which this is written.
        args.iter().try_for_each(|arg| w.buffer(cx, *arg).map(|_| ()))?;
        w.b.block("rows");
        w.b.fix_order();
    }
    // What is the same in all rows, of each access and group of columns.
    let mut of_all = vec![vec![None; cols.len()]; plans.len()];
    for p in &rows {
        let delta = row_of(p);
        if let (Some(rows), Some(turned)) = (&regrouped, &mut turned) {
            rows.reach(w, sums, turned, delta);
        }
        let sums = turned.as_ref().map_or(sums, |t| &t.sums);
        let at = if delta > 0 { w.b.add(m, delta) } else { m };
        let inside = (!walk.rows.is_multiple_of(tile.m as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(walk.rows as u32).into(), at.into()]));
        let mut row: Vec<Part> = cols.iter().map(|c| sums.slice(p + c, group)).collect();
        if let (Some((rows, levels)), Some(pairs)) = (levels, pairs) {
            let pair = w.b.lds_read(2, pairs, levels.pairs + 8 * levels.team * delta);
            for (sums, columns) in row.iter_mut().zip(&of_columns) {
                *sums = rows.corrected(w, *sums, pair, columns);
            }
        }
        store_row(w, cx, &plans, &mut of_all, (at, delta as usize, inside), &row, (t, group as usize))?;
    }
    Ok(())
}

/// One row of a workitem's block.
fn store_row(
    w: &mut Writer,
    cx: &Cx,
    plans: &[Plan],
    of_all: &mut [Vec<Option<Vec<Value>>>],
    (at, delta, inside): (Part, usize, Option<Part>),
    row: &[Part],
    (t, group): (DType, usize),
) -> Res<()> {
    // Row part of each access's offset.
    let mut rows: Vec<Offset> = Vec::new();
    for p in plans {
        let shift = (delta as i64 * p.row_stride) as u32;
        let mut reg = p.row;
        let mut imm = p.outer.imm;
        if let Some(gap) = p.gap {
            reg = Some(gap.of_row(&mut w.b, at, p.row_stride));
        } else if p.row_stride >= 0 {
            imm = imm.wrapping_add(shift);
        } else if let Some(r) = reg {
            reg = Some(w.b.add(r, shift));
        }
        if let Some(mask) = inside.filter(|_| epilogue::has_ends(cx, p.arg)) {
            let r = reg.unwrap_or_else(|| w.b.to_vector(0u32));
            let out = w.b.to_vector(ROW_OUT);
            reg = Some(w.b.select(mask, r, out));
        }
        rows.push(Offset { reg, imm });
    }
    let mut once: Vec<Option<Vec<Value>>> = vec![None; plans.len()];
    for (g, &sums) in row.iter().enumerate() {
        let sums = in_vectors(w, sums);
        let own = sums.len / group as u8;
        let values: Vec<Value> = (0..group as u8).map(|e| Value::of(t, sums.slice(e * own, own))).collect();
        let mut operands: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
        for (k, p) in plans.iter().enumerate() {
            let Arg::Input(i) = p.arg else { continue };
            let same_for_all = p.cols.iter().all(Option::is_none);
            let known = if same_for_all { &once[k] } else { &of_all[k][g] };
            operands[i] = match known {
                Some(v) => v.clone(),
                None => load_group(w, cx, p, rows[k], g, group)?,
            };
            if same_for_all {
                once[k] = Some(operands[i].clone());
            } else if p.row.is_none() && p.gap.is_none() {
                of_all[k][g] = Some(operands[i].clone());
            }
        }
        let mut results = Vec::new();
        for e in 0..group {
            let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
            results.push(expr::eval_sum(&mut w.b, &cx.step.expr, &input, values[e])?);
        }
        let (k, p) = plans.iter().enumerate().next_back().expect("the output is an access");
        let buf = w.buffer(cx, Arg::Output)?;
        let at = join(w, rows[k], p.cols[g], p.outer.reg);
        if group == 1 {
            values::store(&mut w.b, p.dtype, buf, at, results[0]);
        } else {
            values::store_some(&mut w.b, p.dtype, buf, at, &results);
        }
    }
    Ok(())
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

/// Loads the elements of an operand that go with one group of columns.
fn load_group(w: &mut Writer, cx: &Cx, p: &Plan, row: Offset, g: usize, group: usize) -> Res<Vec<Value>> {
    let buf = w.buffer(cx, p.arg)?;
    let at = join(w, row, p.cols[g], p.outer.reg);
    if group > 1 && p.col_stride == 1 {
        return Ok(values::load_some(&mut w.b, p.dtype, buf, at, group as u32));
    }
    Ok(vec![values::load(&mut w.b, p.dtype, buf, at)])
}

/// A whole offset: of the row, the column and what is the same for the workgroup.
fn join(w: &mut Writer, row: Offset, col: Option<Part>, outer: Option<Part>) -> Offset {
    let reg = match (row.reg, col) {
        (Some(r), Some(c)) => Some(w.b.add(r, c)),
        (r, c) => r.or(c),
    };
    let reg = match (reg, outer) {
        (Some(v), Some(s)) => Some(w.b.add(v, s)),
        (v, s) => v.or(s),
    };
    Offset { reg, imm: row.imm }
}
