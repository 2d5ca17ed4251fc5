//! Modifiers of matrix instructions, and the instructions whose layouts the published listings lack, against products
//! computed here: broadcasts of blocks and lane groups (CBSZ, ABID, BLGP), negation, 8-, 6- and 4-bit floats with scales.
//!
//! Source of what the modifiers do: "CDNA3" and "CDNA4" instruction set manuals, matrix chapter; "RDNA3" manual, WMMA.

use crate::support::machine::{Setup, random, run, setup, target};

#[test]
fn blocks_and_lane_groups_are_broadcast() {
    // 16 blocks of 4 x 4: lane 4 b + i holds row i of A of block b, and column i of B.
    let small: Vec<f32> = random(1, 3 * 64).iter().map(|x| (x % 7) as f32 - 3.0).collect();
    let bits: Vec<u32> = small.iter().map(|v| v.to_bits()).collect();
    for name in ["gfx90a", "gfx942", "gfx950"] {
        for (cbsz, abid, blgp) in [
            (0, 0, 0),
            (1, 1, 0),
            (2, 3, 0),
            (3, 5, 0),
            (4, 9, 0),
            (0, 0, 1),
            (0, 0, 2),
            (0, 0, 3),
            (2, 1, 6),
            (0, 0, 7),
        ] {
            let text = format!(
                "v_mfma_f32_4x4x1_16b_f32 v[OUT:{{OUT+3}}], v3, v4, v[OUT:{{OUT+3}}] cbsz:{cbsz} abid:{abid} blgp:{blgp}"
            );
            let s = setup(target(name));
            let text = if s.knows(&text.replace("{OUT+3}", "11").replace("OUT", "8")) {
                text
            } else {
                text.replace("4x4x1_16b_f32", "4x4x1f32")
            };
            let moves: Vec<String> = (0..4).map(|n| format!("v_mov_b32 v{{OUT+{n}}}, v5")).collect();
            let body: Vec<&str> = moves.iter().map(String::as_str).chain([text.as_str()]).collect();
            let out = s.run(&body, &bits, 3, 4);
            for lane in 0..64usize {
                let (block, group) = (lane / 4, 1 << cbsz);
                let a_block = if cbsz == 0 { block } else { block / group * group + abid };
                let b_lane = match blgp {
                    1 => lane % 32,
                    2 => 32 + lane % 32,
                    3 => (lane + 16) % 64,
                    4..=7 => 16 * (blgp - 4) + lane % 16,
                    _ => lane,
                };
                for i in 0..4 {
                    let want = small[3 * lane + 2] + small[3 * (4 * a_block + i)] * small[3 * b_lane + 1];
                    let got = f32::from_bits(out[4 * lane + i]);
                    assert_eq!(got, want, "{name} `{text}` row {i} lane {lane}");
                }
            }
        }
    }
}

#[test]
fn doubles_are_negated() {
    // 4 blocks of 4 x 4 x 4: lane 16 k + 4 b + i holds A[i][k] of block b and B[k][i]; D[i][j] is in lane 16 i + 4 b + j.
    let numbers: Vec<f64> = random(2, 3 * 64).iter().map(|x| (x % 9) as f64 - 4.0).collect();
    let words: Vec<u32> = numbers.iter().flat_map(|v| [v.to_bits() as u32, (v.to_bits() >> 32) as u32]).collect();
    for neg in 0..8usize {
        let bit = |n: usize| if neg >> n & 1 == 1 { -1.0 } else { 1.0 };
        let text = format!(
            "v_mfma_f64_4x4x4_4b_f64 v[OUT:{{OUT+1}}], v[20:21], v[22:23], v[24:25] neg:[{},{},{}]",
            neg & 1,
            neg >> 1 & 1,
            neg >> 2
        );
        let moves: Vec<String> = (0..6).map(|n| format!("v_mov_b32 v{}, v{}", 20 + n, 3 + n)).collect();
        let body: Vec<&str> = moves.iter().map(String::as_str).chain([text.as_str()]).collect();
        let out = run(target("gfx942"), &body, &words, 6, 2);
        for (lane, got) in out.chunks(2).enumerate() {
            let (i, b, j) = (lane / 16, lane / 4 % 4, lane % 4);
            let element = |n: usize, lane: usize| bit(n) * numbers[3 * lane + n];
            let want = (0..4).fold(element(2, lane), |s, k| {
                element(0, 16 * k + 4 * b + i).mul_add(element(1, 16 * k + 4 * b + j), s)
            });
            assert_eq!(f64::from_bits(got[0] as u64 | (got[1] as u64) << 32), want, "{text} lane {lane}");
        }
    }
}

