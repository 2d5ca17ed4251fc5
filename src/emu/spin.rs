//! Loops in which a wave waits for what others leave in memory.
//!
//! Such a loop looks at memory, leaves nothing there and computes nothing from one round to the next: each round does
//! what the one before did until memory has changed. A wave that jumps back in one has nothing to do but to let others
//! run. Where a loop is taken for another kind of loop, waiting takes longer; where another is taken for one, its wave
//! lets others run more often. Neither changes results.

use super::strict::facts::{Facts, facts};
use super::strict::registers::RegSet;
use barewave_isa::{Flags, Pipe, Raw, Reg, Regs, Target};

/// Instructions of such a loop at most.
pub const LONGEST: usize = 64;

/// Whether the instructions of a loop wait, from where it jumps back to up to the branch.
pub fn waits(target: Target, lanes: usize, body: &[Option<Raw>]) -> bool {
    body.len() <= LONGEST && only_looks(target, body) && carries_nothing(target, lanes, body)
}

/// It looks at memory and changes none.
fn only_looks(target: Target, body: &[Option<Raw>]) -> bool {
    let mut looks = false;
    for raw in body {
        let Some(info) = raw.as_ref().and_then(|r| target.op(r.op())) else { return false };
        let memory = matches!(info.pipe, Pipe::Vmem | Pipe::Smem);
        let atomic = info.flags.has(Flags::ATOMIC);
        if info.pipe == Pipe::Lds || info.flags.has(Flags::STORE) && !atomic {
            return false;
        }
        looks |= memory && (atomic || info.flags.has(Flags::LOAD));
    }
    looks
}

/// No register that a round reads has been written by the round before, but for masks of lanes that are done.
fn carries_nothing(target: Target, lanes: usize, body: &[Option<Raw>]) -> bool {
    let known: Option<Vec<Facts>> =
        body.iter().map(|r| r.as_ref().and_then(|r| facts(target, r.inst(), lanes))).collect();
    let Some(known) = known else { return false };
    let words = |r: &Regs| RegSet::words(*r).collect::<Vec<_>>();
    let of_exec = |r: &&Regs| !matches!(r.first, Reg::EXEC_LO | Reg::EXEC_HI);
    let (mut written, mut brought) = (RegSet::default(), RegSet::default());
    for f in &known {
        f.reads.iter().filter(of_exec).filter(|r| !written.meets(&words(r))).for_each(|r| brought.insert(*r));
        f.writes.iter().for_each(|r| written.insert(*r));
    }
    let mask = |f: &Facts| f.logic.is_some_and(|l| l.kind != '=');
    known.iter().filter(|f| !mask(f)).all(|f| !f.writes.iter().filter(of_exec).any(|r| brought.meets(&words(r))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, parse};

    fn of(name: &str, text: &str) -> bool {
        let target = Target::parse(name).unwrap();
        let body: Vec<_> = text.lines().map(|l| Some(parse(target, Mode::of(target), l.trim()).unwrap())).collect();
        waits(target, target.info().wave_size as usize, &body)
    }

    #[test]
    fn loops_that_look_at_memory_wait() {
        assert!(of(
            "gfx906",
            "global_load_dword v2, v1, s[8:9] glc
            s_waitcnt vmcnt(0)
            v_cmp_eq_u32 vcc, 0, v2
            s_cbranch_vccnz -5"
        ));
        // Lanes leave one by one.
        assert!(of(
            "gfx906",
            "global_load_dword v2, v1, s[8:9] glc
            s_waitcnt vmcnt(0)
            v_cmp_ne_u32 vcc, 0, v2
            s_or_b64 s[2:3], vcc, s[2:3]
            s_andn2_b64 exec, exec, s[2:3]
            s_cbranch_execnz -8"
        ));
        assert!(of(
            "gfx1100",
            "s_load_b32 s4, s[8:9], 0x0 glc
            s_waitcnt lgkmcnt(0)
            s_cmp_eq_u32 s4, 0
            s_cbranch_scc1 -5"
        ));
    }

    #[test]
    fn loops_that_count_or_store_do_not() {
        for more in
            ["v_add_u32 v1, 4, v1", "s_add_u32 s5, s5, 1", "v_add_f32 v3, v3, v2", "global_store_dword v1, v2, s[8:9]"]
        {
            assert!(!of(
                "gfx906",
                &format!(
                    "global_load_dword v2, v1, s[8:9] glc
                    s_waitcnt vmcnt(0)
                    {more}
                    v_cmp_eq_u32 vcc, 0, v2
                    s_cbranch_vccnz -6"
                )
            ));
        }
        assert!(!of("gfx906", "v_cmp_eq_u32 vcc, 0, v2\ns_cbranch_vccnz -2"));
    }
}
