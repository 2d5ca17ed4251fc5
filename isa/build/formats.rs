//! `formats.isa`: encodings and overlays, each for a target and its descendants.

use super::schema::FieldKind;
use super::text::{Line, Result};
use super::{Parents, chain};
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
    pub kind: FieldKind,
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

/// Reads the formats; `parents` has the targets that they may be for.
pub fn parse(lines: &[Line], parents: &Parents) -> Result<Formats> {
    let mut out = Formats::new();
    let mut key = None;
    for line in lines {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        if let [kind @ ("format" | "overlay"), name, target, size] = words[..] {
            if !parents.contains_key(target) {
                return Err(line.fail(target, "no such target"));
            }
            let mut f = Format::default();
            if kind == "format" {
                f.bytes = line.number(size)?;
            } else {
                f.code = Some(line.hex(size)?);
            }
            let k = (name.to_string(), target.to_string());
            if out.insert(k.clone(), f).is_some() {
                return Err(line.fail(name, "declared twice for this target"));
            }
            key = Some(k);
            continue;
        }
        let format = key.as_ref().and_then(|k| out.get_mut(k));
        fields(line, &words, format.ok_or_else(|| line.fail(words[0], "before any format"))?)?;
    }
    Ok(out)
}

/// Reads `bits=pattern`, `op BITS` and `name BITS kind` of a format.
fn fields(line: &Line, words: &[&str], format: &mut Format) -> Result<()> {
    let bits = |word: &str| pieces(word).ok_or_else(|| line.fail(word, "expected bits like 31:26"));
    let mut words = words.iter().copied();
    while let Some(name) = words.next() {
        if let Some((place, value)) = name.split_once('=') {
            let [piece] = bits(place)?[..] else { return Err(line.fail(place, "expected one run of bits")) };
            format.fixed.push((piece, line.hex(value)?));
            continue;
        }
        let place = bits(words.next().ok_or_else(|| line.fail(name, "expected bits behind"))?)?;
        if name == "op" {
            format.op = place;
            continue;
        }
        let word = words.next().ok_or_else(|| line.fail(name, "expected a kind behind the bits"))?;
        let marks = [("?1", Unused::Ones), ("!", Unused::MustOnes), ("?", Unused::Any)];
        let (kind, unused) =
            marks.iter().find_map(|(m, u)| Some((word.strip_suffix(m)?, *u))).unwrap_or((word, Unused::Zero));
        let kind = FieldKind::of(kind).ok_or_else(|| line.fail(word, "no such kind of field"))?;
        if format.fields.insert(name.to_string(), Field { pieces: place, kind, unused }).is_some() {
            return Err(line.fail(name, "a second field of this name"));
        }
    }
    Ok(())
}

/// The format that holds for a target: its own or the nearest ancestor's.
pub fn find<'a>(formats: &'a Formats, parents: &Parents, name: &str, target: &str) -> Option<&'a Format> {
    chain(parents, target).find_map(|t| formats.get(&(name.to_string(), t.to_string())))
}
