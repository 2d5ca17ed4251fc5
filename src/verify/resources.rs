//! Descriptor and metadata against code: a wave must get what its code uses, and both must say the same.

use super::code::{Code, Graph};
use super::inst::Line;
use super::regs::{Set, number};
use super::report::{Finding, Findings, Rule};
use super::values::{self, Value, Values};
use crate::codeobj::{ArgKind, KernelInfo, KernelMeta};
use barewave_isa::action::Address;
use barewave_isa::{Flags, Inst, ModName, Operand, Pipe, Reg, Target};

/// Facts that the checks share.
pub struct Kernel<'a> {
    /// The kernel.
    pub info: &'a KernelInfo,
    /// Nothing adds LDS at launch.
    pub fixed_lds: bool,
}

fn fault(what: String, fix: impl Into<String>) -> Finding {
    Finding { rule: Rule::Resources, line: None, what, fix: fix.into() }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, k: &Kernel, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let mut used = Set::default();
    for &i in &g.order {
        for u in &code.lines[i as usize].uses {
            used.insert(u.span);
        }
    }
    registers(code, k.info, &used, out);
    preloads(code, k.info, out);
    if let Some(m) = &k.info.meta {
        metadata(code, k.info, m, &used, out);
    }
    if !k.info.entry.is_multiple_of(256) {
        let what = format!("the kernel begins at {:#x}, which is no multiple of 256", k.info.entry);
        out.add(fault(what, "align its code to 256 bytes"));
    }
    waves(code, g, out);
    memory(code, g, k, budget, out)
}

/// Names the instruction that uses the register with the largest number.
fn user(code: &Code, n: u16) -> String {
    let line = code.lines.iter().find(|l| l.uses.iter().any(|u| u.span.numbers().contains(&n)));
    line.map_or(String::new(), |l| format!(" (`{}` at {:#x})", l.raw, l.at))
}

fn registers(code: &Code, k: &KernelInfo, used: &Set, out: &mut Findings) {
    let (d, family) = (&k.descriptor, code.file.family);
    let total = d.vgprs(family);
    let (vgprs, agprs) = match d.accum_offset(family) {
        Some(at) => (at.min(total), total.saturating_sub(at)),
        None => (total, if code.target.info().max_agprs > 0 { total } else { 0 }),
    };
    let last = |count: u32, first: u16| first + (count.max(1) - 1) as u16;
    if used.vgprs() > vgprs {
        let n = used.vgprs();
        let by = user(code, last(n, 0));
        let what = match d.accum_offset(family) {
            Some(at) if at < total => format!("the code uses {n} VGPRs{by}, AGPRs begin at register {at}"),
            _ => format!("the code uses {n} VGPRs{by}, the descriptor allocates {vgprs}"),
        };
        out.add(fault(what, format!("allocate {n} VGPRs (.amdhsa_next_free_vgpr, .amdhsa_accum_offset)")));
    }
    if used.agprs() > agprs {
        let n = used.agprs();
        let by = user(code, last(n, 256));
        out.add(fault(
            format!("the code uses {n} AGPRs{by}, the descriptor leaves {agprs}"),
            "allocate more registers (.amdhsa_next_free_vgpr) behind .amdhsa_accum_offset",
        ));
    }
    let most = code.target.info().max_sgprs;
    let mut limit = most;
    if family.counts_sgprs() {
        // VCC, and in front of it what the kernel reserves, end the allocation
        let vcc = number(Reg::VCC_LO).is_some_and(|n| used.has(n) || used.has(n + 1));
        limit = limit.min(d.sgprs(family).saturating_sub(if vcc { 2 } else { 0 }));
    }
    if used.sgprs() > limit {
        let n = used.sgprs();
        let by = user(code, last(n, 512));
        let what = format!("the code uses {n} SGPRs{by}, the descriptor allocates {limit} besides VCC");
        out.add(fault(what, format!("allocate {n} SGPRs (.amdhsa_next_free_sgpr)")));
    }
}

