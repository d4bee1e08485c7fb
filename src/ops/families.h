/* The list of op families: one line a file. */
#ifndef TD_OPS_FAMILIES_H_
#define TD_OPS_FAMILIES_H_

#include "framework/kernel.h"

/* X(name): src/ops/<name>.c defines `const td_op_family td_family_<name>`. Keep sorted. */
#define TD_FAMILIES(X) \
  X(accumulator_ops)   \
  X(addn)              \
  X(arg)               \
  X(assert_next)       \
  X(avg_pool)          \
  X(barrier)           \
  X(batch_norm)        \
  X(bias)              \
  X(binary)            \
  X(bincount)          \
  X(broadcast)         \
  X(bucketize)         \
  X(cast)              \
  X(collective)        \
  X(concat)            \
  X(const)             \
  X(control_flow)      \
  X(conv)              \
  X(count_up_to)       \
  X(csv)               \
  X(data_batch)        \
  X(data_cache)        \
  X(data_choose)       \
  X(data_consume)      \
  X(data_csv)          \
  X(data_files)        \
  X(data_generator)    \
  X(data_group)        \
  X(data_map)          \
  X(data_nested)       \
  X(data_prefetch)     \
  X(data_rebatch)      \
  X(data_select)       \
  X(data_shuffle)      \
  X(data_sources)      \
  X(data_window)       \
  X(data_wrap)         \
  X(dataset_graph)     \
  X(debug)             \
  X(depthwise)         \
  X(diag)              \
  X(encoded)           \
  X(example)           \
  X(example_json)      \
  X(files)             \
  X(function_args)     \
  X(functional)        \
  X(gather)            \
  X(iterator_ops)      \
  X(iterator_state)    \
  X(logging)           \
  X(lookup)            \
  X(lrn)               \
  X(map_defun)         \
  X(map_stage)         \
  X(matmul)            \
  X(max_pool)          \
  X(multi_device)      \
  X(mutex)             \
  X(one_shot)          \
  X(optional)          \
  X(pad)               \
  X(quantize)          \
  X(queue)             \
  X(random)            \
  X(random_samples)    \
  X(reader)            \
  X(reduction)         \
  X(ref_variable)      \
  X(remap_matrix)      \
  X(remapped)          \
  X(remote_call)       \
  X(resource_variable) \
  X(route)             \
  X(save_restore)      \
  X(scan)              \
  X(scatter)           \
  X(scatter_nd)        \
  X(segment)           \
  X(select)            \
  X(sendrecv)          \
  X(sequence)          \
  X(sequence_example)  \
  X(session_tensor)    \
  X(shape_ops)         \
  X(slice)             \
  X(softmax)           \
  X(space)             \
  X(sparse_cross)      \
  X(sparse_map)        \
  X(sparse_serialize)  \
  X(sparse_shape)      \
  X(stack)             \
  X(stage)             \
  X(stateful_random)   \
  X(string_basics)     \
  X(string_split)      \
  X(strings)           \
  X(summary)           \
  X(summary_writer)    \
  X(tensor_array)      \
  X(tensor_list)       \
  X(tensor_list_make)  \
  X(tensor_list_stack) \
  X(topk)              \
  X(training)          \
  X(training_sparse)   \
  X(transpose)         \
  X(unary)             \
  X(unique)            \
  X(variant_math)      \
  X(vocab_remapping)

#define TD_FAMILY_DECLARE(name) extern const td_op_family td_family_##name;
TD_FAMILIES(TD_FAMILY_DECLARE)
#undef TD_FAMILY_DECLARE

/* Registers every built-in family; once per process, later calls do nothing. Thread-safe. */
td_status td_ops_register(void) TD_MUST_USE;

/* For the end of each family's file. */
#define TD_FAMILY(family, op_table, kernel_table)                                          \
  const td_op_family td_family_##family = {.name = #family,                                \
                                           .ops = op_table,                                \
                                           .op_count = sizeof op_table / sizeof *op_table, \
                                           .kernels = kernel_table,                        \
                                           .kernel_count = sizeof kernel_table / sizeof *kernel_table}

#endif /* TD_OPS_FAMILIES_H_ */
