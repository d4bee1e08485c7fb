#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

int td_str_cmp(td_str a, td_str b) {
  size_t n = TD_MIN(a.size, b.size);
  int c = n ? memcmp(a.data, b.data, n) : 0;
  return c ? c : (a.size > b.size) - (a.size < b.size);
}

bool td_str_starts(td_str s, td_str prefix) {
  return s.size >= prefix.size && (!prefix.size || !memcmp(s.data, prefix.data, prefix.size));
}

bool td_str_ends(td_str s, td_str suffix) {
  return s.size >= suffix.size && (!suffix.size || !memcmp(s.data + s.size - suffix.size, suffix.data, suffix.size));
}

td_str td_str_split(td_str *rest, char sep) {
  const char *at = rest->size ? memchr(rest->data, sep, rest->size) : NULL;
  td_str part = *rest;
  if (at) {
    part.size = (size_t)(at - rest->data);
    rest->data = at + 1;
    rest->size -= part.size + 1;
  } else {
    *rest = (td_str){NULL, 0};
  }
  return part;
}

td_str td_str_trim(td_str s) {
  while (s.size && isspace((unsigned char)s.data[0])) s.data++, s.size--;
  while (s.size && isspace((unsigned char)s.data[s.size - 1])) s.size--;
  return s;
}

static bool digits_to_u64(td_str s, unsigned base, uint64_t *out) {
  if (!s.size) return false;
  uint64_t v = 0;
  for (size_t i = 0; i < s.size; i++) {
    unsigned char c = (unsigned char)s.data[i];
    unsigned d = c >= '0' && c <= '9' ? c - 48u : c >= 'a' && c <= 'f' ? c - 87u : c >= 'A' && c <= 'F' ? c - 55u : 99u;
    if (d >= base || __builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, d, &v)) return false;
  }
  *out = v;
  return true;
}

bool td_str_to_u64(td_str s, uint64_t *out) { return digits_to_u64(s, 10, out); }

bool td_str_hex_to_u64(td_str s, uint64_t *out) { return digits_to_u64(s, 16, out); }

bool td_str_to_i64(td_str s, int64_t *out) {
  bool negative = s.size && s.data[0] == '-';
  if (negative) s.data++, s.size--;
  uint64_t v;
  if (!digits_to_u64(s, 10, &v) || v > (uint64_t)INT64_MAX + negative) return false;
  *out = negative ? (int64_t)(0 - v) : (int64_t)v;
  return true;
}

/* Murmur2, 64-bit (Austin Appleby, public domain algorithm). */
uint64_t td_hash64_seeded(const void *data, size_t size, uint64_t seed) {
  const uint64_t m = 0xc6a4a7935bd1e995ull;
  const unsigned r = 47;
  const unsigned char *p = data;
  uint64_t h = seed ^ (size * m);
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t k;
    memcpy(&k, p, 8);
    k *= m;
    k ^= k >> r;
    k *= m;
    h ^= k;
    h *= m;
  }
  if (size) {
    for (size_t i = 0; i < size; i++) h ^= (uint64_t)p[i] << (8 * i);
    h *= m;
  }
  h ^= h >> r;
  h *= m;
  return h ^ (h >> r);
}

uint64_t td_hash64(const void *data, size_t size) { return td_hash64_seeded(data, size, 0xDECAFCAFFEull); }

uint64_t td_hash(const void *data, size_t size) { return td_hash64_seeded(data, size, 0x9E3779B97F4A7C15ull); }

static void reserve(td_strbuf *b, size_t more) {
  if (b->capacity - b->size > more) return;
  size_t capacity = TD_MAX(b->capacity * 2, b->size + more + 1);
  capacity = TD_MAX(capacity, (size_t)192); /* a key, a small request */
  b->data = td_realloc(b->data, capacity);
  b->capacity = capacity;
}

bool td_strbuf_try_reserve(td_strbuf *b, size_t more) {
  size_t want;
  if (b->capacity - b->size > more) return true;
  if (!td_add_size(b->size, more, &want) || !td_add_size(want, (size_t)1, &want)) return false;
  if (b->size) want = TD_MAX(want, b->capacity + b->capacity / 2); /* it grows step by step */
  char *data = realloc(b->data, want);
  if (!data) return false;
  b->data = data;
  b->capacity = want;
  b->data[b->size] = '\0';
  return true;
}

void td_strbuf_append(td_strbuf *b, td_str s) {
  reserve(b, s.size);
  if (s.size) memcpy(b->data + b->size, s.data, s.size);
  b->size += s.size;
  b->data[b->size] = '\0';
}

void td_strbuf_puts(td_strbuf *b, const char *s) { td_strbuf_append(b, td_str_of(s)); }

void td_strbuf_putc(td_strbuf *b, char c) { td_strbuf_append(b, (td_str){&c, 1}); }

void td_strbuf_vprintf(td_strbuf *b, const char *fmt, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  if (n >= 0) {
    reserve(b, (size_t)n);
    vsnprintf(b->data + b->size, (size_t)n + 1, fmt, again);
    b->size += (size_t)n;
  }
  va_end(again);
}

void td_strbuf_printf(td_strbuf *b, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  td_strbuf_vprintf(b, fmt, args);
  va_end(args);
}

char *td_strbuf_take(td_strbuf *b) {
  char *data = b->data ? b->data : td_strdup("");
  *b = (td_strbuf){0};
  return data;
}

const char *td_strbuf_cstr(const td_strbuf *b) { return b->data ? b->data : ""; }

void td_strbuf_deinit(td_strbuf *b) {
  td_free(b->data);
  *b = (td_strbuf){0};
}

char *td_asprintf(const char *fmt, ...) {
  td_strbuf b = {0};
  va_list args;
  va_start(args, fmt);
  td_strbuf_vprintf(&b, fmt, args);
  va_end(args);
  return td_strbuf_take(&b);
}
