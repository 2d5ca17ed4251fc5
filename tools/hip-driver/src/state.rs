//! What the driver knows: devices, the tables behind handles, each thread's current device.

use crate::api::{Code, INVALID, Result, err, log};
use crate::hostcall::Hostcall;
use crate::types::Handle;
use barewave_emu::codeobj::TargetId;
use barewave_emu::hip::code;
use barewave_emu::queue::{Event, Queue, QueueError};
use barewave_emu::{DEFAULT_MEMORY, EmuDevice, Fault, FaultKind, Services};
use barewave_isa::Target;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

impl QueueError for Code {
    fn panicked(message: String) -> Code {
        log(&format!("internal error: {message}"));
        Code(code::hipErrorUnknown)
    }
}

/// A lock that outlives panics.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// A device.
pub struct Device {
    /// Its number.
    pub ordinal: i32,
    /// What runs the kernels.
    pub emu: EmuDevice,
    /// Architecture and features.
    pub id: TargetId,
    /// Memory that it says it has, bytes.
    pub memory: u64,
    /// Memory allocated on it, bytes.
    pub used: AtomicU64,
    /// Code of the first fault, 0 without one: every later call that waits or launches returns it.
    pub fault: AtomicU32,
    /// The stream of handle null.
    pub default_stream: Arc<Stream>,
    /// Every other stream.
    pub streams: Mutex<Vec<std::sync::Weak<Stream>>>,
    /// References to the primary context.
    pub context_users: AtomicU32,
    /// Cache that kernels prefer, as it was asked for.
    pub cache_config: AtomicU32,
    /// Pool that `hipMallocAsync` takes from, and the one that is there from the start.
    pub pool: Mutex<Arc<crate::pool::Pool>>,
    /// As above.
    pub default_pool: Arc<crate::pool::Pool>,
    /// Compute units that it says it has.
    pub compute_units: u32,
    /// Flags and limits that the program set.
    pub flags: AtomicU32,
    /// As above.
    pub limits: Mutex<[usize; 3]>,
    /// Bytes that graphs allocate.
    pub graph_memory: Mutex<crate::graph_memory::Counters>,
    /// What kernels ask the host for, made for the first kernel that may ask.
    services: OnceLock<Result<Services>>,
}

impl Device {
    /// The error that a fault left, if there was one.
    pub fn check_fault(&self) -> Result {
        match self.fault.load(Ordering::Acquire) {
            0 => Ok(()),
            c => err(c),
        }
    }

    /// Reports a fault and makes it stick.
    pub fn report(&self, fault: &Fault) -> Code {
        let c = match fault.kind {
            FaultKind::OutOfBounds { .. } | FaultKind::Freed { .. } => code::hipErrorIllegalAddress,
            FaultKind::Launch(_) => code::hipErrorLaunchOutOfResources,
            // What assert, abort and __builtin_trap end with.
            FaultKind::Trap(_) => code::hipErrorAssert,
            FaultKind::InstructionLimit(_) | FaultKind::Timeout => code::hipErrorLaunchTimeOut,
            _ => code::hipErrorLaunchFailure,
        };
        log(&format!("fault on device {} ({}): {fault}", self.ordinal, self.id));
        let _ = self.fault.compare_exchange(0, c, Ordering::AcqRel, Ordering::Acquire);
        Code(c)
    }

    /// The services for kernels that ask the host for something.
    pub fn services(&self) -> Result<Services> {
        self.services.get_or_init(|| Hostcall::services(self)).clone()
    }

    /// All streams that are still there.
    pub fn all_streams(&self) -> Vec<Arc<Stream>> {
        let mut list = lock(&self.streams);
        list.retain(|s| s.strong_count() > 0);
        let mut all: Vec<Arc<Stream>> = list.iter().filter_map(std::sync::Weak::upgrade).collect();
        all.push(self.default_stream.clone());
        all
    }

    /// Work was waited for: pools give back what they need not keep.
    pub fn settle_pools(&self) {
        self.default_pool.settle();
        let now = lock(&self.pool).clone();
        now.settle();
        for p in POOLS.all().iter().filter(|p| p.device == self.ordinal) {
            p.settle();
        }
    }

    /// Another stream.
    pub fn add_stream(&self, flags: u32, priority: i32) -> Arc<Stream> {
        let s = Stream::new(self.ordinal, flags, priority);
        lock(&self.streams).push(Arc::downgrade(&s));
        s
    }

