//! The element types that operators take: which types an input may have, and which inputs have one in common.
//!
//! A row has a word for each input, in ONNX's order. The word's first letter says what the type may be ([`Kind`]), an upper-case letter behind it which other
//! inputs have the same one, and a star that all further inputs are alike. What some version of the operator takes passes, so that models of any opset do: inputs
//! share a letter where all versions want one type of them. Source: ONNX's type constraints of each operator, all versions; in front of what kernels do themselves
//! nothing else tells a model whose types do not fit. Operators without a row, and inputs behind the last word, take what their rules take.

use crate::graph::error::{Reason, Res};
use crate::tensor::DType;

/// What a type may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `f`: floats of 16 to 64 bits.
    Float,
    /// `n`: any number.
    Number,
    /// `i`: integers of 32 or 64 bits. Where ONNX wants 64 bits, 32 pass, too: functions hand on what they got.
    Index,
    /// `q`: integers of 8 bits.
    Byte,
    /// `b`: truth values.
    Bool,
    /// `s`: strings.
    Text,
    /// `.`: anything.
    Any,
}

impl Kind {
    fn of(letter: u8) -> Kind {
        match letter {
            b'f' => Kind::Float,
            b'n' => Kind::Number,
            b'i' => Kind::Index,
            b'q' => Kind::Byte,
            b'b' => Kind::Bool,
            b's' => Kind::Text,
            _ => Kind::Any,
        }
    }

    fn takes(self, dtype: DType) -> bool {
        match self {
            Kind::Float => dtype.is_float() && !dtype.is_small_float(),
            Kind::Number => dtype.is_float() || dtype.is_int(),
            Kind::Index => matches!(dtype, DType::I32 | DType::I64),
            Kind::Byte => matches!(dtype, DType::I8 | DType::U8),
            Kind::Bool => dtype == DType::Bool,
            Kind::Text => dtype == DType::Str,
            Kind::Any => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Float => "f16, bf16, f32 or f64",
            Kind::Number => "a number",
            Kind::Index => "i32 or i64",
            Kind::Byte => "i8 or u8",
            Kind::Bool => "bool",
            Kind::Text => "str",
            Kind::Any => "any type",
        }
    }
}

/// Fails where an input's type, as far as it is known, is none that the operator takes, or not that of the inputs which it has to be alike.
pub(crate) fn check(op: &str, inputs: impl Iterator<Item = Option<DType>>) -> Res<()> {
    let Ok(row) = INPUTS.binary_search_by(|row| row.0.cmp(op)) else { return Ok(()) };
    let mut words = INPUTS[row].1.split(' ').peekable();
    let mut shared: [Option<(usize, DType)>; 26] = [None; 26];
    for (i, dtype) in inputs.enumerate() {
        let Some(word) = words.peek().map(|word| word.as_bytes()) else { break };
        if !word.ends_with(b"*") {
            words.next();
        }
        let Some(dtype) = dtype else { continue };
        let kind = Kind::of(word[0]);
        if !kind.takes(dtype) {
            return Err(Reason::Type(format!("input {i} is {}, {op} takes {}", dtype.name(), kind.name())));
        }
        let Some(letter) = word.get(1).filter(|l| l.is_ascii_uppercase()) else { continue };
        match shared[usize::from(letter - b'A')] {
            Some((first, other)) if other != dtype => {
                let (dtype, other) = (dtype.name(), other.name());
                return Err(Reason::Type(format!(
                    "input {first} is {other} and input {i} {dtype}, {op} takes one type for both"
                )));
            }
            Some(_) => {}
            None => shared[usize::from(letter - b'A')] = Some((i, dtype)),
        }
    }
    Ok(())
}

