//! Modules, kernels, launches, and what can be asked about them.

use crate::api::{Code, INVALID, Result, err, get, log, put};
use crate::cooperative::{Block, Grids, check_list, cooperative, launch_all, launch_cooperative, several};
use crate::device::LIMITS;
use crate::op::{Op, submit};
use crate::printf::{Buffer, Formats};
use crate::program::{check_target, image_for, image_in};
use crate::state::{self, Device, FUNCTIONS, MODULES, NoDevices, Stream, lock};
use crate::symbols::function_of;
use crate::types::*;
use barewave_emu::codeobj::{Arg, ArgKind, Family, KernelInfo, Symbol, SymbolKind};
use barewave_emu::hip::code::*;
use barewave_emu::hip::types::{HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END};
use barewave_emu::kernarg::{self, LaunchError};
use barewave_emu::{EmuError, LaunchOptions, TimeLimit};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

/// A loaded code object.
pub struct Module {
    /// The code.
    pub code: barewave_emu::Module,
    /// Number of its device.
    pub device: i32,
    formats: Formats,
    /// Memory of its managed variables, by name, with their sizes.
    managed: Vec<(String, u64, u64)>,
}

impl Module {
    /// Loads a code object on a device.
    pub fn load(device: &Device, elf: &[u8]) -> Result<Module> {
        check_target(elf, device)?;
        let code = device.emu.load(elf).map_err(|e| {
            log(&e.to_string());
            Code(match e {
                EmuError::WrongTarget { .. } => hipErrorNoBinaryForGpu,
                EmuError::OutOfMemory(_) => hipErrorOutOfMemory,
                EmuError::Relocation(_) => hipErrorSharedObjectSymbolNotFound,
                _ => hipErrorInvalidImage,
            })
        })?;
        let (start, size) = code.image();
        crate::memory::image_loaded(start, size, device.ordinal);
        let formats = Formats::new(&code.file().formats);
        Ok(Module { code, device: device.ordinal, formats, managed: Vec::new() })
    }

    /// The same for code that no program's start code speaks for: its managed variables get memory here. Compilers
    /// make two symbols of such a variable: `x`, a pointer to the memory, and `x.managed`, what it starts with.
    fn load_alone(device: &Device, elf: &[u8]) -> Result<Module> {
        let mut m = Module::load(device, elf)?;
        let names = m.code.file().symbols.iter().filter_map(|s| s.name.strip_suffix(".managed"));
        let names: Vec<String> = names.map(str::to_string).collect();
        for name in names {
            let (Some((pointer, _)), Some((value, size))) =
                (m.code.global(&name), m.code.global(&format!("{name}.managed")))
            else {
                continue;
            };
            let memory = crate::memory::allocate_on(device.ordinal, size.max(1), crate::memory::Kind::Managed)?;
            let mut bytes = vec![0; size as usize];
            let copied = device.emu.read(value, &mut bytes).and_then(|()| device.emu.write(memory, &bytes));
            copied.and_then(|()| device.emu.write(pointer, &memory.to_le_bytes())).map_err(|_| INVALID)?;
            m.managed.push((name, memory, size));
        }
        Ok(m)
    }

    /// Address and size of a variable.
    fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let managed = self.managed.iter().find(|(n, ..)| n == name).map(|&(_, at, size)| (at, size));
        managed.or_else(|| self.code.global(name))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        crate::memory::image_unloaded(self.code.image().0);
        for (_, memory, _) in &self.managed {
            let _ = crate::memory::release(*memory);
        }
    }
}

/// A kernel of a module.
pub struct Function {
    module: Arc<Module>,
    name: String,
    /// For `hipKernelNameRef`.
    c_name: std::ffi::CString,
    /// Descriptor and metadata.
    pub info: KernelInfo,
    /// It may ask the host for something while it runs.
    asks_host: bool,
    /// It may leave something to print.
    prints: bool,
    /// Dynamic LDS that the program asked for; -1 when it has not.
    max_dynamic_lds: AtomicI32,
    /// Share of LDS that it prefers, per cent.
    carveout: AtomicI32,
}

