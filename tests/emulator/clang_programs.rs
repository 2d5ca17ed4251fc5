//! The emulated device runs code that clang wrote, for every target, and gets what the host gets.

use crate::support::clang::*;
use barewave::emu::LaunchOptions;
use barewave_isa::Target;
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
        test(t, &compile(t, source, &["-cl-fp32-correctly-rounded-divide-sqrt"]));
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

/// An expression of two 32-bit inputs with a 64-bit result, and the same on the host.
type Case = (&'static str, fn(u32, u32) -> u64);

fn f(x: u32) -> f32 {
    f32::from_bits(x)
}
/// A finite number of moderate size made of random bits.
fn m(x: u32) -> f32 {
    f32::from_bits(x & 0x807f_ffff | (0x70 + (x >> 23) % 0x20) << 23)
}

/// Compiles all cases into one kernel and compares every result bit.
fn check_cases(name: &str, helpers: &str, cases: &[Case], inputs: &[(u32, u32)]) {
    let mut source = format!(
        "{helpers}\n__kernel void k(__global const uint *pa, __global const uint *pb, __global ulong *o, uint n) {{\n uint i = GID; uint a = pa[i], b = pb[i];\n"
    );
    for (i, (e, _)) in cases.iter().enumerate() {
        source += &format!(" o[n * {i} + i] = (ulong)({e});\n");
    }
    source += "}\n";
    let n = inputs.len();
    assert_eq!(n % 64, 0);
    let (a, b): (Vec<u32>, Vec<u32>) = inputs.iter().copied().unzip();
    each(&source, |t, elf| {
        let (mut pa, mut pb, mut o) = (bytes_of_ints(&a), bytes_of_ints(&b), vec![0; 8 * n * cases.len()]);
        let args = &mut [
            Arg::Buffer(&mut pa),
            Arg::Buffer(&mut pb),
            Arg::Buffer(&mut o),
            Arg::Value(&(n as u32).to_le_bytes()),
        ];
        let t = t.info().name;
        run(Target::parse(t).unwrap(), elf, "k", [n as u32 / 64, 1, 1], [64, 1, 1], args, &fast())
            .unwrap_or_else(|f| panic!("{name} on {t}: {f}"));
        for (c, (e, host)) in cases.iter().enumerate() {
            for i in 0..n {
                let at = 8 * (n * c + i);
                let got = u64::from_le_bytes(o[at..at + 8].try_into().unwrap());
                let want = host(a[i], b[i]);
                assert_eq!(
                    format!("{got:#x}"),
                    format!("{want:#x}"),
                    "{name} on {t}: {e} with a={:#x} ({:e}) b={:#x} ({:e})",
                    a[i],
                    f(a[i]),
                    b[i],
                    f(b[i])
                );
            }
        }
    });
}

fn random_pairs(seed: u32, n: usize) -> Vec<(u32, u32)> {
    let v = random(seed, 2 * n);
    let mut p: Vec<(u32, u32)> = v.chunks(2).map(|c| (c[0], c[1])).collect();
    let odd = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 31, 32, 0x3f80_0000];
    for (i, x) in p.iter_mut().take(64).enumerate() {
        *x = (odd[i % 8], odd[i / 8]);
    }
    p
}

