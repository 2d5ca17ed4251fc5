//! A convolution as a product of weights and its image, of which no matrix is made: rows are output channels of a group, columns positions of an image or of
//! all of them ([`Positions`]).
//!
//! Where results of a position are neighbours in memory, and not those of a channel, it is the other way round ([`of_matrices`]): positions are rows and output
//! channels columns, so that what a lane or a wave stores at once lies together.

use super::{Positions, Term};
use crate::graph::collapse;
use crate::graph::fused::{Access, Conv, Step};
use crate::graph::view::View;
use crate::kernels::address::{self, Offset};
use crate::kernels::choice::{self, Extents, Together};
use crate::kernels::gemm::{self, Walk};
use crate::kernels::tile::Types;
use crate::kernels::{Arg, Cx, Writer, epilogue};
use crate::mir::Part;
use barewave_isa::matrix::Layout;

/// Images are put together where that takes so much less: both are estimates, and their lines are no longer whole.
const WORTH_MERGING: f64 = 0.97;

/// Bytes come in words where that takes so much less: of 34 convolutions on nine targets 5% less in the geometric mean, at most a tenth longer.
const WORTH_WORDS: f64 = 0.9;

/// Clocks of a compute unit for a result that lies beside those of other channels while neighbouring lanes have those of other positions: what storing 12.8 million so
/// takes longer by the cycle model, of RDNA before 4, of RDNA 4, of what has accumulation registers, which is as quick or quicker so, and of others.
const STORED_ACROSS: [f64; 4] = [3.0, 0.2, 0.0, 1.0];

/// Clocks that a convolution takes longer where lanes have results of other positions, and those of other channels are neighbours in memory.
pub(super) fn stored_across(cx: &Cx) -> f64 {
    let (out, info) = (&cx.step.output.view, cx.target.info());
    let each = match info.wmma {
        Some(Layout::Wmma12) => STORED_ACROSS[1],
        None if info.max_agprs > 0 => STORED_ACROSS[2],
        _ if info.wave_size == 32 => STORED_ACROSS[0],
        _ => STORED_ACROSS[3],
    };
    if out.strides[1] == 1 && out.dims[1] > 1 { each * out.len() as f64 / f64::from(cx.target.cus()) } else { 0.0 }
}

/// Such a product.
#[derive(Clone)]
pub(super) struct Implicit<'a> {
    cx: &'a Cx<'a>,
    conv: &'a Conv,
    positions: Positions,
    /// The step with results and operands of its expression as matrices of positions and channels, where positions are rows.
    matrices: Option<Step>,
}

