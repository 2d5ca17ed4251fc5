//! The operators: one row each, a rule that infers its outputs, and a function that lowers it.
//!
//! To add an operator, write both in the file of its family and add a row here (`by_lowering` is the rule where only lowering
//! tells). The row lists the attributes
//! that the function understands; any other attribute is an error that names it, never ignored.

mod activation;
mod attention;
mod causal;
mod control;
mod conv;
mod coupled;
mod einsum;
mod elementwise;
mod gather;
mod grams;
mod integer;
mod layout;
mod loss;
mod matmul;
mod ml;
mod normalize;
mod ordered;
mod packed;
mod pad;
mod pool;
mod quantize;
mod random;
mod rank;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod scan;
mod scatter;
mod sequence;
mod source;
mod strings;
mod transform;
mod trees;
mod types;

pub(crate) use control::nothing_collected;
pub(crate) use normalize::lower_norm;
pub(crate) use ordered::{Indices, Order};
pub(crate) use packed::widening;
pub(crate) use reduce::lower_softmax;
pub(crate) use strings::evaluate;
pub(crate) use types::check as check_types;

use super::error::Res;
use super::infer::{Inference, by_lowering};
use super::lower::Lowering;

/// An operator.
pub(crate) struct Operator {
    pub name: &'static str,
    /// Attributes that are understood, separated by spaces.
    pub attributes: &'static str,
    /// Computes each element of its only output from the elements at the same (broadcast) place.
    pub elementwise: bool,
    /// Takes sequences and optionals.
    pub lists: bool,
    /// Says what its outputs are, from what is known of its inputs.
    pub infer: Infer,
    /// Reads the node's inputs and attributes and sets its outputs, which are what `infer` says.
    pub lower: Lower,
}

impl Operator {
    /// True when it runs graphs, which are attributes of its node.
    pub(crate) fn runs_graphs(&self) -> bool {
        self.attributes.split(' ').any(|a| a == "body" || a == "then_branch")
    }

    /// True when its inputs may be strings.
    pub(crate) fn takes_strings(&self) -> bool {
        strings::TAKE_STRINGS.binary_search(&self.name).is_ok()
    }
}