#[test]
fn integers() {
    let cases: &[Case] = &[
        ("a + b", |a, b| a.wrapping_add(b) as u64),
        ("a * b", |a, b| a.wrapping_mul(b) as u64),
        ("(ulong)a * b", |a, b| a as u64 * b as u64),
        ("(ulong)((long)(int)a * (int)b)", |a, b| (a as i32 as i64 * b as i32 as i64) as u64),
        ("a / (b | 1)", |a, b| (a / (b | 1)) as u64),
        ("a % (b | 1)", |a, b| (a % (b | 1)) as u64),
        ("(uint)((int)a / ((int)(b >> 1) | 1))", |a, b| (a as i32).wrapping_div((b >> 1) as i32 | 1) as u32 as u64),
        ("(((ulong)a << 32) | b) / ((b >> 3) | 1)", |a, b| ((a as u64) << 32 | b as u64) / ((b >> 3) | 1) as u64),
        ("(((ulong)a << 32) | b) % (((ulong)b << 20) | 1)", |a, b| {
            ((a as u64) << 32 | b as u64) % ((b as u64) << 20 | 1)
        }),
        ("(((ulong)a << 32) | b) << (b & 63)", |a, b| ((a as u64) << 32 | b as u64) << (b & 63)),
        ("(ulong)((long)(((ulong)a << 32) | b) >> (a & 63))", |a, b| {
            (((a as u64) << 32 | b as u64) as i64 >> (a & 63)) as u64
        }),
        ("(((ulong)a << 32) | b) * 0x123456789abcdefUL", |a, b| {
            ((a as u64) << 32 | b as u64).wrapping_mul(0x123456789abcdef)
        }),
        ("(((ulong)a << 32) | b) - (((ulong)b << 32) | a)", |a, b| {
            ((a as u64) << 32 | b as u64).wrapping_sub((b as u64) << 32 | a as u64)
        }),
        ("a == 0 ? 32 : __builtin_clz(a)", |a, _| a.leading_zeros() as u64),
        ("b == 0 ? 32 : __builtin_ctz(b)", |_, b| b.trailing_zeros() as u64),
        ("__builtin_popcount(a)", |a, _| a.count_ones() as u64),
        ("__builtin_popcountl(((ulong)a << 32) | b)", |a, b| (a.count_ones() + b.count_ones()) as u64),
        ("__builtin_bitreverse32(a)", |a, _| a.reverse_bits() as u64),
        ("(a << (b & 31)) | (a >> (31 & -b))", |a, b| a.rotate_left(b & 31) as u64),
        ("__builtin_amdgcn_ubfe(a, 5, 9)", |a, _| (a >> 5 & 0x1ff) as u64),
        ("(uint)__builtin_amdgcn_sbfe((int)a, 7, 11)", |a, _| ((a as i32) << 14 >> 21) as u32 as u64),
        ("__builtin_amdgcn_alignbit(a, b, 13)", |a, b| (((a as u64) << 32 | b as u64) >> 13) as u32 as u64),
        ("__builtin_amdgcn_perm(a, b, 0x07020500)", |a, b| {
            let v = ((a as u64) << 32 | b as u64).to_le_bytes();
            u32::from_le_bytes([v[0], v[5], v[2], v[7]]) as u64
        }),
        ("__builtin_amdgcn_sad_u8(a, b, 100)", |a, b| {
            a.to_le_bytes().iter().zip(b.to_le_bytes()).map(|(x, y)| x.abs_diff(y) as u64).sum::<u64>() + 100
        }),
        ("(uint)(ushort)((ushort)a * (ushort)b + (ushort)(a >> 16))", |a, b| {
            (a as u16).wrapping_mul(b as u16).wrapping_add((a >> 16) as u16) as u64
        }),
        ("(uint)(ushort)((short)a >> (b & 15))", |a, b| (a as i16 >> (b & 15)) as u16 as u64),
        ("(uint)((short)a < (short)b ? (short)a : (short)b)", |a, b| (a as i16).min(b as i16) as i32 as u32 as u64),
        ("(uint)((int)a > (int)b)", |a, b| (a as i32 > b as i32) as u64),
        ("((ulong)a << 32 | b) > ((ulong)b << 32 | a)", |a, b| (a > b) as u64),
        ("(uint)((int)a < (int)b ? (int)a : (int)b)", |a, b| (a as i32).min(b as i32) as u32 as u64),
        ("((a & 0xffffff) * (b & 0xffffff)) + 7", |a, b| {
            (a & 0xffffff).wrapping_mul(b & 0xffffff).wrapping_add(7) as u64
        }),
        ("(a ^ b) & (a | ~b)", |a, b| ((a ^ b) & (a | !b)) as u64),
        ("(uint)__builtin_add_overflow_p(a, b, (uint)0)", |a, b| a.checked_add(b).is_none() as u64),
    ];
    let cases = &cases[..cases.len() - 1];
    check_cases("integers", "", cases, &random_pairs(11, 256));
}

