//! Sums over the rows that a loader moves along k, from which their mean and deviation follow.
//!
//! A row's elements less the row's first one are summed, and their squares: whatever a row's mean is, it is not far from any of its
//! elements by the measure of their deviation (`sqrt(k - 1)` of them at most), so nothing is lost where sums of squares are less than
//! their parts. Elements of 32 bits go to LDS without it, too: what they are multiplied to is then as exact. Those of 16 bits are known to
//! fewer digits than products are summed in, and stay as they are.
//!
//! Each workitem sums what it moves, or multiplies; in the end those of a row meet in LDS.

use super::super::Writer;
use super::super::error::Res;
use super::super::float::Float;
use super::super::fragment;
use super::super::lanes;
use super::super::tile::Tile;
use super::super::values;
use super::{Deep, Loader};
use crate::graph::fused::Normalize;
use crate::mir::{Builder, Gen, MInst, Part, Type, dot_instruction};
use barewave_isa::matrix::Fragment;
use barewave_isa::{Op, Target, op};

/// Instructions' worth of a half that becomes a float.
const CONVERSION: f64 = 4.0;

/// Two halves that are 1, 1/2 and -1/2.
const ONES: u32 = 0x3c00_3c00;
const HALVES: u32 = 0x3800_3800;
const LESS_HALVES: u32 = 0xb800_b800;

/// What a workitem counts.
pub(in super::super) struct Tally {
    /// Type of elements.
    dtype: Type,
    /// The mean is asked for.
    center: bool,
    /// The instruction that adds products of pairs, for elements that come in pairs.
    pairs: Option<Op>,
    /// What is taken from each element of a row; of those that come in pairs what is added to half of both, since not every difference of
    /// halves is one.
    shifts: Vec<Part>,
    sums: Vec<Part>,
    squares: Vec<Part>,
    /// Which rows: where those of a workitem begin, and how much further they are; and how many share a row, who have so many neighbours
    /// at a time.
    share: Fragment,
    rows: Vec<u32>,
    members: u32,
    own: u32,
}

/// The rows of a workitem, of an operand that it moves or multiplies.
pub(in super::super) struct Counted<'a> {
    /// Type of elements.
    pub dtype: Type,
    /// Who has which, of a fragment whose rows are k.
    pub share: &'a Fragment,
    /// How much further than its first one its rows are.
    pub rows: Vec<u32>,
    /// Workitems that share a row, and how many neighbours of it each has at a time.
    pub members: u32,
    pub own: u32,
    /// Elements come in whole words.
    pub words: bool,
}

/// Pairs of elements are summed by one instruction.
fn pairs(target: Target, t: Type) -> Option<Op> {
    dot_instruction(target, [Type::F16; 2], Type::F32).filter(|_| t == Type::F16).map(|dot| dot.op)
}

/// Instructions for a dword of elements.
pub(in super::super) fn instructions(target: Target, t: Type, center: bool) -> f64 {
    let each = if center { 3.0 } else { 1.0 };
    match t {
        Type::F32 => each,
        t if pairs(target, t).is_some() => each,
        Type::F16 => 2.0 * (each + CONVERSION),
        _ => 2.0 * (each + 1.0),
    }
}

impl Tally {
    /// Begins to count rows; `first` loads the first element of one.
    pub fn new(b: &mut Builder, c: Counted, center: bool, mut first: impl FnMut(&mut Builder, u32) -> Part) -> Tally {
        let zeros = |b: &mut Builder, n: usize| (0..n).map(|_| b.to_vector(0f32)).collect::<Vec<_>>();
        let pairs = pairs(b.target(), c.dtype).filter(|_| c.words);
        let count = c.rows.len();
        let asked = if center { &c.rows[..] } else { &[] };
        let shifts: Vec<Part> = asked.iter().map(|row| first(b, *row)).collect();
        let shifts = shifts.into_iter().map(|x| match pairs {
            Some(_) => {
                let both = values::pack_halves(b, x, x);
                let less = b.scalar(LESS_HALVES);
                b.op(Gen::Mul.of(Type::PkF16), &[both.into(), less.into()])
            }
            None => values::widened(b, c.dtype, x, 0),
        });
        let shifts = shifts.collect();
        let (sums, squares) = (zeros(b, if center { count } else { 0 }), zeros(b, count));
        let share = Fragment { lane: c.share.lane.clone(), position: Vec::new(), ..*c.share };
        let Counted { dtype, rows, members, own, .. } = c;
        Tally { dtype, center, pairs, shifts, sums, squares, share, rows, members, own }
    }

