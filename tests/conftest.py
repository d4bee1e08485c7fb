import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "examples"))

import pytest  # noqa: E402

from cluster_fixture import BUILD, TENSORD, Cluster  # noqa: E402

# A shell ignores SIGINT for what it runs in the background, and so would all that these tests start; a handler of our own
# is replaced by the default at exec.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session):
    if not os.path.exists(TENSORD):
        pytest.exit("no %s: run make build, or set TENSORD_BUILD" % TENSORD, 2)


@pytest.fixture
def make_cluster():
    """Cluster(...) that ends with the test; fails the test if a tensord crashed."""
    made = []

    def make(*args, **kwargs):
        made.append(Cluster(*args, **kwargs))
        return made[-1]

    yield make
    errors = []
    for c in made:
        try:
            c.check_alive()
        except AssertionError as e:
            errors.append(str(e))
        c.stop()
    assert not errors, "\n".join(errors)


@pytest.fixture(scope="module")
def local():
    """One task, shared by the tests of a file; sessions must not leave state behind that others trip over."""
    with Cluster({"local": 1}) as c:
        yield c


@pytest.fixture(scope="module")
def trio():
    """1 ps and 2 workers, shared by the tests of a file."""
    with Cluster({"ps": 1, "worker": 2}) as c:
        yield c


@pytest.fixture(scope="session")
def tf():
    import tensorflow
    t = tensorflow.compat.v1
    t.disable_eager_execution()
    t.logging.set_verbosity(t.logging.ERROR)
    return t


@pytest.fixture(autouse=True)
def fresh_graph(request):
    """Each test has a default graph of its own."""
    if "tf" in request.fixturenames:
        t = request.getfixturevalue("tf")
        with t.Graph().as_default():
            yield
    else:
        yield
