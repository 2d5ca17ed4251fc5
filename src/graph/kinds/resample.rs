//! Images that are resized: weighted sums of neighbours in rows and columns.

use super::{Inferred, Kind, Operand};
use crate::graph::fused::Step;
use crate::graph::interpret::{Data, Error, Operands, each};
use crate::graph::rules::Broken;
use crate::graph::view::View;
use crate::tensor::DType;
use std::fmt;

/// What each place of a dimension is made of: as many neighbours of each, one behind the other. Outside, the elements at the edges are repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct Taps {
    /// Neighbours of a place.
    pub count: usize,
    /// The first one of each place.
    pub first: Vec<i32>,
    /// Weights of the neighbours of each place.
    pub weights: Vec<f32>,
}

/// `O[c..,i,j]` = the sum over rows `a` and columns `b` of `in0[c..,a,b]` times the weight of `a` for `i` and that of `b` for `j`; or `O[c..,i,j,q]` of
/// `in0[c..,a,b,q]`. in0 is dense, and a float of 32 bits or 16.
#[derive(Clone, Debug, PartialEq)]
pub struct Resample {
    /// Rows for each row of the result.
    pub rows: Taps,
    /// Columns for each column of the result.
    pub columns: Taps,
    /// Columns have several elements.
    pub channels_last: bool,
}

impl Taps {
    /// Every element for itself.
    pub fn same(extent: usize) -> Taps {
        Taps { count: 1, first: (0..extent as i32).collect(), weights: vec![1.0; extent] }
    }

    /// Places.
    pub fn places(&self) -> usize {
        self.first.len()
    }

    /// Neighbours of a place in a dimension of so many elements, and their weights.
    pub fn of(&self, place: usize, extent: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let weights = &self.weights[place * self.count..][..self.count];
        let inside = move |at: i64| at.clamp(0, extent as i64 - 1) as usize;
        weights.iter().enumerate().map(move |(k, w)| (inside(i64::from(self.first[place]) + k as i64), *w))
    }
}

impl Resample {
    /// Neighbours of a place, at most.
    pub const MOST: usize = 16;

    /// Dimensions in front of rows and columns, of so many.
    pub fn outer(&self, rank: usize) -> Option<usize> {
        rank.checked_sub(2 + usize::from(self.channels_last))
    }

    /// Whether elements of a type are resampled.
    pub fn takes(dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
    }
}

impl Kind for Resample {
    fn name(&self) -> &'static str {
        "resample"
    }

    fn operands(&self) -> usize {
        1
    }

    fn infer(&self, operands: &[Operand<'_>], rank: usize) -> Result<Option<Inferred>, Broken> {
        let (t, dims) = operands[0];
        let counts = [&self.rows, &self.columns].map(|taps| taps.count);
        let fits = |n: usize| (1..=Resample::MOST).contains(&n);
        let Some(outer) = self.outer(dims.len()).filter(|_| rank == dims.len() && Resample::takes(t)) else {
            return Err(Broken::Fit(format!("resamples {t} of {dims:?}")));
        };
        if dims.contains(&0) || !counts.into_iter().all(fits) {
            return Err(Broken::Fit(format!("resamples {counts:?} neighbours of {dims:?}")));
        }
        let known = [&dims[..outer], &[self.rows.places(), self.columns.places()], &dims[outer + 2..]].concat();
        Ok(Some(Inferred::new(t, &known)))
    }

    fn check(&self, step: &Step) -> Result<(), Broken> {
        let whole = [&self.rows, &self.columns].iter().all(|t| t.weights.len() == t.count * t.places());
        match step.inputs[0].view.is_dense() && step.inputs[0].is_plain() {
            true if whole => Ok(()),
            true => Err(Broken::Fit("places without weights".into())),
            false => Err(Broken::Layout("an image is not dense")),
        }
    }

    fn cut(&self, _: usize, d: usize, rank: usize) -> Option<Option<usize>> {
        self.outer(rank).filter(|outer| d < *outer).map(|_| Some(d))
    }

    fn interpret(&self, at: &Operands<'_>) -> Result<Option<Data>, Error> {
        let (x, view) = (at.floats(0)?, at.view(0));
        let dims = at.dims();
        let outer = self.outer(dims.len()).unwrap_or(0);
        let (height, width) = (view.dims[outer], view.dims[outer + 1]);
        let inner: usize = dims[outer + 2..].iter().product();
        let mut out = Vec::with_capacity(dims.iter().product());
        each(&dims[..outer], |c| {
            let plane = View { offset: view.offset, dims: c.to_vec(), strides: view.strides[..outer].to_vec() }.at(c);
            let plane = &x[plane as usize..][..height * width * inner];
            each(&[dims[outer], dims[outer + 1], inner], |at| {
                let of_row = |a: usize| {
                    let of = |(b, w): (usize, f32)| plane[(a * width + b) * inner + at[2]] * f64::from(w);
                    self.columns.of(at[1], width).map(of).sum::<f64>()
                };
                out.push(self.rows.of(at[0], height).map(|(a, w)| of_row(a) * f64::from(w)).sum());
            });
        });
        Ok(Some(Data::Float(out)))
    }

    fn collapse(&self, _: &mut Step) {
        // Rows and columns have a meaning.
    }

    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = [&self.rows, &self.columns].map(|t| (t.places(), t.count));
        writeln!(f, "    {} rows of {} neighbours, {} columns of {}", rows.0, rows.1, columns.0, columns.1)
    }
}
