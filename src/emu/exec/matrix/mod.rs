//! Matrix instructions: MFMA and SMFMAC (CDNA), WMMA (RDNA3, RDNA4) and SWMMAC (RDNA4).
//!
//! Operands are gathered from lanes and registers into plain row-major matrices, multiplied, and scattered back
//! ([`multiply`]); where elements lie says [`barewave_isa::matrix`]. What AMD does not document is the order and rounding of the inner
//! sums: here each product is added with a fused multiply-add in single precision (double for f64), in order of k, to
//! the accumulator; denormals are kept, MODE has no influence. Two stored elements of a sparse row with the same index,
//! which is undefined, are added.
//!
//! Source: chapter "Matrix Arithmetic Instructions" of the "CDNA3" and "CDNA4" manuals (CBSZ, ABID, BLGP, formats and
//! scales), WMMA and SWMMAC sections of "RDNA3" and "RDNA4".

mod multiply;

use super::super::sem::small;
use crate::machine::Machine;
use crate::sem::fp8;
use crate::uop::{Kind, Run, Src, UOp};
use crate::uop::{Matrix, Payload, Scale};
use crate::wave::{Ctl, Wave};
use barewave_isa::action::Product;
use barewave_isa::matrix::{Elem, Layout, MatrixOp};
use barewave_isa::{Inst, ModName};
use std::sync::OnceLock;

/// Largest matrices: 32 rows or columns.
const SIDE: usize = 32;

/// Handler.
pub const RUN: Run = run;

/// Fills in what the handler needs.
pub fn prepare(op: &mut UOp, p: &Product, inst: &Inst, m: &Machine, lanes: usize, extra: &[Src]) -> Option<()> {
    let get = |name| inst.mods.get(name).unwrap_or(0);
    let MatrixOp { shape, a, b, d } = MatrixOp::of(m.target, inst.op, lanes)?;
    let neg = get(ModName::Neg) as u8;
    let (cbsz, blgp) = (get(ModName::Cbsz) as usize, get(ModName::Blgp) as usize);
    let (mut a, mut b) = (a, b);
    if p.signs {
        let pick = |signed: bool, e: Elem| match (signed, e) {
            (false, Elem::I8) => Elem::U8,
            (false, Elem::I4) => Elem::U4,
            (_, e) => e,
        };
        (a, b) = (pick(neg & 1 != 0, a), pick(neg & 2 != 0, b));
    }
    let formats = shape.split8;
    if formats {
        (a, b) = (Elem::of_format(cbsz)?, Elem::of_format(blgp)?);
    }
    let key = match shape.layout {
        Layout::Mfma if cbsz == 0 => get(ModName::Abid) as usize,
        Layout::Mfma => 0,
        _ => get(ModName::IndexKey) as usize,
    };
    let scales = match extra {
        [x, y, ..] => {
            // Two bits select a byte: the low one from op_sel, the high one from op_sel_hi.
            let byte = |i: u32| (get(ModName::OpSel) as u32 >> i & 1) | (get(ModName::OpSelHi) as u32 >> i & 1) << 1;
            Some([Scale { src: *x, byte: byte(0) }, Scale { src: *y, byte: byte(1) }])
        }
        _ => None,
    };
    let signs = d != Elem::I32 && shape.layout != Layout::Mfma;
    op.payload = Payload::Matrix(Box::new(Matrix {
        shape,
        a: shape.a(a),
        b: shape.b(b),
        d: shape.d(d, get(ModName::OpSel) & 4 != 0 && shape.layout == Layout::Wmma11),
        indices: if shape.sparse { shape.indices(a, key) } else { Vec::new() },
        a_type: a,
        b_type: b,
        d_type: d,
        cbsz,
        abid: get(ModName::Abid) as usize,
        blgp,
        broadcasts: shape.layout == Layout::Mfma && !shape.sparse && !formats && d != Elem::F64,
        neg: if signs { neg } else { 0 },
        neg_hi: if signs { get(ModName::NegHi) as u8 } else { 0 },
        fnuz: m.quirks().fnuz,
        clamp: get(ModName::Clamp) != 0,
        scales,
        execute: multiply::execute(d, m.host),
    }));
    let vectors = op.src[0].kind == Kind::Vector && op.src[1].kind == Kind::Vector;
    let third = op.src[2].kind == Kind::Vector || op.src[2].kind == Kind::Const && !shape.sparse;
    (vectors && third).then_some(())
}

unsafe fn run(w: &mut Wave, op: &UOp) -> Ctl {
    let Payload::Matrix(x) = &op.payload else { return Ctl::Next };
    // SAFETY: the function was chosen for this host.
    unsafe { (x.execute)(w, op, x) };
    Ctl::Next
}

/// Values of all codes of the small formats.
struct Tables {
    fp8: [f32; 256],
    fp8_fnuz: [f32; 256],
    bf8: [f32; 256],
    bf8_fnuz: [f32; 256],
    fp6: [f32; 64],
    bf6: [f32; 64],
    fp4: [f32; 16],
}

fn decode_tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| Tables {
        fp8: std::array::from_fn(|i| fp8::decode(i as u8, fp8::FP8, false)),
        fp8_fnuz: std::array::from_fn(|i| fp8::decode(i as u8, fp8::FP8, true)),
        bf8: std::array::from_fn(|i| fp8::decode(i as u8, fp8::BF8, false)),
        bf8_fnuz: std::array::from_fn(|i| fp8::decode(i as u8, fp8::BF8, true)),
        fp6: std::array::from_fn(|i| small::FP6.decode(i as u8)),
        bf6: std::array::from_fn(|i| small::BF6.decode(i as u8)),
        fp4: std::array::from_fn(|i| small::FP4.decode(i as u8)),
    })
}
