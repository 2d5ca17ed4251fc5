//! Tiles of the matrix kernels: types and sizes of a workgroup's work, how it is divided over lanes and registers, and
//! where a tile of an operand lies in LDS.
//!
//! An operand tile is `depth` (along k) by `width` (along m or n). In LDS it is made of *cells*: `run` consecutive k of one
//! column. The cells of a run lie side by side, `pitch` of them, before those of the next run. Plain multiply-adds read
//! a k at a time (runs of 1), dot products as many as they add, matrix instructions 16 bytes along k.

use super::matrix::MatrixForm;
use super::values;
use crate::mir::{Dot, Type, dot_instruction};
use crate::tensor::DType;
use barewave_isa::matrix::Fragment;
use barewave_isa::{Resources, Target};
use barewave_timing::Chip;

/// Types of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Types {
    /// Elements of both operands in memory.
    pub storage: Type,
    /// In LDS, and what is multiplied.
    pub compute: Type,
    /// What products are summed in.
    pub accumulate: Type,
}

impl Types {
    /// Multiply-adds of a type's elements.
    pub fn of(t: DType) -> Types {
        let compute = values::computed(t);
        Types { storage: values::stored(t), compute, accumulate: compute }
    }
    /// Bytes of an element in memory.
    pub fn stored_bytes(&self) -> u32 {
        self.storage.bits() / 8
    }
    /// Bytes of an element in LDS.
    pub fn bytes(&self) -> u32 {
        self.compute.bits() / 8
    }
}

/// How a tile is multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Each workitem owns so many rows and columns.
    Vector {
        /// Rows.
        tm: u32,
        /// Columns.
        tn: u32,
        /// The instruction that adds the products of a cell; plain multiply-adds where there is none.
        dot: Option<Dot>,
    },
    /// By matrix instructions.
    Matrix(MatrixForm),
}

/// Sizes of one workgroup's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// Types.
    pub types: Types,
    /// Rows and columns of the result per workgroup.
    pub m: u32,
    /// See `m`.
    pub n: u32,
    /// Depth of an LDS tile.
    pub k: u32,
    /// Consecutive k in a cell of LDS.
    pub run: u32,
    /// How it is multiplied.
    pub form: Form,
}

impl Tile {
    /// Workitems per workgroup.
    pub fn threads(&self) -> u32 {
        match self.form {
            Form::Vector { tm, tn, .. } => (self.m / tm) * (self.n / tn),
            Form::Matrix(f) => f.waves.0 * f.waves.1 * f.op.shape.lanes as u32,
        }
    }

    /// Bytes of a cell in LDS.
    pub fn cell(&self) -> u32 {
        self.run * self.types.bytes()
    }

    /// Where the elements of the result are: which workitem has them in which of its registers.
    pub fn fragment(&self) -> Fragment {
        match self.form {
            Form::Vector { tm, tn, .. } => {
                Fragment::blocked(self.threads(), self.n / tn, (tm, tn), (chunk(tm), chunk(tn)))
            }
            Form::Matrix(f) => f.result(self.m, self.n),
        }
    }

    /// Tiles of multiply-adds that were found to work well, largest first: rows, columns, both per workitem.
    const VECTOR: [[u32; 4]; 8] = [
        [128, 128, 8, 8],
        [128, 64, 8, 8],
        [64, 128, 8, 8],
        [64, 64, 8, 8],
        [32, 64, 4, 8],
        [64, 32, 8, 4],
        [32, 32, 4, 4],
        [16, 64, 2, 8],
    ];

