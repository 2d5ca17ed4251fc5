//! Sections, symbols and open statements of an assembly in progress.

use super::source::{Start, start};
use super::*;
use crate::text::lex::{Base, Cursor, ParseError, Value};
use crate::text::parse::{PLACEHOLDER, Patch};
use crate::{Context, Inst, Operand, Raw, RegFile, parse_with};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

type Bytes = SmallVec<[u8; 24]>;
/// Most errors that are worth telling.
const MAX_ERRORS: usize = 100;
/// Most places that one error names besides its own.
const MOST_RELATED: usize = 8;

/// `s_nop 0` of every target that needs it behind branches.
const S_NOP_0: [u8; 4] = 0xbf80_0000u32.to_le_bytes();

pub(super) type Outcome<T = ()> = Result<T, ParseError>;

/// Where a statement stands: what `.` means there, and what it is called in messages.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub section: usize,
    pub offset: i64,
    /// Number of the statement: decides what `1f` and `1b` mean.
    pub order: usize,
    pub line: usize,
    /// The statement is read for the second time: its size is settled.
    pub again: bool,
}

/// A statement that waits for symbols.
enum Waiting {
    Instruction { len: usize },
    Data { size: usize, float: bool },
    Set { name: String },
    Size { name: String },
    Kernel { kernel: usize, directive: usize },
}

struct Deferred {
    what: Waiting,
    place: Place,
    /// The statement or the expression, and the column where it starts.
    text: String,
    column: usize,
}

/// What an expression met.
#[derive(Default)]
pub(super) struct Met {
    /// A symbol without a value so far.
    later: Cell<bool>,
    /// Symbols that only the linker can place, with what is wanted of them.
    linked: RefCell<Vec<(String, Option<RelocationKind>)>>,
}

pub(super) struct State<'a> {
    pub target: Target,
    pub mode: Mode,
    source: &'a str,
    pub out: Assembly,
    pub errors: Vec<AsmError>,
    pub section: usize,
    pub previous: usize,
    pub stack: Vec<(usize, usize)>,
    symbols: HashMap<String, Entry>,
    /// Places of the labels `1:`, `2:`, ... in order.
    numeric: HashMap<u32, Vec<Place>>,
    deferred: Vec<Deferred>,
    pub kernel: Option<KernelDirectives>,
    pub line: usize,
    order: usize,
    pub macros: super::macros::Macros,
    comment: bool,
    /// Text of the metadata so far, and the line where it opens.
    metadata: Option<(String, usize)>,
    /// Places that belong to the next error.
    related: Vec<Related>,
    /// The source asks for the highest registers used.
    counts_registers: bool,
    next_vgpr: i64,
    next_sgpr: i64,
    /// Numbers of statements whose branch is followed by an `s_nop`.
    padded: BTreeSet<usize>,
    /// Those that need one.
    astray: Vec<usize>,
}

#[derive(Default)]
struct Entry {
    symbol: Symbol,
    float: bool,
    /// Where it got its value; 0: nowhere in the source.
    line: usize,
}

enum Lookup {
    Known(Value),
    /// Defined, in another section.
    Elsewhere,
    Unknown,
}

