//! Matrix instructions: MFMA and SMFMAC (CDNA), WMMA (RDNA3, RDNA4) and SWMMAC (RDNA4).
//!
//! Operands are gathered from lanes and registers into plain row-major matrices, multiplied, and scattered back
//! ([`multiply`]); where elements lie says [`layout`]. What AMD does not document is the order and rounding of the inner
//! sums: here each product is added with a fused multiply-add in single precision (double for f64), in order of k, to
//! the accumulator; denormals are kept, MODE has no influence. Two stored elements of a sparse row with the same index,
//! which is undefined, are added.
//!
//! Source: chapter "Matrix Arithmetic Instructions" of the "CDNA3" and "CDNA4" manuals (CBSZ, ABID, BLGP, formats and
//! scales), WMMA and SWMMAC sections of "RDNA3" and "RDNA4".

mod describe;
pub mod layout;
mod multiply;

pub use describe::describe;

use super::super::sem::small;
use crate::codeobj::Family;
use crate::program::Machine;
use crate::sem::fp8;
use crate::wave::{Ctl, Kind, Run, Src, UOp, Wave};
use barewave_isa::{Inst, ModName};
use layout::{Column, Shape};
use std::sync::OnceLock;

/// Largest matrices: 32 rows or columns.
const SIDE: usize = 32;

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    /// IEEE single.
    F32,
    /// Single with 10 bits of mantissa.
    Xf32,
    /// IEEE double.
    F64,
    /// IEEE half.
    F16,
    /// bf16.
    Bf16,
    /// 8-bit float, 4 exponent bits.
    Fp8,
    /// 8-bit float, 5 exponent bits.
    Bf8,
    /// 6-bit float, 2 exponent bits.
    Fp6,
    /// 6-bit float, 3 exponent bits.
    Bf6,
    /// 4-bit float, 2 exponent bits.
    Fp4,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
    /// Signed nibble.
    I4,
    /// Unsigned nibble.
    U4,
    /// 32-bit integer.
    I32,
}

impl Elem {
    /// Bits of an element.
    pub fn bits(self) -> u32 {
        match self {
            Elem::F64 => 64,
            Elem::F32 | Elem::Xf32 | Elem::I32 => 32,
            Elem::F16 | Elem::Bf16 => 16,
            Elem::Fp8 | Elem::Bf8 | Elem::I8 | Elem::U8 => 8,
            Elem::Fp6 | Elem::Bf6 => 6,
            Elem::Fp4 | Elem::I4 | Elem::U4 => 4,
        }
    }
    fn of(name: &str) -> Option<Elem> {
        Some(match name {
            "f32" => Elem::F32,
            "xf32" => Elem::Xf32,
            "f64" => Elem::F64,
            "f16" => Elem::F16,
            "bf16" => Elem::Bf16,
            // The real types of f8f6f4 come from modifiers.
            "fp8" | "f8f6f4" => Elem::Fp8,
            "bf8" => Elem::Bf8,
            "i8" | "iu8" => Elem::I8,
            "iu4" => Elem::I4,
            "i32" => Elem::I32,
            _ => return None,
        })
    }
    /// Type that CBSZ and BLGP of f8f6f4 instructions name.
    fn of_format(n: usize) -> Option<Elem> {
        [Elem::Fp8, Elem::Bf8, Elem::Fp6, Elem::Bf6, Elem::Fp4].get(n).copied()
    }
}

/// Which layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// CDNA.
    Mfma,
    /// RDNA3: both halves of a wave hold the same A and B.
    Wmma11,
    /// RDNA4.
    Wmma12,
}

/// Scales of an operand: one byte of a register per lane.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The register.
    pub src: Src,
    /// Which byte.
    pub byte: u32,
}

/// A decoded matrix instruction.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Sizes.
    pub shape: Shape,
    /// Columns of A (of a sparse one: the stored elements).
    pub a: Vec<Column>,
    /// Rows of B.
    pub b: Vec<Column>,
    /// Rows of D.
    pub d: Vec<Column>,
    /// Indices of a sparse A.
    pub indices: Vec<Column>,
    a_type: Elem,
    b_type: Elem,
    d_type: Elem,
    cbsz: usize,
    abid: usize,
    blgp: usize,
    /// CBSZ, ABID and BLGP mean broadcasts.
    broadcasts: bool,
    neg: u8,
    neg_hi: u8,
    /// fp8 formats are AMD's FNUZ ones.
    fnuz: bool,
    clamp: bool,
    scales: Option<[Scale; 2]>,
    execute: multiply::Execute,
}

/// A parsed mnemonic.
struct Name {
    layout: Layout,
    m: usize,
    n: usize,
    k: usize,
    a: Elem,
    b: Elem,
    d: Elem,
    sparse: bool,
}

