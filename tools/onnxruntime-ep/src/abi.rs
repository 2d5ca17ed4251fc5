//! The structures of onnxruntime's plugin interface that `ort-sys` lacks, as the C header of onnxruntime orders them.
//!
//! A plugin fills these with its functions and says which version of onnxruntime it knows ([`KNOWN_VERSION`]); what was added
//! at their ends later is not looked at, and is null here. Order is everything: the tests compare offsets with the
//! header's order.
#![allow(non_snake_case)] // the names are those of the header

use ort_sys::*;
use std::ffi::c_void;

/// The version of onnxruntime whose structures these are. The ends of some moved until 1.24 was out; none of what this
/// plugin fills is newer than 1.23, but for [`EP_VERSION`].
pub const KNOWN_VERSION: u32 = 23;

/// The version whose [`OrtEp`] this is: the first with `Sync`. Older ones do not look that far.
pub const EP_VERSION: u32 = 25;

/// Null pointers for what later versions have added.
type Tail = [usize; 16];

/// Nodes that are taken over, while they are being chosen.
#[repr(C)]
pub struct OrtEpGraphSupportInfo {
    _opaque: [u8; 0],
}

/// Where memory lies.
#[repr(C)]
pub struct OrtMemoryDevice {
    _opaque: [u8; 0],
}

/// What a fused node is told when its state is made.
#[repr(C)]
pub struct OrtNodeComputeContext {
    _opaque: [u8; 0],
}

/// How nodes are fused.
#[repr(C)]
pub struct OrtNodeFusionOptions {
    pub version: u32,
    pub drop_constant_initializers: bool,
    pub tail: Tail,
}

/// A fused node's functions.
#[repr(C)]
pub struct OrtNodeComputeInfo {
    pub version: u32,
    pub CreateState: Option<
        unsafe extern "system" fn(
            *mut OrtNodeComputeInfo,
            *mut OrtNodeComputeContext,
            *mut *mut c_void,
        ) -> OrtStatusPtr,
    >,
    pub Compute:
        Option<unsafe extern "system" fn(*mut OrtNodeComputeInfo, *mut c_void, *mut OrtKernelContext) -> OrtStatusPtr>,
    pub ReleaseState: Option<unsafe extern "system" fn(*mut OrtNodeComputeInfo, *mut c_void)>,
    pub tail: Tail,
}

/// A provider of one session.
#[repr(C)]
pub struct OrtEp {
    pub version: u32,
    pub GetName: Option<unsafe extern "system" fn(*const OrtEp) -> *const c_char>,
    pub GetCapability:
        Option<unsafe extern "system" fn(*mut OrtEp, *const OrtGraph, *mut OrtEpGraphSupportInfo) -> OrtStatusPtr>,
    pub Compile: Option<
        unsafe extern "system" fn(
            *mut OrtEp,
            *const *const OrtGraph,
            *const *const OrtNode,
            usize,
            *mut *mut OrtNodeComputeInfo,
            *mut *mut OrtNode,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseNodeComputeInfos: Option<unsafe extern "system" fn(*mut OrtEp, *mut *mut OrtNodeComputeInfo, usize)>,
    pub GetPreferredDataLayout: Option<unsafe extern "system" fn(*mut OrtEp, *mut i32) -> OrtStatusPtr>,
    pub ShouldConvertDataLayoutForOp:
        Option<unsafe extern "system" fn(*mut OrtEp, *const c_char, *const c_char, i32, *mut i32) -> OrtStatusPtr>,
    pub SetDynamicOptions: Option<
        unsafe extern "system" fn(*mut OrtEp, *const *const c_char, *const *const c_char, usize) -> OrtStatusPtr,
    >,
    pub OnRunStart: Option<unsafe extern "system" fn(*mut OrtEp, *const OrtRunOptions) -> OrtStatusPtr>,
    pub OnRunEnd: Option<unsafe extern "system" fn(*mut OrtEp, *const OrtRunOptions, bool) -> OrtStatusPtr>,
    pub CreateAllocator:
        Option<unsafe extern "system" fn(*mut OrtEp, *const OrtMemoryInfo, *mut *mut OrtAllocator) -> OrtStatusPtr>,
    pub CreateSyncStreamForDevice: Option<
        unsafe extern "system" fn(*mut OrtEp, *const OrtMemoryDevice, *mut *mut OrtSyncStreamImpl) -> OrtStatusPtr,
    >,
    pub GetCompiledModelCompatibilityInfo:
        Option<unsafe extern "system" fn(*mut OrtEp, *const OrtGraph) -> *const c_char>,
    pub GetKernelRegistry: Option<unsafe extern "system" fn(*mut OrtEp, *mut *const c_void) -> OrtStatusPtr>,
    pub IsConcurrentRunSupported: Option<unsafe extern "system" fn(*mut OrtEp, *mut bool) -> OrtStatusPtr>,
    pub Sync: Option<unsafe extern "system" fn(*mut OrtEp) -> OrtStatusPtr>,
    pub tail: Tail,
}

/// What makes providers.
#[repr(C)]
pub struct OrtEpFactory {
    pub version: u32,
    pub GetName: Option<unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char>,
    pub GetVendor: Option<unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char>,
    pub GetSupportedDevices: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            *const *const OrtHardwareDevice,
            usize,
            *mut *mut OrtEpDevice,
            usize,
            *mut usize,
        ) -> OrtStatusPtr,
    >,
    pub CreateEp: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            *const *const OrtHardwareDevice,
            *const *const OrtKeyValuePairs,
            usize,
            *const OrtSessionOptions,
            *const OrtLogger,
            *mut *mut OrtEp,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseEp: Option<unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtEp)>,
    pub GetVendorId: Option<unsafe extern "system" fn(*const OrtEpFactory) -> u32>,
    pub GetVersion: Option<unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char>,
    pub ValidateCompiledModelCompatibilityInfo: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            *const *const OrtHardwareDevice,
            usize,
            *const c_char,
            *mut OrtCompiledModelCompatibility,
        ) -> OrtStatusPtr,
    >,
    pub CreateAllocator: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            *const OrtMemoryInfo,
            *const OrtKeyValuePairs,
            *mut *mut OrtAllocator,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseAllocator: Option<unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtAllocator)>,
    pub CreateDataTransfer:
        Option<unsafe extern "system" fn(*mut OrtEpFactory, *mut *mut OrtDataTransferImpl) -> OrtStatusPtr>,
    pub IsStreamAware: Option<unsafe extern "system" fn(*const OrtEpFactory) -> bool>,
    pub CreateSyncStreamForDevice: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            *const OrtMemoryDevice,
            *const OrtKeyValuePairs,
            *mut *mut OrtSyncStreamImpl,
        ) -> OrtStatusPtr,
    >,
    pub tail: Tail,
}

