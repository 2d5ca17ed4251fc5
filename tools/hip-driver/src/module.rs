//! Modules, kernels, launches, and what can be asked about them.

use crate::api::{Code, INVALID, Result, err, get, log, put};
use crate::device::LIMITS;
use crate::op::{Op, submit};
use crate::printf::{Buffer, Formats};
use crate::program::{check_target, image_for, image_in};
use crate::state::{self, Device, FUNCTIONS, MODULES, NoDevices, Stream, lock};
use crate::symbols::function_of;
use crate::types::*;
use barewave_emu::codeobj::{Arg, ArgKind, Family, KernelInfo};
use barewave_emu::hip::code::*;
use barewave_emu::hip::types::{HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END};
use barewave_emu::{EmuError, LaunchOptions, kernarg};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A loaded code object.
pub struct Module {
    /// The code.
    pub code: barewave_emu::Module,
    /// Number of its device.
    pub device: i32,
    formats: Formats,
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
        Ok(Module { code, device: device.ordinal, formats })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        crate::memory::image_unloaded(self.code.image().0);
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
        Ok(Function { module, name: name.to_string(), c_name, info, asks_host, prints })
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
}

/// What the environment says about every launch.
#[derive(Clone, Copy)]
pub struct Environment {
    strict: bool,
    timeout: Option<Duration>,
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
        let timeout = match &*text("BAREWAVE_TIMEOUT") {
            "" => Some(600.0),
            "0" => None,
            other => match other.parse::<f64>() {
                Ok(s) if s > 0.0 && s <= 1e9 => Some(s),
                _ => return Err(wrong("BAREWAVE_TIMEOUT", "seconds are expected, or 0 for no limit")),
            },
        };
        let real_time = match &*text("BAREWAVE_CLOCK") {
            "" | "real" => true,
            "deterministic" => false,
            _ => return Err(wrong("BAREWAVE_CLOCK", "real or deterministic is expected")),
        };
        Ok(Environment { strict, timeout: timeout.map(Duration::from_secs_f64), real_time })
    }
}

fn options(dynamic_lds: u32) -> LaunchOptions {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    // There are no devices when it makes no sense.
    let e = ENVIRONMENT
        .get_or_init(|| Environment::read().unwrap_or(Environment { strict: false, timeout: None, real_time: true }));
    let deadline = e.timeout.map(|t| Instant::now() + t);
    LaunchOptions { strict: e.strict, dynamic_lds, deadline, real_time: e.real_time, ..LaunchOptions::default() }
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
        if (start.is_null() && size > 0) || size > 1 << 20 {
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
) -> Result<LaunchSpec> {
    if grid.contains(&0) || block.contains(&0) {
        return err(hipErrorInvalidConfiguration);
    }
    let device = state::device(f.module.device)?;
    let shared = u32::try_from(shared).map_err(|_| Code(hipErrorInvalidConfiguration))?;
    kernarg::check(device.emu.target(), &f.info, grid, block, shared).map_err(|e| {
        log(&format!("kernel `{}`: {e}", f.name));
        Code(hipErrorInvalidConfiguration)
    })?;
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(&f, params, extra)? };
    let offsets = kernarg::explicit(&f.info).map(|list| list.map(|a| u64::from(a.offset)).collect::<Vec<_>>());
    let pointers = offsets.unwrap_or_default().iter().map(|at| arguments.as_ptr() as u64 + at).collect();
    Ok(LaunchSpec { function: f, grid, block, shared, arguments, handle: 0, pointers })
}

/// Prepares the launch of a kernel that is named by a host function.
unsafe fn prepare_host(
    host: *const c_void,
    grid: dim3,
    block: dim3,
    shared: usize,
    params: *mut *mut c_void,
) -> Result<LaunchSpec> {
    let (grid, block) = ([grid.x, grid.y, grid.z], [block.x, block.y, block.z]);
    // SAFETY: the caller's word.
    let mut spec = unsafe { prepare(function(host)?, grid, block, shared, params, std::ptr::null_mut())? };
    spec.handle = host as u64;
    Ok(spec)
}

