//! The assembler: a whole source text to sections, symbols and kernel descriptions.
//!
//! One pass. A statement whose symbols are all known is done at once. One that names a symbol which comes later keeps
//! its place: a branch or literal field of the usual size is left for it, as every assembler of this architecture does,
//! and the statement is read again at the end with all symbols known. Symbols that another file defines, or that lie
//! in another section, become relocations. Object files are written elsewhere; what comes out here is plain data.
//!
//! `source` cuts text into statements and arguments, `macros` expands `.macro`, `.rept` and `.if`, `directives` holds
//! what starts with a dot, `state` the sections, symbols and what is still open.

mod directives;
pub(crate) mod disasm;
mod macros;
mod source;
mod state;

pub use directives::{DIRECTIVES, KERNEL_DIRECTIVES};

use crate::{Mode, Target};
use std::collections::{BTreeMap, BTreeSet};
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
    /// It is part of the program (else notes, comments, debug information).
    pub loaded: bool,
    /// The program may write it.
    pub writable: bool,
    /// It holds code.
    pub executable: bool,
    /// It holds zeros only and takes no space in a file (`.bss`).
    pub zeros: bool,
    /// Places that the linker fills in.
    pub relocations: Vec<Relocation>,
}

/// A place that refers to a symbol which this source does not define, or which the linker moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Offset in the section, bytes.
    pub offset: u64,
    /// Symbol.
    pub symbol: String,
    /// What goes there.
    pub kind: RelocationKind,
    /// Added to the symbol's address.
    pub addend: i64,
}

/// What a linker puts at a place; S is the symbol's address, A the addend, P the place's address, G the address of
/// the symbol's entry in the global offset table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocationKind {
    /// S + A, 32 bits.
    Abs32,
    /// Low half of S + A.
    Abs32Lo,
    /// High half of S + A.
    Abs32Hi,
    /// S + A, 64 bits.
    Abs64,
    /// S + A - P, 32 bits.
    Rel32,
    /// Low half of S + A - P.
    Rel32Lo,
    /// High half of S + A - P.
    Rel32Hi,
    /// S + A - P, 64 bits.
    Rel64,
    /// Low half of G + A - P.
    GotPcRel32Lo,
    /// High half of G + A - P.
    GotPcRel32Hi,
    /// (S + A - P) / 4 - 1 in the low 16 bits of an instruction: a branch.
    Rel16,
}

/// A name in a section, or an absolute one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// It has a value here; else another file must define it.
    pub defined: bool,
    /// Index of the section; none for absolute symbols.
    pub section: Option<usize>,
    /// Offset in the section, or the value.
    pub value: i64,
    /// `.size`, bytes.
    pub size: u64,
    /// `.globl` or `.weak`.
    pub global: bool,
    /// `.weak`.
    pub weak: bool,
    /// `.protected`, `.hidden`, `.internal` or nothing.
    pub visibility: Visibility,
    /// `.type`.
    pub kind: SymbolType,
}

/// Who sees a global symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Visibility {
    /// Everybody, and another file may replace it.
    #[default]
    Default,
    /// Everybody, but it cannot be replaced.
    Protected,
    /// Only this file.
    Hidden,
}

/// What a symbol names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SymbolType {
    /// Anything.
    #[default]
    None,
    /// Code.
    Function,
    /// Data.
    Object,
}

/// What stands between `.amdhsa_kernel` and `.end_amdhsa_kernel`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelDirectives {
    /// Kernel name; its descriptor is `name.kd`.
    pub name: String,
    /// Where it opens.
    pub line: usize,
    /// Section and offset of the 64 bytes that were left for the descriptor.
    pub place: (usize, u64),
    /// Directives in the order of the source.
    pub values: Vec<KernelDirective>,
}

/// One `.amdhsa_` directive.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelDirective {
    /// Name without `.amdhsa_`.
    pub name: &'static str,
    /// Its number.
    pub value: i64,
    /// Line of the source, from 1.
    pub line: usize,
}

impl KernelDirectives {
    /// The value of a directive, where it is given.
    pub fn value(&self, name: &str) -> Option<i64> {
        self.values.iter().find(|d| d.name == name).map(|d| d.value)
    }
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
    /// Column in bytes, from 1.
    pub column: usize,
    /// Column behind the word that is meant.
    pub end: usize,
    /// What is wrong.
    pub message: String,
    /// The line's text.
    pub text: String,
    /// Other places that have to do with it.
    pub related: Vec<Related>,
}

/// A place that helps to understand a mistake made elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Related {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Column behind what is meant.
    pub end: usize,
    /// What is there.
    pub message: String,
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if self.text.is_empty() {
            return Ok(());
        }
        // Tabs stay tabs, so that the caret stands below its character.
        let before = self.text.get(..self.column.saturating_sub(1)).unwrap_or(&self.text);
        let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        write!(f, "\n  {}\n  {indent}^", self.text)
    }
}

impl std::error::Error for AsmError {}

/// Assembles a source text.
///
/// Fails with every mistake found (at most 100).
pub fn assemble(target: Target, mode: Mode, source: &str) -> Result<Assembly, Vec<AsmError>> {
    // branches that must not be as long as they came out: each round finds those that the last one made so
    let mut padded = BTreeSet::new();
    loop {
        let mut state = state::State::new(target, mode, source, padded);
        state.run(source);
        let (result, more) = state.finish()?;
        if more.is_empty() {
            return Ok(result);
        }
        padded = more;
    }
}
