// source, modules, loadedSources, and the events of files that were loaded since.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"

namespace lockstep {
namespace {

using dap::field;
using dap::flag;
using dap::text;
using dap::whole;

constexpr int64_t kMostSourceLines = 200'000;
constexpr size_t kMostShownSources = 100'000;

Json module_from(const Json& file) {
  return {{"id", text(file, "module", "?")},
          {"name", text(file, "module", "?")},
          {"path", text(file, "file")},
          {"isUserCode", !flag(file, "library")}};
}

}  // namespace

// What is no file of the client's machine, such as executed text, is asked for by a number.
Json DapAdapter::source_of(const std::string& file, const std::string& hint) {
  Json source{{"name", fs::path(file).filename().string()}};
  if (!hint.empty()) source["presentationHint"] = hint;
  std::error_code error;
  if (file.starts_with('/') && fs::is_regular_file(file, error)) {
    source["path"] = file;
    return source;
  }
  const std::lock_guard lock(state_mutex_);
  auto found = std::find(shown_sources_.begin(), shown_sources_.end(), file);
  if (found == shown_sources_.end()) {
    if (shown_sources_.size() >= kMostShownSources) return source;
    found = shown_sources_.insert(shown_sources_.end(), file);
  }
  source["sourceReference"] = found - shown_sources_.begin() + 1;
  return source;
}

Json DapAdapter::source(const Json& arguments, CallControl& control) {
  int64_t number = whole(field(arguments, "source"), "sourceReference");
  if (number == 0) number = whole(arguments, "sourceReference");
  std::string file = text(field(arguments, "source"), "path");
  {
    const std::lock_guard lock(state_mutex_);
    if (number >= 1 && number <= static_cast<int64_t>(shown_sources_.size()))
      file = shown_sources_[static_cast<size_t>(number - 1)];
  }
  if (file.empty()) fail(Code::kNotFound, "source", "there is no such source");
  std::string content;
  int64_t line = 0, total = 1;
  while (line < std::min(total, kMostSourceLines)) {
    const Json part = call("debug source", {{"file", file}, {"line", line + 201}, {"around", 200}}, control);
    total = whole(part, "total", line + static_cast<int64_t>(dap::list(part, "lines").size()));
    const int64_t first = whole(part, "first", 1);
    const Json lines = dap::list(part, "lines");
    for (size_t i = 0; i < lines.size(); ++i)
      if (first + static_cast<int64_t>(i) == line + 1 && lines[i].is_string()) {
        std::string one = lines[i].get<std::string>();
        while (!one.empty() && (one.back() == '\n' || one.back() == '\r')) one.pop_back();
        content += (line > 0 ? "\n" : "") + one;
        ++line;
      }
    if (lines.empty() || first + static_cast<int64_t>(lines.size()) <= line) break;
  }
  return {{"content", content}, {"mimeType", "text/x-python"}};
}

std::vector<Json> DapAdapter::loaded_files(CallControl& control) {
  std::vector<Json> all;
  for (int64_t after = 0;;) {
    const Json part = call("debug loaded", {{"after", after}}, control);
    const Json files = dap::list(part, "files");
    for (const Json& file : files) all.push_back(file);
    after = whole(part, "next");
    if (files.empty() || after >= whole(part, "total")) return all;
  }
}

Json DapAdapter::modules(const Json& arguments, CallControl& control) {
  const std::vector<Json> all = loaded_files(control);
  const auto start = static_cast<size_t>(std::max<int64_t>(whole(arguments, "startModule"), 0));
  const int64_t count = whole(arguments, "moduleCount");
  Json shown = Json::array();
  for (size_t i = start; i < all.size() && (count <= 0 || shown.size() < static_cast<size_t>(count)); ++i)
    shown.push_back(module_from(all[i]));
  return {{"modules", std::move(shown)}, {"totalModules", all.size()}};
}

Json DapAdapter::loaded_sources(const Json&, CallControl& control) {
  Json shown = Json::array();
  for (const Json& file : loaded_files(control)) shown.push_back(source_of(text(file, "file")));
  return {{"sources", std::move(shown)}};
}

// After a stop at which more modules are there than at the last one.
void DapAdapter::tell_loaded() {
  CallControl control;
  while (true) {
    const Json part = call("debug loaded", {{"after", modules_told_}}, control);
    const Json files = dap::list(part, "files");
    for (const Json& file : files) {
      event("module", {{"reason", "new"}, {"module", module_from(file)}});
      event("loadedSource", {{"reason", "new"}, {"source", source_of(text(file, "file"))}});
    }
    modules_told_ = whole(part, "next");
    if (files.empty() || modules_told_ >= whole(part, "total")) return;
  }
}

}  // namespace lockstep
