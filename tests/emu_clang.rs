//! The emulated device runs code that clang wrote, for every target, and gets what the host gets.

mod clang;

use barewave::emu::LaunchOptions;
use barewave_isa::Target;
use clang::*;
use pretty_assertions::assert_eq;

fn targets() -> impl Iterator<Item = Target> {
    Target::all().filter(|t| !t.info().name.starts_with("gfx125"))
}

/// Runs one source on every target and hands the result to a check.
fn each(source: &str, test: impl Fn(Target, &[u8])) {
    if !available() {
        return;
    }
    for t in targets() {
        eprintln!("{}", t.info().name);
        test(t, &compile(t, source, &[]));
    }
}

fn fast() -> LaunchOptions {
    LaunchOptions::default()
}

#[test]
fn vector_add_with_partial_last_group() {
    let source = "__kernel void add(__global const float *a, __global const float *b, __global float *c, uint n) {
        uint i = GID; if (i < n) c[i] = a[i] + b[i]; }";
    let n = 1000usize;
    let (a, b) = (random_floats(1, n), random_floats(2, n));
    each(source, |t, elf| {
        let (mut pa, mut pb, mut pc) = (bytes_of(&a), bytes_of(&b), vec![0xee; 4 * n + 64]);
        let stats = run(
            t,
            elf,
            "add",
            [16, 1, 1],
            [64, 1, 1],
            &mut [
                Arg::Buffer(&mut pa),
                Arg::Buffer(&mut pb),
                Arg::Buffer(&mut pc),
                Arg::Value(&(n as u32).to_le_bytes()),
            ],
            &fast(),
        )
        .unwrap_or_else(|f| panic!("{f}"));
        let want: Vec<f32> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
        assert_eq!(floats(&pc[..4 * n]), want);
        assert!(pc[4 * n..].iter().all(|&x| x == 0xee), "wrote past the end");
        assert_eq!(stats.workgroups, 16);
    });
}

#[test]
fn reduction_through_lds() {
    let source = "__kernel void sum(__global const int *a, __global int *out) {
        __local int t[256]; t[LID] = a[GID]; BARRIER();
        for (uint s = 128; s > 0; s >>= 1) { if (LID < s) t[LID] += t[LID + s]; BARRIER(); }
        if (LID == 0) out[GROUP] = t[0]; }";
    let a = random(3, 2048);
    each(source, |t, elf| {
        let (mut pa, mut out) = (bytes_of_ints(&a), vec![0; 32]);
        run(t, elf, "sum", [8, 1, 1], [256, 1, 1], &mut [Arg::Buffer(&mut pa), Arg::Buffer(&mut out)], &fast())
            .unwrap_or_else(|f| panic!("{f}"));
        let want: Vec<u32> = a.chunks(256).map(|c| c.iter().fold(0u32, |s, x| s.wrapping_add(*x))).collect();
        assert_eq!(ints(&out), want);
    });
}

#[test]
fn matrix_product_with_tiles() {
    let source = "__kernel void gemm(__global const float *a, __global const float *b, __global float *c) {
        const uint n = 64; __local float ta[16][16], tb[16][16];
        uint x = LID % 16, y = LID / 16, col = (GROUP % 4) * 16 + x, row = (GROUP / 4) * 16 + y; float s = 0;
        for (uint k = 0; k < n; k += 16) {
            ta[y][x] = a[row * n + k + x]; tb[y][x] = b[(k + y) * n + col]; BARRIER();
            for (uint i = 0; i < 16; i++) s = __builtin_fmaf(ta[y][i], tb[i][x], s);
            BARRIER();
        }
        c[row * n + col] = s; }";
    let n = 64;
    let (a, b) = (random_floats(5, n * n), random_floats(6, n * n));
    let mut want = vec![0f32; n * n];
    for r in 0..n {
        for c in 0..n {
            want[r * n + c] = (0..n).fold(0f32, |s, k| a[r * n + k].mul_add(b[k * n + c], s));
        }
    }
    each(source, |t, elf| {
        let (mut pa, mut pb, mut pc) = (bytes_of(&a), bytes_of(&b), vec![0; 4 * n * n]);
        let args = &mut [Arg::Buffer(&mut pa), Arg::Buffer(&mut pb), Arg::Buffer(&mut pc)];
        run(t, elf, "gemm", [16, 1, 1], [256, 1, 1], args, &fast()).unwrap_or_else(|f| panic!("{f}"));
        assert_eq!(floats(&pc), want);
    });
}