    /// Waits for everything on the device.
    pub fn synchronize(&self) -> Result {
        let mut result = Ok(());
        for s in self.all_streams() {
            result = result.and(s.queue.wait());
        }
        self.settle_pools();
        result.and(self.check_fault())
    }
}

/// A stream.
pub struct Stream {
    /// Number of its device.
    pub device: i32,
    /// Flags it was made with.
    pub flags: u32,
    /// Priority it was made with; all are served alike.
    pub priority: i32,
    /// Its work.
    pub queue: Queue<Code>,
    /// While operations are kept instead of run.
    pub capture: Mutex<Option<crate::capture::Capturing>>,
    /// It was destroyed, and only finishes its work.
    pub retired: AtomicBool,
    /// Compute units that the program wants it to use.
    pub mask: Mutex<Vec<u32>>,
    /// Unique number.
    pub number: u64,
}

impl Stream {
    /// A stream of a device.
    pub fn new(device: i32, flags: u32, priority: i32) -> Arc<Stream> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Stream {
            device,
            flags,
            priority,
            queue: Queue::new(),
            capture: Mutex::new(None),
            retired: AtomicBool::new(false),
            mask: Mutex::default(),
            number,
        })
    }

    /// Nobody has a handle any more. What was put into the stream is still done: until then it lives, and whoever waits
    /// for the device waits for it.
    pub fn retire(self: &Arc<Stream>) {
        self.retired.store(true, Ordering::Release);
        if let Some(c) = lock(&self.capture).take() {
            crate::capture::ended(c.id);
        }
        let held = self.clone();
        self.queue.push_always(move || drop(held));
    }
}

/// An event.
pub struct EventEntry {
    /// The marker.
    pub event: Event,
    /// Flags it was made with.
    pub flags: u32,
    /// Set while it was last recorded in a stream under capture.
    pub captured: Mutex<Option<crate::capture::Capturing>>,
    /// State that other processes see.
    pub shared: Option<crate::ipc::SharedEvent>,
}

impl EventEntry {
    /// An event that was never recorded here.
    pub fn new(flags: u32, shared: Option<crate::ipc::SharedEvent>) -> EventEntry {
        EventEntry { event: Event::new(), flags, captured: Mutex::new(None), shared }
    }

    /// Puts a recording into a queue.
    pub fn record(self: &Arc<Self>, queue: &Queue<Code>) {
        if let Some(s) = &self.shared {
            let (ticket, own) = (s.begin(), self.clone());
            queue.push_always(move || {
                if let Some(s) = &own.shared {
                    s.complete(ticket);
                }
            });
        }
        queue.record(&self.event);
    }

    /// Lets a queue wait for the latest recording.
    pub fn hold(self: &Arc<Self>, queue: &Queue<Code>) {
        match &self.shared {
            Some(_) => {
                let own = self.clone();
                queue.push_always(move || own.wait());
            }
            None => queue.wait_for(&self.event),
        }
    }

    /// Waits for the latest recording.
    pub fn wait(&self) {
        match &self.shared {
            Some(s) => s.wait(),
            None => self.event.wait(),
        }
    }

    /// The latest recording was reached.
    pub fn done(&self) -> bool {
        self.shared.as_ref().map_or_else(|| self.event.done(), |s| s.done())
    }
}

/// Objects behind handles of one kind. Handles are multiples of 16 that no other kind uses, and never used twice.
pub struct Table<T> {
    entries: Mutex<BTreeMap<u64, T>>,
}

impl<T: Clone> Table<T> {
    /// No objects.
    pub const fn new() -> Table<T> {
        Table { entries: Mutex::new(BTreeMap::new()) }
    }

    /// A handle for an object.
    pub fn add(&self, object: T) -> Handle {
        static NEXT: AtomicU64 = AtomicU64::new(0x1000);
        let number = NEXT.fetch_add(16, Ordering::Relaxed);
        lock(&self.entries).insert(number, object);
        number as Handle
    }

    /// The object behind a handle.
    pub fn get(&self, handle: Handle) -> Option<T> {
        lock(&self.entries).get(&(handle as u64)).cloned()
    }

    /// All objects.
    pub fn all(&self) -> Vec<T> {
        lock(&self.entries).values().cloned().collect()
    }

    /// Forgets a handle.
    pub fn remove(&self, handle: Handle) -> Option<T> {
        lock(&self.entries).remove(&(handle as u64))
    }

