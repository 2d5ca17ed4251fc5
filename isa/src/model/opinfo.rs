//! What passes ask about an operation, collected from its rows, its properties and the latency tables.
//!
//! Built for each operation and target on first use. An operation with several encodings gets the union: the operand list of the
//! encoding with most operands (for atomics the returning one), each slot's class joined over all encodings.

use crate::model::generated::{CLASS_NAMES, LATENCY, OP_CLASS, OP_CLASS_OF, OP_PROPS, TARGETS, prop};
use crate::model::table::{self, Kind, Operand as Field, READS, Role, Row, Shape, WRITES, flag, literal_field, word};
use crate::{Class, Counter, Flags, Inst, Op, OpInfo, Pipe, Reg, Slot, Target, Traits, WaitScheme};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// What is known of a target's operations, by number.
type Infos = Vec<OnceLock<Option<OpInfo>>>;

static INFOS: [OnceLock<Infos>; 64] = [const { OnceLock::new() }; 64];

/// The operation as the target has it.
#[inline]
pub(crate) fn info(target: Target, op: Op) -> Option<&'static OpInfo> {
    let all = INFOS.get(target.index()).and_then(OnceLock::get);
    match all.and_then(|all| all.get(usize::from(op.0))).and_then(OnceLock::get) {
        Some(known) => known.as_ref(),
        None => first_info(target, op),
    }
}

/// The same where nobody has asked yet.
#[cold]
fn first_info(target: Target, op: Op) -> Option<&'static OpInfo> {
    let i = target.index().min(INFOS.len() - 1);
    let all = INFOS[i].get_or_init(|| (0..Op::COUNT).map(|_| OnceLock::new()).collect());
    all.get(usize::from(op.0))?.get_or_init(|| build(target, op)).as_ref()
}

/// How well a latency number is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// Measured on hardware.
    Measured,
    /// Documented by AMD, or in a compiler AMD maintains.
    Documented,
    /// Concluded from a relative.
    Inferred,
}

impl Target {
    /// True when an instruction loads from memory straight to LDS.
    pub fn loads_to_lds(self, op: Op, mods: &crate::Mods) -> bool {
        let props = OP_PROPS.get(usize::from(op.0)).copied().unwrap_or(0);
        let named = props & prop::LDS_DMA != 0 || mods.get(crate::ModName::Lds) == Some(1);
        named && self.op(op).is_some_and(|i| i.pipe == Pipe::Vmem && !i.flags.has(Flags::STORE))
    }

    /// An operation can take a byte or a half of each source, as SDWA names them.
    pub fn selects_parts(self, op: Op) -> bool {
        let table = super::table::table(self);
        let mut rows = table.rows_of(op).iter().filter_map(|&i| table.rows.get(usize::from(i)));
        rows.any(|row| row.shape().overlay == "SDWA")
    }

    /// Name of the operation's latency class, and how well its numbers are known.
    pub fn latency_class(self, op: Op) -> (&'static str, Evidence) {
        let class = class(self, op);
        let tag = LATENCY.get(self.index()).and_then(|l| l.get(class)).map_or('i', |l| l.2);
        let evidence = match tag {
            'm' => Evidence::Measured,
            'd' => Evidence::Documented,
            _ => Evidence::Inferred,
        };
        (CLASS_NAMES.get(class).copied().unwrap_or("?"), evidence)
    }

    /// Counters that this very instruction increments: a returning atomic and one without result differ.
    pub fn counters(self, inst: &Inst) -> &'static [Counter] {
        let Some(info) = self.op(inst.op) else { return &[] };
        if self.info().waits == WaitScheme::Waitcnt || !info.flags.has(Flags::ATOMIC) || info.pipe != Pipe::Vmem {
            return info.counters;
        }
        let flat = info.flags.has(Flags::FLAT);
        match (inst.dsts.is_empty(), flat) {
            (false, false) => &[Counter::Vm],
            (false, true) => &[Counter::Vm, Counter::Lgkm],
            (true, false) => &[Counter::Vs],
            (true, true) => &[Counter::Vs, Counter::Lgkm],
        }
    }
}

fn class(target: Target, op: Op) -> usize {
    let t = target.index();
    OP_CLASS_OF
        .get(t)
        .and_then(|&c| OP_CLASS.get(usize::from(c)))
        .and_then(|l| l.get(usize::from(op.0)))
        .map_or(0, |&c| usize::from(c))
}

