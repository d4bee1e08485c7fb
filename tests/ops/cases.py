"""Writes table-driven kernel cases whose expected results come from TensorFlow itself.

    python tests/ops/cases.py CASES.py > src/ops/NAME_cases.inc

CASES.py calls case(op, [inputs], attr=...) with numpy arrays (or lists of them for list arguments). Each op is run
eagerly; its results, or the code and text of its error, become the expectation. fails= overrides the text where
another release words it differently; skip outputs that are undefined with undefined=True.
"""
import os
import re
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_registry

BF16 = tf.bfloat16.as_numpy_dtype
NAMES = {tf.float32: 'float', tf.float64: 'double'}
CODES = {'InvalidArgumentError': 'TD_INVALID_ARGUMENT', 'UnimplementedError': 'TD_UNIMPLEMENTED',
         'InternalError': 'TD_INTERNAL', 'FailedPreconditionError': 'TD_FAILED_PRECONDITION',
         'OutOfRangeError': 'TD_OUT_OF_RANGE', 'ResourceExhaustedError': 'TD_RESOURCE_EXHAUSTED',
         'NotFoundError': 'TD_NOT_FOUND'}
lines = []


def name(dtype):
    dtype = tf.as_dtype(dtype)
    return NAMES.get(dtype, dtype.name)


def word(v, dtype):
    if dtype == tf.string:
        return v.decode() if v else "''"
    if dtype == tf.bool:
        return 'true' if v else 'false'
    if dtype.is_complex:
        return '%r,%r' % (float(v.real), float(v.imag))
    if dtype.is_floating:
        return repr(float(v))
    return str(int(v))


def literal(t):
    a = t.numpy() if hasattr(t, 'numpy') else t
    dtype = t.dtype
    flat = np.asarray(a).reshape(-1).tolist() if dtype == tf.string else np.asarray(a).reshape(-1)
    return '{"%s", "[%s]", "%s"}' % (name(dtype), ','.join(map(str, t.shape)), ' '.join(word(v, dtype) for v in flat))


def quote(v):
    if isinstance(v, bool):
        return str(v).lower()
    if isinstance(v, tf.DType):
        return name(v)
    if isinstance(v, str):
        return "'%s'" % v
    if isinstance(v, (list, tuple)):
        return '[%s]' % ', '.join(quote(x) for x in v)
    return str(v)


def case(op, inputs, fails=None, code=None, undefined=False, raw=None, **attrs):
    d = op_def_registry.get(op)
    text, flat, given = {}, [], {}
    for arg, value in zip(d.input_arg, inputs):
        many = arg.number_attr or arg.type_list_attr
        ts = [tf.convert_to_tensor(v) for v in (value if many else [value])]
        flat += ts
        if arg.type_attr and ts:
            text[arg.type_attr] = name(ts[0].dtype)
            given[arg.type_attr] = ts[0].dtype.as_datatype_enum
        if arg.number_attr:
            text[arg.number_attr] = str(len(ts))
            given[arg.number_attr] = len(ts)
    for k, v in attrs.items():
        given[k] = v.as_datatype_enum if isinstance(v, tf.DType) else v
        text[k] = quote(v)
    if raw:
        text.update(raw)
    outputs = sum(given[o.number_attr] if o.number_attr else 1 for o in d.output_arg)
    for a in d.attr:  # eager execution needs the defaults that types and counts depend on
        if a.name not in given and a.HasField('default_value') and a.type == 'type':
            given[a.name] = a.default_value.type
    literals = [literal(t) for t in flat]  # before: some ops write into their inputs
    got, message, outs = 'TD_OK', '', []
    try:
        with tf.device('/CPU:0'):
            r = execute.execute(op, outputs, flat, tuple(x for kv in given.items() for x in kv), context.context())
        if not undefined:
            outs = r
    except Exception as e:  # what TensorFlow refuses is a case too
        if type(e).__name__ not in CODES:
            raise
        got = code or CODES[type(e).__name__]
        message = re.sub(r'^\{\{function_node.*?\}\} ', '', e.message)
        message = re.sub(r' \[Op:.*$', '', message, flags=re.S)
        message = fails if fails is not None else message.split('\n')[0]
    lines.append('    {"%s", "%s", %s, "%s",\n     {%s}, %d,\n     {%s}, %d},' % (
        op, '; '.join('%s: %s' % kv for kv in text.items()), got,
        message.replace('\\', '\\\\').replace('"', '\\"'),
        ', '.join(literals), len(flat), ', '.join(map(literal, outs)), len(outs)))


if __name__ == '__main__':
    exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))
    print('/* Written by tests/ops/cases.py from %s with TensorFlow %s. */' % (os.path.basename(sys.argv[1]), tf.__version__))
    print('\n'.join(lines))