    /// The handle of an object.
    pub fn find(&self, wanted: impl Fn(&T) -> bool) -> Option<Handle> {
        lock(&self.entries).iter().find(|(_, v)| wanted(v)).map(|(k, _)| *k as Handle)
    }

    /// Forgets all handles whose objects are not wanted.
    pub fn retain(&self, keep: impl Fn(&T) -> bool) {
        lock(&self.entries).retain(|_, v| keep(v));
    }
}

/// Streams but the default ones.
pub static STREAMS: Table<Arc<Stream>> = Table::new();
/// Events.
pub static EVENTS: Table<Arc<EventEntry>> = Table::new();
/// Modules.
pub static MODULES: Table<Arc<crate::module::Module>> = Table::new();
/// Kernels.
pub static FUNCTIONS: Table<Arc<crate::module::Function>> = Table::new();
/// Memory pools but the default ones.
pub static POOLS: Table<Arc<crate::pool::Pool>> = Table::new();
/// Graphs.
pub static GRAPHS: Table<Arc<Mutex<crate::graph::Graph>>> = Table::new();
/// Nodes of graphs: the graph, and the number of the node.
pub static NODES: Table<(Arc<Mutex<crate::graph::Graph>>, usize)> = Table::new();
/// Instantiated graphs.
pub static EXECS: Table<Arc<Mutex<crate::graph::Exec>>> = Table::new();

/// The devices, made at the first call. Empty when `BAREWAVE_TARGET` makes no sense.
pub fn devices() -> &'static [Arc<Device>] {
    static DEVICES: OnceLock<Vec<Arc<Device>>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        make_devices().unwrap_or_else(|e| {
            log(&format!("{e}: there are no devices"));
            Vec::new()
        })
    })
}

/// Why there are no devices.
#[derive(Debug, thiserror::Error)]
pub enum NoDevices {
    /// A variable of the environment makes no sense.
    #[error("{name}={text}: {wanted}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What it says.
        text: String,
        /// What it may say.
        wanted: &'static str,
    },
    /// No such targets.
    #[error("BAREWAVE_TARGET: {0}")]
    Target(Box<dyn std::error::Error + Send + Sync>),
    /// The emulator refuses.
    #[error("no emulated device can be made ({0})")]
    Device(#[from] barewave_emu::EmuError),
}

/// A number from the environment within bounds; `None` where it says nothing.
fn number(
    name: &'static str,
    bounds: std::ops::RangeInclusive<u64>,
    wanted: &'static str,
) -> std::result::Result<Option<u64>, NoDevices> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    match text.trim().parse().ok().filter(|n| bounds.contains(n)) {
        Some(n) => Ok(Some(n)),
        None => Err(NoDevices::Setting { name, text, wanted }),
    }
}

fn make_devices() -> std::result::Result<Vec<Arc<Device>>, NoDevices> {
    let environment = crate::module::Environment::read()?;
    crate::fork::watch();
    let names = std::env::var("BAREWAVE_TARGET").unwrap_or_default();
    let names = if names.trim().is_empty() { "gfx942".to_string() } else { names };
    let mut ids = Vec::new();
    for name in names.split(',').map(str::trim) {
        let (word, features) = name.split_once(':').map_or((name, ""), |(w, f)| (w, f));
        let target = Target::parse(word).map_err(|e| NoDevices::Target(e.into()))?;
        let info = target.info();
        let mut id = TargetId::of_device(info.name, info.elf_features);
        if !features.is_empty() {
            let given =
                TargetId::parse(&format!("{}:{features}", info.name)).map_err(|e| NoDevices::Target(e.into()))?;
            // Only what the target has can be switched.
            id.sramecc = id.sramecc.map(|usual| given.sramecc.unwrap_or(usual));
            id.xnack = id.xnack.map(|usual| given.xnack.unwrap_or(usual));
        }
        ids.push((target, id));
    }
    let wanted = number("BAREWAVE_MEMORY", 1..=1 << 14, "a number of GiB is expected")?;
    let wanted = wanted.map_or(DEFAULT_MEMORY, |gib| gib << 30);
    let units = number("BAREWAVE_COMPUTE_UNITS", 1..=1 << 16, "a number from 1 to 65536 is expected")?;
    let count = ids.len() as u64;
    let first = EmuDevice::unified(ids[0].0, wanted.saturating_mul(count))?;
    if environment.strict {
        first.quarantine();
    }
    let memory = wanted.min(first.capacity() / count);
    let mut list = Vec::new();
    for (i, (target, id)) in ids.into_iter().enumerate() {
        let ordinal = i as i32;
        let pool = Arc::new(crate::pool::Pool::new(ordinal, 0));
        list.push(Arc::new(Device {
            ordinal,
            emu: first.beside(target)?,
            id,
            memory,
            used: AtomicU64::new(0),
            fault: AtomicU32::new(0),
            default_stream: Stream::new(ordinal, 0, 0),
            streams: Mutex::default(),
            context_users: AtomicU32::new(0),
            cache_config: AtomicU32::new(0),
            pool: Mutex::new(pool.clone()),
            default_pool: pool,
            compute_units: units.map_or_else(|| target.cus(), |n| n as u32),
            flags: AtomicU32::new(0),
            limits: Mutex::new(crate::device::LIMITS),
            graph_memory: Mutex::default(),
            services: OnceLock::new(),
        }));
    }
    Ok(list)
}

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
    static CONTEXTS: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
}

