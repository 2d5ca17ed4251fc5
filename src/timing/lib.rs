//! A cycle model of AMD GPUs in three layers, each usable alone:
//!
//! 1. [`wave`]: the waves of one compute unit, instruction by instruction, over what they really execute ([`record`], traces
//!    from the emulator; [`sqtt`], traces from hardware).
//! 2. [`launch`]: workgroups over compute units, engines and dies, tail, the cost of a launch; [`waiting`]: those that wait for each other.
//! 3. [`memory`]: traffic per level and its bandwidth; [`sequence`]: what launches leave in caches for those after them.
//!
//! Every constant stands in `isa/latency` with its evidence ([`chip`]); nothing here is a curve through measurements. The
//! model does not depend on the compiler: it takes any code object.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod beside;
mod chained;
pub mod chip;
pub mod conv;
pub mod floor;
mod folded;
pub mod gemm;
pub mod hot;
pub mod instr;
pub mod launch;
pub mod lds;
pub mod left_out;
mod lots;
pub mod memory;
mod modelled;
mod prepared;
pub mod record;
mod rounds;
mod scattered;
pub mod sequence;
pub mod shapes;
pub mod sqtt;
pub mod stall;
mod stretch;
pub mod table;
mod turn;
pub mod validate;
pub mod waiting;
pub mod wave;

pub use beside::beside;
pub use chained::chain;
pub use chip::{Chip, Constant, Evidence};
pub use launch::{ModelError, Recorded, model, recorded, recorded_part};
pub use modelled::{Bound, Detailed, LineCost, Modelled};
pub use record::Loops;
