#include "capture/saved_tensors.h"

#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "capture/file_names.h"
#include "capture/store.h"
#include "io/npy.h"

namespace lockstep {
namespace {

fs::path saved_file(const fs::path& home, std::string_view name, const char* extension) {
  return home / "saved" / (escape_name(name) + extension);
}

}  // namespace

void save_tensor(const fs::path& home, std::string_view name, const Tensor& tensor) {
  std::error_code error;
  fs::create_directories(home / "saved", error);
  if (error) fail(Code::kIo, "save", (home / "saved").string() + ": " + error.message());
  // The name and dtype beside it: file names may be cut, and an .npy file cannot say "bf16".
  const Json about{{"name", std::string(name)},
                   {"dtype", std::string(dtype_name(tensor.dtype()))},
                   {"shape", tensor.shape()},
                   {"saved", utc_now()}};
  write_npy(saved_file(home, name, ".npy"), tensor);
  write_atomically(saved_file(home, name, ".json"), about.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Tensor load_tensor(const fs::path& home, std::string_view name) {
  const fs::path file = saved_file(home, name, ".npy");
  std::error_code error;
  if (!fs::exists(file, error)) {
    std::vector<std::string> known;
    for (fs::directory_iterator it(home / "saved", error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".npy") known.push_back(unescape_name(it->path().stem().string()));
    const std::vector<std::string> near = nearest_names(name, known, 1);
    fail(Code::kNotFound, "load", "no tensor '" + std::string(name) + "' in " + (home / "saved").string(),
         {.hint = near.empty() ? "save() first" : "'" + near.front() + "'"});
  }
  std::optional<DType> dtype;
  const fs::path about = saved_file(home, name, ".json");
  if (fs::exists(about, error)) {
    const Json json = read_json(about, 1 << 20);
    const auto text = json.find("dtype");
    if (text != json.end() && text->is_string()) dtype = dtype_from_name(text->get<std::string>());
  }
  // Only 1- and 2-byte void types need telling; for the others the file itself is right.
  if (dtype && *dtype != DType::kBF16 && *dtype != DType::kF8E4M3 && *dtype != DType::kF8E5M2) dtype.reset();
  return read_npy(file, dtype);
}

}  // namespace lockstep
