//! What a row says behind `;`: the class of its meaning and what belongs to it.
//!
//! `int`, `float`, .. `fork` and `lds` name a member of an enum that is made of the rows: `; int` of `v_add_u32` is
//! `Int::AddU32`, `; int mov_b32` is a meaning that several rows share. `load`, `store`, `atomic` and their like describe
//! a memory access, `mfma` and `wmma` a product, `compare`, `scompare` a relation, `scaled` a conversion.

use super::schema::{
    Address, Atomic, Comparison, Elem, Memory, Number, Part, Product, Scaled, Space, Transfer, effect,
};
use super::text::{Line, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Classes whose members are enums made of the rows: word, name in Rust.
const ENUMS: &[(&str, &str)] = &[
    ("int", "Int"),
    ("float", "Float"),
    ("convert", "Convert"),
    ("packed", "Packed"),
    ("float8", "Float8"),
    ("cross", "Cross"),
    ("salu", "Salu"),
    ("flow", "Flow"),
    ("sync", "Sync"),
    ("fork", "Fork"),
    ("lds", "Lds"),
];

/// What an operation does.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// A member of one of the [`ENUMS`], by position.
    Member(usize, String),
    Compare(Comparison, Number, bool),
    Classify(Number, bool),
    ScalarCompare(Comparison, Number),
    Scaled(Scaled),
    Memory(Memory),
    Matrix(Product),
    Graphics,
    Later,
}

/// Meaning and effects of an operation.
#[derive(Clone, Debug)]
pub struct Does {
    pub meaning: Meaning,
    pub effects: u8,
}

/// `add_co_u32` becomes `AddCoU32`.
fn camel(name: &str) -> String {
    let word = |w: &str| w[..1].to_ascii_uppercase() + &w[1..];
    name.split('_').filter(|w| !w.is_empty()).map(word).collect()
}

/// Words of a meaning that are still to be read.
struct Words<'a> {
    line: &'a Line,
    list: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self, what: &str) -> Result<&'a str> {
        let word = self.list.get(self.at).copied();
        self.at += 1;
        word.ok_or_else(|| self.line.fail(self.list[0], &format!("expected {what} behind")))
    }
    fn of<T>(&mut self, what: &str, find: fn(&str) -> Option<T>) -> Result<T> {
        let word = self.next(what)?;
        find(word).ok_or_else(|| self.line.fail(word, &format!("expected {what}")))
    }
    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let word = self.next(what)?;
        self.line.number(word)
    }
    /// Takes the word if it stands anywhere among the rest.
    fn has(&mut self, word: &str) -> bool {
        let found = self.list.iter().skip(self.at).position(|w| *w == word);
        if let Some(i) = found {
            self.list.remove(self.at + i);
        }
        found.is_some()
    }
    /// The word's number, if the word is there.
    fn valued(&mut self, word: &str) -> Result<Option<u16>> {
        let Some(i) = self.list.iter().skip(self.at).position(|w| *w == word) else { return Ok(None) };
        let at = self.at + i;
        let value = *self.list.get(at + 1).ok_or_else(|| self.line.fail(self.list[at], "expected a number behind"))?;
        self.list.drain(at..at + 2);
        self.line.number(value).map(Some)
    }
}

/// Reads what stands behind `;`. `formats` are the encodings of the row, `wide_base` says that a scalar address is a
/// buffer resource.
pub fn parse(line: &Line, text: &str, op: &str, formats: &[&str], wide_base: bool) -> Result<Does> {
    let mut w = Words { line, list: text.split_whitespace().collect(), at: 0 };
    if w.list.is_empty() {
        return Err(line.fail(text, "expected what the operation does behind `;`"));
    }
    let mut effects = 0;
    for &(word, bit) in effect::NAMES {
        effects |= if w.has(word) { bit } else { 0 };
    }
    let class = w.next("a class")?;
    let meaning = match class {
        "compare" | "comparex" if w.list.get(w.at) == Some(&"class") => {
            w.at += 1;
            Meaning::Classify(w.of("a type", Number::of)?, class == "comparex")
        }
        "compare" | "comparex" => {
            Meaning::Compare(w.of("a relation", Comparison::of)?, w.of("a type", Number::of)?, class == "comparex")
        }
        "scompare" => Meaning::ScalarCompare(w.of("a relation", Comparison::of)?, w.of("a type", Number::of)?),
        "scaled" => Meaning::Scaled(scaled(&mut w)?),
        "mfma" | "wmma" => Meaning::Matrix(product(&mut w, class == "mfma")?),
        "graphics" => Meaning::Graphics,
        "later" => Meaning::Later,
        _ => match ENUMS.iter().position(|e| e.0 == class) {
            Some(i) => {
                let name = match w.list.get(w.at) {
                    Some(name) => name,
                    None => stem(op),
                };
                w.at += 1;
                Meaning::Member(i, camel(name))
            }
            None => Meaning::Memory(memory(&mut w, class, space(line, op, formats, wide_base))?),
        },
    };
    match w.list.get(w.at) {
        Some(word) => Err(line.fail(word, "does not belong to the meaning")),
        None => Ok(Does { meaning, effects }),
    }
}

