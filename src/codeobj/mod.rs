//! AMDHSA code objects: the ELF files that carry machine code to an AMD GPU.
//!
//! A code object is an ELF64 shared object. Each kernel `k` is two symbols: the code `k` in `.text` and a 64-byte
//! kernel descriptor `k.kd` in `.rodata` from which the command processor programs a wave's registers. A note
//! (type 32, name `AMDGPU`) holds MessagePack metadata: argument layout and resource use. [`CodeObject`] writes such
//! files the way clang and lld do; [`ElfFile::parse`] reads anybody's, code object version 2 to 6.
//!
//! Blobs that are not code (launch plan, weights) travel as extra sections outside of every loaded segment, page
//! aligned, so that gigabytes of weights can be memory-mapped straight from the file.
//!
//! Source of the formats: LLVM's "User Guide for AMDGPU Backend" (code object, kernel descriptor, metadata).

mod assemble;
mod bundle;
mod descriptor;
mod directives;
mod elf;
mod family;
mod link;
mod listing;
mod metadata;
mod read;
mod relocatable;
mod target_id;
mod write;
mod yaml;

pub use assemble::link_assembly;
pub use bundle::{Entry, code_objects, code_objects_for};
pub use descriptor::{Descriptor, Properties, ScratchSetup, SystemSgprs, UserSgprLayout};
pub use family::Family;
pub use listing::{Listing, list};
pub use metadata::{Arg, ArgKind, KernelMeta};
pub use read::{ElfFile, KernelInfo, Relocation, SectionInfo, Segment, Symbol, SymbolKind};
pub use relocatable::link_relocatable;
pub use target_id::{Mismatch, TargetId, TargetIdError};
pub use yaml::metadata_to_yaml;

use barewave_isa::Target;
use std::borrow::Cow;
use std::io::Write;

/// Code object version, which decides the ELF ABI version byte and the metadata version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Abi {
    /// Code object version 4.
    V4,
    /// Code object version 5: what every current runtime reads.
    #[default]
    V5,
    /// Code object version 6 (generic targets).
    V6,
}

impl Abi {
    /// The version that code for a target has at least: generic targets came with version 6.
    pub fn of(self, target: Target) -> Abi {
        if target.info().generic_version > 0 { Abi::V6 } else { self }
    }
}

/// Which launch values the command processor puts in a wave's first SGPRs. They stand in the order of the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct UserSgprs {
    /// Scratch buffer resource, 4 SGPRs.
    pub private_segment_buffer: bool,
    /// Address of the AQL dispatch packet, 2 SGPRs.
    pub dispatch_ptr: bool,
    /// Address of the queue, 2 SGPRs.
    pub queue_ptr: bool,
    /// Address of the kernel arguments, 2 SGPRs.
    pub kernarg_segment_ptr: bool,
    /// Dispatch id, 2 SGPRs.
    pub dispatch_id: bool,
    /// Flat scratch initialisation, 2 SGPRs.
    pub flat_scratch_init: bool,
    /// Scratch bytes per lane, 1 SGPR.
    pub private_segment_size: bool,
    /// Dwords of kernel arguments preloaded into SGPRs (gfx90a and gfx942 on).
    pub kernarg_preload_dwords: u8,
    /// First dword of the arguments that is preloaded.
    pub kernarg_preload_offset: u16,
}

/// One kernel of a code object being written.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Symbol name; the descriptor is called `<name>.kd`.
    pub name: String,
    /// Machine code, a multiple of four bytes, to be placed at a 256-byte boundary.
    pub code: Vec<u8>,
    /// VGPRs used (highest number + 1).
    pub vgprs: u32,
    /// AGPRs used.
    pub agprs: u32,
    /// SGPRs used (highest number + 1), without VCC and its like.
    pub sgprs: u32,
    /// Static LDS, bytes.
    pub lds_bytes: u32,
    /// Scratch, bytes per lane.
    pub scratch_bytes: u32,
    /// Wavefronts of 32 lanes (else 64).
    pub wave32: bool,
    /// Workgroups run in WGP mode: both CUs of a work group processor share one (RDNA only).
    pub wgp_mode: bool,
    /// Size of the kernel argument block, bytes.
    pub kernarg_size: u32,
    /// Values wanted in SGPRs at start.
    pub user_sgprs: UserSgprs,
    /// Workgroup ids wanted (x, y, z).
    pub workgroup_ids: [bool; 3],
    /// Workitem ids wanted: 0 = x, 1 = x and y, 2 = x, y and z.
    pub workitem_ids: u8,
    /// f32 denormals are kept (else flushed). f16 and f64 denormals are always kept.
    pub f32_denormals: bool,
    /// Largest number of workitems in a workgroup.
    pub max_flat_workgroup_size: u32,
    /// Exact workgroup size, when the kernel needs one.
    pub reqd_workgroup_size: Option<[u32; 3]>,
    /// Arguments, for the metadata.
    pub args: Vec<Arg>,
}

