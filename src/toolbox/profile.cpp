#include "toolbox/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file_walk.h"
#include "base/interrupt.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostProfileBytes = 512 << 20;
constexpr int kFieldsOfCall = 11;
constexpr double kNearlyAll = 0.6;  // of the time around it: what is inside is worth a row of its own
constexpr int kDeepestStage = 3;

int64_t integer_in(const Json& json, const char* field) {
  const auto at = json.find(field);
  return at != json.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

std::vector<std::string> texts_in(const Json& json, const char* field) {
  std::vector<std::string> out;
  if (const auto at = json.find(field); at != json.end() && at->is_array())
    for (const Json& text : *at) out.push_back(text.is_string() ? text.get<std::string>() : std::string());
  return out;
}

// What does not fit is left out: a file may be damaged, and whoever reads it goes by indices.
bool add_call(ProcessProfile& profile, const Json& line) {
  if (!line.is_array() || line.size() != kFieldsOfCall) return false;
  int64_t n[kFieldsOfCall];
  for (size_t i = 0; i < kFieldsOfCall; ++i) {
    if (!line[i].is_number_integer()) return false;
    n[i] = line[i].get<int64_t>();
  }
  const auto calls = static_cast<int64_t>(profile.calls.size());
  if (n[0] < 0 || n[0] >= static_cast<int64_t>(profile.names.size()) || n[1] < -1 || n[1] >= calls) return false;
  if (n[3] < profile.begin_ns || n[4] < n[3] || n[4] - n[3] > (int64_t{1} << 60)) return false;
  profile.calls.push_back({.name = static_cast<int32_t>(n[0]),
                           .parent = static_cast<int32_t>(n[1]),
                           .thread = n[2],
                           .begin_ns = n[3],
                           .end_ns = n[4],
                           .cpu_ns = n[5],
                           .allocated = n[6],
                           .live_before = n[7],
                           .live_after = n[8],
                           .peak = n[9],
                           .evaluation = n[10] != 0});
  return true;
}

ProcessProfile profile_from(std::string_view lines) {
  ProcessProfile profile;
  const auto next = [&lines] {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    return line;
  };
  const Json head = Json::parse(next(), nullptr, false);
  if (!head.is_object()) return profile;
  profile.pid = integer_in(head, "pid");
  profile.begin_ns = integer_in(head, "begin_ns");
  profile.end_ns = std::max(integer_in(head, "end_ns"), profile.begin_ns);
  profile.cpu_ns = integer_in(head, "cpu_ns");
  profile.evaluations = integer_in(head, "evaluations");
  profile.names = texts_in(head, "names");
  profile.frameworks = texts_in(head, "frameworks");
  if (const auto memory = head.find("memory"); memory != head.end() && memory->is_string())
    profile.memory = memory->get<std::string>();
  bool whole = true;  // behind a line that cannot be read, indices mean nothing
  while (!lines.empty()) {
    const Json line = Json::parse(next(), nullptr, false);
    if (line.is_object())
      profile.left_out += integer_in(line, "left_out");
    else if (whole)
      whole = add_call(profile, line);
  }
  return profile;
}

// Time inside of a call that is that of calls made by it.
struct InnerTimes {
  std::vector<int64_t> wall, cpu;
};
InnerTimes inner_times(const ProcessProfile& profile) {
  InnerTimes inner{std::vector<int64_t>(profile.calls.size()), std::vector<int64_t>(profile.calls.size())};
  for (const ProfiledCall& call : profile.calls)
    if (call.parent >= 0) {
      inner.wall[static_cast<size_t>(call.parent)] += call.wall_ns();
      inner.cpu[static_cast<size_t>(call.parent)] += call.cpu_ns;
    }
  return inner;
}

void gather(const FlameNode& node, int depth, int64_t whole_ns, std::vector<ProfileSum>& stages) {
  for (const FlameNode& inner : node.inner) {
    stages.push_back({.name = inner.name,
                      .depth = depth,
                      .calls = inner.calls,
                      .wall_ns = inner.wall_ns,
                      .self_ns = inner.self_ns,
                      .cpu_ns = inner.cpu_ns,
                      .allocated = inner.allocated,
                      .peak = inner.peak});
    const bool wraps =
        static_cast<double>(inner.wall_ns) > kNearlyAll * static_cast<double>(whole_ns) || inner.name == "pipeline";
    if (wraps && depth + 1 < kDeepestStage) gather(inner, depth + 1, inner.wall_ns, stages);
  }
}

}  // namespace

