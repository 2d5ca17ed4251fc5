//! Convolutions by their shape, beside MIOpen's find databases.
//!
//! The databases name the solver that won, not its tile, and give the best time of some families of solvers:
//!
//! * implicit matrix products are modelled as a matrix product ([`crate::gemm`]) over a set of usual tiles. Their depth is not
//!   split: with splits the model is further from the measured times on ten of eleven chips;
//! * Winograd's F(2x2, 3x3), for 3x3 kernels with stride 1, multiplies 16 times where the plain product multiplies 36, over its
//!   transformed data. MIOpen's is assembly for the vector ALU, with a multiply-add a lane (two of f16).
//!
//! What a time contains besides belongs to how a database was recorded: a launch, and by how much the family's kernels are
//! slower than the best that the model can think of. Both stand in `isa/latency/conv_runs.csv`, fitted ([`fit`]) for each
//! database, type and family. The best time of a convolution is compared with the quicker of the two; where another family won
//! (direct, FFT, `im2col`), the error says so.

use crate::chip::Chip;
use crate::gemm::multiply_add_rate;
use crate::shapes::{Kernels, products_with, tiles};
use crate::validate::{Bucket, Errors, Line, Table, TableError, errors, hash, quantile};
use barewave_isa::Target;
use std::collections::BTreeMap;

/// Solvers whose best time the databases give.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// Implicit matrix products.
    ImplicitGemm,
    /// Winograd's method.
    Winograd,
}

impl Family {
    /// All.
    pub const ALL: [Family; 2] = [Family::ImplicitGemm, Family::Winograd];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Family::ImplicitGemm => "igemm",
            Family::Winograd => "winograd",
        }
    }

    fn column(self) -> &'static str {
        match self {
            Family::ImplicitGemm => "igemm_ms",
            Family::Winograd => "winograd_ms",
        }
    }
}

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
    pub families: [Option<f64>; 2],
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

/// Target and compute units of a database's name: `gfx906_60.HIP`, `gfx90878.OpenCL` (the number of units in hexadecimal).
fn database(name: &str) -> Option<(Target, f64)> {
    let stem = name.split('.').next()?;
    if let Some((target, cus)) = stem.split_once('_') {
        return Some((Target::parse(target).ok()?, cus.parse().ok()?));
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
    let Some(product) = shape.product().filter(|_| ms > 0.0) else { return Ok(None) };
    let (chip, dtype) = (line.text("db").into(), dtype.into());
    let mut families = [None; 2];
    for (time, family) in families.iter_mut().zip(Family::ALL) {
        *time = Some(number(family.column())?).filter(|ms| *ms > 0.0);
    }
    Ok(Some(Row { chip, dtype, target, cus, shape, product, ms, families }))
}

impl Row {
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
}

/// Of databases that nobody has described: the middle of those that are.
const USUAL: Run = Run { launch: 12.0, pace: 1.5 };

/// Database, type and family of a run.
pub type RunKey = (String, String, Family);

const RUNS: &str = include_str!("../../isa/latency/conv_runs.csv");

/// The runs that are described.
pub fn runs() -> BTreeMap<RunKey, Run> {
    let lines = RUNS.lines().filter(|l| !l.starts_with('#')).skip(1);
    let run = |line: &str| {
        let [chip, dtype, family, launch, pace] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
        let family = Family::ALL.into_iter().find(|f| f.name() == family)?;
        Some(((chip.into(), dtype.into(), family), Run { launch: launch.parse().ok()?, pace: pace.parse().ok()? }))
    };
    lines.filter_map(run).collect()
}

/// Modelled microseconds of a row's convolution by a family's usual kernels, without a launch; `None` where it does not apply.
fn microseconds(chip: &Chip, row: &Row, family: Family) -> Option<f64> {
    let (product, with) = match family {
        Family::ImplicitGemm => (row.product, Kernels { split: false, ..Kernels::best(row.target, &row.dtype)? }),
        Family::Winograd if !row.shape.is_winograd() => return None,
        Family::Winograd => {
            let [m, n, k, batch] = row.product;
            let packed = if row.dtype == "f32" { 1.0 } else { 2.0 };
            let rate = multiply_add_rate(row.target) * packed;
            // 16 products of a quarter of the pixels and a ninth of the depth.
            ([m, n / 4.0, k / 9.0, batch * 16.0], Kernels { split: true, rate, matrix: None })
        }
    };
    let (clocks, _) = products_with(chip, row.cus, &row.dtype, product, with).into_iter().next()?;
    Some(clocks / chip.sustained_mhz)
}

/// A row's modelled times without launches and at full pace, by family: microseconds.
struct Timed<'a> {
    row: &'a Row,
    families: [Option<f64>; 2],
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
const PACES: [f64; 7] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];

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
        let median = |pairs: &Vec<(f64, f64)>| {
            let mut errors: Vec<f64> =
                pairs.iter().map(|p| ((run.launch + run.pace * p.1) / p.0 - 1.0).abs()).collect();
            sorted(&mut errors);
            quantile(&errors, 0.5)
        };
        buckets.iter().filter(|b| !b.is_empty()).map(median).sum::<f64>()
    };
    let described = |buckets: &[Vec<(f64, f64)>; 3]| {
        let tried = LAUNCHES.iter().flat_map(|&launch| {
            let mut paces: Vec<f64> =
                buckets.iter().flatten().filter(|p| p.0 > launch).map(|p| (p.0 - launch) / p.1).collect();
            sorted(&mut paces);
            PACES.map(|share| Run { launch, pace: quantile(&paces, share) })
        });
        let known = tried.filter(|run| run.pace.is_finite()).map(|run| (error(buckets, run), run));
        known.min_by(|a, b| a.0.total_cmp(&b.0)).map(|r| r.1)
    };
    pairs.iter().filter_map(|(key, buckets)| Some((key.clone(), described(buckets)?))).collect()
}