impl Kernel {
    /// A kernel with the usual settings: kernel argument pointer, x, y and z workgroup ids, x workitem id, denormals
    /// kept, the target's preferred wave size, no registers declared yet.
    pub fn new(target: Target, name: impl Into<String>, code: Vec<u8>) -> Kernel {
        Kernel {
            name: name.into(),
            code,
            vgprs: 0,
            agprs: 0,
            sgprs: 0,
            lds_bytes: 0,
            scratch_bytes: 0,
            wave32: target.info().wave_size == 32,
            wgp_mode: false,
            kernarg_size: 0,
            user_sgprs: UserSgprs { kernarg_segment_ptr: true, ..UserSgprs::default() },
            workgroup_ids: [true; 3],
            workitem_ids: 0,
            f32_denormals: true,
            max_flat_workgroup_size: 1024,
            reqd_workgroup_size: None,
            args: Vec::new(),
        }
    }
}

/// A named blob of bytes carried in the file outside of the loaded segments.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Section name, by custom starting with a dot.
    pub name: String,
    /// Contents; borrowed data is not copied until written.
    pub data: Contents<'a>,
}

/// The contents of a [`Section`].
#[derive(Clone, Debug)]
pub enum Contents<'a> {
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// Bytes that are made when they are written.
    Made(&'a dyn MakeBytes),
}

/// Makes bytes as they are written, so that they never lie in memory as a whole.
pub trait MakeBytes: std::fmt::Debug {
    /// How many they are.
    fn len(&self) -> usize;
    /// True when there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Writes exactly that many bytes, the same each time.
    fn write_to(&self, to: &mut dyn Write) -> std::io::Result<()>;
}

impl Contents<'_> {
    fn len(&self) -> usize {
        match self {
            Contents::Bytes(bytes) => bytes.len(),
            Contents::Made(make) => make.len(),
        }
    }
}

/// A code object to be written.
#[derive(Clone, Debug)]
pub struct CodeObject<'a> {
    /// Architecture of the code.
    pub target: Target,
    /// Code object version.
    pub abi: Abi,
    /// Kernels, in the order in which they are laid out.
    pub kernels: Vec<Kernel>,
    /// Extra sections, page aligned, after everything that is loaded.
    pub sections: Vec<Section<'a>>,
}

/// What can be wrong with a code object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not an ELF file that we understand.
    #[error("not a readable ELF file: {0}")]
    Elf(String),
    /// The file is ELF but not an AMDGPU code object.
    #[error("not an AMDGPU code object: {0}")]
    NotAmdgpu(String),
    /// A part of the file is malformed: what, where.
    #[error("malformed code object: {what} at {at}")]
    Malformed {
        /// What is wrong.
        what: String,
        /// Where: a file offset or the name of a section or symbol.
        at: String,
    },
    /// A kernel cannot be described to the hardware.
    #[error("kernel `{kernel}`: {what}")]
    Kernel {
        /// Name of the kernel.
        kernel: String,
        /// What is wrong.
        what: String,
    },
    /// The metadata is malformed.
    #[error("malformed metadata: {0}")]
    Metadata(String),
    /// Writing failed.
    #[error("cannot write the code object: {0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    fn malformed(what: impl Into<String>, at: impl Into<String>) -> Error {
        Error::Malformed { what: what.into(), at: at.into() }
    }
}
