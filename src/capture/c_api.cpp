// The C ABI over CaptureSession: foreign pointers are checked here, and no exception goes further than here.
#include <memory>
#include <new>
#include <string>

#include "base/error.h"
#include "capture/saved_tensors.h"
#include "capture/session.h"
#include "lockstep/lockstep.h"
#include "tensor/statistics.h"
#include "tensor/totals.h"

using namespace lockstep;

struct lockstep_run {
  std::unique_ptr<CaptureSession> session;
  std::string id, path;
};

struct lockstep_tensor {
  Tensor tensor;
};

static_assert(LOCKSTEP_BOOL == static_cast<int>(DType::kBool) && LOCKSTEP_BF16 == static_cast<int>(DType::kBF16));
static_assert(LOCKSTEP_BOOL + 1 == kDTypeCount);

namespace {

thread_local std::string last_error;

lockstep_status status_of(Code code) {
  switch (code) {
    case Code::kUsage:
    case Code::kBadInput:
    case Code::kCorrupt:
    case Code::kUnsupported:
      return LOCKSTEP_BAD_INPUT;
    case Code::kNotFound:
      return LOCKSTEP_NOT_FOUND;
    default:
      return LOCKSTEP_FAILED;
  }
}

template <typename Function>
lockstep_status guarded(Function&& function) noexcept {
  try {
    return function();
  } catch (const Error& error) {
    last_error = error.what();
    return status_of(error.code());
  } catch (const std::exception& error) {
    last_error = std::string("[lockstep] ") + error.what();
  } catch (...) {
    last_error = "[lockstep] an unknown failure";
  }
  return LOCKSTEP_FAILED;
}

[[noreturn]] void bad_call(const char* operation, const char* what) {
  fail(Code::kBadInput, operation, what);
}

std::string text_or(const char* text, std::string otherwise = {}) {
  return text ? std::string(text) : std::move(otherwise);
}

// Negative strides begin at the last element in memory order; a foreign buffer may also sit at any address. Both are
// handled by packing bytes, which costs a copy only for such views.
Tensor packed_from_unaligned(const lockstep_view& view, DType dtype, const Shape& shape, const Strides& strides) {
  const int64_t item = static_cast<int64_t>(dtype_bytes(dtype));
  Shape byte_shape = shape;
  Strides byte_strides;
  for (const int64_t stride : strides) byte_strides.push_back(stride * item);
  byte_shape.push_back(item);
  byte_strides.push_back(1);
  const auto bytes =
      std::make_shared<Tensor>(Tensor::wrap(view.data, DType::kU8, byte_shape, nullptr, byte_strides).clone());
  return Tensor::wrap(bytes->strided_data(), dtype, shape, bytes);
}

Tensor tensor_from_view(const lockstep_view* view, const char* operation) {
  if (!view) bad_call(operation, "no view");
  if (view->dtype < 0 || view->dtype >= kDTypeCount) bad_call(operation, "an unknown dtype");
  if (view->rank < 0 || view->rank > static_cast<int32_t>(kMaxRank)) bad_call(operation, "too many axes");
  if (view->rank > 0 && !view->shape) bad_call(operation, "no shape");
  const DType dtype = static_cast<DType>(view->dtype);
  const Shape shape(view->shape, view->shape + view->rank);
  const int64_t numel = checked_numel(shape);
  if (numel == 0) return Tensor::empty(dtype, shape);
  if (!view->data) bad_call(operation, "no data");
  Strides strides = contiguous_strides(shape);
  if (view->strides) strides.assign(view->strides, view->strides + view->rank);
  if (reinterpret_cast<uintptr_t>(view->data) % dtype_bytes(dtype) != 0)
    return packed_from_unaligned(*view, dtype, shape, strides);
  return Tensor::wrap(view->data, dtype, shape, nullptr, strides);
}

Role role_of(lockstep_role role) {
  switch (role) {
    case LOCKSTEP_OUTPUT:
      return Role::kOutput;
    case LOCKSTEP_INPUT:
      return Role::kInput;
    case LOCKSTEP_VARIABLE:
      return Role::kVariable;
    default:
      return Role::kCheckpoint;
  }
}

lockstep_status opened(std::unique_ptr<CaptureSession> session, lockstep_run** run) {
  auto handle = std::make_unique<lockstep_run>();
  if (session->writer()) {
    handle->id = session->writer()->id();
    handle->path = session->writer()->path().string();
  }
  handle->session = std::move(session);
  *run = handle.release();
  return LOCKSTEP_OK;
}

SessionSettings settings_from(const lockstep_options& given) {
  SessionSettings settings;
  settings.run.home = home_folder(text_or(given.home));
  settings.run.name = text_or(given.name, "run");
  if (given.details_json) settings.run.details = parse_json(given.details_json, "details_json");
  if (!settings.run.details.is_object()) bad_call("open", "details_json is not an object");
  settings.run.stats_only = given.stats_only != 0;
  settings.run.full = globs_from_text(text_or(given.full));
  if (given.budget_bytes) settings.run.budget_bytes = given.budget_bytes;
  if (given.buffer_bytes) settings.run.buffer_bytes = given.buffer_bytes;
  settings.filter.tap = globs_from_text(text_or(given.tap));
  settings.filter.no_tap = globs_from_text(text_or(given.no_tap));
  settings.filter.steps = steps_from_text(text_or(given.steps));
  settings.record = given.no_record == 0;
  settings.reference = text_or(given.reference);
  settings.substitute = globs_from_text(text_or(given.substitute));
  return settings;
}

}  // namespace

