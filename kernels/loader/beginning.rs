//! What is made of the elements of an operand on their way to LDS.

use crate::graph::expr::Expr;
use crate::kernels::error::Res;
use crate::kernels::expr;
use crate::kernels::values::Value;
use crate::mir::{Buffer, Builder, Part};

/// What is made of each element before it goes to LDS: an expression of the element and of constants of its k, which come
/// with it.
pub(super) struct Beginning {
    pub(super) expr: Expr,
    /// Operands of the expression: their numbers, and where that of k 0 is.
    pub(super) operands: Vec<(u32, Buffer, u32)>,
    /// Byte of the workitem's first k in an operand.
    pub(super) first: Part,
    /// The workitem's k, from its first, and their operands.
    pub(super) rows: Vec<(u32, Vec<Part>)>,
}

impl Beginning {
    /// Loads the operands of the tile that begins at depth `k`.
    pub(super) fn issue(&self, b: &mut Builder, k: Part) {
        let ahead = b.shl(k, 2u32);
        let at = b.add(self.first, ahead);
        let at = b.to_vector(at);
        for (row, regs) in &self.rows {
            for (reg, (_, buf, start)) in regs.iter().zip(&self.operands) {
                b.load_into(*reg, *buf, at, 0u32, row * 4 + start);
            }
        }
    }

    /// Changes the elements of a load, whose k is `row`.
    pub(super) fn apply(&self, b: &mut Builder, row: u32, elements: Part) -> Res<()> {
        let of_row = self.rows.iter().find(|r| r.0 == row).map_or(&[][..], |r| &r.1);
        let operand = |i: u32| {
            let at = self.operands.iter().position(|o| o.0 == i);
            Value::Word(of_row[at.expect("each operand was loaded")].into())
        };
        for e in 0..elements.len {
            let x = elements.dword(e);
            let y = expr::eval(b, &self.expr, &operand, Some(Value::Word(x.into())))?.reg(b);
            b.copy_into(x, y);
        }
        Ok(())
    }
}
