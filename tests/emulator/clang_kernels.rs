//! More kernels that clang wrote, on every target with code generation: scan, softmax, mandelbrot, dot products, workgroups
//! that wait for each other. Each runs plainly and in strict mode and is compared with the host.

use crate::support::clang::*;
use barewave::emu::LaunchOptions;
use barewave_isa::Target;
use pretty_assertions::assert_eq;
use rayon::prelude::*;

/// Runs kernel `k` with one input buffer and one output buffer on every target, targets in parallel.
fn every(source: &str, groups: u32, block: u32, input: &[u8], out: usize, check: impl Fn(&str, &[u8]) + Sync) {
    if !available() {
        return;
    }
    let targets: Vec<Target> = Target::all().filter(|t| !t.info().name.starts_with("gfx125")).collect();
    targets.par_iter().for_each(|&t| {
        let elf = compile(t, source, &[]);
        let (mut a, mut o) = (input.to_vec(), vec![0; out]);
        let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut o)];
        run(t, &elf, "k", [groups, 1, 1], [block, 1, 1], args, &LaunchOptions::default())
            .unwrap_or_else(|f| panic!("{}: {f}", t.info().name));
        check(t.info().name, &o);
    });
}

#[test]
fn inclusive_scan() {
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        __local uint t[2][256]; uint p = 0; t[0][LID] = a[GID]; BARRIER();
        for (uint d = 1; d < 256; d <<= 1) {
            t[1 - p][LID] = t[p][LID] + (LID >= d ? t[p][LID - d] : 0); p = 1 - p; BARRIER(); }
        o[GID] = t[p][LID]; }";
    let input = random(41, 1024);
    let want: Vec<u32> = input
        .chunks(256)
        .flat_map(|c| {
            c.iter().scan(0u32, |s, x| {
                *s = s.wrapping_add(*x);
                Some(*s)
            })
        })
        .collect();
    every(source, 4, 256, &bytes_of_ints(&input), 4096, |t, o| assert_eq!(ints(o), want, "{t}"));
}

#[test]
fn softmax_of_rows() {
    let source = "__kernel void k(__global const float *a, __global float *o) {
        __local float t[128]; float x = a[GID]; t[LID] = x; BARRIER();
        for (uint s = 64; s > 0; s >>= 1) { float y = LID < s ? __builtin_fmaxf(t[LID], t[LID + s]) : 0; BARRIER();
            if (LID < s) t[LID] = y; BARRIER(); }
        float top = t[0]; BARRIER(); float e = __builtin_exp2f((x - top) * 1.44269504f); t[LID] = e; BARRIER();
        for (uint s = 64; s > 0; s >>= 1) { float y = LID < s ? t[LID] + t[LID + s] : 0; BARRIER();
            if (LID < s) t[LID] = y; BARRIER(); }
        o[GID] = e / t[0]; }";
    let x: Vec<f32> = random_floats(42, 512).iter().map(|v| v * 6.0).collect();
    every(source, 4, 128, &bytes_of(&x), 2048, |t, o| {
        for (x, y) in x.chunks(128).zip(floats(o).chunks(128)) {
            let top = x.iter().copied().fold(f32::MIN, f32::max) as f64;
            let sum: f64 = x.iter().map(|v| (*v as f64 - top).exp()).sum();
            for (x, y) in x.iter().zip(y) {
                let want = (*x as f64 - top).exp() / sum;
                assert!((*y as f64 - want).abs() < 1e-6, "{t}: {y} instead of {want}");
            }
        }
    });
}

