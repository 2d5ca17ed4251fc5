//! Tiles that somebody found better than those that the estimate chooses ([`choice`](super::choice)).
//!
//! A text table, a product a line, with a header: `target,type,layout,products,m,n,k,tile_m,tile_n,tile_k,parts`. The first
//! columns say which matrix product is meant: LLVM's name of the target, type of the elements in memory, how A and B lie (NN as they
//! are, NT with the right one transposed, TN, TT), how many products, rows, columns, depth. A convolution is the product
//! that it is computed as: its channels are the rows. The others say how: the workgroup's tile and among how many workgroups the
//! depth is shared, 0 where tiles are divided in equal shares; `winograd` behind them, that it is done by Winograd's method, `slices`, that waves share the depth, `columns`, that workitems own columns of a few rows. Lines with `#` in front are comments; a line `winograd,never` (or `winograd,always`) is for all convolutions, `sparse,never` (or `sparse,always`) for all products of constants with two of every four elements, `nibbles,never` (or `nibbles,always`) for all products of integers of 4 bits two in a byte, `channels-last,never` (or `channels-last,always`) for how images of 16-bit floats are stored, `levels,never` keeps launches apart (`levels,always` joins them whatever waits take), `xf32,allowed` for products of f32 by matrix instructions that read 10 bits of their mantissa, `f16-sums,allowed` for products of f16 of which those of a round are summed in f16. `barewave bench gemm|conv --tune-out` writes such tables.

use super::choice::{Candidate, EQUAL_SHARES};
use super::error::Reason;
use crate::mir::{PackedSums, Type, matrix_instruction, packed_sums};
use barewave_isa::Target;
use std::collections::BTreeMap;
use std::fmt;

/// A matrix product as kernels see it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Product {
    /// LLVM's name of the target.
    pub target: &'static str,
    /// Type of the elements in memory, of A where that of B is another.
    pub dtype: Type,
    /// How the operands lie in memory: neighbours along the depth are neighbours there, in A (not transposed) and in B
    /// (transposed).
    pub deep: (bool, bool),
    /// How many products.
    pub products: usize,
    /// Rows, columns and depth.
    pub extents: [usize; 3],
}

/// What a workgroup does with its tile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Way {
    /// All waves go through the depth together, with operands in LDS.
    #[default]
    Rounds,
    /// The products of Winograd's method, of a convolution that it applies to: the tile is that of each of them.
    Winograd,
    /// Waves share the depth, with operands in registers.
    Slices,
    /// Workitems own columns of a few rows, with operands in registers.
    Columns,
}

impl Way {
    /// What stands behind the cells of a line, if anything does.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Way::Rounds => None,
            Way::Winograd => Some("winograd"),
            Way::Slices => Some("slices"),
            Way::Columns => Some("columns"),
        }
    }
}

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuned {
    /// Rows, columns and depth of a workgroup's tile.
    pub tile: [u32; 3],
    /// Workgroups that share the depth; 0 where tiles are divided in equal shares.
    pub parts: u32,
    /// What workgroups do with their tiles.
    pub way: Way,
}

impl From<Tuned> for Reason {
    fn from(t: Tuned) -> Reason {
        Reason::Tuned { tile: t.tile, parts: t.parts }
    }
}

/// Where a method is used that takes less time but rounds otherwise than sums of products do, or does not read what zeros are
/// multiplied by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum When {
    /// Where the estimate says that it is faster.
    #[default]
    Faster,
    /// Nowhere.
    Never,
    /// Wherever it applies.
    Always,
}

/// Products and how to compute them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tuning {
    products: BTreeMap<Product, Tuned>,
    winograd: When,
    sparse: When,
    nibbles: When,
    channels_last: When,
    levels: When,
    xf32: bool,
    f16_sums: bool,
    most_sums: Option<u32>,
}

/// Why a text is no tuning.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}; a line is {HEADER}")]
pub struct TuningError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Names of the columns.
const HEADER: &str = "target,type,layout,products,m,n,k,tile_m,tile_n,tile_k,parts";

