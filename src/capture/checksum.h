// XXH3-128: proves that what was captured is what reached the disk. No adversary is meant, memory speed is.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tensor/checksum_blocks.h"

namespace lockstep {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(std::span<const std::byte> bytes);
  std::string text() const;  // 32 hex digits, the order xxhash's hexdigest uses

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_text(std::span<const std::byte> bytes);
std::string checksum_text(const Checksum128& checksum);  // one that was worked out elsewhere

}  // namespace lockstep
