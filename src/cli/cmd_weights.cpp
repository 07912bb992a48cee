// lockstep weights: look into checkpoints without loading them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/number_text.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/app.h"
#include "cli/cmd_tensors.h"
#include "cli/cmd_weights_compare.h"
#include "cli/table.h"
#include "cli/tensor_selection.h"
#include "cli/tensor_text.h"
#include "cli/weights_tree.h"
#include "measure/checkpoint_health.h"
#include "measure/metrics_json.h"

namespace lockstep {
namespace {

struct WeightsOptions {
  std::string path, pattern;
  int depth = 0;  // 0: as deep as a screen holds
  size_t limit = 100;
};

// The deepest tree that is still a screen, or its first lines where even one level is more.
Text fitting_tree(const WeightsTree& tree, const Terminal& terminal) {
  constexpr int64_t kLines = 60;
  constexpr int kDeepest = 32;
  const auto lines = [](const Text& text) { return std::count(text.string().begin(), text.string().end(), '\n'); };
  Text text = tree.text(terminal, 1);
  for (int depth = 2; depth <= kDeepest; ++depth) {
    Text deeper = tree.text(terminal, depth);
    if (lines(deeper) > kLines || deeper == text) break;
    text = std::move(deeper);
  }
  if (lines(text) <= kLines) return text;
  size_t end = 0;
  for (int64_t i = 0; i < kLines; ++i) end = text.string().find('\n', end) + 1;
  const int64_t left = lines(text) - kLines;
  return Text::trusted(text.string().substr(0, end)) +
         Text::of("... {} more lines: name a glob, or --depth N for all\n", left);
}

void run_list(App& app, const WeightsOptions& options) {
  const auto source = open_tensors(options.path);
  const WeightsTree tree(select_tensors(*source, options.pattern));
  if (app.global.json)
    print_json(tree.json(options.depth > 0 ? options.depth : std::numeric_limits<int>::max()));
  else if (options.depth > 0)
    print("{}", tree.text(Terminal(app.global), options.depth));
  else
    print("{}", fitting_tree(tree, Terminal(app.global)));
}

// A word finds every name that holds it; a glob is matched as a whole.
std::vector<const TensorInfo*> search(const TensorSource& source, const std::string& pattern) {
  if (is_glob(pattern)) return select_tensors(source, pattern);
  std::vector<const TensorInfo*> found;
  for (const TensorInfo& info : source.tensors())
    if (info.name.find(pattern) != std::string::npos) found.push_back(&info);
  return found.empty() ? select_tensors(source, pattern) : found;  // the latter says what is near
}

void run_search(App& app, const WeightsOptions& options) {
  const auto source = open_tensors(options.path);
  const std::vector<const TensorInfo*> found = search(*source, options.pattern);
  if (app.global.json) {
    Json tensors = Json::array();
    for (const TensorInfo* info : found) tensors.push_back(json_from(*info));
    print_json({{"path", options.path}, {"tensors", tensors}});
    return;
  }
  Table table({{"name", Table::Align::kLeft, true}, {"dtype"}, {"shape"}, {"size", Table::Align::kRight}});
  for (size_t i = 0; i < found.size() && (options.limit == 0 || i < options.limit); ++i)
    table.add({found[i]->name, std::string(dtype_name(found[i]->dtype)), to_string(found[i]->shape),
               text_from_bytes(found[i]->size_bytes)});
  print("{}", table.text(Terminal(app.global)));
  if (options.limit > 0 && found.size() > options.limit)
    print("... {} more: --limit 0 for all\n", found.size() - options.limit);
  print("{} found\n", text_from_count(static_cast<int64_t>(found.size())));
}

void run_show(App& app, const WeightsOptions& options) {
  const auto source = open_tensors(options.path);
  const TensorInfo& info = select_one(*source, options.pattern);
  const Tensor tensor = source->tensor(info.name);
  const Statistics s = tensor_statistics(tensor);
  if (app.global.json) {
    Json json = json_from(info);
    json["stats"] = json_from(s);
    print_json(json);
    return;
  }
  const Terminal terminal(app.global);
  print("{}  {} {}  {}\n", terminal.styled(info.name, Style::kBold), dtype_name(info.dtype), to_string(info.shape),
        text_from_bytes(info.size_bytes));
  print("{} at offset {}\n\n", info.file.string(), info.offset_bytes);
  using enum Table::Align;
  Table table({{"min", kRight},
               {"max", kRight},
               {"mean", kRight},
               {"std", kRight},
               {"rms", kRight},
               {"nan", kRight},
               {"inf", kRight},
               {"zero", kRight},
               {"denormal", kRight}});
  table.add({text_from_number(s.min), text_from_number(s.max), text_from_number(s.mean), text_from_number(s.std),
             text_from_number(s.rms), text_from_count(s.nan), text_from_count(s.inf), text_from_count(s.zero),
             text_from_count(s.denormal)});
  print("{}\n{}", table.text(terminal), text_from_tensor(tensor, {12, terminal.width(), 6}));
}

Style style_of(HealthFinding::Severity severity) {
  return severity == HealthFinding::Severity::kError     ? Style::kRed
         : severity == HealthFinding::Severity::kWarning ? Style::kYellow
                                                         : Style::kDim;
}

void print_report(const App& app, const WeightsOptions& options, const CheckpointHealth& health) {
  const Terminal terminal(app.global);
  size_t counts[3] = {};
  size_t shown = 0;
  for (const HealthFinding& finding : health.findings) {
    ++counts[static_cast<size_t>(finding.severity)];
    if (options.limit > 0 && shown >= options.limit) continue;
    ++shown;
    std::vector<std::string> names;
    for (size_t i = 0; i < finding.tensors.size() && i < 4; ++i) names.push_back(finding.tensors[i]);
    if (finding.tensors.size() > 4) names.push_back("...");
    print("{}  {:<14} {}: {}\n",
          terminal.styled(fmt::format("{:<7}", severity_name(finding.severity)), style_of(finding.severity)),
          finding.check, joined(names, ", "), finding.explanation);
  }
  if (shown < health.findings.size()) print("... {} more: --limit 0 for all\n", health.findings.size() - shown);
  print("{} tensors examined: {} errors, {} warnings, {} notes\n",
        text_from_count(static_cast<int64_t>(health.entries.size())), counts[0], counts[1], counts[2]);
}

void run_report(App& app, const WeightsOptions& options) {
  const auto source = open_tensors(options.path);
  const std::vector<const TensorInfo*> selected = select_tensors(*source, options.pattern);
  int64_t bytes = 0;
  for (const TensorInfo* info : selected) bytes += static_cast<int64_t>(info->size_bytes);
  CheckpointHealth health;
  {
    Progress progress("examining", bytes, !app.global.quiet);
    health = examine_checkpoint(*source, selected, [&](int64_t done) { progress.advance(done); });
  }
  const bool errors = std::any_of(health.findings.begin(), health.findings.end(),
                                  [](const HealthFinding& f) { return f.severity == HealthFinding::Severity::kError; });
  app.status = errors ? 1 : 0;
  if (!app.global.json) return print_report(app, options, health);
  Json tensors = Json::array(), findings = Json::array();
  for (const auto& entry : health.entries) {
    tensors.push_back(json_from(*entry.info));
    tensors.back()["stats"] = json_from(entry.statistics);
  }
  for (const HealthFinding& finding : health.findings)
    findings.push_back({{"severity", severity_name(finding.severity)},
                        {"check", finding.check},
                        {"tensors", finding.tensors},
                        {"explanation", finding.explanation}});
  print_json({{"path", options.path}, {"findings", findings}, {"tensors", tensors}});
}

using Work = void (*)(App&, const WeightsOptions&);

std::pair<CLI::App*, std::shared_ptr<WeightsOptions>> add_verb(App& app, CLI::App& group, const char* name,
                                                               const char* help, Work run) {
  CLI::App* command = group.add_subcommand(name, help);
  auto options = std::make_shared<WeightsOptions>();
  command->add_option("PATH", options->path, "a checkpoint: a file, an index, or a folder with shards")->required();
  command->callback([&app, options, run] { run(app, *options); });
  return {command, options};
}

}  // namespace

void add_weights(App& app) {
  CLI::App* group = app.cli.add_subcommand("weights", "inspect checkpoints without loading them");
  group->require_subcommand(1);
  group->footer(
      "lockstep weights list model/transformer\nlockstep weights search model/transformer to_q\nlockstep weights "
      "report model/vae");

  add_weights_compare(app, *group);
  auto [list, list_options] =
      add_verb(app, *group, "list", "show the tree of names, with shapes, dtypes and sizes", run_list);
  list->footer(
      "lockstep weights list model/transformer\nlockstep weights list model/transformer 'transformer_blocks.0.*' "
      "--depth 9");
  list->add_option("PATTERN", list_options->pattern, "a glob: only these tensors");
  list->add_option("--depth", list_options->depth, "levels of the tree (default: as many as fit on a screen)")
      ->type_name("N")
      ->check(CLI::Range(1, 100));

  auto [search, search_options] =
      add_verb(app, *group, "search", "find tensors by part of their name or a glob", run_search);
  search->footer(
      "lockstep weights search model/transformer to_q\nlockstep weights search model/transformer '*.norm_?.weight'");
  search->add_option("PATTERN", search_options->pattern, "a part of the name, or a glob")->required();
  search->add_option("--limit", search_options->limit, "maximum number of rows; 0 for all")
      ->type_name("N")
      ->capture_default_str();

  auto [show, show_options] =
      add_verb(app, *group, "show", "show one tensor: its location, statistics and edge values", run_show);
  show->footer("lockstep weights show model/vae decoder.conv_in.weight");
  show->add_option("NAME", show_options->pattern, "the tensor's name")->required();

  add_diff(app, *group, "diff",
           "compare two checkpoints tensor by tensor; exit status 0 if they match, 1 if they differ",
           "lockstep weights diff official/transformer converted/transformer\n"
           "lockstep weights diff a.safetensors b.safetensors '*.norm*' --tolerance exact");

  auto [report, report_options] =
      add_verb(app, *group, "report",
               "check all values: NaN, zeros, unusual spread, duplicates; exit status 1 on an error", run_report);
  report->footer("lockstep weights report model/vae\nlockstep weights report model/transformer '*.attn.*' --json");
  report->add_option("PATTERN", report_options->pattern, "a glob: only these tensors");
  report->add_option("--limit", report_options->limit, "maximum number of findings; 0 for all")
      ->type_name("N")
      ->capture_default_str();
}

}  // namespace lockstep
