//! Models of one operator, by shape.

use crate::{Failure, Result};
use barewave::onnx::{Attribute, Dim, Model, Node, ValueInfo};
use barewave::tensor::{DType, HostTensor};
use barewave_isa::Target;
use barewave_timing::conv;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// MxNxK, or BxMxNxK.
    Gemm,
    /// As [`conv_of_text`] reads it.
    Conv,
    /// BxHEADSxTOKENSxDEPTH.
    Attention,
    /// Any extents.
    Elementwise,
    /// Any extents.
    Reduce,
    /// Any extents.
    Softmax,
    /// Any extents.
    Normalize,
    /// MxNxK.
    Packed,
}

/// How the operands of a matrix product lie in memory, row by row: N as they are, T transposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Layout {
    /// A is MxK, B is KxN.
    #[default]
    NN,
    /// B is NxK.
    NT,
    /// A is KxM.
    TN,
    /// A is KxM, B is NxK.
    TT,
}

impl Layout {
    /// By which operands are transposed.
    pub fn of(transposed: [bool; 2]) -> Layout {
        match transposed {
            [false, false] => Layout::NN,
            [false, true] => Layout::NT,
            [true, false] => Layout::TN,
            [true, true] => Layout::TT,
        }
    }

    /// Which operands are transposed.
    pub fn transposed(self) -> [bool; 2] {
        [matches!(self, Layout::TN | Layout::TT), matches!(self, Layout::NT | Layout::TT)]
    }
}

/// What the factors of a matrix product are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Factors {
    /// Inputs.
    #[default]
    Plain,
    /// The right one is known when it is compiled, and two of every four elements along the depth are zero.
    Pruned,
    /// Both have scales for blocks of 32 along the depth, and the right one is known when it is compiled.
    Blocks,
}

/// A model of one operator.
pub struct Shaped {
    /// The model.
    pub model: Model,
    /// Rows, columns, depth and number of the matrix products that it is, where it is.
    pub product: Option<[f64; 4]>,
    /// The convolution that it is, where it is.
    pub conv: Option<conv::Shape>,
}

fn extents(text: &str) -> Option<Vec<usize>> {
    let list: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    list.filter(|l| !l.is_empty())
}

/// A model with inputs of these shapes and no nodes.
fn model_of(inputs: &[Vec<usize>], dtype: DType) -> Model {
    let mut model = Model::default();
    model.opsets.insert(String::new(), 23);
    model.opsets.insert("com.microsoft".into(), 1);
    let declared = inputs.iter().enumerate().map(|(i, shape)| ValueInfo {
        name: format!("x{i}"),
        dtype: Some(dtype),
        shape: Some(shape.iter().map(|d| Dim::Known(*d)).collect()),
    });
    model.graph.inputs = declared.collect();
    model.graph.outputs.push(ValueInfo { name: "y".into(), dtype: None, shape: None });
    model
}

