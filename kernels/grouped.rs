//! Normalisations of groups of neighbouring channels where channels come last: group and instance normalisation of images in that
//! order.
//!
//! There a line (a group's channels of all points) lies in short runs, one for each point. So a workgroup takes a *band*, whole groups
//! that make up whole lines of caches where they can, of a piece of the points: neighbouring workitems load neighbouring channels, and each keeps its
//! channels of several points in registers. What it has of a group meets in LDS: the sums, and the squares of differences from
//! the mean that they give.
//!
//! Where a workgroup holds a band of all points that is all, and memory is read once. So it is where workgroups that hold one together tell each other
//! the mean and the sum of squares of each group of their pieces, if that is estimated to be quicker ([`Exchange`]): who misses a piece's for long computes them
//! itself, by the same loop, and then loads its own again. Else the first of two kernels leaves the mean and
//! the sum of squares of each group of each piece in the step's workspace, and each workgroup of the second puts together those of its groups
//! while its elements come, by the formula of Chan, Golub and LeVeque (1979), as [`pieces`](super::pieces) does. Both go through so many images
//! at a time as a cache before memory keeps until they are read again, where there are more.
//!
//! Few long lines that lie together are computed so, too, where workgroups tell each other what they have found: cut in points and channels, of a single group.

mod image;
mod meeting;
mod plan;

use super::address::{self, Offset, part_offset};
use super::error::{Reason, Res};
use super::float::Float;
use super::lines::Shape;
use super::published::Exchange;
use super::softmax::{self, Elements};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Number, Writer, expr, lanes};
use crate::graph::view::View;
use crate::mir::{BlockId, Gen, Part, Type};
use crate::tensor::DType;
use plan::Plan;
use std::num::NonZero;

/// Bytes of a group's channels of a point from which on lines are walked by themselves.
const SHORT: usize = 256;

/// Numbers that a workitem reads from LDS at once.
const READ: usize = 8;

/// Elements of operands that a workitem loads before it stores what comes of them.
const AHEAD: u32 = 32;

/// Bytes that a piece leaves of a group.
const LEFT: usize = 8;

/// How an access lies.
struct Lie {
    /// Dimensions outside of groups and channels.
    outer: View,
    /// Groups, and channels of each.
    channels: View,
    /// Points.
    points: View,
}

impl Lie {
    /// Elements from a channel to the next, where that is the same in a group and from one to the next.
    fn step(&self) -> Option<i64> {
        let (dims, strides) = (&self.channels.dims, &self.channels.strides);
        match dims[1] {
            1 => Some(strides[0]),
            n => (strides[0] == strides[1] * n as i64).then_some(strides[1]),
        }
    }
    /// So many neighbouring channels lie together at whole words, or where their bytes say.
    fn is_dense(&self, t: DType, width: u32) -> bool {
        let whole = |n: i64| (n * t.size() as i64) % (width as usize * t.size()).min(4) as i64 == 0;
        let others = self.outer.strides.iter().chain(&self.points.strides);
        self.step() == Some(1) && whole(self.outer.offset) && others.copied().all(whole)
    }
    /// No point lies before the first one.
    fn goes_on(&self) -> bool {
        self.points.strides.iter().all(|s| *s >= 0)
    }
    /// All points have the same.
    fn is_same(&self) -> bool {
        self.points.strides.iter().all(|s| *s == 0)
    }
    /// Elements of memory, each once, and each once for all that is outside of groups and channels.
    fn elements(&self) -> [usize; 2] {
        let own = |v: &View| v.dims.iter().zip(&v.strides).filter(|(_, s)| **s != 0).map(|(n, _)| n).product::<usize>();
        let of_one = own(&self.channels) * own(&self.points);
        [own(&self.outer) * of_one, self.outer.dims.iter().product::<usize>() * of_one]
    }
}

/// A step that is computed this way.
pub(super) struct Grouped {
    axes: usize,
    /// The dimension of groups, and that of a group's channels where it has several.
    groups: usize,
    channels: Option<usize>,
    /// Channels of a group.
    each: u32,
    /// Points, and what is outside of groups.
    points: usize,
    outer: usize,
    plan: Plan,
}

/// What a kernel does of it.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// All.
    Whole,
    /// Leaves means and sums of squares.
    Find,
    /// Puts these together and gives results.
    Write,
    /// All, where workgroups tell each other what they have found.
    Together,
}

