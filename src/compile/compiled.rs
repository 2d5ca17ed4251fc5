//! A compiled model: in memory, and as one ELF file of code, launch plan and weights.

use super::KernelIr;
use super::weights::Weights;
use crate::codeobj::{self, Abi, CodeObject, Contents, ElfFile, MakeBytes, Section};
use crate::graph::Note;
use crate::output;
use crate::runtime::plan::{KernelStats, PLAN_SECTION, Plan, WEIGHTS_SECTION};
use crate::text::printable;
use barewave_isa::Target;
use bytes::Bytes;
use crc32fast::Hasher;
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What stands behind the ELF file: these bytes, and the CRC-32 of the file before them. Tools that rewrite a file leave it out.
const SEAL: [u8; 8] = *b"bw-crc32";

/// Bytes of a part that is summed on its own when a file is read.
const PART: usize = 4 << 20;

/// A compiled model.
#[derive(Clone, Debug)]
pub struct Compiled {
    target: Target,
    /// One for each of the shapes it was compiled for, at least one.
    plans: Vec<Plan>,
    code: Code,
    weights: Weights,
    ir: Vec<KernelIr>,
    notes: Vec<Note>,
}

#[derive(Clone, Debug)]
enum Code {
    /// Kernels as they were compiled, and the file of them alone.
    Kernels(Vec<codeobj::Kernel>, Bytes),
    /// A file that was read, with everything in it.
    File(Bytes),
}

/// Why a compiled file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is not a code object.
    #[error("{path}: {source}")]
    CodeObject {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: codeobj::Error,
    },
    /// It is a code object without a model.
    #[error("{path} has no {section} section: it is code without a model; run its kernels with `barewave launch`")]
    NoModel {
        /// The file.
        path: PathBuf,
        /// The section that is missing.
        section: &'static str,
    },
    /// It is not what was written.
    #[error(
        "{path} is damaged: it does not have the checksum that it was written with; copy it again, or compile the model again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Its launch plan cannot be read.
    #[error("{path}: the launch plan cannot be read: {reason}")]
    Plan {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Compiled {
    pub(super) fn new(
        target: Target,
        plans: Vec<Plan>,
        kernels: Vec<codeobj::Kernel>,
        weights: Weights,
        ir: Vec<KernelIr>,
        notes: Vec<Note>,
    ) -> Result<Compiled, codeobj::Error> {
        let file = object(target, &kernels, Abi::V5, Vec::new()).to_bytes()?.into();
        Ok(Compiled { target, plans, code: Code::Kernels(kernels, file), weights, ir, notes })
    }

    /// Target of the code.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The launch plan: inputs, outputs, launches; for the first of the shapes it was compiled for.
    pub fn plan(&self) -> &Plan {
        &self.plans[0]
    }

    /// The launch plans for all shapes it was compiled for, at least one.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// What is known of each kernel of the first plan without running it, in order of the first launches.
    pub fn stats(&self) -> &[KernelStats] {
        &self.plans[0].kernels
    }

    /// How many kernels it has, those that several plans launch once.
    pub fn kernel_count(&self) -> usize {
        let names = self.plans.iter().flat_map(|p| p.kernels.iter().map(|k| k.kernel.as_str()));
        names.collect::<BTreeSet<_>>().len()
    }

    /// What its user should know about the model.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// True when the static verifier has passed the code, as it does with everything that was compiled here.
    pub fn is_verified(&self) -> bool {
        matches!(self.code, Code::Kernels(..))
    }

    /// Size of [`Compiled::weights`] in bytes.
    pub fn weights_len(&self) -> usize {
        MakeBytes::len(&self.weights)
    }

    /// What tells its weights from those of another compiled model without reading what lies at the addresses `held`, whose
    /// owner keeps them as they are.
    pub(crate) fn weights_identity(&self, held: &FxHashSet<usize>) -> u128 {
        self.weights.identity(held)
    }

    /// Hands out [`Compiled::weights`] piece by piece, with the place of each, and keeps nothing.
    pub(crate) fn weight_pieces<E>(&self, take: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
        self.weights.pieces(take)
    }

    /// Constants as the kernels want them, all in one piece, which is kept.
    pub fn weights(&self) -> &Bytes {
        self.weights.bytes()
    }

    /// Machine IR of the kernels, in the order of [`Compiled::stats`]; empty unless the compiler was asked to keep it.
    pub fn ir(&self) -> &[KernelIr] {
        &self.ir
    }

    /// An ELF file with the code, for a device to load. Whether it also holds plan and weights is left open.
    pub fn code(&self) -> &Bytes {
        let (Code::File(bytes) | Code::Kernels(_, bytes)) = &self.code;
        bytes
    }

    /// Writes the whole file: code, plan and weights, and behind them a checksum. A model that was loaded is written as it was, whatever `abi` says.
    pub fn write_to(&self, abi: Abi, to: &mut dyn Write) -> Result<(), codeobj::Error> {
        self.write_with(&self.plan_text()?, abi, to)
    }

    /// The plans as they stand in the file that is written.
    fn plan_text(&self) -> std::io::Result<Vec<u8>> {
        match &self.code {
            Code::File(_) => Ok(Vec::new()),
            Code::Kernels(..) => serde_json::to_vec(&self.plans).map_err(std::io::Error::other),
        }
    }

    fn write_with(&self, plans: &[u8], abi: Abi, to: &mut dyn Write) -> Result<(), codeobj::Error> {
        match &self.code {
            Code::File(bytes) => Ok(to.write_all(bytes)?),
            Code::Kernels(kernels, _) => {
                let sections = vec![
                    Section { name: PLAN_SECTION.to_string(), data: Contents::Bytes(Cow::Borrowed(plans)) },
                    Section { name: WEIGHTS_SECTION.to_string(), data: Contents::Made(&self.weights) },
                ];
                let mut sealed = Sealed { to, sum: Hasher::new() };
                object(self.target, kernels, abi, sections).write_to(&mut sealed)?;
                Ok(sealed.end()?)
            }
        }
    }

    /// Saves the model as one ELF file, whole or not at all.
    pub fn save(&self, path: &Path, abi: Abi) -> std::io::Result<()> {
        // What sections, their headers and the seal take besides.
        const MORE: usize = 16 << 10;
        let plans = self.plan_text()?;
        let bytes = match &self.code {
            Code::File(bytes) => bytes.len(),
            Code::Kernels(_, code) => code.len() + plans.len() + self.weights.len() + MORE,
        };
        let fill = |w: &mut dyn Write| self.write_with(&plans, abi, w).map_err(std::io::Error::other);
        output::write_large(path, bytes as u64, fill)
    }

    /// Loads a file that [`Compiled::save`] wrote.
    pub fn load(path: &Path) -> Result<Compiled, LoadError> {
        let bytes = crate::mapped::read_file(path).map_err(|source| LoadError::Io { path: path.into(), source })?;
        Compiled::from_bytes(bytes.into(), path)
    }

    /// As [`Compiled::load`], from the bytes of the file; `path` is for messages.
    pub fn from_bytes(bytes: Bytes, path: &Path) -> Result<Compiled, LoadError> {
        let unreadable = |source| LoadError::CodeObject { path: path.into(), source };
        let damaged = |reason: String| LoadError::Plan { path: path.into(), reason };
        if !keeps_seal(&bytes) {
            return Err(LoadError::Damaged { path: path.into() });
        }
        let file = ElfFile::parse(&bytes).map_err(unreadable)?;
        let section = |section: &'static str| {
            let range = file.section(section).ok_or_else(|| LoadError::NoModel { path: path.into(), section })?;
            if bytes.get(range.clone()).is_none() {
                return Err(damaged(format!("section {section} lies outside of the file")));
            }
            Ok(bytes.slice(range))
        };
        let mut plans: Vec<Plan> =
            serde_json::from_slice(&section(PLAN_SECTION)?).map_err(|e| damaged(e.to_string()))?;
        for plan in &mut plans {
            for port in plan.inputs.iter_mut().chain(&mut plan.outputs) {
                port.name = printable(&port.name).into_owned();
            }
            for launch in &mut plan.launches {
                launch.step = printable(&launch.step).into_owned();
            }
        }
        let first = plans.first().ok_or_else(|| damaged("it is empty".into()))?;
        let target = Target::parse(&first.target).map_err(|e| damaged(e.to_string()))?;
        let weights = Weights::read(section(WEIGHTS_SECTION)?);
        Ok(Compiled { target, plans, code: Code::File(bytes), weights, ir: Vec::new(), notes: Vec::new() })
    }
}

