//! The best elements of lines: a team of lanes holds a piece of a line in registers, and finds one element a round, or all at once.
//!
//! Elements become keys, whole numbers of which a larger one is a better element and no two are equal: the order of the element's bits, and
//! behind it its place, where the first counts. Floats of 16 bits leave so many zeros behind their bits as f32 that the place fits in the same
//! word; others take one more than the element. Very few of short pieces are found in rounds, in which registers are never written again: with
//! `below` one less than the key that was found last, `below - key` is smallest, without a sign, for the next one, and for all that were
//! found before it is larger than `below`. Of f32 keys of one word leave out the code's last bits, in many lines; what that may have put in
//! a wrong order is looked for again with all of them. A few of one word are merged ([`merged`]) where that takes fewer instructions. Few are left by a wave's sieve ([`sieve`](super::sieve)); else a workgroup sorts ([`sorted`]), or, of few
//! lines, several look for those above a threshold ([`select`]).

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::float::Float;
use super::merged;
use super::reduce::{apply, literal, scalar_loop};
use super::select::{self, Results as _, Select};
use super::sieve::{Held, Sieve, extreme};
use super::small;
use super::sorted::{self, Key, Team};
use super::values::{self, Kind, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, lanes, pointwise};
use crate::graph::expr::{Binary, Scalar};
use crate::graph::fused::TopK;
use crate::mir::{Builder, Gen, Part, Type};
use crate::tensor::DType;
use barewave_isa::op;

const WORKGROUP: u32 = 256;

/// Elements that a lane holds, if the team can be as large as that.
const HELD: usize = sorted::EACH as usize;

/// Low bits of a key of one word: the place in a piece, from the end.
const PLACE: u32 = 0x1fff;
const _: () = assert!(TopK::LONGEST <= PLACE as usize);

/// Rounds times elements that a lane of a wave would look at in each, of what is sooner found in rounds than by a sieve: by the cycle model of pieces
/// of 64 to 1024 on six targets.
const SOON: usize = 16;

/// Elements of a lane, in words, where there are so many lines that several share a wave: of which waves have enough registers, and at most, where they are of
/// one word and several come with a load; what rounds then take longer; and loops of rounds at most.
const SHARED: [usize; 2] = [32, 64];
const CROWDED: f64 = 1.15;
const LOOPS: usize = 2;

/// Instructions of a wave that finds the best in rounds: in each for an element of its lanes, for a step in which the lanes of a team meet, and beside
/// these, of keys of one word and of two; and before the rounds for an element.
const OF_ROUND: [[f64; 3]; 2] = [[1.5, 4.0, 10.0], [5.0, 8.0, 16.0]];
const MADE: f64 = 4.0;

/// Those of a sieve, and for each element of its lanes: by the cycle model of pieces of 197 to 4096.
const SIFTED: [[f64; 2]; 2] = [[330.0, 11.0], [470.0, 20.0]];

/// Instructions beside those of rounds with keys that leave something out, and the bits that they leave out at most.
const BRIEF: f64 = 60.0;
const LEFT_OUT: u32 = 10;

/// Instructions of a wave for each line that it has, of which teams of so many lanes find the best `k` in rounds.
fn of_rounds(k: usize, words: usize, held: usize, [team, wave]: [u32; 2]) -> f64 {
    let [element, meeting, beside] = OF_ROUND[words - 1];
    let held = held as f64;
    let round = held * element + f64::from(team.ilog2()) * meeting + beside;
    let crowded = if held as usize * words > SHARED[0] { CROWDED } else { 1.0 };
    (k as f64 * round + MADE * held) * crowded * f64::from(team) / f64::from(wave)
}

/// DPP control: the next lane of the row.
const NEXT: i32 = 0x101;

/// Elements of a line at least that is not sorted as a whole, or, where there are no more lines than compute units, left to a wave.
const ALONE: usize = 2048;

/// How the best of a piece are found.
#[derive(Clone, Copy)]
enum Search {
    Rounds,
    /// The same of keys that leave out the codes' last bits, so many, and again with all where that is not sure.
    Brief(u32),
    /// By merging keys of one word, which leave so many bits out or none.
    Merged(Option<u32>),
    Sieve,
    Sort,
    Select(Select),
}

/// How a piece lies in its team.
struct Shape {
    /// Neighbours that a lane loads at once.
    width: usize,
    /// Lanes.
    team: u32,
    /// Loads of a lane.
    loads: u32,
    /// Of so many neighbours, those of each piece, and how many pieces have one more.
    units: [u32; 2],
    /// Pieces of a line.
    pieces: usize,
    search: Search,
}

