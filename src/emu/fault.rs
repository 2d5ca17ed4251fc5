//! What stops a launch.

use std::fmt;

/// Why a wave could not go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The bytes at the program counter are not an instruction of the target.
    IllegalInstruction,
    /// The emulator has no semantics for this instruction.
    Unimplemented(String),
    /// The program counter left the code that was loaded.
    BadJump(u64),
    /// An access outside of every allocation: device address, size in bytes, is a store.
    OutOfBounds {
        /// Device address.
        addr: u64,
        /// Bytes.
        size: u32,
        /// A store or atomic.
        store: bool,
    },
    /// Strict mode: an access to an allocation that was freed.
    Freed {
        /// Device address.
        addr: u64,
        /// Bytes.
        size: u32,
        /// A store or atomic.
        store: bool,
        /// Start of what was freed.
        start: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// An access outside of the workgroup's LDS: byte address, size, bytes that the workgroup has.
    LdsOutOfBounds {
        /// Byte address in LDS.
        addr: u32,
        /// Bytes.
        size: u32,
        /// LDS of the workgroup.
        limit: u32,
    },
    /// Strict mode: an address that is not a multiple of what the instruction needs.
    Misaligned {
        /// Address.
        addr: u64,
        /// Alignment needed, bytes.
        align: u32,
    },
    /// Strict mode: a register that was never written is read.
    UndefinedRegister(String),
    /// Strict mode: a register is used while the memory operation that fills it (or reads it) is outstanding.
    MissingWait {
        /// The register.
        register: String,
        /// What is outstanding, with its counter.
        pending: String,
    },
    /// Strict mode: too few wait states between two instructions.
    MissingWaitStates {
        /// States needed.
        need: u32,
        /// States found.
        have: u32,
        /// Register or resource, and the earlier instruction.
        what: String,
    },
    /// Strict mode: something other than wait states is missing between two instructions.
    MissingGap {
        /// The earlier instruction, or what it did.
        what: String,
        /// What is missing.
        wait: String,
    },
    /// Strict mode: a clause has something that cannot stand in it.
    BrokenClause {
        /// What, or how many.
        what: String,
    },
    /// Strict mode: bytes of LDS or device memory are read that nothing has written.
    UninitialisedRead {
        /// `LDS` or `memory`.
        space: &'static str,
        /// Address of the first such byte.
        addr: u64,
    },
    /// Strict mode: two waves access the same LDS bytes without a barrier in between, at least one writes.
    LdsRace {
        /// Byte address.
        addr: u32,
        /// The other wave of the workgroup; `None` when there are several.
        other_wave: Option<u32>,
    },
    /// Strict mode: two waves access the same bytes of device memory and nothing orders them, at least one writes.
    MemoryRace {
        /// Device address.
        addr: u64,
        /// Workgroup of the other wave, and its number there; `None` when there are several.
        other: Option<([u32; 3], u32)>,
    },
    /// Strict mode: a wave reaches a barrier while some of the lanes that were launched are masked off.
    DivergentBarrier {
        /// Active lanes.
        active: u64,
        /// Lanes that were launched.
        launched: u64,
    },
    /// Waves of a workgroup disagree: some wait at a barrier for ever.
    BarrierDeadlock,
    /// The bound on instructions was reached.
    InstructionLimit(u64),
    /// The deadline of the launch was reached.
    Timeout,
    /// `s_trap` or another request to the trap handler.
    Trap(u32),
    /// The kernel asks for something that this device cannot give.
    Launch(String),
    /// A setting of the MODE register or a modifier that the emulator does not model.
    Unsupported(String),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FaultKind::*;
        match self {
            IllegalInstruction => write!(f, "illegal instruction"),
            Unimplemented(op) => write!(f, "the emulator does not implement {op}"),
            BadJump(a) => write!(f, "jump to {a:#x}, where no code is loaded"),
            OutOfBounds { addr, size, store } => {
                write!(
                    f,
                    "{} of {size} bytes at {addr:#x} is outside of device memory",
                    if *store { "store" } else { "load" }
                )
            }
            Freed { addr, size, store, start, bytes } => {
                let what = if *store { "store" } else { "load" };
                let at = addr - start;
                write!(
                    f,
                    "{what} of {size} bytes at {addr:#x}: byte {at} of {bytes} at {start:#x} that were freed before"
                )
            }
            LdsOutOfBounds { addr, size, limit } => {
                write!(f, "LDS access of {size} bytes at {addr:#x}, the workgroup has {limit:#x}")
            }
            Misaligned { addr, align } => write!(f, "address {addr:#x} is not a multiple of {align}"),
            UndefinedRegister(r) => write!(f, "{r} is read but was never written"),
            MissingWait { register, pending } => write!(f, "{register} is used before a wait for {pending}"),
            MissingWaitStates { need, have, what } => write!(f, "{need} wait states needed after {what}, {have} found"),
            UninitialisedRead { space, addr } => write!(f, "uninitialised {space} is read at {addr:#x}"),
            MissingGap { what, wait } => write!(f, "missing after {what}: {wait}"),
            BrokenClause { what } => write!(f, "not a clause: {what}"),
            LdsRace { addr, other_wave } => {
                let other = other_wave.map_or("several waves".into(), |w| format!("wave {w}"));
                write!(f, "LDS race at {addr:#x} with {other}: no barrier between the accesses")
            }
            MemoryRace { addr, other } => {
                let name = |([x, y, z], w): &([u32; 3], u32)| format!("wave {w} of workgroup ({x}, {y}, {z})");
                let other = other.as_ref().map_or("several waves".into(), name);
                write!(f, "memory race at {addr:#x} with {other}: nothing orders the accesses")
            }
            DivergentBarrier { active, launched } => {
                write!(f, "divergent barrier: lanes {launched:#x} were launched, only {active:#x} are active")
            }
            BarrierDeadlock => write!(f, "waves of the workgroup wait at a barrier that the others never reach"),
            InstructionLimit(n) => {
                write!(f, "more than {n} instructions in a workgroup (the limit, max-instructions): endless loop?")
            }
            Timeout => write!(f, "still running when the time limit (timeout) was reached: endless loop?"),
            Trap(n) => write!(f, "trap {n}"),
            Launch(s) | Unsupported(s) => write!(f, "{s}"),
        }
    }
}

/// A launch that failed, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Source operators that the kernel computes, where they are known.
    pub operator: Option<String>,
    /// Kernel that was launched.
    pub kernel: String,
    /// Address of the instruction relative to the load address (as `llvm-objdump` prints it).
    pub pc: u64,
    /// The instruction.
    pub instruction: String,
    /// Workgroup id.
    pub workgroup: [u32; 3],
    /// Wave in the workgroup.
    pub wave: u32,
    /// Lane, for accesses by lanes.
    pub lane: Option<u32>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup;
        write!(f, "{}: ", self.kind)?;
        if let Some(o) = &self.operator {
            write!(f, "operator {o}, ")?;
        }
        write!(f, "kernel `{}` at pc {:#x}", self.kernel, self.pc)?;
        if !self.instruction.is_empty() {
            write!(f, " `{}`", self.instruction)?;
        }
        write!(f, ", workgroup ({x}, {y}, {z}), wave {}", self.wave)?;
        match self.lane {
            Some(l) => write!(f, ", lane {l}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
