//! Matrix products of which only the shape is known: the best of usual kernels, and AITER's tables, which give nothing else.
//!
//! A product is modelled as the least of [`Gemm::clocks`] over a set of usual tiles, with the depth split where that helps. The
//! best kernel that somebody tuned may be another: errors against measured times are an upper bound of the model's.

use crate::chip::{Chip, Evidence};
use crate::gemm::{Gemm, matrix, rate, usual_matrix};
use crate::table::{Table, TableError};
use crate::validate::{Bucket, Errors, errors};
use barewave_isa::Target;
use std::collections::BTreeMap;

/// Tiles of a workgroup: first the usual ones, those that win most often in rocBLAS's tables, then narrow ones, for a convolution's few channels
/// of many pixels.
pub(crate) static TILES: [(f64, f64); 20] = [
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
    (256.0, 256.0),
    (4.0, 64.0),
    (8.0, 64.0),
    (16.0, 64.0),
    (16.0, 128.0),
    (16.0, 256.0),
    (32.0, 128.0),
    (32.0, 256.0),
    (64.0, 256.0),
    (256.0, 64.0),
];
/// How many of these are the usual ones.
const USUAL: usize = 11;

/// Bytes of an element in a table's name for its type.
pub(crate) fn element_bytes(dtype: &str) -> f64 {
    match dtype {
        "f32" => 4.0,
        "i8" | "fp8" => 1.0,
        "f64" => 8.0,
        _ => 2.0,
    }
}

/// The least clocks of a product over usual tiles and splits of its depth.
pub(crate) fn best_product(chip: &Chip, cus: f64, dtype: &str, product: [f64; 4]) -> Option<(f64, Gemm)> {
    products(chip, cus, dtype, product).into_iter().next()
}

/// What a set of kernels can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kernels {
    /// The depth may be split among workgroups.
    pub split: bool,
    /// Launches are alone ([`Gemm::single`]).
    pub single: bool,
    /// Operations of a compute unit in a clock, and the matrix instruction that does them.
    pub rate: f64,
    /// Rows, columns, depth and blocks of the matrix instruction.
    pub matrix: Option<[f64; 4]>,
    /// Rows and columns of a workgroup's tile.
    pub tiles: &'static [(f64, f64)],
    /// Bytes along the depth that a round takes of each row of a tile.
    pub depths: &'static [f64],
    /// See [`Gemm`].
    pub moved: Option<f64>,
    /// See [`Gemm`].
    pub spread: f64,
}

impl Kernels {
    /// The best instructions that a target has for a type; `None` for a type that has no rate.
    pub fn best(target: Target, dtype: &str) -> Option<Kernels> {
        Some(Kernels { matrix: usual_matrix(target, dtype), ..Kernels::of_rate(rate(target, dtype)?) })
    }

    /// The quickest matrix instruction that a target has for a type, whether or not vector instructions are as quick.
    pub fn of_matrix(target: Target, dtype: &str) -> Option<Kernels> {
        let (rate, shape) = matrix(target, dtype)?;
        Some(Kernels { matrix: Some(shape), ..Kernels::of_rate(rate) })
    }

    /// Vector instructions of that rate.
    pub fn of_rate(rate: f64) -> Kernels {
        Kernels {
            split: true,
            single: true,
            rate,
            matrix: None,
            tiles: &TILES[..USUAL],
            depths: &DEPTHS,
            moved: None,
            spread: 1.0,
        }
    }
}

/// What is usual of [`Kernels::depths`].
const DEPTHS: [f64; 3] = [64.0, 128.0, 256.0];

/// Clocks of a product with each of the usual tiles, at the round's depth and the split of the product's that suit the tile, the
/// fewest first; empty for a type that has no rate.
pub fn products(chip: &Chip, cus: f64, dtype: &str, product: [f64; 4]) -> Vec<(f64, Gemm)> {
    Kernels::best(chip.target, dtype).map_or(Vec::new(), |with| products_with(chip, cus, dtype, product, with))
}

