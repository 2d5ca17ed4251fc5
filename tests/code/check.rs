//! What `barewave check` must find: planted mistakes, each beside the same code without it, and descriptors that lie.

use barewave::codeobj::{Abi, Descriptor, ElfFile, link_assembly};
use barewave::compile::compile;
use barewave::graph::{self, Options};
use barewave::onnx::Model;
use barewave::verify::{self, Finding, Rule};
use barewave_isa::{Mode, Target, assemble};
use std::path::Path;

/// Settings for waves of 64 where 32 are the rule.
const WAVE64: &str = "\t.amdhsa_wavefront_size32 0\n";

/// A file with one kernel.
fn file(target: &str, body: &str, settings: &str) -> Vec<u8> {
    let t = Target::parse(target).unwrap();
    let wave64 = settings.contains(WAVE64);
    let mode = Mode { wave64: wave64 || Mode::of(t).wave64, ..Mode::of(t) };
    let accum = if t.info().unified_agprs { "\t.amdhsa_accum_offset 64\n" } else { "" };
    let vgprs = if t.info().unified_agprs { 128 } else { 64 };
    let lds = if settings.contains("group_segment") { "" } else { "\t.amdhsa_group_segment_fixed_size 4096\n" };
    let ends = ["s_endpgm", "s_setpc_b64 s[30:31]", "s_setpc_b64 s[6:7]", ".text", "0xffffffff"]
        .iter()
        .any(|e| body.trim_end().ends_with(e));
    let end = if ends { "" } else { "\ts_endpgm" };
    let source = format!(
        "\t.text\n\t.globl k\n\t.p2align 8\n\t.type k,@function\nk:\n{body}\n{end}\n.Lend:\n\t.size k, .Lend-k\n\
         \t.section .rodata,\"a\"\n\t.p2align 6\n\t.amdhsa_kernel k\n\t.amdhsa_next_free_vgpr {vgprs}\n\
         \t.amdhsa_next_free_sgpr 40\n{accum}{lds}\t.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\t.amdhsa_kernarg_size 64\n{settings}\
         \t.end_amdhsa_kernel\n"
    );
    let assembly = assemble(t, mode, &source).unwrap_or_else(|e| panic!("{target}: {e:?}\n{body}"));
    link_assembly(t, mode, &assembly, Abi::V5).unwrap_or_else(|e| panic!("{target}: {e}"))
}

fn findings(elf: &[u8]) -> Vec<Finding> {
    let file = ElfFile::parse(elf).unwrap();
    let options = verify::Options { fixed_lds: true, ..verify::Options::default() };
    let reports = verify::check(&file, elf, None, &options).unwrap();
    reports.into_iter().flat_map(|r| r.findings.list).collect()
}

/// The code with the line in braces taken out has a finding of this rule that says all the words; the whole has none.
#[track_caller]
fn needs(target: &str, rule: Rule, body: &str, words: &[&str]) {
    needs_with(target, rule, body, "", words);
}

#[track_caller]
fn needs_with(target: &str, rule: Rule, body: &str, settings: &str, words: &[&str]) {
    let whole = body.replace(['{', '}'], "");
    let found = findings(&file(target, &whole, settings));
    assert!(found.is_empty(), "{target}: found in correct code: {}\n{whole}", found[0]);
    let mut broken = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once('{') {
        broken += before;
        rest = after.split_once('}').unwrap().1;
    }
    broken += rest;
    finds(target, rule, &broken, settings, words);
}

/// The code has a finding of this rule that says all the words, and no other.
#[track_caller]
fn finds(target: &str, rule: Rule, body: &str, settings: &str, words: &[&str]) {
    let found = findings(&file(target, body, settings));
    assert_eq!(found.len(), 1, "{target}: {found:?}\n{body}");
    let text = found[0].to_string();
    assert_eq!(found[0].rule, rule, "{target}: {text}");
    for w in words {
        assert!(text.contains(w), "{target}: '{w}' in {text}");
    }
}

#[track_caller]
fn accepts(target: &str, body: &str) {
    accepts_with(target, body, "");
}

#[track_caller]
fn accepts_with(target: &str, body: &str, settings: &str) {
    let found = findings(&file(target, body, settings));
    assert!(found.is_empty(), "{target}: {}\n{body}", found[0]);
}

