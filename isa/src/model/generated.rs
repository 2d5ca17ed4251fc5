//! What `build.rs` made of `tables/`.
#![allow(missing_docs)]

use crate::model::action::Action;
use crate::model::codes::Codes;
use crate::model::hazards::{Fix, HazardRule, Match, Relation};
use crate::model::schema::Resource;
use crate::model::schema::{
    Address, Atomic, Comparison, Elem, Layout, Memory, Number, Part, Product, Scaled, Space, Transfer,
};
use crate::model::schema::{Kind, Role, Style};
use crate::model::table::{Image, Operand, Over, Shape};
use crate::model::target::Machine;
use crate::{Counter, CounterInfo, ModName, Op, Target, TargetInfo, Type, WaitScheme};

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

pub(crate) static ROWS_BIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rows.bin"));

pub(crate) fn op_name(op: Op) -> &'static str {
    OP_NAMES.get(usize::from(op.0)).copied().unwrap_or("?")
}

pub(crate) fn op_by_name(name: &str) -> Option<Op> {
    OP_NAMES.binary_search(&name).ok().and_then(|i| u16::try_from(i).ok()).map(Op)
}

pub(crate) const OP_COUNT: usize = OP_NAMES.len();
