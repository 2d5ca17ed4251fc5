//! Any bytes are a code object, a bundle or malformed.
#![no_main]

use barewave::codeobj::{ElfFile, code_objects};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = code_objects(data);
    let Ok(file) = ElfFile::parse(data) else { return };
    for section in &file.sections {
        let _ = file.section(&section.name);
    }
    for symbol in &file.symbols {
        let _ = file.file_range(symbol.addr, symbol.size);
        let _ = file.symbol_at(symbol.addr);
    }
    for kernel in &file.kernels {
        let _ = kernel.kernarg_size();
    }
});
