//! Random networks of values of every type, whose results are known operator by operator (see [`super::apart`]).
//!
//! What only moves values (turned, reversed, padded, cut, joined, gathered) stands before every family of operators that reads
//! them, values are read several times, and some that are read are also outputs. Operators whose results jump read values that
//! every order of computing gives alike, so that results can be compared.

use super::apart::{self, Values};
use super::build::{Builder, int, ints, text};
use barewave::onnx::{Attribute, Node};
use barewave::tensor::{DType, HostTensor};

/// A network under construction.
pub struct Mixed {
    pub b: Builder,
    /// What can be read.
    values: Vec<Value>,
    /// What inputs hold and nodes compute.
    known: Values,
}

/// A value that nodes can read.
#[derive(Clone)]
struct Value {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    /// Its elements do not depend on how they are computed.
    exact: bool,
}

/// Largest number of elements of a value.
const MOST: usize = 6000;

/// A random network.
pub fn network(seed: u64) -> Mixed {
    let mut g = Mixed { b: Builder::new(18, seed), values: Vec::new(), known: Values::new() };
    use DType::*;
    let dtype = [F32, F32, F32, F16, F64, BF16, I32, I8, U8, I64, U16, Bool][g.b.below(12)];
    for _ in 0..g.b.between(1, 2) {
        let shape = g.shape();
        g.input(dtype, &shape);
    }
    let wanted = g.b.between(2, 14);
    while g.len() < wanted {
        if g.b.coin() {
            g.moved()
        } else {
            g.read()
        };
    }
    // What nobody reads, and some that are read.
    let nodes = &g.b.model.graph.nodes;
    let read = |name: &String| nodes.iter().any(|n| n.inputs.contains(name));
    let made: Vec<(String, bool)> = nodes.iter().flat_map(|n| &n.outputs).map(|o| (o.clone(), read(o))).collect();
    for (name, read) in made {
        if !read || g.b.below(8) == 0 {
            g.b.output(&name);
        }
    }
    g
}

impl Mixed {
    /// Says how results differ from what the operators make one by one.
    pub fn agree(&self, got: &[HostTensor]) -> Result<(), String> {
        let coarse = |t: DType| self.known.values().any(|v| v.dtype() == t);
        let most = if coarse(DType::BF16) {
            0.15
        } else if coarse(DType::F16) {
            0.02
        } else {
            1e-4
        };
        for (got, info) in got.iter().zip(&self.b.model.graph.outputs) {
            let (name, want) = (&info.name, &self.known[&info.name]);
            if (got.shape(), got.dtype()) != (want.shape(), want.dtype()) {
                return Err(format!("{name} is {got:?} instead of {want:?}\n{}", self.listing()));
            }
            let most = if want.dtype().is_float() { most } else { 0.0 };
            let (got, want) = (got.to_f64(), want.to_f64());
            let size = want.iter().filter(|x| x.is_finite()).fold(1.0, |m: f64, x| m.max(x.abs()));
            let near = |x: f64, y: f64| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= most * size;
            if let Some(i) = (0..want.len()).find(|&i| !near(got[i], want[i])) {
                return Err(format!(
                    "{name}: element {i} is {:e} instead of {:e}\n{}",
                    got[i],
                    want[i],
                    self.listing()
                ));
            }
        }
        Ok(())
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.b.model.graph.nodes.len()
    }

    /// The nodes, a line each.
    fn listing(&self) -> String {
        let nodes = self.b.model.graph.nodes.iter();
        let line = |n: &Node| {
            let shapes = n.outputs.iter().map(|o| format!("{o}: {:?}", self.known[o])).collect::<Vec<_>>().join(", ");
            format!("    {shapes} = {}({}) {:?}\n", n.op, n.inputs.join(", "), n.attributes)
        };
        nodes.map(line).collect()
    }

    fn extent(&mut self) -> usize {
        [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17][self.b.below(13)]
    }