    /// What is added changes the elements.
    pub fn changes(&self) -> bool {
        self.center && self.dtype == Type::F32
    }

    /// Adds what was loaded of row `number` of the workitem, some registers of `vec` elements each.
    pub fn add(&self, b: &mut Builder, number: usize, regs: &[Part], vec: u32) {
        let float = Float(Type::F32);
        let square = self.squares[number];
        for reg in regs {
            if let Some(dot) = self.pairs {
                let both = |b: &mut Builder, sum: Part, x: Part, y: Part| {
                    b.push(MInst::new(dot, &[sum.into()], &[x.into(), y.into(), sum.into()]));
                };
                for i in 0..reg.len {
                    let mut x = reg.dword(i);
                    if self.center {
                        let half = b.scalar(HALVES);
                        x = b.op(Gen::Fma.of(Type::PkF16), &[x.into(), half.into(), self.shifts[number].into()]);
                        let ones = b.scalar(ONES);
                        both(b, self.sums[number], ones, x);
                    }
                    both(b, square, x, x);
                }
                continue;
            }
            for e in 0..vec {
                let mut x = values::widened(b, self.dtype, *reg, e);
                if self.center {
                    let own = if self.dtype == Type::F32 { x } else { b.v(1) };
                    b.emit(Gen::Sub.of(Type::F32), &[own.into()], &[x.into(), self.shifts[number].into()]);
                    float.update(b, Gen::Add, self.sums[number], own);
                    x = own;
                }
                float.fma_into(b, square, x, x);
            }
        }
    }
}

/// What is known of the rows of a workgroup's tile, in LDS: of each what is added to its elements in sums of products, and how much these
/// count then; and its mean.
#[derive(Clone, Copy)]
pub(in super::super) struct Levels {
    /// Where the first are, in pairs.
    pub pairs: u32,
    /// Where means are.
    pub means: u32,
    /// Each row has so many.
    pub team: u32,
}

/// Bytes of a workitem's part of a row: its sums and what was taken from elements.
pub(in super::super) const PART: u32 = 16;

/// The same, where that is a sum of squares only.
fn part_bytes(center: bool) -> u32 {
    if center { PART } else { 4 }
}

impl Loader {
    /// From here on rows are counted. Only loaders along k do that.
    pub fn count_rows(&mut self, b: &mut Builder, center: bool) {
        if let Loader::Deep(l) = self {
            l.count_rows(b, center);
        }
    }

    /// What is counted of rows.
    pub fn tally(&self) -> Option<&Tally> {
        match self {
            Loader::Deep(l) => l.tally.as_ref(),
            _ => None,
        }
    }

    /// The same when all is counted.
    pub fn into_tally(self) -> Option<Tally> {
        match self {
            Loader::Deep(l) => l.tally,
            _ => None,
        }
    }
}

impl Deep {
    fn count_rows(&mut self, b: &mut Builder, center: bool) {
        let (c, size) = (&self.common, self.common.types.stored_bytes());
        let rows = (0..c.regs.len() as u32 / self.loads).map(|row| c.column(row * self.loads)).collect();
        let own = self.loads * c.vec;
        let (dtype, members, words) = (c.types.storage, c.depth / own, c.vec * size >= 4);
        let counted = Counted { dtype, share: &c.share, rows, members, own, words };
        let item = b.workitem_id();
        let ahead = fragment::coordinate(b, &c.share, item, fragment::row, size, None);
        let start = b.sub(self.voff, ahead);
        self.tally = Some(Tally::new(b, counted, center, |b, row| {
            let (mut soff, near) = self.starts.of(row * self.src.w_stride * size);
            if let Some(first) = self.src.part.first {
                let ahead = b.mul(first, size);
                soff = b.sub(soff, ahead);
            }
            let first = b.v(1);
            c.load(b, first, 1, self.src.buf, (start, soff, near));
            first
        }));
    }
}