impl Shape {
    fn of(cx: &Cx, lines: usize) -> Res<Shape> {
        let (view, t) = (&cx.step.inputs[0].view, cx.dtype(Arg::Input(0)));
        let [.., pieces, k] = cx.step.output.view.dims[..] else { return Err(Reason::Malformed("no pieces")) };
        let (n, stride) = (view.dims[view.rank() - 1], view.strides[view.rank() - 1]);
        let few = lines <= cx.target.cus() as usize || !TopK::few(t, k);
        let alone = pieces == 1 && few && n >= ALONE.max(2 * TopK::room(k));
        if n.div_ceil(pieces) > TopK::LONGEST || alone && t.size() <= 4 && TopK::at_once(lines, n, k) {
            let select = (t.size() <= 4).then(|| Select::of(cx.target, lines, n, k)).flatten();
            let select = select.ok_or(Reason::Malformed("a line that is too long"))?;
            let fits = |width: &usize| {
                let aligned = n.is_multiple_of(*width) && stride == 1 && values::is_aligned(t, view, width * t.size());
                *width == 1 || aligned && width * t.size() <= 16 && *width <= select.each as usize
            };
            let width = [8, 4, 2, 1].into_iter().find(fits).unwrap_or(1);
            let (units, pieces) = (n / width, select.pieces as usize);
            let loads = units.div_ceil(pieces).div_ceil(select.lanes as usize) as u32;
            let units = [units / pieces, units % pieces].map(|u| u as u32);
            return Ok(Shape { width, team: select.lanes, loads, units, pieces, search: Search::Select(select) });
        }
        let longest = n.div_ceil(pieces);
        let fits = |width: &usize| {
            // Pieces of the interpreter's: where units do not come out even these differ.
            let even = n.is_multiple_of(pieces * width) || pieces == 1 && n.is_multiple_of(*width);
            let aligned = stride == 1 && values::is_aligned(t, view, width * t.size());
            *width == 1 || even && aligned && width * t.size() <= 16 && longest > 2 * width
        };
        let width = [8, 4, 2, 1].into_iter().find(fits).unwrap_or(1);
        let (units, wave) = (longest / width, cx.target.info().wave_size);
        let loads = |team: u32| (units as u32).div_ceil(team);
        let split = [n / width / pieces, n / width % pieces].map(|u| u as u32);
        debug_assert!(k * pieces <= n);
        if !TopK::few(t, k) {
            let least = (longest.div_ceil(HELD) as u32).next_power_of_two();
            let team = if loads(least) as usize * width > HELD { 2 * least } else { least };
            return Ok(Shape { width, team, loads: loads(team), units: split, pieces, search: Search::Sort });
        }
        let words = if is_word(t) { 1 } else { 2 };
        let held = |team: u32| loads(team) as usize * width;
        let bits = |team: u32| (team * held(team) as u32).next_power_of_two().ilog2();
        let fill = |team: u32| lines * team as usize >= (cx.target.cus() * 4 * wave) as usize;
        let in_merges = |team: u32| {
            let beside = if words == 1 { 0.0 } else { BRIEF + (MADE / 2.0 + OF_ROUND[0][0]) * held(team) as f64 };
            let all = merged::instructions(k, held(team), team) + MADE * held(team) as f64 + beside;
            all * f64::from(team) / f64::from(wave)
        };
        let merges = |team: &u32| {
            let able =
                words == 1 || t == DType::F32 && *team <= lanes::ROW && k as u32 <= *team && bits(*team) <= LEFT_OUT;
            able && (2..=merged::MOST).contains(&k)
                && fill(*team)
                && held(*team) * words <= SHARED[0]
                && k <= LOOPS * *team as usize
        };
        let merging = (0..=wave.ilog2()).map(|n| 1 << n).filter(merges);
        let merging = merging.min_by(|a, b| in_merges(*a).total_cmp(&in_merges(*b)));
        let by_merges = |team: u32| Shape {
            width,
            team,
            loads: loads(team),
            units: split,
            pieces,
            search: Search::Merged((words == 2).then(|| bits(team))),
        };
        if k * longest.div_ceil(wave as usize) > SOON {
            let brief = |team: u32| {
                let bits = bits(team);
                (t == DType::F32 && team <= lanes::ROW && (k as u32) < team && bits <= LEFT_OUT).then_some(bits)
            };
            let in_rounds = |team: u32| match brief(team) {
                Some(_) => {
                    let beside = BRIEF + MADE * held(team) as f64 / 2.0;
                    of_rounds(k + 1, 1, held(team), [team, wave]) + beside * f64::from(team) / f64::from(wave)
                }
                None => of_rounds(k, words, held(team), [team, wave]),
            };
            let fits = |team: &u32| {
                let most = SHARED[usize::from(words == 1 && width > 1)];
                fill(*team) && held(*team) * words <= most && k <= LOOPS * *team as usize
            };
            let teams = (0..=wave.ilog2()).map(|n| 1 << n).filter(fits);
            let best = teams.min_by(|a, b| in_rounds(*a).total_cmp(&in_rounds(*b)));
            let [sifted, element] = SIFTED[words - 1];
            let sifted = sifted + element * held(wave) as f64;
            let otherwise = best.map_or(sifted, |team| in_rounds(team).min(sifted));
            if let Some(team) = merging.filter(|team| in_merges(*team) < otherwise) {
                return Ok(by_merges(team));
            }
            if let Some(team) = best.filter(|team| in_rounds(*team) < sifted) {
                let search = brief(team).map_or(Search::Rounds, Search::Brief);
                return Ok(Shape { width, team, loads: loads(team), units: split, pieces, search });
            }
            return Ok(Shape { width, team: wave, loads: loads(wave), units: split, pieces, search: Search::Sieve });
        }
        let most = wave;
        let lanes = (cx.target.cus() * 4 * most) as usize;
        let mut team = 1;
        while team < most
            && loads(team) > 1
            && (loads(team) as usize * width > HELD || lines * (2 * team) as usize <= lanes)
        {
            team *= 2;
        }
        let rounds = of_rounds(k, words, held(team), [team, wave]);
        if let Some(team) = merging.filter(|team| in_merges(*team) < rounds) {
            return Ok(by_merges(team));
        }
        Ok(Shape { width, team, loads: loads(team), units: split, pieces, search: Search::Rounds })
    }
}

