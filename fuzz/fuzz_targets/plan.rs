//! Any bytes are a compiled model or an error with a message. What loads is run, with limits: a fault is an answer, memory
//! outside of the device is never touched.
#![no_main]

use barewave::compile::Compiled;
use barewave::emu::LaunchOptions;
use barewave::runtime::{EmulatedDevice, EmulatedSettings, Session};
use barewave::tensor::HostTensor;
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fuzz_target!(|data: &[u8]| {
    let Ok(compiled) = Compiled::from_bytes(data.to_vec().into(), Path::new("/nonexistent/m.hsaco")) else { return };
    // a plan may ask for any number of workgroups
    let deadline = Some(Instant::now() + Duration::from_secs(2));
    let options =
        LaunchOptions { max_instructions: 100_000, single_thread: true, deadline, ..LaunchOptions::default() };
    let settings = EmulatedSettings { options, memory: Some(64 << 20), ..EmulatedSettings::default() };
    let Ok(device) = EmulatedDevice::with_settings(compiled.target(), settings) else { return };
    let Ok(mut session) = Session::new(Arc::new(device), &compiled) else { return };
    let inputs: Option<Vec<HostTensor>> = compiled
        .plan()
        .inputs
        .iter()
        .map(|p| {
            let bytes = p.bytes().filter(|n| *n < 1 << 24)?;
            HostTensor::new(p.element_type()?, &p.shape, vec![1; bytes]).ok()
        })
        .collect();
    if let Some(inputs) = inputs {
        let _ = session.run(&inputs);
    }
});
