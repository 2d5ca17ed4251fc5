//! Scalar registers that vector instructions have read: the hazard of gfx12 that goes on for ever.
//!
//! Once a vector instruction has read a scalar register, writes to the register's pair are not interlocked with the reads
//! that follow: whoever reads it next needs a wait for the ALU that wrote it (`s_wait_alu`). A scalar instruction that
//! reads waits for vector results by itself, and scalar memory and buffer instructions wait for both. Since the first
//! read may lie anywhere before, no search backwards finds it: [`ScalarHistory`] follows the uses of scalar registers
//! forwards, along a run of a wave or along the paths of a program.
//!
//! Source: LLVM 22, `AMDGPUWaitSGPRHazards.cpp` (hazards.md of the project's facts, section 3).

use crate::{Inst, Operand, Pipe, Reg, Relation, Target, op};
use std::fmt;

/// Waits for results of the ALUs, fields of `s_wait_alu` (`s_waitcnt_depctr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AluWaits(u8);

impl AluWaits {
    /// Scalar results of scalar instructions.
    pub const SA_SDST: AluWaits = AluWaits(1);
    /// VCC written by vector instructions.
    pub const VA_VCC: AluWaits = AluWaits(2);
    /// Scalar results of vector instructions.
    pub const VA_SDST: AluWaits = AluWaits(4);
    /// The fields: which wait, name, mask of its bits.
    const FIELDS: [(AluWaits, &'static str, u32); 3] = [
        (AluWaits::SA_SDST, "sa_sdst", 1),
        (AluWaits::VA_VCC, "va_vcc", 1 << 1),
        (AluWaits::VA_SDST, "va_sdst", 7 << 9),
    ];
    /// The immediate that waits for nothing. Bits 5 and 6 have no meaning.
    const NOTHING: u32 = 0xff9f;

    /// True when nothing is waited for.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Both.
    pub fn or(self, other: AluWaits) -> AluWaits {
        AluWaits(self.0 | other.0)
    }
    fn has(self, other: AluWaits) -> bool {
        self.0 & other.0 != 0
    }
    /// The immediate of `s_wait_alu` that waits for these and for nothing else.
    pub fn immediate(self) -> u32 {
        let mine = Self::FIELDS.iter().filter(|f| self.has(f.0));
        mine.fold(Self::NOTHING, |v, f| v & !f.2)
    }
    /// What an immediate waits for.
    fn of_immediate(v: u64) -> AluWaits {
        let zero = Self::FIELDS.iter().filter(|f| v & u64::from(f.2) == 0);
        zero.fold(AluWaits::default(), |w, f| w.or(f.0))
    }
}

impl fmt::Display for AluWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Self::FIELDS.iter().filter(|f| self.has(f.0)).map(|f| f.1).collect();
        write!(f, "{}", names.join(", "))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Vector,
    Scalar,
    /// Scalar memory, and vector memory without flat addressing.
    Memory,
    Wait(AluWaits),
}

/// What an instruction does to scalar registers; a bit for each: s0 to s105, vcc_lo, vcc_hi, ttmp0 to ttmp15.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScalarUse {
    unit: Unit,
    reads: u128,
    writes: u128,
}

/// vcc_lo and vcc_hi.
const VCC: u128 = 3 << 106;

fn number(r: Reg) -> Option<u16> {
    let within = |first: Reg, count: u16| r.0.checked_sub(first.0).filter(|&n| n < count);
    let vcc = || within(Reg::VCC_LO, 2).map(|n| 106 + n);
    within(Reg::S0, 106).or_else(vcc).or_else(|| within(Reg::TTMP0, 16).map(|n| 108 + n))
}

fn register(n: u32) -> Reg {
    match n as u16 {
        n @ 0..106 => Reg::s(n),
        n @ 106..108 => Reg(Reg::VCC_LO.0 + n - 106),
        n => Reg::ttmp(n - 108),
    }
}

/// The pairs that registers belong to, each by both its bits.
fn pairs(regs: u128) -> u128 {
    const EVEN: u128 = 0x5555_5555_5555_5555_5555_5555_5555_5555;
    let low = (regs | regs >> 1) & EVEN;
    low | low << 1
}

