// The table of the leaf's functions, and what moves bytes between MLX and the program.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "backend/mlx/leaf/kernels.h"
#include "backend/mlx/leaf/session.h"

namespace lockstep::mlx {
namespace {

Slot* make_slot(size_t bytes) {
  Slot* const slot = new (std::nothrow) Slot;
  if (slot) slot->bytes = bytes;
  return slot;
}

void drop_slot(Slot* slot) {
  guarded([&] {
    session().forget(*slot);
    delete slot;
  });
}

Outcome upload(Slot* slot, const void* data, int dtype, size_t count) {
  return guarded([&] {
    const mx::Dtype type = type_of(dtype);
    mx::array value(mx::allocator::malloc(std::max<size_t>(count, 1) * mx::size_of(type)), {mx::safe_cast(count)},
                    type);
    if (count) std::memcpy(value.data<std::byte>(), data, count * mx::size_of(type));
    replace(*slot, std::move(value));
  });
}

Outcome lend(Slot* slot, const Lent* lent) {
  const std::shared_ptr<void> owner(lent->owner, lent->release);
  return guarded([&] {
    const mx::Dtype type = type_of(lent->dtype);
    const size_t item = mx::size_of(type);
    if (lent->bytes % item || lent->first % item || lent->first + lent->count * item > lent->bytes)
      throw std::invalid_argument("lent bytes that are no whole elements");
    const mx::array all(const_cast<void*>(lent->data), {mx::safe_cast(lent->bytes / item)}, type,
                        [owner](void*) {});  // let go with the array
    replace(*slot, lent->first == 0 && lent->count * item == lent->bytes
                       ? all
                       : mx::as_strided(all, {mx::safe_cast(lent->count)}, {1}, lent->first / item));
  });
}

Outcome bytes(Slot* slot, const void** data, void** keeper) {
  return guarded([&] {
    if (!slot->value) replace(*slot, mx::zeros({mx::safe_cast(slot->bytes)}, mx::uint8));
    auto kept = std::make_unique<mx::array>(mx::contiguous(*slot->value));
    kept->eval();
    *data = kept->data<std::byte>();
    *keeper = kept.release();
  });
}

void drop_bytes(void* keeper) {
  guarded([&] { delete static_cast<mx::array*>(keeper); });
}

Outcome evaluate(Slot* slot) {
  return guarded([&] {
    if (slot->value) slot->value->eval();
  });
}

Outcome flush() {
  return guarded([] { session().flush(); });
}
Outcome synchronize() {
  return guarded([] { session().synchronize(); });
}

Outcome open(Facts* facts) {
  return guarded([&] { *facts = session().facts(); });
}

const char* message() {
  return last_message().c_str();
}

const Leaf kLeaf = {
    .version = kLeafVersion,
    .message = message,
    .open = open,
    .make_slot = make_slot,
    .drop_slot = drop_slot,
    .upload = upload,
    .lend = lend,
    .bytes = bytes,
    .drop_bytes = drop_bytes,
    .evaluate = evaluate,
    .flush = flush,
    .synchronize = synchronize,
    .linear = [](const LinearTask* task) { return guarded([&] { linear(*task); }); },
    .attention = [](const AttentionTask* task) { return guarded([&] { attention(*task); }); },
    .conv2d = [](const ConvTask* task) { return guarded([&] { conv2d(*task); }); },
    .rms_norm = [](const View* x, const View* weight, View* out,
                   float eps) { return guarded([&] { rms_norm(*x, weight, *out, eps); }); },
    .layer_norm = [](const View* x, const View* weight, const View* bias, const View* scale, const View* shift,
                     View* out,
                     float eps) { return guarded([&] { layer_norm(*x, weight, bias, scale, shift, *out, eps); }); },
    .head_norm_rope =
        [](const View* x, const View* weight, const View* cos, const View* sin, View* out, float eps, int style) {
          return guarded([&] { head_norm_rope(*x, weight, cos, sin, *out, eps, style); });
        },
    .channel_norm = [](const View* x, const View* gamma, View* out,
                       int silu) { return guarded([&] { channel_norm(*x, *gamma, *out, silu != 0); }); },
    .guidance = [](const View* cond, const View* uncond, View* out, float scale,
                   int rescale) { return guarded([&] { guidance(*cond, *uncond, *out, scale, rescale != 0); }); },
    .add_gated = [](const View* x, const View* gate, const View* y,
                    View* out) { return guarded([&] { add_gated(*x, *gate, *y, *out); }); },
    .unary = [](int op, const View* x, View* out) { return guarded([&] { unary(op, *x, *out); }); },
    .binary = [](int op, const View* a, const View* b,
                 View* out) { return guarded([&] { binary(op, *a, *b, *out); }); },
    .euler_step = [](const View* x, const View* velocity, View* out,
                     float dt) { return guarded([&] { euler_step(*x, *velocity, *out, dt); }); },
    .denormalize = [](const View* x, const View* inverse_std, const View* mean,
                      View* out) { return guarded([&] { denormalize(*x, *inverse_std, *mean, *out); }); },
    .pixels = [](const View* x, View* out) { return guarded([&] { pixels(*x, *out); }); },
    .gather = [](const View* table, const View* ids,
                 View* out) { return guarded([&] { gather(*table, *ids, *out); }); },
    .copy = [](const View* from, View* to) { return guarded([&] { copy(*from, *to); }); },
};

}  // namespace
}  // namespace lockstep::mlx

extern "C" __attribute__((visibility("default"))) const lockstep::mlx::Leaf* lockstep_mlx_leaf() {
  return &lockstep::mlx::kLeaf;
}
