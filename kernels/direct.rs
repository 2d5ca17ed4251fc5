//! Direct convolution for few output channels per group (depthwise above all): one workitem computes an output
//! position of one channel, or of some of a group, or some positions below each other, with the channels' weights in scalar registers, narrow ones
//! several in each (but where they do not lie in whole words and the model computes them: then in vector registers, each loaded for all lanes at once). Halves are
//! multiplied as they are where an instruction does that. Bytes are summed in 32-bit integers.
//!
//! Windows of positions below each other overlap, and those of a group's channels are the same: what several of them need is loaded once. Lanes have neighbours of a row, so their
//! loads lie together. Small windows of some input channels are loaded together, so that their loads are waited for once. Sums are in the order of
//! channels and window however many positions and channels that is.
//!
//! A workitem walks all input channels: where these are many and positions few, tiles whose depth is shared are quicker ([`clocks`]).

use super::address::Offset;
use super::choice::Machine;
use super::error::Res;
use super::float::Float;
use super::values::{self, Value};
use super::{Arg, Blob, Cx, Kernel, Packing, Writer, address, epilogue};
use crate::graph::fused::{Conv, Role, Window};
use crate::graph::view::View;
use crate::mir::{Buffer, Gen, MInst, Part, Type};
use crate::tensor::DType;
use barewave_isa::{ModName, Mods, op};

