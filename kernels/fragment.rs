//! Fragments in kernels: coordinates of a workitem's elements as code and as constants.
//!
//! A [`Fragment`] says what every bit of a workitem's number adds to the row and column of its elements. Runs of bits whose
//! steps double become one shift and one mask each; what the position in the registers adds is a constant.

use crate::mir::{Builder, Part};
use barewave_isa::matrix::{Fragment, Step};

/// `base` plus `scale` times the row or column (`of`) at which the elements of workitem `item` begin.
pub(super) fn coordinate(
    b: &mut Builder,
    f: &Fragment,
    item: Part,
    of: fn(&Step) -> u32,
    scale: u32,
    base: Option<Part>,
) -> Part {
    let steps: Vec<u32> = f.lane.iter().map(of).collect();
    let mut sum = base;
    let mut bit = 0;
    while bit < steps.len() {
        let first = bit;
        bit += 1;
        if steps[first] == 0 {
            continue;
        }
        while bit < steps.len() && steps[bit] == 2 * steps[bit - 1] {
            bit += 1;
        }
        let high = if first > 0 { b.shr(item, first as u32) } else { item };
        let field = if bit == steps.len() { high } else { b.and(high, (1u32 << (bit - first)) - 1) };
        let step = steps[first] * scale;
        sum = Some(match sum {
            Some(s) => b.mad(field, step, s),
            None => b.mul(field, step),
        });
    }
    sum.unwrap_or_else(|| b.to_vector(0u32))
}

/// Row of the elements.
pub(super) fn row(s: &Step) -> u32 {
    s.row
}

/// Column of the elements.
pub(super) fn col(s: &Step) -> u32 {
    s.col
}
