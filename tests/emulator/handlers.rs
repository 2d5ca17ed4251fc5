//! Instructions beyond plain arithmetic, on the device, against values worked out by hand from AMD's manuals ("Vega",
//! "RDNA2", "RDNA3" and "RDNA4" instruction sets) or by a reference written from their definitions: typed buffers, scalar
//! atomics, global data share, barriers, forks, LDS on LDS, unaligned and transposing accesses.

use crate::support::machine::{Setup, lines, random, run, setup, target};
use barewave_isa::{Flags, Mode, Target};
use half::f16;

/// Data format and number format stand side by side in resources and instructions (gfx8, gfx9).
fn split_formats(t: Target) -> bool {
    t.info().name.len() == 6
}

/// A buffer format as a resource holds it.
fn resource_format(t: Target, name: &str) -> u32 {
    let code = (0..128u64).find(|c| t.buffer_format(*c).as_deref() == Some(name));
    let code = code.unwrap_or_else(|| panic!("{} has no format {name}", t.info().name)) as u32;
    if split_formats(t) { (code & 15) << 15 | (code >> 4) << 12 } else { code << 12 }
}

/// `s[12:15]` describe the buffer at an SGPR pair, with records of `stride` bytes.
fn resource(base: usize, stride: usize, records: usize, word3: u32) -> Vec<String> {
    vec![
        format!("s_mov_b32 s12, s{base}"),
        format!("s_or_b32 s13, s{}, {:#x}", base + 1, stride << 16),
        format!("s_movk_i32 s14, {records}"),
        format!("s_mov_b32 s15, {word3:#x}"),
    ]
}

/// x, y, z, w from a destination select.
const XYZW: u32 = 4 | 5 << 3 | 6 << 6 | 7 << 9;

/// What a component of `bits` bits is as a number, written from the definitions of the formats.
fn component(raw: u32, bits: u32, kind: &str) -> u32 {
    let signed = ((raw << (32 - bits)) as i32) >> (32 - bits);
    let top = ((1u64 << bits) - 1) as f64;
    match kind {
        "UINT" => raw,
        "SINT" => signed as u32,
        "USCALED" => (raw as f32).to_bits(),
        "SSCALED" => (signed as f32).to_bits(),
        "UNORM" => ((raw as f64 / top) as f32).to_bits(),
        "SNORM" => ((signed as f64 / ((1u64 << (bits - 1)) - 1) as f64).max(-1.0) as f32).to_bits(),
        _ if bits == 32 => raw,
        _ if bits == 16 => f16::from_bits(raw as u16).to_f32().to_bits(),
        // Five bits of exponent with bias 15, no sign.
        _ => {
            let (m, e) = (raw & ((1 << (bits - 5)) - 1), (raw >> (bits - 5)) as i32);
            let f = m as f64 / (1u32 << (bits - 5)) as f64;
            let v = match e {
                0 => f * 2f64.powi(-14),
                31 if m == 0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + f) * 2f64.powi(e - 15),
            };
            (v as f32).to_bits()
        }
    }
}

const FORMATS: [(&str, [u32; 4]); 5] = [
    ("8_8_8_8", [8, 8, 8, 8]),
    ("16_16", [16, 16, 0, 0]),
    ("16_16_16_16", [16, 16, 16, 16]),
    ("2_10_10_10", [10, 10, 10, 2]),
    ("32_32", [32, 32, 0, 0]),
];

