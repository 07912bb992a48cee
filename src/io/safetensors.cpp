#include "io/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <new>

#include "base/error.h"
#include "base/json.h"
#include "io/mapped_tensor.h"

namespace lockstep {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the official library's limit
constexpr size_t kMaxHeaderDepth = 128;            // serde_json's limit
constexpr std::string_view kMetadataKey = "__metadata__";

class HeaderParser {
 public:
  HeaderParser(const fs::path& origin, uint64_t data_at) : origin_(origin), file_(origin), data_at_(data_at) {}

  void parse(std::string_view json) {
    simdjson::dom::parser parser;
    const auto room = parser.allocate(json.size(), kMaxHeaderDepth);
    if (room == simdjson::MEMALLOC) throw std::bad_alloc();
    if (room)
      corrupt("the header is too large to parse",
              {.expected = "at most " + std::to_string(kMaxHeaderBytes) + " bytes"});
    simdjson::dom::element root;
    // realloc_if_needed copies into a padded buffer: the map may end right after the header.
    const auto error = parser.parse(json.data(), json.size(), true).get(root);
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    if (error)
      corrupt(std::string("the header is not valid JSON: ") + simdjson::error_message(error),
              {.expected = "an object of tensors"});
    simdjson::dom::object object;
    if (root.get(object)) corrupt("the header is not a JSON object", {.expected = "{...}"});
    tensors.reserve(object.size());
    bool metadata_seen = false;
    for (const auto& [key, value] : object) {
      if (key == kMetadataKey) {
        if (metadata_seen) corrupt("\"__metadata__\" occurs twice in the header", {.expected = "each key once"});
        metadata_seen = true;
        read_metadata(value);
      } else {
        read_tensor(key, value);
      }
    }
  }

  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredAs, std::less<>> unpacked;

 private:
  [[noreturn]] void corrupt(const std::string& what, const Detail& detail = {}) const {
    fail(Code::kCorrupt, "safetensors", origin_.string() + ": " + what + " (in the header at offset 8)", detail);
  }

  void read_metadata(simdjson::dom::element value) {
    if (value.is_null()) return;
    simdjson::dom::object object;
    if (value.get(object)) corrupt("\"__metadata__\" is not an object", {.expected = "an object of strings"});
    for (const auto& [key, text] : object) {
      std::string_view content;
      if (text.get(content))
        corrupt("\"__metadata__\" may hold only strings, \"" + std::string(key) + "\" is not one",
                {.expected = "an object of strings"});
      if (!metadata.emplace(key, content).second) corrupt("\"__metadata__\" holds \"" + std::string(key) + "\" twice");
    }
  }

  void read_tensor(std::string_view name, simdjson::dom::element value) {
    TensorInfo& info = tensors.emplace_back();
    info.name = name;
    info.file = file_;
    simdjson::dom::object object;
    if (value.get(object))
      corrupt("the entry of \"" + info.name + "\" is not an object", {.expected = "dtype, shape and data_offsets"});
    bool dtype = false, shape = false, offsets = false;
    for (const auto& [key, field] : object) {
      bool* seen = key == "dtype" ? &dtype : key == "shape" ? &shape : key == "data_offsets" ? &offsets : nullptr;
      if (!seen) continue;  // the official library lets other fields pass
      if (*seen)
        corrupt("the entry of \"" + info.name + "\" holds \"" + std::string(key) + "\" twice",
                {.expected = "each key once"});
      *seen = true;
      if (seen == &dtype)
        read_dtype(info, field);
      else if (seen == &shape)
        read_shape(info, field);
      else
        read_offsets(info, field);
    }
    if (!dtype || !shape || !offsets)
      corrupt("the entry of \"" + info.name + "\" is incomplete", {.expected = "dtype, shape and data_offsets"});
    if (!info.complex) return;
    if (info.shape.size() >= kMaxRank) corrupt("\"" + info.name + "\" has too many axes for complex numbers");
    info.shape.push_back(2);  // [...] → [..., 2], as complex tensors are recorded
  }

