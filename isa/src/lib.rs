//! Instruction tables of AMD GPUs and what is built from them: encoder, decoder, assembler and disassembler.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod action;
mod alias;
mod asm;
mod codes;
mod constants;
mod decode;
mod disasm;
mod encode;
mod generated;
mod hazards;
mod image;
mod info;
mod inst;
mod legal;
mod lex;
pub mod matrix;
mod modifiers;
mod occupancy;
mod operation;
mod opinfo;
mod parse;
mod print;
mod query;
mod reg;
mod register_text;
mod scalar_hazard;
mod schema;
mod syntax;
mod syntax_parse;
mod table;
mod target;
mod text;
mod valid;
mod waits;
pub use asm::{
    AsmError, Assembly, KERNEL_DIRECTIVES, KernelDirective, KernelDirectives, Relocation, RelocationKind, Section,
    Symbol, SymbolType, Visibility, assemble,
};
pub use decode::{Decoder, Mode, Raw, decode};
pub use disasm::{Disassembly, Line};
pub use encode::{EncodeError, Form, encode, encode_raw, encoded_size};
pub use generated::op;
pub use hazards::{
    Between, Distance, Fix, HazardInst, HazardRule, Match, Relation, Traits, max_fix_reach, max_required_states,
};
pub use info::*;
pub use inst::*;
pub use lex::{ParseError, Resolve, Value};
pub use occupancy::{Occupancy, OccupancyLimit, Resources};
pub use operation::Op;
pub use opinfo::Evidence;
pub use parse::{Context, parse, parse_with};
pub use print::Displayed;
pub use query::{Difference, Encoding, claimed_twice, difference, encodings, encodings_of, find, operations, page};
pub use reg::*;
pub use scalar_hazard::{AluWaits, ScalarHistory, ScalarUse};
pub use target::*;
