/* Devices in messages. */
#ifndef TD_CLUSTER_DEVICES_H_
#define TD_CLUSTER_DEVICES_H_

#include "base/arena.h"
#include "framework/device.h"
#include "proto/worker.pb-c.h"

#define TD_DEVICE_DESC "tensord " /* how a device's description begins; tells a tensord peer */

/* Fills a GetStatusResponse; everything lies in `arena`. */
void td_devices_to_proto(td_device *const *devices, int count, td_arena *arena, Pb__GetStatusResponse *out);

#endif /* TD_CLUSTER_DEVICES_H_ */
