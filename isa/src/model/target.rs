//! Targets and what differs between them besides instructions.

use crate::model::schema::Layout;
pub use crate::model::schema::{Quirk, Resource};
use crate::{Counter, CounterInfo, Op, OpInfo};

/// A GPU architecture by LLVM's name (`gfx942`), and which product of it is meant. Cheap to copy.
///
/// Two are equal when they have the same instructions: products run each other's code, and differ in how many compute units there
/// are and how fast they and memory go ([`Target::cus`], [`Target::facts`]).
#[derive(Clone, Copy)]
pub struct Target {
    index: u8,
    /// One more than its place among the architecture's products; 0: none is named.
    product: u8,
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        self.index == other.index
    }
}

impl Eq for Target {}

impl Ord for Target {
    fn cmp(&self, other: &Target) -> std::cmp::Ordering {
        self.index.cmp(&other.index)
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Target) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Target {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

/// How waits are spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitScheme {
    /// `s_waitcnt` with vmcnt, expcnt, lgkmcnt (gfx8, gfx9).
    Waitcnt,
    /// The same and `s_waitcnt_vscnt null, n` (gfx10, gfx11).
    WaitcntVscnt,
    /// One instruction per counter, `s_wait_loadcnt n` ... (gfx12).
    Split,
}

/// Static facts about a target (`target` line of its table).
#[derive(Clone, Debug)]
pub struct TargetInfo {
    /// `gfx942`.
    pub name: &'static str,
    /// The target whose line of `targets.isa` this one's begins from: the nearest relative, for whoever has no constants of its own.
    pub parent: Option<&'static str>,
    /// Code name (`cdna3`), for `--target`.
    pub code_name: &'static str,
    /// Products that carry it, normalised (`mi300x`), for `--target`.
    pub products: &'static [&'static str],
    /// What each of them has otherwise ([`Target::facts`]).
    pub product_facts: &'static [&'static [(&'static str, f64)]],
    /// EF_AMDGPU_MACH value of `e_flags`.
    pub elf_mach: u32,
    /// Feature bits of `e_flags` written by default (xnack and sramecc "any": 0x500 on gfx90a and gfx942).
    pub elf_features: u32,
    /// Of a generic target, the version that `e_flags` state; 0 of others.
    pub generic_version: u32,
    /// The generic target whose code runs here too.
    pub generic: Option<&'static str>,
    /// Wavefront size that our kernels use: 64 on GCN and CDNA, 32 on RDNA.
    pub wave_size: u32,
    /// Both wave sizes can run.
    pub wave32_and_64: bool,
    /// VGPRs per SIMD lane at the default wave size (sum that resident waves share).
    pub vgprs_per_simd: u32,
    /// Allocation granule in VGPRs at the default wave size.
    pub vgpr_granule: u32,
    /// Largest number of addressable VGPRs in one wave (256; 1024 on gfx1250).
    pub max_vgprs: u32,
    /// AGPRs addressable (0 or 256).
    pub max_agprs: u32,
    /// AGPRs are the upper part of one file shared with VGPRs (gfx90a on).
    pub unified_agprs: bool,
    /// VGPR and AGPR tuples must start at a multiple of this (2 from gfx90a to gfx950, else 1).
    pub vgpr_tuple_align: u8,
    /// Word 3 of a raw buffer descriptor (32-bit format, bounds checked against `num_records` in bytes).
    pub raw_buffer_word3: u32,
    /// Word 3 of the buffer descriptor of a wave's scratch, but for the index stride.
    pub scratch_buffer_word3: u32,
    /// Cache policy (as [`ModName::Cpol`](crate::ModName::Cpol) has it) of vector loads that see what other workgroups of the device
    /// have stored, of stores that they see when these are done, and, beside the bit that asks for a result, of atomics among
    /// workgroups of the device. Source: LLVM's memory model of the target, agent scope.
    pub device_load: u32,
    /// See `device_load`.
    pub device_store: u32,
    /// See `device_load`.
    pub device_atomic: u32,
    /// Layout of buffer descriptors.
    pub resource: Resource,
    /// User SGPRs that a kernel may have.
    pub max_user_sgprs: u32,
    /// Largest value of the kernel descriptor's count of user SGPRs.
    pub user_sgpr_field: u32,
    /// VGPRs that one step of the kernel descriptor's field stands for, in waves of 64.
    pub descriptor_vgprs: u32,
    /// The same in waves of 32.
    pub descriptor_vgprs32: u32,
    /// Bytes of a line of the instruction cache.
    pub icache_line: u32,
    /// Largest value of the kernel descriptor's instruction prefetch field, in lines.
    pub max_inst_pref: u32,
    /// What follows code, so that prefetching never leaves it: a dword, and how many lines of the cache it fills.
    pub code_padding: Option<(u32, u32)>,
    /// SGPRs that a wave32 kernel must have preloaded, with workgroup ids at their end (16 on gfx1100 and gfx1102:
    /// LLVM's user-sgpr-init16 bug), else 0.
    pub min_preloaded_sgprs: u16,
    /// SGPRs a kernel may use besides VCC and its like (102 or 106).
    pub max_sgprs: u32,
    /// The second source of a wide encoding with DPP may be scalar (gfx1150 on).
    pub dpp_scalar_src1: bool,
    /// 8-bit floats are AMD's FNUZ encodings (gfx942: one larger bias, one NaN, no infinities), not the OCP ones.
    pub fnuz: bool,
    /// Layout of WMMA operands; none where there is no WMMA, or an unknown one.
    pub wmma: Option<Layout>,
    /// SGPRs of a SIMD that resident waves share; 0 where every wave has a full set (gfx10 on).
    pub sgprs_per_simd: u32,
    /// Workgroups of more than one wave that a CU can hold: each needs a barrier.
    pub barriers: u32,
    /// Waves a SIMD can hold.
    pub max_waves: u32,
    /// Compute units of the largest product.
    pub cus: u32,
    /// SIMDs per CU.
    pub simds: u32,
    /// LDS bytes a workgroup may use.
    pub lds_bytes: u32,
    /// LDS allocation granule in bytes (descriptor field).
    pub lds_granule: u32,
    /// Most scalar operands (SGPR or literal) that one VALU instruction may read: 1, or 2 from gfx10 on.
    pub constant_bus: u8,
    /// VOP3 may carry a literal (gfx10 on).
    pub vop3_literal: bool,
    /// Registers have halves (`v1.l`).
    pub true16: bool,
    /// Workgroup ids come in TTMP registers (gfx12).
    pub architected_sgprs: bool,
    /// Flat scratch is set up by hardware (gfx942, gfx11 on).
    pub architected_flat_scratch: bool,
    /// Workitem ids are packed in v0, 10 bits each (gfx90a on).
    pub packed_workitem_ids: bool,
    /// How waits are spelled.
    pub waits: WaitScheme,
    /// Wait counters.
    pub counters: &'static [CounterInfo],
    /// Pieces (first bit, bits) of each counter in the field of `s_waitcnt`, low piece first.
    pub(crate) waitcnt: &'static [(Counter, &'static [(u32, u32)])],
    /// Data hazards between VALU and friends are interlocked (gfx10 on); otherwise wait states are needed.
    pub interlocked: bool,
    pub(crate) quirks: u64,
}

