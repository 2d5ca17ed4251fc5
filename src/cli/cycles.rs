//! How modelled cycles are shown: a launch's summary, and hot loops instruction by instruction.

use barewave::Compiled;
use barewave::emu::{EmuDevice, EmuError, LaunchOptions};
use barewave::runtime::plan::{self, Address, InPlace, Launch, Plan, Port, Region};
use barewave::tensor::DType;
use barewave_isa::Target;
use barewave_timing::record::{Level, Part};
use barewave_timing::sequence::{Found, Touched};
use barewave_timing::{Chip, LineCost, Loops, ModelError, Modelled, Recorded};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Clocks that these take at the highest rate of the chip for what they multiply.
    pub at_peak: f64,
    /// What the model says; none with why, where it cannot say anything. Operands are in caches as launches before it have left them.
    pub modelled: Result<Modelled, NotModelled>,
    /// The same where all launches have run just before.
    pub again: Option<Modelled>,
    /// Where a wave's time goes, by address; empty where the model cannot say anything.
    pub lines: Arc<[LineCost]>,
}

/// Models every launch of one of a compiled model's plans, without running the model: weights are there, indices are spread over what they
/// choose from, and so are numbers that programs find places by; other buffers hold zeros. Launches of one kernel over one grid are modelled once; what they find in caches is each one's own.
pub fn plan(compiled: &Compiled, number: usize) -> super::Result<Vec<Launched>> {
    plan_by(compiled, number, Loops::Shortened)
}

/// The same by these rounds of loops.
pub fn plan_by(compiled: &Compiled, number: usize, loops: Loops) -> super::Result<Vec<Launched>> {
    launches_of(compiled, &compiled.plans()[number], loops)
}

/// The same with outputs in the memory of inputs where they may lie there: launches that would copy them are left out.
pub fn plan_in_place(compiled: &Compiled, number: usize) -> super::Result<Vec<Launched>> {
    let mut plan = compiled.plans()[number].clone();
    // Each output in the place of an input that is not another one's.
    let mut pairs: Vec<InPlace> = Vec::new();
    for pair in &plan.in_place {
        if pairs.iter().all(|p| p.input != pair.input && p.output != pair.output) {
            pairs.push(*pair);
        }
    }
    plan.launches.retain(|l| l.copies.is_empty() || !l.copies.iter().all(|c| pairs.contains(c)));
    for a in plan.launches.iter_mut().flat_map(|l| &mut l.args) {
        if let Some(pair) = pairs.iter().find(|p| a.region == Region::Output(p.output)) {
            a.region = Region::Input(pair.input);
        }
    }
    launches_of(compiled, &plan, Loops::Shortened)
}

