// compare source: the lines where both programs made a tensor, as their files are now.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/utf8.h"
#include "service/compare_question.h"
#include "service/groups.h"
#include "service/service.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr uint64_t kMostSourceBytes = 4 << 20;
constexpr size_t kMostLineBytes = 400;

struct SourcePlace {
  fs::path file;
  int64_t line = 0;
};

// From "file:line function".
std::optional<SourcePlace> place_from(const std::string& where) {
  for (size_t colon = where.rfind(':'); colon != std::string::npos && colon > 0; colon = where.rfind(':', colon - 1)) {
    SourcePlace place{where.substr(0, colon), 0};
    const char* const begin = where.data() + colon + 1;
    const auto [end, error] = std::from_chars(begin, where.data() + where.size(), place.line);
    if (error == std::errc() && end != begin && place.line > 0 && (end == where.data() + where.size() || *end == ' '))
      return place;
  }
  return std::nullopt;
}

// A run may come from another machine, or be made to look so: what is no text is not shown.
Json lines_of(const std::string& where, int64_t around) {
  Json out{{"where", where}, {"lines", Json::array()}};
  const auto place = place_from(where);
  if (!place) return out;
  out["file"] = place->file.string(), out["line"] = place->line;
  std::error_code error;
  if (!place->file.is_absolute() || !fs::is_regular_file(place->file, error) ||
      fs::file_size(place->file, error) > kMostSourceBytes)
    return out;
  std::string text;
  try {
    text = read_text(place->file, kMostSourceBytes);
  } catch (const Error&) {
    return out;
  }
  if (!is_valid_utf8(text) || text.find('\0') != std::string::npos) return out;
  int64_t number = 1;
  for (size_t at = 0; at < text.size() && number <= place->line + around; ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (number >= place->line - around)
      out["lines"].push_back({{"line", number},
                              {"code", text.substr(at, std::min(end - at, kMostLineBytes))},
                              {"named", number == place->line}});
    at = end + 1;
  }
  return out;
}

Json compare_source(Service& service, const Json& arguments, CallControl&) {
  const auto all = service.opened().comparison(question_from(arguments));
  const auto row = static_cast<size_t>(arguments["row"].get<int64_t>());
  if (row >= all->answer.comparison.results.size()) fail(Code::kNotFound, "compare source", "there is no such row");
  const Pair& pair = all->answer.comparison.results[row].pair;
  const int64_t around = arguments["around"].get<int64_t>();
  return {{"reference", lines_of(all->answer.reference.records[pair.reference].where, around)},
          {"candidate", lines_of(all->answer.candidate.records[pair.candidate].where, around)}};
}

}  // namespace

std::vector<Operation> source_line_operations() {
  std::vector<Argument> arguments = compare_operations().front().arguments;
  arguments.push_back({.name = "row",
                       .type = kInteger,
                       .help = "number of the pair, as in compare rows",
                       .required = true,
                       .least = 0,
                       .most = 1e9});
  arguments.push_back(
      {.name = "around", .type = kInteger, .help = "lines before and after", .standard = 6, .least = 0, .most = 100});
  return {
      {.name = "compare source",
       .help = "show the lines of both programs that made a pair of tensors",
       .arguments = std::move(arguments),
       .result = "reference:object candidate:object",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat url)/v1/compare/source?reference=latest:good&candidate=latest:port&row=0\""},
       .call = &compare_source}};
}

}  // namespace lockstep
