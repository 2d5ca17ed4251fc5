//! What the checks ask about one instruction: which registers it touches and how, and where control goes.

use super::regs::Span;
use crate::codeobj::Family;
use barewave_isa::action::{Address, Part};
use barewave_isa::{Counter, Flags, Inst, ModName, OpInfo, Operand, Pipe, Raw, Reg, Target, Traits, op};
use smallvec::SmallVec;
use std::ops::Deref;
use std::rc::Rc;

/// How an instruction uses a run of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The registers.
    pub span: Span,
    /// Its value decides what the instruction does.
    pub reads: bool,
    /// They hold something else afterwards.
    pub writes: bool,
    /// Position among the sources; 255 for destinations and what no operand names.
    pub source: u8,
}

/// `Use::source` of a destination that is also read.
pub const TIED: u8 = 254;
/// `Use::source` of registers that no operand names.
pub const IMPLIED: u8 = 253;
/// `Use::source` of destinations.
pub const RESULT: u8 = 255;

/// Where control goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To an address.
    Jump(u64),
    /// To an address or the next instruction.
    Branch(u64),
    /// To an address in registers.
    Indirect(Span),
    /// To an address in registers; the address of the next instruction is kept.
    CallRegister(Span),
    /// To an address; the address of the next instruction is kept.
    Call(u64),
    /// Nowhere.
    End,
}

/// A decoded instruction at its place.
pub struct Line {
    /// Its address, relative to the load address.
    pub at: u64,
    /// Control flow.
    pub flow: Flow,
    /// It is taken for absent.
    pub left_out: bool,
    /// What its bits mean.
    means: Rc<Meaning>,
}

/// What the bits of an instruction mean, wherever it stands: code has most of its instructions several times.
pub struct Meaning {
    /// The bits.
    pub raw: Raw,
    /// Typed operands.
    pub inst: Inst,
    /// The row of the tables.
    pub info: &'static OpInfo,
    /// Words that hazards use.
    pub traits: Traits,
    /// Registers.
    pub uses: SmallVec<[Use; 12]>,
    /// Counters that it increments.
    pub counters: &'static [Counter],
    /// It writes registers that are not those of lanes.
    pub writes_scalars: bool,
    /// What it reads may be an address, data for memory, a new EXEC, a condition or where to go.
    pub decides: bool,
}

impl Deref for Line {
    type Target = Meaning;
    fn deref(&self) -> &Meaning {
        &self.means
    }
}

impl Meaning {
    /// What bits mean whose row of the tables is `info`.
    pub fn new(target: Target, info: &'static OpInfo, wave64: bool, raw: Raw) -> Meaning {
        let inst = raw.inst();
        let mut uses: SmallVec<[Use; 12]> = SmallVec::new();
        let mut add = |span: Option<Span>, reads, writes, source| {
            if let Some(span) = span {
                uses.push(Use { span, reads, writes, source });
            }
        };
        let swaps = matches!(inst.op, op::V_SWAP_B32 | op::V_SWAP_B16 | op::V_SWAPREL_B32);
        for (i, o) in inst.srcs.iter().enumerate() {
            add(o.regs().and_then(Span::of), true, false, i as u8);
        }
        for (i, o) in inst.dsts.iter().enumerate() {
            let span = o.regs().and_then(Span::of);
            add(span, false, true, RESULT);
            if info.dsts.get(i).is_some_and(|s| s.read) || swaps {
                add(span, true, false, TIED);
            }
        }
        // The tables name the whole mask for targets whose own waves have 64 lanes only.
        let mut implied = |list: &[Reg], reads| {
            for &r in list {
                let span = Span::one(r).map(|s| match r {
                    Reg::VCC_LO | Reg::EXEC_LO if wave64 => Span { count: 2, ..s },
                    _ => s,
                });
                let other_half = matches!(r, Reg::VCC_HI | Reg::EXEC_HI);
                add(span.filter(|_| !other_half), reads, !reads, if reads { IMPLIED } else { RESULT });
            }
        };
        implied(info.reads, true);
        implied(info.writes, false);
        let writes_scalars = uses.iter().any(|u| u.writes && !u.span.is_vector());
        let writes_exec =
            writes_scalars && uses.iter().any(|u| u.writes && !u.span.is_vector() && u.span.start() == Reg::EXEC_LO);
        let odd = Flags(Flags::LOAD.0 | Flags::STORE.0 | Flags::ATOMIC.0 | Flags::BRANCH.0);
        let decides = writes_exec || info.flags.0 & odd.0 != 0;
        let (traits, counters) = (Traits::of(info, &inst), target.counters(&inst));
        Meaning { raw, info, traits, uses, counters, writes_scalars, decides, inst }
    }
}

