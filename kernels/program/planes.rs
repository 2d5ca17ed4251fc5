//! Programs whose elements each read one plane of an operand, anywhere in it: samples of images at places that are data.
//!
//! Read from memory, lanes of a wave touch as many lines as there are lanes, which first-level caches take one after the other. So a workgroup has some
//! planes in LDS, those of a few channels, each read once and in wide accesses. A workitem computes a place, with all that does not depend on the
//! channel, once for all of them, and takes what it reads of each from LDS. Behind each plane lies a zero, which is what is read where there is no element.

use super::{Neighbours, Run, finish, is_straight, reduce};
use crate::graph::expr::Val;
use crate::graph::fused::Program;
use crate::graph::kinds::program::Source;
use crate::kernels::address;
use crate::kernels::error::{Reason, Res};
use crate::kernels::lines::ENOUGH;
use crate::kernels::runs::{self, Run as Piece};
use crate::kernels::values::{self, Value};
use crate::kernels::{Arg, Cx, Kernel, Writer};
use crate::mir::{Gen, Part, Type};

/// Workitems, where a compute unit has room for several workgroups, and where it has not.
const WORKGROUP: u32 = 512;
const ALONE: u32 = 1024;

/// Planes of a workgroup, at most.
const PLANES: usize = 8;

/// Bytes of LDS behind a plane: of a zero, and as many more as keep wide accesses aligned.
const BEHIND: u32 = 16;

/// Bytes that a lane without a plane writes.
const ASIDE: u32 = 8;

/// Bytes of a line that a place touches, about: planes are read as a whole where places touch as much of them.
const LINE: usize = 64;

/// How planes are shared among workgroups.
pub(super) struct Held {
    operand: usize,
    /// Bytes of a plane, and planes of a workgroup.
    bytes: u32,
    count: usize,
    workgroup: u32,
    /// Workgroups that have the same planes, and rounds of each: workitems compute a place in each.
    parts: usize,
    rounds: usize,
}

/// Planes in LDS, while a kernel is written.
pub(super) struct InLds {
    operand: usize,
    /// Elements of a plane, bytes between planes, and where the first one is.
    elements: u32,
    pitch: u32,
    base: u32,
    /// Where elements that were read are, for their numbers among the program's values.
    known: Vec<(usize, Part)>,
}

impl InLds {
    /// The operand's planes are there.
    pub fn holds(&self, operand: usize) -> bool {
        self.operand == operand
    }
}

impl Held {
    /// How a step is computed this way, where it can be.
    pub fn of(cx: &Cx, program: &Program) -> Option<Held> {
        let planes = program.planes.as_ref()?;
        let (out, source) = (&cx.step.output.view, &cx.step.inputs[planes.operand].view);
        let t = cx.dtype(Arg::Input(planes.operand));
        let [_, channels, places @ ..] = &out.dims[..] else { return None };
        let (places, bytes) = (places.iter().product::<usize>(), planes.elements * t.size());
        let lds = cx.target.info().lds_bytes;
        let room = |count: usize, workgroup: u32| {
            // What lanes write behind the last plane.
            let all = (count * bytes).next_multiple_of(workgroup as usize * 16);
            (all + (all.div_ceil(bytes) + 1) * BEHIND as usize + ASIDE as usize * 64).next_multiple_of(512) as u32
        };
        let read = |source: &Source| matches!(source, Source::Load { operand, .. } if *operand == planes.operand);
        let loads = program.values.iter().filter(|(source, _)| read(source)).count();
        let known = t.bits() == 8 * t.size()
            && bytes.is_multiple_of(4)
            && (source.offset as usize * t.size()).is_multiple_of(4);
        let fits = known && is_straight(&program.body) && bytes > 0 && loads * places * LINE >= bytes;
        let several = (1..=PLANES).rev().find(|n| channels.is_multiple_of(*n) && 2 * room(*n, WORKGROUP) <= lds);
        let alone = (room(1, ALONE) <= lds).then_some((1, ALONE));
        let (count, workgroup) = several.map(|n| (n, WORKGROUP)).or(alone).filter(|_| fits)?;
        let groups = out.dims[0] * channels / count;
        let all = places.div_ceil(workgroup as usize);
        let parts = (ENOUGH * cx.target.cus() as usize).div_ceil(groups).clamp(1, all);
        let rounds = all.div_ceil(parts);
        let held = Held {
            operand: planes.operand,
            bytes: bytes as u32,
            count,
            workgroup,
            parts: all.div_ceil(rounds),
            rounds,
        };
        let along = held.along(program);
        let far = planes.elements as i64;
        let apart = |source: &Source| match *source {
            Source::Load { operand, at, .. } => {
                let at = along.values[at.index()];
                let step = if operand == planes.operand { far } else { 0 };
                at.every == 1 && at.step == Some(if count > 1 { step } else { at.step.unwrap_or(0) })
            }
            _ => true,
        };
        let waves =
            groups * held.parts * workgroup as usize >= (cx.target.cus() * 4 * cx.target.info().wave_size) as usize;
        (waves && program.values.iter().all(|(source, _)| apart(source))).then_some(held)
    }

    /// How values change from one channel to the next.
    fn along(&self, program: &Program) -> Neighbours {
        Neighbours::of(program, 1, self.count)
    }