#[test]
fn singles() {
    let cases: &[Case] = &[
        ("as(F(a) + F(b))", |a, b| (m(a) + m(b)).to_bits() as u64),
        ("as(F(a) * F(b))", |a, b| (m(a) * m(b)).to_bits() as u64),
        ("as(__builtin_fmaf(F(a), F(b), F(a ^ b)))", |a, b| m(a).mul_add(m(b), m(a ^ b)).to_bits() as u64),
        ("as(F(a) - -F(b) * 0.5f)", |a, b| (m(b) * 0.5 + m(a)).to_bits() as u64),
        ("as(__builtin_fabsf(F(a)) - __builtin_fabsf(F(b)))", |a, b| (m(a).abs() - m(b).abs()).to_bits() as u64),
        ("as(F(a) / F(b))", |a, b| (m(a) / m(b)).to_bits() as u64),
        ("as(1.0f / F(b))", |_, b| (1.0 / m(b)).to_bits() as u64),
        ("as(__builtin_sqrtf(__builtin_fabsf(F(a))))", |a, _| m(a).abs().sqrt().to_bits() as u64),
        ("as(__builtin_floorf(F(a)))", |a, _| m(a).floor().to_bits() as u64),
        ("as(__builtin_ceilf(F(a)))", |a, _| m(a).ceil().to_bits() as u64),
        ("as(__builtin_truncf(F(a)))", |a, _| m(a).trunc().to_bits() as u64),
        ("as(__builtin_rintf(F(a)))", |a, _| m(a).round_ties_even().to_bits() as u64),
        ("as(__builtin_fminf(F(a), F(b)))", |a, b| m(a).min(m(b)).to_bits() as u64),
        ("as(__builtin_fmaxf(F(a), F(b)))", |a, b| m(a).max(m(b)).to_bits() as u64),
        ("as(__builtin_copysignf(F(a), F(b)))", |a, b| m(a).copysign(m(b)).to_bits() as u64),
        ("as(__builtin_ldexpf(F(a), (int)(b % 40) - 20))", |a, b| {
            ((m(a) as f64 * 2f64.powi((b % 40) as i32 - 20)) as f32).to_bits() as u64
        }),
        ("(uint)(int)F(a)", |a, _| m(a) as i32 as u32 as u64),
        ("F(a) < F(b)", |a, b| (m(a) < m(b)) as u64),
        ("as((float)(int)a)", |a, _| (a as i32 as f32).to_bits() as u64),
        ("as((float)a)", |a, _| (a as f32).to_bits() as u64),
        ("as((float)(uchar)(a >> 8))", |a, _| ((a >> 8) as u8 as f32).to_bits() as u64),
        ("as((float)((ulong)a << 32 | b))", |a, b| (((a as u64) << 32 | b as u64) as f32).to_bits() as u64),
        ("D((double)F(a) + F(b))", |a, b| (m(a) as f64 + m(b) as f64).to_bits()),
        ("D((double)F(a) * F(b))", |a, b| (m(a) as f64 * m(b) as f64).to_bits()),
        ("D((double)F(a) / F(b))", |a, b| (m(a) as f64 / m(b) as f64).to_bits()),
        ("D(__builtin_sqrt((double)__builtin_fabsf(F(a))))", |a, _| (m(a).abs() as f64).sqrt().to_bits()),
        ("D(__builtin_fma((double)F(a), (double)F(b), 0.1))", |a, b| (m(a) as f64).mul_add(m(b) as f64, 0.1).to_bits()),
        ("D(__builtin_floor((double)F(a) * 3.7))", |a, _| (m(a) as f64 * 3.7).floor().to_bits()),
        ("(ulong)(long)((double)F(a) * 1e6)", |a, _| (m(a) as f64 * 1e6) as i64 as u64),
        ("D((double)(int)a)", |a, _| (a as i32 as f64).to_bits()),
        ("as((float)((double)F(a) * 1.1))", |a, _| ((m(a) as f64 * 1.1) as f32).to_bits() as u64),
        ("(uint)__builtin_amdgcn_class_f32(F(a), 0x108)", |a, _| m(a).is_normal() as u64),
    ];
    let helpers = "float F(uint x) { x = (x & 0x807fffff) | ((0x70 + (x >> 23) % 0x20) << 23); return __builtin_astype(x, float); }
        uint as(float x) { return __builtin_astype(x, uint); } ulong D(double x) { return __builtin_astype(x, ulong); }
        #pragma OPENCL FP_CONTRACT OFF\n";
    let n = cases.len() - 1;
    check_cases(
        "singles",
        &helpers
            .replace("float F", "static float F")
            .replace("uint as", "static uint as")
            .replace("ulong D", "static ulong D"),
        &cases[..n],
        &random_pairs(12, 256),
    );
}

#[test]
fn halves() {
    use half::f16;
    fn h(x: u32) -> f16 {
        f16::from_bits(x as u16 & 0x83ff | (8 + (x >> 10 & 15) as u16) << 10)
    }
    let bits = |x: f32| f16::from_f32(x).to_bits() as u64;
    let _ = bits;
    let cases: &[Case] = &[
        ("hs(H(a) + H(b))", |a, b| f16::from_f32(h(a).to_f32() + h(b).to_f32()).to_bits() as u64),
        ("hs(H(a) - H(b))", |a, b| f16::from_f32(h(a).to_f32() - h(b).to_f32()).to_bits() as u64),
        ("hs(H(a) * H(b))", |a, b| f16::from_f32(h(a).to_f32() * h(b).to_f32()).to_bits() as u64),
        ("hs((half)F32(H(a)))", |a, _| h(a).to_bits() as u64),
        ("as(F32(H(a)) * 3.0f)", |a, _| (h(a).to_f32() * 3.0).to_bits() as u64),
        ("hs((half)__builtin_astype((a & 0x807fffff) | 0x3f000000, float))", |a, _| {
            f16::from_f32(f32::from_bits(a & 0x807fffff | 0x3f000000)).to_bits() as u64
        }),
        ("(uint)(H(a) < H(b))", |a, b| (h(a) < h(b)) as u64),
        ("(uint)(int)H(a)", |a, _| h(a).to_f32() as i32 as u32 as u64),
        ("hs((half)(short)a)", |a, _| f16::from_f32(a as i16 as f32).to_bits() as u64),
        ("hs(__builtin_fminf16(H(a), H(b)))", |a, b| f16::from_f32(h(a).to_f32().min(h(b).to_f32())).to_bits() as u64),
        ("P2(a, b)", |a, b| {
            let one =
                |x: u32, y: u32| f16::from_f32(f16::from_f32(h(x).to_f32() * h(y).to_f32()).to_f32() + h(x).to_f32());
            one(a, b).to_bits() as u64 | (one(a >> 8, b >> 8).to_bits() as u64) << 16
        }),
        ("hs(H(a) / H(b))", |a, b| f16::from_f64(h(a).to_f64() / h(b).to_f64()).to_bits() as u64),
    ];
    let helpers = "#pragma OPENCL FP_CONTRACT OFF
        typedef half half2 __attribute__((ext_vector_type(2)));
        static half H(uint x) { ushort y = (ushort)((x & 0x83ff) | ((8 + ((x >> 10) & 15)) << 10)); return __builtin_astype(y, half); }
        static uint hs(half x) { return __builtin_astype(x, ushort); } static float F32(half x) { return (float)x; }
        static uint as(float x) { return __builtin_astype(x, uint); }
        static uint P2(uint a, uint b) { half2 x = (half2)(H(a), H(a >> 8)), y = (half2)(H(b), H(b >> 8)); half2 z = x * y + x; return __builtin_astype(z, uint); }\n";
    check_cases("halves", helpers, cases, &random_pairs(13, 256));
}

