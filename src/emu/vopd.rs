//! VOPD: two vector instructions in one encoding (RDNA3, RDNA4).
//!
//! Both halves read their operands before either writes. The half that reads what the other writes therefore runs first;
//! when each does, the second one's result goes to a spare register row and is copied to its place at the end. Runs of
//! pairs of multiply-adds are executed in one call (`exec::valu`).
//!
//! Encoding (RDNA3 manual, "VOPD"): dword 0 holds src0X (8:0), vsrc1X (16:9), opY (21:17), opX (25:22) and 0b110010
//! (31:26); dword 1 holds src0Y (8:0), vsrc1Y (16:9), vdstY (23:17, its lowest bit is the inverse of vdstX's) and vdstX
//! (31:24). A literal is shared.

use super::exec::valu;
use super::lanes::Ty;
use super::program::{Machine, blank};
use super::sem::{self, Form};
use super::wave::{Ctl, Ext, Kind, Lanes, Src, UOp, VCC, Wave, scalar};
use barewave_isa::{Op, Operand, Reg, Regs};

/// One half.
#[derive(Clone, Debug)]
pub struct Half {
    /// The operation it performs.
    pub op: Op,
    /// Its destination VGPR.
    pub dst: u16,
    /// Sources, with the accumulator last where there is one.
    pub srcs: Vec<Operand>,
}

/// A decoded pair.
#[derive(Clone, Debug)]
pub struct Pair {
    /// X half, then Y half.
    pub halves: [Half; 2],
    /// Bytes.
    pub len: usize,
}

fn source(code: u32, literal: u32) -> Option<Operand> {
    let reg = |r: Reg| Operand::Regs(Regs::new(r, 1));
    Some(match code {
        256..512 => reg(Reg::v(code as u16 - 256)),
        0..=105 => reg(Reg::s(code as u16)),
        106 => reg(Reg::VCC_LO),
        107 => reg(Reg::VCC_HI),
        108..=123 => reg(Reg::ttmp(code as u16 - 108)),
        124 => reg(Reg::NULL),
        125 => reg(Reg::M0),
        126 => reg(Reg::EXEC_LO),
        127 => reg(Reg::EXEC_HI),
        128..=192 => Operand::Imm((code - 128) as u64),
        193..=208 => Operand::Imm((192i32 - code as i32) as u32 as u64),
        240..=248 => {
            let v = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494][code as usize - 240];
            Operand::f32(v)
        }
        253 => reg(Reg::SCC),
        255 => Operand::Imm(literal as u64),
        _ => return None,
    })
}

const NAMES: [&str; 19] = [
    "v_fmac_f32",
    "v_fmaak_f32",
    "v_fmamk_f32",
    "v_mul_f32",
    "v_add_f32",
    "v_sub_f32",
    "v_subrev_f32",
    "v_mul_legacy_f32",
    "v_mov_b32",
    "v_cndmask_b32",
    "v_max_f32",
    "v_min_f32",
    "v_dot2c_f32_f16",
    "v_dot2c_f32_bf16",
    "",
    "",
    "v_add_u32",
    "v_lshlrev_b32",
    "v_and_b32",
];

/// True when both halves of an operation called `v_dual_x :: v_dual_y` are known.
pub fn knows(name: &str) -> bool {
    let half = |h: &str| {
        let own = h.replace("v_dual_", "v_");
        let renamed =
            [("dot2acc", "dot2c"), ("mul_dx9_zero", "mul_legacy"), ("_num_f32", "_f32"), ("add_nc_u32", "add_u32")];
        let own = renamed.iter().fold(own, |n, (from, to)| n.replace(from, to));
        NAMES.contains(&own.as_str())
    };
    name.split_once(" :: ").is_some_and(|(x, y)| half(x) && half(y))
}

