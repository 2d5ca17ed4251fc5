//! Caches that the kernel puts together as it reads them: a line of what there was or the new one, stored where it is read from next time.

use super::super::super::error::Res;
use super::super::super::pointwise::Steps;
use super::super::super::values::{self, Value};
use super::super::super::{Arg, Writer};
use super::{Keys, plan};
use crate::mir::{Gen, Part, Type};

/// A new key and value, as the lanes of a team have them, and where they go.
pub(super) struct New {
    start: Part,
    lines: [Part; 2],
    /// Whether what there was lies elsewhere than it goes, in every lane, where it may lie there.
    moved: [Option<Part>; 2],
}

impl Keys<'_> {
    /// The new key and value.
    pub(super) fn held(&self, w: &mut Writer, known: &mut Vec<Steps>) -> Res<New> {
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
            let at = self.places(w, (i, of), zero, &[None], &[])[0];
            let raw = w.b.load(buf, 4, at.reg.unwrap_or(zero), 0u32, at.imm);
            Ok(self.made(w, i, vec![raw], known)?[0])
        };
        let lines = [line(caches + 1, 1)?, line(caches + 3, 2)?];
        Ok(New { start, lines, moved: [self.moved(w, caches, 1)?, self.moved(w, caches + 2, 2)?] })
    }

    /// Whether what there was of operand `i` lies elsewhere than it goes. A caller may give both the same memory where one is as large as the other: lines
    /// that lie there are not stored again.
    fn moved(&self, w: &mut Writer, past: usize, i: usize) -> Res<Option<Part>> {
        let [from, to] = [past, i].map(|n| &self.cx.step.inputs[n].view);
        if self.kind.placed || from != to && !self.kind.any_keys {
            return Ok(None);
        }
        let [from, to] = [w.buffer(self.cx, Arg::Input(past))?, w.buffer(self.cx, Arg::Input(i))?];
        let apart =
            [0, 1].map(|d| w.b.generic(Gen::Xor.of(Type::B32), &[from.desc.dword(d).into(), to.desc.dword(d).into()]));
        let apart = w.b.generic(Gen::Or.of(Type::B32), &[apart[0].into(), apart[1].into()]);
        let apart = w.b.to_vector(apart);
        Ok(Some(w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), apart.into()])))
    }

    /// Lanes whose key, `u` steps of teams behind the first, is the new one.
    fn fresh(&self, w: &mut Writer, u: u32, first: Part, new: &New) -> Part {
        let place = w.b.sub(new.start, u * self.few.teams());
        w.b.op(Gen::CmpEq.of(Type::U32), &[place.into(), first.into()])
    }

    /// Lanes whose keys from `first` on a cache has so far, operand `past`.
    pub(super) fn there(
        &self,
        w: &mut Writer,
        past: usize,
        first: Part,
        insides: &[Option<Part>],
    ) -> Vec<Option<Part>> {
        let (few, view) = (self.few, &self.cx.step.inputs[past].view);
        let along = plan::along_keys(self.kind, past, view.rank());
        let room = along.map_or(0, |d| view.dims[d] as u32);
        let of = |(u, inside): (u32, &Option<Part>)| {
            // What is behind the room is behind the keys, too, where these are no more.
            if self.kind.any_keys {
                return Some(self.lies_within(w, past, first, u));
            }
            let limit = room.saturating_sub(u * few.teams());
            match room < few.e.keys as u32 {
                true => Some(w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), first.into()])),
                false => *inside,
            }
        };
        (0..few.abreast).zip(insides).map(of).collect()
    }

    /// Puts the new key or value among lines of the team's keys from `first` on.
    pub(super) fn renewed(&self, w: &mut Writer, i: usize, first: Part, lines: &mut [Part], new: &New) {
        for (u, line) in (0..).zip(lines) {
            let fresh = self.fresh(w, u, first, new);
            let whole = w.b.v(4);
            for d in 0..4 {
                let x = w.b.select(fresh, new.lines[i - 1].dword(d), line.dword(d));
                w.b.copy_into(whole.dword(d), x);
            }
            *line = whole;
        }
    }

    /// Stores lines where they are read from next time.
    pub(super) fn keep(
        &self,
        w: &mut Writer,
        i: usize,
        first: Part,
        insides: &[Option<Part>],
        lines: &[Part],
        new: &New,
    ) -> Res<()> {
        let buf = w.buffer(self.cx, Arg::Input(i))?;
        // A new line that is there already is not stored: others read it.
        let past = super::past(self.kind, i);
        let stored = if self.kind.placed { self.there(w, past, first, insides) } else { insides.to_vec() };
        let places = self.places(w, (i, i), first, &stored, &[]);
        for ((u, at), line) in (0..).zip(places).zip(lines) {
            let mut to = at.reg.unwrap_or(first);
            if let Some(moved) = new.moved[i - 1] {
                let (fresh, old) = (self.fresh(w, u, first, new), w.b.guard(moved, to));
                to = w.b.select(fresh, to, old);
            }
            w.b.store(buf, *line, to, 0u32, at.imm);
        }
        Ok(())
    }
}