#[test]
fn waits_for_vector_memory() {
    let body = "s_load_dwordx2 s[2:3], s[0:1], 0x0
        v_lshlrev_b32 v0, 2, v0
        s_waitcnt lgkmcnt(0)
        global_load_dword v1, v0, s[2:3]
        global_load_dword v2, v0, s[2:3] offset:4
        {s_waitcnt vmcnt(1)}
        v_add_f32 v3, v1, v1
        s_waitcnt vmcnt(0)
        v_add_f32 v3, v3, v2
        global_store_dword v0, v3, s[2:3]";
    for target in ["gfx900", "gfx906", "gfx90a", "gfx942", "gfx1030"] {
        needs(target, Rule::Wait, body, &["v1", "vmcnt must be at most 1", "global_load_dword v1"]);
    }
    let split = "s_load_b64 s[2:3], s[0:1], 0x0
        v_and_b32 v0, 0x3ff, v0
        s_wait_kmcnt 0x0
        global_load_b32 v1, v0, s[2:3]
        global_load_b32 v2, v0, s[2:3] offset:4
        {s_wait_loadcnt 0x1}
        v_add_f32 v3, v1, v1
        s_wait_loadcnt 0x0
        global_store_b32 v0, v3, s[2:3]";
    needs("gfx1201", Rule::Wait, split, &["v1", "loadcnt must be at most 1"]);
}

#[test]
fn scalar_loads_come_in_any_order() {
    let body = |n: u32| {
        format!(
            "s_load_dword s4, s[0:1], 0x0
            s_load_dword s5, s[0:1], 0x4
            s_waitcnt lgkmcnt({n})
            s_add_u32 s6, s4, 1
            s_waitcnt lgkmcnt(0)
            s_add_u32 s6, s6, s5"
        )
    };
    for target in ["gfx803", "gfx906", "gfx1010", "gfx1100"] {
        accepts(target, &body(0));
        finds(target, Rule::Wait, &body(1), "", &["s4 is read", "lgkmcnt must be at most 0"]);
    }
}

#[test]
fn lds_and_scalar_loads_share_a_counter() {
    // one kind alone is in order
    let body = "v_lshlrev_b32 v0, 2, v0
        s_mov_b32 m0, -1
        ds_read_b32 v1, v0
        ds_read_b32 v2, v0 offset:4
        s_waitcnt lgkmcnt(1)
        v_mov_b32 v3, v1
        s_waitcnt lgkmcnt(0)";
    accepts("gfx906", body);
    let mixed = body.replace("ds_read_b32 v2, v0 offset:4", "s_load_dword s4, s[0:1], 0x0");
    finds("gfx906", Rule::Wait, &mixed, "", &["v1 is read", "at most 0"]);
    // gfx12 counts them apart
    let apart = "v_and_b32 v0, 0x3ff, v0
        ds_load_b32 v1, v0
        s_load_b32 s4, s[0:1], 0x0
        {s_wait_dscnt 0x0}
        v_mov_b32 v3, v1
        s_wait_kmcnt 0x0";
    needs("gfx1200", Rule::Wait, apart, &["v1 is read", "dscnt"]);
}

#[test]
fn flat_loads_count_twice() {
    let body = "s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        v_mov_b32 v2, s2
        v_mov_b32 v3, s3
        flat_load_dword v4, v[2:3]
        s_waitcnt vmcnt(0){ lgkmcnt(0)}
        v_add_f32 v5, v4, v4";
    needs("gfx906", Rule::Wait, body, &["v4 is read", "lgkmcnt"]);
    needs("gfx1030", Rule::Wait, body, &["v4 is read", "lgkmcnt"]);
    // gfx8 has no other addresses
    accepts("gfx803", &body.replace("{ lgkmcnt(0)}", ""));
}

#[test]
fn loads_may_overtake_only_on_gfx12() {
    let body = "s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        v_lshlrev_b32 v0, 2, v0
        global_load_dword v1, v0, s[2:3]
        global_load_dword v1, v0, s[2:3] offset:4
        s_waitcnt vmcnt(0)
        global_store_dword v0, v1, s[2:3]";
    accepts("gfx906", body);
    accepts("gfx1100", &body.replace("dword ", "b32 ").replace("dwordx2", "b64"));
    let split = "s_load_b64 s[2:3], s[0:1], 0x0
        v_and_b32 v0, 0x3ff, v0
        s_wait_kmcnt 0x0
        global_load_b32 v1, v0, s[2:3]
        {s_wait_loadcnt 0x0}
        global_load_b32 v1, v0, s[2:3] offset:4
        s_wait_loadcnt 0x0
        global_store_b32 v0, v1, s[2:3]";
    needs("gfx1200", Rule::Wait, split, &["v1 is written"]);
}