fn launches_of(compiled: &Compiled, plan: &Plan, loops: Loops) -> super::Result<Vec<Launched>> {
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
    let all: Vec<Piece> = plan.launches.iter().flat_map(Piece::of).collect();
    // A kernel may be told its extents: launches are equal when these are too.
    let told =
        |l: &Launch| -> Vec<u64> { l.args.iter().filter(|a| a.region == Region::Value).map(|a| a.offset).collect() };
    let same = |a: &Piece, b: &Piece| {
        let of = |p: &Piece| (p.first, p.grid);
        (of(a), &a.of.kernel, a.of.grid, &a.of.indices) == (of(b), &b.of.kernel, b.of.grid, &b.of.indices)
            && told(a.of) == told(b.of)
    };
    let mut different: Vec<&Piece> = Vec::new();
    for l in &all {
        if !different.iter().any(|d| same(d, l)) {
            different.push(l);
        }
    }
    // Memory is handed out one launch after the other: where it is does not depend on who is first.
    let arguments = |l: &Launch, count: u8| {
        let counters = device.alloc(at_least_one(plan.counter_bytes)).map_err(Arc::new)?;
        device.write(counters, &vec![count; plan.counter_bytes as usize]).map_err(Arc::new)?;
        let mut args: Vec<u64> = l.args.iter().map(|a| address(a, counters)).collect();
        for i in &l.indices {
            let bytes = i.drawn().unwrap_or_default();
            let at = device.alloc(at_least_one(bytes.len() as u64)).map_err(Arc::new)?;
            device.write(at, &bytes).map_err(Arc::new)?;
            if let Some(arg) = args.get_mut(i.arg as usize) {
                *arg = at;
            }
        }
        Ok::<Vec<u8>, NotModelled>(args.iter().flat_map(|a| a.to_le_bytes()).collect())
    };
    // Counters are as a launch finds them, and where workgroups share a result also as one that is not the last of these does, and as the last does.
    let prepared: Vec<_> = different
        .iter()
        .map(|l| {
            let kernel = module.kernel(&l.of.kernel).map_err(Arc::new)?;
            let shared =
                (l.sharing != [1; 3]).then(|| Ok::<_, NotModelled>([arguments(l.of, 0)?, arguments(l.of, u8::MAX)?]));
            Ok::<_, NotModelled>((kernel, arguments(l.of, 0)?, shared.transpose()?))
        })
        .collect();
    // A launch of each kind, and where workgroups share a result the others of them, with the clocks that the last one takes.
    type OfShared = Option<(Recorded, f64)>;
    let clocks = |r: &Recorded| r.modelled(&r.in_l2()).modelled.clocks;
    let recorded: Vec<Result<(Recorded, OfShared), NotModelled>> = different
        .par_iter()
        .zip(prepared)
        .map(|(l, prepared)| {
            let (kernel, args, shared) = prepared?;
            let record = |grid: [u32; 3], args: &[u8]| {
                let (block, options) = ([l.of.block, 1, 1], LaunchOptions::default());
                let (first, beside) = (l.first, !l.of.beside.is_empty());
                let several = beside || !l.of.chain.is_empty();
                let part = several.then_some((Part { first, grid: l.grid, beside }, l.of.grid[0]));
                let recorded =
                    barewave_timing::recorded_part(&device, &kernel, (grid, part), block, args, &options, loops);
                Ok::<_, NotModelled>(recorded.map_err(Arc::new)?)
            };
            let Some([other, last]) = shared else { return Ok((record(l.grid, &args)?, None)) };
            let grid = [0, 1, 2].map(|d| l.grid[d] / l.sharing[d].max(1));
            let others = || {
                let all = record(l.grid, &args)?;
                let others = all.part(grid).map_or_else(|| record(grid, &other), Ok)?;
                Ok::<_, NotModelled>((all, others))
            };
            let last = || record(grid, &last).map(|r| clocks(&r));
            // What the last one finds decides how long it takes where data does.
            let (others, last) = if l.of.indices.is_empty() { rayon::join(others, last) } else { (others(), last()) };
            let (all, others) = others?;
            Ok((all, Some((others, last?))))
        })
        .collect();
    // What each launch finds in caches, in a first run and in another right behind it.
    let kind: Vec<Option<usize>> = all.iter().map(|l| different.iter().position(|d| same(d, l))).collect();
    let mut touched = Touched::default();
    let mut run = || -> Vec<Vec<Found>> {
        let one = |(l, kind): (&Piece, &Option<usize>)| {
            let known = kind.and_then(|k| recorded[k].as_ref().ok());
            let Some(((recorded, _), chip)) = known.zip(chip.as_ref()) else { return Vec::new() };
            let starts: Vec<u64> = l.of.args.iter().map(|a| address(a, counters)).collect();
            touched.launch(chip, recorded.operands(), &starts)
        };
        all.iter().zip(&kind).map(one).collect()
    };
    let found = [run(), run()];
    // One simulation for all launches of a kind whose operands are at the same levels.
    let key = |run: usize, l: usize| {
        let (recorded, _) = recorded[kind[l]?].as_ref().ok()?;
        Some((kind[l]?, recorded.levels(&found[run][l])))
    };
    let keys = [0, 1].map(|run| (0..all.len()).map(|l| key(run, l)).collect::<Vec<_>>());
    let distinct: BTreeSet<(usize, Vec<Level>)> = keys.iter().flatten().flatten().cloned().collect();
    let simulate = || -> BTreeMap<(usize, Vec<Level>), (Modelled, Arc<[LineCost]>)> {
        let one = |key: (usize, Vec<Level>)| {
            let detailed = recorded[key.0].as_ref().ok()?.0.simulated(&key.1);
            let lines = detailed.lines().into();
            Some((key, (detailed.modelled, lines)))
        };
        distinct.into_par_iter().filter_map(one).collect()
    };
    // What the last ones have to do more than the others, who have just written what these add.
    let adding = || -> Vec<f64> {
        let more = |r: &Result<(Recorded, OfShared), NotModelled>| match r {
            Ok((_, Some((others, last)))) => last - clocks(others),
            _ => 0.0,
        };
        recorded.par_iter().map(more).collect()
    };
    let (simulated, adding) = rayon::join(simulate, adding);
    let of = |run: usize, l: usize| -> (Result<Modelled, NotModelled>, Arc<[LineCost]>) {
        let known = kind[l].map_or(Err(NotModelled::NotAsked), |k| recorded[k].as_ref().map_err(Clone::clone));
        match (known, keys[run][l].as_ref().and_then(|k| simulated.get(k))) {
            (Err(e), _) => (Err(e), Arc::default()),
            (Ok(_), None) => (Err(NotModelled::NotAsked), Arc::default()),
            (Ok((recorded, _)), Some((m, lines))) => {
                let mut m = m.clone();
                recorded.find(&mut m, &found[run][l]);
                if let (Some(chip), Some(more)) = (&chip, kind[l].map(|k| adding[k]).filter(|c| *c > 0.0)) {
                    m.extend(chip, more);
                }
                (Ok(m), lines.clone())
            }
        }
    };
    // Steps of a launch are there one behind the other, or side by side.
    let of_run = |run: usize| -> Vec<(Result<Modelled, NotModelled>, Arc<[LineCost]>)> {
        let mut list: Vec<_> = (0..all.len()).map(|l| of(run, l)).collect();
        let (mut rest, mut at) = (&mut list[..], 0);
        for l in &plan.launches {
            let (steps, others) = rest.split_at_mut((l.chain.len() + l.beside.len()).max(1));
            let (first, count) = (at, steps.len());
            (rest, at) = (others, at + count);
            let known: Option<Vec<&mut Modelled>> = steps.iter_mut().map(|s| s.0.as_mut().ok()).collect();
            let (Some(chip), Some(mut known)) = (&chip, known.filter(|_| count > 1)) else { continue };
            if l.beside.is_empty() {
                let levels: Vec<u32> = l.chain.iter().map(|s| s.level).collect();
                barewave_timing::chain(chip, &mut known, &levels);
                continue;
            }
            let of = |l: usize| {
                let (kind, levels) = keys[run][l].as_ref()?;
                Some((&recorded[*kind].as_ref().ok()?.0, &levels[..]))
            };
            if let Some(all) = (first..at).map(of).collect::<Option<Vec<_>>>() {
                barewave_timing::beside(chip, &all, &mut known);
            }
        }
        list
    };
    let runs = [of_run(0), of_run(1)];
    let [first, again] = runs;
    let launched = |(l, ((modelled, lines), (again, _))): (&Piece, _)| {
        let again: Result<Modelled, NotModelled> = again;
        Launched {
            kernel: l.of.kernel.clone(),
            step: l.step.clone(),
            flops: l.flops,
            at_peak: at_peak(compiled.target(), l.flops, l.multiplies),
            modelled,
            again: again.ok(),
            lines,
        }
    };
    Ok(all.iter().zip(first.into_iter().zip(again)).map(launched).collect())
}