/// The line that allows matrix instructions to read 10 bits of f32's mantissa.
const XF32: &str = "xf32";
/// The line that allows sums of products of f16 in f16.
const F16_SUMS: &str = "f16-sums";
const ALLOWED: &str = "allowed";

/// Words behind the name of a method, which say where it is used.
const WHEN: [(&str, When); 2] = [("never", When::Never), ("always", When::Always)];

/// Layouts by whether depth is dense in both operands.
const LAYOUTS: [(&str, (bool, bool)); 4] =
    [("NN", (true, false)), ("NT", (true, true)), ("TN", (false, false)), ("TT", (false, true))];

impl Tuning {
    /// Reads a table.
    pub fn parse(text: &str) -> Result<Tuning, TuningError> {
        let mut out = Tuning::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line == HEADER {
                continue;
            }
            if let Some((name, word)) = line.split_once(',')
                && let Some(method) = out.method(name)
            {
                let known = WHEN.iter().find(|w| w.0 == word);
                let words = || WHEN.map(|w| w.0).join(" or ");
                let what =
                    || TuningError { line: i + 1, what: format!("'{word}' is no way to use {name}: {}", words()) };
                *method = known.ok_or_else(what)?.1;
                continue;
            }
            if let Some((name, word)) = line.split_once(',')
                && let Some(permission) = out.permission(name)
            {
                let what = || TuningError { line: i + 1, what: format!("'{word}' is no way to use {name}: {ALLOWED}") };
                *permission = (word == ALLOWED).then_some(true).ok_or_else(what)?;
                continue;
            }
            let (product, tuned) = row(line).map_err(|what| TuningError { line: i + 1, what })?;
            if out.products.insert(product, tuned).is_some() {
                return Err(TuningError { line: i + 1, what: "the product has a line before".into() });
            }
        }
        Ok(out)
    }

    /// What is said of a method of this name.
    fn method(&mut self, name: &str) -> Option<&mut When> {
        match name {
            "winograd" => Some(&mut self.winograd),
            "sparse" => Some(&mut self.sparse),
            "nibbles" => Some(&mut self.nibbles),
            "channels-last" => Some(&mut self.channels_last),
            "levels" => Some(&mut self.levels),
            _ => None,
        }
    }

    /// Whether what has this name is allowed.
    fn permission(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            XF32 => Some(&mut self.xf32),
            F16_SUMS => Some(&mut self.f16_sums),
            _ => None,
        }
    }

    /// Adds a product, or replaces what was said of it.
    pub fn insert(&mut self, product: Product, tuned: Tuned) {
        self.products.insert(product, tuned);
    }

    /// What it says of a product.
    pub fn of(&self, product: &Product) -> Option<Tuned> {
        self.products.get(product).copied()
    }

    /// The part of it that is for a target; nothing where there is none.
    pub fn for_target(&self, target: Target) -> Option<Tuning> {
        let own = self.products.iter().filter(|(p, _)| p.target == target.info().name);
        let products: BTreeMap<Product, Tuned> = own.map(|(p, t)| (p.clone(), *t)).collect();
        // A step's kernels are the same with levels and without, and how its tensors are stored is known by then.
        let tuning = Tuning { products, levels: When::default(), channels_last: When::default(), ..*self };
        (tuning != Tuning::default()).then_some(tuning)
    }

    /// The same with at most so many sums of a workitem, in products of which nothing is said.
    pub(crate) fn with_fewer_sums(&self, most: u32) -> Tuning {
        Tuning { most_sums: Some(most), ..self.clone() }
    }

    /// Most sums of a workitem, where there is such a limit.
    pub(super) fn most_sums(&self) -> u32 {
        self.most_sums.unwrap_or(u32::MAX)
    }

    /// Where Winograd's method is used.
    pub fn winograd(&self) -> When {
        self.winograd
    }

    /// Says where Winograd's method is used.
    pub fn set_winograd(&mut self, winograd: When) {
        self.winograd = winograd;
    }

    /// Where constants with two of every four elements are multiplied as that.
    pub fn sparse(&self) -> When {
        self.sparse
    }

    /// Where products of integers of 4 bits are made of these, two in a byte, and not of bytes.
    pub fn nibbles(&self) -> When {
        self.nibbles
    }

    /// Says where products of integers of 4 bits are made of these, two in a byte.
    pub fn set_nibbles(&mut self, nibbles: When) {
        self.nibbles = nibbles;
    }

    /// Products of f32 may be made by matrix instructions that read 10 bits of their factors' mantissa, and the target has some.
    pub fn takes_xf32(&self, target: Target) -> bool {
        self.xf32 && matrix_instruction(target, [Type::Xf32; 2], Type::F32, 16).is_some()
    }

    /// Allows such products.
    pub fn allow_xf32(&mut self) {
        self.xf32 = true;
    }

    /// How products of f16 are summed in f16, where that may be done and is quicker. The products of a round of at most
    /// [`MOST_PACKED`](super::vector::MOST_PACKED) along the depth are summed so, and these sums in f32.
    pub(super) fn f16_sums(&self, target: Target) -> Option<PackedSums> {
        packed_sums(target).filter(|_| self.f16_sums)
    }

    /// Products of f16 may be summed in f16, and the target is quicker so.
    pub fn takes_f16_sums(&self, target: Target) -> bool {
        self.f16_sums(target).is_some()
    }

    /// Allows such sums: of each run of up to 32 products along the depth, which are added in f32. Each sum of a run is rounded with each of its
    /// products, so that what a run gives is off by at most `32 * 2^-11` of the sum of its products' magnitudes, and is infinite where a sum is
    /// beyond 65504.
    pub fn allow_f16_sums(&mut self) {
        self.f16_sums = true;
    }

    /// Where images of 16-bit floats are stored with their channels last.
    pub fn channels_last(&self) -> When {
        self.channels_last
    }

    /// Says where images of 16-bit floats are stored with their channels last.
    pub fn set_channels_last(&mut self, channels_last: When) {
        self.channels_last = channels_last;
    }

    /// Where launches one behind the other become levels of one.
    pub fn levels(&self) -> When {
        self.levels
    }

    /// Says where launches one behind the other become levels of one.
    pub fn set_levels(&mut self, levels: When) {
        self.levels = levels;
    }

    /// Says where constants with two of every four elements are multiplied as that.
    pub fn set_sparse(&mut self, sparse: When) {
        self.sparse = sparse;
    }
}

