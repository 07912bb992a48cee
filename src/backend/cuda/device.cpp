#include "backend/cuda/device.h"

#include <algorithm>
#include <array>

#include "backend/cuda/digests.h"
#include "backend/cuda/library.h"
#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep::cuda {
namespace {

constexpr int kOldestMajor = 8;
constexpr int64_t kFewRows = 512;  // rows of text, or of modulation: they read weights, and leave room for others

// Four sizes a power of two, at least 512 bytes: the reuse of blocks across shapes that differ little.
size_t block_bytes(size_t bytes) {
  size_t power = 512;
  if (bytes <= power) return power;
  while (power * 2 < bytes) power *= 2;
  const size_t step = power / 4;
  return (bytes + step - 1) / step * step;
}

void* const kRehearsed = reinterpret_cast<void*>(uintptr_t{512});  // an address that nothing reads

}  // namespace

BlockPool::~BlockPool() {
  drop_cached();
}

Block* BlockPool::take(size_t bytes) {
  const size_t size = block_bytes(bytes);
  std::vector<Block*>& free = free_[size];
  Block* block = nullptr;
  if (!free.empty()) {
    block = free.back();
    free.pop_back();
  } else {
    block = new Block;
    block->bytes = size;
    try {
      block->data = rehearsing() ? kRehearsed : device_.allocate_bytes(size);
    } catch (...) {
      delete block;
      throw;
    }
  }
  device_.count(static_cast<int64_t>(size));
  return block;
}

void BlockPool::give(Block* block) {
  device_.count(-static_cast<int64_t>(block->bytes));
  if (block->data == kRehearsed)
    delete block;
  else
    free_[block->bytes].push_back(block);
}

void BlockPool::drop_cached() {
  for (auto& [size, blocks] : free_) {
    for (Block* block : blocks) {
      device_.release_bytes(block->data, block->bytes);
      delete block;
    }
    blocks.clear();
  }
}

DeviceStorage::DeviceStorage(std::shared_ptr<Device> device, std::shared_ptr<BlockPool> pool, size_t bytes)
    : device_(std::move(device)), pool_(std::move(pool)), block_(pool_->take(bytes)) {}

DeviceStorage::~DeviceStorage() {
  pool_->give(block_);
}

std::shared_ptr<const std::byte> DeviceStorage::host(size_t offset, size_t bytes) const {
  return device_->download(static_cast<const std::byte*>(block_->data) + offset, bytes);
}

const char* DeviceStorage::place() const {
  return device_->place().c_str();
}

std::shared_ptr<PendingDigest> DeviceStorage::digest(const Tensor& tensor) const {
  return device_->digest(tensor);
}

Device::Device() = default;

std::shared_ptr<Device> Device::open(int index) {
  const Libraries& found = libraries();
  if (!found.leaf) fail(Code::kDevice, "cuda", "CUDA cannot be used here", {.got = found.why, .hint = "--device cpu"});
  if (index < 0 || index >= found.devices)
    fail(Code::kDevice, "cuda", "no such device",
         {.expected = "cuda:0 to cuda:" + std::to_string(found.devices - 1), .got = "cuda:" + std::to_string(index)});
  const std::shared_ptr<Device> device(new Device);
  device->leaf_ = found.leaf;
  device->place_ = "cuda:" + std::to_string(index);
  const auto or_null = [](const std::string& path) { return path.empty() ? nullptr : path.c_str(); };
  device->check(found.leaf->open(index, or_null(found.cublaslt_path), or_null(found.cudnn_path), &device->context_),
                "cuda");
  device->check(found.leaf->facts(device->context_, &device->facts_), "cuda");
  if (device->facts_.major < kOldestMajor)
    fail(Code::kDevice, "cuda", std::string(device->facts_.name) + " is not supported",
         {.expected = "compute capability 8.0 or later",
          .got = std::to_string(device->facts_.major) + "." + std::to_string(device->facts_.minor),
          .hint = "--device cpu"});
  device->pool_ = std::make_shared<BlockPool>(*device);
  device->transfers_ = std::make_unique<Transfers>(*device->leaf_, device->context_, device->place_);
  return device;
}

Device::~Device() {
  if (!context_) return;
  deferred_.clear();
  digests_.reset();
  pool_.reset();
  transfers_.reset();
  for (Event event : spare_events_) leaf_->destroy_event(context_, event);
  leaf_->close(context_);
}

