/* Datasets that hand their input on: what tells TensorFlow's own machinery (options, tuning, thread pools, statistics)
 * has nothing to do here, so the input itself is the result. And those that say something about a dataset. */
#include "base/mem.h"
#include "ops/data/dataset.h"
#include "ops/families.h"

static td_status compute_same(td_kernel_ctx *ctx) {
  td_dataset *d;
  TD_TRY(td_in_dataset(ctx, 0, &d));
  td_out_forward(ctx, 0, 0);
  return TD_STATUS_OK;
}

static td_status compute_cardinality(td_kernel_ctx *ctx) {
  td_dataset *d;
  td_tensor *out;
  TD_TRY(td_in_dataset(ctx, 0, &d));
  TD_TRY(td_out_alloc_dims(ctx, 0, 0, NULL, &out));
  *TD_DATA(out, int64_t) = td_dataset_cardinality(d);
  return TD_STATUS_OK;
}

#define IN  "input_dataset: variant"
#define OUT "handle: variant"
#define PARALLELISM(name) \
  { name, IN "; max_intra_op_parallelism: int64", OUT, TD_DATASET_TYPES, 0 }
#define TAGGED(name) \
  { name, IN "; tag: string", OUT, TD_DATASET_TYPES, 0 }
#define PLAIN(name) \
  { name, IN, OUT, TD_DATASET_TYPES, 0 }
#define THREADS(name) \
  { name, IN "; num_threads: int64", OUT, TD_DATASET_TYPES, 0 }

static const td_op_spec ops[] = {
    TAGGED("BytesProducedStatsDataset"),
    {"DatasetCardinality", IN, "cardinality: int64", "cardinality_options: string = ''", 0},
    TAGGED("ExperimentalBytesProducedStatsDataset"),
    {"ExperimentalDatasetCardinality", IN, "cardinality: int64", NULL, 0},
    TAGGED("ExperimentalLatencyStatsDataset"),
    PARALLELISM("ExperimentalMaxIntraOpParallelismDataset"),
    PLAIN("ExperimentalNonSerializableDataset"),
    THREADS("ExperimentalPrivateThreadPoolDataset"),
    {"FinalizeDataset", IN, OUT, "has_captured_ref: bool = false; " TD_DATASET_TYPES, 0},
    TAGGED("LatencyStatsDataset"),
    PARALLELISM("MaxIntraOpParallelismDataset"),
    {"ModelDataset", IN, OUT, "algorithm: int = 0; cpu_budget: int = 0; ram_budget: int = 0; " TD_DATASET_TYPES, 0},
    PLAIN("NonSerializableDataset"),
    {"OptimizeDataset", IN "; optimizations: string", OUT, TD_DATASET_TYPES "; optimization_configs: list(string) = []",
     0},
    {"OptimizeDatasetV2",
     IN "; optimizations_enabled: string; optimizations_disabled: string; optimizations_default: string", OUT,
     TD_DATASET_TYPES "; optimization_configs: list(string) = []", 0},
    {"OptionsDataset", IN, OUT, "serialized_options: string; " TD_DATASET_TYPES TD_DATASET_META, 0},
    THREADS("PrivateThreadPoolDataset"),
    {"RewriteDataset", IN "; rewrite_name: string", OUT, TD_DATASET_TYPES, 0},
    {"UnwrapDatasetVariant", "input_handle: variant", "output_handle: variant", NULL, 0},
    {"WrapDatasetVariant", "input_handle: variant", "output_handle: variant", NULL, 0},
};

#define SAME(name) \
  { .op = name, .cost = TD_COST_CHEAP, .compute = compute_same }

static const td_kernel_def kernels[] = {
    SAME("BytesProducedStatsDataset"),
    {.op = "DatasetCardinality", .cost = TD_COST_CHEAP, .compute = compute_cardinality},
    SAME("ExperimentalBytesProducedStatsDataset"),
    {.op = "ExperimentalDatasetCardinality", .cost = TD_COST_CHEAP, .compute = compute_cardinality},
    SAME("ExperimentalLatencyStatsDataset"),
    SAME("ExperimentalMaxIntraOpParallelismDataset"),
    SAME("ExperimentalNonSerializableDataset"),
    SAME("ExperimentalPrivateThreadPoolDataset"),
    SAME("FinalizeDataset"),
    SAME("LatencyStatsDataset"),
    SAME("MaxIntraOpParallelismDataset"),
    SAME("ModelDataset"),
    SAME("NonSerializableDataset"),
    SAME("OptimizeDataset"),
    SAME("OptimizeDatasetV2"),
    SAME("OptionsDataset"),
    SAME("PrivateThreadPoolDataset"),
    SAME("RewriteDataset"),
    SAME("UnwrapDatasetVariant"),
    SAME("WrapDatasetVariant"),
};

TD_FAMILY(data_wrap, ops, kernels);
