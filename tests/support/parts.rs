//! Tensors that several steps write: whoever reads an element comes behind its writer. Strict mode takes such tensors as written, since lanes behind
//! the end of a part load what they drop.

use barewave::graph::fused::{Access, FusedGraph};
use barewave::graph::view::View;

/// The elements of a view, of the coordinates within some ranges.
fn elements(view: &View, ranges: Option<&[(usize, usize)]>) -> Vec<i64> {
    let mut all = vec![view.offset];
    for (d, (n, stride)) in view.dims.iter().zip(&view.strides).enumerate() {
        let (lo, hi) = ranges.map_or((0, *n), |r| r[d]);
        all = all.iter().flat_map(|at| (lo..hi).map(move |c| at + c as i64 * stride)).collect();
    }
    all
}

/// The first step that reads an element before it is written, by its name and the tensor's.
pub fn unwritten(graph: &FusedGraph) -> Result<(), String> {
    let mut writers = vec![0; graph.tensors.len()];
    graph.steps.iter().flat_map(|s| s.written()).for_each(|t| writers[t.index()] += 1);
    let mut written: Vec<Option<Vec<bool>>> =
        graph.tensors.iter().zip(&writers).map(|(t, n)| (*n > 1).then(|| vec![false; t.len()])).collect();
    for step in &graph.steps {
        let is_read = |(i, a): &(usize, &Access)| !step.kind.filled().contains(i) && a.indirect.is_empty();
        for (_, a) in step.inputs.iter().enumerate().filter(is_read) {
            let Some(written) = &written[a.tensor.index()] else { continue };
            let ranges = a.guard.as_ref().map(|g| &g.ranges[..]);
            if let Some(at) = elements(&a.view, ranges).into_iter().find(|at| !written[*at as usize]) {
                return Err(format!("{} reads element {at} of {} before it is written", step.name, a.tensor.index()));
            }
        }
        let own = [Some(&step.output.view), step.kind.beside()].into_iter().flatten();
        let filled = step.kind.filled().iter().filter_map(|i| step.inputs.get(*i)).map(|a| (a.tensor, &a.view));
        for (t, view) in own.map(|v| (step.output.tensor, v)).chain(filled) {
            if let Some(written) = &mut written[t.index()] {
                elements(view, None).into_iter().for_each(|at| written[at as usize] = true);
            }
        }
    }
    Ok(())
}
