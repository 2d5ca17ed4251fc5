//! barewave compiles ONNX models straight to AMD GPU machine code and runs them, on a GPU or on an emulated device.

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
