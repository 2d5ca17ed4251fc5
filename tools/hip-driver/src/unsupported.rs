//! What the HIP API (7.2) has and this library has not: arrays and textures, graphics and external memory, sharing between
//! processes, virtual memory management, linking, per-thread default streams, some of the graph's getters.

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
    hipArray3DCreate hipArray3DGetDescriptor hipArrayCreate hipArrayDestroy hipArrayGetDescriptor hipArrayGetInfo
    hipBindTexture hipBindTexture2D hipBindTextureToArray hipBindTextureToMipmappedArray hipCreateSurfaceObject
    hipCreateTextureObject hipDestroyExternalMemory hipDestroyExternalSemaphore hipDestroySurfaceObject
    hipDestroyTextureObject hipDeviceGetGraphMemAttribute hipDeviceGetTexture1DLinearMaxWidth hipDeviceGraphMemTrim
    hipDeviceSetGraphMemAttribute hipDrvGraphAddMemFreeNode hipDrvGraphExecMemcpyNodeSetParams
    hipDrvGraphExecMemsetNodeSetParams hipDrvGraphMemcpyNodeGetParams hipDrvGraphMemcpyNodeSetParams
    hipDrvLaunchKernelEx hipDrvPointerGetAttributes hipEventRecord_spt hipExtLaunchKernel
    hipExtLaunchMultiKernelMultiDevice hipExtStreamGetCUMask hipExternalMemoryGetMappedBuffer
    hipExternalMemoryGetMappedMipmappedArray hipFreeArray hipFreeMipmappedArray hipGLGetDevices hipGetChannelDesc
    hipGetDriverEntryPoint hipGetDriverEntryPoint_spt hipGetMipmappedArrayLevel hipGetSymbolAddress hipGetSymbolSize
    hipGetTextureAlignmentOffset hipGetTextureObjectResourceDesc hipGetTextureObjectResourceViewDesc
    hipGetTextureObjectTextureDesc hipGetTextureReference hipGraphAddBatchMemOpNode
    hipGraphAddExternalSemaphoresSignalNode hipGraphAddExternalSemaphoresWaitNode hipGraphAddMemAllocNode
    hipGraphAddMemFreeNode hipGraphAddMemcpyNodeFromSymbol hipGraphAddMemcpyNodeToSymbol hipGraphAddNode
    hipGraphBatchMemOpNodeGetParams hipGraphBatchMemOpNodeSetParams hipGraphChildGraphNodeGetGraph
    hipGraphDebugDotPrint hipGraphEventRecordNodeGetEvent hipGraphEventWaitNodeGetEvent
    hipGraphExecBatchMemOpNodeSetParams hipGraphExecExternalSemaphoresSignalNodeSetParams
    hipGraphExecExternalSemaphoresWaitNodeSetParams hipGraphExecGetFlags hipGraphExecMemcpyNodeSetParamsFromSymbol
    hipGraphExecMemcpyNodeSetParamsToSymbol hipGraphExecNodeSetParams hipGraphExternalSemaphoresSignalNodeGetParams
    hipGraphExternalSemaphoresSignalNodeSetParams hipGraphExternalSemaphoresWaitNodeGetParams
    hipGraphExternalSemaphoresWaitNodeSetParams hipGraphHostNodeGetParams hipGraphInstantiateWithParams
    hipGraphKernelNodeCopyAttributes hipGraphKernelNodeGetAttribute hipGraphKernelNodeGetParams
    hipGraphKernelNodeSetAttribute hipGraphLaunch_spt hipGraphMemAllocNodeGetParams hipGraphMemFreeNodeGetParams
    hipGraphMemcpyNodeGetParams hipGraphMemcpyNodeSetParamsFromSymbol hipGraphMemcpyNodeSetParamsToSymbol
    hipGraphMemsetNodeGetParams hipGraphNodeGetEnabled hipGraphNodeSetEnabled hipGraphNodeSetParams
    hipGraphReleaseUserObject hipGraphRetainUserObject hipGraphicsGLRegisterBuffer hipGraphicsGLRegisterImage
    hipGraphicsMapResources hipGraphicsResourceGetMappedPointer hipGraphicsSubResourceGetMappedArray
    hipGraphicsUnmapResources hipGraphicsUnregisterResource hipImportExternalMemory hipImportExternalSemaphore
    hipIpcCloseMemHandle hipIpcGetEventHandle hipIpcGetMemHandle hipIpcOpenEventHandle hipIpcOpenMemHandle
    hipKernelGetLibrary hipKernelGetName hipLaunchByPtr hipLaunchCooperativeKernel
    hipLaunchCooperativeKernelMultiDevice hipLaunchCooperativeKernel_spt hipLaunchHostFunc_spt hipLaunchKernelExC
    hipLaunchKernel_spt hipLibraryEnumerateKernels hipLibraryGetKernel hipLibraryGetKernelCount hipLibraryLoadData
    hipLibraryLoadFromFile hipLibraryUnload hipLinkAddData hipLinkAddFile hipLinkComplete hipLinkCreate hipLinkDestroy
    hipMalloc3DArray hipMallocArray hipMallocMipmappedArray hipMemAddressFree hipMemAddressReserve hipMemAdvise_v2
    hipMemCreate hipMemExportToShareableHandle hipMemGetAccess hipMemGetAllocationGranularity
    hipMemGetAllocationPropertiesFromHandle hipMemGetHandleForAddressRange hipMemImportFromShareableHandle hipMemMap
    hipMemMapArrayAsync hipMemPoolExportPointer hipMemPoolExportToShareableHandle hipMemPoolImportFromShareableHandle
    hipMemPoolImportPointer hipMemPrefetchAsync_v2 hipMemRangeGetAttribute hipMemRangeGetAttributes hipMemRelease
    hipMemRetainAllocationHandle hipMemSetAccess hipMemUnmap hipMemcpy2DArrayToArray hipMemcpy2DAsync_spt
    hipMemcpy2DFromArray hipMemcpy2DFromArrayAsync hipMemcpy2DFromArrayAsync_spt hipMemcpy2DFromArray_spt
    hipMemcpy2DToArray hipMemcpy2DToArrayAsync hipMemcpy2DToArrayAsync_spt hipMemcpy2DToArray_spt hipMemcpy2D_spt
    hipMemcpy3DAsync_spt hipMemcpy3DBatchAsync hipMemcpy3DPeer hipMemcpy3DPeerAsync hipMemcpy3D_spt hipMemcpyAsync_spt
    hipMemcpyAtoA hipMemcpyAtoD hipMemcpyAtoH hipMemcpyAtoHAsync hipMemcpyBatchAsync hipMemcpyDtoA hipMemcpyFromArray
    hipMemcpyFromArray_spt hipMemcpyFromSymbol hipMemcpyFromSymbolAsync hipMemcpyFromSymbolAsync_spt
    hipMemcpyFromSymbol_spt hipMemcpyHtoA hipMemcpyHtoAAsync hipMemcpyToArray hipMemcpyToSymbol hipMemcpyToSymbolAsync
    hipMemcpyToSymbolAsync_spt hipMemcpyToSymbol_spt hipMemcpy_spt hipMemset2DAsync_spt hipMemset2D_spt
    hipMemset3DAsync_spt hipMemset3D_spt hipMemsetAsync_spt hipMemset_spt hipMipmappedArrayCreate
    hipMipmappedArrayDestroy hipMipmappedArrayGetLevel hipModuleGetTexRef hipModuleLaunchCooperativeKernelMultiDevice
    hipOccupancyAvailableDynamicSMemPerBlock hipPointerSetAttribute hipSetupArgument hipSignalExternalSemaphoresAsync
    hipStreamAddCallback_spt hipStreamBatchMemOp hipStreamBeginCaptureToGraph hipStreamBeginCapture_spt
    hipStreamCopyAttributes hipStreamEndCapture_spt hipStreamGetAttribute hipStreamGetCaptureInfo_spt
    hipStreamGetCaptureInfo_v2 hipStreamGetCaptureInfo_v2_spt hipStreamGetFlags_spt hipStreamGetPriority_spt
    hipStreamIsCapturing_spt hipStreamQuery_spt hipStreamSetAttribute hipStreamSynchronize_spt
    hipStreamUpdateCaptureDependencies hipStreamWaitEvent_spt hipTexObjectCreate hipTexObjectDestroy
    hipTexObjectGetResourceDesc hipTexObjectGetResourceViewDesc hipTexObjectGetTextureDesc hipTexRefGetAddress
    hipTexRefGetAddressMode hipTexRefGetArray hipTexRefGetBorderColor hipTexRefGetFilterMode hipTexRefGetFlags
    hipTexRefGetFormat hipTexRefGetMaxAnisotropy hipTexRefGetMipMappedArray hipTexRefGetMipmapFilterMode
    hipTexRefGetMipmapLevelBias hipTexRefGetMipmapLevelClamp hipTexRefSetAddress hipTexRefSetAddress2D
    hipTexRefSetAddressMode hipTexRefSetArray hipTexRefSetBorderColor hipTexRefSetFilterMode hipTexRefSetFlags
    hipTexRefSetFormat hipTexRefSetMaxAnisotropy hipTexRefSetMipmapFilterMode hipTexRefSetMipmapLevelBias
    hipTexRefSetMipmapLevelClamp hipTexRefSetMipmappedArray hipUnbindTexture hipUserObjectCreate hipUserObjectRelease
    hipUserObjectRetain hipWaitExternalSemaphoresAsync
}
