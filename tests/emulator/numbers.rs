//! Evidence for number formats and functions that does not come from the emulator's own code: every 16-bit operand of the
//! unary half-precision instructions and conversions, every code of the 8-, 6- and 4-bit formats, on the device, against
//! the `half` crate, the definitions of the OCP specifications, and double-precision maths of the standard library.
//!
//! AMD promises 1 ULP for transcendental functions; that is what is asked of them here. All else must be exact.

use crate::support::machine::{run, target, true16};
use barewave_isa::Target;
use half::f16;

fn halves() -> Vec<u32> {
    (0..=0xffff).collect()
}

/// A 16-bit instruction's text: registers are halves from gfx11 on.
fn unary16(t: Target, name: &str) -> String {
    let h = if true16(t) { ".l" } else { "" };
    format!("{name} vOUT{h}, v3{h}")
}

/// Distance in units of the last place, as halves.
fn ulps16(a: u16, b: u16) -> u32 {
    let order = |x: u16| if x & 0x8000 != 0 { 0x8000 - (x & 0x7fff) as i32 } else { 0x8000 + x as i32 };
    order(a).abs_diff(order(b))
}

const TARGETS: [&str; 6] = ["gfx906", "gfx90a", "gfx950", "gfx1030", "gfx1100", "gfx1201"];

#[test]
fn every_half_through_every_unary_instruction() {
    // Instruction, function in doubles, largest distance in ULP.
    let exact: [(&str, fn(f64) -> f64); 4] = [
        ("v_floor_f16", f64::floor),
        ("v_ceil_f16", f64::ceil),
        ("v_trunc_f16", f64::trunc),
        ("v_rndne_f16", f64::round_ties_even),
    ];
    let close: [(&str, fn(f64) -> f64); 7] = [
        ("v_rcp_f16", |x| 1.0 / x),
        ("v_sqrt_f16", f64::sqrt),
        ("v_rsq_f16", |x| 1.0 / x.sqrt()),
        ("v_exp_f16", f64::exp2),
        ("v_log_f16", f64::log2),
        ("v_sin_f16", |x| (x.fract() * std::f64::consts::TAU).sin()),
        ("v_cos_f16", |x| (x.fract() * std::f64::consts::TAU).cos()),
    ];
    for name in TARGETS {
        let t = target(name);
        for (list, limit) in [(&exact[..], 0), (&close[..], 1)] {
            for (op, f) in list {
                let out = run(t, &[&unary16(t, op)], &halves(), 1, 1);
                for (x, got) in halves().into_iter().zip(out) {
                    let v = f16::from_bits(x as u16);
                    if v.is_infinite() && matches!(*op, "v_sin_f16" | "v_cos_f16") {
                        assert!(f16::from_bits(got as u16).is_nan());
                        continue;
                    }
                    let want = f16::from_f64(f(v.to_f64()));
                    let got = f16::from_bits(got as u16);
                    if want.is_nan() {
                        assert!(got.is_nan(), "{name} {op} {x:#x}: {got}");
                        continue;
                    }
                    // The standard library's sine near its zeros is itself off: absolute distance there.
                    let near = (got.to_f64() - want.to_f64()).abs() < 1e-6 && want.to_f64().abs() < 1e-3 && limit > 0;
                    let d = ulps16(want.to_bits(), got.to_bits());
                    assert!(d <= limit || near, "{name} {op} {x:#x} ({v}): {got} instead of {want}");
                }
            }
        }
    }
}