#[test]
fn results_must_not_be_overwritten_on_their_way() {
    let body = "v_lshlrev_b32 v0, 2, v0
        s_mov_b32 m0, -1
        ds_read_b32 v1, v0
        {s_waitcnt lgkmcnt(0)}
        v_mov_b32 v1, 0
        ds_write_b32 v0, v1";
    for target in ["gfx803", "gfx906", "gfx942", "gfx1030"] {
        needs(target, Rule::Wait, body, &["v1 is written", "ds_read_b32"]);
    }
}

#[test]
fn waits_hold_on_every_path() {
    let body = "s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_load_dword s4, s[0:1], 0x8
        v_lshlrev_b32 v0, 2, v0
        s_waitcnt lgkmcnt(0)
        v_mov_b32 v1, 0
        s_cmp_eq_u32 s4, 0
        s_cbranch_scc1 .Lskip
        global_load_dword v1, v0, s[2:3]
        {s_waitcnt vmcnt(0)}
    .Lskip:
        global_store_dword v0, v1, s[2:3]";
    needs("gfx906", Rule::Wait, body, &["v1 is read"]);
    // a loop: what is loaded at its end is used at its top
    let body = "s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_mov_b32 s4, 10
        v_lshlrev_b32 v0, 2, v0
        v_mov_b32 v1, 0
        v_mov_b32 v2, 0
        s_waitcnt lgkmcnt(0)
    .Ltop:
        {s_waitcnt vmcnt(0)}
        v_add_f32 v2, v2, v1
        global_load_dword v1, v0, s[2:3]
        s_sub_u32 s4, s4, 1
        s_cmp_lg_u32 s4, 0
        s_cbranch_scc1 .Ltop
        global_store_dword v0, v2, s[2:3]";
    needs("gfx942", Rule::Wait, body, &["v1 is read"]);
}

#[test]
fn barriers_come_after_lds() {
    let body = "v_lshlrev_b32 v0, 2, v0
        ds_write_b32 v0, v0
        {s_waitcnt lgkmcnt(0)}
        s_barrier
        ds_read_b32 v1, v0 offset:4
        s_waitcnt lgkmcnt(0)";
    let lds = "\t.amdhsa_group_segment_fixed_size 4096\n";
    for target in ["gfx906", "gfx942", "gfx1030"] {
        assert!(findings(&file(target, &body.replace(['{', '}'], ""), lds)).is_empty());
        finds(target, Rule::Wait, &body.replace("{s_waitcnt lgkmcnt(0)}", ""), lds, &["store to LDS", "s_barrier"]);
    }
    // reads matter where LDS is written again
    let body = "v_lshlrev_b32 v0, 2, v0
        ds_read_b32 v1, v0 offset:4
        s_barrier
        WRITE
        s_waitcnt lgkmcnt(0)
        s_barrier";
    assert!(findings(&file("gfx90a", &body.replace("WRITE", "s_nop 0"), lds)).is_empty());
    finds("gfx90a", Rule::Wait, &body.replace("WRITE", "ds_write_b32 v0, v0"), lds, &["load from LDS"]);
}

#[test]
fn wait_states() {
    for (target, body, words) in [
        ("gfx906", "v_readfirstlane_b32 s4, v0\n{s_nop 4}\nbuffer_load_dword v1, off, s[8:11], s4", "vmem_sgpr"),
        (
            "gfx908",
            "v_cmpx_gt_u32 vcc, 4, v0\n{s_nop 4}\nv_mov_b32_dpp v1, v0 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf",
            "dpp",
        ),
        ("gfx906", "v_cmp_gt_u32 vcc, 4, v0\n{s_nop 3}\nv_div_fmas_f32 v1, v0, v0, v0", "div_fmas"),
        ("gfx803", "v_readfirstlane_b32 s4, v0\n{s_nop 3}\nv_readlane_b32 s5, v0, s4", "lane_select"),
        ("gfx942", "v_exp_f32 v1, v0\n{s_nop 0}\nv_add_f32 v2, v1, v1", "trans_forward"),
        ("gfx942", "v_cmp_gt_u32 vcc, 4, v0\n{s_nop 1}\nv_cndmask_b32 v1, v0, v0, vcc", "valu_sgpr"),
        ("gfx950", "v_mov_b32 v1, v0\n{s_nop 0}\nv_readfirstlane_b32 s4, v1", "vgpr_readlane"),
        (
            "gfx90a",
            "v_mov_b32 v1, v0\nv_mov_b32 v2, v0\nv_mov_b32 v3, v0\n{s_nop 1}\nv_mfma_f32_4x4x1f32 v[4:7], v3, v2, 0",
            "mfma_vgpr",
        ),
        (
            "gfx906",
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\n{s_nop 1}\ns_getreg_b32 s4, hwreg(HW_REG_MODE)",
            "setreg",
        ),
    ] {
        let body = format!("s_load_dwordx4 s[8:11], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_mov_b64 vcc, 0\n{body}");
        needs(target, Rule::Hazard, &body, &[words, "s_nop"]);
    }
    // matrix results by passes, over a branch
    let body = "v_mov_b32 v2, v0
        v_mov_b32 v3, v0
        v_mov_b32 v4, v0
        v_mov_b32 v5, v0
        s_nop 1
        v_mfma_f32_32x32x8f16 v[16:31], v[2:3], v[4:5], 0
        s_branch .Lnext
    .Lnext:
        s_nop 7
        {s_nop 1}
        v_add_f32 v6, v16, v16";
    needs("gfx942", Rule::Hazard, body, &["11 wait states", "there are 9", "m942_xdl_use"]);
}

