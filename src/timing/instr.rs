//! What the model asks of an instruction: unit, cycles, registers, counters. All of it comes from the instruction tables.

use barewave_isa::matrix::Layout;
use barewave_isa::{Class, Counter, Flags, Inst, ModName, Op, OpInfo, Operand, Pipe, Raw, Reg, Target, op};
use smallvec::SmallVec;

/// What executes an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// Vector ALU.
    Valu,
    /// Transcendental unit (a part of the vector ALU on GCN and CDNA).
    Trans,
    /// Matrix unit.
    Matrix,
    /// Scalar ALU.
    Salu,
    /// Scalar memory.
    Smem,
    /// LDS.
    Lds,
    /// Vector memory.
    Vmem,
    /// Branches.
    Branch,
    /// Exports.
    Export,
    /// The sequencer itself: waits, no-operations, barriers.
    Internal,
}

impl Unit {
    /// Name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Valu => "valu",
            Unit::Trans => "trans",
            Unit::Matrix => "matrix",
            Unit::Salu => "salu",
            Unit::Smem => "smem",
            Unit::Lds => "lds",
            Unit::Vmem => "vmem",
            Unit::Branch => "branch",
            Unit::Export => "export",
            Unit::Internal => "internal",
        }
    }
}

/// How waves meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// Arrives and waits.
    Barrier,
    /// Arrives and goes on (gfx12).
    Signal,
    /// Waits for the others (gfx12).
    Wait,
}

/// One of two instructions that are issued as one.
#[derive(Clone, Debug)]
pub struct Half {
    /// Registers read.
    pub reads: SmallVec<[u16; 8]>,
    /// Registers written.
    pub writes: SmallVec<[u16; 4]>,
}

/// An instruction as the model sees it.
#[derive(Clone, Debug)]
pub struct Instr {
    /// Mnemonic.
    pub name: &'static str,
    /// What executes it.
    pub unit: Unit,
    /// Clocks until a dependent instruction may issue (memory: first-level hit).
    pub latency: u32,
    /// Clocks the unit is busy.
    pub busy: u32,
    /// Registers read.
    pub reads: SmallVec<[u16; 8]>,
    /// Registers written.
    pub writes: SmallVec<[u16; 4]>,
    /// Of two that are issued as one, each.
    pub halves: Option<Box<[Half; 2]>>,
    /// First register of what a matrix instruction adds to, where it leaves its result there: the next one need not wait for it.
    pub accumulator: Option<u16>,
    /// Counters it increments.
    pub counters: SmallVec<[Counter; 2]>,
    /// What it waits for.
    pub waits: SmallVec<[(Counter, u8); 3]>,
    /// How it meets other waves.
    pub meeting: Option<Meeting>,
    /// Issue slots that it takes for nothing (`s_nop`, `s_sleep`).
    pub idle: u32,
    /// Priority that it gives its wave (`s_setprio`).
    pub priority: Option<u8>,
    /// Writes memory.
    pub store: bool,
    /// Changes memory in place.
    pub atomic: bool,
    /// A load that sees what other workgroups of the device have stored, or an atomic of memory that gives what it found.
    pub sees_others: bool,
    /// A packed f32 or f64 instruction that shares the matrix unit's data path (gfx90a on).
    pub on_matrix_path: bool,
    /// A vector instruction that takes several clocks of an RDNA SIMD: 64-bit ones, which share the transcendental unit.
    pub wide: bool,
    /// A matrix instruction in whose shadow no vector instruction runs.
    pub blocks_vector: bool,
    /// Bytes of memory of a lane (of the wave for scalar memory).
    pub bytes: u32,
    /// It loads from memory straight to LDS, where what it brings is written as any other write.
    pub fills_lds: bool,
    /// It loads or stores data: vector memory, and scalar loads through a buffer resource or of memory that an argument begins in. Other scalar
    /// loads are of what a launch is told.
    pub moves_data: bool,
    /// Of a branch, how many bytes behind the instruction after it it goes.
    pub jump: Option<i64>,
    /// Costs nothing: hints that the sequencer swallows.
    pub free: bool,
    /// It tells the sequencer how to go on, and does nothing else.
    pub hint: bool,
    /// Registers that say where in memory it goes.
    pub places: SmallVec<[u16; 4]>,
    /// It takes registers of other lanes by way of LDS, without touching what is there.
    pub exchanges: bool,
    /// It uses registers that a register chooses.
    pub indirect: bool,
    /// It may leave a part of what it writes as it was: a vector instruction with modifiers.
    pub partial: bool,
}

