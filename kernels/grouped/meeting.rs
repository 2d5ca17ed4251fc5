//! What pieces of a band find of its groups: left for the kernel behind, or told other workgroups, and put together.

use super::{Grouped, LEFT, Place};
use crate::kernels::error::Res;
use crate::kernels::float::Float;
use crate::kernels::published::Exchange;
use crate::kernels::{Writer, lanes};
use crate::mir::{Buffer, Gen, Part, Type};

impl Grouped {
    /// Leaves what the piece has of the team's group.
    pub(super) fn leave(&self, w: &mut Writer, place: &Place, left: Buffer, found: [Part; 2]) {
        let at = self.left(w, place);
        let at = w.b.mad(place.piece, LEFT as u32, at);
        let mask = self.speaks(w, place);
        let at = w.b.guard(mask, at);
        let data = w.b.v(2);
        (0u8..2).zip(found).for_each(|(i, x)| w.b.copy_into(data.dword(i), x));
        w.b.store(left, data, at, 0u32, 0);
    }

    /// Where what the pieces leave of the team's group begins.
    pub(super) fn left(&self, w: &mut Writer, place: &Place) -> Part {
        let p = &self.plan;
        let bands = w.b.mad(place.image, p.bands, place.band);
        let groups = w.b.mad(bands, self.of_band(), place.group);
        w.b.mul(groups, p.pieces * LEFT as u32)
    }

    /// Teams of workgroups that tell each other what they have found, members of each, and groups of which they do.
    pub(super) fn told(&self) -> [u32; 3] {
        let p = &self.plan;
        [self.outer as u32 * p.bands, p.pieces, self.of_band()]
    }

    /// All pieces of a band are a team.
    pub(super) fn exchange(&self, w: &mut Writer, place: &Place) -> Exchange {
        let team = w.b.mad(place.image, self.plan.bands, place.band);
        Exchange::new(w, self.told(), [team, place.piece])
    }

    /// What every so many pieces of the team's group have left, from the member's on; nothing in lanes of the mask.
    pub(super) fn left_by_all(&self, w: &mut Writer, place: &Place, left: Buffer) -> Vec<[Part; 2]> {
        let at = self.left(w, place);
        let at = w.b.mad(place.member, LEFT as u32, at);
        let each = (0..self.plan.pieces).step_by(place.members as usize).map(|ahead| {
            let at = self.there(w, place, ahead).map_or(at, |mask| w.b.guard(mask, at));
            let both = w.b.load(left, 2, at, 0u32, ahead * LEFT as u32);
            [both.dword(0), both.dword(1)]
        });
        each.collect()
    }

    /// The same of what workgroups tell each other, the own one what it has found.
    pub(super) fn told_by_all(
        &self,
        w: &mut Writer,
        place: &Place,
        exchange: &Exchange,
        found: [Part; 2],
    ) -> Res<Vec<[Part; 2]>> {
        let row = exchange.row(w, place.group);
        let mask = self.speaks(w, place);
        exchange.publish(w, row, found, mask);
        let teams = self.plan.workgroup / place.members;
        let has_group = (teams > self.of_band()).then(|| self.has_group(w, place));
        let each = (0..self.plan.pieces).step_by(place.members as usize).map(|ahead| {
            let number = if ahead > 0 { w.b.add(place.member, ahead) } else { place.member };
            let there = self.there(w, place, ahead);
            let needed = match (there, has_group) {
                (Some(x), Some(y)) => Some(w.b.mask_and(x, y)),
                (x, y) => x.or(y),
            };
            exchange.find(w, row, number, needed)
        });
        each.collect()
    }

    /// Lanes that put together a piece so far behind their member's number; none where all do.
    pub(super) fn there(&self, w: &mut Writer, place: &Place, ahead: u32) -> Option<Part> {
        let pieces = self.plan.pieces;
        (ahead + place.members > pieces)
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(pieces - ahead).into(), place.member.into()]))
    }

    /// The first lane of each team that has a group.
    pub(super) fn speaks(&self, w: &mut Writer, place: &Place) -> Part {
        let first = w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), place.member.into()]);
        let there = self.has_group(w, place);
        w.b.mask_and(first, there)
    }

    /// The lanes of teams that have a group.
    pub(super) fn has_group(&self, w: &mut Writer, place: &Place) -> Part {
        w.b.op(Gen::CmpGt.of(Type::U32), &[self.of_band().into(), place.team.into()])
    }

    /// Mean and variance of the team's group, of what its members have of all pieces.
    pub(super) fn join(&self, w: &mut Writer, place: &Place, found: Vec<[Part; 2]>, center: bool) -> Res<[Part; 2]> {
        let (p, float) = (&self.plan, Float(Type::F32));
        let all = self.points as f64;
        let rest = self.points as u32 - (p.pieces - 1) * self.of_piece();
        let mut pieces = Vec::new();
        for (ahead, [mean, squares]) in (0..p.pieces).step_by(place.members as usize).zip(found) {
            let inside = self.there(w, place, ahead);
            // The share of all elements that the piece has.
            let mut share = float.held(&mut w.b, f64::from(self.of_piece()) / all);
            if ahead + place.members >= p.pieces && rest != self.of_piece() {
                let last = w.b.op(Gen::CmpEq.of(Type::U32), &[(p.pieces - 1 - ahead).into(), place.member.into()]);
                let less = float.held(&mut w.b, f64::from(rest) / all);
                share = w.b.select(last, less, share);
            }
            if let Some(mask) = inside {
                let zero = float.constant(&mut w.b, 0.0);
                share = float.select(&mut w.b, mask, share, zero);
            }
            pieces.push((mean, squares, share));
        }
        let merge = lanes::by(Gen::Add, Type::F32);
        let total = |w: &mut Writer, numbers: Vec<Part>| -> Res<Part> {
            let own = lanes::folded(w, numbers.into_iter().map(|x| vec![x]).collect(), &merge)?;
            Ok(lanes::combine(w, place.members, &own, &merge)?[0])
        };
        let mut mean = float.held(&mut w.b, 0.0);
        if center {
            let means = pieces.iter().map(|(mean, _, share)| float.op(&mut w.b, Gen::Mul, *mean, *share)).collect();
            mean = total(w, means)?;
        }
        let scale = float.held(&mut w.b, 1.0 / (all * f64::from(self.each)));
        let mut squares = Vec::new();
        for (own, square, share) in pieces {
            let mut sum = float.op(&mut w.b, Gen::Mul, scale, square);
            if center {
                let d = float.op(&mut w.b, Gen::Sub, own, mean);
                let apart = float.op(&mut w.b, Gen::Mul, d, share);
                sum = float.fma(&mut w.b, apart, d, sum);
            }
            squares.push(sum);
        }
        Ok([mean, total(w, squares)?])
    }
}
