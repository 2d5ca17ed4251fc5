//! The decode index: from the first dword to the few rows that may match, and what to look at in each.
//!
//! Level one takes the top nine bits of the first dword and leads to a bucket; the bucket names the bits that best tell
//! its rows apart and holds a dense table of short row lists. Of each row the decoder needs a [`Probe`]: the fixed bits
//! of its first eight bytes and up to six fields whose values can make the bits no instruction or announce a literal.
//! A field's value picks a verdict from a table of 512 bytes. The verdicts of the first three are joined without a
//! branch; few rows have more, or fields beyond the first eight bytes.

use super::{
    DPP8, FAKE16, Kind, OWN_LITERAL, Operand, Over, Role, Row, Style, TARGETS, TRUE16, WAVE32, WAVE64, reads_literal,
    word,
};
use crate::model::codes::Codes;
use crate::model::valid::Need;
use crate::{Op, Target};
use smallvec::SmallVec;
use std::collections::HashMap;

/// Verdict on a field's value: no operand has this code.
pub(crate) const NONE: u8 = 1;
/// Verdict: this is DPP or SDWA, another row.
pub(crate) const OVERLAY: u8 = 8;
/// Verdict: a literal of four bytes follows.
pub(crate) const WORD: u8 = 2;
/// Verdict: a literal of eight bytes follows.
pub(crate) const LONG: u8 = 4;
/// Verdict: a tuple that leaves its file, which is no operand when it is of AGPRs.
pub(crate) const LAST: u8 = 16;

/// What decoding looks at in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// Fixed bits of the first eight bytes, and which bits are fixed.
    pub fixed: u64,
    pub mask: u64,
    /// Where the verdict tables of the fields begin.
    table: [u16; 6],
    /// First bits of the fields.
    at: [u8; 6],
    pub op: Op,
    pub shape: u16,
    /// Variant bits of the row that a mode may reject, and [`ODD`].
    pub variant: u8,
    /// Bytes without a literal.
    pub bytes: u8,
}

/// Variant bit of a probe: not all that counts is in it (fixed bits beyond the eighth byte, a DPP8 code, the
/// operands of SDWA, more than three fields or one beyond the eighth byte), or the row is not as long as its bucket says.
pub(crate) const ODD: u16 = 128;

/// The decode index of a target.
pub(crate) struct Index {
    buckets: Box<[Bucket; 512]>,
    slots: Vec<Slot>,
    lists: Vec<u16>,
    pub probes: Vec<Probe>,
    /// Verdicts by value of a field, a table for each kind of field; the first table has none.
    verdicts: Box<[u8; 1 << 16]>,
}

/// Which bits of the first dword pick a slot: at most two runs.
#[derive(Clone, Copy, Default)]
struct Bucket {
    first: u32,
    masks: [u32; 2],
    shifts: [u8; 2],
    /// Length of most of its rows in bytes.
    bytes: u8,
}

impl Bucket {
    /// The bits, one run behind the other; the second is moved from 16 bits further up, so that it can only go down.
    #[inline]
    fn key(&self, w0: u32) -> u32 {
        let upper = u64::from(w0 & self.masks[1]) << 16 >> (self.shifts[1] & 63);
        (w0 & self.masks[0]) >> (self.shifts[0] & 31) | upper as u32
    }
}

/// Rows that agree in the bits that pick the slot: the first, and the others in `lists`.
#[derive(Clone, Copy)]
struct Slot {
    first: u16,
    others: u16,
    at: u32,
}

/// Bits of the first dword below those that pick the bucket.
const BELOW: usize = 23;

/// What no row's number reaches: the end of a slot's rows.
const NO_ROW: u16 = u16::MAX;

impl Index {
    /// The index over a target's rows; `wave64`: masks take two registers.
    pub fn new(target: usize, rows: &[Row], wave64: bool) -> Index {
        let mut index = Index {
            buckets: Box::new([Bucket::default(); 512]),
            slots: Vec::new(),
            lists: Vec::new(),
            probes: Vec::with_capacity(rows.len()),
            verdicts: no_verdicts(),
        };
        index.probe_all(target, rows, wave64);
        index.fill(rows);
        index
    }