/// Where a workitem is.
struct Place {
    /// The image, its coordinates, the piece of it, and the band.
    image: Part,
    outer: Vec<Option<Part>>,
    piece: Part,
    band: Part,
    /// First channel of the workitem, in the band and of all, and its first point.
    own: Part,
    channel: Part,
    point: Part,
    /// The point's number in its piece.
    row: Part,
    /// Lanes that have points; none where all have.
    busy: Option<Part>,
    /// Of these, those that have a point in each turn; none where all have.
    inside: Vec<Option<Part>>,
    /// Workitems of a team, which takes a group of the band: its number, the group, and the number of the workitem in it.
    members: u32,
    team: Part,
    group: Part,
    member: Part,
    /// LDS for what workitems have, and for what teams have found.
    elements: u32,
    found: u32,
}

/// An access that a kernel walks.
struct Walked {
    arg: Arg,
    t: DType,
    lie: Lie,
    /// Where the workitem's channels are, of its first point where points are evenly apart: one place where channels lie together, or are the same.
    bases: Vec<Offset>,
}

impl Grouped {
    /// How the step is computed this way, where its lines lie so.
    pub fn of(cx: &Cx, axes: usize) -> Option<Grouped> {
        Grouped::by(cx, axes, Plan::of).map(|found| found.0)
    }

    /// How it is computed by a kind of plan, and the clocks that this is estimated to take.
    fn by(cx: &Cx, axes: usize, plan: impl Fn(&Grouped, &Cx, usize) -> Option<(f64, Plan)>) -> Option<(Grouped, f64)> {
        let elements = Elements::of(cx);
        let input = cx.view(elements.sources[0]);
        let rank = input.rank();
        let t = cx.dtype(elements.sources[0]);
        if values::kind(elements.dtype) != values::Kind::Float
            || !cx.step.inputs.iter().chain([&cx.step.output]).all(|a| a.is_plain())
        {
            return None;
        }
        let channels = (rank - axes..rank).rfind(|d| input.dims[*d] > 1 && input.strides[*d] == 1);
        let each = channels.map_or(1, |d| input.dims[d]);
        let at = |n: usize| (0..rank - axes).find(|d| input.dims[*d].min(2) == n && input.strides[*d] == each as i64);
        let groups = at(2).or_else(|| at(1).filter(|_| each > 1))?;
        let points = (rank - axes..rank).filter(|d| Some(*d) != channels).map(|d| input.dims[d]).product::<usize>();
        let outer = (0..rank - axes).filter(|d| *d != groups).map(|d| input.dims[d]).product();
        let as_columns = || {
            let accesses = [(t, input)];
            let shape = Shape::of(&accesses, rank - axes, input.dims[..rank - axes].iter().product(), true).ok()?;
            shape.are_held_columns(cx.target)
        };
        let columns = channels.is_none() && as_columns() == Some(true);
        if points < 2 || each * t.size() >= SHORT || columns {
            return None;
        }
        let mut found = Grouped { axes, groups, channels, each: each as u32, points, outer, plan: Plan::default() };
        let (clocks, plan) = plan(&found, cx, input.dims[groups])?;
        found.plan = plan;
        Some((found, clocks))
    }

    /// How often what elements are made of is read.
    pub fn passes(&self) -> usize {
        self.plan.passes()
    }

    /// How an access lies.
    fn lie(&self, view: &View) -> Lie {
        let rank = view.rank();
        let of = |offset: i64, list: &[usize]| View {
            offset,
            dims: list.iter().map(|d| view.dims[*d]).collect(),
            strides: list.iter().map(|d| view.strides[*d]).collect(),
        };
        let outer: Vec<usize> = (0..rank - self.axes).filter(|d| *d != self.groups).collect();
        let points: Vec<usize> = (rank - self.axes..rank).filter(|d| Some(*d) != self.channels).collect();
        let mut channels = of(0, &[self.groups]);
        channels.dims.push(self.channels.map_or(1, |d| view.dims[d]));
        channels.strides.push(self.channels.map_or(0, |d| view.strides[d]));
        let mut apart = of(0, &[]);
        for d in points.into_iter().filter(|d| view.dims[*d] > 1) {
            let (n, stride) = (view.dims[d], view.strides[d]);
            match (apart.dims.last_mut(), apart.strides.last_mut()) {
                (Some(many), Some(s)) if *s == stride * n as i64 => (*many, *s) = (*many * n, stride),
                _ => {
                    apart.dims.push(n);
                    apart.strides.push(stride);
                }
            }
        }
        Lie { outer: of(view.offset, &outer), channels, points: apart }
    }

