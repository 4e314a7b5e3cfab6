"""Threads: the same bits for any number of them, who decides the number, and life with forks, limits and others."""
import itertools
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import support

import gemmkit
from gemmkit._threads import cgroup_quota, spin_policy

FLOATS = (np.float32, np.float64)
COUNTS = (1, 2, 3, 8)
VARIABLES = ("GEMMKIT_NUM_THREADS", "GEMMKIT_ISA", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SKIPPED = 77  # exit status of a script that finds its premise missing


def run(script, before="", timeout=60, **environment):
    """Run a script in a fresh interpreter that imports gemmkit, `before` ahead of that; return what it printed."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    script = "\n".join(("import os, sys, threading, time", "import numpy as np", textwrap.dedent(before),
                        "import gemmkit", textwrap.dedent(script)))
    done = subprocess.run([sys.executable, "-c", script], env=inherited | environment, timeout=timeout, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout[-800:]}"
    return done.stdout.strip()


def start_and_join(function, arguments):
    threads = [threading.Thread(target=function, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- The same bits

# algorithm, m, n, k, trans_a, trans_b: each large enough for several threads, none a multiple of a block
PRODUCTS = [("general", 301, 299, 303, False, False), ("general", 301, 299, 303, True, True),
            ("general", 2003, 97, 203, True, False), ("direct", 150, 331, 301, False, False),
            ("direct", 331, 150, 301, True, False), ("small_k", 1501, 1203, 31, False, False),
            ("small_k", 901, 803, 31, True, True), ("skinny_m", 1, 4999, 1003, False, False),
            ("skinny_m", 7, 5003, 303, False, False), ("skinny_m", 13, 903, 1003, False, True),
            ("skinny_m", 13, 903, 1003, True, True), ("skinny_n", 5003, 1, 1003, False, False),
            ("skinny_n", 1003, 3, 1003, False, True), ("skinny_n", 903, 13, 1003, False, False),
            ("split_k", 3, 5, 200_003, False, False), ("split_k", 63, 61, 4099, True, False),
            ("auto", 4, 4, 100_003, False, True), ("auto", 300, 300, 300, False, False)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_any_number_of_threads_gives_the_same_bits(product, dtype, wide_isa):
    algorithm, m, n, k, trans_a, trans_b = product
    rng = np.random.default_rng(1)
    a = support.random_values(rng, (k, m) if trans_a else (m, k), dtype)
    b = support.random_values(rng, (n, k) if trans_b else (k, n), dtype)
    c = support.random_values(rng, (m, 1), dtype)
    plan = gemmkit.GemmPlan(m, n, k, dtype, trans_a=trans_a, trans_b=trans_b, alpha=0.3, beta=0.7, algorithm=algorithm)
    results = []
    for count in COUNTS:
        with gemmkit.threads(count):
            assert (plan.num_threads > 1) == (count > 1)
            results.append((plan(a, b), plan(a, b, c)))
    for plain, with_c in results[1:]:
        assert support.same_bits(plain, results[0][0]) and support.same_bits(with_c, results[0][1])


def test_batches_and_groups_give_the_same_bits():
    rng = np.random.default_rng(2)
    a, b, stacked = (support.random_values(rng, shape, np.float32)
                     for shape in ((50, 60, 70), (50, 70, 80), (3, 200, 300)))
    shapes = [(200, 150, 300), (30, 20, 10), (5, 700, 400), (64, 64, 4096), (1, 1, 1)]
    group = gemmkit.GroupedGemm(shapes, np.float32)
    left = [support.random_values(rng, (m, k), np.float32) for m, n, k in shapes]
    right = [support.random_values(rng, (k, n), np.float32) for m, n, k in shapes]
    results = []
    for count in COUNTS:
        with gemmkit.threads(count):
            results.append([gemmkit.matmul(a, b), gemmkit.matmul(a, b[0]),
                            gemmkit.matmul(stacked, stacked.swapaxes(1, 2)), *group(left, right)])
    for result in results[1:]:
        assert all(map(support.same_bits, result, results[0]))


# ---- Who decides the number

def test_set_get_and_contexts():
    before = gemmkit.get_num_threads()
    try:
        for n in (1, 5, np.int64(3), 1024):
            gemmkit.set_num_threads(n)
            assert gemmkit.get_num_threads() == n and gemmkit.config()["threads"]["requested"] == n
        with gemmkit.threads(2):
            assert gemmkit.get_num_threads() == 2
            with gemmkit.threads(None):
                assert gemmkit.get_num_threads() == before
            with pytest.raises(KeyError), gemmkit.threads(7):
                raise KeyError
            assert gemmkit.get_num_threads() == 2
        assert gemmkit.get_num_threads() == 1024
        for bad in (0, -1, 1025, 2.0, "2", True):
            error = ValueError if type(bad) is int else TypeError
            with pytest.raises(error, match="n: "):
                gemmkit.set_num_threads(bad)
            with pytest.raises(error), gemmkit.threads(bad):
                pass
        assert gemmkit.get_num_threads() == 1024
    finally:
        gemmkit.set_num_threads(None)
    assert gemmkit.get_num_threads() == before


COUNT = "print(gemmkit.get_num_threads())"


def test_environment_variables_and_the_affinity_mask():
    allowed = len(os.sched_getaffinity(0))
    default = int(run(COUNT))
    assert 1 <= default <= allowed
    assert run(COUNT, OMP_NUM_THREADS="1") == "1"
    assert run(COUNT, GEMMKIT_NUM_THREADS="5", OMP_NUM_THREADS="2") == "5"
    assert run(COUNT, GEMMKIT_NUM_THREADS=" ") == str(default)
    assert run(COUNT, before="os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})") == "1"
    assert run("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + COUNT) == "1"
    assert run("gemmkit.set_num_threads(3); gemmkit.set_num_threads(None)\n" + COUNT, GEMMKIT_NUM_THREADS="4") == "4"
    for bad in ("0", "-2", "many", "1.5", "1025"):
        assert "GEMMKIT_NUM_THREADS" in run("pass", before=f"""
            try:
                import gemmkit
            except ValueError as error:
                print(error)
                sys.exit(0)
            sys.exit("accepted {bad}")
        """, GEMMKIT_NUM_THREADS=bad)


def test_threadpoolctl_limits_are_obeyed():
    run("""
        import threadpoolctl
        x = np.ones((300, 300), np.float32)
        for wanted in (None, 4):
            gemmkit.set_num_threads(wanted)
            before = gemmkit.get_num_threads()
            with threadpoolctl.threadpool_limits(1, user_api="openmp"):
                assert gemmkit.get_num_threads() == 1
                assert gemmkit.GemmPlan(1000, 1000, 1000, np.float32).num_threads == 1
                assert (gemmkit.matmul(x, x) == 300).all()
            assert gemmkit.get_num_threads() == before
        assert any(pool["user_api"] == "openmp" for pool in threadpoolctl.threadpool_info())
    """)


def test_cgroup_quota_of_both_versions(tmp_path):
    def group(path, **files):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / path / name.replace("__", ".")).write_text(text)

    def quota(membership):
        (tmp_path / "self").write_text(membership)
        return cgroup_quota(str(tmp_path / "self"), str(tmp_path))

    assert cgroup_quota(str(tmp_path / "missing"), str(tmp_path)) == 0
    assert quota("") == 0 and quota("nonsense\n") == 0 and quota("0::/nowhere\n") == 0
    group("two/a/b", cpu__max="max 100000\n")
    assert quota("0::/two/a/b\n") == 0
    quotas = {"400000 100000": 4, "250000 100000": 2, "50000 100000": 1, "rubbish": 0, "1 0": 0, "": 0}
    for text, processors in quotas.items():
        group("two/a/b", cpu__max=text)
        assert quota("0::/two/a/b\n") == processors
    group("two/a/b", cpu__max="800000 100000")
    group("two", cpu__max="300000 100000")
    assert quota("0::/two/a/b\n") == 3  # an ancestor's share is less
    assert quota("0::/two/a/gone/deeper\n") == 3
    group("cpu/one", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert quota("4:cpu,cpuacct:/one\n") == 0
    group("cpu/one", cpu__cfs_quota_us="150000\n")
    assert quota("5:memory:/one\n4:cpu,cpuacct:/one\n0::/\n") == 1
    group("cpu/one", cpu__cfs_quota_us="600000\n")
    assert quota("4:cpuacct,cpu:/one\n") == 6
    assert quota("4:cpu:/one\n0::/two/a/b\n") == 3  # both versions at once
    assert quota("4:cpuset:/one\n") == 0


def test_the_spin_policy_leaves_the_environment_as_it_was(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with spin_policy():
        assert int(os.environ["GOMP_SPINCOUNT"]) > 0
    assert "GOMP_SPINCOUNT" not in os.environ
    with pytest.raises(KeyError), spin_policy():
        raise KeyError
    assert "GOMP_SPINCOUNT" not in os.environ
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "7")
        with spin_policy():
            assert os.environ.get("GOMP_SPINCOUNT") == ("7" if name == "GOMP_SPINCOUNT" else None)
        assert os.environ[name] == "7"
        monkeypatch.delenv(name)
    run("""
        import subprocess
        assert "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ
        assert b"SPINCOUNT" not in subprocess.run(["env"], stdout=subprocess.PIPE).stdout
    """)


def test_the_instruction_set_may_be_forced_in_the_environment():
    detected = gemmkit.config()["isa"]["detected"]
    for name in detected:
        # float32 takes the strongest set of its own among these.
        wide = [below for below in detected[:detected.index(name) + 1] if below in support.wide_isas()][-1]
        text = run("print(gemmkit.config()['isa']['in use'], gemmkit.GemmPlan(40, 40, 40, 'f4').isa)", GEMMKIT_ISA=name)
        assert text == f"{name} {wide}"
    assert "unknown instruction set 'mmx'" in run("pass", before="""
        try:
            import gemmkit
        except ValueError as error:
            print(error)
            sys.exit(0)
    """, GEMMKIT_ISA="mmx")


# ---- Forks, limits, exits

WARM = "gemmkit.set_num_threads(2)\nx = np.ones((400, 400), np.float32)\ngemmkit.matmul(x, x)\n"


def test_a_forked_child_multiplies_after_its_parent_has():
    run(WARM + textwrap.dedent("""
        for _ in range(3):
            pid = os.fork()
            if not pid:
                os._exit(0 if (gemmkit.matmul(x, x) == 400).all() else 3)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert (gemmkit.matmul(x, x) == 400).all()
    """), timeout=30)


def test_a_pool_of_forked_processes():
    run(WARM + textwrap.dedent("""
        import multiprocessing
        def work(n):
            return float(gemmkit.matmul(x, x * n).sum())
        for _ in range(2):
            with multiprocessing.get_context("fork").Pool(3) as pool:
                assert pool.map(work, range(6)) == [400.0 ** 3 * n for n in range(6)]
            gemmkit.matmul(x, x)
    """), timeout=30)


def test_a_fork_while_other_threads_multiply():
    run(WARM + textwrap.dedent("""
        stop = []
        def loop():
            while not stop:
                assert (gemmkit.matmul(x, x) == 400).all()
        threads = [threading.Thread(target=loop) for _ in range(2)]
        for thread in threads: thread.start()
        for _ in range(10):
            pid = os.fork()
            if not pid:
                os._exit(0 if (gemmkit.matmul(x, x) == 400).all() else 3)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        stop.append(1)
        for thread in threads: thread.join()
    """), timeout=30)


NO_NEW_THREADS = textwrap.dedent("""
    import ctypes, resource
    def refuse_threads():
        if os.getuid() == 0:  # root is exempt from the limit
            os.setresuid(65534, 65534, 65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        try:
            threading.Thread(target=int).start()
        except RuntimeError:
            return
        print("not run: the limit of processes does not bind here")
        sys.exit(77)
""")
MULTIPLY = textwrap.dedent("""
    try:
        assert (gemmkit.matmul(x, x) == 700).all()
    except (RuntimeError, MemoryError, OSError):
        pass
""")


@pytest.mark.parametrize("earlier", [(), (8,), (2,), (8, 2), (3, 1, 2)], ids=str)
def test_refused_threads_never_end_the_process(earlier):
    script = "x = np.ones((700, 700), np.float32)\n"
    for count in earlier:
        script += f"gemmkit.set_num_threads({count})\ngemmkit.matmul(x, x)\n"
    script += "refuse_threads()\ngemmkit.set_num_threads(8)\n" + 2 * MULTIPLY
    run(script, before=NO_NEW_THREADS, OPENBLAS_NUM_THREADS="1", timeout=30)


def test_clean_exit():
    run(WARM + "t = threading.Thread(target=gemmkit.matmul, args=(x, x)); t.start(); t.join()", timeout=15)
    for _ in range(3):
        run(WARM + textwrap.dedent("""
            def loop():
                while True: gemmkit.matmul(x, x)
            for _ in range(2): threading.Thread(target=loop, daemon=True).start()
            time.sleep(0.2)
        """), timeout=15)


# ---- Other threads

def test_many_python_threads_at_once():
    rng = np.random.default_rng(3)
    sizes = ((3, 2000, 4), (70, 60, 50), (200, 64, 1), (150, 150, 150), (1, 300, 900))
    jobs = [tuple(support.small_integers(rng, shape, dtype) for shape in ((m, k), (k, n)))
            for dtype, (m, k, n) in itertools.product(FLOATS, sizes)]
    wants = [support.reference(a, b) for a, b in jobs]
    failures = []

    def work(seed):
        for index in np.random.default_rng(seed).integers(0, len(jobs), 150):
            if not np.array_equal(gemmkit.matmul(*jobs[index]), wants[index]):
                failures.append(index)

    start_and_join(work, range(8))
    assert not failures


def test_the_number_may_change_while_others_multiply():
    x, failures, stop = np.ones((200, 200), np.float32), [], threading.Event()

    def work(_):
        while not stop.is_set():
            if not (gemmkit.matmul(x, x) == 200).all():
                failures.append(1)

    def change(_):
        end = time.perf_counter() + 1.5
        try:
            for n in itertools.cycle((1, 3, 2, 5)):
                gemmkit.set_num_threads(n)
                assert gemmkit.get_num_threads() == n
                time.sleep(0.001)
                if time.perf_counter() > end:
                    break
        except AssertionError as error:
            failures.append(error)
        finally:
            stop.set()

    try:
        start_and_join(lambda task: task(None), [work] * 4 + [change])
    finally:
        gemmkit.set_num_threads(None)
    assert not failures


def test_other_python_threads_run_during_a_product():
    """A thread that only counts gets on while a product runs: its longest pause is far below the product's time."""
    x = np.ones((1400, 1400))
    for _ in range(5):
        stamps, done = [], threading.Event()

        def count():
            while not done.is_set():
                stamps.append(time.perf_counter())
                time.sleep(0.0005)

        counter = threading.Thread(target=count)
        counter.start()
        start = time.perf_counter()
        with gemmkit.threads(1):
            gemmkit.matmul(x, x)
        end = time.perf_counter()
        done.set()
        counter.join()
        inside = [start, *(stamp for stamp in stamps if start < stamp < end), end]
        if max(np.diff(inside)) < (end - start) / 3:
            return
    pytest.fail(f"the longest pause was {max(np.diff(inside)):.4f} s of {end - start:.4f} s")


def test_spawned_processes_multiply():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(gemmkit.matmul, ([1.0, 2.0], [3.0, 4.0])) == 11.0


def test_a_fork_does_not_make_the_parent_trust_in_threads():
    run("""
import resource
x = np.ones((700, 700), np.float32)
gemmkit.set_num_threads(8)
gemmkit.matmul(x, x)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (size + (5 << 20),) * 2)
try:
    assert (gemmkit.matmul(x, x) == 700).all()
except MemoryError:
    pass
""", timeout=30)
