#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void td_out_of_memory(size_t size) {
  fprintf(stderr, "tensord: out of memory for %zu bytes of control data\n", size);
  abort();
}

void *td_malloc(size_t size) {
  void *p = malloc(size ? size : 1);
  if (!p) td_out_of_memory(size);
  return p;
}

void *td_calloc(size_t count, size_t size) {
  void *p = calloc(count ? count : 1, size ? size : 1);
  if (!p) td_out_of_memory(count * size);
  return p;
}

void *td_calloc_aligned(size_t align, size_t size) {
  void *p = aligned_alloc(align, size);
  if (!p) td_out_of_memory(size);
  return memset(p, 0, size);
}

void *td_realloc(void *p, size_t size) {
  p = realloc(p, size ? size : 1);
  if (!p) td_out_of_memory(size);
  return p;
}

char *td_strndup(const char *s, size_t size) {
  char *copy = td_malloc(size + 1);
  if (size) memcpy(copy, s, size);
  copy[size] = '\0';
  return copy;
}

char *td_strdup(const char *s) { return td_strndup(s, strlen(s)); }

void *td_try_malloc(size_t size) { return malloc(size ? size : 1); }

void td_free(void *p) { free(p); }
