#include "service/twins.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/folder.h"
#include "base/names.h"

namespace lockstep {
namespace {

constexpr size_t kMostTwins = 1000;  // folders that are looked into

std::string as_folder(const std::string& name) {
  std::string out;
  for (const char c : name.substr(0, 60))
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '_';
  return out.empty() ? "twin" : out;
}

}  // namespace

fs::path Twins::make_meeting_place(const std::string& name) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  // Numbered, so that the newest is known whatever the clock says.
  size_t last = 0;
  for (const fs::directory_entry& entry : folder_entries(folder_, "twin"))
    last = std::max<size_t>(last, static_cast<size_t>(std::strtoull(entry.path().filename().c_str(), nullptr, 10)));
  for (size_t number = last + 1; number < last + 100; ++number) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%06zu", number);
    const fs::path place = folder_ / (std::string(digits) + "-" + as_folder(name));
    if (::mkdir(place.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      break;
    }
    for (const char* pipe : {"to_candidate", "to_reference"})
      if (::mkfifo((place / pipe).c_str(), 0600) != 0)
        fail(Code::kIo, "twin", "cannot make a pipe in " + place.string() + ": " + std::strerror(errno));
    return place;
  }
  fail(Code::kIo, "twin", "cannot make a folder in " + folder_.string());
}

void Twins::keep(const fs::path& place, const Twin& twin) const {
  write_atomically(place / "twin.json",
                   Json{{"name", twin.name}, {"reference", twin.reference}, {"candidate", twin.candidate}}.dump(1));
}

Twin Twins::find(const std::string& name) const {
  std::vector<fs::path> places;
  std::error_code error;
  if (fs::is_directory(folder_, error))
    for (const fs::directory_entry& entry : folder_entries(folder_, "twin")) places.push_back(entry.path());
  std::sort(places.rbegin(), places.rend());
  if (places.size() > kMostTwins) places.resize(kMostTwins);
  std::vector<std::string> names;
  for (const fs::path& place : places) {
    Json kept;
    try {
      kept = read_json(place / "twin.json", 1 << 16);
    } catch (const Error&) {  // its programs did not start
      continue;
    }
    const auto text = [&](const char* field) {
      const Json value = kept.is_object() ? kept.value(field, Json("")) : Json("");
      return value.is_string() ? value.get<std::string>() : std::string();
    };
    const Twin twin{text("name"), text("reference"), text("candidate")};
    if (name.empty() || twin.name == name) return twin;
    names.push_back(twin.name);
  }
  const std::vector<std::string> near = nearest_names(name, names, 1);
  fail(Code::kNotFound, "twin", name.empty() ? "there is no twin session" : "there is no twin session '" + name + "'",
       {.hint = near.empty() ? "debug twin REFERENCE.py CANDIDATE.py" : near[0]});
}

}  // namespace lockstep
