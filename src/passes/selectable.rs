//! Which instructions the compiler selects.
//!
//! The list holds every operation that kernels, generic operations and passes name; a test keeps it equal to what their
//! sources say. Pairs are made of what is listed, waits are made by [`Target::encode_waits`] and matrix instructions chosen from the tables; they come on top.

use crate::mir::is_chosen_matrix_instruction;
use barewave_isa::op::*;
use barewave_isa::{Op, Target};

#[rustfmt::skip]
const SELECTED: &[Op] = &[
    BUFFER_ATOMIC_INC, BUFFER_ATOMIC_SMAX, BUFFER_ATOMIC_SWAP_X2, BUFFER_GL0_INV, BUFFER_GL1_INV, BUFFER_INV, BUFFER_LOAD_DWORD, BUFFER_LOAD_DWORDX2, BUFFER_LOAD_DWORDX3, BUFFER_LOAD_DWORDX4, BUFFER_LOAD_SBYTE,
    BUFFER_LOAD_SSHORT, BUFFER_LOAD_UBYTE, BUFFER_LOAD_USHORT, BUFFER_STORE_BYTE, BUFFER_STORE_DWORD,
    BUFFER_STORE_DWORDX2, BUFFER_STORE_DWORDX3, BUFFER_STORE_DWORDX4, BUFFER_STORE_SHORT, BUFFER_WBINVL1_VOL, DS_BPERMUTE_B32, DS_READ_B128, DS_READ_B32,
    DS_READ_B64, DS_READ_B64_TR_B16, DS_READ_B64_TR_B8, DS_READ_U16, DS_READ_U8, DS_SWIZZLE_B32, DS_WRITE_B128, DS_WRITE_B16, DS_WRITE_B16_D16_HI, DS_WRITE_B32, DS_WRITE_B64, DS_WRITE_B8, FLAT_ATOMIC_INC, FLAT_ATOMIC_OR, GLOBAL_INV, GLOBAL_LOAD_TR_B128, GLOBAL_LOAD_TR_B64, SCRATCH_LOAD_DWORD, SCRATCH_STORE_DWORD, S_ADDC_U32,
    S_ADD_U32, S_ANDN2_B32, S_ANDN2_B64, S_AND_B32, S_AND_B64, S_ASHR_I32, S_BARRIER, S_BARRIER_SIGNAL,
    S_BARRIER_WAIT, S_BCNT1_I32_B32, S_BCNT1_I32_B64, S_BRANCH, S_BFE_I32, S_BUFFER_LOAD_DWORD, S_BUFFER_LOAD_DWORDX16, S_BUFFER_LOAD_DWORDX2, S_BUFFER_LOAD_DWORDX4,
    S_BUFFER_LOAD_DWORDX8, S_CBRANCH_SCC0, S_CBRANCH_SCC1, S_CLAUSE, S_CMP_LT_U32, S_DELAY_ALU, S_ENDPGM, S_LOAD_DWORD, S_LOAD_DWORDX16, S_LOAD_DWORDX2,
    S_LOAD_DWORDX4, S_LOAD_DWORDX8, S_LSHL_B32, S_LSHR_B32, S_MAX_I32, S_MAX_U32, S_MIN_I32, S_MIN_U32, S_MOV_B32,
    S_MOV_B64, S_MUL_HI_U32, S_MUL_I32, S_NOP, S_NOT_B32, S_NOT_B64, S_OR_B32, S_OR_B64, S_PACK_HH_B32_B16, S_PACK_LL_B32_B16, S_SETPRIO, S_SLEEP, S_SUBB_U32, S_SUB_U32,
    S_WAITCNT_DEPCTR, S_WAITCNT_VSCNT, S_XNOR_B32, S_XNOR_B64, S_XOR_B32, S_XOR_B64, V_ACCVGPR_MOV_B32, V_ACCVGPR_READ_B32,
    V_ACCVGPR_WRITE_B32, V_ADD3_U32, V_ADDC_CO_U32, V_ADD_CO_U32, V_ADD_F16, V_ADD_F32, V_ADD_F64, V_ADD_U16, V_ADD_U32,
    V_ALIGNBIT_B32, V_AND_B32, V_AND_OR_B32, V_ASHRREV_I32, V_ASHRREV_I64, V_BFE_I32, V_BFE_U32, V_BFI_B32, V_CEIL_F16, V_CEIL_F32,
    V_CEIL_F64, V_CMP_CLASS_F32, V_CMP_CLASS_F64, V_CMP_EQ_F16, V_CMP_EQ_F32, V_CMP_EQ_F64, V_CMP_EQ_U32, V_CMP_EQ_U64, V_CMP_GE_F16, V_CMP_GE_F32,
    V_CMP_GE_F64, V_CMP_GE_I32, V_CMP_GE_I64, V_CMP_GE_U32, V_CMP_GE_U64, V_CMP_GT_F16, V_CMP_GT_F32, V_CMP_GT_F64,
    V_CMP_GT_I32, V_CMP_GT_I64, V_CMP_GT_U32, V_CMP_GT_U64, V_CMP_LE_F16, V_CMP_LE_F32, V_CMP_LE_F64, V_CMP_LE_I32,
    V_CMP_LE_I64, V_CMP_LE_U32, V_CMP_LE_U64, V_CMP_LT_F16, V_CMP_LT_F32, V_CMP_LT_F64, V_CMP_LT_I32, V_CMP_LT_I64,
    V_CMP_LT_U32, V_CMP_LT_U64, V_CMP_NEQ_F16, V_CMP_NEQ_F32, V_CMP_NEQ_F64, V_CMP_NE_U32, V_CMP_NE_U64, V_CMP_NGE_F32, V_CMP_NLE_F32, V_CMP_U_F16,
    V_CMP_U_F32, V_CMP_U_F64, V_CNDMASK_B32, V_COS_F16, V_COS_F32, V_CVT_F16_F32, V_CVT_F16_I16, V_CVT_F16_U16,
    V_CVT_F32_F16, V_CVT_F32_F64, V_CVT_F32_I32, V_CVT_F32_U32, V_CVT_F32_UBYTE0, V_CVT_F32_UBYTE1, V_CVT_F32_UBYTE2, V_CVT_F32_UBYTE3, V_CVT_F64_F32, V_CVT_F64_I32, V_CVT_F64_U32,
    V_CVT_I16_F16, V_CVT_I32_F32, V_CVT_I32_F64, V_CVT_PKRTZ_F16_F32, V_CVT_PK_BF16_F32, V_CVT_PK_BF8_F32, V_CVT_PK_F16_F32, V_CVT_PK_FP8_F32, V_CVT_U16_F16, V_CVT_U32_F32, V_CVT_U32_F64, V_DIV_FIXUP_F32, V_DIV_FIXUP_F64,
    V_DIV_FMAS_F32, V_DIV_FMAS_F64, V_DIV_SCALE_F32, V_DIV_SCALE_F64, V_DOT2C_F32_F16, V_DOT2_F32_BF16, V_DOT2_F32_F16, V_DOT4_I32_I8, V_DOT4_I32_IU8, V_DOT8_I32_I4, V_DOT8_I32_IU4, V_DOT8_U32_U4, V_EXP_F16, V_EXP_F32, V_FLOOR_F16, V_FLOOR_F32, V_FLOOR_F64, V_FMAC_F32,
    V_FMA_F16, V_FMA_F32, V_FMA_F64, V_FMA_MIXHI_F16, V_FMA_MIXLO_F16, V_FMA_MIX_F32, V_FREXP_EXP_I32_F32, V_FREXP_EXP_I32_F64, V_FREXP_MANT_F32, V_FREXP_MANT_F64, V_LDEXP_F16, V_LDEXP_F32, V_LDEXP_F64, V_LOG_F16, V_LOG_F32,
    V_LSHLREV_B32, V_LSHLREV_B64, V_LSHL_ADD_U32, V_LSHL_OR_B32, V_LSHRREV_B32, V_LSHRREV_B64, V_MAD_I32_I24, V_MAD_MIX_F32, V_MAD_U64_U32, V_MAX3_F32, V_MAX3_U32, V_MAXIMUM3_F32, V_MAXIMUM_F32, V_MAX_F16, V_MAX_F32,
    V_MAX_F64, V_MAX_I16, V_MAX_I32, V_MAX_U16, V_MAX_U32, V_MBCNT_HI_U32_B32, V_MBCNT_LO_U32_B32, V_MED3_F32, V_MED3_I32, V_MIN3_U32, V_MINIMUM3_F32, V_MINIMUM_F32, V_MIN_F16, V_MIN_F32, V_MIN_F64,
    V_MIN_I16, V_MIN_I32, V_MIN_U16, V_MIN_U32, V_MOV_B32, V_MUL_F16, V_MUL_F32, V_MUL_F64, V_MUL_HI_U32, V_MUL_LEGACY_F32,
    V_MUL_LO_U16, V_MUL_LO_U32, V_NOP, V_NOT_B32, V_OR_B32, V_PERMLANEX16_B32, V_PERM_B32, V_PK_ADD_BF16, V_PK_ADD_F16, V_PK_ADD_F32, V_PK_ADD_U16,
    V_PK_ASHRREV_I16, V_PK_FMA_BF16, V_PK_FMA_F16, V_PK_FMA_F32, V_PK_MAD_I16, V_PK_MAX_F16, V_PK_MAX_I16, V_PK_MIN_F16, V_PK_MIN_I16, V_PK_MIN_U16, V_PK_MUL_BF16,
    V_PK_MUL_F16, V_PK_MUL_F32, V_PK_MUL_LO_U16, V_PK_SUB_I16, V_RCP_F16, V_RCP_F32, V_RCP_F64, V_READFIRSTLANE_B32,
    V_READLANE_B32, V_RNDNE_F16, V_RNDNE_F32, V_RNDNE_F64, V_RSQ_F16, V_RSQ_F32, V_RSQ_F64, V_SIN_F16, V_SIN_F32,
    V_SQRT_F16, V_SQRT_F32, V_SQRT_F64, V_SUBB_CO_U32, V_SUB_CO_U32, V_SUB_F16, V_SUB_F32, V_SUB_U16, V_SUB_U32,
    V_TRIG_PREOP_F64, V_TRUNC_F16, V_TRUNC_F32, V_TRUNC_F64, V_WRITELANE_B32, V_XOR_B32,
];

