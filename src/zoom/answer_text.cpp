#include "zoom/answer_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "zoom/source_lines.h"

namespace lockstep::zoom {
namespace {

constexpr size_t kMostLines = 12;
constexpr int kNarrowest = 100;  // columns in which both sources stand side by side

Json json_lines(const std::vector<Place>& places, Sources& sources) {
  Json out = Json::array();
  for (const Place& place : places)
    out.push_back({{"file", printable(place.file, 4096)},
                   {"line", place.line},
                   {"function", printable(place.function, 200)},
                   {"code", sources.line(place)}});
  return out;
}

Json json_chain(const Side& side, const std::vector<int>& steps) {
  Json out = Json::array();
  if (steps.empty()) return out;
  for (const Place& place : side.step(steps.front()).where)
    out.push_back(
        {{"file", printable(place.file, 4096)}, {"line", place.line}, {"function", printable(place.function, 200)}});
  return out;
}

Place place_of(const Side& side, int value) {
  const int maker = side.value(value).step;
  return maker >= 0 && !side.step(maker).where.empty() ? side.step(maker).where.front() : Place{};
}

std::string name_of(const Side& side, int value) {
  const Value& of = side.value(value);
  if (of.origin == Origin::kParameter || of.origin == Origin::kInput)
    return (of.origin == Origin::kInput ? "input " : "") + printable(of.name, 200);
  const Place place = place_of(side, value);
  if (place.line == 0) return of.step >= 0 ? printable(side.step(of.step).kind, 200) : "a constant";
  return fmt::format("{}:{}", fs::path(printable(place.file, 4096)).filename().string(), place.line);
}

std::string partner_words(const Partner& partner, const Side& reference, const Side& yours) {
  const std::string mine = name_of(yours, partner.yours);
  if (partner.reference < 0) return mine + ", which nothing in the reference agrees with";
  const std::string how = words_from(partner.agreement);
  return fmt::format("{} = reference {}{}", mine, name_of(reference, partner.reference), how.empty() ? "" : ", " + how);
}

std::string painted(const char* code, const std::string& text, bool color) {
  return color ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

void write_lines(std::string& out, const char* heading, const std::vector<Place>& lines, Sources& sources, bool color) {
  if (lines.empty()) return;
  out += fmt::format("  {}\n", heading);
  for (size_t i = 0; i < lines.size() && i < kMostLines; ++i)
    out += fmt::format("    {}  {}\n",
                       painted("36", fmt::format("{}:{}", printable(lines[i].file, 4096), lines[i].line), color),
                       sources.line(lines[i]));
  if (lines.size() > kMostLines) out += fmt::format("    and {} more lines\n", lines.size() - kMostLines);
}

// A line of source in so many columns: its number, a mark where it is named, its code.
std::string cell(const SourceLine& line, size_t columns, bool color, const char* paint) {
  std::string text = fmt::format("{} {:>4}  {}", line.named ? ">" : " ", line.line, line.code);
  size_t shown = 0, at = 0;  // characters, which may be several bytes
  while (at < text.size() && shown < columns) {
    do ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    ++shown;
  }
  text.resize(at);
  return (line.named ? painted(paint, text, color) : text) + std::string(columns - shown, ' ');
}

std::string files_of(const std::vector<SourceLine>& lines) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i)
    if (i == 0 || lines[i].file != lines[i - 1].file) out += (out.empty() ? "" : ", ") + lines[i].file;
  return out;
}

void write_side_by_side(std::string& out, const Region& region, const Side& reference, const Side& yours,
                        Sources& sources, int width, bool color) {
  const std::vector<SourceLine> left = sources.around(yours_of(yours, region)),
                                right = sources.around(lines_of(reference, region.reference, region.reference_frame));
  const auto columns = static_cast<size_t>((width - 5) / 2);
  const auto heading = [&](const char* whose, const std::vector<SourceLine>& lines) {
    std::string text = fmt::format("{}{}", whose, lines.empty() ? "" : ", " + files_of(lines)).substr(0, columns);
    return text + std::string(columns - text.size(), ' ');
  };
  out += fmt::format("  {} | {}\n", heading("yours", left), heading("reference", right));
  for (size_t i = 0; i < std::max(left.size(), right.size()) && i < 2 * kMostLines; ++i)
    out += fmt::format("  {} | {}\n", i < left.size() ? cell(left[i], columns, color, "31") : std::string(columns, ' '),
                       i < right.size() ? cell(right[i], columns, color, "32") : "");
}

Json json_source(const std::vector<SourceLine>& lines) {
  Json out = Json::array();
  for (const SourceLine& line : lines)
    out.push_back({{"file", line.file}, {"line", line.line}, {"code", line.code}, {"named", line.named}});
  return out;
}

}  // namespace

