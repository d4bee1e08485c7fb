/* tensorctl's commands. Each takes the arguments from its own name on and returns the process's exit status. */
#ifndef TD_TOOLS_COMMANDS_H_
#define TD_TOOLS_COMMANDS_H_

enum { TD_EXIT_OK = 0, TD_EXIT_FAILED = 1, TD_EXIT_USAGE = 2 };

int td_status_command(int argc, char **argv);
int td_launch_command(int argc, char **argv);
int td_bench_command(int argc, char **argv);

#endif /* TD_TOOLS_COMMANDS_H_ */
