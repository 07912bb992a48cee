/* Lockstep's C interface: record named tensors from any program, and receive the reference's values where they are to
 * be substituted. Link with -llockstep_capture. Every function may be called from any thread; none throws, aborts or
 * stops the program: a call that fails returns a negative status and leaves a message in lockstep_last_error().
 *
 *   lockstep_run* run = NULL;
 *   lockstep_open_from_environment("my_port", &run);           // run stays NULL unless recording was asked for
 *   int64_t shape[] = {2, 3};
 *   lockstep_view view = {data, LOCKSTEP_F32, 2, shape, NULL};
 *   lockstep_place place = LOCKSTEP_PLACE("block.0.attn");
 *   lockstep_checkpoint(run, &place, &view, NULL);             // does nothing when run is NULL
 *   lockstep_close(run, "finished");
 */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_ABI_VERSION 1

#if defined(__GNUC__)
#define LOCKSTEP_API __attribute__((visibility("default")))
#else
#define LOCKSTEP_API
#endif

typedef int32_t lockstep_status;
enum {
  LOCKSTEP_OK = 0,
  LOCKSTEP_REPLACED = 1, /* go on with the replacement's values */
  LOCKSTEP_BAD_INPUT = -1,
  LOCKSTEP_NOT_FOUND = -2,
  LOCKSTEP_FAILED = -3 /* the system refused: file, memory */
};

typedef int32_t lockstep_dtype;
enum {
  LOCKSTEP_F64,
  LOCKSTEP_F32,
  LOCKSTEP_F16,
  LOCKSTEP_BF16,
  LOCKSTEP_F8_E4M3,
  LOCKSTEP_F8_E5M2,
  LOCKSTEP_I8,
  LOCKSTEP_I16,
  LOCKSTEP_I32,
  LOCKSTEP_I64,
  LOCKSTEP_U8,
  LOCKSTEP_U16,
  LOCKSTEP_U32,
  LOCKSTEP_U64,
  LOCKSTEP_BOOL
};

typedef int32_t lockstep_role;
enum { LOCKSTEP_CHECKPOINT, LOCKSTEP_OUTPUT, LOCKSTEP_INPUT, LOCKSTEP_VARIABLE };

/* Strides count elements and may be negative or zero; NULL: contiguous, row major. */
typedef struct lockstep_view {
  const void* data;
  lockstep_dtype dtype;
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides;
} lockstep_view;

typedef struct lockstep_tag {
  const char* name;
  const char* value;
} lockstep_tag;

/* Name and circumstances of a tensor. Hits of the same name, role, step and tags are counted by the library, unless
 * lockstep_checkpoint_of_call is told. */
typedef struct lockstep_place {
  const char* name;
  int32_t step; /* denoising step, -1 outside the loop */
  lockstep_role role;
  const lockstep_tag* tags;
  size_t tag_count;
  const char* file; /* where in the source; NULL: unknown */
  int32_t line;
  const char* function;
} lockstep_place;

#define LOCKSTEP_PLACE(name) \
  { (name), -1, LOCKSTEP_CHECKPOINT, NULL, 0, __FILE__, __LINE__, __func__ }

/* Zero-initialise, set struct_bytes to sizeof, fill in what is wanted. Lists of globs are separated by commas. */
typedef struct lockstep_options {
  size_t struct_bytes;
  const char* home;         /* NULL: LOCKSTEP_HOME, else .lockstep */
  const char* name;         /* of the run */
  const char* details_json; /* an object merged into run.json: model, settings, versions ... */
  const char* tap;          /* only these names */
  const char* no_tap;       /* not these */
  const char* steps;        /* "0,5-9" */
  const char* full;         /* keep exactly these in full */
  int32_t stats_only;
  int32_t no_record;      /* only compare or substitute */
  uint64_t budget_bytes;  /* 0: the default */
  uint64_t buffer_bytes;  /* 0: the default */
  const char* reference;  /* a run: id, latest:NAME, path */
  const char* substitute; /* names to replace by the reference's values */
} lockstep_options;

typedef struct lockstep_run lockstep_run;
typedef struct lockstep_tensor lockstep_tensor;

