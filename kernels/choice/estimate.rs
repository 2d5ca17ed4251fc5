//! The clocks of a product with a tile, by the cycle model's analytical form ([`barewave_timing::gemm`]).
//!
//! What a workgroup does in a round of its loop ([`Round`]) is put together to the clocks of a grid of tiles, alone ([`Machine::time`]) or
//! with some tiles divided in equal shares ([`Machine::divided`]). All constants are fitted or counted, as they say.

use super::gathered::Gathering;
use super::loops::Costs;
use super::machine::{Machine, has_matrix_shadow, in_pairs};
use super::{Extents, Round, Split};
use crate::kernels::divided::Shares;
use crate::kernels::matmul;
use crate::kernels::matrix::MatrixForm;
use crate::kernels::present;
use crate::kernels::regroup::Rows;
use crate::kernels::rounds::is_narrow;
use crate::kernels::shares;
use crate::kernels::split;
use crate::kernels::tile::{Form, Tile};
use crate::kernels::vector;
use barewave_isa::matrix::Layout;
use barewave_timing::chip::kept;
use barewave_timing::gemm::{Loops, together};

/// Cycles of a round of a workgroup that is alone, over those that L2 takes to answer ([`Costs::round`]): what it waits for of these. This and what
/// says so below is fitted to what the cycle model says of 19 shapes, 24 tiles of each, f32 and f16, on seven targets, and of 20 convolutions
/// on three.
const ANSWER: f64 = 1.32;

/// What limits a product besides its compute units, and what parts of sums take. Fitted, apart for loops of narrow elements by matrix instructions
/// beside which others run: to which candidate is the best one.
#[derive(Default)]
struct Limits {
    /// Limits that are about as long delay each other: the power by which they are put together.
    power: f64,
    /// What L2 gives over what kernels that stream get.
    from_l2: f64,
    /// Bytes of parts of sums that go to memory over their size: those that L2 still has do not, where it is one; several dies write all of them
    /// and read them again from behind it.
    parts_moved: f64,
    /// Of equal shares, whose workgroups end at different times, the part of what adding takes which is behind everything else.
    adding_shares: f64,
    /// Cycles that a workgroup which leaves a part and counts that takes longer than one that stores results: what it leaves has to be where all dies
    /// see it, and its counting is answered from there.
    counting: f64,
    /// Cycles until the first workgroups have their arguments and their first elements, of which a share is noticed.
    begins: f64,
    /// Cycles until what no other workgroup of a die reads meanwhile is there.
    apart: f64,
}

/// See [`Limits::counting`]: latencies of the device.
const SEEN_AMONG_DIES: f64 = 1.75;

/// Cycles of a workgroup's beginning and end besides latencies, and the share of these. Fitted.
const EDGES: f64 = 107.0;
const LATENCIES: f64 = 0.6;

/// Rounds of a rest behind its first one, at most.
const FEW_FURTHER: u32 = 3;

/// Of workgroups that add parts: edges of theirs; what a second level of adding is charged beside them, up to what one level takes; and bytes a
/// cycle that are on their way to a wave, up to the first level's rate. Of equal shares, whose workgroups end at different times, what reading
/// takes over that rate. Fitted.
const ADDING: f64 = 0.78;
const ANOTHER_LEVEL: f64 = 3000.0;
const ON_THE_WAY: f64 = 28.0;
const READING: f64 = 1.14;

/// Registers of a workitem that adds parts, beside its sums and what is on its way (fitted); and what is on its way at least, as sums of the
/// largest tiles leave room for no more: a load's four.
const BESIDE_SUMS: u32 = 24;
const ONE_LOAD: f64 = 4.0;

/// Registers of a workitem that adds parts, beside these and its sums. Counted.
const BESIDE_PARTS: u32 = 8;

/// More workgroups of a compute unit hide no more of each other.
const MOST_TOGETHER: f64 = 12.0;

/// Most parts of a depth, and the least depth and rounds of a part.
const PARTS: [usize; 18] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256];
const LEAST_DEPTH: usize = 64;
const LEAST_ROUNDS: usize = 4;

/// Tiles are divided in equal shares where they fill less than this share of what all compute units do meanwhile, and for workgroups that have so
/// many rounds. More workgroups than so many of a compute unit leave more parts than they hide, and bands of more rows share little more.
const FILLED: f64 = 0.97;
const FEWEST_UNITS: u32 = 8;
const MOST_SHARES: f64 = 4.0;
const MOST_ROWS: u32 = 64;