pub(super) fn lower(cx: &Cx, conv: &Conv) -> Res<Vec<Kernel>> {
    let (window, groups) = (&conv.window, conv.groups);
    let out = &cx.step.output.view;
    let (x, weights) = (&cx.step.inputs[0].view, &cx.step.inputs[1].view);
    let (images, channels) = (out.dims[0], out.dims[1]);
    let per_group = channels / groups;
    let below = below(cx, conv);
    // Positions of a workitem are one, the window of them all is larger.
    let (whole, blocks) = (below.window(window), below.blocks(out));
    let positions: usize = blocks.dims[2..].iter().product();
    let taps: usize = window.kernel.iter().product();
    let inputs = weights.dims[1];
    let size = workgroup(positions, cx.target.info().wave_size);
    let mut w = cx.kernel(size);
    let group_x = w.b.workgroup_id(0);
    let base = w.b.mul(group_x, size);
    let item = w.b.workitem_id();
    let position = w.b.add(base, item);
    let mut channel = w.b.workgroup_id(1);
    if below.across > 1 {
        channel = w.b.mul(channel, below.across as u32);
    }
    let image = w.b.workgroup_id(2);
    // Lanes behind the last position compute it again; only their stores are masked.
    let at = if positions.is_multiple_of(size as usize) {
        position
    } else {
        w.b.generic(Gen::Min.of(Type::U32), &[position.into(), (positions as u32 - 1).into()])
    };
    let coords = address::coordinates(&mut w.b, at, &blocks.dims[2..]);
    let t = cx.dtype(Arg::Input(0));
    let (bytes, ty) = (t.size(), values::computed(t));
    let taps_at = Taps::new(&mut w, &whole, &coords, x, bytes, &blocks);
    // Scalar offset of the first input channel, and address of the channel's weights.
    let group = w.b.udiv(channel, per_group as u32);
    let start = w.b.mul(image, (x.strides[0] * bytes as i64) as u32);
    let start = w.b.mad(group, (inputs as i64 * x.strides[1] * bytes as i64) as u32, start);
    let buf = w.buffer(cx, Arg::Input(0))?;
    let source = Weights::new(&mut w, cx, channel, taps)?;
    let is_bytes = t == DType::I8;
    let zero = |w: &mut Writer| if is_bytes { w.b.to_vector(0u32) } else { Float(ty).held(&mut w.b, 0.0) };
    // Those of a channel's positions, channel by channel.
    let sums: Vec<Part> = (0..below.results()).map(|_| zero(&mut w)).collect();
    let at = w.b.s(1);
    w.b.copy_into(at, start);
    let together = together(cx, conv, &below);
    let rounds = ((inputs / together) as u32).max(1);
    let step = (x.strides[1] * bytes as i64) as u32;
    let body = |w: &mut Writer| {
        let loaded: Vec<Vec<Weight>> = (0..below.across).map(|a| source.load(w, a * inputs, together)).collect();
        let all: usize = whole.kernel.iter().product();
        let element = |w: &mut Writer, at: Part, voff: Part| match values::stored(t) == ty {
            _ if is_bytes => {
                let x = w.b.load_op(op::BUFFER_LOAD_SBYTE, buf, voff, at, 0);
                flipped(w, x, conv.flip)
            }
            true => w.b.load(buf, ty.dwords(), voff, at, 0),
            false => {
                let raw = w.b.load_op(op::BUFFER_LOAD_USHORT, buf, voff, at, 0);
                if source.mixes { raw } else { w.b.convert(values::stored(t), ty, raw) }
            }
        };
        // Those of one position and channel are added as they come.
        let mut shared: Vec<Part> = Vec::new();
        if below.count * together > 1 {
            let places: Vec<Part> = (0..all).map(|i| taps_at.offset(w, i)).collect();
            for channel in 0..together as u32 {
                let at = if channel > 0 { w.b.add(at, channel * step) } else { at };
                shared.extend(places.iter().map(|place| element(w, at, *place)));
            }
        }
        for i in 0..together * taps {
            for n in 0..below.count {
                let place = below.element(window, &whole, i % taps, n);
                let v = shared.get(i / taps * all + place).copied().unwrap_or_else(|| {
                    let place = taps_at.offset(w, place);
                    element(w, at, place)
                });
                for (weights, sums) in loaded.iter().zip(sums.chunks(below.count)) {
                    weights[i].multiply_add(w, if is_bytes { Type::I32 } else { ty }, sums[n], (v, source.mixes));
                }
            }
        }
        w.b.emit(Gen::Add.of(Type::I32), &[at.into()], &[at.into(), (together as u32 * step).into()]);
        source.advance(w, together);
    };
    if rounds == 1 {
        body(&mut w);
    } else {
        super::reduce::scalar_loop(&mut w, "channel", rounds, |w, _| {
            body(w);
            Ok(())
        })?;
    }
    let inside = (!positions.is_multiple_of(size as usize))
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(positions as u32).into(), position.into()]));
    let summed = if is_bytes { DType::I32 } else { t };
    for (i, sum) in sums.into_iter().enumerate() {
        let (a, n) = (i / below.count, i % below.count);
        let channel = if a > 0 { w.b.add(channel, a as u32) } else { channel };
        let (mut own, mut within) = (coords.clone(), None);
        if below.count > 1 {
            let first = match own[below.dim] {
                Some(c) => w.b.mul(c, below.count as u32),
                None => w.b.to_vector(0u32),
            };
            let row = if n > 0 { w.b.add(first, n as u32) } else { first };
            own[below.dim] = Some(row);
            let extent = out.dims[2 + below.dim];
            let open = n > 0 && !extent.is_multiple_of(below.count);
            within = open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(extent as u32).into(), row.into()]));
        }
        let mut all = vec![(images > 1).then_some(image), (channels > 1).then_some(channel)];
        all.extend(own);
        epilogue::finish(&mut w, cx, Value::of(summed, sum), |w, arg| {
            let (view, t) = match arg {
                Arg::Input(i) => (&cx.step.inputs[i].view, cx.dtype(arg)),
                _ => (&cx.step.output.view, cx.dtype(Arg::Output)),
            };
            let at = address::offset(&mut w.b, view, t.size(), &all);
            let mask = w.b.both(within, inside.filter(|_| epilogue::has_ends(cx, arg)));
            Ok(at.within(&mut w.b, mask))
        })?;
    }
    let grid = [positions.div_ceil(size as usize) as u32, (channels / below.across) as u32, images as u32];
    Ok(vec![w.finish(grid, 2 * (out.len() * inputs * taps) as u64)])
}

