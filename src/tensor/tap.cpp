#include "tensor/tap.h"

namespace lockstep {

std::string to_string(const TensorKey& key) {
  std::string text = key.name;
  if (key.step >= 0) text += " @step " + std::to_string(key.step);
  if (key.hit > 0) text += " #" + std::to_string(key.hit);
  for (const auto& [tag, value] : key.tags) text += " " + tag + "=" + value;
  return text;
}

}  // namespace lockstep
