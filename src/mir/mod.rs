//! Machine IR: target instructions and typed generic operations over virtual registers.
//!
//! A [`Function`] is one kernel: blocks in layout order, each a list of instructions; a block falls through to the
//! next one unless it ends in an unconditional branch or `s_endpgm`. Values are virtual registers of a class (vector,
//! accumulation, scalar) and a width in dwords; a tuple is one value and its parts are named by dword. Virtual
//! registers may be written more than once. Registers that an instruction touches besides its operands (`scc`, `vcc`,
//! `exec`, `m0`) come from its table row. The same structure holds the code before and after register allocation:
//! operands are then physical [`Regs`].

pub mod abi;
mod builder;
mod chain;
mod constraint;
mod generic;
pub mod liveness;
pub(crate) mod loops;
mod matrix;
mod note;
mod space;
mod text;
mod verify;

pub use abi::first_workgroup_id;
pub(crate) use builder::drops;
pub use builder::{Buffer, Builder, OpenLoop, SLEEP};
pub use chain::InChain;
pub use constraint::{Constraint, Group};
pub use generic::{Gen, Generic, Type};
pub use loops::{Loop, Pipeline};
pub use matrix::{
    Dot, PackedSums, dot_instruction, is_chosen_matrix_instruction, matrix_clocks, matrix_instruction,
    matrix_modifiers, packed_sums, packs_f32, paired_multiply_adds, scaled_instruction, signed, sparse_instruction,
    sparse_modifiers,
};
pub use note::{Note, Term};
pub use space::{Lds, Memory, Space};
pub use text::{Malformed, ParseError, parse};
pub use verify::{VerifyError, verify, verify_form};

use barewave_isa::{Flags, Inst, Mods, Op, OpInfo, Operand, Regs, Target};
use smallvec::SmallVec;

/// A virtual register of one [`Function`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VReg(pub u32);

/// A block of one [`Function`]: its place in `Function::blocks`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

/// Register class of a virtual register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RegClass {
    /// Vector: 32 bits per lane per dword.
    V,
    /// Accumulation vector (CDNA).
    A,
    /// Scalar: 32 bits per wavefront per dword.
    S,
}

/// What is known of a virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VRegInfo {
    /// Register class.
    pub class: RegClass,
    /// Width in dwords, 1 to 32.
    pub dwords: u8,
    /// Required alignment of its first physical register.
    pub align: u8,
    /// Type of its elements; [`Type::B32`] when nothing is known of them. A register may hold several elements.
    pub ty: Type,
}

/// `len` dwords of a virtual register, from dword `first`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    /// The register.
    pub reg: VReg,
    /// First dword.
    pub first: u8,
    /// Number of dwords.
    pub len: u8,
}

impl Part {
    /// Dword `i` of this part.
    pub fn dword(self, i: u8) -> Part {
        assert!(i < self.len, "dword {i} of a part of {} dwords", self.len);
        Part { first: self.first + i, len: 1, ..self }
    }
    /// Dwords `i .. i + len` of this part.
    pub fn slice(self, i: u8, len: u8) -> Part {
        assert!(i + len <= self.len, "dwords {i}..{} of a part of {}", i + len, self.len);
        Part { first: self.first + i, len, ..self }
    }
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opnd {
    /// (Part of) a virtual register.
    V(Part),
    /// Physical registers.
    P(Regs),
    /// A constant, as in [`barewave_isa::Operand::Imm`].
    Imm(u64),
    /// The word `off` in the place of an address.
    Off,
    /// A branch target.
    Block(BlockId),
}

impl Opnd {
    /// The virtual register part, if it is one.
    #[inline]
    pub fn part(self) -> Option<Part> {
        match self {
            Opnd::V(p) => Some(p),
            _ => None,
        }
    }
}

impl From<Part> for Opnd {
    fn from(p: Part) -> Opnd {
        Opnd::V(p)
    }
}
impl From<Regs> for Opnd {
    fn from(r: Regs) -> Opnd {
        Opnd::P(r)
    }
}
impl From<u32> for Opnd {
    fn from(x: u32) -> Opnd {
        Opnd::Imm(x as u64)
    }
}
impl From<i32> for Opnd {
    fn from(x: i32) -> Opnd {
        Opnd::Imm(x as u32 as u64)
    }
}
impl From<f32> for Opnd {
    fn from(x: f32) -> Opnd {
        Opnd::Imm(x.to_bits() as u64)
    }
}

/// What an instruction does: a target instruction, or a generic operation before `select`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// A target instruction.
    Isa(Op),
    /// A generic operation.
    Gen(Generic),
}

