//! Definedness of registers, lane by lane and bit by bit.
//!
//! It is propagated as memory checkers do: a result is defined when all that it was computed from is. Undefined values may
//! be moved, stored to LDS, and saved in scratch, from where they come back as undefined as they were (functions save the
//! registers of their callers without knowing what is in them); they may not decide (addresses, branches, EXEC) and may not
//! reach device memory.

use super::Problem;
use super::facts::{Facts, Logic, tracked};
use crate::fault::FaultKind;
use crate::sem::Form;
use crate::uop::UOp;
use crate::wave::{EXEC, SCALARS, Wave, scalar};
use barewave_isa::{Flags, Pipe, Reg, Regs, op};

/// What is known of a wave's registers.
pub struct Known {
    /// Defined lanes by vector row.
    pub vector: Vec<u64>,
    /// Defined bits of scalar registers.
    pub scalar: [u32; SCALARS],
    /// Row of the first AGPR.
    first_agpr: usize,
}

/// What an instruction reads is defined.
pub struct Defined {
    /// All scalars, and vectors in all active lanes.
    pub scalar: bool,
    /// By lane.
    pub lanes: u64,
    /// The same for the low dwords of 64-bit values.
    pub low: bool,
    /// By lane.
    pub low_lanes: u64,
    /// Bit by bit, for lane masks and scalar logic.
    pub bits: Option<u64>,
    /// Dwords of a scalar load that nobody has written, a bit each.
    pub holes: u32,
    /// Lanes in which the dwords of a load from scratch are undefined; dwords without an entry are defined in all.
    pub restored: Vec<u64>,
}

impl Defined {
    /// Everything is.
    pub fn all(w: &Wave) -> Defined {
        Defined {
            scalar: true,
            lanes: w.all(),
            low: true,
            low_lanes: w.all(),
            bits: None,
            holes: 0,
            restored: Vec::new(),
        }
    }
}

impl Known {
    /// Nothing is known of `rows` vector registers and the scalar ones.
    pub fn new(rows: usize, first_agpr: usize) -> Known {
        Known { vector: vec![0; rows], scalar: [0; SCALARS], first_agpr }
    }

    fn row(&self, r: Reg) -> Option<usize> {
        let n = match r.0 {
            n if n >= Reg::A0.0 && self.first_agpr <= Reg::A0.0 as usize => (n - Reg::A0.0) as usize + self.first_agpr,
            n => n as usize,
        };
        r.is_vector().then_some(n).filter(|&n| n < self.vector.len())
    }

    /// Lanes of a vector register that are defined.
    pub fn lanes(&self, r: Reg) -> u64 {
        self.row(r).map_or(0, |row| self.vector[row])
    }

    /// Whether what is read is defined: for scalars, and lane by lane for vectors.
    pub fn defined(&self, w: &Wave, uop: &UOp, f: &Facts, exec: u64) -> Defined {
        let mut d = Defined::all(w);
        let crosses = f.info.flags.has(Flags::CROSS_LANE) || f.info.flags.has(Flags::MATRIX);
        // A lane mask counts lane by lane.
        let mask = match uop.form {
            Form::BitIn | Form::BitInOut => f.inst.srcs.last().and_then(|o| o.regs()),
            Form::VccIn => Some(Regs::new(Reg::VCC_LO, (w.lanes / 32) as u8)),
            _ => None,
        };
        if let Some(m) = mask.filter(|m| !m.first.is_vector()) {
            let at = scalar(m.first) as usize;
            let hi = if w.lanes == 64 { self.scalar[at + 1] } else { 0 };
            d.lanes &= self.scalar[at] as u64 | (hi as u64) << 32;
        }
        for r in &f.reads {
            if mask.is_some_and(|m| m.overlaps(*r)) {
                continue;
            }
            for (i, r) in r.iter().enumerate() {
                if r.is_vector() {
                    let lanes = self.lanes(r);
                    // Instructions that read other lanes: one defined lane vouches for the row.
                    let lanes = if crosses && lanes != 0 { w.all() } else { lanes };
                    d.lanes &= lanes;
                    d.low_lanes &= if i == 0 { lanes } else { w.all() };
                } else if tracked(r) {
                    let known = self.scalar[scalar(r) as usize] == u32::MAX;
                    d.scalar &= known;
                    d.low &= i > 0 || known;
                }
            }
        }
        if !d.scalar {
            d.lanes = 0;
        }
        if !d.low {
            d.low_lanes = 0;
        }
        if let Some(select) = f.halves {
            let [low, high] = select.map(|bits| self.selected(w, f, bits));
            (d.low, d.low_lanes, d.scalar, d.lanes) = (low != 0, low, high != 0, high);
        } else if !f.split {
            (d.low, d.low_lanes) = (d.scalar, d.lanes);
        }
        d.low &= d.low_lanes & exec == exec;
        if let Some(l) = f.logic {
            d.bits = Some(self.logic(w, uop, f, l));
        } else if matches!(uop.form, Form::Compare | Form::CompareExec | Form::BitOut | Form::BitInOut) {
            // Inactive lanes give 0.
            d.bits = Some(d.lanes | !exec);
        }
        d.scalar &= d.lanes & exec == exec;
        d
    }

