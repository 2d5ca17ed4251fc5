//! What the HIP API (7.2) has and this library has not: arrays and textures, graphics and external memory, linking and
//! libraries of kernels, copies in batches, attributes of streams.

use crate::types::*;
use std::ffi::{c_uint, c_void};

fn none(name: &str) -> crate::api::Result {
    crate::api::log(&format!("{name} is not supported by the emulated driver"));
    crate::api::err(barewave_emu::hip::code::hipErrorNotSupported)
}

/// Exports functions that say so. Their arguments are not looked at.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> u32 {
            $crate::api::call(stringify!($name), String::new, || {
                none(stringify!($name))
            })
        }
    )*};
}

#[rustfmt::skip]
unsupported! {
    hipArray3DCreate hipArray3DGetDescriptor hipArrayCreate hipArrayGetDescriptor hipArrayGetInfo hipBindTexture
    hipBindTexture2D hipBindTextureToArray hipBindTextureToMipmappedArray hipCreateSurfaceObject
    hipCreateTextureObject hipDestroyExternalMemory hipDestroyExternalSemaphore hipDestroySurfaceObject
    hipDestroyTextureObject hipDeviceGetTexture1DLinearMaxWidth hipExternalMemoryGetMappedBuffer
    hipExternalMemoryGetMappedMipmappedArray hipGLGetDevices hipGetChannelDesc hipGetDriverEntryPoint
    hipGetDriverEntryPoint_spt hipGetMipmappedArrayLevel hipGetTextureAlignmentOffset hipGetTextureObjectResourceDesc
    hipGetTextureObjectResourceViewDesc hipGetTextureObjectTextureDesc hipGetTextureReference
    hipGraphAddExternalSemaphoresSignalNode hipGraphAddExternalSemaphoresWaitNode
    hipGraphExecExternalSemaphoresSignalNodeSetParams hipGraphExecExternalSemaphoresWaitNodeSetParams
    hipGraphExternalSemaphoresSignalNodeGetParams hipGraphExternalSemaphoresSignalNodeSetParams
    hipGraphExternalSemaphoresWaitNodeGetParams hipGraphExternalSemaphoresWaitNodeSetParams
    hipGraphicsGLRegisterBuffer hipGraphicsGLRegisterImage hipGraphicsMapResources hipGraphicsResourceGetMappedPointer
    hipGraphicsSubResourceGetMappedArray hipGraphicsUnmapResources hipGraphicsUnregisterResource
    hipImportExternalMemory hipImportExternalSemaphore hipKernelGetLibrary hipKernelGetName hipLibraryEnumerateKernels
    hipLibraryGetKernel hipLibraryGetKernelCount hipLibraryLoadData hipLibraryLoadFromFile hipLibraryUnload
    hipLinkAddData hipLinkAddFile hipLinkComplete hipLinkCreate hipLinkDestroy hipMalloc3DArray hipMallocArray
    hipMemGetHandleForAddressRange hipMemMapArrayAsync hipMemcpy2DArrayToArray
    hipMemcpy2DFromArray hipMemcpy2DFromArrayAsync hipMemcpy2DFromArrayAsync_spt hipMemcpy2DFromArray_spt
    hipMemcpy2DToArray hipMemcpy2DToArrayAsync hipMemcpy2DToArrayAsync_spt hipMemcpy2DToArray_spt
    hipMemcpy3DBatchAsync hipMemcpy3DPeer hipMemcpy3DPeerAsync hipMemcpyAtoA hipMemcpyAtoD hipMemcpyAtoH
    hipMemcpyAtoHAsync hipMemcpyBatchAsync hipMemcpyDtoA hipMemcpyFromArray hipMemcpyFromArray_spt hipMemcpyHtoA
    hipMemcpyHtoAAsync hipMemcpyToArray hipMipmappedArrayCreate hipMipmappedArrayDestroy hipMipmappedArrayGetLevel
    hipModuleGetTexRef hipOccupancyAvailableDynamicSMemPerBlock 
    hipStreamCopyAttributes hipStreamGetAttribute hipStreamSetAttribute hipTexObjectCreate hipTexObjectDestroy
    hipTexObjectGetResourceDesc hipTexObjectGetResourceViewDesc hipTexObjectGetTextureDesc hipTexRefGetAddress
    hipTexRefGetAddressMode hipTexRefGetArray hipTexRefGetBorderColor hipTexRefGetFilterMode hipTexRefGetFlags
    hipTexRefGetFormat hipTexRefGetMaxAnisotropy hipTexRefGetMipMappedArray hipTexRefGetMipmapFilterMode
    hipTexRefGetMipmapLevelBias hipTexRefGetMipmapLevelClamp hipTexRefSetAddress hipTexRefSetAddress2D
    hipTexRefSetAddressMode hipTexRefSetArray hipTexRefSetBorderColor hipTexRefSetFilterMode hipTexRefSetFlags
    hipTexRefSetFormat hipTexRefSetMaxAnisotropy hipTexRefSetMipmapFilterMode hipTexRefSetMipmapLevelBias
    hipTexRefSetMipmapLevelClamp hipTexRefSetMipmappedArray hipUnbindTexture
}

hip! {
    fn hipFreeArray(_array: *mut c_void) {
        // There are none.
        Err(crate::api::INVALID)
    }
    fn hipArrayDestroy(_array: *mut c_void) {
        Err(crate::api::INVALID)
    }
    fn hipMallocMipmappedArray(place: *mut Handle, format: *const hipChannelFormatDesc, _extent: hipExtent,
        _levels: c_uint, _flags: c_uint) {
        if place.is_null() || format.is_null() { Err(crate::api::INVALID) } else { none("hipMallocMipmappedArray") }
    }
    fn hipSignalExternalSemaphoresAsync(list: *const Handle, how: *const c_void, _count: c_uint, _stream: hipStream_t) {
        if list.is_null() || how.is_null() { Err(crate::api::INVALID) } else { none("hipSignalExternalSemaphoresAsync") }
    }
    fn hipWaitExternalSemaphoresAsync(list: *const Handle, how: *const c_void, _count: c_uint, _stream: hipStream_t) {
        if list.is_null() || how.is_null() { Err(crate::api::INVALID) } else { none("hipWaitExternalSemaphoresAsync") }
    }
    fn hipFreeMipmappedArray(_array: *mut c_void) {
        Err(crate::api::INVALID)
    }
}