Json json_from(const Answer& answer, const Side& reference, const Side& yours) {
  Sources sources;
  Json regions = Json::array();
  for (const Region& region : answer.regions) {
    Json arguments = Json::array(), partners = Json::array();
    for (const ArgumentDifference& one : region.arguments)
      arguments.push_back({{"name", printable(one.name, 80)},
                           {"yours", printable(one.yours, 200)},
                           {"reference", printable(one.reference, 200)}});
    for (const Partner& one : region.partners)
      partners.push_back(
          {{"parameter", printable(one.parameter, 80)}, {"words", partner_words(one, reference, yours)}});
    regions.push_back(
        {{"kind", kind_name(region.kind)},
         {"error", json_number(region.error)},
         {"rest_is_proven", region.proven},
         {"note", printable(region.note, 1000)},
         {"yours", json_lines(yours_of(yours, region), sources)},
         {"call_chain", json_chain(yours, region.yours)},
         {"reference", json_lines(lines_of(reference, region.reference, region.reference_frame), sources)},
         {"source",
          {{"yours", json_source(sources.around(yours_of(yours, region)))},
           {"reference", json_source(sources.around(lines_of(reference, region.reference, region.reference_frame)))}}},
         {"arguments", arguments},
         {"inputs", partners}});
    if (region.cause)
      regions.back()["cause"] = {{"cause", region.cause->id},
                                 {"explanation", printable(region.cause->explanation, 1000)},
                                 {"fix", printable(region.cause->fix, 1000)},
                                 {"residual", json_number(region.cause->residual)}};
  }
  Json out{
      {"schema", "lockstep-zoom-1"},
      {"call", {{"yours", printable(yours.tape().call, 1000)}, {"reference", printable(reference.tape().call, 1000)}}},
      {"agrees", answer.agrees},
      {"regions", regions},
      {"values", {{"compared", answer.compared}, {"matched", answer.matched}}},
      {"output_error", json_number(answer.output_error)},
      {"tolerance", json_number(answer.tolerance)},
      {"truncated", yours.tape().truncated || reference.tape().truncated}};
  out["uncompiled"] = yours.tape().uncompiled || reference.tape().uncompiled;
  out["proof"] = answer.proof == Proof::kProven ? "proven" : answer.proof == Proof::kRefuted ? "refuted" : "open";
  out["official_reference"] = answer.official_reference;
  out["inputs"] = Json::array();
  for (const FedInput& input : answer.inputs)
    out["inputs"].push_back({{"yours", printable(input.yours, 200)},
                             {"reference", printable(input.reference, 200)},
                             {"distance", json_number(input.distance)},
                             {"given", input.why_not.empty()},
                             {"note", printable(input.why_not.empty() ? input.how : input.why_not, 1000)}});
  if (answer.jump.yours >= 0)
    out["jump"] = {{"error", json_number(answer.jump.error)},
                   {"yours", json_lines(lines_of(yours, {answer.jump.yours}, 0), sources)},
                   {"reference", json_lines(lines_of(reference, {answer.jump.reference}, 0), sources)}};
  if (!answer.incomplete.empty()) out["incomplete"] = answer.incomplete;
  return out;
}

