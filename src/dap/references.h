// The numbers that a client is given for frames and for what can be opened. They mean something for as long as their
// thread stands; afterwards they are unknown, and never again something else.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace lockstep {

struct FrameReference {
  int64_t thread = 0, index = 0;
};

struct OpenReference {
  enum class Kind { kLocals, kGlobals, kParts, kStatistics };
  Kind kind = Kind::kLocals;
  FrameReference frame;
  std::string expression{};                          // of parts and statistics
  bool tensor = false;                               // whose statistics are offered among its parts
  std::map<std::string, std::string> expressions{};  // of the parts that were shown, by their names
};

class References {
 public:
  int64_t add(const FrameReference& frame);
  int64_t add(OpenReference opened);
  std::optional<FrameReference> frame(int64_t number) const;
  std::optional<OpenReference> opened(int64_t number) const;
  void remember(int64_t number, const std::string& name, const std::string& expression);
  void forget(int64_t thread);  // it goes on
  void forget_all();

 private:
  mutable std::mutex mutex_;
  int64_t next_ = 1;
  std::map<int64_t, FrameReference> frames_;
  std::map<int64_t, OpenReference> opened_;
};

}  // namespace lockstep
