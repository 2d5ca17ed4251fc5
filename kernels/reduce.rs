//! Reductions, and the loops that reductions, softmax and normalisation share.
//!
//! A *line* is the set of elements that are combined into one result. A line is walked by a single workitem when
//! lines are short or many, else by a whole workgroup, whose partial results meet in LDS in a binary tree.

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr};
use crate::graph::expr as gexpr;
use crate::graph::expr::{Binary, Expr, Scalar};
use crate::graph::fused::ReduceOp;
use crate::graph::view::View;
use crate::mir::{Gen, Part, Pipeline, Type};
use crate::tensor::DType;

/// Workitems of a team.
const TEAM: u32 = 256;

/// Runs `body` with a scalar counter from 0 to `n - 1`.
pub(super) fn scalar_loop(
    w: &mut Writer,
    name: &str,
    n: u32,
    body: impl FnOnce(&mut Writer, Part) -> Res<()>,
) -> Res<()> {
    let node = w.b.begin_loop(name);
    body(w, node.counter())?;
    w.b.end_loop(node, n, 1, Pipeline::Off, false);
    Ok(())
}

/// Who walks a line.
pub(super) struct Lines {
    /// Workitems per line: 1 or [`TEAM`].
    team: u32,
    /// Number of lines.
    count: usize,
    /// Elements of a line.
    pub length: usize,
    /// Which line: a vector for single workitems, a scalar for teams.
    pub line: Part,
    /// Lanes that have a line (single workitems only).
    inside: Option<Part>,
    lds: u32,
}

