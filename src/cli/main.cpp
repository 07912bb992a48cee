#include "cli/last_words.h"
#include "cli/run_app.h"
#include "cli/thread_waiting.h"

int main(int argc, char** argv) {
  lockstep::limit_spinning(argc, argv);
  lockstep::answer_for_openmp();
  lockstep::answer_for_onednn();
  lockstep::install_last_words(argc, argv);
  return lockstep::run_app(argc, argv);
}