/// Prepares the launch of a kernel that is named by a handle.
unsafe fn prepare_function(
    f: hipFunction_t,
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<LaunchSpec> {
    let found = FUNCTIONS.get(f).ok_or(Code(hipErrorInvalidHandle))?;
    // SAFETY: the caller's word.
    let mut spec = unsafe { prepare(found, grid, block, shared, params, extra)? };
    spec.handle = f as u64;
    Ok(spec)
}

/// Prepares launches on several devices: each kernel on the device of its stream.
unsafe fn several(list: &[hipLaunchParams]) -> Result<Vec<(LaunchSpec, hipStream_t)>> {
    let before = state::current()?.ordinal;
    let mut specs = Vec::new();
    for p in list {
        let s = state::stream(p.stream)?;
        state::set_current(s.device)?;
        // SAFETY: the caller's word.
        let spec = unsafe { prepare_host(p.function, p.grid, p.block, p.shared, p.params) };
        state::set_current(before)?;
        specs.push((spec?, p.stream));
    }
    Ok(specs)
}

/// All workgroups of a cooperative launch are there at once: they have to fit on the device.
fn check_cooperative(spec: &LaunchSpec) -> Result {
    let f = &spec.function;
    let device = state::device(f.module.device)?;
    let fit = u64::from(active_blocks(f, flat(spec.block) as c_int, spec.shared as usize)?);
    let wanted = spec.grid.iter().map(|n| u64::from(*n)).product::<u64>();
    if wanted > fit * crate::device::compute_units(device) as u64 {
        return err(hipErrorCooperativeLaunchTooLarge);
    }
    Ok(())
}

fn launch_cooperative(stream: hipStream_t, spec: LaunchSpec) -> Result {
    check_cooperative(&spec)?;
    launch(&state::stream(stream)?, spec)
}

/// A launch between two events, each of which may be null.
fn launch_between(stream: hipStream_t, spec: LaunchSpec, start: hipEvent_t, stop: hipEvent_t) -> Result {
    let s = state::stream(stream)?;
    let record = |e: hipEvent_t| if e.is_null() { Ok(()) } else { crate::capture::record(&s, state::event(e)?) };
    record(start)?;
    launch(&s, spec)?;
    record(stop)
}

/// True when the attributes of a launch ask for a cooperative one.
unsafe fn cooperative(list: *const hipLaunchAttribute, count: c_uint) -> Result<bool> {
    const COOPERATIVE: c_uint = 2;
    let mut asked = false;
    for i in 0..count as usize {
        // SAFETY: the caller's word.
        let a = unsafe { get(list.wrapping_add(i))? };
        asked |= a.id == COOPERATIVE && a.value[0] as u32 != 0;
    }
    Ok(asked)
}

/// Checks the launches of one kernel on several devices and makes them: one a device, in streams that are not null.
fn launch_all(specs: Vec<(LaunchSpec, hipStream_t)>, cooperative: bool) -> Result {
    let mut seen = std::collections::BTreeSet::new();
    for (spec, stream) in &specs {
        if stream.is_null() || !seen.insert(spec.function.module.device) {
            return Err(INVALID);
        }
        if cooperative {
            check_cooperative(spec)?;
        }
    }
    for (spec, stream) in specs {
        launch(&state::stream(stream)?, spec)?;
    }
    Ok(())
}

/// What launches on several devices have: at least one, not more than there are devices.
fn check_list<T>(list: *const T, count: usize, flags: c_uint) -> Result {
    if list.is_null() || count == 0 || count > state::devices().len() || flags > 3 { Err(INVALID) } else { Ok(()) }
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
    let spec = unsafe { prepare(f, grid, block, shared, std::ptr::null_mut(), extra.as_mut_ptr())? };
    launch(&state::stream(stream)?, spec)
}

fn launch(stream: &Arc<Stream>, spec: LaunchSpec) -> Result {
    if stream.device != spec.function.module.device {
        return err(hipErrorInvalidHandle);
    }
    submit(stream, Op::Kernel(Arc::new(spec)))
}

fn add(place: *mut hipModule_t, device: &Device, elf: &[u8]) -> Result {
    if place.is_null() {
        return Err(INVALID);
    }
    let module = Module::load(device, elf)?;
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

fn flat(block: [u32; 3]) -> u32 {
    block.iter().product()
}

/// Workgroups of a size that fit on a compute unit.
fn active_blocks(f: &Function, threads: c_int, shared: usize) -> Result<u32> {
    let threads = u32::try_from(threads).ok().filter(|t| (1..=1024).contains(t)).ok_or(INVALID)?;
    let shared = u32::try_from(shared).map_err(|_| INVALID)?;
    let target = state::device(f.module.device)?.emu.target();
    if kernarg::check(target, &f.info, [1; 3], [threads, 1, 1], shared).is_err() {
        return Ok(0);
    }
    Ok(target.occupancy(&kernarg::resources(target, &f.info, threads, shared)).workgroups)
}

/// The workgroup size, a multiple of the wave size up to a limit, at which most workitems are on a compute unit.
fn best_block(f: &Function, shared: usize, limit: c_int) -> Result<(u32, u32)> {
    let wave = if f.info.descriptor.wave32() { 32 } else { 64 };
    let meta = f.info.meta.as_ref();
    let most = meta.map_or(1024, |m| if m.max_flat_workgroup_size == 0 { 1024 } else { m.max_flat_workgroup_size });
    let most = if limit > 0 { most.min(limit as u32) } else { most };
    if let Some(wanted) = meta.and_then(|m| m.reqd_workgroup_size) {
        let n = flat(wanted);
        return Ok((n, active_blocks(f, n as c_int, shared)?));
    }
    let mut best = (0, 0, 0);
    let mut size = most - most % wave;
    while size > 0 {
        let blocks = active_blocks(f, size as c_int, shared)?;
        if blocks * size > best.2 {
            best = (size, blocks, blocks * size);
        }
        size -= wave;
    }
    if best.0 == 0 { Ok((most, 1)) } else { Ok((best.0, best.1)) }
}

unsafe fn potential(grid: *mut c_int, block: *mut c_int, f: &Function, shared: usize, limit: c_int) -> Result {
    let (size, blocks) = best_block(f, shared, limit)?;
    let units = crate::device::compute_units(state::device(f.module.device)?) as u32;
    // SAFETY: the caller's word.
    unsafe {
        put(block, size as c_int)?;
        put(grid, (blocks.max(1) * units) as c_int)
    }
}

fn attribute(f: &Function, which: c_uint) -> Result<c_int> {
    let d = &f.info.descriptor;
    let meta = f.info.meta.as_ref();
    let target = state::device(f.module.device)?.emu.target().info();
    let threads = meta.map_or(0, |m| m.max_flat_workgroup_size);
    Ok(match which {
        0 => (if threads == 0 { 1024 } else { threads }) as c_int,
        1 => d.lds_bytes as c_int,
        2 => 0,
        3 => d.scratch_bytes as c_int,
        4 => {
            let all = Family::of_mach(target.elf_mach).map_or(0, |x| d.vgprs(x));
            meta.filter(|m| m.vgprs > 0).map_or(all, |m| m.vgprs) as c_int
        }
        5 | 6 => 100,
        7 | 9 => 0,
        8 => target.lds_bytes.saturating_sub(d.lds_bytes) as c_int,
        _ => return Err(INVALID),
    })
}

hip! {
    fn hipModuleLoad(module: *mut hipModule_t, path: *const c_char) {
        let path = text(path)?;
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
        let m = MODULES.remove(handle).ok_or(Code(hipErrorInvalidHandle))?;
        // Kernels that are in streams keep the code until they are done.
        FUNCTIONS.retain(|f| !Arc::ptr_eq(&f.module, &m));
        Ok(())
    }
    fn hipModuleGetFunction(function: *mut hipFunction_t, handle: hipModule_t, name: *const c_char) {
        if function.is_null() {
            return Err(INVALID);
        }
        let f = Function::of(module(handle)?, text(name)?)?;
        put(function, FUNCTIONS.add(Arc::new(f)))
    }
    fn hipModuleGetFunctionCount(count: *mut c_uint, handle: hipModule_t) {
        put(count, module(handle)?.code.file().kernels.len() as c_uint)
    }
    fn hipModuleGetGlobal(address: *mut *mut c_void, bytes: *mut usize, handle: hipModule_t, name: *const c_char) {
        let m = module(handle)?;
        let (at, size) = m.code.global(text(name)?).ok_or(Code(hipErrorNotFound))?;
        if !bytes.is_null() {
            put(bytes, size as usize)?;
        }
        if address.is_null() { Ok(()) } else { put(address, at as *mut c_void) }
    }

    fn hipModuleLaunchKernel(f: hipFunction_t, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void) {
        let spec = prepare_function(f, [gx, gy, gz], [bx, by, bz], shared as usize, params, extra)?;
        launch(&state::stream(stream)?, spec)
    }
    fn hipModuleLaunchCooperativeKernel(f: hipFunction_t, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint,
        bz: c_uint, shared: c_uint, stream: hipStream_t, params: *mut *mut c_void) {
        let none = std::ptr::null_mut();
        launch_cooperative(stream, prepare_function(f, [gx, gy, gz], [bx, by, bz], shared as usize, params, none)?)
    }
    fn hipExtModuleLaunchKernel(f: hipFunction_t, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: usize,
        stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t, stop: hipEvent_t,
        _flags: u32) {
        // The grid counts workitems here.
        let (all, block) = ([gx, gy, gz], [bx, by, bz]);
        if block.contains(&0) || (0..3).any(|i| all[i] % block[i] != 0) {
            return Err(INVALID);
        }
        let grid = [gx / bx, gy / by, gz / bz];
        launch_between(stream, prepare_function(f, grid, block, shared, params, extra)?, start, stop)
    }
    fn hipHccModuleLaunchKernel(f: hipFunction_t, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: usize,
        stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t, stop: hipEvent_t) {
        let (all, block) = ([gx, gy, gz], [bx, by, bz]);
        if block.contains(&0) || (0..3).any(|i| all[i] % block[i] != 0) {
            return Err(INVALID);
        }
        let grid = [gx / bx, gy / by, gz / bz];
        launch_between(stream, prepare_function(f, grid, block, shared, params, extra)?, start, stop)
    }
    fn hipLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t) {
        launch(&state::stream(stream)?, prepare_host(host, grid, block, shared, params)?)
    }
    fn hipExtLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t, start: hipEvent_t, stop: hipEvent_t, _flags: c_int) {
        launch_between(stream, prepare_host(host, grid, block, shared, params)?, start, stop)
    }
    fn hipLaunchCooperativeKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void,
        shared: c_uint, stream: hipStream_t) {
        launch_cooperative(stream, prepare_host(host, grid, block, shared as usize, params)?)
    }
    fn hipLaunchKernelExC(config: *const hipLaunchConfig_t, host: *const c_void, params: *mut *mut c_void) {
        let c = get(config)?;
        let spec = prepare_host(host, c.grid, c.block, c.shared, params)?;
        if cooperative(c.attributes, c.attribute_count)? {
            return launch_cooperative(c.stream, spec);
        }
        launch(&state::stream(c.stream)?, spec)
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
        launch_all(several(std::slice::from_raw_parts(list, n))?, false)
    }
    fn hipLaunchCooperativeKernelMultiDevice(list: *mut hipLaunchParams, count: c_int, flags: c_uint) {
        let n = usize::try_from(count).map_err(|_| INVALID)?;
        check_list(list, n, flags)?;
        launch_all(several(std::slice::from_raw_parts(list, n))?, true)
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
        put(value, attribute(&*function(f)?, which)?)
    }
    fn hipFuncSetAttribute(f: *const c_void, which: c_uint, value: c_int) {
        let f = function(f)?;
        match which {
            // Dynamic LDS needs no permission up to what there is.
            8 if value >= 0 && value <= attribute(&f, 8)? => Ok(()),
            9 => Ok(()),
            _ => Err(INVALID),
        }
    }
    fn hipFuncGetAttributes(attributes: *mut hipFuncAttributes, f: *const c_void) {
        let f = function(f)?;
        let of = |which| attribute(&f, which);
        put(attributes, hipFuncAttributes {
            binary_version: of(6)?,
            cache_mode_ca: 0,
            const_size_bytes: 0,
            local_size_bytes: of(3)? as usize,
            max_dynamic_shared_size_bytes: of(8)?,
            max_threads_per_block: of(0)?,
            num_regs: of(4)?,
            preferred_shmem_carveout: 0,
            ptx_version: of(5)?,
            shared_size_bytes: of(1)? as usize,
        })
    }
    fn hipFuncSetCacheConfig(f: *const c_void, _config: c_uint) {
        function(f).map(drop)
    }
    fn hipFuncSetSharedMemConfig(f: *const c_void, _config: c_uint) {
        function(f).map(drop)
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, f: hipFunction_t, threads: c_int,
        shared: usize) {
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, f: hipFunction_t,
        threads: c_int, shared: usize, _flags: c_uint) {
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, f: *const c_void, threads: c_int,
        shared: usize) {
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, f: *const c_void, threads: c_int,
        shared: usize, _flags: c_uint) {
        put(blocks, active_blocks(&*function(f)?, threads, shared)? as c_int)
    }
    fn hipModuleOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, f: hipFunction_t, shared: usize,
        limit: c_int) {
        potential(grid, block, &*function(f)?, shared, limit)
    }
    fn hipModuleOccupancyMaxPotentialBlockSizeWithFlags(grid: *mut c_int, block: *mut c_int, f: hipFunction_t,
        shared: usize, limit: c_int, _flags: c_uint) {
        potential(grid, block, &*function(f)?, shared, limit)
    }
    fn hipOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, f: *const c_void, shared: usize,
        limit: c_int) {
        potential(grid, block, &*function(f)?, shared, limit)
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