/// Copies between device and host.
#[repr(C)]
pub struct OrtDataTransferImpl {
    pub version: u32,
    pub Release: Option<unsafe extern "system" fn(*mut OrtDataTransferImpl)>,
    pub CanCopy: Option<
        unsafe extern "system" fn(*const OrtDataTransferImpl, *const OrtMemoryDevice, *const OrtMemoryDevice) -> bool,
    >,
    pub CopyTensors: Option<
        unsafe extern "system" fn(
            *mut OrtDataTransferImpl,
            *const *const OrtValue,
            *const *mut OrtValue,
            *const *mut OrtSyncStream,
            usize,
        ) -> OrtStatusPtr,
    >,
    pub tail: Tail,
}

/// An event that other streams, or the host, wait for.
#[repr(C)]
pub struct OrtSyncNotificationImpl {
    pub version: u32,
    pub Release: Option<unsafe extern "system" fn(*mut OrtSyncNotificationImpl)>,
    pub Activate: Option<unsafe extern "system" fn(*mut OrtSyncNotificationImpl) -> OrtStatusPtr>,
    pub WaitOnDevice:
        Option<unsafe extern "system" fn(*mut OrtSyncNotificationImpl, *mut OrtSyncStream) -> OrtStatusPtr>,
    pub WaitOnHost: Option<unsafe extern "system" fn(*mut OrtSyncNotificationImpl) -> OrtStatusPtr>,
    pub tail: Tail,
}

/// A stream of work.
#[repr(C)]
pub struct OrtSyncStreamImpl {
    pub version: u32,
    pub Release: Option<unsafe extern "system" fn(*mut OrtSyncStreamImpl)>,
    pub GetHandle: Option<unsafe extern "system" fn(*mut OrtSyncStreamImpl) -> *mut c_void>,
    pub CreateNotification:
        Option<unsafe extern "system" fn(*mut OrtSyncStreamImpl, *mut *mut OrtSyncNotificationImpl) -> OrtStatusPtr>,
    pub Flush: Option<unsafe extern "system" fn(*mut OrtSyncStreamImpl) -> OrtStatusPtr>,
    pub OnSessionRunEnd: Option<unsafe extern "system" fn(*mut OrtSyncStreamImpl) -> OrtStatusPtr>,
    pub tail: Tail,
}

