//! How modelled cycles are shown: a launch's summary, and hot loops instruction by instruction.

use barewave::Compiled;
use barewave::emu::{EmuDevice, EmuError, LaunchOptions};
use barewave::runtime::plan::{Address, Indices, Launch, Port, Region};
use barewave::tensor::DType;
use barewave_isa::Target;
use barewave_timing::sequence::Touched;
use barewave_timing::{Chip, LineCost, ModelError, Modelled};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// Mark behind figures of targets that nobody has compared with hardware.
pub fn note(m: &Modelled) -> &'static str {
    if m.validated { "" } else { " (not validated)" }
}

/// A launch as lines of text.
pub fn print(m: &Modelled) {
    let sustained = m.sustained_microseconds.map_or(String::new(), |us| format!(", {us:.1} us at the sustained clock"));
    println!(
        "modelled {:.0} cycles, {:.1} us with the launch{sustained}, bound by {}{}",
        m.clocks,
        m.microseconds,
        m.bound.name(),
        note(m)
    );
    let [valu, matrix, lds] = m.busy.map(|b| 100.0 * b);
    println!(
        "         {} workgroups in {:.2} rounds of {} per CU ({} waves/SIMD, limited by {:?}), {:.0} instructions a wave",
        m.workgroups, m.rounds, m.occupancy.workgroups, m.occupancy.waves_per_simd, m.occupancy.limit, m.instructions
    );
    println!("         busy: valu {valu:.0}%, matrix {matrix:.0}%, lds {lds:.0}%");
    let mib = |b: f64| b / 1048576.0;
    println!(
        "         traffic: {:.2} MiB requested, {:.2} MiB to L2, {:.2} MiB behind it, {:.2} MiB of memory",
        mib(m.traffic.l1),
        mib(m.traffic.l2),
        mib(m.traffic.fabric),
        mib(m.traffic.dram)
    );
    let parts: Vec<String> = m.parts().iter().filter(|p| p.1 >= 1.0).map(|p| format!("{} {:.0}", p.0, p.1)).collect();
    println!("         cycles each alone: {}", parts.join(", "));
    let stalls: Vec<String> = m.stalls.iter().take(4).map(|s| format!("{} {}", s.0.name(), s.1)).collect();
    println!("         stalls: {}", stalls.join(", "));
    for a in &m.approximations {
        println!("         approximated: {a}");
    }
}

/// A launch for machines.
pub fn json(m: &Modelled) -> Value {
    json!({
        "cycles": m.clocks.round(), "cycles_with_launch": m.clocks_with_launch.round(), "microseconds": m.microseconds,
        "sustained_microseconds": m.sustained_microseconds, "bound": m.bound.name(), "validated": m.validated,
        "busy": { "valu": m.busy[0], "matrix": m.busy[1], "lds": m.busy[2] },
        "workgroups": m.workgroups, "rounds": m.rounds, "workgroups_per_cu": m.occupancy.workgroups,
        "waves_per_simd": m.occupancy.waves_per_simd, "instructions_per_wave": m.instructions,
        "traffic": {
            "requested": m.traffic.l1, "l2": m.traffic.l2, "fabric": m.traffic.fabric, "dram": m.traffic.dram,
            "footprint": m.traffic.footprint,
        },
        "parts": m.parts().iter().map(|(n, c)| (n.to_string(), json!(c.round()))).collect::<serde_json::Map<_, _>>(),
        "approximations": m.approximations,
        "stalls": m.stalls.iter().map(|(s, n)| (s.name().to_string(), json!(n))).collect::<serde_json::Map<_, _>>(),
    })
}

