//! Clang's offload bundles: several code objects, and host code, in one file.
//!
//! A bundle starts with a magic word, a count and, for each entry, offset, size and id
//! (`hipv4-amdgcn-amd-amdhsa--gfx942`). It may be compressed as a whole (magic `CCOB`, zlib or Zstandard), and an
//! executable carries bundles one after the other in its section `.hip_fatbin`. Source: LLVM's documentation of
//! clang-offload-bundler.

use super::Error;
use super::relocatable::{is_relocatable, link_relocatable};
use byteorder::{ByteOrder, LE};
use std::borrow::Cow;
use std::io::Read;

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
/// Most bytes that a compressed bundle may unpack to.
const MAX_UNPACKED: u64 = 1 << 32;
/// Most entries of a bundle.
const MAX_ENTRIES: u64 = 1 << 12;

/// A file in a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Id: kind of offloading, target triple and processor; empty when the file is no bundle.
    pub id: String,
    /// Contents.
    pub data: Cow<'a, [u8]>,
}

impl Entry<'_> {
    /// Processor and features of the entry: `gfx90a:xnack-`; empty for host code.
    pub fn target(&self) -> &str {
        match self.id.find("amdgcn-") {
            Some(at) => self.id[at..].split_once("--").map_or("", |x| x.1),
            None => "",
        }
    }
}

/// The code objects of a file: the file itself, those of a bundle, of a compressed one, or of an executable's
/// `.hip_fatbin`. Host code and empty entries are left out; relocatable objects are linked.
pub fn code_objects(bytes: &[u8]) -> Result<Vec<Entry<'_>>, Error> {
    let mut list = entries(bytes)?;
    for e in list.iter_mut().filter(|e| is_relocatable(&e.data)) {
        e.data = Cow::Owned(link_relocatable(&e.data)?);
    }
    Ok(list)
}

/// The code objects of a file that are for a processor, or all when none is named; a file that is no bundle is taken as it
/// is. Fails naming what the bundle has.
pub fn code_objects_for<'a>(bytes: &'a [u8], processor: Option<&str>) -> Result<Vec<Entry<'a>>, Error> {
    let mut list = code_objects(bytes)?;
    let has: Vec<String> = list.iter().map(|e| e.target().to_owned()).collect();
    list.retain(|e| e.id.is_empty() || processor.is_none_or(|p| e.target().split(':').next() == Some(p)));
    match processor {
        _ if !list.is_empty() => Ok(list),
        Some(p) if !has.is_empty() => {
            Err(Error::NotAmdgpu(format!("the offload bundle has no code for {p}; it has: {}", has.join(", "))))
        }
        _ => Err(Error::NotAmdgpu("it is an offload bundle without AMDGPU code".into())),
    }
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, Error> {
    if bytes.starts_with(MAGIC) || bytes.starts_with(COMPRESSED) {
        let mut list = Vec::new();
        bundles(bytes, &mut list)?;
        list.retain(|e| e.data.starts_with(b"\x7fELF") && !e.target().is_empty());
        return Ok(list);
    }
    if bytes.starts_with(b"\x7fELF")
        && let Some(fat) = fatbin(bytes)
    {
        let mut list = Vec::new();
        bundles(fat, &mut list)?;
        list.retain(|e| e.data.starts_with(b"\x7fELF") && !e.target().is_empty());
        return Ok(list);
    }
    Ok(vec![Entry { id: String::new(), data: Cow::Borrowed(bytes) }])
}

/// Contents of the section `.hip_fatbin` of a host program.
fn fatbin(bytes: &[u8]) -> Option<&[u8]> {
    let elf = goblin::elf::Elf::parse(bytes).ok()?;
    let h = elf.section_headers.iter().find(|h| elf.shdr_strtab.get_at(h.sh_name) == Some(".hip_fatbin"))?;
    let start = usize::try_from(h.sh_offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(h.sh_size).ok()?)?)
}

fn bad(what: impl Into<String>, at: usize) -> Error {
    Error::malformed(what, format!("offset {at:#x} of the offload bundle"))
}

