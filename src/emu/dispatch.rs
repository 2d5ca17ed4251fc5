//! What is launched: the code, the grid and everything that the threads of a launch share.

use super::machine::Machine;
use super::memory::Memory;
use super::program::Program;
use super::strict::race::Shadow;
use super::wave::LaunchState;
use crate::codeobj::KernelInfo;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

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
    /// Workgroups that a thread runs at once, at most: those that wait for each other take turns. As many as fit into memory where it says nothing.
    pub resident: Option<usize>,
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
            resident: None,
            real_time: false,
            services: Services::default(),
            without: None,
        }
    }
}

/// How long kernels may run, as users write it: seconds, or 0 for no limit. [`TimeLimit::VARIABLE`] names it in the
/// environment, where nothing is 600 seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TimeLimit(Option<Duration>);

/// What is written for a time limit is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a time in seconds (0: no limit; {name} may say it too)", name = TimeLimit::VARIABLE)]
pub struct NotATime(String);

impl TimeLimit {
    /// The environment variable that sets the limit where nothing else does.
    pub const VARIABLE: &str = "BAREWAVE_TIMEOUT";

    /// No limit.
    pub const NONE: TimeLimit = TimeLimit(None);

    /// When kernels are stopped that start now.
    pub fn deadline(self) -> Option<Instant> {
        self.0.map(|limit| Instant::now() + limit)
    }
}

impl Default for TimeLimit {
    fn default() -> TimeLimit {
        TimeLimit(Some(Duration::from_secs(600)))
    }
}

impl FromStr for TimeLimit {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<TimeLimit, NotATime> {
        let seconds = match text.trim() {
            "" => return Ok(TimeLimit::default()),
            other => other.parse().ok().filter(|s| (0.0..=1e9).contains(s)).ok_or_else(|| NotATime(text.into()))?,
        };
        Ok(TimeLimit((seconds > 0.0).then(|| Duration::from_secs_f64(seconds))))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.map_or(0.0, |limit| limit.as_secs_f64()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_seconds_or_none() {
        let limit = |text: &str| text.parse::<TimeLimit>();
        assert_eq!(limit("0"), Ok(TimeLimit::NONE));
        assert_eq!(limit(""), Ok(TimeLimit::default()));
        assert_eq!(limit(" 1.5 "), Ok(TimeLimit(Some(Duration::from_millis(1500)))));
        for t in ["0", "600", "0.25"] {
            assert_eq!(limit(t).unwrap().to_string(), t);
        }
        for t in ["nan", "-1", "inf", "1e10", "soon"] {
            assert!(limit(t).is_err(), "{t}");
        }
        assert!(TimeLimit::NONE.deadline().is_none() && TimeLimit::default().deadline() > Some(Instant::now()));
    }
}
