// The layer's weight in few bits: as a quantiser leaves it, or its numbers put together otherwise than they were taken
// apart (zero points or scales left out, taken twice or from another group, two numbers of a byte exchanged).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "compare/families/linear_probe.h"
#include "compare/families/linear_report.h"
#include "compare/families/weight_forms.h"
#include "compare/families/weight_memory.h"
#include "tensor/float_formats.h"

namespace lockstep {
namespace {

constexpr double kHopelessReading = 0.4;  // on a few rows: no right reading is so far off

// Which numbers a quantiser may write. kAffine and kSymmetric are those of weight_relation.h; kFullRange also uses the
// lowest number; kWholeZero has a zero point that is one of the numbers; kExtreme makes the largest value the lowest
// number; the others are float formats and tables of four bits.
enum class Levels { kAffine, kSymmetric, kFullRange, kWholeZero, kExtreme, kE4M3, kE5M2, kNf4, kE2M1 };

constexpr double kNf4Levels[] = {-1,        -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0,
                                 0.0795803, 0.1609302,  0.2461123,  0.3379152,  0.4407098,  0.5626170,  0.7229568,  1};
constexpr double kE2M1Levels[] = {-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6};

double nearest_of(std::span<const double> levels, double x) {
  return *std::min_element(levels.begin(), levels.end(),
                           [&](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
}

// The lowest and the highest value of each group of a weight, groups counted through all rows as they lie in a file.
using Ends = std::vector<std::pair<float, float>>;

Ends ends_of(const Values& weight, int64_t group) {
  Ends out;
  out.reserve(static_cast<size_t>(weight.size() / group));
  for (auto at = weight.v.begin(); weight.v.end() - at >= group; at += group) {
    const auto [low, high] = std::minmax_element(at, at + group);
    out.emplace_back(*low, *high);
  }
  return out;
}

struct Quantiser {
  int bits = 4;
  int64_t group = 32;
  Levels levels = Levels::kAffine;
  std::optional<std::pair<float, float>> range = {};  // one scale for all: its lowest and highest value

  bool has_zero_points() const {
    return levels == Levels::kAffine || levels == Levels::kWholeZero || levels == Levels::kExtreme;
  }
  bool is_usual() const { return (levels == Levels::kAffine || levels == Levels::kSymmetric) && !range; }

  // {step, low} of values between these two.
  std::pair<double, double> scale_of(double low, double high) const {
    const double all = (1 << bits) - 1, half = 1 << (bits - 1), largest = std::max(std::fabs(low), std::fabs(high));
    switch (levels) {
      case Levels::kAffine:
        return {(high - low) / all, low};
      case Levels::kSymmetric:
        return {largest / (half - 1), 0};
      case Levels::kFullRange:
        return {largest / half, 0};
      case Levels::kWholeZero: {
        const double step = (std::max(high, 0.0) - std::min(low, 0.0)) / all;
        return {step, step > 0 ? -std::nearbyint(-std::min(low, 0.0) / step) * step : 0};
      }
      case Levels::kExtreme: {
        const double step = (std::fabs(low) > std::fabs(high) ? low : high) / -half;
        return {step, -half * step};
      }
      case Levels::kE4M3:
        return {largest / 448, 0};
      case Levels::kE5M2:
        return {largest / 57344, 0};
      case Levels::kNf4:
        return {largest, 0};
      case Levels::kE2M1:
        break;
    }
    return {largest / 6, 0};
  }

  double number_of(double x) const {  // of a value in steps above its low
    const double all = (1 << bits) - 1, half = 1 << (bits - 1);
    switch (levels) {
      case Levels::kFullRange:
        return std::clamp(std::nearbyint(x), -half, half - 1);
      case Levels::kWholeZero:
      case Levels::kExtreme:
        return std::clamp(levels == Levels::kExtreme ? std::floor(x + 0.5) : std::nearbyint(x), 0.0, all);
      case Levels::kE4M3:
        return float_from(float8_e4m3_from(static_cast<float>(x)));
      case Levels::kE5M2:
        return float_from(float8_e5m2_from(static_cast<float>(x)));
      case Levels::kNf4:
        return nearest_of(kNf4Levels, x);
      case Levels::kE2M1:
        return nearest_of(kE2M1Levels, x);
      default:
        return std::nearbyint(x);
    }
  }

  std::string words() const {
    static const char* const kNames[] = {", affine",
                                         "",
                                         ", full range",
                                         ", whole zero points",
                                         ", the largest made the lowest",
                                         "float8 e4m3",
                                         "float8 e5m2",
                                         "4 bits (nf4)",
                                         "4 bits (e2m1)"};
    const bool floats = levels >= Levels::kE4M3;
    const std::string name = kNames[static_cast<size_t>(levels)];
    return fmt::format("W in {}, {}{}", floats ? name : fmt::format("{} bits", bits),
                       range ? "one scale for all" : fmt::format("groups of {}", group), floats ? "" : name);
  }
};

// The weight taken apart: value = step * number + low. Numbers are made row by row when asked for.
class Grid {
 public:
  Grid(const Values& weight, const Quantiser& quantiser, const Ends& ends)
      : weight_(weight), quantiser_(quantiser), ends_(ends), per_row_(weight.last() / quantiser.group) {}

  double number(int64_t row, int64_t i) {
    if (row != latest_row_) take_apart(row);
    return numbers_[static_cast<size_t>(i)];
  }
  double step(int64_t group) { return scale(group).first; }
  double low(int64_t group) { return scale(group).second; }
  int64_t group_of(int64_t row, int64_t i) const { return row * per_row_ + i / quantiser_.group; }
  int64_t half_group_of(int64_t row, int64_t i) const { return 2 * row * per_row_ + 2 * i / quantiser_.group; }
  // Rows taken for columns.
  int64_t turned_group_of(int64_t row, int64_t i) const { return i * per_row_ + row / quantiser_.group % per_row_; }
  // The scales lie group by group and are read row by row, and the reverse.
  int64_t misread_group(int64_t group) const { return group % weight_.rows() * per_row_ + group / weight_.rows(); }
  int64_t mislaid_group(int64_t group) const { return group % per_row_ * weight_.rows() + group / per_row_; }
  int64_t first_group(int64_t group) const { return group / per_row_ * per_row_; }
  int64_t inputs() const { return weight_.last(); }
  int64_t group_size() const { return quantiser_.group; }
  int bits() const { return quantiser_.bits; }

 private:
  std::pair<double, double> scale(int64_t group) {
    if (group == latest_group_) return latest_scale_;
    const int64_t all = static_cast<int64_t>(ends_.size());
    const auto& [low, high] =
        quantiser_.range ? *quantiser_.range : ends_[static_cast<size_t>((group % all + all) % all)];
    latest_group_ = group, latest_scale_ = quantiser_.scale_of(low, high);
    return latest_scale_;
  }
  void take_apart(int64_t row) {
    latest_row_ = row;
    numbers_.resize(static_cast<size_t>(inputs()));
    for (int64_t i = 0; i < inputs(); ++i) {
      const auto [step, low] = scale(group_of(row, i));
      const double value = weight_.row(row)[static_cast<size_t>(i)];
      numbers_[static_cast<size_t>(i)] = step != 0 ? quantiser_.number_of((value - low) / step) : 0;
    }
  }
  const Values& weight_;
  const Quantiser quantiser_;
  const Ends& ends_;
  int64_t per_row_;
  std::vector<double> numbers_;
  int64_t latest_row_ = -1, latest_group_ = INT64_MIN;
  std::pair<double, double> latest_scale_;
};

// How the numbers may be put together again.
struct Reading {
  const char* words;
  const char* fix;
  bool affine;  // needs zero points
  double (*value)(Grid& w, int64_t row, int64_t i, int64_t group);
};

constexpr const char* kZero = "add the zero point (the lowest value) of each group";
constexpr const char* kGroups = "check the size and the order of the quantisation groups";

using G = Grid&;
using N = int64_t;

// Numbers of the row in another order.
template <typename From>
double moved(G w, N j, N g, From from) {
  return w.step(g) * w.number(j, from) + w.low(g);
}

// Scale and zero point of another group, whichever.
double of_group(G w, N j, N i, N g) {
  return w.step(g) * w.number(j, i) + w.low(g);
}

constexpr const char* kScales = "the scales lie in another order of axes: one row of them for each row of the weight";

const Reading kReadings[] = {
    {"", "expected when the candidate is quantised; else load the full weight", false, of_group},
    {"with the scales spread along the other axis", kScales, false,
     [](G w, N j, N i, N) { return of_group(w, j, i, w.turned_group_of(j, i)); }},
    {"with scales that lie group by group read row by row", kScales, false,
     [](G w, N j, N i, N g) { return of_group(w, j, i, w.misread_group(g)); }},
    {"with scales that lie row by row read group by group", kScales, false,
     [](G w, N j, N i, N g) { return of_group(w, j, i, w.mislaid_group(g)); }},
    {"with the scale of each row's first group", kGroups, false,
     [](G w, N j, N i, N g) { return of_group(w, j, i, w.first_group(g)); }},
    {"with the first scale for all", kGroups, false, [](G w, N j, N i, N) { return of_group(w, j, i, 0); }},
    {"divided by the scales", "multiply by the scale: what is stored is its inverse, or it is not", false,
     [](G w, N j, N i, N g) { return w.step(g) != 0 ? w.number(j, i) / w.step(g) + w.low(g) : 0; }},
    {"with the scales applied twice", "multiply by the scale once", false,
     [](G w, N j, N i, N g) { return w.step(g) * w.step(g) * w.number(j, i) + w.low(g); }},
    {"with zero points one too low", kZero, true,
     [](G w, N j, N i, N g) { return w.step(g) * (w.number(j, i) - 1) + w.low(g); }},
    {"with zero points one too high", kZero, true,
     [](G w, N j, N i, N g) { return w.step(g) * (w.number(j, i) + 1) + w.low(g); }},
    {"with scales in bfloat16", "keep the scales in f32", false,
     [](G w, N j, N i, N g) {
       return float_from(bfloat16_from(static_cast<float>(w.step(g)))) * w.number(j, i) + w.low(g);
     }},
    {"with the halves of each group taken in turn", "the halves of a byte hold the halves of a group", false,
     [](G w, N j, N i, N g) {
       const N size = w.group_size(), at = i % size;
       return moved(w, j, g, i - at + at / 2 + at % 2 * (size / 2));
     }},
    {"with neighbours of each group taken for its halves", "a byte holds two neighbours: take them in turn", false,
     [](G w, N j, N i, N g) {
       const N size = w.group_size(), at = i % size;
       return moved(w, j, g, i - at + (at < size / 2 ? 2 * at : 2 * (at - size / 2) + 1));
     }},
    {"without the zero points", kZero, true, [](G w, N j, N i, N g) { return w.step(g) * w.number(j, i); }},
    {"with the middle of the range for every zero point", kZero, true,
     [](G w, N j, N i, N g) { return w.step(g) * (w.number(j, i) - (1 << (w.bits() - 1))); }},
    {"with the zero points taken away, not added", kZero, true,
     [](G w, N j, N i, N g) { return w.step(g) * w.number(j, i) - w.low(g); }},
    {"with the zero points added twice", kZero, true,
     [](G w, N j, N i, N g) { return w.step(g) * w.number(j, i) + 2 * w.low(g); }},
    {"with the zero points scaled once more", kZero, true,
     [](G w, N j, N i, N g) { return w.step(g) * (w.number(j, i) + w.low(g)); }},
    {"with the zero points of the group before", kGroups, true,
     [](G w, N j, N i, N g) { return w.step(g) * w.number(j, i) + w.low(g - 1); }},
    {"with the zero points of the next group", kGroups, true,
     [](G w, N j, N i, N g) { return w.step(g) * w.number(j, i) + w.low(g + 1); }},
    {"with scales and zero points of the group before", kGroups, true,
     [](G w, N j, N i, N g) { return w.step(g - 1) * w.number(j, i) + w.low(g - 1); }},
    {"with scales and zero points of the next group", kGroups, true,
     [](G w, N j, N i, N g) { return w.step(g + 1) * w.number(j, i) + w.low(g + 1); }},
    {"without the scales", "multiply by the scale of each group", false,
     [](G w, N j, N i, N g) { return w.number(j, i) + w.low(g); }},
    {"its whole numbers alone", "multiply by the scale of each group and add its zero point", false,
     [](G w, N j, N i, N) { return w.number(j, i); }},
    {"with the scales of the group before", kGroups, false,
     [](G w, N j, N i, N g) { return w.step(g - 1) * w.number(j, i) + w.low(g); }},
    {"with the scales of the next group", kGroups, false,
     [](G w, N j, N i, N g) { return w.step(g + 1) * w.number(j, i) + w.low(g); }},
    {"read in groups of twice the size", kGroups, false,
     [](G w, N j, N i, N g) { return w.step(g / 2) * w.number(j, i) + w.low(g / 2); }},
    {"read in groups of half the size", kGroups, false,
     [](G w, N j, N i, N) {
       const N half = w.half_group_of(j, i);
       return w.step(half) * w.number(j, i) + w.low(half);
     }},
    {"with the two numbers of each byte exchanged", "the low half of a byte is the first number", false,
     [](G w, N j, N i, N g) { return moved(w, j, g, i ^ 1); }},
    {"with the numbers of each byte in reverse order", "the low bits of a byte are the first number", false,
     [](G w, N j, N i, N g) { return moved(w, j, g, i ^ 3); }},
    {"with the numbers of each word of 32 bits in reverse order", "the low bits of a word are the first number", false,
     [](G w, N j, N i, N g) { return moved(w, j, g, w.inputs() % 8 ? i : i ^ 7); }},
    {"with the low halves of all bytes before the high ones", "a byte holds two neighbours: take them in turn", false,
     [](G w, N j, N i, N g) {
       const N n = w.inputs();
       return moved(w, j, g, i < n / 2 ? 2 * i : 2 * (i - n / 2) + 1);
     }},
    {"with neighbours taken from the two halves of a row", "the halves of a byte hold the halves of a row", false,
     [](G w, N j, N i, N g) { return moved(w, j, g, i / 2 + i % 2 * (w.inputs() / 2)); }},
    {"with whole numbers that have lost their sign", "read the numbers as signed", false,
     [](G w, N j, N i, N g) {
       const double q = w.number(j, i);
       return w.step(g) * (q < 0 ? q + (1 << w.bits()) : q) + w.low(g);
     }},
    {"with whole numbers read as signed", "read the numbers as unsigned", true,
     [](G w, N j, N i, N g) {
       const double q = w.number(j, i);
       return w.step(g) * (q >= (1 << (w.bits() - 1)) ? q - (1 << w.bits()) : q) + w.low(g);
     }},
};

// [columns looked at, inputs], the first `count` of them.
Values rows_read(const LinearProbe& probe, Grid& grid, const Reading& reading, size_t count) {
  Values out = make_values({static_cast<int64_t>(count), grid.inputs()});
  for (size_t k = 0; k < count; ++k) {
    const int64_t row = probe.columns()[k];
    for (int64_t i = 0; i < grid.inputs(); ++i)
      out.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] =
          static_cast<float>(reading.value(grid, row, i, grid.group_of(row, i)));
  }
  return out;
}

// All ways in which a weight of this size is usually quantised.
std::vector<Quantiser> quantisers(const Values& w) {
  std::vector<Quantiser> out;
  const auto [low, high] = std::minmax_element(w.v.begin(), w.v.end());
  const auto range = std::pair(*low, *high);
  const auto add = [&](int bits, int64_t group, Levels levels, bool whole = false) {
    if (w.last() % group || w.last() % 4) return;
    out.push_back({bits, group, levels, {}});
    if (whole) out.back().range = range;
  };
  for (const int bits : {4, 8, 6, 5, 3, 2})
    for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, w.last(), int64_t{16}, int64_t{256}})
      for (const Levels levels : {Levels::kAffine, Levels::kSymmetric}) add(bits, group, levels);
  for (const Levels levels : {Levels::kE4M3, Levels::kE5M2}) add(8, w.last(), levels), add(8, w.last(), levels, true);
  for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, w.last()}) {
    for (const int bits : {4, 8})
      for (const Levels levels : {Levels::kWholeZero, Levels::kFullRange, Levels::kExtreme}) add(bits, group, levels);
    for (const Levels levels : {Levels::kE4M3, Levels::kNf4, Levels::kE2M1}) add(4, group, levels);
  }
  for (const Levels levels : {Levels::kAffine, Levels::kSymmetric}) add(8, w.last(), levels, true);
  return out;
}

