"""Input files, examples and summaries: what tensord makes of them is what TensorFlow in this process makes of them."""
import os
import socket

import numpy as np
import pytest


def both(tf, trio, make, feeds=()):
    """Runs what make() builds, here and in a cluster; both results, or both errors' first lines."""
    results = []
    for target in ("", trio.target("worker", 0)):
        with tf.Graph().as_default():
            fetches = make()
            with tf.Session(target) as s:
                try:
                    results.append(s.run(fetches))
                except tf.errors.OpError as e:
                    results.append((type(e).__name__, e.message.split("\n")[0].split(" [[")[0]))
    return results


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and np.array_equal(a, b)


def example(tf, **features):
    e = tf.train.Example()
    for key, values in features.items():
        f = e.features.feature[key]
        kind = f.bytes_list if isinstance(values[0], bytes) else f.float_list if isinstance(values[0], float) else f.int64_list
        kind.value.extend(values)
    return e.SerializeToString()


def test_parse_example(tf, trio):
    random = np.random.RandomState(7)
    examples = []
    for _ in range(50):
        features = {"fixed": [float(x) for x in random.randn(4)]}
        if random.rand() < 0.7:
            features["ints"] = [int(x) for x in random.randint(-2**60, 2**60, random.randint(1, 6))]
        if random.rand() < 0.7:
            features["texts"] = [random.bytes(random.randint(0, 9)) for _ in range(2 * random.randint(1, 4))]
        examples.append(example(tf, **features))
    spec = {
        "fixed": tf.io.FixedLenFeature([2, 2], tf.float32),
        "default": tf.io.FixedLenFeature([], tf.int64, 9),
        "texts": tf.io.FixedLenSequenceFeature([2], tf.string, allow_missing=True, default_value="none"),
        "ints": tf.io.VarLenFeature(tf.int64),
    }
    a, b = both(tf, trio, lambda: tf.io.parse_example(examples, spec))
    assert same(a, b)
    a, b = both(tf, trio, lambda: tf.io.parse_single_example(examples[0], spec))
    assert same(a, b)
    for broken in ({"fixed": tf.io.FixedLenFeature([3], tf.float32)}, {"fixed": tf.io.FixedLenFeature([4], tf.int64)},
                   {"none": tf.io.FixedLenFeature([1], tf.string)}):
        a, b = both(tf, trio, lambda: tf.io.parse_example(examples, broken, example_names=["n%d" % i for i in range(50)]))
        assert a == b and a[0] == "InvalidArgumentError"


def test_csv_and_numbers(tf, trio):
    records = ['1,2.5,text', ',1e3,"quoted, ""twice"""', "-7,,"]
    a, b = both(tf, trio, lambda: tf.io.decode_csv(records, [[0], [0.5], ["none"]]))
    assert same(a, b)
    for record in ("1,2", "x,1,a", '1,1,a"b'):
        a, b = both(tf, trio, lambda: tf.io.decode_csv([record], [[0], [0.5], ["none"]]))
        assert a == b and a[0] == "InvalidArgumentError"


def test_readers(tf, trio, tmp_path):
    lines, records = [str(tmp_path / ("lines%d" % i)) for i in range(3)], str(tmp_path / "records")
    for i, path in enumerate(lines):
        with open(path, "w") as f:
            f.write("head\n" + "".join("%d.%d\r\n" % (i, k) for k in range(5 * i)))
    with tf.io.TFRecordWriter(records, "GZIP") as w:
        for i in range(20):
            w.write(b"record %d" % i)
    options = tf.io.TFRecordOptions(tf.io.TFRecordCompressionType.GZIP)
    with tf.Graph().as_default():
        readers = [(tf.TextLineReader(skip_header_lines=1), lines), (tf.TFRecordReader(options=options), [records])]
        reads = []
        for reader, files in readers:
            queue = tf.train.string_input_producer(files, num_epochs=1, shuffle=False)
            reads.append((reader.read(queue), reader.num_records_produced()))
        with tf.Session(trio.target("worker", 1)) as s:
            s.run(tf.local_variables_initializer())
            coordinator = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(s, coordinator)
            got = []
            for read, _ in reads:
                with pytest.raises(tf.errors.OutOfRangeError):
                    while True:
                        got.append(s.run(read))
            counts = s.run([count for _, count in reads])
            coordinator.request_stop()
            coordinator.join(threads)
    assert [v for _, v in got] == [b"%d.%d" % (i, k) for i in range(3) for k in range(5 * i)] + [
        b"record %d" % i for i in range(20)]
    assert got[0][0] == ("%s:2" % lines[1]).encode() and counts == [15, 20]


