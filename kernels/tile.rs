//! Tiles of the matrix kernels: types and sizes of a workgroup's work, how it is divided over lanes and registers, and
//! where a tile of an operand lies in LDS.
//!
//! An operand tile is `depth` (along k) by `width` (along m or n). In LDS it is made of *cells*: `run` consecutive k of one
//! column. The cells of a run lie side by side, `pitch` of them, before those of the next run. Plain multiply-adds read
//! a k at a time (runs of 1), dot products as many as they add, matrix instructions 16 bytes along k. That is the tile's
//! [`Layout`]. Who has which elements, while a tile is loaded, written, read and multiplied, is always a fragment, of which k are
//! the rows where it speaks of an operand; a fragment and the layout together are the addresses.

use super::few::Few;
use super::fragment;
use super::matrix::MatrixForm;
use super::slices::Sliced;
use super::values;
use super::winograd;
use crate::mir::{Builder, Dot, PackedSums, Part, Type};
use crate::tensor::DType;
use barewave_isa::matrix::{Fragment, Step};

/// Most bytes of a load and of an access to LDS.
pub(super) const WIDEST: u32 = 16;

/// Sums of a workitem beside which as many of half their size leave few registers.
const FULL: u32 = 64;

/// Types of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Types {
    /// Elements of both operands in memory.
    pub storage: Type,
    /// In LDS, and what is multiplied.
    pub compute: Type,
    /// Those of the right operand, in memory and multiplied, where they are of another type of as many bits.
    pub right: Option<Type>,
    /// What products are summed in.
    pub accumulate: Type,
    /// What matrix instructions multiply, where they read less of the elements than memory has.
    pub matrix: Option<Type>,
    /// What sums the products of a round in fewer bits, before they are added to the sums, where that is allowed and quicker.
    pub packed: Option<PackedSums>,
}

impl Types {
    /// Multiply-adds of a type's elements.
    pub fn of(t: DType) -> Types {
        let compute = values::computed(t);
        Types { storage: values::stored(t), compute, right: None, accumulate: compute, matrix: None, packed: None }
    }
    /// What is multiplied, of the left and of the right operand.
    pub fn factors(&self) -> [Type; 2] {
        [self.compute, self.right.unwrap_or(self.compute)]
    }
    /// Elements that matrix instructions multiply so quickly that what else there is to do for them counts: they lie in LDS in runs along the
    /// depth, of which a lane reads 16 bytes at a time.
    pub fn in_runs(&self) -> bool {
        self.bytes() < 4 || self.compute == Type::Xf32
    }
    /// Bytes of an element in memory.
    pub fn stored_bytes(&self) -> u32 {
        self.storage.bits() / 8
    }
    /// Bytes of an element in LDS.
    pub fn bytes(&self) -> u32 {
        self.compute.bits() / 8
    }
}

/// How a tile is multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Each workitem owns so many rows and columns.
    Vector {
        /// Rows.
        tm: u32,
        /// Columns.
        tn: u32,
        /// The instruction that adds the products of a cell; plain multiply-adds where there is none.
        dot: Option<Dot>,
    },
    /// By matrix instructions.
    Matrix(MatrixForm),
    /// By matrix instructions of waves that share the depth ([`slices`](super::slices)).
    Sliced(Sliced),
    /// By multiply-adds of workitems that own columns of a few rows ([`few`](super::few)).
    Few(Few),
    /// The products of Winograd's method ([`winograd`](super::winograd)): the tile's rows and columns are those of each of them, a
    /// workitem owns so many of one.
    Winograd {
        /// Rows.
        tm: u32,
        /// Columns.
        tn: u32,
    },
}

/// Sizes of one workgroup's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// Types.
    pub types: Types,
    /// Rows and columns of the result per workgroup.
    pub m: u32,
    /// See `m`.
    pub n: u32,
    /// Depth of an LDS tile.
    pub k: u32,
    /// Consecutive k in a cell of LDS.
    pub run: u32,
    /// Tiles of each operand that LDS holds: with two one is filled while the other is read.
    pub buffers: u32,
    /// How it is multiplied.
    pub form: Form,
}

