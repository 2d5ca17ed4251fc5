//! The emulated device on code made by our own encoder: modifiers, faults and strict mode. Needs no other tool.

use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::observe::{AccessSpace, LaneAccess, Loop, Observer, Step, Verdict};
use barewave::emu::{EmuDevice, Fault, FaultKind, LaunchOptions, Module};
use barewave_isa::{Inst, ModName, Op, Operand, Regs, Target, encode, op};
use pretty_assertions::assert_eq;

fn v(n: u16) -> Operand {
    Operand::Regs(Regs::v(n, 1))
}
fn vs(n: u16, dwords: u8) -> Operand {
    Operand::Regs(Regs::v(n, dwords))
}
fn ss(n: u16, dwords: u8) -> Operand {
    Operand::Regs(Regs::s(n, dwords))
}
fn imm(x: u64) -> Operand {
    Operand::Imm(x)
}
fn i(op: Op, dsts: &[Operand], srcs: &[Operand]) -> Inst {
    Inst::new(op, dsts, srcs)
}
fn with(mut inst: Inst, mods: &[(ModName, i32)]) -> Inst {
    for &(m, x) in mods {
        inst.mods.set(m, x);
    }
    inst
}

/// Waits for everything outstanding.
fn wait_all(t: Target) -> Vec<Inst> {
    let all: Vec<_> = t.info().counters.iter().map(|c| (c.counter, 0)).collect();
    t.encode_waits(&all).into_iter().collect()
}

struct Setup {
    target: Target,
    lds: u32,
    groups: u32,
    block: u32,
    options: LaunchOptions,
}

fn setup(target: Target) -> Setup {
    Setup { target, lds: 1024, groups: 1, block: target.info().wave_size, options: LaunchOptions::default() }
}

fn strict(target: Target) -> Setup {
    let s = setup(target);
    Setup { options: LaunchOptions { strict: true, ..s.options }, ..s }
}

/// A kernel "k" that executes `body` with the argument, an address, in s[8:9] and 4 bytes per workitem in v1 and v2, and stores v4 there.
fn loaded(s: &Setup, body: &[Inst]) -> (EmuDevice, Module) {
    let t = s.target;
    let mut code = Vec::new();
    let mut put = |inst: &Inst| {
        encode(t, inst, &mut code).unwrap_or_else(|e| panic!("{}: {e}", inst.op));
    };
    // The kernel argument pointer is s[0:1]; the argument is the output's address.
    put(&i(op::S_LOAD_DWORDX2, &[ss(8, 2)], &[ss(0, 2), imm(0)]));
    wait_all(t).iter().for_each(&mut put);
    put(&i(op::V_AND_B32, &[v(0)], &[imm(0x3ff), v(0)]));
    put(&i(op::V_LSHLREV_B32, &[v(1)], &[imm(2), v(0)]));
    put(&i(op::V_MOV_B32, &[v(2)], &[v(1)]));
    body.iter().for_each(&mut put);
    wait_all(t).iter().for_each(&mut put);
    for _ in 0..2 {
        put(&i(op::S_NOP, &[], &[imm(7)]));
    }
    put(&i(op::GLOBAL_STORE_DWORD, &[], &[v(2), v(4), ss(8, 2)]));
    put(&i(op::S_ENDPGM, &[], &[imm(0)]));
    let mut k = Kernel::new(t, "k", code);
    (k.vgprs, k.sgprs, k.lds_bytes, k.kernarg_size, k.workgroup_ids) = (32, 32, s.lds, 8, [false; 3]);
    let file = CodeObject { target: t, abi: Abi::V5, kernels: vec![k], sections: vec![] };
    let device = EmuDevice::with_memory(t, 1 << 30).unwrap();
    let module = device.load(&file.to_bytes().unwrap()).unwrap();
    (device, module)
}

