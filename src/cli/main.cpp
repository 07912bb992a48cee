#include "cli/run_app.h"
#include "cli/thread_waiting.h"

int main(int argc, char** argv) {
  lockstep::limit_spinning(argc, argv);
  lockstep::answer_for_openmp();
  return lockstep::run_app(argc, argv);
}
