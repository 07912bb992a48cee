// --debug on generate and edit: the engine's taps recorded as a run, compared live with a reference, its tensors
// replaced.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "capture/recording_tap.h"
#include "cli/app.h"

namespace lockstep {

struct DebugOptions {
  std::string reference, steps, name = "generate";
  std::vector<std::string> substitute, tap, no_tap;
  bool stats_only = false;
};

void add_debug_options(CLI::App& command, DebugOptions& options);

class DebugRun {
 public:
  // Null when neither an option nor the environment asks for it: then the engine has no tap at all.
  static std::unique_ptr<DebugRun> start(const App& app, DebugOptions options, const Json& details);

  Tap* tap() { return tap_.get(); }
  // Closes the run; with a reference, says how the whole of it compares. `weights`: the checkpoint both sides load.
  // Returns the exit status: 0 a match or nothing to compare with, 1 a difference, 2 nothing could be compared.
  int finish(bool ok, const fs::path& weights = {});
  const fs::path& path() const { return writer_->path(); }
  Json summary() const;

 private:
  struct Row {
    TensorKey key;
    double relative_l2, max_abs;
  };
  void compared(const TensorKey& key, const Tensor& candidate, const Tensor& reference);

  int judge(const fs::path& weights);

  // The ledger's runs have a reference too, but only to be substituted: it compares them itself.
  bool compares_ = false;
  bool live_table_ = false, color_ = false, quiet_ = false;
  std::vector<std::string> substitute_;
  std::shared_ptr<const Run> reference_;
  Json verdict_;
  std::unique_ptr<RunWriter> writer_;
  std::unique_ptr<RecordingTap> tap_;
  std::vector<Row> rows_;
};

}  // namespace lockstep
