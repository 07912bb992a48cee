// Weights that the device has no room for: they lie in pinned host memory and travel to the device as they are used,
// the next ones while the present one is computed with.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backend/cuda/device.h"

namespace lockstep::cuda {

class WeightStream {
 public:
  explicit WeightStream(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // At most so many bytes of weights are held on the device, the slots for travelling ones among them.
  void hold(uint64_t bytes) { budget_ = bytes; }
  uint64_t most_held() const { return most_held_; }

  // Takes room for a weight that stays; null when there is none. It is given back with the result.
  std::shared_ptr<const void> stay(size_t bytes);

  struct Weight;
  using Handle = std::shared_ptr<const Weight>;
  Handle add(const Tensor& weight);    // contiguous, on the host or the device
  Tensor fetch(const Handle& weight);  // where kernels that are put on the queue from now on can read it
  bool active() const { return weights_ > 0; }

 private:
  struct Slot {
    std::shared_ptr<DeviceStorage> storage;
    Event copied = nullptr, used = nullptr;
  };
  struct Ahead {
    Handle weight;
    size_t slot;
  };
  void make_slots(size_t bytes);
  void start(const Handle& weight);

  std::shared_ptr<Device> device_;
  std::optional<uint64_t> budget_;
  uint64_t held_ = 0, most_held_ = 0;
  size_t weights_ = 0, largest_ = 0;
  std::vector<Slot> slots_;
  size_t next_slot_ = 0;
  std::optional<size_t> in_use_;  // the slot of the last weight that was fetched
  std::deque<Ahead> ahead_;
  // What was fetched after a weight the last time is what will be fetched after it again.
  std::unordered_map<const Weight*, std::weak_ptr<const Weight>> followers_;
  std::weak_ptr<const Weight> last_;
};

struct WeightStream::Weight {
  ~Weight();
  std::shared_ptr<Device> device;
  WeightStream* stream = nullptr;
  void* pinned = nullptr;
  size_t bytes = 0;
  DType dtype{};
  Shape shape;
};

}  // namespace lockstep::cuda