#[test]
fn every_half_through_every_conversion() {
    for name in TARGETS {
        let t = target(name);
        let h = if unary16(t, "").contains(".l") { ".l" } else { "" };
        let wide = run(t, &[&format!("v_cvt_f32_f16 vOUT, v3{h}")], &halves(), 1, 1);
        for (x, got) in halves().into_iter().zip(&wide) {
            let want = f16::from_bits(x as u16).to_f32();
            let same = if want.is_nan() { f32::from_bits(*got).is_nan() } else { want.to_bits() == *got };
            assert!(same, "{name} v_cvt_f32_f16 {x:#x}");
        }
        let ints: [(&str, fn(f64) -> u16); 2] =
            [("v_cvt_u16_f16", |v| v as u16), ("v_cvt_i16_f16", |v| v as i16 as u16)];
        for (op, f) in ints {
            for (x, got) in halves().into_iter().zip(run(t, &[&unary16(t, op)], &halves(), 1, 1)) {
                let want = f(f16::from_bits(x as u16).to_f64());
                assert_eq!(got as u16, want, "{name} {op} {x:#x}");
            }
        }
        let floats: [(&str, fn(u16) -> f32); 2] =
            [("v_cvt_f16_u16", |v| v as f32), ("v_cvt_f16_i16", |v| v as i16 as f32)];
        for (op, f) in floats {
            for (x, got) in halves().into_iter().zip(run(t, &[&unary16(t, op)], &halves(), 1, 1)) {
                assert_eq!(got as u16, f16::from_f32(f(x as u16)).to_bits(), "{name} {op} {x:#x}");
            }
        }
        // Singles between, at and around all halves.
        let mut singles: Vec<u32> = Vec::new();
        for x in (0..0xffffu32).step_by(2) {
            let (a, b) = (f16::from_bits(x as u16).to_f32(), f16::from_bits(x as u16 + 1).to_f32());
            let middle = ((a as f64 + b as f64) / 2.0) as f32;
            singles.extend([a.to_bits(), middle.to_bits(), middle.to_bits() + 1, middle.to_bits().wrapping_sub(1)]);
        }
        let text = format!("v_cvt_f16_f32 vOUT{h}, v3");
        for (x, got) in singles.iter().zip(run(t, &[&text], &singles, 1, 1)) {
            let v = f32::from_bits(*x);
            let want = f16::from_f32(v);
            let same = if v.is_nan() { f16::from_bits(got as u16).is_nan() } else { want.to_bits() == got as u16 };
            assert!(same, "{name} v_cvt_f16_f32 {x:#x}: {got:#x} instead of {:#x}", want.to_bits());
        }
    }
}

#[test]
fn every_half_taken_apart() {
    // Mantissa in [0.5, 1) and exponent of a finite number; infinities and NaN are themselves, with exponent 0.
    let parts = |v: f64| -> (f64, i32) {
        if v == 0.0 || !v.is_finite() {
            return (v, 0);
        }
        let mut e = 0;
        let mut m = v;
        while m.abs() >= 1.0 {
            (m, e) = (m / 2.0, e + 1);
        }
        while m.abs() < 0.5 {
            (m, e) = (m * 2.0, e - 1);
        }
        (m, e)
    };
    for name in TARGETS {
        let t = target(name);
        let get = |op: &str| run(t, &["v_mov_b32 vOUT, 0", &unary16(t, op)], &halves(), 1, 1);
        let (mantissas, exponents, fractions) =
            (get("v_frexp_mant_f16"), get("v_frexp_exp_i16_f16"), get("v_fract_f16"));
        for x in halves() {
            let v = f16::from_bits(x as u16).to_f64();
            let (mantissa, exponent) = parts(v);
            let at = x as usize;
            let got = f16::from_bits(mantissas[at] as u16);
            assert!(got.to_f64() == mantissa || got.is_nan() && v.is_nan(), "{name} mantissa of {v}: {got}");
            assert_eq!(exponents[at] as u16 as i16 as i32, exponent, "{name} exponent of {v}");
            if v.is_finite() {
                // Below one, where rounding would reach it.
                let want = f16::from_f64(v - v.floor()).to_bits().min(0x3bff);
                assert_eq!(fractions[at] as u16, want, "{name} fraction of {v}");
            }
        }
    }
}

#[test]
fn singles_become_bf16_as_an_independent_library_has_it() {
    let t = target("gfx950");
    // All bf16 numbers, the middles between them and the neighbours of those.
    let singles: Vec<u32> =
        (0..0x10000u32).flat_map(|x| [x << 16, x << 16 | 0x8000, x << 16 | 0x7fff, x << 16 | 0x8001]).collect();
    let out = run(t, &["v_cvt_pk_bf16_f32 vOUT, v3, -v3"], &singles, 1, 1);
    for (x, got) in singles.iter().zip(out) {
        let v = f32::from_bits(*x);
        for (v, got) in [(v, got as u16), (-v, (got >> 16) as u16)] {
            let (want, got) = (half::bf16::from_f32(v), half::bf16::from_bits(got));
            assert!(want.to_bits() == got.to_bits() || want.is_nan() && got.is_nan(), "{v:e}: {got} for {want}");
        }
    }
}

