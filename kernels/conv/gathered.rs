//! The image of a convolution, gathered: a table gives for each k the byte offset of its element relative to the window's corner and a mask with one bit for
//! its coordinate in each window dimension. A workitem computes once which window coordinates fall inside the input for its positions, so testing a tap is one
//! `and` and one compare.

use super::words::{Words, word_table};
use super::{Place, Term};
use crate::graph::fused::Window;
use crate::graph::view::View;
use crate::kernels::error::Res;
use crate::kernels::loader::{self, GatherSource, Loader};
use crate::kernels::split::DepthPart;
use crate::kernels::{Arg, Blob, Cx, Writer, address};
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use barewave_isa::op;

/// Mask bit of table entries behind the end of k: no column has it.
const NEVER: u32 = 1 << 31;

/// The loader of such an image.
pub(super) fn gather_loader(
    w: &mut Writer,
    cx: &Cx,
    place: &Place,
    part: DepthPart,
    term: Term,
    start: Part,
    depth: usize,
) -> Res<Loader> {
    let &Place { tile, in_words, .. } = place;
    let (width, first) = place.of_image();
    let (window, x, input) = (term.window, term.x(cx), Arg::Input(term.input));
    let out_dims = &cx.step.output.view.dims[2..];
    let n = out_dims.len();
    let size = i64::from(tile.types.stored_bytes());
    // What is beside a line of the input comes as zeros where words are put in place.
    let outer = if in_words { n - 1 } else { n };
    let masked = (0..outer).any(|d| term.is_padded_along(cx, d)) || depth != part.split.span() as usize;
    // The window's corner may lie before the input. Shifting the buffer's base back by as much keeps all offsets
    // positive; what lies before the tensor is masked out and never read.
    let shift: i64 = (0..outer).map(|d| window.pads[d] as i64 * x.strides[d + 2] * size).sum();
    let buf = w.buffer(cx, input)?;
    let buf = shifted(w, buf, shift as u32, cx.reach(input) as u32);
    let along = if !masked && term.has_points(cx) {
        loader::Depth::Even((x.strides[1] * size) as u32)
    } else {
        // Reads ahead of the end may touch two tiles more.
        let rows = (part.split.span() + 2 * tile.k) as usize;
        let table =
            if in_words { word_table(window, x, depth, rows) } else { offset_table(window, x, size, depth, rows) };
        loader::Depth::Table(w.blob(Blob::Data(table)))
    };
    let item = w.b.workitem_id();
    let (cols, _) = loader::gather_shape(tile, width);
    let (mut columns, mut valid, mut selectors) = (Vec::new(), Vec::new(), Vec::new());
    let lane = w.b.umod(item, tile.threads().min(width));
    let words = in_words.then(|| Words::of(w, term, (tile, width), item));
    for c in 0..cols {
        let at = w.b.add(first, lane);
        let at = if c > 0 { w.b.add(at, c * tile.threads()) } else { at };
        // The image's number, where there are several, and the position in it.
        let images = if place.product.merged() { x.dims[0] } else { 1 };
        let mut corner = View { offset: 0, dims: [&[images], out_dims].concat(), strides: vec![x.strides[0]] };
        corner.strides.extend((0..n).map(|d| x.strides[d + 2] * window.strides[d] as i64));
        let coords = address::coordinates(&mut w.b, at, &corner.dims);
        if in_words {
            // Lines have places of their own.
            corner.strides[n] = 0;
        }
        let offset = address::offset(&mut w.b, &corner, size as usize, &coords);
        let offset = offset.vector(&mut w.b);
        match &words {
            Some(words) => {
                for (place, selector) in words.places(w, term, coords[n], x.dims[n + 1]) {
                    columns.push(w.b.add(offset, place));
                    selectors.push(selector);
                }
            }
            None => columns.push(offset),
        }
        if masked {
            valid.push(valid_taps(&mut w.b, window, &coords[1..outer + 1], &x.dims[2..]));
        }
    }
    let scalar = w.b.add(start, (x.offset * size) as u32);
    let src = GatherSource { buf, scalar, depth: along, part, columns, selectors, valid, flip: term.flip };
    Ok(loader::gather(&mut w.b, src, tile, width, item))
}

/// True when some tap of the last output position lies behind the input.
pub(super) fn reaches_past(window: &Window, d: usize, out: usize, input: usize) -> bool {
    (out - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d] >= input + window.pads[d]
}

/// The buffer with its base moved back by `shift` bytes.
pub(super) fn shifted(w: &mut Writer, buf: Buffer, shift: u32, bytes: u32) -> Buffer {
    if shift == 0 {
        return buf;
    }
    let desc = w.b.s(4);
    let at = |i: u8| -> Opnd { buf.desc.dword(i).into() };
    w.b.emit(op::S_SUB_U32, &[desc.dword(0).into()], &[at(0), shift.into()]);
    w.b.emit(op::S_SUBB_U32, &[desc.dword(1).into()], &[at(1), 0u32.into()]);
    w.b.copy_into(desc.dword(2), bytes + shift);
    w.b.copy_into(desc.dword(3), at(3));
    Buffer { desc, memory: buf.memory }
}

/// Bit numbers of the window coordinates: dimension d begins at the sum of the extents before it.
pub(super) fn first_bit(window: &Window, d: usize) -> usize {
    window.kernel[..d].iter().sum()
}

/// Byte offset and coordinate mask of every k, and of what lies behind the depth: `rows` in all.
pub(super) fn offset_table(window: &Window, x: &View, size: i64, depth: usize, rows: usize) -> Vec<u8> {
    let taps: usize = window.kernel.iter().product();
    let mut table = Vec::with_capacity(rows * 8);
    for k in 0..rows {
        let (mut offset, mut mask) = (0i64, NEVER);
        if k < depth {
            let (channel, mut tap) = (k / taps, k % taps);
            offset = channel as i64 * x.strides[1];
            mask = 0;
            for d in (0..window.kernel.len()).rev() {
                let at = tap % window.kernel[d];
                tap /= window.kernel[d];
                offset += (at * window.dilations[d]) as i64 * x.strides[d + 2];
                mask |= 1 << (first_bit(window, d) + at);
            }
        }
        table.extend_from_slice(&((offset * size) as u32).to_le_bytes());
        table.extend_from_slice(&mask.to_le_bytes());
    }
    table
}

/// For a column: which window coordinates lie inside the input, in each dimension.
pub(super) fn valid_taps(b: &mut Builder, window: &Window, coords: &[Option<Part>], input: &[usize]) -> Part {
    let bits = b.to_vector(0u32);
    for (d, c) in coords.iter().enumerate() {
        let corner = match c {
            Some(c) => b.mul(*c, window.strides[d] as u32),
            None => b.to_vector(0u32),
        };
        for k in 0..window.kernel[d] {
            let delta = (k * window.dilations[d]) as i32 - window.pads[d] as i32;
            let at = if delta != 0 { b.add(corner, delta) } else { corner };
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[(input[d] as u32).into(), at.into()]);
            let bit = b.to_vector(1u32 << (first_bit(window, d) + k));
            let zero = b.to_vector(0u32);
            let set = b.select(inside, bit, zero);
            b.emit(Gen::Or.of(Type::U32), &[bits.into()], &[bits.into(), set.into()]);
        }
    }
    bits
}
