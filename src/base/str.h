/* String views and a growable string.
 *
 * A td_str borrows its bytes and may hold anything, NUL included; it is passed by value. A td_strbuf owns its
 * bytes and keeps a NUL behind them.
 */
#ifndef TD_BASE_STR_H_
#define TD_BASE_STR_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct td_str {
  const char *data;
  size_t size;
} td_str;

/* A literal; printf arguments for "%.*s". */
#define TD_STR(literal) ((td_str){"" literal, sizeof(literal) - 1})
#define TD_STR_ARG(s)   (int)(s).size, (s).data

static inline td_str td_str_of(const char *s) { return (td_str){s ? s : "", s ? strlen(s) : 0}; }
static inline td_str td_str_n(const void *data, size_t size) { return (td_str){(const char *)data, size}; }
static inline bool td_str_eq(td_str a, td_str b) {
  return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}
static inline bool td_str_is(td_str a, const char *b) { return td_str_eq(a, td_str_of(b)); }
int td_str_cmp(td_str a, td_str b); /* bytewise, as memcmp then by length */
bool td_str_starts(td_str s, td_str prefix);
bool td_str_ends(td_str s, td_str suffix);

/* The part before the first `sep`, which it removes from *rest together with the separator; all of it when there
 * is none (then *rest is empty and its data NULL). */
td_str td_str_split(td_str *rest, char sep);
td_str td_str_trim(td_str s); /* without surrounding blanks */

/* Decimal and hexadecimal numbers; false when `s` is no number of that kind or does not fit. */
bool td_str_to_i64(td_str s, int64_t *out);
bool td_str_to_u64(td_str s, uint64_t *out);
bool td_str_hex_to_u64(td_str s, uint64_t *out);

/* 64-bit hash of bytes, for tables (not stable between versions, not for the wire). */
uint64_t td_hash(const void *data, size_t size);
/* TensorFlow's Hash64 (64-bit Murmur2, seed 0xDECAFCAFFE), which peers compute too: frame ids, fingerprints. */
uint64_t td_hash64(const void *data, size_t size);
uint64_t td_hash64_seeded(const void *data, size_t size, uint64_t seed);

typedef struct td_strbuf {
  char *data; /* NUL-terminated once anything was appended; NULL before */
  size_t size, capacity;
} td_strbuf;

/* Makes room for `more` bytes and a NUL behind them; false, with nothing changed, when there is no such memory: for
 * sizes that come from outside. */
bool td_strbuf_try_reserve(td_strbuf *b, size_t more);
void td_strbuf_append(td_strbuf *b, td_str s);
void td_strbuf_puts(td_strbuf *b, const char *s);
void td_strbuf_putc(td_strbuf *b, char c);
void td_strbuf_printf(td_strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void td_strbuf_vprintf(td_strbuf *b, const char *fmt, va_list args);
char *td_strbuf_take(td_strbuf *b);             /* the bytes, to be td_free()d; never NULL; leaves `b` empty */
const char *td_strbuf_cstr(const td_strbuf *b); /* "" when empty */
void td_strbuf_deinit(td_strbuf *b);
static inline td_str td_strbuf_view(const td_strbuf *b) { return (td_str){b->data ? b->data : "", b->size}; }

/* A formatted string, to be td_free()d. */
char *td_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));

#endif /* TD_BASE_STR_H_ */
