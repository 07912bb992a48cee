// Rearrangements that move whole slices along one axis.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "diagnose/layout/layouts.h"
#include "measure/axis_words.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kNone = -1;
constexpr int64_t kFewestInTurn = 8;  // blocks: fewer are parts that were exchanged

float pseudo_random(uint64_t i, uint64_t seed) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ull ^ seed * 0xD1B54A32D192ED03ull;
  x ^= x >> 31, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 27, x *= 0x94D049BB133111EBull, x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 11) * 0x1p-53 * 2 - 1);
}

struct AxisView {
  int64_t outer = 1, n = 1, inner = 1;
  AxisView(const Shape& shape, size_t axis) {
    for (size_t i = 0; i < shape.size(); ++i) (i < axis ? outer : i == axis ? n : inner) *= shape[i];
  }
  size_t at(int64_t o, int64_t j, int64_t i) const { return static_cast<size_t>((o * n + j) * inner + i); }
};

// Two numbers per slice that are equal only for equal slices.
std::vector<std::array<double, 2>> signatures(const Values& x, const AxisView& view) {
  std::vector<std::array<double, 2>> out(static_cast<size_t>(view.n));
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t j = 0; j < view.n; ++j)
      for (int64_t i = 0; i < view.inner; ++i) {
        const double value = x.v[view.at(o, j, i)];
        const uint64_t place = static_cast<uint64_t>(o * view.inner + i);
        out[static_cast<size_t>(j)][0] += value * pseudo_random(place, 1);
        out[static_cast<size_t>(j)][1] += value * pseudo_random(place, 2);
      }
  return out;
}

double slice_error(const Values& c, const Values& r, const AxisView& view, int64_t jc, int64_t jr) {
  Residual unexplained;
  bool differs = false;
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t i = 0; i < view.inner; ++i) {
      const double y = r.v[view.at(o, jr, i)], d = c.v[view.at(o, jc, i)] - y;
      unexplained.add_squares(d * d, y * y), differs = differs || d != 0;
    }
  return unexplained.relative_or(differs ? INFINITY : 0);
}

// Slices that are alike (padding) may come from any of their kind: they are taken to have moved with the others.
void move_alike_together(std::vector<int64_t>& map, const std::vector<std::array<double, 2>>& signatures) {
  std::map<std::array<double, 2>, int> alike;
  for (const auto& signature : signatures) ++alike[signature];
  const auto of = [&](int64_t slice) -> const std::array<double, 2>& { return signatures[static_cast<size_t>(slice)]; };
  const int64_t n = static_cast<int64_t>(map.size());
  std::map<int64_t, int> shifts;
  for (int64_t j = 0; j < n; ++j)
    if (const int64_t from = map[static_cast<size_t>(j)]; from != kNone && from != j && alike[of(from)] == 1)
      ++shifts[(from - j + n) % n];
  if (shifts.empty()) return;
  const int64_t shift = std::max_element(shifts.begin(), shifts.end(), [](const auto& a, const auto& b) {
                          return a.second < b.second;
                        })->first;
  for (int64_t j = 0; j < n; ++j) {
    int64_t& from = map[static_cast<size_t>(j)];
    if (from != kNone && alike[of(from)] > 1 && of((j + shift) % n) == of(from)) from = (j + shift) % n;
  }
}

std::vector<int64_t> match_slices(const Values& c, const Values& r, const AxisView& view, double tolerance) {
  const auto sc = signatures(c, view), sr = signatures(r, view);
  std::vector<int64_t> order(static_cast<size_t>(view.n));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return sr[static_cast<size_t>(a)][0] < sr[static_cast<size_t>(b)][0]; });
  const double spread =
      rms(r.v) * std::sqrt(static_cast<double>(view.outer * view.inner)) * std::max(6 * tolerance, 1e-6);
  std::vector<int64_t> map(static_cast<size_t>(view.n), kNone);
  for (int64_t j = 0; j < view.n; ++j) {
    const auto& want = sc[static_cast<size_t>(j)];
    if (slice_error(c, r, view, j, j) <= tolerance) {  // in place: of equal slices the nearest counts
      map[static_cast<size_t>(j)] = j;
      continue;
    }
    const auto begin = std::lower_bound(order.begin(), order.end(), want[0] - spread,
                                        [&](int64_t a, double value) { return sr[static_cast<size_t>(a)][0] < value; });
    double best = tolerance;
    for (auto it = begin; it != order.end() && sr[static_cast<size_t>(*it)][0] <= want[0] + spread; ++it) {
      if (std::fabs(sr[static_cast<size_t>(*it)][1] - want[1]) > spread) continue;
      const double error = slice_error(c, r, view, j, *it);
      if (error <= best) best = error, map[static_cast<size_t>(j)] = *it;
    }
  }
  move_alike_together(map, sr);
  return map;
}

