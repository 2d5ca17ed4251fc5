//! Pairs of columns among the results of a workitem: each result that is stored is made of both ([`Gated`](crate::graph::fused::Gated)).
//!
//! Columns lie in groups of two: the first columns of two pairs, then the second ones of these. A workitem has both columns of a pair where one bit of a
//! position tells them apart: of neighbours in registers, or of tiles of matrix instructions whose columns are taken in another order.
//! What is stored is walked as if only the first ones were there: that bit is left out.

use crate::graph::fused::Gated;
use crate::kernels::fragment::across;
use crate::kernels::matrix::MatrixForm;
use crate::kernels::tile::{Form, Tile};
use barewave_isa::matrix::{Fragment, Step};

/// The bit of a position that tells one column of a pair from the other.
fn bit(f: &Fragment) -> Option<usize> {
    f.position.iter().position(|s| *s == across(Gated::GROUP as u32))
}

/// The tile where its workitems have pairs of columns, or the same with columns in an order in which they have; else none.
pub(in crate::kernels) fn with_pairs(tile: &Tile) -> Option<Tile> {
    if bit(&tile.fragment()).is_some() {
        return Some(*tile);
    }
    let Form::Matrix(form) = tile.form else { return None };
    let turned = Tile { form: Form::Matrix(MatrixForm { pairs: true, ..form }), ..*tile };
    bit(&turned.fragment()).is_some().then_some(turned)
}

/// Where results are of which a fragment has pairs, and where their columns are in it.
pub(super) struct Pairs {
    pub results: Fragment,
    bit: usize,
}

impl Pairs {
    /// Of a fragment; none where it has no pairs.
    pub fn of(f: &Fragment) -> Option<Pairs> {
        let bit = bit(f)?;
        let half = |s: &Step| Step { col: if s.col > 1 { s.col / 2 } else { s.col }, ..*s };
        let others = f.position.iter().enumerate().filter(|(i, _)| *i != bit);
        let position = others.map(|(_, s)| half(s)).collect();
        Some(Pairs { results: Fragment { lane: f.lane.iter().map(half).collect(), position, ..*f }, bit })
    }

    /// Positions of the pair behind a result's.
    pub fn positions(&self, p: u32) -> [u32; 2] {
        let apart = 1 << self.bit;
        let first = p % apart + p / apart * 2 * apart;
        [first, first + apart]
    }
}
