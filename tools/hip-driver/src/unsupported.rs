//! What the HIP API (7.2) has and this library has not: arrays and textures, graphics and external memory, linking and
//! libraries of kernels, copies in batches, attributes of streams.

/// Exports functions that say so. Their arguments are not looked at.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> u32 {
            $crate::api::call(stringify!($name), String::new, || {
                $crate::api::log(concat!(stringify!($name), " is not supported by the emulated driver"));
                $crate::api::err(barewave_emu::hip::code::hipErrorNotSupported)
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
    hipMallocMipmappedArray hipMemGetHandleForAddressRange hipMemMapArrayAsync hipMemcpy2DArrayToArray
    hipMemcpy2DFromArray hipMemcpy2DFromArrayAsync hipMemcpy2DFromArrayAsync_spt hipMemcpy2DFromArray_spt
    hipMemcpy2DToArray hipMemcpy2DToArrayAsync hipMemcpy2DToArrayAsync_spt hipMemcpy2DToArray_spt
    hipMemcpy3DBatchAsync hipMemcpy3DPeer hipMemcpy3DPeerAsync hipMemcpyAtoA hipMemcpyAtoD hipMemcpyAtoH
    hipMemcpyAtoHAsync hipMemcpyBatchAsync hipMemcpyDtoA hipMemcpyFromArray hipMemcpyFromArray_spt hipMemcpyHtoA
    hipMemcpyHtoAAsync hipMemcpyToArray hipMipmappedArrayCreate hipMipmappedArrayDestroy hipMipmappedArrayGetLevel
    hipModuleGetTexRef hipOccupancyAvailableDynamicSMemPerBlock hipSignalExternalSemaphoresAsync
    hipStreamCopyAttributes hipStreamGetAttribute hipStreamSetAttribute hipTexObjectCreate hipTexObjectDestroy
    hipTexObjectGetResourceDesc hipTexObjectGetResourceViewDesc hipTexObjectGetTextureDesc hipTexRefGetAddress
    hipTexRefGetAddressMode hipTexRefGetArray hipTexRefGetBorderColor hipTexRefGetFilterMode hipTexRefGetFlags
    hipTexRefGetFormat hipTexRefGetMaxAnisotropy hipTexRefGetMipMappedArray hipTexRefGetMipmapFilterMode
    hipTexRefGetMipmapLevelBias hipTexRefGetMipmapLevelClamp hipTexRefSetAddress hipTexRefSetAddress2D
    hipTexRefSetAddressMode hipTexRefSetArray hipTexRefSetBorderColor hipTexRefSetFilterMode hipTexRefSetFlags
    hipTexRefSetFormat hipTexRefSetMaxAnisotropy hipTexRefSetMipmapFilterMode hipTexRefSetMipmapLevelBias
    hipTexRefSetMipmapLevelClamp hipTexRefSetMipmappedArray hipUnbindTexture hipWaitExternalSemaphoresAsync
}

hip! {
    fn hipFreeArray(_array: *mut std::ffi::c_void) {
        // There are none.
        Err(crate::api::INVALID)
    }
    fn hipArrayDestroy(_array: *mut std::ffi::c_void) {
        Err(crate::api::INVALID)
    }
    fn hipFreeMipmappedArray(_array: *mut std::ffi::c_void) {
        Err(crate::api::INVALID)
    }
}
