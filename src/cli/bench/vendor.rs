//! Our own kernels, by the model, beside the vendor's measured rows: by chip, type and kind of shape.

use super::shape::{self, Layout, Shaped};
use crate::cycles;
use barewave::kernels::Tuning;
use barewave::tensor::DType;
use barewave_isa::Target;
use barewave_timing::gemm::Gemm;
use barewave_timing::validate::{self, Errors};
use barewave_timing::{Chip, conv};
use comfy_table::{CellAlignment, Table, presets};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row that was compared.
pub struct Compared {
    chip: String,
    dtype: String,
    bucket: validate::Bucket,
    class: &'static str,
    /// Of convolutions: the number of images.
    images: Option<usize>,
    shape: String,
    /// The vendor's time over our own.
    ratio: f64,
    /// The vendor's time over what operations and memory take at least, where that is known.
    over_least: Option<f64>,
}

/// A row is well when our time is at most so many times the vendor's.
const WELL: f64 = 1.1;

/// Multiplications of a small product.
const SMALL: f64 = 1e8;

/// Images of up to so many channels are a network's first.
const FEW_CHANNELS: usize = 4;

/// Windows of at least so many rows or columns are large.
const LARGE_WINDOW: usize = 7;

/// A row whose percentage was rounded by more than this share of it does not say how long its kernel took.
const ROUNDED: f64 = 0.1;

/// Operators with more multiplications than this, or operands of more elements, are not compiled for comparison.
const LARGEST: (f64, f64) = (1e13, 5e8);

fn fits([m, n, k, batch]: [f64; 4]) -> bool {
    let elements = (m * k + k * n).max(m * n) * batch;
    m * n * k * batch <= LARGEST.0 && elements < LARGEST.1 && [m, n, k, batch].iter().all(|x| *x >= 1.0)
}

/// Clocks of our own kernels for an operator with a chip's memory, without launches; the same where they ran before; and how many launches there are.
fn own(target: Target, chip: &Chip, tuning: Tuning, shaped: &Shaped) -> Option<(f64, f64, usize)> {
    let launches = super::kernels::own(target, &Arc::new(tuning), shaped).ok()?;
    let [clocks, repeated] = cycles::repeated(&launches, chip)?;
    Some((clocks, repeated, launches.len()))
}

/// A table's row that our own kernels can be compared with.
pub trait Own {
    /// Chip, type and bucket.
    fn key(&self) -> (&str, &str, validate::Bucket);
    /// The vendor's time over our own.
    fn vendor_over_own(&self) -> Option<f64>;
    /// The same over the least that a kernel takes by the model: all operations at the peak rate, or all operands once from memory.
    fn vendor_over_least(&self) -> Option<f64> {
        None
    }
    /// What kind of shape it is, and the shape.
    fn class(&self) -> &'static str;
    fn shape(&self) -> String;
    /// Of convolutions: the number of images.
    fn images(&self) -> Option<usize> {
        None
    }
}

