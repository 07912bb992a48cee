#include "compare/alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "diagnose/layout/layouts.h"
#include "diagnose/layout/packing.h"
#include "measure/axis_words.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr int64_t kMostElements = 64 << 20;  // beyond this only shapes are looked at
constexpr double kLoosest = 0.05;            // of a packed tensor that is recognised although it differs
constexpr double kAlike = 0.6;               // of one whose axes were moved
constexpr int64_t kSampleElements = 4096;

// The candidate's element that answers each of the reference's, for one order of the candidate's axes.
struct AxisMapping {
  AxisMapping(const Shape& candidate, const std::vector<int>& axes, const Shape& reference) : sizes(reference) {
    std::vector<int64_t> strides(candidate.size());
    int64_t stride = 1;
    for (size_t i = candidate.size(); i-- > 0;) strides[i] = stride, stride *= candidate[i];
    for (const int axis : axes) steps.push_back(strides[static_cast<size_t>(axis)]);
  }
  int64_t operator()(int64_t i) const {
    int64_t from = 0;
    for (size_t k = sizes.size(); k-- > 0;) from += i % sizes[k] * steps[k], i /= sizes[k];
    return from;
  }
  Shape sizes;
  std::vector<int64_t> steps;
};

double sampled_error(const AxisMapping& from, const Values& candidate, const Values& reference) {
  double apart = 0, norm = 0;
  uint64_t state = 12345;  // drawn, not evenly spread: a stride of powers of two would see one column alone
  for (int64_t k = 0; k < std::min(reference.size(), kSampleElements); ++k) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const int64_t i = reference.size() <= kSampleElements
                          ? k
                          : static_cast<int64_t>((state >> 24) % static_cast<uint64_t>(reference.size()));
    const double r = reference.v[static_cast<size_t>(i)], c = candidate.v[static_cast<size_t>(from(i))];
    if (!std::isfinite(r) || !std::isfinite(c)) continue;
    apart += (c - r) * (c - r), norm += r * r;
  }
  return norm > 0 ? std::sqrt(apart / norm) : apart > 0 ? INFINITY : 0;
}

// Channels last against channels first: one axis was carried over the others.
bool moves_channels(const std::vector<int>& axes) {
  for (size_t start = 0; start + 1 < axes.size(); ++start) {  // axes of the batch stay
    std::vector<int> forward(axes.size());
    std::iota(forward.begin(), forward.end(), 0);
    std::vector<int> backward = forward;
    const auto from = static_cast<std::ptrdiff_t>(start);
    std::rotate(forward.begin() + from, forward.end() - 1, forward.end());
    std::rotate(backward.begin() + from, backward.begin() + from + 1, backward.end());
    if (axes == forward || axes == backward) return true;
  }
  return false;
}

struct AxisOrder {
  std::vector<int> axes;
  std::string how;
};

// Values that differ still have an order of axes: the one in which they are by far most alike, or the only one that
// their sizes allow between channels first and channels last. Both without axes of 1; `batched`: they had one. Two axes
// alone may be a matrix that is transposed by mistake.
std::optional<AxisOrder> likeliest_order(const Values& candidate, const Values& reference, bool batched) {
  std::vector<int> axes(candidate.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (candidate.rank() != reference.rank() || axes.size() < 2 || axes.size() > 5) return std::nullopt;
  std::vector<int> best;
  double least = INFINITY, next = INFINITY;
  size_t fitting = 0;
  do {
    bool fits = true;
    for (size_t i = 0; i < axes.size() && fits; ++i)
      fits = candidate.shape[static_cast<size_t>(axes[i])] == reference.shape[i];
    if (!fits) continue;
    ++fitting;
    const double error = sampled_error(AxisMapping(candidate.shape, axes, reference.shape), candidate, reference);
    if (best.empty() || error < least)
      next = least, least = error, best = axes;
    else
      next = std::min(next, error);
  } while (std::next_permutation(axes.begin(), axes.end()));
  if (fitting && least < kAlike && least < 0.5 * next) return AxisOrder{best, "recognised by likeness"};
  if (fitting == 1 && (axes.size() > 2 || batched) && moves_channels(best))
    return AxisOrder{best, "by its sizes alone"};
  return std::nullopt;
}

// Tokens of heads beside heads of tokens: [.., heads, tokens, size] is [.., tokens, heads * size] where that makes them
// alike.
std::optional<Values> heads_joined(const Values& candidate, const Values& reference) {
  const size_t rank = candidate.rank();
  if (rank < 3 || rank != reference.rank() + 1) return std::nullopt;
  const int64_t heads = candidate.shape[rank - 3], tokens = candidate.shape[rank - 2], size = candidate.shape[rank - 1];
  Shape joined(candidate.shape.begin(), candidate.shape.end() - 3);
  joined.insert(joined.end(), {tokens, heads * size});
  if (joined != reference.shape) return std::nullopt;
  std::vector<int> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[rank - 3], axes[rank - 2]);
  Values out = reshaped(permuted(candidate, axes), joined);
  if (!(relative_error(out.v, reference.v) < kAlike)) return std::nullopt;
  return out;
}

