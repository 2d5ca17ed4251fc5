//! What the waves of a workgroup have found of their keys is put together, and stored.
//!
//! First they tell each other the maximum and sum of each query, so that each wave scales what it has to the whole. Then some columns at a
//! time go to LDS, of each query side by side, and workitems add up what all waves have of four columns, and store these: neighbours
//! store neighbouring columns of a line.

use super::super::super::address::Offset;
use super::super::super::error::Res;
use super::super::super::values::{self, Value};
use super::super::super::{Arg, Writer, epilogue, expr};
use super::super::{LOWEST, cleared, inverse};
use super::{Gen, Keys, Part, Scalars, State, Type};
use crate::tensor::DType;

/// Columns that go to LDS at once, and bytes from one query's to the next's: those of neighbours lie in different banks.
const COLUMNS: u32 = 16;
const PITCH: u32 = COLUMNS * 4 + 16;

/// Waves whose results are read at once.
const AT_ONCE: u32 = 4;

impl Scalars {
    /// Bytes of LDS for it.
    pub(super) fn meeting(&self) -> u32 {
        self.waves * self.lanes * PITCH
    }
}

impl Keys<'_> {
    /// Puts together and stores.
    pub(super) fn meet(&self, w: &mut Writer, base: u32, state: &State) -> Res<()> {
        let (plan, float) = (&self.plan, self.float);
        // Queries, or what others still read of them, lay there.
        w.b.barrier();
        let (scale, defined) = self.scale(w, base, state);
        for x in state.results.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i))) {
            w.b.emit(Gen::Mul.of(Type::F32), &[x.into()], &[x.into(), scale.into()]);
            if defined.is_some() {
                let kept = cleared(&mut w.b, defined, x);
                w.b.copy_into(x, kept);
            }
        }
        let item = w.b.workitem_id();
        let own = w.b.mul(self.wave, plan.lanes * PITCH);
        let home = w.b.mad(self.lane, PITCH, own);
        let home = w.b.to_vector(home);
        let threads = plan.threads();
        for first in (0..plan.e.width as u32).step_by(COLUMNS as usize) {
            let quads = (plan.e.width as u32 - first).min(COLUMNS) / 4;
            if first > 0 || plan.waves > 1 {
                w.b.barrier();
            }
            for n in 0..quads {
                w.b.lds_write(home, state.results[(first / 4 + n) as usize], base + n * 16);
            }
            w.b.barrier();
            let all = plan.lanes * quads;
            for before in (0..all).step_by(threads as usize) {
                let number = if before > 0 { w.b.add(item, before) } else { item };
                let (query, quad) = w.b.divmod(number, quads);
                let mut from = query;
                if before + threads > all {
                    let last = w.b.to_vector(plan.lanes - 1);
                    from = w.b.op(Gen::Min.of(Type::U32), &[last.into(), query.into()]);
                }
                let from = w.b.mul(from, PITCH);
                let from = w.b.mad(quad, 16u32, from);
                let from = w.b.to_vector(from);
                let mut four: Vec<Part> = Vec::new();
                for start in (0..plan.waves).step_by(AT_ONCE as usize) {
                    if start > 0 {
                        // Nothing of these is read before those are added up, for want of registers.
                        w.b.block("others");
                    }
                    let some = start..(start + AT_ONCE).min(plan.waves);
                    let some = some.map(|wave| w.b.lds_read(4, from, base + wave * plan.lanes * PITCH));
                    let some: Vec<Part> = some.collect();
                    let sum = |i: u8| {
                        let all = four.get(usize::from(i)).copied().into_iter().chain(some.iter().map(|p| p.dword(i)));
                        all.reduce(|x, y| float.add(&mut w.b, x, y)).expect("a workgroup has waves")
                    };
                    four = (0..4).map(sum).collect();
                }
                let column = w.b.mul(quad, 4u32);
                let column = w.b.add(column, first);
                self.store(w, (query, column), &four)?;
            }
        }
        Ok(())
    }

    /// What each wave's results of a query are times, so that all together are the whole; and where that is defined if it is to be 0 elsewhere.
    fn scale(&self, w: &mut Writer, base: u32, state: &State) -> (Part, Option<Part>) {
        let (plan, float) = (&self.plan, self.float);
        let gone = |w: &mut Writer, max: Part, most: Part| {
            let gone = float.sub(&mut w.b, max, most);
            let gone = float.scaled(&mut w.b, gone, self.factor);
            w.b.op(Gen::Exp2.of(Type::F32), &[gone.into()])
        };
        let (mut sum, mut keep) = (state.sum, None);
        if plan.waves > 1 {
            let at = w.b.mul(self.lane, 8u32);
            let at = w.b.to_vector(at);
            let own = w.b.mul(self.wave, plan.lanes * 8);
            let home = w.b.add(at, own);
            let home = w.b.to_vector(home);
            let both = w.b.v(2);
            w.b.copy_into(both.dword(0), state.max);
            w.b.copy_into(both.dword(1), state.sum);
            w.b.lds_write(home, both, base);
            w.b.barrier();
            let all: Vec<Part> =
                (0..plan.waves).map(|wave| w.b.lds_read(2, at, base + wave * plan.lanes * 8)).collect();
            // A wave without keys has no maximum.
            let lowest = float.held(&mut w.b, LOWEST);
            let most = all.iter().fold(lowest, |m, x| float.op(&mut w.b, Gen::Max, m, x.dword(0)));
            let scaled = all.iter().map(|x| {
                let keep = gone(w, x.dword(0), most);
                float.mul(&mut w.b, x.dword(1), keep)
            });
            let scaled: Vec<Part> = scaled.collect();
            sum = scaled.into_iter().reduce(|x, y| float.add(&mut w.b, x, y)).expect("a workgroup has waves");
            keep = Some(gone(w, state.max, most));
        }
        let (scale, defined) = inverse(&mut w.b, float, self.kind.undefined, sum);
        (keep.map_or(scale, |keep| float.mul(&mut w.b, scale, keep)), defined)
    }

    /// The step's expression of four columns of a query of the workgroup, and the store.
    fn store(&self, w: &mut Writer, (query, column): (Part, Part), results: &[Part]) -> Res<()> {
        let plan = &self.plan;
        let own = w.b.add(query, self.first);
        let own = w.b.to_vector(own);
        let block = w.b.to_vector(query);
        // Who has no columns left stores none.
        let mine = w.b.op(Gen::CmpGt.of(Type::U32), &[plan.lanes.into(), block.into()]);
        let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(plan.e.queries as u32).into(), own.into()]);
        let inside = w.b.mask_and(mine, inside);
        let place = |w: &mut Writer, arg: Arg| {
            let view = self.cx.view(arg);
            let (r, size) = (view.rank(), self.cx.dtype(arg).size() as i64);
            let outer = self.outer(w, arg);
            let at = w.b.mul(column, (view.strides[r - 1] * size) as i32);
            let at = w.b.mad(own, (view.strides[r - 2] * size) as i32, at);
            let at = outer.reg.map_or(at, |o| w.b.add(at, o));
            let at = w.b.to_vector(at);
            let at = w.b.guard(inside, at);
            let pitch = view.strides[r - 1] * size;
            (pitch, move |n: u32| Offset { reg: Some(at), imm: outer.imm.wrapping_add((pitch * i64::from(n)) as u32) })
        };
        let mut loaded = vec![Vec::new(); self.cx.step.inputs.len()];
        for i in epilogue::operands(self.cx) {
            let buf = w.buffer(self.cx, Arg::Input(i))?;
            let (_, at) = place(w, Arg::Input(i));
            loaded[i] = (0..4).map(|n| values::load(&mut w.b, self.cx.dtype(Arg::Input(i)), buf, at(n))).collect();
        }
        let mut out: Vec<Value> = Vec::new();
        for (n, x) in results.iter().enumerate() {
            let input = |i: u32| loaded[i as usize][n];
            out.push(expr::eval(&mut w.b, &self.cx.step.expr, &input, Some(Value::Word((*x).into())))?);
        }
        let t: DType = self.cx.dtype(Arg::Output);
        let buf = w.buffer(self.cx, Arg::Output)?;
        let (pitch, at) = place(w, Arg::Output);
        if pitch == t.size() as i64
            && values::comes_in_fours(t)
            && values::is_word_aligned(t, &self.cx.step.output.view)
        {
            values::store_some(&mut w.b, t, buf, at(0), &out);
        } else {
            out.iter().zip(0..).for_each(|(x, n)| values::store(&mut w.b, t, buf, at(n), *x));
        }
        Ok(())
    }
}
