#include "compare/other_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "measure/pair_error.h"

namespace lockstep {
namespace {

constexpr size_t kMostCallsRead = 64;

std::vector<size_t> calls_named(const RunView& run, const RecordedTensor& like) {
  std::vector<size_t> out;
  for (size_t i = 0; i < run.records.size(); ++i)
    if (run.records[i].key.name == like.key.name && run.records[i].role == like.role) out.push_back(i);
  return out;
}

}  // namespace

std::optional<Finding> find_other_call(const RunView& reference, const RunView& candidate, const Pair& pair,
                                       double tolerance) {
  const RecordedTensor &r = reference.records[pair.reference], &c = candidate.records[pair.candidate];
  const std::vector<size_t> theirs = calls_named(reference, r);
  std::vector<size_t> own = calls_named(candidate, c);
  if (theirs.size() == own.size() || pair.rule >= 0 || !r.load || !is_floating(r.dtype)) return std::nullopt;
  const size_t count = own.size();
  const auto apart = [&](size_t i) { return i > pair.candidate ? i - pair.candidate : pair.candidate - i; };
  std::sort(own.begin(), own.end(), [&](size_t a, size_t b) { return apart(a) < apart(b); });
  if (own.size() > kMostCallsRead) own.resize(kMostCallsRead);
  const Tensor wanted = r.load();
  for (const size_t i : own) {
    const RecordedTensor& other = candidate.records[i];
    if (i == pair.candidate || !other.load || other.shape != r.shape) continue;
    const double residual = pair_error(other.load(), wanted).relative;
    if (!(residual <= tolerance)) continue;
    return Finding{.cause = "capture.other_hit",
                   .explanation = fmt::format(
                       "the reference's {} is your {}: the calls are counted differently, {} in the reference "
                       "and {} in yours",
                       to_string(r.key), to_string(other.key), theirs.size(), count),
                   .fix = "record the same calls on both sides: leave out a warm-up, or name the step or pass",
                   .look_at = r.key.name,
                   .residual = residual,
                   .blame = Blame::kCapture};
  }
  return std::nullopt;
}

}  // namespace lockstep
