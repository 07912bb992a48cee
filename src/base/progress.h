// A progress bar on stderr: drawn only on a terminal, at most ten times a second, and silent under --quiet.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

class Progress {
 public:
  Progress(std::string label, int64_t total, bool enabled);
  ~Progress();
  void advance(int64_t by = 1);
  void set_note(std::string note) { note_ = std::move(note); }

 private:
  void draw(bool last);
  std::string label_, note_;
  int64_t total_, done_ = 0;
  bool enabled_;
  std::chrono::steady_clock::time_point start_, drawn_;
};

bool stderr_is_terminal();

}  // namespace lockstep
