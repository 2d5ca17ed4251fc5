//! A matrix product by its parameters: the analytical form of layers 1 and 2.
//!
//! For choosing among tiles, and for kernels of which only the parameters are known (those in AMD's tuning tables). The
//! kernel is the one that everybody writes: a workgroup computes a tile of C, tiles of A and B of depth `depth` go through
//! LDS, the next one is on its way while one is multiplied, one barrier per round. From that and the chip's constants:
//!
//! * a round keeps the compute unit busy for the longest of its products, its LDS traffic and its loads;
//! * one workgroup alone takes longer: its waves may not fill all SIMDs, a step cannot be quicker than LDS answers what the step
//!   before it asked, the barrier and the first reads after it are exposed, and a tile cannot be used before memory has
//!   answered; resident workgroups hide each other's waiting;
//! * a workgroup begins with a latency (arguments, first tile) and ends with storing its tile;
//! * the busiest compute unit has `ceil(tiles / compute units)` of them. Where a workgroup runs on both halves of a work group
//!   processor, as the vendor's do on RDNA, that is the unit: rows of gfx1030 with 1.3 tiles per compute unit reach 82% of the
//!   peak, which two whole rounds of compute units cannot;
//! * memory and L2 move what they must, and waves begin one after the other; where two of these limits and the compute units' are
//!   about as long, they wait for each other.
//!
//! Two mechanisms were looked for in the half of the rows that may be looked at, and left out:
//!
//! * Code that is not in the instruction cache when a launch starts. It would cost more the longer the loop's code is. Of short rows with vector
//!   instructions (up to eight rounds, below 60,000 clocks, 1,263 of them) measured less modelled clocks rise by 4.5 for each byte of a round on gfx900,
//!   0.35 on gfx906, which has the same caches and kernels, 1.6 on gfx1030, with correlations of 0.48, 0.04 and 0.23: what differs is the
//!   tuning run, whose launches repeat and find their code.
//! * Lines of which a round takes a part, where k lies next to each other, and which the next rounds have to load again when those of all
//!   resident workgroups do not fit. Rows of 29000xNx2560 on gfx1030, which take three times what is modelled, suggest it, but over all groups the mean of medians goes from 10.9, 6.0
//!   and 4.6% to 10.6, 6.0 and 4.4%, that of ninth deciles from 34, 23 and 19% to 34, 23 and 19%, and gfx1030 f16 gets worse (27 to 31%).
//!
//! It takes about a microsecond. [`Gemm::clocks`] leaves out what a launch costs: that is a matter of how the time was
//! taken.

use crate::chip::Chip;
use barewave_isa::matrix::Elem;
use barewave_isa::{Flags, Inst, ModName, Mods, Op, Quirk, Target, op};

/// A matrix product and the kernel for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemm {
    /// Rows, columns and depth of the product, and how many products.
    pub m: f64,
    /// Columns.
    pub n: f64,
    /// Depth.
    pub k: f64,
    /// Products of a launch.
    pub batch: f64,
    /// Rows and columns of a workgroup's tile.
    pub tile: (f64, f64),
    /// Depth of a round.
    pub depth: f64,
    /// Workitems.
    pub threads: (f64, f64, f64),
    /// Rows, columns, depth and blocks of the matrix instruction, where one is used.
    pub matrix: Option<[f64; 4]>,
    /// Parts that k is split into, by different workgroups.
    pub split: f64,
    /// Tiles that are on their way from memory; 0: loads are waited for at once.
    pub prefetch: f64,
    /// Operands of the next step are read from LDS while one is multiplied.
    pub local_prefetch: bool,
    /// Bytes of an element of A and B, of one of C, and of an accumulator.
    pub bytes: (f64, f64, f64),
    /// Whether A and B lie in memory with elements of one row, or column, but neighbouring k, next to each other. Matrix instructions of
    /// some chips gather the others from LDS element by element.
    pub along_depth: [bool; 2],
    /// Elements of A and B that a lane loads with one instruction, and writes to LDS with one.
    pub load_width: f64,
    /// Elements of C that a lane stores with one instruction.
    pub store_width: f64,
    /// C is read too.
    pub reads_c: bool,
    /// The memory-side cache still has what fits of the operands: the product was computed before on the same data, as
    /// benchmarks do that do not take turns among buffers.
    pub warm: bool,
    /// A launch alone: what it stores stays in a memory-side cache that takes it. Of many in a row, as benchmarks have them, each drives out
    /// what one before has stored, and memory takes it all.
    pub single: bool,
    /// Floating-point operations (multiplication and addition count as two) that a compute unit does in a clock with the
    /// instructions of this kernel.
    pub rate: f64,
    /// Bytes that memory moves, where these are not those of three matrices, as of a convolution, whose windows overlap.
    pub moved: Option<f64>,
    /// Bytes that come with each used one of B in their cache lines: pixels that a convolution passes over.
    pub spread: f64,
}

