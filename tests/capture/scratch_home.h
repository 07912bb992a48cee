// A store of its own for each test, removed at its end.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "capture/run_writer.h"

namespace lockstep {

class ScratchHome {
 public:
  ScratchHome() {
    std::string name = (fs::temp_directory_path() / "lockstep-capture-XXXXXX").string();
    if (!::mkdtemp(name.data())) ADD_FAILURE() << "no temporary folder";
    path_ = name;
  }
  ~ScratchHome() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }
  RunOptions options(const std::string& name = "test") {
    RunOptions options;
    options.home = path_;
    options.name = name;
    options.warn = [this](const std::string& message) { warnings.push_back(message); };
    return options;
  }
  std::vector<std::string> warnings;

 private:
  fs::path path_;
};

inline Record named(const std::string& name, int hit = 0) {
  Record record;
  record.key.name = name;
  record.key.hit = hit;
  return record;
}

}  // namespace lockstep
