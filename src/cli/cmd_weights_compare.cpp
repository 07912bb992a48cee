#include "cli/cmd_weights_compare.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "compare/weights_compare.h"

namespace lockstep {
namespace {

struct Arguments {
  std::string a, b;
  size_t limit = 40;
};

}  // namespace

void add_weights_compare(App& app, CLI::App& group) {
  CLI::App* command = group.add_subcommand(
      "compare",
      "compare checkpoints by content: missing, unused, renamed, merged, duplicated, transposed, swapped, quantised");
  command->footer(
      "lockstep weights compare model/transformer my_port/transformer\nlockstep weights compare a.safetensors "
      "b.safetensors --json");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("A", arguments->a, "the correct checkpoint: a file, a folder, or a model folder")->required();
  command->add_option("B", arguments->b, "the checkpoint to check")->required();
  command->add_option("--limit", arguments->limit, "maximum number of findings; 0 for all")
      ->type_name("N")
      ->capture_default_str();
  command->callback([&app, arguments] {
    const auto a = open_weights(arguments->a), b = open_weights(arguments->b);
    if (a->shapes().empty() || b->shapes().empty())
      fail(Code::kBadInput, "weights compare", "there is nothing to compare",
           {.expected = "checkpoints with tensors",
            .got = fmt::format("{} and {} tensors", a->shapes().size(), b->shapes().size())});
    const WeightsComparison comparison = compare_weights(*a, *b);
    if (app.global.json)
      print_json(json_from(comparison));
    else
      print("{}", text_from(comparison, arguments->limit));
    app.status = comparison.match() ? 0 : 1;
  });
}

}  // namespace lockstep
