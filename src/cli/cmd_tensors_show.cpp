// lockstep tensors show and stats.
#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/number_text.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/cmd_tensors.h"
#include "cli/table.h"
#include "cli/tensor_selection.h"
#include "cli/tensor_text.h"
#include "measure/metrics_json.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

struct ShowOptions {
  TensorSelection selection;
  int rows = 40, digits = 6;
};

constexpr int64_t kMostJsonValues = 10000;

void run_show(App& app, ShowOptions& options) {
  options.selection.settle();
  const auto source = open_tensors(options.selection.path);
  const TensorInfo& info = select_one(*source, options.selection.name);
  const Tensor tensor = load_selected(*source, info, options.selection.slice);
  if (app.global.json) {
    if (tensor.numel() > kMostJsonValues)
      fail(Code::kUsage, "show", fmt::format("{} values are too many for one JSON document", tensor.numel()),
           {.expected = fmt::format("at most {}", kMostJsonValues), .hint = "a slice, or tensors export"});
    print_json({{"name", info.name},
                {"slice", options.selection.slice},
                {"dtype", dtype_name(tensor.dtype())},
                {"shape", tensor.shape()},
                {"values", values_json(tensor)}});
    return;
  }
  const Terminal terminal(app.global);
  print("{}{}  {} {}\n", terminal.styled(info.name, Style::kBold), options.selection.slice, dtype_name(tensor.dtype()),
        to_string(tensor.shape()));
  print("{}", text_from_tensor(tensor, {options.rows, terminal.width(), options.digits}));
}

struct StatsOptions {
  TensorSelection selection;
  size_t limit = 100;
};

void run_stats(App& app, StatsOptions& options) {
  TensorSelection& selection = options.selection;
  selection.settle();
  const auto source = open_tensors(selection.path);
  std::vector<const TensorInfo*> selected = select_tensors(*source, selection.name);
  size_t left = 0;
  if (options.limit > 0 && !app.global.json && selected.size() > options.limit) {
    left = selected.size() - options.limit;
    selected.resize(options.limit);
  }
  const Terminal terminal(app.global);
  using enum Table::Align;
  Table table({{"name", kLeft, true},
               {"dtype"},
               {"shape"},
               {"min", kRight},
               {"max", kRight},
               {"mean", kRight},
               {"std", kRight},
               {"rms", kRight},
               {"nan", kRight},
               {"inf", kRight},
               {"zero", kRight},
               {"denormal", kRight}});
  Json tensors = Json::array();
  {
    uint64_t bytes = 0;
    for (const TensorInfo* info : selected) bytes += info->size_bytes;
    Progress progress("statistics", static_cast<int64_t>(bytes), !app.global.quiet && bytes > (256u << 20));
    for (const TensorInfo* info : selected) {
      check_interrupt("stats");
      const Tensor tensor = load_selected(*source, *info, selection.slice);
      const Statistics s = tensor_statistics(tensor);
      progress.advance(static_cast<int64_t>(info->size_bytes));
      if (app.global.json) {
        tensors.push_back({{"name", info->name},
                           {"dtype", dtype_name(tensor.dtype())},
                           {"shape", tensor.shape()},
                           {"stats", json_from(s)}});
        continue;
      }
      const auto bad = [](int64_t count) { return Cell(text_from_count(count), count ? Style::kRed : Style::kPlain); };
      table.add({info->name, std::string(dtype_name(tensor.dtype())), to_string(tensor.shape()),
                 text_from_number(s.min), text_from_number(s.max), text_from_number(s.mean), text_from_number(s.std),
                 text_from_number(s.rms), bad(s.nan), bad(s.inf), text_from_count(s.zero),
                 text_from_count(s.denormal)});
    }
  }
  if (app.global.json)
    print_json({{"path", selection.path}, {"tensors", tensors}});
  else
    print("{}", table.text(terminal));
  if (left > 0) print("... {} more: name a glob, or --limit 0 for all\n", left);
}

}  // namespace

void add_tensors_show(App& app, CLI::App& group) {
  CLI::App* command = group.add_subcommand("show", "show values of one tensor or a slice of it, at most one screen");
  command->footer(
      "lockstep tensors show latents.npy\n"
      "lockstep tensors show latents.npy '[0, :, -1, ::2]'\n"
      "lockstep tensors show model.safetensors blocks.0.norm.weight '[:8]'");
  auto options = std::make_shared<ShowOptions>();
  options->selection.add_to(*command);
  command->add_option("--rows", options->rows, "maximum number of lines of values")
      ->type_name("N")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--digits", options->digits, "significant digits")
      ->type_name("N")
      ->check(CLI::Range(1, 17))
      ->capture_default_str();
  command->callback([&app, options] { run_show(app, *options); });
}

void add_tensors_stats(App& app, CLI::App& group) {
  CLI::App* command =
      group.add_subcommand("stats", "show min, max, mean, std, rms, and counts of NaN, Inf, zeros and denormals");
  command->footer("lockstep tensors stats latents.npy\nlockstep tensors stats model.safetensors '*.bias' --json");
  auto options = std::make_shared<StatsOptions>();
  options->selection.add_to(*command);
  command->add_option("--limit", options->limit, "maximum number of rows; 0 for all")
      ->type_name("N")
      ->capture_default_str();
  command->callback([&app, options] { run_stats(app, *options); });
}

}  // namespace lockstep
