// The answer to one request for pictures, given by the thread that draws to a connection that waits.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "http/connection_hub.h"
#include "rest/image_form.h"
#include "studio/studio.h"

namespace lockstep {

inline constexpr size_t kMostAnswerBytes = 1ull << 30;  // ten pictures of the largest size, in base64

class ImageAnswer : public JobFollower {
 public:
  ImageAnswer(Studio& studio, std::shared_ptr<WaitingConnection> connection, AnswerForm form, std::string origin)
      : studio_(studio), connection_(std::move(connection)), form_(form), origin_(std::move(origin)) {}

  void queued(const std::shared_ptr<Job>& job) override;
  void previewed(const Preview& preview) override;
  void drawn(size_t picture) override;
  void ended() override;

 private:
  Json facts(const Job& job, const DrawnPicture* picture) const;
  std::string event_name(const std::string& kind) const;
  void send_event(const std::string& kind, const Json& data, const std::string& picture);

  Studio& studio_;
  std::shared_ptr<WaitingConnection> connection_;
  AnswerForm form_;
  std::string origin_;  // "http://127.0.0.1:8700"
  std::weak_ptr<Job> job_;
  std::string preview_facts_;    // what all previews say alike: the beginning of an event
  std::map<int, int> partials_;  // previews sent, by picture
};

}  // namespace lockstep