bool Device::check(Outcome outcome, const char* operation) const {
  switch (outcome) {
    case Outcome::kDone:
      return true;
    case Outcome::kUnsupported:
      return false;
    case Outcome::kNoMemory:
      fail(Code::kMemory, operation, "no memory left on " + place_,
           {.expected = "about 1 GB for CUDA and its libraries before any tensor",
            .got = leaf_->message(),
            .hint = "nvidia-smi for the programs that fill it, another cuda:N, or --device cpu"});
    case Outcome::kFailed:
      break;
  }
  fail(Code::kDevice, operation, place_ + " failed",
       {.got = leaf_->message(), .hint = "nvidia-smi for the state of the device, or --device cpu"});
}

void Device::refuse(const char* operation) const {
  fail(Code::kUnsupported, operation, "not on " + place_, {.got = leaf_->message()});
}

uint64_t Device::free_bytes() const {
  DeviceFacts now{};
  check(leaf_->facts(context_, &now), "cuda");
  return now.free_bytes;
}

void Device::out_of_memory(size_t bytes) const {
  fail(Code::kMemory, "allocate", "no memory left on " + place_,
       {.expected = std::to_string(use_.in_use_bytes + bytes) + " bytes for tensors",
        .got = std::to_string(allocated_bytes_ + free_bytes()) + " that other programs leave free",
        .hint = "a smaller image, --quantize 4, --dtype bf16, or --device cpu"});
}

void* Device::allocate_bytes(size_t bytes) {
  const uint64_t limit = memory_limit();
  const bool beyond = limit && allocated_bytes_ + bytes > limit;
  void* data = nullptr;
  Outcome outcome = beyond ? Outcome::kNoMemory : leaf_->allocate(context_, bytes, &data);
  if (outcome == Outcome::kNoMemory) {
    synchronize();
    pool_->drop_cached();
    if (limit && allocated_bytes_ + bytes > limit)
      fail(Code::kMemory, "allocate", "the memory limit would be passed",
           {.expected = "at most " + std::to_string(limit) + " bytes",
            .got = std::to_string(allocated_bytes_ + bytes),
            .hint = "a higher --memory-limit or a smaller image"});
    outcome = leaf_->allocate(context_, bytes, &data);
  }
  if (outcome == Outcome::kNoMemory) out_of_memory(bytes);
  check(outcome, "allocate");
  allocated_bytes_ += bytes;
  ++use_.system_allocations;
  return data;
}

void Device::release_bytes(void* data, size_t bytes) {
  leaf_->release(context_, data);
  allocated_bytes_ -= bytes;
}

void Device::count(int64_t bytes) {
  use_.in_use_bytes = static_cast<uint64_t>(static_cast<int64_t>(use_.in_use_bytes) + bytes);
  use_.peak_bytes = std::max(use_.peak_bytes, use_.in_use_bytes);
}

Tensor Device::allocate(DType dtype, const Shape& shape) {
  const int64_t numel = checked_numel(shape);
  const size_t bytes = static_cast<size_t>(numel) * dtype_bytes(dtype);
  return Tensor::on(storage(bytes), dtype, shape);
}

std::shared_ptr<DeviceStorage> Device::storage(size_t bytes) {
  return std::make_shared<DeviceStorage>(shared_from_this(), capturing_ ? capture_pool_ : pool_, bytes);
}

DeviceStorage& Device::storage_of(const Tensor& tensor, const char* operation) const {
  if (!tensor.defined()) fail(Code::kBadInput, operation, "a tensor without storage");
  auto* storage = dynamic_cast<DeviceStorage*>(tensor.storage().get());
  if (!storage || &storage->owner() != this)
    fail(Code::kInternal, operation, "a tensor of another device",
         {.expected = place_, .got = tensor.storage()->place(), .hint = "upload()"});
  return *storage;
}

Block& Device::block_of(const Tensor& tensor, const char* operation) const {
  return storage_of(tensor, operation).block();
}

uint64_t Device::version(const Tensor& tensor) const {
  // A replayed graph writes without saying what.
  return rehearsing() ? 0 : storage_of(tensor, "version").version + (launches_ << 32);
}

void* Device::address(const Tensor& tensor, const char* operation) const {
  return static_cast<std::byte*>(block_of(tensor, operation).data) + tensor.offset_bytes();
}

View Device::view(const Tensor& tensor, const char* operation) const {
  View view{};
  view.data = address(tensor, operation);
  view.dtype = static_cast<int>(tensor.dtype());
  if (tensor.rank() > static_cast<size_t>(kMostAxes))
    fail(Code::kUnsupported, operation, "a tensor of so many axes", {.got = to_string(tensor.shape())});
  view.rank = static_cast<int>(tensor.rank());
  for (size_t i = 0; i < tensor.rank(); ++i) {
    view.shape[i] = tensor.shape()[i];
    view.strides[i] = tensor.strides()[i];
  }
  return view;
}

