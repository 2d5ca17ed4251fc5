//! What MODE and the modifiers of an instruction do to its result, on the device: clamping and saturation, denormals, rounding, against
//! a reference written from AMD's definitions ("Vega", "RDNA2", "RDNA3" and "RDNA4" instruction sets) or the host's own arithmetic.

use crate::support::machine::{Setup, lines, random, setup, target, true16};
use half::f16;

/// `s_setreg` of a field of MODE.
fn mode(m: &Setup, offset: u32, width: u32, value: u32) -> String {
    let text = |register: &str| format!("s_setreg_imm32_b32 hwreg({register}, {offset}, {width}), {value:#x}");
    m.either(&text("HW_REG_MODE"), &text("HW_REG_WAVE_MODE"))
}

#[test]
fn clamps_of_nan_and_overflowing_halves_follow_the_mode() {
    for name in ["gfx803", "gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"] {
        let m = setup(target(name));
        let inputs: Vec<u32> = [f32::NAN, -3.0, 0.25, 7.0, f32::INFINITY, f32::NEG_INFINITY, 1e6, -1e6]
            .iter()
            .cycle()
            .take(m.lanes)
            .map(|v| v.to_bits())
            .collect();
        let clamp = m.either("v_add_f32 vOUT, 0, v3 clamp", "v_add_f32_e64 vOUT, 0, v3 clamp");
        let h = if true16(m.target) { ".l" } else { "" };
        for dx10 in [1, 0] {
            let body = [mode(&m, 8, 1, dx10), clamp.clone()];
            let out = m.run(&lines(&body), &inputs, 1, 1);
            let nan = f32::from_bits(out[0]);
            // gfx12 has no such bit: NaN becomes 0.
            let keeps = dx10 == 0 && !m.target.info().architected_sgprs;
            assert!(if keeps { nan.is_nan() } else { nan == 0.0 }, "{name} dx10_clamp {dx10}: {nan}");
            let rest: Vec<f32> = out[1..8].iter().map(|b| f32::from_bits(*b)).collect();
            assert_eq!(rest, [0.0, 0.25, 1.0, 1.0, 0.0, 1.0, 0.0], "{name}");
        }
        if name == "gfx803" {
            continue;
        }
        for saturates in [0, 1] {
            let body = [
                mode(&m, 23, 1, saturates),
                "v_mov_b32 vOUT, 0".into(),
                format!("v_cvt_f16_f32 vOUT{h}, v3"),
                "v_mov_b32 v{OUT+1}, 0".into(),
                format!("v_add_f16 v{{OUT+1}}{h}, vOUT{h}, vOUT{h}"),
            ];
            let out = m.run(&lines(&body), &inputs, 1, 2);
            let (top, infinity) = (0x7bff, 0x7c00);
            let limit = if saturates == 1 { top } else { infinity };
            let halves: Vec<u32> = out.chunks(2).skip(4).take(4).map(|v| v[0]).collect();
            // Infinities stay what they are.
            assert_eq!(halves, [infinity, infinity | 0x8000, limit, limit | 0x8000], "{name} {saturates}");
            let sums: Vec<u32> = out.chunks(2).skip(4).take(4).map(|v| v[1]).collect();
            assert_eq!(sums, [infinity, infinity | 0x8000, limit, limit | 0x8000], "{name} {saturates}");
        }
    }
}

/// Sums of products of `n` parts of two dwords.
fn dot(n: u32, signed: [bool; 2], a: u32, b: u32) -> i128 {
    let bits = 32 / n;
    let part = |x: u32, i: u32, signed: bool| {
        let up = x << (32 - bits - bits * i);
        if signed { i128::from((up as i32) >> (32 - bits)) } else { i128::from(up >> (32 - bits)) }
    };
    (0..n).map(|i| part(a, i, signed[0]) * part(b, i, signed[1])).sum()
}

