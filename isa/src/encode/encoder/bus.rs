//! The constant bus: VALU instructions may read only so many scalar values.

use super::*;
use crate::model::table::{READS, Row};

impl Attempt<'_> {
    /// Every scalar register that is read counts once at each width, and so does a literal.
    pub(super) fn constant_bus(&self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let scalar = |x: &Operand| !matches!(x, Operand::Regs(r) if r.first.is_vector());
        if !shape.vector || !self.inst.srcs.iter().any(scalar) {
            return Ok(());
        }
        let limit = if shape.has(word::ONE_BUS) { 1 } else { usize::from(self.target.info().constant_bus) };
        let mut seen: smallvec::SmallVec<[Regs; 4]> = implicit(self.row).collect();
        let mut offender = None;
        for (s, o) in shape.operands.iter().filter(|o| o.role == Role::Src).enumerate() {
            let r = match self.inst.srcs.get(s) {
                Some(&Operand::Regs(r)) => r,
                Some(x @ Operand::Imm(_)) => {
                    offender = offender.or(Some((o, *x)));
                    continue;
                }
                _ => continue,
            };
            let r = match r.first {
                // what the encoding says without a field counts as the pair in both wave sizes
                _ if o.kind == Kind::FixedVcc => crate::VCC,
                // values that are as wide as the operand asks for
                first if (Reg::SCC.0..Reg::MODE.0).contains(&first.0) => first.into(),
                _ => r,
            };
            if !r.first.is_vector() && r.first != Reg::NULL && r.first != Reg::LDS_DIRECT && !seen.contains(&r) {
                seen.push(r);
                offender = Some((o, Operand::Regs(r)));
            }
            if s == 1 && r.first == Reg::M0 && shape.has(word::LANE_SELECT) {
                // lane selects may be m0 beside another register
                return Ok(());
            }
        }
        let literal = self.literal.is_some() || shape.field(At::Constant).is_some_and(|o| o.style != Style::K64);
        match offender {
            Some((o, x)) if seen.len() + usize::from(literal) > limit => {
                Err(self.bad(o, x, "fewer scalar sources, which share the constant bus"))
            }
            _ => Ok(()),
        }
    }
}

/// VCC and M0 where an operation reads them without saying so.
fn implicit(row: &Row) -> impl Iterator<Item = Regs> {
    let reads = row.variant >> READS;
    [(2, crate::VCC), (8, Reg::M0.into())].into_iter().filter(move |(bit, _)| reads & bit != 0).map(|(_, r)| r)
}
