//! What starts with a dot: sections, data, symbols, kernel descriptions.

use super::source::{plain, split, unquote};
use super::state::{Outcome, State, section};
use super::*;
use crate::text::lex::ParseError;

/// Most bytes that one directive may put.
const MAX_FILL: i64 = 1 << 28;

/// Arguments of a directive.
pub(super) struct Args<'a> {
    /// Offset and text of each.
    list: Vec<(usize, &'a str)>,
    /// Where the arguments start in the statement.
    base: usize,
}

impl<'a> Args<'a> {
    pub fn new(text: &'a str, base: usize) -> Args<'a> {
        Args { list: split(text), base }
    }
    pub fn text(&self, i: usize) -> &'a str {
        self.list.get(i).map_or("", |x| x.1)
    }
    pub fn column(&self, i: usize) -> usize {
        self.base + self.list.get(i).map_or(0, |x| x.0)
    }
    fn at<T>(&self, i: usize, result: Outcome<T>) -> Outcome<T> {
        result.map_err(|e| ParseError { column: e.column + self.column(i), ..e })
    }
}

impl State<'_> {
    pub(super) fn directive(&mut self, text: &str) -> Outcome {
        let (name, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
        let base = name.len();
        if let Some(d) = name.strip_prefix(".amdhsa_") {
            return self.amdhsa(d, rest, base);
        }
        let args = Args::new(rest, base);
        match name {
            ".end_amdhsa_kernel" => return self.end_kernel(),
            ".text" | ".rodata" | ".data" | ".bss" => self.enter(name, None, None),
            ".section" => self.section(&args)?,
            ".pushsection" => {
                self.stack.push((self.section, self.previous));
                self.section(&args)?;
            }
            ".popsection" => match self.stack.pop() {
                Some(s) => (self.section, self.previous) = s,
                None => return fail("no .pushsection is open".into()),
            },
            ".previous" => std::mem::swap(&mut self.section, &mut self.previous),
            ".p2align" | ".p2alignl" | ".p2alignw" | ".align" | ".balign" | ".balignl" | ".balignw" => {
                self.align(name, &args)?;
            }
            ".byte" | ".short" | ".2byte" | ".hword" | ".value" | ".long" | ".4byte" | ".int" | ".word" | ".quad"
            | ".8byte" | ".float" | ".single" | ".double" => {
                let size = match name {
                    ".byte" => 1,
                    ".short" | ".2byte" | ".hword" | ".value" => 2,
                    ".quad" | ".8byte" | ".double" => 8,
                    _ => 4,
                };
                let float = matches!(name, ".float" | ".single" | ".double");
                self.not_zeros(name)?;
                for (i, (_, a)) in args.list.iter().enumerate() {
                    let done = self.put(a, size, float, args.column(i));
                    args.at(i, done)?;
                }
            }
            ".zero" | ".skip" | ".space" | ".fill" => self.fill(name, &args)?,
            ".ascii" | ".asciz" | ".string" => {
                self.not_zeros(name)?;
                for (i, (_, a)) in args.list.iter().enumerate() {
                    let message = "expected a string in quotes".into();
                    let bytes = unquote(a).ok_or(ParseError { column: args.column(i), message })?;
                    let out = &mut self.out.sections[self.section].bytes;
                    out.extend(bytes);
                    if name != ".ascii" {
                        out.push(0);
                    }
                }
            }
            ".globl" | ".global" | ".weak" => {
                for (_, a) in &args.list {
                    let s = self.symbol(plain(a));
                    s.global = true;
                    s.weak |= name == ".weak";
                }
            }
            ".protected" | ".hidden" | ".internal" => {
                for (_, a) in &args.list {
                    let v = if name == ".protected" { Visibility::Protected } else { Visibility::Hidden };
                    self.symbol(plain(a)).visibility = v;
                }
            }
            ".local" => args.list.iter().for_each(|(_, a)| self.symbol(plain(a)).global = false),
            ".type" => {
                let kind = match args.text(1).trim_start_matches(['@', '%', '#']) {
                    "function" | "STT_FUNC" => SymbolType::Function,
                    "object" | "STT_OBJECT" => SymbolType::Object,
                    "notype" | "STT_NOTYPE" => SymbolType::None,
                    // The type that code objects of version 2 give their kernels.
                    "amdgpu_hsa_kernel" => SymbolType::Function,
                    other => {
                        let message = format!("unknown type `{other}`: @function, @object or @notype");
                        return Err(ParseError { column: args.column(1), message });
                    }
                };
                self.symbol(plain(args.text(0))).kind = kind;
            }
            ".size" => {
                let done = self.set_size(plain(args.text(0)), args.text(1), args.column(1));
                args.at(1, done)?;
            }
            ".set" | ".equ" | ".equiv" => {
                let symbol = args.text(0);
                if name == ".equiv" && self.is_defined(symbol) {
                    return Err(self.defined_twice(symbol, args.column(0)));
                }
                self.set(symbol, args.text(1), args.column(1))?;
            }
            ".amdgcn_target" => {
                let id = plain(rest.trim()).to_string();
                let arch = id.rsplit("--").next().unwrap_or("").split(':').next().unwrap_or("");
                if arch != self.target.info().name {
                    let message = format!("the source is for `{arch}`, not {}", self.target);
                    return Err(ParseError { column: base + 1, message });
                }
                self.out.target_id = Some(id);
            }
            // What a code object does not carry.
            ".ident" | ".file" | ".loc" | ".addrsig" | ".addrsig_sym" | ".amdgpu_hsa_kernel" | ".version" => {}
            _ if name.starts_with(".cfi_") => {}
            _ => return fail(format!("unknown directive `{name}`")),
        }
        Ok(())
    }

    /// Makes a section the current one, with the flags of its first mention.
    fn enter(&mut self, name: &str, flags: Option<&str>, kind: Option<&str>) {
        self.previous = self.section;
        if let Some(i) = self.out.sections.iter().position(|s| s.name == name) {
            self.section = i;
            return;
        }
        let mut s = section(name);
        if let Some(f) = flags {
            (s.loaded, s.writable, s.executable) = (f.contains('a'), f.contains('w'), f.contains('x'));
        }
        if let Some(k) = kind {
            s.zeros = k == "nobits";
        }
        self.out.sections.push(s);
        self.section = self.out.sections.len() - 1;
    }

    fn section(&mut self, args: &Args) -> Outcome {
        let name = plain(args.text(0));
        if name.is_empty() {
            return Err(ParseError { column: args.column(0), message: "expected the name of a section".into() });
        }
        let flags = Some(args.text(1)).filter(|f| f.starts_with('"')).map(plain);
        let kind = Some(args.text(2)).filter(|k| !k.is_empty()).map(|k| k.trim_start_matches(['@', '%']));
        self.enter(name, flags, kind);
        Ok(())
    }

    fn not_zeros(&self, name: &str) -> Outcome {
        let s = &self.out.sections[self.section];
        if s.zeros { fail(format!("`{name}` in section {}, which holds zeros only", s.name)) } else { Ok(()) }
    }

    fn number(&self, args: &Args, i: usize, default: Option<i64>) -> Outcome<i64> {
        match (args.text(i), default) {
            ("", Some(d)) => Ok(d),
            ("", None) => Err(ParseError { column: args.column(i), message: "expected a number".into() }),
            (text, _) => args.at(i, self.value(text)).map(|v| v.number),
        }
    }

    fn align(&mut self, name: &str, args: &Args) -> Outcome {
        let n = self.number(args, 0, None)?;
        let to = if name.starts_with(".p2") { 1i64.checked_shl(n.clamp(0, 63) as u32).unwrap_or(0) } else { n };
        if !(1..=1 << 20).contains(&to) || to & (to - 1) != 0 {
            return Err(ParseError { column: args.column(0), message: "expected a power of two up to 2^20".into() });
        }
        let unit = match name.as_bytes()[name.len() - 1] {
            b'l' => 4,
            b'w' => 2,
            _ => 1,
        };
        let fill = if args.text(1).is_empty() { None } else { Some(self.number(args, 1, None)?) };
        let max = self.number(args, 2, Some(i64::MAX))?;
        let s = &mut self.out.sections[self.section];
        s.align = s.align.max(to as u64);
        let pad = s.bytes.len().next_multiple_of(to as usize) - s.bytes.len();
        if pad as i64 > max {
            return Ok(());
        }
        // Code is filled with s_nop 0, which is the same on every target.
        const NOP: [u8; 4] = 0xbf80_0000u32.to_le_bytes();
        let end = s.bytes.len() + pad;
        let (pattern, unit): ([u8; 4], usize) = match fill {
            Some(f) => ((f as u32).to_le_bytes(), unit),
            None if s.executable => (NOP, 4),
            None => ([0; 4], 1),
        };
        while !s.bytes.len().is_multiple_of(unit) && s.bytes.len() < end {
            s.bytes.push(0);
        }
        while s.bytes.len() < end {
            let n = unit.min(end - s.bytes.len());
            s.bytes.extend_from_slice(&pattern[..n]);
        }
        Ok(())
    }

    fn fill(&mut self, name: &str, args: &Args) -> Outcome {
        let count = self.number(args, 0, None)?;
        let (size, value) = match name {
            ".fill" => (self.number(args, 1, Some(1))?, self.number(args, 2, Some(0))?),
            _ => (1, self.number(args, 1, Some(0))?),
        };
        if !(0..=8).contains(&size) || !(0..=MAX_FILL).contains(&count) || count * size > MAX_FILL {
            return Err(ParseError { column: args.column(0), message: "expected a size up to 256 MiB".into() });
        }
        if value != 0 {
            self.not_zeros(name)?;
        }
        // A unit wider than four bytes has zeros above, as in the GNU assembler.
        let pattern = if size > 4 { (value as u32 as u64).to_le_bytes() } else { value.to_le_bytes() };
        let out = &mut self.out.sections[self.section].bytes;
        for _ in 0..count {
            out.extend_from_slice(&pattern[..size as usize]);
        }
        Ok(())
    }

    fn amdhsa(&mut self, d: &str, args: &str, base: usize) -> Outcome {
        let lead = args.len() - args.trim_start().len();
        match d {
            "code_object_version" => {
                self.out.code_object_version = Some(self.value(args)?.number);
                return Ok(());
            }
            "kernel" => {
                if let Some(line) = self.kernel.as_ref().map(|k| k.line) {
                    self.relate(line, "it opens here");
                    return fail("the previous .amdhsa_kernel is still open".into());
                }
                let name = plain(args.trim()).to_string();
                if name.is_empty() {
                    return Err(ParseError { column: base, message: "expected the name of a kernel".into() });
                }
                if let Some(line) = self.out.kernels.iter().find(|k| k.name == name).map(|k| k.line) {
                    self.relate(line, "the first description");
                    return Err(ParseError {
                        column: base + lead,
                        message: format!("kernel `{name}` is described twice"),
                    });
                }
                self.kernel = Some(KernelDirectives { name, line: self.line, ..KernelDirectives::default() });
                return Ok(());
            }
            _ => {}
        }
        let Some(&name) = KERNEL_DIRECTIVES.iter().find(|k| **k == d) else {
            let near =
                KERNEL_DIRECTIVES.iter().min_by_key(|k| crate::model::target::distance(d, k)).copied().unwrap_or("");
            return fail(format!("unknown directive `.amdhsa_{d}`; did you mean `.amdhsa_{near}`?"));
        };
        if self.kernel.is_none() {
            return fail("outside of .amdhsa_kernel".into());
        }
        let value = self
            .kernel_value(args.trim_start(), base + lead)
            .map_err(|e| ParseError { column: e.column + base + lead, ..e })?;
        let line = self.line;
        let Some(k) = &mut self.kernel else { return Ok(()) };
        if let Some(line) = k.values.iter().find(|v| v.name == name).map(|v| v.line) {
            self.relate(line, "given here first");
            return fail(format!(".amdhsa_{d} is given twice"));
        }
        k.values.push(KernelDirective { name, value, line });
        Ok(())
    }

    /// Leaves 64 bytes for the descriptor where the section stands, and names them.
    fn end_kernel(&mut self) -> Outcome {
        let Some(mut k) = self.kernel.take() else { return fail("no .amdhsa_kernel is open".into()) };
        let place = self.place();
        k.place = (place.section, place.offset as u64);
        let name = format!("{}.kd", k.name);
        if self.is_defined(&name) {
            return Err(self.defined_twice(&name, 0));
        }
        let s = self.symbol(&name);
        (s.defined, s.section, s.value) = (true, Some(place.section), place.offset);
        (s.kind, s.size) = (SymbolType::Object, 64);
        self.symbol(&k.name);
        let section = &mut self.out.sections[place.section];
        section.bytes.extend_from_slice(&[0; 64]);
        section.relocations.push(Relocation {
            offset: place.offset as u64 + 16,
            symbol: k.name.clone(),
            kind: RelocationKind::Rel64,
            addend: 16,
        });
        self.out.kernels.push(k);
        Ok(())
    }
}