impl Tile {
    /// Workitems per workgroup.
    pub fn threads(&self) -> u32 {
        match self.form {
            Form::Vector { tm, tn, .. } => (self.m / tm) * (self.n / tn),
            Form::Winograd { tm, tn } => winograd::PRODUCTS * (self.m / tm) * (self.n / tn),
            Form::Matrix(f) => f.waves.0 * f.waves.1 * f.op.shape.lanes as u32,
            Form::Sliced(f) => f.threads(),
            Form::Few(f) => f.threads(),
        }
    }

    /// Registers of a workitem's sums.
    pub fn sums(&self) -> u32 {
        self.products() * self.m * self.n / self.threads() * u32::from(self.types.accumulate.dwords())
    }

    /// Products that a workgroup computes side by side, each of `m` rows and `n` columns.
    pub fn products(&self) -> u32 {
        if matches!(self.form, Form::Winograd { .. }) { winograd::PRODUCTS } else { 1 }
    }

    /// Bytes of a cell in LDS.
    pub fn cell(&self) -> u32 {
        self.run * self.types.bytes()
    }

    /// The operand, 0 or 1, that holds two of every four elements along k, if one does.
    pub fn sparse(&self) -> Option<usize> {
        match self.form {
            Form::Matrix(f) if f.op.shape.sparse => Some(usize::from(f.swapped)),
            _ => None,
        }
    }

    /// Transposing loads bring an operand.
    pub fn is_transposed(&self, operand: usize) -> bool {
        matches!(self.form, Form::Matrix(f) if f.transposed.get(operand) == Some(&true))
    }

    /// Both operands go from memory straight to LDS.
    pub fn is_straight(&self) -> bool {
        matches!(self.form, Form::Matrix(f) if f.straight)
    }

    /// The tile of an operand, as deep as what it holds.
    pub fn of_operand(&self, operand: usize) -> Tile {
        if self.sparse() == Some(operand) { Tile { k: self.k / 2, ..*self } } else { *self }
    }

    /// Words go with an operand: they say where a sparse one's elements were, or are scales.
    pub fn has_words(&self, operand: usize) -> bool {
        self.sparse() == Some(operand) || self.block().is_some()
    }

    /// k of the elements that share a scale, where operands have such.
    pub fn block(&self) -> Option<u32> {
        match self.form {
            Form::Matrix(f) if f.scaled => Some(f.block()),
            _ => None,
        }
    }

    /// The tile of the words that go with an operand: of one for each cell, or for each block. In LDS they are dwords.
    pub fn of_words(&self) -> Tile {
        let storage = match self.block() {
            Some(_) => Type::U8,
            None if self.types.bytes() == 1 => Type::U32,
            None => Type::U16,
        };
        let compute = Type::U32;
        let types = Types { storage, compute, right: None, accumulate: compute, matrix: None, packed: None };
        Tile { types, k: self.k / self.block().unwrap_or(2 * self.run), run: 1, ..*self }
    }

    /// Of an operand so wide, rows or columns of words.
    pub fn words_of(&self, operand: usize, width: u32) -> u32 {
        if self.has_words(operand) { width * self.of_words().k } else { 0 }
    }

    /// Of so many rows or columns of a workitem, how many lie together: as many as LDS gives at once, so that those of neighbouring
    /// workitems are in other banks; four at most of whole words.
    pub fn chunk(&self, own: u32) -> u32 {
        own.min(WIDEST / self.cell()).min(if self.cell() < 4 { 8 } else { 4 })
    }

    /// Bytes from one buffer of LDS to the next, of tiles of so many bytes together. Where sums in two types leave a workitem few registers the
    /// buffers differ in one bit: moving an address to the other one takes none then.
    pub fn swap(&self, bytes: u32) -> u32 {
        if self.is_full() { bytes.next_power_of_two() } else { bytes }
    }

    /// LDS of such tiles in all buffers.
    pub fn lds(&self, bytes: u32) -> u32 {
        (self.buffers - 1) * self.swap(bytes) + bytes
    }

    /// Sums in two types leave a workitem few registers.
    pub fn is_full(&self) -> bool {
        self.packed().is_some() && self.sums() >= FULL
    }

    /// What a workitem sums a round's products in, in fewer bits.
    pub fn packed(&self) -> Option<PackedSums> {
        self.types.packed.filter(|_| matches!(self.form, Form::Vector { dot: None, .. }))
    }

    /// In which order the lines of an operand lie in LDS.
    pub fn order(&self, operand: usize) -> Order {
        match self.form {
            Form::Matrix(f) if operand == 1 => f.order(),
            _ => Order::PLAIN,
        }
    }