/// What compute units take for tiles in equal shares over what they would by their rounds: those of a workgroup begin at different depths. Of
/// plain multiply-adds and of narrow elements by matrix instructions, of multiply-adds that are issued in pairs, and of narrow elements where dies
/// have a cache each. Fitted; for pairs to products of 4096 and 8192 on three targets, where both ways are within 2% of each other.
const DIVIDED: f64 = 0.97;
const DIVIDED_IN_PAIRS: f64 = 1.008;
const DIVIDED_AMONG_DIES: f64 = 0.95;

/// Of what workgroups of the last round lose by being few, plain multiply-adds see so much: the others have drifted apart. Fitted.
const DRIFTED: f64 = 0.4;

/// Memory that is busy for less than this share of what compute units need holds nobody up.
const UNNOTICED: f64 = 0.85;

/// L2 that is busy for so much of the time is worth to be asked for fewer lines: that takes LDS some.
const NOTICED: f64 = 0.84;

/// The same where a compute unit has one workgroup, whose operands go straight to LDS: nobody multiplies while it takes its results there.
const NOTICED_BY_ONE: f64 = 0.89;

/// See [`Limits::from_l2`]: of narrow elements that go through one buffer, where each die has an L2. Fitted to 1,000 candidates of 32 products of few rounds.
const FROM_L2_BY_ONE: f64 = 0.83;

/// How quickly workgroups go through their rounds.
struct Pace {
    /// Cycles of a round that keep a compute unit busy, and of one of a workgroup that is alone; and of what is before and behind the loop.
    busy: f64,
    alone: f64,
    around: f64,
    /// The same of a round of one that is alone, where all begin together; and where each reads what no other of its die does meanwhile.
    first: f64,
    apart: f64,
    /// Cycles of a workgroup's beginning and end.
    ends: f64,
    /// Workgroups that run side by side, of fewer waves than a compute unit has SIMDs.
    slots: f64,
    /// Bytes of a round from L2.
    loaded: f64,
    /// Cycles that the last round of waves which share the depth takes less than others: behind it nothing is waited for.
    last: f64,
}

/// What a number is divisible by, in any order; of one beyond 32 bits what is below 2^16, and what that leaves.
fn divisors(n: usize) -> impl Iterator<Item = usize> {
    let low = (1..=n.isqrt().min(1 << 16)).filter(move |d| n.is_multiple_of(*d));
    low.flat_map(move |d| [d, n / d])
}

impl Machine {
    /// What limits a product with a tile.
    fn limits(&self, e: &Extents, tile: &Tile) -> Limits {
        let of_a_die = if self.one_cache { self.l2_latency } else { self.dram };
        let waits = |f: &MatrixForm| !has_matrix_shadow(self.target) && f.op.shape.layout != Layout::Wmma12;
        if !is_narrow(tile) || matches!(&tile.form, Form::Matrix(f) if waits(f)) {
            let parts_moved = if self.one_cache { 0.8 } else { 1.33 };
            let parts = Limits { parts_moved, adding_shares: 0.4, counting: 0.0, ..Limits::default() };
            return Limits { power: 4.0, from_l2: 1.12, begins: self.latency, apart: of_a_die, ..parts };
        }
        let counting = if self.one_cache { 0.0 } else { SEEN_AMONG_DIES * self.device_latency };
        let parts = Limits { parts_moved: 1.1, adding_shares: 0.6, counting, ..Limits::default() };
        // What one row or column of tiles reads comes from memory; what others read, too, is in the cache that dies share.
        let once = e.m <= tile.m as usize || e.n <= tile.n as usize;
        let apart = if once { of_a_die } else { self.device_latency };
        // With one buffer nothing is asked for while others wait.
        let from_l2 = if tile.buffers == 1 && !self.one_cache { FROM_L2_BY_ONE } else { 1.0 };
        Limits { power: 12.0, from_l2, begins: self.begins, apart, ..parts }
    }

