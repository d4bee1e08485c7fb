# Operations: one file a family. Files of src/ops/loops/ hold inner loops: those named in `hot` are compiled once per
# instruction set (TD_ISA names the copy; src/ops/loops/choose.c picks one by CPUID), the others once.
set(hot_loops unary binary half cast reduce)
set(loops_extra src/ops/loops/choose.c src/ops/loops/cast_choose.c src/ops/loops/reduce_choose.c src/ops/loops/plain.c src/ops/loops/special.c)
set(loop_options -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
set_source_files_properties(src/ops/loops/plain.c PROPERTIES COMPILE_OPTIONS "-fno-math-errno;-ffp-contract=off")

function(td_isa_loops isa)
  set(sources)
  foreach(loop ${hot_loops})
    list(APPEND sources src/ops/loops/${loop}.c)
  endforeach()
  add_library(td_loops_${isa} OBJECT ${sources})
  target_link_libraries(td_loops_${isa} PRIVATE td_tensor)
  target_compile_definitions(td_loops_${isa} PRIVATE TD_ISA=${isa})
  target_compile_options(td_loops_${isa} PRIVATE ${loop_options} ${ARGN})
  set(loops_extra ${loops_extra} $<TARGET_OBJECTS:td_loops_${isa}> PARENT_SCOPE)
endfunction()

td_isa_loops(base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  td_isa_loops(avx2 -mavx2 -mfma -mf16c)
  td_isa_loops(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
  set_source_files_properties(src/ops/loops/choose.c src/ops/loops/cast_choose.c src/ops/loops/reduce_choose.c PROPERTIES COMPILE_DEFINITIONS TD_HAVE_ISA_X86)
endif()

# Plain numeric loops with copies of their own per instruction set, where they have any.
set_source_files_properties(src/ops/rows.c src/ops/training_rules.c src/ops/random_fill.c src/ops/epilogue.c src/base/philox.c PROPERTIES
  COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")

set_source_files_properties(src/ops/move.c src/ops/arg.c src/ops/route.c src/ops/select.c src/ops/sequence.c PROPERTIES COMPILE_OPTIONS -O3)

# Datasets and iterators: a room within the room.
file(GLOB data_sources CONFIGURE_DEPENDS src/ops/data/*.c)
set(data_tests ${data_sources})
list(FILTER data_sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
list(FILTER data_tests INCLUDE REGEX "_test\\.c$")

td_room(ops LINK td_framework td_checkpoint EXTRA ${loops_extra} ${data_sources})
td_room_tests(ops "${data_tests}" "")
target_link_libraries(td_ops PUBLIC pcre2-8 png jansson) # RegexFullMatch, ImageSummary, DecodeJSONExample

include(cmake/heavy.cmake)