  void read_dtype(TensorInfo& info, simdjson::dom::element field) {
    std::string_view text;
    if (field.get(text)) corrupt("the dtype of \"" + info.name + "\" is not a string", {.expected = "such as \"F32\""});
    for (int i = 0; i < kDTypeCount; ++i)
      if (text == safetensors_name(static_cast<DType>(i))) {
        info.dtype = static_cast<DType>(i);
        return;
      }
    if (text == "C64") {
      info.dtype = DType::kF32;
      info.complex = true;
      return;
    }
    if (text == "F8_E8M0" || text == "F4") {
      info.dtype = DType::kF32;
      unpacked[info.name] = text == "F4" ? StoredAs::kF4 : StoredAs::kE8M0;
      return;
    }
    fail(Code::kUnsupported, "safetensors", origin_.string() + ": \"" + info.name + "\" has a dtype we do not read",
         {.expected = "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 F4 C64 I8..I64 U8..U64 BOOL",
          .got = std::string(text.substr(0, 40))});
  }

  void read_shape(TensorInfo& info, simdjson::dom::element field) const {
    simdjson::dom::array sizes;
    if (field.get(sizes))
      corrupt("the shape of \"" + info.name + "\" is not an array", {.expected = "an array of sizes"});
    if (sizes.size() > kMaxRank)
      corrupt("\"" + info.name + "\" has too many axes",
              {.expected = "at most " + std::to_string(kMaxRank), .got = std::to_string(sizes.size())});
    info.shape.reserve(sizes.size());
    for (const auto& element : sizes) {
      uint64_t size = 0;
      if (element.get(size) || size > static_cast<uint64_t>(INT64_MAX))
        corrupt("the shape of \"" + info.name + "\" holds something that is not a size",
                {.expected = "whole numbers of 0 or more"});
      info.shape.push_back(static_cast<int64_t>(size));
    }
  }

  void read_offsets(TensorInfo& info, simdjson::dom::element field) const {
    simdjson::dom::array pair;
    uint64_t range[2] = {0, 0};
    if (field.get(pair) || pair.size() != 2 || pair.at(0).get(range[0]) || pair.at(1).get(range[1]))
      corrupt("data_offsets of \"" + info.name + "\" is not a pair of offsets", {.expected = "[begin, end]"});
    if (range[1] < range[0] || range[1] > static_cast<uint64_t>(INT64_MAX))
      corrupt("data_offsets of \"" + info.name + "\" run backwards or beyond any file",
              {.expected = "begin <= end", .got = std::to_string(range[0]) + ".." + std::to_string(range[1])});
    info.offset_bytes = data_at_ + range[0];
    info.size_bytes = range[1] - range[0];
  }

  const fs::path& origin_;
  SharedPath file_;
  uint64_t data_at_;
};

uint64_t little_endian_u64(const std::byte* at) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) value |= static_cast<uint64_t>(at[i]) << (8 * i);
  return value;
}

