//! Elementwise steps whose operands repeat along an outer dimension: the angles of a rotation that all heads share, a mask, positions that are added
//! to every image.
//!
//! Where more than the caches hold lies between two times that a part of such an operand is read, it comes from memory each time. So the dimension is walked
//! further inside: what lies inside of it is cut into short sections, and all of its coordinates take a section before the next one. Bytes of
//! memory are counted for either order; only the order in which workitems are numbered changes.

use crate::graph::fused::{Access, Step};
use crate::graph::view::View;
use crate::kernels::Cx;
use crate::kernels::choice::Machine;

/// Of the cache, what of all that is touched is there at the end, what is there for what lies between two times that something is read beside what all
/// workgroups are about to touch, and what for a section.
const ALL: f64 = 0.5;
const KEPT: f64 = 0.0625;
const SECTION: f64 = 0.125;

/// Bytes that another order leaves of those of memory at most, for it to be worth while.
const LEAVES: f64 = 0.97;

/// Elements that lie together in a section come in so many: workitems have runs of them.
const TOGETHER: usize = 64;

/// Sections of a dimension at most.
const SECTIONS: usize = 1 << 14;

/// Bytes of the result that a section has at least of each coordinate of the dimension: about those of a workgroup, so that workgroups next to each other read
/// the same.
const RUN: usize = 1 << 12;

/// The operand is where it was when only this coordinate changes.
fn repeats(a: &Access, d: usize) -> bool {
    std::iter::once(&a.view).chain(a.indirect.iter().map(|t| &t.view)).all(|v| v.strides[d] == 0)
}

/// Different bytes of an operand over some dimensions.
fn unique(cx: &Cx, a: &Access, dims: std::ops::Range<usize>) -> f64 {
    let size = cx.graph.tensor(a.tensor).dtype.size() as f64;
    dims.filter(|d| !repeats(a, *d)).map(|d| a.view.dims[d] as f64).product::<f64>() * size
}

/// Different bytes of all operands and the result over the dimensions from `d` on.
fn touched(cx: &Cx, step: &Step, d: usize) -> f64 {
    let all = step.inputs.iter().chain([&step.output]);
    all.map(|a| unique(cx, a, d..a.view.rank())).sum()
}

/// Bytes that come from memory, where a cache keeps so many.
fn from_memory(cx: &Cx, step: &Step, kept: f64) -> f64 {
    let rank = step.output.view.rank();
    let again = |a: &Access, d: &usize| repeats(a, *d) && touched(cx, step, d + 1) > kept;
    let of = |a: &Access| {
        let times: f64 = (0..rank).filter(|d| again(a, d)).map(|d| a.view.dims[d] as f64).product();
        unique(cx, a, 0..rank) * times
    };
    step.inputs.iter().chain([&step.output]).map(of).sum()
}

/// The view with dimension `at` in sections of so many coordinates, and dimension `d` moved between these and what they have.
fn cut(view: &View, d: usize, at: usize, section: usize) -> View {
    let walk = |i: usize| (view.dims[i], view.strides[i]);
    let (all, stride) = walk(at);
    let mut walks: Vec<(usize, i64)> = (0..at).filter(|i| *i != d).map(walk).collect();
    walks.extend([(all / section, stride * section as i64), walk(d), (section, stride)]);
    walks.extend((at + 1..view.rank()).map(walk));
    let (dims, strides) = walks.into_iter().unzip();
    View { offset: view.offset, dims, strides }
}

/// The step in an order in which less comes from memory, where there is one.
pub(super) fn reordered(cx: &Cx) -> Option<Step> {
    let (step, rank) = (cx.step, cx.step.output.view.rank());
    let dims = &step.output.view.dims;
    let cache = Machine::of(cx.target).cache;
    let again = |d: &usize| dims[*d] > 1 && step.inputs.iter().any(|a| repeats(a, *d));
    if touched(cx, step, 0) <= ALL * cache || step.inputs.iter().any(|a| a.guard.is_some()) {
        return None;
    }
    let of = |d: usize| {
        let at = (d + 1..rank).find(|at| touched(cx, step, at + 1) <= SECTION * cache)?;
        let inside: usize = dims[at + 1..].iter().product();
        let each = cx.graph.tensor(step.output.tensor).dtype.size() * inside;
        let fits = |n: &usize| {
            let together = at + 1 < rank || n.is_multiple_of(TOGETHER);
            let whole = dims[at].is_multiple_of(*n) && *n < dims[at] || *n == dims[at] && at > d + 1;
            whole && together && n * each >= RUN
        };
        let most = (SECTION * cache / touched(cx, step, at + 1)) as usize;
        let mut sections = (1..=SECTIONS).filter(|n| dims[at].is_multiple_of(*n)).map(|n| dims[at] / n);
        let section = sections.rfind(|n| *n <= most && fits(n))?;
        let mut other = step.clone();
        for a in other.inputs.iter_mut().chain([&mut other.output]) {
            a.view = cut(&a.view, d, at, section);
            a.indirect.iter_mut().for_each(|t| t.view = cut(&t.view, d, at, section));
        }
        Some((from_memory(cx, &other, KEPT * cache), other))
    };
    let best = (0..rank.saturating_sub(1)).filter(again).filter_map(of).min_by(|a, b| a.0.total_cmp(&b.0));
    let (bytes, other) = best?;
    (bytes <= LEAVES * from_memory(cx, step, KEPT * cache)).then_some(other)
}
