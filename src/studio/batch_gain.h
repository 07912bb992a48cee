// Whether pictures of one shape are drawn sooner together than one by one, on this device: found from what was drawn.
// Not thread-safe: the studio holds its lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

class BatchGain {
 public:
  // How many of at most `room` pictures to draw together next: a power of two. One alone is measured first, and a size
  // is tried once half of it has been faster by kLeastGain than what is smaller: so of the sizes that are slower at
  // most one is ever tried. What was measured long ago is measured again, since machines become busy and idle.
  size_t best(const std::string& shape, size_t room) const;
  void took(const std::string& shape, size_t pictures, double secs_a_picture);

 private:
  static constexpr int kSamples = 2;  // the fastest of so many, the last ones: the first meets cold caches
  static constexpr double kLeastGain = 0.03;
  static constexpr int64_t kFreshPictures = 500;
  static constexpr size_t kMostShapes = 1000;
  struct Measured {
    double last = 0, before = 0;  // seconds a picture
    int samples = 0;
    int64_t at = 0;  // pictures of the shape that were drawn by then
  };
  struct Shape {
    std::map<size_t, Measured> sizes;
    int64_t drawn = 0;
  };
  std::map<std::string, Shape> shapes_;
};

}  // namespace lockstep
