/* Loops that are walked give what the same loops give when they are not: a recorded step runs by the usual engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/program_internal.h"
#include "runtime/step_stats.h"
#include "runtime/testing/graphs.h"
#include "runtime/walk.h"

enum { VARIABLES = 3, INVARIANTS = 2, ROUNDS = 400 };

static test_env plain, pooled;

static int set_up(void **state) {
  test_env_init(&plain, 0);
  test_env_init(&pooled, 2);
  return 0;
}

static int tear_down(void **state) {
  test_env_deinit(&plain);
  test_env_deinit(&pooled);
  return 0;
}

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* ---- random loops ---- */

typedef struct loop_text {
  td_strbuf b;
  uint32_t seed;
  char values[64][16], controls[64][16]; /* live within the body; their nodes */
  int count;
} loop_text;

static const char *any(loop_text *t) { return t->values[next_random(&t->seed) % (uint32_t)t->count]; }

static const char *any_node(loop_text *t) { return t->controls[next_random(&t->seed) % (uint32_t)t->count]; }

static void add_value(loop_text *t, const char *name) {
  snprintf(t->controls[t->count], sizeof t->controls[0], "%.*s", (int)strcspn(name, ":"), name);
  snprintf(t->values[t->count++], sizeof t->values[0], "%s", name);
}

/* What a loop's body is made of: '#' is a node's number, '$' any value of the body so far, '@' any node of it. Each
 * adds the value v#. A condition within the body, on two of its values, leaves sw#:0 or sw#:1 alive. */
#define SWITCH "l# = TestLess($, $)\nsw# = Switch($, l#) T:int32\n"
static const char *const parts[] = {
    "v# = TestAdd($, $)\n",
    "v# = TestAddInPlace($, $)\n",
    "v# = TestAddInPlace($, $)\n", /* more often than others */
    "v# = Identity($, ^@) T:int32\n",
    "a# = Identity($) T:int32\nb# = Identity(a#) T:int32\nv# = TestPass(b#)\n",
    "v# = Const(^@) value:# dtype:int32\n",
    "v# = TestSum($, $, $) N:3\n",
    "n# = NoOp(^@, ^@)\nv# = Identity($, ^n#) T:int32\n",
    /* the branches compute */
    SWITCH
    "c# = Const(^sw#) value:2 dtype:int32\nf# = TestAddInPlace(sw#, c#)\n"
    "t# = Identity(sw#:1, ^@) T:int32\nm# = Merge(f#, t#) T:int32 N:2\nv# = TestAdd(m#, m#:1)\n",
    /* they are constants that nothing but control edges makes dead */
    SWITCH
    "pf# = Identity(sw#) T:int32\npt# = Identity(sw#:1) T:int32\n"
    "cf# = Const(^pf#) value:3 dtype:int32\nct# = Const(^pt#) value:4 dtype:int32\n"
    "cc# = Const(^ct#) value:5 dtype:int32\nat# = TestAdd(ct#, cc#)\nv# = Merge(cf#, at#) T:int32 N:2\n",
    /* a control trigger behind a dead branch */
    SWITCH
    "q# = NoOp(^sw#)\nd# = Identity(sw#) T:int32\nct# = ControlTrigger(^d#, ^q#)\n"
    "v# = Identity($, ^ct#) T:int32\n",
    /* now and then something costly */
    SWITCH
    "w# = TestWide(sw#)\nk# = TestSlow(w#) us:1\nt# = Identity(sw#:1) T:int32\n"
    "v# = Merge(t#, k#) T:int32 N:2\n",
    /* both inputs of a Merge live */
    "y# = Const(^@) value:1 dtype:int32\nz# = Const(^@) value:1 dtype:int32\nv# = Merge(y#, z#) T:int32 N:2\n",
};

static void add_part(loop_text *t, const char *part, int number) {
  for (const char *c = part; *c; c++) {
    if (*c == '#')
      td_strbuf_printf(&t->b, "%d", number);
    else if (*c == '$')
      td_strbuf_puts(&t->b, any(t));
    else if (*c == '@')
      td_strbuf_puts(&t->b, any_node(t));
    else
      td_strbuf_printf(&t->b, "%c", *c);
  }
}

static void body_node(loop_text *t, int i) {
  char name[16];
  snprintf(name, sizeof name, "v%d", i);
  add_part(t, parts[next_random(&t->seed) % TD_COUNT(parts)], i);
  add_value(t, name);
}

