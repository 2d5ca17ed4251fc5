//! Who tells how often a loop goes round.
//!
//! Rounds that are left out execute their scalar instructions alone. That is right where these alone decide when the loop ends: the branches
//! that lead back and out of it, what they ask, and what that is made of, followed backward through a round until nothing is added. A branch to a
//! place further on in the round counts only where it passes over something of that; else it goes, in rounds that are left out, the
//! way it went in the last recorded one.

use crate::instr::{Instr, Unit};
use rustc_hash::{FxHashMap, FxHashSet};

/// An instruction of a loop with its address; none that was never met.
pub(crate) type Known<'i> = Option<(u64, &'i Instr)>;

/// Bytes of a branch.
const BRANCH: u64 = 4;

/// Vector instructions, or loads, tell how often a loop goes round: of its code, and of the instructions of a round in order.
pub(crate) fn need_vectors(code: &[Known], round: &[(u64, &Instr)]) -> bool {
    let Some(end) = code.iter().flatten().map(|k| k.0).max() else { return true };
    let further = |address: u64, i: &Instr| {
        let to = address.wrapping_add(BRANCH).wrapping_add_signed(i.jump?);
        (address + 1..=end).contains(&to).then_some(to)
    };
    // What is asked in front of each place in the round, and where branches inside of it lead to.
    let mut asked: FxHashSet<u16> = FxHashSet::default();
    let mut places: FxHashMap<u64, FxHashSet<u16>> =
        round.iter().filter_map(|(address, i)| Some((further(*address, i)?, FxHashSet::default()))).collect();
    loop {
        let before = (asked.clone(), places.clone());
        let mut next = round.first().map(|first| first.0);
        for (address, i) in round.iter().rev() {
            if let Some(place) = next.and_then(|n| places.get_mut(&n)) {
                place.extend(&asked);
            }
            next = Some(*address);
            if i.unit == Unit::Branch {
                let passes_over = |to: u64, there: &FxHashSet<u16>| {
                    code.iter().any(|k| match k {
                        Some((at, i)) => (*address + 1..to).contains(at) && i.writes.iter().any(|r| there.contains(r)),
                        None => true,
                    })
                };
                match further(*address, i).and_then(|to| Some((to, places.get(&to)?))) {
                    Some((to, there)) if !passes_over(to, there) => asked.extend(there),
                    _ if i.jump.is_none() => return true,
                    other => {
                        asked.extend(other.into_iter().flat_map(|o| o.1));
                        asked.extend(&i.reads);
                    }
                }
            }
            if i.writes.iter().any(|r| asked.contains(r)) {
                if i.unit != Unit::Salu {
                    return true;
                }
                i.writes.iter().for_each(|r| _ = asked.remove(r));
                asked.extend(&i.reads);
            }
        }
        if before == (asked.clone(), places.clone()) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, Target, parse};

    /// Of a loop that executes its instructions one after the other, but for those that are passed over.
    fn need(texts: &[&str], passed: &[usize]) -> bool {
        let t = Target::GFX90A;
        let instr = |text: &&str| Instr::new(t, &parse(t, Mode::of(t), text).unwrap().inst(), 64).unwrap();
        let instrs: Vec<Instr> = texts.iter().map(instr).collect();
        let at = |n: usize| 4 * n as u64;
        let code: Vec<Known> = instrs.iter().enumerate().map(|(n, i)| Some((at(n), i))).collect();
        let round: Vec<(u64, &Instr)> =
            instrs.iter().enumerate().filter(|(n, _)| !passed.contains(n)).map(|(n, i)| (at(n), i)).collect();
        need_vectors(&code, &round)
    }

    const COUNTS: [&str; 3] = ["s_add_u32 s4, s4, 1", "s_cmp_lt_u32 s4, s5", "s_cbranch_scc1 65530"];

    #[test]
    fn a_count_needs_none() {
        assert!(!need(&[&["v_cmp_lt_f32 s[6:7], v0, v1", "v_cmp_lt_f32 vcc, v0, v1"], &COUNTS[..]].concat(), &[]));
    }

    #[test]
    fn what_vectors_compare_ends_a_loop() {
        assert!(need(&["v_cmp_lt_f32 vcc, v0, v1", "s_cbranch_vccnz 65530"], &[]));
        assert!(need(&["v_cmp_lt_f32 s[6:7], v0, v1", "s_cmp_lg_u64 s[6:7], 0", "s_cbranch_scc1 65530"], &[]));
        // A count that a lane tells, and one of an earlier round.
        assert!(need(&[&["v_readfirstlane_b32 s5, v0"], &COUNTS[..]].concat(), &[]));
        assert!(need(&[&COUNTS[..2], &["v_readfirstlane_b32 s5, v0", "s_cbranch_scc1 65530"]].concat(), &[]));
        // A way out in the middle.
        let out = ["v_cmp_lt_f32 s[6:7], v0, v1", "s_cmp_lg_u64 s[6:7], 0", "s_cbranch_scc1 40"];
        assert!(need(&[&out, &COUNTS[..]].concat(), &[]));
        assert!(need(&[&["s_load_dword s5, s[2:3], 0x0"], &COUNTS[..]].concat(), &[]));
    }

    #[test]
    fn a_way_round_vectors_does_not_end_a_loop() {
        let choose = |passed: &'static str| {
            let over = ["v_cmp_lt_f32 s[6:7], v0, v1", "s_cmp_lg_u64 s[6:7], 0", "s_cbranch_scc1 1", passed];
            [&over, &COUNTS[..]].concat()
        };
        for passed in [&[][..], &[3]] {
            assert!(!need(&choose("v_mul_f32 v0, v0, v1"), passed));
            assert!(!need(&choose("s_add_u32 s9, s9, 1"), passed));
            // But round the count.
            assert!(need(&choose("s_add_u32 s4, s4, 1"), passed));
            assert!(need(&choose("s_mov_b32 s5, 1"), passed));
        }
    }
}