fn leak<T>(v: Vec<T>) -> &'static [T] {
    Vec::leak(v)
}

fn build(target: Target, op: Op) -> Option<OpInfo> {
    let table = table::table(target);
    let rows: Vec<&Row> = table.rows_of(op).iter().filter_map(|&i| table.rows.get(usize::from(i))).collect();
    let main = *rows.iter().max_by_key(|r| {
        let s = r.shape();
        (s.dsts + s.srcs, s.dsts, s.format.starts_with("VOP3"))
    })?;
    let shape = main.shape();
    let mut others: SmallVec<[u16; 16]> = rows.iter().map(|r| r.shape).filter(|s| *s != main.shape).collect();
    others.sort_unstable();
    others.dedup();
    let slots = |role: Role| -> &'static [Slot] {
        let of = |s: &'static Shape| s.shown().iter().filter(move |o| o.role == role).map(move |o| slot(target, s, o));
        let count = |s: &Shape| if role == Role::Dst { s.dsts } else { s.srcs };
        let mut list: Vec<Slot> = of(shape).collect();
        for other in others.iter().map(|s| table::shape(*s)).filter(|s| count(s) == count(shape)) {
            for (slot, other) in list.iter_mut().zip(of(other)) {
                slot.class = slot.class.or(other.class);
                slot.bits = slot.bits.max(other.bits);
                slot.read |= other.read;
            }
        }
        leak(list)
    };
    let (dsts, srcs) = (slots(Role::Dst), slots(Role::Src));
    let props = OP_PROPS.get(usize::from(op.0)).copied().unwrap_or(0);
    let has = |p: u32| props & p != 0;
    let pipe = pipe(shape, props);
    let vector = matches!(pipe, Pipe::Valu | Pipe::Trans | Pipe::Matrix | Pipe::Lds | Pipe::Vmem | Pipe::Export);
    let flags = flags(shape, props, pipe, vector, target);
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    let wave64 = target.info().wave_size == 64;
    let implicit = |bits: u16, out: &mut Vec<Reg>| {
        for (i, regs) in
            [&[Reg::SCC][..], &[Reg::VCC_LO, Reg::VCC_HI], &[Reg::EXEC_LO, Reg::EXEC_HI], &[Reg::M0], &[Reg::MODE]]
                .iter()
                .enumerate()
        {
            if bits >> i & 1 == 1 {
                out.extend(if wave64 || regs.len() == 1 { regs } else { &regs[..1] });
            }
        }
    };
    let bits = main.variant >> READS & 31
        | if vector && !has(prop::NO_EXEC) { 4 } else { 0 }
        | if has(prop::FP) || has(prop::MATRIX) { 16 } else { 0 };
    implicit(bits, &mut reads);
    implicit(main.variant >> WRITES & 31, &mut writes);
    let t = target.index().min(TARGETS.len() - 1);
    let (latency, busy, _) = LATENCY.get(t).and_then(|l| l.get(class(target, op))).copied().unwrap_or((0, 0, 'i'));
    Some(OpInfo {
        op,
        name: main.mnemonic(),
        dsts,
        srcs,
        reads: leak(reads),
        writes: leak(writes),
        flags,
        pipe,
        counters: counters(target, shape, props, flags, pipe, dsts.is_empty()),
        latency,
        busy,
        mem_bytes: mem_bytes(op, shape),
        traits: Traits::of_op(op, pipe, flags, dsts),
    })
}