/// Clocks of a round in which a workgroup's own waves neither multiply nor load: barrier, first reads behind it, loop
/// control. Fitted, as all that say so here, on half of the sizes of AMD's tables together, all chips.
const SYNC: f64 = 147.0;
/// Clocks of a workgroup's prologue besides the latency of its first loads. Fitted.
const PROLOGUE: f64 = 402.0;
/// Clocks of an epilogue besides its stores. Inferred: a few hundred instructions.
const EPILOGUE: f64 = 267.0;
/// Share of memory's latency that a prefetched tile still waits for when nothing else hides it. Fitted.
const EXPOSED: f64 = 0.5;
/// Least clocks of a step whose operands were read during the step before, over the latency of LDS: a part of the answer
/// overlaps the step that asked. Fitted.
const STEP: f64 = 0.86;
/// Clocks that a step waits for operands which were not read ahead, over the latency of LDS: both operands, and what is before
/// them in the queue. Fitted.
const STEP_WAIT: f64 = 3.4;
/// Clocks for which an instruction that stores keeps a compute unit's path to memory, per 64 lanes, whatever it stores. Fitted;
/// products of depth 1, which do little else, take 45 to 50 on gfx900, gfx906 and gfx90a, memory's own time included.
const STORE: f64 = 20.0;
/// That many times as long where a lane stores less than four bytes. Fitted.
const NARROW: f64 = 2.0;
/// Share of L2's best rate that reads of tiles get: rows of a power of two meet in few channels. Fitted.
const L2_REACHED: f64 = 0.945;
/// What is busy most of the time delays what is about as busy: requests queue, and workgroups that began together load and
/// store together. The limits of compute units, L2 and memory are put together by this power; none would see the others with an
/// infinite one. Fitted.
const QUEUED: f64 = 2.8;
/// The same of a workgroup that is alone: nobody multiplies while its waves read. Products of f64 on gfx908, which multiply about as long
/// as they read LDS, take 2450 clocks a round alone, 4400 two of them. Fitted.
const ALONE: f64 = 4.0;
/// Clocks that an instruction of 64 lanes which writes to LDS keeps the port of its pair of SIMDs: these, and as many again for each four bytes
/// of a lane (rocprofiler-compute: four bytes a lane take 8 clocks, sixteen 20).
const LDS_WRITE: f64 = 4.0;
/// Ports of a compute unit to LDS that may be written through at once.
const PORTS: f64 = 2.0;
/// Clocks in which a compute unit takes the 64 addresses of an instruction (rocprofiler-compute: sixteen a clock).
const ADDRESSES: f64 = 4.0;
/// Clocks of a last round that is not whole, besides its loads: it is not on its way while another is multiplied. Fitted.
const LAST_ROUND: f64 = 400.0;
/// Registers besides accumulators, fragments and tiles on their way. Fitted.
const REGISTERS: f64 = 13.0;

/// What a workgroup runs on: a compute unit, or both of a work group processor.
struct Place {
    /// Compute units in it.
    cus: f64,
    simds: f64,
    lds_bytes: f64,
    lds_bytes_clk: f64,
}

impl Place {
    fn of(chip: &Chip) -> Place {
        let info = chip.target.info();
        let cus = if info.has(Quirk::WgpMode) { 2.0 } else { 1.0 };
        Place {
            cus,
            simds: f64::from(info.simds) * cus,
            lds_bytes: f64::from(info.lds_bytes) * cus,
            lds_bytes_clk: chip.lds_bytes_clk * cus,
        }
    }
}

/// How far the code of a kernel is from what [`Gemm`] describes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Code {
    /// Times that its multiplications take of what [`Gemm::rate`] says: other instructions stand between them.
    pub pace: f64,
    /// Latencies of memory that a workgroup waits in each round besides what [`Gemm::prefetch`] leaves of one.
    pub waits: f64,
    /// Times that L2 and memory take of what they need for it.
    pub traffic: f64,
}