impl TargetInfo {
    /// True when the target has a quirk.
    #[inline]
    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirks >> quirk as u64 & 1 == 1
    }
    /// VGPRs that an operand's field can name. The rest of gfx1250's 1024 take `s_set_vgpr_msb`, which the compiler never emits.
    pub fn named_vgprs(&self) -> u32 {
        self.max_vgprs.min(256)
    }
    /// Waves of 32 lanes exist.
    pub fn has_wave32(&self) -> bool {
        self.wave32_and_64 || self.wave_size == 32
    }
    /// `e_flags` of a code object but for the features.
    pub fn elf_machine(&self) -> u32 {
        self.elf_mach | self.generic_version << GENERIC_SHIFT
    }
}

/// Where `e_flags` have the version of a generic target.
const GENERIC_SHIFT: u32 = 24;

/// A processor without tables of its own.
#[derive(Debug)]
pub(crate) struct Machine {
    pub name: &'static str,
    pub mach: u32,
    /// Whose facts hold.
    pub like: Target,
    /// Whose tables serve, too.
    pub decodes: bool,
}

/// A processor as the ELF machine number of a code object names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processor {
    /// LLVM's name.
    pub name: &'static str,
    /// The target whose facts about code objects hold.
    pub like: Target,
    /// Its tables decode the processor's code: it is the target itself, or one that differs in a few instructions only.
    pub decodes: bool,
}

impl Processor {
    /// The processor of an EF_AMDGPU_MACH number (the low 8 bits of `e_flags`); `None` when it is unknown.
    pub fn of_mach(mach: u32) -> Option<Processor> {
        let own = Target::by_elf_mach(mach).map(|t| Processor { name: t.info().name, like: t, decodes: true });
        own.or_else(|| {
            let m = crate::model::generated::MACHINES.iter().find(|m| m.mach == mach & 0xff)?;
            Some(Processor { name: m.name, like: m.like, decodes: m.decodes })
        })
    }
}

impl Target {
    /// A target by its place in the table, no product of it named.
    pub(crate) const fn of(index: u8) -> Target {
        Target { index, product: 0 }
    }

