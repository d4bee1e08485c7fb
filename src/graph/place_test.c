/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include "graph/place.h"

#include "base/mem.h"
#include "graph/testing.h"

static td_arena arena;

/* ps:0, ps:1, worker:0 with one CPU each; the master is worker:0. */
static td_place_options cluster(void) {
  td_graph_test_cluster ps = td_graph_test_devices(&arena, "ps", 2, 1),
                        worker = td_graph_test_devices(&arena, "worker", 1, 2);
  td_place_device *all = td_arena_array(&arena, td_place_device, 4);
  memcpy(all, worker.devices, 2 * sizeof *all);
  memcpy(all + 2, ps.devices, 2 * sizeof *all);
  return (td_place_options){
      .devices = all, .device_count = 4, .own_task_device = TD_STR("/job:worker/replica:0/task:0/device:CPU:0")};
}

#define PS0 "/job:ps/replica:0/task:0/device:CPU:0"
#define PS1 "/job:ps/replica:0/task:1/device:CPU:0"
#define W0  "/job:worker/replica:0/task:0/device:CPU:0"
#define W1  "/job:worker/replica:0/task:0/device:CPU:1"

static void assert_placed_with(const td_place_options *o, const char *graph, const char *expected) {
  td_graph *g = td_graph_test_graph(graph);
  td_status s = td_graph_place(g, o);
  if (s) fail_msg("%s", td_status_message(s));
  td_strbuf b = {0};
  for (size_t i = 0; i < g->node_count; i++)
    td_strbuf_printf(&b, "%.*s@%.*s\n", TD_STR_ARG(g->nodes[i]->def.name), TD_STR_ARG(g->nodes[i]->device));
  assert_string_equal(td_strbuf_cstr(&b), expected);
  td_strbuf_deinit(&b);
  td_graph_release(g);
}

static void assert_placed(const char *graph, const char *expected) {
  td_place_options o = cluster();
  assert_placed_with(&o, graph, expected);
}

static void assert_fails(bool soft, const char *graph, td_code code, const char *text) {
  td_place_options o = cluster();
  o.allow_soft_placement = soft;
  td_graph *g = td_graph_test_graph(graph);
  td_status s = td_graph_place(g, &o);
  assert_non_null(s);
  if (!strstr(td_status_message(s), text)) fail_msg("'%s' is not in '%s'", text, td_status_message(s));
  assert_int_equal(td_status_code(s), code);
  for (size_t i = 0; i < g->node_count; i++) assert_int_equal(g->nodes[i]->device.size, 0);
  td_status_free(s);
  td_graph_release(g);
}

static void test_first_device_by_name(void **state) {
  assert_placed("a = Placeholder() {dtype: float}\nb = Neg(a) {T: float}", "a@" PS0 "\nb@" PS0 "\n");
}

static void test_task_10_comes_before_task_2(void **state) {
  td_graph_test_cluster c = td_graph_test_devices(&arena, "ps", 12, 1);
  td_place_options o = {.devices = c.devices + 2, .device_count = 10};
  assert_placed_with(&o, "a = NoOp()", "a@/job:ps/replica:0/task:10/device:CPU:0\n");
}

static void test_requests(void **state) {
  assert_placed(
      "a = NoOp() @/job:worker\nb = NoOp() @/job:ps/task:1\nc = NoOp() @/cpu:0\nd = NoOp() @/device:CPU:1\n"
      "e = NoOp() @/job:worker/replica:0/task:0/cpu:1\nf = NoOp() @/job:worker/device:CPU:*",
      "a@" W0 "\nb@" PS1 "\nc@" PS0 "\nd@" W1 "\ne@" W1 "\nf@" W0 "\n");
}

static void test_generators_follow_their_consumers(void **state) {
  assert_placed("c = Const() {dtype: float; value: empty}\nn = Neg(c) @/job:worker {T: float}", "c@" W0 "\nn@" W0 "\n");
  assert_placed(
      "c = Const() {dtype: float; value: empty}\nn = Neg(c) @/job:worker {T: float}\nm = Neg(c) @/job:ps {T: float}",
      "c@" PS0 "\nn@" W0 "\nm@" PS0 "\n");
  assert_placed("c = Const() @/job:ps/task:1 {dtype: float; value: empty}\nn = Neg(c) @/job:worker {T: float}",
                "c@" PS1 "\nn@" W0 "\n");
}