    /// The tile of multiply-adds, or dot products where the target has them for the type, that wastes least for an
    /// `m` by `n` result. `min_n` bounds the width from below (gathering loaders need whole wavefronts along n).
    pub fn choose(target: Target, types: Types, m: usize, n: usize, min_n: u32) -> Tile {
        let (types, run, dot) = match dot_instruction(target, types.storage, types.accumulate) {
            Some(d) => (Types { compute: d.operands, ..types }, d.elements, Some(d)),
            None => (types, 1, None),
        };
        let cost = |t: &Tile| {
            let Form::Vector { tm, tn, .. } = t.form else { unreachable!("made below") };
            let tiles = m.div_ceil(t.m as usize) * n.div_ceil(t.n as usize);
            // Multiply-adds of a workgroup per k, and its reads from LDS and memory beside them.
            let per_item = (tm * tn) as f64 + 1.5 * (tm + tn) as f64;
            let load = 4.0 * (t.m + t.n) as f64 / t.threads() as f64;
            tiles as f64 * t.threads() as f64 * (per_item + load)
        };
        let registers = u32::from(types.accumulate.dwords());
        let all = Self::VECTOR.iter().map(|&[m, n, tm, tn]| {
            let form = Form::Vector { tm, tn, dot };
            Tile { types, m, n, k: 8 * run, run, form }
        });
        let fits = |t: &Tile| match t.form {
            Form::Vector { tm, tn, .. } => t.n >= min_n && tm * tn * registers <= 64,
            Form::Matrix(_) => false,
        };
        all.filter(fits).min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("some candidate is wide enough")
    }
}

/// Cycles that the least round of a loop over k takes: what it loads at its beginning it waits for at its end.
const ROUND: f64 = 1000.0;

/// Cycles that the barrier of a round takes at least.
const BARRIER: f64 = 24.0;

/// What a workgroup does in a round of its loop over k.
pub(super) struct Round {
    /// Waves of the workgroup.
    pub waves: u32,
    /// Cycles of a SIMD per k for products, together for all waves.
    pub products: f64,
    /// The same for what is read from LDS, loaded, converted and written beside them.
    pub moves: f64,
    /// Bytes per k that come from memory, through the L2 cache for all but the first workgroup that asks for them.
    pub loaded: u32,
    /// Depth.
    pub k: u32,
    /// LDS in bytes.
    pub lds: u32,
}

impl Round {
    /// Workgroups that share a compute unit, so that one multiplies while others wait or move.
    fn resident(&self, target: Target) -> f64 {
        let t = target.info();
        let (wave_size, workgroup_size) = (t.wave_size, self.waves * t.wave_size);
        let light = Resources { wave_size, workgroup_size, vgprs: 128, agprs: 0, sgprs: 0, lds_bytes: self.lds };
        f64::from(target.occupancy(&light).workgroups.clamp(1, 4))
    }
}

/// Bytes per cycle that the L2 cache gives a compute unit when all ask.
pub(super) fn l2_bytes(target: Target) -> f64 {
    Chip::of(target).map_or(f64::INFINITY, |c| c.l2_bytes_clk * c.l2_share / c.cus)
}

/// Cycles per k of a grid of tiles on the target's largest product: what is left over when all compute units are busy takes as
/// long as a full load. A workgroup that is alone on its compute unit moves and multiplies in turn; the more there are, the
/// less is seen of what takes less time. Of tiles that take the same time the one with least work has a small lead.
pub(super) fn cycles(target: Target, tiles: usize, round: &Round, l2: f64) -> f64 {
    let t = target.info();
    let beside = round.waves.min(t.simds);
    let at_once = t.cus * t.simds / beside;
    let loads = tiles.div_ceil(at_once as usize) as f64;
    let resident = round.resident(target).min(loads);
    let (most, least) = (round.products.max(round.moves), round.products.min(round.moves));
    let work = if resident < 2.0 { most + least } else { most + least * (0.1 + 0.4 / resident) };
    // So many workgroups take what the cache gives at once.
    let loads_per_k = f64::from(round.loaded * (t.simds / beside)) / l2;
    let one = (work / f64::from(beside) + BARRIER / f64::from(round.k))
        .max(ROUND / f64::from(round.k) / resident)
        .max(loads_per_k);
    loads * one + 0.5 * tiles as f64 * work / f64::from(t.cus * t.simds)
}

/// Of so many rows or columns of a workitem, how many lie together: LDS is read four at a time.
pub(super) fn chunk(own: u32) -> u32 {
    own.min(4)
}
