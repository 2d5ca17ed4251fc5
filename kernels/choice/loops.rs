//! What a tile's loop takes besides what is counted of its rounds.
//!
//! Loops that run alike have constants of their own: what a wave that is alone waits for, and what is hidden where several are, depends on
//! whether loads come in the round that they are for, and on what runs beside products. They are fitted to what the cycle model says of 1,350
//! products, 16 to 18 candidates of each, of f32, f16 and i8 on nine targets, those of narrow elements by matrix instructions once more to 530 of
//! these: to which candidate is the best one, and to the clocks of those that are about as good. (`bench gemm --search` prints how far both are apart.)

use super::{Machine, has_matrix_shadow};
use crate::kernels::rounds::is_narrow;
use crate::kernels::tile::{Form, Tile};
use barewave_isa::Target;
use barewave_isa::matrix::Layout;

/// Constants of loops that run alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Cycles of a round of a workgroup that is alone, over those that L2 takes to answer: what it loads at its beginning it waits
    /// for at its end.
    pub round: f64,
    /// Where all workgroups of a launch begin together most of what they load was asked for by nobody before: a round waits for so much of
    /// the way from L2 to memory. Narrow elements come a round earlier where products do not queue.
    pub first: f64,
    /// Of the shorter one of products and moves a workgroup that is alone sees this share, and a compute unit that is full.
    pub seen: f64,
    pub seen_full: f64,
    /// Where it is given, both of one that is alone are put together by this power instead: moves in the shadow of products are noticed where they take
    /// about as long.
    pub queued: Option<f64>,
    /// Cycles that moves take over what their bytes would: lanes read the same from LDS.
    pub reads: f64,
    /// Cycles of each of a round's barriers.
    pub meeting: f64,
    /// Instructions of a wave before and behind its loop, and for each of a workitem's results, that others wait for.
    pub around: f64,
    pub result: f64,
    /// Cycles of a workgroup's beginning and end over a share of latencies, of which some are hidden; and rounds' worth of moves in front of the
    /// first round.
    pub edges: f64,
    pub filling: f64,
    /// Share of what a round's loads take on their way through the first level that those of the first round do: nothing runs beside them.
    pub load: f64,
    /// Instructions of a wave for a round besides, and of a workitem for each element that it loads.
    pub each_round: f64,
    pub each_load: f64,
}

/// Cycles of a barrier where moves are spread among the products; and instructions' worth where they are not: then waves wait for LDS with
/// nothing beside it too.
const MEETING: f64 = 25.0;
const MEETING_IN_TURN: f64 = 37.0;

/// An instruction of a wave keeps its SIMD busy for several cycles.
pub(in crate::kernels) fn is_slow(target: Target) -> bool {
    Machine::of(target).issue > 1.0
}

impl Costs {
    /// Of a tile's loop, whose moves may be spread among the products, and which may gather.
    pub fn of(machine: &Machine, tile: &Tile, (is_spread, gathers): (bool, bool)) -> Costs {
        let slow = machine.issue > 1.0;
        let plain = Costs {
            round: 165.0,
            first: 0.5,
            seen: 0.31,
            seen_full: 0.02,
            queued: None,
            reads: 0.8,
            meeting: MEETING_IN_TURN * machine.issue,
            around: 180.0,
            result: 1.8,
            edges: 107.0,
            filling: 0.0,
            load: 0.0,
            each_round: 0.0,
            each_load: 0.0,
        };
        let spread = Costs { seen: 0.13, seen_full: 0.0, reads: 1.0, meeting: MEETING, ..plain };
        match tile.form {
            Form::Sliced(_) | Form::Few(_) => Costs { result: 5.4, ..spread },
            Form::Winograd { .. } => plain,
            // Products of f64 are long: what is besides is hidden.
            Form::Vector { .. } | Form::Matrix(_) if tile.types.bytes() > 4 => plain,
            // An instruction of a wave keeps its SIMD busy for four cycles: there others count.
            Form::Vector { .. } if slow => {
                let besides = Costs { each_round: 20.0, each_load: 0.3, ..plain };
                Costs { round: 140.0, around: 54.0, result: 2.0, edges: 100.0, ..besides }
            }
            Form::Vector { .. } => {
                let waits = Costs { round: 365.0, seen: 0.79, seen_full: 0.08, ..plain };
                Costs { around: 10.0, result: 5.0, edges: 400.0, filling: 0.5, ..waits }
            }
            // Matrix instructions wait in a queue, beside which others run.
            Form::Matrix(f) if gathers && f.op.shape.layout == Layout::Wmma12 => {
                let waits = Costs { round: 250.0, first: 0.25, seen: 0.13, ..plain };
                Costs { around: 266.0, result: 7.8, edges: -281.0, filling: 0.95, ..waits }
            }
            Form::Matrix(f) if f.op.shape.layout == Layout::Wmma12 => {
                let waits = Costs { round: 285.0, first: 0.1, seen: 0.12, ..plain };
                Costs { around: 0.0, result: 5.6, edges: 823.0, filling: 0.97, load: 0.3, ..waits }
            }
            Form::Matrix(_) if !is_narrow(tile) => {
                let waits = Costs { round: 385.0, seen: 0.6, seen_full: 0.0, ..plain };
                Costs { around: 69.0, result: 2.5, edges: -170.0, filling: 0.7, ..waits }
            }
            Form::Matrix(_) if is_spread => {
                let waits = Costs { round: 375.0, first: 0.32, queued: Some(5.0), seen_full: 0.02, ..spread };
                let around = Costs { around: 12.0, result: 8.8, meeting: 8.5, ..waits };
                Costs { edges: 276.0, filling: 0.34, load: 0.68, ..around }
            }
            // Who gathers.
            Form::Matrix(_) if has_matrix_shadow(machine.target) => {
                Costs { first: 0.0, edges: if slow { 107.0 } else { -200.0 }, ..plain }
            }
            Form::Matrix(_) => {
                let waits = Costs { round: 5.0, first: 0.0, seen: 0.36, seen_full: 0.01, ..plain };
                Costs { around: 154.0, result: 5.4, edges: 1070.0, ..waits }
            }
        }
    }
}
