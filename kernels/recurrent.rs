//! Recurrent layers. In one launch a workgroup runs one sequence in one direction, from the first step to the last: the states lie in LDS,
//! where every workitem reads all of them; a workitem owns the units `item`, `item + 256`, ... and keeps their sums in registers. The
//! recurrent matrix is read with neighbouring units in neighbouring lanes.
//!
//! All of that matrix goes through one compute unit in each step. Where that takes longer than launches do each step is a launch, whose
//! workgroups have some of the units each ([`spread`]).

mod spread;

use super::address::Offset;
use super::choice::Machine;
use super::error::{Reason, Res};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer, expr, reduce};
use crate::graph::kinds::Kind as _;
use crate::graph::kinds::recurrent::{Phase, Recurrent};
use crate::mir::{Buffer, Gen, Opnd, Part, Type};
use crate::tensor::DType;

/// Workitems of a workgroup, at most.
const TEAM: usize = 256;
/// LDS that a layer may use.
const LDS: usize = 60 << 10;

pub(super) fn lower(cx: &Cx, k: &Recurrent) -> Res<Vec<Kernel>> {
    if let Some(spread) = spread::choose(cx, k, whole_clocks(cx, k)) {
        return spread::lower(cx, k, spread);
    }
    let team = k.hidden.next_multiple_of(64).min(TEAM);
    let chunks = k.hidden.div_ceil(team);
    let pitch = held_elements(k) * 4;
    if !is_held(k) || !matches!(kind(cx.dtype(Arg::Output)), values::Kind::Float) {
        return Err(Reason::Recurrent { units: k.hidden, dtype: cx.dtype(Arg::Output) });
    }
    let mut w = cx.kernel(team as u32);
    let group = w.b.workgroup_id(0);
    let (direction, batch) = w.b.divmod(group, k.batch as u32);
    let item = w.b.workitem_id();
    let lds = w.b.lds((pitch * k.vectors()) as u32);
    let (x, r) = (w.buffer(cx, Arg::Input(0))?, w.buffer(cx, Arg::Input(1))?);
    let out = w.buffer(cx, Arg::Output)?;
    let units: Vec<Unit> = (0..chunks).map(|c| Unit::new(&mut w, k, item, c * team, team)).collect();
    let mut layer = Layer { cx, k, lds, pitch: pitch as u32, direction, batch, x, r, out, units, length: None };
    layer.begin(&mut w)?;
    reduce::scalar_loop(&mut w, "step", k.steps as u32, |w, t| layer.step(w, t))?;
    layer.end(&mut w)?;
    let (d, h) = (k.reverse.len(), k.hidden);
    let flops = (2 * k.steps * k.batch * d * k.gates * h * h) as u64;
    Ok(vec![w.finish([(k.batch * d) as u32, 1, 1], flops)])
}

/// Clocks of a round over those that a cache takes to answer: 1.5 to 1.9 by the cycle model, of 32 to 256 units on gfx942, gfx1100 and gfx1201.
const ROUND: f64 = 1.5;

/// Elements of a vector in LDS: one for each workitem and unit of it.
fn held_elements(k: &Recurrent) -> usize {
    k.hidden.next_multiple_of(k.hidden.next_multiple_of(64).min(TEAM))
}

/// The vectors fit into LDS.
fn is_held(k: &Recurrent) -> bool {
    held_elements(k) * 4 * k.vectors() <= LDS
}

/// Clocks of the layer as one launch, about: what a workgroup reads of the matrix in each step comes in rounds of [`taps`] lines, which are
/// waited for one after the other. None where it cannot be one.
fn whole_clocks(cx: &Cx, k: &Recurrent) -> Option<f64> {
    let machine = Machine::of(cx.target);
    let size = cx.dtype(Arg::Input(1)).size();
    let matrix = (k.hidden * k.hidden * size * k.reverse.len()) as f64;
    let gates: usize = k.phases.iter().map(|p| p.gates.1).sum();
    let rounds = (k.phases.len() * k.hidden / taps(k)) as f64;
    let rounds = rounds * ROUND * machine.answer(matrix * k.gates as f64);
    let groups = (k.batch * k.reverse.len()) as f64;
    let loaded = matrix / k.reverse.len() as f64 * gates as f64;
    let loaded = (loaded / machine.l1).max(loaded * groups / machine.l2);
    is_held(k).then_some(k.steps as f64 * rounds.max(loaded) + machine.launch)
}

