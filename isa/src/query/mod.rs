//! Questions about tables: listings, matrix layouts, occupancy, histories of scalar registers.

pub mod matrix;
pub(crate) mod occupancy;
pub(crate) mod page;
pub(crate) mod scalar_hazard;
