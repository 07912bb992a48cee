#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <set>

#include "base/error.h"
#include "capture/run_reader.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/terminal.h"
#include "compare/batched_passes.h"
#include "compare/comparison.h"
#include "compare/map_proposal.h"
#include "report/html_report.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

struct CompareArguments {
  std::string propose_map, reference, candidate, map, tolerances, only, noise, report, weights, weights_a, weights_b;
  bool all = false;
};

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
    } catch (const Error&) {
      return "";
    }
  };
}

// Why there was nothing to compare: each reason has its own remedy.
Detail nothing_compared(const RunView& reference, const RunView& candidate, const Comparison& comparison,
                        const CompareArguments& arguments) {
  if (reference.records.empty() || candidate.records.empty())
    return {"two runs that hold records", "", "recording again; 'lockstep runs show RUN' says how the program ended"};
  if (!comparison.results.empty())
    return {"values that were kept on both sides", "", "recording without --stats-only, or with a larger --budget"};
  if (!arguments.only.empty() && comparison.only_reference.empty())
    return {"a name that fits --only " + arguments.only, "", "'lockstep runs show RUN' for the names"};
  std::set<std::string> names;
  for (const size_t i : comparison.only_reference) names.insert(reference.records[i].key.name);
  for (const size_t i : comparison.only_candidate)
    if (names.contains(candidate.records[i].key.name))
      return {"names recorded under the same steps, hits and passes, or equally often", "",
              "naming step and pass alike on both sides"};
  return {"runs that share names, or a map", "", "--propose-map FILE, --map FILE, or record both with the same names"};
}

// Only where files of a folder could not be read: how many of each side.
void add_skipped(Json& document, const RunView& reference, const RunView& candidate) {
  const auto count = [](const RunView& view) { return view.header.value("skipped", Json::array()).size(); };
  if (count(reference) + count(candidate) > 0)
    document["skipped_files"] = {{"reference", count(reference)}, {"candidate", count(candidate)}};
}

void run_compare(App& app, const CompareArguments& arguments) {
  const fs::path home = home_folder(app.global.home);
  RunView reference = open_view(arguments.reference, home), candidate = open_view(arguments.candidate, home);
  RunView noise;
  CompareOptions options;
  options.only = arguments.only;
  if (!arguments.map.empty()) options.map = read_map(arguments.map);
  if (!arguments.tolerances.empty()) options.tolerances = read_tolerances(arguments.tolerances);
  if (!arguments.noise.empty()) {
    noise = open_view(arguments.noise, home);
    options.noise = &noise;
  }
  if (std::string note = take_passes_apart(reference, candidate, options.map); !note.empty())
    options.notes.push_back(std::move(note));
  if (!arguments.propose_map.empty()) {
    const std::vector<ProposedRule> proposal = propose_map(reference, candidate, options.map, options.only);
    write_atomically(arguments.propose_map, json_from(proposal).dump(2) + "\n");
    for (const ProposedRule& each : proposal) {
      options.map.push_back(each.rule);
      if (!app.global.quiet)
        fmt::print(
            stderr, "lockstep: {} is probably {} ({}{})\n", each.rule.candidate, each.rule.reference, each.why,
            each.rule.permute.empty() ? "" : fmt::format(", axes in the order {}", fmt::join(each.rule.permute, ", ")));
    }
    if (!app.global.quiet)
      fmt::print(stderr, "lockstep: {} rules proposed in {}; read it, mend it, give it as --map\n", proposal.size(),
                 arguments.propose_map);
  }
  const std::string weights_a = arguments.weights_a.empty() ? arguments.weights : arguments.weights_a;
  if (!weights_a.empty()) {
    options.weights_reference = open_weights(weights_a);
    options.text_of_tokens = text_of_tokens(weights_a);
  }
  if (!arguments.weights_b.empty()) options.weights_candidate = open_weights(arguments.weights_b);
  const Comparison comparison = compare_runs(reference, candidate, options);
  if (!arguments.report.empty()) write_html_report(arguments.report, comparison, reference, candidate);
  if (app.global.json) {
    Json document = json_from(comparison, reference, candidate);
    add_skipped(document, reference, candidate);
    print_json(document);
  } else if (!app.global.quiet || comparison.verdict != "match") {
    fmt::print("{}", text_from(comparison, reference, candidate, arguments.all, Terminal(app.global).color()));
  }
  if (comparison.verdict == "nothing_compared") {
    if (app.global.json) {
      app.status = exit_status(Code::kBadInput);
      return;
    }
    Detail why = nothing_compared(reference, candidate, comparison, arguments);
    why.got = fmt::format("{} and {} records, {} pairs", reference.records.size(), candidate.records.size(),
                          comparison.results.size());
    fail(Code::kBadInput, "compare", "no tensor of the two runs could be compared", why);
  }
  app.status = comparison.verdict == "match" ? 0 : 1;
}

}  // namespace

void add_compare(App& app) {
  CLI::App* command = app.cli.add_subcommand("compare", "compare two runs: verdict, first divergence, cause");
  command->footer(
      "lockstep compare latest:reference latest\nlockstep compare reference.run mine.run --weights model/ --report "
      "out.html\nlockstep compare a b --only 'transformer.*' --json");
  auto arguments = std::make_shared<CompareArguments>();
  command->add_option("REFERENCE", arguments->reference, "the run that is right: an id, latest:NAME, or a folder")
      ->required();
  command->add_option("CANDIDATE", arguments->candidate, "the run to judge")->required();
  command->add_option("--map", arguments->map, "JSON file: names of the candidate to names of the reference")
      ->type_name("FILE");
  command
      ->add_option("--propose-map", arguments->propose_map,
                   "where names differ, guess by order, shape and content; write the map there and use it")
      ->type_name("FILE");
  command->add_option("--tolerances", arguments->tolerances, "JSON file: glob to largest relative error")
      ->type_name("FILE");
  command->add_option("--only", arguments->only, "compare these names alone")->type_name("GLOB");
  command->add_flag("--all", arguments->all, "show every tensor");
  command->add_option("--noise", arguments->noise, "a second reference run: its distance is the noise floor")
      ->type_name("RUN");
  command->add_option("--report", arguments->report, "write a self-contained page")->type_name("OUT.html");
  command
      ->add_option("--weights", arguments->weights,
                   "the checkpoint both sides load: lets weights be part of the diagnosis")
      ->type_name("DIR");
  command->add_option("--weights-a", arguments->weights_a, "the reference's checkpoint")->type_name("DIR");
  command->add_option("--weights-b", arguments->weights_b, "the candidate's checkpoint")->type_name("DIR");
  command->callback([&app, arguments] { run_compare(app, *arguments); });
}

}  // namespace lockstep
