// Two profiles stage by stage, and a profile as JSON.
#include <algorithm>

#include "toolbox/profile.h"

namespace lockstep {
namespace {

double secs(int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

Json profile_json(const ProfileSum& sum) {
  return {{"name", sum.name},
          {"depth", sum.depth},
          {"calls", sum.calls},
          {"wall_secs", secs(sum.wall_ns)},
          {"self_secs", secs(sum.self_ns)},
          {"cpu_secs", secs(sum.cpu_ns)},
          {"cpu_self_secs", secs(sum.cpu_self_ns)},
          {"allocated_bytes", sum.allocated},
          {"peak_bytes", sum.peak}};
}

Json profile_json(const std::vector<ProfileSum>& sums) {
  Json json = Json::array();
  for (const ProfileSum& sum : sums) json.push_back(profile_json(sum));
  return json;
}

std::map<std::string, ProfileSum> by_stage(const ProcessProfile& profile) {
  std::map<std::string, ProfileSum> stages;
  std::vector<std::string> stage_of_name;
  for (const std::string& name : profile.names) stage_of_name.push_back(stage_of(name));
  const auto stage = [&](int32_t call) -> const std::string& {
    return stage_of_name[static_cast<size_t>(profile.calls[static_cast<size_t>(call)].name)];
  };
  for (size_t i = 0; i < profile.calls.size(); ++i) {
    const ProfiledCall& call = profile.calls[i];
    const std::string& own = stage(static_cast<int32_t>(i));
    if (own.empty()) continue;
    bool inside = false;
    for (int32_t up = call.parent; up >= 0 && !inside; up = profile.calls[static_cast<size_t>(up)].parent)
      inside = stage(up) == own;
    if (inside) continue;
    ProfileSum& sum = stages[own];
    sum.name = own;
    ++sum.calls;
    sum.wall_ns += call.wall_ns();
    sum.cpu_ns += call.cpu_ns;
    sum.allocated += call.allocated;
    sum.peak = std::max(sum.peak, call.peak);
  }
  return stages;
}

std::vector<ProfilePair> paired(std::map<std::string, ProfileSum> reference,
                                std::map<std::string, ProfileSum> candidate, bool both_only) {
  std::vector<ProfilePair> pairs;
  for (auto& [name, sum] : reference) {
    const auto other = candidate.find(name);
    if (other == candidate.end() && both_only) continue;
    pairs.push_back({name, sum, other == candidate.end() ? ProfileSum{.name = name} : other->second});
  }
  if (!both_only)
    for (auto& [name, sum] : candidate)
      if (!reference.contains(name)) pairs.push_back({name, ProfileSum{.name = name}, sum});
  // What the candidate loses most in comes first.
  std::stable_sort(pairs.begin(), pairs.end(), [](const ProfilePair& a, const ProfilePair& b) {
    return a.candidate.wall_ns - a.reference.wall_ns > b.candidate.wall_ns - b.reference.wall_ns;
  });
  return pairs;
}

std::map<std::string, ProfileSum> by_name(const ProcessProfile& profile) {
  std::map<std::string, ProfileSum> sums;
  for (ProfileSum& sum : modules_of(profile)) sums.emplace(sum.name, sum);
  return sums;
}

ProfileSum whole_of(const ProcessProfile& profile) {
  return {.name = "the program",
          .calls = 1,
          .wall_ns = profile.end_ns - profile.begin_ns,
          .cpu_ns = profile.cpu_ns,
          .peak = peak_bytes(profile)};
}

Json profile_json(const std::vector<ProfilePair>& pairs) {
  Json json = Json::array();
  for (const ProfilePair& pair : pairs) {
    const auto ratio = [](int64_t candidate, int64_t reference) {
      return reference > 0 && candidate > 0 ? Json(static_cast<double>(candidate) / static_cast<double>(reference))
                                            : Json(nullptr);
    };
    json.push_back({{"name", pair.name},
                    {"reference", pair.reference.calls ? profile_json(pair.reference) : Json(nullptr)},
                    {"candidate", pair.candidate.calls ? profile_json(pair.candidate) : Json(nullptr)},
                    {"time_ratio", ratio(pair.candidate.wall_ns, pair.reference.wall_ns)},
                    {"peak_ratio", ratio(pair.candidate.peak, pair.reference.peak)}});
  }
  return json;
}

}  // namespace

std::string stage_of(std::string_view name) {
  std::string first(name.substr(0, name.find('.')));
  std::transform(first.begin(), first.end(), first.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const auto has = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return first.find(word) != std::string::npos; });
  };
  if (first == "pipeline" || first == "lazy evaluation") return {};  // holds the others, or is held by them
  if (has({"from_pretrained", "load"})) return "loading";
  if (has({"scheduler", "sampler"})) return "scheduler";
  if (has({"vae", "autoencoder"})) return "vae";
  if (has({"text", "encode_prompt", "prompt"})) return "text encoder";
  if (has({"transformer", "unet", "dit", "denois"})) return "transformer";
  return first;
}

ProfileComparison compare_profiles(const ProgramProfile& reference, const ProgramProfile& candidate) {
  return {.stages = paired(by_stage(reference.first()), by_stage(candidate.first()), false),
          .modules = paired(by_name(reference.first()), by_name(candidate.first()), true),
          .reference = whole_of(reference.first()),
          .candidate = whole_of(candidate.first())};
}

Json json_from(const ProfileComparison& comparison) {
  return {{"reference", profile_json(comparison.reference)},
          {"candidate", profile_json(comparison.candidate)},
          {"stages", profile_json(comparison.stages)},
          {"modules", profile_json(comparison.modules)}};
}

Json json_from(const ProgramProfile& profile) {
  const ProcessProfile& first = profile.first();
  const int64_t wall = first.end_ns - first.begin_ns, evaluation = evaluation_ns(first);
  Json json{{"schema", "lockstep-profile-1"},
            {"processes", profile.processes.size()},
            {"frameworks", first.frameworks},
            {"wall_secs", secs(wall)},
            {"cpu_secs", secs(first.cpu_ns)},
            {"evaluation_secs", secs(evaluation)},
            {"evaluation_share", wall > 0 ? static_cast<double>(evaluation) / static_cast<double>(wall) : 0.0},
            {"evaluations", first.evaluations},
            {"memory", first.memory},
            {"peak_bytes", peak_bytes(first)},
            {"calls", first.calls.size()},
            {"left_out", first.left_out},
            {"stages", profile_json(stages_of(first))},
            {"modules", profile_json(modules_of(first))}};
  if (const int64_t step = first_step_ns(first)) json["first_step_secs"] = secs(step);
  return json;
}

}  // namespace lockstep