    /// The accesses that are walked: what elements are made of, operands of the expression, where elements are kept, the result.
    fn accesses(&self, cx: &Cx) -> Vec<(Arg, DType, Lie)> {
        softmax::walked(cx).into_iter().map(|arg| (arg, cx.dtype(arg), self.lie(cx.view(arg)))).collect()
    }

    /// Bytes that all pieces leave.
    fn bytes(&self) -> usize {
        self.outer * (self.plan.bands * self.plan.band / self.each * self.plan.pieces) as usize * LEFT
    }

    /// The kernels.
    pub fn lower(&self, cx: &Cx, epsilon: f64, center: bool) -> Res<Vec<Kernel>> {
        let stages = match self.plan.pieces {
            1 => &[Stage::Whole][..],
            _ if self.plan.together => &[Stage::Together],
            _ => &[Stage::Find, Stage::Write],
        };
        stages.iter().map(|stage| self.kernel(cx, *stage, epsilon, center)).collect()
    }

    /// Points of a piece.
    fn of_piece(&self) -> u32 {
        self.plan.abreast * self.plan.turns
    }

    /// The kernel of a stage.
    fn kernel(&self, cx: &Cx, stage: Stage, epsilon: f64, center: bool) -> Res<Kernel> {
        let mut w = cx.kernel(self.plan.workgroup);
        let elements = Elements::of(cx);
        let accesses = self.accesses(cx).into_iter();
        let accesses: Vec<_> = accesses.filter(|a| stage != Stage::Find || elements.sources.contains(&a.0)).collect();
        for (arg, ..) in &accesses {
            w.buffer(cx, *arg)?;
        }
        let left = matches!(stage, Stage::Find | Stage::Write).then(|| w.workspace(self.bytes()));
        let done = w.b.label();
        let mut place = self.begin(&mut w, cx, done);
        let exchange = (stage == Stage::Together).then(|| self.exchange(&mut w, &place));
        let opened = exchange.as_ref().map(|exchange| exchange.open(&mut w));
        if let Some((_, piece)) = opened {
            place.piece = piece;
        }
        self.enter(&mut w, &mut place);
        let walked: Vec<Walked> = accesses.into_iter().map(|a| self.walked(&mut w, &place, a)).collect();
        let held = self.hold(&mut w, cx, &elements, &walked[..elements.sources.len()], &place)?;
        let float = Float(Type::F32);
        let mut own = (None, None);
        if stage != Stage::Write {
            let (means, found) = self.find(&mut w, &place, &held, center)?;
            own = (means, Some(found));
        }
        let [means, factors] = match (own, left, &exchange) {
            ((_, Some(found)), Some(left), _) => {
                self.leave(&mut w, &place, left, found);
                [None, None]
            }
            ((means, Some([_, squares])), None, None) => {
                let scale = float.constant(&mut w.b, 1.0 / (self.points as f64 * f64::from(self.each)));
                let factor = float.inverse_deviation(&mut w.b, squares, scale, epsilon);
                [means, Some(self.spread(&mut w, &place, factor, 1))]
            }
            ((_, found), left, exchange) => {
                let pieces = match (left, exchange, opened, found) {
                    (Some(left), ..) => self.left_by_all(&mut w, &place, left),
                    (_, Some(exchange), Some((head, _)), Some(found)) => {
                        let told = self.told_by_all(&mut w, &place, exchange, found)?;
                        exchange.close(&mut w, head)?;
                        told
                    }
                    _ => return Err(Reason::Malformed("pieces that nobody leaves")),
                };
                let [mean, variance] = self.join(&mut w, &place, pieces, center)?;
                let variance = float.plus(&mut w.b, variance, epsilon);
                let factor = float.reciprocal_root(&mut w.b, variance);
                [center.then(|| self.spread(&mut w, &place, mean, 0)), Some(self.spread(&mut w, &place, factor, 1))]
            }
        };
        // All waves have met since they found what they need.
        if let Some(exchange) = &exchange {
            exchange.leave(&mut w);
        }
        if let Some(factors) = factors {
            self.write(&mut w, cx, &place, &walked, &held, means.as_deref(), &factors)?;
        }
        if self.ends_within() {
            w.b.place(done, "done");
        }
        let workspace = if left.is_some() { self.bytes() } else { 0 };
        let (p, rounds) = (&self.plan, self.sections());
        let grid = [p.images * p.pieces * p.bands, 1, 1];
        let flops = 4 * cx.step.output.view.len() as u64 / u64::from(rounds);
        let counters = exchange.map_or(0, |_| Exchange::bytes(self.told(), cx.target.info().wave_size) as usize);
        Ok(Kernel { workspace, counters, rounds, ..w.finish(grid, flops) })
    }

