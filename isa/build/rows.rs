//! Instruction rows: one line per operation, with deltas along the inheritance of targets.
//!
//! `name  dst .. <- src .. : word ..  ; meaning  | target [:mnemonic] [(signature)] [+word] [-word] ENC=op .. | target - | ...`

use crate::meaning::{self, Does};
use crate::text::{Fail, Line, Result};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Operands and words of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    pub dsts: Vec<String>,
    pub srcs: Vec<String>,
    pub words: Vec<String>,
}

/// An operation as one target has it.
#[derive(Clone, Debug)]
pub struct Row {
    pub mnemonic: String,
    pub sig: Signature,
    /// Encodings with their opcodes; overlays and derived opcodes have none.
    pub encodings: Vec<(String, Option<u64>)>,
    pub line: Rc<Line>,
}

impl Row {
    /// A mistake in the row.
    pub fn fail(&self, word: &str, what: &str) -> Fail {
        self.line.fail(word, what)
    }
}

/// Target -> row (`None`: removed there).
pub type Targets = BTreeMap<String, Option<Row>>;

/// What the files with rows say.
#[derive(Default)]
pub struct Rows {
    /// By operation.
    pub targets: BTreeMap<String, Targets>,
    /// What each operation does.
    pub does: BTreeMap<String, Does>,
}

/// Words that a row may carry; README.md beside the tables says what each means.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    // modifiers
    "clamp", "omod", "opsel", "opselhi", "neglo", "neghi", "pk", "high", "bytesel", "bytesel2", "bitop3", "scalesel",
    "cbsz", "abid", "blgp", "indexkey8bit", "indexkey16bit", "indexkey32bit", "matrixafmt", "matrixbfmt", "scales",
    "matrixascale", "matrixbscale", "matrixascalefmt", "matrixbscalefmt", "matrixareuse", "matrixbreuse",
    "offset", "offset2", "swz", "gds", "gdsonly", "cpol", "tfe", "lds", "ldsonly", "d16", "a16",
    // what the operation does with them
    "atomic", "cmpswap", "t16", "t16only", "t16signs", "f8f6f4", "permctl", "packedsel", "opsel2", "opsel4", "hidesel",
    "splat", "nosuffix", "nodstsel", "nooffset", "noglc", "nosc1", "anypolicy", "imm5",
    // rules of the assembler
    "nodirect", "nullonly", "laneselect", "onebus", "unaligned", "wholedst", "dppvgpr", "nosext", "sextregs", "msaa",
];

/// Words with a value.
const VALUED: &[&str] = &["addr", "rays", "w64", "free", "zero", "ones", "bare"];

fn is_word(word: &str) -> bool {
    let register = word.strip_prefix(['<', '>']).is_some_and(|r| matches!(r, "scc" | "vcc" | "exec" | "m0" | "mode"));
    register || WORDS.contains(&word) || word.split_once('=').is_some_and(|(key, _)| VALUED.contains(&key))
}

fn signature(text: &str) -> Signature {
    let (operands, words) = text.split_once(" :").unwrap_or((text, ""));
    let (dsts, srcs) = operands.split_once("<-").unwrap_or((operands, ""));
    let list = |s: &str| s.split_whitespace().map(str::to_string).collect();
    Signature { dsts: list(dsts), srcs: list(srcs), words: list(words) }
}

/// Adds the rows of a file. `parents` names the parent of each target that tables may mention.
pub fn parse(file: &str, text: &str, parents: &BTreeMap<String, Option<String>>, out: &mut Rows) -> Result<()> {
    for line in Line::all(file, text) {
        let line = Rc::new(line);
        let mut parts = line.text.split('|');
        let head = parts.next().unwrap_or("");
        let (head, does) = head
            .split_once(';')
            .ok_or_else(|| line.fail(head.trim(), "expected `; meaning` behind operands and words"))?;
        let (name, rest) =
            head.trim().split_once(' ').ok_or_else(|| line.fail(head.trim(), "expected a signature after the name"))?;
        if !rest.contains("<-") {
            return Err(line.fail(rest.trim(), "expected `destinations <- sources`"));
        }
        let base = Row { mnemonic: name.to_string(), sig: signature(rest), encodings: Vec::new(), line: line.clone() };
        let mut targets = Targets::new();
        for segment in parts {
            column(&line, segment.trim(), &base, parents, &mut targets)?;
        }
        let formats: Vec<&str> =
            targets.values().flatten().flat_map(|r| &r.encodings).map(|(format, _)| format.as_str()).collect();
        let wide_base = base.sig.srcs.iter().any(|s| s == "sbase:b128");
        out.does.insert(name.to_string(), meaning::parse(&line, does, name, &formats, wide_base)?);
        if out.targets.insert(name.to_string(), targets).is_some() {
            return Err(line.fail(name, "a second row for this operation"));
        }
    }
    Ok(())
}

