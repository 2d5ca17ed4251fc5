//! The parts of assembly text that are more than a number: counter fields, hardware registers, messages, lane
//! controls, cache policies, formats. Each notation has its printer here; the parser reads the same notations back.

use crate::model::codes::inline_code;
use crate::model::generated::{NAMES_DFMT, NAMES_FORMAT, NAMES_HWREG, NAMES_MSG, NAMES_NFMT};
use crate::model::schema::Quirk;
use crate::model::table::{Operand as Field, Style};
use crate::model::waits::unpack;
use crate::text::numbers;
use crate::{Counter, Flags, ModName, Target, Type};
use std::fmt::Write;

/// SDWA selects by number.
pub(crate) const SDWA_SEL: [&str; 7] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"];
/// SDWA treatment of unused bits by number.
pub(crate) const SDWA_UNUSED: [&str; 3] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"];
/// Image dimensions by number.
pub(crate) const DIMS: [&str; 8] = ["1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY"];
/// Matrix formats by number.
pub(crate) const MATRIX_FMT: [&str; 5] =
    ["MATRIX_FMT_FP8", "MATRIX_FMT_BF8", "MATRIX_FMT_FP6", "MATRIX_FMT_BF6", "MATRIX_FMT_FP4"];
/// Matrix scale rows by number.
pub(crate) const MATRIX_SCALE: [&str; 2] = ["MATRIX_SCALE_ROW0", "MATRIX_SCALE_ROW1"];
/// Matrix scale formats by number.
pub(crate) const MATRIX_SCALE_FMT: [&str; 3] =
    ["MATRIX_SCALE_FMT_E8", "MATRIX_SCALE_FMT_E5M3", "MATRIX_SCALE_FMT_E4M3"];

/// A list of names of one target.
fn names(all: &'static [&'static [(u16, &'static str)]], target: Target) -> &'static [(u16, &'static str)] {
    all.get(target.index()).copied().unwrap_or(&[])
}

fn name_of(list: &'static [(u16, &'static str)], id: u64) -> Option<&'static str> {
    list.iter().find(|n| u64::from(n.0) == id).map(|n| n.1)
}

pub(crate) fn id_of(list: &'static [(u16, &'static str)], name: &str) -> Option<u64> {
    list.iter().find(|n| n.1 == name).map(|n| u64::from(n.0))
}

pub(crate) fn hwregs(target: Target) -> &'static [(u16, &'static str)] {
    names(NAMES_HWREG, target)
}

pub(crate) fn messages(target: Target) -> &'static [(u16, &'static str)] {
    names(NAMES_MSG, target)
}

pub(crate) fn formats(target: Target) -> &'static [(u16, &'static str)] {
    names(NAMES_FORMAT, target)
}

pub(crate) fn data_formats(target: Target) -> &'static [(u16, &'static str)] {
    names(NAMES_DFMT, target)
}

pub(crate) fn number_formats(target: Target) -> &'static [(u16, &'static str)] {
    names(NAMES_NFMT, target)
}

/// A plain number in a field: small ones decimal, others hexadecimal.
pub(crate) fn print_number(v: u64, o: &Field, out: &mut String) {
    // a whole dword shows as a source operand of this value would
    if o.style == Style::I32 && o.max() == u64::from(u32::MAX) {
        return match inline_code(v, Type::F32, 32) {
            Some(code @ 240..) => out.push_str(inline_text(code, Type::F32, 32)),
            Some(_) => numbers::signed(i64::from(v as i32), out),
            None => numbers::hex(v, out),
        };
    }
    let small = match o.style {
        Style::S16 | Style::U16 => false,
        Style::I16 | Style::I32 => v <= 64,
        Style::I8 => v <= 64,
        _ => true,
    };
    if small { numbers::dec(v, out) } else { numbers::hex(v, out) }
}

/// A literal constant.
pub(crate) fn print_literal(v: u64, o: &Field, out: &mut String) {
    let v = match o.ty {
        Type::F64 if o.bits == 64 => v >> 32,
        Type::I64 => v & 0xffff_ffff,
        _ => v,
    };
    numbers::hex(v, out);
}