impl Code {
    /// As described.
    pub const IDEAL: Code = Code { pace: 1.0, waits: 0.0, traffic: 1.0 };
}

/// What the clocks of a product are made of, whatever its kernel's code is like.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Clocks in which a round is multiplied, by the whole place and by the SIMDs that one workgroup has waves on.
    work: [f64; 2],
    /// Clocks of a round's traffic with LDS and with the first-level cache, and the least for the steps' operands to come.
    lds: f64,
    l1: f64,
    answers: f64,
    /// Clocks of a round alone that nothing hides, those that memory's latency leaves of it at least, and a latency.
    exposed: f64,
    least: f64,
    latency: f64,
    /// [`Loops`], whose rounds the code decides.
    loops: Loops,
    /// Clocks until the first round, of the traffic with L2 and memory, and in which the waves begin.
    first: f64,
    dram: f64,
    l2: f64,
    dispatch: f64,
    tiles_per_cu: f64,
}

impl Parts {
    /// Clocks of a kernel with such code.
    pub fn clocks(&self, code: Code) -> Clocks {
        let [all, own] = self.work.map(|work| work * code.pace);
        let busy = all.max(self.lds).max(self.l1);
        let own = together([own, self.lds, self.l1, self.answers], ALONE) + self.exposed;
        let alone = own.max(self.least) + self.latency * code.waits;
        let compute = Loops { busy, alone, ..self.loops }.clocks();
        let (dram, l2) = (self.dram * code.traffic, self.l2 * code.traffic);
        let total = queued([compute, dram + self.first, l2 + self.first, self.dispatch + self.first]);
        Clocks { total, compute, dram, l2, tiles_per_cu: self.tiles_per_cu, occupancy: self.loops.occupancy }
    }
}

/// Clocks that a product takes, and its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clocks {
    /// All of it, without the cost of a launch.
    pub total: f64,
    /// The compute units alone.
    pub compute: f64,
    /// Memory alone, with the memory-side cache.
    pub dram: f64,
    /// L2 alone.
    pub l2: f64,
    /// Tiles over compute units.
    pub tiles_per_cu: f64,
    /// Workgroups of a compute unit at once.
    pub occupancy: f64,
}

impl Gemm {
    /// Rows, columns, depth and batch.
    pub fn size(&self) -> [f64; 4] {
        [self.m, self.n, self.k, self.batch]
    }

    fn waves(&self, wave: f64) -> f64 {
        let threads = self.threads.0 * self.threads.1 * self.threads.2;
        (threads / wave.min(threads)).max(1.0)
    }

    /// Clocks that the busiest compute unit (or work group processor) multiplies at the kernel's rate: no device of `cus` of them is
    /// quicker.
    pub fn least(&self, target: Target, cus: f64) -> f64 {
        let together = if target.info().has(Quirk::WgpMode) { 2.0 } else { 1.0 };
        let split = self.split.max(1.0);
        let tiles = (self.m / self.tile.0).ceil() * (self.n / self.tile.1).ceil() * self.batch * split;
        let work = 2.0 * self.tile.0 * self.tile.1 * (self.k / split).ceil();
        (tiles * together / cus).ceil() * work / (self.rate * together)
    }

    /// Elements of A and B that the waves of a workgroup read from LDS for each k.
    fn local_reads(&self, wave: f64) -> f64 {
        match self.matrix {
            None => (self.tile.0 / self.threads.0 + self.tile.1 / self.threads.1) * self.threads.0 * self.threads.1,
            Some([rows, columns, ..]) => {
                // The most square part of the tile for each wave.
                let waves = self.waves(wave);
                let mut best = self.tile.0 + self.tile.1;
                let mut found = f64::MAX;
                let mut down = 1.0;
                while down <= waves {
                    let (a, b) = (self.tile.0 / down, self.tile.1 / (waves / down));
                    if a >= rows * 0.99 && b >= columns * 0.99 && a + b < found {
                        (found, best) = (a + b, a + b);
                    }
                    down *= 2.0;
                }
                best * waves
            }
        }
    }

