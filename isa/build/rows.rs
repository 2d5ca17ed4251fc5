//! Instruction rows: one line per operation, with deltas along the inheritance of targets.
//!
//! `name  dst .. <- src .. : word ..  | target [:mnemonic] [(signature)] [+word] [-word] ENC=op .. | target - | ...`

use crate::text::{Fail, Result};
use std::collections::BTreeMap;

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
    pub file: String,
    pub line: usize,
}

/// Operation name -> target -> row (`None`: removed there).
pub type Rows = BTreeMap<String, BTreeMap<String, Option<Row>>>;

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
    for (n, line) in text.lines().enumerate() {
        let at = |word: &str, what: &str| Fail::new(file, n + 1, word, what);
        let line = line.split('#').next().unwrap_or("").trim_end();
        if line.is_empty() {
            continue;
        }
        let mut parts = line.split('|');
        let head = parts.next().unwrap_or("");
        let (name, rest) =
            head.trim().split_once(' ').ok_or_else(|| at(head, "expected a signature after the name"))?;
        if !rest.contains("<-") {
            return Err(at(rest.trim(), "expected `destinations <- sources`"));
        }
        let base = signature(rest);
        let mut targets: BTreeMap<String, Option<Row>> = BTreeMap::new();
        for segment in parts {
            let segment = segment.trim();
            let (target, mut rest) = segment.split_once(' ').unwrap_or((segment, ""));
            if !parents.contains_key(target) {
                return Err(at(target, "no such target"));
            }
            if rest.trim() == "-" {
                targets.insert(target.to_string(), None);
                continue;
            }
            let mut row = inherited(&targets, parents, target).unwrap_or_else(|| Row {
                mnemonic: name.to_string(),
                sig: base.clone(),
                encodings: Vec::new(),
                file: file.to_string(),
                line: n + 1,
            });
            if let Some(open) = rest.find('(') {
                let close = rest.rfind(')').ok_or_else(|| at(rest, "missing `)`"))?;
                row.sig = signature(&rest[open + 1..close]);
                for word in rest[..open].split_whitespace() {
                    if let Some(m) = word.strip_prefix(':') {
                        row.mnemonic = m.to_string();
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
                    row.sig.words.retain(|x| x != w);
                } else if let Some((enc, op)) = word.split_once('=') {
                    let op = u64::from_str_radix(op, 16).map_err(|_| at(word, "expected an opcode in hex"))?;
                    encodings.push((enc.to_string(), Some(op)));
                } else if word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()) {
                    encodings.push((word.to_string(), None));
                } else {
                    return Err(at(word, "expected an encoding, `:mnemonic`, `+word` or `-word`"));
                }
            }
            if let Some(word) = row.sig.words.iter().find(|w| !is_word(w)) {
                return Err(at(word, "no such word; README.md beside the tables lists them"));
            }
            if !encodings.is_empty() {
                row.encodings = encodings;
            }
            if row.encodings.is_empty() {
                return Err(at(target, "no encoding here or in a parent"));
            }
            targets.insert(target.to_string(), Some(row));
        }
        if out.insert(name.to_string(), targets).is_some() {
            return Err(at(name, "a second row for this operation"));
        }
    }
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
