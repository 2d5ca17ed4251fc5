//! Speed of the emulated device beside what the host itself can do in the same run.
//!
//! `cargo bench --bench emulator [TARGET]`
//!
//! * Single instructions: a kernel of one wave repeats 64 of them many times; the time is divided by their number. The
//!   host's own loop does the arithmetic of `v_fma_f32` over 64 lanes on arrays in the first-level cache.
//! * Matrix products of 1024 x 1024 x 1024: an f32 kernel (scalar rows times vector columns) and an f16 kernel of
//!   `v_mfma_f32_32x32x8_f16`, on one core and on all. Results are compared with the host's.
//! * Start-up: `barewave launch` as a process, and what a device of 192 GB costs.
//!
//! Each number is the best of several runs; those of single instructions are short, so that some run undisturbed.

use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::{EmuDevice, LaunchOptions, LaunchStats};
use barewave_isa::{Mode, Target, parse};
use std::hint::black_box;
use std::time::Instant;

/// Machine code from assembly lines.
struct Code {
    target: Target,
    bytes: Vec<u8>,
}

impl Code {
    fn new(target: Target) -> Code {
        Code { target, bytes: Vec::new() }
    }
    fn put(&mut self, text: &str) {
        let mode = Mode { wave64: self.target.info().wave_size == 64, ..Mode::of(self.target) };
        let raw = parse(self.target, mode, text).unwrap_or_else(|e| panic!("{text}: {}", e.message));
        self.bytes.extend_from_slice(&raw.bytes());
    }
    /// A conditional branch back to a place.
    fn branch(&mut self, name: &str, to: usize) {
        let dwords = (to as i64 - self.bytes.len() as i64 - 4) / 4;
        self.put(&format!("{name} {dwords}"));
    }
}

/// A kernel on a device.
struct Setup {
    device: EmuDevice,
    elf: Vec<u8>,
}

fn setup(target: Target, code: Vec<u8>, vgprs: u32, lds: u32) -> Setup {
    let mut k = Kernel::new(target, "k", code);
    (k.vgprs, k.sgprs, k.lds_bytes, k.kernarg_size) = (vgprs, 100, lds, 32);
    k.workgroup_ids = [true, true, false];
    let file = CodeObject { target, abi: Abi::V5, kernels: vec![k], sections: vec![] };
    Setup { device: EmuDevice::new(target).expect("device"), elf: file.to_bytes().expect("code object") }
}

impl Setup {
    /// Best time of some runs, seconds.
    fn time(&self, grid: [u32; 3], args: &[u64], runs: usize, single: bool) -> (f64, LaunchStats) {
        let module = self.device.load(&self.elf).expect("load");
        let kernel = module.kernel("k").expect("kernel");
        let args: Vec<u8> = args.iter().flat_map(|a| a.to_le_bytes()).collect();
        let options = LaunchOptions { single_thread: single, ..LaunchOptions::default() };
        let block = [self.device.target().info().wave_size, 1, 1];
        let mut best = (f64::MAX, LaunchStats::default());
        for _ in 0..runs {
            let t = Instant::now();
            let stats = self.device.launch(&kernel, grid, block, &args, &options).unwrap_or_else(|f| panic!("{f}"));
            best = if t.elapsed().as_secs_f64() < best.0 { (t.elapsed().as_secs_f64(), stats) } else { best };
        }
        best
    }
}

/// Nanoseconds per instruction of a loop body.
fn instruction(target: Target, body: &[String]) -> f64 {
    let count = 1_000;
    let mut c = Code::new(target);
    for r in 0..32 {
        c.put(&format!("v_mov_b32 v{r}, 1.0"));
    }
    c.put("v_mov_b32 v40, 0");
    c.put(&format!("s_movk_i32 s20, {count}"));
    let start = c.bytes.len();
    body.iter().for_each(|l| c.put(l));
    c.put("s_sub_u32 s20, s20, 1");
    c.put("s_cmp_lg_u32 s20, 0");
    c.branch("s_cbranch_scc1", start);
    c.put("s_endpgm");
    let s = setup(target, c.bytes, 64, 4096);
    s.time([1, 1, 1], &[], 100, true).0 * 1e9 / (count as f64 * body.len() as f64)
}

