//! Running compiled models: devices, launch plans, sessions.

mod device;
pub mod plan;
mod session;

pub use device::{Device, DeviceError, EmulatedDevice, LaunchStats, ModuleId, open};
pub use session::{RunReport, Session, SessionError};
