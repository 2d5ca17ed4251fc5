//! The assembler: a whole source text to sections, symbols and kernel descriptions.
//!
//! Statements are read again and again until no label moves: an operand may become a literal, or stop being one, when
//! the symbols in it get their values. The first pass collects the labels, the last one keeps its bytes and errors.
//! Object files are written elsewhere; what comes out here is plain data.

use crate::lex::{Cursor, ParseError, Value};
use crate::{Context, Inst, Mode, Operand, RegFile, Target, parse_with};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

/// A stretch of bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Section {
    /// `.text`, `.rodata`, ...
    pub name: String,
    /// Contents.
    pub bytes: Vec<u8>,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// Places that the linker fills in.
    pub relocations: Vec<Relocation>,
}

/// A place that refers to a symbol which this source does not define, or which the linker moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Offset in the section.
    pub offset: u64,
    /// Symbol.
    pub symbol: String,
    /// `abs32_lo`, `abs32_hi`, `rel32_lo`, `rel32_hi`, `gotpcrel32_lo`, `gotpcrel32_hi`, `abs32`, `abs64`.
    pub kind: &'static str,
    /// Added to the symbol's address.
    pub addend: i64,
}

/// A name in a section, or an absolute one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// Index of the section; none for absolute symbols.
    pub section: Option<usize>,
    /// Offset in the section, or the value.
    pub value: i64,
    /// `.size`.
    pub size: u64,
    /// `.globl` or `.weak`.
    pub global: bool,
    /// `.protected`, `.hidden` or nothing.
    pub visibility: Option<String>,
    /// `@function`, `@object` or nothing.
    pub kind: Option<String>,
}

/// What stands between `.amdhsa_kernel` and `.end_amdhsa_kernel`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelDirectives {
    /// Kernel name; its descriptor is `name.kd`.
    pub name: String,
    /// Directives without `.amdhsa_`, with their values.
    pub values: BTreeMap<String, i64>,
}

/// An assembled source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assembly {
    /// Sections in order of appearance; `.text` is the first.
    pub sections: Vec<Section>,
    /// Symbols by name.
    pub symbols: BTreeMap<String, Symbol>,
    /// Kernels in order of appearance.
    pub kernels: Vec<KernelDirectives>,
    /// Text of `.amdgpu_metadata`.
    pub metadata: Option<String>,
    /// Argument of `.amdgcn_target`.
    pub target_id: Option<String>,
    /// Argument of `.amdhsa_code_object_version`.
    pub code_object_version: Option<i64>,
}

/// A mistake in a source, at a line and column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AsmError {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line's text.
    pub text: String,
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        writeln!(f, "  {}", self.text)?;
        write!(f, "  {}^", " ".repeat(self.column.saturating_sub(1)))
    }
}

impl std::error::Error for AsmError {}

/// Directives of a kernel that LLVM knows.
pub const KERNEL_DIRECTIVES: &[&str] = &[
    "accum_offset",
    "dx10_clamp",
    "enable_private_segment",
    "enable_trap_handler",
    "exception_fp_denorm_src",
    "exception_fp_ieee_div_zero",
    "exception_fp_ieee_inexact",
    "exception_fp_ieee_invalid_op",
    "exception_fp_ieee_overflow",
    "exception_fp_ieee_underflow",
    "exception_int_div_zero",
    "float_denorm_mode_16_64",
    "float_denorm_mode_32",
    "float_round_mode_16_64",
    "float_round_mode_32",
    "forward_progress",
    "fp16_overflow",
    "group_segment_fixed_size",
    "ieee_mode",
    "inst_pref_size",
    "kernarg_size",
    "memory_ordered",
    "named_barrier_count",
    "next_free_sgpr",
    "next_free_vgpr",
    "private_segment_fixed_size",
    "reserve_flat_scratch",
    "reserve_vcc",
    "reserve_xnack_mask",
    "round_robin_scheduling",
    "shared_vgpr_count",
    "system_sgpr_private_segment_wavefront_offset",
    "system_sgpr_workgroup_id_x",
    "system_sgpr_workgroup_id_y",
    "system_sgpr_workgroup_id_z",
    "system_sgpr_workgroup_info",
    "system_vgpr_workitem_id",
    "tg_split",
    "user_sgpr_count",
    "user_sgpr_dispatch_id",
    "user_sgpr_dispatch_ptr",
    "user_sgpr_flat_scratch_init",
    "user_sgpr_kernarg_preload_length",
    "user_sgpr_kernarg_preload_offset",
    "user_sgpr_kernarg_segment_ptr",
    "user_sgpr_private_segment_buffer",
    "user_sgpr_private_segment_size",
    "user_sgpr_queue_ptr",
    "user_sgpr_workgroup_id_x",
    "uses_cu_stores",
    "uses_dynamic_stack",
    "wavefront_size32",
    "workgroup_processor_mode",
];

