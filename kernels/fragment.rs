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

/// A fragment of runs: the bits of a lane's number, and of a position, count each run's elements in turn, which lie a step apart. Counts
/// are powers of two, but for that of the last run of positions: of what is not one there are the first positions only.
pub(super) fn runs(lane: &[(u32, Step)], position: &[(u32, Step)], bits: u32) -> Fragment {
    let doubling = |list: &[(u32, Step)]| -> Vec<Step> {
        let of = |&(count, s): &(u32, Step)| {
            (0..count.next_power_of_two().trailing_zeros()).map(move |b| Step { row: s.row << b, col: s.col << b })
        };
        list.iter().flat_map(of).collect()
    };
    let whole = position.len().saturating_sub(1);
    let odd = lane.iter().chain(&position[..whole]).find(|run| !run.0.is_power_of_two());
    assert!(odd.is_none(), "runs of powers of two, not {odd:?}");
    Fragment { lane: doubling(lane), position: doubling(position), bits, spacing: bits }
}

/// So many rows further.
pub(super) fn down(row: u32) -> Step {
    Step { row, col: 0 }
}

/// So many columns further.
pub(super) fn across(col: u32) -> Step {
    Step { row: 0, col }
}