LOCKSTEP_API int32_t lockstep_abi_version(void);
LOCKSTEP_API const char* lockstep_version(void);
LOCKSTEP_API const char* lockstep_last_error(void); /* of this thread; "" when there was none */

LOCKSTEP_API lockstep_status lockstep_open(const lockstep_options* options, lockstep_run** run);
/* As LOCKSTEP_RECORD, LOCKSTEP_RUN, LOCKSTEP_REFERENCE, LOCKSTEP_SUBSTITUTE ... say. OK with *run NULL: not asked for.
 */
LOCKSTEP_API lockstep_status lockstep_open_from_environment(const char* name, lockstep_run** run);
/* status: "finished" or "failed". The handle is gone afterwards. NULL is allowed. */
LOCKSTEP_API lockstep_status lockstep_close(lockstep_run* run, const char* status);

LOCKSTEP_API const char* lockstep_run_id(const lockstep_run* run); /* "" when nothing is recorded */
LOCKSTEP_API const char* lockstep_run_path(const lockstep_run* run);
LOCKSTEP_API lockstep_status lockstep_describe(lockstep_run* run, const char* details_json);
LOCKSTEP_API lockstep_status lockstep_flush(lockstep_run* run);
/* 0 when the filters leave this name out: saves preparing a view. */
LOCKSTEP_API int32_t lockstep_wants(const lockstep_run* run, const char* name);
/* A warning that this run has not given before. */
LOCKSTEP_API void lockstep_warn_once(lockstep_run* run, const char* topic, const char* message);

/* Copies the values before it returns. With a non-NULL `replacement` it may return LOCKSTEP_REPLACED and set it: same
 * shape and dtype, contiguous, to be freed with lockstep_tensor_free. */
LOCKSTEP_API lockstep_status lockstep_checkpoint(lockstep_run* run, const lockstep_place* place,
                                                 const lockstep_view* view, lockstep_tensor** replacement);
/* The same for what goes into or comes out of a call: all of it bears the call's hit, also where calls raise, overlap
 * or end in another order than they began. A hit that this name, role, step and tags have had gives way to the one
 * after all of them; negative: counted by the library. Below 2^30. */
LOCKSTEP_API lockstep_status lockstep_checkpoint_of_call(lockstep_run* run, const lockstep_place* place, int32_t hit,
                                                         const lockstep_view* view, lockstep_tensor** replacement);

/* Notes that a module holds this weight: shape, statistics and checksum, not the values. A comparison pairs modules of
 * two programs by the weights they hold, whatever they are called. */
LOCKSTEP_API lockstep_status lockstep_weight(lockstep_run* run, const char* module, const char* name,
                                             const lockstep_view* view);

LOCKSTEP_API lockstep_view lockstep_tensor_view(const lockstep_tensor* tensor);
LOCKSTEP_API void lockstep_tensor_free(lockstep_tensor* tensor);

/* Tensors kept by name outside any run, to carry values from one program into another. home NULL: as above. */
LOCKSTEP_API lockstep_status lockstep_save(const char* home, const char* name, const lockstep_view* view);
LOCKSTEP_API lockstep_status lockstep_load(const char* home, const char* name, lockstep_tensor** tensor);

/* The numbers that a record keeps of a tensor, in one pass and without a run. NaN and infinities are counted and
 * otherwise left out. */
typedef struct lockstep_statistics {
  int64_t count;
  double min, max, mean, std, rms, absmax;
  int64_t nan, inf, zero, denormal;
} lockstep_statistics;
LOCKSTEP_API lockstep_status lockstep_view_statistics(const lockstep_view* view, lockstep_statistics* statistics);

/* Sums over the finite elements, the same in whatever order these lie: by them values of two programs are found to be
 * the same before anything else is compared. */
typedef struct lockstep_totals {
  int64_t count, infinite, nan;
  double sum, absolute, squares;
  int32_t uniform; /* all elements alike */
  int32_t binary;  /* nothing but 0 and 1 */
} lockstep_totals;
LOCKSTEP_API lockstep_status lockstep_view_totals(const lockstep_view* view, lockstep_totals* totals);

#ifdef __cplusplus
}
#endif
#endif
