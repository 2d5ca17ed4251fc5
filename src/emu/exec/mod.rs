//! Handlers: one function per way of executing a micro-operation.

pub mod atomic;
pub mod barrier;
pub mod convert;
pub mod ds;
pub mod flags;
pub mod flow;
pub mod fork;
pub mod format;
pub mod lane;
pub mod matrix;
pub mod rows;
pub mod salu;
pub mod smem;
pub mod space;
pub mod valu;
pub mod vmem;
