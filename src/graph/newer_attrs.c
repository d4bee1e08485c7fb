/* Attributes that ops of TensorFlow 1.15 were given later: a server of an older version refuses a node with them.
 * Clients of newer versions write every attribute, so that what has its default's meaning is left out towards peers. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/graph.h"
#include "proto/message.h"

/* By op, in order of bytes: what a server of TensorFlow 1.15 does not know (spec: ops.tsv). */
static const struct row {
  const char *op, *attrs;
} rows[] = {
    {"ApplyFtrl", "multiply_linear_by_lr"},
    {"ApplyFtrlV2", "multiply_linear_by_lr"},
    {"AssignVariableOp", "validate_shape"},
    {"AutoShardDataset", "auto_shard_policy num_replicas"},
    {"BatchDataset", "metadata"},
    {"BatchDatasetV2", "metadata"},
    {"BatchFunction",
     "low_priority_max_batch_size low_priority_batch_timeout_micros low_priority_allowed_batch_sizes "
     "low_priority_max_enqueued_batches mixed_priority_policy batch_padding_policy enable_large_batch_splitting"},
    {"BatchMatMul", "grad_x grad_y"},
    {"BatchMatMulV2", "grad_x grad_y"},
    {"BoostedTreesUpdateEnsembleV2", "logits_dimension num_groups"},
    {"CTCGreedyDecoder", "blank_index"},
    {"CacheDataset", "metadata"},
    {"CacheDatasetV2", "metadata"},
    {"CollectiveBcastRecv", "timeout_seconds"},
    {"CollectiveBcastSend", "timeout_seconds"},
    {"CollectiveGather", "timeout_seconds"},
    {"CollectiveReduce", "timeout_seconds"},
    {"ConcatOffset", "shape_type"},
    {"ConcatenateDataset", "metadata"},
    {"DatasetCardinality", "cardinality_options"},
    {"DatasetToGraph", "allow_stateful strip_device_assignment"},
    {"DatasetToSingleElement", "metadata"},
    {"DepthwiseConv2dNative", "explicit_paddings"},
    {"DepthwiseConv2dNativeBackpropFilter", "explicit_paddings"},
    {"DepthwiseConv2dNativeBackpropInput", "explicit_paddings"},
    {"Dequantize", "narrow_range axis dtype"},
    {"DirectedInterleaveDataset", "stop_on_empty_dataset"},
    {"ExperimentalAutoShardDataset", "auto_shard_policy"},
    {"ExperimentalIgnoreErrorsDataset", "log_warning"},
    {"ExperimentalMapDataset", "force_synchronous"},
    {"FilterDataset", "metadata"},
    {"FixedLengthRecordDataset", "metadata"},
    {"FixedLengthRecordDatasetV2", "metadata"},
    {"FlatMapDataset", "metadata"},
    {"FusedBatchNorm", "exponential_avg_factor"},
    {"FusedBatchNormV2", "exponential_avg_factor"},
    {"FusedBatchNormV3", "exponential_avg_factor"},
    {"GatherNd", "bad_indices_policy"},
    {"GeneratorDataset", "metadata"},
    {"GroupByWindowDataset", "metadata"},
    {"IRFFT", "Treal Tcomplex"},
    {"IRFFT2D", "Treal Tcomplex"},
    {"IRFFT3D", "Treal Tcomplex"},
    {"IgnoreErrorsDataset", "log_warning"},
    {"InitializeTableFromTextFile", "offset"},
    {"InitializeTableFromTextFileV2", "offset"},
    {"InterleaveDataset", "metadata"},
    {"MapAndBatchDataset", "metadata"},
    {"MapDataset", "force_synchronous metadata"},
    {"MatMul", "grad_a grad_b"},
    {"MaxPool", "explicit_paddings"},
    {"MaxPoolGrad", "explicit_paddings"},
    {"MergeV2Checkpoints", "allow_missing_files"},
    {"ModelDataset", "ram_budget"},
    {"PaddedBatchDataset", "metadata"},
    {"PaddedBatchDatasetV2", "metadata"},
    {"ParallelInterleaveDataset", "metadata"},
    {"ParallelInterleaveDatasetV2", "metadata"},
    {"ParallelMapDataset", "metadata"},
    {"ParseExampleDataset", "ragged_keys ragged_value_types ragged_split_types"},
    {"PrefetchDataset", "buffer_size_min metadata"},
    {"QuantizeAndDequantizeV2", "axis"},
    {"QuantizeAndDequantizeV3", "axis"},
    {"QuantizeV2", "narrow_range axis ensure_minimum_range"},
    {"QuantizedDepthwiseConv2DWithBiasAndRelu", "padding_list"},
    {"QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize", "padding_list"},
    {"RFFT", "Treal Tcomplex"},
    {"RFFT2D", "Treal Tcomplex"},
    {"RFFT3D", "Treal Tcomplex"},
    {"RandomDataset", "metadata"},
    {"RangeDataset", "metadata replicate_on_split"},
    {"ReduceDataset", "metadata"},
    {"RepeatDataset", "metadata"},
    {"ResourceApplyFtrl", "multiply_linear_by_lr"},
    {"ResourceApplyFtrlV2", "multiply_linear_by_lr"},
    {"ResourceScatterNdAdd", "bad_indices_policy"},
    {"ResourceScatterNdSub", "bad_indices_policy"},
    {"ResourceScatterNdUpdate", "bad_indices_policy"},
    {"ResourceSparseApplyFtrl", "multiply_linear_by_lr"},
    {"ResourceSparseApplyFtrlV2", "multiply_linear_by_lr"},
    {"ScanDataset", "use_default_device metadata"},
    {"ScatterNd", "bad_indices_policy"},
    {"ScatterNdAdd", "bad_indices_policy"},
    {"ScatterNdNonAliasingAdd", "bad_indices_policy"},
    {"ScatterNdSub", "bad_indices_policy"},
    {"ScatterNdUpdate", "bad_indices_policy"},
    {"SerializeIterator", "external_state_policy"},
    {"ShardDataset", "metadata"},
    {"ShuffleAndRepeatDataset", "reshuffle_each_iteration metadata"},
    {"ShuffleDataset", "metadata"},
    {"ShuffleDatasetV2", "metadata"},
    {"SkipDataset", "metadata"},
    {"SlidingWindowDataset", "drop_remainder"},
    {"SnapshotDataset", "shuffle_on_read seed seed2 mode snapshot_name"},
    {"SparseApplyFtrl", "multiply_linear_by_lr"},
    {"SparseApplyFtrlV2", "multiply_linear_by_lr"},
    {"SparseSegmentMean", "Tsegmentids sparse_gradient"},
    {"SparseSegmentMeanGrad", "Tsegmentids"},
    {"SparseSegmentMeanWithNumSegments", "Tsegmentids sparse_gradient"},
    {"SparseSegmentSqrtN", "Tsegmentids sparse_gradient"},
    {"SparseSegmentSqrtNGrad", "Tsegmentids"},
    {"SparseSegmentSqrtNWithNumSegments", "Tsegmentids sparse_gradient"},
    {"SparseSegmentSum", "Tsegmentids sparse_gradient"},
    {"SparseSegmentSumWithNumSegments", "Tsegmentids sparse_gradient"},
    {"TFRecordDataset", "metadata"},
    {"TakeDataset", "metadata"},
    {"TakeWhileDataset", "metadata"},
    {"TensorDataset", "metadata"},
    {"TensorListGetItem", "Tshape"},
    {"TensorListSetItem", "resize_if_index_out_of_bounds"},
    {"TensorScatterAdd", "bad_indices_policy"},
    {"TensorScatterSub", "bad_indices_policy"},
    {"TensorScatterUpdate", "bad_indices_policy"},
    {"TensorSliceDataset", "is_files metadata replicate_on_split"},
    {"TextLineDataset", "metadata"},
    {"TopKV2", "Tk index_type"},
    {"TridiagonalSolve", "perturb_singular"},
    {"UnbatchDataset", "metadata"},
    {"UniqueDataset", "metadata"},
    {"VarHandleOp", "debug_name allowed_devices"},
    {"WindowDataset", "metadata"},
    {"ZipDataset", "metadata"},
};

