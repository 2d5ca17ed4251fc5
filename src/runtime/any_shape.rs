//! A model that runs whatever shapes it is given.
//!
//! Each new combination of shapes (and of values that decide shapes) is compiled when it comes: kernels that the compiler's
//! cache knows are not made again, so that this takes milliseconds. What was compiled is kept, the least recently used goes
//! first; weights that are the same are on the device once.
//!
//! Shapes that grow evenly are compiled [ahead](super::ahead) of the runs that need them.
//!
//! Where a value that the model computes decides how the rest looks, the model is run in [stages](super::stages).

use super::ahead::{Ahead, Extents};
use super::device::Device;
use super::error::SessionError;
use super::loaded::DeviceWeights;
use super::session::{Given, RunReport, Session};
use super::stages::{Kept, Stages};
use crate::compile::{self, Compiled, Compiler};
use crate::graph::{self, Options as Shapes, Types};
use crate::onnx::{Model, ValueInfo};
use crate::tensor::{AsTensor, HostTensor, Identity, TensorView};
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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

/// How a model runs for some inputs.
pub enum Ready<'a> {
    /// In one go.
    Whole(&'a mut Session),
    /// In stages: a value that the model computes decides how the rest looks.
    Stages(Stages<'a>),
}

/// A model on a device, for inputs of any shape.
pub struct AnyShape {
    pub(super) compiler: Compiler,
    pub(super) model: Arc<Model>,
    /// What is known of it for all shapes, once it was asked.
    types: Option<Arc<Types>>,
    pub(super) device: Arc<dyn Device>,
    /// With a plan for each combination of shapes, the most recently used last.
    session: Option<Session>,
    pub(super) most: usize,
    /// Where the model's own constants lie, which are not read to tell whether weights are the same.
    held: FxHashSet<usize>,
    weights: Arc<Mutex<KnownWeights>>,
    pub(super) compiled: usize,
    ahead: Ahead,
    /// What the last run in stages left.
    pub(super) kept: Option<Box<Kept>>,
    /// What outputs of the last run are called, when that was in stages.
    pub(super) named: Option<Vec<String>>,
    pub(super) timed: bool,
    pub(super) observer: Option<Observer>,
}

/// Is shown whatever is compiled.
pub(super) type Observer = Arc<Mutex<dyn FnMut(&Compiled) + Send>>;

/// Weights on the device, by what is in them and their length.
type KnownWeights = Vec<((u128, usize), Weak<DeviceWeights>)>;

/// Only arrays of up to this many elements can decide shapes.
const SMALL: usize = 4096;

impl AnyShape {
    /// A model for a device, keeping what was compiled for at most `most` combinations of shapes (at least one).
    pub fn new(device: Arc<dyn Device>, compiler: Compiler, model: Arc<Model>, most: usize) -> AnyShape {
        let settled = match compiler.settle(&model) {
            Cow::Borrowed(_) => None,
            Cow::Owned(settled) => Some(Arc::new(settled)),
        };
        AnyShape::as_it_is(device, compiler, settled.unwrap_or(model), most)
    }

    /// A model of which nothing is computed beforehand: a part of another, made anew in each run, whose constants may be what an earlier part gave.
    pub(super) fn as_it_is(device: Arc<dyn Device>, compiler: Compiler, model: Arc<Model>, most: usize) -> AnyShape {
        let held = model.graph.initializers.values().filter_map(|t| match t.identity() {
            Identity::At(p, _) => Some(p.addr()),
            _ => None,
        });
        let (held, most) = (held.collect(), most.max(1));
        AnyShape {
            compiler,
            model,
            types: None,
            device,
            session: None,
            most,
            held,
            weights: Arc::default(),
            compiled: 0,
            ahead: Ahead::default(),
            kept: None,
            named: None,
            timed: false,
            observer: None,
        }
    }

    /// Measures every launch of the runs that follow with events of its own, which delay the kernels a little.
    pub fn time_launches(&mut self) {
        self.timed = true;
        // What is there was made without.
        self.session = None;
        self.kept = None;
    }

    /// Another form of the model (with other inputs, say) on the same device, which shares the compiler's cache and, where all are
    /// the same, the weights. Its constants have to live as long as this model's: those of a clone do.
    pub fn variant(&self, model: Arc<Model>) -> AnyShape {
        let fresh = AnyShape::new(self.device.clone(), self.compiler.clone(), model, self.most);
        AnyShape { weights: self.weights.clone(), timed: self.timed, observer: self.observer.clone(), ..fresh }
    }

    /// What a run takes, in this order.
    pub fn inputs(&self) -> impl Iterator<Item = &ValueInfo> {
        self.model.required_inputs()
    }

    /// Shows every form that the model, or a part of one that runs in stages, is compiled to from now on.
    pub fn on_compiled(mut self, observer: impl FnMut(&Compiled) + Send + 'static) -> AnyShape {
        self.observer = Some(Arc::new(Mutex::new(observer)));
        self
    }

    /// The same model with streams and memory of its own, so that both run at once. They share weights, the compiler's cache,
    /// what is known of the model, and the observer; each compiles the shapes that it is given.
    ///
    /// # Errors
    /// When the device has no further stream.
    pub fn fork(&self) -> Result<AnyShape, AnyShapeError> {
        Ok(AnyShape {
            compiler: self.compiler.clone(),
            model: self.model.clone(),
            types: self.types.clone(),
            device: self.device.clone(),
            session: self.session.as_ref().map(Session::fork).transpose()?,
            most: self.most,
            held: self.held.clone(),
            weights: self.weights.clone(),
            compiled: 0,
            ahead: Ahead::default(),
            kept: None,
            named: None,
            timed: self.timed,
            observer: self.observer.clone(),
        })
    }

    /// How often the model was compiled so far.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// How many of those were compiled before they were asked for: the shapes of a decode loop are.
    pub fn foreseen(&self) -> usize {
        self.ahead.foreseen()
    }

    /// Runs the model once: inputs in the model's order, outputs likewise.
    pub fn run<T: AsTensor>(&mut self, inputs: &[T]) -> Result<(Vec<HostTensor>, RunReport), AnyShapeError> {
        let views: Vec<TensorView> = inputs.iter().map(AsTensor::view).collect();
        let given: Vec<Given> = views.iter().map(|v| Given::Host(*v)).collect();
        self.named = None;
        match self.ready(&given)? {
            Ready::Whole(session) => {
                session.place(&given)?;
                for number in 0..session.plan().outputs.len() {
                    session.bind_output(number, None)?;
                }
                Ok(session.run(inputs)?)
            }
            Ready::Stages(stages) => stages.run(inputs),
        }
    }

    /// What the outputs of the last run are called: of a sequence `name`, which only a run tells the length of, its elements
    /// `name[0]`, `name[1]` and so on; an optional without a value is none.
    pub fn output_names(&self) -> Vec<String> {
        match (&self.named, &self.session) {
            (Some(names), _) => names.clone(),
            (None, Some(session)) => session.plan().outputs.iter().map(|p| p.name.clone()).collect(),
            (None, None) => self.model.graph.outputs.iter().map(|o| o.name.clone()).collect(),
        }
    }

    /// What runs these inputs, compiled if need be.
    pub fn ready(&mut self, inputs: &[Given]) -> Result<Ready<'_>, AnyShapeError> {
        let known = match &mut self.session {
            Some(session) => session.take(inputs)?,
            None => false,
        };
        if !known {
            let shapes = self.shapes(inputs);
            if let Err(e) = self.compile(&shapes) {
                return match graph::cut(&self.model, &shapes) {
                    Ok(Some(cut)) => Ok(Ready::Stages(Stages::new(self, cut))),
                    _ => Err(e),
                };
            }
        }
        self.session.as_mut().map(Ready::Whole).ok_or_else(|| SessionError::NotStarted.into())
    }

    /// What the inputs say about shapes, and the values of those that may decide some.
    fn shapes(&self, inputs: &[Given]) -> Shapes {
        let mut shapes = Shapes::default();
        for (info, t) in self.model.required_inputs().zip(inputs) {
            shapes.shapes.insert(info.name.clone(), t.shape().to_vec());
            let Some(t) = t.host() else { continue };
            // What is larger decides no shapes.
            if t.bytes().len() <= SMALL * t.dtype().size() {
                shapes.values.insert(info.name.clone(), t.to_tensor());
            }
        }
        shapes
    }

    /// Compiles the model for these shapes, and makes that the plan that runs next.
    fn compile(&mut self, shapes: &Shapes) -> Result<(), AnyShapeError> {
        let types = self.types.get_or_insert_with(|| graph::open_types(&self.model)).clone();
        let extents: Extents =
            self.model.required_inputs().filter_map(|i| shapes.shapes.get(&i.name).cloned()).collect();
        let compiled = match self.ahead.take(&extents) {
            Some(compiled) => compiled,
            None => self.compiler.compile(&self.model, &Shapes { types: Some(types.clone()), ..shapes.clone() })?,
        };
        self.compiled += 1;
        let (compiler, model) = (self.compiler.clone(), self.model.clone());
        self.ahead.saw(extents, |next| {
            let names = model.required_inputs().map(|i| i.name.clone());
            let shapes = Shapes { shapes: names.zip(next).collect(), types: Some(types), ..Shapes::default() };
            move || compiler.compile(&model, &shapes)
        });
        if let Some(observer) = &self.observer {
            observer.lock().unwrap_or_else(PoisonError::into_inner)(&compiled);
        }
        let key = (compiled.weights_identity(&self.held), compiled.weights_len());
        // Held to the end: whoever needs the same weights at the same time waits for them.
        let mut weights = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        weights.retain(|(_, w)| w.strong_count() > 0);
        let known = weights.iter().find(|(k, _)| *k == key).and_then(|(_, w)| w.upgrade());
        let session = match &mut self.session {
            Some(session) => {
                session.add(&compiled, known)?;
                session.keep(self.most)?;
                session
            }
            None => {
                let mut session = Session::with_weights(self.device.clone(), &compiled, known)?;
                if self.timed {
                    session.time_launches()?;
                }
                self.session.insert(session)
            }
        };
        weights.push((key, Arc::downgrade(session.weights())));
        Ok(())
    }
}
