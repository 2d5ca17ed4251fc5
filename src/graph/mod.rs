//! From an imported model to a fused graph and its memory plan.
//!
//! [`fused`] is the interface to the kernels, [`expr`] and [`view`] are the two languages it is written in.

pub mod expr;
pub mod fused;
pub mod view;