/// Keys of one word: those of floats of 16 bits and less, and integers of these.
fn is_word(t: DType) -> bool {
    t.size() <= 2
}

/// A whole number without a sign, in words of which the lowest is first, whose order is that of elements: larger is better.
fn code(w: &mut Writer, t: DType, x: Value, largest: bool) -> Res<Vec<Part>> {
    let b = &mut w.b;
    let x = x.whole(b);
    let top = 1u32 << 31;
    let float = |b: &mut Builder, ty: Type, x: Part| {
        // Zeros become one.
        let zero = Float(ty).constant(b, 0.0);
        let bits = b.op(Gen::Add.of(ty), &[zero, x.into()]);
        let nan = b.op(Gen::CmpUnordered.of(ty), &[x.into(), x.into()]);
        let high = bits.dword(bits.len - 1);
        let sign = b.op(op::V_ASHRREV_I32, &[31u32.into(), high.into()]);
        let turned = b.generic(Gen::Or.of(Type::B32), &[top.into(), sign.into()]);
        let words = (0..bits.len).map(|d| {
            let by = if d + 1 == bits.len { turned } else { sign };
            let code = b.generic(Gen::Xor.of(Type::B32), &[by.into(), bits.dword(d).into()]);
            b.select(nan, u32::MAX, code)
        });
        words.collect()
    };
    let whole = |b: &mut Builder, signed: bool, x: Part| {
        let mut words: Vec<Part> = (0..x.len).map(|d| x.dword(d)).collect();
        if let Some(high) = words.last_mut().filter(|_| signed) {
            *high = b.generic(Gen::Xor.of(Type::B32), &[top.into(), (*high).into()]);
        }
        words
    };
    let code: Vec<Part> = match kind(t) {
        Kind::Float | Kind::Double => float(b, values::computed(t), x),
        Kind::Int { signed } => {
            let x = if is_word(t) { b.shl(x, 16u32) } else { x };
            whole(b, signed, x)
        }
        Kind::Long { signed } => whole(b, signed, x),
        Kind::Bool => return Err(Reason::Operation { op: "TopK".into(), dtype: t }),
    };
    let turn = |x: Part| if largest { x } else { b.generic(Gen::Not.of(Type::B32), &[x.into()]) };
    Ok(code.into_iter().map(turn).collect())
}

