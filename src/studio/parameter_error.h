// A request that says something we cannot do, with the name of the field that says it.
#pragma once
#include "base/error.h"

namespace lockstep {

class ParameterError : public Error {
 public:
  ParameterError(Code code, std::string parameter, const std::string& message, std::string reason = {})
      : Error(code, message), parameter_(std::move(parameter)), reason_(std::move(reason)) {}
  const std::string& parameter() const { return parameter_; }
  const std::string& reason() const { return reason_; }  // a stable word: "model_not_found"; empty: by the code

 private:
  std::string parameter_, reason_;
};

// Work that finds no room now and may later.
class BusyError : public Error {
 public:
  BusyError(const std::string& message, std::string reason, int retry_secs)
      : Error(Code::kConflict, message), reason_(std::move(reason)), retry_secs_(retry_secs) {}
  const std::string& reason() const { return reason_; }
  int retry_secs() const { return retry_secs_; }

 private:
  std::string reason_;
  int retry_secs_;
};

[[noreturn]] void refuse_parameter(const std::string& parameter, const std::string& what, const Detail& detail = {});

}  // namespace lockstep
