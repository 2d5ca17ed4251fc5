//! Types, constants and structures of the HIP API, by their names in `hip_runtime_api.h`.
//!
//! The HIP device uses those of the crate hip-sys when barewave is built with the feature `hip-sys`, and otherwise the
//! same declared here. That is not the default because hip-sys cannot be had without HIP: its build script stops the build
//! on a machine without HIP headers, and it asks the linker for libamdhip64. A cargo configuration file in the
//! repository switches both off, but cargo does not find it with `--manifest-path` from elsewhere, or when barewave is
//! another crate's dependency; no manifest can. With the feature, the compiler checks that every signature and layout
//! here is hip-sys's own (`library.rs`, and the end of this file).
//!
//! Result codes are plain numbers everywhere: newer drivers return codes that older lists do not have.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Result of a call; [`super::error_name`] names it.
pub type hipError_t = u32;

#[cfg(feature = "hip-sys")]
mod handles {
    pub use hip_sys::hiprt::{hipDeviceptr_t, hipEvent_t, hipFunction_t, hipMemcpyKind, hipModule_t, hipStream_t};
    pub const HOST_TO_DEVICE: hipMemcpyKind = hipMemcpyKind::hipMemcpyHostToDevice;
    pub const DEVICE_TO_HOST: hipMemcpyKind = hipMemcpyKind::hipMemcpyDeviceToHost;
}

#[cfg(not(feature = "hip-sys"))]
mod handles {
    use std::ffi::c_void;
    pub type hipDeviceptr_t = *mut c_void;
    pub type hipEvent_t = *mut c_void;
    pub type hipFunction_t = *mut c_void;
    pub type hipModule_t = *mut c_void;
    pub type hipStream_t = *mut c_void;
    pub type hipMemcpyKind = u32;
    pub const HOST_TO_DEVICE: hipMemcpyKind = 1;
    pub const DEVICE_TO_HOST: hipMemcpyKind = 2;
}

pub use handles::*;

/// Entries of the `extra` list of a launch.
pub const HIP_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
pub const HIP_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;
pub const HIP_LAUNCH_PARAM_END: usize = 3;

/// Flag of a stream that does not wait for the default stream.
pub const hipStreamNonBlocking: c_uint = 1;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// Device properties as HIP 5 lays them out; the unsuffixed `hipGetDeviceProperties` keeps this in every version.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipDeviceProp_tR0000 {
    pub name: [c_char; 256],
    pub totalGlobalMem: usize,
    pub sharedMemPerBlock: usize,
    pub regsPerBlock: c_int,
    pub warpSize: c_int,
    pub maxThreadsPerBlock: c_int,
    pub maxThreadsDim: [c_int; 3],
    pub maxGridSize: [c_int; 3],
    pub clockRate: c_int,
    pub memoryClockRate: c_int,
    pub memoryBusWidth: c_int,
    pub totalConstMem: usize,
    pub major: c_int,
    pub minor: c_int,
    pub multiProcessorCount: c_int,
    pub l2CacheSize: c_int,
    pub maxThreadsPerMultiProcessor: c_int,
    pub computeMode: c_int,
    pub clockInstructionRate: c_int,
    /// Bits, see [`hipDeviceProp_tR0600::arch`].
    pub arch: u32,
    pub concurrentKernels: c_int,
    pub pciDomainID: c_int,
    pub pciBusID: c_int,
    pub pciDeviceID: c_int,
    pub maxSharedMemoryPerMultiProcessor: usize,
    pub isMultiGpuBoard: c_int,
    pub canMapHostMemory: c_int,
    pub gcnArch: c_int,
    pub gcnArchName: [c_char; 256],
    pub integrated: c_int,
    pub cooperativeLaunch: c_int,
    pub cooperativeMultiDeviceLaunch: c_int,
    pub maxTexture1DLinear: c_int,
    pub maxTexture1D: c_int,
    pub maxTexture2D: [c_int; 2],
    pub maxTexture3D: [c_int; 3],
    pub hdpMemFlushCntl: *mut c_uint,
    pub hdpRegFlushCntl: *mut c_uint,
    pub memPitch: usize,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub kernelExecTimeoutEnabled: c_int,
    pub ECCEnabled: c_int,
    pub tccDriver: c_int,
    pub cooperativeMultiDeviceUnmatchedFunc: c_int,
    pub cooperativeMultiDeviceUnmatchedGridDim: c_int,
    pub cooperativeMultiDeviceUnmatchedBlockDim: c_int,
    pub cooperativeMultiDeviceUnmatchedSharedMem: c_int,
    pub isLargeBar: c_int,
    pub asicRevision: c_int,
    pub managedMemory: c_int,
    pub directManagedMemAccessFromHost: c_int,
    pub concurrentManagedAccess: c_int,
    pub pageableMemoryAccess: c_int,
    pub pageableMemoryAccessUsesHostPageTables: c_int,
}

