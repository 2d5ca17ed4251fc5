//! Vectors: `target[:variant]<TAB>text<TAB>hex`, and the two checks every vector must pass.

// every test that includes this uses a part of it
#![allow(dead_code)]

pub mod exceptions;

use barewave_isa::{Mode, Target, decode, encode_raw, parse};

/// One line of a vector file.
pub struct Vector<'a> {
    pub target: Target,
    pub mode: Mode,
    pub text: &'a str,
    pub bytes: Vec<u8>,
}

/// Reads a line; `w64`, `t16` and `f16` choose the mode.
pub fn vector(line: &str) -> Vector<'_> {
    let mut columns = line.split('\t');
    let name = columns.next().expect("a target");
    let text = columns.next().unwrap_or_else(|| panic!("no text in {line:?}"));
    let hex = columns.next().unwrap_or_else(|| panic!("no bytes in {line:?}"));
    let (name, variant) = name.split_once(':').unwrap_or((name, ""));
    let target = Target::parse(name).expect("a known target");
    let mut mode = Mode::of(target);
    match variant {
        "" => {}
        "w64" => mode.wave64 = true,
        "t16" => mode.true16 = true,
        "f16" => mode.true16 = false,
        other => panic!("unknown variant {other}"),
    }
    let bytes = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect();
    Vector { target, mode, text, bytes }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes to text as expected, and the typed form back to bytes that mean the same.
pub fn check_disassembly(v: &Vector) -> Result<(), String> {
    let raw = decode(v.target, v.mode, &v.bytes).ok_or("does not decode")?;
    if raw.len() != v.bytes.len() {
        return Err(format!("decodes {} bytes", raw.len()));
    }
    let text = raw.to_string();
    if words(&text) != words(v.text) {
        return Err(format!("prints {}", text.trim()));
    }
    let inst = raw.inst();
    let again = match encode_raw(v.target, v.mode, raw.form(), &inst) {
        // LLVM prints registers past the file, and literals without room, and refuses that text; so do we
        Err(_) if parse(v.target, v.mode, v.text).is_err() => return Ok(()),
        again => again.map_err(|e| format!("does not encode: {e}"))?,
    };
    let bytes = again.bytes();
    // A literal that an inline constant can express comes back shorter; bits nobody reads come back as zero.
    let same = bytes.as_slice() == v.bytes
        || bytes.len() < v.bytes.len()
        || decode(v.target, v.mode, &bytes).is_some_and(|r| r.inst() == inst);
    if same { Ok(()) } else { Err(format!("encodes to {}", hex(&bytes))) }
}

/// Text to the expected bytes.
pub fn check_assembly(v: &Vector) -> Result<(), String> {
    let raw = parse(v.target, v.mode, v.text).map_err(|e| format!("does not parse: {e}"))?;
    let bytes = raw.bytes();
    if bytes.as_slice() == v.bytes { Ok(()) } else { Err(format!("assembles to {}", hex(&bytes))) }
}
