//! `.amdhsa_` directives to kernel descriptors and back.
//!
//! Each directive that is a field of the descriptor is a row of [`FIELDS`]: word, place, the targets that have it and
//! its default. A few describe what the hardware counts in other units (registers, user SGPRs) and are computed.
//! Source: LLVM's "User Guide for AMDGPU Backend", section on code object v3 to v6 assembler directives; defaults
//! and checks compared with llvm-mc 22 by tests.

use super::{Descriptor, Error, Family, Properties};
use barewave_isa::{KERNEL_DIRECTIVES, KernelDirectives, Mode, Quirk};
use std::fmt::Write;

#[derive(Clone, Copy)]
enum Word {
    Lds,
    Scratch,
    Kernarg,
    Rsrc1,
    Rsrc2,
    Rsrc3,
    Properties,
    Preload,
}

/// A directive that is a run of bits of the descriptor.
struct Field {
    name: &'static str,
    word: Word,
    shift: u32,
    bits: u32,
    exists: fn(Family) -> bool,
    default: fn(Family, Mode) -> u32,
}

/// A directive for a value in user SGPRs takes this many of them.
const USER_SGPRS: [(&str, u32); 7] = [
    ("user_sgpr_private_segment_buffer", 4),
    ("user_sgpr_dispatch_ptr", 2),
    ("user_sgpr_queue_ptr", 2),
    ("user_sgpr_kernarg_segment_ptr", 2),
    ("user_sgpr_dispatch_id", 2),
    ("user_sgpr_flat_scratch_init", 2),
    ("user_sgpr_private_segment_size", 1),
];

