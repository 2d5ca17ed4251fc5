//! Other spellings that assembly accepts: names of older generations where a newer one renamed the operation.

use crate::codes::Codes;
use crate::{Op, Target};

/// The target's own mnemonic for a name that another generation uses.
pub(crate) fn own_name(target: Target, name: &str) -> Option<&'static str> {
    if let "v_accvgpr_read" | "v_accvgpr_write" = name {
        return own_name(target, &format!("{name}_b32"));
    }
    if name == "v_accvgpr_read_b32" || name == "v_accvgpr_write_b32" {
        return Some(target.op(Op::by_name(name)?)?.name);
    }
    if name == "v_mul_lo_i32" && target.codes() < Codes::Gfx10 {
        return Some("v_mul_lo_u32");
    }
    if name.starts_with("v_mfma_") || name.starts_with("v_smfmac_") {
        let want = matrix_name(name);
        return crate::table::table(target)
            .rows
            .iter()
            .map(|r| r.mnemonic())
            .find(|m| m.starts_with("v_") && matrix_name(m) == want);
    }
    if target.codes() < Codes::Gfx11 {
        return None;
    }
    let op = Op::by_name(name).or_else(|| {
        Target::all().find_map(|t| crate::table::table(t).rows.iter().find(|r| r.mnemonic() == name).map(|r| r.op))
    })?;
    Some(target.op(op)?.name)
}

/// A matrix mnemonic without what generations spell differently: underscores in the types, and the number of blocks.
fn matrix_name(name: &str) -> String {
    let mut out = String::new();
    for (i, part) in name.split('_').enumerate() {
        if i > 3 && matches!(part, "2b" | "4b" | "16b" | "1k") {
            continue;
        }
        if i > 0 && i < 4 {
            out.push('_');
        }
        out.push_str(part);
    }
    out
}
