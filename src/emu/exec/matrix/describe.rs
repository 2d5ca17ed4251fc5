//! Layouts of matrix instructions as text: which lanes, register and bits hold each element.

use super::layout::{Column, Shape};
use super::{Elem, Layout, parse};
use crate::codeobj::Family;
use barewave_isa::{Op, Target};
use std::fmt::Write;

/// The layout of a matrix instruction on a target, for the target's usual wave size: a line per operand and group of
/// elements. `None` for other instructions, and for gfx1250, whose layouts are not known.
pub fn describe(target: Target, op: Op) -> Option<String> {
    let n = parse(op.name())?;
    let family = Family::of_mach(target.info().elf_mach)?;
    if family >= Family::Gfx125 {
        return None;
    }
    let info = target.op(op)?;
    let lanes = target.info().wave_size as usize;
    let layout = if n.layout != Layout::Mfma && family >= Family::Gfx12 { Layout::Wmma12 } else { n.layout };
    let dwords = usize::from(info.dsts.first()?.dwords());
    let blocks = match layout {
        Layout::Mfma => (dwords * 64 / (n.d.bits() as usize / 32) / (n.m * n.n)).max(1),
        _ => 1,
    };
    let split8 = op.name().ends_with("f8f6f4");
    let shape = Shape { layout, lanes, m: n.m, n: n.n, k: n.k, blocks, sparse: n.sparse, split8 };
    let mut out = String::new();
    let stored = if n.sparse { n.k / 2 } else { n.k };
    let what = if n.sparse { "stored element" } else { "column" };
    operand(&mut out, "A", (n.m, stored, n.a), (what, "k", "i"), n.m, stored, &shape.a(n.a));
    operand(&mut out, "B", (n.k, n.n, n.b), ("row", "k", "j"), n.n, n.k, &shape.b(n.b));
    operand(&mut out, "C, D", (n.m, n.n, n.d), ("row", "i", "j"), n.n, n.m, &shape.d(n.d, false));
    if layout == Layout::Wmma11 {
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
