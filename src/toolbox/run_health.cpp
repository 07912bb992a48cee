#include "toolbox/run_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/number_text.h"
#include "measure/values.h"

namespace lockstep {
namespace {

constexpr int64_t kManyValues = 1000, kManyRows = 16, kManyChannels = 16;
constexpr double kLargeInF16 = 0.01, kManyDenormals = 0.01, kManyDead = 0.01, kMostOfComponent = 0.9;
constexpr int64_t kLargestLookedAt = 32 << 20;  // elements: a larger tensor is judged by its statistics

bool is_float(const Record& record) {
  return record.dtype && is_floating(*record.dtype);
}

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504;
    case DType::kF8E4M3:
      return 448;
    case DType::kF8E5M2:
      return 57344;
    default:
      return 3.38e38;
  }
}

// Channels are the last axis of tokens and the second of pictures, which the autoencoder alone has.
struct ChannelShape {
  int64_t outer = 1, channels = 1, inner = 1;
};
ChannelShape channels_of(const Shape& shape, bool pictures) {
  if (shape.size() < 2) return {};
  const size_t axis = pictures && shape.size() >= 4 ? 1 : shape.size() - 1;
  ChannelShape out;
  for (size_t i = 0; i < shape.size(); ++i) (i < axis ? out.outer : i == axis ? out.channels : out.inner) *= shape[i];
  return out;
}

int64_t dead_channels(const Values& values, const ChannelShape& shape) {
  if (shape.channels < kManyChannels || shape.outer * shape.inner < kManyRows) return 0;
  int64_t dead = 0;
  for (int64_t c = 0; c < shape.channels; ++c) {
    bool all_zero = true;
    for (int64_t o = 0; all_zero && o < shape.outer; ++o) {
      const float* from = values.v.data() + (o * shape.channels + c) * shape.inner;
      all_zero = std::all_of(from, from + shape.inner, [](float x) { return x == 0; });
    }
    dead += all_zero;
  }
  return dead == shape.channels ? 0 : dead;  // all of them is a constant tensor
}

// Channels that stand at the end of the range for whatever goes in: behind a clamp, a sigmoid or a tanh.
int64_t saturated_channels(const Values& values, const ChannelShape& shape, float least, float most) {
  if (shape.channels < kManyChannels || shape.outer * shape.inner < kManyRows) return 0;
  int64_t saturated = 0;
  for (int64_t c = 0; c < shape.channels; ++c) {
    const float end = values.v[static_cast<size_t>(c * shape.inner)];
    if (end == 0 || (end != least && end != most)) continue;
    bool all = true;
    for (int64_t o = 0; all && o < shape.outer; ++o) {
      const float* from = values.v.data() + (o * shape.channels + c) * shape.inner;
      all = std::all_of(from, from + shape.inner, [end](float x) { return x == end; });
    }
    saturated += all;
  }
  return saturated;
}

bool has_equal_rows(const Values& values) {
  if (values.rows() < kManyRows || values.last() < kManyChannels) return false;
  const auto first = values.row(0);
  for (int64_t i = 1; i < values.rows(); ++i)
    if (!std::equal(first.begin(), first.end(), values.row(i).begin())) return false;
  return true;
}

// A mask: nothing but zeros beside its negative infinities.
bool is_mask(const Values& values) {
  return std::all_of(values.v.begin(), values.v.end(), [](float x) { return x == 0 || x == -INFINITY; });
}

class Examination {
 public:
  explicit Examination(const Run& run) : run_(run) {}

  RunHealth examine() {
    health_.records = static_cast<int64_t>(run_.records().size());
    count_dtypes();
    for (const Record& record : run_.records()) {
      check_interrupt("health");
      if (!is_float(record) || !record.stats || record.stats->count == 0) continue;
      if (record.role == Role::kInput) {
        add_input(inputs_[to_string(record.key)], record);
        continue;
      }
      look_at_statistics(record);
      look_at_dtype(record);
      look_at_values(record);
    }
    return std::move(health_);
  }

 private:
  struct Inputs {
    bool known = false, varies = false, rows_differ = false, bad = false, all_f32 = true;
  };

  void count_dtypes() {
    for (const Record& record : run_.records())
      if (record.role == Role::kOutput && is_float(record))
        ++dtypes_[component_of_record(record.key.name)][*record.dtype];
  }

