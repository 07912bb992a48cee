// Rearrangements that move slices along two axes at once: turned by half, rolled both ways, turned by a quarter.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/layout/layouts.h"
#include "measure/axis_words.h"

namespace lockstep {
namespace {

// Where along an axis of n the element comes from.
enum class AxisMove { kStays, kReversed, kRolledOn, kRolledBack, kHalves, kPairs, kInterleaved, kBlocks };
constexpr AxisMove kAxisMoves[] = {AxisMove::kStays,       AxisMove::kReversed, AxisMove::kRolledOn,
                                   AxisMove::kRolledBack,  AxisMove::kHalves,   AxisMove::kPairs,
                                   AxisMove::kInterleaved, AxisMove::kBlocks};

bool can_move(AxisMove move, int64_t n) {
  if (move == AxisMove::kStays) return true;
  if (n < 2) return false;
  return move == AxisMove::kReversed || move == AxisMove::kRolledOn || (n > 2 && move == AxisMove::kRolledBack) ||
         (n > 2 && n % 2 == 0);
}

int64_t from_of(AxisMove move, int64_t i, int64_t n) {
  switch (move) {
    case AxisMove::kReversed:
      return n - 1 - i;
    case AxisMove::kRolledOn:
      return (i + 1) % n;
    case AxisMove::kRolledBack:
      return (i + n - 1) % n;
    case AxisMove::kHalves:
      return (i + n / 2) % n;
    case AxisMove::kPairs:
      return i ^ 1;
    case AxisMove::kInterleaved:
      return i % 2 * (n / 2) + i / 2;
    case AxisMove::kBlocks:
      return i < n / 2 ? 2 * i : 2 * (i - n / 2) + 1;
    case AxisMove::kStays:
      break;
  }
  return i;
}

std::string move_words(AxisMove move, const std::string& word) {
  switch (move) {
    case AxisMove::kReversed:
      return plural(word) + " in reverse order";
    case AxisMove::kRolledOn:
      return plural(word) + " rolled by 1";
    case AxisMove::kRolledBack:
      return plural(word) + " rolled by -1";
    case AxisMove::kHalves:
      return "the halves of the " + plural(word) + " exchanged";
    case AxisMove::kPairs:
      return "neighbouring " + plural(word) + " exchanged";
    case AxisMove::kInterleaved:
    case AxisMove::kBlocks:
      return plural(word) + " taken in turn from two halves, or the reverse";
    case AxisMove::kStays:
      break;
  }
  return "";
}

Cause move_id(AxisMove a, AxisMove b) {
  for (const AxisMove move : {a, b}) {
    if (move == AxisMove::kReversed) return "layout.reversed";
    if (move == AxisMove::kRolledOn || move == AxisMove::kRolledBack) return "layout.rolled";
    if (move == AxisMove::kHalves) return "layout.parts_exchanged";
    if (move == AxisMove::kInterleaved || move == AxisMove::kBlocks) return "layout.interleaved";
  }
  return "layout.permuted";
}

// The reference's axes a and b exchanged (they are of one length), then moved.
struct TwoAxes {
  size_t a = 0, b = 0;
  AxisMove move_a = AxisMove::kStays, move_b = AxisMove::kStays;
  bool exchanged = false;
};

class Moved {
 public:
  Moved(const Shape& shape, const TwoAxes& axes) : axes_(axes) {
    for (int64_t i = static_cast<int64_t>(shape.size()) - 1, stride = 1; i >= 0; --i) {
      const size_t axis = static_cast<size_t>(i);
      if (axis == axes.a) stride_a_ = stride, n_a_ = shape[axis];
      if (axis == axes.b) stride_b_ = stride, n_b_ = shape[axis];
      stride *= shape[axis];
    }
  }
  int64_t operator()(int64_t i) const {
    const int64_t at_a = i / stride_a_ % n_a_, at_b = i / stride_b_ % n_b_;
    int64_t from_a = from_of(axes_.move_a, at_a, n_a_), from_b = from_of(axes_.move_b, at_b, n_b_);
    if (axes_.exchanged) std::swap(from_a, from_b);
    return i + (from_a - at_a) * stride_a_ + (from_b - at_b) * stride_b_;
  }

 private:
  TwoAxes axes_;
  int64_t stride_a_ = 1, stride_b_ = 1, n_a_ = 1, n_b_ = 1;
};

// Elements by which a wrong rule is seen at once: far from zero, spread by chance.
std::vector<int64_t> telling_elements(const Values& x) {
  std::vector<int64_t> out;
  const double scale = 0.2 * rms(x.v);
  uint64_t state = 98765;
  for (int tries = 0; tries < 4096 && out.size() < 160; ++tries) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const int64_t i = static_cast<int64_t>((state >> 24) % static_cast<uint64_t>(x.size()));
    if (std::fabs(x.v[static_cast<size_t>(i)]) > scale) out.push_back(i);
  }
  return out;
}

}  // namespace

std::optional<Rearrangement> find_two_axis_moves(std::string_view name, const Values& candidate,
                                                 const Values& reference, double tolerance) {
  const Shape& shape = reference.shape;
  if (candidate.shape != shape || shape.size() < 2 || shape.size() > 6 || reference.size() < 16) return std::nullopt;
  const double limit = std::max(8 * tolerance, 1e-6) * rms(reference.v);
  const std::vector<int64_t> sample = telling_elements(candidate);
  if (sample.size() < 16) return std::nullopt;
  const auto agrees = [&](const Moved& from) {
    size_t wrong = 0;
    return std::all_of(sample.begin(), sample.end(), [&](int64_t i) {
      const double d = candidate.v[static_cast<size_t>(i)] - reference.v[static_cast<size_t>(from(i))];
      return std::fabs(d) <= limit || ++wrong * 20 <= sample.size();
    });
  };
  for (size_t a = 0; a < shape.size(); ++a)
    for (size_t b = a + 1; b < shape.size(); ++b)
      for (const bool exchanged : {false, true})
        for (const AxisMove move_a : kAxisMoves)
          for (const AxisMove move_b : kAxisMoves) {
            const bool none = move_a == AxisMove::kStays && move_b == AxisMove::kStays;
            if (shape[a] < 2 || shape[b] < 2 || (exchanged && (shape[a] != shape[b] || none))) continue;
            if (!exchanged && (move_a == AxisMove::kStays || move_b == AxisMove::kStays)) continue;
            if (!can_move(move_a, shape[a]) || !can_move(move_b, shape[b])) continue;
            const Moved from(shape, {a, b, move_a, move_b, exchanged});
            if (!agrees(from)) continue;
            const std::vector<std::string> words = axis_words(name, shape);
            std::string said = exchanged ? fmt::format("{} and {} exchanged", plural(words[a]), plural(words[b])) : "";
            for (const auto& [move, axis] : {std::pair{move_a, a}, {move_b, b}})
              if (move != AxisMove::kStays) said += (said.empty() ? "" : ", ") + move_words(move, words[axis]);
            Rearrangement found{move_id(move_a, move_b), std::move(said), 0, 2, make_values(shape)};
            for (int64_t i = 0; i < reference.size(); ++i)
              found.restored.v[static_cast<size_t>(i)] = reference.v[static_cast<size_t>(from(i))];
            if (relative_error(found.restored.v, reference.v) == 0) continue;
            found.residual = relative_error(candidate.v, found.restored.v);
            if (found.residual <= tolerance) return found;
          }
  return std::nullopt;
}

}  // namespace lockstep
