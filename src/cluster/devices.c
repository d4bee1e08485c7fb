#include "cluster/devices.h"

void td_devices_to_proto(td_device *const *devices, int count, td_arena *arena, Pb__GetStatusResponse *out) {
  out->n_device_attributes = (size_t)count;
  out->device_attributes = td_arena_array(arena, Pb__DeviceAttributes *, (size_t)count);
  for (int i = 0; i < count; i++) {
    Pb__DeviceAttributes *d = out->device_attributes[i] = td_arena_new(arena, Pb__DeviceAttributes);
    pb__device_attributes__init(d);
    d->name = td_arena_strdup(arena, devices[i]->name);
    d->device_type = td_arena_strdup(arena, devices[i]->parsed.type);
    d->memory_limit = 268435456; /* what TensorFlow reports for a CPU */
    d->locality = td_arena_new(arena, Pb__DeviceLocality);
    pb__device_locality__init(d->locality);
    d->incarnation = devices[i]->incarnation;
    d->physical_device_desc = td_arena_strdup(arena, TD_DEVICE_DESC TD_VERSION);
  }
}
