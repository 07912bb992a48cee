// Drives the file readers and writers for the Python tests. One JSON array a line on stdin, one JSON answer a line on
// stdout: ["list", path], ["check", path], ["dump", path, folder], ["write", folder, path], ["convert", from, to, in,
// out],
// ["image", path, out], ["write_image", in, path, quality, {text}], ["resize", in, out, height, width, how],
// ["mode", in, out, mode].
#include <zlib.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "io/image.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/picture_modes.h"
#include "io/resize.h"
#include "io/tensor_source.h"
#include "io/torch_file.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

void put_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Json shape_json(const Shape& shape) {
  return Json(shape);
}

// Loads every tensor, so that damage in the data counts too: [name, shape, crc32] each.
Json check(const fs::path& path) {
  const auto source = open_tensors(path);
  Json list = Json::array();
  for (const TensorInfo& info : source->tensors()) {
    const Tensor tensor = source->tensor(info.name);
    if (tensor.shape() != info.shape || tensor.dtype() != info.dtype)
      fail(Code::kInternal, "probe", "the listing of \"" + info.name + "\" lies");
    Json crc = nullptr;  // of an expanded view: it has more elements than bytes
    if (tensor.is_contiguous()) {
      const auto bytes = tensor.contiguous_bytes();
      crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    }
    list.push_back({info.name, info.shape, crc});
  }
  return {{"tensors", list}};
}

Json list(const fs::path& path) {
  return {{"tensors", open_tensors(path)->tensors().size()}};
}

Json dump(const fs::path& path, const fs::path& folder) {
  const auto source = open_tensors(path);
  Json list = Json::array();
  for (const TensorInfo& info : source->tensors()) {
    const Tensor tensor = source->tensor(info.name).contiguous();
    put_bytes(folder / (std::to_string(list.size()) + ".bin"), tensor.contiguous_bytes());
    list.push_back({{"name", info.name}, {"dtype", dtype_name(info.dtype)}, {"shape", shape_json(info.shape)}});
  }
  return {{"tensors", list}, {"metadata", source->metadata()}};
}

// `folder` holds tensors.json, as dump answers, and the .bin files.
Json write(const fs::path& folder, const fs::path& path) {
  const Json list = read_json(folder / "tensors.json");
  NamedTensors tensors;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto file = MappedFile::open(folder / (std::to_string(i) + ".bin"));
    const DType dtype = dtype_from_name(list[i]["dtype"].get<std::string>()).value();
    const Shape shape = list[i]["shape"].get<Shape>();
    Tensor tensor = Tensor::empty(dtype, shape);
    if (tensor.bytes() != file->bytes().size()) fail(Code::kBadInput, "probe", "wrong size");
    if (tensor.bytes() > 0) std::memcpy(tensor.mutable_strided_data(), file->bytes().data(), tensor.bytes());
    tensors.emplace_back(list[i]["name"].get<std::string>(), tensor);
  }
  const std::string extension = path.extension().string();
  if (extension == ".npy")
    write_npy(path, tensors.at(0).second);
  else if (extension == ".npz")
    write_npz(path, tensors);
  else if (extension == ".pt")
    write_torch(path, tensors);
  else
    write_safetensors(path, tensors);
  return {{"written", tensors.size()}};
}

Json convert(const Json& call) {
  const DType from = dtype_from_name(call[1].get<std::string>()).value(),
              to = dtype_from_name(call[2].get<std::string>()).value();
  const auto file = MappedFile::open(call[3].get<std::string>());
  const int64_t count = static_cast<int64_t>(file->bytes().size() / dtype_bytes(from));
  Tensor out = Tensor::empty(to, {count});
  convert_elements(file->bytes().data(), from, out.mutable_strided_data(), to, count);
  put_bytes(call[4].get<std::string>(), out.contiguous_bytes());
  return {{"count", count}};
}

Json image(const fs::path& path, const fs::path& out) {
  const Image image = read_image(path);
  write_npy(out, image.pixels);
  return {{"shape", shape_json(image.pixels.shape())}, {"text", image.text}};
}

Json answer(const Json& call) {
  const std::string command = call.at(0).get<std::string>();
  if (command == "check") return check(call.at(1).get<std::string>());
  if (command == "list") return list(call.at(1).get<std::string>());
  if (command == "dump") return dump(call.at(1).get<std::string>(), call.at(2).get<std::string>());
  if (command == "write") return write(call.at(1).get<std::string>(), call.at(2).get<std::string>());
  if (command == "convert") return convert(call);
  if (command == "image") return image(call.at(1).get<std::string>(), call.at(2).get<std::string>());
  if (command == "write_image") {
    write_image(call.at(2).get<std::string>(),
                {read_npy(call.at(1).get<std::string>()), call.at(4).get<std::map<std::string, std::string>>()},
                call.at(3).get<int>());
    return {{"written", 1}};
  }
  if (command == "resize") {
    const std::string how = call.at(5).get<std::string>();
    const Resampling resampling = how == "lanczos"   ? Resampling::kPillowLanczos
                                  : how == "bicubic" ? Resampling::kPillowBicubic
                                                     : Resampling::kTorchvisionBicubic;
    const Tensor pixels = read_npy(call.at(1).get<std::string>());
    const auto begin = std::chrono::steady_clock::now();
    const Tensor result = resize_picture(pixels, call.at(3).get<int64_t>(), call.at(4).get<int64_t>(), resampling);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    write_npy(call.at(2).get<std::string>(), result);
    return {{"secs", spent.count()}};
  }
  if (command == "mode") {
    const std::string mode = call.at(3).get<std::string>();
    const Tensor pixels = read_npy(call.at(1).get<std::string>());
    write_npy(call.at(2).get<std::string>(), mode == "rgb"    ? rgb_over_white(pixels)
                                             : mode == "rgba" ? rgba_picture(pixels)
                                                              : mask_picture(pixels));
    return {{"written", 1}};
  }
  fail(Code::kUsage, "probe", "unknown command " + command);
}

}  // namespace
}  // namespace lockstep

int main() {
  using namespace lockstep;
  for (std::string line; std::getline(std::cin, line);) {
    Json reply;
    try {
      reply = answer(parse_json(line, "stdin"));
    } catch (const Error& error) {
      reply = {{"error", code_name(error.code())}, {"message", error.what()}};
    }
    std::cout << reply.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
