//! What is made of the elements of an operand on their way to LDS.

use super::Common;
use crate::graph::expr::Expr;
use crate::kernels::error::Res;
use crate::kernels::expr;
use crate::kernels::values::{self, Value};
use crate::mir::{Buffer, Builder, Part};
use crate::tensor::DType;
use barewave_isa::op;

/// What is made of each element before it goes to LDS: an expression of the element and of constants of its k, which come
/// with it. All are of one type, of 32 bits or 16.
pub(super) struct Beginning {
    pub(super) expr: Expr,
    pub(super) dtype: DType,
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
        let size = self.dtype.size() as u32;
        let ahead = b.shl(k, size.trailing_zeros());
        let at = b.add(self.first, ahead);
        let at = b.to_vector(at);
        for (row, regs) in &self.rows {
            for (reg, (_, buf, start)) in regs.iter().zip(&self.operands) {
                let imm = row * size + start;
                match size {
                    2 => b.load_op_into(op::BUFFER_LOAD_USHORT, *reg, *buf, at, 0u32, imm),
                    _ => b.load_into(*reg, *buf, at, 0u32, imm),
                }
            }
        }
    }

    /// Changes what was loaded.
    pub(super) fn apply(&self, b: &mut Builder, common: &Common) -> Res<()> {
        let per_word = 4 / self.dtype.size() as u32;
        for (row, regs) in &self.rows {
            let operands: Vec<Value> = regs.iter().map(|reg| values::element(b, self.dtype, *reg, 0)).collect();
            let operand = |i: u32| {
                let at = self.operands.iter().position(|o| o.0 == i);
                operands[at.expect("each operand was loaded")]
            };
            let loads = common.regs.iter().enumerate().filter(|(load, _)| common.k(*load as u32) == *row);
            for word in loads.flat_map(|(_, reg)| (0..reg.len).map(|i| reg.dword(i))) {
                let mut made = Vec::new();
                for e in 0..per_word.min(common.vec) {
                    let x = values::element(b, self.dtype, word, e);
                    made.push(expr::eval_to_store(b, &self.expr, &operand, Some(x), &|_| false)?);
                }
                let made = values::together(b, self.dtype, &made);
                b.copy_into(word, made);
            }
        }
        Ok(())
    }
}