struct Described {
  Cause id;
  std::string words;
  int complexity = 1;
};

std::string ordinal_parts(size_t parts) {
  static const char* const kNames[] = {"",       "",       "halves",   "thirds", "quarters",
                                       "fifths", "sixths", "sevenths", "eighths"};
  return parts < std::size(kNames) ? kNames[parts] : fmt::format("{} parts", parts);
}

std::optional<Described> describe_blocks(const std::vector<int64_t>& map, const std::string& word) {
  const int64_t n = static_cast<int64_t>(map.size());
  for (int64_t parts = 2; parts <= n / 2 && parts <= 64; ++parts) {
    if (n % parts) continue;
    const int64_t size = n / parts;
    bool blocks = true;
    std::string order;
    std::set<int64_t> sources;
    for (int64_t p = 0; p < parts && blocks; ++p) {
      const int64_t from = map[static_cast<size_t>(p * size)];
      blocks = from % size == 0;
      for (int64_t i = 1; i < size && blocks; ++i) blocks = map[static_cast<size_t>(p * size + i)] == from + i;
      order += (order.empty() ? "" : ", ") + std::to_string(from / size);
      sources.insert(from);
    }
    // Many blocks taken in turn: two factors of the axis changed places, with a third inside that stayed.
    for (int64_t g = 2; g <= parts / 2 && blocks && parts >= kFewestInTurn; ++g) {
      bool in_turn = parts % g == 0;
      for (int64_t p = 0; p < parts && in_turn; ++p)
        in_turn = map[static_cast<size_t>(p * size)] == (p % g * (parts / g) + p / g) * size;
      if (in_turn)
        return Described{"layout.interleaved",
                         fmt::format("blocks of {} {} taken in steps of {} instead of one after the other", size,
                                     plural(word), parts / g),
                         1};
    }
    if (blocks)  // what comes twice was not exchanged with anything
      return Described{
          static_cast<int64_t>(sources.size()) < parts ? Cause("layout.repeated") : Cause("layout.parts_exchanged"),
          fmt::format("{} of the {}s in the order {}", ordinal_parts(static_cast<size_t>(parts)), word, order), 1};
  }
  return std::nullopt;
}

// The same move within each head, group or part of an axis.
std::optional<Described> describe_within_parts(const std::vector<int64_t>& map, const std::string& word) {
  const int64_t n = static_cast<int64_t>(map.size());
  for (int64_t parts = 2; parts <= n / 2; ++parts) {
    if (n % parts) continue;
    const int64_t size = n / parts;
    const auto all = [&](auto&& from) {
      for (int64_t j = 0; j < n; ++j)
        if (map[static_cast<size_t>(j)] != j / size * size + from(j % size)) return false;
      return true;
    };
    const std::string where = fmt::format(" within each of {} parts", parts);
    if (all([&](int64_t i) { return size - 1 - i; }))
      return Described{"layout.reversed", plural(word) + " in reverse order" + where, 1};
    if (size % 2 == 0 && all([&](int64_t i) { return (i + size / 2) % size; }))
      return Described{"layout.parts_exchanged", "halves of the " + plural(word) + " exchanged" + where, 1};
    for (int64_t step = 2; step <= size / 2; ++step)
      if (size % step == 0 && all([&](int64_t i) { return i % step * (size / step) + i / step; })) {
        if (size == 4)  // what the channels of a packed picture are: patches of two by two
          return Described{"layout.packing", fmt::format("rows and columns of each patch exchanged{}", where), 1};
        return Described{
            "layout.interleaved",
            fmt::format("{} taken in steps of {} instead of in blocks{}", plural(word), size / step, where), 1};
      }
  }
  return std::nullopt;
}

