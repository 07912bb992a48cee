#include "capture/recording_tap.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"

namespace lockstep {
namespace {

bool any_match(const std::vector<std::string>& globs, std::string_view name) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return glob_match(glob, name); });
}

// Lengths make the parts unambiguous whatever characters they hold.
std::string counter_key(const TensorKey& key, Role role) {
  std::string text = fmt::format("{}:{}:{}:{}", static_cast<int>(role), key.step, key.name.size(), key.name);
  for (const auto& [tag, value] : key.tags) text += fmt::format(":{}:{}{}:{}", tag.size(), tag, value.size(), value);
  return text;
}

}  // namespace

bool TapFilter::wants(std::string_view name) const {
  return (tap.empty() || any_match(tap, name)) && !any_match(no_tap, name);
}

bool TapFilter::wants_step(int step) const {
  if (steps.empty() || step < 0) return true;
  return std::any_of(steps.begin(), steps.end(),
                     [&](const auto& range) { return range.first <= step && step <= range.second; });
}

std::vector<std::pair<int, int>> steps_from_text(std::string_view text) {
  std::vector<std::pair<int, int>> ranges;
  const auto bad = [&] {
    fail(Code::kUsage, "steps", "not a list of steps",
         {.expected = "such as 0,5-9", .got = "'" + std::string(text).substr(0, 60) + "'"});
  };
  const auto number = [&](std::string_view part) {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size() || value < 0) bad();
    return value;
  };
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t dash = part.find('-');
    const int first = number(part.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (last < first) bad();
    ranges.emplace_back(first, last);
  }
  return ranges;
}

int RecordingTap::take_hit(const TensorKey& key, Role role, int call) {
  const std::string counter = counter_key(key, role);
  const std::lock_guard lock(mutex_);
  ++offered_;
  Hits& hits = hits_[counter];
  // Two tensors of one key would be one file: a hit that is taken gives way, but to none that a call may still want.
  if (call < hits.next || hits.beyond.contains(call))
    call = hits.beyond.empty() ? hits.next : *hits.beyond.rbegin() + 1;
  if (call != hits.next) {
    hits.beyond.insert(call);
    return call;
  }
  ++hits.next;
  while (!hits.beyond.empty() && *hits.beyond.begin() == hits.next) {
    hits.beyond.erase(hits.beyond.begin());
    ++hits.next;
  }
  return call;
}

std::optional<Tensor> RecordingTap::reference_value(const TensorKey& key, Role role) const {
  if (!options_.reference) return std::nullopt;
  const Record* record = options_.reference->find(key, role);
  if (!record || !options_.reference->has_values(*record)) return std::nullopt;
  return options_.reference->tensor(*record);
}

bool RecordingTap::wants_substitute(std::string_view name) const {
  return any_match(options_.substitute, name);
}

void RecordingTap::complain(const std::string& topic, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!complained_.insert(topic).second) return;
  }
  if (writer_)
    writer_->warn_once(topic, message);
  else
    print_error("lockstep: {}\n", message);
}

std::optional<Tensor> RecordingTap::offer(const TensorKey& key, const Tensor& tensor) {
  return offer(key, tensor, options_.role, {});
}

std::optional<Tensor> RecordingTap::offer_stage(const TensorKey& key, const Tensor& tensor) {
  return offer(key, tensor, Role::kCheckpoint, {});
}

std::optional<Tensor> RecordingTap::offer(const TensorKey& offered, const Tensor& tensor, Role role, const Where& where,
                                          bool may_substitute, int call) {
  if (!options_.filter.wants(offered.name)) return std::nullopt;
  Record record;
  record.key = offered;
  std::sort(record.key.tags.begin(), record.key.tags.end());
  record.key.hit = take_hit(record.key, role, call);
  record.role = role;
  record.where = where;
  if (!options_.filter.wants_step(offered.step)) return std::nullopt;

  std::optional<Tensor> replacement;
  try {
    std::optional<Tensor> reference;
    const bool substitute = may_substitute && wants_substitute(offered.name);
    if (substitute || options_.compared) reference = reference_value(record.key, role);
    if (reference && options_.compared) options_.compared(record.key, tensor.host(), *reference);
    if (reference && substitute) {
      if (without_ones(reference->shape()) == without_ones(tensor.shape()))
        replacement = reference->contiguous().reshape(tensor.shape()).to(tensor.dtype());
      else
        complain("shape " + offered.name,
                 fmt::format("{} is not substituted; expected the reference's shape {}, got {}", to_string(record.key),
                             to_string(reference->shape()), to_string(tensor.shape())));
    }
  } catch (const Error& error) {
    complain("reference", error.what());
  }
  record.substituted = replacement.has_value();
  if (replacement) {
    const std::lock_guard lock(mutex_);
    ++substituted_;
  }
  if (writer_) writer_->record(std::move(record), tensor);
  return replacement;
}

void RecordingTap::offer_input(const TensorKey& offered, const Tensor& tensor) {
  if (!writer_ || !options_.filter.wants(offered.name)) return;
  Record record;
  record.key = offered;
  std::sort(record.key.tags.begin(), record.key.tags.end());
  record.key.hit = take_hit(record.key, Role::kInput, -1);
  record.role = Role::kInput;
  if (options_.filter.wants_step(offered.step)) writer_->record(std::move(record), tensor);
}

int64_t RecordingTap::offered() const {
  const std::lock_guard lock(mutex_);
  return offered_;
}

int64_t RecordingTap::substituted() const {
  const std::lock_guard lock(mutex_);
  return substituted_;
}

}  // namespace lockstep