/// A device by its number.
pub fn device(ordinal: i32) -> Result<&'static Arc<Device>> {
    let list = devices();
    if list.is_empty() {
        return err(code::hipErrorNoDevice);
    }
    usize::try_from(ordinal).ok().and_then(|i| list.get(i)).ok_or(Code(code::hipErrorInvalidDevice))
}

/// This thread's device.
pub fn current() -> Result<&'static Arc<Device>> {
    device(CURRENT.get())
}

/// Sets this thread's device.
pub fn set_current(ordinal: i32) -> Result {
    device(ordinal)?;
    CURRENT.set(ordinal);
    Ok(())
}

/// A context is its device's primary one; the handle is the device's number times 16 plus 8.
pub fn context_of(ordinal: i32) -> Handle {
    (ordinal as u64 * 16 + 8) as Handle
}

/// The device of a context.
pub fn device_of_context(context: Handle) -> Result<&'static Arc<Device>> {
    let number = context as u64;
    if number % 16 != 8 {
        return err(code::hipErrorInvalidContext);
    }
    let ordinal = i32::try_from(number / 16).map_err(|_| Code(code::hipErrorInvalidContext))?;
    device(ordinal).map_err(|_| Code(code::hipErrorInvalidContext))
}

/// Puts the current device on this thread's stack of contexts.
pub fn push_context(ordinal: i32) -> Result {
    CONTEXTS.with_borrow_mut(|c| c.push(CURRENT.get()));
    set_current(ordinal)
}

/// Takes the top of the stack of contexts; gives the context that was current.
pub fn pop_context() -> Result<Handle> {
    let was = CURRENT.get();
    let before = CONTEXTS.with_borrow_mut(Vec::pop).ok_or(Code(code::hipErrorInvalidContext))?;
    set_current(before)?;
    Ok(context_of(was))
}

/// Handle of the default stream that each thread has of its own.
pub const PER_THREAD: Handle = 2 as Handle;

/// A thread's own stream. What was put into it is still done when the thread ends.
struct OwnStream(Arc<Stream>);

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.0.retire();
    }
}

thread_local! {
    static OWN: RefCell<BTreeMap<i32, OwnStream>> = const { RefCell::new(BTreeMap::new()) };
}

/// The stream behind a handle: null and 1 are the default stream of the current device, 2 that of the thread.
pub fn stream(handle: Handle) -> Result<Arc<Stream>> {
    match handle as u64 {
        0 | 1 => Ok(current()?.default_stream.clone()),
        2 => {
            let device = current()?;
            OWN.with_borrow_mut(|own| {
                let made = || OwnStream(device.add_stream(0, 0));
                Ok(own.entry(device.ordinal).or_insert_with(made).0.clone())
            })
        }
        _ => STREAMS.get(handle).ok_or(Code(code::hipErrorContextIsDestroyed)),
    }
}

/// The event behind a handle.
pub fn event(handle: Handle) -> Result<Arc<EventEntry>> {
    EVENTS.get(handle).ok_or(Code(code::hipErrorInvalidHandle))
}

/// `size_t` from C; sizes beyond the address space make no sense.
pub fn size(bytes: usize) -> Result<u64> {
    u64::try_from(bytes).ok().filter(|b| *b < 1 << 47).ok_or(INVALID)
}
