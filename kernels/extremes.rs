//! The smallest and the largest element of a tensor, and what is made of both: workgroups find those of [pieces](super::joint), and the last one to come
//! those of all.

use super::address::part_offset;
use super::error::Res;
use super::float::Float;
use super::joint::{LEAST, Pieces};
use super::values::Value;
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, lanes};
use crate::graph::fused::Extremes;
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

const FLOAT: Float = Float(Type::F32);

pub(super) fn lower(cx: &Cx, kind: &Extremes) -> Res<Vec<Kernel>> {
    let (row, t) = (&cx.step.inputs[0].view, cx.dtype(Arg::Input(0)));
    let n = row.len();
    let (mut w, lines, place, mut joint) = Pieces::of(1, n, n.div_ceil(LEAST)).begin(cx, t, row, 0)?;
    let none = [f64::INFINITY, f64::NEG_INFINITY];
    let mut own: Vec<Vec<Part>> = Vec::new();
    for _ in 0..lines.together() {
        own.push(none.map(|x| FLOAT.held(&mut w.b, x)).to_vec());
    }
    lines.each(&mut w, "extremes", |w, c| {
        let buf = w.buffer(cx, Arg::Input(0))?;
        let elements = lines.load(w, t, buf, &place, c);
        for (x, both) in elements.into_iter().zip(&own) {
            let mut x = x.whole(&mut w.b);
            if let Some(inside) = c.inside {
                // Extremes leave out what is not a number.
                let nan = FLOAT.held(&mut w.b, f64::NAN);
                x = FLOAT.select(&mut w.b, inside, x, nan);
            }
            FLOAT.update(&mut w.b, Gen::Min, both[0], x);
            FLOAT.update(&mut w.b, Gen::Max, both[1], x);
        }
        Ok(())
    })?;
    let own = lanes::folded(&mut w, own, &merge)?;
    let own = lines.combine(&mut w, &own, merge)?;
    let none = none.map(|x| FLOAT.constant(&mut w.b, x));
    let both = joint.meet(&mut w, &lines, own, &none, merge)?;
    for (result, i) in kind.results.iter().zip(0..) {
        let of = |k: u32| Value::of(DType::F32, both[k as usize]);
        let value = expr::eval(&mut w.b, result, &of, None)?;
        let element = w.b.scalar(i);
        epilogue::finish(&mut w, cx, value, |w, arg| {
            let at = part_offset(&mut w.b, cx.view(arg), cx.dtype(arg).size(), 0..1, element, true);
            Ok(if epilogue::has_ends(cx, arg) { lines.mask_result(w, at) } else { at })
        })?;
    }
    Ok(vec![joint.end(w, &lines, 2 * n as u64)])
}

/// The extremes of two sets, by those of each.
fn merge(w: &mut Writer, x: &[Part], y: &[Part]) -> Res<Vec<Part>> {
    let both = [(Gen::Min, 0), (Gen::Max, 1)];
    Ok(both.into_iter().map(|(op, i)| FLOAT.op(&mut w.b, op, x[i], y[i])).collect())
}