#[test]
fn typed_buffers_convert_as_their_formats_say() {
    for name in ["gfx803", "gfx906", "gfx1030", "gfx1100", "gfx1201"] {
        let t = target(name);
        let m = setup(t);
        let (words, lanes) = (2usize, m.lanes);
        // No NaN among the halves, and no -128: those would not come back as they were.
        let input: Vec<u32> = random(3, words * lanes).iter().map(|x| x & 0x3b3b_3b3b | 0x0100_0001).collect();
        let zero = if m.knows("buffer_load_format_x v8, v0, s[12:15], null idxen") { "null" } else { "0" };
        let mut cases: Vec<(String, [u32; 4])> = Vec::new();
        for (sizes, bits) in FORMATS {
            for kind in ["UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "FLOAT"] {
                let exists = match sizes {
                    "32_32" => matches!(kind, "UINT" | "SINT" | "FLOAT"),
                    "8_8_8_8" | "2_10_10_10" => kind != "FLOAT",
                    _ => true,
                };
                let format = format!("{sizes}_{kind}");
                if exists && (0..128).any(|c| t.buffer_format(c).as_deref() == Some(&format)) {
                    cases.push((format, bits));
                }
            }
        }
        cases.push(("10_11_11_FLOAT".into(), [11, 11, 10, 0]));
        assert!(cases.len() > 15, "{name}: {} formats", cases.len());
        for (format, bits) in cases {
            let (sizes, kind) = format.rsplit_once('_').unwrap();
            let written = if split_formats(t) {
                format!("format:[BUF_DATA_FORMAT_{sizes},BUF_NUM_FORMAT_{kind}]")
            } else {
                format!("format:[BUF_FMT_{format}]")
            };
            let mut body = resource(4, 8, lanes, XYZW | resource_format(t, &format));
            body.push(format!("tbuffer_load_format_xyzw v[OUT:{{OUT+3}}], v0, s[12:15], {zero} {written} idxen"));
            body.push(format!("buffer_load_format_xyzw v[{{OUT+4}}:{{OUT+7}}], v0, s[12:15], {zero} idxen"));
            // Back to the results' memory through the format, and from there as it is.
            body.extend(resource(6, 48, lanes, XYZW | resource_format(t, &format)));
            body.push(format!(
                "tbuffer_store_format_xyzw v[OUT:{{OUT+3}}], v0, s[12:15], {zero} {written} idxen offset:32"
            ));
            body.push(format!("buffer_store_format_xyzw v[{{OUT+4}}:{{OUT+7}}], v0, s[12:15], {zero} idxen offset:40"));
            for (n, offset) in [(8, 32), (10, 40)] {
                body.push(format!(
                    "buffer_load_dwordx2 v[{{OUT+{n}}}:{{OUT+{}}}], v0, s[12:15], {zero} idxen offset:{offset}",
                    n + 1
                ));
            }
            let out = m.run(&lines(&body), &input, words, 12);
            for (lane, (got, raw)) in out.chunks(12).zip(input.chunks(2)).enumerate() {
                let element = raw[0] as u64 | (raw[1] as u64) << 32;
                let one = if kind.ends_with("INT") { 1 } else { 1f32.to_bits() };
                let mut at = 0;
                let want: Vec<u32> = (0..4)
                    .map(|n| {
                        if bits[n] == 0 {
                            return if n == 3 { one } else { 0 };
                        }
                        let v = (element >> at) as u32 & ((1u64 << bits[n]) - 1) as u32;
                        at += bits[n];
                        component(v, bits[n], kind)
                    })
                    .collect();
                assert_eq!(got[..4], want, "{name} {format} lane {lane} of {element:#x}");
                assert_eq!(got[4..8], want, "{name} {format} of the resource, lane {lane}");
                let size = bits.iter().sum::<u32>();
                let kept = if size == 64 { u64::MAX } else { (1 << size) - 1 };
                for pair in [&got[8..10], &got[10..12]] {
                    let back = pair[0] as u64 | (pair[1] as u64) << 32;
                    assert_eq!(back & kept, element & kept, "{name} {format} stored by lane {lane}");
                }
            }
        }
    }
}

#[test]
fn resources_select_components_and_bound_their_records() {
    for name in ["gfx906", "gfx1030", "gfx1100", "gfx1201"] {
        let t = target(name);
        let m = setup(t);
        let zero = if m.knows("buffer_load_format_x v8, v0, s[12:15], null idxen") { "null" } else { "0" };
        // w, z, one, zero; half of the records exist.
        let word3 = 7 | 6 << 3 | 1 << 6 | resource_format(t, "8_8_8_8_UINT");
        let mut body = resource(4, 4, m.lanes / 2, word3);
        body.push(format!("buffer_load_format_xyzw v[OUT:{{OUT+3}}], v0, s[12:15], {zero} idxen"));
        let input = random(5, m.lanes);
        let out = m.run(&lines(&body), &input, 1, 4);
        for (lane, (got, x)) in out.chunks(4).zip(&input).enumerate() {
            let want = if lane < m.lanes / 2 { [x >> 24, x >> 16 & 255, 1, 0] } else { [0; 4] };
            assert_eq!(got, want, "{name} lane {lane}");
        }
    }
}

