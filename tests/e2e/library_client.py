"""library_client.py SOCKET VERSION: contrib/python/belfry.py, against a belfryd of the software GPU."""

import errno
import gc
import os
import signal
import sys
import threading

import belfry

socket, version = sys.argv[1:]


def raises(code, text, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except belfry.Error as error:
        assert error.errno == code, (error.errno, str(error))
        assert text in str(error), str(error)
        assert isinstance(error, OSError) and error.result is None
        return
    raise AssertionError("%s%r did not fail" % (function, arguments))


def refuses(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except ValueError:
        return
    raise AssertionError("%s%r did not fail" % (function, arguments))


assert belfry.version() == version
with belfry.Belfry(socket, timeout=60) as b:
    assert b.create("snake", mem="64M", time="20:50", class_="latency", domain=None) == {"name": "snake", "gpu": "soft:0"}
    assert b.took > 0
    raises(errno.EEXIST, "snake", b.create, "snake")
    b.set("snake", time="10", objective="p99=2ms", public=True)
    report = b.report("snake")
    (vgpu,) = report["vgpus"]
    assert vgpu["name"] == "snake" and vgpu["public"] is True and vgpu["mem"]["limit"] == 64 << 20, vgpu
    assert abs(vgpu["time"]["request"] - 0.1) < 1e-9 and vgpu["time"]["limit"] == 1, vgpu
    assert report["daemon"]["socket"] == socket
    assert [one["name"] for one in b.report()["vgpus"]] == ["snake"]
    assert b.info()["gpus"][0]["gpu"] == "soft:0"
    assert b.explain("snake")["text"]
    for method, gate in ((b.hold, "held"), (b.open, "open"), (b.stop, "stopped"), (b.resume, "open")):
        method("snake")
        assert b.report("snake")["vgpus"][0]["gate"] == gate
    b.hold("snake", 3600)
    b.open("snake")
    b.reload()

    # What is wrong is found before anything is sent.
    raises(errno.EINVAL, "not a name", b.stop, "../etc")
    raises(errno.EINVAL, "not a name", b.stop, "sn\u00e4ke")
    raises(errno.EINVAL, "not a name", b.create, os.fsdecode(b"\xff\x1b"))
    raises(errno.EINVAL, "unknown", b.create, "other", frob=1)
    raises(errno.EINVAL, "size", b.check, mem="-1")
    raises(errno.EINVAL, "class latency", b.check, objective="p99=2ms")
    b.check("other", mem="1G", any_driver=True)
    b.check(for_set=True, objective="p99=2ms")
    raises(errno.EINVAL, "nothing to change", b.set, "snake")
    refuses(b.stop, "snake\0x")
    refuses(b.hold, "snake", -1)
    refuses(b.hold, "snake", 1e9)
    refuses(belfry.Belfry, timeout=0)
    refuses(belfry.Belfry, timeout=1e9)

    # Threads that share one object.
    problems = []

    def work():
        try:
            for _ in range(10):
                assert b.report("snake")["vgpus"]
        except Exception as problem:  # pylint: disable=broad-except
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems

    # Where the server of a GPU does not answer, the error carries the rest of the report.
    server = b.info()["gpus"][0]["server_pid"]
    os.kill(server, signal.SIGSTOP)
    try:
        belfry.Belfry(socket, timeout=0.2).report()
        raise AssertionError("a report on a GPU whose server is stopped")
    except belfry.Error as error:
        assert error.errno == errno.ETIMEDOUT and error.result["daemon"]["socket"] == socket, error
    finally:
        os.kill(server, signal.SIGCONT)

    b.remove("snake")
    raises(errno.ENOENT, "snake", b.remove, "snake", force=True)
raises(errno.EINVAL, "handle", b.info)
raises(errno.ECONNREFUSED, "no belfryd answers", belfry.Belfry("/no/such/socket").info)
raises(errno.ENAMETOOLONG, "107", belfry.Belfry, "/" * 200)

# No descriptor is left, whatever failed.
gc.collect()
before = len(os.listdir("/proc/self/fd"))
for _ in range(10):
    belfry.Belfry(socket).info()
    raises(errno.ENOENT, "nobody", belfry.Belfry(socket).stop, "nobody")
assert len(os.listdir("/proc/self/fd")) == before
