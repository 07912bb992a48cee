// maps list, show, save: map files that were made by hand, kept in the home folder under a name. No path is taken.
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "compare/pairing.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

constexpr size_t kMostName = 64;
constexpr uint64_t kMostMapBytes = 4 << 20;

fs::path map_file(const Service& service, const std::string& name) {
  const bool plain = !name.empty() && name.size() <= kMostName && name[0] != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return c < 0x80 && (std::isalnum(c) || c == '-' || c == '_' || c == '.');
                     });
  if (!plain) fail(Code::kBadInput, "maps", "this is no name for a map", {.expected = "letters, digits, - _ and ."});
  return service.home() / "maps" / (name + ".json");
}

Json maps_list(Service& service, const Json&, CallControl&) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(service.home() / "maps", error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  Json maps = Json::array();
  for (const std::string& name : names)
    maps.push_back({{"name", name}, {"path", (service.home() / "maps" / (name + ".json")).string()}});
  return {{"maps", std::move(maps)}};
}

Json maps_show(Service& service, const Json& arguments, CallControl&) {
  const fs::path file = map_file(service, text_argument(arguments, "name"));
  return {{"path", file.string()}, {"map", read_json(file, kMostMapBytes)}};
}

Json maps_save(Service& service, const Json& arguments, CallControl&) {
  const fs::path file = map_file(service, text_argument(arguments, "name"));
  const Json document = parse_json(text_argument(arguments, "map"), "the map");
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  // Read by what reads every map before it takes the place of one that works.
  fs::path tried = file;
  tried.replace_extension(".tried");
  write_atomically(tried, document.dump(2) + "\n");
  size_t rules = 0;
  try {
    rules = read_map(tried).size();
  } catch (...) {
    fs::remove(tried, error);
    throw;
  }
  fs::rename(tried, file);
  return {{"path", file.string()}, {"rules", rules}};
}

}  // namespace

std::vector<Operation> map_file_operations() {
  const Argument name{.name = "name", .help = "name of the map", .required = true};
  return {{.name = "maps list",
           .help = "list saved map files",
           .arguments = {},
           .result = "maps:objects",
           .reads = true,
           .examples = {"curl -H @key \"$(cat url)/v1/maps/list\""},
           .call = &maps_list},
          {.name = "maps show",
           .help = "show a saved map file",
           .arguments = {name},
           .result = "path:string map:object",
           .reads = true,
           .examples = {"curl -H @key \"$(cat url)/v1/maps/show?name=port\""},
           .call = &maps_show},
          {.name = "maps save",
           .help = "save a map of names; compare accepts its path",
           .arguments = {name, {.name = "map", .help = "the map file's text: {\"rules\": [...]}", .required = true}},
           .result = "path:string rules:integer",
           .examples = {"curl -H @key -H 'Content-Type: application/json' \"$(cat url)/v1/maps/save\" -d @map.json"},
           .call = &maps_save}};
}

}  // namespace lockstep
