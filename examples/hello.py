"""Hello world: one constant, computed by the first worker."""
import cluster


def main():
    args = cluster.parse(cluster.arguments(__doc__))
    tf = cluster.tf1()
    hello = tf.constant("Hello, distributed TensorFlow!")
    with tf.Session(args.targets[0]) as session:
        for device in session.list_devices():
            print(device.name)
        print(session.run(hello).decode())


if __name__ == "__main__":
    main()