impl From<Op> for Code {
    fn from(op: Op) -> Code {
        Code::Isa(op)
    }
}
impl From<Generic> for Code {
    fn from(g: Generic) -> Code {
        Code::Gen(g)
    }
}

/// One instruction. Operand order is that of [`barewave_isa::Inst`].
#[derive(PartialEq, Debug)]
pub struct MInst {
    /// What it does.
    pub code: Code,
    /// Destinations.
    pub dsts: SmallVec<[Opnd; 2]>,
    /// Sources.
    pub srcs: SmallVec<[Opnd; 4]>,
    /// Modifiers.
    pub mods: Mods,
    /// Memory that it touches.
    pub space: Space,
    /// Stage of the loop body that it stands in; see [`Loop`]. 0 elsewhere.
    pub stage: u8,
    /// What constraints of the block call it by.
    pub group: Group,
    /// What listings say of it.
    pub note: Note,
}

impl Clone for MInst {
    /// Lists at once, not an operand after the other.
    fn clone(&self) -> MInst {
        MInst {
            code: self.code,
            dsts: SmallVec::from_slice(&self.dsts),
            srcs: SmallVec::from_slice(&self.srcs),
            mods: self.mods.clone(),
            space: self.space,
            stage: self.stage,
            group: self.group,
            note: self.note,
        }
    }
}

impl From<Inst> for MInst {
    fn from(i: Inst) -> MInst {
        let operand = |o: &Operand| match *o {
            Operand::Regs(r) => Opnd::P(r),
            Operand::Imm(x) => Opnd::Imm(x),
            Operand::Off => Opnd::Off,
        };
        let list = |l: &[Operand]| l.iter().map(operand).collect::<Vec<_>>();
        MInst { mods: i.mods, ..MInst::new(i.op, &list(&i.dsts), &list(&i.srcs)) }
    }
}

impl MInst {
    /// An instruction without modifiers.
    pub fn new(code: impl Into<Code>, dsts: &[Opnd], srcs: &[Opnd]) -> MInst {
        MInst {
            code: code.into(),
            dsts: SmallVec::from_slice(dsts),
            srcs: SmallVec::from_slice(srcs),
            mods: Mods::new(),
            space: Space::default(),
            stage: 0,
            group: Group::default(),
            note: Note::default(),
        }
    }
    /// The target instruction; `None` for generic operations.
    #[inline]
    pub fn op(&self) -> Option<Op> {
        match self.code {
            Code::Isa(op) => Some(op),
            Code::Gen(_) => None,
        }
    }
    /// Table row on `target`.
    #[inline]
    pub fn info(&self, target: Target) -> Option<&'static OpInfo> {
        self.op().and_then(|op| target.op(op))
    }
    /// It loads from memory straight to LDS.
    pub fn loads_to_lds(&self, target: Target) -> bool {
        self.op().is_some_and(|op| target.loads_to_lds(op, &self.mods))
    }
    /// Operands that are read: sources, and destinations whose old value matters.
    pub fn uses(&self, target: Target) -> impl Iterator<Item = Opnd> + '_ {
        let info = self.info(target);
        let tied = self
            .dsts
            .iter()
            .enumerate()
            .filter(move |(i, _)| info.is_some_and(|x| x.dsts.get(*i).is_some_and(|s| s.read)));
        self.srcs.iter().copied().chain(tied.map(|(_, o)| *o))
    }
}

/// Who orders the instructions of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The scheduler.
    #[default]
    Free,
    /// The author: they stay as they stand. In a pipelined loop that is the order of a round in steady state.
    Fixed,
}

/// A straight run of instructions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Block {
    /// Label, unique in the function; also what the assembly shows.
    pub name: String,
    /// Instructions; branches only at the end.
    pub insts: Vec<MInst>,
    /// Who orders the instructions.
    pub order: Order,
    /// What their order must hold to besides.
    pub constraints: Vec<Constraint>,
    /// Text shown above the block in assembly.
    pub comment: String,
}