static void test_metadata_follows_its_input(void **state) {
  assert_placed(
      "a = Placeholder() @/job:worker {dtype: float}\nn = Neg(a) @/job:ps/task:1 {T: float}\n"
      "s = Shape(n) {T: float}\nt = Neg(s) {T: int32}",
      "a@" W0 "\nn@" PS1 "\ns@" PS1 "\nt@" PS0 "\n");
}

static void test_ref_edges_colocate(void **state) {
  assert_placed(
      "v = VariableV2() @/job:ps/task:1 {dtype: float; shape: unknown}\nx = Placeholder() {dtype: float}\n"
      "i = Assign(v, x) {T: float}\nr = Identity(v) {T: float}\nu = AssignAdd(i, r) {T: float}",
      "v@" PS1 "\nx@" PS1 "\ni@" PS1 "\nr@" PS0 "\nu@" PS1 "\n");
}

static void test_resource_edges_colocate(void **state) {
  assert_placed(
      "h = VarHandleOp() @/job:ps/task:1 {dtype: float; shape: unknown}\n"
      "r = ReadVariableOp(h) {dtype: float}\nn = Neg(r) {T: float}\nc = PartitionedCall(h) {Tin: [resource]; Tout: "
      "[float]; f: func f}\nk = IdentityN(h) {T: [resource]}",
      "h@" PS1 "\nr@" PS1 "\nn@" PS0 "\nc@" PS1 "\nk@" PS0 "\n");
  /* the owner's device wins over the user's, whatever soft placement says */
  assert_placed(
      "h = VarHandleOp() @/job:ps/task:1 {dtype: float; shape: unknown}\n"
      "r = ReadVariableOp(h) @/job:ps/task:0 {dtype: float}",
      "h@" PS1 "\nr@" PS1 "\n");
}

static void test_class_colocates(void **state) {
  assert_placed("a = NoOp() @/job:worker\nb = NoOp() {_class: ['loc:@a']}\nc = NoOp() {_class: ['loc:@b', 'loc:@a']}",
                "a@" W0 "\nb@" W0 "\nc@" W0 "\n");
  assert_placed("b = NoOp() {_class: ['loc:@a']}\na = NoOp() @/job:worker", "b@" W0 "\na@" W0 "\n");
  /* a name that is no node's is a group like any other, as with TensorFlow's servers */
  assert_placed("a = NoOp() @/job:worker {_class: ['loc:@x']}\nb = NoOp() {_class: ['loc:@x']}",
                "a@" W0 "\nb@" W0 "\n");
}

static void test_conflicts(void **state) {
  const char *jobs = "a = NoOp() @/job:worker\nb = NoOp() @/job:ps {_class: ['loc:@a']}";
  const char *ids = "a = NoOp() @/job:worker/device:CPU:1\nb = NoOp() @/device:CPU:0 {_class: ['loc:@a']}";
  assert_fails(false, jobs, TD_INVALID_ARGUMENT,
               "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with "
               "incompatible jobs: ");
  assert_fails(false, ids, TD_INVALID_ARGUMENT, "Cannot merge devices with incompatible ids: ");
  td_place_options o = cluster();
  o.allow_soft_placement = true;
  assert_placed_with(&o, ids, "a@" W0 "\nb@" W0 "\n");
  assert_placed_with(&o, jobs, "a@" W0 "\nb@" PS0 "\n"); /* an impossible request to colocate is left out */
}

static void test_soft_placement(void **state) {
  td_place_options o = cluster();
  o.allow_soft_placement = true;
  assert_placed_with(&o, "a = NoOp() @/job:worker/device:GPU:0\nb = NoOp() @/device:CPU:9\nc = NoOp() @/gpu:3",
                     "a@" W0 "\nb@" PS0 "\nc@" PS0 "\n");
  assert_fails(true, "a = NoOp() @/job:chief", TD_INVALID_ARGUMENT, "was explicitly assigned to /job:chief");
}

