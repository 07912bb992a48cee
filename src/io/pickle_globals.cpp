#include "io/pickle_globals.h"

#include <optional>

#include "base/error.h"
#include "io/mapped_tensor.h"

namespace lockstep {
namespace {

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor",
                           kRebuildTensorV2 = "torch._utils._rebuild_tensor_v2",
                           kRebuildTensorV3 = "torch._utils._rebuild_tensor_v3",
                           kRebuildParameter = "torch._utils._rebuild_parameter",
                           kOrderedDict = "collections.OrderedDict", kSize = "torch.Size",
                           kUntyped = "torch.storage.UntypedStorage";

struct StorageName {
  std::string_view name;
  DType dtype;
  bool complex = false;
};
constexpr StorageName kStorages[] = {
    {"torch.DoubleStorage", DType::kF64},
    {"torch.FloatStorage", DType::kF32},
    {"torch.HalfStorage", DType::kF16},
    {"torch.BFloat16Storage", DType::kBF16},
    {"torch.CharStorage", DType::kI8},
    {"torch.ShortStorage", DType::kI16},
    {"torch.IntStorage", DType::kI32},
    {"torch.LongStorage", DType::kI64},
    {"torch.ByteStorage", DType::kU8},
    {"torch.BoolStorage", DType::kBool},
    {"torch.ComplexFloatStorage", DType::kF32, true},
    {"torch.ComplexDoubleStorage", DType::kF64, true},
};
constexpr StorageName kUntypedStorage{kUntyped, DType::kU8};

const StorageName* storage_named(std::string_view name) {
  for (const StorageName& storage : kStorages)
    if (name == storage.name) return &storage;
  return name == kUntyped ? &kUntypedStorage : nullptr;
}

// "torch.float8_e4m3fn" and the like, as tensors of newer dtypes name theirs.
std::optional<DType> torch_dtype(std::string_view name) {
  return name.starts_with("torch.") && name.find("Storage") == std::string_view::npos ? dtype_from_name(name)
                                                                                      : std::nullopt;
}

[[noreturn]] void corrupt_pickle(std::string_view origin, const std::string& what) {
  fail(Code::kCorrupt, "pickle", std::string(origin) + ": " + what);
}

uint64_t count_from(PickleRef ref, const char* what, std::string_view origin) {
  const auto* integer = std::get_if<int64_t>(&ref->value);
  if (!integer || *integer < 0) corrupt_pickle(origin, std::string(what) + " is not a number of 0 or more");
  return static_cast<uint64_t>(*integer);
}

std::vector<int64_t> sizes_from(PickleRef ref, const char* what, std::string_view origin) {
  const auto* list = std::get_if<PickleList>(&ref->value);
  if (!list || list->kind == PickleList::Kind::kSet) corrupt_pickle(origin, std::string(what) + " is not a tuple");
  if (list->items.size() > kMaxRank) corrupt_pickle(origin, "too many axes");
  std::vector<int64_t> sizes;
  for (const PickleRef item : list->items) sizes.push_back(static_cast<int64_t>(count_from(item, what, origin)));
  return sizes;
}

// Every element must lie inside the storage: the last one decides, as no stride is negative.
void check_extent(const PickleTensor& tensor, std::string_view origin) {
  const uint64_t item = dtype_bytes(tensor.dtype);
  const uint64_t available = tensor.storage.untyped ? tensor.storage.count / item : tensor.storage.count;
  if (tensor.shape.size() != tensor.strides.size())
    corrupt_pickle(origin, "a tensor with another number of strides than axes");
  const int64_t numel = numel_in_file(tensor.shape, tensor.dtype, "pickle", origin);
  if (numel == 0) return;
  uint64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    uint64_t reach = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[i] - 1), static_cast<uint64_t>(tensor.strides[i]),
                               &reach) ||
        __builtin_add_overflow(last, reach, &last))
      corrupt_pickle(origin, "a tensor's strides overflow");
  }
  if (last >= available)
    fail(Code::kCorrupt, "pickle", std::string(origin) + ": a tensor reaches beyond its storage",
         {.expected = "elements below " + std::to_string(available), .got = "element " + std::to_string(last)});
}

// Complex numbers as two real ones each: [...] → [..., 2].
void take_apart(PickleTensor& tensor, std::string_view origin) {
  if (tensor.shape.size() >= kMaxRank) corrupt_pickle(origin, "too many axes for complex numbers");
  constexpr auto kMost = static_cast<uint64_t>(INT64_MAX) / 2;
  bool small = tensor.offset < kMost;
  for (int64_t& stride : tensor.strides) {
    small = small && static_cast<uint64_t>(stride) < kMost;
    if (small) stride *= 2;
  }
  if (!small) corrupt_pickle(origin, "a tensor's strides overflow");
  tensor.offset *= 2;
  tensor.shape.push_back(2);
  tensor.strides.push_back(1);
}