fn unit(pipe: Pipe, trans: bool, internal: bool) -> Unit {
    match pipe {
        _ if internal => Unit::Internal,
        Pipe::Salu => Unit::Salu,
        Pipe::Smem => Unit::Smem,
        Pipe::Trans => Unit::Trans,
        Pipe::Valu if trans => Unit::Trans,
        Pipe::Valu => Unit::Valu,
        Pipe::Matrix => Unit::Matrix,
        Pipe::Lds => Unit::Lds,
        Pipe::Vmem => Unit::Vmem,
        Pipe::Branch => Unit::Branch,
        Pipe::Export => Unit::Export,
    }
}

/// An instruction's result is what memory holds for the whole device, by its cache policy; an atomic's always is.
fn sees_others(target: Target, inst: &Inst, info: &OpInfo) -> bool {
    let policy = inst.mods.get(ModName::Cpol).unwrap_or(0) as u32;
    let memory = matches!(info.pipe, Pipe::Vmem | Pipe::Smem) && !inst.dsts.is_empty();
    let loads = info.flags.has(Flags::LOAD) && policy & target.info().device_load != 0;
    memory && (loads || info.flags.has(Flags::ATOMIC))
}

/// Clocks of one `s_sleep` step. Source: "RDNA3" manual, S_SLEEP.
const SLEEP: u32 = 64;

impl Instr {
    /// Describes an instruction for waves of `lanes` lanes, with its halves; `None` when the target has it not.
    pub fn decoded(target: Target, raw: &Raw, lanes: u32) -> Option<Instr> {
        let mut whole = Instr::new(target, &raw.inst(), lanes)?;
        if let Some(halves) = raw.halves() {
            let [x, y] = halves.map(|half| Instr::new(target, &half, lanes));
            whole.halves =
                x.zip(y).map(|(x, y)| Box::new([x, y].map(|Instr { reads, writes, .. }| Half { reads, writes })));
        }
        Some(whole)
    }

    /// What it reads and writes, of two that are issued as one each by itself.
    pub fn parts(&self) -> impl Iterator<Item = (&[u16], &[u16])> {
        let whole = self.halves.is_none().then_some((&self.reads[..], &self.writes[..]));
        let halves = self.halves.iter().flat_map(|h| h.iter().map(|h| (&h.reads[..], &h.writes[..])));
        halves.chain(whole)
    }

