#include "backend/check_weight.h"

#include <string>

#include "backend/quantize.h"
#include "base/error.h"

namespace lockstep {

void check_weight(const LinearWeight& weight, const WeightTypes& types) {
  if (weight.weight.rank() != 2)
    fail(Code::kBadInput, "linear", "a weight has two axes",
         {.expected = "[N, K]", .got = to_string(weight.weight.shape())});
  const DType dtype = weight.weight.dtype();
  if (!weight.bits) {
    if (!types.takes(dtype))
      fail(Code::kUnsupported, "linear", "weight dtype",
           {.expected = types.names, .got = std::string(dtype_name(dtype))});
    return;
  }
  check_quantisation("linear", weight.bits, weight.group_size);
  if (dtype != DType::kU32)
    fail(Code::kBadInput, "linear", "a quantised weight is packed in 32-bit words",
         {.expected = "u32", .got = std::string(dtype_name(dtype))});
  if (weight.inputs() % weight.group_size != 0 || weight.inputs() * weight.bits != weight.weight.dim(1) * 32)
    fail(Code::kBadInput, "linear", "the input width is not a multiple of the group size",
         {.expected = "a multiple of " + std::to_string(weight.group_size), .got = std::to_string(weight.inputs())});
  const Shape groups{weight.outputs(), weight.inputs() / weight.group_size};
  for (const Tensor* table : {&weight.scales, &weight.biases})
    if (!table->defined() || table->shape() != groups || !types.takes(table->dtype()))
      fail(Code::kBadInput, "linear", "scales and biases of a quantised weight",
           {.expected = std::string(types.names) + " " + to_string(groups),
            .got = table->defined() ? std::string(dtype_name(table->dtype())) + " " + to_string(table->shape())
                                    : std::string("none")});
}

}  // namespace lockstep