/// The operator that multiplies integers of a type with sums of 32 bits; none of types that operators of floats take.
fn of_integers(op: &'static str, dtype: DType) -> Option<&'static str> {
    match (dtype, op) {
        (DType::I8 | DType::U8, op) => Some(op),
        (DType::I4 | DType::U4, "MatMulInteger") => Some("barewave:MatMulInteger"),
        (DType::I4 | DType::U4, "ConvInteger") => Some("barewave:ConvInteger"),
        _ => None,
    }
}

/// Appends a node; its operator may have another domain in front.
fn push(model: &mut Model, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) {
    let usual = if op.starts_with("Fused") || op == "MatMulNBits" { "com.microsoft" } else { "" };
    let (domain, op) = op.split_once(':').unwrap_or((usual, op));
    model.graph.nodes.push(Node {
        name: format!("{}_{output}", op.to_lowercase()),
        op: op.into(),
        domain: domain.into(),
        inputs: inputs.iter().map(|n| n.to_string()).collect(),
        outputs: vec![output.into()],
        attributes: attributes.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
    });
}

/// A model of one operator on its inputs.
fn one_operator(op: &str, inputs: &[Vec<usize>], dtype: DType, attributes: &[(&str, Attribute)]) -> Model {
    let mut model = model_of(inputs, dtype);
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    push(&mut model, op, &names, "y", attributes);
    model
}

fn ints(v: &[usize]) -> Attribute {
    Attribute::Ints(v.iter().map(|x| *x as i64).collect())
}

/// The type of a name: of floats of 8 bits (fp8, bf8) the one that a target has instructions for.
pub fn type_of_name(name: &str, target: Target) -> Option<DType> {
    let fnuz = target.info().fnuz;
    match name {
        "fp8" => Some(if fnuz { DType::F8E4M3Z } else { DType::F8E4M3 }),
        "bf8" => Some(if fnuz { DType::F8E5M2Z } else { DType::F8E5M2 }),
        "fp4" => Some(DType::F4E2M1),
        name => DType::from_name(name),
    }
}

/// The types of a product's two factors: of one name, or of two with an x between, which are floats of 8 bits.
pub fn factors_of_name(name: &str, target: Target) -> Option<[DType; 2]> {
    let Some((left, right)) = name.split_once('x') else { return type_of_name(name, target).map(|t| [t; 2]) };
    let both = [type_of_name(left, target)?, type_of_name(right, target)?];
    both.iter().all(|t| t.is_small_float()).then_some(both)
}

/// A matrix product (rows, columns, depth, number); of integers of 8 and 4 bits and floats of 8 with 32-bit sums. Of integers of 4 bits the
/// right factor is known when it is compiled.
pub fn product([dtype, right_dtype]: [DType; 2], [m, n, k, batch]: [usize; 4], layout: Layout) -> Shaped {
    let lead = if batch > 1 { vec![batch] } else { vec![] };
    let [left, right] = layout.transposed();
    let shape = |a: usize, b: usize, swapped: bool| [&lead[..], &if swapped { [b, a] } else { [a, b] }].concat();
    let inputs = [shape(m, k, left), shape(k, n, right)];
    let integers = of_integers("MatMulInteger", dtype);
    let mut model = match layout {
        _ if dtype.is_small_float() => {
            let mut model = model_of(&inputs, dtype);
            model.graph.inputs[1].dtype = Some(right_dtype);
            for (name, wide) in [("x0", "a"), ("x1", "b")] {
                push(&mut model, "Cast", &[name], wide, &[("to", Attribute::Int(DType::F32.to_onnx().into()))]);
            }
            let flag = |on: bool| Attribute::Int(on.into());
            push(&mut model, "FusedMatMul", &["a", "b"], "y", &[("transA", flag(left)), ("transB", flag(right))]);
            model
        }
        Layout::NN => one_operator(integers.unwrap_or("MatMul"), &inputs, dtype, &[]),
        _ if integers.is_some() => {
            let mut model = model_of(&inputs, dtype);
            let swapped = [&(0..lead.len()).collect::<Vec<_>>()[..], &[lead.len() + 1, lead.len()]].concat();
            let mut names = ["x0", "x1"];
            for (name, output) in names.iter_mut().zip(["a", "b"]).zip([left, right]).filter(|x| x.1).map(|x| x.0) {
                push(&mut model, "Transpose", &[*name], output, &[("perm", ints(&swapped))]);
                *name = output;
            }
            push(&mut model, integers.unwrap_or_default(), &names, "y", &[]);
            model
        }
        _ => {
            let flag = |on: bool| Attribute::Int(on.into());
            one_operator("FusedMatMul", &inputs, dtype, &[("transA", flag(left)), ("transB", flag(right))])
        }
    };
    if matches!(dtype, DType::I4 | DType::U4)
        && let Some(weights) = model.graph.inputs.pop()
    {
        let one = HostTensor::from_ints(dtype, &[], &[1]);
        let ones = HostTensor::filled(dtype, &inputs[1], one.bytes()).ok();
        model.graph.initializers.extend(ones.map(|t| (weights.name, t)));
    }
    Shaped { model, product: Some([m, n, k, batch].map(|x| x as f64)), conv: None }
}

/// The same with a right factor that is known when it is compiled, and of which two of every four elements along the depth are zero.
pub fn pruned(factors: [DType; 2], [m, n, k, batch]: [usize; 4], layout: Layout) -> Shaped {
    let mut shaped = product(factors, [m, n, k, batch], layout);
    let graph = &mut shaped.model.graph;
    let Some(weights) = graph.inputs.pop() else { return shaped };
    let shape = if layout.transposed()[1] { [n, k] } else { [k, n] };
    let depth = |i: usize| if layout.transposed()[1] { i % k } else { i / n };
    let one = HostTensor::from_f64(factors[1], &[], &[1.0]);
    let mut bytes = vec![0; one.byte_len() * n * k];
    for (i, element) in bytes.chunks_exact_mut(one.byte_len()).enumerate() {
        if depth(i) % 4 < 2 {
            element.copy_from_slice(one.bytes());
        }
    }
    graph.initializers.extend(HostTensor::new(factors[1], &shape, bytes).ok().map(|t| (weights.name, t)));
    shaped
}

/// The same of floats of 8 or 4 bits with a scale of F8E8M0 for each 32 along the depth, the right factor known when it is compiled. Those
/// of 8 bits are the OCP's on all targets.
pub fn blocks(factors: [DType; 2], [m, n, k, batch]: [usize; 4], layout: Layout) -> Option<Shaped> {
    const BLOCK: usize = 32;
    let of_ocp = |t: DType| match t {
        DType::F8E4M3Z => DType::F8E4M3,
        DType::F8E5M2Z => DType::F8E5M2,
        other => other,
    };
    let ([left, right], [a, b]) = (factors.map(of_ocp), layout.transposed());
    if a || !left.is_small_float() || !k.is_multiple_of(BLOCK) {
        return None;
    }
    let lead = if batch > 1 { vec![batch] } else { vec![] };
    let rows = |depth: usize| [&lead[..], &[m, depth]].concat();
    let columns = |depth: usize| if b { [n, depth] } else { [depth, n] };
    let mut model = model_of(&[rows(k), rows(k / BLOCK)], left);
    model.opsets.insert(String::new(), 25);
    model.graph.inputs[1].dtype = Some(DType::F8E8M0);
    let one = HostTensor::from_f64(right, &[], &[1.0]);
    let scale = HostTensor::from_f64(DType::F8E8M0, &[], &[1.0]);
    for (name, t, depth, element) in [("w", right, k, one), ("ws", DType::F8E8M0, k / BLOCK, scale)] {
        model.graph.initializers.insert(name.into(), HostTensor::filled(t, &columns(depth), element.bytes()).ok()?);
    }
    for (names, wide, axis) in [(["x0", "x1"], "a", lead.len() + 1), (["w", "ws"], "b", usize::from(b))] {
        let of = [("axis", axis as i64), ("block_size", BLOCK as i64), ("output_dtype", DType::F16.to_onnx().into())];
        push(&mut model, "DequantizeLinear", &names, wide, &of.map(|(n, v)| (n, Attribute::Int(v))));
    }
    if b {
        push(&mut model, "Transpose", &["b"], "turned", &[]);
    }
    push(&mut model, "MatMul", &["a", if b { "turned" } else { "b" }], "y", &[]);
    model.expand();
    Some(Shaped { model, product: Some([m, n, k, batch].map(|x| x as f64)), conv: None })
}

/// A product (rows, columns, depth) with weights of 4 bits in blocks of 32.
fn packed(dtype: DType, [m, n, k]: [usize; 3]) -> Shaped {
    const BLOCK: usize = 32;
    let blocks = k.div_ceil(BLOCK);
    let inputs = [vec![m, k], vec![n, blocks, BLOCK / 2], vec![n * blocks]];
    let sizes =
        [("K", k), ("N", n), ("bits", 4), ("block_size", BLOCK)].map(|(name, v)| (name, Attribute::Int(v as i64)));
    let mut model = one_operator("MatMulNBits", &inputs, dtype, &sizes);
    model.graph.inputs[1].dtype = Some(DType::U8);
    Shaped { model, product: None, conv: None }
}

/// A convolution with weights that are known when it is compiled, as a network's are; of 8-bit integers with 32-bit sums.
pub fn convolution(dtype: DType, shape: &conv::Shape) -> Shaped {
    let ([n, c, h, w], [k, r, s]) = (shape.input, shape.kernel);
    let twice = |v: [usize; 2]| ints(&[v, v].concat());
    let attributes = [
        ("strides", ints(&shape.strides)),
        ("pads", twice(shape.pads)),
        ("dilations", ints(&shape.dilations)),
        ("group", Attribute::Int(shape.groups as i64)),
    ];
    let inputs = [vec![n, c, h, w], vec![k, c / shape.groups.max(1), r, s]];
    let op = of_integers("ConvInteger", dtype).unwrap_or("Conv");
    let mut model = one_operator(op, &inputs, dtype, &attributes);
    let weights = model.graph.inputs.pop().map_or_else(String::new, |w| w.name);
    if let Ok(filled) = HostTensor::filled(dtype, &inputs[1], HostTensor::from_ints(dtype, &[], &[1]).bytes()) {
        model.graph.initializers.insert(weights, filled);
    }
    Shaped { model, product: shape.product(), conv: Some(*shape) }
}

/// `NxCxHxW:KxRxS[:STRIDE[:PAD]][ dilated DILATION][ groups N]`, strides, pads and dilations one number or AxB: as
/// [`text_of_conv`] writes it.
fn conv_of_text(text: &str) -> Option<conv::Shape> {
    let mut words = text.split_whitespace();
    let mut parts = words.next()?.split(':');
    let pair = |text: &str| {
        let both: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok()).collect();
        match both?[..] {
            [a] => Some([a, a]),
            [a, b] => Some([a, b]),
            _ => None,
        }
    };
    let mut shape = conv::Shape {
        input: extents(parts.next()?)?.try_into().ok()?,
        kernel: extents(parts.next()?)?.try_into().ok()?,
        strides: parts.next().map_or(Some([1, 1]), pair)?,
        pads: parts.next().map_or(Some([0, 0]), pair)?,
        dilations: [1, 1],
        groups: 1,
    };
    while let Some(word) = words.next() {
        match word {
            "dilated" => shape.dilations = pair(words.next()?)?,
            "groups" => shape.groups = words.next()?.parse().ok().filter(|g| *g > 0)?,
            _ => return None,
        }
    }
    let ([_, channels, ..], [filters, ..]) = (shape.input, shape.kernel);
    let positive = [shape.strides, shape.dilations].as_flattened().iter().all(|n| *n > 0);
    let whole = channels.is_multiple_of(shape.groups) && filters.is_multiple_of(shape.groups);
    (parts.next().is_none() && positive && whole && shape.output().is_some()).then_some(shape)
}