/// Parses the mnemonic; sizes that the name does not hold follow from the operands.
fn parse(name: &str) -> Option<Name> {
    let prefixes = [
        ("v_mfma_scale_", Layout::Mfma, false),
        ("v_mfma_", Layout::Mfma, false),
        ("v_smfmac_", Layout::Mfma, true),
        ("v_wmma_", Layout::Wmma11, false),
        ("v_swmmac_", Layout::Wmma12, true),
    ];
    let (rest, layout, sparse) = prefixes.iter().find_map(|(p, l, s)| Some((name.strip_prefix(p)?, *l, *s)))?;
    let (d, rest) = rest.split_once('_')?;
    // "32x32x4_2b_bf16", "16x16x16i8", "16x16x32_fp8_bf8"
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == 'x')).unwrap_or(rest.len());
    // The x of "xf32" belongs to the type.
    let shape = rest[..end].trim_end_matches('x');
    let mut types: Vec<&str> = rest[shape.len()..].split('_').filter(|t| !t.is_empty()).collect();
    types.retain(|t| !(t.ends_with('b') && t[..t.len() - 1].parse::<u32>().is_ok()));
    let mut dims = shape.split('x').map(|t| t.parse::<usize>());
    let mut dim = || dims.next()?.ok();
    let (m, n, k) = (dim()?, dim()?, dim()?);
    let a = Elem::of(types.first()?)?;
    let b = match types.get(1) {
        Some(t) => Elem::of(t)?,
        None => a,
    };
    Some(Name { layout, m, n, k, a, b, d: Elem::of(d)?, sparse })
}

/// Handler by name.
pub fn find(name: &str, m: &Machine) -> Option<Run> {
    let n = parse(name)?;
    // gfx1250 has layouts of its own.
    (n.layout == Layout::Mfma || m.family < Family::Gfx125).then_some(run as Run)
}

/// Fills in what the handler needs.
pub fn prepare(op: &mut UOp, inst: &Inst, m: &Machine, lanes: usize, extra: &[Src]) -> Option<()> {
    let name = inst.op.name();
    let n = parse(name)?;
    let layout = if n.layout != Layout::Mfma && m.family >= Family::Gfx12 { Layout::Wmma12 } else { n.layout };
    let get = |name| inst.mods.get(name).unwrap_or(0);
    let dwords = inst.dsts.first()?.regs()?.dwords as usize;
    let blocks = match layout {
        Layout::Mfma => (dwords * 64 / (n.d.bits() as usize / 32) / (n.m * n.n)).max(1),
        _ => 1,
    };
    let neg = get(ModName::Neg) as u8;
    let (cbsz, blgp) = (get(ModName::Cbsz) as usize, get(ModName::Blgp) as usize);
    let (mut a, mut b) = (n.a, n.b);
    if name.contains("_iu8") || name.contains("_iu4") {
        let pick = |signed: bool, e: Elem| match (signed, e) {
            (false, Elem::I8) => Elem::U8,
            (false, Elem::I4) => Elem::U4,
            (_, e) => e,
        };
        (a, b) = (pick(neg & 1 != 0, a), pick(neg & 2 != 0, b));
    }
    let formats = name.ends_with("f8f6f4");
    if formats {
        (a, b) = (Elem::of_format(cbsz)?, Elem::of_format(blgp)?);
    }
    let shape = Shape { layout, lanes, m: n.m, n: n.n, k: n.k, blocks, sparse: n.sparse, split8: formats };
    let key = match layout {
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
    let signs = n.d != Elem::I32 && layout != Layout::Mfma;
    op.matrix = Some(Box::new(Matrix {
        shape,
        a: shape.a(a),
        b: shape.b(b),
        d: shape.d(n.d, get(ModName::OpSel) & 4 != 0 && layout == Layout::Wmma11),
        indices: if n.sparse { shape.indices(a, key) } else { Vec::new() },
        a_type: a,
        b_type: b,
        d_type: n.d,
        cbsz,
        abid: get(ModName::Abid) as usize,
        blgp,
        broadcasts: layout == Layout::Mfma && !n.sparse && !formats && n.d != Elem::F64,
        neg: if signs { neg } else { 0 },
        neg_hi: if signs { get(ModName::NegHi) as u8 } else { 0 },
        fnuz: m.quirks().fnuz,
        clamp: get(ModName::Clamp) != 0,
        scales,
        execute: multiply::execute(n.d, m.host),
    }));
    let vectors = op.src[0].kind == Kind::Vector && op.src[1].kind == Kind::Vector;
    let third = op.src[2].kind == Kind::Vector || op.src[2].kind == Kind::Const && !n.sparse;
    (vectors && third).then_some(())
}

unsafe fn run(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(x) = &op.matrix else { return Ctl::Next };
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
