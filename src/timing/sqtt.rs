//! Thread traces of hardware as text, and the model beside them.
//!
//! A line is `CYCLE: KIND wave=N op=CLASS instruction`; kinds with INST or IMMEDIATE in their name are issues of
//! instructions, WAVEEND is the end of a wave, a line `=== ... gfxN` starts another event. Traces hold what waves executed, not the
//! code object: the instructions are read from the text (mnemonic and registers in Python's notation), and the model
//! simulates the waves of an event together, each from its first instruction on: on one SIMD, which is what RDNA traces, or
//! on the one that each line of CDNA's kinds names (`simd=N`; these come in order of each wave, not of the clock). Addresses are
//! not recorded: accesses of memory and LDS go without conflicts, a load is a first touch unless its wave has executed the
//! same instruction before. Code comes from memory too: a wave starts with two lines of it, and asks for the others as it
//! starts. The compute unit's other SIMD shows by its use of LDS and memory (`OTHER_LDS`, `OTHER_VMEM`) alone, wave by wave, as often as
//! a traced wave uses them: it executes copies of the traced waves, which take their share of the ports.
//!
//! First touches are most of these traces. Those of scalar loads follow the clock, which snapshots tell (`at_clock_of`).
//! Those of vector loads take 330 ns longer where waves begin together on the whole device than for one alone, on gfx1100 and
//! gfx1201 alike (`vmem_crowd`); a launch is taken for such a one when the engines whose instructions were recorded have several waves.
//!
//! A wait at a barrier is not recorded where signalling is an instruction of its own (RDNA4): it stands right behind it.

use crate::chip::Chip;
use crate::instr::{Instr, Unit};
use crate::lds;
use crate::record::{Access, Fetch, Level, Step, Trace};
use crate::wave::{Resident, simulate};
use barewave_emu::observe::LaneAccess;
use barewave_isa::{Inst, Op, Operand, Reg, Regs, Target, op};
use std::collections::BTreeMap;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is not as described.
    #[error("line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// No line names a target.
    #[error("no line `=== ... gfxN` names a target")]
    NoTarget,
    /// No constants for the target.
    #[error("the cycle model knows no chip of target {0}")]
    NoChip(String),
}

/// An instruction of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    /// Clock.
    pub at: u64,
    /// Text of the instruction.
    pub text: String,
}

/// Waves traced together.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// What each wave issued, by its number (a slot that was used again has a number of its own).
    pub waves: Vec<Vec<Issued>>,
    /// SIMD of each wave.
    pub simds: Vec<usize>,
    /// Waves of the compute unit's other SIMD (RDNA), by the traced wave of the same slot, or the last one.
    pub beside: Vec<usize>,
    /// Clocks of the first snapshots, which the front end takes before the launch.
    pub snapshots: Vec<u64>,
    /// Shader engine that it was recorded on.
    engine: u32,
    /// Whether instructions of this engine were recorded.
    recorded: bool,
    /// Waves began together on the whole device.
    pub crowded: bool,
}

/// A file of traces.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Target that it was recorded on.
    pub target: Target,
    /// Events with instructions.
    pub events: Vec<Event>,
}

/// Clocks are less: counters of hardware have 48 bits.
const CLOCKS: u64 = 1 << 48;

/// Ends an event: what each wave of the other SIMD is like.
fn close(events: &mut [Event], others: &mut BTreeMap<String, Option<usize>>) {
    let others = std::mem::take(others).into_values();
    if let Some(e) = events.last_mut()
        && let Some(last) = e.waves.len().checked_sub(1)
    {
        e.beside = others.map(|twin| twin.unwrap_or(last)).collect();
    }
}

/// Waves that were traced on an engine, in the mean of all recorded ones, from which on waves are not alone on the device.
const CROWD: usize = 2;

/// Tells of each launch, which is a series of ascending engines, whether it filled the device.
fn tell_crowds(events: &mut [Event]) {
    for launch in events.chunk_by_mut(|a, b| a.engine < b.engine) {
        let recorded = || launch.iter().filter(|e| e.recorded);
        let waves: usize = recorded().map(|e| e.waves.len()).sum();
        let crowded = waves > 0 && waves >= CROWD * recorded().count();
        launch.iter_mut().for_each(|e| e.crowded = crowded);
    }
}

/// Waves of a SIMD, at most.
const MOST_WAVES: usize = 20;