    /// Lanes in which the dwords that `bits` selects of a packed instruction's sources are all defined.
    fn selected(&self, w: &Wave, f: &Facts, bits: u32) -> u64 {
        let mut lanes = w.all();
        for (n, r) in f.inst.srcs.iter().enumerate().filter_map(|(n, o)| Some((n, o.regs()?))) {
            let Some(r) = r.iter().nth((bits >> n & 1) as usize) else { continue };
            if r.is_vector() {
                lanes &= self.lanes(r);
            } else if tracked(r) && self.scalar[scalar(r) as usize] != u32::MAX {
                lanes = 0;
            }
        }
        lanes
    }

    /// Defined bits of a scalar logic instruction's result: a known 0 decides an AND, a known 1 an OR.
    fn logic(&self, w: &Wave, uop: &UOp, f: &Facts, l: Logic) -> u64 {
        let wide = l.bits == 64;
        let take = |n: usize| {
            let v = if wide { w.r64(&uop.src[n]) } else { w.r32(&uop.src[n]) as u64 };
            let d = match f.inst.srcs.get(n).and_then(|o| o.regs()) {
                Some(r) if tracked(r.first) && !r.first.is_vector() => {
                    let at = scalar(r.first) as usize;
                    self.scalar[at] as u64 | (self.scalar[at + 1] as u64) << 32
                }
                _ => u64::MAX,
            };
            (v, d)
        };
        let (mut a, da) = take(0);
        let (mut b, db) = match l.exec {
            true => (w.pair(EXEC), u64::MAX),
            false => take(1),
        };
        if l.not_a {
            a = !a;
        }
        if l.not_b {
            b = !b;
        }
        let known = match l.kind {
            '&' => da & db | da & !a | db & !b,
            '|' => da & db | da & a | db & b,
            '^' => da & db,
            _ => da,
        };
        if wide { known } else { known | !0xffff_ffff }
    }

    /// Undefined values must not decide: branches, EXEC, addresses. The data of a store to scratch (`saves`) need not be
    /// defined.
    pub fn decides(&self, w: &Wave, f: &Facts, exec: u64, d: &Defined, saves: bool) -> Result<(), Problem> {
        if !f.decides {
            return Ok(());
        }
        let flags = f.info.flags;
        let memory = flags.has(Flags::LOAD) || flags.has(Flags::STORE) || flags.has(Flags::ATOMIC);
        if memory && f.info.pipe != Pipe::Smem && exec == 0 {
            return Ok(());
        }
        if f.logic.is_some() && d.bits.is_some_and(|b| b & w.all() == w.all()) {
            return Ok(());
        }
        let lds = f.info.pipe == Pipe::Lds;
        for (i, o) in f.inst.srcs.iter().enumerate() {
            let data = f.data >> i & 1 == 1;
            if !(data && (lds || saves))
                && let Some(r) = o.regs()
            {
                self.require(w, r, exec)?;
            }
        }
        if f.takes_m0 {
            self.require(w, Regs::from(Reg::M0), exec)?;
        }
        for r in f.info.reads.iter().filter(|r| !memory && tracked(**r)) {
            self.require(w, Regs::from(*r), exec)?;
        }
        Ok(())
    }

    fn require(&self, w: &Wave, regs: Regs, exec: u64) -> Result<(), Problem> {
        for r in regs.iter() {
            if r.is_vector() {
                let bad = exec & !self.lanes(r);
                if bad != 0 {
                    return Err((FaultKind::UndefinedRegister(Regs::from(r).to_string()), Some(bad.trailing_zeros())));
                }
            } else if tracked(r) && !(r == Reg::VCC_HI && w.lanes == 32) && self.scalar[scalar(r) as usize] != u32::MAX
            {
                return Err((FaultKind::UndefinedRegister(Regs::from(r).to_string()), None));
            }
        }
        Ok(())
    }

    /// Records what the instruction defined.
    pub fn after(&mut self, w: &Wave, f: &Facts, d: Defined) {
        let loads = f.info.flags.has(Flags::LOAD) || f.info.pipe == Pipe::Smem;
        let exec = w.exec();
        for (i, r) in f.writes.iter().flat_map(|r| r.iter().enumerate()) {
            let (scalars, vectors) = if i == 0 { (d.low, d.low_lanes) } else { (d.scalar, d.lanes) };
            if r.is_vector() {
                let Some(row) = self.row(r) else { continue };
                let undefined = d.restored.get(i).copied().unwrap_or(0);
                let lanes = if loads { w.all() & !undefined } else { vectors };
                let at = &mut self.vector[row];
                if f.info.flags.has(Flags::MATRIX) || f.inst.op == op::V_WRITELANE_B32 {
                    *at |= if d.scalar { w.all() } else { 0 };
                } else {
                    *at = *at & !exec | lanes & exec;
                }
            } else if (scalar(r) as usize) < SCALARS {
                // Lane masks and bitwise results are known bit by bit; SCC only when all of the result is.
                let known = match d.bits {
                    Some(b) if r == Reg::SCC && b & w.all() == w.all() => u32::MAX,
                    Some(_) if r == Reg::SCC => 0,
                    // The old EXEC.
                    Some(_) if f.logic.is_some_and(|l| l.exec) => u32::MAX,
                    Some(b) => (b >> (32 * i.min(1))) as u32,
                    _ if loads && d.holes >> i & 1 == 1 => 0,
                    _ if loads || scalars || !tracked(r) => u32::MAX,
                    _ => 0,
                };
                self.scalar[scalar(r) as usize] = known;
            }
        }
    }
}
