// Lines of both programs' sources, as an answer shows them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "zoom/region.h"

namespace lockstep::zoom {

// Text of a program or of its source may hold anything: what steers a terminal is shown, not sent to it.
std::string printable(std::string_view text, size_t most);

struct SourceLine {
  std::string file;  // the last part of its path
  int line = 0;
  std::string code;    // indented as it is there
  bool named = false;  // of the answer; else it stands around one that is
};

// Each file is read once.
class Sources {
 public:
  std::string line(const Place& place);    // without its indentation; empty where the file is gone
  size_t indentation(const Place& place);  // in characters
  // The named lines with those around them, in the order of the files.
  std::vector<SourceLine> around(const std::vector<Place>& places);

 private:
  const std::vector<std::string>& of(const std::string& file);

  std::map<std::string, std::vector<std::string>> files_;
};

}  // namespace lockstep::zoom
