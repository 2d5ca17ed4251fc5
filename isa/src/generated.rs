//! What `build.rs` made of `tables/`.
#![allow(missing_docs)]

use crate::{Counter, CounterInfo, Op, Target, TargetInfo, WaitScheme};

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

pub(crate) fn op_name(op: Op) -> &'static str {
    OP_NAMES.get(usize::from(op.0)).copied().unwrap_or("?")
}

pub(crate) fn op_by_name(name: &str) -> Option<Op> {
    OP_NAMES.binary_search(&name).ok().and_then(|i| u16::try_from(i).ok()).map(Op)
}

pub(crate) const OP_COUNT: usize = OP_NAMES.len();