/// Runs `body` in such a kernel, and gives what is stored.
fn run(s: &Setup, body: &[Inst]) -> Result<Vec<u32>, Fault> {
    let (device, module) = loaded(s, body);
    let out = device.alloc(4 * s.block as u64).unwrap();
    device.launch(&module.kernel("k").unwrap(), [s.groups, 1, 1], [s.block, 1, 1], &out.to_le_bytes(), &s.options)?;
    let mut bytes = vec![0; 4 * s.block as usize];
    device.read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect())
}

fn targets() -> Vec<Target> {
    ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"].map(|n| Target::parse(n).unwrap()).to_vec()
}

fn lane0(t: Target, body: &[Inst]) -> f32 {
    f32::from_bits(run(&setup(t), body).unwrap_or_else(|f| panic!("{f}"))[0])
}

/// A SIMD's registers are what a workgroup's waves share, emulated or not.
#[test]
fn a_workgroup_that_no_compute_unit_holds_is_not_launched() {
    for (target, most) in [(Target::GFX906, 256), (Target::GFX1030, 256), (Target::GFX942, 512)] {
        let mut code = Vec::new();
        encode(target, &i(op::S_ENDPGM, &[], &[imm(0)]), &mut code).unwrap();
        let mut k = Kernel::new(target, "wide", code);
        (k.vgprs, k.max_flat_workgroup_size) = (256, 1024);
        let file = CodeObject { target, abi: Abi::V5, kernels: vec![k], sections: vec![] };
        let device = EmuDevice::with_memory(target, 1 << 20).unwrap();
        let module = device.load(&file.to_bytes().unwrap()).unwrap();
        let kernel = module.kernel("wide").unwrap();
        let launch = |block| device.launch(&kernel, [1; 3], [block, 1, 1], &[], &LaunchOptions::default());
        launch(most).unwrap();
        let refused = launch(2 * most).unwrap_err();
        assert!(matches!(refused.kind, FaultKind::Launch(_)), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("vector registers of one, which has") && text.contains("kernel `wide`"), "{text}");
    }
}

#[test]
fn source_and_output_modifiers() {
    for t in targets() {
        let base = [i(op::V_MOV_B32, &[v(5)], &[Operand::f32(-3.0)]), i(op::V_MOV_B32, &[v(6)], &[Operand::f32(0.5)])];
        let f = |inst: Inst| {
            let mut b = base.to_vec();
            b.push(inst);
            lane0(t, &b)
        };
        let add = i(op::V_ADD_F32, &[v(4)], &[v(5), v(6)]);
        assert_eq!(f(add.clone()), -2.5);
        assert_eq!(f(with(add.clone(), &[(ModName::Neg, 1)])), 3.5);
        assert_eq!(f(with(add.clone(), &[(ModName::Abs, 1)])), 3.5);
        assert_eq!(f(with(add.clone(), &[(ModName::Abs, 1), (ModName::Neg, 3)])), -3.5);
        // Output modifiers work only where denormals are flushed and IEEE mode is off.
        assert_eq!(f(with(add.clone(), &[(ModName::Omod, 1)])), -2.5);
        let flushing = |inst: Inst| {
            let mode = |from: u64, n: u64| imm(1 | from << 6 | (n - 1) << 11);
            let mut b = vec![
                i(op::S_SETREG_IMM32_B32, &[], &[mode(4, 2), imm(0)]),
                i(op::S_SETREG_IMM32_B32, &[], &[mode(9, 1), imm(0)]),
            ];
            b.extend(base.iter().cloned());
            b.push(inst);
            lane0(t, &b)
        };
        assert_eq!(flushing(with(add.clone(), &[(ModName::Omod, 1)])), -5.0);
        assert_eq!(flushing(with(add.clone(), &[(ModName::Omod, 3)])), -1.25);
        assert_eq!(f(with(add.clone(), &[(ModName::Clamp, 1)])), 0.0);
        assert_eq!(f(with(add, &[(ModName::Neg, 1), (ModName::Clamp, 1)])), 1.0);
        let fma = i(op::V_FMA_F32, &[v(4)], &[v(5), v(6), Operand::f32(4.0)]);
        assert_eq!(f(fma.clone()), 2.5);
        assert_eq!(f(with(fma, &[(ModName::Neg, 4)])), -5.5);
        let max = i(op::V_MAX_F32, &[v(4)], &[v(5), v(6)]);
        assert_eq!(f(max), 0.5);
    }
}