    /// How quickly workgroups go through their rounds.
    fn pace(&self, e: &Extents, (tile, round): (&Tile, &Round)) -> Pace {
        let info = self.target.info();
        let k = f64::from(tile.k);
        // Cycles of a SIMD for a round of all waves, and those of the compute unit for its loads.
        let costs = Costs::of(self, tile, (round.spread, e.gathered.is_some()));
        // Whole wavefronts along n gather.
        let lanes = f64::from(info.wave_size);
        let kind = Gathering::of(self, tile);
        let (gathered, behind) = e.gathered.map_or((0.0, 0.0), |g| {
            (
                f64::from(e.along_image(tile).0) / lanes * kind.instructions(&g) * self.issue,
                kind.behind(&g, is_narrow(tile)),
            )
        });
        let (beside, apart) = if kind.is_beside_products() { (gathered, 0.0) } else { (0.0, gathered) };
        let each_load = f64::from(tile.m + tile.n) * k / lanes * costs.each_load;
        let besides = (f64::from(round.waves) * costs.each_round + each_load) * self.issue;
        let (products, moves, apart) =
            ((round.products + beside) * k + besides, round.moves * costs.reads * k, apart * k);
        let seen_full = e.gathered.map_or(costs.seen_full, |g| kind.seen(&g, costs.seen_full));
        let (most, least) = (products.max(moves + apart), products.min(moves + apart));
        // What several waves of a SIMD do at a time is for different units.
        let longest = products.max(moves).max(apart);
        let full = longest + (products + moves + apart - longest) * seen_full;
        let [loaded, given] = [round.loaded, round.given].map(|bytes| f64::from(bytes) * k);
        let beside = f64::from(round.waves.min(info.simds));
        // What is loaded at a time is on its way while all that was loaded behind it is multiplied.
        let turns = match tile.form {
            Form::Sliced(f) => f64::from(f.steps),
            Form::Few(f) => f64::from(f.steps),
            _ => f64::INFINITY,
        };
        let both = match costs.queued {
            Some(power) => together([most, least], power),
            None => most + least * costs.seen,
        };
        let limits = self.limits(e, tile);
        let work = both / beside + f64::from(round.meetings) * costs.meeting + round.bare;
        let waves = f64::from(round.waves.div_ceil(info.simds));
        // Workgroups of fewer waves than a compute unit has SIMDs run side by side, as many as it holds: what is busiest is a SIMD of them.
        let slots = f64::from((info.simds / round.waves.min(info.simds)).max(1)).min(self.resident(round));
        // What transposing loads are given beside their pieces of lines comes one after the other, and the last of it is waited for as the
        // rest is.
        let dense = f64::from((tile.m + tile.n) * tile.types.stored_bytes()) * k;
        let turned = tile.is_transposed(0) || tile.is_transposed(1);
        let pieces = if turned { (given - dense).max(0.0) / self.l1 } else { 0.0 };
        let alone =
            |answer: f64| work.max(costs.round + ANSWER * answer + work / turns + pieces).max(given / self.l1) + behind;
        let way = costs.first * (self.dram - self.l2_latency).max(0.0);
        Pace {
            busy: (full / beside).max(given * slots / self.l1),
            alone: alone(self.l2_latency),
            first: alone(self.l2_latency + way),
            apart: alone(limits.apart),
            around: (costs.around + costs.result * f64::from(round.own)) * self.issue * waves + round.behind,
            ends: costs.edges
                + LATENCIES * limits.begins
                + costs.filling * moves / beside
                + costs.load * given / self.l1,
            slots,
            loaded,
            last: if matches!(tile.form, Form::Sliced(_) | Form::Few(_)) {
                (alone(self.l2_latency) - work).max(0.0)
            } else {
                0.0
            },
        }
    }

    /// Cycles of a workgroup for what the step's expression makes of its results.
    fn expressed(&self, e: &Extents, round: &Round) -> f64 {
        e.expression * f64::from(round.own * round.waves.div_ceil(self.target.info().simds))
    }