#[test]
fn strides_go_on_where_the_lane_is_the_index() {
    // The lane's number is added to the index: then the data format holds bits 14 to 17 of the stride.
    const STRIDE: usize = 1 << 14 | 4;
    for name in ["gfx803", "gfx906", "gfx90a"] {
        let m = setup(target(name));
        let mut body = resource(4, STRIDE & 0x3fff, 0, XYZW | ((STRIDE >> 14) as u32) << 15 | 1 << 23);
        body.push("s_mov_b32 s14, -1".into());
        body.push("buffer_load_dword v[OUT], off, s[12:15], 0".into());
        let input = random(7, m.lanes * STRIDE / 4);
        for (lane, got) in m.run(&lines(&body), &input, 1, 1).iter().take(m.lanes).enumerate() {
            assert_eq!(*got, input[lane * STRIDE / 4], "{name} lane {lane}");
        }
    }
}

#[test]
fn loads_with_a_status_say_that_memory_was_there() {
    for name in ["gfx906", "gfx1030", "gfx1100"] {
        let m = setup(target(name));
        let mut body = resource(4, 4, m.lanes, XYZW | resource_format(m.target, "32_UINT"));
        body.extend((0..5).map(|n| format!("v_mov_b32 v{{OUT+{n}}}, -1")));
        body.push("buffer_load_dword v[OUT:{OUT+1}], v0, s[12:15], 0 idxen tfe".into());
        body.push("buffer_load_format_xy v[{OUT+2}:{OUT+4}], v0, s[12:15], 0 idxen tfe".into());
        let input = random(6, m.lanes);
        for (got, x) in m.run(&lines(&body), &input, 1, 5).chunks(5).zip(&input) {
            assert_eq!(got, [*x, 0, *x, 0, 0], "{name}");
        }
    }
}

#[test]
fn scalar_atomics_return_the_old_value() {
    for name in ["gfx906", "gfx1010"] {
        let m = setup(target(name));
        // Operation, operands, old value, in order; the cell starts at 100.
        let steps: [(&str, &[u32], u32); 9] = [
            ("add", &[5], 100),
            ("umax", &[200], 105),
            ("sub", &[3], 200),
            ("cmpswap", &[7, 197], 197),
            ("cmpswap", &[8, 9], 7),
            ("xor", &[0xf0], 7),
            ("inc", &[10], 0xf7),
            ("dec", &[9], 0),
            ("smin", &[u32::MAX], 9),
        ];
        let mut body = Vec::new();
        for (n, (op, operands, _)) in steps.iter().enumerate() {
            body.extend(operands.iter().enumerate().map(|(i, v)| format!("s_mov_b32 s{}, {v:#x}", 20 + i)));
            let data = if operands.len() == 2 { "s[20:21]" } else { "s20" };
            body.push(format!("s_atomic_{op} {data}, s[4:5], 0x0 glc"));
            body.push(format!("v_mov_b32 v{{OUT+{n}}}, s20"));
        }
        // Without glc nothing comes back; 64 bits carry over.
        body.extend(
            ["s_mov_b32 s20, 1", "s_mov_b32 s21, 0", "s_atomic_add_x2 s[20:21], s[4:5], 0x0"].map(String::from),
        );
        body.push("v_mov_b32 v{OUT+9}, s20".into());
        body.push("s_load_dwordx2 s[20:21], s[4:5], 0x0".into());
        body.extend(["v_mov_b32 v{OUT+10}, s20", "v_mov_b32 v{OUT+11}, s21"].map(String::from));
        let mut input = vec![0; m.lanes];
        (input[0], input[1]) = (100, 41);
        let out = m.run(&lines(&body), &input, 1, 12);
        let olds: Vec<u32> = steps.iter().map(|s| s.2).collect();
        assert_eq!(out[..9], olds, "{name}");
        assert_eq!(out[9..12], [1, 0, 42], "{name}");
    }
}