#[test]
fn mandelbrot() {
    let source = "#pragma OPENCL FP_CONTRACT OFF
        __kernel void k(__global const float *a, __global uint *o) {
        uint i = GID; float cr = a[0] + (i & 63) * a[1], ci = a[2] + (i >> 6) * a[1], x = 0, y = 0; uint n = 0;
        while (n < 200 && x * x + y * y < 4.0f) { float t = x * x - y * y + cr; y = 2.0f * x * y + ci; x = t; n++; }
        o[i] = n; }";
    let a = [-2.0f32, 0.04, -1.25, 0.0];
    let want: Vec<u32> = (0..4096u32)
        .map(|i| {
            let (cr, ci) = (a[0] + (i & 63) as f32 * a[1], a[2] + (i >> 6) as f32 * a[1]);
            let (mut x, mut y, mut n) = (0f32, 0f32, 0);
            while n < 200 && x * x + y * y < 4.0 {
                (x, y) = (x * x - y * y + cr, 2.0 * x * y + ci);
                n += 1;
            }
            n
        })
        .collect();
    every(source, 64, 64, &bytes_of(&a), 16384, |t, o| assert_eq!(ints(o), want, "{t}"));
}

#[test]
fn dot_products_of_bytes_and_halves() {
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        int s = 7; uint u = 9; float h = 0;
        for (uint i = 0; i < 8; i++) { uint x = a[(GID + i) & 255], y = a[(GID * 3 + i) & 255];
            for (uint b = 0; b < 32; b += 8) { s += (char)(x >> b) * (char)(y >> b); u += (uchar)(x >> b) * (uchar)(y >> b); }
            h += (float)(half)(float)(x & 15) * (float)(half)(float)(y & 15); }
        o[3 * GID] = s; o[3 * GID + 1] = u; o[3 * GID + 2] = __builtin_astype(h, uint); }";
    let a = random(43, 256);
    let want: Vec<u32> = (0..256usize)
        .flat_map(|g| {
            let (mut s, mut u, mut h) = (7i32, 9u32, 0f32);
            for i in 0..8 {
                let (x, y) = (a[(g + i) & 255], a[(g * 3 + i) & 255]);
                for b in (0..32).step_by(8) {
                    s += (x >> b) as i8 as i32 * (y >> b) as i8 as i32;
                    u += (x >> b) as u8 as u32 * (y >> b) as u8 as u32;
                }
                h += (x & 15) as f32 * (y & 15) as f32;
            }
            [s as u32, u, h.to_bits()]
        })
        .collect();
    every(source, 4, 64, &bytes_of_ints(&a), 3072, |t, o| assert_eq!(ints(o), want, "{t}"));
}

/// The dot instructions of the targets that have them, through clang's builtins.
#[test]
fn dot_instructions() {
    if !available() {
        return;
    }
    let a = random(44, 256);
    let byte = |x: u32, n: usize| x.to_le_bytes()[n];
    for t in Target::all().filter(|t| !t.info().name.starts_with("gfx125")) {
        let has = |name: &str| barewave_isa::Op::by_name(name).is_some_and(|op| t.has(op));
        let (bytes, halves, nibbles, mixed) =
            (has("v_dot4_i32_i8"), has("v_dot2_f32_f16"), has("v_dot8_u32_u4"), has("v_dot4_i32_iu8"));
        if !(bytes || halves || mixed) {
            continue;
        }
        let mut source = String::from(
            "typedef half h2 __attribute__((ext_vector_type(2)));
            __kernel void k(__global const uint *a, __global uint *o) {
            uint x = a[GID], y = a[(GID * 5 + 3) & 255]; uint r0 = 0, r1 = 0, r2 = 0, r3 = 0;\n",
        );
        if bytes {
            source += "r0 = __builtin_amdgcn_sdot4((int)x, (int)y, 77, false);\n";
        } else if mixed {
            source += "r0 = __builtin_amdgcn_sudot4(true, (int)x, true, (int)y, 77, false);\n";
        }
        if mixed {
            source += "r3 = __builtin_amdgcn_sudot4(true, (int)x, false, (int)y, -5, false);\n";
        }
        if halves {
            source +=
                "r1 = __builtin_astype(__builtin_amdgcn_fdot2(__builtin_astype((x & 0x00070007) | 0x44004400, h2),
                __builtin_astype((y & 0x80078007) | 0x3c003c00, h2), 0.5f, false), uint);\n";
        }
        if nibbles {
            source += "r2 = __builtin_amdgcn_udot8(x, y, 9u, false);\n";
        }
        source += "o[4 * GID] = r0; o[4 * GID + 1] = r1; o[4 * GID + 2] = r2; o[4 * GID + 3] = r3; }";
        let (mut input, mut o) = (bytes_of_ints(&a), vec![0; 4096]);
        let args = &mut [Arg::Buffer(&mut input), Arg::Buffer(&mut o)];
        run(t, &compile(t, &source, &[]), "k", [4, 1, 1], [64, 1, 1], args, &LaunchOptions::default())
            .unwrap_or_else(|f| panic!("{}: {f}", t.info().name));
        for (g, got) in ints(&o).chunks(4).enumerate() {
            let (x, y) = (a[g], a[(g * 5 + 3) & 255]);
            let signed: i32 = (0..4).map(|n| byte(x, n) as i8 as i32 * byte(y, n) as i8 as i32).sum();
            let both: i32 = (0..4).map(|n| byte(x, n) as i8 as i32 * byte(y, n) as i32).sum();
            let h = |v: u32, s: u32| half::f16::from_bits((v >> s) as u16).to_f32();
            let (p, q) = ((x & 0x0007_0007) | 0x4400_4400, (y & 0x8007_8007) | 0x3c00_3c00);
            let float = h(p, 0) * h(q, 0) + h(p, 16) * h(q, 16) + 0.5;
            let fours: u32 = (0..8).map(|n| (x >> (4 * n) & 15) * (y >> (4 * n) & 15)).sum();
            let want = [
                if bytes || mixed { (signed + 77) as u32 } else { 0 },
                if halves { float.to_bits() } else { 0 },
                if nibbles { fours + 9 } else { 0 },
                if mixed { (both - 5) as u32 } else { 0 },
            ];
            assert_eq!(got, want, "{} item {g}", t.info().name);
        }
    }
}

