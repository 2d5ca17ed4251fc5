//! Any bytes are a code object, a bundle or malformed; a code object that reads has a listing.
#![no_main]

use barewave::codeobj::{ElfFile, Listing, code_objects, list};
use barewave_isa::Target;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(entries) = code_objects(data) else { return };
    for entry in &entries {
        let Ok(file) = ElfFile::parse(&entry.data) else { continue };
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
        let what = Listing { full: true, ..Listing::default() };
        let _ = list(&file, &entry.data, file.target.unwrap_or(Target::GFX942), &what, &mut std::io::sink());
    }
});
