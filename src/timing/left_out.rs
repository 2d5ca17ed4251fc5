//! What follows from data, and what does not.
//!
//! Loading and multiplying is most of what it takes to execute a kernel, and nothing of it shows in a trace: sums go to memory, addresses
//! and branches come from elsewhere. So a recorder leaves vector loads and matrix instructions out, and whatever vector instruction reads a result
//! that was left out, and follows where these results would get to: registers, LDS, lines of memory. An instruction that would go elsewhere for another
//! value (an address, a branch, a mask, a register chosen by one) tells that the workgroup has to be executed in full. What such a value does not decide
//! in the recorded rounds of a loop it does not decide in those that repeat them. Atomic instructions run: which workgroup is the last one decides.

use crate::instr::{Instr, Unit};
use crate::prepared::REGISTERS;
use barewave_emu::observe::LaneAccess;
use barewave_isa::Reg;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

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

/// Registers that hold something made of what was left out, by bit.
pub(crate) type Marks = [u64; REGISTERS / 64];

#[derive(Clone)]
struct Wave {
    registers: Marks,
    /// Lanes that it has.
    lanes: u64,
}

/// What a workgroup's LDS holds.
#[derive(Default)]
struct Lds {
    /// Something there was left out.
    any: bool,
    /// Dwords of it that were computed, by bit.
    computed: Vec<u64>,
}

impl Lds {
    fn dwords(touched: &[LaneAccess]) -> impl Iterator<Item = (usize, u64)> {
        let all = touched.iter().flat_map(|a| a.address / 4..(a.address + u64::from(a.bytes)).div_ceil(4));
        all.map(|d| ((d / 64) as usize, 1 << (d % 64)))
    }

    /// Something that was `left_out`, or computed, goes to what is touched.
    fn write<'t>(&mut self, left_out: bool, touched: impl FnOnce() -> &'t [LaneAccess]) {
        self.any |= left_out;
        if left_out && self.computed.is_empty() {
            return;
        }
        for (n, bit) in Lds::dwords(touched()) {
            if n >= self.computed.len() {
                self.computed.resize(n + 1, 0);
            }
            if left_out {
                self.computed[n] &= !bit;
            } else {
                self.computed[n] |= bit;
            }
        }
    }

    /// Something of what is touched was left out.
    fn holds<'t>(&self, touched: impl FnOnce() -> &'t [LaneAccess]) -> bool {
        let computed = |(n, bit): (usize, u64)| self.computed.get(n).is_some_and(|c| c & bit != 0);
        self.any && (self.computed.is_empty() || !Lds::dwords(touched()).all(computed))
    }

    /// Something that was left out goes anywhere.
    fn overwrite(&mut self) {
        (self.any, self.computed) = (true, Vec::new());
    }
}

/// Where results that were left out have got to, in a workgroup; memory in all of them.
#[derive(Default)]
pub struct LeftOut {
    waves: Vec<Option<Wave>>,
    lds: Lds,
    memory: FxHashSet<u64>,
    any: bool,
}

impl LeftOut {
    /// A workgroup starts.
    pub fn begin(&mut self, waves: usize) {
        (self.waves, self.lds) = (vec![None; waves], Lds::default());
    }

    /// Registers of a wave that hold something made of what was left out; nothing before anything was.
    pub(crate) fn marks(&self, wave: usize) -> Option<&Marks> {
        self.waves[wave].as_ref().filter(|_| self.any).map(|w| &w.registers)
    }

    /// Sets them.
    pub(crate) fn mark(&mut self, wave: usize, marks: &Marks) {
        if let Some(w) = &mut self.waves[wave] {
            w.registers = *marks;
        }
    }

    /// Whatever LDS holds was left out, or may have been.
    pub(crate) fn all_of_lds(&self) -> bool {
        self.lds.any && self.lds.computed.is_empty()
    }