impl Function {
    /// A kernel by its name.
    pub fn of(module: Arc<Module>, name: &str) -> Result<Function> {
        let info = module.code.kernel(name).map_err(|_| Code(hipErrorNotFound))?.info().clone();
        let c_name = std::ffi::CString::new(name).map_err(|_| Code(hipErrorNotFound))?;
        let takes = |wanted: &[&str]| {
            let one = |a: &Arg| matches!(&a.kind, ArgKind::Hidden(n) if wanted.contains(&n.as_str()));
            info.meta.as_ref().is_some_and(|m| m.args.iter().any(one))
        };
        let (asks_host, prints) = (takes(&["hostcall_buffer", "heap_v1"]), takes(&["printf_buffer"]));
        let (max_dynamic_lds, carveout) = (AtomicI32::new(-1), AtomicI32::new(0));
        Ok(Function { module, name: name.to_string(), c_name, info, asks_host, prints, max_dynamic_lds, carveout })
    }

    /// Number of its device.
    pub fn device(&self) -> i32 {
        self.module.device
    }

    /// The name as C wants it.
    pub fn c_name(&self) -> &CStr {
        &self.c_name
    }
}

/// Everything about a launch.
pub struct LaunchSpec {
    /// The kernel.
    pub function: Arc<Function>,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Workitems of a workgroup.
    pub block: [u32; 3],
    /// Dynamic LDS, bytes.
    pub shared: u32,
    /// The explicit arguments as the kernel wants them.
    pub arguments: Vec<u8>,
    /// What the caller named the kernel by, for who asks.
    pub handle: u64,
    /// Addresses of the arguments one by one, for who asks.
    pointers: Vec<u64>,
    /// A cooperative launch: how its workgroups meet.
    pub grids: Option<Grids>,
}

/// What the environment says about every launch.
#[derive(Clone, Copy)]
pub struct Environment {
    /// Launches are checked for undefined behaviour.
    pub strict: bool,
    timeout: TimeLimit,
    /// Clocks of devices run in real time.
    real_time: bool,
}

impl Environment {
    /// Reads it; a value that makes no sense is an error.
    pub fn read() -> std::result::Result<Environment, NoDevices> {
        let text = |name: &str| std::env::var(name).unwrap_or_default().trim().to_string();
        let wrong = |name, wanted| NoDevices::Setting { name, text: text(name), wanted };
        let strict = match &*text("BAREWAVE_STRICT") {
            "" | "0" => false,
            "1" => true,
            _ => return Err(wrong("BAREWAVE_STRICT", "0 or 1 is expected")),
        };
        let timeout = text(TimeLimit::VARIABLE)
            .parse()
            .map_err(|_| wrong(TimeLimit::VARIABLE, "seconds are expected, or 0 for no limit"))?;
        let real_time = match &*text("BAREWAVE_CLOCK") {
            "" | "real" => true,
            "deterministic" => false,
            _ => return Err(wrong("BAREWAVE_CLOCK", "real or deterministic is expected")),
        };
        Ok(Environment { strict, timeout, real_time })
    }
}

fn options(dynamic_lds: u32) -> LaunchOptions {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    // There are no devices when it makes no sense.
    let e = ENVIRONMENT.get_or_init(|| {
        Environment::read().unwrap_or(Environment { strict: false, timeout: TimeLimit::NONE, real_time: true })
    });
    LaunchOptions {
        strict: e.strict,
        dynamic_lds,
        deadline: e.timeout.deadline(),
        real_time: e.real_time,
        // Time alone ends a kernel here: one that waits for a clock or for others executes any number.
        max_instructions: u64::MAX,
        ..LaunchOptions::default()
    }
}

