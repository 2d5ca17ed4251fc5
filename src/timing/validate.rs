//! The model beside measured matrix products: rocBLAS's tuning tables.
//!
//! A row of rocBLAS's tables has the parameters of the kernel that won: the model's loop is made from these ([`crate::gemm`]),
//! not from a kernel of ours. What a measured time contains besides the kernel depends on how the table was made: the cost of
//! a launch, the clock, whether C was read. These are properties of the tuning runs, not of the chips: rocBLAS has a file for
//! each chip, layout and types, which was tuned on its own, over several lists of sizes ([`Sizes`]). They stand in `isa/latency/campaigns.csv` and were fitted on the
//! rows of each file ([`fit`]). Rows of a file that is not there take the chip's own constants.

use crate::chip::Chip;
use crate::gemm::Gemm;
use crate::table::{Line, Table, TableError};
use barewave_isa::Target;
use std::collections::BTreeMap;

/// How many tiles a compute unit has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bucket {
    /// Less than one.
    Under1,
    /// One to two.
    To2,
    /// More than two.
    Over2,
}

impl Bucket {
    /// By tiles per compute unit.
    pub fn of(tiles: f64) -> Bucket {
        match () {
            () if tiles < 1.0 => Bucket::Under1,
            () if tiles <= 2.0 => Bucket::To2,
            () => Bucket::Over2,
        }
    }
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Bucket::Under1 => "under1",
            Bucket::To2 => "1to2",
            Bucket::Over2 => "over2",
        }
    }
}

/// A measured matrix product with its kernel.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the chip as the table has it.
    pub chip: String,
    /// Element type of A and B.
    pub dtype: String,
    /// Element type of C.
    pub out: String,
    /// Element type of sums where the table says it.
    pub compute: String,
    /// Target.
    pub target: Target,
    /// Compute units.
    pub cus: f64,
    /// Whether A and B lie transposed in memory, which is column by column.
    pub transposed: [bool; 2],
    /// The product and its kernel.
    pub gemm: Gemm,
    /// Given in percent of the cycle peak (else in GFLOPS).
    pub percent: bool,
    /// By what share of it half of the table's third decimal changes a percentage.
    pub rounded: f64,
    /// Floating-point operations over what was measured: clocks for rows in percent, seconds for the others.
    pub measured: f64,
}

/// Chips as the tables name them: target and compute units.
fn chip(name: &str) -> Option<(Target, f64)> {
    let (target, cus) = match name {
        "gfx90a" => ("gfx90a", 110.0),
        "gfx90a-104cu" => ("gfx90a", 104.0),
        "gfx90a-120cu" => ("gfx908", 120.0),
        "gfx940" => ("mi300a", 228.0),
        "gfx942-80cu" => ("gfx942", 80.0),
        "gfx942-228cu" => ("mi300a", 228.0),
        "gfx942-mi300x" => ("gfx942", 304.0),
        other => (other, 0.0),
    };
    let target = Target::parse(target).ok()?;
    let own = Chip::of(target)?;
    Some((target, if cus > 0.0 { cus } else { own.cus }))
}

/// The chip that a row was measured on, by the name it has here. Rows of bf16 of gfx90a whose matrix instruction runs there at half the rate are
/// gfx908's: their tiles are cut for its 120 compute units, and with 110 some would have needed more than the peak. Files of 16-bit types of
/// gfx942 whose A is transposed are of a device with 228 compute units (MI300A): with 304, as the other files have, six of 33 rows looked at
/// were quicker than the peak, with 228 two are, and the median error of each file falls, from 10 to 48% to 0 to 22%. So are those of f64, of
/// which, with 304, seven of 83 rows of few tiles were quicker than the peak, and with 228 none. Other files fit 304 or either.
fn measured_on<'n>(name: &'n str, dtype: &str, layout: &str, matrix: Option<[f64; 4]>) -> &'n str {
    match (name, dtype, matrix) {
        ("gfx90a", "bf16", Some([32.0, _, 4.0, 1.0] | [16.0, _, 8.0, _] | [_, _, 2.0, _])) => "gfx90a-120cu",
        ("gfx942", "f16" | "bf16", _) if layout.starts_with('T') => "gfx942-228cu",
        ("gfx942", "f64", _) => "gfx942-228cu",
        _ => name,
    }
}