    /// A vector instruction, or a load from LDS wherever it goes, is left out.
    pub(crate) fn skips(&self, wave: usize, i: &Instr) -> bool {
        let Some(marks) = self.marks(wave) else { return false };
        let holds = |r: &u16| marks[usize::from(*r) % REGISTERS / 64] & 1 << (r % 64) != 0;
        match i.unit {
            Unit::Lds => !(i.store || i.atomic || i.exchanges) && self.all_of_lds() && !i.places.iter().any(holds),
            Unit::Matrix => true,
            _ => i.parts().all(|(reads, _)| reads.iter().any(holds)),
        }
    }

    /// A wave is about to execute an instruction with these active lanes, which touches these cache lines, or of LDS what `touched` says.
    pub fn follow<'t, 'i>(
        &mut self,
        wave: usize,
        i: &'i Instr,
        exec: u64,
        lines: &[u64],
        touched: impl FnOnce() -> &'t [LaneAccess],
    ) -> Flow {
        let w = self.waves[wave].get_or_insert(Wave { registers: [0; REGISTERS / 64], lanes: exec });
        let at = |r: u16| (usize::from(r) % REGISTERS / 64, 1 << (r % 64));
        let data = i.unit == Unit::Matrix || i.unit == Unit::Vmem && !i.store && !i.atomic;
        let in_lds = i.unit == Unit::Lds && !i.exchanges;
        if !self.any && !data {
            if in_lds && i.store {
                self.lds.write(false, touched);
            }
            return Flow::Runs;
        }
        if self.any && i.indirect {
            return Flow::Decides;
        }
        self.any = true;
        let holds = |r: &u16| w.registers[at(*r).0] & at(*r).1 != 0;
        let read = i.reads.iter().any(holds);
        if read {
            let chosen = |r: &u16| matches!(Reg(*r), Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0);
            if i.unit == Unit::Branch || i.places.iter().any(holds) || i.writes.iter().any(chosen) {
                return Flow::Decides;
            }
        }
        let loaded = match i.unit {
            // What an atomic instruction finds there may have been left out too.
            Unit::Lds if in_lds && i.atomic => {
                self.lds.write(true, touched);
                true
            }
            Unit::Lds if in_lds && i.store => {
                self.lds.write(read, touched);
                false
            }
            Unit::Lds => in_lds && self.lds.holds(touched),
            Unit::Vmem | Unit::Smem => !data && lines.iter().any(|l| self.memory.contains(l)),
            _ => false,
        };
        if read && i.unit == Unit::Vmem {
            self.memory.extend(lines);
        }
        if data && i.unit == Unit::Vmem && i.writes.is_empty() {
            self.lds.overwrite();
        }
        if !(data || loaded || read || i.writes.iter().any(holds)) {
            return Flow::Runs;
        }
        // Each half of a pair may compute with something else: data, or an address.
        let read = |(reads, writes): (&'i [u16], &'i [u16])| (writes, data || loaded || reads.iter().any(holds));
        let parts: SmallVec<[(&[u16], bool); 2]> = i.parts().map(read).collect();
        for (r, left_out) in parts.iter().flat_map(|(writes, left_out)| writes.iter().map(|r| (*r, *left_out))) {
            let (n, bit) = at(r);
            if left_out {
                w.registers[n] |= bit;
            } else if !Reg(r).is_vector() || exec == w.lanes && !i.partial {
                w.registers[n] &= !bit;
            }
        }
        let left_out = data || !i.atomic && parts.iter().all(|p| p.1);
        let scalar = matches!(i.unit, Unit::Salu | Unit::Smem | Unit::Branch | Unit::Internal);
        if left_out && !scalar { Flow::Skipped } else { Flow::Runs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, Target, parse};

    /// What becomes of the instructions of a wave of gfx942, which all touch line 1 or the third dword.
    fn flows(texts: &[&str]) -> Vec<Flow> {
        flows_on(Target::GFX942, texts)
    }

    fn flows_on(t: Target, texts: &[&str]) -> Vec<Flow> {
        let mut left_out = LeftOut::default();
        left_out.begin(1);
        let instr = |text: &&str| Instr::decoded(t, &parse(t, Mode::of(t), text).unwrap(), 64).unwrap();
        let dword = [LaneAccess { lane: 0, address: 8, bytes: 4 }];
        texts.iter().map(|text| left_out.follow(0, &instr(text), u64::MAX, &[1], || &dword)).collect()
    }

    const LOAD: &str = "global_load_dwordx4 v[4:7], v8, s[0:1]";
    const SUM: &str = "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]";

    #[test]
    fn data_may_go_to_memory() {
        let stored = [LOAD, SUM, "v_cvt_f16_f32 v9, v3", "global_store_short v8, v9, s[0:1]"];
        assert_eq!(flows(&stored), [Flow::Skipped; 4]);
        assert_eq!(flows(&[LOAD, "v_add_u32 v9, 4, v8", "global_store_dword v9, v8, s[0:1]"])[1..], [Flow::Runs; 2]);
        // Another value in the same register is an address again.
        let again = [SUM, "v_mov_b32 v9, v3", "v_mov_b32 v9, v8", "global_load_dword v2, v9, s[0:1]"];
        assert_eq!(flows(&again)[2..], [Flow::Runs, Flow::Skipped]);
        // What was loaded straight into LDS is data there, what was only computed is not.
        let read = ["ds_write_b32 v8, v9", "ds_read_b32 v9, v8", "global_load_dword v2, v9, s[0:1]"];
        assert_eq!(flows(&read), [Flow::Runs, Flow::Runs, Flow::Skipped]);
        // Also behind something else, and before that.
        let counted = [LOAD, "ds_write_b32 v8, v4", "ds_write_b32 v8, v9", "ds_read_b32 v9, v8"];
        assert_eq!(flows(&counted)[1..], [Flow::Skipped, Flow::Runs, Flow::Runs]);
        let written = ["ds_write_b32 v8, v9", LOAD, "ds_write_b32 v8, v4", "ds_read_b32 v9, v8"];
        assert_eq!(flows(&written)[2..], [Flow::Skipped; 2]);
        // Lanes exchange it without going anywhere.
        assert_eq!(flows(&[LOAD, "ds_swizzle_b32 v9, v4 offset:1"])[1], Flow::Skipped);
        let straight = ["global_load_lds_dword v8, s[0:1]", "ds_read_b32 v9, v8", "global_load_dword v2, v9, s[0:1]"];
        assert_eq!(flows(&straight), [Flow::Skipped, Flow::Skipped, Flow::Decides]);
    }

    #[test]
    fn counters_in_memory_tell_who_is_last() {
        let counted =
            [LOAD, "global_atomic_add v9, v8, v10, s[0:1] sc0", "v_cmp_eq_u32 vcc, v9, v10", "s_cbranch_vccz 4"];
        assert_eq!(flows(&counted)[1..], [Flow::Runs; 3]);
    }

    #[test]
    fn halves_compute_for_themselves() {
        let pair = "v_dual_add_f32 v5, v4, v4 :: v_dual_add_nc_u32 v2, v9, v2";
        let load = "global_load_b128 v[4:7], v8, s[0:1]";
        let at = |address: u32| format!("global_store_b32 v{address}, v4, s[0:1]");
        assert_eq!(flows_on(Target::GFX1100, &[load, pair, &at(2)])[1..], [Flow::Runs, Flow::Skipped]);
        assert_eq!(flows_on(Target::GFX1100, &[load, pair, &at(5)])[2], Flow::Decides);
        let both = "v_dual_add_f32 v5, v4, v4 :: v_dual_add_nc_u32 v2, v9, v6";
        assert_eq!(flows_on(Target::GFX1100, &[load, both])[1], Flow::Skipped);
    }

    #[test]
    fn data_may_not_say_where_to_go() {
        for data in [LOAD, SUM] {
            for last in ["global_load_dword v2, v3, s[0:1]", "ds_write_b32 v3, v8", "v_cmpx_lt_f32 vcc, v3, v8"] {
                let last = if data == LOAD { last.replace("v3", "v4") } else { last.into() };
                assert_eq!(flows(&[data, &last])[1], Flow::Decides, "{last}");
            }
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