/// Sums what is written.
struct Sealed<'a> {
    to: &'a mut dyn Write,
    sum: Hasher,
}

impl Sealed<'_> {
    /// Writes the seal.
    fn end(self) -> std::io::Result<()> {
        self.to.write_all(&SEAL)?;
        self.to.write_all(&self.sum.finalize().to_le_bytes())
    }
}

impl Write for Sealed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// True unless a file has a seal, and other contents than when it got that.
fn keeps_seal(file: &[u8]) -> bool {
    let Some((rest, sum)) = file.split_last_chunk::<4>() else { return true };
    let Some((contents, seal)) = rest.split_last_chunk::<8>() else { return true };
    if *seal != SEAL {
        return true;
    }
    let of = |part: &[u8]| {
        let mut sum = Hasher::new();
        sum.update(part);
        sum
    };
    let joined = |mut first: Hasher, second: Hasher| {
        first.combine(&second);
        first
    };
    contents.par_chunks(PART).map(of).reduce(Hasher::new, joined).finalize() == u32::from_le_bytes(*sum)
}

fn object<'a>(target: Target, kernels: &[codeobj::Kernel], abi: Abi, sections: Vec<Section<'a>>) -> CodeObject<'a> {
    CodeObject { target, abi, kernels: kernels.to_vec(), sections }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_long_file_counts() {
        let bytes: Vec<u8> = (0..2 * PART + 77).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut file = Vec::new();
        let mut sealed = Sealed { to: &mut file, sum: Hasher::new() };
        bytes.chunks(PART / 3 + 5).for_each(|some| sealed.write_all(some).unwrap());
        sealed.end().unwrap();
        assert!(file.starts_with(&bytes) && keeps_seal(&file));
        for at in [0, PART - 1, PART, 2 * PART, bytes.len() - 1, file.len() - 1] {
            file[at] ^= 1;
            assert!(!keeps_seal(&file), "byte {at}");
            file[at] ^= 1;
        }
        file.remove(PART);
        assert!(!keeps_seal(&file));
    }
}
