//! The error of an elementwise function in units in the last place (ULP).
//!
//! A model of one node is compiled and run on an emulated device, and each result compared with the function computed in
//! double precision. A ULP is the distance of the two neighbours of the exact result, 2^-149 (f16: 2^-24) where it is
//! denormal. A result that rounds to an infinity is measured as the first power of two that does not fit. Zeros of the
//! wrong sign, NaN where there is a number, and numbers where there is a NaN are infinitely wrong.

use barewave::compile::compile;
use barewave::graph::{Options, fuse};
use barewave::onnx::{Dim, Model, Node, ValueInfo};
use barewave::runtime::{EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use rayon::prelude::*;
use std::f64::consts::FRAC_2_SQRT_PI;
use std::sync::Arc;

/// An operator of one operand and what it computes.
pub struct Function {
    /// The ONNX operator.
    pub op: &'static str,
    /// The function with the operator's default attributes.
    pub exact: fn(f64) -> f64,
    /// The largest error that is allowed, ULP of the result.
    pub bound: f64,
}

const fn f(op: &'static str, exact: fn(f64) -> f64, bound: f64) -> Function {
    Function { op, exact, bound }
}

/// Every operator of one float operand that compiles. The bound is 4 where not stated.
pub const FUNCTIONS: &[Function] = &[
    f("Abs", f64::abs, 0.0),
    f("Acos", f64::acos, 4.0),
    f("Acosh", acosh, 4.0),
    f("Asin", f64::asin, 4.0),
    f("Asinh", asinh, 4.0),
    f("Atan", f64::atan, 4.0),
    f("Atanh", |x| (0.5 * (2.0 * x.abs() / (1.0 - x.abs())).ln_1p()).copysign(x), 4.0),
    f("Ceil", f64::ceil, 0.0),
    f("Celu", |x| if x < 0.0 { x.exp_m1() } else { x + 0.0 }, 4.0),
    f("Cos", f64::cos, 4.0),
    f("Cosh", f64::cosh, 4.0),
    f("Elu", |x| if x < 0.0 { x.exp_m1() } else { x }, 4.0),
    f("Erf", erf, 4.0),
    f("Exp", f64::exp, 4.0),
    f("Floor", f64::floor, 0.0),
    f("Gelu", gelu, 4.0),
    // A product and a sum, each rounded to single precision: near -2.5 everything cancels.
    f("HardSigmoid", |x| f64::from((x as f32 * 0.2 + 0.5).clamp(0.0, 1.0)), 0.5),
    f("HardSwish", |x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0), 4.0),
    f("LeakyRelu", |x| if x < 0.0 { x * 0.01f32 as f64 } else { x }, 0.5),
    f("Log", f64::ln, 4.0),
    f("Mish", mish, 4.0),
    f("Neg", |x| -x, 0.0),
    f("Reciprocal", |x| 1.0 / x, 1.0),
    f("Relu", |x| if x <= 0.0 { 0.0 } else { x }, 0.0),
    f("Round", f64::round_ties_even, 0.0),
    f("Selu", selu, 4.0),
    f("Shrink", |x| if x.abs() > 0.5 { x } else { 0.0 }, 0.0),
    f("Sigmoid", |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }, 4.0),
    f("Sign", |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }, 0.0),
    f("Sin", f64::sin, 4.0),
    f("Sinh", f64::sinh, 4.0),
    f("Softplus", |x| if x > 40.0 { x } else { x.exp().ln_1p() }, 4.0),
    f("Softsign", |x| if x.is_infinite() { f64::NAN } else { x / (1.0 + x.abs()) }, 4.0),
    f("Sqrt", f64::sqrt, 4.0),
    f("Swish", swish, 4.0),
    f("Tan", f64::tan, 4.0),
    f("Tanh", f64::tanh, 4.0),
    f("ThresholdedRelu", |x| if x > 1.0 { x } else { 0.0 }, 0.0),
];