  void add_input(Inputs& inputs, const Record& record) {
    inputs.known = true;
    inputs.varies |= record.stats->min < record.stats->max;
    inputs.bad |= record.stats->nan > 0;
    inputs.all_f32 &= record.dtype == DType::kF32;
    const std::optional<Values> values = values_of(record);
    inputs.rows_differ |= values && values->rows() >= kManyRows && !has_equal_rows(*values);
  }

  Inputs inputs_to(const Record& record) const {
    const auto found = inputs_.find(to_string(record.key));
    return found == inputs_.end() ? Inputs() : found->second;
  }

  std::optional<Values> values_of(const Record& record) {
    if (!run_.has_values(record) || record.stats->count > kLargestLookedAt) return std::nullopt;
    try {
      return values_from(run_.tensor(record));
    } catch (const Error&) {  // a file that is gone or damaged: runs show --verify is there for that
      return std::nullopt;
    }
  }

  void look_at_statistics(const Record& record) {
    const Statistics& stats = *record.stats;
    if (stats.nan + stats.inf > 0) {
      const std::optional<Values> values = values_of(record);
      if (stats.nan > 0 || !(values ? is_mask(*values) : record.key.name.find("mask") != std::string::npos))
        add(record, RunFinding::Severity::kError, "not_finite",
            fmt::format("{} NaN and {} infinities among {} values{}", stats.nan, stats.inf, stats.count,
                        inputs_to(record).known && !inputs_to(record).bad ? "; what went in has no NaN" : ""),
            "the first such tensor is where to look; lockstep debug break --nan stops there");
    }
    const double most = largest_finite(*record.dtype);
    if (stats.absmax > most / 2 && most < 1e30)
      add(record, RunFinding::Severity::kWarning, "near_overflow",
          fmt::format("values up to {:.4g}, and {} ends at {:.0f}", stats.absmax, dtype_name(*record.dtype), most),
          "keep this stage in bf16 or f32");
    if (stats.absmax > largest_usual(record.key.name))
      add(record, RunFinding::Severity::kWarning, "range",
          fmt::format("values up to {:.3g}; here they stay below {:.0e}", stats.absmax, largest_usual(record.key.name)),
          "a norm, a gate or a scale before it is missing or applied twice");
    // f16 begins to lose digits at 6e-5: a table of sines has such values, and larger ones beside them.
    const bool small_in_all = *record.dtype != DType::kF16 || stats.absmax < kLargeInF16;
    if (stats.count >= kManyValues && small_in_all &&
        static_cast<double>(stats.denormal) > kManyDenormals * static_cast<double>(stats.count))
      add(record, RunFinding::Severity::kWarning, "denormal",
          fmt::format("{} of {} values are denormal", stats.denormal, stats.count),
          "values that small are slow and lose digits: something is scaled down too far");
    const Inputs inputs = inputs_to(record);
    if (stats.count >= 64 && stats.min == stats.max && inputs.varies)
      add(record, RunFinding::Severity::kWarning, "constant",
          fmt::format("every value is {:.6g}, whatever went in", stats.min),
          "a weight of zeros that was never loaded, or a mask that hides everything");
  }

  // A float32 path that became a lower precision on the way.
  void look_at_dtype(const Record& record) {
    const auto& counts = dtypes_[component_of_record(record.key.name)];
    int64_t all = 0;
    for (const auto& [dtype, count] : counts) all += count;
    const auto f32 = counts.find(DType::kF32);
    const bool mostly_f32 =
        f32 != counts.end() && static_cast<double>(f32->second) > kMostOfComponent * static_cast<double>(all);
    const Inputs inputs = inputs_to(record);
    if (record.role == Role::kOutput && mostly_f32 && dtype_bytes(*record.dtype) < 4 && inputs.known && inputs.all_f32)
      add(record, RunFinding::Severity::kWarning, "dtype",
          fmt::format("{} comes out of f32 inputs, in a component that computes in f32", dtype_name(*record.dtype)),
          "a cast that was meant for another precision");
  }

