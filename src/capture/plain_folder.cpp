// A folder of tensor files that some other program wrote, read as a run.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "capture/file_names.h"
#include "capture/run_reader.h"
#include "io/npy.h"
#include "io/safetensors.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxFiles = 1'000'000;

struct Found {
  TensorKey key;
  Role role = Role::kCheckpoint;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<Tensor()> load;
};

// Numbers by value, so that block 2 comes before block 10 as it does in the model.
bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (!a.empty() && !b.empty()) {
    if (digit(a[0]) && digit(b[0])) {
      const auto take = [&](std::string_view& text) {
        size_t n = 0;
        while (n < text.size() && digit(text[n])) ++n;
        std::string_view number = text.substr(0, n);
        text.remove_prefix(n);
        while (number.size() > 1 && number[0] == '0') number.remove_prefix(1);
        return number;
      };
      const std::string_view x = take(a), y = take(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      continue;
    }
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::vector<fs::path> tensor_files(const fs::path& root) {
  std::vector<fs::path> files;
  std::error_code error;
  if (!fs::is_directory(root, error)) return {root};
  fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error), end;
  while (!error && it != end && files.size() < kMaxFiles) {
    if (it.depth() >= kMaxDepth) it.disable_recursion_pending();
    const fs::path extension = it->path().extension();
    if (it->is_regular_file(error) &&
        (extension == ".npy" || extension == ".safetensors" || extension == ".pt" || extension == ".pth"))
      files.push_back(it->path());
    it.increment(error);
  }
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return natural_less(a.string(), b.string()); });
  return files;
}

void add_npy(const fs::path& file, const std::string& stem, std::vector<Found>& found) {
  Found tensor;
  tensor.key = key_from_file_stem(stem, tensor.role);
  const Tensor values = read_npy(file);
  tensor.dtype = values.dtype();
  tensor.shape = values.shape();
  tensor.load = [file] { return read_npy(file); };
  found.push_back(std::move(tensor));
}

void add_safetensors(const fs::path& file, std::vector<Found>& found) {
  const auto opened = SafetensorsFile::open(file);
  for (const TensorInfo& info : opened->tensors()) {
    Found tensor;
    tensor.key.name = info.name;
    tensor.dtype = info.dtype;
    tensor.shape = info.shape;
    tensor.load = [opened, name = info.name] { return opened->tensor(name); };
    found.push_back(std::move(tensor));
  }
}

// Files that repeat each other's names (one per step, one per rank) are told apart by their own names.
void separate_equal_names(std::vector<Found>& found, const std::vector<std::string>& stems) {
  std::map<std::string, size_t> first;
  bool clash = false;
  for (const Found& tensor : found) clash = !first.emplace(to_string(tensor.key), 0).second || clash;
  if (!clash) return;
  for (size_t i = 0; i < found.size(); ++i)
    if (!stems[i].empty()) found[i].key.name = stems[i] + "." + found[i].key.name;
}

}  // namespace

Run open_plain_folder(const fs::path& path) {
  std::vector<Found> found;
  std::vector<std::string> stems;
  for (const fs::path& file : tensor_files(path)) {
    const std::string stem = (file == path ? file.stem() : file.lexically_relative(path).replace_extension()).string();
    if (file.extension() == ".npy")
      add_npy(file, stem, found);
    else if (file.extension() == ".safetensors")
      add_safetensors(file, found);
    else
      fail(Code::kUnsupported, "run", file.string() + ": torch files are not read yet",
           {.hint = "saving the tensors as .npy or .safetensors"});
    // An .npy file's name is its tensor's name already.
    stems.resize(found.size(), file.extension() == ".npy" ? "" : stem);
  }
  if (found.empty())
    fail(Code::kNotFound, "run", path.string() + " holds no run and no tensors",
         {.expected = "run.json, or .npy, .pt or .safetensors files"});
  separate_equal_names(found, stems);
  Run run;
  run.path_ = path;
  run.manifest_ = Json{{"format", "lockstep-run"},         {"version", 1},         {"id", path.filename().string()},
                       {"name", path.filename().string()}, {"status", "finished"}, {"producer", {{"name", "files"}}}};
  for (Found& tensor : found) {
    Record record;
    record.seq = static_cast<int64_t>(run.records_.size());
    record.key = std::move(tensor.key);
    record.role = tensor.role;
    record.dtype = tensor.dtype;
    record.dtype_text = dtype_name(tensor.dtype);
    record.shape = std::move(tensor.shape);
    record.file = "-";
    run.records_.push_back(std::move(record));
    run.loaders_.push_back(std::move(tensor.load));
  }
  run.index_records();
  return run;
}

}  // namespace lockstep