/// Device properties as HIP 6 and later lay them out (`hipGetDevicePropertiesR0600`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hipDeviceProp_tR0600 {
    pub name: [c_char; 256],
    pub uuid: [u8; 16],
    pub luid: [c_char; 8],
    pub luidDeviceNodeMask: c_uint,
    pub totalGlobalMem: usize,
    pub sharedMemPerBlock: usize,
    pub regsPerBlock: c_int,
    pub warpSize: c_int,
    pub memPitch: usize,
    pub maxThreadsPerBlock: c_int,
    pub maxThreadsDim: [c_int; 3],
    pub maxGridSize: [c_int; 3],
    pub clockRate: c_int,
    pub totalConstMem: usize,
    pub major: c_int,
    pub minor: c_int,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub deviceOverlap: c_int,
    pub multiProcessorCount: c_int,
    pub kernelExecTimeoutEnabled: c_int,
    pub integrated: c_int,
    pub canMapHostMemory: c_int,
    pub computeMode: c_int,
    /// Texture and surface limits, from `maxTexture1D` to `maxSurfaceCubemapLayered`.
    pub textures: [c_int; 40],
    pub surfaceAlignment: usize,
    pub concurrentKernels: c_int,
    pub ECCEnabled: c_int,
    pub pciBusID: c_int,
    pub pciDeviceID: c_int,
    pub pciDomainID: c_int,
    pub tccDriver: c_int,
    pub asyncEngineCount: c_int,
    pub unifiedAddressing: c_int,
    pub memoryClockRate: c_int,
    pub memoryBusWidth: c_int,
    pub l2CacheSize: c_int,
    pub persistingL2CacheMaxSize: c_int,
    pub maxThreadsPerMultiProcessor: c_int,
    pub streamPrioritiesSupported: c_int,
    pub globalL1CacheSupported: c_int,
    pub localL1CacheSupported: c_int,
    pub sharedMemPerMultiprocessor: usize,
    pub regsPerMultiprocessor: c_int,
    pub managedMemory: c_int,
    pub isMultiGpuBoard: c_int,
    pub multiGpuBoardGroupID: c_int,
    pub hostNativeAtomicSupported: c_int,
    pub singleToDoublePrecisionPerfRatio: c_int,
    pub pageableMemoryAccess: c_int,
    pub concurrentManagedAccess: c_int,
    pub computePreemptionSupported: c_int,
    pub canUseHostPointerForRegisteredMem: c_int,
    pub cooperativeLaunch: c_int,
    pub cooperativeMultiDeviceLaunch: c_int,
    pub sharedMemPerBlockOptin: usize,
    pub pageableMemoryAccessUsesHostPageTables: c_int,
    pub directManagedMemAccessFromHost: c_int,
    pub maxBlocksPerMultiProcessor: c_int,
    pub accessPolicyMaxWindowSize: c_int,
    pub reservedSharedMemPerBlock: usize,
    pub hostRegisterSupported: c_int,
    pub sparseHipArraySupported: c_int,
    pub hostRegisterReadOnlySupported: c_int,
    pub timelineSemaphoreInteropSupported: c_int,
    pub memoryPoolsSupported: c_int,
    pub gpuDirectRDMASupported: c_int,
    pub gpuDirectRDMAFlushWritesOptions: c_uint,
    pub gpuDirectRDMAWritesOrdering: c_int,
    pub memoryPoolSupportedHandleTypes: c_uint,
    pub deferredMappingHipArraySupported: c_int,
    pub ipcEventSupported: c_int,
    pub clusterLaunch: c_int,
    pub unifiedFunctionPointers: c_int,
    pub reserved: [c_int; 63],
    pub hipReserved: [c_int; 32],
    pub gcnArchName: [c_char; 256],
    pub maxSharedMemoryPerMultiProcessor: usize,
    pub clockInstructionRate: c_int,
    /// Bit set: 32-bit global atomics (5 bits), double, warp operations (4), barriers and fences (3), surfaces, 3-D
    /// grids, dynamic parallelism.
    pub arch: u32,
    pub hdpMemFlushCntl: *mut c_uint,
    pub hdpRegFlushCntl: *mut c_uint,
    pub cooperativeMultiDeviceUnmatchedFunc: c_int,
    pub cooperativeMultiDeviceUnmatchedGridDim: c_int,
    pub cooperativeMultiDeviceUnmatchedBlockDim: c_int,
    pub cooperativeMultiDeviceUnmatchedSharedMem: c_int,
    pub isLargeBar: c_int,
    pub asicRevision: c_int,
}