static void test_no_such_device(void **state) {
  assert_fails(
      false, "a = NoOp() @/job:ps/task:7", TD_INVALID_ARGUMENT,
      "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:ps/task:7 but available "
      "devices are [ " PS0 ", " PS1 ", " W0 ", " W1
      " ]. Make sure the device specification refers to a valid device.\n\t [[a]]");
  assert_fails(false, "a = NoOp() @/device:GPU:0", TD_INVALID_ARGUMENT,
               " The requested device appears to be a GPU, but CUDA is not enabled.");
  assert_fails(
      false, "i = NoOp() {_class: ['loc:@v']}\nv = NoOp() @/job:ps/task:9", TD_INVALID_ARGUMENT,
      "Cannot assign a device for operation i: Could not satisfy explicit device "
      "specification '' because the node {{colocation_node i}} was colocated with a group of nodes that required "
      "incompatible device '/job:ps/task:9'. All available devices [");
  assert_fails(false, "a = NoOp() @job:ps", TD_INVALID_ARGUMENT, "Malformed device specification 'job:ps' in node: ");
}

static void test_kernels(void **state) {
  assert_fails(false, "p = Placeholder() {dtype: float}\na = NoCpu(p) {T: float}", TD_INVALID_ARGUMENT,
               "No OpKernel was registered to support Op 'NoCpu' used by {{node a}}with these attrs: [");
  assert_fails(false, "p = Placeholder() {dtype: int32}\na = FloatOnly(p) {T: int32}", TD_INVALID_ARGUMENT,
               "No OpKernel was registered to support Op 'FloatOnly'");
  assert_fails(false, "p = Placeholder() {dtype: float}\na = NoCpu(p) @/job:worker/task:0 {T: float}",
               TD_INVALID_ARGUMENT, "No OpKernel was registered");
  /* another task may have what is missing here */
  assert_placed("p = Placeholder() {dtype: float}\na = NoCpu(p) @/job:ps/task:1 {T: float}", "p@" PS1 "\na@" PS1 "\n");
}

static void test_other_device_types(void **state) {
  td_place_options o = cluster();
  td_place_device devices[6];
  memcpy(devices, o.devices, 4 * sizeof *devices);
  devices[4] = (td_place_device){.name = TD_STR("/job:a/replica:0/task:0/device:XLA_CPU:0"), .type = TD_STR("XLA_CPU")};
  devices[5] = (td_place_device){.name = TD_STR("/job:a/replica:0/task:0/device:GPU:0"), .type = TD_STR("GPU")};
  assert_true(td_device_name_parse(devices[4].name, &devices[4].parsed));
  assert_true(td_device_name_parse(devices[5].name, &devices[5].parsed));
  o.devices = devices;
  o.device_count = 6;
  assert_placed_with(&o, "a = NoOp()\nb = NoOp() @/device:GPU:0",
                     "a@" PS0 "\nb@/job:a/replica:0/task:0/device:GPU:0\n");
}

static void test_resource_owners_win(void **state) {
#define TWO(kind)                                       \
  "v = " kind                                           \
  "() @/job:ps/task:0 {dtype: float; shape: unknown}\n" \
  "w = " kind "() @/job:ps/task:1 {dtype: float; shape: unknown}\n"
  assert_fails(
      false, TWO("VariableV2") "a = RefMerge(v, w) {T: float; N: 2}", TD_INVALID_ARGUMENT,
      "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible "
      "resource devices: /job:ps/task:1 vs /job:ps/task:0. The edge src node is w , and the dst node is a");
  /* what the user of a resource asks for is narrowed where that is possible, and dropped where it is not */
  assert_placed(
      "v = VariableV2() @/job:worker {dtype: float; shape: unknown}\nx = Placeholder() {dtype: float}\n"
      "a = Assign(v, x) @/device:CPU:1 {T: float}",
      "v@" W1 "\nx@" W1 "\na@" W1 "\n");
  assert_placed(
      "v = VariableV2() @/job:worker/device:CPU:1 {dtype: float; shape: unknown}\n"
      "x = Placeholder() {dtype: float}\na = Assign(v, x) @/device:CPU:0 {T: float}",
      "v@" W1 "\nx@" W1 "\na@" W1 "\n");
}