    /// Its place in the table.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.index)
    }

    /// Facts of the target.
    #[inline]
    pub fn info(self) -> &'static TargetInfo {
        &crate::model::generated::TARGETS[self.index().min(crate::model::generated::TARGETS.len() - 1)]
    }

    /// The product that was named, otherwise the architecture: what [`Target::parse`] makes the same target of.
    pub fn name(self) -> &'static str {
        let info = self.info();
        usize::from(self.product).checked_sub(1).and_then(|i| info.products.get(i)).unwrap_or(&info.name)
    }

    /// For people: `gfx942`, or `mi300a (gfx942)` where a product was named.
    pub fn title(self) -> String {
        let (name, architecture) = (self.name(), self.info().name);
        if name == architecture { name.to_string() } else { format!("{name} ({architecture})") }
    }

    /// What the product has otherwise than its architecture's column of `isa/latency/chips.csv`, by the names of that table's lines.
    /// Without a product: what the architecture's first one has.
    pub fn facts(self) -> &'static [(&'static str, f64)] {
        let place = usize::from(self.product).saturating_sub(1);
        self.info().product_facts.get(place).copied().unwrap_or_default()
    }

    /// Compute units of the product; without one, of the architecture's largest.
    pub fn cus(self) -> u32 {
        self.facts().iter().find(|f| f.0 == "cus").map_or(self.info().cus, |f| f.1 as u32)
    }

    /// The architecture's first product with so many compute units; the target as it is where there is none.
    pub fn of_units(self, cus: u32) -> Target {
        let mut all = (0..=self.info().products.len()).filter_map(|i| u8::try_from(i).ok());
        all.find_map(|product| Some(Target { product, ..self }).filter(|t| t.cus() == cus)).unwrap_or(self)
    }

    /// The product of this architecture that a driver means by a name as `AMD Radeon RX 7900 XT`; the target as it is where it
    /// is none that the table has.
    pub fn of_marketing_name(self, name: &str) -> Target {
        let name = plain(name);
        let found = self.info().products.iter().enumerate().filter(|(_, p)| name.contains(&plain(p)));
        let found = found.max_by_key(|(_, p)| p.len()).and_then(|(i, _)| u8::try_from(i + 1).ok());
        Target { product: found.unwrap_or(self.product), ..self }
    }

    /// The instruction as this target has it; `None` when it has not.
    #[inline]
    pub fn op(self, op: Op) -> Option<&'static OpInfo> {
        crate::model::opinfo::info(self, op)
    }
    /// True when the target has the instruction.
    pub fn has(self, op: Op) -> bool {
        self.op(op).is_some()
    }
}

/// A target name that is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown target `{name}`; did you mean `{nearest}`? known targets: {}", known())]
pub struct UnknownTarget {
    /// What was given.
    pub name: String,
    /// The known name that is most like it.
    pub nearest: &'static str,
}

/// A name without what people write differently.
fn plain(name: &str) -> String {
    name.to_lowercase().chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect()
}

fn known() -> String {
    Target::all().map(|t| t.info().name).collect::<Vec<_>>().join(", ")
}

/// Number of single-letter edits between two words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut left = i + 1;
        for j in 0..b.len() {
            let next = (row[j] + usize::from(x != b[j])).min(row[j + 1] + 1).min(left + 1);
            row[j] = left;
            left = next;
        }
        row[b.len()] = left;
    }
    row[b.len()]
}

impl Target {
    /// The targets whose code a device of this target runs: itself, and its generic one.
    pub fn runs_code_of(self, code: Target) -> bool {
        self == code || self.info().generic == Some(code.info().name)
    }

    /// All targets, in order of the table.
    pub fn all() -> impl Iterator<Item = Target> {
        (0..crate::model::generated::TARGETS.len()).filter_map(|i| u8::try_from(i).ok()).map(Target::of)
    }

    /// A target by architecture (`gfx942`), product (`MI300X`, `RX 7900 XTX`, which the target then stands for) or code name (`cdna3`);
    /// upper and lower case, spaces, dashes and underscores do not matter.
    pub fn parse(name: &str) -> Result<Target, UnknownTarget> {
        let word = plain(name);
        let mut nearest = ("", usize::MAX);
        for t in Target::all() {
            let i = t.info();
            for (place, &n) in [i.name, i.code_name].iter().chain(i.products).enumerate() {
                let d = distance(&word, &plain(n));
                if d == 0 {
                    let product = u8::try_from(place.saturating_sub(1)).unwrap_or(0);
                    return Ok(Target { product, ..t });
                }
                if d < nearest.1 {
                    nearest = (n, d);
                }
            }
        }
        Err(UnknownTarget { name: name.to_string(), nearest: nearest.0 })
    }

    /// The target of an `e_flags` machine number (its low 8 bits).
    pub fn by_elf_mach(mach: u32) -> Option<Target> {
        Target::all().find(|t| t.info().elf_mach == mach & 0xff)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.info().name)
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.info().name)
    }
}