/// The type that matrix instructions take elements as, by their shape. Rows of f32 on gfx942 whose depth is twice that of f32's (32x32x4, 16x16x8)
/// were multiplied as xf32, with 10 bits of mantissa, at four times the rate: no kernel of f32 is compared with them.
fn multiplied_as<'n>(name: &str, dtype: &'n str, matrix: Option<[f64; 4]>) -> &'n str {
    let xf32 = name.starts_with("gfx94") && matches!(matrix, Some([32.0, _, 4.0, _] | [16.0, _, 8.0, _]));
    if dtype == "f32" && xf32 { "xf32" } else { dtype }
}

/// By how much throughputs of a file are too small. That of f16 with results of f32, neither operand transposed, of gfx90a-104cu is in TFLOPS, not
/// GFLOPS, of both dies of an MI250 together: all of its 192 rows are 320 to 390 times less than modelled.
fn understated(name: &str, dtype: &str, out: &str, layout: &str, percent: bool) -> f64 {
    match (name, dtype, out, layout, percent) {
        ("gfx90a-104cu", "f16", "f32", "NN", false) => 1000.0 / 2.0,
        _ => 1.0,
    }
}

/// Operations of a compute unit in a clock: what the table's percentages refer to, and what the kernel's instructions do.
/// The matrix rates follow from shapes and passes in AMD's matrix instruction calculator; f16 with sums in f32 is a
/// multiply-add a lane (v_fma_mix_f32, v_mad_mix_f32) where there is no dot product.
fn rates(target: &str, dtype: &str, matrix: Option<[f64; 4]>, wide_sums: bool) -> Option<(f64, f64)> {
    let with = matrix.is_some();
    let pick = |matrix: f64, vector: f64| if with { matrix } else { vector };
    Some(match (target, dtype) {
        ("gfx942", "xf32") => (1024.0, 1024.0),
        ("gfx803" | "gfx900" | "gfx906" | "gfx1030", "f32") => (128.0, 128.0),
        ("gfx900" | "gfx906", "f16") if wide_sums => (256.0, 128.0),
        ("gfx900" | "gfx906" | "gfx1030", "f16") => (256.0, 256.0),
        ("gfx906", "f64") => (64.0, 64.0),
        ("gfx906", "i8x4") | ("gfx1030", "i8") => (512.0, 512.0),
        ("gfx908", "f32") => (256.0, pick(256.0, 128.0)),
        ("gfx908", "f16") => (1024.0, pick(1024.0, 128.0)),
        ("gfx908", "bf16") => (512.0, 512.0),
        ("gfx908", "i8") => (1024.0, 1024.0),
        ("gfx908", "f64") => (64.0, 64.0),
        ("gfx90a", "f32") => (256.0, pick(256.0, 128.0)),
        ("gfx90a", "f16") => (pick(1024.0, 256.0), pick(1024.0, 128.0)),
        ("gfx90a", "bf16") => (1024.0, 1024.0),
        ("gfx90a", "i8") => (1024.0, 1024.0),
        ("gfx90a", "i8x4") => (512.0, 512.0),
        ("gfx90a", "f64") => (256.0, pick(256.0, 128.0)),
        ("gfx942", "f32") => (256.0, pick(256.0, 128.0)),
        ("gfx942", "f16" | "bf16") => (2048.0, 2048.0),
        ("gfx942", "i8" | "fp8" | "bf8") => (4096.0, 4096.0),
        ("gfx942", "f64") => (256.0, 256.0),
        ("gfx1100" | "gfx1101" | "gfx1102", "f16" | "bf16" | "i8") => (512.0, 512.0),
        _ => return None,
    })
}

fn bytes(dtype: &str) -> f64 {
    match dtype {
        "f64" => 8.0,
        "f32" | "xf32" | "i32" => 4.0,
        "f16" | "bf16" => 2.0,
        _ => 1.0,
    }
}

/// Reads the rows of a table in the form of `gemm_rocblas.csv`. Rows of types that the model has no rates for, or without a
/// kernel's parameters, are counted in the second number.
pub fn rocblas(text: &str) -> Result<(Vec<Row>, usize), TableError> {
    let table = Table::new(text, &["gfx", "dtype", "M", "N", "K", "value", "unit", "MT0", "MT1", "DU", "MI", "WG"])?;
    let (mut rows, mut left_out) = (Vec::new(), 0);
    for line in table.lines() {
        let line = line?;
        match row(&line)? {
            Some(r) => rows.push(r),
            None => left_out += 1,
        }
    }
    Ok((rows, left_out))
}