/// Inverse hyperbolic sine; the standard library's loses small operands.
fn asinh(x: f64) -> f64 {
    let a = x.abs();
    let r = if a > 1e8 { a.ln() + std::f64::consts::LN_2 } else { (a + a * a / (1.0 + a.hypot(1.0))).ln_1p() };
    r.copysign(x)
}

/// Inverse hyperbolic cosine; the standard library's loses operands near 1.
fn acosh(x: f64) -> f64 {
    match x {
        _ if x < 1.0 => f64::NAN,
        _ if x > 1e8 => x.ln() + std::f64::consts::LN_2,
        _ => ((x - 1.0) + ((x - 1.0) * (x + 1.0)).sqrt()).ln_1p(),
    }
}

/// `γ x`, below 0 `γ α (e^x - 1)`, with the constants in single precision as models store them.
fn selu(x: f64) -> f64 {
    let (alpha, gamma) = (f64::from(1.673_263_2_f32), f64::from(1.050_701_f32));
    gamma * if x < 0.0 { alpha * x.exp_m1() } else { x }
}

/// `x / (1 + e^-x)`.
fn swish(x: f64) -> f64 {
    let half = (x / 2.0).exp();
    if x < 0.0 { x * half / (1.0 + x.exp()) * half } else { x / (1.0 + (-x).exp()) }
}

/// `x tanh ln(1 + e^x)` as `x n / (n + 2)`.
fn mish(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x < 0.0 {
        // In two factors: the exponential may be denormal.
        let half = (x / 2.0).exp();
        x * half * ((e + 2.0) / (e * (e + 2.0) + 2.0)) * half
    } else {
        x * ((1.0 + 2.0 * e) / (1.0 + 2.0 * e + 2.0 * e * e))
    }
}

/// `x Φ(x)`; beyond 0.6 the normal distribution's tail by the continued fraction of Mills' ratio, with what rounding takes
/// from the square put back.
fn gelu(x: f64) -> f64 {
    let a = x.abs();
    if a < 0.6 || x.is_nan() {
        return x * 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    }
    let terms = 40 + (1000.0 / a / a) as u32;
    let t = (1..=terms).rev().fold(0.0, |t, k| f64::from(k) / (a + t));
    let square = a * a;
    let lost = a.mul_add(a, -square);
    let share = |x: f64| x * (1.0 - lost / 2.0) / (a + t) * FRAC_2_SQRT_PI * 0.5 * std::f64::consts::FRAC_1_SQRT_2;
    match x < 0.0 {
        // In two factors: the first alone may be denormal.
        true if a < 60.0 => share(x * (-square / 4.0).exp()) * (-square / 4.0).exp(),
        true => x * 0.0,
        false if a < 40.0 => x - x * share((-square / 2.0).exp()),
        false => x,
    }
}

/// The error function: near 0 the series of positive terms, the continued fraction of erfc further out.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 6.0 {
        return if a.is_nan() { x } else { 1f64.copysign(x) };
    }
    let r = if a < 1.0 {
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > 1e-17 * sum {
            n += 2.0;
            term *= 2.0 * a * a / n;
            sum += term;
        }
        sum * (-a * a).exp() * FRAC_2_SQRT_PI
    } else {
        let t = (1..=400).rev().fold(0.0, |t, k| f64::from(k) / 2.0 / (a + t));
        1.0 - (-a * a).exp() / (a + t) * FRAC_2_SQRT_PI / 2.0
    };
    r.copysign(x)
}