#[test]
fn gaps_of_rdna() {
    let body = "v_exp_f32 v1, v0\n{s_waitcnt_depctr 0xfff}\nv_add_f32 v2, v1, v1";
    needs("gfx1100", Rule::Hazard, body, &["trans_use", "depctr"]);
    accepts("gfx1150", &body.replace("{s_waitcnt_depctr 0xfff}", ""));
    let body = "v_cmpx_gt_u32 4, v0\n{v_mov_b32 v0, v0}\nv_permlane16_b32 v1, v0, 1, 2";
    needs("gfx1010", Rule::Hazard, body, &["vcmpx_permlane"]);
    needs("gfx1100", Rule::Hazard, body, &["vcmpx_permlane"]);
    accepts("gfx1030", &body.replace("{v_mov_b32 v0, v0}", ""));
    let body = "s_mov_b32 s4, 1
        v_mov_b32 v1, s4
        s_mov_b32 s4, 2
        {s_wait_alu 0xfffe}
        v_mov_b32 v2, s4";
    needs("gfx1201", Rule::Hazard, body, &["s4 was written by the scalar ALU", "depctr_sa_sdst(0)"]);
}

#[test]
fn waves_of_64_on_rdna3() {
    let mask = "s_mov_b64 s[4:5], 3
        v_cndmask_b32 v1, v0, v0, s[4:5]
        s_mov_b32 s4, 2
        {s_waitcnt_depctr depctr_sa_sdst(0)}
        s_add_u32 s6, s4, 1";
    needs_with("gfx1100", Rule::Hazard, mask, WAVE64, &["s4 was written while", "mask_write", "sa_sdst(0)"]);
    // any other scalar operand of a vector instruction has the mask read; a literal too; a mask of its own does not
    for between in ["v_mov_b32 v2, s8", "v_mov_b32 v2, 0x12345"] {
        let body = mask.replace("{s_waitcnt_depctr depctr_sa_sdst(0)}", "");
        let body = body.replace("s_mov_b32 s4, 2", &format!("{between}\ns_mov_b32 s4, 2"));
        accepts_with("gfx1100", &body, WAVE64);
    }
    let vector = "v_div_fmas_f32 v1, v0, v0, v0
        v_cmp_gt_u32 vcc, 4, v0
        {s_waitcnt_depctr depctr_va_vcc(0)}
        v_cndmask_b32 v2, v0, v0, vcc";
    needs_with("gfx1151", Rule::Hazard, vector, WAVE64, &["vcc was written while", "va_vcc(0)"]);
    let forward = "s_mov_b64 s[4:5], 3
        v_mov_b32 v1, 0
        s_mov_b64 exec, s[4:5]
        v_mov_b32 v2, 0
        {s_waitcnt_depctr depctr_va_vdst(0)}
        v_add_f32 v3, v1, v2";
    needs_with("gfx1100", Rule::Hazard, forward, WAVE64, &["changed EXEC", "partial_forwarding"]);
    let broken = forward.replace("{s_waitcnt_depctr depctr_va_vdst(0)}", "");
    for (from, to) in [
        ("v_add_f32 v3, v1, v2", "v_add_f32 v3, v2, v2"),
        ("s_mov_b64 exec, s[4:5]", "s_mov_b64 s[8:9], s[4:5]"),
        ("v_add_f32", "v_mov_b32 v4, 0\nv_mov_b32 v4, 0\nv_mov_b32 v4, 0\nv_mov_b32 v4, 0\nv_mov_b32 v4, 0\nv_add_f32"),
        ("s_mov_b64 exec", "v_mov_b32 v4, 0\nv_mov_b32 v4, 0\nv_mov_b32 v4, 0\ns_mov_b64 exec"),
    ] {
        accepts_with("gfx1100", &broken.replace(from, to), WAVE64);
    }
    // the same on a way round, and nothing of all this in waves of 32 or on other targets
    let round = ".Lloop:
        v_add_f32 v3, v1, v2
        v_mov_b32 v1, 0
        s_mov_b64 exec, s[4:5]
        v_mov_b32 v2, 0
        s_cbranch_scc1 .Lloop";
    let start = "s_mov_b64 s[4:5], 3\nv_mov_b32 v1, 0\nv_mov_b32 v2, 0\ns_cmp_eq_u32 s0, 0\n";
    finds("gfx1100", Rule::Hazard, &format!("{start}{round}"), WAVE64, &["partial_forwarding"]);
    let body = mask.replace("{s_waitcnt_depctr depctr_sa_sdst(0)}", "");
    accepts("gfx1100", &body.replace("s_mov_b64 s[4:5]", "s_mov_b32 s4").replace("s[4:5]", "s4"));
    accepts_with("gfx1030", &body, WAVE64);
}

