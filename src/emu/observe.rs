//! Watching workgroups run: what an [`Observer`] sees before each instruction, and what it may decide.
//!
//! Cycle models want the instructions that waves really execute and the addresses that they really use, and of a long loop
//! only its first rounds. An observer is told of every instruction before it runs and may leave its effects out. A launch
//! without observer runs the ordinary interpreter: watching costs nothing when nobody watches.

use super::dispatch::{Launch, SLICE};
use super::exec::{smem, vmem};
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
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Number of the wave in its workgroup.
    pub wave: u32,
    /// Its address in the code object.
    pub pc: u64,
    /// The instruction; `None` where bytes are none (executing them is a fault).
    pub inst: Option<&'a Raw>,
    /// Where it goes.
    pub space: AccessSpace,
    /// What its active lanes touch there.
    pub lanes: &'a [LaneAccess],
}

/// What becomes of the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It runs.
    Run,
    /// It counts as executed, without effects; not for branches and barriers.
    Skip,
    /// The wave ends before it.
    End,
}

/// Sees the instructions of a launch one by one.
pub trait Observer {
    /// A workgroup starts.
    fn begin(&mut self, workgroup: [u32; 3], waves: u32);
    /// An instruction is about to be executed.
    fn before(&mut self, step: &Step) -> Verdict;
}

/// Where the operation goes in the wave's present state.
fn touched(w: &Wave, op: &UOp, lanes: &mut Vec<LaneAccess>) -> AccessSpace {
    lanes.clear();
    match op.access.space {
        Space::None => AccessSpace::None,
        Space::Scalar => {
            let (address, size) = smem::range(w, op);
            lanes.push(LaneAccess { lane: 0, address, bytes: u32::try_from(size).unwrap_or(u32::MAX) });
            AccessSpace::Scalar
        }
        Space::Lds { second } => {
            let offsets = [Some(op.imm as u32), second.then_some(op.dst2)];
            for offset in offsets.into_iter().flatten() {
                lanes.extend(Lanes(w.exec()).map(|lane| LaneAccess {
                    lane: lane as u32,
                    address: u64::from(w.lane(op.src[0].at, lane).wrapping_add(offset)),
                    bytes: u32::from(op.access.bytes),
                }));
            }
            AccessSpace::Lds
        }
        _ => {
            let found = vmem::touched(w, op).into_iter();
            lanes.extend(found.filter_map(|p| {
                let address = w.mem.address_of(p.at)?;
                Some(LaneAccess { lane: p.lane, address, bytes: p.size })
            }));
            AccessSpace::Memory
        }
    }
}

/// Runs a wave until it stops, as the interpreter of [`launch`](super::launch) does, one operation at a time.
pub(crate) fn interpret(w: &mut Wave, l: &Launch, observer: &mut dyn Observer) -> Ctl {
    let program = l.program;
    let origin = program.code.base.wrapping_sub(l.entry).wrapping_add(l.kernel.entry);
    let stop = w.count + SLICE;
    let mut lanes = Vec::new();
    loop {
        let op = &program.ops[w.ip];
        let space = touched(w, op, &mut lanes);
        let inst = program.code.raws.get(w.ip).and_then(|r| r.as_ref());
        let step = Step { wave: w.index, pc: origin.wrapping_add(u64::from(op.pc)), inst, space, lanes: &lanes };
        let verdict = observer.before(&step);
        w.count += 1;
        let ctl = match verdict {
            Verdict::End => return Ctl::End,
            Verdict::Skip => Ctl::Next,
            Verdict::Run if w.vskip && program.is_vector(w.ip) => Ctl::Next,
            // SAFETY: operands were resolved for waves like this one.
            Verdict::Run => unsafe { (op.run)(w, op) },
        };
        if let Some(ctl) = w.proceed(ctl, stop) {
            return ctl;
        }
    }
}
