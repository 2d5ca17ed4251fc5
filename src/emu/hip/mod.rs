//! What HIP's API is made of, for those who call a driver and for the driver over emulated devices: result codes by
//! number (drivers know more than any list of them) and the structures of [`types`].

pub mod types;

/// `hipErrorName (number)`.
pub fn describe(code: u32) -> String {
    match entry(code) {
        Some((_, name, text)) => format!("{name} ({code}), {text}"),
        None => format!("HIP error {code}"),
    }
}

/// Name of a result code; `None` when this list does not have it.
pub fn error_name(code: u32) -> Option<&'static str> {
    entry(code).map(|e| e.1)
}

/// A few words on a result code.
pub fn error_text(code: u32) -> Option<&'static str> {
    entry(code).map(|e| e.2)
}

fn entry(code: u32) -> Option<&'static (u32, &'static str, &'static str)> {
    ERRORS.binary_search_by_key(&code, |e| e.0).ok().map(|i| &ERRORS[i])
}

/// All known codes, in order.
pub fn errors() -> impl Iterator<Item = (u32, &'static str, &'static str)> {
    ERRORS.iter().copied()
}

macro_rules! errors {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// Result codes by name.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod code {
            $(pub const $name: u32 = $code;)*
        }
        const ERRORS: &[(u32, &str, &str)] = &[$(($code, stringify!($name), $text)),*];
    };
}

errors! {
    hipSuccess = 0, "no error";
    hipErrorInvalidValue = 1, "invalid argument";
    hipErrorOutOfMemory = 2, "out of memory";
    hipErrorNotInitialized = 3, "initialization error";
    hipErrorDeinitialized = 4, "driver shutting down";
    hipErrorProfilerDisabled = 5, "profiler disabled while using external profiling tool";
    hipErrorProfilerNotInitialized = 6, "profiler is not initialized";
    hipErrorProfilerAlreadyStarted = 7, "profiler already started";
    hipErrorProfilerAlreadyStopped = 8, "profiler already stopped";
    hipErrorInvalidConfiguration = 9, "invalid configuration argument";
    hipErrorInvalidPitchValue = 12, "invalid pitch argument";
    hipErrorInvalidSymbol = 13, "invalid device symbol";
    hipErrorInvalidDevicePointer = 17, "invalid device pointer";
    hipErrorInvalidMemcpyDirection = 21, "invalid copy direction for memcpy";
    hipErrorInsufficientDriver = 35, "driver version is insufficient for runtime version";
    hipErrorMissingConfiguration = 52, "__global__ function call is not configured";
    hipErrorPriorLaunchFailure = 53, "unspecified launch failure in prior launch";
    hipErrorInvalidDeviceFunction = 98, "invalid device function";
    hipErrorNoDevice = 100, "no ROCm-capable device is detected";
    hipErrorInvalidDevice = 101, "invalid device ordinal";
    hipErrorInvalidImage = 200, "device kernel image is invalid";
    hipErrorInvalidContext = 201, "invalid device context";
    hipErrorContextAlreadyCurrent = 202, "context is already current context";
    hipErrorMapFailed = 205, "mapping of buffer object failed";
    hipErrorUnmapFailed = 206, "unmapping of buffer object failed";
    hipErrorArrayIsMapped = 207, "array is mapped";
    hipErrorAlreadyMapped = 208, "resource already mapped";
    hipErrorNoBinaryForGpu = 209, "no kernel image is available for execution on the device";
    hipErrorAlreadyAcquired = 210, "resource already acquired";
    hipErrorNotMapped = 211, "resource not mapped";
    hipErrorNotMappedAsArray = 212, "resource not mapped as array";
    hipErrorNotMappedAsPointer = 213, "resource not mapped as pointer";
    hipErrorECCNotCorrectable = 214, "uncorrectable ECC error encountered";
    hipErrorUnsupportedLimit = 215, "limit is not supported on this architecture";
    hipErrorContextAlreadyInUse = 216, "exclusive-thread device already in use by a different thread";
    hipErrorPeerAccessUnsupported = 217, "peer access is not supported between these two devices";
    hipErrorInvalidKernelFile = 218, "invalid kernel file";
    hipErrorInvalidGraphicsContext = 219, "invalid OpenGL or DirectX context";
    hipErrorInvalidSource = 300, "device kernel image is invalid";
    hipErrorFileNotFound = 301, "file not found";
    hipErrorSharedObjectSymbolNotFound = 302, "shared object symbol not found";
    hipErrorSharedObjectInitFailed = 303, "shared object initialization failed";
    hipErrorOperatingSystem = 304, "OS call failed or operation not supported on this OS";
    hipErrorInvalidHandle = 400, "invalid resource handle";
    hipErrorIllegalState = 401, "the operation cannot be performed in the present state";
    hipErrorNotFound = 500, "named symbol not found";
    hipErrorNotReady = 600, "device not ready";
    hipErrorIllegalAddress = 700, "an illegal memory access was encountered";
    hipErrorLaunchOutOfResources = 701, "too many resources requested for launch";
    hipErrorLaunchTimeOut = 702, "the launch timed out and was terminated";
    hipErrorPeerAccessAlreadyEnabled = 704, "peer access is already enabled";
    hipErrorPeerAccessNotEnabled = 705, "peer access has not been enabled";
    hipErrorSetOnActiveProcess = 708, "cannot set while device is active in this process";
    hipErrorContextIsDestroyed = 709, "context is destroyed";
    hipErrorAssert = 710, "device-side assert triggered";
    hipErrorHostMemoryAlreadyRegistered = 712, "part or all of the requested memory range is already mapped";
    hipErrorHostMemoryNotRegistered = 713, "pointer does not correspond to a registered memory region";
    hipErrorLaunchFailure = 719, "unspecified launch failure";
    hipErrorCooperativeLaunchTooLarge = 720, "too many blocks in cooperative launch";
    hipErrorNotSupported = 801, "operation not supported";
    hipErrorStreamCaptureUnsupported = 900, "operation not permitted when stream is capturing";
    hipErrorStreamCaptureInvalidated = 901, "operation failed due to a previous error during capture";
    hipErrorStreamCaptureMerge = 902, "operation would result in a merge of separate capture sequences";
    hipErrorStreamCaptureUnmatched = 903, "capture was not ended in the same stream as it began";
    hipErrorStreamCaptureUnjoined = 904, "capturing stream has unjoined work";
    hipErrorStreamCaptureIsolation = 905, "dependency created on uncaptured work in another stream";
    hipErrorStreamCaptureImplicit = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    hipErrorCapturedEvent = 907, "operation not permitted on an event last recorded in a capturing stream";
    hipErrorStreamCaptureWrongThread = 908, "attempt to terminate a thread-local capture sequence from another thread";
    hipErrorGraphExecUpdateFailure = 910, "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    hipErrorInvalidChannelDescriptor = 911, "invalid channel descriptor";
    hipErrorInvalidTexture = 912, "invalid texture";
    hipErrorUnknown = 999, "unknown error";
    hipErrorRuntimeMemory = 1052, "runtime memory call returned error";
    hipErrorRuntimeOther = 1053, "runtime call other than memory returned error";
    hipErrorTbd = 1054, "unknown error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_unknown_ones_stay_numbers() {
        assert!(ERRORS.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(error_name(code::hipErrorIllegalAddress), Some("hipErrorIllegalAddress"));
        assert_eq!(error_name(916), None);
        assert_eq!(describe(916), "HIP error 916");
    }
}