/// A 64-bit literal: marked when it looks like one of 32 bits.
pub(crate) fn print_wide(v: u64, ty: Type, out: &mut String) {
    let _ = if ty == Type::F64 && v & 0xffff_ffff == 0 {
        write!(out, "{:#x}", v >> 32)
    } else if v >> 32 == 0 {
        write!(out, "lit64({v:#x})")
    } else {
        write!(out, "{v:#x}")
    };
}

/// Text of a floating inline constant.
pub(crate) fn inline_text(code: u64, ty: Type, bits: u16) -> &'static str {
    match code {
        240 => "0.5",
        241 => "-0.5",
        242 => "1.0",
        243 => "-1.0",
        244 => "2.0",
        245 => "-2.0",
        246 => "4.0",
        247 => "-4.0",
        _ if bits == 64 && !matches!(ty, Type::PkF32) => "0.15915494309189532",
        _ => "0.15915494",
    }
}

/// `hwreg(HW_REG_MODE, 0, 4)`.
pub(crate) fn print_hwreg(target: Target, v: u64, out: &mut String) {
    let (id, offset, size) = (v & 63, v >> 6 & 31, (v >> 11 & 31) + 1);
    out.push_str("hwreg(");
    match name_of(hwregs(target), id) {
        Some(n) => {
            out.push_str("HW_REG_");
            out.push_str(n);
        }
        None => {
            let _ = write!(out, "{id}");
        }
    }
    if offset != 0 || size != 32 {
        let _ = write!(out, ", {offset}, {size}");
    }
    out.push(')');
}

pub(crate) const GS_OPS: [&str; 4] = ["GS_OP_NOP", "GS_OP_CUT", "GS_OP_EMIT", "GS_OP_EMIT_CUT"];
pub(crate) const SYS_OPS: [&str; 5] =
    ["", "SYSMSG_OP_ECC_ERR_INTERRUPT", "SYSMSG_OP_REG_RD", "SYSMSG_OP_HOST_TRAP_ACK", "SYSMSG_OP_TTRACE_PC"];

/// `sendmsg(MSG_GS, GS_OP_CUT, 0)`.
pub(crate) fn print_message(target: Target, v: u64, out: &mut String) {
    let wide = target.info().has(Quirk::WideMessages);
    let (id, op, stream) = if wide { (v & 0xff, 0, 0) } else { (v & 15, v >> 4 & 7, v >> 8 & 3) };
    let name = name_of(messages(target), id);
    let used = if wide { 0xff } else { 0x37f };
    match name {
        Some(n @ ("GS" | "GS_DONE")) => {
            let ok = op < 4 && (op != 0 || (n == "GS_DONE" && stream == 0));
            if v & !used != 0 && !ok {
                let _ = write!(out, "{v}");
            } else if !ok {
                let _ = write!(out, "sendmsg({id}, {op}, {stream})");
            } else if op == 0 {
                let _ = write!(out, "sendmsg(MSG_{n}, {})", GS_OPS[0]);
            } else {
                let _ = write!(out, "sendmsg(MSG_{n}, {}, {stream})", GS_OPS[op as usize]);
            }
        }
        Some("SYSMSG") if stream == 0 && (1..5).contains(&op) && (op != 3 || target.info().has(Quirk::HostTrapAck)) => {
            let _ = write!(out, "sendmsg(MSG_SYSMSG, {})", SYS_OPS[op as usize]);
        }
        Some(n) if n != "SYSMSG" && op == 0 && stream == 0 => {
            let _ = write!(out, "sendmsg(MSG_{n})");
        }
        _ if v & !used != 0 => {
            let _ = write!(out, "{v}");
        }
        _ => {
            let _ = write!(out, "sendmsg({id}, {op}, {stream})");
        }
    }
}

