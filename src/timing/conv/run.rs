//! How the times of a solver in a database were taken, and what its code is like: described by what makes the error smallest.
//!
//! [`fit`] goes down one constant after the other in steps that get smaller, from the best of a grid. Median errors of the three buckets of
//! tiles per compute unit count alike, with a part of their ninth deciles.

use super::Row;
use super::solver::Work;
use crate::chip::Chip;
use crate::gemm::Code;
use crate::validate::quantile;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How the times of a solver in a database were taken, and what its code is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Microseconds inside each time for each launch.
    pub launch: f64,
    /// The solver's code.
    pub code: Code,
    /// Microseconds until the chip has risen to its clock, and how many times as long everything takes before.
    pub rise: f64,
    /// See `rise`.
    pub slow: f64,
}

impl Run {
    /// Of solvers and databases that nobody has described: the middle of those that are.
    pub const USUAL: Run =
        Run { launch: 8.0, code: Code { pace: 1.3, waits: 0.5, traffic: 1.0 }, rise: 0.0, slow: 1.0 };

    /// Microseconds of a convolution.
    pub(super) fn time(&self, work: &Work) -> f64 {
        self.with_launches(work, work.time(self.code))
    }

    /// Microseconds with launches of what takes so many without.
    fn with_launches(&self, work: &Work, modelled: f64) -> f64 {
        let cold = modelled * self.slow;
        self.launch * work.launches + if cold <= self.rise { cold } else { self.rise + (cold - self.rise) / self.slow }
    }
}

/// Database, type and solver of a run.
pub type RunKey = (String, String, String);

/// Of a row.
pub(super) fn key(row: &Row) -> RunKey {
    (row.chip.clone(), row.dtype.clone(), row.solver.clone())
}

const RUNS: &str = include_str!("../../../isa/latency/conv_runs.csv");

/// The runs that are described.
pub fn runs() -> BTreeMap<RunKey, Run> {
    let lines = RUNS.lines().filter(|l| !l.starts_with('#')).skip(1);
    let run = |line: &str| {
        let [chip, dtype, solver, numbers @ ..] = &line.split(',').collect::<Vec<_>>()[..] else { return None };
        let numbers: Vec<f64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
        let [launch, pace, waits, traffic, rise, slow] = numbers.try_into().ok()?;
        let run = Run { launch, code: Code { pace, waits, traffic }, rise, slow };
        Some(((chip.to_string(), dtype.to_string(), solver.to_string()), run))
    };
    lines.filter_map(run).collect()
}

/// Rows that a run needs to be described by.
const ENOUGH: usize = 12;
/// Rows that [`fit`] looks at, evenly spread, where there are more.
const SAMPLE: usize = 500;
/// Rounds of steps, the first of them, and what is left of it in the next round.
const ROUNDS: usize = 7;
const STEP: f64 = 0.5;
const FINER: f64 = 0.75;
/// What constants may be.
const PACE: RangeInclusive<f64> = 0.5..=8.0;
const WAITS: RangeInclusive<f64> = 0.0..=12.0;
const TRAFFIC: RangeInclusive<f64> = 0.5..=4.0;

/// A grid of constants.
struct Grid {
    launch: &'static [f64],
    pace: &'static [f64],
    waits: &'static [f64],
    traffic: &'static [f64],
}

/// Where [`fit`] begins, and from how many of these it goes on.
const STARTS: Grid = Grid {
    launch: &[3.0, 6.0, 10.0, 16.0, 25.0, 40.0],
    pace: &[1.0, 1.4, 2.0],
    waits: &[0.0, 1.0, 2.5, 5.0],
    traffic: &[1.0, 1.6],
};
const BEST_STARTS: usize = 3;
/// What launches are tried with beside each change.
const LAUNCHES: [f64; 5] = [1.0, 0.7, 1.4, 0.9, 1.1];
/// What the ninth decile of errors counts beside the median.
const FAR: f64 = 0.3;
/// Microseconds until a chip has risen to its clock, and how many times as long everything takes before, that [`fit`] tries; and what an error then
/// counts: it has to explain much.
const RISES: [f64; 5] = [2000.0, 3000.0, 4500.0, 7000.0, 10_000.0];
const SLOW: [f64; 4] = [2.0, 3.0, 4.5, 6.0];
const RISING: f64 = 1.25;

/// A measured convolution as the solver's work: measured microseconds, and the bucket of its tiles.
struct Timed {
    work: Work,
    us: f64,
    bucket: usize,
}

/// Describes the runs of a table.
pub fn fit(rows: &[Row]) -> BTreeMap<RunKey, Run> {
    let mut by: BTreeMap<RunKey, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by.entry(key(row)).or_default().push(row);
    }
    let described = |rows: &[&Row]| {
        let chip = Chip::of(rows.first()?.target)?;
        let every = rows.len().div_ceil(SAMPLE);
        let timed =
            |row: &&Row| Some(Timed { work: Work::of(&chip, row)?, us: row.ms * 1e3, bucket: row.bucket() as usize });
        let timed: Vec<Timed> = rows.iter().step_by(every).filter_map(timed).collect();
        (timed.len() >= ENOUGH).then(|| describe(&timed))
    };
    by.into_iter().filter_map(|(key, rows)| Some((key, described(&rows)?))).collect()
}

