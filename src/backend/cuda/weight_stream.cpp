#include "backend/cuda/weight_stream.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kMostSlots = 8, kFewestSlots = 2;
constexpr size_t kWindow = size_t{768} << 20;

}  // namespace

WeightStream::Weight::~Weight() {
  if (pinned) {
    device->synchronize();  // it may be on its way
    device->leaf().release_pinned(device->context(), pinned);
  }
  if (stream) {
    --stream->weights_;
    stream->followers_.erase(this);
  }
}

WeightStream::~WeightStream() {
  for (const Slot& slot : slots_)
    for (const Event event : {slot.copied, slot.used})
      if (event) device_->leaf().destroy_event(device_->context(), event);
}

std::shared_ptr<const void> WeightStream::stay(size_t bytes) {
  // What travels needs a few slots of the largest weight; their size is known once the first does.
  const uint64_t slots = largest_ ? largest_ * std::clamp(kWindow / largest_, kFewestSlots, kMostSlots) : kWindow;
  if (budget_ && held_ + bytes + slots > *budget_) return nullptr;
  held_ += bytes;
  most_held_ = std::max(most_held_, held_);
  return {this, [this, bytes](const void*) { held_ -= bytes; }};
}

WeightStream::Handle WeightStream::add(const Tensor& weight) {
  auto made = std::make_shared<Weight>();
  made->device = device_;
  made->bytes = weight.bytes();
  made->dtype = weight.dtype();
  made->shape = weight.shape();
  if (!rehearsing()) {
    device_->check(device_->leaf().allocate_pinned(device_->context(), made->bytes, &made->pinned), "stream");
    device_->copy_to_host(weight, made->pinned);
  }
  made->stream = this;
  ++weights_;
  if (made->bytes > largest_) {
    largest_ = made->bytes;
    slots_.clear();
  }
  return made;
}

void WeightStream::make_slots(size_t bytes) {
  const size_t count = std::clamp(kWindow / std::max<size_t>(1, bytes), kFewestSlots, kMostSlots);
  ahead_.clear();
  in_use_.reset();
  next_slot_ = 0;
  for (size_t i = 0; i < count; ++i) {
    Slot slot;
    slot.storage = device_->storage(bytes);
    for (Event* event : {&slot.copied, &slot.used})
      if (!rehearsing()) device_->check(device_->leaf().create_event(device_->context(), 0, event), "stream");
    slots_.push_back(slot);
  }
}

// Starts a weight on its way, into the slot whose last reader will be done first.
void WeightStream::start(const Handle& weight) {
  const size_t at = next_slot_;
  next_slot_ = (next_slot_ + 1) % slots_.size();
  const Leaf& leaf = device_->leaf();
  const Stream copies = leaf.stream(device_->context(), kCopiesIn);
  const Slot& slot = slots_[at];
  device_->check(leaf.wait_event(device_->context(), copies, slot.used), "stream");
  device_->check(leaf.copy(device_->context(), slot.storage->device(), weight->pinned, weight->bytes, copies),
                 "stream");
  device_->check(leaf.record(device_->context(), slot.copied, copies), "stream");
  ahead_.push_back({weight, at});
}

Tensor WeightStream::fetch(const Handle& weight) {
  if (slots_.empty()) make_slots(largest_);
  if (rehearsing()) return Tensor::on(slots_.front().storage, weight->dtype, weight->shape);
  const Leaf& leaf = device_->leaf();
  const Stream compute = leaf.stream(device_->context(), 0);
  if (in_use_)  // all that reads the weight before this one is on the queue by now
    device_->check(leaf.record(device_->context(), slots_[*in_use_].used, compute), "stream");
  if (const Handle before = last_.lock()) followers_[before.get()] = weight;
  last_ = weight;
  if (ahead_.empty() || ahead_.front().weight != weight) {
    ahead_.clear();
    start(weight);
  }
  in_use_ = ahead_.front().slot;
  ahead_.pop_front();
  Handle next = weight;
  if (!ahead_.empty()) next = ahead_.back().weight;
  while (ahead_.size() + 1 < slots_.size()) {
    const auto follower = followers_.find(next.get());
    next = follower == followers_.end() ? nullptr : follower->second.lock();
    if (!next) break;
    start(next);
  }
  const Slot& slot = slots_[*in_use_];
  device_->check(leaf.wait_event(device_->context(), compute, slot.copied), "stream");
  ++slot.storage->version;
  return Tensor::on(slot.storage, weight->dtype, weight->shape);
}

}  // namespace lockstep::cuda
