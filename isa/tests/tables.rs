//! Properties of the tables as a whole, and of the functions over them, for every target.

use barewave_isa::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Words that exercise every row: each row's own fixed bits with its free bits cleared, set and mixed.
fn samples(target: Target) -> Vec<(Encoding, Vec<u8>)> {
    encodings(target)
        .flat_map(|r| {
            [0u128, u128::MAX, 0x5a5a_c3c3_0f0f_3c3c_a5a5_3c3c_f0f0_c3c3].map(|fill| (r, r.with_free_bits(fill)))
        })
        .collect()
}

#[test]
fn what_packs_two_floats_is_no_slow_conversion() {
    for target in ["gfx906", "gfx942", "gfx950"] {
        let target = Target::parse(target).unwrap();
        let busy = |op: Op| target.op(op).unwrap().busy;
        assert_eq!((busy(op::V_CVT_PKRTZ_F16_F32), busy(op::V_CVT_F16_F32)), (4, 16));
        assert_eq!((busy(op::V_CVT_F32_UBYTE1), busy(op::V_CVT_F32_I32)), (4, 16));
    }
}

#[test]
fn no_opcode_is_claimed_twice_and_every_row_is_reached() {
    for target in Target::all() {
        let mut reached: BTreeMap<usize, bool> = BTreeMap::new();
        for (row, bytes) in samples(target) {
            let hit = reached.entry(row.index()).or_default();
            for (wave64, true16) in [(false, false), (false, true), (true, false), (true, true)] {
                let found = decode(target, Mode { wave64, true16 }, &bytes);
                *hit |= found.is_some_and(|r| r.table_row() == row);
            }
        }
        let modes = [(false, false), (false, true), (true, false), (true, true)];
        let missed: Vec<_> = encodings(target)
            .filter(|r| reached.get(&r.index()) != Some(&true))
            .filter(|r| {
                // fields that must name existing registers: any bits that do
                let mut seed = 1u128;
                !(0..2000).any(|_| {
                    seed = seed
                        .wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645)
                        .wrapping_add(0x5851_f42d_4c95_7f2d);
                    let bytes = r.with_free_bits(seed ^ seed >> 64);
                    modes.iter().any(|&(wave64, true16)| {
                        decode(target, Mode { wave64, true16 }, &bytes).is_some_and(|d| d.table_row() == *r)
                    })
                })
            })
            .map(|r| r.to_string())
            .collect();
        assert!(missed.is_empty(), "{target}: no bits reach {missed:?}");
        let twice = claimed_twice(target);
        assert!(twice.is_empty(), "{target}: the same bits belong to {twice:?}");
    }
}

#[test]
fn every_operation_of_a_target_has_properties() {
    for target in Target::all() {
        let mut n = 0;
        for op in (0..Op::COUNT as u16).map(Op).filter(|op| target.has(*op)) {
            let info = target.op(op).expect("has() said so");
            assert!(!info.name.is_empty());
            assert_eq!(Op::by_name(op.name()), Some(op));
            n += 1;
        }
        assert!(n > 800, "{target}: {n} operations");
    }
}

#[test]
fn targets_by_name_product_and_number() {
    assert_eq!(Target::parse("GFX942"), Ok(Target::GFX942));
    assert_eq!(Target::parse("mi300x"), Ok(Target::GFX942));
    let error = Target::parse("gfx943").unwrap_err().to_string();
    assert!(error.contains("gfx942"), "{error}");
    for t in Target::all() {
        assert_eq!(Target::by_elf_mach(t.info().elf_mach), Some(t));
        assert_eq!(Target::parse(&t.to_string()), Ok(t));
    }
}

