//! Elementwise steps that make an element of two neighbours of their operands: numbers of 4 bits, two in a byte.
//!
//! Operands come in pairs, of which one has the even elements of a line and the other one the odd ones. A workitem loads both as what they
//! are, a run of neighbours, by wide loads, and stores a run of results.

use super::address;
use super::error::Res;
use super::pointwise::{self, WORKGROUP};
use super::unzipped::{self, in_words};
use super::values::Value;
use super::{Arg, Cx, Kernel};
use crate::graph::fused::Access;
use crate::mir::{Gen, Type};

/// Bytes of a store, and of what a workitem loads of a pair at once, at most.
const WIDEST: usize = 16;
const LOADED: usize = 64;

/// Elements that a workitem holds at most.
const HELD: usize = 48;

/// See the module's documentation.
pub(super) struct Paired {
    /// Operands of even elements, and of those between them.
    pairs: Vec<(usize, usize)>,
    /// Neighbours of the result that a workitem stores at once.
    width: usize,
}

/// The operands that have every second element of a line, with those that have the others.
fn pairs(inputs: &[Access], d: usize) -> Vec<(usize, usize)> {
    let other = |a: &Access| {
        let between = |b: &Access| {
            let same = (b.tensor, &b.view.dims, &b.view.strides) == (a.tensor, &a.view.dims, &a.view.strides);
            b.is_plain() && same && b.view.offset == a.view.offset + 1
        };
        (a.is_plain() && a.view.strides[d] == 2).then(|| inputs.iter().position(between)).flatten()
    };
    inputs.iter().enumerate().filter_map(|(i, a)| Some((i, other(a)?))).collect()
}

impl Paired {
    /// How the step is computed this way, if it is.
    pub fn of(cx: &Cx) -> Option<Paired> {
        let (inputs, out) = (&cx.step.inputs, &cx.step.output);
        let d = out.view.rank().checked_sub(1)?;
        let pairs = pairs(inputs, d);
        let positive = inputs.iter().chain([out]).all(|a| a.view.strides.iter().all(|s| *s >= 0));
        if pairs.is_empty() || out.view.strides[d] != 1 || !out.is_plain() || !positive {
            return None;
        }
        let size = |arg: Arg| cx.dtype(arg).size();
        let fits = |width: &usize| {
            let stored = width * size(Arg::Output);
            let run = |i: usize| 2 * width * size(Arg::Input(i));
            let others = (0..inputs.len()).filter(|i| !pairs.iter().any(|p| p.0 == *i || p.1 == *i));
            out.view.dims[d].is_multiple_of(*width)
                && pointwise::enough(cx, 2 * width)
                && 2 * width * pairs.len() <= HELD
                && stored <= WIDEST
                && in_words(cx.dtype(Arg::Output), out, stored, &[d])
                && pairs
                    .iter()
                    .all(|(i, _)| run(*i) <= LOADED && in_words(cx.dtype(Arg::Input(*i)), &inputs[*i], run(*i), &[d]))
                && others.into_iter().all(|i| {
                    let a = &inputs[i];
                    a.is_plain() && a.view.strides[d] == 0 || pointwise::is_dense(cx.graph, a, *width)
                })
        };
        let width = [16, 8, 4].into_iter().find(fits)?;
        Some(Paired { pairs, width })
    }

    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let out = &cx.step.output;
        let d = out.view.rank() - 1;
        let mut steps = out.view.dims.clone();
        steps[d] /= self.width;
        let units: usize = steps.iter().product();
        let places = pointwise::places(cx, units, pointwise::bytes_of_place(cx) * self.width, |places| {
            places * 2 * self.width * self.pairs.len() <= HELD
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
            let mut operands: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
            for &(even, odd) in &self.pairs {
                let (t, buf) = (cx.dtype(Arg::Input(even)), w.buffer(cx, Arg::Input(even))?);
                let at = address::offset(&mut w.b, &cx.step.inputs[even].view, t.size(), &coords);
                let both = unzipped::load_together(&mut w, t, buf, at, 2 * self.width);
                operands[even] = both.iter().step_by(2).copied().collect();
                operands[odd] = both.iter().skip(1).step_by(2).copied().collect();
            }
            let inside = (!units.is_multiple_of(per_group as usize))
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(units as u32).into(), index.into()]));
            loaded.push((coords, operands, inside));
        }
        for (coords, mut operands, inside) in loaded {
            let mut known = Vec::new();
            for (i, held) in operands.iter_mut().enumerate().filter(|(_, held)| held.is_empty()) {
                *held = pointwise::load(&mut w, cx, i, &coords, self.width, &mut known)?;
            }
            let mut at = address::offset(&mut w.b, &out.view, cx.dtype(Arg::Output).size(), &coords);
            if let Some(mask) = inside {
                let reg = at.vector(&mut w.b);
                at.reg = Some(w.b.guard(mask, reg));
            }
            pointwise::finish(&mut w, cx, &operands, self.width, at)?;
        }
        let flops = (out.view.len() * cx.step.expr.cost()) as u64;
        Ok(vec![w.finish([(units as u32).div_ceil(per_group), 1, 1], flops)])
    }
}