    /// Cycles of a product with a tile whose depth is shared among about so many workgroups, and how it is shared then.
    pub(super) fn time(&self, e: &Extents, (tile, round): (&Tile, &Round), parts: usize) -> (f64, Split) {
        let rounds = e.k.div_ceil(tile.k as usize).max(1);
        let own = rounds.div_ceil(parts);
        let count = rounds.div_ceil(own);
        let results = e.batches * e.m.div_ceil(tile.m as usize) * e.n.div_ceil(tile.n as usize);
        let groups = (results * count) as f64;
        let pace = self.pace(e, (tile, round));
        let slots = pace.slots;
        let edges = EDGES + LATENCIES * self.latency;
        // Of workgroups that run side by side whole ones are on a SIMD: seven of one wave are two behind each other, as eight are.
        let each = (groups / f64::from(self.target.cus())).ceil();
        let (in_flight, held) = match count {
            1 => (split::IN_FLIGHT, f64::INFINITY),
            _ => self.in_flight((tile, round), each),
        };
        let resident = self.resident(round).min(held).min(MOST_TOGETHER);
        let occupancy = (resident / slots).ceil();
        let full = (each / resident).floor();
        let most = full * occupancy + ((each - full * resident) / slots).ceil();
        // What loads have to see the end of is left over for a round of its own, where that takes less and whole rounds are before it.
        let seen = round.ending.clocks * own as f64;
        let lines = round.ending.lines * own as f64 * self.of_a_line();
        let (rest, lines) = match e.k >= tile.k as usize && seen + lines > f64::from(matmul::REST) {
            true => (f64::from(matmul::REST), 0.0),
            false => (seen, lines),
        };
        let loops = Loops {
            most,
            occupancy,
            rounds: own as f64,
            busy: pace.busy,
            alone: if most <= occupancy { pace.first } else { pace.alone },
            around: pace.around + lines + if count > 1 { 0.0 } else { self.expressed(e, round) },
            ends: (pace.ends - pace.last).max(0.0) + rest,
        };
        let limits = self.limits(e, tile);
        let parts_bytes = if count > 1 { groups * left(e, tile) } else { 0.0 };
        let result = (e.batches * e.m * e.n * e.stored) as f64;
        let written = result + limits.parts_moved * parts_bytes;
        let stay = if self.takes_results { kept(self.cache, e.bytes as f64 + written) } else { 0.0 };
        let written = written * (1.0 - stay);
        let compute = loops.in_rounds(if matches!(tile.form, Form::Vector { .. }) { DRIFTED } else { 1.0 });
        let unnoticed = compute * self.memory * UNNOTICED - result;
        let (read, band) = self.read(e, (tile, self.resident(round)), count, unnoticed);
        let memory = (read + written) / self.memory;
        let stored = result.max(self.stored_apart(e, tile)) + parts_bytes;
        let l2 = (groups * own as f64 * pace.loaded + stored) / (self.l2 * limits.from_l2);
        let begun = groups * f64::from(round.waves) * self.dispatch;
        let adding = self.adding((tile, round), [results, count], in_flight);
        let mut clocks = together([compute, memory + edges, l2 + edges, begun + edges], limits.power);
        if count > 1 {
            if parts_bytes >= crate::kernels::MAX_TENSOR_BYTES as f64 {
                clocks = f64::INFINITY;
            }
            clocks += adding.0 + limits.counting;
            // Those of a compute unit end at different times.
            let ending = results as f64 / (f64::from(self.target.cus()) * slots);
            clocks += ending.max(1.0) * self.expressed(e, round);
        }
        // Rounds whose loads would see the end have no registers for that: it is certain that there are enough of them for a rest.
        if round.crowded
            && round.ending.clocks * (own as f64 - 2.0) <= f64::from(matmul::REST + FEW_FURTHER * matmul::FURTHER)
        {
            clocks = f64::INFINITY;
        }
        // Transposing loads know no end of the depth.
        if own * count != rounds && (tile.is_transposed(0) || tile.is_transposed(1)) {
            clocks = f64::INFINITY;
        }
        (
            clocks,
            Split { count: count as u32, chunk: own as u32 * tile.k, grouped: adding.1, band, shares: None, in_flight },
        )
    }

    /// Cycles in which so many parts of each of a number of results are added with so many dwords of a workitem on their way, and how many make
    /// a group. The last ones of a group and of all store, count and load, one after the other, and have a compute unit each for it or share it.
    fn adding(&self, (tile, round): (&Tile, &Round), [results, count]: [usize; 2], in_flight: u32) -> (f64, u32) {
        let most = f64::from(split::IN_FLIGHT);
        let room = self.target.info().named_vgprs().saturating_sub(tile.sums() + BESIDE_SUMS);
        let on_the_way = ON_THE_WAY * f64::from(room.min(in_flight)).clamp(ONE_LOAD, most) / most;
        let rate = self.l1.min(f64::from(round.waves) * on_the_way);
        let tile_bytes = f64::from(tile.threads() * tile.sums() * 4);
        let edges = EDGES + LATENCIES * self.latency;
        let level = |sums: usize, parts: usize| {
            let each = sums.div_ceil(self.target.cus() as usize);
            ADDING * edges + (each * parts) as f64 * tile_bytes / rate
        };
        let group = (1..).find(|n| n * n >= count).unwrap_or(count);
        let groups = count.div_ceil(group);
        let (once, twice) = (level(results, count), level(results * groups, group) + level(results, groups));
        if once <= twice { (once, count as u32) } else { (once.min(twice + ANOTHER_LEVEL), group as u32) }
    }

