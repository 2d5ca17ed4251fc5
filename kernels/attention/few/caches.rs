//! Caches that the kernel puts together as it reads them: a line of what there was or the new one, stored where it is read from next time.

use super::super::super::error::Res;
use super::super::super::values::{self, Value};
use super::super::super::{Arg, Writer};
use super::Keys;
use crate::mir::{Gen, Part, Type};

/// A new key and value, as the lanes of a team have them, and where they go.
pub(super) struct New {
    start: Part,
    lines: [Part; 2],
}

impl Keys<'_> {
    /// The new key and value.
    pub(super) fn held(&self, w: &mut Writer) -> Res<New> {
        let caches = self.kind.caches().start;
        let arg = Arg::Input(caches + 4);
        let t = self.cx.dtype(arg);
        let at = self.outer(w, arg);
        let buf = w.buffer(self.cx, arg)?;
        let start = match values::load(&mut w.b, t, buf, at) {
            Value::Pair(p) => p.dword(0),
            one => one.reg(&mut w.b),
        };
        let start = w.b.uniform(start);
        let zero = w.b.to_vector(0u32);
        let mut line = |i: usize, of: usize| -> Res<Part> {
            let buf = w.buffer(self.cx, Arg::Input(i))?;
            let at = self.places(w, (i, of), zero, &[None])[0];
            Ok(w.b.load(buf, 4, at.reg.unwrap_or(zero), 0u32, at.imm))
        };
        Ok(New { start, lines: [line(caches + 1, 1)?, line(caches + 3, 2)?] })
    }

    /// Lines of K or V of the team's keys from `first` on, of a cache and the new one.
    pub(super) fn cached(
        &self,
        w: &mut Writer,
        i: usize,
        first: Part,
        insides: &[Option<Part>],
        new: &New,
    ) -> Res<Vec<Part>> {
        let (few, past) = (self.few, self.kind.caches().start + 2 * (i - 1));
        let r = self.cx.step.output.view.rank();
        let room = self.cx.step.inputs[past].view.dims[if i == 1 { r - 1 } else { r - 2 }] as u32;
        let there: Vec<Option<Part>> = (0..few.abreast)
            .zip(insides)
            .map(|(u, inside)| {
                // What is behind the room is behind the keys, too, where these are no more.
                if self.kind.any_keys {
                    return Some(self.lies_within(w, past, first, u));
                }
                let limit = room.saturating_sub(u * few.teams());
                match room < few.e.keys as u32 {
                    true => Some(w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), first.into()])),
                    false => *inside,
                }
            })
            .collect();
        let buf = w.buffer(self.cx, Arg::Input(past))?;
        let places = self.places(w, (past, i), first, &there);
        let all: Vec<Part> =
            places.into_iter().map(|at| w.b.load(buf, 4, at.reg.unwrap_or(first), 0u32, at.imm)).collect();
        let chosen = all.into_iter().zip(0..).map(|(old, u)| {
            let place = w.b.sub(new.start, u * few.teams());
            let fresh = w.b.op(Gen::CmpEq.of(Type::U32), &[place.into(), first.into()]);
            let line = w.b.v(4);
            for d in 0..4 {
                let x = w.b.select(fresh, new.lines[i - 1].dword(d), old.dword(d));
                w.b.copy_into(line.dword(d), x);
            }
            line
        });
        Ok(chosen.collect())
    }

    /// Stores lines where they are read from next time.
    pub(super) fn keep(
        &self,
        w: &mut Writer,
        i: usize,
        first: Part,
        insides: &[Option<Part>],
        lines: &[Part],
    ) -> Res<()> {
        let buf = w.buffer(self.cx, Arg::Input(i))?;
        let places = self.places(w, (i, i), first, insides);
        for (at, line) in places.into_iter().zip(lines) {
            w.b.store(buf, *line, at.reg.unwrap_or(first), 0u32, at.imm);
        }
        Ok(())
    }
}