#[test]
fn data_parallel_primitives() {
    let t = Target::GFX906;
    let mov = |mods: &[(ModName, i32)]| {
        let body = [
            i(op::V_MOV_B32, &[v(4)], &[imm(1000)]),
            i(op::S_NOP, &[], &[imm(1)]),
            with(i(op::V_MOV_B32, &[v(4)], &[v(0)]), mods),
        ];
        run(&strict(t), &body).unwrap_or_else(|f| panic!("{f}"))
    };
    // row_shr:1 keeps the old value where there is no source lane.
    let r = mov(&[(ModName::DppCtrl, 0x111)]);
    assert_eq!(r[..18], [1000, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 1000, 16]);
    let r = mov(&[(ModName::DppCtrl, 0x111), (ModName::BoundCtrl, 1)]);
    assert_eq!((r[0], r[16], r[17]), (0, 0, 16));
    // quad_perm:[3,2,1,0], mirror, row mask.
    assert_eq!(mov(&[(ModName::DppCtrl, 0x1b)])[..4], [3, 2, 1, 0]);
    assert_eq!(mov(&[(ModName::DppCtrl, 0x140)])[..2], [15, 14]);
    let r = mov(&[(ModName::DppCtrl, 0x1b), (ModName::RowMask, 2)]);
    assert_eq!((r[0], r[16], r[32]), (1000, 19, 1000));
    // SDWA: a byte of the source into the upper word, the rest preserved.
    let body = [
        i(op::V_MOV_B32, &[v(5)], &[imm(0x8099_5511)]),
        i(op::V_MOV_B32, &[v(4)], &[imm(0x1234_5678)]),
        with(
            i(op::V_MOV_B32, &[v(4)], &[v(5)]),
            &[(ModName::Src0Sel, 3), (ModName::DstSel, 5), (ModName::DstUnused, 2)],
        ),
    ];
    assert_eq!(run(&setup(t), &body).unwrap()[0], 0x0080_5678);
}

#[test]
fn denormals_follow_the_mode() {
    for t in targets() {
        let tiny = f32::from_bits(0x0040_0000);
        let body = |mode: u64| {
            vec![
                // MODE bits 7:4: all denormals kept, or those of f32 flushed.
                i(op::S_SETREG_IMM32_B32, &[], &[imm(1 | 4 << 6 | 3 << 11), imm(mode)]),
                i(op::V_MOV_B32, &[v(5)], &[Operand::f32(tiny)]),
                i(op::S_NOP, &[], &[imm(1)]),
                i(op::V_ADD_F32, &[v(4)], &[v(5), v(5)]),
            ]
        };
        assert_eq!(lane0(t, &body(0xf)), tiny + tiny, "{t} keeps");
        assert_eq!(lane0(t, &body(0xc)), 0.0, "{t} flushes");
    }
}

#[test]
fn faults_name_the_place() {
    for t in targets() {
        // A wild address.
        let body = [
            i(op::V_MOV_B32, &[v(10)], &[imm(0x1234_5678)]),
            i(op::V_MOV_B32, &[v(11)], &[imm(0)]),
            i(op::GLOBAL_LOAD_DWORD, &[v(4)], &[vs(10, 2), Operand::Off]),
        ];
        let f = run(&setup(t), &body).unwrap_err();
        assert_eq!(f.kind, FaultKind::OutOfBounds { addr: 0x1234_5678, size: 4, store: false });
        assert_eq!((f.kernel.as_str(), f.wave, f.lane), ("k", 0, Some(0)));
        let text = f.to_string();
        assert!(
            text.contains("global_load") && text.contains("pc 0x") && text.contains("workgroup (0, 0, 0)"),
            "{text}"
        );
        // LDS beyond the workgroup's.
        let body = [i(op::V_MOV_B32, &[v(5)], &[imm(1022)]), i(op::DS_WRITE_B32, &[], &[v(5), v(0)])];
        let f = run(&setup(t), &body).unwrap_err();
        assert_eq!(f.kind, FaultKind::LdsOutOfBounds { addr: 1022, size: 4, limit: 1024 });
        // An endless loop.
        let s = Setup { options: LaunchOptions { max_instructions: 100_000, ..Default::default() }, ..setup(t) };
        let f = run(&s, &[i(op::S_BRANCH, &[], &[imm(u64::MAX)])]).unwrap_err();
        assert_eq!(f.kind, FaultKind::InstructionLimit(100_000));
    }
}

