//! barewave compiles ONNX models straight to AMD GPU machine code and runs them, on a GPU or on an emulated device.

pub mod graph;
pub mod onnx;
pub mod tensor;