#[test]
fn integer_results_saturate_with_clamp() {
    // Name and modifiers, and the exact result.
    type Exact = fn(u32, u32, u32) -> i128;
    let three: [(&str, bool, Exact); 16] = [
        ("v_dot2_i32_i16", true, |a, b, c| dot(2, [true; 2], a, b) + i128::from(c as i32)),
        ("v_dot2_u32_u16", false, |a, b, c| dot(2, [false; 2], a, b) + i128::from(c)),
        ("v_dot4_i32_i8", true, |a, b, c| dot(4, [true; 2], a, b) + i128::from(c as i32)),
        ("v_dot4_u32_u8", false, |a, b, c| dot(4, [false; 2], a, b) + i128::from(c)),
        ("v_dot8_i32_i4", true, |a, b, c| dot(8, [true; 2], a, b) + i128::from(c as i32)),
        ("v_dot8_u32_u4", false, |a, b, c| dot(8, [false; 2], a, b) + i128::from(c)),
        ("v_dot4_i32_iu8", true, |a, b, c| dot(4, [false; 2], a, b) + i128::from(c as i32)),
        ("v_dot4_i32_iu8 neg_lo:[1,1,0]", true, |a, b, c| dot(4, [true; 2], a, b) + i128::from(c as i32)),
        ("v_dot4_i32_iu8 neg_lo:[1,0,0]", true, |a, b, c| dot(4, [true, false], a, b) + i128::from(c as i32)),
        ("v_dot8_i32_iu4 neg_lo:[0,1,0]", true, |a, b, c| dot(8, [false, true], a, b) + i128::from(c as i32)),
        ("v_mad_u32_u24", false, |a, b, c| i128::from(a & 0xff_ffff) * i128::from(b & 0xff_ffff) + i128::from(c)),
        ("v_mad_i32_i24", true, |a, b, c| {
            i128::from((a << 8) as i32 >> 8) * i128::from((b << 8) as i32 >> 8) + i128::from(c as i32)
        }),
        ("v_sad_u32", false, |a, b, c| i128::from(a.abs_diff(b)) + i128::from(c)),
        ("v_sad_hi_u8", false, |a, b, c| {
            let bytes = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
            i128::from(bytes.map(|(x, y)| u32::from(x.abs_diff(y))).sum::<u32>() << 16) + i128::from(c)
        }),
        ("v_min3_i32", true, |a, b, c| i128::from((a as i32).min(b as i32).min(c as i32))),
        ("v_max3_u32", false, |a, b, c| i128::from(a.max(b).max(c))),
    ];
    let two: [(&str, bool, Exact); 6] = [
        ("v_mul_u32_u24", false, |a, b, _| i128::from(a & 0xff_ffff) * i128::from(b & 0xff_ffff)),
        ("v_mul_i32_i24", true, |a, b, _| i128::from((a << 8) as i32 >> 8) * i128::from((b << 8) as i32 >> 8)),
        ("v_add_u32", false, |a, b, _| i128::from(a) + i128::from(b)),
        ("v_sub_u32", false, |a, b, _| i128::from(a) - i128::from(b)),
        ("v_add_co_u32", false, |a, b, _| i128::from(a) + i128::from(b)),
        ("v_sub_co_u32", false, |a, b, _| i128::from(a) - i128::from(b)),
    ];
    let mut tried = std::collections::BTreeSet::new();
    for name in ["gfx803", "gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"] {
        let m = setup(target(name));
        let mut inputs = random(7, 3 * m.lanes);
        // Ends of the ranges as well.
        let ends = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x8000_8000, 0x7f7f_7f7f, 0x8888_8888];
        for (n, v) in inputs.iter_mut().take(72).enumerate() {
            *v = ends[n * 5 / 3 % ends.len()];
        }
        let texts = |with: &str, n: usize| {
            let (op, modifiers) = with.split_once(' ').unwrap_or((with, ""));
            let operands = ["v3, v4", "v3, v4, v5"][n - 2];
            let (e64, mask) = (format!("{op}_e64"), if m.lanes == 64 { "s[12:13]" } else { "s12" });
            [op, &e64].map(|op| {
                ["", mask].map(|bits| {
                    let bits = if bits.is_empty() { String::new() } else { format!("{bits}, ") };
                    format!("{op} vOUT, {bits}{operands} {modifiers} clamp").replace("  ", " ")
                })
            })
        };
        let all = three.iter().map(|c| (c, 3)).chain(two.iter().map(|c| (c, 2)));
        for ((with, signed, exact), n) in all {
            // Where the signs are modifiers, the names without `u` are others of the same instruction.
            if m.knows("v_dot4_i32_iu8 v0, v1, v2, v3") && ["v_dot4_i32_i8", "v_dot8_i32_i4"].contains(with) {
                continue;
            }
            let known = |t: &&String| m.knows(&t.replace("OUT", "8"));
            let Some(text) = texts(with, n).as_flattened().iter().find(known).cloned() else { continue };
            tried.insert(*with);
            let (least, most) =
                if *signed { (i32::MIN.into(), i32::MAX.into()) } else { (0i128, i128::from(u32::MAX)) };
            for (got, v) in m.run(&[&text], &inputs, 3, 1).iter().zip(inputs.chunks(3)) {
                let want = exact(v[0], v[1], v[2]).clamp(least, most) as u32;
                assert_eq!(*got, want, "{name}: {text} of {v:x?}");
            }
        }
    }
    assert!(tried.len() >= 20, "{tried:?}");
}