/// Reads a trace.
pub fn parse(text: &str) -> Result<TraceFile, TraceError> {
    let mut target = None;
    let mut events: Vec<Event> = Vec::new();
    // Waves of the present event: slot to index.
    let mut slots: BTreeMap<String, usize> = BTreeMap::new();
    // Clock and mask of the last line for several waves, and how many such lines came before.
    let mut together = (0, 0, 0);
    // Slots of the other SIMD, and the traced waves of the same ones.
    let mut others: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for (n, line) in text.lines().enumerate() {
        let fail = |what: &str| TraceError::Line { line: n + 1, what: what.to_string() };
        if line.starts_with("===") {
            if let Some(name) = line.split_whitespace().find(|w| w.starts_with("gfx")) {
                target = Some(Target::parse(name).map_err(|_| fail(&format!("no target '{name}'")))?);
            }
            close(&mut events, &mut others);
            let after = |key: &str| line.split_whitespace().skip_while(|w| *w != key).nth(1);
            let engine = after("se").and_then(|n| n.parse().ok()).unwrap_or(0);
            let recorded = after("itrace") == Some("True");
            events.push(Event { engine, recorded, ..Event::default() });
            slots.clear();
            continue;
        }
        let Some((clock, rest)) = line.split_once(':') else {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            return Err(fail("expected `CYCLE: KIND ...`"));
        };
        let at: Option<u64> = clock.trim().parse().ok().filter(|at| *at < CLOCKS);
        let at = at.ok_or_else(|| fail(&format!("'{}' is not a clock", clock.trim())))?;
        let mut words = rest.split_whitespace();
        let kind = words.next().unwrap_or("");
        let word = |key: &str| rest.split_whitespace().find_map(|w| w.strip_prefix(key));
        if kind == "SNAPSHOT" {
            let event = events.last_mut().filter(|e| e.snapshots.len() < 2);
            event.into_iter().for_each(|e| e.snapshots.push(at));
            continue;
        }
        // Several waves may issue at once: a line for each bit of the mask, in order.
        // Elsewhere only the ends of waves name the SIMD.
        let simd = word("simd=").filter(|_| kind.contains("CDNA")).unwrap_or("0");
        let slot = match (word("wave="), word("mask=").and_then(|m| m.parse::<u64>().ok())) {
            (Some(wave), _) => format!("{simd}.{wave}"),
            (None, Some(mask)) => {
                together =
                    if (together.0, together.1) == (at, mask) { (at, mask, together.2 + 1) } else { (at, mask, 0) };
                let set = (0..64).filter(|n| mask >> n & 1 == 1).nth(together.2);
                set.map_or(String::new(), |n: u32| format!("{simd}.{n}"))
            }
            (None, None) => continue,
        };
        if kind.contains("WAVEEND") {
            slots.remove(&slot);
            continue;
        }
        if !kind.contains("INST") && !kind.contains("IMMEDIATE") {
            continue;
        }
        if word("op=").is_some_and(|op| op.starts_with("OTHER_")) {
            let twin = slots.get(&slot).copied();
            if others.len() < MOST_WAVES {
                others.entry(slot).or_insert(twin);
            }
            continue;
        }
        let Some(open) = rest.find('(') else { continue };
        let start = rest[..open].rfind(' ').map_or(0, |p| p + 1);
        if events.is_empty() {
            events.push(Event::default());
        }
        let simd = simd.parse().map_err(|_| fail(&format!("'{simd}' is not a SIMD")))?;
        let Some(Event { waves, simds, .. }) = events.last_mut() else { continue };
        let wave = *slots.entry(slot).or_insert_with(|| {
            waves.push(Vec::new());
            simds.push(simd);
            waves.len() - 1
        });
        waves[wave].push(Issued { at, text: rest[start..].trim().to_string() });
    }
    close(&mut events, &mut others);
    tell_crowds(&mut events);
    events.retain(|e| !e.waves.is_empty());
    Ok(TraceFile { target: target.ok_or(TraceError::NoTarget)?, events })
}

