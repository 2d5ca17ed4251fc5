//! Devices, opened once for all sessions that want the same.

use crate::error::Error;
use barewave::runtime::hip::Library;
use barewave::runtime::{Device, open};
use barewave_isa::Target;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

/// What a session wants to run on.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    /// As the command line names it.
    pub device: String,
    /// The architecture, where the name leaves it open.
    pub target: Option<Target>,
    /// Check every launch of an emulated device.
    pub strict: bool,
}

/// Devices that are open.
#[derive(Default)]
pub struct Devices {
    open: Mutex<Vec<(Wanted, Weak<dyn Device>, Option<String>)>>,
}

impl Devices {
    /// A device, and what its user should know about the choice.
    pub fn open(&self, wanted: &Wanted) -> Result<(Arc<dyn Device>, Option<String>), Error> {
        let mut list = self.open.lock().unwrap_or_else(|e| e.into_inner());
        list.retain(|(_, d, _)| d.strong_count() > 0);
        for (w, device, note) in list.iter().filter(|(w, ..)| w == wanted) {
            if let Some(device) = device.upgrade() {
                debug_assert_eq!(w, wanted);
                return Ok((device, note.clone()));
            }
        }
        let opened = open(&wanted.device, wanted.target, wanted.strict)?;
        list.push((wanted.clone(), Arc::downgrade(&opened.device), opened.note.clone()));
        Ok((opened.device, opened.note))
    }
}

/// The GPUs of the HIP driver by their PCI addresses; none when there is no driver.
pub fn gpus() -> Vec<(u32, String)> {
    let Ok(library) = Library::get() else { return Vec::new() };
    let Ok(count) = library.device_count() else { return Vec::new() };
    (0..count).filter_map(|i| Some((i, library.pci_address(i).ok()?))).collect()
}

/// The PCI address of a device of onnxruntime's list (`0000:03:00.0`), from what is said about it.
pub fn pci_address(metadata: &[(String, String)]) -> Option<String> {
    let find = |name: &str| metadata.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
    find("pci_bus_id").map(|a| a.to_lowercase()).or_else(|| {
        // Linux: the number of the card in /sys/class/drm, whose device is a link to the PCI device.
        let card = Path::new("/sys/class/drm").join(format!("card{}", find("card_idx")?)).join("device");
        let device = std::fs::canonicalize(card).ok()?;
        Some(device.file_name()?.to_str()?.to_lowercase())
    })
}
