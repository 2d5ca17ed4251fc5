//! What MIOpen's solvers launch and compute.
//!
//! Sources: the names and MIOpen's own descriptions of its solvers; which launches stand beside the products was found in the times.
//!
//! * Implicit matrix products gather pixels into the tiles of one launch. Memory moves what there is of input, weights and output, not the copies that overlapping
//!   windows make, and strides bring L2's whole lines, unless channels come last. Solvers for channels last take other images through transpositions of
//!   input, weights and output. Their depth is not split: with splits the model is further from the measured times.
//! * Winograd's F(o, r) multiplies `o + r - 1` times where `o * r` are asked for, along rows and columns each; longer windows are several
//!   of `r`. Assembly does all of it in one launch on the vector ALU, with a multiply-add a lane (two of f16); solvers of several passes write what they transform,
//!   and multiply by a library's product.
//! * Windows of one point by a library's product are one for each image, in one launch, or with strides one of all images between
//!   transpositions. Other windows are an image at a time: its windows are copied, then multiplied.
//! * Windows of one point by assembly or OpenCL are a product by the vector ALU.
//!
//! Direct convolutions, which have forms from assembly for one window to a loop for each output, and FFT are not modelled.

use super::Row;
use crate::chip::Chip;
use crate::gemm::{Code, Parts, multiply_add_rate};
use crate::shapes::{Kernels, TILES, element_bytes, kernels};

/// How a solver computes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Form {
    /// An implicit matrix product.
    Implicit {
        /// By matrix instructions.
        matrix: bool,
        /// Of channels that come last.
        channels_last: bool,
    },
    /// Winograd's method.
    Winograd {
        /// Pixels of the output that a product makes, along rows and columns.
        outputs: f64,
        /// Elements of a window that it takes.
        window: f64,
        /// Data are transformed, multiplied and transformed back in launches of their own.
        passes: bool,
    },
    /// A library's product for each image, in one launch; windows of one point.
    Product,
    /// The same of all images at once, between transpositions.
    Transposed,
    /// An image at a time, its windows copied.
    Copied,
    /// The vector ALU; windows of one point.
    Point,
}

impl Form {
    /// Of a solver by its name; `None` where it is not modelled.
    pub fn of(solver: &str) -> Option<Form> {
        let has = |part: &str| solver.contains(part);
        let winograd = |outputs, window| Form::Winograd { outputs, window, passes: false };
        Some(match solver {
            "GemmFwd1x1_0_1" => Form::Product,
            "GemmFwd1x1_0_2" => Form::Transposed,
            "GemmFwdRest" => Form::Copied,
            _ if has("MPBidirectWinograd<") => {
                let outputs = solver.split(['<', '-']).nth(1)?.parse().ok()?;
                Form::Winograd { outputs, window: 3.0, passes: true }
            }
            _ if has("Winograd") && has("f3x2") => winograd(3.0, 2.0),
            _ if has("Winograd") => winograd(2.0, 3.0),
            _ if has("ImplicitGemm") || has("Igemm") => {
                Form::Implicit { matrix: has("Xdlops"), channels_last: has("NHWC") }
            }
            _ if has("ConvAsm1x1U") || has("DirectFwd1x1") => Form::Point,
            _ => return None,
        })
    }
}

/// A convolution by a solver, but for the code of its kernels.
pub(crate) struct Work {
    /// The kernels that may be the best for its product.
    parts: Vec<Parts>,
    /// Clocks of a microsecond.
    mhz: f64,
    /// How many such products one after the other.
    times: f64,
    /// Microseconds in which memory moves what is copied beside them.
    copies: f64,
    /// Launches in all.
    pub launches: f64,
}

/// Bytes along the depth of a round of implicit products on the vector ALU: the 21,051 tuned kernels in MIOpen's database of parameters for gfx906 take 4, 8
/// or 16 floats.
const SHALLOW: [f64; 1] = [64.0];

/// Kinds of code for each of which a product's best kernels are kept, and how many of them.
const KINDS: [Code; 6] = [
    Code::IDEAL,
    Code { pace: 2.5, ..Code::IDEAL },
    Code { pace: 1.3, waits: 1.0, traffic: 1.0 },
    Code { pace: 1.3, waits: 5.0, traffic: 1.0 },
    Code { pace: 1.3, waits: 0.0, traffic: 2.5 },
    Code { pace: 1.3, waits: 2.0, traffic: 2.0 },
];
const KEPT: usize = 3;

