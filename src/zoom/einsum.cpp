#include "zoom/einsum.h"

#include <algorithm>
#include <map>

namespace lockstep::zoom {
namespace {

constexpr int64_t kMostProducts = 1LL << 28;

struct Letters {
  std::vector<std::string> operands;
  std::string output;
};

std::optional<Letters> letters_of(std::string equation, size_t operands) {
  std::erase(equation, ' ');
  if (equation.find('.') != std::string::npos) return std::nullopt;  // an ellipsis
  Letters out;
  const size_t arrow = equation.find("->");
  std::string left = equation.substr(0, arrow);
  for (size_t comma = left.find(','); comma != std::string::npos; comma = left.find(',')) {
    out.operands.push_back(left.substr(0, comma));
    left.erase(0, comma + 1);
  }
  out.operands.push_back(left);
  if (out.operands.size() != operands) return std::nullopt;
  if (arrow != std::string::npos) {
    out.output = equation.substr(arrow + 2);
  } else {  // the letters that stand there once, in order
    std::map<char, int> counts;
    for (const std::string& word : out.operands)
      for (const char letter : word) ++counts[letter];
    for (const auto& [letter, count] : counts)
      if (count == 1) out.output += letter;
  }
  return out;
}

}  // namespace

std::optional<Numbers> einsum(const std::string& equation, const std::vector<const Numbers*>& operands) {
  if (operands.empty() || operands.size() > 2) return std::nullopt;
  const auto letters = letters_of(equation, operands.size());
  if (!letters) return std::nullopt;
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (letters->operands[i].size() != operands[i]->shape.size()) return std::nullopt;
    for (size_t axis = 0; axis < operands[i]->shape.size(); ++axis) {
      const auto [at, is_new] = sizes.try_emplace(letters->operands[i][axis], operands[i]->shape[axis]);
      if (!is_new && at->second != operands[i]->shape[axis]) return std::nullopt;
    }
  }
  std::string order = letters->output;  // the output's axes first, then those that are summed over
  for (const char letter : order)
    if (!sizes.contains(letter)) return std::nullopt;
  for (const auto& [letter, size] : sizes)
    if (order.find(letter) == std::string::npos) order += letter;
  int64_t products = 1;
  for (const char letter : order)
    if (__builtin_mul_overflow(products, sizes[letter], &products) || products > kMostProducts) return std::nullopt;
  Numbers out;
  for (const char letter : letters->output) out.shape.push_back(sizes[letter]);
  std::vector<double> sums(static_cast<size_t>(checked_numel(out.shape)), 0);
  const auto strides_of = [&](const std::string& word, const Shape& shape) {
    const Strides packed = contiguous_strides(shape);
    Strides strides;
    for (const char letter : order) {
      int64_t stride = 0;
      for (size_t axis = 0; axis < word.size(); ++axis)
        if (word[axis] == letter) stride += packed[axis];
      strides.push_back(stride);
    }
    return strides;
  };
  std::vector<Strides> strides;
  for (size_t i = 0; i < operands.size(); ++i) strides.push_back(strides_of(letters->operands[i], operands[i]->shape));
  strides.push_back(strides_of(letters->output, out.shape));
  std::vector<int64_t> place(order.size(), 0), at(strides.size(), 0);
  for (int64_t n = 0; n < products; ++n) {
    double product = operands[0]->values[static_cast<size_t>(at[0])];
    if (operands.size() == 2) product *= operands[1]->values[static_cast<size_t>(at[1])];
    sums[static_cast<size_t>(at.back())] += product;
    for (size_t axis = order.size(); axis-- > 0;) {
      const int64_t size = sizes[order[axis]];
      for (size_t i = 0; i < strides.size(); ++i) at[i] += strides[i][axis];
      if (++place[axis] < size) break;
      for (size_t i = 0; i < strides.size(); ++i) at[i] -= strides[i][axis] * size;
      place[axis] = 0;
    }
  }
  out.values.assign(sums.begin(), sums.end());
  return out;
}

}  // namespace lockstep::zoom
