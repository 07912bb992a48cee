#include "zoom/expand.h"

#include <cmath>
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

double eps_of(const Step& step, double otherwise) {
  const auto at = step.arguments.find("eps");
  return at != step.arguments.end() && at->is_number() ? at->get<double>() : otherwise;
}

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
  const int raised =
      write.make("add", {{"input", squares}}, {{"other", eps_of(step, centre ? 1e-5 : 1.1920928955078125e-07)}});
  std::vector<Operand> operands{{"input", x}, {"other", write.make("rsqrt", {{"input", raised}})}};
  std::string kind = "mul";
  for (const char* parameter : {"weight", "bias"})
    if (const int value = step.operand(parameter); value >= 0) {
      operands = {{"input", write.make(kind, operands)}, {"other", value}};
      kind = parameter == std::string_view("weight") ? "mul" : "add";
    }
  write.finish(kind, operands);
}

void expand_attention(Writer& write, const Side& side, const Step& step) {
  if (step.operand("query") < 0 || side.value(step.operand("query")).shape.empty()) return;
  const auto at = step.arguments.find("scale");
  const double scale = at != step.arguments.end() && at->is_number()
                           ? at->get<double>()
                           : 1 / std::sqrt(static_cast<double>(side.value(step.operand("query")).shape.back()));
  if (step.arguments.value("causal", false) || step.arguments.value("enable_gqa", false)) return;
  const int scores =
      write.make("matmul", {{"input", step.operand("query")}, {"other", write.transposed(step.operand("key"))}});
  int scaled = write.make("mul", {{"input", scores}}, {{"other", scale}});
  if (const int mask = step.operand("mask"); mask >= 0) {
    if (side.value(mask).tensor.defined() && side.value(mask).tensor.dtype() == DType::kBool) return;
    scaled = write.make("add", {{"input", scaled}, {"other", mask}});
  }
  const int weights = write.make("softmax", {{"input", scaled}}, {{"dim", -1}});
  write.finish("matmul", {{"input", weights}, {"other", step.operand("value")}});
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

}  // namespace

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
  } catch (const Error&) {
    return false;  // shapes it was not thought to have: left whole
  }
  return side.value(value).expanded >= 0;
}

}  // namespace lockstep::zoom
