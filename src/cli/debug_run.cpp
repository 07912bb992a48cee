#include "cli/debug_run.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "capture/session.h"
#include "cli/terminal.h"
#include "compare/question.h"
#include "measure/metrics.h"

namespace lockstep {

void add_debug_options(CLI::App& command, DebugOptions& options) {
  const char* group = "Recording (with --debug)";
  command
      .add_option("--reference", options.reference, "compare with this run, tensor by tensor, while the engine runs")
      ->group(group);
  command.add_option("--substitute", options.substitute, "replace matching tensors (glob) with the reference's")
      ->group(group);
  command.add_option("--tap", options.tap, "record only these names (glob)")->group(group);
  command.add_option("--no-tap", options.no_tap, "do not record these names (glob)")->group(group);
  command.add_option("--tap-steps", options.steps, "record only these denoising steps: 0,5-9")->group(group);
  command.add_option("--run-name", options.name, "name of the run")->group(group);
  command.add_flag("--stats-only", options.stats_only, "store statistics only")->group(group);
}

std::unique_ptr<DebugRun> DebugRun::start(const App& app, DebugOptions options, const Json& details) {
  const bool compares = !options.reference.empty();
  if (!compares && !options.substitute.empty())
    fail(Code::kUsage, "debug", "--substitute without a run to take tensors from", {.hint = "--reference RUN"});
  // What LOCKSTEP_RECORD and its kin say counts here as in any other program; options that are given come first.
  const std::optional<SessionSettings> told = settings_from_environment(options.name);
  const bool recorded_by_another = told && told->record;  // `lockstep record`, `lockstep ledger`
  if (!app.global.debug && !compares && !told) return nullptr;
  std::unique_ptr<DebugRun> run(new DebugRun);
  run->compares_ = compares;
  run->quiet_ = app.global.quiet;
  const fs::path home = home_folder(app.global.home);
  RunOptions settings;
  TapOptions tap;
  settings.name = options.name;
  if (recorded_by_another) settings = told->run, tap.filter = told->filter;
  settings.home = home;
  settings.details = details;
  settings.stats_only = settings.stats_only || options.stats_only;
  if (!options.tap.empty()) tap.filter.tap = options.tap;
  if (!options.no_tap.empty()) tap.filter.no_tap = options.no_tap;
  if (!options.steps.empty()) tap.filter.steps = steps_from_text(options.steps);
  if (!compares && told) options.reference = told->reference, options.substitute = told->substitute;
  run->substitute_ = options.substitute;
  if (!options.reference.empty()) {
    run->reference_ = std::make_shared<const Run>(
        Run::open(options.reference, home));  // before create(): "latest" must not be the new run
    tap.reference = run->reference_.get();
    tap.substitute = options.substitute;
    if (compares)
      tap.compared = [raw = run.get()](const TensorKey& key, const Tensor& candidate, const Tensor& reference) {
        raw->compared(key, candidate, reference);
      };
    run->live_table_ = compares && !app.global.quiet && !app.global.json;
    run->color_ = Terminal(app.global).color();
  }
  if (recorded_by_another && !told->attach.empty()) run->writer_ = RunWriter::attach(told->attach, settings);
  if (!run->writer_) run->writer_ = RunWriter::create(settings);
  run->tap_ = std::make_unique<RecordingTap>(*run->writer_, std::move(tap));
  return run;
}

void DebugRun::compared(const TensorKey& key, const Tensor& candidate, const Tensor& reference) {
  const TensorComparison result = compare_tensors(reference, candidate);
  rows_.push_back({key, result.same_shape ? result.relative_l2 : INFINITY, result.max_abs});
  if (!live_table_) return;
  if (rows_.size() == 1) print("{:<78} {:>11} {:>11}\n", "tensor", "relative L2", "max abs");
  print("{:<78} {:>11.2e} {:>11.2e}\n", to_string(key), rows_.back().relative_l2, rows_.back().max_abs);
  std::fflush(stdout);  // live also when it goes through a pipe
}

int DebugRun::finish(bool ok, const fs::path& weights) {
  writer_->close(ok ? "finished" : "failed");
  if (!ok || !compares_) return 0;
  if (!substitute_.empty() && tap_->substituted() == 0 && !quiet_)
    print_error("lockstep: no tensor of the reference matched --substitute {}\n", joined(substitute_, " "));
  return judge(weights);
}

// The live table shows numbers; what they mean is known when all of them are in.
int DebugRun::judge(const fs::path& weights) {
  CompareQuestion question;
  question.weights = weights.string();
  const CompareAnswer answer = answer_to(question, "", view_of(reference_),
                                         view_of(std::make_shared<const Run>(Run::open(writer_->path().string(), ""))));
  verdict_ = json_from(answer);
  for (const char* list : {"tensors", "unpaired"}) verdict_.erase(list);  // as long as the run: `compare` shows them
  const Comparison& comparison = answer.comparison;
  if (live_table_) print("\n{}", verdict_text(comparison, answer.reference, answer.candidate, color_));
  if (comparison.verdict != "nothing_compared") return comparison.verdict == "match" ? 0 : 1;
  if (!quiet_)
    print_error(
        "lockstep: [debug] no tensor of this run could be compared with {}; expected one that recorded the "
        "same stages, got {}; try 'lockstep reference generate'\n",
        reference_->path().string(), answer.nothing_compared.got);
  return exit_status(Code::kBadInput);
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