/// A scan over workgroups whose every workgroup waits for the one after it: none of those that a thread starts first
/// can end before later ones ran. Then a barrier of the whole grid.
#[test]
fn workgroups_wait_for_each_other() {
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        __local uint sum, behind; uint groups = 12, g = GROUP; if (LID == 0) sum = 0; BARRIER();
        __atomic_fetch_add(&sum, a[GID], __ATOMIC_RELAXED); BARRIER();
        if (LID == 0) {
            uint v = 0;
            if (g + 1 < groups) { while (__atomic_load_n(&o[2 * g + 2], __ATOMIC_ACQUIRE) == 0); v = o[2 * g + 3]; }
            o[2 * g + 1] = v + sum; __atomic_store_n(&o[2 * g], 1, __ATOMIC_RELEASE);
            __atomic_fetch_add(&o[24], 1, __ATOMIC_ACQ_REL); while (__atomic_load_n(&o[24], __ATOMIC_ACQUIRE) < groups);
            behind = o[1]; }
        BARRIER(); o[25 + GID] = behind - a[GID]; }";
    if !available() {
        return;
    }
    let a = random(45, 12 * 64);
    let total = a.iter().fold(0u32, |s, x| s.wrapping_add(*x));
    let targets: Vec<Target> = Target::all().filter(|t| !t.info().name.starts_with("gfx125")).collect();
    targets.par_iter().for_each(|&t| {
        let elf = compile(t, source, &[]);
        for single_thread in [false, true] {
            let options = LaunchOptions { single_thread, ..LaunchOptions::default() };
            let (mut input, mut o) = (bytes_of_ints(&a), vec![0; 4 * (25 + a.len())]);
            let args = &mut [Arg::Buffer(&mut input), Arg::Buffer(&mut o)];
            run_once(t, &elf, "k", [12, 1, 1], [64, 1, 1], args, &options)
                .unwrap_or_else(|f| panic!("{}: {f}", t.info().name));
            let o = ints(&o);
            for g in 0..12 {
                let want = a[64 * g..].iter().fold(0u32, |s, x| s.wrapping_add(*x));
                assert_eq!(o[2 * g + 1], want, "{} workgroup {g}", t.info().name);
            }
            let want: Vec<u32> = a.iter().map(|x| total.wrapping_sub(*x)).collect();
            assert_eq!(o[25..], want, "{}", t.info().name);
        }
    });
}
