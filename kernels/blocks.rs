//! What elementwise kernels share whose workitems each compute a block of neighbours, of one dimension or two, in several places:
//! [`paired`](super::paired), [`unzipped`](super::unzipped) and [`zipped`](super::zipped).
//!
//! Blocks are numbered by workitem. A workitem's places are a workgroup apart; it loads what all of them need before it computes any.

use super::address::{self, Offset};
use super::error::Res;
use super::pointwise::{self, WORKGROUP};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Access;
use crate::mir::{Buffer, Gen, Part, Type};
use crate::tensor::DType;

/// Bytes of one access, at most.
pub(super) const WIDEST: usize = 16;

/// The blocks of a step's result.
pub(super) struct Blocks {
    /// Their extents, by dimension: `(dimension, elements)`.
    block: Vec<(usize, usize)>,
    /// How many there are along each dimension.
    steps: Vec<usize>,
    /// Places of each workitem.
    places: u32,
}

/// One place of a workitem.
pub(super) struct Place<T> {
    /// Where its block begins; `None` where that is the first coordinate.
    pub coords: Vec<Option<Part>>,
    /// What was loaded there.
    pub loaded: T,
    /// Mask of the workitems whose block there is, where some have none.
    inside: Option<Part>,
}

impl Blocks {
    /// Blocks of so many elements along these dimensions, which divide the result's, in as many places as hide that waves begin slowly and `would` do.
    pub fn of(cx: &Cx, block: &[(usize, usize)], would: impl Fn(usize) -> bool) -> Blocks {
        let mut steps = cx.step.output.view.dims.clone();
        for &(d, extent) in block {
            steps[d] /= extent;
        }
        let (units, elements) = (steps.iter().product(), block.iter().map(|b| b.1).product::<usize>());
        let places = pointwise::places(cx, units, pointwise::bytes_of_place(cx) * elements, would);
        Blocks { block: block.to_vec(), steps, places: places as u32 }
    }

    /// The step's kernel: what `load` makes of the first coordinates of a block, `store` computes and stores.
    pub fn lower<T>(
        &self,
        cx: &Cx,
        mut load: impl FnMut(&mut Writer, &[Option<Part>]) -> Res<T>,
        mut store: impl FnMut(&mut Writer, Place<T>) -> Res<()>,
    ) -> Res<Vec<Kernel>> {
        let units: usize = self.steps.iter().product();
        let per_group = WORKGROUP * self.places;
        let mut w = cx.kernel(WORKGROUP);
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        let first = w.b.mad(group, per_group, item);
        let mut places = Vec::new();
        for place in 0..self.places {
            let index = if place > 0 { w.b.add(first, place * WORKGROUP) } else { first };
            let mut coords = address::coordinates_of_item(&mut w.b, index, &self.steps);
            for &(d, extent) in self.block.iter().filter(|b| b.1 > 1) {
                coords[d] = coords[d].map(|c| w.b.mul(c, extent as u32));
            }
            let loaded = load(&mut w, &coords)?;
            let inside = (!units.is_multiple_of(per_group as usize))
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(units as u32).into(), index.into()]));
            places.push(Place { coords, loaded, inside });
        }
        for place in places {
            store(&mut w, place)?;
        }
        let flops = (cx.step.output.view.len() * cx.step.expr.cost()) as u64;
        Ok(vec![w.finish([(units as u32).div_ceil(per_group), 1, 1], flops)])
    }
}

impl<T> Place<T> {
    /// Where the result's element lies that is so many coordinates along dimension `d` from the block's first: out of bounds for workitems without a
    /// block.
    pub fn of_result(&self, w: &mut Writer, cx: &Cx, (d, along): (usize, usize)) -> Offset {
        let (view, size) = (&cx.step.output.view, cx.dtype(Arg::Output).size());
        let mut at = address::offset(&mut w.b, view, size, &self.coords);
        at.imm = at.imm.wrapping_add((along as i64 * view.strides[d]) as u32 * size as u32);
        if let Some(mask) = self.inside {
            at = at.within(&mut w.b, mask);
        }
        at
    }
}

/// Runs of so many bytes begin at whole words, along any dimension but these.
pub(super) fn in_words(t: DType, a: &Access, run: usize, but: &[usize]) -> bool {
    let whole = |n: i64| (n * t.size() as i64) % 4 == 0;
    let others = (0..a.view.rank()).filter(|d| !but.contains(d) && a.view.dims[*d] > 1);
    run.is_multiple_of(4) && whole(a.view.offset) && others.map(|d| a.view.strides[d]).all(whole)
}

/// So many elements that lie together, as few accesses load them.
pub(super) fn load_together(w: &mut Writer, t: DType, buf: Buffer, at: Offset, all: usize) -> Vec<Value> {
    let mut out = Vec::new();
    while out.len() < all {
        let rest = (all - out.len()).min(WIDEST / t.size());
        let count = 1 << rest.ilog2();
        let at = Offset { imm: at.imm + (out.len() * t.size()) as u32, ..at };
        out.extend(values::load_some(&mut w.b, t, buf, at, count));
    }
    out
}