type Infer = fn(&mut Inference<'_>) -> Res<()>;
type Lower = fn(&mut Lowering<'_>) -> Res<()>;

const fn map(name: &'static str, attributes: &'static str, infer: Infer, lower: Lower) -> Operator {
    Operator { name, attributes, elementwise: true, lists: false, infer, lower }
}

const fn op(name: &'static str, attributes: &'static str, infer: Infer, lower: Lower) -> Operator {
    Operator { name, attributes, elementwise: false, lists: false, infer, lower }
}

const fn any(name: &'static str, attributes: &'static str, infer: Infer, lower: Lower) -> Operator {
    Operator { name, attributes, elementwise: false, lists: true, infer, lower }
}

/// All operators, sorted by name.
#[rustfmt::skip]
pub(crate) static OPERATORS: &[Operator] = &[
    map("Abs", "consumed_inputs", elementwise::of_first, elementwise::abs),
    map("Acos", "", elementwise::of_first, elementwise::acos),
    map("Acosh", "", elementwise::of_first, elementwise::acosh),
    map("Add", "axis broadcast consumed_inputs", elementwise::of_sum, elementwise::add),
    op ("AffineGrid", "align_corners", sample::of_affine_grid, sample::affine_grid),
    map("And", "axis broadcast", elementwise::of_first, elementwise::and),
    op ("ArgMax", "axis keepdims select_last_index", reduce::of_place, reduce::arg_max),
    op ("ArgMin", "axis keepdims select_last_index", reduce::of_place, reduce::arg_min),
    map("Asin", "", elementwise::of_first, elementwise::asin),
    map("Asinh", "", elementwise::of_first, elementwise::asinh),
    map("Atan", "", elementwise::of_first, elementwise::atan),
    map("Atanh", "", elementwise::of_first, elementwise::atanh),
    op ("Attention", "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision", attention::of_attention, attention::attention),
    op ("AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides", pool::of_pool, pool::average),
    op ("BatchNormalization", "consumed_inputs epsilon is_test momentum spatial training_mode", normalize::same, normalize::batch),
    op ("Bernoulli", "dtype seed", random::of_like, random::bernoulli),
    map("BitCast", "to", elementwise::of_bits, elementwise::bit_cast),
    map("BitShift", "direction", elementwise::of_first, elementwise::bit_shift),
    map("BitwiseAnd", "", elementwise::of_first, elementwise::and),
    map("BitwiseNot", "", elementwise::of_first, elementwise::not),
    map("BitwiseOr", "", elementwise::of_first, elementwise::or),
    map("BitwiseXor", "", elementwise::of_first, elementwise::xor),
    op ("BlackmanWindow", "output_datatype periodic", transform::of_window, transform::blackman),
    map("Cast", "round_mode saturate to", elementwise::of_cast, elementwise::cast),
    map("CastLike", "round_mode saturate", elementwise::of_cast_like, elementwise::cast_like),
    op ("CausalConvWithState", "activation", causal::of_causal_conv, causal::causal_conv),
    map("Ceil", "consumed_inputs", elementwise::of_first, elementwise::ceil),
    map("Celu", "alpha", elementwise::of_first, activation::celu),
    op ("CenterCropPad", "axes", pad::of_center_crop_pad, pad::center_crop_pad),
    map("Clip", "consumed_inputs max min", elementwise::of_first, activation::clip),
    op ("Col2Im", "dilations pads strides", sample::of_col2im, sample::col2im),
    op ("Compress", "axis", rank::of_compress, rank::compress),
    op ("Concat", "axis", layout::of_concat, layout::concat),
    any("ConcatFromSequence", "axis new_axis", by_lowering, sequence::concat),
    op ("Constant", "value value_float value_floats value_int value_ints value_string value_strings", source::of_constant, source::inferred),
    op ("ConstantOfShape", "value", source::of_constant_of_shape, source::constant_of_shape),
    op ("Conv", "auto_pad dilations group kernel_shape pads strides", conv::of_conv, conv::conv),
    op ("ConvInteger", "auto_pad dilations group kernel_shape pads strides", integer::of_conv, integer::conv_integer),
    op ("ConvTranspose", "auto_pad dilations group kernel_shape output_padding output_shape pads strides", conv::of_transpose, conv::transpose),
    map("Cos", "", elementwise::of_first, elementwise::cos),
    map("Cosh", "", elementwise::of_first, elementwise::cosh),
    op ("CumProd", "exclusive reverse", normalize::same, scan::prod),
    op ("CumSum", "exclusive reverse", normalize::same, scan::sum),
    op ("DFT", "axis inverse onesided", transform::of_dft, transform::dft),
    op ("DeformConv", "dilations group kernel_shape offset_group pads strides", conv::of_conv, sample::deform_conv),
    op ("DepthToSpace", "blocksize mode", layout::of_depth_to_space, layout::depth_to_space),
    op ("DequantizeLinear", "axis block_size output_dtype", quantize::of_dequantize, quantize::dequantize),
    op ("Det", "", transform::of_det, transform::det),
    map("Div", "axis broadcast consumed_inputs", elementwise::of_quotient, elementwise::div),
    op ("Dropout", "consumed_inputs is_test ratio seed", source::of_dropout, source::dropout),
    op ("DynamicQuantizeLinear", "", quantize::of_dynamic, quantize::dynamic),
    op ("Einsum", "equation", einsum::of_einsum, einsum::einsum),
    map("Elu", "alpha consumed_inputs", elementwise::of_first, activation::elu),
    map("Equal", "axis broadcast", elementwise::of_truth, elementwise::equal),
    map("Erf", "", elementwise::of_first, elementwise::erf),
    map("Exp", "consumed_inputs", elementwise::of_first, elementwise::exp),
    op ("Expand", "", layout::of_expand, layout::expand),
    op ("EyeLike", "dtype k", source::of_eye, source::eye_like),
    op ("Flatten", "axis", layout::of_flatten, layout::reshaped),
    map("Floor", "consumed_inputs", elementwise::of_first, elementwise::floor),
    op ("GRU", "activation_alpha activation_beta activations clip direction hidden_size layout linear_before_reset", recurrent::of_layer, recurrent::gru),
    op ("Gather", "axis", gather::of_gather, gather::gather),
    op ("GatherElements", "axis", gather::of_elements, gather::elements),
    op ("GatherND", "batch_dims", gather::of_nd, gather::nd),
    map("Gelu", "approximate", elementwise::of_first, activation::gelu),
    op ("Gemm", "alpha beta broadcast transA transB", matmul::of_gemm, matmul::gemm),
    op ("GlobalAveragePool", "", pool::of_global, pool::global_average),
    op ("GlobalLpPool", "p", pool::of_global, pool::global_lp),
    op ("GlobalMaxPool", "", pool::of_global, pool::global_max),
    map("Greater", "axis broadcast", elementwise::of_truth, elementwise::greater),
    map("GreaterOrEqual", "", elementwise::of_truth, elementwise::greater_or_equal),
    op ("GridSample", "align_corners mode padding_mode", sample::of_grid_sample, sample::grid_sample),
    op ("GroupNormalization", "epsilon num_groups stash_type", normalize::same, normalize::group),
    op ("HammingWindow", "output_datatype periodic", transform::of_window, transform::hamming),
    op ("HannWindow", "output_datatype periodic", transform::of_window, transform::hann),
    map("HardSigmoid", "alpha beta consumed_inputs", elementwise::of_first, activation::hard_sigmoid),
    map("HardSwish", "", elementwise::of_first, activation::hard_swish),
    op ("Hardmax", "axis", normalize::same, reduce::hardmax),
    any("Identity", "", source::of_identity, source::identity),
    any("If", "else_branch then_branch", control::of_if, control::if_),
    op ("ImageDecoder", "pixel_format", strings::of_image, strings::on_host),
    op ("InstanceNormalization", "consumed_inputs epsilon", normalize::same, normalize::instance),
    map("IsInf", "detect_negative detect_positive", elementwise::of_truth, elementwise::is_inf),
    map("IsNaN", "", elementwise::of_truth, elementwise::is_nan),
    op ("LRN", "alpha beta bias size", normalize::same, normalize::lrn),
    op ("LSTM", "activation_alpha activation_beta activations clip direction hidden_size input_forget layout", recurrent::of_layer, recurrent::lstm),
    op ("LayerNormalization", "axis epsilon stash_type", normalize::of_layer, normalize::layer),
    map("LeakyRelu", "alpha consumed_inputs", elementwise::of_first, activation::leaky_relu),
    map("Less", "axis broadcast", elementwise::of_truth, elementwise::less),
    map("LessOrEqual", "", elementwise::of_truth, elementwise::less_or_equal),
    op ("LinearAttention", "chunk_size kv_num_heads q_num_heads scale update_rule", causal::of_linear_attention, causal::linear_attention),
    map("Log", "consumed_inputs", elementwise::of_first, elementwise::log),
    op ("LogSoftmax", "axis", normalize::same, reduce::log_softmax),
    any("Loop", "body", by_lowering, control::loop_),
    op ("LpNormalization", "axis p", normalize::same, normalize::lp),
    op ("LpPool", "auto_pad ceil_mode dilations kernel_shape p pads strides", pool::of_pool, pool::lp),
    op ("MatMul", "", matmul::of_matmul, matmul::matmul),
    op ("MatMulInteger", "", integer::of_matmul, integer::matmul),
    map("Max", "consumed_inputs", elementwise::of_max, elementwise::max),
    op ("MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides", pool::of_pool, pool::max),
    op ("MaxRoiPool", "pooled_shape spatial_scale", sample::of_max_roi_pool, sample::max_roi_pool),
    op ("MaxUnpool", "kernel_shape pads strides", by_lowering, scatter::max_unpool),
    map("Mean", "consumed_inputs", elementwise::of_first, elementwise::mean),
    op ("MeanVarianceNormalization", "axes", normalize::same, normalize::mean_variance),
    op ("MelWeightMatrix", "output_datatype", by_lowering, transform::mel_weights),
    map("Min", "consumed_inputs", elementwise::of_min, elementwise::min),
    map("Mish", "", elementwise::of_first, activation::mish),
    map("Mod", "fmod", elementwise::of_first, elementwise::modulo),
    map("Mul", "axis broadcast consumed_inputs", elementwise::of_product, elementwise::mul),
    op ("Multinomial", "dtype sample_size seed", random::of_draws, random::multinomial),
    map("Neg", "consumed_inputs", elementwise::of_first, elementwise::neg),
    op ("NegativeLogLikelihoodLoss", "ignore_index reduction", loss::of_loss, loss::negative_log_likelihood),
    op ("NonMaxSuppression", "center_point_box", rank::of_selection, rank::non_max_suppression),
    op ("NonZero", "", rank::of_non_zero, rank::non_zero),
    map("Not", "", elementwise::of_first, elementwise::not),
    op ("OneHot", "axis", source::of_one_hot, source::one_hot),
    any("Optional", "type", by_lowering, sequence::optional),
    any("OptionalGetElement", "", by_lowering, sequence::get),
    any("OptionalHasElement", "", by_lowering, sequence::has),
    map("Or", "axis broadcast", elementwise::of_first, elementwise::or),
    map("PRelu", "consumed_inputs", activation::of_slopes, activation::prelu),
    op ("Pad", "mode paddings pads value", pad::of_pad, pad::pad),
    map("Pow", "axis broadcast", elementwise::of_first, elementwise::pow),
    op ("QLinearConv", "auto_pad dilations group kernel_shape pads strides", integer::of_quantized_conv, integer::qlinear_conv),
    op ("QuantizeLinear", "axis block_size output_dtype precision saturate", quantize::of_quantize, quantize::quantize),
    op ("RMSNormalization", "axis epsilon stash_type", normalize::of_layer, normalize::rms),
    op ("RNN", "activation_alpha activation_beta activations clip direction hidden_size layout", recurrent::of_layer, recurrent::rnn),
    op ("RandomNormal", "dtype mean scale seed shape", random::of_shape, random::normals),
    op ("RandomNormalLike", "dtype mean scale seed", random::of_like, random::normals),
    op ("RandomUniform", "dtype high low seed shape", random::of_shape, random::uniforms),
    op ("RandomUniformLike", "dtype high low seed", random::of_like, random::uniforms),
    op ("Range", "stash_type", source::of_range, source::range),
    map("Reciprocal", "consumed_inputs", elementwise::of_first, elementwise::reciprocal),
    op ("ReduceL1", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::l1),
    op ("ReduceL2", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::l2),
    op ("ReduceLogSum", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::log_sum),
    op ("ReduceLogSumExp", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::log_sum_exp),
    op ("ReduceMax", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::max),
    op ("ReduceMean", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::mean),
    op ("ReduceMin", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::min),
    op ("ReduceProd", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::prod),
    op ("ReduceSum", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::sum),
    op ("ReduceSumSquare", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::sum_square),
    op ("RegexFullMatch", "pattern", strings::of_match, strings::on_host),
    map("Relu", "consumed_inputs", elementwise::of_first, activation::relu),
    op ("Reshape", "allowzero consumed_inputs shape", layout::of_reshape, layout::reshaped),
    op ("Resize", "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value keep_aspect_ratio_policy mode nearest_mode", resize::of_resize, resize::resize),
    op ("ReverseSequence", "batch_axis time_axis", normalize::same, rank::reverse_sequence),
    op ("RoiAlign", "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale", sample::of_roi_align, sample::roi_align),
    op ("RotaryEmbedding", "interleaved num_heads rotary_embedding_dim", normalize::same, attention::rotary),
    map("Round", "", elementwise::of_first, elementwise::round),
    op ("STFT", "onesided", transform::of_stft, transform::stft),
    op ("Scan", "body directions num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions", by_lowering, control::scan),
    op ("Scatter", "axis", normalize::same, scatter::elements),
    op ("ScatterElements", "axis reduction", normalize::same, scatter::elements),
    op ("ScatterND", "reduction", normalize::same, scatter::nd),
    map("Selu", "alpha consumed_inputs gamma", elementwise::of_first, activation::selu),
    any("SequenceAt", "", sequence::of_at, sequence::at),
    any("SequenceConstruct", "", by_lowering, sequence::construct),
    any("SequenceEmpty", "dtype", by_lowering, sequence::empty),
    any("SequenceErase", "", sequence::of_erase, sequence::erase),
    any("SequenceInsert", "", sequence::of_insert, sequence::insert),
    any("SequenceLength", "", sequence::of_length, sequence::length),
    any("SequenceMap", "body", by_lowering, sequence::map),
    op ("Shape", "end start", source::of_shape, source::inferred),
    map("Shrink", "bias lambd", elementwise::of_first, activation::shrink),
    map("Sigmoid", "consumed_inputs", elementwise::of_first, elementwise::sigmoid),
    map("Sign", "", elementwise::of_first, elementwise::sign),
    map("Sin", "", elementwise::of_first, elementwise::sin),
    map("Sinh", "", elementwise::of_first, elementwise::sinh),
    op ("Size", "", source::of_size, source::inferred),
    op ("Slice", "axes ends starts", layout::of_slice, layout::slice),
    op ("Softmax", "axis", normalize::same, reduce::softmax),
    op ("SoftmaxCrossEntropyLoss", "ignore_index reduction", loss::of_cross_entropy, loss::softmax_cross_entropy),
    map("Softplus", "", elementwise::of_first, activation::softplus),
    map("Softsign", "", elementwise::of_first, activation::softsign),
    op ("SpaceToDepth", "blocksize", layout::of_space_to_depth, layout::space_to_depth),
    op ("Split", "axis num_outputs split", layout::of_split, layout::split),
    any("SplitToSequence", "axis keepdims", by_lowering, sequence::split),
    map("Sqrt", "consumed_inputs", elementwise::of_first, elementwise::sqrt),
    op ("Squeeze", "axes", layout::of_squeeze, layout::reshaped),
    op ("StringConcat", "", strings::of_concat, strings::on_host),
    op ("StringNormalizer", "case_change_action is_case_sensitive locale stopwords", strings::of_normalizer, strings::on_host),
    op ("StringSplit", "delimiter maxsplit", strings::of_split, strings::on_host),
    map("Sub", "axis broadcast consumed_inputs", elementwise::of_difference, elementwise::sub),
    map("Sum", "consumed_inputs", elementwise::of_first, elementwise::sum),
    map("Swish", "alpha", elementwise::of_first, activation::swish),
    map("Tan", "", elementwise::of_first, elementwise::tan),
    map("Tanh", "consumed_inputs", elementwise::of_first, elementwise::tanh),
    op ("TensorScatter", "axis mode", normalize::same, scatter::tensor_scatter),
    op ("TfIdfVectorizer", "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s pool_strings weights", grams::of_vectorizer, grams::vectorizer),
    map("ThresholdedRelu", "alpha", elementwise::of_first, activation::thresholded_relu),
    op ("Tile", "", layout::of_tile, layout::tile),
    op ("TopK", "axis k largest sorted", rank::of_top_k, rank::top_k),
    op ("Transpose", "perm", layout::of_transpose, layout::transpose),
    op ("Trilu", "upper", normalize::same, source::trilu),
    op ("Unique", "axis sorted", rank::of_unique, rank::unique),
    op ("Unsqueeze", "axes", layout::of_unsqueeze, layout::reshaped),
    op ("Upsample", "height_scale mode scales width_scale", resize::of_upsample, resize::upsample),
    map("Where", "", elementwise::of_choice, elementwise::where_),
    map("Xor", "axis broadcast", elementwise::of_first, elementwise::xor),
    op ("ai.onnx.ml.ArrayFeatureExtractor", "", ml::of_array_features, ml::array_features),
    op ("ai.onnx.ml.Binarizer", "threshold", normalize::same, ml::binarizer),
    op ("ai.onnx.ml.CategoryMapper", "cats_int64s cats_strings default_int64 default_string", ml::of_category_mapper, ml::category_mapper),
    op ("ai.onnx.ml.FeatureVectorizer", "inputdimensions", ml::of_feature_vectorizer, ml::feature_vectorizer),
    op ("ai.onnx.ml.Imputer", "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64", normalize::same, ml::imputer),
    op ("ai.onnx.ml.LabelEncoder", "classes_strings default_float default_int64 default_string default_tensor keys_floats keys_int64s keys_strings keys_tensor values_floats values_int64s values_strings values_tensor", ml::of_label_encoder, ml::label_encoder),
    op ("ai.onnx.ml.LinearClassifier", "classlabels_ints classlabels_strings coefficients intercepts multi_class post_transform", ml::of_linear_classifier, ml::linear_classifier),
    op ("ai.onnx.ml.LinearRegressor", "coefficients intercepts post_transform targets", ml::of_linear_regressor, ml::linear_regressor),
    op ("ai.onnx.ml.Normalizer", "norm", ml::of_features, ml::normalizer),
    op ("ai.onnx.ml.OneHotEncoder", "cats_int64s cats_strings zeros", ml::of_one_hot_encoder, ml::one_hot_encoder),
    op ("ai.onnx.ml.Scaler", "offset scale", ml::of_features, ml::scaler),
    op ("ai.onnx.ml.TreeEnsemble", "aggregate_function leaf_targetids leaf_weights membership_values n_targets nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs nodes_truenodeids post_transform tree_roots", trees::of_ensemble, trees::ensemble),
    op ("ai.onnx.ml.TreeEnsembleClassifier", "base_values base_values_as_tensor class_ids class_nodeids class_treeids class_weights class_weights_as_tensor classlabels_int64s classlabels_strings nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor post_transform", trees::of_classifier, trees::classifier),
    op ("ai.onnx.ml.TreeEnsembleRegressor", "aggregate_function base_values base_values_as_tensor n_targets nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor post_transform target_ids target_nodeids target_treeids target_weights target_weights_as_tensor", trees::of_regressor, trees::regressor),
    op ("ai.onnx.ml.ZipMap", "classlabels_int64s classlabels_strings", by_lowering, ml::zip_map),
    op ("barewave.Coupled", "classes", coupled::of_coupled, coupled::coupled),
    op ("barewave.KeyMask", "", attention::of_key_mask, attention::key_mask),
    op ("barewave.MatMulFloats", "K N block_size float", packed::of_matmul_bits, packed::matmul_floats),
    op ("barewave.Places", "", attention::of_places, attention::places),
    op ("barewave.Rows", "", integer::of_rows, integer::rows),
    op ("barewave.Softmax", "axis opset", normalize::same, reduce::softmax),
    op ("com.microsoft.FusedMatMul", "alpha transA transB transBatchA transBatchB", integer::of_fused_matmul, integer::fused_matmul),
    op ("com.microsoft.GatherBlockQuantized", "bits block_size gather_axis quantize_axis", packed::of_gather_blocks, packed::gather_blocks),
    op ("com.microsoft.Inverse", "", transform::of_inverse, transform::inverse),
    op ("com.microsoft.MatMulNBits", "K N accuracy_level bits block_size weight_prepacked", packed::of_matmul_bits, packed::matmul_bits),
    op ("com.microsoft.Tokenizer", "mark mincharnum pad_value separators tokenexp", strings::of_tokenizer, strings::on_host),
    op ("com.microsoft.TransposeMatMul", "alpha transA transB", integer::of_fused_matmul, integer::fused_matmul),
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
    if domain == "com.microsoft.nchwc" {
        return "; onnxruntime's optimiser wrote the model for the processor it ran on: save it with ORT_ENABLE_EXTENDED".into();
    }
    let other = |o: &&Operator| o.name.rsplit('.').next().is_some_and(|n| n.eq_ignore_ascii_case(name));
    match OPERATORS.iter().find(other) {
        Some(o) => format!("; did you mean {}?", o.name),
        None if domain.is_empty() => "; the README lists the supported ones".into(),
        None => format!("; the README lists what is supported of {domain}"),
    }
}

// Rows are in the order of their names, by which they are looked for, and each lists its attributes in order.
const _: () = {
    let mut i = 0;
    while i < OPERATORS.len() {
        assert!(i == 0 || precedes(OPERATORS[i - 1].name.as_bytes(), OPERATORS[i].name.as_bytes()));
        assert!(words_are_sorted(OPERATORS[i].attributes.as_bytes()));
        i += 1;
    }
};

const fn precedes(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

/// True when words with a space between them stand in order, each once.
const fn words_are_sorted(text: &[u8]) -> bool {
    let (mut before, mut rest): (&[u8], &[u8]) = (&[], text);
    loop {
        let mut end = 0;
        while end < rest.len() && rest[end] != b' ' {
            end += 1;
        }
        let (word, behind) = rest.split_at(end);
        if !before.is_empty() && !precedes(before, word) {
            return false;
        }
        let Some((_, next)) = behind.split_first() else { return true };
        (before, rest) = (word, next);
    }
}
