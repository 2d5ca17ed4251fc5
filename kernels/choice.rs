//! Which tile multiplies a product, and among how many workgroups its depth is shared.
//!
//! A family of tiles ([`matrix`], plain multiply-adds here) states what a workgroup does in a round of its loop over k
//! ([`Round`]); [`estimate`] puts that together to clocks for a grid of tiles. Where the tiles leave compute units idle
//! the depth is shared: each of several workgroups sums a part of it, and the last one to end ([`split`](super::split)) adds the
//! parts, at the price of what goes through memory and of its time alone. Where tiles fill them, but not a whole number of times, some tiles
//! are divided in equal shares ([`divided`](super::divided)). A [`Tuning`] may know better.

mod estimate;
mod gathered;
mod lines;
mod loops;
mod machine;
mod sections;

pub(super) use gathered::{Gathered, Reach};
pub(super) use loops::is_slow;
pub(super) use machine::{Machine, has_matrix_shadow, lds_answer, multiply_add};
pub(super) use sections::KEPT;

use super::divided::Shares;
use super::error::{Reason, Res};
use super::few;
use super::gemm;
use super::loader;
use super::matmul;
use super::matrix::{self, MatrixForm};
use super::slices;
use super::straight;
use super::tile::{Form, Tile, Types};
use super::tuning::{Product, Tuned, Tuning, Way, When};
use super::vector;
use crate::mir::Type;
use barewave_isa::Target;
use std::cmp::Reverse;

/// A product: how many results, their rows and columns, and the depth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub batches: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Bytes of both operands in memory.
    pub bytes: usize,
    /// Bytes of a result in memory.
    pub stored: usize,
    /// Cycles of a SIMD for what the step's expression makes of a result of each lane.
    pub expression: f64,
    /// Neighbours along k are neighbours in memory, in the left and in the right operand.
    pub deep: (bool, bool),
    /// Elements from the beginning of a line of the left and of the right operand to the next one's; 0 where all begin at whole loads.
    pub pitch: [usize; 2],
    /// Workgroups may be numbered in bands.
    pub bands: bool,
    /// Equal shares of tiles are possible.
    pub shares: bool,
    /// Neighbouring results are stored one by one ([`gemm::stores_apart`](super::gemm::stores_apart)).
    pub apart: bool,
    /// They are stored several at a time ([`gemm::stores_together`](super::gemm::stores_together)).
    pub in_rows: bool,
    /// Which operands transposing loads may bring, by tiles that end where these do: their lines lie along the width.
    pub transposed: [bool; 2],
    /// Both may go straight to LDS.
    pub straight: bool,
    /// How many elements of the left and of the right operand a load takes.
    pub loads: [Together; 2],
    /// The left operand has its lines along k, and lines of both begin and end at whole groups of four words, or of four elements along
    /// the width.
    pub lines: bool,
    /// Workitems may own columns of all rows, where these are few.
    pub few: bool,
    /// The operand, 0 or 1, that holds two of every four elements along k.
    pub sparse: Option<usize>,
    /// Both operands have a scale for each 32 elements along k.
    pub scaled: bool,
    /// Which operand's tiles are so wide at least as is asked for: a convolution's image.
    pub image: usize,
    /// How that is gathered, if it is.
    pub gathered: Option<Gathered>,
    /// Columns go in pairs, with one result each ([`Gated`](crate::graph::fused::Gated)).
    pub pairs: bool,
}

/// Elements of an operand that a load takes at most: where lines may be followed by others', and where they end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Together {
    pub within: u32,
    pub to_the_end: u32,
}

impl Together {
    /// As many as are asked for.
    pub const ANY: Together = Together { within: u32::MAX, to_the_end: u32::MAX };
    /// One, which has a register of its own: lines begin or end within words.
    pub const ONE: Together = Together { within: 1, to_the_end: 1 };
}

