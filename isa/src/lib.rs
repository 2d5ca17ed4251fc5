//! Instruction tables of AMD GPUs and what is built from them: encoder, decoder, assembler and disassembler.
//!
//! Rooms, each importing only from those before it: `model` (what tables say), `encode` (bytes), `text` (assembly text of one
//! instruction), `asm` (whole files), `query` (questions about tables).

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod asm;
mod encode;
mod model;
mod query;
mod text;

pub use asm::disasm::{Disassembly, Line};
pub use asm::{
    AsmError, Assembly, DIRECTIVES, KERNEL_DIRECTIVES, KernelDirective, KernelDirectives, Related, Relocation,
    RelocationKind, Section, Symbol, SymbolType, Visibility, assemble,
};
pub use encode::decode::{Decoder, Mode, Raw, decode, operand_dwords};
pub use encode::encoder::{EncodeError, Form, encode, encode_raw, encoded_size};
pub use model::action;
pub use model::generated::op;
pub use model::hazards::{
    Between, Distance, Fix, HazardInst, HazardRule, HazardSets, Match, Relation, Traits, max_fix_reach,
    max_required_states,
};
pub use model::info::*;
pub use model::inst::*;
pub use model::operation::Op;
pub use model::opinfo::Evidence;
pub use model::reg::*;
pub use model::target::*;
pub use query::clause::{ClauseAccess, ClauseKind};
pub use query::delay::{ALU_DELAY_SCALAR, ALU_DELAY_SKIP, ALU_DELAY_TRANS, ALU_DELAY_VECTOR, AluDelay, AluDelays};
pub use query::matrix;
pub use query::occupancy::{Occupancy, OccupancyLimit, Resources, Unheld};
pub use query::page::{
    Difference, Encoding, claimed_twice, difference, encodings, encodings_of, find, operations, page,
};
pub use query::scalar_hazard::{AluWaits, ScalarHistory, ScalarUse};
pub use text::legal::{Pairing, legal, pairing};
pub use text::lex::{ParseError, Resolve, Value};
pub use text::parse::{Context, parse, parse_with};
pub use text::print::Displayed;