/// Products are the same target with other units: every name leads back to itself.
#[test]
fn products_of_a_target() {
    for t in Target::all() {
        assert_eq!((t.name(), t.title(), t.cus()), (t.info().name, t.to_string(), t.info().cus));
        for name in t.info().products.iter().filter(|n| **n != t.info().code_name) {
            let product = Target::parse(name).unwrap();
            assert_eq!((product, product.name(), Target::parse(product.name())), (t, *name, Ok(t)));
            assert!(product.cus() > 0 && product.cus() <= t.info().cus, "{name}");
            assert_eq!(t.of_marketing_name(&format!("AMD Radeon(TM) {}", name.to_uppercase())).name(), *name);
        }
    }
    let cus = ["mi300x", "mi300a", "mi210", "radeonvii", "RX 6600", "rx7900gre", "strix-halo"];
    assert_eq!(cus.map(|n| Target::parse(n).unwrap().cus()), [304, 228, 104, 60, 28, 80, 40]);
    let named = |t: Target, name| t.of_marketing_name(name).name();
    assert_eq!(named(Target::GFX1100, "AMD Radeon RX 7900 XTX"), "rx7900xtx");
    assert_eq!(named(Target::GFX1100, "AMD Radeon RX 7900 XT"), "rx7900xt");
    assert_eq!(named(Target::GFX942, "AMD Instinct MI300A"), "mi300a");
    assert_eq!(named(Target::GFX1103, "AMD Radeon Graphics"), "gfx1103");
    let of_units = |t: Target, cus| t.of_units(cus).name();
    assert_eq!((of_units(Target::GFX942, 304), of_units(Target::GFX942, 228)), ("gfx942", "mi300a"));
    assert_eq!((of_units(Target::GFX803, 36), of_units(Target::GFX906, 7)), ("polaris", "gfx906"));
    assert_eq!(Target::parse("mi300a").unwrap().title(), "mi300a (gfx942)");
}

#[test]
fn waits_round_trip() {
    for target in Target::all() {
        for info in target.info().counters {
            for count in [0, 1, info.max / 2] {
                let insts = target.encode_waits(&[(info.counter, count)]);
                assert!(!insts.is_empty(), "{target} {:?}", info.counter);
                let back =
                    insts.iter().find_map(|i| target.decode_wait(i)?.iter().find(|w| w.0 == info.counter).copied());
                assert_eq!(back, Some((info.counter, count)), "{target}");
                for inst in &insts {
                    let mut bytes = Vec::new();
                    encode(target, inst, &mut bytes).expect("a wait encodes");
                }
            }
        }
    }
}

#[test]
fn errors_name_the_operand_and_the_column() {
    let mode = Mode::of(Target::GFX942);
    let error = parse(Target::GFX942, mode, "v_add_f32 v0, v1, vv2").unwrap_err();
    assert_eq!(error.column, 18, "{error}");
    let error = parse(Target::GFX942, mode, "v_ad_f32 v0, v1, v2").unwrap_err();
    assert!(error.message.contains("v_add_f32"), "{error}");
    let error = parse(Target::GFX942, mode, "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]").unwrap_err();
    assert!(error.message.contains("gfx1100"), "{error}");
    let error = parse(Target::GFX942, mode, "v_dual_mov_b32 v0, v1").unwrap_err();
    assert!(error.message.contains("it does on gfx1100"), "{error}");
    let error = parse(Target::GFX1100, Mode::of(Target::GFX1100), "v_dual_mov_b32 v0, v1").unwrap_err();
    assert!(error.message.contains("first half of a pair"), "{error}");
    let inst = Inst::new(
        op::V_ADD_F32,
        &[Regs::from(Reg::s(0)).into()],
        &[Regs::from(Reg::v(0)).into(), Regs::from(Reg::v(1)).into()],
    );
    let error = encode(Target::GFX942, &inst, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("vdst") && error.contains("VGPR"), "{error}");
}

