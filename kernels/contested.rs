//! Scatter of updates of which several may be for one element: the last one along the axis stays, in every run.
//!
//! A bit of each element says whether an update has come. Who sets it by an atomic and finds that it was not set is the first one and stores. Who finds it
//! set says so by a second bit of the element, and once for all elements. Only where anybody did, two more launches do something: of elements with a second bit
//! the updates find the last one's number along the axis by atomics, and then that one stores. So what is no element's second update goes through once.
//!
//! Bits of neighbours along the axis are in one word, so that lanes whose updates go side by side across it meet different words. Those launches that may have
//! nothing to do have as many workgroups as run at once, which take all updates in turn.

use super::address::{self, Offset};
use super::error::Res;
use super::reduce::scalar_loop;
use super::scatter::{Numbered, dims_along, placed, workgroup};
use super::values;
use super::{Arg, Cx, Kernel, Writer, pointwise};
use crate::graph::view::View;
use crate::mir::{Buffer, Gen, Opnd, Part, Type};

/// Bytes of the workspace in front of bits: words of lanes that have nothing to say, and whether anybody came second.
const NOBODY: u32 = 0;
const ANYBODY: u32 = 256;
const BITS: u32 = 512;

/// Workgroups of a compute unit that take all updates in turn.
const AT_ONCE: u32 = 4;

/// Bytes that a workitem clears.
const CLEARED: u32 = 16;

/// What a launch does with an update that is there.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// Stores it where it is the first one.
    Claim,
    /// Looks for the last one.
    Number,
    /// Stores it where it is the last one.
    Settle,
}

/// Where words of bits and of numbers lie in the workspace.
struct Words {
    /// Words of bits, as an element's coordinates find them, with those along the axis divided by a word's bits.
    bits: View,
    /// A number of each element.
    numbers: View,
}

impl Words {
    fn of(cx: &Cx, axis: usize) -> Words {
        let dims = &cx.view(Arg::Output).dims;
        let mut words = dims.clone();
        words[axis] = dims[axis].div_ceil(32);
        Words { bits: View::dense(&words), numbers: View::dense(dims) }
    }

    /// Bytes of bits of one kind.
    fn plane(&self) -> u32 {
        (self.bits.len() as u32 * 4).next_multiple_of(CLEARED)
    }

    /// Where numbers begin.
    fn cleared(&self) -> u32 {
        BITS + 2 * self.plane()
    }

    fn bytes(&self) -> usize {
        self.cleared() as usize + 4 * self.numbers.len()
    }
}

/// The launches behind the copy.
pub(super) fn lower(cx: &Cx, axis: usize) -> Res<Vec<Kernel>> {
    let words = Words::of(cx, axis);
    let mut kernels = vec![clear(cx, &words)];
    for pass in [Pass::Claim, Pass::Number, Pass::Settle] {
        kernels.push(updates(cx, axis, &words, pass)?);
    }
    kernels.iter_mut().for_each(|k| k.workspace = words.bytes());
    Ok(kernels)
}

/// No update has come.
fn clear(cx: &Cx, words: &Words) -> Kernel {
    let items = words.cleared() / CLEARED;
    let mut w = cx.kernel(workgroup(cx, items as usize));
    let buf = w.workspace(words.cleared() as usize);
    let item = pointwise::linear_index(&mut w.b);
    let at = w.b.mul(item, CLEARED);
    let zeros = w.b.v((CLEARED / 4) as u8);
    for d in 0..zeros.len {
        w.b.copy_into(zeros.dword(d), 0u32);
    }
    w.b.store(buf, zeros, at, 0u32, 0);
    let groups = items.div_ceil(w.b.function().workgroup_size);
    w.finish([groups, 1, 1], 0)
}

/// A workitem for each update, or as many as run at once for all of them.
fn updates(cx: &Cx, axis: usize, words: &Words, pass: Pass) -> Res<Kernel> {
    let items = cx.view(Arg::Input(2)).len();
    let size = workgroup(cx, items);
    let mut w = cx.kernel(size);
    let all = (items as u32).div_ceil(size);
    let buf = w.workspace(words.bytes());
    if pass == Pass::Claim {
        let item = Numbered::own(&mut w, items);
        claim(&mut w, cx, axis, words, buf, item)?;
        return Ok(w.finish([all, 1, 1], 0));
    }
    let groups = all.min(AT_ONCE * cx.target.cus());
    let at = w.b.to_vector(ANYBODY);
    let anybody = w.b.load(buf, 1, at, 0u32, 0);
    let (anybody, done) = (w.b.uniform(anybody), w.b.label());
    w.b.branch_lt(anybody, 1u32, done);
    let item = pointwise::linear_index(&mut w.b);
    scalar_loop(&mut w, "updates", all.div_ceil(groups), |w, round| {
        let ahead = w.b.mul(round, groups * size);
        let item = w.b.add(item, ahead);
        let item = Numbered::of(w, item, items, groups * size);
        settle(w, cx, axis, words, buf, item, pass)
    })?;
    w.b.place(done, "done");
    Ok(w.finish([groups, 1, 1], 0))
}

/// An update that a workitem has.
struct Update {
    coords: Vec<Option<Part>>,
    /// Its number along the axis, and the place that it is for.
    number: Part,
    place: Part,
    inside: Part,
    /// Its bit, and the byte of its word among those of one kind.
    bit: Part,
    word: Offset,
}

