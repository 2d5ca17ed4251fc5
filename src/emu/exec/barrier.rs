//! Meeting points: barriers of a workgroup (plain, split, named) and global wave sync.
//!
//! A wave *arrives* at a barrier and later *waits* for all others to have arrived; `s_barrier` does both. Arrivals are
//! counted per wave, so that a wave may arrive, run on, and wait later (gfx12). Named barriers complete when as many
//! signals came as members were declared. The launch decides who may go on ([`released`]).
//!
//! Global wave sync resources are semaphores and barriers for all workgroups of a launch; a wave that cannot go on tries
//! again. Source: "RDNA4" and "Vega" instruction set manuals, SOP1/SOPP barrier instructions and DS_GWS.

use crate::uop::{Kind, Run, UOp};
use crate::wave::{Ctl, GroupState, LaunchState, M0, Wave};
use barewave_isa::action::Sync;

fn group(w: &mut Wave) -> &mut GroupState {
    // SAFETY: the launch sets the pointer for as long as the wave runs; waves of a group run on one thread.
    unsafe { &mut *w.group }
}

/// Barrier that an operand or M0 names: -1 is the workgroup's, positive ones are named.
fn id(w: &Wave, op: &UOp) -> i32 {
    match op.src[0].kind {
        Kind::Const => op.src[0].value as i32,
        _ => (w.s[M0] & 0x1f) as i32,
    }
}

/// A signal at the workgroup's barrier, or a wait for it.
pub fn is_of_workgroup(op: &UOp) -> bool {
    op.src[0].kind == Kind::Const && op.src[0].value as i16 <= 0
}

fn arrive(w: &mut Wave) {
    let n = w.index as usize;
    group(w).arrived[n] += 1;
}

unsafe fn barrier(w: &mut Wave, _op: &UOp) -> Ctl {
    arrive(w);
    w.waits_for = None;
    Ctl::Barrier
}

unsafe fn signal<const FIRST: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let (id, count) = (id(w, op), w.s[M0] >> 16 & 0x3f);
    let first = match id {
        1.. => {
            let by_register = op.src[0].kind != Kind::Const;
            let b = &mut group(w).named[id as usize & 31];
            if by_register && count > 0 {
                b.members = count;
            }
            b.signals += 1;
            let first = b.signals == 1;
            b.settle();
            first
        }
        _ => {
            let n = w.index as usize;
            let mine = group(w).arrived[n];
            let first = group(w).arrived.iter().all(|&n| n <= mine);
            arrive(w);
            first
        }
    };
    if FIRST {
        w.set_scc(first);
    }
    Ctl::Next
}

unsafe fn wait(w: &mut Wave, op: &UOp) -> Ctl {
    w.waits_for = match (op.src[0].value as i16, w.joined) {
        (1.., Some((b, _))) => Some(b),
        _ => None,
    };
    Ctl::Barrier
}

unsafe fn init(w: &mut Wave, op: &UOp) -> Ctl {
    let (n, members) = (id(w, op) as usize & 31, w.s[M0] >> 16 & 0x3f);
    let b = &mut group(w).named[n];
    (b.members, b.signals) = (members, 0);
    Ctl::Next
}

unsafe fn join(w: &mut Wave, op: &UOp) -> Ctl {
    let n = id(w, op) as usize & 31;
    w.joined = Some((n, group(w).named[n].phase));
    Ctl::Next
}

unsafe fn leave(w: &mut Wave, _op: &UOp) -> Ctl {
    let was = w.joined.take();
    if let Some((n, _)) = was {
        let b = &mut group(w).named[n];
        b.members = b.members.saturating_sub(1);
        b.settle();
    }
    w.set_scc(was.is_some());
    Ctl::Next
}

/// Bit 0: the barrier exists; 10:4 its members; 22:16 signals so far.
unsafe fn state(w: &mut Wave, op: &UOp) -> Ctl {
    let id = id(w, op);
    let v = match id {
        1.. => {
            let b = group(w).named[id as usize & 31];
            u32::from(b.members > 0) | b.members << 4 | b.signals << 16
        }
        _ => {
            let next = w.passed + 1;
            let signals = group(w).arrived.iter().filter(|&&n| n >= next).count() as u32;
            1 | w.waves << 4 | signals << 16
        }
    };
    w.s[op.dst as usize] = v;
    Ctl::Next
}

