//! A code object as assembly text.
//!
//! Code is printed function by function; what lies between functions (padding) becomes `.fill`. On request come the
//! kernel descriptors as `.amdhsa_kernel` blocks, the metadata as YAML, and everything else that a file needs to be
//! assembled again: symbols, data, addresses in data. What is printed in full assembles to the same code, descriptors
//! and data; an instruction with bits that its text does not show is printed as `.long` for that reason.

use super::{Descriptor, ElfFile, Error, KernelInfo, SectionInfo, Symbol, SymbolKind, TargetId, metadata_to_yaml};
use barewave_isa::{Disassembly, Mode, Target, Visibility, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// What to print.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Only this kernel.
    pub kernel: Option<String>,
    /// Kernel descriptors as `.amdhsa_kernel` blocks.
    pub descriptors: bool,
    /// Metadata as `.amdgpu_metadata`.
    pub metadata: bool,
    /// Everything that is needed to assemble the text again.
    pub full: bool,
    /// Lanes of a wave; none: as each kernel's descriptor says.
    pub wave: Option<u8>,
    /// Names of register halves.
    pub true16: Option<bool>,
    /// Remarks behind the instructions at these addresses.
    pub remarks: BTreeMap<u64, String>,
}

/// Column where remarks begin.
const REMARKS: usize = 64;

/// Prints a code object. `bytes` is the whole file, `target` the tables to decode with.
///
/// Fails when the kernel asked for does not exist, the metadata is malformed, or writing fails.
pub fn list(file: &ElfFile, bytes: &[u8], target: Target, what: &Listing, out: &mut dyn Write) -> Result<(), Error> {
    if let Some(k) = &what.kernel
        && file.kernel(k).is_none()
    {
        let known: Vec<&str> = file.kernels.iter().map(|k| k.name.as_str()).collect();
        let what = format!("it does not exist; the file has: {}", known.join(", "));
        return Err(Error::Kernel { kernel: k.clone(), what });
    }
    let mut l = Lister { file, bytes, target, what, out, labels: 0 };
    l.head()?;
    for s in l.code_sections() {
        l.code(&s)?;
    }
    if what.full {
        l.data()?;
    } else if what.descriptors {
        for k in file.kernels.iter().filter(|k| what.kernel.as_ref().is_none_or(|name| *name == k.name)) {
            writeln!(l.out)?;
            l.descriptor(k)?;
        }
    }
    if what.metadata || what.full {
        l.metadata()?;
    }
    Ok(())
}

struct Lister<'a> {
    file: &'a ElfFile,
    bytes: &'a [u8],
    target: Target,
    what: &'a Listing,
    out: &'a mut dyn Write,
    /// Branch targets named so far.
    labels: usize,
}

