//! What compiled HIP programs do at start: they register a bundle of code objects, the host functions that stand for its
//! kernels and the host variables that stand for its global variables. Also the `<<<>>>` launches that they make, in three
//! steps, and everything that names a variable by its host address.
//!
//! A managed variable is memory that host and device share: the program's pointer is set when it is registered, the
//! pointer in the code object when that is loaded.

use crate::api::{Code, INVALID, Result, err, get, log, put};
use crate::copy;
use crate::module::{Function, Module};
use crate::op::{Op, submit_and_wait};
use crate::program::image_for;
use crate::state::{self, lock};
use crate::types::*;
use barewave_emu::hip::code::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

/// A registered variable.
#[derive(Clone)]
struct Variable {
    name: String,
    /// Address of the memory that a managed one is.
    managed: Option<u64>,
}

/// A bundle that a program registered.
#[derive(Default)]
struct Registered {
    /// Address of the bundle.
    bundle: u64,
    /// Kernels by the address of the host function that stands for them.
    functions: BTreeMap<u64, String>,
    /// Variables by the address of the host variable that stands for them.
    variables: BTreeMap<u64, Variable>,
    /// What was loaded so far, by device.
    modules: BTreeMap<i32, Arc<Module>>,
    /// Kernels that were asked for so far, by host function and device.
    found: BTreeMap<(u64, i32), Arc<Function>>,
}

static REGISTERED: Mutex<BTreeMap<u64, Registered>> = Mutex::new(BTreeMap::new());

impl Registered {
    /// The code on the current device, loaded at first use.
    fn module(&mut self) -> Result<Arc<Module>> {
        let device = state::current()?;
        if let Some(m) = self.modules.get(&device.ordinal) {
            return Ok(m.clone());
        }
        // SAFETY: registered by the program, whose image is there until it is unregistered.
        let elf = unsafe { image_for(self.bundle as *const c_void, device)? };
        let m = Arc::new(Module::load(device, &elf)?);
        for v in self.variables.values() {
            if let (Some(memory), Some((at, _))) = (v.managed, m.code.global(&v.name)) {
                device.emu.write(at, &memory.to_le_bytes()).map_err(|_| Code(hipErrorInvalidImage))?;
            }
        }
        self.modules.insert(device.ordinal, m.clone());
        Ok(m)
    }
}

/// The kernel that a host function stands for, on the current device.
pub fn function_of(host: *const c_void) -> Result<Arc<Function>> {
    let device = state::current()?;
    let mut all = lock(&REGISTERED);
    let known = all.values_mut().find(|r| r.functions.contains_key(&(host as u64)));
    let r = known.ok_or(Code(hipErrorInvalidDeviceFunction))?;
    let key = (host as u64, device.ordinal);
    if let Some(f) = r.found.get(&key) {
        return Ok(f.clone());
    }
    let name = r.functions[&key.0].clone();
    let found = Function::of(r.module()?, &name).map_err(|_| Code(hipErrorInvalidDeviceFunction))?;
    let f = Arc::new(found);
    r.found.insert(key, f.clone());
    Ok(f)
}

/// Address and size of the variable that a host variable stands for, on the current device.
pub fn variable_of(host: *const c_void) -> Result<(u64, u64)> {
    let mut all = lock(&REGISTERED);
    let known = all.values_mut().find(|r| r.variables.contains_key(&(host as u64)));
    let r = known.ok_or(Code(hipErrorInvalidSymbol))?;
    let v = r.variables[&(host as u64)].clone();
    match v.managed.and_then(crate::memory::find) {
        Some(a) => Ok((a.start, a.size)),
        None => r.module()?.code.global(&v.name).ok_or(Code(hipErrorInvalidSymbol)),
    }
}

/// A checked copy to or from `bytes` of a variable, from an offset on.
pub fn symbol_copy(
    symbol: *const c_void,
    other: *const c_void,
    bytes: usize,
    offset: usize,
    kind: hipMemcpyKind,
    to: bool,
) -> Result<Op> {
    if symbol.is_null() {
        return err(hipErrorInvalidSymbol);
    }
    if other.is_null() || bytes == 0 {
        return Err(INVALID);
    }
    // One side is on the device.
    if !matches!(kind, 1..=4) || kind == if to { 2 } else { 1 } {
        return err(hipErrorInvalidMemcpyDirection);
    }
    let (at, size) = variable_of(symbol)?;
    if offset.checked_add(bytes).is_none_or(|end| end as u64 > size) {
        return Err(INVALID);
    }
    let at = (at + offset as u64) as *mut c_void;
    if to { copy::line(at, other, bytes, kind) } else { copy::line(other.cast_mut(), at, bytes, kind) }
}