#[test]
fn strict_mode_reports_what_hardware_leaves_undefined() {
    for t in targets() {
        let address = i(op::V_LSHLREV_B32, &[v(5)], &[imm(2), v(0)]);
        // An undefined value may be moved, but not stored.
        let f = run(&strict(t), &[i(op::V_ADD_U32, &[v(4)], &[v(20), v(0)])]).unwrap_err();
        assert_eq!(f.kind, FaultKind::UndefinedRegister("v4".into()), "{t}");
        // More registers than the kernel allocates.
        let f = run(&strict(t), &[i(op::V_MOV_B32, &[v(4)], &[v(99)])]).unwrap_err();
        assert!(f.to_string().contains("v99 is used, the kernel allocates 32 VGPRs"), "{f}");
        // LDS that nobody wrote.
        let body = [address.clone(), i(op::DS_READ_B32, &[v(4)], &[v(5)])];
        let f = run(&strict(t), &body).unwrap_err();
        assert_eq!(f.kind, FaultKind::UninitialisedRead { space: "LDS", addr: 0 }, "{t}");
        // A result before its wait, by reading and by overwriting.
        let write = i(op::DS_WRITE_B32, &[], &[v(5), v(0)]);
        let read = i(op::DS_READ_B32, &[v(4)], &[v(5)]);
        let mut body = vec![address.clone(), write.clone(), read.clone()];
        assert_eq!(run(&strict(t), &body).unwrap()[7], 7, "{t}");
        body.push(i(op::V_ADD_U32, &[v(4)], &[v(4), v(0)]));
        let f = run(&strict(t), &body).unwrap_err();
        assert!(matches!(&f.kind, FaultKind::MissingWait { register, .. } if register == "v4"), "{f}");
        // A race: every wave writes the same bytes.
        let s = Setup { block: 4 * t.info().wave_size, ..strict(t) };
        let same = [i(op::V_MOV_B32, &[v(5)], &[imm(0)]), write.clone(), i(op::V_MOV_B32, &[v(4)], &[v(0)])];
        let f = run(&s, &same).unwrap_err();
        assert_eq!(f.kind, FaultKind::LdsRace { addr: 0, other_wave: Some(0) }, "{t}");
        assert!(f.wave > 0);
        // Past the end of an allocation but inside of memory.
        let body = [
            i(op::V_MOV_B32, &[v(5)], &[imm(300)]),
            i(op::V_MOV_B32, &[v(4)], &[v(0)]),
            i(op::GLOBAL_STORE_DWORD, &[], &[v(5), v(0), ss(8, 2)]),
        ];
        assert!(run(&setup(t), &body).is_ok());
        let f = run(&strict(t), &body).unwrap_err();
        assert!(matches!(f.kind, FaultKind::OutOfBounds { store: true, .. }), "{f}");
    }
    // Wait states: an SGPR written by the VALU and used as lane select needs four on gfx9.
    let t = Target::GFX906;
    let body = |states: u64| {
        vec![
            i(op::V_READFIRSTLANE_B32, &[ss(10, 1)], &[v(0)]),
            i(op::S_NOP, &[], &[imm(states - 1)]),
            i(op::V_READLANE_B32, &[ss(11, 1)], &[v(0), ss(10, 1)]),
            i(op::V_MOV_B32, &[v(4)], &[ss(11, 1)]),
        ]
    };
    assert!(run(&strict(t), &body(4)).is_ok());
    let f = run(&strict(t), &body(3)).unwrap_err();
    assert!(matches!(f.kind, FaultKind::MissingWaitStates { need: 4, have: 3, .. }), "{f}");
}

