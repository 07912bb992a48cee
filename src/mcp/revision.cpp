#include "mcp/revision.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* kHandshakes[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
constexpr const char* kRevisionKey = "io.modelcontextprotocol/protocolVersion";
constexpr const char* kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr const char* kServerKey = "io.modelcontextprotocol/serverInfo";
constexpr int64_t kKeepMs = 60000;  // the table changes with the program only

Json meta_of(const Json& message) {
  const auto parameters = message.find("params");
  if (parameters == message.end() || !parameters->is_object()) return nullptr;
  return parameters->value("_meta", Json(nullptr));
}

}  // namespace

bool is_stateless(const Json& message) {
  if (!message.is_object()) return false;
  const Json meta = meta_of(message);
  return meta.is_object() && meta.contains(kRevisionKey);
}

Json envelope_problem(const Json& message) {
  const Json meta = meta_of(message), revision = meta[kRevisionKey];
  if (!meta.value(kCapabilitiesKey, Json(nullptr)).is_object())
    return {{"code", mcp_error::kBadParameters},
            {"message", fmt::format("_meta lacks {}, an object", kCapabilitiesKey)}};
  if (!revision.is_string())
    return {{"code", mcp_error::kBadParameters}, {"message", fmt::format("{} is no text", kRevisionKey)}};
  if (revision != Json(kStatelessRevision))
    return {{"code", mcp_error::kUnsupportedRevision},
            {"message", "this revision of the protocol is not spoken here"},
            {"data", {{"supported", all_revisions()}, {"requested", revision}}}};
  return nullptr;
}

std::string agreed_revision(const Json& asked) {
  for (const char* known : kHandshakes)
    if (asked == Json(known)) return known;
  return kHandshakes[0];
}

Json all_revisions() {
  Json all = Json::array({kStatelessRevision});
  for (const char* known : kHandshakes) all.push_back(known);
  return all;
}

Json server_info() {
  return {{"name", "lockstep"}, {"title", "Lockstep"}, {"version", LOCKSTEP_VERSION}};
}

void complete(Json& result) {
  result["resultType"] = "complete";
  result["_meta"][kServerKey] = server_info();
}

void cacheable(Json& result) {
  complete(result);
  result["ttlMs"] = kKeepMs;
  result["cacheScope"] = "private";
}

}  // namespace lockstep
