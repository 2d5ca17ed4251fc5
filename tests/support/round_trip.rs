//! From a code object to text and back.

use barewave::codeobj::{Abi, Descriptor, ElfFile, Listing, link_assembly, list, metadata_to_yaml};
use barewave_isa::{Mode, Target, assemble};
use pretty_assertions::assert_eq;

/// Assembles and links a source.
pub fn link(target: Target, mode: Mode, source: &str) -> Result<Vec<u8>, String> {
    let a =
        assemble(target, mode, source).map_err(|e| e.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"))?;
    link_assembly(target, mode, &a, Abi::V5).map_err(|e| e.to_string())
}

/// All text of a code object, and the wave size that it is to be read with.
fn full_text(bytes: &[u8], target: Target) -> (String, Mode) {
    let file = ElfFile::parse(bytes).unwrap();
    let mut mode = Mode::of(target);
    if let Some(k) = file.kernels.first() {
        mode.wave64 = !k.descriptor.wave32();
    }
    let mut text = Vec::new();
    list(&file, bytes, target, &Listing { full: true, ..Listing::default() }, &mut text).unwrap();
    (String::from_utf8(text).unwrap(), mode)
}

/// Contents of a section, empty when there is none.
pub fn section<'a>(file: &ElfFile, bytes: &'a [u8], name: &str) -> &'a [u8] {
    file.section(name).map_or(&[], |r| &bytes[r])
}

/// Printed in full and assembled again: the same code, descriptors, metadata, symbols and places. Returns the new file.
pub fn round_trip(what: &str, bytes: &[u8], target: Target) -> Vec<u8> {
    let file = ElfFile::parse(bytes).unwrap();
    let (text, mode) = full_text(bytes, target);
    let again = link(target, mode, &text).unwrap_or_else(|e| panic!("{what}: {e}\n{text}"));
    let file_again = ElfFile::parse(&again).unwrap();
    assert!(section(&file, bytes, ".text") == section(&file_again, &again, ".text"), "{what}: .text\n{text}");
    assert_eq!(file.e_flags, file_again.e_flags, "{what}");
    assert_eq!(file.kernels.len(), file_again.kernels.len(), "{what}");
    for (a, b) in file.kernels.iter().zip(&file_again.kernels) {
        let b = Descriptor { entry_offset: a.descriptor.entry_offset, ..b.descriptor };
        assert_eq!((&a.name, a.descriptor, &a.meta), (&a.name, b, &a.meta), "{what}");
    }
    let yaml = |f: &ElfFile, b: &[u8]| f.metadata.clone().map(|r| metadata_to_yaml(&b[r]).unwrap());
    assert_eq!(yaml(&file, bytes), yaml(&file_again, &again), "{what}");
    // The places are the same too, so that distances in the code still hold.
    let places = |f: &ElfFile| -> Vec<(String, u64, u64)> {
        f.symbols.iter().filter(|s| s.defined && !s.absolute).map(|s| (s.name.clone(), s.addr, s.size)).collect()
    };
    let (mut a, mut b) = (places(&file), places(&file_again));
    a.retain(|s| s.0 != "_DYNAMIC");
    a.sort();
    b.sort();
    assert_eq!(a, b, "{what}");
    again
}