/// What of a launch is modelled at once: all of it, or one of the steps that it computes.
struct Piece<'a> {
    of: &'a Launch,
    /// Its first workgroup.
    first: u32,
    grid: [u32; 3],
    sharing: [u32; 3],
    step: String,
    flops: u64,
    multiplies: &'a str,
}

impl<'a> Piece<'a> {
    fn of(l: &'a Launch) -> Vec<Piece<'a>> {
        if l.chain.is_empty() && l.beside.is_empty() {
            let Launch { grid, sharing, flops, ref multiplies, .. } = *l;
            return vec![Piece { of: l, first: 0, grid, sharing, step: l.step.clone(), flops, multiplies }];
        }
        let mut next = 0;
        let piece = |c: &'a plan::Linked| {
            let first = next;
            next += c.grid.iter().product::<u32>();
            let plan::Linked { grid, sharing, flops, ref multiplies, .. } = *c;
            Piece { of: l, first, grid, sharing, step: c.step.clone(), flops, multiplies }
        };
        l.chain.iter().chain(&l.beside).map(piece).collect()
    }
}

/// Launches as wholes: with all that the steps of each take.
pub fn whole(list: Vec<Launched>) -> Vec<Launched> {
    let mut out: Vec<Launched> = Vec::with_capacity(list.len());
    for l in list {
        let known = |l: &Launched| l.modelled.is_ok();
        match out.last_mut().filter(|o| known(o) && l.modelled.as_ref().is_ok_and(|m| m.behind)) {
            Some(Launched { flops, at_peak, modelled: Ok(whole), again: whole_again, lines, .. }) => {
                *flops += l.flops;
                *at_peak += l.at_peak;
                *lines = [&lines[..], &l.lines].concat().into();
                l.modelled.iter().for_each(|m| whole.append(m));
                whole_again.iter_mut().zip(&l.again).for_each(|(whole, m)| whole.append(m));
            }
            _ => out.push(l),
        }
    }
    out
}

