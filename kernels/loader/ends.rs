//! How the tiles of an operand meet the end of its depth.
//!
//! Behind it both operands must read as zero. Where it lies within a tile each lane compares its k. Where it lies between two tiles of a
//! part, since parts of a shared depth are whole tiles and the last one has fewer, a tile is in front of it or behind it as a whole:
//! scalar instructions let the buffer of a tile behind it be empty. Vector instructions would wait, in front of the loads, until
//! those that multiply leave the vector ALU.
//!
//! A last tile may also end where the depth does and begin among what tiles before it had: loads are as wide as anywhere, and what was
//! summed already counts as zero.

use super::{Common, Source};
use crate::mir::{Builder, Gen, Part, Type};

/// Where the end of a depth is.
pub(super) enum End {
    /// No tile reaches it.
    Behind,
    /// Between two tiles.
    Between(Emptied),
    /// Within a tile.
    Within,
    /// Behind the only tile, of which what lies in front of a k (scalar) counts as zero.
    Overlapped(Part),
}

/// A loader's own buffer, which is empty for tiles behind the end.
pub(super) struct Emptied {
    /// Bytes of the buffer (scalar).
    bytes: Part,
    /// First k of the part less the depth (scalar): negative in front of the end.
    from_end: Part,
}

impl End {
    /// For an operand in tiles that are so deep, whose buffer ends with its matrix from here on.
    pub fn of(b: &mut Builder, src: &mut Source, tile_depth: u32) -> End {
        src.end_buffer(b);
        if let Some(from) = src.part.from {
            return End::Overlapped(from);
        }
        let first = match src.part.first {
            _ if src.depth == src.part.split.span() => return End::Behind,
            Some(first) if src.part.is_in_tiles(tile_depth) && src.depth.is_multiple_of(tile_depth) => first,
            _ => return End::Within,
        };
        // Others may have the same buffer.
        let desc = b.s(4);
        (0..4).for_each(|i| b.copy_into(desc.dword(i), src.buf.desc.dword(i)));
        src.buf.desc = desc;
        let bytes = b.s(1);
        b.copy_into(bytes, desc.dword(2));
        End::Between(Emptied { bytes, from_end: b.sub(first, src.depth) })
    }

    /// Lanes ask whether they are in front of it.
    pub fn is_within(&self) -> bool {
        matches!(self, End::Within)
    }

    /// They ask whether tiles before had what they load.
    pub fn is_overlapped(&self) -> bool {
        matches!(self, End::Overlapped(_))
    }

    /// Offset of a load of elements of one k, `row`: out of bounds behind the end of a depth, or where others had it.
    pub fn guarded(&self, b: &mut Builder, voff: Part, depth: u32, row: Part) -> Part {
        let inside = match self {
            End::Overlapped(from) => {
                let row = b.to_vector(row);
                b.op(Gen::CmpLe.of(Type::U32), &[(*from).into(), row.into()])
            }
            _ => b.op(Gen::CmpGt.of(Type::U32), &[depth.into(), row.into()]),
        };
        b.guard(inside, voff)
    }

    /// The tile of `src` that begins at depth `k` of the part (scalar) is loaded next.
    pub fn reach(&self, b: &mut Builder, src: &Source, k: Part) {
        let End::Between(emptied) = self else { return };
        let at = b.add(emptied.from_end, k);
        let inside = b.generic(Gen::Shr.of(Type::I32), &[at.into(), 31u32.into()]);
        b.emit(Gen::And.of(Type::B32), &[src.buf.desc.dword(2).into()], &[emptied.bytes.into(), inside.into()]);
    }
}

/// Words that keep of what a workitem loads along k what no tile before had, one for each dword of its loads of a column.
pub(super) struct Kept(Vec<Part>);

impl Kept {
    /// For so many loads of a column, of a workitem that begins at k `first`; none where all counts.
    pub fn of(b: &mut Builder, end: &End, common: &Common, first: Part, loads: u32) -> Option<Kept> {
        let End::Overlapped(from) = end else { return None };
        let bits = common.types.storage.bits();
        // Elements of a word, one of those that take several.
        let own = if common.vec > 1 { (32 / bits).max(1) } else { 1 };
        let dwords = (common.vec * bits / 32).max(1);
        let first = b.to_vector(first);
        let ahead = b.sub(*from, first);
        let mut words = Vec::new();
        for (load, within) in (0..loads).flat_map(|load| (0..dwords).map(move |word| (load, word * 32 / bits))) {
            // Elements of the word that others had, where it has one that they had not.
            let ahead = b.sub(ahead, common.k(load) + within);
            let some = b.op(Gen::CmpGt.of(Type::I32), &[own.into(), ahead.into()]);
            let least = b.op(Gen::Max.of(Type::I32), &[ahead.into(), 0u32.into()]);
            let least = if own > 1 { b.mul(least, bits) } else { least };
            let word = b.shl(u32::MAX, least);
            words.push(b.select(some, word, 0u32));
        }
        Some(Kept(words))
    }

    /// Clears what others had of the loads of a column.
    pub fn clear(&self, b: &mut Builder, loads: &[Part]) {
        let dwords = self.0.len() / loads.len().max(1);
        for (load, words) in loads.iter().zip(self.0.chunks(dwords.max(1))) {
            for (i, word) in words.iter().enumerate() {
                let x = load.dword(i as u8);
                b.emit(Gen::And.of(Type::B32), &[x.into()], &[x.into(), (*word).into()]);
            }
        }
    }
}
