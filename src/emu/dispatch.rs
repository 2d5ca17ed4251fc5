//! What is launched: the code, the grid and everything that the threads of a launch share.

use super::machine::Machine;
use super::memory::Memory;
use super::program::Program;
use super::strict::race::Shadow;
use super::wave::LaunchState;
use crate::codeobj::KernelInfo;
use std::time::Instant;

/// How to launch.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// Check everything that hardware leaves undefined (slower).
    pub strict: bool,
    /// Bound on instructions of one workgroup, against endless loops.
    pub max_instructions: u64,
    /// When kernels that still run are stopped.
    pub deadline: Option<Instant>,
    /// LDS added to what the kernel declares, bytes.
    pub dynamic_lds: u32,
    /// Stack of a workitem added to what the kernel declares, where that says that it grows at run time, bytes.
    pub stack: u32,
    /// Run on the calling thread only.
    pub single_thread: bool,
    /// Clocks of the device (s_memtime, s_memrealtime, SHADER_CYCLES and their like) run in real time at 100 MHz; without
    /// it they count the wave's instructions, the same on every run.
    pub real_time: bool,
    /// What the host does for running kernels.
    pub services: Services,
    /// Strict mode only: behave as if the instruction at this address (relative to the load address) were not there. For
    /// finding out whether a wait or a gap is needed.
    pub without: Option<u64>,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        LaunchOptions {
            strict: false,
            max_instructions: 1 << 30,
            deadline: None,
            dynamic_lds: 0,
            stack: 1 << 15,
            single_thread: false,
            real_time: false,
            services: Services::default(),
            without: None,
        }
    }
}

/// Services of a driver for kernels, which find them through hidden arguments. Addresses are 0 where there is no such
/// service.
#[derive(Clone, Default)]
pub struct Services {
    /// `hidden_hostcall_buffer`: where kernels leave requests to the host.
    pub hostcall_buffer: u64,
    /// `hidden_heap_v1`: state of the device-side allocator.
    pub heap: u64,
    /// `hidden_printf_buffer`: where kernels leave what they print until they have ended.
    pub printf_buffer: u64,
    /// `hidden_multigrid_sync_arg`: where workgroups of a cooperative launch meet.
    pub grid_sync: u64,
    /// Called by the threads of the launch now and then, whenever a wave may be waiting for the host.
    pub attend: Option<std::sync::Arc<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Services { hostcall_buffer, heap, printf_buffer, grid_sync, .. } = self;
        write!(
            f,
            "Services {{ hostcall_buffer: {hostcall_buffer:#x}, heap: {heap:#x}, printf_buffer: {printf_buffer:#x}, grid_sync: {grid_sync:#x} }}"
        )
    }
}

/// Everything that the threads of one launch share.
pub struct Launch<'a> {
    /// Target facts.
    pub machine: &'a Machine,
    /// Device memory.
    pub memory: &'a Memory,
    /// Code.
    pub program: &'a Program,
    /// The kernel.
    pub kernel: &'a KernelInfo,
    /// Device address of its first instruction.
    pub entry: u64,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Workitems of a workgroup.
    pub block: [u32; 3],
    /// Device address of the argument block.
    pub kernarg: u64,
    /// Device address of the dispatch packet; the queue follows 64 bytes behind.
    pub packet: u64,
    /// LDS of a workgroup, bytes.
    pub lds_size: u32,
    /// Options.
    pub options: &'a LaunchOptions,
    /// Shared by all waves.
    pub state: LaunchState,
    /// Who touched device memory, in strict mode.
    pub shadow: Option<&'a Shadow>,
}

/// Instructions after which a wave lets others run, so that waves may wait for each other in loops.
pub const SLICE: u64 = 1 << 14;
impl Launch<'_> {
    /// Coordinates of workgroup `id`.
    pub fn workgroup(&self, id: u64) -> [u32; 3] {
        let [gx, gy, _] = self.grid.map(u64::from);
        [(id % gx) as u32, (id / gx % gy) as u32, (id / gx / gy) as u32]
    }
}
