#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/ends_soon.h"
#include "base/error.h"
#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/operation_options.h"
#include "cli/terminal.h"
#include "compare/question.h"
#include "report/html_report.h"
#include "service/compare_question.h"
#include "service/service.h"
#include "service/zoom_question.h"
#include "zoom/answer_text.h"

namespace lockstep {
namespace {

// What the question itself does not hold: how its answer is shown here.
struct Presentation {
  std::string report, propose_map;
  bool all = false, zoom = false;
};

void write_proposal(const App& app, const CompareAnswer& answer, const std::string& file) {
  write_atomically(file, map_from(answer).dump(2) + "\n");
  if (app.global.quiet) return;
  for (const ProposedRule& each : answer.proposal)
    print_error(
        "lockstep: {} is probably {} ({}{})\n", each.rule.candidate, each.rule.reference, each.why,
        each.rule.permute.empty() ? "" : fmt::format(", axes in the order {}", fmt::join(each.rule.permute, ", ")));
  print_error("lockstep: {} rules proposed in {}; read it, mend it, give it as --map\n", answer.proposal.size(), file);
}

ZoomQuestion zoom_question(const CompareQuestion& asked) {
  ZoomQuestion question;
  question.reference = asked.reference;
  question.candidate = asked.candidate;
  question.map = asked.map;
  return question;
}

void run_compare(App& app, const Operation& operation, const GivenWords& given, const Presentation& presentation) {
  const EndsSoonAfterInterrupt ends_soon;
  const fs::path home = home_folder(app.global.home);
  CompareQuestion question = question_from(checked_arguments(operation, arguments_from(operation, given)));
  question.propose = question.propose || !presentation.propose_map.empty();
  const CompareAnswer answer = answer_to(question, home);
  const Comparison& comparison = answer.comparison;
  if (!presentation.propose_map.empty()) write_proposal(app, answer, presentation.propose_map);
  std::optional<ZoomAnswer> zoomed;
  if (presentation.zoom && comparison.first) zoomed = answer_to(zoom_question(question), answer, home, true);
  const Json inside = zoomed ? zoom::json_from(zoomed->answer, zoomed->reference, zoomed->yours) : Json();
  if (!presentation.report.empty())
    write_html_report(presentation.report, comparison, answer.reference, answer.candidate, nullptr, inside);
  // The map that was found and used lies beside the report, to be read and mended.
  if (!presentation.report.empty() && !comparison.found.rules.empty())
    write_atomically(fs::path(presentation.report).replace_extension(".map.json"),
                     json_from(comparison.found.rules).dump(2) + "\n");
  const Terminal terminal(app.global);
  Json document = app.global.json ? json_from(answer) : Json();
  if (zoomed) document["zoom"] = inside;
  if (app.global.json)
    print_json(document);
  else if (!app.global.quiet || comparison.verdict != "match")
    print("{}", text_from(comparison, answer.reference, answer.candidate, presentation.all, terminal.color()));
  if (zoomed && !app.global.json)
    print("\nInside that call:\n{}", zoom::text_from(zoomed->answer, zoomed->reference, zoomed->yours, terminal.color(),
                                                     terminal.interactive() ? terminal.width() : 0));
  app.status = comparison.verdict == "match" ? 0 : 1;
  if (comparison.verdict != "nothing_compared") return;
  app.status = exit_status(Code::kBadInput);
  if (!app.global.json)
    fail(Code::kBadInput, "compare", "no tensor of the two runs could be compared", answer.nothing_compared);
}

}  // namespace

void add_compare(App& app) {
  const Operation& operation = known_operation("compare");
  CLI::App* command = app.cli.add_subcommand("compare", operation.help);
  command->footer(
      "lockstep compare latest:reference latest\nlockstep compare reference.run mine.run --weights model/ --report "
      "out.html\nlockstep compare a b --only 'transformer.*' --json");
  auto given = std::make_shared<GivenWords>();
  auto presentation = std::make_shared<Presentation>();
  add_arguments(*command, operation, *given);
  command
      ->add_option("--propose-map", presentation->propose_map,
                   "write the map that pairs the names; correct it and pass it with --map")
      ->type_name("FILE");
  command->add_flag("--all", presentation->all, "show every tensor");
  command->add_flag("--zoom", presentation->zoom,
                    "trace the first call that diverges and name the lines: see lockstep zoom");
  command->add_option("--report", presentation->report, "write a self-contained page")->type_name("OUT.html");
  command->callback([&app, &operation, given, presentation] { run_compare(app, operation, *given, *presentation); });
}

}  // namespace lockstep
