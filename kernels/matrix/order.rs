//! Columns in another order for products of pairs of them ([`Gated`]).
//!
//! Where lanes of an instruction's result hold one column each, the two columns of a pair go to tiles side by side: in LDS columns lie in the order of
//! lanes and tiles, and what is read and multiplied does not change.

use super::MatrixForm;
use crate::graph::fused::Gated;
use crate::kernels::tile::Order;
use barewave_isa::matrix::Fragment;

impl MatrixForm {
    /// In which order columns lie in LDS, one tile of instructions after the other.
    pub fn order(&self) -> Order {
        let (group, side) = (Gated::GROUP as u32, self.side());
        let others = (group.ilog2()..side.ilog2()).map(|bit| (2 << bit, 1 << bit));
        if self.pairs { Order::of(others.chain([(group, side)])) } else { Order::PLAIN }
    }

    /// First column of a wave's instruction tile.
    pub(super) fn column(&self, number: usize) -> u32 {
        self.order().column(number as u32 * self.side())
    }

    /// The columns of places.
    pub(super) fn in_order(&self, mut f: Fragment) -> Fragment {
        let order = self.order();
        f.lane.iter_mut().chain(&mut f.position).for_each(|s| s.col = order.column(s.col));
        f
    }
}
