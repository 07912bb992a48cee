#include "report/page.h"

#include <span>

#include "base/base64.h"
#include "base/error.h"
#include "web/web_files.h"

namespace lockstep {
namespace {

// In the order in which they need each other.
constexpr const char* kModules[] = {
    "base/dom.js",       "base/numbers.js",      "parts/canvas.js", "parts/rows.js",      "parts/heat_figure.js",
    "parts/bars.js",     "parts/table.js",       "parts/curve.js",  "parts/step_grid.js", "parts/pair_table.js",
    "parts/findings.js", "parts/source_pair.js", "parts/ledger.js", "parts/pictures.js",  "report.js"};

std::string_view embedded(const char* path) {
  const WebFile* file = find_web_file(path);
  if (!file) fail(Code::kInternal, "report", std::string("the program lacks web/") + path);
  return file->plain;
}

void add_packed(std::string& out, const char* id, const std::string& bytes) {
  out += std::string("<script type=\"application/octet-stream\" id=\"") + id + "\">";
  out += base64({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  out += "</script>\n";
}

}  // namespace

std::string joinable(std::string_view module) {
  constexpr std::string_view kImport = "import ", kExport = "export ";
  std::string out;
  for (size_t at = 0; at < module.size();) {
    const size_t end = std::min(module.find('\n', at), module.size() - 1) + 1;
    std::string_view line = module.substr(at, end - at);
    at = end;
    if (line.starts_with(kImport)) continue;
    if (line.starts_with(kExport)) line.remove_prefix(kExport.size());
    out += line;
  }
  return out;
}

std::string page_with(const ReportData& data) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>Lockstep report</title>\n<style>";
  out += embedded("style.css");
  out += "</style></head>\n<body class=\"report\">";
  out += embedded("report.html");
  // Parsed as JSON, not as a program: that is several times faster.
  out += "<script type=\"application/json\" id=\"data\">" + data.summary + "</script>\n";
  add_packed(out, "rows", data.rows);
  add_packed(out, "cells", data.cells);
  out += "<script>\n\"use strict\";\n";
  for (const char* path : kModules) out += joinable(embedded(path));
  out += "</script></body></html>\n";
  return out;
}

}  // namespace lockstep