/// The name without the prefix that says which unit executes it.
fn stem(op: &str) -> &str {
    ["v_", "s_", "ds_", "buffer_", "global_"].iter().find_map(|p| op.strip_prefix(p)).unwrap_or(op)
}

fn scaled(w: &mut Words) -> Result<Scaled> {
    let (two, stochastic) = (w.has("two"), w.has("stochastic"));
    let (to, from) = (w.of("a format", Elem::of)?, w.of("a format", Elem::of)?);
    Ok(Scaled { to, from, count: w.number("how many numbers")?, two, stochastic })
}

fn product(w: &mut Words, mfma: bool) -> Result<Product> {
    let sparse = w.has("sparse");
    let blocks = w.valued("blocks")?.unwrap_or(1);
    let size = w.next("sizes like 16x16x4")?;
    let sizes = size.split('x').map(|n| w.line.number(n)).collect::<Result<Vec<u8>>>()?;
    let [m, n, k] = sizes[..] else { return Err(w.line.fail(size, "expected rows, columns and depth like 16x16x4")) };
    let d = w.of("a type", Elem::of)?;
    let mut types = Vec::new();
    let (mut formats, mut signs) = (false, false);
    while let Some(word) = w.list.get(w.at).copied() {
        w.at += 1;
        formats |= word == "f8f6f4";
        signs |= word.starts_with("iu");
        let plain = match word {
            "f8f6f4" => "fp8",
            "iu8" => "i8",
            "iu4" => "i4",
            other => other,
        };
        types.push(Elem::of(plain).ok_or_else(|| w.line.fail(word, "expected an element type"))?);
    }
    let (a, b) = match types[..] {
        [a] => (a, a),
        [a, b] => (a, b),
        _ => return Err(w.line.fail(size, "expected one or two types of sources")),
    };
    let blocks = u8::try_from(blocks).map_err(|_| w.line.fail("blocks", "too many"))?;
    Ok(Product { mfma, m, n, k, blocks, d, a, b, sparse, formats, signs })
}

/// The memory that the encodings of a row reach.
fn space(line: &Line, op: &str, formats: &[&str], wide_base: bool) -> Result<Space> {
    match formats.first().copied() {
        Some("SMEM") if wide_base => Ok(Space::ScalarBuffer),
        Some("SMEM") => Ok(Space::Scalar),
        Some("GLOBAL") => Ok(Space::Global),
        Some("FLAT") => Ok(Space::Flat),
        Some("SCRATCH") => Ok(Space::Scratch),
        Some("MUBUF") => Ok(Space::Buffer),
        Some("MTBUF") => Ok(Space::TypedBuffer),
        Some("DS") => Ok(Space::Lds),
        _ => Err(line.fail(op, "no such class of meaning, and no memory encoding")),
    }
}

fn memory(w: &mut Words, class: &str, space: Result<Space>) -> Result<Memory> {
    let (bits, pair) = (w.valued("bits")?, w.valued("pair")?);
    let components = w.valued("components")?.unwrap_or(0);
    let (low, high) = (w.has("low"), w.has("high"));
    let (signed, returns, swapped, later) = (w.has("signed"), w.has("return"), w.has("swapped"), w.has("later"));
    let (thread, units) = (w.has("threadid"), w.has("units64"));
    let transfer = match class {
        "load" => Transfer::Load,
        "store" => Transfer::Store,
        "loadlds" => Transfer::LoadLds,
        "storelds" => Transfer::StoreLds,
        "loadblock" => Transfer::LoadBlock,
        "storeblock" => Transfer::StoreBlock,
        "exchange" => Transfer::Exchange,
        "loadtr" => {
            let bits = bits.and_then(|b| u8::try_from(b).ok());
            Transfer::LoadTransposed(bits.ok_or_else(|| w.line.fail(class, "expected `bits` of an element"))?)
        }
        "atomic" => Transfer::Atomic(w.of("a read-modify-write", Atomic::of)?),
        "combine" => Transfer::Combine(w.of("a read-modify-write", Atomic::of)?),
        _ => return Err(w.line.fail(class, "no such class of meaning")),
    };
    let address = match (pair, thread, units) {
        (Some(unit), false, false) => Address::Pair(unit),
        (None, true, false) => Address::ThreadId,
        (None, false, true) => Address::Units64,
        (None, false, false) => Address::Plain,
        _ => return Err(w.line.fail(class, "more than one form of address")),
    };
    let part = match (low, high) {
        (false, false) => Part::Whole,
        (true, false) => Part::Low,
        (false, true) => Part::High,
        _ => return Err(w.line.fail(class, "low or high")),
    };
    let components = u8::try_from(components).ok().filter(|c| *c <= 4);
    let components = components.ok_or_else(|| w.line.fail("components", "at most 4"))?;
    let bytes = w.number("bytes")?;
    Ok(Memory { transfer, space: space?, bytes, signed, part, address, components, returns, swapped, modelled: !later })
}

