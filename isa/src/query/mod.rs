//! Questions about tables: listings, matrix layouts, occupancy, histories of scalar registers, clauses and delays.

pub(crate) mod clause;
pub(crate) mod delay;
pub mod matrix;
pub(crate) mod occupancy;
pub(crate) mod page;
pub(crate) mod scalar_hazard;
