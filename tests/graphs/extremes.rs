//! The largest and the smallest elements of lines, and where these are: emulated devices in strict mode against the host, and that against references
//! written down here.

use crate::support::agree::{finish, outputs};
use crate::support::build::{Builder, int};
use barewave::tensor::{DType, HostTensor};

/// Bytes of dense lines are compared together with their places: of equal ones the first counts, or the last.
#[test]
fn places_of_extreme_bytes() {
    for (dtype, low, high) in [(DType::I8, -128, 127), (DType::U8, 0, 255)] {
        for (op, last) in [("ArgMax", 0), ("ArgMax", 1), ("ArgMin", 0), ("ArgMin", 1)] {
            for (lines, length) in [(5, 8), (3, 12), (7, 100), (2, 4100), (1, 1 << 17)] {
                // Few different bytes, all of them the least or the largest, and any.
                for (from, many) in [(low, 1), (high, 1), (low, 3), (high - 2, 3), (low, 256)] {
                    let mut b = Builder::new(21, length as u64);
                    let list: Vec<i64> = (0..lines * length).map(|_| from + b.below(many) as i64).collect();
                    let x = b.input_of(HostTensor::from_ints(dtype, &[lines, length], &list));
                    let y = b.node(op, &[&x], &[("axis", int(1)), ("select_last_index", int(last))]);
                    finish(&mut b, "", &[y]);
                    let what = format!("{op} of {dtype}, {lines} lines of {length}, {many} from {from}, {last}");
                    let got = outputs(&b, &what, 0.0).remove(0).to_i64();
                    let place = |line: &[i64]| {
                        let best = if op == "ArgMax" { line.iter().max() } else { line.iter().min() };
                        let mut at = line.iter().enumerate().filter(|x| Some(x.1) == best).map(|x| x.0 as i64);
                        if last == 1 { at.next_back() } else { at.next() }
                    };
                    let want: Vec<i64> = list.chunks(length).filter_map(place).collect();
                    assert_eq!(got, want, "{what}");
                }
            }
        }
    }
}

/// Halves are compared as they lie in memory: zeros are one, infinities the ends, and what is not a number is larger than all.
#[test]
fn best_halves() {
    let strange = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 6e-8, -6e-8, 65504.0, -65504.0];
    for (lines, length, k) in [(9, 64, 1), (4, 300, 8), (2, 4096, 3), (3, 1000, 100)] {
        for largest in [1, 0] {
            for many in [strange.len(), 4000] {
                let mut b = Builder::new(21, length as u64 + many as u64);
                let list: Vec<f64> = (0..lines * length)
                    .map(|_| match b.below(many) {
                        n if n < strange.len() => strange[n],
                        n => (n as f64 - 2000.0) / 64.0,
                    })
                    .collect();
                let data = HostTensor::from_f64(DType::F16, &[lines, length], &list);
                let x = b.input_of(data.clone());
                let count = b.ints(&[k]);
                let y = b.node_n("TopK", &[&x, &count], &[("largest", int(largest))], 2);
                finish(&mut b, "", &y[1..]);
                let what = format!("{k} of {length} halves, {largest}, {many}");
                let got = outputs(&b, &what, 0.0).remove(0).to_i64();
                let rank = |x: f64| if x.is_nan() { f64::INFINITY } else { x.clamp(-1e6, 1e6) + 0.0 };
                let best = data.to_f64();
                let best = best.chunks(length).flat_map(|line| {
                    let mut order: Vec<usize> = (0..length).collect();
                    order.sort_by(|p, q| {
                        let by = rank(line[*p]).total_cmp(&rank(line[*q]));
                        if largest == 1 { by.reverse() } else { by }.then(p.cmp(q))
                    });
                    order.into_iter().take(k as usize).map(|i| i as i64).collect::<Vec<_>>()
                });
                assert_eq!(got, best.collect::<Vec<_>>(), "{what}");
            }
        }
    }
}
