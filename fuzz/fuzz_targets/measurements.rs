//! Any text is a thread trace, a table of measured products or convolutions, or an error with a message. What is understood is
//! compared with the model.
#![no_main]

use barewave_timing::{conv, shapes, sqtt, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(file) = sqtt::parse(text) {
        for event in file.events.iter().take(4) {
            let _ = sqtt::compare(file.target, event);
        }
    }
    if let Ok((rows, _)) = validate::rocblas(text) {
        let _ = validate::compare(&rows, &validate::campaigns());
    }
    if let Ok((rows, _)) = conv::miopen(text) {
        let _ = conv::compare(&rows, &conv::runs());
        let _ = conv::fit(&rows);
    }
    if let Ok((rows, _)) = shapes::aiter(text) {
        let _ = shapes::compare(&rows);
    }
});
