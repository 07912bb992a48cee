// What recording says of a tensor whose values are not kept, found by a device that holds it: the values themselves
// stay there, and the program goes on while the device and a thread of its own work it out.
#pragma once
#include <vector>

#include "tensor/checksum_blocks.h"
#include "tensor/statistics.h"

namespace lockstep {

struct ValueDigest {
  std::vector<std::byte> values;  // all of them, packed, where they are few: nothing else is set then
  Statistics stats{};
  Checksum128 checksum;
  std::vector<std::byte> first;  // the first values, at least ten
};

class PendingDigest {
 public:
  virtual ~PendingDigest() = default;
  virtual const ValueDigest& wait() = 0;  // by any thread, any number of times
};

}  // namespace lockstep
