//! Programs: one workitem runs the program of one element.
//!
//! Values are registers, variables are registers that loops write again, loops are loop nodes with a scalar counter. Lanes
//! behind the last element run the program of the last one and store nothing.

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::values::{self, Kind, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, pointwise, reduce};
use crate::graph::expr::{Node, Val};
use crate::graph::fused::Program;
use crate::graph::kinds::program::{Source, Statement};
use crate::mir::{Gen, Part, Type};

const WORKGROUP: u32 = 256;

pub(super) fn lower(cx: &Cx, program: &Program) -> Res<Vec<Kernel>> {
    let dims = cx.step.output.view.dims.clone();
    let count: usize = dims.iter().product();
    let mut w = cx.kernel(WORKGROUP);
    let index = pointwise::linear_index(&mut w.b);
    let last = w.b.to_vector(count as u32 - 1);
    let held = w.b.op(Gen::Min.of(Type::U32), &[index.into(), last.into()]);
    let coords = address::coordinates(&mut w.b, held, &dims);
    let mut vars = Vec::with_capacity(program.vars.len());
    for t in &program.vars {
        vars.push(match kind(*t) {
            Kind::Bool => return Err(Reason::Operation { op: "a variable".into(), dtype: crate::tensor::DType::Bool }),
            Kind::Long { .. } | Kind::Double => w.b.v(2),
            _ => w.b.v(1),
        });
    }
    let mut run =
        Run { cx, program, values: vec![None; program.values.len()], vars, coords: coords.clone(), active: None };
    run.block(&mut w, &program.body)?;
    let acc = run.value(program.result)?;
    let inside = (!count.is_multiple_of(WORKGROUP as usize))
        .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), index.into()]));
    epilogue::finish(&mut w, cx, acc, |w, arg| {
        let view = match arg {
            Arg::Input(i) => &cx.step.inputs[i].view,
            _ => &cx.step.output.view,
        };
        let at = address::offset(&mut w.b, view, cx.dtype(arg).size(), &coords);
        Ok(match inside {
            Some(mask) if arg == Arg::Output => {
                let reg = at.vector(&mut w.b);
                Offset { reg: Some(w.b.guard(mask, reg)), imm: at.imm }
            }
            _ => at,
        })
    })?;
    let flops = (count * program.values.len()) as u64;
    Ok(vec![w.finish([(count as u32).div_ceil(WORKGROUP), 1, 1], flops)])
}

/// A program being written as a kernel.
struct Run<'a> {
    cx: &'a Cx<'a>,
    program: &'a Program,
    values: Vec<Option<Value>>,
    vars: Vec<Part>,
    coords: Vec<Option<Part>>,
    /// In a loop with a condition of its own: the lanes that are in it.
    active: Option<Part>,
}