    fn probe_all(&mut self, target: usize, rows: &[Row], wave64: bool) {
        let mut known = Vec::new();
        // Rows of one shape, variant and length look at the same fields.
        let mut alike: HashMap<(u16, u16, u8), SmallVec<[(u8, u8, u16); 8]>> = HashMap::new();
        for row in rows {
            let looks = alike
                .entry((row.shape, row.variant, row.bytes))
                .or_insert_with(|| self.looks(target, row, wave64, &mut known));
            let mut probe = Probe {
                fixed: row.fixed as u64,
                mask: row.mask as u64,
                table: [0; 6],
                at: [0; 6],
                op: row.op,
                shape: row.shape,
                variant: row.variant as u8 & (FAKE16 | TRUE16 | WAVE32 | WAVE64) as u8,
                bytes: row.bytes,
            };
            let more = looks.len() > 3 || looks.iter().any(|l| l.0 > 63);
            let deep = row.mask >> 64 != 0 || row.variant & DPP8 != 0 || row.shape().over == Over::Sdwa;
            if deep || more || row.bytes > 16 {
                probe.variant |= ODD as u8;
            }
            // a test proves that six suffice
            for ((at, table), look) in probe.at.iter_mut().zip(&mut probe.table).zip(looks.iter()) {
                (*at, *table) = (look.0, look.2);
            }
            self.probes.push(probe);
        }
    }

    /// The fields of a row that decoding looks at: first bit, bits and where the verdicts begin.
    fn looks(
        &mut self,
        target: usize,
        row: &Row,
        wave64: bool,
        known: &mut Vec<(Reason, bool)>,
    ) -> SmallVec<[(u8, u8, u16); 8]> {
        let info = &TARGETS[target.min(TARGETS.len() - 1)];
        let codes = Target::of(target as u8).codes();
        let mask_dwords = if wave64 { 2 } else { 1 };
        let shape = row.shape();
        let own = row.variant & OWN_LITERAL != 0;
        let mut out = SmallVec::new();
        for o in shape.operands {
            let source = reads_literal(shape, o, info.vop3_literal);
            let dpp = matches!(shape.over, Over::Dpp | Over::Dpp8);
            let narrow = dpp || own && shape.operands.iter().all(|k| k.style != Style::K64);
            let need = Need::of(o, source || own && o.role == Role::Src, narrow, row.variant, mask_dwords);
            let Some(&(lo, len, _)) = o.segs.first() else { continue };
            // a literal that is part of the encoding serves the sources too
            let overlaid = overlaid(row, o);
            let either = matches!(o.kind, Kind::VgprAcc | Kind::SrcVgprAcc | Kind::SrcAcc);
            // sources whose length a format decides count at their longest
            let longest = shape.has(word::F8F6F4) && matches!(o.name, "src0" | "src1");
            let tuple = if longest { 8 } else { o.bits.div_ceil(32).max(1) as u8 };
            let tuple = if either { tuple } else { 1 };
            let reason = Reason { need, source, overlaid, literal: source && !own, tuple, bits: len.min(9) };
            let n = known.iter().position(|k| k.0 == reason).unwrap_or_else(|| {
                let verdicts = reason.verdicts(codes);
                known.push((reason, verdicts.iter().any(|v| *v != 0)));
                if let Some(to) = self.verdicts.get_mut(known.len() * 512..(known.len() + 1) * 512) {
                    to.copy_from_slice(&verdicts);
                }
                known.len() - 1
            });
            // a table that lets everything pass needs no look
            if known[n].1 {
                out.push((lo, len, ((n + 1) * 512) as u16));
            }
        }
        out
    }