/// The codes of two floats of 16 bits in each word, as memory has them: the order of all numbers is that of whole numbers without a sign, zeros are one, and
/// what is not a number is above all.
fn codes_of_pairs(b: &mut Builder, t: DType, words: Part, largest: bool) -> Vec<Part> {
    // Numbers begin at 0: what a NaN with a sign would have is less than that, and comes out at the upper end.
    let infinity = if t == DType::F16 { 0x7c00u32 } else { 0x7f80 };
    // In scalars: keys leave few vector registers.
    let both = |b: &mut Builder, x: u32| b.scalar(x << 16 | x);
    let [by, size, one, zero, nan] = [15, 0x7fff, 1, infinity, 2 * infinity + 1].map(|x| both(b, x));
    let of_word = |b: &mut Builder, x: Part| {
        let sign = b.op(op::V_PK_ASHRREV_I16, &[by.into(), x.into()]);
        let sign = b.op(Gen::Or.of(Type::B32), &[sign.into(), one.into()]);
        let size = b.op(Gen::And.of(Type::B32), &[x.into(), size.into()]);
        let code = b.op(op::V_PK_MAD_I16, &[size.into(), sign.into(), zero.into()]);
        let code = b.op(op::V_PK_MIN_U16, &[code.into(), nan.into()]);
        if largest { code } else { b.generic(Gen::Not.of(Type::B32), &[code.into()]) }
    };
    (0..words.len).map(|i| of_word(b, words.dword(i))).collect()
}

/// How far a key is below another one, in words.
fn apart(w: &mut Writer, below: Part, key: Part) -> Vec<Part> {
    if key.len == 1 {
        return vec![w.b.sub(below, key)];
    }
    let (low, high, borrow, unused) = (w.b.v(1), w.b.v(1), w.b.mask(), w.b.mask());
    w.b.emit(op::V_SUB_CO_U32, &[low.into(), borrow.into()], &[below.dword(0).into(), key.dword(0).into()]);
    let highs = [below.dword(1).into(), key.dword(1).into(), borrow.into()];
    w.b.emit(op::V_SUBB_CO_U32, &[high.into(), unused.into()], &highs);
    vec![low, high]
}

/// The smallest of what the lanes of each team have, of one word or of two: then the low words of those whose high words are smallest.
fn least_of_team(w: &mut Writer, team: u32, all: &[Vec<Part>]) -> Res<Part> {
    let of_team = |w: &mut Writer, words: Vec<Part>| {
        let own = extreme(w, words, false);
        Ok(lanes::combine(w, team, &[own], lanes::by(Gen::Min, Type::U32))?[0])
    };
    if all[0].len() == 1 {
        return of_team(w, all.iter().map(|x| x[0]).collect());
    }
    let high = of_team(w, all.iter().map(|x| x[1]).collect())?;
    let low = all.iter().map(|x| {
        let alike = w.b.op(Gen::CmpEq.of(Type::U32), &[high.into(), x[1].into()]);
        w.b.select(alike, x[0], u32::MAX)
    });
    let low = low.collect();
    let low = of_team(w, low)?;
    let pair = w.b.v(2);
    w.b.copy_into(pair.dword(0), low);
    w.b.copy_into(pair.dword(1), high);
    Ok(pair)
}

/// Keys in registers, of which the best one is found again and again.
struct Rounds {
    keys: Vec<Part>,
    /// One less than the key that was found last.
    below: Part,
    team: u32,
    member: Part,
}

impl Rounds {
    fn new(w: &mut Writer, keys: Vec<Key>, team: u32, member: Part) -> Res<Rounds> {
        let whole = |w: &mut Writer, key: Key| match key[..] {
            [word] => word,
            _ => {
                let all = w.b.v(key.len() as u8);
                for (d, word) in (0..).zip(key) {
                    w.b.copy_into(all.dword(d), word);
                }
                all
            }
        };
        let keys: Vec<Part> = keys.into_iter().map(|key| whole(w, key)).collect();
        let below = w.b.v(keys.first().map_or(1, |key| key.len));
        for d in 0..below.len {
            w.b.copy_into(below.dword(d), u32::MAX);
        }
        Ok(Rounds { keys, below, team, member })
    }

    /// The low words of so many of the best keys that are left, one of each lane.
    fn best(&self, w: &mut Writer, count: u32) -> Res<Part> {
        let key = if self.below.len == 1 { DType::U32 } else { DType::U64 };
        let one = literal(w, key, Scalar::Int(1))?;
        let kept = w.b.to_vector(0u32);
        scalar_loop(w, "rounds", count, |w, round| {
            let all: Vec<Vec<Part>> = self.keys.iter().map(|x| apart(w, self.below, *x)).collect();
            let found = least_of_team(w, self.team, &all)?;
            let found = apply(w, key, Binary::Sub, self.below, Value::of(key, found))?;
            let mine = w.b.op(Gen::CmpEq.of(Type::U32), &[round.into(), self.member.into()]);
            let next = w.b.select(mine, found.dword(0), kept);
            w.b.copy_into(kept, next);
            let next = apply(w, key, Binary::Sub, found, one)?;
            w.b.copy_into(self.below, next);
            Ok(())
        })?;
        Ok(kept)
    }
}

