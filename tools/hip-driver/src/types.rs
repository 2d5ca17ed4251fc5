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
pub type hipUserObject_t = Handle;
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

/// The same in the order of the driver's interface.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HIP_MEMSET_NODE_PARAMS {
    pub dst: *mut c_void,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

impl From<HIP_MEMSET_NODE_PARAMS> for hipMemsetParams {
    fn from(p: HIP_MEMSET_NODE_PARAMS) -> hipMemsetParams {
        let HIP_MEMSET_NODE_PARAMS { dst, pitch, value, element_size, width, height } = p;
        hipMemsetParams { dst, element_size, height, pitch, value, width }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemAllocationProp {
    pub kind: c_uint,
    pub handle_type: c_uint,
    pub location: hipMemLocation,
    pub windows: *mut c_void,
    pub flags: u64,
}

/// Format of a texel: bits of each channel, kind of number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipChannelFormatDesc {
    pub channels: [c_int; 4],
    pub kind: c_uint,
}

/// A description that a caller gave, with its pointers: kept to be given back, never followed.
#[derive(Clone, Copy, Debug)]
pub struct Raw<T>(pub T);

// SAFETY: the pointers in it are numbers to this library.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipMemAllocNodeParams {
    pub pool: hipMemPoolProps,
    pub access: *const hipMemAccessDesc,
    pub access_count: usize,
    pub bytes: usize,
    pub at: *mut c_void,
}

/// Kind, and a union of the structures of each kind of node.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipGraphNodeParams {
    pub kind: c_uint,
    pub reserved: [c_uint; 3],
    pub of: [u64; 29],
    pub reserved_end: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipGraphInstantiateParams {
    pub error_node: hipGraphNode_t,
    pub flags: u64,
    pub result: c_uint,
    pub upload: hipStream_t,
}

/// A write of or a wait for a number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipStreamBatchMemOpParams {
    pub operation: c_uint,
    pub address: *mut c_void,
    pub value: u64,
    pub flags: c_uint,
    pub alias: *mut c_void,
    pub pad: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipBatchMemOpNodeParams {
    pub context: hipCtx_t,
    pub count: c_uint,
    pub list: *mut hipStreamBatchMemOpParams,
    pub flags: c_uint,
}

/// A launch on one of several devices, by host function (`hipLaunchParams`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipLaunchParams {
    pub function: *mut c_void,
    pub grid: dim3,
    pub block: dim3,
    pub params: *mut *mut c_void,
    pub shared: usize,
    pub stream: hipStream_t,
}

/// A launch on one of several devices, by kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipFunctionLaunchParams {
    pub function: hipFunction_t,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: hipStream_t,
    pub params: *mut *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipLaunchAttribute {
    pub id: c_uint,
    pub pad: c_uint,
    pub value: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hipLaunchConfig_t {
    pub grid: dim3,
    pub block: dim3,
    pub shared: usize,
    pub stream: hipStream_t,
    pub attributes: *mut hipLaunchAttribute,
    pub attribute_count: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HIP_LAUNCH_CONFIG {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: hipStream_t,
    pub attributes: *mut hipLaunchAttribute,
    pub attribute_count: c_uint,
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
    assert!(size_of::<HIP_MEMSET_NODE_PARAMS>() == 40);
    assert!(size_of::<hipMemAllocNodeParams>() == 120);
    assert!(size_of::<hipMemAllocationProp>() == 32);
    assert!(size_of::<crate::ipc::Handle64>() == 64);
    assert!(size_of::<hipGraphNodeParams>() == 256);
    assert!(size_of::<hipStreamBatchMemOpParams>() == 48);
    assert!(size_of::<hipLaunchParams>() == 56);
    assert!(size_of::<hipFunctionLaunchParams>() == 56);
    assert!(size_of::<hipLaunchConfig_t>() == 56);
    assert!(size_of::<HIP_LAUNCH_CONFIG>() == 56);
};