/// A small format by its definition: exponent and mantissa bits, bias, what the top codes are.
struct Small {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    /// 'i': infinities and NaN as IEEE (e5m2); 'n': the top code is NaN (e4m3); 'z': minus zero is NaN (FNUZ); ' ': none.
    special: char,
}

impl Small {
    fn bits(&self) -> u32 {
        1 + self.exponent + self.mantissa
    }
    fn value(&self, code: u32) -> f64 {
        let (m, e) = (code & ((1 << self.mantissa) - 1), code >> self.mantissa & ((1 << self.exponent) - 1));
        let negative = code >> (self.bits() - 1) & 1 == 1;
        let top = e == (1 << self.exponent) - 1;
        let magnitude = match self.special {
            'z' if code == 1 << (self.bits() - 1) => return f64::NAN,
            'i' if top && m == 0 => f64::INFINITY,
            'i' if top => return f64::NAN,
            'n' if top && m == (1 << self.mantissa) - 1 => return f64::NAN,
            _ if e == 0 => m as f64 * 2f64.powi(1 - self.bias - self.mantissa as i32),
            _ => (1.0 + m as f64 / (1 << self.mantissa) as f64) * 2f64.powi(e as i32 - self.bias),
        };
        if negative { -magnitude } else { magnitude }
    }
    /// The nearest code of a number by search, ties to even; `None` when it is beyond the largest by half a step.
    fn nearest(&self, x: f64) -> Option<u32> {
        let half = 1u32 << (self.bits() - 1);
        let finite: Vec<u32> = (0..half).filter(|c| self.value(*c).is_finite()).collect();
        let largest = *finite.last().unwrap();
        let step = self.value(largest) - self.value(largest - 1);
        let sign = if x.is_sign_negative() { half } else { 0 };
        let limit = self.value(largest) + step / 2.0;
        if x.abs() > limit || x.abs() == limit && largest % 2 == 1 {
            return None;
        }
        let best = finite.iter().copied().min_by(|a, b| {
            let d = |c: u32| (self.value(c) - x.abs()).abs();
            d(*a).partial_cmp(&d(*b)).unwrap().then((a & 1).cmp(&(b & 1)))
        });
        best.map(|c| c | sign)
    }
}

const E4M3: Small = Small { exponent: 4, mantissa: 3, bias: 7, special: 'n' };
const E5M2: Small = Small { exponent: 5, mantissa: 2, bias: 15, special: 'i' };
const E4M3_FNUZ: Small = Small { exponent: 4, mantissa: 3, bias: 8, special: 'z' };
const E5M2_FNUZ: Small = Small { exponent: 5, mantissa: 2, bias: 16, special: 'z' };
const E2M3: Small = Small { exponent: 2, mantissa: 3, bias: 1, special: ' ' };
const E3M2: Small = Small { exponent: 3, mantissa: 2, bias: 3, special: ' ' };
const E2M1: Small = Small { exponent: 2, mantissa: 1, bias: 1, special: ' ' };

#[test]
fn eight_bit_floats_are_what_their_definitions_say() {
    for (name, fp8, bf8) in [("gfx942", E4M3_FNUZ, E5M2_FNUZ), ("gfx950", E4M3, E5M2), ("gfx1201", E4M3, E5M2)] {
        let t = target(name);
        for (format, suffix) in [(&fp8, "fp8"), (&bf8, "bf8")] {
            let codes: Vec<u32> = (0..256).collect();
            for (c, got) in codes.iter().zip(run(t, &[&format!("v_cvt_f32_{suffix} vOUT, v3")], &codes, 1, 1)) {
                let (want, got) = (format.value(*c), f32::from_bits(got) as f64);
                assert!(want == got || want.is_nan() && got.is_nan(), "{name} {suffix} {c:#x}: {got} for {want}");
            }
            // Every half as an operand.
            let singles: Vec<u32> = halves().iter().map(|x| f16::from_bits(*x as u16).to_f32().to_bits()).collect();
            let text = format!("v_cvt_pk_{suffix}_f32 vOUT, v3, v3");
            let packed = match t.info().wave_size {
                64 => run(t, &["v_mov_b32 vOUT, 0", &text], &singles, 1, 1),
                _ => run(t, &["v_mov_b32 vOUT, 0", &text.replacen("vOUT,", "vOUT.l,", 1)], &singles, 1, 1),
            };
            for (x, got) in singles.iter().zip(packed) {
                let v = f32::from_bits(*x) as f64;
                let got = got & 0xff;
                if v.is_nan() {
                    assert!(format.value(got).is_nan(), "{name} {suffix} of NaN: {got:#x}");
                    continue;
                }
                match format.nearest(v) {
                    // FNUZ has no minus zero.
                    Some(c) if format.value(c).is_nan() => assert_eq!(got, 0, "{name} {suffix} of {v}"),
                    Some(c) => assert_eq!(got, c, "{name} {suffix} of {v}"),
                    None => assert!(!format.value(got).is_finite(), "{name} {suffix} of {v}: {got:#x}"),
                }
            }
        }
    }
}