/// Decodes a pair; `None` when the bytes are not one.
pub fn decode(bytes: &[u8]) -> Option<Pair> {
    let word = |i: usize| Some(u32::from_le_bytes(bytes.get(4 * i..4 * i + 4)?.try_into().ok()?));
    let (a, b) = (word(0)?, word(1)?);
    if a >> 26 != 0b110010 {
        return None;
    }
    let (opx, opy) = ((a >> 22 & 15) as usize, (a >> 17 & 31) as usize);
    let vdst_x = b >> 24;
    let vdst_y = (b >> 17 & 127) << 1 | (vdst_x & 1 ^ 1);
    let (x0, x1, y0, y1) = (a & 511, a >> 9 & 255, b & 511, b >> 9 & 255);
    let own_literal = |op| matches!(op, 1 | 2);
    let literal = if x0 == 255 || y0 == 255 || own_literal(opx) || own_literal(opy) { Some(word(2)?) } else { None };
    let half = |op: usize, s0: u32, s1: u32, dst: u32| {
        let name = NAMES.get(op).filter(|n| !n.is_empty())?;
        let k = Operand::Imm(literal.unwrap_or(0) as u64);
        let v = |n: u32| Operand::Regs(Regs::v(n as u16, 1));
        let first = source(s0, literal.unwrap_or(0))?;
        let srcs = match op {
            0 | 12 | 13 => vec![first, v(s1), v(dst)],
            1 => vec![first, v(s1), k],
            2 => vec![first, k, v(s1)],
            8 => vec![first],
            _ => vec![first, v(s1)],
        };
        Some(Half { op: Op::by_name(name)?, dst: dst as u16, srcs })
    };
    Some(Pair {
        halves: [half(opx, x0, x1, vdst_x)?, half(opy, y0, y1, vdst_y)?],
        len: if literal.is_some() { 12 } else { 8 },
    })
}

/// Micro-operation of one half, writing row `dst`.
fn build(m: &Machine, lanes: usize, h: &Half, dst: u32, pc: u32) -> Option<UOp> {
    let sem = sem::of(h.op, false)?;
    let handlers = valu::handlers(m.host);
    let mut op = blank(handlers.map, pc, 8);
    op.kernel = sem.kernel.on(m.host);
    op.form = sem.form;
    op.float = sem.float;
    op.round = sem::round::of(h.op.name());
    op.access.flags |= valu::flags(h.op.name());
    op.types = [sem.src[0], sem.src[1], sem.src[2], sem.dst];
    op.dst = dst;
    for (i, s) in h.srcs.iter().enumerate() {
        op.src[i] = match s {
            Operand::Imm(v) => Src { kind: Kind::Const, at: 0, value: *v },
            Operand::Regs(r) if r.first == Reg::NULL => Src { kind: Kind::Const, at: 0, value: 0 },
            Operand::Regs(r) if r.first.is_vector() => {
                Src { kind: Kind::Vector, at: r.first.0 as u32 * lanes as u32, value: 0 }
            }
            Operand::Regs(r) => Src { kind: Kind::Scalar, at: scalar(r.first), value: 0 },
            Operand::Off => return None,
        };
        op.n += 1;
    }
    if sem.form == Form::BitIn {
        op.src[3] = Src { kind: Kind::Scalar, at: VCC as u32, value: 0 };
    }
    if sem.form != Form::Map {
        op.run = handlers.bits;
    } else if op.src[..op.n as usize].iter().all(|s| s.kind == Kind::Vector) {
        op.run = handlers.registers;
    }
    if op.types[..3].iter().any(|t| t.is_packed() && *t != Ty::None) {
        op.ext = Some(Box::new(Ext::NONE));
    }
    op.rows = valu::rows(&op.src, lanes);
    Some(op)
}

/// The micro-operation of a pair. `spare` is the element offset of a row that no register uses.
pub fn lower(m: &Machine, lanes: usize, pair: &Pair, spare: u32, pc: u32) -> Option<UOp> {
    let row = |n: u16| n as u32 * lanes as u32;
    let reads = |a: &Half, b: &Half| a.srcs.iter().any(|s| s.regs().is_some_and(|r| r.first == Reg::v(b.dst)));
    let [mut first, mut second] = pair.halves.each_ref();
    if reads(second, first) {
        (first, second) = (second, first);
    }
    let mut op = blank(run, pc, pair.len as u8);
    let crossed = reads(second, first);
    let halves = [
        build(m, lanes, first, row(first.dst), pc)?,
        build(m, lanes, second, if crossed { spare } else { row(second.dst) }, pc)?,
    ];
    (op.dst, op.dst2) = (row(second.dst), halves[1].dst);
    let multiply_adds = [first, second].iter().zip(&halves).all(|(h, op)| valu::joins_batch(h.op.name(), op));
    op.batch = (multiply_adds && !crossed).into();
    op.dual = Some(Box::new(halves));
    Some(op)
}

/// Runs both halves.
unsafe fn run(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(halves) = &op.dual else { return Ctl::Next };
    let [first, second] = &**halves;
    // SAFETY: both halves were resolved for waves like this one.
    unsafe {
        if op.dst == op.dst2 {
            let c = (first.run)(w, first);
            return if c == Ctl::Next { (second.run)(w, second) } else { c };
        }
        // The second one's result waits in the spare row.
        let c = (second.run)(w, second);
        if c != Ctl::Next {
            return c;
        }
        let c = (first.run)(w, first);
        for l in Lanes(w.exec()) {
            let v = w.lane(op.dst2, l);
            w.set_lane(op.dst, l, v);
        }
        c
    }
}