/// Why the model says nothing about a launch.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotModelled {
    /// The kernel is not in the code.
    #[error(transparent)]
    Kernel(#[from] Arc<EmuError>),
    /// The kernel cannot be followed.
    #[error(transparent)]
    Model(#[from] Arc<ModelError>),
    /// It was not asked.
    #[error("not modelled")]
    NotAsked,
}

/// A launch of a compiled model, modelled.
#[derive(Clone)]
pub struct Launched {
    /// Kernel.
    pub kernel: String,
    /// Source operators.
    pub step: String,
    /// Floating-point operations.
    pub flops: u64,
    /// What the model says; none with why, where it cannot say anything. Operands are in caches as launches before it have left them.
    pub modelled: Result<Modelled, NotModelled>,
    /// The same where all launches have run just before.
    pub again: Option<Modelled>,
    /// Where a wave's time goes, by address; empty where the model cannot say anything.
    pub lines: Arc<[LineCost]>,
}

/// So many bytes of numbers of so many bytes below `extent`, each as likely as another, the same each time.
fn spread(i: &Indices) -> Vec<u8> {
    let mixed = |n: u64| {
        // The output function of SplitMix64 (Steele, Lea and Flood 2014).
        let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % i.extent.max(1)
    };
    (0..i.count).flat_map(|n| mixed(n).to_le_bytes().into_iter().take(i.size as usize)).collect()
}

/// Models every launch of one of a compiled model's plans, without running the model: weights are there, indices are spread over what they
/// choose from, other buffers hold zeros. Launches of one kernel over one grid are modelled once; what they find in caches is each one's own.
pub fn plan(compiled: &Compiled, number: usize) -> super::Result<Vec<Launched>> {
    let plan = &compiled.plans()[number];
    let device = EmuDevice::new(compiled.target())?;
    let at_least_one = |n: u64| n.max(1);
    let arena = device.alloc(at_least_one(plan.arena_bytes))?;
    let weights = device.alloc(at_least_one(plan.weights_bytes))?;
    device.write(weights, compiled.weights())?;
    let ports = |list: &[Port]| -> super::Result<Vec<u64>> {
        list.iter().map(|p| Ok(device.alloc(at_least_one(p.bytes().unwrap_or(0) as u64))?)).collect()
    };
    let (inputs, outputs) = (ports(&plan.inputs)?, ports(&plan.outputs)?);
    let address = |a: &Address, counters: u64| {
        let base = match a.region {
            Region::Counters => Some(&counters),
            Region::Arena => Some(&arena),
            Region::Weights => Some(&weights),
            Region::Input(n) => inputs.get(n),
            Region::Output(n) => outputs.get(n),
            Region::Value => None,
        };
        base.copied().unwrap_or(0) + a.offset
    };
    let counters = device.alloc(at_least_one(plan.counter_bytes))?;
    let module = device.load(compiled.code())?;
    let chip = Chip::of(compiled.target());
    // A kernel may be told its extents: launches are equal when these are too.
    let told =
        |l: &Launch| -> Vec<u64> { l.args.iter().filter(|a| a.region == Region::Value).map(|a| a.offset).collect() };
    let same = |a: &Launch, b: &Launch| {
        (&a.kernel, a.grid, &a.indices) == (&b.kernel, b.grid, &b.indices) && told(a) == told(b)
    };
    let mut different: Vec<&Launch> = Vec::new();
    for l in &plan.launches {
        if !different.iter().any(|d| same(d, l)) {
            different.push(l);
        }
    }
    let modelled: Vec<Result<(Modelled, Arc<[LineCost]>), NotModelled>> = different
        .par_iter()
        .map(|l| {
            let kernel = module.kernel(&l.kernel).map_err(Arc::new)?;
            // Counters are as a launch finds them, or as the last of those that share a result does.
            let model = |grid: [u32; 3], count: u8| {
                let counters = device.alloc(at_least_one(plan.counter_bytes)).map_err(Arc::new)?;
                device.write(counters, &vec![count; plan.counter_bytes as usize]).map_err(Arc::new)?;
                let mut args: Vec<u64> = l.args.iter().map(|a| address(a, counters)).collect();
                for i in &l.indices {
                    let bytes = spread(i);
                    let at = device.alloc(at_least_one(bytes.len() as u64)).map_err(Arc::new)?;
                    device.write(at, &bytes).map_err(Arc::new)?;
                    if let Some(arg) = args.get_mut(i.arg as usize) {
                        *arg = at;
                    }
                }
                let args: Vec<u8> = args.iter().flat_map(|a| a.to_le_bytes()).collect();
                let options = LaunchOptions::default();
                let modelled = barewave_timing::model(&device, &kernel, grid, [l.block, 1, 1], &args, &options);
                Ok::<_, NotModelled>(modelled.map_err(Arc::new)?)
            };
            let mut detailed = model(l.grid, 0)?;
            let lines = detailed.lines().into();
            if l.sharing != [1; 3] {
                // Behind everything else, what the last ones have to do more than the others.
                let last = [0, 1, 2].map(|d| l.grid[d] / l.sharing[d].max(1));
                let (alone, adding) = (model(last, 0)?.modelled, model(last, u8::MAX)?.modelled);
                if let Some(chip) = &chip {
                    detailed.modelled.extend(chip, adding.clocks - alone.clocks);
                }
            }
            Ok((detailed.modelled, lines))
        })
        .collect();
    let mut touched = Touched::default();
    let mut run = || -> Vec<(Result<Modelled, NotModelled>, Arc<[LineCost]>)> {
        let one = |l: &Launch| {
            let known = different.iter().position(|d| same(d, l)).map(|i| modelled[i].clone());
            let (mut m, lines) = match known.unwrap_or(Err(NotModelled::NotAsked)) {
                Ok(known) => known,
                Err(e) => return (Err(e), Arc::default()),
            };
            if let Some(chip) = &chip {
                let starts: Vec<u64> = l.args.iter().map(|a| address(a, counters)).collect();
                let found = touched.launch(chip, &m.operands, &starts);
                m.find(chip, found);
            }
            (Ok(m), lines)
        };
        plan.launches.iter().map(one).collect()
    };
    let (first, again) = (run(), run());
    let launched = |((l, (modelled, lines)), (again, _)): ((&Launch, _), (Result<Modelled, NotModelled>, _))| {
        Launched { kernel: l.kernel.clone(), step: l.step.clone(), flops: l.flops, modelled, again: again.ok(), lines }
    };
    Ok(plan.launches.iter().zip(first).zip(again).map(launched).collect())
}

/// Microseconds of a run right behind another, whose weights, inputs and results caches have as far as they fit; nothing where a launch is not
/// modelled.
pub fn again(launches: &[Launched]) -> Option<f64> {
    launches.iter().map(|l| Some(l.again.as_ref()?.microseconds)).sum()
}

/// The name of an element type in the cycle model's tables, where all floats of 8 bits are one.
pub fn name_of(dtype: DType) -> &'static str {
    if dtype.is_small_float() && dtype.size() == 1 { "fp8" } else { dtype.name() }
}

/// Floating-point operations that a compute unit does in a clock at most, for an element type: with matrix instructions
/// where the target has them. Source: AMD's matrix instruction calculator and ROCm's GPU specifications.
pub fn peak_flops_per_clk(target: Target, dtype: DType) -> f64 {
    use barewave_timing::gemm::rate;
    rate(target, name_of(dtype)).unwrap_or_else(|| rate(target, "f32").unwrap_or(128.0))
}