/// `vmcnt(0) lgkmcnt(1)`; counters at their largest are left out unless all are.
pub(crate) fn print_waitcnt(target: Target, v: u64, out: &mut String) {
    let list = [(Counter::Vm, "vmcnt"), (Counter::Exp, "expcnt"), (Counter::Lgkm, "lgkmcnt")];
    let max = |c| unpack(target, 0xffff, c);
    let every = list.iter().all(|&(c, _)| unpack(target, v, c) == max(c));
    let mut first = true;
    for (c, name) in list {
        let n = unpack(target, v, c);
        if n != max(c) || every {
            let _ = write!(out, "{}{name}({n})", if first { "" } else { " " });
            first = false;
        }
    }
}

/// Fields of s_waitcnt_depctr: name, first bit, bits.
pub(crate) const DEPCTR_FIELDS: [(&str, u32, u32); 7] = [
    ("depctr_hold_cnt", 7, 1),
    ("depctr_sa_sdst", 0, 1),
    ("depctr_va_vdst", 12, 4),
    ("depctr_va_sdst", 9, 3),
    ("depctr_va_ssrc", 8, 1),
    ("depctr_va_vcc", 1, 1),
    ("depctr_vm_vsrc", 2, 3),
];

/// True when the target has the hold_cnt field.
pub(crate) fn has_hold_cnt(target: Target) -> bool {
    target.info().has(Quirk::HoldCnt)
}

/// `depctr_va_vdst(0) ...`.
pub(crate) fn print_depctr(target: Target, v: u64, out: &mut String) {
    let defined: Vec<_> = DEPCTR_FIELDS.iter().filter(|f| f.0 != "depctr_hold_cnt" || has_hold_cnt(target)).collect();
    let mask: u64 = defined.iter().map(|&&(_, lo, n)| ((1u64 << n) - 1) << lo).fold(0, |a, b| a | b);
    let default = depctr_default(target);
    let unused = 0xffff & !mask;
    if v & unused != default & unused {
        let _ = write!(out, "{v:#x}");
        return;
    }
    let all_default = defined.iter().all(|&&(_, lo, n)| v >> lo & ((1 << n) - 1) == default >> lo & ((1 << n) - 1));
    let mut first = true;
    for &&(name, lo, n) in &defined {
        let (x, d) = (v >> lo & ((1 << n) - 1), default >> lo & ((1 << n) - 1));
        if x != d || all_default {
            let _ = write!(out, "{}{name}({x})", if first { "" } else { " " });
            first = false;
        }
    }
}

/// The value of s_waitcnt_depctr that waits for nothing.
pub(crate) fn depctr_default(target: Target) -> u64 {
    if has_hold_cnt(target) { 0xff9f } else { 0xff1f }
}

pub(crate) const DELAYS: [&str; 12] = [
    "NO_DEP",
    "VALU_DEP_1",
    "VALU_DEP_2",
    "VALU_DEP_3",
    "VALU_DEP_4",
    "TRANS32_DEP_1",
    "TRANS32_DEP_2",
    "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1",
    "SALU_CYCLE_1",
    "SALU_CYCLE_2",
    "SALU_CYCLE_3",
];
pub(crate) const SKIPS: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];

/// `instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)`.
pub(crate) fn print_delay(v: u64, out: &mut String) {
    let (a, skip, b) = (v & 15, v >> 4 & 7, v >> 7 & 15);
    let text = |list: &'static [&'static str], i: u64| list.get(i as usize).copied().unwrap_or("/* invalid */");
    let mut parts: Vec<String> = Vec::new();
    if a != 0 {
        parts.push(format!("instid0({})", text(&DELAYS, a)));
    }
    if skip != 0 {
        parts.push(format!("instskip({})", text(&SKIPS, skip)));
    }
    if b != 0 {
        parts.push(format!("instid1({})", text(&DELAYS, b)));
    }
    if parts.is_empty() {
        out.push('0');
    }
    out.push_str(&parts.join(" | "));
}

pub(crate) const VERSIONS: [(u64, &str); 4] =
    [(0, "UC_VERSION_GFX7"), (4, "UC_VERSION_GFX10"), (6, "UC_VERSION_GFX11"), (9, "UC_VERSION_GFX12")];

