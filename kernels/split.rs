//! Products whose depth is shared among workgroups: each leaves the sums of its part in the step's workspace and counts itself
//! in; the one that finds all others counted adds the parts, always in the same order, applies the step's expression and stores
//! the result. Nobody waits for anybody, so workgroups may run in any order and number.
//!
//! Many parts are added in two [levels](Level): of each group of parts the last one to come adds those, leaves their sum where the group's first
//! part was, and counts itself in among the groups; the last of these adds the groups' sums. All groups but the last have as many parts, so that
//! results are `(p0 + p1 + ...) + (pn + pn+1 + ...) + ...` whoever adds them, and a workgroup reads about twice the root of what all left.
//!
//! It is waves that count, not workgroups: a wave of one part works on the same results as the wave of its number in any other
//! part, its lanes likewise. So a lane reads what its like have written, from where it would have written it, whatever the tile's
//! fragment is. The workspace holds `[part, tile, piece, workitem]`, pieces of up to 16 bytes.
//!
//! What makes this safe is the order of four things, and that each is seen by the whole device (LLVM's "User Guide for AMDGPU
//! Backend", memory model, agent scope; on gfx942 dies have second-level caches of their own): sums are stored through the caches
//! that the device does not share; the wave waits until its stores are done; it counts by an atomic; it loads, past the caches that
//! are not shared, only when the atomic's result is there. A counter that has reached the number of parts wraps to 0, for the next
//! launch: [`Arg::Counters`](super::Arg::Counters) are zero before each launch and after it.

use super::address::Offset;
use super::choice::{Extents, Split};
use super::error::{Reason, Res};
use super::gemm::{self, Sums, Walk};
use super::loader::tally::{Levels, Tally};
use super::normed::Finish;
use super::present::{Lanes, Present};
use super::standardized::Rows;
use super::tile::{Form, Tile};
use super::{Cx, Kernel, MAX_TENSOR_BYTES, Writer, winograd};
use crate::graph::view::View;
use crate::mir::{BlockId, Buffer, Builder, Gen, Opnd, Part, Pipeline, Type};

/// The part of the depth that a workgroup sums.
#[derive(Clone, Copy)]
pub(super) struct DepthPart {
    /// How the depth is shared.
    pub split: Split,
    /// Its number; `None` where it is all.
    number: Option<Part>,
    /// Its first k.
    pub first: Option<Part>,
    /// What lies in front of this k, in the only tile of the part, counts as zero.
    pub from: Option<Part>,
}

impl DepthPart {
    /// All of a depth, read in tiles that together are so deep; any other depth is guarded.
    pub fn whole(depth: u32) -> DepthPart {
        DepthPart::guarded(depth, None)
    }

    /// A depth that is read from `first` on; any other than `depth` is guarded.
    pub fn guarded(depth: u32, first: Option<Part>) -> DepthPart {
        DepthPart {
            split: Split { count: 1, chunk: depth, grouped: 1, band: None, shares: None, in_flight: IN_FLIGHT },
            number: None,
            first,
            from: None,
        }
    }

    /// The depth that begins at `first`, in tiles that together have that of `split`.
    pub fn of_span(split: &Split, first: Part) -> DepthPart {
        DepthPart { split: *split, number: None, first: Some(first), from: None }
    }

    /// The part of one of several depths that are shared alike, of those which it sums one after the other.
    pub fn of(&self, b: &mut Builder, depth: usize, tile: &Tile) -> DepthPart {
        let split = self.split.of_depth(depth as u32, tile);
        DepthPart { split, first: self.number.map(|n| b.mul(n, split.chunk)), ..*self }
    }

    /// What is left behind `before` of the depth, less than `span` of it, of which the first part sums all: what the others have is
    /// behind its end.
    pub fn rest(&self, b: &mut Builder, before: u32, span: u32) -> DepthPart {
        let first = match self.number {
            Some(number) => b.mad(number, span, before),
            None => b.scalar(before),
        };
        DepthPart { first: Some(first), ..DepthPart::whole(span) }
    }