    /// Workgroups that a place holds, by registers and LDS.
    fn occupancy(&self, chip: &Chip, place: &Place, wave: f64) -> f64 {
        let info = chip.target.info();
        let threads = self.threads.0 * self.threads.1 * self.threads.2;
        let reads = self.local_reads(wave);
        let dwords = |elements: f64| elements * self.bytes.0 / 4.0 / threads;
        let steps = self.matrix.map_or(1.0, |m| m[2]);
        let fragment = dwords(reads * steps) * if self.local_prefetch { 2.0 } else { 1.0 };
        let loads = dwords((self.tile.0 + self.tile.1) * self.depth) * self.prefetch.min(1.0);
        let sums = self.tile.0 * self.tile.1 * self.bytes.2 / 4.0 / threads;
        let other = REGISTERS + fragment + loads;
        let own_file = self.matrix.is_some() && info.max_agprs > 0 && !info.unified_agprs;
        let registers = if own_file { sums.max(other) } else { sums + other };
        let by_registers = (f64::from(info.vgprs_per_simd) / registers).floor().clamp(1.0, f64::from(info.max_waves));
        let lds = (self.tile.0 + self.tile.1) * self.depth * self.bytes.0 * if self.prefetch > 0.0 { 2.0 } else { 1.0 };
        let by_lds = (place.lds_bytes / lds).floor();
        (by_registers * place.simds / self.waves(wave)).floor().min(by_lds).max(1.0)
    }

    /// Clocks on a chip with `cus` compute units.
    pub fn clocks(&self, chip: &Chip, cus: f64) -> Clocks {
        self.parts(chip, cus).clocks(Code::IDEAL)
    }

    /// What its clocks are made of on a chip with `cus` compute units.
    pub fn parts(&self, chip: &Chip, cus: f64) -> Parts {
        let place = Place::of(chip);
        let wave = f64::from(chip.target.info().wave_size);
        let rate = self.rate * place.cus;
        let waves = self.waves(wave);
        let split = self.split.max(1.0);
        let tiles = (self.m / self.tile.0).ceil() * (self.n / self.tile.1).ceil() * self.batch * split;
        let k = (self.k / split).ceil();
        let rounds = (k / self.depth).ceil().max(1.0);
        let (element, stored, _) = self.bytes;
        let work = 2.0 * self.tile.0 * self.tile.1 * self.depth;
        let loaded = (self.tile.0 + self.tile.1 * self.spread) * element;
        let along = |side: usize| if self.along_depth[side] { 1.0 } else { 0.0 };
        let elements = match self.matrix.is_some() {
            true => 1.0 + chip.lds_gathers * (1.0 - (along(0) + along(1)) / 2.0) * (4.0 / element - 1.0).max(0.0),
            false => 1.0,
        };
        let reads = self.local_reads(wave) * self.depth * element * elements;
        // What a lane has loaded with one instruction it writes with one.
        let dwords = (self.load_width * element / 4.0).max(1.0);
        let writes = (self.tile.0 + self.tile.1) * self.depth / self.load_width / 64.0;
        let lds = reads / place.lds_bytes_clk + writes * LDS_WRITE * (1.0 + dwords) / (PORTS * place.cus);
        let l1 = loaded * self.depth / (chip.l1_bytes_clk * place.cus);
        // Dot products of bytes take four of them in a step.
        let vector_step = if element < 2.0 { 4.0 } else { 1.0 };
        let steps = self.depth / self.matrix.map_or(vector_step, |m| m[2].max(1.0)) / self.threads.2;
        let answers = steps * chip.lds_latency;
        let (answers, exposed) = if self.local_prefetch { (answers * STEP, 0.0) } else { (0.0, answers * STEP_WAIT) };
        let latency = (chip.dram + chip.vmem_cold + chip.vmem_crowd / 2.0) / 2.0;
        let (least, waited) = match self.prefetch > 0.0 {
            true => (latency * EXPOSED / self.prefetch.max(1.0), 0.0),
            false => (0.0, latency),
        };
        let reads_c = if self.reads_c { 1.0 } else { 0.0 };
        let narrow = if stored * self.store_width < 4.0 { NARROW } else { 1.0 };
        let store = self.tile.0 * self.tile.1 / self.store_width / 64.0 * (narrow + reads_c) * STORE / place.cus;
        let ends = PROLOGUE + latency + EPILOGUE + latency * reads_c;
        // Where k ends within a round, what lies along it is loaded element by element, and narrow elements are put together.
        let last = match k % self.depth > 0.0 {
            true => {
                let single = (4.0 / element).max(1.0);
                let loads = |side: usize, rows: f64| {
                    rows * self.depth / 64.0 * if self.along_depth[side] { single } else { 1.0 / self.load_width }
                };
                LAST_ROUND + (loads(0, self.tile.0) + loads(1, self.tile.1)) * ADDRESSES / place.cus
            }
            false => 0.0,
        };
        let occupancy = self.occupancy(chip, &place, wave);
        let most = (tiles * place.cus / cus).ceil();
        let loops = Loops { most, occupancy, rounds, busy: 0.0, alone: 0.0, around: store + last, ends };
        let stores = self.m * self.n * stored * self.batch * split;
        let matrices = (self.m * self.k + self.k * self.n) * element * self.batch + stores * (1.0 + reads_c);
        let moved = self.moved.unwrap_or(matrices);
        let kept = if self.warm { chip.kept(moved / split / (1.0 + reads_c)) } else { 0.0 };
        // A device with fewer compute units than the chip has all of its memory: MI300A (228 of 304) and MI308X (80) have the 5.3 TB/s of
        // MI300X, MI210 (104 of 110) has the 1.6 of a die of MI250X.
        let stay = if self.single && !self.warm && chip.mall_writes > 0.0 { stores * chip.kept(moved) } else { 0.0 };
        let from_memory = (moved * (1.0 - kept) - stay) / chip.dram_bytes_clk();
        let from_mall = if kept > 0.0 || stay > 0.0 { moved / chip.mall_bytes_clk } else { 0.0 };
        let dram = from_memory.max(from_mall);
        let l2 = tiles * loaded * k / (chip.l2_bytes_clk * chip.l2_share * L2_REACHED);
        Parts {
            work: [work / rate, work / (rate * (waves / place.simds).min(1.0))],
            lds,
            l1,
            answers,
            exposed: SYNC + exposed + waited,
            least,
            latency,
            loops,
            first: PROLOGUE + latency,
            dram,
            l2,
            dispatch: chip.dispatch(tiles * waves, cus),
            tiles_per_cu: tiles / cus,
        }
    }
}

