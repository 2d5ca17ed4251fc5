//! What strict mode says: a kernel for each mistake that it knows, and the same kernel without the mistake.
//!
//! Kernels are assembled from text. A prologue leaves the address of a buffer full of zeros in s[8:9], that of a buffer
//! that nobody has written in s[10:11], and four times the workitem's number in v1.

use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::{EmuDevice, Fault, LaunchOptions};
use barewave_isa::{Mode, Target, assemble};

/// A launch in strict mode.
struct Launch {
    target: &'static str,
    groups: u32,
    block: u32,
    max_instructions: u64,
    wgp_mode: bool,
    scratch: u32,
}

/// One wave on a target.
fn on(target: &'static str) -> Launch {
    let block = Target::parse(target).unwrap().info().wave_size;
    Launch { target, groups: 1, block, max_instructions: 1 << 20, wgp_mode: false, scratch: 0 }
}

impl Launch {
    fn waves(self, n: u32) -> Launch {
        Launch { block: self.block * n, ..self }
    }
    fn groups(self, groups: u32) -> Launch {
        Launch { groups, ..self }
    }

    fn run(&self, body: &str) -> Result<(), Fault> {
        let t = Target::parse(self.target).unwrap();
        let (load, wait) = match self.target {
            "gfx1100" => ("s_load_b128", "s_waitcnt lgkmcnt(0)"),
            "gfx1201" => ("s_load_b128", "s_wait_kmcnt 0x0"),
            _ => ("s_load_dwordx4", "s_waitcnt lgkmcnt(0)"),
        };
        let text = format!("{load} s[8:11], s[0:1], 0x0\n{wait}\nv_lshlrev_b32_e32 v1, 2, v0\n{body}\ns_endpgm\n");
        let assembly = assemble(t, Mode::of(t), &text).unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let code = assembly.sections.iter().find(|s| s.name == ".text").unwrap().bytes.clone();
        let mut k = Kernel::new(t, "k", code);
        (k.vgprs, k.sgprs, k.lds_bytes, k.kernarg_size, k.wgp_mode) = (32, 48, 4096, 16, self.wgp_mode);
        k.workgroup_ids = [true, false, false];
        k.scratch_bytes = self.scratch;
        let file = CodeObject { target: t, abi: Abi::V5, kernels: vec![k], sections: vec![] };
        let device = EmuDevice::with_memory(t, 1 << 30).unwrap();
        let module = device.load(&file.to_bytes().unwrap()).unwrap();
        let (zeros, fresh) = (device.alloc(4096).unwrap(), device.alloc(4096).unwrap());
        device.write(zeros, &[0; 4096]).unwrap();
        let args = [zeros.to_le_bytes(), fresh.to_le_bytes()].concat();
        let options =
            LaunchOptions { strict: true, max_instructions: self.max_instructions, ..LaunchOptions::default() };
        let kernel = module.kernel("k").unwrap();
        device.launch(&kernel, [self.groups, 1, 1], [self.block, 1, 1], &args, &options).map(drop)
    }

    /// The kernel is reported with a text that has all of `parts`.
    #[track_caller]
    fn fails(self, body: &str, parts: &[&str]) -> Launch {
        match self.run(body) {
            Ok(()) => panic!("{}: nothing is reported\n{body}", self.target),
            Err(f) => {
                let text = f.to_string();
                for p in parts {
                    assert!(text.contains(p), "{}: no '{p}' in: {text}\n{body}", self.target);
                }
            }
        }
        self
    }

    #[track_caller]
    fn passes(self, body: &str) -> Launch {
        if let Err(f) = self.run(body) {
            panic!("{}: {f}\n{body}", self.target);
        }
        self
    }
}

#[test]
fn barriers_that_not_all_lanes_reach() {
    let report = ["divergent barrier: lanes 0xffffffff", "only 0xffff are active", "kernel `k` at pc 0x", "wave 0"];
    on("gfx1100").fails("v_cmp_gt_u32_e32 vcc_lo, 16, v0\ns_and_b32 exec_lo, exec_lo, vcc_lo\ns_barrier", &report);
    on("gfx1201").fails("s_mov_b32 exec_lo, 0xffff\ns_barrier_signal -1\ns_barrier_wait -1", &report);
    on("gfx906")
        .fails("s_mov_b64 exec, 0xff\ns_barrier", &["divergent barrier", "only 0xff are active", "`s_barrier`"]);
    // The last wave of a workgroup that does not fill it.
    let part = Launch { block: 72, ..on("gfx906") };
    part.passes("s_barrier").fails("s_mov_b64 exec, 1\ns_barrier", &["divergent barrier"]);
    // One wait more than there are meetings.
    let twice = "s_barrier_signal -1\ns_barrier_wait -1\ns_barrier_wait -1";
    on("gfx1201").waves(2).fails(twice, &["wait at a barrier that the others never reach", "s_barrier_wait"]);
}

