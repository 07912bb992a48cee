#include "capture/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "base/error.h"

namespace lockstep {
namespace {

// Names come from foreign programs: bytes that are not UTF-8 become U+FFFD, because the line must stay strict JSON.
std::string json_text(std::string_view text) {
  // Nearly all are plain names, and a line has several.
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), plain)) return fmt::format("\"{}\"", text);
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_number(std::string& out, double value) {
  if (std::isnan(value))
    out += "\"NaN\"";
  else if (std::isinf(value))
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  else if (value == 0 && std::signbit(value))
    out += "-0.0";  // as "-0" it would be read as an integer, which has no sign of zero
  else
    fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_stats(std::string& out, const Statistics& stats) {
  const bool any = stats.finite() > 0;
  const std::pair<const char*, double> values[] = {{"min", stats.min}, {"max", stats.max}, {"mean", stats.mean},
                                                   {"std", stats.std}, {"rms", stats.rms}, {"absmax", stats.absmax}};
  out += "{";
  for (const auto& [name, value] : values) {
    fmt::format_to(std::back_inserter(out), "\"{}\": ", name);
    if (any)
      append_number(out, value);
    else
      out += "null";  // no finite value: there is no minimum to name
    out += ", ";
  }
  fmt::format_to(std::back_inserter(out), "\"nan\": {}, \"inf\": {}, \"zero\": {}, \"denormal\": {}}}", stats.nan,
                 stats.inf, stats.zero, stats.denormal);
}

using simdjson::dom::element;
using simdjson::dom::object;

double number_or(simdjson::simdjson_result<element> value, double otherwise) {
  double number = 0;
  if (value.get(number) == simdjson::SUCCESS) return number;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return otherwise;
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return otherwise;
}

int64_t integer_or(simdjson::simdjson_result<element> value, int64_t otherwise) {
  int64_t number = 0;
  return value.get(number) == simdjson::SUCCESS ? number : otherwise;
}

std::string text_or_empty(simdjson::simdjson_result<element> value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

int bounded_int(int64_t value, int otherwise) {
  return value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max() ? otherwise
                                                                                            : static_cast<int>(value);
}

bool read_shape(object line, Shape& shape) {
  simdjson::dom::array sizes;
  if (line["shape"].get(sizes) != simdjson::SUCCESS || sizes.size() > kMaxRank) return false;
  for (element size : sizes) {
    int64_t value = 0;
    if (size.get(value) != simdjson::SUCCESS || value < 0) return false;
    shape.push_back(value);
  }
  try {
    checked_numel(shape);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::optional<Statistics> read_stats(object line, const Shape& shape) {
  object stats;
  if (line["stats"].get(stats) != simdjson::SUCCESS) return std::nullopt;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Statistics result;
  result.count = checked_numel(shape);
  result.min = number_or(stats["min"], kNone);
  result.max = number_or(stats["max"], kNone);
  result.mean = number_or(stats["mean"], kNone);
  result.std = number_or(stats["std"], kNone);
  result.rms = number_or(stats["rms"], kNone);
  result.absmax = number_or(stats["absmax"], kNone);
  // No more than there are elements, together: what is left of the count is taken as finite.
  const auto counted = [&](const char* name, int64_t most) {
    return std::clamp<int64_t>(integer_or(stats[name], 0), 0, most);
  };
  result.nan = counted("nan", result.count);
  result.inf = counted("inf", result.count - result.nan);
  result.zero = counted("zero", result.count);
  result.denormal = counted("denormal", result.count);
  return result;
}

void read_tags(object line, Tags& tags) {
  object pairs;
  if (line["tags"].get(pairs) != simdjson::SUCCESS) return;
  for (const auto& [name, value] : pairs) {
    std::string_view text;
    tags.emplace_back(std::string(name),
                      value.get(text) == simdjson::SUCCESS ? std::string(text) : std::string(simdjson::minify(value)));
  }
  std::sort(tags.begin(), tags.end());
}

void read_preview(object line, std::vector<double>& preview) {
  simdjson::dom::array values;
  if (line["preview"].get(values) != simdjson::SUCCESS) return;
  for (element value : values) {
    if (preview.size() == kPreviewValues) break;
    bool flag = false;
    if (value.get(flag) == simdjson::SUCCESS)
      preview.push_back(flag);
    else
      preview.push_back(
          number_or(simdjson::simdjson_result<element>(element(value)), std::numeric_limits<double>::quiet_NaN()));
  }
}

void read_where(object line, Where& where) {
  object place;
  if (line["where"].get(place) != simdjson::SUCCESS) return;
  where.file = text_or_empty(place["file"]);
  where.function = text_or_empty(place["function"]);
  where.line = bounded_int(integer_or(place["line"], 0), 0);
}

}  // namespace

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kOutput:
      return "output";
    case Role::kInput:
      return "input";
    case Role::kVariable:
      return "variable";
    case Role::kCheckpoint:
      break;
  }
  return "checkpoint";
}

Role role_from_name(std::string_view name) {
  if (name == "output") return Role::kOutput;
  if (name == "input") return Role::kInput;
  if (name == "variable") return Role::kVariable;
  return Role::kCheckpoint;
}

size_t most_line_bytes(const Record& record) {
  constexpr size_t kFixed = 1024, kNumber = 24, kEscaped = 6;
  size_t text = record.key.name.size() + record.dtype_text.size() + record.checksum.size() + record.file.size() +
                record.where.file.size() + record.where.function.size();
  for (const auto& [name, value] : record.key.tags) text += name.size() + value.size() + kNumber;
  return kFixed + kNumber * record.shape.size() + kEscaped * text;
}

std::string line_from_record(const Record& record) {
  std::string out;
  out.reserve(640 + record.key.name.size());
  fmt::format_to(std::back_inserter(out), "{{\"seq\": {}, \"name\": {}, \"step\": {}, \"hit\": {}, \"tags\": {{",
                 record.seq, json_text(record.key.name),
                 record.key.step < 0 ? std::string("null") : std::to_string(record.key.step), record.key.hit);
  for (size_t i = 0; i < record.key.tags.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}: {}", i ? ", " : "", json_text(record.key.tags[i].first),
                   json_text(record.key.tags[i].second));
  fmt::format_to(std::back_inserter(out),
                 "}}, \"role\": \"{}\", \"dtype\": {}, \"shape\": [{}], \"stats\": ", role_name(record.role),
                 json_text(record.dtype_text), fmt::join(record.shape, ", "));
  if (record.stats)
    append_stats(out, *record.stats);
  else
    out += "null";
  out += ", \"preview\": [";
  for (size_t i = 0; i < record.preview.size(); ++i) {
    if (i) out += ", ";
    if (record.dtype == DType::kBool)
      out += record.preview[i] != 0 ? "true" : "false";
    else
      append_number(out, record.preview[i]);
  }
  fmt::format_to(std::back_inserter(out), "], \"checksum\": {}, \"file\": {}, \"where\": ",
                 record.checksum.empty() ? std::string("null") : json_text(record.checksum),
                 record.file.empty() ? std::string("null") : json_text(record.file));
  if (record.where.file.empty() && record.where.function.empty())
    out += "null";
  else
    fmt::format_to(std::back_inserter(out), "{{\"file\": {}, \"line\": {}, \"function\": {}}}",
                   json_text(record.where.file), record.where.line, json_text(record.where.function));
  fmt::format_to(std::back_inserter(out), ", \"secs\": {:.6f}", record.secs);
  if (record.same_as >= 0) out += fmt::format(", \"same_as\": {}", record.same_as);
  if (record.substituted) out += ", \"substituted\": true";
  out += "}";
  return out;
}

