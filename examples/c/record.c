/* A port in C that offers three stages. Off unless asked for:
 *   LOCKSTEP_RECORD=c_port ./example_c && lockstep runs show latest:c_port
 * With LOCKSTEP_REFERENCE and LOCKSTEP_SUBSTITUTE set, it goes on with the reference's values. */
#include <lockstep/lockstep.h>
#include <stdio.h>
#include <string.h>

/* Records a row-major float tensor and takes over the reference's values when they are to be substituted. */
static void offer(lockstep_run* run, lockstep_place place, float* data, int32_t rank, const int64_t* shape) {
  lockstep_view view = {data, LOCKSTEP_F32, rank, shape, NULL};
  lockstep_tensor* replacement = NULL;
  size_t bytes = sizeof(float);
  lockstep_status status = lockstep_checkpoint(run, &place, &view, &replacement);
  if (status < 0) fprintf(stderr, "%s\n", lockstep_last_error());
  if (status != LOCKSTEP_REPLACED) return;
  for (int32_t i = 0; i < rank; ++i) bytes *= (size_t)shape[i];
  memcpy(data, lockstep_tensor_view(replacement).data, bytes);
  lockstep_tensor_free(replacement);
}

int main(void) {
  lockstep_run* run = NULL;
  if (lockstep_open_from_environment("c_port", &run) < 0) fprintf(stderr, "%s\n", lockstep_last_error());

  float x[6] = {0, 1, 2, 3, 4, 5};
  const int64_t shape[2] = {2, 3};
  offer(run, (lockstep_place)LOCKSTEP_PLACE("input"), x, 2, shape);
  for (int32_t step = 0; step < 3; ++step) {
    for (int i = 0; i < 6; ++i) x[i] = 0.5f * x[i] + 1.0f; /* [2, 3] */
    lockstep_place place = LOCKSTEP_PLACE("latents");
    place.step = step;
    offer(run, place, x, 2, shape);
  }
  float sum = 0;
  for (int i = 0; i < 6; ++i) sum += x[i];
  offer(run, (lockstep_place)LOCKSTEP_PLACE("sum"), &sum, 0, NULL);
  printf("%.4f\n", sum);
  lockstep_close(run, "finished");
  return 0;
}