    /// The same as a tile of depth `span` that ends where the depth does: what whole tiles have summed, and all that is not the first
    /// part's, counts as zero.
    pub fn last(&self, b: &mut Builder, (before, depth): (u32, u32), span: u32) -> DepthPart {
        let rest = self.rest(b, before, span);
        DepthPart { first: Some(b.scalar(depth - span)), from: rest.first, ..rest }
    }

    /// The same of an operand that has one k for so many of the product's, a power of two.
    pub fn of_each(&self, b: &mut Builder, each: u32) -> DepthPart {
        let split = Split { chunk: self.split.chunk / each, ..self.split };
        DepthPart { split, first: self.first.map(|k| b.shr(k, each.trailing_zeros())), ..*self }
    }

    /// It is one of several that begin and end with whole tiles of such a depth.
    pub fn is_in_tiles(&self, depth: u32) -> bool {
        self.number.is_some() && self.split.chunk.is_multiple_of(depth)
    }

    /// The k that lies `k` behind the beginning of the part.
    pub fn absolute(&self, b: &mut Builder, k: Part) -> Part {
        match self.first {
            Some(first) => b.add(k, first),
            None => k,
        }
    }
}

/// First row and column of the workgroup's tile.
pub(super) fn first(w: &mut Writer, tile: &Tile, split: &Split) -> (Part, Part) {
    let [x, y] = [0, 1].map(|d| w.b.workgroup_id(d));
    let (row, column) = match split.band {
        Some(band) => {
            let z = w.b.workgroup_id(2);
            (w.b.mad(z, band, x), y)
        }
        None => (y, x),
    };
    (w.b.mul(row, tile.m), w.b.mul(column, tile.n))
}

/// The workgroup's number in z without its part and band, and the part.
pub(super) fn part(w: &mut Writer, split: &Split) -> (Part, DepthPart) {
    if split.band.is_some() {
        return (w.b.scalar(0), DepthPart { split: *split, number: None, first: None, from: None });
    }
    let z = w.b.workgroup_id(2);
    if split.count == 1 {
        return (z, DepthPart { split: *split, number: None, first: None, from: None });
    }
    let (z, number) = w.b.divmod(z, split.count);
    let first = w.b.mul(number, split.chunk);
    (z, DepthPart { split: *split, number: Some(number), first: Some(first), from: None })
}

/// A product in registers.
pub(super) struct Product<'a> {
    pub tile: &'a Tile,
    pub sums: Sums,
    /// How the result is walked.
    pub walk: Walk,
    /// First row and column of the workgroup, and its number in z without the part.
    pub first: (Part, Part),
    pub z: Part,
    pub extents: Extents,
    /// What comes behind it.
    pub finish: Option<&'a Finish<'a>>,
    /// Its rows, where they are to be normalised, and what was counted or is known of them.
    pub rows: Option<(&'a Rows<'a>, Known)>,
    /// Where waves have gone that have no results.
    pub done: Option<BlockId>,
}

/// What there is to know of rows that are normalised.
pub(super) enum Known {
    /// What a workgroup has counted.
    Counted(Tally),
    /// All.
    Levels(Levels),
}