#[test]
fn global_data_share_and_wave_sync() {
    for name in ["gfx803", "gfx906", "gfx1030"] {
        let m = setup(target(name));
        let body = [
            "v_mov_b32 v20, 0",
            "v_mov_b32 v21, 0",
            "s_mov_b32 m0, -1",
            "ds_write_b32 v20, v21 gds",
            "v_mov_b32 v21, 3",
            "ds_add_rtn_u32 vOUT, v20, v21 gds",
            "ds_write_b32 v20, v21",
            "ds_read_b32 v{OUT+1}, v20 gds",
            "ds_read_b32 v{OUT+2}, v20",
        ];
        let out = m.run(&body, &vec![0; m.lanes], 1, 3);
        let lanes = m.lanes as u32;
        for (lane, got) in out.chunks(3).enumerate() {
            assert_eq!(got, [3 * lane as u32, 3 * lanes, 3], "{name} lane {lane}");
        }
        // A semaphore that wave 0 raises three times lets three waves pass, which have waited for it.
        let four = Setup { waves: 4, ..m };
        let shift = m.lanes.trailing_zeros();
        let mut body: Vec<String> =
            ["s_mov_b32 m0, 0", "v_mov_b32 v20, 0", "v_readfirstlane_b32 s20, v0"].map(String::from).into();
        body.push(format!("s_lshr_b32 s20, s20, {shift}"));
        body.extend(
            [
                "ds_gws_init v20 gds",
                "v_mov_b32 v21, 64",
                "ds_write_b32 v20, v20",
                "s_barrier",
                "s_cmp_eq_u32 s20, 0",
                "s_cbranch_scc1 3",
                "ds_gws_sema_p gds",
                "s_branch 8",
                // Wave 0: the work that the others wait for.
                "ds_write_b32 v20, v21",
                "ds_gws_sema_v gds",
                "ds_gws_sema_v gds",
                "ds_gws_sema_v gds",
                "ds_read_b32 vOUT, v20",
            ]
            .map(String::from),
        );
        let out = four.run(&lines(&body), &vec![0; 4 * m.lanes], 1, 1);
        assert!(out.iter().all(|v| *v == 64), "{name}: {out:?}");
    }
}

#[test]
fn split_barriers_order_writes_and_reads() {
    for name in ["gfx1200", "gfx1201"] {
        let m = Setup { waves: 4, ..setup(target(name)) };
        let body = [
            "v_lshlrev_b32 v20, 2, v0",
            "ds_store_b32 v20, v0",
            "s_barrier_signal_isfirst -1",
            "s_cselect_b32 s20, 1, 0",
            "v_mov_b32 v{OUT+1}, s20",
            // Work that needs nobody stands between signal and wait.
            "v_sub_nc_u32 v21, 0x1fc, v20",
            "s_barrier_wait -1",
            "ds_load_b32 vOUT, v21",
        ];
        let out = m.run(&body, &vec![0; 4 * m.lanes], 1, 2);
        for (item, got) in out.chunks(2).enumerate() {
            assert_eq!(got[0], 127 - item as u32, "{name}");
        }
        let first: Vec<u32> = out.chunks(2 * m.lanes).map(|w| w[1]).collect();
        assert_eq!(first.iter().sum::<u32>(), 1, "{name}: {first:?}");
    }
}

