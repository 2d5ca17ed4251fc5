//! A layer as launches, one for each phase of each step: units are spread over the compute units, which meet where a launch ends. Many of them may become levels of one.
//!
//! The vectors of all sequences lie in memory, in f32, twice: a launch reads one *half* and writes the other, so that none reads what another
//! workgroup of it writes. A workgroup has some units (lanes), all gates of them, and some sequences; the depth of the product is
//! divided among its *slices*, the rest of a workitem's number. A workitem adds the products of its unit and slice for every gate and
//! sequence, with the matrix and the vectors loaded a round ahead; the sums of the slices meet in LDS, in one order. Then the
//! workitem of a slice is that of a sequence, and updates its unit's vectors.
//!
//! Before the first step a launch brings the initial states there, and one behind the last brings the states from there.

use super::super::address::Offset;
use super::super::choice::Machine;
use super::super::error::Res;
use super::super::values::{self, Value};
use super::super::{Arg, Cx, Kernel, Number, Writer, linked};
use super::{LDS, Layer, Unit};
use crate::graph::expr::Op;
use crate::graph::kinds::recurrent::{Phase, Recurrent};
use crate::mir::{Buffer, Builder, Gen, Part, Pipeline, Type};
use crate::tensor::DType;
use barewave_isa::{Target, op};

/// k of a load's lines, and sets of registers that are loaded in turn.
const TAPS: u32 = 4;
const SETS: u32 = 2;

/// Stages of the loop over k.
const LOAD: u8 = 0;
const MULTIPLY: u8 = 1;

/// Workitems of a workgroup, units, and sequences that are tried.
const TEAMS: [u32; 3] = [256, 512, 1024];
const UNITS: [u32; 4] = [8, 16, 32, 64];
const SEQUENCES: [u32; 4] = [1, 2, 4, 8];

/// Most sums of a workitem, with what is loaded for them.
const MOST_SUMS: u32 = 32;

/// Floats between the sums of slices, so that slices of a wave reach other banks.
const APART: u32 = 16;

/// They are taken where they save so much: both are estimates.
const WORTH: f64 = 0.9;

/// Cycles of a launch behind its last load, about: sums that meet, the gates of a unit one operation after the other.
const GATES: f64 = 1500.0;

/// How a layer is spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Units of a workgroup.
    units: u32,
    /// Slices of the depth.
    slices: u32,
    /// Sequences of a workgroup.
    sequences: u32,
    /// Depth of a slice.
    depth: u32,
}

impl Spread {
    fn team(&self) -> u32 {
        self.units * self.slices
    }
    /// Floats of a vector: units, and what fills the last slice.
    fn pitch(&self) -> u32 {
        self.slices * self.depth
    }
    /// Sums of a workitem, as many as there are slices or a multiple.
    fn sums(&self, gates: u32) -> u32 {
        (self.sequences * gates).next_multiple_of(self.slices)
    }
    /// Floats from one slice's sums to the next.
    fn apart(&self, gates: u32) -> u32 {
        self.sums(gates) * self.units + APART
    }
    /// Bytes from a slice of a vector in LDS to the next: they are in other banks.
    fn slice(&self) -> u32 {
        self.depth * 4 + 16
    }
    /// Floats of a vector that a workitem brings to LDS at once: as many as leave none without any, or one.
    fn words(&self) -> u32 {
        let all = self.sequences * self.pitch();
        [4, 2].into_iter().find(|n| all.is_multiple_of(n * self.team())).unwrap_or(1)
    }
    fn lds(&self, gates: u32) -> u32 {
        let spare = if (self.sequences * self.pitch()).is_multiple_of(self.team()) { 0 } else { self.team() * 4 };
        (self.slice() * self.slices * self.sequences + spare).max(self.apart(gates) * self.slices * 4)
    }
    fn groups(&self, k: &Recurrent) -> [u32; 3] {
        let units = (k.hidden as u32).div_ceil(self.units);
        [units, (k.batch as u32).div_ceil(self.sequences), k.reverse.len() as u32]
    }

