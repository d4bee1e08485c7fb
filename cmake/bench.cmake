# Programs that measure one room alone (bench/README.md). Their figures are read by bench/run.py.
function(td_bench name)
  cmake_parse_arguments(ARG "" "" "LINK;EXTRA" ${ARGN})
  add_executable(${name} bench/${name}.c bench/figure.c ${ARG_EXTRA})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} td_base)
endfunction()

td_bench(rpc_echo LINK td_rpc)
td_bench(executor_bench LINK td_runtime cmocka EXTRA src/runtime/testing/graphs.c src/ops/const.c src/ops/control_flow.c
  src/ops/function_args.c src/ops/functional.c src/ops/sendrecv.c)
td_bench(rendezvous_bench LINK td_runtime)
td_bench(codec_bench LINK td_tensor)
td_bench(crc_bench LINK td_checkpoint)
td_bench(philox_bench LINK td_ops)
if(TARGET tensord_heavy)
  td_bench(primitive_bench LINK ${DNNL_LIBRARY} ${GOMP_LIBRARY} Threads::Threads)
  target_include_directories(primitive_bench PRIVATE ${DNNL_INCLUDE})
endif()