#[test]
fn named_barriers_hold_their_members_only() {
    let m = Setup { waves: 4, ..setup(target("gfx1201")) };
    let body = [
        "v_lshlrev_b32 v20, 2, v0",
        "v_readfirstlane_b32 s20, v0",
        "s_lshr_b32 s20, s20, 6",
        // Waves 0 and 1 meet at barrier 1, waves 2 and 3 at barrier 2: two members each.
        "s_add_u32 s21, s20, 1",
        "s_or_b32 m0, s21, 0x20000",
        "s_barrier_init m0",
        "s_barrier_signal -1",
        "s_barrier_wait -1",
        "s_barrier_join m0",
        "ds_store_b32 v20, v0",
        "s_barrier_signal m0",
        "s_barrier_wait 1",
        "v_xor_b32 v21, 0x80, v20",
        "ds_load_b32 vOUT, v21",
        // The barrier exists and has two members, nobody has signalled again.
        "s_get_barrier_state s22, m0",
        "v_mov_b32 v{OUT+1}, s22",
        "s_barrier_signal -1",
        "s_barrier_wait -1",
        "s_barrier_leave",
        "s_cselect_b32 s23, 1, 0",
        "v_mov_b32 v{OUT+2}, s23",
    ];
    let out = m.run(&body, &vec![0; 4 * m.lanes], 1, 3);
    for (item, got) in out.chunks(3).enumerate() {
        assert_eq!(got, [item as u32 ^ 32, 1 | 2 << 4, 1]);
    }
}

#[test]
fn block_loads_and_stores_move_the_registers_of_m0() {
    let m = setup(target("gfx1201"));
    let body = [
        "v_mov_b32 v{OUT+2}, 77",
        "v_mov_b32 v{OUT+4}, 78",
        "v_mov_b32 v{OUT+5}, 79",
        "s_movk_i32 m0, 11",
        "global_load_block v[OUT:{OUT+31}], v1, s[4:5]",
        "s_movk_i32 m0, 32",
        "global_store_block v2, v[OUT:{OUT+31}], s[6:7]",
        "global_load_b64 v[{OUT+4}:{OUT+5}], v2, s[6:7] offset:16",
    ];
    let input = random(9, 4 * m.lanes);
    for (got, x) in m.run(&body, &input, 4, 6).chunks(6).zip(input.chunks(4)) {
        assert_eq!(got, [x[0], x[1], 77, x[3], 0, 79]);
    }
}

#[test]
fn forks_run_both_sides_and_join() {
    for name in ["gfx803", "gfx906"] {
        for (few, label) in [(20, true), (50, true), (20, false), (50, false), (0, true), (64, false)] {
            let m = setup(target(name));
            let mut body: Vec<String> = vec![
                "s_mov_b64 s[22:23], exec".into(),
                format!("s_movk_i32 s24, {few}"),
                "v_cmp_gt_u32 s[10:11], s24, v0".into(),
                "v_mov_b32 v{OUT+1}, 0".into(),
                "s_mov_b32 s20, 0".into(),
            ];
            match label {
                true => body.push("s_cbranch_i_fork s[10:11], 2".into()),
                false => body.extend(
                    ["s_getpc_b64 s[16:17]", "s_add_u32 s16, s16, 20", "s_addc_u32 s17, s17, 0"].map(String::from),
                ),
            }
            if !label {
                body.push("s_cbranch_g_fork s[10:11], s[16:17]".into());
            }
            body.extend(
                [
                    "v_mov_b32 vOUT, 7",
                    "s_branch 1",
                    "v_mov_b32 vOUT, 9",
                    "s_cbranch_join s20",
                    "s_mov_b64 exec, s[22:23]",
                    "v_mov_b32 v{OUT+1}, 1",
                ]
                .map(String::from),
            );
            let out = m.run(&lines(&body), &vec![0; 64], 1, 2);
            for (lane, got) in out.chunks(2).enumerate() {
                assert_eq!(got, [if lane < few { 9 } else { 7 }, 1], "{name} {few} {label} lane {lane}");
            }
        }
    }
}