impl LaunchSpec {
    /// The launch as the parameters of a graph's node. Its pointers are good as long as the launch.
    pub fn described(&self) -> hipKernelNodeParams {
        let dim = |[x, y, z]: [u32; 3]| dim3 { x, y, z };
        hipKernelNodeParams {
            block: dim(self.block),
            extra: std::ptr::null_mut(),
            function: self.handle as *mut c_void,
            grid: dim(self.grid),
            kernel_params: self.pointers.as_ptr().cast_mut().cast(),
            shared_bytes: self.shared,
        }
    }

    /// Runs the kernel to its end.
    pub fn run(&self, device: &Device) -> Result {
        let f = &self.function;
        let kernel = f.module.code.kernel(&f.name).map_err(|_| Code(hipErrorNotFound))?;
        let mut options = options(self.shared);
        let [stack, fifo, _] = *lock(&device.limits);
        if stack != LIMITS[0] {
            options.stack = stack as u32;
        }
        if f.asks_host {
            options.services = device.services()?;
        }
        let meeting = self.grids.as_ref().map(|g| g.prepare(device, self.grid)).transpose()?;
        options.services.grid_sync = meeting.as_ref().map_or(0, Block::address);
        let buffer = if f.prints { Some(Buffer::new(device, fifo)?) } else { None };
        options.services.printf_buffer = buffer.as_ref().map_or(0, Buffer::address);
        let launched = device.emu.launch(&kernel, self.grid, self.block, &self.arguments, &options);
        if let Some(buffer) = buffer {
            buffer.print(&f.module.formats);
        }
        launched.map(drop).map_err(|fault| device.report(&fault))
    }
}

/// The kernel behind a handle, or behind a host function that stands for it.
pub fn function(handle: *const c_void) -> Result<Arc<Function>> {
    match FUNCTIONS.get(handle.cast_mut()) {
        Some(f) => Ok(f),
        None if handle.is_null() => err(hipErrorInvalidDeviceFunction),
        None => function_of(handle),
    }
}

/// The bytes of the explicit arguments: from a list of pointers to each, or from a buffer that the caller packed.
///
/// # Safety
/// The lists are null or as the HIP API wants them.
unsafe fn arguments(f: &Function, params: *mut *mut c_void, extra: *mut *mut c_void) -> Result<Vec<u8>> {
    if !params.is_null() && !extra.is_null() {
        return Err(INVALID);
    }
    if !extra.is_null() {
        let (mut start, mut size) = (std::ptr::null::<u8>(), 0usize);
        let mut at = extra;
        loop {
            // SAFETY: the list ends with its mark.
            let (key, value) = unsafe {
                let key = at.read_unaligned() as usize;
                if key == HIP_LAUNCH_PARAM_END {
                    break;
                }
                (key, at.add(1).read_unaligned())
            };
            match key {
                HIP_LAUNCH_PARAM_BUFFER_POINTER => start = value.cast(),
                // SAFETY: the value points to the size.
                HIP_LAUNCH_PARAM_BUFFER_SIZE => size = unsafe { get(value.cast::<usize>())? },
                _ => return Err(INVALID),
            }
            // SAFETY: as above.
            at = unsafe { at.add(2) };
        }
        let none = kernarg::explicit(&f.info).is_none_or(|mut list| list.next().is_none());
        if (start.is_null() && (size > 0 || !none)) || size > 1 << 20 {
            return Err(INVALID);
        }
        // SAFETY: the caller's word.
        return Ok(if size == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(start, size) }.to_vec() });
    }
    let Some(wanted) = kernarg::explicit(&f.info) else {
        // No metadata: a kernel without arguments can be launched all the same.
        return if params.is_null() { Ok(Vec::new()) } else { Err(INVALID) };
    };
    let wanted: Vec<usize> = wanted.map(|a| a.size as usize).collect();
    if params.is_null() && !wanted.is_empty() {
        log(&format!("kernel `{}` is launched without arguments, it takes {}", f.name, kernarg::describe(&f.info)));
        return Err(INVALID);
    }
    let mut values = Vec::with_capacity(wanted.len());
    for (i, size) in wanted.into_iter().enumerate() {
        // SAFETY: the list has a pointer to each argument.
        let bytes = unsafe {
            let p = params.add(i).read_unaligned().cast::<u8>();
            if p.is_null() {
                return Err(INVALID);
            }
            std::slice::from_raw_parts(p, size)
        };
        values.push(bytes);
    }
    kernarg::pack(&f.info, &values).map_err(|e| {
        log(&format!("kernel `{}`: {e}", f.name));
        INVALID
    })
}