impl Update {
    fn of(w: &mut Writer, cx: &Cx, axis: usize, words: &Words, item: Numbered) -> Res<Update> {
        let index = cx.dtype(Arg::Input(1));
        let coords = address::coordinates(&mut w.b, item.held, &cx.view(Arg::Input(2)).dims);
        let at = address::offset(&mut w.b, cx.view(Arg::Input(1)), index.size(), &coords);
        let buf = w.buffer(cx, Arg::Input(1))?;
        let place = values::load(&mut w.b, index, buf, at);
        let (place, inside) = placed(w, place, dims_along(cx, axis));
        let inside = w.b.both(Some(inside), item.present).unwrap_or(inside);
        let number = match coords[axis] {
            Some(number) => w.b.to_vector(number),
            None => w.b.to_vector(0u32),
        };
        let (word, within) = (w.b.shr(place, 5u32), w.b.and(place, 31u32));
        let one = w.b.to_vector(1u32);
        let bit = w.b.shl(one, within);
        let mut of_word = coords.clone();
        of_word[axis] = Some(word);
        let word = address::offset(&mut w.b, &words.bits, 4, &of_word);
        Ok(Update { coords, number, place, inside, bit, word })
    }

    /// The byte of its element by a view of as many elements of a size, where a mask is set.
    fn element(&self, w: &mut Writer, axis: usize, (view, size): (&View, usize), mask: Part) -> Offset {
        let mut coords = self.coords.clone();
        coords[axis] = Some(self.place);
        address::offset(&mut w.b, view, size, &coords).within(&mut w.b, mask)
    }

    /// Stores it where a mask is set.
    fn store(&self, w: &mut Writer, cx: &Cx, axis: usize, mask: Part) -> Res<()> {
        let t = cx.dtype(Arg::Output);
        let from = address::offset(&mut w.b, cx.view(Arg::Input(2)), t.size(), &self.coords);
        let buf = w.buffer(cx, Arg::Input(2))?;
        let x = values::load(&mut w.b, t, buf, from);
        let to = self.element(w, axis, (cx.view(Arg::Output), t.size()), mask);
        let buf = w.buffer(cx, Arg::Output)?;
        values::store(&mut w.b, t, buf, to, x);
        Ok(())
    }
}

/// The lanes of which a word has the bit set.
fn has(w: &mut Writer, word: Part, bit: Part) -> Part {
    let both = w.b.and(word, bit);
    w.b.op(Gen::CmpEq.of(Type::U32), &[both.into(), bit.into()])
}

fn claim(w: &mut Writer, cx: &Cx, axis: usize, words: &Words, buf: Buffer, item: Numbered) -> Res<()> {
    let u = Update::of(w, cx, axis, words, item)?;
    let base = w.pointer(Arg::Workspace);
    // Lanes that have nothing to say say it each in a word of their own.
    let lane = w.b.workitem_id();
    let lane = w.b.and(lane, (ANYBODY - NOBODY) / 4 - 1);
    let nobody = w.b.shl(lane, 2u32);
    let nobody = w.b.add(nobody, NOBODY);
    let word = u.word.vector_with(&mut w.b);
    let says = |w: &mut Writer, mask: Part, at: Part, bit: Part| {
        let at = w.b.select(mask, at, nobody);
        w.b.device_or(base, at, bit)
    };
    let at = w.b.add(word, BITS);
    let before = says(w, u.inside, at, u.bit);
    let came = has(w, before, u.bit);
    let (first, second) = (w.b.mask_and_not(u.inside, came), w.b.mask_and(u.inside, came));
    u.store(w, cx, axis, first)?;
    let done = w.b.label();
    w.b.branch_if_none(second, done, "second");
    let at = w.b.add(word, BITS + words.plane());
    let before = says(w, second, at, u.bit);
    let came = has(w, before, u.bit);
    let only = w.b.mask_and_not(second, came);
    let to = u.element(w, axis, (&words.numbers, 4), only);
    let none = w.b.to_vector(u32::MAX);
    let at = Offset { imm: to.imm + words.cleared(), ..to };
    let (voff, soff, imm) = at.operands(&mut w.b);
    w.b.store(buf, none, voff, soff, imm);
    let (anybody, one) = (w.b.to_vector(ANYBODY), w.b.to_vector(1u32));
    says(w, second, anybody, one);
    w.b.place(done, "done");
    Ok(())
}

/// What is to be done with an update of an element that has several.
fn settle(w: &mut Writer, cx: &Cx, axis: usize, words: &Words, buf: Buffer, item: Numbered, pass: Pass) -> Res<()> {
    let u = Update::of(w, cx, axis, words, item)?;
    let second = Offset { imm: u.word.imm + BITS + words.plane(), ..u.word }.within(&mut w.b, u.inside);
    let (voff, soff, imm) = second.operands(&mut w.b);
    let word = w.b.load(buf, 1, voff, soff, imm);
    let several = has(w, word, u.bit);
    let several = w.b.mask_and(several, u.inside);
    let at = u.element(w, axis, (&words.numbers, 4), several);
    let at = Offset { imm: at.imm + words.cleared(), ..at };
    let (voff, soff, imm): (Opnd, Opnd, u32) = at.operands(&mut w.b);
    if pass == Pass::Number {
        w.b.device_max(buf, u.number, voff, soff, imm);
        return Ok(());
    }
    let last = w.b.load(buf, 1, voff, soff, imm);
    let last = w.b.op(Gen::CmpEq.of(Type::U32), &[last.into(), u.number.into()]);
    let last = w.b.mask_and(last, several);
    u.store(w, cx, axis, last)
}