/// What onnxruntime offers to plugins: as far as it is called here.
#[repr(C)]
pub struct OrtEpApi {
    pub CreateEpDevice: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const OrtHardwareDevice,
        *const OrtKeyValuePairs,
        *const OrtKeyValuePairs,
        *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    pub ReleaseEpDevice: unsafe extern "system" fn(*mut OrtEpDevice),
    pub EpGraphSupportInfo_AddNodesToFuse: unsafe extern "system" fn(
        *mut OrtEpGraphSupportInfo,
        *const *const OrtNode,
        usize,
        *const OrtNodeFusionOptions,
    ) -> OrtStatusPtr,
    pub EpGraphSupportInfo_AddSingleNode:
        unsafe extern "system" fn(*mut OrtEpGraphSupportInfo, *const OrtNode) -> OrtStatusPtr,
    pub NodeComputeContext_NodeName: unsafe extern "system" fn(*const OrtNodeComputeContext) -> *const c_char,
    pub EpDevice_AddAllocatorInfo: unsafe extern "system" fn(*mut OrtEpDevice, *const OrtMemoryInfo) -> OrtStatusPtr,
    pub MemoryInfo_GetMemoryDevice: unsafe extern "system" fn(*const OrtMemoryInfo) -> *const OrtMemoryDevice,
    pub Value_GetMemoryDevice: unsafe extern "system" fn(*const OrtValue) -> *const OrtMemoryDevice,
    pub MemoryDevice_AreEqual: unsafe extern "system" fn(*const OrtMemoryDevice, *const OrtMemoryDevice) -> bool,
    pub MemoryDevice_GetDeviceType: unsafe extern "system" fn(*const OrtMemoryDevice) -> i32,
    pub MemoryDevice_GetMemoryType: unsafe extern "system" fn(*const OrtMemoryDevice) -> i32,
    pub MemoryDevice_GetVendorId: unsafe extern "system" fn(*const OrtMemoryDevice) -> u32,
    pub MemoryDevice_GetDeviceId: unsafe extern "system" fn(*const OrtMemoryDevice) -> u32,
    pub SyncStream_GetImpl: unsafe extern "system" fn(*const OrtSyncStream) -> *const OrtSyncStreamImpl,
    pub SyncStream_GetSyncId: unsafe extern "system" fn(*const OrtSyncStream) -> u64,
    pub GetSyncIdForLastWaitOnSyncStream: unsafe extern "system" fn(*const OrtSyncStream, *const OrtSyncStream) -> u64,
    pub CreateHardwareDevice: unsafe extern "system" fn(
        OrtHardwareDeviceType,
        u32,
        u32,
        *const c_char,
        *const OrtKeyValuePairs,
        *mut *mut OrtHardwareDevice,
    ) -> OrtStatusPtr,
    pub ReleaseHardwareDevice: unsafe extern "system" fn(*mut OrtHardwareDevice),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Slots of 8 bytes in the order of onnxruntime_ep_c_api.h; the first holds the version where there is one.
    macro_rules! order {
        ($type:ty, $from:expr, $($field:ident)*) => {{
            let mut slot = $from;
            $(
                assert_eq!(offset_of!($type, $field), slot * 8, concat!(stringify!($type), "::", stringify!($field)));
                slot += 1;
            )*
            slot
        }};
    }

    #[test]
    fn fields_are_where_the_header_has_them() {
        order!(OrtEp, 1, GetName GetCapability Compile ReleaseNodeComputeInfos GetPreferredDataLayout
            ShouldConvertDataLayoutForOp SetDynamicOptions OnRunStart OnRunEnd CreateAllocator CreateSyncStreamForDevice
            GetCompiledModelCompatibilityInfo GetKernelRegistry IsConcurrentRunSupported Sync tail);
        order!(OrtEpFactory, 1, GetName GetVendor GetSupportedDevices CreateEp ReleaseEp GetVendorId GetVersion
            ValidateCompiledModelCompatibilityInfo CreateAllocator ReleaseAllocator CreateDataTransfer IsStreamAware
            CreateSyncStreamForDevice tail);
        order!(OrtNodeComputeInfo, 1, CreateState Compute ReleaseState tail);
        order!(OrtDataTransferImpl, 1, Release CanCopy CopyTensors tail);
        order!(OrtSyncNotificationImpl, 1, Release Activate WaitOnDevice WaitOnHost tail);
        order!(OrtSyncStreamImpl, 1, Release GetHandle CreateNotification Flush OnSessionRunEnd tail);
        let slots = order!(OrtEpApi, 0, CreateEpDevice ReleaseEpDevice EpGraphSupportInfo_AddNodesToFuse
            EpGraphSupportInfo_AddSingleNode NodeComputeContext_NodeName EpDevice_AddAllocatorInfo
            MemoryInfo_GetMemoryDevice Value_GetMemoryDevice MemoryDevice_AreEqual MemoryDevice_GetDeviceType
            MemoryDevice_GetMemoryType MemoryDevice_GetVendorId MemoryDevice_GetDeviceId SyncStream_GetImpl
            SyncStream_GetSyncId GetSyncIdForLastWaitOnSyncStream CreateHardwareDevice ReleaseHardwareDevice);
        assert_eq!(size_of::<OrtEpApi>(), slots * 8);
        assert_eq!(offset_of!(OrtNodeFusionOptions, drop_constant_initializers), 4);
    }
}
