#include "cli/debug_run.h"

#include <fmt/format.h>

#include <cstdlib>

#include "capture/store.h"
#include "cli/terminal.h"
#include "compare/comparison.h"
#include "compare/metrics.h"

namespace lockstep {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

void add_debug_options(CLI::App& command, DebugOptions& options) {
  const char* group = "Recording (with --debug)";
  command.add_option("--reference", options.reference, "compare with this run, tensor by tensor, as the engine goes")
      ->group(group);
  command.add_option("--substitute", options.substitute, "replace tensors of these names by the reference's (glob)")
      ->group(group);
  command.add_option("--tap", options.tap, "record only these names (glob)")->group(group);
  command.add_option("--no-tap", options.no_tap, "do not record these names (glob)")->group(group);
  command.add_option("--tap-steps", options.steps, "record only these denoising steps: 0,5-9")->group(group);
  command.add_option("--run-name", options.name, "name of the run")->group(group);
  command.add_flag("--stats-only", options.stats_only, "keep statistics, no full tensors")->group(group);
}

std::unique_ptr<DebugRun> DebugRun::start(const App& app, DebugOptions options, const Json& details) {
  if (options.reference.empty()) options.reference = environment("LOCKSTEP_REFERENCE");
  if (const std::string globs = environment("LOCKSTEP_SUBSTITUTE"); !globs.empty() && options.substitute.empty())
    options.substitute.push_back(globs);
  if (!app.global.debug && options.reference.empty() && options.substitute.empty()) return nullptr;
  std::unique_ptr<DebugRun> run(new DebugRun);
  const fs::path home = home_folder(app.global.home);
  RunOptions settings;
  settings.home = home;
  settings.name = options.name;
  settings.details = details;
  settings.stats_only = options.stats_only;
  TapOptions tap;
  tap.filter = {options.tap, options.no_tap, steps_from_text(options.steps)};
  if (!options.reference.empty()) {
    run->reference_ = std::make_shared<const Run>(
        Run::open(options.reference, home));  // before create(): "latest" must not be the new run
    tap.reference = run->reference_.get();
    tap.substitute = options.substitute;
    tap.compared = [raw = run.get()](const TensorKey& key, const Tensor& candidate, const Tensor& reference) {
      raw->compared(key, candidate, reference);
    };
    run->live_table_ = !app.global.quiet && !app.global.json;
    run->color_ = Terminal(app.global).color();
  }
  run->writer_ = RunWriter::create(settings);
  run->tap_ = std::make_unique<RecordingTap>(*run->writer_, std::move(tap));
  return run;
}

void DebugRun::compared(const TensorKey& key, const Tensor& candidate, const Tensor& reference) {
  const TensorComparison result = compare_tensors(reference, candidate);
  rows_.push_back({key, result.same_shape ? result.relative_l2 : INFINITY, result.max_abs});
  if (!live_table_) return;
  if (rows_.size() == 1) fmt::print("{:<78} {:>11} {:>11}\n", "tensor", "relative L2", "max abs");
  fmt::print("{:<78} {:>11.2e} {:>11.2e}\n", to_string(key), rows_.back().relative_l2, rows_.back().max_abs);
}

void DebugRun::finish(bool ok, const fs::path& weights) {
  writer_->close(ok ? "finished" : "failed");
  if (ok && reference_ && !rows_.empty()) judge(weights);
}

// The live table shows numbers; what they mean is known when all of them are in.
void DebugRun::judge(const fs::path& weights) {
  const RunView reference = view_of(reference_),
                candidate = view_of(std::make_shared<const Run>(Run::open(writer_->path().string(), "")));
  CompareOptions options;
  if (!weights.empty()) options.weights_reference = open_weights(weights);
  const Comparison comparison = compare_runs(reference, candidate, options);
  const Json all = json_from(comparison, reference, candidate);
  for (const char* field : {"verdict", "compared", "first_divergence", "causes"}) verdict_[field] = all[field];
  if (!live_table_) return;
  const std::string text = text_from(comparison, reference, candidate, false, color_);
  fmt::print("\n{}", text.substr(0, text.find("\nError over the stages")));
}

Json DebugRun::summary() const {
  const WriterCounts counts = writer_->counts();
  Json json{{"path", writer_->path().string()},
            {"id", writer_->id()},
            {"records", counts.records},
            {"tensors", counts.tensors}};
  if (reference_) {
    json["compared"] = rows_.size();
    if (!verdict_.is_null()) json["comparison"] = verdict_;
    json["substituted"] = tap_->substituted();
    const auto worst = std::max_element(rows_.begin(), rows_.end(),
                                        [](const Row& a, const Row& b) { return a.relative_l2 < b.relative_l2; });
    if (worst != rows_.end())
      json["worst"] = {{"name", to_string(worst->key)}, {"relative_l2", json_number(worst->relative_l2)}};
  }
  return json;
}

}  // namespace lockstep