#[test]
fn runs_that_may_be_issued_again() {
    let scalar = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n{s_nop 0}\ns_load_dword s0, s[2:3], 0x0";
    let known = "s_mov_b64 s[2:3], 0\n";
    needs("gfx90a", Rule::Hazard, &format!("{known}{scalar}"), &["s[0:1] is read by", "XNACK", "smem_clause"]);
    let vector = "v_mov_b32 v4, v0
        global_load_dword v1, v4, s[0:1]
        {s_nop 0}
        global_load_dword v4, v0, s[0:1]";
    needs("gfx942", Rule::Hazard, vector, &["v4 is read by", "vmem_clause"]);
    // alone, an instruction may write its own address
    accepts("gfx942", "global_load_dword v0, v0, s[0:1]\ns_nop 0\ns_load_dword s0, s[0:1], 0x0");
    let store = "v_mov_b32 v4, v0
        global_load_dword v1, v4, s[0:1]
        {s_nop 0}
        global_store_dword v4, v0, s[0:1]";
    needs("gfx906", Rule::Hazard, store, &["it stores behind loads"]);
    for target in ["gfx803", "gfx1030", "gfx1100"] {
        accepts(target, &format!("{known}{}", scalar.replace("{s_nop 0}", "")));
    }
    let mut elf = file("gfx90a", &format!("{known}{}", scalar.replace("{s_nop 0}", "")), "");
    assert_eq!(findings(&elf).len(), 1);
    // EF_AMDGPU_FEATURE_XNACK_OFF_V4
    elf[49] = elf[49] & !3 | 2;
    assert!(findings(&elf).is_empty());
}

#[test]
fn clauses_are_of_one_kind() {
    let finds = |target, body: &str, words: &[&str]| finds(target, Rule::Clause, body, "", words);
    let (load, store) = ("global_load_b32 v1, v0, s[0:1]\n", "global_store_b32 v0, v0, s[0:1]\n");
    let [wait, lds] = ["s_waitcnt vmcnt(0)\n", "ds_load_b32 v2, v0\n"];
    accepts("gfx1100", &format!("s_clause 0x1\n{load}{load}"));
    accepts("gfx1100", &format!("s_clause 0x2\n{load}s_nop 0\n{load}{store}{store}"));
    finds("gfx1100", &format!("s_clause 0x2\n{load}{load}{store}"), &["global_store_b32", "of another kind"]);
    finds("gfx1100", &format!("s_clause 0x1\n{load}{wait}"), &["s_waitcnt vmcnt(0)", "stands in a clause"]);
    finds("gfx1100", &format!("s_clause 0x1\n{load}{lds}"), &["ds_load_b32", "of another kind"]);
    finds("gfx1201", "s_clause 0x1\nv_mov_b32 v1, 0\ns_endpgm", &["s_endpgm", "stands in a clause"]);
    let many = |n: usize| format!("s_clause {:#x}\n{}", n - 1, load.repeat(n));
    accepts("gfx1100", &many(32));
    finds("gfx1100", &many(33), &["s_clause 0x20", "33 instructions; gfx1100 takes 32"]);
    // before gfx11 loads and stores are of one kind
    let (load, store) = ("global_load_dword v1, v0, s[0:1]\n", "global_store_dword v0, v0, s[0:1]\n");
    accepts("gfx1030", &format!("s_clause 0x2\n{load}{load}{store}"));
    accepts("gfx1030", &format!("s_clause 0x20\n{}", load.repeat(33)));
}