impl Lines {
    /// Decides how `count` lines of `length` elements are walked and begins the kernel.
    pub fn begin(cx: &Cx, count: usize, length: usize) -> (Writer, Lines) {
        let single = length <= 64 || (count >= 4096 && length <= 512);
        let mut w = cx.kernel(TEAM);
        if single {
            let line = super::pointwise::linear_index(&mut w.b);
            let inside = (!count.is_multiple_of(TEAM as usize))
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), line.into()]));
            (w, Lines { team: 1, count, length, line, inside, lds: 0 })
        } else {
            let line = w.b.workgroup_id(0);
            let lds = w.b.lds(TEAM * 8);
            (w, Lines { team: TEAM, count, length, line, inside: None, lds })
        }
    }

    /// A line for each workgroup, of a length that is known when the kernel is launched.
    pub fn of_team(w: &mut Writer) -> Lines {
        let line = w.b.workgroup_id(0);
        let lds = w.b.lds(TEAM * 8);
        Lines { team: TEAM, count: 0, length: 0, line, inside: None, lds }
    }

    /// Workgroups to launch.
    pub fn grid(&self) -> [u32; 3] {
        let groups = if self.team == 1 { (self.count as u32).div_ceil(TEAM) } else { self.count as u32 };
        [groups, 1, 1]
    }

    /// Masks the offset of a result: lanes without a line, and all but the first workitem of a team.
    pub fn mask_result(&self, w: &mut Writer, at: Offset) -> Offset {
        let mask = if self.team == 1 {
            self.inside
        } else {
            let item = w.b.workitem_id();
            Some(w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), item.into()]))
        };
        self.guard(w, at, mask)
    }

    /// Masks the offset of an element: lanes without a line, and elements behind the line's end.
    pub fn mask_element(&self, w: &mut Writer, at: Offset, inside: Option<Part>) -> Offset {
        let mask = inside.or(self.inside);
        self.guard(w, at, mask)
    }

    fn guard(&self, w: &mut Writer, at: Offset, mask: Option<Part>) -> Offset {
        match mask {
            None => at,
            Some(m) => {
                let v = at.vector(&mut w.b);
                Offset { reg: Some(w.b.guard(m, v)), imm: at.imm }
            }
        }
    }

    /// Calls `body` for each element that this workitem walks, with its index in the line and, for teams whose last
    /// round is not full, the mask of lanes that have an element.
    pub fn each(
        &self,
        w: &mut Writer,
        name: &str,
        body: impl FnOnce(&mut Writer, Part, Option<Part>) -> Res<()>,
    ) -> Res<()> {
        if self.team == 1 {
            return scalar_loop(w, name, self.length as u32, |w, i| body(w, i, None));
        }
        let rounds = self.length.div_ceil(TEAM as usize);
        scalar_loop(w, name, rounds as u32, |w, i| {
            let base = w.b.mul(i, TEAM);
            let item = w.b.workitem_id();
            let at = w.b.add(base, item);
            let inside = (!self.length.is_multiple_of(TEAM as usize))
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(self.length as u32).into(), at.into()]));
            body(w, at, inside)
        })
    }

    /// Combines the values of a team so that every workitem holds the result; single workitems already do. `merge`
    /// takes two lists of values and gives the combined ones.
    pub fn combine(
        &self,
        w: &mut Writer,
        values: &[Part],
        merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
    ) -> Res<Vec<Part>> {
        if self.team == 1 {
            return Ok(values.to_vec());
        }
        let dwords: u32 = values.iter().map(|v| v.len as u32).sum();
        assert!(dwords <= 4, "a team combines at most four dwords");
        let base = if dwords > 2 { w.b.lds(TEAM * dwords * 4) } else { self.lds };
        let item = w.b.workitem_id();
        let home = w.b.shl(item, 2u32);
        let plane = TEAM * 4;
        let write = |w: &mut Writer, list: &[Part]| {
            let mut at = base;
            for v in list {
                for d in 0..v.len {
                    w.b.lds_write(home, v.dword(d), at);
                    at += plane;
                }
            }
        };
        let read = |w: &mut Writer, from: Part| -> Vec<Part> {
            let mut at = base;
            let mut out = Vec::new();
            for v in values {
                let p = w.b.v(v.len);
                for d in 0..v.len {
                    w.b.lds_read_into(p.dword(d), from, at);
                    at += plane;
                }
                out.push(p);
            }
            out
        };
        let mut current = values.to_vec();
        write(w, &current);
        let mut distance = TEAM / 2;
        while distance > 0 {
            // Partners nearer than a wave are in the same one, whose accesses are done in order. So are the last ones
            // before this LDS is written for the next result.
            let apart = distance >= w.b.wave_size();
            if apart {
                w.b.barrier();
            }
            // A butterfly: every workitem combines with its partner, so all end with the same result.
            let partner = w.b.generic(Gen::Xor.of(Type::U32), &[home.into(), (distance * 4).into()]);
            let other = read(w, partner);
            if apart {
                w.b.barrier();
            }
            current = merge(w, &current, &other)?;
            write(w, &current);
            distance /= 2;
        }
        Ok(current)
    }
}

/// Byte offset of element `index` of the dimensions `dims` of `view`.
pub(super) fn part_offset(
    w: &mut Writer,
    view: &View,
    size: usize,
    dims: std::ops::Range<usize>,
    index: Part,
    constant: bool,
) -> Offset {
    let coords = address::coordinates(&mut w.b, index, &view.dims[dims.clone()]);
    let part = View {
        offset: if constant { view.offset } else { 0 },
        dims: view.dims[dims.clone()].to_vec(),
        strides: view.strides[dims].to_vec(),
    };
    address::offset(&mut w.b, &part, size, &coords)
}

/// Keeps a value in a register of its own, to be updated in a loop.
pub(super) fn held(w: &mut Writer, v: Value) -> Part {
    match v {
        Value::Pair(p) => {
            let r = w.b.v(2);
            w.b.copy_into(r, p);
            r
        }
        v => {
            let o = v.word();
            w.b.to_vector(o)
        }
    }
}

/// Evaluates a literal.
pub(super) fn literal(w: &mut Writer, t: DType, c: Scalar) -> Res<Value> {
    let mut e = Expr::new();
    e.literal(t, c);
    expr::eval(&mut w.b, &e, &|_| unreachable!("a literal has no operands"), None)
}

