// The files of web/, as they lie in the program: the page that `lockstep serve` shows, and the parts of it that a
// report takes with it.
#pragma once
#include <span>
#include <string_view>

namespace lockstep {

struct WebFile {
  std::string_view path;  // below web/: "views/runs.js"
  std::string_view type;
  std::string_view plain, packed;  // packed: gzip
};

std::span<const WebFile> web_files();
const WebFile* find_web_file(std::string_view path);  // null: none
std::string_view web_version();                       // other where any file is other

}  // namespace lockstep
