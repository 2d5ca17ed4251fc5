//! Any text assembles or is refused with a message; what assembles decodes again.
#![no_main]

use barewave_isa::{Mode, Target, assemble, decode, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&selector, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let targets: Vec<Target> = Target::all().collect();
    let target = targets[usize::from(selector & 0x7f) % targets.len()];
    let mut mode = Mode::of(target);
    mode.wave64 |= selector & 0x80 != 0;
    for line in text.lines() {
        if let Ok(raw) = parse(target, mode, line) {
            let bytes = raw.bytes();
            let again = decode(target, mode, &bytes).unwrap_or_else(|| panic!("{line:?} gives {bytes:02x?}"));
            assert_eq!(again.len(), bytes.len(), "{line:?}");
        }
    }
    if let Err(errors) = assemble(target, mode, text) {
        assert!(!errors.is_empty());
        for e in errors {
            assert!(!e.to_string().is_empty());
        }
    }
});
