//! Comparing tensors, and the best classes of a prediction.

use super::{DType, HostTensor, Problem};
use std::fmt;

/// How two tensors of one shape differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Number of elements.
    pub count: usize,
    /// Elements outside `atol + rtol * |expected|`, or where only one is NaN.
    pub outside: usize,
    /// Largest absolute difference; NaN when only one of two elements is.
    pub max_error: f64,
    /// Largest magnitude of the expected values.
    pub max_magnitude: f64,
    /// Row-major index of the largest difference.
    pub worst: usize,
    /// The two values there: what came, and what was expected.
    pub values: (f64, f64),
    /// The first two strings that differ, of a comparison of strings: every such pair counts as an error of 1.
    pub texts: Option<(String, String)>,
}

impl Comparison {
    /// True when every element is within the tolerances.
    pub fn passes(&self) -> bool {
        self.outside == 0
    }

    /// Largest error over largest magnitude: the measure that suits whole models.
    pub fn relative(&self) -> f64 {
        if self.max_error == 0.0 { 0.0 } else { self.max_error / self.max_magnitude }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((got, want)) = &self.texts {
            let (n, all, at) = (self.outside, self.count, self.worst);
            return write!(f, "{n} of {all} strings differ, the first is element {at}: {got:?} instead of {want:?}");
        }
        write!(
            f,
            "max error {:.3e} at element {} ({} instead of {}), max error / max magnitude {:.3e}, {} of {} outside the \
             tolerance",
            self.max_error,
            self.worst,
            self.values.0,
            self.values.1,
            self.relative(),
            self.outside,
            self.count
        )
    }
}

/// Compares what came with what was expected. Fails when type or shape differ.
pub fn compare(got: &HostTensor, want: &HostTensor, rtol: f64, atol: f64) -> Result<Comparison, Problem> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Err(Problem::Shape(format!(
            "got {}{:?}, expected {}{:?}",
            got.dtype(),
            got.shape(),
            want.dtype(),
            want.shape()
        )));
    }
    let mut c = Comparison {
        count: got.len(),
        outside: 0,
        max_error: 0.0,
        max_magnitude: 0.0,
        worst: 0,
        values: (0.0, 0.0),
        texts: None,
    };
    if got.dtype() == DType::Str {
        for (i, (a, b)) in got.texts()?.into_iter().zip(want.texts()?).enumerate().filter(|(_, (a, b))| a != b) {
            if c.outside == 0 {
                (c.worst, c.texts, c.max_error, c.max_magnitude) = (i, Some((a.into(), b.into())), 1.0, 1.0);
            }
            c.outside += 1;
        }
        return Ok(c);
    }
    for (i, (a, b)) in got.doubles().zip(want.doubles()).enumerate() {
        if b.is_finite() {
            c.max_magnitude = c.max_magnitude.max(b.abs());
        }
        if i == 0 {
            c.values = (a, b);
        }
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        let error = (a - b).abs();
        // A NaN is outside too.
        if error.is_nan() || error.is_infinite() || error > atol + rtol * b.abs() {
            c.outside += 1;
        }
        if error > c.max_error || (error.is_nan() && !c.max_error.is_nan()) {
            (c.max_error, c.worst, c.values) = (error, i, (a, b));
        }
    }
    Ok(c)
}

/// The `k` largest elements of a tensor, as `(index, value)`, largest first; equal ones in order of their index. Of strings
/// none.
pub fn top_k(tensor: &HostTensor, k: usize) -> Vec<(usize, f64)> {
    if tensor.dtype() == DType::Str {
        return Vec::new();
    }
    let mut best: Vec<(usize, f64)> = Vec::new();
    for (i, value) in tensor.doubles().enumerate() {
        let at = best.partition_point(|(_, other)| other.total_cmp(&value).is_ge());
        if at < k {
            best.truncate(k - 1);
            best.insert(at, (i, value));
        }
    }
    best
}

/// One line per class, `  7  0.998  seven`; without labels the index alone.
pub fn format_top(top: &[(usize, f64)], labels: &[String]) -> String {
    let width = top.iter().map(|(i, _)| i.to_string().len()).max().unwrap_or(1);
    let mut out = String::new();
    for (i, p) in top {
        let label = labels.get(*i).map_or("", |s| s.as_str());
        out.push_str(format!("  {i:width$}  {p:.4}  {label}").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_nan_never_passes() {
        let t = |v: &[f32]| HostTensor::from_f32(&[v.len()], v);
        let c = compare(&t(&[1.0, 2.0, 3.5]), &t(&[1.0, 2.0, 3.0]), 0.1, 0.0).unwrap();
        assert_eq!((c.outside, c.worst, c.max_error, c.max_magnitude), (1, 2, 0.5, 3.0));
        assert!(compare(&t(&[1.05]), &t(&[1.0]), 0.1, 0.0).unwrap().passes());
        assert!(!compare(&t(&[f32::NAN]), &t(&[1.0]), 1.0, 1.0).unwrap().passes());
        assert!(!compare(&t(&[f32::INFINITY]), &t(&[1.0]), 1.0, 1.0).unwrap().passes());
        assert!(!compare(&t(&[1.0]), &t(&[f32::INFINITY]), 1.0, 1.0).unwrap().passes());
        assert!(compare(&t(&[f32::NAN]), &t(&[f32::NAN]), 0.0, 0.0).unwrap().passes());
        assert!(compare(&t(&[1.0]), &t(&[1.0, 2.0]), 0.0, 0.0).is_err());
        let words = |list: [&str; 3]| HostTensor::from_texts(&[3], list).unwrap();
        let c = compare(&words(["a", "b", "c"]), &words(["a", "x", "y"]), 0.0, 0.0).unwrap();
        assert_eq!(c.to_string(), "2 of 3 strings differ, the first is element 1: \"b\" instead of \"x\"");
    }

    #[test]
    fn the_best_come_first() {
        let t = HostTensor::from_f32(&[4], &[0.1, 0.6, 0.1, 0.2]);
        assert_eq!(top_k(&t, 3).iter().map(|x| x.0).collect::<Vec<_>>(), [1, 3, 0]);
        let labels = vec!["a".to_string(), "b".to_string()];
        assert_eq!(format_top(&[(1, 0.6), (3, 0.2)], &labels), "  1  0.6000  b\n  3  0.2000\n");
    }
}
