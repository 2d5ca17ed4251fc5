//! Prints the worst error of every elementwise function, over all 2^32 single-precision operands or a sample of them,
//! as machine code generated for a target computes it on the emulated device.

mod measure;

use barewave::tensor::DType;
use barewave_isa::Target;
use clap::Parser;
use measure::{FUNCTIONS, Function, Operator, Worst, compare};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

/// Worst error of elementwise functions in units in the last place.
///
/// Examples: barewave-ulp                       a sample of every function
///           barewave-ulp --every 1 Sin Tan     all 4294967296 operands of two functions
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Args {
    /// ONNX operators; all when none is named.
    functions: Vec<String>,
    /// Target that code is generated for.
    #[arg(long, default_value = "gfx942")]
    target: String,
    /// Take one operand of so many; 1 takes all. Odd numbers meet every exponent and every low bit. Operands from 2^-4 to
    /// 2^7, where most functions bend, are taken sixteen times as densely.
    #[arg(long, default_value_t = 1009, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
}

/// Operands of one launch.
const BATCH: usize = 1 << 18;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Who reads has seen enough.
        Err(Error::Print(e)) if e.kind() == ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Why nothing is measured.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// An operator cannot be.
    #[error(transparent)]
    Measure(#[from] measure::Error),
    /// No such function.
    #[error("no function '{name}'; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The results cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] std::io::Error),
    /// No such target.
    #[error(transparent)]
    Target(#[from] barewave_isa::UnknownTarget),
}

fn run(args: &Args) -> Result<bool, Error> {
    let target = Target::parse(&args.target)?;
    let known = |n: &String| FUNCTIONS.iter().any(|f| f.op == *n);
    if let Some(name) = args.functions.iter().find(|n| !known(n)) {
        let all: Vec<&str> = FUNCTIONS.iter().map(|f| f.op).collect();
        return Err(Error::Unknown { name: name.clone(), known: all.join(", ") });
    }
    let stretches = Stretch::of(args.every);
    let operands: u64 = stretches.iter().map(Stretch::len).sum();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{operands} operands each, {}", target.info().name)?;
    writeln!(out, "{:15} {:>8} {:>6}  at operand, got, exact", "function", "ULP", "bound")?;
    let mut good = true;
    let chosen = FUNCTIONS.iter().filter(|f| args.functions.is_empty() || args.functions.iter().any(|n| n == f.op));
    for f in chosen {
        let start = Instant::now();
        let w = worst(f, target, &stretches)?;
        let passes = w.ulp <= f.bound;
        good &= passes;
        writeln!(
            out,
            "{:15} {:8.3} {:6.1}  {:e} ({:#010x}), {:e}, {:e}{}  [{:.0} s]",
            f.op,
            w.ulp,
            f.bound,
            w.x,
            (w.x as f32).to_bits(),
            w.got,
            w.want,
            if passes { "" } else { "  TOO LARGE" },
            start.elapsed().as_secs_f64()
        )?;
    }
    Ok(good)
}

/// Bits of operands, `step` apart.
struct Stretch {
    bits: Range<u64>,
    step: u64,
}

impl Stretch {
    /// One operand of `every`, and sixteen times as many of both signs from 2^-4 to 2^7.
    fn of(every: u32) -> [Stretch; 3] {
        let from = |x: f32| u64::from(x.to_bits());
        let (low, high) = (1.0 / 16.0, 128.0);
        let dense = u64::from(every.div_ceil(16) | 1);
        [
            Stretch { bits: 0..1 << 32, step: every.into() },
            Stretch { bits: from(low)..from(high), step: dense },
            Stretch { bits: from(-low)..from(-high), step: dense },
        ]
    }

    fn len(&self) -> u64 {
        (self.bits.end - self.bits.start).div_ceil(self.step)
    }
}

fn worst(f: &Function, target: Target, stretches: &[Stretch]) -> Result<Worst, measure::Error> {
    let mut operator = Operator::new(f.op, DType::F32, target, BATCH)?;
    let mut worst = Worst::default();
    for s in stretches {
        for first in (0..s.len()).step_by(BATCH) {
            // The last batch is filled up with its last operand.
            let bits = (first..first + BATCH as u64).map(|i| (s.bits.start + i.min(s.len() - 1) * s.step) as u32);
            let (x, got) = operator.run(bits)?;
            worst = worst.or(compare(DType::F32, f.exact, &x, &got));
        }
    }
    Ok(worst)
}
