#include "capture/saved_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <system_error>

#include "base/error.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/names.h"
#include "base/number_text.h"
#include "base/text.h"
#include "capture/file_names.h"
#include "capture/store.h"
#include "io/npy.h"

namespace lockstep {
namespace {

fs::path saved_file(const fs::path& home, std::string_view name, const char* extension) {
  return home / "saved" / (escape_name(name) + extension);
}

// The limits of the store hold for saved tensors too. It is walked once a process; from then on what is saved is added.
void take_room(const fs::path& home, uint64_t bytes) {
  static std::mutex mutex;
  static std::map<fs::path, uint64_t> taken;
  static bool warned = false;
  const std::lock_guard lock(mutex);
  const Store store(home);
  const StoreLimits limits = store.limits();
  const auto [at, is_new] = taken.try_emplace(fs::absolute(home).lexically_normal(), 0);
  if (is_new) at->second = store.size_bytes();
  if (at->second + bytes > limits.refuse_bytes) at->second = store.size_bytes();  // something may have been removed
  if (at->second + bytes > limits.refuse_bytes)
    fail(Code::kIo, "save",
         "the store " + home.string() + " has reached its limit of " + text_from_bytes(limits.refuse_bytes),
         {.hint = "'lockstep runs remove', 'lockstep tensors clear' or 'lockstep runs limits'"});
  at->second += bytes;
  if (at->second <= limits.warn_bytes || warned) return;
  warned = true;
  print_error("lockstep: the store {} holds more than {}; nothing is saved beyond {}\n", home.string(),
              text_from_bytes(limits.warn_bytes), text_from_bytes(limits.refuse_bytes));
}

}  // namespace

void save_tensor(const fs::path& home, std::string_view name, const Tensor& tensor) {
  std::error_code error;
  fs::create_directories(home / "saved", error);
  if (error) fail(Code::kIo, "save", (home / "saved").string() + ": " + error.message());
  take_room(home, tensor.bytes());
  // The name and dtype beside it: file names may be cut, and an .npy file cannot say "bf16".
  const Json about{{"name", std::string(name)},
                   {"dtype", std::string(dtype_name(tensor.dtype()))},
                   {"shape", tensor.shape()},
                   {"saved", utc_now()}};
  write_npy(saved_file(home, name, ".npy"), tensor);
  write_atomically(saved_file(home, name, ".json"), about.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<SavedTensor> saved_tensors(const fs::path& home) {
  std::vector<SavedTensor> found;
  for (const fs::directory_entry& entry : folder_entries(home / "saved", "saved")) {
    std::error_code ignored;
    if (entry.path().extension() != ".npy" || !entry.is_regular_file(ignored)) continue;
    found.push_back({unescape_name(entry.path().stem().string()), entry.path(), entry.file_size(ignored)});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

void remove_saved(const SavedTensor& tensor) {
  std::error_code error;
  fs::remove(fs::path(tensor.file).replace_extension(".json"), error);
  fs::remove(tensor.file, error);
  if (error) fail(Code::kIo, "clear", tensor.file.string() + ": " + error.message());
}

Tensor load_tensor(const fs::path& home, std::string_view name) {
  const fs::path file = saved_file(home, name, ".npy");
  std::error_code error;
  if (!fs::exists(file, error)) {
    std::vector<std::string> known;
    for (const SavedTensor& saved : saved_tensors(home)) known.push_back(saved.name);
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
