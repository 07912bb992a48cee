// Two sessions whose programs run in step: where they meet, and which two they are. On disk, so that a service that
// takes the sessions over finds them still.
#pragma once
#include <string>

#include "debugger/sessions.h"

namespace lockstep {

struct Twin {
  std::string name;
  std::string reference, candidate;  // ids of the sessions
};

class Twins {
 public:
  explicit Twins(const fs::path& home) : folder_(home / "twins") {}

  // A folder with the two pipes on which the programs meet.
  fs::path make_meeting_place(const std::string& name) const;
  void keep(const fs::path& place, const Twin& twin) const;
  Twin find(const std::string& name) const;  // empty: the one started last. Error{kNotFound}

 private:
  fs::path folder_;
};

}  // namespace lockstep