/// Assembles a source text.
pub fn assemble(target: Target, mode: Mode, source: &str) -> Result<Assembly, Vec<AsmError>> {
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    let mut homes: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..16 {
        let mut pass = Pass::new(target, mode, std::mem::take(&mut known), std::mem::take(&mut homes), round == 0);
        pass.run(source);
        let settled = round > 0 && pass.defined == pass.known;
        known = std::mem::take(&mut pass.defined);
        homes = pass.out.symbols.iter().filter_map(|(n, s)| Some((n.clone(), s.section?))).collect();
        if settled || (round > 0 && !pass.errors.is_empty() && round > 2) {
            return if pass.errors.is_empty() { Ok(pass.finish()) } else { Err(pass.errors) };
        }
    }
    Err(vec![AsmError {
        line: 1,
        column: 1,
        message: "the sizes of instructions do not settle".into(),
        text: String::new(),
    }])
}

struct Pass {
    target: Target,
    mode: Mode,
    known: BTreeMap<String, Value>,
    homes: BTreeMap<String, usize>,
    first: bool,
    defined: BTreeMap<String, Value>,
    out: Assembly,
    errors: Vec<AsmError>,
    section: usize,
    kernel: Option<KernelDirectives>,
    next_vgpr: i64,
    next_sgpr: i64,
}

/// Number that stands for a symbol which the linker resolves: literal, so that a field for it exists.
const PLACEHOLDER: i64 = 0x7eab_cd01;

impl Pass {
    fn new(
        target: Target,
        mode: Mode,
        known: BTreeMap<String, Value>,
        homes: BTreeMap<String, usize>,
        first: bool,
    ) -> Pass {
        let text = Section { name: ".text".into(), align: 256, ..Section::default() };
        let out = Assembly { sections: vec![text], ..Assembly::default() };
        Pass {
            target,
            mode,
            known,
            homes,
            first,
            defined: BTreeMap::new(),
            out,
            errors: Vec::new(),
            section: 0,
            kernel: None,
            next_vgpr: 0,
            next_sgpr: 0,
        }
    }

    fn pc(&self) -> i64 {
        self.out.sections[self.section].bytes.len() as i64
    }

    fn run(&mut self, source: &str) {
        let mut metadata: Option<String> = None;
        let mut comment = false;
        for (n, raw) in source.lines().enumerate() {
            if let Some(text) = &mut metadata {
                if raw.trim() == ".end_amdgpu_metadata" {
                    self.out.metadata = metadata.take();
                } else {
                    text.push_str(raw);
                    text.push('\n');
                }
                continue;
            }
            let line = strip(raw, &mut comment);
            if line.trim() == ".amdgpu_metadata" {
                metadata = Some(String::new());
                continue;
            }
            if let Err(e) = self.line(&line)
                && self.errors.len() < 100
            {
                self.errors.push(AsmError {
                    line: n + 1,
                    column: e.column + 1,
                    message: e.message,
                    text: raw.to_string(),
                });
            }
        }
        let end = source.lines().count().max(1);
        let open = if metadata.is_some() {
            Some(".amdgpu_metadata has no .end_amdgpu_metadata")
        } else {
            self.kernel.as_ref().map(|_| ".amdhsa_kernel has no .end_amdhsa_kernel")
        };
        if let Some(message) = open {
            self.errors.push(AsmError { line: end, column: 1, message: message.into(), text: String::new() });
        }
    }