fn row(line: &Line) -> Result<Option<Row>, TableError> {
    let (dtype, out) = (line.text("dtype"), line.text("out"));
    let shape = line.list("MI");
    let matrix = <[f64; 4]>::try_from(shape.get(..4).unwrap_or(&[])).ok();
    let dtype = multiplied_as(line.text("gfx"), dtype, matrix);
    let name = measured_on(line.text("gfx"), dtype, line.text("layout"), matrix);
    let Some((target, cus)) = chip(name) else { return Ok(None) };
    let wide_sums = line.text("compute") == "f32";
    let Some((peak, rate)) = rates(target.info().name, dtype, matrix, wide_sums) else { return Ok(None) };
    let threads = line.list("WG");
    let percent = line.text("unit") == "pct";
    let value = line.number("value", 0.0)? * understated(name, dtype, out, line.text("layout"), percent);
    let tile = (line.number("MT0", 0.0)?, line.number("MT1", 0.0)?);
    let kernel = tile.0 >= 1.0 && tile.1 >= 1.0 && threads.iter().all(|t| *t >= 1.0);
    let (&[a, b, c], true) = (&threads[..], value > 0.0 && kernel) else { return Ok(None) };
    let (m, n, k) = (line.extent("M", 0.0)?, line.extent("N", 0.0)?, line.extent("K", 0.0)?);
    let batch = line.extent("B", 1.0)?;
    let flops = 2.0 * m * n * k * batch;
    let stored = if out.is_empty() { dtype } else { out };
    // Dot products count depth in dwords.
    let per_dword = if dtype == "i8x4" { 4.0 } else { 1.0 };
    let half_sums = dtype == "f16" && matrix.is_none() && !wide_sums;
    let sums = match dtype {
        "f64" => 8.0,
        "f16" if half_sums => 2.0,
        _ => 4.0,
    };
    let layout = line.text("layout").as_bytes();
    let transposed = [0, 1].map(|i| layout.get(i) == Some(&b'T'));
    let loaded = line.number("GRVW", 1.0)?;
    let gemm = Gemm {
        m,
        n,
        k,
        batch,
        tile,
        depth: line.extent("DU", 8.0)? * per_dword,
        threads: (a, b, c),
        matrix,
        split: line.number("GSU", 1.0)?,
        prefetch: line.number("PGR", 1.0)?,
        local_prefetch: line.number("PLR", 1.0)? >= 1.0,
        bytes: (bytes(dtype), bytes(stored).max(if dtype == "i8x4" { 4.0 } else { 0.0 }), sums),
        // Columns lie one after the other.
        along_depth: [transposed[0], !transposed[1]],
        // Negative: the generator took the widest.
        load_width: if loaded < 1.0 { (16.0 / bytes(dtype)).max(1.0) } else { loaded },
        store_width: line.number("VW", 1.0)?.max(1.0),
        reads_c: false,
        warm: false,
        single: false,
        moved: None,
        spread: 1.0,
        rate,
    };
    let rounded = if percent { 0.0005 / value } else { 0.0 };
    let measured = if percent { flops / (value / 100.0 * peak * cus) } else { flops / (value * 1e9) };
    let [chip, dtype, out, compute] = [name, dtype, out, line.text("compute")].map(String::from);
    Ok(Some(Row { chip, dtype, out, compute, target, cus, transposed, gemm, percent, rounded, measured }))
}

/// How a table's times were taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Campaign {
    /// Clocks of a launch within each time.
    pub launch: f64,
    /// C was read.
    pub reads_c: bool,
    /// Operands stayed in the memory-side cache from one run to the next.
    pub warm: bool,
    /// Shader clock, MHz, for times that are given in seconds.
    pub mhz: f64,
    /// Share of the nominal clock that the chip ran at: below it under load; above it where percentages were taken of a lower one than the
    /// boost clock, which no chip exceeds.
    pub clock: f64,
    /// Share of memory's bandwidth that there was: boards at a low power level have less, and parts of a device.
    pub memory: f64,
}

const CAMPAIGNS: &str = include_str!("../../isa/latency/campaigns.csv");