impl Target {
    /// What an instruction does to scalar registers, on targets where [`ScalarHistory`] matters.
    pub fn scalar_use(self, inst: &Inst) -> Option<ScalarUse> {
        self.hazards().iter().find(|r| r.relation == Relation::SgprAgain)?;
        let info = self.op(inst.op)?;
        let set = |list: &[Operand], implicit: &[Reg]| {
            let explicit = list.iter().filter_map(|o| o.regs()).flat_map(|r| r.iter());
            explicit.chain(implicit.iter().copied()).filter_map(number).fold(0u128, |s, n| s | 1 << n)
        };
        let unit = match (inst.op, info.pipe) {
            (op::S_WAITCNT_DEPCTR, _) => match inst.srcs.first() {
                Some(Operand::Imm(v)) => Unit::Wait(AluWaits::of_immediate(*v)),
                _ => return None,
            },
            (_, Pipe::Valu | Pipe::Trans | Pipe::Matrix) => Unit::Vector,
            (_, Pipe::Salu | Pipe::Branch) => Unit::Scalar,
            (_, Pipe::Smem) => Unit::Memory,
            (o, Pipe::Vmem) if ["buffer_", "tbuffer_", "image_"].iter().any(|p| o.name().starts_with(p)) => {
                Unit::Memory
            }
            _ => return None,
        };
        let tied = inst.dsts.iter().zip(info.dsts).filter(|(_, s)| s.read).map(|(d, _)| *d);
        let reads = set(&inst.srcs, info.reads) | set(&tied.collect::<Vec<_>>(), &[]);
        Some(ScalarUse { unit, reads, writes: set(&inst.dsts, info.writes) })
    }
}

/// Uses of scalar registers so far that later ones may have to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScalarHistory {
    /// Pairs that vector instructions have read.
    read: u128,
    /// Those that they have read on every path: what a scalar instruction waits for by itself is certain of these only.
    surely: u128,
    /// Registers of such pairs that scalar instructions have written since.
    scalar: u128,
    /// ... that vector instructions have written.
    vector: u128,
}

impl ScalarHistory {
    /// What an instruction must wait for before it is issued, and a register that it is about.
    pub fn missing(&self, u: &ScalarUse) -> Option<(Reg, AluWaits)> {
        let reads = u.reads & self.read;
        let by_vector = if u.unit == Unit::Vector { self.vector & reads } else { 0 };
        let wanted = match u.unit {
            Unit::Vector | Unit::Scalar => [
                (self.scalar & reads, AluWaits::SA_SDST),
                (by_vector & VCC, AluWaits::VA_VCC),
                (by_vector & !VCC, AluWaits::VA_SDST),
            ],
            _ => return None,
        };
        let wanted = wanted.iter().filter(|w| w.0 != 0);
        let all = wanted.clone().fold(AluWaits::default(), |a, w| a.or(w.1));
        wanted.map(|w| (register(w.0.trailing_zeros()), all)).next()
    }

    /// The instruction has been issued.
    pub fn pass(&mut self, u: &ScalarUse) {
        match u.unit {
            Unit::Memory => (self.scalar, self.vector) = (0, 0),
            Unit::Wait(w) => {
                for (wait, regs) in [(AluWaits::VA_VCC, VCC), (AluWaits::VA_SDST, !VCC)] {
                    self.vector &= if w.has(wait) { !regs } else { u128::MAX };
                }
                self.scalar &= if w.has(AluWaits::SA_SDST) { 0 } else { u128::MAX };
            }
            Unit::Scalar => {
                // A scalar instruction that reads waits for all vector results: VCC, or the others.
                for regs in [VCC, !VCC] {
                    self.vector &= if u.reads & self.surely & regs != 0 { !regs } else { u128::MAX };
                }
                self.scalar |= u.writes & self.read;
                self.vector &= !(u.writes & VCC);
            }
            Unit::Vector => {
                self.read |= pairs(u.reads);
                self.surely |= pairs(u.reads);
                self.vector |= u.writes & self.read;
                self.scalar &= !(u.writes & VCC);
            }
        }
    }