/// Values the hardware hands to a kernel: physical registers preloaded before its first instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Preloads {
    /// Address of the kernel arguments, a pair of SGPRs.
    pub kernarg: Option<VReg>,
    /// Workgroup id in x, y, z.
    pub workgroup_id: [Option<VReg>; 3],
    /// Flat workitem id (one-dimensional workgroups), a VGPR.
    pub workitem_id: Option<VReg>,
    /// Scratch memory where hardware does not set it up: its buffer resource (four SGPRs) and the byte offset of the
    /// wave's part. The register allocator asks for it when it spills.
    pub scratch: Option<[VReg; 2]>,
}

/// One kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// Symbol name.
    pub name: String,
    /// What source operator it computes, for listings.
    pub comment: String,
    /// Target.
    pub target: Target,
    /// Virtual registers.
    pub vregs: Vec<VRegInfo>,
    /// Blocks in layout order; the first is the entry.
    pub blocks: Vec<Block>,
    /// Loops that are not yet branches, in order of their latches. A block is the latch of at most one.
    pub loops: Vec<Loop>,
    /// Hardware-provided values.
    pub preloads: Preloads,
    /// Static LDS in bytes.
    pub lds_bytes: u32,
    /// Size of the kernel arguments in bytes.
    pub kernarg_bytes: u32,
    /// Workitems per workgroup.
    pub workgroup_size: u32,
    /// Workgroups of a launch, where that is known: passes ask it how many share a compute unit.
    pub workgroups: Option<u32>,
    /// Scratch bytes per workitem (spills).
    pub scratch_bytes: u32,
}

impl Function {
    /// Info of a virtual register.
    #[inline]
    pub fn vreg(&self, v: VReg) -> VRegInfo {
        self.vregs[v.0 as usize]
    }
    /// The whole of a virtual register.
    pub fn whole(&self, v: VReg) -> Part {
        Part { reg: v, first: 0, len: self.vreg(v).dwords }
    }
    /// Adds a virtual register for any bits.
    pub fn new_vreg(&mut self, class: RegClass, dwords: u8) -> Part {
        self.new_typed(class, dwords, Type::B32)
    }
    /// Adds a virtual register for elements of a type.
    pub fn new_typed(&mut self, class: RegClass, dwords: u8, ty: Type) -> Part {
        let align = natural_align(self.target, class, dwords);
        self.vregs.push(VRegInfo { class, dwords, align, ty });
        Part { reg: VReg(self.vregs.len() as u32 - 1), first: 0, len: dwords }
    }
    /// Dwords of a wavefront mask: 2 in wave64, 1 in wave32.
    pub fn mask_dwords(&self) -> u8 {
        (self.target.info().wave_size / 32) as u8
    }
    /// Blocks that may follow `b`.
    pub fn successors(&self, b: usize) -> SmallVec<[usize; 2]> {
        let mut out = SmallVec::new();
        let mut falls = b + 1 < self.blocks.len();
        out.extend(self.loops.iter().filter(|l| l.latch.0 as usize == b).map(|l| l.header.0 as usize));
        for inst in &self.blocks[b].insts {
            // What branches has no results.
            if !inst.dsts.is_empty() {
                continue;
            }
            for s in inst.srcs.iter() {
                if let Opnd::Block(t) = s {
                    out.push(t.0 as usize);
                }
            }
        }
        let ends = |i: &MInst| {
            let flags = i.info(self.target).map_or(Flags(0), |x| x.flags);
            flags.has(Flags::TERMINATOR) && !flags.has(Flags::CONDITIONAL)
        };
        falls &= !self.blocks[b].insts.iter().rev().any(|i| i.dsts.is_empty() && ends(i));
        if falls && !out.contains(&(b + 1)) {
            out.push(b + 1);
        }
        out
    }
    /// Number of instructions.
    pub fn inst_count(&self) -> usize {
        self.blocks.iter().map(|b| b.insts.len()).sum()
    }
}

/// Alignment a tuple needs to be used by any instruction of the target: what its table rows ask of a tuple of that
/// size (SGPR tuples even, from four dwords on multiples of four; VGPR tuples even on gfx90a and later CDNA).
pub fn natural_align(target: Target, class: RegClass, dwords: u8) -> u8 {
    match class {
        RegClass::S => match dwords {
            1 => 1,
            2 => 2,
            _ => 4,
        },
        RegClass::V | RegClass::A => {
            if dwords > 1 && target.info().vgpr_tuple_align > 1 {
                target.info().vgpr_tuple_align
            } else {
                1
            }
        }
    }
}
