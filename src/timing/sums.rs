//! What follows from the results of matrix instructions, and what does not.
//!
//! Multiplying is most of what it takes to execute a matrix kernel, and nothing of it shows in a trace: sums go to memory, addresses
//! and branches come from elsewhere. So a recorder leaves matrix instructions out, and follows what their results reach: registers,
//! LDS, lines of memory. An instruction that would go elsewhere for another sum (an address, a branch, a mask, a register chosen by one)
//! tells that the workgroup has to be executed in full. What such a sum does not decide in the recorded rounds of a loop it does
//! not decide in those that repeat them.

use crate::instr::{Instr, Unit};
use barewave_isa::Reg;
use rustc_hash::FxHashSet;

/// What becomes of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It is executed.
    Runs,
    /// It is left out.
    Skipped,
    /// Where it goes depends on a result that was left out.
    Decides,
}

/// Registers of a wave, by number.
const REGISTERS: usize = 2048;

#[derive(Clone)]
struct Wave {
    /// Registers that hold something made of sums, by bit.
    registers: [u64; REGISTERS / 64],
    /// Lanes that it has.
    lanes: u64,
}

/// Where results that were left out have got to, in a workgroup; memory in all of them.
#[derive(Default)]
pub struct Sums {
    waves: Vec<Option<Wave>>,
    lds: bool,
    memory: FxHashSet<u64>,
    any: bool,
}

impl Sums {
    /// A workgroup starts.
    pub fn begin(&mut self, waves: usize) {
        (self.waves, self.lds) = (vec![None; waves], false);
    }

    /// A wave is about to execute an instruction with these active lanes, which touches these cache lines.
    pub fn follow(&mut self, wave: usize, i: &Instr, exec: u64, lines: &[u64]) -> Flow {
        let w = self.waves[wave].get_or_insert(Wave { registers: [0; REGISTERS / 64], lanes: exec });
        let at = |r: u16| (usize::from(r) % REGISTERS / 64, 1 << (r % 64));
        if i.unit == Unit::Matrix {
            self.any = true;
            i.writes.iter().map(|r| at(*r)).for_each(|(n, bit)| w.registers[n] |= bit);
            return Flow::Skipped;
        }
        if !self.any {
            return Flow::Runs;
        }
        if i.indirect {
            return Flow::Decides;
        }
        let holds = |r: &u16| w.registers[at(*r).0] & at(*r).1 != 0;
        let read = i.reads.iter().any(holds);
        let loaded = match i.unit {
            Unit::Lds => self.lds,
            Unit::Vmem | Unit::Smem => lines.iter().any(|l| self.memory.contains(l)),
            _ => false,
        };
        if read {
            let chosen = |r: &u16| matches!(Reg(*r), Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0);
            if i.unit == Unit::Branch || i.places.iter().any(holds) || i.writes.iter().any(chosen) {
                return Flow::Decides;
            }
            match i.unit {
                Unit::Lds => self.lds = true,
                Unit::Vmem => self.memory.extend(lines),
                _ => {}
            }
        }
        for r in &i.writes {
            let (n, bit) = at(*r);
            if read || loaded {
                w.registers[n] |= bit;
            } else if !Reg(*r).is_vector() || exec == w.lanes && !i.partial {
                w.registers[n] &= !bit;
            }
        }
        Flow::Runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, Target, parse};

    /// What becomes of the instructions of a wave of gfx942, which all touch line 1.
    fn flows(texts: &[&str]) -> Vec<Flow> {
        let t = Target::GFX942;
        let mut sums = Sums::default();
        sums.begin(1);
        let instr = |text: &&str| Instr::new(t, &parse(t, Mode::of(t), text).unwrap().inst(), 64).unwrap();
        texts.iter().map(|text| sums.follow(0, &instr(text), u64::MAX, &[1])).collect()
    }

    const SUM: &str = "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]";

    #[test]
    fn sums_may_go_to_memory() {
        let stored =
            ["global_load_dword v9, v8, s[0:1]", SUM, "v_cvt_f16_f32 v9, v3", "global_store_short v8, v9, s[0:1]"];
        assert_eq!(flows(&stored), [Flow::Runs, Flow::Skipped, Flow::Runs, Flow::Runs]);
        // Another value in the same register is an address again.
        let again = [SUM, "v_mov_b32 v9, v3", "v_mov_b32 v9, v8", "global_load_dword v2, v9, s[0:1]"];
        assert_eq!(flows(&again)[3], Flow::Runs);
    }

    #[test]
    fn sums_may_not_say_where_to_go() {
        for last in ["global_load_dword v2, v3, s[0:1]", "ds_write_b32 v3, v8", "v_cmpx_lt_f32 vcc, v3, v8"] {
            assert_eq!(flows(&[SUM, last])[1], Flow::Decides, "{last}");
        }
        let branch = [SUM, "v_cmp_lt_f32 vcc, v3, v8", "s_cbranch_vccz 4"];
        assert_eq!(flows(&branch)[2], Flow::Decides);
        // By way of LDS and of memory.
        let through = [
            SUM,
            "ds_write_b32 v8, v3",
            "ds_read_b32 v9, v8",
            "v_readfirstlane_b32 s4, v9",
            "s_load_dword s5, s[4:5], 0x0",
        ];
        assert_eq!(flows(&through)[4], Flow::Decides);
        let through = [
            SUM,
            "global_store_dword v8, v3, s[0:1]",
            "s_load_dword s5, s[0:1], 0x0",
            "s_cmp_eq_u32 s5, 0",
            "s_cbranch_scc1 4",
        ];
        assert_eq!(flows(&through)[4], Flow::Decides);
    }
}