/// A register or number in Python's notation: `v[1:2]`, `s[4]`, `VCC_LO`, `16`.
fn operand(text: &str) -> Option<Operand> {
    let t = text.trim();
    let file = |base: Reg, body: &str| {
        let body = body.strip_prefix('[')?.strip_suffix(']')?;
        let (a, b) = body.split_once(':').unwrap_or((body, body));
        let (a, b): (u16, u16) = (a.parse().ok()?, b.parse().ok()?);
        Some(Operand::Regs(Regs::new(Reg(base.0 + a), u8::try_from(b.checked_sub(a)? + 1).ok()?)))
    };
    if let Ok(n) = t.parse::<i64>() {
        return Some(Operand::Imm(n as u64));
    }
    if let Some(body) = t.strip_prefix('v').filter(|b| b.starts_with('[')) {
        return file(Reg::V0, body);
    }
    if let Some(body) = t.strip_prefix('s').filter(|b| b.starts_with('[')) {
        return file(Reg::S0, body);
    }
    if let Some(body) = t.strip_prefix('a').filter(|b| b.starts_with('[')) {
        return file(Reg::A0, body);
    }
    let one = |r| Some(Operand::Regs(Regs::new(r, 1)));
    match t.to_ascii_uppercase().as_str() {
        "VCC_LO" | "VCC" => one(Reg::VCC_LO),
        "EXEC_LO" | "EXEC" => one(Reg::EXEC_LO),
        "M0" => one(Reg::M0),
        "NULL" => one(Reg::NULL),
        _ => None,
    }
}

/// The operation of a mnemonic, with or without the suffix of its encoding.
fn operation(target: Target, name: &str) -> Option<Op> {
    let known = |n: &str| (0..Op::COUNT as u16).map(Op).find(|op| target.op(*op).is_some_and(|i| i.name == n));
    let bare = ["_e32", "_e64", "_dpp", "_sdwa"].iter().find_map(|s| name.strip_suffix(s));
    bare.and_then(known).or_else(|| known(name))
}

/// A pair of vector instructions: `VOPD(VOPDOp.A, VOPDOp.B, dst, dst, sources...)`. It costs what one of them does.
fn pair(target: Target, list: &str, lanes: u32) -> Option<Instr> {
    let operands: Vec<Operand> = list.trim_end_matches(')').split(',').filter_map(operand).collect();
    let (dsts, srcs) = operands.split_at_checked(2)?;
    let mut one = Instr::new(target, &Inst::new(op::V_MOV_B32, &dsts[..1], &srcs[..srcs.len().min(1)]), lanes)?;
    let numbers = |o: &Operand| o.regs().into_iter().flat_map(|r| r.iter().map(|r| r.0)).collect::<Vec<u16>>();
    one.reads.extend(operands.iter().skip(1).flat_map(numbers));
    one.writes.extend(dsts.iter().skip(1).flat_map(numbers));
    Some(one)
}

/// What the model makes of an instruction's text; `None` for one that the tables do not have.
fn instr(target: Target, text: &str, lanes: u32) -> Option<Instr> {
    let (name, list) = text.split_once('(')?;
    if name == "VOPD" {
        return pair(target, list, lanes);
    }
    let op = operation(target, name)?;
    let info = target.op(op)?;
    let operands: Vec<Option<Operand>> = match list.trim_end().trim_end_matches(')') {
        "" => Vec::new(),
        list => list.split(',').map(operand).collect(),
    };
    let stores = info.dsts.is_empty() || name.contains("store");
    // Memory instructions list a destination that stores do not have.
    let spare = usize::from(
        stores && (name.starts_with("global_") || name.starts_with("flat_") || name.starts_with("scratch_")),
    );
    let (mut dsts, mut srcs) = (Vec::new(), Vec::new());
    for (i, o) in operands.into_iter().enumerate().skip(spare) {
        match o {
            Some(o) if !stores && i < info.dsts.len() => dsts.push(o),
            Some(o) => srcs.push(o),
            None => {}
        }
    }
    // Loads list a register of data that they do not read.
    if !stores && name.starts_with("global_load") && srcs.len() > 1 {
        srcs.remove(1);
    }
    if name.starts_with("s_wait") && srcs.is_empty() {
        srcs.push(Operand::Imm(0));
    }
    Instr::new(target, &Inst::new(op, &dsts, &srcs), lanes)
}