impl Run<'_> {
    fn value(&self, v: Val) -> Res<Value> {
        self.values[v.index()].ok_or(Reason::Malformed("a value is read before it is computed"))
    }

    fn block(&mut self, w: &mut Writer, body: &[Statement]) -> Res<()> {
        for s in body {
            match s {
                Statement::Let(v) => {
                    let value = self.compute(w, *v)?;
                    self.values[v.index()] = Some(value);
                }
                Statement::Set(var, v) => {
                    let (value, to) = (self.value(*v)?, self.vars[var.0 as usize]);
                    let value = match (self.active, value) {
                        (Some(m), Value::Pair(_)) => values::select(&mut w.b, m, value, Value::Pair(to)),
                        (Some(m), Value::Word(_)) => {
                            let new = value.reg(&mut w.b);
                            Value::Word(w.b.select(m, new, to).into())
                        }
                        _ => value,
                    };
                    match value {
                        Value::Pair(p) => (0..2).for_each(|i| w.b.copy_into(to.dword(i), p.dword(i))),
                        Value::Word(x) => w.b.copy_into(to, x),
                        Value::Mask(_) => {
                            return Err(Reason::Operation {
                                op: "a variable".into(),
                                dtype: crate::tensor::DType::Bool,
                            });
                        }
                    }
                }
                Statement::While { first, body, again } => self.lower_while(w, *first, body, *again)?,
                Statement::Repeat { round, count, body } => reduce::scalar_loop(w, "repeat", *count, |w, i| {
                    self.values[round.index()] = Some(Value::Word(i.into()));
                    self.block(w, body)
                })?,
            }
        }
        Ok(())
    }

    /// A loop that goes on while any lane needs another round. Lanes that need none keep their variables.
    fn lower_while(&mut self, w: &mut Writer, first: Val, body: &[Statement], again: Val) -> Res<()> {
        let Value::Mask(first) = self.value(first)? else {
            return Err(Reason::Malformed("the condition of a loop is not a boolean"));
        };
        let one = w.b.to_vector(1u32);
        // Whether a lane is in the loop, as a vector that survives the rounds.
        let flag = w.b.v(1);
        let start = w.b.select(first, one, 0u32);
        let outside = self.active;
        let start = match outside {
            Some(m) => w.b.select(m, start, 0u32),
            None => start,
        };
        w.b.copy_into(flag, start);
        let head = w.b.open_any("while");
        let active = w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), flag.into()]);
        self.active = Some(active);
        let done = self.block(w, body);
        self.active = outside;
        done?;
        let Value::Mask(again) = self.value(again)? else {
            return Err(Reason::Malformed("the condition of a loop is not a boolean"));
        };
        let next = w.b.select(again, flag, 0u32);
        w.b.copy_into(flag, next);
        let more = w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), next.into()]);
        w.b.close_any(head, more);
        Ok(())
    }

    fn compute(&mut self, w: &mut Writer, v: Val) -> Res<Value> {
        let (source, dtype) = self.program.values[v.index()];
        Ok(match source {
            Source::Coordinate(d) => Value::Word(self.coords[d].map_or(0u32.into(), Into::into)),
            Source::Round => self.value(v)?,
            Source::Load { operand, at, checked } => self.load(w, operand, at, checked)?,
            // A copy: the variable may change while the value lives.
            Source::Get(var) => {
                let from = self.vars[var.0 as usize];
                if from.len == 2 {
                    let p = w.b.v(2);
                    (0..2).for_each(|i| w.b.copy_into(p.dword(i), from.dword(i)));
                    Value::Pair(p)
                } else {
                    Value::Word(w.b.to_vector(from).into())
                }
            }
            Source::Quotient(a, n) | Source::Remainder(a, n) => {
                let x = self.value(a)?.reg(&mut w.b);
                let (q, r) = w.b.divmod(x, n);
                Value::Word(if matches!(source, Source::Quotient(..)) { q } else { r }.into())
            }
            Source::Operation(op) => {
                let mut operands: Vec<(Val, Value)> = Vec::new();
                for o in crate::graph::expr::operands(op) {
                    operands.push((o, self.value(o)?));
                }
                let program = self.program;
                let at = |v: Val| {
                    let found = operands.iter().find(|o| o.0 == v).expect("operands() names every operand");
                    (found.1, program.type_of(v))
                };
                expr::operation(&mut w.b, &Node { op, dtype }, at)?
            }
        })
    }

    fn load(&mut self, w: &mut Writer, operand: usize, at: Val, checked: bool) -> Res<Value> {
        let arg = Arg::Input(operand);
        let (t, view) = (self.cx.dtype(arg), &self.cx.step.inputs[operand].view);
        let buf = w.buffer(self.cx, arg)?;
        let place = self.value(at)?;
        let imm = (view.offset * t.size() as i64) as u32;
        let offset = match place {
            Value::Word(crate::mir::Opnd::V(p)) if !checked => Offset { reg: Some(w.b.mul(p, t.size() as u32)), imm },
            _ => {
                let p = place.reg(&mut w.b);
                let scaled = w.b.mul(p, t.size() as u32);
                let reg = if checked {
                    let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(view.len() as u32).into(), p.into()]);
                    w.b.guard(inside, scaled)
                } else {
                    scaled
                };
                Offset { reg: Some(reg), imm }
            }
        };
        Ok(values::load(&mut w.b, t, buf, offset))
    }
}