ProgramProfile read_profile(const fs::path& run) {
  ProgramProfile profile;
  std::error_code error;
  for (fs::directory_iterator it(run / "profile", error), end; !error && it != end; it.increment(error)) {
    check_interrupt("profile");
    if (it->path().extension() == ".jsonl")
      profile.processes.push_back(profile_from(read_text(it->path(), kMostProfileBytes)));
  }
  if (profile.processes.empty())
    fail(Code::kNotFound, "profile", "no times are known of " + run.string(),
         {.expected = "a run of lockstep profile or generate --profile, of a Python that reads PYTHONPATH",
          .hint = "lockstep profile -- python script.py"});
  std::stable_sort(profile.processes.begin(), profile.processes.end(),
                   [](const auto& a, const auto& b) { return a.calls.size() > b.calls.size(); });
  return profile;
}

void write_profile(const fs::path& run, const ProcessProfile& profile) {
  std::error_code ignored;
  fs::create_directories(run / "profile", ignored);
  const Json head{{"schema", "lockstep-profile-1"},
                  {"pid", profile.pid},
                  {"frameworks", profile.frameworks},
                  {"memory", profile.memory},
                  {"begin_ns", profile.begin_ns},
                  {"end_ns", profile.end_ns},
                  {"cpu_ns", profile.cpu_ns},
                  {"evaluations", profile.evaluations},
                  {"names", profile.names}};
  std::string text = head.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
  for (const ProfiledCall& c : profile.calls)
    text += fmt::format("[{},{},{},{},{},{},{},{},{},{},{}]\n", c.name, c.parent, c.thread, c.begin_ns, c.end_ns,
                        c.cpu_ns, c.allocated, c.live_before, c.live_after, c.peak, c.evaluation ? 1 : 0);
  write_atomically(run / "profile" / (std::to_string(profile.pid) + ".jsonl"), text);
}

FlameNode flame_of(const ProcessProfile& profile) {
  // Nodes in a flat list first: a node's children move while it grows.
  struct Flat {
    int32_t name = -1;
    FlameNode sums{};
    std::vector<size_t> inner{};
  };
  std::vector<Flat> nodes(1);
  std::vector<size_t> node_of(profile.calls.size());
  std::map<std::pair<size_t, int32_t>, size_t> known;
  const InnerTimes inner = inner_times(profile);
  for (size_t i = 0; i < profile.calls.size(); ++i) {
    const ProfiledCall& call = profile.calls[i];
    const size_t parent = call.parent < 0 ? 0 : node_of[static_cast<size_t>(call.parent)];
    const auto [at, is_new] = known.try_emplace({parent, call.name}, nodes.size());
    if (is_new) {
      nodes.push_back({call.name});
      nodes.back().sums.name = profile.names[static_cast<size_t>(call.name)];
      nodes[parent].inner.push_back(at->second);
    }
    node_of[i] = at->second;
    FlameNode& sums = nodes[at->second].sums;
    ++sums.calls;
    sums.wall_ns += call.wall_ns();
    sums.self_ns += std::max<int64_t>(call.wall_ns() - inner.wall[i], 0);
    sums.cpu_ns += call.cpu_ns;
    sums.allocated += call.allocated;
    sums.peak = std::max(sums.peak, call.peak);
  }
  for (size_t i = nodes.size(); i-- > 0;) {  // children stand behind their parents
    for (const size_t child : nodes[i].inner) nodes[i].sums.inner.push_back(std::move(nodes[child].sums));
  }
  FlameNode root = std::move(nodes[0].sums);
  root.name = "the program";
  root.calls = 1;
  root.wall_ns = profile.end_ns - profile.begin_ns;
  root.cpu_ns = profile.cpu_ns;
  root.self_ns = root.wall_ns;
  for (const FlameNode& child : root.inner) root.self_ns -= child.wall_ns;
  root.self_ns = std::max<int64_t>(root.self_ns, 0);
  root.peak = peak_bytes(profile);
  return root;
}