/// The workgroups of the busiest compute unit, each of which goes through a loop.
#[derive(Clone, Copy, Debug)]
pub struct Loops {
    /// How many workgroups.
    pub most: f64,
    /// How many of them at once.
    pub occupancy: f64,
    /// Rounds of the loop.
    pub rounds: f64,
    /// Clocks that a round keeps the compute unit busy.
    pub busy: f64,
    /// Clocks of a round of a workgroup that is alone there.
    pub alone: f64,
    /// Clocks that what is before and behind the loop keeps the compute unit busy.
    pub around: f64,
    /// Clocks from the beginning to the first round, and from the last one to the end.
    pub ends: f64,
}

impl Loops {
    /// Clocks of all of them: others run while one waits, but for those that begin and end together.
    pub fn clocks(&self) -> f64 {
        let together = self.most * (self.rounds * self.busy + self.around) + self.ends;
        let apart = (self.most / self.occupancy).ceil() * (self.ends + self.rounds * self.alone + self.around);
        together.max(apart)
    }

    /// The same where they begin in rounds of as many as there are at once: those of the last round, if it has fewer, have nobody
    /// beside them. They drift apart on the way, and begin when the first one before them ends: `seen` of what that costs them is seen.
    pub fn in_rounds(&self, seen: f64) -> f64 {
        let each = self.rounds * self.busy + self.around;
        let alone = self.ends + self.rounds * self.alone + self.around;
        let of = |n: f64| (n * each + self.ends).max(alone);
        let full = (self.most / self.occupancy).floor();
        let rest = self.most - full * self.occupancy;
        if full < 1.0 {
            return of(rest);
        }
        let (first, further) = (of(self.occupancy), (self.occupancy * each).max(alone));
        let last = if rest > 0.0 { (of(rest) - (first - further)).max(0.0) } else { 0.0 };
        let beside = (rest * each).min(last);
        first + (full - 1.0) * further + beside + (last - beside) * seen
    }
}

/// Clocks of what takes so long by several limits, each alone: those that are about as long delay each other.
pub fn queued<const N: usize>(limits: [f64; N]) -> f64 {
    together(limits, QUEUED)
}