/// Directives that the assembler takes, but for those of kernels ([`KERNEL_DIRECTIVES`]), in order.
#[rustfmt::skip]
pub const DIRECTIVES: &[&str] = &[
    ".2byte", ".4byte", ".8byte", ".align", ".amdgcn_target", ".amdgpu_metadata", ".amdhsa_code_object_version",
    ".amdhsa_kernel", ".ascii", ".asciz", ".balign", ".balignl", ".balignw", ".bss", ".byte", ".data", ".double",
    ".else", ".elseif", ".end", ".end_amdgpu_metadata", ".end_amdhsa_kernel", ".endif", ".endm", ".endmacro", ".endr",
    ".equ", ".equiv", ".err", ".error", ".exitm", ".fill", ".float", ".global", ".globl", ".hidden", ".hword", ".if",
    ".ifb", ".ifc", ".ifdef", ".ifeq", ".ifeqs", ".ifge", ".ifgt", ".ifle", ".iflt", ".ifnb", ".ifnc", ".ifndef",
    ".ifne", ".ifnes", ".ifnotdef", ".int", ".internal", ".irp", ".irpc", ".local", ".long", ".macro", ".p2align",
    ".p2alignl", ".p2alignw", ".popsection", ".previous", ".print", ".protected", ".purgem", ".pushsection", ".quad",
    ".rept", ".rodata", ".section", ".set", ".short", ".single", ".size", ".skip", ".space", ".string", ".text",
    ".type", ".value", ".warning", ".weak", ".word", ".zero",
];

fn fail<T>(message: String) -> Outcome<T> {
    Err(ParseError { column: 0, message })
}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_of_the_list_is_one() {
        assert!(DIRECTIVES.is_sorted());
        for d in DIRECTIVES {
            let target = crate::Target::parse("gfx942").unwrap();
            // Metadata are a block of their own, without arguments.
            let text =
                if d.contains("metadata") { ".amdgpu_metadata\n.end_amdgpu_metadata".into() } else { format!("{d} 1") };
            let errors = crate::assemble(target, crate::Mode::of(target), &text).err();
            let unknown = errors.iter().flatten().any(|e| e.message.contains("unknown directive"));
            assert!(!unknown, "{d}");
        }
    }
}