namespace {

// Parsers keep their memory for the next line. Not one a thread: the system ends the program where it has no memory for
// the note that a thread's own object is to be destroyed.
std::mutex idle_mutex;
std::array<std::unique_ptr<simdjson::dom::parser>, 64> idle_parsers;
size_t idle_count = 0;

class BorrowedParser {
 public:
  BorrowedParser() {
    // Only tried: in the child of a fork nobody may be left to unlock it.
    if (const std::unique_lock lock(idle_mutex, std::try_to_lock); lock && idle_count > 0)
      parser_ = std::move(idle_parsers[--idle_count]);
    if (!parser_) parser_ = std::make_unique<simdjson::dom::parser>();
  }
  ~BorrowedParser() {
    if (const std::unique_lock lock(idle_mutex, std::try_to_lock); lock && idle_count < idle_parsers.size())
      idle_parsers[idle_count++] = std::move(parser_);
  }
  BorrowedParser(const BorrowedParser&) = delete;
  BorrowedParser& operator=(const BorrowedParser&) = delete;
  simdjson::dom::parser* operator->() { return parser_.get(); }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
};

}  // namespace

std::optional<Record> record_from_line(std::string_view line) {
  if (line.empty() || line.size() > kMaxRecordBytes) return std::nullopt;
  BorrowedParser parser;
  element parsed;
  const simdjson::error_code error = parser->parse(line.data(), line.size()).get(parsed);
  if (error == simdjson::MEMALLOC) throw std::bad_alloc();  // it says nothing about the line
  if (error != simdjson::SUCCESS) return std::nullopt;
  object fields;
  std::string_view name;
  if (parsed.get(fields) != simdjson::SUCCESS || fields["name"].get(name) != simdjson::SUCCESS) return std::nullopt;
  Record record;
  if (!read_shape(fields, record.shape)) return std::nullopt;
  record.key.name = name;
  record.seq = integer_or(fields["seq"], 0);
  record.key.step = bounded_int(integer_or(fields["step"], -1), -1);
  record.key.hit = bounded_int(integer_or(fields["hit"], 0), 0);
  read_tags(fields, record.key.tags);
  record.role = role_from_name(text_or_empty(fields["role"]));
  record.dtype_text = text_or_empty(fields["dtype"]);
  record.dtype = dtype_from_name(record.dtype_text);
  record.stats = read_stats(fields, record.shape);
  read_preview(fields, record.preview);
  record.checksum = text_or_empty(fields["checksum"]);
  record.file = text_or_empty(fields["file"]);
  read_where(fields, record.where);
  record.secs = number_or(fields["secs"], 0);
  if (!std::isfinite(record.secs)) record.secs = 0;
  bool flag = false;
  if (int64_t same = -1; fields["same_as"].get(same) == simdjson::SUCCESS && same >= 0 && same < record.seq)
    record.same_as = same;
  record.substituted = fields["substituted"].get(flag) == simdjson::SUCCESS && flag;
  return record;
}

}  // namespace lockstep
