//! Instructions both ways, against what LLVM assembles and prints.

#[path = "../common/mod.rs"]
mod common;

mod fuzz;
mod golden;
mod vectors;
