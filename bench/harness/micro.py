"""Rooms alone: the programs of bench/*.c."""
import json
import os
import subprocess

from harness.figures import figure

PROGRAMS = ("crc_bench", "philox_bench", "codec_bench", "rendezvous_bench", "executor_bench")


def figures_of(output):
    for line in output.decode().splitlines():
        if line.startswith("{"):
            f = json.loads(line)
            yield f["name"], figure(f["value"], f["unit"], f["better"], best=f["best"])


def run(options, add):
    seconds = ["--seconds", "0.02" if options.quick else "0.5"]
    for program in PROGRAMS:
        for only in options.only or [""]:
            command = [os.path.join(options.build, program)] + seconds + (["--only", only] if only else [])
            for name, f in figures_of(subprocess.check_output(command)):
                add(name, f)
    if not options.only or any("rpc" in o for o in options.only):
        rpc(options, seconds, add)


def rpc(options, seconds, add):
    program = os.path.join(options.build, "rpc_echo")
    server = subprocess.Popen([program, "serve", "127.0.0.1:0"], stdout=subprocess.PIPE)
    try:
        port = server.stdout.readline().decode().rsplit("port ", 1)[1].rstrip(")\n")
        command = [program, "bench", "127.0.0.1:" + port] + seconds
        for name, f in figures_of(subprocess.check_output(command, stderr=subprocess.DEVNULL)):
            add(name, f)
    finally:
        server.terminate()
        server.communicate()