impl Own for validate::Row {
    fn key(&self) -> (&str, &str, validate::Bucket) {
        (&self.chip, &self.dtype, self.bucket())
    }
    fn vendor_over_own(&self) -> Option<f64> {
        let dtype = DType::from_name(&self.dtype).filter(|_| self.rounded <= ROUNDED)?;
        let (g, [a, b]) = (&self.gemm, self.transposed);
        // The table's matrices lie column by column: rows are columns for us, and A is B.
        let whole = Some([g.n, g.m, g.k, g.batch]).filter(|x| fits(*x))?.map(|x| x as usize);
        let product = shape::product([dtype; 2], whole, Layout::of([b, a]));
        // As the vendor's kernel sums.
        let mut tuning = Tuning::default();
        if self.has_half_sums() {
            tuning.allow_f16_sums();
        }
        let (clocks, repeated, _) = own(self.device(), &self.chip()?, tuning, &product)?;
        self.vendor_over(clocks, repeated)
    }
    fn vendor_over_least(&self) -> Option<f64> {
        let Gemm { m, n, k, batch, bytes: (element, result, _), .. } = self.gemm;
        let chip = self.chip()?;
        let multiply = 2.0 * m * n * k * batch / (cycles::peak_flops_per_clk(self.target, &self.dtype) * self.cus);
        let moved = |bytes: f64, cached: f64| (bytes - cached).max(0.0) / chip.dram_bytes_clk();
        let bytes = batch * ((m + n) * k * element + m * n * result);
        let cached = chip.mall_mib.max(chip.l2_mib) * 1048576.0;
        self.vendor_over(multiply.max(moved(bytes, 0.0)), multiply.max(moved(bytes, cached)))
    }
    fn class(&self) -> &'static str {
        let Gemm { m, n, k, batch, .. } = self.gemm;
        let (least, most) = (m.min(n), m.max(n));
        match () {
            // For those that sum in 32 some chips have half the rate.
            () if self.has_half_sums() => "sums of 16 bits",
            () if batch > 1.0 => "batched",
            () if least <= 16.0 => "few rows",
            () if m * n * k < SMALL => "small",
            () if k >= 8.0 * most => "deep",
            () if most >= 8.0 * least => "tall",
            () if k < 256.0 => "shallow",
            () => "large",
        }
    }
    fn shape(&self) -> String {
        let Gemm { m, n, k, batch, .. } = self.gemm;
        // As our own kernels see it, row by row.
        let layout = Layout::of([self.transposed[1], self.transposed[0]]);
        format!("{}{n}x{m}x{k} {layout:?}", if batch > 1.0 { format!("{batch}x") } else { String::new() })
    }
}

impl Own for conv::Row {
    fn key(&self) -> (&str, &str, validate::Bucket) {
        (&self.chip, &self.dtype, self.bucket())
    }
    fn vendor_over_own(&self) -> Option<f64> {
        let dtype = DType::from_name(&self.dtype)?;
        let [n, c, h, w] = self.shape.input.map(|x| x as f64);
        if !fits(self.product) || n * c * h * w > LARGEST.1 {
            return None;
        }
        let chip = Chip::of(self.device())?;
        let (clocks, _, launches) =
            own(self.device(), &chip, Tuning::default(), &shape::convolution(dtype, &self.shape))?;
        Some(self.vendor_over(&chip, clocks, launches))
    }
    fn class(&self) -> &'static str {
        let [_, kh, kw] = self.shape.kernel;
        let channels = self.shape.input[1];
        let steps = self.shape.strides != [1, 1];
        match () {
            () if self.shape.groups == channels && channels > 1 => "depthwise",
            () if self.shape.groups > 1 => "grouped",
            () if channels <= FEW_CHANNELS => "few channels",
            () if self.shape.dilations != [1, 1] => "dilated",
            () if kh * kw == 1 && steps => "1x1 strided",
            () if kh * kw == 1 => "1x1",
            () if (kh, kw) == (3, 3) && steps => "3x3 strided",
            () if (kh, kw) == (3, 3) => "3x3",
            () if kh.max(kw) >= LARGE_WINDOW => "large windows",
            () => "other windows",
        }
    }
    fn shape(&self) -> String {
        shape::text_of_conv(&self.shape)
    }
    fn images(&self) -> Option<usize> {
        Some(self.shape.input[0])
    }
}

