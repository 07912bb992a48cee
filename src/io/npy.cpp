#include "io/npy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "io/mapped_tensor.h"
#include "io/npy_header.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxNpyHeaderBytes = 10'000;  // numpy.load's own limit

struct Element {
  DType dtype;
  bool swapped;          // big endian on disk
  bool complex = false;  // two of dtype each
};

[[noreturn]] void corrupt(std::string_view origin, const std::string& what, const Detail& detail = {}) {
  fail(Code::kCorrupt, "npy", std::string(origin) + ": " + what, detail);
}

Element element_from_descr(const std::string& descr, std::optional<DType> void_dtype, std::string_view origin) {
  std::string_view code = descr;
  char order = '=';
  if (!code.empty() && (code[0] == '<' || code[0] == '>' || code[0] == '|' || code[0] == '=')) {
    order = code[0];
    code.remove_prefix(1);
  }
  const auto element = [&](DType dtype) { return Element{dtype, order == '>' && dtype_bytes(dtype) > 1}; };
  constexpr std::pair<std::string_view, DType> kCodes[] = {
      {"f8", DType::kF64}, {"f4", DType::kF32},  {"f2", DType::kF16}, {"i1", DType::kI8},     {"i2", DType::kI16},
      {"i4", DType::kI32}, {"i8", DType::kI64},  {"u1", DType::kU8},  {"u2", DType::kU16},    {"u4", DType::kU32},
      {"u8", DType::kU64}, {"b1", DType::kBool}, {"?", DType::kBool}, {"f1", DType::kF8E5M2},  // what NumPy writes for
                                                                                               // ml_dtypes' float8_e5m2
  };
  for (const auto& [name, dtype] : kCodes)
    if (code == name) return element(dtype);
  if (code == "c8" || code == "c16") {
    Element part = element(code == "c8" ? DType::kF32 : DType::kF64);
    part.complex = true;
    return part;
  }
  if (code == "V1" || code == "V2") {
    const size_t bytes = code == "V2" ? 2 : 1;
    const DType dtype = void_dtype.value_or(bytes == 2 ? DType::kBF16 : DType::kU8);
    if (dtype_bytes(dtype) != bytes)
      fail(Code::kBadInput, "npy", std::string(origin) + " does not hold " + std::string(dtype_name(dtype)),
           {.expected = "a dtype of " + std::to_string(bytes) + " bytes"});
    return element(dtype);
  }
  fail(Code::kUnsupported, "npy", std::string(origin) + " holds elements we do not read",
       {.expected = "floats, complex numbers, integers or bool", .got = "descr '" + descr.substr(0, 40) + "'"});
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "<f8";
    case DType::kF32:
      return "<f4";
    case DType::kF16:
      return "<f2";
    case DType::kBF16:
      return "<V2";
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return "|V1";
    case DType::kI8:
      return "|i1";
    case DType::kI16:
      return "<i2";
    case DType::kI32:
      return "<i4";
    case DType::kI64:
      return "<i8";
    case DType::kU8:
      return "|u1";
    case DType::kU16:
      return "<u2";
    case DType::kU32:
      return "<u4";
    case DType::kU64:
      return "<u8";
    case DType::kBool:
      break;
  }
  return "|b1";
}

void swap_bytes(Tensor& tensor) {
  const size_t item = dtype_bytes(tensor.dtype());
  std::byte* at = tensor.mutable_strided_data();
  for (int64_t i = 0; i < tensor.numel(); ++i, at += item) std::reverse(at, at + item);
}

// v1 headers are Latin-1, v3 headers UTF-8; a dtype we read is ASCII either way.
struct Preamble {
  std::string_view header;
  size_t data_at;
};

