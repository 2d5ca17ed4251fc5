//! Convolutions by their shape, beside MIOpen's find databases.
//!
//! The databases name the solver that won, not its tile. A row is modelled as the best of what the solvers are: an implicit
//! matrix product ([`crate::gemm`]) over a set of usual tiles with the depth split where that helps; for 3x3 kernels with stride 1
//! also Winograd's F(2x2, 3x3), which multiplies 16 times where the plain product multiplies 36, over its transformed data. The
//! databases' best solver is often further from that than the model is from hardware: the errors are an upper bound of the model's.

use crate::chip::Chip;
use crate::shapes::{best_product, tiles};
use crate::validate::{Bucket, Errors, Line, Table, TableError, errors};
use barewave_isa::Target;
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
    /// Kernel extents and strides are 3x3 and 1: Winograd applies.
    pub winograd: bool,
    /// Best time, milliseconds.
    pub ms: f64,
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
        Some([k / groups, n * oh * ow, c / groups * r * s, groups].map(|x| x as f64))
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
        &["db", "C", "H", "W", "kernel", "K", "N", "pad", "stride", "dil", "dtype", "groups", "best_ms"],
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
    let ms = number("best_ms")?;
    let Some(product) = shape.product().filter(|_| ms > 0.0) else { return Ok(None) };
    let (chip, dtype) = (line.text("db").into(), dtype.into());
    Ok(Some(Row { chip, dtype, target, cus, shape, product, winograd: shape.is_winograd(), ms }))
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

/// Modelled milliseconds of a row's convolution.
pub fn milliseconds(chip: &Chip, row: &Row) -> Option<f64> {
    let (plain, _) = best_product(chip, row.cus, &row.dtype, row.product)?;
    let mut clocks = plain;
    if row.winograd {
        let [m, n, k, batch] = row.product;
        // 16 products of a quarter of the pixels and a ninth of the depth.
        let (products, _) = best_product(chip, row.cus, &row.dtype, [m, n / 4.0, k / 9.0, batch * 16.0])?;
        clocks = clocks.min(products);
    }
    Some((clocks / chip.sustained_mhz + LAUNCH) / 1e3)
}

/// Compares rows with the model, by database, type and tiles (of 64x64) per compute unit.
pub fn compare(rows: &[Row]) -> Vec<Errors> {
    let mut by: BTreeMap<(&str, &str, Bucket), Vec<f64>> = BTreeMap::new();
    for row in rows {
        let Some(chip) = Chip::of(row.target) else { continue };
        let Some(ms) = milliseconds(&chip, row) else { continue };
        by.entry((&row.chip, &row.dtype, row.bucket())).or_default().push(ms / row.ms - 1.0);
    }
    by.into_iter().map(|((chip, dtype, bucket), e)| errors(chip, dtype, bucket, e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_a_product() {
        let text = "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms\n\
                    gfx90878.HIP,2d,64,56,56,3x3,64,16,1x1,1x1,1x1,NCHW,FP32,1,x,0.5\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP32,1,x,0.05\n\
                    gfx906_60.HIP,2d,64,56,56,1x1,256,1,0x0,2x2,1x1,NCHW,FP8,1,x,0.05\n";
        let (rows, left_out) = miopen(text).unwrap();
        assert_eq!((rows.len(), left_out), (2, 1));
        assert_eq!((rows[0].cus, rows[0].product, rows[0].winograd), (120.0, [64.0, 50176.0, 576.0, 1.0], true));
        assert_eq!((rows[1].cus, rows[1].product, rows[1].winograd), (60.0, [256.0, 784.0, 64.0, 1.0], false));
        assert!(compare(&rows).iter().all(|e| e.median < 1.0), "{:?}", compare(&rows));
    }
}
