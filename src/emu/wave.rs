//! State of one wave, and the micro-operations that work on it.

use super::clock::Clock;
use super::code::Code;
use super::fault::FaultKind;
use super::lanes::CHUNK;
use super::memory::View;
use super::operand::{Kind, Src};
use barewave_isa::{Reg, Resource};

/// Entries of the scalar file: all scalar registers by [`Reg`] number from `S0`, then a sink for discarded writes.
pub const SCALARS: usize = 224;
/// Where writes to `null` go: room for 32 dwords.
pub const SINK: u32 = 184;

/// Index of a scalar register in the scalar file.
pub const fn scalar(r: Reg) -> u32 {
    (r.0 - Reg::S0.0) as u32
}

/// `vcc_lo`.
pub const VCC: usize = scalar(Reg::VCC_LO) as usize;
/// `exec_lo`.
pub const EXEC: usize = scalar(Reg::EXEC_LO) as usize;
/// `m0`.
pub const M0: usize = scalar(Reg::M0) as usize;
/// `scc`.
pub const SCC: usize = scalar(Reg::SCC) as usize;

/// What a handler tells the interpreter to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ctl {
    /// The following micro-operation.
    Next,
    /// `Wave::ip` was set.
    Jump,
    /// `Wave::ip` was set, to look once more at what others may have left: let them run.
    Spin,
    /// Wait for the other waves of the workgroup, then go on.
    Barrier,
    /// Let other waves run.
    Yield,
    /// Let other waves run, then try this micro-operation again.
    Retry,
    /// The wave is done.
    End,
    /// `Wave::fault` was set.
    Fault,
}

/// The set bits of a lane mask, in order.
#[derive(Clone, Copy, Debug)]
pub struct Lanes(pub u64);

impl Iterator for Lanes {
    type Item = usize;
    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let n = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(n)
    }
}

/// A named barrier of a workgroup (gfx12).
#[derive(Clone, Copy, Debug, Default)]
pub struct NamedBarrier {
    /// Signals that complete a phase.
    pub members: u32,
    /// Signals of this phase so far.
    pub signals: u32,
    /// Phases completed.
    pub phase: u64,
}

impl NamedBarrier {
    /// Starts the next phase when enough have signalled.
    pub fn settle(&mut self) {
        if self.members > 0 && self.signals >= self.members {
            (self.signals, self.phase) = (0, self.phase + 1);
        }
    }
}

/// What the waves of a workgroup share besides LDS.
#[derive(Clone, Debug, Default)]
pub struct GroupState {
    /// Times each wave arrived at the workgroup's barrier.
    pub arrived: Vec<u64>,
    /// Named barriers.
    pub named: [NamedBarrier; 32],
}

/// A global wave sync resource: a semaphore or barrier for all workgroups of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gws {
    /// Counter of the semaphore; waves still missing at the barrier.
    pub counter: u32,
    /// Phases of the barrier.
    pub phase: u64,
}

/// What all waves of a launch share.
#[derive(Debug)]
pub struct LaunchState {
    /// Global wave sync resources.
    pub gws: std::sync::Mutex<[Gws; 64]>,
    /// Ticks when waves synchronise, in strict mode.
    pub clock: Clock,
    /// Clocks of the device run in real time.
    real_time: bool,
    /// How often waves have looked at the real time.
    pub looks: std::sync::atomic::AtomicU64,
    gds: std::sync::OnceLock<Vec<std::sync::atomic::AtomicU8>>,
}

/// Bytes of global data share.
pub const GDS_BYTES: usize = 1 << 16;

impl LaunchState {
    /// The state at the start of a launch.
    pub fn new(real_time: bool) -> LaunchState {
        LaunchState {
            gws: std::sync::Mutex::new([Gws::default(); 64]),
            clock: Clock::default(),
            real_time,
            looks: Default::default(),
            gds: std::sync::OnceLock::new(),
        }
    }

    /// Ticks of the device's constant clock of 100 MHz, if it runs.
    pub fn ticks(&self) -> Option<u64> {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        self.real_time.then(|| {
            self.looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (START.get_or_init(std::time::Instant::now).elapsed().as_nanos() / 10) as u64 + 1
        })
    }