/// How many launches there are: steps behind others in one are none of their own.
pub fn launches(list: &[Launched]) -> usize {
    list.iter().filter(|l| !l.modelled.as_ref().is_ok_and(|m| m.behind)).count()
}

/// Clocks of launches that ran again and again before, without the cost of launches: with all traffic as in a first run, as where operands take turns
/// in memory, and with what caches have of it. Waits are those behind another run in both: nobody says where these operands are. Memory is that of
/// `chip`, which may have another clock beside it than the launches were modelled with. Nothing where a launch is not modelled.
pub fn repeated(launches: &[Launched], chip: &Chip) -> Option<[f64; 2]> {
    let one = |l: &Launched| {
        let (first, again) = (l.modelled.as_ref().ok()?, l.again.as_ref()?);
        Some([first, again].map(|of| {
            let mut moved = again.clone();
            moved.moving(chip, of.traffic);
            moved.clocks
        }))
    };
    launches.iter().try_fold([0.0; 2], |[a, b], l| one(l).map(|[c, d]| [a + c, b + d]))
}

/// Microseconds of a run right behind another, whose weights, inputs and results caches have as far as they fit; nothing where a launch is not
/// modelled.
pub fn again(launches: &[Launched]) -> Option<f64> {
    launches.iter().map(|l| Some(l.again.as_ref()?.microseconds)).sum()
}

/// The name of an element type in the cycle model's tables, where all floats of 8 bits are one.
pub fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F4E2M1 => "fp4",
        DType::U4 => "i4",
        DType::U8 => "i8",
        t if t.is_small_float() => "fp8",
        t => t.name(),
    }
}

/// Clocks that so many operations take at the highest rate of a target's chip for a type.
fn at_peak(target: Target, flops: u64, multiplied: &str) -> f64 {
    let name = DType::from_name(multiplied).map_or("f32", name_of);
    flops as f64 / (peak_flops_per_clk(target, name) * Chip::of(target).map_or(1.0, |c| c.cus))
}

/// The share of the highest rate that launches reach, each of that for what it multiplies.
pub fn share_of_peak(launches: &[Launched]) -> f64 {
    let modelled = launches.iter().filter_map(|l| Some((l.at_peak, l.modelled.as_ref().ok()?.clocks_with_launch)));
    let (at_peak, clocks) = modelled.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
    at_peak / f64::max(clocks, 1.0)
}

/// Floating-point operations that a compute unit does in a clock at most, for a type by its name in the cycle model's tables: with matrix
/// instructions where the target has them. Source: AMD's matrix instruction calculator and ROCm's GPU specifications.
pub fn peak_flops_per_clk(target: Target, multiplied: &str) -> f64 {
    use barewave_timing::gemm::rate;
    rate(target, multiplied).unwrap_or_else(|| rate(target, "f32").unwrap_or(128.0))
}