/// What names a tuning run: chip, type, type of C, type of sums, layout, unit, and the list of sizes ([`Sizes`]).
pub type Run = [String; 7];

/// Known tuning runs.
pub type Campaigns = BTreeMap<Run, Campaign>;

/// The list of sizes that a row is of. Files of AMD's were merged from runs over several lists: where one run had another clock than
/// the next, rows contradict each other ([`crate::floor::contradictions`]). Five lists are recognized: four have rows and columns as
/// Tensile's range `[64, 64, 64, 6784]` gives them (start, step, what the step grows by, end), or up to four; in one the depths are
/// those of `[256, 1024, 1024, 3328]`, in the others 128, 32 and 1. The fifth has 304 products of any size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sizes {
    /// 256, 1280 and 3328 deep.
    Deep,
    /// 128 deep.
    Shallow,
    /// 32 deep.
    Thin,
    /// One deep.
    Outer,
    /// 304 products, one for each compute unit of MI300X. Those of 16-bit types that are looked at took 20 to 27 us, of 4x32x4 as of 64x128x64.
    Each,
    /// Any other list.
    Other,
}

impl Sizes {
    /// By rows, columns, depth and batch.
    pub fn of([m, n, k, batch]: [f64; 4]) -> Sizes {
        let ranged = |x: f64| x <= 4.0 || (0..=14).any(|i| x == f64::from(64 + 32 * i * (i + 1)));
        match (ranged(m) && ranged(n) && batch == 1.0, k as u64) {
            (true, 256 | 1280 | 3328) => Sizes::Deep,
            (true, 128) => Sizes::Shallow,
            (true, 32) => Sizes::Thin,
            (true, 1) => Sizes::Outer,
            _ if batch == 304.0 => Sizes::Each,
            _ => Sizes::Other,
        }
    }

    /// Name in `campaigns.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Sizes::Deep => "deep",
            Sizes::Shallow => "shallow",
            Sizes::Thin => "thin",
            Sizes::Outer => "outer",
            Sizes::Each => "each",
            Sizes::Other => "other",
        }
    }
}

/// Which tuning run a row is of.
pub fn campaign_key(row: &Row) -> Run {
    run_of(row, Sizes::of(row.gemm.size()))
}

fn run_of(row: &Row, sizes: Sizes) -> Run {
    let layout: String = row.transposed.iter().map(|t| if *t { 'T' } else { 'N' }).collect();
    let unit = if row.percent { "pct" } else { "gflops" };
    let [chip, dtype, out, compute] = [&row.chip, &row.dtype, &row.out, &row.compute].map(String::clone);
    // A file has both.
    let dtype = if dtype == "xf32" { "f32".to_string() } else { dtype };
    [chip, dtype, out, compute, layout, unit.to_string(), sizes.name().to_string()]
}

/// The tuning run of a row: that of its list of sizes, or else of its file's other rows.
pub fn campaign(known: &Campaigns, row: &Row) -> Option<Campaign> {
    known.get(&campaign_key(row)).or_else(|| known.get(&run_of(row, Sizes::Other))).copied()
}

/// The tuning runs that have been described.
pub fn campaigns() -> Campaigns {
    let mut out = BTreeMap::new();
    for line in CAMPAIGNS.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).skip(1) {
        let c: Vec<&str> = line.split(',').collect();
        if let [chip, dtype, to, compute, layout, unit, sizes, launch, reads_c, warm, mhz, clock, memory] = c[..] {
            let key = [chip, dtype, to, compute, layout, unit, sizes].map(str::to_string);
            let number = |t: &str| t.parse().unwrap_or(0.0);
            let (reads_c, warm) = (reads_c == "1", warm == "1");
            let [launch, mhz, clock, memory] = [launch, mhz, clock, memory].map(number);
            out.insert(key, Campaign { launch, reads_c, warm, mhz, clock, memory });
        }
    }
    out
}

/// Measured and modelled clocks of a row.
pub fn clocks(row: &Row, chip: &Chip, campaign: Campaign) -> (f64, f64) {
    let gemm = Gemm { reads_c: campaign.reads_c, warm: campaign.warm, ..row.gemm.clone() };
    let measured = if row.percent { row.measured } else { row.measured * campaign.mhz * 1e6 };
    let modelled = gemm.clocks(&as_run(row, chip, campaign), row.cus).total;
    (measured, chip.throttled(modelled / campaign.clock, row.cus) + campaign.launch)
}

