// Whether pictures of one shape are drawn sooner together than one by one, on this device: found from what was drawn.
// Not thread-safe: the studio holds its lock.
#pragma once
#include <cstddef>
#include <map>
#include <string>

namespace lockstep {

class BatchGain {
 public:
  // How many of at most `room` pictures to draw together next. A size that was not measured is tried, one picture alone
  // first; of those that were, the one that took least a picture.
  size_t best(const std::string& shape, size_t room) const;
  void took(const std::string& shape, size_t pictures, double secs_a_picture);

 private:
  static constexpr int kSamples = 2;  // the fastest of so many counts: the first meets cold caches
  static constexpr size_t kMostShapes = 1000;
  struct Measured {
    double secs = 0;  // a picture
    int samples = 0;
  };
  std::map<std::string, std::map<size_t, Measured>> shapes_;
};

}  // namespace lockstep