/// First word of what a program's data section holds for each bundle: magic number (low half), version; the address of
/// the bundle follows, and an unused word. "HIPF".
const WRAPPER_MAGIC: u32 = 0x4849_5046;

/// A launch in the making: grid, workgroup, dynamic LDS, stream, arguments so far.
struct Configuration {
    grid: dim3,
    block: dim3,
    shared: usize,
    stream: u64,
    arguments: Vec<u8>,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

fn configure(grid: dim3, block: dim3, shared: usize, stream: *mut c_void) {
    let c = Configuration { grid, block, shared, stream: stream as u64, arguments: Vec::new() };
    CONFIGURATIONS.with_borrow_mut(|list| list.push(c));
}

/// Registers a bundle; the handle is passed to the other functions.
///
/// # Safety
/// Called by a program's start code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterFatBinary(wrapper: *const c_void) -> *mut c_void {
    // SAFETY: the start code passes its wrapper.
    let Ok(w) = (unsafe { get(wrapper.cast::<[u64; 3]>()) }) else { return std::ptr::null_mut() };
    if w[0] as u32 != WRAPPER_MAGIC {
        log("a program registers device code in an unknown format");
        return std::ptr::null_mut();
    }
    let key = wrapper as u64;
    lock(&REGISTERED).insert(key, Registered { bundle: w[1], ..Registered::default() });
    key as *mut c_void
}

/// Registers the host function that stands for a kernel.
///
/// # Safety
/// Called by a program's start code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterFunction(
    bundle: *mut c_void,
    host: *const c_void,
    _device_name: *const c_char,
    name: *const c_char,
    _threads: c_int,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block: *mut c_void,
    _grid: *mut c_void,
    _wave: *mut c_int,
) {
    // SAFETY: the start code passes a name.
    let Some(name) = (unsafe { name_at(name) }) else { return };
    if let Some(r) = lock(&REGISTERED).get_mut(&(bundle as u64)) {
        r.functions.insert(host as u64, name);
    }
}

unsafe fn name_at(name: *const c_char) -> Option<String> {
    // SAFETY: the caller's word.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// Registers the host variable that stands for a global variable of the device.
///
/// # Safety
/// Called by a program's start code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterVar(
    bundle: *mut c_void,
    host: *const c_void,
    _host_name: *const c_char,
    name: *const c_char,
    _external: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: the start code passes a name.
    let Some(name) = (unsafe { name_at(name) }) else { return };
    if let Some(r) = lock(&REGISTERED).get_mut(&(bundle as u64)) {
        r.variables.insert(host as u64, Variable { name, managed: None });
    }
}

/// Registers a managed variable: makes its memory, with the value it starts with, and tells the program where it is.
///
/// # Safety
/// Called by a program's start code: `pointer` is the program's pointer to the variable, `value` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipRegisterManagedVar(
    bundle: *mut c_void,
    pointer: *mut *mut c_void,
    value: *const c_void,
    name: *const c_char,
    size: usize,
    _align: c_uint,
) {
    let inside = || {
        // SAFETY: the start code passes a name, a place and a value.
        let name = unsafe { name_at(name) }.ok_or(INVALID)?;
        let memory = crate::memory::allocate(state::size(size.max(1))?, crate::memory::Kind::Managed, 1, None)?;
        // SAFETY: as above; managed memory has the host's addresses.
        unsafe {
            if !value.is_null() {
                std::ptr::copy_nonoverlapping(value.cast::<u8>(), memory as *mut u8, size);
            }
            put(pointer, memory as *mut c_void)?;
        }
        if let Some(r) = lock(&REGISTERED).get_mut(&(bundle as u64)) {
            // The variable is known by its own address, and by that of the pointer.
            for host in [memory, pointer as u64] {
                r.variables.insert(host, Variable { name: name.clone(), managed: Some(memory) });
            }
        }
        Ok(())
    };
    crate::api::call("__hipRegisterManagedVar", String::new, inside);
}

/// Registers a texture. There are none: using it is an error.
#[unsafe(no_mangle)]
pub extern "C" fn __hipRegisterTexture() {}

/// Registers a surface. There are none: using it is an error.
#[unsafe(no_mangle)]
pub extern "C" fn __hipRegisterSurface() {}

