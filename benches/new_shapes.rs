//! What a shape that was not there before costs on the host, printed beside a run of one that was.
//!
//! `cargo bench --bench new_shapes`
//!
//! A decoder like GPT-2 (12 layers, width 64, written out node by node) takes one token a step, and a cache of keys and values
//! that is one longer each time: every step is a new shape, for which the model is inferred, lowered and planned anew; kernels are
//! known after the first few. The device copies and computes nothing and takes a fixed time for each step, so that what is
//! printed is the host's own work. Steps with a longer cache each time are compiled ahead while the device works; with a
//! cache that grows unevenly nothing can be.

use barewave::onnx::{Dim, Model};
use barewave::runtime::{
    Device, DeviceError, DeviceInfo, EmulatedDevice, EventId, HostBuffer, KernelId, LaunchShape, LaunchStats, ModuleId,
    StreamId,
};
use barewave::tensor::{DType, HostTensor};
use barewave::{AnyShape, Compiler};
use barewave_isa::Target;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[path = "../tests/support/build.rs"]
#[allow(dead_code)]
mod build;
use build::{Builder, int, ints};

const LAYERS: usize = 12;
const HEADS: usize = 4;
const HEAD: usize = 16;
const WIDTH: usize = HEADS * HEAD;

/// A device that waits instead of computing.
struct Idle {
    memory: EmulatedDevice,
    step: Duration,
}

impl Device for Idle {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }
    fn alloc(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.memory.alloc(bytes)
    }
    fn free(&self, address: u64) -> Result<(), DeviceError> {
        self.memory.free(address)
    }
    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer, DeviceError> {
        self.memory.host_buffer(bytes)
    }
    fn write(&self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(address, data)
    }
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(address, data)
    }
    fn load(&self, elf: &[u8]) -> Result<ModuleId, DeviceError> {
        self.memory.load(elf)
    }
    fn unload(&self, module: ModuleId) -> Result<(), DeviceError> {
        self.memory.unload(module)
    }
    fn kernel(&self, module: ModuleId, name: &str) -> Result<KernelId, DeviceError> {
        self.memory.kernel(module, name)
    }
    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        self.memory.create_stream()
    }
    fn destroy_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.memory.destroy_stream(stream)
    }
    fn copy_in(&self, _: StreamId, _: u64, _: &HostBuffer) -> Result<(), DeviceError> {
        Ok(())
    }
    fn copy_out(&self, _: StreamId, _: &HostBuffer, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn launch(&self, _: StreamId, _: KernelId, _: LaunchShape, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }
    fn synchronize(&self, _: StreamId) -> Result<Vec<LaunchStats>, DeviceError> {
        std::thread::sleep(self.step);
        Ok(Vec::new())
    }
    fn create_event(&self) -> Result<EventId, DeviceError> {
        self.memory.create_event()
    }
    fn destroy_event(&self, event: EventId) -> Result<(), DeviceError> {
        self.memory.destroy_event(event)
    }
    fn record(&self, _: StreamId, _: EventId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn wait(&self, _: StreamId, _: EventId) -> Result<(), DeviceError> {
        Ok(())
    }
    fn elapsed(&self, _: EventId, _: EventId) -> Result<Duration, DeviceError> {
        Ok(Duration::ZERO)
    }
}

/// A product with weights and a bias.
fn linear(b: &mut Builder, x: &str, from: usize, to: usize) -> String {
    let (w, bias) = (b.weight(&[from, to]), b.weight(&[to]));
    let y = b.node("MatMul", &[x, &w], &[]);
    b.node("Add", &[&y, &bias], &[])
}

fn normed(b: &mut Builder, x: &str) -> String {
    let (scale, bias) = (b.weight(&[WIDTH]), b.weight(&[WIDTH]));
    b.node("LayerNormalization", &[x, &scale, &bias], &[("axis", int(-1))])
}

fn model() -> Model {
    let mut b = Builder::new(20, 7);
    let ids = b.input_of(HostTensor::from_i64(&[1, 1], &[3]));
    let (table, split, whole) = (b.weight(&[100, WIDTH]), b.ints(&[0, 0, 4, 16]), b.ints(&[0, 0, WIDTH as i64]));
    let scale = b.constant(HostTensor::from_f32(&[], &[0.25]));
    let mut x = b.node("Gather", &[&table, &ids], &[]);
    for _ in 0..LAYERS {
        let n = normed(&mut b, &x);
        let heads = |b: &mut Builder| {
            let y = linear(b, &n, WIDTH, WIDTH);
            let y = b.node("Reshape", &[&y, &split], &[]);
            b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))])
        };
        let q = heads(&mut b);
        let [k, v] = [(); 2].map(|()| {
            let new = heads(&mut b);
            let past = b.input(&[1, HEADS, 8, HEAD]);
            let all = b.node("Concat", &[&past, &new], &[("axis", int(2))]);
            b.output(&all);
            all
        });
        let turned = b.node("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
        let scores = b.node("MatMul", &[&q, &turned], &[]);
        let scores = b.node("Mul", &[&scores, &scale], &[]);
        let shares = b.node("Softmax", &[&scores], &[("axis", int(-1))]);
        let y = b.node("MatMul", &[&shares, &v], &[]);
        let y = b.node("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))]);
        let y = b.node("Reshape", &[&y, &whole], &[]);
        let y = linear(&mut b, &y, WIDTH, WIDTH);
        let y = b.node("Add", &[&x, &y], &[]);
        let n = normed(&mut b, &y);
        let wide = linear(&mut b, &n, WIDTH, 4 * WIDTH);
        let wide = b.node("Gelu", &[&wide], &[]);
        let narrow = linear(&mut b, &wide, 4 * WIDTH, WIDTH);
        x = b.node("Add", &[&y, &narrow], &[]);
    }
    let last = b.weight(&[WIDTH, 100]);
    let y = b.node("MatMul", &[&x, &last], &[]);
    b.output(&y);
    for past in b.model.graph.inputs.iter_mut().filter(|i| i.dtype == Some(DType::F32)) {
        if let Some(dims) = &mut past.shape {
            dims[2] = Dim::Symbol("past".into());
        }
    }
    b.model
}