#[test]
fn clauses_are_of_one_kind() {
    let (load, store) = ("global_load_b32 v2, v1, s[8:9]\n", "global_store_b32 v1, v1, s[8:9]\n");
    let l = on("gfx1100").passes(&format!("s_clause 0x1\n{load}{load}{store}"));
    let l = l.passes(&format!("s_clause 0x2\n{load}s_nop 0\n{load}"));
    let l =
        l.fails(&format!("s_clause 0x2\n{load}{load}{store}"), &["not a clause: global_store_b32 is of another kind"]);
    let l = l.fails(&format!("s_clause 0x1\n{load}s_waitcnt vmcnt(0)"), &["not a clause: s_waitcnt stands in it"]);
    l.fails(&format!("s_clause 0x20\n{}", load.repeat(33)), &["it has 33 instructions, and gfx1100 takes 32"]);
    let (load, store) = ("global_load_dword v2, v1, s[8:9]\n", "global_store_dword v1, v1, s[8:9]\n");
    on("gfx1030").passes(&format!("s_clause 0x1\n{load}{store}"));
}

#[test]
fn endless_loops() {
    let l = Launch { max_instructions: 100_000, ..on("gfx1030") };
    l.fails("loop:\ns_add_u32 s4, s8, 1\ns_branch loop", &["more than 100000 instructions", "endless loop?", "wave 0"]);
}

#[test]
fn misaligned_addresses() {
    let atomic = "v_mov_b32_e32 v2, 6\nglobal_atomic_add v2, v0, s[8:9]";
    on("gfx906").fails(atomic, &["is not a multiple of 4", "`global_atomic_add", "lane 0"]);
    on("gfx1030").fails(atomic, &["is not a multiple of 4"]);
    // gfx8 takes no unaligned addresses in LDS, later targets do.
    let lds = "s_mov_b32 m0, -1\nv_mov_b32_e32 v2, 4\nv_mov_b32_e32 v3, v0\nds_write_b64 v2, v[2:3]";
    on("gfx803").fails(lds, &["address 0x4 is not a multiple of 8", "ds_write_b64", "lane 0"]);
    on("gfx906").passes(lds);
    let lds_atomic = "v_mov_b32_e32 v2, 0\nds_write_b64 v2, v[0:1]\nv_mov_b32_e32 v2, 2\nds_add_u32 v2, v0";
    on("gfx906").fails(lds_atomic, &["address 0x2 is not a multiple of 4", "ds_add_u32"]);
    // Scalar memory ignores the two low bits: the load is not of what its address says.
    on("gfx906").fails("s_load_dword s4, s[8:9], 0x2", &["is not a multiple of 4", "s_load_dword s4"]);
}

/// A function saves registers of its caller, whatever is in them, and gives them back.
#[test]
fn undefined_registers_are_saved_and_restored() {
    let check = |target, store: &str, load: &str, wait: &str| {
        let save = format!("{store} off, v[20:21], off\n{wait}\n{load} v[22:23], off, off\n{wait}");
        let use_of = |r| format!("global_store_dword v1, {r}, s[8:9]");
        let l = Launch { scratch: 64, ..on(target) };
        let l = l.passes(&save).fails(&format!("{save}\n{}", use_of("v22")), &["v22 is read but was never written"]);
        // Dword by dword, lane by lane, and only as long as it is there.
        let half = format!("v_mov_b32_e32 v21, 0\n{save}");
        let l = l.passes(&format!("{half}\n{}", use_of("v23"))).fails(&format!("{half}\n{}", use_of("v22")), &["v22"]);
        let lanes = match target {
            "gfx942" => {
                "v_cmp_gt_u32_e32 vcc, 5, v0\ns_and_saveexec_b64 s[12:13], vcc\n\
                 v_mov_b32_e32 v20, 0\ns_mov_b64 exec, s[12:13]"
            }
            _ => {
                "v_cmp_gt_u32_e32 vcc_lo, 5, v0\ns_and_saveexec_b32 s12, vcc_lo\n\
                 v_mov_b32_e32 v20, 0\ns_mov_b32 exec_lo, s12"
            }
        };
        let l =
            l.fails(&format!("{lanes}\n{save}\n{}", use_of("v22")), &["v22 is read but was never written", "lane 5"]);
        let again = format!("{save}\nv_mov_b32_e32 v20, 0\nv_mov_b32_e32 v21, 0\n{save}\n{}", use_of("v22"));
        // An address must be defined all the same.
        l.passes(&again).fails(&format!("{store} v20, v[20:21], off"), &["v20 is read but was never written"]);
    };
    check("gfx942", "scratch_store_dwordx2", "scratch_load_dwordx2", "s_waitcnt vmcnt(0)");
    check("gfx1100", "scratch_store_b64", "scratch_load_b64", "s_waitcnt vmcnt(0)\ns_waitcnt_vscnt null, 0x0");
}