/// User SGPRs must hold what the descriptor enables.
fn preloads(code: &Code, k: &KernelInfo, out: &mut Findings) {
    let l = k.descriptor.user_sgpr_layout(code.file.family);
    let ends = [
        l.private_segment_buffer.map(|a| a + 4),
        l.dispatch_ptr.map(|a| a + 2),
        l.queue_ptr.map(|a| a + 2),
        l.kernarg_segment_ptr.map(|a| a + 2),
        l.dispatch_id.map(|a| a + 2),
        l.flat_scratch_init.map(|a| a + 2),
        l.private_segment_size.map(|a| a + 1),
        l.kernarg_preload.map(|(a, n, _)| a + n),
    ];
    let need = ends.into_iter().flatten().max().unwrap_or(0);
    let have = k.descriptor.user_sgpr_count(code.file.family);
    if need > have {
        out.add(fault(
            format!("the values that the descriptor asks for take {need} user SGPRs, it counts {have}"),
            format!("count {need} user SGPRs (.amdhsa_user_sgpr_count)"),
        ));
    }
}

/// The metadata say what the descriptor says, and no less than the code uses.
fn metadata(code: &Code, k: &KernelInfo, m: &KernelMeta, used: &Set, out: &mut Findings) {
    let (d, family) = (&k.descriptor, code.file.family);
    let lanes = if d.wave32() { 32 } else { 64 };
    if m.wave_size != 0 && m.wave_size != lanes {
        out.add(fault(
            format!("the metadata say {} lanes a wave, the descriptor {lanes}", m.wave_size),
            "make .wavefront_size and .amdhsa_wavefront_size32 agree",
        ));
    }
    for (name, theirs, ours) in [
        ("group_segment_fixed_size", m.lds_bytes, d.lds_bytes),
        ("private_segment_fixed_size", m.scratch_bytes, d.scratch_bytes),
        ("kernarg_segment_size", m.kernarg_size, d.kernarg_size),
    ] {
        // version 2 and 3 may leave the size of the arguments to the metadata
        if theirs != ours && !(name.starts_with("kernarg") && ours == 0) {
            out.add(fault(
                format!("the metadata say .{name} {theirs}, the descriptor {ours}"),
                format!("make .{name} and .amdhsa_{} agree", name.replace("kernarg_segment", "kernarg")),
            ));
        }
    }
    let unified = family.unified_agprs();
    let vgprs = if unified && used.agprs() > 0 {
        d.accum_offset(family).unwrap_or(0) + used.agprs()
    } else {
        used.vgprs().max(if unified { 0 } else { used.agprs() })
    };
    for (name, says, uses) in [
        ("vgpr_count", m.vgprs, if unified && used.agprs() > 0 { used.vgprs() + used.agprs() } else { vgprs }),
        ("agpr_count", if m.agprs == 0 && !unified { u32::MAX } else { m.agprs }, used.agprs()),
        ("sgpr_count", m.sgprs, used.sgprs()),
    ] {
        if says < uses && !(name != "agpr_count" && says == 0) {
            out.add(fault(
                format!("the metadata say .{name} {says}, the code uses {uses}"),
                format!("write .{name}: {uses}"),
            ));
        }
    }
    if m.vgprs > d.vgprs(family) {
        out.add(fault(
            format!("the metadata say .vgpr_count {}, the descriptor allocates {}", m.vgprs, d.vgprs(family)),
            "make .vgpr_count and .amdhsa_next_free_vgpr agree",
        ));
    }
    if m.max_flat_workgroup_size > 1024 {
        let what = format!("the metadata allow workgroups of {}, hardware has at most 1024", m.max_flat_workgroup_size);
        out.add(fault(what, "write .max_flat_workgroup_size: 1024 or less"));
    }
    if let Some(a) = m.args.iter().find(|a| u64::from(a.offset) + u64::from(a.size) > u64::from(m.kernarg_size)) {
        let end = u64::from(a.offset) + u64::from(a.size);
        let what = format!("argument `{}` ends at byte {end} of {} bytes of arguments", a.name, m.kernarg_size);
        out.add(fault(what, format!("write .kernarg_segment_size: {end}")));
    }
}

