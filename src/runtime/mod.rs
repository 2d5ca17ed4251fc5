//! Running compiled models: devices, streams, launch plans, sessions.
//!
//! [`Device`] has two implementations: [`EmulatedDevice`] and, through the HIP module API, [`hip::HipDevice`]. A
//! [`Session`] is a model on a device, [`AnyShape`] one that compiles for each shape as it comes.

mod ahead;
mod any_shape;
mod check;
mod device;
mod emulated;
mod error;
pub mod hip;
mod loaded;
pub mod plan;
mod session;
mod stages;
mod tables;

pub use any_shape::{AnyShape, AnyShapeError, Ready};
pub use barewave_emu::queue;
pub use device::{
    Device, DeviceError, DeviceInfo, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats, ModuleId, Opened,
    StreamId, open, open_with,
};
pub use emulated::{EmulatedDevice, EmulatedSettings};
pub use error::SessionError;
pub use session::{Given, LaunchReport, RunReport, Session};
pub use stages::Stages;