impl From<&Candidate> for Tuned {
    fn from(c: &Candidate) -> Tuned {
        Tuned { tile: c.tile, parts: c.parts, way: c.way }
    }
}

fn row(line: &str) -> Result<(Product, Tuned), String> {
    let mut cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let way = [Way::Winograd, Way::Slices, Way::Columns].into_iter().find(|w| w.word() == cells.last().copied());
    if way.is_some() {
        cells.pop();
    }
    let way = way.unwrap_or_default();
    let [target, dtype, layout, numbers @ ..] = &cells[..] else { return Err(format!("{} cells", cells.len())) };
    let target = Target::parse(target).map_err(|e| e.to_string())?.info().name;
    let dtype = Type::by_name(dtype).ok_or_else(|| format!("'{dtype}' is no type"))?;
    let deep = LAYOUTS.iter().find(|l| l.0.eq_ignore_ascii_case(layout)).map(|l| l.1);
    let deep = deep.ok_or_else(|| format!("'{layout}' is no layout (NN, NT, TN, TT)"))?;
    let last = numbers.len().wrapping_sub(1);
    let number = |(i, t): (usize, &&str)| match t.parse::<u32>() {
        Ok(n) if n > 0 || i == last && n == EQUAL_SHARES => Ok(n),
        _ => Err(format!("'{t}' is no number of 1 or more")),
    };
    let numbers: Vec<u32> = numbers.iter().enumerate().map(number).collect::<Result<_, _>>()?;
    let [products, m, n, k, tile_m, tile_n, tile_k, parts] = numbers[..] else {
        return Err(format!("{} cells", cells.len()));
    };
    let product = Product { target, dtype, deep, products: products as usize, extents: [m, n, k].map(|x| x as usize) };
    Ok((product, Tuned { tile: [tile_m, tile_n, tile_k], parts, way }))
}

