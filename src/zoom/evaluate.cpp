#include "zoom/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "zoom/arithmetic.h"

namespace lockstep::zoom {
namespace {

using Unary = double (*)(double);
using Binary = double (*)(double, double);

const std::map<std::string_view, Unary> kUnary{
    {"neg", [](double x) { return -x; }},
    {"abs", [](double x) { return std::fabs(x); }},
    {"exp", [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"square", [](double x) { return x * x; }},
    {"reciprocal", [](double x) { return 1 / x; }},
    {"relu", [](double x) { return std::max(x, 0.0); }},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
};

const std::map<std::string_view, Binary> kBinary{
    {"add", [](double x, double y) { return x + y; }},
    {"sub", [](double x, double y) { return x - y; }},
    {"mul", [](double x, double y) { return x * y; }},
    {"div", [](double x, double y) { return x / y; }},
    {"pow", [](double x, double y) { return std::pow(x, y); }},
    {"maximum", [](double x, double y) { return std::max(x, y); }},
    {"minimum", [](double x, double y) { return std::min(x, y); }},
};

double number_or(const Step& step, const char* name, double otherwise) {
  const auto at = step.arguments.find(name);
  if (at == step.arguments.end() || !at->is_number()) return otherwise;
  return at->get<double>();
}

bool flag(const Step& step, const char* name) {
  const auto at = step.arguments.find(name);
  return at != step.arguments.end() && at->is_boolean() && at->get<bool>();
}

// A rearrangement is known by the memory that both sides of it share: each element of the output lies where an element
// of the input does.
std::optional<Numbers> rearranged_by_memory(const Side& side, const Step& step, int output, const Numbers& given) {
  const Tensor &from = side.value(step.operands.front().value).tensor, &to = side.value(output).tensor;
  if (!from.defined() || !to.defined() || from.dtype() != to.dtype()) return std::nullopt;
  const auto size = static_cast<std::ptrdiff_t>(dtype_bytes(from.dtype()));
  std::unordered_map<std::ptrdiff_t, int64_t> place;  // address relative to the input's first element → its flat index
  const auto visit = [](const Tensor& tensor, const std::function<void(int64_t)>& each) {
    std::vector<int64_t> at(tensor.rank(), 0);
    int64_t offset = 0;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      each(offset);
      for (size_t axis = tensor.rank(); axis-- > 0;) {
        offset += tensor.strides()[axis];
        if (++at[axis] < tensor.shape()[axis]) break;
        offset -= tensor.strides()[axis] * tensor.shape()[axis];
        at[axis] = 0;
      }
    }
  };
  int64_t index = 0;
  place.reserve(static_cast<size_t>(from.numel()));
  visit(from, [&](int64_t offset) { place.emplace(offset, index++); });
  const std::ptrdiff_t shift = to.strided_data() - from.strided_data();
  if (shift % size != 0) return std::nullopt;
  Numbers out{to.shape(), {}};
  out.values.reserve(static_cast<size_t>(to.numel()));
  bool whole = true;
  visit(to, [&](int64_t offset) {
    const auto found = place.find(offset + shift / size);
    whole &= found != place.end();
    if (whole) out.values.push_back(given.values[static_cast<size_t>(found->second)]);
  });
  if (!whole) return std::nullopt;
  return out;
}

class Evaluation {
 public:
  Evaluation(const Side& side, const Step& step, int output, const OperandSource& source)
      : side_(side), step_(step), output_(output), source_(source) {}

  std::optional<Numbers> run() {
    const std::string& kind = step_.kind;
    if (const auto at = kUnary.find(kind); at != kUnary.end()) return map(*need("input"), at->second);
    if (const auto at = kBinary.find(kind); at != kBinary.end()) return binary(at->second);
    if (kind == "gelu") return gelu();
    if (kind == "matmul") return multiply_matrices(*need("input"), *need("other"));
    if (kind == "linear") return linear();
    if (kind == "addmm")
      return combine(multiply_matrices(*need("input"), *need("other")), *need("bias"), kBinary.at("add"));
    if (kind == "softmax") return softmax(*need("input"), axes_of(step_).empty() ? -1 : axes_of(step_).front());
    if (kind == "mean") return mean(*need("input"), axes_of(step_), flag(step_, "keepdim"));
    if (kind == "sum") return reduce(*need("input"), axes_of(step_), flag(step_, "keepdim"), kBinary.at("add"));
    if (kind == "layer_norm" || kind == "rms_norm") return norm(kind == "layer_norm");
    if (kind == "attention") return attention();
    if (kind == "clamp") return clamp();
    if (kind == "concatenate" || kind == "stack") return joined(kind == "stack");
    return rearranged();
  }