/// True when the compiler may emit an operation for a target.
pub fn selectable(target: Target, op: Op) -> bool {
    let listed = |op: Op| SELECTED.contains(&op);
    let paired = target.info().wave_size == 32 && op.dual_parts().is_some_and(|(x, y)| listed(x) && listed(y));
    let named = listed(op) || paired || is_chosen_matrix_instruction(target, op);
    target.has(op) && (named || waits_with(target, op))
}

/// True when waits for counters are made of an operation.
fn waits_with(target: Target, op: Op) -> bool {
    let counters = target.info().counters.iter();
    counters.flat_map(|c| target.encode_waits(&[(c.counter, 0)])).any(|wait| wait.op == op)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn collect(dir: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, names);
            } else if !path.ends_with("selectable.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for part in text.split("op::").skip(1) {
                    let end = part.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
                    names.insert(part[..end.unwrap_or(part.len())].to_lowercase());
                }
            }
        }
    }

    #[test]
    fn the_list_is_what_the_sources_name() {
        let mut names = BTreeSet::new();
        for dir in ["kernels", "src/passes", "src/mir"] {
            collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut names);
        }
        names.retain(|n| Op::by_name(n).is_some());
        let listed: BTreeSet<String> = SELECTED.iter().map(|op| op.name().to_string()).collect();
        pretty_assertions::assert_eq!(listed, names);
    }
}