    /// Clocks of a launch for so many gates.
    fn clocks(&self, target: Target, machine: &Machine, k: &Recurrent, gates: u32, size: u32) -> f64 {
        let info = target.info();
        let groups = f64::from(self.groups(k).iter().product::<u32>());
        let rounds = (groups / f64::from(info.cus)).ceil();
        let matrix = (k.hidden * k.hidden * k.reverse.len()) as f64 * f64::from(gates * size);
        // Lines that are not whole come whole.
        let line = f64::from(machine.line.max(self.units * size));
        let bytes = f64::from(self.pitch() * gates) * line;
        let waves = f64::from(self.team()) / f64::from(info.wave_size) / f64::from(info.simds);
        let words = f64::from(self.depth * gates) * machine.issue;
        let products = waves.max(1.0) * words * (f64::from(self.sequences) + 2.0);
        let answers = f64::from(self.depth / TAPS) / f64::from(SETS) * machine.answer(matrix);
        let busy = (bytes / machine.l1).max(products);
        let loop_ = (rounds * busy).max(rounds * answers).max(groups * bytes / machine.l2);
        let meeting = f64::from(self.sums(gates)) * waves.max(1.0) * 4.0 * machine.issue;
        let all = groups as u32 * self.team().div_ceil(info.wave_size);
        linked::begins(machine, all) + machine.ends + 2.0 * machine.device_latency + loop_ + meeting + GATES
    }
}

/// The quickest way to spread a layer, where that takes less than it does otherwise, if it can be.
pub(super) fn choose(cx: &Cx, k: &Recurrent, whole: Option<f64>) -> Option<Spread> {
    let floats = |arg| matches!(cx.dtype(arg), DType::F32 | DType::F16 | DType::BF16);
    if ![Arg::Input(0), Arg::Input(1), Arg::Input(2), Arg::Output].into_iter().all(floats)
        || !k.phases.iter().all(|p| is_apart(k, p))
    {
        return None;
    }
    let machine = Machine::of(cx.target);
    let size = cx.dtype(Arg::Input(1)).size() as u32;
    let most = k.phases.iter().map(|p| p.gates.1).max()? as u32;
    let mut best: Option<(f64, Spread)> = None;
    for (team, units, sequences) in
        TEAMS.into_iter().flat_map(|t| UNITS.into_iter().flat_map(move |u| SEQUENCES.map(|s| (t, u, s))))
    {
        let slices = team / units;
        let depth = (k.hidden as u32).div_ceil(slices).next_multiple_of(TAPS * SETS);
        let spread = Spread { units, slices, sequences, depth };
        let sums = most * sequences;
        if sequences > slices
            || sums > MOST_SUMS
            || spread.lds(most) > LDS as u32
            || sequences > (k.batch as u32).next_power_of_two()
        {
            continue;
        }
        let clocks: f64 = k.phases.iter().map(|p| spread.clocks(cx.target, &machine, k, p.gates.1 as u32, size)).sum();
        if best.is_none_or(|b| clocks < b.0) {
            best = Some((clocks, spread));
        }
    }
    let (clocks, spread) = best?;
    let all = clocks * k.steps as f64 + 2.0 * (machine.launch + machine.ends);
    whole.is_none_or(|whole| all < WORTH * whole).then_some(spread)
}

/// A phase uses no products of another one, which are gone.
fn is_apart(k: &Recurrent, phase: &Phase) -> bool {
    let own = k.gates + phase.gates.0..k.gates + phase.gates.0 + phase.gates.1;
    let uses = |op: &Op| match op {
        Op::Input(i) => !(k.gates..2 * k.gates).contains(&(*i as usize)) || own.contains(&(*i as usize)),
        _ => true,
    };
    phase.updates.iter().all(|(_, e)| e.nodes().iter().all(|n| uses(&n.op)))
}

pub(super) fn lower(cx: &Cx, k: &Recurrent, spread: Spread) -> Res<Vec<Kernel>> {
    let launches = Launches { cx, k, spread };
    let mut out = vec![launches.begin()?];
    for phase in 0..k.phases.len() {
        out.push(launches.phase(phase)?);
    }
    out.push(launches.end()?);
    Ok(out)
}

/// Workitems of a workgroup that moves states.
const MOVERS: u32 = 256;

struct Launches<'a> {
    cx: &'a Cx<'a>,
    k: &'a Recurrent,
    spread: Spread,
}

/// Registers of a round of the product.
struct Set {
    /// Of each k and gate, as it was loaded.
    weights: Vec<Part>,
    /// Of each sequence: the vector's elements.
    vectors: Vec<Part>,
}