namespace {

std::string page_from(const Answer& answer, const Side& reference, const Side& yours, bool color, int width) {
  Sources sources;
  std::string out = fmt::format("{} against {} (reference): {} of {} values agree; output differs by {:.2g}\n",
                                printable(yours.tape().call, 200), printable(reference.tape().call, 200),
                                answer.matched, answer.compared, answer.output_error);
  if (answer.official_reference)
    out += "The reference is a run of Lockstep's engine: the official pipeline was traced in its place.\n";
  if (yours.tape().uncompiled || reference.tape().uncompiled)
    out +=
        fmt::format("What torch.compile makes was run uncompiled{}.\n", !reference.tape().uncompiled ? " in yours"
                                                                        : !yours.tape().uncompiled ? " in the reference"
                                                                                                   : "");
  for (const FedInput& input : answer.inputs) {
    const std::string name = printable(input.yours, 200);
    if (input.why_not.empty())
      out += fmt::format("Your call was given the reference's {} (yours differed by {:.2g}{}).\n", name, input.distance,
                         input.how.empty() ? "" : "; " + input.how);
    else if (!input.reference.empty())
      out += fmt::format("{} differs from the reference's by {:.2g} and is your own: {}.\n", name, input.distance,
                         printable(input.why_not, 1000));
    else
      out += fmt::format("{} is your own: {}.\n", name, printable(input.why_not, 1000));
  }
  if (!answer.incomplete.empty()) return out + "Not answered: " + printable(answer.incomplete, 1000) + "\n";
  if (answer.agrees) {
    out += painted("32", "No divergence inside this call.", color) + "\n";
    if (answer.jump.yours < 0) return out;
    out += fmt::format("\nOne step differs by {:.2g}, more than rounding explains, though its inputs agree:\n",
                       answer.jump.error);
    write_lines(out, "yours", lines_of(yours, {answer.jump.yours}, 0), sources, color);
    write_lines(out, "reference", lines_of(reference, {answer.jump.reference}, 0), sources, color);
    return out;
  }
  int number = 0;
  for (const Region& region : answer.regions) {
    out += fmt::format("\n{}. {}{}\n", ++number, painted("1;31", std::string(kind_name(region.kind)), color),
                       region.note.empty() ? "" : ": " + printable(region.note, 1000));
    if (width >= kNarrowest) {
      write_side_by_side(out, region, reference, yours, sources, width, color);
    } else {
      write_lines(out, "yours", yours_of(yours, region), sources, color);
      write_lines(out, "reference", lines_of(reference, region.reference, region.reference_frame), sources, color);
    }
    if (region.cause)
      out += fmt::format("  {}: {}\n  Fix: {}\n", painted("33", region.cause->id, color),
                         printable(region.cause->explanation, 1000), printable(region.cause->fix, 1000));
    for (const ArgumentDifference& one : region.arguments)
      out += fmt::format("  {}: yours {}, reference {}\n", printable(one.name, 80), printable(one.yours, 200),
                         printable(one.reference, 200));
    for (const Partner& one : region.partners)
      out += fmt::format("  {}{}\n", one.parameter.empty() ? "takes " : printable(one.parameter, 80) + ": ",
                         partner_words(one, reference, yours));
    out += fmt::format(
        "  {}\n", region.proven ? "Everything after it is proven right: the reference makes your result of your value."
                                : "The result differs by " + fmt::format("{:.2g}.", region.error));
  }
  if (answer.proof == Proof::kRefuted)
    out +=
        "\nNot the whole answer: of these values the reference does not make your result. There is another mistake, or "
        "these\nlines only pass it on.\n";
  else if (answer.proof == Proof::kOpen)
    out += "\nNot proven: the operations after these lines could not be replayed.\n";
  if (yours.tape().truncated || reference.tape().truncated)
    out += "Some operations or values were not recorded: the budget was used up.\n";
  return out;
}

}  // namespace

// Every piece from outside has gone through printable() above.
Text text_from(const Answer& answer, const Side& reference, const Side& yours, bool color, int width) {
  return Text::trusted(page_from(answer, reference, yours, color, width));
}

}  // namespace lockstep::zoom