fn slot(target: Target, shape: &Shape, o: &Field) -> Slot {
    let sgpr = Class::SGPR.or(Class::M0).or(Class::EXEC);
    let null = if target.info().interlocked { Class::NULL } else { Class(0) };
    let scalar = sgpr.or(null);
    let mut class = match o.kind {
        Kind::Vgpr | Kind::VgprOdd | Kind::BufferAddr | Kind::GlobalAddr | Kind::ScratchAddr => Class::VGPR,
        Kind::ImageData | Kind::ImageAddr | Kind::ImageList => Class::VGPR,
        Kind::VgprAcc | Kind::ImageDataAcc => Class::VGPR.or(Class::AGPR),
        Kind::Agpr | Kind::SrcAgpr => Class::AGPR,
        Kind::Src | Kind::SrcSdwa | Kind::SrcAcc => {
            let mut c = Class::VGPR;
            if o.has(flag::SCALAR_ONLY) {
                c = scalar;
            } else if !o.has(flag::VGPR_ONLY) {
                c = c.or(scalar);
            }
            if !o.has(flag::VGPR_ONLY | flag::NO_INLINE) {
                c = c.or(Class::INLINE).or(Class::SPECIAL);
            }
            if o.kind == Kind::SrcAcc {
                c = c.or(Class::AGPR);
            }
            c
        }
        Kind::SrcVgprAcc if o.has(flag::VGPR_ONLY) => Class::VGPR,
        Kind::SrcVgprAcc => {
            let files = if target.info().max_agprs == 0 {
                Class::VGPR
            } else if target.info().unified_agprs {
                Class::VGPR.or(Class::AGPR)
            } else {
                Class::AGPR
            };
            files.or(Class::INLINE)
        }
        Kind::Sgpr | Kind::SdwaSdst => scalar,
        Kind::Ssrc if o.has(flag::NO_INLINE) => scalar,
        Kind::Ssrc => scalar.or(Class::INLINE).or(Class::SPECIAL),
        Kind::SgprPair | Kind::SgprQuad | Kind::GlobalSaddr | Kind::FlatSaddr | Kind::ScratchSaddr | Kind::FixedVcc => {
            Class::SGPR
        }
        Kind::SmemOffset => Class::SGPR.or(Class::M0).or(Class::FIELD),
        _ => Class::FIELD,
    };
    if matches!(o.kind, Kind::BufferAddr | Kind::ScratchAddr | Kind::GlobalSaddr | Kind::FlatSaddr | Kind::ScratchSaddr)
    {
        class = class.or(Class::OFF);
    }
    if literal_field(shape, o, target.info().vop3_literal) {
        class = class.or(Class::LITERAL);
    }
    let bits = if o.has(flag::MASK) { target.info().wave_size as u16 } else { o.bits };
    let align = if class.contains(Class::SGPR) && !class.contains(Class::VGPR) {
        match bits.div_ceil(32) {
            0 | 1 => 1,
            2 => 2,
            _ => 4,
        }
    } else if bits > 32 {
        target.info().vgpr_tuple_align
    } else {
        1
    };
    let name = match o.kind {
        Kind::FixedVcc => {
            if o.role == Role::Dst {
                "sdst"
            } else {
                "src2"
            }
        }
        _ => o.name,
    };
    Slot { name, class, bits, ty: o.ty, align, read: o.role == Role::Dst && o.has(flag::READ) }
}

fn pipe(shape: &Shape, props: u32) -> Pipe {
    match shape.format {
        "SMEM" => Pipe::Smem,
        "DS" | "LDSDIR" => Pipe::Lds,
        "MUBUF" | "MTBUF" | "MIMG" | "VIMAGE" | "VSAMPLE" | "FLAT" | "GLOBAL" | "SCRATCH" | "TENSOR" => Pipe::Vmem,
        "EXP" => Pipe::Export,
        "SOPP" => Pipe::Branch,
        f if f.starts_with("SOP") => {
            if props & (prop::BRANCH | prop::MESSAGE | prop::BARRIER) != 0 {
                Pipe::Branch
            } else {
                Pipe::Salu
            }
        }
        _ if props & prop::MATRIX != 0 => Pipe::Matrix,
        _ if props & prop::TRANS != 0 => Pipe::Trans,
        _ => Pipe::Valu,
    }
}