/// Forgets a bundle.
///
/// # Safety
/// Called by a program's end code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __hipUnregisterFatBinary(bundle: *mut c_void) {
    // Nothing to give back in the child of a fork; a lock might be held for ever.
    if crate::fork::forked() {
        return;
    }
    lock(&REGISTERED).remove(&(bundle as u64));
}

/// Name of the kernel that a host function stands for; null when there is none.
///
/// # Safety
/// Any pointer may be passed; the result is valid until the program unregisters its code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipKernelNameRefByPtr(host: *const c_void, _stream: *mut c_void) -> *const c_char {
    match function_of(host) {
        Ok(f) => f.c_name().as_ptr(),
        Err(_) => std::ptr::null(),
    }
}

/// Waits for the work of the default stream that a copy of a variable has to follow, and copies.
fn now(op: Op) -> Result {
    crate::capture::forbid_default()?;
    submit_and_wait(&state::current()?.default_stream, op)
}

hip! {
    fn __hipPushCallConfiguration(grid: dim3, block: dim3, shared: usize, stream: *mut c_void) {
        configure(grid, block, shared, stream);
        Ok(())
    }
    fn __hipPopCallConfiguration(grid: *mut dim3, block: *mut dim3, shared: *mut usize, stream: *mut *mut c_void) {
        let c = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Code(hipErrorMissingConfiguration))?;
        put(grid, c.grid)?;
        put(block, c.block)?;
        put(shared, c.shared)?;
        put(stream, c.stream as *mut c_void)
    }
    fn hipConfigureCall(grid: dim3, block: dim3, shared: usize, stream: *mut c_void) {
        configure(grid, block, shared, stream);
        Ok(())
    }
    fn hipSetupArgument(argument: *const c_void, bytes: usize, offset: usize) {
        let end = offset.checked_add(bytes).filter(|end| *end <= 1 << 16 && !argument.is_null()).ok_or(INVALID)?;
        let value = std::slice::from_raw_parts(argument.cast::<u8>(), bytes);
        CONFIGURATIONS.with_borrow_mut(|list| {
            let c = list.last_mut().ok_or(Code(hipErrorMissingConfiguration))?;
            c.arguments.resize(c.arguments.len().max(end), 0);
            c.arguments[offset..end].copy_from_slice(value);
            Ok(())
        })
    }
    fn hipLaunchByPtr(host: *const c_void) {
        let c = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Code(hipErrorMissingConfiguration))?;
        let (grid, block) = ([c.grid.x, c.grid.y, c.grid.z], [c.block.x, c.block.y, c.block.z]);
        crate::module::launch_packed(function_of(host)?, grid, block, c.shared, c.arguments, c.stream as *mut c_void)
    }
    fn hipGetFuncBySymbol(function: *mut *mut c_void, host: *const c_void) {
        let f = function_of(host)?;
        // A kernel has one handle.
        let known = state::FUNCTIONS.find(|g| Arc::ptr_eq(g, &f));
        put(function, known.unwrap_or_else(|| state::FUNCTIONS.add(f)))
    }
    fn hipModuleGetLoadingMode(mode: *mut c_uint) {
        // Eager.
        put(mode, 1)
    }

    fn hipGetSymbolAddress(address: *mut *mut c_void, symbol: *const c_void) {
        if symbol.is_null() {
            return err(hipErrorInvalidSymbol);
        }
        if address.is_null() {
            return Err(INVALID);
        }
        put(address, variable_of(symbol)?.0 as *mut c_void)
    }
    fn hipGetSymbolSize(bytes: *mut usize, symbol: *const c_void) {
        if symbol.is_null() {
            return err(hipErrorInvalidSymbol);
        }
        if bytes.is_null() {
            return Err(INVALID);
        }
        put(bytes, variable_of(symbol)?.1 as usize)
    }
    fn hipMemcpyToSymbol(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(symbol_copy(symbol, from, bytes, offset, kind, true)?)
    }
    fn hipMemcpyFromSymbol(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: hipMemcpyKind) {
        now(symbol_copy(symbol, to, bytes, offset, kind, false)?)
    }
    fn hipMemcpyToSymbolAsync(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind, stream: hipStream_t) {
        copy::copy_op_later(stream, symbol_copy(symbol, from, bytes, offset, kind, true)?)
    }
    fn hipMemcpyFromSymbolAsync(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind, stream: hipStream_t) {
        copy::copy_op_later(stream, symbol_copy(symbol, to, bytes, offset, kind, false)?)
    }
}