/// Elements of some channels that are loaded together at most, and how many channels are tried.
const TOGETHER: usize = 32;
const CHANNELS: [usize; 3] = [8, 4, 2];

/// Input channels whose windows are loaded together: one where the waves of a SIMD have as much to do as memory takes to answer.
fn together(cx: &Cx, conv: &Conv, below: &Below) -> usize {
    let machine = Machine::of(cx.target);
    if below.waves(cx) * below.of_channel(conv) as f64 * machine.issue >= machine.dram {
        return 1;
    }
    let (inputs, elements) = (cx.step.inputs[1].view.dims[1], below.elements(&conv.window));
    let weights = below.weights(&conv.window);
    let few = |n: &usize| n * elements <= TOGETHER && (below.across == 1 || n * weights <= WEIGHTS);
    let fits = |n: &usize| inputs >= *n && inputs.is_multiple_of(*n) && few(n);
    CHANNELS.into_iter().find(fits).unwrap_or(1)
}

/// Bytes of a scalar register.
const WORD: usize = 4;

/// Waves of a SIMD that hide each other's waits at most.
const RESIDENT: f64 = 8.0;

/// Clocks of the kernel, about, without its launch: waves of a SIMD take turns, and each waits for memory once for the channels that it loads
/// together.
pub(super) fn clocks(cx: &Cx, conv: &Conv) -> f64 {
    let (machine, below) = (Machine::of(cx.target), below(cx, conv));
    let inputs = cx.step.inputs[1].view.dims[1];
    let of_simd = below.waves(cx).ceil();
    let resident = of_simd.min(RESIDENT);
    let rounds = inputs.div_ceil(together(cx, conv, &below)) as f64;
    let issued = below.instructions(conv, inputs) as f64 * machine.issue;
    let turn = (rounds * machine.dram + issued).max(resident * issued);
    let bytes = [cx.step.inputs[0].tensor, cx.step.output.tensor].map(|x| cx.graph.tensor(x).bytes() as f64);
    let begun = below.waves(cx) * f64::from(cx.target.cus() * cx.target.info().simds) * machine.dispatch;
    machine.ends + (turn * (of_simd / resident).ceil()).max(begun).max(bytes.iter().sum::<f64>() / machine.memory)
}

/// What a workitem computes: positions below each other, of some of a group's channels.
#[derive(Clone, Copy)]
struct Below {
    /// How many positions.
    count: usize,
    /// The dimension of the window in which they follow each other.
    dim: usize,
    /// Channels.
    across: usize,
}

/// Counts of positions; elements of a channel that a workitem loads for them at most; weights of an input channel that it holds at most for
/// several channels, and bytes that these begin behind the first one's; and waves of a SIMD that there are left at least.
const BELOW: [usize; 3] = [1, 4, 2];
const LOADED: usize = 64;
const WEIGHTS: usize = 72;
const APART: usize = 1 << 19;
const WAVES: f64 = 6.0;
/// The same where a workitem walks several channels.
const WAVES_OF_LONG: f64 = 4.0;

/// Several positions are computed by a workitem where that takes so much less work, and where memory is not what takes nearly the
/// longest: workgroups of several rows share more of their lines with others.
const WORTH: f64 = 0.85;
const OF_MEMORY: f64 = 1.25;

/// Instructions of an element that is loaded: its place, and the load; and of a result, besides those of a workitem.
const PER_LOADED: usize = 3;
const PER_RESULT: usize = 10;
const AROUND: usize = 20;

