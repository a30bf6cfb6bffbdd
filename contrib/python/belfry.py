"""belfryd's virtual GPUs from Python, through libbelfry(3). Needs Python 3.6 and the library, and nothing else.

    import belfry

    with belfry.Belfry() as b:
        b.create("train", mem="40G", time="40:100")
        for vgpu in b.report()["vgpus"]:
            print(vgpu["name"], vgpu["time"]["share"])
        b.remove("train")

A call that fails raises belfry.Error, an OSError with belfryd's message. Programs are started on a vGPU with
`belfry run NAME -- PROGRAM`. BELFRY_LIBRARY names another libbelfry.so.0.
"""

import ctypes
import json
import os
import threading

__all__ = ["Belfry", "Error", "version"]

_FORCE = 1
_SET = 2


class Error(OSError):
    """A call failed. errno has the code, strerror the message; belfry.h lists the codes.

    If the server of one GPU does not answer, result is the report on the others; otherwise it is None.
    """

    result = None

    def __str__(self):
        return self.strerror


def _load():
    library = ctypes.CDLL(os.environ.get("BELFRY_LIBRARY") or "libbelfry.so.0")
    handle, name, flags = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
    options, text = ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_void_p)
    signatures = {
        "version": (ctypes.c_char_p, []),
        "open": (ctypes.c_int, [ctypes.POINTER(handle), name]),
        "close": (None, [handle]),
        "error": (ctypes.c_char_p, [handle]),
        "free": (None, [ctypes.c_void_p]),
        "set_timeout": (ctypes.c_int, [handle, ctypes.c_uint]),
        "took_ns": (ctypes.c_uint64, [handle]),
        "vgpu_create": (ctypes.c_int, [handle, name, options, text]),
        "vgpu_set": (ctypes.c_int, [handle, name, options]),
        "vgpu_check": (ctypes.c_int, [handle, name, options, flags]),
        "vgpu_remove": (ctypes.c_int, [handle, name, flags]),
        "vgpu_hold": (ctypes.c_int, [handle, name, ctypes.c_uint64]),
        "vgpu_open": (ctypes.c_int, [handle, name]),
        "vgpu_stop": (ctypes.c_int, [handle, name]),
        "vgpu_resume": (ctypes.c_int, [handle, name]),
        "vgpu_explain": (ctypes.c_int, [handle, name, text]),
        "report": (ctypes.c_int, [handle, name, text]),
        "info": (ctypes.c_int, [handle, text]),
        "reload": (ctypes.c_int, [handle]),
    }
    for function, (result, arguments) in signatures.items():
        getattr(library, "belfry_" + function).restype = result
        getattr(library, "belfry_" + function).argtypes = arguments
    return library


_library = _load()


def version():
    """The release of libbelfry, such as "0.1.0"."""
    return _library.belfry_version().decode()


def _encode(text):
    """As C text. A NUL would end it early, so that another name is used than the caller gave."""
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError("a NUL character in %r" % (text,))
    return encoded


def _words(options):
    """Keyword arguments as libbelfry takes them: any_driver=True is "any-driver" "yes", class_ is "class".

    None stands for an option that is not given.
    """
    words = []
    for key, value in options.items():
        if value is None:
            continue
        if isinstance(value, bool):
            value = "yes" if value else "no"
        words += [_encode(key.rstrip("_").replace("_", "-")), _encode(str(value))]
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _decode(text):
    return json.loads(ctypes.string_at(text.value).decode(errors="replace")) if text.value else None


class Belfry:
    """A client of belfryd.

    socket is the path of its socket; None: found as belfry(1) finds it. timeout is the time limit of a request in seconds.
    Threads that share one object wait for each other; for requests at the same time each needs its own.
    """

    def __init__(self, socket=None, timeout=None):
        self._handle = None
        self._lock = threading.Lock()
        if timeout is not None and not 0 < timeout <= 86400:
            raise ValueError("timeout of %r seconds: not from 0 to 86400" % (timeout,))
        self._handle = ctypes.c_void_p()
        path = None if socket is None else _encode(socket)
        code = _library.belfry_open(ctypes.byref(self._handle), path)
        try:
            self._check(code)
            if timeout is not None:
                self._check(_library.belfry_set_timeout(self._handle, max(1, round(timeout * 1000))))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if _library is not None and getattr(self, "_handle", None):
            self.close()

    def close(self):
        """Free the handle. Calls after this raise Error."""
        with self._lock:
            handle, self._handle = self._handle, None
            _library.belfry_close(handle)

    def _check(self, code):
        if code:
            raise Error(-code, _library.belfry_error(self._handle).decode(errors="replace"))

    def _call(self, function, *arguments):
        with self._lock:
            self._check(getattr(_library, "belfry_" + function)(self._handle, *arguments))

    def _fetch(self, function, *arguments):
        """The JSON that a call returns, as Python's own types."""
        text = ctypes.c_void_p()
        try:
            self._call(function, *arguments, ctypes.byref(text))
            return _decode(text)
        except Error as error:
            error.result = _decode(text)
            raise
        finally:
            _library.belfry_free(text)

    def create(self, name, **options):
        """Make a vGPU, with the options of belfry_vgpu_create(): mem, time, class_, gpu, owner and so on.

        Returns {"name": ..., "gpu": ...}.
        """
        return self._fetch("vgpu_create", _encode(name), _words(options))

    def set(self, name, **options):
        """Change a vGPU while programs run on it."""
        self._call("vgpu_set", _encode(name), _words(options))

    def check(self, name=None, for_set=False, **options):
        """Check a name and options without asking belfryd."""
        self._call("vgpu_check", None if name is None else _encode(name), _words(options),
                   _SET if for_set else 0)

    def remove(self, name, force=False):
        """Remove a vGPU; with force, end the programs that run on it."""
        self._call("vgpu_remove", _encode(name), _FORCE if force else 0)

    def hold(self, name, seconds=0):
        """Close its gate, for some seconds or until open()."""
        if not 0 <= seconds <= 86400:
            raise ValueError("hold for %r seconds: not from 0 to 86400" % (seconds,))
        self._call("vgpu_hold", _encode(name), round(seconds * 1e6))

    def open(self, name):
        """Open its gate."""
        self._call("vgpu_open", _encode(name))

    def stop(self, name):
        """Stop what it runs on the GPU."""
        self._call("vgpu_stop", _encode(name))

    def resume(self, name):
        """Let it go on after stop()."""
        self._call("vgpu_resume", _encode(name))

    def explain(self, name):
        """Why it waits, or what it does; ["text"] is for people."""
        return self._fetch("vgpu_explain", _encode(name))

    def report(self, name=None):
        """Everything that is counted, of all GPUs or of one vGPU: "daemon", "gpus" and "vgpus"."""
        return self._fetch("report", None if name is None else _encode(name))

    def info(self):
        """belfryd and its GPUs."""
        return self._fetch("info")

    def reload(self):
        """Have belfryd read its configuration again."""
        self._call("reload")

    @property
    def took(self):
        """How long belfryd took for the last successful request, in seconds."""
        return _library.belfry_took_ns(self._handle) / 1e9
