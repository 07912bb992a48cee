// Rearrangements that split axes into factors and permute the factors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/interrupt.h"
#include "diagnose/layout/layouts.h"

namespace lockstep {
namespace {

constexpr size_t kMaxFactors = 6;
// The search ends, whatever the tensors are: orders that are looked at, and elements that are put in order in full.
constexpr int64_t kMostOrdersTried = 400000;
constexpr int64_t kMostElementsMoved = int64_t{1} << 26;
// Where much may be left over, nearly every tensor of the same size passes for a moment: only plain orders are tried.
constexpr double kLoose = 1e-2;
constexpr int64_t kMostLooseOrdersTried = 40000;
constexpr int64_t kMostLooseElementsMoved = int64_t{1} << 23;
constexpr double kMostApart = 0.4;  // of the root mean square: beyond, elements agree by chance

using Factors = std::vector<int64_t>;

struct Split {
  Factors factors;
  std::vector<size_t> parts;  // how many factors each axis was split into
};

std::vector<Factors> splits_of(int64_t n) {
  std::vector<Factors> out{{n}};
  std::vector<int64_t> divisors;
  for (int64_t f = 2; f * 2 <= n && divisors.size() < 64; ++f)
    if (n % f == 0) divisors.push_back(f);
  for (const int64_t f : divisors) out.push_back({f, n / f});
  if (n % 4 == 0 && n > 4) {  // patches of 2 x 2 beside a third factor
    out.push_back({n / 4, 2, 2});
    out.push_back({2, 2, n / 4});
  }
  return out;
}

std::vector<Split> all_splits(const Shape& shape) {
  std::vector<Split> out{{}};
  for (const int64_t n : shape) {
    std::vector<Split> longer;
    for (const Split& split : out)
      for (const Factors& factors : splits_of(n)) {
        Split next = split;
        next.factors.insert(next.factors.end(), factors.begin(), factors.end());
        next.parts.push_back(factors.size());
        if (next.factors.size() <= kMaxFactors) longer.push_back(std::move(next));
      }
    out = std::move(longer);
    if (out.size() > 4000) break;
  }
  std::erase_if(out, [&](const Split& s) { return s.parts.size() != shape.size(); });
  std::stable_sort(out.begin(), out.end(),
                   [](const Split& a, const Split& b) { return a.factors.size() < b.factors.size(); });
  return out;
}

// Source index of the candidate's element `i` when the reference's factors are laid down in the order `order`.
struct Mapping {
  Mapping(const Factors& factors, const std::vector<size_t>& order) {
    std::vector<int64_t> strides(factors.size());
    int64_t stride = 1;
    for (size_t i = factors.size(); i-- > 0;) strides[i] = stride, stride *= factors[i];
    for (const size_t i : order) sizes.push_back(factors[i]), steps.push_back(strides[i]);
  }
  int64_t operator()(int64_t i) const {
    int64_t from = 0;
    for (size_t k = sizes.size(); k-- > 0;) {
      from += i % sizes[k] * steps[k];
      i /= sizes[k];
    }
    return from;
  }
  std::vector<int64_t> sizes, steps;
};

bool sample_agrees(const Mapping& map, const Values& candidate, const Values& reference,
                   const std::vector<int64_t>& sample, double limit) {
  int wrong = 0;
  for (const int64_t i : sample)
    if (!(std::fabs(candidate.v[static_cast<size_t>(i)] - reference.v[static_cast<size_t>(map(i))]) <= limit) &&
        ++wrong * 20 > static_cast<int>(sample.size()))
      return false;
  return true;
}

// No order brings two tensors closer together than sorting both does.
bool holds_the_same_numbers(const Values& candidate, const Values& reference, double tolerance) {
  std::vector<float> a(candidate.v), b(reference.v);
  const auto is_number = [](float x) { return !std::isnan(x); };
  if (!std::all_of(a.begin(), a.end(), is_number) || !std::all_of(b.begin(), b.end(), is_number)) return false;
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  return relative_error(a, b) <= tolerance;
}

std::string order_words(const std::vector<size_t>& order) {
  std::string out;
  for (const size_t i : order) out += (out.empty() ? "" : ", ") + std::to_string(i);
  return out;
}

Rearrangement describe(const Split& split, const std::vector<size_t>& order, const Values& candidate,
                       const Values& reference) {
  Rearrangement found;
  const bool whole_axes = split.factors.size() == split.parts.size();
  size_t split_axes = 0, split_axis = 0;
  for (size_t axis = 0; axis < split.parts.size(); ++axis)
    if (split.parts[axis] > 1) ++split_axes, split_axis = axis;
  Shape permuted;
  for (const size_t i : order) permuted.push_back(split.factors[i]);
  const std::string factors = to_string(Shape(split.factors));
  found.complexity = static_cast<int>(split.factors.size() - split.parts.size()) + 1;
  if (whole_axes && permuted == candidate.shape) {
    found.id = "layout.axes";
    found.words = fmt::format("axes of {} taken in the order {}", to_string(reference.shape), order_words(order));
  } else if (whole_axes) {
    found.id = "layout.strided";
    found.words = fmt::format("memory of the view {} with axes {} read as if it were contiguous {}",
                              to_string(permuted), order_words(order), to_string(candidate.shape));
  } else if (split_axes == 1 && split.parts[split_axis] == 2 && split.factors.size() == split.parts.size() + 1 &&
             candidate.shape == reference.shape) {
    const int64_t a = split.factors[split_axis], b = split.factors[split_axis + 1];
    // Only the two factors of one axis changed places: an axis of a*b read as b*a.
    std::vector<size_t> swapped(split.factors.size());
    std::iota(swapped.begin(), swapped.end(), size_t{0});
    std::swap(swapped[split_axis], swapped[split_axis + 1]);
    found.id = order == swapped ? Cause("layout.interleaved") : Cause("layout.heads");
    found.words =
        order == swapped
            ? fmt::format("axis {} laid down as {} x {} instead of {} x {} (interleaved against blocks)", split_axis, b,
                          a, a, b)
            : fmt::format("{} seen as {} and taken in the order {}, then read as {}", to_string(reference.shape),
                          factors, order_words(order), to_string(candidate.shape));
  } else {
    found.id = "layout.packing";
    found.words = fmt::format("{} seen as {} and taken in the order {}, then read as {}", to_string(reference.shape),
                              factors, order_words(order), to_string(candidate.shape));
  }
  return found;
}

}  // namespace

std::optional<Rearrangement> find_axis_order(const Values& candidate_in, const Values& reference_in, double tolerance) {
  if (candidate_in.size() != reference_in.size() || candidate_in.size() < 4) return std::nullopt;
  const Values candidate = without_unit_axes(candidate_in), reference = without_unit_axes(reference_in);
  if (reference.rank() > 5) return std::nullopt;
  const double limit = std::clamp(8 * tolerance, 1e-6, kMostApart) * rms(reference.v);
  // Elements that are not near zero: zeros agree with everything.
  std::vector<int64_t> sample;
  const double scale = 0.2 * rms(candidate.v);
  uint64_t state = 12345;
  for (int tries = 0; tries < 4096 && sample.size() < 160; ++tries) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const int64_t i = static_cast<int64_t>((state >> 24) % static_cast<uint64_t>(candidate.size()));
    if (std::fabs(candidate.v[static_cast<size_t>(i)]) > scale) sample.push_back(i);
  }
  if (sample.size() < 16 || !holds_the_same_numbers(candidate, reference, tolerance)) return std::nullopt;
  const bool loose = tolerance > kLoose;
  const int64_t most_tried = loose ? kMostLooseOrdersTried : kMostOrdersTried,
                most_moved = loose ? kMostLooseElementsMoved : kMostElementsMoved;
  int64_t tried = 0, moved = 0;
  for (const Split& split : all_splits(reference.shape)) {
    check_interrupt("compare");
    std::vector<size_t> order(split.factors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    while (std::next_permutation(order.begin(), order.end())) {
      if (++tried > most_tried) return std::nullopt;
      const Mapping map(split.factors, order);
      if (!sample_agrees(map, candidate, reference, sample, limit)) continue;
      if ((moved += candidate.size()) > most_moved) return std::nullopt;
      Rearrangement found = describe(split, order, candidate, reference);
      found.restored = make_values(candidate_in.shape);
      for (int64_t i = 0; i < candidate.size(); ++i)
        found.restored.v[static_cast<size_t>(i)] = reference.v[static_cast<size_t>(map(i))];
      if (relative_error(found.restored.v, reference.v) == 0) continue;  // the identity in disguise
      found.residual = relative_error(candidate.v, found.restored.v);
      if (found.residual <= tolerance) return found;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