#[test]
fn scaled_conversions_of_small_floats() {
    let t = target("gfx950");
    // Two codes a byte, both the same.
    let codes: Vec<u32> = (0..64).map(|c| (c & 15) * 0x11).collect();
    for (scale, factor) in [("1.0", 1.0), ("4.0", 4.0), ("0.5", 0.5)] {
        let body = [format!("v_mov_b32 v4, {scale}"), "v_cvt_scalef32_pk_f32_fp4 v[OUT:9], v3, v4".into()];
        let body: Vec<&str> = body.iter().map(String::as_str).collect();
        let out = run(t, &body, &codes, 1, 2);
        for (c, got) in codes.iter().zip(out.chunks(2)) {
            let want = (E2M1.value(c & 15) * factor) as f32;
            assert_eq!([f32::from_bits(got[0]), f32::from_bits(got[1])], [want; 2], "fp4 {c:#x} by {scale}");
        }
        let singles: Vec<u32> = halves()
            .iter()
            .map(|x| f16::from_bits(*x as u16))
            .map(|v| if v.is_finite() { v.to_f32().to_bits() } else { 0 })
            .collect();
        let body = [
            format!("v_mov_b32 v4, {scale}"),
            "v_mov_b32 vOUT, 0".into(),
            "v_cvt_scalef32_pk_fp4_f32 vOUT, v3, v3, v4".into(),
        ];
        let body: Vec<&str> = body.iter().map(String::as_str).collect();
        for (x, got) in singles.iter().zip(run(t, &body, &singles, 1, 1)) {
            let v = f32::from_bits(*x) as f64 / factor;
            // Too large numbers become the largest.
            let want = E2M1.nearest(v).unwrap_or(if v < 0.0 { 15 } else { 7 });
            assert_eq!(got & 0xff, want * 0x11, "fp4 of {v}");
        }
    }
    // 32 numbers of 6 bits in six registers.
    for (format, suffix) in [(&E2M3, "fp6"), (&E3M2, "bf6")] {
        let mut words = Vec::new();
        for lane in 0..64u32 {
            let mut bits = [0u32; 6];
            for i in 0..32u32 {
                let code = (lane + i) % 64;
                let at = 6 * i as usize;
                bits[at / 32] |= code << (at % 32);
                if at % 32 > 26 {
                    bits[at / 32 + 1] |= code >> (32 - at % 32);
                }
            }
            words.extend(bits);
        }
        let body = ["v_mov_b32 v9, 2.0".to_string(), format!("v_cvt_scalef32_pk32_f32_{suffix} v[OUT:47], v[4:9], v9")];
        // The input starts at v3; move it to an even register.
        let mut all: Vec<String> = (0..6).rev().map(|i| format!("v_mov_b32 v{}, v{}", 10 + i, 3 + i)).collect();
        all.extend(body.iter().map(|l| l.replace("v[4:9]", "v[10:15]")));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let out = run(t, &all, &words, 6, 32);
        for (lane, got) in out.chunks(32).enumerate() {
            for (i, v) in got.iter().enumerate() {
                let want = (format.value((lane as u32 + i as u32) % 64) * 2.0) as f32;
                assert_eq!(f32::from_bits(*v), want, "{suffix} lane {lane} number {i}");
            }
        }
    }
}