    /// The same of an instruction in its parts, which do not tell halves.
    pub fn new(target: Target, inst: &Inst, lanes: u32) -> Option<Instr> {
        let info = target.op(inst.op)?;
        let quad = target.info().simds == 4;
        let numbers = |list: &[Operand]| -> SmallVec<[u16; 8]> {
            list.iter().filter_map(|o| o.regs()).flat_map(|r| r.iter()).map(|r| r.0).collect()
        };
        let mut reads = numbers(&inst.srcs);
        let mut writes: SmallVec<[u16; 4]> = numbers(&inst.dsts).into_iter().collect();
        for (o, slot) in inst.dsts.iter().zip(info.dsts) {
            if slot.read
                && let Some(r) = o.regs()
            {
                reads.extend(r.iter().map(|r| r.0));
            }
        }
        let tracked = |r: &&Reg| !matches!(**r, Reg::MODE | Reg::M0);
        reads.extend(info.reads.iter().filter(tracked).map(|r| r.0));
        writes.extend(info.writes.iter().filter(tracked).map(|r| r.0));
        let moves = matches!(info.pipe, Pipe::Vmem | Pipe::Lds | Pipe::Smem);
        let exchanges = info.pipe == Pipe::Lds && info.flags.has(Flags::CROSS_LANE);
        let placed = moves && !exchanges;
        let places = inst.srcs.iter().zip(info.srcs).filter(|(_, slot)| placed && !slot.name.contains("data"));
        let places: Vec<Operand> = places.map(|(o, _)| *o).collect();
        let matrix = info.flags.has(Flags::MATRIX);
        let regs = |list: &[Operand], n: usize| list.get(n).and_then(|o| o.regs());
        let added = regs(&inst.srcs, 2).filter(|c| matrix && regs(&inst.dsts, 0) == Some(*c));
        let multiplied = |r: u16| inst.srcs.iter().take(2).filter_map(|o| o.regs()).any(|s| s.iter().any(|x| x.0 == r));
        let accumulator = added.filter(|c| !c.iter().any(|r| multiplied(r.0))).map(|c| c.first.0);
        let (class, _) = target.latency_class(inst.op);
        let internal = matches!(class, "wait" | "barrier");
        let passes = if !quad && lanes > target.info().wave_size && info.pipe == Pipe::Valu { 2 } else { 1 };
        let immediate = match inst.srcs.first() {
            Some(Operand::Imm(v)) => *v as u32 & 0xffff,
            _ => 0,
        };
        let idle = match inst.op {
            op::S_NOP => immediate + 1,
            op::S_SLEEP => (immediate & 127) * SLEEP,
            _ => 0,
        };
        let meeting = match inst.op {
            op::S_BARRIER => Some(Meeting::Barrier),
            op::S_BARRIER_SIGNAL | op::S_BARRIER_SIGNAL_ISFIRST => Some(Meeting::Signal),
            op::S_BARRIER_WAIT => Some(Meeting::Wait),
            _ => None,
        };
        // Transcendentals with scalar operands (gfx12) keep their unit for a clock (thread trace of gfx1201).
        let to_scalar =
            info.flags.has(Flags::TRANS) && info.dsts.first().is_some_and(|d| d.class.0 & Class::VGPR.0 == 0);
        let unified = target.info().unified_agprs;
        // The types of what is multiplied may say so (f8f6f4).
        let longer = target.passes(inst).map_or(0, |p| u32::from(p) * 4).saturating_sub(u32::from(info.busy));
        Some(Instr {
            name: info.name,
            unit: unit(info.pipe, info.flags.has(Flags::TRANS), internal),
            latency: u32::from(info.latency) + (passes - 1) + longer,
            busy: if to_scalar { 1 } else { u32::from(info.busy) * passes + longer },
            reads,
            writes,
            halves: None,
            accumulator,
            counters: target.counters(inst).iter().copied().collect(),
            waits: target.decode_wait(inst).unwrap_or_default().into_iter().collect(),
            meeting,
            idle,
            priority: (inst.op == op::S_SETPRIO).then_some((immediate & 3) as u8),
            store: info.flags.has(Flags::STORE),
            atomic: info.flags.has(Flags::ATOMIC),
            sees_others: sees_others(target, inst, info),
            on_matrix_path: unified && info.flags.has(Flags::PACKED) && info.name.ends_with("_f32"),
            wide: !quad && info.pipe == Pipe::Valu && !info.flags.has(Flags::TRANS) && info.busy > 1,
            blocks_vector: matrix && shadowless(target, info.name, info.flags),
            bytes: u32::from(info.mem_bytes),
            fills_lds: target.loads_to_lds(inst.op, &inst.mods),
            moves_data: info.pipe == Pipe::Vmem || info.pipe == Pipe::Smem && info.name.starts_with("s_buffer_load"),
            jump: match inst.srcs.first() {
                Some(Operand::Imm(n)) if info.flags.has(Flags::BRANCH) => Some(*n as i64 * 4),
                _ => None,
            },
            free: matches!(inst.op, op::S_DELAY_ALU),
            hint: matches!(inst.op, op::S_NOP | op::S_SETPRIO | op::S_CLAUSE | op::S_DELAY_ALU),
            places: numbers(&places).into_iter().collect(),
            exchanges,
            indirect: matches!(info.pipe, Pipe::Valu | Pipe::Salu) && info.reads.contains(&Reg::M0),
            partial: !moves && !inst.mods.is_empty(),
        })
    }
}