/// Where lanes go, by instruction.
#[derive(Default)]
struct Places(Vec<Vec<LaneAccess>>);

impl Observer for Places {
    fn begin(&mut self, _workgroup: [u32; 3], _waves: u32) {}
    fn before(&mut self, step: &Step) -> Verdict {
        if step.space() == AccessSpace::Memory {
            let mut lanes = Vec::new();
            step.touches(&mut lanes);
            self.0.push(lanes);
        }
        Verdict::Run
    }
    fn jumped_back(&mut self, _wave: u32, _times: u64) {}
}

/// Leaves out a loop's rounds behind the first two of each wave.
struct Shortens {
    first: usize,
    last: usize,
    /// How often each wave came to the loop's beginning, and to the instruction behind it, watched.
    seen: Vec<[u32; 2]>,
    jumps: u64,
}

impl Observer for Shortens {
    fn begin(&mut self, _workgroup: [u32; 3], waves: u32) {
        self.seen = vec![[0; 2]; waves as usize];
    }
    fn before(&mut self, step: &Step) -> Verdict {
        let seen = &mut self.seen[step.wave as usize];
        seen[0] += u32::from(step.index == self.first);
        seen[1] += u32::from(step.index == self.last + 1);
        let within = (self.first..=self.last).contains(&step.index);
        match within && seen[0] > 2 {
            true => Verdict::Through(Loop { first: self.first, last: self.last, full: false }),
            false => Verdict::Run,
        }
    }
    fn jumped_back(&mut self, _wave: u32, times: u64) {
        self.jumps += times;
    }
}

#[test]
fn waves_do_not_meet_in_rounds_that_are_left_out() {
    for t in targets() {
        let s = Setup { block: 2 * t.info().wave_size, ..setup(t) };
        let count = Operand::Regs(Regs::s(16, 1));
        let meet = match t.has(op::S_BARRIER) {
            true => vec![i(op::S_BARRIER, &[], &[])],
            false => vec![
                i(op::S_BARRIER_SIGNAL, &[], &[Operand::Imm(-1i32 as u32 as u64)]),
                i(op::S_BARRIER_WAIT, &[], &[imm(0xffff)]),
            ],
        };
        let round =
            [meet, vec![i(op::S_SUB_U32, &[count], &[count, imm(1)]), i(op::S_CMP_LG_U32, &[], &[count, imm(0)])]]
                .concat();
        let mut body = vec![i(op::S_MOV_B32, &[count], &[imm(50)])];
        body.extend(round.iter().cloned());
        body.push(i(op::S_CBRANCH_SCC1, &[], &[imm(0xffff - round.len() as u64)]));
        // What is in front of the body.
        let first = 1 + wait_all(t).len() + 3 + 1;
        let last = first + round.len();
        let mut shortens = Shortens { first, last, seen: Vec::new(), jumps: 0 };
        let (device, module) = loaded(&s, &body);
        let out = device.alloc(4 * s.block as u64).unwrap();
        let kernel = module.kernel("k").unwrap();
        let stats = device
            .observe(&kernel, [1, 1, 1], [s.block, 1, 1], &out.to_le_bytes(), &s.options, &[0], &mut shortens)
            .unwrap();
        // Once more, and the wave is through: 47 rounds behind that one.
        assert_eq!((shortens.seen, shortens.jumps), (vec![[3, 1]; 2], 94), "{t}");
        // What was left out counts.
        let whole = device.launch(&kernel, [1, 1, 1], [s.block, 1, 1], &out.to_le_bytes(), &s.options).unwrap();
        assert_eq!(stats.instructions, whole.instructions, "{t}");
    }
}