/// `op` of two values of a type.
pub(super) fn apply(w: &mut Writer, t: DType, op: Binary, x: Part, y: Value) -> Res<Part> {
    let mut e = Expr::new();
    let (a, b) = (e.input(0, t), e.input(1, t));
    e.push(gexpr::Op::Binary(op, a, b), t);
    let x = Value::of(t, x);
    let v = expr::eval(&mut w.b, &e, &|i| if i == 0 { x } else { y }, None)?;
    Ok(v.whole(&mut w.b))
}

/// The value that changes nothing when combined.
fn neutral(op: ReduceOp, t: DType) -> Scalar {
    let lowest = |t: DType| match t {
        DType::I8 => i8::MIN as i64,
        DType::I16 => i16::MIN as i64,
        DType::I32 => i32::MIN as i64,
        DType::I64 => i64::MIN,
        DType::I4 | DType::I2 => -(1 << (t.bits() - 1)),
        _ => 0,
    };
    let highest = |t: DType| match t {
        DType::I8 => i8::MAX as i64,
        DType::I16 => i16::MAX as i64,
        DType::I32 => i32::MAX as i64,
        DType::I64 => i64::MAX,
        DType::U8 => u8::MAX as i64,
        DType::U16 => u16::MAX as i64,
        DType::U32 => u32::MAX as i64,
        DType::I4 | DType::I2 => (1 << (t.bits() - 1)) - 1,
        DType::U4 | DType::U2 => (1 << t.bits()) - 1,
        _ => -1,
    };
    match op {
        ReduceOp::Sum => Scalar::of(t, 0.0),
        ReduceOp::Prod => Scalar::of(t, 1.0),
        ReduceOp::Max | ReduceOp::ArgMax { .. } if t.is_float() => Scalar::Float(f64::NEG_INFINITY),
        ReduceOp::Min | ReduceOp::ArgMin { .. } if t.is_float() => Scalar::Float(f64::INFINITY),
        ReduceOp::Max | ReduceOp::ArgMax { .. } => Scalar::Int(lowest(t)),
        ReduceOp::Min | ReduceOp::ArgMin { .. } => Scalar::Int(highest(t)),
    }
}

pub(super) fn lower(cx: &Cx, op: ReduceOp, prologue: &Expr) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let view = &cx.step.inputs[0].view;
    let outer = out.rank();
    let (count, length) = (out.len(), view.len() / out.len());
    let (mut w, lines) = Lines::begin(cx, count, length);
    let source = cx.dtype(Arg::Input(0));
    let t = prologue.dtype();
    let combine = match op {
        ReduceOp::Sum => Binary::Add,
        ReduceOp::Prod => Binary::Mul,
        ReduceOp::Max => Binary::Max,
        ReduceOp::Min => Binary::Min,
        ReduceOp::ArgMax { .. } | ReduceOp::ArgMin { .. } => return arg_extremum(cx, op, prologue, w, lines),
    };
    let buf = w.buffer(cx, Arg::Input(0))?;
    let base = part_offset(&mut w, view, source.size(), 0..outer, lines.line, true);
    let start = literal(&mut w, t, neutral(op, t))?;
    if matches!(start, Value::Mask(_)) {
        return Err(Reason::Reduction(t));
    }
    let sum = held(&mut w, start);
    lines.each(&mut w, "reduce", |w, i, inside| {
        let at = part_offset(w, view, source.size(), outer..view.rank(), i, false);
        let at = address::add(&mut w.b, base, at);
        let at = lines.mask_element(w, at, inside);
        let x = values::load(&mut w.b, source, buf, at);
        let mut x = expr::eval(&mut w.b, prologue, &|_| x, Some(x))?;
        if let Some(mask) = inside {
            let none = literal(w, t, neutral(op, t))?;
            x = values::select(&mut w.b, mask, x, none);
        }
        let r = apply(w, t, combine, sum, x)?;
        w.b.copy_into(sum, r);
        Ok(())
    })?;
    let total = lines.combine(&mut w, &[sum], |w, x, y| Ok(vec![apply(w, t, combine, x[0], Value::of(t, y[0]))?]))?;
    finish(&mut w, cx, &lines, Value::of(t, total[0]))?;
    let grid = lines.grid();
    Ok(vec![w.finish(grid, (count * length) as u64)])
}