// Groups that run along the outputs: each input has scales of its own.
bool search_quantised_columns(const LinearProbe& probe, LinearReport& report) {
  const Values& w = probe.weight();
  const int64_t rows = w.shape[0], inputs = w.shape[1];
  for (const int64_t group : {rows, int64_t{32}, int64_t{64}, int64_t{128}}) {
    if (rows % group) continue;
    std::map<int64_t, std::pair<std::vector<float>, std::vector<float>>> ends;  // lowest and highest, by group
    for (const int64_t row : probe.columns()) {
      auto& [low, high] = ends[row / group];
      if (!low.empty()) continue;
      const int64_t begin = row / group * group;
      low.assign(w.row(begin).begin(), w.row(begin).end()), high = low;
      for (int64_t j = begin + 1; j < begin + group; ++j)
        for (size_t i = 0; i < low.size(); ++i)
          low[i] = std::min(low[i], w.row(j)[i]), high[i] = std::max(high[i], w.row(j)[i]);
    }
    for (const int bits : {8, 4})
      for (const Levels levels : {Levels::kSymmetric, Levels::kAffine}) {
        const Quantiser quantiser{bits, group, levels, {}};
        Values made = make_values({static_cast<int64_t>(probe.columns().size()), inputs});
        for (size_t k = 0; k < probe.columns().size(); ++k) {
          const int64_t row = probe.columns()[k];
          const auto& [lows, highs] = ends.at(row / group);
          for (size_t i = 0; i < lows.size(); ++i) {
            const auto [step, low] = quantiser.scale_of(lows[i], highs[i]);
            made.row(static_cast<int64_t>(k))[i] =
                static_cast<float>(step != 0 ? step * quantiser.number_of((w.row(row)[i] - low) / step) + low : low);
          }
        }
        const double residual = probe.candidate_rows(made);
        if (probe.good(residual))
          return report.add("linear.weight_quantised",
                            fmt::format("W in {} bits, scales for each input over {} outputs{}", bits, group,
                                        levels == Levels::kAffine ? ", affine" : ""),
                            "expected when the candidate is quantised; else the groups run along the other axis",
                            residual, 1.1);
      }
  }
  return false;
}