int32_t lockstep_abi_version(void) {
  return LOCKSTEP_ABI_VERSION;
}

const char* lockstep_version(void) {
  return LOCKSTEP_VERSION;
}

const char* lockstep_last_error(void) {
  return last_error.c_str();
}

lockstep_status lockstep_open(const lockstep_options* options, lockstep_run** run) {
  return guarded([&] {
    if (!run) bad_call("open", "nowhere to put the run");
    *run = nullptr;
    if (!options || options->struct_bytes != sizeof(lockstep_options))
      bad_call("open", "options of another version; expected struct_bytes = sizeof(lockstep_options)");
    return opened(CaptureSession::open(settings_from(*options)), run);
  });
}

lockstep_status lockstep_open_from_environment(const char* name, lockstep_run** run) {
  return guarded([&] {
    if (!run) bad_call("open", "nowhere to put the run");
    *run = nullptr;
    const std::optional<SessionSettings> settings = settings_from_environment(text_or(name, "run"));
    if (!settings) return static_cast<lockstep_status>(LOCKSTEP_OK);
    return opened(CaptureSession::open(*settings), run);
  });
}

lockstep_status lockstep_close(lockstep_run* run, const char* status) {
  if (!run) return LOCKSTEP_OK;
  return guarded([&] {
    const std::unique_ptr<lockstep_run> handle(run);
    handle->session->close(text_or(status, "finished"));
    return LOCKSTEP_OK;
  });
}

const char* lockstep_run_id(const lockstep_run* run) {
  return run ? run->id.c_str() : "";
}

const char* lockstep_run_path(const lockstep_run* run) {
  return run ? run->path.c_str() : "";
}

lockstep_status lockstep_describe(lockstep_run* run, const char* details_json) {
  if (!run || !run->session->writer()) return LOCKSTEP_OK;
  return guarded([&] {
    const Json details = parse_json(text_or(details_json), "details_json");
    if (!details.is_object()) bad_call("describe", "details_json is not an object");
    run->session->writer()->update(details);
    return LOCKSTEP_OK;
  });
}

lockstep_status lockstep_flush(lockstep_run* run) {
  if (run && run->session->writer()) run->session->writer()->flush();
  return LOCKSTEP_OK;
}

int32_t lockstep_wants(const lockstep_run* run, const char* name) {
  return run && name && run->session->tap().wants(name);
}

void lockstep_warn_once(lockstep_run* run, const char* topic, const char* message) {
  if (run && topic && message && run->session->writer()) run->session->writer()->warn_once(topic, message);
}