/* They change no result: hints, names for people, and a check that 1.15 does not have. */
static const char *const hints[] = {"debug_name", "grad_a", "grad_b", "grad_x", "grad_y", "metadata", "validate_shape"};

static int by_op(const void *key, const void *row) {
  return td_str_cmp(*(const td_str *)key, td_str_of(((const struct row *)row)->op));
}

static bool has_word(const char *words, td_str word) {
  for (const char *at = words; *at;) {
    size_t size = strcspn(at, " ");
    if (td_str_eq(td_str_n(at, size), word)) return true;
    at += size + (at[size] != 0);
  }
  return false;
}

static bool is_hint(td_str name) {
  for (size_t i = 0; i < TD_COUNT(hints); i++)
    if (td_str_is(name, hints[i])) return true;
  return false;
}

static bool is_default(td_str op, td_str name, const Pb__AttrValue *value) {
  const td_op_def *def = td_op_find(op);
  const td_attr_def *attr = def ? td_op_attr(def, name) : NULL;
  if (!attr || !attr->default_value || !value) return false;
  if (attr->default_value == value) return true;
  td_strbuf a = {0}, b = {0};
  td_status s = td_message_encode(&value->base, &a);
  if (!s) s = td_message_encode(&attr->default_value->base, &b);
  bool same = !s && td_str_eq(td_strbuf_view(&a), td_strbuf_view(&b));
  td_status_free(s);
  td_strbuf_deinit(&a);
  td_strbuf_deinit(&b);
  return same;
}