/// How many a workitem computes: those that take least work and leave each SIMD some waves.
fn below(cx: &Cx, conv: &Conv) -> Below {
    let (window, out, t) = (&conv.window, &cx.step.output.view, cx.target.info());
    let (weights, size) = (&cx.step.inputs[1].view, cx.dtype(Arg::Input(1)).size());
    let inputs = weights.dims[1];
    let of_group = weights.dims[0] / conv.groups;
    let dim = window.kernel.len().checked_sub(2);
    let alone = Below { count: 1, dim: dim.unwrap_or(0), across: 1 };
    let overlap = dim.is_some_and(|d| window.dilations[d] == 1 && window.strides[d] < window.kernel[d]);
    let work = |below: &Below| (below.lanes(cx) * below.instructions(conv, inputs)) as f64;
    let machine = Machine::of(cx.target);
    let simds = f64::from(cx.target.cus() * t.simds);
    let issued = work(&alone) / f64::from(t.wave_size) * machine.issue / simds;
    let begun = alone.waves(cx) * simds * machine.dispatch;
    let bytes = [cx.step.inputs[0].tensor, cx.step.output.tensor].map(|x| cx.graph.tensor(x).bytes() as f64);
    if issued.max(begun) < OF_MEMORY * bytes.iter().sum::<f64>() / machine.memory {
        return alone;
    }
    let least = if inputs > 1 { WAVES_OF_LONG } else { WAVES };
    let fits = |below: &Below| {
        let few = below.elements(window) <= LOADED && (below.count == 1 || out.dims[2 + below.dim] >= below.count);
        let held = below.across == 1 || below.weights(window) <= WEIGHTS && weights.len() / conv.groups * size <= APART;
        few && held && (below.count == 1 || overlap) && below.waves(cx) >= least
    };
    let channels = (1..=of_group).filter(|n| of_group.is_multiple_of(*n));
    let ways = channels.flat_map(|across| BELOW.map(|count| Below { count, across, ..alone })).filter(fits);
    let best = ways.min_by(|a, b| work(a).total_cmp(&work(b)));
    best.filter(|b| work(b) < WORTH * work(&alone)).unwrap_or(alone)
}

/// Workitems of a workgroup: of the sizes with the fewest lanes, or nearly, that have nothing to do the largest.
fn workgroup(positions: usize, wave: u32) -> u32 {
    let sizes = [256, 128, 64, 32].into_iter().filter(|size| *size >= wave);
    let least = sizes.clone().map(|size| lanes_of(positions, size)).min().unwrap_or(positions);
    sizes.into_iter().find(|size| lanes_of(positions, *size) * 20 <= least * 21).unwrap_or(wave)
}

/// Lanes of workgroups of a size that have so many positions.
fn lanes_of(positions: usize, size: u32) -> usize {
    positions.next_multiple_of(size as usize)
}

impl Below {
    /// Lanes of all workgroups, with those that have nothing to do.
    fn lanes(&self, cx: &Cx) -> usize {
        let (out, wave) = (&cx.step.output.view, cx.target.info().wave_size);
        let positions = self.blocks(out).dims[2..].iter().product();
        lanes_of(positions, workgroup(positions, wave)) * out.dims[0] * out.dims[1] / self.across
    }

    /// Waves of a SIMD.
    fn waves(&self, cx: &Cx) -> f64 {
        let t = cx.target.info();
        self.lanes(cx) as f64 / f64::from(t.wave_size * cx.target.cus() * t.simds)
    }

    /// Instructions of a workitem for an input channel, and for all of so many.
    fn of_channel(&self, conv: &Conv) -> usize {
        let taps: usize = conv.window.kernel.iter().product();
        PER_LOADED * self.elements(&conv.window) + (self.count + 1) * taps * self.across
    }
    fn instructions(&self, conv: &Conv, inputs: usize) -> usize {
        inputs * self.of_channel(conv) + PER_RESULT * self.results() + AROUND
    }

    /// What a workitem computes.
    fn results(&self) -> usize {
        self.count * self.across
    }

