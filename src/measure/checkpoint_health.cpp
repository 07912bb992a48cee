#include "measure/checkpoint_health.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/interrupt.h"

namespace lockstep {
namespace {

using Severity = HealthFinding::Severity;

// Siblings are the tensors whose names differ only in numbers: blocks.0.norm.weight and blocks.7.norm.weight.
std::string sibling_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      pattern += c;
    else if (pattern.empty() || pattern.back() != '#')
      pattern += '#';
  }
  return pattern;
}

bool is_bias(const std::string& name) {
  return name == "bias" || name.ends_with(".bias") || name.ends_with("/bias");
}

class Examination {
 public:
  explicit Examination(CheckpointHealth& health) : health_(health) {}

  void check_values(const CheckpointHealth::Entry& entry) {
    const Statistics& s = entry.statistics;
    const std::string& name = entry.info->name;
    if (s.nan > 0) add(Severity::kError, "nan", {name}, fmt::format("{} of {} values are NaN", s.nan, s.count));
    if (s.inf > 0) add(Severity::kError, "inf", {name}, fmt::format("{} of {} values are infinite", s.inf, s.count));
    if (s.count == 0) return;
    if (s.zero == s.count) {
      if (is_bias(name))
        add(Severity::kNote, "all_zero_bias", {name}, "all values are 0: the bias does nothing");
      else
        add(Severity::kWarning, "all_zero", {name}, "all values are 0: never trained, or never saved");
    } else if (s.count > 1 && s.finite() == s.count && s.min == s.max) {
      add(Severity::kNote, "constant", {name}, fmt::format("all {} values are {:g}", s.count, s.min));
    }
    constexpr double kManyDenormals = 0.01;
    if (static_cast<double>(s.denormal) > kManyDenormals * static_cast<double>(s.count))
      add(Severity::kWarning, "denormal", {name},
          fmt::format("{} of {} values are denormal: slow, and lost where they are flushed", s.denormal, s.count));
  }

  // A tensor whose spread is far from that of its siblings was scaled, swapped or broken.
  void check_spread() {
    constexpr size_t kFewestSiblings = 4;
    constexpr double kMostRatio = 8;
    std::map<std::string, std::vector<const CheckpointHealth::Entry*>> groups;
    for (const auto& entry : health_.entries)
      if (entry.statistics.std > 0) groups[sibling_pattern(entry.info->name)].push_back(&entry);
    for (auto& [pattern, group] : groups) {
      if (group.size() < kFewestSiblings) continue;
      std::vector<double> spreads;
      for (const auto* entry : group) spreads.push_back(entry->statistics.std);
      std::nth_element(spreads.begin(), spreads.begin() + static_cast<int64_t>(spreads.size() / 2), spreads.end());
      const double median = spreads[spreads.size() / 2];
      for (const auto* entry : group) {
        const double ratio = entry->statistics.std / median;
        if (ratio > kMostRatio || ratio < 1 / kMostRatio)
          add(Severity::kWarning, "odd_std", {entry->info->name},
              fmt::format("std {:.3g} is {:.3g} times the median of its {} siblings {}", entry->statistics.std, ratio,
                          group.size(), pattern));
      }
    }
  }

  void note_content(const CheckpointHealth::Entry& entry, const Tensor& tensor) {
    const Statistics& s = entry.statistics;
    constexpr int64_t kFewestElements = 16;  // small or constant tensors are equal by chance
    if (s.count < kFewestElements || s.min == s.max) return;
    const Tensor packed = tensor.contiguous();
    const auto bytes = packed.contiguous_bytes();
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    contents_[{tensor.dtype(), hash.high64, hash.low64, bytes.size()}].push_back(entry.info->name);
  }

  void check_duplicates() {
    for (const auto& [key, names] : contents_)
      if (names.size() > 1)
        add(Severity::kWarning, "duplicate", names,
            fmt::format("{} tensors hold the same {} bytes", names.size(), std::get<3>(key)));
  }

  void sort() {
    std::stable_sort(health_.findings.begin(), health_.findings.end(),
                     [](const HealthFinding& a, const HealthFinding& b) { return a.severity < b.severity; });
  }

 private:
  void add(Severity severity, const char* check, std::vector<std::string> tensors, std::string explanation) {
    health_.findings.push_back({severity, check, std::move(tensors), std::move(explanation)});
  }

  CheckpointHealth& health_;
  std::map<std::tuple<DType, uint64_t, uint64_t, size_t>, std::vector<std::string>> contents_;
};

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

CheckpointHealth examine_checkpoint(const TensorSource& source, const std::vector<const TensorInfo*>& tensors,
                                    const std::function<void(int64_t)>& advance) {
  CheckpointHealth health;
  Examination examination(health);
  for (const TensorInfo* info : tensors) {
    check_interrupt("report");
    const Tensor tensor = source.tensor(info->name);
    health.entries.push_back({info, tensor_statistics(tensor)});
    examination.check_values(health.entries.back());
    examination.note_content(health.entries.back(), tensor);
    advance(static_cast<int64_t>(info->size_bytes));
  }
  examination.check_spread();
  examination.check_duplicates();
  examination.sort();
  return health;
}

}  // namespace lockstep
