#include "checkpoint/file_match.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "checkpoint/file.h"

void td_names_deinit(td_names *n) {
  for (size_t i = 0; i < n->count; i++) td_free(n->items[i]);
  td_free(n->items);
  *n = (td_names){0};
}

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void td_names_sort(td_names *n) {
  if (n->count) qsort(n->items, n->count, sizeof *n->items, compare);
}

void td_names_add(td_names *n, const char *prefix, const char *path) {
  TD_GROW(n->items, n->count, n->capacity);
  n->items[n->count++] = td_asprintf("%s%s", prefix, path);
}

static bool has_wildcard(td_str s) {
  for (size_t i = 0; i < s.size; i++)
    if (strchr("*?[\\", s.data[i])) return true;
  return false;
}

typedef struct matcher {
  const char *prefix; /* of every name: the scheme as it was given */
  td_names *out;
} matcher;

static void expand(const matcher *m, td_str dir, td_str rest);

/* `path` fits so far; `rest` (data NULL: nothing) is the pattern of what comes below. */
static void descend(const matcher *m, const char *path, td_str rest) {
  struct stat st;
  if (stat(path, &st)) return;
  if (!rest.data) {
    td_names_add(m->out, m->prefix, path);
  } else if (S_ISDIR(st.st_mode)) {
    char *dir = td_asprintf("%s/", path);
    expand(m, td_str_of(dir), rest);
    td_free(dir);
  }
}

/* Recursion is as deep as the pattern has parts: PATH_MAX bounds it. */
static void expand(const matcher *m, td_str dir, td_str rest) {
  td_str part = td_str_split(&rest, '/');
  if (!part.size) return;
  char *pattern = td_strndup(part.data, part.size), *folder = td_strndup(dir.data, dir.size);
  if (!has_wildcard(part)) {
    char *path = td_asprintf("%s%s", folder, pattern);
    descend(m, path, rest);
    td_free(path);
  } else {
    DIR *d = opendir(*folder ? folder : ".");
    for (struct dirent *e; d && (e = readdir(d));) {
      if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || fnmatch(pattern, e->d_name, 0)) continue;
      char *path = td_asprintf("%s%s", folder, e->d_name);
      descend(m, path, rest);
      td_free(path);
    }
    if (d) closedir(d);
  }
  td_free(folder);
  td_free(pattern);
}

td_status td_file_match(td_str pattern, td_names *out) {
  struct stat st;
  char *path;
  TD_TRY(td_file_path(pattern, &path));
  size_t path_size = strlen(path);
  char *prefix = td_strndup(pattern.data, pattern.size - path_size);
  matcher m = {prefix, out};
  td_str rest = td_str_n(path, path_size);
  if (!has_wildcard(rest)) {
    if (!stat(path, &st)) td_names_add(out, prefix, path);
  } else if (*path == '/') {
    expand(&m, td_str_n(path, 1), td_str_n(path + 1, path_size - 1));
  } else {
    const char *slash = strchr(path, '/');
    bool in_place = has_wildcard(td_str_n(path, slash ? (size_t)(slash - path) : path_size)); /* no folder before it */
    expand(&m, in_place ? TD_STR("./") : TD_STR(""), rest);
  }
  td_free(prefix);
  td_free(path);
  return TD_STATUS_OK;
}
