// A folder of tensor files that some other program wrote, read as a run.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "capture/file_names.h"
#include "capture/run_reader.h"
#include "io/tensor_source.h"

namespace lockstep {
namespace {

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

// What a tensor of a file is called as a stage of a run: by the file alone where that holds one tensor, by its own name
// alone where there is one file. So a folder of .npy, one of .pt with a dictionary each and one file with all of them
// are the same run.
std::map<std::string, std::string> stage_names(const fs::path& folder, const TensorSource& source) {
  std::map<fs::path, int> tensors_in;
  for (const TensorInfo& info : source.tensors()) ++tensors_in[info.file.get()];
  std::map<std::string, std::string> names;
  for (const TensorInfo& info : source.tensors()) {
    const std::string file = info.file.get().lexically_relative(folder).replace_extension().string();
    if (!info.name.starts_with(file + "/")) continue;
    const std::string name = tensors_in[info.file.get()] == 1 ? file
                             : tensors_in.size() == 1         ? info.name.substr(file.size() + 1)
                                                              : info.name;
    if (!source.find(name)) names[info.name] = name;
  }
  return names;
}

// Somebody's folder often holds a file that was cut off or is none of ours: the others are still worth comparing.
void say_skipped(const std::vector<SkippedFile>& skipped) {
  constexpr size_t kMostNamed = 8;
  for (size_t i = 0; i < std::min(skipped.size(), kMostNamed); ++i)
    print_error("lockstep: {} is left out: {}\n", skipped[i].file.string(), skipped[i].why);
  if (skipped.size() > kMostNamed) print_error("lockstep: {} more files are left out\n", skipped.size() - kMostNamed);
}

}  // namespace

Run open_plain_folder(const fs::path& path) {
  std::vector<SkippedFile> skipped;
  const std::shared_ptr<const TensorSource> source = open_tensors(path, &skipped);
  say_skipped(skipped);
  if (source->tensors().empty())
    fail(Code::kNotFound, "run", path.string() + " holds no run and no tensors",
         {.expected = "run.json, or .npy, .pt or .safetensors files"});
  std::vector<const TensorInfo*> found;
  for (const TensorInfo& info : source->tensors()) found.push_back(&info);
  std::sort(found.begin(), found.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return natural_less(a->name, b->name); });
  const std::map<std::string, std::string> names = stage_names(fs::path(path / "").parent_path(), *source);
  Run run;
  run.path_ = path;
  run.manifest_ = Json{{"format", "lockstep-run"},         {"version", 1},         {"id", path.filename().string()},
                       {"name", path.filename().string()}, {"status", "finished"}, {"producer", {{"name", "files"}}}};
  for (const SkippedFile& one : skipped)
    run.manifest_["skipped"].push_back({{"file", one.file.string()}, {"why", one.why}});
  for (const TensorInfo* info : found) {
    Record record;
    record.seq = static_cast<int64_t>(run.records_.size());
    const auto renamed = names.find(info->name);
    record.key.name = renamed == names.end() ? info->name : renamed->second;
    // Files that we wrote ourselves say their step, pass and hit in their names.
    if (info->file.extension() == ".npy") record.key = key_from_file_stem(info->name, record.role);
    record.dtype = info->dtype;
    record.dtype_text = dtype_name(info->dtype);
    record.shape = info->shape;
    record.file = info->file.filename().string();
    run.records_.push_back(std::move(record));
    run.loaders_.push_back([source, name = info->name] { return source->tensor(name); });
  }
  run.index_records();
  return run;
}

}  // namespace lockstep