// Of a tensor that torch has not computed yet: its storage holds the conjugate, or the negative.
void check_metadata(PickleRef ref, std::string_view origin) {
  const auto* metadata = std::get_if<PickleDict>(&ref->value);
  if (!metadata || metadata->items.empty()) return;  // torch looks at the keys alone: "neg" is negative, even if false
  fail(Code::kUnsupported, "pickle", std::string(origin) + " holds a tensor in another form than its values",
       {.expected = "no conjugate or negative yet to be computed",
        .hint = "saving tensor.resolve_conj().resolve_neg()"});
}

// (storage, offset, size, stride[, requires_grad, hooks[, dtype[, metadata]]])
PickleTensor tensor_from(const std::vector<PickleRef>& arguments, std::pair<size_t, size_t> count, bool has_dtype,
                         std::string_view origin) {
  if (arguments.size() < count.first || arguments.size() > count.second)
    corrupt_pickle(origin, "a tensor with the wrong number of arguments");
  const auto* storage = std::get_if<PickleStorage>(&arguments[0]->value);
  if (!storage) corrupt_pickle(origin, "a tensor without a storage");
  PickleTensor tensor;
  tensor.storage = *storage;
  tensor.dtype = storage->dtype;
  tensor.offset = count_from(arguments[1], "a storage offset", origin);
  tensor.shape = sizes_from(arguments[2], "a size", origin);
  tensor.strides = sizes_from(arguments[3], "a stride", origin);
  if (storage->complex) take_apart(tensor, origin);
  if (arguments.size() == count.second && count.second > 6) check_metadata(arguments.back(), origin);
  if (has_dtype) {
    const auto* global = std::get_if<PickleGlobal>(&arguments[6]->value);
    const std::optional<DType> dtype = global ? torch_dtype(global->name) : std::nullopt;
    if (!dtype) corrupt_pickle(origin, "a tensor without a dtype");
    tensor.dtype = *dtype;
    if (!storage->untyped && storage->dtype != *dtype)
      corrupt_pickle(origin, "a tensor of another dtype than its storage");
  }
  check_extent(tensor, origin);
  return tensor;
}

}  // namespace

bool is_accepted_global(std::string_view name) {
  return name == kRebuildTensor || name == kRebuildTensorV2 || name == kRebuildTensorV3 || name == kRebuildParameter ||
         name == kOrderedDict || name == kSize || storage_named(name) || torch_dtype(name);
}

PickleValue rebuild(const std::string& name, const std::vector<PickleRef>& arguments, std::string_view origin) {
  if (name == kRebuildTensor) return {tensor_from(arguments, {4, 4}, false, origin)};
  if (name == kRebuildTensorV2) return {tensor_from(arguments, {6, 7}, false, origin)};
  if (name == kRebuildTensorV3) return {tensor_from(arguments, {7, 8}, true, origin)};
  if (name == kRebuildParameter) {
    if (arguments.size() == 3 && std::holds_alternative<PickleTensor>(arguments[0]->value)) return *arguments[0];
    corrupt_pickle(origin, "a parameter that is not a tensor");
  }
  if (name == kOrderedDict) {
    if (!arguments.empty()) corrupt_pickle(origin, "an OrderedDict with arguments");
    return {PickleDict{{}, true}};
  }
  if (name == kSize && arguments.size() == 1) {
    const std::vector<int64_t> sizes = sizes_from(arguments[0], "a size", origin);
    return *arguments[0];
  }
  fail(Code::kUnsupported, "pickle", std::string(origin) + " wants to call " + name);
}

PickleStorage storage_from_id(const PickleValue& id, std::string_view origin) {
  const auto* tuple = std::get_if<PickleList>(&id.value);
  if (!tuple || tuple->kind != PickleList::Kind::kTuple || tuple->items.size() < 5)
    corrupt_pickle(origin, "a reference that is not a storage");
  const auto text = [&](size_t i) { return std::get_if<std::string>(&tuple->items[i]->value); };
  const auto* global = std::get_if<PickleGlobal>(&tuple->items[1]->value);
  if (!text(0) || *text(0) != "storage" || !global || !text(2) || !text(3))
    corrupt_pickle(origin, "a reference that is not a storage");
  // Files of 2018 and older could describe a storage as a part of another.
  if (tuple->items.size() > 5 && !std::holds_alternative<PickleValue::None>(tuple->items[5]->value))
    fail(Code::kUnsupported, "pickle", std::string(origin) + " holds a storage that is a view of another");
  PickleStorage storage;
  storage.key = *text(2);
  storage.untyped = global->name == kUntyped;
  const StorageName* const named = storage_named(global->name);
  if (!named) corrupt_pickle(origin, global->name + " is not a storage");
  storage.dtype = named->dtype;
  storage.complex = named->complex;
  storage.count = count_from(tuple->items[4], "the size of a storage", origin);
  if (storage.count > UINT64_MAX / 16) corrupt_pickle(origin, "the size of a storage is beyond any file");
  if (storage.complex) storage.count *= 2;
  return storage;
}

}  // namespace lockstep
