#include "ops/fingerprint.h"

#include <string.h>

static const uint64_t K0 = 0xc3a5c85c97cb3127u, K1 = 0xb492b66fbe98f273u, K2 = 0x9ae16a3b2f90404fu;

typedef struct pair {
  uint64_t a, b;
} pair;

static uint64_t load64(const unsigned char *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static uint64_t load32(const unsigned char *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return v;
}
static uint64_t rotate(uint64_t v, int n) { return v >> n | v << (64 - n); }
static uint64_t shift_mix(uint64_t v) { return v ^ v >> 47; }
static uint64_t mix16(uint64_t u, uint64_t v, uint64_t mul) {
  uint64_t a = shift_mix((u ^ v) * mul);
  return shift_mix((v ^ a) * mul) * mul;
}

static uint64_t up_to_16(const unsigned char *s, size_t n) {
  uint64_t mul = K2 + n * 2;
  if (n >= 8) {
    uint64_t a = load64(s) + K2, b = load64(s + n - 8);
    return mix16(rotate(b, 37) * mul + a, (rotate(a, 25) + b) * mul, mul);
  }
  if (n >= 4) return mix16(n + (load32(s) << 3), load32(s + n - 4), mul);
  if (!n) return K2;
  uint64_t y = s[0] + ((uint64_t)s[n >> 1] << 8), z = n + ((uint64_t)s[n - 1] << 2);
  return shift_mix(y * K2 ^ z * K0) * K2;
}

static uint64_t up_to_32(const unsigned char *s, size_t n) {
  uint64_t mul = K2 + n * 2, a = load64(s) * K1, b = load64(s + 8);
  uint64_t c = load64(s + n - 8) * mul, d = load64(s + n - 16) * K2;
  return mix16(rotate(a + b, 43) + rotate(c, 30) + d, a + rotate(b + K2, 18) + c, mul);
}

static uint64_t up_to_64(const unsigned char *s, size_t n) {
  uint64_t mul = K2 + n * 2, a = load64(s) * K2, b = load64(s + 8);
  uint64_t c = load64(s + n - 8) * mul, d = load64(s + n - 16) * K2;
  uint64_t y = rotate(a + b, 43) + rotate(c, 30) + d, z = mix16(y, a + rotate(b + K2, 18) + c, mul);
  uint64_t e = load64(s + 16) * mul, f = load64(s + 24);
  uint64_t g = (y + load64(s + n - 32)) * mul, h = (z + load64(s + n - 24)) * mul;
  return mix16(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, mul);
}

static pair weak32(const unsigned char *s, uint64_t a, uint64_t b) {
  uint64_t z = load64(s + 24), c;
  a += load64(s);
  b = rotate(b + a + z, 21);
  c = a;
  a += load64(s + 8) + load64(s + 16);
  b += rotate(a, 44);
  return (pair){a + z, b + c};
}

uint64_t td_fingerprint64(const void *data, size_t size) {
  const unsigned char *s = data;
  if (size <= 16) return up_to_16(s, size);
  if (size <= 32) return up_to_32(s, size);
  if (size <= 64) return up_to_64(s, size);
  uint64_t x = 81 * K2 + load64(s), y = 81 * K1 + 113, z = shift_mix(y * K2 + 113) * K2, swap;
  pair v = {0, 0}, w = {0, 0};
  const unsigned char *end = s + (size - 1) / 64 * 64, *last = end + ((size - 1) & 63) - 63;
  for (; s != end; s += 64) {
    x = rotate(x + y + v.a + load64(s + 8), 37) * K1;
    y = rotate(y + v.b + load64(s + 48), 42) * K1;
    x ^= w.b;
    y += v.a + load64(s + 40);
    z = rotate(z + w.a, 33) * K1;
    v = weak32(s, v.b * K1, x + w.a);
    w = weak32(s + 32, z + w.b, y + load64(s + 16));
    swap = z, z = x, x = swap;
  }
  uint64_t mul = K1 + ((z & 0xff) << 1);
  s = last; /* the last 64 bytes, which may overlap those before */
  w.a += (size - 1) & 63;
  v.a += w.a;
  w.a += v.a;
  x = rotate(x + y + v.a + load64(s + 8), 37) * mul;
  y = rotate(y + v.b + load64(s + 48), 42) * mul;
  x ^= w.b * 9;
  y += v.a * 9 + load64(s + 40);
  z = rotate(z + w.a, 33) * mul;
  v = weak32(s, v.b * mul, x + w.a);
  w = weak32(s + 32, z + w.b, y + load64(s + 16));
  swap = z, z = x, x = swap;
  return mix16(mix16(v.a, w.a, mul) + shift_mix(y) * K0 + z, mix16(v.b, w.b, mul) + x, mul);
}