    /// Global data share, zero at first use; [`GDS_BYTES`] long.
    pub fn gds(&self) -> *mut u8 {
        let cells = self.gds.get_or_init(|| (0..GDS_BYTES).map(|_| std::sync::atomic::AtomicU8::new(0)).collect());
        cells.as_ptr().cast_mut().cast()
    }
}

/// A wave.
pub struct Wave {
    /// Memory of the vector registers; goes back to [`take_file`]'s store.
    _file: Vec<u32>,
    /// The register file's first element, aligned for the host's widest vectors: row `r` begins at element `r * lanes`.
    base: *mut u32,
    /// Elements in the file.
    elements: usize,
    /// Lanes: 32 or 64.
    pub lanes: usize,
    /// Scalar registers.
    pub s: [u32; SCALARS],
    /// MODE register.
    pub mode: u32,
    /// DX10_CLAMP and IEEE come with the mode; this says that f32 operations take the fast path.
    pub plain_float: bool,
    /// Index of the micro-operation to run.
    pub ip: usize,
    /// Code.
    pub program: *const Code,
    /// Device memory.
    pub mem: View,
    /// LDS of the workgroup.
    pub lds: *mut u8,
    /// Its size in bytes.
    pub lds_size: u32,
    /// Per-wave scratch base where hardware sets it up (architected flat scratch), device address.
    pub flat_scratch: u64,
    /// Scratch bytes of this wave.
    pub scratch_size: u64,
    /// Base of the hidden private segment (gfx8 flat scratch is relative to it).
    pub hidden_private: u64,
    /// FLAT_SCRATCH is set up by hardware.
    pub architected_scratch: bool,
    /// Why the last handler failed, and the lane.
    pub fault: Option<(FaultKind, Option<u32>)>,
    /// Number of the wave in its workgroup.
    pub index: u32,
    /// Workgroup id.
    pub workgroup: [u32; 3],
    /// Waves in the workgroup.
    pub waves: u32,
    /// Hardware id of the thread's compute unit.
    pub cu: u32,
    /// `s_set_gpr_idx` state: enables (M0-like), index.
    pub gpr_idx: (u32, u32),
    /// Instructions executed.
    pub count: u64,
    /// Those of them in rounds of loops that wait in which it found nothing.
    pub in_vain: u64,
    /// Workgroup barriers passed.
    pub passed: u64,
    /// The named barrier that the wave waits for, if it waits for one (else for the workgroup's).
    pub waits_for: Option<usize>,
    /// Named barrier joined, and its phase when the wave last looked.
    pub joined: Option<(usize, u64)>,
    /// Phase of the global wave sync barrier that the wave waits for the end of.
    pub gws_phase: Option<u64>,
    /// Vector instructions are skipped (s_setvskip).
    pub vskip: bool,
    /// Shared by the workgroup.
    pub group: *mut GroupState,
    /// Shared by the launch.
    pub launch: *const LaunchState,
    /// Generation of hardware-dependent details.
    pub quirks: Quirks,
}

/// Differences between generations that handlers ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quirks {
    /// The LDS crossbar is 32 lanes wide.
    pub half_crossbar: bool,
    /// Layout of buffer resources.
    pub resource: Resource,
    /// Flat scratch words are offset and size.
    pub flat_scratch_sizes: bool,
    /// fp8 numbers are AMD's FNUZ encodings (gfx942).
    pub fnuz: bool,
    /// MODE has no bits for DX10_CLAMP and IEEE: both are always on.
    pub fixed_modes: bool,
    /// FLAT_SCRATCH is two hardware registers.
    pub flat_scratch_hwregs: bool,
}

impl Quirks {
    /// Until the launch sets them.
    const NONE: Quirks = Quirks {
        half_crossbar: false,
        resource: Resource::Gfx8,
        flat_scratch_sizes: false,
        fnuz: false,
        fixed_modes: false,
        flat_scratch_hwregs: false,
    };
}