/// Lines of the matrix that are multiplied in a round.
fn taps(k: &Recurrent) -> usize {
    if k.hidden.is_multiple_of(4) { 4 } else { 1 }
}

/// A unit that a workitem owns, in each chunk of units.
struct Unit {
    /// Its number, of an existing unit.
    held: Part,
    /// Its place in a vector in LDS: those behind the last unit have places too.
    lds: Part,
    /// Lanes whose unit exists; `None` when all do.
    exists: Option<Part>,
    parameters: Vec<Value>,
}

impl Unit {
    fn new(w: &mut Writer, k: &Recurrent, item: Part, first: usize, team: usize) -> Unit {
        let unit = w.b.add(item, first as u32);
        let last = w.b.to_vector(k.hidden as u32 - 1);
        let held = w.b.op(Gen::Min.of(Type::U32), &[unit.into(), last.into()]);
        let lds = w.b.shl(unit, 2u32);
        let partial = !k.hidden.is_multiple_of(team);
        let exists = partial.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(k.hidden as u32).into(), unit.into()]));
        Unit { held, lds, exists, parameters: Vec::new() }
    }
}

struct Layer<'a> {
    cx: &'a Cx<'a>,
    k: &'a Recurrent,
    lds: u32,
    /// Bytes from vector to vector in LDS.
    pitch: u32,
    direction: Part,
    batch: Part,
    x: Buffer,
    r: Buffer,
    out: Buffer,
    units: Vec<Unit>,
    /// Steps of this sequence, where that is not the number of steps.
    length: Option<Part>,
}

