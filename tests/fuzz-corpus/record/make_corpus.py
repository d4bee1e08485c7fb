#!/usr/bin/env python3
"""Seeds of record_fuzz, by TensorFlow: a byte that chooses compression (its remainder by 3: none, zlib, gzip) and
buffer, then a file of records or lines."""
import os
import tempfile

import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))


def seed(name, first, data):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(bytes([first]) + data)


with tempfile.TemporaryDirectory() as d:
    for i, kind in enumerate(["", "ZLIB", "GZIP"]):
        path = os.path.join(d, "records")
        with tf.io.TFRecordWriter(path, kind) as w:
            for record in (b"abc", b"", b"more of it" * 5):
                w.write(record)
        with open(path, "rb") as f:
            seed("records_" + (kind.lower() or "plain"), i + 3 * (i % 2), f.read())
seed("lines", 3, b"one\r\n\ntwo\nlast")