    /// Few elements, of any rank, often an image.
    fn shape(&mut self) -> Vec<usize> {
        let rank = [1, 2, 3, 4, 4, 4, 5][self.b.below(7)];
        let mut shape: Vec<usize> = (0..rank).map(|_| self.extent()).collect();
        while shape.iter().product::<usize>() > MOST / 4 {
            let largest = (0..rank).max_by_key(|&d| shape[d]).expect("there are dimensions");
            shape[largest] = shape[largest].div_ceil(2);
        }
        shape
    }

    /// Elements that every type holds, some of them negative where it has such.
    fn data(&mut self, dtype: DType, shape: &[usize]) -> HostTensor {
        let n = shape.iter().product();
        let low = if dtype.is_float() || dtype.is_signed_int() { -8 } else { 0 };
        let list: Vec<i64> =
            (0..n).map(|_| low + self.b.below(if dtype == DType::Bool { 2 } else { 17 }) as i64).collect();
        if dtype.is_float() {
            HostTensor::from_f64(dtype, shape, &list.iter().map(|&v| v as f64 / 4.0).collect::<Vec<_>>())
        } else {
            HostTensor::from_ints(dtype, shape, &list)
        }
    }

    fn input(&mut self, dtype: DType, shape: &[usize]) -> Value {
        let data = self.data(dtype, shape);
        let name = self.b.input_of(data.clone());
        self.known.insert(name.clone(), data);
        let value = Value { name, dtype, shape: shape.to_vec(), exact: true };
        self.values.push(value.clone());
        value
    }

    fn constant(&mut self, dtype: DType, shape: &[usize]) -> String {
        let data = self.data(dtype, shape);
        self.b.constant(data)
    }

    fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.b.below(list.len())]
    }

    /// A value, more often a recent one, that fits.
    fn pick(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let list: Vec<&Value> = self.values.iter().filter(|v| fits(v)).collect();
        let recent = self.b.coin();
        let from = if recent { list.len().saturating_sub(3) } else { 0 };
        (!list.is_empty()).then(|| list[from + self.b.below(list.len() - from)].clone())
    }

    /// Another operand of an elementwise operator: of the same shape or one that is spread.
    fn beside(&mut self, x: &Value) -> String {
        if self.b.coin()
            && let Some(other) = self.pick(|v| v.dtype == x.dtype && v.shape == x.shape)
        {
            return other.name;
        }
        let mut shape = x.shape.clone();
        shape.iter_mut().for_each(|d| *d = if self.b.coin() { 1 } else { *d });
        let first = self.b.below(shape.len() + 1);
        self.constant(x.dtype, &shape[first..])
    }

    /// Adds a node unless it is refused or computes too much, and gives its first output; `exact` says that the elements do not
    /// depend on how they are computed, if those of `x` do not.
    fn add(
        &mut self,
        x: &Value,
        exact: bool,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> Option<Value> {
        self.add_n(x, exact, op, inputs, attributes, 1)?.pop()
    }

    fn add_n(
        &mut self,
        x: &Value,
        exact: bool,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        n: usize,
    ) -> Option<Vec<Value>> {
        let names = self.b.node_n(op, inputs, attributes, n);
        let (graph, opsets) = (&self.b.model.graph, &self.b.model.opsets);
        let node = graph.nodes.last().expect("it was added");
        let made = apart::results(opsets, node, &graph.initializers, &self.known);
        let good = |t: &HostTensor| (1..=MOST).contains(&t.len()) && t.shape().len() <= 6;
        let Some(made) = made.ok().filter(|list| list.iter().all(good)) else {
            self.b.model.graph.nodes.pop();
            return None;
        };
        let exact = exact && x.exact && inputs.iter().all(|i| self.values.iter().all(|v| v.name != *i || v.exact));
        let mut list = Vec::new();
        for (name, t) in names.into_iter().zip(made) {
            list.push(Value { name: name.clone(), dtype: t.dtype(), shape: t.shape().to_vec(), exact });
            self.known.insert(name, t);
        }
        self.values.extend(list.iter().cloned());
        Some(list)
    }

    /// A dimension, counted from the front or from the back.
    fn axis(&mut self, rank: usize) -> (usize, Attribute) {
        let d = self.b.below(rank);
        (d, int(if self.b.coin() { d as i64 } else { d as i64 - rank as i64 }))
    }

    /// Adds what moves a value.
    fn moved(&mut self) -> Option<Value> {
        let x = self.pick(|v| !v.shape.is_empty())?;
        let (rank, name) = (x.shape.len(), x.name.as_str());
        match self.b.below(14) {
            0 | 1 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                (1..rank).rev().for_each(|i| perm.swap(i, self.b.below(i + 1)));
                self.add(&x, true, "Transpose", &[name], &[("perm", ints(&perm))])
            }
            2 => {
                let total: usize = x.shape.iter().product();
                let divisors: Vec<usize> = (1..=total).filter(|d| total.is_multiple_of(*d)).collect();
                let first = divisors[self.b.below(divisors.len())];
                let rest: Vec<usize> = (1..=total / first).filter(|d| (total / first).is_multiple_of(*d)).collect();
                let second = rest[self.b.below(rest.len())];
                let to = [[first, second], [second, first]][self.b.below(2)];
                let shape = self.b.ints(&[to[0] as i64, 1, to[1] as i64, -1]);
                self.add(&x, true, "Reshape", &[name, &shape], &[])
            }
            3..=5 => self.sliced(&x),
            6 | 7 => self.padded(&x),
            8 | 9 => self.joined(&x),
            10 => {
                let (d, axis) = self.axis(rank);
                let first = self.b.between(1, x.shape[d].max(2) - 1);
                let sizes = self.b.ints(&[first as i64, x.shape[d] as i64 - first as i64]);
                self.add_n(&x, true, "Split", &[name, &sizes], &[("axis", axis)], 2)?.pop()
            }
            11 => {
                let to: Vec<i64> = x.shape.iter().map(|&d| if d == 1 { self.extent() } else { d } as i64).collect();
                let to = self.b.ints(&to);
                self.add(&x, true, "Expand", &[name, &to], &[])
            }
            12 => {
                let (d, axis) = self.axis(rank);
                let n = x.shape[d];
                let list: Vec<i64> = (0..self.b.between(1, 6)).map(|_| self.b.below(2 * n) as i64 - n as i64).collect();
                let places = HostTensor::from_i64(&[list.len()], &list);
                let places = self.b.constant(places);
                self.add(&x, true, "Gather", &[name, &places], &[("axis", axis)])
            }
            _ => {
                let (op, mode) =
                    ([("DepthToSpace", "DCR"), ("DepthToSpace", "CRD"), ("SpaceToDepth", "")])[self.b.below(3)];
                let mut attributes = vec![("blocksize", int(2))];
                attributes.extend((!mode.is_empty()).then(|| ("mode", text(mode))));
                self.add(&x, true, op, &[name], &attributes)
            }
        }
    }

    /// Some dimensions from somewhere on, in steps, forth or back.
    fn sliced(&mut self, x: &Value) -> Option<Value> {
        let mut lists: [Vec<i64>; 4] = Default::default();
        for (d, &n) in x.shape.iter().enumerate() {
            if self.b.coin() {
                continue;
            }
            let (n, step) = (n as i64, self.b.between(1, 3) as i64);
            let start = self.b.below(n as usize) as i64;
            let one = if self.b.coin() {
                [start / 2, n + 5, d as i64, step]
            } else {
                [n - 1 - start / 2, -n - 9, d as i64, -step]
            };
            lists.iter_mut().zip(one).for_each(|(l, v)| l.push(v));
        }
        let names: Vec<String> = lists.iter().map(|l| self.b.ints(l)).collect();
        self.add(x, true, "Slice", &[&x.name, &names[0], &names[1], &names[2], &names[3]], &[])
    }

    fn padded(&mut self, x: &Value) -> Option<Value> {
        let mode = self.one_of(&["constant", "constant", "reflect", "edge"]);
        let rank = x.shape.len();
        let pads: Vec<i64> = (0..2 * rank)
            .map(|i| match mode {
                "constant" => [0, 0, 0, 1, 2, -1][self.b.below(6)],
                "edge" => [0, 0, 1, 3][self.b.below(4)],
                _ => self.b.below(x.shape[i % rank].min(3)) as i64,
            })
            .collect();
        let (pads, fill) = (self.b.ints(&pads), self.constant(x.dtype, &[]));
        let inputs = [x.name.as_str(), &pads, &fill];
        let given = if self.b.coin() { 3 } else { 2 };
        self.add(x, true, "Pad", &inputs[..given], &[("mode", text(mode))])
    }

    /// Several values that differ along one dimension, as they are, negated, or the same ones again.
    fn joined(&mut self, x: &Value) -> Option<Value> {
        let (d, axis) = self.axis(x.shape.len());
        let mut names = vec![x.name.clone()];
        let signed = x.dtype.is_float() || x.dtype.is_signed_int();
        for _ in 0..self.b.between(1, 3) {
            let fits = |v: &Value| {
                let alike = v.shape.len() == x.shape.len() && v.dtype == x.dtype;
                alike && v.shape.iter().zip(&x.shape).enumerate().all(|(i, (a, b))| i == d || a == b)
            };
            let other = self.pick(fits)?;
            let negated = signed && self.b.coin();
            let other = if negated { self.add(&other, true, "Neg", &[&other.name], &[])? } else { other };
            let at = self.b.below(names.len() + 1);
            names.insert(at, other.name);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.add(x, true, "Concat", &names, &[("axis", axis)])
    }

    /// Adds what reads a value.
    fn read(&mut self) -> Option<Value> {
        let x = self.pick(|v| !v.shape.is_empty())?;
        let y = match self.b.below(12) {
            11 => self.converted(&x),
            _ if x.dtype == DType::Bool => self.logical(&x),
            0 | 1 => self.elementwise(&x),
            2 | 3 => self.reduced(&x),
            4 => self.along(&x),
            5 | 6 => self.multiplied(&x),
            7 | 8 => self.window(&x),
            9 => self.normalised(&x),
            _ => self.indexed(&x),
        }?;
        // Sums stay small.
        if y.dtype.is_float() && !y.exact && self.b.coin() {
            self.add(&y, false, "Tanh", &[&y.name], &[])
        } else {
            Some(y)
        }
    }

    fn logical(&mut self, x: &Value) -> Option<Value> {
        let (other, op) = (self.beside(x), self.one_of(&["And", "Or", "Xor", "Equal", "Not"]));
        let inputs = [x.name.as_str(), &other];
        self.add(x, true, op, &inputs[..if op == "Not" { 1 } else { 2 }], &[])
    }

    fn elementwise(&mut self, x: &Value) -> Option<Value> {
        let name = x.name.as_str();
        match self.b.below(4) {
            0 if x.dtype.is_float() => {
                let op = self.one_of(&["Sigmoid", "Tanh", "Erf", "Softplus", "HardSwish", "Elu", "Gelu"]);
                self.add(x, false, op, &[name], &[])
            }
            0 => {
                let op = self.one_of(&["Abs", "Sign", "Relu"]);
                self.add(x, true, op, &[name], &[])
            }
            1 => {
                let condition = self.pick(|v| v.dtype == DType::Bool)?;
                let other = self.beside(x);
                self.add(x, true, "Where", &[&condition.name, name, &other], &[])
            }
            2 if x.exact => {
                let (other, op) = (self.beside(x), self.one_of(&["Less", "Equal", "GreaterOrEqual"]));
                self.add(x, true, op, &[name, &other], &[])
            }
            _ => {
                let other = self.beside(x);
                let op = self.one_of(&["Add", "Sub", "Mul", "Max", "Min"]);
                self.add(x, op != "Mul", op, &[name, &other], &[])
            }
        }
    }

    fn reduced(&mut self, x: &Value) -> Option<Value> {
        let op = self.one_of(&[
            "ReduceSum",
            "ReduceMax",
            "ReduceMin",
            "ReduceMean",
            "ReduceL1",
            "ReduceSumSquare",
            "ReduceLogSumExp",
        ]);
        let axes: Vec<i64> = (0..x.shape.len() as i64).filter(|_| self.b.coin()).collect();
        let (axes, keep) = (self.b.ints(&axes), self.b.below(2) as i64);
        let exact = op == "ReduceMax" || op == "ReduceMin" || !x.dtype.is_float();
        self.add(x, exact, op, &[&x.name, &axes], &[("keepdims", int(keep))])
    }

    /// What goes along one dimension.
    fn along(&mut self, x: &Value) -> Option<Value> {
        let (d, axis) = self.axis(x.shape.len());
        let name = x.name.as_str();
        match self.b.below(5) {
            0 | 1 => {
                let axis = self.b.constant(HostTensor::from_i64(&[], &[d as i64]));
                let how = [("reverse", int(self.b.below(2) as i64)), ("exclusive", int(self.b.below(2) as i64))];
                self.add(x, !x.dtype.is_float(), "CumSum", &[name, &axis], &how)
            }
            2 => {
                let op = self.one_of(&["Softmax", "LogSoftmax"]);
                self.add(x, false, op, &[name], &[("axis", axis)])
            }
            _ if !x.exact => None,
            3 => {
                let how = [("axis", axis), ("select_last_index", int(self.b.below(2) as i64))];
                let op = self.one_of(&["ArgMax", "ArgMin"]);
                self.add(x, true, op, &[name], &how)
            }
            _ => {
                let k = self.b.between(1, x.shape[d]);
                let k = self.b.ints(&[k as i64]);
                let how = [("axis", axis), ("largest", int(self.b.below(2) as i64))];
                self.add_n(x, true, "TopK", &[name, &k], &how, 2)?.pop()
            }
        }
    }

    fn multiplied(&mut self, x: &Value) -> Option<Value> {
        let (rank, name) = (x.shape.len(), x.name.as_str());
        let (k, n) = (x.shape[rank - 1], self.extent());
        let op = if x.dtype.bits() == 8 { "MatMulInteger" } else { "MatMul" };
        let exact = !x.dtype.is_float();
        if self.b.coin() {
            let y = self.pick(|v| {
                let r = v.shape.len();
                v.dtype == x.dtype
                    && r > 1
                    && v.shape[r - 2] == k
                    && (r == 2 || v.shape[..r - 2] == x.shape[..rank.max(2) - 2])
            })?;
            return self.add(x, exact, op, &[name, &y.name], &[]);
        }
        if rank == 2 && x.dtype.is_float() && self.b.coin() {
            let (w, bias) = (self.constant(x.dtype, &[n, x.shape[0]]), self.constant(x.dtype, &[n]));
            return self.add(x, false, "Gemm", &[name, &w, &bias], &[("transA", int(1)), ("transB", int(1))]);
        }
        let w = self.constant(x.dtype, &[k, n]);
        self.add(x, exact, op, &[name, &w], &[])
    }

    /// Convolutions, poolings and interpolations of images.
    fn window(&mut self, x: &Value) -> Option<Value> {
        let spatial = x.shape.len().checked_sub(2).filter(|n| (1..=3).contains(n))?;
        let (name, c) = (x.name.as_str(), x.shape[1]);
        let each = |g: &mut Mixed, most: usize| -> Vec<usize> { (0..spatial).map(|_| g.b.between(1, most)).collect() };
        let (kernel, strides) = (each(self, 3), each(self, 2));
        let pads: Vec<usize> = (0..2 * spatial).map(|i| self.b.below(kernel[i % spatial])).collect();
        let mut how = vec![("strides", ints(&strides)), ("pads", ints(&pads))];
        match self.b.below(5) {
            0 | 1 => {
                let (groups, n) = if self.b.coin() { (1, self.extent()) } else { (c, c) };
                how.push(("group", int(groups as i64)));
                let op = if x.dtype.bits() == 8 { "ConvInteger" } else { "Conv" };
                let w = self.constant(x.dtype, &[&[n, c / groups], &kernel[..]].concat());
                self.add(x, !x.dtype.is_float(), op, &[name, &w], &how)
            }
            2 => {
                let n = self.b.between(1, 3);
                let w = self.constant(x.dtype, &[&[c, n], &kernel[..]].concat());
                self.add(x, false, "ConvTranspose", &[name, &w], &how)
            }
            3 => {
                let op = self.one_of(&["MaxPool", "AveragePool"]);
                how.extend([("kernel_shape", ints(&kernel)), ("ceil_mode", int(self.b.below(2) as i64))]);
                self.add(x, op == "MaxPool", op, &[name], &how)
            }
            _ => {
                let mut sizes: Vec<i64> = x.shape.iter().map(|&d| d as i64).collect();
                sizes[2..].iter_mut().for_each(|d| *d = self.b.between(1, 9) as i64);
                let sizes = self.b.ints(&sizes);
                let (mode, at) = (self.one_of(&["nearest", "linear"]), self.one_of(&["half_pixel", "asymmetric"]));
                let how = [("mode", text(mode)), ("coordinate_transformation_mode", text(at))];
                self.add(x, mode == "nearest", "Resize", &[name, "", "", &sizes], &how)
            }
        }
    }

    fn normalised(&mut self, x: &Value) -> Option<Value> {
        let (d, axis) = self.axis(x.shape.len());
        let name = x.name.as_str();
        if x.shape.len() > 2 && self.b.coin() {
            let (scale, bias) = (self.constant(x.dtype, &[x.shape[1]]), self.constant(x.dtype, &[x.shape[1]]));
            return self.add(
                x,
                false,
                "InstanceNormalization",
                &[name, &scale, &bias],
                &[("epsilon", Attribute::Float(0.1))],
            );
        }
        let (scale, bias) = (self.constant(x.dtype, &x.shape[d..]), self.constant(x.dtype, &x.shape[d..]));
        self.add(
            x,
            false,
            "LayerNormalization",
            &[name, &scale, &bias],
            &[("axis", axis), ("epsilon", Attribute::Float(0.1))],
        )
    }

    /// What indices choose.
    fn indexed(&mut self, x: &Value) -> Option<Value> {
        let (d, axis) = self.axis(x.shape.len());
        let mut taken: Vec<usize> = x.shape.iter().map(|&n| self.b.between(1, n)).collect();
        let op = self.one_of(&["GatherElements", "ScatterElements", "Trilu"]);
        if op == "Trilu" {
            let upper = self.b.below(2) as i64;
            return self.add(x, true, op, &[&x.name], &[("upper", int(upper))]);
        }
        let mut how = vec![("axis", axis)];
        if op == "ScatterElements" {
            // Places that differ: one of each line.
            taken[d] = 1;
        }
        let list: Vec<i64> = (0..taken.iter().product()).map(|_| self.b.below(x.shape[d]) as i64).collect();
        let index = self.b.constant(HostTensor::from_i64(&taken, &list));
        if op == "GatherElements" {
            return self.add(x, true, op, &[&x.name, &index], &how);
        }
        how.push(("reduction", text(["none", "add", "max"][self.b.below(3)])));
        let update = self.constant(x.dtype, &taken);
        self.add(x, true, op, &[&x.name, &index, &update], &how)
    }

    /// To another type.
    fn converted(&mut self, x: &Value) -> Option<Value> {
        use DType::*;
        let name = x.name.as_str();
        if x.dtype == F32 && x.exact {
            let (scale, zero) = (HostTensor::from_f32(&[], &[0.125]), HostTensor::from_ints(U8, &[], &[100]));
            let (scale, zero) = (self.b.constant(scale), self.b.constant(zero));
            let y = self.add(x, true, "QuantizeLinear", &[name, &scale, &zero], &[])?;
            return if self.b.coin() {
                self.add(&y, true, "DequantizeLinear", &[&y.name, &scale, &zero], &[])
            } else {
                Some(y)
            };
        }
        let to = [F32, F32, F16, F64, I32, I64, Bool][self.b.below(7)];
        if x.dtype.is_float() && !to.is_float() && !x.exact {
            return None;
        }
        self.add(x, true, "Cast", &[name], &[("to", int(to.to_onnx().into()))])
    }
}
