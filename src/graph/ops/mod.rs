//! The operators: one row each, and one function that lowers it.
//!
//! To add an operator, write its function in the file of its family and add a row here. The row lists the attributes
//! that the function understands; any other attribute is an error that names it, never ignored.

mod activation;
mod attention;
mod causal;
mod control;
mod conv;
mod einsum;
mod elementwise;
mod gather;
mod integer;
mod layout;
mod loss;
mod matmul;
mod ml;
mod normalize;
mod pad;
mod pool;
mod quantize;
mod rank;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod scan;
mod scatter;
mod source;
mod transform;
mod trees;

use super::error::Res;
use super::lower::Lowering;

/// An operator.
pub(crate) struct Operator {
    pub name: &'static str,
    /// Attributes that are understood, separated by spaces.
    pub attributes: &'static str,
    /// Computes each element of its only output from the elements at the same (broadcast) place.
    pub elementwise: bool,
    /// Reads the node's inputs and attributes and sets its outputs.
    pub lower: fn(&mut Lowering<'_>) -> Res<()>,
}

const fn map(name: &'static str, attributes: &'static str, lower: fn(&mut Lowering<'_>) -> Res<()>) -> Operator {
    Operator { name, attributes, elementwise: true, lower }
}

const fn op(name: &'static str, attributes: &'static str, lower: fn(&mut Lowering<'_>) -> Res<()>) -> Operator {
    Operator { name, attributes, elementwise: false, lower }
}

/// All operators, sorted by name.
#[rustfmt::skip]
pub(crate) static OPERATORS: &[Operator] = &[
    map("Abs",                   "consumed_inputs",                  elementwise::abs),
    map("Acos",                  "",                                 elementwise::acos),
    map("Acosh",                 "",                                 elementwise::acosh),
    map("Add",                   "axis broadcast consumed_inputs",   elementwise::add),
    op ("AffineGrid",            "align_corners",                   sample::affine_grid),
    map("And",                   "axis broadcast",                   elementwise::and),
    op ("ArgMax",                "axis keepdims select_last_index",  reduce::arg_max),
    op ("ArgMin",                "axis keepdims select_last_index",  reduce::arg_min),
    map("Asin",                  "",                                 elementwise::asin),
    map("Asinh",                 "",                                 elementwise::asinh),
    map("Atan",                  "",                                 elementwise::atan),
    map("Atanh",                 "",                                 elementwise::atanh),
    op ("Attention",             "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision", attention::attention),
    op ("AveragePool",           "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides", pool::average),
    op ("BatchNormalization",    "consumed_inputs epsilon is_test momentum spatial training_mode", normalize::batch),
    map("BitCast",               "to",                              elementwise::bit_cast),
    map("BitShift",              "direction",                        elementwise::bit_shift),
    map("BitwiseAnd",            "",                                 elementwise::and),
    map("BitwiseNot",            "",                                 elementwise::not),
    map("BitwiseOr",             "",                                 elementwise::or),
    map("BitwiseXor",            "",                                 elementwise::xor),
    op ("BlackmanWindow",        "output_datatype periodic",        transform::blackman),
    map("Cast",                  "round_mode saturate to",           elementwise::cast),
    map("CastLike",              "round_mode saturate",              elementwise::cast_like),
    op ("CausalConvWithState",   "activation",                      causal::causal_conv),
    map("Ceil",                  "consumed_inputs",                  elementwise::ceil),
    map("Celu",                  "alpha",                            activation::celu),
    op ("CenterCropPad",         "axes",                            pad::center_crop_pad),
    map("Clip",                  "consumed_inputs max min",          activation::clip),
    op ("Col2Im",                "dilations pads strides",          sample::col2im),
    op ("Compress",              "axis",                            rank::compress),
    op ("Concat",                "axis",                             layout::concat),
    op ("Constant",              "value value_float value_floats value_int value_ints", source::constant),
    op ("ConstantOfShape",       "value",                            source::constant_of_shape),
    op ("Conv",                  "auto_pad dilations group kernel_shape pads strides", conv::conv),
    op ("ConvInteger",           "auto_pad dilations group kernel_shape pads strides", integer::conv_integer),
    op ("ConvTranspose",         "auto_pad dilations group kernel_shape output_padding output_shape pads strides", conv::transpose),
    map("Cos",                   "",                                 elementwise::cos),
    map("Cosh",                  "",                                 elementwise::cosh),
    op ("CumProd",               "exclusive reverse",                scan::prod),
    op ("CumSum",                "exclusive reverse",                scan::sum),
    op ("DFT",                   "axis inverse onesided",           transform::dft),
    op ("DeformConv",            "dilations group kernel_shape offset_group pads strides", sample::deform_conv),
    op ("DepthToSpace",          "blocksize mode",                   layout::depth_to_space),
    op ("DequantizeLinear",      "axis block_size output_dtype",     quantize::dequantize),
    op ("Det",                   "",                                transform::det),
    map("Div",                   "axis broadcast consumed_inputs",   elementwise::div),
    op ("Dropout",               "consumed_inputs is_test ratio seed", source::dropout),
    op ("Einsum",                "equation",                        einsum::einsum),
    map("Elu",                   "alpha consumed_inputs",            activation::elu),
    map("Equal",                 "axis broadcast",                   elementwise::equal),
    map("Erf",                   "",                                 elementwise::erf),
    map("Exp",                   "consumed_inputs",                  elementwise::exp),
    op ("Expand",                "",                                 layout::expand),
    op ("EyeLike",               "dtype k",                          source::eye_like),
    op ("Flatten",               "axis",                             layout::flatten),
    map("Floor",                 "consumed_inputs",                  elementwise::floor),
    op ("GRU",                   "activation_alpha activation_beta activations clip direction hidden_size layout linear_before_reset", recurrent::gru),
    op ("Gather",                "axis",                             gather::gather),
    op ("GatherElements",        "axis",                             gather::elements),
    op ("GatherND",              "batch_dims",                       gather::nd),
    map("Gelu",                  "approximate",                      activation::gelu),
    op ("Gemm",                  "alpha beta broadcast transA transB", matmul::gemm),
    op ("GlobalAveragePool",     "",                                 pool::global_average),
    op ("GlobalLpPool",          "p",                                pool::global_lp),
    op ("GlobalMaxPool",         "",                                 pool::global_max),
    map("Greater",               "axis broadcast",                   elementwise::greater),
    map("GreaterOrEqual",        "",                                 elementwise::greater_or_equal),
    op ("GridSample",            "align_corners mode padding_mode", sample::grid_sample),
    op ("GroupNormalization",    "epsilon num_groups stash_type",    normalize::group),
    op ("HammingWindow",         "output_datatype periodic",        transform::hamming),
    op ("HannWindow",            "output_datatype periodic",        transform::hann),
    map("HardSigmoid",           "alpha beta consumed_inputs",       activation::hard_sigmoid),
    map("HardSwish",             "",                                 activation::hard_swish),
    op ("Hardmax",               "axis",                             reduce::hardmax),
    op ("Identity",              "",                                 source::identity),
    op ("If",                    "else_branch then_branch",          control::if_),
    op ("InstanceNormalization", "consumed_inputs epsilon",          normalize::instance),
    map("IsInf",                 "detect_negative detect_positive",  elementwise::is_inf),
    map("IsNaN",                 "",                                 elementwise::is_nan),
    op ("LRN",                   "alpha beta bias size",             normalize::lrn),
    op ("LSTM",                  "activation_alpha activation_beta activations clip direction hidden_size input_forget layout", recurrent::lstm),
    op ("LayerNormalization",    "axis epsilon stash_type",          normalize::layer),
    map("LeakyRelu",             "alpha consumed_inputs",            activation::leaky_relu),
    map("Less",                  "axis broadcast",                   elementwise::less),
    map("LessOrEqual",           "",                                 elementwise::less_or_equal),
    op ("LinearAttention",       "chunk_size kv_num_heads q_num_heads scale update_rule", causal::linear_attention),
    map("Log",                   "consumed_inputs",                  elementwise::log),
    op ("LogSoftmax",            "axis",                             reduce::log_softmax),
    op ("Loop",                  "body",                            control::loop_),
    op ("LpNormalization",       "axis p",                           normalize::lp),
    op ("LpPool",                "auto_pad ceil_mode dilations kernel_shape p pads strides", pool::lp),
    op ("MatMul",                "",                                 matmul::matmul),
    op ("MatMulInteger",         "",                                integer::matmul),
    map("Max",                   "consumed_inputs",                  elementwise::max),
    op ("MaxPool",               "auto_pad ceil_mode dilations kernel_shape pads storage_order strides", pool::max),
    op ("MaxUnpool",             "kernel_shape pads strides",       scatter::max_unpool),
    map("Mean",                  "consumed_inputs",                  elementwise::mean),
    op ("MeanVarianceNormalization", "axes",                         normalize::mean_variance),
    op ("MelWeightMatrix",       "output_datatype",                 transform::mel_weights),
    map("Min",                   "consumed_inputs",                  elementwise::min),
    map("Mish",                  "",                                 activation::mish),
    map("Mod",                   "fmod",                             elementwise::modulo),
    map("Mul",                   "axis broadcast consumed_inputs",   elementwise::mul),
    map("Neg",                   "consumed_inputs",                  elementwise::neg),
    op ("NegativeLogLikelihoodLoss", "ignore_index reduction",       loss::negative_log_likelihood),
    op ("NonMaxSuppression",     "center_point_box",                rank::non_max_suppression),
    op ("NonZero",               "",                                rank::non_zero),
    map("Not",                   "",                                 elementwise::not),
    op ("OneHot",                "axis",                             source::one_hot),
    map("Or",                    "axis broadcast",                   elementwise::or),
    map("PRelu",                 "consumed_inputs",                  activation::prelu),
    op ("Pad",                   "mode paddings pads value",         pad::pad),
    map("Pow",                   "axis broadcast",                   elementwise::pow),
    op ("QLinearConv",           "auto_pad dilations group kernel_shape pads strides", integer::qlinear_conv),
    op ("QuantizeLinear",        "axis block_size output_dtype precision saturate", quantize::quantize),
    op ("RMSNormalization",      "axis epsilon stash_type",          normalize::rms),
    op ("RNN",                   "activation_alpha activation_beta activations clip direction hidden_size layout", recurrent::rnn),
    op ("Range",                 "stash_type",                       source::range),
    map("Reciprocal",            "consumed_inputs",                  elementwise::reciprocal),
    op ("ReduceL1",              "axes keepdims noop_with_empty_axes", reduce::l1),
    op ("ReduceL2",              "axes keepdims noop_with_empty_axes", reduce::l2),
    op ("ReduceLogSum",          "axes keepdims noop_with_empty_axes", reduce::log_sum),
    op ("ReduceLogSumExp",       "axes keepdims noop_with_empty_axes", reduce::log_sum_exp),
    op ("ReduceMax",             "axes keepdims noop_with_empty_axes", reduce::max),
    op ("ReduceMean",            "axes keepdims noop_with_empty_axes", reduce::mean),
    op ("ReduceMin",             "axes keepdims noop_with_empty_axes", reduce::min),
    op ("ReduceProd",            "axes keepdims noop_with_empty_axes", reduce::prod),
    op ("ReduceSum",             "axes keepdims noop_with_empty_axes", reduce::sum),
    op ("ReduceSumSquare",       "axes keepdims noop_with_empty_axes", reduce::sum_square),
    map("Relu",                  "consumed_inputs",                  activation::relu),
    op ("Reshape",               "allowzero consumed_inputs shape",  layout::reshape),
    op ("Resize",                "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value keep_aspect_ratio_policy mode nearest_mode", resize::resize),
    op ("ReverseSequence",       "batch_axis time_axis",            rank::reverse_sequence),
    op ("RoiAlign",              "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale", sample::roi_align),
    op ("RotaryEmbedding",       "interleaved num_heads rotary_embedding_dim", attention::rotary),
    map("Round",                 "",                                 elementwise::round),
    op ("STFT",                  "onesided",                        transform::stft),
    op ("Scan",                  "body directions num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions", control::scan),
    op ("Scatter",               "axis",                            scatter::elements),
    op ("ScatterElements",       "axis reduction",                  scatter::elements),
    op ("ScatterND",             "reduction",                       scatter::nd),
    map("Selu",                  "alpha consumed_inputs gamma",      activation::selu),
    op ("Shape",                 "end start",                        source::shape),
    map("Shrink",                "bias lambd",                       activation::shrink),
    map("Sigmoid",               "consumed_inputs",                  elementwise::sigmoid),
    map("Sign",                  "",                                 elementwise::sign),
    map("Sin",                   "",                                 elementwise::sin),
    map("Sinh",                  "",                                 elementwise::sinh),
    op ("Size",                  "",                                 source::size),
    op ("Slice",                 "axes ends starts",                 layout::slice),
    op ("Softmax",               "axis",                             reduce::softmax),
    op ("SoftmaxCrossEntropyLoss", "ignore_index reduction",         loss::softmax_cross_entropy),
    map("Softplus",              "",                                 activation::softplus),
    map("Softsign",              "",                                 activation::softsign),
    op ("SpaceToDepth",          "blocksize",                        layout::space_to_depth),
    op ("Split",                 "axis num_outputs split",           layout::split),
    map("Sqrt",                  "consumed_inputs",                  elementwise::sqrt),
    op ("Squeeze",               "axes",                             layout::squeeze),
    map("Sub",                   "axis broadcast consumed_inputs",   elementwise::sub),
    map("Sum",                   "consumed_inputs",                  elementwise::sum),
    map("Swish",                 "alpha",                            activation::swish),
    map("Tan",                   "",                                 elementwise::tan),
    map("Tanh",                  "consumed_inputs",                  elementwise::tanh),
    op ("TensorScatter",         "axis mode",                       scatter::tensor_scatter),
    map("ThresholdedRelu",       "alpha",                            activation::thresholded_relu),
    op ("Tile",                  "",                                 layout::tile),
    op ("TopK",                  "axis k largest sorted",           rank::top_k),
    op ("Transpose",             "perm",                             layout::transpose),
    op ("Trilu",                 "upper",                            source::trilu),
    op ("Unique",                "axis sorted",                     rank::unique),
    op ("Unsqueeze",             "axes",                             layout::unsqueeze),
    op ("Upsample",              "height_scale mode scales width_scale", resize::upsample),
    map("Where",                 "",                                 elementwise::where_),
    map("Xor",                   "axis broadcast",                   elementwise::xor),
    op ("ai.onnx.ml.ArrayFeatureExtractor", "",                                ml::array_features),
    op ("ai.onnx.ml.Binarizer",  "threshold",                       ml::binarizer),
    op ("ai.onnx.ml.FeatureVectorizer", "inputdimensions",                 ml::feature_vectorizer),
    op ("ai.onnx.ml.Imputer",    "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64", ml::imputer),
    op ("ai.onnx.ml.LabelEncoder", "default_float default_int64 default_string default_tensor keys_floats keys_int64s keys_tensor values_floats values_int64s values_tensor", ml::label_encoder),
    op ("ai.onnx.ml.LinearClassifier", "classlabels_ints classlabels_strings coefficients intercepts multi_class post_transform", ml::linear_classifier),
    op ("ai.onnx.ml.LinearRegressor", "coefficients intercepts post_transform targets", ml::linear_regressor),
    op ("ai.onnx.ml.Normalizer", "norm",                            ml::normalizer),
    op ("ai.onnx.ml.OneHotEncoder", "cats_int64s zeros",               ml::one_hot_encoder),
    op ("ai.onnx.ml.Scaler",     "offset scale",                    ml::scaler),
    op ("ai.onnx.ml.TreeEnsemble", "aggregate_function leaf_targetids leaf_weights membership_values n_targets nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs nodes_truenodeids post_transform tree_roots", trees::ensemble),
    op ("ai.onnx.ml.TreeEnsembleClassifier", "base_values base_values_as_tensor class_ids class_nodeids class_treeids class_weights class_weights_as_tensor classlabels_int64s classlabels_strings nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor post_transform", trees::classifier),
    op ("ai.onnx.ml.TreeEnsembleRegressor", "aggregate_function base_values base_values_as_tensor n_targets nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor post_transform target_ids target_nodeids target_treeids target_weights target_weights_as_tensor", trees::regressor),
    op ("ai.onnx.ml.ZipMap",     "classlabels_int64s classlabels_strings", ml::zip_map),
    op ("barewave.Rows",         "",                                integer::rows),
    op ("com.microsoft.FusedMatMul", "alpha transA transB transBatchA transBatchB", integer::fused_matmul),
    op ("com.microsoft.MatMulNBits", "K N accuracy_level bits block_size", integer::matmul_bits),
    op ("com.microsoft.TransposeMatMul", "alpha transA transB",             integer::fused_matmul),
];

/// The operator of this name in a domain; those of other domains than ONNX's own stand in the table as `domain.Name`.
pub(crate) fn find(domain: &str, name: &str) -> Option<&'static Operator> {
    let at = |name: &str| OPERATORS.binary_search_by(|o| o.name.cmp(name)).ok().map(|i| &OPERATORS[i]);
    if domain.is_empty() { at(name) } else { at(&format!("{domain}.{name}")) }
}

/// Names of all supported operators, sorted.
pub fn supported() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|o| o.name)
}

/// What to say about an unknown operator.
pub(crate) fn hint(domain: &str, name: &str) -> String {
    let other = |o: &&Operator| o.name.rsplit('.').next().is_some_and(|n| n.eq_ignore_ascii_case(name));
    match OPERATORS.iter().find(other) {
        Some(o) => format!("; did you mean {}?", o.name),
        None if domain.is_empty() => "; the README lists the supported ones".into(),
        None => format!("; the README lists what is supported of {domain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_found() {
        assert!(OPERATORS.windows(2).all(|w| w[0].name < w[1].name));
        for o in OPERATORS {
            assert_eq!(find("", o.name).map(|f| f.name), Some(o.name));
            assert!(o.attributes.split(' ').collect::<Vec<_>>().is_sorted(), "{}", o.name);
        }
        assert!(find("", "Nonsense").is_none());
        assert!(hint("", "relu").contains("Relu"));
    }
}
