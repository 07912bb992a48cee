// The layer's weight in few bits: as a quantiser leaves it, or its numbers put together otherwise than they were taken
// apart (zero points or scales left out, taken twice or from another group, two numbers of a byte exchanged).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/families/linear_probe.h"
#include "compare/families/linear_report.h"
#include "compare/weight_relation.h"

namespace lockstep {
namespace {

constexpr double kHopelessReading = 0.4;  // on a few rows: no right reading is so far off

// One row of the weight taken apart: value = step * number + low, in groups.
struct Parts {
  std::vector<double> numbers;    // whole, from 0 up, or around 0 when symmetric
  std::vector<double> step, low;  // one a group
};

struct Quantiser {
  int bits = 4;
  int64_t group = 32;
  bool affine = true;

  Parts of(std::span<const float> row) const {
    Parts out;
    const size_t n = row.size(), size = static_cast<size_t>(group);
    const double levels = affine ? (1 << bits) - 1 : (1 << (bits - 1)) - 1;
    out.numbers.resize(n);
    for (size_t begin = 0; begin < n; begin += size) {
      const auto part = row.subspan(begin, size);
      const auto [low, high] = std::minmax_element(part.begin(), part.end());
      const double base = affine ? *low : 0;
      const double step =
          affine ? (static_cast<double>(*high) - base) / levels : std::max(std::fabs(*low), std::fabs(*high)) / levels;
      for (size_t i = begin; i < begin + size; ++i)
        out.numbers[i] = step > 0 ? std::nearbyint((row[i] - base) / step) : 0;
      out.step.push_back(step), out.low.push_back(base);
    }
    return out;
  }

  std::string words() const {
    return fmt::format("W in {} bits, groups of {}{}", bits, group, affine ? ", affine" : "");
  }
};

// The weight taken apart, row by row when asked for. Groups are counted through all rows, as they lie in a file.
class Grid {
 public:
  Grid(const Values& weight, const Quantiser& quantiser)
      : weight_(weight), quantiser_(quantiser), per_row_(weight.last() / quantiser.group) {}

  double number(int64_t row, int64_t i) { return of(row).numbers[static_cast<size_t>(i)]; }
  double step(int64_t group) { return of(wrapped(group) / per_row_).step[place(group)]; }
  double low(int64_t group) { return of(wrapped(group) / per_row_).low[place(group)]; }
  int64_t group_of(int64_t row, int64_t i) const { return row * per_row_ + i / quantiser_.group; }
  int64_t half_group_of(int64_t row, int64_t i) const { return 2 * row * per_row_ + 2 * i / quantiser_.group; }
  int64_t inputs() const { return weight_.last(); }
  int bits() const { return quantiser_.bits; }

 private:
  int64_t wrapped(int64_t group) const {
    const int64_t all = per_row_ * weight_.rows();
    return (group % all + all) % all;
  }
  size_t place(int64_t group) const { return static_cast<size_t>(wrapped(group) % per_row_); }
  const Parts& of(int64_t row) {
    if (latest_ && row == latest_row_) return *latest_;
    const auto [found, is_new] = rows_.try_emplace(row);
    if (is_new) found->second = quantiser_.of(weight_.row(row));
    latest_row_ = row, latest_ = &found->second;
    return found->second;
  }
  const Values& weight_;
  const Quantiser quantiser_;
  int64_t per_row_;
  std::map<int64_t, Parts> rows_;
  int64_t latest_row_ = 0;
  const Parts* latest_ = nullptr;
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

const Reading kReadings[] = {
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

}  // namespace

bool search_quantised_otherwise(const LinearProbe& probe, LinearReport& report) {
  const Values& w = probe.weight();
  if (w.size() == 0) return false;
  const size_t few = std::min<size_t>(2, probe.columns().size()), all = probe.columns().size();
  for (const int bits : {4, 8, 6, 5, 3, 2})
    for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, w.last(), int64_t{16}, int64_t{256}})
      for (const bool affine : {true, false}) {
        if (w.last() % group || w.last() % 4) continue;
        const Quantiser quantiser{bits, group, affine};
        Grid grid(w, quantiser);
        for (const Reading& reading : kReadings) {
          if (reading.affine && !affine) continue;
          if (probe.candidate_rows(rows_read(probe, grid, reading, few)) > kHopelessReading) continue;
          const double residual = probe.candidate_rows(rows_read(probe, grid, reading, all));
          if (probe.good(residual))
            return report.add("linear.weight_quantised", quantiser.words() + ", " + reading.words, reading.fix,
                              residual, 1.1);
        }
      }
  return false;
}

}  // namespace lockstep
