//! Workgroups of a launch that wait for each other.

use crate::support::machine::target;
use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::{EmuDevice, Fault, FaultKind, LaunchOptions, LaunchStats};
use barewave_isa::{Mode, parse};
use std::time::{Duration, Instant};

/// Workgroups of a team, and teams.
const TEAM: u32 = 64;
const TEAMS: u32 = 32;

/// Waits until the dword at v3 behind s[4:5] is not zero; it is in v4 then.
const WAIT: [&str; 4] =
    ["global_load_dword v4, v3, s[4:5] glc", "s_waitcnt vmcnt(0)", "v_cmp_eq_u32 vcc, 0, v4", "s_cbranch_vccnz -5"];

/// Launches a kernel for gfx906 with the address of two dwords for each workgroup in s[4:5], a byte of its first one in s6 and v1, and
/// of those of the last one of its team in s7; gives the dwords.
fn launch(body: &[&str], options: &LaunchOptions) -> Result<(Vec<u32>, LaunchStats), Fault> {
    let t = target("gfx906");
    let before = [
        "s_load_dwordx2 s[4:5], s[0:1], 0x0",
        "s_lshl_b32 s6, s2, 3",
        "s_or_b32 s7, s6, 0x1f8",
        "v_mov_b32 v1, s6",
        "v_mov_b32 v2, 1",
        "s_waitcnt lgkmcnt(0)",
    ];
    let mut code = Vec::new();
    for line in before.iter().chain(body).chain(&["s_endpgm"]) {
        let raw = parse(t, Mode::of(t), line).unwrap_or_else(|e| panic!("{line}: {}", e.message));
        code.extend_from_slice(&raw.bytes());
    }
    let mut k = Kernel::new(t, "k", code);
    (k.vgprs, k.sgprs, k.kernarg_size, k.workgroup_ids) = (8, 16, 8, [true, false, false]);
    let elf = CodeObject { target: t, abi: Abi::V5, kernels: vec![k], sections: vec![] }.to_bytes().unwrap();
    let device = EmuDevice::with_memory(t, 1 << 24).unwrap();
    let module = device.load(&elf).unwrap();
    let groups = TEAM * TEAMS;
    let mut bytes = vec![0; 8 * groups as usize];
    let at = device.alloc(bytes.len() as u64).unwrap();
    device.write(at, &bytes).unwrap();
    let stats = device.launch(&module.kernel("k").unwrap(), [groups, 1, 1], [64, 1, 1], &at.to_le_bytes(), options)?;
    device.read(at, &mut bytes).unwrap();
    Ok((bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect(), stats))
}

/// All of a team meet, and then each waits for the one behind it: as long as its thread has few of them under way nothing goes on.
#[test]
fn workgroups_that_wait_for_those_behind_them_cost_little() {
    let mut body = vec!["global_store_dword v1, v2, s[4:5] glc", "v_mov_b32 v3, s7"];
    body.extend(WAIT);
    // The last one's second dword is 1, each other one's is 1 more than that of the one behind it.
    body.extend(["v_mov_b32 v4, 0", "v_add_u32 v3, 12, v1", "s_cmp_eq_u32 s6, s7", "s_cbranch_scc1 5"]);
    body.extend(WAIT);
    body.extend(["v_add_u32 v4, 1, v4", "global_store_dword v1, v4, s[4:5] offset:4 glc"]);
    let want: Vec<u32> = (0..TEAM * TEAMS).flat_map(|group| [1, TEAM - group % TEAM]).collect();
    // The last of a team has nobody behind it.
    let (all, waits_twice) = (6 + 2 + 4 + 4 + 2 + 1, 4);
    let instructions = u64::from(TEAM * TEAMS) * all + u64::from((TEAM - 1) * TEAMS) * waits_twice;
    for (strict, single_thread) in [(false, true), (true, true), (false, false), (true, false)] {
        // How much other threads let one wait is not the same on every run.
        let most = if single_thread { 1 << 13 } else { LaunchOptions::default().max_instructions };
        let options = LaunchOptions { strict, single_thread, max_instructions: most, ..LaunchOptions::default() };
        let (got, stats) = launch(&body, &options).unwrap_or_else(|f| panic!("{f}"));
        assert!(got == want, "strict: {strict}, single_thread: {single_thread}");
        // It is not counted.
        assert_eq!(stats.instructions, instructions);
    }
}

#[test]
fn who_waits_for_nobody_is_stopped() {
    let mut body = vec!["v_mov_b32 v3, s7"];
    body.extend(WAIT);
    let soon = || Some(Instant::now() + Duration::from_millis(20));
    for (strict, single_thread) in [(false, true), (true, false)] {
        let options = LaunchOptions { strict, single_thread, deadline: soon(), ..LaunchOptions::default() };
        assert_eq!(launch(&body, &options).unwrap_err().kind, FaultKind::Timeout);
        let options = LaunchOptions { strict, single_thread, max_instructions: 1 << 12, ..LaunchOptions::default() };
        assert_eq!(launch(&body, &options).unwrap_err().kind, FaultKind::InstructionLimit(1 << 12));
    }
}
