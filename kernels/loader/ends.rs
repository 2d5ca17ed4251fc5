//! How the tiles of an operand meet the end of its depth.
//!
//! Behind it both operands must read as zero. Where it lies within a tile each lane compares its k. Where it lies between two tiles of a
//! part, since parts of a shared depth are whole tiles and the last one has fewer, a tile is in front of it or behind it as a whole:
//! scalar instructions let the buffer of a tile behind it be empty. Vector instructions would wait, in front of the loads, until
//! those that multiply leave the vector ALU.

use super::Source;
use crate::mir::{Builder, Gen, Part, Type};

/// Where the end of a depth is.
pub(super) enum End {
    /// No tile reaches it.
    Behind,
    /// Between two tiles.
    Between(Emptied),
    /// Within a tile.
    Within,
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

    /// The tile of `src` that begins at depth `k` of the part (scalar) is loaded next.
    pub fn reach(&self, b: &mut Builder, src: &Source, k: Part) {
        let End::Between(emptied) = self else { return };
        let at = b.add(emptied.from_end, k);
        let inside = b.generic(Gen::Shr.of(Type::I32), &[at.into(), 31u32.into()]);
        b.emit(Gen::And.of(Type::B32), &[src.buf.desc.dword(2).into()], &[emptied.bytes.into(), inside.into()]);
    }
}