/// `UC_VERSION_GFX10 | UC_VERSION_W64_BIT`.
pub(crate) fn print_version(v: u64, out: &mut String) {
    if v & !0xe0ff != 0 {
        let _ = write!(out, "{v:#x}");
        return;
    }
    let mut text = match VERSIONS.iter().find(|x| x.0 == v & 0xff) {
        Some((_, name)) => name.to_string(),
        None => (v & 0xff).to_string(),
    };
    for (bit, word) in [(13, "UC_VERSION_W64_BIT"), (14, "UC_VERSION_W32_BIT"), (15, "UC_VERSION_MDP_BIT")] {
        if v >> bit & 1 == 1 {
            text = if text.contains('|') { format!("({text})|{word}") } else { format!("{text}|{word}") };
        }
    }
    out.push_str(&text);
}

pub(crate) const GPRIDX: [&str; 4] = ["SRC0", "SRC1", "SRC2", "DST"];

/// `gpr_idx(SRC0,DST)`.
pub(crate) fn print_gpridx(v: u64, out: &mut String) {
    if v > 15 {
        let _ = write!(out, "{v:#x}");
        return;
    }
    let list: Vec<&str> = GPRIDX.iter().enumerate().filter(|(i, _)| v >> i & 1 == 1).map(|(_, n)| *n).collect();
    let _ = write!(out, "gpr_idx({})", list.join(","));
}

/// Export targets.
pub(crate) fn print_export_target(target: Target, v: u64, out: &mut String) {
    let has = |quirk| target.info().has(quirk);
    let _ = match v {
        0..=7 => write!(out, "mrt{v}"),
        8 => write!(out, "mrtz"),
        9 => write!(out, "null"),
        12..=15 => write!(out, "pos{}", v - 12),
        16 if has(Quirk::PrimExport) => write!(out, "pos4"),
        20 if has(Quirk::PrimExport) => write!(out, "prim"),
        21 if has(Quirk::DualBlendExport) => write!(out, "dual_src_blend0"),
        22 if has(Quirk::DualBlendExport) => write!(out, "dual_src_blend1"),
        32..=63 => write!(out, "param{}", v - 32),
        _ => write!(out, "invalid_target_{v}"),
    };
}

/// True where the cache policy bits are called sc0, nt, sc1 (gfx942, gfx950).
pub(crate) fn has_sc_bits(target: Target) -> bool {
    target.has(crate::op::V_MOV_B64) && !target.info().interlocked
}

/// Cache policy of loads, stores and atomics.
pub(crate) fn print_cpol(target: Target, v: u64, flags: Flags, format: &str, out: &mut String) {
    if target.info().has(Quirk::TemporalHints) {
        return print_th(target, v, flags, out);
    }
    let sc = has_sc_bits(target);
    let smem = format == "SMEM";
    let words = if sc && !smem {
        [(1, " sc0"), (2, " nt"), (16, " sc1"), (0, "")]
    } else {
        [(1, " glc"), (2, " slc"), (4, " dlc"), (16, " scc")]
    };
    for (bit, name) in words {
        if v & bit != 0 {
            out.push_str(name);
        }
    }
}

pub(crate) const TH_LOAD: [&str; 8] = ["RT", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "BYPASS"];
pub(crate) const TH_STORE: [&str; 8] = ["RT", "NT", "HT", "WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB"];
pub(crate) const SCOPES: [&str; 4] = ["SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS"];

