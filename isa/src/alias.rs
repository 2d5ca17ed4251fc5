//! Other spellings that assembly accepts: names of older generations where a newer one renamed the operation.

use crate::codes::Codes;
use crate::{Op, Target};

/// The target's own mnemonic for a name that another generation uses.
pub(crate) fn own_name(target: Target, name: &str) -> Option<&'static str> {
    if target.codes() < Codes::Gfx11 && !name.starts_with("v_mfma") {
        return None;
    }
    let op = Op::by_name(name).or_else(|| {
        Target::all().find_map(|t| crate::table::table(t).rows.iter().find(|r| r.mnemonic() == name).map(|r| r.op))
    })?;
    Some(target.op(op)?.name)
}