/// Bytes of an instruction's encoding.
fn bytes(unit: Unit, text: &str) -> u32 {
    let (name, list) = text.split_once('(').unwrap_or((text, ""));
    let literal = |o: &str| match o.trim().parse::<i64>() {
        Ok(n) => !(-16..=64).contains(&n),
        Err(_) => o.trim() == "LIT",
    };
    let short = name.ends_with("_e32") || name.starts_with("s_") && unit != Unit::Smem;
    let offset = unit == Unit::Vmem || unit == Unit::Smem || unit == Unit::Lds || unit == Unit::Branch;
    let more = !offset && unit != Unit::Internal && list.trim_end_matches(')').split(',').any(literal);
    let words = if short { 1 } else { 2 } + u32::from(more);
    4 * words
}

/// The lines of code that a wave fetches, from where each of its instructions ends.
fn fetches(chip: &Chip, ends: &[u32]) -> Vec<Fetch> {
    let size = chip.code_line as u32;
    let mut out = Vec::new();
    let mut last = (chip.code_lines as u32).saturating_sub(1);
    for (n, end) in ends.iter().enumerate() {
        if (end - 1) / size > last {
            last = (end - 1) / size;
            out.push(Fetch { line: last, asked: 0, needed: n as u32 });
        }
    }
    out
}

/// An instruction's clocks since the wave's previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Text of the instruction.
    pub text: String,
    /// On hardware.
    pub measured: u64,
    /// By the model.
    pub modelled: u64,
    /// It waits for memory that nobody has touched before, or is code of such: on hardware these take 800 to 2000 clocks
    /// from one launch to the next.
    pub first_touch: bool,
    /// What it waits for then: scalar memory or vector memory.
    pub waits_for: Option<Unit>,
}

impl Interval {
    /// Model less hardware.
    pub fn difference(&self) -> i64 {
        self.modelled as i64 - self.measured as i64
    }
}

/// A wave of hardware beside the model.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Instructions compared.
    pub instructions: usize,
    /// All but the first.
    pub intervals: Vec<Interval>,
    /// Clocks from first to last instruction on hardware.
    pub measured: u64,
    /// The same by the model.
    pub modelled: u64,
    /// Instructions that the tables do not have, and that are left out.
    pub unknown: Vec<String>,
}

/// A chip at the clock of an event: the gap between its snapshots tells how many clocks memory takes. One that is
/// far from what it is elsewhere was made in another way.
fn at_clock_of(event: &Event, mut chip: Chip) -> Chip {
    if let [first, second] = event.snapshots[..] {
        let further = second.saturating_sub(first) as f64 - chip.snapshot_clk;
        if further.abs() < chip.snapshot_clk / 2.0 {
            chip.smem_cold = (chip.smem_cold + chip.snapshot_cold * further).max(chip.smem_hit);
        }
    }
    chip
}