#[test]
fn assembles_labels_symbols_and_kernels() {
    let source = "
        .amdgcn_target \"amdgcn-amd-amdhsa--gfx942\"
        .text
        .globl k
        .p2align 8
        .type k,@function
    .set count, 3
    k:
        s_mov_b32 s0, count * 2 // six
    loop:
        s_sub_u32 s0, s0, 1
        s_cmp_lg_u32 s0, 0
        s_cbranch_scc1 loop
        s_endpgm
    .Lend:
        .size k, .Lend-k
        .rodata
        .amdhsa_kernel k
            .amdhsa_next_free_vgpr 12
            .amdhsa_next_free_sgpr 8
            .amdhsa_accum_offset 12
        .end_amdhsa_kernel
    ";
    let target = Target::GFX942;
    let out = assemble(target, Mode::of(target), source).expect("assembles");
    let text = out.sections.iter().find(|s| s.name == ".text").expect(".text");
    let names = BTreeMap::from([(0, "k".to_string())]);
    let code = Disassembly::new(target, Mode::of(target), &text.bytes, &names, 0);
    let listing: Vec<String> = code
        .lines()
        .map(|l| {
            let mut text = l.label.map_or(String::new(), |name| format!("{name}: "));
            l.print(&mut text);
            text
        })
        .collect();
    assert_eq!(
        listing,
        ["k: s_mov_b32 s0, 6", ".L0: s_sub_u32 s0, s0, 1", "s_cmp_lg_u32 s0, 0", "s_cbranch_scc1 .L0", "s_endpgm"]
    );
    assert_eq!(out.kernels.len(), 1);
    let errors = assemble(target, Mode::of(target), "s_nop 0\n  s_nop zero\n s_branch nowhere\n").unwrap_err();
    assert_eq!(errors.iter().map(|e| e.line).collect::<Vec<_>>(), [2, 3]);
}

fn any_target() -> impl Strategy<Value = Target> {
    prop::sample::select(Target::all().collect::<Vec<_>>())
}

/// Bits that no instruction with halves of registers has are read with whole ones (as LLVM does), and whole registers
/// are encoded as low halves (as LLVM does too).
fn low_halves_as_whole(inst: &Inst) -> String {
    format!("{inst:?}").replace(".l)", ")")
}

#[test]
fn stray_bits_beside_halves_of_registers_mean_whole_ones() {
    let mode = Mode { wave64: false, true16: true };
    let read = |second: u8| decode(Target::GFX1100, mode, &[0, second, 0x32, 0xd5, 0, 0, 0, 0]).unwrap();
    assert_eq!(read(0x80).to_string(), "v_add_f16_e64 v0.l, s0, s0 clamp");
    assert_eq!(read(0xa0).to_string(), "v_add_f16_e64 v0, s0, s0 clamp");
    let again = encode_raw(Target::GFX1100, mode, read(0xa0).form(), &read(0xa0).inst()).unwrap();
    assert_eq!(again.bytes(), read(0x80).bytes());
}

/// Found by fuzzing: m0 stood for two registers and more.
#[test]
fn m0_is_one_register() {
    for target in Target::all() {
        let parsed = |line: &str| parse(target, Mode::of(target), line);
        assert!(parsed("s_mov_b32 s0, m0").is_ok() && parsed("s_mov_b32 m0, s0").is_ok(), "{target}");
        for line in [
            "s_mov_b64 s[0:1], m0",
            "s_mov_b64 m0, s[0:1]",
            "s_getpc_b64 m0",
            "s_load_dword s5, m0, 0x0",
            "s_load_dwordx2 m0, s[2:3], 0x0",
            "s_atomic_or s5, m0",
            "s_buffer_load_dword s5, m0, 0x0",
            "v_fma_f64 v[0:1], m0, v[0:1], v[0:1]",
            "global_load_dword v1, v2, m0",
        ] {
            assert!(parsed(line).is_err(), "{target}: {line}");
        }
    }
}

