//! The last update of each place: a launch says that there is none, another one keeps the largest number of all that go there, by an atomic of each.

use super::address::{self, Offset};
use super::error::Res;
use super::scatter::{Numbered, placed, workgroup};
use super::{Arg, Cx, Kernel, pointwise, values};
use crate::graph::expr::Expr;
use crate::graph::fused::{Lasts, Step, StepKind};

pub(super) fn lower(cx: &Cx, kind: &Lasts) -> Res<Vec<Kernel>> {
    let t = cx.dtype(Arg::Output);
    let mut none = Expr::new();
    let nowhere = none.constant(t, -1.0);
    let mut none =
        Step { kind: StepKind::Pointwise, inputs: Vec::new(), expr: none.finish(nowhere), ..cx.step.clone() };
    StepKind::Pointwise.collapse(&mut none);
    let mut kernels = pointwise::lower(&Cx { step: &none, ..*cx })?;
    let (table, index, out) = (cx.view(Arg::Input(0)), cx.dtype(Arg::Input(0)), cx.view(Arg::Output));
    let items = table.len();
    let mut w = cx.kernel(workgroup(cx, items));
    let item = Numbered::own(&mut w, items);
    let mut coords = address::coordinates(&mut w.b, item.held, &table.dims);
    let at = address::offset(&mut w.b, table, index.size(), &coords);
    let buf = w.buffer(cx, Arg::Input(0))?;
    let place = values::load(&mut w.b, index, buf, at);
    let (place, inside) = placed(&mut w, place, out.dims[kind.axis] as u32);
    let inside = w.b.both(Some(inside), item.present);
    let number = match coords[kind.axis].replace(place) {
        Some(number) => w.b.to_vector(number),
        None => w.b.to_vector(0u32),
    };
    let at = address::offset(&mut w.b, out, t.size(), &coords).within(&mut w.b, inside);
    let (buf, Offset { reg, imm }) = (w.buffer(cx, Arg::Output)?, at);
    w.b.device_max(buf, number, reg.map_or(crate::mir::Opnd::Off, Into::into), 0u32, imm);
    let groups = (items as u32).div_ceil(w.b.function().workgroup_size);
    kernels.push(w.finish([groups, 1, 1], 0));
    Ok(kernels)
}
