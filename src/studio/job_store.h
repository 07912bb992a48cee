// Jobs on disk: a folder each, with what was asked, what came of it, and the pictures. Every file is whole or absent,
// and what a job has become is one file, so that after a crash each job is what it last was.
#pragma once
#include <memory>
#include <vector>

#include "studio/job.h"

namespace lockstep {

class JobStore {
 public:
  explicit JobStore(fs::path folder);

  const fs::path& folder() const { return folder_; }
  fs::path spool_folder() const { return folder_ / "spool"; }  // for bodies that arrive

  void create(Job& job);            // its folder, its request and its uploads, which move there
  void save(const Job& job) const;  // what it has become
  void add_picture(const Job& job, const DrawnPicture& picture) const;
  void remove(const std::string& id) const;
  std::shared_ptr<const MappedFile> open_picture(const std::string& job, const DrawnPicture& picture) const;

  // Jobs as they were left, oldest first, without what cannot be read; leftovers of a crash are removed. `read` makes a
  // request from fields and uploads, and may throw.
  struct Stored {
    std::string id;
    Json request, state;
    std::shared_ptr<const Uploads> uploads;
  };
  std::vector<Stored> stored() const;
  bool exists(const std::string& id) const;

 private:
  fs::path folder_of(const std::string& id) const;
  fs::path folder_;
};

bool is_job_id(std::string_view id);  // "job_" and 24 hex digits
std::string new_job_id();

}  // namespace lockstep
