//! The operators: one row each, a rule that infers its outputs, and a function that lowers it.
//!
//! To add an operator, write both in the file of its family and add a row here (`by_lowering` is the rule where only lowering
//! tells). The row lists the inputs with their types and the attributes
//! that the function understands; any other attribute is an error that names it, never ignored.

mod activation;
mod assigned;
mod attention;
mod causal;
mod control;
mod conv;
mod coupled;
mod einsum;
mod elementwise;
mod few;
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
mod paged;
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

pub(crate) use activation::soft_plus;
pub(crate) use control::nothing_collected;
pub(crate) use normalize::lower_norm;
pub(crate) use ordered::{Indices, Order};
pub(crate) use packed::widening;
pub(crate) use reduce::lower_softmax;
pub(crate) use strings::evaluate;

use super::error::Res;
use super::infer::{Inference, by_lowering};
use super::lower::Lowering;
use crate::tensor::DType;

/// An operator.
pub(crate) struct Operator {
    pub name: &'static str,
    /// Its inputs and their types ([`types`]).
    inputs: &'static str,
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
    /// Fails where a node has more inputs than it takes, or inputs of other types, as far as these are known.
    pub(crate) fn check_inputs<V>(&self, inputs: &[Option<V>], dtype: impl Fn(&V) -> Option<DType>) -> Res<()> {
        types::check(self.name, self.inputs, inputs, dtype)
    }

    /// True when it runs graphs, which are attributes of its node.
    pub(crate) fn runs_graphs(&self) -> bool {
        self.attributes.split(' ').any(|a| a == "body" || a == "then_branch")
    }

    /// True when its inputs may be strings.
    pub(crate) fn takes_strings(&self) -> bool {
        strings::TAKE_STRINGS.binary_search(&self.name).is_ok()
    }
}

/// The inputs of operators that ONNX does not define are for their rules to judge.
const ANY: &str = ".*";