/// How a way of launching calls a geometry that is impossible: HIP has other codes for each.
#[derive(Clone, Copy)]
pub struct Refusal {
    /// An extent of 0.
    empty: Code,
    /// A workgroup larger than devices can have.
    block: Code,
    /// More LDS than a workgroup can have.
    shared: Code,
    /// More registers than a compute unit has for a workgroup.
    unheld: Code,
    /// Most workgroups along each axis.
    grid: [u32; 3],
}

/// Kernels that are named by a host function.
pub const BY_HOST: Refusal = Refusal {
    empty: INVALID,
    block: Code(hipErrorInvalidConfiguration),
    shared: Code(hipErrorOutOfMemory),
    unheld: Code(hipErrorLaunchOutOfResources),
    grid: [u32::MAX; 3],
};

/// Kernels of modules.
pub const BY_HANDLE: Refusal = Refusal {
    empty: INVALID,
    block: INVALID,
    shared: INVALID,
    unheld: Code(hipErrorLaunchOutOfResources),
    grid: [i32::MAX as u32, 1 << 16, 1 << 16],
};

/// Cooperative launches of kernels that are named by a host function.
pub const COOPERATIVE: Refusal = Refusal {
    empty: Code(hipErrorInvalidConfiguration),
    block: Code(hipErrorInvalidConfiguration),
    shared: Code(hipErrorCooperativeLaunchTooLarge),
    unheld: Code(hipErrorCooperativeLaunchTooLarge),
    grid: [u32::MAX; 3],
};

/// Kernels in graphs.
pub const IN_GRAPH: Refusal = Refusal {
    empty: Code(hipErrorInvalidConfiguration),
    block: Code(hipErrorInvalidConfiguration),
    shared: Code(hipErrorInvalidConfiguration),
    unheld: Code(hipErrorLaunchOutOfResources),
    grid: [u32::MAX; 3],
};

impl Refusal {
    fn check(&self, f: &Function, grid: [u32; 3], block: [u32; 3], shared: usize) -> Result<u32> {
        if grid.contains(&0) || block.contains(&0) {
            return Err(self.empty);
        }
        if (0..3).any(|i| grid[i] > self.grid[i]) {
            return Err(INVALID);
        }
        let bytes = u32::try_from(shared).map_err(|_| self.shared)?;
        let target = state::device(f.module.device)?.emu.target();
        kernarg::check(target, &f.info, grid, block, bytes).map_err(|e| {
            log(&format!("kernel `{}`: {e}", f.name));
            match e {
                LaunchError::WorkgroupSize(_) => self.block,
                LaunchError::Lds { .. } => self.shared,
                LaunchError::Unheld(_) => self.unheld,
                // The kernel was promised a smaller one.
                LaunchError::WorkgroupLimit { .. } => Code(hipErrorLaunchFailure),
                _ => Code(hipErrorInvalidConfiguration),
            }
        })?;
        Ok(bytes)
    }
}

/// Checks a launch and makes its description.
///
/// # Safety
/// As for `arguments`.
pub unsafe fn prepare(
    f: Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    refusal: &Refusal,
) -> Result<LaunchSpec> {
    let shared = refusal.check(&f, grid, block, shared)?;
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(&f, params, extra)? };
    let offsets = kernarg::explicit(&f.info).map(|list| list.map(|a| u64::from(a.offset)).collect::<Vec<_>>());
    let pointers = offsets.unwrap_or_default().iter().map(|at| arguments.as_ptr() as u64 + at).collect();
    Ok(LaunchSpec { function: f, grid, block, shared, arguments, handle: 0, pointers, grids: None })
}

