//! Code that is handed over as a bare pointer: ELF files, whose size stands in their headers, and clang's offload
//! bundles of several of them.

use crate::api::{Code, Result, err, log};
use crate::state::Device;
use barewave_emu::codeobj::{ElfFile, Entry, TargetId, code_objects};
use barewave_emu::hip::code::*;
use std::borrow::Cow;
use std::ffi::c_void;

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";

/// Reads a number at an offset from a pointer.
///
/// # Safety
/// The bytes are there.
unsafe fn number<const N: usize>(image: *const u8, at: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(image.add(at), bytes.as_mut_ptr(), N) };
    u64::from_le_bytes(bytes)
}

/// Size of the ELF file at a pointer, by its headers: the end of the last thing they name.
///
/// # Safety
/// An ELF file is there.
unsafe fn elf_size(image: *const u8) -> u64 {
    // SAFETY: the caller's promise covers header and tables.
    unsafe {
        let (ph, sh) = (number::<8>(image, 32), number::<8>(image, 40));
        let (ph_size, ph_count) = (number::<2>(image, 54), number::<2>(image, 56));
        let (sh_size, sh_count) = (number::<2>(image, 58), number::<2>(image, 60));
        let mut end = 64.max(ph + ph_size * ph_count).max(sh + sh_size * sh_count);
        for i in 0..ph_count {
            let at = image.add((ph + i * ph_size) as usize);
            end = end.max(number::<8>(at, 8).saturating_add(number::<8>(at, 32)));
        }
        const NOBITS: u64 = 8;
        for i in 0..sh_count {
            let at = image.add((sh + i * sh_size) as usize);
            if number::<4>(at, 4) != NOBITS {
                end = end.max(number::<8>(at, 24).saturating_add(number::<8>(at, 32)));
            }
        }
        end
    }
}

/// Size of the bundle at a pointer: the end of its last entry.
///
/// # Safety
/// A whole bundle is there.
unsafe fn bundle_size(image: *const u8) -> u64 {
    // SAFETY: the caller's promise covers the table of entries.
    unsafe {
        let (mut at, mut end) = (BUNDLE.len() + 8, 0);
        for _ in 0..number::<8>(image, BUNDLE.len()) {
            end = end.max(number::<8>(image, at).saturating_add(number::<8>(image, at + 8)));
            at += 24 + number::<8>(image, at + 16) as usize;
        }
        end.max(at as u64)
    }
}

/// Size of the compressed bundle at a pointer; `None` for the oldest version, which does not tell.
///
/// # Safety
/// A whole bundle is there.
unsafe fn compressed_size(image: *const u8) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        match number::<2>(image, 4) {
            2 => Some(number::<4>(image, 8)),
            3 => Some(number::<8>(image, 8)),
            _ => None,
        }
    }
}

/// The ELF file for a device, out of a file, bundle or compressed bundle.
pub fn image_in<'a>(file: &'a [u8], device: &Device) -> Result<Cow<'a, [u8]>> {
    let refuse = |why: &dyn std::fmt::Display| {
        log(&why.to_string());
        Code(hipErrorInvalidImage)
    };
    let mut list = code_objects(file).map_err(|e| refuse(&e))?;
    let fits = |e: &Entry| {
        // A file that is no bundle is checked when it is loaded.
        e.target().is_empty() || TargetId::parse(e.target()).is_ok_and(|id| id.mismatch(&device.id).is_none())
    };
    match list.iter().position(fits) {
        Some(i) => Ok(list.swap_remove(i).data),
        None => {
            let names: Vec<&str> = list.iter().map(Entry::target).collect();
            log(&format!("no code for {} in the offload bundle, which has {}", device.id, names.join(", ")));
            err(hipErrorNoBinaryForGpu)
        }
    }
}

/// The ELF file for a device, out of what a pointer leads to.
///
/// # Safety
/// A whole ELF file or bundle is there, and stays while the result is used.
pub unsafe fn image_for<'a>(image: *const c_void, device: &Device) -> Result<Cow<'a, [u8]>> {
    let start = image.cast::<u8>();
    // SAFETY: the caller's promise; every image is longer than its magic number.
    unsafe {
        let magic = |n| std::slice::from_raw_parts(start, n);
        let size = if magic(4) == b"\x7fELF" {
            Some(elf_size(start))
        } else if magic(4) == COMPRESSED {
            compressed_size(start)
        } else if magic(4) == &BUNDLE[..4] && magic(BUNDLE.len()) == BUNDLE {
            Some(bundle_size(start))
        } else {
            None
        };
        let Some(size) = size else {
            log("an image that is neither ELF nor an offload bundle of a known version");
            return err(hipErrorInvalidImage);
        };
        image_in(std::slice::from_raw_parts(start, size as usize), device)
    }
}

/// Checks that a code object is for a device.
pub fn check_target(elf: &[u8], device: &Device) -> Result {
    let file = ElfFile::parse(elf).map_err(|e| {
        log(&e.to_string());
        Code(hipErrorInvalidImage)
    })?;
    if let Some(why) = file.target_id().mismatch(&device.id) {
        log(&why.to_string());
        return err(hipErrorNoBinaryForGpu);
    }
    Ok(())
}
