/* tensorctl: looks at clusters, starts local ones and measures them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tools/commands.h"

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} commands[] = {
    {"status", td_status_command},
    {"launch", td_launch_command},
    {"bench", td_bench_command},
};

static void print_help(FILE *out) {
  fputs(
      "Usage: tensorctl COMMAND [options]\n"
      "\n"
      "  status grpc://HOST:PORT   the tasks of a cluster: devices, versions, uptime, sessions, memory\n"
      "  launch ... -- COMMAND     runs a command beside a local cluster of its own\n"
      "  bench grpc://HOST:PORT    steps as fast as a cluster takes them: rate and latencies\n"
      "  --version                 prints the version\n"
      "\n"
      "tensorctl COMMAND --help says more.\n",
      out);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < TD_COUNT(commands); i++)
    if (!strcmp(name, commands[i].name)) return commands[i].run(argc - 1, argv + 1);
  if (!strcmp(name, "--version")) {
    printf("tensorctl %s\n", TD_VERSION);
    return TD_EXIT_OK;
  }
  if (!strcmp(name, "--help")) {
    print_help(stdout);
    return TD_EXIT_OK;
  }
  if (*name) fprintf(stderr, "tensorctl: unknown command \"%.100s\"\n", name);
  print_help(stderr);
  return TD_EXIT_USAGE;
}
