#include "backend/mlx/storage.h"

#include "base/error.h"

namespace lockstep::mlx {

void Account::add(uint64_t bytes) {
  const uint64_t now = in_use_ += bytes;
  uint64_t peak = peak_;
  while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
  }
}

MlxStorage::MlxStorage(const Leaf& leaf, std::shared_ptr<Account> account, size_t bytes)
    : leaf_(leaf), account_(std::move(account)), bytes_(bytes), slot_(leaf.make_slot(bytes)) {
  if (!slot_) fail(Code::kMemory, "allocate", "no memory for a storage of MLX");
  account_->add(bytes_);
}

MlxStorage::~MlxStorage() {
  leaf_.drop_slot(slot_);
  account_->remove(bytes_);
}

std::shared_ptr<const std::byte> MlxStorage::host(size_t offset, size_t) const {
  const void* data = nullptr;
  void* keeper = nullptr;
  check(leaf_, leaf_.bytes(slot_, &data, &keeper), "read");
  const std::shared_ptr<void> kept(keeper, leaf_.drop_bytes);
  return {kept, static_cast<const std::byte*>(data) + offset};
}

void check(const Leaf& leaf, Outcome outcome, const char* operation) {
  if (outcome == Outcome::kDone) return;
  const Code code = outcome == Outcome::kNoMemory      ? Code::kMemory
                    : outcome == Outcome::kUnsupported ? Code::kUnsupported
                                                       : Code::kDevice;
  fail(code, operation, std::string("MLX: ") + leaf.message());
}

View view_of(const Tensor& tensor, const char* operation) {
  if (!tensor.defined()) fail(Code::kBadInput, operation, "a tensor without storage");
  const auto* storage = dynamic_cast<const MlxStorage*>(tensor.storage().get());
  if (!storage)
    fail(Code::kInternal, operation, "a tensor of another device",
         {.expected = "mlx", .got = tensor.storage()->place(), .hint = "upload()"});
  if (tensor.rank() > kMostAxes)
    fail(Code::kUnsupported, operation, "too many axes",
         {.expected = "at most " + std::to_string(kMostAxes), .got = std::to_string(tensor.rank())});
  const auto item = static_cast<int64_t>(dtype_bytes(tensor.dtype()));
  if (tensor.offset_bytes() % item != 0)
    fail(Code::kBadInput, operation, "misaligned storage",
         {.expected = "a multiple of " + std::to_string(item) + " bytes"});
  View view{.slot = storage->slot(),
            .dtype = static_cast<int>(tensor.dtype()),
            .rank = static_cast<int>(tensor.rank()),
            .shape = {},
            .strides = {},
            .offset = tensor.offset_bytes() / item};
  for (size_t i = 0; i < tensor.rank(); ++i) {
    view.shape[i] = tensor.shape()[i];
    view.strides[i] = tensor.strides()[i];
  }
  return view;
}

void lend(const Leaf& leaf, const Tensor& host, const MlxStorage& to, size_t page_bytes) {
  const std::byte* const first = host.strided_data();
  const size_t before = page_bytes ? reinterpret_cast<uintptr_t>(first) % page_bytes : 0;
  size_t bytes = before + host.bytes();
  if (page_bytes) bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  const Lent lent{.data = first - before,
                  .bytes = bytes,
                  .first = before,
                  .count = static_cast<size_t>(host.numel()),
                  .dtype = static_cast<int>(host.dtype()),
                  .release = [](void* owner) { delete static_cast<Tensor*>(owner); },
                  .owner = new Tensor(host)};
  check(leaf, leaf.lend(to.slot(), &lent), "weights");
}

}  // namespace lockstep::mlx