    /// The kernel.
    pub fn lower(&self, cx: &Cx, program: &Program) -> Res<Vec<Kernel>> {
        let out = &cx.step.output.view;
        let along = self.along(program);
        let (arg, t) = (Arg::Input(self.operand), cx.dtype(Arg::Input(self.operand)));
        let elements = self.bytes / t.size() as u32;
        let mut w = cx.kernel(self.workgroup);
        let group = w.b.workgroup_id(0);
        let (planes, part) = match self.parts {
            1 => (group, None),
            parts => {
                let (planes, part) = w.b.divmod(group, parts as u32);
                (planes, Some(part))
            }
        };
        let plane = w.b.mul(planes, self.count as u32);
        let first = w.b.mul(plane, elements);
        let (image, channel) = w.b.divmod(plane, out.dims[1] as u32);
        let pitch = self.bytes + BEHIND;
        let base = self.fill(&mut w, cx, (arg, first, t.size() as u32), pitch)?;
        w.b.barrier();
        for arg in (0..cx.step.inputs.len()).map(Arg::Input).chain([Arg::Output]) {
            w.buffer(cx, arg)?;
        }
        let places: usize = out.dims[2..].iter().product();
        let item = w.b.workitem_id();
        let before = part.map(|part| w.b.mul(part, self.rounds as u32 * self.workgroup));
        let from = before.map_or(item, |before| w.b.add(item, before));
        let done = self.rounds * self.parts * self.workgroup as usize;
        reduce::scalar_loop(&mut w, "places", self.rounds as u32, |w, round| {
            let ahead = w.b.mul(round, self.workgroup);
            let index = w.b.add(from, ahead);
            let inside =
                (done > places).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(places as u32).into(), index.into()]));
            let last = w.b.to_vector(places as u32 - 1);
            let index =
                if inside.is_some() { w.b.op(Gen::Min.of(Type::U32), &[index.into(), last.into()]) } else { index };
            let mut coords = vec![Some(image), Some(channel)];
            coords.extend(address::coordinates(&mut w.b, index, &out.dims[2..]));
            let held = InLds { operand: self.operand, elements, pitch, base, known: Vec::new() };
            let mut run = Run::new(cx, program, &along, true, &coords, w)?;
            run.held = Some(held);
            run.one_by_one(w, None, 1, &program.body)?;
            finish(w, cx, &mut run, &along, inside)
        })?;
        let groups = out.dims[0] * out.dims[1] / self.count * self.parts;
        Ok(vec![w.finish([groups as u32, 1, 1], (out.len() * program.values.len()) as u64)])
    }

    /// Fills LDS with planes from an element on, and with what is behind them: where that is.
    fn fill(&self, w: &mut Writer, cx: &Cx, (arg, first, size): (Arg, Part, u32), pitch: u32) -> Res<u32> {
        let view = cx.view(arg);
        let (all, start) = (self.bytes * self.count as u32, view.offset as u32 * size);
        let unit = runs::widest(16, &[self.bytes as usize, start as usize]);
        let from = w.b.mul(first, size);
        let piece = Piece { unit, bytes: all, items: self.workgroup, from, start, ends: None };
        let buf = w.buffer(cx, arg)?;
        let loaded = piece.load(w, buf, all);
        let written = piece.turns(all) * piece.of_turn();
        let room = written + written.div_ceil(self.bytes) * BEHIND;
        let base = w.b.lds(room + ASIDE * w.b.wave_size());
        let item = w.b.workitem_id();
        for (turn, x) in (0..).zip(loaded) {
            let own = w.b.add(x.own, turn * piece.of_turn());
            let at = if self.count == 1 && written <= self.bytes {
                own
            } else {
                let (plane, _) = w.b.divmod(own, self.bytes);
                w.b.mad(plane, BEHIND, own)
            };
            w.b.lds_write(at, x.data, base);
        }
        // Lanes that have no plane write somewhere else; waves of such do not.
        let has = w.b.op(Gen::CmpGt.of(Type::U32), &[(self.count as u32).into(), item.into()]);
        let filled = w.b.label();
        w.b.branch_if_none(has, filled, "zeros");
        let of_plane = w.b.mul(item, pitch);
        let of_plane = w.b.add(of_plane, self.bytes);
        let aside = w.b.mul(item, ASIDE);
        let aside = w.b.add(aside, room);
        let at = w.b.select(has, of_plane, aside);
        let zero = w.b.to_vector(0u32);
        (0..size.div_ceil(4)).for_each(|d| w.b.lds_write(at, zero, base + 4 * d));
        w.b.place(filled, "filled");
        Ok(base)
    }
}

impl Run<'_> {
    /// The element of planes in LDS whose number is value `at`, or the one that lies as far behind it in the plane of neighbour `e`.
    pub(super) fn load_held(&mut self, w: &mut Writer, at: Val, e: usize) -> Res<Value> {
        let missing = Reason::Malformed("an element that lies in no plane");
        let planes = self.program.planes.as_ref().map_or(&[][..], |planes| &planes.own);
        let &(_, own, inside) = planes.iter().find(|(other, ..)| *other == at).ok_or(missing)?;
        let own = self.value(own)?.reg(&mut w.b);
        let inside = inside.map(|inside| self.value(inside)).transpose()?;
        let held = self.held.as_mut().ok_or(Reason::Malformed("no planes"))?;
        let t = self.cx.dtype(Arg::Input(held.operand));
        let known = held.known.iter().find(|(v, _)| *v == at.index()).map(|(_, p)| *p);
        let reg = known.unwrap_or_else(|| {
            let own = match inside {
                Some(Value::Mask(inside)) => {
                    let behind = w.b.to_vector(held.elements);
                    w.b.select(inside, own, behind)
                }
                _ => own,
            };
            let own = w.b.mul(own, t.size() as u32);
            held.known.push((at.index(), own));
            own
        });
        let ahead = held.base + e as u32 * held.pitch;
        let raw = match t.size() {
            1 => w.b.lds_read_byte(reg, ahead),
            2 => w.b.lds_read_half(reg, ahead),
            size => w.b.lds_read((size / 4) as u8, reg, ahead),
        };
        Ok(values::element(&mut w.b, t, raw, 0))
    }
}
