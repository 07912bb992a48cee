// What prune kept, and what it proved, as Markdown and as JSON.
#include <fmt/format.h>

#include "base/escape.h"
#include "base/number_text.h"
#include "toolbox/prune.h"

namespace lockstep {
namespace {

std::string share_text(int64_t part, int64_t whole) {
  return whole > 0 ? text_from_share(static_cast<double>(part) / static_cast<double>(whole)) : "-";
}

std::string code_text(std::string_view text) {
  std::string out = "`";
  for (const char c : escaped(text)) out += c == '`' ? '\'' : c;
  return out + "`";
}

}  // namespace

std::vector<std::string> words_with_commas(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Json json_from(const PruneReport& report) {
  Json packages = Json::array(), files = Json::array();
  for (const PrunedPackage& package : report.packages)
    packages.push_back({{"name", package.name},
                        {"root", package.root.string()},
                        {"files_before", package.files_before},
                        {"files_after", package.files_after},
                        {"lines_before", package.lines_before},
                        {"lines_after", package.lines_after}});
  for (const auto& [name, file] : report.files)
    files.push_back({{"package", name.first},
                     {"path", name.second},
                     {"why", file.why},
                     {"lines_before", file.lines_before},
                     {"lines_after", file.lines_after},
                     {"bodies_cut", file.bodies_cut}});
  Json json{{"schema", "lockstep-prune-1"},
            {"dry_run", report.dry_run},
            {"packages", packages},
            {"lines_before", report.lines_before()},
            {"lines_after", report.lines_after()},
            {"rounds", report.rounds},
            {"restored", report.restored},
            {"left_links", report.left_links},
            {"tensors_equal", report.tensors},
            {"output_equal", report.output_equal},
            {"reference_run", report.reference_run},
            {"candidate_run", report.candidate_run},
            {"files", files}};
  if (!report.into.empty()) json["into"] = report.into.string();
  if (!report.branch.empty()) json["branch"] = report.branch, json["commit"] = report.commit;
  return json;
}

std::string prune_markdown(const PruneReport& report) {
  std::string text =
      "# What is left\n\n| package | files | of | lines | of | share |\n|---|---:|---:|---:|---:|---:|\n";
  for (const PrunedPackage& package : report.packages)
    text +=
        fmt::format("| {} | {} | {} | {} | {} | {} |\n", code_text(package.name), text_from_count(package.files_after),
                    text_from_count(package.files_before), text_from_count(package.lines_after),
                    text_from_count(package.lines_before), share_text(package.lines_after, package.lines_before));
  text += fmt::format("| all | | | {} | {} | {} |\n\n", text_from_count(report.lines_after()),
                      text_from_count(report.lines_before()), share_text(report.lines_after(), report.lines_before()));
  if (!report.dry_run)
    text +=
        fmt::format("The program ran {} on this copy: {} tensors are the same, bit for bit; what it prints is {}.\n\n",
                    report.rounds == 1 ? "once" : fmt::format("{} times", report.rounds),
                    text_from_count(report.tensors), report.output_equal ? "the same" : "not the same");
  const auto list = [&text](const char* title, const std::vector<std::string>& items) {
    if (items.empty()) return;
    text += fmt::format("## {}\n\n", title);
    for (const std::string& item : items) text += "- " + code_text(item) + "\n";
    text += "\n";
  };
  list("Restored, because the program needed it", report.restored);
  list("Not copied, because it lies outside of its package", report.left_links);
  text += "## Files\n\n| file | why | lines | of | bodies cut |\n|---|---|---:|---:|---:|\n";
  for (const auto& [name, file] : report.files)
    text += fmt::format("| {} | {} | {} | {} | {} |\n", code_text(name.first + "/" + name.second), file.why,
                        file.lines_after, file.lines_before, file.bodies_cut);
  return text;
}

}  // namespace lockstep