    /// Weights of an input channel for all of its channels.
    fn weights(&self, window: &Window) -> usize {
        window.kernel.iter().product::<usize>() * self.across
    }

    /// Elements of a channel that a workitem loads.
    fn elements(&self, window: &Window) -> usize {
        self.window(window).kernel.iter().product()
    }

    /// The window of all of a workitem's positions.
    fn window(&self, window: &Window) -> Window {
        let mut whole = window.clone();
        if self.count > 1 {
            whole.kernel[self.dim] += (self.count - 1) * window.strides[self.dim];
            whole.strides[self.dim] *= self.count;
        }
        whole
    }

    /// The results, of which a workitem's are one.
    fn blocks(&self, out: &View) -> View {
        let mut blocks = out.clone();
        if self.count > 1 {
            blocks.dims[2 + self.dim] = out.dims[2 + self.dim].div_ceil(self.count);
        }
        blocks
    }

    /// Which element of the whole window tap `tap` of position `number` is.
    fn element(&self, window: &Window, whole: &Window, tap: usize, number: usize) -> usize {
        let (mut rest, mut at, mut step) = (tap, 0, 1);
        for d in (0..window.kernel.len()).rev() {
            let mut k = rest % window.kernel[d];
            rest /= window.kernel[d];
            if self.count > 1 && d == self.dim {
                k += number * window.strides[d];
            }
            at += k * step;
            step *= whole.kernel[d];
        }
        at
    }
}

/// Bytes with their signs, combined with another by exclusive or.
fn flipped(w: &mut Writer, x: Part, flip: u8) -> Part {
    match flip {
        0 => x,
        _ => w.b.op(Gen::Xor.of(Type::B32), &[(i32::from(flip as i8) as u32).into(), x.into()]),
    }
}

/// Where the weights of a channel come from: a buffer, at a scalar offset.
pub(super) struct Weights {
    buf: Buffer,
    at: Part,
    t: DType,
    /// Weights of an input channel, and bytes that they take.
    taps: usize,
    bytes: usize,
    /// They come in whole words, by scalar loads.
    words: bool,
    /// Halves are multiplied as they are.
    mixes: bool,
}

/// A weight as it is multiplied with.
#[derive(Clone, Copy)]
pub(super) enum Weight {
    Whole(Part),
    /// Half of a word, the high one or the other.
    Half(Part, bool),
}

impl Weight {
    /// Adds its product with an element to a sum of a type; the element may be the low half of a word.
    pub fn multiply_add(self, w: &mut Writer, ty: Type, sum: Part, (x, is_half): (Part, bool)) {
        match self {
            Weight::Whole(weight) if ty == Type::I32 => {
                w.b.emit(op::V_MAD_I32_I24, &[sum.into()], &[x.into(), weight.into(), sum.into()]);
            }
            Weight::Whole(weight) => Float(ty).fma_into(&mut w.b, sum, weight, x),
            Weight::Half(word, high) => {
                let halves = 0b10 | i32::from(is_half);
                let mods = Mods::new().with(ModName::OpSel, i32::from(high) << 1).with(ModName::OpSelHi, halves);
                let srcs = [x.into(), word.into(), sum.into()];
                w.b.push(MInst { mods, ..MInst::new(op::V_FMA_MIX_F32, &[sum.into()], &srcs) });
            }
        }
    }
}

/// Words of a scalar load at most, and of a load for each lane.
const MOST_WORDS: usize = 8;
const MOST_OF_LANES: usize = 4;

/// Weights of these types come in whole words where they lie in such, and are put into such where they are known.
fn comes_in_words(cx: &Cx, taps: usize) -> [bool; 2] {
    let (t, access) = (cx.dtype(Arg::Input(1)), &cx.step.inputs[1]);
    let known = matches!(t, DType::F32 | DType::F16 | DType::BF16 | DType::I8);
    let as_it_is = [taps, access.view.offset as usize].iter().all(|n| (n * t.size()).is_multiple_of(WORD));
    let constant = matches!(cx.graph.tensor(access.tensor).role, Role::Constant(_));
    [known && as_it_is, known && (as_it_is || constant)]
}

