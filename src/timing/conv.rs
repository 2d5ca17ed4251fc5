//! Convolutions by their shape, beside MIOpen's find databases.
//!
//! The databases name the solver that won, not its tile, and give the best time of some families of solvers:
//!
//! * implicit matrix products are modelled as a matrix product ([`crate::gemm`]) over a set of usual tiles, of which memory moves what there
//!   is of input, weights and output, not the copies that overlapping windows make, while strides bring L2's whole lines. Their depth is not
//!   split: with splits the model is further from the measured times on ten of eleven chips;
//! * Winograd's F(2x2, 3x3), for 3x3 kernels with stride 1, multiplies 16 times where the plain product multiplies 36, over its
//!   transformed data. MIOpen's is assembly for the vector ALU, with a multiply-add a lane (two of f16);
//! * windows of one point by a library's product (`GemmFwd1x1_0_1`) are one for each image, in one launch;
//! * windows of one point by assembly (`ConvAsm1x1U`) are a product by the vector ALU.
//!
//! The times of the last two are known where they won: in the databases' columns they are mixed with others.
//! What wins else is not modelled, and counted ([`not_modelled`]): an image at a time through `im2col`, direct convolutions, which the databases
//! have in forms from assembly for one window to a loop for each output, FFT.
//!
//! What a time contains besides belongs to how a database was recorded: a launch, by how much the family's kernels are
//! slower than the best that the model can think of, and the clock. They stand in `isa/latency/conv_runs.csv`, fitted ([`fit`]) for each
//! database, type and family. The best time of a convolution is compared with that of the family of the solver that won.
//!
//! Operands come from memory. MIOpen runs a solver on the same buffers again and again, but no row whose operands fit in a memory-side cache shows that they
//! were there: of 9,718 of at least 8 MB the quickest has 53% of memory's bandwidth on gfx1030 and 41% on gfx942, where larger ones reach 84 and 47%. With
//! warm operands in the model the mean of gfx942's median errors goes from 19.8, 15.1 and 16.8% to 18.2, 15.0 and 18.4%.
//!
//! The clock: MIOpen looks for the best solver once, on a chip that has idled while it compiled. On gfx1030 products of up to 4 ms reach 3 TFLOPS, those of
//! more than 8 ms 17 to 19, and between these there are both: the chip begins at a sixth of its clock, and most runs are over
//! before it has risen.

use crate::chip::Chip;
use crate::gemm::multiply_add_rate;
use crate::shapes::{Kernels, TILES, element_bytes, products_with, tiles};
use crate::validate::{Bucket, Errors, Line, Table, TableError, errors, hash, quantile};
use barewave_isa::{Quirk, Target};
use std::collections::BTreeMap;

/// Solvers whose best time the databases give.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// Implicit matrix products.
    ImplicitGemm,
    /// Winograd's method.
    Winograd,
    /// A library's matrix product for each image, of windows of one point.
    Product,
    /// Assembly for windows of one point.
    Point,
}

impl Family {
    /// All.
    pub const ALL: [Family; FAMILIES] = [Family::ImplicitGemm, Family::Winograd, Family::Product, Family::Point];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Family::ImplicitGemm => "igemm",
            Family::Winograd => "winograd",
            Family::Product => "gemm 1x1",
            Family::Point => "asm 1x1",
        }
    }

    /// The column of its times; `None` where only its victories are known.
    fn column(self) -> Option<&'static str> {
        match self {
            Family::ImplicitGemm => Some("igemm_ms"),
            Family::Winograd => Some("winograd_ms"),
            Family::Product | Family::Point => None,
        }
    }

    /// What a solver is of.
    fn of(solver: &str) -> Option<Family> {
        Some(match () {
            () if solver.contains("Winograd") => Family::Winograd,
            () if solver.contains("ImplicitGemm") || solver.contains("Igemm") => Family::ImplicitGemm,
            () if solver == "GemmFwd1x1_0_1" => Family::Product,
            () if solver.starts_with("ConvAsm1x1U") => Family::Point,
            () => return None,
        })
    }
}

/// Number of [`Family::ALL`].
const FAMILIES: usize = 4;

