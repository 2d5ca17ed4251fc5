//! What a score becomes: its expression, whose operands are loaded early, and what a query does not see.

use super::super::super::address::Offset;
use super::super::super::error::Res;
use super::super::super::values::{self, Value};
use super::super::super::{Arg, Number, Writer};
use super::super::scored;
use super::{Keys, plan};
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

/// Operands of the expression: of each one, for each key of a team in flight, that of each query, or one that all have. None of those that are loaded
/// elsewhere.
pub(super) type Operands = Vec<Vec<Vec<Value>>>;

impl Keys<'_> {
    /// The operands that all keys have in common; or those of keys from `first` on.
    pub(super) fn operands(&self, w: &mut Writer, keys: Option<(Part, &[Option<Part>])>) -> Res<Operands> {
        let (few, r) = (self.few, self.cx.step.output.view.rank());
        let mut out = Operands::new();
        for i in (3..3 + self.kind.operands).filter(|_| self.score.is_some()) {
            let view = &self.cx.step.inputs[i].view;
            let pitch = view.strides[r - 1];
            let rows = if view.strides[r - 2] == 0 { 1 } else { few.queries() };
            let mut of_keys = Vec::new();
            match keys {
                None if pitch == 0 => of_keys.push((0..rows).map(|q| self.operand(w, i, q, None)).collect::<Res<_>>()?),
                Some((first, insides)) if pitch != 0 => {
                    for (u, inside) in (0..few.abreast).zip(insides) {
                        let key = if u > 0 { w.b.add(first, u * few.teams()) } else { first };
                        let of = (0..rows).map(|q| self.operand(w, i, q, Some((key, *inside))));
                        of_keys.push(of.collect::<Res<_>>()?);
                    }
                }
                _ => {}
            }
            out.push(of_keys);
        }
        Ok(out)
    }

    /// One of a query and a key. Booleans are left as bytes.
    fn operand(&self, w: &mut Writer, i: usize, q: u32, key: Option<(Part, Option<Part>)>) -> Res<Value> {
        let (t, view) = (self.cx.dtype(Arg::Input(i)), &self.cx.step.inputs[i].view);
        let (size, r) = (t.size() as i64, view.rank());
        let mut at = self.outer(w, Arg::Input(i));
        if plan::told(self.kind, i, view, r - 2) {
            let row = w.number(Number::Stride(i, r - 2));
            let row = w.b.mul(row, q);
            at.reg = Some(at.reg.map_or(row, |r| w.b.add(r, row)));
        } else {
            at.imm = at.imm.wrapping_add((i64::from(q) * view.strides[r - 2] * size) as u32);
        }
        if let Some((key, inside)) = key {
            let own = w.b.mul(key, (view.strides[r - 1] * size) as i32);
            let own = at.reg.map_or(own, |r| w.b.add(own, r));
            let own = w.b.to_vector(own);
            at = Offset { reg: Some(inside.map_or(own, |m| w.b.guard(m, own))), imm: at.imm };
        }
        let buf = w.buffer(self.cx, Arg::Input(i))?;
        Ok(values::load(&mut w.b, if t == DType::Bool { DType::U8 } else { t }, buf, at))
    }

    /// The step's expression of the scores of each key and query; what a query does not see is hidden.
    pub(super) fn evaluated(
        &self,
        w: &mut Writer,
        mut scores: Vec<Part>,
        first: Part,
        insides: &[Option<Part>],
        operands: [&Operands; 2],
    ) -> Res<Vec<Part>> {
        let few = self.few;
        let hidden = w.b.to_vector(f32::NEG_INFINITY);
        for (u, inside) in (0..few.abreast).zip(insides) {
            let key = if u > 0 { w.b.add(first, u * few.teams()) } else { first };
            for q in 0..few.queries() {
                let s = &mut scores[(u * few.queries() + q) as usize];
                if let Some(score) = self.score {
                    let loaded = |n: usize| {
                        let [fixed, moving] = operands.map(|o| o.get(n));
                        let of_key = fixed?.first().or_else(|| moving?.get(u as usize));
                        of_key.and_then(|x| x.get(q as usize).or(x.first())).copied()
                    };
                    *s = scored(w, self.cx, score, *s, loaded)?;
                }
                if let Some(past) = self.kind.causal {
                    let last = w.b.to_vector((past + i64::from(q)) as i32 as u32);
                    let seen = w.b.op(Gen::CmpGe.of(Type::I32), &[last.into(), key.into()]);
                    *s = w.b.select(seen, *s, hidden);
                }
                if let Some(inside) = inside {
                    *s = w.b.select(*inside, *s, hidden);
                }
            }
        }
        Ok(scores)
    }
}