#[test]
fn memory_and_lds_that_nobody_wrote() {
    let load = "global_load_dword v2, v1, s[10:11]\ns_waitcnt vmcnt(0)";
    on("gfx906").fails(load, &["uninitialised memory is read at 0x", "`global_load_dword v2, v1, s[10:11]`", "lane 0"]);
    on("gfx906").passes("global_store_dword v1, v0, s[10:11]\ns_waitcnt vmcnt(0)\nglobal_load_dword v2, v1, s[10:11]");
    // Scalar loads may fetch more than is used.
    let scalar = "global_store_dword v1, v0, s[8:9]\ns_load_dwordx2 s[4:5], s[10:11], 0x0\ns_waitcnt lgkmcnt(0)";
    on("gfx906").passes(scalar);
    let used = format!("{scalar}\ns_cmp_eq_u32 s5, 0\ns_cbranch_scc1 end\nend:");
    on("gfx906").fails(&used, &["scc is read but was never written", "s_cbranch_scc1"]);
    // LDS: never written, and written with what is undefined.
    on("gfx1100").fails("ds_load_b32 v2, v1", &["uninitialised LDS is read at 0x0", "ds_load_b32", "lane 0"]);
    let undefined = "ds_store_b32 v1, v20\ns_waitcnt lgkmcnt(0)\nds_load_b32 v2, v1";
    on("gfx1100").fails(undefined, &["uninitialised LDS is read at 0x0"]);
    on("gfx1100").fails("global_store_b32 v1, v20, s[8:9]", &["v20 is read but was never written", "lane 0"]);
}

#[test]
fn results_before_their_wait() {
    let two = |wait: &str, used: &str| {
        format!(
            "global_load_dword v2, v1, s[8:9]\nglobal_load_dword v3, v1, s[8:9] offset:64\n{wait}\nv_mov_b32_e32 v4, {used}"
        )
    };
    // In order: a wait for one outstanding load is a wait for the first.
    on("gfx906").passes(&two("s_waitcnt vmcnt(1)", "v2"));
    let second = ["v3 is used before a wait for global_load_dword (vm counter)", "`v_mov_b32_e32 v4, v3`"];
    on("gfx906").fails(&two("s_waitcnt vmcnt(1)", "v3"), &second);
    // Scalar loads come in any order: only a wait for all of them proves anything.
    let scalars =
        |wait: &str| format!("s_load_dword s4, s[8:9], 0x0\ns_load_dword s5, s[8:9], 0x4\n{wait}\ns_mov_b32 s6, s4");
    on("gfx906").passes(&scalars("s_waitcnt lgkmcnt(0)"));
    let first = ["s4 is used before a wait for s_load_dword (lgkm counter)"];
    on("gfx906").fails(&scalars("s_waitcnt lgkmcnt(1)"), &first);
    // LDS is in order by itself, not together with scalar loads on the same counter.
    let mixed = |other: &str| {
        format!("ds_write_b32 v1, v0\nds_read_b32 v2, v1\n{other}\ns_waitcnt lgkmcnt(1)\nv_mov_b32_e32 v4, v2")
    };
    on("gfx906").passes(&mixed("ds_write_b32 v1, v0 offset:1024"));
    on("gfx906").fails(&mixed("s_load_dword s4, s[8:9], 0x0"), &["v2 is used before a wait for ds_read_b32"]);
    // gfx12 has a counter for each, and loads may fill a register in any order.
    let split = |wait: &str| {
        format!("ds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_load_b32 s4, s[8:9], 0x0\n{wait}\nv_mov_b32_e32 v4, v2")
    };
    on("gfx1201").passes(&split("s_wait_dscnt 0x0"));
    on("gfx1201").fails(&split("s_wait_kmcnt 0x0"), &["v2 is used before a wait for ds_load_b32"]);
    let again = "global_load_b32 v2, v1, s[8:9]\nglobal_load_b32 v2, v1, s[8:9] offset:4";
    on("gfx1100").passes(again);
    on("gfx1201").fails(again, &["v2 is used before a wait for global_load_b32 (vm counter)"]);
}

