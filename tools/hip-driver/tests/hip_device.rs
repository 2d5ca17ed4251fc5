//! barewave's HIP path for real: HIP device -> types of the HIP API -> driver library -> code object -> results, and
//! always the same numbers as on the emulated device directly.
//!
//! A driver reads its environment once per process, so that every kind of machine is a process of its own: a test starts
//! this executable again with itself as the only test.

mod common;

use barewave::runtime::hip::{HipDevice, HipError, Library, code};
use barewave::runtime::plan::Region;
use barewave::runtime::{Device, DeviceError, EmulatedDevice, LaunchShape, Session};
use barewave::tensor::{DType, HostTensor, InputSpec, Wanted};
use common::{alone, driver, in_own_process, program, repository};
use std::ffi::c_void;
use std::sync::Arc;

fn random(shape: &[usize], seed: u64) -> HostTensor {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let spec: InputSpec = format!("{}xf32=random:{seed}", dims.join("x")).parse().unwrap();
    spec.load(&Wanted { name: "x".into(), dtype: DType::F32, shape: shape.to_vec() }, &Default::default()).unwrap()
}

fn library() -> Arc<Library> {
    Arc::new(Library::open(&driver()).unwrap())
}

/// Each device of the process runs two models; their runs interleave.
fn models_alone() {
    let library = library();
    assert!(library.is_emulated());
    for ordinal in 0..library.device_count().unwrap() {
        let device: Arc<dyn Device> = Arc::new(HipDevice::open(library.clone(), ordinal).unwrap());
        let target = device.target().info().name;
        let emulated: Arc<dyn Device> = Arc::new(EmulatedDevice::new(device.target(), false).unwrap());
        let paths = ["examples/digits/digits.onnx", "examples/lenet/lenet.onnx"];
        let programs = paths.map(|p| program(p, target));
        let make = |device: &Arc<dyn Device>| programs.each_ref().map(|p| Session::new(device.clone(), p).unwrap());
        let (mut ours, mut theirs) = (make(&device), make(&emulated));
        for seed in 0..3 {
            let inputs = [random(&[1, 1, 8, 8], seed), random(&[1, 3, 28, 28], seed)];
            for (s, x) in ours.iter_mut().zip(&inputs) {
                s.start(std::slice::from_ref(x)).unwrap();
            }
            for ((s, reference), x) in ours.iter_mut().zip(&mut theirs).zip(&inputs) {
                let (got, report) = s.finish().unwrap();
                let (want, _) = reference.run(std::slice::from_ref(x)).unwrap();
                assert_eq!(got, want, "{target}, seed {seed}");
                assert!(report.instructions.is_none() && !report.time.is_zero());
            }
        }
    }
    // Handles that are none are errors.
    let device = HipDevice::open(library.clone(), 0).unwrap();
    let stream = device.create_stream().unwrap();
    device.destroy_stream(stream).unwrap();
    assert!(matches!(device.synchronize(stream), Err(DeviceError::Handle("stream"))));
    let beyond = HipDevice::open(library, 9);
    assert!(matches!(beyond, Err(DeviceError::Hip(HipError::NoSuchDevice { .. }))));
}

#[test]
fn models_on_hip_devices() {
    if alone() {
        return models_alone();
    }
    in_own_process("models_on_hip_devices", &[("BAREWAVE_TARGET", "gfx942,gfx1100,gfx906,gfx1030")]);
    // Strict launches find nothing to complain about.
    let log = in_own_process("models_on_hip_devices", &[("BAREWAVE_TARGET", "gfx1201"), ("BAREWAVE_STRICT", "1")]);
    assert!(!log.contains("fault"), "{log}");
}

