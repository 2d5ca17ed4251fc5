//! Any bytes decode or do not; what decodes has a text, and the text assembles or is refused.
#![no_main]

use barewave_isa::{Disassembly, Mode, Target, parse};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

fuzz_target!(|data: &[u8]| {
    let Some((&selector, code)) = data.split_first() else { return };
    let targets: Vec<Target> = Target::all().collect();
    let target = targets[usize::from(selector & 0x7f) % targets.len()];
    let mut mode = Mode::of(target);
    mode.wave64 |= selector & 0x80 != 0;
    let disassembly = Disassembly::new(target, mode, code, &BTreeMap::new(), 0);
    let mut shown = String::new();
    let mut covered = 0;
    for line in disassembly.lines() {
        assert_eq!(line.offset, covered, "lines follow one another");
        assert!(!line.bytes.is_empty());
        covered += line.bytes.len();
        shown.clear();
        line.print(&mut shown);
        assert!(!shown.is_empty());
        let Some(raw) = line.raw else { continue };
        let text = raw.to_string();
        if let Ok(again) = parse(target, mode, &text) {
            assert!(again.len() <= 20, "{text}");
        }
        let inst = raw.inst();
        assert!(target.op(inst.op).is_some(), "{text}");
    }
    assert_eq!(covered, code.len());
});