/// Removes one wait at a time from a correct kernel in which every wave reads what another wrote: strict mode must
/// notice each.
#[test]
fn strict_mode_notices_removed_waits() {
    use barewave::codeobj::ElfFile;
    use barewave_isa::{Decoder, Mode};
    let source = "__kernel void sum(__global const int *a, __global int *out) {
        __local int t[256]; int x = a[GID];
        for (int i = 0; i < 4; i++) { t[LID] = x + i; BARRIER(); x += t[255 - LID] * 3; BARRIER(); }
        out[GID] = x; }";
    let a = random(3, 256);
    each(source, |t, elf| {
        let file = ElfFile::parse(elf).unwrap();
        let k = file.kernel("sum").unwrap();
        let code = file.file_range(k.entry, k.code_size).unwrap();
        let decoder = Decoder::new(t, Mode::of(t));
        let (mut at, mut waits) = (code.start, Vec::new());
        while at < code.end {
            let r = decoder.decode(&elf[at..code.end]).unwrap();
            // Waits for loads and LDS; waits for stores and hints protect nothing in this kernel.
            // On gfx12 all but the first wait for loads are for cache invalidations, which mean nothing here.
            let cache_only = r.mnemonic() == "s_wait_loadcnt" && waits.len() > 2;
            if !cache_only
                && t.decode_wait(&r.inst())
                    .is_some_and(|w| w.iter().any(|(c, _)| !matches!(c, barewave_isa::Counter::Vs)))
            {
                waits.push(at);
            }
            at += r.len();
        }
        let strict = LaunchOptions { strict: true, ..LaunchOptions::default() };
        let mut missed = Vec::new();
        for &w in &waits {
            let mut bad = elf.to_vec();
            bad[w..w + 4].copy_from_slice(&0xbf80_0000u32.to_le_bytes());
            let (mut pa, mut out) = (bytes_of_ints(&a), vec![0; 1024]);
            let args = &mut [Arg::Buffer(&mut pa), Arg::Buffer(&mut out)];
            if run(t, &bad, "sum", [1, 1, 1], [256, 1, 1], args, &strict).is_ok() {
                missed.push(w - code.start);
            }
        }
        eprintln!("  {} waits, unnoticed: {missed:x?}", waits.len());
        assert!(waits.len() >= 4);
        assert!(missed.is_empty(), "{}: {missed:x?} of {}", t.info().name, waits.len());
    });
}

/// Runs a kernel with three input buffers and one output on one wave.
fn one_wave(t: Target, elf: &[u8], lanes: u32, inputs: [&[u8]; 3], out: usize) -> Vec<u8> {
    let [mut a, mut b, mut c] = inputs.map(<[u8]>::to_vec);
    let mut o = vec![0; out];
    let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut b), Arg::Buffer(&mut c), Arg::Buffer(&mut o)];
    run(t, elf, "k", [1, 1, 1], [lanes, 1, 1], args, &fast()).unwrap_or_else(|f| panic!("{f}"));
    o
}

