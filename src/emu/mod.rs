//! The emulated device.

mod exec;
pub mod fault;
mod lanes;
mod memory;
mod numeric;
mod program;
mod sem;
mod wave;
