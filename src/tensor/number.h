/* Elements as numbers, whatever their type: for what looks at single elements. Loops over many are written per type.
 * The tensor is of a plain type of at most 16 bytes; `i` is in range. */
#ifndef TD_TENSOR_NUMBER_H_
#define TD_TENSOR_NUMBER_H_

#include "tensor/tensor.h"

/* An element of any integer, quantized or bool type; of others of at most eight bytes their bits. uint64 wraps. */
static inline int64_t td_tensor_integer_at(const td_tensor *t, int64_t i) {
  switch ((int)t->dtype) {
    case TD_INT8:
    case TD_INT4:
    case TD_QINT8:
      return TD_DATA(t, int8_t)[i];
    case TD_BOOL:
    case TD_UINT8:
    case TD_UINT4:
    case TD_QUINT8:
    case TD_FLOAT8_E5M2:
    case TD_FLOAT8_E4M3FN:
      return TD_DATA(t, uint8_t)[i];
    case TD_INT16:
    case TD_QINT16:
      return TD_DATA(t, int16_t)[i];
    case TD_UINT16:
    case TD_QUINT16:
    case TD_HALF:
    case TD_BFLOAT16:
      return TD_DATA(t, uint16_t)[i];
    case TD_INT32:
    case TD_QINT32:
    case TD_FLOAT:
      return TD_DATA(t, int32_t)[i];
    case TD_UINT32:
      return TD_DATA(t, uint32_t)[i];
    default:
      return TD_DATA(t, int64_t)[i];
  }
}

/* An element of any real type or bool, exact but for large 64-bit integers. */
static inline double td_tensor_real_at(const td_tensor *t, int64_t i) {
  switch ((int)t->dtype) {
    case TD_FLOAT:
      return TD_DATA(t, float)[i];
    case TD_DOUBLE:
      return TD_DATA(t, double)[i];
    case TD_HALF:
      return td_half_to_float(TD_DATA(t, td_half)[i]);
    case TD_BFLOAT16:
      return td_bfloat16_to_float(TD_DATA(t, td_bfloat16)[i]);
    case TD_UINT64:
      return (double)TD_DATA(t, uint64_t)[i];
    default:
      return (double)td_tensor_integer_at(t, i);
  }
}

/* The same, of complex types too. */
static inline td_complex128 td_tensor_complex_at(const td_tensor *t, int64_t i) {
  if (t->dtype == TD_COMPLEX64) return TD_DATA(t, td_complex64)[i];
  return t->dtype == TD_COMPLEX128 ? TD_DATA(t, td_complex128)[i] : td_tensor_real_at(t, i);
}

/* Sets an element of a floating or complex type, rounded to it. */
static inline void td_tensor_set_complex(td_tensor *t, int64_t i, double real, double imaginary) {
  switch ((int)t->dtype) {
    case TD_FLOAT:
      TD_DATA(t, float)[i] = (float)real;
      break;
    case TD_DOUBLE:
      TD_DATA(t, double)[i] = real;
      break;
    case TD_HALF:
      TD_DATA(t, td_half)[i] = td_half_from_float((float)real);
      break;
    case TD_BFLOAT16:
      TD_DATA(t, td_bfloat16)[i] = td_bfloat16_from_float((float)real);
      break;
    case TD_COMPLEX64:
      TD_DATA(t, float)[2 * i] = (float)real;
      TD_DATA(t, float)[2 * i + 1] = (float)imaginary;
      break;
    case TD_COMPLEX128:
      TD_DATA(t, double)[2 * i] = real;
      TD_DATA(t, double)[2 * i + 1] = imaginary;
      break;
    default:
      break;
  }
}

#endif /* TD_TENSOR_NUMBER_H_ */
