// A profile as one HTML file, with a flame graph and the memory over time, and as a trace that Chrome and Perfetto
// open.
#include <fmt/format.h>

#include <algorithm>

#include "base/number_text.h"
#include "toolbox/html_text.h"
#include "toolbox/profile.h"

namespace lockstep {
namespace {

constexpr double kGraphWidth = 1200, kRowHeight = 18, kNarrowest = 0.6, kCurveHeight = 180;
constexpr size_t kMostPoints = 1200, kMostModules = 200;
constexpr int kDeepestRow = 40;

std::string milliseconds(int64_t ns) {
  return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6);
}

std::string bytes_text(int64_t bytes) {
  return bytes < 0 ? "-" + text_from_bytes(static_cast<uint64_t>(-bytes))
                   : text_from_bytes(static_cast<uint64_t>(bytes));
}

// The same name has the same colour everywhere, blocks of one list too.
int hue_of(std::string_view name) {
  uint32_t hash = 2166136261U;
  for (const char c : name)
    if (c < '0' || c > '9') hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<int>(hash % 60);
}

int depth_of(const FlameNode& node, double scale) {
  int deepest = 0;
  for (const FlameNode& inner : node.inner)
    if (static_cast<double>(inner.wall_ns) * scale >= kNarrowest) deepest = std::max(deepest, depth_of(inner, scale));
  return std::min(deepest + 1, kDeepestRow);
}

void add_flame(std::string& svg, const FlameNode& node, double x, int depth, double scale, std::string_view above) {
  const double width = static_cast<double>(node.wall_ns) * scale;
  if (width < kNarrowest || depth >= kDeepestRow) return;
  // Inside its parent the rest of a name is enough.
  std::string_view label = node.name;
  if (!above.empty() && label.starts_with(above) && label.size() > above.size() + 1)
    label.remove_prefix(above.size() + 1);
  const auto letters = static_cast<size_t>(width / 7);
  svg += fmt::format(
      "<g><rect x='{:.2f}' y='{}' width='{:.2f}' height='{}' fill='hsl({} 75% 62%)'/><title>{}: {} in {} calls, itself "
      "{}, processor {}, allocated {}, peak {}</title>",
      x, depth * kRowHeight, width, kRowHeight - 1, hue_of(node.name), in_html(node.name), milliseconds(node.wall_ns),
      node.calls, milliseconds(node.self_ns), milliseconds(node.cpu_ns), bytes_text(node.allocated),
      bytes_text(node.peak));
  if (letters >= 3)
    svg += fmt::format("<text x='{:.2f}' y='{}'>{}</text>", x + 3, depth * kRowHeight + 13,
                       in_html(label.substr(0, letters)));
  svg += "</g>\n";
  for (const FlameNode& inner : node.inner) {
    add_flame(svg, inner, x, depth + 1, scale, node.name);
    x += static_cast<double>(inner.wall_ns) * scale;
  }
}

std::string flame_graph(const ProcessProfile& profile) {
  FlameNode root = flame_of(profile);
  // Importing and loading would leave no room for what one looks for; the table of stages has them.
  root.name = "in modules";
  root.wall_ns = root.cpu_ns = root.self_ns = 0;
  for (const FlameNode& inner : root.inner) {
    root.wall_ns += inner.wall_ns;
    root.cpu_ns += inner.cpu_ns;
  }
  if (root.wall_ns <= 0) return "<p>No module was called.</p>\n";
  const double scale = kGraphWidth / static_cast<double>(root.wall_ns);
  std::string svg =
      fmt::format("<svg id=flame viewBox='0 0 {} {}' width='100%'>\n", kGraphWidth, depth_of(root, scale) * kRowHeight);
  add_flame(svg, root, 0, 0, scale, {});
  return svg + "</svg>\n";
}

std::string curve(const ProcessProfile& profile) {
  const std::vector<MemoryPoint> points = memory_curve(profile, kMostPoints);
  const int64_t wall = profile.end_ns - profile.begin_ns, peak = peak_bytes(profile);
  if (points.empty() || wall <= 0 || peak <= 0) return "<p>No memory is known.</p>\n";
  std::string line;
  for (const MemoryPoint& point : points)
    line += fmt::format(
        "{:.1f},{:.1f} ", static_cast<double>(point.at_ns) / static_cast<double>(wall) * kGraphWidth,
        kCurveHeight * (1 - static_cast<double>(std::max<int64_t>(point.bytes, 0)) / static_cast<double>(peak)));
  return fmt::format(
      "<svg id=memory viewBox='0 -14 {0} {1}' width='100%'><polyline points='{2}' fill='none' stroke='#36c' "
      "stroke-width='1.5'/><text x='4' y='-2'>{3}</text><text x='{4}' y='{5}' text-anchor='end'>{6:.2f} "
      "s</text></svg>\n",
      kGraphWidth, kCurveHeight + 32, line, bytes_text(peak), kGraphWidth - 4, kCurveHeight + 14,
      static_cast<double>(wall) / 1e9);
}

std::string row(const ProfileSum& sum) {
  return fmt::format(
      "<tr><td "
      "style='padding-left:{}em'>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
      0.8 + sum.depth * 1.2, in_html(sum.name), text_from_count(sum.calls), milliseconds(sum.wall_ns),
      milliseconds(sum.self_ns), milliseconds(sum.cpu_ns), bytes_text(sum.allocated), bytes_text(sum.peak));
}

constexpr const char* kTableHead =
    "<table><tr><th>{}</th><th>calls</th><th>total</th><th>self</th><th>processor</th><th>allocated</th><th>peak</th></"
    "tr>\n";

}  // namespace

