//! Lines that the kernel makes: each member of a team has a run of a line's elements, loads what they are made of, and has what another launch
//! would have stored and this one loaded.

use super::super::super::error::Res;
use super::super::super::pointwise::{self, Steps};
use super::super::super::values::{self, Value};
use super::super::super::{Arg, Writer, expr};
use super::Keys;
use crate::mir::Part;

impl Keys<'_> {
    /// What is made of the member's runs of the lines of operand `of`, whose elements are loaded; the same where nothing is made of them. What
    /// tables say of all elements is `known` to the operands behind.
    pub(super) fn made(&self, w: &mut Writer, of: usize, lines: Vec<Part>, known: &mut Vec<Steps>) -> Res<Vec<Part>> {
        let Some((made, own)) = self.kind.made_of(of) else { return Ok(lines) };
        let (few, t, r) = (self.few, self.cx.dtype(Arg::Input(of)), self.cx.step.output.view.rank());
        let length = if of == 0 || self.kind.turned(of) { few.e.depth } else { few.e.width };
        let inside = self.has(w, length);
        let inner = own.clone().next().map_or(length, |i| self.cx.step.inputs[i].view.dims[r]) as u32;
        let width = few.each.min(1 << inner.trailing_zeros()) as usize;
        let first = w.b.mul(self.member, few.each);
        // Lanes behind a line's end make its beginning.
        let first = inside.map_or(first, |m| w.b.select(m, first, 0u32));
        let mut results = vec![Vec::new(); lines.len()];
        for piece in (0..few.each).step_by(width) {
            let at = if piece > 0 { w.b.add(first, piece) } else { first };
            let place = if inner as usize == length {
                [None, Some(at)]
            } else {
                let (outer, inner) = w.b.divmod(at, inner);
                [Some(outer), Some(inner)]
            };
            // What all lines have in common is loaded once.
            let mut common: Vec<Option<Vec<Value>>> = vec![None; own.len()];
            for ((row, raw), results) in (0..).zip(&lines).zip(&mut results) {
                let number = (row > 0).then(|| w.b.scalar(row));
                let coords = [&self.batch[..], &[number], &place].concat();
                for (i, common) in own.clone().zip(&mut common) {
                    if common.is_none() || !self.is_common(i) {
                        *common = Some(pointwise::load(w, self.cx, i, &coords, width, known)?);
                    }
                }
                known.retain(|(table, ..)| table.view.strides[r - 2..].iter().all(|s| *s == 0));
                for (lane, x) in (0..width).zip(self.elements(w, *raw).split_off(piece as usize)) {
                    let input = |i: u32| {
                        let all = common[i as usize - own.start].as_deref().unwrap_or_default();
                        all[lane.min(all.len() - 1)]
                    };
                    results.push(expr::eval(&mut w.b, &made.expr, &input, Some(Value::Word(x.into())))?);
                }
            }
        }
        let results = results.into_iter().map(|line| {
            let whole = values::together(&mut w.b, t, &line);
            let Some(inside) = inside else { return whole };
            let out = w.b.v(4);
            for d in 0..4 {
                let x = w.b.select(inside, whole.dword(d), 0u32);
                w.b.copy_into(out.dword(d), x);
            }
            out
        });
        Ok(results.collect())
    }

    /// True for an operand of what is made that is the same for all lines.
    fn is_common(&self, i: usize) -> bool {
        let (a, row) = (&self.cx.step.inputs[i], self.cx.step.output.view.rank() - 2);
        let views = [&a.view].into_iter().chain(a.indirect.iter().map(|x| &x.view));
        let limits = a.guard.as_ref().is_none_or(|g| g.ranges[row] == (0, a.view.dims[row]));
        limits && views.into_iter().all(|v| v.dims[row] == 1 || v.strides[row] == 0)
    }
}