// A wrong size overflows the caller's stack.
const _: () = assert!(size_of::<hipDeviceProp_tR0000>() == 792);
const _: () = assert!(size_of::<hipDeviceProp_tR0600>() == 1472);

macro_rules! zeroed {
    ($($t:ty),*) => {$(
        impl Default for $t {
            fn default() -> Self {
                // SAFETY: numbers, arrays of numbers and raw pointers: all zeroes is a value of each.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}
zeroed!(hipDeviceProp_tR0000, hipDeviceProp_tR0600);

/// A C string in a fixed array, as far as its end or first zero.
pub fn text_of(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A function of the host that a stream calls.
pub type hipHostFn_t = Option<unsafe extern "C" fn(*mut c_void)>;

#[cfg(feature = "hip-sys")]
const _: () = {
    use hip_sys::hiprt;
    use std::mem::offset_of;
    assert!(size_of::<hipDeviceProp_tR0000>() == size_of::<hiprt::hipDeviceProp_t>());
    macro_rules! same_offsets {
        ($($field:ident)*) => {
            $(assert!(offset_of!(hipDeviceProp_tR0000, $field) == offset_of!(hiprt::hipDeviceProp_t, $field));)*
        };
    }
    same_offsets!(name totalGlobalMem sharedMemPerBlock regsPerBlock warpSize maxThreadsPerBlock maxThreadsDim
        maxGridSize clockRate memoryClockRate memoryBusWidth totalConstMem major minor multiProcessorCount l2CacheSize
        maxThreadsPerMultiProcessor computeMode clockInstructionRate arch concurrentKernels pciDomainID pciBusID
        pciDeviceID maxSharedMemoryPerMultiProcessor isMultiGpuBoard canMapHostMemory gcnArch gcnArchName integrated
        cooperativeLaunch cooperativeMultiDeviceLaunch maxTexture1DLinear maxTexture1D maxTexture2D maxTexture3D
        hdpMemFlushCntl hdpRegFlushCntl memPitch textureAlignment texturePitchAlignment kernelExecTimeoutEnabled
        ECCEnabled tccDriver isLargeBar asicRevision managedMemory directManagedMemAccessFromHost
        concurrentManagedAccess pageableMemoryAccess pageableMemoryAccessUsesHostPageTables);
};
