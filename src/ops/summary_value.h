/* Values of a Summary message (tensorflow/core/framework/summary.proto), appended to its bytes. Thread-safe: no state.
 */
#ifndef TD_OPS_SUMMARY_VALUE_H_
#define TD_OPS_SUMMARY_VALUE_H_

#include "framework/kernel.h"

/* Fields of Summary and of Summary.Value. */
enum {
  TD_SUMMARY_VALUE = 1,
  TD_VALUE_TAG = 1,
  TD_VALUE_SIMPLE = 2,
  TD_VALUE_IMAGE = 4,
  TD_VALUE_HISTOGRAM = 5,
  TD_VALUE_AUDIO = 6,
  TD_VALUE_TENSOR = 8,
  TD_VALUE_METADATA = 9,
};

/* Element `i` of a real (or bool) tensor. */
void td_summary_put_scalar(td_strbuf *summary, td_str tag, const td_tensor *t, int64_t i);
/* All elements of a real (or bool) tensor. INVALID_ARGUMENT "Nan in summary histogram for: <what>" for what is not
 * finite. */
td_status td_summary_put_histogram(td_strbuf *summary, td_str tag, const td_tensor *t, td_str what) TD_MUST_USE;
/* A tensor of any type; `metadata` is a serialized SummaryMetadata (data NULL: none). */
td_status td_summary_put_tensor(td_strbuf *summary, td_str tag, const td_tensor *t, td_str metadata) TD_MUST_USE;
/* The first `most` images of [batch, height, width, 1, 3 or 4] as PNG files, values of type uint8, or float, half or
 * double, then scaled to 0..255; pixels that are not finite get `bad_color` (uint8 vector). */
td_status td_summary_put_images(td_strbuf *summary, td_str tag, const td_tensor *t, int64_t most,
                                const td_tensor *bad_color) TD_MUST_USE;
/* The first `most` clips of float [batch, frames] or [batch, frames, channels], -1 to 1, as WAV files of 16 bits. */
td_status td_summary_put_audio(td_strbuf *summary, td_str tag, const td_tensor *t, int64_t most,
                               float sample_rate) TD_MUST_USE;

/* A Value with this tag and one field; also for those above. */
void td_summary_put_value(td_strbuf *summary, td_str tag, uint32_t field, td_str message);

#endif /* TD_OPS_SUMMARY_VALUE_H_ */