/// Stores a product and ends its kernel; where the depth is shared, in the last of the workgroups that share it. `outer` gives an
/// access's offset from everything but rows and columns.
pub(super) fn store(
    mut w: Writer,
    cx: &Cx,
    mut p: Product,
    part: DepthPart,
    outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<Vec<Kernel>> {
    let (e, tile) = (p.extents, p.tile);
    let tiles = |extent: usize, of: u32| extent.div_ceil(of as usize) as u32;
    let grid = [tiles(e.n, tile.n), tiles(e.m, tile.m), e.batches as u32 * part.split.count];
    let grid = part.split.band.map_or(grid, |band| [band, grid[0], grid[1] / band]);
    let flops = 2 * (e.batches * e.m * e.n * e.k) as u64 * u64::from(tile.types.storage.held());
    let done = p.done.unwrap_or_else(|| w.b.label());
    let Some(number) = part.number else {
        let (counters, columns) = end(&mut w, cx, &p, 0, done, outer)?;
        if p.finish.is_some() || p.done.is_some() {
            w.b.place(done, "done");
        }
        return Ok(vec![Kernel { counters, sharing: [columns, 1, 1], ..w.finish(grid, flops) }]);
    };
    // What was counted of rows is added like what was multiplied.
    let own = p.sums.parts.len();
    let present = match &p.rows {
        Some((_, Known::Counted(tally))) => {
            p.sums.parts.extend(tally.parts());
            Present::all(&p.sums.parts)
        }
        _ => Present::of(&mut w, tile, &e, &p.sums),
    };
    let shared = Shared {
        threads: tile.threads(),
        dwords: dwords(&present.among(&p.sums.parts)),
        count: part.split.count,
        tiles: [grid[0], grid[1], e.batches as u32],
    };
    if shared.bytes() >= MAX_TENSOR_BYTES {
        let name = cx.graph.tensor(cx.step.output.tensor).name.clone();
        return Err(Reason::TooLarge { name, bytes: shared.bytes(), reach: shared.bytes() });
    }
    let place = Place { lanes: present.lanes, ..shared.place(&mut w, p.z) };
    let workspace = w.workspace(shared.bytes());
    // What was counted takes registers, too.
    let in_flight = part.split.in_flight.min(match p.rows {
        Some(_) => IN_FLIGHT / 2,
        None if p.finish.is_some() => IN_FLIGHT,
        None => MOST_IN_FLIGHT[0],
    });
    // Of products that count rows, too, the scheduler's order is quicker where registers are not scarce.
    let in_turn = p.rows.is_none() || part.split.in_flight < IN_FLIGHT;
    // What comes behind it is for whole workgroups.
    let transformed = matches!(p.tile.form, Form::Winograd { .. });
    let found = if transformed { Found::OverTiles } else { Found::Apart };
    let whole = p.finish.is_some() || p.rows.is_some() || transformed;
    let levels = shared.levels(part.split.grouped, in_flight);
    let (mut number, mut counters) = (number, 0);
    for level in &levels {
        shared.leave(&mut w, workspace, &place, number, &present.among(&p.sums.parts));
        let group = (level.groups() > 1).then(|| w.b.udiv(number, level.members));
        let item = group.map_or(place.item, |group| w.b.mad(group, shared.items(), place.item));
        let item = if counters > 0 { w.b.add(item, counters / 4) } else { item };
        let others = level.others(&mut w.b, group);
        if whole {
            let at = w.b.mul(item, 4u32);
            count_workgroup(&mut w, at, (tile.threads(), found), others, done);
        } else {
            shared.count_in(&mut w, &Place { item, ..place }, others, done);
        }
        p.sums = shared.add(
            &mut w,
            workspace,
            (in_flight, in_turn),
            &place,
            (level, group),
            (tile.types.accumulate, &p.sums, &present),
        );
        // The sum is left where the group's first part was.
        number = group.map_or(number, |group| w.b.mul(group, level.members));
        counters += level.groups() * shared.items() * 4;
    }
    let counted = p.sums.parts.split_off(own);
    p.rows = p.rows.map(|(rows, known)| match known {
        Known::Counted(tally) => (rows, Known::Counted(tally.with_parts(counted))),
        known => (rows, known),
    });
    let counters = counters as usize;
    let (finished, columns) = end(&mut w, cx, &p, counters, done, outer)?;
    w.b.place(done, "done");
    let sharing = [columns, 1, levels[0].members];
    let kernel = w.finish(grid, flops);
    Ok(vec![Kernel { workspace: shared.bytes(), counters: counters + finished, sharing, ..kernel }])
}

/// Stores the results and does what comes behind them. Its counters begin `before` bytes behind others; gives how many bytes they
/// have, and how many workgroups in a row share something.
fn end(
    w: &mut Writer,
    cx: &Cx,
    p: &Product,
    before: usize,
    done: BlockId,
    outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Res<(usize, u32)> {
    if let Form::Winograd { .. } = p.tile.form {
        winograd::store(w, cx, p.tile, &p.sums, p.first)?;
        return Ok((0, 1));
    }
    let levels = match &p.rows {
        Some((rows, Known::Counted(tally))) => Some((*rows, rows.end(w, p.tile, tally, p.first.0, &p.extents)?)),
        Some((rows, Known::Levels(levels))) => Some((*rows, *levels)),
        None => None,
    };
    w.b.stores_for_device(p.finish.is_some());
    gemm::store(w, cx, (p.tile, &p.sums), &p.walk, p.first, levels, outer)?;
    w.b.stores_for_device(false);
    p.finish.map_or(Ok((0, 1)), |f| f.write(w, p, before, done))
}

/// Where waves of a workgroup tell each other what was counted.
#[derive(Clone, Copy)]
pub(super) enum Found {
    /// In LDS of their own.
    Apart,
    /// Where tiles were, which all have read by then and nobody needs any more: a compute unit holds as many workgroups as without.
    OverTiles,
}

/// Waits until what the workgroup has stored is where all can see it, and goes to `done` unless `all` others were there before. Each
/// workitem has a counter of its own, at byte `at`; the first wave's decides for all `threads` of them. Waves tell each other by `found` in LDS.
pub(super) fn count_workgroup(
    w: &mut Writer,
    at: Part,
    (threads, found): (u32, Found),
    all: impl Into<Opnd>,
    done: BlockId,
) {
    let (all, counters) = (all.into(), w.counters());
    let b = &mut w.b;
    let wave = b.wave_size();
    let bytes = threads / wave * 4;
    let found = match found {
        Found::Apart => b.lds(bytes),
        Found::OverTiles => {
            b.lds_of_at_least(bytes);
            0
        }
    };
    let item = b.workitem_id();
    let own = b.shr(item, wave.trailing_zeros());
    let own = b.shl(own, 2u32);
    let (own, at) = (b.to_vector(own), b.to_vector(at));
    b.block("count");
    b.fix_order();
    b.finish_stores();
    b.barrier();
    let before = b.device_increment(counters, at, all);
    if threads > wave {
        b.lds_write(own, before, found);
        b.barrier();
        let start = b.to_vector(0u32);
        let first = b.lds_read(1, start, found);
        let first = b.uniform(first);
        b.branch_lt(first, all, done);
    } else {
        let before = b.uniform(before);
        b.branch_lt(before, all, done);
    }
}

/// Parts that are put together by one of those who make them.
pub(super) struct Shared {
    /// Workitems of a workgroup, and dwords that each leaves.
    pub threads: u32,
    pub dwords: u32,
    /// Parts.
    pub count: u32,
    /// Tiles of the result in x, y, and its batches.
    pub tiles: [u32; 3],
}

/// Where a workitem's sums are.
pub(super) struct Place {
    /// Its number among all that a part has.
    pub item: Part,
    /// Byte of the workgroup's first piece in a part, and the workitem's number.
    pub group: Part,
    pub lane: Part,
    /// Lanes that leave something.
    pub lanes: Lanes,
}

impl Place {
    /// Byte of the lane's piece of so many dwords, from the workgroup's first on; out of bounds where it has nothing to leave.
    pub fn at(&self, b: &mut Builder, dwords: u32) -> Part {
        let at = b.mul(self.lane, dwords * 4);
        self.lanes.into_iter().flatten().fold(at, |at, lanes| b.guard(lanes, at))
    }
}

/// How many dwords registers have.
pub(super) fn dwords(parts: &[Part]) -> u32 {
    parts.iter().map(|p| u32::from(p.len)).sum()
}

/// Parts that are added together.
pub(super) struct Level {
    /// How many there are, and of how many the last one to come adds them: what is left is as many parts as there are groups.
    count: u32,
    members: u32,
    /// Where the next one was left: so many of the first level's parts further.
    step: u32,
}

impl Level {
    fn groups(&self) -> u32 {
        self.count.div_ceil(self.members)
    }

    /// How many others the parts of a group have, of several or the only one.
    fn others(&self, b: &mut Builder, group: Option<Part>) -> Opnd {
        let most = self.members - 1;
        match group {
            Some(group) if !self.count.is_multiple_of(self.members) => {
                let before = b.mul(group, self.members);
                let all = b.scalar(self.count - 1);
                let behind = b.sub(all, before);
                b.generic(Gen::Min.of(Type::U32), &[behind.into(), most.into()]).into()
            }
            _ => most.into(),
        }
    }
}

/// Dwords that a workitem has in flight while parts are added; where a compute unit has so few workgroups that registers are left, one of these, the
/// most first.
pub(super) const IN_FLIGHT: u32 = 64;
pub(super) const MOST_IN_FLIGHT: [u32; 2] = [192, 128];
/// The same at least, however few registers there are beside the sums.
pub(super) const LEAST_IN_FLIGHT: u32 = 16;

impl Shared {
    /// Workitems of a part.
    fn items(&self) -> u32 {
        self.tiles.iter().product::<u32>() * self.threads
    }

    /// Bytes of a part, and of all.
    pub fn part(&self) -> u32 {
        self.items() * self.dwords * 4
    }
    pub fn bytes(&self) -> usize {
        self.part() as usize * self.count as usize
    }

    /// Bytes of the counters: each lane counts for itself, which costs no mask, and the first one's count decides for the wave.
    pub fn counters(&self) -> usize {
        self.items() as usize * 4
    }

    pub fn place(&self, w: &mut Writer, batch: Part) -> Place {
        let b = &mut w.b;
        let (x, y) = (b.workgroup_id(0), b.workgroup_id(1));
        let row = b.mad(batch, self.tiles[1], y);
        let group = b.mad(row, self.tiles[0], x);
        self.place_of(w, group)
    }

    /// The place of a workgroup that computes the tile of this number.
    pub fn place_of(&self, w: &mut Writer, group: Part) -> Place {
        let b = &mut w.b;
        let lane = b.workitem_id();
        let item = b.mad(group, self.threads, lane);
        let group = b.mul(group, self.threads * self.dwords * 4);
        Place { item, group, lane, lanes: [None; 2] }
    }

    /// The pieces of a workitem's sums: registers, and how many dwords are before them.
    pub fn pieces(parts: &[Part]) -> Vec<(Part, u32)> {
        let mut before = 0;
        let mut out = Vec::new();
        for p in parts {
            for first in (0..p.len).step_by(4) {
                let piece = p.slice(first, (p.len - first).min(4));
                out.push((piece, before));
                before += u32::from(piece.len);
            }
        }
        out
    }

    /// Rounds in which so many parts are added with so many dwords of a workitem in flight, and parts of a round.
    fn rounds(&self, parts: u32, in_flight: u32) -> (u32, u32) {
        let rounds = parts.div_ceil((in_flight / self.dwords).max(1));
        (rounds, parts.div_ceil(rounds))
    }

    /// How parts are added: all at once, or so many and some more that fill rounds, and then the groups'.
    fn levels(&self, grouped: u32, in_flight: u32) -> Vec<Level> {
        let (rounds, together) = self.rounds(grouped, in_flight);
        let first = Level { count: self.count, members: (rounds * together).min(self.count), step: 1 };
        match first.groups() {
            1 => vec![first],
            groups => {
                let step = first.members;
                vec![first, Level { count: groups, members: groups, step }]
            }
        }
    }

    /// Stores a part.
    pub fn leave(&self, w: &mut Writer, to: Buffer, place: &Place, number: Part, parts: &[Part]) {
        let start = w.b.mad(number, self.part(), place.group);
        for (piece, before) in Self::pieces(parts) {
            let at = place.at(&mut w.b, piece.len.into());
            let piece = gemm::in_vectors(w, piece);
            w.b.device_store(to, piece, at, start, before * 4 * self.threads);
        }
    }

    /// Waits until the part is where all can see it, and goes to `done` unless the `others` are there too.
    pub fn count_in(&self, w: &mut Writer, place: &Place, others: impl Into<Opnd>, done: BlockId) {
        let others = others.into();
        let counters = w.counters();
        let b = &mut w.b;
        let at = b.mul(place.item, 4u32);
        b.block("count");
        b.fix_order();
        b.finish_stores();
        let before = b.device_increment(counters, at, others);
        let before = b.uniform(before);
        b.branch_lt(before, others, done);
    }

    /// Adds a group's parts, with so many dwords of a workitem in flight, those of further pieces behind them if `in_turn`.
    fn add(
        &self,
        w: &mut Writer,
        from: Buffer,
        (in_flight, in_turn): (u32, bool),
        place: &Place,
        (level, group): (&Level, Option<Part>),
        (ty, like, present): (Type, &Sums, &Present),
    ) -> Sums {
        let parts: Vec<Part> = like.parts.iter().map(|p| w.b.v(p.len)).collect();
        let sums = Sums { parts, ..*like };
        for p in &sums.parts {
            (0..p.len).for_each(|i| w.b.copy_into(p.dword(i), 0u32));
        }
        let pieces = Self::pieces(&present.among(&sums.parts));
        let lanes: Vec<Part> = (1..=4).map(|dwords| place.at(&mut w.b, dwords)).collect();
        // Rounds of as many parts as fit. Those of the last one that are none lie behind the buffer and are zero.
        let (rounds, together) = self.rounds(level.members, in_flight);
        let apart = level.step * self.part();
        let begin = group.map_or(place.group, |group| w.b.mad(group, level.members * apart, place.group));
        let in_turn = in_turn && self.dwords > in_flight;
        w.b.counted_loop("parts", rounds * together, together, Pipeline::Off, false, |b, first| {
            // Pieces behind others wait for their registers.
            if in_turn {
                b.fix_order();
            }
            let start = b.mad(first, apart, begin);
            let starts: Vec<Part> = (0..together).map(|i| b.add(start, i * apart)).collect();
            let load = |b: &mut Builder, (piece, before): &(Part, u32), start: &Part| {
                let lane = lanes[piece.len as usize - 1];
                b.device_load(from, piece.len, lane, *start, before * 4 * self.threads)
            };
            // Pieces of 4 dwords at most; of large sums not all at once.
            for some in pieces.chunks(pieces.len().div_ceil(self.dwords.div_ceil(in_flight) as usize)) {
                let of_part = |b: &mut Builder, s: &Part| some.iter().map(|p| load(b, p, s)).collect::<Vec<_>>();
                let loaded: Vec<Vec<Part>> = starts.iter().map(|s| of_part(b, s)).collect();
                for ((sum, _), new) in loaded.iter().flat_map(|l| some.iter().zip(l)) {
                    for i in (0..sum.len).step_by(usize::from(ty.dwords())) {
                        let (sum, new) = (sum.slice(i, ty.dwords()), new.slice(i, ty.dwords()));
                        b.emit(Gen::Add.of(ty), &[sum.into()], &[sum.into(), new.into()]);
                    }
                }
            }
        });
        sums
    }
}