    /// Dwords of parts that a workitem has on their way at once, and how many workgroups that leaves a compute unit room for: as many as their
    /// loop does, of `each` that it has.
    fn in_flight(&self, way: (&Tile, &Round), each: f64) -> (u32, f64) {
        let fit = |dwords: u32| self.fit_adding(way, dwords);
        let [half, least] = [split::IN_FLIGHT / 2, split::LEAST_IN_FLIGHT];
        let room = self.target.info().named_vgprs().saturating_sub(way.0.sums() + BESIDE_SUMS);
        let more = split::MOST_IN_FLIGHT.into_iter().filter(|dwords| *dwords <= room);
        let all = more.chain([split::IN_FLIGHT, split::IN_FLIGHT - least, half]).map(|dwords| (dwords, fit(dwords)));
        let last = (least, fit(least));
        let most = last.1.min(each);
        all.into_iter().find(|(_, fit)| *fit >= most).unwrap_or(last)
    }

    /// Workgroups that a compute unit holds where a workitem adds parts with so many dwords on their way.
    fn fit_adding(&self, (tile, round): (&Tile, &Round), dwords: u32) -> f64 {
        let sums = match tile.form {
            Form::Matrix(form) if self.target.info().unified_agprs => form.accumulated(self.target, tile),
            _ => 0,
        };
        let adding = sums + tile.sums() + dwords + BESIDE_PARTS;
        self.fit(round.waves, adding.max(round.vgprs), round.lds)
    }

