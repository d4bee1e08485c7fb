#!/usr/bin/env python3
"""Seeds of example_fuzz, by TensorFlow: a byte that chooses the types of features a, b, c, then an Example."""
import os

import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
LISTS = ["float_list", "int64_list", "bytes_list"]


def seed(name, types, **features):
    e = tf.train.Example()
    for key, values in features.items():
        getattr(e.features.feature[key], LISTS[types["abc".index(key)]]).value.extend(values)
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(bytes([types[0] + 3 * types[1] + 9 * types[2]]) + e.SerializeToString(deterministic=True))


seed("floats", (0, 0, 0), a=[1.5, -2.0], b=[3.0], c=[4.0, 5.0, 6.0])
seed("ints", (1, 1, 1), a=[1, -1, 1 << 40], b=[7], c=[])
seed("strings", (2, 2, 2), a=[b"x", b""], b=[b"one"], c=[b"yz"])
seed("mixed", (1, 2, 0), a=[5], b=[b"b"], c=[0.5])
