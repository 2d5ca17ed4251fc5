//! The emulated device: runs AMD machine code from code objects, of our compiler or any other.
//!
//! A code object's segments are copied into device memory and relocated; the machine code found there is decoded once
//! ([`program`](self)) into micro-operations, a function pointer with resolved operands each, and waves are
//! interpreted over them. Vector instructions run a lane kernel that was compiled for the host's vector instructions.
//! Workgroups run in parallel on all cores.
//!
//! ```no_run
//! use barewave_emu::{EmuDevice, LaunchOptions};
//! let device = EmuDevice::new(barewave_isa::Target::GFX942)?;
//! let module = device.load(&std::fs::read("add.hsaco")?)?;
//! let x = device.alloc(4096)?;
//! device.write(x, &[0; 4096])?;
//! let stats = device.launch(&module.kernel("add")?, [16, 1, 1], [64, 1, 1], &x.to_le_bytes(), &LaunchOptions::default())?;
//! println!("{} instructions", stats.instructions);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What hardware leaves undefined (registers and LDS that nobody wrote) holds a recognisable pattern here. What AMD does
//! not document is settled as follows: transcendentals are correctly rounded almost always (AMD promises 1 ULP) and
//! flush f32 denormals; sums inside matrix instructions are taken in order of k, each product added with a fused
//! multiply-add in single precision; matrix shapes that only gfx950 has follow the pattern of the older ones
//! (`barewave_isa::matrix`); lanes of transposing loads exchange as others measured, or as LDS instructions do (`exec::vmem`, `exec::ds`);
//! stochastic conversions of several numbers use one seed (`exec::convert`); integers that do not fit a typed buffer's
//! component saturate (`exec::format`); dot products of floats add in an order and precision of their own (`sem::packed`).
//!
//! Results do not depend on the host: its instruction sets (AVX-512, AVX2, what the build guarantees) give the same bits,
//! but for the payloads of NaN. The best one is used; `BAREWAVE_HOST=portable` or `avx2` asks for a lesser one.
//!
//! Trap handlers, image sampling and export are not emulated; `s_trap` is a fault. Every setting of MODE is: rounding and
//! denormals of each format, DX10_CLAMP, IEEE, FP16_OVFL; output modifiers are ignored where the manuals say so.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod builder;
mod clock;
mod code;
#[path = "../codeobj/mod.rs"]
pub mod codeobj;
mod dispatch;
mod element;
mod exec;
mod fault;
pub mod hip;
pub mod kernarg;
mod lanes;
mod launch;
mod machine;
mod memory;
mod numeric;
pub mod observe;
mod operand;
mod program;
pub mod queue;
mod sem;
pub mod spin;
mod strict;
pub mod text;
mod uop;
mod vopd;
mod wave;

pub use dispatch::{LaunchOptions, NotATime, Services, TimeLimit};
pub use fault::{Fault, FaultKind};
pub use lanes::UnknownHost;
pub use launch::LaunchStats;
pub use sem::agree::host_copies_agree;

use crate::codeobj::{ElfFile, KernelInfo};
use barewave_isa::{Op, Target};
use machine::Machine;
use memory::Memory;
use program::Program;
use std::sync::{Arc, Mutex};
use wave::LaunchState;

