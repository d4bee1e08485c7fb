# Programs: src/tools/NAME_main.c is the program NAME. What they share and its tests are the room's.
td_room(tools LINK td_cluster)
foreach(program tensord tensorctl)
  add_executable(${program} src/tools/${program}_main.c)
  target_link_libraries(${program} PRIVATE td_tools)
  # A daemon that has only what it uses starts fast and stays small.
  target_link_options(${program} PRIVATE -Wl,--as-needed -Wl,--gc-sections)
endforeach()
if(TARGET tensord_heavy)
  add_dependencies(tensord tensord_heavy)
endif()
install(TARGETS tensord tensorctl RUNTIME DESTINATION bin)
if(TARGET tensord_heavy)
  install(TARGETS tensord_heavy LIBRARY DESTINATION lib/tensord)
endif()

# ---- bench: programs that measure one room alone -----------------------------------------------------------------
add_executable(rpc_echo bench/rpc_echo.c)
target_link_libraries(rpc_echo PRIVATE td_rpc)
add_executable(executor_bench bench/executor_bench.c src/runtime/testing/graphs.c src/ops/const.c src/ops/control_flow.c
  src/ops/function_args.c src/ops/functional.c src/ops/sendrecv.c)
target_link_libraries(executor_bench PRIVATE td_runtime cmocka)
# ---- end of bench ---------------------------------------------------------------------------------------------