// Latents as tokens beside latents as a picture: values that differ are packed in the usual order where they are much
// more alike so than in any other.
std::optional<Values> likeliest_packing(const Values& candidate, const Values& reference) {
  const bool packs = candidate.rank() > reference.rank();
  const Values &picture = without_unit_axes(packs ? candidate : reference),
               &tokens = without_unit_axes(packs ? reference : candidate);
  if (picture.rank() != 3 || tokens.rank() != 2 || tokens.last() != 4 * picture.shape[0]) return std::nullopt;
  const int64_t height = picture.shape[1], width = picture.shape[2];
  if (height % 2 || width % 2 || picture.size() != tokens.size()) return std::nullopt;
  const PatchGrid grid{height / 2, width / 2, picture.shape[0]};
  const double usual = relative_error(to_packed(picture, grid, kPicture).v, tokens.v);
  if (!(usual < kAlike)) return std::nullopt;
  if (any_patch_order(kPicture, [&](const PatchOrder& order) {
        return relative_error(to_packed(picture, grid, order).v, tokens.v) < 1.5 * usual;
      }))
    return std::nullopt;
  return packs ? to_packed(candidate, grid, kPicture) : from_packed(candidate, grid, kPicture);
}

std::string axes_text(const std::vector<int>& axes) {
  std::string out;
  for (const int axis : axes) out += (out.empty() ? "" : ", ") + std::to_string(axis);
  return out;
}

double norm_of(const Values& x) {
  return std::sqrt(squared_norm(x.v));
}

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
    // find_axis_order arranges its second argument like its first: here the candidate like the reference. What is
    // not equal to the last digits may still be it, with an error that is then measured: the tightest fit wins.
    const double least = std::fabs(norm_of(c) - norm_of(r)) / std::max(1e-300, norm_of(r));
    for (const double limit : {tolerance, 30 * tolerance, kLoosest}) {
      if (limit < tolerance || !(least <= limit)) continue;
      if (auto found = find_axis_order(r, c, limit)) {
        Tensor arranged = Tensor::from<float>(reference.shape(), found->restored.v);
        return {true, arranged, "other layout, recognised by content: " + shapes + "; " + found->words};
      }
      if (relative_error(c.v, r.v) <= limit)
        return {true, candidate.contiguous().reshape(reference.shape()), "same values in another shape: " + shapes};
    }
    const Values own = without_unit_axes(c), expected = without_unit_axes(r);
    const bool batched = c.rank() > own.rank() && r.rank() > expected.rank();
    if (const auto order = likeliest_order(own, expected, batched)) {
      const Values moved = permuted(own, order->axes);
      return {true, Tensor::from<float>(reference.shape(), moved.v),
              fmt::format("other layout, {}: {}; axes of {} taken in the order {}", order->how, shapes,
                          to_string(own.shape), axes_text(order->axes))};
    }
    if (const auto packed = likeliest_packing(c, r))
      return {true, Tensor::from<float>(reference.shape(), packed->v),
              "other layout, recognised by likeness: " + shapes + "; patches of 2 x 2 are tokens in one of them"};
    if (const auto joined = heads_joined(c, r))
      return {true, Tensor::from<float>(reference.shape(), joined->v),
              "other layout, recognised by likeness: " + shapes + "; heads before tokens in yours"};
  }
  const std::string part = part_words(name, c, r, tolerance);
  return {false, {}, "shapes differ: " + shapes + (part.empty() ? "" : "; " + part)};
}

}  // namespace lockstep
