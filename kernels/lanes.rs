//! Values of several workitems combined, so that each of them holds the result.
//!
//! Teams are powers of two of neighbouring workitems. A butterfly: in each step a lane combines with a partner, and the lanes that
//! have done so hold the same, so any lane of the other half is as good a partner: within a row of 16 these are the
//! mirrors of DPP, which every target has. Between rows `v_permlanex16` or `ds_swizzle` exchange; where the team is the
//! whole wave, its rows are read one by one into scalars. What waves have found meets in LDS, and every workitem adds it up in the
//! same order. Every order is fixed, so results are the same from run to run.

use super::Writer;
use super::error::Res;
use crate::mir::{Builder, Gen, MInst, Part, Type};
use barewave_isa::{ModName, Mods, op};

/// Lanes of a row, within which DPP moves.
pub(super) const ROW: u32 = 16;

/// DPP controls: the quad's lanes in the order 1 0 3 2, in the order 2 3 0 1, a half row mirrored, a row mirrored.
const STEPS: [i32; 4] = [0xb1, 0x4e, 0x141, 0x140];

/// The most workitems whose waves' results meet, where it is not worth more that they do.
pub(super) const MOST: u32 = 512;

/// Combines the values of each team of `team` workitems. `merge` takes two lists of values and gives the combined ones; it
/// must be commutative.
pub(super) fn combine(
    w: &mut Writer,
    team: u32,
    values: &[Part],
    merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
) -> Res<Vec<Part>> {
    let wave = w.b.wave_size();
    let mut own = values.to_vec();
    for (bit, control) in STEPS.into_iter().enumerate().filter(|(bit, _)| 1 << bit < team) {
        debug_assert!(1 << bit < ROW);
        let other: Vec<Part> = own.iter().map(|v| each_dword(&mut w.b, *v, |b, x| moved(b, x, control))).collect();
        own = merge(w, &own, &other)?;
    }
    if team > ROW {
        own = if team >= wave && !w.b.target().has(op::V_PERMLANEX16_B32) {
            rows_as_scalars(w, own, &merge)?
        } else {
            let other: Vec<Part> = own.iter().map(|v| each_dword(&mut w.b, *v, other_row)).collect();
            merge(w, &own, &other)?
        };
    }
    debug_assert!(team <= wave || !w.b.target().has(op::V_PERMLANEX16_B32) || wave == 2 * ROW);
    if team > wave { across_waves(w, team, own, &merge) } else { Ok(own) }
}

/// The same for teams of a workgroup whose members are `columns` workitems apart, and neighbours of other teams. Members are combined in
/// their order, so that all hold the same.
pub(super) fn combine_apart(
    w: &mut Writer,
    team: u32,
    columns: u32,
    values: &[Part],
    merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
) -> Res<Vec<Part>> {
    if team == 1 {
        return Ok(values.to_vec());
    }
    let item = w.b.workitem_id();
    let column = w.b.and(item, columns - 1);
    let start = w.b.shl(column, 2u32);
    meet(w, [team, columns], start, values.to_vec(), &merge)
}

/// Members whose values are read at once.
const READ: u32 = 8;

/// A value made of what comes of each dword of another.
pub(super) fn each_dword(b: &mut Builder, v: Part, f: impl Fn(&mut Builder, Part) -> Part) -> Part {
    if v.len == 1 {
        return f(b, v);
    }
    let out = b.v(v.len);
    for i in 0..v.len {
        let x = f(b, v.dword(i));
        b.copy_into(out.dword(i), x);
    }
    out
}

/// What another lane of the row has.
pub(super) fn moved(b: &mut Builder, x: Part, control: i32) -> Part {
    let mods = Mods::new()
        .with(ModName::DppCtrl, control)
        .with(ModName::RowMask, 15)
        .with(ModName::BankMask, 15)
        .with(ModName::BoundCtrl, 1);
    b.op_with(op::V_MOV_B32, &[x.into()], mods)
}

/// What the same lane of the neighbouring row has.
fn other_row(b: &mut Builder, x: Part) -> Part {
    Across::new(b, ROW).of(b, x)
}

/// What the lane whose number differs in one bit has, from bit 4 on: the other row of two, or the other half of the wave.
pub(super) fn across(b: &mut Builder, x: Part, bit: u32) -> Part {
    Across::new(b, bit).of(b, x)
}

/// What it takes to ask the lane whose number differs in one bit, from bit 4 on.
#[derive(Clone, Copy)]
pub(super) enum Across {
    /// Each lane takes that of its own number in the other row: two scalars of four bits for each.
    Numbers([Part; 2]),
    /// Within 32 lanes: all bits of the number are kept, and bit 4 is turned.
    Swizzle,
    /// Any lane, by its address.
    Address(Part),
}

