//! Instruction tables of AMD GPUs and what is built from them: encoder, decoder, assembler and disassembler.
mod codes;
mod decode;
mod encode;
mod generated;
mod info;
mod inst;
mod operation;
mod reg;
mod table;
mod target;
pub use decode::{Decoder, Mode, Raw, decode};
pub use encode::{EncodeError, Form, encode, encode_raw, encoded_size};
pub use generated::op;
pub use info::*;
pub use inst::*;
pub use operation::Op;
pub use reg::*;
pub use target::*;
