//! What the HIP API has and this library has not.

/// Exports functions that say so. Their arguments are not looked at.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> u32 {
            $crate::api::call(stringify!($name), String::new, || {
                $crate::api::log(concat!(stringify!($name), " is not supported by the emulated driver"));
                $crate::api::err(barewave::runtime::hip::code::hipErrorNotSupported)
            })
        }
    )*};
}

unsupported! {}
