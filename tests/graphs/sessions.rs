//! Several models on one device at once: own streams and arenas, work that is waited for once, faults that surface
//! where a stream is synchronised. (The same through the HIP API: `tools/hip-driver/tests`.)

use crate::support::build::{Builder, int};
use barewave::compile::compile;
use barewave::graph::interpret::Interpreter;
use barewave::graph::{self, Options};
use barewave::onnx::{Dim, Model};
use barewave::runtime::{
    AnyShape, Device, DeviceError, DeviceInfo, EmulatedDevice, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats,
    ModuleId, Session, SessionError, StreamId, open,
};
use barewave::tensor::{DType, HostTensor, ImageOptions, InputSpec, Wanted};
use barewave::{Compiled, Compiler};
use barewave_isa::Target;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn random(shape: &[usize], seed: u64) -> HostTensor {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    let spec: InputSpec = format!("{}xf32=random:{seed}", dims.join("x")).parse().unwrap();
    let wanted = Wanted { name: "x".into(), dtype: DType::F32, shape: shape.to_vec() };
    spec.load(&wanted, &ImageOptions::default()).unwrap()
}

fn program(path: &str, target: Target) -> Compiled {
    let model = Model::load(Path::new(path)).unwrap();
    compile(&graph::fuse(&model, &Options::default()).unwrap(), target).unwrap()
}

fn session(device: &Arc<dyn Device>, p: &Compiled) -> Session {
    Session::new(device.clone(), p).unwrap()
}

const MODELS: [(&str, [usize; 4]); 3] = [
    ("examples/digits/digits.onnx", [1, 1, 8, 8]),
    ("examples/lenet/lenet.onnx", [1, 3, 28, 28]),
    ("examples/digits/digits.onnx", [1, 1, 8, 8]),
];

#[test]
fn models_that_share_a_device_do_not_disturb_each_other() {
    for target in [Target::GFX942, Target::GFX1100] {
        let programs = MODELS.map(|(path, _)| program(path, target));
        let alone = |p: &Compiled, x: &HostTensor| {
            let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, false).unwrap());
            session(&device, p).run(std::slice::from_ref(x)).unwrap().0
        };
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, false).unwrap());
        let mut sessions: Vec<Session> = programs.iter().map(|p| session(&device, p)).collect();
        for seed in 0..20 {
            let inputs: Vec<HostTensor> =
                MODELS.iter().enumerate().map(|(i, (_, shape))| random(shape, seed * 3 + i as u64)).collect();
            // All are under way before the first is waited for, and they are waited for in another order.
            for (s, x) in sessions.iter_mut().zip(&inputs) {
                s.start(std::slice::from_ref(x)).unwrap();
            }
            for i in [2, 0, 1] {
                let (got, report) = sessions[i].finish().unwrap();
                assert_eq!(got, alone(&programs[i], &inputs[i]), "{target}, seed {seed}, model {i}");
                assert!(report.instructions.unwrap() > 1000 && !report.time.is_zero());
            }
        }
        assert!(matches!(sessions[0].finish(), Err(SessionError::NotStarted)));
    }
}

#[test]
fn forks_run_at_once_over_the_same_weights() {
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX1100, false).unwrap());
    let (path, shape) = MODELS[1];
    let compiled = program(path, Target::GFX1100);
    let mut whole = session(&device, &compiled);
    let inputs: Vec<HostTensor> = (0..4).map(|seed| random(&shape, seed)).collect();
    let want: Vec<HostTensor> =
        inputs.iter().map(|x| whole.run(std::slice::from_ref(x)).unwrap().0.remove(0)).collect();
    let mut forks: Vec<Session> = inputs.iter().map(|_| whole.fork().unwrap()).collect();
    drop(whole);
    for (fork, x) in forks.iter_mut().zip(&inputs) {
        fork.start(std::slice::from_ref(x)).unwrap();
    }
    for (fork, want) in forks.iter_mut().zip(&want).rev() {
        assert_eq!(&fork.finish().unwrap().0[0], want);
    }
    // A model of any shape: forks from several threads, each with shapes of its own.
    let model = Arc::new(Model::load(Path::new(path)).unwrap());
    let any = AnyShape::new(device, Compiler::new(Target::GFX1100, barewave::Options::default()), model, 4);
    std::thread::scope(|s| {
        for (x, want) in inputs.iter().zip(&want) {
            let mut fork = any.fork().unwrap();
            s.spawn(move || assert_eq!(&fork.run(std::slice::from_ref(x)).unwrap().0[0], want));
        }
    });
}

