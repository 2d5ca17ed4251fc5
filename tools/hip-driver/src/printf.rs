//! What kernels print: C's formats, and the buffer of kernels that print when they have ended (clang's
//! `-mprintf-kind=buffered`). Others ask the host one by one (`hostcall`).
//!
//! Source: LLVM's `AMDGPUEmitPrintf` (records) and AMD's device libraries (`__printf_alloc`: the buffer).

use crate::api::{Code, Result};
use crate::state::Device;
use barewave_emu::hip::code::hipErrorOutOfMemory;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};

/// The formats of a module by the numbers that its kernels have for them.
pub struct Formats(BTreeMap<u64, Vec<u8>>);

impl Formats {
    /// From the metadata: each is `0:0:NUMBER,FORMAT`.
    pub fn new(list: &[String]) -> Formats {
        let one = |text: &String| {
            let (number, format) = text.strip_prefix("0:0:")?.split_once(',')?;
            Some((u64::from_str_radix(number, 16).ok()?, format.as_bytes().to_vec()))
        };
        Formats(list.iter().filter_map(one).collect())
    }
}

/// Memory in which a launch leaves what it prints: bytes used, bytes there, records. What finds no room is lost.
pub struct Buffer<'d> {
    device: &'d Device,
    address: u64,
    size: u32,
}

/// Bytes before the records.
const HEADER: u32 = 8;

impl Buffer<'_> {
    /// An empty one.
    pub fn new(device: &Device, size: usize) -> Result<Buffer<'_>> {
        let size = u32::try_from(size).unwrap_or(u32::MAX).max(HEADER);
        let none = |_| Code(hipErrorOutOfMemory);
        let address = device.emu.alloc(u64::from(size)).map_err(none)?;
        let buffer = Buffer { device, address, size };
        let header = [[0; 4], size.to_le_bytes()].concat();
        device.emu.write(address, &header).map_err(none)?;
        device.emu.assume_written(address, u64::from(size));
        Ok(buffer)
    }

    /// Its device address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Prints what a launch left, in the order in which it came.
    pub fn print(&self, formats: &Formats) {
        let mut used = [0; 4];
        if self.device.emu.read(self.address, &mut used).is_err() {
            return;
        }
        let used = u32::from_le_bytes(used).min(self.size - HEADER);
        let mut bytes = vec![0; used as usize];
        if self.device.emu.read(self.address + u64::from(HEADER), &mut bytes).is_ok() {
            records(&bytes, formats, write_out);
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let _ = self.device.emu.free(self.address);
    }
}

/// Takes records apart. Each begins with a word (bit 0: to stderr, bit 1: the format goes by its number, from bit 2 on: bytes of
/// the record), then come the format, as a number or as text, and the arguments, all in units of 8 bytes.
pub fn records(mut bytes: &[u8], formats: &Formats, mut print: impl FnMut(&[u8], bool) -> bool) {
    while let Some((word, _)) = bytes.split_first_chunk() {
        let control = u32::from_le_bytes(*word);
        let size = (control >> 2) as usize;
        // A kernel that lies gets nothing printed.
        if size < word.len() || size > bytes.len() {
            return;
        }
        let (record, rest) = bytes.split_at(size);
        let words: Vec<u64> = record[word.len()..].as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
        let text = match (control & 2 != 0, words.split_first()) {
            (true, Some((number, arguments))) => formats.0.get(number).map(|f| format(f, arguments)),
            (true, None) => None,
            (false, _) => {
                let (own, used) = string(&words);
                Some(format(&own, &words[used..]))
            }
        };
        if let Some(text) = text {
            print(&text, control & 1 != 0);
        }
        bytes = rest;
    }
}

/// Through C's streams, which the program writes to as well: the order of lines is right.
#[cfg(target_os = "linux")]
pub fn write_out(text: &[u8], to_stderr: bool) -> bool {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        static stderr: *mut libc::FILE;
    }
    // SAFETY: C's own streams, which lock themselves.
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), if to_stderr { stderr } else { stdout }) == text.len() }
}

