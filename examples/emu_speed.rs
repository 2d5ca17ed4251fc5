//! Speed of the emulated device on one core, next to what the host itself can do in the same run.
//!
//! Method: a kernel of one wave runs a loop of 64 `v_fma_f32` over 16 accumulators many times; the time is divided by
//! the number of instructions. The host loop does the same arithmetic on arrays that stay in the first-level cache,
//! compiled for the best vector instructions that the machine has. Each number is the best of five runs.

use barewave::codeobj::{Abi, CodeObject, Kernel};
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave_isa::{Inst, Operand, Regs, Target, encode, op};
use std::hint::black_box;
use std::time::Instant;

fn v(n: u16) -> Operand {
    Operand::Regs(Regs::v(n, 1))
}
fn s(n: u16) -> Operand {
    Operand::Regs(Regs::s(n, 1))
}

/// A loop of `body` repeated `count` times.
fn looped(target: Target, body: &[Inst], count: u32) -> Vec<u8> {
    let mut code = Vec::new();
    let mut put = |i: Inst| {
        encode(target, &i, &mut code).unwrap_or_else(|e| panic!("{:?}: {e}", i.op));
        code.len()
    };
    for r in 0..32 {
        put(Inst::new(op::V_MOV_B32, &[v(r)], &[Operand::f32(1.0)]));
    }
    put(Inst::new(op::V_MOV_B32, &[v(40)], &[Operand::Imm(0)]));
    let start = put(Inst::new(op::S_MOV_B32, &[s(20)], &[Operand::Imm(count as u64)]));
    for i in body {
        put(i.clone());
    }
    put(Inst::new(op::S_SUB_U32, &[s(20)], &[s(20), Operand::Imm(1)]));
    let here = put(Inst::new(op::S_CMP_LG_U32, &[], &[s(20), Operand::Imm(0)])) + 4;
    put(Inst::new(op::S_CBRANCH_SCC1, &[], &[Operand::Imm(((start as i64 - here as i64) / 4) as u64)]));
    put(Inst::new(op::S_ENDPGM, &[], &[Operand::Imm(0)]));
    code
}

/// Nanoseconds per instruction of the body.
fn measure(target: Target, body: &[Inst], lds: u32) -> f64 {
    let count = 20_000;
    let mut k = Kernel::new(target, "k", looped(target, body, count));
    (k.vgprs, k.sgprs, k.lds_bytes) = (64, 32, lds);
    let file = CodeObject { target, abi: Abi::V5, kernels: vec![k], sections: vec![] };
    let device = EmuDevice::with_memory(target, 1 << 30).expect("device");
    let module = device.load(&file.to_bytes().expect("code object")).expect("load");
    let kernel = module.kernel("k").expect("kernel");
    let lanes = target.info().wave_size;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t = Instant::now();
        let stats = device
            .launch(&kernel, [1, 1, 1], [lanes, 1, 1], &[], &LaunchOptions::default())
            .unwrap_or_else(|f| panic!("{f}"));
        black_box(stats);
        best = best.min(t.elapsed().as_secs_f64());
    }
    best * 1e9 / (count as f64 * body.len() as f64)
}

/// The host's own loop: 16 accumulators of 64 lanes.
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
unsafe fn host_avx512(acc: &mut [[f32; 64]; 16], a: &[[f32; 64]; 8], b: &[[f32; 64]; 8], count: u32) {
    host_loop(acc, a, b, count);
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn host_avx2(acc: &mut [[f32; 64]; 16], a: &[[f32; 64]; 8], b: &[[f32; 64]; 8], count: u32) {
    host_loop(acc, a, b, count);
}

fn host() -> f64 {
    let (mut acc, a, b) = ([[0f32; 64]; 16], [[1f32; 64]; 8], [[0.5f32; 64]; 8]);
    let count = 200_000;
    let mut best = f64::MAX;
    for _ in 0..5 {
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

fn main() {
    let target = std::env::args().nth(1).unwrap_or_else(|| "gfx942".into());
    let target = Target::parse(&target).unwrap_or_else(|e| panic!("{e}"));
    let own = host();
    let fma: Vec<Inst> =
        (0..64).map(|i| Inst::new(op::V_FMA_F32, &[v(i % 16)], &[v(16 + i % 8), v(24 + i % 7), v(i % 16)])).collect();
    let scalar: Vec<Inst> =
        (0..64).map(|i| Inst::new(op::V_FMA_F32, &[v(i % 16)], &[s(2), v(24 + i % 7), v(i % 16)])).collect();
    let add: Vec<Inst> = (0..64).map(|i| Inst::new(op::V_ADD_U32, &[v(i % 16)], &[v(16 + i % 8), v(24)])).collect();
    let salu: Vec<Inst> = (0..64).map(|i| Inst::new(op::S_ADD_U32, &[s(4 + i % 8)], &[s(5), s(6)])).collect();
    let read: Vec<Inst> =
        (0..64).map(|i| Inst::new(op::DS_READ_B128, &[Operand::Regs(Regs::v(44 + i % 3 * 4, 4))], &[v(40)])).collect();
    let exp: Vec<Inst> = (0..64).map(|i| Inst::new(op::V_EXP_F32, &[v(i % 16)], &[v(16 + i % 8)])).collect();
    let wave = target.info().wave_size;
    println!("{target}, one core, ns per wave{wave} instruction (millions per second)");
    let line = |name: &str, ns: f64| println!("{name:34} {ns:7.2} {:9.0}", 1e3 / ns);
    line("host loop, 64 lanes of FMA", own);
    for (name, body) in [
        ("v_fma_f32 v, v, v, v", &fma),
        ("v_fma_f32 v, s, v, v", &scalar),
        ("v_add_u32", &add),
        ("s_add_u32", &salu),
        ("ds_read_b128, one address", &read),
        ("v_exp_f32", &exp),
    ] {
        line(name, measure(target, body, 4096));
    }
}
