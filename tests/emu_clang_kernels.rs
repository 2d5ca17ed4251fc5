//! More kernels that clang wrote, on every target with code generation: scan, softmax, mandelbrot, dot products. Each runs
//! plainly and in strict mode and is compared with the host.

mod clang;

use barewave::emu::LaunchOptions;
use barewave_isa::Target;
use clang::*;
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
