#include "compare/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "diagnose/case/structure.h"

namespace lockstep {
namespace {

constexpr double kMostOfIt = 0.5;  // of the reference's tensors; below, a recorded program was not compared as a whole

bool counts_for(const RecordedTensor& record, bool with_inputs) {
  return with_inputs || record.role != Role::kInput;
}

// " (rank 1 first)": of a program of several processes.
std::string first_failed_rank(const Json& header) {
  const auto failed = header.find("failed_rank");
  if (failed == header.end() || !failed->is_object() || !failed->contains("rank")) return "";
  const Json& rank = (*failed)["rank"];
  return rank.is_number_integer() ? fmt::format(" (rank {} first)", rank.get<int64_t>()) : "";
}

// "failed with exit status 1", "was killed"; empty when it ended well or nothing is known.
std::string failure_of(const RunView& run) {
  if (!run.header.is_object()) return "";
  const Json status = run.header.value("status", Json());  // of a file: it may be anything
  int exit_code = 0;
  if (run.header.contains("program") && run.header["program"].is_object()) {
    const Json& program = run.header["program"];
    if (program.contains("exit_code") && program["exit_code"].is_number_integer()) exit_code = program["exit_code"];
  }
  const std::string rank = first_failed_rank(run.header);
  if (status == "killed") return "was killed" + rank;
  if (exit_code != 0) return fmt::format("failed with exit status {}{}", exit_code, rank);
  return status == "failed" ? "failed" + rank : "";
}

bool is_a_result(const RecordedTensor& record) {
  return record.role == Role::kOutput && is_floating(record.dtype) && checked_numel(record.shape) > 1;
}

// What the reference returns at its end and that was compared under no name, by its number of elements.
std::set<int64_t> open_ends(const RunView& reference, const std::vector<size_t>& left) {
  std::set<std::string> compared;
  for (size_t i = 0; i < reference.records.size(); ++i)
    if (!std::binary_search(left.begin(), left.end(), i)) compared.insert(reference.records[i].checksum);
  std::set<int64_t> out;
  for (size_t i = reference.records.size(); i-- > 0 && reference.records[i].role != Role::kInput;) {
    const RecordedTensor& record = reference.records[i];
    if (is_a_result(record) && !record.checksum.empty() && !compared.contains(record.checksum))
      out.insert(checked_numel(record.shape));
  }
  return out;
}

// What the candidate's last call returned.
std::vector<size_t> last_results(const RunView& run) {
  std::vector<size_t> out;
  const Structure structure(run);
  for (size_t i = run.records.size(); i-- > 0;) {
    if (run.records[i].role != Role::kOutput) continue;
    if (!out.empty() && !(same_call(run, out[0], i) && structure.site(out[0]).module == structure.site(i).module))
      break;
    out.push_back(i);
  }
  return out;
}

}  // namespace

Coverage coverage_of(const RunView& reference, const RunView& candidate, const Comparison& comparison) {
  Coverage out;
  const bool with_inputs = !has_no_inputs(candidate);
  for (const PairResult& result : comparison.results) {
    const RecordedTensor& record = reference.records[result.pair.reference];
    out.paired += result.state != PairState::kUnread && counts_for(record, with_inputs);
    out.of += counts_for(record, with_inputs);
  }
  for (const size_t i : comparison.only_reference) out.of += counts_for(reference.records[i], with_inputs);
  out.failure = failure_of(candidate);
  // A program that names a few tensors itself is judged by those.
  const bool by_hand = std::none_of(candidate.records.begin(), candidate.records.end(),
                                    [](const RecordedTensor& record) { return record.role == Role::kOutput; });
  // One that found no partner may be the one that differs: where the names are the program's own, whichever it is;
  // else where a tensor of the reference has as many elements and none either.
  const bool renamed = !comparison.found.rules.empty() || !comparison.found.unsure.empty();
  std::set<std::string> paired, open;
  std::set<int64_t> sizes;
  for (const PairResult& result : comparison.results) paired.insert(candidate.records[result.pair.candidate].key.name);
  for (const size_t i : comparison.only_reference)
    if (counts_for(reference.records[i], false)) sizes.insert(checked_numel(reference.records[i].shape));
  for (const size_t i : comparison.only_candidate) {
    const RecordedTensor& own = candidate.records[i];
    const bool may_be_one = own.role == Role::kCheckpoint && sizes.contains(checked_numel(own.shape));
    if (((by_hand && renamed) || may_be_one) && !paired.contains(own.key.name)) open.insert(own.key.name);
  }
  // So may what a program returns: a match of all before it is no match.
  const std::set<int64_t> ends = open_ends(reference, comparison.only_reference);
  for (const size_t i : last_results(candidate)) {
    const RecordedTensor& own = candidate.records[i];
    if (std::binary_search(comparison.only_candidate.begin(), comparison.only_candidate.end(), i) && is_a_result(own) &&
        ends.contains(checked_numel(own.shape)))
      open.insert(own.key.name);
  }
  out.left_out = open.size();
  out.is_low = out.share() < kMostOfIt;
  out.is_partial = !out.failure.empty() || (out.is_low && !by_hand) || out.left_out > 0;
  return out;
}

std::string end_not_compared(const RunView& reference, const Comparison& comparison) {
  const auto& left = comparison.only_reference;
  for (size_t i = reference.records.size(); i-- > 0;)
    if (counts_for(reference.records[i], false))
      return std::binary_search(left.begin(), left.end(), i) ? reference.records[i].key.name : "";
  return "";
}

}  // namespace lockstep
