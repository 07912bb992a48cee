// Everything one recording program needs, opened together: the writer, the reference and the tap between them.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "capture/ranks.h"
#include "capture/recording_tap.h"

namespace lockstep {

struct SessionSettings {
  RunOptions run;
  TapFilter filter;
  fs::path attach;                // a run that `lockstep record` has made; empty: a new one
  std::optional<RankPlace> rank;  // of a program of several processes
  bool record = true;
  std::string reference;  // a run's name; empty: none
  std::vector<std::string> substitute;
};

// From LOCKSTEP_RECORD (1, or the run's name), LOCKSTEP_RUN, LOCKSTEP_HOME, LOCKSTEP_TAP, LOCKSTEP_NO_TAP,
// LOCKSTEP_STEPS, LOCKSTEP_FULL, LOCKSTEP_STATS_ONLY, LOCKSTEP_BUDGET, LOCKSTEP_BUFFER, LOCKSTEP_REFERENCE and
// LOCKSTEP_SUBSTITUTE. Nothing: not asked for.
std::optional<SessionSettings> settings_from_environment(std::string_view default_name);

std::vector<std::string> globs_from_text(std::string_view text);  // separated by commas

class CaptureSession {
 public:
  static std::unique_ptr<CaptureSession> open(const SessionSettings& settings);

  RecordingTap& tap() { return *tap_; }
  const RecordingTap& tap() const { return *tap_; }
  RunWriter* writer() { return writer_.get(); }  // null when nothing is recorded
  const RunWriter* writer() const { return writer_.get(); }
  void close(std::string_view status);

 private:
  CaptureSession() = default;
  std::unique_ptr<Run> reference_;
  std::unique_ptr<RunWriter> writer_;
  std::unique_ptr<RecordingTap> tap_;
};

}  // namespace lockstep
