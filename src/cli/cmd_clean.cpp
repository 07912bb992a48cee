// lockstep clean: what old work takes on the disk, and its removal.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "base/number_text.h"
#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/operation_options.h"
#include "cli/question.h"
#include "cli/table.h"
#include "service/service.h"
#include "service/toolbox_question.h"

namespace lockstep {
namespace {

constexpr size_t kMostRows = 20;

void print_items(const Terminal& terminal, const std::vector<StoredItem>& items) {
  Table table({{"kind"},
               {"name", Table::Align::kLeft, true},
               {"id", Table::Align::kLeft, true},
               {"age", Table::Align::kRight},
               {"size", Table::Align::kRight}});
  for (size_t i = 0; i < std::min(items.size(), kMostRows); ++i) {
    const StoredItem& item = items[i];
    table.add({std::string(kind_name(item.kind)), item.name, item.id, text_from_age(item.age_secs),
               text_from_bytes(item.bytes)});
  }
  print(table.text(terminal));
  if (items.size() > kMostRows) print("... and {} more\n", items.size() - kMostRows);
}

void print_sums(const Terminal& terminal, const std::vector<StoredItem>& items) {
  struct Sum {
    size_t count = 0;
    uint64_t bytes = 0;
    double oldest = 0;
  };
  std::map<StoredKind, Sum> sums;
  for (const StoredItem& item : items) {
    Sum& sum = sums[item.kind];
    ++sum.count;
    sum.bytes += item.bytes;
    sum.oldest = std::max(sum.oldest, item.age_secs);
  }
  Table table(
      {{"kind"}, {"items", Table::Align::kRight}, {"oldest", Table::Align::kRight}, {"size", Table::Align::kRight}});
  for (const auto& [kind, sum] : sums)
    table.add({std::string(kind_name(kind)), std::to_string(sum.count), text_from_age(sum.oldest),
               text_from_bytes(sum.bytes)});
  print(table.text(terminal));
}

void run_clean(App& app, const Json& arguments, bool dry_run) {
  const fs::path home = home_folder(app.global.home);
  const CleanPlan plan = plan_clean(home, clean_request_from(arguments));
  const Terminal terminal(app.global);
  if (!app.global.json && !plan.remove.empty()) {
    print_items(terminal, plan.remove);
    print("\n");
    print_sums(terminal, plan.remove);
  }
  if (!app.global.json)
    for (const StoredItem& item : plan.in_use) print("{} {} stays: {}\n", kind_name(item.kind), item.id, item.in_use);
  const Text what = Text::of("{} items, {}", plan.remove.size(), text_from_bytes(plan.bytes));
  const bool nothing = plan.remove.empty();
  const bool removes = !nothing && !dry_run &&
                       (arguments["yes"].get<bool>() || (!app.global.json && agreed(Text::of("Remove {}?", what))));
  std::vector<StoredItem> removed;
  if (removes) removed = remove_items(home, plan.remove);
  if (app.global.json) {
    print_json(clean_json(home, plan, removes ? &removed : nullptr));
    return;
  }
  if (nothing)
    print("nothing to remove in {}\n", home);
  else if (removes)
    print("removed {} items\n", removed.size());
  else
    print("would remove {}; add --yes to do it\n", what);
  const Store store(home);
  print("{} used; warning at {}, no more full tensors at {} (lockstep runs limits)\n",
        text_from_bytes(store.size_bytes()), text_from_bytes(store.limits().warn_bytes),
        text_from_bytes(store.limits().refuse_bytes));
}

}  // namespace

void add_clean(App& app) {
  const Operation& operation = known_operation("clean");
  CLI::App* command = app.cli.add_subcommand("clean", operation.help);
  command->footer("lockstep clean\nlockstep clean --older-than 7d --keep-last 2 --yes\nlockstep clean --only sessions");
  auto given = std::make_shared<GivenWords>();
  auto dry_run = std::make_shared<bool>(false);
  add_arguments(*command, operation, *given);
  command->add_flag("--dry-run", *dry_run, "only show what would be removed");
  command->callback([&app, &operation, given, dry_run] {
    run_clean(app, checked_arguments(operation, arguments_from(operation, *given)), *dry_run);
  });
}

}  // namespace lockstep