/// Where results go.
struct Results<'a> {
    cx: &'a Cx<'a>,
    best: TopK,
    /// The line's first element, and that of what says where its elements were before.
    line: Offset,
    origins: Option<Offset>,
    /// Coordinates of the line and of the piece, and behind them that of the result.
    coords: Vec<Option<Part>>,
    /// The piece's first element.
    start: Option<Part>,
    /// The lanes whose line is there.
    present: Option<Part>,
    k: u32,
    /// The bits of a key's last word that have the place, from the end, where not all have.
    low: Option<u32>,
}

impl Results<'_> {
    /// Where in its line the element is whose key has this last word.
    fn place(&self, w: &mut Writer, kept: Part) -> Part {
        let place = match self.low {
            Some(mask) => {
                let low = w.b.and(kept, mask);
                w.b.sub(mask, low)
            }
            None => w.b.generic(Gen::Not.of(Type::B32), &[kept.into()]),
        };
        self.start.map_or(place, |s| w.b.add(s, place))
    }

    /// The element at a place of an operand's line, in lanes that want one.
    fn of_line(
        &self,
        w: &mut Writer,
        operand: usize,
        line: Offset,
        (place, inside): (Part, Option<Part>),
    ) -> Res<Value> {
        let (arg, view) = (Arg::Input(operand), &self.cx.step.inputs[operand].view);
        let t = self.cx.dtype(arg);
        let along = w.b.mul(place, (view.strides[view.rank() - 1] * t.size() as i64) as u32);
        let at = address::add(&mut w.b, line, Offset { reg: Some(along), imm: 0 });
        let (at, buf) = (at.within(&mut w.b, inside), w.buffer(self.cx, arg)?);
        Ok(values::load(&mut w.b, t, buf, at))
    }

    /// The best keys of a team in their order, one of each lane: codes and, side by side, keys of one word that have places instead of the codes' last bits. They are in
    /// order if what they leave out says nothing else, and if behind the last one there is none that what is left out may have kept from being better.
    fn in_brief(
        &self,
        w: &mut Writer,
        keys: &[[Part; 2]],
        (team, member): (u32, Part),
        mask: u32,
        merge: bool,
    ) -> Res<Part> {
        let brief: Vec<Part> = keys.iter().map(|[_, brief]| *brief).collect();
        let (kept, next) = if merge {
            self.merged(w, &brief, (team, member))?
        } else {
            let brief = brief.into_iter().map(|key| vec![key]).collect();
            let kept = Rounds::new(w, brief, team, member)?.best(w, self.k + 1)?;
            (kept, lanes::moved(&mut w.b, kept, NEXT))
        };
        let apart = w.b.generic(Gen::Xor.of(Type::B32), &[kept.into(), next.into()]);
        let alike = w.b.op(Gen::CmpGe.of(Type::U32), &[mask.into(), apart.into()]);
        let last = w.b.op(Gen::CmpEq.of(Type::U32), &[(self.k - 1).into(), member.into()]);
        let close = w.b.mask_and(alike, last);
        let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[self.k.into(), member.into()]);
        let place = self.place(w, kept);
        let x = self.of_line(w, 0, self.line, (place, Some(inside)))?;
        let code = code(w, self.cx.dtype(Arg::Input(0)), x, self.best.largest)?[0];
        let next = lanes::moved(&mut w.b, code, NEXT);
        let more = w.b.op(Gen::CmpGt.of(Type::U32), &[next.into(), code.into()]);
        let before = w.b.op(Gen::CmpGt.of(Type::U32), &[(self.k - 1).into(), member.into()]);
        let turned = w.b.mask_and(more, before);
        let unsure = w.b.mask_or(close, turned);
        let sure = w.b.label();
        w.b.branch_if_none(unsure, sure, "all bits");
        let mut whole = Vec::new();
        for [code, brief] in keys {
            whole.push(vec![w.b.and(*brief, mask), *code]);
        }
        let exact = Rounds::new(w, whole, team, member)?.best(w, self.k)?;
        w.b.copy_into(kept, exact);
        w.b.place(sure, "in order");
        Ok(kept)
    }

    /// The key of each lane, the best ones in their order, and of all lanes the best of those that are left.
    fn merged(&self, w: &mut Writer, keys: &[Part], (team, member): (u32, Part)) -> Res<(Part, Part)> {
        let k = self.k as usize;
        let list = merged::best(w, keys, k, team)?;
        let kept = merged::of_lane(w, &list, member, [0, team as usize], k);
        if let Some(next) = list.get(k) {
            return Ok((kept, *next));
        }
        let below = w.b.sub(list[k - 1], 1u32);
        let own = keys.iter().map(|key| vec![w.b.sub(below, *key)]).collect::<Vec<_>>();
        let least = least_of_team(w, team, &own)?;
        Ok((kept, w.b.sub(below, least)))
    }

    /// What each lane of a team of so many has, from result `from` on.
    fn give_of_each(&mut self, w: &mut Writer, kept: Part, member: Part, [from, team]: [u32; 2]) -> Res<()> {
        let number = w.b.add(member, from);
        let ranked = (self.k - from < team).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[self.k.into(), number.into()]));
        self.give(w, kept, number, ranked)
    }

    /// The key whose last word it is, as the result of this number, of lanes that have one.
    fn give(&mut self, w: &mut Writer, kept: Part, number: Part, ranked: Option<Part>) -> Res<()> {
        let inside = w.b.both(self.present, ranked);
        let found = self.find(w, kept, inside)?;
        self.store(w, found, number, inside)
    }
}

