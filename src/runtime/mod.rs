//! Running compiled models: devices, launch plans, sessions.

mod device;
pub mod plan;
mod session;

pub use device::{Device, DeviceError, LaunchStats, ModuleId};
pub use session::{RunReport, Session, SessionError};
