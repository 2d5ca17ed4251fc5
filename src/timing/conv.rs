//! Convolutions by their shape, beside MIOpen's find databases.
//!
//! The databases name the solver that won, not its tile. What a solver launches and computes is described in `conv/solver.rs`; a convolution by
//! it is one of its matrix products with the best of usual tiles, at the depth of a round that suits the tile.
//!
//! What a time contains besides belongs to the solver's code and to how a database was recorded: a launch, how much of the rate its
//! loop reaches, latencies that it does not hide, how well it uses memory, and the clock. These stand in `isa/latency/conv_runs.csv`, fitted
//! ([`fit`]) for each database, type and solver. Nobody knows the tiles: of gfx906, whose databases of tuned parameters are public, the tiles that were measured
//! explain the times no better than the best ones do.
//!
//! Operands come from memory. MIOpen runs a solver on the same buffers again and again, but no row whose operands fit in a memory-side cache shows that they
//! were there: of 9,718 of at least 8 MB the quickest has 53% of memory's bandwidth on gfx1030 and 41% on gfx942, where larger ones reach 84 and 47%.
//!
//! The clock: MIOpen looks for the best solver once, on a chip that has idled while it compiled. On gfx1030 products of up to 4 ms reach 3 TFLOPS, those of
//! more than 8 ms 17 to 19, and between these there are both: the chip begins at a sixth of its clock, and most runs are over
//! before it has risen.

mod run;
mod solver;

pub use run::{Run, RunKey, fit, runs};

use crate::chip::Chip;
use crate::shapes::tiles;
use crate::table::{Line, Table, TableError};
use crate::validate::{Bucket, Errors, errors, hash};
use barewave_isa::{Quirk, Target};
use solver::{Form, Work};
use std::collections::BTreeMap;

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
    /// Pixels of images lie behind each other, with all channels of each together.
    pub channels_last: bool,
    /// Best time, milliseconds.
    pub ms: f64,
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
            "layout",
            "dtype",
            "groups",
            "best_solver",
            "best_ms",
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
    let channels_last = line.text("layout").starts_with("NHWC");
    Ok(Some(Row { chip, dtype, target, cus, shape, product, channels_last, ms, solver }))
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

/// Two halves of a table: rows of one shape fall into the same. What is fitted on the first is judged by the second.
pub fn halves(rows: Vec<Row>) -> (Vec<Row>, Vec<Row>) {
    rows.into_iter().partition(|r| hash(&r.product).is_multiple_of(2))
}

/// Rows that solvers which are not modelled have won, by database, type and solver.
pub fn not_modelled(rows: &[Row]) -> BTreeMap<(String, String, String), usize> {
    let mut out = BTreeMap::new();
    for r in rows.iter().filter(|r| Form::of(&r.solver).is_none()) {
        *out.entry((r.chip.clone(), r.dtype.clone(), r.solver.clone())).or_default() += 1;
    }
    out
}

/// Compares rows with the model, by database, type and tiles (of 64x64) per compute unit: all that modelled solvers have won, as `f32`, and
/// each solver's, as `f32 ConvAsm1x1U`. `known` are the runs that rows may be of.
pub fn compare(rows: &[Row], known: &BTreeMap<RunKey, Run>) -> Vec<Errors> {
    let mut by: BTreeMap<(&str, String, Bucket), Vec<f64>> = BTreeMap::new();
    let mut chips: BTreeMap<&str, Option<Chip>> = BTreeMap::new();
    for row in rows {
        let Some(chip) = chips.entry(&row.chip).or_insert_with(|| Chip::of(row.target)) else { continue };
        let Some(work) = Work::of(chip, row) else { continue };
        let run = known.get(&run::key(row)).copied().unwrap_or(Run::USUAL);
        let error = run.time(&work) / (row.ms * 1e3) - 1.0;
        for label in [row.dtype.clone(), format!("{} {}", row.dtype, row.solver)] {
            by.entry((&row.chip, label, row.bucket())).or_default().push(error);
        }
    }
    by.into_iter().map(|((chip, dtype, bucket), e)| errors(chip, &dtype, bucket, e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms\n";

    #[test]
    fn a_row_becomes_a_product() {
        let text = "gfx90878.HIP,2d,64,56,56,3x3,64,16,1x1,1x1,1x1,NCHW,FP32,1,ConvBinWinograd3x3U,0.5\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NHWC-NHWC-NHWC,FP32,1,ConvAsm1x1U,0.05\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP8,1,x,0.05\n\
                    gfx906_60.HIP,2d,64,18446744073709551615,56,1x1,256,1,9x9,2x2,1x1,NCHW,FP32,1,x,0.05\n";
        let (rows, left_out) = miopen(&format!("{HEAD}{text}")).unwrap();
        assert_eq!((rows.len(), left_out), (2, 2));
        let of = |i: usize| (rows[i].cus, rows[i].product, rows[i].ms, rows[i].channels_last);
        assert_eq!(of(0), (120.0, [64.0, 50176.0, 576.0, 1.0], 0.5, false));
        assert_eq!(of(1), (60.0, [256.0, 784.0, 64.0, 1.0], 0.05, true));
        // Overlapping windows move a pixel once; steps of two pass over every other row, not over parts of lines.
        let moved = |i: usize| rows[i].shape.moved(16.0).unwrap();
        assert_eq!(moved(0), (16 * 64 * 56 * 56 + 64 * 64 * 9 + 16 * 64 * 56 * 56) as f64);
        assert_eq!(moved(1), (64 * 28 * 56 + 256 * 64 + 256 * 28 * 28) as f64);
        let errors = compare(&rows, &runs());
        let kinds: Vec<&str> = errors.iter().map(|e| e.dtype.as_str()).collect();
        assert_eq!(kinds, ["f32", "f32 ConvAsm1x1U", "f32", "f32 ConvBinWinograd3x3U"]);
        assert!(errors.iter().all(|e| e.median < 1.0), "{errors:?}");
    }

    #[test]
    fn solvers_of_no_form_are_counted() {
        let line = |solver: &str| format!("gfx906_60.HIP,2d,64,56,56,3x3,64,1,1x1,1x1,1x1,NCHW,FP32,1,{solver},0.05\n");
        let text = format!("{HEAD}{}{}{}", line("ConvDirectNaiveConvFwd"), line("fft"), line("GemmFwdRest"));
        let others = not_modelled(&miopen(&text).unwrap().0);
        let solvers: Vec<&str> = others.keys().map(|(.., solver)| solver.as_str()).collect();
        assert_eq!(solvers, ["ConvDirectNaiveConvFwd", "fft"]);
    }
}