fn finish(w: &mut Writer, cx: &Cx, lines: &Lines, value: Value) -> Res<()> {
    epilogue::finish(w, cx, value, |w, arg| {
        let view = match arg {
            Arg::Input(i) => &cx.step.inputs[i].view,
            _ => &cx.step.output.view,
        };
        let at = part_offset(w, view, cx.dtype(arg).size(), 0..view.rank(), lines.line, true);
        Ok(if arg == Arg::Output { lines.mask_result(w, at) } else { at })
    })
}

/// Index of the extremum: values and indices are combined together; equal values are decided by the index.
fn arg_extremum(cx: &Cx, op: ReduceOp, prologue: &Expr, mut w: Writer, lines: Lines) -> Res<Vec<Kernel>> {
    let (max, last) = match op {
        ReduceOp::ArgMax { last } => (true, last),
        ReduceOp::ArgMin { last } => (false, last),
        _ => unreachable!("only called for these"),
    };
    let view = &cx.step.inputs[0].view;
    let outer = cx.step.output.view.rank();
    let source = cx.dtype(Arg::Input(0));
    let t = prologue.dtype();
    if kind(t) == values::Kind::Bool {
        return Err(Reason::Operation { op: "the index of the extremum".into(), dtype: t });
    }
    let ty = values::computed(t);
    let (gt, lt) = (Gen::CmpGt.of(ty), Gen::CmpLt.of(ty));
    let buf = w.buffer(cx, Arg::Input(0))?;
    let base = part_offset(&mut w, view, source.size(), 0..outer, lines.line, true);
    let start = literal(&mut w, t, neutral(op, t))?;
    let best = held(&mut w, start);
    let none = if last { 0u32 } else { u32::MAX >> 1 };
    let index = w.b.to_vector(none);
    let merge = |w: &mut Writer, x: &[Part], y: &[Part]| -> Res<Vec<Part>> {
        let b = &mut w.b;
        let better = b.op(if max { gt } else { lt }, &[y[0].into(), x[0].into()]);
        let worse = b.op(if max { lt } else { gt }, &[y[0].into(), x[0].into()]);
        // Where neither is better the index decides.
        let by_index =
            b.op(if last { Gen::CmpGt.of(Type::U32) } else { Gen::CmpLt.of(Type::U32) }, &[y[1].into(), x[1].into()]);
        let (i, v) = (b.select(by_index, y[1], x[1]), x[0]);
        let i = b.select(better, y[1], i);
        let i = b.select(worse, x[1], i);
        let v = values::select(b, better, Value::of(t, y[0]), Value::of(t, v)).whole(b);
        Ok(vec![v, i])
    };
    lines.each(&mut w, "reduce", |w, i, inside| {
        let at = part_offset(w, view, source.size(), outer..view.rank(), i, false);
        let at = address::add(&mut w.b, base, at);
        let at = lines.mask_element(w, at, inside);
        let x = values::load(&mut w.b, source, buf, at);
        let x = expr::eval(&mut w.b, prologue, &|_| x, Some(x))?.whole(&mut w.b);
        let i = w.b.to_vector(i);
        let mut candidate = [x, i];
        if let Some(mask) = inside {
            let x = values::select(&mut w.b, mask, Value::of(t, x), Value::of(t, best)).whole(&mut w.b);
            candidate = [x, w.b.select(mask, i, index)];
        }
        let r = merge(w, &[best, index], &candidate)?;
        w.b.copy_into(best, r[0]);
        w.b.copy_into(index, r[1]);
        Ok(())
    })?;
    let r = lines.combine(&mut w, &[best, index], merge)?;
    let wide = w.b.v(2);
    w.b.copy_into(wide.dword(0), r[1]);
    w.b.copy_into(wide.dword(1), 0u32);
    finish(&mut w, cx, &lines, Value::Pair(wide))?;
    let grid = lines.grid();
    let flops = view.len() as u64;
    Ok(vec![w.finish(grid, flops)])
}