#[test]
fn runs_that_count_follow_each_other_without_waiting() {
    // A product whose depth several workgroups share: the last of them adds what they have counted in.
    let mut b = Builder::new(17, 5);
    let (x, w) = (b.input(&[16, 4096]), b.weight(&[4096, 32]));
    let y = b.node("MatMul", &[&x, &w], &[]);
    b.output(&y);
    let target = Target::GFX942;
    let compiled = Compiler::new(target, barewave::Options::default()).compile(&b.model, &Options::default()).unwrap();
    assert!(compiled.plan().counter_bytes > 0);
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let inputs: Vec<HostTensor> = (0..6).map(|seed| random(&[16, 4096], seed)).collect();
    let mut alone = session(&device, &compiled);
    let want: Vec<HostTensor> =
        inputs.iter().map(|x| alone.run(std::slice::from_ref(x)).unwrap().0.remove(0)).collect();
    let mut bound = session(&device, &compiled);
    let none: &[HostTensor] = &[];
    let mut results = Vec::new();
    for x in &inputs {
        let at = [x.byte_len(), want[0].byte_len()].map(|bytes| device.alloc(bytes as u64).unwrap());
        device.write(at[0], x.bytes()).unwrap();
        bound.bind_input(0, Some(at[0])).unwrap();
        bound.bind_output(0, Some(at[1])).unwrap();
        bound.start(none).unwrap();
        results.push(at[1]);
    }
    bound.finish().unwrap();
    for (at, want) in results.into_iter().zip(&want) {
        let mut got = vec![0; want.byte_len()];
        device.read(at, &mut got).unwrap();
        assert_eq!(got[..], want.bytes()[..]);
    }
}

#[test]
fn sessions_run_from_several_threads() {
    let target = Target::GFX906;
    let programs = MODELS.map(|(path, _)| program(path, target));
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, false).unwrap());
    std::thread::scope(|scope| {
        for (p, (_, shape)) in programs.iter().zip(MODELS) {
            let device = device.clone();
            scope.spawn(move || {
                let mut shared = session(&device, p);
                let own: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, false).unwrap());
                let mut alone = session(&own, p);
                for seed in 0..20 {
                    let x = [random(&shape, seed)];
                    assert_eq!(shared.run(&x).unwrap().0, alone.run(&x).unwrap().0);
                }
            });
        }
    });
}

#[test]
fn timing_measures_every_launch() {
    let p = program(MODELS[0].0, Target::GFX942);
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(Target::GFX942, false).unwrap());
    let mut s = session(&device, &p);
    let x = [random(&[1, 1, 8, 8], 1)];
    assert!(s.run(&x).unwrap().1.per_launch.is_empty());
    s.time_launches().unwrap();
    let report = s.run(&x).unwrap().1;
    assert_eq!(report.per_launch.len(), p.plan().launches.len());
    let sum: std::time::Duration = report.per_launch.iter().map(|l| l.time).sum();
    assert!(report.per_launch.iter().all(|l| !l.time.is_zero()) && sum <= report.time);
    assert_eq!(Some(report.per_launch.iter().filter_map(|l| l.instructions).sum()), report.instructions);
}