/// A measured convolution.
#[derive(Clone, Debug)]
pub struct Row {
    /// Chip and compute units as the database is named.
    pub chip: String,
    /// Element type.
    pub dtype: String,
    /// Target.
    pub target: Target,
    /// Compute units.
    pub cus: f64,
    /// The convolution.
    pub shape: Shape,
    /// Rows, columns and depth of the product, groups as products of their own.
    pub product: [f64; 4],
    /// Best time, milliseconds.
    pub ms: f64,
    /// Best times of the families, milliseconds, where they were tried.
    pub families: [Option<f64>; FAMILIES],
    /// The solver that won.
    pub solver: String,
}

/// A two-dimensional convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Images, channels, rows and columns.
    pub input: [usize; 4],
    /// Output channels, rows and columns of the window.
    pub kernel: [usize; 3],
    /// Zeros on each side, by rows and columns.
    pub pads: [usize; 2],
    /// Steps, by rows and columns.
    pub strides: [usize; 2],
    /// Distance of the window's elements, by rows and columns.
    pub dilations: [usize; 2],
    /// Groups of channels.
    pub groups: usize,
}

impl Shape {
    /// Rows and columns of the output; `None` where the window does not fit.
    pub fn output(&self) -> Option<[usize; 2]> {
        let [.., h, w] = self.input;
        let side = |i: usize, x: usize| {
            let room =
                (x + 2 * self.pads[i]).checked_sub(self.dilations[i] * self.kernel[i + 1].checked_sub(1)? + 1)?;
            Some(room.checked_div(self.strides[i])? + 1)
        };
        Some([side(0, h)?, side(1, w)?])
    }

    /// Rows, columns and depth of the matrix product that it is, groups as products of their own.
    pub fn product(&self) -> Option<[f64; 4]> {
        let ([n, c, ..], [k, r, s], [oh, ow]) = (self.input, self.kernel, self.output()?);
        let groups = self.groups.max(1);
        let [n, c, k, r, s, oh, ow, groups] = [n, c / groups, k / groups, r, s, oh, ow, groups].map(|x| x as f64);
        Some([k, n * oh * ow, c * r * s, groups])
    }

    /// Elements of input, weights and output that memory moves, each once: the rows that some window reaches, and of these whole lines, of so many
    /// elements.
    fn moved(&self, line: f64) -> Option<f64> {
        let ([n, c, h, w], [k, r, s], [oh, ow]) = (self.input, self.kernel, self.output()?);
        let reached = |i: usize, window: usize, steps: usize, all: usize| {
            let (stride, dilation) = (self.strides[i], self.dilations[i]);
            let overlap = dilation == 1 && window >= stride;
            all.min(if overlap { (steps - 1) * stride + window } else { steps * window })
        };
        let rows = reached(0, r, oh, h);
        let columns = if (self.strides[1] as f64) < line { w } else { reached(1, s, ow, w) };
        let [n, c, k, r, s, rows, columns, pixels, groups] =
            [n, c, k, r, s, rows, columns, oh * ow, self.groups.max(1)].map(|x| x as f64);
        Some(n * c * rows * columns + k * (c / groups) * r * s + n * k * pixels)
    }

    /// Winograd's method applies: 3x3 windows at every pixel.
    pub fn is_winograd(&self) -> bool {
        self.kernel[1..] == [3, 3] && self.strides == [1, 1] && self.dilations == [1, 1] && self.groups == 1
    }
}

/// Reads a table in the form of `conv_miopen.csv`. Transposed and three-dimensional convolutions and types without a rate are
/// counted in the second number.
pub fn miopen(text: &str) -> Result<(Vec<Row>, usize), TableError> {
    let table = Table::new(
        text,
        &[
            "db",
            "C",
            "H",
            "W",
            "kernel",
            "K",
            "N",
            "pad",
            "stride",
            "dil",
            "dtype",
            "groups",
            "best_solver",
            "best_ms",
            "igemm_ms",
            "winograd_ms",
        ],
    )?;
    let (mut rows, mut left_out) = (Vec::new(), 0);
    for line in table.lines() {
        match row(&line?)? {
            Some(r) => rows.push(r),
            None => left_out += 1,
        }
    }
    Ok((rows, left_out))
}

