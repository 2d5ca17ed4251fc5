//! Hot loops of a kernel without running it.
//!
//! Innermost loops are found in the code (a branch backward, and what lies between); their rounds are simulated with as many
//! waves as a compute unit holds. Addresses are not known: LDS goes without conflicts, memory is coalesced and comes from
//! L2, branches within the loop are not taken, called code and instructions that the tables do not have are left out: a loop
//! says which of these it has.

use crate::chip::Chip;
use crate::instr::{Instr, Meeting, Unit};
use crate::launch::{ModelError, resources};
use crate::lds;
use crate::record::{Access, Level, Step, Trace};
use crate::stall::Stall;
use crate::wave::{Resident, simulate};
use barewave_emu::codeobj::KernelInfo;
use barewave_emu::observe::LaneAccess;
use barewave_isa::{Decoder, Flags, Mode, Operand, Target};

/// An instruction of a hot loop.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Its address in the code object.
    pub address: u64,
    /// Clock of its issue within the round.
    pub issued: u64,
    /// Clocks that the wave stood still before it.
    pub waited: u64,
    /// Why.
    pub stall: Stall,
    /// What executes it.
    pub unit: Unit,
    /// Clocks that it keeps its unit busy.
    pub busy: u32,
    /// Clocks from its issue until its result is there; of memory, without what the memory takes.
    pub latency: u32,
}

/// A loop and its round.
#[derive(Clone, Debug)]
pub struct HotLoop {
    /// Address of its first instruction.
    pub head: u64,
    /// Clocks of a round of one wave, with all others of the compute unit beside it.
    pub clocks: f64,
    /// Waves of a SIMD at once.
    pub waves: u32,
    /// Share of the round in which vector ALU, matrix unit and LDS are busy.
    pub busy: [f64; 3],
    /// Its instructions.
    pub marks: Vec<Mark>,
    /// What the figures leave out, in words.
    pub approximations: Vec<&'static str>,
}

/// An instruction with its place.
struct Placed {
    address: u64,
    instr: Instr,
    /// Where a branch goes.
    to: Option<u64>,
    /// It goes on at an address in a register.
    calls: bool,
}

/// Instructions, and addresses of words that are none which the model knows.
fn decode(target: Target, kernel: &KernelInfo, code: &[u8], lanes: u32) -> (Vec<Placed>, Vec<u64>) {
    let mode = Mode { wave64: lanes == 64, ..Mode::of(target) };
    let decoder = Decoder::new(target, mode);
    let (mut out, mut unknown, mut at) = (Vec::new(), Vec::new(), 0);
    while at + 4 <= code.len() {
        let Some(raw) = decoder.decode(&code[at..]) else {
            unknown.push(kernel.entry + at as u64);
            at += 4;
            continue;
        };
        let inst = raw.inst();
        let address = kernel.entry + at as u64;
        at += raw.len();
        let Some(instr) = Instr::new(target, &inst, lanes) else {
            unknown.push(address);
            continue;
        };
        let branches = target.op(inst.op).is_some_and(|i| i.flags.has(Flags::BRANCH));
        let to = match inst.srcs.last() {
            Some(Operand::Imm(n)) if branches => Some((kernel.entry + at as u64).wrapping_add_signed((*n as i64) * 4)),
            _ => None,
        };
        let calls = ["s_swappc", "s_setpc", "s_call"].iter().any(|n| instr.name.starts_with(n));
        out.push(Placed { address, instr, to, calls });
    }
    (out, unknown)
}

/// First and last index of innermost loops.
fn innermost(code: &[Placed]) -> Vec<(usize, usize)> {
    let mut loops: Vec<(usize, usize)> = Vec::new();
    for (last, p) in code.iter().enumerate() {
        let Some(to) = p.to.filter(|to| *to <= p.address) else { continue };
        if let Ok(first) = code.binary_search_by_key(&to, |c| c.address) {
            loops.push((first, last));
        }
    }
    let all = loops.clone();
    loops.retain(|l| !all.iter().any(|o| o != l && o.0 >= l.0 && o.1 <= l.1));
    loops
}

/// An access without conflicts, coalesced.
fn plain(chip: &Chip, i: &Instr, lanes: u32) -> Option<Access> {
    let (clocks, lines) = match i.unit {
        Unit::Lds => {
            let list: Vec<LaneAccess> = (0..lanes)
                .map(|lane| LaneAccess { lane, address: u64::from(lane * i.bytes), bytes: i.bytes })
                .collect();
            (lds::clocks(chip, &list, i.store), Vec::new())
        }
        Unit::Vmem => {
            let bytes = f64::from(lanes * i.bytes.max(4));
            ((bytes / chip.l1_bytes_clk).ceil() as u32, vec![0])
        }
        Unit::Smem => (1, vec![0]),
        _ => return None,
    };
    let level = if i.unit == Unit::Vmem { Level::L2 } else { Level::L1 };
    Some(Access { clocks, level, lines, store: i.store, polls: 0 })
}