/// Prepares the launch of a kernel that is named by a host function.
pub unsafe fn prepare_host(
    host: *const c_void,
    grid: dim3,
    block: dim3,
    shared: usize,
    params: *mut *mut c_void,
    refusal: &Refusal,
) -> Result<LaunchSpec> {
    let (grid, block) = ([grid.x, grid.y, grid.z], [block.x, block.y, block.z]);
    // SAFETY: the caller's word.
    let mut spec = unsafe { prepare(function(host)?, grid, block, shared, params, std::ptr::null_mut(), refusal)? };
    spec.handle = host as u64;
    Ok(spec)
}

/// Prepares the launch of a kernel that is named by a handle.
pub unsafe fn prepare_function(
    f: hipFunction_t,
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<LaunchSpec> {
    let found = FUNCTIONS.get(f).ok_or(Code(hipErrorInvalidHandle))?;
    // SAFETY: the caller's word.
    let mut spec = unsafe { prepare(found, grid, block, shared, params, extra, &BY_HANDLE)? };
    spec.handle = f as u64;
    Ok(spec)
}

/// Workgroups and their size, of a grid that is given in workitems: all of them full, none larger than the grid.
fn workgroups(all: [u32; 3], block: [u32; 3]) -> Result<([u32; 3], [u32; 3])> {
    if block.iter().map(|&b| u64::from(b)).product::<u64>() > 1024 {
        return Err(INVALID);
    }
    let block: [u32; 3] = std::array::from_fn(|i| block[i].min(all[i]));
    if block.contains(&0) || (0..3).any(|i| !all[i].is_multiple_of(block[i])) {
        return Err(INVALID);
    }
    Ok((std::array::from_fn(|i| all[i] / block[i]), block))
}

/// The stream of a launch; one that is gone is an invalid value.
fn stream_for(handle: hipStream_t) -> Result<Arc<Stream>> {
    state::stream(handle).map_err(|_| INVALID)
}

/// A launch between two events, each of which may be null.
fn launch_between(stream: hipStream_t, spec: LaunchSpec, start: hipEvent_t, stop: hipEvent_t) -> Result {
    let s = stream_for(stream)?;
    let known = |e: hipEvent_t| if e.is_null() { Ok(None) } else { state::event(e).map(Some).map_err(|_| INVALID) };
    let (start, stop) = (known(start)?, known(stop)?);
    let record = |e| if let Some(e) = e { crate::capture::record(&s, e) } else { Ok(()) };
    record(start)?;
    launch(&s, spec)?;
    record(stop)
}

/// Launches a kernel whose arguments are packed already.
pub fn launch_packed(
    f: Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
    mut arguments: Vec<u8>,
    stream: hipStream_t,
) -> Result {
    let mut size = arguments.len();
    let mut extra = [
        HIP_LAUNCH_PARAM_BUFFER_POINTER as *mut c_void,
        arguments.as_mut_ptr().cast(),
        HIP_LAUNCH_PARAM_BUFFER_SIZE as *mut c_void,
        (&raw mut size).cast(),
        HIP_LAUNCH_PARAM_END as *mut c_void,
    ];
    // SAFETY: the list is as the API wants it.
    let spec = unsafe { prepare(f, grid, block, shared, std::ptr::null_mut(), extra.as_mut_ptr(), &BY_HOST)? };
    launch(&state::stream(stream)?, spec)
}

/// Puts a launch into a stream of its kernel's device.
pub fn launch(stream: &Arc<Stream>, spec: LaunchSpec) -> Result {
    if stream.device != spec.function.module.device {
        return err(hipErrorInvalidHandle);
    }
    submit(stream, Op::Kernel(Arc::new(spec)))
}

fn add(place: *mut hipModule_t, device: &Device, elf: &[u8]) -> Result {
    if place.is_null() {
        return Err(INVALID);
    }
    let module = Module::load_alone(device, elf)?;
    // SAFETY: not null, and the caller's word.
    unsafe { put(place, MODULES.add(Arc::new(module))) }
}

unsafe fn load(place: *mut hipModule_t, image: *const c_void) -> Result {
    if image.is_null() {
        return Err(INVALID);
    }
    let device = state::current()?;
    // SAFETY: the caller's word.
    let elf = unsafe { image_for(image, device)? };
    add(place, device, &elf)
}

unsafe fn text<'a>(p: *const c_char) -> Result<&'a str> {
    if p.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(p) }.to_str().map_err(|_| Code(hipErrorNotFound))
}