/// A chip as it was in a row's tuning run. Memory keeps its own clock.
fn as_run(row: &Row, chip: &Chip, campaign: Campaign) -> Chip {
    let nominal = if row.percent { chip.boost_mhz } else { campaign.mhz };
    let mut chip = chip.clone();
    chip.boost_mhz = nominal * if row.percent { campaign.clock.min(1.0) } else { campaign.clock };
    chip.dram_gbs *= campaign.memory;
    chip
}

/// What the model does for tuning runs that nobody has described.
pub(crate) fn usual(chip: &Chip) -> Campaign {
    Campaign {
        launch: chip.launch_us * chip.boost_mhz,
        reads_c: false,
        warm: false,
        mhz: chip.sustained_mhz,
        clock: 1.0,
        memory: 1.0,
    }
}

/// Errors of a chip and type in a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// Chip as the table names it.
    pub chip: String,
    /// Element type.
    pub dtype: String,
    /// Tiles per compute unit.
    pub bucket: Bucket,
    /// Rows.
    pub rows: usize,
    /// Median of `|modelled / measured - 1|`.
    pub median: f64,
    /// Its ninth decile.
    pub p90: f64,
    /// Median of `modelled / measured - 1`.
    pub bias: f64,
    /// Median and ninth decile of the error that the nearest measured row makes ([`crate::floor`]), where that was asked for.
    pub nearest: Option<(f64, f64)>,
    /// Geometric mean of the vendor's time over the modelled time of our own best kernel, where that was asked for.
    pub ours_vs_vendor: Option<f64>,
}

/// The value below which a share of a list in rising order lies; NaN of an empty one.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((n as f64 * share) as usize).min(n - 1)],
    }
}

/// Errors from signed relative ones.
pub fn errors(chip: &str, dtype: &str, bucket: Bucket, mut signed: Vec<f64>) -> Errors {
    signed.sort_by(f64::total_cmp);
    let mut size: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
    size.sort_by(f64::total_cmp);
    Errors {
        chip: chip.into(),
        dtype: dtype.into(),
        bucket,
        rows: signed.len(),
        median: quantile(&size, 0.5),
        p90: quantile(&size, 0.9),
        bias: quantile(&signed, 0.5),
        nearest: None,
        ours_vs_vendor: None,
    }
}

impl Row {
    /// The product that the row was measured on, as far as its compute units tell.
    pub fn device(&self) -> Target {
        self.target.of_units(self.cus as u32)
    }

    /// The row's kernel sums in 16 bits, as packed instructions of f16 do at twice the rate of those that sum in 32.
    pub fn has_half_sums(&self) -> bool {
        self.gemm.bytes.2 < 4.0
    }

    /// Tiles over compute units, without splits of the depth.
    pub fn bucket(&self) -> Bucket {
        let g = &self.gemm;
        Bucket::of((g.m / g.tile.0).ceil() * (g.n / g.tile.1).ceil() * g.batch / self.cus)
    }

    /// What was measured, in microseconds: as the table has it, with what a launch cost in its tuning run. Percentages are
    /// of the boost clock.
    pub fn microseconds(&self) -> Option<f64> {
        let scale = if self.percent { Chip::of(self.target)?.boost_mhz } else { 1e-6 };
        Some(self.measured / scale)
    }

    /// How the row's tuning run was, and its chip, as far as these are known.
    fn run(&self) -> Option<(Campaign, Chip)> {
        let chip = Chip::of(self.target)?;
        Some((campaign(&campaigns(), self).unwrap_or_else(|| usual(&chip)), chip))
    }

    /// The chip at the clock of the row's tuning run, and with the share of memory's bandwidth that there was.
    pub fn chip(&self) -> Option<Chip> {
        let (campaign, _) = self.run()?;
        Some(as_run(self, &Chip::of(self.device())?, campaign))
    }

    /// The vendor's measured clocks over those that other code takes by the model on [that chip](Row::chip), `clocks` without a launch, and
    /// `repeated` where the same launches ran before: as the row's tuning run did it. Its launch and its clock are added.
    pub fn vendor_over(&self, clocks: f64, repeated: f64) -> Option<f64> {
        let (campaign, chip) = self.run()?;
        let clocks = if campaign.warm { repeated } else { clocks };
        let (measured, _) = self::clocks(self, &chip, campaign);
        Some(measured / (chip.throttled(clocks / campaign.clock, self.cus) + campaign.launch))
    }
}