/// What can go wrong outside of a running kernel.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The code object cannot be read.
    #[error(transparent)]
    CodeObject(#[from] crate::codeobj::Error),
    /// The code is for another target.
    #[error("the code object is for {file}, the device is {device}")]
    WrongTarget {
        /// Processor of the file.
        file: String,
        /// Device's target.
        device: String,
    },
    /// No kernel of that name.
    #[error("no kernel `{name}` in the code object; it has: {known}")]
    NoKernel {
        /// Name asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// Device memory is used up.
    #[error("out of device memory: {0} bytes asked for")]
    OutOfMemory(u64),
    /// An address range outside of device memory, or not the start of an allocation.
    #[error("bad device address {addr:#x} ({size} bytes)")]
    BadAddress {
        /// Address.
        addr: u64,
        /// Bytes.
        size: u64,
    },
    /// A relocation that cannot be applied.
    #[error("cannot relocate: {0}")]
    Relocation(String),
    /// An environment variable makes no sense.
    #[error("{0}")]
    Environment(#[from] lanes::UnknownHost),
    /// The host gave no address space.
    #[error("cannot reserve device memory: {0}")]
    Reserve(std::io::Error),
}

/// An emulated GPU. Cheap to create: memory is reserved, not committed.
pub struct EmuDevice {
    target: Target,
    machine: Machine,
    memory: Arc<Memory>,
}

/// Fails when an environment variable that concerns emulated devices makes no sense.
pub fn check_environment() -> Result<(), EmuError> {
    Ok(lanes::Host::asked().map(drop)?)
}

/// Scratch of a wave, bytes: what hardware's COMPUTE_TMPRING_SIZE.WAVESIZE can say (13 bits of KiB on gfx9).
const MAX_SCRATCH: u64 = 8 << 20;

/// Memory of a device by default: that of an MI300X.
pub const DEFAULT_MEMORY: u64 = 192 << 30;

impl EmuDevice {
    /// A device of a target with [`DEFAULT_MEMORY`] bytes.
    pub fn new(target: Target) -> Result<EmuDevice, EmuError> {
        EmuDevice::with_memory(target, DEFAULT_MEMORY)
    }

    /// A device with a given amount of memory (less when the host refuses that much address space).
    pub fn with_memory(target: Target, bytes: u64) -> Result<EmuDevice, EmuError> {
        EmuDevice::over(target, Arc::new(Memory::reserve(bytes, false).map_err(EmuError::Reserve)?))
    }

    /// A device whose addresses are the host's: what it allocates can be read and written through plain pointers, and
    /// host memory can be lent to its kernels.
    pub fn unified(target: Target, bytes: u64) -> Result<EmuDevice, EmuError> {
        EmuDevice::over(target, Arc::new(Memory::reserve(bytes, true).map_err(EmuError::Reserve)?))
    }

    /// Another device in the same address space and memory.
    pub fn beside(&self, target: Target) -> Result<EmuDevice, EmuError> {
        EmuDevice::over(target, self.memory.clone())
    }

    fn over(target: Target, memory: Arc<Memory>) -> Result<EmuDevice, EmuError> {
        check_environment()?;
        let unknown = || EmuError::Relocation(format!("{} has no known generation", target.info().name));
        Ok(EmuDevice { target, machine: Machine::new(target).ok_or_else(unknown)?, memory })
    }

    /// The target it emulates.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    /// Allocates device memory, 256-byte aligned, contents undefined (zero when fresh).
    pub fn alloc(&self, bytes: u64) -> Result<u64, EmuError> {
        self.memory.alloc(bytes).ok_or(EmuError::OutOfMemory(bytes))
    }

    /// The same, aligned to a power of two that is larger than that.
    pub fn alloc_at_multiple(&self, bytes: u64, align: u64) -> Result<u64, EmuError> {
        self.memory.alloc_at_multiple(bytes, align).ok_or(EmuError::OutOfMemory(bytes))
    }

    /// Frees what [`EmuDevice::alloc`] gave.
    pub fn free(&self, addr: u64) -> Result<(), EmuError> {
        if self.memory.free(addr) { Ok(()) } else { Err(EmuError::BadAddress { addr, size: 0 }) }
    }

    /// Copies from the device.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), EmuError> {
        let size = out.len() as u64;
        if self.memory.read(addr, out) { Ok(()) } else { Err(EmuError::BadAddress { addr, size }) }
    }

    /// Copies to the device.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), EmuError> {
        let size = bytes.len() as u64;
        if self.memory.write(addr, bytes) { Ok(()) } else { Err(EmuError::BadAddress { addr, size }) }
    }

    /// Fills device memory with a byte.
    pub fn fill(&self, addr: u64, byte: u8, size: u64) -> Result<(), EmuError> {
        if self.memory.fill(addr, byte, size) { Ok(()) } else { Err(EmuError::BadAddress { addr, size }) }
    }

    /// Start and size of the allocation that an address lies in.
    pub fn allocation_of(&self, addr: u64) -> Option<(u64, u64)> {
        self.memory.allocation_of(addr)
    }

    /// True for every address that allocations may have, whether one is there or not.
    pub fn owns(&self, addr: u64) -> bool {
        self.memory.owns(addr)
    }

    /// Tells strict launches that a range holds meaningful data: host code may write to it behind the device's back.
    pub fn assume_written(&self, addr: u64, size: u64) {
        self.memory.assume_written(addr, size);
    }

    /// Lets kernels use host memory under the host's address.
    ///
    /// # Safety
    /// The bytes stay readable and writable until [`EmuDevice::take_back`], and no launch that uses them is running then.
    pub unsafe fn lend(&self, start: *mut u8, size: u64) -> Result<(), EmuError> {
        // SAFETY: the caller's promise.
        if unsafe { self.memory.lend(start, size) } {
            Ok(())
        } else {
            Err(EmuError::BadAddress { addr: start as u64, size })
        }
    }

    /// Ends [`EmuDevice::lend`].
    pub fn take_back(&self, start: u64) -> Result<(), EmuError> {
        if self.memory.take_back(start) { Ok(()) } else { Err(EmuError::BadAddress { addr: start, size: 0 }) }
    }

    /// Start and size of the lent host memory that an address lies in.
    pub fn lent_range_of(&self, addr: u64) -> Option<(u64, u64)> {
        self.memory.lent_range_of(addr)
    }

    /// Keeps what is freed from being given out again for a while, so that strict launches find who still uses it. Strict
    /// launches begin with this themselves: it is for what is freed before the first of them.
    pub fn quarantine(&self) {
        self.memory.quarantine();
    }

    /// Loads a code object: its segments are copied into device memory and relocated.
    pub fn load(&self, elf: &[u8]) -> Result<Module, EmuError> {
        let file = ElfFile::parse(elf)?;
        if !file.target.is_some_and(|code| self.target.runs_code_of(code)) {
            let name = crate::codeobj::Family::processor(file.mach).unwrap_or("an unknown processor");
            return Err(EmuError::WrongTarget { file: name.into(), device: self.target.info().name.into() });
        }
        let size = file.segments.iter().map(|s| s.addr + s.mem_size).max().unwrap_or(0);
        let base = self.alloc(size)?;
        let module = Module {
            base,
            machine: self.machine,
            memory: self.memory.clone(),
            programs: Mutex::new([None, None]),
            file,
        };
        self.fill(base, 0, size)?;
        for s in &module.file.segments {
            self.write(base + s.addr, &elf[s.file.clone()])?;
        }
        module.relocate()?;
        Ok(module)
    }

    /// Runs a kernel to its end: `grid` workgroups of `block` workitems with the explicit arguments `args`, laid out as
    /// the kernel's metadata says. Hidden arguments are filled in.
    pub fn launch(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[u8],
        options: &LaunchOptions,
    ) -> Result<LaunchStats, Fault> {
        self.with_launch(kernel, grid, block, args, options, |l| l.run())
    }

    /// Runs the given workgroups of a launch (by number, x first) one after the other on the calling thread, and shows each
    /// instruction to `observer` before it is executed. Strict checks are not made.
    pub fn observe(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[u8],
        options: &LaunchOptions,
        workgroups: &[u64],
        observer: &mut dyn observe::Observer,
    ) -> Result<LaunchStats, Fault> {
        let options = LaunchOptions { strict: false, ..options.clone() };
        self.with_launch(kernel, grid, block, args, &options, |l| l.run_observed(workgroups, observer))
    }

    /// Calls `run` with everything a launch needs.
    fn with_launch(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[u8],
        options: &LaunchOptions,
        run: impl FnOnce(&dispatch::Launch) -> Result<LaunchStats, Fault>,
    ) -> Result<LaunchStats, Fault> {
        let info = kernel.info();
        let refuse = |what: String| Fault {
            kind: FaultKind::Launch(what),
            operator: None,
            kernel: info.name.clone(),
            pc: info.entry,
            instruction: String::new(),
            workgroup: [0; 3],
            wave: 0,
            lane: None,
        };
        if grid.contains(&0) {
            return Ok(LaunchStats::default());
        }
        if let Err(e) = kernarg::check(self.target, info, grid, block, options.dynamic_lds) {
            return Err(refuse(e.to_string()));
        }
        let per_wave = u64::from(info.descriptor.scratch_bytes) * if info.descriptor.wave32() { 32 } else { 64 };
        if per_wave > MAX_SCRATCH {
            return Err(refuse(format!(
                "the kernel asks for {} bytes of scratch a lane; a wave can have {MAX_SCRATCH} in all",
                info.descriptor.scratch_bytes
            )));
        }
        let lds = info.descriptor.lds_bytes + options.dynamic_lds;
        let size = (info.kernarg_size() as usize).max(args.len()).next_multiple_of(16);
        let no_memory = || refuse("no device memory is left for the arguments".into());
        let address = self.memory.alloc(size as u64 + 16).ok_or_else(no_memory)?;
        let packet = self.memory.alloc(64 + 256).ok_or_else(no_memory)?;
        let mut bytes = vec![0; size];
        bytes[..args.len()].copy_from_slice(args);
        let hidden = kernarg::Hidden { grid, block, dynamic_lds: options.dynamic_lds, queue: packet + 64 };
        kernarg::fill_hidden(info, &hidden, &options.services, &mut bytes);
        self.memory.write(address, &bytes);
        let private = info.descriptor.scratch_bytes;
        self.memory.write(packet, &kernarg::dispatch_packet(grid, block, private, lds, address));
        if options.strict {
            self.memory.quarantine();
        } else {
            self.memory.stop_recording();
        }
        let shadow = options.strict.then(|| strict::Shadow::new(self.memory.extent(), true)).transpose();
        let shadow = shadow.map_err(|e| refuse(format!("the host has no memory for strict mode: {e}")))?;
        let program = kernel.module.program(info);
        let l = dispatch::Launch {
            machine: &self.machine,
            memory: &self.memory,
            program: &program,
            kernel: info,
            entry: kernel.module.base + info.entry,
            grid,
            block,
            kernarg: address,
            packet,
            lds_size: lds,
            options,
            state: LaunchState::new(options.real_time),
            shadow: shadow.as_ref(),
        };
        let result = run(&l);
        self.memory.free_now(address);
        self.memory.free_now(packet);
        result
    }
}

