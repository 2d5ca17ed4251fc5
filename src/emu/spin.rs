//! Loops in which a wave waits for what others leave in memory.
//!
//! Such a loop looks at memory, and in the next round at the same place, leaves nothing there and meets nobody; what it finds decides when it ends.
//! It may count its rounds and end for that, too. A wave that jumps back in one has nothing to do but to let others
//! run. Where a loop is taken for another kind of loop, waiting takes longer; where another is taken for one, its wave
//! lets others run more often. Neither changes results.

use super::strict::facts::{Facts, facts};
use super::strict::registers::RegSet;
use barewave_isa::{Flags, Pipe, Raw, Reg, Regs, Target};

/// Instructions of such a loop at most.
pub const LONGEST: usize = 64;

/// If the instructions of a loop wait, from where it jumps back to up to the branch: the number of the branch by which a wave that has found what it waits for leaves.
pub fn leaves(target: Target, lanes: usize, body: &[Option<Raw>]) -> Option<usize> {
    if body.len() > LONGEST {
        return None;
    }
    let known = body.iter().map(|r| facts(target, r.as_ref()?.inst(), lanes));
    let known: Vec<Facts> = known.collect::<Option<_>>()?;
    let memory_alone =
        |f: &Facts| f.info.pipe != Pipe::Lds && (!f.info.flags.has(Flags::STORE) || is_atomic(f)) && !f.meets;
    if !known.iter().all(memory_alone) || moves_on(&known) {
        return None;
    }
    let told = told(&known);
    let last = body.len().checked_sub(1)?;
    if told[last] {
        return Some(last);
    }
    // It goes round until a branch leads out of it.
    let mut ends = Vec::with_capacity(body.len());
    for raw in body.iter().flatten() {
        ends.push(ends.last().map_or(0, |end| *end) + raw.len());
    }
    let out = |n: &usize| {
        let to = body[*n].as_ref().and_then(|r| r.branch_target(ends[*n] - r.len()));
        to.is_some_and(|to| !(0..ends[last] as i64).contains(&to))
    };
    (0..last).find(|n| told[*n] && known[*n].info.flags.has(Flags::BRANCH) && out(n))
}

fn is_atomic(f: &Facts) -> bool {
    f.info.flags.has(Flags::ATOMIC)
}

/// It finds what memory holds.
fn looks(f: &Facts) -> bool {
    matches!(f.info.pipe, Pipe::Vmem | Pipe::Smem) && (is_atomic(f) || f.info.flags.has(Flags::LOAD))
}

fn words(r: &Regs) -> Vec<(usize, u64)> {
    RegSet::words(*r).collect()
}

fn is_mask(r: &Regs) -> bool {
    matches!(r.first, Reg::EXEC_LO | Reg::EXEC_HI)
}

/// It reads one of some registers. Active lanes only say for whom vector instructions work.
fn reads(f: &Facts, some: &RegSet) -> bool {
    let by_mask = matches!(f.info.pipe, Pipe::Salu | Pipe::Branch);
    f.reads.iter().any(|r| (by_mask || !is_mask(r)) && some.meets(&words(r)))
}

/// Of each instruction of a loop, whether it reads what looks have found, or something made of that.
fn told(body: &[Facts]) -> Vec<bool> {
    let mut head = RegSet::default();
    loop {
        let mut now = head.clone();
        let mut told = Vec::with_capacity(body.len());
        for f in body {
            let read = reads(f, &now);
            for r in &f.writes {
                match read || looks(f) {
                    true => now.insert(*r),
                    // Lanes that are not active keep what they have.
                    false if !r.first.is_vector() => now.remove(*r),
                    false => {}
                }
            }
            told.push(read);
        }
        if !head.join(&now) {
            return told;
        }
    }
}

/// A look is elsewhere in the next round, or an atomic has another value: that is progress.
fn moves_on(body: &[Facts]) -> bool {
    let mut all = RegSet::default();
    body.iter().flat_map(|f| &f.writes).for_each(|r| all.insert(*r));
    // Read before they are written, and found, and what is made of these.
    let (mut written, mut other) = (RegSet::default(), RegSet::default());
    for f in body {
        let brought = |r: &&Regs| all.meets(&words(r)) && !written.meets(&words(r));
        f.reads.iter().filter(brought).for_each(|r| other.insert(*r));
        f.writes.iter().for_each(|r| written.insert(*r));
    }
    let mut before = RegSet::default();
    while before.join(&other) {
        for f in body.iter().filter(|f| looks(f) || reads(f, &before)) {
            f.writes.iter().for_each(|r| other.insert(*r));
        }
    }
    body.iter().filter(|f| looks(f)).any(|f| {
        let places = f.inst.srcs.iter().enumerate().filter(|(n, _)| f.data >> n & 1 == 0);
        let places = places.filter_map(|(_, o)| o.regs());
        let asks: Vec<Regs> = if is_atomic(f) { f.reads.clone() } else { places.collect() };
        asks.iter().any(|r| !is_mask(r) && other.meets(&words(r)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, parse};

    fn leaves_by(name: &str, text: &str) -> Option<usize> {
        let target = Target::parse(name).unwrap();
        let body: Vec<_> = text.lines().map(|l| Some(parse(target, Mode::of(target), l.trim()).unwrap())).collect();
        leaves(target, target.info().wave_size as usize, &body)
    }

    fn of(name: &str, text: &str) -> bool {
        leaves_by(name, text).is_some()
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

    const LOOK: &str = "global_load_dword v2, v1, s[8:9] glc
        s_waitcnt vmcnt(0)";

    #[test]
    fn they_may_count_their_rounds() {
        let counts =
            |end: &str| leaves_by("gfx906", &format!("{LOOK}\nv_cmp_eq_u32 vcc, 0, v2\ns_add_u32 s5, s5, 1\n{end}"));
        assert_eq!(counts("s_cbranch_vccnz -6"), Some(4));
        // Found it leaves in the middle, and in vain at the end.
        let both = "s_or_b64 s[2:3], vcc, vcc\ns_cbranch_scc0 4\ns_sleep 1\ns_cmp_lt_u32 s5, s6\ns_cbranch_scc1 -10";
        assert_eq!(counts(both), Some(5));
        // It ends by the count alone.
        assert_eq!(counts("s_cmp_lt_u32 s5, s6\ns_cbranch_scc1 -8"), None);
    }

    #[test]
    fn loops_that_go_on_or_store_do_not() {
        for more in ["v_add_u32 v1, 4, v1", "global_store_dword v1, v2, s[8:9]", "ds_write_b32 v1, v2", "s_barrier"] {
            assert!(!of("gfx906", &format!("{LOOK}\n{more}\nv_cmp_eq_u32 vcc, 0, v2\ns_cbranch_vccnz -6")), "{more}");
        }
        assert!(!of("gfx906", "v_cmp_eq_u32 vcc, 0, v2\ns_cbranch_vccnz -2"));
    }
}