impl select::Results for Results<'_> {
    /// The element, where it is wanted, and what the step's expression is of.
    type Found = (Option<Value>, Value);

    fn find(&mut self, w: &mut Writer, kept: Part, inside: Option<Part>) -> Res<Self::Found> {
        let place = self.place(w, kept);
        let element = if self.best.elements { Some(self.of_line(w, 0, self.line, (place, inside))?) } else { None };
        let acc = match self.best.origins_operand().zip(self.origins) {
            Some((operand, line)) => self.of_line(w, operand, line, (place, inside))?,
            None => Value::Word(place.into()),
        };
        Ok((element, acc))
    }

    fn store(&mut self, w: &mut Writer, (element, acc): Self::Found, number: Part, inside: Option<Part>) -> Res<()> {
        let cx = self.cx;
        let last = w.b.to_vector(self.k - 1);
        let at_most = w.b.op(Gen::Min.of(Type::U32), &[number.into(), last.into()]);
        if let Some(number) = self.coords.last_mut() {
            *number = (self.k > 1).then_some(at_most);
        }
        let (mut operands, mut known) = (vec![Vec::new(); cx.step.inputs.len()], Vec::new());
        for i in epilogue::operands(cx) {
            operands[i] = pointwise::load(w, cx, i, &self.coords, 1, &mut known)?;
        }
        let input = |i: u32| operands[i as usize][0];
        let result = expr::eval(&mut w.b, &cx.step.expr, &input, Some(acc))?;
        let results = [Some((Arg::Output, result)), element.map(|x| (Arg::Input(1), x))];
        for (arg, x) in results.into_iter().flatten() {
            let (t, buf) = (cx.dtype(arg), w.buffer(cx, arg)?);
            let at = address::offset(&mut w.b, cx.view(arg), t.size(), &self.coords);
            let at = at.within(&mut w.b, inside);
            values::store(&mut w.b, t, buf, at, x);
        }
        Ok(())
    }
}