    fn fill(&mut self, rows: &[Row]) {
        let mut members: Vec<Vec<u16>> = vec![Vec::new(); 512];
        for (i, r) in rows.iter().enumerate() {
            let m = ((r.mask >> 23) & 0x1ff) as usize;
            let f = ((r.fixed >> 23) & 0x1ff) as usize;
            let free = !m & 0x1ff;
            // every value of the nine bits that agrees with the row
            let mut sub = 0;
            loop {
                members[(f & m) | sub].push(i as u16);
                sub = sub.wrapping_sub(free) & free;
                if sub == 0 {
                    break;
                }
            }
        }
        for (b, list) in members.iter().enumerate() {
            let bucket = &mut self.buckets[b];
            // choose the bits below the nine: those that most rows fix and that differ between rows, at most 12, in at most two runs
            let mut votes = [0u32; BELOW];
            let mut values = [0u32; 2];
            for &i in list {
                let r = &rows[usize::from(i)];
                let (fixed, mask) = (r.fixed as u32, r.mask as u32);
                values[0] |= mask & !fixed;
                values[1] |= mask & fixed;
                votes.iter_mut().enumerate().for_each(|(bit, votes)| *votes += mask >> bit & 1);
            }
            let differs = values[0] & values[1];
            let useful = |k: usize| k < BELOW && differs >> k & 1 == 1 && votes[k] as usize * 4 >= list.len();
            let mut runs: Vec<(u8, u8)> = Vec::new();
            let mut k = 0;
            while k < BELOW {
                if useful(k) {
                    let s = k;
                    while useful(k) {
                        k += 1;
                    }
                    runs.push((s as u8, (k - s) as u8));
                } else {
                    k += 1;
                }
            }
            runs.sort_by_key(|r| std::cmp::Reverse(r.1));
            runs.truncate(2);
            let mut total = 0;
            for (n, &(s, w)) in runs.iter().enumerate() {
                let w = w.min(11 - total);
                bucket.masks[n] = ((1 << w) - 1) << s;
                bucket.shifts[n] = if n == 0 { s } else { 16 + s - total };
                total += w;
            }
            let sizes = list.iter().map(|&i| rows[usize::from(i)].bytes);
            bucket.bytes =
                [4, 8, 12, 16].into_iter().max_by_key(|n| sizes.clone().filter(|s| s == n).count()).unwrap_or(4);
            for &i in list {
                if rows[usize::from(i)].bytes != bucket.bytes {
                    self.probes[usize::from(i)].variant |= ODD as u8;
                }
            }
            bucket.first = self.slots.len() as u32;
            // every slot that agrees with a row's fixed bits holds it
            let mut slots: Vec<Vec<u16>> = vec![Vec::new(); 1 << total];
            for &i in list {
                let r = &rows[usize::from(i)];
                let (fixed, free) = (bucket.key((r.fixed & r.mask) as u32), bucket.key(!r.mask as u32));
                let mut sub = 0;
                loop {
                    slots[(fixed | sub) as usize].push(i);
                    sub = sub.wrapping_sub(free) & free;
                    if sub == 0 {
                        break;
                    }
                }
            }
            for mut here in slots {
                // the most specific row wins; what is laid over a row comes after it, because most code is plain
                here.sort_by_key(|&i| {
                    let r = &rows[usize::from(i)];
                    let over = r.shape().over != Over::None && r.bytes == 8;
                    let told = r.shape().operands.iter().any(|o| overlaid(r, o));
                    let counted = if over { r.mask & (0xffff_ffff ^ 0x1ff) } else { r.mask };
                    let turn = if told { 0 } else { 2 - u8::from(over) };
                    (std::cmp::Reverse(counted.count_ones()), turn, std::cmp::Reverse(r.mask.count_ones()), i)
                });
                let (first, others) = here.split_first().map_or((NO_ROW, &[][..]), |(f, o)| (*f, o));
                self.slots.push(Slot { first, others: others.len() as u16, at: self.lists.len() as u32 });
                self.lists.extend(others);
            }
        }
    }

    /// The first row that may match a first dword, and how long most rows like it are. Taking the length from here and
    /// not from the row lets the processor begin the next instruction before it has found this one.
    #[inline]
    pub fn first(&self, w0: u32) -> Option<(u16, &Probe, u8)> {
        let bucket = &self.buckets[(w0 >> 23) as usize];
        let slot = self.slots.get((bucket.first + bucket.key(w0)) as usize)?;
        Some((slot.first, self.probes.get(usize::from(slot.first))?, bucket.bytes))
    }