impl Line {
    /// The instruction at an address; the one at `without` is taken for absent.
    pub fn new(at: u64, means: Rc<Meaning>, without: Option<u64>) -> Line {
        let flow = find_flow(means.info, &means.inst, at + means.raw.len() as u64);
        Line { at, flow, left_out: without == Some(at), means }
    }

    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.at + self.raw.len() as u64
    }

    /// True when it has the trait.
    pub fn is(&self, t: Traits) -> bool {
        self.traits.has(t)
    }

    /// True when it has the property.
    pub fn has(&self, f: Flags) -> bool {
        self.info.flags.has(f)
    }

    /// Registers read.
    pub fn reads(&self) -> impl Iterator<Item = Span> + '_ {
        self.uses.iter().filter(|u| u.reads).map(|u| u.span)
    }

    /// Registers written.
    pub fn writes(&self) -> impl Iterator<Item = Span> + '_ {
        self.uses.iter().filter(|u| u.writes).map(|u| u.span)
    }

    /// The number that a source is.
    pub fn constant(&self, i: usize) -> Option<u64> {
        match self.inst.srcs.get(i) {
            Some(Operand::Imm(v)) => Some(*v),
            _ => None,
        }
    }

    /// The registers that a source is.
    pub fn source(&self, i: usize) -> Option<Span> {
        self.inst.srcs.get(i)?.regs().and_then(Span::of)
    }

    /// The registers of the first destination.
    pub fn result(&self) -> Option<Span> {
        self.inst.dsts.first()?.regs().and_then(Span::of)
    }

    /// The registers of the source with a name in the tables.
    pub fn named(&self, name: &str) -> Option<Span> {
        let i = self.info.srcs.iter().position(|s| s.name == name)?;
        self.source(i)
    }

    /// The name that the tables give a source.
    pub fn source_name(&self, i: u8) -> &'static str {
        self.info.srcs.get(usize::from(i)).map_or("", |s| s.name)
    }

    /// Halves of the destination that a load fills: low 1, high 2.
    pub fn fills(&self) -> u8 {
        match self.inst.op.memory().map(|m| m.part) {
            Some(Part::High) => 2,
            // a format of several halves fills whole registers
            Some(Part::Low) if self.result().is_some_and(|r| r.count == 1) && self.info.mem_bytes <= 2 => 1,
            _ => 3,
        }
    }

    /// True when it accesses LDS through a counter: reads or writes its bytes.
    pub fn touches_lds(&self) -> bool {
        self.info.pipe == Pipe::Lds
            && !self.is(Traits::GDS)
            && !self.counters.is_empty()
            && (self.has(Flags::LOAD) || self.has(Flags::STORE) || self.has(Flags::ATOMIC))
    }

    /// Wait states that it takes: the time of one instruction, or what `s_nop` says.
    pub fn states(&self) -> u32 {
        match (self.inst.op, self.constant(0)) {
            (op::S_NOP, Some(n)) => (n & 15) as u32 + 1,
            _ => 1,
        }
    }

    /// True when a source describes a buffer or image.
    pub fn has_resource(&self) -> bool {
        self.info.srcs.iter().any(|s| matches!(s.name, "srsrc" | "rsrc"))
    }

    /// Form of its address.
    pub fn address(&self) -> Option<Address> {
        self.inst.op.memory().map(|m| m.address)
    }

    /// Modifier value, 0 when it is not given.
    pub fn modifier(&self, name: ModName) -> i32 {
        self.inst.mods.get(name).unwrap_or(0)
    }
}

/// Where control goes from an instruction that ends before address `end`.
fn find_flow(info: &OpInfo, inst: &Inst, end: u64) -> Flow {
    let source = || inst.srcs.first().and_then(|o| o.regs()).and_then(Span::of);
    let label = || {
        let words = inst.srcs.last().and_then(|o| if let Operand::Imm(v) = o { Some(*v as i64) } else { None });
        end.wrapping_add_signed(words.unwrap_or(0).wrapping_mul(4))
    };
    match inst.op {
        op::S_SETPC_B64 | op::S_RFE_B64 => source().map_or(Flow::End, Flow::Indirect),
        op::S_SWAPPC_B64 => source().map_or(Flow::End, Flow::CallRegister),
        op::S_CALL_B64 => Flow::Call(label()),
        _ if !info.flags.has(Flags::BRANCH) && !info.flags.has(Flags::TERMINATOR) => Flow::Next,
        _ if !info.flags.has(Flags::BRANCH) => Flow::End,
        _ if info.flags.has(Flags::CONDITIONAL) => Flow::Branch(label()),
        op::S_BRANCH => Flow::Jump(label()),
        // fork and join of gfx8 keep their own stack
        _ => Flow::Branch(label()),
    }
}

/// True when 16-bit operands name halves of registers: how the hardware reads them, whatever an assembler prints.
pub fn has_halves(family: Family) -> bool {
    family.true16()
}