fn module(handle: hipModule_t) -> Result<Arc<Module>> {
    MODULES.get(handle).ok_or(Code(hipErrorInvalidHandle))
}

/// Workitems of a workgroup.
pub fn flat(block: [u32; 3]) -> u32 {
    block.iter().product()
}

/// LDS that the kernel itself leaves of what a workgroup can have, bytes.
fn free_lds(f: &Function) -> Result<u32> {
    let all = state::device(f.module.device)?.emu.target().info().lds_bytes;
    Ok(all.saturating_sub(f.info.descriptor.lds_bytes))
}

/// Bytes of constants that programs see in a kernel's module: variables in memory that is not written, without the
/// kernels' descriptors.
fn constants(f: &Function) -> usize {
    let file = f.module.code.file();
    let kernels: BTreeSet<u64> = file.kernels.iter().map(|k| k.descriptor_addr).collect();
    let constant = |s: &&Symbol| {
        let mut segments = file.segments.iter();
        s.kind == SymbolKind::Object
            && s.global
            && !kernels.contains(&s.addr)
            && segments.any(|g| !g.writable && g.addr <= s.addr && s.addr < g.addr + g.mem_size)
    };
    file.symbols.iter().filter(constant).map(|s| s.size as usize).sum()
}

fn attribute(f: &Function, which: c_uint) -> Result<c_int> {
    let d = &f.info.descriptor;
    let meta = f.info.meta.as_ref();
    let target = state::device(f.module.device)?.emu.target().info();
    let threads = meta.map_or(0, |m| m.max_flat_workgroup_size);
    Ok(match which {
        0 => (if threads == 0 { 1024 } else { threads }) as c_int,
        1 => d.lds_bytes as c_int,
        2 => constants(f) as c_int,
        3 => d.scratch_bytes as c_int,
        4 => {
            let all = Family::of_mach(target.elf_mach).map_or(0, |x| d.vgprs(x));
            meta.filter(|m| m.vgprs > 0).map_or(all, |m| m.vgprs) as c_int
        }
        5 | 6 => 100,
        7 => 0,
        8 => match f.max_dynamic_lds.load(Ordering::Relaxed) {
            -1 => free_lds(f)? as c_int,
            asked => asked,
        },
        9 => f.carveout.load(Ordering::Relaxed),
        _ => return Err(INVALID),
    })
}

