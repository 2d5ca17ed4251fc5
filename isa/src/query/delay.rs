//! What `s_delay_alu` says: of one or two instructions behind it, whose result they wait for.
//!
//! It has the SIMD issue other waves' instructions until that result is there. Source: "RDNA3" manual, S_DELAY_ALU.

/// What an instruction waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AluDelay {
    /// Nothing.
    #[default]
    Nothing,
    /// The result of the vector instruction that is so many back (1 to 4), those of the transcendental unit not counted.
    Vector(u8),
    /// The result of the instruction of the transcendental unit that is so many back (1 to 3).
    Trans(u8),
    /// A clock, for the sum of a multiply-add.
    Accumulator,
    /// So many clocks (1 to 3), for a scalar result.
    Scalar(u8),
}

/// Farthest distances that can be told, and most clocks.
pub const ALU_DELAY_VECTOR: u8 = 4;
/// See [`ALU_DELAY_VECTOR`].
pub const ALU_DELAY_TRANS: u8 = 3;
/// See [`ALU_DELAY_VECTOR`].
pub const ALU_DELAY_SCALAR: u8 = 3;

/// Instructions that the second one may stand behind the first one.
pub const ALU_DELAY_SKIP: u8 = 5;

impl AluDelay {
    fn code(self) -> u32 {
        match self {
            AluDelay::Nothing => 0,
            AluDelay::Vector(n) => u32::from(n),
            AluDelay::Trans(n) => 4 + u32::from(n),
            AluDelay::Accumulator => 8,
            AluDelay::Scalar(n) => 8 + u32::from(n),
        }
    }

    fn of_code(code: u64) -> Option<AluDelay> {
        let code = (code & 15) as u8;
        Some(match code {
            0 => AluDelay::Nothing,
            1..=4 => AluDelay::Vector(code),
            5..=7 => AluDelay::Trans(code - 4),
            8 => AluDelay::Accumulator,
            9..=11 => AluDelay::Scalar(code - 8),
            _ => return None,
        })
    }
}

/// The operand of `s_delay_alu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AluDelays {
    /// What the next instruction waits for.
    pub first: AluDelay,
    /// How many instructions behind the next one the other one is; 0: it is the same.
    pub skip: u8,
    /// What the other one waits for.
    pub second: AluDelay,
}

impl AluDelays {
    /// As the instruction has it.
    pub fn immediate(self) -> u32 {
        self.first.code() | u32::from(self.skip) << 4 | self.second.code() << 7
    }

    /// Reads it; `None` when it has no meaning.
    pub fn of_immediate(v: u64) -> Option<AluDelays> {
        let skip = (v >> 4 & 7) as u8;
        let known = skip <= ALU_DELAY_SKIP && v >> 11 & 31 == 0;
        Some(AluDelays { first: AluDelay::of_code(v)?, skip, second: AluDelay::of_code(v >> 7)? }).filter(|_| known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inst, Mode, Operand, Target, encode, op, parse};

    #[test]
    fn it_says_what_the_assembler_reads() {
        let t = Target::GFX1100;
        let cases = [
            (AluDelay::Vector(1), 0, AluDelay::Nothing, "instid0(VALU_DEP_1)"),
            (
                AluDelay::Vector(4),
                1,
                AluDelay::Trans(3),
                "instid0(VALU_DEP_4) | instskip(NEXT) | instid1(TRANS32_DEP_3)",
            ),
            (
                AluDelay::Scalar(2),
                5,
                AluDelay::Accumulator,
                "instid0(SALU_CYCLE_2) | instskip(SKIP_4) | instid1(FMA_ACCUM_CYCLE_1)",
            ),
        ];
        for (first, skip, second, text) in cases {
            let said = AluDelays { first, skip, second };
            assert_eq!(AluDelays::of_immediate(said.immediate().into()), Some(said));
            let inst = Inst::new(op::S_DELAY_ALU, &[], &[Operand::Imm(said.immediate().into())]);
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            encode(t, &inst, &mut bytes).unwrap();
            encode(t, &parse(t, Mode::of(t), &format!("s_delay_alu {text}")).unwrap().inst(), &mut read).unwrap();
            assert_eq!(bytes, read, "{text}");
        }
        assert_eq!(AluDelays::of_immediate(0xc), None);
        assert_eq!(AluDelays::of_immediate(0x60), None);
    }
}