/// Reads bundles that follow each other with zeros in between.
fn bundles<'a>(bytes: &'a [u8], list: &mut Vec<Entry<'a>>) -> Result<(), Error> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(MAGIC) {
            at += plain(rest, list)?;
        } else if rest.starts_with(COMPRESSED) {
            let (unpacked, len) = unpack(rest)?;
            let mut inner = Vec::new();
            plain(&unpacked, &mut inner)?;
            list.extend(inner.into_iter().map(|e| Entry { id: e.id, data: Cow::Owned(e.data.into_owned()) }));
            at += len;
        } else {
            match rest.iter().position(|&b| b != 0) {
                Some(0) => return Err(bad("neither a bundle nor padding", at)),
                Some(zeros) => at += zeros,
                None => break,
            }
        }
    }
    Ok(())
}

/// Reads one bundle and returns its length.
fn plain<'a>(bytes: &'a [u8], list: &mut Vec<Entry<'a>>) -> Result<usize, Error> {
    let word = |at: usize| bytes.get(at..at + 8).map(LE::read_u64).ok_or_else(|| bad("the bundle ends early", at));
    if !bytes.starts_with(MAGIC) {
        return Err(bad("no bundle inside a compressed one", 0));
    }
    let mut at = MAGIC.len();
    let count = word(at)?;
    at += 8;
    if count > MAX_ENTRIES {
        return Err(bad(format!("{count} entries"), at));
    }
    let mut end = at;
    for _ in 0..count {
        let (offset, size, id) = (word(at)?, word(at + 8)?, word(at + 16)?);
        let id_end = usize::try_from(id).ok().and_then(|n| (at + 24).checked_add(n));
        let id = id_end.and_then(|e| bytes.get(at + 24..e)).ok_or_else(|| bad("an id runs past the end", at))?;
        let data = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
        let data = data.and_then(|(o, s)| bytes.get(o..o.checked_add(s)?));
        let data = data.ok_or_else(|| bad("an entry runs past the end", at))?;
        list.push(Entry { id: String::from_utf8_lossy(id).into_owned(), data: Cow::Borrowed(data) });
        at += 24 + id.len();
        end = end.max(at).max(offset as usize + data.len());
    }
    Ok(end)
}

/// Unpacks a compressed bundle; the second number is its length.
fn unpack(bytes: &[u8]) -> Result<(Vec<u8>, usize), Error> {
    let short = || bad("the compressed bundle ends early", 0);
    let half = |at: usize| bytes.get(at..at + 2).map(LE::read_u16).ok_or_else(short);
    let word = |at: usize| bytes.get(at..at + 4).map(|b| u64::from(LE::read_u32(b))).ok_or_else(short);
    let long = |at: usize| bytes.get(at..at + 8).map(LE::read_u64).ok_or_else(short);
    let (version, method) = (half(4)?, half(6)?);
    // Version 1 does not tell its length: it reaches to the end. A hash of the contents ends each header.
    let (len, unpacked, header) = match version {
        1 => (bytes.len() as u64, word(8)?, 20),
        2 => (word(8)?, word(12)?, 24),
        3 => (long(8)?, long(16)?, 32),
        v => return Err(bad(format!("version {v} of compressed bundles is unknown"), 4)),
    };
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let packed = bytes.get(header..len).ok_or_else(short)?;
    if unpacked > MAX_UNPACKED {
        return Err(bad(format!("it unpacks to {unpacked} bytes"), 8));
    }
    let mut out = Vec::new();
    let read = match method {
        0 => flate2::read::ZlibDecoder::new(packed).take(unpacked).read_to_end(&mut out).map_err(|e| e.to_string()),
        1 => ruzstd::decoding::StreamingDecoder::new(packed)
            .map_err(|e| e.to_string())
            .and_then(|d| d.take(unpacked).read_to_end(&mut out).map_err(|e| e.to_string())),
        m => return Err(bad(format!("compression method {m} is unknown"), 6)),
    };
    read.map_err(|e| bad(format!("unpacking failed: {e}"), header))?;
    if out.len() as u64 != unpacked {
        return Err(bad(format!("it unpacks to {} bytes, not {unpacked}", out.len()), header));
    }
    Ok((out, len))
}
