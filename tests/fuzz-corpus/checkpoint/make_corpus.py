#!/usr/bin/env python3
"""Seeds of checkpoint_fuzz, by TensorFlow: a bundle with plain, string and partitioned tensors, a V1 file. Two bytes of
the index's length (the lowest bit: it is a V1 file), the index, the data."""
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

HERE = os.path.dirname(os.path.abspath(__file__))


def seed(name, is_v1, index, data=b""):
    head = len(index) << 1 | is_v1
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(bytes([head & 0xff, head >> 8]) + index + data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def main():
    tf.disable_v2_behavior()
    values = [np.arange(6, dtype=np.float32).reshape(3, 2), np.array([b"ab", b"", b"xyz"]), np.arange(4.0).reshape(2, 2),
              np.arange(4, 8.0).reshape(2, 2)]
    with tempfile.TemporaryDirectory() as d, tf.Session() as s:
        p = d + "/x"
        args = [["f", "s", "v", "v"], ["", "", "4 2 0,2:-", "4 2 2,2:-"], values]
        s.run(tf.raw_ops.SaveV2(prefix=p, tensor_names=args[0], shape_and_slices=args[1], tensors=args[2]))
        seed("bundle", 0, read(p + ".index"), read(p + ".data-00000-of-00001"))
        s.run(tf.raw_ops.SaveSlices(filename=p, tensor_names=args[0], shapes_and_slices=args[1], data=args[2]))
        seed("v1", 1, read(p))


if __name__ == "__main__":
    main()
