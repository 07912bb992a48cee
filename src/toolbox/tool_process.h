// A helper program that is asked one question: git, or a Python that reads source.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace lockstep {

struct ToolAnswer {
  int status = 0;  // 128 + signal where it was killed
  std::string output, errors;
};

// argv[0] is looked up in PATH. Error{kNotFound} where it cannot be started, Error{kMemory} where it answers too much.
ToolAnswer ask_tool(const std::vector<std::string>& argv, const std::string& input,
                    const std::map<std::string, std::string>& environment, const fs::path& cwd = {});

}  // namespace lockstep