/// MODE: clamping a NaN gives 0.
pub const DX10_CLAMP: u32 = 1 << 8;
/// MODE: signalling NaNs come out quiet; minimum and maximum return a quieted signalling operand.
pub const IEEE: u32 = 1 << 9;
/// MODE: conversions to f16 and 8-bit floats saturate instead of overflowing.
pub const FP16_OVFL: u32 = 1 << 23;

/// High dword of the flat address range that means LDS.
pub const SHARED_APERTURE: u32 = 0x0001_0000;
/// High dword of the flat address range that means scratch.
pub const PRIVATE_APERTURE: u32 = 0x0002_0000;

thread_local! {
    /// Register files of waves that are gone, for the next ones: short launches come by the thousand, and fresh memory
    /// costs more than they do.
    static FILES: std::cell::RefCell<Vec<Vec<u32>>> = const { std::cell::RefCell::new(Vec::new()) };
}
/// Register files that a thread keeps.
const KEPT_FILES: usize = 16;

/// A register file of `size` dwords; what is in it is zero or what another wave left.
fn take_file(size: usize) -> Vec<u32> {
    let kept = FILES.with_borrow_mut(|f| f.iter().position(|v| v.len() == size).map(|i| f.swap_remove(i)));
    kept.unwrap_or_else(|| vec![0; size])
}

impl Drop for Wave {
    fn drop(&mut self) {
        let file = std::mem::take(&mut self._file);
        // The thread may be ending.
        let _ = FILES.try_with(|f| {
            if let Ok(mut f) = f.try_borrow_mut()
                && f.len() < KEPT_FILES
            {
                f.push(file);
            }
        });
    }
}

/// Pattern in registers that nobody has written: a quiet NaN, large as an integer.
pub const POISON: u32 = 0x7fd0_dead;

impl Wave {
    /// Goes on as an executed micro-operation says. What stops the wave, if something does: after `stop` operations the
    /// next jump.
    pub fn proceed(&mut self, ctl: Ctl, stop: u64) -> Option<Ctl> {
        match ctl {
            Ctl::Next => self.ip += 1,
            Ctl::Jump if self.count > stop => return Some(Ctl::Yield),
            Ctl::Jump => {}
            Ctl::Spin => return Some(ctl),
            Ctl::Barrier | Ctl::Yield => {
                self.ip += 1;
                return Some(ctl);
            }
            Ctl::Retry | Ctl::End | Ctl::Fault => return Some(ctl),
        }
        None
    }

    /// A wave with registers for `rows` rows; everything else is set by the launch.
    pub fn new(lanes: usize, rows: usize, mem: View) -> Wave {
        let elements = rows * lanes;
        let mut file = take_file(elements + CHUNK);
        let first = file.as_mut_ptr();
        // SAFETY: at most 15 elements further on, which were allocated in addition.
        let base = unsafe { first.add(first.align_offset(64)) };
        Wave {
            _file: file,
            base,
            elements,
            lanes,
            s: [0; SCALARS],
            mode: 0xf0 | DX10_CLAMP | IEEE,
            plain_float: true,
            ip: 0,
            program: std::ptr::null(),
            mem,
            lds: std::ptr::null_mut(),
            lds_size: 0,
            flat_scratch: 0,
            scratch_size: 0,
            hidden_private: 0,
            architected_scratch: false,
            fault: None,
            index: 0,
            workgroup: [0; 3],
            waves: 1,
            cu: 0,
            gpr_idx: (0, 0),
            count: 0,
            in_vain: 0,
            passed: 0,
            waits_for: None,
            joined: None,
            gws_phase: None,
            vskip: false,
            group: std::ptr::null_mut(),
            launch: std::ptr::null(),
            quirks: Quirks::NONE,
        }
    }

