#include "zoom/expand.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "zoom/arithmetic.h"
#include "zoom/evaluate.h"

namespace lockstep::zoom {
namespace {

constexpr int64_t kMostElements = 64LL << 20;  // of one value in between

// Writes simple steps one after another; the last one makes the fused step's own output.
class Writer {
 public:
  Writer(Side& side, const Step& fused, double tolerance) : side_(side), fused_(fused), tolerance_(tolerance) {}

  // The value that the step makes; -1 once anything could not be computed.
  int make(const std::string& kind, std::vector<Operand> operands, Json arguments = Json::object()) {
    Step step = simple(kind, std::move(operands), std::move(arguments));
    if (failed_) return -1;
    auto numbers = evaluate(side_, step, fused_.outputs.front(), [this](int value) { return side_.numbers(value); });
    if (!numbers || numbers->count() > kMostElements) {
      failed_ = true;
      return -1;
    }
    return side_.add_made(std::move(*numbers), std::move(step));
  }

  // Transposes the last two axes.
  int transposed(int value) {
    if (failed_ || value < 0) return -1;
    const auto numbers = side_.numbers(value);
    if (!numbers || numbers->shape.size() < 2) {
      failed_ = true;
      return -1;
    }
    std::vector<int> axes(numbers->shape.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return side_.add_made(permute(*numbers, axes), simple("transpose", {{"input", value}}, Json::object()));
  }

  int reshaped(int value, const Shape& shape) {
    if (failed_ || value < 0) return -1;
    const auto numbers = side_.numbers(value);
    if (!numbers || numbers->count() != checked_numel(shape)) {
      failed_ = true;
      return -1;
    }
    return side_.add_made({shape, numbers->values}, simple("reshape", {{"input", value}}, Json::object()));
  }

  // A value that the fused step has in itself and no operand gives: the mask of causal attention.
  int constant(Numbers numbers) { return side_.add_made(std::move(numbers), simple("mask", {}, Json::object())); }

  // One part of a complex number: [..., 2] → [...]
  int part(int value, int64_t which) {
    if (failed_ || value < 0) return -1;
    const auto numbers = side_.numbers(value);
    if (!numbers || numbers->shape.empty() || numbers->shape.back() != 2) return failed_ = true, -1;
    Numbers out{Shape(numbers->shape.begin(), numbers->shape.end() - 1), {}};
    for (size_t i = static_cast<size_t>(which); i < numbers->values.size(); i += 2)
      out.values.push_back(numbers->values[i]);
    return side_.add_made(std::move(out), simple(which == 0 ? "real" : "imag", {{"input", value}}, Json::object()));
  }

  // The step's result is the fused one's less this addend.
  int make_without(const std::string& kind, std::vector<Operand> operands, int addend) {
    Step step = simple(kind, std::move(operands), Json::object());
    const auto sum = side_.numbers(fused_.outputs.front()), less = side_.numbers(addend);
    if (failed_ || !sum || !less) return failed_ = true, -1;
    return side_.add_made(combine(*sum, *less, [](double x, double y) { return x - y; }), std::move(step));
  }

  void finish_as_recorded(const std::string& kind, std::vector<Operand> operands) {
    Step step = simple(kind, std::move(operands), Json::object());
    if (!failed_) side_.set_expanded(fused_.outputs.front(), std::move(step));
  }

  // The last step: its result must be what the program recorded.
  void finish(const std::string& kind, std::vector<Operand> operands, Json arguments = Json::object()) {
    Step step = simple(kind, std::move(operands), std::move(arguments));
    if (failed_) return;
    const int output = fused_.outputs.front();
    const auto numbers = evaluate(side_, step, output, [this](int value) { return side_.numbers(value); });
    const auto recorded = side_.numbers(output);
    if (!numbers || !recorded || numbers->count() != recorded->count() ||
        relative_distance(numbers->values.data(), recorded->values.data(), recorded->count()) > tolerance_)
      return;
    side_.set_expanded(output, std::move(step));
  }

 private:
  Step simple(const std::string& kind, std::vector<Operand> operands, Json arguments) {
    for (const Operand& operand : operands) failed_ |= operand.value < 0;
    Step step;
    step.kind = kind;
    step.operands = std::move(operands);
    step.arguments = std::move(arguments);
    step.where = fused_.where;
    step.simple = true;
    return step;
  }

  Side& side_;
  const Step fused_;  // a copy: the tape's vector grows
  double tolerance_;
  bool failed_ = false;
};

// The product alone is the recorded sum less the bias: no need to multiply again.
void expand_linear(Writer& write, const Step& step) {
  const bool joined = step.kind == "addmm";
  const std::vector<Operand> product{{"input", step.operand("input")},
                                     {"other", step.operand(joined ? "other" : "weight")}};
  const int bias = step.operand("bias");
  if (bias < 0) return write.finish_as_recorded("matmul", product);
  write.finish("add", {{"input", write.make_without("matmul", product, bias)}, {"other", bias}});
}

void expand_norm(Writer& write, const Step& step) {
  const bool centre = step.kind == "layer_norm";
  if (const auto shape = step.arguments.find("normalized_shape");
      shape != step.arguments.end() && shape->is_array() && shape->size() != 1)
    return;
  const Json last{{"dim", -1}, {"keepdim", true}};
  int x = step.operand("input");
  if (centre) x = write.make("sub", {{"input", x}, {"other", write.make("mean", {{"input", x}}, last)}});
  const int squares = write.make("mean", {{"input", write.make("square", {{"input", x}})}}, last);
  const int raised = write.make("add", {{"input", squares}},
                                {{"other", number_or(step, "eps", centre ? 1e-5 : 1.1920928955078125e-07)}});
  std::vector<Operand> operands{{"input", x}, {"other", write.make("rsqrt", {{"input", raised}})}};
  std::string kind = "mul";
  for (const char* parameter : {"weight", "bias"})
    if (const int value = step.operand(parameter); value >= 0) {
      operands = {{"input", write.make(kind, operands)}, {"other", value}};
      kind = parameter == std::string_view("weight") ? "mul" : "add";
    }
  write.finish(kind, operands);
}

// 0 where a query may look, -inf where it may not: what a Boolean mask and a causal one come to.
Numbers additive(const Numbers& allowed) {
  return map(allowed, [](double x) { return x != 0 ? 0 : -std::numeric_limits<double>::infinity(); });
}

Numbers causal_mask(int64_t queries, int64_t keys) {
  Numbers out{{queries, keys}, {}};
  for (int64_t i = 0; i < queries * keys; ++i) out.values.push_back(i % keys > i / keys ? -INFINITY : 0.0F);
  return out;
}

void expand_attention(Writer& write, const Side& side, const Step& step) {
  const int query = step.operand("query"), key = step.operand("key");
  if (query < 0 || key < 0 || side.value(query).shape.size() < 2 || side.value(key).shape.size() < 2) return;
  const double scale = number_or(step, "scale", 1 / std::sqrt(static_cast<double>(side.value(query).shape.back())));
  if (flag_of(step, "enable_gqa")) return;
  const int64_t queries = *(side.value(query).shape.end() - 2), keys = *(side.value(key).shape.end() - 2);
  const int scores = write.make("matmul", {{"input", query}, {"other", write.transposed(key)}});
  int scaled = write.make("mul", {{"input", scores}}, {{"other", scale}});
  if (int mask = step.operand("mask"); mask >= 0) {
    if (side.value(mask).tensor.defined() && side.value(mask).tensor.dtype() == DType::kBool)
      mask = write.constant(additive(*side.numbers(mask)));
    scaled = write.make("add", {{"input", scaled}, {"other", mask}});
  }
  if (flag_of(step, "causal"))
    scaled = write.make("add", {{"input", scaled}, {"other", write.constant(causal_mask(queries, keys))}});
  const int weights = write.make("softmax", {{"input", scaled}}, {{"dim", -1}});
  write.finish("matmul", {{"input", weights}, {"other", step.operand("value")}});
}

void expand_group_norm(Writer& write, const Side& side, const Step& step) {
  const Shape shape = side.value(step.operand("input")).shape;
  const auto groups = static_cast<int64_t>(number_or(step, "groups", 0));
  if (shape.size() < 2 || groups < 1 || shape[1] % groups != 0) return;
  const Json last{{"dim", -1}, {"keepdim", true}};
  const int x = write.reshaped(step.operand("input"), {shape[0], groups, checked_numel(shape) / shape[0] / groups});
  const int centred = write.make("sub", {{"input", x}, {"other", write.make("mean", {{"input", x}}, last)}});
  const int squares = write.make("mean", {{"input", write.make("square", {{"input", centred}})}}, last);
  const int raised = write.make("add", {{"input", squares}}, {{"other", number_or(step, "eps", 1e-5)}});
  const int unit = write.make("mul", {{"input", centred}, {"other", write.make("rsqrt", {{"input", raised}})}});
  Shape channels(shape.size(), 1);
  channels[1] = shape[1];
  int out = write.reshaped(unit, shape);
  const int weight = step.operand("weight"), bias = step.operand("bias");
  if (weight < 0) return write.finish_as_recorded("reshape", {{"input", unit}});
  const std::vector<Operand> product{{"input", out}, {"other", write.reshaped(weight, channels)}};
  if (bias < 0) return write.finish("mul", product);
  out = write.make("mul", product);
  write.finish("add", {{"input", out}, {"other", write.reshaped(bias, channels)}});
}

void expand_softmax(Writer& write, const Step& step) {
  const int x = step.operand("input");
  const Json along{{"dim", axes_of(step).empty() ? -1 : axes_of(step).front()}, {"keepdim", true}};
  const int shifted = write.make("sub", {{"input", x}, {"other", write.make("amax", {{"input", x}}, along)}});
  const int raised = write.make("exp", {{"input", shifted}});
  write.finish("div", {{"input", raised}, {"other", write.make("sum", {{"input", raised}}, along)}});
}

void expand_normalize(Writer& write, const Step& step) {
  const int x = step.operand("input");
  const Json along{{"dim", axes_of(step).empty() ? 1 : axes_of(step).front()}, {"keepdim", true}};
  const int squares = write.make("sum", {{"input", write.make("square", {{"input", x}})}}, along);
  write.finish("div", {{"input", x}, {"other", write.make("sqrt", {{"input", squares}})}});
}

void expand_length(Writer& write, const Step& step) {
  if (!is_euclidean(step)) return;
  const Json along{{"dim", axes_of(step)}, {"keepdim", flag_of(step, "keepdim")}};
  const int squares = write.make("square", {{"input", step.operand("input")}});
  write.finish("sqrt", {{"input", write.make("sum", {{"input", squares}}, along)}});
}

void expand_variance(Writer& write, const Side& side, const Step& step) {
  const int x = step.operand("input");
  const Json kept{{"dim", axes_of(step)}, {"keepdim", true}};
  const Json asked{{"dim", axes_of(step)}, {"keepdim", flag_of(step, "keepdim")}};
  const int centred = write.make("sub", {{"input", x}, {"other", write.make("mean", {{"input", x}}, kept)}});
  const int squares = write.make("square", {{"input", centred}});
  if (correction_of(step, side.tape().framework) == 0) return write.finish("mean", {{"input", squares}}, asked);
  const int total = write.make("sum", {{"input", squares}}, asked);
  if (total < 0) return;
  const auto numbers = side.numbers(total), all = side.numbers(x);
  if (!numbers || !all || numbers->count() == 0) return;
  const double count = static_cast<double>(all->count()) / static_cast<double>(numbers->count());
  write.finish("div", {{"input", total}}, {{"other", count - correction_of(step, side.tape().framework)}});
}

// A product of complex numbers as the four products of its parts.
void expand_complex_product(Writer& write, const Step& step) {
  const int a = step.operand("input"), b = step.operand("other");
  const int ar = write.part(a, 0), ai = write.part(a, 1), br = write.part(b, 0), bi = write.part(b, 1);
  write.make("sub", {{"input", write.make("mul", {{"input", ar}, {"other", br}})},
                     {"other", write.make("mul", {{"input", ai}, {"other", bi}})}});
  write.make("add", {{"input", write.make("mul", {{"input", ar}, {"other", bi}})},
                     {"other", write.make("mul", {{"input", ai}, {"other", br}})}});
}

void expand_activation(Writer& write, const Step& step) {
  const int x = step.operand("input");
  if (step.kind == "silu") return write.finish("mul", {{"input", x}, {"other", write.make("sigmoid", {{"input", x}})}});
  const auto at = step.arguments.find("approximate");
  const bool tanh_form = at != step.arguments.end() && at->is_string() && at->get<std::string>() == "tanh";
  int inner = -1;
  if (tanh_form) {
    const int cube = write.make("pow", {{"input", x}}, {{"exponent", 3}});
    const int sum =
        write.make("add", {{"input", x}, {"other", write.make("mul", {{"input", cube}}, {{"other", 0.044715}})}});
    inner = write.make("tanh",
                       {{"input", write.make("mul", {{"input", sum}}, {{"other", std::sqrt(2 / std::numbers::pi)}})}});
  } else {
    inner = write.make("erf", {{"input", write.make("div", {{"input", x}}, {{"other", std::numbers::sqrt2}})}});
  }
  const int half = write.make("mul", {{"input", x}}, {{"other", 0.5}});
  write.finish("mul", {{"input", half}, {"other", write.make("add", {{"input", inner}}, {{"other", 1}})}});
}

bool is_complex_product(const Side& side, const Step& step) {
  if (step.kind != "mul" || step.operands.size() != 2 || step.outputs.size() != 1) return false;
  return side.value(step.outputs[0]).is_complex && side.value(step.operands[0].value).is_complex &&
         side.value(step.operands[1].value).is_complex;
}

}  // namespace

void expand_complex_products(Side& side) {
  const auto count = static_cast<int>(side.tape().steps.size());
  for (int i = 0; i < count; ++i) {
    const Step step = side.step(i);
    if (!is_complex_product(side, step)) continue;
    Writer write(side, step, 1e-4);
    try {
      expand_complex_product(write, step);
    } catch (const Error&) {
      continue;  // left whole
    }
  }
}

bool expand(Side& side, int value, double tolerance) {
  if (side.value(value).expanded >= 0) return true;
  const int maker = side.value(value).step;
  if (maker < 0) return false;
  const Step step = side.step(maker);  // a copy: the tape grows
  if (step.simple || step.outputs.size() != 1) return false;
  Writer write(side, step, tolerance);
  try {
    if (step.kind == "linear" || step.kind == "addmm")
      expand_linear(write, step);
    else if (step.kind == "layer_norm" || step.kind == "rms_norm")
      expand_norm(write, step);
    else if (step.kind == "attention")
      expand_attention(write, side, step);
    else if (step.kind == "silu" || step.kind == "gelu")
      expand_activation(write, step);
    else if (step.kind == "group_norm")
      expand_group_norm(write, side, step);
    else if (step.kind == "softmax")
      expand_softmax(write, step);
    else if (step.kind == "normalize")
      expand_normalize(write, step);
    else if (step.kind == "norm")
      expand_length(write, step);
    else if (step.kind == "var")
      expand_variance(write, side, step);
    else if (step.kind == "addcmul" && !step.arguments.contains("value"))
      write.finish(
          "add",
          {{"input", step.operand("input")},
           {"other", write.make("mul", {{"input", step.operand("tensor1")}, {"other", step.operand("tensor2")}})}});
    else if (step.kind == "einsum" && step.operands.size() == 2)
      write.finish_as_recorded("matmul", {{"input", step.operands[0].value}, {"other", step.operands[1].value}});
  } catch (const Error&) {
    return false;  // shapes it was not thought to have: left whole
  }
  return side.value(value).expanded >= 0;
}

}  // namespace lockstep::zoom