/// Masks of all lanes fit the wave.
fn waves(code: &Code, g: &Graph, out: &mut Findings) {
    if !code.file.family.has_wave32() {
        return;
    }
    let exec = number(Reg::EXEC_LO);
    let odd = g.order.iter().map(|&i| &code.lines[i as usize]).find(|l| {
        let scalar = l.info.pipe == Pipe::Salu;
        let writes = || l.inst.dsts.iter().filter_map(|o| o.regs()).find(|r| number(r.first) == exec);
        let saves = |bits| l.info.writes.contains(&Reg::EXEC_LO) && l.info.dsts.first().is_some_and(|d| d.bits == bits);
        scalar
            && match code.wave64 {
                true => saves(32),
                false => saves(64) || writes().is_some_and(|r| r.dwords == 2),
            }
    });
    if let Some(l) = odd {
        let (have, other) = if code.wave64 { (64, 32) } else { (32, 64) };
        out.add(Finding {
            rule: Rule::Resources,
            line: Some((l.at, l.raw)),
            what: format!("the descriptor says {have} lanes a wave, this sets the mask of {other}"),
            fix: "make .amdhsa_wavefront_size32 say what the code was written for".into(),
        });
    }
}

/// Values of scalar registers at the start of a wave.
fn at_start(code: &Code, k: &KernelInfo) -> Values {
    let layout = k.descriptor.user_sgpr_layout(code.file.family);
    let mut v = Values::default();
    let s = |n: u16| number(Reg::s(n)).unwrap_or(u16::MAX);
    if let Some(at) = layout.kernarg_segment_ptr {
        v.set(s(at), Value::Arguments(0));
        v.set(s(at + 1), Value::ArgumentsHigh);
    }
    if let Some(at) = layout.private_segment_buffer {
        (at..at + 4).for_each(|n| v.set(s(n), Value::Scratch));
    }
    v
}

/// Memory whose place is known: arguments, scratch, LDS.
fn memory(code: &Code, g: &Graph, k: &Kernel, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let d = &k.info.descriptor;
    let scratch = d.scratch_bytes;
    let dynamic_stack = k.info.meta.as_ref().is_some_and(|m| m.dynamic_stack)
        || d.properties.contains(crate::codeobj::Properties::DYNAMIC_STACK);
    let first = |f: &dyn Fn(&Line) -> bool| g.order.iter().map(|&i| &code.lines[i as usize]).find(|l| f(l));
    if !d.scratch_enabled()
        && let Some(l) = first(&|l| l.has(Flags::SCRATCH) && (l.has(Flags::LOAD) || l.has(Flags::STORE)))
    {
        out.add(Finding {
            rule: Rule::Resources,
            line: Some((l.at, l.raw)),
            what: "the code uses scratch memory, the descriptor does not enable it".into(),
            fix: "set .amdhsa_enable_private_segment 1 and .amdhsa_private_segment_fixed_size".into(),
        });
    }
    if d.lds_bytes > code.target.info().lds_bytes {
        let most = code.target.info().lds_bytes;
        out.add(fault(
            format!("the descriptor asks for {} bytes of LDS, a workgroup can have {most}", d.lds_bytes),
            "use less LDS",
        ));
    }
    let dynamic_lds = !k.fixed_lds
        || k.info.meta.as_ref().is_some_and(|m| m.args.iter().any(|a| a.kind == ArgKind::DynamicSharedPointer));
    for (b, mut v) in values::find(code, g, at_start(code, k.info), budget)? {
        for (_, line) in g.lines(code, b) {
            let problem = match line.info.pipe {
                Pipe::Smem => arguments(line, &v, k.info),
                Pipe::Vmem if d.scratch_enabled() && !dynamic_stack => in_scratch(line, &v, scratch, code.target),
                Pipe::Lds if !dynamic_lds && line.touches_lds() => in_lds(line, d.lds_bytes),
                _ => None,
            };
            if let Some((what, fix)) = problem {
                out.add(Finding { rule: Rule::Resources, line: Some((line.at, line.raw)), what, fix });
            }
            v.pass(line, code);
        }
    }
    Some(())
}