#[test]
fn faults_surface_when_the_stream_is_synchronised() {
    for strict in [false, true] {
        let device = EmulatedDevice::new(Target::GFX1100, strict).unwrap();
        let p = program("examples/vector_add/vector_add.onnx", Target::GFX1100);
        let l = &p.plan().launches[0];
        let module = device.load(p.code()).unwrap();
        let kernel = device.kernel(module, &l.kernel).unwrap();
        let (bad, good) = (device.create_stream().unwrap(), device.create_stream().unwrap());
        let buffer = device.alloc(1 << 16).unwrap();
        device.write(buffer, &[0; 1 << 16]).unwrap();
        let launch = |stream, addresses: [u64; 3]| {
            let kernarg: Vec<u8> = addresses.iter().flat_map(|a| a.to_le_bytes()).collect();
            let shape = LaunchShape { grid: l.grid, block: [l.block, 1, 1], dynamic_lds: 0 };
            device.launch(stream, kernel, shape, &kernarg).unwrap();
        };
        launch(bad, [buffer, 64, buffer + 32768]);
        // What follows in the stream is skipped; other streams go on.
        launch(bad, [buffer; 3]);
        launch(good, [buffer, buffer, buffer + 32768]);
        assert_eq!(device.synchronize(good).unwrap().len(), 1);
        let e = device.synchronize(bad).unwrap_err().to_string();
        for part in ["outside of device memory", "kernel `", "workgroup (", "lane "] {
            assert!(e.contains(part), "{part}: {e}");
        }
        // The error is told once.
        assert!(device.synchronize(bad).unwrap().is_empty());
        device.unload(module).unwrap();
        assert!(matches!(device.kernel(module, &l.kernel), Err(DeviceError::Handle("module"))));
    }
}

#[test]
fn host_buffers_belong_to_the_copies_under_way() {
    let device = EmulatedDevice::new(Target::GFX90A, false).unwrap();
    let stream = device.create_stream().unwrap();
    let (address, size) = (device.alloc(1 << 20).unwrap(), 1 << 20);
    let (mut from, mut to) = (device.host_buffer(size).unwrap(), device.host_buffer(size).unwrap());
    from.bytes().unwrap().fill(7);
    let held = from.clone();
    assert!(from.bytes().is_err(), "somebody else holds the buffer");
    drop(held);
    device.copy_in(stream, address, &from).unwrap();
    device.copy_out(stream, &to, address).unwrap();
    device.synchronize(stream).unwrap();
    assert!(to.bytes().unwrap().iter().all(|b| *b == 7) && from.bytes().is_ok());
    let too_large = device.host_buffer(device.info().memory_bytes as usize + 1).map(|b| b.len()).unwrap_err();
    assert!(too_large.to_string().contains("out of device memory"), "{too_large}");
    // Copies beyond memory are refused where they are waited for.
    device.copy_in(stream, u64::MAX - 8, &from).unwrap();
    assert!(device.synchronize(stream).unwrap_err().to_string().contains("bad device address"));
}

#[test]
fn devices_are_opened_by_name() {
    for (name, preferred, want) in [
        ("emu:mi300x", None, "emulated mi300x (gfx942)"),
        ("emu", Some(Target::GFX803), "emulated gfx803"),
        ("emu", None, "emulated gfx942"),
    ] {
        let opened = open(name, preferred, false).unwrap();
        assert_eq!((opened.device.info().name.as_str(), opened.note), (want, None));
    }
    for name in ["cuda", "hip:x", "hipster", ""] {
        assert!(matches!(open(name, None, false), Err(DeviceError::Unknown(_))), "{name}");
    }
    let device = open("emu:mi210", None, false).unwrap().device;
    assert_eq!(device.info().id.to_string(), "gfx90a:sramecc+:xnack-");
}

/// A device that counts what is asked of it.
struct Counting {
    device: EmulatedDevice,
    /// Modules, allocations, host buffers, streams and events that were made.
    made: [AtomicUsize; 5],
    /// Allocations that are there now.
    held: AtomicUsize,
}

