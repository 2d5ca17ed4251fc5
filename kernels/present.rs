//! Which sums of a tile are results that there are: a product of fewer rows, or columns, than a tile has leaves some registers of each
//! workitem, and all those of some workitems, without one. What workgroups that share a depth leave for each other is without these: of one
//! row in a tile of 16 it is a sixteenth of the bytes.

use super::Writer;
use super::choice::Extents;
use super::fragment;
use super::gemm::Sums;
use super::tile::{Form, Tile};
use crate::mir::{Gen, Part, Type};

/// Lanes that have results: those of all these masks.
pub(super) type Lanes = [Option<Part>; 2];

/// See the head of this file.
pub(super) struct Present {
    /// Runs of registers: a part of the sums, the first dword of it, and how many there are.
    runs: Vec<(usize, u8, u8)>,
    /// Lanes that have results in these.
    pub lanes: Lanes,
}

impl Present {
    /// All registers of all lanes.
    pub fn all(parts: &[Part]) -> Present {
        let runs = parts.iter().enumerate().map(|(i, part)| (i, 0, part.len)).collect();
        Present { runs, lanes: [None; 2] }
    }

    /// Those of a product's results.
    pub fn of(w: &mut Writer, tile: &Tile, e: &Extents, sums: &Sums) -> Present {
        let [rows, columns] = extents(tile, e);
        if [rows, columns] == [tile.m, tile.n] {
            return Present::all(&sums.parts);
        }
        let f = tile.fragment();
        let mut runs: Vec<(usize, u8, u8)> = Vec::new();
        let dwords = sums.dwords as u8;
        for position in 0..sums.parts.len() as u32 * sums.per {
            let (row, column) = f.element(0, position);
            if row >= rows || column >= columns {
                continue;
            }
            let (part, first) = ((position / sums.per) as usize, (position % sums.per) as u8 * dwords);
            match runs.last_mut() {
                Some(run) if run.0 == part && run.1 + run.2 == first => run.2 += dwords,
                _ => runs.push((part, first, dwords)),
            }
        }
        let last = f.element(f.lanes() - 1, 0);
        let mut below = |last: u32, of, extent: u32| {
            (last >= extent).then(|| {
                let item = w.b.workitem_id();
                let at = fragment::coordinate(&mut w.b, &f, item, of, 1, None);
                let at = w.b.to_vector(at);
                w.b.op(Gen::CmpGt.of(Type::U32), &[extent.into(), at.into()])
            })
        };
        let lanes = [below(last.0, fragment::row, rows), below(last.1, fragment::col, columns)];
        Present { runs, lanes }
    }

    /// What of the sums' registers they are.
    pub fn among(&self, parts: &[Part]) -> Vec<Part> {
        self.runs.iter().map(|&(part, first, dwords)| parts[part].slice(first, dwords)).collect()
    }
}

/// Rows and columns of a tile's results that there are in any of the tiles.
pub(super) fn extents(tile: &Tile, e: &Extents) -> [u32; 2] {
    match tile.form {
        Form::Vector { .. } | Form::Matrix(_) => [(e.m, tile.m), (e.n, tile.n)].map(|(all, own)| own.min(all as u32)),
        Form::Sliced(_) | Form::Few(_) | Form::Winograd { .. } => [tile.m, tile.n],
    }
}