Preamble read_preamble(std::span<const std::byte> bytes, std::string_view origin) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < 10)
    corrupt(origin, "too short for a .npy header",
            {.expected = "at least 10 bytes", .got = std::to_string(text.size())});
  if (!text.starts_with(kMagic)) corrupt(origin, "no \\x93NUMPY at offset 0", {.expected = "a .npy file"});
  const int major = static_cast<unsigned char>(text[6]), minor = static_cast<unsigned char>(text[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(Code::kUnsupported, "npy", std::string(origin) + ": unknown format version",
         {.expected = "1.0, 2.0 or 3.0", .got = std::to_string(major) + "." + std::to_string(minor)});
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (text.size() < 8 + length_bytes)
    corrupt(origin, "cut off inside the header length at offset 8",
            {.expected = std::to_string(length_bytes) + " bytes"});
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(text[8 + i])) << (8 * i);
  const size_t header_at = 8 + length_bytes;
  if (length > kMaxNpyHeaderBytes)
    corrupt(origin, "the header length at offset 8 is out of range",
            {.expected = "at most " + std::to_string(kMaxNpyHeaderBytes), .got = std::to_string(length)});
  if (length > text.size() - header_at)
    corrupt(origin, "cut off inside the header",
            {.expected = std::to_string(length) + " bytes from offset " + std::to_string(header_at),
             .got = std::to_string(text.size() - header_at)});
  return {text.substr(header_at, length), header_at + length};
}

}  // namespace

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view origin, std::shared_ptr<const void> owner,
                 std::optional<DType> void_dtype) {
  const NpyLayout layout = parse_npy_layout(bytes, bytes.size(), origin, void_dtype);
  const std::span<const std::byte> data = bytes.subspan(layout.data_at);
  Shape stored = layout.shape;
  const auto inner = layout.complex ? 1 : 0;  // real and imaginary part lie beside each other in either order
  if (layout.fortran_order) std::reverse(stored.begin(), stored.end() - inner);
  Tensor tensor = tensor_from_bytes(data, layout.dtype, stored, std::move(owner));
  if (layout.big_endian) {
    tensor = tensor.clone();
    swap_bytes(tensor);
  }
  if (!layout.fortran_order) return tensor;
  std::vector<int> axes(stored.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::reverse(axes.begin(), axes.end() - inner);
  return tensor.permute(axes).contiguous();
}

NpyLayout parse_npy_layout(std::span<const std::byte> bytes, uint64_t file_size, std::string_view origin,
                           std::optional<DType> void_dtype) {
  const Preamble preamble = read_preamble(bytes, origin);
  NpyHeader header = parse_npy_header(preamble.header, origin);
  const Element element = element_from_descr(header.descr, void_dtype, origin);
  if (element.complex) {
    if (header.shape.size() >= kMaxRank) corrupt(origin, "too many axes for complex numbers");
    header.shape.push_back(2);  // [...] → [..., 2], as complex tensors are recorded
  }
  const uint64_t numel = static_cast<uint64_t>(numel_in_file(header.shape, element.dtype, "npy", origin)),
                 item = dtype_bytes(element.dtype);
  const uint64_t available = file_size - preamble.data_at;
  if (numel > available / item || numel * item != available)
    corrupt(origin, numel > available / item ? "the data is cut short" : "bytes follow the array",
            {.expected = std::to_string(numel) + " x " + std::to_string(item) + " bytes from offset " +
                         std::to_string(preamble.data_at),
             .got = std::to_string(available)});
  return {element.dtype, header.shape, header.fortran_order, element.swapped, element.complex, preamble.data_at};
}

Tensor read_npy(const fs::path& path, std::optional<DType> void_dtype) {
  const auto file = MappedFile::open(path);
  return parse_npy(file->bytes(), path.string(), file, void_dtype);
}

std::string npy_header(DType dtype, const Shape& given, size_t alignment, bool complex) {
  Shape shape = given;
  if (complex) {
    check_complex(dtype, shape, "npy");
    shape.pop_back();  // [..., 2] → [...]
  }
  const std::string_view descr = !complex ? descr_of(dtype) : dtype == DType::kF64 ? "<c16" : "<c8";
  std::string tuple = "(";
  for (const int64_t size : shape) tuple += std::to_string(size) + ", ";
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  if (shape.size() == 1) tuple.pop_back();
  const std::string text = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + tuple + "), }";
  const size_t before = kMagic.size() + 4;
  // Room to grow, as NumPy leaves it, is not needed: the file is written once.
  const size_t total = (before + text.size() + 1 + alignment - 1) / alignment * alignment;
  const size_t length = total - before;
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(length & 0xFF), static_cast<char>(length >> 8)};
  header += text;
  header.append(total - header.size() - 1, ' ');
  return header + "\n";
}

void write_npy(const fs::path& path, const Tensor& tensor, bool complex) {
  if (!tensor.defined()) fail(Code::kBadInput, "npy", "no tensor to write to " + path.string());
  const Tensor packed = tensor.contiguous();
  const std::string header = npy_header(packed.dtype(), packed.shape(), 64, complex);
  AtomicFile file(path);
  file.write(header);
  file.write(packed.contiguous_bytes());
  file.commit();
}

}  // namespace lockstep
