//! A fragment: where the elements of a matrix are, over the lanes and registers of a wave or workgroup.
//!
//! An element is held by a lane at a *position*: positions are numbered along the lane's registers, `spacing` bits apart.
//! In every layout of the hardware, and in the blocks that workitems own in plain kernels, the row and column of an
//! element are sums of one contribution per set bit of the lane's number and of the position. That is how a fragment
//! is kept; it answers both ways, and kernels turn it into shifts and masks.

/// What one bit of a lane's number or of a position adds to row and column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Added to the row.
    pub row: u32,
    /// Added to the column.
    pub col: u32,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// What each bit of the lane's number adds, from bit 0. A bit that adds nothing means that lanes hold copies.
    pub lane: Vec<Step>,
    /// What each bit of the position adds, from bit 0.
    pub position: Vec<Step>,
    /// Bits of an element.
    pub bits: u32,
    /// Bits from one position to the next.
    pub spacing: u32,
}

/// An element, its lane, its register and the lowest bit there.
pub(super) type Placed = ((usize, usize), usize, usize, u32);

impl Fragment {
    /// The block of a workgroup of workitems in rows of `across`: each owns `rows` by `cols` elements of 32-bit registers, in
    /// chunks of `chunk.0` by `chunk.1`; the chunks of all workitems lie side by side before the next chunk of each begins. Positions
    /// run along the columns of a row first. All numbers are powers of two.
    pub fn blocked(items: u32, across: u32, (rows, cols): (u32, u32), chunk: (u32, u32)) -> Fragment {
        let all = [items, across, rows, cols, chunk.0, chunk.1];
        assert!(all.iter().all(|n| n.is_power_of_two()), "blocks of powers of two, not {all:?}");
        let bits = |n: u32| n.trailing_zeros();
        let down = items / across;
        let lane = (0..bits(items))
            .map(|b| match b.checked_sub(bits(across)) {
                None => Step { row: 0, col: chunk.1 << b },
                Some(b) => Step { row: chunk.0 << b, col: 0 },
            })
            .collect();
        // A bit within a chunk counts one by one, above it in whole rows of chunks.
        let spread = |b: u32, chunk: u32, side: u32| match b.checked_sub(bits(chunk)) {
            None => 1 << b,
            Some(b) => (chunk * side) << b,
        };
        let along = (0..bits(cols)).map(|b| Step { row: 0, col: spread(b, chunk.1, across) });
        let deep = (0..bits(rows)).map(|b| Step { row: spread(b, chunk.0, down), col: 0 });
        Fragment { lane, position: along.chain(deep).collect(), bits: 32, spacing: 32 }
    }

    /// Finds the contributions of all bits; `None` when the places are not sums of such. Lanes behind the last place
    /// hold copies, or what nobody reads.
    pub(super) fn from_places(places: &[Placed], lanes: usize, bits: u32, spacing: u32) -> Option<Fragment> {
        let position = |reg: usize, shift: u32| (reg as u32 * 32 + shift) / spacing;
        let element_at = |lane: usize, at: u32| {
            let found = places.iter().find(|p| p.1 == lane && position(p.2, p.3) == at)?;
            Some(Step { row: found.0.0 as u32, col: found.0.1 as u32 })
        };
        let held = places.iter().map(|p| p.1 + 1).max()?;
        let per_lane = (places.len() / held) as u32;
        let lane = (0..lanes.trailing_zeros())
            .map(|b| if 1 << b < held { element_at(1 << b, 0) } else { Some(Step::default()) })
            .collect::<Option<Vec<_>>>()?;
        let steps = (0..per_lane.trailing_zeros()).map(|b| element_at(0, 1 << b)).collect::<Option<Vec<_>>>()?;
        let f = Fragment { lane, position: steps, bits, spacing };
        let exact = places.iter().all(|&((row, col), lane, reg, shift)| {
            f.element(lane as u32, position(reg, shift)) == (row as u32, col as u32)
        });
        (exact && held.is_power_of_two() && per_lane.is_power_of_two()).then_some(f)
    }