/// Whether a wave that stands at a barrier may go on; `alive` tells of each wave of the group. Marks the barrier passed.
pub fn released(w: &mut Wave, alive: impl Fn(usize) -> bool) -> bool {
    match (w.waits_for, w.joined) {
        (Some(n), Some((_, seen))) => {
            let phase = group(w).named[n].phase;
            if phase > seen {
                w.joined = Some((n, phase));
            }
            phase > seen
        }
        _ => {
            let next = w.passed + 1;
            let all = group(w).arrived.iter().enumerate().all(|(i, &n)| n >= next || !alive(i));
            w.passed += u64::from(all);
            all
        }
    }
}

fn launch(w: &Wave) -> &LaunchState {
    // SAFETY: the launch sets the pointer for as long as the wave runs.
    unsafe { &*w.launch }
}

/// Resource and data of a global wave sync instruction: offset plus M0 bits 21:16; the first active lane's value.
fn gws(w: &Wave, op: &UOp) -> (usize, u32) {
    let exec = w.exec();
    let lane = if exec == 0 { 0 } else { exec.trailing_zeros() as usize };
    let data = if op.src[0].kind == Kind::Vector { w.lane(op.src[0].at, lane) } else { 0 };
    ((op.imm as usize + (w.s[M0] >> 16 & 0x3f) as usize) % 64, data)
}

unsafe fn gws_set<const ADD: u8>(w: &mut Wave, op: &UOp) -> Ctl {
    let (n, data) = gws(w, op);
    let mut all = launch(w).gws.lock().unwrap_or_else(|e| e.into_inner());
    let r = &mut all[n];
    r.counter = match ADD {
        0 => data,
        1 => r.counter.saturating_add(1),
        2 => r.counter.saturating_add(data),
        // Releases all that wait: more waves than can exist may pass.
        _ => u32::MAX >> 1,
    };
    Ctl::Next
}

unsafe fn gws_p(w: &mut Wave, op: &UOp) -> Ctl {
    let (n, _) = gws(w, op);
    let mut all = launch(w).gws.lock().unwrap_or_else(|e| e.into_inner());
    if all[n].counter == 0 {
        return Ctl::Retry;
    }
    all[n].counter -= 1;
    Ctl::Next
}

/// The counter starts at the number of waves less one; the wave that finds 0 releases the others and sets it again.
unsafe fn gws_barrier(w: &mut Wave, op: &UOp) -> Ctl {
    let (n, data) = gws(w, op);
    let waiting = w.gws_phase;
    let (ctl, next) = {
        let mut all = launch(w).gws.lock().unwrap_or_else(|e| e.into_inner());
        let r = &mut all[n];
        match waiting {
            Some(p) if r.phase > p => (Ctl::Next, None),
            Some(p) => (Ctl::Retry, Some(p)),
            None if r.counter == 0 => {
                (r.counter, r.phase) = (data, r.phase + 1);
                (Ctl::Next, None)
            }
            None => {
                r.counter -= 1;
                (Ctl::Retry, Some(r.phase))
            }
        }
    };
    w.gws_phase = next;
    ctl
}

/// Handlers.
pub fn run(f: Sync) -> Run {
    match f {
        Sync::Barrier => barrier,
        Sync::BarrierSignal => signal::<false>,
        Sync::BarrierSignalIsfirst => signal::<true>,
        Sync::BarrierWait => wait,
        Sync::BarrierInit => init,
        Sync::BarrierJoin => join,
        Sync::BarrierLeave => leave,
        Sync::GetBarrierState => state,
        Sync::GwsInit => gws_set::<0>,
        Sync::GwsSemaV => gws_set::<1>,
        Sync::GwsSemaBr => gws_set::<2>,
        Sync::GwsSemaReleaseAll => gws_set::<3>,
        Sync::GwsSemaP => gws_p,
        Sync::GwsBarrier => gws_barrier,
    }
}
