//! Modules, kernels, launches, and what can be asked about them.

use crate::api::{Code, INVALID, Result, err, get, log, put};
use crate::op::{Op, submit};
use crate::program::{check_target, function_of, image_for, image_in};
use crate::state::{self, Device, FUNCTIONS, MODULES, Stream};
use crate::types::*;
use barewave_emu::codeobj::{Family, KernelInfo};
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
        Ok(Module { code, device: device.ordinal })
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
}

impl Function {
    /// A kernel by its name.
    pub fn of(module: Arc<Module>, name: &str) -> Result<Function> {
        let info = module.code.kernel(name).map_err(|_| Code(hipErrorNotFound))?.info().clone();
        let c_name = std::ffi::CString::new(name).map_err(|_| Code(hipErrorNotFound))?;
        Ok(Function { module, name: name.to_string(), c_name, info })
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
}

/// What the environment says about every launch.
#[derive(Clone, Copy)]
pub struct Environment {
    strict: bool,
    timeout: Option<Duration>,
}

impl Environment {
    /// Reads it; a value that makes no sense is an error.
    pub fn read() -> std::result::Result<Environment, String> {
        let text = |name: &str| std::env::var(name).unwrap_or_default().trim().to_string();
        let strict = match &*text("BAREWAVE_STRICT") {
            "" | "0" => false,
            "1" => true,
            other => return Err(format!("BAREWAVE_STRICT={other}: 0 or 1 is expected")),
        };
        let timeout = match &*text("BAREWAVE_TIMEOUT") {
            "" => Some(600.0),
            "0" => None,
            other => match other.parse::<f64>() {
                Ok(s) if s > 0.0 && s <= 1e9 => Some(s),
                _ => return Err(format!("BAREWAVE_TIMEOUT={other}: seconds are expected, or 0 for no limit")),
            },
        };
        Ok(Environment { strict, timeout: timeout.map(Duration::from_secs_f64) })
    }
}

fn options(dynamic_lds: u32) -> LaunchOptions {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    // There are no devices when it makes no sense.
    let e = ENVIRONMENT.get_or_init(|| Environment::read().unwrap_or(Environment { strict: false, timeout: None }));
    let deadline = e.timeout.map(|t| Instant::now() + t);
    LaunchOptions { strict: e.strict, dynamic_lds, deadline, ..LaunchOptions::default() }
}

impl LaunchSpec {
    /// Runs the kernel to its end.
    pub fn run(&self, device: &Device) -> Result {
        let f = &self.function;
        let kernel = f.module.code.kernel(&f.name).map_err(|_| Code(hipErrorNotFound))?;
        let options = options(self.shared);
        let launched = device.emu.launch(&kernel, self.grid, self.block, &self.arguments, &options);
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
    Ok(LaunchSpec { function: f, grid, block, shared, arguments })
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
    let units = crate::device::compute_units() as u32;
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
        let f = FUNCTIONS.get(f).ok_or(Code(hipErrorInvalidHandle))?;
        let spec = prepare(f, [gx, gy, gz], [bx, by, bz], shared as usize, params, extra)?;
        launch(&state::stream(stream)?, spec)
    }
    fn hipModuleLaunchCooperativeKernel(f: hipFunction_t, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint,
        bz: c_uint, shared: c_uint, stream: hipStream_t, params: *mut *mut c_void) {
        // A grid barrier needs all workgroups at once; the emulator runs them one after the other on each thread.
        let _ = (f, gx, gy, gz, bx, by, bz, shared, stream, params);
        log("hipModuleLaunchCooperativeKernel: cooperative launches are not supported");
        err(hipErrorNotSupported)
    }
    fn hipExtModuleLaunchKernel(f: hipFunction_t, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: usize,
        stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t, stop: hipEvent_t,
        _flags: u32) {
        // The grid counts workitems here.
        let f = FUNCTIONS.get(f).ok_or(Code(hipErrorInvalidHandle))?;
        let (all, block) = ([gx, gy, gz], [bx, by, bz]);
        if block.contains(&0) || (0..3).any(|i| all[i] % block[i] != 0) {
            return err(hipErrorInvalidConfiguration);
        }
        let grid = [gx / bx, gy / by, gz / bz];
        let spec = prepare(f, grid, block, shared, params, extra)?;
        let s = state::stream(stream)?;
        let record = |e: hipEvent_t| if e.is_null() { Ok(()) } else { crate::graph::record(&s, state::event(e)?) };
        record(start)?;
        launch(&s, spec)?;
        record(stop)
    }
    fn hipLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t) {
        let (grid, block) = ([grid.x, grid.y, grid.z], [block.x, block.y, block.z]);
        let spec = prepare(function(host)?, grid, block, shared, params, std::ptr::null_mut())?;
        launch(&state::stream(stream)?, spec)
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