    /// Where the elements of the result are: which workitem has them in which of its registers.
    pub fn fragment(&self) -> Fragment {
        match self.form {
            Form::Vector { tm, tn, .. } => {
                Fragment::blocked(self.threads(), self.n / tn, (tm, tn), (self.chunk(tm), self.chunk(tn)))
            }
            Form::Matrix(f) => f.result(self.m, self.n),
            Form::Sliced(f) => f.result(self),
            Form::Few(f) => f.result(self),
            // Products lie side by side in both operands, so the result's are along a diagonal.
            Form::Winograd { tm, tn } => {
                let own = self.threads() / winograd::PRODUCTS;
                let mut f = Fragment::blocked(own, self.n / tn, (tm, tn), (self.chunk(tm), self.chunk(tn)));
                let product = Step { row: self.m, col: self.n };
                let bits = 0..winograd::PRODUCTS.trailing_zeros();
                f.lane.extend(bits.map(|b| Step { row: product.row << b, col: product.col << b }));
                f
            }
        }
    }
}

/// Where the elements of an operand tile are in LDS.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// k of a cell.
    run: u32,
    /// Bytes of a cell.
    cell: u32,
    /// Cells from one run to the next.
    pitch: u32,
    /// The columns of a run lie in so many planes in turn, each of `plane` cells.
    planes: u32,
    plane: u32,
    order: Order,
    /// What goes straight there lies otherwise.
    straight: Option<Straight>,
}

/// How what comes straight to LDS lies there: a wave's load fills [`Straight::BLOCK`] bytes that follow each other. A block has whole lines of
/// the first-level cache, or halves, so that what is read at a time is in different banks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Straight {
    /// Lines along k: of 8 columns 128 bytes each, cells of the same k side by side.
    Deep,
    /// Lines along the width of 2 bytes an element: of 8 k 64 columns. Reads take 4 k of 16 columns, and the same 8 k further.
    WideWords,
    /// The same of a byte an element: of 8 k 128 columns. Reads take 8 k of 16 columns, and the same 16 k further: of these odd and even
    /// columns of cells have changed places.
    WideBytes,
}

impl Straight {
    /// Bytes of a block.
    const BLOCK: u32 = 1024;
}

/// In which order the columns of a tile lie in LDS: where each bit of a column's number goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order([u32; Order::BITS]);

impl Order {
    const BITS: usize = 16;
    /// One after the other.
    pub const PLAIN: Order = {
        let mut places = [0; Order::BITS];
        let mut bit = 0;
        while bit < Order::BITS {
            places[bit] = 1 << bit;
            bit += 1;
        }
        Order(places)
    };

    /// Of pairs of a column and its place, all of them powers of two, which are the same set twice.
    pub fn of(pairs: impl IntoIterator<Item = (u32, u32)>) -> Order {
        let mut order = Order::PLAIN;
        pairs.into_iter().for_each(|(column, place)| order.0[column.trailing_zeros() as usize] = place);
        order
    }
    /// Where a column lies.
    pub fn place(&self, column: u32) -> u32 {
        (0..Order::BITS).filter(|bit| column >> bit & 1 > 0).map(|bit| self.0[bit]).sum()
    }
    /// The column of a place.
    pub fn column(&self, place: u32) -> u32 {
        (0..Order::BITS).filter(|bit| place & self.0[*bit] > 0).map(|bit| 1 << bit).sum()
    }
}

/// Bytes that the banks of LDS give at once: neighbouring cells of so many bytes are in different banks.
const BANKS: u32 = 128;

impl Layout {
    /// The cells of a run side by side.
    pub fn dense(tile: &Tile, width: u32) -> Layout {
        Layout {
            run: tile.run,
            cell: tile.cell(),
            pitch: width,
            planes: 1,
            plane: width,
            order: Order::PLAIN,
            straight: None,
        }
    }

    /// For workitems that have `vec` neighbouring columns each. Where a cell is all that an access takes, neighbouring workitems
    /// write neighbouring cells: the columns are in `vec` planes, and gaps between these keep neighbouring columns in different
    /// banks, for those who read.
    pub fn wide(tile: &Tile, width: u32, vec: u32) -> Layout {
        let cells = BANKS / tile.cell();
        if tile.cell() < WIDEST || vec == 1 || width < cells {
            return Layout::dense(tile, width);
        }
        // As many cells behind a multiple of what the banks give as there are columns of each plane among these.
        let plane = (width / vec - cells / vec).next_multiple_of(cells) + cells / vec;
        Layout {
            run: tile.run,
            cell: tile.cell(),
            pitch: plane * vec,
            planes: vec,
            plane,
            order: Order::PLAIN,
            straight: None,
        }
    }