#[test]
fn halves_and_words_saturate_with_clamp() {
    for name in ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"] {
        let m = setup(target(name));
        let inputs = random(11, 3 * m.lanes);
        let body = ["v_pk_mad_i16 vOUT, v3, v4, v5 clamp", "v_pk_mad_u16 v{OUT+1}, v3, v4, v5 clamp"];
        let halves = |v: u32| [v & 0xffff, v >> 16];
        let signed = |v: u32| i64::from(v as u16 as i16);
        for (got, v) in m.run(&body, &inputs, 3, 2).chunks(2).zip(inputs.chunks(3)) {
            let [a, b, c] = [0, 1, 2].map(|i| halves(v[i]));
            let i = [0, 1].map(|h| (signed(a[h]) * signed(b[h]) + signed(c[h])).clamp(-0x8000, 0x7fff) as u16);
            let u = [0, 1].map(|h| (u64::from(a[h]) * u64::from(b[h]) + u64::from(c[h])).min(0xffff) as u16);
            let word = |h: [u16; 2]| u32::from(h[0]) | u32::from(h[1]) << 16;
            assert_eq!(got, [word(i), word(u)], "{name} {v:x?}");
        }
        // Two halves in a row are clamped one by one.
        let floats: Vec<u32> = (0..2 * m.lanes).map(|l| (l as f32 / 8.0 - 3.0).to_bits()).collect();
        let convert = ["v_cvt_pkrtz_f16_f32", "v_cvt_pkrtz_f16_f32_e64", "v_cvt_pk_rtz_f16_f32_e64"]
            .map(|op| format!("{op} vOUT, v3, v4 clamp"));
        let convert = convert.iter().find(|t| m.knows(&t.replace("OUT", "8"))).expect("a spelling");
        for (got, v) in m.run(&[convert], &floats, 2, 1).iter().zip(floats.chunks(2)) {
            let want = [0, 1].map(|i| f16::from_f32(f32::from_bits(v[i]).clamp(0.0, 1.0)).to_bits());
            assert_eq!(*got, u32::from(want[0]) | u32::from(want[1]) << 16, "{name}");
        }
    }
}

