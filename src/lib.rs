//! Compiles neural networks straight to AMD GPU machine code and runs them on a GPU or on an emulated device.

pub mod codeobj;
pub mod emu;