    /// Groups of a band.
    fn of_band(&self) -> u32 {
        self.plan.band / self.each
    }

    /// Launches of each kernel.
    fn sections(&self) -> u32 {
        (self.outer as u32).div_ceil(self.plan.images)
    }

    /// The last launches have fewer images.
    fn ends_within(&self) -> bool {
        !(self.outer as u32).is_multiple_of(self.plan.images)
    }

    /// Where the workitem is; a workgroup that has no image goes to `done`.
    fn begin(&self, w: &mut Writer, cx: &Cx, done: BlockId) -> Place {
        let p = &self.plan;
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        // Those that wait for each other have consecutive numbers.
        let (mut image, piece, band) = if p.together {
            let (rest, piece) = w.b.divmod(group, p.pieces);
            let (image, band) = w.b.divmod(rest, p.bands);
            (image, piece, band)
        } else {
            let (rest, band) = w.b.divmod(group, p.bands);
            let (image, piece) = w.b.divmod(rest, p.pieces);
            (image, piece, band)
        };
        if self.sections() > 1 {
            let section = w.number(Number::Round);
            image = w.b.mad(section, p.images, image);
            if self.ends_within() {
                w.b.branch_lt(self.outer as u32 - 1, image, done);
            }
        }
        let outer = self.lie(&cx.step.inputs[0].view).outer;
        let outer = address::coordinates(&mut w.b, image, &outer.dims);
        let across = p.band / p.width;
        let (row, column) = w.b.divmod(item, across);
        let own = w.b.mul(column, p.width);
        let channel = w.b.mad(band, p.band, own);
        let busy = (across * p.abreast < p.workgroup)
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[p.abreast.into(), row.into()]));
        let members = p.members(self.of_band(), w.b.wave_size());
        let team = w.b.shr(item, members.trailing_zeros());
        let member = w.b.and(item, members - 1);
        let last = w.b.to_vector(self.of_band() - 1);
        let own_group = w.b.op(Gen::Min.of(Type::U32), &[team.into(), last.into()]);
        let elements = w.b.lds(p.workgroup * self.sums()[0] * 4);
        let found = w.b.lds(p.workgroup * 8);
        Place {
            image,
            outer,
            piece,
            band,
            own,
            channel,
            row,
            point: row,
            busy,
            inside: Vec::new(),
            members,
            team,
            group: own_group,
            member,
            elements,
            found,
        }
    }

    /// Comes to the first of the workitem's points of the piece.
    fn enter(&self, w: &mut Writer, place: &mut Place) {
        let p = &self.plan;
        let point = w.b.mad(place.piece, self.of_piece(), place.row);
        // The last piece's points end in a turn, or before others.
        let rest = self.points as u32 - (p.pieces - 1) * self.of_piece();
        let inside = (0..p.turns).map(|turn| {
            let limit = (self.points as u32).saturating_sub(turn * p.abreast);
            let open = (turn + 1) * p.abreast > rest;
            open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), point.into()]))
        });
        (place.point, place.inside) = (point, inside.collect());
    }

    /// Prepares an access.
    fn walked(&self, w: &mut Writer, place: &Place, (arg, t, lie): (Arg, DType, Lie)) -> Walked {
        let (size, width) = (t.size(), self.plan.width);
        let mut base = address::offset(&mut w.b, &lie.outer, size, &place.outer);
        if let [stride] = lie.points.strides[..]
            && stride != 0
        {
            let of_point = part_offset(&mut w.b, &lie.points, size, 0..1, place.point, false);
            base = address::add(&mut w.b, base, of_point);
        }
        let step = lie.step();
        let together = step == Some(0) || lie.is_dense(t, width);
        let bases = (0..if together { 1 } else { width }).map(|e| {
            let channel = if e > 0 { w.b.add(place.channel, e) } else { place.channel };
            let at = match step {
                Some(0) => Offset { reg: None, imm: 0 },
                Some(step) => Offset { reg: Some(w.b.mul(channel, (step * size as i64) as i32)), imm: 0 },
                None => part_offset(&mut w.b, &lie.channels, size, 0..2, channel, false),
            };
            let mut at = address::add(&mut w.b, base, at);
            // Steps from there do not lead back.
            if let Some(mask) = place.busy.filter(|_| !lie.is_same() && lie.goes_on()) {
                at = at.within(&mut w.b, mask);
            }
            at
        });
        let bases = bases.collect();
        Walked { arg, t, lie, bases }
    }

    /// Where an access has the channels of the point of a turn; lanes without one are masked, but for what is the same for all.
    fn places(&self, w: &mut Writer, a: &Walked, place: &Place, turn: u32) -> Vec<Offset> {
        let (size, ahead) = (a.t.size(), turn * self.plan.abreast);
        let of_point = match a.lie.points.strides[..] {
            _ if a.lie.is_same() => Offset { reg: None, imm: 0 },
            [stride] => Offset { reg: None, imm: (i64::from(ahead) * stride * size as i64) as u32 },
            _ => {
                let point = if ahead > 0 { w.b.add(place.point, ahead) } else { place.point };
                part_offset(&mut w.b, &a.lie.points, size, 0..a.lie.points.rank(), point, false)
            }
        };
        let inside = match (place.inside[turn as usize], place.busy.filter(|_| !a.lie.goes_on())) {
            _ if a.lie.is_same() => None,
            (Some(x), Some(y)) => Some(w.b.mask_and(x, y)),
            (x, y) => x.or(y),
        };
        let mut places = Vec::new();
        for base in &a.bases {
            let mut at = address::add(&mut w.b, *base, of_point);
            at = at.within(&mut w.b, inside);
            places.push(at);
        }
        places
    }

    /// The workitem's channels of a turn's point, or what serves for all.
    fn load(&self, w: &mut Writer, cx: &Cx, a: &Walked, place: &Place, turn: u32) -> Res<Vec<Value>> {
        let buf = w.buffer(cx, a.arg)?;
        let places = self.places(w, a, place, turn);
        Ok(match places[..] {
            [at] if a.lie.step() == Some(0) => vec![values::load(&mut w.b, a.t, buf, at)],
            [at] => values::load_some(&mut w.b, a.t, buf, at, self.plan.width),
            _ => places.into_iter().map(|at| values::load(&mut w.b, a.t, buf, at)).collect(),
        })
    }

    /// The workitem's elements of all turns, made of what they are made of.
    fn hold(
        &self,
        w: &mut Writer,
        cx: &Cx,
        elements: &Elements,
        sources: &[Walked],
        place: &Place,
    ) -> Res<Vec<Vec<Part>>> {
        // What all points have in common is read once.
        let same = |w: &mut Writer, a: &Walked| a.lie.is_same().then(|| self.load(w, cx, a, place, 0)).transpose();
        let same = sources.iter().map(|a| same(w, a)).collect::<Res<Vec<_>>>()?;
        let numbers: Vec<u32> = (0..self.plan.turns).collect();
        let ahead =
            if elements.made.is_some() { AHEAD / self.plan.width / sources.len() as u32 } else { self.plan.turns };
        let mut held = Vec::new();
        for some in numbers.chunks(ahead.max(1) as usize) {
            let mut loaded = Vec::new();
            for turn in some {
                let mut operands = Vec::new();
                for (a, same) in sources.iter().zip(&same) {
                    operands.push(match same {
                        Some(values) => values.clone(),
                        None => self.load(w, cx, a, place, *turn)?,
                    });
                }
                loaded.push(operands);
            }
            for (turn, operands) in some.iter().zip(&loaded) {
                let mut list = elements.of_loaded(w, operands, self.plan.width as usize)?;
                // Elements that are loaded are 0 where there is no point.
                if let (Some(mask), Some(_)) = (place.inside[*turn as usize], elements.made) {
                    let zero = Float(Type::F32).constant(&mut w.b, 0.0);
                    list.iter_mut().for_each(|x| *x = Float(Type::F32).select(&mut w.b, mask, *x, zero));
                }
                held.push(list);
            }
        }
        Ok(held)
    }

    /// Elements of a group that the piece has.
    fn count(&self, w: &mut Writer, place: &Place, number: impl Fn(u32) -> f64) -> Part {
        let p = &self.plan;
        let float = Float(Type::F32);
        let whole = float.held(&mut w.b, number(self.of_piece() * self.each));
        if self.points as u32 == self.of_piece() * p.pieces {
            return whole;
        }
        let rest = self.points as u32 - (p.pieces - 1) * self.of_piece();
        let rest = float.held(&mut w.b, number(rest * self.each));
        let piece = w.b.to_vector(place.piece);
        let last = w.b.op(Gen::CmpEq.of(Type::U32), &[(p.pieces - 1).into(), piece.into()]);
        w.b.select(last, rest, whole)
    }

    /// Sums that a workitem leaves for its team, and how many of a point are of the same group: of its channels together where they are
    /// of one group.
    fn sums(&self) -> [u32; 2] {
        let p = &self.plan;
        if self.each.is_multiple_of(p.width) { [1, self.each / p.width] } else { [p.width, self.each] }
    }

    /// The sum over a team's group of what workitems have of their channels.
    fn gather(&self, w: &mut Writer, place: &Place, own: &[Part]) -> Res<Part> {
        let (p, float) = (&self.plan, Float(Type::F32));
        let ([sums, of_group], item) = (self.sums(), w.b.workitem_id());
        let merge = lanes::by(Gen::Add, Type::F32);
        let own = match sums {
            1 => lanes::folded(w, own.iter().map(|x| vec![*x]).collect(), &merge)?,
            _ => own.to_vec(),
        };
        let home = w.b.mul(item, sums * 4);
        for (i, some) in (0u32..).zip(own.chunks(4)) {
            let data = w.b.v(some.len() as u8);
            (0u8..).zip(some).for_each(|(e, x)| w.b.copy_into(data.dword(e), *x));
            w.b.lds_write(home, data, place.elements + 16 * i);
        }
        w.b.barrier();
        let all = p.abreast * of_group;
        let pitch = p.band / p.width * sums * 4;
        let first = w.b.mul(place.group, of_group * 4);
        let mut total: Option<Part> = None;
        let reads: Vec<u32> = (0..all).step_by(place.members as usize).collect();
        for some in reads.chunks(READ) {
            let mut found = Vec::new();
            for &ahead in some {
                let mut number = if ahead > 0 { w.b.add(place.member, ahead) } else { place.member };
                let inside = (ahead + place.members > all).then(|| {
                    let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[all.into(), number.into()]);
                    let last = w.b.to_vector(all - 1);
                    number = w.b.op(Gen::Min.of(Type::U32), &[number.into(), last.into()]);
                    inside
                });
                let (row, column) = w.b.divmod(number, of_group);
                let at = w.b.mad(row, pitch, first);
                let column = w.b.shl(column, 2u32);
                let at = w.b.add(column, at);
                let x = w.b.lds_read(1, at, place.elements);
                found.push(vec![match inside {
                    Some(mask) => {
                        let zero = float.constant(&mut w.b, 0.0);
                        float.select(&mut w.b, mask, x, zero)
                    }
                    None => x,
                }]);
            }
            let part = lanes::folded(w, found, &merge)?[0];
            total = Some(total.map_or(part, |sum| float.op(&mut w.b, Gen::Add, sum, part)));
        }
        let total = total.ok_or(Reason::Malformed("a group without elements"))?;
        Ok(lanes::combine(w, place.members, &[total], merge)?[0])
    }

    /// What each team has found, as the workitem's channels need it. Of numbers, 0 and 1, a place in LDS each.
    fn spread(&self, w: &mut Writer, place: &Place, x: Part, number: u32) -> Vec<Part> {
        let p = &self.plan;
        let at = place.found + number * p.workgroup * 4;
        let item = w.b.workitem_id();
        let home = w.b.shl(item, 2u32);
        w.b.lds_write(home, x, at);
        w.b.barrier();
        let mut read = |e: u32| {
            let channel = if e > 0 { w.b.add(place.own, e) } else { place.own };
            let group = w.b.udiv(channel, self.each);
            let group = w.b.mul(group, place.members * 4);
            w.b.lds_read(1, group, at)
        };
        if self.each.is_multiple_of(p.width) {
            return vec![read(0); p.width as usize];
        }
        (0..p.width).map(read).collect()
    }

    /// The means of the workitem's channels, where there are means, and mean and sum of squares of the team's group.
    fn find(
        &self,
        w: &mut Writer,
        place: &Place,
        held: &[Vec<Part>],
        center: bool,
    ) -> Res<(Option<Vec<Part>>, [Part; 2])> {
        let float = Float(Type::F32);
        let partial = |w: &mut Writer| (0..self.plan.width).map(|_| float.held(&mut w.b, 0.0)).collect::<Vec<Part>>();
        let (mut means, mut mean) = (None, float.held(&mut w.b, 0.0));
        if center {
            let sums = partial(w);
            for list in held {
                list.iter().zip(&sums).for_each(|(x, sum)| float.update(&mut w.b, Gen::Add, *sum, *x));
            }
            let sum = self.gather(w, place, &sums)?;
            let scale = self.count(w, place, |n| 1.0 / f64::from(n));
            mean = float.op(&mut w.b, Gen::Mul, scale, sum);
            means = Some(self.spread(w, place, mean, 0));
        }
        let squares = partial(w);
        for (list, inside) in held.iter().zip(&place.inside) {
            for (e, (x, sum)) in list.iter().zip(&squares).enumerate() {
                let mut d = *x;
                if let Some(means) = &means {
                    d = float.op(&mut w.b, Gen::Sub, d, means[e]);
                    if let Some(mask) = inside {
                        let zero = float.constant(&mut w.b, 0.0);
                        d = float.select(&mut w.b, *mask, d, zero);
                    }
                }
                float.fma_into(&mut w.b, *sum, d, d);
            }
        }
        let squares = self.gather(w, place, &squares)?;
        Ok((means, [mean, squares]))
    }

    /// Stores the results.
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        w: &mut Writer,
        cx: &Cx,
        place: &Place,
        walked: &[Walked],
        held: &[Vec<Part>],
        means: Option<&[Part]>,
        factors: &[Part],
    ) -> Res<()> {
        let (float, elements) = (Float(Type::F32), Elements::of(cx));
        let (t, others) = (elements.dtype, &walked[elements.sources.len()..]);
        let (Some((output, others)), Some(turns)) = (others.split_last(), NonZero::new(AHEAD / self.plan.width)) else {
            return Err(Reason::Malformed("a normalisation without a result"));
        };
        let (kept, operands): (Vec<&Walked>, Vec<&Walked>) = others.iter().partition(|a| Some(a.arg) == elements.kept);
        let whole = |list: &[Part]| list.iter().map(|x| Value::of(t, *x)).collect::<Vec<Value>>();
        for a in kept {
            let buf = w.buffer(cx, a.arg)?;
            for (turn, list) in (0..).zip(held) {
                let at = self.places(w, a, place, turn)[0];
                values::store_some(&mut w.b, a.t, buf, at, &whole(list));
            }
        }
        // What all points have in common is read once.
        let mut given: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
        for a in operands.iter().filter(|a| a.lie.is_same()) {
            if let Arg::Input(i) = a.arg {
                given[i] = self.load(w, cx, a, place, 0)?;
            }
        }
        let numbers: Vec<u32> = (0..self.plan.turns).collect();
        for some in numbers.chunks(turns.get() as usize) {
            let mut own = Vec::new();
            for turn in some {
                let mut given = given.clone();
                given[0] = whole(&held[*turn as usize]);
                for a in operands.iter().filter(|a| !a.lie.is_same()) {
                    if let Arg::Input(i) = a.arg {
                        given[i] = self.load(w, cx, a, place, *turn)?;
                    }
                }
                own.push(given);
            }
            for (turn, given) in some.iter().zip(own) {
                let mut results = Vec::new();
                for (e, x) in held[*turn as usize].iter().enumerate() {
                    let d = means.map_or(*x, |means| float.op(&mut w.b, Gen::Sub, *x, means[e]));
                    let y = float.op(&mut w.b, Gen::Mul, d, factors[e]);
                    let input = |i: u32| given[i as usize][e.min(given[i as usize].len() - 1)];
                    results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(Value::of(t, y)))?);
                }
                let buf = w.buffer(cx, Arg::Output)?;
                let at = self.places(w, output, place, *turn)[0];
                values::store_some(&mut w.b, output.t, buf, at, &results);
            }
        }
        Ok(())
    }
}
