//! Watching workgroups run: what an [`Observer`] sees before each instruction, and what it may decide.
//!
//! Cycle models want the instructions that waves really execute and the addresses that they really use, and of a long loop
//! only its first rounds. An observer is told of every instruction before it runs and may leave its effects out. A launch
//! without observer runs the ordinary interpreter: watching costs nothing when nobody watches.

use super::dispatch::{Launch, SLICE};
use super::exec::{smem, vmem};
use super::program::Program;
use super::uop::{Space, UOp};
use super::wave::{Ctl, Lanes, Wave};
use barewave_isa::Raw;

/// Bytes that a lane of an instruction goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneAccess {
    /// The lane; 0 for scalar accesses.
    pub lane: u32,
    /// Address: of the device, or within LDS.
    pub address: u64,
    /// Bytes.
    pub bytes: u32,
}

/// Where an instruction's accesses go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessSpace {
    /// Nowhere.
    None,
    /// Device memory, by lane.
    Memory,
    /// LDS, by lane.
    Lds,
    /// Device memory, by the wave.
    Scalar,
}

/// An instruction that a wave is about to execute.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// Number of the wave in its workgroup.
    pub wave: u32,
    /// Its address in the code object.
    pub pc: u64,
    /// Its number in the program.
    pub index: usize,
    state: &'a Wave,
    op: &'a UOp,
    program: &'a Program,
    /// What lies between an address in the code object and one in the program.
    origin: u64,
}

impl Step<'_> {
    /// Active lanes, by bit.
    pub fn exec(&self) -> u64 {
        self.state.exec()
    }

    /// The address in the code object of one of the program's instructions, and the instruction; `None` where bytes are none (executing
    /// them is a fault).
    pub fn instruction(&self, index: usize) -> Option<(u64, &Raw)> {
        let raw = self.program.code.raws.get(index)?.as_ref()?;
        Some((self.origin.wrapping_add(u64::from(self.program.ops.get(index)?.pc)), raw))
    }

    /// Where it goes.
    pub fn space(&self) -> AccessSpace {
        match self.op.access.space {
            Space::None => AccessSpace::None,
            Space::Scalar => AccessSpace::Scalar,
            Space::Lds { .. } => AccessSpace::Lds,
            _ => AccessSpace::Memory,
        }
    }

    /// What its active lanes touch where it goes.
    pub fn touches(&self, lanes: &mut Vec<LaneAccess>) {
        lanes.clear();
        lanes.reserve(2 * self.state.lanes);
        self.visit(|a| lanes.push(a));
    }

    /// Shows what its active lanes touch, one after the other.
    pub fn visit(&self, each: impl FnMut(LaneAccess)) {
        touched(self.state, self.op, each);
    }

    /// What device memory holds where a lane goes; `None` where nothing is mapped.
    pub fn held(&self, at: &LaneAccess) -> Option<Vec<u8>> {
        let place = self.state.mem.at(at.address, u64::from(at.bytes))?;
        let mut out = vec![0; at.bytes as usize];
        // SAFETY: so many bytes are mapped there.
        unsafe { std::ptr::copy_nonoverlapping(place, out.as_mut_ptr(), out.len()) };
        Some(out)
    }
}

/// What becomes of the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It runs.
    Run,
    /// The wave ends before it.
    End,
    /// It does not run, and the wave goes on at the program's instruction of this number; behind its end the wave ends.
    Leave(usize),
    /// It is one of a loop that goes on unwatched until the wave leaves it: [`Observer::before`] is called for the first
    /// instruction outside, and again where the wave has stopped inside.
    Through(Loop),
}

/// A loop whose rounds need not be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Number of its first instruction, to which it jumps back.
    pub first: usize,
    /// Number of its last instruction.
    pub last: usize,
    /// Vector and memory instructions run too; otherwise they count as executed, without effects, and the scalar ones
    /// alone decide how often the loop goes round. Nor does a wave wait for others of its workgroup then: there is nothing that
    /// they could tell it.
    pub full: bool,
}

/// Sees the instructions of a launch one by one.
pub trait Observer {
    /// A workgroup starts.
    fn begin(&mut self, workgroup: [u32; 3], waves: u32);
    /// An instruction is about to be executed.
    fn before(&mut self, step: &Step) -> Verdict;
    /// A wave jumped back so many times to the first instruction of the loop that it goes through unwatched.
    fn jumped_back(&mut self, wave: u32, times: u64);
}

