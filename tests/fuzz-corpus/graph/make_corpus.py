#!/usr/bin/env python
"""Seeds for graph_fuzz and expectations for golden_test, made by TensorFlow 1.15 itself.

Writes for each graph NAME.pb (the GraphDef as a client sends it) and NAME.partitions: feeds, fetches and targets of a
step, and every node of every device's partition as a two-task TensorFlow cluster ran it. Numbers that depend on the
order in which TensorFlow's master counts (in "_S12", "edge_7_") are left out of the text.

Usage: python make_corpus.py [FOLDER]      (needs TensorFlow 1.15; servers on 127.0.0.1)
"""
import os
import re
import socket
import sys

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

tf.disable_v2_behavior()


def free_port():
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


def training():
  with tf.device('/job:worker/task:1'):
    w = tf.get_variable('w', [3, 2], initializer=tf.zeros_initializer())
    b = tf.get_variable('b', [2], initializer=tf.zeros_initializer())
  with tf.device('/job:worker/task:0'):
    x = tf.placeholder(tf.float32, [None, 3], name='x')
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b), name='loss')
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
  return ['x:0'], ['loss:0'], [step.name]


def while_loop():
  with tf.device('/job:worker/task:0'):
    n = tf.placeholder(tf.int32, [], name='n')

    def body(i, a):
      with tf.device('/job:worker/task:1'):
        return i + 1, a * 2.

    result = tf.while_loop(lambda i, a: i < n, body, [tf.constant(0), tf.constant(1.)], name='loop')
    tf.identity(result[1], name='result')
  return ['n:0'], ['result:0'], []


def nested_loop():
  with tf.device('/job:worker/task:0'):
    n = tf.placeholder(tf.int32, [], name='n')

    def inner(j, a):
      with tf.device('/job:worker/task:1'):
        return j + 1, a + 1.

    def body(i, a):
      r = tf.while_loop(lambda j, a: j < i, inner, [tf.constant(0), a], name='inner')
      return i + 1, r[1]

    result = tf.while_loop(lambda i, a: i < n, body, [tf.constant(0), tf.constant(1.)], name='outer')
    tf.identity(result[1], name='result')
  return ['n:0'], ['result:0'], []


def cond():
  with tf.device('/job:worker/task:1'):
    v = tf.get_variable('v', [], initializer=tf.zeros_initializer())
  with tf.device('/job:worker/task:0'):
    p = tf.placeholder(tf.bool, [], name='p')
    r = tf.cond(p, lambda: v + 1., lambda: tf.negative(v), name='cond')
    tf.identity(r, name='result')
  return ['p:0'], ['result:0'], []


def control():
  with tf.device('/job:worker/task:0'):
    a = tf.placeholder(tf.float32, [], name='a')
    first = tf.negative(a, name='first')
  with tf.device('/job:worker/task:1'):
    with tf.control_dependencies([first]):
      b = tf.no_op(name='b')
      c = tf.identity(a, name='c')
      tf.shape(first, name='s')
  with tf.device('/job:worker/task:0'), tf.control_dependencies([b, c]):
    tf.no_op(name='end')
  return ['a:0'], ['s:0', 'c:0'], ['end']


def resource():
  with tf.device('/job:worker/task:1'):
    v = tf.get_variable('v', [2], initializer=tf.zeros_initializer(), use_resource=True)
  with tf.device('/job:worker/task:0'):
    x = tf.placeholder(tf.float32, [2], name='x')
    value = v.read_value() * x
    update = v.assign(value, read_value=False)
  return ['x:0'], [value.name], [update.name]


def functions():
  """Only a seed: TensorFlow inlines the calls before it cuts."""

  @function.Defun(tf.float32, func_name='inner')
  def inner(x):
    return x * 2.

  @function.Defun(tf.float32, tf.float32, func_name='outer', python_grad_func=lambda op, g: [g, g])
  def outer(x, y):
    return inner(x) + y

  with tf.device('/job:worker/task:0'):
    a = tf.placeholder(tf.float32, [], name='a')
    b = outer(a, a)
    with tf.device('/job:worker/task:1'):
      inner(b)


def plain(text):
  text = re.sub(r'_S\d+', '_S', text)
  return re.sub(r'_G\d+', '_G', text)


def attr_text(node):
  parts = []
  for key in ('tensor_name', 'send_device', 'recv_device', 'frame_name', 'tensor_type', 'T', 'client_terminated'):
    if key not in node.attr or (key == 'T' and node.op not in ('_Send', '_HostSend')):
      continue
    value = node.attr[key]
    kind = value.WhichOneof('value')
    if kind == 's':
      text = re.sub(r'^edge_\d+_', 'edge_', plain(value.s.decode()))
    elif kind == 'type':
      text = tf.as_dtype(value.type).name
    else:
      text = str(value.b).lower()
    parts.append('%s=%s' % ('type' if key in ('T', 'tensor_type') else key, text))
  return ' {%s}' % '; '.join(sorted(parts)) if parts else ''


def lines_of(graph):
  lines = []
  for node in graph.node:
    data = [plain(i) for i in node.input if not i.startswith('^')]
    control = sorted(plain(i) for i in node.input if i.startswith('^'))
    op = node.op.replace('_Host', '_')
    lines.append('%s = %s(%s) @%s%s' % (plain(node.name), op, ', '.join(data + control), node.device, attr_text(node)))
  return sorted(lines)


def main():
  folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
  cluster = tf.train.ClusterSpec({'worker': ['127.0.0.1:%d' % free_port() for _ in range(2)]})
  servers = [tf.train.Server(cluster, 'worker', i) for i in range(2)]
  config = tf.ConfigProto()
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  config.graph_options.optimizer_options.opt_level = -1
  with tf.Graph().as_default() as graph:
    functions()
    with open(os.path.join(folder, 'functions.pb'), 'wb') as f:
      f.write(graph.as_graph_def().SerializeToString(deterministic=True))
  for build in (training, while_loop, nested_loop, cond, control, resource):
    with tf.Graph().as_default() as graph:
      feeds, fetches, targets = build()
      init = tf.global_variables_initializer()
      values = {'x:0': [[1., 2., 3.]], 'n:0': 3, 'p:0': True, 'a:0': 2.}
      if build is resource:
        values['x:0'] = [1., 2.]
      with tf.Session(servers[0].target, config=config) as session:
        session.run(init)
        meta = tf.RunMetadata()
        session.run(fetches + targets, {f: values[f] for f in feeds}, tf.RunOptions(output_partition_graphs=True), meta)
      definition = graph.as_graph_def()
      with open(os.path.join(folder, build.__name__ + '.pb'), 'wb') as f:
        f.write(definition.SerializeToString(deterministic=True))
      with open(os.path.join(folder, build.__name__ + '.partitions'), 'w') as f:
        for kind, names in (('feed', feeds), ('fetch', fetches), ('target', targets)):
          for name in names:
            f.write('%s %s\n' % (kind, name))
        for partition in sorted(meta.partition_graphs, key=lambda g: g.node[0].device):
          f.write('\n'.join(lines_of(partition)) + '\n')


if __name__ == '__main__':
  main()
  os._exit(0)  # servers of TensorFlow have no clean stop
