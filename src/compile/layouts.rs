//! The order of images' channels in memory, chosen once it is known which steps share launches.
//!
//! Images have their channels last where steps take less then ([`kernels::join`]): that is decided before kernels are there, which decide themselves what can be one launch.
//! Kernels that take more registers, or are of many small workgroups, do not go well with others, so that what steps save may be lost to more launches. Where it could
//! be, the graph is also compiled with its images as they are, and what launches take then is compared ([`Taken`](super::behind::Taken)).

use super::{Compiled, Compiler, Error};
use crate::graph;
use crate::graph::fused::FusedGraph;
use crate::kernels::{self, Tuning, When};
use std::borrow::Cow;

/// The share of what steps save by estimates that is saved: some of it would have been hidden beside other steps. Of 144 pairs of a network and a target 71 are turned so, one
/// of which takes over 1% more by the cycle model, 2.6%.
const SAVED: f64 = 0.5;

impl Compiler {
    /// Compiles graphs of one model for different shapes.
    pub fn compile_graphs(&self, graphs: &[FusedGraph]) -> Result<Compiled, Error> {
        crate::passes::dumped()?;
        if graphs.is_empty() {
            return Err(Error::NoShapes);
        }
        graphs.iter().try_for_each(|g| check(g, "fuse"))?;
        let tuning = &self.options.tuning;
        let (joined, saved) = self.joined(graphs, tuning)?;
        let (compiled, taken) = self.compile_joined(&joined)?;
        // Each graph has a launch in any case.
        let launch = kernels::Estimate::of(self.target).launch();
        let more = taken.launches.saturating_sub(graphs.len()) as f64 * launch;
        if saved == 0.0 || tuning.channels_last() != When::Faster || more < SAVED * saved {
            return Ok(compiled);
        }
        let mut tuning = Tuning::clone(tuning);
        tuning.set_channels_last(When::Never);
        let (joined, _) = self.joined(graphs, &tuning)?;
        let (other, then) = self.compile_joined(&joined)?;
        let of_steps = (saved + then.steps - taken.steps) / 2.0;
        Ok(if taken.besides < then.besides + SAVED * of_steps { compiled } else { other })
    }

    /// Graphs with steps joined where one kernel computes them in less time, and the cycles that steps save where images have their channels last.
    fn joined<'g>(&self, graphs: &'g [FusedGraph], tuning: &Tuning) -> Result<(Cow<'g, [FusedGraph]>, f64), Error> {
        let join = |g: &FusedGraph| kernels::join(g, self.target, tuning);
        let joined: Vec<kernels::Joined> = timed!("join", graphs.iter().map(join).collect());
        let saved = joined.iter().map(|j| j.saved).sum();
        joined.iter().filter_map(|j| j.graph.as_ref()).try_for_each(|g| check(g, "join"))?;
        let far = |g: &FusedGraph| g.tensors.iter().any(|t| t.bytes() >= graph::LARGEST);
        if joined.iter().all(|j| j.graph.is_none()) && !graphs.iter().any(far) {
            return Ok((Cow::Borrowed(graphs), saved));
        }
        let whole = joined.into_iter().zip(graphs).map(|(j, g)| j.graph.unwrap_or_else(|| g.clone()));
        let mut whole: Vec<FusedGraph> = whole.collect();
        timed!("split_far", whole.iter_mut().for_each(|g| graph::split_far(g, graph::LARGEST)));
        whole.iter().try_for_each(|g| check(g, "split_far"))?;
        Ok((Cow::Owned(whole), saved))
    }
}

fn check(graph: &FusedGraph, pass: &'static str) -> Result<(), Error> {
    graph.check().map_err(|rule| graph::Error::Internal { pass, rule }.into())
}
