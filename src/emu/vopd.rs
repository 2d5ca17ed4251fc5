//! VOPD: two vector instructions in one encoding (RDNA3, RDNA4).
//!
//! Both halves read their operands before either writes. The half that reads what the other writes therefore runs first;
//! when each does, the second one's result goes to a spare register row and is copied to its place at the end. Runs of
//! pairs of multiply-adds are executed in one call (`exec::valu`).

use super::builder::{Builder, Refusal};
use super::exec::valu;
use super::uop::UOp;
use super::uop::{Payload, blank};
use super::wave::{Ctl, Lanes, Wave};
use barewave_isa::Inst;

/// True when a half reads what the other writes.
fn reads(half: &Inst, other: &Inst) -> bool {
    let written = other.dsts.iter().filter_map(|o| o.regs());
    let mut read = half.srcs.iter().filter_map(|o| o.regs());
    let written: Vec<_> = written.collect();
    read.any(|r| {
        written.iter().any(|w| r.first.0 < w.first.0 + w.dwords as u16 && w.first.0 < r.first.0 + r.dwords as u16)
    })
}

/// The micro-operation of a pair that `b` was made for. `spare` is the element offset of a row that no register uses.
pub fn lower(b: &Builder, spare: u32) -> Result<UOp, Refusal> {
    let [x, y] = b.raw.halves().ok_or(Refusal::Unimplemented)?;
    let crossed = reads(&x, &y) && reads(&y, &x);
    // Of a crossed pair the second half, whose result is always one dword, waits in the spare row.
    let [first, second] = if reads(&y, &x) && !crossed { [y, x] } else { [x, y] };
    let actions = [first.op.action(), second.op.action()];
    let build = |inst: Inst| Builder { inst, ..b.clone() }.build();
    let mut halves = [build(first)?, build(second)?];
    let mut op = blank(run, b.pc, b.raw.len() as u8);
    op.dst = halves[1].dst;
    if crossed {
        halves[1].dst = spare;
    }
    op.dst2 = halves[1].dst;
    let multiply_adds = actions.iter().zip(&halves).all(|(action, op)| valu::joins_batch(action, op));
    op.batch = (multiply_adds && !crossed).into();
    op.payload = Payload::Dual(Box::new(halves));
    Ok(op)
}

/// Runs both halves.
unsafe fn run(w: &mut Wave, op: &UOp) -> Ctl {
    let Payload::Dual(halves) = &op.payload else { return Ctl::Next };
    let [first, second] = &**halves;
    // SAFETY: both halves were resolved for waves like this one.
    unsafe {
        if op.dst == op.dst2 {
            let c = (first.run)(w, first);
            return if c == Ctl::Next { (second.run)(w, second) } else { c };
        }
        // The second one's result waits in the spare row.
        let c = (second.run)(w, second);
        if c != Ctl::Next {
            return c;
        }
        let c = (first.run)(w, first);
        for l in Lanes(w.exec()) {
            let v = w.lane(op.dst2, l);
            w.set_lane(op.dst, l, v);
        }
        c
    }
}