 private:
  std::shared_ptr<const Numbers> find(const char* parameter) const {
    const int value = step_.operand(parameter);
    if (value < 0) return nullptr;
    auto numbers = source_(value);
    if (!numbers) fail(Code::kNotFound, "zoom", "a value that was not kept");
    return numbers;
  }

  std::shared_ptr<const Numbers> need(const char* parameter) const {
    if (auto numbers = find(parameter)) return numbers;
    if (const auto at = step_.arguments.find(parameter); at != step_.arguments.end() && at->is_number())
      return std::make_shared<Numbers>(scalar(at->get<double>()));
    fail(Code::kUnsupported, "zoom", "an operand is missing", {.expected = parameter});
  }

  Numbers binary(Binary function) const {
    const bool is_power = step_.kind == "pow";
    const double alpha = number_or(step_, "alpha", 1);
    const auto other = step_.operand("other") >= 0 || step_.arguments.contains("other") || !is_power ? need("other")
                                                                                                     : need("exponent");
    return combine(*need("input"), *other, [&](double x, double y) { return function(x, alpha * y); });
  }

  Numbers gelu() const {
    const auto at = step_.arguments.find("approximate");
    const bool tanh_form = at != step_.arguments.end() && at->is_string() && at->get<std::string>() == "tanh";
    return map(*need("input"), [&](double x) {
      if (!tanh_form) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    });
  }

  Numbers linear() const {
    Numbers product = multiply_matrices(*need("input"), permute(*need("weight"), {1, 0}));
    if (const auto bias = find("bias")) product = combine(product, *bias, kBinary.at("add"));
    return product;
  }

  Numbers norm(bool centre) const {
    const auto x = need("input");
    const double eps = number_or(step_, "eps", centre ? 1e-5 : 1.1920928955078125e-07);
    std::vector<int> axes{-1};
    if (const auto shape = step_.arguments.find("normalized_shape");
        shape != step_.arguments.end() && shape->is_array())
      for (size_t i = 1; i < shape->size() && i < 4; ++i) axes.push_back(-1 - static_cast<int>(i));
    Numbers out = centre ? combine(*x, mean(*x, axes, true), kBinary.at("sub")) : *x;
    const Numbers squares = mean(map(out, kUnary.at("square")), axes, true);
    out = combine(out, squares, [&](double value, double square) { return value / std::sqrt(square + eps); });
    if (const auto weight = find("weight")) out = combine(out, *weight, kBinary.at("mul"));
    if (const auto bias = find("bias")) out = combine(out, *bias, kBinary.at("add"));
    return out;
  }