/// Operators, sorted by name, and their inputs.
const INPUTS: &[(&str, &str)] = &[
    ("Abs", "n"),
    ("Acos", "f"),
    ("Acosh", "f"),
    ("Add", "nA nA"),
    ("AffineGrid", "f i"),
    ("And", "bA bA"),
    ("ArgMax", "n"),
    ("ArgMin", "n"),
    ("Asin", "f"),
    ("Asinh", "f"),
    ("Atan", "f"),
    ("Atanh", "f"),
    ("Attention", "fA fA fB . fA fB i"),
    ("AveragePool", "f"),
    ("BatchNormalization", "f fA fA fB fB"),
    ("Bernoulli", "f"),
    ("BitShift", "nA nA"),
    ("BitwiseAnd", "nA nA"),
    ("BitwiseNot", "n"),
    ("BitwiseOr", "nA nA"),
    ("BitwiseXor", "nA nA"),
    ("BlackmanWindow", "i"),
    ("CausalConvWithState", "fA fA fA fA"),
    ("Ceil", "f"),
    ("Celu", "f"),
    ("CenterCropPad", ". i"),
    ("Clip", "nA nA nA"),
    ("Col2Im", ". iA iA"),
    ("Compress", ". b"),
    ("Concat", ".A*"),
    ("ConstantOfShape", "i"),
    ("Conv", "fA fA fA"),
    ("ConvInteger", "qA qB qA qB"),
    ("ConvTranspose", "fA fA fA"),
    ("Cos", "f"),
    ("Cosh", "f"),
    ("CumProd", "n i"),
    ("CumSum", "n i"),
    ("DFT", "f i i"),
    ("DeformConv", "fA fA fA fA fA"),
    ("DequantizeLinear", "nA n nA"),
    ("Det", "f"),
    ("Div", "nA nA"),
    ("Dropout", "n n b"),
    ("DynamicQuantizeLinear", "f"),
    ("Einsum", "nA*"),
    ("Elu", "f"),
    ("Equal", ".A .A"),
    ("Erf", "n"),
    ("Exp", "f"),
    ("Expand", ". i"),
    ("Floor", "f"),
    ("GRU", "fA fA fA fA i fA"),
    ("Gather", ". i"),
    ("GatherElements", ". i"),
    ("GatherND", ". i"),
    ("Gelu", "f"),
    ("Gemm", "nA nA nA"),
    ("GlobalAveragePool", "f"),
    ("GlobalLpPool", "f"),
    ("GlobalMaxPool", "f"),
    ("Greater", "nA nA"),
    ("GreaterOrEqual", "nA nA"),
    ("GridSample", ". f"),
    ("GroupNormalization", "fA fA fA"),
    ("HammingWindow", "i"),
    ("HannWindow", "i"),
    ("HardSigmoid", "f"),
    ("HardSwish", "f"),
    ("Hardmax", "f"),
    ("If", "b"),
    ("ImageDecoder", "n"),
    ("InstanceNormalization", "fA fA fA"),
    ("IsInf", "n"),
    ("IsNaN", "n"),
    ("LRN", "f"),
    ("LSTM", "fA fA fA fA i fA fA fA"),
    ("LayerNormalization", "f fA fA"),
    ("LeakyRelu", "f"),
    ("Less", "nA nA"),
    ("LessOrEqual", "nA nA"),
    ("LinearAttention", "fA fA fA f fA fA"),
    ("Log", "f"),
    ("LogSoftmax", "f"),
    ("Loop", "i b"),
    ("LpNormalization", "f"),
    ("LpPool", "f"),
    ("MatMul", "nA nA"),
    ("MatMulInteger", "qA qB qA qB"),
    ("Max", "nA*"),
    ("MaxPool", "n"),
    ("MaxRoiPool", "fA fA"),
    ("MaxUnpool", "f iA iA"),
    ("Mean", "fA*"),
    ("MeanVarianceNormalization", "f"),
    ("MelWeightMatrix", "iA iA iA fB fB"),
    ("Min", "nA*"),
    ("Mish", "f"),
    ("Mod", "nA nA"),
    ("Mul", "nA nA"),
    ("Multinomial", "f"),
    ("Neg", "n"),
    ("NegativeLogLikelihoodLoss", "fA i fA"),
    ("NonMaxSuppression", "fA fA i fA fA"),
    ("Not", "b"),
    ("OneHot", "n n"),
    ("Or", "bA bA"),
    ("PRelu", "nA nA"),
    ("Pad", ".A i .A i"),
    ("Pow", "n n"),
    ("QLinearConv", "qA fB qA qC fB qC fB q i"),
    ("QuantizeLinear", "n n n"),
    ("RMSNormalization", "f f"),
    ("RNN", "fA fA fA fA i fA"),
    ("Range", "nA nA nA"),
    ("Reciprocal", "f"),
    ("ReduceL1", "n i"),
    ("ReduceL2", "n i"),
    ("ReduceLogSum", "n i"),
    ("ReduceLogSumExp", "n i"),
    ("ReduceMax", ". i"),
    ("ReduceMean", "n i"),
    ("ReduceMin", ". i"),
    ("ReduceProd", "n i"),
    ("ReduceSum", "n i"),
    ("ReduceSumSquare", "n i"),
    ("RegexFullMatch", "s"),
    ("Relu", "n"),
    ("Reshape", ". i"),
    ("Resize", ". f f i"),
    ("ReverseSequence", ". i"),
    ("RoiAlign", "fA fA i"),
    ("RotaryEmbedding", "fA fA fA i"),
    ("Round", "f"),
    ("STFT", "fA iB fA iB"),
    ("Scatter", ".A i .A"),
    ("ScatterElements", ".A i .A"),
    ("ScatterND", ".A i .A"),
    ("Selu", "f"),
    ("SequenceAt", ". i"),
    ("SequenceConstruct", ".A*"),
    ("SequenceErase", ". i"),
    ("SequenceInsert", ". . i"),
    ("Shrink", "n"),
    ("Sigmoid", "f"),
    ("Sign", "n"),
    ("Sin", "f"),
    ("Sinh", "f"),
    ("Slice", ". iA iA iA iA"),
    ("Softmax", "f"),
    ("SoftmaxCrossEntropyLoss", "fA i fA"),
    ("Softplus", "f"),
    ("Softsign", "f"),
    ("Split", ". n"),
    ("SplitToSequence", ". i"),
    ("Sqrt", "f"),
    ("Squeeze", ". i"),
    ("StringConcat", "sA sA"),
    ("StringNormalizer", "s"),
    ("StringSplit", "s"),
    ("Sub", "nA nA"),
    ("Sum", "fA*"),
    ("Swish", "f"),
    ("Tan", "f"),
    ("Tanh", "f"),
    ("TensorScatter", ".A .A i"),
    ("ThresholdedRelu", "f"),
    ("Tile", ". n"),
    ("TopK", "n i"),
    ("Trilu", ". i"),
    ("Unsqueeze", ". i"),
    ("Upsample", ". f"),
    ("Where", "b .A .A"),
    ("Xor", "bA bA"),
    ("ai.onnx.ml.ArrayFeatureExtractor", ". i"),
    ("ai.onnx.ml.Binarizer", "n"),
    ("ai.onnx.ml.FeatureVectorizer", "nA*"),
    ("ai.onnx.ml.Imputer", "n"),
    ("ai.onnx.ml.LinearClassifier", "n"),
    ("ai.onnx.ml.LinearRegressor", "n"),
    ("ai.onnx.ml.Normalizer", "n"),
    ("ai.onnx.ml.Scaler", "n"),
    ("ai.onnx.ml.TreeEnsemble", "f"),
    ("ai.onnx.ml.TreeEnsembleClassifier", "n"),
    ("ai.onnx.ml.TreeEnsembleRegressor", "n"),
    ("ai.onnx.ml.ZipMap", "f"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_of_operators() {
        assert!(INPUTS.is_sorted_by(|a, b| a.0 < b.0));
        for (name, words) in INPUTS {
            let (domain, op) = name.rsplit_once('.').unwrap_or(("", name));
            assert!(super::super::find(domain, op).is_some(), "{name}");
            let letters = |w: &str| w.len() <= 3 && ".fniqbs".contains(&w[..1]);
            assert!(words.split(' ').all(letters), "{name}: {words}");
        }
    }

    #[test]
    fn inputs_are_of_a_kind_and_of_one_type() {
        let of = |op, types: &[Option<DType>]| check(op, types.iter().copied()).map_err(|e| e.to_string());
        let (f, l, none) = (Some(DType::F32), Some(DType::I64), None);
        assert!(of("Gemm", &[f, f, f]).is_ok() && of("Gemm", &[l, l]).is_ok() && of("Gemm", &[f, none, f]).is_ok());
        assert!(
            of("Gemm", &[f, f, l])
                .unwrap_err()
                .contains("input 0 is f32 and input 2 i64, Gemm takes one type for both")
        );
        assert!(of("Conv", &[l, l]).unwrap_err().contains("input 0 is i64, Conv takes f16, bf16, f32 or f64"));
        assert!(of("Concat", &[f, f, f, l]).unwrap_err().contains("input 3 i64"));
        assert!(of("Frobnicate", &[f, l]).is_ok());
    }
}