/// [`products`] with other kernels than the best.
pub(crate) fn products_with(
    chip: &Chip,
    cus: f64,
    dtype: &str,
    [m, n, k, batch]: [f64; 4],
    with: Kernels,
) -> Vec<(f64, Gemm)> {
    let mut best: Vec<(f64, Gemm)> = Vec::new();
    for gemm in kernels(chip, dtype, [m, n, k, batch], with) {
        let clocks = gemm.clocks(chip, cus).total;
        match best.last_mut() {
            Some(last) if last.1.tile == gemm.tile => {
                if clocks < last.0 {
                    *last = (clocks, gemm);
                }
            }
            _ => best.push((clocks, gemm)),
        }
    }
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    best
}

/// The kernels of a set that a product can be computed with, tile by tile: each depth of a round that fits, the product's split or not.
pub(crate) fn kernels(
    chip: &Chip,
    dtype: &str,
    [m, n, k, batch]: [f64; 4],
    with: Kernels,
) -> impl Iterator<Item = Gemm> {
    let element = element_bytes(dtype);
    let Kernels { split: may_split, single, rate, matrix, tiles, depths, moved, spread } = with;
    let kernel = move |tile: (f64, f64), split: f64, depth: f64| Gemm {
        m,
        n,
        k,
        batch,
        tile,
        depth: depth / element,
        threads: (16.0, if tile.0 * tile.1 < 1024.0 { 4.0 } else { 16.0 }, 1.0),
        matrix,
        split,
        prefetch: 1.0,
        local_prefetch: true,
        bytes: (element, element, 4.0),
        along_depth: [true, true],
        load_width: 16.0 / element,
        store_width: 4.0,
        reads_c: false,
        warm: false,
        single,
        rate,
        moved,
        spread,
    };
    let splits =
        [1.0, 2.0, 4.0, 8.0, 16.0].into_iter().filter(move |split| may_split && k / split >= 32.0 || *split == 1.0);
    let lds = f64::from(chip.target.info().lds_bytes);
    // Two buffers.
    let fits = move |tile: (f64, f64), depth: f64| 2.0 * (tile.0 + tile.1) * depth <= lds;
    let depths = move |tile| depths.iter().copied().filter(move |d| fits(tile, *d));
    tiles.iter().flat_map(move |&tile| splits.clone().flat_map(move |s| depths(tile).map(move |d| kernel(tile, s, d))))
}

/// A measured matrix product of unknown kernel.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the chip as the table has it, with its compute units.
    pub chip: String,
    /// Element type of both operands.
    pub dtype: &'static str,
    /// Target.
    pub target: Target,
    /// Compute units.
    pub cus: f64,
    /// Rows, columns, depth, and how many products.
    pub product: [f64; 4],
    /// Best time, microseconds.
    pub us: f64,
}

/// Reads a table in the form of `gemm_cdna.csv` (AITER's): the best measured time of each shape. Rows of types that the model
/// has no rate for, and of chips without constants of their own, are counted in the second number.
pub fn aiter(text: &str) -> Result<(Vec<Row>, usize), TableError> {
    let table = Table::new(text, &["gfx", "cu", "m", "n", "k", "kind", "dtype", "best_us"])?;
    let (mut rows, mut left_out) = (Vec::new(), 0);
    for line in table.lines() {
        let line = line?;
        let dtype = match (line.text("kind"), line.text("dtype")) {
            ("bf16", _) => "bf16",
            ("a8w8", "torch.int8") => "i8",
            ("a8w8", "torch.float8_e4m3fn") | ("fp8 blockscale", _) => "fp8",
            _ => "",
        };
        let number = |c| line.number(c, 0.0);
        let (cus, us) = (number("cu")?, number("best_us")?);
        let product = [number("m")?, number("n")?, number("k")?, 1.0];
        let chip = format!("{}-{cus}cu", line.text("gfx"));
        match Target::parse(line.text("gfx")) {
            Ok(target) if us > 0.0 && cus > 0.0 && rate(target, dtype).is_some() && own(target).is_some() => {
                rows.push(Row { chip, dtype, target, cus, product, us })
            }
            _ => left_out += 1,
        }
    }
    Ok((rows, left_out))
}

impl Row {
    /// Tiles of 64x64 over compute units.
    pub fn bucket(&self) -> Bucket {
        tiles(self.product, self.cus)
    }
}

/// How many tiles of 64x64 a compute unit has of a product: rows, columns, depth, and how many products.
pub(crate) fn tiles([m, n, _, batch]: [f64; 4], cus: f64) -> Bucket {
    Bucket::of((m / 64.0).ceil() * (n / 64.0).ceil() * batch / cus)
}