/// A run in a stream that somebody else made, who goes on using and destroys it.
fn imported_stream_alone() {
    // SAFETY: the driver's functions have HIP's signatures; what is made here is destroyed here.
    let driver = unsafe { libloading::Library::new(driver()) }.unwrap();
    type Make = unsafe extern "C" fn(*mut *mut c_void) -> u32;
    type Take = unsafe extern "C" fn(*mut c_void) -> u32;
    let (make, query, destroy) = unsafe {
        let f = (driver.get::<Make>(b"hipStreamCreate"), driver.get::<Take>(b"hipStreamQuery"));
        (f.0.unwrap(), f.1.unwrap(), driver.get::<Take>(b"hipStreamDestroy").unwrap())
    };
    let device: Arc<dyn Device> = Arc::new(HipDevice::open(library(), 0).unwrap());
    let program = program("examples/digits/digits.onnx", "gfx942");
    let mut reference = Session::new(device.clone(), &program).unwrap();
    let x = random(&[1, 1, 8, 8], 7);
    let (want, _) = reference.run(std::slice::from_ref(&x)).unwrap();
    let mut raw = std::ptr::null_mut();
    assert_eq!(unsafe { make(&mut raw) }, 0);
    // Its own default stream is one, too.
    for handle in [raw, std::ptr::null_mut()] {
        let stream = unsafe { device.import_stream(handle) }.unwrap();
        let mut session = Session::new(device.clone(), &program).unwrap();
        session.use_stream(Some(stream)).unwrap();
        assert_eq!(session.run(std::slice::from_ref(&x)).unwrap().0, want);
        session.start(std::slice::from_ref(&x)).unwrap();
        drop(session);
        device.destroy_stream(stream).unwrap();
        assert!(matches!(device.synchronize(stream), Err(DeviceError::Handle("stream"))));
    }
    assert_eq!(unsafe { query(raw) }, 0, "the stream is still there, with nothing to do");
    assert_eq!(unsafe { destroy(raw) }, 0);
    let emulated = EmulatedDevice::new(device.target(), false).unwrap();
    assert!(matches!(unsafe { emulated.import_stream(raw) }, Err(DeviceError::NoImport(_))));
}

#[test]
fn runs_go_into_streams_of_the_callers() {
    if alone() {
        return imported_stream_alone();
    }
    in_own_process("runs_go_into_streams_of_the_callers", &[("BAREWAVE_TARGET", "gfx942")]);
}

