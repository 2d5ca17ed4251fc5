//! Elementwise steps with operands in which a few elements of another dimension lie between the result's neighbours: pixels of a block that go to
//! channels (SpaceToDepth), channels that come last and go first.
//!
//! A workitem loads what lies together of such an operand, whole words of all coordinates of that dimension, and stores a run of
//! neighbours for each of them: both go over memory in whole lines, with no way through LDS.

use super::address;
use super::blocks::{self, Blocks, WIDEST, in_words};
use super::error::Res;
use super::pointwise;
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Access;
use crate::mir::Part;

/// Extent of the dimension between neighbours, at most.
const MOST: usize = 8;

/// Elements that a workitem computes at most.
const HELD: usize = 48;

/// Bytes that a workitem loads at once, at most.
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
        let d = cx.step.output.view.rank() - 1;
        let each = self.width * self.apart;
        let would = |places| places * each * self.operands.len() <= HELD;
        let blocks = Blocks::of(cx, &[(self.dense, self.apart), (d, self.width)], would);
        let load = |w: &mut Writer, coords: &[Option<Part>]| {
            let mut taken = Vec::new();
            for &i in &self.operands {
                let (t, buf) = (cx.dtype(Arg::Input(i)), w.buffer(cx, Arg::Input(i))?);
                let at = address::offset(&mut w.b, &cx.step.inputs[i].view, t.size(), coords);
                taken.push((i, blocks::load_together(w, t, buf, at, each)));
            }
            Ok(taken)
        };
        blocks.lower(cx, load, |w, place| {
            for part in 0..self.apart {
                let mut coords = place.coords.clone();
                coords[self.dense] = (part > 0).then(|| w.b.scalar(part as u32));
                let mut known = Vec::new();
                let mut operands = Vec::new();
                for i in 0..cx.step.inputs.len() {
                    operands.push(match place.loaded.iter().find(|t| t.0 == i) {
                        Some((_, all)) => all.iter().skip(part).step_by(self.apart).copied().collect(),
                        None => pointwise::load(w, cx, i, &coords, self.width, &mut known)?,
                    });
                }
                let at = place.of_result(w, cx, (self.dense, part));
                pointwise::finish(w, cx, &operands, self.width, at)?;
            }
            Ok(())
        })
    }
}