static void test_no_common_device_type(void **state) {
  td_place_options o = cluster();
  td_place_device devices[5];
  memcpy(devices, o.devices, 4 * sizeof *devices);
  devices[4] = (td_place_device){.name = TD_STR("/job:a/replica:0/task:0/device:GPU:0"), .type = TD_STR("GPU")};
  assert_true(td_device_name_parse(devices[4].name, &devices[4].parsed));
  o.devices = devices;
  o.device_count = 5;
  td_graph *g = td_graph_test_graph(
      "p = Placeholder() {dtype: float}\na = NoCpu(p) @/job:a/replica:0/task:0/device:GPU:0 {T: float}\n"
      "b = NoOp() {_class: ['loc:@a']}");
  td_status s = td_graph_place(g, &o);
  assert_non_null(
      strstr(td_status_message(s),
             "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}} because no device type "
             "supports both of those nodes and the other nodes colocated with them.\nColocation Debug Info:"));
  td_status_free(s);
  td_graph_release(g);
}

static void test_long_colocation_chain(void **state) {
  td_strbuf text = {0}, expected = {0};
  td_strbuf_puts(&text, "n0 = VariableV2() {dtype: float; shape: unknown}\n");
  td_strbuf_puts(&expected, "n0@" W0 "\n");
  for (int i = 1; i < 3000; i++) {
    const char *device = i == 2999 ? "@/job:worker" : ""; /* the last one's request reaches the first */
    td_strbuf_printf(&text, "n%d = AssignAdd(n%d, n%d) %s {T: float}\n", i, i - 1, i * 7 % i, device);
    td_strbuf_printf(&expected, "n%d@" W0 "\n", i);
  }
  assert_placed(td_strbuf_cstr(&text), td_strbuf_cstr(&expected));
  td_strbuf_deinit(&text);
  td_strbuf_deinit(&expected);
}

static void test_assigned_nodes_stay(void **state) {
  td_place_options o = cluster();
  td_graph *g = td_graph_test_graph(
      "v = VariableV2() {dtype: float; shape: unknown}\nx = Placeholder() {dtype: float}\n"
      "i = Assign(v, x) {T: float}");
  g->nodes[0]->device = TD_STR(W1);
  assert_null(td_graph_place(g, &o));
  assert_true(td_str_is(td_graph_find(g, TD_STR("i"))->device, W1));
  for (size_t i = 0; i < g->node_count; i++) g->nodes[i]->device = TD_STR("");
  g->nodes[0]->device = TD_STR("/job:gone/replica:0/task:0/device:CPU:0");
  td_status s = td_graph_place(g, &o);
  assert_int_equal(td_status_code(s), TD_INTERNAL);
  td_status_free(s);
  td_graph_release(g);
}

static int reset(void **state) {
  td_arena_deinit(&arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_first_device_by_name),
      cmocka_unit_test(test_task_10_comes_before_task_2),
      cmocka_unit_test(test_requests),
      cmocka_unit_test(test_generators_follow_their_consumers),
      cmocka_unit_test(test_metadata_follows_its_input),
      cmocka_unit_test(test_ref_edges_colocate),
      cmocka_unit_test(test_resource_edges_colocate),
      cmocka_unit_test(test_class_colocates),
      cmocka_unit_test(test_conflicts),
      cmocka_unit_test(test_soft_placement),
      cmocka_unit_test(test_no_such_device),
      cmocka_unit_test(test_kernels),
      cmocka_unit_test(test_other_device_types),
      cmocka_unit_test(test_resource_owners_win),
      cmocka_unit_test(test_no_common_device_type),
      cmocka_unit_test(test_long_colocation_chain),
      cmocka_unit_test(test_assigned_nodes_stay),
  };
  return cmocka_run_group_tests(tests, NULL, reset);
}
