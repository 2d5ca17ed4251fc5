//! A model that runs whatever shapes it is given.
//!
//! Each new combination of shapes (and of values that decide shapes) is compiled when it comes: kernels that the compiler's
//! cache knows are not made again, so that this takes milliseconds. What was compiled is kept, the least recently used goes
//! first; weights that are the same are on the device once.

use super::device::Device;
use super::session::{DeviceWeights, RunReport, Session, SessionError};
use crate::compile::{self, Compiler};
use crate::graph::Options as Shapes;
use crate::onnx::Model;
use crate::tensor::{AsTensor, HostTensor};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use xxhash_rust::xxh3::xxh3_128;

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AnyShapeError {
    /// The model does not compile for these shapes.
    #[error(transparent)]
    Compile(#[from] compile::Error),
    /// It does not run.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A model on a device, for inputs of any shape.
pub struct AnyShape {
    compiler: Compiler,
    model: Arc<Model>,
    device: Arc<dyn Device>,
    /// The most recently used last.
    sessions: VecDeque<Session>,
    most: usize,
    weights: Vec<((u128, usize), Weak<DeviceWeights>)>,
    compiled: usize,
}

/// Only arrays of up to this many elements can decide shapes.
const SMALL: usize = 4096;

impl AnyShape {
    /// A model for a device, keeping what was compiled for at most `most` combinations of shapes (at least one).
    pub fn new(device: Arc<dyn Device>, compiler: Compiler, model: Arc<Model>, most: usize) -> AnyShape {
        let sessions = VecDeque::new();
        AnyShape { compiler, model, device, sessions, most: most.max(1), weights: Vec::new(), compiled: 0 }
    }

    /// How often the model was compiled so far.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// Runs the model once: inputs in the model's order, outputs likewise.
    pub fn run<T: AsTensor>(&mut self, inputs: &[T]) -> Result<(Vec<HostTensor>, RunReport), AnyShapeError> {
        let session = match self.sessions.iter().position(|s| s.fits(inputs)) {
            Some(at) => self.sessions.remove(at),
            None => None,
        };
        let mut session = match session {
            Some(session) => session,
            None => self.compile(inputs)?,
        };
        let result = session.run(inputs);
        self.sessions.push_back(session);
        Ok(result?)
    }

    fn compile<T: AsTensor>(&mut self, inputs: &[T]) -> Result<Session, AnyShapeError> {
        let mut shapes = Shapes::default();
        for (info, t) in self.model.required_inputs().zip(inputs) {
            let t = t.view();
            shapes.shapes.insert(info.name.clone(), t.shape().to_vec());
            // What is larger decides no shapes.
            if t.bytes().len() <= SMALL * t.dtype().size() {
                let value = HostTensor::new(t.dtype(), t.shape(), t.bytes().to_vec());
                shapes.values.extend(value.ok().map(|v| (info.name.clone(), v)));
            }
        }
        let compiled = self.compiler.compile(&self.model, &shapes)?;
        self.compiled += 1;
        while self.sessions.len() >= self.most {
            self.sessions.pop_front();
        }
        let key = (xxh3_128(compiled.weights()), compiled.weights().len());
        self.weights.retain(|(_, w)| w.strong_count() > 0);
        let known = self.weights.iter().find(|(k, _)| *k == key).and_then(|(_, w)| w.upgrade());
        let session = Session::with_weights(self.device.clone(), &compiled, known)?;
        self.weights.push((key, Arc::downgrade(session.weights())));
        Ok(session)
    }
}
