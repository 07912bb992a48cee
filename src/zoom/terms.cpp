#include "zoom/terms.h"

namespace lockstep::zoom {

bool is_sum(const Step& step) {
  return (step.kind == "add" || step.kind == "sub") && !step.arguments.contains("alpha");
}

bool is_product(const Step& step) {
  return step.kind == "mul" || step.kind == "div" || step.kind == "neg";
}

}  // namespace lockstep::zoom