impl Counting {
    fn made(&self) -> [usize; 5] {
        self.made.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
    fn count(&self, what: usize) {
        self.made[what].fetch_add(1, Ordering::Relaxed);
    }
}

impl Device for Counting {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }
    fn alloc(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.count(1);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.device.alloc(bytes)
    }
    fn free(&self, address: u64) -> Result<(), DeviceError> {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.device.free(address)
    }
    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, DeviceError> {
        self.count(2);
        self.device.host_buffer(bytes)
    }
    fn write(&self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.device.write(address, data)
    }
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(address, data)
    }
    fn load(&self, elf: &[u8]) -> Result<ModuleId, DeviceError> {
        self.count(0);
        self.device.load(elf)
    }
    fn unload(&self, module: ModuleId) -> Result<(), DeviceError> {
        self.device.unload(module)
    }
    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelId, DeviceError> {
        self.device.kernel(module, name)
    }
    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        self.count(3);
        self.device.create_stream()
    }
    fn destroy_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.device.destroy_stream(stream)
    }
    fn copy_in(&self, stream: StreamId, address: u64, from: &HostBuffer) -> Result<(), DeviceError> {
        self.device.copy_in(stream, address, from)
    }
    fn copy_out(&self, stream: StreamId, into: &HostBuffer, address: u64) -> Result<(), DeviceError> {
        self.device.copy_out(stream, into, address)
    }
    fn launch(&self, s: StreamId, k: KernelId, shape: LaunchShape, kernarg: &[u8]) -> Result<(), DeviceError> {
        self.device.launch(s, k, shape, kernarg)
    }
    fn synchronize(&self, stream: StreamId) -> Result<Vec<LaunchStats>, DeviceError> {
        self.device.synchronize(stream)
    }
    fn create_event(&self) -> Result<EventId, DeviceError> {
        self.count(4);
        self.device.create_event()
    }
    fn destroy_event(&self, event: EventId) -> Result<(), DeviceError> {
        self.device.destroy_event(event)
    }
    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.device.record(stream, event)
    }
    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.device.wait(stream, event)
    }
    fn elapsed(&self, start: EventId, end: EventId) -> Result<Duration, DeviceError> {
        self.device.elapsed(start, end)
    }
}

#[test]
fn new_shapes_share_what_the_device_holds() {
    // Softmax of any number of rows, and x is given back one row longer.
    let mut b = Builder::new(17, 3);
    let x = b.input(&[2, 24]);
    let row = b.weight(&[1, 24]);
    let sum = b.node("Add", &[&x, &row], &[]);
    let y = b.node("Softmax", &[&sum], &[]);
    let longer = b.node("Concat", &[&x, &row], &[("axis", int(0))]);
    [&y, &longer].iter().for_each(|o| b.output(o));
    b.model.graph.inputs[0].shape = Some(vec![Dim::Symbol("rows".into()), Dim::Known(24)]);
    let target = Target::GFX942;
    let device = Arc::new(Counting {
        device: EmulatedDevice::new(target, false).unwrap(),
        made: Default::default(),
        held: AtomicUsize::new(0),
    });
    let compiler = Compiler::new(target, barewave::Options::default());
    let mut model = AnyShape::new(device.clone(), compiler, Arc::new(b.model.clone()), 4);
    let check = |model: &mut AnyShape, x: &HostTensor| {
        let (got, _) = model.run(std::slice::from_ref(x)).unwrap();
        let rows = x.shape()[0];
        let shapes = Options { dims: [("rows".to_string(), rows)].into(), ..Options::default() };
        let graph = graph::fuse(&b.model, &shapes).unwrap();
        let want = Interpreter::new(&graph).run(&graph, std::slice::from_ref(x)).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got.shape(), want.shape());
            let off = got.to_f64().iter().zip(want.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-4, "{rows} rows: off by {off}");
        }
        got.into_iter().nth(1).unwrap()
    };
    let mut x = random(&[1, 24], 5);
    for _ in 0..60 {
        x = check(&mut model, &x);
    }
    let compiled = model.compiled();
    let [modules, blocks, buffers, streams, events] = device.made();
    assert_eq!((compiled, streams, events), (60, 1, 2));
    assert_eq!(model.foreseen(), 57, "from the third on, the next number of rows is plain");
    assert!(modules < 10, "{modules} modules for 60 shapes");
    // One input, two outputs, the arena, weights: each grows by half when it has to.
    assert!(blocks < 60 && buffers < 40, "{blocks} allocations and {buffers} host buffers for 60 shapes");
    assert!(device.held.load(Ordering::Relaxed) < 12);
    // Of the last four shapes each is there.
    for rows in [58, 60, 57, 59, 60] {
        check(&mut model, &random(&[rows, 24], rows as u64));
    }
    assert_eq!(model.compiled(), compiled);
    check(&mut model, &random(&[3, 24], 1));
    assert_eq!((model.compiled(), model.foreseen()), (compiled + 1, 57));
    drop(model);
    assert_eq!(device.held.load(Ordering::Relaxed), 0);
}