/// A loaded code object. Dropping it frees its device memory.
pub struct Module {
    base: u64,
    file: ElfFile,
    machine: Machine,
    memory: Arc<Memory>,
    /// Decoded code by wave size: 64, 32.
    programs: Mutex<[Option<Arc<Program>>; 2]>,
}

impl Drop for Module {
    fn drop(&mut self) {
        self.memory.free(self.base);
    }
}

impl Module {
    /// Device address and size of the loaded image.
    pub fn image(&self) -> (u64, u64) {
        self.memory.allocation_of(self.base).unwrap_or((self.base, 0))
    }

    /// The file as read.
    pub fn file(&self) -> &ElfFile {
        &self.file
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>, EmuError> {
        match self.file.kernels.iter().position(|k| k.name == name) {
            Some(index) => Ok(Kernel { module: self, index }),
            None => {
                let known: Vec<&str> = self.file.kernels.iter().map(|k| k.name.as_str()).collect();
                Err(EmuError::NoKernel { name: name.into(), known: known.join(", ") })
            }
        }
    }

    /// Device address and size of a global variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        self.file.symbols.iter().find(|s| s.name == name && s.defined).map(|s| (self.base + s.addr, s.size))
    }

    fn relocate(&self) -> Result<(), EmuError> {
        for r in &self.file.relocations {
            let symbol = self.file.dynamic_symbols.get(r.symbol);
            let s = symbol.map_or(0, |s| self.base + s.addr);
            if r.symbol != 0 && symbol.is_none_or(|s| !s.defined) {
                let name = symbol.map_or("?", |s| s.name.as_str());
                return Err(EmuError::Relocation(format!("undefined symbol `{name}`")));
            }
            let place = self.base.wrapping_add(r.addr);
            let sum = s.wrapping_add_signed(r.addend);
            let relative = sum.wrapping_sub(place);
            let word = |v: u64| self.memory.write(place, &(v as u32).to_le_bytes());
            let done = match r.kind {
                0 => true,
                1 => word(sum),
                2 => word(sum >> 32),
                3 | 7 => self.memory.write(place, &sum.to_le_bytes()),
                4 | 10 => word(relative),
                5 => self.memory.write(place, &relative.to_le_bytes()),
                6 => word(sum),
                11 => word(relative >> 32),
                13 => self.memory.write(place, &self.base.wrapping_add_signed(r.addend).to_le_bytes()),
                k => return Err(EmuError::Relocation(format!("relocation type {k} at {:#x}", r.addr))),
            };
            if !done {
                return Err(EmuError::Relocation(format!("address {:#x} is outside of the file", r.addr)));
            }
        }
        Ok(())
    }