/// MFMA and WMMA against a product of matrices on the host. The kernels fetch operands by the layouts that AMD's matrix
/// instruction calculator prints (written out again here, independently of the emulator).
#[test]
fn matrix_instructions() {
    use half::f16;
    if !available() {
        return;
    }
    let small = |seed: u32, n: usize| -> Vec<f32> { random(seed, n).iter().map(|x| (x % 17) as f32 - 8.0).collect() };
    let halves = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect() };
    let product = |a: &[f32], b: &[f32], c: &[f32], (m, n, k): (usize, usize, usize)| -> Vec<f32> {
        (0..m * n).map(|x| c[x] + (0..k).map(|p| a[x / n * k + p] * b[p * n + x % n]).sum::<f32>()).collect()
    };
    let types =
        "typedef float f4 __attribute__((ext_vector_type(4))); typedef float f8 __attribute__((ext_vector_type(8)));
        typedef float f16v __attribute__((ext_vector_type(16))); typedef half h4 __attribute__((ext_vector_type(4)));
        typedef half h8 __attribute__((ext_vector_type(8))); typedef half h16 __attribute__((ext_vector_type(16)));
        typedef int i4 __attribute__((ext_vector_type(4)));\n";
    for name in ["gfx908", "gfx90a", "gfx942", "gfx950"] {
        let t = Target::parse(name).unwrap();
        // 32x32x2 f32: one value a lane; k = lane / 32.
        let source = format!(
            "{types}__kernel void k(__global float *a, __global float *b, __global float *c, __global float *o) {{
            uint l = LID; f16v x; for (uint r = 0; r < 16; r++) x[r] = c[(8 * (r / 4) + 4 * (l / 32) + r % 4) * 32 + l % 32];
            x = __builtin_amdgcn_mfma_f32_32x32x2f32(a[(l % 32) * 2 + l / 32], b[(l / 32) * 32 + l % 32], x, 0, 0, 0);
            for (uint r = 0; r < 16; r++) o[(8 * (r / 4) + 4 * (l / 32) + r % 4) * 32 + l % 32] = x[r]; }}"
        );
        let (a, b, c) = (small(1, 64), small(2, 64), small(3, 1024));
        let o = one_wave(t, &compile(t, &source, &[]), 64, [&bytes_of(&a), &bytes_of(&b), &bytes_of(&c)], 4096);
        assert_eq!(floats(&o), product(&a, &b, &c, (32, 32, 2)), "{name} 32x32x2 f32");
        // 16x16x16 f16: four halves a lane; k = 4 * (lane / 16) + element.
        let source = format!(
            "{types}__kernel void k(__global half *a, __global half *b, __global float *c, __global float *o) {{
            uint l = LID; f4 x; h4 p, q; for (uint r = 0; r < 4; r++) {{ x[r] = c[(4 * (l / 16) + r) * 16 + l % 16];
            p[r] = a[(l % 16) * 16 + 4 * (l / 16) + r]; q[r] = b[(4 * (l / 16) + r) * 16 + l % 16]; }}
            x = __builtin_amdgcn_mfma_f32_16x16x16f16(p, q, x, 0, 0, 0);
            for (uint r = 0; r < 4; r++) o[(4 * (l / 16) + r) * 16 + l % 16] = x[r]; }}"
        );
        let (a, b, c) = (small(4, 256), small(5, 256), small(6, 256));
        let o = one_wave(t, &compile(t, &source, &[]), 64, [&halves(&a), &halves(&b), &bytes_of(&c)], 1024);
        assert_eq!(floats(&o), product(&a, &b, &c, (16, 16, 16)), "{name} 16x16x16 f16");
        // 4x4x1 with 16 blocks.
        let source = format!(
            "{types}__kernel void k(__global float *a, __global float *b, __global float *c, __global float *o) {{
            uint l = LID; f4 x; for (uint r = 0; r < 4; r++) x[r] = c[(l / 4) * 16 + r * 4 + l % 4];
            x = __builtin_amdgcn_mfma_f32_4x4x1f32(a[l], b[l], x, 0, 0, 0);
            for (uint r = 0; r < 4; r++) o[(l / 4) * 16 + r * 4 + l % 4] = x[r]; }}"
        );
        let (a, b, c) = (small(7, 64), small(8, 64), small(9, 256));
        let o = one_wave(t, &compile(t, &source, &[]), 64, [&bytes_of(&a), &bytes_of(&b), &bytes_of(&c)], 1024);
        let want: Vec<f32> = (0..256).map(|x| c[x] + a[x / 16 * 4 + x % 16 / 4] * b[x / 16 * 4 + x % 4]).collect();
        assert_eq!(floats(&o), want, "{name} 4x4x1 f32");
    }
    for name in ["gfx942", "gfx950"] {
        let t = Target::parse(name).unwrap();
        // 16x16x32 i8: eight bytes a lane.
        let source = format!(
            "{types}__kernel void k(__global char *a, __global char *b, __global int *c, __global int *o) {{
            uint l = LID; i4 x; long p = 0, q = 0; for (uint r = 0; r < 4; r++) x[r] = c[(4 * (l / 16) + r) * 16 + l % 16];
            for (uint e = 0; e < 8; e++) {{ p |= (long)(uchar)a[(l % 16) * 32 + 8 * (l / 16) + e] << (8 * e);
            q |= (long)(uchar)b[(8 * (l / 16) + e) * 16 + l % 16] << (8 * e); }}
            x = __builtin_amdgcn_mfma_i32_16x16x32_i8(p, q, x, 0, 0, 0);
            for (uint r = 0; r < 4; r++) o[(4 * (l / 16) + r) * 16 + l % 16] = x[r]; }}"
        );
        let (a, b, c) = (small(10, 512), small(11, 512), small(12, 256));
        let bytes = |v: &[f32]| -> Vec<u8> { v.iter().map(|x| *x as i8 as u8).collect() };
        let words = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect() };
        let o = one_wave(t, &compile(t, &source, &[]), 64, [&bytes(&a), &bytes(&b), &words(&c)], 1024);
        let got: Vec<f32> = ints(&o).iter().map(|x| *x as i32 as f32).collect();
        assert_eq!(got, product(&a, &b, &c, (16, 16, 32)), "{name} 16x16x32 i8");
    }
    for name in ["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"] {
        let t = Target::parse(name).unwrap();
        let source = format!(
            "{types}__kernel void k(__global half *a, __global half *b, __global float *c, __global float *o) {{
            uint l = LID; f8 x; h16 p, q; for (uint r = 0; r < 8; r++) x[r] = c[(2 * r + l / 16) * 16 + l % 16];
            for (uint e = 0; e < 16; e++) {{ p[e] = a[(l % 16) * 16 + e]; q[e] = b[e * 16 + l % 16]; }}
            x = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(p, q, x);
            for (uint r = 0; r < 8; r++) o[(2 * r + l / 16) * 16 + l % 16] = x[r]; }}"
        );
        let (a, b, c) = (small(13, 256), small(14, 256), small(15, 256));
        let o = one_wave(t, &compile(t, &source, &[]), 32, [&halves(&a), &halves(&b), &bytes_of(&c)], 1024);
        assert_eq!(floats(&o), product(&a, &b, &c, (16, 16, 16)), "{name} wmma");
    }
    for name in ["gfx1200", "gfx1201"] {
        let t = Target::parse(name).unwrap();
        let source = format!(
            "{types}__kernel void k(__global half *a, __global half *b, __global float *c, __global float *o) {{
            uint l = LID; f8 x; h8 p, q; for (uint r = 0; r < 8; r++) x[r] = c[(8 * (l / 16) + r) * 16 + l % 16];
            for (uint e = 0; e < 8; e++) {{ uint k = 8 * (e / 4) + 4 * (l / 16) + e % 4;
            p[e] = a[(l % 16) * 16 + k]; q[e] = b[k * 16 + l % 16]; }}
            x = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(p, q, x);
            for (uint r = 0; r < 8; r++) o[(8 * (l / 16) + r) * 16 + l % 16] = x[r]; }}"
        );
        let (a, b, c) = (small(16, 256), small(17, 256), small(18, 256));
        let o = one_wave(t, &compile(t, &source, &[]), 32, [&halves(&a), &halves(&b), &bytes_of(&c)], 1024);
        assert_eq!(floats(&o), product(&a, &b, &c, (16, 16, 16)), "{name} wmma");
    }
}