/// Compares our own kernels with the vendor's: of each chip, type and bucket `most` rows, evenly spread. The means go to the buckets.
pub fn compare<R: Own + Sync>(rows: &[R], most: usize, errors: &mut [Errors]) -> Vec<Compared> {
    let of = |e: &mut Errors| {
        let same: Vec<&R> = rows.iter().filter(|r| r.key() == (&e.chip, &e.dtype, e.bucket)).collect();
        let step = (same.len() / most.max(1)).max(1);
        let chosen: Vec<&R> = same.into_iter().skip(step / 2).step_by(step).take(most).collect();
        let compared = |r: &R| {
            let (chip, dtype) = (e.chip.clone(), e.dtype.clone());
            let (class, images, shape) = (r.class(), r.images(), r.shape());
            let bucket = e.bucket;
            let (ratio, over_least) = (r.vendor_over_own()?, r.vendor_over_least());
            Some(Compared { chip, dtype, bucket, class, images, shape, ratio, over_least })
        };
        let found: Vec<Compared> = chosen.into_par_iter().filter_map(compared).collect();
        e.ours_vs_vendor = geomean(found.iter().map(|c| c.ratio));
        found
    };
    errors.par_iter_mut().flat_map_iter(of).collect()
}

fn geomean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, logs) = ratios.fold((0, 0.0), |(n, sum), r| (n + 1, sum + r.ln()));
    (count > 0).then(|| (logs / f64::from(count)).exp())
}

/// What is said of some rows: how many, their mean, how many of a hundred are well, and the one that is worst.
struct Judged<'a> {
    rows: usize,
    mean: f64,
    well: f64,
    /// Rows that cannot be well: the vendor's time is less than what operations or memory take at least.
    beyond: usize,
    worst: &'a Compared,
}

fn judge<'a>(rows: &[&'a Compared]) -> Option<Judged<'a>> {
    let worst = rows.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let well = rows.iter().filter(|c| c.ratio * WELL >= 1.0).count();
    let beyond = rows.iter().filter(|c| c.over_least.is_some_and(|r| r * WELL < 1.0)).count();
    let mean = geomean(rows.iter().map(|c| c.ratio))?;
    Some(Judged { rows: rows.len(), mean, well: 100.0 * well as f64 / rows.len() as f64, beyond, worst })
}

type Groups<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<String, Vec<&'a Compared>>>;

/// By chip and type, and all of them (an empty kind of shape) or those of a kind, or of a number of images.
fn groups(rows: &[Compared]) -> Groups<'_> {
    let mut out = Groups::new();
    for c in rows {
        let own = out.entry((&c.chip, &c.dtype)).or_default();
        let images = c.images.map(|n| format!("{n:4} images"));
        for kind in [Some(String::new()), Some(c.class.into()), images].into_iter().flatten() {
            own.entry(kind).or_default().push(c);
        }
    }
    out
}

/// Prints a line for each chip and type, and one for each kind of shape.
pub fn print(rows: &[Compared]) {
    if rows.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "chip",
        "type",
        "shapes",
        "rows",
        "vendor / ours",
        "at most 1.1 times",
        "out of reach",
        "slowest",
    ]);
    for ((chip, dtype), kinds) in groups(rows) {
        for (kind, some) in kinds {
            let Some(j) = judge(&some) else { continue };
            table.add_row([
                chip.to_string(),
                dtype.to_string(),
                if kind.is_empty() { "all".into() } else { kind.trim().to_string() },
                j.rows.to_string(),
                format!("{:.2}", j.mean),
                format!("{:.0}%", j.well),
                j.beyond.to_string(),
                format!("{:.2} {}", j.worst.ratio, j.worst.shape),
            ]);
        }
    }
    for c in 3..7 {
        if let Some(column) = table.column_mut(c) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("Our kernels beside the vendor's, by the model:\n{table}");
}

/// The same for machines: the rows of each group that is in `list`, as its `ours`.
pub fn attach(list: &mut [Value], rows: &[Compared]) {
    for group in list {
        let of_group =
            |c: &&Compared| group["chip"] == c.chip && group["dtype"] == c.dtype && group["bucket"] == c.bucket.name();
        let of = |c: &Compared| json!({ "class": c.class, "images": c.images, "shape": c.shape, "vendor_over_ours": c.ratio, "vendor_over_least": c.over_least });
        let ours: Vec<Value> = rows.iter().filter(of_group).map(of).collect();
        group["ours"] = Value::from(ours);
    }
}