void Device::upload(const Tensor& host, Tensor& to) {
  if (capturing_) fail(Code::kInternal, "upload", "host memory inside a captured step");
  if (host.bytes() == 0 || rehearsing()) return;
  ++storage_of(to, "upload").version;
  // On the first queue: in order with the kernels that use the block before and after.
  transfers_->send(host.contiguous_bytes().data(), static_cast<std::byte*>(address(to, "upload")), host.bytes(),
                   leaf_->stream(context_, 0));
}

void Device::upload_later(const Tensor& host, Tensor& to) {
  if (capturing_) fail(Code::kInternal, "upload", "host memory inside a captured step");
  if (host.bytes() == 0 || rehearsing()) return;
  ++storage_of(to, "upload").version;
  transfers_->send_later(host, to, static_cast<std::byte*>(address(to, "upload")), leaf_->stream(context_, 0));
}

void Device::drop_deferred() {
  deferred_.clear();
  try {
    transfers_->finish();
  } catch (const Error&) {  // nobody will read what did not arrive
  }
}

void Device::copy_to_host(const Tensor& from, void* to) {
  const Tensor host = from.host();
  copy_by_threads(static_cast<std::byte*>(to), host.contiguous_bytes().data(), host.bytes());
}

std::shared_ptr<const std::byte> Device::download(const void* from, size_t bytes) {
  settle_all();
  std::shared_ptr<std::byte> to = lockstep::allocate_bytes(bytes);
  if (bytes == 0 || rehearsing()) return to;
  if (capturing_) fail(Code::kInternal, "download", "host memory inside a captured step");
  transfers_->fetch(static_cast<const std::byte*>(from), to.get(), bytes, leaf_->stream(context_, 0));
  return to;
}

std::shared_ptr<PendingDigest> Device::digest(const Tensor& tensor) {
  if (capturing_ || rehearsing()) return nullptr;
  if (!digests_) digests_ = std::make_unique<Digests>(*this);
  return digests_->add(tensor);
}

void Device::synchronize() {
  transfers_->finish();
  settle_all();
  for (int queue = 0; queue < kQueues; ++queue)
    check(leaf_->wait_stream(context_, leaf_->stream(context_, queue)), "synchronize");
}

int Device::choose_queue(int64_t rows) const {
  return capturing_ && rows <= kFewRows ? 1 : 0;
}

Event Device::event() {
  Event made = nullptr;
  if (!spare_events_.empty()) {
    made = spare_events_.back();
    spare_events_.pop_back();
  } else {
    check(leaf_->create_event(context_, 0, &made), "event");
  }
  return made;
}

void Device::make(const GatedSum& sum) {
  if (rehearsing()) return;
  const View from = view(sum.y, "gated sum"), residual = view(sum.x, "gated sum"), gate = view(sum.gate, "gated sum");
  View to = view(sum.out, "gated sum");
  issue("gated sum", {&sum.y, &sum.x, &sum.gate}, {&sum.out}, sum.out.numel() / sum.out.dim(-1), [&](Stream stream) {
    return leaf_->epilogue(&from, &to, 0, nullptr, &residual, &gate, sum.rows_per_batch, stream);
  });
}

void Device::defer(GatedSum sum) {
  settle({}, std::array<const Tensor*, 1>{&sum.out});  // what is written twice is written in order
  deferred_.push_back(std::move(sum));
}

std::optional<GatedSum> Device::take(const Tensor& out) {
  const auto found = std::ranges::find_if(deferred_, [&](const GatedSum& sum) {
    return sum.out.storage() == out.storage() && sum.out.offset_bytes() == out.offset_bytes() &&
           sum.out.shape() == out.shape() && sum.out.strides() == out.strides();
  });
  if (found == deferred_.end()) return std::nullopt;
  GatedSum sum = std::move(*found);
  deferred_.erase(found);
  return sum;
}

void Device::settle(std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs) {
  if (deferred_.empty()) return;
  const auto among = [](std::span<const Tensor* const> tensors, const Tensor& one) {
    return std::ranges::any_of(tensors, [&](const Tensor* t) { return t && t->storage() == one.storage(); });
  };
  for (size_t i = 0; i < deferred_.size();) {
    const GatedSum& sum = deferred_[i];
    const bool touched = among(inputs, sum.out) || among(outputs, sum.out) || among(outputs, sum.x) ||
                         among(outputs, sum.y) || among(outputs, sum.gate);
    if (!touched) {
      ++i;
      continue;
    }
    const GatedSum due = std::move(deferred_[i]);
    deferred_.erase(deferred_.begin() + static_cast<std::ptrdiff_t>(i));
    make(due);
    i = 0;  // making one may have made others
  }
}