/// Simulates the waves of an event, and compares. Each wave starts when it did on hardware.
pub fn compare(target: Target, event: &Event) -> Result<Vec<Compared>, TraceError> {
    let chip = Chip::of(target).ok_or_else(|| TraceError::NoChip(target.to_string()))?;
    let mut chip = at_clock_of(event, chip);
    if event.crowded {
        chip.vmem_cold += chip.vmem_crowd;
    }
    let lanes = target.info().wave_size;
    let mut instrs = Vec::new();
    let mut out: Vec<Compared> = Vec::new();
    let mut traces: Vec<Trace> = Vec::new();
    let mut times: Vec<Vec<(u64, String)>> = Vec::new();
    let mut first: Vec<Vec<(bool, Option<Unit>)>> = Vec::new();
    // Of each step of a wave, whether the trace has it.
    let mut shown: Vec<Vec<bool>> = Vec::new();
    let begin = event.waves.iter().filter_map(|w| w.first()).map(|i| i.at).min().unwrap_or(0);
    for wave in &event.waves {
        let (mut trace, mut list, mut result) = (Trace::default(), Vec::new(), Compared::default());
        let (mut ends, mut at) = (Vec::<u32>::new(), 0);
        let (mut cold, mut touches) = (None, Vec::new());
        let mut recorded = Vec::new();
        for (n, issued) in wave.iter().enumerate() {
            let Some(i) = instr(target, &issued.text, lanes) else {
                result.unknown.push(issued.text.clone());
                continue;
            };
            let memory = matches!(i.unit, Unit::Smem | Unit::Vmem);
            let access = matches!(i.unit, Unit::Smem | Unit::Vmem | Unit::Lds).then(|| {
                // What a wave loads again and again comes from L2, the rest is touched for the first time.
                let again = wave[..n].iter().any(|p| p.text == issued.text);
                let level = if again { Level::L2 } else { Level::Cold };
                if level == Level::Cold && i.unit != Unit::Lds && !i.store {
                    cold = Some(i.unit);
                }
                let bytes = i.bytes.max(1);
                let apart = (0..lanes).map(|lane| LaneAccess { lane, address: u64::from(lane * bytes), bytes });
                let clocks =
                    if memory { bytes.div_ceil(4) } else { lds::clocks(&chip, &apart.collect::<Vec<_>>(), i.store) };
                trace.accesses.push(Access { clocks, level, lines: Vec::new(), store: i.store, polls: 0 });
                trace.accesses.len() as u32 - 1
            });
            // A jump shows by what follows being another instruction than the next in the program; only a taken branch
            // at the end of a loop is told apart here.
            let next = wave.get(n + 1).filter(|_| i.unit == Unit::Branch);
            let back = next.and_then(|next| list.iter().position(|p: &(u64, String)| p.1 == next.text));
            let jumped = back.is_some();
            let waits_for = cold.filter(|_| !i.waits.is_empty());
            touches.push((waits_for.is_some(), waits_for));
            cold = cold.filter(|_| !i.waits.iter().any(|w| w.1 == 0));
            at += bytes(i.unit, &issued.text);
            ends.push(at);
            at = back.map_or(at, |t| if t == 0 { 0 } else { ends[t - 1] });
            trace.steps.push(Step { instr: instrs.len() as u32, access, jumped });
            instrs.push(i);
            recorded.push(true);
            list.push((issued.at, issued.text.clone()));
            if issued.text.starts_with("s_barrier_signal(")
                && let Some(wait) = instr(target, "s_barrier_wait(-1)", lanes)
            {
                trace.steps.push(Step { instr: instrs.len() as u32, access: None, jumped: false });
                instrs.push(wait);
                recorded.push(false);
            }
        }
        trace.fetches = fetches(&chip, &ends);
        trace.fetches.iter().for_each(|f| touches[f.needed as usize].0 = true);
        result.instructions = list.len();
        out.push(result);
        traces.push(trace);
        times.push(list);
        first.push(touches);
        shown.push(recorded);
    }
    let mut starts: Vec<u64> = times.iter().map(|t| t.first().map_or(0, |f| f.0.saturating_sub(begin))).collect();
    let mut simds = event.simds.clone();
    for &twin in &event.beside {
        starts.push(starts[twin]);
        simds.push(simds[twin] + 1);
        traces.push(traces[twin].clone());
    }
    let what = Resident {
        instrs: &instrs,
        groups: vec![&traces[..]],
        queue: Vec::new(),
        starts: vec![starts],
        cus: 1,
        simds: Some(simds),
    };
    let outcome = simulate(&chip, &what);
    for ((((result, hardware), model), shown), first) in
        out.iter_mut().zip(&times).zip(&outcome.issued).zip(&shown).zip(&first)
    {
        let model: Vec<_> = model.iter().zip(shown).filter(|(_, shown)| **shown).map(|(m, _)| m.at()).collect();
        let pairs = hardware.windows(2).zip(model.windows(2)).zip(first.iter().skip(1));
        result.intervals.extend(pairs.map(|((h, m), (first_touch, waits_for))| Interval {
            text: h[1].1.clone(),
            measured: h[1].0.saturating_sub(h[0].0),
            modelled: m[1].saturating_sub(m[0]),
            first_touch: *first_touch,
            waits_for: *waits_for,
        }));
        let span = |first: Option<u64>, last: Option<u64>| last.zip(first).map_or(0, |(l, f)| l.saturating_sub(f));
        result.measured = span(hardware.first().map(|h| h.0), hardware.last().map(|h| h.0));
        result.modelled = span(model.first().copied(), model.last().copied());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
=== event 0 se 0 itrace True gfx1100
     100: INST               wave=0 op=SMEM_RD s_load_b64(s[0:1], s[0:1])
    1300: IMMEDIATE          wave=0 s_waitcnt(64519)
    1301: VALUINST           wave=0 v_add_f32_e32(v[1], v[1], v[2])
    1302: ALUEXEC            src=VALU
    1306: VALUINST           wave=0 v_add_f32_e32(v[1], v[1], v[2])
    1400: WAVEEND            wave=0 simd=0 cu=0 s_endpgm()
";

    #[test]
    fn a_chain_of_additions_is_told_from_a_load() {
        let file = parse(TRACE).unwrap();
        assert_eq!(file.target, Target::GFX1100);
        let waves = compare(file.target, &file.events[0]).unwrap();
        assert_eq!((waves.len(), waves[0].instructions), (1, 4));
        assert!(waves[0].unknown.is_empty());
        let by: Vec<i64> = waves[0].intervals.iter().map(Interval::difference).collect();
        assert!(by[0].abs() < 200 && by[1] == 0 && by[2] == 0, "{by:?}");
        let touches: Vec<bool> = waves[0].intervals.iter().map(|i| i.first_touch).collect();
        assert_eq!(touches, [true, false, false]);
        assert_eq!(waves[0].intervals[0].waits_for, Some(Unit::Smem));
    }

    /// What the thread trace of gfx1201 shows: a queue of eight vector instructions for all waves of a SIMD.
    #[test]
    fn waves_share_a_queue_of_vector_instructions() {
        let matrix = |wave: u32, r: u32| {
            let (d, a) = (10 + 8 * r, 200);
            format!(
                "100: INST wave={wave} op=WMMA v_wmma_f32_16x16x16_f16(v[{d}:{}], v[{a}:{}], v[{a}:{}], v[{d}:{}])\n",
                d + 7,
                a + 3,
                a + 3,
                d + 7
            )
        };
        let mut text = String::from("=== event 0 gfx1201\n");
        (0..9).for_each(|r| text += &matrix(0, r));
        text += "100: VALUINST wave=1 v_mov_b32_e32(v[1], 0)\n100: VALUINST wave=1 v_mov_b32_e32(v[2], 0)\n";
        let file = parse(&text).unwrap();
        let waves = compare(file.target, &file.events[0]).unwrap();
        let gaps: Vec<u64> = waves[0].intervals.iter().map(|i| i.modelled).collect();
        assert_eq!(&gaps[..7], &[1; 7], "eight go at once");
        assert!((12..=24).contains(&gaps[7]), "the ninth waits for the first: {gaps:?}");
        assert_eq!(waves[1].intervals[0].modelled, 16, "another wave's wait for one to retire each");
    }

    /// LDS serves one SIMD after the other: what the one that is not traced reads shows in the waits of the other.
    #[test]
    fn the_other_simd_takes_its_share_of_lds() {
        let load = |wave: u32| format!("100: INST wave={wave} op=LDS_RD ds_load_b128(v[2:5], v[1])\n");
        let mut text = String::from("=== event 0 gfx1100\n");
        (0..3).for_each(|_| text += &load(0));
        text += "140: IMMEDIATE wave=0 s_waitcnt(64519)\n";
        let wait = |text: &str| {
            let file = parse(text).unwrap();
            compare(file.target, &file.events[0]).unwrap()[0].intervals[2].modelled
        };
        let alone = wait(&text);
        text += "100: INST wave=0 op=OTHER_LDS_1\n100: INST wave=7 op=OTHER_LDS_1\n";
        assert_eq!(parse(&text).unwrap().events[0].beside, [0, 0]);
        assert!(wait(&text) >= alone + 8, "{} {alone}", wait(&text));
    }

    #[test]
    fn snapshots_tell_the_clock() {
        let wait = |gap: u64| {
            let text = TRACE.replacen('\n', &format!("\n10: SNAPSHOT snap=0x1\n{}: SNAPSHOT snap=0x1\n", 10 + gap), 1);
            let file = parse(&text).unwrap();
            compare(file.target, &file.events[0]).unwrap()[0].intervals[0].modelled
        };
        assert!(wait(460) < wait(582) && wait(582) < wait(613));
        assert_eq!(wait(26_000), wait(582), "snapshots of another kind");
    }

    /// What traces of gfx1201 show: 1081 clocks for a wave alone on the device, 2030 where all begin together.
    #[test]
    fn waves_of_the_whole_device_touch_memory_later() {
        let load = "100: INST wave=W op=VMEM_RD_1 global_load_b32(v[1], v[0:1], s[6:7])\n101: IMMEDIATE wave=W s_wait_loadcnt()\n";
        let engine = |n: u32, waves: u32| {
            let lines: String = (0..waves).map(|w| load.replace('W', &w.to_string())).collect();
            format!("=== event {n} se {n} itrace True gfx1201\n{lines}")
        };
        let waits = |waves: [u32; 2]| {
            let file = parse(&(engine(0, waves[0]) + &engine(1, waves[1]) + "=== event 2 se 2 itrace False gfx1201\n"));
            let file = file.unwrap();
            let event = file.events.last().unwrap();
            (event.crowded, compare(file.target, event).unwrap()[0].intervals[0].modelled)
        };
        assert_eq!(waits([0, 1]), waits([0, 3]));
        let (alone, together) = (waits([0, 1]), waits([2, 2]));
        assert!(!alone.0 && together.0);
        assert!((1000..1200).contains(&alone.1) && (1900..2100).contains(&together.1), "{alone:?} {together:?}");
    }

    /// Each wave waits at the barrier for the one that comes last, though no trace has an instruction for that.
    #[test]
    fn barriers_are_waited_at_behind_the_signal() {
        let wave = |n: u32, moves: u32| {
            let mut text = String::new();
            (0..moves).for_each(|_| text += &format!("100: VALUINST wave={n} v_rcp_f32_e32(v[1], v[1])\n"));
            text += &format!("100: INST wave={n} op=BARRIER_SIGNAL s_barrier_signal(s[0], -1)\n");
            text + &format!("100: VALUINST wave={n} v_mov_b32_e32(v[2], 0)\n")
        };
        let file = parse(&format!("=== event 0 gfx1201\n{}{}", wave(0, 1), wave(1, 40))).unwrap();
        let waves = compare(file.target, &file.events[0]).unwrap();
        assert_eq!(waves[0].instructions, 3);
        let at = |wave: &Compared| wave.intervals.iter().map(|i| i.modelled).sum::<u64>();
        assert!(at(&waves[0]).abs_diff(at(&waves[1])) < 16, "{} {}", at(&waves[0]), at(&waves[1]));
    }

    #[test]
    fn cdna_names_simds() {
        let text = "\
=== event 0 se 0 itrace True gfx950
     100: INST_CDNA          wave=0 simd=1 op=VALU_32 v_add_f32_e32(v[1], v[1], v[2])
     104: INST_CDNA          wave=0 simd=3 op=VALU_32 v_add_f32_e32(v[1], v[1], v[2])
     104: INST_CDNA          wave=0 simd=1 op=VALU_32 v_add_f32_e32(v[1], v[1], v[2])
     112: IMMEDIATE_CDNA     wave=0 simd=1 s_nop(0)
     108: INST_CDNA          wave=0 simd=3 op=VALU_32 v_add_f32_e32(v[1], v[1], v[2])
     116: WAVEEND_CDNA       wave=0 simd=1 cu=0
     200: INST_CDNA          wave=0 simd=1 op=VALU_32 v_add_f32_e32(v[1], v[1], v[2])
";
        let file = parse(text).unwrap();
        let event = &file.events[0];
        assert_eq!((event.waves.len(), &event.simds[..]), (3, &[1, 3, 1][..]));
        let waves = compare(file.target, event).unwrap();
        assert_eq!(waves[0].intervals.iter().map(|i| i.modelled).collect::<Vec<u64>>(), [4, 4]);
        assert_eq!(waves[1].intervals[0].difference(), 0);
        let far = text.replace("simd=3", "simd=9");
        assert!(compare(file.target, &parse(&far).unwrap().events[0]).is_ok(), "a SIMD that the chip has not");
    }

    #[test]
    fn a_wave_of_unknown_instructions_is_nothing() {
        let file = parse("=== event 0 gfx1100\n100: INST wave=0 v_frobnicate_b32(v[1], v[2])\n").unwrap();
        let waves = compare(file.target, &file.events[0]).unwrap();
        assert_eq!((waves[0].instructions, waves[0].unknown.len(), waves[0].intervals.len()), (0, 1, 0));
    }

    #[test]
    fn broken_traces_say_where() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(error("=== event 0 gfx1100\nhello"), "line 2: expected `CYCLE: KIND ...`");
        assert_eq!(error("=== event 0 gfx1100\n12x: INST wave=0 s_nop(0)"), "line 2: '12x' is not a clock");
        assert_eq!(
            error("=== event 0 gfx1100\n281474976710656: INST wave=0 s_nop(0)"),
            "line 2: '281474976710656' is not a clock"
        );
        assert_eq!(error("=== event 0 gfx77"), "line 1: no target 'gfx77'");
        assert!(error("").contains("names a target"));
    }
}