#[test]
fn branches_of_gfx1010() {
    let body = "v_mov_b32 v4, 0
        s_cmp_eq_u32 s0, 0
        ds_read_b32 v1, v4
        s_cbranch_scc1 .Lnext
    .Lnext:
        {s_waitcnt_vscnt null, 0x0}
        global_load_dword v2, v4, s[0:1]";
    needs("gfx1010", Rule::Hazard, body, &["only a branch lies between", "lds_branch_vmem"]);
    accepts("gfx1030", &body.replace("{s_waitcnt_vscnt null, 0x0}", ""));
    // over 63 dwords; the assembler would put the s_nop there by itself
    accepts("gfx1010", ".long 0xbf820040\n.rept 64\ns_nop 0\n.endr");
    let astray = ".long 0xbf82003f\n.rept 63\ns_nop 0\n.endr";
    accepts("gfx1030", astray);
    finds("gfx1010", Rule::Branch, astray, "", &["a branch over 63 dwords does not arrive"]);
}

#[test]
fn undefined_registers() {
    let store = |value: &str| {
        format!(
            "s_load_dwordx2 s[2:3], s[0:1], 0x0
            v_lshlrev_b32 v0, 2, v0
            s_waitcnt lgkmcnt(0)
            global_store_dword v0, {value}, s[2:3]"
        )
    };
    accepts("gfx906", &store("v0"));
    finds("gfx906", Rule::Undefined, &store("v7"), "", &["v7", "it is stored"]);
    finds("gfx906", Rule::Undefined, &format!("v_add_f32 v3, v5, v5\n{}", store("v3")), "", &["v3", "it is stored"]);
    finds("gfx906", Rule::Undefined, "s_load_dword s4, s[6:7], 0x0", "", &["s[6:7]", "it is an address"]);
    finds("gfx942", Rule::Undefined, "s_cbranch_scc1 .Lx\n.Lx:", "", &["scc", "where to go"]);
    finds("gfx1030", Rule::Undefined, "s_and_saveexec_b32 s2, vcc_lo", "", &["vcc_lo", "which lanes are on"]);
    finds("gfx906", Rule::Undefined, "s_setpc_b64 s[6:7]", "", &["s[6:7]"]);
    // a way that writes it is enough, and lanes that are off keep theirs
    accepts(
        "gfx906",
        &format!(
            "v_cmp_gt_u32 vcc, 4, v0\ns_and_saveexec_b64 s[4:5], vcc\nv_mov_b32 v7, 1\ns_mov_b64 exec, s[4:5]\n{}",
            store("v7")
        ),
    );
    accepts(
        "gfx906",
        &format!(
            "s_load_dword s4, s[0:1], 0x8\ns_waitcnt lgkmcnt(0)\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc1 .Lx\nv_mov_b32 v7, 1\n.Lx:\n{}",
            store("v7")
        ),
    );
}

#[test]
fn ways_out_of_the_code() {
    finds("gfx906", Rule::Branch, "s_cmp_eq_u32 s0, 0\ns_cbranch_scc1 0x7000", "", &["outside of the code"]);
    // the literal of the move is taken for an instruction
    let inside = "s_cmp_eq_u32 s0, 0\ns_cbranch_scc1 .Lx+4\ns_nop 0\n.Lx:\ns_mov_b32 s4, 0xbf810000";
    finds("gfx906", Rule::Branch, inside, "", &["inside of an instruction"]);
    finds("gfx906", Rule::Branch, "s_nop 0\n.long 0xffffffff", "", &["the program goes on", "no instruction"]);
    let behind = findings(&file("gfx906", "s_endpgm\nv_mov_b32 v1, v0\nv_mov_b32 v2, v0", ""));
    assert_eq!(behind.len(), 1, "{behind:?}");
    assert_eq!(behind[0].rule, Rule::Unreachable);
    assert!(behind[0].to_string().contains("v_mov_b32_e32 v1, v0"), "{}", behind[0]);
}

#[test]
fn calls() {
    // a function that reads what its caller is still loading, and one whose caller reads what it is still loading
    let body = "s_load_dwordx2 s[2:3], s[0:1], 0x0
        v_lshlrev_b32 v0, 2, v0
        s_waitcnt lgkmcnt(0)
        global_load_dword v1, v0, s[2:3]
        s_getpc_b64 s[4:5]
        s_add_u32 s4, s4, f@rel32@lo+4
        s_addc_u32 s5, s5, f@rel32@hi+12
        s_swappc_b64 s[30:31], s[4:5]
        AFTER
        v_add_f32 v3, v2, v2
        s_endpgm
    f:
        BEFORE
        v_add_f32 v4, v1, v1
        global_load_dword v2, v0, s[2:3]
        s_setpc_b64 s[30:31]";
    let with = |before: &str, after: &str| body.replace("BEFORE", before).replace("AFTER", after);
    let wait = "s_waitcnt vmcnt(0)";
    accepts("gfx906", &with(wait, wait));
    finds("gfx906", Rule::Wait, &with("", wait), "", &["v1 is read"]);
    finds("gfx906", Rule::Wait, &with(wait, ""), "", &["v2 is read"]);
    let direct = with(wait, wait).replace("s_swappc_b64 s[30:31], s[4:5]", "s_call_b64 s[30:31], f");
    accepts("gfx906", &direct);
}

