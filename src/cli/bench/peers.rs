//! What others take for the shapes of a benchmark: measured times from AMD's tables, and their kernels under the model.

use super::shape::{Family, Layout, Shaped};
use super::validate::{in_file, read};
use crate::cycles::{self, Launched};
use crate::launch::{self, What, extent};
use crate::limits::Limits;
use crate::{Failure, Result};
use barewave::tensor::DType;
use barewave_isa::Target;
use barewave_timing::{Chip, Modelled, conv, validate};
use std::path::{Path, PathBuf};

/// Another kernel for the shape.
#[derive(clap::Args)]
pub struct Against {
    /// Code object of a peer's kernel for the same shape, modelled as ours is; --kernel, --grid, --block and --arg say how it
    /// is launched, as for the command `launch`.
    #[arg(long, value_name = "FILE", requires_all = ["kernel", "grid", "block"])]
    against: Option<PathBuf>,
    /// The peer's kernel.
    #[arg(long, requires = "against")]
    kernel: Option<String>,
    /// Its workgroups.
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "against")]
    grid: Option<[u32; 3]>,
    /// Workitems of its workgroups.
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "against")]
    block: Option<[u32; 3]>,
    /// Its arguments, in order.
    #[arg(long = "arg", value_name = "SPEC", allow_hyphen_values = true, requires = "against")]
    args: Vec<String>,
    /// Its dynamic LDS, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "against")]
    lds: u32,
    #[command(flatten)]
    limits: Limits,
}

impl Against {
    /// The peer's kernel and its time under the model, where one was given.
    pub fn modelled(&self, target: Target) -> Result<Option<(&str, Modelled)>> {
        let (Some(code), Some(kernel), Some(grid), Some(block)) = (&self.against, &self.kernel, self.grid, self.block)
        else {
            return Ok(None);
        };
        let what = What { code, kernel, grid, block, args: &self.args, lds: self.lds };
        Ok(Some((kernel, launch::modelled(&what, target, &self.limits)?)))
    }

    /// One was given: it is for one shape.
    pub fn given(&self) -> bool {
        self.against.is_some()
    }
}

/// A table of measured times.
pub enum Measured {
    /// Matrix products.
    Gemm(Vec<validate::Row>),
    /// Convolutions.
    Conv(Vec<conv::Row>),
}

/// The vendor's best measured time for a shape.
pub struct Vendor {
    /// Microseconds, as the table has them.
    pub microseconds: f64,
    /// That over our modelled time, both with the launch that the table's times contain.
    pub over_ours: f64,
    /// The chip that it was measured on.
    pub chip: String,
}

impl Measured {
    /// Reads the table that fits a family.
    pub fn read(family: Family, path: &Path) -> Result<Measured> {
        match family {
            Family::Gemm => Ok(Measured::Gemm(in_file(path, validate::rocblas(&read(path)?))?.0)),
            Family::Conv => Ok(Measured::Conv(in_file(path, conv::miopen(&read(path)?))?.0)),
            _ => Err(Failure::usage("--measured is for gemm (rocBLAS's table) and conv (MIOpen's)")),
        }
    }

    /// The row of a shape, if the table has one, beside our launches. Of several chips the one whose compute units are nearest to the target's, of
    /// several times the shortest.
    pub fn of(
        &self,
        chip: &Chip,
        dtype: DType,
        layout: Layout,
        shaped: &Shaped,
        launches: &[Launched],
    ) -> Option<Vendor> {
        let far = |cus: f64| (cus - chip.cus).abs();
        match self {
            Measured::Gemm(rows) => {
                let [m, n, k, batch] = shaped.product?;
                let [left, right] = layout.transposed();
                // Column by column, which the table is, rows are columns and A is B.
                let same = |r: &&validate::Row| {
                    let g = &r.gemm;
                    (r.target, r.dtype.as_str(), r.transposed) == (chip.target, dtype.name(), [right, left])
                        && [g.m, g.n, g.k, g.batch] == [n, m, k, batch]
                };
                let rows = rows.iter().filter(same).filter_map(|r| Some((r, r.microseconds()?)));
                let best = rows.min_by(|a, b| far(a.0.cus).total_cmp(&far(b.0.cus)).then(a.1.total_cmp(&b.1)))?;
                let (row, microseconds) = best;
                let [clocks, repeated] = cycles::repeated(launches, &row.chip()?)?;
                Some(Vendor { microseconds, over_ours: row.vendor_over(clocks, repeated)?, chip: row.chip.clone() })
            }
            Measured::Conv(rows) => {
                let shape = shaped.conv?;
                let same = |r: &&conv::Row| (r.target, r.dtype.as_str(), r.shape) == (chip.target, dtype.name(), shape);
                let row = rows
                    .iter()
                    .filter(same)
                    .min_by(|a, b| far(a.cus).total_cmp(&far(b.cus)).then(a.ms.total_cmp(&b.ms)))?;
                let [clocks, _] = cycles::repeated(launches, chip)?;
                let over_ours = row.vendor_over(chip, clocks, launches.len());
                Some(Vendor { microseconds: row.ms * 1e3, over_ours, chip: row.chip.clone() })
            }
        }
    }
}
