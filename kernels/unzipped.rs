//! Elementwise steps with operands in which a few elements of another dimension lie between the result's neighbours: pixels of a block that go to
//! channels (SpaceToDepth), channels that come last and go first.
//!
//! A workitem loads what lies together of such an operand, whole words of all coordinates of that dimension, and stores a run of
//! neighbours for each of them: both go over memory in whole lines, with no way through LDS.

use super::address::{self, Offset};
use super::error::Res;
use super::pointwise::{self, WORKGROUP};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Access;
use crate::mir::{Buffer, Gen, Type};
use crate::tensor::DType;

/// Extent of the dimension between neighbours, at most.
const MOST: usize = 8;

/// Elements that a workitem computes at most.
const HELD: usize = 48;

/// Bytes of one access, and of what a workitem loads at once, at most.
const WIDEST: usize = 16;
const LOADED: usize = 64;

/// See the module's documentation.
pub(super) struct Unzipped {
    /// The operands that are taken apart.
    operands: Vec<usize>,
    /// The dimension that they are dense in, and its extent.
    dense: usize,
    apart: usize,
    /// Neighbours of the result that a workitem stores at once.
    width: usize,
}

/// The dimension of few coordinates that lie between an operand's neighbours.
fn between(a: &Access) -> Option<usize> {
    let d = a.view.rank().checked_sub(1)?;
    let dense = (0..d).find(|j| a.view.strides[*j] == 1 && a.view.dims[*j] > 1)?;
    let n = a.view.dims[dense];
    (a.is_plain() && n <= MOST && a.view.strides[d] == n as i64).then_some(dense)
}

/// Runs of so many bytes begin at whole words, along any dimension but these.
pub(super) fn in_words(t: DType, a: &Access, run: usize, but: &[usize]) -> bool {
    let whole = |n: i64| (n * t.size() as i64) % 4 == 0;
    let others = (0..a.view.rank()).filter(|d| !but.contains(d) && a.view.dims[*d] > 1);
    run.is_multiple_of(4) && whole(a.view.offset) && others.map(|d| a.view.strides[d]).all(whole)
}

impl Unzipped {
    /// How the step is computed this way, if it is.
    pub fn of(cx: &Cx) -> Option<Unzipped> {
        let out = &cx.step.output;
        let d = out.view.rank().checked_sub(1)?;
        let found: Vec<(usize, usize)> =
            cx.step.inputs.iter().enumerate().filter_map(|(i, a)| Some((i, between(a)?))).collect();
        let dense = found.first()?.1;
        let apart = out.view.dims[dense];
        let positive = cx.step.inputs.iter().chain([out]).all(|a| a.view.strides.iter().all(|s| *s >= 0));
        if out.view.strides[d] != 1 || !out.is_plain() || !positive || found.iter().any(|f| f.1 != dense) {
            return None;
        }
        let operands: Vec<usize> = found.into_iter().map(|f| f.0).collect();
        let size = |arg: Arg| cx.dtype(arg).size();
        let fits = |width: &usize| {
            let run = |i: &usize| width * apart * size(Arg::Input(*i));
            let stored = width * size(Arg::Output);
            out.view.dims[d].is_multiple_of(*width)
                && pointwise::enough(cx, width * apart)
                && width * apart <= HELD
                && stored <= WIDEST
                && in_words(cx.dtype(Arg::Output), out, stored, &[d])
                && operands.iter().all(|i| {
                    let a = &cx.step.inputs[*i];
                    run(i) <= LOADED && in_words(cx.dtype(Arg::Input(*i)), a, run(i), &[d, dense])
                })
                && (0..cx.step.inputs.len()).filter(|i| !operands.contains(i)).all(|i| {
                    let a = &cx.step.inputs[i];
                    a.view.strides[d] == 0 && a.indirect.is_empty() || pointwise::is_dense(cx.graph, a, *width)
                })
        };
        let width = [16, 8, 4, 2].into_iter().find(fits)?;
        Some(Unzipped { operands, dense, apart, width })
    }

    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let out = &cx.step.output;
        let d = out.view.rank() - 1;
        let mut steps = out.view.dims.clone();
        steps[self.dense] = 1;
        steps[d] /= self.width;
        let units: usize = steps.iter().product();
        let size = |arg: Arg| cx.dtype(arg).size();
        let places = pointwise::places(cx, units, pointwise::bytes_of_place(cx) * self.width * self.apart, |places| {
            places * self.width * self.apart * self.operands.len() <= HELD
        });
        let per_group = WORKGROUP * places as u32;
        let mut w = cx.kernel(WORKGROUP);
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        let first = w.b.mad(group, per_group, item);
        let mut loaded = Vec::new();
        for place in 0..places as u32 {
            let index = if place > 0 { w.b.add(first, place * WORKGROUP) } else { first };
            let mut coords = address::coordinates_of_item(&mut w.b, index, &steps);
            coords[d] = coords[d].map(|c| w.b.mul(c, self.width as u32));
            let mut operands = Vec::new();
            for &i in &self.operands {
                let t = cx.dtype(Arg::Input(i));
                let at = address::offset(&mut w.b, &cx.step.inputs[i].view, t.size(), &coords);
                operands.push((i, self.load(&mut w, cx, i, at)?));
            }
            let inside = (!units.is_multiple_of(per_group as usize))
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(units as u32).into(), index.into()]));
            loaded.push((coords, operands, inside));
        }
        for (coords, taken, inside) in loaded {
            for part in 0..self.apart {
                let mut coords = coords.clone();
                coords[self.dense] = (part > 0).then(|| w.b.scalar(part as u32));
                let mut known = Vec::new();
                let mut operands = Vec::new();
                for i in 0..cx.step.inputs.len() {
                    operands.push(match taken.iter().find(|t| t.0 == i) {
                        Some((_, all)) => all.iter().skip(part).step_by(self.apart).copied().collect(),
                        None => pointwise::load(&mut w, cx, i, &coords, self.width, &mut known)?,
                    });
                }
                coords[self.dense] = None;
                let mut at = address::offset(&mut w.b, &out.view, size(Arg::Output), &coords);
                at.imm += (part as i64 * out.view.strides[self.dense]) as u32 * size(Arg::Output) as u32;
                if let Some(mask) = inside {
                    let reg = at.vector(&mut w.b);
                    at.reg = Some(w.b.guard(mask, reg));
                }
                pointwise::finish(&mut w, cx, &operands, self.width, at)?;
            }
        }
        let flops = (out.view.len() * cx.step.expr.cost()) as u64;
        Ok(vec![w.finish([(units as u32).div_ceil(per_group), 1, 1], flops)])
    }

    /// What lies together of an operand, as few accesses load it.
    fn load(&self, w: &mut Writer, cx: &Cx, i: usize, at: Offset) -> Res<Vec<Value>> {
        let (t, buf) = (cx.dtype(Arg::Input(i)), w.buffer(cx, Arg::Input(i))?);
        Ok(load_together(w, t, buf, at, self.width * self.apart))
    }
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
