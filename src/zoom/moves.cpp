#include "zoom/moves.h"

#include <bit>
#include <functional>
#include <set>
#include <unordered_map>

namespace lockstep::zoom {
namespace {

void visit_offsets(const Tensor& tensor, const std::function<void(int64_t)>& each) {
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
}

// A view is known by the memory that both sides of it share: each element of the output lies where one of the input
// does.
std::optional<Numbers> by_memory(const Tensor& from, const Tensor& to, const Numbers& given) {
  if (!from.defined() || !to.defined() || from.dtype() != to.dtype()) return std::nullopt;
  const auto size = static_cast<std::ptrdiff_t>(dtype_bytes(from.dtype()));
  std::unordered_map<std::ptrdiff_t, int64_t> place;  // address relative to the input's first element → its flat index
  int64_t index = 0;
  place.reserve(static_cast<size_t>(from.numel()));
  visit_offsets(from, [&](int64_t offset) { place.emplace(offset, index++); });
  const std::ptrdiff_t shift = to.strided_data() - from.strided_data();
  if (shift % size != 0) return std::nullopt;
  Numbers out{to.shape(), {}};
  out.values.reserve(static_cast<size_t>(to.numel()));
  bool whole = true;
  visit_offsets(to, [&](int64_t offset) {
    const auto found = place.find(offset + shift / size);
    whole &= found != place.end();
    if (whole) out.values.push_back(given.values[static_cast<size_t>(found->second)]);
  });
  if (!whole) return std::nullopt;
  return out;
}

// A copy is known by its values. Equal ones are taken in the order in which they stand; a zero that is not there is
// padding.
std::optional<Numbers> by_value(const Numbers& from, const Numbers& to, const Numbers& given) {
  std::unordered_map<uint32_t, std::vector<int64_t>> places;
  places.reserve(from.values.size());
  for (int64_t i = 0; i < from.count(); ++i)
    places[std::bit_cast<uint32_t>(from.values[static_cast<size_t>(i)])].push_back(i);
  std::unordered_map<uint32_t, size_t> used;
  Numbers out{to.shape, {}};
  out.values.reserve(to.values.size());
  for (const float value : to.values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto found = places.find(bits);
    if (found == places.end()) {
      if (value != 0) return std::nullopt;
      out.values.push_back(0);
      continue;
    }
    const std::vector<int64_t>& at = found->second;
    out.values.push_back(given.values[static_cast<size_t>(at[used[bits]++ % at.size()])]);
  }
  return out;
}

}  // namespace

bool only_moves(const Step& step) {
  static const std::set<std::string_view> kKinds{"reshape", "transpose", "permute", "unsqueeze",
                                                 "squeeze", "copy",      "to",      "expand"};
  return kKinds.contains(step.kind);
}

bool moves_some_or_joins(const Step& step) {
  static const std::set<std::string_view> kKinds{
      "getitem", "split", "narrow", "select", "concatenate",      "stack", "flip", "roll",
      "real",    "imag",  "repeat", "tile",   "repeat_interleave"};
  return kKinds.contains(step.kind) || only_moves(step);
}

int before_repetition(const Side& side, int value, int64_t count) {
  static const std::set<std::string_view> kKinds{"reshape", "unsqueeze", "expand", "getitem",
                                                 "copy",    "repeat",    "tile",   "repeat_interleave"};
  for (int at = value;;) {
    if (checked_numel(side.value(at).shape) == count) return at;
    const int maker = side.value(at).step;
    if (maker < 0 || !kKinds.contains(side.step(maker).kind) || side.step(maker).operands.size() != 1) return value;
    at = side.step(maker).operands.front().value;
  }
}

int moved_from(const Side& side, int value, std::vector<int>& steps) {
  std::vector<int> pending{value};
  std::set<int> sources, seen;
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (!seen.insert(at).second) continue;
    const int maker = side.value(at).step;
    if (maker < 0 || side.step(maker).in_place || !moves_some_or_joins(side.step(maker))) {
      sources.insert(at);
      if (sources.size() > 1) return -1;
      continue;
    }
    steps.push_back(maker);
    for (const Operand& operand : side.step(maker).operands) pending.push_back(operand.value);
  }
  const int source = sources.empty() ? -1 : *sources.begin();
  if (source < 0 || checked_numel(side.value(source).shape) != checked_numel(side.value(value).shape)) return -1;
  return source;
}

std::optional<Numbers> moved(const Side& side, const Step& step, int output, const Numbers& given) {
  const int first = step.operands.front().value;
  if (auto out = by_memory(side.value(first).tensor, side.value(output).tensor, given)) return out;
  const auto from = side.numbers(first), to = side.numbers(output);
  if (!from || !to || from->count() != given.count()) return std::nullopt;
  return by_value(*from, *to, given);
}

}  // namespace lockstep::zoom
