//! Outputs in the memory of inputs: the same results as in memory of their own, with less to do; and what is refused.

use crate::support::build::{Builder, int};
use barewave::compile::compile;
use barewave::graph::{Options, fuse};
use barewave::onnx::Dim;
use barewave::runtime::{Device, EmulatedDevice, RunReport, Session, SessionError};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [Target; 5] = [Target::GFX906, Target::GFX942, Target::GFX1030, Target::GFX1100, Target::GFX1201];

/// True for a model that leaves a dimension open.
fn is_open(b: &Builder) -> bool {
    let symbols = |d: &Dim| matches!(d, Dim::Symbol(_));
    b.model.graph.inputs.iter().any(|i| i.shape.iter().flatten().any(symbols))
}

/// A model on a device whose inputs and outputs all lie in memory of the caller's.
struct Bound {
    device: Arc<dyn Device>,
    session: Session,
    inputs: Vec<(u64, HostTensor)>,
    outputs: Vec<(u64, usize)>,
}

impl Bound {
    fn new(b: &Builder, target: Target) -> Bound {
        let mut model = b.model.clone();
        model.expand();
        let dims = if is_open(b) { [("room".to_string(), b.inputs[3].shape()[2])].into() } else { Default::default() };
        let graph = fuse(&model, &Options { dims, ..Options::default() }).unwrap();
        let compiled = compile(&graph, target).unwrap();
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::new(target, true).unwrap());
        let mut session = Session::new(device.clone(), &compiled).unwrap();
        let room = |bytes: usize| device.alloc(bytes as u64 + 4096).unwrap();
        let inputs: Vec<_> = b.inputs.iter().map(|t| (room(t.byte_len()), t.clone())).collect();
        let bytes = session.plan().outputs.iter().map(|p| p.bytes().unwrap());
        let outputs: Vec<_> = bytes.map(|bytes| (room(bytes), bytes)).collect();
        for (i, (at, _)) in inputs.iter().enumerate() {
            session.bind_input(i, Some(*at)).unwrap();
        }
        Bound { device, session, inputs, outputs }
    }

    /// A run with the inputs as they were given, and some outputs in other places; what the outputs are.
    fn run(&mut self, elsewhere: &[(usize, u64)]) -> Result<(Vec<Vec<u8>>, RunReport), SessionError> {
        for (at, t) in &self.inputs {
            self.device.write(*at, t.bytes()).unwrap();
        }
        let place = |o: usize| elsewhere.iter().find(|(other, _)| *other == o).map_or(self.outputs[o].0, |e| e.1);
        let places: Vec<u64> = (0..self.outputs.len()).map(place).collect();
        for (o, at) in places.iter().enumerate() {
            self.session.bind_output(o, Some(*at)).unwrap();
        }
        self.session.start::<HostTensor>(&[])?;
        let (_, report) = self.session.finish()?;
        let read = |(at, (_, bytes)): (&u64, &(u64, usize))| {
            let mut data = vec![0; *bytes];
            self.device.read(*at, &mut data).unwrap();
            data
        };
        Ok((places.iter().zip(&self.outputs).map(read).collect(), report))
    }
}

/// Runs a model with outputs in the memory of inputs and in memory of their own; how many launches that saves.
fn saves(b: &Builder, pairs: &[(usize, usize)], what: &str) -> Vec<usize> {
    let of = |target: &Target| {
        let mut bound = Bound::new(b, *target);
        let (want, own) = bound.run(&[]).unwrap();
        let places: Vec<(usize, u64)> = pairs.iter().map(|(i, o)| (*o, bound.inputs[*i].0)).collect();
        let (got, shared) = bound.run(&places).unwrap_or_else(|e| panic!("{what} {target}: {e}"));
        assert!(got == want, "{what} {target}: another result in place");
        // And in memory of their own again.
        let (again, report) = bound.run(&[]).unwrap();
        assert!(again == want && report.launches == own.launches, "{what} {target}");
        own.launches - shared.launches
    };
    TARGETS.iter().map(of).collect()
}

fn floats(b: &mut Builder, dtype: DType, shape: &[usize]) -> String {
    let x = b.random(shape).to_f64();
    b.input_of(HostTensor::from_f64(dtype, shape, &x))
}

/// Three sequences that decode over a cache in blocks, whose caches are inputs 3 and 4, and outputs 1 and 2.
fn paged(tokens: usize) -> Builder {
    let mut b = Builder::new(23, 9);
    let (heads, shared, size, blocks, block) = (4, 2, 64, 12, 16);
    let mut names = [heads, shared, shared].map(|n| floats(&mut b, DType::F16, &[tokens, n * size])).to_vec();
    names.extend([(); 2].map(|()| floats(&mut b, DType::F16, &[blocks, block, shared, size])));
    let ends: Vec<i32> = (0..4).map(|i| (i * tokens / 3) as i32).collect();
    names.push(b.input_of(HostTensor::from_i32(&[4], &ends)));
    names.push(b.input_of(HostTensor::from_i32(&[3], &[17, 3, 30])));
    names.push(b.input_of(HostTensor::from_i32(&[3, 4], &[7, 2, 5, -1, 1, 8, -1, -1, 0, 11, 4, 9])));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let attributes = [("num_heads", int(heads as i64)), ("kv_num_heads", int(shared as i64))];
    let made = b.node_n("PagedAttention", &names, &attributes, 3);
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
    b.model.opsets.insert("com.microsoft".into(), 1);
    made.iter().for_each(|o| b.output(o));
    b
}