  Numbers attention() const {
    const auto query = need("query"), key = need("key"), value = need("value");
    if (query->shape.size() < 2 || flag(step_, "enable_gqa") || query->shape.size() != key->shape.size() ||
        (query->shape.size() > 2 && query->shape[query->shape.size() - 3] != key->shape[key->shape.size() - 3]))
      fail(Code::kUnsupported, "zoom", "grouped attention");
    std::vector<int> axes(key->shape.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    const double scale = number_or(step_, "scale", 1 / std::sqrt(static_cast<double>(query->shape.back())));
    Numbers scores = map(multiply_matrices(*query, permute(*key, axes)), [&](double x) { return x * scale; });
    if (const auto mask = find("mask")) {
      const bool logical = side_.value(step_.operand("mask")).tensor.dtype() == DType::kBool;
      scores = combine(scores, *mask, [&](double x, double m) {
        return !logical ? x + m : m != 0 ? x : -std::numeric_limits<double>::infinity();
      });
    }
    if (flag(step_, "causal")) hide_later_keys(scores);
    return multiply_matrices(softmax(scores, -1), *value);
  }

  static void hide_later_keys(Numbers& scores) {
    const int64_t keys = scores.shape.back(), queries = scores.shape[scores.shape.size() - 2];
    for (int64_t i = 0; i < scores.count(); ++i)
      if (i % keys > i / keys % queries) scores.values[static_cast<size_t>(i)] = -INFINITY;
  }

  Numbers clamp() const {
    const double low = number_or(step_, "min", -INFINITY), high = number_or(step_, "max", INFINITY);
    return map(*need("input"), [&](double x) { return std::min(std::max(x, low), high); });
  }

  Numbers joined(bool stacked) const {
    std::vector<std::shared_ptr<const Numbers>> held;
    std::vector<Numbers> widened;
    const int axis = axes_of(step_).empty() ? 0 : axes_of(step_).front();
    for (const Operand& operand : step_.operands) {
      held.push_back(source_(operand.value));
      if (!held.back()) fail(Code::kNotFound, "zoom", "a value that was not kept");
    }
    if (held.empty()) fail(Code::kUnsupported, "zoom", "nothing to join");
    std::vector<const Numbers*> parts;
    if (stacked)
      for (const auto& one : held) {
        Numbers wide = *one;
        const auto place = axis < 0 ? axis + static_cast<int>(wide.shape.size()) + 1 : axis;
        if (place < 0 || place > static_cast<int>(wide.shape.size()))
          fail(Code::kBadInput, "zoom", "an axis beyond the array's");
        wide.shape.insert(wide.shape.begin() + place, 1);
        widened.push_back(std::move(wide));
      }
    for (size_t i = 0; i < held.size(); ++i) parts.push_back(stacked ? &widened[i] : held[i].get());
    return concatenate(parts, axis);
  }

  // Kinds that only move elements. Views are known by their memory; copies by what the kind says.
  std::optional<Numbers> rearranged() const {
    if (step_.operands.empty()) return std::nullopt;
    const auto given = source_(step_.operands.front().value);
    if (!given) return std::nullopt;
    const Shape& shape = side_.value(output_).shape;
    const std::string& kind = step_.kind;
    const bool keeps_order =
        kind == "reshape" || kind == "copy" || kind == "to" || kind == "unsqueeze" || kind == "squeeze";
    if (keeps_order && checked_numel(shape) == given->count()) return Numbers{shape, given->values};
    if (kind == "expand" && checked_numel(shape) >= given->count()) return broadcast(*given, shape);
    if (step_.operands.size() == 1 && !step_.in_place) return rearranged_by_memory(side_, step_, output_, *given);
    return std::nullopt;
  }

  const Side& side_;
  const Step& step_;
  int output_;
  const OperandSource& source_;
};

class Replay {
 public:
  Replay(const Side& side, int changed, std::shared_ptr<const Numbers> given) : side_(side) {
    made_[changed] = std::move(given);
  }

  std::shared_ptr<const Numbers> value(int index) {
    if (const auto at = made_.find(index); at != made_.end()) return at->second;
    if (!depends(index)) return side_.numbers(index);
    const int maker = side_.value(index).step;
    const auto numbers = evaluate(side_, side_.step(maker), index, [this](int operand) { return value(operand); });
    auto& kept = made_[index];
    if (numbers) kept = std::make_shared<Numbers>(*numbers);
    return kept;
  }

 private:
  bool depends(int index) {
    if (const auto at = depends_.find(index); at != depends_.end()) return at->second;
    if (made_.contains(index)) return true;
    bool found = false;
    if (const int maker = side_.value(index).step; maker >= 0)
      for (const Operand& operand : side_.step(maker).operands) found |= depends(operand.value);
    return depends_[index] = found;
  }

  const Side& side_;
  std::map<int, std::shared_ptr<const Numbers>> made_;
  std::map<int, bool> depends_;
};

}  // namespace

std::vector<int> axes_of(const Step& step) {
  const auto at = step.arguments.find("dim");
  std::vector<int> out;
  if (at == step.arguments.end()) return out;
  const auto take = [&](const Json& one) {
    if (one.is_number_integer() && std::abs(one.get<int64_t>()) < 64) out.push_back(one.get<int>());
  };
  if (at->is_array())
    for (const Json& one : *at) take(one);
  else
    take(*at);
  return out;
}

std::optional<Numbers> evaluate(const Side& side, const Step& step, int output, const OperandSource& operand) {
  try {
    return Evaluation(side, step, output, operand).run();
  } catch (const Error&) {
    return std::nullopt;  // of a kind, or with shapes, that are not computed here
  }
}

std::optional<Numbers> replay(const Side& side, int value, int changed, std::shared_ptr<const Numbers> given) {
  const auto made = Replay(side, changed, std::move(given)).value(value);
  if (!made) return std::nullopt;
  return *made;
}

}  // namespace lockstep::zoom