#[test]
fn loads_to_lds_before_their_wait() {
    let body = |load: &str, wait: &str, read: &str| {
        format!(
            "s_mov_b32 s12, s8\ns_mov_b32 s13, s9\ns_mov_b32 s14, 0x1000\ns_mov_b32 s15, 0x20000\n\
             s_mov_b32 m0, 0\ns_nop 0\n{load}\n{wait}\n{read}"
        )
    };
    let buffer = "buffer_load_dword v1, s[12:15], 0 offen lds";
    let read = "ds_read_b32 v2, v1";
    for (target, load) in
        [("gfx906", buffer), ("gfx90a", buffer), ("gfx942", buffer), ("gfx942", "global_load_lds_dword v1, s[8:9]")]
    {
        on(target).passes(&body(load, "s_waitcnt vmcnt(0)", read));
        let no_m0 = body(load, "s_waitcnt vmcnt(0)", read).replace("s_mov_b32 m0, 0\n", "");
        on(target).fails(&no_m0, &["m0 is read but was never written"]);
        let name = load.split(' ').next().unwrap();
        let report = [&format!("LDS at 0x0 is used before a wait for {name} (vm counter)"), "ds_read_b32", "lane 0"];
        on(target).fails(&body(load, "", read), &report);
        // Another wave reads behind the barrier.
        let other = "s_barrier\nv_xor_b32_e32 v1, 0x100, v1\nds_read_b32 v2, v1";
        let lds = format!(
            "v_and_b32_e32 v3, 64, v0\ns_nop 0\nv_readfirstlane_b32 s20, v3\ns_lshl_b32 m0, s20, 2\ns_nop 0\n{load}"
        );
        on(target).waves(2).passes(&body(&lds, "s_waitcnt vmcnt(0)", other));
        on(target).waves(2).fails(&body(&lds, "", other), &["LDS race at 0x100 with wave 1"]);
    }
}

#[test]
fn races_in_lds() {
    let exchange =
        |between: &str| format!("ds_write_b32 v1, v0\n{between}\nv_xor_b32_e32 v1, 0x100, v1\nds_read_b32 v2, v1");
    let two = || on("gfx906").waves(2);
    two().passes(&exchange("s_waitcnt lgkmcnt(0)\ns_barrier"));
    // The write may still be on its way when the barrier is passed.
    two()
        .fails(&exchange("s_barrier"), &["LDS race at 0x100 with wave 1: no barrier", "ds_read_b32", "wave 0, lane 0"]);
    let same = "v_mov_b32_e32 v2, 0\nds_write_b32 v2, v0";
    two().fails(same, &["LDS race at 0x0 with wave 0", "wave 1, lane 0"]);
    let atomics = "v_mov_b32_e32 v2, 0\nds_write_b32 v2, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_add_u32 v2, v0";
    two().fails(atomics, &["LDS race at 0x0 with wave 0", "ds_write_b32"]);
}

/// A counter of 15 that is full makes a wave wait for the oldest of its operations, which are done in order: 15 stores behind one, and it
/// is done without a wait in front of the barrier. (The static verifier asks for one all the same.)
#[test]
fn a_full_counter_waits_for_the_oldest_store() {
    let exchange = |behind: usize, read: &str| {
        let others = "ds_write_b32 v1, v0 offset:512\n".repeat(behind);
        format!("ds_write_b32 v1, v0\n{others}s_barrier\nv_xor_b32_e32 v1, 0x100, v1\nds_read_b32 v2, v1{read}")
    };
    for target in ["gfx906", "gfx90a", "gfx942"] {
        on(target)
            .waves(2)
            .passes(&exchange(15, ""))
            .fails(&exchange(14, ""), &["LDS race at 0x100 with wave 1"])
            .fails(&exchange(15, " offset:512"), &["LDS race at 0x300 with wave 1"]);
    }
    // Here it counts to 63.
    on("gfx1100").waves(2).fails(&exchange(15, "").replace("0x100", "0x80"), &["LDS race at 0x80 with wave 1"]);
}