    fn line(&mut self, line: &str) -> Result<(), ParseError> {
        let mut rest = line;
        let mut at = 0;
        // labels
        loop {
            let trimmed = rest.trim_start();
            at += rest.len() - trimmed.len();
            rest = trimmed;
            let Some(colon) = rest.find(':') else { break };
            let name = &rest[..colon];
            if name.is_empty()
                || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$'))
                || rest[colon + 1..].starts_with(':')
                || name.starts_with(|c: char| c.is_ascii_digit())
            {
                break;
            }
            self.label(name, at)?;
            at += colon + 1;
            rest = &rest[colon + 1..];
        }
        if rest.is_empty() {
            return Ok(());
        }
        let shift = |e: ParseError| ParseError { column: e.column + at, ..e };
        if rest.starts_with('.') && !rest.starts_with(".amdgcn.") {
            return self.directive(rest).map_err(shift);
        }
        if let Some(eq) = rest.find('=')
            && rest[..eq].trim().chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$'))
            && !rest[eq..].starts_with("==")
        {
            let name = rest[..eq].trim().to_string();
            let v = self.value(&rest[eq + 1..]).map_err(shift)?;
            self.set(&name, v);
            return Ok(());
        }
        self.instruction(rest).map_err(shift)
    }

    fn label(&mut self, name: &str, at: usize) -> Result<(), ParseError> {
        if self.defined.contains_key(name) {
            return Err(ParseError { column: at, message: format!("`{name}` is already defined") });
        }
        let value = Value { number: self.pc(), float: false, address: true };
        self.defined.insert(name.to_string(), value);
        let section = self.section;
        let s = self.symbol(name);
        s.section = Some(section);
        s.value = value.number;
        Ok(())
    }

    fn symbol(&mut self, name: &str) -> &mut Symbol {
        self.out
            .symbols
            .entry(name.to_string())
            .or_insert_with(|| Symbol { name: name.to_string(), ..Symbol::default() })
    }

    fn set(&mut self, name: &str, v: Value) {
        match name {
            ".amdgcn.next_free_vgpr" => self.next_vgpr = v.number,
            ".amdgcn.next_free_sgpr" => self.next_sgpr = v.number,
            _ => {
                self.defined.insert(name.to_string(), v);
                let section = if v.address { Some(self.section) } else { None };
                let s = self.symbol(name);
                s.section = section;
                s.value = v.number;
            }
        }
    }

    /// Value of a symbol where the cursor stands now.
    fn resolve(&self, name: &str) -> Option<Value> {
        match name {
            "." => return Some(Value { number: self.pc(), float: false, address: true }),
            ".amdgcn.next_free_vgpr" => return Some(Value::int(self.next_vgpr)),
            ".amdgcn.next_free_sgpr" => return Some(Value::int(self.next_sgpr)),
            ".amdgcn.gfx_generation_number" => {
                let name = self.target.info().name;
                return Some(Value::int(name[3..name.len() - 2].parse().unwrap_or(0)));
            }
            ".amdgcn.gfx_generation_minor" | ".amdgcn.gfx_generation_stepping" => {
                let name = self.target.info().name;
                let at = if name_is_minor(name) { name.len() - 2 } else { name.len() - 1 };
                return Some(Value::int(i64::from_str_radix(&name[at..=at], 16).unwrap_or(0)));
            }
            _ => {}
        }
        let v = self.defined.get(name).or_else(|| self.known.get(name)).copied();
        match v {
            // an address of another section is not a distance from here
            Some(v) if v.address && self.homes.get(name).is_some_and(|h| *h != self.section) => None,
            Some(v) => Some(v),
            None if self.first => Some(Value { number: self.pc(), float: false, address: true }),
            None => None,
        }
    }

    fn value(&self, text: &str) -> Result<Value, ParseError> {
        let resolve = |n: &str| self.resolve(n);
        let mut c = Cursor::new(text, &resolve);
        let v = c.expression()?;
        if !c.done() {
            let word = c.word().to_string();
            return c.fail(format!("unexpected `{word}` after the expression"));
        }
        Ok(v)
    }

