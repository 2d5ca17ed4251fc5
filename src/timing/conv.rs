//! Convolutions by their shape, beside MIOpen's find databases.
//!
//! The databases name the solver that won, not its tile. A row is modelled as the best of what the solvers are: an implicit
//! matrix product ([`crate::gemm`]) over a set of usual tiles with the depth split where that helps; for 3x3 kernels with stride 1
//! also Winograd's F(2x2, 3x3), which multiplies 16 times where the plain product multiplies 36, over its transformed data. The databases' best solver is often
//! further from that than the model is from hardware: the errors are an upper bound of the model's.

use crate::chip::Chip;
use crate::gemm::{Gemm, rate};
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
    /// Rows, columns and depth of the product, groups as products of their own.
    pub product: [f64; 4],
    /// Kernel extents and strides are 3x3 and 1: Winograd applies.
    pub winograd: bool,
    /// Best time, milliseconds.
    pub ms: f64,
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

fn pair(text: &str) -> Option<(f64, f64)> {
    let (a, b) = text.split_once('x')?;
    Some((a.parse().ok()?, b.parse().ok()?))
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
    let shapes = [line.text("kernel"), line.text("pad"), line.text("stride"), line.text("dil")].map(pair);
    let (Some((target, cus)), [Some(kernel), Some(pad), Some(stride), Some(dil)]) = (database(line.text("db")), shapes)
    else {
        return Ok(None);
    };
    let (c, h, w, k, n) = (number("C")?, number("H")?, number("W")?, number("K")?, number("N")?);
    let (groups, ms) = (number("groups")?.max(1.0), number("best_ms")?);
    let info = target.info();
    if dtype != "f32" && info.max_agprs == 0 && info.wmma.is_none() {
        return Ok(None);
    }
    let extent = |x: f64, kernel: f64, pad: f64, stride: f64, dil: f64| {
        ((x + 2.0 * pad - dil * (kernel - 1.0) - 1.0) / stride).floor() + 1.0
    };
    let (oh, ow) = (extent(h, kernel.0, pad.0, stride.0, dil.0), extent(w, kernel.1, pad.1, stride.1, dil.1));
    if oh < 1.0 || ow < 1.0 || ms <= 0.0 {
        return Ok(None);
    }
    Ok(Some(Row {
        chip: line.text("db").into(),
        dtype: dtype.into(),
        target,
        cus,
        product: [k / groups, n * oh * ow, c / groups * kernel.0 * kernel.1, groups],
        winograd: kernel == (3.0, 3.0) && stride == (1.0, 1.0) && dil == (1.0, 1.0) && groups == 1.0,
        ms,
    }))
}

/// Usual tiles of a workgroup: those that win most often in rocBLAS's tables.
const TILES: [(f64, f64); 10] = [
    (16.0, 16.0),
    (32.0, 32.0),
    (32.0, 64.0),
    (64.0, 32.0),
    (64.0, 64.0),
    (128.0, 64.0),
    (64.0, 128.0),
    (128.0, 128.0),
    (256.0, 128.0),
    (128.0, 256.0),
];

/// The least clocks of a product over usual tiles and splits of its depth.
pub fn best_product(chip: &Chip, cus: f64, dtype: &str, [m, n, k, batch]: [f64; 4]) -> Option<(f64, Gemm)> {
    let element = match dtype {
        "f32" => 4.0,
        "i8" => 1.0,
        "f64" => 8.0,
        _ => 2.0,
    };
    let rate = rate(chip.target, dtype)?;
    let candidates = TILES.iter().flat_map(|t| [1.0, 2.0, 4.0, 8.0, 16.0].map(|s| (*t, s)));
    let timed = candidates.filter(|(_, split)| k / split >= 32.0 || *split == 1.0).map(|(tile, split)| {
        let gemm = Gemm {
            m,
            n,
            k,
            batch,
            tile,
            depth: 64.0 / element,
            threads: (16.0, if tile.0 * tile.1 < 1024.0 { 4.0 } else { 16.0 }, 1.0),
            matrix: None,
            split,
            prefetch: 1.0,
            local_prefetch: true,
            bytes: (element, element, 4.0),
            gathered: 0.0,
            reads_c: false,
            warm: false,
            rate,
        };
        (gemm.clocks(chip, cus).total, gemm)
    });
    timed.min_by(|a, b| a.0.total_cmp(&b.0))
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
        let [m, n, _, batch] = row.product;
        let tiles = (m / 64.0).ceil() * (n / 64.0).ceil() * batch / row.cus;
        by.entry((&row.chip, &row.dtype, Bucket::of(tiles))).or_default().push(ms / row.ms - 1.0);
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