std::string profile_page(const ProgramProfile& profile, const std::string& title) {
  const ProcessProfile& first = profile.first();
  std::string html = fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
      "<title>{0}</title><style>body{{font:15px system-ui;margin:2em auto;max-width:80em;padding:0 1em;"
      "color-scheme:light dark}}table{{border-collapse:collapse;margin:.5em 0 1.5em}}td,th{{text-align:right;"
      "padding:.15em .8em;border-bottom:1px solid #8884}}td:first-child,th:first-child{{text-align:left;"
      "overflow-wrap:anywhere}}svg text{{font:12px system-ui;fill:#111}}#memory text{{fill:currentColor}}"
      "rect:hover{{stroke:#000}}</style><h1>{0}</h1>\n",
      in_html(title));
  html += fmt::format("<p>{:.2f} s, processor {:.2f} s", static_cast<double>(first.end_ns - first.begin_ns) / 1e9,
                      static_cast<double>(first.cpu_ns) / 1e9);
  if (const int64_t step = first_step_ns(first))
    html += fmt::format("; first step after {:.2f} s", static_cast<double>(step) / 1e9);
  if (const int64_t lazy = evaluation_ns(first))
    html += fmt::format("; evaluation of lazy graphs {}", milliseconds(lazy));
  html += fmt::format("; peak {} ({})</p>\n<h2>Stages</h2>\n", bytes_text(peak_bytes(first)), in_html(first.memory));
  html += fmt::format(fmt::runtime(kTableHead), "stage");
  for (const ProfileSum& stage : stages_of(first)) html += row(stage);
  html += "</table>\n<h2>Time by call</h2>\n" + flame_graph(first) + "<h2>Memory</h2>\n" + curve(first);
  html += "<h2>Modules</h2>\n" + fmt::format(fmt::runtime(kTableHead), "module");
  size_t shown = 0;
  for (const ProfileSum& sum : modules_of(first))
    if (++shown <= kMostModules) html += row(sum);
  html += "</table>\n";
  if (shown > kMostModules) html += fmt::format("<p>{} more have less time of their own.</p>\n", shown - kMostModules);
  return html + "</html>\n";
}

std::string chrome_trace(const ProgramProfile& profile) {
  int64_t start = profile.first().begin_ns;
  for (const ProcessProfile& process : profile.processes) start = std::min(start, process.begin_ns);
  const auto at = [&](int64_t ns) { return static_cast<double>(ns - start) / 1e3; };  // microseconds
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  auto add = [&text, first = true](const Json& event) mutable {
    if (!first) text += ",\n";
    first = false;
    text += event.dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  for (const ProcessProfile& process : profile.processes) {
    add(Json{{"ph", "M"},
             {"name", "process_name"},
             {"pid", process.pid},
             {"tid", 0},
             {"args", {{"name", process.frameworks.empty() ? "program" : process.frameworks.front()}}}});
    for (const ProfiledCall& call : process.calls)
      add(Json{{"ph", "X"},
               {"name", process.names[static_cast<size_t>(call.name)]},
               {"cat", call.evaluation ? "evaluation" : "module"},
               {"pid", process.pid},
               {"tid", call.thread},
               {"ts", at(call.begin_ns)},
               {"dur", static_cast<double>(call.wall_ns()) / 1e3},
               {"args",
                {{"processor_ms", static_cast<double>(call.cpu_ns) / 1e6},
                 {"allocated_bytes", call.allocated},
                 {"peak_bytes", call.peak}}}});
    for (const MemoryPoint& point : memory_curve(process, kMostPoints))
      add(Json{{"ph", "C"},
               {"name", "memory"},
               {"pid", process.pid},
               {"ts", at(process.begin_ns + point.at_ns)},
               {"args", {{"bytes", std::max<int64_t>(point.bytes, 0)}}}});
  }
  return text + "\n]}\n";
}

}  // namespace lockstep