def test_files(tf, trio, tmp_path):
    for name in ("b1", "b2", "c/b3"):
        path = str(tmp_path / name)
        with tf.Graph().as_default(), tf.Session(trio.target("ps", 0)) as s:
            s.run(tf.io.write_file(path, b"\0" + name.encode()))
            assert s.run(tf.io.read_file(path)) == b"\0" + name.encode()
    for pattern in ("/b*", "/*/b?", "/none*", "/[ac]"):
        a, b = both(tf, trio, lambda: tf.io.matching_files(str(tmp_path) + pattern))
        assert same(a, b)
    a, b = both(tf, trio, lambda: tf.io.read_file(str(tmp_path / "none")))
    assert a == b and a[0] == "NotFoundError"


def parsed(tf, serialized):
    """A Summary with its pictures decoded: how they are packed is the packer's business."""
    summary = tf.Summary.FromString(serialized)
    pictures = []
    for value in summary.value:
        if value.HasField("image"):
            with tf.Graph().as_default(), tf.Session() as s:
                pictures.append(s.run(tf.image.decode_png(value.image.encoded_image_string)).tolist())
            value.image.encoded_image_string = b""
    return summary, pictures


def test_summaries(tf, trio):
    random = np.random.RandomState(3)
    floats = random.randn(4, 5, 6, 3).astype(np.float32)
    floats[1, 2, 3, 0] = np.nan
    images, sound = random.randint(0, 256, [1, 3, 4, 4]).astype(np.uint8), random.randn(2, 50, 2).astype(np.float32)
    cases = [
        lambda: tf.summary.image("signed", floats, max_outputs=3),
        lambda: tf.summary.image("positive", np.abs(np.nan_to_num(floats[..., :1])), max_outputs=1),
        lambda: tf.summary.image("bytes", images),
        lambda: tf.summary.audio("sound", sound, 8000.5),
        lambda: tf.summary.histogram("histogram", floats[0]),
    ]
    for make in cases:
        a, b = both(tf, trio, make)
        assert parsed(tf, a) == parsed(tf, b)


def test_summary_writer(tf, trio, tmp_path):
    ops = tf.raw_ops
    with tf.Graph().as_default(), tf.device("/job:worker/task:1"):
        writer = ops.SummaryWriter(shared_name="writer", container="")
        create = ops.CreateSummaryFileWriter(writer=writer, logdir=str(tmp_path / "logs"), max_queue=1, flush_millis=100000,
                                             filename_suffix=".v2")
        graph = tf.get_default_graph().as_graph_def().SerializeToString()
        writes = [
            ops.WriteScalarSummary(writer=writer, step=tf.constant(1, tf.int64), tag="scalar", value=2.5),
            ops.WriteHistogramSummary(writer=writer, step=tf.constant(2, tf.int64), tag="histogram", values=[1.0, 2.0]),
            ops.WriteImageSummary(writer=writer, step=tf.constant(3, tf.int64), tag="image", tensor=np.ones([1, 2, 3, 1], np.float32),
                                  bad_color=np.array([255, 0, 0, 255], np.uint8)),
            ops.WriteAudioSummary(writer=writer, step=tf.constant(4, tf.int64), tag="audio", tensor=np.ones([1, 9], np.float32),
                                  sample_rate=100.0),
            ops.WriteSummary(writer=writer, step=tf.constant(5, tf.int64), tensor=[b"a", b"b"], tag="tensor", summary_metadata=b""),
            ops.WriteGraphSummary(writer=writer, step=tf.constant(6, tf.int64), tensor=graph),
            ops.WriteRawProtoSummary(writer=writer, step=tf.constant(7, tf.int64), tensor=[
                tf.Summary(value=[tf.Summary.Value(tag="raw%d" % i, simple_value=i)]).SerializeToString() for i in range(2)]),
            ops.ImportEvent(writer=writer, event=tf.Event(step=8, wall_time=1.5).SerializeToString()),
        ]
        flush, close = ops.FlushSummaryWriter(writer=writer), ops.CloseSummaryWriter(writer=writer)
        with tf.Session(trio.target("worker", 0)) as s:
            with pytest.raises(tf.errors.NotFoundError):
                s.run(writes[0])
            s.run(create)
            for w in writes:
                s.run(w)
            s.run(flush)
            with pytest.raises(tf.errors.InvalidArgumentError, match="Nan in summary histogram for: histogram"):
                s.run(writes[1], {writes[1].inputs[3]: [np.nan, 1.0]})
            s.run(close)
    (name,) = os.listdir(str(tmp_path / "logs"))
    assert name.startswith("events.out.tfevents.") and name.endswith(socket.gethostname() + ".v2")
    events = list(tf.train.summary_iterator(str(tmp_path / "logs" / name)))
    assert events[0].file_version == "brain.Event:2" and [e.step for e in events[1:]] == list(range(1, 9))
    values = [v for e in events for v in e.summary.value]
    assert [v.tag for v in values] == ["scalar", "histogram", "image/image/0", "audio/audio/0", "tensor", "raw0", "raw1"]
    assert values[0].simple_value == 2.5 and values[1].histo.num == 2 and values[2].image.width == 3
    assert tf.make_ndarray(values[4].tensor).tolist() == [b"a", b"b"]
    assert events[6].graph_def == graph and events[8].wall_time == 1.5