#[test]
fn races_in_memory() {
    // Each wave writes its own words and reads those of the other.
    let exchange = |between: &str| {
        format!(
            "global_store_dword v1, v0, s[8:9]\n{between}\nv_xor_b32_e32 v1, 0x100, v1\nglobal_load_dword v2, v1, s[8:9]"
        )
    };
    let two = || on("gfx906").waves(2);
    two().passes(&exchange("s_waitcnt vmcnt(0)\ns_barrier"));
    let report = ["memory race at 0x", "with wave 0 of workgroup (0, 0, 0): nothing orders", "wave 1, lane 0"];
    two().fails(&exchange("s_waitcnt vmcnt(0)"), &report);
    // A workgroup shares a first-level cache, which keeps the order, except in WGP mode.
    let shared = exchange("s_barrier");
    two().passes(&shared);
    let rdna = |wgp_mode| Launch { wgp_mode, ..on("gfx1030").waves(4) };
    let exchange = "global_store_dword v1, v0, s[8:9]\nWAIT\ns_barrier\nv_xor_b32_e32 v1, 0x100, v1\nglobal_load_dword v2, v1, s[8:9]";
    rdna(false).passes(&exchange.replace("WAIT", ""));
    rdna(true).passes(&exchange.replace("WAIT", "s_waitcnt_vscnt null, 0x0"));
    rdna(true).fails(&exchange.replace("WAIT", ""), &["memory race at 0x", "with wave 2 of workgroup (0, 0, 0)"]);
}

#[test]
fn races_between_workgroups() {
    let groups = || on("gfx906").groups(3);
    let report = ["memory race at 0x", "of workgroup (", "nothing orders the accesses", "lane 0"];
    // All write the same words; each its own; one reads what the next writes, with and without a barrier.
    groups().fails("global_store_dword v1, v0, s[8:9]", &report);
    let own = "s_lshl_b32 s4, s2, 8\nv_add_u32_e32 v1, s4, v1";
    groups().passes(&format!("{own}\nglobal_store_dword v1, v0, s[8:9]"));
    let next = format!(
        "{own}\nglobal_load_dword v2, v1, s[8:9] offset:256\ns_waitcnt vmcnt(0)\ns_barrier\nglobal_store_dword v1, v0, s[8:9]"
    );
    groups().fails(&next, &report);
    // Bytes of one word are apart.
    let bytes = "s_lshl_b32 s4, s2, 1\nv_mov_b32_e32 v1, s4\nglobal_store_short v1, v0, s[8:9]";
    on("gfx906").groups(2).passes(bytes);
    groups().fails(&bytes.replace("short", "dword"), &report[..2]);
    // Atomics meet; what is read after one was ordered by it.
    let atomic =
        "v_mov_b32_e32 v2, 0\nv_mov_b32_e32 v3, 1\nglobal_atomic_add v4, v2, v3, s[8:9] glc\ns_waitcnt vmcnt(0)";
    groups().passes(atomic);
    let after = format!("{own}\nglobal_store_dword v1, v0, s[8:9] offset:4\ns_waitcnt vmcnt(0)\n{atomic}");
    groups().passes(&format!("{after}\nglobal_load_dword v5, v2, s[8:9] offset:4"));
    let before = format!(
        "{own}\nglobal_store_dword v1, v0, s[8:9] offset:4\nv_mov_b32_e32 v2, 0\nglobal_load_dword v5, v2, s[8:9] offset:4"
    );
    groups().fails(&before, &["memory race at 0x", "global_load_dword v5"]);
    // A store that is not waited for when others are told: by the wave itself, or behind a barrier by another.
    let early = after.replacen("s_waitcnt vmcnt(0)\n", "", 1);
    let read = "\nglobal_load_dword v5, v2, s[8:9] offset:4";
    groups().fails(
        &format!("{early}{read}"),
        &["memory race at 0x", "global_load_dword v5", "wave 0 of workgroup (0, 0, 0)"],
    );
    let by_another = |wait: &str| {
        format!(
            "s_lshl_b32 s4, s2, 9\nv_add_u32_e32 v1, s4, v1\nglobal_store_dword v1, v0, s[8:9]\n{wait}s_barrier\n\
             v_readfirstlane_b32 s5, v0\ns_cmp_lg_u32 s5, 0\ns_cbranch_scc1 rest\n{atomic}\n\
             global_load_dword v5, v2, s[8:9] offset:256\nrest:"
        )
    };
    on("gfx906")
        .waves(2)
        .groups(3)
        .passes(&by_another("s_waitcnt vmcnt(0)\n"))
        .fails(&by_another(""), &["memory race at 0x", "global_load_dword v5", "wave 1 of workgroup (0, 0, 0)"]);
    // A scalar load is an access like any other.
    let scalar = format!("{own}\nglobal_store_dword v1, v0, s[8:9]\ns_load_dword s5, s[8:9], 0x0");
    groups().fails(&scalar, &["memory race at 0x", "s_load_dword s5"]);
}