/// Target and compute units of a database's name: `gfx906_60.HIP`, `gfx90878.OpenCL` (the number of units in hexadecimal). Of RDNA the drivers count work
/// group processors: 36 compute units of gfx1030 could not reach the 19.3 TFLOPS that there are.
fn database(name: &str) -> Option<(Target, f64)> {
    let stem = name.split('.').next()?;
    if let Some((target, units)) = stem.split_once('_') {
        let target = Target::parse(target).ok()?;
        let each = if target.info().has(Quirk::WgpMode) { 2.0 } else { 1.0 };
        return Some((target, units.parse::<f64>().ok()? * each));
    }
    let target = ["gfx908", "gfx90a", "gfx942"].into_iter().find(|t| stem.starts_with(t))?;
    let cus = u32::from_str_radix(&stem[target.len()..], 16).ok()?;
    Some((Target::parse(target).ok()?, f64::from(cus)))
}

fn pair(text: &str) -> Option<[usize; 2]> {
    let (a, b) = text.split_once('x')?;
    Some([a.parse().ok()?, b.parse().ok()?])
}

/// Extents of rows that make sense are less.
const LONGEST: usize = 1 << 31;

fn row(line: &Line) -> Result<Option<Row>, TableError> {
    let dtype = match line.text("dtype") {
        "FP32" => "f32",
        "FP16" => "f16",
        "BF16" => "bf16",
        "INT8" => "i8",
        _ => return Ok(None),
    };
    // Without instructions for a type the databases' kernels convert, and no two alike.
    let number = |c| line.number(c, 0.0);
    let whole = |c| number(c).map(|x| x as usize);
    let pairs = [line.text("kernel"), line.text("pad"), line.text("stride"), line.text("dil")].map(pair);
    let (Some((target, cus)), [Some([r, s]), Some(pads), Some(strides), Some(dilations)]) =
        (database(line.text("db")), pairs)
    else {
        return Ok(None);
    };
    let info = target.info();
    if dtype != "f32" && info.max_agprs == 0 && info.wmma.is_none() {
        return Ok(None);
    }
    let shape = Shape {
        input: [whole("N")?, whole("C")?, whole("H")?, whole("W")?],
        kernel: [whole("K")?, r, s],
        pads,
        strides,
        dilations,
        groups: whole("groups")?.max(1),
    };
    let extents = shape.input.iter().chain(&shape.kernel).chain(&pads).chain(&strides).chain(&dilations);
    if extents.chain([&shape.groups]).any(|x| *x >= LONGEST) {
        return Ok(None);
    }
    let ms = number("best_ms")?;
    let sensible = |product: &[f64; 4]| ms > 0.0 && cus >= 1.0 && product.iter().all(|x| *x >= 1.0);
    let Some(product) = shape.product().filter(sensible) else { return Ok(None) };
    let (chip, dtype) = (line.text("db").into(), dtype.into());
    let solver = line.text("best_solver").to_string();
    let mut families = [None; FAMILIES];
    for (time, family) in families.iter_mut().zip(Family::ALL) {
        let known = match family.column() {
            Some(column) => number(column)?,
            None if Family::of(&solver) == Some(family) => ms,
            None => 0.0,
        };
        *time = Some(known).filter(|ms| *ms > 0.0);
    }
    Ok(Some(Row { chip, dtype, target, cus, shape, product, ms, families, solver }))
}

impl Row {
    /// The product that the row was measured on, as far as its compute units tell.
    pub fn device(&self) -> Target {
        self.target.of_units(self.cus as u32)
    }

    /// Tiles of 64x64 over compute units.
    pub fn bucket(&self) -> Bucket {
        tiles(self.product, self.cus)
    }

    /// The vendor's measured time over that of other code: `clocks` by the model, without launches, of which there are
    /// `launches`.
    pub fn vendor_over(&self, chip: &Chip, clocks: f64, launches: usize) -> f64 {
        self.ms * 1e3 / (clocks / chip.sustained_mhz + LAUNCH * launches as f64)
    }
}

/// Microseconds of a launch inside the databases' times. Source: their shortest times are 6 to 9 us.
const LAUNCH: f64 = 6.0;

