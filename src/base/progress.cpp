#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace lockstep {

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}

Progress::Progress(std::string label, int64_t total, bool enabled)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      enabled_(enabled && stderr_is_terminal()),
      start_(std::chrono::steady_clock::now()),
      drawn_(start_) {
  if (enabled_) draw(false);
}

Progress::~Progress() {
  if (enabled_) draw(true);
}

void Progress::advance(int64_t by) {
  done_ += by;
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || (now - drawn_ < std::chrono::milliseconds(100) && done_ < total_)) return;
  drawn_ = now;
  draw(false);
}

void Progress::draw(bool last) {
  constexpr int kWidth = 30;
  const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string bar(static_cast<size_t>(share * kWidth), '#');
  bar.resize(kWidth, '.');
  const Text left =
      share > 0 && share < 1 ? Text::of("{:.1f} s left", secs / share - secs) : Text::of("{:.1f} s", secs);
  static const Text kStart = Text::trusted("\r"), kClear = Text::trusted("\x1b[K");
  print_error("{}{:<16} [{}] {}/{}  {} {}{}{}", kStart, label_, bar, done_, total_, left, note_, kClear,
              last ? Text("\n") : Text());
  std::fflush(stderr);
}

}  // namespace lockstep