#[rustfmt::skip]
const FIELDS: &[Field] = {
    const fn field(
        name: &'static str, word: Word, shift: u32, bits: u32, exists: fn(Family) -> bool, default: fn(Family, Mode) -> u32,
    ) -> Field {
        Field { name, word, shift, bits, exists, default }
    }
    const ALL: fn(Family) -> bool = |_| true;
    const ZERO: fn(Family, Mode) -> u32 = |_, _| 0;
    const ONE: fn(Family, Mode) -> u32 = |_, _| 1;
    const BY_KERNEL: fn(Family) -> bool = |f| !f.architected_flat_scratch();
    const PRELOAD: fn(Family) -> bool = |f| f.has(Quirk::KernargPreload);
    &[
        field("group_segment_fixed_size",        Word::Lds,        0, 32, ALL, ZERO),
        field("private_segment_fixed_size",      Word::Scratch,    0, 32, ALL, ZERO),
        field("kernarg_size",                    Word::Kernarg,    0, 32, ALL, ZERO),
        field("user_sgpr_private_segment_buffer", Word::Properties, 0, 1, BY_KERNEL, ZERO),
        field("user_sgpr_dispatch_ptr",          Word::Properties, 1, 1, ALL, ZERO),
        field("user_sgpr_queue_ptr",             Word::Properties, 2, 1, ALL, ZERO),
        field("user_sgpr_kernarg_segment_ptr",   Word::Properties, 3, 1, ALL, ZERO),
        field("user_sgpr_dispatch_id",           Word::Properties, 4, 1, ALL, ZERO),
        field("user_sgpr_flat_scratch_init",     Word::Properties, 5, 1, BY_KERNEL, ZERO),
        field("user_sgpr_kernarg_preload_length", Word::Preload,   0, 7, PRELOAD, ZERO),
        field("user_sgpr_kernarg_preload_offset", Word::Preload,   7, 9, PRELOAD, ZERO),
        field("user_sgpr_private_segment_size",  Word::Properties, 6, 1, ALL, ZERO),
        field("wavefront_size32",                Word::Properties, 10, 1, |f| f.has_wave32(), |_, m| u32::from(!m.wave64)),
        field("uses_dynamic_stack",              Word::Properties, 11, 1, ALL, ZERO),
        field("system_sgpr_private_segment_wavefront_offset", Word::Rsrc2, 0, 1, BY_KERNEL, ZERO),
        field("enable_private_segment",          Word::Rsrc2, 0, 1, |f| f.architected_flat_scratch(), ZERO),
        field("system_sgpr_workgroup_id_x",      Word::Rsrc2, 7, 1, ALL, ONE),
        field("system_sgpr_workgroup_id_y",      Word::Rsrc2, 8, 1, ALL, ZERO),
        field("system_sgpr_workgroup_id_z",      Word::Rsrc2, 9, 1, ALL, ZERO),
        field("system_sgpr_workgroup_info",      Word::Rsrc2, 10, 1, ALL, ZERO),
        field("system_vgpr_workitem_id",         Word::Rsrc2, 11, 2, ALL, ZERO),
        field("float_round_mode_32",             Word::Rsrc1, 12, 2, ALL, ZERO),
        field("float_round_mode_16_64",          Word::Rsrc1, 14, 2, ALL, ZERO),
        field("float_denorm_mode_32",            Word::Rsrc1, 16, 2, ALL, ZERO),
        field("float_denorm_mode_16_64",         Word::Rsrc1, 18, 2, ALL, |_, _| 3),
        field("dx10_clamp",                      Word::Rsrc1, 21, 1, |f| f.has_ieee_mode(), ONE),
        field("ieee_mode",                       Word::Rsrc1, 23, 1, |f| f.has_ieee_mode(), ONE),
        field("fp16_overflow",                   Word::Rsrc1, 26, 1, |f| f.has(Quirk::Fp16Overflow), ZERO),
        field("tg_split",                        Word::Rsrc3, 16, 1, |f| f.unified_agprs(), ZERO),
        field("workgroup_processor_mode",        Word::Rsrc1, 29, 1, |f| f.has(Quirk::WgpMode), ONE),
        field("memory_ordered",                  Word::Rsrc1, 30, 1, |f| f.has_wave32(), ONE),
        field("forward_progress",                Word::Rsrc1, 31, 1, |f| f.has_wave32(), ONE),
        field("shared_vgpr_count",               Word::Rsrc3, 0, 4, |f| f.has(Quirk::SharedVgprs), ZERO),
        field("inst_pref_size",                  Word::Rsrc3, 4, 6, |f| f.max_inst_pref() == 63, ZERO),
        field("inst_pref_size",                  Word::Rsrc3, 4, 8, |f| f.max_inst_pref() == 255, ZERO),
        field("round_robin_scheduling",          Word::Rsrc1, 21, 1, |f| f.has(Quirk::RoundRobin), ZERO),
        field("named_barrier_count",             Word::Rsrc3, 14, 3, |f| f.has(Quirk::NamedBarriers), ZERO),
        field("exception_fp_ieee_invalid_op",    Word::Rsrc2, 24, 1, ALL, ZERO),
        field("exception_fp_denorm_src",         Word::Rsrc2, 25, 1, ALL, ZERO),
        field("exception_fp_ieee_div_zero",      Word::Rsrc2, 26, 1, ALL, ZERO),
        field("exception_fp_ieee_overflow",      Word::Rsrc2, 27, 1, ALL, ZERO),
        field("exception_fp_ieee_underflow",     Word::Rsrc2, 28, 1, ALL, ZERO),
        field("exception_fp_ieee_inexact",       Word::Rsrc2, 29, 1, ALL, ZERO),
        field("exception_int_div_zero",          Word::Rsrc2, 30, 1, ALL, ZERO),
    ]
};