/// How the times of a family in a database were taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Microseconds inside each time besides the kernel.
    pub launch: f64,
    /// Times that the family's kernels take of what the model finds for it.
    pub pace: f64,
    /// Microseconds until the chip has risen to its clock, and how many times as long everything takes before.
    pub rise: f64,
    /// See `rise`.
    pub slow: f64,
}

impl Run {
    /// Microseconds of what takes so many by the model.
    fn time(&self, modelled: f64) -> f64 {
        let cold = modelled * self.pace * self.slow;
        self.launch + if cold <= self.rise { cold } else { self.rise + (cold - self.rise) / self.slow }
    }
}

/// Of databases that nobody has described: the middle of those that are.
const USUAL: Run = Run { launch: 12.0, pace: 1.5, rise: 0.0, slow: 1.0 };

/// Database, type and family of a run.
pub type RunKey = (String, String, Family);

const RUNS: &str = include_str!("../../isa/latency/conv_runs.csv");

/// The runs that are described.
pub fn runs() -> BTreeMap<RunKey, Run> {
    let lines = RUNS.lines().filter(|l| !l.starts_with('#')).skip(1);
    let run = |line: &str| {
        let [chip, dtype, family, numbers @ ..] = &line.split(',').collect::<Vec<_>>()[..] else { return None };
        let family = Family::ALL.into_iter().find(|f| f.name() == *family)?;
        let numbers: Vec<f64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
        let [launch, pace, rise, slow] = numbers.try_into().ok()?;
        Some(((chip.to_string(), dtype.to_string(), family), Run { launch, pace, rise, slow }))
    };
    lines.filter_map(run).collect()
}

/// Modelled microseconds of a row's convolution by a family's usual kernels, without a launch; `None` where it does not apply.
fn microseconds(chip: &Chip, row: &Row, family: Family) -> Option<f64> {
    let packed = if row.dtype == "f32" { 1.0 } else { 2.0 };
    let element = element_bytes(&row.dtype);
    let line = chip.l1_line / element;
    let moved = Some(row.shape.moved(line)? * element);
    let best = || Kernels::best(row.target, &row.dtype).map(|best| Kernels { single: false, ..best });
    let vector = |split| Kernels { split, single: false, ..Kernels::of_rate(multiply_add_rate(row.target) * packed) };
    let ([m, n, k, batch], is_point) = (row.product, row.shape.kernel[1..] == [1, 1]);
    let (product, with) = match family {
        Family::ImplicitGemm => {
            let spread = (row.shape.strides[1] as f64).min(line);
            (row.product, Kernels { split: false, tiles: &TILES, moved, spread, ..best()? })
        }
        Family::Winograd if !row.shape.is_winograd() => return None,
        // 16 products of a quarter of the pixels and a ninth of the depth.
        Family::Winograd => ([m, n / 4.0, k / 9.0, batch * 16.0], Kernels { moved, ..vector(true) }),
        Family::Product | Family::Point if !is_point => return None,
        Family::Product => {
            let images = row.shape.input[0].max(1) as f64;
            ([m, n / images, k, batch * images], best()?)
        }
        Family::Point => (row.product, vector(false)),
    };
    let (clocks, _) = products_with(chip, row.cus, &row.dtype, product, with).into_iter().next()?;
    Some(clocks / chip.sustained_mhz)
}

/// A row's modelled times without launches and at full pace, by family: microseconds.
struct Timed<'a> {
    row: &'a Row,
    families: [Option<f64>; FAMILIES],
}

fn timed<'a>(rows: &'a [Row]) -> Vec<Timed<'a>> {
    let mut chips: BTreeMap<&str, Option<Chip>> = BTreeMap::new();
    let one = |row: &'a Row| {
        let chip = chips.entry(&row.chip).or_insert_with(|| Chip::of(row.target)).as_ref()?;
        Some(Timed { row, families: Family::ALL.map(|f| microseconds(chip, row, f)) })
    };
    rows.iter().filter_map(one).collect()
}

/// Launches in microseconds that [`fit`] tries.
const LAUNCHES: [f64; 11] = [0.0, 3.0, 6.0, 9.0, 12.0, 16.0, 20.0, 25.0, 30.0, 40.0, 50.0];