#[test]
fn local_memory_combines_with_itself() {
    for name in ["gfx803", "gfx906"] {
        let m = setup(target(name));
        // Each lane writes four dwords of a known pattern; the instruction's lanes work on the first of their four.
        let cell = |i: usize| (i as u32).wrapping_mul(2654435761) >> 7;
        let input: Vec<u32> = (0..256).map(cell).collect();
        let signed = |f: fn(i32, i32) -> i32| move |a: u32, b: u32| f(a as i32, b as i32) as u32;
        let cases: [(&str, i32, Box<dyn Fn(u32, u32) -> u32>); 6] = [
            ("ds_add_src2_u32 v20 offset:1", 1, Box::new(u32::wrapping_add)),
            ("ds_max_src2_u32 v20 offset:3", 3, Box::new(u32::max)),
            ("ds_min_src2_i32 v20 offset:2", 2, Box::new(signed(i32::min))),
            ("ds_xor_src2_b32 v20 offset:1", 1, Box::new(|a, b| a ^ b)),
            ("ds_rsub_src2_u32 v20 offset:2", 2, Box::new(|a, b| b.wrapping_sub(a))),
            ("ds_write_src2_b32 v20 offset:3", 3, Box::new(|_, b| b)),
        ];
        for (text, distance, f) in cases {
            let body = [
                "s_mov_b32 m0, -1",
                "v_lshlrev_b32 v20, 4, v0",
                "ds_write2_b32 v20, v3, v4 offset1:1",
                "ds_write2_b32 v20, v5, v6 offset0:2 offset1:3",
                text,
                "ds_read_b32 vOUT, v20",
            ];
            for (lane, got) in m.run(&body, &input, 4, 1).into_iter().enumerate() {
                let want = f(cell(4 * lane), cell(4 * lane + distance as usize));
                assert_eq!(got, want, "{name} {text} lane {lane}");
            }
        }
        // Bit 15 of the offset: the distance stands in the upper bits of the address, here -2 dwords.
        let body = [
            "s_mov_b32 m0, -1",
            "v_lshlrev_b32 v20, 4, v0",
            "ds_write2_b32 v20, v3, v4 offset1:1",
            "ds_write2_b32 v20, v5, v6 offset0:2 offset1:3",
            "v_add_u32 v21, vcc, 12, v20",
            "v_or_b32 v21, 0xfffc0000, v21",
            "ds_add_src2_u32 v21 offset:32768",
            "ds_read_b32 vOUT, v20 offset:12",
        ];
        let body = body.map(|l| m.either(l, &l.replace("vcc, ", "")));
        for (lane, got) in m.run(&lines(&body), &input, 4, 1).into_iter().enumerate() {
            assert_eq!(got, cell(4 * lane + 3).wrapping_add(cell(4 * lane + 1)), "{name} lane {lane}");
        }
    }
}

#[test]
fn permutes_reach_as_far_as_the_crossbar() {
    for (name, lanes) in [("gfx906", 64), ("gfx1030", 64), ("gfx1100", 64), ("gfx1030", 32), ("gfx1201", 32)] {
        let m = Setup { lanes, ..setup(target(name)) };
        // Lane l asks for (and sends to) lane 17 l + 5.
        let body = [
            "v_mul_u32_u24 v20, 0x44, v0",
            "v_mov_b32 vOUT, -1",
            "ds_bpermute_b32 vOUT, v20, v3 offset:20",
            "ds_permute_b32 v{OUT+1}, v20, v3 offset:20",
        ];
        let input = random(8, lanes);
        let width = if name == "gfx906" { 64 } else { 32 };
        let out = m.run(&body, &input, 1, 2);
        for lane in 0..lanes {
            let half = lane / width * width;
            let named = |l: usize| half + (17 * l + 5) % width;
            assert_eq!(out[2 * lane], input[named(lane)], "{name} wave{lanes} lane {lane}");
            let sender = (half..half + width).find(|l| named(*l) == lane).unwrap();
            assert_eq!(out[2 * lane + 1], input[sender], "{name} wave{lanes} lane {lane}");
        }
    }
}