fn print_th(target: Target, v: u64, flags: Flags, out: &mut String) {
    let (th, scope) = (v & 7, v >> 3 & 3);
    let _ = target;
    if v & 0x800 != 0 {
        out.push_str(" scale_offset");
    }
    if th != 0 {
        out.push_str(" th:");
        if flags.has(Flags::ATOMIC) {
            if th & 4 != 0 && scope >= 2 {
                out.push_str(if th & 2 != 0 { "TH_ATOMIC_CASCADE_NT" } else { "TH_ATOMIC_CASCADE_RT" });
            } else if th & 4 != 0 {
                let _ = write!(out, "TH_ATOMIC_{th:#x}");
            } else {
                out.push_str(match th {
                    1 => "TH_ATOMIC_RETURN",
                    2 => "TH_ATOMIC_NT",
                    _ => "TH_ATOMIC_NT_RETURN",
                });
            }
        } else {
            let store = flags.has(Flags::STORE);
            let list = if store { &TH_STORE } else { &TH_LOAD };
            let prefix = if store { "TH_STORE_" } else { "TH_LOAD_" };
            if th == 7 && !store {
                let _ = write!(out, "{th:#x}");
            } else if th == 3 && scope == 3 {
                let _ = write!(out, "{prefix}BYPASS");
            } else {
                let _ = write!(out, "{prefix}{}", list[th as usize]);
            }
        }
    }
    if scope != 0 {
        let _ = write!(out, " scope:{}", SCOPES[scope as usize]);
    }
    if v & 32 != 0 {
        out.push_str(" nv");
    }
}

/// ` dim:SQ_RSRC_IMG_2D`.
pub(crate) fn print_dim(v: u64, out: &mut String) {
    let _ = write!(out, " dim:SQ_RSRC_IMG_{}", DIMS.get(v as usize).copied().unwrap_or("?"));
}

/// Typed buffer format.
pub(crate) fn print_format(target: Target, v: u64, out: &mut String) {
    let unified = target.info().has(Quirk::UnifiedFormats);
    if v == 1 && unified {
        return;
    }
    if unified {
        match name_of(formats(target), v) {
            Some(n) => {
                let _ = write!(out, " format:[BUF_FMT_{n}]");
            }
            None => {
                let _ = write!(out, " format:{v}");
            }
        }
        return;
    }
    let (d, n) = (v & 15, v >> 4);
    let (dn, nn) = (name_of(data_formats(target), d).unwrap_or("?"), name_of(number_formats(target), n).unwrap_or("?"));
    let _ = match (d, n) {
        (1, 0) => Ok(()),
        (_, 0) => write!(out, " format:[BUF_DATA_FORMAT_{dn}]"),
        (1, _) => write!(out, " format:[BUF_NUM_FORMAT_{nn}]"),
        _ => write!(out, " format:[BUF_DATA_FORMAT_{dn},BUF_NUM_FORMAT_{nn}]"),
    };
}

/// DPP16 lane control. `double`: the operation is of 64 bits, for which gfx90a and its heirs know one control only.
pub(crate) fn print_dpp(target: Target, double: bool, v: u64, out: &mut String) {
    let rows = target.info().has(Quirk::DppRowShare);
    let share = if rows { "row_share" } else { "row_newbcast" };
    if double && target.info().has(Quirk::Dpp64Rows) && !(0x150..=0x15f).contains(&v) {
        let _ = write!(out, " /* DP ALU dpp only supports {share} */");
        return;
    }
    let late = |name: &str, out: &mut String| {
        if rows {
            let _ = write!(out, " /* {name} is not supported starting from GFX10 */");
        } else {
            let _ = write!(out, " {name}:1");
        }
    };
    let mut number = |head: &str, first: u64| {
        out.push_str(head);
        numbers::dec(v - first, out);
        Ok(())
    };
    let _ = match v {
        0..=0xff => {
            for (i, head) in [" quad_perm:[", ",", ",", ","].iter().enumerate() {
                out.push_str(head);
                numbers::dec(v >> (2 * i) & 3, out);
            }
            out.push(']');
            return;
        }
        0x101..=0x10f => number(" row_shl:", 0x100),
        0x111..=0x11f => number(" row_shr:", 0x110),
        0x121..=0x12f => number(" row_ror:", 0x120),
        0x130 => return late("wave_shl", out),
        0x134 => return late("wave_rol", out),
        0x138 => return late("wave_shr", out),
        0x13c => return late("wave_ror", out),
        0x140 => write!(out, " row_mirror"),
        0x141 => write!(out, " row_half_mirror"),
        0x142 | 0x143 if rows => write!(out, " /* row_bcast is not supported starting from GFX10 */"),
        0x142 => write!(out, " row_bcast:15"),
        0x143 => write!(out, " row_bcast:31"),
        0x150..=0x15f if !rows && !target.info().has(Quirk::DppRowNewbcast) => {
            write!(out, " /* row_newbcast/row_share is not supported on ASICs earlier than GFX90A/GFX10 */")
        }
        0x150..=0x15f => write!(out, " {share}:{}", v - 0x150),
        0x160..=0x16f if !rows => write!(out, " /* row_xmask is not supported on ASICs earlier than GFX10 */"),
        0x160..=0x16f => write!(out, " row_xmask:{}", v - 0x160),
        _ => write!(out, " /* Invalid dpp_ctrl value */"),
    };
}