/// Shares of what a pace must be for each row at which [`fit`] tries it.
const PACES: [f64; 9] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];

/// What the ninth decile of errors counts beside the median when [`fit`] compares.
const FAR: f64 = 0.3;

/// Microseconds until a chip has risen to its clock, and how many times as long everything takes before, that [`fit`] tries; and what an error then
/// counts: it has to explain much.
const RISES: [f64; 5] = [2000.0, 3000.0, 4500.0, 7000.0, 10_000.0];
const SLOW: [f64; 4] = [2.0, 3.0, 4.5, 6.0];
const RISING: f64 = 1.25;

/// Describes the runs of a table by the launch and the pace whose median error, buckets counting alike, is smallest.
pub fn fit(rows: &[Row]) -> BTreeMap<RunKey, Run> {
    // Measured and modelled microseconds by bucket.
    let mut pairs: BTreeMap<RunKey, [Vec<(f64, f64)>; 3]> = BTreeMap::new();
    for t in timed(rows) {
        for (i, family) in Family::ALL.into_iter().enumerate() {
            if let (Some(measured), Some(modelled)) = (t.row.families[i], t.families[i]) {
                let key = (t.row.chip.clone(), t.row.dtype.clone(), family);
                pairs.entry(key).or_default()[t.row.bucket() as usize].push((measured * 1e3, modelled));
            }
        }
    }
    let sorted = |list: &mut Vec<f64>| list.sort_by(f64::total_cmp);
    let error = |buckets: &[Vec<(f64, f64)>; 3], run: Run| {
        let counted = |pairs: &Vec<(f64, f64)>| {
            let mut errors: Vec<f64> = pairs.iter().map(|p| (run.time(p.1) / p.0 - 1.0).abs()).collect();
            sorted(&mut errors);
            quantile(&errors, 0.5) + FAR * quantile(&errors, 0.9)
        };
        buckets.iter().filter(|b| !b.is_empty()).map(counted).sum::<f64>()
    };
    let described = |buckets: &[Vec<(f64, f64)>; 3]| {
        let paces = |launch: f64| {
            let mut paces: Vec<f64> =
                buckets.iter().flatten().filter(|p| p.0 > launch).map(|p| (p.0 - launch) / p.1).collect();
            sorted(&mut paces);
            PACES.map(|share| quantile(&paces, share))
        };
        let best = |tried: &mut dyn Iterator<Item = Run>| {
            let known = tried.filter(|run| run.pace.is_finite()).map(|run| (error(buckets, run), run));
            known.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let steady = |launch| paces(launch).map(|pace| Run { launch, pace, rise: 0.0, slow: 1.0 });
        let (plain, run) = best(&mut LAUNCHES.iter().flat_map(|&launch| steady(launch)))?;
        let kinds = RISES.iter().flat_map(|&rise| SLOW.iter().map(move |&slow| (rise, slow)));
        let of = paces(run.launch);
        let mut rising = kinds.flat_map(|(rise, slow)| of.map(|pace| Run { rise, slow, pace, ..run }));
        let rising = best(&mut rising).filter(|r| r.0 * RISING < plain);
        Some(rising.map_or(run, |r| r.1))
    };
    pairs.iter().filter_map(|(key, buckets)| Some((key.clone(), described(buckets)?))).collect()
}

/// Two halves of a table: rows of one shape fall into the same. What is fitted on the first is judged by the second.
pub fn halves(rows: Vec<Row>) -> (Vec<Row>, Vec<Row>) {
    rows.into_iter().partition(|r| hash(&r.product).is_multiple_of(2))
}

/// Rows that what is not modelled has won, by database, type and solver.
pub fn not_modelled(rows: &[Row]) -> BTreeMap<(String, String, String), usize> {
    let mut out = BTreeMap::new();
    for r in rows.iter().filter(|r| Family::of(&r.solver).is_none()) {
        *out.entry((r.chip.clone(), r.dtype.clone(), r.solver.clone())).or_default() += 1;
    }
    out
}

/// Compares rows with the model, by database, type and tiles (of 64x64) per compute unit: each family, as `f32 igemm`, and the
/// best time, as `f32`, of rows that a modelled family has won, by that family. `known` are the runs that rows may be of.
pub fn compare(rows: &[Row], known: &BTreeMap<RunKey, Run>) -> Vec<Errors> {
    let mut by: BTreeMap<(&str, String, Bucket), Vec<f64>> = BTreeMap::new();
    for t in timed(rows) {
        let row = t.row;
        let winner = Family::of(&row.solver);
        for (i, family) in Family::ALL.into_iter().enumerate() {
            let Some(modelled) = t.families[i] else { continue };
            let key = (row.chip.clone(), row.dtype.clone(), family);
            let run = known.get(&key).copied().unwrap_or(USUAL);
            let us = run.time(modelled);
            if winner == Some(family) {
                let best = (&*row.chip, row.dtype.clone(), row.bucket());
                by.entry(best).or_default().push(us / (row.ms * 1e3) - 1.0);
            }
            if let Some(measured) = row.families[i] {
                let label = format!("{} {}", row.dtype, family.name());
                by.entry((&row.chip, label, row.bucket())).or_default().push(us / (measured * 1e3) - 1.0);
            }
        }
    }
    by.into_iter().map(|((chip, dtype, bucket), e)| errors(chip, &dtype, bucket, e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_a_product() {
        let text = "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms,igemm_ms,winograd_ms\n\
                    gfx90878.HIP,2d,64,56,56,3x3,64,16,1x1,1x1,1x1,NCHW,FP32,1,ConvBinWinograd3x3U,0.5,0.52,0.5\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP32,1,ConvAsm1x1U,0.05,,\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP8,1,x,0.05,,\n\
                    gfx906_60.HIP,2d,64,18446744073709551615,56,1x1,256,1,9x9,2x2,1x1,NCHW,FP32,1,x,0.05,,\n";
        let (rows, left_out) = miopen(text).unwrap();
        assert_eq!((rows.len(), left_out), (2, 2));
        let of = |i: usize| (rows[i].cus, rows[i].product, rows[i].shape.is_winograd(), rows[i].families);
        assert_eq!(of(0), (120.0, [64.0, 50176.0, 576.0, 1.0], true, [Some(0.52), Some(0.5), None, None]));
        assert_eq!(of(1), (60.0, [256.0, 784.0, 64.0, 1.0], false, [None, None, None, Some(0.05)]));
        // Overlapping windows move a pixel once; steps of two pass over every other row, not over parts of lines.
        let moved = |i: usize| rows[i].shape.moved(16.0).unwrap();
        assert_eq!(moved(0), (16 * 64 * 56 * 56 + 64 * 64 * 9 + 16 * 64 * 56 * 56) as f64);
        assert_eq!(moved(1), (64 * 28 * 56 + 256 * 64 + 256 * 28 * 28) as f64);
        let errors = compare(&rows, &runs());
        let kinds: Vec<&str> = errors.iter().map(|e| e.dtype.as_str()).collect();
        assert_eq!(kinds, ["f32", "f32 asm 1x1", "f32", "f32 igemm", "f32 winograd"]);
        assert!(errors.iter().all(|e| e.median < 1.0), "{errors:?}");
    }

    #[test]
    fn a_run_is_found_again() {
        let head =
            "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms,igemm_ms,winograd_ms\n";
        let line =
            |c: usize, ms: f64| format!("gfx906_60.HIP,2d,{c},28,28,1x1,256,16,0x0,1x1,1x1,NCHW,FP32,1,x,1,{ms},\n");
        let read = |ms: &[f64]| {
            let lines: String = ms.iter().enumerate().map(|(i, ms)| line(64 << i, *ms)).collect();
            miopen(&format!("{head}{lines}")).unwrap().0
        };
        let chip = Chip::of(Target::GFX906).unwrap();
        let model: Vec<f64> =
            read(&[1.0; 6]).iter().map(|r| microseconds(&chip, r, Family::ImplicitGemm).unwrap()).collect();
        let found = fit(&read(&model.iter().map(|us| (20.0 + 1.7 * us) / 1e3).collect::<Vec<f64>>()));
        let run = found.values().next().unwrap();
        assert!(found.len() == 1 && run.launch == 20.0 && (run.pace - 1.7).abs() < 1e-3, "{found:?}");
    }
}