/// A kernel that reads where nothing is.
fn fault_alone() {
    let device = HipDevice::open(library(), 0).unwrap();
    let p = program("examples/vector_add/vector_add.onnx", "gfx942");
    let launch = &p.plan().launches[0];
    let kernel = device.kernel(device.load(p.code()).unwrap(), &launch.kernel).unwrap();
    let stream = device.create_stream().unwrap();
    let shape = LaunchShape { grid: launch.grid, block: [launch.block, 1, 1], dynamic_lds: 0 };
    let kernarg: Vec<u8> = [64u64, 64, 64].iter().flat_map(|a| a.to_le_bytes()).collect();
    // The launch is accepted; the fault surfaces where the stream is waited for, and stays.
    device.launch(stream, kernel, shape, &kernarg).unwrap();
    for _ in 0..2 {
        match device.synchronize(stream) {
            Err(DeviceError::Hip(HipError::Call { function, code, .. })) => {
                assert_eq!((function, code), ("hipStreamSynchronize", code::hipErrorIllegalAddress));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(device.launch(stream, kernel, shape, &kernarg).is_err());
}

#[test]
fn a_fault_is_a_hip_error_with_a_report() {
    if alone() {
        return fault_alone();
    }
    for strict in ["0", "1"] {
        let log = in_own_process(
            "a_fault_is_a_hip_error_with_a_report",
            &[("BAREWAVE_TARGET", "gfx942"), ("BAREWAVE_STRICT", strict)],
        );
        for part in ["fault on device 0 (gfx942", "is outside of device memory", "kernel `", "workgroup (", "lane "] {
            assert!(log.contains(part), "{part}: {log}");
        }
    }
    let quiet =
        in_own_process("a_fault_is_a_hip_error_with_a_report", &[("BAREWAVE_TARGET", "gfx942"), ("BAREWAVE_LOG", "0")]);
    assert!(!quiet.contains("fault on device"), "{quiet}");
}

/// Code for other features than the device's is refused before the driver sees it.
fn features_alone() {
    let device = HipDevice::open(library(), 0).unwrap();
    assert_eq!(device.info().id.to_string(), "gfx90a:sramecc+:xnack+");
    let mut code = program("examples/vector_add/vector_add.onnx", "gfx90a").code().to_vec();
    assert!(device.load(&code).is_ok());
    // xnack off, sramecc any.
    code[49] = 0x06;
    match device.load(&code) {
        Err(e @ DeviceError::Features { .. }) => assert!(e.to_string().contains("xnack off"), "{e}"),
        other => panic!("{other:?}"),
    }
    let other = program("examples/vector_add/vector_add.onnx", "gfx1100").code().clone();
    assert!(matches!(device.load(&other), Err(DeviceError::WrongTarget { .. })));
}

#[test]
fn features_are_checked() {
    if alone() {
        return features_alone();
    }
    in_own_process("features_are_checked", &[("BAREWAVE_TARGET", "gfx90a:xnack+")]);
}

/// The command finds the driver through the loader's path.
#[test]
fn the_command_uses_the_driver() {
    let Some(barewave) = common::built("barewave") else {
        println!("skipped: the command was not built (`cargo test --workspace` builds it)");
        return;
    };
    let run = |arguments: &[&str]| {
        let out = std::process::Command::new(&barewave)
            .args(arguments)
            .current_dir(repository(""))
            .env("LD_LIBRARY_PATH", driver().parent().unwrap())
            .env("BAREWAVE_TARGET", "gfx1100,gfx90a")
            .output()
            .unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let digits = ["run", "examples/digits/digits.onnx", "--input", "examples/digits/7.png", "--device"];
    for (device, name) in [("hip", "gfx1100"), ("hip:1", "gfx90a")] {
        let (status, out, err) = run(&[&digits[..], &[device]].concat());
        assert_eq!(status, Some(0), "{err}");
        assert!(out.contains(&format!("device   barewave emulated {name}")), "{out}");
        assert!(out.contains("top 3:\n  7  0.9583"), "{out}");
    }
    let (status, _, err) = run(&[&digits[..], &["hip:2"]].concat());
    assert!(status == Some(1) && err.contains("no HIP device 2") && err.contains("found 2"), "{err}");
    // `auto` wants a GPU, which an emulated driver is not.
    let (status, out, err) = run(&[&digits[..], &["auto"]].concat());
    assert!(status == Some(0) && out.contains("device   emulated gfx942"), "{out}{err}");
    assert!(err.lines().count() == 1 && err.contains("is an emulated driver"), "{err}");
    let (_, json, _) = run(&["devices", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list[1]["device"], "hip:1");
    assert_eq!(list[1]["arch"], "gfx90a:sramecc+:xnack-");
    assert_eq!(list[1]["wave_size"], 64);
    assert!(list[0]["driver_path"].as_str().unwrap().ends_with("libamdhip64.so"));
    assert!(list[0]["compute_units"].as_u64().unwrap() > 0 && list[0]["driver_version"] == "7.0.0");
    // A single kernel, with its buffers as arguments: on each device the bytes that the emulated device gives.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (device, target) in [("hip", "gfx1100"), ("hip:1", "gfx90a")] {
        let p = program("examples/vector_add/vector_add.onnx", target);
        std::fs::write(path("add.hsaco"), p.code()).unwrap();
        let launch = &p.plan().launches[0];
        let (n, output) = (p.plan().outputs[0].shape.iter().product::<usize>(), Region::Output(0));
        let shape = |x: [u32; 3]| format!("{},{},{}", x[0], x[1], x[2]);
        let run = |device: &str, file: &str| {
            let mut command = vec!["launch".into(), path("add.hsaco"), "--device".into(), device.into()];
            command.extend(["--kernel".into(), launch.kernel.clone(), "--grid".into(), shape(launch.grid)]);
            command.extend(["--block".into(), shape([launch.block, 1, 1])]);
            for (i, address) in launch.args.iter().enumerate() {
                let spec = match address.region == output {
                    true => format!("out:{n}xf32@{}", path(file)),
                    false => format!("in:{n}xf32=random:{}", i + 1),
                };
                command.extend(["--arg".into(), spec]);
            }
            let (status, out, err) = run(&command.iter().map(String::as_str).collect::<Vec<&str>>());
            assert_eq!(status, Some(0), "{device}: {err}");
            (out, std::fs::read(path(file)).unwrap())
        };
        let ((out, got), (_, want)) = (run(device, "got.npy"), run(&format!("emu:{target}"), "want.npy"));
        assert!(out.contains(&format!("device   barewave emulated {target}")), "{out}");
        assert!(got == want && got[got.len() - 4 * n..].iter().any(|b| *b != 0), "{device}");
    }
    // Code for another device is refused by name, checks need the emulator.
    let refused = |arguments: &[&str], part: &str| {
        let code = path("add.hsaco");
        let common = ["launch", &code, "--kernel", "k", "--grid", "1", "--block", "64", "--device"];
        let kernel = program("examples/vector_add/vector_add.onnx", "gfx90a").plan().launches[0].kernel.clone();
        let common = common.map(|a| if a == "k" { kernel.as_str() } else { a });
        let (status, _, err) = run(&[&common, arguments].concat());
        assert!(status != Some(0) && err.contains(part), "{err}");
    };
    refused(&["hip"], "is for gfx90a, the device is gfx1100");
    refused(&["hip:1", "--strict"], "--strict needs an emulated device");
}
