//! Text, machine IR and files: the way to code objects and back, what `barewave check` finds in them, damaged ones.

#[path = "../support/mod.rs"]
mod support;

mod asm;
mod check;
mod check_clang;
mod codeobj;
mod hostile;
mod kernels_compile;
mod pipelines;
mod pressure;
mod random_ir;