/// Reads what a row says of one target.
fn column(
    line: &Rc<Line>,
    segment: &str,
    base: &Row,
    parents: &BTreeMap<String, Option<String>>,
    targets: &mut Targets,
) -> Result<()> {
    let (target, mut rest) = segment.split_once(' ').unwrap_or((segment, ""));
    if !parents.contains_key(target) {
        return Err(line.fail(target, "no such target"));
    }
    if rest.trim() == "-" {
        targets.insert(target.to_string(), None);
        return Ok(());
    }
    let mut row = inherited(targets, parents, target).unwrap_or_else(|| base.clone());
    if let Some(open) = rest.find('(') {
        let close = rest.rfind(')').ok_or_else(|| line.fail(rest, "missing `)`"))?;
        row.sig = signature(&rest[open + 1..close]);
        for word in rest[..open].split_whitespace() {
            match word.strip_prefix(':') {
                Some(m) => row.mnemonic = m.to_string(),
                None => return Err(line.fail(word, "expected `:mnemonic` in front of `(`")),
            }
        }
        rest = &rest[close + 1..];
    }
    let mut encodings = Vec::new();
    for word in rest.split_whitespace() {
        if let Some(m) = word.strip_prefix(':') {
            row.mnemonic = m.to_string();
        } else if let Some(w) = word.strip_prefix('+') {
            row.sig.words.push(w.to_string());
        } else if let Some(w) = word.strip_prefix('-') {
            if !row.sig.words.iter().any(|x| x == w) {
                return Err(line.fail(word, "the row does not have this word"));
            }
            row.sig.words.retain(|x| x != w);
        } else if let Some((enc, op)) = word.split_once('=') {
            encodings.push((enc.to_string(), Some(line.hex(op)?)));
        } else if word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()) {
            encodings.push((word.to_string(), None));
        } else {
            return Err(line.fail(word, "expected an encoding, `:mnemonic`, `+word` or `-word`"));
        }
    }
    if let Some(word) = row.sig.words.iter().find(|w| !is_word(w)) {
        return Err(line.fail(word, "no such word; README.md beside the tables lists them"));
    }
    if !encodings.is_empty() {
        row.encodings = encodings;
    }
    if row.encodings.is_empty() {
        return Err(line.fail(target, "no encoding here or in a parent"));
    }
    targets.insert(target.to_string(), Some(row));
    Ok(())
}

/// The row that a target takes over from its nearest ancestor.
fn inherited(
    targets: &BTreeMap<String, Option<Row>>,
    parents: &BTreeMap<String, Option<String>>,
    target: &str,
) -> Option<Row> {
    let mut t = parents.get(target).cloned().flatten();
    while let Some(here) = t {
        if let Some(row) = targets.get(&here) {
            return row.clone();
        }
        t = parents.get(&here).cloned().flatten();
    }
    None
}

/// The row that holds for a target: its own or its nearest ancestor's.
pub fn find<'a>(
    targets: &'a BTreeMap<String, Option<Row>>,
    parents: &BTreeMap<String, Option<String>>,
    target: &str,
) -> Option<&'a Row> {
    let mut t = Some(target.to_string());
    while let Some(here) = t {
        if let Some(row) = targets.get(&here) {
            return row.as_ref();
        }
        t = parents.get(&here).cloned().flatten();
    }
    None
}
