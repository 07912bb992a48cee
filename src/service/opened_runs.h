// Runs and comparisons that were opened a moment ago. Whoever looks around in a run asks many small questions about it,
// and reading ten thousand records for each would take longer than the answer.
#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "capture/run_reader.h"
#include "compare/question.h"

namespace lockstep {

class OpenedRuns {
 public:
  explicit OpenedRuns(fs::path home) : home_(std::move(home)) {}

  // As Run::open; again from the disk once the run has changed there.
  std::shared_ptr<const Run> run(const std::string& spec);

  struct Compared {
    CompareAnswer answer;
    RunView candidate_in_layout;  // as the reference lays it out
  };
  // One comparison at a time: a second caller waits, and gets the first one's answer where it asked the same.
  std::shared_ptr<const Compared> comparison(const CompareQuestion& question);

 private:
  template <typename T>
  struct Kept {
    std::string key;
    std::shared_ptr<const T> value;
  };

  fs::path home_;
  std::mutex mutex_;  // of the lists
  std::timed_mutex comparing_;
  std::list<Kept<Run>> runs_;  // the one used last in front
  std::list<Kept<Compared>> comparisons_;
};

}  // namespace lockstep
