//! Computes what a model makes of its constants alone, once, before it is compiled: on an emulated device of the target, by the kernels
//! that would have computed it in each run.

use super::{Compiler, Options};
use crate::graph::{Options as GraphOptions, computed_constants};
use crate::onnx::Model;
use crate::runtime::{Device, EmulatedDevice, Session};
use crate::tensor::HostTensor;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Compiler {
    /// The model with constants in place of what it computes of constants alone: standardised and merged weights are packed like any
    /// others then. Values of up to 65,536 elements are left to [`Compiler::fuse`], and so are views and weights that are widened.
    pub fn settle<'m>(&self, model: &'m Model) -> Cow<'m, Model> {
        let parts = timed!("constants", computed_constants(model));
        if parts.is_empty() {
            return Cow::Borrowed(model);
        }
        let options = Options { cache: self.options.cache.clone(), ..Options::default() };
        let compiler = Compiler::new(self.target, options);
        // What cannot be computed stays as it is, and is refused where it is compiled with the rest.
        let made: BTreeMap<String, HostTensor> =
            parts.iter().filter_map(|part| timed!("settle", compiler.outputs(part))).flatten().collect();
        let mut model = model.clone();
        model.graph.nodes.retain(|n| !n.outputs.iter().any(|o| made.contains_key(o)));
        model.graph.initializers.extend(made);
        Cow::Owned(model)
    }

    /// The outputs of a model without inputs, by name.
    fn outputs(&self, model: &Model) -> Option<Vec<(String, HostTensor)>> {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(self.target, false).ok()?);
        let graph = self.fuse(model, &GraphOptions::default()).ok()?;
        let compiled = self.compile_graph(&graph).ok()?;
        let (outputs, _) = Session::new(device, &compiled).ok()?.run::<HostTensor>(&[]).ok()?;
        Some(model.graph.outputs.iter().map(|o| o.name.clone()).zip(outputs).collect())
    }
}