/* `ending`: some NextIterations may be dead while others are not, or a kernel fails. */
static void make_loop(loop_text *t, uint32_t seed, bool ending) {
  *t = (loop_text){.seed = seed};
  td_strbuf *b = &t->b;
  unsigned parallel = 1 + next_random(&t->seed) % 4, limit = next_random(&t->seed) % 12;
  td_strbuf_printf(b, "zero = Const() value:0 dtype:int32\nlimit = Const() value:%u dtype:int32\n", limit);
#define IN_LOOP "T:int32 frame_name:loop parallel_iterations:%u"
  td_strbuf_printf(b, "e_i = Enter(zero) " IN_LOOP "\ne_l = Enter(limit) " IN_LOOP " is_constant:true\n", parallel,
                   parallel);
  td_strbuf_printf(b, "m_i = Merge(e_i, n_i) T:int32 N:2\nless = TestLess(m_i, e_l)\ncond = LoopCond(less)\n");
  td_strbuf_printf(b, "s_i = Switch(m_i, cond) T:int32\ni = Identity(s_i:1) T:int32\nx_i = Exit(s_i) T:int32\n");
  td_strbuf_printf(b, "one = Const(^i) value:1 dtype:int32\nadd = TestAddInPlace(i, one)\n");
  td_strbuf_printf(b, "n_i = NextIteration(add) T:int32\nr_i = _Retval(x_i) T:int32 index:0\n");
  add_value(t, "i");
  for (int k = 0; k < INVARIANTS; k++) {
    char name[16];
    td_strbuf_printf(b, "in%d = Const() value:%d dtype:int32\ninv%d = Enter(in%d) " IN_LOOP " is_constant:true\n", k,
                     k * 5, k, k, parallel);
    /* as clients do: what reads an invariant within a body comes after the condition */
    td_strbuf_printf(b, "si%d = Switch(inv%d, cond) T:int32\n", k, k);
    snprintf(name, sizeof name, k % 2 ? "inv%d" : "si%d:1", k);
    if (!(k % 2)) add_value(t, name);
    td_strbuf_printf(b, "iv%d = TestAdd(inv%d, %s)\n", k, k, "i");
    snprintf(name, sizeof name, "iv%d", k);
    add_value(t, name);
  }
  for (int k = 0; k < VARIABLES; k++) {
    char name[16];
    td_strbuf_printf(b, "in_%d = Const() value:%d dtype:int32\ne_%d = Enter(in_%d) " IN_LOOP "\n", k, k, k, k,
                     parallel);
    td_strbuf_printf(b, "m_%d = Merge(e_%d, n_%d) T:int32 N:2\ns_%d = Switch(m_%d, cond) T:int32\n", k, k, k, k, k);
    td_strbuf_printf(b, "x_%d = Exit(s_%d) T:int32\nr_%d = _Retval(x_%d) T:int32 index:%d\n", k, k, k, k, k + 1);
    snprintf(name, sizeof name, "s_%d:1", k);
    add_value(t, name);
  }
  int nodes = 1 + (int)(next_random(&t->seed) % 16);
  for (int i = 0; i < nodes; i++) body_node(t, i);
  if (ending) {
    add_part(t, SWITCH, 50);
    td_strbuf_puts(b, next_random(&t->seed) % 2 ? "v50 = Identity(sw50:1) T:int32\n" : "v50 = TestFail(sw50)\n");
    if (next_random(&t->seed) % 2) add_value(t, "v50");
  }
  for (int k = 0; k < VARIABLES; k++) td_strbuf_printf(b, "n_%d = NextIteration(%s) T:int32\n", k, any(t));
}

static void run(test_env *e, td_program *p, bool walks, test_result *r) {
  test_fresh_step(e);
  e->step.stats = walks ? NULL : td_step_stats_create();
  test_run(e, p, NULL, 0, r);
  if (e->step.stats) td_step_stats_destroy(e->step.stats);
  e->step.stats = NULL;
}

static void must_agree(const char *text, const test_result *a, const test_result *b) {
  if (td_status_code(a->status) != td_status_code(b->status))
    fail_msg("%s\n%s\n%s", text, td_status_message(a->status), td_status_message(b->status));
  for (int i = 0; i < a->count && !a->status; i++) {
    int32_t x = *TD_DATA(a->values[i], int32_t), y = *TD_DATA(b->values[i], int32_t);
    if (x != y) fail_msg("%s\nresult %d: %d, walked %d", text, i, x, y);
  }
}

