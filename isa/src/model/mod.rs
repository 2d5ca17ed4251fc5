//! What tables say: operations, targets, operands, registers, and the compiled tables themselves.

pub mod action;
pub(crate) mod codes;
pub(crate) mod generated;
pub(crate) mod hazards;
pub(crate) mod info;
pub(crate) mod inst;
pub(crate) mod operation;
pub(crate) mod opinfo;
pub(crate) mod reg;
pub(crate) mod schema;
pub(crate) mod table;
pub(crate) mod target;
pub(crate) mod valid;
pub(crate) mod waits;