#[test]
fn shapes_that_values_decide_are_not_foreseen() {
    // x of n elements in rows of as many as `like` says: extents alone do not tell what comes.
    let mut b = Builder::new(17, 3);
    let x = b.input(&[2]);
    let like = b.input(&[2]);
    let y = b.node("Reshape", &[&x, &like], &[]);
    b.output(&y);
    b.model.graph.inputs[0].shape = Some(vec![Dim::Symbol("n".into())]);
    b.model.graph.inputs[1].dtype = Some(DType::I64);
    let compiler = Compiler::new(Target::GFX942, barewave::Options::default());
    let device = Arc::new(EmulatedDevice::new(Target::GFX942, false).unwrap());
    let mut model = AnyShape::new(device, compiler, Arc::new(b.model.clone()), 4);
    for n in 1..8i64 {
        let x = random(&[2 * n as usize], 7);
        for shape in [[n, 2], [1, 2 * n]] {
            let (got, _) = model.run(&[x.clone(), HostTensor::from_i64(&[2], &shape)]).unwrap();
            assert_eq!(got[0].shape(), shape.map(|d| d as usize));
            assert_eq!(got[0].bytes(), x.bytes());
        }
    }
    assert_eq!(model.foreseen(), 0);
}

/// With everything in device memory nobody waits between runs: each is right, also where workgroups count each other.
#[test]
fn runs_on_device_memory_follow_each_other() {
    const TURNS: u64 = 6;
    for (target, (m, k, n)) in [(Target::GFX942, (16, 8192, 16)), (Target::GFX1100, (32, 4096, 32))] {
        let mut b = Builder::new(17, 3);
        let (x, y) = (b.input(&[m, k]), b.input(&[k, n]));
        let product = b.node("MatMul", &[&x, &y], &[]);
        let out = b.node("Relu", &[&product], &[]);
        b.output(&out);
        let p = compile(&graph::fuse(&b.model, &Options::default()).unwrap(), target).unwrap();
        assert!(p.plan().counter_bytes > 0, "{target}: the product's depth is shared");
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, false).unwrap());
        let mut s = session(&device, &p);
        let given = |turn: u64| [random(&[m, k], turn), random(&[k, n], 50 + turn)];
        let memory = |t: &HostTensor| {
            let address = device.alloc(t.bytes().len() as u64).unwrap();
            device.write(address, t.bytes()).unwrap();
            address
        };
        let (own, mut places) = (session(&device, &p).run(&given(0)).unwrap().0, Vec::new());
        for turn in 0..TURNS {
            for (number, t) in given(turn).iter().enumerate() {
                s.bind_input(number, Some(memory(t))).unwrap();
            }
            let place = device.alloc(own[0].bytes().len() as u64).unwrap();
            s.bind_output(0, Some(place)).unwrap();
            s.start::<HostTensor>(&[]).unwrap();
            places.push(place);
        }
        s.finish().unwrap();
        for (turn, place) in (0..).zip(places) {
            let want = session(&device, &p).run(&given(turn)).unwrap().0;
            let mut got = vec![0; want[0].bytes().len()];
            device.read(place, &mut got).unwrap();
            assert!(got[..] == want[0].bytes()[..], "{target}: turn {turn}");
        }
    }
}