/// One kernel over buffers of 32-bit words on every target: `source` defines `k(in, out)`, `want` says what comes out.
fn words(source: &str, grid: u32, block: u32, input: &[u32], out: usize, want: impl Fn(&[u32]) -> Vec<u32>) {
    let want = want(input);
    each(source, |t, elf| {
        let (mut a, mut o) = (bytes_of_ints(input), vec![0; 4 * out]);
        let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut o)];
        run(t, elf, "k", [grid, 1, 1], [block, 1, 1], args, &fast())
            .unwrap_or_else(|f| panic!("{}: {f}", t.info().name));
        assert_eq!(ints(&o), want, "{}", t.info().name);
    });
}

#[test]
fn atomics_in_memory_and_lds() {
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        __local uint h[16]; if (LID < 16) h[LID] = 0; BARRIER();
        __atomic_fetch_add(&h[a[GID] % 16], 1, __ATOMIC_RELAXED); BARRIER();
        if (LID < 16) __atomic_fetch_add(&o[LID], h[LID], __ATOMIC_RELAXED);
        __atomic_fetch_max(&o[16], a[GID], __ATOMIC_RELAXED);
        __atomic_fetch_xor(&o[17], a[GID], __ATOMIC_RELAXED);
        uint old = o[18], e; do { e = old; old = __sync_val_compare_and_swap(&o[18], e, e + (a[GID] & 3)); } while (old != e); }";
    let input = random(21, 1024);
    words(source, 8, 128, &input, 19, |a| {
        let mut o = vec![0u32; 19];
        for x in a {
            o[(x % 16) as usize] += 1;
            o[16] = o[16].max(*x);
            o[17] ^= x;
            o[18] += x & 3;
        }
        o
    });
}