#[test]
fn gaps_between_instructions() {
    // Wait states.
    let lane = |states: u32| format!("v_readfirstlane_b32 s4, v0\ns_nop {}\nv_readlane_b32 s5, v0, s4", states - 1);
    on("gfx906").passes(&lane(4));
    let report = ["4 wait states needed after v_readfirstlane_b32 s4, v0, 3 found", "`v_readlane_b32 s5, v0, s4`"];
    on("gfx906").fails(&lane(3), &report);
    // A transcendental result on gfx11.
    let exp = |between: &str| format!("v_exp_f32_e32 v2, v1\n{between}\nv_add_f32_e32 v3, v2, v2");
    on("gfx1100").fails(&exp(""), &["missing after v_exp_f32_e32 v2, v1: a wait for the vector ALU", "v_add_f32"]);
    for enough in [
        "s_waitcnt_depctr depctr_va_vdst(0)",
        "v_exp_f32_e32 v4, v1\nv_exp_f32_e32 v4, v1",
        "ds_store_b32 v1, v0",
        "v_nop\nv_nop\nv_nop\nv_nop\nv_nop",
    ] {
        on("gfx1100").passes(&exp(enough));
    }
    on("gfx1100").fails(&exp("s_waitcnt_depctr depctr_sa_sdst(0)\nv_nop"), &["a wait for the vector ALU"]);
    on("gfx1030").passes(&exp(""));
    // Lanes swapped right after EXEC was compared.
    let swap = |between: &str| format!("v_cmpx_ge_u32_e32 v0, v0\n{between}\nv_permlane16_b32 v2, v0, s4, s4");
    let swap = |between: &str| format!("s_mov_b32 s4, 0\n{}", swap(between));
    on("gfx1100").fails(&swap(""), &["missing after v_cmpx_ge_u32_e32 ", "1 vector instructions"]);
    on("gfx1100").passes(&swap("v_mov_b32_e32 v3, v0"));
    // gfx12: a scalar register that a vector instruction has read is written and read again.
    let again = |between: &str| format!("v_mov_b32_e32 v2, s9\ns_mov_b32 s9, 5\n{between}\nv_mov_b32_e32 v3, s9");
    let report = ["missing after the write of s9: sa_sdst", "`v_mov_b32_e32 v3, s9`"];
    on("gfx1201").fails(&again(""), &report);
    on("gfx1201").fails(&again("v_nop\nv_nop\nv_nop"), &report);
    on("gfx1201").passes(&again("s_wait_alu depctr_sa_sdst(0)"));
    on("gfx1100").passes(&again(""));
}

/// Memory that was freed is not given out again at once, and a kernel that still uses it is told so.
#[test]
fn freed_memory() {
    let t = Target::GFX906;
    let text = "s_load_dwordx2 s[2:3], s[0:1], 0x0\nv_mov_b32 v0, 0\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v0, v0, s[2:3]\ns_endpgm\n";
    let code = assemble(t, Mode::of(t), text).unwrap().sections[0].bytes.clone();
    let mut k = Kernel::new(t, "k", code);
    (k.vgprs, k.sgprs, k.kernarg_size) = (4, 16, 8);
    let file = CodeObject { target: t, abi: Abi::V5, kernels: vec![k], sections: vec![] };
    let device = EmuDevice::with_memory(t, 1 << 30).unwrap();
    let module = device.load(&file.to_bytes().unwrap()).unwrap();
    let kernel = module.kernel("k").unwrap();
    let options = LaunchOptions { strict: true, ..LaunchOptions::default() };
    let launch = |at: u64| device.launch(&kernel, [1; 3], [64, 1, 1], &at.to_le_bytes(), &options);
    let first = device.alloc(64).unwrap();
    launch(first).unwrap();
    device.free(first).unwrap();
    let second = device.alloc(64).unwrap();
    assert_ne!(first, second);
    launch(second).unwrap();
    let fault = launch(first).unwrap_err().to_string();
    assert!(fault.contains("store of 4 bytes") && fault.contains("byte 0 of 64"), "{fault}");
    assert!(fault.contains("freed before"), "{fault}");
}