// Tensors must tile the buffer: no holes, no overlap, nothing left over. `tensors` is sorted by offset.
void check_layout(const std::vector<TensorInfo>& tensors, const std::map<std::string, StoredAs, std::less<>>& unpacked,
                  uint64_t data_at, uint64_t file_size, const fs::path& origin) {
  uint64_t at = data_at;
  for (const TensorInfo& info : tensors) {
    if (info.offset_bytes != at)
      fail(Code::kCorrupt, "safetensors",
           origin.string() + ": \"" + info.name + "\" " +
               (info.offset_bytes < at ? "overlaps" : "leaves a hole after") + " the tensor before it",
           {.expected = "offset " + std::to_string(at), .got = std::to_string(info.offset_bytes)});
    const uint64_t numel = static_cast<uint64_t>(numel_in_file(info.shape, info.dtype, "safetensors", origin.string()));
    const auto packed = unpacked.find(info.name);
    const bool half = packed != unpacked.end() && packed->second == StoredAs::kF4;
    const uint64_t bits = half ? 4 : packed != unpacked.end() ? 8 : 8 * dtype_bytes(info.dtype);
    if (numel * bits != info.size_bytes * 8)
      fail(Code::kCorrupt, "safetensors", origin.string() + ": the size of \"" + info.name + "\" is wrong",
           {.expected = std::to_string(numel) + " x " + (half ? "1/2" : std::to_string(bits / 8)) + " bytes for " +
                        to_string(info.shape),
            .got = std::to_string(info.size_bytes)});
    at += info.size_bytes;
  }
  if (at != file_size)
    fail(Code::kCorrupt, "safetensors",
         origin.string() + (at > file_size ? ": the file is cut short" : ": bytes follow the last tensor"),
         {.expected = std::to_string(at) + " bytes", .got = std::to_string(file_size)});
}

float unpacked_value(std::span<const std::byte> stored, StoredAs as, size_t index) {
  if (as == StoredAs::kE8M0) {
    const int exponent = std::to_integer<int>(stored[index]);
    return exponent == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, exponent - 127);
  }
  constexpr float kMagnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const int code = std::to_integer<int>(stored[index / 2]) >> (index % 2 ? 4 : 0) & 15;
  return code & 8 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

Tensor unpack(std::span<const std::byte> stored, StoredAs as, const Shape& shape) {
  Tensor values = Tensor::empty(DType::kF32, shape);
  float* const to = values.mutable_data<float>();
  const auto count = static_cast<size_t>(values.numel());
  for (size_t i = 0; i < count; ++i) to[i] = unpacked_value(stored, as, i);
  return values;
}

// The official library's order of dtypes, widest first. C64 stands between F64 and F32.
int layout_rank(DType dtype, bool complex) {
  constexpr DType kOrder[kDTypeCount] = {DType::kU64,    DType::kI64,    DType::kF64, DType::kF32, DType::kU32,
                                         DType::kI32,    DType::kBF16,   DType::kF16, DType::kU16, DType::kI16,
                                         DType::kF8E4M3, DType::kF8E5M2, DType::kI8,  DType::kU8,  DType::kBool};
  const auto rank = static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), dtype) - std::begin(kOrder));
  return 2 * rank - (complex ? 1 : 0);
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(Code::kBadInput, "safetensors", "a name or metadata text is not valid UTF-8");
  }
}

}  // namespace

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const auto parsed = std::const_pointer_cast<SafetensorsFile>(parse(file->bytes(), path, file));
  parsed->map_ = file;
  return parsed;
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const fs::path& origin,
                                                              std::shared_ptr<const void> owner) {
  const auto corrupt = [&](const char* what, const std::string& expected, uint64_t got) {
    fail(Code::kCorrupt, "safetensors", origin.string() + ": " + what,
         {.expected = expected, .got = std::to_string(got)});
  };
  if (bytes.size() < kLengthBytes) corrupt("too short to hold a header", "at least 8 bytes", bytes.size());
  const uint64_t header_size = little_endian_u64(bytes.data());
  if (header_size > kMaxHeaderBytes)
    corrupt("the header length at offset 0 is out of range", "at most " + std::to_string(kMaxHeaderBytes), header_size);
  if (header_size > bytes.size() - kLengthBytes)
    corrupt("the header at offset 8 runs past the end of the file",
            "at most " + std::to_string(bytes.size() - kLengthBytes) + " bytes", header_size);
  const uint64_t data_at = kLengthBytes + header_size;

  HeaderParser header(origin, data_at);
  header.parse({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<size_t>(header_size)});

  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->bytes_ = bytes;
  file->owner_ = std::move(owner);
  file->metadata_ = std::move(header.metadata);
  file->tensors_ = std::move(header.tensors);
  file->unpacked_ = std::move(header.unpacked);
  const auto before = [](const TensorInfo& a, const TensorInfo& b) {
    return a.offset_bytes != b.offset_bytes ? a.offset_bytes < b.offset_bytes : a.size_bytes < b.size_bytes;
  };
  if (!std::is_sorted(file->tensors_.begin(), file->tensors_.end(), before))
    std::stable_sort(file->tensors_.begin(), file->tensors_.end(), before);
  file->index_.reserve(file->tensors_.size());
  for (size_t i = 0; i < file->tensors_.size(); ++i)
    if (!file->index_.emplace(file->tensors_[i].name, i).second)
      fail(Code::kCorrupt, "safetensors",
           origin.string() + ": \"" + file->tensors_[i].name + "\" occurs twice in the header",
           {.expected = "each name once"});
  check_layout(file->tensors_, file->unpacked_, data_at, bytes.size(), origin);
  return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (!info) fail(Code::kNotFound, "safetensors", "no tensor named \"" + std::string(name) + "\"");
  const std::span<const std::byte> stored = bytes_.subspan(info->offset_bytes, info->size_bytes);
  if (const auto packed = unpacked_.find(name); packed != unpacked_.end())
    return unpack(stored, packed->second, info->shape);
  return tensor_from_bytes(stored, info->dtype, info->shape, owner_);
}