    /// The decoded code that holds a kernel.
    fn program(&self, k: &KernelInfo) -> Arc<Program> {
        let wave32 = k.descriptor.wave32();
        let mut cache = self.programs.lock().unwrap_or_else(|e| e.into_inner());
        let slot = &mut cache[usize::from(wave32)];
        if let Some(p) = slot
            && p.code.index_of(self.base + k.entry).is_some()
        {
            return p.clone();
        }
        let segment =
            self.file.segments.iter().find(|s| s.executable && s.addr <= k.entry && k.entry < s.addr + s.mem_size);
        let (addr, size) = segment.map_or((k.entry, 0), |s| (s.addr, s.file.len()));
        let mut bytes = vec![0; size];
        self.memory.read(self.base + addr, &mut bytes);
        let p = Arc::new(Program::decode(&self.machine, wave32, self.base + addr, &bytes));
        *slot = Some(p.clone());
        p
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Copy)]
pub struct Kernel<'m> {
    module: &'m Module,
    index: usize,
}

impl Kernel<'_> {
    /// Descriptor and metadata.
    pub fn info(&self) -> &KernelInfo {
        &self.module.file.kernels[self.index]
    }
}

/// True when the emulator has semantics for an operation.
pub fn implements(target: Target, op: Op) -> bool {
    program::implements(target, op)
}

/// Whether the instruction that `bytes` begin with (little endian, as in a code object) runs with its operands and modifiers,
/// in waves of 32 or 64 lanes; `None` where `bytes` begin with no instruction of the target, or the target is not emulated.
pub fn executes(target: Target, wave32: bool, bytes: &[u8]) -> Option<bool> {
    program::executes(target, wave32, bytes)
}
