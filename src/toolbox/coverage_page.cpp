// A coverage as Markdown and as one HTML file. Names come from a program: they are escaped in both.
#include <fmt/format.h>

#include <algorithm>

#include "base/escape.h"
#include "base/number_text.h"
#include "toolbox/coverage.h"
#include "toolbox/html_text.h"

namespace lockstep {
namespace {

constexpr size_t kMostPlaces = 15;

std::string in_markdown(std::string_view text) {
  std::string out;
  for (const char c : escaped(text)) {
    if (c == '|' || c == '<' || c == '`' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string place_of(const FunctionPlace& place) {
  return fmt::format("{}:{}", place.file->path, place.function->line);
}

std::string row_of(const CoverageSum& sum, bool lines) {
  std::string row = fmt::format("| {} | {} of {} | {} of {} | {} |", in_markdown(sum.group), sum.files_used, sum.files,
                                sum.functions_run, sum.functions, text_from_count(sum.calls));
  if (lines) row += fmt::format(" {} of {} |", sum.lines_run, sum.lines);
  return row + "\n";
}

std::string head_of(const char* group, bool lines) {
  return fmt::format("| {} | files used | functions run | calls |{}\n|---|---|---|---|{}\n", group,
                     lines ? " lines run |" : "", lines ? "---|" : "");
}

std::string cells(std::initializer_list<std::string> values, const char* tag = "td") {
  std::string row = "<tr>";
  for (const std::string& value : values) row += fmt::format("<{0}>{1}</{0}>", tag, value);
  return row + "</tr>\n";
}

std::string sums_table(const char* title, const std::vector<CoverageSum>& sums) {
  std::string html = "<table>" + cells({title, "files used", "functions run", "calls"}, "th");
  for (const CoverageSum& sum : sums)
    html += cells({in_html(sum.group), fmt::format("{} of {}", sum.files_used, sum.files),
                   fmt::format("{} of {}", sum.functions_run, sum.functions), text_from_count(sum.calls)});
  return html + "</table>\n";
}

std::string places_table(const std::vector<FunctionPlace>& places) {
  std::string html = "<table>" + cells({"calls", "function", "where"}, "th");
  for (const FunctionPlace& place : places)
    html += cells({text_from_count(place.function->calls), in_html(place.function->name), in_html(place_of(place))});
  return html + "</table>\n";
}

std::string file_block(const CoveredFile& file) {
  std::string html = fmt::format("<details><summary>{} <small>{} functions run, {} calls</small></summary><table>\n",
                                 in_html(file.path), file.functions_run, text_from_count(file.calls));
  html += cells({"line", "function", "calls"}, "th");
  for (const CoveredFunction& function : file.functions)
    html += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td></tr>\n", function.calls ? "" : " class=unrun",
                        function.line, in_html(function.name), text_from_count(function.calls));
  return html + "</table></details>\n";
}

}  // namespace

std::string coverage_markdown(const ProgramCoverage& coverage) {
  std::string out = "# What ran\n\n" + head_of("component", coverage.lines);
  for (const CoverageSum& sum : by_component(coverage)) out += row_of(sum, coverage.lines);
  out += "\n" + head_of("package", coverage.lines);
  for (const CoverageSum& sum : by_package(coverage)) out += row_of(sum, coverage.lines);
  for (const CoverageSum& component : by_component(coverage)) {
    if (component.group == "other") continue;
    out += fmt::format("\n## {}\n\n| file | functions run | calls |\n|---|---|---|\n", in_markdown(component.group));
    for (const CoveredFile& file : coverage.files)
      if (file.component == component.group && file.used())
        out +=
            fmt::format("| {} | {} | {} |\n", in_markdown(file.path), file.functions_run, text_from_count(file.calls));
  }
  const auto list = [&](const char* title, const std::vector<FunctionPlace>& places) {
    if (places.empty()) return;
    out += fmt::format("\n## {}\n\n| calls | function | where |\n|---|---|---|\n", title);
    for (const FunctionPlace& place : places)
      out += fmt::format("| {} | {} | {} |\n", text_from_count(place.function->calls),
                         in_markdown(place.function->name), in_markdown(place_of(place)));
  };
  list("Breakpoints that stop rarely", cheapest(coverage, kMostPlaces));
  list("Breakpoints that stop often", busiest(coverage, kMostPlaces));
  if (!coverage.like_named.empty()) out += "\n## Used, and not its namesakes\n\n";
  for (const LikeNamed& like : coverage.like_named) {
    out += "- " + in_markdown(like.used) + "\n";
    for (const std::string& other : like.unused) out += "  - not " + in_markdown(other) + "\n";
  }
  return out;
}

std::string coverage_page(const ProgramCoverage& coverage, const std::string& title) {
  std::string html = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>{0}</title><style>body{{font:15px system-ui;margin:2em auto;max-width:72em;padding:0 1em;"
      "color-scheme:light dark}}table{{border-collapse:collapse;margin:.5em 0 1.5em}}td,th{{text-align:left;"
      "padding:.15em .8em;border-bottom:1px solid #8884}}small,.unrun{{opacity:.55}}summary{{cursor:pointer}}"
      "td{{overflow-wrap:anywhere}}</style><h1>{0}</h1>\n",
      in_html(title));
  html += sums_table("component", by_component(coverage)) + sums_table("package", by_package(coverage));
  html += "<h2>Breakpoints that stop rarely</h2>" + places_table(cheapest(coverage, kMostPlaces));
  html += "<h2>Breakpoints that stop often</h2>" + places_table(busiest(coverage, kMostPlaces));
  for (const CoverageSum& component : by_component(coverage)) {
    html += fmt::format("<h2>{}</h2>\n", in_html(component.group));
    for (const CoveredFile& file : coverage.files)
      if (file.component == component.group && file.used()) html += file_block(file);
  }
  if (!coverage.like_named.empty()) html += "<h2>Used, and not its namesakes</h2><ul>\n";
  for (const LikeNamed& like : coverage.like_named) {
    html += "<li>" + in_html(like.used) + "<ul>";
    for (const std::string& other : like.unused) html += "<li class=unrun>not " + in_html(other) + "</li>";
    html += "</ul></li>\n";
  }
  return html + (coverage.like_named.empty() ? "" : "</ul>") + "</html>\n";
}

}  // namespace lockstep