#[test]
fn caches_in_blocks_are_added_to_where_they_lie() {
    assert_eq!(saves(&paged(3), &[(3, 1), (4, 2)], "decode"), [2; 5]);
    assert_eq!(saves(&paged(21), &[(3, 1), (4, 2)], "prefill"), [2; 5]);
    // One of them copied, the other not.
    assert_eq!(saves(&paged(3), &[(4, 2)], "values alone"), [1; 5]);
}

/// Two sequences with caches of some room, which are inputs 3 and 4, and outputs 1 and 2.
fn with_room(dtype: DType, room: usize, had: [i32; 2]) -> Builder {
    let mut b = Builder::new(23, 4);
    let (heads, shared, size) = (4, 2, 64);
    let mut names = [heads, shared, shared].map(|n| floats(&mut b, dtype, &[2, 1, n * size])).to_vec();
    names.extend([(); 2].map(|()| floats(&mut b, dtype, &[2, shared, room, size])));
    names.push(b.input_of(HostTensor::from_i32(&[2, 1], &had)));
    names.push(b.constant(HostTensor::from_i32(&[], &[room as i32])));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let attributes = [("num_heads", int(heads as i64)), ("kv_num_heads", int(shared as i64))];
    let made = b.node_n("GroupQueryAttention", &names, &attributes, 3);
    b.model.graph.nodes.last_mut().unwrap().domain = "com.microsoft".into();
    b.model.opsets.insert("com.microsoft".into(), 1);
    made.iter().for_each(|o| b.output(o));
    b
}

#[test]
fn a_cache_with_room_is_added_to_where_it_lies() {
    for (dtype, room, had) in [(DType::F16, 48, [20, 33]), (DType::F32, 200, [0, 199]), (DType::BF16, 700, [650, 3])] {
        let both = saves(&with_room(dtype, room, had), &[(3, 1), (4, 2)], "GroupQueryAttention");
        let values = saves(&with_room(dtype, room, had), &[(4, 2)], "values alone");
        assert_eq!(both, values, "the attention puts the caches together itself");
        // Kernels that are told how large the caches are.
        let mut open = with_room(dtype, room, had);
        for input in &mut open.model.graph.inputs[3..5] {
            let [batch, heads, size] = [2, 2, 64].map(Dim::Known);
            input.shape = Some(vec![batch, heads, Dim::Symbol("room".into()), size]);
        }
        assert_eq!(saves(&open, &[(3, 1), (4, 2)], "any keys"), both);
    }
}

#[test]
fn elements_are_replaced_where_they_lie() {
    let mut b = Builder::new(24, 5);
    let (cache, new) = (floats(&mut b, DType::F32, &[2, 3, 20, 8]), floats(&mut b, DType::F32, &[2, 3, 4, 8]));
    let at = b.input_of(HostTensor::from_i64(&[2], &[3, 11]));
    let y = b.node("TensorScatter", &[&cache, &new, &at], &[("axis", int(2))]);
    b.output(&y);
    saves(&b, &[(0, 0)], "TensorScatter");
    for rows in [3, 20] {
        let mut b = Builder::new(18, 6);
        let (x, new) = (floats(&mut b, DType::F32, &[400, 8]), floats(&mut b, DType::F32, &[rows, 8]));
        let list: Vec<i64> = (0..rows as i64).map(|i| (i * 37) % 401 - 1).collect();
        let at = b.input_of(HostTensor::from_i64(&[rows, 1], &list));
        let y = b.node("ScatterND", &[&x, &at, &new], &[]);
        b.output(&y);
        saves(&b, &[(0, 0)], "ScatterND");
    }
    let mut b = Builder::new(18, 7);
    let x = floats(&mut b, DType::F32, &[300]);
    let y = b.node("Relu", &[&x], &[]);
    b.output(&y);
    saves(&b, &[(0, 0)], "Relu");
}

#[test]
fn outputs_in_memory_that_is_needed_are_refused() {
    let refused = |b: &Builder, place: &dyn Fn(&Bound) -> (usize, u64), words: &str| {
        let mut bound = Bound::new(b, Target::GFX942);
        let place = place(&bound);
        let e = bound.run(&[place]).map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
        bound.run(&[]).unwrap();
    };
    let b = paged(3);
    refused(&b, &|b| (1, b.inputs[4].0), "is bound to memory that holds");
    refused(&b, &|b| (1, b.inputs[3].0 + 256), "is bound to memory that holds");
    refused(&b, &|b| (0, b.inputs[3].0), "is bound to memory that holds");
    refused(&b, &|b| (2, b.outputs[1].0 + 64), "is bound to memory that holds");
    // Who reads the input does so after the output was written.
    let mut b = Builder::new(24, 5);
    let (cache, new) = (floats(&mut b, DType::F32, &[2, 20, 8]), floats(&mut b, DType::F32, &[2, 4, 8]));
    let y = b.node("TensorScatter", &[&cache, &new], &[("axis", int(1))]);
    let z = b.node("ReduceSum", &[&cache], &[]);
    [&y, &z].into_iter().for_each(|o| b.output(o));
    refused(&b, &|b| (0, b.inputs[0].0), "is bound to memory that holds");
}
