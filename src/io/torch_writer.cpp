#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "io/mapped_tensor.h"
#include "io/torch_file.h"
#include "io/zip_writer.h"

namespace lockstep {
namespace {

constexpr size_t kStorageAlignment = 64;  // what torch aligns to, so that a map of the file can be used as it is

class PickleWriter {
 public:
  PickleWriter() { bytes_ = "\x80\x02"; }

  void raw(std::string_view opcodes) { bytes_ += opcodes; }
  void global(std::string_view module, std::string_view name) {
    bytes_ += 'c';
    bytes_ += std::string(module) + "\n" + std::string(name) + "\n";
  }
  void text(std::string_view text) {
    bytes_ += 'X';
    little_endian(text.size(), 4);
    bytes_ += text;
  }
  void integer(int64_t value) {
    if (value >= 0 && value < 256) {
      bytes_ += 'K';
      little_endian(static_cast<uint64_t>(value), 1);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      bytes_ += 'J';
      little_endian(static_cast<uint64_t>(value), 4);
    } else {
      bytes_ += "\x8a\x08";
      little_endian(static_cast<uint64_t>(value), 8);
    }
  }
  void tuple(const std::vector<int64_t>& values) {
    bytes_ += '(';
    for (const int64_t value : values) integer(value);
    bytes_ += 't';
  }
  std::string finish() && { return std::move(bytes_ += '.'); }

 private:
  void little_endian(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  std::string bytes_;
};

// The storage class torch names in a pickle; null for dtypes that came later and go as bytes with a dtype beside them.
const char* storage_class(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "DoubleStorage";
    case DType::kF32:
      return "FloatStorage";
    case DType::kF16:
      return "HalfStorage";
    case DType::kBF16:
      return "BFloat16Storage";
    case DType::kI8:
      return "CharStorage";
    case DType::kI16:
      return "ShortStorage";
    case DType::kI32:
      return "IntStorage";
    case DType::kI64:
      return "LongStorage";
    case DType::kU8:
      return "ByteStorage";
    case DType::kBool:
      return "BoolStorage";
    default:
      return nullptr;
  }
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
      return "float8_e4m3fn";
    case DType::kF8E5M2:
      return "float8_e5m2";
    case DType::kU16:
      return "uint16";
    case DType::kU32:
      return "uint32";
    default:
      return "uint64";
  }
}

void write_tensor(PickleWriter& out, const Tensor& tensor, size_t key, bool complex) {
  const char* storage = storage_class(tensor.dtype());
  Shape shape = tensor.shape();
  if (complex) {
    check_complex(tensor.dtype(), shape, "torch");
    storage = tensor.dtype() == DType::kF64 ? "ComplexDoubleStorage" : "ComplexFloatStorage";
    shape.pop_back();  // [..., 2] → [...]
  }
  out.global("torch._utils", storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.raw("((");
  out.text("storage");
  if (storage)
    out.global("torch", storage);
  else
    out.global("torch.storage", "UntypedStorage");
  out.text(std::to_string(key));
  out.text("cpu");
  out.integer(storage ? checked_numel(shape) : static_cast<int64_t>(tensor.bytes()));
  out.raw("tQ");  // the storage, by persistent id
  out.integer(0);
  out.tuple(shape);
  out.tuple(contiguous_strides(shape));
  out.raw("\x89");  // requires_grad
  out.global("collections", "OrderedDict");
  out.raw(")R");  // no hooks
  if (!storage) out.global("torch", torch_name(tensor.dtype()));
  out.raw("tR");
}

}  // namespace

void write_torch(const fs::path& path, const NamedTensors& tensors, const ComplexNames& complex) {
  PickleWriter pickle;
  pickle.raw("}(");
  std::vector<std::string_view> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (!tensor.defined()) fail(Code::kBadInput, "torch", "\"" + name + "\" is not a tensor");
    if (!is_valid_utf8(name)) fail(Code::kBadInput, "torch", "a name is not UTF-8");
    names.push_back(name);
    pickle.text(name);
    write_tensor(pickle, tensor, i, complex.contains(name));
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail(Code::kBadInput, "torch", "the name \"" + std::string(*twice) + "\" is taken");
  pickle.raw("u");

  ZipWriter writer(path);
  writer.add("archive/data.pkl", std::move(pickle).finish());
  writer.add("archive/.format_version", "1");
  writer.add("archive/.storage_alignment", std::to_string(kStorageAlignment));
  writer.add("archive/byteorder", "little");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor packed = tensors[i].second.contiguous();
    writer.add("archive/data/" + std::to_string(i), {packed.contiguous_bytes()}, kStorageAlignment);
  }
  writer.add("archive/version", "3\n");
  writer.commit();
}

}  // namespace lockstep