fn flags(shape: &Shape, props: u32, pipe: Pipe, vector: bool, target: Target) -> Flags {
    let mut f = Flags(0);
    let mut set = |on: bool, flag: Flags| {
        if on {
            f = f.or(flag);
        }
    };
    let has = |p: u32| props & p != 0;
    set(has(prop::LOAD), Flags::LOAD);
    set(has(prop::STORE), Flags::STORE);
    set(has(prop::ATOMIC), Flags::ATOMIC);
    set(vector && !has(prop::NO_EXEC), Flags::READS_EXEC);
    set(has(prop::BRANCH), Flags::BRANCH);
    set(has(prop::TERMINATOR), Flags::TERMINATOR);
    set(has(prop::BARRIER), Flags::BARRIER);
    set(has(prop::SIDE_EFFECTS), Flags::SIDE_EFFECTS);
    set(has(prop::TRANS), Flags::TRANS);
    set(has(prop::PACKED), Flags::PACKED);
    set(has(prop::DOT), Flags::DOT);
    set(has(prop::CROSS_LANE), Flags::CROSS_LANE);
    set(has(prop::COMMUTATIVE), Flags::COMMUTATIVE);
    set(has(prop::MATRIX), Flags::MATRIX);
    set(has(prop::FP), Flags::FP);
    set(shape.format == "FLAT", Flags::FLAT);
    set(shape.format == "SCRATCH", Flags::SCRATCH);
    set(pipe == Pipe::Lds || shape.format == "FLAT", Flags::LDS);
    set(shape.format.starts_with("VOPD"), Flags::DUAL);
    set(has(prop::VALU_SGPR) && pipe != Pipe::Salu, Flags::VALU_WRITES_SGPR);
    set(has(prop::XDL), Flags::XDL);
    set(has(prop::DGEMM), Flags::DGEMM);
    set(has(prop::OUT_OF_ORDER), Flags::OUT_OF_ORDER);
    set(has(prop::CONDITIONAL), Flags::CONDITIONAL);
    set(has(prop::GRAPHICS), Flags::GRAPHICS);
    let _ = target;
    f
}

fn counters(target: Target, shape: &Shape, props: u32, flags: Flags, pipe: Pipe, no_dst: bool) -> &'static [Counter] {
    use Counter::*;
    let scheme = target.info().waits;
    let split = scheme == WaitScheme::Split;
    let store = flags.has(Flags::STORE);
    let atomic = flags.has(Flags::ATOMIC);
    let has = |p: u32| props & p != 0;
    match pipe {
        Pipe::Smem | Pipe::Lds | Pipe::Vmem if has(prop::UNCOUNTED) => &[],
        Pipe::Smem => {
            if split {
                &[Km]
            } else {
                &[Lgkm]
            }
        }
        Pipe::Lds if shape.format == "LDSDIR" => &[Exp],
        Pipe::Lds => {
            if shape.has(word::GDS_ONLY) {
                &[Lgkm, Exp]
            } else {
                &[Lgkm]
            }
        }
        Pipe::Export => &[Exp],
        Pipe::Branch | Pipe::Salu if props & prop::MESSAGE != 0 => {
            if split {
                &[Km]
            } else {
                &[Lgkm]
            }
        }
        Pipe::Vmem => {
            let flat = flags.has(Flags::FLAT);
            if flags.has(Flags::SIDE_EFFECTS) && !store && !flags.has(Flags::LOAD) && no_dst {
                // cache control
                return if has(prop::INVALIDATE) || scheme == WaitScheme::Waitcnt { &[Vm] } else { &[Vs] };
            }
            if split && has(prop::SAMPLED) {
                return &[Sample];
            }
            if split && has(prop::RAYS) {
                return &[Bvh];
            }
            match (scheme, store || (atomic && no_dst), atomic && !no_dst, flat) {
                (WaitScheme::Waitcnt, _, _, true) => &[Vm, Lgkm],
                (WaitScheme::Waitcnt, ..) => &[Vm],
                (_, true, _, true) => &[Vs, Lgkm],
                (_, true, _, false) if !has(prop::LDS_DMA) => &[Vs],
                (_, _, true, true) => &[Vm, Vs, Lgkm],
                (_, _, true, false) => &[Vm, Vs],
                (_, _, _, true) => &[Vm, Lgkm],
                _ => &[Vm],
            }
        }
        _ => &[],
    }
}

fn mem_bytes(op: Op, shape: &Shape) -> u8 {
    if !matches!(shape.format, "SMEM" | "DS" | "MUBUF" | "MTBUF" | "FLAT" | "GLOBAL" | "SCRATCH") {
        return 0;
    }
    let width: u16 = shape
        .operands
        .iter()
        .filter(|o| matches!(o.name, "vdata" | "vdst" | "sdata" | "data0"))
        .map(|o| o.bits)
        .max()
        .unwrap_or(0);
    let bytes = match op.memory() {
        Some(m) => return m.total(),
        None => width / 8,
    };
    u8::try_from(bytes).unwrap_or(u8::MAX)
}