/// How the depth is shared: so many workgroups sum `chunk` of it each. What lies behind its end counts as zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Split {
    /// Workgroups.
    pub count: u32,
    /// A multiple of the tile's depth.
    pub chunk: u32,
    /// Parts that are added together before all are: about so many of a group, where there are more.
    pub grouped: u32,
    /// Where it is given, workgroups are numbered in bands of so many rows of tiles, down the columns of one band and then of the
    /// next: those that run together read fewer different rows and columns than along whole rows. A divisor of the rows of tiles.
    pub band: Option<u32>,
    /// Tiles are divided in equal shares: the depth is that of a tile.
    pub shares: Option<Shares>,
    /// Dwords of parts that a workitem has on their way while it adds them.
    pub in_flight: u32,
}

impl Extents {
    /// What operands hold of their elements, of so many bytes each, and with a sparse one the words that say where they were: two bits for each that is kept.
    pub fn held(&self, bytes: f64) -> [f64; 2] {
        // Of 4 bits, where it counts most, a scale is beside 16 bytes.
        let whole = if self.scaled { 1.0 + 1.0 / 16.0 } else { 1.0 };
        let of = |operand: usize| if self.sparse == Some(operand) { 0.5 + 0.125 / bytes } else { whole };
        [of(0), of(1)]
    }

    fn product(&self, target: Target, types: &Types) -> Product {
        let (target, dtype) = (target.info().name, types.storage);
        Product { target, dtype, deep: self.deep, products: self.batches, extents: [self.m, self.n, self.k] }
    }
}

impl Split {
    /// Depth of all parts.
    pub fn span(&self) -> u32 {
        self.count * self.chunk
    }

    /// Another depth, shared among as many.
    pub fn of_depth(&self, depth: u32, tile: &Tile) -> Split {
        Split { chunk: depth.div_ceil(tile.k).div_ceil(self.count) * tile.k, ..*self }
    }
}

/// What a workgroup does in a round of its loop over k.
pub(super) struct Round {
    /// Waves of the workgroup.
    pub waves: u32,
    /// Cycles of a SIMD per k for products, together for all waves.
    pub products: f64,
    /// The same for what is read from LDS, loaded, converted and written beside them.
    pub moves: f64,
    /// The moves are spread among the products and run in their shadow.
    pub spread: bool,
    /// How often in a round waves wait for each other, or for LDS with nothing beside it.
    pub meetings: u32,
    /// Bytes per k that come from memory, through the L2 cache for all but the first workgroup that asks for them.
    pub loaded: u32,
    /// The same from the first-level cache, where lines are asked for again and again.
    pub given: u32,
    /// Results of a workitem.
    pub own: u32,
    /// Vector registers of a workitem, about.
    pub vgprs: u32,
    /// LDS in bytes.
    pub lds: u32,
    /// Cycles of a workgroup behind its loop, besides those for results.
    pub behind: f64,
    /// Cycles of a round in which none of its waves multiplies, since all of them read from LDS.
    pub bare: f64,
    /// What its loads take where they must not reach behind the ends of lines.
    pub ending: Ending,
    /// There are no registers for what these bring.
    pub crowded: bool,
}

/// What loads of a round that must not reach behind the ends of lines take over those that may.
#[derive(Clone, Copy, Default)]
pub(super) struct Ending {
    /// Cycles of a wave.
    pub clocks: f64,
    /// Lines that a workgroup asks the first level for.
    pub lines: f64,
}

impl Ending {
    /// Of a tile's operands.
    pub fn of(target: Target, tile: &Tile, e: &Extents) -> Ending {
        let mut ending = Ending::default();
        // What does not see the end takes lines of words as if they were whole loads. Who gathers knows where the depth ends by other means.
        let gathers = e.gathered.is_some();
        let whole = Extents { k: if gathers { e.k } else { e.k.next_multiple_of(tile.k as usize) }, ..*e };
        let asked = if gathers { 0 } else { matmul::asked(target, tile, e.k) };
        for o in [0, 1].into_iter().filter(|o| !tile.is_transposed(*o)) {
            let within = tile.loads(&whole, o, e.loads[o].within);
            let to_the_end = tile.loads(e, o, e.loads[o].to_the_end);
            let more = to_the_end.saturating_sub(within);
            let (deep, width) = [(e.deep.0, tile.m), (e.deep.1, tile.n)][o];
            ending.clocks += f64::from(more * matmul::LOAD + to_the_end * asked);
            ending.lines += f64::from(if deep { loader::lines_asked(tile, width, more) } else { 0 });
        }
        ending
    }
}