impl Across {
    /// Of the lane whose number differs in `bit`.
    pub fn new(b: &mut Builder, bit: u32) -> Across {
        if bit != ROW {
            let item = b.workitem_id();
            let lane = b.generic(Gen::Xor.of(Type::U32), &[bit.into(), item.into()]);
            return Across::Address(b.shl(lane, 2u32));
        }
        match b.target().has(op::V_PERMLANEX16_B32) {
            true => Across::Numbers([b.scalar(0x7654_3210), b.scalar(0xfedc_ba98)]),
            false => Across::Swizzle,
        }
    }
    /// What that lane has of each dword.
    pub fn of_each(self, b: &mut Builder, x: Part) -> Part {
        let Across::Numbers(lanes) = self else { return each_dword(b, x, |b, x| self.of(b, x)) };
        let out = b.v(x.len);
        (0..x.len).for_each(|i| b.copy_into(out.dword(i), x.dword(i)));
        for i in 0..x.len {
            let operands = [x.dword(i).into(), lanes[0].into(), lanes[1].into()];
            b.emit(op::V_PERMLANEX16_B32, &[out.dword(i).into()], &operands);
        }
        out
    }
    /// What that lane has.
    pub fn of(self, b: &mut Builder, x: Part) -> Part {
        match self {
            Across::Numbers(_) => self.of_each(b, x),
            Across::Swizzle => {
                let out = b.v(1);
                let mods = Mods::new().with(ModName::Offset, 16 << 10 | 0x1f);
                b.push(MInst { mods, ..MInst::new(op::DS_SWIZZLE_B32, &[out.into()], &[x.into()]) });
                out
            }
            Across::Address(address) => b.op(op::DS_BPERMUTE_B32, &[address.into(), x.into()]),
        }
    }
}

/// Combines the rows of a wave, whose lanes hold the same each.
fn rows_as_scalars(
    w: &mut Writer,
    own: Vec<Part>,
    merge: &impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
) -> Res<Vec<Part>> {
    let rows = (0..w.b.wave_size() / ROW).map(|row| {
        let read = |b: &mut Builder, x: Part| {
            let s = b.op(op::V_READLANE_B32, &[x.into(), (row * ROW).into()]);
            b.to_vector(s)
        };
        own.iter().map(|v| each_dword(&mut w.b, *v, read)).collect()
    });
    let rows = rows.collect();
    folded(w, rows, merge)
}

/// Combines several lists of values two by two.
pub(super) fn folded(
    w: &mut Writer,
    mut lists: Vec<Vec<Part>>,
    merge: &impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
) -> Res<Vec<Part>> {
    while lists.len() > 1 {
        let two = lists.chunks(2).map(|two| match two {
            [a, b] => merge(w, a, b),
            rest => Ok(rest[0].clone()),
        });
        lists = two.collect::<Res<_>>()?;
    }
    Ok(lists.pop().unwrap_or_default())
}

/// Combines waves of a team, whose lanes hold the same each.
pub(super) fn across_waves(
    w: &mut Writer,
    team: u32,
    own: Vec<Part>,
    merge: &impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
) -> Res<Vec<Part>> {
    let (wave, start) = (w.b.wave_size(), w.b.to_vector(0u32));
    meet(w, [team / wave, wave], start, own, merge)
}

/// Combines what so many workitems of a workgroup have, each so many behind the one before, the first at byte `start` in LDS.
fn meet(
    w: &mut Writer,
    [members, apart]: [u32; 2],
    start: Part,
    own: Vec<Part>,
    merge: &impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
) -> Res<Vec<Part>> {
    let plane = members * apart * 4;
    let dwords: u32 = own.iter().map(|v| u32::from(v.len)).sum();
    let base = w.b.lds(plane * dwords);
    let item = w.b.workitem_id();
    let home = w.b.shl(item, 2u32);
    let mut at = base;
    for d in own.iter().flat_map(|v| (0..v.len).map(|d| v.dword(d))) {
        w.b.lds_write(home, d, at);
        at += plane;
    }
    w.b.barrier();
    let mut total = Vec::new();
    for first in (0..members).step_by(READ as usize) {
        let found = (first..members.min(first + READ)).map(|number| {
            let mut at = base + number * apart * 4;
            let mut read = |v: &Part| {
                let p = w.b.v(v.len);
                for d in 0..v.len {
                    w.b.lds_read_into(p.dword(d), start, at);
                    at += plane;
                }
                p
            };
            own.iter().map(&mut read).collect()
        });
        let found = found.collect();
        let part = folded(w, found, merge)?;
        total = if first == 0 { part } else { merge(w, &total, &part)? };
    }
    Ok(total)
}

/// The larger of two values, and other plain operations, as what [`combine`] merges by.
pub(super) fn by(g: Gen, ty: Type) -> impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>> {
    move |w, a, b| Ok(vec![w.b.op(g.of(ty), &[a[0].into(), b[0].into()])])
}
