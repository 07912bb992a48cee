#include "zoom/terms.h"

#include <set>

namespace lockstep::zoom {
namespace {

constexpr double kRoundedAgain = 0.01;  // relative: a copy may be in a narrower format

bool holds_same_elements(const Side& side, int before, int after) {
  if (without_ones(side.value(before).shape) != without_ones(side.value(after).shape)) return false;
  const auto a = side.numbers(before), b = side.numbers(after);
  return a && b && relative_distance(a->values.data(), b->values.data(), a->count()) <= kRoundedAgain;
}

}  // namespace

bool is_sum(const Step& step) {
  return (step.kind == "add" || step.kind == "sub") && !step.arguments.contains("alpha");
}

bool is_product(const Step& step) {
  return step.kind == "mul" || step.kind == "div" || step.kind == "neg";
}

int same_elements_before(const Side& side, int value) {
  static const std::set<std::string_view> kKinds{"reshape", "unsqueeze", "squeeze", "getitem", "copy", "to", "expand"};
  for (int maker = side.value(value).step; maker >= 0; maker = side.value(value).step) {
    const Step& step = side.step(maker);
    if (!kKinds.contains(step.kind) || step.operands.size() != 1 || step.in_place) break;
    const int before = step.operands.front().value;
    if (!holds_same_elements(side, before, value)) break;
    value = before;
  }
  return value;
}

bool are_alike(std::string_view a, std::string_view b) {
  static const std::set<std::string_view> kProducts{"linear", "addmm", "matmul", "einsum"};
  return a == b || (kProducts.contains(a) && kProducts.contains(b));
}

}  // namespace lockstep::zoom