/// A depth is shared where that saves so much: the clocks here are estimates, adding the parts is certain.
const WORTH: f64 = 0.96;

/// A way to multiply: estimated clocks, the tile, and how its depth is shared.
type Timed = (f64, Tile, Split);

/// All tiles for a product. `min_n` bounds their width from below along [an image](Extents::image) (gathering loaders need whole wavefronts). Matrix
/// instructions are taken wherever the target has them for the types.
fn tiles(machine: &Machine, types: Types, e: &Extents, min_n: u32) -> Vec<(Tile, Round)> {
    let all = all_tiles(machine, types, e, min_n);
    if !e.pairs {
        return all;
    }
    all.into_iter().filter_map(|(tile, round)| Some((gemm::with_pairs(&tile)?, round))).collect()
}

/// The same whatever workitems have of pairs of columns.
fn all_tiles(machine: &Machine, types: Types, e: &Extents, min_n: u32) -> Vec<(Tile, Round)> {
    let mut all = matrix::candidates(machine.target, types, machine, e, min_n);
    if e.sparse.is_some() || e.scaled {
        return all;
    }
    let by_matrix = !all.is_empty();
    if !by_matrix {
        all = vector::candidates(machine.target, types, machine, e, min_n);
    }
    if let Some(channels) = e.gathered.and_then(|g| g.channels) {
        // Tiles are of one tap, and elements come in runs.
        all.retain(|(tile, _)| channels.is_multiple_of(tile.k as usize) && tile.run > 1);
        return all;
    }
    if min_n == 1 {
        all.extend(few::candidates(machine.target, types, machine, e));
    }
    if min_n == 1 && by_matrix {
        all.extend(straight::candidates(machine.target, types, machine, e));
        all.extend(slices::candidates(machine.target, types, machine, e));
    }
    all
}

/// All ways to multiply a product.
fn timed(machine: &Machine, types: Types, e: &Extents, min_n: u32) -> Vec<Timed> {
    ways(machine, tiles(machine, types, e, min_n), e)
}

/// All ways to multiply a product with some tiles.
fn ways(machine: &Machine, all: Vec<(Tile, Round)>, e: &Extents) -> Vec<Timed> {
    let of = |(tile, round): (Tile, Round)| {
        let whole = machine.time(e, (&tile, &round), 1);
        let shared = machine.shared(e, (&tile, &round)).map(|(clocks, split)| (clocks / WORTH, split));
        let divided = match e.gathered {
            None => machine.in_shares(e, (&tile, &round)),
            _ => None,
        };
        [Some(whole), shared, divided].into_iter().flatten().map(move |(clocks, split)| (clocks, tile, split))
    };
    all.into_iter().flat_map(of).collect()
}

/// The tile that takes least time for a product, and how its depth is shared: as the tuning says, else by the estimate.
pub(super) fn choose(target: Target, tuning: &Tuning, types: Types, e: &Extents, min_n: u32) -> Res<(Tile, Split)> {
    choose_among(target, tuning, types, e, min_n, None).map(|(_, tile, split)| (tile, split))
}

/// The tuning says how a product is computed.
pub(super) fn is_tuned(target: Target, tuning: &Tuning, types: Types, e: &Extents) -> bool {
    tuned(tuning, target, &types, e).is_some()
}