/// Nobody comes back to what stands behind a call of a function that does not return.
#[test]
fn functions_that_do_not_return() {
    for target in ["gfx906", "gfx942", "gfx1100"] {
        accepts(
            target,
            "s_call_b64 s[30:31], f\n\tv_add_f32 v1, v0, v0\n\ts_endpgm\nf:\n\tv_mov_b32 v0, 0\n\ts_endpgm",
        );
    }
}

#[test]
fn resources() {
    finds("gfx906", Rule::Resources, "v_mov_b32 v70, v0", "", &["71 VGPRs", "allocates 64", "v70"]);
    finds("gfx906", Rule::Resources, "s_mov_b32 s50, 0", "", &["51 SGPRs", "s50"]);
    finds("gfx90a", Rule::Resources, "v_mov_b32 v70, v0", "", &["71 VGPRs", "AGPRs begin at register 64"]);
    finds("gfx90a", Rule::Resources, "v_accvgpr_write_b32 a80, v0", "", &["81 AGPRs"]);
    finds("gfx906", Rule::Resources, "s_load_dwordx4 s[4:7], s[0:1], 0x40", "", &["bytes 64 to 80", "64"]);
    finds("gfx942", Rule::Resources, "scratch_store_dword off, v0, off", "", &["scratch", "does not enable it"]);
    let frame = "\t.amdhsa_enable_private_segment 1\n\t.amdhsa_private_segment_fixed_size 16\n";
    assert!(findings(&file("gfx942", "s_mov_b32 s4, 8\nscratch_store_dword off, v0, s4 offset:4", frame)).is_empty());
    finds("gfx942", Rule::Resources, "s_mov_b32 s4, 8\nscratch_store_dword off, v0, s4 offset:8", frame, &["16 to 20"]);
    let lds = "\t.amdhsa_group_segment_fixed_size 64\n";
    finds("gfx942", Rule::Resources, "ds_write_b32 v0, v0 offset:64", lds, &["byte 68 of LDS"]);
    finds("gfx1030", Rule::Resources, "s_mov_b64 exec, -1", "", &["32 lanes"]);
}

/// Damages one field of the first kernel's descriptor.
fn lie(elf: &[u8], change: impl Fn(&mut Descriptor)) -> Vec<u8> {
    let mut out = elf.to_vec();
    let file = ElfFile::parse(elf).unwrap();
    let k = file.kernels.iter().find(|k| k.name.starts_with("conv")).unwrap();
    let mut d = k.descriptor;
    change(&mut d);
    let at = file.file_range(k.descriptor_addr, Descriptor::SIZE as u64).unwrap();
    out[at].copy_from_slice(&d.to_bytes());
    out
}

#[test]
fn lying_descriptors() {
    let model = Model::load(Path::new("examples/digits/digits.onnx")).unwrap();
    let graph = graph::fuse(&model, &Options::default()).unwrap();
    for target in ["gfx803", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"] {
        let t = Target::parse(target).unwrap();
        let elf = compile(&graph, t).unwrap().code().clone();
        assert!(findings(&elf).is_empty(), "{target}: {}", findings(&elf)[0]);
        type Lie = fn(&mut Descriptor);
        let lies: [(&str, Lie); 7] = [
            ("VGPRs", |d| d.rsrc1 &= !0x3f),
            ("LDS", |d| d.lds_bytes = 16),
            ("scratch", |d| d.scratch_bytes += 64),
            ("wave size", |d| d.properties = d.properties.symmetric_difference(barewave::codeobj::Properties::WAVE32)),
            ("arguments", |d| d.kernarg_size = 8),
            ("argument pointer", |d| {
                d.properties.remove(barewave::codeobj::Properties::KERNARG_SEGMENT_PTR);
            }),
            ("user SGPRs", |d| d.rsrc2 &= !0x3e),
        ];
        for (what, change) in lies {
            let lied = lie(&elf, change);
            assert!(!findings(&lied).is_empty(), "{target}: nobody noticed a lie about {what}");
        }
        if t.info().unified_agprs {
            let lied = lie(&elf, |d| d.rsrc3 &= !0x3f);
            assert!(findings(&lied).iter().any(|f| f.to_string().contains("AGPRs begin")), "{target}: accum offset");
        }
        if !t.info().interlocked {
            let lied = lie(&elf, |d| d.rsrc1 &= !0x3c0);
            assert!(findings(&lied).iter().any(|f| f.to_string().contains("SGPRs")), "{target}: SGPRs");
        }
    }
}