fn memory_code(m: &Memory) -> String {
    let transfer = match m.transfer {
        Transfer::Atomic(a) => format!("Atomic({})", a.code()),
        Transfer::Combine(a) => format!("Combine({})", a.code()),
        other => format!("{other:?}"),
    };
    format!(
        "Action::Memory(Memory {{ transfer: Transfer::{transfer}, space: Space::{:?}, bytes: {}, signed: {}, part: Part::{:?}, \
         address: Address::{:?}, components: {}, returns: {}, swapped: {}, modelled: {} }})",
        m.space, m.bytes, m.signed, m.part, m.address, m.components, m.returns, m.swapped, m.modelled
    )
}

fn product_code(p: &Product) -> String {
    format!(
        "Action::Matrix(Product {{ mfma: {}, m: {}, n: {}, k: {}, blocks: {}, d: {}, a: {}, b: {}, sparse: {}, formats: {}, \
         signs: {} }})",
        p.mfma,
        p.m,
        p.n,
        p.k,
        p.blocks,
        p.d.code(),
        p.a.code(),
        p.b.code(),
        p.sparse,
        p.formats,
        p.signs
    )
}

fn code(m: &Meaning) -> String {
    match m {
        Meaning::Member(class, name) => format!("Action::{0}({0}::{name})", ENUMS[*class].1),
        Meaning::Compare(r, n, exec) => {
            format!("Action::Compare {{ relation: {}, number: {}, exec: {exec} }}", r.code(), n.code())
        }
        Meaning::Classify(n, exec) => format!("Action::Classify {{ number: {}, exec: {exec} }}", n.code()),
        Meaning::ScalarCompare(r, n) => {
            format!("Action::ScalarCompare {{ relation: {}, number: {} }}", r.code(), n.code())
        }
        Meaning::Scaled(s) => format!(
            "Action::Scaled(Scaled {{ from: {}, to: {}, count: {}, two: {}, stochastic: {} }})",
            s.from.code(),
            s.to.code(),
            s.count,
            s.two,
            s.stochastic
        ),
        Meaning::Memory(m) => memory_code(m),
        Meaning::Matrix(p) => product_code(p),
        Meaning::Graphics => "Action::Graphics".to_string(),
        Meaning::Later => "Action::Later".to_string(),
    }
}

/// Writes the enums, `OP_ACTIONS` and `OP_EFFECTS`. An operation without a meaning is a dual-issue pair of two others.
pub fn emit(ops: &[String], does: &BTreeMap<String, Does>, out: &mut String) {
    for (i, (_, name)) in ENUMS.iter().enumerate() {
        let members: BTreeSet<&str> = does
            .values()
            .filter_map(|d| match &d.meaning {
                Meaning::Member(class, member) if *class == i => Some(member.as_str()),
                _ => None,
            })
            .collect();
        let list: Vec<&str> = members.into_iter().collect();
        let _ = writeln!(
            out,
            "/// Meanings of rows of the class.\n#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]\npub enum {name} {{ {} }}",
            list.join(", ")
        );
    }
    let half = |name: &str| match ops.binary_search_by(|o| o.as_str().cmp(name)) {
        Ok(i) => format!("Some(Op({i}))"),
        Err(_) => "None".to_string(),
    };
    let _ = writeln!(out, "pub(crate) static OP_ACTIONS: [Action; {}] = [", ops.len());
    for op in ops {
        let text = match (does.get(op), op.split_once(" :: ")) {
            (Some(d), _) => code(&d.meaning),
            (None, Some((x, y))) => format!("Action::Pair({}, {})", half(x), half(y)),
            // `main` has checked that each row says it
            (None, None) => unreachable!("{op} has no meaning"),
        };
        let _ = writeln!(out, "{text},");
    }
    let effects: Vec<u8> = ops.iter().map(|op| does.get(op).map_or(0, |d| d.effects)).collect();
    let _ = writeln!(out, "];\npub(crate) static OP_EFFECTS: &[u8] = &{effects:?};");
}
