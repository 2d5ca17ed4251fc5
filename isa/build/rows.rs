//! Instruction rows: one line per operation, with deltas along the inheritance of targets.
//!
//! `name  dst .. <- src .. : word ..  ; meaning  | target [:mnemonic] [(signature)] [+word] [-word] ENC=op .. | target - | ...`

use super::meaning::{self, Does};
use super::text::{Fail, Line, Result};
use super::{Parents, chain};
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
    // in the format ACC instead of MAI
    "acc",
];

/// Words with a value.
const VALUED: &[&str] = &["addr", "rays", "w64", "free", "zero", "ones", "bare"];

fn is_word(word: &str) -> bool {
    let register = word.strip_prefix(['<', '>']).is_some_and(|r| matches!(r, "scc" | "vcc" | "exec" | "m0" | "mode"));
    register || WORDS.contains(&word) || word.split_once('=').is_some_and(|(key, _)| VALUED.contains(&key))
}

fn signature(line: &Line, text: &str) -> Result<Signature> {
    let (operands, words) = text.split_once(" :").unwrap_or((text, ""));
    let (dsts, srcs) =
        operands.split_once("<-").ok_or_else(|| line.fail(operands.trim(), "expected `destinations <- sources`"))?;
    let list = |s: &str| s.split_whitespace().map(str::to_string).collect();
    Ok(Signature { dsts: list(dsts), srcs: list(srcs), words: list(words) })
}

/// Reads the rows. `parents` names the parent of each target that tables may mention.
pub fn parse(lines: &[Line], parents: &Parents) -> Result<Rows> {
    let mut out = Rows::default();
    for line in lines {
        let line = Rc::new(line.clone());
        let mut parts = line.text.split('|').map(str::trim);
        let head = parts.next().ok_or_else(|| line.fail(&line.text, "expected a row"))?;
        match head.split_once(';') {
            None if out.targets.contains_key(head) => added(&line, head, parts, parents, &mut out)?,
            None => return Err(line.fail(head, "expected `; meaning` behind operands and words")),
            Some((head, does)) => operation(&line, head.trim(), does, parts, parents, &mut out)?,
        }
    }
    Ok(out)
}

/// A row of a new operation.
fn operation<'a>(
    line: &Rc<Line>,
    head: &str,
    does: &str,
    columns: impl Iterator<Item = &'a str>,
    parents: &Parents,
    out: &mut Rows,
) -> Result<()> {
    let (name, rest) = head.split_once(' ').ok_or_else(|| line.fail(head, "expected a signature after the name"))?;
    let base =
        Row { mnemonic: name.to_string(), sig: signature(line, rest)?, encodings: Vec::new(), line: line.clone() };
    let mut targets = Targets::new();
    for segment in columns {
        column(line, segment, &base, parents, &mut targets)?;
    }
    let formats: Vec<&str> =
        targets.values().flatten().flat_map(|r| &r.encodings).map(|(format, _)| format.as_str()).collect();
    let wide_base = base.sig.srcs.iter().any(|s| s == "sbase:b128");
    out.does.insert(name.to_string(), meaning::parse(line, does, name, &formats, wide_base)?);
    if out.targets.insert(name.to_string(), targets).is_some() {
        return Err(line.fail(name, "a second row for this operation"));
    }
    Ok(())
}

/// More columns of an operation that an earlier file has.
fn added<'a>(
    line: &Rc<Line>,
    name: &str,
    columns: impl Iterator<Item = &'a str>,
    parents: &Parents,
    out: &mut Rows,
) -> Result<()> {
    let targets = out.targets.get_mut(name).ok_or_else(|| line.fail(name, "no such operation above"))?;
    let first = targets.values().flatten().next().cloned();
    let base = first.ok_or_else(|| line.fail(name, "the operation has no encoding that others could follow"))?;
    let base = Row { encodings: Vec::new(), line: line.clone(), ..base };
    for segment in columns {
        let target = segment.split(' ').next().filter(|t| targets.contains_key(*t));
        if let Some(target) = target {
            return Err(line.fail(target, "the operation has a column for this target already"));
        }
        column(line, segment, &base, parents, targets)?;
    }
    Ok(())
}

/// Reads what a row says of one target.
fn column(line: &Rc<Line>, segment: &str, base: &Row, parents: &Parents, targets: &mut Targets) -> Result<()> {
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
        row.sig = signature(line, &rest[open + 1..close])?;
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
fn inherited(targets: &Targets, parents: &Parents, target: &str) -> Option<Row> {
    chain(parents, target).skip(1).find_map(|t| targets.get(t)).cloned().flatten()
}

/// The row that holds for a target: its own or its nearest ancestor's.
pub fn find<'a>(targets: &'a Targets, parents: &Parents, target: &str) -> Option<&'a Row> {
    super::inherit(targets, parents, target)?.as_ref()
}