std::vector<ProfileSum> modules_of(const ProcessProfile& profile) {
  std::vector<ProfileSum> sums(profile.names.size());
  const InnerTimes inner = inner_times(profile);
  for (size_t i = 0; i < profile.calls.size(); ++i) {
    const ProfiledCall& call = profile.calls[i];
    ProfileSum& sum = sums[static_cast<size_t>(call.name)];
    sum.name = profile.names[static_cast<size_t>(call.name)];
    ++sum.calls;
    sum.self_ns += std::max<int64_t>(call.wall_ns() - inner.wall[i], 0);
    sum.cpu_self_ns += std::max<int64_t>(call.cpu_ns - inner.cpu[i], 0);
    sum.peak = std::max(sum.peak, call.peak);
    if (call.evaluation) sum.evaluation_ns += call.wall_ns();
    bool inside_itself = false;
    for (int32_t up = call.parent; up >= 0 && !inside_itself; up = profile.calls[static_cast<size_t>(up)].parent)
      inside_itself = profile.calls[static_cast<size_t>(up)].name == call.name;
    if (inside_itself) continue;
    sum.wall_ns += call.wall_ns();
    sum.cpu_ns += call.cpu_ns;
    sum.allocated += call.allocated;
  }
  std::erase_if(sums, [](const ProfileSum& sum) { return sum.calls == 0; });
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.self_ns > b.self_ns; });
  return sums;
}

std::vector<ProfileSum> stages_of(const ProcessProfile& profile) {
  const FlameNode root = flame_of(profile);
  std::vector<ProfileSum> stages;
  gather(root, 0, root.wall_ns, stages);
  int64_t cpu = root.cpu_ns;
  for (const FlameNode& inner : root.inner) cpu -= inner.cpu_ns;
  stages.push_back({.name = "outside of modules (imports, loading, Python)",
                    .calls = 1,
                    .wall_ns = root.self_ns,
                    .self_ns = root.self_ns,
                    .cpu_ns = std::max<int64_t>(cpu, 0)});
  return stages;
}

int64_t first_step_ns(const ProcessProfile& profile) {
  std::map<int32_t, std::pair<int64_t, int64_t>> roots;  // name → calls, end of the first
  for (const ProfiledCall& call : profile.calls) {
    const std::string& name = profile.names[static_cast<size_t>(call.name)];
    if (name == "scheduler.step") return call.end_ns - profile.begin_ns;
    if (call.evaluation || name.find('.') != std::string::npos) continue;
    const auto [at, is_new] = roots.try_emplace(call.name, 0, call.end_ns);
    ++at->second.first;
  }
  const auto most = std::max_element(roots.begin(), roots.end(),
                                     [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  return most == roots.end() || most->second.first < 2 ? 0 : most->second.second - profile.begin_ns;
}

int64_t evaluation_ns(const ProcessProfile& profile) {
  int64_t sum = 0;
  for (const ProfiledCall& call : profile.calls)
    if (call.evaluation && (call.parent < 0 || !profile.calls[static_cast<size_t>(call.parent)].evaluation))
      sum += call.wall_ns();
  return sum;
}

int64_t peak_bytes(const ProcessProfile& profile) {
  int64_t peak = 0;
  for (const ProfiledCall& call : profile.calls) peak = std::max({peak, call.peak, call.live_before, call.live_after});
  return peak;
}

std::vector<MemoryPoint> memory_curve(const ProcessProfile& profile, size_t most) {
  std::vector<MemoryPoint> points;
  for (const ProfiledCall& call : profile.calls) {
    points.push_back({call.begin_ns - profile.begin_ns, call.live_before});
    points.push_back({call.end_ns - profile.begin_ns, call.live_after});
    if (call.peak > std::max(call.live_before, call.live_after))  // somewhere in between
      points.push_back({(call.begin_ns + call.end_ns) / 2 - profile.begin_ns, call.peak});
  }
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
  if (points.size() <= most || most == 0) return points;
  // Of each piece of time the highest: a peak is what one looks for.
  std::vector<MemoryPoint> out;
  for (size_t i = 0; i < most; ++i) {
    const auto from = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / most);
    const auto to = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / most);
    out.push_back(*std::max_element(from, to, [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
  }
  return out;
}

}  // namespace lockstep
