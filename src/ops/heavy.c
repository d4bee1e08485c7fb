#include "ops/heavy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const td_heavy_ops *loaded; /* written once, under `once` */

void td_heavy_prepare(void) {
  setenv("OPENBLAS_NUM_THREADS", "1", true);
#ifdef __x86_64__
  if (!__builtin_cpu_is("intel")) return; /* others are known by their family */
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    setenv("OPENBLAS_CORETYPE", "SkylakeX", false);
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    setenv("OPENBLAS_CORETYPE", "Haswell", false);
#endif
}

static const td_heavy_ops *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return NULL;
  td_heavy_table_fn table = (td_heavy_table_fn)dlsym(library, "td_heavy_table");
  const td_heavy_ops *ops = table ? table() : NULL;
  if (ops && ops->abi == TD_HEAVY_ABI) return ops;
  dlclose(library);
  return NULL;
}

static void find_and_load(void) {
  const char *given = getenv("TENSORD_HEAVY");
  if (given) {
    loaded = load(given);
  } else {
    static const char *const places[] = {"", "../", "../lib/tensord/"};
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    if (n <= 0) return;
    path[n] = 0;
    char *file = strrchr(path, '/') + 1;
    for (size_t i = 0; i < sizeof places / sizeof *places && !loaded; i++) {
      snprintf(file, (size_t)(path + sizeof path - file), "%slibtensord_heavy.so", places[i]);
      loaded = load(path);
    }
  }
  if (!loaded) {
    const char *why = dlerror();
    td_warn(
        "libtensord_heavy.so cannot be loaded (%s): matrix products and convolutions run without oneDNN and OpenBLAS",
        why ? why : "wrong version");
  }
}

const td_heavy_ops *td_heavy_get(void) {
  pthread_once(&once, find_and_load);
  return loaded;
}
