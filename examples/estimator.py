"""A job of TensorFlow's Estimator: chief, workers and an evaluator, each told by TF_CONFIG what it is.

The parameter servers are tensord. Chief and workers are either TensorFlow servers, as Estimator starts them,

    tensorctl launch --ps 1 --external_chief --external_worker 1 -- python estimator.py

or plain clients of tensord tasks (`session_master` in TF_CONFIG):

    tensorctl launch --ps 1 --chief --worker 1 -- python estimator.py

Once all have ended, the model that the evaluator exported is loaded into a session on tensord, where it must give the
predictions that Estimator.predict gives with the exported weights. Needs a TensorFlow with Estimator: up to 2.15.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

import cluster
import digits

BATCH = 64


def input_fn(tf, kind, images, labels, is_training):
    """Batches of {"x": images} and labels, from a dataset or from queues that the client fills."""
    if kind == "queue":
        return tf.estimator.inputs.numpy_input_fn({"x": images}, labels, batch_size=BATCH, shuffle=is_training,
                                                  num_epochs=None if is_training else 1)

    def dataset():
        d = tf.data.Dataset.from_tensor_slices(({"x": images}, labels))
        if is_training:
            d = d.shuffle(len(labels), seed=1).repeat()
        return d.batch(BATCH)
    return dataset


def own_model(features, labels, mode, params):
    """A model_fn: the multilayer perceptron of digits.py."""
    tf = params["tf"]
    logits = digits.mlp(tf, features["x"])
    predictions = {"class_ids": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.estimator.export.PredictOutput(predictions)}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": tf.metrics.accuracy(labels, predictions["class_ids"])})
    step = tf.train.AdamOptimizer(0.002).minimize(loss, global_step=tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def estimator(tf, model, folder):
    config = tf.estimator.RunConfig(model_dir=folder, tf_random_seed=1, save_checkpoints_steps=100, save_summary_steps=50,
                                    log_step_count_steps=1000, experimental_max_worker_delay_secs=0)
    columns = [tf.feature_column.numeric_column("x", [64])]
    if model == "dnn":
        return tf.estimator.DNNClassifier([128, 64], columns, n_classes=10, config=config)
    if model == "linear":
        return tf.estimator.LinearClassifier(columns, n_classes=10, config=config)
    return tf.estimator.Estimator(own_model, config=config, params={"tf": tf})


def serving_input(tf):
    x = tf.placeholder(tf.float32, [None, 64], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def take_part(args, tf):
    """What each process of the job runs; TF_CONFIG says which it is."""
    images, labels = digits.load()
    train, held = slice(0, -digits.HELD_OUT), slice(-digits.HELD_OUT, None)
    e = estimator(tf, args.model, args.folder)
    exporter = tf.estimator.FinalExporter("digits", lambda: serving_input(tf))
    result = tf.estimator.train_and_evaluate(
        e, tf.estimator.TrainSpec(input_fn(tf, args.input, images[train], labels[train], True), max_steps=args.steps),
        tf.estimator.EvalSpec(input_fn(tf, args.input, images[held], labels[held], False), steps=None, start_delay_secs=0,
                              throttle_secs=1, exporters=exporter))
    return 0 if result is None or result else 1


def exported_predictions(tf, target, jobs, path, images):
    """The exported model, loaded into a session on tensord."""
    config = tf.ConfigProto(device_filters=["/job:ps"] if "ps" in jobs else [])
    with tf.Graph().as_default(), tf.Session(target, config=config) as session:
        meta = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], path)
        signature = meta.signature_def["predict" if "predict" in meta.signature_def else "serving_default"]
        return session.run(signature.outputs["probabilities"].name, {signature.inputs["x"].name: images})


def all_succeed(processes):
    """Waits for all; when one fails the others, which would wait for it, are ended."""
    while any(p.poll() is None for p in processes.values()):
        failed = [task for task, p in processes.items() if p.poll()]
        if failed:
            print("failed: %s" % failed)
            for p in processes.values():
                p.kill()
        time.sleep(0.1)
    return not any(p.returncode for p in processes.values())


def run_job(args, tf):
    """Starts every process of the job, and afterwards compares predictions."""
    images, labels = digits.load()
    images, labels = images[-digits.HELD_OUT:], labels[-digits.HELD_OUT:]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--model=" + args.model, "--input=" + args.input, "--steps=%d" % args.steps,
                   "--folder=" + folder]
        tasks = [(job, i) for job in ("chief", "worker") for i in range(len(args.jobs.get(job, [])))] + [("evaluator", 0)]
        processes = []
        for job, index in tasks:
            config = {"cluster": args.jobs, "task": {"type": job, "index": index}}
            if job != "evaluator" and "grpc://" + args.jobs[job][index] in args.targets:
                # Environment "google" is Estimator's word for: start no server, the session's master is there already.
                config.update(environment="google", session_master="grpc://" + args.jobs[job][index])
            processes.append(subprocess.Popen(command, env=dict(os.environ, TF_CONFIG=json.dumps(config))))
        if not all_succeed(dict(zip(tasks, processes))):
            return 1
        os.environ.pop("TF_CONFIG", None)
        e = estimator(tf, args.model, folder)
        metrics = e.evaluate(input_fn(tf, "dataset", images, labels, False))
        # Not the last checkpoint: the evaluator exports the first that has all steps, and a worker may be in one more.
        path, = glob.glob(os.path.join(folder, "export", "digits", "*"))
        predicted = [p["probabilities"] for p in e.predict(input_fn(tf, "dataset", images, labels, False),
                                                           checkpoint_path=os.path.join(path, "variables", "variables"))]
        exported = exported_predictions(tf, "grpc://" + args.jobs["ps"][0], args.jobs, path, images)
    print("held-out accuracy: %.3f at global step %d" % (metrics["accuracy"], metrics["global_step"]))
    difference = max(abs(a - b).max() for a, b in zip(predicted, exported))
    print("exported model on tensord: %d predictions, largest difference %.1e" % (len(exported), difference))
    return 0 if len(exported) == len(predicted) and difference < 1e-5 else 1


def main():
    parser = cluster.arguments(__doc__)
    parser.add_argument("--model", choices=["dnn", "linear", "own"], default="own")
    parser.add_argument("--input", choices=["dataset", "queue"], default="dataset")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--folder", help="where the model is; given to the processes of the job")
    args = cluster.parse(parser)
    tf = cluster.tf1()
    return take_part(args, tf) if args.folder else run_job(args, tf)


if __name__ == "__main__":
    sys.exit(main())