    /// Bytes of operands that are read, and the band in which workgroups are numbered best, if more than so many would be read in whole
    /// rows: operands that do not stay in a cache are read again by workgroups that run later. What nobody notices does not count. Of a depth in
    /// parts one part's workgroups run behind another's.
    fn read(&self, e: &Extents, (tile, resident): (&Tile, f64), parts: usize, unnoticed: f64) -> (f64, Option<u32>) {
        let once = e.bytes as f64;
        // Of what is gathered dies touch parts of lines that others have just read.
        let gathered = e.gathered.is_some() && !self.one_cache;
        if e.batches > 1 || once <= self.cache || gathered {
            return (once, None);
        }
        let [rows, columns] = [e.m.div_ceil(tile.m as usize), e.n.div_ceil(tile.n as usize)];
        let tiles = (rows * columns) as f64;
        let at_once = (f64::from(self.target.cus()) * resident).min(tiles);
        let element = f64::from(tile.types.stored_bytes());
        let (widths, held) = ([tile.m, tile.n], e.held(element));
        let of = |operand: usize, tiles: f64| match e.gathered.and_then(|g| g.reach) {
            Some(reach) if operand == e.image => {
                reach.bytes(tiles as usize * widths[operand] as usize, (tile.types.stored_bytes(), self.line))
            }
            _ => tiles * f64::from(widths[operand]) * held[operand] * element,
        };
        // Where so many rows and columns of tiles run together.
        let bytes = |rows: f64, columns: f64| {
            let read = (of(0, rows) + of(1, columns)) * e.k as f64;
            (read / (rows * columns) * tiles).max(once)
        };
        let from_memory = |read: f64| {
            let read = self.read_again((once, once / parts as f64), read);
            if read <= unnoticed { once } else { read }
        };
        let along = (columns as f64).min(at_once);
        let plain = bytes(at_once / along, along);
        if !e.bands || parts > 1 || plain <= unnoticed {
            return (from_memory(plain), None);
        }
        let banded = divisors(rows).filter_map(|band| {
            let high = (band as f64).min(at_once);
            Some((bytes(high, (at_once / high).min(columns as f64)), u32::try_from(band).ok()?))
        });
        // Of bands that read as much the narrowest.
        let best = banded.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).filter(|(read, _)| *read < plain);
        best.map_or((from_memory(plain), None), |(read, band)| (from_memory(read), Some(band)))
    }

    /// Bytes that come from memory where operands of `once` are asked for more often, again behind `between`: a part of what was read stays in
    /// a cache.
    fn read_again(&self, (once, between): (f64, f64), read: f64) -> f64 {
        once + (read - once).max(0.0) * (1.0 - kept(self.cache, between))
    }

    /// L2 takes so much of some clocks for operands, and for results in the pieces in which matrix instructions leave them, that it is
    /// better asked for whole lines. On gfx12, where a lane's results of a row take two stores and more, it always is.
    pub(super) fn stores_are_noticed(&self, e: &Extents, (tile, form): (Tile, MatrixForm), clocks: f64) -> bool {
        if form.op.shape.layout == Layout::Wmma12 {
            return true;
        }
        let tiles = e.batches * e.m.div_ceil(tile.m as usize) * e.n.div_ceil(tile.n as usize);
        let loaded = tiles as f64 * e.k as f64 * f64::from(self.loaded(&tile, e));
        let noticed = if tile.is_straight() { NOTICED_BY_ONE } else { NOTICED };
        (loaded + self.pieces(e, form)) / self.l2 > noticed * clocks
    }

    /// Bytes of the lines that L2 is asked for by results in the pieces in which matrix instructions leave them: lanes of a row have four
    /// results each.
    fn pieces(&self, e: &Extents, form: MatrixForm) -> f64 {
        let lanes = self.lanes() / form.side();
        let results = (e.batches * e.m * e.n) as f64;
        results / f64::from(4 * lanes) * f64::from(self.line)
    }

    /// The same of a tile whose results could leave in whole rows, but that LDS has no room for regrouping them.
    fn stored_apart(&self, e: &Extents, tile: &Tile) -> f64 {
        let Form::Matrix(form) = tile.form else { return 0.0 };
        let rows = Tile { form: Form::Matrix(MatrixForm { in_rows: true, ..form }), ..*tile };
        let noticed = has_matrix_shadow(self.target) || form.op.shape.layout == Layout::Wmma12;
        let apart = e.in_rows && is_narrow(tile) && noticed && Rows::of(&rows).is_none();
        if apart { self.pieces(e, form) } else { 0.0 }
    }

    /// Cycles of a product whose tiles are divided in equal shares among as many workgroups as run at once, and how. None where tiles
    /// fill compute units anyway, or where a loop of a depth that the kernel is told has nothing to overlap its loads with.
    fn divided(&self, e: &Extents, (tile, round): (&Tile, &Round), at_once: u32) -> Option<(f64, Split)> {
        let in_registers = matches!(tile.form, Form::Sliced(_) | Form::Few(_));
        if !e.shares || in_registers || round.crowded || is_narrow(tile) && !has_matrix_shadow(self.target) {
            return None;
        }
        let rounds = u32::try_from(e.k.div_ceil(tile.k as usize)).ok()?;
        let [rows, columns] = [e.m.div_ceil(tile.m as usize), e.n.div_ceil(tile.n as usize)];
        let tiles = u32::try_from(e.batches * rows * columns).ok().filter(|t| t.checked_mul(rounds).is_some())?;
        let groups = self.target.cus() * at_once;
        let filled = f64::from(tiles) / f64::from(groups);
        if filled > FILLED * filled.ceil() || tiles * rounds < groups * FEWEST_UNITS {
            return None;
        }
        let depth = e.k as f64 * f64::from(tile.types.stored_bytes());
        let [held_m, held_n] = e.held(f64::from(tile.types.stored_bytes()));
        let (tile_m, tile_n) = (f64::from(tile.m) * held_m, f64::from(tile.n) * held_n);
        // Whole tiles are read where so many rows and columns of them run together. Shares have the columns in common, but not the rows at a time.
        let bands =
            (1..=MOST_ROWS.min(rows as u32)).filter(|b| rows.is_multiple_of(*b as usize) && groups.is_multiple_of(*b));
        let banded = bands.map(|band| {
            let shares = Shares { groups, tiles, rounds, band };
            let (high, wide) = (f64::from(band), f64::from(groups / band).min(columns as f64));
            let of_a_share = tile_m + tile_n / high;
            let of_a_tile = tile_m / wide + tile_n / high;
            let whole = f64::from(shares.whole() * groups);
            ((f64::from(shares.shared()) * of_a_share + whole * of_a_tile) * depth, shares)
        });
        let (read, shares) = banded.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let once = e.bytes as f64;
        // What runs together is close to each other: a cache before several dies has what was read for the next share, and one of all compute
        // units what a row's next tile reads so many rounds later.
        let late = rounds % shares.units();
        let late = f64::from(late.min(shares.units() - late)) / f64::from(shares.units());
        let read = if self.one_cache { self.read_again((once, once * late), read) } else { once };
        let tile_bytes = f64::from(tile.threads() * tile.sums() * 4);
        let limits = self.limits(e, tile);
        // Narrow elements' constants are fitted to parts as they are left and read, others' to one at both ends of each share.
        let (parts, read_again) = if is_narrow(tile) { (shares.parts(), 1.0) } else { (2 * groups, 0.0) };
        let parts_bytes = f64::from(parts) * left(e, tile);
        if parts_bytes >= crate::kernels::MAX_TENSOR_BYTES as f64 {
            return None;
        }
        let pace = self.pace(e, (tile, round));
        let edges = EDGES + LATENCIES * self.latency;
        // Rounds of small blocks are too short for memory to answer within them.
        let alone = if vector::has_small_blocks(tile) { pace.apart.max(pace.first) } else { pace.apart };
        // Tiles that a workgroup has something of.
        let visits = f64::from(shares.whole()) + f64::from(shares.units()) / f64::from(rounds) + 1.0;
        let own = f64::from(shares.units() + shares.whole() * rounds);
        let resident = f64::from(at_once);
        // Loads of all rounds see the end of the depth.
        let (seen, lines) = (round.ending.clocks * own, round.ending.lines * own * self.of_a_line());
        let loops = Loops {
            most: (resident / pace.slots).ceil(),
            occupancy: (resident / pace.slots).max(1.0),
            rounds: own,
            busy: pace.busy,
            alone,
            around: pace.around * visits + lines,
            ends: pace.ends * visits + seen,
        };
        let result = (e.batches * e.m * e.n * e.stored) as f64;
        let written = result + limits.parts_moved * parts_bytes;
        let stay = if self.takes_results { kept(self.cache, once + written) } else { 0.0 };
        let read = if read <= loops.in_rounds(1.0) * self.memory * UNNOTICED - written { once } else { read };
        let memory = (read + written * (1.0 - stay)) / self.memory;
        // Parts are written, and read while others multiply.
        let stored = result.max(self.stored_apart(e, tile)) + (1.0 + read_again) * parts_bytes;
        let l2 = (f64::from(tiles * rounds) * pace.loaded + stored) / (self.l2 * limits.from_l2);
        let worth = match tile.form {
            Form::Matrix(_) if !is_narrow(tile) => 1.0,
            Form::Matrix(_) if !self.one_cache => DIVIDED_AMONG_DIES,
            Form::Vector { dot: None, .. } if in_pairs(self.target, tile.types.accumulate) => DIVIDED_IN_PAIRS,
            _ => DIVIDED,
        };
        let clocks = together([loops.in_rounds(1.0) * worth, memory + edges, l2 + edges], limits.power);
        // Both ends of a share are left, and a tile is put together, one part behind the other.
        let parts = f64::from(rounds.div_ceil(shares.units())) + 1.0;
        let waits = f64::from(tile.sums().div_ceil(shares::AT_ONCE)) * (parts - 1.0) - 1.0;
        let adding = ADDING * edges * (2.0 + waits) + READING * (2.0 + parts) * tile_bytes * resident / self.l1;
        // Of a compute unit's workgroups few put a tile together at a time.
        let expressed = (1.0 + f64::from(shares.whole())) * self.expressed(e, round) * loops.occupancy;
        let adding = limits.adding_shares * adding + expressed;
        let split = Split {
            count: 1,
            chunk: rounds * tile.k,
            grouped: 1,
            band: None,
            shares: Some(shares),
            in_flight: split::IN_FLIGHT,
        };
        Some((clocks + adding, split))
    }

    /// A workitem has more sums than accumulation registers: it has none for parts beside them.
    fn is_full_of_sums(&self, tile: &Tile) -> bool {
        let t = self.target.info();
        t.unified_agprs && tile.sums() > t.max_agprs
    }

    /// The best way to divide tiles in equal shares: among workgroups of which one runs on a compute unit, as many as its SIMDs have room
    /// for side by side, or many.
    pub(super) fn in_shares(&self, e: &Extents, way: (&Tile, &Round)) -> Option<(f64, Split)> {
        if self.is_full_of_sums(way.0) {
            return None;
        }
        let most = self.fit_adding(way, shares::AT_ONCE).min(MOST_SHARES) as u32;
        let simds = self.target.info().simds;
        let beside = (simds / way.1.waves.min(simds)).clamp(1, most);
        let mut all = vec![1, beside, most];
        all.dedup();
        let all = all.into_iter().take(most as usize).filter_map(|n| self.divided(e, way, n));
        all.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The best way to share the depth with a tile, if there is one.
    pub(super) fn shared(&self, e: &Extents, way: (&Tile, &Round)) -> Option<(f64, Split)> {
        if self.is_full_of_sums(way.0) || matches!(way.0.form, Form::Few(_)) {
            return None;
        }
        // Waves that share the depth have theirs on its way from the beginning.
        let sliced = matches!(way.0.form, Form::Sliced(_));
        let least = if sliced { 1 } else { LEAST_ROUNDS };
        let fits = |parts: &usize| e.k >= parts * LEAST_DEPTH.max(least * way.0.k as usize);
        let all = PARTS.into_iter().take_while(fits).map(|parts| self.time(e, way, parts));
        let all = all.filter(|(_, split)| !sliced || split.span() as usize == e.k && split.count > 1);
        all.min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// Bytes that a workgroup leaves of a tile for those that add parts: of the results that there are.
fn left(e: &Extents, tile: &Tile) -> f64 {
    let [rows, columns] = present::extents(tile, e);
    f64::from(tile.threads() * tile.sums() * 4) * f64::from(rows * columns) / f64::from(tile.m * tile.n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::choice::Together;
    use crate::kernels::tile::Types;
    use crate::tensor::DType;
    use barewave_isa::Target;

    #[test]
    fn divisors_are_all_that_divide() {
        for n in [1, 2, 36, 97, 1024, 30030] {
            let mut found: Vec<usize> = divisors(n).collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, (1..=n).filter(|d| n.is_multiple_of(*d)).collect::<Vec<_>>());
        }
    }

    /// A product of f32 or less without anything else.
    fn extents([m, n, k]: [usize; 3], deep: (bool, bool)) -> Extents {
        Extents {
            batches: 1,
            m,
            n,
            k,
            bytes: (m + n) * k * 4,
            stored: 4,
            expression: 0.0,
            deep,
            pitch: [if deep.0 { k } else { m }, if deep.1 { k } else { n }],
            bands: true,
            shares: false,
            apart: false,
            in_rows: true,
            transposed: [false; 2],
            straight: false,
            loads: [Together::ANY; 2],
            lines: false,
            few: false,
            sparse: None,
            scaled: false,
            image: 1,
            gathered: None,
            pairs: false,
        }
    }

    #[test]
    fn rows_of_tiles_share_what_a_memory_side_cache_does_not_hold() {
        let machine = Machine::of(Target::parse("gfx942").unwrap());
        let form = Form::Vector { tm: 8, tn: 8, dot: None };
        let tile = Tile { types: Types::of(DType::F32), m: 128, n: 128, k: 8, run: 1, buffers: 2, form };
        // 1 GiB, of which all rows of tiles read each column; and what the cache holds.
        let band = |columns: usize| machine.read(&extents([1024, columns, 512], (true, false)), (&tile, 1.0), 1, 0.0).1;
        assert_eq!([band(524_288), band(32_768)], [Some(8), None]);
    }

    #[test]
    fn narrow_rows_come_in_whole_lines() {
        let machine = Machine::of(Target::parse("gfx1201").unwrap());
        assert_eq!(machine.line, 128);
        let form = Form::Vector { tm: 4, tn: 4, dot: None };
        let tile = |m: u32, n: u32, t: DType| Tile { types: Types::of(t), m, n, k: 128, run: 1, buffers: 2, form };
        // Of L2, and of the first level: 64 bytes of a line of 128 along the width; whole lines; lines along k, which a round takes whole.
        for (tile, deep, [loaded, given]) in [
            (tile(64, 64, DType::I8), (false, false), [256, 128]),
            (tile(64, 64, DType::I8), (true, false), [192, 128]),
            (tile(64, 64, DType::I8), (true, true), [128, 128]),
            (tile(128, 128, DType::I8), (false, false), [256, 256]),
            (tile(64, 32, DType::F16), (false, false), [256, 192]),
        ] {
            let e = extents([256, 1024, 4096], deep);
            assert_eq!([machine.loaded(&tile, &e), machine.given(&tile, &e)], [loaded, given], "{tile:?} {deep:?}");
        }
    }
}
