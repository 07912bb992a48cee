#include <gtest/gtest.h>

#include "rest/rest_server.h"

namespace lockstep {
namespace {

TEST(OpenApi, HasEveryOperationUnderItsMethod) {
  const Json document = openapi_document();
  for (const Operation& operation : operations()) {
    const std::string path = route_of(operation);
    ASSERT_TRUE(document["paths"].contains(path)) << path;
    const Json& item = document["paths"][path];
    EXPECT_TRUE(item.contains(operation.reads ? "get" : "post")) << path;
    EXPECT_EQ(item.size(), operation.route == "/v1/jobs" ? 2u : 1u) << path;  // listed and created
  }
}

TEST(OpenApi, ErrorsHaveOneForm) {
  const HttpResponse response = error_response(Code::kConflict, "[vars] it runs; try pause");
  EXPECT_EQ(response.status, 409);
  const Json body = Json::parse(response.body)["error"];
  EXPECT_EQ(body["code"], "conflict");
  EXPECT_EQ(body["message"], "[vars] it runs");
  EXPECT_EQ(body["hint"], "pause");
  EXPECT_EQ(body["type"], "invalid_request_error");
  EXPECT_TRUE(body["param"].is_null());
}

}  // namespace
}  // namespace lockstep
