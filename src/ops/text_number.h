/* Numbers from text, as TensorFlow reads them: StringToNumber, tables from files, CSV. */
#ifndef TD_OPS_TEXT_NUMBER_H_
#define TD_OPS_TEXT_NUMBER_H_

#include "base/str.h"
#include "tensor/dtype.h"

/* Reads all of `s` (blanks around it do not count) as a number of `dtype` (float, double, int32, int64, uint32, uint64)
 * into *out. False when it is none or does not fit; a floating one that is too large is infinite. */
bool td_text_number(td_str s, td_dtype dtype, void *out);

#endif /* TD_OPS_TEXT_NUMBER_H_ */