/// Several limits put together by a power: the longest, and more of the others the smaller the power is.
pub fn together<const N: usize>(limits: [f64; N], power: f64) -> f64 {
    let most = limits.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    most * limits.iter().map(|l| (l / most).powf(power)).sum::<f64>().powf(1.0 / power)
}

/// Floating-point operations (or integer ones) of a compute unit in a clock for an element type: the best instruction that
/// the target has.
pub fn rate(target: Target, dtype: &str) -> Option<f64> {
    let vector = vector_rate(target, dtype)?;
    let own = matrix(target, dtype).map_or(vector, |m| m.0.max(vector));
    // Bytes hold integers of 4 bits, too.
    Some(if dtype == "i4" { own.max(rate(target, "i8")?) } else { own })
}

/// Rows, columns, depth and blocks of the best matrix instruction, where it is quicker than vector instructions.
pub fn usual_matrix(target: Target, dtype: &str) -> Option<[f64; 4]> {
    let (rate, shape) = matrix(target, dtype)?;
    (rate > vector_rate(target, dtype)?).then_some(shape)
}

/// Operations in a clock and the shape of the quickest matrix instruction, of equals the one with the smallest tile, of these the deepest: rates follow
/// from shapes and passes in the instruction tables.
pub fn matrix(target: Target, dtype: &str) -> Option<(f64, [f64; 4])> {
    let suffix: &[&str] = match dtype {
        "f16" => &["_f16", "f16"],
        "bf16" => &["_bf16", "bf16_1k", "bf16"],
        "i8" => &["_i8", "i8", "_iu8"],
        "i4" => &["_iu4"],
        "f32" => &["_f32", "f32"],
        "xf32" => &["_xf32"],
        "f64" => &["f64"],
        "fp8" => &["_fp8_fp8", "x64_f8f6f4", "x128_f8f6f4"],
        "fp4" => &["x64_f8f6f4", "x128_f8f6f4"],
        _ => return None,
    };
    // Of several types of what is multiplied the ones that modifiers name: without them those of eight bits.
    let format = Elem::Fp4.format().filter(|_| dtype == "fp4").unwrap_or(0);
    let mods = || Mods::new().with(ModName::Cbsz, format).with(ModName::Blgp, format);
    let all = (0..Op::COUNT as u16).map(Op).filter_map(|op| {
        let info = target.op(op).filter(|i| i.flags.has(Flags::MATRIX) && i.busy > 0)?;
        let dense = !["smfmac", "swmmac", "scale"].iter().any(|other| info.name.contains(other));
        let fits =
            dense && suffix.iter().any(|s| info.name.ends_with(s)) && !(dtype == "f32" && info.name.contains("xf32"));
        let shape =
            barewave_isa::matrix::MatrixOp::of(target, op, target.info().wave_size as usize).filter(|_| fits)?.shape;
        let shape = [shape.m, shape.n, shape.k, shape.blocks].map(|x| x as f64);
        let product = 2.0 * shape.iter().product::<f64>();
        let passes = target.passes(&Inst { mods: mods(), ..Inst::new(op, &[], &[]) }).map_or(0, |p| u16::from(p) * 4);
        Some((product / f64::from(info.busy.max(passes)) * f64::from(target.info().simds), shape))
    });
    let tile = |s: &[f64; 4]| s[0] * s[1] * s[3];
    all.max_by(|a, b| a.0.total_cmp(&b.0).then(tile(&b.1).total_cmp(&tile(&a.1))).then(a.1[2].total_cmp(&b.1[2])))
}

/// Operations of a compute unit in a clock with vector instructions of one multiply-add a lane.
pub(crate) fn multiply_add_rate(target: Target) -> f64 {
    let info = target.info();
    2.0 * if info.simds == 4 { 16.0 } else { 32.0 } * f64::from(info.simds)
}