  void look_at_values(const Record& record) {
    if (record.role != Role::kOutput || record.stats->count < kManyRows * kManyChannels) return;
    const Inputs inputs = inputs_to(record);
    if (record.stats->min == record.stats->max) return;
    const std::optional<Values> values = values_of(record);
    if (!values) return;
    ++health_.looked_into;
    if (inputs.rows_differ && has_equal_rows(*values))
      add(record, RunFinding::Severity::kWarning, "equal_rows",
          fmt::format("all {} rows are the same, and those that went in are not", values->rows()),
          "attention that sees one key alone, or an index that stands still");
    const ChannelShape shape = channels_of(values->shape, component_of_record(record.key.name) == "vae");
    const int64_t dead = dead_channels(*values, shape), channels = shape.channels;
    if (inputs.varies && dead > 0 && static_cast<double>(dead) >= kManyDead * static_cast<double>(channels))
      add(record, RunFinding::Severity::kWarning, "dead_channels",
          fmt::format("{} of {} channels are zero everywhere", dead, channels),
          "part of a weight was not loaded, or the activation cuts them all off");
    const int64_t saturated = saturated_channels(*values, shape, static_cast<float>(record.stats->min),
                                                 static_cast<float>(record.stats->max));
    if (inputs.varies && saturated > 0 && static_cast<double>(saturated) >= kManyDead * static_cast<double>(channels))
      add(record, RunFinding::Severity::kWarning, "saturated",
          fmt::format("{} of {} channels stand at {:.4g} or {:.4g}, the ends of the range, everywhere", saturated,
                      channels, record.stats->min, record.stats->max),
          "what goes into the clamp, sigmoid or tanh is too large: a scale or a norm before it is missing");
  }

  // Once for each kind and component; later ones are counted.
  void add(const Record& record, RunFinding::Severity severity, const char* check, std::string explanation,
           std::string hint) {
    const std::string group = std::string(check) + " " + component_of_record(record.key.name);
    const auto [at, is_new] = groups_.try_emplace(group, health_.findings.size());
    if (!is_new) {
      ++health_.findings[at->second].others;
      return;
    }
    health_.findings.push_back(
        {severity, check, record.key, record.role, record.where, std::move(explanation), std::move(hint), 0});
  }

  const Run& run_;
  RunHealth health_;
  std::map<std::string, std::map<DType, int64_t>> dtypes_;
  std::map<std::string, Inputs> inputs_;  // by call: an output has the key of its module's only input
  std::map<std::string, size_t> groups_;
};

}  // namespace

std::string component_of_record(const std::string& name) {
  return name.substr(0, name.find('.'));
}

double largest_usual(std::string_view name) {
  const std::string_view component = name.substr(0, name.find('.'));
  if (component == "transformer") return 1e9;
  if (component == "vae") return 1e6;
  if (component.find("latents") != std::string_view::npos || component == "noise_pred") return 1e4;
  if (component == "image") return 1e3;
  return 1e12;
}

RunHealth examine_run(const Run& run) {
  if (run.records().empty())
    fail(Code::kBadInput, "health", "the run " + run.id() + " holds no records", {.hint = "lockstep runs show"});
  RunHealth health = Examination(run).examine();
  add_watched(run, health);
  return health;
}

Json json_from(const RunHealth& health, const Run& run) {
  Json findings = Json::array();
  for (const RunFinding& finding : health.findings) {
    Json json{{"check", finding.check},
              {"severity", finding.severity == RunFinding::Severity::kError ? "error" : "warning"},
              {"name", finding.key.name},
              {"step", finding.key.step},
              {"hit", finding.key.hit},
              {"role", role_name(finding.role)},
              {"explanation", finding.explanation},
              {"hint", finding.hint},
              {"others", finding.others}};
    if (!finding.where.file.empty())
      json["where"] = {
          {"file", finding.where.file}, {"line", finding.where.line}, {"function", finding.where.function}};
    findings.push_back(std::move(json));
  }
  Json attention = Json::array();
  for (const AttentionSeen& seen : health.attention) {
    Json heads = Json::array();
    for (const AttentionSeen::Head& head : seen.heads)
      heads.push_back({{"entropy", head.entropy}, {"sink", head.sink}});
    attention.push_back({{"name", seen.name},
                         {"calls", seen.calls},
                         {"axes", {"batch", "heads", "tokens", "head size"}},
                         {"q", seen.q},
                         {"k", seen.k},
                         {"v", seen.v},
                         {"heads", std::move(heads)}});
  }
  return {{"run", run.id()},
          {"records", health.records},
          {"looked_into", health.looked_into},
          {"healthy", health.findings.empty()},
          {"findings", std::move(findings)},
          {"attention", std::move(attention)}};
}

}  // namespace lockstep