/// Milliseconds of a step with a new shape and of the same step again, over what the device takes, and how many of the steps
/// were foreseen.
fn steps(model: &Arc<Model>, step: Duration, past: impl Fn(usize) -> usize) -> (f64, f64, usize) {
    const STEPS: usize = 240;
    let memory = EmulatedDevice::new(Target::GFX942, false).expect("emulated devices exist");
    let compiler = Compiler::new(Target::GFX942, barewave::Options::default());
    let mut any = AnyShape::new(Arc::new(Idle { memory, step }), compiler, model.clone(), 8);
    let (mut new, mut again) = (Vec::new(), Vec::new());
    for i in 0..STEPS {
        let cache = HostTensor::from_f32(&[1, HEADS, past(i), HEAD], &vec![0.0; WIDTH * past(i)]);
        let ids = HostTensor::from_i64(&[1, 1], &[3]);
        let inputs: Vec<HostTensor> =
            model.required_inputs().map(|v| if v.dtype == Some(DType::I64) { &ids } else { &cache }.clone()).collect();
        for times in [&mut new, &mut again] {
            let start = Instant::now();
            any.run(&inputs).expect("the model runs");
            times.push((start.elapsed().saturating_sub(step)).as_secs_f64() * 1e3);
        }
    }
    // The median of the later half, when kernels are known.
    let median = |times: &mut Vec<f64>| {
        let later = &mut times[STEPS / 2..];
        later.sort_by(f64::total_cmp);
        later[later.len() / 2]
    };
    (median(&mut new), median(&mut again), any.foreseen())
}

fn main() {
    let model = Arc::new(model());
    println!("{:>12} {:>12} {:>14} {:>14} {:>10}", "a step takes", "cache", "new shape", "same again", "foreseen");
    for step in [0, 500, 1000, 2000] {
        for (name, uneven) in [("longer", false), ("uneven", true)] {
            let past = |i: usize| 64 + i + if uneven { i / 2 } else { 0 };
            let (new, again, foreseen) = steps(&model, Duration::from_micros(step), past);
            println!("{step:>9} us {name:>12} {new:>11.2} ms {again:>11.2} ms {foreseen:>10}");
        }
    }
}
