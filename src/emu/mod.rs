//! The emulated device.

pub mod fault;
pub(crate) mod lanes;
mod numeric;
pub(crate) mod sem;