/// Matrix operand formats and scales.
pub(crate) fn print_matrix(m: ModName, v: u64, out: &mut String) {
    let (name, list): (&str, &[&str]) = match m {
        ModName::MatrixAFmt => ("matrix_a_fmt", &MATRIX_FMT),
        ModName::MatrixBFmt => ("matrix_b_fmt", &MATRIX_FMT),
        ModName::MatrixAScale => ("matrix_a_scale", &MATRIX_SCALE),
        ModName::MatrixBScale => ("matrix_b_scale", &MATRIX_SCALE),
        ModName::MatrixAScaleFmt => ("matrix_a_scale_fmt", &MATRIX_SCALE_FMT),
        _ => ("matrix_b_scale_fmt", &MATRIX_SCALE_FMT),
    };
    let _ = match list.get(v as usize) {
        Some(n) => write!(out, " {name}:{n}"),
        None => write!(out, " {name}:{v}"),
    };
}

/// Offset of ds_swizzle_b32.
pub(crate) fn print_swizzle(v: u64, target: Target, out: &mut String) {
    if v == 0 {
        return;
    }
    out.push_str(" offset:");
    let fft = target.info().has(Quirk::SwizzleFft);
    if v >= 0xe000 && fft {
        let _ = write!(out, "swizzle(FFT,{})", v & 31);
        return;
    } else if v >= 0xc000 && fft {
        let _ = write!(out, "swizzle(ROTATE,{},{})", v >> 10 & 1, v >> 5 & 31);
        return;
    } else if v & 0xff00 == 0x8000 {
        let _ = write!(out, "swizzle(QUAD_PERM,{},{},{},{})", v & 3, v >> 2 & 3, v >> 4 & 3, v >> 6 & 3);
        return;
    } else if v & 0x8000 == 0 {
        let (and, or, xor) = (v & 31, v >> 5 & 31, v >> 10 & 31);
        if and == 31 && or == 0 && xor.count_ones() == 1 {
            let _ = write!(out, "swizzle(SWAP,{xor})");
        } else if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() {
            let _ = write!(out, "swizzle(REVERSE,{})", xor + 1);
        } else {
            let group = 32 - and;
            if group > 1 && group.is_power_of_two() && or < group && xor == 0 {
                let _ = write!(out, "swizzle(BROADCAST,{group},{or})");
                return;
            }
            out.push_str("swizzle(BITMASK_PERM,\"");
            for i in (0..5).rev() {
                let probe = |bit: u64| ((bit << i) & and | or) ^ xor;
                let (p0, p1) = (probe(0) >> i & 1, probe(1) >> i & 1);
                out.push(match (p0, p1) {
                    (0, 0) => '0',
                    (1, 1) => '1',
                    (0, _) => 'p',
                    _ => 'i',
                });
            }
            out.push_str("\")");
        }
        return;
    }
    let _ = write!(out, "{v}");
}

impl Target {
    /// Name of a typed buffer format (`8_8_UNORM`, `32_32_FLOAT`) by its number: the unified one from gfx10 on, data format
    /// in bits 3:0 and number format in bits 6:4 before.
    pub fn buffer_format(self, code: u64) -> Option<String> {
        if self.info().has(Quirk::UnifiedFormats) {
            return name_of(formats(self), code).map(str::to_owned);
        }
        let (data, number) = (name_of(data_formats(self), code & 15)?, name_of(number_formats(self), code >> 4 & 7)?);
        Some(format!("{data}_{number}"))
    }
}
