//! Devices, opened once for all sessions that want the same.

use crate::error::Error;
use crate::memory::Allocations;
use crate::streams::Streams;
use barewave::runtime::hip::Library;
use barewave::runtime::{Device, EmulatedSettings, open_with};
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
    /// What onnxruntime holds in their memory.
    pub allocations: Allocations,
    /// Its streams.
    pub streams: Streams,
}

impl Devices {
    /// A device, and what its user should know about the choice.
    pub fn open(&self, wanted: &Wanted) -> Result<(Arc<dyn Device>, Option<String>), Error> {
        // Of a GPU there is one, whatever emulated devices are asked for.
        let gpu = Wanted { device: wanted.device.clone(), target: None, strict: false };
        let wanted = if wanted.device.starts_with("hip") { &gpu } else { wanted };
        let mut list = self.open.lock().unwrap_or_else(|e| e.into_inner());
        list.retain(|(_, d, _)| d.strong_count() > 0);
        let known = list.iter().find(|(w, ..)| w == wanted);
        if let Some((device, note)) = known.and_then(|(_, d, note)| Some((d.upgrade()?, note))) {
            return Ok((device, note.clone()));
        }
        let mut settings = EmulatedSettings { unified: true, ..EmulatedSettings::default() };
        settings.options.strict = wanted.strict;
        let opened = open_with(&wanted.device, wanted.target, &settings)?;
        // By whatever name it was asked for, of a product there is one emulated device, so that memory is shared.
        let same = list.iter().filter(|(w, ..)| w.strict == wanted.strict).find_map(|(_, known, _)| {
            known.upgrade().filter(|k| [k, &opened.device].iter().all(|d| is_emulated(d, opened.device.target())))
        });
        let device = same.unwrap_or(opened.device);
        list.push((wanted.clone(), Arc::downgrade(&device), opened.note.clone()));
        Ok((device, opened.note))
    }
}

fn is_emulated(device: &Arc<dyn Device>, target: Target) -> bool {
    let own = device.target();
    device.info().driver.is_none() && own == target && own.facts() == target.facts()
}

/// The GPUs of the HIP driver by their PCI addresses; none when there is no driver.
pub fn gpus() -> Vec<(u32, String)> {
    let Ok(library) = Library::get() else { return Vec::new() };
    let Ok(count) = library.device_count() else { return Vec::new() };
    (0..count).filter_map(|i| Some((i, library.pci_address(i).ok()?))).collect()
}

/// Which of the HIP driver's GPUs a device of onnxruntime's list is: the one at the same place on PCI.
pub fn same_gpu(gpus: &[(u32, String)], metadata: &[(String, String)]) -> Option<u32> {
    let address = pci_address(metadata)?;
    gpus.iter().find(|(_, at)| *at == address).map(|(ordinal, _)| *ordinal)
}

/// The PCI address of a device of onnxruntime's list (`0000:03:00.0`), from what is said about it.
fn pci_address(metadata: &[(String, String)]) -> Option<String> {
    let find = |name: &str| metadata.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
    find("pci_bus_id").map(|a| a.to_lowercase()).or_else(|| {
        // Linux: the number of the card in /sys/class/drm, whose device is a link to the PCI device.
        let card = Path::new("/sys/class/drm").join(format!("card{}", find("card_idx")?)).join("device");
        let device = std::fs::canonicalize(card).ok()?;
        Some(device.file_name()?.to_str()?.to_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_told_apart_by_their_places() {
        let gpus = [(0, "0000:03:00.0".to_string()), (1, "0000:83:00.0".into()), (2, "0000:c3:00.0".into())];
        let place = |key: &str, value: &str| vec![("card_idx".into(), "99".into()), (key.into(), value.into())];
        assert_eq!(same_gpu(&gpus, &place("pci_bus_id", "0000:83:00.0")), Some(1));
        assert_eq!(same_gpu(&gpus, &place("pci_bus_id", "0000:C3:00.0")), Some(2));
        // Another vendor's, a card without a place, and no word about it.
        assert_eq!(same_gpu(&gpus, &place("pci_bus_id", "0000:04:00.0")), None);
        assert_eq!(same_gpu(&gpus, &place("driver", "amdgpu")), None);
        assert_eq!(same_gpu(&gpus, &[]), None);
    }
}