impl Field {
    fn mask(&self) -> u32 {
        (((1u64 << self.bits) - 1) << self.shift) as u32
    }
    fn get(&self, d: &Descriptor) -> u32 {
        let word = match self.word {
            Word::Lds => d.lds_bytes,
            Word::Scratch => d.scratch_bytes,
            Word::Kernarg => d.kernarg_size,
            Word::Rsrc1 => d.rsrc1,
            Word::Rsrc2 => d.rsrc2,
            Word::Rsrc3 => d.rsrc3,
            Word::Properties => d.properties.bits().into(),
            Word::Preload => d.kernarg_preload.into(),
        };
        (word & self.mask()) >> self.shift
    }
    fn put(&self, d: &mut Descriptor, value: u32) {
        let (mask, value) = (self.mask(), value << self.shift);
        let word = match self.word {
            Word::Lds => &mut d.lds_bytes,
            Word::Scratch => &mut d.scratch_bytes,
            Word::Kernarg => &mut d.kernarg_size,
            Word::Rsrc1 => &mut d.rsrc1,
            Word::Rsrc2 => &mut d.rsrc2,
            Word::Rsrc3 => &mut d.rsrc3,
            Word::Properties => {
                let bits = u32::from(d.properties.bits()) & !mask | value;
                d.properties = Properties::from_bits_retain(bits as u16);
                return;
            }
            Word::Preload => {
                d.kernarg_preload = (u32::from(d.kernarg_preload) & !mask | value) as u16;
                return;
            }
        };
        *word = *word & !mask | value;
    }
}

fn fields(family: Family) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |f| (f.exists)(family))
}

/// Registers that come on top of the numbered SGPRs: VCC, XNACK_MASK, FLAT_SCRATCH.
fn extra_sgprs(family: Family, vcc: bool, flat_scratch: bool, xnack: bool) -> u32 {
    if flat_scratch || family.has(Quirk::ReservedSgprs) {
        6
    } else if xnack {
        4
    } else {
        2 * u32::from(vcc)
    }
}

/// Most SGPRs that a program can name.
const MAX_SGPRS: u32 = 102;