/// Where the matrix and the vectors are that a workitem loads next.
struct Feed {
    matrix: Buffer,
    /// Byte of the next line of the matrix, and its k; in LDS that of the vectors.
    at: Part,
    line: Part,
    vector: Part,
}

impl Launches<'_> {
    /// Lines of vectors: a direction's sequences, one direction behind the other.
    fn lines(&self) -> u32 {
        (self.k.reverse.len() * self.k.batch) as u32
    }
    /// Bytes of a vector of all sequences, and of a half.
    fn vector(&self) -> u32 {
        self.lines() * self.spread.pitch() * 4
    }
    fn half(&self) -> u32 {
        self.vector() * self.k.vectors() as u32
    }
    fn bytes(&self) -> usize {
        2 * self.half() as usize
    }
    fn finish(&self, w: Writer, grid: [u32; 3], flops: u64, rounds: usize) -> Kernel {
        Kernel { workspace: self.bytes(), rounds: rounds as u32, ..w.finish(grid, flops) }
    }

    /// A workitem for each float of a vector: the float, the unit's place among operands of lines of units, and whether there is one.
    fn mover(&self, w: &mut Writer) -> (Part, Part, Part) {
        let group = w.b.workgroup_id(0);
        let item = w.b.workitem_id();
        let at = w.b.mad(group, MOVERS, item);
        let at = w.b.to_vector(at);
        let (line, unit) = w.b.divmod(at, self.spread.pitch());
        let exists = w.b.op(Gen::CmpGt.of(Type::U32), &[(self.k.hidden as u32).into(), unit.into()]);
        let last = w.b.op(Gen::CmpGt.of(Type::U32), &[self.lines().into(), line.into()]);
        let exists = w.b.mask_and(exists, last);
        let place = w.b.mad(line, self.k.hidden as u32, unit);
        (at, place, exists)
    }

    fn movers(&self) -> [u32; 3] {
        [(self.vector() / 4).div_ceil(MOVERS), 1, 1]
    }

    /// Puts initial states, and zeros for everything else, into both halves.
    fn begin(&self) -> Res<Kernel> {
        let (cx, k) = (self.cx, self.k);
        let mut w = cx.kernel(MOVERS);
        let t = cx.dtype(Arg::Input(2));
        let initial = w.buffer(cx, Arg::Input(2))?;
        let workspace = w.workspace(self.bytes());
        let (at, place, exists) = self.mover(&mut w);
        let to = w.b.shl(at, 2u32);
        let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(self.vector() / 4).into(), at.into()]);
        let to = w.b.guard(inside, to);
        let from = w.b.mul(place, t.size() as u32);
        let from = w.b.guard(exists, from);
        let start = cx.step.inputs[2].view.offset as u32 * t.size() as u32;
        let of_state = self.lines() * (k.hidden * t.size()) as u32;
        for v in 0..k.vectors() as u32 {
            let value = match v < k.states as u32 {
                true => {
                    let at = Offset { reg: Some(from), imm: start + v * of_state };
                    values::load(&mut w.b, t, initial, at).reg(&mut w.b)
                }
                false => w.b.to_vector(0u32),
            };
            for half in 0..2 {
                w.b.store(workspace, value, to, 0u32, half * self.half() + v * self.vector());
            }
        }
        Ok(self.finish(w, self.movers(), 0, 1))
    }

    /// Stores the states that the last step has left.
    fn end(&self) -> Res<Kernel> {
        let (cx, k) = (self.cx, self.k);
        let mut w = cx.kernel(MOVERS);
        let t = cx.dtype(Arg::Output);
        let workspace = w.workspace(self.bytes());
        let out = w.buffer(cx, Arg::Output)?;
        let (at, place, exists) = self.mover(&mut w);
        let from = w.b.shl(at, 2u32);
        let from = w.b.guard(exists, from);
        let to = w.b.mul(place, t.size() as u32);
        let to = w.b.guard(exists, to);
        let half = (k.steps * k.phases.len()) as u32 % 2 * self.half();
        let start = cx.step.output.view.offset as u32 * t.size() as u32;
        let of_row = self.lines() * (k.hidden * t.size()) as u32;
        for s in 0..k.states as u32 {
            let value = w.b.load(workspace, 1, from, 0u32, half + s * self.vector());
            let at = Offset { reg: Some(to), imm: start + (k.steps as u32 + s) * of_row };
            values::store(&mut w.b, t, out, at, Value::Word(value.into()));
        }
        Ok(self.finish(w, self.movers(), 0, 1))
    }

    /// A phase of a step.
    fn phase(&self, number: usize) -> Res<Kernel> {
        let (cx, k, s) = (self.cx, self.k, self.spread);
        let phase = &k.phases[number];
        let (first, gates) = (phase.gates.0 as u32, phase.gates.1 as u32);
        let hidden = k.hidden as u32;
        let mut w = cx.kernel(s.team());
        let step = w.number(Number::Round);
        let (x, r) = (w.buffer(cx, Arg::Input(0))?, w.buffer(cx, Arg::Input(1))?);
        let out = w.buffer(cx, Arg::Output)?;
        let workspace = w.workspace(self.bytes());
        let [tile, group, direction] = [0, 1, 2].map(|d| w.b.workgroup_id(d));
        let item = w.b.workitem_id();
        let (slice, lane) = w.b.divmod(item, s.units);
        // The half that is read, and the other one.
        let phases = w.b.mad(step, k.phases.len() as u32, number as u32);
        let parity = w.b.and(phases, 1u32);
        let read = w.b.mul(parity, self.half());
        let whole = w.b.scalar(self.half());
        let written = w.b.sub(whole, read);

        // Of what the workitem updates: its unit and sequence.
        let unit = w.b.mad(tile, s.units, lane);
        let sequence = w.b.mad(group, s.sequences, slice);
        let compare = |w: &mut Writer, limit: u32, x: Part| {
            let x = w.b.to_vector(x);
            w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), x.into()])
        };
        let masks = [(hidden, unit), (k.batch as u32, sequence), (s.sequences, slice)];
        let masks = masks.map(|(limit, x)| compare(&mut w, limit, x));
        let exists = w.b.mask_and(masks[0], masks[1]);
        let exists = w.b.mask_and(exists, masks[2]);
        let clamp = |w: &mut Writer, x: Part, last: u32| {
            let last = w.b.to_vector(last);
            w.b.op(Gen::Min.of(Type::U32), &[x.into(), last.into()])
        };
        let held = clamp(&mut w, unit, hidden - 1);
        let own = clamp(&mut w, sequence, k.batch as u32 - 1);
        let unit = Unit { held, lds: item, exists: Some(exists), parameters: Vec::new() };
        let mut layer =
            Layer { cx, k, lds: 0, pitch: 0, direction, batch: own, x, r, out, units: vec![unit], length: None };
        layer.load_parameters(&mut w)?;
        let (row, inside) = layer.row(&mut w, step);
        let inputs = layer.inputs(&mut w, row);
        let line = w.b.mul(direction, k.batch as u32);
        let line = w.b.add(own, line);
        let line = w.b.mul(line, s.pitch());
        let place = w.b.add(line, held);
        let place = w.b.shl(place, 2u32);
        let place = w.b.to_vector(place);
        let old: Vec<Part> =
            (0..k.vectors() as u32).map(|v| w.b.load(workspace, 1, place, read, v * self.vector())).collect();

        let lds = w.b.lds(s.lds(gates));
        self.stage(&mut w, (workspace, lds), (direction, group), (read, phase.source as u32));
        let sums = self.multiply(&mut w, &layer, (slice, held), (first, gates), lds)?;
        let mut products: Vec<Part> = (0..first).map(|_| w.b.to_vector(0.0f32)).collect();
        products.extend(self.meet(&mut w, &sums, (slice, lane), (gates, lds)));

        let new = layer.updated(&mut w, phase, (0, &inputs[0]), (&products, &old), inside)?;
        let mut vectors = old;
        for ((to, _), value) in phase.updates.iter().zip(new) {
            vectors[*to] = value.reg(&mut w.b);
        }
        let place = w.b.guard(exists, place);
        for (v, value) in (0..).zip(&vectors) {
            w.b.store(workspace, *value, place, written, v * self.vector());
        }
        if number + 1 == k.phases.len() {
            let line = layer.line(&mut w, row.into());
            let h = inside.map_or(vectors[0], |m| w.b.select(m, vectors[0], 0.0f32));
            layer.store(&mut w, line, 0, h);
        }
        let flops = 2 * (k.batch * k.reverse.len() * phase.gates.1 * k.hidden * k.hidden) as u64;
        Ok(self.finish(w, s.groups(k), flops, k.steps))
    }

    /// Brings the vectors of the workgroup's sequences to LDS, slice by slice.
    fn stage(
        &self,
        w: &mut Writer,
        (workspace, lds): (Buffer, u32),
        (direction, group): (Part, Part),
        (read, source): (Part, u32),
    ) {
        let s = self.spread;
        let b = &mut w.b;
        let line = b.mul(direction, self.k.batch as u32);
        let first = b.mul(group, s.sequences);
        let line = b.add(line, first);
        let from = b.mul(line, s.pitch() * 4);
        let from = b.add(from, read);
        let item = b.workitem_id();
        let (words, all) = (s.words(), s.sequences * s.pitch() / s.words());
        // The last workgroup has fewer sequences: those of another vector, which others may be writing, are behind them.
        let partial = !(self.k.batch as u32).is_multiple_of(s.sequences);
        let limit = if partial {
            let batch = b.scalar(self.k.batch as u32);
            let left = b.sub(batch, first);
            let left = b.mul(left, s.pitch() / words);
            b.generic(Gen::Min.of(Type::U32), &[left.into(), all.into()])
        } else {
            b.scalar(all)
        };
        let mut moved = Vec::new();
        for start in (0..all).step_by(s.team() as usize) {
            let number = if start > 0 { b.add(item, start) } else { item };
            let (slice, within) = b.divmod(number, s.depth / words);
            let to = b.mul(slice, s.slice());
            let to = b.mad(within, words * 4, to);
            let mut to = b.to_vector(to);
            if start + s.team() > all {
                // Behind the last one each workitem has a place of its own.
                let inside = b.op(Gen::CmpGt.of(Type::U32), &[all.into(), number.into()]);
                let spare = b.mad(item, 4u32, s.slice() * s.slices * s.sequences);
                to = b.select(inside, to, spare);
            }
            let at = b.mul(number, words * 4);
            let mut at = b.to_vector(at);
            if start + s.team() > all || partial {
                let inside = b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), number.into()]);
                at = b.guard(inside, at);
            }
            moved.push((to, b.load(workspace, words as u8, at, from, source * self.vector())));
        }
        for (to, data) in moved {
            b.lds_write(to, data, lds);
        }
        b.barrier();
    }

    /// The products of the workitem's slice and unit: of each sequence and gate.
    fn multiply(
        &self,
        w: &mut Writer,
        layer: &Layer,
        (slice, unit): (Part, Part),
        (first, gates): (u32, u32),
        lds: u32,
    ) -> Res<Vec<Part>> {
        let (s, h, g) = (self.spread, self.k.hidden as u32, self.k.gates as u32);
        let t = layer.dtype(Arg::Input(1));
        let size = t.size() as u32;
        let b = &mut w.b;
        let sums: Vec<Part> = (0..s.sequences * gates)
            .map(|_| {
                let sum = b.v(1);
                b.copy_into(sum, 0.0f32);
                sum
            })
            .collect();
        let k = b.mul(slice, s.depth);
        let line = b.mul(layer.direction, h);
        let line = b.add(k, line);
        let at = b.mul(line, g * h * size);
        let at = b.mad(unit, size, at);
        let vector = b.mul(slice, s.slice());
        let vector = b.add(vector, lds);
        let moving = |b: &mut Builder, x: Part| {
            let own = b.v(1);
            b.copy_into(own, x);
            own
        };
        let feed = Feed { matrix: layer.r, at: moving(b, at), line: moving(b, k), vector: moving(b, vector) };
        let start = (self.cx.step.inputs[1].view.offset * i64::from(size)) as u32 + first * h * size;
        let sets: Vec<Set> = (0..SETS)
            .map(|_| Set {
                weights: (0..TAPS * gates).map(|_| b.v(1)).collect(),
                vectors: (0..s.sequences).map(|_| b.v(4)).collect(),
            })
            .collect();
        b.counted_loop("product", s.depth / TAPS / SETS, 1, Pipeline::Stated, false, |b, _| {
            b.fix_order();
            let mut loads = Vec::new();
            for (n, set) in (0..).zip(&sets) {
                b.stage(MULTIPLY);
                let products = b.aside(|b| {
                    for (i, weight) in set.weights.iter().enumerate() {
                        let (tap, gate) = (i as u32 / gates, i as u32 % gates);
                        let x = match values::stored(t) {
                            Type::F32 => *weight,
                            stored => values::widened(b, stored, *weight, 0),
                        };
                        for (q, v) in (0..).zip(&set.vectors) {
                            b.fma_into(sums[(q * gates + gate) as usize], v.dword(tap as u8), x);
                        }
                    }
                });
                b.spread(products, loads);
                b.stage(LOAD);
                loads = b.aside(|b| self.load(b, &feed, set, (n, gates), (start, t)));
            }
            b.append(loads);
            b.stage(MULTIPLY);
        });
        Ok(sums)
    }

    /// Loads a set; behind the last one of a round what is next is a round further.
    fn load(&self, b: &mut Builder, feed: &Feed, set: &Set, (n, gates): (u32, u32), (start, t): (u32, DType)) {
        let (s, h, g, size) = (self.spread, self.k.hidden as u32, self.k.gates as u32, t.size() as u32);
        let line = g * h * size;
        let masked = s.pitch() != h;
        for tap in 0..TAPS {
            let ahead = n * TAPS + tap;
            let mut at = feed.at;
            if masked {
                // Behind the last line there are those of another direction.
                let limit = h.saturating_sub(ahead);
                let inside = b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), feed.line.into()]);
                at = b.guard(inside, at);
            }
            for gate in 0..gates {
                let (reg, imm) = (set.weights[(tap * gates + gate) as usize], start + ahead * line + gate * h * size);
                match size {
                    2 => b.load_op_into(op::BUFFER_LOAD_USHORT, reg, feed.matrix, at, 0u32, imm),
                    _ => b.load_into(reg, feed.matrix, at, 0u32, imm),
                }
            }
        }
        for (q, v) in (0..).zip(&set.vectors) {
            b.lds_read_into(*v, feed.vector, q * s.slices * s.slice() + n * TAPS * 4);
        }
        if n + 1 == SETS {
            let moves = [(feed.at, TAPS * SETS * line), (feed.vector, TAPS * SETS * 4), (feed.line, TAPS * SETS)];
            for (at, by) in moves {
                b.emit(Gen::Add.of(Type::U32), &[at.into()], &[at.into(), by.into()]);
            }
        }
    }

    /// Adds the sums of the slices, which lie in LDS then; gives those of the gates for the sequence whose number the slice is.
    fn meet(&self, w: &mut Writer, sums: &[Part], (slice, lane): (Part, Part), (gates, lds): (u32, u32)) -> Vec<Part> {
        let s = self.spread;
        let b = &mut w.b;
        let (of_sum, apart) = (s.units * 4, s.apart(gates) * 4);
        b.barrier();
        let own = b.shl(lane, 2u32);
        let to = b.mad(slice, apart, own);
        let to = b.to_vector(to);
        let zero = b.to_vector(0.0f32);
        for v in 0..s.sums(gates) {
            let sum = sums.get(v as usize).copied().unwrap_or(zero);
            b.lds_write(to, sum, lds + v * of_sum);
        }
        b.barrier();
        let from = b.mad(slice, of_sum, own);
        let from = b.to_vector(from);
        for v in (0..s.sums(gates)).step_by(s.slices as usize) {
            let parts: Vec<Part> = (0..s.slices).map(|i| b.lds_read(1, from, lds + i * apart + v * of_sum)).collect();
            let whole = parts.into_iter().reduce(|x, y| b.op(Gen::Add.of(Type::F32), &[x.into(), y.into()]));
            b.lds_write(from, whole.unwrap_or(zero), lds + v * of_sum);
        }
        b.barrier();
        let last = b.to_vector(s.sequences - 1);
        let sequence = b.op(Gen::Min.of(Type::U32), &[slice.into(), last.into()]);
        let from = b.mad(sequence, gates * of_sum, own);
        let from = b.to_vector(from);
        (0..gates).map(|gate| b.lds_read(1, from, lds + gate * of_sum)).collect()
    }
}