/// With vector instructions: a multiply-add a lane, two in packed and dual-issue ones, four in dot products of bytes, eight in those of 4 bits.
fn vector_rate(target: Target, dtype: &str) -> Option<f64> {
    let info = target.info();
    let dual = if info.wmma.is_some() { 2.0 } else { 1.0 };
    let packed = if info.unified_agprs { 2.0 } else { 1.0 };
    let vector = multiply_add_rate(target);
    let has = |ops: &[Op]| ops.iter().any(|o| target.op(*o).is_some());
    Some(match dtype {
        "f32" => vector * dual * packed,
        "f16" if has(&[op::V_PK_FMA_F16, op::V_DOT2_F32_F16]) => vector * 2.0,
        // Clocks that a wave's multiply-add takes: 64 on gfx803 and gfx900, 8 on gfx906 and gfx908, 4 on gfx90a.
        "f64" => {
            let busy = target.op(op::V_FMA_F64).filter(|i| i.busy > 0)?.busy;
            2.0 * f64::from(info.wave_size) / f64::from(busy) * f64::from(info.simds)
        }
        "i8" if has(&[op::V_DOT4_I32_I8, op::V_DOT4_I32_IU8]) => vector * 4.0,
        "i4" if has(&[op::V_DOT8_I32_I4, op::V_DOT8_I32_IU4]) => vector * 8.0,
        // As bytes.
        "i4" => vector_rate(target, "i8")?,
        "f16" | "bf16" | "xf32" | "i8" | "i32" | "fp8" | "fp4" => vector,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(k: f64) -> Gemm {
        Gemm {
            m: 4096.0,
            n: 4096.0,
            k,
            batch: 1.0,
            tile: (128.0, 128.0),
            depth: 16.0,
            threads: (16.0, 16.0, 1.0),
            matrix: None,
            split: 1.0,
            prefetch: 1.0,
            local_prefetch: true,
            bytes: (4.0, 4.0, 4.0),
            along_depth: [true, true],
            load_width: 4.0,
            store_width: 4.0,
            reads_c: false,
            warm: false,
            single: false,
            rate: 128.0,
            moved: None,
            spread: 1.0,
        }
    }

    fn clocks(gemm: &Gemm) -> f64 {
        gemm.clocks(&Chip::of(Target::GFX906).unwrap(), 64.0).total
    }

    #[test]
    fn the_quickest_instruction_for_floats_of_eight_bits_is_counted() {
        // 5.03 PFLOPS of 256 compute units at 2.4 GHz (MI355X), 2.61 of 304 at 2.1 GHz (MI300X), 389 TFLOPS of 64 at 2.97 GHz.
        assert_eq!(rate(Target::GFX950, "fp8"), Some(8192.0));
        assert_eq!(rate(Target::GFX942, "fp8"), Some(4096.0));
        assert_eq!(rate(Target::GFX1201, "fp8"), Some(2048.0));
    }

    #[test]
    fn narrow_loads_are_written_to_lds_slowly() {
        let small = |load_width| Gemm {
            tile: (32.0, 32.0),
            depth: 32.0,
            threads: (16.0, 4.0, 1.0),
            matrix: Some([32.0, 32.0, 8.0, 1.0]),
            bytes: (2.0, 2.0, 4.0),
            rate: 1024.0,
            load_width,
            ..product(1024.0)
        };
        let clocks = |load_width| small(load_width).clocks(&Chip::of(Target::GFX908).unwrap(), 120.0).compute;
        assert!(clocks(1.0) > 1.5 * clocks(8.0), "{} {}", clocks(1.0), clocks(8.0));
    }

    #[test]
    fn what_one_launch_stores_stays_where_the_memory_side_cache_takes_it() {
        let dram = |target, single| {
            let shallow = Gemm { single, ..product(32.0) };
            shallow.clocks(&Chip::of(target).unwrap(), 80.0).dram
        };
        assert!(dram(Target::GFX1030, true) < 0.5 * dram(Target::GFX1030, false));
        assert_eq!(dram(Target::GFX942, true), dram(Target::GFX942, false));
    }

    #[test]
    fn memory_moves_what_there_is_and_l2_whole_lines() {
        let of = |moved, spread| {
            let Clocks { dram, l2, .. } =
                Gemm { moved, spread, ..product(64.0) }.clocks(&Chip::of(Target::GFX906).unwrap(), 64.0);
            [dram, l2]
        };
        let ([dram, l2], [less, more]) = (of(None, 1.0), of(Some(1e6), 3.0));
        assert!(less < dram && (more / l2 - 2.0).abs() < 1e-9, "{dram} {less} {l2} {more}");
    }

    #[test]
    fn a_depth_that_ends_within_a_round_loads_element_by_element() {
        let along = clocks(&product(1000.0)) - clocks(&product(1008.0));
        let across = Gemm { along_depth: [false, false], ..product(1000.0) };
        assert!(along > 0.0, "{along}");
        assert!(clocks(&across) < clocks(&product(1000.0)));
    }
}