static void random_loops(void **state) {
  int walked = 0, failed = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    loop_text t;
    make_loop(&t, round * 7919 + 5, round % 4 == 3);
    test_env *e = round % 2 ? &pooled : &plain;
    td_program *p = test_program(e, t.b.data);
    if (p->frames[1].walk) walked++;
    test_result usual, r;
    run(e, p, false, &usual);
    if (usual.status) failed++;
    for (int i = 0; i < 2; i++) {
      run(e, p, true, &r);
      must_agree(t.b.data, &usual, &r);
      test_result_deinit(&r);
    }
    test_result_deinit(&usual);
    td_program_release(p);
    td_strbuf_deinit(&t.b);
  }
  assert_int_equal(walked, ROUNDS);
  assert_in_range(failed, 1, ROUNDS / 4);
}

/* ---- what is walked, and how ---- */

#define COUNTING(body)                                            \
  "zero = Const() value:0 dtype:int32\n"                          \
  "limit = Const() value:1000 dtype:int32\n"                      \
  "e = Enter(zero) T:int32 frame_name:loop\n"                     \
  "e_l = Enter(limit) T:int32 frame_name:loop is_constant:true\n" \
  "m = Merge(e, n) T:int32 N:2\n"                                 \
  "less = TestLess(m, e_l)\n"                                     \
  "cond = LoopCond(less)\n"                                       \
  "s = Switch(m, cond) T:int32\n"                                 \
  "i = Identity(s:1) T:int32\n"                                   \
  "one = Const(^i) value:1 dtype:int32\n"                         \
  "add = TestAddInPlace(i, one)\n" body                           \
  "n = NextIteration(add) T:int32\n"                              \
  "x = Exit(s) T:int32\n"                                         \
  "r = _Retval(x) T:int32 index:0\n"

static bool is_walked(const char *text) {
  td_program *p = test_program(&plain, text);
  bool yes = p->frames[1].walk;
  td_program_release(p);
  return yes;
}

static void which_loops(void **state) {
  assert_true(is_walked(COUNTING("")));
  assert_true(is_walked(COUNTING("other = TestSlow(add) us:0\n")));
  assert_false(is_walked(COUNTING("other = TestAsync(add)\n")));
  assert_false(is_walked(COUNTING("v = TestVariable(^add)\nw = TestAssign(v, add)\n")));
  assert_false(is_walked(COUNTING("inner = Enter(add) T:int32 frame_name:inner\nid = Identity(inner) T:int32\n")));
  /* an Enter that brings nothing in later iterations */
  assert_false(is_walked(COUNTING("once = Enter(zero) T:int32 frame_name:loop\nid = TestAdd(once, add)\n")));
}

/* What is fixed costs no node; what only passes on vanishes. */
static void plan_is_short(void **state) {
  td_program *p = test_program(&plain, COUNTING(""));
  const td_walk_plan *w = p->frames[1].walk;
  assert_int_equal(w->op_count, 6); /* Merge, Less, Switch, Identity, Add, Exit */
  assert_int_equal(w->next_count, 1);
  assert_int_equal(w->fixed_count, 2);
  td_program_release(p);
}

static void invariant_that_is_dead(void **state) {
  /* nothing that reads it ever runs: the loop's own values do */
  test_expect(&plain,
              COUNTING("p = Const() value:true dtype:bool\nd = Switch(zero, p) T:int32\n"
                       "e_d = Enter(d) T:int32 frame_name:loop is_constant:true\nu = TestAdd(e_d, i)\n"),
              1, (int32_t[]){1000});
}

/* Two endless loops of one run, and a third that ends: all get their turn. */
static void loops_take_turns(void **state) {
  static const char *const text =
      "t = Const() value:true dtype:bool\n"
      "e1 = Enter(t) T:bool frame_name:a\nm1 = Merge(e1, n1) T:bool N:2\nn1 = NextIteration(m1) T:bool\n"
      "e2 = Enter(t) T:bool frame_name:b\nm2 = Merge(e2, n2) T:bool N:2\ni2 = Identity(m2, ^m2) T:bool\n"
      "n2 = NextIteration(i2) T:bool\n" COUNTING("") "stop = TestFail(x) message:ended\n";
  test_expect_error(&plain, text, TD_OUT_OF_RANGE, "ended");
  test_expect_error(&pooled, text, TD_OUT_OF_RANGE, "ended");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(which_loops),      cmocka_unit_test(plan_is_short),
      cmocka_unit_test(random_loops),     cmocka_unit_test(invariant_that_is_dead),
      cmocka_unit_test(loops_take_turns),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
