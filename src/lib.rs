//! barewave compiles ONNX models straight to AMD GPU machine code and runs them, on a GPU or on an emulated device.
//!
//! A [`Model`] is read from a file, a [`Compiler`] makes a [`Compiled`] model of it for one target, and a [`Session`] runs
//! that on a [`Device`](runtime::Device):
//!
//! ```
//! use barewave::{Compiler, HostTensor, Model, Options, Session, Shapes, runtime, target};
//!
//! let model = Model::load("examples/vector_add/vector_add.onnx".as_ref())?;
//! let compiler = Compiler::new(target("mi300x")?, Options::default());
//! assert!(compiler.supports(&model, &Shapes::default())?.is_complete());
//! let compiled = compiler.compile(&model, &Shapes::default())?;
//!
//! let device = runtime::open("emu:gfx942", None, false)?.device;
//! let mut session = Session::new(device, &compiled)?;
//! let n = compiled.plan().inputs[0].shape[0];
//! let (a, b) = (vec![1.5; n], vec![2.0; n]);
//! let (outputs, report) = session.run(&[HostTensor::from_f32(&[n], &a), HostTensor::from_f32(&[n], &b)])?;
//! assert_eq!(outputs[0].to_f32(), vec![3.5; n]);
//! println!("{} kernels in {:?}", report.launches, report.time);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Inputs and outputs may also lie in the caller's own memory ([`TensorView`], [`Session::run_into`]) or in device memory
//! ([`Session::bind_input`]), and runs may go into a stream of the caller's ([`Session::use_stream`]). Compiled kernels are
//! kept in a [`KernelCache`](compile::KernelCache), so that another shape of the same model compiles only what differs;
//! [`AnyShape`] does that for each shape that comes.
//!
//! Below these stand the rooms of the compiler, from left to right: [`onnx`], [`graph`], [`kernels`], [`mir`], [`passes`],
//! [`codeobj`], [`verify`], [`runtime`]; the instruction tables are the crate [`barewave_isa`], the emulated device is
//! [`emu`].

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

/// Does something in a span of that name, for whoever collects spans (`tracing`); without such it costs a load and a branch.
macro_rules! timed {
    ($name:literal, $what:expr) => {
        tracing::info_span!($name).in_scope(|| $what)
    };
}

pub mod compile;
pub mod graph;
#[path = "../kernels/mod.rs"]
pub mod kernels;
pub mod mapped;
pub mod mir;
pub mod onnx;
pub mod output;
pub mod passes;
pub mod runtime;
pub mod tensor;
pub use barewave_emu::text;
pub mod verify;

pub use barewave_emu::{self as emu, codeobj};
pub use compile::{Compiled, Compiler, Options};
pub use graph::Options as Shapes;
pub use onnx::Model;
pub use runtime::{AnyShape, Session};
pub use tensor::{HostTensor, TensorView, TensorViewMut};

/// A target by architecture (`gfx942`), product (`mi300x`) or code name (`cdna3`).
pub fn target(name: &str) -> Result<barewave_isa::Target, barewave_isa::UnknownTarget> {
    barewave_isa::Target::parse(name)
}