#[test]
fn halves_of_wmma_are_negated() {
    // Lane l holds row l % 16 of A and column l % 16 of B, two k a register; D[2 r + l / 16][l % 16] is in register r.
    let number = |seed: u32| -> Vec<f32> { random(seed, 256).iter().map(|x| (x % 7) as f32 - 3.0).collect() };
    let (a, b, c) = (number(3), number(4), number(5));
    let pack = |v: &[f32]| -> u32 {
        let h = |x: f32| half::f16::from_f32(x).to_bits() as u32;
        h(v[0]) | h(v[1]) << 16
    };
    let mut words = Vec::new();
    for lane in 0..32usize {
        let side = lane % 16;
        words.extend((0..8).map(|r| pack(&a[16 * side + 2 * r..])));
        words.extend((0..8).map(|r| pack(&[b[32 * r + side], b[32 * r + 16 + side]])));
        words.extend((0..8).map(|r| c[16 * (2 * r + lane / 16) + side].to_bits()));
    }
    for name in ["gfx1100", "gfx1151"] {
        for (lo, hi) in [(0, 0), (1, 0), (2, 1), (4, 0), (0, 4), (7, 7), (3, 3)] {
            let list = |m: usize| format!("[{},{},{}]", m & 1, m >> 1 & 1, m >> 2);
            let text = format!(
                "v_wmma_f32_16x16x16_f16 v[OUT:{{OUT+7}}], v[3:10], v[11:18], v[19:26] neg_lo:{} neg_hi:{}",
                list(lo),
                list(hi)
            );
            let out = run(target(name), &[&text], &words, 24, 8);
            let sign = |m: usize, n: usize| if m >> n & 1 == 1 { -1.0f32 } else { 1.0 };
            for (lane, got) in out.chunks(8).enumerate() {
                for (r, got) in got.iter().enumerate() {
                    let (i, j) = (2 * r + lane / 16, lane % 16);
                    // NEG_HI of C is its absolute value, which NEG negates.
                    let start = c[16 * i + j];
                    let start = if hi & 4 != 0 { start.abs() } else { start } * sign(lo, 2);
                    let want = (0..16).fold(start, |s, k| {
                        let m = if k % 2 == 0 { lo } else { hi };
                        s + sign(m, 0) * a[16 * i + k] * sign(m, 1) * b[16 * k + j]
                    });
                    assert_eq!(f32::from_bits(*got), want, "{name} `{text}` row {i} column {j}");
                }
            }
        }
    }
}

/// A small float by its definition: exponent and mantissa bits; no infinities (but e5m2) matter here.
#[derive(Clone, Copy)]
struct Small {
    exponent: u32,
    mantissa: u32,
}

impl Small {
    fn bits(self) -> usize {
        1 + (self.exponent + self.mantissa) as usize
    }
    fn value(self, code: u32) -> f32 {
        let (m, e) = (code & ((1 << self.mantissa) - 1), code >> self.mantissa & ((1 << self.exponent) - 1));
        let bias = (1 << (self.exponent - 1)) - 1;
        let f = m as f32 / (1 << self.mantissa) as f32;
        let v = if e == 0 { f * 2f32.powi(1 - bias) } else { (1.0 + f) * 2f32.powi(e as i32 - bias) };
        if code >> (self.exponent + self.mantissa) & 1 == 1 { -v } else { v }
    }
    /// Codes of multiples of 0.5 up to 2 in magnitude: sums of their products are exact.
    fn codes(self) -> Vec<u32> {
        let good = |v: f32| (2.0 * v).fract() == 0.0 && v.abs() <= 2.0;
        (0..1 << self.bits()).filter(|c| good(self.value(*c))).collect()
    }
}

/// In the order of the instruction's format codes: fp8, bf8, fp6, bf6, fp4.
const FORMATS: [Small; 5] = [
    Small { exponent: 4, mantissa: 3 },
    Small { exponent: 5, mantissa: 2 },
    Small { exponent: 2, mantissa: 3 },
    Small { exponent: 3, mantissa: 2 },
    Small { exponent: 2, mantissa: 1 },
];