    /// The register file as elements.
    #[inline(always)]
    pub fn v(&self) -> *mut u32 {
        self.base
    }
    /// Elements in the register file.
    pub fn elements(&self) -> usize {
        self.elements
    }
    /// Fills rows with the pattern of undefined registers.
    pub fn poison(&mut self, from: usize, rows: usize) {
        let end = ((from + rows) * self.lanes).min(self.elements());
        let from = (from * self.lanes).min(end);
        // SAFETY: inside of the file.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(from), end - from) }.fill(POISON);
    }
    /// Chunks of a row.
    #[inline(always)]
    pub fn chunks(&self) -> usize {
        self.lanes / CHUNK
    }
    /// All lanes.
    #[inline(always)]
    pub fn all(&self) -> u64 {
        if self.lanes == 64 { u64::MAX } else { u32::MAX as u64 }
    }
    /// Two scalars as one.
    #[inline(always)]
    pub fn pair(&self, at: usize) -> u64 {
        self.s[at] as u64 | (self.s[at + 1] as u64) << 32
    }
    /// Writes two scalars.
    #[inline(always)]
    pub fn set_pair(&mut self, at: usize, v: u64) {
        self.s[at] = v as u32;
        self.s[at + 1] = (v >> 32) as u32;
    }
    /// Lane mask at a scalar index: two registers in a wave of 64, one in a wave of 32.
    #[inline(always)]
    pub fn bits(&self, at: usize) -> u64 {
        if self.lanes == 64 { self.pair(at) } else { self.s[at] as u64 }
    }
    /// Writes a lane mask.
    #[inline(always)]
    pub fn set_bits(&mut self, at: usize, v: u64) {
        if self.lanes == 64 { self.set_pair(at, v) } else { self.s[at] = v as u32 }
    }
    /// Active lanes.
    #[inline(always)]
    pub fn exec(&self) -> u64 {
        self.bits(EXEC)
    }
    /// Sets SCC.
    #[inline(always)]
    pub fn set_scc(&mut self, b: bool) {
        self.s[SCC] = b as u32;
    }
    /// 32 bits of a scalar operand.
    #[inline(always)]
    pub fn r32(&self, o: &Src) -> u32 {
        match o.kind {
            Kind::Scalar => self.s[o.at as usize],
            Kind::Const => o.value as u32,
            _ => self.rare(o) as u32,
        }
    }
    /// 64 bits of a scalar operand.
    #[inline(always)]
    pub fn r64(&self, o: &Src) -> u64 {
        match o.kind {
            Kind::Scalar => self.pair(o.at as usize),
            Kind::Const => o.value,
            _ => self.rare(o),
        }
    }
    /// A lane mask operand.
    #[inline(always)]
    pub fn rbits(&self, o: &Src) -> u64 {
        match o.kind {
            Kind::Scalar => self.bits(o.at as usize),
            _ => self.r64(o) & self.all(),
        }
    }
    #[cold]
    fn rare(&self, o: &Src) -> u64 {
        match o.kind {
            Kind::Vccz => (self.bits(VCC) == 0) as u64,
            Kind::Execz => (self.exec() == 0) as u64,
            // A vector register where a scalar is wanted: lane 0 (v_readfirstlane semantics are separate).
            // SAFETY: offsets are checked when the program is decoded.
            Kind::Vector => unsafe { *self.v().add(o.at as usize) as u64 },
            _ => 0,
        }
    }
    /// Records a fault.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self, kind: FaultKind, lane: Option<u32>) -> Ctl {
        self.fault = Some((kind, lane));
        Ctl::Fault
    }
    /// Sets MODE and what depends on it.
    pub fn set_mode(&mut self, mode: u32) {
        // Later generations have no bits for these: clamping a NaN gives 0, signalling NaNs are quieted.
        self.mode = if self.quirks.fixed_modes { mode | DX10_CLAMP | IEEE } else { mode };
        // Round to nearest everywhere, all denormals kept, IEEE, no saturation of f16.
        self.plain_float = self.mode & (0xff | IEEE | FP16_OVFL) == 0xf0 | IEEE;
    }
    /// One lane of a row.
    #[inline(always)]
    pub fn lane(&self, at: u32, lane: usize) -> u32 {
        // SAFETY: offsets are checked when the program is decoded, lanes are below `lanes`.
        unsafe { *self.v().add(at as usize + lane) }
    }
    /// Sets one lane of a row.
    #[inline(always)]
    pub fn set_lane(&mut self, at: u32, lane: usize, value: u32) {
        // SAFETY: as `lane`.
        unsafe { *self.v().add(at as usize + lane) = value }
    }
}
