//! Where the elements of matrices lie: which lane, register and bits hold A[i][k], B[k][j], C and D[i][j].
//!
//! In every layout a column of A (fixed k), a row of B (fixed k) and a row of D (fixed i) is a run of lanes of one
//! register, at one bit position. A layout is therefore a list of [`Column`]s, computed once per instruction.
//!
//! Source: AMD's matrix instruction calculator 1.3.2 (the emulator's tests compare all of its maps). It does not know
//! gfx950; what is added there follows the same pattern (each lane holds a run of k as long as its registers), except
//! that 8-bit operands of the f8f6f4 instructions hold two runs of 16 (AMD's "CDNA4 GEMM kernels" article).

use super::{Elem, Layout};

/// A run of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Column {
    /// First lane.
    pub lane: u16,
    /// Register, counted from the operand's first.
    pub reg: u16,
    /// Lowest bit in that register; an element may reach into the next one.
    pub shift: u8,
}

/// Shape of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Which layout.
    pub layout: Layout,
    /// Lanes of the wave.
    pub lanes: usize,
    /// Rows of A and D.
    pub m: usize,
    /// Columns of B and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Independent products.
    pub blocks: usize,
    /// A holds two of every four k.
    pub sparse: bool,
    /// Element k of f8f6f4 operands: 8-bit ones lie in two runs.
    pub split8: bool,
}

impl Shape {
    /// Lane group and position in the lane of a (dense) k of a block; `kept` says that two of four are stored.
    fn place(&self, side: usize, e: Elem, block: usize, k: usize, kept: bool) -> (usize, usize) {
        let bits = e.bits() as usize;
        match self.layout {
            Layout::Mfma => {
                // Groups of side * blocks lanes hold consecutive runs of k.
                let group = side * self.blocks;
                let groups = (64 / group).max(1);
                if self.split8 && bits == 8 {
                    let run = k / 16;
                    return (side * (run % groups), 16 * (run / groups) + k % 16);
                }
                let per = (self.k / groups).max(1);
                (group * (k / per) + side * block, k % per)
            }
            // Both halves of the wave hold the same.
            Layout::Wmma11 => (0, k),
            Layout::Wmma12 if bits >= 16 => {
                // Runs of 4 (8 of a sparse product) alternate between lane groups.
                let run = if self.sparse { 8 } else { 4 };
                let (low, high) = (k / run % 2, k / (2 * run));
                match self.lanes {
                    32 => (16 * low, run * high + k % run),
                    _ => (32 * high + 16 * low, k % run),
                }
            }
            Layout::Wmma12 => {
                let half = self.k / 2;
                // A lane fills at least one register.
                let least = 32 / bits * if kept { 2 } else { 1 };
                let run = if self.lanes == 32 { half } else { (self.k / 4).max(least) };
                (16 * (k / half) + 32 * (k % half / run), k % run)
            }
        }
    }

    fn column(&self, lanes: usize, position: usize, bits: u32) -> Column {
        let bit = position * bits as usize;
        Column { lane: lanes as u16, reg: (bit / 32) as u16, shift: (bit % 32) as u8 }
    }

    /// Columns of A: `blocks * k`, or of a sparse A the two stored ones of every group of four.
    pub fn a(&self, e: Elem) -> Vec<Column> {
        let mut out = Vec::new();
        for block in 0..self.blocks {
            if self.sparse {
                for (group, s) in (0..self.k / 4).flat_map(|g| [(g, 0), (g, 1)]) {
                    let (lane, at) = self.place(self.m, e, block, 4 * group, true);
                    out.push(self.column(lane, at / 2 + s, e.bits()));
                }
            } else {
                for k in 0..self.k {
                    let (lane, at) = self.place(self.m, e, block, k, false);
                    out.push(self.column(lane, at, e.bits()));
                }
            }
        }
        out
    }

    /// Where the 2-bit indices of a sparse A's columns are, in the order of [`Shape::a`]. A lane needs as many bits as it
    /// has dense k; `key` chooses among the sets that fit in a register.
    pub fn indices(&self, e: Elem, key: usize) -> Vec<Column> {
        let places: Vec<(usize, usize)> = (0..self.k / 4).map(|g| self.place(self.m, e, 0, 4 * g, true)).collect();
        let set = places.iter().map(|p| p.1 + 4).max().unwrap_or(0);
        let first = if set < 32 { key * set % 32 } else { 0 };
        places
            .iter()
            .flat_map(|&(lane, at)| [0, 2].map(|s| Column { lane: lane as u16, reg: 0, shift: (first + at + s) as u8 }))
            .collect()
    }

    /// Rows of B: `blocks * k`.
    pub fn b(&self, e: Elem) -> Vec<Column> {
        let mut out = Vec::new();
        for block in 0..self.blocks {
            for k in 0..self.k {
                let (lane, at) = self.place(self.n, e, block, k, false);
                out.push(self.column(lane, at, e.bits()));
            }
        }
        out
    }

    /// Rows of C and D: `blocks * m`. `high` puts 16-bit results of gfx11 in the upper halves.
    pub fn d(&self, e: Elem, high: bool) -> Vec<Column> {
        let mut out = Vec::new();
        for block in 0..self.blocks {
            for i in 0..self.m {
                let (reg, lane) = match (self.layout, self.m, e) {
                    (Layout::Mfma, 16, Elem::F64) => (2 * (i / 4), 16 * (i % 4)),
                    (Layout::Mfma, _, Elem::F64) => (0, 16 * (i % 4) + 4 * block),
                    (Layout::Mfma, 32, _) => (16 * block + 4 * (i / 8) + i % 4, 32 * (i / 4 % 2)),
                    (Layout::Mfma, 16, _) => (4 * block + i % 4, 16 * (i / 4)),
                    (Layout::Mfma, ..) => (i, 4 * block),
                    (Layout::Wmma11, ..) if self.lanes == 64 => (i / 4, 16 * (i % 4)),
                    (Layout::Wmma11, ..) => (i / 2, 16 * (i % 2)),
                    (Layout::Wmma12, ..) if self.lanes == 64 => (i % 4, 32 * (i / 4 % 2) + 16 * (i / 8)),
                    (Layout::Wmma12, ..) => (i % 8, 16 * (i / 8)),
                };
                // gfx12 packs 16-bit results, gfx11 leaves the other half of each register alone.
                let (reg, shift) = match self.layout {
                    Layout::Wmma12 if e.bits() == 16 => (reg / 2, 16 * (reg % 2)),
                    _ => (reg, if high && e.bits() == 16 { 16 } else { 0 }),
                };
                out.push(Column { lane: lane as u16, reg: reg as u16, shift: shift as u8 });
            }
        }
        out
    }
}