pub(super) fn lower(cx: &Cx, best: &TopK) -> Res<Vec<Kernel>> {
    let (input, out) = (&cx.step.inputs[0].view, &cx.step.output.view);
    let (outer, t) = (input.rank() - 1, cx.dtype(Arg::Input(0)));
    let &[.., k] = &out.dims[..] else { return Err(Reason::Malformed("no pieces")) };
    let shape = Shape::of(cx, out.dims[..=outer].iter().product())?;
    let (lines, pieces) = (out.dims[..outer].iter().product::<usize>(), shape.pieces);
    let count = lines * pieces;
    let (team, width) = (shape.team, shape.width as u32);
    let wave = cx.target.info().wave_size;
    let (units, loads) = (shape.units[0] as usize, shape.loads as usize);
    let sieve = Sieve::new(k, units, loads, shape.width, if is_word(t) { 1 } else { 2 }, wave);
    let workgroup = match shape.search {
        Search::Rounds | Search::Brief(_) | Search::Merged(_) => WORKGROUP,
        Search::Sieve => wave * sieve.waves(count, cx.target),
        Search::Sort => team.max(wave),
        Search::Select(_) => team,
    };
    let mut w = cx.kernel(workgroup);
    let index = pointwise::linear_index(&mut w.b);
    let member = w.b.and(index, team - 1);
    let line = w.b.shr(index, team.trailing_zeros());
    let last = w.b.to_vector(count as u32 - 1);
    let line_held = w.b.op(Gen::Min.of(Type::U32), &[line.into(), last.into()]);
    let mut coords = address::coordinates(&mut w.b, line_held, &[&out.dims[..outer], &[pieces]].concat());
    // Where the piece begins and how long it is, in loads.
    let [each, more] = shape.units;
    let (mut first, mut length) = (None, None);
    if let Some(p) = coords[outer].filter(|_| pieces > 1) {
        let start = w.b.mul(p, each);
        let beyond = w.b.op(Gen::Min.of(Type::U32), &[more.into(), p.into()]);
        first = Some(w.b.add(start, beyond));
        if more > 0 {
            let has = w.b.op(Gen::CmpGt.of(Type::U32), &[more.into(), p.into()]);
            let longer = w.b.to_vector(each + 1);
            length = Some(w.b.select(has, longer, each));
        }
    }
    let stride = input.strides[outer] * t.size() as i64;
    let base = address::offset_of_dims(&mut w.b, input, t.size(), &coords[..outer], 0..outer, true);
    let origins = best.origins_operand().map(|i| {
        let view = &cx.step.inputs[i].view;
        address::offset_of_dims(&mut w.b, view, DType::I32.size(), &coords[..outer], 0..outer, true)
    });
    let unit = first.map_or(member, |f| w.b.add(f, member));
    let along = w.b.mul(unit, (stride * i64::from(width)) as i32);
    let place = address::add(&mut w.b, base, Offset { reg: Some(along), imm: 0 });
    let buf = w.buffer(cx, Arg::Input(0))?;
    let from_member = w.b.mul(member, width);
    let mut loaded: Vec<(Offset, Option<Part>)> = Vec::new();
    for l in 0..shape.loads {
        let step = u64::from(l * team * width) * stride as u64;
        // Loads forward of the first one share its register.
        let ahead = if stride > 0 { step as u32 } else { 0 };
        let mut at = address::add(&mut w.b, place, Offset { reg: None, imm: ahead });
        let reg = at.vector(&mut w.b);
        at.reg = Some(if step as u32 == ahead { reg } else { w.b.add(reg, step as u32) });
        let inside = ((l + 1) * team > each).then(|| {
            let own = w.b.add(member, l * team);
            match length {
                Some(length) => w.b.op(Gen::CmpGt.of(Type::U32), &[length.into(), own.into()]),
                None => w.b.op(Gen::CmpGt.of(Type::U32), &[each.into(), own.into()]),
            }
        });
        at = at.within(&mut w.b, inside);
        loaded.push((at, inside));
    }
    // Floats of 16 bits are compared as they lie.
    let pairs = t.is_half() && width > 1 && cx.target.has(op::V_PK_MAD_I16);
    let load = |(at, inside): (Offset, Option<Part>)| {
        let words = pairs.then(|| {
            let (v, s, imm) = at.operands(&mut w.b);
            w.b.load(buf, (width / 2) as u8, v, s, imm)
        });
        (words.map_or_else(|| Err(values::load_some(&mut w.b, t, buf, at, width)), Ok), inside)
    };
    let loaded: Vec<(Result<Part, Vec<Value>>, Option<Part>)> = loaded.into_iter().map(load).collect();
    let (mut keys, mut numbers): (Vec<Key>, Vec<u32>) = Default::default();
    let selects = matches!(shape.search, Search::Select(_));
    let brief = match shape.search {
        Search::Brief(bits) | Search::Merged(Some(bits)) => Some((1 << bits) - 1),
        _ => None,
    };
    for (l, (values, inside)) in (0..).zip(loaded) {
        let codes = match values {
            Ok(words) => {
                let pairs = codes_of_pairs(&mut w.b, t, words, best.largest);
                pairs.into_iter().flat_map(|x| [(x, false), (x, true)].map(Ok)).collect::<Vec<_>>()
            }
            Err(values) => values.into_iter().map(Err).collect(),
        };
        for (v, x) in (0..).zip(codes) {
            let own = l * team * width + v;
            numbers.push(own);
            let mut key = match x {
                Ok((pair, high)) if selects => {
                    vec![if high { w.b.and(pair, 0xffff_0000u32) } else { w.b.shl(pair, 16u32) }]
                }
                Err(x) if selects => code(&mut w, t, x, best.largest)?,
                Ok((pair, high)) => {
                    let low = w.b.sub(PLACE - own, from_member);
                    vec![match high {
                        true => small::and_or(&mut w.b, pair, 0xffff_0000, low),
                        false => w.b.op(op::V_LSHL_OR_B32, &[pair.into(), 16u32.into(), low.into()]),
                    }]
                }
                Err(x) => {
                    let mut key = code(&mut w, t, x, best.largest)?;
                    if is_word(t) {
                        let low = w.b.sub(PLACE - own, from_member);
                        let high = w.b.and(key[0], !PLACE);
                        key = vec![w.b.generic(Gen::Or.of(Type::B32), &[high.into(), low.into()])];
                    } else if let Some(mask) = brief {
                        let low = w.b.sub(mask - own, from_member);
                        key.push(small::and_or(&mut w.b, key[0], !mask, low));
                    } else if !matches!(shape.search, Search::Sieve) {
                        key.insert(0, w.b.sub(u32::MAX - own, from_member));
                    }
                    key
                }
            };
            if let Some(mask) = inside {
                key = key.into_iter().map(|x| w.b.select(mask, x, 0u32)).collect();
            }
            keys.push(key);
        }
    }
    if pairs {
        // A word at a time: two keys take the place of one, and all of them at once would leave room for fewer waves.
        w.b.fix_order();
    }
    let present = (!(count * team as usize).is_multiple_of(workgroup as usize))
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), line.into()]));
    coords.push(None);
    let start = first.map(|f| w.b.mul(f, width));
    let mut results = Results {
        cx,
        best: *best,
        line: base,
        origins,
        coords,
        start,
        present,
        k: k as u32,
        low: is_word(t).then_some(PLACE).or(brief),
    };
    match shape.search {
        Search::Select(select) => {
            let codes = keys.into_iter().map(|key| key[0]).collect();
            let first = results.start.take().map_or(from_member, |start| w.b.add(start, from_member));
            (results.coords[outer], results.low) = (None, None);
            let number = w.b.workgroup_id(0);
            let kernel = select.run(w, (codes, numbers, first), (number, lines), &mut results, (count * k) as u64)?;
            return Ok(vec![kernel]);
        }
        Search::Sieve => {
            let codes = keys.into_iter().map(|key| key[0]).collect();
            let mut give =
                |w: &mut Writer, kept: Part, number: Part, ranked: Part| results.give(w, kept, number, Some(ranked));
            let held = Held { codes, numbers, first: from_member, give: &mut give };
            sieve.run(&mut w, held, workgroup)?;
        }
        Search::Sort => {
            let none = w.b.to_vector(0u32);
            let words = keys[0].len();
            keys.resize(HELD, vec![none; words]);
            let in_order = Team { lanes: team, workgroup, member }.sort(&mut w, keys, k as u32)?;
            for (kept, from) in in_order.into_iter().zip((0..k as u32).step_by(team as usize)) {
                results.give_of_each(&mut w, kept, member, [from, team])?;
            }
        }
        Search::Merged(None) => {
            let keys: Vec<Part> = keys.into_iter().map(|key| key[0]).collect();
            let list = merged::best(&mut w, &keys, k, team)?;
            for from in (0..k).step_by(team as usize) {
                let kept = merged::of_lane(&mut w, &list, member, [from, team as usize], k);
                results.give_of_each(&mut w, kept, member, [from as u32, team])?;
            }
        }
        Search::Brief(_) | Search::Merged(Some(_)) => {
            let merge = matches!(shape.search, Search::Merged(_));
            let keys: Vec<[Part; 2]> = keys.into_iter().map(|key| [key[0], key[1]]).collect();
            let kept = results.in_brief(&mut w, &keys, (team, member), brief.unwrap_or(PLACE), merge)?;
            results.give_of_each(&mut w, kept, member, [0, team])?;
        }
        Search::Rounds => {
            let rounds = Rounds::new(&mut w, keys, team, member)?;
            for from in (0..k as u32).step_by(team as usize) {
                let kept = rounds.best(&mut w, team.min(k as u32 - from))?;
                results.give_of_each(&mut w, kept, member, [from, team])?;
            }
        }
    }
    let workgroups = (count as u64 * u64::from(team)).div_ceil(u64::from(workgroup));
    Ok(vec![w.finish([workgroups as u32, 1, 1], (count * k) as u64)])
}
