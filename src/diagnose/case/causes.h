// Every cause that a diagnosis can name, in one table: its id, what it means, how it is usually mended. An id that is
// not in the table does not compile, and `docs/diagnosis.md` shows the table as it stands here
// (`tools/causes_table.py`).
#pragma once
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace lockstep {

struct CauseEntry {
  std::string_view id;     // stable: scripts look for it
  std::string_view words;  // what is wrong with yours
  std::string_view fix;    // said where the finding knows nothing more precise
  // Another input, seen through the stage, looks the same: what is different is told, not what was done.
  bool is_effect = false;
};

// clang-format off
inline constexpr CauseEntry kCauses[] = {
    {"activation.added", "an activation is applied where the reference has none", "remove the activation"},
    {"activation.gate_up_exchanged", "the activation is applied to `up` instead of `gate`", "exchange gate and up"},
    {"activation.kind", "another activation function, or another form of it", "use the reference's activation"},
    {"activation.missing", "the activation is left out", "apply the activation"},
    {"activation.other_input", "the activation is computed from another tensor", "give the activation the reference's input"},
    {"activation.product_missing", "a gated activation is not multiplied by its other half", "multiply by the other half"},
    {"affine.channel_offset", "a constant of its own is added to each channel", "look for a bias or shift that is missing or of another layer", true},
    {"affine.channel_scale", "each channel has a factor of its own", "look for a weight or scale that is missing or of another layer", true},
    {"affine.channel_scale_offset", "each channel has a factor and a constant of its own", "look for a scale and shift that are missing or of another layer", true},
    {"affine.offset", "a constant is added", "a constant is added, or was left out", true},
    {"affine.row_scale", "each token has a factor of its own", "look for a normalisation that differs", true},
    {"affine.scale", "everything is multiplied by one number", "remove the factor", true},
    {"affine.scale_offset", "everything is multiplied by one number, and another is added", "remove the factor and the constant", true},
    {"attention.cap", "scores are capped", "do not cap the scores"},
    {"attention.heads", "heads are cut, ordered or put together otherwise", "give each head its own q, k and v"},
    {"attention.key_groups", "key heads are assigned to other query heads (grouped-query attention)", "repeat each key head for consecutive query heads (repeat_interleave), do not tile them"},
    {"attention.mask", "other keys are masked, or they are masked in another way", "mask the keys that the reference masks"},
    {"attention.mask_added", "keys are masked where the reference masks none", "remove the mask"},
    {"attention.mask_missing", "the mask is left out", "apply the mask"},
    {"attention.norm_added", "q, k or v are normalised once more", "use q, k and v as they are, without another norm"},
    {"attention.norm_missing", "q or k are used before their norm", "use q and k as they leave their norms"},
    {"attention.qkv_exchanged", "q, k and v are exchanged", "take q, k and v in the reference's order"},
    {"attention.scale", "scores have another scale", "scale the scores as the reference does"},
    {"attention.softmax", "the softmax is replaced, or runs over something else", "take the softmax of the scores over the keys"},
    {"attention.streams", "the two streams are joined, seen or parted otherwise", "join text, then image, and part the result where the text ends"},
    {"capture.other_hit", "the tensor of another call was captured", "capture the same call"},
    {"capture.other_stage", "the tensor of another stage was captured", "capture the stage that the name says"},
    {"convolution.bias_doubled", "the bias is added twice", "add the bias once"},
    {"convolution.bias_missing", "the bias is left out", "add the bias"},
    {"convolution.different_bias", "the bias has other values", "load the bias of this layer"},
    {"convolution.different_weight", "the kernel has other values", "load the weight of this layer"},
    {"convolution.dilation", "another dilation", "use the reference's dilation"},
    {"convolution.input_order", "the input is given in another order of axes or channels", "give the input in the reference's order"},
    {"convolution.kernel_axes", "the kernel's axes are in another order", "bring the kernel's axes into the order that the framework wants"},
    {"convolution.kernel_mirrored", "the kernel is mirrored (a true convolution instead of a correlation)", "mirror the kernel back"},
    {"convolution.kernel_size", "only a part of the kernel is used", "use the whole kernel"},
    {"convolution.other_weight", "the weight of another layer", "load this layer's own weight"},
    {"convolution.padding", "borders are padded with something else, or by other amounts", "pad as the reference does"},
    {"convolution.temporal_tap", "another time tap of the kernel is used", "use the reference's tap of time"},
    {"convolution.transposed_weight", "in and out channels of the weight are exchanged", "transpose the weight"},
    {"convolution.weight_rounded", "the kernel is held in a poorer format or in few bits", "keep the weight in its own dtype"},
    {"convolution.weight_scaled", "the kernel has a factor", "use the weight as it is in the file"},
    {"convolution.zero_weight", "the kernel is zero: never loaded", "load the weight of this layer"},
    {"elementwise.added", "a function is applied to each element", "remove the function"},
    {"elementwise.function", "each element is some function of the reference's", "look for a function that is applied to each element"},
    {"elementwise.missing", "a function of each element is left out", "apply the function"},
    {"embedding.offset", "rows of the embedding table are off by a constant", "use the ids as they are"},
    {"garbage.constant", "all elements are equal", "look for a buffer that was filled and never written"},
    {"garbage.denormal", "denormal numbers: memory that was never written, or of another dtype", "look for memory that was never written"},
    {"garbage.infinite", "infinities", "look for a division by zero or an overflow"},
    {"garbage.nan", "NaN", "look for 0/0, a row without keys, or memory that was never written"},
    {"garbage.zeros", "zeros where the reference has numbers", "look for a result that was never written, or a dropout that is on"},
    {"gate.added", "a gate is applied where the reference has none", "remove the gate"},
    {"gate.form", "the gate is applied in another form", "multiply by the gate as the reference does"},
    {"gate.missing", "the gate is left out", "multiply by the gate"},
    {"gate.other_part", "another part of the modulation is taken for the gate", "take the gate from its own part"},
    {"guidance.exchanged", "the conditional and the unconditional prediction are exchanged", "conditional and unconditional prediction are exchanged"},
    {"guidance.formula", "the predictions are combined by another formula", "combine the predictions as the reference does"},
    {"guidance.rescale", "the result is rescaled otherwise, or not at all", "rescale the result as the reference does"},
    {"guidance.scale", "another guidance scale", "use the reference's guidance scale"},
    {"input.other", "other ids, masks or prompts were given", "give both runs the same input"},
    {"latents.direction", "latents are normalised where they are to be denormalised, or the reverse", "invert the formula"},
    {"latents.mean_missing", "the mean of the latents is not added", "add the mean"},
    {"latents.mean_sign", "the mean of the latents has the wrong sign", "add the mean, do not subtract it"},
    {"latents.mean_std_exchanged", "mean and deviation of the latents are exchanged", "exchange mean and deviation"},
    {"latents.not_denormalised", "latents are decoded as they are", "multiply by the deviation and add the mean"},
    {"latents.order", "channels of the latents have each other's statistics", "give each channel its own mean and deviation"},
    {"latents.other_noise", "the first latents are other noise", "use the reference's noise"},
    {"latents.statistics", "other means or deviations", "use the statistics of this autoencoder"},
    {"latents.std_inverted", "latents are divided by the deviation instead of multiplied, or the reverse", "multiply where you divide"},
    {"latents.std_missing", "latents are not multiplied by the deviation", "multiply by the deviation"},
    {"layout.axes", "axes are in another order", "permute the axes before use, or read the tensor with the reference's axis order"},
    {"layout.heads", "heads and tokens are in another order", "split the channels into [heads, head size] and move the axes before they are flattened"},
    {"layout.interleaved", "parts alternate where the reference has one behind the other, or the reverse", "unpack blocks against interleaved elements as the reference does"},
    {"layout.packing", "patches are packed in another order", "pack or unpack the patches in the reference's order of factors"},
    {"layout.parts_exchanged", "parts of an axis are exchanged", "split in the reference's order: the parts are exchanged"},
    {"layout.permuted", "the same values in another order", "put the slices in the reference's order"},
    {"layout.repeated", "slices are repeated in place of others", "an index or stride of 0: each slice needs its own source"},
    {"layout.reversed", "an axis runs backwards", "put the slices in the reference's order"},
    {"layout.rolled", "an axis is rolled", "put the slices in the reference's order"},
    {"layout.shifted", "an axis is shifted, and something else came in at its end", "put the slices in the reference's order"},
    {"layout.strided", "strided memory was read as if it were contiguous", "make the view contiguous before its memory is read, or honour its strides (the length of a padded row)"},
    {"linear.bias_doubled", "the bias is added twice", "add the bias once"},
    {"linear.bias_missing", "the bias is left out", "add the bias"},
    {"linear.different_bias", "the bias has other values", "load the bias of this layer", true},
    {"linear.different_weight", "the weight has other values", "load the weight of this layer"},
    {"linear.input_parts_exchanged", "parts of the input meet the weights of other parts", "give the input in the order that the weight expects", true},
    {"linear.other_bias", "the bias of another layer", "load this layer's own bias"},
    {"linear.other_weight", "the weight of another layer", "load this layer's own weight"},
    {"linear.random_weight", "the weight was drawn at random: never loaded", "load the weight of this layer"},
    {"linear.transposed_weight", "the weight is transposed", "transpose the weight"},
    {"linear.twice", "the layer is applied twice", "apply the layer once"},
    {"linear.weight_quantised", "the weight is quantised, or put together wrongly from its quantised parts", "compare with the quantised reference, or mend the dequantisation"},
    {"linear.weight_rounded", "the weight is held in a poorer format", "keep the weight in its own dtype"},
    {"linear.weight_row_scale", "each output has a factor of its own", "look for scales that are missing or applied twice"},
    {"linear.weight_scaled", "the weight has a factor", "use the weight as it is in the file"},
    {"linear.zero_weight", "the weight is zero: never loaded", "load the weight of this layer"},
    {"modulate.added", "the modulation is applied where the reference has none", "remove the modulation"},
    {"modulate.form", "the modulation is applied in another form", "compute x * (1 + scale) + shift"},
    {"modulate.missing", "the modulation is left out", "apply the modulation"},
    {"modulate.one_plus_missing", "x * scale instead of x * (1 + scale)", "add 1 to the scale"},
    {"modulate.other_part", "other parts of the modulation are used", "take shift, scale and gate from their own parts"},
    {"modulate.scale_missing", "the scale of the modulation is left out", "multiply by 1 + scale"},
    {"modulate.shift", "the shift of the modulation differs", "add the shift as it is"},
    {"modulate.shift_missing", "the shift of the modulation is left out", "add the shift"},
    {"modulate.shift_scale_exchanged", "shift and scale are exchanged", "exchange shift and scale"},
    {"norm.added", "a norm is applied where the reference has none", "remove the norm"},
    {"norm.axis", "the norm runs over other elements", "normalise over the reference's axis"},
    {"norm.bias_added", "the norm adds a bias that the reference does not have", "remove the bias"},
    {"norm.bias_missing", "the norm's bias is left out", "add the bias"},
    {"norm.different_weight", "the norm's weight has other values", "load the norm's own weight"},
    {"norm.eps", "another eps", "use the reference's eps"},
    {"norm.factor", "the factor of each row is another statistic", "compute the statistic as the reference does"},
    {"norm.kind", "another kind of norm", "use the reference's kind of norm"},
    {"norm.missing", "the norm is left out", "normalise"},
    {"norm.one_plus_weight", "1 + weight instead of weight, or the reverse", "use the weight as the reference does"},
    {"norm.other_bias", "the bias of another norm", "load this norm's own bias"},
    {"norm.other_weight", "the weight of another norm", "load this norm's own weight"},
    {"norm.twice", "the norm is applied twice", "normalise once"},
    {"norm.weight_added", "the norm has a weight that the reference does not apply", "do not multiply by a weight"},
    {"norm.weight_missing", "the norm's weight is not applied", "multiply by the norm's weight"},
    {"norm.weight_use", "the norm's weight is applied in another way", "multiply by the weight as the reference does"},
    {"precision.bf16", "computed or held in bfloat16 on the way", "keep it in the reference's precision"},
    {"precision.clamp_missing", "values are not clamped to their range", "clamp the result as the reference does"},
    {"precision.f16", "computed or held in float16 on the way", "keep it in the reference's precision"},
    {"precision.f8_e4m3", "computed or held in float8 (e4m3) on the way", "keep it in the reference's precision"},
    {"precision.f8_e5m2", "computed or held in float8 (e5m2) on the way", "keep it in the reference's precision"},
    {"precision.integer", "goes through whole numbers on the way", "do not go through whole numbers on the way to this tensor"},
    {"precision.saturated", "values are clamped where the reference does not", "do not clamp the values"},
    {"ranks.missing_sum", "each rank goes on with its own term of a sum", "sum the terms over the ranks (all_reduce) before they are used"},
    {"ranks.one_differs", "ranks that should hold the same tensor do not: some agree with the reference, others do not", "look for weights, inputs or random numbers that only some ranks have"},
    {"resample.kind", "another kind of up- or downsampling", "resample as the reference does"},
    {"residual.added", "another tensor is added", "do not add it"},
    {"residual.branch_missing", "the branch is not added to the stream", "add the branch"},
    {"residual.factor", "the branch or the stream has a factor", "add both as they are"},
    {"residual.missing", "the residual connection is left out", "add the input of the branch"},
    {"residual.other_input", "another tensor is taken for the residual", "add the reference's tensor"},
    {"residual.sign", "the branch is subtracted", "add the branch"},
    {"rotary.added", "rotated where the reference is not", "do not rotate here"},
    {"rotary.axes_exchanged", "channels turn with the positions of another axis", "give each axis its own channels, in the reference's order"},
    {"rotary.cos_sin_exchanged", "cos and sin are exchanged", "exchange cos and sin"},
    {"rotary.factor", "angles have a factor", "positions or frequencies carry a factor"},
    {"rotary.missing", "the rotation is left out, or is left out in some heads", "rotate q and k"},
    {"rotary.offset", "positions are off by a constant, or run backwards", "start the positions where the reference does"},
    {"rotary.on_values", "v is rotated", "do not rotate v"},
    {"rotary.one_side", "only one of q and k is rotated", "rotate both q and k"},
    {"rotary.partial", "only a part of each head is rotated", "rotate the whole head"},
    {"rotary.positions", "tokens have other positions", "number the positions as the reference does"},
    {"rotary.sign", "the rotation goes the other way", "rotate the other way"},
    {"rotary.streams_exchanged", "text and image have each other's positions", "give the text the text's positions and the image the image's"},
    {"rotary.style", "other channels form a pair (neighbours, halves)", "rotate the pairs that the reference rotates"},
    {"rotary.theta", "other frequencies", "compute the frequencies as theta^-(i/n), with the reference's theta and n"},
    {"scheduler.dt", "the step has another size", "use the difference of the sigmas of this step"},
    {"scheduler.formula", "the step is computed by another formula", "compute the step as the reference does"},
    {"scheduler.noise", "noise is added in the step, or other noise", "use the reference's noise"},
    {"scheduler.other_prediction", "the step uses another prediction", "use this step's prediction"},
    {"scheduler.scale", "the latents or the prediction have a factor", "remove the factor"},
    {"scheduler.sigmas", "other sigmas", "compute the sigmas as the reference does"},
    {"scheduler.sign", "the step goes the wrong way", "reverse the sign of the step"},
    {"scheduler.step_index", "the sigmas of another step are used", "use the sigmas of this step"},
    {"stage.replaced", "the tensor is another recorded tensor: a stage was skipped, or another one called", "use this stage's own result"},
    {"timestep.cos_sin_order", "cosines and sines of the time features are in the other order", "exchange the halves"},
    {"timestep.factor", "the frequencies of the time features have a factor", "compute the frequencies as the reference does", true},
    {"timestep.function", "the time is some function of the reference's", "give the model the reference's time"},
    {"timestep.index_as_value", "the index of the step is taken for its time", "give the model the time, not its index"},
    {"timestep.inverted", "the time runs the other way", "use 1 - t where you use t, or the reverse"},
    {"timestep.offset", "the time is off by a constant", "remove the offset"},
    {"timestep.scale", "the time has a factor", "scale the time as the reference does"},
    {"timestep.sign", "the time or the sines have the wrong sign", "reverse the sign"},
    {"timestep.step_index", "the time of another step is used", "use this step's time"},
    {"timestep.theta", "the time features have other frequencies", "use the reference's theta"},
    {"weights.different", "two checkpoints: the weight has other values", "load the weight of this layer"},
    {"weights.missing", "two checkpoints: the weight is in one of them alone", "add the weight"},
    {"weights.not_finite", "two checkpoints: NaN or infinity in one of them alone", "convert the weight again"},
    {"weights.parts_exchanged", "two checkpoints: parts of the weight are exchanged", "exchange the parts"},
    {"weights.quantised", "two checkpoints: the weight is quantised", "compare with the quantised reference"},
    {"weights.random", "two checkpoints: the weight was drawn at random", "load the weight"},
    {"weights.rearranged", "two checkpoints: the weight's elements are in another order", "bring the elements into the reference's order"},
    {"weights.rounded_bf16", "two checkpoints: rounded to bfloat16", "keep the weight in its own dtype"},
    {"weights.rounded_f16", "two checkpoints: rounded to float16", "keep the weight in its own dtype"},
    {"weights.rounded_f8", "two checkpoints: rounded to float8", "keep the weight in its own dtype"},
    {"weights.scaled", "two checkpoints: the weight has a factor", "use the weight as it is"},
    {"weights.shape", "two checkpoints: another shape", "bring the weight into the reference's shape"},
    {"weights.small_error", "two checkpoints: small differences everywhere", "look for a conversion through a poorer format"},
    {"weights.transposed", "two checkpoints: transposed", "transpose the weight"},
    {"weights.zeros", "two checkpoints: zero", "load the weight"},
};
// clang-format on

// One line of the table. A literal that is none of its ids does not compile: the constructor runs in the compiler.
class Cause {
 public:
  constexpr Cause() = default;  // none yet
  consteval Cause(const char* id) : at_(position(id)) {}

  constexpr explicit operator bool() const { return at_ >= 0; }
  constexpr std::string_view id() const { return at_ < 0 ? std::string_view() : kCauses[at_].id; }
  constexpr const CauseEntry& entry() const { return kCauses[at_]; }
  // "attention" of "attention.mask".
  constexpr std::string_view family() const { return id().substr(0, id().find('.')); }
  constexpr bool is_effect() const { return at_ >= 0 && kCauses[at_].is_effect; }
  // A step of the reference that yours does not take: "norm.missing".
  constexpr bool is_missing_step() const { return id().ends_with(".missing"); }
  friend constexpr bool operator==(Cause, Cause) = default;

 private:
  static consteval int16_t position(std::string_view id) {
    for (size_t i = 0; i < std::size(kCauses); ++i)
      if (kCauses[i].id == id) return static_cast<int16_t>(i);
    throw "no cause of the table has this id";
  }
  int16_t at_ = -1;
};

}  // namespace lockstep