/// A convolution's shape in the form that the command line takes.
pub fn text_of_conv(shape: &conv::Shape) -> String {
    let conv::Shape { input: [n, c, h, w], kernel: [k, r, s], strides, pads, dilations, groups } = *shape;
    let pair = |[a, b]: [usize; 2]| if a == b { a.to_string() } else { format!("{a}x{b}") };
    let mut text = format!("{n}x{c}x{h}x{w}:{k}x{r}x{s}:{}:{}", pair(strides), pair(pads));
    if dilations != [1, 1] {
        text += &format!(" dilated {}", pair(dilations));
    }
    if groups > 1 {
        text += &format!(" groups {groups}");
    }
    text
}

/// The model of a shape as the command line has it.
pub fn of_text(family: Family, text: &str, types: [DType; 2], (layout, factors): (Layout, Factors)) -> Result<Shaped> {
    let dtype = types[0];
    let wrong = |form: &str| Failure::usage(format!("shape '{text}': write {form}"));
    let plain = |model: Model| Shaped { model, product: None, conv: None };
    match family {
        Family::Gemm => {
            let list = extents(text).unwrap_or_default();
            let extents = match list[..] {
                [m, n, k] => [m, n, k, 1],
                [b, m, n, k] => [m, n, k, b],
                _ => return Err(wrong("MxNxK or BATCHxMxNxK, for example 4096x4096x4096")),
            };
            match factors {
                Factors::Plain => Ok(product(types, extents, layout)),
                Factors::Pruned => Ok(pruned(types, extents, layout)),
                Factors::Blocks => blocks(types, extents, layout).ok_or_else(|| {
                    Failure::usage("--blocks is for fp4, fp8 and bf8, NN and NT, with a depth of whole blocks of 32")
                }),
            }
        }
        Family::Conv => {
            let form = "NxCxHxW:KxRxS[:STRIDE[:PAD]][ dilated DILATION][ groups N], for example 1x64x56x56:64x3x3:1:1";
            Ok(convolution(dtype, &conv_of_text(text).ok_or_else(|| wrong(form))?))
        }
        Family::Attention => {
            let list = extents(text).filter(|l| l.len() == 4).ok_or_else(|| wrong("BATCHxHEADSxTOKENSxDEPTH"))?;
            Ok(plain(one_operator("Attention", &[list.clone(), list.clone(), list], dtype, &[])))
        }
        Family::Elementwise => {
            let list = extents(text).ok_or_else(|| wrong("extents, for example 1024x1024"))?;
            Ok(plain(one_operator("Add", &[list.clone(), list], dtype, &[])))
        }
        Family::Softmax => {
            let list = extents(text).ok_or_else(|| wrong("extents, for example 1024x1024"))?;
            Ok(plain(one_operator("Softmax", &[list], dtype, &[])))
        }
        Family::Normalize => {
            let list = extents(text).ok_or_else(|| wrong("extents, for example 1024x1024"))?;
            let last = list.last().copied().unwrap_or(1);
            Ok(plain(one_operator("LayerNormalization", &[list, vec![last], vec![last]], dtype, &[])))
        }
        Family::Packed => {
            let list = extents(text).unwrap_or_default();
            let [m, n, k] = list[..] else { return Err(wrong("MxNxK, for example 1x4096x4096")) };
            Ok(packed(dtype, [m, n, k]))
        }
        Family::Reduce => {
            let list = extents(text).ok_or_else(|| wrong("extents, for example 1024x1024"))?;
            let mut model =
                one_operator("ReduceSum", std::slice::from_ref(&list), dtype, &[("keepdims", Attribute::Int(0))]);
            let axis = barewave::HostTensor::from_i64(&[1], &[list.len() as i64 - 1]);
            model.graph.initializers.insert("axes".into(), axis);
            model.graph.nodes[0].inputs.push("axes".into());
            Ok(plain(model))
        }
    }
}
