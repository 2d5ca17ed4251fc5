//! Elementwise steps that make an element of two neighbours of their operands: numbers of 4 bits, two in a byte.
//!
//! Operands come in pairs, of which one has the even elements of a line and the other one the odd ones. A workitem loads both as what they
//! are, a run of neighbours, by wide loads, and stores a run of results.

use super::address;
use super::blocks::{self, Blocks, WIDEST, in_words};
use super::error::Res;
use super::pointwise;
use super::values::Value;
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Access;
use crate::mir::Part;

/// Bytes that a workitem loads of a pair at once, at most.
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
        let d = cx.step.output.view.rank() - 1;
        let blocks = Blocks::of(cx, &[(d, self.width)], |places| places * 2 * self.width * self.pairs.len() <= HELD);
        let load = |w: &mut Writer, coords: &[Option<Part>]| {
            let mut operands: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
            for &(even, odd) in &self.pairs {
                let (t, buf) = (cx.dtype(Arg::Input(even)), w.buffer(cx, Arg::Input(even))?);
                let at = address::offset(&mut w.b, &cx.step.inputs[even].view, t.size(), coords);
                let both = blocks::load_together(w, t, buf, at, 2 * self.width);
                operands[even] = both.iter().step_by(2).copied().collect();
                operands[odd] = both.iter().skip(1).step_by(2).copied().collect();
            }
            Ok(operands)
        };
        blocks.lower(cx, load, |w, mut place| {
            let mut known = Vec::new();
            for (i, held) in place.loaded.iter_mut().enumerate().filter(|(_, held)| held.is_empty()) {
                *held = pointwise::load(w, cx, i, &place.coords, self.width, &mut known)?;
            }
            let at = place.of_result(w, cx, (d, 0));
            pointwise::finish(w, cx, &place.loaded, self.width, at)
        })
    }
}