impl Weights {
    /// A window's weights may be loaded for each lane.
    pub fn come_in_words(cx: &Cx, taps: usize) -> bool {
        comes_in_words(cx, taps)[1]
    }

    /// The weights of an output channel, which may be one for each lane.
    pub fn new(w: &mut Writer, cx: &Cx, channel: Part, taps: usize) -> Res<Weights> {
        let (t, access) = (cx.dtype(Arg::Input(1)), &cx.step.inputs[1]);
        let (size, [channels, inputs]) = (t.size(), [access.view.dims[0], access.view.dims[1]]);
        let [as_it_is, words] = comes_in_words(cx, taps);
        let (buf, bytes, first) = if words && !as_it_is {
            let bytes = (taps * size).next_multiple_of(WORD);
            let (taken, along) = (bytes / size, inputs * bytes / size);
            let packing = Packing {
                operand: 1,
                groups: 1,
                channels,
                taps: along,
                together: [taps, taken],
                lines: channels,
                pitch: along,
                along_k: true,
                by_taps: false,
                size,
            };
            (w.blob(Blob::Weights(packing)), bytes, 0)
        } else {
            (w.buffer(cx, Arg::Input(1))?, taps * size, access.view.offset as usize * size)
        };
        let skip = w.b.mul(channel, (inputs * bytes) as u32);
        let mut at = w.b.add(skip, first as u32);
        if !w.b.is_vector(channel.into()) {
            let moved = w.b.s(1);
            w.b.copy_into(moved, at);
            at = moved;
        }
        let mixes = words && t == DType::F16 && cx.target.has(op::V_FMA_MIX_F32);
        Ok(Weights { buf, at, t, taps, bytes, words, mixes })
    }

    /// The weights of so many input channels from one on, as they are computed with.
    pub fn load(&self, w: &mut Writer, first: usize, channels: usize) -> Vec<Weight> {
        let size = self.t.size();
        let all = (0..channels).flat_map(|c| (0..self.taps).map(move |i| c * self.bytes + i * size));
        if !self.words {
            let one = |byte| {
                let at = Offset { reg: Some(self.at), imm: (first * self.bytes + byte) as u32 };
                Weight::Whole(values::load(&mut w.b, self.t, self.buf, at).whole(&mut w.b))
            };
            return all.map(one).collect();
        }
        let (count, mut words) = (channels * self.bytes / WORD, Vec::new());
        let for_lanes = w.b.is_vector(self.at.into());
        while words.len() < count {
            let most = if for_lanes { MOST_OF_LANES } else { MOST_WORDS };
            let some = 1 << (count - words.len()).min(most).ilog2();
            let byte = (first * self.bytes + words.len() * WORD) as u32;
            let dst = if for_lanes { w.b.v(some as u8) } else { w.b.s(some as u8) };
            match for_lanes {
                true => w.b.load_into(dst, self.buf, self.at, 0u32, byte),
                false => w.b.scalar_buffer_load_into(dst, self.buf, self.at, byte),
            }
            words.extend((0..some as u8).map(|i| dst.dword(i)));
        }
        all.map(|byte| self.weight(w, words[byte / WORD], byte % WORD)).collect()
    }