impl Layer<'_> {
    fn dtype(&self, arg: Arg) -> DType {
        self.cx.dtype(arg)
    }

    fn lds_at(&self, vector: usize) -> u32 {
        self.lds + vector as u32 * self.pitch
    }

    /// Byte offset of unit `u` in line `line` of a dense operand.
    fn at(&self, w: &mut Writer, arg: Arg, line: Part, u: usize) -> Offset {
        let size = self.dtype(arg).size() as u32;
        let view = self.cx.view(arg);
        let line = w.b.mul(line, self.k.hidden as u32 * size);
        let unit = w.b.mul(self.units[u].held, size);
        let reg = w.b.add(unit, line);
        Offset { reg: Some(reg), imm: (view.offset * size as i64) as u32 }
    }

    /// Loads parameters and lengths.
    fn load_parameters(&mut self, w: &mut Writer) -> Res<()> {
        let k = self.k;
        let directions = k.reverse.len() as u32;
        if k.lengths {
            let arg = Arg::Input(k.operands() - 1);
            let buf = w.buffer(self.cx, arg)?;
            let offset = self.cx.step.inputs[k.operands() - 1].view.offset as u32 * 4;
            let place = w.b.to_vector(self.batch);
            let place = w.b.shl(place, 2u32);
            let length =
                values::load(&mut w.b, self.dtype(arg), buf, Offset { reg: Some(place), imm: offset }).reg(&mut w.b);
            let (zero, most) = (w.b.to_vector(0u32), w.b.to_vector(k.steps as u32));
            let length = w.b.op(barewave_isa::op::V_MED3_I32, &[length.into(), zero.into(), most.into()]);
            self.length = Some(length);
        }
        for u in 0..self.units.len() {
            for p in 0..k.parameters as u32 {
                let buf = w.buffer(self.cx, Arg::Input(3))?;
                let line = w.b.add(self.direction, p * directions);
                let at = self.at(w, Arg::Input(3), line, u);
                let value = values::load(&mut w.b, self.dtype(Arg::Input(3)), buf, at);
                self.units[u].parameters.push(value);
            }
        }
        Ok(())
    }

    /// Loads initial states too.
    fn begin(&mut self, w: &mut Writer) -> Res<()> {
        let k = self.k;
        self.load_parameters(w)?;
        for u in 0..self.units.len() {
            for s in 0..k.states {
                let buf = w.buffer(self.cx, Arg::Input(2))?;
                let line = self.line(w, (s as u32).into());
                let at = self.at(w, Arg::Input(2), line, u);
                let value = values::load(&mut w.b, self.dtype(Arg::Input(2)), buf, at).reg(&mut w.b);
                w.b.lds_write(self.units[u].lds, value, self.lds_at(s));
            }
        }
        let zero = w.b.to_vector(0u32);
        for u in &self.units {
            (k.states..k.vectors()).for_each(|v| w.b.lds_write(u.lds, zero, self.lds_at(v)));
        }
        w.b.barrier();
        Ok(())
    }

    /// Line of a row in `[rows, directions, batch, hidden]`.
    fn line(&self, w: &mut Writer, row: Opnd) -> Part {
        let row = match row {
            Opnd::V(p) => p,
            other => w.b.to_vector(other),
        };
        let d = w.b.mul(row, self.k.reverse.len() as u32);
        let d = w.b.add(d, self.direction);
        let b = w.b.mul(d, self.k.batch as u32);
        w.b.add(b, self.batch)
    }

    /// The row that step `t` of this sequence is about, and whether there is one.
    fn row(&self, w: &mut Writer, t: Part) -> (Part, Option<Part>) {
        let t = w.b.to_vector(t);
        let inside = self.length.map(|n| w.b.op(Gen::CmpGt.of(Type::U32), &[n.into(), t.into()]));
        if !self.k.reverse.contains(&true) {
            return (t, inside);
        }
        let last = match self.length {
            Some(n) => w.b.sub(n, 1u32),
            None => w.b.to_vector(self.k.steps as u32 - 1),
        };
        let back = w.b.sub(last, t);
        let mut row = back;
        if self.k.reverse.contains(&false) {
            let d = w.b.to_vector(self.direction);
            let forward = w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), d.into()]);
            row = w.b.select(forward, t, back);
        }
        // Behind its end a sequence writes zeros where the step is.
        let row = match inside {
            Some(m) => w.b.select(m, row, t),
            None => row,
        };
        (row, inside)
    }

    /// What the inputs contribute to each gate of a row, of each unit: `[steps, batch, directions, gates, hidden]`.
    fn inputs(&self, w: &mut Writer, row: Part) -> Vec<Vec<Value>> {
        let k = self.k;
        let line = w.b.mul(row, k.batch as u32);
        let line = w.b.add(line, self.batch);
        let line = w.b.mul(line, k.reverse.len() as u32);
        let line = w.b.add(line, self.direction);
        let line = w.b.mul(line, k.gates as u32);
        let (t_in, hidden) = (self.dtype(Arg::Input(0)), k.hidden as u32);
        let mut inputs = Vec::new();
        for u in 0..self.units.len() {
            let at = self.at(w, Arg::Input(0), line, u);
            let gate = |w: &mut Writer, g: u32| {
                let at = Offset { imm: at.imm + g * hidden * t_in.size() as u32, ..at };
                values::load(&mut w.b, t_in, self.x, at)
            };
            let list: Vec<Value> = (0..k.gates as u32).map(|g| gate(w, g)).collect();
            inputs.push(list);
        }
        inputs
    }

    fn step(&self, w: &mut Writer, t: Part) -> Res<()> {
        let k = self.k;
        let (row, inside) = self.row(w, t);
        let inputs = self.inputs(w, row);
        let mut products: Vec<Vec<Part>> = vec![Vec::new(); self.units.len()];
        for phase in &k.phases {
            self.phase(w, phase, &inputs, &mut products, inside)?;
        }
        let line = self.line(w, row.into());
        for u in 0..self.units.len() {
            let h = w.b.lds_read(1, self.units[u].lds, self.lds_at(0));
            let h = inside.map_or(h, |m| w.b.select(m, h, 0.0f32));
            self.store(w, line, u, h);
        }
        Ok(())
    }

    fn store(&self, w: &mut Writer, line: Part, u: usize, value: Part) {
        let at = self.at(w, Arg::Output, line, u);
        let at = match self.units[u].exists {
            Some(m) => {
                let reg = at.vector(&mut w.b);
                Offset { reg: Some(w.b.guard(m, reg)), imm: at.imm }
            }
            None => at,
        };
        values::store(&mut w.b, self.dtype(Arg::Output), self.out, at, Value::Word(value.into()));
    }

    /// Products with one vector, then all updates, between barriers.
    fn phase(
        &self,
        w: &mut Writer,
        phase: &Phase,
        inputs: &[Vec<Value>],
        products: &mut [Vec<Part>],
        inside: Option<Part>,
    ) -> Res<()> {
        let k = self.k;
        let (first, count) = phase.gates;
        for list in products.iter_mut() {
            list.extend((0..count).map(|_| w.b.to_vector(0.0f32)));
        }
        self.multiply(w, phase.source, first, count, products)?;
        let mut results: Vec<Vec<Value>> = Vec::new();
        for u in 0..self.units.len() {
            let unit = &self.units[u];
            let old: Vec<Part> = (0..k.vectors()).map(|v| w.b.lds_read(1, unit.lds, self.lds_at(v))).collect();
            results.push(self.updated(w, phase, (u, &inputs[u]), (&products[u], &old), inside)?);
        }
        w.b.barrier();
        for (u, list) in results.into_iter().enumerate() {
            for ((to, _), value) in phase.updates.iter().zip(list) {
                let value = value.reg(&mut w.b);
                w.b.lds_write(self.units[u].lds, value, self.lds_at(*to));
            }
        }
        w.b.barrier();
        Ok(())
    }

    /// What a phase's updates make of a unit's products, which begin with those of gate 0, and of its vectors.
    fn updated(
        &self,
        w: &mut Writer,
        phase: &Phase,
        (u, inputs): (usize, &[Value]),
        (products, old): (&[Part], &[Part]),
        inside: Option<Part>,
    ) -> Res<Vec<Value>> {
        let mut operands = inputs.to_vec();
        operands.extend((0..self.k.gates).map(|g| match products.get(g) {
            Some(p) => Value::Word((*p).into()),
            None => Value::Word(0.0f32.into()),
        }));
        operands.extend(old.iter().map(|p| Value::Word((*p).into())));
        operands.extend(self.units[u].parameters.iter().copied());
        let mut list = Vec::new();
        for (to, e) in &phase.updates {
            let value = expr::eval(&mut w.b, e, &|i| operands[i as usize], None)?;
            operands.push(value);
            let kept = match inside {
                Some(m) => {
                    let new = value.reg(&mut w.b);
                    Value::Word(w.b.select(m, new, old[*to]).into())
                }
                None => value,
            };
            list.push(kept);
        }
        Ok(list)
    }

    /// Adds the products of a vector with the columns of some gates.
    fn multiply(&self, w: &mut Writer, source: usize, first: usize, count: usize, sums: &[Vec<Part>]) -> Res<()> {
        let (h, g) = (self.k.hidden as u32, self.k.gates as u32);
        let t = self.dtype(Arg::Input(1));
        let size = t.size() as u32;
        let offset = (self.cx.step.inputs[1].view.offset * size as i64) as u32;
        let taps = taps(self.k) as u32;
        let bases: Vec<Part> = self.units.iter().map(|u| w.b.mul(u.held, size)).collect();
        reduce::scalar_loop(w, "product", h / taps, |w, i| {
            let place = w.b.mul(i, taps * 4);
            let place = w.b.to_vector(place);
            let v = w.b.lds_read(taps as u8, place, self.lds_at(source));
            let line = w.b.mul(self.direction, h);
            let k = w.b.mul(i, taps);
            let line = w.b.add(line, k);
            let line = w.b.mul(line, g * h * size);
            for (u, base) in bases.iter().enumerate() {
                let at = w.b.add(*base, line);
                for tap in 0..taps {
                    for gate in 0..count as u32 {
                        let imm = offset + (tap * g + first as u32 + gate) * h * size;
                        let weight = values::load(&mut w.b, t, self.r, Offset { reg: Some(at), imm });
                        let x = weight.reg(&mut w.b);
                        w.b.fma_into(sums[u][first + gate as usize], v.dword(tap as u8), x);
                    }
                }
            }
            Ok(())
        })
    }

    /// Stores the states.
    fn end(&self, w: &mut Writer) -> Res<()> {
        for s in 0..self.k.states {
            let line = self.line(w, ((self.k.steps + s) as u32).into());
            for u in 0..self.units.len() {
                let value = w.b.lds_read(1, self.units[u].lds, self.lds_at(s));
                self.store(w, line, u, value);
            }
        }
        Ok(())
    }
}