impl<'a> State<'a> {
    /// `padded`: statements behind whose instruction comes an `s_nop`.
    pub fn new(target: Target, mode: Mode, source: &'a str, padded: BTreeSet<usize>) -> State<'a> {
        let mut out = Assembly::default();
        out.sections.push(Section { align: 256, ..section(".text") });
        State {
            target,
            mode,
            source,
            out,
            errors: Vec::new(),
            section: 0,
            previous: 0,
            stack: Vec::new(),
            symbols: HashMap::new(),
            numeric: HashMap::new(),
            deferred: Vec::new(),
            kernel: None,
            line: 0,
            order: 0,
            macros: super::macros::Macros::default(),
            comment: false,
            metadata: None,
            related: Vec::new(),
            counts_registers: source.contains(".amdgcn.next_free"),
            next_vgpr: 0,
            next_sgpr: 0,
            padded,
            astray: Vec::new(),
        }
    }

    pub fn run(&mut self, source: &str) {
        for (n, raw) in source.lines().enumerate() {
            self.line = n + 1;
            if let Err(e) = self.feed(raw)
                && !self.fail(self.line, e)
            {
                return;
            }
            if self.macros.ended {
                break;
            }
        }
        self.line = self.line.max(1);
        let open = match (&self.metadata, &self.kernel) {
            (Some((_, line)), _) => Some((*line, ".amdgpu_metadata has no .end_amdgpu_metadata".to_string())),
            (None, Some(k)) => Some((k.line, ".amdhsa_kernel has no .end_amdhsa_kernel".to_string())),
            (None, None) => self.macros.open(),
        };
        if let Some((line, message)) = open {
            self.relate(line, "it opens here");
            self.fail(self.line, ParseError { column: 0, message });
        }
    }

    /// Notes an error; false when there are enough.
    fn fail(&mut self, line: usize, e: ParseError) -> bool {
        let text = self.source.lines().nth(line - 1).unwrap_or("").to_string();
        let (column, end) = source::extent(&text, e.column);
        let related = std::mem::take(&mut self.related);
        self.errors.push(AsmError { line, column: column + 1, end: end + 1, message: e.message, text, related });
        self.errors.len() < MAX_ERRORS
    }

    /// Names a line that has to do with the error that is about to be told.
    pub fn relate(&mut self, line: usize, message: impl Into<String>) {
        let text = self.source.lines().nth(line.saturating_sub(1)).unwrap_or("");
        let (column, end) = source::extent(text, 0);
        if self.related.iter().any(|r| r.line == line) || self.related.len() >= MOST_RELATED {
            return;
        }
        self.related.push(Related { line, column: column + 1, end: end + 1, message: message.into() });
    }

    /// One line of the source or of an expansion.
    pub fn feed(&mut self, raw: &str) -> Outcome {
        if let Some((text, _)) = &mut self.metadata {
            if raw.trim() == ".end_amdgpu_metadata" {
                self.out.metadata = self.metadata.take().map(|m| m.0);
            } else {
                text.push_str(raw);
                text.push('\n');
            }
            return Ok(());
        }
        let mut open = self.comment;
        let line: Cow<str> = source::strip(raw, &mut open);
        self.comment = open;
        if self.takes_line(&line)? {
            return Ok(());
        }
        if line.ends_with(".amdgpu_metadata") && line.trim() == ".amdgpu_metadata" {
            self.metadata = Some((String::new(), self.line));
            return Ok(());
        }
        self.statement(&line)
    }

    fn statement(&mut self, line: &str) -> Outcome {
        self.order += 1;
        let mut at = 0;
        let mut head = start(line);
        while let Start::Label(name, after) = head {
            let column = at + line[at..].find(name).unwrap_or(0);
            self.define_label(name, column)?;
            at += after;
            head = start(&line[at..]);
        }
        let assigns = head == Start::Assignment;
        let rest = &line[at..];
        let lead = rest.len() - rest.trim_ascii_start().len();
        let (rest, at) = (&rest[lead..], at + lead);
        if rest.is_empty() {
            return Ok(());
        }
        let shift = |e: ParseError| ParseError { column: e.column + at, ..e };
        if rest.starts_with('.') && !rest.starts_with(".amdgcn.") && !assigns {
            return self.directive(rest).map_err(shift);
        }
        if assigns && let Some((name, value)) = rest.split_once('=') {
            let column = name.len() + 1;
            return self.set(name.trim(), value, column).map_err(shift);
        }
        if self.invokes(rest) {
            return self.expand_macro(rest).map_err(shift);
        }
        self.instruction(rest, at).map_err(shift)
    }

    pub fn place(&self) -> Place {
        let offset = self.out.sections[self.section].bytes.len() as i64;
        Place { section: self.section, offset, order: self.order, line: self.line, again: false }
    }

    /// The entry of a symbol, made when it is new.
    pub fn symbol(&mut self, name: &str) -> &mut Symbol {
        if !self.symbols.contains_key(name) {
            let symbol = Symbol { name: name.to_string(), ..Symbol::default() };
            self.symbols.insert(name.to_string(), Entry { symbol, ..Entry::default() });
        }
        &mut self.symbols.entry(name.to_string()).or_default().symbol
    }

    /// True when a symbol has a value so far.
    pub fn is_defined(&self, name: &str) -> bool {
        self.symbols.get(name).is_some_and(|e| e.symbol.defined)
    }

    /// The error of a symbol that has a value already.
    pub fn defined_twice(&mut self, name: &str, column: usize) -> ParseError {
        if let Some(line) = self.symbols.get(name).map(|e| e.line).filter(|l| *l > 0) {
            self.relate(line, "it is defined here");
        }
        ParseError { column, message: format!("`{name}` is already defined") }
    }

    fn define_label(&mut self, name: &str, column: usize) -> Outcome {
        let place = self.place();
        if name.bytes().all(|c| c.is_ascii_digit()) {
            let number = name.parse().map_err(|_| ParseError { column, message: format!("`{name}` is too large") })?;
            self.numeric.entry(number).or_default().push(place);
            return Ok(());
        }
        if self.is_defined(name) {
            return Err(self.defined_twice(name, column));
        }
        let s = self.symbol(name);
        (s.defined, s.section, s.value) = (true, Some(place.section), place.offset);
        self.symbols.entry(name.to_string()).or_default().line = self.line;
        Ok(())
    }

    /// Gives a symbol a value, now or when the symbols in it are known.
    pub fn set(&mut self, name: &str, text: &str, column: usize) -> Outcome {
        if !source::is_name(name) {
            return Err(ParseError { column: 0, message: format!("`{name}` is no name of a symbol") });
        }
        let from = self.symbols.get(text.trim()).filter(|e| e.symbol.defined);
        if let Some(e) = from {
            let (section, value, float) = (e.symbol.section, e.symbol.value, e.float);
            self.define(name, section, value, float);
            return Ok(());
        }
        let place = self.place();
        let (v, met) = self.evaluate(text, &place).map_err(|e| ParseError { column: e.column + column, ..e })?;
        if met.later.get() {
            self.wait(Waiting::Set { name: name.into() }, text, column);
            return Ok(());
        }
        self.define_value(name, v, place.section);
        Ok(())
    }

    fn define_value(&mut self, name: &str, v: Value, section: usize) {
        match name {
            ".amdgcn.next_free_vgpr" => self.next_vgpr = v.number,
            ".amdgcn.next_free_sgpr" => self.next_sgpr = v.number,
            _ => self.define(name, (v.base == Base::Here).then_some(section), v.number, v.float),
        }
    }

    fn define(&mut self, name: &str, section: Option<usize>, value: i64, float: bool) {
        let s = self.symbol(name);
        (s.defined, s.section, s.value) = (true, section, value);
        if let Some(e) = self.symbols.get_mut(name) {
            (e.float, e.line) = (float, self.line);
        }
    }

    fn wait(&mut self, what: Waiting, text: &str, column: usize) {
        let place = self.place();
        self.deferred.push(Deferred { what, place, text: text.to_string(), column });
    }

    fn lookup(&self, name: &str, at: &Place) -> Lookup {
        let here = |p: &Place| {
            if p.section == at.section { Lookup::Known(Value::address(p.offset)) } else { Lookup::Elsewhere }
        };
        match name.as_bytes() {
            b"." => return here(at),
            [b'.', b'a', b'm', ..] => {
                if let Some(n) = self.builtin(name) {
                    return Lookup::Known(Value::int(n));
                }
            }
            [b'0'..=b'9', ..] => {
                let (digits, way) = name.split_at(name.len() - 1);
                let Some(list) = digits.parse().ok().and_then(|n: u32| self.numeric.get(&n)) else {
                    return Lookup::Unknown;
                };
                let found = match way {
                    "b" => list.iter().rev().find(|p| p.order <= at.order),
                    _ => list.iter().find(|p| p.order > at.order),
                };
                return found.map_or(Lookup::Unknown, here);
            }
            _ => {}
        }
        match self.symbols.get(name).filter(|e| e.symbol.defined) {
            None => Lookup::Unknown,
            Some(e) => match e.symbol.section {
                None => Lookup::Known(Value { float: e.float, ..Value::int(e.symbol.value) }),
                Some(s) if s == at.section => Lookup::Known(Value::address(e.symbol.value)),
                Some(_) => Lookup::Elsewhere,
            },
        }
    }

    fn builtin(&self, name: &str) -> Option<i64> {
        let digits = self.target.info().name.strip_prefix("gfx")?;
        let (major, rest) = digits.split_at(digits.len() - 2);
        Some(match name {
            ".amdgcn.next_free_vgpr" => self.next_vgpr,
            ".amdgcn.next_free_sgpr" => self.next_sgpr,
            ".amdgcn.gfx_generation_number" => major.parse().ok()?,
            ".amdgcn.gfx_generation_minor" => i64::from_str_radix(&rest[..1], 16).ok()?,
            ".amdgcn.gfx_generation_stepping" => i64::from_str_radix(&rest[1..], 16).ok()?,
            _ => return None,
        })
    }

    /// A symbol as an expression at a place sees it.
    fn resolve(&self, name: &str, at: &Place, met: &Met) -> Option<Value> {
        let linked = |symbol: &str, kind| {
            met.linked.borrow_mut().push((symbol.to_string(), kind));
            Some(Value { base: Base::Linked, ..Value::int(0) })
        };
        if let Some((symbol, kind)) = name.split_once('@') {
            return linked(symbol, Some(relocation_kind(kind)?));
        }
        match self.lookup(name, at) {
            Lookup::Known(v) => Some(Value { late: at.again, ..v }),
            Lookup::Elsewhere => linked(name, None),
            Lookup::Unknown => {
                met.later.set(true);
                linked(name, None)
            }
        }
    }

    /// The value of a whole text as an expression, and what it met.
    pub fn evaluate(&self, text: &str, at: &Place) -> Outcome<(Value, Met)> {
        let met = Met::default();
        let resolve = |n: &str| self.resolve(n, at, &met);
        let mut c = Cursor::new(text, &resolve);
        let v = c.expression()?;
        if !c.done() {
            let word = c.word().to_string();
            return c.fail(format!("unexpected `{word}` after the expression"));
        }
        Ok((v, met))
    }

    /// The value of an expression whose symbols must be known.
    pub fn value(&self, text: &str) -> Outcome<Value> {
        let (v, met) = self.evaluate(text, &self.place())?;
        known(&met, text)?;
        Ok(v)
    }

    /// Parses an instruction; with it the number that belongs into its literal, where that is a placeholder.
    fn parse(&self, text: &str, at: &Place) -> Outcome<(Raw, Met, Option<i64>)> {
        let met = Met::default();
        let patch = Patch::default();
        let resolve = |n: &str| {
            patch.wide.set(patch.wide.get() || n.ends_with("@rel64") || n.ends_with("@abs64"));
            self.resolve(n, at, &met)
        };
        let context = Context { target: self.target, mode: self.mode, resolve: &resolve, pc: at.offset, patch: &patch };
        let raw = parse_with(&context, text)?;
        Ok((raw, met, patch.number.get()))
    }

    fn instruction(&mut self, text: &str, column: usize) -> Outcome {
        let place = self.place();
        let (raw, met, patch) = self.parse(text, &place)?;
        if self.counts_registers {
            self.count_registers(&raw.inst());
        }
        let bytes = if met.later.get() {
            self.wait(Waiting::Instruction { len: raw.len() }, text, column);
            Bytes::from_slice(&raw.bytes())
        } else {
            self.bytes_of(&raw, &met, patch, place)?
        };
        self.out.sections[place.section].bytes.extend_from_slice(&bytes);
        if self.padded.contains(&place.order) {
            self.out.sections[place.section].bytes.extend_from_slice(&S_NOP_0);
        }
        Ok(())
    }

    /// Bytes of an instruction, its literal filled in or left to the linker.
    fn bytes_of(&mut self, raw: &Raw, met: &Met, patch: Option<i64>, place: Place) -> Outcome<Bytes> {
        let mut bytes = Bytes::from_slice(&raw.bytes());
        let end = bytes.len().saturating_sub(4);
        let fail = |message: String| Err(ParseError { column: 0, message });
        if met.linked.borrow().is_empty() {
            if let Some(n) = patch {
                if bytes[end..] != (PLACEHOLDER as u32).to_le_bytes() {
                    return fail("an address fits no field of this instruction".into());
                }
                if !(-(1 << 31)..1 << 32).contains(&n) {
                    return fail(format!("{n} does not fit a literal of 32 bits"));
                }
                bytes[end..].copy_from_slice(&(n as u32).to_le_bytes());
            }
            return Ok(bytes);
        }
        let (symbol, wanted) = one_symbol(met)?;
        let wide = matches!(wanted, Some(RelocationKind::Rel64 | RelocationKind::Abs64));
        let literal = bytes.len().saturating_sub(if wide { 8 } else { 4 });
        let holds = |b: &[u8]| b.chunks(4).all(|w| w == (PLACEHOLDER as u32).to_le_bytes());
        let (kind, addend) = match patch {
            Some(n) if holds(&bytes[literal..]) => {
                bytes[literal..].fill(0);
                (wanted.unwrap_or(RelocationKind::Abs32Lo), n)
            }
            None if raw.branch_target(0).is_some() => (RelocationKind::Rel16, 0),
            _ => return fail(format!("the address of `{symbol}` fits no field of this instruction")),
        };
        self.symbol(&symbol);
        let offset = place.offset as u64 + literal as u64;
        self.out.sections[place.section].relocations.push(Relocation { offset, symbol, kind, addend });
        Ok(bytes)
    }

    /// Keeps `.amdgcn.next_free_vgpr` and its SGPR sibling up to date.
    fn count_registers(&mut self, inst: &Inst) {
        for x in inst.dsts.iter().chain(&inst.srcs) {
            let Operand::Regs(r) = x else { continue };
            let end = i64::from(r.first.index()) + i64::from(r.dwords);
            match r.first.file() {
                RegFile::Vgpr | RegFile::Agpr => self.next_vgpr = self.next_vgpr.max(end),
                RegFile::Sgpr => self.next_sgpr = self.next_sgpr.max(end),
                _ => {}
            }
        }
    }

    /// Puts a number of `size` bytes; `float` turns integers into floating numbers first.
    pub fn put(&mut self, text: &str, size: usize, float: bool, column: usize) -> Outcome {
        let place = self.place();
        let (v, met) = self.evaluate(text, &place)?;
        if met.later.get() {
            self.wait(Waiting::Data { size, float }, text, column);
        }
        let bytes = self.data(v, &met, size, float, &place)?;
        self.out.sections[place.section].bytes.extend_from_slice(&bytes[..size]);
        Ok(())
    }

    /// Bytes of a number, and its relocation when it is an address.
    fn data(&mut self, v: Value, met: &Met, size: usize, float: bool, place: &Place) -> Outcome<[u8; 8]> {
        if !met.later.get() && v.base != Base::None {
            let section = place.section;
            let (symbol, addend, wanted) = if v.base == Base::Here {
                // A symbol at the start of the section stands for it.
                let name = format!(".Lsection{section}");
                let s = self.symbol(&name);
                (s.defined, s.section) = (true, Some(section));
                (name, v.number, None)
            } else {
                let (symbol, kind) = one_symbol(met)?;
                self.symbol(&symbol);
                (symbol, v.number, kind)
            };
            let relative = v.base == Base::Relative;
            let addend = if relative { addend + place.offset } else { addend };
            let kind = match (size, wanted, relative) {
                (4 | 8, Some(k), false) => k,
                (8, None, false) => RelocationKind::Abs64,
                (4, None, false) => RelocationKind::Abs32,
                (8, None, true) => RelocationKind::Rel64,
                (4, None, true) => RelocationKind::Rel32,
                _ => {
                    let message = format!("the address of `{symbol}` does not fit {size} bytes");
                    return Err(ParseError { column: 0, message });
                }
            };
            let relocation = Relocation { offset: place.offset as u64, symbol, kind, addend };
            self.out.sections[section].relocations.push(relocation);
            return Ok([0; 8]);
        }
        let x = if v.float { f64::from_bits(v.number as u64) } else { v.number as f64 };
        let bits = match (float || v.float, size) {
            (true, 4) => u64::from((x as f32).to_bits()),
            (true, _) => x.to_bits(),
            (false, _) => v.number as u64,
        };
        Ok(bits.to_le_bytes())
    }

    /// `.size name, expression`.
    pub fn set_size(&mut self, name: &str, text: &str, column: usize) -> Outcome {
        let (v, met) = self.evaluate(text, &self.place())?;
        if met.later.get() {
            self.wait(Waiting::Size { name: name.into() }, text, column);
        }
        self.symbol(name).size = v.number.max(0) as u64;
        Ok(())
    }

    /// The number of an `.amdhsa_` directive of the kernel that is open now.
    pub fn kernel_value(&mut self, text: &str, column: usize) -> Outcome<i64> {
        let (v, met) = self.evaluate(text, &self.place())?;
        if met.later.get()
            && let Some(k) = &self.kernel
        {
            let (kernel, directive) = (self.out.kernels.len(), k.values.len());
            self.wait(Waiting::Kernel { kernel, directive }, text, column);
        }
        Ok(v.number)
    }

    /// Does what had to wait, now that all symbols are known.
    /// Gives also the statements to pad, with those of this round, when there are more.
    pub fn finish(mut self) -> Result<(Assembly, BTreeSet<usize>), Vec<AsmError>> {
        let (mut sets, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.deferred).into_iter().partition(|d| matches!(d.what, Waiting::Set { .. }));
        // Symbols of symbols: each round settles at least one, or none ever will.
        loop {
            let before = sets.len();
            sets.retain(|d| {
                let Waiting::Set { name } = &d.what else { return false };
                match self.evaluate(&d.text, &d.place) {
                    _ if self.is_defined(name) => false,
                    Ok((v, met)) if !met.later.get() => {
                        self.define_value(name, v, d.place.section);
                        false
                    }
                    _ => true,
                }
            });
            if sets.is_empty() || sets.len() == before {
                break;
            }
        }
        for d in sets.into_iter().chain(rest) {
            if let Err(e) = self.settle(&d) {
                let e = ParseError { column: e.column + d.column, ..e };
                if !self.fail(d.place.line, e) {
                    break;
                }
            }
        }
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|e| e.line);
            return Err(self.errors);
        }
        for s in &mut self.out.sections {
            s.relocations.sort_by_key(|r| r.offset);
        }
        self.out.symbols = self.symbols.into_iter().map(|(n, e)| (n, e.symbol)).collect();
        if self.astray.is_empty() {
            self.padded.clear();
        }
        self.padded.extend(self.astray);
        Ok((self.out, self.padded))
    }

    fn settle(&mut self, d: &Deferred) -> Outcome {
        let at = d.place.offset as usize;
        match &d.what {
            Waiting::Instruction { len } => {
                let (raw, met, patch) = self.parse(&d.text, &Place { again: true, ..d.place })?;
                // Only a branch may go to a symbol that another file defines, and it must say so.
                let declared = |m: &Met| m.linked.borrow().iter().all(|(n, _)| self.symbols.contains_key(n));
                if raw.branch_target(0).is_none() || !declared(&met) {
                    known(&met, &d.text)?;
                }
                let bytes = self.bytes_of(&raw, &met, patch, d.place)?;
                if bytes.len() != *len {
                    let message = "a symbol that is defined later changes the size of this instruction".into();
                    return Err(ParseError { column: 0, message });
                }
                self.out.sections[d.place.section].bytes[at..at + len].copy_from_slice(&bytes);
                if self.target.goes_astray(raw.branch_target(0)) {
                    self.astray.push(d.place.order);
                }
            }
            Waiting::Data { size, float } => {
                let (v, met) = self.evaluate(&d.text, &d.place)?;
                // What nobody defines here, another file does.
                met.later.set(false);
                let bytes = self.data(v, &met, *size, *float, &d.place)?;
                self.out.sections[d.place.section].bytes[at..at + size].copy_from_slice(&bytes[..*size]);
            }
            Waiting::Set { .. } => {
                let (_, met) = self.evaluate(&d.text, &d.place)?;
                known(&met, &d.text)?;
            }
            Waiting::Size { name } => {
                let (v, met) = self.evaluate(&d.text, &d.place)?;
                known(&met, &d.text)?;
                self.symbol(name).size = v.number.max(0) as u64;
            }
            Waiting::Kernel { kernel, directive } => {
                let (v, met) = self.evaluate(&d.text, &d.place)?;
                known(&met, &d.text)?;
                if let Some(x) = self.out.kernels.get_mut(*kernel).and_then(|k| k.values.get_mut(*directive)) {
                    x.value = v.number;
                }
            }
        }
        Ok(())
    }
}

