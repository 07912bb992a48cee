#include "diagnose/weight/weight_relation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "diagnose/case/thresholds.h"
#include "diagnose/layout/layouts.h"
#include "diagnose/weight/weight_forms.h"
#include "diagnose/weight/weight_grid.h"
#include "diagnose/weight/weight_levels.h"
#include "diagnose/weight/weight_memory.h"
#include "measure/region.h"

namespace lockstep {
namespace {

bool all_held(const Values& x, float (*round)(float)) {
  return std::all_of(x.v.begin(), x.v.end(), [&](float value) { return round(value) == value; });
}

struct Shape4 {
  double mean, deviation, kurtosis, largest;
};

Shape4 moments(const Values& x) {
  double sum = 0, second = 0, fourth = 0, largest = 0;
  for (const float value : x.v) sum += value, largest = std::max(largest, std::fabs(static_cast<double>(value)));
  const double n = static_cast<double>(x.size()), mean = sum / n;
  for (const float value : x.v) {
    const double d = value - mean;
    second += d * d, fourth += d * d * d * d;
  }
  const double variance = second / n;
  return {mean, std::sqrt(variance), variance > 0 ? fourth / n / (variance * variance) : 0, largest};
}

std::string random_words(const Values& c) {
  const Shape4 m = moments(c);
  const double inputs = c.rank() > 1 ? static_cast<double>(c.size() / c.shape[0]) : 0;
  if (inputs > 0 && std::fabs(m.kurtosis - 1.8) < 0.15 && std::fabs(m.largest * std::sqrt(inputs) - 1) < 0.1)
    return "uniform within 1/sqrt(inputs): a framework's default initialisation, never overwritten";
  if (std::fabs(m.kurtosis - 3) < 0.3)
    return fmt::format("normal with deviation {:.3g}: initialised, never overwritten, or of another model",
                       m.deviation);
  return "unrelated values";
}

// A few rows tell a form; the whole confirms it.
template <typename Made>
bool is_made_so(const Values& candidate, const std::vector<int64_t>& few, double near, Made made) {
  if (!(relative_error(made(few).v, take_rows(candidate, few).v) <= near)) return false;  // NaN is no match
  const std::vector<int64_t> all = sample_indices(candidate.rows(), 512);
  return relative_error(made(all).v, take_rows(candidate, all).v) <= near;
}

// Both as [out, the rest].
std::optional<WeightRelation> find_memory(const Values& candidate, const Values& reference, double error,
                                          const std::vector<WeightMemory>& memories) {
  const std::vector<int64_t> few = sample_indices(reference.rows(), 4), telling = sample_indices(reference.last(), 12);
  const auto hopeless = [&](const WeightMemory& memory) {  // a few elements rule most of them out: there are thousands
    size_t wrong = 0;
    for (const int64_t i : telling) {
      const double c = candidate.row(few[1])[static_cast<size_t>(i)],
                   r = reference.v[static_cast<size_t>(memory.source(reference.shape, few[1], i))];
      if (std::fabs(c - r) > 1e-3 * std::fabs(r) && ++wrong > 3) return true;
    }
    return false;
  };
  for (const WeightMemory& memory : memories)
    if (!hopeless(memory) && is_made_so(candidate, few, kSameForm, [&](const auto& rows) {
          return rows_in_memory(memory, reference, rows, rows.size());
        }))
      return WeightRelation{memory.turned ? Cause("weights.transposed") : Cause("weights.rearranged"), memory.words,
                            error};
  return std::nullopt;
}

// In few bits, with bits read in another format, or from the wrong memory; both as [out, the rest].
std::optional<WeightRelation> find_form(const Values& candidate, const Values& reference, double error) {
  const std::vector<int64_t> few = sample_indices(reference.rows(), 4);
  for (const WeightForm& form : error < 0.2 ? row_forms(reference) : element_forms())
    if (is_made_so(candidate, few, kSameForm, [&](const auto& rows) { return form.make(take_rows(reference, rows)); }))
      return WeightRelation{form.rounded ? Cause("weights.quantised") : Cause("weights.different"), form.words, error};
  if (error < 0.2) {
    EndsBySize ends(reference);
    for (const Quantiser& quantiser : quantisers(reference)) {
      WeightGrid grid(reference, quantiser, ends.of(quantiser.groups()));
      if (!(relative_error(grid.rows({few[0]}).v, candidate.row(few[0])) <= 10 * kSameForm)) continue;
      if (is_made_so(candidate, few, kSameForm, [&](const auto& rows) { return grid.rows(rows); }))
        return WeightRelation{"weights.quantised", quantiser.words(), error};
    }
    // Whatever the table: scales that were rounded, levels of its own. A file has no noise but its last digits.
    if (const auto levels = find_few_levels(candidate, 1e-5); levels && !find_few_levels(reference, 1e-5))
      return WeightRelation{"weights.quantised", "W takes " + levels->words, error};
  }
  return find_memory(candidate, reference, error, weight_memories(reference.shape));
}

}  // namespace

WeightRelation relate_weights(const std::string& name, const Values& candidate, const Values& reference) {
  WeightRelation out{"weights.different", "", 0};
  if (candidate.size() != reference.size()) {
    out.id = "weights.shape";
    out.words = fmt::format("shape {} against {}", to_string(candidate.shape), to_string(reference.shape));
    return out;
  }
  out.error = relative_error(candidate.v, reference.v);
  if (const auto bad = std::count_if(candidate.v.begin(), candidate.v.end(), [](float v) { return !std::isfinite(v); });
      bad > std::count_if(reference.v.begin(), reference.v.end(), [](float v) { return !std::isfinite(v); }))
    return {"weights.not_finite", fmt::format("{} of {} values are NaN or infinite", bad, candidate.size()), INFINITY};
  if (candidate.shape == reference.shape && out.error == 0) return {};
  const auto rounds = [&](float (*round)(float)) { return all_held(candidate, round) && !all_held(reference, round); };
  if (candidate.shape == reference.shape && out.error < 0.2) {
    if (out.error < 5e-3 && rounds([](float x) { return float_from(bfloat16_from(x)); }))
      return {"weights.rounded_bf16", "rounded to bfloat16", out.error};
    if (out.error < 1e-3 && rounds([](float x) { return float_from(half_from(x)); }))
      return {"weights.rounded_f16", "rounded to float16", out.error};
    if (rounds([](float x) { return float_from(float8_e4m3_from(x)); }))
      return {"weights.rounded_f8", "rounded to float8 e4m3", out.error};
    for (const int bits : {8, 4})
      for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, candidate.last()})
        for (const bool affine : {false, true})
          if (candidate.last() % group == 0 &&
              relative_error(candidate.v, quantised(reference, bits, group, affine).v) < 0.05 * out.error)
            return {"weights.quantised", fmt::format("{}-bit in groups of {}{}", bits, group, affine ? ", affine" : ""),
                    out.error};
  }
  const bool has_rows = reference.rank() > 1 && reference.shape[0] > 1 && reference.size() >= 64;
  const int64_t outputs = has_rows ? reference.shape[0] : 1;
  const Shape matrix{outputs, reference.size() / outputs};
  if (has_rows && candidate.shape == reference.shape)
    if (auto form = find_form(reshaped(candidate, matrix), reshaped(reference, matrix), out.error)) return *form;
  if (candidate.shape == reference.shape && out.error < 0.02)
    return {"weights.small_error",
            fmt::format("off by {:.2g}, by no rounding or quantisation that is known here: another quantiser, another "
                        "version of the weights, or damage",
                        out.error),
            out.error};
  const auto found = find_rearrangements("weight", candidate, reference, std::min(1e-3, out.error / 4));
  if (!found.empty()) {
    const bool transposed = found[0].id == "layout.axes" || found[0].id == "layout.strided";
    out.id = transposed                                ? Cause("weights.transposed")
             : found[0].id == "layout.parts_exchanged" ? Cause("weights.parts_exchanged")
                                                       : Cause("weights.rearranged");
    out.words = found[0].words;
    return out;
  }
  if (has_rows && candidate.shape == reference.shape)
    if (auto blocks =
            find_memory(reshaped(candidate, matrix), reshaped(reference, matrix), out.error, weight_blocks(matrix)))
      return *blocks;
  if (std::all_of(candidate.v.begin(), candidate.v.end(), [](float x) { return x == 0; }))
    return {"weights.zeros", "all zeros", out.error};
  const double related = correlation(candidate.v, reference.v);
  if (std::fabs(related) > 1 - 1e-6) {
    const double factor =
        std::sqrt(squared_norm(candidate.v) / std::max(1e-300, squared_norm(reference.v))) * (related < 0 ? -1 : 1);
    if (std::fabs(factor - 1) < 1e-5)  // no factor at all: what differs is too small to have one
      return {"weights.small_error", fmt::format("off by {:.2g}: a rounding of its own", out.error), out.error};
    return {"weights.scaled", fmt::format("{:.6g} times the reference", factor), out.error};
  }
  if (std::fabs(related) < 6 / std::sqrt(static_cast<double>(reference.size())) + 0.02)
    return {"weights.random", random_words(candidate), out.error};
  const Region region = describe_region(name, candidate, reference, 1e-3);
  out.words = fmt::format("relative error {:.3g}, {}", out.error, region.words);
  if (std::fabs(related) > 0.9) {
    const double factor = dot(candidate.v, reference.v) / std::max(1e-300, squared_norm(reference.v));
    out.words += fmt::format("; still {:.3g} times the reference up to {:.2g}: dequantised wrongly?", factor,
                             std::sqrt(1 - related * related));
  }
  return out;
}

}  // namespace lockstep