#[test]
fn private_arrays_and_recursion() {
    let source = "__attribute__((noinline)) uint walk(uint n, uint x) { return n == 0 ? x : walk(n - 1, x * 3 + n) ^ n; }
        __kernel void k(__global const uint *a, __global uint *o) {
        uint t[16]; for (int i = 0; i < 16; i++) t[i] = a[GID] + i * i;
        uint s = 0; for (uint i = 0; i < 32; i++) { uint j = (a[GID] >> i) & 15; s = s * 31 + t[j]; t[(j * 7) & 15] ^= s; }
        o[GID] = s + walk(a[GID] & 7, s); }";
    fn walk(n: u32, x: u32) -> u32 {
        if n == 0 { x } else { walk(n - 1, x.wrapping_mul(3).wrapping_add(n)) ^ n }
    }
    words(source, 2, 64, &random(22, 128), 128, |a| {
        a.iter()
            .map(|&a| {
                let mut t: Vec<u32> = (0..16).map(|i| a.wrapping_add(i * i)).collect();
                let mut s = 0u32;
                for i in 0..32 {
                    let j = (a >> i & 15) as usize;
                    s = s.wrapping_mul(31).wrapping_add(t[j]);
                    t[(j * 7) & 15] ^= s;
                }
                s.wrapping_add(walk(a & 7, s))
            })
            .collect()
    });
}

#[test]
fn divergent_loops_and_switches() {
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        uint x = a[GID] | 1, n = 0; while (x != 1 && n < 300) { if (x & 1) x = x * 3 + 1; else x >>= 1; n++; if (n == 77) break; }
        switch (a[GID] % 5) { case 0: n += 1000; break; case 1: n *= 3; case 2: n ^= 0x55; break; case 3: for (uint i = 0; i < (a[GID] & 31); i++) n += i; break; }
        o[GID] = n; }";
    words(source, 4, 64, &random(23, 256), 256, |a| {
        a.iter()
            .map(|&a| {
                let (mut x, mut n) = (a | 1, 0u32);
                while x != 1 && n < 300 {
                    x = if x & 1 == 1 { x.wrapping_mul(3).wrapping_add(1) } else { x >> 1 };
                    n += 1;
                    if n == 77 {
                        break;
                    }
                }
                match a % 5 {
                    0 => n + 1000,
                    1 => (n * 3) ^ 0x55,
                    2 => n ^ 0x55,
                    3 => n + (0..a & 31).sum::<u32>(),
                    _ => n,
                }
            })
            .collect()
    });
}

#[test]
fn lanes_exchange_values() {
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        uint x = a[GID], l = LID & 31, r = 0;
        r += __builtin_amdgcn_ds_bpermute(((l ^ 5) << 2) + (LID & 32) * 4 * (__builtin_amdgcn_wavefrontsize() == 64), x);
        r ^= __builtin_amdgcn_readfirstlane(x) * 3;
        r += __builtin_amdgcn_ds_swizzle(x, 0x1f | (0x0c << 10));
        r ^= __builtin_amdgcn_mov_dpp(x, 0x4e, 0xf, 0xf, true);
        r += __builtin_amdgcn_update_dpp(7, x, 0x111, 0xf, 0xf, false);
        r += __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) & 31;
        r += __builtin_amdgcn_readlane(x, 9);
        o[GID] = r; }";
    let input = random(24, 64);
    if !available() {
        return;
    }
    for t in targets() {
        let wave = t.info().wave_size as usize;
        let elf = compile(t, source, &[]);
        let (mut a, mut o) = (bytes_of_ints(&input), vec![0; 256]);
        let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut o)];
        run(t, &elf, "k", [1, 1, 1], [64, 1, 1], args, &fast()).unwrap_or_else(|f| panic!("{}: {f}", t.info().name));
        let want: Vec<u32> = (0..64usize)
            .map(|i| {
                let base = i / wave * wave;
                let x = |l: usize| input[base + l % wave];
                let l = i - base;
                let mut r = x(l ^ 5);
                r ^= x(0).wrapping_mul(3);
                r = r.wrapping_add(x(l ^ 12));
                r ^= x(l ^ 2);
                r = r.wrapping_add(if l.is_multiple_of(16) { 7 } else { x(l - 1) });
                r = r.wrapping_add((l & 31) as u32);
                r.wrapping_add(x(9))
            })
            .collect();
        assert_eq!(ints(&o), want, "{}", t.info().name);
    }
}