    /// The one that begins with a byte of a word.
    fn weight(&self, w: &mut Writer, word: Part, byte: usize) -> Weight {
        let (high, shift) = (byte > 0, 8 * byte as u32);
        let bits = |w: &mut Writer, g: Gen, by: u32| {
            let to = if w.b.is_vector(word.into()) { w.b.v(1) } else { w.b.s(1) };
            w.b.emit(g.of(Type::U32), &[to.into()], &[word.into(), by.into()]);
            to
        };
        Weight::Whole(match self.t {
            DType::F16 if self.mixes => return Weight::Half(word, high),
            DType::I8 => {
                if w.b.is_vector(word.into()) {
                    w.b.op(op::V_BFE_I32, &[word.into(), shift.into(), 8u32.into()])
                } else {
                    let to = w.b.s(1);
                    w.b.emit(op::S_BFE_I32, &[to.into()], &[word.into(), (shift | 8 << 16).into()]);
                    to
                }
            }
            DType::BF16 if high => bits(w, Gen::And, 0xffff_0000),
            DType::BF16 => bits(w, Gen::Shl, 16),
            DType::F16 => {
                let half = bits(w, Gen::Shr, shift);
                w.b.convert(Type::F16, Type::F32, half)
            }
            _ => word,
        })
    }

    /// On to the weights of the input channels behind so many.
    fn advance(&self, w: &mut Writer, channels: usize) {
        w.b.emit(Gen::Add.of(Type::I32), &[self.at.into()], &[self.at.into(), ((channels * self.bytes) as u32).into()]);
    }
}

/// Per window dimension and coordinate: byte offset and, where the input may be left, the mask of lanes inside it.
pub(super) struct Taps {
    dims: Vec<Vec<(Part, Option<Part>)>>,
}

impl Taps {
    /// Prepares the taps of a position. `input` has two leading dimensions before the spatial ones, elements of `bytes`
    /// bytes.
    pub fn new(
        w: &mut Writer,
        window: &Window,
        coords: &[Option<Part>],
        input: &View,
        bytes: usize,
        out: &View,
    ) -> Taps {
        let b = &mut w.b;
        let mut dims = Vec::new();
        for (d, c) in coords.iter().enumerate() {
            let extent = input.dims[d + 2];
            let corner = match c {
                Some(c) => b.mul(*c, window.strides[d] as u32),
                None => b.to_vector(0u32),
            };
            let last = (out.dims[d + 2] - 1) * window.strides[d];
            let mut taps = Vec::new();
            for k in 0..window.kernel[d] {
                let reach = k * window.dilations[d];
                let delta = reach as i32 - window.pads[d] as i32;
                let at = if delta != 0 { b.add(corner, delta) } else { corner };
                let leaves = delta < 0 || last + reach >= extent + window.pads[d];
                let inside = leaves.then(|| b.op(Gen::CmpGt.of(Type::U32), &[(extent as u32).into(), at.into()]));
                taps.push((b.mul(at, (input.strides[d + 2] * bytes as i64) as i32), inside));
            }
            dims.push(taps);
        }
        // The innermost dimension carries the input's own offset.
        if input.offset != 0 {
            for tap in dims.last_mut().into_iter().flatten() {
                tap.0 = b.add(tap.0, (input.offset * bytes as i64) as u32);
            }
        }
        Taps { dims }
    }

    /// Byte offset of tap `t` (row-major), out of bounds where it lies outside.
    pub fn offset(&self, w: &mut Writer, t: usize) -> Part {
        match self.offset_and_mask(w, t) {
            (at, Some(mask)) => w.b.guard(mask, at),
            (at, None) => at,
        }
    }

    /// Byte offset of tap `t` and, where some lanes may lie outside, the mask of those inside.
    pub fn offset_and_mask(&self, w: &mut Writer, t: usize) -> (Part, Option<Part>) {
        let mut rest = t;
        let mut sum: Option<Part> = None;
        let mut mask: Option<Part> = None;
        for taps in self.dims.iter().rev() {
            let (offset, inside) = taps[rest % taps.len()];
            rest /= taps.len();
            sum = Some(match sum {
                Some(s) => w.b.add(s, offset),
                None => offset,
            });
            mask = w.b.both(mask, inside);
        }
        (sum.expect("a window has a dimension"), mask)
    }
}