static const struct row *find_row(const Pb__NodeDef *n) {
  td_str op = td_str_of(n->op);
  return bsearch(&op, rows, TD_COUNT(rows), sizeof *rows, by_op);
}

static bool is_dispensable(const Pb__NodeDef *n, const struct row *row, const Pb__AttrEntry *a) {
  td_str name = td_str_of(a->key);
  return has_word(row->attrs, name) && (is_hint(name) || is_default(td_str_of(n->op), name, a->value));
}

/* The node itself when nothing has to go, else a copy that shares all else with it. */
static Pb__NodeDef *trim(Pb__NodeDef *n, td_arena *arena) {
  const struct row *row = find_row(n);
  size_t kept = 0;
  if (!row) return n;
  Pb__AttrEntry **attrs = td_arena_array(arena, Pb__AttrEntry *, n->n_attr + 1);
  for (size_t i = 0; i < n->n_attr; i++)
    if (!is_dispensable(n, row, n->attr[i])) attrs[kept++] = n->attr[i];
  if (kept == n->n_attr) return n;
  Pb__NodeDef *copy = td_arena_new(arena, Pb__NodeDef);
  *copy = *n;
  copy->attr = attrs;
  copy->n_attr = kept;
  return copy;
}

static Pb__FunctionDef *trim_function(Pb__FunctionDef *f, td_arena *arena) {
  size_t i = 0;
  while (i < f->n_node_def && trim(f->node_def[i], arena) == f->node_def[i]) i++;
  if (i == f->n_node_def) return f;
  Pb__FunctionDef *copy = td_arena_new(arena, Pb__FunctionDef);
  *copy = *f;
  copy->node_def = td_arena_array(arena, Pb__NodeDef *, f->n_node_def);
  for (i = 0; i < f->n_node_def; i++) copy->node_def[i] = trim(f->node_def[i], arena);
  return copy;
}

void td_graph_def_trim(Pb__GraphDef *def, td_arena *arena) {
  for (size_t i = 0; i < def->n_node; i++) def->node[i] = trim(def->node[i], arena);
  for (size_t i = 0; def->library && i < def->library->n_function; i++)
    def->library->function[i] = trim_function(def->library->function[i], arena);
}