type Infer = fn(&mut Inference<'_>) -> Res<()>;
type Lower = fn(&mut Lowering<'_>) -> Res<()>;

const fn map(
    name: &'static str,
    inputs: &'static str,
    attributes: &'static str,
    infer: Infer,
    lower: Lower,
) -> Operator {
    Operator { name, inputs, attributes, elementwise: true, lists: false, infer, lower }
}

const fn op(
    name: &'static str,
    inputs: &'static str,
    attributes: &'static str,
    infer: Infer,
    lower: Lower,
) -> Operator {
    Operator { name, inputs, attributes, elementwise: false, lists: false, infer, lower }
}

const fn any(
    name: &'static str,
    inputs: &'static str,
    attributes: &'static str,
    infer: Infer,
    lower: Lower,
) -> Operator {
    Operator { name, inputs, attributes, elementwise: false, lists: true, infer, lower }
}

/// All operators, sorted by name.
#[rustfmt::skip]
pub(crate) static OPERATORS: &[Operator] = &[
    map("Abs", "n", "consumed_inputs", elementwise::of_first, elementwise::abs),
    map("Acos", "f", "", elementwise::of_first, elementwise::acos),
    map("Acosh", "f", "", elementwise::of_first, elementwise::acosh),
    map("Add", "nA nA", "axis broadcast consumed_inputs", elementwise::of_sum, elementwise::add),
    op ("AffineGrid", "f i", "align_corners", sample::of_affine_grid, sample::affine_grid),
    map("And", "bA bA", "axis broadcast", elementwise::of_first, elementwise::and),
    op ("ArgMax", "n", "axis keepdims select_last_index", reduce::of_place, reduce::arg_max),
    op ("ArgMin", "n", "axis keepdims select_last_index", reduce::of_place, reduce::arg_min),
    map("Asin", "f", "", elementwise::of_first, elementwise::asin),
    map("Asinh", "f", "", elementwise::of_first, elementwise::asinh),
    map("Atan", "f", "", elementwise::of_first, elementwise::atan),
    map("Atanh", "f", "", elementwise::of_first, elementwise::atanh),
    op ("Attention", "fA fA fB . fA fB i", "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision", attention::of_attention, attention::attention),
    op ("AveragePool", "f", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides", pool::of_pool, pool::average),
    op ("BatchNormalization", "f fA fA fB fB", "consumed_inputs epsilon is_test momentum spatial training_mode", normalize::same, normalize::batch),
    op ("Bernoulli", "f", "dtype seed", random::of_like, random::bernoulli),
    map("BitCast", ".", "to", elementwise::of_bits, elementwise::bit_cast),
    map("BitShift", "nA nA", "direction", elementwise::of_first, elementwise::bit_shift),
    map("BitwiseAnd", "nA nA", "", elementwise::of_first, elementwise::and),
    map("BitwiseNot", "n", "", elementwise::of_first, elementwise::not),
    map("BitwiseOr", "nA nA", "", elementwise::of_first, elementwise::or),
    map("BitwiseXor", "nA nA", "", elementwise::of_first, elementwise::xor),
    op ("BlackmanWindow", "i", "output_datatype periodic", transform::of_window, transform::blackman),
    map("Cast", ".", "round_mode saturate to", elementwise::of_cast, elementwise::cast),
    map("CastLike", ". .", "round_mode saturate", elementwise::of_cast_like, elementwise::cast_like),
    op ("CausalConvWithState", "fA fA fA fA", "activation", causal::of_causal_conv, causal::causal_conv),
    map("Ceil", "f", "consumed_inputs", elementwise::of_first, elementwise::ceil),
    map("Celu", "f", "alpha", elementwise::of_first, activation::celu),
    op ("CenterCropPad", ". i", "axes", pad::of_center_crop_pad, pad::center_crop_pad),
    map("Clip", "nA nA nA", "consumed_inputs max min", normalize::same, activation::clip),
    op ("Col2Im", ". iA iA", "dilations pads strides", sample::of_col2im, sample::col2im),
    op ("Compress", ". b", "axis", rank::of_compress, rank::compress),
    op ("Concat", ".A*", "axis", layout::of_concat, layout::concat),
    any("ConcatFromSequence", ".", "axis new_axis", by_lowering, sequence::concat),
    op ("Constant", "", "value value_float value_floats value_int value_ints value_string value_strings", source::of_constant, source::inferred),
    op ("ConstantOfShape", "i", "value", source::of_constant_of_shape, source::constant_of_shape),
    op ("Conv", "fA fA fA", "auto_pad dilations group kernel_shape pads strides", conv::of_conv, conv::conv),
    op ("ConvInteger", "qA qB qA qB", "auto_pad dilations group kernel_shape pads strides", integer::of_conv, integer::conv_integer),
    op ("ConvTranspose", "fA fA fA", "auto_pad dilations group kernel_shape output_padding output_shape pads strides", conv::of_transpose, conv::transpose),
    map("Cos", "f", "", elementwise::of_first, elementwise::cos),
    map("Cosh", "f", "", elementwise::of_first, elementwise::cosh),
    op ("CumProd", "n i", "exclusive reverse", normalize::same, scan::prod),
    op ("CumSum", "n i", "exclusive reverse", normalize::same, scan::sum),
    op ("DFT", "f i i", "axis inverse onesided", transform::of_dft, transform::dft),
    op ("DeformConv", "fA fA fA fA fA", "dilations group kernel_shape offset_group pads strides", conv::of_conv, sample::deform_conv),
    op ("DepthToSpace", ".", "blocksize mode", layout::of_depth_to_space, layout::depth_to_space),
    op ("DequantizeLinear", "eA r eA", "axis block_size output_dtype", quantize::of_dequantize, quantize::dequantize),
    op ("Det", "f", "", transform::of_det, transform::det),
    map("Div", "nA nA", "axis broadcast consumed_inputs", elementwise::of_quotient, elementwise::div),
    op ("Dropout", "r r b", "consumed_inputs is_test ratio seed", source::of_dropout, source::dropout),
    op ("DynamicQuantizeLinear", "f", "", quantize::of_dynamic, quantize::dynamic),
    op ("Einsum", "nA*", "equation", einsum::of_einsum, einsum::einsum),
    map("Elu", "f", "alpha consumed_inputs", elementwise::of_first, activation::elu),
    map("Equal", ".A .A", "axis broadcast", elementwise::of_equal, elementwise::equal),
    map("Erf", "n", "", elementwise::of_first, elementwise::erf),
    map("Exp", "f", "consumed_inputs", elementwise::of_first, elementwise::exp),
    op ("Expand", ". i", "", layout::of_expand, layout::expand),
    op ("EyeLike", ".", "dtype k", source::of_eye, source::eye_like),
    op ("Flatten", ".", "axis", layout::of_flatten, layout::reshaped),
    map("Floor", "f", "consumed_inputs", elementwise::of_first, elementwise::floor),
    op ("GRU", "fA fA fA fA i fA", "activation_alpha activation_beta activations clip direction hidden_size layout linear_before_reset", recurrent::of_layer, recurrent::gru),
    op ("Gather", ". i", "axis", gather::of_gather, gather::gather),
    op ("GatherElements", ". i", "axis", gather::of_elements, gather::elements),
    op ("GatherND", ". i", "batch_dims", gather::of_nd, gather::nd),
    map("Gelu", "f", "approximate", elementwise::of_first, activation::gelu),
    op ("Gemm", "nA nA nA", "alpha beta broadcast transA transB", matmul::of_gemm, matmul::gemm),
    op ("GlobalAveragePool", "f", "", pool::of_global, pool::global_average),
    op ("GlobalLpPool", "f", "p", pool::of_global, pool::global_lp),
    op ("GlobalMaxPool", "f", "", pool::of_global, pool::global_max),
    map("Greater", "nA nA", "axis broadcast", elementwise::of_truth, elementwise::greater),
    map("GreaterOrEqual", "nA nA", "", elementwise::of_truth, elementwise::greater_or_equal),
    op ("GridSample", "n f", "align_corners mode padding_mode", sample::of_grid_sample, sample::grid_sample),
    op ("GroupNormalization", "fA fA fA", "epsilon num_groups stash_type", normalize::same, normalize::group),
    op ("HammingWindow", "i", "output_datatype periodic", transform::of_window, transform::hamming),
    op ("HannWindow", "i", "output_datatype periodic", transform::of_window, transform::hann),
    map("HardSigmoid", "f", "alpha beta consumed_inputs", elementwise::of_first, activation::hard_sigmoid),
    map("HardSwish", "f", "", elementwise::of_first, activation::hard_swish),
    op ("Hardmax", "f", "axis", normalize::same, reduce::hardmax),
    any("Identity", ".", "", source::of_identity, source::identity),
    any("If", "b", "else_branch then_branch", control::of_if, control::if_),
    op ("ImageDecoder", "n", "pixel_format", strings::of_image, strings::on_host),
    op ("InstanceNormalization", "fA fA fA", "consumed_inputs epsilon", normalize::same, normalize::instance),
    map("IsInf", "r", "detect_negative detect_positive", elementwise::of_truth, elementwise::is_inf),
    map("IsNaN", "r", "", elementwise::of_truth, elementwise::is_nan),
    op ("LRN", "f", "alpha beta bias size", normalize::same, normalize::lrn),
    op ("LSTM", "fA fA fA fA i fA fA fA", "activation_alpha activation_beta activations clip direction hidden_size input_forget layout", recurrent::of_layer, recurrent::lstm),
    op ("LayerNormalization", "f fA fA", "axis epsilon stash_type", normalize::of_layer, normalize::layer),
    map("LeakyRelu", "f", "alpha consumed_inputs", elementwise::of_first, activation::leaky_relu),
    map("Less", "nA nA", "axis broadcast", elementwise::of_truth, elementwise::less),
    map("LessOrEqual", "nA nA", "", elementwise::of_truth, elementwise::less_or_equal),
    op ("LinearAttention", "fA fA fA f fA fA", "chunk_size kv_num_heads q_num_heads scale update_rule", causal::of_linear_attention, causal::linear_attention),
    map("Log", "f", "consumed_inputs", elementwise::of_first, elementwise::log),
    op ("LogSoftmax", "f", "axis", normalize::same, reduce::log_softmax),
    any("Loop", "i b .*", "body", by_lowering, control::loop_),
    op ("LpNormalization", "f", "axis p", normalize::same, normalize::lp),
    op ("LpPool", "f", "auto_pad ceil_mode dilations kernel_shape p pads strides", pool::of_pool, pool::lp),
    op ("MatMul", "nA nA", "", matmul::of_matmul, matmul::matmul),
    op ("MatMulInteger", "qA qB qA qB", "", integer::of_matmul, integer::matmul),
    map("Max", "nA*", "consumed_inputs", elementwise::of_max, elementwise::max),
    op ("MaxPool", "n", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides", pool::of_pool, pool::max),
    op ("MaxRoiPool", "fA fA", "pooled_shape spatial_scale", sample::of_max_roi_pool, sample::max_roi_pool),
    op ("MaxUnpool", "f iA iA", "kernel_shape pads strides", by_lowering, scatter::max_unpool),
    map("Mean", "fA*", "consumed_inputs", elementwise::of_first, elementwise::mean),
    op ("MeanVarianceNormalization", "f", "axes", normalize::same, normalize::mean_variance),
    op ("MelWeightMatrix", "iA iA iA fB fB", "output_datatype", by_lowering, transform::mel_weights),
    map("Min", "nA*", "consumed_inputs", elementwise::of_min, elementwise::min),
    map("Mish", "f", "", elementwise::of_first, activation::mish),
    map("Mod", "nA nA", "fmod", elementwise::of_first, elementwise::modulo),
    map("Mul", "nA nA", "axis broadcast consumed_inputs", elementwise::of_product, elementwise::mul),
    op ("Multinomial", "f", "dtype sample_size seed", random::of_draws, random::multinomial),
    map("Neg", "n", "consumed_inputs", elementwise::of_first, elementwise::neg),
    op ("NegativeLogLikelihoodLoss", "fA i fA", "ignore_index reduction", loss::of_loss, loss::negative_log_likelihood),
    op ("NonMaxSuppression", "fA fA i fA fA", "center_point_box", rank::of_selection, rank::non_max_suppression),
    op ("NonZero", ".", "", rank::of_non_zero, rank::non_zero),
    map("Not", "b", "", elementwise::of_first, elementwise::not),
    op ("OneHot", "n n .", "axis", source::of_one_hot, source::one_hot),
    any("Optional", ".", "type", by_lowering, sequence::optional),
    any("OptionalGetElement", ".", "", by_lowering, sequence::get),
    any("OptionalHasElement", ".", "", by_lowering, sequence::has),
    map("Or", "bA bA", "axis broadcast", elementwise::of_first, elementwise::or),
    map("PRelu", "nA nA", "consumed_inputs", activation::of_slopes, activation::prelu),
    op ("Pad", ".A i .A i", "mode paddings pads value", pad::of_pad, pad::pad),
    map("Pow", "n n", "axis broadcast", elementwise::of_first, elementwise::pow),
    op ("QLinearConv", "qA fB qA qC fB qC fB q i", "auto_pad dilations group kernel_shape pads strides", integer::of_quantized_conv, integer::qlinear_conv),
    op ("QuantizeLinear", "n r e", "axis block_size output_dtype precision saturate", quantize::of_quantize, quantize::quantize),
    op ("RMSNormalization", "f f", "axis epsilon stash_type", normalize::of_layer, normalize::rms),
    op ("RNN", "fA fA fA fA i fA", "activation_alpha activation_beta activations clip direction hidden_size layout", recurrent::of_layer, recurrent::rnn),
    op ("RandomNormal", "", "dtype mean scale seed shape", random::of_shape, random::normals),
    op ("RandomNormalLike", ".", "dtype mean scale seed", random::of_like, random::normals),
    op ("RandomUniform", "", "dtype high low seed shape", random::of_shape, random::uniforms),
    op ("RandomUniformLike", ".", "dtype high low seed", random::of_like, random::uniforms),
    op ("Range", "nA nA nA", "stash_type", source::of_range, source::range),
    map("Reciprocal", "f", "consumed_inputs", elementwise::of_first, elementwise::reciprocal),
    op ("ReduceL1", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::l1),
    op ("ReduceL2", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::l2),
    op ("ReduceLogSum", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::log_sum),
    op ("ReduceLogSumExp", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::log_sum_exp),
    op ("ReduceMax", ". i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::max),
    op ("ReduceMean", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::mean),
    op ("ReduceMin", ". i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::min),
    op ("ReduceProd", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::prod),
    op ("ReduceSum", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::sum),
    op ("ReduceSumSquare", "n i", "axes keepdims noop_with_empty_axes", reduce::of_reduction, reduce::sum_square),
    op ("RegexFullMatch", "s", "pattern", strings::of_match, strings::on_host),
    map("Relu", "n", "consumed_inputs", elementwise::of_first, activation::relu),
    op ("Reshape", ". i", "allowzero consumed_inputs shape", layout::of_reshape, layout::reshaped),
    op ("Resize", ". f f i", "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value keep_aspect_ratio_policy mode nearest_mode", resize::of_resize, resize::resize),
    op ("ReverseSequence", ". i", "batch_axis time_axis", normalize::same, rank::reverse_sequence),
    op ("RoiAlign", "fA fA i", "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale", sample::of_roi_align, sample::roi_align),
    op ("RotaryEmbedding", "fA fA fA i", "interleaved num_heads rotary_embedding_dim", normalize::same, attention::rotary),
    map("Round", "f", "", elementwise::of_first, elementwise::round),
    op ("STFT", "fA iB fA iB", "onesided", transform::of_stft, transform::stft),
    op ("Scan", ". .*", "body directions num_scan_inputs scan_input_axes scan_input_directions scan_output_axes scan_output_directions", by_lowering, control::scan),
    op ("Scatter", ".A i .A", "axis", normalize::same, scatter::elements),
    op ("ScatterElements", ".A i .A", "axis reduction", normalize::same, scatter::elements),
    op ("ScatterND", ".A i .A", "reduction", normalize::same, scatter::nd),
    map("Selu", "f", "alpha consumed_inputs gamma", elementwise::of_first, activation::selu),
    any("SequenceAt", ". i", "", sequence::of_at, sequence::at),
    any("SequenceConstruct", ".A*", "", by_lowering, sequence::construct),
    any("SequenceEmpty", "", "dtype", by_lowering, sequence::empty),
    any("SequenceErase", ". i", "", sequence::of_erase, sequence::erase),
    any("SequenceInsert", ". . i", "", sequence::of_insert, sequence::insert),
    any("SequenceLength", ".", "", sequence::of_length, sequence::length),
    any("SequenceMap", ". .*", "body", by_lowering, sequence::map),
    op ("Shape", ".", "end start", source::of_shape, source::inferred),
    map("Shrink", "n", "bias lambd", elementwise::of_first, activation::shrink),
    map("Sigmoid", "f", "consumed_inputs", elementwise::of_first, elementwise::sigmoid),
    map("Sign", "n", "", elementwise::of_first, elementwise::sign),
    map("Sin", "f", "", elementwise::of_first, elementwise::sin),
    map("Sinh", "f", "", elementwise::of_first, elementwise::sinh),
    op ("Size", ".", "", source::of_size, source::inferred),
    op ("Slice", ". iA iA iA iA", "axes ends starts", layout::of_slice, layout::slice),
    op ("Softmax", "f", "axis", normalize::same, reduce::softmax),
    op ("SoftmaxCrossEntropyLoss", "fA i fA", "ignore_index reduction", loss::of_cross_entropy, loss::softmax_cross_entropy),
    map("Softplus", "f", "", elementwise::of_first, activation::softplus),
    map("Softsign", "f", "", elementwise::of_first, activation::softsign),
    op ("SpaceToDepth", ".", "blocksize", layout::of_space_to_depth, layout::space_to_depth),
    op ("Split", ". n", "axis num_outputs split", layout::of_split, layout::split),
    any("SplitToSequence", ". i", "axis keepdims", by_lowering, sequence::split),
    map("Sqrt", "f", "consumed_inputs", elementwise::of_first, elementwise::sqrt),
    op ("Squeeze", ". i", "axes", layout::of_squeeze, layout::reshaped),
    op ("StringConcat", "sA sA", "", strings::of_concat, strings::on_host),
    op ("StringNormalizer", "s", "case_change_action is_case_sensitive locale stopwords", strings::of_normalizer, strings::on_host),
    op ("StringSplit", "s", "delimiter maxsplit", strings::of_split, strings::on_host),
    map("Sub", "nA nA", "axis broadcast consumed_inputs", elementwise::of_difference, elementwise::sub),
    map("Sum", "fA*", "consumed_inputs", elementwise::of_first, elementwise::sum),
    map("Swish", "f", "alpha", elementwise::of_first, activation::swish),
    map("Tan", "f", "", elementwise::of_first, elementwise::tan),
    map("Tanh", "f", "consumed_inputs", elementwise::of_first, elementwise::tanh),
    op ("TensorScatter", ".A .A i", "axis mode", normalize::same, scatter::tensor_scatter),
    op ("TfIdfVectorizer", ".", "max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes pool_int64s pool_strings weights", grams::of_vectorizer, grams::vectorizer),
    map("ThresholdedRelu", "f", "alpha", elementwise::of_first, activation::thresholded_relu),
    op ("Tile", ". n .", "", layout::of_tile, layout::tile),
    op ("TopK", "n i", "axis k largest sorted", rank::of_top_k, rank::top_k),
    op ("Transpose", ".", "perm", layout::of_transpose, layout::transpose),
    op ("Trilu", ". i", "upper", normalize::same, source::trilu),
    op ("Unique", ".", "axis sorted", rank::of_unique, rank::unique),
    op ("Unsqueeze", ". i", "axes", layout::of_unsqueeze, layout::reshaped),
    op ("Upsample", ". f", "height_scale mode scales width_scale", resize::of_upsample, resize::upsample),
    map("Where", "b .A .A", "", elementwise::of_choice, elementwise::where_),
    map("Xor", "bA bA", "axis broadcast", elementwise::of_first, elementwise::xor),
    op ("ai.onnx.ml.ArrayFeatureExtractor", ". i", "", ml::of_array_features, ml::array_features),
    op ("ai.onnx.ml.Binarizer", "n", "threshold", normalize::same, ml::binarizer),
    op ("ai.onnx.ml.CategoryMapper", ".", "cats_int64s cats_strings default_int64 default_string", ml::of_category_mapper, ml::category_mapper),
    op ("ai.onnx.ml.FeatureVectorizer", "nA*", "inputdimensions", ml::of_feature_vectorizer, ml::feature_vectorizer),
    op ("ai.onnx.ml.Imputer", "n", "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64", normalize::same, ml::imputer),
    op ("ai.onnx.ml.LabelEncoder", ".", "classes_strings default_float default_int64 default_string default_tensor keys_floats keys_int64s keys_strings keys_tensor values_floats values_int64s values_strings values_tensor", ml::of_label_encoder, ml::label_encoder),
    op ("ai.onnx.ml.LinearClassifier", "n", "classlabels_ints classlabels_strings coefficients intercepts multi_class post_transform", ml::of_linear_classifier, ml::linear_classifier),
    op ("ai.onnx.ml.LinearRegressor", "n", "coefficients intercepts post_transform targets", ml::of_linear_regressor, ml::linear_regressor),
    op ("ai.onnx.ml.Normalizer", "n", "norm", ml::of_features, ml::normalizer),
    op ("ai.onnx.ml.OneHotEncoder", ".", "cats_int64s cats_strings zeros", ml::of_one_hot_encoder, ml::one_hot_encoder),
    op ("ai.onnx.ml.Scaler", "n", "offset scale", ml::of_features, ml::scaler),
    op ("ai.onnx.ml.TreeEnsemble", "f", "aggregate_function leaf_targetids leaf_weights membership_values n_targets nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs nodes_truenodeids post_transform tree_roots", trees::of_ensemble, trees::ensemble),
    op ("ai.onnx.ml.TreeEnsembleClassifier", "n", "base_values base_values_as_tensor class_ids class_nodeids class_treeids class_weights class_weights_as_tensor classlabels_int64s classlabels_strings nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor post_transform", trees::of_classifier, trees::classifier),
    op ("ai.onnx.ml.TreeEnsembleRegressor", "n", "aggregate_function base_values base_values_as_tensor n_targets nodes_falsenodeids nodes_featureids nodes_hitrates nodes_hitrates_as_tensor nodes_missing_value_tracks_true nodes_modes nodes_nodeids nodes_treeids nodes_truenodeids nodes_values nodes_values_as_tensor post_transform target_ids target_nodeids target_treeids target_weights target_weights_as_tensor", trees::of_regressor, trees::regressor),
    op ("ai.onnx.ml.ZipMap", "f", "classlabels_int64s classlabels_strings", by_lowering, ml::zip_map),
    op ("barewave.Checked", ANY, "inputs operator", types::of_checked, types::checked),
    op ("barewave.ConvInteger", ANY, "auto_pad dilations group kernel_shape pads strides", integer::of_conv, integer::conv_integer),
    op ("barewave.Coupled", ANY, "classes", coupled::of_coupled, coupled::coupled),
    op ("barewave.HeadBias", ANY, "", attention::of_head_bias, attention::head_bias),
    op ("barewave.KeyMask", ANY, "", attention::of_key_mask, attention::key_mask),
    op ("barewave.MatMulFloats", ANY, "K N block_size float", packed::of_matmul_bits, packed::matmul_floats),
    op ("barewave.MatMulInteger", ANY, "", integer::of_matmul, integer::matmul),
    op ("barewave.PagedAttention", ANY, "local_window_size scale softcap", paged::of_attention, paged::attention),
    op ("barewave.Places", ANY, "", attention::of_places, attention::places),
    op ("barewave.Rows", ANY, "", integer::of_rows, integer::rows),
    op ("barewave.Softmax", ANY, "axis opset", normalize::same, reduce::softmax),
    op ("barewave.TokenPlaces", ANY, "is_causal local_window_size", paged::of_token_places, paged::token_places),
    op ("barewave.Written", ANY, "reduction", normalize::same, paged::written),
    op ("com.microsoft.FusedMatMul", ANY, "alpha transA transB transBatchA transBatchB", integer::of_fused_matmul, integer::fused_matmul),
    op ("com.microsoft.GatherBlockQuantized", ANY, "bits block_size gather_axis quantize_axis", packed::of_gather_blocks, packed::gather_blocks),
    op ("com.microsoft.Inverse", ANY, "", normalize::same, transform::inverse),
    op ("com.microsoft.MatMulNBits", ANY, "K N accuracy_level bits block_size weight_prepacked", packed::of_matmul_bits, packed::matmul_bits),
    op ("com.microsoft.Tokenizer", ANY, "mark mincharnum pad_value separators tokenexp", strings::of_tokenizer, strings::on_host),
    op ("com.microsoft.TransposeMatMul", ANY, "alpha transA transB", integer::of_fused_matmul, integer::fused_matmul),
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
