//! Operands whose meaning depends on modifiers or on other operands: addresses of images, scratch and scalar memory, and
//! sources of exports.

use super::*;

impl Attempt<'_> {
    /// A source of an export. With `compr` the first two stand for one register and the others for the second.
    pub(super) fn export_source(&mut self, o: &Field, x: Operand) -> Result<(), EncodeError> {
        if x == Operand::Off {
            return Ok(());
        }
        let n = self.vector(o, x, 1)?;
        let i = o.source_index().unwrap_or(0);
        if self.given(ModName::Compr) == 0 {
            o.put(&mut self.bits, n);
            return Ok(());
        }
        if let Some(Operand::Regs(partner)) = self.inst.srcs.get((i ^ 1) + 1)
            && u64::from(partner.first.index()) != n
        {
            return Err(self.bad(o, x, "the same register as its neighbour: compr packs two halves into one"));
        }
        // without `en` the first of each two sources counts
        if let Some(to) = self.row.shape().operand(if i < 2 { "src0" } else { "src1" })
            && (i.is_multiple_of(2) || self.inst.mods.get(ModName::En).is_some())
        {
            to.put(&mut self.bits, n);
        }
        Ok(())
    }

    /// Registers that the data of an image instruction takes with its modifiers.
    pub(super) fn image_data(&self) -> u8 {
        self.row.shape().image.map_or(1, |i| i.data_dwords(|m| self.given(m)))
    }

    /// Registers that the address of an image instruction takes; none where the dimension is not known.
    fn image_addr(&self) -> Option<u8> {
        let image = self.row.shape().image?;
        if !image.rays.is_empty() {
            return Some(image.rays.iter().sum());
        }
        let known = self.row.shape().operand("dim").is_some();
        known.then(|| image.run(image.addr_dwords(self.given(ModName::Dim), self.given(ModName::A16) == 1)))
    }

    /// Length of an address in one run of registers.
    pub(super) fn image_run(&self, o: &Field, x: Operand) -> Result<u8, EncodeError> {
        let given = if let Operand::Regs(r) = x { r.dwords } else { 0 };
        let sizes = self.row.shape().image.map_or(&[][..], |i| i.addrs);
        match self.image_addr() {
            // eight registers may stand for five to seven, the smallest form for sizes that are not there
            Some(5..=7) if given == 8 => Ok(8),
            Some(_) if sizes.first() == Some(&given) => Ok(given),
            Some(n) => Ok(n),
            None if sizes.contains(&given) => Ok(given),
            None => Err(self.bad(o, x, "an address of the length that this operation takes")),
        }
    }

    /// An address that is given register by register.
    pub(super) fn image_list(&mut self, o: &Field, list: &[Operand]) -> Result<(), EncodeError> {
        let Some(image) = self.row.shape().image else { return Ok(()) };
        let want = self.image_addr().unwrap_or(1);
        let slots = usize::from(image.slots);
        let nth = |i: usize| -> u8 {
            match image.rays.get(i) {
                Some(n) => *n,
                None if i + 1 == slots => want.saturating_sub(i as u8).max(1),
                None => 1,
            }
        };
        let n = if image.rays.is_empty() { usize::from(want).min(slots) } else { image.rays.len() };
        let single = list.iter().all(|x| x.regs().is_some_and(|r| r.dwords == 1));
        let whole = image.rays.is_empty() && list.len() == slots && single;
        if !whole && (list.len() != n || image.rays.is_empty() && !image.addrs.contains(&want)) {
            let allowed = "an address of as many registers as dimension and operation ask for";
            return Err(self.bad(o, list.first().copied().unwrap_or(Operand::Off), allowed));
        }
        for (i, x) in list.iter().enumerate() {
            let v = self.vector(o, *x, if whole { 1 } else { nth(i) })?;
            let at = image.places.get(i).map_or(0, |&p| usize::from(p));
            if at < 16 {
                self.bits = self.bits & !(0xff << (8 * at)) | u128::from(v) << (8 * at);
            } else {
                self.tail |= (v as u32) << (8 * (at - 16));
            }
        }
        Ok(())
    }

    pub(super) fn scratch_saddr(&self, o: &Field, x: Operand) -> Result<u64, EncodeError> {
        let has_vaddr = self.inst.srcs.iter().any(|s| matches!(s, Operand::Regs(r) if r.first.is_vector()))
            && self.row.shape().operand("vaddr").is_some()
            && !self.vaddr_off();
        if x == Operand::Off {
            let sve = self.row.shape().operand("sve").is_some();
            return Ok(if has_vaddr || sve {
                self.codes.off()
            } else if let Some(alone) = self.codes.scratch_off().1 {
                alone
            } else {
                return Err(self.bad(o, x, "an SGPR when there is no address VGPR"));
            });
        }
        if has_vaddr && self.row.shape().operand("sve").is_none() {
            return Err(self.bad(o, x, "off beside an address VGPR on this target"));
        }
        self.scalar(o, x, 1)
    }

    fn vaddr_off(&self) -> bool {
        let mut s = 0;
        for o in self.row.shape().operands {
            if o.role == Role::Src {
                if o.kind == Kind::ScratchAddr {
                    return self.inst.srcs.get(s) == Some(&Operand::Off);
                }
                s += 1;
            }
        }
        false
    }

    pub(super) fn smem_offset(&mut self, o: &Field, x: Operand) -> Result<(), EncodeError> {
        let shape = self.row.shape();
        let extra = self.inst.mods.get(ModName::Offset);
        let w = width_of(o);
        let fits =
            |v: i64, signed: bool| if signed { v >= -(1 << (w - 1)) && v < 1 << (w - 1) } else { v >= 0 && v < 1 << w };
        let (imm, soffen, soffset) = (shape.operand("imm"), shape.operand("soffen"), shape.operand("soffset"));
        let signed = !self.target.info().has(Quirk::UnsignedSmemOffset);
        match x {
            Operand::Imm(v) => {
                let v = v as i64;
                if !fits(v, signed) {
                    return Err(self.bad(o, x, "an offset that the field can hold"));
                }
                if let Some(imm) = imm {
                    imm.put(&mut self.bits, 1);
                } else if let Some(s) = soffset {
                    s.put(&mut self.bits, self.codes.smem_off());
                }
                o.put(&mut self.bits, v as u64 & o.max());
            }
            Operand::Regs(r) => {
                let code = self.scalar(o, Operand::Regs(r), 1)?;
                let e = i64::from(extra.unwrap_or(0));
                if !fits(e, signed) {
                    return Err(EncodeError::Modifier { op: self.inst.op, modifier: ModName::Offset, value: e as i32 });
                }
                match (imm, soffen, soffset) {
                    (Some(imm), Some(en), Some(s)) if extra.is_some() => {
                        imm.put(&mut self.bits, 1);
                        en.put(&mut self.bits, 1);
                        s.put(&mut self.bits, code);
                        o.put(&mut self.bits, e as u64 & o.max());
                    }
                    (Some(_), _, _) if extra.is_none() => o.put(&mut self.bits, code),
                    (None, _, Some(s)) => {
                        s.put(&mut self.bits, code);
                        o.put(&mut self.bits, e as u64 & o.max());
                    }
                    _ => {
                        return Err(EncodeError::Modifier {
                            op: self.inst.op,
                            modifier: ModName::Offset,
                            value: e as i32,
                        });
                    }
                }
            }
            Operand::Off => return Err(self.bad(o, x, "an SGPR or a number")),
        }
        Ok(())
    }
}
