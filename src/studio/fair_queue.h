// Who is drawn next: clients take turns, and each one's jobs go in the order they came. Pictures of one shape may go
// together. Not thread-safe: the studio holds its lock.
#pragma once
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "studio/job.h"

namespace lockstep {

struct PictureTask {
  std::shared_ptr<Job> job;
  int index = 0;
};

class FairQueue {
 public:
  void add(const std::shared_ptr<Job>& job);
  bool remove(const Job& job);  // false: it waits no more
  // The next picture, and with it at most `most(job)` - 1 others of its shape, its own job's first, then in turn.
  std::vector<PictureTask> take(const std::function<size_t(const Job&)>& most);
  bool empty() const { return turns_.empty(); }
  // Jobs with a picture that waits, in the order in which they will be begun.
  std::vector<std::shared_ptr<Job>> in_order() const;
  size_t jobs_of(const std::string& client) const;
  size_t pictures_of(const std::string& client) const;
  size_t jobs() const;
  size_t alike(const Job& job) const;  // pictures that wait and could go with this job's, its own included

 private:
  void take_from(Job& job, std::vector<PictureTask>& to, size_t most, const std::shared_ptr<Job>& shared);
  void forget_done(const std::string& client);

  std::map<std::string, std::deque<std::shared_ptr<Job>>> waiting_;
  std::list<std::string> turns_;  // clients with something that waits; the front is next
};

std::string shape_of(const Job& job);  // equal: may be drawn together

}  // namespace lockstep
