/* Elements as text, in the form of TensorFlow's Tensor::SummarizeValue. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "tensor/tensor.h"

/* The shortest of two precisions that reads back as the same number. */
static void put_float(td_strbuf *b, float f) {
  char text[32];
  if (isnan(f)) {
    td_strbuf_puts(b, signbit(f) ? "-nan" : "nan");
    return;
  }
  snprintf(text, sizeof text, "%.*g", FLT_DIG, (double)f);
  if (strtof(text, NULL) != f) snprintf(text, sizeof text, "%.*g", FLT_DIG + 3, (double)f);
  td_strbuf_puts(b, text);
}

static void put_double(td_strbuf *b, double d) {
  char text[32];
  if (isnan(d)) {
    td_strbuf_puts(b, signbit(d) ? "-nan" : "nan");
    return;
  }
  snprintf(text, sizeof text, "%.*g", DBL_DIG, d);
  if (strtod(text, NULL) != d) snprintf(text, sizeof text, "%.*g", DBL_DIG + 2, d);
  td_strbuf_puts(b, text);
}

static void put_escaped(td_strbuf *b, td_str s) {
  for (size_t i = 0; i < s.size; i++) {
    unsigned char c = (unsigned char)s.data[i];
    switch (c) {
      case '\n':
        td_strbuf_puts(b, "\\n");
        break;
      case '\r':
        td_strbuf_puts(b, "\\r");
        break;
      case '\t':
        td_strbuf_puts(b, "\\t");
        break;
      case '"':
        td_strbuf_puts(b, "\\\"");
        break;
      case '\'':
        td_strbuf_puts(b, "\\'");
        break;
      case '\\':
        td_strbuf_puts(b, "\\\\");
        break;
      default:
        if (c < 0x20 || c >= 0x7f) {
          td_strbuf_printf(b, "\\%03o", c);
        } else {
          td_strbuf_putc(b, (char)c);
        }
    }
  }
}

static void put_element(td_strbuf *b, const td_tensor *t, int64_t i) {
  switch (t->dtype) {
    case TD_FLOAT:
      put_float(b, TD_DATA(t, float)[i]);
      break;
    case TD_DOUBLE:
      put_double(b, TD_DATA(t, double)[i]);
      break;
    case TD_HALF:
      put_float(b, td_half_to_float(TD_DATA(t, td_half)[i]));
      break;
    case TD_BFLOAT16:
      put_float(b, td_bfloat16_to_float(TD_DATA(t, td_bfloat16)[i]));
      break;
    case TD_INT64:
      td_strbuf_printf(b, "%" PRId64, TD_DATA(t, int64_t)[i]);
      break;
    case TD_UINT64:
      td_strbuf_printf(b, "%" PRIu64, TD_DATA(t, uint64_t)[i]);
      break;
    case TD_INT32:
    case TD_QINT32:
      td_strbuf_printf(b, "%" PRId32, TD_DATA(t, int32_t)[i]);
      break;
    case TD_UINT32:
      td_strbuf_printf(b, "%" PRIu32, TD_DATA(t, uint32_t)[i]);
      break;
    case TD_INT16:
    case TD_QINT16:
      td_strbuf_printf(b, "%d", TD_DATA(t, int16_t)[i]);
      break;
    case TD_UINT16:
    case TD_QUINT16:
      td_strbuf_printf(b, "%d", TD_DATA(t, uint16_t)[i]);
      break;
    case TD_INT8:
    case TD_INT4:
    case TD_QINT8:
      td_strbuf_printf(b, "%d", TD_DATA(t, int8_t)[i]);
      break;
    case TD_UINT8:
    case TD_UINT4:
    case TD_BOOL:
    case TD_QUINT8:
      td_strbuf_printf(b, "%d", TD_DATA(t, uint8_t)[i]);
      break;
    case TD_STRING:
      put_escaped(b, td_string_view(&TD_DATA(t, td_string)[i]));
      break;
    default:
      td_strbuf_putc(b, '?');
  }
}

typedef struct summary {
  const td_tensor *t;
  int64_t next, limit;
  td_strbuf *out;
} summary;

/* One dimension, the rightmost printing elements. Recursion is bounded by the rank (254). */
static void put_dim(summary *s, int dim) {
  if (s->next >= s->limit) return;
  for (int64_t i = 0; i < s->t->dims[dim]; i++) {
    if (s->next >= s->limit) {
      if (dim == s->t->rank - 1 && dim) td_strbuf_puts(s->out, "...");
      return;
    }
    if (dim == s->t->rank - 1) {
      if (i) td_strbuf_putc(s->out, ' ');
      put_element(s->out, s->t, s->next++);
    } else {
      td_strbuf_putc(s->out, '[');
      put_dim(s, dim + 1);
      td_strbuf_putc(s->out, ']');
    }
  }
}

char *td_tensor_summarize(const td_tensor *t, int64_t max) {
  td_strbuf out = {0};
  int64_t limit = max < 0 ? t->count : TD_MIN(max, t->count);
  if (!t->rank || td_dtype_in(t->dtype, TD_SET_COMPLEX | TD_SET(TD_RESOURCE) | TD_SET(TD_VARIANT))) {
    for (int64_t i = 0; i < limit; i++) {
      if (i) td_strbuf_putc(&out, ' ');
      put_element(&out, t, i);
    }
  } else {
    put_dim(&(summary){t, 0, limit, &out}, 0);
  }
  if (limit < t->count) td_strbuf_puts(&out, "...");
  return td_strbuf_take(&out);
}