#[test]
fn generic_pointers_and_small_types() {
    let source = "__attribute__((noinline)) void put(uchar *p, ushort *q, uint v) { *p = v; *q += v >> 8; }
        __kernel void k(__global const uint *a, __global uint *o) {
        __local uchar b[64]; __local ushort c[64]; uchar pb = 0; ushort pc = 5; c[LID] = 3; BARRIER();
        put((uchar *)&b[LID], (ushort *)&c[LID], a[GID]); put(&pb, &pc, a[GID] * 7); BARRIER();
        put((uchar *)&o[GID], (ushort *)&o[GID] + 1, a[GID] >> 3);
        o[GID] ^= b[63 - LID] + c[63 - LID] * 256 + pb * 3 + pc; }";
    words(source, 1, 64, &random(25, 64), 64, |a| {
        (0..64)
            .map(|i| {
                let put = |start: u16, v: u32| (v as u8 as u32, start.wrapping_add((v >> 8) as u16) as u32);
                let (b, c) = put(3, a[63 - i]);
                let (pb, pc) = put(5, a[i].wrapping_mul(7));
                let (lo, hi) = put(0, a[i] >> 3);
                (lo | hi << 16) ^ (b + c * 256 + pb * 3 + pc)
            })
            .collect()
    });
}

#[test]
fn sorting_in_lds_with_wide_accesses() {
    let source = "typedef uint u4 __attribute__((ext_vector_type(4)));
        __kernel void k(__global const u4 *a, __global u4 *o) {
        __local uint t[256]; *(__local u4 *)&t[LID * 4] = a[LID]; BARRIER();
        for (uint s = 2; s <= 256; s <<= 1) for (uint d = s >> 1; d > 0; d >>= 1) {
            for (uint i = LID; i < 256; i += LSIZE) { uint j = i ^ d; if (j > i) { uint x = t[i], y = t[j];
                if ((x > y) == ((i & s) == 0)) { t[i] = y; t[j] = x; } } } BARRIER(); }
        o[LID] = *(__local u4 *)&t[LID * 4]; }";
    words(source, 1, 64, &random(26, 256), 256, |a| {
        let mut v = a.to_vec();
        v.sort_unstable();
        v
    });
}

#[test]
fn eight_bit_floats() {
    if !available() {
        return;
    }
    let source = "__kernel void k(__global const uint *a, __global uint *o) {
        int x = a[GID]; float s = __builtin_amdgcn_cvt_f32_fp8(x, 1), t = __builtin_amdgcn_cvt_f32_bf8(x, 3);
        o[2 * GID] = __builtin_astype(s, uint) ^ (__builtin_astype(t, uint) >> 1);
        int p = __builtin_amdgcn_cvt_pk_fp8_f32(s, s * 0.97f, 0x11223344, false);
        o[2 * GID + 1] = __builtin_amdgcn_cvt_pk_bf8_f32(t, t * 1.04f, p, true); }";
    // Nearest by search over all codes: the largest even code wins ties.
    let value = |c: u8, m: u32, fnuz: bool| -> f32 {
        let (e, f) = (((c & 127) >> m) as i32, (c & ((1 << m) - 1)) as f32 / (1 << m) as f32);
        let bias = (1 << (6 - m)) - if fnuz { 0 } else { 1 };
        let v = if e == 0 { f * 2f32.powi(1 - bias) } else { (1.0 + f) * 2f32.powi(e - bias) };
        if c & 128 != 0 { -v } else { v }
    };
    let nearest = |x: f32, m: u32, fnuz: bool| -> u8 {
        let best = (0..=255u8)
            .filter(|c| value(*c, m, fnuz).is_sign_negative() == x.is_sign_negative())
            .map(|c| ((value(c, m, fnuz) - x).abs(), c & 1, c))
            .min_by(|p, q| p.partial_cmp(q).unwrap());
        best.unwrap().2
    };
    for (name, fnuz) in [("gfx942", true), ("gfx950", false), ("gfx1200", false)] {
        let t = Target::parse(name).unwrap();
        // Bytes 1 and 3 hold codes without NaN, infinity, or results that overflow.
        let input: Vec<u32> = random(31, 256).iter().map(|x| x & 0xbfff_bfff | 0x0400_0400).collect();
        let (mut a, mut o) = (bytes_of_ints(&input), vec![0; 2048]);
        let args = &mut [Arg::Buffer(&mut a), Arg::Buffer(&mut o)];
        run(t, &compile(t, source, &[]), "k", [4, 1, 1], [64, 1, 1], args, &fast()).unwrap_or_else(|f| panic!("{f}"));
        for (x, got) in input.iter().zip(ints(&o).chunks(2)) {
            let (s, b) = (value((x >> 8) as u8, 3, fnuz), value((x >> 24) as u8, 2, fnuz));
            assert_eq!(got[0], s.to_bits() ^ b.to_bits() >> 1, "{name} {x:#x}");
            let low = nearest(s, 3, fnuz) as u32 | (nearest(s * 0.97, 3, fnuz) as u32) << 8;
            let high = nearest(b, 2, fnuz) as u32 | (nearest(b * 1.04, 2, fnuz) as u32) << 8;
            assert_eq!(format!("{:#x}", got[1]), format!("{:#x}", low | high << 16), "{name} {x:#x} {s} {b}");
        }
    }
}