/// An instruction multiplies matrices and leaves its SIMD's vector ALU nothing to do meanwhile.
pub fn multiplies_alone(target: Target, op: Op) -> bool {
    let matrix = target.op(op).filter(|info| info.pipe == Pipe::Matrix);
    matrix.is_some_and(|info| shadowless(target, info.name, info.flags))
}

/// True when no vector instruction of the same SIMD runs beside a matrix instruction: on gfx11 the vector ALU itself
/// multiplies, f64 has no shadow anywhere, f32 none on gfx942. Source: AMD's matrix instruction calculator ("Can co-execute
/// with VALU").
fn shadowless(target: Target, name: &str, flags: Flags) -> bool {
    let info = target.info();
    let single = !flags.has(Flags::XDL) && name.ends_with("_f32");
    info.wmma == Some(Layout::Wmma11) || flags.has(Flags::DGEMM) || single && info.fnuz
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::{Mode, parse};

    fn instr(target: Target, text: &str) -> Instr {
        let inst = parse(target, Mode::of(target), text).unwrap().inst();
        Instr::new(target, &inst, target.info().wave_size).unwrap()
    }

    #[test]
    fn units_and_counters_come_from_the_tables() {
        let t = Target::GFX942;
        let fma = instr(t, "v_fma_f32 v0, v1, v2, v3");
        assert_eq!((fma.unit, fma.latency, fma.busy), (Unit::Valu, 4, 4));
        assert_eq!(&fma.reads[..3], &[1, 2, 3]);
        let mfma = instr(t, "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]");
        assert_eq!((mfma.unit, mfma.busy, mfma.accumulator), (Unit::Matrix, 32, Some(0)));
        assert!(!mfma.blocks_vector);
        // What it multiplies is waited for, and so is a result in another place.
        for text in [
            "v_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[18:19], v[0:15]",
            "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[20:35]",
        ] {
            assert_eq!(instr(t, text).accumulator, None);
        }
        assert!(instr(t, "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3]").blocks_vector);
        assert!(!instr(Target::GFX90A, "v_mfma_f32_16x16x4f32 v[0:3], v4, v5, v[0:3]").blocks_vector);
        // Elements of eight bits take twice the time of those of four.
        let eight = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3]";
        assert_eq!(instr(Target::GFX950, eight).busy, 32);
        let small = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:15], v[0:3] cbsz:4 blgp:4";
        assert_eq!(instr(Target::GFX950, small).busy, 16);
        let load = instr(t, "global_load_dwordx4 v[0:3], v4, s[0:1]");
        assert_eq!((load.unit, load.bytes, load.store), (Unit::Vmem, 16, false));
        assert_eq!(&load.counters[..], &[Counter::Vm]);
        let wait = instr(t, "s_waitcnt vmcnt(2)");
        assert_eq!(wait.unit, Unit::Internal);
        assert!(wait.waits.contains(&(Counter::Vm, 2)));
        assert_eq!(instr(Target::GFX1201, "s_barrier_signal -1").meeting, Some(Meeting::Signal));
        assert_eq!(instr(t, "s_nop 3").idle, 4);
    }
}