impl<'a> Implicit<'a> {
    /// The best one.
    pub fn of(cx: &'a Cx<'a>, conv: &'a Conv, types: Types) -> Implicit<'a> {
        let product = Implicit::of_positions(cx, conv, types);
        if product.matrices.is_none() {
            return product;
        }
        let across = Implicit { matrices: None, ..product.clone() };
        if across.clocks(types) + stored_across(cx) <= product.clocks(types) { across } else { product }
    }

    /// Of the positions that are best.
    fn of_positions(cx: &'a Cx<'a>, conv: &'a Conv, types: Types) -> Implicit<'a> {
        let (out, terms) = (&cx.step.output.view, Term::all(conv));
        let with = |positions| Implicit::with(cx, conv, positions);
        if out.dims[0] == 1 || conv.before.is_some() {
            return with(Positions::Image);
        }
        if !terms.iter().all(|t| t.is_plain(cx)) {
            return with(Positions::Images);
        }
        let line = |t: &Term| t.x(cx).dims[2..].iter().all(|d| *d == 1) && t.x(cx).strides[1] == 1;
        if conv.groups == 1 && terms.iter().all(line) {
            return with(Positions::Lines);
        }
        // An image's positions cost less to load than those that are gathered.
        let [one, all] = [Positions::Image, Positions::Images].map(with);
        if all.clocks(types) < WORTH_MERGING * one.clocks(types) { all } else { one }
    }

    /// Clocks of the quickest way to compute it.
    fn clocks(&self, types: Types) -> f64 {
        quickest(self.cx, types, &self.extents(), self.least_width())
    }

    /// Of these positions.
    pub fn with(cx: &'a Cx<'a>, conv: &'a Conv, positions: Positions) -> Implicit<'a> {
        let out = &cx.step.output.view;
        let several = out.dims[2..].iter().any(|n| *n > 1) || positions.merged();
        let across = conv.groups == 1 && several && out.dims[1] > 1 && out.strides[1] == 1;
        let matrices = if across { of_matrices(cx.step, positions.merged()) } else { None };
        Implicit { cx, conv, positions, matrices }
    }

    /// All images are in one product.
    pub fn merged(&self) -> bool {
        self.positions.merged()
    }

    /// All images are matrices of a position each.
    pub fn has_lines_of_positions(&self) -> bool {
        self.positions == Positions::Lines
    }

    /// They are gathered, also where the window is a point.
    pub fn gathers(&self) -> bool {
        self.positions == Positions::Images
    }

    /// Which operand the image is.
    pub fn image(&self) -> usize {
        usize::from(self.matrices.is_none())
    }

    /// What the weights and the image have, as it is of the left and of the right operand.
    pub fn in_order<T>(&self, weights: T, image: T) -> [T; 2] {
        if self.matrices.is_some() { [image, weights] } else { [weights, image] }
    }

    /// What the expression and the results are walked by.
    pub fn results(&self) -> Cx<'_> {
        Cx { step: self.matrices.as_ref().unwrap_or(self.cx.step), ..*self.cx }
    }

    /// How they are walked.
    pub fn walk(&self) -> Walk {
        let out = &self.cx.step.output.view;
        let (rank, rows) = (out.rank(), out.dims[1] / self.conv.groups);
        match (&self.matrices, self.merged()) {
            (Some(step), true) => walk_of(step),
            (Some(step), false) => {
                Walk { m_dim: 1, rows: step.output.view.dims[1], n_dims: 2..3, swapped: false, positions: None }
            }
            (None, true) => Walk { m_dim: 0, rows, n_dims: 1..rank, swapped: true, positions: None },
            (None, false) => Walk { m_dim: 1, rows, n_dims: 2..rank, swapped: false, positions: None },
        }
    }

    /// Offset of an access to results from image and group.
    pub fn outer(&self, w: &mut Writer, view: &View, size: usize, (image, group): (Option<Part>, Part)) -> Offset {
        let mut outer = view.clone();
        let image = image.filter(|_| view.dims[0] > 1);
        let coords = if self.matrices.is_some() {
            outer.dims.truncate(1);
            outer.strides.truncate(1);
            vec![image]
        } else {
            let channels = self.cx.step.output.view.dims[1] / self.conv.groups;
            outer.dims = vec![view.dims[0], view.dims[1] / channels];
            outer.strides = vec![view.strides[0], view.strides[1] * channels as i64];
            vec![image, (outer.dims[1] > 1).then_some(group)]
        };
        address::offset(&mut w.b, &outer, size, &coords)
    }

    /// The image is the right operand as it is, with lines of whole words: what [`Extents::lines`] asks for, since weights are packed.
    fn has_lines(&self) -> bool {
        let ([term], cx) = (&Term::all(self.conv)[..], self.cx) else { return false };
        let (x, size) = (term.x(cx), cx.dtype(Arg::Input(term.input)).size() as i64);
        let positions: usize = x.dims[2..].iter().product();
        let words = [x.offset, x.strides[0], x.strides[1]].iter().all(|n| *n >= 0 && (n * size) % 4 == 0);
        let as_it_is = self.positions == Positions::Image && self.matrices.is_none();
        let plain = as_it_is && term.is_plain(cx) && self.conv.before.is_none() && x.strides[1] > 1;
        plain && words && positions.is_multiple_of(4) && term.has_constant_weights(cx)
    }

    /// An image is an operand as it is, with lines that begin or end within words: its elements are loaded one by one, but for bytes.
    pub fn comes_apart(&self) -> bool {
        let apart = |t: Term| t.is_apart(self.cx) && !t.is_cut(self.cx);
        self.positions == Positions::Image && Term::all(self.conv).into_iter().any(apart)
    }

    /// The product: with lines of windows in words, where that is quicker.
    pub fn extents(&self) -> Extents {
        let (cx, bytes) = (self.cx, self.extents_of(false));
        let ([term], Ok(types)) = (&Term::all(self.conv)[..], gemm::types(cx)) else { return bytes };
        let least = self.least_width();
        if least == 1 || self.conv.before.is_some() || !term.may_come_in_words(cx, types) {
            return bytes;
        }
        let words = self.extents_of(true);
        let clocks = |e: &Extents| quickest(cx, types, e, least);
        if clocks(&words) < WORTH_WORDS * clocks(&bytes) { words } else { bytes }
    }

    fn extents_of(&self, in_words: bool) -> Extents {
        let (cx, conv, results) = (self.cx, self.conv, self.results());
        let (out, groups) = (&cx.step.output.view, conv.groups);
        let terms = Term::all(conv);
        let k = terms.iter().map(|t| t.depth_of(cx, in_words)).sum();
        let constant = terms[0].has_constant_weights(cx);
        let (images, positions) = (out.dims[0], out.dims[2..].iter().product::<usize>());
        let (batches, of_product) = if self.merged() { (1, images * positions) } else { (images, positions) };
        let lines = self.positions == Positions::Lines;
        // Where images are gathered from, lanes are beside each other wherever that is.
        let pitch = match self.least_width() {
            _ if lines => k,
            1 => positions,
            _ => 0,
        };
        let [m, n] = self.in_order(out.dims[1] / groups, of_product);
        let weights_are_deep = k > 1 && (!constant || cx.dtype(Arg::Input(1)).size() < 4);
        let loads = if self.comes_apart() { Together::ONE } else { Together::ANY };
        let walk = self.walk();
        Extents {
            batches: batches * groups,
            m,
            n,
            k,
            bytes: gemm::operand_bytes(cx, terms.len()) + terms[0].between_lines(cx, in_words)
                - terms.iter().map(|t| t.passed_over(cx)).sum::<usize>(),
            stored: cx.dtype(Arg::Output).size(),
            expression: epilogue::clocks(cx),
            deep: self.in_order(weights_are_deep, lines && k > 1).into(),
            pitch: self.in_order(k, pitch),
            bands: false,
            shares: false,
            apart: gemm::stores_apart(&results, &walk),
            in_rows: gemm::stores_together(&results, &walk),
            transposed: [false; 2],
            straight: false,
            loads: self.in_order(Together::ANY, loads),
            sparse: None,
            scaled: false,
            few: false,
            lines: self.has_lines(),
            image: self.image(),
            gathered: (self.least_width() > 1).then(|| terms[0].gathered(cx, in_words)),
            pairs: false,
        }
    }

    /// The least width of a tile of the image: gathering loaders need whole wavefronts.
    pub fn least_width(&self) -> u32 {
        let dense = !self.gathers() && Term::all(self.conv).iter().all(|t| t.is_plain(self.cx));
        if dense { 1 } else { self.cx.target.info().wave_size }
    }
}

/// Clocks of the quickest way.
fn quickest(cx: &Cx, types: Types, e: &Extents, least: u32) -> f64 {
    choice::candidates(cx.target, types, e, least, None).candidates.first().map_or(f64::MAX, |c| c.clocks)
}

/// The step with its results, and what its expression reads, as matrices of positions and channels ([`collapse::of_positions`]).
pub(super) fn of_matrices(step: &Step, merged: bool) -> Option<Step> {
    let operands = step.kind.operands();
    let all = || step.inputs[operands..].iter().chain([&step.output]);
    let plain = all().all(Access::is_plain);
    let matrices = plain.then(|| collapse::of_positions(all().map(|a| &a.view), merged))??;
    let mut step = step.clone();
    let accesses = step.inputs[operands..].iter_mut().chain([&mut step.output]);
    accesses.zip(matrices).for_each(|(a, view)| a.view = view);
    Some(step)
}

/// How the results of such a step are walked, of all images.
pub(super) fn walk_of(step: &Step) -> Walk {
    let dims = &step.output.view.dims;
    let m_dim = dims.len() - 2;
    let (rows, positions) = (dims[..=m_dim].iter().product(), (m_dim > 0).then(|| dims[m_dim]));
    Walk { m_dim, rows, n_dims: m_dim + 1..dims.len(), swapped: false, positions }
}
