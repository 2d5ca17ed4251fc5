//! Handles and structures of the HIP API beyond those that barewave's own HIP device uses.

pub use barewave_emu::hip::types::{dim3, hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipHostFn_t};
use std::ffi::{c_int, c_uint, c_void};

/// A handle: a number that a table knows.
pub type Handle = *mut c_void;
pub type hipStream_t = Handle;
pub type hipEvent_t = Handle;
pub type hipModule_t = Handle;
pub type hipFunction_t = Handle;
pub type hipCtx_t = Handle;
pub type hipGraph_t = Handle;
pub type hipGraphNode_t = Handle;
pub type hipGraphExec_t = Handle;
pub type hipMemPool_t = Handle;
pub type hipDevice_t = c_int;
/// Direction of a copy, see [`crate::copy`].
pub type hipMemcpyKind = c_uint;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipPointerAttribute_t {
    pub memory_type: c_uint,
    pub device: c_int,
    pub device_pointer: *mut c_void,
    pub host_pointer: *mut c_void,
    pub is_managed: c_int,
    pub allocation_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hip_Memcpy2D {
    pub src_x_bytes: usize,
    pub src_y: usize,
    pub src_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: *mut c_void,
    pub src_array: *mut c_void,
    pub src_pitch: usize,
    pub dst_x_bytes: usize,
    pub dst_y: usize,
    pub dst_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: *mut c_void,
    pub dst_array: *mut c_void,
    pub dst_pitch: usize,
    pub width_bytes: usize,
    pub height: usize,
}

/// The layout has `size_t` pitches and heights in C's order of the driver API.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HIP_MEMCPY3D {
    pub src_x_bytes: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: *mut c_void,
    pub src_array: *mut c_void,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x_bytes: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: *mut c_void,
    pub dst_array: *mut c_void,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width_bytes: usize,
    pub height: usize,
    pub depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipPos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipExtent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipPitchedPtr {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub xsize: usize,
    pub ysize: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemcpy3DParms {
    pub src_array: *mut c_void,
    pub src_pos: hipPos,
    pub src_ptr: hipPitchedPtr,
    pub dst_array: *mut c_void,
    pub dst_pos: hipPos,
    pub dst_ptr: hipPitchedPtr,
    pub extent: hipExtent,
    pub kind: hipMemcpyKind,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct hipFuncAttributes {
    pub binary_version: c_int,
    pub cache_mode_ca: c_int,
    pub const_size_bytes: usize,
    pub local_size_bytes: usize,
    pub max_dynamic_shared_size_bytes: c_int,
    pub max_threads_per_block: c_int,
    pub num_regs: c_int,
    pub preferred_shmem_carveout: c_int,
    pub ptx_version: c_int,
    pub shared_size_bytes: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemLocation {
    pub kind: c_uint,
    pub id: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemAccessDesc {
    pub location: hipMemLocation,
    pub flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemPoolProps {
    pub alloc_type: c_uint,
    pub handle_types: c_uint,
    pub location: hipMemLocation,
    pub security: *mut c_void,
    pub max_size: usize,
    pub reserved: [u8; 56],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipHostNodeParams {
    pub function: hipHostFn_t,
    pub user_data: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipKernelNodeParams {
    pub block: dim3,
    pub extra: *mut *mut c_void,
    pub function: *mut c_void,
    pub grid: dim3,
    pub kernel_params: *mut *mut c_void,
    pub shared_bytes: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemsetParams {
    pub dst: *mut c_void,
    pub element_size: c_uint,
    pub height: usize,
    pub pitch: usize,
    pub value: c_uint,
    pub width: usize,
}

/// Callback of `hipStreamAddCallback`.
pub type hipStreamCallback_t = Option<unsafe extern "C" fn(hipStream_t, u32, *mut c_void)>;

const _: () = {
    assert!(size_of::<hipPointerAttribute_t>() == 32);
    assert!(size_of::<hip_Memcpy2D>() == 128);
    assert!(size_of::<hipMemcpy3DParms>() == 160);
    assert!(size_of::<hipFuncAttributes>() == 56);
    assert!(size_of::<hipMemPoolProps>() == 88);
    assert!(size_of::<hipKernelNodeParams>() == 64);
    assert!(size_of::<hipMemsetParams>() == 48);
};
