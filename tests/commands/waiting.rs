//! Kernels whose workgroups wait for each other, as `launch --cycles` times them.

use crate::cycles::{json, works};
use pretty_assertions::assert_eq;

/// A code object from assembly, in a directory of its own, of a kernel that is told an address, in `s[0:1]`, and its number, in `s2`.
fn assembled_with_address(dir: &tempfile::TempDir, target: &str, body: &str) -> String {
    let accum = if target == "gfx942" { "\t.amdhsa_accum_offset 16\n" } else { "" };
    let source = format!(
        "\t.amdgcn_target \"amdgcn-amd-amdhsa--{target}\"\n\t.text\n\t.globl k\n\t.p2align 8\n\t.type k,@function\nk:\n{body}\n\
         \t.rodata\n\t.p2align 6\n\t.amdhsa_kernel k\n\t.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\t.amdhsa_kernarg_size 8\n\
         \t.amdhsa_next_free_vgpr 16\n\t.amdhsa_next_free_sgpr 16\n{accum}\t.end_amdhsa_kernel\n\
         \t.amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n  - .name: k\n    .symbol: k.kd\n    .kernarg_segment_size: 8\n\
         \x20   .args:\n      - .size: 8\n        .offset: 0\n        .value_kind: global_buffer\n        .address_space: global\n\
         \x20   .group_segment_fixed_size: 0\n    .private_segment_fixed_size: 0\n    .kernarg_segment_align: 8\n    .wavefront_size: 64\n\
         \x20   .sgpr_count: 16\n    .vgpr_count: 16\n    .max_flat_workgroup_size: 256\n...\n\t.end_amdgpu_metadata\n"
    );
    let (from, to) = (dir.path().join("k.s"), dir.path().join("k.hsaco"));
    std::fs::write(&from, source).unwrap();
    works(&["asm", from.to_str().unwrap(), "--target", target, "-o", to.to_str().unwrap()]);
    to.to_str().unwrap().to_string()
}

/// Each workgroup of a chain goes on a link later than the one before; a team meets once, however many it has. Where nobody
/// waits, nothing is added.
#[test]
fn workgroups_that_wait_take_links_and_exchanges() {
    let dir = tempfile::tempdir().unwrap();
    for (target, load, store, seen) in [("gfx906", "glc", "", 330.0), ("gfx942", "sc1", "sc1", 460.0)] {
        let begin = "\ts_load_dwordx2 s[4:5], s[0:1], 0x0\n\ts_lshl_b32 s6, s2, 2\n\tv_mov_b32 v1, s6\n\tv_mov_b32 v3, 1\n\
                     \tv_lshlrev_b32 v4, 2, v0\n\ts_waitcnt lgkmcnt(0)\n";
        let publish = format!("\tglobal_store_dword v1, v3, s[4:5] {store}\n");
        let after = format!(
            "\ts_cmp_eq_u32 s2, 0\n\ts_cbranch_scc1 .Lgo\n.Lspin:\n\tglobal_load_dword v2, v1, s[4:5] offset:-4 {load}\n\
             \ts_waitcnt vmcnt(0)\n\tv_readfirstlane_b32 s7, v2\n\ts_cmp_eq_u32 s7, 0\n\ts_cbranch_scc1 .Lspin\n.Lgo:\n"
        );
        let all = format!(
            ".Lspin:\n\tglobal_load_dword v2, v4, s[4:5] {load}\n\ts_waitcnt vmcnt(0)\n\tv_cmp_eq_u32 vcc, 0, v2\n\
             \ts_cbranch_vccnz .Lspin\n"
        );
        let end = "\ts_endpgm";
        let cycles = |body: &str, n: u32| {
            let code = assembled_with_address(&dir, target, body);
            let (grid, n) = (n.to_string(), n.to_string());
            let args = [
                "launch",
                &code,
                "--kernel",
                "k",
                "--grid",
                &grid,
                "--block",
                &n,
                "--arg",
                "out:64xi32",
                "--cycles",
                "--json",
            ];
            let modelled = json(&args)["modelled"].clone();
            let waiting = modelled["parts"]["waiting for workgroups"].as_f64().unwrap_or(0.0);
            (modelled["cycles"].as_f64().unwrap(), waiting)
        };
        let (chain, team) = (format!("{begin}{after}{publish}{end}"), format!("{begin}{publish}{all}{end}"));
        let [few, some, many] = [8, 16, 64].map(|n| cycles(&chain, n).0);
        let link = (many - some) / 48.0;
        // Stored, seen by a load that is on its way, and some instructions.
        assert!((2.0 * seen..2.0 * seen + 100.0).contains(&link), "{target}: a link takes {link} clocks");
        assert!(((some - few) / 8.0 / link - 1.0).abs() < 0.05, "{target}: {few} {some} {many}");
        let [few, many] = [8, 64].map(|n| cycles(&team, n));
        assert!((many.0 - few.0).abs() < 0.2 * seen, "{target}: {few:?} {many:?}");
        assert!((0.5 * seen..1.5 * seen).contains(&many.1), "{target}: an exchange takes {} clocks", many.1);
        assert_eq!(cycles(&format!("{begin}{publish}{end}"), 8).1, 0.0);
    }
}
