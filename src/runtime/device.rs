//! A device that runs code objects. One trait, so that nothing above it knows whether a GPU is there.

use barewave_isa::Target;

/// A code object loaded on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleId(pub usize);

/// What a device says about a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchStats {
    /// Wavefront instructions executed; 0 where the device does not count.
    pub instructions: u64,
}

/// What can go wrong on a device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No device of that name.
    #[error("no device '{0}': use auto, emu:TARGET (`barewave devices` lists them)")]
    Unknown(String),
    /// The emulated device refuses or has stopped.
    #[error("{0}")]
    Emulated(String),
    /// The code is for another target.
    #[error("the code object is for {code}, the device is {device}: compile with --target {device}")]
    WrongTarget {
        /// Target of the code.
        code: String,
        /// Target of the device.
        device: String,
    },
}

/// A device: memory, modules, launches in order.
pub trait Device {
    /// Name for people (`emulated gfx942`).
    fn name(&self) -> String;
    /// Architecture.
    fn target(&self) -> Target;
    /// Reserves device memory, 256-byte aligned.
    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError>;
    /// Copies to the device.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError>;
    /// Copies from the device.
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError>;
    /// Loads a code object from the bytes of its ELF file.
    fn load(&mut self, elf: &[u8]) -> Result<ModuleId, DeviceError>;
    /// Runs a kernel: grid in workgroups, block in workitems.
    fn launch(
        &mut self,
        module: ModuleId,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        kernarg: &[u8],
    ) -> Result<LaunchStats, DeviceError>;
    /// Waits until all launches are done.
    fn synchronize(&mut self) -> Result<(), DeviceError>;
}
