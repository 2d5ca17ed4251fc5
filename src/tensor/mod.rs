//! Tensors in host memory, and the files they come from and go to.

mod dtype;
mod host;

pub use dtype::DType;
pub use host::{HostTensor, SizeMismatch, element_count};