/// 16 accumulators of 64 lanes.
#[inline(always)]
fn host_loop(acc: &mut [[f32; 64]; 16], a: &[[f32; 64]; 8], b: &[[f32; 64]; 8], count: u32) {
    for n in 0..count as usize {
        for i in 0..16 {
            let (x, y) = (&a[(n + i) % 8], &b[(n + i / 4) % 8]);
            for l in 0..64 {
                acc[i][l] = x[l].mul_add(y[l], acc[i][l]);
            }
        }
    }
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,fma")]
fn host_avx512(acc: &mut [[f32; 64]; 16], a: &[[f32; 64]; 8], b: &[[f32; 64]; 8], count: u32) {
    host_loop(acc, a, b, count);
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn host_avx2(acc: &mut [[f32; 64]; 16], a: &[[f32; 64]; 8], b: &[[f32; 64]; 8], count: u32) {
    host_loop(acc, a, b, count);
}

/// Nanoseconds that the host takes for the multiply-adds of one wave64 instruction, on one core.
fn host() -> f64 {
    let (mut acc, a, b) = ([[0f32; 64]; 16], [[1f32; 64]; 8], [[0.5f32; 64]; 8]);
    let count = 4_000;
    let mut best = f64::MAX;
    for _ in 0..100 {
        let t = Instant::now();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the features are checked first.
        unsafe {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                host_avx512(&mut acc, &a, &b, count);
            } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                host_avx2(&mut acc, &a, &b, count);
            } else {
                host_loop(&mut acc, &a, &b, count);
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        host_loop(&mut acc, &a, &b, count);
        black_box(&acc);
        best = best.min(t.elapsed().as_secs_f64());
    }
    best * 1e9 / (count as f64 * 16.0)
}

const N: usize = 1024;

/// C = A B in f32: a wave computes 8 rows by 256 columns; elements of A come as scalars, rows of B as vectors.
fn gemm_f32(target: Target) -> Vec<u8> {
    let mut c = Code::new(target);
    c.put("s_load_dwordx4 s[4:7], s[0:1], 0x0");
    c.put("s_load_dwordx2 s[8:9], s[0:1], 0x10");
    c.put("s_waitcnt 0");
    c.put("v_and_b32 v0, 0x3ff, v0");
    c.put("v_lshlrev_b32 v1, 2, v0");
    // Rows 8 * s2 of A and C, columns 256 * s3 of B and C.
    c.put("s_lshl_b32 s10, s2, 15");
    c.put("s_add_u32 s4, s4, s10");
    c.put("s_addc_u32 s5, s5, 0");
    c.put("s_add_u32 s8, s8, s10");
    c.put("s_addc_u32 s9, s9, 0");
    c.put("s_lshl_b32 s10, s3, 10");
    for (lo, hi) in [(6, 7), (8, 9)] {
        c.put(&format!("s_add_u32 s{lo}, s{lo}, s10"));
        c.put(&format!("s_addc_u32 s{hi}, s{hi}, 0"));
    }
    for r in 0..32 {
        c.put(&format!("v_mov_b32 v{}, 0", 16 + r));
    }
    c.put("s_movk_i32 s11, 128");
    let start = c.bytes.len();
    for r in 0..8 {
        c.put(&format!("s_load_dwordx8 s[{}:{}], s[4:5], {:#x}", 16 + 8 * r, 23 + 8 * r, 4096 * r));
    }
    for k in 0..8 {
        for j in 0..4 {
            c.put(&format!("global_load_dword v{}, v1, s[6:7] offset:{}", 8 + j, 256 * j));
        }
        c.put("s_waitcnt 0");
        for r in 0..8 {
            for j in 0..4 {
                let acc = 16 + 4 * r + j;
                c.put(&format!("v_fma_f32 v{acc}, s{}, v{}, v{acc}", 16 + 8 * r + k, 8 + j));
            }
        }
        c.put("s_add_u32 s6, s6, 0x1000");
        c.put("s_addc_u32 s7, s7, 0");
    }
    c.put("s_add_u32 s4, s4, 32");
    c.put("s_addc_u32 s5, s5, 0");
    c.put("s_sub_u32 s11, s11, 1");
    c.put("s_cmp_lg_u32 s11, 0");
    c.branch("s_cbranch_scc1", start);
    for r in 0..8 {
        for j in 0..4 {
            c.put(&format!("global_store_dword v1, v{}, s[8:9] offset:{}", 16 + 4 * r + j, 256 * j));
        }
        c.put("s_add_u32 s8, s8, 0x1000");
        c.put("s_addc_u32 s9, s9, 0");
    }
    c.put("s_endpgm");
    c.bytes
}

/// C = A Bt in f16 with f32 sums: a wave computes 64 by 64, 16 deep in each turn of the loop. A lane loads 8 halves of k
/// at once; the first four feed one product, the others the next.
fn gemm_f16(target: Target) -> Vec<u8> {
    let mut c = Code::new(target);
    c.put("s_load_dwordx4 s[4:7], s[0:1], 0x0");
    c.put("s_load_dwordx2 s[8:9], s[0:1], 0x10");
    c.put("s_waitcnt 0");
    c.put("v_and_b32 v0, 0x3ff, v0");
    // Row lane % 32, halves 8 * (lane / 32) on.
    c.put("v_and_b32 v2, 31, v0");
    c.put("v_lshlrev_b32 v4, 11, v2");
    c.put("v_lshrrev_b32 v3, 5, v0");
    c.put("v_lshlrev_b32 v5, 4, v3");
    c.put("v_add_u32 v4, v4, v5");
    c.put("v_add_u32 v5, 0x10000, v4");
    // 64 rows of A and of Bt.
    for (group, lo, hi) in [(2, 4, 5), (3, 6, 7)] {
        c.put(&format!("s_lshl_b32 s10, s{group}, 17"));
        c.put(&format!("s_add_u32 s{lo}, s{lo}, s10"));
        c.put(&format!("s_addc_u32 s{hi}, s{hi}, 0"));
    }
    c.put("s_lshl_b32 s10, s2, 18");
    c.put("s_lshl_b32 s12, s3, 8");
    c.put("s_add_u32 s10, s10, s12");
    c.put("s_add_u32 s8, s8, s10");
    c.put("s_addc_u32 s9, s9, 0");
    for r in 64..128 {
        c.put(&format!("v_mov_b32 v{r}, 0"));
    }
    c.put("s_movk_i32 s11, 64");
    let start = c.bytes.len();
    for (r, (v, s)) in [(4, 4), (5, 4), (4, 6), (5, 6)].into_iter().enumerate() {
        c.put(&format!("global_load_dwordx4 v[{}:{}], v{v}, s[{s}:{}]", 16 + 4 * r, 19 + 4 * r, s + 1));
    }
    c.put("s_waitcnt 0");
    for half in 0..2 {
        for i in 0..2 {
            for j in 0..2 {
                let acc = 64 + 16 * (2 * i + j);
                let (a, b) = (16 + 4 * i + 2 * half, 24 + 4 * j + 2 * half);
                let range = |n: usize, len: usize| format!("v[{n}:{}]", n + len - 1);
                let (d, x, y) = (range(acc, 16), range(a, 2), range(b, 2));
                c.put(&format!("v_mfma_f32_32x32x8_f16 {d}, {x}, {y}, {d}"));
            }
        }
    }
    for (lo, hi) in [(4, 5), (6, 7)] {
        c.put(&format!("s_add_u32 s{lo}, s{lo}, 32"));
        c.put(&format!("s_addc_u32 s{hi}, s{hi}, 0"));
    }
    c.put("s_sub_u32 s11, s11, 1");
    c.put("s_cmp_lg_u32 s11, 0");
    c.branch("s_cbranch_scc1", start);
    c.put("s_nop 15");
    c.put("s_nop 3");
    // Register r of a 32 x 32 result is row 8 (r / 4) + 4 (lane / 32) + r % 4.
    c.put("v_lshlrev_b32 v6, 14, v3");
    c.put("v_lshlrev_b32 v7, 2, v2");
    c.put("v_add_u32 v6, v6, v7");
    for i in 0..2 {
        for r in 0..16 {
            c.put(&format!("v_add_u32 v7, {:#x}, v6", 4096 * (32 * i + 8 * (r / 4) + r % 4)));
            for j in 0..2 {
                c.put(&format!("global_store_dword v7, v{}, s[8:9] offset:{}", 64 + 16 * (2 * i + j) + r, 128 * j));
            }
        }
    }
    c.put("s_endpgm");
    c.bytes
}

/// Inputs of a matrix product: numbers with few bits, so that sums are exact in any order.
fn element(i: usize) -> f32 {
    (((i * 2654435761) >> 7) % 17) as f32 / 8.0 - 1.0
}

/// Runs a product, checks some of it, and prints its time; returns the time on one core.
fn product(name: &str, target: Target, f16: bool, own: f64) {
    let s = if f16 { setup(target, gemm_f16(target), 128, 0) } else { setup(target, gemm_f32(target), 64, 0) };
    let size = if f16 { 2 } else { 4 };
    let buffer = |seed: usize| {
        let bytes: Vec<u8> = (0..N * N)
            .flat_map(|i| {
                let v = element(i + seed);
                if f16 { half::f16::from_f32(v).to_le_bytes().to_vec() } else { v.to_le_bytes().to_vec() }
            })
            .collect();
        let p = s.device.alloc((N * N * size) as u64).expect("memory");
        s.device.write(p, &bytes).expect("write");
        p
    };
    let (a, b) = (buffer(0), buffer(7));
    let c = s.device.alloc((N * N * 4) as u64).expect("memory");
    let grid = if f16 { [16, 16, 1] } else { [128, 4, 1] };
    let (one, stats) = s.time(grid, &[a, b, c], 3, true);
    let mut out = vec![0; N * N * 4];
    s.device.read(c, &mut out).expect("read");
    for n in 0..64 {
        let (i, j) = (n * 37 % N, n * 101 % N);
        let want: f32 = (0..N).map(|k| element(i * N + k) * element(if f16 { j * N + k } else { k * N + j } + 7)).sum();
        let at = 4 * (i * N + j);
        let got = f32::from_le_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
        assert_eq!(got, want, "{name}: row {i}, column {j}");
    }
    let limit = own * (N * N * N / 64) as f64 * 1e-9;
    let rate = stats.instructions as f64 / one * 1e-6;
    println!(
        "{name:34} {one:7.3} s on one core ({rate:.0} M instructions/s), the host's multiply-adds alone {limit:.3} s"
    );
    let mut line = String::new();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut n = 2;
    while n <= cores {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
        let t = pool.install(|| s.time(grid, &[a, b, c], 3, false)).0;
        line += &format!("  {n} cores {t:.3} s ({:.2} times)", one / t);
        n *= 2;
    }
    println!("{:34} {line}", "");
}

/// Resident memory of this process, MiB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0 / 1048576.0
}

/// Start of a process that runs a small kernel, and the cost of memory that nobody touches.
fn start_up(target: Target) {
    let before = resident();
    let t = Instant::now();
    let device = EmuDevice::new(target).expect("device");
    let made = t.elapsed().as_secs_f64() * 1e3;
    let gigabytes = device.capacity() >> 30;
    let big = device.alloc(device.capacity() - (1 << 20)).expect("memory");
    device.write(big + device.capacity() - (2 << 20), &[1; 4096]).expect("write");
    println!(
        "device of {gigabytes} GB: {made:.2} ms, {:.1} MiB resident after a write to its end",
        resident() - before
    );
    let mut c = Code::new(target);
    c.put("s_endpgm");
    let s = setup(target, c.bytes, 8, 0);
    let file = std::env::temp_dir().join(format!("barewave-start-{}.hsaco", std::process::id()));
    std::fs::write(&file, &s.elf).expect("write");
    let mut best = f64::MAX;
    for _ in 0..10 {
        let t = Instant::now();
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_barewave"))
            .args(["launch", "--kernel", "k", "--grid", "1", "--block", "64"])
            .arg(&file)
            .output()
            .expect("barewave");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        best = best.min(t.elapsed().as_secs_f64() * 1e3);
    }
    let _ = std::fs::remove_file(&file);
    println!("process that launches one kernel: {best:.1} ms");
}

fn main() {
    let name = std::env::args().nth(1).filter(|a| !a.starts_with("--")).unwrap_or_else(|| "gfx942".into());
    let target = Target::parse(&name).unwrap_or_else(|e| panic!("{e}"));
    let own = host();
    let sixty_four = |f: &dyn Fn(usize) -> String| (0..64).map(f).collect::<Vec<String>>();
    let wave = target.info().wave_size;
    println!("{target}, one core, ns per wave{wave} instruction (millions per second)");
    let line = |name: &str, ns: f64| println!("{name:34} {ns:7.2} {:9.0}", 1e3 / ns);
    line("host loop, 64 lanes of FMA", own);
    let fma = |i: usize| format!("v_fma_f32 v{0}, v{1}, v{2}, v{0}", i % 16, 16 + i % 8, 24 + i % 7);
    let scalar = |i: usize| format!("v_fma_f32 v{0}, s2, v{1}, v{0}", i % 16, 24 + i % 7);
    let add = |i: usize| format!("v_xor_b32 v{}, v{}, v24", i % 16, 16 + i % 8);
    let salu = |i: usize| format!("s_add_u32 s{}, s5, s6", 4 + i % 8);
    let unary = |name: &'static str| move |i: usize| format!("{name} v{}, v{}", i % 16, 16 + i % 8);
    let (exp, log, sin, rcp, rsq) =
        (unary("v_exp_f32"), unary("v_log_f32"), unary("v_sin_f32"), unary("v_rcp_f32"), unary("v_rsq_f32"));
    let bodies: [(&str, &dyn Fn(usize) -> String); 9] = [
        ("v_fma_f32 v, v, v, v", &fma),
        ("v_fma_f32 v, s, v, v", &scalar),
        ("v_xor_b32", &add),
        ("s_add_u32", &salu),
        ("v_exp_f32", &exp),
        ("v_log_f32", &log),
        ("v_sin_f32", &sin),
        ("v_rcp_f32", &rcp),
        ("v_rsq_f32", &rsq),
    ];
    for (name, body) in bodies {
        line(name, instruction(target, &sixty_four(body)));
    }
    if let Ok(rdna) = Target::parse("gfx1100") {
        let pair = |i: usize| {
            let (x, y, a, b) = (2 * (i % 8), 2 * (i % 8) + 1, 16 + i % 4, 20 + (i + 1) % 4);
            format!("v_dual_fmac_f32 v{x}, v{a}, v24 :: v_dual_fmac_f32 v{y}, v{b}, v25")
        };
        line("v_dual_fmac_f32 pair, gfx1100", instruction(rdna, &sixty_four(&pair)));
    }
    let mfma = Target::GFX942;
    product("f32 1024 x 1024 x 1024, gfx942", mfma, false, own);
    product("f16 MFMA 1024 x 1024 x 1024", mfma, true, own);
    start_up(target);
}
