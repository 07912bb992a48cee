#include "zoom/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/error.h"
#include "zoom/arithmetic.h"
#include "zoom/einsum.h"
#include "zoom/layers.h"
#include "zoom/moves.h"

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
    {"logsigmoid", [](double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::fabs(x))); }},
    {"softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }},
    {"log1p", [](double x) { return std::log1p(x); }},
    {"expm1", [](double x) { return std::expm1(x); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},
    {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"hardswish", [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
    {"logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
};

const std::map<std::string_view, Binary> kBinary{
    {"add", [](double x, double y) { return x + y; }},
    {"sub", [](double x, double y) { return x - y; }},
    {"mul", [](double x, double y) { return x * y; }},
    {"div", [](double x, double y) { return x / y; }},
    {"pow", [](double x, double y) { return std::pow(x, y); }},
    {"maximum", [](double x, double y) { return std::max(x, y); }},
    {"minimum", [](double x, double y) { return std::min(x, y); }},
    {"eq", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
    {"ne", [](double x, double y) { return x != y ? 1.0 : 0.0; }},
    {"lt", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
    {"le", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
    {"gt", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
    {"ge", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
};

// A number among the arguments; JSON has no infinite ones, these are words.
std::optional<double> number_in(const Step& step, const char* name) {
  const auto at = step.arguments.find(name);
  if (at == step.arguments.end()) return std::nullopt;
  if (at->is_number()) return at->get<double>();
  if (*at == "inf") return INFINITY;
  if (*at == "-inf") return -INFINITY;
  return std::nullopt;
}

class Evaluation {
 public:
  Evaluation(const Side& side, const Step& step, int output, const OperandSource& source)
      : side_(side), step_(step), output_(output), source_(source) {}

  std::optional<Numbers> run() {
    const std::string& kind = step_.kind;
    if (kind == "elu" && number_or(step_, "alpha", 1) != 1) return std::nullopt;
    if (const auto at = kUnary.find(kind); at != kUnary.end()) return map(*need("input"), at->second);
    if (const auto at = kBinary.find(kind); at != kBinary.end()) return binary(at->second);
    if (kind == "gelu") return gelu();
    if (kind == "matmul") return multiply_matrices(*need("input"), *need("other"));
    if (kind == "linear") return linear();
    if (kind == "addmm")
      return combine(multiply_matrices(*need("input"), *need("other")), *need("bias"), kBinary.at("add"));
    if (kind == "softmax") return softmax(*need("input"), axes_of(step_).empty() ? -1 : axes_of(step_).front());
    if (kind == "mean") return mean(*need("input"), axes_of(step_), flag_of(step_, "keepdim"));
    if (kind == "sum") return reduce(*need("input"), axes_of(step_), flag_of(step_, "keepdim"), kBinary.at("add"));
    if (kind == "layer_norm" || kind == "rms_norm") return norm(kind == "layer_norm");
    if (kind == "attention") return attention();
    if (kind == "clamp") return clamp();
    if (kind == "einsum") return sum_over_letters();
    if (kind == "conv") return convolved();
    if (kind == "group_norm")
      return group_norm(*need("input"), static_cast<int64_t>(number_or(step_, "groups", 0)), find("weight").get(),
                        find("bias").get(), number_or(step_, "eps", 1e-5));
    if (kind == "embedding" && axes_of(step_).empty()) return rows_of_table(*need("weight"), *need("indices"));
    if (kind == "cumsum" && axes_of(step_).size() == 1) return cumulative_sum(*need("input"), axes_of(step_)[0]);
    if (kind == "var" || kind == "var_mean") return variance();
    if (kind == "amax" || kind == "amin" || kind == "max" || kind == "min") return extreme(kind.ends_with("max"));
    if (kind == "addcmul") {
      const double factor = number_or(step_, "value", 1);
      const Numbers product = combine(*need("tensor1"), *need("tensor2"), kBinary.at("mul"));
      return combine(*need("input"), product, [&](double x, double y) { return x + factor * y; });
    }
    if (kind == "masked_fill")
      return combine(*need("input"), *need("mask"), [&, fill = need("value")->values.at(0)](double x, double mask) {
        return mask != 0 ? static_cast<double>(fill) : x;
      });
    if (kind == "where") return chosen();
    if (kind == "normalize") return unit_vectors();
    if (kind == "norm" && is_euclidean(step_)) return lengths();
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
    if (const auto number = number_in(step_, parameter)) return std::make_shared<Numbers>(scalar(*number));
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
    if (query->shape.size() < 2 || flag_of(step_, "enable_gqa") || query->shape.size() != key->shape.size() ||
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
    if (flag_of(step_, "causal")) hide_later_keys(scores);
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

  // As torch orders axes; MLX has the channels last.
  Numbers convolved() const {
    const auto x = need("input"), weight = need("weight"), bias = find("bias");
    if (side_.tape().framework != "torch" || x->shape.size() < 3)
      fail(Code::kUnsupported, "zoom", "a convolution of another framework");
    return convolution(*x, *weight, bias.get(), convolution_form(step_, x->shape.size() - 2));
  }

  std::optional<Numbers> sum_over_letters() const {
    const auto at = step_.arguments.find("equation");
    if (at == step_.arguments.end() || !at->is_string()) return std::nullopt;
    std::vector<std::shared_ptr<const Numbers>> held;
    std::vector<const Numbers*> operands;
    for (const Operand& operand : step_.operands) {
      held.push_back(source_(operand.value));
      if (!held.back()) return std::nullopt;
      operands.push_back(held.back().get());
    }
    return einsum(at->get<std::string>(), operands);
  }

  // Of var_mean the first result is the variance, the second the mean.
  Numbers variance() const {
    const auto x = need("input");
    const Numbers centre = mean(*x, axes_of(step_), true);
    if (step_.kind == "var_mean" && step_.outputs.size() > 1 && output_ == step_.outputs[1])
      return mean(*x, axes_of(step_), flag_of(step_, "keepdim"));
    const Numbers squares = map(combine(*x, centre, kBinary.at("sub")), kUnary.at("square"));
    Numbers out = mean(squares, axes_of(step_), flag_of(step_, "keepdim"));
    const auto count = static_cast<double>(x->count()) / static_cast<double>(std::max<int64_t>(1, out.count()));
    const double less = correction_of(step_, side_.tape().framework);
    return map(out, [&](double v) { return v * count / (count - less); });
  }

  Numbers extreme(bool largest) const {
    return reduce(*need("input"), axes_of(step_), flag_of(step_, "keepdim"),
                  kBinary.at(largest ? "maximum" : "minimum"), largest ? -INFINITY : INFINITY);
  }

  Numbers chosen() const {
    const auto condition = need("condition"), otherwise = need("other");
    const Numbers kept = combine(*need("input"), *condition, [](double x, double c) { return c != 0 ? x : NAN; });
    const Numbers wide = broadcast(kept, broadcast_shapes(kept.shape, otherwise->shape));
    const Numbers rest = combine(*otherwise, *condition, [](double x, double c) { return c != 0 ? NAN : x; });
    return combine(wide, rest, [](double x, double y) { return std::isnan(x) ? y : x; });
  }

  Numbers unit_vectors() const {
    const auto x = need("input");
    const std::vector<int> axes = axes_of(step_).empty() ? std::vector<int>{1} : axes_of(step_);
    const double eps = number_or(step_, "eps", 1e-12);
    const Numbers squares = reduce(map(*x, kUnary.at("square")), axes, true, kBinary.at("add"));
    return combine(*x, squares, [&](double v, double square) { return v / std::max(std::sqrt(square), eps); });
  }

  Numbers lengths() const {
    const Numbers squares =
        reduce(map(*need("input"), kUnary.at("square")), axes_of(step_), flag_of(step_, "keepdim"), kBinary.at("add"));
    return map(squares, kUnary.at("sqrt"));
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

  // Kinds that only move elements.
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
    if (!step_.in_place && (step_.operands.size() == 1 || takes_by_index()))
      return moved(side_, step_, output_, *given);
    return std::nullopt;
  }

  // By indices that are what they were.
  bool takes_by_index() const {
    if (step_.kind != "getitem" && step_.kind != "index_select" && step_.kind != "gather") return false;
    return std::all_of(step_.operands.begin() + 1, step_.operands.end(), [&](const Operand& operand) {
      const auto given = source_(operand.value), recorded = side_.numbers(operand.value);
      return given && recorded && given->values == recorded->values;
    });
  }

  const Side& side_;
  const Step& step_;
  int output_;
  const OperandSource& source_;
};

// Which values depend on what was put in, and through which of their makers: a fused step, or its simple ones.
class Dependence {
 public:
  Dependence(const Side& side, const Substitutes& put) : side_(side), put_(put) {}

  bool is_given(int value) const { return put_.values.contains(value); }
  // The step to compute the value by; -1: it does not depend on what was put in.
  int maker(int value) {
    if (const auto at = makers_.find(value); at != makers_.end()) return at->second;
    makers_[value] = -1;
    for (const int maker : {side_.value(value).step, side_.value(value).expanded})
      if (maker >= 0 && takes_any(maker)) return makers_[value] = maker;
    return -1;
  }
  std::shared_ptr<const Numbers> at_use(int step, int value) const {
    const auto at = put_.uses.find({step, value});
    return at == put_.uses.end() ? nullptr : at->second;
  }

 private:
  bool takes_any(int step) {
    bool found = false;
    for (const Operand& operand : side_.step(step).operands)
      found |= is_given(operand.value) || put_.uses.contains({step, operand.value}) || maker(operand.value) >= 0;
    return found;
  }

  const Side& side_;
  const Substitutes& put_;
  std::map<int, int> makers_;
};

class Replay {
 public:
  Replay(const Side& side, const Substitutes& put) : side_(side), made_(put.values), depends_(side, put) {}

  std::shared_ptr<const Numbers> value(int index) {
    if (const auto at = made_.find(index); at != made_.end()) return at->second;
    const int maker = depends_.maker(index);
    if (maker < 0) return side_.numbers(index);
    const auto numbers = evaluate(side_, side_.step(maker), index, [this, maker](int operand) {
      auto put = depends_.at_use(maker, operand);
      return put ? put : value(operand);
    });
    auto& kept = made_[index];
    if (numbers) kept = std::make_shared<Numbers>(*numbers);
    return kept;
  }

 private:
  const Side& side_;
  Given made_;
  Dependence depends_;
};

double size_of(const Side& side, int value) {
  return value < 0 ? 0 : static_cast<double>(checked_numel(side.value(value).shape));
}

// Multiplications that a step takes, about.
double work_of(const Side& side, const Step& step) {
  double work = 0;
  for (const int output : step.outputs) work += size_of(side, output);
  const auto inner = [&](const char* parameter) {
    const int value = step.operand(parameter);
    return value < 0 || side.value(value).shape.empty() ? 1.0 : static_cast<double>(side.value(value).shape.back());
  };
  if (step.kind == "linear" || step.kind == "matmul" || step.kind == "addmm" || step.kind == "einsum")
    return work * inner("input");
  if (step.kind == "conv") {
    const int weight = step.operand("weight");
    if (weight < 0 || side.value(weight).shape.empty()) return work;
    return work * size_of(side, weight) / static_cast<double>(std::max<int64_t>(1, side.value(weight).shape[0]));
  }
  if (step.kind == "attention") {
    const int key = step.operand("key");
    if (key < 0 || side.value(key).shape.size() < 2) return work;
    return 2 * size_of(side, step.operand("query")) * static_cast<double>(*(side.value(key).shape.end() - 2));
  }
  return work;
}

}  // namespace

double replay_work(const Side& side, int value, const Substitutes& put) {
  Dependence depends(side, put);
  double work = 0;
  std::vector<int> pending{value};
  std::set<int> seen, counted;
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (depends.is_given(at) || !seen.insert(at).second) continue;
    const int maker = depends.maker(at);
    if (maker < 0) continue;
    if (counted.insert(maker).second) work += work_of(side, side.step(maker));
    for (const Operand& operand : side.step(maker).operands) pending.push_back(operand.value);
  }
  return work;
}

double replay_work(const Side& side, int value, const std::set<int>& given) {
  Substitutes put;
  for (const int one : given) put.values[one] = nullptr;
  return replay_work(side, value, put);
}

double number_or(const Step& step, const char* name, double otherwise) {
  return number_in(step, name).value_or(otherwise);
}

bool flag_of(const Step& step, const char* name) {
  const auto at = step.arguments.find(name);
  return at != step.arguments.end() && at->is_boolean() && at->get<bool>();
}

bool is_euclidean(const Step& step) {
  const auto at = step.arguments.find("p");
  return at == step.arguments.end() || at->is_null() || *at == 2 || *at == "fro";
}

double correction_of(const Step& step, const std::string& framework) {
  if (const auto at = step.arguments.find("unbiased"); at != step.arguments.end() && at->is_boolean())
    return at->get<bool>() ? 1 : 0;
  for (const char* name : {"correction", "ddof"})
    if (const auto at = step.arguments.find(name); at != step.arguments.end() && at->is_number())
      return at->get<double>();
  return framework == "torch" ? 1 : 0;
}

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

std::optional<Numbers> replay(const Side& side, int value, const Substitutes& put) {
  const auto made = Replay(side, put).value(value);
  if (!made) return std::nullopt;
  return *made;
}

std::optional<Numbers> replay(const Side& side, int value, const Given& given) {
  return replay(side, value, Substitutes{given, {}});
}

std::optional<Numbers> replay(const Side& side, int value, int changed, std::shared_ptr<const Numbers> given) {
  return replay(side, value, Given{{changed, std::move(given)}});
}

}  // namespace lockstep::zoom