impl Lister<'_> {
    fn head(&mut self) -> io::Result<()> {
        let id = TargetId::of_flags(self.target.info().name, self.file.e_flags);
        writeln!(self.out, "\t.amdgcn_target \"amdgcn-amd-amdhsa--{id}\"")?;
        if self.what.full {
            writeln!(self.out, "\t.amdhsa_code_object_version {}", self.file.version)?;
        }
        Ok(())
    }

    /// Sections of code; executable segments where the file names no sections.
    fn code_sections(&self) -> Vec<SectionInfo> {
        let named: Vec<SectionInfo> =
            self.file.sections.iter().filter(|s| s.executable && s.loaded && !s.file.is_empty()).cloned().collect();
        if !named.is_empty() {
            return named;
        }
        let segments = self.file.segments.iter().filter(|s| s.executable);
        segments
            .map(|s| SectionInfo {
                name: ".text".into(),
                addr: s.addr,
                size: s.mem_size,
                file: s.file.clone(),
                loaded: true,
                writable: s.writable,
                executable: true,
                align: 256,
            })
            .collect()
    }

    /// The kernel whose code lies at an address.
    fn kernel_at(&self, addr: u64) -> Option<&KernelInfo> {
        self.file.kernels.iter().find(|k| k.entry == addr)
    }

    fn mode(&self, kernel: Option<&KernelInfo>) -> Mode {
        let mut mode = Mode::of(self.target);
        // A function runs in its callers' waves: those of the kernels of the file.
        if let Some(k) = kernel.or(self.file.kernels.first()) {
            mode.wave64 = !k.descriptor.wave32();
        }
        if let Some(w) = self.what.wave {
            mode.wave64 = w == 64;
        }
        if let Some(t) = self.what.true16 {
            mode.true16 = t;
        }
        mode
    }

    fn code(&mut self, s: &SectionInfo) -> Result<(), Error> {
        let Some(code) = self.bytes.get(s.file.clone()) else { return Ok(()) };
        self.section_head(s)?;
        let inside = |a: u64| a.checked_sub(s.addr).filter(|at| *at < code.len() as u64).map(|at| at as usize);
        // Functions by offset; several symbols may name one place.
        let mut functions: BTreeMap<usize, Vec<&Symbol>> = BTreeMap::new();
        for f in self.file.symbols.iter().filter(|f| f.defined && !f.absolute && f.kind != SymbolKind::Object) {
            if let Some(at) = inside(f.addr) {
                functions.entry(at).or_default().push(f);
            }
        }
        let mut names: BTreeMap<usize, String> =
            functions.iter().map(|(at, list)| (*at, list[0].name.clone())).collect();
        // A kernel of version 2 has its descriptor in front of its code, which then has no name.
        let mut starts: BTreeSet<usize> = functions.keys().copied().collect();
        starts.extend(self.file.kernels.iter().filter_map(|k| inside(k.entry)));
        if starts.is_empty() {
            // nothing says what it holds
            starts.insert(0);
        }
        let starts: Vec<usize> = starts.into_iter().collect();
        let first = starts[0];
        if self.what.kernel.is_none() {
            self.gap(code, 0..first, true)?;
        }
        for (i, &start) in starts.iter().enumerate() {
            let next = starts.get(i + 1).copied().unwrap_or(code.len());
            let symbols = functions.get(&start).map(Vec::as_slice).unwrap_or(&[]);
            let size = symbols.iter().map(|f| f.size as usize).max().unwrap_or(0);
            let end = if size > 0 { next.min(start.saturating_add(size)) } else { next };
            let kernel = self.kernel_at(s.addr.wrapping_add(start as u64)).cloned();
            if let Some(name) = &self.what.kernel
                && kernel.as_ref().is_none_or(|k| k.name != *name)
            {
                continue;
            }
            if let (Some(k), true) = (&kernel, symbols.is_empty()) {
                names.insert(start, k.name.clone());
            }
            writeln!(self.out)?;
            if self.what.full {
                symbols.iter().try_for_each(|f| self.symbol(f))?;
            }
            let local: BTreeMap<usize, String> =
                names.range(start..end).map(|(at, n)| (at - start, n.clone())).collect();
            let mode = self.mode(kernel.as_ref());
            let disassembly = Disassembly::new(self.target, mode, &code[start..end], &local, self.labels);
            let mut text = String::new();
            for line in disassembly.lines() {
                if line.offset == 0 {
                    symbols.iter().skip(1).try_for_each(|f| writeln!(self.out, "{}:", f.name))?;
                }
                if let Some(label) = line.label {
                    self.labels += usize::from(!local.contains_key(&line.offset));
                    writeln!(self.out, "{label}:")?;
                }
                text.clear();
                text.push('\t');
                // Bits that no text shows (fields that the instruction ignores) stay as they are.
                if self.what.full
                    && let Some(raw) = &line.raw
                {
                    raw.print(&mut text);
                    let again = parse(self.target, mode, &text);
                    text.truncate(1);
                    if !again.is_ok_and(|again| again.bytes()[..] == *line.bytes) {
                        for w in line.bytes.chunks(4) {
                            let value = w.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
                            writeln!(self.out, "\t.long {value:#010x}")?;
                        }
                        text.push_str("// ");
                    }
                }
                line.print(&mut text);
                let address = s.addr.wrapping_add((start + line.offset) as u64);
                if let Some(remark) = self.what.remarks.get(&address) {
                    let column = text.len().max(REMARKS) - text.len();
                    text.extend(std::iter::repeat_n(' ', column));
                    text.push_str(" // ");
                    text.push_str(remark);
                }
                text.push('\n');
                self.out.write_all(text.as_bytes())?;
            }
            if self.what.full {
                for f in symbols.iter().filter(|f| f.size > 0) {
                    writeln!(self.out, "\t.size {}, {}", f.name, f.size)?;
                }
            }
            if self.what.kernel.is_none() {
                self.gap(code, end..next, true)?;
            }
        }
        Ok(())
    }

    /// Padding or data: runs of equal words as `.fill`, else `.long` and `.byte`.
    fn gap(&mut self, code: &[u8], range: std::ops::Range<usize>, words: bool) -> io::Result<()> {
        let bytes = &code[range];
        let unit = if words { 4 } else { 1 };
        let cut = bytes.len() / unit * unit;
        let units: Vec<&[u8]> = bytes[..cut].chunks(unit).collect();
        let mut i = 0;
        while i < units.len() {
            let run = units[i..].iter().take_while(|u| *u == &units[i]).count();
            let value = units[i].iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
            let enough = if words { 2 } else { 16 };
            if run >= enough {
                writeln!(self.out, "\t.fill {run}, {unit}, {value:#x}")?;
                i += run;
            } else if words {
                writeln!(self.out, "\t.long {value:#010x}")?;
                i += 1;
            } else {
                let same = |j: usize| units[j..].iter().take(16).take_while(|u| *u == &units[j]).count() >= 16;
                let n = (1..16.min(units.len() - i)).find(|&n| same(i + n)).unwrap_or(16.min(units.len() - i));
                let list: Vec<String> = units[i..i + n].iter().map(|u| format!("{:#04x}", u[0])).collect();
                writeln!(self.out, "\t.byte {}", list.join(", "))?;
                i += n;
            }
        }
        for b in &bytes[cut..] {
            writeln!(self.out, "\t.byte {b:#04x}")?;
        }
        Ok(())
    }

    fn section_head(&mut self, s: &SectionInfo) -> io::Result<()> {
        writeln!(self.out)?;
        if s.name == ".text" {
            writeln!(self.out, "\t.text")?;
        } else {
            let flags = [(s.loaded, 'a'), (s.writable, 'w'), (s.executable, 'x')]
                .iter()
                .filter(|f| f.0)
                .map(|f| f.1)
                .collect::<String>();
            let kind = if s.file.is_empty() { "nobits" } else { "progbits" };
            writeln!(self.out, "\t.section {},\"{flags}\",@{kind}", s.name)?;
        }
        if self.what.full {
            writeln!(self.out, "\t.p2align {}", s.align.trailing_zeros())?;
        }
        Ok(())
    }

    /// What a symbol is, without its place.
    fn symbol(&mut self, s: &Symbol) -> io::Result<()> {
        if s.global {
            writeln!(self.out, "\t.globl {}", s.name)?;
        }
        match s.visibility {
            Visibility::Default => {}
            Visibility::Protected => writeln!(self.out, "\t.protected {}", s.name)?,
            Visibility::Hidden => writeln!(self.out, "\t.hidden {}", s.name)?,
        }
        match s.kind {
            SymbolKind::Function => writeln!(self.out, "\t.type {},@function", s.name),
            SymbolKind::Object => writeln!(self.out, "\t.type {},@object", s.name),
            SymbolKind::Other => Ok(()),
        }
    }

    fn descriptor(&mut self, k: &KernelInfo) -> io::Result<()> {
        if let Some(text) = k.descriptor.to_directives(&k.name, self.file.family) {
            return self.out.write_all(text.as_bytes());
        }
        // Bits that no directive sets: as they are, the distance to the code by its symbol.
        writeln!(self.out, "{}.kd:", k.name)?;
        let raw = k.descriptor.to_bytes();
        self.gap(&raw, 0..Descriptor::ENTRY_AT, true)?;
        writeln!(self.out, "\t.quad {}@rel64+{}", k.name, Descriptor::ENTRY_AT)?;
        self.gap(&raw, Descriptor::ENTRY_AT + 8..Descriptor::SIZE, true)
    }

    /// Data of all loaded sections but code and what the layout makes itself.
    fn data(&mut self) -> Result<(), Error> {
        const MADE: [&str; 10] = [
            ".note",
            ".dynsym",
            ".gnu.hash",
            ".hash",
            ".dynstr",
            ".rela.dyn",
            ".dynamic",
            ".relro_padding",
            ".got",
            ".interp",
        ];
        let sections: Vec<SectionInfo> = self
            .file
            .sections
            .iter()
            .filter(|s| s.loaded && !s.executable && s.size > 0 && !MADE.contains(&s.name.as_str()))
            .cloned()
            .collect();
        for s in sections {
            self.section_head(&s)?;
            // Everything that starts something new, by address: symbols, descriptors, addresses in the data.
            let end = s.addr.saturating_add(s.size);
            let inside = |a: u64| (s.addr..end).contains(&a);
            let kernels: BTreeMap<u64, &KernelInfo> = self
                .file
                .kernels
                .iter()
                .filter(|k| inside(k.descriptor_addr))
                .map(|k| (k.descriptor_addr, k))
                .collect();
            let relocations: BTreeMap<u64, _> =
                self.file.relocations.iter().filter(|r| inside(r.addr)).map(|r| (r.addr, *r)).collect();
            let symbols: Vec<&Symbol> =
                self.file.symbols.iter().filter(|x| x.defined && !x.absolute && inside(x.addr)).collect();
            let mut cuts: BTreeSet<u64> = kernels.keys().chain(relocations.keys()).copied().collect();
            cuts.extend(symbols.iter().map(|x| x.addr));
            let mut at = s.addr;
            loop {
                for x in symbols.iter().filter(|x| x.addr == at && !x.name.ends_with(".kd")) {
                    self.symbol(x)?;
                    writeln!(self.out, "{}:", x.name)?;
                    if x.size > 0 {
                        writeln!(self.out, "\t.size {}, {}", x.name, x.size)?;
                    }
                }
                let next = if let Some(k) = kernels.get(&at) {
                    self.descriptor(k)?;
                    at + Descriptor::SIZE as u64
                } else if let Some(r) = relocations.get(&at) {
                    let target = self.address_name(r.kind, r.symbol, r.addend)?;
                    writeln!(self.out, "\t.quad {target}")?;
                    at + 8
                } else {
                    let next = cuts.range(at + 1..).next().copied().unwrap_or(end).min(end);
                    if s.file.is_empty() {
                        writeln!(self.out, "\t.zero {}", next - at)?;
                    } else {
                        let from = s.file.start + (at - s.addr) as usize;
                        let to = (s.file.start + (next - s.addr) as usize).min(s.file.end);
                        self.gap(self.bytes, from.min(to)..to, false)?;
                    }
                    next
                };
                if next >= end {
                    break;
                }
                at = next;
            }
        }
        Ok(())
    }

    /// An address in data, as a symbol and a distance.
    fn address_name(&self, kind: u32, symbol: usize, addend: i64) -> Result<String, Error> {
        const RELATIVE64: u32 = 13;
        let (base, name) = if kind == RELATIVE64 {
            let addr = addend as u64;
            let near = self.file.symbols.iter().filter(|s| s.defined && !s.absolute && s.addr <= addr);
            match near.max_by_key(|s| s.addr) {
                Some(s) => (addr - s.addr, s.name.clone()),
                None => return Err(Error::malformed("an address that no symbol is near to", format!("{addr:#x}"))),
            }
        } else {
            match self.file.dynamic_symbols.get(symbol) {
                Some(s) => (addend as u64, s.name.clone()),
                None => return Err(Error::malformed("a relocation without symbol", format!("symbol {symbol}"))),
            }
        };
        Ok(if base == 0 { name } else { format!("{name}+{}", base as i64) })
    }

    fn metadata(&mut self) -> Result<(), Error> {
        let Some(note) = self.file.metadata.clone().and_then(|r| self.bytes.get(r)) else { return Ok(()) };
        let text = metadata_to_yaml(note)?;
        writeln!(self.out, "\n\t.amdgpu_metadata\n{text}\t.end_amdgpu_metadata")?;
        Ok(())
    }
}
