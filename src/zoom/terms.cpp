#include "zoom/terms.h"

#include <set>

namespace lockstep::zoom {

bool is_sum(const Step& step) {
  return (step.kind == "add" || step.kind == "sub") && !step.arguments.contains("alpha");
}

bool is_product(const Step& step) {
  return step.kind == "mul" || step.kind == "div" || step.kind == "neg";
}

bool are_alike(std::string_view a, std::string_view b) {
  static const std::set<std::string_view> kProducts{"linear", "addmm", "matmul", "einsum"};
  return a == b || (kProducts.contains(a) && kProducts.contains(b));
}

}  // namespace lockstep::zoom
