// Files that lie in the program. Of web/: the page that `lockstep serve` shows, and the parts of it that a report takes
// with it. Of the documents: the site that tools/docs_site.py makes of them.
#pragma once
#include <span>
#include <string_view>

namespace lockstep {

struct WebFile {
  std::string_view path;  // below its folder: "views/runs.js"
  std::string_view type;
  std::string_view plain, packed;  // packed: gzip; empty where it would not be smaller
};

std::span<const WebFile> web_files();
const WebFile* find_web_file(std::string_view path);  // null: none
std::string_view web_version();                       // differs if any file does

std::span<const WebFile> docs_files();
const WebFile* find_docs_file(std::string_view path);
std::string_view docs_version();

}  // namespace lockstep