bool search_element_forms(const LinearProbe& probe, LinearReport& report) {
  const Values rows = take_rows(probe.weight(), probe.columns());
  for (const WeightForm& form : element_forms())
    if (const double residual = probe.candidate_rows(form.make(rows)); probe.good(residual))
      return report.add(form.rounded ? "linear.weight_rounded" : "linear.different_weight", form.words, form.fix,
                        residual, 1.1);
  return false;
}

bool search_memory(const LinearProbe& probe, LinearReport& report) {
  const Values& w = probe.weight();
  for (const WeightMemory& memory : weight_memories(w.shape)) {
    if (probe.candidate_rows(rows_in_memory(memory, w, probe.columns(), std::min<size_t>(2, probe.columns().size()))) >
        kHopelessReading)
      continue;
    const double residual = probe.candidate_rows(rows_in_memory(memory, w, probe.columns(), probe.columns().size()));
    if (probe.good(residual))
      return report.add(memory.turned ? "linear.transposed_weight" : "linear.different_weight", memory.words,
                        memory.fix, residual, 1.1);
  }
  return false;
}

}  // namespace

bool search_quantised_otherwise(const LinearProbe& probe, LinearReport& report) {
  const Values& w = probe.weight();
  if (w.size() == 0) return false;
  if (search_element_forms(probe, report) || search_memory(probe, report)) return true;
  const size_t few = std::min<size_t>(2, probe.columns().size()), all = probe.columns().size();
  // A reading that is right leaves much less of these rows than the weight itself does.
  const std::vector<int64_t> first(probe.columns().begin(), probe.columns().begin() + static_cast<int64_t>(few));
  const double hopeless = std::min(kHopelessReading, 0.9 * probe.candidate_rows(take_rows(w, first)));
  std::map<int64_t, Ends> ends;  // by the size of the groups
  for (const Quantiser& quantiser : quantisers(w)) {
    Ends& of_groups = ends[quantiser.group];
    if (of_groups.empty()) of_groups = ends_of(w, quantiser.group);
    Grid grid(w, quantiser, of_groups);
    for (const Reading& reading : kReadings) {
      if (reading.affine && !quantiser.has_zero_points()) continue;
      if (reading.words[0] == 0 && quantiser.is_usual()) continue;  // looked for already
      if (probe.candidate_rows(rows_read(probe, grid, reading, few)) > hopeless) continue;
      const double residual = probe.candidate_rows(rows_read(probe, grid, reading, all));
      if (probe.good(residual))
        return report.add("linear.weight_quantised", quantiser.words() + (reading.words[0] ? ", " : "") + reading.words,
                          reading.fix, residual, 1.1);
    }
  }
  return search_quantised_columns(probe, report);
}

}  // namespace lockstep