/// Instructions that are simulated of a loop at least.
const ENOUGH: usize = 512;
/// Rounds at least.
const ROUNDS: usize = 8;

/// The innermost loops of a kernel, `code` being its bytes from the entry on.
pub fn loops(
    target: Target,
    kernel: &KernelInfo,
    code: &[u8],
    workgroup_size: u32,
) -> Result<Vec<HotLoop>, ModelError> {
    rounds(target, kernel, code, workgroup_size, false)
}

/// The same for one wave that has a SIMD for itself.
pub fn alone(target: Target, kernel: &KernelInfo, code: &[u8]) -> Result<Vec<HotLoop>, ModelError> {
    rounds(target, kernel, code, 1, true)
}

fn rounds(
    target: Target,
    kernel: &KernelInfo,
    code: &[u8],
    workgroup_size: u32,
    alone: bool,
) -> Result<Vec<HotLoop>, ModelError> {
    let chip = Chip::of(target).ok_or_else(|| ModelError::NoChip(target.to_string()))?;
    let resources = resources(target, kernel, workgroup_size, 0)?;
    let lanes = resources.wave_size;
    let cus = if resources.wgp_mode { 2 } else { 1 };
    let occupancy = target.occupancy(&resources);
    if occupancy.workgroups == 0 {
        return Err(ModelError::DoesNotFit(occupancy.limit));
    }
    let (placed, unknown) = decode(target, kernel, code, lanes);
    let waves = workgroup_size.div_ceil(lanes).max(1) as usize;
    let mut out = Vec::new();
    for (first, last) in innermost(&placed) {
        let body = &placed[first..=last];
        let rounds = ROUNDS.max(ENOUGH.div_ceil(body.len()));
        let instrs: Vec<Instr> = body.iter().map(|p| p.instr.clone()).collect();
        let mut trace = Trace::default();
        for _ in 0..rounds {
            for (n, i) in instrs.iter().enumerate() {
                let access = plain(&chip, i, lanes).map(|a| {
                    trace.accesses.push(a);
                    trace.accesses.len() as u32 - 1
                });
                trace.steps.push(Step { instr: n as u32, access, jumped: n + 1 == instrs.len() });
            }
        }
        let meets = instrs.iter().any(|i| matches!(i.meeting, Some(Meeting::Barrier | Meeting::Signal)));
        let group: Vec<Trace> = vec![trace; waves];
        let resident = if alone {
            1
        } else if meets || waves > 1 {
            occupancy.workgroups
        } else {
            occupancy.workgroups.min(16)
        };
        let what = Resident {
            instrs: &instrs,
            groups: vec![&group[..]; resident as usize],
            queue: Vec::new(),
            starts: Vec::new(),
            cus,
            simds: None,
        };
        let outcome = simulate(&chip, &what);
        let n = instrs.len();
        let issued = &outcome.issued[0];
        let half = rounds / 2;
        let begin = |round: usize| issued[round * n].at();
        let clocks = (begin(rounds - 1) - begin(half)) as f64 / (rounds - 1 - half) as f64;
        let start = begin(rounds - 2);
        let marks = (0..n).map(|i| {
            let at = (rounds - 2) * n + i;
            let (issue, stall) = (issued[at].at(), issued[at].why());
            let waited = if stall == Stall::None { 0 } else { issue - issued[at - 1].at() };
            let Instr { unit, busy, latency, .. } = body[i].instr;
            Mark { address: body[i].address, issued: issue - start, waited, stall, unit, busy, latency }
        });
        let within = body[0].address..body[n - 1].address;
        let has = |unknown: &[u64]| unknown.iter().any(|a| within.contains(a));
        let left_out = [
            (has(&unknown), "unknown instructions are left out"),
            (body.iter().any(|p| p.calls), "called code is left out"),
            (body[..n - 1].iter().any(|p| p.to.is_some()), "branches inside are not taken"),
        ];
        let simds = f64::from(target.info().simds) * cus as f64;
        let ports = simds / 2.0;
        let share = |u: Unit, n: f64| outcome.busy_with(u) / n / outcome.clocks.max(1) as f64;
        let busy =
            [share(Unit::Valu, simds) + share(Unit::Trans, simds), share(Unit::Matrix, simds), share(Unit::Lds, ports)];
        out.push(HotLoop {
            head: body[0].address,
            clocks,
            waves: occupancy.waves_per_simd,
            busy,
            marks: marks.collect(),
            approximations: left_out.into_iter().filter(|l| l.0).map(|l| l.1).collect(),
        });
    }
    Ok(out)
}