/// Compares rows with the model, by chip, type and bucket. `known` are the tuning runs that rows may be of.
pub fn compare(rows: &[Row], known: &Campaigns) -> Vec<Errors> {
    let mut by: BTreeMap<(&str, &str, Bucket), Vec<f64>> = BTreeMap::new();
    let mut chips: BTreeMap<&str, Chip> = BTreeMap::new();
    for row in rows {
        let Some(own) = Chip::of(row.target) else { continue };
        let chip = chips.entry(&row.chip).or_insert(own);
        let campaign = campaign(known, row).unwrap_or_else(|| usual(chip));
        let (measured, modelled) = clocks(row, chip, campaign);
        by.entry((&row.chip, &row.dtype, row.bucket())).or_default().push(modelled / measured - 1.0);
    }
    by.into_iter().map(|((chip, dtype, bucket), e)| errors(chip, dtype, bucket, e)).collect()
}

/// Two halves of a table: rows of one size fall into the same. What is fitted on the first is judged by the second.
pub fn halves(rows: Vec<Row>) -> (Vec<Row>, Vec<Row>) {
    rows.into_iter().partition(|r| hash(&r.gemm.size()).is_multiple_of(2))
}

/// A number that deals sizes out (FNV-1a).
pub(crate) fn hash(size: &[f64; 4]) -> u64 {
    let mix = size.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, x| (h ^ *x as u64).wrapping_mul(0x0000_0100_0000_01b3));
    mix >> 32
}

/// Clocks of measured times that tell of the launch: longer ones hardly do.
const SHORT: f64 = 100_000.0;

/// Shares of the nominal clock that [`fit`] tries, in fiftieths.
const CLOCKS: std::ops::RangeInclusive<u32> = 30..=60;

/// What errors of a bucket count: the model is to be within a fifth below two tiles per compute unit, and within 8% above.
const WEIGHTS: [f64; 3] = [1.0, 1.0, 2.5];

/// Shares of memory's bandwidth that [`fit`] tries: those of Vega's power levels (945, 500 and 167 MHz). And what an error with less
/// than all of it counts: it has to explain much.
const MEMORY: [f64; 3] = [1.0, 0.53, 0.177];
const LESS_MEMORY: f64 = 1.15;

/// Rows of a list of sizes that tell of a tuning run of its own; fewer belong to the rest of their file, and a rest of fewer than that
/// is told by all of it.
const ENOUGH: usize = 12;
/// The same of lists whose rows all take about as long ([`Sizes::Each`]).
const ENOUGH_ALIKE: usize = 8;

fn enough(run: &Run) -> usize {
    if run[6] == Sizes::Each.name() { ENOUGH_ALIKE } else { ENOUGH }
}

/// The rows that each tuning run is told by.
fn runs(rows: &[Row]) -> BTreeMap<Run, Vec<&Row>> {
    let mut runs: BTreeMap<Run, Vec<&Row>> = BTreeMap::new();
    let mut files: BTreeMap<Run, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        runs.entry(campaign_key(row)).or_default().push(row);
        files.entry(run_of(row, Sizes::Other)).or_default().push(row);
    }
    let other = Sizes::Other.name();
    let (mut runs, few): (BTreeMap<_, _>, BTreeMap<_, _>) =
        runs.into_iter().partition(|(run, rows)| run[6] == other || rows.len() >= enough(run));
    for (mut run, rows) in few {
        run[6] = other.to_string();
        runs.entry(run).or_insert_with(Vec::new).extend(rows);
    }
    for (run, all) in files {
        let rest = runs.entry(run).or_default();
        if rest.len() < ENOUGH {
            *rest = all;
        }
    }
    runs
}

