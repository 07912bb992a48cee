// The layer's weight in few bits: as a quantiser leaves it, or its numbers put together otherwise than they were taken
// apart (zero points or scales left out, taken twice or from another group, two numbers of a byte exchanged).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/linear_probe.h"
#include "diagnose/linear/linear_report.h"
#include "diagnose/weight/weight_forms.h"
#include "diagnose/weight/weight_grid.h"
#include "diagnose/weight/weight_memory.h"
#include "tensor/float_formats.h"

namespace lockstep {
namespace {

// How the numbers may be put together again.
struct Reading {
  const char* words;
  const char* fix;
  bool affine;  // needs zero points
  double (*value)(WeightGrid& w, int64_t row, int64_t i, int64_t group);
};

constexpr const char* kZero = "add the zero point (the lowest value) of each group";
constexpr const char* kGroups = "check the size and the order of the quantisation groups";

using G = WeightGrid&;
using N = int64_t;

// Numbers of the row in another order.
template <typename From>
double moved(G w, N j, N g, From from) {
  if (from >= w.inputs()) return 0;  // a row's last group may be shorter than the others
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
Values rows_read(const LinearProbe& probe, WeightGrid& grid, const Reading& reading, size_t count) {
  Values out = make_values({static_cast<int64_t>(count), grid.inputs()});
  for (size_t k = 0; k < count; ++k) {
    const int64_t row = probe.columns()[k];
    for (int64_t i = 0; i < grid.inputs(); ++i)
      out.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] =
          static_cast<float>(reading.value(grid, row, i, grid.group_of(row, i)));
  }
  return out;
}

// Groups that run along the outputs: each input has scales of its own.
bool search_quantised_columns(const LinearProbe& probe, const LinearReport& report) {
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
      for (const QuantLevels levels : {QuantLevels::kSymmetric, QuantLevels::kAffine}) {
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
                                        levels == QuantLevels::kAffine ? ", affine" : ""),
                            "expected when the candidate is quantised; else the groups run along the other axis",
                            residual, 1.1);
      }
  }
  return false;
}

bool search_element_forms(const LinearProbe& probe, const LinearReport& report) {
  const Values rows = take_rows(probe.weight(), probe.columns());
  for (const WeightForm& form : element_forms())
    if (const double residual = probe.candidate_rows(form.make(rows)); probe.good(residual))
      return report.add(form.rounded ? Cause("linear.weight_rounded") : Cause("linear.different_weight"), form.words,
                        form.fix, residual, 1.1);
  return false;
}

// One row rules most memories out; there are many.
bool search_memory(const LinearProbe& probe, const std::vector<WeightMemory>& memories, const LinearReport& report) {
  const Values& w = probe.weight();
  for (const WeightMemory& memory : memories) {
    const auto rows = [&](size_t most) {
      return rows_in_memory(memory, w, probe.columns(), std::min(most, probe.columns().size()));
    };
    if (probe.candidate_rows(rows(1), true) > kHopelessReading) continue;
    const double residual = probe.candidate_rows(rows(SIZE_MAX));
    if (probe.good(residual))
      return report.add(memory.turned ? Cause("linear.transposed_weight") : Cause("linear.different_weight"),
                        memory.words, memory.fix, residual, 1.1);
  }
  return false;
}