/// Clocks that the quickest tile for a product takes, and which it is. What comes behind the product in the same kernel takes `more`
/// with a tile; where that is `None` it cannot come behind it.
pub(super) fn quickest(
    target: Target,
    tuning: &Tuning,
    types: Types,
    e: &Extents,
    more: impl Fn(&Tile, &Split) -> Option<f64>,
) -> Res<(f64, Tile, Split)> {
    let machine = Machine::of(target);
    let all = match tuned(tuning, target, &types, e) {
        Some(tuned) => as_tuned(&machine, tuned, tiles(&machine, types, e, 1), e)?,
        None => few_sums(tuning, timed(&machine, types, e, 1)),
    };
    let all = all.into_iter().filter_map(|(clocks, tile, split)| Some((clocks + more(&tile, &split)?, tile, split)));
    best(&machine, e, all)
}

/// The estimate knows no difference between ways that take less than so much longer than the quickest; of dot products by the cycle model's times of
/// 60 products on two targets.
const ALIKE: f64 = 0.001;
const ALIKE_DOT_PRODUCTS: f64 = 0.004;

/// The order of ways, where the quickest takes so many clocks. Of those between which there is no difference the largest tile comes first, which
/// loads least, but of dot products the smallest, of which more hide each other's loads; of tiles for matrix instructions the deepest, whose
/// waves meet least often; and of two of these the one whose operands go straight to LDS.
fn order(least: f64) -> impl Fn(&Timed) -> (i64, Reverse<[u32; 3]>, u64) {
    move |(clocks, tile, _)| {
        let (area, longer) = (tile.m * tile.n, (clocks / least).ln());
        let alike = if matches!(tile.form, Form::Vector { dot: Some(_), .. }) { ALIKE_DOT_PRODUCTS } else { ALIKE };
        let preferred = match tile.form {
            Form::Vector { dot: Some(_), .. } => [u32::MAX - area, 0, 0],
            Form::Matrix(_) => [area, tile.k, u32::from(tile.is_straight())],
            _ => [area, 0, 0],
        };
        ((longer / alike) as i64, Reverse(preferred), clocks.to_bits())
    }
}

/// Of some ways those that have as few sums as they should, where there are any.
fn few_sums(tuning: &Tuning, mut all: Vec<Timed>) -> Vec<Timed> {
    let fits = |way: &Timed| way.1.sums() <= tuning.most_sums();
    if all.iter().any(fits) {
        all.retain(fits);
    }
    all
}

/// Clocks of the quickest of some ways.
fn least(all: &[Timed]) -> f64 {
    all.iter().map(|way| way.0).fold(f64::INFINITY, f64::min)
}

/// The best of some ways, and how its results are stored.
fn best(machine: &Machine, e: &Extents, all: impl Iterator<Item = Timed>) -> Res<Timed> {
    let all: Vec<Timed> = all.collect();
    let order = order(least(&all));
    let best = all.into_iter().min_by_key(order);
    let (clocks, mut tile, split) = best.ok_or(Reason::Malformed("a product that no tile is wide enough for"))?;
    if let Form::Matrix(form) = tile.form {
        let in_rows = e.in_rows && !form.pairs && machine.stores_are_noticed(e, (tile, form), clocks);
        tile.form = Form::Matrix(MatrixForm { in_rows, ..form });
    }
    Ok((clocks, tile, split))
}

/// Winograd's method for a convolution: tiles, and the extents of each of its products.
pub(super) struct Method {
    pub tiles: Vec<(Tile, Round)>,
    pub extents: Extents,
}

impl Method {
    /// All ways to compute it.
    fn ways(self, machine: &Machine) -> Vec<Timed> {
        ways(machine, self.tiles, &self.extents)
    }
}

/// The same, with Winograd's method beside where it applies.
pub(super) fn choose_among(
    target: Target,
    tuning: &Tuning,
    types: Types,
    e: &Extents,
    min_n: u32,
    method: Option<Method>,
) -> Res<Timed> {
    let machine = Machine::of(target);
    let all = match tuned(tuning, target, &types, e) {
        Some(tuned) if tuned.way == Way::Winograd => {
            let Method { tiles, extents } = method.ok_or(Reason::from(tuned))?;
            as_tuned(&machine, tuned, tiles, &extents)?
        }
        Some(tuned) => as_tuned(&machine, tuned, tiles(&machine, types, e, min_n), e)?,
        None => match method {
            Some(method) if tuning.winograd() == When::Always => method.ways(&machine),
            method => {
                let direct = timed(&machine, types, e, min_n).into_iter();
                few_sums(tuning, direct.chain(method.into_iter().flat_map(|m| m.ways(&machine))).collect())
            }
        },
    };
    best(&machine, e, all.into_iter())
}

