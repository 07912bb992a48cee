#include "zoom/frames.h"

namespace lockstep::zoom {

std::optional<std::pair<int, int>> meeting_frames(const Step& a, const Step& b) {
  auto i = static_cast<int>(a.where.size()) - 1, j = static_cast<int>(b.where.size()) - 1;
  while (i > 0 && j > 0 && a.where[static_cast<size_t>(i)] == b.where[static_cast<size_t>(j)]) --i, --j;
  if (i < 0 || j < 0) return std::nullopt;
  const Place &mine = a.where[static_cast<size_t>(i)], &other = b.where[static_cast<size_t>(j)];
  if (mine.file != other.file || mine.function != other.function) return std::nullopt;
  return std::pair{i, j};
}

}  // namespace lockstep::zoom
