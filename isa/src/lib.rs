//! Instruction tables of AMD GPUs and what is built from them: encoder, decoder, assembler and disassembler.
mod generated;
mod info;
mod inst;
mod operation;
mod reg;
mod target;
pub use generated::op;
pub use info::*;
pub use inst::*;
pub use operation::Op;
pub use reg::*;
pub use target::*;
