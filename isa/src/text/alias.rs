//! Other spellings that assembly accepts: names of older generations where a newer one renamed the operation.

use crate::Quirk;
use crate::{Op, Target};

/// Draft names of gfx10 and gfx11 that no table row has, and the canonical ones.
const RENAMED: [(&str, &str); 18] = [
    ("image_atomic_max_num_flt", "image_atomic_fmax"),
    ("image_atomic_min_num_flt", "image_atomic_fmin"),
    ("v_xor_add_u32", "v_xad_u32"),
    ("v_add3_nc_u32", "v_add3_u32"),
    ("v_interp_p2_new_f32", "v_interp_p2_inreg_f32"),
    ("ds_subrev_u64", "ds_rsub_u64"),
    ("ds_subrev_rtn_u64", "ds_rsub_rtn_u64"),
    ("ds_subrev_u32", "ds_rsub_u32"),
    ("ds_subrev_rtn_u32", "ds_rsub_rtn_u32"),
    ("ds_bvh_stack_rtn_b32", "ds_bvh_stack_push4_pop1_rtn_b32"),
    ("v_dot4_i32_i8", "v_dot4_i32_iu8"),
    ("v_dot8_i32_i4", "v_dot8_i32_iu4"),
    ("s_add_u64", "s_add_nc_u64"),
    ("s_sub_u64", "s_sub_nc_u64"),
    ("flat_atomic_csub_u32", "flat_atomic_csub"),
    ("bvh64_intersect_ray", "image_bvh64_intersect_ray"),
    ("bvh8_intersect_ray", "image_bvh8_intersect_ray"),
    ("bvh_dual_intersect_ray", "image_bvh_dual_intersect_ray"),
];

/// Transposing loads, as gfx12 and as drafts of gfx1250 called them.
const TRANSPOSED: [(&str, &str); 11] = [
    ("global_load_b128_tr_b16", "global_load_tr16_b128"),
    ("global_load_b64_tr_b8", "global_load_tr8_b64"),
    ("global_load_b64_tr_b4", "global_load_tr4_b64"),
    ("global_load_b96_tr_b6", "global_load_tr6_b96"),
    ("global_load_tr_b128", "global_load_tr16_b128"),
    ("global_load_tr_b64", "global_load_tr8_b64"),
    ("ds_load_b64_tr_b4", "ds_load_tr4_b64"),
    ("ds_load_b64_tr_b8", "ds_load_tr8_b64"),
    ("ds_load_b96_tr_b6", "ds_load_tr6_b96"),
    ("ds_load_b128_tr_b16", "ds_load_tr16_b128"),
    ("ds_load_tr_b128", "ds_load_tr16_b128"),
];

/// The target's own mnemonic for a name that another generation uses.
pub(crate) fn own_name(target: Target, name: &str) -> Option<&'static str> {
    if let "v_accvgpr_read" | "v_accvgpr_write" = name {
        return own_name(target, &format!("{name}_b32"));
    }
    if name == "v_accvgpr_read_b32" || name == "v_accvgpr_write_b32" {
        return Some(target.op(Op::by_name(name)?)?.name);
    }
    if name == "v_mul_lo_i32" && target.info().has(Quirk::MulLoI32) {
        return Some("v_mul_lo_u32");
    }
    if let Some(&(_, own)) = TRANSPOSED.iter().find(|(other, _)| *other == name) {
        return crate::model::table::table(target).rows.iter().map(|r| r.mnemonic()).find(|m| *m == own);
    }
    if name.starts_with("v_mfma_") || name.starts_with("v_smfmac_") {
        let want = matrix_name(name);
        return crate::model::table::table(target)
            .rows
            .iter()
            .map(|r| r.mnemonic())
            .find(|m| m.starts_with("v_") && matrix_name(m) == want);
    }
    if !target.info().has(Quirk::EarlierNames) {
        return None;
    }
    if let Some((head, tail)) = name.split_once("_tru_") {
        return own_name(target, &format!("{head}_t_{tail}"));
    }
    let name = RENAMED.iter().find(|(other, _)| *other == name).map_or(name, |(_, own)| own);
    let op = Op::by_name(name).or_else(|| {
        Target::all()
            .find_map(|t| crate::model::table::table(t).rows.iter().find(|r| r.mnemonic() == name).map(|r| r.op))
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
