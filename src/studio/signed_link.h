// Links to pictures that work without a token, for an hour: the picture's name and the time are signed with a secret
// of this home.
#pragma once
#include <mutex>
#include <string>

#include "base/file.h"

namespace lockstep {

class SignedLinks {
 public:
  explicit SignedLinks(fs::path folder) : folder_(std::move(folder)) {}

  std::string path_of(const std::string& picture_id, double now);  // "/v1/images/ID/content?expires=...&signature=..."
  bool holds(const std::string& picture_id, const std::string& expires, const std::string& signature, double now);

 private:
  const std::string& secret();
  fs::path folder_;
  std::mutex mutex_;
  std::string secret_;
};

}  // namespace lockstep