/// One operand: codes by `[row or column][k]`, and the 8 registers of every lane.
fn operand(f: Small, side: usize, depth: usize, seed: u32) -> (Vec<Vec<f32>>, Vec<[u32; 8]>) {
    let codes = f.codes();
    let mut numbers = random(seed, side * depth).into_iter();
    let chosen: Vec<Vec<u32>> = (0..side)
        .map(|_| (0..depth).map(|_| codes[numbers.next().unwrap() as usize % codes.len()]).collect())
        .collect();
    let groups = 64 / side;
    let registers = (0..64)
        .map(|lane| {
            let mut r = [0u32; 9];
            for e in 0..32 {
                let g = lane / side;
                // A lane has 32 consecutive k; of 8-bit formats two runs of 16.
                let k = if f.bits() == 8 { 16 * groups * (e / 16) + 16 * g + e % 16 } else { 32 * g + e };
                let at = e * f.bits();
                let v = (chosen[lane % side][k] as u64) << (at % 32);
                r[at / 32] |= v as u32;
                r[at / 32 + 1] |= (v >> 32) as u32;
            }
            r[..8].try_into().unwrap()
        })
        .collect();
    (chosen.iter().map(|row| row.iter().map(|c| f.value(*c)).collect()).collect(), registers)
}

#[test]
fn products_of_small_floats_with_and_without_scales() {
    let s = Setup { lds: 0, ..setup(target("gfx950")) };
    for (side, depth, results) in [(16usize, 128usize, 4usize), (32, 64, 16)] {
        for (fa, fb, scaled) in (0..25).flat_map(|n| [(n / 5, n % 5, false), (n / 5, n % 5, true)]) {
            let (a, ra) = operand(FORMATS[fa], side, depth, 7 + fa as u32);
            let (b, rb) = operand(FORMATS[fb], side, depth, 70 + fb as u32);
            // Scales 1/2, 1 and 2 in all bytes.
            let scales: Vec<u32> = random(700, 128)
                .iter()
                .map(|x| (0..4).fold(0, |w, n| w | (126 + (x >> (4 * n)) % 3) << (8 * n)))
                .collect();
            let words: Vec<u32> =
                (0..64).flat_map(|l| [&ra[l][..], &rb[l], &scales[2 * l..2 * l + 2]].concat()).collect();
            let mut body: Vec<String> = (0..16).map(|n| format!("v_mov_b32 v{}, v{}", 60 + n, 3 + n)).collect();
            body.extend((0..results).map(|n| format!("v_mov_b32 v{{OUT+{n}}}, 1.0")));
            let range = |from: usize, f: Small| format!("v[{from}:{}]", from + f.bits() - 1);
            let d = format!("v[OUT:{{OUT+{}}}]", results - 1);
            let (x, y) = (range(60, FORMATS[fa]), range(68, FORMATS[fb]));
            // Byte 3 of A's scales, byte 2 of B's.
            body.push(match scaled {
                true => format!(
                    "v_mfma_scale_f32_{side}x{side}x{depth}_f8f6f4 {d}, {x}, {y}, {d}, v19, v20 \
                     op_sel:[1,0,0] op_sel_hi:[1,1,0] cbsz:{fa} blgp:{fb}"
                ),
                false => format!("v_mfma_f32_{side}x{side}x{depth}_f8f6f4 {d}, {x}, {y}, {d} cbsz:{fa} blgp:{fb}"),
            });
            let body: Vec<&str> = body.iter().map(String::as_str).collect();
            let out = s.run(&body, &words, 18, results);
            // The scale of row i for the 32 k of block n is in lane n * side + i.
            let factor = |which: usize, byte: usize, i: usize, k: usize| {
                let word = scales[2 * (k / 32 * side + i) + which];
                if scaled { 2f32.powi((word >> (8 * byte) & 255) as i32 - 127) } else { 1.0 }
            };
            for lane in 0..64 {
                for r in 0..results {
                    let (i, j) = match side {
                        16 => (4 * (lane / 16) + r, lane % 16),
                        _ => (8 * (r / 4) + 4 * (lane / 32) + r % 4, lane % 32),
                    };
                    let want = (0..depth)
                        .fold(1.0f32, |sum, k| sum + a[i][k] * factor(0, 3, i, k) * b[j][k] * factor(1, 2, j, k));
                    let got = f32::from_bits(out[results * lane + r]);
                    assert_eq!(got, want, "{side}x{side}x{depth} formats {fa} {fb} scaled {scaled}: D[{i}][{j}]");
                }
            }
        }
    }
}