impl Tally {
    /// What was counted, of rows of `depth` elements, once all have read the tiles.
    pub fn levels(&self, w: &mut Writer, tile: &Tile, depth: usize, norm: &Normalize) -> Res<Levels> {
        let (tally, float) = (self, Float(Type::F32));
        let (threads, bytes, own, members) = (tile.threads(), part_bytes(tally.center), self.own, self.members);
        let b = &mut w.b;
        let item = b.workitem_id();
        // Parts lie where tiles were.
        b.lds_of_at_least(members * tile.m * bytes);
        let pairs = b.lds(threads * 8);
        let means = b.lds(threads * 4);
        b.barrier();
        let row = fragment::coordinate(b, &self.share, item, fragment::col, bytes, None);
        let member = fragment::coordinate(b, &self.share, item, fragment::row, 1, None);
        let member = b.shr(member, own.trailing_zeros());
        let at = b.mad(member, tile.m * bytes, row);
        let at = b.to_vector(at);
        for (number, square) in tally.squares.iter().enumerate() {
            let ahead = self.rows[number] * bytes;
            if !tally.center {
                b.lds_write(at, *square, ahead);
                continue;
            }
            let (mut sum, mut square, mut shift) = (tally.sums[number], *square, tally.shifts[number]);
            if tally.pairs.is_some() {
                let one = b.generic(Gen::And.of(Type::B32), &[shift.into(), 0xffffu32.into()]);
                shift = values::widened(b, Type::F16, one, 0);
                (sum, square, shift) =
                    (float.scaled(b, sum, 2.0), float.scaled(b, square, 4.0), float.scaled(b, shift, -2.0));
            }
            let part = b.v(4);
            for (i, x) in [sum, square, shift, shift].into_iter().enumerate() {
                b.copy_into(part.dword(i as u8), x);
            }
            b.lds_write(at, part, ahead);
        }
        b.barrier();
        // Some neighbours put a row together; those for which there is none do so with the last one, for nobody.
        let team = self.team(tile);
        let row = b.shr(item, team.trailing_zeros());
        let row = b.generic(Gen::Min.of(Type::U32), &[row.into(), (tile.m - 1).into()]);
        let at = b.mul(row, bytes);
        let member = b.and(item, team - 1);
        let at = b.mad(member, tile.m * bytes, at);
        let at = b.to_vector(at);
        let apart = team * tile.m * bytes;
        let parts: Vec<Part> = (0..members / team).map(|i| b.lds_read((bytes / 4) as u8, at, i * apart)).collect();
        let sum = |b: &mut Builder, i: u8| {
            let first = parts[0].dword(i);
            parts[1..].iter().fold(first, |sum, p| float.add(b, sum, p.dword(i)))
        };
        let own: Vec<Part> = (0..if tally.center { 2 } else { 1 }).map(|i| sum(b, i)).collect();
        let own = lanes::combine(w, team, &own, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| float.add(&mut w.b, *x, *y)).collect())
        })?;
        let b = &mut w.b;
        let each = 1.0 / depth as f64;
        let (mut less, mut mean) = (b.to_vector(0f32), b.to_vector(0f32));
        let mut variance = float.scaled(b, own[own.len() - 1], each);
        if tally.center {
            let near = float.scaled(b, own[0], each);
            mean = float.add(b, near, parts[0].dword(2));
            // What products do not see is not taken from them.
            let seen = if self.changes() { near } else { mean };
            less = float.neg(b, seen);
            let minus = float.neg(b, near);
            variance = float.fma(b, minus, near, variance);
            let zero = b.to_vector(0f32);
            variance = float.op(b, Gen::Max, zero, variance);
        }
        let variance = float.plus(b, variance, norm.epsilon);
        let factor = if norm.epsilon >= f32::MIN_POSITIVE.into() {
            b.op(op::V_RSQ_F32, &[variance.into()])
        } else {
            float.reciprocal_root(b, variance)
        };
        let pair = b.v(2);
        b.copy_into(pair.dword(0), less);
        b.copy_into(pair.dword(1), factor);
        let at = b.shl(item, 3u32);
        let at = b.to_vector(at);
        b.lds_write(at, pair, pairs);
        let at = b.shl(item, 2u32);
        let at = b.to_vector(at);
        b.lds_write(at, mean, means);
        b.barrier();
        Ok(Levels { pairs, means, team })
    }

    /// Workitems that put a row together.
    fn team(&self, tile: &Tile) -> u32 {
        let most = (tile.threads() / tile.m).min(self.members).min(lanes::ROW);
        1 << most.max(1).ilog2()
    }

    /// The registers of its sums.
    pub fn parts(&self) -> Vec<Part> {
        self.sums.iter().chain(&self.squares).copied().collect()
    }

    /// The same rows with other sums.
    pub fn with_parts(self, mut parts: Vec<Part>) -> Tally {
        let squares = parts.split_off(self.sums.len());
        Tally { sums: parts, squares, ..self }
    }
}

/// Bytes of LDS that are known of rows, behind the tiles.
pub(in super::super) fn behind(tile: &Tile) -> u32 {
    tile.threads() * 12
}
