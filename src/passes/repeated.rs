//! Instructions that stand in a function several times: unrolled loops repeat most of theirs, with the same registers.

use crate::mir::{MInst, Opnd};

/// Places for instructions, as a power of two.
const PLACES: u32 = 10;

/// The instructions of a function that were seen, the last of those that share a place.
pub(super) struct Repeated<'a> {
    seen: Vec<Option<(&'a MInst, usize)>>,
}

impl<'a> Repeated<'a> {
    /// None was seen.
    pub fn new() -> Repeated<'a> {
        Repeated { seen: vec![None; 1 << PLACES] }
    }

    /// The number of an instruction with the same operation, operands and modifiers. Where there is none this one is seen, as number `new`.
    pub fn find(&mut self, inst: &'a MInst, new: usize) -> Option<usize> {
        let place = &mut self.seen[place_of(inst)];
        let same = |i: &MInst| {
            i.code == inst.code
                && i.dsts.as_slice() == inst.dsts.as_slice()
                && i.srcs.as_slice() == inst.srcs.as_slice()
                && i.mods == inst.mods
        };
        match place {
            Some((i, number)) if same(i) => Some(*number),
            _ => {
                *place = Some((inst, new));
                None
            }
        }
    }
}

/// Where an instruction of physical registers is looked for.
fn place_of(inst: &MInst) -> usize {
    let mut mixed = inst.op().map_or(0, |op| u64::from(op.0));
    for list in [inst.dsts.as_slice(), inst.srcs.as_slice()] {
        for o in list {
            let operand = match *o {
                Opnd::P(r) => u64::from(r.first.0) << 8 | u64::from(r.dwords),
                Opnd::Imm(x) => x,
                _ => 1 << 32,
            };
            mixed = (mixed.rotate_left(5) ^ operand).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    (mixed >> (64 - PLACES)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::parse;

    #[test]
    fn what_stood_before_is_found_and_nothing_else() {
        let head = "kernel @k target gfx906 workgroup 64 lds 0 kernarg 0 scratch 0\npreload workitem_id %0\nregs %0:v1\nblock entry\n";
        let sum = "  v1 = v_add_f32 v2, v3\n";
        let others = "  v1 = v_add_f32 v2, v4\n  v1 = v_add_f32 v2, v3 {neg=1}\n  s_endpgm 0\n";
        let f = parse(&format!("{head}{sum}{sum}{others}")).unwrap();
        let mut repeated = Repeated::new();
        let found: Vec<_> = f.blocks[0].insts.iter().enumerate().map(|(n, i)| repeated.find(i, n)).collect();
        assert_eq!(found, [None, Some(0), None, None, None]);
    }
}