/// An empty section with the flags that its name implies.
pub(super) fn section(name: &str) -> Section {
    let is = |prefix: &str| name == prefix || name.strip_prefix(prefix).is_some_and(|r| r.starts_with('.'));
    Section {
        name: name.to_string(),
        align: 1,
        loaded: is(".text") || is(".rodata") || is(".data") || is(".bss"),
        writable: is(".data") || is(".bss"),
        executable: is(".text"),
        zeros: is(".bss"),
        ..Section::default()
    }
}

/// Fails when an expression or instruction met a symbol without a value.
fn known(met: &Met, text: &str) -> Outcome {
    let linked = met.linked.borrow();
    let Some((name, _)) = linked.first() else { return Ok(()) };
    let message = if met.later.get() {
        format!("`{name}` is not defined")
    } else {
        format!("`{name}` is in another section: its value is not known before linking")
    };
    Err(ParseError { column: text.find(name.as_str()).unwrap_or(0), message })
}

fn one_symbol(met: &Met) -> Outcome<(String, Option<RelocationKind>)> {
    let linked = met.linked.borrow();
    match linked.as_slice() {
        [one] => Ok(one.clone()),
        _ => {
            let message = "an expression of two symbols that only the linker can place".into();
            Err(ParseError { column: 0, message })
        }
    }
}

fn relocation_kind(word: &str) -> Option<RelocationKind> {
    use RelocationKind::*;
    Some(match word {
        "rel32@lo" => Rel32Lo,
        "rel32@hi" => Rel32Hi,
        "rel64" => Rel64,
        "abs32@lo" => Abs32Lo,
        "abs32@hi" => Abs32Hi,
        "abs64" => Abs64,
        "gotpcrel32@lo" => GotPcRel32Lo,
        "gotpcrel32@hi" => GotPcRel32Hi,
        _ => return None,
    })
}