    fn instruction(&mut self, text: &str) -> Result<(), ParseError> {
        let pc = self.pc();
        let wanted: RefCell<Option<(String, &'static str)>> = RefCell::new(None);
        let used = Cell::new(false);
        let resolve = |n: &str| {
            if let Some((name, kind)) = n.split_once('@') {
                let kind = relocation_kind(kind)?;
                *wanted.borrow_mut() = Some((name.to_string(), kind));
                used.set(true);
                return Some(Value::int(PLACEHOLDER));
            }
            self.resolve(n)
        };
        let cx = Context { target: self.target, mode: self.mode, resolve: &resolve, pc };
        let raw = parse_with(&cx, text)?;
        let mut bytes = raw.bytes();
        if used.get()
            && let Some((symbol, kind)) = wanted.into_inner()
        {
            let n = bytes.len();
            let literal = i64::from(raw.literal().unwrap_or(PLACEHOLDER as u32) as i32);
            for b in bytes.iter_mut().skip(n.saturating_sub(4)) {
                *b = 0;
            }
            let offset = pc as u64 + n as u64 - 4;
            self.out.sections[self.section].relocations.push(Relocation {
                offset,
                symbol,
                kind,
                addend: literal - PLACEHOLDER,
            });
        }
        self.count_registers(&raw.inst());
        self.out.sections[self.section].bytes.extend_from_slice(&bytes);
        Ok(())
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

    fn put(&mut self, v: Value, size: usize) {
        let bytes = &mut self.out.sections[self.section].bytes;
        let n = if v.float && size == 4 {
            u64::from((f64::from_bits(v.number as u64) as f32).to_bits())
        } else {
            v.number as u64
        };
        bytes.extend_from_slice(&n.to_le_bytes()[..size.min(8)]);
    }

    fn enter(&mut self, name: &str) {
        match self.out.sections.iter().position(|s| s.name == name) {
            Some(i) => self.section = i,
            None => {
                self.out.sections.push(Section { name: name.to_string(), align: 1, ..Section::default() });
                self.section = self.out.sections.len() - 1;
            }
        }
    }

    fn align(&mut self, to: u64, fill: Option<i64>, max: Option<i64>) -> Result<(), ParseError> {
        if !to.is_power_of_two() || to > 1 << 20 {
            return Err(ParseError { column: 0, message: "expected a power of two up to 2^20".into() });
        }
        let code = self.section == 0;
        let s = &mut self.out.sections[self.section];
        s.align = s.align.max(to);
        let pad = (s.bytes.len() as u64).next_multiple_of(to) - s.bytes.len() as u64;
        if max.is_some_and(|m| pad as i64 > m) {
            return Ok(());
        }
        for i in 0..pad {
            // code is filled with s_nop 0
            let nop = [0u8, 0, 0x80, 0xbf][(s.bytes.len() % 4).min(3)];
            s.bytes.push(match fill {
                Some(f) => f as u8,
                None if code && pad - i > 0 => nop,
                None => 0,
            });
        }
        Ok(())
    }

    fn directive(&mut self, text: &str) -> Result<(), ParseError> {
        let (name, args) = match text.find(char::is_whitespace) {
            Some(i) => (&text[..i], &text[i..]),
            None => (text, ""),
        };
        let base = name.len();
        let list = split(args);
        let at = |i: usize| base + list.get(i).map_or(0, |x| x.0);
        let shift = |i: usize| move |e: ParseError| ParseError { column: e.column + i, ..e };
        let arg = |i: usize| list.get(i).map_or("", |x| x.1);
        if let Some(d) = name.strip_prefix(".amdhsa_") {
            return self.amdhsa(d, args, base);
        }
        match name {
            ".end_amdhsa_kernel" => match self.kernel.take() {
                Some(k) => self.out.kernels.push(k),
                None => return Err(ParseError { column: 0, message: "no .amdhsa_kernel is open".into() }),
            },
            ".text" => self.enter(".text"),
            ".rodata" | ".data" | ".bss" => self.enter(name),
            ".section" => {
                let n = arg(0).trim_matches('"').to_string();
                self.enter(&n);
            }
            ".p2align" => {
                let n = self.value(arg(0)).map_err(shift(at(0)))?.number;
                let fill =
                    if arg(1).is_empty() { None } else { Some(self.value(arg(1)).map_err(shift(at(1)))?.number) };
                let max = if arg(2).is_empty() { None } else { Some(self.value(arg(2)).map_err(shift(at(2)))?.number) };
                self.align(1u64.checked_shl(n.clamp(0, 63) as u32).unwrap_or(0), fill, max)?;
            }
            ".align" | ".balign" => {
                let n = self.value(arg(0)).map_err(shift(at(0)))?.number;
                let fill =
                    if arg(1).is_empty() { None } else { Some(self.value(arg(1)).map_err(shift(at(1)))?.number) };
                self.align(n.max(0) as u64, fill, None)?;
            }
            ".byte" | ".short" | ".2byte" | ".hword" | ".value" | ".long" | ".4byte" | ".int" | ".word" | ".quad"
            | ".8byte" | ".float" | ".double" => {
                let size = match name {
                    ".byte" => 1,
                    ".short" | ".2byte" | ".hword" | ".value" => 2,
                    ".quad" | ".8byte" | ".double" => 8,
                    _ => 4,
                };
                for (i, (_, a)) in list.iter().enumerate() {
                    let mut v = self.value(a).map_err(shift(at(i)))?;
                    if matches!(name, ".float" | ".double") && !v.float {
                        v = Value::float(v.number as f64);
                    }
                    self.put(v, size);
                }
            }
            ".zero" | ".skip" | ".space" | ".fill" => {
                let n = self.value(arg(0)).map_err(shift(at(0)))?.number;
                let (size, fill) = if name == ".fill" {
                    let size = if arg(1).is_empty() { 1 } else { self.value(arg(1)).map_err(shift(at(1)))?.number };
                    (size, if arg(2).is_empty() { 0 } else { self.value(arg(2)).map_err(shift(at(2)))?.number })
                } else {
                    (1, if arg(1).is_empty() { 0 } else { self.value(arg(1)).map_err(shift(at(1)))?.number })
                };
                if !(0..=1 << 28).contains(&n) || !(0..=8).contains(&size) {
                    return Err(ParseError { column: at(0), message: "expected a size up to 256 MiB".into() });
                }
                for _ in 0..n {
                    self.put(Value::int(fill), size as usize);
                }
            }
            ".ascii" | ".asciz" | ".string" => {
                for (i, (_, a)) in list.iter().enumerate() {
                    let bytes = unquote(a)
                        .ok_or(ParseError { column: at(i), message: "expected a string in quotes".into() })?;
                    let out = &mut self.out.sections[self.section].bytes;
                    out.extend(bytes);
                    if name != ".ascii" {
                        out.push(0);
                    }
                }
            }
            ".globl" | ".global" | ".weak" => {
                for (_, a) in &list {
                    self.symbol(a).global = true;
                }
            }
            ".protected" | ".hidden" | ".internal" => {
                for (_, a) in &list {
                    self.symbol(a).visibility = Some(name[1..].to_string());
                }
            }
            ".type" => {
                let kind = arg(1).trim_start_matches(['@', '%', '#']).to_string();
                self.symbol(arg(0)).kind = Some(kind);
            }
            ".size" => {
                let v = self.value(arg(1)).map_err(shift(at(1)))?;
                self.symbol(arg(0)).size = v.number.max(0) as u64;
            }
            ".set" | ".equ" | ".equiv" => {
                let v = self.value(arg(1)).map_err(shift(at(1)))?;
                self.set(arg(0), v);
            }
            ".amdgcn_target" => {
                let id = args.trim().trim_matches('"').to_string();
                let arch = id.rsplit("--").next().unwrap_or("").split(':').next().unwrap_or("");
                if arch != self.target.info().name {
                    return Err(ParseError {
                        column: base + 1,
                        message: format!("the source is for `{arch}`, not {}", self.target),
                    });
                }
                self.out.target_id = Some(id);
            }
            ".local" | ".ident" | ".file" | ".loc" | ".addrsig" | ".addrsig_sym" | ".cfi_startproc"
            | ".cfi_endproc" | ".cfi_sections" | ".p2alignl" | ".amdgpu_hsa_kernel" | ".popsection"
            | ".pushsection" | ".version" => {
                if name == ".p2alignl" {
                    let n = self.value(arg(0)).map_err(shift(at(0)))?.number;
                    let fill = self.value(if arg(1).is_empty() { "0" } else { arg(1) }).map_err(shift(at(1)))?;
                    let to = 1i64.checked_shl(n.clamp(0, 20) as u32).unwrap_or(1);
                    while self.pc() % 4 != 0 {
                        self.put(Value::int(0), 1);
                    }
                    while self.pc() % to != 0 {
                        self.put(fill, 4);
                    }
                }
            }
            _ => return Err(ParseError { column: 0, message: format!("unknown directive `{name}`") }),
        }
        Ok(())
    }

    fn amdhsa(&mut self, d: &str, args: &str, base: usize) -> Result<(), ParseError> {
        let fail = |column: usize, message: String| Err(ParseError { column, message });
        match d {
            "code_object_version" => {
                self.out.code_object_version = Some(self.value(args)?.number);
                return Ok(());
            }
            "kernel" => {
                if self.kernel.is_some() {
                    return fail(0, "the previous .amdhsa_kernel is still open".into());
                }
                self.kernel = Some(KernelDirectives { name: args.trim().to_string(), values: BTreeMap::new() });
                return Ok(());
            }
            _ => {}
        }
        if !KERNEL_DIRECTIVES.contains(&d) {
            let near = KERNEL_DIRECTIVES.iter().min_by_key(|k| crate::target::distance(d, k)).copied().unwrap_or("");
            return fail(0, format!("unknown directive `.amdhsa_{d}`; did you mean `.amdhsa_{near}`?"));
        }
        let v = self.value(args).map_err(|e| ParseError { column: e.column + base, ..e })?.number;
        let Some(k) = &mut self.kernel else { return fail(0, "outside of .amdhsa_kernel".into()) };
        if k.values.insert(d.to_string(), v).is_some() {
            return fail(0, format!(".amdhsa_{d} is given twice"));
        }
        Ok(())
    }

    fn finish(self) -> Assembly {
        self.out
    }
}

fn name_is_minor(name: &str) -> bool {
    name.len() > 5
}

fn relocation_kind(word: &str) -> Option<&'static str> {
    Some(match word {
        "rel32@lo" => "rel32_lo",
        "rel32@hi" => "rel32_hi",
        "abs32@lo" => "abs32_lo",
        "abs32@hi" => "abs32_hi",
        "gotpcrel32@lo" => "gotpcrel32_lo",
        "gotpcrel32@hi" => "gotpcrel32_hi",
        "abs64" => "abs64",
        _ => return None,
    })
}

/// Takes comments out, keeping columns.
fn strip(line: &str, open: &mut bool) -> String {
    let mut out = String::with_capacity(line.len());
    let mut quoted = false;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if *open {
            let n = if rest.starts_with("*/") {
                *open = false;
                2
            } else {
                c.len_utf8()
            };
            out.extend(std::iter::repeat_n(' ', n));
            rest = &rest[n..];
            continue;
        }
        if !quoted && (c == ';' || rest.starts_with("//") || (c == '#' && out.trim().is_empty())) {
            break;
        }
        if !quoted && rest.starts_with("/*") {
            *open = true;
            continue;
        }
        if c == '"' && !out.ends_with('\\') {
            quoted = !quoted;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out.truncate(out.trim_end().len());
    out
}

/// Splits arguments at commas outside quotes and brackets: (offset, text).
fn split(args: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let (mut start, mut depth, mut quoted, mut last) = (0, 0usize, false, ' ');
    let mut push = |a: usize, b: usize| {
        let part = &args[a..b];
        let lead = part.len() - part.trim_start().len();
        out.push((a + lead, part.trim()));
    };
    for (i, c) in args.char_indices() {
        match c {
            '"' if last != '\\' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                push(start, i);
                start = i + 1;
            }
            _ => {}
        }
        last = c;
    }
    if !args[start..].trim().is_empty() {
        push(start, args.len());
    }
    out
}

fn unquote(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.to_string().bytes());
            continue;
        }
        match chars.next()? {
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            'r' => out.push(b'\r'),
            '0' => out.push(0),
            'x' => {
                let hex: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&hex, 16).ok()?);
            }
            other => out.extend(other.to_string().bytes()),
        }
    }
    Some(out)
}