/// The run that rows tell.
fn describe(rows: &[Timed]) -> Run {
    let modelled = |code: Code| -> Vec<f64> { rows.iter().map(|t| t.work.time(code)).collect() };
    let error = |run: &Run, modelled: &[f64]| {
        let mut errors: [Vec<f64>; 3] = Default::default();
        for (t, us) in rows.iter().zip(modelled) {
            errors[t.bucket].push((run.with_launches(&t.work, *us) / t.us - 1.0).abs());
        }
        let counted = |errors: &mut Vec<f64>| {
            errors.sort_by(f64::total_cmp);
            quantile(errors, 0.5) + FAR * quantile(errors, 0.9)
        };
        errors.iter_mut().filter(|e| !e.is_empty()).map(counted).sum::<f64>()
    };
    let mut starts: Vec<(f64, Run)> = Vec::new();
    for code in STARTS.pace.iter().flat_map(|&pace| STARTS.waits.iter().map(move |&waits| (pace, waits))) {
        for &traffic in STARTS.traffic {
            let code = Code { pace: code.0, waits: code.1, traffic };
            let modelled = modelled(code);
            let runs = STARTS.launch.iter().map(|&launch| Run { launch, code, rise: 0.0, slow: 1.0 });
            starts.extend(runs.map(|run| (error(&run, &modelled), run)).min_by(|a, b| a.0.total_cmp(&b.0)));
        }
    }
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let constants: [(fn(&mut Code) -> &mut f64, RangeInclusive<f64>); 3] =
        [(|c| &mut c.pace, PACE), (|c| &mut c.waits, WAITS), (|c| &mut c.traffic, TRAFFIC)];
    let down = |(mut least, mut best): (f64, Run)| {
        let mut step = 1.0 + STEP;
        for _ in 0..ROUNDS {
            for (constant, range) in &constants {
                let from = *constant(&mut best.code.clone());
                // Code that waits for nothing is left by a step, and reached by one.
                let nothing = if from == 0.0 { Run::USUAL.code.waits } else { 0.0 };
                for value in [from * step, from / step, from * step * step, from / step / step, nothing] {
                    let mut code = best.code;
                    *constant(&mut code) = value;
                    if value == from || !range.contains(&value) {
                        continue;
                    }
                    let modelled = modelled(code);
                    for share in LAUNCHES {
                        let run = Run { launch: best.launch * share, code, ..best };
                        let error = error(&run, &modelled);
                        if error < least {
                            (least, best) = (error, run);
                        }
                    }
                }
            }
            step = 1.0 + (step - 1.0) * FINER;
        }
        (least, best)
    };
    let found = starts.into_iter().take(BEST_STARTS).map(down).min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((least, best)) = found else { return Run::USUAL };
    let modelled = modelled(best.code);
    let kinds = RISES.iter().flat_map(|&rise| SLOW.iter().map(move |&slow| Run { rise, slow, ..best }));
    let rising = kinds.map(|run| (error(&run, &modelled), run)).min_by(|a, b| a.0.total_cmp(&b.0));
    rising.filter(|r| r.0 * RISING < least).map_or(best, |r| r.1)
}

#[cfg(test)]
mod tests {
    use super::super::miopen;
    use super::*;
    use barewave_isa::Target;

    #[test]
    fn a_run_is_found_again() {
        let head = "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms\n";
        let solver = "ConvHipImplicitGemmV4R4Fwd";
        let read = |ms: &[f64]| {
            let shape = |i: usize| (32 << (i % 5), 7 << (i / 5 % 3), 1 << (i % 7));
            let line = |(i, ms): (usize, &f64)| {
                let (c, h, n) = shape(i);
                format!("gfx906_60.HIP,2d,{c},{h},{h},1x1,256,{n},0x0,1x1,1x1,NCHW,FP32,1,{solver},{ms}\n")
            };
            let lines: String = ms.iter().enumerate().map(line).collect();
            miopen(&format!("{head}{lines}")).unwrap().0
        };
        let chip = Chip::of(Target::GFX906).unwrap();
        let made = Run { launch: 20.0, code: Code { pace: 1.7, waits: 2.0, traffic: 1.2 }, rise: 0.0, slow: 1.0 };
        let of = |r: &Row| made.time(&Work::of(&chip, r).unwrap());
        let measured: Vec<f64> = read(&[1.0; 60]).iter().map(|r| of(r) / 1e3).collect();
        let found = fit(&read(&measured));
        let (key, run) = found.iter().next().unwrap();
        assert_eq!((found.len(), key.2.as_str()), (1, solver));
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.1;
        assert!(near(run.launch, 20.0) && near(run.code.pace, 1.7), "{run:?}");
        assert!(fit(&read(&measured[..ENOUGH - 1])).is_empty());
    }

    #[test]
    fn every_run_in_the_table_is_read() {
        assert_eq!(runs().len(), RUNS.lines().filter(|l| !l.starts_with('#')).count() - 1);
    }
}
