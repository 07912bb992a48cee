#include "compare/alignment.h"

#include <fmt/format.h>

#include <optional>

#include "compare/axis_words.h"
#include "compare/layouts.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr int64_t kMostElements = 64 << 20;  // beyond this only shapes are looked at

// The side with more tokens (or channels ...) may hold the other as a contiguous part.
std::string part_words(std::string_view name, const Values& candidate, const Values& reference, double tolerance) {
  if (candidate.rank() != reference.rank()) return "";
  size_t axis = 0, differing = 0;
  for (size_t i = 0; i < reference.rank(); ++i)
    if (candidate.shape[i] != reference.shape[i]) axis = i, ++differing;
  if (differing != 1) return "";
  const bool candidate_longer = candidate.shape[axis] > reference.shape[axis];
  const Values& large = candidate_longer ? candidate : reference;
  const Values& small = candidate_longer ? reference : candidate;
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= large.shape[i];
  for (size_t i = axis + 1; i < large.rank(); ++i) inner *= large.shape[i];
  const int64_t n = large.shape[axis], m = small.shape[axis];
  if (m == 0 || small.empty()) return "";
  for (int64_t offset = 0; offset + m <= n; ++offset) {
    double worst = 0;
    for (int64_t o = 0; o < outer && worst <= tolerance; ++o) {
      const std::span<const float> a(large.v.data() + (o * n + offset) * inner, static_cast<size_t>(m * inner));
      const std::span<const float> b(small.v.data() + o * m * inner, static_cast<size_t>(m * inner));
      worst = std::max(worst, relative_error(a, b));
    }
    if (worst > tolerance) continue;
    const std::string word = plural(axis_words(name, reference.shape)[axis]);
    return fmt::format("{} holds {} {} where {} holds {}; the values agree from {} on: another part was captured",
                       candidate_longer ? "yours" : "the reference", n, word,
                       candidate_longer ? "the reference" : "yours", m, offset);
  }
  return "";
}

}  // namespace

Alignment align(std::string_view name, const Tensor& candidate, const Tensor& reference, double tolerance) {
  if (candidate.shape() == reference.shape()) return {true, candidate, ""};
  const std::string shapes =
      fmt::format("{} against the reference's {}", to_string(candidate.shape()), to_string(reference.shape()));
  if (same_size_shape(candidate.shape(), reference.shape()))
    return {true, candidate.contiguous().reshape(reference.shape()), "axes of 1 differ: " + shapes};
  if (reference.numel() > kMostElements || candidate.numel() > kMostElements)
    return {false, {}, "shapes differ: " + shapes};
  const Values c = values_from(candidate), r = values_from(reference);
  if (candidate.numel() == reference.numel()) {
    // find_axis_order arranges its second argument like its first: here the candidate like the reference.
    if (auto found = find_axis_order(r, c, tolerance)) {
      Tensor arranged = Tensor::from<float>(reference.shape(), found->restored.v);
      return {true, arranged, "other layout, recognised by content: " + shapes + "; " + found->words};
    }
    const double plain = relative_error(c.v, r.v);
    if (plain <= tolerance)
      return {true, candidate.contiguous().reshape(reference.shape()), "same values in another shape: " + shapes};
  }
  const std::string part = part_words(name, c, r, tolerance);
  return {false, {}, "shapes differ: " + shapes + (part.empty() ? "" : "; " + part)};
}

}  // namespace lockstep