#[cfg(not(target_os = "linux"))]
pub fn write_out(text: &[u8], to_stderr: bool) -> bool {
    use std::io::Write;
    if to_stderr { std::io::stderr().write_all(text) } else { std::io::stdout().write_all(text) }.is_ok()
}

/// The bytes of a string in a message, without its zero, and the numbers it takes with it.
pub fn string(words: &[u64]) -> (Vec<u8>, usize) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take_while(|b| *b != 0).collect();
    let taken = (bytes.len() + 1).div_ceil(8).min(words.len());
    (bytes, taken)
}

/// The text of a format and its arguments: a number each, strings in as many as they need.
pub fn format(format: &[u8], words: &[u64]) -> Vec<u8> {
    let mut used = 0;
    let next = |used: &mut usize| {
        *used += 1;
        words.get(*used - 1).copied()
    };
    let mut out = Vec::new();
    let mut at = 0;
    while at < format.len() {
        if format[at] != b'%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        if format.get(at + 1) == Some(&b'%') {
            out.push(b'%');
            at += 2;
            continue;
        }
        let Some(length) = format[at + 1..].iter().position(|b| b"diouxXfFeEgGaAcspn".contains(b)) else { break };
        let conversion = format[at + 1 + length];
        let spec = &format[at + 1..at + 1 + length];
        at += length + 2;
        let mut stars = [0 as c_int; 2];
        let count = spec.iter().filter(|b| **b == b'*').count();
        if count > 2 {
            break;
        }
        let Some(()) = stars[..count].iter_mut().try_for_each(|s| next(&mut used).map(|v| *s = v as c_int)) else {
            break;
        };
        match conversion {
            b'n' => used += 1,
            b's' => {
                let (bytes, taken) = string(words.get(used..).unwrap_or_default());
                used += taken;
                convert(&mut out, spec, conversion, &stars[..count], Argument::Text(bytes));
            }
            _ => {
                let Some(value) = next(&mut used) else { break };
                convert(&mut out, spec, conversion, &stars[..count], Argument::Number(value));
            }
        }
    }
    out
}

enum Argument {
    Number(u64),
    Text(Vec<u8>),
}

/// Longest text of one conversion, bytes.
pub const MOST: usize = 1 << 16;

/// Appends one conversion, done by C's snprintf.
fn convert(out: &mut Vec<u8>, spec: &[u8], conversion: u8, stars: &[c_int], argument: Argument) {
    // Flags, width, precision and length; only the length of integers means anything, and there are 64 bits of them.
    let kept = spec
        .iter()
        .copied()
        .filter(|b| b"-+ #0123456789.*".contains(b) || b"hl".contains(b) && b"diouxX".contains(&conversion));
    let text: Vec<u8> = [b'%'].into_iter().chain(kept).chain([conversion]).collect();
    let Ok(spec) = CString::new(text) else { return };
    let mut room = vec![0u8; MOST];
    let (to, size) = (room.as_mut_ptr().cast::<c_char>(), MOST);
    macro_rules! call {
        ($value:expr) => {
            // SAFETY: the conversion takes as many stars and such an argument as it is given; the size is that of the
            // buffer.
            unsafe {
                match *stars {
                    [] => libc::snprintf(to, size, spec.as_ptr(), $value),
                    [a] => libc::snprintf(to, size, spec.as_ptr(), a, $value),
                    [a, b, ..] => libc::snprintf(to, size, spec.as_ptr(), a, b, $value),
                }
            }
        };
    }
    let n = match argument {
        Argument::Text(bytes) => {
            let Ok(bytes) = CString::new(bytes) else { return };
            call!(bytes.as_ptr())
        }
        Argument::Number(v) if b"fFeEgGaA".contains(&conversion) => call!(f64::from_bits(v)),
        Argument::Number(v) => call!(v),
    };
    out.extend(&room[..usize::try_from(n).unwrap_or(0).min(MOST - 1)]);
}