/// Found by fuzzing: constants and AGPRs stood for the index of a sparse product.
#[test]
fn the_index_of_a_sparse_product_is_a_vgpr() {
    for target in [Target::GFX942, Target::GFX950] {
        for d in ["v[10:13]", "a[10:13]"] {
            let line = |index: &str| format!("v_smfmac_f32_16x16x32_f16 {d}, a[2:3], v[4:7], {index}");
            assert!(parse(target, Mode::of(target), &line("v1")).is_ok(), "{target}");
            for index in ["a1", "1.0", "0", "s0", "m0", "vcc_lo", "v[0:1]", "off"] {
                assert!(parse(target, Mode::of(target), &line(index)).is_err(), "{target}: {}", line(index));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// Whatever the bytes are: no panic, and what decodes comes back from its typed form and prints.
    #[test]
    fn hostile_bytes(target in any_target(), bytes in prop::collection::vec(any::<u8>(), 0..24), wave64: bool, true16: bool) {
        let mode = Mode { wave64, true16 };
        if let Some(raw) = decode(target, mode, &bytes) {
            prop_assert!(raw.len() <= bytes.len());
            let inst = raw.inst();
            let _ = raw.to_string();
            if let Ok(again) = encode_raw(target, mode, raw.form(), &inst) {
                prop_assert_eq!(low_halves_as_whole(&again.inst()), low_halves_as_whole(&inst));
            }
        }
    }

    /// Text that is no assembly gives errors, not panics.
    #[test]
    fn hostile_text(target in any_target(), text in "[ -~\n]{0,60}") {
        let _ = assemble(target, Mode::of(target), &text);
    }
}

#[test]
fn every_row_survives_the_typed_form() {
    for target in Target::all() {
        for (row, bytes) in samples(target) {
            for (wave64, true16) in [(false, false), (true, true)] {
                let mode = Mode { wave64, true16 };
                let Some(raw) = decode(target, mode, &bytes) else { continue };
                let inst = raw.inst();
                let text = raw.to_string();
                assert!(!text.is_empty(), "{target} {row}");
                // registers that LLVM reads as whole ones come back as halves: another row
                if let Ok(again) = encode_raw(target, mode, raw.form(), &inst)
                    && (!true16 || again.table_row() == raw.table_row())
                {
                    assert_eq!(again.inst(), inst, "{target} {row}: {text}");
                }
            }
        }
    }
}

/// Sections' bytes of a source for gfx942.
fn bytes_of(source: &str) -> Vec<Vec<u8>> {
    let target = Target::GFX942;
    match assemble(target, Mode::of(target), source) {
        Ok(a) => a.sections.into_iter().map(|s| s.bytes).collect(),
        Err(e) => panic!("{}", e[0]),
    }
}

#[test]
fn what_comes_later_keeps_its_place() {
    // A difference of labels that come later takes a literal, small as it may turn out.
    let text = &bytes_of("s_mov_b32 s0, end-start\nstart:\n s_nop 0\nend:\n s_branch 1f\n1:\n s_branch 1b\n")[0];
    let words: Vec<u32> = text.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(words, [0xbe80_00ff, 4, 0xbf80_0000, 0xbf82_0000, 0xbf82_ffff]);
    let data = &bytes_of(".set a, b+1\n.set b, c\n.set c, 4\n.long a, max(1, c), alignto(a, 4)\n")[0];
    assert_eq!(data[..], [5, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0]);
    let target = Target::GFX942;
    let a = assemble(target, Mode::of(target), "s_add_u32 s0, s0, t@rel32@lo+4\n.data\nt: .quad .text_, t\n").unwrap();
    let r: Vec<_> = a.sections.iter().flat_map(|s| &s.relocations).map(|r| (r.offset, &*r.symbol, r.addend)).collect();
    assert_eq!(r, [(4, "t", 4), (0, ".text_", 0), (8, ".Lsection1", 0)]);
}

#[test]
fn macros_repeat_and_choose() {
    let source = "
        .macro put a, b=2, c:vararg
            .ifc \\a, one
                .byte 1, \\b
            .elseif \\b == 3
                .byte 9\\@, \\c
            .else
                .exitm
            .endif
            .byte 0
        .endm
        .macro twice x
            put \\x
            put two b=3 4, 5
        .endm
        put one
        put other
        twice one
        .rept 2
            .irp v, 7, 8
                .byte \\v
            .endr
        .endr
        .ifdef nothing
            .byte 100
        .endif";
    assert_eq!(bytes_of(source)[0], [1, 2, 0, 1, 2, 0, 94, 4, 5, 0, 7, 8, 7, 8]);
    let target = Target::GFX942;
    let fails = |s: &str| assemble(target, Mode::of(target), s).unwrap_err()[0].to_string();
    assert!(fails(".macro f\n f\n.endm\n f\n").contains("nested too deeply"));
    assert!(fails(".if 1\n").contains("no .endif"));
    assert!(fails(".rept 3\n .byte 1\n").contains("no .endr"));
}