impl Work {
    /// Of a row's convolution by the solver that won; `None` where that is not modelled.
    pub fn of(chip: &Chip, row: &Row) -> Option<Work> {
        let form = Form::of(&row.solver)?;
        let element = element_bytes(&row.dtype);
        let line = chip.l1_line / element;
        let moved = row.shape.moved(line)? * element;
        let library = || Kernels::best(row.target, &row.dtype).map(|best| Kernels { single: false, ..best });
        let vector = || {
            let packed = if row.dtype == "f32" { 1.0 } else { 2.0 };
            Kernels { split: false, single: false, ..Kernels::of_rate(multiply_add_rate(row.target) * packed) }
        };
        let [m, _, k, batch] = row.product;
        let ([images, channels, ..], [outputs, r, s], [rows, columns]) =
            (row.shape.input, row.shape.kernel, row.shape.output()?);
        let [images, channels, outputs, r, s, rows, columns] =
            [images, channels, outputs, r, s, rows, columns].map(|x| x as f64);
        let pixels = rows * columns;
        let same = Some(moved);
        // Product, kernels, bytes copied beside it, launches, how often.
        let (product, with, copied, launches, times) = match form {
            Form::Implicit { matrix: by_matrix, channels_last } => {
                let spread = if row.channels_last { 1.0 } else { (row.shape.strides[1] as f64).min(line) };
                let of = match by_matrix {
                    true => Kernels::of_matrix(row.target, &row.dtype)?,
                    false => Kernels { depths: &SHALLOW, ..vector() },
                };
                let transposed = channels_last && !row.channels_last;
                let (copied, launches) = if transposed { (2.0 * moved, 4.0) } else { (0.0, 1.0) };
                let with = Kernels { split: false, single: false, tiles: &TILES, moved: same, spread, ..of };
                (row.product, with, copied, launches, 1.0)
            }
            Form::Winograd { outputs: side, window, passes } => {
                let across = side + window - 1.0;
                let tiles = images * (rows / side).ceil() * (columns / side).ceil();
                // Of a window that goes in steps each phase is one of its own.
                let pieces = |side: f64, step: usize| step as f64 * ((side / step as f64).ceil() / window).ceil();
                let depth = channels / batch * pieces(r, row.shape.strides[0]) * pieces(s, row.shape.strides[1]);
                let product = [m, tiles, depth, batch * across * across];
                if passes {
                    let copied = tiles * across * across * (channels + outputs) * element + moved;
                    (product, Kernels { moved: None, ..library()? }, copied, 4.0, 1.0)
                } else {
                    (product, Kernels { split: true, moved: same, ..vector() }, 0.0, 1.0, 1.0)
                }
            }
            Form::Product => ([m, pixels, k, batch * images], Kernels { moved: same, ..library()? }, 0.0, 1.0, 1.0),
            Form::Transposed => (row.product, Kernels { moved: same, ..library()? }, 2.0 * moved, 3.0, 1.0),
            Form::Copied => {
                let copied = images * 2.0 * k * batch * pixels * element;
                ([m, pixels, k, batch], library()?, copied, 2.0 * images, images)
            }
            Form::Point => (row.product, Kernels { tiles: &TILES, moved: same, ..vector() }, 0.0, 1.0, 1.0),
        };
        let all: Vec<Parts> = kernels(chip, &row.dtype, product, with).map(|g| g.parts(chip, row.cus)).collect();
        let mut kept = vec![false; all.len()];
        for code in KINDS {
            let mut order: Vec<(f64, usize)> = all.iter().enumerate().map(|(i, p)| (p.clocks(code).total, i)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            order.iter().take(KEPT).for_each(|(_, i)| kept[*i] = true);
        }
        let parts = all.into_iter().zip(kept).filter_map(|(p, kept)| kept.then_some(p)).collect();
        let copies = copied / chip.dram_bytes_clk() / chip.boost_mhz;
        Some(Work { parts, mhz: chip.sustained_mhz, times, copies, launches })
    }

    /// Microseconds without launches, of kernels with such code.
    pub fn time(&self, code: Code) -> f64 {
        let clocks = self.parts.iter().map(|p| p.clocks(code).total).fold(f64::INFINITY, f64::min);
        clocks / self.mhz * self.times + self.copies * code.traffic
    }
}