/// Why an operator cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not lowered.
    #[error(transparent)]
    Graph(#[from] barewave::graph::Error),
    /// It does not compile.
    #[error(transparent)]
    Compile(#[from] barewave::compile::Error),
    /// The device refuses.
    #[error(transparent)]
    Device(#[from] barewave::runtime::DeviceError),
    /// It does not run.
    #[error(transparent)]
    Session(#[from] barewave::runtime::SessionError),
    /// The operands do not make a tensor.
    #[error(transparent)]
    Operands(#[from] barewave::tensor::SizeMismatch),
}

/// An operator on an emulated device, for batches of one size.
pub struct Operator {
    session: Session,
    dtype: DType,
    batch: usize,
}

impl Operator {
    /// Compiles the operator for batches of `batch` elements.
    pub fn new(op: &str, dtype: DType, target: Target, batch: usize) -> Result<Operator, Error> {
        let mut model = Model::default();
        model.opsets.insert(String::new(), 24);
        let value =
            |name: &str| ValueInfo { name: name.into(), dtype: Some(dtype), shape: Some(vec![Dim::Known(batch)]) };
        model.graph.inputs = vec![value("x")];
        model.graph.outputs = vec![value("y")];
        model.graph.nodes = vec![Node {
            name: op.into(),
            op: op.into(),
            domain: String::new(),
            inputs: vec!["x".into()],
            outputs: vec!["y".into()],
            attributes: Default::default(),
        }];
        let graph = fuse(&model, &Options::default())?;
        let program = compile(&graph, target)?;
        let device = EmulatedDevice::new(target, false)?;
        let session = Session::new(Arc::new(device), &program);
        Ok(Operator { session: session?, dtype, batch })
    }

    /// The operator's results for operands given by their bits, as doubles (and the operands likewise).
    pub fn run<B: Into<u64>>(&mut self, bits: impl Iterator<Item = B>) -> Result<(Vec<f64>, Vec<f64>), Error> {
        let size = self.dtype.size();
        let mut bytes = Vec::with_capacity(size * self.batch);
        bits.for_each(|b| bytes.extend_from_slice(&b.into().to_le_bytes()[..size]));
        let x = HostTensor::new(self.dtype, &[self.batch], bytes)?;
        let (mut out, _) = self.session.run(std::slice::from_ref(&x))?;
        Ok((x.to_f64(), out.remove(0).to_f64()))
    }
}

/// The worst error seen, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worst {
    /// The error in ULP.
    pub ulp: f64,
    /// The operand.
    pub x: f64,
    /// What came.
    pub got: f64,
    /// The exact result.
    pub want: f64,
}

impl Worst {
    /// The worse of two.
    pub fn or(self, other: Worst) -> Worst {
        if other.ulp > self.ulp { other } else { self }
    }
}

/// Compares a batch of results with the exact function.
pub fn compare(dtype: DType, exact: fn(f64) -> f64, x: &[f64], got: &[f64]) -> Worst {
    let part = |(x, got): (&[f64], &[f64])| {
        let mut worst = Worst::default();
        for (&x, &got) in x.iter().zip(got) {
            let want = exact(x);
            let ulp = error(dtype, got, want);
            if ulp > worst.ulp {
                worst = Worst { ulp, x, got, want };
            }
        }
        worst
    };
    x.par_chunks(4096).zip(got.par_chunks(4096)).map(part).reduce(Worst::default, Worst::or)
}

/// Bits of the fraction, least exponent of a normal number, and the first power of two that is too large.
fn format(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::F16 => (10, -14, 16),
        DType::BF16 => (7, -126, 128),
        DType::F64 => (52, -1022, 1024),
        _ => (23, -126, 128),
    }
}

/// Error of `got` in ULP of the exact result `want`.
pub fn error(dtype: DType, got: f64, want: f64) -> f64 {
    let (fraction, least, top) = format(dtype);
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == want {
        let signs_differ = want == 0.0 && got.is_sign_negative() != want.is_sign_negative();
        return if signs_differ { f64::INFINITY } else { 0.0 };
    }
    if want.is_infinite() || (got != 0.0 && want != 0.0 && got.is_sign_negative() != want.is_sign_negative()) {
        return f64::INFINITY;
    }
    // Everything beyond the largest number rounds to infinity.
    let limit = 2f64.powi(top);
    let (g, w) = (got.clamp(-limit, limit), want.clamp(-limit, limit));
    let exponent = (((w.to_bits() >> 52) & 0x7ff) as i32 - 1023).clamp(least, top - 1);
    // In two steps: the last place of a small double is no number that can be divided by.
    (g - w).abs() * power(1 - exponent) * power(fraction - 1)
}

/// A power of two from 2^-1022 to 2^1023.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}
