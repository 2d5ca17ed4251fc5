//! Stretches of code that waves go through at once while they are recorded.
//!
//! Between loads, stores and branches a wave whose data is left out ([`left_out`](crate::left_out)) executes scalar instructions alone. What becomes
//! of the others follows from which registers hold something that was left out. A wave that comes to the same instruction with the
//! same registers, in another round of a loop or in another workgroup, need not be asked instruction by instruction.

use crate::instr::{Instr, Unit};
use crate::left_out::{LeftOut, Marks};
use crate::record::Step;
use barewave_isa::Reg;
use rustc_hash::FxHashMap;

/// Instructions behind each other of which nothing but scalar ones is executed, and none goes to memory or elsewhere in the code.
pub(crate) struct Stretch {
    first: usize,
    /// What is recorded of them.
    pub(crate) steps: Vec<Step>,
    /// Active lanes, and where results that were left out had got to before the first one and behind the last one.
    exec: u64,
    before: Marks,
    after: Marks,
    /// It loads from LDS, where everything stands for something that was left out.
    loads: bool,
}

impl Stretch {
    /// One without instructions, of a wave with these active lanes; nothing where nothing was left out yet.
    pub(crate) fn at(first: usize, wave: usize, exec: u64, left_out: &LeftOut) -> Option<Stretch> {
        let before = *left_out.marks(wave)?;
        Some(Stretch { first, steps: Vec::new(), exec, before, after: before, loads: false })
    }

    /// Numbers of its instructions in the program.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.steps.len()
    }

    /// Follows the wave through one more instruction with a number among those that were met, unless something of it has to be seen ([`passes`]).
    pub(crate) fn add(&mut self, instr: u32, i: &Instr, wave: usize, conflicts: bool, left_out: &mut LeftOut) -> bool {
        let passes = passes(i, wave, conflicts, left_out);
        if passes {
            left_out.follow(wave, i, self.exec, &[], || &[]);
            self.loads |= i.unit == Unit::Lds;
            self.steps.push(Step { instr, access: None, jumped: false });
        }
        passes
    }
}

/// Nothing of an instruction that a wave is at has to be seen: also not its conflicts in LDS, where these are asked for.
pub(crate) fn passes(i: &Instr, wave: usize, conflicts: bool, left_out: &LeftOut) -> bool {
    let masks = |r: &u16| matches!(Reg(*r), Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0);
    match i.unit {
        Unit::Smem | Unit::Vmem | Unit::Export => false,
        _ if i.indirect || i.meeting.is_some() || i.writes.iter().any(masks) => false,
        Unit::Salu | Unit::Internal => true,
        Unit::Branch => i.hint,
        Unit::Valu | Unit::Trans | Unit::Matrix => left_out.skips(wave, i),
        Unit::Lds => !conflicts && left_out.skips(wave, i),
    }
}

/// The latest stretch that begins at each of the program's instructions.
#[derive(Default)]
pub(crate) struct Stretches {
    known: FxHashMap<usize, Stretch>,
}

impl Stretches {
    /// The stretch that begins there.
    pub(crate) fn at(&self, first: usize) -> Option<&Stretch> {
        self.known.get(&first)
    }

    /// What is known of the stretch that begins there holds for a wave with these active lanes; what was left out is followed through it then.
    pub(crate) fn pass(&self, first: usize, wave: usize, exec: u64, left_out: &mut LeftOut) -> bool {
        let same = |s: &&Stretch| {
            s.exec == exec && left_out.marks(wave) == Some(&s.before) && (!s.loads || left_out.all_of_lds())
        };
        let known = self.at(first).filter(same);
        known.inspect(|s| left_out.mark(wave, &s.after)).is_some()
    }

    /// Keeps one that the wave has been followed through.
    pub(crate) fn keep(&mut self, mut s: Stretch, wave: usize, left_out: &LeftOut) {
        if let Some(after) = left_out.marks(wave) {
            s.after = *after;
            self.known.insert(s.first, s);
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, Target, parse};

    #[test]
    fn a_stretch_holds_for_the_same_registers() {
        let t = Target::GFX942;
        let texts =
            ["s_add_u32 s4, s4, s5", "ds_read_b32 v9, v8", "v_fma_f32 v1, v9, v2, v3", "s_nop 0", "v_mov_b32 v10, v2"];
        let instrs = texts.map(|text| Instr::decoded(t, &parse(t, Mode::of(t), text).unwrap(), 64).unwrap());
        let load = Instr::decoded(t, &parse(t, Mode::of(t), "global_load_dword v4, v8, s[0:1]").unwrap(), 64).unwrap();
        let straight = parse(t, Mode::of(t), "global_load_lds_dword v8, s[0:1]").unwrap();
        let mut left_out = LeftOut::default();
        left_out.begin(3);
        assert!(Stretch::at(7, 0, u64::MAX, &left_out).is_none(), "nothing was left out");
        for wave in 0..3 {
            left_out.follow(wave, &load, u64::MAX, &[1], || &[]);
            left_out.follow(wave, &Instr::decoded(t, &straight, 64).unwrap(), u64::MAX, &[1], || &[]);
        }
        let through = |conflicts: bool, left_out: &mut LeftOut| {
            let mut s = Stretch::at(7, 0, u64::MAX, left_out).unwrap();
            let adds =
                instrs.iter().enumerate().take_while(|(n, i)| s.add(*n as u32, i, 0, conflicts, left_out)).count();
            (s, adds)
        };
        // What LDS takes is seen, and what is made of nothing that was left out is executed.
        assert_eq!(through(true, &mut left_out).1, 1);
        let (stretch, adds) = through(false, &mut left_out);
        assert_eq!((adds, stretch.range()), (4, 7..11));
        let mut known = Stretches::default();
        known.keep(stretch, 0, &left_out);
        let sum = |left_out: &LeftOut, wave: usize| left_out.skips(wave, &instrs[2]);
        assert!(!sum(&left_out, 1));
        assert!(known.pass(7, 1, u64::MAX, &mut left_out) && sum(&left_out, 1));
        // Other lanes, other registers, another place.
        assert!(!known.pass(7, 2, 1, &mut left_out));
        assert!(!known.pass(7, 1, u64::MAX, &mut left_out));
        assert!(!known.pass(8, 2, u64::MAX, &mut left_out));
    }
}