    /// Lanes that take part.
    pub fn lanes(&self) -> u32 {
        1 << self.lane.len()
    }
    /// Elements that each lane holds.
    pub fn positions(&self) -> u32 {
        1 << self.position.len()
    }
    /// Registers of each lane.
    pub fn registers(&self) -> u32 {
        (self.positions() * self.spacing).div_ceil(32)
    }
    /// Rows.
    pub fn rows(&self) -> u32 {
        1 + self.steps().map(|s| s.row).sum::<u32>()
    }
    /// Columns.
    pub fn cols(&self) -> u32 {
        1 + self.steps().map(|s| s.col).sum::<u32>()
    }
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.lane.iter().chain(&self.position)
    }

    /// Row and column of the element that a lane holds at a position.
    pub fn element(&self, lane: u32, position: u32) -> (u32, u32) {
        let sum = |steps: &[Step], n: u32| {
            let set = steps.iter().enumerate().filter(|(b, _)| n >> b & 1 == 1);
            set.fold((0, 0), |(r, c), (_, s)| (r + s.row, c + s.col))
        };
        let ((r, c), (x, y)) = (sum(&self.lane, lane), sum(&self.position, position));
        (r + x, c + y)
    }

    /// The lowest lane that holds an element, and the position; `None` outside of the matrix.
    pub fn find(&self, row: u32, col: u32) -> Option<(u32, u32)> {
        // Contributions have one bit of the row or column each, so each bit of the element names its source.
        let (mut lane, mut position, mut r, mut c) = (0, 0, 0, 0);
        for (steps, out) in [(&self.lane, &mut lane), (&self.position, &mut position)] {
            for (b, s) in steps.iter().enumerate() {
                let mine = s.row != 0 && row & s.row == s.row || s.col != 0 && col & s.col == s.col;
                if mine {
                    *out |= 1 << b;
                    r += s.row;
                    c += s.col;
                }
            }
        }
        ((r, c) == (row, col)).then_some((lane, position))
    }

    /// Register and lowest bit of a position.
    pub fn register(&self, position: u32) -> (u32, u32) {
        let bit = position * self.spacing;
        (bit / 32, bit % 32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MatrixOp, Operand};
    use super::*;
    use crate::{Op, Target, op};

    #[test]
    fn fragments_are_the_lists_of_places() {
        let mut count = 0;
        for t in Target::all() {
            for op in (0..Op::COUNT as u16).map(Op).filter(|o| t.has(*o) && MatrixOp::is_matrix(*o)) {
                for lanes in [32, 64] {
                    if lanes != t.info().wave_size as usize && !t.info().wave32_and_64 {
                        continue;
                    }
                    let Some(m) = MatrixOp::of(t, op, lanes) else { continue };
                    for side in [Operand::A, Operand::B, Operand::D] {
                        let f = m.fragment(side).unwrap_or_else(|| panic!("{t} {} {side:?} {m:?}", op.name()));
                        count += 1;
                        for row in 0..f.rows() {
                            for col in 0..f.cols() {
                                let (lane, at) = f.find(row, col).unwrap_or_else(|| panic!("{t} {} {f:?}", op.name()));
                                assert_eq!(f.element(lane, at), (row, col), "{t} {} {side:?}", op.name());
                            }
                        }
                        assert_eq!(f.find(f.rows(), 0), None);
                    }
                }
            }
        }
        assert!(count > 500, "{count}");
    }

    #[test]
    fn known_layouts() {
        // v_mfma_f32_32x32x8_f16, D: i = 8 floor(r / 4) + 4 floor(lane / 32) + r % 4, j = lane % 32.
        let m = MatrixOp::of(Target::GFX942, op::V_MFMA_F32_32X32X8_F16, 64).unwrap();
        let d = m.fragment(Operand::D).unwrap();
        assert_eq!((d.rows(), d.cols(), d.registers()), (32, 32, 16));
        for lane in 0..64 {
            for r in 0..16 {
                assert_eq!(d.element(lane, r), (8 * (r / 4) + 4 * (lane / 32) + r % 4, lane % 32));
            }
        }
        let a = m.fragment(Operand::A).unwrap();
        assert_eq!((a.rows(), a.cols(), a.registers(), a.register(3)), (32, 8, 2, (1, 16)));
        // gfx11: lanes 16 to 31 hold what lanes 0 to 15 do.
        let m = MatrixOp::of(Target::GFX1100, op::V_WMMA_F32_16X16X16_F16, 32).unwrap();
        let a = m.fragment(Operand::A).unwrap();
        assert_eq!(a.element(3, 5), a.element(19, 5));
        assert_eq!(a.find(3, 5), Some((3, 5)));
        assert_eq!(a.lane[4], Step::default());
    }

    #[test]
    fn blocks_of_workitems() {
        // 256 workitems, 16 in a row, 8 x 8 each in chunks of 4: a tile of 128 x 128.
        let f = Fragment::blocked(256, 16, (8, 8), (4, 4));
        assert_eq!((f.rows(), f.cols(), f.positions(), f.registers()), (128, 128, 64, 64));
        // The second item of the second row; row 5, column 6 of its block.
        assert_eq!(f.element(17, 5 * 8 + 6), (4 + 64 + 1, 4 + 64 + 2));
        for (row, col) in [(0, 0), (127, 127), (69, 70), (3, 64)] {
            let (lane, at) = f.find(row, col).unwrap();
            assert_eq!(f.element(lane, at), (row, col));
        }
    }
}