/// The constants of a target, not of a relative that stands in.
fn own(target: Target) -> Option<Chip> {
    Chip::of(target).filter(|c| c.evidence("cus") != Some(Evidence::Inferred))
}

/// Modelled microseconds of a row, with its launch, at a clock.
fn microseconds(chip: &Chip, row: &Row, mhz: f64) -> Option<f64> {
    let (clocks, _) = best_product(chip, row.cus, row.dtype, row.product)?;
    Some(clocks / mhz + chip.launch_us)
}

/// A matrix product that somebody published.
#[derive(Clone, Debug)]
pub struct Published {
    /// Whose kernel.
    pub kernel: String,
    /// Where it stands.
    pub source: String,
    /// The product, its time as published.
    pub row: Row,
    /// Modelled microseconds of the best usual kernel at the boost clock: nobody says which clock was kept.
    pub modelled: f64,
}

impl Published {
    /// 1e12 operations a second of a time in microseconds.
    pub fn tflops(&self, us: f64) -> f64 {
        2.0 * self.row.product.iter().product::<f64>() / us / 1e6
    }
}

/// The published products of `isa/latency/published.csv` beside the model.
pub fn published() -> Vec<Published> {
    let types = ["f32", "f16", "bf16", "i8", "fp8"];
    let one = |line: &str| {
        let cells: [&str; 9] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
        let [kernel, gfx, cus, dtype, m, n, k, tflops, source] = cells;
        let product = [m.parse().ok()?, n.parse().ok()?, k.parse().ok()?, 1.0];
        let us = 2.0 * product.iter().product::<f64>() / tflops.parse::<f64>().ok()? / 1e6;
        let (target, dtype) = (Target::parse(gfx).ok()?, types.into_iter().find(|t| *t == dtype)?);
        let row = Row { chip: gfx.into(), dtype, target, cus: cus.parse().ok()?, product, us };
        let chip = own(target)?;
        let modelled = microseconds(&chip, &row, chip.boost_mhz)?;
        Some(Published { kernel: kernel.into(), source: source.into(), row, modelled })
    };
    PUBLISHED.lines().filter(|l| !l.starts_with('#')).skip(1).filter_map(one).collect()
}

const PUBLISHED: &str = include_str!("../../isa/latency/published.csv");

/// Compares rows with the model at the clock that the chip keeps, by chip, type and tiles (of 64x64) per compute unit. The
/// tables' clocks are not recorded.
pub fn compare(rows: &[Row]) -> Vec<Errors> {
    let mut by: BTreeMap<(&str, &str, Bucket), Vec<f64>> = BTreeMap::new();
    for row in rows {
        let Some(chip) = own(row.target) else { continue };
        let Some(us) = microseconds(&chip, row, chip.sustained_mhz) else { continue };
        by.entry((&row.chip, row.dtype, row.bucket())).or_default().push(us / row.us - 1.0);
    }
    by.into_iter().map(|((chip, dtype, bucket), e)| errors(chip, dtype, bucket, e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_published_is_what_the_best_usual_kernel_could_do() {
        let all = published();
        assert_eq!(
            all.len(),
            PUBLISHED.lines().filter(|l| !l.starts_with('#')).count() - 1,
            "a line is not understood"
        );
        for p in &all {
            assert!(p.modelled / p.row.us < 1.1, "{} on {} is quicker than the model", p.kernel, p.row.chip);
        }
    }

    #[test]
    fn a_table_of_shapes_is_compared() {
        let text = "gfx,cu,m,n,k,kind,dtype,best_us\n\
                    gfx950,256,64,5120,25600,bf16,torch.bfloat16,62.1629\n\
                    gfx950,256,256,16384,6656,fp4,,24.1571\n";
        let (rows, left_out) = aiter(text).unwrap();
        assert_eq!((rows.len(), left_out), (1, 1));
        let e = compare(&rows);
        assert_eq!((e[0].chip.as_str(), e[0].dtype.as_str(), e[0].bucket), ("gfx950-256cu", "bf16", Bucket::Under1));
        assert!(e[0].median < 0.5, "{e:?}");
        assert!(aiter("gfx,cu,m\n1,2,3\n").is_err());
    }
}
