#include "compare/question.h"

#include <fmt/format.h>

#include <set>

#include "base/folder.h"
#include "capture/run_reader.h"
#include "compare/batched_passes.h"
#include "compare/comparison_summary.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

RunView open_view(const std::string& spec, const fs::path& home) {
  return view_of(std::make_shared<const Run>(Run::open(spec, home)));
}

std::map<std::string, double> read_tolerances(const fs::path& file) {
  std::map<std::string, double> out;
  const Json document = read_json(file);
  if (!document.is_object())
    fail(Code::kBadInput, "tolerances", "not an object in " + file.string(),
         {.expected = R"({"glob": relative error, ...})"});
  for (const auto& [glob, limit] : document.items()) {
    if (!limit.is_number() || limit.get<double>() < 0)
      fail(Code::kBadInput, "tolerances", "no limit for " + glob,
           {.expected = "a number of 0 or more", .got = limit.dump()});
    out[glob] = limit.get<double>();
  }
  return out;
}

// Of a model folder; a checkpoint alone has none, and then ids are shown as numbers. So they are where the tokenizer
// cannot be read, or does not know an id: words about a difference are no reason to fail.
std::function<std::string(const std::vector<int32_t>&)> text_of_tokens(const fs::path& model) {
  const fs::path folder = model / "tokenizer";
  std::error_code error;
  if (!fs::exists(folder, error)) return nullptr;
  return [folder, tokenizer = std::shared_ptr<Tokenizer>()](const std::vector<int32_t>& ids) mutable -> std::string {
    try {
      if (!tokenizer) tokenizer = std::make_shared<Tokenizer>(Tokenizer::load(folder));
      return tokenizer->decode(ids);
    } catch (const Error& error) {
      if (system_refused(error)) throw;
      return "";
    }
  };
}

// Each reason has its own remedy.
Detail why_nothing_was_compared(const CompareQuestion& question, const CompareAnswer& answer) {
  const RunView &reference = answer.reference, &candidate = answer.candidate;
  const Comparison& comparison = answer.comparison;
  const std::string got = fmt::format("{} and {} records, {} pairs", reference.records.size(), candidate.records.size(),
                                      comparison.results.size());
  if (reference.records.empty() || candidate.records.empty())
    return {"two runs that hold records", got, "recording again; 'lockstep runs show RUN' says how the program ended"};
  if (!comparison.results.empty())
    return {"values that were kept on both sides", got, "recording without --stats-only, or with a larger --budget"};
  if (!question.only.empty() && comparison.only_reference.empty())
    return {"a name that fits --only " + question.only, got, "'lockstep runs show RUN' for the names"};
  std::set<std::string> names;
  for (const size_t i : comparison.only_reference) names.insert(reference.records[i].key.name);
  for (const size_t i : comparison.only_candidate)
    if (names.contains(candidate.records[i].key.name))
      return {"names recorded under the same steps, hits and passes, or equally often", got,
              "naming step and pass alike on both sides"};
  return {"runs that share names, or a map", got, "--map FILE, or record both with the same names"};
}

}  // namespace

CompareAnswer answer_to(const CompareQuestion& question, const fs::path& home) {
  RunView reference = open_view(question.reference, home), candidate = open_view(question.candidate, home);
  return answer_to(question, home, std::move(reference), std::move(candidate));
}

CompareAnswer answer_to(const CompareQuestion& question, const fs::path& home, RunView reference, RunView candidate) {
  CompareAnswer answer;
  answer.reference = std::move(reference), answer.candidate = std::move(candidate);
  CompareOptions options;
  options.only = question.only;
  options.partial = question.partial;
  if (!question.map.empty()) options.map = read_map(question.map);
  if (!question.tolerances.empty()) options.tolerances = read_tolerances(question.tolerances);
  answer.ranks = put_ranks_together(answer.reference, answer.candidate, options.map,
                                    question.map.empty() ? RankRules() : read_rank_rules(question.map));
  options.notes = answer.ranks.notes;
  RunView noise;
  if (!question.noise.empty()) {
    noise = open_view(question.noise, home);
    RunView again = answer.reference;
    put_ranks_together(again, noise, {}, {});
    options.noise = &noise;
  }
  if (std::string note = take_passes_apart(answer.reference, answer.candidate, options.map); !note.empty())
    options.notes.push_back(std::move(note));
  if (question.propose) {
    answer.proposal = propose_map(answer.reference, answer.candidate, options.map, options.only);
    for (const ProposedRule& each : answer.proposal) options.map.push_back(each.rule);
  }
  const std::string& of_reference = question.weights_a.empty() ? question.weights : question.weights_a;
  if (!of_reference.empty()) {
    options.weights_reference = open_weights(of_reference);
    options.text_of_tokens = text_of_tokens(of_reference);
  }
  if (!question.weights_b.empty()) options.weights_candidate = open_weights(question.weights_b);
  answer.comparison = compare_runs(answer.reference, answer.candidate, options);
  if (answer.comparison.verdict == "nothing_compared")
    answer.nothing_compared = why_nothing_was_compared(question, answer);
  return answer;
}

Json map_from(const CompareAnswer& answer) {
  Json map = json_from(answer.proposal);
  if (!answer.ranks.found.empty()) map["ranks"] = answer.ranks.found;
  return map;
}

namespace {

Json with_more(Json document, const CompareAnswer& answer) {
  if (!answer.proposal.empty()) document["map"] = json_from(answer.proposal);
  if (!answer.ranks.found.empty()) document["ranks"] = answer.ranks.found;
  // Only where files of a folder could not be read: how many of each side.
  const auto skipped = [](const RunView& view) { return view.header.value("skipped", Json::array()).size(); };
  if (skipped(answer.reference) + skipped(answer.candidate) > 0)
    document["skipped_files"] = {{"reference", skipped(answer.reference)}, {"candidate", skipped(answer.candidate)}};
  if (const Detail& why = answer.nothing_compared; !why.hint.empty())
    document["nothing_compared"] = {{"expected", why.expected}, {"got", why.got}, {"hint", why.hint}};
  return document;
}

}  // namespace

Json json_from(const CompareAnswer& answer) {
  return with_more(json_from(answer.comparison, answer.reference, answer.candidate), answer);
}

Json summary_json(const CompareAnswer& answer) {
  return with_more(summary_json(answer.comparison, answer.reference, answer.candidate), answer);
}

}  // namespace lockstep
