/* Inside the plug-in. */
#ifndef TD_OPS_HEAVY_HEAVY_H_
#define TD_OPS_HEAVY_HEAVY_H_

#include "ops/heavy.h"

/* Before any call into oneDNN: this thread works alone. */
void td_heavy_enter(void);

const td_heavy_ops *td_heavy_table(void);

bool td_heavy_conv_forward(const td_heavy_conv *p, const float *input, const float *filter, float *output);
bool td_heavy_conv_backward_input(const td_heavy_conv *p, const float *grad, const float *filter, float *input_grad);
bool td_heavy_conv_backward_filter(const td_heavy_conv *p, const float *input, const float *grad, float *filter_grad);

#endif /* TD_OPS_HEAVY_HEAVY_H_ */
