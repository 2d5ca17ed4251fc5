//! A device that runs code objects. One trait, so that nothing above it knows whether a GPU is there.

use crate::emu::{self, EmuDevice, LaunchOptions};
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

/// An emulated device.
pub struct EmulatedDevice {
    device: EmuDevice,
    modules: Vec<emu::Module>,
    options: LaunchOptions,
}

impl EmulatedDevice {
    /// A device of `target`; with `strict` every launch is checked for undefined behaviour (slow).
    pub fn new(target: Target, strict: bool) -> Result<EmulatedDevice, DeviceError> {
        let device = EmuDevice::new(target).map_err(|e| DeviceError::Emulated(e.to_string()))?;
        let options = LaunchOptions { strict, ..LaunchOptions::default() };
        Ok(EmulatedDevice { device, modules: Vec::new(), options })
    }

    /// A device that ends a launch with an error when one workgroup executes more instructions than this: for code that
    /// is not trusted to end.
    pub fn with_limit(target: Target, max_instructions: u64) -> Result<EmulatedDevice, DeviceError> {
        let mut device = EmulatedDevice::new(target, false)?;
        device.options.max_instructions = max_instructions;
        Ok(device)
    }
}

impl From<emu::EmuError> for DeviceError {
    fn from(e: emu::EmuError) -> DeviceError {
        match e {
            emu::EmuError::WrongTarget { file, device } => DeviceError::WrongTarget { code: file, device },
            e => DeviceError::Emulated(e.to_string()),
        }
    }
}

impl Device for EmulatedDevice {
    fn name(&self) -> String {
        format!("emulated {}", self.device.target().info().name)
    }
    fn target(&self) -> Target {
        self.device.target()
    }
    fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        Ok(self.device.alloc(bytes)?)
    }
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        Ok(self.device.write(address, data)?)
    }
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        Ok(self.device.read(address, data)?)
    }
    fn load(&mut self, elf: &[u8]) -> Result<ModuleId, DeviceError> {
        self.modules.push(self.device.load(elf)?);
        Ok(ModuleId(self.modules.len() - 1))
    }
    fn launch(
        &mut self,
        module: ModuleId,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        kernarg: &[u8],
    ) -> Result<LaunchStats, DeviceError> {
        let module = self.modules.get(module.0).ok_or_else(|| DeviceError::Emulated("no such module".into()))?;
        let kernel = module.kernel(kernel)?;
        let stats = self
            .device
            .launch(&kernel, grid, block, kernarg, &self.options)
            .map_err(|fault| DeviceError::Emulated(fault.to_string()))?;
        Ok(LaunchStats { instructions: stats.instructions })
    }
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Opens a device by its name on the command line: `auto`, or `emu:TARGET`. `auto` is an emulated device for
/// `preferred`, the target of the code at hand, or gfx942 where the code can still be made for any.
pub fn open(name: &str, preferred: Option<Target>, strict: bool) -> Result<Box<dyn Device>, DeviceError> {
    let target = match name.strip_prefix("emu:") {
        Some(t) => Target::parse(t).map_err(|e| DeviceError::Emulated(e.to_string()))?,
        None if name == "auto" || name == "emu" => preferred.unwrap_or(Target::GFX942),
        None => return Err(DeviceError::Unknown(name.to_string())),
    };
    Ok(Box::new(EmulatedDevice::new(target, strict)?))
}