// Scales of groups of one size handed out as if the groups had another.
bool search_other_group_sizes(const LinearProbe& probe, const std::vector<Quantiser>& all, EndsBySize& ends,
                              double hopeless, const LinearReport& report) {
  constexpr int64_t kMostMistaken = 256;  // larger groups are not taken for each other
  const Values& w = probe.weight();
  std::vector<WeightGroups> read;
  for (const WeightGroups groups : group_sizes(w.shape))
    if (groups.size < w.last() && groups.size <= kMostMistaken && !groups.through_rows)
      read.push_back({groups.size, false}), read.push_back({groups.size, true});
  for (int64_t size = 24; size <= std::min<int64_t>(128, w.last() - 1); size += 8)  // sizes that fit no row
    if (w.last() % size && (size & (size - 1))) read.push_back({size, false});
  for (const Quantiser& quantiser : all) {
    if (quantiser.range || quantiser.group > kMostMistaken || quantiser.group == w.last() || quantiser.through_rows ||
        !quantiser.is_usual() || (quantiser.bits != 8 && quantiser.bits != 4))
      continue;
    WeightGrid grid(w, quantiser, ends.of(quantiser.groups()));
    const auto rows = [&](WeightGroups as, size_t count) {
      Values out = make_values({static_cast<int64_t>(count), w.last()});
      for (size_t k = 0; k < count; ++k) {
        const int64_t row = probe.columns()[k];
        for (int64_t i = 0; i < w.last(); ++i)
          out.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] =
              static_cast<float>(grid.value(row, i, grid.group_read(row, i, as)));
      }
      return out;
    };
    for (const WeightGroups as : read) {
      if (as.size == quantiser.group || probe.candidate_rows(rows(as, 1)) > hopeless) continue;
      const double residual = probe.candidate_rows(rows(as, probe.columns().size()));
      if (probe.good(residual))
        return report.add("linear.weight_quantised",
                          fmt::format("{}, with the scales read as if groups had {} numbers{}", quantiser.words(),
                                      as.size, as.through_rows ? ", counted through all rows" : ""),
                          kGroups, residual, 1.1);
    }
  }
  return false;
}

}  // namespace

// A model that is held in few bits of precision is also quantised in them.
bool search_quantised_as_held(const LinearProbe& probe, const LinearReport& report) {
  if (!probe.held_in() || probe.columns().empty()) return false;
  const Values& w = probe.weight();
  EndsBySize ends(w);
  const std::vector<int64_t> first(probe.columns().begin(),
                                   probe.columns().begin() + std::min<int64_t>(2, std::ssize(probe.columns())));
  const double hopeless = 0.9 * probe.candidate_rows(take_rows(w, first));
  for (const Quantiser& quantiser : quantisers(w, probe.held_in())) {
    WeightGrid grid(w, quantiser, ends.of(quantiser.groups()));
    if (probe.candidate_rows(grid.rows(first)) > hopeless) continue;
    const double residual = probe.candidate_rows(grid.rows(probe.columns()));
    if (probe.good(residual))
      return report.add("linear.weight_quantised", quantiser.words(),
                        "expected when the candidate is quantised; else load the full weight", residual, 1);
  }
  return false;
}

bool search_quantised_otherwise(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  if (w.size() == 0) return false;
  if (search_element_forms(probe, report) || search_memory(probe, weight_memories(w.shape), report)) return true;
  // A long row tells enough by itself, and is taken apart once for all readings.
  const size_t all = probe.columns().size(), few = std::min<size_t>(w.last() >= 256 ? 1 : 2, all);
  // A reading that is right leaves much less of these rows than the weight itself does.
  const std::vector<int64_t> first(probe.columns().begin(), probe.columns().begin() + static_cast<int64_t>(few));
  const double hopeless = std::min(kHopelessReading, 0.9 * probe.candidate_rows(take_rows(w, first)));
  EndsBySize ends(w);
  const std::vector<Quantiser> ways = quantisers(w);
  for (const Quantiser& quantiser : ways) {
    WeightGrid grid(w, quantiser, ends.of(quantiser.groups()));
    for (const Reading& reading : kReadings) {
      if (reading.affine && !quantiser.has_zero_points()) continue;
      if (reading.words[0] != 0 && quantiser.plain_only) break;
      if (reading.words[0] == 0 && quantiser.is_usual() && w.last() % quantiser.group == 0)
        continue;  // looked for already
      if (probe.candidate_rows(rows_read(probe, grid, reading, few)) > hopeless) continue;
      const double residual = probe.candidate_rows(rows_read(probe, grid, reading, all));
      if (probe.good(residual))
        return report.add("linear.weight_quantised", quantiser.words() + (reading.words[0] ? ", " : "") + reading.words,
                          reading.fix, residual, 1.1);
    }
  }
  return search_other_group_sizes(probe, ways, ends, hopeless, report) || search_quantised_columns(probe, report) ||
         search_memory(probe, weight_blocks(w.shape), report);
}

}  // namespace lockstep