// Chunks in another order come round too. They are taken for chunks where they are halves, or a few parts of channels,
// which is what projections are split into; tokens, rows and columns roll.
bool is_order_of_chunks(int64_t n, int64_t by, const std::string& word) {
  constexpr int64_t kMostChunks = 6;
  const int64_t parts = n / std::gcd(n, by);
  return parts == 2 || (word == "channel" && parts <= kMostChunks && n / parts > 1);
}

std::optional<Described> describe_map(const std::vector<int64_t>& map, const std::string& word) {
  const int64_t n = static_cast<int64_t>(map.size());
  const auto all = [&](auto&& rule) {
    for (int64_t j = 0; j < n; ++j)
      if (!rule(j, map[static_cast<size_t>(j)])) return false;
    return true;
  };
  const int64_t matched = n - std::count(map.begin(), map.end(), kNone);
  if (matched == n && all([&](int64_t j, int64_t m) { return m == n - 1 - j; }))
    return Described{
        "layout.reversed",
        n == 2 ? fmt::format("the two {} exchanged", plural(word)) : fmt::format("{} in reverse order", plural(word)),
        1};
  const std::set<int64_t> distinct(map.begin(), map.end());
  if (matched == n && distinct.size() == 1)
    return Described{"layout.repeated", fmt::format("every {} repeats {} {} of the reference", word, word, map[0]), 1};
  const bool rolled = matched == n && map[0] > 0 && all([&](int64_t j, int64_t m) { return m == (j + map[0]) % n; });
  if (matched == n && !(rolled && !is_order_of_chunks(n, map[0], word)))
    if (auto blocks = describe_blocks(map, word)) return blocks;
  if (rolled)
    return Described{"layout.rolled",
                     fmt::format("{} rolled by {}", plural(word), map[0] <= n / 2 ? map[0] : map[0] - n), 1};
  for (int64_t g = 2; g <= n / 2 && matched == n; ++g)
    if (n % g == 0 && all([&](int64_t j, int64_t m) { return m == j % g * (n / g) + j / g; }))
      return Described{"layout.interleaved",
                       fmt::format("{} taken in steps of {} instead of in blocks", plural(word), n / g), 1};
  if (matched == n)
    if (auto parts = describe_within_parts(map, word)) return parts;
  // A shift leaves slices at one end without a partner, or with what lies at the border; beyond that, nothing is where
  // it was.
  std::map<int64_t, int64_t> shifts;
  for (int64_t j = 0; j < n; ++j)
    if (map[static_cast<size_t>(j)] != kNone) ++shifts[map[static_cast<size_t>(j)] - j];
  const int64_t in_place = shifts[0];
  shifts.erase(0);
  const auto most =
      std::max_element(shifts.begin(), shifts.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  if (most != shifts.end()) {
    const auto [shift, agree] = *most;
    const int64_t j = std::max<int64_t>(0, -shift);
    if (in_place <= std::max<int64_t>(1, agree / 4) &&
        agree >= std::max<int64_t>({3, n / 8, (n - std::abs(shift)) * 9 / 10}))
      return Described{"layout.shifted",
                       fmt::format("{} shifted: {} {} is the reference's {}", plural(word), word, j, j + shift), 1};
  }
  for (int64_t times = 2; times <= n / 2 && matched == n; ++times)
    if (n % times == 0 && all([&](int64_t j, int64_t m) { return m == j / times; }))
      return Described{"layout.repeated", fmt::format("each {} comes {} times in a row", word, times), 1};
  if (matched == n && static_cast<int64_t>(distinct.size()) < n)
    return Described{
        "layout.repeated",
        fmt::format("{} of {} {} are repeats of others", n - static_cast<int64_t>(distinct.size()), n, plural(word)),
        2};
  if (matched == n) {
    std::string first;
    for (int64_t j = 0; j < std::min<int64_t>(n, 8); ++j)
      first += (j ? ", " : "") + std::to_string(map[static_cast<size_t>(j)]);
    return Described{"layout.permuted",
                     fmt::format("{} in another order: {}{}", plural(word), first, n > 8 ? ", ..." : ""), 3};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rearrangement> find_slice_moves(std::string_view name, const Values& candidate, const Values& reference,
                                              double tolerance) {
  if (candidate.shape != reference.shape || reference.size() < 4) return std::nullopt;
  const std::vector<std::string> words = axis_words(name, reference.shape);
  std::optional<Rearrangement> best;
  for (size_t axis = 0; axis < reference.rank(); ++axis) {
    if (reference.shape[axis] < 2) continue;
    const AxisView view(reference.shape, axis);
    if (view.outer * view.inner < 2) continue;  // single numbers match too easily
    const std::vector<int64_t> map = match_slices(candidate, reference, view, tolerance);
    const auto described = describe_map(map, words[axis]);
    if (!described) continue;
    Rearrangement found{described->id, described->words, 0, described->complexity, make_values(reference.shape)};
    Residual unexplained;
    for (int64_t o = 0; o < view.outer; ++o)
      for (int64_t j = 0; j < view.n; ++j)
        for (int64_t i = 0; i < view.inner; ++i) {
          const int64_t from = map[static_cast<size_t>(j)];
          const double y = from == kNone ? candidate.v[view.at(o, j, i)] : reference.v[view.at(o, from, i)];
          found.restored.v[view.at(o, j, i)] = static_cast<float>(y);
          const double d = candidate.v[view.at(o, j, i)] - y;
          unexplained.add_squares(d * d, y * y);
        }
    found.residual = unexplained.relative_or(0);
    if (found.residual <= tolerance && (!best || found.complexity < best->complexity)) best = std::move(found);
  }
  return best;
}

// A vector has no slices to recognise, but its halves, thirds, ... are long enough.
std::optional<Rearrangement> find_part_moves(std::string_view name, const Values& candidate, const Values& reference,
                                             double tolerance) {
  const int64_t n = reference.last();
  if (candidate.shape != reference.shape || reference.size() != n) return std::nullopt;
  for (const int64_t parts : {2, 3, 4, 6, 8, 12}) {
    if (n % parts || n / parts < 4) continue;
    const Shape shape{parts, n / parts};
    const AxisView view(shape, 0);
    const Values c = reshaped(candidate, shape), r = reshaped(reference, shape);
    const std::vector<int64_t> map = match_slices(c, r, view, tolerance);
    bool moved = false, all = true;
    std::string order;
    std::set<int64_t> sources;
    Rearrangement found{"layout.parts_exchanged", "", 0, 1, reference};
    for (int64_t p = 0; p < parts && all; ++p) {
      const int64_t from = map[static_cast<size_t>(p)];
      all = from != kNone;
      moved = moved || from != p;
      sources.insert(from);
      order += (order.empty() ? "" : ", ") + std::to_string(from);
      if (all) std::copy_n(r.row(from).begin(), n / parts, found.restored.v.begin() + p * (n / parts));
    }
    if (!all || !moved) continue;
    if (static_cast<int64_t>(sources.size()) < parts) found.id = "layout.repeated";
    const std::string word = axis_words(name, reference.shape).back();
    found.words =
        fmt::format("{} of the {} in the order {}", ordinal_parts(static_cast<size_t>(parts)), plural(word), order);
    found.residual = relative_error(candidate.v, found.restored.v);
    if (found.residual <= tolerance) return found;
  }
  return std::nullopt;
}

std::vector<Rearrangement> find_rearrangements(std::string_view name, const Values& candidate, const Values& reference,
                                               double tolerance) {
  std::vector<Rearrangement> out;
  if (auto moves = find_slice_moves(name, candidate, reference, tolerance)) out.push_back(std::move(*moves));
  if (auto parts = find_part_moves(name, candidate, reference, tolerance)) out.push_back(std::move(*parts));
  if (!out.empty() && out[0].complexity == 1) return out;
  if (auto order = find_axis_order(candidate, reference, tolerance)) out.push_back(std::move(*order));
  if (out.empty())
    if (auto both = find_two_axis_moves(name, candidate, reference, tolerance)) out.push_back(std::move(*both));
  std::stable_sort(out.begin(), out.end(),
                   [](const Rearrangement& a, const Rearrangement& b) { return a.complexity < b.complexity; });
  return out;
}

}  // namespace lockstep