void SafetensorsFile::drop_pages(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info && map_) map_->drop_pages(bytes_.subspan(info->offset_bytes, info->size_bytes));
}

bool SafetensorsFile::holds(const Tensor& tensor) const {
  const std::less<> before;
  return tensor.defined() && !before(tensor.strided_data(), bytes_.data()) &&
         before(tensor.strided_data(), bytes_.data() + bytes_.size());
}

void write_safetensors(const fs::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata, const ComplexNames& complex) {
  std::vector<const NamedTensors::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [&complex](const auto* a, const auto* b) {
    const int x = layout_rank(a->second.dtype(), complex.contains(a->first)),
              y = layout_rank(b->second.dtype(), complex.contains(b->first));
    return x != y ? x < y : a->first < b->first;
  });
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata)
      header += (header.back() == '{' ? "" : ",") + quoted(key) + ":" + quoted(text);
    header += "}";
  }
  std::unordered_map<std::string_view, int> names;
  uint64_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    if (!tensor.defined()) fail(Code::kBadInput, "safetensors", "\"" + name + "\" is not a tensor");
    if (name == kMetadataKey || ++names[name] > 1)
      fail(Code::kBadInput, "safetensors", "the name \"" + name + "\" is taken");
    if (header.size() > 1) header += ",";
    const bool pairs = complex.contains(name);
    if (pairs) check_complex(tensor.dtype(), tensor.shape(), "safetensors");
    if (pairs && tensor.dtype() != DType::kF32)
      fail(Code::kUnsupported, "safetensors", "\"" + name + "\" holds complex numbers of two f64",
           {.expected = "of two f32 (C64), the only ones of the format", .hint = ".npy, .npz or .pt"});
    header += quoted(name) + ":{\"dtype\":\"" +
              (pairs ? std::string("C64") : std::string(safetensors_name(tensor.dtype()))) + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.rank() - (pairs ? 1 : 0); ++i)
      header += (i ? "," : "") + std::to_string(tensor.shape()[i]);
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + tensor.bytes()) + "]}";
    at += tensor.bytes();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeaderBytes)
    fail(Code::kBadInput, "safetensors", "the header would be larger than readers accept");

  std::byte length[kLengthBytes];
  for (size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xFF);
  AtomicFile file(path);
  file.write(std::span<const std::byte>(length, kLengthBytes));
  file.write(header);
  for (const auto* entry : order) file.write(entry->second.contiguous().contiguous_bytes());
  file.commit();
}

}  // namespace lockstep
