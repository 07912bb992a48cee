// Counts and times of the studio, and how Prometheus reads them.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace lockstep {

class StudioMetrics {
 public:
  void queued_for(double secs);
  void stage_took(const std::string& stage, double secs);  // "load", "text", "encode", "denoise", "decode"
  void step_took(double secs);
  void ended(const std::string& status) { count(jobs_, status); }
  void drew(uint64_t pictures, uint64_t in_batch);
  void previewed(double secs);
  // What the last cancelled picture took to stop, and layers that were begun after the cancel.
  void cancelled_in(double secs, int64_t layers);

  struct Now {
    size_t running = 0, waiting = 0, streams = 0;
    uint64_t resident_bytes = 0, tensor_bytes = 0, loads = 0;
    std::map<std::string, uint64_t> parts;
  };
  std::string text(const Now& now) const;

 private:
  struct Histogram {
    std::array<uint64_t, 12> counts{};
    uint64_t all = 0;
    double sum = 0;
    void add(double secs);
  };
  void count(std::map<std::string, uint64_t>& counts, const std::string& key);
  static void write(std::string& out, const char* name, const std::string& labels, const Histogram& histogram);

  mutable std::mutex mutex_;
  Histogram queue_wait_, step_, preview_;
  std::map<std::string, Histogram> stages_;
  std::map<std::string, uint64_t> jobs_;
  uint64_t pictures_ = 0, batched_ = 0;
  double cancel_secs_ = 0;
  int64_t cancel_layers_ = 0;
};

}  // namespace lockstep
