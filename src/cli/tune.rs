//! Tables of tiles that are better than those that would be chosen.

use super::{Failure, Result};
use barewave::kernels::Tuning;
use std::path::PathBuf;
use std::sync::Arc;

/// Where kernels' tiles come from.
#[derive(clap::Args)]
pub struct Tune {
    /// Table of matrix products and convolutions with the tiles to use for them, as `bench --tune-out` writes it.
    #[arg(long, value_name = "CSV")]
    tune: Option<PathBuf>,
}

impl Tune {
    /// True where a table was given.
    pub fn given(&self) -> bool {
        self.tune.is_some()
    }

    /// The table; an empty one where none was given.
    pub fn read(&self) -> Result<Arc<Tuning>> {
        let Some(path) = &self.tune else { return Ok(Arc::default()) };
        let wrong = |e: String| Failure::new(format!("{}: {e}", path.display()));
        let text = barewave::mapped::read_text(path)
            .map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
        Ok(Arc::new(Tuning::parse(&text).map_err(|e| wrong(e.to_string()))?))
    }
}