/// The table, as [`Tuning::parse`] reads it.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        let methods = [
            ("winograd", self.winograd),
            ("sparse", self.sparse),
            ("nibbles", self.nibbles),
            ("channels-last", self.channels_last),
            ("levels", self.levels),
        ];
        for (name, when) in methods {
            if let Some((word, _)) = WHEN.iter().find(|w| w.1 == when) {
                writeln!(f, "{name},{word}")?;
            }
        }
        for (name, allowed) in [(XF32, self.xf32), (F16_SUMS, self.f16_sums)] {
            if allowed {
                writeln!(f, "{name},{ALLOWED}")?;
            }
        }
        for (p, t) in &self.products {
            let layout = LAYOUTS.iter().find(|l| l.1 == p.deep).map_or("NN", |l| l.0);
            let ([m, n, k], [tile_m, tile_n, tile_k]) = (p.extents, t.tile);
            writeln!(
                f,
                "{},{},{layout},{},{m},{n},{k},{tile_m},{tile_n},{tile_k},{}{}{}",
                p.target,
                p.dtype.name(),
                p.products,
                t.parts,
                if t.way == Way::Rounds { "" } else { "," },
                t.way.word().unwrap_or_default()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_and_written() {
        let text = format!(
            "{HEADER}\nwinograd,never\nsparse,always\nnibbles,never\nchannels-last,always\nlevels,never\nxf32,allowed\nf16-sums,allowed\n# ours\ngfx1100,f16,TT,1,64,64,32,32,32,16,1,winograd\ngfx942,f32,NN,1,49,2048,512,32,64,16,4\n"
        );
        let tuning = Tuning::parse(&text).unwrap();
        assert_eq!(tuning.to_string(), text.replace("# ours\n", ""));
        let product =
            Product { target: "gfx942", dtype: Type::F32, deep: (true, false), products: 1, extents: [49, 2048, 512] };
        assert_eq!(tuning.of(&product), Some(Tuned { tile: [32, 64, 16], parts: 4, way: Way::Rounds }));
        assert_eq!(
            tuning.for_target(Target::GFX906).unwrap().to_string(),
            format!("{HEADER}\nwinograd,never\nsparse,always\nnibbles,never\nxf32,allowed\nf16-sums,allowed\n")
        );
        assert_eq!(tuning.for_target(Target::GFX942).unwrap().products.len(), 1);
    }

    #[test]
    fn what_is_no_table_says_where() {
        let line = "gfx942,f32,NN,1,49,2048,512,32,64,16,4";
        for (text, words) in [
            (format!("{line}\n{line}"), "line 2: the product has a line before"),
            ("gfx942,f32".into(), "line 1: 2 cells"),
            (line.replace("gfx942", "gfx1"), "gfx1"),
            ("sparse,sometimes".into(), "line 1: 'sometimes' is no way to use sparse: never or always"),
            ("xf32,never".into(), "line 1: 'never' is no way to use xf32: allowed"),
            ("f16-sums,".into(), "line 1: '' is no way to use f16-sums: allowed"),
            (line.replace("f32", "f31"), "'f31' is no type"),
            (line.replace("NN", "NX"), "'NX' is no layout"),
            (line.replace("2048", "0"), "'0' is no number of 1 or more"),
            (line.replace(",4", ""), "cells; a line is target,type"),
        ] {
            let e = Tuning::parse(&text).unwrap_err().to_string();
            assert!(e.contains(words), "{text}: {e}");
        }
    }
}
