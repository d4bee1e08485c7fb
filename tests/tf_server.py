"""TensorFlow's own server as a task: tf_server.py CLUSTER_JSON JOB TASK [LEADER]. Ends with its parent."""
import ctypes
import json
import os
import signal
import sys

ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # noqa: E402

cluster, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
config = tf.compat.v1.ConfigProto()
config.experimental.collective_group_leader = sys.argv[4] if len(sys.argv) > 4 else ""
tf.compat.v1.train.Server(cluster, job_name=job, task_index=task, config=config).join()
