#include "rpc/codec.h"

#include "base/mem.h"

static const char TRUNCATED[] = " ... [truncated]";

static bool plain(unsigned char c) { return c >= 0x20 && c <= 0x7e && c != '%'; }

/* The greatest length ≤ `size` that does not split a UTF-8 sequence. */
static size_t utf8_floor(const char *data, size_t size, size_t total) {
  if (size >= total) return total;
  size_t n = size;
  while (n && size - n < 4 && ((unsigned char)data[n] & 0xC0) == 0x80) n--;
  return n;
}

void td_percent_encode(td_strbuf *out, td_str message, size_t max_encoded) {
  static const char HEX[] = "0123456789ABCDEF";
  size_t size = TD_MIN(message.size, (size_t)TD_RPC_MESSAGE_MAX), encoded = 0, fits = 0;
  size_t room = max_encoded > sizeof TRUNCATED ? max_encoded - sizeof TRUNCATED : 0;
  for (; fits < size; fits++) {
    encoded += plain((unsigned char)message.data[fits]) ? 1 : 3;
    if (encoded > room) break;
  }
  size = utf8_floor(message.data, fits, message.size);
  for (size_t i = 0; i < size; i++) {
    unsigned char c = (unsigned char)message.data[i];
    bool outer = i == 0 || i + 1 == message.size; /* where some peers do not take a blank */
    if (plain(c) && !(outer && c == ' ')) {
      td_strbuf_putc(out, (char)c);
    } else {
      char e[3] = {'%', HEX[c >> 4], HEX[c & 15]};
      td_strbuf_append(out, td_str_n(e, 3));
    }
  }
  if (size < message.size) td_strbuf_puts(out, TRUNCATED);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void td_percent_decode(td_strbuf *out, td_str s) {
  for (size_t i = 0; i < s.size; i++) {
    if (s.data[i] == '%' && i + 2 < s.size) {
      int high = hex_digit(s.data[i + 1]), low = hex_digit(s.data[i + 2]);
      if (high >= 0 && low >= 0) {
        td_strbuf_putc(out, (char)(high * 16 + low));
        i += 2;
        continue;
      }
    }
    td_strbuf_putc(out, s.data[i]);
  }
}

static const struct {
  char unit;
  uint64_t ns;
} UNITS[] = {{'n', 1u}, {'u', 1000u}, {'m', 1000000u}, {'S', 1000000000u}, {'M', 60000000000u}, {'H', 3600000000000u}};

size_t td_timeout_format(uint64_t timeout_ns, char out[16]) {
  size_t unit = 0;
  uint64_t n = timeout_ns;
  while (n > 99999999 && unit + 1 < TD_COUNT(UNITS)) {
    unit++;
    n = timeout_ns / UNITS[unit].ns + (timeout_ns % UNITS[unit].ns != 0);
  }
  char digits[24];
  size_t count = 0, size = 0;
  do {
    digits[count++] = (char)('0' + n % 10);
    n /= 10;
  } while (n);
  while (count) out[size++] = digits[--count];
  out[size++] = UNITS[unit].unit;
  return size;
}

bool td_timeout_parse(td_str s, uint64_t *out_ns) {
  if (s.size < 2 || s.size > 9) return false;
  uint64_t n = 0;
  for (size_t i = 0; i + 1 < s.size; i++) {
    if (s.data[i] < '0' || s.data[i] > '9') return false;
    n = n * 10 + (uint64_t)(s.data[i] - '0');
  }
  for (size_t i = 0; i < TD_COUNT(UNITS); i++) {
    if (UNITS[i].unit != s.data[s.size - 1]) continue;
    if (__builtin_mul_overflow(n, UNITS[i].ns, out_ns)) *out_ns = UINT64_MAX;
    return true;
  }
  return false;
}

void td_base64_encode(td_strbuf *out, td_str bytes) {
  static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size; i += 3) {
    size_t n = TD_MIN(bytes.size - i, (size_t)3);
    uint32_t v = 0;
    for (size_t k = 0; k < 3; k++) v = v << 8 | (k < n ? (unsigned char)bytes.data[i + k] : 0);
    for (size_t k = 0; k <= n; k++) td_strbuf_putc(out, DIGITS[v >> (18 - 6 * k) & 63]);
  }
}

static int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool td_base64_decode(td_strbuf *out, td_str s) {
  while (s.size && s.data[s.size - 1] == '=') s.size--;
  if (s.size % 4 == 1) return false;
  uint32_t v = 0;
  int bits = 0;
  for (size_t i = 0; i < s.size; i++) {
    int d = base64_digit(s.data[i]);
    if (d < 0) return false;
    v = v << 6 | (uint32_t)d;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    td_strbuf_putc(out, (char)(v >> bits & 255));
  }
  return true;
}