void Device::settle_all() {
  while (!deferred_.empty()) {
    const GatedSum due = std::move(deferred_.back());
    deferred_.pop_back();
    make(due);
  }
}

Event Device::mark() {
  if (!profiling_ || capturing_) return nullptr;
  Event made = nullptr;
  check(leaf_->create_event(context_, 1, &made), "profile");
  check(leaf_->record(context_, made, leaf_->stream(context_, 0)), "profile");
  return made;
}

void Device::start_profile() {
  profiling_ = true;
}

std::vector<KernelTime> Device::end_profile() {
  profiling_ = false;
  synchronize();
  std::vector<KernelTime> times;
  for (const Measured& one : measured_) {
    const std::string name = std::string(one.operation) + (one.rows <= kFewRows ? ", few rows" : "");
    auto found = std::ranges::find(times, name, &KernelTime::name);
    if (found == times.end()) found = times.insert(times.end(), KernelTime{.name = name});
    float ms = 0;
    check(leaf_->elapsed_ms(context_, one.begin, one.end, &ms), "profile");
    found->ms += ms;
    ++found->calls;
    leaf_->destroy_event(context_, one.begin);
    leaf_->destroy_event(context_, one.end);
  }
  measured_.clear();
  return times;
}

void Device::wait_for(int queue, int other, uint64_t position) {
  if (queue == other || position <= seen_[queue][other]) return;
  const auto found = events_[other].find(position);
  if (found == events_[other].end()) return;  // from before the capture: done already
  check(leaf_->wait_event(context_, leaf_->stream(context_, queue), found->second), "queue");
  seen_[queue][other] = position;
}

void Device::before(int queue, std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs) {
  if (!capturing_) return;
  for (const Tensor* input : inputs) {
    if (!input || !input->defined()) continue;
    const Block& block = block_of(*input, "queue");
    wait_for(queue, block.writer, block.written);
  }
  for (const Tensor* output : outputs) {
    const Block& block = block_of(*output, "queue");
    wait_for(queue, block.writer, block.written);
    for (int other = 0; other < kQueues; ++other) wait_for(queue, other, block.read[other]);
  }
}

void Device::after(int queue, std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs) {
  for (const Tensor* output : outputs) ++storage_of(*output, "queue").version;
  if (!capturing_) return;
  const uint64_t position = ++position_[queue];
  const Event done = event();
  check(leaf_->record(context_, done, leaf_->stream(context_, queue)), "queue");
  events_[queue].emplace(position, done);
  for (const Tensor* input : inputs)
    if (input && input->defined()) block_of(*input, "queue").read[queue] = position;
  for (const Tensor* output : outputs) {
    Block& block = block_of(*output, "queue");
    block.writer = queue;
    block.written = position;
  }
}

void Device::begin_capture(std::shared_ptr<BlockPool> pool) {
  transfers_->finish();
  if (digests_) digests_->send();  // whoever waits for one of them may not do so on a stream that is captured
  settle_all();
  check(leaf_->begin_capture(context_, leaf_->stream(context_, 0)), "capture");
  capturing_ = true;
  capture_pool_ = std::move(pool);
  // The second queue joins the capture by waiting for the first.
  const Event fork = event();
  check(leaf_->record(context_, fork, leaf_->stream(context_, 0)), "capture");
  check(leaf_->wait_event(context_, leaf_->stream(context_, 1), fork), "capture");
  spare_events_.push_back(fork);
}

Graph Device::end_capture() {
  settle_all();
  capturing_ = false;
  const Event join = event();
  leaf_->record(context_, join, leaf_->stream(context_, 1));
  leaf_->wait_event(context_, leaf_->stream(context_, 0), join);
  spare_events_.push_back(join);
  Graph graph = nullptr;
  const Outcome outcome = leaf_->end_capture(context_, leaf_->stream(context_, 0), &graph);
  for (auto& events : events_) {
    for (const auto& [position, event] : events) spare_events_.push_back(event);
    events.clear();
  }
  capture_pool_.reset();
  return outcome == Outcome::kDone ? graph : nullptr;
}

void Device::launch(Graph graph) {
  transfers_->finish();
  settle_all();
  ++launches_;
  check(leaf_->launch(context_, graph, leaf_->stream(context_, 0)), "graph");
}

}  // namespace lockstep::cuda
