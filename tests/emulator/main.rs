//! The emulated device: code of our own encoder, of clang, Triton and IREE, against what the host and AMD's manuals say.

#[path = "../support/mod.rs"]
mod support;

mod clang_kernels;
mod clang_programs;
mod device;
mod foreign;
mod handlers;
mod hosts;
mod levels;
mod matrix;
mod matrix_modifiers;
mod modes;
mod mutation;
mod numbers;
mod strict;
mod waiting;