    /// For workitems that have neighbouring k of a column.
    pub fn deep(tile: &Tile, width: u32) -> Layout {
        match tile.run {
            // Lanes of matrix instructions read neighbouring k side by side: they, and those that write k by four, reach other banks.
            1 if matches!(tile.form, Form::Matrix(_)) && tile.cell() == 4 => Layout::dense(tile, width + 6),
            1 => Layout::dense(tile, width + 4.max(WIDEST / tile.cell())),
            // Workitems that write cells of a column reach other banks; those that write whole cells do so for different columns.
            _ if tile.cell() < WIDEST => Layout::dense(tile, width + WIDEST / tile.cell()),
            _ => Layout::dense(tile, width),
        }
    }

    /// For loads that go straight to LDS, of lines along k or along the width.
    pub fn straight(tile: &Tile, width: u32, deep: bool) -> Layout {
        let straight = match (deep, tile.types.bytes()) {
            (true, _) => Straight::Deep,
            (false, 1) => Straight::WideBytes,
            (false, _) => Straight::WideWords,
        };
        Layout { straight: Some(straight), ..Layout::dense(tile, width) }
    }

    /// Lines lie along k, of what goes straight to LDS.
    pub fn is_deep(&self) -> bool {
        self.straight == Some(Straight::Deep)
    }

    /// How far cells of odd columns are apart from where even ones would let expect them, if they have changed places.
    pub fn changes_places(&self) -> Option<u32> {
        (self.straight == Some(Straight::WideBytes)).then_some(128)
    }

    /// The same with columns in another order.
    pub fn ordered(self, order: Order) -> Layout {
        Layout { order, ..self }
    }

    /// The byte of an element. Where no two of several k, and of several columns, have a bit in common their sum is at the sum of
    /// their bytes, which is how addresses are put together.
    pub fn at(&self, k: u32, column: u32) -> u32 {
        let (width, size) = (self.pitch, self.cell / self.run);
        let (block, within) = match self.straight {
            Some(Straight::Deep) => {
                let (panel, cell) = (k / (8 * self.run), k / self.run % 8);
                (panel * width / 8 + column / 8, cell * 128 + column % 8 * 16 + k % self.run * size)
            }
            Some(Straight::WideWords) => {
                let (rows, row) = (k / 16 * 2 + k / 4 % 2, k / 8 % 2 * 4 + k % 4);
                (rows * width / 64 + column / 64, column / 16 % 4 * 256 + row * 32 + column % 16 * 2)
            }
            Some(Straight::WideBytes) => {
                let cells = (column / 16 % 8) ^ (k / 16 % 2);
                (k / 8 * width / 128 + column / 128, cells * 128 + k % 8 * 16 + column % 16)
            }
            None => return self.cell_at(k, column),
        };
        block * Straight::BLOCK + within
    }
    /// The same in cells.
    fn cell_at(&self, k: u32, column: u32) -> u32 {
        let column = self.order.place(column);
        let column = column % self.planes * self.plane + column / self.planes;
        (k / self.run * self.pitch + column) * self.cell + k % self.run * (self.cell / self.run)
    }
    /// Most bytes of an operand's tile, whichever way it is loaded.
    pub fn most(tile: &Tile, width: u32) -> u32 {
        Layout::wide(tile, width, 4).bytes(tile.k).max(Layout::deep(tile, width).bytes(tile.k))
    }
    /// Bytes of a tile.
    pub fn bytes(&self, depth: u32) -> u32 {
        self.at(depth, 0)
    }
    /// The byte at which the elements of workitem `item` begin, of a fragment whose rows are k.
    pub fn address(&self, b: &mut Builder, f: &Fragment, item: Part) -> Part {
        let lane = f.lane.iter().map(|s| fragment::down(self.at(s.row, s.col))).collect();
        fragment::coordinate(b, &Fragment { lane, position: Vec::new(), ..*f }, item, fragment::row, 1, None)
    }
}
