// lockstep tensors clear: forget tensors that programs have saved by name.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/names.h"
#include "base/number_text.h"
#include "base/text.h"
#include "capture/saved_tensors.h"
#include "capture/store.h"
#include "cli/cmd_tensors.h"
#include "cli/question.h"
#include "cli/table.h"

namespace lockstep {
namespace {

struct ClearOptions {
  std::string pattern;
  bool yes = false;
};

std::vector<SavedTensor> choose(const fs::path& home, const std::string& pattern) {
  std::vector<SavedTensor> chosen;
  std::vector<std::string> known;
  for (SavedTensor& tensor : saved_tensors(home)) {
    known.push_back(tensor.name);
    if (pattern.empty() || tensor.name == pattern || glob_match(pattern, tensor.name))
      chosen.push_back(std::move(tensor));
  }
  if (chosen.empty() && !pattern.empty()) {
    const std::vector<std::string> near = nearest_names(pattern, known);
    fail(Code::kNotFound, "clear", fmt::format("no saved tensor '{}' in {}", pattern, (home / "saved").string()),
         {.hint = fmt::format("{}", fmt::join(near, " or "))});
  }
  return chosen;
}

bool may_remove(const std::vector<SavedTensor>& chosen, uint64_t bytes) {
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < chosen.size() && i < kShown; ++i) print_error("  {}\n", chosen[i].name);
  if (chosen.size() > kShown) print_error("  ... {} more\n", chosen.size() - kShown);
  return agreed(Text::of("remove {} saved tensors, {}?", chosen.size(), text_from_bytes(bytes)));
}

void run_clear(App& app, const ClearOptions& options) {
  const std::vector<SavedTensor> chosen = choose(home_folder(app.global.home), options.pattern);
  uint64_t bytes = 0;
  Json removed = Json::array();
  for (const SavedTensor& tensor : chosen) bytes += tensor.bytes;
  if (!chosen.empty() && !options.yes) {
    if (!somebody_is_there())
      fail(Code::kUsage, "clear",
           fmt::format("{} saved tensors would be removed, and nobody is there to ask", chosen.size()),
           {.hint = "--yes"});
    if (!may_remove(chosen, bytes)) {
      print_error("nothing removed\n");
      return;
    }
  }
  for (const SavedTensor& tensor : chosen) {
    remove_saved(tensor);
    removed.push_back(tensor.name);
  }
  if (app.global.json)
    print_json({{"removed", removed}, {"bytes", bytes}});
  else
    print("removed {} saved tensors, {} freed\n", chosen.size(), text_from_bytes(bytes));
}

}  // namespace

void add_tensors_clear(App& app, CLI::App& group) {
  CLI::App* command =
      group.add_subcommand("clear", "remove tensors that programs saved by name; for runs, see runs remove");
  command->footer("lockstep tensors clear 'latents*'\nlockstep tensors clear --yes");
  auto options = std::make_shared<ClearOptions>();
  command->add_option("NAME", options->pattern, "a saved tensor's name, or a glob (default: all)");
  command->add_flag("--yes", options->yes, "do not ask");
  command->callback([&app, options] { run_clear(app, *options); });
}

}  // namespace lockstep