lockstep_status lockstep_checkpoint(lockstep_run* run, const lockstep_place* place, const lockstep_view* view,
                                    lockstep_tensor** replacement) {
  return lockstep_checkpoint_of_call(run, place, -1, view, replacement);
}

lockstep_status lockstep_checkpoint_of_call(lockstep_run* run, const lockstep_place* place, int32_t hit,
                                            const lockstep_view* view, lockstep_tensor** replacement) {
  if (replacement) *replacement = nullptr;
  if (!run) return LOCKSTEP_OK;
  return guarded([&] {
    if (!place || !place->name) bad_call("checkpoint", "no name");
    if (place->tag_count > 0 && !place->tags) bad_call("checkpoint", "no tags");
    if (hit >= 1 << 30) bad_call("checkpoint", "a hit of 2^30 or more");
    TensorKey key;
    key.name = place->name;
    key.step = place->step < 0 ? -1 : place->step;
    for (size_t i = 0; i < place->tag_count; ++i)
      key.tags.emplace_back(text_or(place->tags[i].name), text_or(place->tags[i].value));
    const Where where{text_or(place->file), text_or(place->function), place->line};
    const Tensor tensor = tensor_from_view(view, "checkpoint");
    std::optional<Tensor> value =
        run->session->tap().offer(key, tensor, role_of(place->role), where, replacement != nullptr, hit);
    if (!value) return static_cast<lockstep_status>(LOCKSTEP_OK);
    *replacement = new lockstep_tensor{value->contiguous()};
    return static_cast<lockstep_status>(LOCKSTEP_REPLACED);
  });
}

lockstep_status lockstep_weight(lockstep_run* run, const char* module, const char* name, const lockstep_view* view) {
  if (!run || !run->session->writer()) return LOCKSTEP_OK;
  return guarded([&] {
    if (!module || !name) bad_call("weight", "no module or no name");
    run->session->writer()->note_weight(module, name, tensor_from_view(view, "weight"));
    return LOCKSTEP_OK;
  });
}

lockstep_view lockstep_tensor_view(const lockstep_tensor* tensor) {
  if (!tensor) return {nullptr, LOCKSTEP_F32, 0, nullptr, nullptr};
  return {tensor->tensor.strided_data(), static_cast<lockstep_dtype>(tensor->tensor.dtype()),
          static_cast<int32_t>(tensor->tensor.rank()), tensor->tensor.shape().data(), nullptr};
}

void lockstep_tensor_free(lockstep_tensor* tensor) {
  delete tensor;
}

lockstep_status lockstep_save(const char* home, const char* name, const lockstep_view* view) {
  return guarded([&] {
    if (!name) bad_call("save", "no name");
    save_tensor(home_folder(text_or(home)), name, tensor_from_view(view, "save"));
    return LOCKSTEP_OK;
  });
}

lockstep_status lockstep_load(const char* home, const char* name, lockstep_tensor** tensor) {
  return guarded([&] {
    if (!name || !tensor) bad_call("load", "no name or nowhere to put the tensor");
    *tensor = nullptr;
    *tensor = new lockstep_tensor{load_tensor(home_folder(text_or(home)), name).contiguous()};
    return LOCKSTEP_OK;
  });
}

lockstep_status lockstep_view_statistics(const lockstep_view* view, lockstep_statistics* statistics) {
  return guarded([&] {
    if (!statistics) bad_call("statistics", "nowhere to put the numbers");
    const Statistics found = tensor_statistics(tensor_from_view(view, "statistics"));
    *statistics = {found.count,  found.min, found.max, found.mean, found.std,     found.rms,
                   found.absmax, found.nan, found.inf, found.zero, found.denormal};
    return LOCKSTEP_OK;
  });
}

lockstep_status lockstep_view_totals(const lockstep_view* view, lockstep_totals* totals) {
  return guarded([&] {
    if (!totals) bad_call("totals", "nowhere to put the numbers");
    const Totals found = totals_of(tensor_from_view(view, "totals"));
    *totals = {found.count,    found.infinite, found.nan,     found.sum,
               found.absolute, found.squares,  found.uniform, found.binary};
    return LOCKSTEP_OK;
  });
}