impl Descriptor {
    /// The descriptor that directives ask for; `mode` gives the wave size where they leave it open, `xnack` tells
    /// whether the target id allows XNACK to be on. Fails naming line and directive when a value does not fit, a needed
    /// directive is missing, or the target lacks it.
    pub fn from_directives(k: &KernelDirectives, family: Family, mode: Mode, xnack: bool) -> Result<Descriptor, Error> {
        let error =
            |line: usize, what: String| Error::Kernel { kernel: k.name.clone(), what: format!("line {line}: {what}") };
        let mut d = Descriptor::default();
        for f in fields(family) {
            f.put(&mut d, (f.default)(family, mode));
        }
        for v in &k.values {
            let computed = match v.name {
                "next_free_vgpr" | "next_free_sgpr" | "user_sgpr_count" => true,
                "accum_offset" => family.unified_agprs(),
                "reserve_vcc" => true,
                "reserve_flat_scratch" => !family.architected_flat_scratch(),
                "reserve_xnack_mask" => true,
                _ => false,
            };
            if computed {
                continue;
            }
            let Some(f) = fields(family).find(|f| f.name == v.name) else {
                return Err(error(v.line, format!(".amdhsa_{} does not exist on this target", v.name)));
            };
            if v.value < 0 || v.value as u64 >> f.bits != 0 {
                return Err(error(v.line, format!(".amdhsa_{} {} does not fit {} bits", v.name, v.value, f.bits)));
            }
            f.put(&mut d, v.value as u32);
        }
        let line = |name: &str| k.values.iter().find(|v| v.name == name).map_or(k.line, |v| v.line);
        let number = |name: &'static str, most: u32| match k.value(name) {
            Some(v) if v < 0 || v > i64::from(most) => {
                Err(error(line(name), format!(".amdhsa_{name} {v} exceeds {most}")))
            }
            v => Ok(v.map(|v| v as u32)),
        };
        let needed = |name: &'static str, most: u32| match number(name, most)? {
            Some(v) => Ok(v),
            None => Err(error(k.line, format!(".amdhsa_{name} is missing"))),
        };

        let wave32 = d.wave32();
        let granule = family.vgpr_granule(wave32);
        let vgprs = needed("next_free_vgpr", 64 * granule)?.max(1);
        d.rsrc1 |= vgprs.div_ceil(granule) - 1;
        let sgprs = needed("next_free_sgpr", if family.counts_sgprs() { MAX_SGPRS } else { 128 })?;
        if family.counts_sgprs() {
            let vcc = number("reserve_vcc", 1)?.unwrap_or(1) == 1;
            let flat = number("reserve_flat_scratch", 1)?.unwrap_or(u32::from(!family.architected_flat_scratch())) == 1;
            let xnack = number("reserve_xnack_mask", 1)?.map_or(xnack, |v| v == 1);
            let all = sgprs + extra_sgprs(family, vcc, flat, xnack);
            d.rsrc1 |= (all.max(1).div_ceil(8) - 1) << 6;
        }
        if family.unified_agprs() {
            let offset = needed("accum_offset", 256)?;
            if offset < 4 || offset % 4 != 0 {
                return Err(error(
                    line("accum_offset"),
                    format!(".amdhsa_accum_offset {offset}: 4 to 256, a multiple of 4"),
                ));
            }
            if offset > vgprs.next_multiple_of(4) {
                return Err(error(
                    line("accum_offset"),
                    format!(".amdhsa_accum_offset {offset} exceeds the {vgprs} VGPRs"),
                ));
            }
            d.rsrc3 |= offset / 4 - 1;
        }
        let shared = fields(family).find(|f| f.name == "shared_vgpr_count").map_or(0, |f| f.get(&d));
        if shared > 0 && (wave32 || 2 * shared + (d.rsrc1 & 0x3f) > 63) {
            let why = if wave32 { "needs waves of 64 lanes" } else { "leaves too few VGPRs" };
            return Err(error(line("shared_vgpr_count"), format!(".amdhsa_shared_vgpr_count {shared} {why}")));
        }
        let implied = USER_SGPRS
            .iter()
            .filter(|(name, _)| k.value(name).is_some_and(|v| v != 0))
            .map(|x| x.1)
            .chain(k.value("user_sgpr_kernarg_preload_length").map(|v| v as u32))
            .sum::<u32>();
        let bits = family.max_user_sgpr_field();
        let users = number("user_sgpr_count", bits)?.unwrap_or(implied);
        if users < implied || users > bits {
            let what = format!("{users} user SGPRs, the directives need {implied}, the target has {}", bits.min(16));
            return Err(error(line("user_sgpr_count"), what));
        }
        d.rsrc2 |= users << 1;
        Ok(d)
    }

    /// The directives that give this descriptor, one a line, or none when it has bits that no directive sets.
    pub fn to_directives(&self, name: &str, family: Family) -> Option<String> {
        let mut out = format!("\t.amdhsa_kernel {name}\n");
        let mut line = |name: &str, value: u32| {
            let _ = writeln!(out, "\t\t.amdhsa_{name} {value}");
        };
        let mut values = KernelDirectives { name: name.into(), ..KernelDirectives::default() };
        let mut add = |name: &'static str, value: u32| {
            line(name, value);
            let value = i64::from(value);
            values.values.push(barewave_isa::KernelDirective { name, value, line: 0 });
        };
        for f in fields(family) {
            let directive = KERNEL_DIRECTIVES.iter().find(|d| **d == f.name)?;
            add(directive, f.get(self));
            if f.name == "user_sgpr_private_segment_size" {
                add("user_sgpr_count", u32::from(self.user_sgpr_count(family)));
            }
            if f.name == "system_vgpr_workitem_id" {
                add("next_free_vgpr", self.vgprs(family));
                if family.counts_sgprs() {
                    // The hardware's count, with all that a kernel may reserve taken off.
                    add("next_free_sgpr", (self.sgprs(family).saturating_sub(6)).min(MAX_SGPRS));
                    add("reserve_vcc", 1);
                    if !family.architected_flat_scratch() {
                        add("reserve_flat_scratch", 1);
                    }
                } else {
                    add("next_free_sgpr", 0);
                }
                if let Some(offset) = self.accum_offset(family) {
                    add("accum_offset", offset);
                }
            }
        }
        out.push_str("\t.end_amdhsa_kernel\n");
        // What the directives mean must be what the descriptor says.
        let mode = Mode { wave64: !self.wave32(), true16: false };
        let again = Descriptor::from_directives(&values, family, mode, false).ok()?;
        (Descriptor { entry_offset: self.entry_offset, ..again } == *self).then_some(out)
    }
}
