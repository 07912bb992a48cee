// Streams that throw what goes wrong: the standard ones take a failed allocation or read for the end of the text, and
// who reads lines from them goes on with fewer.
#pragma once
#include <fstream>
#include <sstream>
#include <string>

#include "base/file.h"

namespace lockstep {

// Without a file it is as after the last line. Not for files of others: a pipe would be waited for.
inline std::ifstream strict_file(const fs::path& path, std::ios::openmode mode = std::ios::in) {
  std::ifstream file(path, mode);
  file.exceptions(std::ios::badbit);
  return file;
}

inline std::istringstream strict_text(std::string text) {
  std::istringstream stream(std::move(text));
  stream.exceptions(std::ios::badbit);
  return stream;
}

}  // namespace lockstep
