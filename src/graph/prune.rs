//! Drops steps whose result nobody reads and tensors that nobody uses.

use super::fused::{FusedGraph, Role, Step, TensorId};

/// Removes what has no effect and renumbers the tensors.
pub(crate) fn prune(graph: &mut FusedGraph) {
    let mut read = vec![false; graph.tensors.len()];
    for id in &graph.outputs {
        read[id.index()] = true;
    }
    let mut keep = vec![false; graph.steps.len()];
    for (i, step) in graph.steps.iter().enumerate().rev() {
        if step.written().any(|t| read[t.index()]) {
            keep[i] = true;
            // All that it writes is there, read or not.
            step.written().for_each(|t| read[t.index()] = true);
            each_read(step, |t| read[t.index()] = true);
        }
    }
    // What a constant was widened from is kept with it.
    graph.widened.retain(|step| read[step.output.tensor.index()]);
    graph.widened.iter().for_each(|step| each_read(step, |t| read[t.index()] = true));
    let mut flags = keep.iter();
    graph.steps.retain(|_| *flags.next().expect("one flag per step"));

    let mut map = vec![TensorId(u32::MAX); graph.tensors.len()];
    let tensors = std::mem::take(&mut graph.tensors);
    for (i, tensor) in tensors.into_iter().enumerate() {
        if read[i] || matches!(tensor.role, Role::Input(_) | Role::Output(_)) {
            map[i] = graph.add_tensor(tensor);
        }
    }
    let rename = |t: &mut TensorId| *t = map[t.index()];
    for step in graph.steps.iter_mut().chain(&mut graph.widened) {
        rename(&mut step.output.tensor);
        for a in &mut step.inputs {
            rename(&mut a.tensor);
            a.indirect.iter_mut().for_each(|i| rename(&mut i.index));
        }
    }
    graph.inputs.iter_mut().for_each(rename);
    graph.outputs.iter_mut().for_each(rename);
}

fn each_read(step: &Step, mut f: impl FnMut(TensorId)) {
    for a in &step.inputs {
        f(a.tensor);
        a.indirect.iter().for_each(|i| f(i.index));
    }
}