/// The forms of a tile that a tuning asks for.
fn as_tuned(machine: &Machine, tuned: Tuned, tiles: Vec<(Tile, Round)>, e: &Extents) -> Res<Vec<Timed>> {
    let all = tiles.into_iter().filter(|(t, _)| [t.m, t.n, t.k] == tuned.tile && way(t) == tuned.way);
    let of = |(tile, round): (Tile, Round)| {
        if tuned.parts == EQUAL_SHARES {
            return machine.in_shares(e, (&tile, &round)).map(|(clocks, split)| (clocks, tile, split));
        }
        let (clocks, split) = machine.time(e, (&tile, &round), tuned.parts as usize);
        (split.count == tuned.parts && clocks.is_finite()).then_some((clocks, tile, split))
    };
    let found: Vec<Timed> = all.filter_map(of).collect();
    if found.is_empty() { Err(tuned.into()) } else { Ok(found) }
}

/// What a tuning says of a product; it says nothing of those with a sparse operand, or with scales of blocks beside elements that also come
/// without.
fn tuned(tuning: &Tuning, target: Target, types: &Types, e: &Extents) -> Option<Tuned> {
    let other = e.sparse.is_some() || e.scaled && types.storage != Type::Fp4;
    tuning.of(&e.product(target, types)).filter(|_| !other)
}

/// What a workgroup does with a tile.
fn way(tile: &Tile) -> Way {
    match tile.form {
        Form::Vector { .. } | Form::Matrix(_) => Way::Rounds,
        Form::Winograd { .. } => Way::Winograd,
        Form::Sliced(_) => Way::Slices,
        Form::Few(_) => Way::Columns,
    }
}

/// What stands for the number of parts where tiles are divided in equal shares.
pub const EQUAL_SHARES: u32 = 0;

/// A tile that was considered for a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// Rows, columns and depth of a workgroup's tile.
    pub tile: [u32; 3],
    /// Workgroups that share the depth, or [`EQUAL_SHARES`].
    pub parts: u32,
    /// Clocks of the launch by the estimate that chooses; of shared depths, with the lead that a whole depth has.
    pub clocks: f64,
    /// What workgroups do with their tiles.
    pub way: Way,
}

/// A product, and the ways to compute it that are considered, the best first.
#[derive(Clone, PartialEq, Debug)]
pub struct Considered {
    /// The product.
    pub product: Product,
    /// The ways.
    pub candidates: Vec<Candidate>,
    /// It is sooner computed without tiles, line by line, and is where no tuning says otherwise.
    pub by_lines: bool,
}

/// What [`choose_among`] considers, each tile and sharing with the best of its forms.
pub(super) fn candidates(target: Target, types: Types, e: &Extents, min_n: u32, method: Option<Method>) -> Considered {
    let machine = Machine::of(target);
    let mut all = timed(&machine, types, e, min_n);
    all.extend(method.into_iter().flat_map(|m| m.ways(&machine)));
    // Others are not taken, even where somebody asks for them.
    all.retain(|way| way.0.is_finite());
    let order = order(least(&all));
    all.sort_by_key(order);
    let mut out: Vec<Candidate> = Vec::new();
    for (clocks, t, s) in all {
        let parts = if s.shares.is_some() { EQUAL_SHARES } else { s.count };
        let c = Candidate { tile: [t.m, t.n, t.k], parts, clocks, way: way(&t) };
        if !out.iter().any(|o| (o.tile, o.parts, o.way) == (c.tile, c.parts, c.way)) {
            out.push(c);
        }
    }
    Considered { product: e.product(target, &types), candidates: out, by_lines: false }
}
