// lockstep coverage: which code of a Python program really runs.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/number_text.h"
#include "base/text.h"
#include "capture/recorded_program.h"
#include "cli/app.h"
#include "cli/shown_run.h"
#include "cli/table.h"
#include "toolbox/coverage.h"

namespace lockstep {
namespace {

constexpr size_t kMostFiles = 25, kMostPlaces = 8;

struct CoverageOptions {
  RecordRequest request;
  std::string run, markdown, page;
  bool lines = false;
};

std::string of(int64_t part, int64_t whole) {
  return fmt::format("{} of {}", text_from_count(part), text_from_count(whole));
}

void print_sums(const Terminal& terminal, const Text& title, const std::vector<CoverageSum>& sums, bool lines) {
  using enum Table::Align;
  std::vector<Table::Column> columns{{title}, {"files used", kRight}, {"functions run", kRight}, {"calls", kRight}};
  if (lines) columns.push_back({"lines run", kRight});
  Table table(columns);
  for (const CoverageSum& sum : sums) {
    std::vector<Cell> row{sum.group, of(sum.files_used, sum.files), of(sum.functions_run, sum.functions),
                          text_from_count(sum.calls)};
    if (lines) row.push_back(of(sum.lines_run, sum.lines));
    table.add(row);
  }
  print("{}\n", table.text(terminal));
}

void print_files(const Terminal& terminal, const ProgramCoverage& coverage) {
  using enum Table::Align;
  Table table({{"component"}, {"functions", kRight}, {"calls", kRight}, {"file", kLeft, true}});
  size_t shown = 0, left = 0;
  for (const CoveredFile& file : coverage.files) {
    if (!file.used() || (file.component == "other" && file.package != "program")) continue;
    if (++shown > kMostFiles) {
      ++left;
      continue;
    }
    table.add({file.component, std::to_string(file.functions_run), text_from_count(file.calls), file.path});
  }
  if (shown == 0) return;
  print("{}", table.text(terminal));
  if (left > 0) print("... and {} more (--json, --markdown FILE or --html FILE has all)\n", left);
  print("\n");
}

void print_places(const Terminal& terminal, const Text& title, const std::vector<FunctionPlace>& places) {
  if (places.empty()) return;
  using enum Table::Align;
  Table table({{"calls", kRight}, {title}, {"where", kLeft, true}});
  for (const FunctionPlace& place : places)
    table.add({text_from_count(place.function->calls), place.function->name,
               fmt::format("{}:{}", place.file->path, place.function->line)});
  print("{}\n", table.text(terminal));
}

void print_coverage(const Terminal& terminal, const ProgramCoverage& coverage) {
  print_sums(terminal, "component", by_component(coverage), coverage.lines);
  print_sums(terminal, "package", by_package(coverage), coverage.lines);
  print_files(terminal, coverage);
  print_places(terminal, "a breakpoint stops rarely", cheapest(coverage, kMostPlaces));
  print_places(terminal, "a breakpoint stops often", busiest(coverage, kMostPlaces));
  for (const LikeNamed& like : coverage.like_named)
    print("{} ran; not used: {}\n", like.used, joined(like.unused, ", "));
}

void run_coverage(App& app, CoverageOptions& options) {
  options.request.record_modules = false;
  options.request.coverage = options.lines ? "lines" : "functions";
  const fs::path run = run_to_show(app, "coverage", options.run, options.request, &record_program);
  const ProgramCoverage coverage = read_coverage(run);
  if (!options.markdown.empty()) write_atomically(options.markdown, coverage_markdown(coverage));
  if (!options.page.empty())
    write_atomically(options.page, coverage_page(coverage, "What ran in " + run.filename().string()));
  if (app.global.json) {
    Json document = json_from(coverage);
    document["run"] = run.filename().string();
    print_json(document);
  } else {
    print_coverage(Terminal(app.global), coverage);
  }
}

}  // namespace

void add_coverage(App& app) {
  CLI::App* command =
      app.cli.add_subcommand("coverage", "run a Python program and show which files, functions and lines ran");
  command->footer(
      "lockstep coverage -- python generate.py\nlockstep coverage --lines --html ran.html -- python generate.py\n"
      "lockstep coverage --run latest --json");
  auto options = std::make_shared<CoverageOptions>();
  command->add_flag("--lines", options->lines, "also count lines (slower on Python before 3.12)");
  command->add_option("--name", options->request.name, "name of the run (default: the script's)");
  command->add_option("--run", options->run, "show an earlier run with coverage")->type_name("RUN");
  command->add_option("--markdown", options->markdown, "also write it as Markdown")->type_name("FILE");
  command->add_option("--html", options->page, "also write it as an HTML page")->type_name("FILE");
  command->add_option("--python", options->request.python, "the Python that runs a .py file (default python3)");
  command->add_option("program", options->request.argv, "after --: the program and its arguments");
  command->positionals_at_end();
  command->callback([&app, options] { run_coverage(app, *options); });
}

}  // namespace lockstep
