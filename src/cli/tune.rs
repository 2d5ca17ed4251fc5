//! Tables of tiles that are better than those that would be chosen.

use super::{Failure, Result};
use barewave::compile::read_tuning;
use barewave::kernels::{self, Tuning};
use std::path::PathBuf;
use std::sync::Arc;

/// Where kernels' tiles come from.
#[derive(clap::Args)]
pub struct Tune {
    /// Table of matrix products and convolutions with the tiles to use for them, as `bench --tune-out` writes it.
    #[arg(long, value_name = "CSV")]
    tune: Option<PathBuf>,
    /// Compute 3x3 convolutions by Winograd's method: where it is faster, never (their definition's sums only), or wherever it
    /// applies.
    #[arg(long, value_name = "WHEN", default_value = "faster")]
    winograd: When,
    /// Multiply constants of which two of every four elements are zero as that: where it is faster, never, or wherever there are
    /// instructions for it.
    #[arg(long, value_name = "WHEN", default_value = "faster")]
    sparse: When,
    /// Store images of 16-bit floats and of bytes with their channels last: where convolutions are faster then, never, or wherever it can be done.
    #[arg(long, value_name = "WHEN", default_value = "faster")]
    channels_last: When,
    /// Compute launches one behind the other as levels of one: where it is faster, never, so that each step's kernels are there by
    /// themselves, or wherever they can be, whatever a wait takes.
    #[arg(long, value_name = "WHEN", default_value = "faster")]
    levels: When,
    /// Let matrix instructions multiply f32 by 10 bits of its mantissa where that is faster (xf32: gfx942; other targets multiply all of it).
    #[arg(long)]
    xf32: bool,
    /// Let products of f16 be summed in f16, in runs of up to 32 along the depth that are added in f32, where that is faster (gfx900; a run
    /// beyond 65504 is infinite).
    #[arg(long)]
    f16_sums: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Faster,
    Never,
    Always,
}

impl When {
    /// What replaces what a table says.
    fn other(self) -> Option<kernels::When> {
        match self {
            When::Faster => None,
            When::Never => Some(kernels::When::Never),
            When::Always => Some(kernels::When::Always),
        }
    }
}

impl Tune {
    /// True where a table was given.
    pub fn given(&self) -> bool {
        let allowed = self.xf32 || self.f16_sums;
        let methods = [self.winograd, self.sparse, self.channels_last, self.levels];
        self.tune.is_some() || methods.into_iter().any(|when| when != When::Faster) || allowed
    }

    /// The table; an empty one where none was given.
    pub fn read(&self) -> Result<Arc<Tuning>> {
        let mut tuning = match &self.tune {
            Some(path) => read_tuning(path).map_err(|e| Failure::new(e.to_string()))?,
            None => Tuning::default(),
        };
        self.winograd.other().into_iter().for_each(|when| tuning.set_winograd(when));
        self.sparse.other().into_iter().for_each(|when| tuning.set_sparse(when));
        self.channels_last.other().into_iter().for_each(|when| tuning.set_channels_last(when));
        self.levels.other().into_iter().for_each(|when| tuning.set_levels(when));
        if self.xf32 {
            tuning.allow_xf32();
        }
        if self.f16_sums {
            tuning.allow_f16_sums();
        }
        Ok(Arc::new(tuning))
    }
}
