//! The constant bus: VALU instructions may read only so many scalar values.

use super::*;

impl Attempt<'_> {
    /// VALU instructions may read only so many scalar values.
    pub(super) fn constant_bus(&self) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let scalar = |x: &Operand| matches!(x, Operand::Regs(r) if !r.first.is_vector());
        if !shape.vector || !self.inst.srcs.iter().any(scalar) {
            return Ok(());
        }
        let limit = usize::from(self.target.info().constant_bus);
        let mut seen: smallvec::SmallVec<[Regs; 4]> = smallvec::SmallVec::new();
        // vcc and vcc_lo count as two, other registers as one at any width
        let name = |r: Regs| if r.first == Reg::VCC_LO { r } else { Regs::new(r.first, 1) };
        let mut offender = None;
        for (s, o) in shape.operands.iter().filter(|o| o.role == Role::Src).enumerate() {
            if let Some(Operand::Regs(r)) = self.inst.srcs.get(s)
                && !r.first.is_vector()
                && r.first != Reg::NULL
                && r.first != Reg::LDS_DIRECT
                && !seen.contains(&name(*r))
            {
                seen.push(name(*r));
                offender = Some((o, Operand::Regs(*r)));
            }
        }
        // v_div_fmas reads vcc without saying so
        if self.row.variant >> crate::table::READS & 2 != 0 && !seen.contains(&vcc(self.mode)) {
            seen.push(vcc(self.mode));
        }
        let n = seen.len()
            + usize::from(self.literal.is_some() || shape.field(At::Constant).is_some_and(|o| o.style != Style::K64));
        let lane =
            || shape.operands.iter().any(|o| o.role == Role::Dst && o.has(flag::SCALAR_ONLY) && !o.has(flag::MASK));
        if n > limit
            && !lane()
            && !self.row.mnemonic().starts_with("v_writelane")
            && let Some((o, x)) = offender
        {
            return Err(self.bad(o, x, "one of fewer scalar sources: the constant bus is full"));
        }
        Ok(())
    }
}
