// lockstep prune: a copy of the packages that a program uses, with only what ran in it.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/number_text.h"
#include "cli/app.h"
#include "cli/table.h"
#include "toolbox/prune.h"

namespace lockstep {
namespace {

constexpr size_t kMostListed = 40;

struct PruneOptions {
  PruneRequest request;
  std::string into, packages, markdown;
};

void print_pruned(const Terminal& terminal, const PruneReport& report) {
  using enum Table::Align;
  Table table({{"package"}, {"files", kRight}, {"of", kRight}, {"lines", kRight}, {"of", kRight}, {"share", kRight}});
  for (const PrunedPackage& package : report.packages)
    table.add({package.name, text_from_count(package.files_after), text_from_count(package.files_before),
               text_from_count(package.lines_after), text_from_count(package.lines_before),
               package.lines_before ? text_from_share(static_cast<double>(package.lines_after) /
                                                      static_cast<double>(package.lines_before))
                                    : "-"});
  if (report.dry_run) {
    Table files({{"lines", kRight}, {"why"}, {"would be kept", kLeft, true}});
    size_t shown = 0;
    for (const auto& [name, file] : report.files)
      if (++shown <= kMostListed)
        files.add({text_from_count(file.lines_after), file.why, name.first + "/" + name.second});
    print("{}", files.text(terminal));
    if (shown > kMostListed) print("... and {} more (--json or --markdown FILE has all)\n", shown - kMostListed);
    print("\n");
  }
  print("{}", table.text(terminal));
  for (const std::string& name : report.restored) print("restored, because the program needed it: {}\n", name);
  for (const std::string& path : report.left_links) print("not copied, it lies outside of its package: {}\n", path);
  if (report.dry_run) {
    print("nothing was written; the program was not run on a copy\n");
    return;
  }
  print("{} tensors are the same, bit for bit; what the program prints is {}\n", text_from_count(report.tensors),
        report.output_equal ? "the same" : "not the same");
  if (report.branch.empty())
    print("{}\n", report.into.string());
  else
    print("branch {}, commit {}\n", report.branch, report.commit.substr(0, 12));
}

}  // namespace

void add_prune(App& app) {
  CLI::App* command = app.cli.add_subcommand(
      "prune", "copy only the code of its packages that a Python program runs, and verify the copy");
  command->footer(
      "lockstep prune --dry-run -- python generate.py\nlockstep prune --into pruned --functions -- python generate.py\n"
      "lockstep prune --branch pruned --packages diffusers -- python generate.py");
  auto options = std::make_shared<PruneOptions>();
  command->add_option("--into", options->into, "create the copy here; the folder must not exist yet")
      ->type_name("FOLDER");
  command
      ->add_option("--branch", options->request.branch,
                   "create a new branch in the git checkout of the packages; nothing else in it changes")
      ->type_name("NAME");
  command
      ->add_option("--packages", options->packages,
                   "packages to prune, comma separated (default: those with parts of a model)")
      ->type_name("NAMES");
  command->add_flag(
      "--functions", options->request.functions,
      "remove the bodies of functions that never ran; they raise NotImplementedError with their original location");
  command->add_flag("--dry-run", options->request.dry_run, "run the program and show what would be kept");
  command->add_option("--markdown", options->markdown, "also write the report as Markdown")->type_name("FILE");
  command->add_option("--python", options->request.program.python, "the Python that runs a .py file (default python3)");
  command->add_option("program", options->request.program.argv, "after --: the program and its arguments");
  command->positionals_at_end();
  command->callback([&app, options] {
    PruneRequest& request = options->request;
    request.into = options->into;
    request.packages = words_with_commas(options->packages);
    request.program.home = home_folder(app.global.home);
    request.program.output_to_stderr = true;
    request.program.quiet = app.global.quiet;
    if (!app.global.quiet) request.tell = [](const std::string& what) { print_error("lockstep: {}\n", what); };
    const PruneReport report = prune_program(request);
    if (!options->markdown.empty()) write_atomically(options->markdown, prune_markdown(report));
    if (app.global.json)
      print_json(json_from(report));
    else
      print_pruned(Terminal(app.global), report);
  });
}

}  // namespace lockstep