#[test]
fn swizzles_follow_their_modes() {
    for name in ["gfx906", "gfx942", "gfx1030", "gfx1201"] {
        let m = setup(target(name));
        // Offset, first lanes that the first lanes read. The FFT orders are those of the "Vega" manual's table.
        let cases: [(u32, [usize; 16]); 9] = [
            (0xe000, [0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30]),
            (0xe010, [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]),
            (0xe01c, [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15]),
            (0xe01f, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            // Rotation by 3 within 8 lanes, either way.
            (0xc000 | 3 << 5 | 0x18, [3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10]),
            (0xc400 | 3 << 5 | 0x18, [5, 6, 7, 0, 1, 2, 3, 4, 13, 14, 15, 8, 9, 10, 11, 12]),
            // A permutation of four, and and/or/xor masks: broadcast of lane 3 of 8, exchange with distance 4.
            (0x8000 | 0x1b, [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]),
            (0x18 | 3 << 5, [3, 3, 3, 3, 3, 3, 3, 3, 11, 11, 11, 11, 11, 11, 11, 11]),
            (0x1f | 4 << 10, [4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11]),
        ];
        let input = random(16, m.lanes);
        for (offset, from) in cases {
            let out = m.run(&[&format!("ds_swizzle_b32 vOUT, v3 offset:{offset}")], &input, 1, 1);
            for half in (0..m.lanes).step_by(32) {
                for (lane, &f) in from.iter().enumerate() {
                    assert_eq!(out[half + lane], input[half + f], "{name} {offset:#x} lane {}", half + lane);
                }
            }
        }
    }
}

#[test]
fn private_memory_takes_unaligned_addresses() {
    // Results are in v8 and its successors. Words and dwords at every byte: interleaving has them in two rows.
    for name in ["gfx942", "gfx1030", "gfx1100", "gfx1201"] {
        let m = Setup { scratch: 64, ..setup(target(name)) };
        let wait = |m: &Setup| m.either("s_waitcnt vmcnt(0)", "s_wait_idle");
        for at in 0..8 {
            let mut body = Vec::new();
            let mut put = |a: String, b: String| body.push(m.either(&a, &b));
            for dword in 0..4 {
                let tail = format!("off, v5, off offset:{}", 4 * dword);
                put(format!("scratch_store_dword {tail}"), format!("scratch_store_b32 {tail}"));
            }
            put(
                format!("scratch_store_short off, v3, off offset:{at}"),
                format!("scratch_store_b16 off, v3, off offset:{at}"),
            );
            put(
                format!("scratch_store_dword off, v4, off offset:{}", at + 3),
                format!("scratch_store_b32 off, v4, off offset:{}", at + 3),
            );
            put(
                format!("scratch_load_ushort v8, off, off offset:{at}"),
                format!("scratch_load_u16 v8, off, off offset:{at}"),
            );
            put(
                format!("scratch_load_dword v9, off, off offset:{}", at + 1),
                format!("scratch_load_b32 v9, off, off offset:{}", at + 1),
            );
            put(
                format!("scratch_load_sshort v10, off, off offset:{}", at + 5),
                format!("scratch_load_i16 v10, off, off offset:{}", at + 5),
            );
            body.push(wait(&m));
            let inputs = random(at + 1, 3 * m.lanes);
            for (got, v) in m.run(&lines(&body), &inputs, 3, 3).chunks(3).zip(inputs.chunks(3)) {
                let mut bytes: Vec<u8> = std::iter::repeat_n(v[2].to_le_bytes(), 4).flatten().collect();
                let at = at as usize;
                bytes[at..at + 2].copy_from_slice(&v[0].to_le_bytes()[..2]);
                bytes[at + 3..at + 7].copy_from_slice(&v[1].to_le_bytes());
                let word = |i: usize| u16::from_le_bytes([bytes[i], bytes[i + 1]]);
                let dword = u32::from(word(at + 1)) | u32::from(word(at + 3)) << 16;
                let want = [u32::from(word(at)), dword, word(at + 5) as i16 as u32];
                assert_eq!(got, want, "{name} at {at}");
            }
        }
    }
}

#[test]
fn transposing_reads_of_local_memory() {
    let m = setup(target("gfx950"));
    // Element bits, dwords a lane, text: each group of 16 lanes reads rows of 16 elements, a row over as many lanes as it
    // takes, and lane l of the group gets column l.
    for (bits, words, text) in [
        (16, 2, "ds_read_b64_tr_b16 v[OUT:{OUT+1}], v20"),
        (8, 2, "ds_read_b64_tr_b8 v[OUT:{OUT+1}], v20"),
        (4, 2, "ds_read_b64_tr_b4 v[OUT:{OUT+1}], v20"),
        (6, 3, "ds_read_b96_tr_b6 v[OUT:{OUT+2}], v20"),
    ] {
        let mut body = vec![format!("v_mul_u32_u24 v20, {}, v0", 4 * words)];
        body.extend((0..words).map(|n| format!("ds_write_b32 v20, v{} offset:{}", 3 + n, 4 * n)));
        body.push(text.into());
        let input = random(14, words * 64);
        let out = run(m.target, &lines(&body), &input, words, words);
        let element = |words: &[u32], i: usize| {
            (0..bits).fold(0, |v, b| v | (words[(i * bits + b) / 32] >> ((i * bits + b) % 32) & 1) << b)
        };
        for lane in 0..64 {
            let group = &input[lane / 16 * 16 * words..];
            for e in 0..32 * words / bits {
                let want = element(group, e * 16 + lane % 16);
                assert_eq!(element(&out[words * lane..], e), want, "b{bits} lane {lane} element {e}");
            }
        }
    }
}

#[test]
fn transposing_loads_of_memory() {
    for (lanes, bits, text) in [
        (32, 16, "global_load_tr_b128 v[OUT:{OUT+3}], v1, s[4:5]"),
        (32, 8, "global_load_tr_b64 v[OUT:{OUT+1}], v1, s[4:5]"),
        (64, 16, "global_load_tr_b128 v[OUT:{OUT+1}], v1, s[4:5]"),
        (64, 8, "global_load_tr_b64 vOUT, v1, s[4:5]"),
    ] {
        let m = Setup { lanes, ..setup(target("gfx1201")) };
        // 16 x 16 elements in all; a quarter of the wave holds rows as long as it has lanes.
        let (n, words) = (lanes / 4, 8 * bits / lanes);
        let per_lane = 32 * words / bits;
        let input = random(15, words * lanes);
        let out = m.run(&[text], &input, words, words);
        let element = |words: &[u32], i: usize| words[i * bits / 32] >> (i * bits % 32) & ((1 << bits) - 1);
        for lane in 0..lanes {
            for e in 0..per_lane {
                let want = match (lanes, bits) {
                    // Measured on gfx1201: the byte of all that each lane's bytes come from, where lanes load them in their order.
                    (32, 8) => {
                        let base = (lane & 7) + (lane >> 3 & 1) * 32 + (lane >> 4 & 1) * 128;
                        element(&input, base + (e & 3) * 8 + (e >> 2 & 1) * 64)
                    }
                    _ => element(&input[lane / n * n * words..], e * n + lane % n),
                };
                assert_eq!(element(&out[lane * words..], e), want, "wave{lanes} b{bits} lane {lane} element {e}");
            }
        }
    }
}

/// Every encoding of the golden vectors is executed, with its modifiers, but graphics, operands from LDS, relative moves with
/// DPP (no compiler emits those), and what the tables say is for later.
#[test]
fn every_golden_vector_has_a_handler() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/isa/tests/golden");
    let (mut refused, mut executed) = (Vec::new(), 0);
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            let [name, text, hex] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (name, variant) = name.split_once(':').unwrap_or((name, ""));
            let t = Target::parse(name).unwrap();
            let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            let wave32 = t.info().wave_size == 32 && variant != "w64";
            let Some(executes) = barewave::emu::executes(t, wave32, &bytes) else { continue };
            let mode = Mode { wave64: !wave32, true16: t.info().true16 };
            let raw = barewave_isa::decode(t, mode, &bytes).unwrap();
            let graphics = t.op(raw.op()).is_some_and(|i| i.flags.has(Flags::GRAPHICS));
            let odd = text.contains("lds_direct") || text.contains("movrel") && raw.overlay() != "";
            executed += usize::from(executes);
            if !executes && barewave::emu::implements(t, raw.op()) && !(graphics || odd) {
                refused.push(line.to_string());
            }
        }
    }
    assert!(executed > 1000, "{executed}");
    assert!(refused.is_empty(), "{} are refused:\n{}", refused.len(), refused.join("\n"));
}
