//! Instruction tables of AMD GPUs and what is built from them: encoder, decoder, assembler and disassembler.
#![allow(unused)]
mod info;
mod inst;
mod reg;
mod target;
pub use info::*;
pub use inst::*;
pub use reg::*;
pub use target::*;
/// An instruction by meaning, the same number on every target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(pub u16);
