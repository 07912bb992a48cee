// A store of its own for each test, removed at its end.
#pragma once
#include <string>

#include "base/new_folder.h"
#include "capture/run_writer.h"

namespace lockstep {

class ScratchHome {
 public:
  const fs::path& path() const { return folder_.path(); }
  RunOptions options(const std::string& name = "test") {
    RunOptions options;
    options.home = path();
    options.name = name;
    options.warn = [this](const std::string& message) { warnings.push_back(message); };
    return options;
  }
  std::vector<std::string> warnings;

 private:
  TemporaryFolder folder_{"lockstep-capture-", "test"};
};

inline Record named(const std::string& name, int hit = 0) {
  Record record;
  record.key.name = name;
  record.key.hit = hit;
  return record;
}

}  // namespace lockstep