hip! {
    fn hipModuleLoad(module: *mut hipModule_t, path: *const c_char) {
        let path = text(path)?;
        if path.is_empty() {
            return Err(INVALID);
        }
        let bytes = std::fs::read(path).map_err(|e| {
            log(&format!("{path}: {e}"));
            Code(hipErrorFileNotFound)
        })?;
        let device = state::current()?;
        add(module, device, &image_in(&bytes, device)?)
    }
    fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) {
        load(module, image)
    }
    fn hipModuleLoadDataEx(module: *mut hipModule_t, image: *const c_void, _count: c_uint, _options: *mut c_uint,
        _values: *mut *mut c_void) {
        load(module, image)
    }
    fn hipModuleLoadFatBinary(module: *mut hipModule_t, image: *const c_void) {
        load(module, image)
    }
    fn hipModuleUnload(handle: hipModule_t) {
        let unknown = if handle.is_null() { hipErrorInvalidHandle } else { hipErrorNotFound };
        let m = MODULES.remove(handle).ok_or(Code(unknown))?;
        // Kernels that are in streams keep the code until they are done.
        FUNCTIONS.retain(|f| !Arc::ptr_eq(&f.module, &m));
        Ok(())
    }
    fn hipModuleGetFunction(function: *mut hipFunction_t, handle: hipModule_t, name: *const c_char) {
        if function.is_null() {
            return Err(INVALID);
        }
        let (m, name) = (module(handle)?, text(name)?);
        // A kernel has one handle.
        let known = FUNCTIONS.find(|f| Arc::ptr_eq(&f.module, &m) && f.name == name);
        let handle = match known {
            Some(handle) => handle,
            None => FUNCTIONS.add(Arc::new(Function::of(m, name)?)),
        };
        put(function, handle)
    }
    fn hipModuleGetFunctionCount(count: *mut c_uint, handle: hipModule_t) {
        put(count, module(handle)?.code.file().kernels.len() as c_uint)
    }
    fn hipModuleGetGlobal(address: *mut *mut c_void, bytes: *mut usize, handle: hipModule_t, name: *const c_char) {
        let name = text(name)?;
        if name.is_empty() || address.is_null() && bytes.is_null() {
            return Err(INVALID);
        }
        let m = module(handle)?;
        let (at, size) = m.variable(name).ok_or(Code(hipErrorNotFound))?;
        if !bytes.is_null() {
            put(bytes, size as usize)?;
        }
        if address.is_null() { Ok(()) } else { put(address, at as *mut c_void) }
    }

    fn hipModuleLaunchKernel(f: hipFunction_t, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void) {
        let spec = prepare_function(f, [gx, gy, gz], [bx, by, bz], shared as usize, params, extra)?;
        launch(&stream_for(stream)?, spec)
    }
    fn hipModuleLaunchCooperativeKernel(f: hipFunction_t, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint,
        bz: c_uint, shared: c_uint, stream: hipStream_t, params: *mut *mut c_void) {
        let none = std::ptr::null_mut();
        stream_for(stream)?;
        launch_cooperative(stream, prepare_function(f, [gx, gy, gz], [bx, by, bz], shared as usize, params, none)?)
    }
    fn hipExtModuleLaunchKernel(f: hipFunction_t, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: usize,
        stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t, stop: hipEvent_t,
        _flags: u32) {
        let (grid, block) = workgroups([gx, gy, gz], [bx, by, bz])?;
        launch_between(stream, prepare_function(f, grid, block, shared, params, extra)?, start, stop)
    }
    fn hipHccModuleLaunchKernel(f: hipFunction_t, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: usize,
        stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t, stop: hipEvent_t) {
        let (grid, block) = workgroups([gx, gy, gz], [bx, by, bz])?;
        launch_between(stream, prepare_function(f, grid, block, shared, params, extra)?, start, stop)
    }
    fn hipLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t) {
        launch(&stream_for(stream)?, prepare_host(host, grid, block, shared, params, &BY_HOST)?)
    }
    fn hipExtLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t, start: hipEvent_t, stop: hipEvent_t, _flags: c_int) {
        launch_between(stream, prepare_host(host, grid, block, shared, params, &BY_HOST)?, start, stop)
    }
    fn hipLaunchCooperativeKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void,
        shared: c_uint, stream: hipStream_t) {
        launch_cooperative(stream, prepare_host(host, grid, block, shared as usize, params, &COOPERATIVE)?)
    }
    fn hipLaunchKernelExC(config: *const hipLaunchConfig_t, host: *const c_void, params: *mut *mut c_void) {
        let c = get(config)?;
        let together = cooperative(c.attributes, c.attribute_count)?;
        let refusal = if together { &COOPERATIVE } else { &BY_HOST };
        let spec = prepare_host(host, c.grid, c.block, c.shared, params, refusal)?;
        if together { launch_cooperative(c.stream, spec) } else { launch(&state::stream(c.stream)?, spec) }
    }
    fn hipDrvLaunchKernelEx(config: *const HIP_LAUNCH_CONFIG, f: hipFunction_t, params: *mut *mut c_void,
        extra: *mut *mut c_void) {
        let c = get(config)?;
        let spec = prepare_function(f, c.grid, c.block, c.shared as usize, params, extra)?;
        if cooperative(c.attributes, c.attribute_count)? {
            return launch_cooperative(c.stream, spec);
        }
        launch(&state::stream(c.stream)?, spec)
    }
    fn hipExtLaunchMultiKernelMultiDevice(list: *mut hipLaunchParams, count: c_int, flags: c_uint) {
        let n = usize::try_from(count).map_err(|_| INVALID)?;
        check_list(list, n, flags)?;
        launch_all(several(std::slice::from_raw_parts(list, n), &BY_HOST)?, false)
    }
    fn hipLaunchCooperativeKernelMultiDevice(list: *mut hipLaunchParams, count: c_int, flags: c_uint) {
        let n = usize::try_from(count).map_err(|_| INVALID)?;
        check_list(list, n, flags)?;
        launch_all(several(std::slice::from_raw_parts(list, n), &COOPERATIVE)?, true)
    }
    fn hipModuleLaunchCooperativeKernelMultiDevice(list: *mut hipFunctionLaunchParams, count: c_uint, flags: c_uint) {
        check_list(list, count as usize, flags)?;
        let one = |p: &hipFunctionLaunchParams| {
            let none = std::ptr::null_mut();
            Ok((prepare_function(p.function, p.grid, p.block, p.shared as usize, p.params, none)?, p.stream))
        };
        launch_all(std::slice::from_raw_parts(list, count as usize).iter().map(one).collect::<Result<_>>()?, true)
    }

    fn hipFuncGetAttribute(value: *mut c_int, which: c_uint, f: hipFunction_t) {
        let f = FUNCTIONS.get(f).ok_or(Code(hipErrorInvalidHandle))?;
        put(value, attribute(&f, which)?)
    }
    fn hipFuncSetAttribute(f: *const c_void, which: c_uint, value: c_int) {
        let f = function(f)?;
        match which {
            // Dynamic LDS needs no permission up to what there is: both are kept for who asks.
            8 if value >= 0 && value as u32 <= free_lds(&f)? => f.max_dynamic_lds.store(value, Ordering::Relaxed),
            9 if (-1..=100).contains(&value) => f.carveout.store(value, Ordering::Relaxed),
            _ => return Err(INVALID),
        }
        Ok(())
    }
    fn hipFuncGetAttributes(attributes: *mut hipFuncAttributes, f: *const c_void) {
        let f = function(f)?;
        let of = |which| attribute(&f, which);
        put(attributes, hipFuncAttributes {
            binary_version: of(6)?,
            cache_mode_ca: 0,
            const_size_bytes: of(2)? as usize,
            local_size_bytes: of(3)? as usize,
            max_dynamic_shared_size_bytes: of(8)?,
            max_threads_per_block: of(0)?,
            num_regs: of(4)?,
            preferred_shmem_carveout: of(9)?,
            ptx_version: of(5)?,
            shared_size_bytes: of(1)? as usize,
        })
    }
    fn hipFuncSetCacheConfig(f: *const c_void, config: c_uint) {
        // None, LDS, L1, both alike: there is no choice.
        function(f)?;
        if config > 3 { Err(INVALID) } else { Ok(()) }
    }
    fn hipFuncSetSharedMemConfig(f: *const c_void, config: c_uint) {
        // Banks of the usual width, of 4 and of 8 bytes.
        function(f)?;
        if config > 2 { Err(INVALID) } else { Ok(()) }
    }
}

/// Name of a kernel; null for a handle that is none.
///
/// # Safety
/// The result is valid until the module is unloaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipKernelNameRef(f: hipFunction_t) -> *const c_char {
    FUNCTIONS.get(f).map_or(std::ptr::null(), |f| f.c_name.as_ptr())
}