/// An observer with what it takes to pass over instructions that are not for it.
pub(crate) struct Watch<'a> {
    observer: &'a mut dyn Observer,
    /// For each operation the first one from there on that is no vector instruction, does something, and does not just meet other waves.
    scalars: Vec<usize>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(program: &Program, observer: &'a mut dyn Observer) -> Watch<'a> {
        let passed = |ip: usize| program.is_vector(ip) || program.is_idle(ip) || program.is_meeting(ip);
        let mut next = program.ops.len();
        let mut scalars: Vec<usize> = (0..next)
            .rev()
            .map(|ip| {
                next = if passed(ip) { next } else { ip };
                next
            })
            .collect();
        scalars.reverse();
        Watch { observer, scalars }
    }

    pub(crate) fn begin(&mut self, workgroup: [u32; 3], waves: u32) {
        self.observer.begin(workgroup, waves);
    }
}

/// What the operation touches in the wave's present state.
fn touched(w: &Wave, op: &UOp, mut each: impl FnMut(LaneAccess)) {
    match op.access.space {
        Space::None => {}
        Space::Scalar => {
            let (address, size) = smem::range(w, op);
            each(LaneAccess { lane: 0, address, bytes: u32::try_from(size).unwrap_or(u32::MAX) });
        }
        Space::Lds { second } => {
            let offsets = [Some(op.imm as u32), second.then_some(op.dst2)];
            for offset in offsets.into_iter().flatten() {
                Lanes(w.exec()).for_each(|lane| {
                    let address = u64::from(w.lane(op.src[0].at, lane).wrapping_add(offset));
                    each(LaneAccess { lane: lane as u32, address, bytes: u32::from(op.access.bytes) });
                });
            }
        }
        _ => {
            let bytes = u32::from(op.access.bytes);
            if !vmem::each_of_row(w, op, |lane, address| each(LaneAccess { lane: lane as u32, address, bytes })) {
                vmem::each_touched(w, op, true, |p| {
                    if let Some(address) = w.mem.address_of(p.at) {
                        each(LaneAccess { lane: p.lane, address, bytes: p.size });
                    }
                });
            }
        }
    }
}

/// Runs a wave until it stops, as the interpreter of [`launch`](super::launch) does, one operation at a time.
pub(crate) fn interpret(w: &mut Wave, l: &Launch, watch: &mut Watch) -> Ctl {
    let program = l.program;
    let origin = program.code.base.wrapping_sub(l.entry).wrapping_add(l.kernel.entry);
    let stop = w.count + SLICE;
    loop {
        let index = w.ip;
        let op = &program.ops[index];
        let pc = origin.wrapping_add(u64::from(op.pc));
        let ctl = match watch.observer.before(&Step { wave: w.index, pc, index, state: w, op, program, origin }) {
            Verdict::End => return Ctl::End,
            Verdict::Leave(to) if to >= program.ops.len() => return Ctl::End,
            Verdict::Leave(to) => {
                w.ip = to;
                None
            }
            Verdict::Run => {
                w.count += 1;
                let ctl = execute(w, program);
                w.proceed(ctl, stop)
            }
            Verdict::Through(rounds) => {
                let (ctl, times) = through(w, program, &watch.scalars, rounds, stop);
                watch.observer.jumped_back(w.index, times);
                ctl
            }
        };
        if let Some(ctl) = ctl {
            return ctl;
        }
    }
}

/// Executes the wave's next operation.
fn execute(w: &mut Wave, program: &Program) -> Ctl {
    if w.vskip && program.is_vector(w.ip) {
        return Ctl::Next;
    }
    let op = &program.ops[w.ip];
    // SAFETY: operands were resolved for waves like this one.
    unsafe { (op.run)(w, op) }
}

/// Runs a wave until it leaves a loop or stops, and says how often it jumped back.
fn through(w: &mut Wave, program: &Program, scalars: &[usize], rounds: Loop, stop: u64) -> (Option<Ctl>, u64) {
    let mut times = 0;
    while (rounds.first..=rounds.last).contains(&w.ip) {
        if !rounds.full {
            let next = scalars[w.ip].min(rounds.last + 1);
            w.count += (next - w.ip) as u64;
            w.ip = next;
            if next > rounds.last {
                break;
            }
        }
        w.count += 1;
        let ctl = execute(w, program);
        times += u64::from(matches!(ctl, Ctl::Jump | Ctl::Spin) && w.ip == rounds.first);
        if let Some(ctl) = w.proceed(ctl, stop) {
            return (Some(ctl), times);
        }
    }
    (None, times)
}