/// Scalar loads of arguments stay inside of them. Compilers load a whole 16 bytes where fewer are left.
fn arguments(line: &Line, v: &Values, k: &KernelInfo) -> Option<(String, String)> {
    let size = u64::from(k.kernarg_size());
    let at = v.argument_offset(line.source(0)?)?;
    if !line.has(Flags::LOAD) || size == 0 {
        return None;
    }
    let offset = match line.inst.srcs.get(1)? {
        Operand::Imm(n) => *n as i64,
        Operand::Regs(r) => match number(r.first).map(|n| v.get(n)) {
            Some(Value::Bits(n)) => i64::from(n) + i64::from(line.modifier(ModName::Offset)),
            _ => return None,
        },
        Operand::Off => 0,
    };
    let from = at + offset;
    let end = from + i64::from(line.info.mem_bytes);
    if from >= 0 && end as u64 <= size.next_multiple_of(16) {
        return None;
    }
    Some((
        format!("it loads bytes {from} to {end} of the arguments, which have {size}"),
        format!("write .kernarg_segment_size: {end}, or load less"),
    ))
}

/// Scratch accesses at known places stay inside of it.
fn in_scratch(line: &Line, v: &Values, scratch: u32, target: Target) -> Option<(String, String)> {
    if !line.has(Flags::LOAD) && !line.has(Flags::STORE) {
        return None;
    }
    let number_of = |o: Option<&Operand>| match o {
        Some(Operand::Off) => Some(0),
        Some(Operand::Imm(n)) => Some(*n as i64),
        Some(Operand::Regs(r)) if r.first == Reg::NULL => Some(0),
        Some(Operand::Regs(r)) => match v.get(number(r.first)?) {
            Value::Bits(n) => Some(i64::from(n as i32)),
            _ => None,
        },
        None => None,
    };
    let operand = |inst: &Inst, name: &str| {
        line.info.srcs.iter().position(|s| s.name == name).and_then(|i| inst.srcs.get(i).copied())
    };
    let at = if line.has(Flags::SCRATCH) {
        if operand(&line.inst, "vaddr") != Some(Operand::Off) {
            return None;
        }
        number_of(operand(&line.inst, "saddr").as_ref())?
    } else {
        let rsrc = line.named("srsrc")?;
        if v.get(rsrc.first) != Value::Scratch || operand(&line.inst, "vaddr") != Some(Operand::Off) {
            return None;
        }
        // a stack pointer counts bytes of the whole wave
        let lanes = i64::from(target.info().wave_size);
        number_of(operand(&line.inst, "soffset").as_ref())? / lanes
    };
    let from = at + i64::from(line.modifier(ModName::Offset));
    let end = from + i64::from(line.info.mem_bytes);
    if from >= 0 && end <= i64::from(scratch) {
        return None;
    }
    Some((
        format!("it accesses bytes {from} to {end} of scratch, of which the descriptor gives {scratch}"),
        format!("write .amdhsa_private_segment_fixed_size {end}"),
    ))
}

/// LDS accesses whose offset alone leaves it.
fn in_lds(line: &Line, bytes: u32) -> Option<(String, String)> {
    if matches!(line.address(), Some(Address::Pair(_) | Address::ThreadId)) {
        return None;
    }
    let end = line.modifier(ModName::Offset) as u32 + u32::from(line.info.mem_bytes);
    if end <= bytes {
        return None;
    }
    Some((
        format!("it reaches to byte {end} of LDS at least, of which the descriptor gives {bytes}"),
        format!("write .amdhsa_group_segment_fixed_size {end}"),
    ))
}
