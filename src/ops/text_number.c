#include "ops/text_number.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static td_str trim(td_str s) {
  while (s.size && isspace((unsigned char)s.data[0])) s = (td_str){s.data + 1, s.size - 1};
  while (s.size && isspace((unsigned char)s.data[s.size - 1])) s.size--;
  return s;
}

static bool floating(td_str s, td_dtype dtype, void *out) {
  char text[512]; /* no number that matters is longer; strtod() needs an end */
  char *end;
  if (s.size >= sizeof text || memchr(s.data, '(', s.size)) return false;
  memcpy(text, s.data, s.size);
  text[s.size] = 0;
  if (dtype == TD_FLOAT)
    *(float *)out = strtof(text, &end);
  else
    *(double *)out = strtod(text, &end);
  return end == text + s.size;
}

bool td_text_number(td_str s, td_dtype dtype, void *out) {
  int64_t i = 0;
  uint64_t u = 0;
  bool negative;
  s = trim(s);
  if (!s.size) return false;
  if (dtype == TD_FLOAT || dtype == TD_DOUBLE) return floating(s, dtype, out);
  negative = s.data[0] == '-';
  bool is_unsigned = dtype == TD_UINT32 || dtype == TD_UINT64;
  if (negative && is_unsigned) return false;
  if (negative || s.data[0] == '+') s = (td_str){s.data + 1, s.size - 1};
  if (!s.size) return false;
  for (size_t k = 0; k < s.size; k++) {
    if (!isdigit((unsigned char)s.data[k])) return false;
    uint64_t digit = (uint64_t)(s.data[k] - '0');
    if (__builtin_mul_overflow(u, (uint64_t)10, &u) || __builtin_add_overflow(u, digit, &u)) return false;
  }
  if (is_unsigned) {
    if (dtype == TD_UINT32 && u > UINT32_MAX) return false;
    if (dtype == TD_UINT32)
      *(uint32_t *)out = (uint32_t)u;
    else
      *(uint64_t *)out = u;
    return true;
  }
  if (u > (uint64_t)INT64_MAX + negative) return false;
  i = (int64_t)(negative ? 0 - u : u);
  if (dtype == TD_INT64) {
    *(int64_t *)out = i;
    return true;
  }
  if (i < INT32_MIN || i > INT32_MAX) return false;
  *(int32_t *)out = (int32_t)i;
  return true;
}