    /// All rows that may match a first dword, most specific first.
    pub fn candidates(&self, w0: u32) -> impl Iterator<Item = (u16, &Probe)> {
        let bucket = &self.buckets[(w0 >> 23) as usize];
        let slot = self.slots.get((bucket.first + bucket.key(w0)) as usize);
        let others = slot.and_then(|s| self.lists.get(s.at as usize..s.at as usize + usize::from(s.others)));
        let rows = slot.map(|s| s.first).into_iter().chain(others.into_iter().flatten().copied());
        rows.filter_map(|i| Some((i, self.probes.get(usize::from(i))?)))
    }

    /// The joined verdicts on the first three fields of a row.
    #[inline]
    pub fn verdict(&self, probe: &Probe, bits: u64) -> u8 {
        let look = |n: usize| {
            let value = (bits >> (probe.at[n] & 63)) as u16 & 511;
            self.verdicts[usize::from(probe.table[n] | value)]
        };
        look(0) | look(1) | look(2)
    }

    /// The joined verdicts on all fields of a row.
    pub fn verdicts(&self, probe: &Probe, bits: u128) -> u8 {
        probe
            .at
            .iter()
            .zip(probe.table)
            .fold(0, |all, (&at, table)| all | self.verdicts[usize::from(table | (bits >> at) as u16 & 511)])
    }
}

fn no_verdicts() -> Box<[u8; 1 << 16]> {
    vec![0; 1 << 16].try_into().unwrap_or_else(|_| Box::new([0; 1 << 16]))
}

/// True for the source whose code says that DPP or SDWA is laid over the encoding.
fn overlaid(row: &Row, o: &Operand) -> bool {
    row.bytes == 4 && row.shape().vector && matches!(o.segs, [(0, 9, _), ..])
}

/// What verdicts on a field depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Reason {
    need: Option<Need>,
    /// A source that codes of literals and overlays stand for elsewhere.
    source: bool,
    /// [`overlaid`]
    overlaid: bool,
    /// A literal may follow.
    literal: bool,
    /// Registers of a tuple of VGPRs or AGPRs.
    tuple: u8,
    bits: u8,
}

impl Reason {
    /// The verdicts by value; whatever lies above the field does not count.
    fn verdicts(&self, codes: Codes) -> [u8; 512] {
        let map = self.need.map(|n| n.map(codes));
        let mut out = [0; 512];
        for (v, verdict) in out.iter_mut().enumerate() {
            let v = v & ((1 << self.bits) - 1);
            *verdict = match v {
                233 | 234 | 249 | 250 if self.overlaid => OVERLAY,
                _ if map.is_some_and(|m| m[v / 64] >> (v % 64) & 1 == 0) => NONE,
                249 | 250 if self.source => NONE,
                255 if self.literal => WORD,
                254 if self.literal && codes.has_long_literals() => LONG,
                _ if (self.bits == 8 || v & 256 != 0) && (v & 255) + usize::from(self.tuple) > 256 => LAST,
                _ => 0,
            };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_looks_suffice_and_the_verdicts_have_room() {
        for target in Target::all() {
            let rows = &super::super::table(target).rows;
            let mut index = Index {
                buckets: Box::new([Bucket::default(); 512]),
                slots: vec![],
                lists: vec![],
                probes: vec![],
                verdicts: no_verdicts(),
            };
            let mut known = Vec::new();
            for row in rows {
                let looks = index.looks(target.index(), row, true, &mut known);
                assert!(looks.len() <= 6, "{target} {}: {looks:?}", row.mnemonic());
                let crosses = looks.iter().any(|(lo, len, _)| *lo < 64 && lo + len > 64);
                assert!(!crosses, "{target} {}: {looks:?}", row.mnemonic());
            }
            assert!(known.len() < 128, "{target}: {} verdict tables", known.len());
        }
    }
}
