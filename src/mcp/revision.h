// Revisions of the Model Context Protocol. Up to 2025-11-25 a client introduces itself once (initialize); from
// 2026-07-28 on every request carries its revision, nothing is remembered between two, and closing the connection
// cancels.
#pragma once
#include <string>

#include "base/json.h"

namespace lockstep {

namespace mcp_error {
inline constexpr int kParse = -32700, kInvalidRequest = -32600, kNoMethod = -32601, kBadParameters = -32602;
inline constexpr int kHeaderMismatch = -32020, kUnsupportedRevision = -32022;
}  // namespace mcp_error

inline constexpr const char* kStatelessRevision = "2026-07-28";

bool is_stateless(const Json& message);  // carries its revision with it

// Of a stateless request: null where it is whole and of a revision that we speak, else {code, message, data?}.
Json envelope_problem(const Json& message);

std::string agreed_revision(const Json& asked);  // of the handshake's revisions: the one asked for, else the newest
Json all_revisions();

Json server_info();
void complete(Json& result);   // what every stateless result says beside its own fields
void cacheable(Json& result);  // and those that may be kept for a while

}  // namespace lockstep