/// Two halves of a table: rows of one shape fall into the same. What is fitted on the first is judged by the second.
pub fn halves(rows: Vec<Row>) -> (Vec<Row>, Vec<Row>) {
    rows.into_iter().partition(|r| hash(&r.product).is_multiple_of(2))
}

/// Compares rows with the model, by database, type and tiles (of 64x64) per compute unit: each family, as `f32 igemm`, and the
/// best time, as `f32`. `known` are the runs that rows may be of.
pub fn compare(rows: &[Row], known: &BTreeMap<RunKey, Run>) -> Vec<Errors> {
    let mut by: BTreeMap<(&str, String, Bucket), Vec<f64>> = BTreeMap::new();
    for t in timed(rows) {
        let row = t.row;
        let mut quickest = f64::MAX;
        for (i, family) in Family::ALL.into_iter().enumerate() {
            let Some(modelled) = t.families[i] else { continue };
            let key = (row.chip.clone(), row.dtype.clone(), family);
            let run = known.get(&key).copied().unwrap_or(USUAL);
            let us = run.launch + run.pace * modelled;
            quickest = quickest.min(us);
            if let Some(measured) = row.families[i] {
                let label = format!("{} {}", row.dtype, family.name());
                by.entry((&row.chip, label, row.bucket())).or_default().push(us / (measured * 1e3) - 1.0);
            }
        }
        if quickest < f64::MAX {
            by.entry((&row.chip, row.dtype.clone(), row.bucket())).or_default().push(quickest / (row.ms * 1e3) - 1.0);
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
                    gfx90878.HIP,2d,64,56,56,3x3,64,16,1x1,1x1,1x1,NCHW,FP32,1,x,0.5,0.52,0.5\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP32,1,x,0.05,,\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP8,1,x,0.05,,\n\
                    gfx906_60.HIP,2d,64,18446744073709551615,56,1x1,256,1,9x9,2x2,1x1,NCHW,FP32,1,x,0.05,,\n";
        let (rows, left_out) = miopen(text).unwrap();
        assert_eq!((rows.len(), left_out), (2, 2));
        let of = |i: usize| (rows[i].cus, rows[i].product, rows[i].shape.is_winograd(), rows[i].families);
        assert_eq!(of(0), (120.0, [64.0, 50176.0, 576.0, 1.0], true, [Some(0.52), Some(0.5)]));
        assert_eq!(of(1), (60.0, [256.0, 784.0, 64.0, 1.0], false, [None, None]));
        let errors = compare(&rows, &runs());
        let kinds: Vec<&str> = errors.iter().map(|e| e.dtype.as_str()).collect();
        assert_eq!(kinds, ["f32", "f32", "f32 igemm", "f32 winograd"]);
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
