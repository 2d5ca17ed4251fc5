//! Sliding windows.

use crate::graph::rules::Broken;
use std::fmt;

/// Sliding window of convolutions and poolings; one entry per spatial dimension (1 to 3 of them).
///
/// Output position `o` of a dimension reads input positions `o * stride + k * dilation - pad` for `k` in `0..kernel`;
/// positions outside `0..input extent` count as padding. Padding at the end needs no number: it is what the output's
/// extent reaches past the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Extent of the window.
    pub kernel: Vec<usize>,
    /// Distance of neighbouring outputs.
    pub strides: Vec<usize>,
    /// Distance of neighbouring taps.
    pub dilations: Vec<usize>,
    /// Padding before the first element.
    pub pads: Vec<usize>,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kernel {:?}, strides {:?}, dilations {:?}, pads {:?}",
            self.kernel, self.strides, self.dilations, self.pads
        )
    }
}

impl Window {
    /// A window of one point that goes over every element of its input.
    pub fn is_point(&self) -> bool {
        let one = |v: &[usize]| v.iter().all(|k| *k == 1);
        one(&self.kernel) && one(&self.strides) && self.pads.iter().all(|p| *p == 0)
    }

    /// Checks that it has one to three dimensions, all of its lists as many entries, and no zeros; gives how many.
    pub(super) fn check(&self) -> Result<usize, Broken> {
        let n = self.kernel.len();
        if !(1..=3).contains(&n) || self.strides.len() != n || self.dilations.len() != n || self.pads.len() != n {
            return Err(Broken::Window("does not have one to three dimensions"));
        }
        if self.kernel.contains(&0) || self.strides.contains(&0) || self.dilations.contains(&0) {
            return Err(Broken::Window("has a zero"));
        }
        Ok(n)
    }
}