/// Describes the tuning runs of a table: for each the cost of a launch that makes the median error of its short rows
/// smallest; the share of the nominal clock, whether C was read, and whether operands stayed in the memory-side cache, by the
/// smallest median error of all rows, buckets by their goals (`WEIGHTS`). `mhz` are the clocks to go with.
pub fn fit(rows: &[Row], mhz: impl Fn(&Row) -> f64) -> Campaigns {
    // Half of the rows and nine tenths both count, and each bucket as much as is said.
    let size = |errors: [Vec<f64>; 3], weights: [f64; 3]| {
        let of = |mut e: Vec<f64>| {
            e.sort_by(f64::total_cmp);
            quantile(&e, 0.5) + 0.3 * quantile(&e, 0.9)
        };
        let filled = errors.into_iter().zip(weights).filter(|(e, _)| !e.is_empty());
        let (sum, weights) = filled.fold((0.0, 0.0), |(s, w), (e, weight)| (s + weight * of(e), w + weight));
        sum / f64::max(weights, 1.0)
    };
    let mut out = BTreeMap::new();
    for (key, rows) in runs(rows) {
        let Some(chip) = Chip::of(rows[0].target) else { continue };
        let mut best = (f64::MAX, usual(&chip));
        let both: &[bool] = if chip.mall_mib > 0.0 { &[false, true] } else { &[false] };
        let kinds = [false, true].iter().flat_map(|reads_c| both.iter().map(move |warm| (*reads_c, *warm)));
        let kinds = MEMORY.iter().flat_map(|memory| kinds.clone().map(move |(c, w)| (*memory, c, w)));
        let settings = CLOCKS.flat_map(|clock| kinds.clone().map(move |kind| (f64::from(clock) / 50.0, kind)));
        for (clock, (memory, reads_c, warm)) in settings {
            let campaign = Campaign { launch: 0.0, reads_c, warm, mhz: mhz(rows[0]), clock, memory };
            let pairs: Vec<(f64, f64)> = rows.iter().map(|r| clocks(r, &chip, campaign)).collect();
            let error = |launch: f64, short: bool| {
                let mut errors: [Vec<f64>; 3] = Default::default();
                for (row, (measured, modelled)) in rows.iter().zip(&pairs) {
                    if !short || *measured < SHORT {
                        errors[row.bucket() as usize].push(((modelled + launch) / measured - 1.0).abs());
                    }
                }
                size(errors, if short { [1.0; 3] } else { WEIGHTS })
            };
            let steps = (0..80).map(|i| 1500.0 * 1.05f64.powi(i));
            let any_short = pairs.iter().any(|p| p.0 < SHORT);
            let launch = steps
                .filter(|_| any_short)
                .map(|l| (error(l, true), l))
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .map_or(chip.launch_us * chip.boost_mhz, |x| x.1);
            let all = error(launch, false) * if memory < 1.0 { LESS_MEMORY } else { 1.0 };
            if all < best.0 {
                best = (all, Campaign { launch, ..campaign });
            }
        }
        out.insert(key, best.1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "gfx,layout,dtype,out,compute,M,N,B,K,value,unit,MT0,MT1,DU,MI,WG,TT,GSU,LSU,PGR,PLR,VW,GRVW\n";

    #[test]
    fn a_large_product_takes_what_its_multiply_adds_take() {
        let line = "gfx1030,NN,f32,f32,f32,8448,48000,1,2816,94.381,pct,128,128,8,[],\"[16, 8, 1]\",\"[8, 16]\",1,1,true,true,4,4";
        let (rows, left_out) = rocblas(&format!("{HEADER}{line}\n")).unwrap();
        assert_eq!((rows.len(), left_out), (1, 0));
        let e = compare(&rows, &campaigns());
        assert_eq!((e.len(), e[0].bucket), (1, Bucket::Over2));
        assert!(e[0].median < 0.08, "{e:?}");
    }

    #[test]
    fn workgroups_of_rdna_run_on_work_group_processors() {
        // 108 tiles: two whole rounds of 80 compute units would reach 68% of the peak, three of 40 processors reach 90%.
        let line = "gfx1030,NN,f32,f32,f32,768,4608,1,3072,89.472,pct,128,256,16,[],\"[16, 16, 1]\",\"[8, 16]\",1,1,true,true,4,4";
        let (rows, _) = rocblas(&format!("{HEADER}{line}\n")).unwrap();
        let e = compare(&rows, &campaigns());
        assert_eq!(e[0].bucket, Bucket::To2);
        assert!(e[0].median < 0.12, "{e:?}");
    }

    #[test]
    fn floats_that_were_multiplied_with_ten_bits_are_told_apart() {
        let kernel = |mi: &str| {
            format!("gfx942,NN,f32,f32,f32,4096,4096,1,4096,50,pct,128,128,16,\"{mi}\",\"[64, 4, 1]\",[],1,1,1,1,4,4")
        };
        let (rows, _) =
            rocblas(&format!("{HEADER}{}\n{}\n", kernel("[32, 32, 4, 1]"), kernel("[32, 32, 2, 1]"))).unwrap();
        let of = |i: usize| (rows[i].dtype.as_str(), rows[i].gemm.rate, campaign_key(&rows[i])[1].clone());
        assert_eq!([of(0), of(1)], [("xf32", 1024.0, "f32".to_string()), ("f32", 256.0, "f32".to_string())]);
    }

    #[test]
    fn memory_keeps_its_clock() {
        // A run that went at 0.66 of 1300 MHz.
        let line = "gfx900,NN,f32,f32,,512,8,1,500000,1675,gflops,64,8,32,[],\"[16, 4, 1]\",\"[4, 2]\",16,1,1,1,4,4";
        let row = &rocblas(&format!("{HEADER}{line}\n")).unwrap().0[0];
        let (own, run) = (Chip::of(row.target).unwrap(), row.chip().unwrap());
        assert!(run.boost_mhz < 0.6 * own.boost_mhz && run.dram_gbs == own.dram_gbs, "{}", run.boost_mhz);
        let clocks = 1.04e9 / run.dram_bytes_clk();
        let seconds = row.measured / row.vendor_over(clocks, clocks).unwrap();
        let memory = own.microseconds(1.04e9 / own.dram_bytes_clk());
        assert!((1e6 * seconds / memory - 1.0).abs() < 0.01, "{seconds} {memory}");
    }

    #[test]
    fn rows_that_sum_in_16_bits_are_told_apart() {
        let of = |target: &str, compute: &str, instruction: &str| {
            let kernel = format!("\"{instruction}\",\"[16, 16, 1]\",\"[8, 8]\",1,1,true,true,8,8");
            let line = format!("{target},TN,f16,f16,{compute},1856,5888,1,1280,9000,gflops,128,128,16,{kernel}");
            rocblas(&format!("{HEADER}{line}\n")).unwrap().0[0].has_half_sums()
        };
        assert!(of("gfx900", "f16", "[]") && of("gfx900", "", "[]"));
        assert!(!of("gfx900", "f32", "[]") && !of("gfx908", "", "[32, 32, 8, 1]"));
    }

    #[test]
    fn tables_that_are_broken_say_where() {
        let error = |text: &str| rocblas(text).map(|r| r.0.len()).unwrap_err().to_string();
        assert!(error("a,b\n1,2").contains("no column 'gfx'"));
        assert_eq!(error(&format!("{HEADER}gfx906,NN\n")), "line 2: 2 cells, the header has 23");
        let bad = "gfx1030,NN,f32,f32,f32,x,48000,1,2816,94.381,pct,128,128,8,[],\"[16, 8, 1]\",\"[8, 16]\",1,1,true,true,4,4";
        assert_eq!(error(&format!("{HEADER}{bad}")), "line 2, column M: 'x' is not a number");
        let of = |m: &str, value: &str, depth: &str| {
            let rest = "pct,128,128,D,[],\"[16, 8, 1]\",\"[8, 16]\",1,1,true,true,4,4".replace('D', depth);
            error(&format!("{HEADER}gfx1030,NN,f32,f32,f32,{m},48000,1,2816,{value},{rest}"))
        };
        assert_eq!(of("0", "94", "8"), "line 2, column M: '0' is no extent (from 1 to 10^12)");
        assert_eq!(of("8448", "94", "0"), "line 2, column DU: '0' is no extent (from 1 to 10^12)");
        assert_eq!(of("8448", "NaN", "8"), "line 2, column value: 'NaN' is not a number");
        assert_eq!(error(""), "the table is empty");
    }

    #[test]
    fn rows_without_a_kernel_are_left_out() {
        let none = "gfx900,NN,f16,f16,,128,128,1,128,10,gflops,,,,,,,,,,,,";
        let quaternions =
            "gfx900,NN,c64,c64,c64,128,128,1,128,10,gflops,32,32,8,[],\"[16, 16, 1]\",\"[2, 2]\",1,1,true,true,1,1";
        let (rows, left_out) = rocblas(&format!("{HEADER}{none}\n{quaternions}\n")).unwrap();
        assert_eq!((rows.len(), left_out), (0, 2));
    }
}
