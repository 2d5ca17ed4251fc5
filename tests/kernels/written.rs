//! Caches and tables of which parts are replaced, in programs that neighbours run together: strict emulated devices against the
//! interpreter, and that against loops written down here. Extents are such that all widths are taken, and that none is.

use crate::support::agree::{close, finish, outputs};
use crate::support::build::{Builder, int, ints, text};
use barewave::onnx::Attribute;
use barewave::tensor::{DType, HostTensor};

fn numbers(b: &mut Builder, dtype: DType, shape: &[usize]) -> HostTensor {
    let count = shape.iter().product();
    let list: Vec<f64> = (0..count).map(|_| b.below(200) as f64).collect();
    HostTensor::from_f64(dtype, shape, &list)
}

/// What `TensorScatter` leaves of a cache along axis 2.
fn replaced(cache: &[f64], dims: [usize; 4], new: &[f64], length: usize, starts: &[i64], circular: bool) -> Vec<f64> {
    let [batches, heads, room, size] = dims;
    let mut out = cache.to_vec();
    for (b, start) in starts.iter().enumerate().take(batches) {
        for (h, t) in (0..heads).flat_map(|h| (0..length).map(move |t| (h, t))) {
            let at = *start as usize + t;
            let at = if circular { at % room } else { at };
            for i in 0..size {
                out[((b * heads + h) * room + at) * size + i] = new[((b * heads + h) * length + t) * size + i];
            }
        }
    }
    out
}

#[test]
fn stretches_of_caches_are_replaced() {
    let wide = [2, 3, 360, 128];
    let sizes = [2, 4, 6, 7, 8, 12, 16, 24, 33, 128].map(|size| [2, 2, 9, size]);
    for dtype in [DType::F16, DType::F32, DType::BF16, DType::U8, DType::I64] {
        for dims in sizes.into_iter().chain((dtype.size() < 4).then_some(wide)) {
            for circular in [false, true] {
                let mut b = Builder::new(24, dims[3] as u64);
                let length = 3;
                let [cache, new] = [dims[2], length].map(|n| numbers(&mut b, dtype, &[dims[0], dims[1], n, dims[3]]));
                let starts = if circular { vec![dims[2] as i64 - 1, 0] } else { vec![dims[2] as i64 - 3, 1] };
                let (x, u) = (b.input_of(cache.clone()), b.input_of(new.clone()));
                let at = b.input_of(HostTensor::from_i64(&[2], &starts));
                let how: [(&str, Attribute); 2] =
                    [("axis", int(2)), ("mode", text(if circular { "circular" } else { "linear" }))];
                let y = b.node("TensorScatter", &[&x, &u, &at], &how);
                finish(&mut b, "", &[y]);
                let what = format!("{dtype} {dims:?} circular {circular}");
                let got = outputs(&b, &what, 0.0).remove(0).to_f64();
                let want = replaced(&cache.to_f64(), dims, &new.to_f64(), length, &starts, circular);
                close(&got, &want, 0.0, &what);
            }
        }
    }
}

#[test]
fn caches_with_less_room_than_results() {
    for size in [1, 2, 7, 8, 20, 64] {
        let mut b = Builder::new(24, size as u64);
        let (past, new) = (b.input(&[1, 2, 5, size]), b.input(&[1, 2, 1, size]));
        let pads = b.ints(&[0, 0, 0, 0, 0, 0, 2, 0]);
        let padded = b.node("Pad", &[&past, &pads], &[]);
        let at = b.input_of(HostTensor::from_i64(&[1], &[5]));
        let y = b.node("TensorScatter", &[&padded, &new, &at], &[("axis", int(2))]);
        // Something behind it, and a result that lies otherwise.
        let z = b.node("Add", &[&y, &y], &[]);
        let t = b.node("Transpose", &[&z], &[("perm", ints(&[0, 2, 3, 1]))]);
        finish(&mut b, "", &[y, t]);
        let got = outputs(&b, &format!("size {size}"), 0.0).remove(0).to_f64();
        let mut want = vec![0.0; 2 * 7 * size];
        let (old, new) = (b.inputs[0].to_f64(), b.inputs[1].to_f64());
        for h in 0..2 {
            want[h * 7 * size..][..5 * size].copy_from_slice(&old[h * 5 * size..][..5 * size]);
            want[(h * 7 + 5) * size..][..size].copy_from_slice(&new[h * size..][..size]);
        }
        close(&got, &want, 0.0, &format!("size {size}"));
    }
}

#[test]
fn rows_of_tables_are_replaced() {
    for dtype in [DType::F16, DType::F32, DType::I8] {
        for inner in [1, 2, 3, 4, 7, 8, 12, 16, 31, 64] {
            let mut b = Builder::new(18, inner as u64);
            let rows = 11;
            let (x, new) = (numbers(&mut b, dtype, &[rows, inner]), numbers(&mut b, dtype, &[3, inner]));
            let at = [4i64, -1, 4];
            let (data, updates) = (b.input_of(x.clone()), b.input_of(new.clone()));
            let index = b.input_of(HostTensor::from_i64(&[3, 1], &at));
            let y = b.node("ScatterND", &[&data, &index, &updates], &[]);
            finish(&mut b, "", &[y]);
            let what = format!("{dtype} rows of {inner}");
            let got = outputs(&b, &what, 0.0).remove(0).to_f64();
            let (mut want, new) = (x.to_f64(), new.to_f64());
            for (i, row) in at.iter().enumerate() {
                let row = if *row < 0 { row + rows as i64 } else { *row } as usize;
                want[row * inner..][..inner].copy_from_slice(&new[i * inner..][..inner]);
            }
            close(&got, &want, 0.0, &what);
        }
    }
}