#[test]
fn an_observer_is_shown_where_lanes_go_and_not_those_that_bounds_drop() {
    for t in targets() {
        let s = setup(t);
        let words3 = if t.info().wave_size == 64 { 0x27000 } else { 3 << 28 };
        // 128 bytes are less than 24 and 4 for each lane, 4096 are more.
        for records in [4096, 128] {
            let mut body = vec![
                i(op::S_MOV_B32, &[Operand::Regs(Regs::s(12, 1))], &[Operand::Regs(Regs::s(8, 1))]),
                i(op::S_MOV_B32, &[Operand::Regs(Regs::s(13, 1))], &[Operand::Regs(Regs::s(9, 1))]),
                i(op::S_MOV_B32, &[Operand::Regs(Regs::s(14, 1))], &[imm(records)]),
                i(op::S_MOV_B32, &[Operand::Regs(Regs::s(15, 1))], &[imm(words3)]),
                i(op::S_MOV_B32, &[Operand::Regs(Regs::s(16, 1))], &[imm(8)]),
            ];
            let load = i(op::BUFFER_LOAD_DWORD, &[v(4)], &[v(1), ss(12, 4), ss(16, 1)]);
            body.push(with(load, &[(ModName::Offen, 1), (ModName::Offset, 16)]));
            body.extend(wait_all(t));
            let (device, module) = loaded(&s, &body);
            let out = device.alloc(8192).unwrap();
            let mut places = Places::default();
            let kernel = module.kernel("k").unwrap();
            device
                .observe(&kernel, [1, 1, 1], [s.block, 1, 1], &out.to_le_bytes(), &s.options, &[0], &mut places)
                .unwrap();
            let lane =
                |first: u64| move |n: u32| LaneAccess { lane: n, address: out + first + 4 * u64::from(n), bytes: 4 };
            let within = |a: &LaneAccess| a.address + 4 <= out + records;
            let loaded: Vec<LaneAccess> = (0..s.block).map(lane(24)).filter(within).collect();
            assert_eq!(places.0, [loaded, (0..s.block).map(lane(0)).collect()], "{t}, {records} bytes");
        }
    }
}

#[test]
fn code_for_another_target_and_unknown_kernels_are_refused() {
    let k = Kernel::new(Target::GFX942, "k", 0xbf81_0000u32.to_le_bytes().to_vec());
    let file =
        CodeObject { target: Target::GFX942, abi: Abi::V5, kernels: vec![k], sections: vec![] }.to_bytes().unwrap();
    let device = EmuDevice::with_memory(Target::GFX1100, 1 << 28).unwrap();
    assert!(device.load(&file).err().unwrap().to_string().contains("for gfx942, the device is gfx1100"));
    let device = EmuDevice::with_memory(Target::GFX942, 1 << 28).unwrap();
    let module = device.load(&file).unwrap();
    assert!(module.kernel("q").err().unwrap().to_string().contains("it has: k"));
    let kernel = module.kernel("k").unwrap();
    let launch = |block| device.launch(&kernel, [1, 1, 1], block, &[], &LaunchOptions::default());
    assert!(launch([2048, 1, 1]).unwrap_err().to_string().contains("1 to 1024"));
    assert_eq!(launch([64, 4, 1]).unwrap().waves, 4);
    assert!(device.free(12345).is_err());
}

#[test]
fn same_launch_gives_the_same_bytes_on_any_number_of_threads() {
    let t = Target::GFX1100;
    let body = [
        i(op::V_LSHLREV_B32, &[v(5)], &[imm(2), v(0)]),
        i(op::DS_WRITE_B32, &[], &[v(5), v(0)]),
        i(op::V_MOV_B32, &[v(4)], &[v(0)]),
    ];
    let many = Setup { groups: 64, block: 128, ..setup(t) };
    let one = Setup {
        options: LaunchOptions { single_thread: true, ..Default::default() },
        groups: 64,
        block: 128,
        ..setup(t)
    };
    assert_eq!(run(&many, &body).unwrap(), run(&one, &body).unwrap());
}