#[test]
fn unfused_multiply_adds_know_no_denormals() {
    let bits = |v: f32| v.to_bits();
    // A denormal factor, product, addend and sum count as zero, whatever MODE says; what remains is exact.
    let cases = [
        ([1e-40, 1e20, 1.5], 1.5),
        ([1e-20, 1e-20, 2e-38], 2e-38),
        ([1.0, 3.0, 1e-39], 3.0),
        ([1.5e-38, 1.0, -1.2e-38], 0.0),
        ([2.0, 3.0, 4.0], 10.0),
    ];
    for name in ["gfx803", "gfx906", "gfx1010"] {
        let m = setup(target(name));
        let input: Vec<u32> = (0..m.lanes).flat_map(|l| cases[l % cases.len()].0.map(bits)).collect();
        let body = [
            "v_mad_f32 vOUT, v3, v4, v5",
            "v_mad_f32 v{OUT+1}, -v3, v4, -v5",
            "v_mac_f32 v5, v3, v4",
            "v_mov_b32 v{OUT+2}, v5",
        ];
        for (l, got) in m.run(&body, &input, 3, 3).chunks(3).enumerate() {
            let want = cases[l % cases.len()].1;
            let got: Vec<f32> = got.iter().map(|b| f32::from_bits(*b)).collect();
            assert_eq!(got, [want, -want, want], "{name} {:?}", cases[l % cases.len()]);
        }
    }
}

/// A number between two halves, rounded by searching all halves.
fn half_in_direction(exact: f64, mode: u32) -> u16 {
    if exact.is_nan() || exact == 0.0 {
        return f16::from_f64(exact).to_bits();
    }
    // All finite halves in order, infinities at the ends.
    let at = |i: i32| -> u16 { if i < 0 { 0x8000 | (-i) as u16 } else { i as u16 } };
    let value = |i: i32| f16::from_bits(at(i)).to_f64();
    let (mut low, mut high) = (-0x7c00, 0x7c00);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if value(middle) <= exact { low = middle } else { high = middle }
    }
    if value(low) == exact || exact.is_infinite() {
        return f16::from_f64(exact).to_bits();
    }
    let sign = if exact < 0.0 { 0x8000 } else { 0 };
    match mode {
        1 => at(high) | if high == 0 { sign } else { 0 },
        2 => at(low),
        3 if exact > 0.0 => at(low),
        3 => at(high) | if high == 0 { sign } else { 0 },
        _ => f16::from_f64(exact).to_bits(),
    }
}

#[test]
fn halves_round_as_the_mode_says() {
    for name in ["gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1201"] {
        let m = setup(target(name));
        let h = if true16(m.target) { ".l" } else { "" };
        // Halves of moderate size in the low and high parts.
        let inputs: Vec<u32> = random(11, 64 * m.lanes).iter().map(|x| x & 0xb7ff_b7ff | 0x0400_0400).collect();
        for direction in 0..4 {
            let mut body = vec![mode(&m, 2, 2, direction), "v_lshrrev_b32 v20, 16, v3".into()];
            for (n, op) in ["v_add_f16", "v_sub_f16", "v_mul_f16"].iter().enumerate() {
                body.push(format!("v_mov_b32 v{{OUT+{n}}}, 0"));
                body.push(format!("{op} v{{OUT+{n}}}{h}, v3{h}, v20{h}"));
            }
            body.push("v_mov_b32 v{OUT+3}, 0".into());
            body.push(format!("v_fma_f16 v{{OUT+3}}{h}, v3{h}, v20{h}, v3{h}"));
            body.push("v_pk_mul_f16 v{OUT+4}, v3, v3".into());
            for (x, got) in inputs.iter().zip(m.run(&lines(&body), &inputs, 1, 5).chunks(5)) {
                let [a, b] = [x & 0xffff, x >> 16].map(|v| f16::from_bits(v as u16).to_f64());
                // Exact in double precision.
                for (n, exact) in [a + b, a - b, a * b, a.mul_add(b, a)].into_iter().enumerate() {
                    let mut want = half_in_direction(exact, direction) as u32;
                    if exact == 0.0 && n != 2 && direction == 2 {
                        // Cancellation gives -0 when rounding down.
                        want = 0x8000;
                    }
                    assert_eq!(got[n] & 0xffff, want, "{name} mode {direction}, result {n} of {a} and {b}");
                }
                let want =
                    half_in_direction(a * a, direction) as u32 | (half_in_direction(b * b, direction) as u32) << 16;
                assert_eq!(got[4], want, "{name} mode {direction}: squares of {a} and {b}");
            }
        }
    }
}