#[test]
fn reports_say_what_was_left_out() {
    let elf = file("gfx906", "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_setpc_b64 s[4:5]", "");
    let parsed = ElfFile::parse(&elf).unwrap();
    let reports = verify::check(&parsed, &elf, Some("k"), &verify::Options::default()).unwrap();
    assert!(reports[0].findings.list.is_empty());
    assert!(reports[0].findings.notes[0].contains("s_setpc_b64 s[4:5]"), "{:?}", reports[0].findings.notes);
    let e = verify::check(&parsed, &elf, Some("nope"), &verify::Options::default()).unwrap_err();
    assert!(e.to_string().contains("`nope`") && e.to_string().contains("k"), "{e}");
}

#[test]
fn jumps_through_tables_of_known_addresses_are_followed() {
    // the address is loaded from the file: what stands there is checked
    let body = "s_getpc_b64 s[4:5]
        s_add_u32 s4, s4, table@rel32@lo+4
        s_addc_u32 s5, s5, table@rel32@hi+12
        s_load_dwordx2 s[6:7], s[4:5], 0x0
        s_waitcnt lgkmcnt(0)
        s_setpc_b64 s[6:7]
    there:
        v_add_f32 v1, v9, v9
        v_readfirstlane_b32 s8, v9
        s_load_dword s9, s[8:9], 0x0
        s_endpgm
        .section .data.rel.ro,\"a\"
        .p2align 3
    table:
        .quad there
        .text";
    let found = findings(&file("gfx906", body, ""));
    assert!(found.iter().any(|f| f.rule == Rule::Undefined), "{found:?}");
}

/// What the compiler believes about a wave's start is what the descriptor that it writes says.
#[test]
fn kernels_start_as_their_descriptors_say() {
    use barewave::codeobj::{Family, Kernel};
    use barewave::mir::{Builder, RegClass, abi};
    use barewave_isa::{Reg, Regs};
    for t in Target::all().filter(|t| !t.info().name.starts_with("gfx125")) {
        let family = Family::of_mach(t.info().elf_mach).unwrap();
        for bits in 0..32u32 {
            let mut f = Builder::new(t, "k", 64).finish();
            f.preloads = Default::default();
            let (pointer, ids) = (bits & 1 != 0, [bits & 2 != 0, bits & 4 != 0, bits & 8 != 0]);
            let scratch = bits & 16 != 0 && !t.info().architected_flat_scratch;
            let mut new = |dwords| f.new_vreg(RegClass::S, dwords).reg;
            let kernarg = pointer.then(|| new(2));
            let group = ids.map(|id| id.then(|| new(1)));
            let frame = scratch.then(|| [new(4), new(1)]);
            (f.preloads.kernarg, f.preloads.workgroup_id, f.preloads.scratch) = (kernarg, group, frame);
            let mut k = Kernel::new(t, "k", vec![0; 4]);
            k.scratch_bytes = if scratch { 64 } else { 0 };
            k.user_sgprs.kernarg_segment_ptr = pointer;
            k.user_sgprs.private_segment_buffer = scratch;
            k.workgroup_ids = ids;
            let l = Descriptor::for_kernel(&k, t.info().elf_mach).unwrap().user_sgpr_layout(family);
            let says = |v| {
                if kernarg == Some(v) {
                    return l.kernarg_segment_ptr;
                }
                if let Some(i) = group.iter().position(|g| *g == Some(v)) {
                    return l.system.workgroup_id[i];
                }
                let [description, wave] = frame.expect("nothing else was asked for");
                if v == description {
                    l.private_segment_buffer
                } else {
                    assert_eq!(v, wave);
                    l.system.scratch_wave_offset
                }
            };
            for (v, r) in abi::preloaded(&f) {
                // gfx12 has the ids elsewhere
                if t.info().architected_sgprs && group.contains(&Some(v)) {
                    continue;
                }
                assert_eq!(says(v).map(Reg::s), Some(r), "{t}, preloads {bits:05b}: {}", Regs::from(r));
            }
        }
    }
}
