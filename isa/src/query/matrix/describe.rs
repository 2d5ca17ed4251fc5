//! Layouts of matrix instructions as text: which lanes, register and bits hold each element.

use super::{Column, Elem, Layout, MatrixOp};
use crate::{Op, Target};
use std::fmt::Write;

/// The layout of a matrix instruction on a target, for the target's usual wave size: a line per operand and group of
/// elements. `None` for other instructions, and for gfx1250, whose layouts are not known.
pub fn describe(target: Target, op: Op) -> Option<String> {
    let MatrixOp { shape, a, b, d } = MatrixOp::of(target, op, target.info().wave_size as usize)?;
    let mut out = String::new();
    let stored = if shape.sparse { shape.k / 2 } else { shape.k };
    let what = if shape.sparse { "stored element" } else { "column" };
    let (m, n, k) = (shape.m, shape.n, shape.k);
    operand(&mut out, "A", (m, stored, a), (what, "k", "i"), m, stored, &shape.a(a));
    operand(&mut out, "B", (k, n, b), ("row", "k", "j"), n, k, &shape.b(b));
    operand(&mut out, "C, D", (m, n, d), ("row", "i", "j"), n, m, &shape.d(d, false));
    if shape.layout == Layout::Wmma11 {
        out.push_str("both halves of a wave64, and of a wave32 lanes 0-15 and 16-31, hold the same A and B\n");
    }
    Some(out)
}

/// One operand: `lines` elements (of each block) in one direction, each a run of `side` lanes.
fn operand(
    out: &mut String,
    name: &str,
    (rows, columns, e): (usize, usize, Elem),
    (what, along, across): (&str, &str, &str),
    side: usize,
    lines: usize,
    places: &[Column],
) {
    let elem = format!("{e:?}").to_lowercase();
    let blocks = places.len() / lines.max(1);
    let count = if blocks > 1 { format!("{blocks} blocks of ") } else { String::new() };
    let _ =
        writeln!(out, "{name}: {count}{rows}x{columns} {elem}; {what} {along} is lanes + {across}, register[bits]:");
    let bits = e.bits() as usize;
    for (n, chunk) in places.chunks(8).enumerate() {
        let _ = write!(out, "  ");
        for (i, c) in chunk.iter().enumerate() {
            let at = n * 8 + i;
            let block = if blocks > 1 { format!("{}:", at / lines) } else { String::new() };
            let low = usize::from(c.shift);
            let place = if bits >= 32 { String::new() } else { format!("[{}:{}]", low + bits - 1, low) };
            let last = usize::from(c.lane) + side - 1;
            let _ = write!(out, " {block}{along}{}: {}-{last} v{}{place}", at % lines, c.lane, c.reg);
        }
        out.push('\n');
    }
}