    /// Joins the history of another path; true when that changed this one.
    pub fn merge(&mut self, other: &ScalarHistory) -> bool {
        let before = *self;
        self.read |= other.read;
        self.surely &= other.surely;
        self.scalar |= other.scalar;
        self.vector |= other.vector;
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Regs, VCC as VCC_PAIR};

    fn s(n: u16) -> Operand {
        Operand::Regs(Regs::s(n, 1))
    }
    fn v(n: u16) -> Operand {
        Operand::Regs(Regs::v(n, 1))
    }

    /// What the last of the instructions has to wait for.
    fn last(list: &[Inst]) -> Option<String> {
        let t = Target::parse("gfx1201").unwrap();
        let mut h = ScalarHistory::default();
        let mut missing = None;
        for i in list {
            let Some(u) = t.scalar_use(i) else { continue };
            missing = h.missing(&u).map(|(r, w)| format!("{r:?} {w}"));
            h.pass(&u);
        }
        missing
    }

    #[test]
    fn a_write_after_a_vector_read_must_be_waited_for() {
        let read = Inst::new(op::V_MOV_B32, &[v(0)], &[s(4)]);
        let neighbour = Inst::new(op::V_MOV_B32, &[v(0)], &[s(5)]);
        let write = Inst::new(op::S_MOV_B32, &[s(4)], &[Operand::Imm(1)]);
        let other = Inst::new(op::S_MOV_B32, &[s(9)], &[s(4)]);
        let wait = |w: AluWaits| Inst::new(op::S_WAITCNT_DEPCTR, &[], &[Operand::Imm(w.immediate().into())]);
        assert_eq!(last(&[write.clone(), read.clone()]), None, "not read before");
        let twice = [read.clone(), write.clone(), read.clone()];
        assert!(last(&twice).is_some_and(|m| m.ends_with("sa_sdst")));
        assert!(last(&[neighbour, write.clone(), other]).is_some(), "by the pair");
        let waited = |w| [read.clone(), write.clone(), wait(w), read.clone()];
        assert_eq!(last(&waited(AluWaits::SA_SDST)), None);
        assert!(last(&waited(AluWaits::VA_SDST)).is_some());
        let load = Inst::new(op::S_LOAD_DWORD, &[s(20)], &[Operand::Regs(Regs::s(0, 2)), Operand::Imm(0)]);
        assert_eq!(last(&[read.clone(), write, load, read]), None, "memory instructions wait");
    }

    #[test]
    fn vector_results_hold_up_vector_instructions_only() {
        let select = Inst::new(op::V_CNDMASK_B32, &[v(0)], &[v(1), v(2), Operand::Regs(Regs::from(Reg::VCC_LO))]);
        let compare = Inst::new(op::V_CMP_LT_F32, &[Operand::Regs(Regs::from(Reg::VCC_LO))], &[v(0), v(1)]);
        let list = [select.clone(), compare.clone(), select.clone()];
        assert!(last(&list).is_some_and(|m| m.ends_with("va_vcc")));
        let scalar = Inst::new(op::S_MOV_B64, &[Operand::Regs(Regs::s(2, 2))], &[Operand::Regs(VCC_PAIR)]);
        assert_eq!(last(&[select.clone(), compare.clone(), scalar.clone()]), None);
        assert_eq!(last(&[select.clone(), compare, scalar, select]), None, "the scalar instruction has waited");
    }
    #[test]
    fn a_read_on_one_path_lets_no_scalar_instruction_wait() {
        let t = Target::parse("gfx1201").unwrap();
        let read = |n| t.scalar_use(&Inst::new(op::V_MOV_B32, &[v(0)], &[s(n)])).unwrap();
        let mut both = ScalarHistory::default();
        both.pass(&read(4));
        let mut one = both;
        one.pass(&read(8));
        assert!(both.merge(&one));
        both.pass(&t.scalar_use(&Inst::new(op::V_READFIRSTLANE_B32, &[s(4)], &[v(1)])).unwrap());
        both.pass(&t.scalar_use(&Inst::new(op::S_MOV_B32, &[s(12)], &[s(8)])).unwrap());
        assert!(both.missing(&read(4)).is_some());
    }
}
