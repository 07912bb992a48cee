// A file that somebody else writes to, as a descriptor to wait on.
#pragma once
#include <filesystem>

namespace lockstep {

class FileWatch {
 public:
  explicit FileWatch(const std::filesystem::path& file);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  int descriptor() const { return events_; }  // readable when the file may have grown; -1: nothing tells
  void forget_events();                       // what it has told is known: readable again after the next change

 private:
  int events_ = -1;
  int file_ = -1;  // where the system watches an open file
};

}  // namespace lockstep
