//! `formats.isa`: encodings and overlays, each for a target and its descendants.

use crate::text::{Fail, Result};
use std::collections::BTreeMap;

/// A run of instruction bits, or a hole in the value when `len` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    pub lo: u8,
    pub len: u8,
}

/// The bits of a field.
pub fn all_bits(pieces: &[Piece]) -> u128 {
    pieces.iter().map(|p| ((1u128 << p.len) - 1) << p.lo).fold(0, |a, b| a | b)
}

/// A field's pieces as (first bit, bits, shift in the value); holes leave room in the value.
pub fn segments(pieces: &[Piece]) -> Vec<(u8, u8, u8)> {
    let mut shift = 0;
    let mut out = Vec::new();
    for p in pieces {
        if p.len > 0 {
            out.push((p.lo, p.len, shift));
        }
        shift += p.len.max(1);
    }
    out
}

/// What bits of a field that an instruction does not use must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    Zero,
    Any,
    Ones,
    /// Ones, and other values are no instruction.
    MustOnes,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub pieces: Vec<Piece>,
    pub kind: String,
    pub unused: Unused,
}

#[derive(Clone, Debug, Default)]
pub struct Format {
    pub bytes: u8,
    /// Code that an overlay puts in the place of source 0.
    pub code: Option<u64>,
    pub fixed: Vec<(Piece, u64)>,
    pub op: Vec<Piece>,
    pub fields: BTreeMap<String, Field>,
}

/// Formats by name and target.
pub type Formats = BTreeMap<(String, String), Format>;

fn pieces(word: &str) -> Option<Vec<Piece>> {
    word.split(',')
        .map(|p| match p.split_once(':') {
            _ if p == "-" => Some(Piece { lo: 0, len: 0 }),
            Some((hi, lo)) => {
                let (hi, lo): (u8, u8) = (hi.parse().ok()?, lo.parse().ok()?);
                Some(Piece { lo, len: hi.checked_sub(lo)? + 1 })
            }
            None => Some(Piece { lo: p.parse().ok()?, len: 1 }),
        })
        .collect()
}

pub fn parse(file: &str, text: &str) -> Result<Formats> {
    let mut out = Formats::new();
    let mut key = None;
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new(file, n + 1, word, what);
        let line = line.split('#').next().unwrap_or("");
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [kind @ ("format" | "overlay"), name, target, size] = words[..] {
            let mut f = Format::default();
            if kind == "format" {
                f.bytes = size.parse().map_err(|_| at(size, "expected bytes"))?;
            } else {
                f.code = Some(u64::from_str_radix(size, 16).map_err(|_| at(size, "expected a source code in hex"))?);
            }
            let k = (name.to_string(), target.to_string());
            if out.insert(k.clone(), f).is_some() {
                return Err(at(name, "declared twice for this target"));
            }
            key = Some(k);
            continue;
        }
        let mut i = 0;
        while i < words.len() {
            let format = key.as_ref().and_then(|k| out.get_mut(k)).ok_or_else(|| at(words[i], "before any format"))?;
            if let Some((bits, value)) = words[i].split_once('=') {
                let p = pieces(bits).ok_or_else(|| at(bits, "expected bits like 31:26"))?;
                let v = u64::from_str_radix(value, 16).map_err(|_| at(value, "expected hex"))?;
                format.fixed.push((p[0], v));
                i += 1;
                continue;
            }
            let bits = words
                .get(i + 1)
                .and_then(|w| pieces(w))
                .ok_or_else(|| at(words[i], "expected bits after the field's name"))?;
            if words[i] == "op" {
                format.op = bits;
                i += 2;
                continue;
            }
            let kind = words.get(i + 2).ok_or_else(|| at(words[i], "expected a kind after the bits"))?;
            let (kind, unused) = if let Some(k) = kind.strip_suffix("?1") {
                (k, Unused::Ones)
            } else if let Some(k) = kind.strip_suffix('!') {
                (k, Unused::MustOnes)
            } else if let Some(k) = kind.strip_suffix('?') {
                (k, Unused::Any)
            } else {
                (*kind, Unused::Zero)
            };
            format.fields.insert(words[i].to_string(), Field { pieces: bits, kind: kind.to_string(), unused });
            i += 3;
        }
    }
    Ok(out)
}

/// The format that holds for a target: its own or the nearest ancestor's.
pub fn find<'a>(
    formats: &'a Formats,
    parents: &BTreeMap<String, Option<String>>,
    name: &str,
    target: &str,
) -> Option<&'a Format> {
    let mut t = Some(target.to_string());
    while let Some(here) = t {
        if let Some(f) = formats.get(&(name.to_string(), here.clone())) {
            return Some(f);
        }
        t = parents.get(&here).cloned().flatten();
    }
    None
}