/// The host's own f64 arithmetic in a rounding mode of AMD's numbering: sum, difference, product, fused multiply-add.
#[cfg(target_arch = "x86_64")]
fn host_doubles(a: f64, b: f64, direction: u32) -> [f64; 4] {
    use std::arch::asm;
    let control: [u32; 2] = [0x1f80 | [0, 2, 1, 3][direction as usize] << 13, 0x1f80];
    let (mut sum, mut difference, mut product, mut fused) = (a, a, a, a);
    // SAFETY: the control register is set back before anything else computes; FMA is there by the caller's check.
    unsafe {
        asm!(
            "ldmxcsr dword ptr [{c}]",
            "addsd {s}, {b}",
            "subsd {d}, {b}",
            "mulsd {p}, {b}",
            "vfmadd213sd {f}, {b}, {a}",
            "ldmxcsr dword ptr [{c} + 4]",
            c = in(reg) control.as_ptr(),
            a = in(xmm_reg) a,
            b = in(xmm_reg) b,
            s = inout(xmm_reg) sum,
            d = inout(xmm_reg) difference,
            p = inout(xmm_reg) product,
            f = inout(xmm_reg) fused,
        );
    }
    [sum, difference, product, fused]
}

#[cfg(target_arch = "x86_64")]
#[test]
fn doubles_round_as_the_host_does_in_the_same_mode() {
    if !is_x86_feature_detected!("fma") {
        eprintln!("skipped: the host has no FMA");
        return;
    }
    for name in ["gfx906", "gfx90a", "gfx1030", "gfx1201"] {
        let m = setup(target(name));
        // Exponents near each other, far apart, and at both ends of the range.
        let mut inputs = random(12, 4 * 16 * m.lanes);
        for (i, x) in inputs.chunks_mut(2).enumerate() {
            let n = x[1] >> 20 & 63;
            let exponent = match i / 2 % 4 {
                0 => 1023 - 32 + n,
                1 => 1023 - 900 + 28 * n,
                2 => n,
                _ => 2046 - n,
            };
            x[1] = x[1] & 0x800f_ffff | exponent << 20;
        }
        for direction in 0..4 {
            let add = |d: usize, b: &str| {
                let text = |op: &str| format!("{op} v[{{OUT+{d}}}:{{OUT+{}}}], v[20:21], {b}", d + 1);
                let known = m.knows("v_add_f64 v[8:9], v[20:21], v[22:23]");
                text(if known { "v_add_f64" } else { "v_add_f64_e64" })
            };
            let mut body: Vec<String> = (0..4).map(|i| format!("v_mov_b32 v{}, v{}", 20 + i, 3 + i)).collect();
            body.push(mode(&m, 2, 2, direction));
            body.extend([
                add(0, "v[22:23]"),
                add(2, "-v[22:23]"),
                add(4, "v[22:23]").replace("_add_", "_mul_"),
                "v_fma_f64 v[{OUT+6}:{OUT+7}], v[20:21], v[22:23], v[20:21]".into(),
            ]);
            for (x, got) in inputs.chunks(4).zip(m.run(&lines(&body), &inputs, 4, 8).chunks(8)) {
                let number = |p: &[u32]| f64::from_bits(p[0] as u64 | (p[1] as u64) << 32);
                let (a, b) = (number(&x[..2]), number(&x[2..]));
                for (n, want) in host_doubles(a, b, direction).into_iter().enumerate() {
                    let got = number(&got[2 * n..]);
                    assert_eq!(
                        got.to_bits(),
                        want.to_bits(),
                        "{name} mode {direction}, result {n} of {a:e} and {b:e}: {got:e} for {want:e}"
                    );
                }
            }
        }
    }
}
